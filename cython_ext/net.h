/* A mean-field problem as the rounds of belief.h read it, tilted tables, and moments of a term's input. */
#ifndef PGM_NET_H
#define PGM_NET_H

#include <stdlib.h>

#include "simd.h"

#define PGM_MOST_VALUES 256
#define PGM_LEAST -690.0 /* least log probability of a state, so that probabilities are normal numbers */
#define PGM_FLUSH 100    /* factors in [1, 256] between two logarithms of their product */
#define PGM_WHOLE 32     /* components of xi up to which the whole Hessian is kept; beyond, its diagonal alone */
#define PGM_CELLS 528    /* its lower triangle by rows: PGM_WHOLE (PGM_WHOLE + 1) / 2, and at least PGM_MOST_VALUES */

typedef struct {
    int states, width;
    double curvature;       /* c, or 0 */
    const double *value;    /* (states, width) */
    const double *log_base; /* (states) */
} pgm_kind;

/* The graph. An edge is a pair of a parent unit and a term; the edges of a term lie together, each with its weights
 * (width of the parent, width of the term) at edge_weight. */
typedef struct {
    int64_t units, terms, states, comps, term_states, term_comps, edges, capacity;
    const pgm_kind *kind;
    const int32_t *unit_kind, *term_kind;
    const int32_t *term_plain;                 /* (terms) whether it and all its parents have one component, they two values */
    const int64_t *unit_state, *unit_comp;     /* (units) where its states and components begin */
    const int64_t *term_state, *term_comp;     /* (terms) */
    const int64_t *link_start;                 /* (comps + 1): linear inputs from other units' means */
    const int32_t *link_from;
    const double *link_weight;
    const int64_t *down_start;                 /* (units + 1) the edges of which it is the parent */
    const int64_t *down_edge;
    const int64_t *up_start;                   /* (terms + 1) */
    const int32_t *edge_unit, *edge_term;
    const int64_t *edge_weight;
    const double *weight;
    const int64_t *own_first, *own_count;      /* (units) the terms of which it is the child */
    const int32_t *own_complement;             /* (units) whether their power is its mean */
} pgm_net;

/* PGM_LANES rows: arrays of vectors, one for each unit, state, component or term. */
typedef struct {
    pgm_vd *log_q, *q;        /* (states) */
    pgm_vd *mean;             /* (comps) */
    const pgm_vd *base;       /* (comps) constant natural parameter */
    const pgm_vd *open;       /* (units) 1 where a unit is to be inferred, else 0 */
    const pgm_vd *still;      /* (term_comps) constant input */
    const pgm_vd *live;       /* (terms) beta, or 0 where a normaliser is not there */
    pgm_vd *on;               /* (terms) power of the normaliser */
    pgm_vd *pull;             /* (term_comps) what multiplies the input */
    pgm_vd *xi;               /* (term_comps) */
    pgm_vd *phi;              /* (term_states); for a quadratic term E[z] */
    pgm_vd *f;                /* (terms) */
    const pgm_vd *beta;
} pgm_rows;

/* The table of one parent tilted by exp(t x): its probabilities into p, and log E_q[exp(t x)] = *top + log(returned).
 * tau: t for each component of the parent. Two states cost one exponential. */
PGM_INLINE pgm_vd pgm_tilt(const pgm_kind *kind, const pgm_vd *log_q, const pgm_vd *tau, pgm_vd *p, pgm_vd *top)
{
    if (kind->states == 2 && kind->width == 1) {
        pgm_vd a = log_q[0] + tau[0] * kind->value[0], b = log_q[1] + tau[0] * kind->value[1];
        pgm_vd e = pgm_exp_d(-pgm_abs(b - a)), sum = e + 1.0, high = 1.0 / sum, low = e * high;
        p[0] = pgm_pick(a > b, high, low);
        p[1] = pgm_pick(a > b, low, high);
        *top = pgm_most(a, b);
        return sum;
    }
    pgm_vd best = pgm_all(-INFINITY), sum = pgm_all(0.0);
    for (int x = 0; x < kind->states; x++) {
        pgm_vd t = log_q[x];
        for (int l = 0; l < kind->width; l++) t += tau[l] * kind->value[x * kind->width + l];
        p[x] = t;
        best = pgm_most(best, t);
    }
    for (int x = 0; x < kind->states; x++) sum += p[x] = pgm_exp_d(p[x] - best);
    pgm_vd scale = 1.0 / sum;
    for (int x = 0; x < kind->states; x++) p[x] *= scale;
    *top = best;
    return sum;
}

/* t_k of an edge for each component of the parent: J (y_k - xi) */
PGM_INLINE void pgm_slopes(const double *weight, int wide, const pgm_kind *child, int k, const pgm_vd *xi, pgm_vd *tau)
{
    for (int a = 0; a < wide; a++) {
        tau[a] = pgm_all(0.0);
        for (int l = 0; l < child->width; l++)
            tau[a] += weight[a * child->width + l] * (child->value[k * child->width + l] - xi[l]);
    }
}

/* the log of a sum of exponentials; p receives their shares */
PGM_INLINE pgm_vd pgm_log_sum(int n, const pgm_vd *w, pgm_vd *p)
{
    pgm_vd best = w[0], sum = pgm_all(0.0);
    for (int k = 1; k < n; k++) best = pgm_most(best, w[k]);
    for (int k = 0; k < n; k++) sum += p[k] = pgm_exp_d(w[k] - best);
    for (int k = 0; k < n; k++) p[k] /= sum;
    return best + pgm_log_d(sum);
}

/* E[z] of a term for each of its components */
PGM_INLINE void pgm_mean_input(const pgm_net *n, const pgm_rows *r, int64_t t, pgm_vd *m)
{
    int w = n->kind[n->term_kind[t]].width;
    for (int l = 0; l < w; l++) m[l] = r->still[n->term_comp[t] + l];
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        int64_t u = n->edge_unit[e];
        const double *weight = n->weight + n->edge_weight[e];
        for (int a = 0; a < n->kind[n->unit_kind[u]].width; a++)
            for (int l = 0; l < w; l++) m[l] += weight[a * w + l] * r->mean[n->unit_comp[u] + a];
    }
}

PGM_INLINE int pgm_two_valued(const pgm_kind *kind)
{
    return kind->states == 2 && kind->width == 1;
}

/* log E_Q[exp(t z)] over the parents of a term of one component, all of them two-valued; to *mean and *variance what they
 * add to the tilted mean and variance of z */
PGM_INLINE pgm_vd pgm_cumulant(const pgm_net *n, const pgm_rows *r, int64_t t, pgm_vd by, pgm_vd *mean, pgm_vd *variance)
{
    pgm_vd sum = pgm_all(0.0), product = pgm_all(1.0), m1 = *mean, m2 = *variance;
    int left = PGM_FLUSH;
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        const int64_t u = n->edge_unit[e];
        const double *value = n->kind[n->unit_kind[u]].value, weight = n->weight[n->edge_weight[e]];
        const double low = weight * value[0], step = weight * (value[1] - value[0]);
        const pgm_vd *log_q = r->log_q + n->unit_state[u], up = log_q[1] + by * step, d = up - log_q[0];
        pgm_vd x = pgm_exp_d(-pgm_abs(d)), odds = x + 1.0, high = 1.0 / odds, rest = x * high;
        sum += pgm_most(up, log_q[0]) + by * low;
        product *= odds;
        m1 += low + step * pgm_pick(d > 0.0, high, rest);
        m2 += (step * step) * (high * rest);
        if (--left == 0) {
            sum += pgm_log_d(product);
            product = pgm_all(1.0);
            left = PGM_FLUSH;
        }
    }
    *mean = m1, *variance = m2;
    return sum + pgm_log_d(product);
}

/* the first column that is kept of row l of a Hessian */
PGM_INLINE int pgm_column(int width, int l)
{
    return width <= PGM_WHOLE ? 0 : l;
}

PGM_INLINE int pgm_cells(int width)
{
    return width <= PGM_WHOLE ? width * (width + 1) / 2 : width;
}

/* What a parent with the probabilities p adds to the mean and the covariance of the input of a child of w components */
PGM_INLINE void pgm_moments(const pgm_kind *parent, const double *weight, int w, const pgm_vd *p, pgm_vd *mean, pgm_vd *cov)
{
    pgm_vd one[PGM_MOST_VALUES];
    double z[PGM_MOST_VALUES];
    for (int l = 0; l < w; l++) one[l] = pgm_all(0.0);
    for (int x = 0; x < parent->states; x++) {
        for (int l = 0, c = 0; l < w; l++) {
            z[l] = 0.0;
            for (int a = 0; a < parent->width; a++) z[l] += parent->value[x * parent->width + a] * weight[a * w + l];
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
