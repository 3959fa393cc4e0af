/* Sweeps of layers, their products, and learning, for one kind of processor. */
#include "learning.h"

void PGM_UNIT(layers)(pgm_routines *table)
{
    table->lanes = PGM_LANES;
    table->sweep = pgm_sweep_part;
    table->multiply = pgm_multiply_part;
    table->outer = pgm_outer_part;
    table->pack = pgm_pack_part;
    table->ascend = pgm_ascend_part;
    table->update = pgm_run_updates;
    table->shuffle = pgm_shuffle;
    table->mean = pgm_mean_part;
    table->log_densities = pgm_log_densities;
    table->fill_uniforms = pgm_fill_uniforms;
}
