/* Enumeration of a cover in reflected mixed-radix Gray-code order.
 *
 * A state of the cover is a set of indicators. There is one indicator for each unit and each of its
 * states >= 1. The log weight of a state is
 *     sum_d theta_d + sum_{d<d'} pair_dd' + sum_blocks power * sum_t log(1 + sum_k e_kt)
 * (1 + sum_{k<K} e_kt - e_Kt in complement blocks), where log e_kt = offset_kt + sum_d V_d,kt is
 * linear in the indicators. The constant of the log-linear form is added to log Z after the
 * enumeration, because a large constant would cost the weights of states their digits. One step
 * changes one unit by one state, so e is updated by multiplication: e *= exp(+-change). It is
 * computed from scratch at the start of every piece, which limits rounding errors.
 *
 * Layout. Components are stored as [block][term][unit]. Units are padded to whole vectors with e =
 * 0, which gives the factor 1. Products of sums are kept as a mantissa and an exponent. `every` is
 * a number of factors whose product cannot overflow, and the exponent is extracted only after so
 * many factors. The weights of states are scaled by approximately the largest one of a piece, and
 * the scale is kept as a logarithm.
 *
 * Reference: NumpyEnumerator in pgmengine/infer/exact/enumeration/numpy_enumerator.py
 * (test_enumeration.py, test_exact.py).
 */
#ifndef PGM_GRAY_H
#define PGM_GRAY_H

#include "routines.h"
#include "vectors.h"

/* Move the exponents of positive p into `exponent` (biased by 1023 each), leaving mantissas in [1,
 * 2). */
PGM_INLINE void pgm_extract(pgm_vd *p, pgm_vl *exponent)
{
    pgm_vl bits = (pgm_vl)*p;
    *exponent += bits >> 52;
    *p = (pgm_vd)((bits & 0x000fffffffffffffLL) | 0x3ff0000000000000LL);
}

/* 1 - e, where e is 1 or well below it: the rounding error of 1 - 1 becomes 0 */
PGM_INLINE pgm_vd pgm_one_less(pgm_vd e)
{
    pgm_vd s = 1.0 - e;
    return pgm_select_d(s > 1e-4, s, pgm_splat_d(0.0));
}

/* the sums 1 + sum_k e_kt of a vector of units; `best`: the largest term instead of the sum */
PGM_INLINE pgm_vd pgm_sum(const double *base, const pgm_block *b, int64_t t, int complement,
                          int best)
{
    int last = b->terms - complement;
    pgm_vd s = pgm_splat_d(1.0);
    if (complement) s = pgm_one_less(*(const pgm_vd *)(base + last * b->size + t));
    for (int k = 0; k < last; k++) {
        pgm_vd e = *(const pgm_vd *)(base + k * b->size + t);
        if (best)
            s = pgm_max_d(s, e);
        else
            s += e;
    }
    return s;
}

/* prod_t (1 + sum_k e_kt) = mantissa * 2^(returned exponent), mantissa < 256; an impossible state
 * has the mantissa 0 */
PGM_INLINE int64_t pgm_product(const double *e, const pgm_block *b, int every, int complement,
                               int best, double *mantissa)
{
    pgm_vd p = pgm_splat_d(1.0);
    pgm_vl exponent = {0}, impossible = exponent;
    int64_t extractions = 1, sum = 0;
    int left = every;
    const double *base = e + b->start;
    for (int64_t t = 0; t < b->size; t += PGM_LANES) {
        pgm_vd s = pgm_sum(base, b, t, complement, best);
        if (complement) impossible |= (pgm_vl)(s == 0.0);
        p *= s;
        if (--left == 0) {
            pgm_extract(&p, &exponent);
            left = every;
            extractions++;
        }
    }
    pgm_extract(&p, &exponent);
    for (int j = 0; j < PGM_LANES; j++) sum += exponent[j];
    *mantissa = pgm_hprod_d(p);
    if (complement)
        for (int j = 0; j < PGM_LANES; j++)
            if (impossible[j]) *mantissa = 0.0;
    return sum - 1023 * PGM_LANES * extractions;
}

#define PGM_LN2 0.693147180559945309417232121458176568

/* the log weight of the blocks minus the log of *mantissa (at most 256 for each block of power 1),
 * so that a state needs no logarithm unless a block has normalisers of children */
PGM_INLINE double pgm_blocks(const pgm_problem *p, const double *e, int best, double *mantissa)
{
    double total = 0.0;
    *mantissa = 1.0;
    for (int64_t b = 0; b < p->blocks; b++) {
        double m;
        int most = best && p->block[b].power == 1.0;
        int64_t exponent = p->block[b].complement
                               ? pgm_product(e, p->block + b, p->every, 1, most, &m)
                               : pgm_product(e, p->block + b, p->every, 0, most, &m);
        if (m == 0.0) {
            *mantissa = 0.0;
            return -INFINITY;
        }
        double part = (double)exponent * PGM_LN2;
        if (p->block[b].power == 1.0 && *mantissa < 1e200) {
            *mantissa *= m;
            total += part;
        } else
            total += p->block[b].power * (log(m) + part);
    }
    return total;
}

/* sums[component] += w * probability */
PGM_INLINE void pgm_add_probabilities(const double *e, const pgm_block *b, double w, double *sums)
{
    const double *base = e + b->start;
    double *out = sums + b->start;
    for (int64_t t = 0; t < b->size; t += PGM_LANES) {
        pgm_vd scale = w / (b->complement ? pgm_sum(base, b, t, 1, 0) : pgm_sum(base, b, t, 0, 0));
        for (int k = 0; k < b->terms; k++)
            *(pgm_vd *)(out + k * b->size + t) += *(const pgm_vd *)(base + k * b->size + t) * scale;
    }
}

PGM_INLINE void pgm_axpy(double a, const double *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

/* Set the units from `begin` on to their state number `index`, and the others to their first state.
 * Computes fields and components from scratch; returns the log weight without the blocks. */
PGM_INLINE double pgm_start(const pgm_problem *p, pgm_work *w, int64_t index, int64_t begin)
{
    double base = 0.0;
    if (p->indicators) memcpy(w->field, p->theta, sizeof(double) * p->indicators);
    if (p->components) memcpy(w->e, p->offset, sizeof(double) * p->components);
    for (int64_t i = begin; i < p->units; i++) {
        int64_t k = p->states[i], digit = index % k;
        index /= k;
        w->direction[i] = index & 1 ? -1 : 1;
        w->state[i] = index & 1 ? k - 1 - digit : digit;
        if (w->state[i] > 0) {
            int64_t d = p->first[i] + w->state[i] - 1;
            base += w->field[d];
            pgm_axpy(1.0, p->pair + d * p->indicators, w->field, p->indicators);
            pgm_axpy(1.0, p->value + d * p->components, w->e, p->components);
        }
    }
    for (int64_t c = 0; c < p->components; c += PGM_LANES)
        *(pgm_vd *)(w->e + c) = pgm_exp_d(*(pgm_vd *)(w->e + c));
    return base;
}

/* a step: the indicators that become 0 and 1, or -1, and the factor of every component */
typedef struct {
    int64_t leave, enter;
    const double *factor;
} pgm_move;

/* Go to the next state in Gray order of the units from `first` on. */
PGM_INLINE pgm_move pgm_turn(const pgm_problem *p, pgm_work *w, int64_t first)
{
    int64_t i = first;
    while (w->state[i] + w->direction[i] < 0 || w->state[i] + w->direction[i] >= p->states[i]) {
        w->direction[i] = -w->direction[i];
        i++;
    }
    int64_t old = w->state[i], new = w->state[i] = old + w->direction[i];
    pgm_move m = {old > 0 ? p->first[i] + old - 1 : -1, new > 0 ? p->first[i] + new - 1 : -1, NULL};
    m.factor = new > old ? p->up + m.enter * p->components : p->down + m.leave * p->components;
    return m;
}

/* Update the fields after a step. */
PGM_INLINE void pgm_pass_on(const pgm_problem *p, pgm_work *w, pgm_move m)
{
    if (m.leave >= 0) pgm_axpy(-1.0, p->pair + m.leave * p->indicators, w->field, p->indicators);
    if (m.enter >= 0) pgm_axpy(1.0, p->pair + m.enter * p->indicators, w->field, p->indicators);
}

/* Make one step; returns the change of the log weight without the blocks. */
PGM_INLINE double pgm_step(const pgm_problem *p, pgm_work *w, int moments)
{
    int64_t n = p->components + p->indicators;
    pgm_move m = pgm_turn(p, w, 0);
    double change =
        (m.enter >= 0 ? w->field[m.enter] : 0.0) - (m.leave >= 0 ? w->field[m.leave] : 0.0);
    if (moments == PGM_EACH_MOMENT) {
        if (m.leave >= 0) pgm_axpy(1.0, w->sums, w->open + m.leave * n, n);
        if (m.enter >= 0) pgm_axpy(-1.0, w->sums, w->open + m.enter * n, n);
    }
    pgm_pass_on(p, w, m);
    for (int64_t c = 0; c < p->components; c++) w->e[c] *= m.factor[c];
    return change;
}

/* Enumerate `count` states from `index` on; returns the log of the sum of their weights.
 * log_weight is (count) or NULL. With moments, w->sums becomes sum_t w_t prob_t, and with
 * PGM_EACH_MOMENT w->open[d] the same over the states in which indicator d is on, all scaled by
 * exp(-reference); the reference goes to *scale, and the sum of the weights, scaled in the same
 * way, to *mass. A probability times an indicator is a sum over intervals of the enumeration: the
 * running sum is added to w->open[d] when d becomes 0, and subtracted when d becomes 1. A step then
 * needs one addition of vectors instead of one for each indicator. */
static double pgm_gray_walk(const pgm_problem *p, pgm_work *w, int64_t index, int64_t count,
                            int moments, int best, double *log_weight, double *scale, double *mass)
{
    int64_t n = p->components + p->indicators,
            open = moments == PGM_EACH_MOMENT ? n * p->indicators : 0;
    double base = pgm_start(p, w, index, 0), reference = -INFINITY, sum = 0.0;
    if (moments) {
        memset(w->sums, 0, sizeof(double) * n);
        if (open) memset(w->open, 0, sizeof(double) * open);
    }
    for (int64_t step = 0; step < count; step++) {
        if (step) base += pgm_step(p, w, moments);
        double mantissa, lw = base + pgm_blocks(p, w->e, best, &mantissa);
        if (log_weight) log_weight[step] = lw + log(mantissa);
        if (mantissa == 0.0) continue;
        /* at the first state, and rarely later: rescale all sums */
        if (lw > reference + 100.0) {
            double factor = exp(reference - lw);
            sum *= factor;
            if (moments) {
                for (int64_t c = 0; c < n; c++) w->sums[c] *= factor;
                for (int64_t c = 0; c < open; c++) w->open[c] *= factor;
            }
            reference = lw;
        }
        double weight = exp(lw - reference) * mantissa;
        sum += weight;
        if (moments) {
            for (int64_t b = 0; b < p->blocks; b++)
                pgm_add_probabilities(w->e, p->block + b, weight, w->sums);
            for (int64_t i = 0; i < p->units; i++)
                if (w->state[i] > 0)
                    w->sums[p->components + p->first[i] + w->state[i] - 1] += weight;
        }
    }
    if (open)
        for (int64_t i = 0; i < p->units; i++)
            if (w->state[i] > 0)
                pgm_axpy(1.0, w->sums, w->open + (p->first[i] + w->state[i] - 1) * n, n);
    *scale = reference;
    *mass = sum;
    return reference + log(sum);
}

#endif
