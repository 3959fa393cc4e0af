/* The steps of the optimizers: all ascend. */
#ifndef PGM_ASCEND_H
#define PGM_ASCEND_H

#include "simd.h"

enum { PGM_SGD, PGM_ADAM, PGM_ADAMAX };

typedef struct {
    double rate, keep1, keep2, unbias1, unbias2, epsilon, l1, l2; /* unbias: what the moments are divided by */
} pgm_rates;

typedef float pgm_vhalf __attribute__((vector_size(PGM_REGISTER / 2), aligned(4), may_alias));

PGM_INLINE pgm_vd pgm_sqrt_d(pgm_vd x)
{
    for (int i = 0; i < PGM_LANES; i++) x[i] = sqrt(x[i]);
    return x;
}

/* some parameters after one step; m and v may be NULL for plain SGD */
PGM_INLINE pgm_vd pgm_ascend_some(int kind, const pgm_rates *o, pgm_vd p, pgm_vd g, double *m, double *v)
{
    const pgm_vd zero = {0};
    g -= o->l2 * p + pgm_pick(p > zero, zero + o->l1, pgm_pick(p < zero, zero - o->l1, zero));
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
        pgm_vd large = *(pgm_vd *)v * o->keep2, size = pgm_pick(g < zero, -g, g);
        large = pgm_pick(size > large, size, large);
        large = pgm_pick(g == g, large, g); /* NaN stays */
        *(pgm_vd *)v = large;
        step = step / o->unbias1 / (large + o->epsilon);
    }
    return p + o->rate * step;
}

#define PGM_LARGEST 1e30 /* of a parameter: a hundred million of them can be summed in single precision */

/* parameters first .. last - 1; the gradient is g, or single when g is NULL; whether all new parameters are numbers
 * within PGM_LARGEST; p2 receives them, and copy in single precision */
PGM_INLINE int pgm_ascend_kind(int kind, const pgm_rates *o, const double *p, const double *g, const float *single,
                               double *p2, float *copy, double *m, double *v, int64_t first, int64_t last)
{
    int fine = 1;
    int64_t i = first;
    pgm_vl within = pgm_all(0.0) == pgm_all(0.0);
    for (; i + PGM_LANES <= last; i += PGM_LANES) {
        pgm_vd slope = g ? *(const pgm_vd *)(g + i) : __builtin_convertvector(*(const pgm_vhalf *)(single + i), pgm_vd);
        pgm_vd new = pgm_ascend_some(kind, o, *(const pgm_vd *)(p + i), slope, m ? m + i : NULL, v ? v + i : NULL);
        *(pgm_vd *)(p2 + i) = new;
        *(pgm_vhalf *)(copy + i) = __builtin_convertvector(new, pgm_vhalf);
        within &= pgm_abs(new) <= pgm_all(PGM_LARGEST); /* not so for NaN */
    }
    for (int k = 0; k < PGM_LANES; k++) fine &= within[k] != 0;
    if (i < last) {
        double part[4][PGM_LANES] = {{0}};
        for (int64_t k = 0; k < last - i; k++) {
            part[0][k] = p[i + k], part[1][k] = g ? g[i + k] : single[i + k];
            if (m) part[2][k] = m[i + k];
            if (v) part[3][k] = v[i + k];
        }
        pgm_vd out = pgm_ascend_some(kind, o, *(pgm_vd *)part[0], *(pgm_vd *)part[1], m ? part[2] : NULL, v ? part[3] : NULL);
        for (int64_t k = 0; k < last - i; k++) {
            p2[i + k] = out[k], copy[i + k] = (float)out[k], fine &= fabs(out[k]) <= PGM_LARGEST;
            if (m) m[i + k] = part[2][k];
            if (v) v[i + k] = part[3][k];
        }
    }
    return fine;
}

static int pgm_ascend(int kind, const pgm_rates *o, const double *p, const double *g, const float *single, double *p2,
                      float *copy, double *m, double *v, int64_t first, int64_t last)
{
    if (kind == PGM_SGD) return pgm_ascend_kind(PGM_SGD, o, p, g, single, p2, copy, m, NULL, first, last);
    if (kind == PGM_ADAM) return pgm_ascend_kind(PGM_ADAM, o, p, g, single, p2, copy, m, v, first, last);
    return pgm_ascend_kind(PGM_ADAMAX, o, p, g, single, p2, copy, m, v, first, last);
}

#endif
