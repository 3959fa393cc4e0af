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
 * comes from the routines of single visits (tabled.h): factors without the parent once (PGM_REST),
 * factors with it once for each of its states, which are written into the chain meanwhile
 * (PGM_PAIR). Couplings to children, and to the parent in PGM_REST, are left out as the values of
 * hidden units are 0; tables and conditionals with a child are skipped. Conditionals of c count
 * with their normalisers, which depend on x_p.
 *
 * -inf is replaced by PGM_NEVER, so that sums stay finite: no state of log weight below another one
 * by more than PGM_FAR is drawn, and where all states of a unit are impossible, it moves to any of
 * them.
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
    float *coupled; /* (most, most) weights of the couplings of a unit with its parent */
} pgm_forest;

/* Return whether there is memory for a forest; pgm_close_forest frees it in either case. */
static int pgm_open_forest(const pgm_tabled *m, pgm_forest *f)
{
    const size_t units = (size_t)m->units, ints = 5 * units * sizeof(int32_t);
    f->most = 2;
    for (int64_t i = 0; i < m->units; i++)
        if (m->site[i].states > f->most) f->most = m->site[i].states;
    f->above = malloc(ints);
    f->heard = malloc(units * (size_t)f->most * sizeof(pgm_vf));
    f->coupled = malloc((size_t)(f->most * f->most) * sizeof(float));
    f->order = f->above + units, f->queue = f->order + units;
    f->set = f->queue + units, f->seen = f->set + units;
    return f->above && f->heard && f->coupled;
}

static void pgm_close_forest(pgm_forest *f)
{
    free(f->above);
    free(f->heard);
    free(f->coupled);
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

/* Return whether a table belongs to PGM_REST or to PGM_PAIR of a unit; 0 with a child of it. */
PGM_INLINE int pgm_table_side(const pgm_tabled *m, const pgm_slot *t, const int32_t *above,
                              int32_t unit)
{
    int side = PGM_REST;
    for (int64_t i = 0; i < t->members; i++) {
        const int32_t other = m->member[t->member + i].unit;
        if (above[other] == unit) return 0;
        if (other == above[unit]) side = PGM_PAIR;
    }
    return side;
}

/* Add the terms of a table with the parent as its only other unit, which is in state p. */
PGM_INLINE void pgm_add_pair(const pgm_tabled *m, const pgm_slot *t, int states, int64_t lane,
                             int p, pgm_vf *sum)
{
    const float *term = m->term + t->first + (int64_t)p * m->member[t->member].stride;
    const pgm_vi gone = pgm_gone(m, t, lane);
    for (int k = 0; k < states; k++)
        sum[k] += pgm_select_f(gone, pgm_splat_f(0.0f), pgm_splat_f(term[k * t->stride]));
}

/* Add the log probabilities of the states of a unit given its parents, without log h. */
PGM_INLINE void pgm_add_conditional(const pgm_tabled *m, const pgm_site *s, int states,
                                    int64_t lane, pgm_vf *sum)
{
    const float zero = 0.0f;
    pgm_vi gone = {0};
    if (m->cut) gone = -(pgm_load_bytes(m->cut + (s - m->site) * m->apart + lane) & 1);
    for (int k = 0; k < states; k++) {
        pgm_vf linear, factor;
        pgm_child(m, s, (pgm_vi){0} + k, lane, 0, 0, &zero, 1, &linear, &factor);
        linear += pgm_log_f(factor) - m->log_base[s->support + k];
        sum[k] += pgm_select_f(gone, pgm_splat_f(0.0f), linear);
    }
}

/* Add the tables and conditionals of some sides of a unit. Its parent is in state p in all chains,
 * or p = -1. */
PGM_INLINE void pgm_add_sides(const pgm_tabled *m, const pgm_forest *f, int32_t unit, int states,
                              int64_t lane, int sides, int p, pgm_vf *sum)
{
    const pgm_site *s = m->site + unit;
    for (const pgm_slot *t = m->slot + s->slot; t < m->slot + s->slot + s->slots; t++) {
        if (!(pgm_table_side(m, t, f->above, unit) & sides)) continue;
        if (p >= 0 && t->members == 1) pgm_add_pair(m, t, states, lane, p, sum);
        else pgm_add_terms(m, t, states, lane, sum);
    }
    if (m->child_start[unit] < m->child_start[unit + 1])
        pgm_add_children(m, s, states, lane, f->above, sides, sum);
    if (s->directed & PGM_SWEEPS && pgm_family_side(m, unit, f->above, unit) & sides)
        pgm_add_conditional(m, s, states, lane, sum);
}

/* Write the log weights of the states of a unit by the factors of some sides, couplings to all
 * units whose values are not 0, and what it has heard. */
PGM_INLINE void pgm_forest_weights(const pgm_tabled *m, const pgm_forest *f, int32_t unit,
                                   int states, int64_t lane, int sides, pgm_vf *lw)
{
    const pgm_site *s = m->site + unit;
    const pgm_vf beta = *(const pgm_vf *)(m->beta + lane), none = pgm_splat_f(0.0f);
    const pgm_vi off = beta == 0.0f;
    const int directed = (s->directed & PGM_SWEEPS) != 0;
    pgm_vf sum[PGM_MOST_STATES];
    pgm_linear_weights(m, s, states, lane, beta, PGM_SWEEPS, directed, lw);
    for (int k = 0; k < states; k++) sum[k] = none;
    /* a conditional that counts for a child of this unit in the forest has its log h as well */
    if (directed && !pgm_family_side(m, unit, f->above, unit))
        for (int k = 0; k < states; k++) sum[k] -= pgm_splat_f(m->log_base[s->support + k]);
    pgm_add_sides(m, f, unit, states, lane, sides, -1, sum);
    for (int k = 0; k < states; k++)
        lw[k] += pgm_select_f(off, none, sum[k] * beta) + f->heard[unit * f->most + k];
}

/* the weights of the couplings of a unit with its parent, for each component k of the unit in
 * w[k * apart + row of the parent] */
PGM_INLINE void pgm_coupled_with_parent(const pgm_tabled *m, const pgm_site *s,
                                        const pgm_site *parent, float *w)
{
    for (int64_t i = 0; i < s->width * parent->width; i++) w[i] = 0.0f;
    if (parent->value < 0) return;
    for (int64_t k = 0; k < s->width; k++)
        for (int64_t e = m->link_start[s->component + k]; e < m->link_start[s->component + k + 1];
             e++) {
            const int64_t row = m->link_from[e] - parent->value;
            if (row >= 0 && row < parent->width) w[k * parent->width + row] += m->link_weight[e];
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

/* Write 0 as the values of a unit, so that its couplings are left out. */
PGM_INLINE void pgm_hide(const pgm_tabled *m, const pgm_site *s, int64_t lane)
{
    for (int64_t k = 0; s->value >= 0 && k < s->width; k++)
        *(pgm_vf *)(m->value + (s->value + k) * m->apart + lane) = pgm_splat_f(0.0f);
}

/* Write the log weights at beta = 1 of the states of a unit by its couplings with its parent in
 * state p, whose weights are w. */
PGM_INLINE void pgm_coupled_weights(const pgm_tabled *m, const pgm_site *s, const pgm_site *parent,
                                    int states, int p, const float *w, pgm_vf *lw)
{
    const float *x = m->support + s->support;
    for (int k = 0; k < states; k++) {
        const float *own = w + (s->width > 1 ? k : 0) * parent->width;
        const float field =
            parent->width > 1 ? own[p] : own[0] * m->support[parent->support + p];
        lw[k] = pgm_splat_f(s->width > 1 ? field : field * x[k]);
    }
}

/* Add log sum_k exp(lw_k) of a unit, at each state of its parent, to what the parent has heard, and
 * hide the unit. */
PGM_INLINE void pgm_tell(const pgm_tabled *m, pgm_forest *f, int32_t unit, int states, int64_t lane)
{
    const pgm_site *s = m->site + unit, *parent = m->site + f->above[unit];
    const int32_t above = f->above[unit];
    const int others = (int)parent->states;
    const pgm_vf beta = *(const pgm_vf *)(m->beta + lane), none = pgm_splat_f(0.0f);
    const pgm_vi off = beta == 0.0f, held = pgm_held(m, unit, lane);
    const pgm_vi now = pgm_load_bytes(m->state + unit * m->apart + lane);
    const pgm_vi was = pgm_load_bytes(m->state + above * m->apart + lane);
    pgm_vf rest[PGM_MOST_STATES], lw[PGM_MOST_STATES], told[PGM_MOST_STATES];
    pgm_vf most = pgm_splat_f(-INFINITY);
    pgm_hide(m, parent, lane);
    pgm_forest_weights(m, f, unit, states, lane, PGM_REST, rest);
    for (int k = 0; k < states; k++)
        rest[k] = pgm_select_f(held & (now != k), pgm_splat_f(-INFINITY), rest[k]);
    pgm_coupled_with_parent(m, s, parent, f->coupled);
    for (int p = 0; p < others; p++) {
        pgm_vf top = pgm_splat_f(-INFINITY), sum = none;
        pgm_coupled_weights(m, s, parent, states, p, f->coupled, lw);
        pgm_put(m, above, lane, (pgm_vi){0} + p);
        pgm_add_sides(m, f, unit, states, lane, PGM_PAIR, p, lw);
        for (int k = 0; k < states; k++) {
            lw[k] = rest[k] + pgm_select_f(off, none, lw[k] * beta);
            lw[k] = pgm_max_f(lw[k], pgm_splat_f(PGM_NEVER));
            top = pgm_max_f(lw[k], top);
        }
        for (int k = 0; k < states; k++)
            sum += pgm_exp_f(pgm_max_f(lw[k] - top, pgm_splat_f(-87.0f)));
        told[p] = top + pgm_log_f(sum);
        most = pgm_max_f(told[p], most);
    }
    pgm_put(m, above, lane, was);
    for (int p = 0; p < others; p++) f->heard[above * f->most + p] += told[p] - most;
    pgm_hide(m, s, lane);
}

/* Draw a unit given its parent. */
PGM_INLINE void pgm_draw_in_forest(const pgm_tabled *m, const pgm_forest *f, int32_t unit,
                                   int states, int64_t lane, pgm_vf u)
{
    const pgm_vi now = pgm_load_bytes(m->state + unit * m->apart + lane);
    pgm_vf lw[PGM_MOST_STATES], top, sum = pgm_splat_f(0.0f);
    pgm_vi next = {0};
    pgm_forest_weights(m, f, unit, states, lane, PGM_REST | PGM_PAIR, lw);
    for (int k = 0; k < states; k++) lw[k] = pgm_max_f(lw[k], pgm_splat_f(PGM_NEVER));
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
