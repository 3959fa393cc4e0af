/* The interface of the compiled routines: the structures that cython_ext/kernels.pyx fills, and a
 * table of functions.
 *
 * The units layers.c, draws.c, rounds.c and sums.c are compiled once for each kind of processor,
 * with different flags. Each adds its routines to the pgm_routines of its kind, and pgm_routines_of
 * chooses among these at run time. Nothing here depends on the width of vectors, so that one Cython
 * module serves all kinds. The caller owns all arrays and keeps them alive. All arrays are
 * C-contiguous.
 *
 * A routine of type pgm_task processes the items first .. last - 1 of a job. The parts of a job may
 * run on several threads (team.h), and no result depends on how a job is divided into parts.
 */
#ifndef PGM_ROUTINES_H
#define PGM_ROUTINES_H

#include <stdint.h>

typedef void (*pgm_task)(void *job, int64_t first, int64_t last);

/* ---- sweeps of chains: sweep.h ---- */

/* units of finitely many states; Gaussian; uniform base measure on [-1, 1]: units.base.Draw has the
 * same numbers */
enum { PGM_FINITE, PGM_NORMAL, PGM_INTERVAL };

#define PGM_MOST_STATES 256 /* of a unit: states are bytes */

/* One direction of a coupling: how changes in layer `from` reach the inputs of layer `to`. */
typedef struct {
    int from, to;
    int arrow;    /* adds to the directed input zeta of a child, not to the field */
    int at_once;  /* applied at each change, not at the end of a pass */
    int64_t rows; /* of a dense weight, 0 when it is sparse */
    int64_t tile; /* columns of a panel: 16, 32 or 64 */
    const float
        *weight; /* dense: panels (tiles, rows, tile); sparse: the entries of a csr matrix, */
    const int64_t *start;  /* (rows + 1) its row starts, */
    const int32_t *column; /* and its columns, ascending in each row */
} pgm_link;

typedef struct {
    int kind;       /* PGM_FINITE, PGM_NORMAL or PGM_INTERVAL */
    int states;     /* of a finite unit, else 0 */
    int width;      /* components of a unit: k of a one-hot unit of k states, else 1 */
    int moves;      /* whether it has free units */
    int by_unit;    /* its units depend on each other, and are drawn one after the other */
    int summed;     /* marginalised in importance weights: bit 1 forward, bit 2 backward */
    int directed;   /* has parents */
    int complement; /* p(0 | zeta) = e^-zeta */
    int uneven;     /* log h, the base measure, is not constant */
    int64_t size;   /* units */
    int64_t stride; /* floats of a chain in field, zeta, base: size * width, padded */
    int64_t units;  /* bytes or floats of a chain in state, value, free, alive: size, padded */
    int64_t begin, end; /* the columns of units that are free in some chain, multiples of 64 or 0
                           and stride; the others are not drawn, and their fields are not kept */
    int reads;          /* what the log density reads: 0 half of the field and of base, 1 the field,
                           2 base; of each coupling of moving layers, one end has 1 and one has 2 */
    float variance; /* of a Gaussian */
    const float *support, *log_base; /* (states) values and log h */
    const float *bias;               /* (stride) of zeta when directed, else of the field */
    const float *reference;          /* (stride) bias of the model at beta = 0, or NULL: 0 */
    const float *soft;               /* (chains, stride) added to the field, or NULL */
    float
        *base; /* (chains, stride) the field without input from moving layers, or NULL: the bias */
    float *field,
        *zeta; /* (chains, stride) undirected and directed input, or NULL where nothing reads it */
    float *rest;          /* (chains, stride) rounding error of zeta, for complement units */
    uint8_t *state;       /* (chains, units) of finite units */
    float *value;         /* (chains, units) of other units */
    const uint8_t *free;  /* (chains or 1, units) mask of the units that move */
    int64_t free_stride;  /* units, or 0 if all chains share one row */
    const uint8_t *alive; /* (chains, units) mask of the conditionals that count, or NULL: all */
} pgm_layer;

/* the chains of one target */
typedef struct {
    int layers, links, visits;
    pgm_layer *layer;
    pgm_link *link;
    const int32_t *visit; /* (visits) layers in the order of a sweep */
    float *beta;          /* (chains) */
    uint32_t key[4];
    const uint32_t *stream; /* (chains) */
    int whole;              /* whether the fields of all units are kept, as importance weights need */
    float
        alpha; /* share of the flip-the-state kernel; at beta = 0 the draw is exact all the same */
} pgm_chains;

typedef struct {
    const pgm_chains *chains;
    int64_t count;          /* chains */
    uint64_t first, sweeps; /* sweeps first .. first + sweeps - 1 */
    int refresh;            /* compute all inputs first */
    int joint;              /* importance weights marginalise no layer */
    int backward; /* visit layers and units in the reverse order, which reverses the sweep */
    int only;     /* draw only this layer, with given inputs, and update no inputs; or -1 */
    const double *betas; /* (sweeps + 1) or NULL: sweep t is made at betas[t + 1], and before it
                            log_weight gains */
    double *log_weight;  /* (count) gains log p_(betas[t + 1]) - log p_(betas[t]), with `summed`
                            layers marginalised */
    double *trace;       /* (sweeps, count, 2) or NULL: log densities after each sweep */
    int64_t *changed;    /* (layers) gains the number of changes */
    int64_t capacity;    /* most changes of a layer in a pass */
    int64_t widest;      /* largest stride of a layer */
    int failed;          /* becomes 1 without memory */
} pgm_sweep_job;

/* ---- sweeps of models with tables: tabled.h ---- */

#define PGM_LANES_TOGETHER 16 /* chains that one thread sweeps together, unless `alone` */
#define PGM_SWEEPS_TOGETHER 8 /* sweeps of one chain in progress at once, by waves, with `alone` */

/* bits of the fields linear and directed of pgm_site: sweeps read the conditionals of some children
 * from tables, log densities do not */
enum { PGM_SWEEPS = 1, PGM_DENSITIES = 2 };

/* a table from the point of view of one of its units */
typedef struct {
    int64_t first;           /* its first entry */
    int64_t stride;          /* distance, in entries, between neighbouring states of the unit */
    int64_t configs;         /* joint states of the other members */
    int64_t member, members; /* the first of the other members, and their number */
    int64_t child;           /* the unit whose do() removes the table, or -1 */
    int64_t leads;           /* the first unit of a scope, which adds it to log densities */
} pgm_slot;

/* another member of the table of a slot */
typedef struct {
    int32_t unit, stride;
} pgm_member;

typedef struct {
    int64_t states, width;
    int64_t support;     /* the first value, and log h, of its kind */
    int64_t slot, slots; /* the first of its slots, and their number */
    int64_t component;   /* its first component in bias, reference and link_start */
    int64_t value;       /* its first row of `value`, or -1: no coupling reads it */
    int64_t soft;        /* its first row of `soft`, or -1 */
    int64_t rank;        /* the number of its uniform */
    int64_t linear;      /* its natural parameter may differ from 0: PGM_SWEEPS, PGM_DENSITIES */
    int64_t based;       /* whether log h differs from 0 */
    int64_t moves;       /* whether it is free in some chain */
    int64_t summed;      /* marginalised in importance weights: bit 1 forward, bit 2 backward */
    int64_t directed;    /* it has a directed input: PGM_SWEEPS, PGM_DENSITIES add it up */
    int64_t complement;  /* p(0 | zeta) = e^-zeta */
} pgm_site;

/* The chains of one target. The states of unit i in chain c are at state[i * apart + c]. With
 * `alone`, chains lie one after the other instead: chain c begins at state + c * units, and its
 * units follow each other (apart = 1). The same holds for value, soft, free and cut. */
typedef struct {
    int64_t units, visits, chains;
    int64_t values, softs; /* rows of value and soft, the distance between chains with `alone` */
    int64_t apart;
    int alone;
    const pgm_site *site;     /* (units) */
    const pgm_slot *slot;     /* slots of a unit follow each other */
    const pgm_member *member; /* of a slot follow each other */
    const int32_t *visit;     /* (visits) units in the order of a sweep */
    const int32_t *wave;      /* (visits) the units by waves, or NULL (independent_visits.py) */
    const int64_t *wave_start; /* (waves + 1) */
    int64_t waves, period;
    float *uniforms;           /* (chains, PGM_SWEEPS_TOGETHER, blocks of all ranks) for waves */
    const float *support, *log_base;
    const float *term;        /* logarithms of the entries of all tables */
    const float *bias;        /* (components) */
    const float *reference;   /* (components) bias of the model at beta = 0, or NULL: 0 */
    const int64_t *link_start; /* (components + 1) couplings of each component, as a csr matrix */
    const int32_t *link_from;  /* rows of `value` */
    const float *link_weight;
    const int64_t *arrow_start; /* (components + 1) arrows into each component, likewise */
    const int32_t *arrow_from;
    const float *arrow_weight;
    const int64_t *child_start; /* (units + 1) the children of each unit, */
    const int32_t *child;       /* listed here */
    const int64_t *near_start;  /* (units + 1) the neighbours of each unit, or NULL: no forests */
    const int32_t *near;        /* listed here, moving ones only */
    const int32_t *value_unit;  /* (values) the unit of each row of `value`, with `near` */
    uint8_t *state;       /* (units, chains) */
    float *value;         /* (values, chains) values of the units in couplings */
    const float *soft;    /* (softs, chains) added to the natural parameter */
    const uint8_t *free;  /* (units, chains) mask of the units that move, or NULL: site.moves */
    const uint8_t *cut;   /* (units, chains) mask of the units set by do(), or NULL */
    const float *beta;    /* (chains) */
    const uint32_t *stream; /* (chains) */
    uint32_t key[4];
    float alpha; /* share of the flip-the-state kernel; at beta = 0 draws are always exact */
} pgm_tabled;

typedef struct {
    const pgm_tabled *chains;
    uint64_t first, sweeps;  /* sweeps first .. first + sweeps - 1 */
    int joint;               /* importance weights marginalise no unit */
    int backward;            /* visit units in the reverse order */
    const uint8_t *anew;     /* (units) mask of the units drawn by Gibbs, or NULL */
    float *beta;             /* (chains) set by a schedule */
    const double *betas;     /* (sweeps + 1) or NULL: as in pgm_sweep_job */
    double *log_weight;      /* (chains) */
    double *trace;           /* (sweeps, chains, 2) or NULL: log densities after each sweep */
    double *density;         /* (chains, 2) or NULL: log densities of the current states */
    int *failed;             /* becomes 1 without memory */
} pgm_tabled_job;

/* ---- products of matrices: products.h ---- */

/* a matrix (rows, columns) with element (i, j) at w[i * down + j * right] */
typedef struct {
    const float *w;
    int64_t down, right, rows, columns;
} pgm_matrix;

typedef struct {
    const float *a; /* (rows, n); zeros take no time */
    int64_t rows, n;
    pgm_matrix b; /* of outer: contiguous */
    float *out;   /* rows `apart` apart; of outer: contiguous */
    int64_t apart;
    int failed;
} pgm_product_job;

typedef struct {
    pgm_matrix weight;
    int64_t tile;
    float *out; /* (tiles, rows, tile) */
} pgm_pack_job;

/* ---- optimizers: optimizers.h ---- */

enum { PGM_SGD, PGM_ADAM, PGM_ADAMAX };

#define PGM_LARGEST \
    1e30 /* the largest parameter: a sum of 1e8 of them is finite in single precision */

typedef struct {
    int kind, fine; /* fine becomes 0 when a new parameter is not a number within PGM_LARGEST */
    double rate, keep1, keep2, unbias1, unbias2, epsilon, l1, l2;
    const double *p;     /* (n) parameters */
    const double *g;     /* (n) gradient, or NULL: */
    const float *single; /* (n) gradient in single precision, */
    float scale;         /* and a number that multiplies it */
    double *p2;          /* (n) new parameters, */
    float *copy;         /* (n) and the same in single precision */
    double *m, *v;       /* (n) moments, changed in place, or NULL */
} pgm_ascend_job;

/* ---- updates of learning: learning.h ---- */

/* means of units, means.h */
typedef struct {
    const float *eta; /* (rows, n) natural parameters */
    float *out;       /* (rows, n) */
    int64_t n;
    int unit, values, width; /* kind, states and width, as in pgm_layer */
    float variance;
    const float *support, *log_base;
} pgm_mean_job;

/* a product of matrices by BLAS */
typedef struct {
    const float *a, *b;
    float *out;
    int64_t rows, n, m, apart;
    int turned;
} pgm_blas_job;

/* The kinds of operations of an update. */
enum {
    PGM_TAKE,         /* rows of the data */
    PGM_KEEP,         /* the same, but for values that are NaN, which are not observed */
    PGM_TAKE_STATES,  /* states of the data, into chains */
    PGM_COPY_ROWS,    /* rows of the data, into rows of the chains */
    PGM_START_FIELD,  /* out = bias */
    PGM_ADD_PRODUCT,  /* out += a b, or a b' */
    PGM_ADD_EACH,     /* out += the one row a b, or a b', in all rows */
    PGM_MEAN,         /* means of units from natural parameters */
    PGM_CHANGE,       /* changes of means, which neighbours have not received yet */
    PGM_SETTLED,      /* go to operation `to` if no mean has changed by more than `tolerance` */
    PGM_CHECK_FIELD,  /* stop unless all numbers are finite */
    PGM_DRAW,         /* states of one layer of the chains */
    PGM_PACK,         /* a weight into panels */
    PGM_SWEEP,        /* whole sweeps of the chains */
    PGM_VALUES,       /* values of the states of the chains */
    PGM_WEIGH,        /* rows times their weights */
    PGM_OUTER,        /* out = a' b */
    PGM_SUM,          /* sum over rows times their weights */
    PGM_FOLLOW,       /* offsets follow the means of the data */
    PGM_CENTRE,       /* the gradient of a weight of the centred model */
    PGM_COMBINE,      /* out = a + number b */
    PGM_FAST,         /* fast weights */
    PGM_LADDER,       /* moves of fast chains over a ladder, and exchanges with slow chains */
    PGM_PICK,         /* chosen rows */
    PGM_ASCEND,       /* a step of the optimizer */
    PGM_AVERAGE       /* an average of parameters */
};

/* Rows of an operation: those of the chains, of the data, or both. */
enum { PGM_OF_CHAINS, PGM_OF_DATA, PGM_OF_BOTH };

/* Pairs of a slow chain and of a fast one, which moves over a ladder of temperatures
 * (coupled_ladders.py). The fast chains are in `rows` groups of equal size that share log weights.
 */
typedef struct {
    int64_t pairs, rungs, rows;
    const double *betas;     /* (rungs) */
    int64_t *rung;           /* (pairs) of the fast chains */
    int64_t *slow, *fast;    /* (pairs) numbers of the chains */
    double *log_g, *visits;  /* (rows, rungs) */
    int64_t *seen, *visited; /* (rungs) as in round_trips.py */
    int64_t *counts;         /* (6) */
    uint8_t *from_below;     /* (pairs) */
    double *density;         /* (2 pairs, 2) */
    int64_t *here;           /* (rungs) scratch */
} pgm_ladder;

/* One operation. Arrays with rows have `n` or `m` numbers in a row, the chains first, and then the
 * data; `apart` is the distance between rows of `out`. */
typedef struct {
    int kind, parts, span, turned, to;
    int64_t n, m, apart;
    int64_t rows; /* the first rows of all arrays, whatever the span, or 0 */
    pgm_ladder *ladder;
    const int64_t *chosen; /* PGM_PICK: (chains) */
    const float *a, *b, *c, *d;
    const double *x;
    float *out, *more;
    double *sums;
    const uint8_t *states; /* PGM_TAKE_STATES: (rows of data, m) */
    uint8_t *to_states;
    double number, rest;   /* tolerance, share of the past, ... */
    int from;              /* PGM_FAST, PGM_ASCEND, PGM_LADDER: column of the rate */
    int key;               /* PGM_DRAW, PGM_SWEEP: which key, or -1: as before */
    int anew;              /* PGM_DRAW: by Gibbs */
    int layer;
    uint64_t first, sweeps;
    pgm_mean_job mean;
    pgm_chains *chains;
    int64_t capacity, widest;
    pgm_pack_job pack;
    pgm_ascend_job step;
    double beta1, beta2;   /* shares of the moments of PGM_ADAM and PGM_ADAMAX that remain */
    double *work, *last;   /* PGM_ASCEND: parameters during the updates, and after the last */
} pgm_op;

typedef struct {
    pgm_op *op;
    int64_t ops;
    int64_t updates, made;   /* updates to make; made: all of them unless one has failed */
    int64_t first;           /* number of the first one */
    const double *rate;      /* (updates, rates) */
    int64_t rates;
    const float *alpha;      /* (updates) share of the flip-the-state kernel */
    const uint32_t *key;     /* (updates, keys, 4) */
    int64_t keys;
    const double *uniform;   /* (updates, uniforms) */
    int64_t uniforms;
    /* mini-batches: `left` rows of `order` belong to the pass under way */
    int64_t rows, size, left;
    uint64_t pass;
    const uint32_t *order_key;
    int64_t *order, *batch;  /* (rows), (size) */
    uint64_t *mark;          /* (rows / 64 + 1), 0 */
    const double *weight;    /* (rows) of all data */
    float *weights;          /* (chains + size) of the batch, of the chains with a minus */
    int64_t chains;          /* chains, or 0: one for each row of the batch */
    double mass;             /* sum of the weights of the batch */
    float changed;           /* largest change of a mean */
    int64_t *moved;          /* (layers) scratch of sweeps */
    float *scratch;          /* sums over columns of PGM_CENTRE */
    float sparse_share, listing; /* see pgm_adds_rows */
    int64_t failed;          /* operation that has failed, or -1 */
    /* threads, and BLAS */
    void (*share)(pgm_task task, void *job, int64_t count, int parts);
    pgm_task times, across;
} pgm_learning;

/* ---- enumeration: gray.h ---- */

/* units of one kind, marginalised in closed form or with a normaliser; their components lie as
 * [term][unit] */
typedef struct {
    int terms;      /* states - 1: exponentials a unit */
    int64_t size;   /* units, padded with exponentials of 0 to whole vectors */
    int64_t start;  /* first component */
    double power;   /* +1 for marginalised units, -beta for normalisers of children */
    int complement; /* the last term is subtracted: a sum may be 0, and the state impossible */
} pgm_block;

typedef struct {
    int64_t units, indicators, components, blocks; /* components: whole vectors */
    const int64_t *states;                         /* (units) of the cover */
    const int64_t *first;                          /* (units) first indicator */
    const double *theta;                           /* (indicators) */
    const double *pair;                            /* (indicators, indicators) */
    const double *offset;                          /* (components) */
    const double *value;                           /* V (indicators, components) */
    const double *
        up; /* (indicators, components) exp of the change when a unit steps up into an indicator, */
    const double *down;     /* and its inverse */
    const pgm_block *block; /* (blocks) */
    int every; /* factors whose product cannot overflow before its exponent is extracted */
} pgm_problem;

/* probabilities of components and indicators; also their products with each indicator */
enum { PGM_NO_MOMENTS, PGM_FIRST_MOMENTS, PGM_EACH_MOMENT };

typedef struct {
    int64_t *state, *direction; /* (units) of the Gray code */
    double *field;              /* (indicators) theta + pair of the current state */
    double *e;                  /* (components) exponentials of the current state */
    double *sums;               /* (components + indicators) weighted probabilities of a piece, */
    double
        *open; /* (indicators, components + indicators) and times indicators, for PGM_EACH_MOMENT */
} pgm_work;

typedef struct {
    pgm_problem problem;
    pgm_work work;
    int64_t start, count, step; /* states start .. start + count - 1 in pieces of `step` */
    int moments;                /* PGM_NO_MOMENTS, PGM_FIRST_MOMENTS or PGM_EACH_MOMENT */
    int best;                   /* units take their most probable value and are not marginalised */
    double *log_sums;           /* (pieces) log of the sum of the weights of each piece */
    double *log_weights;        /* (count) or NULL */
    double
        *sums; /* (1 or 1 + indicators, components + indicators) gains work.sums and work.open, */
    double scale; /* divided by exp(scale); -inf before the first piece */
    double mass;  /* the sum of the weights, divided by exp(scale) as well */
} pgm_walk_job;

/* ---- mean field with directed children: belief.h ---- */

#define PGM_MOST_VALUES 256 /* states, or components, of a unit */
#define PGM_MOST_AXES 65    /* axes of a table, and one more */

typedef struct {
    int states, width;
    double curvature;       /* c of A(z) = c z^2 / 2, or 0 */
    const double *value;    /* (states, width) */
    const double *log_base; /* (states) */
} pgm_kind;

/* The graph. A term is a normaliser of a child; an edge is a pair of a parent unit and a term. The
 * edges of a term lie together, each with its weights (width of the parent, width of the term) at
 * edge_weight.
 *
 * A second graph of the same units has its terms by PGM_LANES: "by term". A group of terms of one
 * kind takes the place of a term, and an edge of the group joins a parent to all of them. Its
 * weights are vectors with a lane for each term, and edge_weight counts vectors. Places without a
 * term, and pairs without a weight, have the weight 0. */
typedef struct {
    int64_t units, terms, states, comps, term_states, term_comps, edges, capacity;
    const pgm_kind *kind;
    const int32_t *unit_kind, *term_kind;
    const int32_t
        *term_plain; /* (terms) one component, as its parents, which have two values */
    const int64_t *unit_state, *unit_comp; /* (units) the first of its states and components */
    const int64_t *term_state, *term_comp; /* (terms) */
    const int64_t *link_start; /* (comps + 1) linear inputs from other units' means: csr */
    const int32_t *link_from;
    const double *link_weight;
    const double *link_share; /* (links) the part of its product that the bound counts here */
    const int64_t *down_start;            /* (units + 1) the edges of which it is the parent, */
    const int64_t *down_edge;             /* (edges) listed here */
    const int64_t *up_start;              /* (terms + 1) the edges of a term */
    const int32_t *edge_unit, *edge_term; /* (edges) */
    const int64_t *edge_weight;           /* (edges) */
    const double *weight;
    const int32_t *term_two; /* (terms) two values, as its parents, and each growth within limits */
    const double *growth;    /* (edges, 2) of these terms: see pgm_tilt_both */
    const int64_t *own_first, *own_count; /* (units) the terms of which it is the child */
    const int64_t *own_term; /* by term: the place of each term, group PGM_LANES + lane */
    const int32_t *own_complement;        /* (units) whether the power of its terms is its mean */
    int64_t tables;
    const int64_t *table_start, *table_entry; /* (tables + 1) axes; (tables) the first entry */
    const int64_t *axis_unit, *axis_table;    /* (axes) the last axis of a table is the fastest */
    const int64_t *axis_stride;               /* (axes) entries from one state to the next */
    const int64_t *in_start, *in_axis;        /* (units + 1) the axes of a unit, listed here */
    const int64_t *own_table;                 /* (units) its conditional, or -1 */
    const int32_t *hard;                      /* (units) whether a table of it has an entry of 0 */
    const double *entry;                      /* logarithms of entries */
    double cut;                               /* smaller probabilities of hard units are set to 0 */
} pgm_net;

/* Arrays (blocks, items, lanes): a row of evidence is a lane, so that a block is updated by
 * vectors. */
typedef struct {
    double *log_q, *q;        /* items: states; log probabilities and probabilities */
    double *mean;             /* comps */
    const double *base;       /* comps; constant natural parameter */
    const double *gain;       /* comps; the part of the bound that is linear in the means */
    const double *open;       /* units; 1 where a unit is to be inferred, else 0 */
    const double *still;      /* term_comps; the constant part of the input */
    const double *live;       /* terms; beta, or 0 where a normaliser is absent */
    double *on;               /* terms; power of the normaliser */
    double *pull;             /* term_comps; factor of the input */
    double *xi;               /* term_comps */
    double *phi;              /* term_states; shares phi_k, or E[z] of a quadratic term */
    double *f;                /* terms; F */
    double *input;            /* term_comps; E[z] when F was computed */
    const double *beta;       /* 1 */
    const double *barren;     /* units; 1 where a unit is barren, else 0 */
    const double *row_weight; /* 1 */
    const double *power;      /* tables; beta, or 0 where a conditional is absent */
} pgm_batch;

/* Numbers of rows from which an array of pgm_batch starts. */
typedef struct {
    double *to;
    const double *from; /* (rows, items) */
    int64_t rows, items; /* one row stands for all rows */
} pgm_source;

#define PGM_SOURCES 12 /* arrays of pgm_batch that have a source */

typedef struct {
    const pgm_net *net;
    const pgm_net *by_term; /* settle: the same graph by term; NULL if lanes are rows */
    const pgm_batch *batch;
    int64_t blocks;
    int64_t rows;         /* rows of evidence; the last one fills empty lanes */
    const pgm_source *source; /* start: PGM_SOURCES sources; NULL leaves the arrays as they are */
    const double *factor; /* start: (states) factors of the probabilities of free units, or NULL */
    double floor;         /* start: the least probability of a state of a free unit */
    int only_tables;      /* value: leave out all terms but those of tables */
    int64_t rounds;       /* settle: most rounds */
    double tolerance;     /* settle: of the change of a probability */
    int steps;            /* Newton steps in xi; 0 leaves xi alone */
    int64_t *made;        /* settle: (blocks) rounds made */
    double *change;       /* settle: (blocks) last largest change */
    const int64_t *order; /* forward: (count) units, parents first */
    int64_t count;
    double *weight; /* learn: gains the slopes in the edges' weights */
    double least;   /* settle: smaller logarithms of entries count as this */
    double *value;  /* value: (blocks, lanes) the bound, without the terms of observed units */
    double *counts; /* count_tables: gains the expected indicators of entries */
    int (*poll)(void *token); /* settle: the first part calls it repeatedly; not 0: stop */
    void *token;
    int stopped;
    int failed;
} pgm_belief_job;

/* ---- mean field of a layer coupled with itself: lateral.h ---- */

typedef struct {
    int states, width;             /* of a unit; 0 states: the density e^(eta x) on [-1, 1] */
    int64_t rows, units, comps;    /* rows of evidence; units of the layer; units * width */
    const double *value;           /* (states, width) */
    const double *log_base;        /* (states) */
    const double *weight;          /* (comps, comps), or the entries of a csr matrix */
    const int64_t *start;          /* (comps + 1) its row starts, or NULL: dense */
    const int32_t *column;         /* and its columns */
    const double *field;           /* (rows, comps) natural parameter at beta = 1 without W */
    const double *beta;            /* (rows) */
    const double *reference;       /* (comps) natural parameter at beta = 0 */
    const uint8_t *free;           /* (rows, units) mask of the units whose means are updated */
    uint8_t *stale;                /* (rows, units) whether a mean that it depends on has changed */
    double *mean, *eta;            /* (rows, comps); eta is NaN before the first round */
    double quiet;                  /* smaller changes of means are not made */
} pgm_lateral_job;

/* ---- moves of clusters of units: clusters.h ---- */

typedef struct {
    int64_t rows, units, edges;    /* chains; units; edges */
    int64_t states;                /* of each unit, at least 2 */
    int64_t lanes, field_lanes;    /* rows of chance and positive, and of field: 1 or rows */
    const int32_t *a, *b;          /* (edges) the ends of the edges */
    const double *chance;          /* (lanes, edges) of opening an edge that is satisfied */
    const uint8_t *positive;       /* (lanes, edges) whether equal states satisfy it */
    const double *field;           /* (field_lanes, units, states) log weights */
    const double *uniform;         /* (rows, edges + units) */
    uint8_t *state;                /* (rows, units) */
    int32_t *parent;               /* (rows, units) working memory */
    double *total;                 /* (rows, units, states - 1) working memory */
} pgm_cluster_job;

/* ---- diagnostics of series of draws: series.h ---- */

/* the most values of a series whose ranks come from counts; the most lags of an autocorrelation */
#define PGM_COUNTED_VALUES 32
#define PGM_MOST_LAGS 1024

/* A series has one value, or one value for each chain, or its chains move; or they move so slowly
 * that its autocorrelation needs more than PGM_MOST_LAGS lags. */
enum { PGM_SERIES_CONSTANT, PGM_SERIES_STUCK, PGM_SERIES_MOVES, PGM_SERIES_SLOW };

/* The error of the mean: not wanted, from the means of chains, or from the autocorrelation. */
enum { PGM_SERIES_NO_ERROR, PGM_SERIES_BY_MEANS, PGM_SERIES_BY_LAGS };

typedef struct {
    int64_t series, chains, draws; /* draws of each chain */
    const double *x;               /* draw t of chain c of series s: at[s] + c chain + t draw */
    const int64_t *at;             /* (series) */
    int64_t chain, draw;
    int64_t ranked;      /* draws of each chain from which R-hat is computed; 0: none */
    const double *score; /* (2 chains ranked + 1) number i: score of rank i / 2; NULL: the values */
    int error;
    uint8_t *kind;                 /* (series) */
    double *rhat, *mcse, *variance; /* (series), or rhat NULL: only the kinds are wanted */
    int failed;                    /* no memory */
} pgm_series_job;

/* ---- draws from conditional tables: ancestral.h ---- */

#define PGM_ANCESTRAL_LANES 256 /* of a group */

/* The role of a unit in a row of evidence: left alone after do(), drawn, or weighed if observed. */
enum { PGM_LEFT, PGM_DRAWN, PGM_WEIGHED };

/* A step of units whose parents have been drawn. */
typedef struct {
    int64_t draws, rows, each;     /* all draws; rows of evidence; draws of each row */
    int64_t units;                 /* of the step */
    const int64_t *unit, *states;  /* (units) number of the unit among all, and of its states */
    const int64_t *first;          /* (units) first entry of its conditional */
    const int64_t *start;          /* (units + 1) its parents, */
    const int64_t *parent, *stride; /* listed here, and the entries between two of their states */
    const uint8_t *role;           /* (units, rows) */
    const int64_t *place;          /* (units) row of `uniform`; any row if the unit is not drawn */
    const double *uniform;         /* (places, draws) */
    const double *prob, *log;      /* entries of all tables, and their logarithms */
    int32_t *state;                /* (all units, draws) */
    double *log_weight;            /* (draws) */
} pgm_ancestral_job;

typedef struct {
    int64_t rows, each;    /* rows of evidence; draws of each row */
    int64_t most;          /* states of a unit at most */
    const int32_t *state;  /* (units, rows, each) */
    const double *weight;  /* (rows, each) */
    double *out;           /* (units, rows, most, 2) */
} pgm_tally_job;

/* ---- messages of a junction tree: junction.h and elimination.h ---- */

/* A table that is multiplied into a clique: a factor, the message of a child, or the separator to
 * the parent. The inner entries of the clique fall into segments of `run` entries. If `along`, the
 * entries of the table for a segment are consecutive; otherwise one entry belongs to the whole
 * segment. */
typedef struct {
    int64_t table;     /* a factor, or factors + clique for the separator above a clique */
    int64_t run;
    int along;
    const int32_t *at; /* (inner / run) first entry of each segment */
} pgm_operand;

/* A clique: its axes are residual variables, then the separator to its parent, the last axis
 * fastest. The last axes are inner ones: a block of `inner` entries is computed at once. */
typedef struct {
    int32_t axes, residual, outer; /* the first `residual`, and the first `outer` axes */
    int32_t factors, operands;     /* factors, then children, then the separator */
    int32_t parent;                /* -1 at a root */
    int64_t inner, entries, separator;
    const int32_t *variable;       /* (axes) */
    const int64_t *card;           /* (axes) */
    const int64_t *stride;         /* (axes, operands) */
    const int64_t *delta;          /* (outer, operands) change of offsets when an axis steps */
    pgm_operand *operand;          /* (operands) */
} pgm_clique;

/* A run over a tree. Every table is (entries, lanes) or, for shared factors, (entries). */
typedef struct {
    const pgm_clique *clique;
    int64_t cliques, factors, lanes, variables;
    int additive;               /* tables are logarithms: products are sums */
    int largest;                /* messages are largest entries, not sums */
    double **table;             /* (factors + cliques) operands, */
    double **gain;              /* (factors + cliques) and marginals on them; NULL: not wanted */
    const uint8_t *wide;        /* (factors) whether a factor has lanes */
    double *scale;              /* (cliques, lanes) largest entry of each message */
    double *log_scale;          /* (lanes) sum of the logarithms of all divisors */
    double *stack;              /* end of the messages not used yet; NULL: all messages are kept */
    double *spare;              /* (largest separator, lanes), when additive */
    double *child;              /* (separators of the children of a clique, lanes) */
    double *margin;             /* (sum of cards, lanes), or NULL */
    const int64_t *margin_at;   /* (variables) */
    double *block, *sums;       /* blocks of a clique */
    int64_t *offset, *digit;    /* (most operands), (most axes) */
    int flagged;                /* a product has underflowed */
    int (*poll)(void *token);   /* called repeatedly; not 0: stop */
    void *token;
    int64_t done, due;          /* entries computed; entries at the next poll */
    int stopped;
} pgm_tree_job;

/* Values of factors (logarithms) that become tables divided by their largest entry. */
typedef struct {
    const double *const *value; /* (factors) */
    const int64_t *size;        /* (factors) entries */
    int bad;                    /* number + 1 of a factor with NaN or +inf; 0: none */
    int lost;                   /* whether a finite entry is below e^-700 of the largest */
} pgm_values_job;

/* Draws, or the most probable states, from the tables of a finished collect pass. */
typedef struct {
    int64_t draws;           /* 0: the most probable states */
    const double *uniform;   /* (draws, lanes, cliques), or NULL: */
    const uint32_t *key;     /* (4) of the generator */
    const uint32_t *stream;  /* (lanes) */
    int32_t *state;          /* (lanes, variables, draws or 1) */
    double *log_value;       /* (lanes) of the most probable states */
    double *sorted;          /* (draws, 2) */
    double *sums;            /* the largest pgm_sums_room of all cliques, and a vector more */
} pgm_draw_job;

/* The entries of a clique if its weights are tabulated for draws, else 0. A clique is tabulated if
 * it is small and there are at least as many draws as states of its separator. */
#define PGM_TREE_SUMS (1 << 20)
static inline int64_t pgm_sums_room(const pgm_clique *c, int64_t draws)
{
    return c->entries <= PGM_TREE_SUMS && c->separator <= draws ? c->entries : 0;
}

/* ---- sums over the paths of chains of states, and their best paths: paths.h ---- */

typedef struct {
    int64_t chains, states;
    const int64_t *first;  /* (chains + 1) first step of each chain; the last is the end of all */
    const double *field;   /* (steps, states) log weights of the states of each step */
    const double *move;    /* (states, states) log weights of moves, from row to column */
    const double *weight;  /* (chains) of each chain in pairs; NULL: 1 */
    double *log_z;         /* (chains) log of the sum, or of the largest one, of all weights */
    double *marginals;     /* (steps, states) of a chain by itself */
    double *pairs;         /* (states, states) sums over all chains */
    int32_t *path;         /* (steps) of the best paths */
    int failed;            /* no memory */
} pgm_path_job;

/* ---- the table of functions ---- */

typedef struct {
    const char *name;         /* kind of processor */
    int lanes;                /* doubles in a vector */
    pgm_task sweep;           /* pgm_sweep_job, chains */
    pgm_task tabled;          /* pgm_tabled_job, groups of PGM_LANES_TOGETHER chains */
    pgm_task multiply;        /* pgm_product_job, rows: out += a b */
    pgm_task outer;           /* pgm_product_job, columns of a: out = a' b */
    pgm_task pack;            /* pgm_pack_job, panels */
    pgm_task ascend;          /* pgm_ascend_job, parameters */
    pgm_task start, settle, forward, forward_tables, value; /* pgm_belief_job, blocks */
    pgm_task learn;           /* pgm_belief_job, terms */
    pgm_task count_tables;    /* pgm_belief_job, tables */
    pgm_task lateral;         /* pgm_lateral_job, blocks of PGM_LANES rows */
    pgm_task clusters;        /* pgm_cluster_job, chains */
    pgm_task series;          /* pgm_series_job, blocks of PGM_LANES series */
    pgm_task ancestral;       /* pgm_ancestral_job, groups of PGM_ANCESTRAL_LANES draws */
    pgm_task tally;           /* pgm_tally_job, units */
    void (*update)(pgm_learning *job);
    void (*shuffle)(const uint32_t *key, uint64_t pass, int64_t rows, int64_t *order);
    pgm_task mean;            /* pgm_mean_job, rows */
    void (*walk)(pgm_walk_job *job);
    void (*tabulate)(pgm_tree_job *job, pgm_values_job *values); /* make tables of values */
    void (*collect)(pgm_tree_job *job, int64_t first, int64_t last);    /* cliques, ascending */
    void (*distribute)(pgm_tree_job *job, int64_t first, int64_t last); /* cliques, descending */
    void (*draw_states)(pgm_tree_job *job, pgm_draw_job *draw);
    void (*sum_paths)(pgm_path_job *job);
    void (*best_paths)(pgm_path_job *job);
    void (*log_densities)(const pgm_chains *c, int64_t chains, int last, double *log_density);
    void (*fill_uniforms)(const uint32_t *key, uint32_t sweep, uint32_t chain, uint32_t layer,
                          uint32_t first, int64_t blocks, float *out);
} pgm_routines;

/* The routines of kind 0, 1, ... of the processors that this one can run, ascending; NULL beyond
 * the last. The first calls fill the tables, so that they come from one thread. */
const pgm_routines *pgm_routines_of(int kind);

/* The function by which a unit adds its routines to a table: its name and PGM_KIND. */
#define PGM_PASTE(name, kind) pgm_##name##_##kind
#define PGM_OF_KIND(name, kind) PGM_PASTE(name, kind)
#define PGM_UNIT(name) PGM_OF_KIND(name, PGM_KIND)

#endif
