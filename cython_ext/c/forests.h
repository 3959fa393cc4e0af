/* Exact draws of random forests of units, given all others (Hamze and de Freitas 2004).
 *
 * Two units are neighbours if a coupling, a table or the conditional of a child joins them. A
 * forest is a set of free units in which neighbours form no cycle, so that each factor has at most
 * two of them, a unit and its parent. It is drawn without a look at the states: units in random
 * order join it unless they would close a cycle. The first unit of each tree is its root. All
 * chains have the same forest, and random numbers of their own in it.
 *
 * With the factors f_c(x_c, x_p) that have unit c but none of its children in the forest, given the
 * states of the units outside, the collecting pass goes from the leaves to the roots,
 *     heard_p(x_p) = sum over children c of log sum_(x_c) exp(f_c(x_c, x_p) + heard_c(x_c)),
 * and the drawing pass from the roots to the leaves, x_c ~ exp(f_c(x_c, x_p) + heard_c(x_c)). f_c
 * comes from the routines of single visits (tabled.h) once for each state of the parent, which is
 * written into the chain meanwhile. Couplings to children are left out as their values are 0 until
 * they are drawn; tables and conditionals with a child are skipped. Conditionals of c count with
 * their normalisers, which depend on x_p.
 *
 * -inf is replaced by PGM_NEVER, so that sums stay finite: no state of log weight below another one
 * by more than PGM_FAR is drawn, and where all states of a tree are impossible, it moves to one of
 * those with the fewest impossible factors.
 *
 * Random numbers: layer 1 of the generator has the uniform of place i of the order in word i % 4 of
 * counter i / 4; layer 2 has the order in which units join.
 *
 * Reference: tests/engine/test_forests.py, which sums over all joint states of a forest.
 */
#ifndef PGM_FORESTS_H
#define PGM_FORESTS_H

#include <stdlib.h>

#define PGM_NEVER -1e30f
#define PGM_FAR 80.0f

/* of units that are not (yet) children in a forest; the parents of others are numbers of units */
enum { PGM_ROOT = -1, PGM_JOINED = -2, PGM_OUTSIDE = -3 };

/* A forest, and what its units have heard from their children, in one vector of chains. */
typedef struct {
    int32_t *above; /* (units) parent, or one of the above */
    int32_t *order; /* (count) parents before children */
    int32_t *queue; /* (visits) the units in the order in which they join */
    int32_t *set;   /* (units) another unit of the same tree, or the unit itself */
    int32_t *seen;  /* (units) the last unit that has met a tree, by one unit of the tree */
    int64_t count, most;
    pgm_vf *heard;  /* (units, most states of a unit) */
} pgm_forest;

/* Return whether there is memory for a forest; pgm_close_forest frees it in either case. */
static int pgm_open_forest(const pgm_tabled *m, pgm_forest *f)
{
    const size_t units = (size_t)m->units, ints = 5 * units * sizeof(int32_t);
    f->most = 2;
    for (int64_t i = 0; i < m->units; i++)
        if (m->site[i].states > f->most) f->most = m->site[i].states;
    f->above = malloc(ints);
    f->heard = malloc(units * (size_t)f->most * sizeof(pgm_vf) + sizeof(pgm_vf));
    f->order = f->above + units, f->queue = f->order + units;
    f->set = f->queue + units, f->seen = f->set + units;
    return f->above && f->heard;
}

static void pgm_close_forest(pgm_forest *f)
{
    free(f->above);
    free(f->heard);
}

/* the number of a tree: one of its units */
PGM_INLINE int32_t pgm_tree_of(int32_t *set, int32_t i)
{
    while (set[i] != i) i = set[i] = set[set[i]];
    return i;
}

/* Let a unit join the forest, unless it would close a cycle. */
static void pgm_join_forest(const pgm_tabled *m, pgm_forest *f, int32_t unit)
{
    const int64_t *start = m->near_start + unit;
    for (int64_t e = start[0]; e < start[1]; e++) {
        if (f->above[m->near[e]] == PGM_OUTSIDE) continue;
        const int32_t tree = pgm_tree_of(f->set, m->near[e]);
        if (f->seen[tree] == unit) return;
        f->seen[tree] = unit;
    }
    f->above[unit] = PGM_JOINED;
    for (int64_t e = start[0]; e < start[1]; e++)
        if (f->above[m->near[e]] != PGM_OUTSIDE) f->set[pgm_tree_of(f->set, m->near[e])] = unit;
}

/* Draw the forest of a sweep. */
static void pgm_draw_forest(const pgm_tabled *m, pgm_forest *f, uint64_t sweep)
{
    const uint32_t *k = m->key, key[5] = {k[0], k[1], k[2], k[3],
                                          0x1BD11BDAu ^ k[0] ^ k[1] ^ k[2] ^ k[3]};
    const uint64_t pass = (uint64_t)((uint32_t)(sweep >> 32) << 16 | 2) << 32 | (uint32_t)sweep;
    int64_t done = 0;
    f->count = 0;
    for (int32_t i = 0; i < m->units; i++)
        f->above[i] = PGM_OUTSIDE, f->set[i] = i, f->seen[i] = -1;
    for (int64_t i = 0; i < m->visits; i++) {
        const int64_t other = (int64_t)(pgm_threefry_bits(key, (uint64_t)i, pass)
                                        % (uint64_t)(i + 1));
        f->queue[i] = f->queue[other], f->queue[other] = m->visit[i];
    }
    for (int64_t i = 0; i < m->visits; i++) pgm_join_forest(m, f, f->queue[i]);
    for (int64_t i = 0; i < m->visits; i++) {
        if (f->above[f->queue[i]] != PGM_JOINED) continue;
        f->above[f->queue[i]] = PGM_ROOT;
        f->order[f->count++] = f->queue[i];
        for (; done < f->count; done++) {
            const int32_t unit = f->order[done];
            for (int64_t e = m->near_start[unit]; e < m->near_start[unit + 1]; e++) {
                if (f->above[m->near[e]] != PGM_JOINED) continue;
                f->above[m->near[e]] = unit;
                f->order[f->count++] = m->near[e];
            }
        }
    }
}

/* ---- factors of a unit without its children in the forest ---- */

PGM_INLINE int pgm_has_child(const pgm_tabled *m, const pgm_slot *t, const int32_t *above,
                             int32_t unit)
{
    for (int64_t i = 0; i < t->members; i++)
        if (above[m->member[t->member + i].unit] == unit) return 1;
    return 0;
}

/* minus the log normaliser of the conditional of a unit given its parents */
PGM_INLINE pgm_vf pgm_minus_normaliser(const pgm_tabled *m, const pgm_site *s, int64_t lane)
{
    const float zero = 0.0f;
    const pgm_vi first = {0};
    pgm_vf linear, factor;
    pgm_child(m, s, first, lane, 0, 0, &zero, 1, &linear, &factor);
    linear += pgm_log_f(factor);
    if (!s->complement)
        linear -= pgm_input(m, s, 0, lane, 0, 0, NULL)
                  * (s->width > 1 ? 1.0f : m->support[s->support]);
    return linear - m->log_base[s->support];
}

/* Write the log weights of the states of a unit: f_c plus what it has heard. */
PGM_INLINE void pgm_forest_weights(const pgm_tabled *m, const pgm_forest *f, int32_t unit,
                                   int states, int64_t lane, pgm_vf *lw)
{
    const pgm_site *s = m->site + unit;
    const pgm_vf beta = *(const pgm_vf *)(m->beta + lane), none = pgm_splat_f(0.0f);
    const pgm_vi off = beta == 0.0f;
    const int directed = (s->directed & PGM_SWEEPS) != 0;
    const int apart = directed && pgm_has_parent_below(m, s, f->above, unit);
    const int64_t *child = m->child_start + unit;
    /* the lanes in which do() has removed the conditional of the unit */
    pgm_vi gone = {0};
    pgm_vf sum[PGM_MOST_STATES];
    pgm_linear_weights(m, s, states, lane, beta, PGM_SWEEPS, apart, lw);
    if (directed && m->cut && !apart) {
        gone = -(pgm_load_bytes(m->cut + unit * m->apart + lane) & 1);
        pgm_linear_weights(m, s, states, lane, beta, PGM_SWEEPS, 1, sum);
        for (int k = 0; k < states; k++) lw[k] = pgm_select_f(gone, sum[k], lw[k]);
    }
    for (int k = 0; k < states; k++) sum[k] = none;
    for (const pgm_slot *t = m->slot + s->slot; t < m->slot + s->slot + s->slots; t++)
        if (!pgm_has_child(m, t, f->above, unit)) pgm_add_terms(m, t, states, lane, sum);
    if (child[0] < child[1]) pgm_add_children(m, s, states, lane, f->above, sum);
    if (directed) {
        pgm_vf constant = none;
        if (!apart) constant = pgm_select_f(gone, none, pgm_minus_normaliser(m, s, lane));
        /* the conditional of the unit, which counts elsewhere, has log h as well */
        for (int k = 0; k < states; k++)
            sum[k] += constant - (apart ? m->log_base[s->support + k] : 0.0f);
    }
    for (int k = 0; k < states; k++) {
        const pgm_vf all = lw[k] + pgm_select_f(off, none, sum[k] * beta);
        lw[k] = pgm_max_f(all, pgm_splat_f(PGM_NEVER)) + f->heard[unit * f->most + k];
    }
}

/* ---- the two passes ---- */

/* the lanes in which a unit does not move */
PGM_INLINE pgm_vi pgm_held(const pgm_tabled *m, int32_t unit, int64_t lane)
{
    if (!m->free) return (pgm_vi){0};
    return (pgm_load_bytes(m->free + unit * m->apart + lane) & 1) - 1;
}

/* Put a unit into states. */
PGM_INLINE void pgm_put(const pgm_tabled *m, int32_t unit, int64_t lane, pgm_vi state)
{
    const pgm_site *s = m->site + unit;
    *(pgm_bytes *)(m->state + unit * m->apart + lane) = pgm_narrow(state);
    if (s->value >= 0) pgm_write_values(m, s, (int)s->states, lane, state);
}

/* Add log sum_k exp(lw_k) of a unit, at each state of its parent, to what the parent has heard;
 * the values of the unit become 0. */
PGM_INLINE void pgm_tell(const pgm_tabled *m, pgm_forest *f, int32_t unit, int states, int64_t lane)
{
    const pgm_site *s = m->site + unit;
    const int32_t above = f->above[unit];
    const int others = (int)m->site[above].states;
    const pgm_vi now = pgm_load_bytes(m->state + unit * m->apart + lane);
    const pgm_vi held = pgm_held(m, unit, lane);
    const pgm_vi was = pgm_load_bytes(m->state + above * m->apart + lane);
    pgm_vf lw[PGM_MOST_STATES], told[PGM_MOST_STATES], most = pgm_splat_f(-INFINITY);
    for (int p = 0; p < others; p++) {
        pgm_vf top = pgm_splat_f(-INFINITY), sum = pgm_splat_f(0.0f);
        pgm_put(m, above, lane, (pgm_vi){0} + p);
        pgm_forest_weights(m, f, unit, states, lane, lw);
        for (int k = 0; k < states; k++) {
            lw[k] = pgm_select_f(held & (now != k), pgm_splat_f(-INFINITY), lw[k]);
            top = pgm_max_f(lw[k], top);
        }
        for (int k = 0; k < states; k++)
            sum += pgm_exp_f(pgm_max_f(lw[k] - top, pgm_splat_f(-87.0f)));
        told[p] = top + pgm_log_f(sum);
        most = pgm_max_f(told[p], most);
    }
    pgm_put(m, above, lane, was);
    for (int p = 0; p < others; p++) f->heard[above * f->most + p] += told[p] - most;
    for (int64_t k = 0; s->value >= 0 && k < s->width; k++)
        *(pgm_vf *)(m->value + (s->value + k) * m->apart + lane) = pgm_splat_f(0.0f);
}

/* Draw a unit given its parent. */
PGM_INLINE void pgm_draw_in_forest(const pgm_tabled *m, const pgm_forest *f, int32_t unit,
                                   int states, int64_t lane, pgm_vf u)
{
    const pgm_vi now = pgm_load_bytes(m->state + unit * m->apart + lane);
    pgm_vf lw[PGM_MOST_STATES], top, sum = pgm_splat_f(0.0f);
    pgm_vi next = {0};
    pgm_forest_weights(m, f, unit, states, lane, lw);
    top = lw[0];
    for (int k = 1; k < states; k++) top = pgm_max_f(lw[k], top);
    for (int k = 0; k < states; k++) {
        const pgm_vf below = lw[k] - top;
        sum += pgm_select_f(below > -PGM_FAR, pgm_exp_f(pgm_max_f(below, pgm_splat_f(-87.0f))),
                            pgm_splat_f(0.0f));
        lw[k] = sum;
    }
    for (int k = 0; k < states - 1; k++) next -= lw[k] < u * sum;
    pgm_put(m, unit, lane, pgm_select_i(pgm_held(m, unit, lane), now, next));
}

/* Draw the units of a forest in the lanes of a vector. */
static void pgm_forest_lanes(const pgm_tabled *m, pgm_forest *f, uint64_t sweep, int64_t lane)
{
    const pgm_stream at = pgm_open_stream(m->key, (uint32_t)sweep, 0,
                                          (uint32_t)(sweep >> 32) << 16 | 1);
    const pgm_vu chain = at.c + *(const pgm_vu *)(m->stream + lane);
    pgm_vf u[4];
    for (int64_t i = 0; i < f->count; i++)
        for (int64_t k = 0; k < f->most; k++)
            f->heard[f->order[i] * f->most + k] = pgm_splat_f(0.0f);
    for (int64_t i = f->count - 1; i >= 0; i--) {
        const int32_t unit = f->order[i];
        if (f->above[unit] == PGM_ROOT) continue;
        if (m->site[unit].states == 2) pgm_tell(m, f, unit, 2, lane);
        else pgm_tell(m, f, unit, (int)m->site[unit].states, lane);
    }
    for (int64_t i = 0; i < f->count; i++) {
        const int32_t unit = f->order[i];
        if (i % 4 == 0)
            pgm_threefry(at.key, pgm_splat_u((uint32_t)(i / 4)), at.b, chain, at.d, u, 1);
        if (m->site[unit].states == 2) pgm_draw_in_forest(m, f, unit, 2, lane, u[i % 4]);
        else pgm_draw_in_forest(m, f, unit, (int)m->site[unit].states, lane, u[i % 4]);
    }
}

/* Draw a forest, and then its units in lanes first .. last - 1. */
static void pgm_visit_forest(const pgm_tabled *m, pgm_forest *f, uint64_t sweep, int64_t first,
                             int64_t last)
{
    pgm_draw_forest(m, f, sweep);
    for (int64_t lane = first; lane < last; lane += PGM_WIDE) pgm_forest_lanes(m, f, sweep, lane);
}

#endif
