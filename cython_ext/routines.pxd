# c/routines.h for Cython: the fields that kernels.pyx fills. The header describes them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "routines.h" nogil:
    enum:
        PGM_MOST_STATES
        PGM_LANES_TOGETHER
        PGM_SWEEPS_TOGETHER
        PGM_SGD
        PGM_ADAM
        PGM_ADAMAX
        PGM_NO_MOMENTS
        PGM_FIRST_MOMENTS
        PGM_EACH_MOMENT
        PGM_MOST_VALUES
    const double PGM_LARGEST

    ctypedef void (*pgm_task)(void *job, int64_t first, int64_t last) noexcept nogil

    ctypedef struct pgm_link:
        int source "from"
        int to, arrow, at_once
        int64_t rows, tile
        const float *weight
        const int64_t *start
        const int32_t *column

    ctypedef struct pgm_layer:
        int kind, states, width, moves, by_unit, summed, directed, complement, uneven
        int64_t size, stride, units, free_stride, begin, end
        int reads
        float variance
        const float *support
        const float *log_base
        const float *bias
        const float *reference
        const float *soft
        float *base
        float *field
        float *zeta
        float *rest
        uint8_t *state
        float *value
        const uint8_t *free
        const uint8_t *alive

    ctypedef struct pgm_chains:
        int layers, links, visits
        pgm_layer *layer
        pgm_link *link
        const int32_t *visit
        float *beta
        uint32_t key[4]
        const uint32_t *stream
        int whole
        float alpha

    ctypedef struct pgm_sweep_job:
        const pgm_chains *chains
        int64_t count
        uint64_t first, sweeps
        int refresh, joint, backward, only
        const double *betas
        double *log_weight
        double *trace
        int64_t *changed
        int64_t capacity, widest
        int failed

    ctypedef struct pgm_slot:
        int64_t first, stride, configs, member, members, child, leads

    ctypedef struct pgm_member:
        int32_t unit, stride

    ctypedef struct pgm_site:
        int64_t states, width, support, slot, slots, component, value, soft, rank, linear, based
        int64_t moves, summed, directed, complement

    ctypedef struct pgm_tabled:
        int64_t units, visits, chains, values, softs, apart
        int alone
        const pgm_site *site
        const pgm_slot *slot
        const pgm_member *member
        const int32_t *visit
        const int32_t *wave
        const int64_t *wave_start
        int64_t waves, period
        float *uniforms
        const float *support
        const float *log_base
        const float *term
        const float *bias
        const float *reference
        const int64_t *link_start
        const int32_t *link_from
        const float *link_weight
        const int64_t *arrow_start
        const int32_t *arrow_from
        const float *arrow_weight
        const int64_t *child_start
        const int32_t *child
        const int64_t *near_start
        const int32_t *near
        const int32_t *value_unit
        uint8_t *state
        float *value
        const float *soft
        const uint8_t *free
        const uint8_t *cut
        const float *beta
        const uint32_t *stream
        uint32_t key[4]
        float alpha

    ctypedef struct pgm_tabled_job:
        const pgm_tabled *chains
        uint64_t first, sweeps
        int joint, backward
        const uint8_t *anew
        float *beta
        const double *betas
        double *log_weight
        double *trace
        double *density
        int *failed

    ctypedef struct pgm_matrix:
        const float *w
        int64_t down, right, rows, columns

    ctypedef struct pgm_product_job:
        const float *a
        int64_t rows, n
        pgm_matrix b
        float *out
        int64_t apart
        int failed

    ctypedef struct pgm_pack_job:
        pgm_matrix weight
        int64_t tile
        float *out

    ctypedef struct pgm_ascend_job:
        int kind, fine
        double rate, keep1, keep2, unbias1, unbias2, epsilon, l1, l2
        const double *p
        const double *g
        const float *single
        float scale
        double *p2
        float *copy
        double *m
        double *v

    enum:
        PGM_TAKE
        PGM_KEEP
        PGM_TAKE_STATES
        PGM_COPY_ROWS
        PGM_START_FIELD
        PGM_ADD_PRODUCT
        PGM_ADD_EACH
        PGM_MEAN
        PGM_CHANGE
        PGM_SETTLED
        PGM_CHECK_FIELD
        PGM_DRAW
        PGM_PACK
        PGM_SWEEP
        PGM_VALUES
        PGM_WEIGH
        PGM_OUTER
        PGM_SUM
        PGM_FOLLOW
        PGM_CENTRE
        PGM_COMBINE
        PGM_FAST
        PGM_LADDER
        PGM_PICK
        PGM_ASCEND
        PGM_AVERAGE

    ctypedef struct pgm_mean_job:
        const float *eta
        float *out
        int64_t n
        int unit, values, width
        float variance
        const float *support
        const float *log_base

    ctypedef struct pgm_blas_job:
        const float *a
        const float *b
        float *out
        int64_t rows, n, m, apart
        int turned

    ctypedef struct pgm_ladder:
        int64_t pairs, rungs, rows
        const double *betas
        int64_t *rung
        int64_t *slow
        int64_t *fast
        double *log_g
        double *visits
        int64_t *seen
        int64_t *visited
        int64_t *counts
        uint8_t *from_below
        double *density
        int64_t *here

    ctypedef struct pgm_op:
        int kind, parts, span, turned, to
        int64_t n, m, apart, rows
        pgm_ladder *ladder
        const int64_t *chosen
        const float *a
        const float *b
        const float *c
        const float *d
        const double *x
        float *out
        float *more
        double *sums
        const uint8_t *states
        uint8_t *to_states
        double number, rest
        int rate "from"
        int key, anew, layer
        uint64_t first, sweeps
        pgm_mean_job mean
        pgm_chains *chains
        int64_t capacity, widest
        pgm_pack_job pack
        pgm_ascend_job step
        double beta1, beta2
        double *work
        double *last

    ctypedef struct pgm_learning:
        pgm_op *op
        int64_t ops, updates, made, first
        const double *rate
        int64_t rates
        const float *alpha
        const uint32_t *key
        int64_t keys
        const double *uniform
        int64_t uniforms, rows, size, left
        uint64_t passes "pass"
        const uint32_t *order_key
        int64_t *order
        int64_t *batch
        uint64_t *mark
        const double *weight
        float *weights
        int64_t chains
        int64_t *moved
        float *scratch
        float sparse_share, listing
        int64_t failed
        void (*share)(pgm_task task, void *job, int64_t count, int parts) noexcept nogil
        pgm_task times, across

    ctypedef struct pgm_block:
        int terms
        int64_t size, start
        double power
        int complement

    ctypedef struct pgm_problem:
        int64_t units, indicators, components, blocks
        const int64_t *states
        const int64_t *first
        const double *theta
        const double *pair
        const double *offset
        const double *value
        const double *up
        const double *down
        const pgm_block *block
        int every

    ctypedef struct pgm_work:
        int64_t *state
        int64_t *direction
        double *field
        double *e
        double *sums
        double *open

    ctypedef struct pgm_walk_job:
        pgm_problem problem
        pgm_work work
        int64_t start, count, step
        int moments, best
        double *log_sums
        double *log_weights
        double *sums
        double scale, mass

    ctypedef struct pgm_kind:
        int states, width
        double curvature
        const double *value
        const double *log_base

    ctypedef struct pgm_net:
        int64_t units, terms, states, comps, term_states, term_comps, edges, capacity
        const pgm_kind *kind
        const int32_t *unit_kind
        const int32_t *term_kind
        const int32_t *term_plain
        const int64_t *unit_state
        const int64_t *unit_comp
        const int64_t *term_state
        const int64_t *term_comp
        const int64_t *link_start
        const int32_t *link_from
        const double *link_weight
        const double *link_share
        const int64_t *down_start
        const int64_t *down_edge
        const int64_t *up_start
        const int32_t *edge_unit
        const int32_t *edge_term
        const int64_t *edge_weight
        const double *weight
        const int32_t *term_two
        const double *growth
        const int64_t *own_first
        const int64_t *own_count
        const int64_t *own_term
        const int32_t *own_complement
        int64_t tables
        const int64_t *table_start
        const int64_t *table_entry
        const int64_t *axis_unit
        const int64_t *axis_table
        const int64_t *axis_stride
        const int64_t *in_start
        const int64_t *in_axis
        const int64_t *own_table
        const int32_t *hard
        const double *entry
        double cut

    ctypedef struct pgm_batch:
        double *log_q
        double *q
        double *mean
        const double *base
        const double *gain
        const double *open
        const double *still
        const double *live
        double *on
        double *pull
        double *xi
        double *phi
        double *f
        double *input
        const double *beta
        const double *barren
        const double *row_weight
        const double *power

    ctypedef struct pgm_source:
        double *to
        const double *from_ "from"
        int64_t rows, items

    int PGM_SOURCES

    ctypedef struct pgm_belief_job:
        const pgm_net *net
        const pgm_net *by_term
        const pgm_batch *batch
        int64_t blocks, rows
        const pgm_source *source
        const double *factor
        double floor
        int only_tables
        int64_t rounds
        double tolerance
        int steps
        int64_t *made
        double *change
        const int64_t *order
        int64_t count
        double *weight
        double least
        double *value
        double *counts
        int (*poll)(void *token) noexcept nogil
        void *token
        int stopped
        int failed

    ctypedef struct pgm_operand:
        int64_t table

    ctypedef struct pgm_clique:
        int32_t axes, residual, outer, factors, operands, parent
        int64_t inner, entries, separator

    ctypedef struct pgm_tree_job:
        const pgm_clique *clique
        int64_t cliques, factors, lanes, variables
        int additive, largest
        double **table
        double **gain
        const uint8_t *wide
        double *scale
        double *log_scale
        double *stack
        double *spare
        double *child
        double *margin
        const int64_t *margin_at
        double *block
        double *sums
        int64_t *offset
        int64_t *digit
        int flagged
        int (*poll)(void *token) noexcept nogil
        void *token
        int64_t done, due
        int stopped

    ctypedef struct pgm_values_job:
        const double **value
        const int64_t *size
        int bad, lost

    ctypedef struct pgm_draw_job:
        int64_t draws
        const double *uniform
        const uint32_t *key
        const uint32_t *stream
        int32_t *state
        double *log_value
        double *sorted
        double *sums

    ctypedef struct pgm_lateral_job:
        int states, width
        int64_t rows, units, comps
        const double *value
        const double *log_base
        const double *weight
        const int64_t *start
        const int32_t *column
        const double *field
        const double *beta
        const double *reference
        const uint8_t *free
        uint8_t *stale
        double *mean
        double *eta
        double quiet

    ctypedef struct pgm_cluster_job:
        int64_t rows, units, edges, states
        int64_t lanes, field_lanes
        const int32_t *a
        const int32_t *b
        const double *chance
        const uint8_t *positive
        const double *field
        const double *uniform
        uint8_t *state
        int32_t *parent
        double *total

    enum:
        PGM_SERIES_NO_ERROR, PGM_SERIES_BY_MEANS, PGM_SERIES_BY_LAGS

    ctypedef struct pgm_series_job:
        int64_t series, chains, draws
        const double *x
        const int64_t *at
        int64_t chain, draw, ranked
        const double *score
        int error
        uint8_t *kind
        double *rhat
        double *mcse
        double *variance
        int failed

    int64_t PGM_TREE_SUMS
    int64_t PGM_ANCESTRAL_LANES

    ctypedef struct pgm_ancestral_job:
        int64_t draws, rows, each, units
        const int64_t *unit
        const int64_t *states
        const int64_t *first
        const int64_t *start
        const int64_t *parent
        const int64_t *stride
        const uint8_t *role
        const int64_t *place
        const double *uniform
        const double *prob
        const double *log
        int32_t *state
        double *log_weight

    ctypedef struct pgm_tally_job:
        int64_t rows, each, most
        const int32_t *state
        const double *weight
        double *out

    ctypedef struct pgm_path_job:
        int64_t chains, states
        const int64_t *first
        const double *field
        const double *move
        const double *weight
        double *log_z
        double *marginals
        double *pairs
        int32_t *path
        int failed
    int64_t pgm_sums_room(const pgm_clique *clique, int64_t draws)

    ctypedef struct pgm_routines:
        const char *name
        int lanes
        pgm_task sweep, tabled, multiply, outer, pack, ascend, start, settle, forward, learn
        pgm_task forward_tables, value, count_tables, lateral, clusters, series, ancestral, tally
        void (*update)(pgm_learning *job) noexcept nogil
        void (*shuffle)(const uint32_t *key, uint64_t passes, int64_t rows,
                        int64_t *order) noexcept nogil
        pgm_task mean
        void (*walk)(pgm_walk_job *job) noexcept nogil
        void (*log_densities)(const pgm_chains *c, int64_t chains, int last,
                              double *log_density) noexcept nogil
        void (*sum_paths)(pgm_path_job *job) noexcept nogil
        void (*best_paths)(pgm_path_job *job) noexcept nogil
        void (*tabulate)(pgm_tree_job *job, pgm_values_job *values) noexcept nogil
        void (*collect)(pgm_tree_job *job, int64_t first, int64_t last) noexcept nogil
        void (*distribute)(pgm_tree_job *job, int64_t first, int64_t last) noexcept nogil
        void (*draw_states)(pgm_tree_job *job, pgm_draw_job *draw) noexcept nogil
        void (*fill_uniforms)(const uint32_t *key, uint32_t sweep, uint32_t chain, uint32_t layer,
                              uint32_t first,
                              int64_t blocks, float *out) noexcept nogil

    const pgm_routines *pgm_routines_of(int kind)
