/* A round of mean field over a layer whose units are coupled with each other, one unit after the
 * other, so that the bound never decreases.
 *
 *     eta_u = beta (field_u + sum_v W_uv E[x_v]) + (1 - beta) reference_u,    E[x_u] = A'(eta_u)
 *
 * W is symmetric, dense or csr, and 0 inside a unit. The input of a unit is summed up when the unit
 * is updated, so that rounding errors do not accumulate from one update to the next. A unit is
 * updated only if it is stale: a mean that it depends on has changed since its last update. A mean
 * that would change by no more than `quiet` stays as it is, and makes no unit stale, so that rounds
 * take less time as means converge. PGM_LANES rows of evidence are updated together, so that all
 * but the first of them read a row of W from the nearest cache. Sums of dense rows have eight
 * running sums for any width of vectors, so that all kinds of processors give the same bits.
 *
 * Reference: `Inside.plain` in pgmengine/infer/variational/lateral.py.
 */
#ifndef PGM_LATERAL_H
#define PGM_LATERAL_H

#include "routines.h"
#include "vectors.h"

/* below this size of eta the series of coth(x) - 1/x is exact to rounding */
#define PGM_LANGEVIN_SERIES 0.02

/* sum of a[i] b[i] in eight running sums */
PGM_INLINE double pgm_dot_d(const double *a, const double *b, int64_t n)
{
    pgm_sums sums = {0};
    double rest = 0.0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int p = 0; p < PGM_PIECES; p++)
            sums.lane[p] += *(const pgm_vd *)(a + i + p * PGM_LANES)
                            * *(const pgm_vd *)(b + i + p * PGM_LANES);
    for (; i < n; i++) rest += a[i] * b[i];
    return pgm_sums_total(&sums) + rest;
}

/* the input of component c from the units of the layer, whose means are given */
PGM_INLINE double pgm_input_inside(const pgm_lateral_job *j, int64_t c, const double *mean)
{
    double sum = 0.0;
    if (!j->start) return pgm_dot_d(j->weight + c * j->comps, mean, j->comps);
    for (int64_t e = j->start[c]; e < j->start[c + 1]; e++) sum += j->weight[e] * mean[j->column[e]];
    return sum;
}

/* coth(x) - 1/x: the mean of the density e^(x y) on [-1, 1] */
PGM_INLINE double pgm_langevin(double x)
{
    const double x2 = x * x;
    if (fabs(x) < PGM_LANGEVIN_SERIES) return x * (1.0 / 3 - x2 * (1.0 / 45 - x2 * (2.0 / 945)));
    return 1.0 / tanh(x) - 1.0 / x;
}

/* the means of units of two values */
PGM_INLINE pgm_vd pgm_mean_of_two(const pgm_lateral_job *j, pgm_vd eta)
{
    const double *v = j->value;
    const pgm_vd d = eta * (v[1] - v[0]) + (j->log_base[1] - j->log_base[0]);
    /* the value that is more probable, and the odds of the other one */
    const pgm_vl up = d > 0.0;
    const pgm_vd odds = pgm_exp_d(-pgm_abs_d(d));
    const pgm_vd more = pgm_select_d(up, pgm_splat_d(v[1]), pgm_splat_d(v[0]));
    const pgm_vd less = pgm_select_d(up, pgm_splat_d(v[0]), pgm_splat_d(v[1]));
    return (more + odds * less) / (1.0 + odds);
}

/* the means (width) of units of finitely many values */
PGM_INLINE void pgm_mean_of_states(const pgm_lateral_job *j, const pgm_vd *eta, pgm_vd *mean)
{
    pgm_vd p[PGM_MOST_STATES], top = pgm_splat_d(-INFINITY), total = pgm_splat_d(0.0);
    for (int k = 0; k < j->states; k++) {
        p[k] = pgm_splat_d(j->log_base[k]);
        for (int a = 0; a < j->width; a++) p[k] += eta[a] * j->value[k * j->width + a];
        top = pgm_max_d(p[k], top);
    }
    for (int a = 0; a < j->width; a++) mean[a] = pgm_splat_d(0.0);
    for (int k = 0; k < j->states; k++) {
        p[k] = pgm_exp_d(p[k] - top);
        total += p[k];
        for (int a = 0; a < j->width; a++) mean[a] += p[k] * j->value[k * j->width + a];
    }
    for (int a = 0; a < j->width; a++) mean[a] /= total;
}

/* the natural parameter of component c in a row */
PGM_INLINE double pgm_natural_inside(const pgm_lateral_job *j, int64_t c, int64_t row)
{
    const double beta = j->beta[row], rest = (1.0 - beta) * j->reference[c];
    /* 0 times an infinite input is 0 */
    if (beta == 0.0) return rest;
    return beta * (j->field[row * j->comps + c]
                   + pgm_input_inside(j, c, j->mean + row * j->comps))
           + rest;
}

/* The neighbours of unit u become stale. */
PGM_INLINE void pgm_mark_neighbours(const pgm_lateral_job *j, int64_t u, uint8_t *stale)
{
    if (!j->start) {
        memset(stale, 1, (size_t)j->units);
        return;
    }
    for (int64_t e = j->start[u * j->width]; e < j->start[(u + 1) * j->width]; e++)
        stale[j->column[e] / j->width] = 1;
}

/* Take the new natural parameters and means of unit u in a row, in lane l. */
PGM_INLINE void pgm_take_inside(const pgm_lateral_job *j, int64_t u, int64_t row, int l,
                                const pgm_vd *eta, const pgm_vd *mean)
{
    const int64_t at = row * j->comps + u * j->width;
    double change = 0.0;
    /* natural parameters are NaN before the first round */
    int first = isnan(j->eta[at]);
    j->stale[row * j->units + u] = 0;
    for (int a = 0; a < j->width; a++)
        if (fabs(mean[a][l] - j->mean[at + a]) > change) change = fabs(mean[a][l] - j->mean[at + a]);
    if (!first && change <= j->quiet) return;
    for (int a = 0; a < j->width; a++) j->eta[at + a] = eta[a][l];
    if (!j->free[row * j->units + u] || change == 0.0) return;
    for (int a = 0; a < j->width; a++) j->mean[at + a] = mean[a][l];
    pgm_mark_neighbours(j, u, j->stale + row * j->units);
    j->stale[row * j->units + u] = 0;
}

/* Update unit u in those of `lanes` rows from row `first` on in which it is stale. */
PGM_INLINE void pgm_update_inside(const pgm_lateral_job *j, int64_t u, int64_t first, int lanes)
{
    pgm_vd eta[PGM_MOST_STATES], mean[PGM_MOST_STATES];
    const uint8_t *stale = j->stale + first * j->units + u;
    int any = 0;
    for (int l = 0; l < lanes; l++) any |= stale[l * j->units];
    if (!any) return;
    for (int a = 0; a < j->width; a++) {
        eta[a] = pgm_splat_d(0.0);
        for (int l = 0; l < lanes; l++)
            if (stale[l * j->units])
                eta[a][l] = pgm_natural_inside(j, u * j->width + a, first + l);
    }
    if (!j->states)
        for (int l = 0; l < PGM_LANES; l++) mean[0][l] = pgm_langevin(eta[0][l]);
    else if (j->states == 2 && j->width == 1)
        mean[0] = pgm_mean_of_two(j, eta[0]);
    else
        pgm_mean_of_states(j, eta, mean);
    for (int l = 0; l < lanes; l++)
        if (stale[l * j->units]) pgm_take_inside(j, u, first + l, l, eta, mean);
}

/* Items are blocks of PGM_LANES rows. */
static void pgm_lateral_part(void *job, int64_t first, int64_t last)
{
    const pgm_lateral_job *j = job;
    for (int64_t b = first; b < last; b++) {
        const int64_t row = b * PGM_LANES;
        const int lanes = (int)pgm_min_l(j->rows - row, PGM_LANES);
        for (int64_t u = 0; u < j->units; u++) pgm_update_inside(j, u, row, lanes);
    }
}

#endif
