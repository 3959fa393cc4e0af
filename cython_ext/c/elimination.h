/* Messages on a junction tree: sums, largest entries and marginals.
 *
 * Collect. The message of clique C to its parent is
 *     m_C(s) = sum_r prod_f f(r, s) prod_children m_D(r, s),
 * where r are the states of the residual variables and s the states of the separator. It is divided
 * by its largest entry, whose logarithm goes to log_scale; log Z is the sum of these logarithms.
 * Only messages are stored, never the table of a clique: a block of entries is computed in the
 * nearest cache and summed at once. If only log Z is wanted, messages are kept on a stack until
 * their parents use them.
 *
 * Distribute. From the root down, the table of a separator becomes
 *     d_C(s) = b(s) / (m_C(s) scale),
 * where b is the marginal on the separator, and 0 / 0 = 0. The product of the factors, of the
 * messages of the children and of d_C is then the marginal on the clique (Jensen, Lauritzen and
 * Olesen 1990, but clique tables are computed again and not stored). Every block is added to all
 * marginals that are wanted.
 *
 * Logarithms. If `additive` is set, tables are logarithms. A message is then computed in two
 * passes, max_r and log sum_r exp(. - max). The most probable states need only the first pass.
 *
 * Layout. A table is (entries, lanes): the lane is the fastest axis. Lanes are processed in pieces,
 * so that a block of a clique fits into the cache. junction.h describes blocks and segments.
 *
 * Underflow. The entries of the tables are at most 1. The division of messages by their largest
 * entry keeps their entries at most 1 as well. If no product underflows in the collect pass, then
 * d_C is at most 1 / DBL_MIN and all results are accurate to rounding. The pass reads the flag that
 * processors set after an underflow. If the flag is set, the caller starts again with logarithms.
 *
 * Reference: tests/numpy_tree.py (test_junction_tree.py).
 */
#ifndef PGM_ELIMINATION_H
#define PGM_ELIMINATION_H

#include <fenv.h>
#include <stdlib.h>

#include "random.h"
#include "routines.h"
#include "vectors.h"

enum { PGM_SET, PGM_TIMES, PGM_PLUS };
enum { PGM_SUM_UP, PGM_MAX_UP, PGM_LOG_UP, PGM_DOWN };

/* lanes of a piece, if a block with all lanes is larger than this */
#define PGM_TREE_LANES 8
#define PGM_TREE_CACHE 4096
/* entries of small tables whose exponentials are computed together */
#define PGM_EXP_TOGETHER 512

/* ---- blocks ---- */

PGM_INLINE double pgm_joined(double b, double t, int how)
{
    return how == PGM_SET ? t : how == PGM_TIMES ? b * t : b + t;
}

/* b = t, b t or b + t for one lane; fast if `run` and `along` are constants. */
PGM_INLINE void pgm_join_one(double *restrict b, const double *restrict t,
                             const int32_t *restrict at, int64_t segments, int64_t run, int along,
                             int how)
{
    for (int64_t s = 0; s < segments; s++, b += run) {
        const double *row = t + at[s];
        for (int64_t i = 0; i < run; i++) b[i] = pgm_joined(b[i], along ? row[i] : *row, how);
    }
}

/* The same for w lanes; `step` entries of the table lie between two of its rows. */
PGM_INLINE void pgm_join_lanes(double *restrict b, const double *restrict t,
                               const int32_t *restrict at, int64_t segments, int64_t run,
                               int along, int how, int64_t w, int64_t step, int wide)
{
    for (int64_t s = 0; s < segments; s++) {
        const double *row = t + at[s] * step;
        for (int64_t i = 0; i < run; i++, b += w, row += along ? step : 0)
            for (int64_t l = 0; l < w; l++) b[l] = pgm_joined(b[l], wide ? row[l] : *row, how);
    }
}

/* The same, with constants for the most common short segments. */
PGM_INLINE void pgm_join_runs(double *b, const double *t, const pgm_operand *p, int64_t inner,
                              int along, int how)
{
    int64_t segments = inner / p->run;
    if (p->run == 1)
        pgm_join_one(b, t, p->at, segments, 1, along, how);
    else if (p->run == 2)
        pgm_join_one(b, t, p->at, segments, 2, along, how);
    else if (p->run == 3)
        pgm_join_one(b, t, p->at, segments, 3, along, how);
    else if (p->run == 4)
        pgm_join_one(b, t, p->at, segments, 4, along, how);
    else if (p->run == 8)
        pgm_join_one(b, t, p->at, segments, 8, along, how);
    else
        pgm_join_one(b, t, p->at, segments, p->run, along, how);
}

PGM_INLINE void pgm_join_as(double *b, const double *t, const pgm_operand *p, int64_t inner,
                            int how, int64_t w, int64_t step, int wide)
{
    int64_t segments = inner / p->run;
    if (w == 1 && step == 1) {
        if (p->along)
            pgm_join_runs(b, t, p, inner, 1, how);
        else
            pgm_join_runs(b, t, p, inner, 0, how);
    } else if (w == PGM_TREE_LANES && wide)
        pgm_join_lanes(b, t, p->at, segments, p->run, p->along, how, PGM_TREE_LANES, step, 1);
    else if (wide)
        pgm_join_lanes(b, t, p->at, segments, p->run, p->along, how, w, step, 1);
    else
        pgm_join_lanes(b, t, p->at, segments, p->run, p->along, how, w, step, 0);
}

/* ---- sums of blocks ---- */

PGM_INLINE double pgm_sum_of(const double *b, int64_t n)
{
    pgm_vd x = {0}, y = {0};
    int64_t i = 0;
    for (; i + 2 * PGM_LANES <= n; i += 2 * PGM_LANES) {
        x += *(const pgm_vd *)(b + i);
        y += *(const pgm_vd *)(b + i + PGM_LANES);
    }
    double sum = pgm_hsum_d(x + y);
    for (; i < n; i++) sum += b[i];
    return sum;
}

PGM_INLINE double pgm_max_of(const double *b, int64_t n)
{
    double top = -INFINITY;
    int64_t i = 0;
    if (n >= PGM_LANES) {
        pgm_vd x = *(const pgm_vd *)b;
        for (i = PGM_LANES; i + PGM_LANES <= n; i += PGM_LANES)
            x = pgm_max_d(x, *(const pgm_vd *)(b + i));
        top = pgm_hmax_d(x);
    }
    for (; i < n; i++) top = b[i] > top ? b[i] : top;
    return top;
}

PGM_INLINE double pgm_gained(double t, double b, int largest)
{
    return largest ? (b > t ? b : t) : t + b;
}

PGM_INLINE double pgm_reduced(const double *b, int64_t run, int largest)
{
    if (run > 4) return largest ? pgm_max_of(b, run) : pgm_sum_of(b, run);
    double x = b[0];
    for (int64_t i = 1; i < run; i++) x = pgm_gained(x, b[i], largest);
    return x;
}

/* add a block of one lane to t */
PGM_INLINE void pgm_gain_one(double *restrict t, const double *restrict b,
                             const int32_t *restrict at, int64_t segments, int64_t run, int along,
                             int largest)
{
    for (int64_t s = 0; s < segments; s++, b += run) {
        double *row = t + at[s];
        if (along)
            for (int64_t i = 0; i < run; i++) row[i] = pgm_gained(row[i], b[i], largest);
        else
            *row = pgm_gained(*row, pgm_reduced(b, run, largest), largest);
    }
}

PGM_INLINE void pgm_gain_runs(double *t, const double *b, const pgm_operand *p, int64_t inner,
                              int along, int largest)
{
    int64_t segments = inner / p->run;
    if (p->run == 1)
        pgm_gain_one(t, b, p->at, segments, 1, along, largest);
    else if (p->run == 2)
        pgm_gain_one(t, b, p->at, segments, 2, along, largest);
    else if (p->run == 3)
        pgm_gain_one(t, b, p->at, segments, 3, along, largest);
    else if (p->run == 4)
        pgm_gain_one(t, b, p->at, segments, 4, along, largest);
    else
        pgm_gain_one(t, b, p->at, segments, p->run, along, largest);
}

PGM_INLINE void pgm_gain_lanes(double *restrict t, const double *restrict b,
                               const int32_t *restrict at, int64_t segments, int64_t run,
                               int along, int largest, int64_t w, int64_t step)
{
    for (int64_t s = 0; s < segments; s++) {
        double *row = t + at[s] * step;
        for (int64_t i = 0; i < run; i++, b += w, row += along ? step : 0)
            for (int64_t l = 0; l < w; l++) row[l] = pgm_gained(row[l], b[l], largest);
    }
}

PGM_INLINE void pgm_gain_as(double *t, const double *b, const pgm_operand *p, int64_t inner,
                            int largest, int64_t w, int64_t step)
{
    int64_t segments = inner / p->run;
    if (w == 1 && step == 1) {
        if (p->along)
            pgm_gain_runs(t, b, p, inner, 1, largest);
        else
            pgm_gain_runs(t, b, p, inner, 0, largest);
    } else if (w == PGM_TREE_LANES)
        pgm_gain_lanes(t, b, p->at, segments, p->run, p->along, largest, PGM_TREE_LANES, step);
    else
        pgm_gain_lanes(t, b, p->at, segments, p->run, p->along, largest, w, step);
}

static void pgm_gain_sum(double *t, const double *b, const pgm_operand *p, int64_t inner,
                         int64_t w, int64_t step)
{
    pgm_gain_as(t, b, p, inner, 0, w, step);
}

static void pgm_gain_max(double *t, const double *b, const pgm_operand *p, int64_t inner,
                         int64_t w, int64_t step)
{
    pgm_gain_as(t, b, p, inner, 1, w, step);
}

/* ---- one pass over a clique ---- */

/* Lanes lane .. lane + w - 1 of a pass over a clique. */
typedef struct {
    pgm_tree_job *job;
    const pgm_clique *clique;
    int64_t lane, w;
    int what;
} pgm_piece;

PGM_INLINE int pgm_is_wide(const pgm_tree_job *j, int64_t table)
{
    return table >= j->factors || j->wide[table];
}

/* Combine the first `count` operands at the current offsets into the block. */
PGM_INLINE void pgm_make_block(const pgm_piece *q, int32_t count, int additive)
{
    pgm_tree_job *j = q->job;
    const pgm_clique *c = q->clique;
    if (!count)
        for (int64_t i = 0; i < c->inner * q->w; i++) j->block[i] = additive ? 0.0 : 1.0;
    for (int32_t o = 0; o < count; o++) {
        const pgm_operand *p = c->operand + o;
        int wide = pgm_is_wide(j, p->table);
        int64_t step = wide ? j->lanes : 1;
        const double *t = j->table[p->table] + j->offset[o] * step + (wide ? q->lane : 0);
        if (!o)
            pgm_join_as(j->block, t, p, c->inner, PGM_SET, q->w, step, wide);
        else if (additive)
            pgm_join_as(j->block, t, p, c->inner, PGM_PLUS, q->w, step, wide);
        else
            pgm_join_as(j->block, t, p, c->inner, PGM_TIMES, q->w, step, wide);
    }
}

static void pgm_product_block(const pgm_piece *q, int32_t count)
{
    if (q->job->additive)
        pgm_make_block(q, count, 1);
    else
        pgm_make_block(q, count, 0);
}

/* b = e^b of n numbers; there is room for whole vectors */
static void pgm_exp_block(double *b, int64_t n)
{
    for (int64_t i = n; i % PGM_LANES; i++) b[i] = 0.0;
    for (int64_t i = 0; i < n; i += PGM_LANES) *(pgm_vd *)(b + i) = pgm_exp_d(*(pgm_vd *)(b + i));
}

/* Add the sum of the block to the marginals of residual variables on outer axes. */
static void pgm_gain_outer(const pgm_piece *q)
{
    pgm_tree_job *j = q->job;
    const pgm_clique *c = q->clique;
    int32_t most = c->residual < c->outer ? c->residual : c->outer;
    double *total = j->sums;
    if (q->w == 1)
        total[0] = pgm_sum_of(j->block, c->inner);
    else {
        for (int64_t l = 0; l < q->w; l++) total[l] = 0.0;
        for (int64_t i = 0; i < c->inner; i++)
            for (int64_t l = 0; l < q->w; l++) total[l] += j->block[i * q->w + l];
    }
    for (int32_t a = 0; a < most; a++) {
        double *row =
            j->margin + (j->margin_at[c->variable[a]] + j->digit[a]) * j->lanes + q->lane;
        for (int64_t l = 0; l < q->w; l++) row[l] += total[l];
    }
}

/* Add to row (states, lanes) the sums of blocks (above, card, below, w) over all axes except `card`
 * and w. */
PGM_INLINE void pgm_gain_axis(double *row, const double *b, int64_t above, int64_t card,
                              int64_t below, int64_t w, int64_t step)
{
    for (int64_t i = 0; i < above; i++)
        for (int64_t s = 0; s < card; s++)
            if (w == 1)
                row[s * step] += pgm_sum_of(b, below), b += below;
            else
                for (int64_t k = 0; k < below; k++, b += w)
                    for (int64_t l = 0; l < w; l++) row[s * step + l] += b[l];
}

/* Add the sums of all blocks to the marginals of residual variables on inner axes. */
static void pgm_gain_inner(const pgm_piece *q, const double *sums)
{
    pgm_tree_job *j = q->job;
    const pgm_clique *c = q->clique;
    int64_t above = 1, below = c->inner;
    for (int32_t a = c->outer; a < c->residual; a++) {
        int64_t card = c->card[a];
        double *row = j->margin + j->margin_at[c->variable[a]] * j->lanes + q->lane;
        below /= card;
        if (q->w == 1)
            pgm_gain_axis(row, sums, above, card, below, 1, j->lanes);
        else
            pgm_gain_axis(row, sums, above, card, below, q->w, j->lanes);
        above *= card;
    }
}

/* Add a block of marginals to all wanted results. */
static void pgm_add_marginals(const pgm_piece *q)
{
    pgm_tree_job *j = q->job;
    const pgm_clique *c = q->clique;
    for (int32_t o = 0; o < c->operands - 1; o++) {
        const pgm_operand *p = c->operand + o;
        double *gain = j->gain[p->table];
        if (gain)
            pgm_gain_sum(gain + j->offset[o] * j->lanes + q->lane, j->block, p, c->inner, q->w,
                         j->lanes);
    }
    if (!j->margin) return;
    if (c->outer) pgm_gain_outer(q);
    if (c->outer && c->residual > c->outer) {
        double *sums = j->sums + q->w;
        for (int64_t i = 0; i < c->inner * q->w; i++) sums[i] += j->block[i];
    }
    if (!c->outer) pgm_gain_inner(q, j->block);
}

/* Go on to the next block; 0 after the last one. */
PGM_INLINE int pgm_step_block(const pgm_piece *q)
{
    pgm_tree_job *j = q->job;
    const pgm_clique *c = q->clique;
    int32_t a = c->outer - 1;
    while (a >= 0 && ++j->digit[a] == c->card[a]) j->digit[a--] = 0;
    if (a < 0) return 0;
    const int64_t *delta = c->delta + a * c->operands;
    for (int32_t o = 0; o < c->operands; o++) j->offset[o] += delta[o];
    return 1;
}

/* Count entries, and poll sometimes whether to stop. */
PGM_INLINE int pgm_go_on(pgm_tree_job *j, int64_t entries)
{
    j->done += entries;
    if (j->done < j->due) return 1;
    j->due = j->done + (1 << 20);
    if (j->poll && j->poll(j->token)) j->stopped = 1;
    return !j->stopped;
}

static void pgm_use_block(const pgm_piece *q)
{
    pgm_tree_job *j = q->job;
    const pgm_clique *c = q->clique;
    int32_t last = c->operands - 1;
    const pgm_operand *up = c->operand + last;
    int64_t at = j->offset[last] * j->lanes + q->lane;
    double *message = j->table[up->table];
    pgm_product_block(q, q->what == PGM_SUM_UP || q->what == PGM_MAX_UP ? last : last + 1);
    if (q->what == PGM_LOG_UP || (q->what == PGM_DOWN && j->additive))
        pgm_exp_block(j->block, c->inner * q->w);
    if (q->what == PGM_SUM_UP)
        pgm_gain_sum(message + at, j->block, up, c->inner, q->w, j->lanes);
    else if (q->what == PGM_MAX_UP)
        pgm_gain_max(message + at, j->block, up, c->inner, q->w, j->lanes);
    else if (q->what == PGM_LOG_UP)
        pgm_gain_sum(j->spare + at, j->block, up, c->inner, q->w, j->lanes);
    else
        pgm_add_marginals(q);
}

/* Pass over all entries of a clique. */
static void pgm_pass_clique(pgm_tree_job *j, const pgm_clique *c, int what)
{
    int64_t wide = c->inner * j->lanes <= PGM_TREE_CACHE ? j->lanes : PGM_TREE_LANES;
    for (int64_t lane = 0; lane < j->lanes; lane += wide) {
        pgm_piece q = {j, c, lane, pgm_min_l(wide, j->lanes - lane), what};
        int inside = what == PGM_DOWN && j->margin && c->outer && c->residual > c->outer;
        memset(j->offset, 0, sizeof *j->offset * (size_t)c->operands);
        memset(j->digit, 0, sizeof *j->digit * (size_t)c->axes);
        if (inside)
            for (int64_t i = 0; i < c->inner * q.w; i++) j->sums[q.w + i] = 0.0;
        do {
            pgm_use_block(&q);
            if (!pgm_go_on(j, c->inner * q.w)) return;
        } while (pgm_step_block(&q));
        if (inside) pgm_gain_inner(&q, j->sums + q.w);
    }
}

/* ---- collect ---- */

/* Divide the message of a clique by its largest entry, in each lane. */
static void pgm_rescale(pgm_tree_job *j, int64_t i)
{
    const pgm_clique *c = j->clique + i;
    double *m = j->table[j->factors + i], *top = j->scale + i * j->lanes;
    int64_t lanes = j->lanes;
    if (lanes == 1)
        top[0] = pgm_max_of(m, c->separator);
    else {
        for (int64_t l = 0; l < lanes; l++) top[l] = -INFINITY;
        for (int64_t s = 0; s < c->separator; s++)
            for (int64_t l = 0; l < lanes; l++)
                top[l] = m[s * lanes + l] > top[l] ? m[s * lanes + l] : top[l];
    }
    for (int64_t l = 0; l < lanes; l++) j->log_scale[l] += j->additive ? top[l] : log(top[l]);
    if (lanes == 1) {
        double t = j->additive ? 0.0 : 1.0;
        if (top[0] > (j->additive ? -INFINITY : 0.0)) t = top[0];
        for (int64_t s = 0; s < c->separator; s++) m[s] = j->additive ? m[s] - t : m[s] / t;
        return;
    }
    for (int64_t l = 0; l < lanes; l++) {
        if (j->additive ? top[l] == -INFINITY : top[l] == 0.0) continue;
        for (int64_t s = 0; s < c->separator; s++)
            m[s * lanes + l] =
                j->additive ? m[s * lanes + l] - top[l] : m[s * lanes + l] / top[l];
    }
}

/* The message of a clique as logarithms: the largest entries first, then the sums relative to
 * them. */
static void pgm_collect_logs(pgm_tree_job *j, int64_t i)
{
    const pgm_clique *c = j->clique + i;
    double *m = j->table[j->factors + i];
    int64_t n = c->separator * j->lanes;
    for (int64_t s = 0; s < n; s++) m[s] = -INFINITY;
    pgm_pass_clique(j, c, PGM_MAX_UP);
    if (j->largest || j->stopped) return;
    for (int64_t s = 0; s < n; s++) {
        m[s] = m[s] > -INFINITY ? -m[s] : 0.0;
        j->spare[s] = 0.0;
    }
    pgm_pass_clique(j, c, PGM_LOG_UP);
    for (int64_t s = 0; s < n; s++) m[s] = log(j->spare[s]) - m[s];
}

/* Replace the messages of its children, at the end of the stack, by the message of clique i. */
static void pgm_pop_children(pgm_tree_job *j, int64_t i)
{
    const pgm_clique *c = j->clique + i;
    double **m = j->table + j->factors + i, *end = *m;
    if (c->operands - 1 > c->factors) end = j->table[c->operand[c->factors].table];
    memmove(end, *m, sizeof(double) * (size_t)(c->separator * j->lanes));
    *m = end;
    j->stack = end + (c->parent < 0 ? 0 : c->separator * j->lanes);
}

/* Compute the message of clique i, before it is scaled. */
static void pgm_collect_clique(pgm_tree_job *j, int64_t i)
{
    double **m = j->table + j->factors + i;
    if (j->stack) *m = j->stack;
    if (j->additive)
        pgm_collect_logs(j, i);
    else {
        memset(*m, 0, sizeof(double) * (size_t)(j->clique[i].separator * j->lanes));
        pgm_pass_clique(j, j->clique + i, PGM_SUM_UP);
    }
}

/* Send the messages of cliques first .. last - 1 to their parents. */
static void pgm_collect(pgm_tree_job *j, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        pgm_collect_clique(j, i);
        if (j->stopped) return;
        pgm_rescale(j, i);
        if (!j->additive && fetestexcept(FE_UNDERFLOW)) {
            j->flagged = 1;
            return;
        }
        if (j->stack) pgm_pop_children(j, i);
    }
}

/* ---- distribute ---- */

/* Replace the message m of clique i by the one that it receives, b / (m scale), with 0 / 0 = 0; b =
 * 1 at a root. */
static void pgm_turn_message(pgm_tree_job *j, int64_t i, const double *b)
{
    int64_t lanes = j->lanes, n = j->clique[i].separator;
    double *m = j->table[j->factors + i];
    const double *top = j->scale + i * lanes;
    for (int64_t s = 0; s < n; s++)
        for (int64_t l = 0; l < lanes; l++) {
            double belief = b ? b[s * lanes + l] : 1.0, *to = m + s * lanes + l;
            if (j->additive)
                *to = *to > -INFINITY ? log(belief) - (*to + top[l]) : -INFINITY;
            else
                *to = *to > 0.0 ? belief / (*to * top[l]) : 0.0;
        }
}

/* Compute the marginals of cliques last - 1, last - 2 .. first. */
static void pgm_distribute(pgm_tree_job *j, int64_t first, int64_t last)
{
    for (int64_t i = last - 1; i >= first; i--) {
        const pgm_clique *c = j->clique + i;
        double *room = j->child;
        if (c->parent < 0) pgm_turn_message(j, i, NULL);
        for (int32_t o = c->factors; o < c->operands - 1; o++) {
            int64_t child = c->operand[o].table - j->factors;
            int64_t n = j->clique[child].separator * j->lanes;
            j->gain[c->operand[o].table] = room;
            memset(room, 0, sizeof(double) * (size_t)n);
            room += n;
        }
        pgm_pass_clique(j, c, PGM_DOWN);
        if (j->stopped) return;
        for (int32_t o = c->factors; o < c->operands - 1; o++) {
            int64_t table = c->operand[o].table;
            pgm_turn_message(j, table - j->factors, j->gain[table]);
            j->gain[table] = NULL;
        }
    }
}

/* ---- tables of values ---- */

/* Replace entries by their exponentials; returns whether a finite entry has become 0. */
PGM_INLINE int pgm_exp_of(double *t, int64_t n)
{
    pgm_vl lost = {0};
    int64_t i = 0;
    for (; i + PGM_LANES <= n; i += PGM_LANES) {
        pgm_vd x = *(const pgm_vd *)(t + i);
        lost |= (pgm_vl)(x < -700.0) & (pgm_vl)(x > -INFINITY);
        *(pgm_vd *)(t + i) = pgm_exp_d(x);
    }
    if (i < n) {
        pgm_vd x = pgm_splat_d(-INFINITY);
        for (int64_t k = i; k < n; k++) x[k - i] = t[k];
        lost |= (pgm_vl)(x < -700.0) & (pgm_vl)(x > -INFINITY);
        x = pgm_exp_d(x);
        for (int64_t k = i; k < n; k++) t[k] = x[k - i];
    }
    return pgm_any_l(lost);
}

PGM_INLINE int pgm_all_fine(const double *v, int64_t n)
{
    pgm_vl fine = ~(pgm_vl){0};
    int64_t i = 0;
    for (; i + PGM_LANES <= n; i += PGM_LANES)
        fine &= (pgm_vl)(*(const pgm_vd *)(v + i) < INFINITY);
    int all = !pgm_any_l(~fine);
    for (; i < n; i++) all &= v[i] < INFINITY;
    return all;
}

/* Write the entries of a factor with lanes, less the largest entry of each lane, to t. The largest
 * entries go to log_scale. */
static void pgm_less_largest(pgm_tree_job *j, const double *v, double *t, int64_t n, double *top)
{
    int64_t lanes = j->lanes;
    memcpy(top, v, sizeof *top * (size_t)lanes);
    for (int64_t i = 1; i < n; i++)
        for (int64_t l = 0; l < lanes; l++)
            top[l] = v[i * lanes + l] > top[l] ? v[i * lanes + l] : top[l];
    for (int64_t l = 0; l < lanes; l++) {
        j->log_scale[l] += top[l];
        if (top[l] == -INFINITY) top[l] = 0.0;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < lanes; l++) t[i * lanes + l] = v[i * lanes + l] - top[l];
}

/* Check the values of all factors, and make tables of them unless the job is additive. Most tables
 * are smaller than a few vectors of the processor. They follow each other in memory, so that the
 * exponentials of many tables are computed together. */
static void pgm_tabulate(pgm_tree_job *j, pgm_values_job *values)
{
    double *first = NULL;
    int64_t waiting = 0;
    for (int64_t f = 0; f < j->factors; f++) {
        const double *v = values->value[f];
        int wide = j->wide[f] && j->lanes > 1;
        int64_t n = values->size[f], all = wide ? n * j->lanes : n;
        if (!pgm_all_fine(v, all)) {
            values->bad = (int)f + 1;
            return;
        }
        if (j->additive) continue;
        if (!waiting) first = j->table[f];
        if (wide)
            pgm_less_largest(j, v, j->table[f], n, j->sums);
        else {
            double top = pgm_max_of(v, n), safe = top > -INFINITY ? top : 0.0;
            for (int64_t l = 0; l < j->lanes; l++) j->log_scale[l] += top;
            for (int64_t i = 0; i < n; i++) j->table[f][i] = v[i] - safe;
        }
        waiting += all;
        if (waiting >= PGM_EXP_TOGETHER) {
            values->lost |= pgm_exp_of(first, waiting);
            waiting = 0;
        }
    }
    if (waiting) values->lost |= pgm_exp_of(first, waiting);
    feclearexcept(FE_UNDERFLOW);
}

#endif
