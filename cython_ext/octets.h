/* The walk of gray.h, eight states at a time: those of the first three units, which have two states each, while the Gray
 * code goes over the others. The components of the eight are products of those of the first with factors that never
 * change, so they stay in registers, and a state costs three operations for each vector of components.
 */
#ifndef PGM_OCTETS_H
#define PGM_OCTETS_H

#include "gray.h"

enum { PGM_INNER = 3, PGM_OCTET = 8 };

static const pgm_v8 PGM_ON[PGM_INNER] = {{0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}};

/* whether a walk from `index` over `count` states can be made so */
PGM_INLINE int pgm_in_octets(const pgm_problem *p, int64_t index, int64_t count)
{
    if (p->units < PGM_INNER || index % PGM_OCTET || count % PGM_OCTET) return 0;
    for (int64_t i = 0; i < PGM_INNER; i++)
        if (p->states[i] != 2) return 0;
    for (int64_t b = 0; b < p->blocks; b++)
        if (p->block[b].complement) return 0;
    return 1;
}

/* the components at c of the eight states, from those of the first */
PGM_INLINE void pgm_eight(const pgm_problem *p, pgm_v8 first, int64_t c, pgm_v8 x[PGM_OCTET])
{
    const pgm_v8 one = *(const pgm_v8 *)(p->up + c), two = *(const pgm_v8 *)(p->up + p->components + c),
                 three = *(const pgm_v8 *)(p->up + 2 * p->components + c);
    x[0] = first;
    x[1] = first * one;
    x[2] = first * two;
    x[3] = x[1] * two;
    for (int i = 0; i < 4; i++) x[4 + i] = x[i] * three;
}

/* the sums 1 + sum_k e_kt of the eight states; the components are first brought up to date if there is a factor */
PGM_INLINE void pgm_eight_sums(const pgm_problem *p, double *e, const double *factor, const pgm_block *b, int64_t t,
                               pgm_v8 s[PGM_OCTET])
{
    pgm_v8 x[PGM_OCTET];
    for (int i = 0; i < PGM_OCTET; i++) s[i] = pgm_all(1.0);
    for (int k = 0; k < b->terms; k++) {
        int64_t c = b->start + k * b->size + t;
        pgm_v8 first = *(const pgm_v8 *)(e + c);
        if (factor) {
            first *= *(const pgm_v8 *)(factor + c);
            *(pgm_v8 *)(e + c) = first;
        }
        pgm_eight(p, first, c, x);
        for (int i = 0; i < PGM_OCTET; i++) s[i] += x[i];
    }
}

#define PGM_EVEN_PAIRS(a, b) __builtin_shuffle(a, b, (pgm_i8){0, 8, 2, 10, 4, 12, 6, 14})
#define PGM_ODD_PAIRS(a, b) __builtin_shuffle(a, b, (pgm_i8){1, 9, 3, 11, 5, 13, 7, 15})
#define PGM_EVEN_TWOS(a, b) __builtin_shuffle(a, b, (pgm_i8){0, 1, 8, 9, 4, 5, 12, 13})
#define PGM_ODD_TWOS(a, b) __builtin_shuffle(a, b, (pgm_i8){2, 3, 10, 11, 6, 7, 14, 15})
#define PGM_LOW_FOURS(a, b) __builtin_shuffle(a, b, (pgm_i8){0, 1, 2, 3, 8, 9, 10, 11})
#define PGM_HIGH_FOURS(a, b) __builtin_shuffle(a, b, (pgm_i8){4, 5, 6, 7, 12, 13, 14, 15})

/* lane i of the outcome: all lanes of x[i], by the operation */
#define PGM_ACROSS(x, op)                                                                                       \
    do {                                                                                                        \
        for (int i = 0; i < 8; i += 2) x[i] = PGM_EVEN_PAIRS(x[i], x[i + 1]) op PGM_ODD_PAIRS(x[i], x[i + 1]); \
        for (int i = 0; i < 8; i += 4) x[i] = PGM_EVEN_TWOS(x[i], x[i + 2]) op PGM_ODD_TWOS(x[i], x[i + 2]);   \
        x[0] = PGM_LOW_FOURS(x[0], x[4]) op PGM_HIGH_FOURS(x[0], x[4]);                                         \
    } while (0)

/* for each of the eight states the log of prod_t (1 + sum_k e_kt), less the log of *mantissa, which is below 2 */
PGM_INLINE pgm_v8 pgm_eight_products(const pgm_problem *p, double *e, const double *factor, const pgm_block *b,
                                     pgm_v8 *mantissa)
{
    pgm_v8 product[PGM_OCTET], s[PGM_OCTET];
    pgm_i8 exponent[PGM_OCTET], last = {0};
    int64_t taken = 0;
    int left = p->every;
    for (int i = 0; i < PGM_OCTET; i++) {
        product[i] = pgm_all(1.0);
        exponent[i] = (pgm_i8){0};
    }
    for (int64_t t = 0; t < b->size; t += PGM_LANES) {
        pgm_eight_sums(p, e, factor, b, t, s);
        for (int i = 0; i < PGM_OCTET; i++) product[i] *= s[i];
        if (--left == 0 || (t + PGM_LANES == b->size && b->size > p->every)) {
            for (int i = 0; i < PGM_OCTET; i++) pgm_extract(product + i, exponent + i);
            left = p->every;
            taken++;
        }
    }
    PGM_ACROSS(product, *); /* the lanes of a narrow block cannot overflow together */
    if (taken) PGM_ACROSS(exponent, +);
    pgm_extract(product, &last);
    *mantissa = product[0];
    return __builtin_convertvector(exponent[0] + last - 1023 * (PGM_LANES * taken + 1), pgm_v8) * PGM_LN2;
}

PGM_INLINE pgm_v8 pgm_eight_blocks(const pgm_problem *p, double *e, const double *factor, pgm_v8 *mantissa)
{
    pgm_v8 total = pgm_all(0.0), m;
    *mantissa = pgm_all(1.0);
    for (int64_t b = 0; b < p->blocks; b++) {
        pgm_v8 part = pgm_eight_products(p, e, factor, p->block + b, &m);
        if (p->block[b].power == 1.0 && b < 1000) { /* 2^1000 is a number yet */
            *mantissa *= m;
            total += part;
        } else
            total += p->block[b].power * (pgm_log8(m) + part);
    }
    return total;
}

/* weight_i / s_i for four states: one division, where the product of the four cannot overflow */
PGM_INLINE void pgm_four_shares(const pgm_v8 *weight, pgm_v8 *s)
{
    pgm_v8 low = s[0] * s[1], high = s[2] * s[3], inverse = 1.0 / (low * high);
    pgm_v8 zero = weight[0] * s[1], one = weight[1] * s[0], two = weight[2] * s[3], three = weight[3] * s[2];
    low *= inverse;
    high *= inverse;
    s[0] = zero * high;
    s[1] = one * high;
    s[2] = two * low;
    s[3] = three * low;
}

/* sums += weights * probabilities, and indicators */
PGM_INLINE void pgm_eight_moments(const pgm_problem *p, const pgm_work *w, pgm_v8 weights)
{
    pgm_v8 s[PGM_OCTET], x[PGM_OCTET], weight[PGM_OCTET];
    for (int i = 0; i < PGM_OCTET; i++) weight[i] = pgm_all(weights[i]);
    for (int64_t b = 0; b < p->blocks; b++) {
        const pgm_block *k = p->block + b;
        for (int64_t t = 0; t < k->size; t += PGM_LANES) {
            pgm_eight_sums(p, w->e, NULL, k, t, s);
            if (p->every >= 4) {
                pgm_four_shares(weight, s);
                pgm_four_shares(weight + 4, s + 4);
            } else
                for (int i = 0; i < PGM_OCTET; i++) s[i] = weight[i] / s[i];
            for (int64_t c = k->start + t; c < k->start + k->terms * k->size; c += k->size) {
                pgm_eight(p, *(const pgm_v8 *)(w->e + c), c, x);
                pgm_v8 even = x[0] * s[0] + x[2] * s[2], odd = x[1] * s[1] + x[3] * s[3];
                even += x[4] * s[4] + x[6] * s[6];
                odd += x[5] * s[5] + x[7] * s[7];
                *(pgm_v8 *)(w->sums + c) += even + odd;
            }
        }
    }
    double *on = w->sums + p->components, all = pgm_total(weights);
    for (int64_t j = 0; j < PGM_INNER; j++) on[j] += pgm_total(weights * PGM_ON[j]);
    for (int64_t i = PGM_INNER; i < p->units; i++)
        if (w->state[i] > 0) on[p->first[i] + w->state[i] - 1] += all;
}

/* how the log weights of the eight states, less the blocks, change in a move of an outer unit */
PGM_INLINE pgm_v8 pgm_eight_change(const pgm_problem *p, const pgm_work *w, int64_t indicator)
{
    pgm_v8 change = pgm_all(w->field[indicator]);
    for (int64_t j = 0; j < PGM_INNER; j++) change += p->pair[indicator * p->indicators + j] * PGM_ON[j];
    return change;
}

/* the first eight states: their log weights less the blocks */
PGM_INLINE pgm_v8 pgm_first_eight(const pgm_problem *p, pgm_work *w, double constant, int64_t index)
{
    pgm_v8 base = pgm_all(constant + pgm_start(p, w, index / PGM_OCTET, PGM_INNER));
    for (int64_t j = 0; j < PGM_INNER; j++) {
        base += w->field[j] * PGM_ON[j];
        for (int64_t i = 0; i < j; i++) base += p->pair[i * p->indicators + j] * PGM_ON[i] * PGM_ON[j];
    }
    return base;
}

/* pgm_gray_walk for `count` states from `index`, both multiples of eight, without log weights, and with no moments but the
 * first */
PGM_CLONES
double pgm_octet_walk(const pgm_problem *p, pgm_work *w, double constant, int64_t index, int64_t count, int moments,
                      double *scale)
{
    int64_t n = p->components + p->indicators;
    pgm_v8 base = pgm_first_eight(p, w, constant, index), sum = pgm_all(0.0), mantissa;
    double reference = -INFINITY;
    const double *factor = NULL;
    if (moments) memset(w->sums, 0, sizeof(double) * n);
    for (int64_t step = 0; step < count; step += PGM_OCTET) {
        if (step) {
            pgm_move m = pgm_turn(p, w, PGM_INNER);
            if (m.leave >= 0) base -= pgm_eight_change(p, w, m.leave);
            if (m.enter >= 0) base += pgm_eight_change(p, w, m.enter);
            pgm_pass_on(p, w, m);
            factor = m.factor;
        }
        pgm_v8 lw = base + pgm_eight_blocks(p, w->e, factor, &mantissa);
        if (pgm_any((pgm_v8)(lw > reference))) { /* first or rare: bring all sums to the new scale */
            double top = pgm_greatest(lw) + 50.0, change = exp(reference - top);
            sum *= change;
            if (moments)
                for (int64_t c = 0; c < n; c++) w->sums[c] *= change;
            reference = top;
        }
        pgm_v8 weight = pgm_exp8(lw - reference) * mantissa;
        sum += weight;
        if (moments) pgm_eight_moments(p, w, weight);
    }
    *scale = reference;
    return reference + log(pgm_total(sum));
}

#endif
