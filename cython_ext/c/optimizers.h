/* Steps of the optimizers: gradient ascent with momentum, Adam, and AdaMax (Kingma and Ba 2015).
 *
 *     g -= l2 p + l1 sign(p)
 *     SGD:     m = keep1 m + g  (without moments m = g)
 *              p += rate m
 *     Adam:    m = keep1 m + (1 - keep1) g
 *              v = keep2 v + (1 - keep2) g^2
 *              p += rate (m / unbias1) / (sqrt(v / unbias2) + epsilon)
 *     AdaMax:  m = keep1 m + (1 - keep1) g
 *              v = max(keep2 v, |g|)
 *              p += rate (m / unbias1) / (v + epsilon)
 *
 * All numbers are in double precision, and a step makes one pass over memory. If the last numbers
 * do not fill a vector, they are computed in a padded vector.
 *
 * Reference: `twin` in test_compiled_updates.py.
 */
#ifndef PGM_OPTIMIZERS_H
#define PGM_OPTIMIZERS_H

#include "routines.h"
#include "vectors.h"

/* a vector of parameters after one step; m and v may be NULL for SGD; `decays` is 0 where l1 and l2
 * are, which saves a third of the time of SGD */
PGM_INLINE pgm_vd pgm_ascend_some(int kind, int decays, const pgm_ascend_job *o, pgm_vd p, pgm_vd g,
                                  double *m, double *v)
{
    const pgm_vd zero = {0};
    if (decays)
        g -= o->l2 * p
             + pgm_select_d(p > zero, zero + o->l1, pgm_select_d(p < zero, zero - o->l1, zero));
    pgm_vd step = g;
    if (m) {
        pgm_vd mean = *(pgm_vd *)m * o->keep1;
        if (kind == PGM_SGD)
            mean += g;
        else
            mean += (1 - o->keep1) * g;
        *(pgm_vd *)m = step = mean;
    }
    if (kind == PGM_ADAM) {
        pgm_vd square = *(pgm_vd *)v * o->keep2 + (1 - o->keep2) * g * g;
        *(pgm_vd *)v = square;
        step = step / o->unbias1 / (pgm_sqrt_d(square / o->unbias2) + o->epsilon);
    } else if (kind == PGM_ADAMAX) {
        pgm_vd large = *(pgm_vd *)v * o->keep2, size = pgm_select_d(g < zero, -g, g);
        large = pgm_max_d(size, large);
        /* NaN stays NaN */
        large = pgm_select_d(g == g, large, g);
        *(pgm_vd *)v = large;
        step = step / o->unbias1 / (large + o->epsilon);
    }
    return p + o->rate * step;
}

/* parameters first .. last - 1, `kind` being a constant where this is inlined; returns whether all
 * of them are numbers within PGM_LARGEST */
PGM_INLINE int pgm_ascend_kind(int kind, int decays, const pgm_ascend_job *o, double *m, double *v,
                               int64_t first, int64_t last)
{
    const double *p = o->p, *g = o->g;
    const float *single = o->single;
    double *p2 = o->p2;
    float *copy = o->copy;
    int fine = 1;
    int64_t i = first;
    pgm_vl within = pgm_splat_d(0.0) == pgm_splat_d(0.0);
    for (; i + PGM_LANES <= last; i += PGM_LANES) {
        pgm_vd slope = g ? *(const pgm_vd *)(g + i)
                         : __builtin_convertvector(*(const pgm_vh *)(single + i) * o->scale,
                                                   pgm_vd);
        pgm_vd new = pgm_ascend_some(kind, decays, o, *(const pgm_vd *)(p + i), slope, m ? m + i : NULL,
                                     v ? v + i : NULL);
        *(pgm_vd *)(p2 + i) = new;
        *(pgm_vh *)(copy + i) = __builtin_convertvector(new, pgm_vh);
        /* false for NaN */
        within &= pgm_abs_d(new) <= pgm_splat_d(PGM_LARGEST);
    }
    for (int k = 0; k < PGM_LANES; k++) fine &= within[k] != 0;
    if (i < last) {
        double part[4][PGM_LANES] = {{0}};
        for (int64_t k = 0; k < last - i; k++) {
            part[0][k] = p[i + k], part[1][k] = g ? g[i + k] : single[i + k] * o->scale;
            if (m) part[2][k] = m[i + k];
            if (v) part[3][k] = v[i + k];
        }
        pgm_vd out = pgm_ascend_some(kind, decays, o, *(pgm_vd *)part[0], *(pgm_vd *)part[1],
                                     m ? part[2] : NULL, v ? part[3] : NULL);
        for (int64_t k = 0; k < last - i; k++) {
            p2[i + k] = out[k], copy[i + k] = (float)out[k], fine &= fabs(out[k]) <= PGM_LARGEST;
            if (m) m[i + k] = part[2][k];
            if (v) v[i + k] = part[3][k];
        }
    }
    return fine;
}

static void pgm_ascend_part(void *job, int64_t first, int64_t last)
{
    pgm_ascend_job *j = job;
    const int decays = j->l1 != 0.0 || j->l2 != 0.0;
    int fine;
    if (j->kind == PGM_SGD && !decays)
        fine = pgm_ascend_kind(PGM_SGD, 0, j, j->m, NULL, first, last);
    else if (j->kind == PGM_SGD)
        fine = pgm_ascend_kind(PGM_SGD, 1, j, j->m, NULL, first, last);
    else if (j->kind == PGM_ADAM)
        fine = pgm_ascend_kind(PGM_ADAM, 1, j, j->m, j->v, first, last);
    else
        fine = pgm_ascend_kind(PGM_ADAMAX, 1, j, j->m, j->v, first, last);
    if (!fine) j->fine = 0;
}

#endif
