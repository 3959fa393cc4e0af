/* Sweeps of single units, moves of clusters, draws from conditional tables, and errors of draws, for
 * one kind of processor. */
#include "ancestral.h"
#include "clusters.h"
#include "series.h"
#include "tabled.h"

void PGM_UNIT(draws)(pgm_routines *table)
{
    table->tabled = pgm_tabled_part;
    table->ancestral = pgm_ancestral_part;
    table->tally = pgm_tally_part;
    table->clusters = pgm_cluster_part;
    table->series = pgm_series_part;
}
