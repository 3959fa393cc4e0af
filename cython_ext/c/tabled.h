/* Sweeps of models with tables, and of networks of single units: chains are lanes, and one unit is
 * visited at a time.
 *
 * Given all others, the log weight of state k of a unit, with the value x_k, is
 *     log h(x_k) + x_k ((1 - beta) reference + beta (soft + sum of weights times values + zeta))
 *     + beta * sum over its tables of the entry at k and the states of the other members
 *     + beta * sum over its children of log p(x_child | zeta_child at x_k),
 * where zeta is the sum of the bias and of the inputs from the parents of arrows (for noisy-or
 * units, the link of this sum). Children with few joint states of their parents count as tables
 * (conditional_tables.py). Inputs of other children are added up anew, without the unit and then
 * with each of its values. Models with many parents use sweep.h, which stores inputs. The
 * probabilities of children with two states are multiplied, so that one logarithm serves all of
 * them. Only states and values are stored between visits, so that rounding errors do not
 * accumulate. If all states of a unit are impossible, it moves to any of them. At beta = 0 tables
 * have no effect, even with entries of 0.
 *
 * A row of an array belongs to one unit and has a number for each chain, so that a vector holds the
 * same unit in neighbouring chains: no two units of a vector depend on each other, whatever the
 * graph. The entry of a table is found by comparing with each joint state of the other members if
 * these are few, and by loads from memory otherwise. Few chains are swept one after the other
 * (`alone`). A row then has one number, entries are read as scalars, and the states of the children
 * of a unit are the lanes of exponentials. Both ways apply the same operations to the same numbers,
 * so that the states of a chain do not depend on the others. With `alone`, each visit would wait
 * for the visit before. Waves of visits from several sweeps that do not read each other's results
 * let the processor overlap them, and change no state.
 *
 * Random numbers: a unit uses the uniform of its rank among all units, in the order of a sweep, at
 * layer 0 of the generator (random.h).
 *
 * With `near`, a random forest is drawn after the visits of a sweep (forests.h), or before them where
 * a backward sweep has to be the reverse of a forward one.
 *
 * Reference: PlainChains of pgmengine/engine/reference.py (test_tabled_sweeps.py).
 */
#ifndef PGM_TABLED_H
#define PGM_TABLED_H

#include <float.h>

#include "draws.h"

/* the most joint states of the other members of a table for which comparing beats loading */
#define PGM_FEW_CONFIGS 16

/* ---- log weights of the states of a unit ---- */

/* p(1) of a complement unit with the input z >= 0; positive */
PGM_INLINE pgm_vf pgm_p_on(pgm_vf z)
{
    return pgm_max_f(pgm_one_minus_exp_f(z), pgm_splat_f(FLT_MIN));
}

/* its natural parameter log(e^z - 1), as pgm_link_of */
PGM_INLINE pgm_vf pgm_link_f(pgm_vf z)
{
    return pgm_select_f(z > 0.0f, z + pgm_log_f(pgm_p_on(z)), pgm_splat_f(-1e30f));
}

/* component k of the natural parameter at beta = 1, without couplings */
PGM_INLINE pgm_vf pgm_own(const pgm_tabled *m, const pgm_site *s, int64_t k, int64_t lane)
{
    pgm_vf own = pgm_splat_f(s->directed ? 0.0f : m->bias[s->component + k]);
    if (s->soft >= 0) own += *(const pgm_vf *)(m->soft + (s->soft + k) * m->apart + lane);
    return own;
}

/* the terms of couplings in this component */
PGM_INLINE pgm_vf pgm_linked(const pgm_tabled *m, const pgm_site *s, int64_t k, int64_t lane)
{
    const int64_t c = s->component + k;
    pgm_vf sum = pgm_splat_f(0.0f);
    for (int64_t e = m->link_start[c]; e < m->link_start[c + 1]; e++)
        sum += *(const pgm_vf *)(m->value + m->link_from[e] * m->apart + lane) * m->link_weight[e];
    return sum;
}

/* Component k of the directed input zeta of a unit. The parents in rows row .. row + rows - 1 are
 * left out, and their weights are written to w, (rows). */
PGM_INLINE pgm_vf pgm_input(const pgm_tabled *m, const pgm_site *s, int64_t k, int64_t lane,
                            int64_t row, int64_t rows, float *w)
{
    const int64_t c = s->component + k;
    pgm_vf zeta = pgm_splat_f(m->bias[c]);
    for (int64_t i = 0; i < rows; i++) w[i] = 0.0f;
    for (int64_t e = m->arrow_start[c]; e < m->arrow_start[c + 1]; e++) {
        const int64_t from = m->arrow_from[e];
        const float arrow = m->arrow_weight[e];
        const int own = from >= row && from < row + rows;
        /* without branches on the position of the one parent, which is unpredictable */
        if (rows == 1)
            w[0] = own ? arrow : w[0];
        else if (own) {
            w[from - row] = arrow;
            continue;
        }
        zeta += *(const pgm_vf *)(m->value + from * m->apart + lane) * (own ? 0.0f : arrow);
    }
    return zeta;
}

/* Component k of the natural parameter at beta, as PGM_SWEEPS or PGM_DENSITIES take it; `apart`
 * leaves the directed input out. */
PGM_INLINE pgm_vf pgm_tempered(const pgm_tabled *m, const pgm_site *s, int64_t k, int64_t lane,
                               pgm_vf beta, int side, int apart)
{
    pgm_vf eta = pgm_own(m, s, k, lane) + pgm_linked(m, s, k, lane);
    if ((s->directed & side) && !apart) {
        pgm_vf zeta = pgm_input(m, s, k, lane, 0, 0, NULL);
        eta += s->complement ? pgm_link_f(zeta) : zeta;
    }
    eta *= beta;
    if (m->reference) eta += m->reference[s->component + k] * (1.0f - beta);
    return eta;
}

/* log weights without tables */
PGM_INLINE void pgm_linear_weights(const pgm_tabled *m, const pgm_site *s, int states,
                                   int64_t lane, pgm_vf beta, int side, int apart, pgm_vf *lw)
{
    const float *support = m->support + s->support, *log_base = m->log_base + s->support;
    pgm_vf eta = pgm_splat_f(0.0f);
    for (int k = 0; k < states; k++) {
        lw[k] = pgm_splat_f(log_base[k]);
        if (!(s->linear & side)) continue;
        if (k == 0 || s->width > 1) eta = pgm_tempered(m, s, k, lane, beta, side, apart);
        if (s->width > 1)
            lw[k] += eta;
        else
            lw[k] += eta * support[k];
    }
}

/* the positions of the entries of a table at state 0 of a unit, given the other members */
PGM_INLINE pgm_vi pgm_places(const pgm_tabled *m, const pgm_slot *t, int64_t lane)
{
    const pgm_member *other = m->member + t->member;
    pgm_vi at = {0};
    for (int64_t i = 0; i < t->members; i++)
        at += pgm_load_bytes(m->state + other[i].unit * m->apart + lane) * other[i].stride;
    return at;
}

/* the lanes in which do() has removed a table */
PGM_INLINE pgm_vi pgm_gone(const pgm_tabled *m, const pgm_slot *t, int64_t lane)
{
    if (!m->cut || t->child < 0) return (pgm_vi){0};
    return -(pgm_load_bytes(m->cut + t->child * m->apart + lane) & 1);
}

/* Add the terms of a table at each state of a unit to `sum`. */
PGM_INLINE void pgm_add_terms(const pgm_tabled *m, const pgm_slot *t, int states, int64_t lane,
                              pgm_vf *sum)
{
    const float *term = m->term + t->first;
    const int64_t span = t->stride * states, most = t->configs * states;
    const pgm_vi at = pgm_places(m, t, lane);
    const pgm_vf none = pgm_splat_f(0.0f);
    pgm_vf found[PGM_MOST_STATES];
    if (t->configs <= PGM_FEW_CONFIGS) {
        for (int k = 0; k < states; k++) found[k] = pgm_splat_f(term[k * t->stride]);
        for (int64_t high = 0; high < most; high += span)
            for (int64_t e = high; e < high + t->stride; e++) {
                if (e == 0) continue;
                const pgm_vi here = at == (int32_t)e;
                for (int k = 0; k < states; k++)
                    found[k] = pgm_select_f(here, pgm_splat_f(term[e + k * t->stride]), found[k]);
            }
    } else
        for (int k = 0; k < states; k++) {
            float one[PGM_WIDE];
            for (int i = 0; i < PGM_WIDE; i++) one[i] = term[at[i] + k * t->stride];
            found[k] = *(const pgm_vf *)one;
        }
    if (m->cut && t->child >= 0) {
        const pgm_vi gone = pgm_gone(m, t, lane);
        for (int k = 0; k < states; k++) found[k] = pgm_select_f(gone, none, found[k]);
    }
    for (int k = 0; k < states; k++) sum[k] += found[k];
}

/* the same in one chain */
PGM_INLINE void pgm_add_terms_alone(const pgm_tabled *m, const pgm_slot *t, int states, float *sum)
{
    const pgm_member *other = m->member + t->member;
    const float *term = m->term + t->first;
    if (m->cut && t->child >= 0 && m->cut[t->child]) return;
    for (int64_t i = 0; i < t->members; i++)
        term += (int64_t)m->state[other[i].unit] * other[i].stride;
    for (int k = 0; k < states; k++) sum[k] += term[k * t->stride];
}

/* ---- children of arrows ---- */

/* the factors of a unit in a forest without its parent there, and with it (forests.h) */
enum { PGM_REST = 1, PGM_PAIR = 2 };

/* A product of probabilities of each lane is mantissa * 2^power, 1 <= mantissa < 2, so that it
 * does not underflow for any number of factors. */
PGM_INLINE void pgm_times(pgm_vf *mantissa, pgm_vi *power, pgm_vf p)
{
    const pgm_vi bits = (pgm_vi)(*mantissa * p);
    *power += (bits >> 23) - 127;
    *mantissa = (pgm_vf)((bits & 0x7fffff) | 0x3f800000);
}

PGM_INLINE pgm_vf pgm_log_of_product(pgm_vf mantissa, pgm_vi power)
{
    return pgm_log_f(mantissa) + __builtin_convertvector(power, pgm_vf) * 0.693147181f;
}

/* log(e^a + e^b); a may be -inf */
PGM_INLINE pgm_vf pgm_log_add(pgm_vf a, pgm_vf b)
{
    return pgm_select_f(a == -INFINITY, b, a + pgm_softplus_f(b - a));
}

/* p(the more probable state) of a unit with two states and log odds of either sign */
PGM_INLINE pgm_vf pgm_p_upper(pgm_vf odds) { return 1.0f / (1.0f + pgm_exp_minus_abs_f(odds)); }

/* p(now | zeta) = e^linear * factor of a unit with two states; 0 < factor <= 1 */
PGM_INLINE void pgm_p_of_two(const pgm_tabled *m, const pgm_site *c, pgm_vi now, pgm_vf zeta,
                             pgm_vf *linear, pgm_vf *factor)
{
    const float *x = m->support + c->support, *h = m->log_base + c->support;
    const pgm_vf none = pgm_splat_f(0.0f);
    const pgm_vi on = now == 1;
    if (c->complement) {
        const pgm_vf z = pgm_max_f(zeta, none);
        *linear = pgm_select_f(on, pgm_select_f(z > 0.0f, none, pgm_splat_f(-INFINITY)), -z);
        *factor = pgm_p_on(pgm_select_f(on, z, pgm_splat_f(87.0f)));
        return;
    }
    const pgm_vf odds = zeta * (x[1] - x[0]) + (h[1] - h[0]);
    const pgm_vf against = pgm_select_f(on, -odds, odds);
    *linear = -pgm_max_f(against, none);
    *factor = pgm_p_upper(against);
}

/* Find p(now | zeta) = e^linear * factor of a unit with a directed input for each value x (states)
 * of one of its parents, which has the rows row .. row + rows - 1; several rows belong to one-hot
 * values. Without a parent, rows = 0. */
PGM_INLINE void pgm_child(const pgm_tabled *m, const pgm_site *c, pgm_vi now, int64_t lane,
                          int64_t row, int64_t rows, const float *x, int states, pgm_vf *linear,
                          pgm_vf *factor)
{
    const float *support = m->support + c->support, *log_base = m->log_base + c->support;
    float w[PGM_MOST_STATES];
    pgm_vf all[PGM_MOST_STATES], own[PGM_MOST_STATES], zeta = pgm_splat_f(0.0f);
    w[0] = 0.0f;
    if (c->states == 2 && c->width == 1) {
        zeta = pgm_input(m, c, 0, lane, row, rows, w);
        for (int k = 0; k < states; k++)
            pgm_p_of_two(m, c, now, zeta + (rows > 1 ? w[k] : x[k] * w[0]), linear + k, factor + k);
        return;
    }
    for (int k = 0; k < states; k++) all[k] = own[k] = pgm_splat_f(-INFINITY);
    for (int d = 0; d < c->states; d++) {
        if (d == 0 || c->width > 1) zeta = pgm_input(m, c, d, lane, row, rows, w);
        const float scale = c->width > 1 ? 1.0f : support[d];
        const pgm_vi here = now == d;
        for (int k = 0; k < states; k++) {
            const pgm_vf z = zeta + (rows > 1 ? w[k] : x[k] * w[0]);
            const pgm_vf weight = z * scale + log_base[d];
            all[k] = pgm_log_add(all[k], weight);
            own[k] = pgm_select_f(here, weight, own[k]);
        }
    }
    for (int k = 0; k < states; k++) linear[k] = own[k] - all[k], factor[k] = pgm_splat_f(1.0f);
}

/* Return whether the conditional of a child counts without the parent of a unit in a forest
 * (PGM_REST), or with it (PGM_PAIR); 0 where a child of the unit in the forest is in it. */
PGM_INLINE int pgm_family_side(const pgm_tabled *m, int64_t child, const int32_t *above,
                               int64_t unit)
{
    const int64_t *start = m->arrow_start + m->site[child].component;
    int side = child == above[unit] ? PGM_PAIR : PGM_REST;
    if (above[child] == unit) return 0;
    for (int64_t e = start[0]; e < start[m->site[child].width]; e++) {
        const int32_t other = m->value_unit[m->arrow_from[e]];
        if (above[other] == unit) return 0;
        if (other == above[unit]) side = PGM_PAIR;
    }
    return side;
}

/* Add the log probabilities of the children of a unit at each of its states. `above` are the parents
 * of units in a forest, or NULL; only conditionals of some `sides` are then added. */
PGM_INLINE void pgm_add_children(const pgm_tabled *m, const pgm_site *s, int states, int64_t lane,
                                 const int32_t *above, int sides, pgm_vf *sum)
{
    const int64_t unit = s - m->site;
    const pgm_vf none = pgm_splat_f(0.0f), one = pgm_splat_f(1.0f);
    pgm_vf linear[PGM_MOST_STATES], factor[PGM_MOST_STATES], mantissa[PGM_MOST_STATES];
    pgm_vi power[PGM_MOST_STATES];
    for (int k = 0; k < states; k++) mantissa[k] = one, power[k] = (pgm_vi){0};
    for (int64_t i = m->child_start[unit]; i < m->child_start[unit + 1]; i++) {
        const int64_t child = m->child[i];
        const pgm_vi now = pgm_load_bytes(m->state + child * m->apart + lane);
        if (above && !(pgm_family_side(m, child, above, unit) & sides)) continue;
        pgm_child(m, m->site + child, now, lane, s->value, s->width, m->support + s->support,
                  states, linear, factor);
        if (m->cut) {
            const pgm_vi gone = -(pgm_load_bytes(m->cut + child * m->apart + lane) & 1);
            for (int k = 0; k < states; k++) {
                linear[k] = pgm_select_f(gone, none, linear[k]);
                factor[k] = pgm_select_f(gone, one, factor[k]);
            }
        }
        for (int k = 0; k < states; k++) {
            sum[k] += linear[k];
            pgm_times(mantissa + k, power + k, factor[k]);
        }
    }
    for (int k = 0; k < states; k++) sum[k] += pgm_log_of_product(mantissa[k], power[k]);
}

/* pgm_times */
PGM_INLINE void pgm_times_alone(float *mantissa, int32_t *power, float p)
{
    int32_t bits;
    p *= *mantissa;
    memcpy(&bits, &p, sizeof bits);
    *power += (bits >> 23) - 127;
    bits = (bits & 0x7fffff) | 0x3f800000;
    memcpy(mantissa, &bits, sizeof bits);
}

/* Arguments of pgm_p_on (`complement`) or pgm_p_upper that wait until they fill vectors, and the
 * products for each state of the unit. */
typedef struct {
    int count, complement;
    float z[PGM_WIDE * PGM_MOST_STATES]; /* children times states */
    float mantissa[PGM_MOST_STATES];
    int32_t power[PGM_MOST_STATES];
} pgm_waiting;

/* pgm_times with all arguments that wait */
PGM_INLINE void pgm_times_waiting(pgm_waiting *w, int states)
{
    const int count = w->count;
    for (int i = count; i % PGM_WIDE; i++) w->z[i] = 0.0f;
    for (int i = 0; i < count; i += PGM_WIDE) {
        pgm_vf *z = (pgm_vf *)(w->z + i);
        *z = w->complement ? pgm_p_on(*z) : pgm_p_upper(*z);
    }
    for (int i = 0; i < count; i += states)
        for (int k = 0; k < states; k++)
            pgm_times_alone(w->mantissa + k, w->power + k, w->z[i + k]);
    w->count = 0;
}

/* pgm_child for one chain, of a child with two states and a parent in one row: the linear part is
 * added to `sum`, the factor waits. */
PGM_INLINE void pgm_child_alone(const pgm_tabled *m, const pgm_site *c, int on, int64_t row,
                                const float *x, int states, float *sum, pgm_waiting *w)
{
    const float *support = m->support + c->support, *h = m->log_base + c->support;
    const float gap = support[1] - support[0], tilt = h[1] - h[0];
    float zeta = m->bias[c->component], weight = 0.0f;
    /* without branches on the position of the parent, which is unpredictable */
    for (int64_t e = m->arrow_start[c->component]; e < m->arrow_start[c->component + 1]; e++) {
        const float arrow = m->arrow_weight[e];
        const int own = m->arrow_from[e] == row;
        weight = own ? arrow : weight;
        zeta += m->value[m->arrow_from[e]] * (own ? 0.0f : arrow);
    }
    for (int k = 0; k < states; k++) {
        float z = zeta + x[k] * weight;
        if (c->complement) {
            z = z > 0.0f ? z : 0.0f;
            sum[k] += on ? (z > 0.0f ? 0.0f : -INFINITY) : -z;
            z = on ? z : 87.0f;
        } else {
            z = z * gap + tilt;
            z = on ? -z : z;
            sum[k] += -(z > 0.0f ? z : 0.0f);
        }
        w->z[w->count++] = z;
    }
}

/* pgm_add_children for one chain */
PGM_INLINE void pgm_add_children_alone(const pgm_tabled *m, const pgm_site *s, int states,
                                       float *sum)
{
    const int64_t unit = s - m->site;
    const float *x = m->support + s->support;
    pgm_waiting w;
    w.count = w.complement = 0;
    for (int k = 0; k < states; k++) w.mantissa[k] = 1.0f, w.power[k] = 0;
    for (int64_t i = m->child_start[unit]; i < m->child_start[unit + 1]; i++) {
        const int64_t child = m->child[i];
        const pgm_site *c = m->site + child;
        const int two = s->width == 1 && c->states == 2 && c->width == 1;
        if (m->cut && m->cut[child]) continue;
        /* products are made in the order of the children */
        if (w.count && (w.count == PGM_WIDE * states || !two || w.complement != c->complement))
            pgm_times_waiting(&w, states);
        w.complement = (int)c->complement;
        if (two) {
            pgm_child_alone(m, c, m->state[child] == 1, s->value, x, states, sum, &w);
            continue;
        }
        pgm_vf linear[PGM_MOST_STATES], factor[PGM_MOST_STATES];
        pgm_child(m, c, (pgm_vi){0} + m->state[child], 0, s->value, s->width, x, states, linear,
                  factor);
        for (int k = 0; k < states; k++) {
            sum[k] += linear[k][0];
            pgm_times_alone(w.mantissa + k, w.power + k, factor[k][0]);
        }
    }
    pgm_times_waiting(&w, states);
    for (int k = 0; k < states; k++)
        sum[k] += pgm_log_of_product(pgm_splat_f(w.mantissa[k]), (pgm_vi){0} + w.power[k])[0];
}

/* Add the terms of tables and children to the log weights of the states of a unit. */
PGM_INLINE void pgm_factor_weights(const pgm_tabled *m, const pgm_site *s, int states,
                                   int64_t lane, pgm_vf beta, pgm_vf *lw)
{
    const pgm_slot *slot = m->slot + s->slot;
    const int64_t *child = m->child_start + (s - m->site);
    const pgm_vf none = pgm_splat_f(0.0f);
    const pgm_vi off = beta == 0.0f;
    pgm_vf sum[PGM_MOST_STATES];
    if (!s->slots && child[0] == child[1]) return;
    for (int k = 0; k < states; k++) sum[k] = none;
    for (int64_t i = 0; i < s->slots; i++) pgm_add_terms(m, slot + i, states, lane, sum);
    if (child[0] < child[1]) pgm_add_children(m, s, states, lane, NULL, 0, sum);
    for (int k = 0; k < states; k++) lw[k] += pgm_select_f(off, none, sum[k] * beta);
}

/* ---- new states ---- */

/* The Gibbs move of units with K values from their log weights, which are overwritten: pgm_draw_by
 * with alpha = 0. */
PGM_INLINE pgm_vi pgm_gibbs(pgm_vf *lw, int states, pgm_vi current, pgm_vf u)
{
    pgm_vf top = lw[0], sum = pgm_splat_f(0.0f), reached = sum;
    pgm_vi chosen = current, open = ~(pgm_vi){0};
    for (int k = 1; k < states; k++) top = pgm_max_f(lw[k], top);
    for (int k = 0; k < states; k++) {
        lw[k] = pgm_exp_f(pgm_max_f(lw[k] - top, pgm_splat_f(-87.0f)));
        sum += lw[k];
    }
    u *= sum;
    for (int k = 0; k < states; k++) {
        pgm_vi here = current == k;
        reached += pgm_select_f(here, pgm_splat_f(0.0f), lw[k]);
        pgm_vi hit = open & (u < reached) & ~here;
        chosen = pgm_select_i(hit, (pgm_vi){0} + k, chosen);
        open &= ~hit;
    }
    return chosen;
}

/* Return the next states of a unit in the lanes from `lane` on. Where all states are impossible,
 * differences of log weights are NaN, and all weights become equal. */
PGM_INLINE pgm_vi pgm_next_state(const pgm_tabled *m, const pgm_site *s, int states, int64_t lane,
                           pgm_vi now, pgm_vf u, float alpha)
{
    const pgm_vf beta = *(const pgm_vf *)(m->beta + lane), none = pgm_splat_f(0.0f);
    /* at beta = 0 draws are exact */
    const pgm_vf share = pgm_select_f(beta == 0.0f, none, pgm_splat_f(alpha));
    pgm_vf lw[PGM_MOST_STATES];
    pgm_linear_weights(m, s, states, lane, beta, PGM_SWEEPS, 0, lw);
    pgm_factor_weights(m, s, states, lane, beta, lw);
    if (states == 2) {
        pgm_vf eta = lw[1] - lw[0];
        eta = pgm_select_f(eta == eta, eta, none);
        return now ^ (pgm_moves_by(eta, -now, u, alpha > 0.0f, share) & 1);
    }
    if (alpha > 0.0f) return pgm_draw_by(lw, states, now, u, share);
    return pgm_gibbs(lw, states, now, u);
}

/* ---- the same in one chain, by the same operations on scalars ---- */

/* pgm_exp_f */
PGM_INLINE float pgm_exp_alone(float x)
{
    float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    float r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = r * 1.38888889e-3f + 8.33333333e-3f;
    uint32_t bits, power;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + (r + 1.0f);
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &shifted, sizeof power);
    bits += power << 23;
    memcpy(&p, &bits, sizeof bits);
    return p;
}

/* pgm_moves_by */
PGM_INLINE int pgm_moves_alone(float eta, int upper, float u, float alpha)
{
    float size = fabsf(eta), t = pgm_exp_alone(-(size < 87.0f ? size : 87.0f));
    float rate = (eta > 0.0f) == upper ? t : 1.0f;
    if (alpha > 0.0f && size >= PGM_TIE) rate *= alpha * (1.0f + t) + (1.0f - alpha);
    return u * (1.0f + t) < rate;
}

/* pgm_gibbs */
PGM_INLINE int pgm_gibbs_alone(const float *lw, int states, int now, float u)
{
    float top = lw[0], sum = 0.0f, reached = 0.0f, w[PGM_MOST_STATES];
    int chosen = now;
    for (int k = 1; k < states; k++) top = lw[k] > top ? lw[k] : top;
    for (int k = 0; k < states; k++) {
        float below = lw[k] - top;
        w[k] = pgm_exp_alone(below > -87.0f ? below : -87.0f);
        sum += w[k];
    }
    u *= sum;
    /* w[k] becomes the cumulative weight of the moves up to k */
    for (int k = 0; k < states; k++) {
        reached += k == now ? 0.0f : w[k];
        w[k] = k == now ? 0.0f : reached;
    }
    for (int k = states - 1; k >= 0; k--) chosen = u < w[k] ? k : chosen;
    return chosen;
}

/* pgm_draw_by of units with more than two states */
PGM_INLINE int pgm_draw_alone(const float *lw, int states, int now, float u, float alpha)
{
    float top = lw[0], sum = 0.0f, others = 0.0f, second = 0.0f, reached = 0.0f;
    float w[PGM_MOST_STATES];
    int best = 0, chosen = now;
    for (int k = 1; k < states; k++) best = lw[k] > top ? k : best, top = lw[k] > top ? lw[k] : top;
    for (int k = 0; k < states; k++) {
        const float below = lw[k] - top;
        w[k] = pgm_exp_alone(below > -87.0f ? below : -87.0f);
        sum += w[k];
        const float other = k == best ? 0.0f : w[k];
        others += other;
        second = other > second ? other : second;
    }
    const float share = sum - second < second * expf(PGM_TIE_OF_MANY) ? 0.0f : alpha;
    const float leaving = now == best ? others : sum - w[now];
    for (int k = 0; k < states; k++) {
        const float back = k == best ? others : sum - w[k];
        const float most = leaving > back ? leaving : back;
        reached += k == now ? 0.0f : w[k] * (share / most + (1.0f - share) / sum);
        w[k] = k == now ? 0.0f : reached;
    }
    for (int k = states - 1; k >= 0; k--) chosen = u < w[k] ? k : chosen;
    return chosen;
}

PGM_INLINE int pgm_next_alone(const pgm_tabled *m, const pgm_site *s, int states, int now, float u,
                              float alpha)
{
    const float beta = *m->beta, share = beta == 0.0f ? 0.0f : alpha;
    const float *log_base = m->log_base + s->support;
    float lw[PGM_MOST_STATES], sum[PGM_MOST_STATES];
    if (s->linear & PGM_SWEEPS) {
        pgm_vf all[PGM_MOST_STATES];
        pgm_linear_weights(m, s, states, 0, pgm_splat_f(beta), PGM_SWEEPS, 0, all);
        for (int k = 0; k < states; k++) lw[k] = all[k][0];
    } else
        for (int k = 0; k < states; k++) lw[k] = log_base[k];
    const int64_t *child = m->child_start + (s - m->site);
    if (beta != 0.0f && (s->slots || child[0] < child[1])) {
        for (int k = 0; k < states; k++) sum[k] = 0.0f;
        for (int64_t i = 0; i < s->slots; i++)
            pgm_add_terms_alone(m, m->slot + s->slot + i, states, sum);
        if (child[0] < child[1]) pgm_add_children_alone(m, s, states, sum);
        for (int k = 0; k < states; k++) lw[k] += sum[k] * beta;
    }
    if (states == 2) {
        const float eta = lw[1] - lw[0];
        return now ^ pgm_moves_alone(eta == eta ? eta : 0.0f, now, u, share);
    }
    if (alpha > 0.0f) return pgm_draw_alone(lw, states, now, u, share);
    return pgm_gibbs_alone(lw, states, now, u);
}

/* ---- a visit ---- */

/* Write the values of a unit in new states. */
PGM_INLINE void pgm_write_values(const pgm_tabled *m, const pgm_site *s, int states, int64_t lane,
                                 pgm_vi state)
{
    const float *support = m->support + s->support;
    float *row = m->value + s->value * m->apart + lane;
    pgm_vf x = pgm_splat_f(support[0]);
    for (int k = 0; k < states; k++) {
        const pgm_vi here = state == k;
        x = pgm_select_f(here, pgm_splat_f(support[k]), x);
        if (s->width > 1)
            *(pgm_vf *)(row + k * m->apart) =
                pgm_select_f(here, pgm_splat_f(1.0f), pgm_splat_f(0.0f));
    }
    if (s->width == 1) *(pgm_vf *)row = x;
}

/* Visit a unit in lanes first .. last - 1; u has its uniforms. */
PGM_INLINE void pgm_visit_lanes(const pgm_tabled *m, int64_t unit, int states, int64_t first,
                                int64_t last, const float *u, float alpha)
{
    const pgm_site *s = m->site + unit;
    for (int64_t lane = first; lane < last; lane += PGM_WIDE) {
        uint8_t *state = m->state + unit * m->apart + lane;
        const pgm_vi now = pgm_load_bytes(state);
        const pgm_vf own = *(const pgm_vf *)(u + lane - first);
        pgm_vi next = pgm_next_state(m, s, states, lane, now, own, alpha);
        if (m->free)
            next = pgm_select_i(-(pgm_load_bytes(m->free + unit * m->apart + lane) & 1), next, now);
        *(pgm_bytes *)state = pgm_narrow(next);
        if (s->value >= 0) pgm_write_values(m, s, states, lane, next);
    }
}

/* Visit a unit of one chain. */
PGM_INLINE void pgm_visit_alone(const pgm_tabled *m, int64_t unit, int states, float u, float alpha)
{
    const pgm_site *s = m->site + unit;
    if (m->free && !m->free[unit]) return;
    const int next = pgm_next_alone(m, s, states, m->state[unit], u, alpha);
    m->state[unit] = (uint8_t)next;
    if (s->value < 0) return;
    if (s->width == 1) m->value[s->value] = m->support[s->support + next];
    for (int64_t k = 0; s->width > 1 && k < s->width; k++) m->value[s->value + k] = next == k;
}

/* Visit a unit in lanes, or in one chain with `alone`. Loops over a constant number of states run
 * in registers. */
PGM_INLINE void pgm_visit(const pgm_tabled *m, int64_t unit, int64_t first, int64_t last,
                          const float *u, float alpha, int alone)
{
    const int states = (int)m->site[unit].states;
    if (alone)
        switch (states) {
        case 2: pgm_visit_alone(m, unit, 2, *u, alpha); break;
        case 3: pgm_visit_alone(m, unit, 3, *u, alpha); break;
        case 4: pgm_visit_alone(m, unit, 4, *u, alpha); break;
        default: pgm_visit_alone(m, unit, states, *u, alpha);
        }
    else
        switch (states) {
        case 2: pgm_visit_lanes(m, unit, 2, first, last, u, alpha); break;
        case 3: pgm_visit_lanes(m, unit, 3, first, last, u, alpha); break;
        case 4: pgm_visit_lanes(m, unit, 4, first, last, u, alpha); break;
        default: pgm_visit_lanes(m, unit, states, first, last, u, alpha);
        }
}

/* ---- log densities ---- */

/* log sum_k exp(lw_k) in one lane */
static double pgm_log_sum_lane(const pgm_vf *lw, int64_t states, int lane)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t k = 0; k < states; k++) top = lw[k][lane] > top ? lw[k][lane] : top;
    for (int64_t k = 0; k < states; k++) sum += exp(lw[k][lane] - top);
    return top + log(sum);
}

/* The terms of a unit, without tables, in log p_beta = path + beta power; log probabilities belong
 * to the children. With `side`, marginalised units add log_sum(betas[1]) - log_sum(betas[0])
 * to `gain`, and nothing for their current state; their neighbours add half of each coupling. */
static void pgm_linear_density(const pgm_tabled *m, int64_t unit, int64_t lane, int lanes, int side,
                               const double *betas, double *path, double *power, double *gain)
{
    const pgm_site *s = m->site + unit;
    const int64_t row = unit * m->apart + lane;
    const float *support = m->support + s->support, *log_base = m->log_base + s->support;
    pgm_vf own[PGM_MOST_STATES], linked[PGM_MOST_STATES], before[PGM_MOST_STATES],
        after[PGM_MOST_STATES], given = pgm_splat_f(0.0f), rest = given, factor;
    if (s->linear)
        for (int64_t k = 0; k < s->width; k++) {
            own[k] = pgm_own(m, s, k, lane);
            linked[k] = pgm_linked(m, s, k, lane);
        }
    if (s->summed & side) {
        const pgm_vf one = pgm_splat_f((float)betas[0]), two = pgm_splat_f((float)betas[1]);
        pgm_linear_weights(m, s, (int)s->states, lane, one, PGM_DENSITIES, 0, before);
        pgm_linear_weights(m, s, (int)s->states, lane, two, PGM_DENSITIES, 0, after);
    }
    if (s->directed) {
        const pgm_vi now = pgm_load_bytes(m->state + row), first = {0};
        const float zero = 0.0f;
        pgm_child(m, s, now, lane, 0, 0, &zero, 1, &given, &factor);
        given += pgm_log_f(factor);
        /* log p(x_0 | zeta) - x_0 zeta - log h(x_0) is the log normaliser, at any x_0 */
        if (s->summed & side) {
            pgm_child(m, s, first, lane, 0, 0, &zero, 1, &rest, &factor);
            rest += pgm_log_f(factor);
            if (!s->complement)
                rest -= pgm_input(m, s, 0, lane, 0, 0, NULL) * (s->width > 1 ? 1.0f : support[0]);
            rest -= log_base[0];
        }
    }
    for (int i = 0; i < lanes; i++) {
        const int now = m->state[row + i], moves = s->moves && (!m->free || m->free[row + i]);
        const int k = s->width > 1 ? now : 0, out = (s->summed & side) && moves;
        const double x = s->width > 1 ? 1.0 : support[now];
        if (out) {
            if (s->linear) power[i] += rest[i] - 0.5 * x * linked[k][i];
            gain[i] +=
                pgm_log_sum_lane(after, s->states, i) - pgm_log_sum_lane(before, s->states, i);
            continue;
        }
        if (!(m->cut && m->cut[row + i])) {
            const double base = s->based ? log_base[now] : 0.0;
            path[i] += base;
            if (s->directed) power[i] += given[i] - base;
        }
        if (!s->linear) continue;
        power[i] += x * ((double)own[k][i] + 0.5 * linked[k][i]);
        if (m->reference && moves) {
            const double share = x * m->reference[s->component + k];
            path[i] += share, power[i] -= share;
        }
    }
}

/* The log densities of up to PGM_WIDE lanes from `lane` on, (path, power) each in out, and gains of
 * the units that are marginalised. */
static void pgm_density(const pgm_tabled *m, int64_t lane, int lanes, int side,
                        const double *betas, double *out, double *gain)
{
    double path[PGM_WIDE] = {0}, power[PGM_WIDE] = {0};
    for (int64_t unit = 0; unit < m->units; unit++) {
        const pgm_site *s = m->site + unit;
        if (s->linear || s->based || (s->summed & side))
            pgm_linear_density(m, unit, lane, lanes, side, betas, path, power, gain);
        for (const pgm_slot *t = m->slot + s->slot; t < m->slot + s->slot + s->slots; t++) {
            if (!t->leads) continue;
            const uint8_t *now = m->state + unit * m->apart + lane;
            const float *term = m->term + t->first;
            const pgm_vi at = pgm_places(m, t, lane), gone = pgm_gone(m, t, lane);
            for (int i = 0; i < lanes; i++)
                power[i] += gone[i] ? 0.0 : (double)term[at[i] + now[i] * t->stride];
        }
    }
    for (int i = 0; i < lanes; i++) out[2 * i] = path[i], out[2 * i + 1] = power[i];
}

#include "forests.h"

/* ---- sweeps ---- */

/* Add log p_new - log p_old of lanes first .. last - 1 to their importance weights, and set beta.
 * `chain` is the number of the first of them. */
static void pgm_reweigh(const pgm_tabled_job *j, const pgm_tabled *m, int64_t chain, int64_t first,
                        int64_t last, const double *betas)
{
    const int side = j->joint ? 0 : j->backward ? 2 : 1;
    for (int64_t lane = first; lane < last; lane += PGM_WIDE) {
        const int lanes = (int)pgm_min_l(PGM_WIDE, last - lane);
        double out[2 * PGM_WIDE], gain[PGM_WIDE] = {0};
        if (betas[0] != betas[1]) pgm_density(m, lane, lanes, side, betas, out, gain);
        for (int i = 0; i < lanes; i++) {
            const int64_t c = chain + lane - first + i;
            j->beta[c] = (float)betas[1];
            if (betas[0] == betas[1]) continue;
            const double power = out[2 * i + 1];
            j->log_weight[c] +=
                power == -INFINITY ? power : gain[i] + (betas[1] - betas[0]) * power;
        }
    }
}

/* The uniforms of one block of ranks. For chains in lanes, the uniforms of a counter are made when
 * one of them is first needed. */
typedef struct {
    int64_t block;
    uint32_t made;                     /* counters of the block */
    float u[PGM_BLOCK][PGM_TOGETHER];  /* (rank, lane); with `alone`, u[0] has all ranks */
} pgm_ranks;

/* Return the uniforms of a rank in lanes first .. last - 1. */
PGM_INLINE const float *pgm_ranked(pgm_ranks *r, const pgm_tabled *m, int64_t rank, uint64_t sweep,
                                   int64_t first, int64_t last, int alone)
{
    const int64_t block = rank / PGM_BLOCK, n = rank % PGM_BLOCK, counter = n % PGM_GROUP;
    const uint32_t layer = (uint32_t)(sweep >> 32) << 16;
    if (block != r->block) r->block = block, r->made = 0;
    if (alone) {
        if (!r->made) {
            pgm_stream at = pgm_open_stream(m->key, (uint32_t)sweep, m->stream[0], layer);
            pgm_uniforms(&at, (uint32_t)block, (pgm_vf *)r->u);
            r->made = 1;
        }
        return (const float *)r->u + n;
    }
    if (!(r->made >> counter & 1)) {
        const pgm_stream at = pgm_open_stream(m->key, (uint32_t)sweep, 0, layer);
        for (int64_t lane = first; lane < last; lane += PGM_WIDE) {
            pgm_vf u[4];
            pgm_vu chain = at.c + *(const pgm_vu *)(m->stream + lane);
            pgm_threefry(at.key, pgm_splat_u((uint32_t)(block * PGM_GROUP + counter)), at.b, chain,
                         at.d, u, 1);
            for (int w = 0; w < 4; w++)
                *(pgm_vf *)(r->u[w * PGM_GROUP + counter] + lane - first) = u[w];
        }
        r->made |= 1u << counter;
    }
    return r->u[n];
}

/* Make `sweeps` sweeps of one chain from number `from` on, several at once: wave w of a sweep runs
 * with wave w + period of the sweep before it. */
static void pgm_wave_sweeps(const pgm_tabled *m, uint64_t from, int sweeps, int backward)
{
    const int64_t blocks = (m->units + PGM_BLOCK - 1) / PGM_BLOCK, apart = blocks * PGM_BLOCK;
    for (int t = 0; t < sweeps; t++)
        pgm_fill_uniforms(m->key, (uint32_t)(from + t), m->stream[0],
                          (uint32_t)((from + t) >> 32) << 16, 0, blocks, m->uniforms + t * apart);
    for (int64_t now = 0; now < m->waves + (sweeps - 1) * m->period; now++)
        for (int t = 0; t < sweeps; t++) {
            const int64_t w = now - t * m->period;
            if (w < 0) break;
            if (w >= m->waves) continue;
            const int64_t *start = m->wave_start + (backward ? m->waves - 1 - w : w);
            for (int64_t i = start[0]; i < start[1]; i++)
                pgm_visit(m, m->wave[i], 0, 1,
                          m->uniforms + t * apart + m->site[m->wave[i]].rank, m->alpha, 1);
        }
}

/* The sweeps of lanes first .. last - 1, at most PGM_TOGETHER; lane first is chain `chain`. */
PGM_INLINE void pgm_tabled_sweeps(const pgm_tabled_job *j, const pgm_tabled *m, pgm_forest *forest,
                                  int64_t chain, int64_t first, int64_t last, int alone)
{
    /* lanes beyond the last chain are padding */
    const int64_t end = pgm_min_l(last, first + j->chains->chains - chain);
    /* importance weights that marginalise units need these to be drawn first */
    const int early = j->backward && (!j->betas || j->joint);
    pgm_ranks ranks;
    uint64_t t = 0;
    if (alone && m->wave && !j->trace && !j->betas && !j->anew)
        for (; t < j->sweeps; t += PGM_SWEEPS_TOGETHER)
            pgm_wave_sweeps(m, j->first + t,
                            (int)pgm_min_l(PGM_SWEEPS_TOGETHER, (int64_t)(j->sweeps - t)),
                            j->backward);
    for (; t < j->sweeps; t++) {
        if (j->betas) pgm_reweigh(j, m, chain, first, end, j->betas + t);
        ranks.block = -1;
        if (forest && early) pgm_visit_forest(m, forest, j->first + t, first, last);
        for (int64_t i = 0; i < m->visits; i++) {
            const int64_t unit = m->visit[j->backward ? m->visits - 1 - i : i];
            const float *u = pgm_ranked(&ranks, m, m->site[unit].rank, j->first + t, first, last,
                                        alone);
            /* units that importance weights marginalise must be drawn independently of their former
             * states */
            const int anew = j->anew ? j->anew[unit]
                                     : j->betas && !j->joint
                                           && m->site[unit].summed & (j->backward ? 2 : 1);
            pgm_visit(m, unit, first, last, u, anew ? 0.0f : m->alpha, alone);
        }
        if (forest && !early) pgm_visit_forest(m, forest, j->first + t, first, last);
        for (int64_t lane = first; j->trace && lane < end; lane += PGM_WIDE)
            pgm_density(m, lane, (int)pgm_min_l(PGM_WIDE, end - lane), 0, NULL,
                        j->trace + 2 * ((int64_t)t * m->chains + chain + lane - first), NULL);
    }
    for (int64_t lane = first; j->density && lane < end; lane += PGM_WIDE)
        pgm_density(m, lane, (int)pgm_min_l(PGM_WIDE, end - lane), 0, NULL,
                    j->density + 2 * (chain + lane - first), NULL);
}

/* items first .. last - 1 of a job: chains alone, or groups of PGM_LANES_TOGETHER chains */
static void pgm_tabled_part(void *job, int64_t first, int64_t last)
{
    const pgm_tabled_job *j = job;
    pgm_forest forest;
    const int drawn = j->chains->near_start != NULL && j->sweeps > 0;
    if (drawn && !pgm_open_forest(j->chains, &forest)) {
        *j->failed = 1;
        pgm_close_forest(&forest);
        return;
    }
    if (j->chains->alone)
        for (int64_t c = first; c < last; c++) {
            pgm_tabled one = *j->chains;
            one.state += c * one.units, one.value += c * one.values, one.soft += c * one.softs;
            one.free = one.free ? one.free + c * one.units : NULL;
            one.cut = one.cut ? one.cut + c * one.units : NULL;
            one.beta += c, one.stream += c;
            if (one.wave)
                one.uniforms += c * PGM_SWEEPS_TOGETHER * PGM_BLOCK
                                * ((one.units + PGM_BLOCK - 1) / PGM_BLOCK);
            pgm_tabled_sweeps(j, &one, NULL, c, 0, 1, 1);
        }
    else
        for (int64_t c = first * PGM_LANES_TOGETHER, end = last * PGM_LANES_TOGETHER; c < end;
             c += PGM_TOGETHER)
            pgm_tabled_sweeps(j, j->chains, drawn ? &forest : NULL, c, c,
                              pgm_min_l(c + PGM_TOGETHER, end), 0);
    if (drawn) pgm_close_forest(&forest);
}

#endif
