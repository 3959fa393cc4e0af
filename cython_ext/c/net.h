/* Tilted probabilities of parents and moments of the input of a term, for the rounds of belief.h.
 *
 * All quantities are vectors: lane i belongs to row i of a block of PGM_LANES rows of evidence. The
 * tilt of a parent's table q by exp(t x) is q(x) e^(t x) / E_q[e^(t x)]. Products of expectations
 * over parents are stored as a sum of exponents and a product of factors in [1, 256]. The logarithm
 * of this product is taken once for every PGM_FLUSH factors.
 *
 * Reference: `Twin` in tests/infer/variational/test_compiled_rounds.py, `Beliefs` in
 * tests/bound_oracle.py.
 */
#ifndef PGM_NET_H
#define PGM_NET_H

#include <stdlib.h>

#include "routines.h"
#include "vectors.h"

#define PGM_LEAST \
    -690.0 /* the least log probability of a state, so that probabilities are normal numbers */
#define PGM_LEAST_Q 2.171738281389827e-300 /* exp(PGM_LEAST) */
#define PGM_FLUSH 100 /* factors in [1, 256] between two logarithms of their product */
#define PGM_WHOLE \
    32 /* the most components of xi for which the whole Hessian is stored; else only its diagonal */
#define PGM_CELLS                                                                                  \
    528 /* its lower triangle by rows: PGM_WHOLE (PGM_WHOLE + 1) / 2, and at least PGM_MOST_VALUES \
         */

/* one block of pgm_batch, where its arrays are described */
typedef struct {
    pgm_vd *log_q, *q, *mean;
    const pgm_vd *base, *gain, *open, *still, *live;
    pgm_vd *on, *pull, *xi, *phi, *f, *input;
    const pgm_vd *beta, *power;
    const int32_t *alive; /* (terms) whether `live` is not 0 in all lanes; of the rounds alone */
    double least; /* of a job */
} pgm_rows;

/* The probabilities p of one parent tilted by exp(t x), and log E_q[exp(t x)] = *top +
 * log(returned). tau: t for each component of the parent. Two states cost one exponential. */
PGM_INLINE pgm_vd pgm_tilt(const pgm_kind *kind, const pgm_vd *log_q, const pgm_vd *tau, pgm_vd *p,
                           pgm_vd *top)
{
    if (kind->states == 2 && kind->width == 1) {
        pgm_vd a = log_q[0] + tau[0] * kind->value[0], b = log_q[1] + tau[0] * kind->value[1];
        pgm_vd e = pgm_exp_d(-pgm_abs_d(b - a)), sum = e + 1.0, high = 1.0 / sum, low = e * high;
        p[0] = pgm_select_d(a > b, high, low);
        p[1] = pgm_select_d(a > b, low, high);
        *top = pgm_max_d(a, b);
        return sum;
    }
    pgm_vd best = pgm_splat_d(-INFINITY), sum = pgm_splat_d(0.0);
    for (int x = 0; x < kind->states; x++) {
        pgm_vd t = log_q[x];
        for (int l = 0; l < kind->width; l++) t += tau[l] * kind->value[x * kind->width + l];
        p[x] = t;
        best = pgm_max_d(best, t);
    }
    for (int x = 0; x < kind->states; x++) sum += p[x] = pgm_exp_d(p[x] - best);
    pgm_vd scale = 1.0 / sum;
    for (int x = 0; x < kind->states; x++) p[x] *= scale;
    *top = best;
    return sum;
}

/* Number i of the weights of an edge, in the lanes of its term or terms. */
PGM_INLINE pgm_vd pgm_weight(const pgm_net *n, int64_t e, int i, int by_term)
{
    const int64_t at = n->edge_weight[e] + i;
    return by_term ? ((const pgm_vd *)n->weight)[at] : pgm_splat_d(n->weight[at]);
}

/* t_k of an edge for each component of the parent: J (y_k - xi) */
PGM_INLINE void pgm_slopes(const pgm_net *n, int64_t e, int wide, const pgm_kind *child, int k,
                           const pgm_vd *xi, pgm_vd *tau, int by_term)
{
    for (int a = 0; a < wide; a++) {
        tau[a] = pgm_splat_d(0.0);
        for (int l = 0; l < child->width; l++)
            tau[a] += pgm_weight(n, e, a * child->width + l, by_term)
                      * (child->value[k * child->width + l] - xi[l]);
    }
}

/* The probabilities p of a two-valued parent tilted by a two-valued child, for both of its states:
 * p[2 k + x] for state x of the parent and state k of the child. d: the log odds under k = 0.
 * grows: the factor of the odds from k = 0 to k = 1; shrinks: its inverse. The two numbers in odds
 * are at most 256. log E_q[exp(t_k x)] is the logarithm of odds[k] plus the log weight under k of
 * state 1 where d > 0, and of state 0 elsewhere. Both states together cost one exponential and one
 * division. */
PGM_INLINE void pgm_tilt_both(pgm_vd d, pgm_vd grows, pgm_vd shrinks, pgm_vd *p, pgm_vd *odds)
{
    const pgm_vl up = d > 0.0;
    const pgm_vd x = pgm_exp_d(-pgm_abs_d(d)), y = x * pgm_select_d(up, shrinks, grows);
    odds[0] = x + 1.0, odds[1] = y + 1.0;
    const pgm_vd both = 1.0 / (odds[0] * odds[1]), a = both * odds[1], b = both * odds[0];
    const pgm_vd ax = a * x, by = b * y;
    p[0] = pgm_select_d(up, ax, a), p[1] = pgm_select_d(up, a, ax);
    p[2] = pgm_select_d(up, by, b), p[3] = pgm_select_d(up, b, by);
}

/* the factor of the odds of a parent from one state of a two-valued child to the other, and back */
PGM_INLINE pgm_vd pgm_growth(const pgm_net *n, int64_t e, int back, int by_term)
{
    const int64_t at = 2 * e + back;
    return by_term ? ((const pgm_vd *)n->growth)[at] : pgm_splat_d(n->growth[at]);
}

/* log sum_k e^(w_k), and the shares p of the exponentials in the sum */
PGM_INLINE pgm_vd pgm_log_sum(int n, const pgm_vd *w, pgm_vd *p)
{
    if (n == 2) {
        const pgm_vl up = w[1] > w[0];
        const pgm_vd e = pgm_exp_d(-pgm_abs_d(w[1] - w[0])), high = 1.0 / (e + 1.0), low = e * high;
        const pgm_vd top = pgm_select_d(up, w[1], w[0]);
        p[0] = pgm_select_d(up, low, high), p[1] = pgm_select_d(up, high, low);
        return top + pgm_log_d(e + 1.0);
    }
    pgm_vd best = pgm_splat_d(-INFINITY), sum = pgm_splat_d(0.0);
    for (int k = 0; k < n; k++) best = pgm_max_d(best, w[k]);
    for (int k = 0; k < n; k++) sum += p[k] = pgm_exp_d(w[k] - best);
    for (int k = 0; k < n; k++) p[k] /= sum;
    return best + pgm_log_d(sum);
}

/* E[z] of a term for each of its components */
PGM_INLINE void pgm_mean_input(const pgm_net *n, const pgm_rows *r, int64_t t, pgm_vd *m,
                               int by_term)
{
    int w = n->kind[n->term_kind[t]].width;
    for (int l = 0; l < w; l++) m[l] = r->still[n->term_comp[t] + l];
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        int64_t u = n->edge_unit[e];
        for (int a = 0; a < n->kind[n->unit_kind[u]].width; a++)
            for (int l = 0; l < w; l++)
                m[l] += pgm_weight(n, e, a * w + l, by_term) * r->mean[n->unit_comp[u] + a];
    }
}

PGM_INLINE int pgm_two_valued(const pgm_kind *kind)
{
    return kind->states == 2 && kind->width == 1;
}

/* log E_Q[exp(t z)] over the parents of a term of one component, all of them two-valued; adds
 * their parts of the tilted mean and variance of z to *mean and *variance */
PGM_INLINE pgm_vd pgm_cumulant(const pgm_net *n, const pgm_rows *r, int64_t t, pgm_vd by,
                               pgm_vd *mean, pgm_vd *variance, int by_term)
{
    pgm_vd sum = pgm_splat_d(0.0), product = pgm_splat_d(1.0), m1 = *mean, m2 = *variance;
    int left = PGM_FLUSH;
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        const int64_t u = n->edge_unit[e];
        const double *value = n->kind[n->unit_kind[u]].value;
        const pgm_vd weight = pgm_weight(n, e, 0, by_term);
        const pgm_vd low = weight * value[0], step = weight * (value[1] - value[0]);
        const pgm_vd *log_q = r->log_q + n->unit_state[u], up = log_q[1] + by * step,
                     d = up - log_q[0];
        pgm_vd x = pgm_exp_d(-pgm_abs_d(d)), odds = x + 1.0, high = 1.0 / odds, rest = x * high;
        sum += pgm_max_d(up, log_q[0]) + by * low;
        product *= odds;
        m1 += low + step * pgm_select_d(d > 0.0, high, rest);
        m2 += (step * step) * (high * rest);
        if (--left == 0) {
            sum += pgm_log_d(product);
            product = pgm_splat_d(1.0);
            left = PGM_FLUSH;
        }
    }
    *mean = m1, *variance = m2;
    return sum + pgm_log_d(product);
}

/* the first stored column of row l of a Hessian */
PGM_INLINE int pgm_column(int width, int l) { return width <= PGM_WHOLE ? 0 : l; }

PGM_INLINE int pgm_cells(int width) { return width <= PGM_WHOLE ? width * (width + 1) / 2 : width; }

/* Add the contribution of a parent with probabilities p to the mean and the covariance of the input
 * of a child with w components. */
PGM_INLINE void pgm_moments(const pgm_net *n, int64_t e, const pgm_kind *parent, int w,
                            const pgm_vd *p, pgm_vd *mean, pgm_vd *cov, int by_term)
{
    pgm_vd one[PGM_MOST_VALUES], z[PGM_MOST_VALUES];
    for (int l = 0; l < w; l++) one[l] = pgm_splat_d(0.0);
    for (int x = 0; x < parent->states; x++) {
        for (int l = 0, c = 0; l < w; l++) {
            z[l] = pgm_splat_d(0.0);
            for (int a = 0; a < parent->width; a++)
                z[l] += parent->value[x * parent->width + a] * pgm_weight(n, e, a * w + l, by_term);
            one[l] += p[x] * z[l];
            for (int j = pgm_column(w, l); j <= l; j++, c++) cov[c] += p[x] * (z[l] * z[j]);
        }
    }
    for (int l = 0, c = 0; l < w; l++) {
        mean[l] += one[l];
        for (int j = pgm_column(w, l); j <= l; j++, c++) cov[c] -= one[l] * one[j];
    }
}

#endif
