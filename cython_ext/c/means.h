/* Means of units from their natural parameters, E[x | eta] = A'(eta), in single precision.
 *
 *     two values         v_0 + (v_1 - v_0) / (1 + e^-z),  z = (v_1 - v_0) eta + log h_1 - log h_0
 *     values v_k         sum_k v_k h_k e^(v_k eta) / sum_k h_k e^(v_k eta)
 *     one-hot, k states  h_k e^eta_k / sum_j h_j e^eta_j
 *     Gaussian           variance eta
 *     [-1, 1]            coth eta - 1 / eta
 *
 * Each number depends on its own natural parameter only, so that results are the same for any width
 * of vectors and any number of threads.
 *
 * Reference: `mean` of the unit types (tests/units/test_compiled_means.py).
 */
#ifndef PGM_MEANS_H
#define PGM_MEANS_H

#include <stdlib.h>

#include "random.h"
#include "routines.h"

/* 1 / (1 + e^-z) without loss of digits where it is near 0 */
PGM_INLINE pgm_vf pgm_logistic(pgm_vf z)
{
    pgm_vf t = pgm_exp_minus_abs_f(z), one = pgm_splat_f(1.0f);
    return pgm_select_f(z > 0.0f, one, t) / (one + t);
}

/* some numbers as a whole vector, the rest being 0 */
PGM_INLINE pgm_vf pgm_load_some(const float *x, int64_t count)
{
    pgm_vf out = pgm_splat_f(0.0f);
    if (count >= PGM_WIDE) return *(const pgm_vf *)x;
    for (int64_t i = 0; i < count; i++) out[i] = x[i];
    return out;
}

PGM_INLINE void pgm_store_some(pgm_vf v, int64_t count, float *x)
{
    if (count >= PGM_WIDE)
        *(pgm_vf *)x = v;
    else
        for (int64_t i = 0; i < count; i++) x[i] = v[i];
}

PGM_INLINE void pgm_means_two(const pgm_mean_job *j, const float *eta, int64_t n, float *out)
{
    const float gap = j->support[1] - j->support[0], base = j->log_base[1] - j->log_base[0];
    for (int64_t i = 0; i < n; i += PGM_WIDE) {
        pgm_vf p = pgm_logistic(pgm_load_some(eta + i, n - i) * gap + base);
        pgm_store_some(p * gap + j->support[0], n - i, out + i);
    }
}

/* units with values v_k; e^lw is divided by the largest of them */
PGM_INLINE void pgm_means_of_values(const pgm_mean_job *j, const float *eta, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += PGM_WIDE) {
        pgm_vf at = pgm_load_some(eta + i, n - i), top = at * j->support[0] + j->log_base[0];
        pgm_vf sum = pgm_splat_f(0.0f), mean = sum;
        for (int k = 1; k < j->values; k++)
            top = pgm_max_f(at * j->support[k] + j->log_base[k], top);
        for (int k = 0; k < j->values; k++) {
            pgm_vf lw = at * j->support[k] + j->log_base[k] - top;
            pgm_vf weight = pgm_exp_f(pgm_max_f(lw, pgm_splat_f(-87.0f)));
            sum += weight, mean += weight * j->support[k];
        }
        pgm_store_some(mean / sum, n - i, out + i);
    }
}

PGM_INLINE void pgm_means_one_hot(const pgm_mean_job *j, const float *eta, int64_t n, float *out)
{
    for (int64_t u = 0; u < n; u += j->width) {
        float top = eta[u] + j->log_base[0], sum = 0.0f;
        for (int k = 1; k < j->width; k++)
            top = eta[u + k] + j->log_base[k] > top ? eta[u + k] + j->log_base[k] : top;
        for (int k = 0; k < j->width; k += PGM_WIDE) {
            int some = j->width - k;
            pgm_vf lw = pgm_load_some(eta + u + k, some) + pgm_load_some(j->log_base + k, some);
            pgm_vf weight = pgm_exp_f(pgm_max_f(lw - top, pgm_splat_f(-87.0f)));
            pgm_store_some(weight, some, out + u + k);
        }
        for (int k = 0; k < j->width; k++) sum += out[u + k];
        for (int k = 0; k < j->width; k++) out[u + k] /= sum;
    }
}

static float pgm_mean_of_interval(float eta)
{
    double x = eta, q = x * x;
    if (fabs(x) < 0.05) return (float)(x * (1.0 / 3 - q * (1.0 / 45 - q * (2.0 / 945))));
    return (float)(1.0 / tanh(x) - 1.0 / x);
}

/* rows first .. last - 1 */
static void pgm_mean_part(void *job, int64_t first, int64_t last)
{
    const pgm_mean_job *j = job;
    for (int64_t r = first; r < last; r++) {
        const float *eta = j->eta + r * j->n;
        float *out = j->out + r * j->n;
        if (j->unit == PGM_FINITE && j->width > 1)
            pgm_means_one_hot(j, eta, j->n, out);
        else if (j->unit == PGM_FINITE && j->values == 2)
            pgm_means_two(j, eta, j->n, out);
        else if (j->unit == PGM_FINITE)
            pgm_means_of_values(j, eta, j->n, out);
        else
            for (int64_t i = 0; i < j->n; i++)
                out[i] = j->unit == PGM_NORMAL ? j->variance * eta[i] : pgm_mean_of_interval(eta[i]);
    }
}

/* The values (chains, size * width) of the states of a layer. */
static void pgm_values_of(const pgm_layer *l, int64_t chains, float *values)
{
    const int64_t width = l->size * l->width;
    for (int64_t c = 0; c < chains; c++) {
        float *restrict out = values + c * width;
        const uint8_t *restrict state = l->state + c * l->units;
        if (l->kind != PGM_FINITE)
            memcpy(out, l->value + c * l->units, sizeof(float) * (size_t)width);
        else if (l->width > 1) {
            memset(out, 0, sizeof(float) * (size_t)width);
            for (int64_t j = 0; j < l->size; j++) out[j * l->width + state[j]] = 1.0f;
        } else if (l->states == 2) {
            const float low = l->support[0], gap = l->support[1] - low;
            for (int64_t j = 0; j < l->size; j++) out[j] = low + gap * (float)state[j];
        } else
            for (int64_t j = 0; j < l->size; j++) out[j] = l->support[state[j]];
    }
}

#endif
