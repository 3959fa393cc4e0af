/* Sweeps of single units, draws from conditional tables, and errors of draws, for one kind of
 * processor. */
#include "ancestral.h"
#include "series.h"
#include "tabled.h"

void PGM_UNIT(draws)(pgm_routines *table)
{
    table->tabled = pgm_tabled_part;
    table->ancestral = pgm_ancestral_part;
    table->tally = pgm_tally_part;
    table->series = pgm_series_part;
}
