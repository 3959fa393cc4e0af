/* New states of a layer whose units are independent given the other layers, all units of a chain at
 * once.
 *
 * The natural parameter of a unit is eta = beta (field + link(zeta)) + (1 - beta) reference; its
 * log weights are eta x + log h(x) for each value x. A pass draws every free unit by the kernel
 * alpha T + (1 - alpha) G, where T is the flip-the-state kernel and G the Gibbs kernel. It writes
 * the new states, and lists the changes in the order of the units. A unit uses the uniform of its
 * own number (random.h), whether it is free or not.
 *
 * Reference: pgmengine/engine/reference.py with engine/kernels.py and flip_state.py, on the
 * same uniforms (test_compiled_sweeps.py); conditionals and detailed balance in
 * test_kernel_contract.py and test_flip_state.py.
 */
#ifndef PGM_DRAWS_H
#define PGM_DRAWS_H

#include "chains.h"

/* For units with two values, of which eta is the log-odds of the upper one, return the mask of the
 * units that move; `flips`: whether alpha is not 0 everywhere. With t = e^-|eta|, the less probable
 * value has the probability t / (1 + t), and alpha T + (1 - alpha) G leaves the more probable value
 * with probability alpha t + (1 - alpha) t / (1 + t) and the other one with
 * alpha + (1 - alpha) / (1 + t) (docs/equations.md, eq. 2). */
PGM_INLINE pgm_vi pgm_moves_by(pgm_vf eta, pgm_vi upper, pgm_vf u, int flips, pgm_vf alpha)
{
    pgm_vf size = pgm_abs_f(eta), t = pgm_exp_minus_abs_f(eta), one = pgm_splat_f(1.0f);
    pgm_vi at_mode = (eta > 0.0f) ^ ~upper;
    pgm_vf rate = pgm_select_f(at_mode, t, one);
    if (flips) {
        pgm_vf share = pgm_select_f(size < PGM_TIE, pgm_splat_f(0.0f), alpha);
        rate *= share * (1.0f + t) + (1.0f - share);
    }
    return u * (1.0f + t) < rate;
}

PGM_INLINE pgm_vi pgm_moves(pgm_vf eta, pgm_vi upper, pgm_vf u, float alpha)
{
    return pgm_moves_by(eta, upper, u, alpha > 0.0f, pgm_splat_f(alpha));
}

/* New states of units with K values from log weights lw[k], which are overwritten. The Metropolised
 * Gibbs move from x to k has the probability w_k min(1/r_x, 1/r_k) with r_k = sum_{j != k} w_j (Liu
 * 1996; for K = 2 it is the two-valued rule), the Gibbs move w_k / sum w. One uniform chooses among
 * the moves in the order of the values, and then no move. The rule for ties depends on the weights
 * and not on the current state, so that detailed balance holds with and without a tie. */
PGM_INLINE pgm_vi pgm_draw_by(pgm_vf *lw, int states, pgm_vi current, pgm_vf u, pgm_vf alpha)
{
    pgm_vf top = lw[0], low = lw[0], sum = pgm_splat_f(0.0f), others = sum, second = sum, own = sum;
    pgm_vi best = {0}, chosen = current;
    for (int k = 1; k < states; k++) {
        pgm_vi more = lw[k] > top;
        best = pgm_select_i(more, (pgm_vi){0} + k, best);
        top = pgm_select_f(more, lw[k], top);
        low = pgm_min_f(lw[k], low);
    }
    for (int k = 0; k < states; k++) {
        lw[k] = pgm_exp_f(pgm_max_f(lw[k] - top, pgm_splat_f(-87.0f)));
        sum += lw[k];
        pgm_vf other = pgm_select_f(best == k, pgm_splat_f(0.0f), lw[k]);
        others += other;
        second = pgm_max_f(other, second);
        own = pgm_select_f(current == k, lw[k], own);
    }
    pgm_vi tie = states == 2 ? top - low < PGM_TIE : sum - second < second * expf(PGM_TIE_OF_MANY);
    pgm_vf share = pgm_select_f(tie, pgm_splat_f(0.0f), alpha);
    pgm_vf leaving = pgm_select_f(current == best, others, sum - own), reached = pgm_splat_f(0.0f);
    pgm_vi open = ~(pgm_vi){0};
    for (int k = 0; k < states; k++) {
        pgm_vf back = pgm_select_f(best == k, others, sum - lw[k]);
        pgm_vf rate = lw[k] * (share / pgm_max_f(leaving, back) + (1.0f - share) / sum);
        reached += pgm_select_f(current == k, pgm_splat_f(0.0f), rate);
        pgm_vi hit = open & (u < reached) & (current != k);
        chosen = pgm_select_i(hit, (pgm_vi){0} + k, chosen);
        open &= ~hit;
    }
    return chosen;
}

PGM_INLINE pgm_vi pgm_draw(pgm_vf *lw, int states, pgm_vi current, pgm_vf u, float alpha)
{
    return pgm_draw_by(lw, states, current, u, pgm_splat_f(alpha));
}

/* A smaller input from the parents of a complement unit is rounding. The input is a sum of two
 * floats, zeta + rest, with a relative error of 1e-14. After parents with weights of 1e3 have been
 * added and removed, a weight of 1e-6 is therefore unchanged; a single float would have an error of
 * 6e-5. */
#define PGM_ROUNDING 1e-9

/* The input z of a complement unit, which is 0 with probability e^-z, if its parents add `step`.
 * Its bias may be tiny, so that it is stored separately from zeta. */
PGM_INLINE double pgm_complement_input(const pgm_layer *l, int64_t chain, int64_t j, double step)
{
    double z = (double)l->zeta[chain * l->stride + j] + l->rest[chain * l->stride + j] + step;
    return l->bias[j] + (z < PGM_ROUNDING ? 0.0 : z);
}

/* its natural parameter log(e^z - 1) */
static float pgm_link_of(float z) { return z <= 0.0f ? -1e30f : z + logf(-expm1f(-z)); }

/* natural parameters of PGM_WIDE components from `j` on */
PGM_INLINE pgm_vf pgm_natural(const pgm_layer *l, int64_t chain, int64_t j, float beta)
{
    pgm_vf eta = pgm_splat_f(0.0f);
    if (l->field) eta = *(const pgm_vf *)(l->field + chain * l->stride + j);
    if (l->zeta) {
        pgm_vf zeta = *(const pgm_vf *)(l->zeta + chain * l->stride + j);
        if (l->complement)
            for (int i = 0; i < PGM_WIDE; i++)
                zeta[i] = pgm_link_of((float)pgm_complement_input(l, chain, j + i, 0.0));
        eta += zeta;
    }
    eta *= beta;
    if (l->reference) eta += *(const pgm_vf *)(l->reference + j) * (1.0f - beta);
    return eta;
}

/* the share of T; it is 0 at beta = 0, where sweeps draw exactly */
PGM_INLINE float pgm_alpha(const pgm_chains *m, int64_t chain)
{
    return m->beta[chain] == 0.0f ? 0.0f : m->alpha;
}

/* A pass over a layer of two-valued units: list the changes and return their number. `plain`: the
 * natural parameter is beta times the field. alpha is a constant where this is inlined for Gibbs.
 */
PGM_INLINE int64_t pgm_two(const pgm_chains *m, const pgm_layer *l, int64_t chain,
                           const pgm_stream *at, int plain, float alpha, pgm_change *list)
{
    const float beta = m->beta[chain], gap = l->support[1] - l->support[0],
                bias = l->log_base[1] - l->log_base[0];
    const float scale = gap * beta, step[2] = {-gap, gap}, *field = l->field + chain * l->stride;
    const uint8_t *free = l->free + chain * l->free_stride;
    const int64_t units = pgm_min_l(l->units, l->end);
    uint8_t *state = l->state + chain * l->units;
    pgm_change *end = list;
    for (int64_t first = l->begin; first < units; first += PGM_BLOCK) {
        pgm_vf u[PGM_VECTORS];
        uint64_t moved[PGM_BLOCK / 8] = {0};
        pgm_uniforms(at, (uint32_t)(first / PGM_BLOCK), u);
        for (int i = 0; i < PGM_VECTORS; i++) {
            int64_t j = first + i * PGM_WIDE;
            if (j >= units) break;
            pgm_vf eta =
                plain ? *(const pgm_vf *)(field + j) * scale : pgm_natural(l, chain, j, beta) * gap;
            pgm_bytes now = *(const pgm_bytes *)(state + j);
            pgm_vi move = pgm_moves(eta + bias, pgm_widen(-now), u[i], alpha);
            pgm_bytes hit = pgm_narrow(move) & *(const pgm_bytes *)(free + j);
            *(pgm_bytes *)(state + j) = now ^ hit;
            memcpy((uint8_t *)moved + i * PGM_WIDE, &hit, sizeof hit);
        }
        for (uint64_t left = pgm_flags(moved); left; left &= left - 1) {
            int32_t j = (int32_t)first + __builtin_ctzll(left);
            /* without a branch on the new state, which is unpredictable */
            *end++ = (pgm_change){j, step[state[j]]};
        }
    }
    return end - list;
}

static int64_t pgm_pass_two(const pgm_chains *m, const pgm_layer *l, int64_t chain,
                            const pgm_stream *at, pgm_change *list)
{
    float alpha = pgm_alpha(m, chain);
    if (l->zeta || l->reference || !l->field) return pgm_two(m, l, chain, at, 0, alpha, list);
    return alpha == 0.0f ? pgm_two(m, l, chain, at, 1, 0.0f, list)
                         : pgm_two(m, l, chain, at, 1, alpha, list);
}

/* Record the move of unit j to state `next`; returns the length of the list. */
PGM_INLINE int64_t pgm_record(const pgm_layer *l, int64_t j, uint8_t *state, int next,
                              pgm_change *list, int64_t n)
{
    int32_t row = (int32_t)(j * l->width);
    if (l->width > 1) {
        list[n++] = (pgm_change){row + *state, -1.0f};
        list[n++] = (pgm_change){row + next, 1.0f};
    } else
        list[n++] = (pgm_change){row, l->support[next] - l->support[*state]};
    *state = (uint8_t)next;
    return n;
}

/* A pass over a layer of units with K values. */
PGM_INLINE int64_t pgm_pass_table(const pgm_chains *m, const pgm_layer *l, int64_t chain,
                                  const pgm_stream *at, float alpha, pgm_change *list)
{
    float beta = m->beta[chain];
    uint8_t *state = l->state + chain * l->units;
    const uint8_t *free = l->free + chain * l->free_stride;
    pgm_vf lw[PGM_MOST_STATES], u[PGM_VECTORS], eta = pgm_splat_f(0.0f);
    int64_t n = 0;
    for (int64_t j = 0; j < l->size; j += PGM_WIDE) {
        if (j % PGM_BLOCK == 0) pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK), u);
        if (l->width == 1) {
            eta = pgm_natural(l, chain, j, beta);
            for (int k = 0; k < l->states; k++) lw[k] = eta * l->support[k] + l->log_base[k];
        } else
            for (int64_t c = 0; c < PGM_WIDE * l->width; c++) {
                if (c % PGM_WIDE == 0) eta = pgm_natural(l, chain, j * l->width + c, beta);
                lw[c % l->width][c / l->width] = eta[c % PGM_WIDE] + l->log_base[c % l->width];
            }
        pgm_vi now = pgm_load_bytes(state + j),
               next = pgm_draw(lw, l->states, now, u[j / PGM_WIDE % PGM_VECTORS], alpha);
        for (int i = 0; i < PGM_WIDE && j + i < l->size; i++)
            if (next[i] != now[i] && free[j + i])
                n = pgm_record(l, j + i, state + j + i, next[i], list, n);
    }
    return n;
}

/* Box and Muller */
static float pgm_normal(float u, float v) { return sqrtf(-2.0f * logf(u)) * cosf(6.28318531f * v); }

/* the density proportional to e^(eta x) on [-1, 1], by the inverse of its distribution function */
static float pgm_interval(float eta, float u)
{
    float size = fabsf(eta);
    if (size < 1e-4f) return 2.0f * u - 1.0f + eta * 2.0f * u * (1.0f - u);
    float x = 1.0f + log1pf((1.0f - u) * expm1f(-2.0f * size)) / size;
    x = x < -1.0f ? -1.0f : x;
    return eta < 0.0f ? -x : x;
}

/* A pass over a layer of units with infinitely many values: draws from the conditional, with two
 * uniforms for each unit. */
static int64_t pgm_pass_infinite(const pgm_chains *m, const pgm_layer *l, int64_t chain,
                                 const pgm_stream *at, pgm_change *list)
{
    float beta = m->beta[chain], *value = l->value + chain * l->units;
    const uint8_t *free = l->free + chain * l->free_stride;
    pgm_vf u[PGM_VECTORS], v[PGM_VECTORS];
    int64_t n = 0;
    for (int64_t j = 0; j < l->size; j += PGM_WIDE) {
        if (j % PGM_BLOCK == 0) {
            pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK), u);
            pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK) | PGM_SECOND, v);
        }
        pgm_vf eta = pgm_natural(l, chain, j, beta);
        for (int i = 0; i < PGM_WIDE && j + i < l->size; i++) {
            if (!free[j + i]) continue;
            float a = u[j / PGM_WIDE % PGM_VECTORS][i], b = v[j / PGM_WIDE % PGM_VECTORS][i];
            float x = l->kind == PGM_NORMAL
                          ? l->variance * eta[i] + sqrtf(l->variance) * pgm_normal(a, b)
                          : pgm_interval(eta[i], a);
            list[n++] = (pgm_change){(int32_t)(j + i), x - value[j + i]};
            value[j + i] = x;
        }
    }
    return n;
}

#endif
