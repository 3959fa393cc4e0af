/* A move of the clusters of Swendsen and Wang (1987): spins that open edges join change sign at once.
 *
 * An edge whose coupling is satisfied opens with its chance. The clusters are sets with a parent for
 * each spin; the root of a cluster is its first spin. With H = sum of field * sign over a cluster, it
 * changes sign with probability 1 / (1 + exp(2 H)), by the uniform of its root.
 *
 * Reference: `Part.plain` in pgmengine/infer/sampling/clusters/moves.py.
 */
#ifndef PGM_CLUSTERS_H
#define PGM_CLUSTERS_H

#include <math.h>

#include "routines.h"
#include "vectors.h"

/* the root of a spin; every spin on the way is moved up to the parent of its parent */
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

static void pgm_cluster_part(void *job, int64_t first, int64_t last)
{
    const pgm_cluster_job *j = job;
    for (int64_t row = first; row < last; row++) {
        const int64_t lane = j->lanes == 1 ? 0 : row;
        const double *chance = j->chance + lane * j->edges;
        const double *field = j->field + (j->field_lanes == 1 ? 0 : row) * j->units;
        const double *uniform = j->uniform + row * (j->edges + j->units);
        const uint8_t *positive = j->positive + lane * j->edges;
        uint8_t *up = j->up + row * j->units;
        int32_t *parent = j->parent + row * j->units;
        double *total = j->total + row * j->units;
        for (int64_t i = 0; i < j->units; i++) parent[i] = (int32_t)i, total[i] = 0.0;
        for (int64_t e = 0; e < j->edges; e++)
            if ((up[j->a[e]] == up[j->b[e]]) == positive[e] && uniform[e] < chance[e])
                pgm_join(parent, j->a[e], j->b[e]);
        /* a parent comes before its children, and has its root already */
        for (int64_t i = 0; i < j->units; i++) {
            parent[i] = parent[parent[i]];
            total[parent[i]] += up[i] ? field[i] : -field[i];
        }
        for (int64_t i = 0; i < j->units; i++)
            if (parent[i] == i)
                total[i] = uniform[j->edges + i] < 1.0 / (1.0 + exp(2.0 * total[i])) ? 1.0 : 0.0;
        for (int64_t i = 0; i < j->units; i++) up[i] ^= total[parent[i]] > 0.0;
    }
}

#endif
