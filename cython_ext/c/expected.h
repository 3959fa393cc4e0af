/* Expectations of tables under a product of units, for the rounds of belief.h.
 *
 * A table T over the units u_0, ..., u_m adds power E_Q[log T] to the bound. To the log weight of
 * state k of one of its units it adds the expectation over the others,
 *     power E_Q[log T | u = k] = power sum_(x with u = k) log T(x) prod_(others) q(x).
 * The enumeration stores the products of the leading axes, and skips states that have probability 0
 * in all lanes, for example because the evidence excludes them.
 *
 * An entry of log T may be -inf. It counts if its product of probabilities is positive, and not if
 * the product is 0. The products at such entries are added up separately (`dead`), because -inf
 * times 0 is NaN. A state whose sum is positive gets the probability 0, which raises the bound from
 * -inf. Probabilities below
 * `cut` are set to 0 in tables with such entries, so that no product of probabilities above 0
 * underflows.
 *
 * Layout: see pgm_net and pgm_batch in routines.h; lanes are rows of evidence.
 *
 * Reference: `expected_tables` in tests/bound_oracle.py.
 */
#ifndef PGM_EXPECTED_H
#define PGM_EXPECTED_H

#include <math.h>

#include "net.h"

/* A position in the enumeration of the states of all axes of a table except the last. */
typedef struct {
    int axes, own; /* axes except the last; the axis that the product leaves out, or -1 */
    int64_t at;    /* the entry at these states, and state 0 of the last axis */
    int states[PGM_MOST_AXES], digit[PGM_MOST_AXES];
    int64_t stride[PGM_MOST_AXES];
    const pgm_vd *q[PGM_MOST_AXES];
    pgm_vd product[PGM_MOST_AXES];
} pgm_place;

/* Go to the next states whose product is positive, including the current ones; axis d and the axes
 * after it have new digits. Returns 0 at the end. */
PGM_INLINE int pgm_forth(pgm_place *p, int d)
{
    while (d < p->axes) {
        if (p->digit[d] == p->states[d]) {
            p->at -= p->stride[d] * p->states[d];
            p->digit[d] = 0;
            if (d-- == 0) return 0;
        } else {
            p->product[d + 1] = p->product[d];
            if (d != p->own) p->product[d + 1] *= p->q[d][p->digit[d]];
            if (pgm_any_d(p->product[d + 1])) {
                d++;
                continue;
            }
        }
        p->digit[d]++;
        p->at += p->stride[d];
    }
    return 1;
}

/* Begin the enumeration of a table; products begin with `power`. */
PGM_INLINE int pgm_begin(const pgm_net *n, const pgm_rows *r, int64_t f, int own, pgm_vd power,
                         pgm_place *p)
{
    const int64_t first = n->table_start[f];
    p->axes = (int)(n->table_start[f + 1] - first) - 1;
    p->own = own;
    p->at = n->table_entry[f];
    for (int d = 0; d < p->axes; d++) {
        const int64_t u = n->axis_unit[first + d];
        p->states[d] = n->kind[n->unit_kind[u]].states;
        p->stride[d] = n->axis_stride[first + d];
        p->digit[d] = 0;
        p->q[d] = r->q + n->unit_state[u];
    }
    p->product[0] = power;
    return pgm_any_d(power) && pgm_forth(p, 0);
}

/* Go to the next states. */
PGM_INLINE int pgm_next(pgm_place *p)
{
    if (!p->axes) return 0;
    p->digit[p->axes - 1]++;
    p->at += p->stride[p->axes - 1];
    return pgm_forth(p, p->axes - 1);
}

/* Add by max(log T, least) to the expectation; at an entry of 0, add `by` to the mass instead. */
PGM_INLINE void pgm_add_entry(double entry, double least, pgm_vd by, pgm_vd *gain, pgm_vd *dead)
{
    entry = entry > least ? entry : least;
    if (entry > -INFINITY)
        *gain += by * entry;
    else
        *dead += by;
}

/* Add the terms of an axis's table to the log weights of the unit's states, and the mass that each
 * state puts on entries of 0. */
PGM_INLINE void pgm_expect(const pgm_net *n, const pgm_rows *r, int64_t axis, pgm_vd *gain,
                           pgm_vd *dead)
{
    const int64_t f = n->axis_table[axis], end = n->table_start[f + 1] - 1;
    const int own = axis == end ? -1 : (int)(axis - n->table_start[f]);
    const int64_t u = n->axis_unit[end];
    const int states = n->kind[n->unit_kind[u]].states;
    const pgm_vd *q = r->q + n->unit_state[u];
    pgm_place p;
    for (int more = pgm_begin(n, r, f, own, r->power[f], &p); more; more = pgm_next(&p)) {
        const double *entry = n->entry + p.at;
        const pgm_vd by = p.product[p.axes];
        for (int k = 0; k < states; k++) {
            if (own < 0)
                pgm_add_entry(entry[k], r->least, by, gain + k, dead + k);
            else
                pgm_add_entry(entry[k], r->least, by * q[k], gain + p.digit[own],
                              dead + p.digit[own]);
        }
    }
}

/* power E_Q[log T] of a table; -inf where Q has mass on an entry of 0. */
PGM_INLINE pgm_vd pgm_table_value(const pgm_net *n, const pgm_rows *r, int64_t f)
{
    const int64_t u = n->axis_unit[n->table_start[f + 1] - 1];
    const pgm_vd *q = r->q + n->unit_state[u];
    pgm_vd value = pgm_splat_d(0.0), dead = pgm_splat_d(0.0);
    pgm_place p;
    for (int more = pgm_begin(n, r, f, -1, r->power[f], &p); more; more = pgm_next(&p))
        for (int k = 0; k < n->kind[n->unit_kind[u]].states; k++)
            pgm_add_entry(n->entry[p.at + k], -INFINITY, p.product[p.axes] * q[k], &value, &dead);
    return pgm_select_d(dead > 0.0, pgm_splat_d(-INFINITY), value);
}

/* Add the expected indicators of the entries of a table, times the weights of the rows. */
static void pgm_table_counts(const pgm_net *n, const pgm_rows *r, int64_t f, pgm_vd weights,
                             double *count)
{
    const int64_t u = n->axis_unit[n->table_start[f + 1] - 1];
    const pgm_vd *q = r->q + n->unit_state[u];
    pgm_place p;
    for (int more = pgm_begin(n, r, f, -1, r->power[f], &p); more; more = pgm_next(&p))
        for (int k = 0; k < n->kind[n->unit_kind[u]].states; k++)
            count[p.at + k] += pgm_hsum_d(p.product[p.axes] * q[k] * weights);
}

#endif
