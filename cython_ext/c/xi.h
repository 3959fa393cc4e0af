/* Newton steps that find the xi of a term, the minimum of F, which is convex in xi.
 *
 * F is in belief.h; its gradient and Hessian are differences of moments under the parents tilted by
 * exp((y_k - xi) z). All rows of a block take their steps together. The step of a row is shortened
 * if F would rise.
 *
 * Reference: `simplex_least` and `scalar_least` in tests/bound_oracle.py (test_compiled_rounds.py:
 * xi is at its minimum).
 */
#ifndef PGM_XI_H
#define PGM_XI_H

#include "net.h"

/* F at xi, phi, and with `slopes` the gradient g and the Hessian h in xi. The constant part of the
 * input cancels in differences of moments. It is left out of them, because its rounding error would
 * exceed small variances. */
PGM_INLINE pgm_vd pgm_bound_of(const pgm_net *n, const pgm_rows *r, int64_t t, const pgm_vd *m,
                               const pgm_vd *xi, pgm_vd *phi, int slopes, pgm_vd *g, pgm_vd *h,
                               int by_term)
{
    const pgm_kind *kind = n->kind + n->term_kind[t];
    const int w = kind->width, states = kind->states;
    const pgm_vd *still = r->still + n->term_comp[t];
    pgm_vd big[PGM_MOST_VALUES], tau[PGM_MOST_VALUES], p[PGM_MOST_VALUES], f = pgm_splat_d(0.0);
    pgm_vd first[PGM_MOST_VALUES], m1[PGM_MOST_VALUES], second[PGM_CELLS], m2[PGM_CELLS];
    pgm_vd run = pgm_splat_d(-INFINITY), total = pgm_splat_d(0.0);
    for (int l = 0; l < w; l++) first[l] = pgm_splat_d(0.0);
    for (int c = 0; c < pgm_cells(w); c++) second[c] = pgm_splat_d(0.0);
    for (int k = 0; k < states; k++) {
        pgm_vd sum = pgm_splat_d(kind->log_base[k]), product = pgm_splat_d(1.0), top;
        int left = PGM_FLUSH;
        for (int l = 0; l < w; l++) {
            sum += still[l] * (kind->value[k * w + l] - xi[l]);
            m1[l] = pgm_splat_d(0.0);
        }
        for (int c = 0; c < pgm_cells(w); c++) m2[c] = pgm_splat_d(0.0);
        if (n->term_plain[t])
            sum += pgm_cumulant(n, r, t, kind->value[k] - xi[0], m1, m2, by_term);
        for (int64_t e = n->up_start[t]; !n->term_plain[t] && e < n->up_start[t + 1]; e++) {
            const int64_t u = n->edge_unit[e];
            const pgm_kind *parent = n->kind + n->unit_kind[u];
            pgm_slopes(n, e, parent->width, kind, k, xi, tau, by_term);
            product *= pgm_tilt(parent, r->log_q + n->unit_state[u], tau, p, &top);
            sum += top;
            if (--left == 0) {
                sum += pgm_log_d(product);
                product = pgm_splat_d(1.0);
                left = PGM_FLUSH;
            }
            if (slopes) pgm_moments(n, e, parent, w, p, m1, m2, by_term);
        }
        big[k] = sum + pgm_log_d(product);
        if (!slopes) continue;
        pgm_vd best = pgm_max_d(run, big[k]), keep = pgm_exp_d(run - best),
               add = pgm_exp_d(big[k] - best);
        for (int l = 0, c = 0; l < w; l++) {
            first[l] = first[l] * keep + m1[l] * add;
            for (int j = pgm_column(w, l); j <= l; j++, c++)
                second[c] = second[c] * keep + (m2[c] + m1[l] * m1[j]) * add;
        }
        total = total * keep + add;
        run = best;
    }
    for (int l = 0; l < w; l++) f += xi[l] * m[l];
    if (slopes) {
        pgm_vd share = 1.0 / total;
        for (int l = 0; l < w; l++) first[l] *= share, g[l] = m[l] - still[l] - first[l];
        for (int l = 0, c = 0; l < w; l++)
            for (int j = pgm_column(w, l); j <= l; j++, c++)
                h[c] = second[c] * share - first[l] * first[j];
    }
    return f + pgm_log_sum(states, big, phi);
}

/* pgm_bound_of for a term with two values and two-valued parents */
PGM_INLINE pgm_vd pgm_bound_of_two(const pgm_net *n, const pgm_rows *r, int64_t t, pgm_vd m,
                                   pgm_vd xi, pgm_vd *phi, pgm_vd *g, pgm_vd *h, int by_term)
{
    const pgm_kind *kind = n->kind + n->term_kind[t];
    const pgm_vd still = r->still[n->term_comp[t]], from = kind->value[0] - xi,
                 to = kind->value[1] - xi;
    pgm_vd sum[2] = {kind->log_base[0] + still * from, kind->log_base[1] + still * to};
    pgm_vd product[2] = {pgm_splat_d(1.0), pgm_splat_d(1.0)}, p[4], odds[2];
    pgm_vd mean[2] = {pgm_splat_d(0.0), pgm_splat_d(0.0)}, square[2] = {mean[0], mean[0]};
    int left = PGM_FLUSH;
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        const int64_t u = n->edge_unit[e];
        const double *value = n->kind[n->unit_kind[u]].value;
        const pgm_vd weight = pgm_weight(n, e, 0, by_term);
        const pgm_vd low = weight * value[0], step = weight * (value[1] - value[0]);
        const pgm_vd *log_q = r->log_q + n->unit_state[u], d = log_q[1] + from * step - log_q[0];
        const pgm_vl up = d > 0.0;
        pgm_tilt_both(d, pgm_growth(n, e, 0, by_term), pgm_growth(n, e, 1, by_term), p, odds);
        const pgm_vd slope = low + pgm_select_d(up, step, pgm_splat_d(0.0)),
                     top = pgm_select_d(up, log_q[1], log_q[0]), wide = step * step;
        sum[0] += top + from * slope, sum[1] += top + to * slope;
        for (int k = 0; k < 2; k++) {
            product[k] *= odds[k];
            mean[k] += low + step * p[2 * k + 1];
            square[k] += wide * (p[2 * k] * p[2 * k + 1]);
        }
        if (--left == 0) {
            for (int k = 0; k < 2; k++) {
                sum[k] += pgm_log_d(product[k]);
                product[k] = pgm_splat_d(1.0);
            }
            left = PGM_FLUSH;
        }
    }
    for (int k = 0; k < 2; k++) sum[k] += pgm_log_d(product[k]);
    const pgm_vd f = xi * m + pgm_log_sum(2, sum, phi), apart = mean[1] - mean[0];
    *g = m - still - (phi[0] * mean[0] + phi[1] * mean[1]);
    *h = phi[0] * square[0] + phi[1] * square[1] + phi[0] * phi[1] * (apart * apart);
    return f;
}

/* times the largest curvature, added to all: h is nearly singular if few parents are free */
#define PGM_RIDGE 1e-9

/* step = -(h + ridge)^-1 g, by L D L', which overwrites h */
PGM_INLINE void pgm_solve(int w, pgm_vd *h, const pgm_vd *g, pgm_vd *step)
{
    pgm_vd pivot[PGM_MOST_VALUES], ridge = pgm_splat_d(0.0);
    for (int l = 0, c = 0; l < w; l++, c++) {
        c += l - pgm_column(w, l); /* the diagonal of each row */
        ridge = pgm_max_d(ridge, PGM_RIDGE * h[c]);
    }
    ridge += 1e-12;
    for (int l = 0, c = 0; l < w; l++) {
        pgm_vd *row = h + c, left = -g[l];
        const int from = pgm_column(w, l);
        row[l - from] += ridge;
        for (int j = from; j < l; j++) {
            pgm_vd sum = row[j];
            /* row[i] is L D until the row is finished */
            for (int i = 0; i < j; i++) sum -= row[i] * h[j * (j + 1) / 2 + i];
            row[j] = sum;
        }
        for (int j = from; j < l; j++) {
            pgm_vd scaled = row[j] / pivot[j];
            row[l - from] -= row[j] * scaled;
            row[j] = scaled;
            left -= scaled * step[j];
        }
        pivot[l] = pgm_max_d(row[l - from], ridge);
        step[l] = left;
        c += l + 1 - from;
    }
    for (int l = w - 1; l >= 0; l--) {
        step[l] /= pivot[l];
        for (int i = l + 1; w <= PGM_WHOLE && i < w; i++)
            step[l] -= h[i * (i + 1) / 2 + l] * step[i];
    }
}

#define PGM_STUBBORN 40 /* the most steps in a row in which no step has lowered F yet */

/* Newton steps from the current xi, at most as long as the range of the values. A step is kept in
 * the rows in which F does not rise, and in which the step has not gone far beyond the minimum. In
 * other rows, the next step ends where the tangents at both ends of this step meet. */
PGM_INLINE void pgm_tighten_by(const pgm_net *n, pgm_rows *r, int64_t t, int steps, int by_term,
                               const int two)
{
    const pgm_kind *kind = n->kind + n->term_kind[t];
    const int w = two ? 1 : kind->width, states = two ? 2 : kind->states;
    pgm_vd m[PGM_MOST_VALUES], g[PGM_MOST_VALUES], h[PGM_CELLS], g2[PGM_MOST_VALUES], h2[PGM_CELLS];
    pgm_vd step[PGM_MOST_VALUES], newton[PGM_MOST_VALUES], at[PGM_MOST_VALUES],
        phi2[PGM_MOST_VALUES];
    pgm_vd *xi = r->xi + n->term_comp[t], *phi = r->phi + n->term_state[t];
    for (int l = 0; l < w; l++) step[l] = pgm_splat_d(0.0);
    pgm_mean_input(n, r, t, m, by_term);
    for (int l = 0; l < w; l++) r->input[n->term_comp[t] + l] = m[l];
    if (!two && kind->curvature > 0) {
        pgm_vd spread = pgm_splat_d(0.0);
        for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
            const pgm_kind *parent = n->kind + n->unit_kind[n->edge_unit[e]];
            const pgm_vd *q = r->q + n->unit_state[n->edge_unit[e]];
            pgm_vd one = pgm_splat_d(0.0), two = pgm_splat_d(0.0);
            for (int x = 0; x < parent->states; x++) {
                pgm_vd z = pgm_splat_d(0.0);
                for (int a = 0; a < parent->width; a++)
                    z += parent->value[x * parent->width + a] * pgm_weight(n, e, a, by_term);
                one += q[x] * z;
                two += q[x] * (z * z);
            }
            spread += two - one * one;
        }
        phi[0] = m[0];
        r->f[t] = 0.5 * kind->curvature * (m[0] * m[0] + spread);
        return;
    }
    /* without parents F is A, for any xi */
    if (n->up_start[t] == n->up_start[t + 1]) steps = 0;
    double least = kind->value[0], range = least;
    for (int i = 1; i < states * w; i++) {
        least = kind->value[i] < least ? kind->value[i] : least;
        range = kind->value[i] > range ? kind->value[i] : range;
    }
    range -= least;
    pgm_vd f, f2, shorter = pgm_splat_d(0.5);
    if (two)
        f = pgm_bound_of_two(n, r, t, m[0], xi[0], phi, g, h, by_term);
    else
        f = pgm_bound_of(n, r, t, m, xi, phi, steps > 0, g, h, by_term);
    pgm_vl moved = f == f, stuck = moved ^ moved;
    for (int s = 0; s < steps || (s < PGM_STUBBORN && pgm_any_l(stuck)); s++) {
        /* here, there: the slopes along the step at its start and at its end */
        pgm_vd far = pgm_splat_d(range), here = pgm_splat_d(0.0), there = pgm_splat_d(0.0);
        pgm_solve(w, h, g, newton);
        for (int l = 0; l < w; l++) far = pgm_max_d(far, pgm_abs_d(newton[l]));
        for (int l = 0; l < w; l++) {
            step[l] = pgm_select_d(moved, newton[l] * (range / far), shorter * step[l]);
            at[l] = xi[l] + step[l];
            here += g[l] * step[l];
        }
        pgm_vl worth = here < -1e-13 * (1.0 + pgm_abs_d(f));
        if (!pgm_any_l(worth)) break;
        if (two)
            f2 = pgm_bound_of_two(n, r, t, m[0], at[0], phi2, g2, h2, by_term);
        else
            f2 = pgm_bound_of(n, r, t, m, at, phi2, 1, g2, h2, by_term);
        for (int l = 0; l < w; l++) there += g2[l] * step[l];
        moved = (f2 <= f) & (there < -0.9 * here);
        shorter = here / (here - there);
        shorter =
            pgm_select_d(shorter > 0.1, pgm_select_d(shorter < 0.9, shorter, pgm_splat_d(0.9)),
                         pgm_splat_d(0.1));
        stuck = worth & ~moved;
        for (int l = 0; l < w; l++) {
            xi[l] = pgm_select_d(moved, at[l], xi[l]);
            g[l] = pgm_select_d(moved, g2[l], g[l]);
        }
        for (int c = 0; c < pgm_cells(w); c++) h[c] = pgm_select_d(moved, h2[c], h[c]);
        for (int k = 0; k < states; k++) phi[k] = pgm_select_d(moved, phi2[k], phi[k]);
        f = pgm_select_d(moved, f2, f);
    }
    r->f[t] = f;
}

static void pgm_tighten_two(const pgm_net *n, pgm_rows *r, int64_t t, int steps)
{
    pgm_tighten_by(n, r, t, steps, 0, 1);
}

static void pgm_tighten_two_by_term(const pgm_net *n, pgm_rows *r, int64_t t, int steps)
{
    pgm_tighten_by(n, r, t, steps, 1, 1);
}

static void pgm_tighten_any(const pgm_net *n, pgm_rows *r, int64_t t, int steps)
{
    pgm_tighten_by(n, r, t, steps, 0, 0);
}

static void pgm_tighten_any_by_term(const pgm_net *n, pgm_rows *r, int64_t t, int steps)
{
    pgm_tighten_by(n, r, t, steps, 1, 0);
}

PGM_INLINE void pgm_tighten(const pgm_net *n, pgm_rows *r, int64_t t, int steps, int by_term)
{
    if (n->term_two[t])
        (by_term ? pgm_tighten_two_by_term : pgm_tighten_two)(n, r, t, steps);
    else
        (by_term ? pgm_tighten_any_by_term : pgm_tighten_any)(n, r, t, steps);
}

#endif
