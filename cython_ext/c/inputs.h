/* Inputs of layers: updates after changes of states, and computation from scratch.
 *
 * For each layer b, every chain keeps field_b = bias_b + sum over couplings of x_a W_ab, and the
 * input zeta_b from the arrows into b. A change of component i by delta adds delta times row i of
 * the weight. Dense weights are stored as panels of columns, (tiles, rows, tile). A panel is
 * contiguous, so that it stays in cache while all chains of a block use it.
 *
 * Invariant: the sums of a chain are computed in the order of its own list of changes, in 64
 * running sums, by each of the methods below. Their results have the same bits, so that the choice
 * of the method may depend on all chains.
 *
 * Reference: numpy products of states and weights (test_compiled_sweeps.py: inputs do not drift,
 * and do not depend on the method).
 */
#ifndef PGM_INPUTS_H
#define PGM_INPUTS_H

#include "chains.h"

/* the inputs of a chain that a link adds to, or NULL if nothing reads them */
PGM_INLINE float *pgm_inputs(const pgm_chains *m, const pgm_link *k, int64_t chain)
{
    const pgm_layer *to = m->layer + k->to;
    float *rows = k->arrow ? to->zeta : to->field;
    return rows ? rows + chain * to->stride : NULL;
}

#define PGM_LINE 16       /* floats that are fetched together */
#define PGM_FAR (1 << 21) /* floats of a weight that does not stay in the caches of a core */
#define PGM_SHARED \
    3 /* uses of each row of a panel from which fetching all rows in order is faster */
#define PGM_MANY \
    8 /* if at least one row in so many changes, a separate loop over parts of panels is faster */

/* the part of a row in the panel that contains `column`, a multiple of 4 */
PGM_INLINE const float *pgm_part(const pgm_link *k, int64_t row, int64_t column)
{
    return k->weight + (column / k->tile * k->rows + row) * k->tile + column % k->tile;
}

#define PGM_SUMS (4 * PGM_PIECES) /* running sums: 64 floats */

/* y[column .. column + 16 groups) += sum of delta * weight row over changes. There are
 * 64 sums for any number of columns: a single sum, which waits for its last addition, would be four
 * times as slow. */
PGM_INLINE void pgm_add_tile(const pgm_link *k, int64_t tile, const pgm_change *list, int64_t count,
                             int64_t column, int groups, float *y)
{
    const float *weight = pgm_part(k, 0, column);
    const int together = 4 / groups, vectors = groups * PGM_PIECES;
    pgm_vf sum[PGM_SUMS];
    int64_t f = 0;
    for (int i = 0; i < PGM_SUMS; i++) sum[i] = pgm_splat_f(0.0f);
    for (; f + together <= count; f += together)
        for (int i = 0; i < PGM_SUMS; i++) {
            const pgm_change *change = list + f + i / vectors;
            sum[i] += *(const pgm_vf *)(weight + change->row * tile + i % vectors * PGM_WIDE)
                      * change->delta;
        }
    for (; f < count; f++)
        for (int v = 0; v < vectors; v++)
            sum[v] += *(const pgm_vf *)(weight + list[f].row * tile + v * PGM_WIDE) * list[f].delta;
    for (int i = vectors; i < PGM_SUMS; i++) sum[i % vectors] += sum[i];
    for (int v = 0; v < vectors; v++) *(pgm_vf *)(y + column + v * PGM_WIDE) += sum[v];
}

/* kept (16 groups) += delta * row over a list, from entry `f` on while rows are before `end`; rows
 * lie `stride` apart. `fresh`: kept starts at 0. Returns the next entry. */
PGM_INLINE int64_t pgm_add_rows(const pgm_change *list, int64_t f, int64_t count, const float *rows,
                                int64_t stride, int64_t end, int groups, int fresh, float *kept)
{
    const int vectors = groups * PGM_PIECES;
    pgm_vf sum[PGM_SUMS];
    for (int v = 0; v < vectors; v++)
        sum[v] = fresh ? pgm_splat_f(0.0f) : *(const pgm_vf *)(kept + v * PGM_WIDE);
    for (; f < count && list[f].row < end; f++) {
        const float *row = rows + list[f].row * stride, delta = list[f].delta;
        for (int v = 0; v < vectors; v++) sum[v] += *(const pgm_vf *)(row + v * PGM_WIDE) * delta;
    }
    for (int v = 0; v < vectors; v++) *(pgm_vf *)(kept + v * PGM_WIDE) = sum[v];
    return f;
}

#define PGM_PART \
    128 /* rows of 64 columns that stay in the nearest cache (32 KiB) while all chains use them */

/* a panel of 64 columns, part by part, with the bits of pgm_add_tile */
static void pgm_add_panel(const pgm_chains *m, const pgm_link *k, const pgm_scratch *s,
                          int64_t first, int64_t last, int64_t column)
{
    const int64_t parts = (k->rows + PGM_PART - 1) / PGM_PART, part = (k->rows + parts - 1) / parts;
    const float *panel = pgm_part(k, 0, column);
    float kept[PGM_TOGETHER][64];
    int64_t done[PGM_TOGETHER] = {0};
    memset(kept, 0, sizeof kept[0] * (last - first));
    for (int64_t row = 0; row < k->rows; row += part) {
        /* after a backward pass a list is not ascending, so that the last part takes the rest */
        int64_t end = pgm_min_l(row + part, k->rows);
        for (int64_t i = row * 64; i < end * 64; i += PGM_LINE) __builtin_prefetch(panel + i);
        for (int64_t c = 0; c < last - first; c++)
            done[c] = pgm_add_rows(s->list + c * s->capacity, done[c], s->count[c], panel, 64, end,
                                   4, 0, kept[c]);
    }
    for (int64_t c = first; c < last; c++)
        for (int64_t j = 0; j < 64; j += PGM_WIDE)
            *(pgm_vf *)(pgm_inputs(m, k, c) + column + j) += *(const pgm_vf *)(kept[c - first] + j);
}

PGM_INLINE void pgm_add_sparse(const pgm_link *k, const pgm_change *list, int64_t count, float *y)
{
    for (int64_t f = 0; f < count; f++)
        for (int64_t e = k->start[list[f].row]; e < k->start[list[f].row + 1]; e++)
            y[k->column[e]] += list[f].delta * k->weight[e];
}

/* whether the inputs are zeta of complement units, which rounding near 0 would change */
PGM_INLINE int pgm_adds_exactly(const pgm_chains *m, const pgm_link *k)
{
    return k->arrow && m->layer[k->to].complement;
}

/* zeta + rest += sum of delta * weight row over changes */
static void pgm_add_exactly(const pgm_layer *to, const pgm_link *k, int64_t chain,
                            const pgm_change *list, int64_t count)
{
    float *zeta = to->zeta + chain * to->stride, *rest = to->rest + chain * to->stride;
    for (int64_t f = 0; f < count; f++) {
        const int64_t row = list[f].row, end = k->rows ? to->size : k->start[row + 1];
        for (int64_t e = k->rows ? 0 : k->start[row]; e < end; e++) {
            const int64_t j = k->rows ? e : k->column[e];
            const double weight = k->rows ? pgm_part(k, row, j)[0] : k->weight[e];
            const double sum = (double)zeta[j] + rest[j] + list[f].delta * weight;
            zeta[j] = (float)sum;
            rest[j] = (float)(sum - zeta[j]);
        }
    }
}

/* Add the changes of chains first .. last - 1, each in its own list, through a link: to all columns
 * of a dense weight if `whole`, else to the ones whose units are free in some chain. */
static void pgm_add(const pgm_chains *m, const pgm_link *k, const pgm_scratch *s, int64_t first,
                    int64_t last, int whole)
{
    if (!pgm_inputs(m, k, first)) return;
    if (pgm_adds_exactly(m, k)) {
        for (int64_t c = first; c < last; c++)
            pgm_add_exactly(m->layer + k->to, k, c, s->list + (c - first) * s->capacity,
                            s->count[c - first]);
        return;
    }
    if (!k->rows) {
        for (int64_t c = first; c < last; c++)
            pgm_add_sparse(k, s->list + (c - first) * s->capacity, s->count[c - first],
                           pgm_inputs(m, k, c));
        return;
    }
    const pgm_layer *to = m->layer + k->to;
    const int64_t columns = whole ? to->stride : to->end, tile = k->tile;
    int64_t column = whole ? 0 : to->begin, changes = 0;
    for (int64_t c = first; c < last; c++) changes += s->count[c - first];
    int stream = columns * k->rows > PGM_FAR && changes > PGM_SHARED * k->rows;
    int many = tile == 64 && changes * PGM_MANY > k->rows * (last - first)
               && changes > PGM_SHARED * k->rows;
    for (; many && column + tile <= columns; column += tile)
        pgm_add_panel(m, k, s, first, last, column);
    for (; column + tile <= columns; column += tile) {
        const float *panel = pgm_part(k, 0, column);
        for (int64_t i = 0; stream && i < k->rows * tile; i += PGM_LINE)
            __builtin_prefetch(panel + i);
        for (int64_t c = first; c < last; c++) {
            const pgm_change *list = s->list + (c - first) * s->capacity;
            int64_t count = s->count[c - first];
            float *y = pgm_inputs(m, k, c);
            if (tile == 64)
                pgm_add_tile(k, 64, list, count, column, 4, y);
            else if (tile == 32)
                pgm_add_tile(k, 32, list, count, column, 2, y);
            else
                pgm_add_tile(k, 16, list, count, column, 1, y);
        }
    }
    for (; column < columns; column += PGM_GROUP)
        for (int64_t c = first; c < last; c++)
            pgm_add_tile(k, tile, s->list + (c - first) * s->capacity, s->count[c - first], column,
                         1, pgm_inputs(m, k, c));
}

/* the states of a chain as changes from 0, without branches on states, which are unpredictable */
PGM_INLINE int64_t pgm_list_all(const pgm_layer *l, int64_t chain, pgm_change *list)
{
    const uint8_t *state = l->state + chain * l->units;
    int64_t n = 0;
    if (l->width > 1)
        for (; n < l->size; n++) list[n] = (pgm_change){(int32_t)(n * l->width + state[n]), 1.0f};
    else if (l->kind == PGM_FINITE && l->states == 2 && l->support[0] == 0.0f)
        for (int64_t first = 0; first < l->units; first += PGM_BLOCK) {
            uint64_t bytes[8] = {0};
            for (int64_t j = first; j < l->units && j < first + PGM_BLOCK; j += PGM_GROUP)
                memcpy((uint8_t *)bytes + j - first, state + j, PGM_GROUP);
            for (uint64_t left = pgm_flags(bytes); left; left &= left - 1)
                list[n++] = (pgm_change){(int32_t)first + __builtin_ctzll(left), l->support[1]};
        }
    else
        for (int64_t j = 0; j < l->size; j++) {
            float x = l->kind == PGM_FINITE ? l->support[state[j]] : l->value[chain * l->units + j];
            list[n] = (pgm_change){(int32_t)j, x};
            n += x != 0.0f;
        }
    return n;
}

/* y = a + b, either may be NULL; n is a multiple of PGM_GROUP */
PGM_INLINE void pgm_set_sum(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t j = 0; j < n; j += PGM_WIDE) {
        pgm_vf sum = pgm_splat_f(0.0f);
        if (a) sum += *(const pgm_vf *)(a + j);
        if (b) sum += *(const pgm_vf *)(b + j);
        *(pgm_vf *)(y + j) = sum;
    }
}

/* Compute the inputs of a layer from the states of chains first .. last - 1: first the input from
 * layers that never move, which is stored in base, then the rest. */
PGM_INLINE void pgm_refresh_layer(const pgm_chains *m, pgm_scratch *s, int64_t first, int64_t last,
                                  int index)
{
    pgm_layer *l = m->layer + index;
    for (int64_t c = first; c < last; c++) {
        const float *soft = l->soft ? l->soft + c * l->stride : NULL;
        if (l->field)
            pgm_set_sum(l->field + c * l->stride, soft, l->directed ? NULL : l->bias, l->stride);
        if (l->zeta)
            pgm_set_sum(l->zeta + c * l->stride, NULL, l->complement ? NULL : l->bias, l->stride);
        if (l->rest) pgm_set_sum(l->rest + c * l->stride, NULL, NULL, l->stride);
    }
    for (int moving = 0; moving < 2; moving++) {
        for (int i = 0; i < m->links; i++) {
            const pgm_link *k = m->link + i;
            if (k->to != index || m->layer[k->from].moves != moving) continue;
            for (int64_t c = first; c < last; c++)
                s->count[c - first] =
                    pgm_list_all(m->layer + k->from, c, s->list + (c - first) * s->capacity);
            /* base is read as a whole */
            pgm_add(m, k, s, first, last, m->whole || !moving);
        }
        if (l->base && !moving)
            memcpy(l->base + first * l->stride, l->field + first * l->stride,
                   sizeof(float) * l->stride * (last - first));
    }
}

/* all inputs, or only those of complement layers, which rounding near 0 would change */
PGM_INLINE void pgm_refresh(const pgm_chains *m, pgm_scratch *s, int64_t first, int64_t last,
                            int complement)
{
    for (int i = 0; i < m->layers; i++)
        if (!complement || m->layer[i].complement) pgm_refresh_layer(m, s, first, last, i);
}

#endif
