/* The enumeration of gray.h for a bunch of states at a time, and the routine that runs a job.
 *
 * A bunch has as many states as a vector has lanes. It consists of all states of the first (inner)
 * units, which must have two states each. The Gray code goes over the other (outer) units. The
 * components of a state are the components of the first state of its bunch, times factors that
 * never change. They stay in registers, and a state costs three operations for each vector of
 * components. Only log sums and first moments can be computed in this way, and complement blocks
 * are not supported; pgm_in_bunches tells whether a job qualifies.
 *
 * Reference: NumpyEnumerator in pgmengine/infer/exact/enumeration/numpy_enumerator.py
 * (test_enumeration.py).
 */
#ifndef PGM_BUNCHES_H
#define PGM_BUNCHES_H

#include "gray.h"

enum { PGM_BUNCH = PGM_LANES, PGM_INNER = PGM_LANES == 8 ? 3 : PGM_LANES == 4 ? 2 : 1 };

/* 1 in the states of a bunch in which an inner unit is 1, else 0 */
PGM_INLINE pgm_vd pgm_on(int64_t unit)
{
    static const double on[3][8] = {
        {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}};
    return *(const pgm_vd *)on[unit];
}

/* whether `count` states from `index` on can be enumerated in bunches */
PGM_INLINE int pgm_in_bunches(const pgm_problem *p, int64_t index, int64_t count)
{
    if (p->units < PGM_INNER || index % PGM_BUNCH || count % PGM_BUNCH) return 0;
    for (int64_t i = 0; i < PGM_INNER; i++)
        if (p->states[i] != 2) return 0;
    for (int64_t b = 0; b < p->blocks; b++)
        if (p->block[b].complement) return 0;
    return 1;
}

/* the components at c of all states of a bunch, from the components of its first state */
PGM_INLINE void pgm_bunch(const pgm_problem *p, pgm_vd first, int64_t c, pgm_vd x[PGM_BUNCH])
{
    x[0] = first;
    for (int64_t j = 0; j < PGM_INNER; j++)
        for (int i = 0; i < 1 << j; i++)
            x[(1 << j) + i] = x[i] * *(const pgm_vd *)(p->up + j * p->components + c);
}

/* the sums 1 + sum_k e_kt of the states; first multiplies the components by a factor, if given */
PGM_INLINE void pgm_bunch_sums(const pgm_problem *p, double *e, const double *factor,
                               const pgm_block *b, int64_t t, pgm_vd s[PGM_BUNCH])
{
    pgm_vd x[PGM_BUNCH];
    for (int i = 0; i < PGM_BUNCH; i++) s[i] = pgm_splat_d(1.0);
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

/* for each state of a bunch the log of prod_t (1 + sum_k e_kt), less the log of *mantissa, which is
 * below 2 */
PGM_INLINE pgm_vd pgm_bunch_products(const pgm_problem *p, double *e, const double *factor,
                                     const pgm_block *b, pgm_vd *mantissa)
{
    pgm_vd product[PGM_BUNCH], s[PGM_BUNCH];
    pgm_vl exponent[PGM_BUNCH], last = {0};
    int64_t taken = 0;
    int left = p->every;
    for (int i = 0; i < PGM_BUNCH; i++) {
        product[i] = pgm_splat_d(1.0);
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
    /* the product over the lanes of a narrow block cannot overflow */
    PGM_REDUCE(product, *);
    if (taken) PGM_REDUCE(exponent, +);
    pgm_extract(product, &last);
    *mantissa = product[0];
    return __builtin_convertvector(exponent[0] + last - 1023 * (PGM_LANES * taken + 1), pgm_vd)
           * PGM_LN2;
}

PGM_INLINE pgm_vd pgm_bunch_blocks(const pgm_problem *p, double *e, const double *factor,
                                   pgm_vd *mantissa)
{
    pgm_vd total = pgm_splat_d(0.0), m;
    *mantissa = pgm_splat_d(1.0);
    for (int64_t b = 0; b < p->blocks; b++) {
        pgm_vd part = pgm_bunch_products(p, e, factor, p->block + b, &m);
        /* a product of 1000 mantissas below 2 does not overflow */
        if (p->block[b].power == 1.0 && b < 1000) {
            *mantissa *= m;
            total += part;
        } else
            total += p->block[b].power * (pgm_log_d(m) + part);
    }
    return total;
}

/* weight_i / s_i for four states by one division; the product of the four s_i does not overflow */
PGM_INLINE void pgm_four_shares(const pgm_vd *weight, pgm_vd *s)
{
    pgm_vd low = s[0] * s[1], high = s[2] * s[3], inverse = 1.0 / (low * high);
    pgm_vd zero = weight[0] * s[1], one = weight[1] * s[0], two = weight[2] * s[3],
           three = weight[3] * s[2];
    low *= inverse;
    high *= inverse;
    s[0] = zero * high;
    s[1] = one * high;
    s[2] = two * low;
    s[3] = three * low;
}

/* w->sums += weights * (probabilities, indicators) */
PGM_INLINE void pgm_bunch_moments(const pgm_problem *p, const pgm_work *w, pgm_vd weights)
{
    pgm_vd s[PGM_BUNCH], x[PGM_BUNCH], weight[PGM_BUNCH];
    for (int i = 0; i < PGM_BUNCH; i++) weight[i] = pgm_splat_d(weights[i]);
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
    double *on = w->sums + p->components, all = pgm_hsum_d(weights);
    for (int64_t j = 0; j < PGM_INNER; j++) on[j] += pgm_hsum_d(weights * pgm_on(j));
    for (int64_t i = PGM_INNER; i < p->units; i++)
        if (w->state[i] > 0) on[p->first[i] + w->state[i] - 1] += all;
}

/* the change of the log weights of the states, without the blocks, if an indicator of an outer unit
 * becomes 1 */
PGM_INLINE pgm_vd pgm_bunch_change(const pgm_problem *p, const pgm_work *w, int64_t indicator)
{
    pgm_vd change = pgm_splat_d(w->field[indicator]);
    for (int64_t j = 0; j < PGM_INNER; j++)
        change += p->pair[indicator * p->indicators + j] * pgm_on(j);
    return change;
}

/* Set the first bunch of states; returns their log weights without the blocks. */
PGM_INLINE pgm_vd pgm_first_bunch(const pgm_problem *p, pgm_work *w, int64_t index)
{
    pgm_vd base = pgm_splat_d(pgm_start(p, w, index / PGM_BUNCH, PGM_INNER));
    for (int64_t j = 0; j < PGM_INNER; j++) {
        base += w->field[j] * pgm_on(j);
        for (int64_t i = 0; i < j; i++)
            base += p->pair[i * p->indicators + j] * pgm_on(i) * pgm_on(j);
    }
    return base;
}

/* pgm_gray_walk for `count` states from `index`, both multiples of PGM_BUNCH, with first moments or
 * none */
static double pgm_bunch_walk(const pgm_problem *p, pgm_work *w, int64_t index, int64_t count,
                             int moments, double *scale, double *mass)
{
    int64_t n = p->components + p->indicators;
    pgm_vd base = pgm_first_bunch(p, w, index), sum = pgm_splat_d(0.0), mantissa;
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
        /* at the first bunch, and rarely later: rescale all sums */
        if (pgm_any_l(lw > reference)) {
            double top = pgm_hmax_d(lw) + 50.0, change = exp(reference - top);
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
    *mass = pgm_hsum_d(sum);
    return reference + log(*mass);
}

/* Enumerate the states of a job in pieces, and add up moments and mass at a common scale. Moments
 * divided by the mass are expectations, even if the log weights have few correct digits. */
static void pgm_walk(pgm_walk_job *j)
{
    /* local copies, because the compiler knows that no store changes them: 6 % faster */
    const pgm_problem problem = j->problem, *p = &problem;
    pgm_work work = j->work, *w = &work;
    const int64_t n = p->components + p->indicators;
    const int64_t size = n * (j->moments == PGM_EACH_MOMENT ? 1 + p->indicators : j->moments);
    const int bunches = j->moments != PGM_EACH_MOMENT && !j->log_weights && !j->best
                        && j->step % PGM_BUNCH == 0 && pgm_in_bunches(p, j->start, j->count);
    for (int64_t done = 0, piece = 0; done < j->count; done += j->step, piece++) {
        const int64_t index = j->start + done, length = pgm_min_l(j->step, j->count - done);
        double scale, mass, *log_weights = j->log_weights ? j->log_weights + done : NULL;
        if (bunches)
            j->log_sums[piece] = pgm_bunch_walk(p, w, index, length, j->moments, &scale, &mass);
        else
            j->log_sums[piece] =
                pgm_gray_walk(p, w, index, length, j->moments, j->best, log_weights, &scale, &mass);
        if (!j->moments || scale == -INFINITY) continue;
        if (scale > j->scale) {
            const double keep = exp(j->scale - scale);
            for (int64_t c = 0; c < size; c++) j->sums[c] *= keep;
            j->mass *= keep;
            j->scale = scale;
        }
        const double factor = exp(scale - j->scale);
        for (int64_t c = 0; c < size; c++) j->sums[c] += factor * w->sums[c];
        j->mass += factor * mass;
    }
}

#endif
