/* A move of the clusters of Swendsen and Wang (1987): units that open edges join change state at once.
 *
 * An edge that is satisfied opens with its chance: between equal states if it favours agreement, else
 * between different ones. The clusters are sets with a parent for each unit; the root of a cluster is
 * its first unit. All units of a cluster move on by the same number of states t, modulo the number of
 * states, with probability in proportion to exp(sum of field[state + t] over the cluster), by the
 * uniform of its root. total (units, states - 1) has these sums for t > 0, less the one for t = 0; the
 * first of a root is then t.
 *
 * Reference: `Part.plain` in pgmengine/infer/sampling/clusters/moves.py.
 */
#ifndef PGM_CLUSTERS_H
#define PGM_CLUSTERS_H

#include <math.h>

#include "routines.h"
#include "vectors.h"

/* edges whose open ones are listed together */
#define PGM_EDGES_AT_ONCE 256

/* the root of a unit; every unit on the way is moved up to the parent of its parent */
PGM_INLINE int32_t pgm_root(int32_t *parent, int32_t i)
{
    while (parent[i] != i) {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    return i;
}

PGM_INLINE void pgm_join(int32_t *parent, int32_t a, int32_t b)
{
    a = pgm_root(parent, a), b = pgm_root(parent, b);
    if (a < b) parent[b] = a;
    else parent[a] = b;
}

/* the number of states by which a cluster moves on, given its sums for t > 0 and a uniform */
PGM_INLINE int64_t pgm_turn(double *sum, int64_t more, double u)
{
    double top = 0.0, all, below = 0.0;
    if (more == 1) {
        const double less = exp(-fabs(sum[0]));
        return u * (1.0 + less) < (sum[0] > 0.0 ? 1.0 : less);
    }
    for (int64_t t = 0; t < more; t++) top = sum[t] > top ? sum[t] : top;
    all = exp(-top);
    for (int64_t t = 0; t < more; t++) all += sum[t] = exp(sum[t] - top);
    for (int64_t t = 0; t < more; t++) {
        below += sum[t];
        if (u * all < below) return t + 1;
    }
    return 0;
}

static void pgm_cluster_part(void *job, int64_t first, int64_t last)
{
    const pgm_cluster_job *j = job;
    const int64_t states = j->states, more = states - 1;
    for (int64_t row = first; row < last; row++) {
        const int64_t lane = j->lanes == 1 ? 0 : row;
        const double *chance = j->chance + lane * j->edges;
        const double *field = j->field + (j->field_lanes == 1 ? 0 : row) * j->units * states;
        const double *uniform = j->uniform + row * (j->edges + j->units);
        const uint8_t *positive = j->positive + lane * j->edges;
        uint8_t *state = j->state + row * j->units;
        int32_t *parent = j->parent + row * j->units;
        double *total = j->total + row * j->units * more;
        for (int64_t i = 0; i < j->units; i++) parent[i] = (int32_t)i;
        for (int64_t i = 0; i < j->units * more; i++) total[i] = 0.0;
        /* open edges are listed first, without branches, which are unpredictable */
        for (int64_t e = 0; e < j->edges; e += PGM_EDGES_AT_ONCE) {
            const int64_t end = pgm_min_l(e + PGM_EDGES_AT_ONCE, j->edges);
            int64_t open[PGM_EDGES_AT_ONCE], count = 0;
            for (int64_t i = e; i < end; i++) {
                open[count] = i;
                count += ((state[j->a[i]] == state[j->b[i]]) == positive[i])
                         & (uniform[i] < chance[i]);
            }
            for (int64_t i = 0; i < count; i++) pgm_join(parent, j->a[open[i]], j->b[open[i]]);
        }
        /* a parent comes before its children, and has its root already */
        for (int64_t i = 0; i < j->units; i++) {
            const double *own = field + i * states;
            parent[i] = parent[parent[i]];
            for (int64_t t = 1, k = state[i]; t < states; t++) {
                k = k + 1 == states ? 0 : k + 1;
                total[parent[i] * more + t - 1] += own[k] - own[state[i]];
            }
        }
        for (int64_t i = 0; i < j->units; i++)
            if (parent[i] == i)
                total[i * more] = (double)pgm_turn(total + i * more, more, uniform[j->edges + i]);
        for (int64_t i = 0; i < j->units; i++) {
            const int64_t k = state[i] + (int64_t)total[parent[i] * more];
            state[i] = (uint8_t)(k < states ? k : k - states);
        }
    }
}

#endif
