/* Chains of one target as the loops read them: layers, couplings, states and inputs ("fields"). */
#ifndef PGM_MACHINE_H
#define PGM_MACHINE_H

#include <stdlib.h>

#include "vector.h"

enum { PGM_TABLE, PGM_NORMAL, PGM_INTERVAL }; /* finite; Gaussian; uniform base measure on [-1, 1] */

#define PGM_MOST_STATES 256

/* Ties, where flip-the-state draws from the conditional: the second most probable state has log-odds
 * above -PGM_TIE against all the others together, above -PGM_TIE_OF_MANY if there are more than two
 * states (pgmengine/kernels/flip_state.py). */
#define PGM_TIE 1e-5f
#define PGM_TIE_OF_MANY 0.05f

typedef struct {
    int32_t row;
    float delta;
} pgm_change;

/* one direction of a coupling: what changes in layer `from` do to the inputs of layer `to` */
typedef struct {
    int from, to;
    int arrow;             /* adds to the directed input zeta of a child, not to the field */
    int at_once;           /* applied at each change and not at the end of a pass */
    int64_t rows;          /* of a dense weight, 0 when sparse */
    int64_t tile;          /* columns of a panel: 16, 32 or 64 */
    const float *weight;   /* dense: panels (tiles, rows, tile); or the entries of a csr matrix */
    const int64_t *start;  /* csr row starts, */
    const int32_t *column; /* and columns, ascending */
} pgm_link;

typedef struct {
    int kind, states, width; /* width: components a unit (k of a one-hot unit) */
    int moves, by_unit, summed, directed, complement, uneven;
    /* complement: p(0 | zeta) = e^-zeta; uneven: log h varies; summed: 1, 2 or 3 when
     * summed out of the weights of annealing forward, backward or both */
    int64_t size, stride; /* units; floats a chain has in field, zeta, base (components, padded) */
    int64_t units;        /* bytes or floats a chain has in state, value, free, alive (units, padded) */
    float variance;       /* of a Gaussian */
    const float *support, *log_base; /* (states) */
    const float *bias, *reference;   /* (stride); bias of zeta when directed, else of the field; reference may be NULL */
    const float *soft;               /* (chains, stride) added to the field, or NULL */
    float *base;                     /* (chains, stride) the field less what moving layers add to it, or NULL: bias */
    float *field, *zeta;             /* (chains, stride), or NULL when nothing reads it */
    float *rest;                     /* (chains, stride) what zeta lacks, of complement layers */
    uint8_t *state;                  /* (chains, units) number of the value in the support; finite units */
    float *value;                    /* (chains, units) other units */
    const uint8_t *free;             /* (chains or 1, units) mask of the units that move */
    int64_t free_stride;             /* units or 0 */
    const uint8_t *alive;            /* (chains, units) mask of the conditionals that count, or NULL: all */
} pgm_layer;

typedef struct {
    int layers, links, visits;
    pgm_layer *layer;
    pgm_link *link;
    const int32_t *visit; /* layers in the order of a sweep */
    float *beta;          /* (chains) */
    uint32_t key[4];
    const uint32_t *stream; /* (chains) */
    float alpha;            /* share of the flip-the-state operator; at beta = 0 the exact draw is at hand, and made */
} pgm_machine;

/* scratch of one thread */
typedef struct {
    pgm_change *list;  /* (PGM_CHAINS, capacity) */
    int64_t *count;    /* (PGM_CHAINS) */
    int64_t capacity;
    double *step;      /* change of a child's inputs, kept at 0 */
    uint8_t *touched;  /* mask of child units, kept at 0 */
    int32_t *reached;  /* list of child units */
} pgm_scratch;

#define PGM_CHAINS 64 /* chains of a block */

PGM_INLINE double pgm_value(const pgm_layer *l, int64_t chain, int64_t unit)
{
    return l->kind == PGM_TABLE ? l->support[l->state[chain * l->units + unit]] : l->value[chain * l->units + unit];
}

#endif
