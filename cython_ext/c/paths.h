/* Sums over all paths of many chains of states, and their best paths.
 *
 * A path y of a chain of n steps has the weight
 *     exp( sum_{t < n} field[t, y_t]  +  sum_{0 < t < n} move[y_{t-1}, y_t] ).
 * Forward messages have the sum 1 at each step, and backward messages are divided by the same
 * factors (Rabiner 1989). Factors e^move and e^field are divided by the largest one of all moves
 * and of a step, so that they are at most 1.
 *
 * Layout. The steps of a chain follow each other, those of the first chain first. Rows of states
 * are padded with zeros to a multiple of PGM_STATES_ALIGNED numbers, in the memory of one chain,
 * which stays in a near cache. A message is one product of a vector and a matrix; pairs of
 * neighbouring states are one product of two matrices for each chain.
 *
 * Invariants. Each entry of a product is the sum over its even terms plus the one over its odd
 * terms, whatever the width of vectors is. Sums over the states of a step depend on the width.
 *
 * Reference: log_chain_sums and log_best_paths (pgmengine/infer/exact/long_chains).
 */
#ifndef PGM_PATHS_H
#define PGM_PATHS_H

#include <stdlib.h>

#include "routines.h"
#include "vectors.h"

#define PGM_STATES_ALIGNED 8 /* states of a row are padded to a multiple of it */

PGM_INLINE pgm_vd *pgm_at(double *x, int64_t i) { return (pgm_vd *)(x + i); }

PGM_INLINE pgm_vd pgm_of(const double *x, int64_t i) { return *(const pgm_vd *)(x + i); }

/* `vectors` columns of out from column v on: sum over i < k of x[i] rows[i] */
PGM_INLINE void pgm_some_columns(const double *x, const double *rows, int64_t k, int64_t wide,
                                 int64_t v, int vectors, double *out)
{
    pgm_vd even[4], odd[4];
    for (int s = 0; s < vectors; s++) even[s] = odd[s] = pgm_splat_d(0.0);
    int64_t i = 0;
    for (rows += v; i + 1 < k; i += 2, rows += 2 * wide)
        for (int s = 0; s < vectors; s++) {
            even[s] += x[i] * pgm_of(rows, s * PGM_LANES);
            odd[s] += x[i + 1] * pgm_of(rows, wide + s * PGM_LANES);
        }
    for (int s = 0; s < vectors; s++) {
        if (i < k) even[s] += x[i] * pgm_of(rows, s * PGM_LANES);
        *pgm_at(out, v + s * PGM_LANES) = even[s] + odd[s];
    }
}

/* out (wide) = x (k) rows (k, wide) */
PGM_INLINE void pgm_row_times(const double *x, const double *rows, int64_t k, int64_t wide,
                              double *out)
{
    int64_t v = 0;
    for (; v + 4 * PGM_LANES <= wide; v += 4 * PGM_LANES)
        pgm_some_columns(x, rows, k, wide, v, 4, out);
    for (; v + 2 * PGM_LANES <= wide; v += 2 * PGM_LANES)
        pgm_some_columns(x, rows, k, wide, v, 2, out);
    for (; v < wide; v += PGM_LANES) pgm_some_columns(x, rows, k, wide, v, 1, out);
}

/* pairs (wide, wide) += weight times the sum over t of x[t]' y[t], x and y (steps, wide); rows of
 * pairs beyond the states stay 0 */
PGM_INLINE void pgm_add_pairs(const double *x, const double *y, int64_t steps, int64_t k,
                              int64_t wide, double weight, double *pairs)
{
    for (int64_t i = 0; i < k; i += 4)
        for (int64_t v = 0; v < wide; v += PGM_LANES) {
            const double *a = x + i, *b = y + v;
            pgm_vd sum[4];
            for (int r = 0; r < 4; r++) sum[r] = pgm_splat_d(0.0);
            for (int64_t t = 0; t < steps; t++, a += wide, b += wide)
                for (int r = 0; r < 4; r++) sum[r] += a[r] * pgm_of(b, 0);
            for (int r = 0; r < 4; r++) *pgm_at(pairs, (i + r) * wide + v) += weight * sum[r];
        }
}

/* factors e^(field - its largest number) of a step; return the largest number */
PGM_INLINE double pgm_factors(const double *field, int64_t k, int64_t wide, double *out)
{
    double top = field[0];
    for (int64_t i = 1; i < k; i++) top = field[i] > top ? field[i] : top;
    for (int64_t i = 0; i < k; i++) out[i] = field[i] - top;
    for (int64_t i = k; i < wide; i++) out[i] = -INFINITY;
    for (int64_t v = 0; v < wide; v += PGM_LANES) *pgm_at(out, v) = pgm_exp_d(pgm_of(out, v));
    return top;
}

PGM_INLINE double pgm_sum_of_states(const double *x, int64_t wide)
{
    pgm_vd sum = pgm_of(x, 0);
    for (int64_t v = PGM_LANES; v < wide; v += PGM_LANES) sum += pgm_of(x, v);
    return pgm_hsum_d(sum);
}

/* working memory of one chain */
typedef struct {
    double *move, *back, *pairs; /* (wide, wide) factors of moves, turned, and pairs without them */
    double *forward, *factor;    /* (longest, wide) */
    double *behind;              /* (wide) */
} pgm_path_memory;

/* log Z of a chain without the largest move; `out` receives its marginals (steps, k) */
PGM_INLINE double pgm_sum_chain(pgm_path_memory *m, const double *field, int64_t steps, int64_t k,
                                int64_t wide, double weight, double *out)
{
    double log_z = 0.0;
    for (int64_t t = 0; t < steps; t++) {
        double *now = m->forward + t * wide, *factor = m->factor + t * wide;
        log_z += pgm_factors(field + t * k, k, wide, factor);
        if (t) pgm_row_times(now - wide, m->move, k, wide, now);
        for (int64_t v = 0; v < wide; v += PGM_LANES)
            if (t)
                *pgm_at(now, v) *= pgm_of(factor, v);
            else
                *pgm_at(now, v) = pgm_of(factor, v);
        const double scale = pgm_sum_of_states(now, wide), by = 1.0 / scale;
        log_z += log(scale);
        for (int64_t v = 0; v < wide; v += PGM_LANES) {
            *pgm_at(now, v) *= by;
            *pgm_at(factor, v) *= by;
        }
    }
    /* The backward message is 1 at the last step. A factor becomes the message ahead of a step. */
    for (int64_t i = 0; i < k; i++) m->behind[i] = 1.0;
    for (int64_t t = steps - 1; t >= 0; t--) {
        double *now = m->forward + t * wide, *factor = m->factor + t * wide;
        for (int64_t i = 0; i < k; i++) out[t * k + i] = now[i] * m->behind[i];
        for (int64_t v = 0; v < wide; v += PGM_LANES)
            *pgm_at(factor, v) *= pgm_of(m->behind, v);
        if (t) pgm_row_times(factor, m->back, k, wide, m->behind);
    }
    if (steps > 1)
        pgm_add_pairs(m->forward, m->factor + wide, steps - 1, k, wide, weight, m->pairs);
    return log_z;
}

static int64_t pgm_longest(const pgm_path_job *j)
{
    int64_t longest = 0;
    for (int64_t c = 0; c < j->chains; c++)
        longest = j->first[c + 1] - j->first[c] > longest ? j->first[c + 1] - j->first[c] : longest;
    return longest;
}

static void pgm_sum_paths(pgm_path_job *j)
{
    const int64_t k = j->states, longest = pgm_longest(j),
                  wide = (k + PGM_STATES_ALIGNED - 1) / PGM_STATES_ALIGNED * PGM_STATES_ALIGNED,
                  square = wide * wide;
    double *memory = calloc((size_t)(3 * square + 2 * longest * wide + wide), sizeof *memory);
    if (!memory) {
        j->failed = 1;
        return;
    }
    pgm_path_memory m = {memory, memory + square, memory + 2 * square, memory + 3 * square};
    m.factor = m.forward + longest * wide, m.behind = m.factor + longest * wide;
    double top = j->move[0];
    for (int64_t i = 1; i < k * k; i++) top = j->move[i] > top ? j->move[i] : top;
    for (int64_t i = 0; i < k; i++)
        for (int64_t s = 0; s < k; s++)
            m.move[i * wide + s] = m.back[s * wide + i] = exp(j->move[i * k + s] - top);
    for (int64_t c = 0; c < j->chains; c++) {
        const int64_t first = j->first[c], steps = j->first[c + 1] - first;
        const double weight = j->weight ? j->weight[c] : 1.0;
        j->log_z[c] = pgm_sum_chain(&m, j->field + first * k, steps, k, wide, weight,
                                    j->marginals + first * k)
                      + (steps > 1 ? top * (double)(steps - 1) : 0.0);
    }
    for (int64_t i = 0; i < k; i++)
        for (int64_t s = 0; s < k; s++)
            j->pairs[i * k + s] = m.pairs[i * wide + s] * m.move[i * wide + s];
    free(memory);
}

/* `now` (wide) = the best of before + move, and the states of that one in `from` */
PGM_INLINE void pgm_best_before(const double *before, const double *move, int64_t k, int64_t wide,
                                double *now, int64_t *from)
{
    for (int64_t v = 0; v < wide; v += PGM_LANES) {
        pgm_vd best = before[0] + pgm_of(move, v);
        pgm_vl state = {0};
        for (int64_t i = 1; i < k; i++) {
            const pgm_vd found = before[i] + pgm_of(move, i * wide + v);
            const pgm_vl more = found > best;
            best = pgm_select_d(more, found, best);
            state = (more & i) | (~more & state);
        }
        *pgm_at(now, v) = best;
        *(pgm_vl *)(from + v) = state;
    }
}

static void pgm_best_paths(pgm_path_job *j)
{
    const int64_t k = j->states, longest = pgm_longest(j),
                  wide = (k + PGM_STATES_ALIGNED - 1) / PGM_STATES_ALIGNED * PGM_STATES_ALIGNED;
    double *move = calloc((size_t)(wide * wide + 2 * wide), sizeof *move);
    int64_t *from = malloc(sizeof *from * (size_t)(longest * wide + 1));
    j->failed = !move || !from;
    for (int64_t i = 0; !j->failed && i < k; i++)
        memcpy(move + i * wide, j->move + i * k, sizeof *move * (size_t)k);
    for (int64_t c = 0; !j->failed && c < j->chains; c++) {
        const int64_t first = j->first[c], steps = j->first[c + 1] - first;
        double *now = move + wide * wide, *before = now + wide;
        for (int64_t t = 0; t < steps; t++) {
            if (t) pgm_best_before(before, move, k, wide, now, from + t * wide);
            for (int64_t i = 0; i < k; i++)
                now[i] = (t ? now[i] : 0.0) + j->field[(first + t) * k + i];
            double *last = before;
            before = now, now = last;
        }
        int64_t state = 0;
        for (int64_t i = 1; steps && i < k; i++) state = before[i] > before[state] ? i : state;
        j->log_z[c] = steps ? before[state] : 0.0;
        for (int64_t t = steps - 1; t >= 0; t--) {
            j->path[first + t] = (int32_t)state;
            if (t) state = from[t * wide + state];
        }
    }
    free(move);
    free(from);
}

#endif
