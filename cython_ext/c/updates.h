/* New probabilities of a unit, given the probabilities of all others and every xi.
 *
 * Equations and notation are in belief.h: q(x) ~ h(x) exp(eta x - share(x)). When the table of a
 * unit changes by the factors `ratio`, the new phi of each of its terms is one product with the
 * tilted tables from which the share was computed. These tables are therefore stored (`kept`), so
 * that a round needs no second pass over the edges.
 *
 * Reference: `Twin` in tests/infer/variational/test_compiled_rounds.py.
 */
#ifndef PGM_UPDATES_H
#define PGM_UPDATES_H

#include "expected.h"

/* share(x) and the part of eta that a term gives a parent; the tilted tables of the edge are kept
 * for pgm_follow. */
PGM_INLINE void pgm_share_of(const pgm_net *n, const pgm_rows *r, int64_t e, const pgm_vd *inverse,
                             pgm_vd *share, pgm_vd *eta, pgm_vd *kept, int by_term)
{
    const int64_t t = n->edge_term[e], u = n->edge_unit[e];
    const pgm_kind *kind = n->kind + n->term_kind[t], *parent = n->kind + n->unit_kind[u];
    const pgm_vd *xi = r->xi + n->term_comp[t], *pull = r->pull + n->term_comp[t], on = r->on[t];
    const int w = kind->width, quadratic = kind->curvature > 0;
    pgm_vd tau[PGM_MOST_VALUES], top;
    for (int a = 0; a < parent->width; a++)
        for (int l = 0; l < w; l++) {
            const pgm_vd weight = pgm_weight(n, e, a * w + l, by_term);
            pgm_vd slope = pull[l];
            if (!quadratic) slope -= on * xi[l];
            eta[a] += weight * slope;
        }
    if (quadratic) {
        const pgm_vd *q = r->q + n->unit_state[u];
        pgm_vd mean = pgm_splat_d(0.0);
        for (int again = 0; again < 2; again++)
            for (int x = 0; x < parent->states; x++) {
                pgm_vd d = pgm_splat_d(0.0);
                for (int a = 0; a < parent->width; a++)
                    d += parent->value[x * parent->width + a] * pgm_weight(n, e, a, by_term);
                if (again)
                    share[x] +=
                        on * kind->curvature * d * (r->phi[n->term_state[t]] - mean + 0.5 * d);
                else
                    mean += q[x] * d;
            }
        return;
    }
    if (n->term_two[t]) {
        const double *value = kind->value;
        const pgm_vd step = pgm_weight(n, e, 0, by_term) * (parent->value[1] - parent->value[0]);
        const pgm_vd *log_q = r->log_q + n->unit_state[u], *phi = r->phi + n->term_state[t];
        pgm_vd odds[2];
        pgm_tilt_both(log_q[1] - log_q[0] + step * (value[0] - xi[0]),
                      pgm_growth(n, e, 0, by_term), pgm_growth(n, e, 1, by_term), kept, odds);
        for (int x = 0; x < 2; x++)
            share[x] += on * (phi[0] * kept[x] + phi[1] * kept[2 + x]) * inverse[x];
        return;
    }
    if (pgm_two_valued(parent) && w == 1) {
        const pgm_vd step =
            pgm_weight(n, e, 0, by_term) * (parent->value[1] - parent->value[0]);
        const pgm_vd *log_q = r->log_q + n->unit_state[u], odds = log_q[1] - log_q[0];
        for (int k = 0; k < kind->states; k++) {
            pgm_vd power = on * r->phi[n->term_state[t] + k],
                   d = odds + step * (kind->value[k] - xi[0]);
            pgm_vd x = pgm_exp_d(-pgm_abs_d(d)), high = 1.0 / (x + 1.0), rest = x * high;
            kept[0] = pgm_select_d(d > 0.0, rest, high);
            kept[1] = pgm_select_d(d > 0.0, high, rest);
            share[0] += power * kept[0] * inverse[0];
            share[1] += power * kept[1] * inverse[1];
            kept += 2;
        }
        return;
    }
    for (int k = 0; k < kind->states; k++) {
        pgm_vd power = on * r->phi[n->term_state[t] + k];
        pgm_slopes(n, e, parent->width, kind, k, xi, tau, by_term);
        pgm_tilt(parent, r->log_q + n->unit_state[u], tau, kept, &top);
        for (int x = 0; x < parent->states; x++) share[x] += power * kept[x] * inverse[x];
        kept += parent->states;
    }
}

/* Update phi of a term, or E[z] of a quadratic term, after the table of a parent has changed by the
 * factors `ratio`. */
PGM_INLINE void pgm_follow(const pgm_net *n, pgm_rows *r, int64_t e, const pgm_vd *ratio,
                           const pgm_vd *change, const pgm_vd *kept, int by_term)
{
    const int64_t t = n->edge_term[e], u = n->edge_unit[e];
    const pgm_kind *kind = n->kind + n->term_kind[t], *parent = n->kind + n->unit_kind[u];
    pgm_vd *phi = r->phi + n->term_state[t], sum = pgm_splat_d(0.0);
    if (n->term_two[t]) {
        phi[0] *= ratio[0] * kept[0] + ratio[1] * kept[1];
        phi[1] *= ratio[0] * kept[2] + ratio[1] * kept[3];
        sum = 1.0 / pgm_max_d(phi[0] + phi[1], pgm_splat_d(1e-300));
        phi[0] *= sum, phi[1] *= sum;
        return;
    }
    if (kind->curvature > 0) {
        for (int a = 0; a < parent->width; a++)
            phi[0] += pgm_weight(n, e, a, by_term) * change[a];
        return;
    }
    for (int k = 0; k < kind->states; k++) {
        pgm_vd factor = pgm_splat_d(0.0);
        for (int x = 0; x < parent->states; x++) factor += ratio[x] * kept[k * parent->states + x];
        sum += phi[k] *= factor;
    }
    sum = 1.0 / pgm_max_d(sum, pgm_splat_d(1e-300));
    for (int k = 0; k < kind->states; k++) phi[k] *= sum;
}

/* Set the lanes of a number of a unit's own term: all of them, or the lane of this term. */
PGM_INLINE void pgm_put(pgm_vd *at, int lane, pgm_vd value)
{
    if (lane < 0)
        *at = value;
    else
        ((double *)at)[lane] = value[0];
}

/* The factor of the inputs of a unit's own terms, and of a noisy-or unit also their powers, after
 * its mean has changed. */
PGM_INLINE void pgm_tell(const pgm_net *n, pgm_rows *r, int64_t u, int by_term)
{
    const pgm_vd *mean = r->mean + n->unit_comp[u];
    for (int64_t i = n->own_first[u], first = i; i < first + n->own_count[u]; i++) {
        const int64_t t = by_term ? n->own_term[i] / PGM_LANES : i;
        const int lane = by_term ? (int)(n->own_term[i] % PGM_LANES) : -1;
        const pgm_vd live = by_term ? pgm_splat_d(((double *)(r->live + t))[lane]) : r->live[t];
        if (n->own_complement[u]) {
            pgm_vd pull = pgm_splat_d(0.0);
            if (i == first) pull = live * (mean[0] - 1.0);
            pgm_put(r->on + t, lane, live * mean[0]);
            pgm_put(r->pull + n->term_comp[t], lane, pull);
            continue;
        }
        for (int l = 0; l < n->kind[n->term_kind[t]].width; l++)
            pgm_put(r->pull + n->term_comp[t] + l, lane, live * mean[l]);
    }
}

/* Set the means of a unit from its probabilities. */
PGM_INLINE void pgm_set_means(const pgm_net *n, pgm_rows *r, int64_t u, int by_term)
{
    const pgm_kind *kind = n->kind + n->unit_kind[u];
    const pgm_vd *q = r->q + n->unit_state[u];
    for (int l = 0; l < kind->width; l++) {
        pgm_vd mean = pgm_splat_d(0.0);
        for (int x = 0; x < kind->states; x++) mean += q[x] * kind->value[x * kind->width + l];
        r->mean[n->unit_comp[u] + l] = mean;
    }
    pgm_tell(n, r, u, by_term);
}

/* the natural parameter of a unit from the means of its neighbours */
PGM_INLINE void pgm_linear(const pgm_net *n, const pgm_rows *r, int64_t u, pgm_vd *eta)
{
    for (int l = 0; l < n->kind[n->unit_kind[u]].width; l++) {
        int64_t c = n->unit_comp[u] + l;
        pgm_vd sum = pgm_splat_d(0.0);
        for (int64_t i = n->link_start[c]; i < n->link_start[c + 1]; i++)
            sum += n->link_weight[i] * r->mean[n->link_from[i]];
        eta[l] = r->base[c] + *r->beta * sum;
    }
}

/* Exclude the states with mass on entries of 0. Returns the lanes of `open` in which a state
 * remains; in the others the unit does not change. */
PGM_INLINE pgm_vl pgm_drop(int states, pgm_vd *lw, const pgm_vd *dead, pgm_vl open)
{
    pgm_vd least = dead[0];
    for (int x = 1; x < states; x++) least = pgm_min_d(least, dead[x]);
    for (int x = 0; x < states; x++)
        lw[x] = pgm_select_d(dead[x] > 0.0, pgm_splat_d(-1e300), lw[x]);
    return open & (least <= 0.0);
}

/* Set probabilities below `cut` to 0, and raise the others. */
PGM_INLINE void pgm_cut(int states, double cut, pgm_vd *total, pgm_vd *p)
{
    pgm_vd sum = pgm_splat_d(0.0);
    for (int x = 0; x < states; x++)
        sum += p[x] = pgm_select_d(p[x] < cut, pgm_splat_d(0.0), p[x]);
    for (int x = 0; x < states; x++) p[x] /= sum;
    *total += pgm_log_d(sum);
}

/* Update one unit in the lanes where it is open; returns the largest change of a probability. kept:
 * (capacity) vectors. */
PGM_INLINE double pgm_update_by(const pgm_net *n, pgm_rows *r, int64_t u, pgm_vd *kept,
                                const int by_term, const int two)
{
    const pgm_kind *kind = n->kind + n->unit_kind[u];
    const int states = two ? 2 : kind->states, w = two ? 1 : kind->width;
    pgm_vd eta[PGM_MOST_VALUES], share[PGM_MOST_VALUES], inverse[PGM_MOST_VALUES],
        old[PGM_MOST_VALUES];
    pgm_vd lw[PGM_MOST_VALUES], p[PGM_MOST_VALUES], dead[PGM_MOST_VALUES], from[PGM_MOST_VALUES];
    pgm_vd *q = r->q + n->unit_state[u], *log_q = r->log_q + n->unit_state[u];
    pgm_vd change = pgm_splat_d(0.0), *place = kept;
    /* probabilities of 0 have the logarithm PGM_LEAST */
    const pgm_vd least = pgm_splat_d(n->hard[u] ? PGM_LEAST_Q : 1e-300);
    pgm_vl open = r->open[u] > 0.0;
    pgm_linear(n, r, u, eta);
    for (int l = 0; l < w; l++) from[l] = pgm_splat_d(0.0);
    for (int x = 0; x < states; x++) {
        share[x] = dead[x] = pgm_splat_d(0.0);
        inverse[x] = 1.0 / pgm_max_d(q[x], least);
    }
    for (int64_t d = n->down_start[u]; d < n->down_start[u + 1]; d++) {
        const int64_t e = n->down_edge[d], t = n->edge_term[e];
        if (!r->alive[t]) continue;
        pgm_share_of(n, r, e, inverse, share, from, place, by_term);
        place += (int64_t)n->kind[n->term_kind[t]].states * states;
    }
    /* lanes are terms of one row: their sum belongs to the unit */
    for (int x = 0; by_term && x < states; x++) share[x] = pgm_splat_d(pgm_hsum_d(share[x]));
    for (int l = 0; by_term && l < w; l++) from[l] = pgm_splat_d(pgm_hsum_d(from[l]));
    for (int l = 0; l < w; l++) eta[l] += from[l];
    if (n->own_complement[u])
        for (int64_t i = n->own_first[u]; i < n->own_first[u] + n->own_count[u]; i++) {
            if (by_term) {
                const int64_t at = n->own_term[i];
                share[1] += ((const double *)r->live)[at] * ((const double *)r->f)[at];
            } else {
                share[1] += r->live[i] * r->f[i];
            }
        }
    for (int x = 0; x < states; x++) {
        lw[x] = kind->log_base[x] - pgm_min_d(share[x], pgm_splat_d(1e100));
        for (int l = 0; l < w; l++) lw[x] += kind->value[x * w + l] * eta[l];
    }
    for (int64_t i = n->in_start[u]; i < n->in_start[u + 1]; i++)
        pgm_expect(n, r, n->in_axis[i], lw, dead);
    if (n->hard[u] && r->least == -INFINITY) open = pgm_drop(states, lw, dead, open);
    pgm_vd total = pgm_log_sum(states, lw, p);
    if (n->hard[u] && r->least == -INFINITY) pgm_cut(states, n->cut, &total, p);
    for (int x = 0; x < states; x++) {
        old[x] = q[x];
        pgm_vd log_p = pgm_max_d(lw[x] - total, pgm_splat_d(PGM_LEAST));
        if (n->hard[u])
            log_p = pgm_select_d(p[x] > 0.0, log_p, pgm_splat_d(PGM_LEAST));
        else
            p[x] = pgm_max_d(p[x], pgm_splat_d(1e-299));
        log_q[x] = pgm_select_d(open, log_p, log_q[x]);
        q[x] = pgm_select_d(open, p[x], q[x]);
        change = pgm_max_d(change, pgm_abs_d(q[x] - old[x]));
        inverse[x] *= q[x];
    }
    for (int l = 0; l < w; l++) eta[l] = -r->mean[n->unit_comp[u] + l];
    pgm_set_means(n, r, u, by_term);
    for (int l = 0; l < w; l++) eta[l] += r->mean[n->unit_comp[u] + l];
    place = kept;
    for (int64_t d = n->down_start[u]; d < n->down_start[u + 1]; d++) {
        const int64_t e = n->down_edge[d], t = n->edge_term[e];
        if (!r->alive[t]) continue;
        pgm_follow(n, r, e, inverse, eta, place, by_term);
        place += (int64_t)n->kind[n->term_kind[t]].states * states;
    }
    return pgm_hmax_d(change);
}

static double pgm_update_rows(const pgm_net *n, pgm_rows *r, int64_t u, pgm_vd *kept)
{
    return pgm_two_valued(n->kind + n->unit_kind[u]) ? pgm_update_by(n, r, u, kept, 0, 1)
                                                     : pgm_update_by(n, r, u, kept, 0, 0);
}

static double pgm_update_terms(const pgm_net *n, pgm_rows *r, int64_t u, pgm_vd *kept)
{
    return pgm_two_valued(n->kind + n->unit_kind[u]) ? pgm_update_by(n, r, u, kept, 1, 1)
                                                     : pgm_update_by(n, r, u, kept, 1, 0);
}

PGM_INLINE double pgm_update(const pgm_net *n, pgm_rows *r, int64_t u, pgm_vd *kept, int by_term)
{
    return (by_term ? pgm_update_terms : pgm_update_rows)(n, r, u, kept);
}

#endif
