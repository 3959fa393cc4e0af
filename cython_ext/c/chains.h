/* Scratch memory of the sweeps, and access to single values of chains. routines.h defines the
 * chains.
 *
 * Layers are padded to whole groups of PGM_GROUP units. Padding units are never free, their inputs
 * are finite, and no result depends on them. Loops over vectors therefore need no code for a
 * remainder.
 */
#ifndef PGM_CHAINS_H
#define PGM_CHAINS_H

#include <stdlib.h>

#include "random.h"
#include "routines.h"

#define PGM_TOGETHER \
    64 /* chains of a block, which all use a panel of weights while it is in cache */

/* In a tie, flip-the-state draws from the conditional. It is a tie if the second most probable
 * state has log-odds above -PGM_TIE against all others together, or above -PGM_TIE_OF_MANY with
 * more than two states. pgmengine/engine/kernels.py has the same numbers. */
#define PGM_TIE 1e-5f
#define PGM_TIE_OF_MANY 0.05f

/* a change of the value of a component: a row of the weight, and the factor with which to add it */
typedef struct {
    int32_t row;
    float delta;
} pgm_change;

/* memory of one thread */
typedef struct {
    pgm_change *list; /* (PGM_TOGETHER, capacity) changes of each chain of a block */
    int64_t *count;   /* (PGM_TOGETHER) their numbers */
    int64_t capacity;
    double *step;     /* change of a child's inputs, kept at 0 */
    uint8_t *touched; /* mask of child units, kept at 0 */
    int32_t *reached; /* list of child units */
} pgm_scratch;

PGM_INLINE double pgm_value(const pgm_layer *l, int64_t chain, int64_t unit)
{
    return l->kind == PGM_FINITE ? l->support[l->state[chain * l->units + unit]]
                                 : l->value[chain * l->units + unit];
}

#endif
