/* Exact sums over states: enumeration, junction trees and chains, for one kind of processor. */
#include "bunches.h"
#include "paths.h"
#include "tree_states.h"

void PGM_UNIT(sums)(pgm_routines *table)
{
    table->walk = pgm_walk;
    table->tabulate = pgm_tabulate;
    table->collect = pgm_collect;
    table->distribute = pgm_distribute;
    table->draw_states = pgm_draw_states;
    table->sum_paths = pgm_sum_paths;
    table->best_paths = pgm_best_paths;
}
