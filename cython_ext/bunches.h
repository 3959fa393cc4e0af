/* The walk of gray.h, a bunch of states at a time, as many as a vector has lanes: those of the first units, which have
 * two states each, while the Gray code goes over the others. The components of a bunch are products of those of its first
 * state with factors that never change, so they stay in registers, and a state costs three operations for each vector of
 * components.
 */
#ifndef PGM_BUNCHES_H
#define PGM_BUNCHES_H

#include "gray.h"

enum { PGM_BUNCH = PGM_LANES, PGM_INNER = PGM_LANES == 8 ? 3 : PGM_LANES == 4 ? 2 : 1 };

/* in which states of a bunch an inner unit is on */
PGM_INLINE pgm_vd pgm_on(int64_t unit)
{
    static const double on[3][8] = {{0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}};
    return *(const pgm_vd *)on[unit];
}

/* whether a walk from `index` over `count` states can be made so */
PGM_INLINE int pgm_in_bunches(const pgm_problem *p, int64_t index, int64_t count)
{
    if (p->units < PGM_INNER || index % PGM_BUNCH || count % PGM_BUNCH) return 0;
    for (int64_t i = 0; i < PGM_INNER; i++)
        if (p->states[i] != 2) return 0;
    for (int64_t b = 0; b < p->blocks; b++)
        if (p->block[b].complement) return 0;
    return 1;
}

/* the components at c of the states of a bunch, from those of the first */
PGM_INLINE void pgm_bunch(const pgm_problem *p, pgm_vd first, int64_t c, pgm_vd x[PGM_BUNCH])
{
    x[0] = first;
    for (int64_t j = 0; j < PGM_INNER; j++)
        for (int i = 0; i < 1 << j; i++) x[(1 << j) + i] = x[i] * *(const pgm_vd *)(p->up + j * p->components + c);
}

/* the sums 1 + sum_k e_kt of the states; the components are first brought up to date if there is a factor */
PGM_INLINE void pgm_bunch_sums(const pgm_problem *p, double *e, const double *factor, const pgm_block *b, int64_t t,
                               pgm_vd s[PGM_BUNCH])
{
    pgm_vd x[PGM_BUNCH];
    for (int i = 0; i < PGM_BUNCH; i++) s[i] = pgm_all(1.0);
    for (int k = 0; k < b->terms; k++) {
        int64_t c = b->start + k * b->size + t;
        pgm_vd first = *(const pgm_vd *)(e + c);
        if (factor) {
            first *= *(const pgm_vd *)(factor + c);
            *(pgm_vd *)(e + c) = first;
        }
        pgm_bunch(p, first, c, x);
        for (int i = 0; i < PGM_BUNCH; i++) s[i] += x[i];
    }
}

/* runs of `by` lanes: the first of each two of a pair of vectors, and the second ones */
#define PGM_FIRST(j, by) ((j) / (by) % 2 ? PGM_LANES + (j) - (by) : (j))
#define PGM_SECOND_OF(j, by) ((j) / (by) % 2 ? PGM_LANES + (j) : (j) + (by))
#if PGM_LANES == 8
#define PGM_EACH(f, by) \
    (pgm_vl){f(0, by), f(1, by), f(2, by), f(3, by), f(4, by), f(5, by), f(6, by), f(7, by)}
#elif PGM_LANES == 4
#define PGM_EACH(f, by) (pgm_vl){f(0, by), f(1, by), f(2, by), f(3, by)}
#else
#define PGM_EACH(f, by) (pgm_vl){f(0, by), f(1, by)}
#endif

#define PGM_ACROSS_BY(x, by, op)                                                          \
    for (int i = 0; i + by < PGM_LANES; i += 2 * by)                                      \
        x[i] = __builtin_shuffle(x[i], x[i + by], PGM_EACH(PGM_FIRST, by))                \
            op __builtin_shuffle(x[i], x[i + by], PGM_EACH(PGM_SECOND_OF, by))

/* lane i of x[0] becomes all lanes of x[i], by the operation */
#define PGM_ACROSS(x, op)        \
    do {                         \
        PGM_ACROSS_BY(x, 1, op); \
        PGM_ACROSS_BY(x, 2, op); \
        PGM_ACROSS_BY(x, 4, op); \
    } while (0)

/* for each state of a bunch the log of prod_t (1 + sum_k e_kt), less the log of *mantissa, which is below 2 */
PGM_INLINE pgm_vd pgm_bunch_products(const pgm_problem *p, double *e, const double *factor, const pgm_block *b,
                                     pgm_vd *mantissa)
{
    pgm_vd product[PGM_BUNCH], s[PGM_BUNCH];
    pgm_vl exponent[PGM_BUNCH], last = {0};
    int64_t taken = 0;
    int left = p->every;
    for (int i = 0; i < PGM_BUNCH; i++) {
        product[i] = pgm_all(1.0);
        exponent[i] = (pgm_vl){0};
    }
    for (int64_t t = 0; t < b->size; t += PGM_LANES) {
        pgm_bunch_sums(p, e, factor, b, t, s);
        for (int i = 0; i < PGM_BUNCH; i++) product[i] *= s[i];
        if (--left == 0 || (t + PGM_LANES == b->size && b->size > p->every)) {
            for (int i = 0; i < PGM_BUNCH; i++) pgm_extract(product + i, exponent + i);
            left = p->every;
            taken++;
        }
    }
    PGM_ACROSS(product, *); /* the lanes of a narrow block cannot overflow together */
    if (taken) PGM_ACROSS(exponent, +);
    pgm_extract(product, &last);
    *mantissa = product[0];
    return __builtin_convertvector(exponent[0] + last - 1023 * (PGM_LANES * taken + 1), pgm_vd) * PGM_LN2;
}

PGM_INLINE pgm_vd pgm_bunch_blocks(const pgm_problem *p, double *e, const double *factor, pgm_vd *mantissa)
{
    pgm_vd total = pgm_all(0.0), m;
    *mantissa = pgm_all(1.0);
    for (int64_t b = 0; b < p->blocks; b++) {
        pgm_vd part = pgm_bunch_products(p, e, factor, p->block + b, &m);
        if (p->block[b].power == 1.0 && b < 1000) { /* 2^1000 is a number yet */
            *mantissa *= m;
            total += part;
        } else
            total += p->block[b].power * (pgm_log_d(m) + part);
    }
    return total;
}

/* weight_i / s_i for four states: one division, where the product of the four cannot overflow */
PGM_INLINE void pgm_four_shares(const pgm_vd *weight, pgm_vd *s)
{
    pgm_vd low = s[0] * s[1], high = s[2] * s[3], inverse = 1.0 / (low * high);
    pgm_vd zero = weight[0] * s[1], one = weight[1] * s[0], two = weight[2] * s[3], three = weight[3] * s[2];
    low *= inverse;
    high *= inverse;
    s[0] = zero * high;
    s[1] = one * high;
    s[2] = two * low;
    s[3] = three * low;
}

/* sums += weights * probabilities, and indicators */
PGM_INLINE void pgm_bunch_moments(const pgm_problem *p, const pgm_work *w, pgm_vd weights)
{
    pgm_vd s[PGM_BUNCH], x[PGM_BUNCH], weight[PGM_BUNCH];
    for (int i = 0; i < PGM_BUNCH; i++) weight[i] = pgm_all(weights[i]);
    for (int64_t b = 0; b < p->blocks; b++) {
        const pgm_block *k = p->block + b;
        for (int64_t t = 0; t < k->size; t += PGM_LANES) {
            pgm_bunch_sums(p, w->e, NULL, k, t, s);
            if (p->every >= 4 && PGM_BUNCH >= 4)
                for (int i = 0; i < PGM_BUNCH; i += 4) pgm_four_shares(weight + i, s + i);
            else
                for (int i = 0; i < PGM_BUNCH; i++) s[i] = weight[i] / s[i];
            for (int64_t c = k->start + t; c < k->start + k->terms * k->size; c += k->size) {
                pgm_bunch(p, *(const pgm_vd *)(w->e + c), c, x);
                pgm_vd sums[2] = {{0}, {0}};
                for (int i = 0; i < PGM_BUNCH; i++) sums[i % 2] += x[i] * s[i];
                *(pgm_vd *)(w->sums + c) += sums[0] + sums[1];
            }
        }
    }
    double *on = w->sums + p->components, all = pgm_total(weights);
    for (int64_t j = 0; j < PGM_INNER; j++) on[j] += pgm_total(weights * pgm_on(j));
    for (int64_t i = PGM_INNER; i < p->units; i++)
        if (w->state[i] > 0) on[p->first[i] + w->state[i] - 1] += all;
}

/* how the log weights of the states, less the blocks, change in a move of an outer unit */
PGM_INLINE pgm_vd pgm_bunch_change(const pgm_problem *p, const pgm_work *w, int64_t indicator)
{
    pgm_vd change = pgm_all(w->field[indicator]);
    for (int64_t j = 0; j < PGM_INNER; j++) change += p->pair[indicator * p->indicators + j] * pgm_on(j);
    return change;
}

/* the first bunch of states: their log weights less the blocks */
PGM_INLINE pgm_vd pgm_first_bunch(const pgm_problem *p, pgm_work *w, double constant, int64_t index)
{
    pgm_vd base = pgm_all(constant + pgm_start(p, w, index / PGM_BUNCH, PGM_INNER));
    for (int64_t j = 0; j < PGM_INNER; j++) {
        base += w->field[j] * pgm_on(j);
        for (int64_t i = 0; i < j; i++) base += p->pair[i * p->indicators + j] * pgm_on(i) * pgm_on(j);
    }
    return base;
}

/* pgm_gray_walk for `count` states from `index`, both multiples of PGM_BUNCH, without log weights, and with no moments but
 * the first */
static double pgm_bunch_walk(const pgm_problem *p, pgm_work *w, double constant, int64_t index, int64_t count,
                             int moments, double *scale)
{
    int64_t n = p->components + p->indicators;
    pgm_vd base = pgm_first_bunch(p, w, constant, index), sum = pgm_all(0.0), mantissa;
    double reference = -INFINITY;
    const double *factor = NULL;
    if (moments) memset(w->sums, 0, sizeof(double) * n);
    for (int64_t step = 0; step < count; step += PGM_BUNCH) {
        if (step) {
            pgm_move m = pgm_turn(p, w, PGM_INNER);
            if (m.leave >= 0) base -= pgm_bunch_change(p, w, m.leave);
            if (m.enter >= 0) base += pgm_bunch_change(p, w, m.enter);
            pgm_pass_on(p, w, m);
            factor = m.factor;
        }
        pgm_vd lw = base + pgm_bunch_blocks(p, w->e, factor, &mantissa);
        if (pgm_any((pgm_vd)(lw > reference))) { /* first or rare: bring all sums to the new scale */
            double top = pgm_greatest(lw) + 50.0, change = exp(reference - top);
            sum *= change;
            if (moments)
                for (int64_t c = 0; c < n; c++) w->sums[c] *= change;
            reference = top;
        }
        pgm_vd weight = pgm_exp_d(lw - reference) * mantissa;
        sum += weight;
        if (moments) pgm_bunch_moments(p, w, weight);
    }
    *scale = reference;
    return reference + log(pgm_total(sum));
}

#endif
