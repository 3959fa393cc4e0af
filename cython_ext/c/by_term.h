/* Rounds of single rows, with terms as lanes ("by term"), for the mean field of belief.h.
 *
 * A block of few rows would leave most lanes empty. Its rows are then computed one after the other
 * on a second graph (pgm_net in routines.h), in which up to PGM_LANES terms of one kind are a
 * group. The arrays of units are repeated in all lanes, and each lane of a group's arrays belongs
 * to a term. The numbers of the row are copied from its lane of the block before the rounds, and
 * back after them. Sums over the terms of a unit become sums over lanes, so that answers differ from
 * those with rows as lanes by rounding alone, and each row ends its rounds by itself.
 *
 * Tests: test_by_term.py (against rows as lanes).
 */
#ifndef PGM_BY_TERM_H
#define PGM_BY_TERM_H

#include "net.h"

/* Copy the lane of `count` numbers of a block to all lanes of a row, or back. The last row of a
 * block also fills the lanes behind it. */
PGM_INLINE void pgm_copy_items(pgm_vd *own, pgm_vd *row, int64_t count, int lane, int fills,
                               int back)
{
    for (int64_t k = 0; k < count; k++) {
        if (!back) row[k] = pgm_splat_d(own[k][lane]);
        for (int i = lane; back && i < (fills ? PGM_LANES : lane + 1); i++) own[k][i] = row[k][0];
    }
}

/* Copy the lane of `count` numbers of term t to the lane of the term, or back. first: of each
 * group; NULL if a group has one number. */
PGM_INLINE void pgm_copy_term(const pgm_net *g, int64_t t, pgm_vd *own, pgm_vd *groups,
                              const int64_t *first, int64_t count, int lane, int fills, int back)
{
    const int64_t group = g->own_term[t] / PGM_LANES, place = g->own_term[t] % PGM_LANES;
    pgm_vd *to = groups + (first ? first[group] : group);
    for (int64_t k = 0; k < count; k++) {
        if (!back) ((double *)(to + k))[place] = own[k][lane];
        for (int i = lane; back && i < (fills ? PGM_LANES : lane + 1); i++)
            own[k][i] = to[k][place];
    }
}

/* the vectors in which the arrays of a row are stored */
PGM_INLINE int64_t pgm_row_room(const pgm_net *g)
{
    return 2 * g->states + 2 * g->comps + g->units + 1 + g->tables + 3 * g->terms
           + 4 * g->term_comps + g->term_states;
}

/* Place the arrays of a row in `room`, pgm_row_room vectors. Lanes without a term have 0. */
static pgm_rows pgm_row_at(const pgm_net *g, const pgm_rows *block, pgm_vd *room)
{
    pgm_rows row = *block;
    memset(room, 0, sizeof(pgm_vd) * (size_t)pgm_row_room(g));
    row.log_q = room, row.q = room += g->states, row.mean = room += g->states;
    row.base = room += g->comps, row.open = room += g->comps, row.beta = room += g->units;
    row.power = room += 1, row.live = room += g->tables;
    row.on = room += g->terms, row.f = room += g->terms, row.still = room += g->terms;
    row.pull = room += g->term_comps, row.xi = room += g->term_comps;
    row.input = room += g->term_comps, row.phi = room + g->term_comps;
    return row;
}

/* Copy a lane of a block of graph n to the arrays of a row of graph g; or back, what rounds change.
 */
static void pgm_copy_row(const pgm_net *n, const pgm_net *g, const pgm_rows *block,
                         const pgm_rows *row, int lane, int fills, int back)
{
#define PGM_ITEMS(array, count) \
    pgm_copy_items((pgm_vd *)block->array, (pgm_vd *)row->array, count, lane, fills, back)
#define PGM_TERM(array, at, first, count)                                                      \
    pgm_copy_term(g, t, (pgm_vd *)block->array + (at), (pgm_vd *)row->array, first, count, lane, \
                  fills, back)
    PGM_ITEMS(log_q, n->states);
    PGM_ITEMS(q, n->states);
    PGM_ITEMS(mean, n->comps);
    if (!back) {
        PGM_ITEMS(base, n->comps);
        PGM_ITEMS(open, n->units);
        PGM_ITEMS(beta, 1);
        PGM_ITEMS(power, n->tables);
    }
    for (int64_t t = 0; t < n->terms; t++) {
        const pgm_kind *kind = n->kind + n->term_kind[t];
        PGM_TERM(on, t, NULL, 1);
        PGM_TERM(f, t, NULL, 1);
        PGM_TERM(pull, n->term_comp[t], g->term_comp, kind->width);
        PGM_TERM(xi, n->term_comp[t], g->term_comp, kind->width);
        PGM_TERM(input, n->term_comp[t], g->term_comp, kind->width);
        PGM_TERM(phi, n->term_state[t], g->term_state, kind->states);
        if (back) continue;
        PGM_TERM(live, t, NULL, 1);
        PGM_TERM(still, n->term_comp[t], g->term_comp, kind->width);
    }
}

#endif
