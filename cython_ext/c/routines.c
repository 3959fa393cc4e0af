/* The routines for one kind of processor: setup.py compiles this file once for each, with PGM_KIND
 * as its name. */
#include "routines.h"

#include "ancestral.h"
#include "belief.h"
#include "bunches.h"
#include "elimination.h"
#include "lateral.h"
#include "optimizers.h"
#include "products.h"
#include "series.h"
#include "sweep.h"
#include "tabled.h"
#include "tree_states.h"
#include "learning.h"

#define PGM_JOIN(a, b) a##b
#define PGM_ROUTINES(kind) PGM_JOIN(pgm_routines_, kind)
#define PGM_QUOTE(kind) #kind
#define PGM_NAME(kind) PGM_QUOTE(kind)

const pgm_routines PGM_ROUTINES(PGM_KIND) = {
    .name = PGM_NAME(PGM_KIND),
    .lanes = PGM_LANES,
    .sweep = pgm_sweep_part,
    .tabled = pgm_tabled_part,
    .multiply = pgm_multiply_part,
    .outer = pgm_outer_part,
    .pack = pgm_pack_part,
    .ascend = pgm_ascend_part,
    .start = pgm_start_part,
    .settle = pgm_settle_part,
    .forward = pgm_forward_part,
    .learn = pgm_learn_part,
    .forward_tables = pgm_forward_tables_part,
    .value = pgm_value_part,
    .count_tables = pgm_count_tables_part,
    .lateral = pgm_lateral_part,
    .series = pgm_series_part,
    .ancestral = pgm_ancestral_part,
    .tally = pgm_tally_part,
    .update = pgm_run_updates,
    .shuffle = pgm_shuffle,
    .mean = pgm_mean_part,
    .walk = pgm_walk,
    .tabulate = pgm_tabulate,
    .collect = pgm_collect,
    .distribute = pgm_distribute,
    .draw_states = pgm_draw_states,
    .log_densities = pgm_log_densities,
    .fill_uniforms = pgm_fill_uniforms,
};
