/* Mean field where free units have directed children (Saul, Jaakkola and Jordan 1996), eight rows at a time.
 *
 * Q is a table of probabilities for each unit. A child with input z brings -E_Q[A(z)], which is bounded below by
 *     -F(xi) = -xi E[z] - log sum_k exp(L_k),   L_k = log h_k + log E_Q[exp((y_k - xi) z)],
 * y_k its values, for every xi (their eq. 20). The expectations are products over the parents, so that
 *   - F is convex in xi: damped Newton steps, its derivatives being moments under the parents tilted by exp((y_k - xi) z);
 *   - given all others, -F is convex in the table of one parent, and its tangent, which is linear, gives a table that
 *     cannot lower the bound: q(x) ~ h(x) exp(eta x - share(x)), share(x) = sum of phi_k exp(t_k x) / E_q[exp(t_k x)],
 *     t_k = J (y_k - xi), phi_k the share of L_k in the sum: their eq. 25 for two values, and for any number of them.
 * A child with A(z) = c z^2 / 2 needs no bound: E[A] = c (E[z]^2 + Var z) / 2.
 */
#ifndef PGM_BELIEF_H
#define PGM_BELIEF_H

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

/* Eight rows: arrays of vectors, one for each unit, state, component or term. */
typedef struct {
    pgm_v8 *log_q, *q;        /* (states) */
    pgm_v8 *mean;             /* (comps) */
    const pgm_v8 *base;       /* (comps) constant natural parameter */
    const pgm_v8 *open;       /* (units) 1 where a unit is to be inferred, else 0 */
    const pgm_v8 *still;      /* (term_comps) constant input */
    const pgm_v8 *live;       /* (terms) beta, or 0 where a normaliser is not there */
    pgm_v8 *on;               /* (terms) power of the normaliser */
    pgm_v8 *pull;             /* (term_comps) what multiplies the input */
    pgm_v8 *xi;               /* (term_comps) */
    pgm_v8 *phi;              /* (term_states); for a quadratic term E[z] */
    pgm_v8 *f;                /* (terms) */
    const pgm_v8 *beta;
} pgm_rows;

/* The table of one parent tilted by exp(t x): its probabilities into p, and log E_q[exp(t x)] = *top + log(returned).
 * tau: t for each component of the parent. Two states cost one exponential. */
PGM_INLINE pgm_v8 pgm_tilt(const pgm_kind *kind, const pgm_v8 *log_q, const pgm_v8 *tau, pgm_v8 *p, pgm_v8 *top)
{
    if (kind->states == 2 && kind->width == 1) {
        pgm_v8 a = log_q[0] + tau[0] * kind->value[0], b = log_q[1] + tau[0] * kind->value[1];
        pgm_v8 e = pgm_exp8(-pgm_abs(b - a)), sum = e + 1.0, high = 1.0 / sum, low = e * high;
        p[0] = pgm_pick(a > b, high, low);
        p[1] = pgm_pick(a > b, low, high);
        *top = pgm_most(a, b);
        return sum;
    }
    pgm_v8 best = pgm_all(-INFINITY), sum = pgm_all(0.0);
    for (int x = 0; x < kind->states; x++) {
        pgm_v8 t = log_q[x];
        for (int l = 0; l < kind->width; l++) t += tau[l] * kind->value[x * kind->width + l];
        p[x] = t;
        best = pgm_most(best, t);
    }
    for (int x = 0; x < kind->states; x++) sum += p[x] = pgm_exp8(p[x] - best);
    pgm_v8 scale = 1.0 / sum;
    for (int x = 0; x < kind->states; x++) p[x] *= scale;
    *top = best;
    return sum;
}

/* t_k of an edge for each component of the parent: J (y_k - xi) */
PGM_INLINE void pgm_slopes(const double *weight, int wide, const pgm_kind *child, int k, const pgm_v8 *xi, pgm_v8 *tau)
{
    for (int a = 0; a < wide; a++) {
        tau[a] = pgm_all(0.0);
        for (int l = 0; l < child->width; l++)
            tau[a] += weight[a * child->width + l] * (child->value[k * child->width + l] - xi[l]);
    }
}

/* the log of a sum of exponentials; p receives their shares */
PGM_INLINE pgm_v8 pgm_log_sum(int n, const pgm_v8 *w, pgm_v8 *p)
{
    pgm_v8 best = w[0], sum = pgm_all(0.0);
    for (int k = 1; k < n; k++) best = pgm_most(best, w[k]);
    for (int k = 0; k < n; k++) sum += p[k] = pgm_exp8(w[k] - best);
    for (int k = 0; k < n; k++) p[k] /= sum;
    return best + pgm_log8(sum);
}

/* E[z] of a term for each of its components */
PGM_INLINE void pgm_mean_input(const pgm_net *n, const pgm_rows *r, int64_t t, pgm_v8 *m)
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
PGM_INLINE pgm_v8 pgm_cumulant(const pgm_net *n, const pgm_rows *r, int64_t t, pgm_v8 by, pgm_v8 *mean, pgm_v8 *variance)
{
    pgm_v8 sum = pgm_all(0.0), product = pgm_all(1.0), m1 = *mean, m2 = *variance;
    int left = PGM_FLUSH;
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        const int64_t u = n->edge_unit[e];
        const double *value = n->kind[n->unit_kind[u]].value, weight = n->weight[n->edge_weight[e]];
        const double low = weight * value[0], step = weight * (value[1] - value[0]);
        const pgm_v8 *log_q = r->log_q + n->unit_state[u], up = log_q[1] + by * step, d = up - log_q[0];
        pgm_v8 x = pgm_exp8(-pgm_abs(d)), odds = x + 1.0, high = 1.0 / odds, rest = x * high;
        sum += pgm_most(up, log_q[0]) + by * low;
        product *= odds;
        m1 += low + step * pgm_pick(d > 0.0, high, rest);
        m2 += (step * step) * (high * rest);
        if (--left == 0) {
            sum += pgm_log8(product);
            product = pgm_all(1.0);
            left = PGM_FLUSH;
        }
    }
    *mean = m1, *variance = m2;
    return sum + pgm_log8(product);
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
PGM_INLINE void pgm_moments(const pgm_kind *parent, const double *weight, int w, const pgm_v8 *p, pgm_v8 *mean, pgm_v8 *cov)
{
    pgm_v8 one[PGM_MOST_VALUES];
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

/* F at xi, phi, and where asked the gradient g and the Hessian h in xi */
PGM_INLINE pgm_v8 pgm_bound_of(const pgm_net *n, const pgm_rows *r, int64_t t, const pgm_v8 *m, const pgm_v8 *xi,
                            pgm_v8 *phi, int slopes, pgm_v8 *g, pgm_v8 *h)
{
    const pgm_kind *kind = n->kind + n->term_kind[t];
    const int w = kind->width, states = kind->states;
    const pgm_v8 *still = r->still + n->term_comp[t];
    pgm_v8 big[PGM_MOST_VALUES], tau[PGM_MOST_VALUES], p[PGM_MOST_VALUES], f = pgm_all(0.0);
    pgm_v8 first[PGM_MOST_VALUES], m1[PGM_MOST_VALUES], second[PGM_CELLS], m2[PGM_CELLS];
    pgm_v8 run = pgm_all(-INFINITY), total = pgm_all(0.0);
    for (int l = 0; l < w; l++) first[l] = pgm_all(0.0);
    for (int c = 0; c < pgm_cells(w); c++) second[c] = pgm_all(0.0);
    for (int k = 0; k < states; k++) {
        pgm_v8 sum = pgm_all(kind->log_base[k]), product = pgm_all(1.0), top;
        int left = PGM_FLUSH;
        for (int l = 0; l < w; l++) {
            sum += still[l] * (kind->value[k * w + l] - xi[l]);
            m1[l] = still[l];
        }
        for (int c = 0; c < pgm_cells(w); c++) m2[c] = pgm_all(0.0);
        if (n->term_plain[t]) sum += pgm_cumulant(n, r, t, kind->value[k] - xi[0], m1, m2);
        for (int64_t e = n->up_start[t]; !n->term_plain[t] && e < n->up_start[t + 1]; e++) {
            const int64_t u = n->edge_unit[e];
            const pgm_kind *parent = n->kind + n->unit_kind[u];
            const double *weight = n->weight + n->edge_weight[e];
            pgm_slopes(weight, parent->width, kind, k, xi, tau);
            product *= pgm_tilt(parent, r->log_q + n->unit_state[u], tau, p, &top);
            sum += top;
            if (--left == 0) {
                sum += pgm_log8(product);
                product = pgm_all(1.0);
                left = PGM_FLUSH;
            }
            if (slopes) pgm_moments(parent, weight, w, p, m1, m2);
        }
        big[k] = sum + pgm_log8(product);
        if (!slopes) continue;
        pgm_v8 best = pgm_most(run, big[k]), keep = pgm_exp8(run - best), add = pgm_exp8(big[k] - best);
        for (int l = 0, c = 0; l < w; l++) {
            first[l] = first[l] * keep + m1[l] * add;
            for (int j = pgm_column(w, l); j <= l; j++, c++) second[c] = second[c] * keep + (m2[c] + m1[l] * m1[j]) * add;
        }
        total = total * keep + add;
        run = best;
    }
    for (int l = 0; l < w; l++) f += xi[l] * m[l];
    if (slopes) {
        pgm_v8 share = 1.0 / total;
        for (int l = 0; l < w; l++) first[l] *= share, g[l] = m[l] - first[l];
        for (int l = 0, c = 0; l < w; l++)
            for (int j = pgm_column(w, l); j <= l; j++, c++) h[c] = second[c] * share - first[l] * first[j];
    }
    return f + pgm_log_sum(states, big, phi);
}

/* step = -h^-1 g, by h = L D L' (which takes the place of h); no pivot is less than a trifle of what it started from */
PGM_INLINE void pgm_solve(int w, pgm_v8 *h, const pgm_v8 *g, pgm_v8 *step)
{
    pgm_v8 pivot[PGM_MOST_VALUES];
    for (int l = 0, c = 0; l < w; l++) {
        pgm_v8 *row = h + c, left = -g[l];
        const int from = pgm_column(w, l);
        const pgm_v8 floor = 1e-10 * pgm_most(row[l - from], pgm_all(0.0)) + 1e-12;
        for (int j = from; j < l; j++) {
            pgm_v8 sum = row[j];
            for (int i = 0; i < j; i++) sum -= row[i] * h[j * (j + 1) / 2 + i]; /* row[i] is L D until the row is done */
            row[j] = sum;
        }
        for (int j = from; j < l; j++) {
            pgm_v8 scaled = row[j] / pivot[j];
            row[l - from] -= row[j] * scaled;
            row[j] = scaled;
            left -= scaled * step[j];
        }
        pivot[l] = pgm_most(row[l - from], floor);
        step[l] = left;
        c += l + 1 - from;
    }
    for (int l = w - 1; l >= 0; l--) {
        step[l] /= pivot[l];
        for (int i = l + 1; w <= PGM_WHOLE && i < w; i++) step[l] -= h[i * (i + 1) / 2 + l] * step[i];
    }
}

#define PGM_STUBBORN 40 /* most steps in rows where none has lowered F yet */

/* Newton steps in xi from where it is, none longer than the range of the values, kept in the rows where F does not rise
 * and its minimum is not far behind; in the others the next one ends where the slopes at both ends of this one meet. */
PGM_INLINE void pgm_tighten(const pgm_net *n, pgm_rows *r, int64_t t, int steps)
{
    const pgm_kind *kind = n->kind + n->term_kind[t];
    const int w = kind->width, states = kind->states;
    pgm_v8 m[PGM_MOST_VALUES], g[PGM_MOST_VALUES], h[PGM_CELLS], g2[PGM_MOST_VALUES], h2[PGM_CELLS];
    pgm_v8 step[PGM_MOST_VALUES], newton[PGM_MOST_VALUES], at[PGM_MOST_VALUES], phi2[PGM_MOST_VALUES];
    pgm_v8 *xi = r->xi + n->term_comp[t], *phi = r->phi + n->term_state[t];
    pgm_mean_input(n, r, t, m);
    if (kind->curvature > 0) {
        pgm_v8 spread = pgm_all(0.0);
        for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
            const pgm_kind *parent = n->kind + n->unit_kind[n->edge_unit[e]];
            const pgm_v8 *q = r->q + n->unit_state[n->edge_unit[e]];
            pgm_v8 one = pgm_all(0.0), two = pgm_all(0.0);
            for (int x = 0; x < parent->states; x++) {
                double z = 0.0;
                for (int a = 0; a < parent->width; a++)
                    z += parent->value[x * parent->width + a] * n->weight[n->edge_weight[e] + a];
                one += q[x] * z;
                two += q[x] * (z * z);
            }
            spread += two - one * one;
        }
        phi[0] = m[0];
        r->f[t] = 0.5 * kind->curvature * (m[0] * m[0] + spread);
        return;
    }
    if (n->up_start[t] == n->up_start[t + 1]) steps = 0; /* A itself, whatever xi */
    double least = kind->value[0], range = least;
    for (int i = 1; i < states * w; i++) {
        least = kind->value[i] < least ? kind->value[i] : least;
        range = kind->value[i] > range ? kind->value[i] : range;
    }
    range -= least;
    pgm_v8 f = pgm_bound_of(n, r, t, m, xi, phi, steps > 0, g, h), shorter = pgm_all(0.5);
    pgm_i8 moved = f == f, stuck = moved ^ moved;
    for (int s = 0; s < steps || (s < PGM_STUBBORN && pgm_any((pgm_v8)stuck)); s++) {
        pgm_v8 far = pgm_all(range), here = pgm_all(0.0), there = pgm_all(0.0); /* slopes along the step at its ends */
        pgm_solve(w, h, g, newton);
        for (int l = 0; l < w; l++) far = pgm_most(far, pgm_abs(newton[l]));
        for (int l = 0; l < w; l++) {
            step[l] = pgm_pick(moved, newton[l] * (range / far), shorter * step[l]);
            at[l] = xi[l] + step[l];
            here += g[l] * step[l];
        }
        pgm_i8 worth = here < -1e-13 * (1.0 + pgm_abs(f));
        if (!pgm_any((pgm_v8)worth)) break;
        pgm_v8 f2 = pgm_bound_of(n, r, t, m, at, phi2, 1, g2, h2);
        for (int l = 0; l < w; l++) there += g2[l] * step[l];
        moved = (f2 <= f) & (there < -0.9 * here);
        shorter = here / (here - there);
        shorter = pgm_pick(shorter > 0.1, pgm_pick(shorter < 0.9, shorter, pgm_all(0.9)), pgm_all(0.1));
        stuck = worth & ~moved;
        for (int l = 0; l < w; l++) {
            xi[l] = pgm_pick(moved, at[l], xi[l]);
            g[l] = pgm_pick(moved, g2[l], g[l]);
        }
        for (int c = 0; c < pgm_cells(w); c++) h[c] = pgm_pick(moved, h2[c], h[c]);
        for (int k = 0; k < states; k++) phi[k] = pgm_pick(moved, phi2[k], phi[k]);
        f = pgm_pick(moved, f2, f);
    }
    r->f[t] = f;
}

/* What the normaliser of a term costs each state of a parent; the tilted tables of the edge are kept for pgm_follow. */
PGM_INLINE void pgm_share_of(const pgm_net *n, const pgm_rows *r, int64_t e, const pgm_v8 *inverse, pgm_v8 *share,
                             pgm_v8 *eta, pgm_v8 *kept)
{
    const int64_t t = n->edge_term[e], u = n->edge_unit[e];
    const pgm_kind *kind = n->kind + n->term_kind[t], *parent = n->kind + n->unit_kind[u];
    const double *weight = n->weight + n->edge_weight[e];
    const pgm_v8 *xi = r->xi + n->term_comp[t], *pull = r->pull + n->term_comp[t], on = r->on[t];
    const int w = kind->width, quadratic = kind->curvature > 0;
    pgm_v8 tau[PGM_MOST_VALUES], top;
    for (int a = 0; a < parent->width; a++)
        for (int l = 0; l < w; l++) {
            if (quadratic)
                eta[a] += weight[a * w + l] * pull[l];
            else
                eta[a] += weight[a * w + l] * (pull[l] - on * xi[l]);
        }
    if (quadratic) {
        const pgm_v8 *q = r->q + n->unit_state[u];
        pgm_v8 mean = pgm_all(0.0);
        for (int again = 0; again < 2; again++)
            for (int x = 0; x < parent->states; x++) {
                double d = 0.0;
                for (int a = 0; a < parent->width; a++) d += parent->value[x * parent->width + a] * weight[a];
                if (again)
                    share[x] += on * kind->curvature * d * (r->phi[n->term_state[t]] - mean + 0.5 * d);
                else
                    mean += q[x] * d;
            }
        return;
    }
    if (pgm_two_valued(parent) && w == 1) {
        const double step = weight[0] * (parent->value[1] - parent->value[0]);
        const pgm_v8 *log_q = r->log_q + n->unit_state[u], odds = log_q[1] - log_q[0];
        for (int k = 0; k < kind->states; k++) {
            pgm_v8 power = on * r->phi[n->term_state[t] + k], d = odds + step * (kind->value[k] - xi[0]);
            pgm_v8 x = pgm_exp8(-pgm_abs(d)), high = 1.0 / (x + 1.0), rest = x * high;
            kept[0] = pgm_pick(d > 0.0, rest, high);
            kept[1] = pgm_pick(d > 0.0, high, rest);
            share[0] += power * kept[0] * inverse[0];
            share[1] += power * kept[1] * inverse[1];
            kept += 2;
        }
        return;
    }
    for (int k = 0; k < kind->states; k++) {
        pgm_v8 power = on * r->phi[n->term_state[t] + k];
        pgm_slopes(weight, parent->width, kind, k, xi, tau);
        pgm_tilt(parent, r->log_q + n->unit_state[u], tau, kept, &top);
        for (int x = 0; x < parent->states; x++) share[x] += power * kept[x] * inverse[x];
        kept += parent->states;
    }
}

/* phi of a term (or E[z] of a quadratic one) after a parent's table has changed by the factors `ratio` */
PGM_INLINE void pgm_follow(const pgm_net *n, pgm_rows *r, int64_t e, const pgm_v8 *ratio, const pgm_v8 *change,
                           const pgm_v8 *kept)
{
    const int64_t t = n->edge_term[e], u = n->edge_unit[e];
    const pgm_kind *kind = n->kind + n->term_kind[t], *parent = n->kind + n->unit_kind[u];
    pgm_v8 *phi = r->phi + n->term_state[t], sum = pgm_all(0.0);
    if (kind->curvature > 0) {
        for (int a = 0; a < parent->width; a++) phi[0] += n->weight[n->edge_weight[e] + a] * change[a];
        return;
    }
    for (int k = 0; k < kind->states; k++) {
        pgm_v8 factor = pgm_all(0.0);
        for (int x = 0; x < parent->states; x++) factor += ratio[x] * kept[k * parent->states + x];
        sum += phi[k] *= factor;
    }
    sum = 1.0 / pgm_most(sum, pgm_all(1e-300));
    for (int k = 0; k < kind->states; k++) phi[k] *= sum;
}

/* what the terms of which a unit is the child are multiplied by, after its mean has changed */
PGM_INLINE void pgm_tell(const pgm_net *n, pgm_rows *r, int64_t u)
{
    const pgm_v8 *mean = r->mean + n->unit_comp[u];
    for (int64_t t = n->own_first[u], first = t; t < first + n->own_count[u]; t++) {
        pgm_v8 live = r->live[t];
        if (n->own_complement[u]) {
            r->on[t] = live * mean[0];
            r->pull[n->term_comp[t]] = pgm_all(0.0);
            if (t == first) r->pull[n->term_comp[t]] = live * (mean[0] - 1.0);
            continue;
        }
        for (int l = 0; l < n->kind[n->term_kind[t]].width; l++) r->pull[n->term_comp[t] + l] = live * mean[l];
    }
}

PGM_INLINE void pgm_set_means(const pgm_net *n, pgm_rows *r, int64_t u)
{
    const pgm_kind *kind = n->kind + n->unit_kind[u];
    const pgm_v8 *q = r->q + n->unit_state[u];
    for (int l = 0; l < kind->width; l++) {
        pgm_v8 mean = pgm_all(0.0);
        for (int x = 0; x < kind->states; x++) mean += q[x] * kind->value[x * kind->width + l];
        r->mean[n->unit_comp[u] + l] = mean;
    }
    pgm_tell(n, r, u);
}

/* The natural parameter that the means of others give a unit */
PGM_INLINE void pgm_linear(const pgm_net *n, const pgm_rows *r, int64_t u, pgm_v8 *eta)
{
    for (int l = 0; l < n->kind[n->unit_kind[u]].width; l++) {
        int64_t c = n->unit_comp[u] + l;
        pgm_v8 sum = pgm_all(0.0);
        for (int64_t i = n->link_start[c]; i < n->link_start[c + 1]; i++)
            sum += n->link_weight[i] * r->mean[n->link_from[i]];
        eta[l] = r->base[c] + *r->beta * sum;
    }
}

/* Update one unit where it is open; the largest change of a probability. kept: (capacity) vectors. */
PGM_INLINE double pgm_update(const pgm_net *n, pgm_rows *r, int64_t u, pgm_v8 *kept)
{
    const pgm_kind *kind = n->kind + n->unit_kind[u];
    const int states = kind->states, w = kind->width;
    pgm_v8 eta[PGM_MOST_VALUES], share[PGM_MOST_VALUES], inverse[PGM_MOST_VALUES], old[PGM_MOST_VALUES];
    pgm_v8 lw[PGM_MOST_VALUES], p[PGM_MOST_VALUES], *q = r->q + n->unit_state[u], *log_q = r->log_q + n->unit_state[u];
    pgm_v8 change = pgm_all(0.0), *place = kept;
    pgm_i8 open = r->open[u] > 0.0;
    pgm_linear(n, r, u, eta);
    for (int x = 0; x < states; x++) {
        share[x] = pgm_all(0.0);
        inverse[x] = 1.0 / pgm_most(q[x], pgm_all(1e-300));
    }
    for (int64_t d = n->down_start[u]; d < n->down_start[u + 1]; d++) {
        const int64_t e = n->down_edge[d], t = n->edge_term[e];
        if (!pgm_any(r->live[t])) continue;
        pgm_share_of(n, r, e, inverse, share, eta, place);
        place += (int64_t)n->kind[n->term_kind[t]].states * states;
    }
    if (n->own_complement[u])
        for (int64_t t = n->own_first[u]; t < n->own_first[u] + n->own_count[u]; t++) share[1] += r->live[t] * r->f[t];
    for (int x = 0; x < states; x++) {
        lw[x] = kind->log_base[x] - pgm_pick(share[x] < 1e100, share[x], pgm_all(1e100));
        for (int l = 0; l < w; l++) lw[x] += kind->value[x * w + l] * eta[l];
    }
    pgm_v8 total = pgm_log_sum(states, lw, p);
    for (int x = 0; x < states; x++) {
        old[x] = q[x];
        log_q[x] = pgm_pick(open, pgm_most(lw[x] - total, pgm_all(PGM_LEAST)), log_q[x]);
        q[x] = pgm_pick(open, pgm_most(p[x], pgm_all(1e-299)), q[x]);
        change = pgm_most(change, pgm_abs(q[x] - old[x]));
        inverse[x] *= q[x];
    }
    for (int l = 0; l < w; l++) eta[l] = -r->mean[n->unit_comp[u] + l];
    pgm_set_means(n, r, u);
    for (int l = 0; l < w; l++) eta[l] += r->mean[n->unit_comp[u] + l];
    place = kept;
    for (int64_t d = n->down_start[u]; d < n->down_start[u + 1]; d++) {
        const int64_t e = n->down_edge[d], t = n->edge_term[e];
        if (!pgm_any(r->live[t])) continue;
        pgm_follow(n, r, e, inverse, eta, place);
        place += (int64_t)n->kind[n->term_kind[t]].states * states;
    }
    return pgm_greatest(change);
}

PGM_INLINE void pgm_tighten_all(const pgm_net *n, pgm_rows *r, int steps)
{
    for (int64_t t = 0; t < n->terms; t++)
        if (pgm_any(r->live[t])) pgm_tighten(n, r, t, steps);
}

/* Rounds: every open unit, then every xi. Ends after a round in which no probability changes by more than the
 * tolerance; the number of rounds, and in *change the last largest change. steps: Newton steps, 0 leaves xi alone. */
PGM_CLONES static int64_t pgm_settle(const pgm_net *n, pgm_rows *r, int64_t rounds, double tolerance, int steps,
                                     pgm_v8 *kept, double *change)
{
    int64_t made = 0;
    *change = INFINITY;
    pgm_tighten_all(n, r, steps ? PGM_STUBBORN : 0); /* or a warm start would be left */
    while (made < rounds && *change > tolerance) {
        *change = 0.0;
        for (int64_t u = 0; u < n->units; u++)
            if (pgm_any(r->open[u])) {
                double by = pgm_update(n, r, u, kept);
                *change = by > *change ? by : *change;
            }
        pgm_tighten_all(n, r, ++made < rounds && *change > tolerance ? steps : steps ? PGM_STUBBORN : 0);
    }
    return made;
}

/* Units without a part in the bound take the probabilities phi of their term, parents first; open: where they do. */
PGM_CLONES static void pgm_forward(const pgm_net *n, pgm_rows *r, const int64_t *order, int64_t count,
                                   const pgm_v8 *barren, int steps)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t u = order[i], t = n->own_first[u];
        const pgm_i8 where = barren[u] > 0.0;
        pgm_v8 *q = r->q + n->unit_state[u], *log_q = r->log_q + n->unit_state[u];
        const int w = n->kind[n->term_kind[t]].width, states = n->kind[n->term_kind[t]].states;
        pgm_v8 *phi = r->phi + n->term_state[t], *xi = r->xi + n->term_comp[t];
        pgm_v8 old_phi[PGM_MOST_VALUES], old_xi[PGM_MOST_VALUES], old_f = r->f[t];
        if (!pgm_any(barren[u])) continue;
        for (int k = 0; k < states; k++) old_phi[k] = phi[k];
        for (int l = 0; l < w; l++) old_xi[l] = xi[l];
        if (n->own_complement[u]) xi[0] = pgm_all(0.0); /* then phi_1 / phi_0 = E[e^-z] */
        pgm_tighten(n, r, t, n->own_complement[u] ? 0 : steps);
        for (int x = 0; x < n->kind[n->unit_kind[u]].states; x++) {
            pgm_v8 p = phi[x];
            if (n->own_complement[u]) p = x ? 1.0 - phi[1] / phi[0] : phi[1] / phi[0];
            p = pgm_most(p, pgm_all(1e-299));
            q[x] = pgm_pick(where, p, q[x]);
            log_q[x] = pgm_pick(where, pgm_log8(p), log_q[x]);
        }
        for (int k = 0; k < states; k++) phi[k] = pgm_pick(where, phi[k], old_phi[k]); /* rows where it counts */
        for (int l = 0; l < w; l++) xi[l] = pgm_pick(where, xi[l], old_xi[l]);
        r->f[t] = pgm_pick(where, r->f[t], old_f);
        pgm_set_means(n, r, u);
    }
}

/* Add the slopes of the bound with respect to the weights of a term's edges, at the present Q and xi, times the weights
 * of the rows: (pull - on xi) E[x] - on sum_k phi_k (y_k - xi) E[x tilted] (their eq. 35). */
PGM_CLONES static void pgm_learn(const pgm_net *n, const pgm_rows *r, int64_t t, const pgm_v8 *weights, double *weight)
{
    const pgm_kind *kind = n->kind + n->term_kind[t];
    const int w = kind->width;
    const pgm_v8 *phi = r->phi + n->term_state[t], *xi = r->xi + n->term_comp[t], *pull = r->pull + n->term_comp[t];
    const pgm_v8 on = r->on[t], row_weight = *weights;
    pgm_v8 tau[PGM_MOST_VALUES], p[PGM_MOST_VALUES], top, total;
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        const int64_t u = n->edge_unit[e];
        const pgm_kind *parent = n->kind + n->unit_kind[u];
        const double *j = n->weight + n->edge_weight[e];
        const int wide = parent->width;
        for (int a = 0; a < wide; a++) {
            const pgm_v8 mean = r->mean[n->unit_comp[u] + a];
            if (kind->curvature > 0) { /* d/dJ of c (E[z]^2 + Var z) / 2 */
                pgm_v8 both = pgm_all(0.0);
                for (int x = 0; x < parent->states; x++) {
                    double d = 0.0;
                    for (int b = 0; b < wide; b++) d += parent->value[x * wide + b] * j[b];
                    both += r->q[n->unit_state[u] + x] * parent->value[x * wide + a] * d;
                }
                pgm_v8 own = pgm_all(0.0);
                for (int b = 0; b < wide; b++) own += r->mean[n->unit_comp[u] + b] * j[b];
                total = pull[0] * mean - on * kind->curvature * (phi[0] * mean + both - own * mean);
                total *= row_weight;
                for (int i = 0; i < PGM_LANES; i++) weight[n->edge_weight[e] + a] += total[i];
                continue;
            }
            for (int l = 0; l < w; l++) {
                total = (pull[l] - on * xi[l]) * mean * row_weight;
                for (int i = 0; i < PGM_LANES; i++) weight[n->edge_weight[e] + a * w + l] += total[i];
            }
        }
        for (int k = 0; k < kind->states && kind->curvature == 0; k++) {
            pgm_slopes(j, wide, kind, k, xi, tau);
            pgm_tilt(parent, r->log_q + n->unit_state[u], tau, p, &top);
            for (int a = 0; a < wide; a++) {
                pgm_v8 mean = pgm_all(0.0);
                for (int x = 0; x < parent->states; x++) mean += p[x] * parent->value[x * wide + a];
                mean *= on * phi[k] * row_weight;
                for (int l = 0; l < w; l++) {
                    total = mean * (kind->value[k * w + l] - xi[l]);
                    for (int i = 0; i < PGM_LANES; i++) weight[n->edge_weight[e] + a * w + l] -= total[i];
                }
            }
        }
    }
}

/* Many rows: arrays (blocks, items, PGM_LANES) of what pgm_rows has for one block. */
typedef struct {
    double *log_q, *q, *mean;
    const double *base, *open, *still, *live;
    double *on, *pull, *xi, *phi, *f;
    const double *beta, *barren, *row_weight;
} pgm_batch;

PGM_INLINE pgm_rows pgm_block_of(const pgm_net *n, const pgm_batch *all, int64_t b)
{
#define PGM_AT(array, items) ((pgm_v8 *)(array) + b * (items))
    return (pgm_rows){
        PGM_AT(all->log_q, n->states), PGM_AT(all->q, n->states), PGM_AT(all->mean, n->comps), PGM_AT(all->base, n->comps),
        PGM_AT(all->open, n->units), PGM_AT(all->still, n->term_comps), PGM_AT(all->live, n->terms),
        PGM_AT(all->on, n->terms), PGM_AT(all->pull, n->term_comps), PGM_AT(all->xi, n->term_comps),
        PGM_AT(all->phi, n->term_states), PGM_AT(all->f, n->terms), PGM_AT(all->beta, 1)};
}

typedef struct {
    const pgm_net *net;
    const pgm_batch *batch;
    int64_t rounds, blocks, count;
    double tolerance;
    int steps, failed;
    int64_t *made;  /* (blocks) rounds */
    double *change; /* (blocks) */
    const int64_t *order;
    double *weight;
} pgm_belief_job;

static void pgm_settle_part(void *what, int64_t first, int64_t last)
{
    pgm_belief_job *j = (pgm_belief_job *)what;
    pgm_v8 *kept = (pgm_v8 *)malloc(sizeof(pgm_v8) * (size_t)(j->net->capacity + 1));
    if (!kept) j->failed = 1;
    for (int64_t b = first; kept && b < last; b++) {
        pgm_rows r = pgm_block_of(j->net, j->batch, b);
        j->made[b] = pgm_settle(j->net, &r, j->rounds, j->tolerance, j->steps, kept, j->change + b);
    }
    free(kept);
}

static void pgm_forward_part(void *what, int64_t first, int64_t last)
{
    pgm_belief_job *j = (pgm_belief_job *)what;
    for (int64_t b = first; b < last; b++) {
        pgm_rows r = pgm_block_of(j->net, j->batch, b);
        pgm_forward(j->net, &r, j->order, j->count, (const pgm_v8 *)j->batch->barren + b * j->net->units, j->steps);
    }
}

/* parts of the terms, not of the rows: then no sum depends on the number of threads */
static void pgm_learn_part(void *what, int64_t first, int64_t last)
{
    pgm_belief_job *j = (pgm_belief_job *)what;
    for (int64_t b = 0; b < j->blocks; b++) {
        pgm_rows r = pgm_block_of(j->net, j->batch, b);
        for (int64_t t = first; t < last; t++)
            pgm_learn(j->net, &r, t, (const pgm_v8 *)j->batch->row_weight + b, j->weight);
    }
}

#endif
