/* Log densities of chains on the tempering path, and increments of the importance weights of
 * annealing, with layers marginalised.
 *
 * log p_beta(x) = path + beta power. Both terms are known up to a constant that depends on the
 * evidence alone:
 *     path  = sum of log h(x) + x reference,
 *     power = sum of x (base + field) / 2 - x reference + log p(x_child | zeta).
 * A coupling of two moving layers is in the fields of both of its ends, hence the factor 1/2.
 * `base` is the input from layers that never move. The units of a layer that is marginalised are
 * independent given the other layers, so that the sum of their A(eta) replaces their terms. A step
 * of annealing adds log p_new - log p_old, at the current state of the other layers, to the log
 * importance weight.
 *
 * Reference: Target.log_density (test_compiled_sweeps.py: the trace is the log density after each
 * sweep), PlainChains.anneal (test_annealing.py: the importance weights of the engine in numpy).
 */
#ifndef PGM_DENSITY_H
#define PGM_DENSITY_H

#include "by_unit.h"

/* sum over a layer of x (a + sign b), b may be NULL */
static double pgm_dot(const pgm_layer *l, int64_t chain, const float *a, const float *b, float sign)
{
    double total = 0.0;
    if (l->kind == PGM_FINITE && l->width == 1 && l->states == 2) {
        const uint8_t *state = l->state + chain * l->units;
        const float low = l->support[0], gap = l->support[1] - low;
        pgm_sums sums = {0};
        for (int64_t first = 0; first < l->units; first += 4 * PGM_GROUP) {
            pgm_vf sum[PGM_PIECES] = {0};
            for (int64_t j = first; j < first + 4 * PGM_GROUP && j < l->units; j += PGM_WIDE) {
                pgm_vf factor = *(const pgm_vf *)(a + j);
                if (b) factor += *(const pgm_vf *)(b + j) * sign;
                sum[j / PGM_WIDE % PGM_PIECES] +=
                    (__builtin_convertvector(pgm_load_bytes(state + j), pgm_vf) * gap + low)
                    * factor;
            }
            pgm_sums_add(&sums, sum);
        }
        return pgm_sums_total(&sums);
    }
    for (int64_t j = 0; j < l->size; j++) {
        int64_t c = l->width > 1 ? j * l->width + l->state[chain * l->units + j] : j;
        double factor = b ? (double)a[c] + sign * b[c] : a[c];
        total += factor * (l->width > 1 ? 1.0 : pgm_value(l, chain, j));
    }
    return total;
}

/* sum of x (base + field) / 2 over a layer, or the part that `reads` says. `last`: x field over the
 * layers that a sweep draws last, and x base over the others, whose fields are then not read; each
 * coupling must have one end on either side. */
PGM_INLINE double pgm_field_part(const pgm_layer *l, int64_t chain, int last)
{
    const float *base = l->base ? l->base + chain * l->stride : l->directed ? NULL : l->bias;
    const float *field = l->field + chain * l->stride;
    if (last) return pgm_dot(l, chain, l->summed & 2 ? field : base, NULL, 0.0f);
    if (l->reads) return pgm_dot(l, chain, l->reads == 1 ? field : base, NULL, 0.0f);
    return 0.5 * pgm_dot(l, chain, field, base, 1.0f);
}

/* sum over a layer of log p(x | zeta), or of -A(zeta) for marginalised units, whose
 * current state may be impossible */
PGM_INLINE double pgm_directed_part(const pgm_layer *l, int64_t chain, int summed)
{
    double total = 0.0;
    for (int64_t j = 0; l->zeta && j < l->size; j++) {
        if (l->alive && !l->alive[chain * l->units + j]) continue;
        int out = summed && l->free[chain * l->free_stride + j];
        total += out ? -pgm_partition(l, chain, j) : pgm_log_prob(l, chain, j, pgm_no_step);
    }
    return total;
}

/* the terms of a layer in log p_1 - log p_0 of a chain, without its couplings with moving layers */
PGM_INLINE double pgm_power_alone(const pgm_layer *l, int64_t chain)
{
    const float *base = l->base ? l->base + chain * l->stride : l->directed ? NULL : l->bias;
    const float *reference = l->moves ? l->reference : NULL;
    double total = pgm_directed_part(l, chain, 0);
    if (l->field && base) return total + pgm_dot(l, chain, base, reference, -1.0f);
    return reference ? total - pgm_dot(l, chain, reference, NULL, 0.0f) : total;
}

/* log p_beta = out[0] + beta out[1] of a chain; on a side that is marginalised, without the log
 * probabilities of the layers given their parents */
PGM_INLINE void pgm_log_density(const pgm_chains *m, int64_t chain, int last, int side,
                                double out[2])
{
    double path = 0.0, power = 0.0;
    for (int i = 0; i < m->layers; i++) {
        const pgm_layer *l = m->layer + i;
        if (l->field) power += pgm_field_part(l, chain, last);
        power += pgm_directed_part(l, chain, l->summed & side);
        if (!l->moves) continue;
        for (int64_t j = 0; l->uneven && j < l->size; j++) {
            double x = l->kind == PGM_NORMAL ? l->value[chain * l->units + j] : 0.0;
            path += l->kind == PGM_NORMAL ? -0.5 * x * x / l->variance
                                          : l->log_base[l->state[chain * l->units + j]];
        }
        double share = l->reference ? pgm_dot(l, chain, l->reference, NULL, 0.0f) : 0.0;
        path += share;
        power -= share;
    }
    out[0] = path, out[1] = power;
}

#define PGM_SMALL_STEP \
    1e-3 /* of beta: A(new) - A(old) by the midpoint rule, more exact than the difference */
#define PGM_SMALL_CHANGE 0.03f /* of a log-odds: the error of the midpoint rule is its cube / 250 */

/* The gain of log sum_(x of the layer) p_beta from beta = old to new: sum over its units of
 * A(eta_new) - A(eta_old), or x (eta_new - eta_old) for a unit that is not free. Unless `whole`,
 * without the term of the current state that pgm_log_density contains: x times the change of eta,
 * arrows excluded. */
static double pgm_summed_gain(const pgm_layer *l, int64_t chain, double old, double new, int whole)
{
    const uint8_t *free = l->free + chain * l->free_stride;
    double total = 0.0;
    pgm_layer apart = *l;
    apart.zeta = NULL;
    if (l->kind == PGM_FINITE && l->states == 2 && l->width == 1) {
        const uint8_t *state = l->state + chain * l->units;
        const float gap = l->support[1] - l->support[0], bias = l->log_base[1] - l->log_base[0];
        const float middle_beta = (float)(0.5 * (old + new)), change = gap * (float)(new - old);
        const float *field = l->field && !l->zeta ? l->field + chain * l->stride : NULL,
                    *reference = l->reference;
        const float low = l->support[0] / gap;
        const int small = fabs(new - old) < PGM_SMALL_STEP;
        pgm_sums sums = {0};
        for (int64_t first = 0; first < l->units; first += 4 * PGM_GROUP) {
            pgm_vf sum[PGM_PIECES] = {0};
            for (int64_t j = first; j < first + 4 * PGM_GROUP && j < l->units; j += PGM_WIDE) {
                pgm_vf on = __builtin_convertvector(pgm_load_bytes(state + j), pgm_vf), gain;
                pgm_vf zero = reference ? *(const pgm_vf *)(reference + j) : (pgm_vf){0};
                pgm_vf slope =
                    (field ? *(const pgm_vf *)(field + j) : pgm_natural(l, chain, j, 1.0f)) - zero;
                pgm_vf moved = slope * change;
                if (small && !pgm_any_i(pgm_abs_f(moved) > PGM_SMALL_CHANGE)) {
                    pgm_vf middle = (zero + slope * middle_beta) * gap + bias;
                    pgm_vf t = pgm_exp_minus_abs_f(middle);
                    gain = pgm_select_f(middle > 0.0f, pgm_splat_f(1.0f), t) / (t + 1.0f) * moved;
                } else {
                    pgm_vf a = pgm_natural(l, chain, j, (float)old) * gap + bias;
                    pgm_vf b = pgm_natural(l, chain, j, (float)new) * gap + bias;
                    moved = b - a;
                    gain = pgm_softplus_f(b) - pgm_softplus_f(a);
                }
                pgm_vf own = moved;
                if (l->zeta) own = (pgm_natural(&apart, chain, j, 1.0f) - zero) * change;
                gain += (moved - own) * low - on * own;
                gain = pgm_select_f(-(pgm_load_bytes(free + j) & 1), gain, pgm_splat_f(0.0f));
                if (whole) gain += (on + low) * moved;
                sum[j / PGM_WIDE % PGM_PIECES] += gain;
            }
            pgm_sums_add(&sums, sum);
        }
        return pgm_sums_total(&sums);
    }
    float eta[2][PGM_MOST_STATES];
    for (int64_t j = 0; j < l->size; j++) {
        if (!free[j] && !whole) continue;
        for (int k = 0; k < l->width; k++) {
            eta[0][k] = pgm_natural(l, chain, j * l->width + k, (float)old)[0];
            eta[1][k] = pgm_natural(l, chain, j * l->width + k, (float)new)[0];
        }
        int64_t own = l->width > 1 ? j * l->width + l->state[chain * l->units + j] : j;
        double before = pgm_natural(&apart, chain, own, (float)old)[0];
        double moved = pgm_natural(&apart, chain, own, (float)new)[0] - before;
        if (l->width == 1) moved *= pgm_value(l, chain, j);
        if (free[j])
            total += pgm_normaliser(l, eta[1], pgm_no_step) - pgm_normaliser(l, eta[0], pgm_no_step)
                     - moved;
        if (whole) total += moved;
    }
    return total;
}

/* whether each coupling of moving layers has exactly one marginalised end, so that the other ends
 * need only their `base` */
PGM_INLINE int pgm_two_sided(const pgm_chains *m, int side)
{
    int apart = 1;
    for (int i = 0; i < m->layers; i++) apart &= !(m->layer[i].summed & side && m->layer[i].zeta);
    for (int i = 0; i < m->links; i++) {
        const pgm_layer *a = m->layer + m->link[i].from, *b = m->layer + m->link[i].to;
        if (a->moves && b->moves && !m->link[i].arrow)
            apart &= !(a->summed & side) != !(b->summed & side);
    }
    return apart;
}

/* log p_new - log p_old of a chain, with the layers of a side marginalised; side 0: none */
PGM_INLINE double pgm_weight_gain(const pgm_chains *m, int64_t chain, double old, double new,
                                  int side, int two_sided)
{
    double gain = 0.0, power[2] = {0.0, 0.0};
    /* the power may be -inf */
    if (old == new) return 0.0;
    if (!two_sided) pgm_log_density(m, chain, 0, side, power);
    for (int i = 0; i < m->layers; i++) {
        const pgm_layer *l = m->layer + i;
        if (l->summed & side)
            gain += pgm_summed_gain(l, chain, old, new, two_sided);
        else if (two_sided)
            power[1] += pgm_power_alone(l, chain);
    }
    return gain + (new - old) * power[1];
}

/* log_density (chains, 2) */
static void pgm_log_densities(const pgm_chains *m, int64_t chains, int last, double *log_density)
{
    for (int64_t c = 0; c < chains; c++) pgm_log_density(m, c, last, 0, log_density + 2 * c);
}

#endif
