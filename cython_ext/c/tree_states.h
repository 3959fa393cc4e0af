/* States on a junction tree: the most probable ones, and exact draws.
 *
 * States are set from the roots down. The states of the residual variables of a clique are chosen
 * given the states of its separator, by the product of its factors and of the messages of its
 * children. A clique sets its states in all draws of a lane before the next clique does.
 *
 * Draws. For a clique with few entries, the cumulative sums of its weights over the residual states
 * are tabulated once, for every state of the separator. A draw is then a search for its uniform. A
 * larger root is processed by blocks, with the uniforms of all draws in ascending order. In any
 * other larger clique, each draw visits the residual states at its state of the separator.
 *
 * Layout. state is (lanes, variables, draws): the states of a variable in all draws are
 * contiguous. The uniforms of 32 draws at a clique are one block of the generator, whose position
 * does not depend on other lanes and draws.
 *
 * Reference: `states` in tests/numpy_tree.py (test_junction_tree.py).
 */
#ifndef PGM_TREE_STATES_H
#define PGM_TREE_STATES_H

#include <float.h>

#include "elimination.h"

/* draws whose uniforms are one block of the generator */
#define PGM_DRAWS (PGM_BLOCK / 2)

/* ---- residual states of a clique, one after the other ---- */

/* A clique in one lane; `draws` states lie between two variables. */
typedef struct {
    const pgm_tree_job *job;
    const pgm_clique *clique;
    int64_t lane, draws;
} pgm_walker;

static void pgm_begin_walk(const pgm_walker *w, const int32_t *state)
{
    const pgm_clique *c = w->clique;
    int64_t *offset = w->job->offset;
    memset(offset, 0, sizeof *offset * (size_t)c->operands);
    memset(w->job->digit, 0, sizeof *w->job->digit * (size_t)c->axes);
    for (int32_t a = c->residual; a < c->axes; a++)
        for (int32_t o = 0; o < c->operands; o++)
            offset[o] += state[c->variable[a] * w->draws] * c->stride[a * c->operands + o];
}

PGM_INLINE int pgm_next_walk(const pgm_walker *w)
{
    const pgm_clique *c = w->clique;
    int64_t *offset = w->job->offset, *digit = w->job->digit;
    for (int32_t a = c->residual - 1; a >= 0; a--) {
        const int64_t *stride = c->stride + a * c->operands;
        if (++digit[a] < c->card[a]) {
            for (int32_t o = 0; o < c->operands; o++) offset[o] += stride[o];
            return 1;
        }
        digit[a] = 0;
        for (int32_t o = 0; o < c->operands; o++) offset[o] -= (c->card[a] - 1) * stride[o];
    }
    return 0;
}

/* The product of all operands except the separator, or their sum, at the current state. */
PGM_INLINE double pgm_walk_value(const pgm_walker *w, int32_t count)
{
    const pgm_tree_job *j = w->job;
    double value = j->additive ? 0.0 : 1.0;
    for (int32_t o = 0; o < count; o++) {
        int64_t table = w->clique->operand[o].table;
        const double *t = j->table[table];
        double x = pgm_is_wide(j, table) ? t[j->offset[o] * j->lanes + w->lane] : t[j->offset[o]];
        value = j->additive ? value + x : value * x;
    }
    return value;
}

static void pgm_keep_state(const pgm_walker *w, int32_t *state)
{
    for (int32_t a = 0; a < w->clique->residual; a++)
        state[w->clique->variable[a] * w->draws] = (int32_t)w->job->digit[a];
}

/* Set the residual states of largest value, the first of equals. */
static void pgm_most_probable(pgm_tree_job *j, const pgm_walker *w, int32_t *state)
{
    double best = -INFINITY;
    int64_t count = 0;
    pgm_begin_walk(w, state);
    do {
        double value = pgm_walk_value(w, w->clique->operands - 1);
        count++;
        if (value > best) {
            best = value;
            pgm_keep_state(w, state);
        }
    } while (pgm_next_walk(w));
    pgm_go_on(j, count);
}

/* The sum of the factors of a clique at a state. */
static double pgm_factors_at(const pgm_walker *w, const int32_t *state)
{
    const pgm_clique *c = w->clique;
    pgm_begin_walk(w, state);
    for (int32_t a = 0; a < c->residual; a++)
        for (int32_t o = 0; o < c->factors; o++)
            w->job->offset[o] +=
                state[c->variable[a] * w->draws] * c->stride[a * c->operands + o];
    return pgm_walk_value(w, c->factors);
}

/* The largest value of a clique given its separator, for additive jobs; else 0. */
static double pgm_walk_top(const pgm_walker *w, const int32_t *state)
{
    double top = -INFINITY;
    if (!w->job->additive) return 0.0;
    pgm_begin_walk(w, state);
    do {
        double value = pgm_walk_value(w, w->clique->operands - 1);
        top = value > top ? value : top;
    } while (pgm_next_walk(w));
    return top;
}

PGM_INLINE double pgm_walk_weight(const pgm_walker *w, double top)
{
    double value = pgm_walk_value(w, w->clique->operands - 1);
    return w->job->additive ? exp(value - top) : value;
}

/* Draw the residual states given those of the separator. */
static void pgm_draw_given(pgm_tree_job *j, const pgm_walker *w, double uniform, int32_t *state)
{
    double top = pgm_walk_top(w, state), total = 0.0, sum = 0.0;
    int64_t count = 0;
    pgm_begin_walk(w, state);
    do total += pgm_walk_weight(w, top), count++;
    while (pgm_next_walk(w));
    pgm_begin_walk(w, state);
    do {
        double weight = pgm_walk_weight(w, top);
        sum += weight;
        if (weight > 0.0 && sum >= uniform * total) {
            pgm_keep_state(w, state);
            break;
        }
    } while (pgm_next_walk(w));
    pgm_go_on(j, 2 * count);
}

/* ---- all entries of a clique, by blocks ---- */

static void pgm_begin_blocks(const pgm_piece *q)
{
    memset(q->job->offset, 0, sizeof *q->job->offset * (size_t)q->clique->operands);
    memset(q->job->digit, 0, sizeof *q->job->digit * (size_t)q->clique->axes);
}

/* Compute the current block of a root in one lane: values, or exp(value - top). */
PGM_INLINE int pgm_root_block(const pgm_piece *q, double top)
{
    pgm_tree_job *j = q->job;
    const pgm_clique *c = q->clique;
    pgm_product_block(q, c->operands - 1);
    if (j->additive && top > -INFINITY) {
        for (int64_t i = 0; i < c->inner; i++) j->block[i] -= top;
        pgm_exp_block(j->block, c->inner);
    }
    return pgm_go_on(j, c->inner);
}

/* Set the states of entry i of the current block. */
static void pgm_keep_entry(const pgm_piece *q, int64_t i, int32_t *state, int64_t draws)
{
    const pgm_clique *c = q->clique;
    for (int32_t a = c->axes - 1; a >= c->outer; a--) {
        state[c->variable[a] * draws] = (int32_t)(i % c->card[a]);
        i /= c->card[a];
    }
    for (int32_t a = 0; a < c->outer; a++)
        state[c->variable[a] * draws] = (int32_t)q->job->digit[a];
}

/* The largest value of a root; its first states, if wanted. */
static double pgm_top_of_root(const pgm_piece *q, int32_t *state)
{
    double best = -INFINITY;
    int64_t i;
    pgm_begin_blocks(q);
    do {
        if (!pgm_root_block(q, -INFINITY)) return best;
        double top = pgm_max_of(q->job->block, q->clique->inner);
        if (!(top > best)) continue;
        best = top;
        for (i = 0; q->job->block[i] < top; i++) continue;
        if (state) pgm_keep_entry(q, i, state, 1);
    } while (pgm_step_block(q));
    return best;
}

/* ---- draws ---- */

/* Draw the states of a root. sorted (draws, 2) has uniforms, ascending, and numbers of draws. If
 * rounding puts a target after all entries of its block, the last possible entry is drawn. */
static void pgm_draw_blocks(const pgm_piece *q, const double *sorted, int64_t draws,
                            int32_t *state)
{
    const double *b = q->job->block;
    int64_t n = q->clique->inner, next = 0;
    double total = 0.0, before = 0.0;
    double top = q->job->additive ? pgm_top_of_root(q, NULL) : 0.0;
    pgm_begin_blocks(q);
    do {
        if (!pgm_root_block(q, top)) return;
        total += pgm_sum_of(b, n);
    } while (pgm_step_block(q));
    pgm_begin_blocks(q);
    do {
        if (!pgm_root_block(q, top)) return;
        double after = before + pgm_sum_of(b, n), sum = before;
        int64_t i = -1, last = n - 1;
        while (last > 0 && !(b[last] > 0.0)) last--;
        for (; after > before && next < draws && after >= sorted[2 * next] * total; next++) {
            while (i < last && (i < 0 || !(b[i] > 0.0) || sum < sorted[2 * next] * total))
                sum += b[++i];
            pgm_keep_entry(q, i, state + (int64_t)sorted[2 * next + 1], draws);
        }
        before = after;
    } while (next < draws && pgm_step_block(q));
}

static int pgm_by_uniform(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The uniforms in (0, 1] of draws first .. first + n - 1 at a clique. Each is made from two
 * uniforms of the generator: 24 bits of the first, and all bits of the second. */
static void pgm_draw_uniforms(const pgm_walker *w, const pgm_draw_job *d, int64_t clique,
                              int64_t first, int64_t n, double *u)
{
    const pgm_tree_job *j = w->job;
    float made[PGM_BLOCK];
    if (d->uniform) {
        for (int64_t k = 0; k < n; k++)
            u[k] = d->uniform[((first + k) * j->lanes + w->lane) * j->cliques + clique];
        return;
    }
    pgm_fill_uniforms(d->key, (uint32_t)clique, d->stream[w->lane], 0,
                      (uint32_t)(first / PGM_DRAWS), 1, made);
    for (int64_t k = 0; k < n; k++) {
        double high = floor(made[2 * k] * 16777216.0);
        if (high > 16777215.0) high = 16777215.0;
        u[k] = (high + made[2 * k + 1]) * (1.0 / 16777216.0);
    }
}

/* Draw the states of a root that is not tabulated, for all draws of a lane. */
static void pgm_draw_root(pgm_tree_job *j, pgm_draw_job *d, const pgm_walker *w, int64_t i)
{
    pgm_piece q = {j, w->clique, w->lane, 1, PGM_SUM_UP};
    double u[PGM_DRAWS];
    for (int64_t k = 0; k < d->draws; k++) {
        if (k % PGM_DRAWS == 0)
            pgm_draw_uniforms(w, d, i, k, pgm_min_l(PGM_DRAWS, d->draws - k), u);
        d->sorted[2 * k] = u[k % PGM_DRAWS];
        d->sorted[2 * k + 1] = (double)k;
    }
    qsort(d->sorted, (size_t)d->draws, 2 * sizeof *d->sorted, pgm_by_uniform);
    pgm_draw_blocks(&q, d->sorted, d->draws, d->state + w->lane * j->variables * d->draws);
}

/* Draw the states of another clique that is not tabulated, for all draws of a lane. */
static void pgm_draw_each(pgm_tree_job *j, pgm_draw_job *d, const pgm_walker *w, int64_t i)
{
    int32_t *state = d->state + w->lane * j->variables * d->draws;
    double u[PGM_DRAWS];
    for (int64_t k = 0; k < d->draws && !j->stopped; k++) {
        if (k % PGM_DRAWS == 0)
            pgm_draw_uniforms(w, d, i, k, pgm_min_l(PGM_DRAWS, d->draws - k), u);
        pgm_draw_given(j, w, u[k % PGM_DRAWS], state + k);
    }
}

/* t (residual states, states of the separator) = e^t relative to the largest for each separator */
static void pgm_exp_columns(double *t, int64_t rows, int64_t columns, double *top)
{
    for (int64_t s = 0; s < columns; s++) top[s] = -INFINITY;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < columns; s++)
            top[s] = t[r * columns + s] > top[s] ? t[r * columns + s] : top[s];
    for (int64_t s = 0; s < columns; s++) top[s] = top[s] > -INFINITY ? top[s] : 0.0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t s = 0; s < columns; s++) t[r * columns + s] -= top[s];
    pgm_exp_block(t, rows * columns);
}

/* Tabulate the cumulative sums of the weights of a clique over its residual states. */
static void pgm_tabulate_sums(pgm_tree_job *j, const pgm_walker *w, double *t)
{
    const pgm_clique *c = w->clique;
    pgm_piece q = {j, c, w->lane, 1, PGM_SUM_UP};
    int64_t columns = c->separator, at = 0;
    pgm_begin_blocks(&q);
    do {
        pgm_product_block(&q, c->operands - 1);
        memcpy(t + at, j->block, sizeof *t * (size_t)c->inner);
        at += c->inner;
    } while (pgm_step_block(&q));
    if (j->additive) pgm_exp_columns(t, at / columns, columns, j->spare);
    for (double *row = t + columns; row < t + at; row += columns)
        for (int64_t s = 0; s < columns; s++) row[s] += row[s - columns];
}

/* The first of n ascending sums, `step` apart, that is positive and reaches a share of the last
 * one. */
PGM_INLINE int64_t pgm_first_reaching(const double *sums, int64_t n, int64_t step, double share)
{
    double target = share * sums[(n - 1) * step];
    int64_t first = 0;
    if (!(target > 0.0)) target = DBL_TRUE_MIN;
    while (n > 1) {
        int64_t half = n / 2;
        first += sums[(first + half - 1) * step] < target ? half : 0;
        n -= half;
    }
    return first;
}

/* Draw the states of a clique from the sums of its weights, for all draws of a lane. */
static void pgm_draw_from_sums(pgm_tree_job *j, pgm_draw_job *d, const pgm_walker *w, int64_t i)
{
    const pgm_clique *c = w->clique;
    int32_t *state = d->state + w->lane * j->variables * d->draws;
    int64_t rows = c->entries / c->separator, place[PGM_DRAWS];
    double u[PGM_DRAWS];
    pgm_tabulate_sums(j, w, d->sums);
    for (int64_t k = 0; k < d->draws; k += PGM_DRAWS) {
        int64_t n = pgm_min_l(PGM_DRAWS, d->draws - k);
        pgm_draw_uniforms(w, d, i, k, n, u);
        memset(place, 0, sizeof place);
        for (int32_t a = c->residual; a < c->axes; a++) {
            const int32_t *x = state + c->variable[a] * d->draws + k;
            int64_t stride = c->stride[(a + 1) * c->operands - 1];
            for (int64_t m = 0; m < n; m++) place[m] += x[m] * stride;
        }
        for (int64_t m = 0; m < n; m++)
            place[m] = pgm_first_reaching(d->sums + place[m], rows, c->separator, u[m]);
        for (int32_t a = c->residual - 1; a >= 0; a--) {
            int32_t *x = state + c->variable[a] * d->draws + k;
            int64_t card = c->card[a];
            for (int64_t m = 0; m < n; m++) {
                x[m] = (int32_t)(a ? place[m] % card : place[m]);
                place[m] /= card;
            }
        }
    }
    pgm_go_on(j, c->entries + d->draws);
}

/* Draw the states of clique i in all draws of a lane. */
static void pgm_draw_clique(pgm_tree_job *j, pgm_draw_job *d, int64_t i, int64_t lane)
{
    pgm_walker w = {j, j->clique + i, lane, d->draws};
    if (pgm_sums_room(w.clique, d->draws))
        pgm_draw_from_sums(j, d, &w, i);
    else if (w.clique->parent < 0)
        pgm_draw_root(j, d, &w, i);
    else
        pgm_draw_each(j, d, &w, i);
}

/* Find the most probable states of clique i in a lane. */
static void pgm_maximise_clique(pgm_tree_job *j, pgm_draw_job *d, int64_t i, int64_t lane)
{
    pgm_walker w = {j, j->clique + i, lane, 1};
    pgm_piece q = {j, j->clique + i, lane, 1, PGM_MAX_UP};
    int32_t *state = d->state + lane * j->variables;
    if (w.clique->parent < 0)
        pgm_top_of_root(&q, state);
    else
        pgm_most_probable(j, &w, state);
    if (!j->stopped) d->log_value[lane] += pgm_factors_at(&w, state);
}

/* Draw states, or find the most probable ones; those of impossible lanes are -1. */
static void pgm_draw_states(pgm_tree_job *j, pgm_draw_job *d)
{
    int64_t n = j->variables * (d->draws ? d->draws : 1);
    for (int64_t lane = 0; lane < j->lanes; lane++) {
        if (j->log_scale[lane] == -INFINITY) {
            for (int64_t k = 0; k < n; k++) d->state[lane * n + k] = -1;
            continue;
        }
        for (int64_t i = j->cliques - 1; i >= 0; i--) {
            if (d->draws)
                pgm_draw_clique(j, d, i, lane);
            else
                pgm_maximise_clique(j, d, i, lane);
            if (j->stopped) return;
        }
    }
}

#endif
