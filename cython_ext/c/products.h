/* Matrix products for learning whose left factor has many zeros; packing of weights into panels.
 *
 *     multiply: out += a b, a (rows, n), b any view of a weight (n, m)
 *     outer:    out = a' b, a (rows, n), b (rows, m)
 * The nonzero numbers of a become lists of (row of b, number). Rows of b are added by these lists,
 * for one tile of 64 columns at a time, which stays in the nearest cache. Zeros of a take no time,
 * and the number of b that belongs to a zero is not read.
 *
 * Invariants. Each entry is summed over ascending rows in one running sum. (Where all numbers are
 * 1, two rows are first added to each other.) The sum therefore does not depend on tiles, on other
 * rows, or on the number of threads. `multiply` adds the whole sum to out at the end, because small
 * terms would be lost if each of them were added to a large number.
 *
 * Reference: numpy products in double precision (test_compiled_updates.py).
 */
#ifndef PGM_PRODUCTS_H
#define PGM_PRODUCTS_H

#include "inputs.h"

/* Copy the elements from (row, column) on to out (high, tile), with zeros beyond the last column.
 */
PGM_INLINE void pgm_copy_tile(const pgm_matrix *from, int64_t row, int64_t column, int64_t high,
                              int64_t tile, float *out)
{
    const int64_t down = from->down, right = from->right,
                  wide = pgm_min_l(tile, from->columns - column);
    const float *w = from->w + row * down + column * right;
    int64_t i = 0;
    for (; right == 1 && i < high; i++) {
        int64_t j = 0;
        for (; j + PGM_WIDE <= wide; j += PGM_WIDE)
            *(pgm_vf *)(out + i * tile + j) = *(const pgm_vf *)(w + i * down + j);
        for (; j < wide; j++) out[i * tile + j] = w[i * down + j];
    }
    for (; down == 1 && i + 4 <= high; i += 4) {
        int64_t j = 0;
        for (; j + 4 <= wide; j += 4)
            pgm_transpose4(w + i + j * right, right, tile, out + i * tile + j);
        for (; j < wide; j++)
            for (int64_t k = 0; k < 4; k++) out[(i + k) * tile + j] = w[i + k + j * right];
    }
    for (; i < high; i++)
        for (int64_t j = 0; j < wide; j++) out[i * tile + j] = w[i * down + j * right];
    for (i = 0; i < high && wide < tile; i++)
        for (int64_t j = wide; j < tile; j++) out[i * tile + j] = 0.0f;
}

/* panels first .. last - 1 (rows, tile) of a weight */
static void pgm_pack_part(void *job, int64_t first, int64_t last)
{
    const pgm_pack_job *j = job;
    const int64_t rows = j->weight.rows, tile = j->tile;
    for (int64_t t = first; t < last; t++)
        pgm_copy_tile(&j->weight, 0, t * tile, rows, tile, j->out + t * rows * tile);
}

#define PGM_LISTS 128 /* lists that are made together */

/* lists of rows, each with its factor, to be added to sums that lie `apart` */
typedef struct {
    pgm_change *list; /* (some, capacity) */
    float *sums;
    int64_t capacity, apart, some, count[PGM_LISTS], done[PGM_LISTS];
    /* the numbers that are needed next, fetched in the meantime: `lines` lines of `length` numbers,
     * `far` apart */
    const float *next;
    int64_t lines, length, far;
    uint8_t ones[PGM_LISTS]; /* whether every number of a list is 1 */
} pgm_lists;

typedef int32_t pgm_bits __attribute__((may_alias));

/* whether a number is not 0, by its bits, since a comparison of floats takes three times as long */
PGM_INLINE int pgm_is_not_0(const float *x) { return (*(const pgm_bits *)x & 0x7fffffff) != 0; }

/* whether all numbers are 0 or 1, with the bits 0 or 0x3f800000, so that no multiplication is
 * needed
 */
PGM_INLINE int pgm_is_binary(const float *x, int64_t numbers)
{
    const pgm_bits *bits = (const pgm_bits *)x;
    pgm_vi other = {0};
    int64_t i = 0;
    int32_t any = 0;
    for (; i + PGM_WIDE <= numbers; i += PGM_WIDE) {
        pgm_vi some = *(const pgm_vi *)(bits + i);
        /* a bit outside of 0x3f800000, or some but not all of its bits */
        other |= (some & ~0x3f800000) | ((some ^ some >> 1) & 0x1f800000);
    }
    for (; i < numbers; i++) any |= bits[i] != 0 && bits[i] != 0x3f800000;
    for (int k = 0; k < PGM_WIDE; k++) any |= other[k];
    return !any;
}

/* Bit k says whether number k of x is not 0, of at most PGM_BLOCK numbers. */
PGM_INLINE uint64_t pgm_nonzero_flags(const float *x, int64_t numbers)
{
    uint64_t bytes[PGM_BLOCK / 8] = {0}, bits = 0;
    if (numbers < PGM_BLOCK) {
        for (int64_t k = 0; k < numbers; k++) bits |= (uint64_t)pgm_is_not_0(x + k) << k;
        return bits;
    }
    for (int i = 0; i < PGM_VECTORS; i++) {
        pgm_bytes hit =
            pgm_narrow((*(const pgm_vi *)(x + i * PGM_WIDE) & 0x7fffffff) != 0) & (int8_t)1;
        memcpy((uint8_t *)bytes + i * PGM_WIDE, &hit, sizeof hit);
    }
    return pgm_flags(bytes);
}

/* Make a list of each row of x (some, n). */
PGM_INLINE void pgm_list_rows(pgm_lists *l, const float *x, int64_t n)
{
    for (int64_t r = 0; r < l->some; r++) {
        const float *row = x + r * n;
        pgm_change *list = l->list + r * l->capacity;
        int64_t count = 0;
        for (int64_t i = 0; i < n; i += PGM_BLOCK)
            for (uint64_t left = pgm_nonzero_flags(row + i, n - i); left; left &= left - 1) {
                int32_t j = (int32_t)i + __builtin_ctzll(left);
                list[count++] = (pgm_change){j, row[j]};
            }
        l->count[r] = count;
        l->ones[r] = pgm_is_binary(row, n);
    }
}

/* Make a list of each of the first columns of x (rows, n). */
PGM_INLINE void pgm_list_columns(pgm_lists *l, const float *x, int64_t rows, int64_t n)
{
    memset(l->count, 0, sizeof l->count);
    for (int64_t r = 0; r < rows; r++, x += n)
        for (int64_t i = 0; i < l->some; i += PGM_BLOCK)
            for (uint64_t left = pgm_nonzero_flags(x + i, l->some - i); left; left &= left - 1) {
                int64_t k = i + __builtin_ctzll(left);
                l->list[k * l->capacity + l->count[k]++] = (pgm_change){(int32_t)r, x[k]};
            }
}

/* pgm_add_rows where every delta is 1. Two rows are added to each other first, so that sums wait
 * half as often. */
PGM_INLINE int64_t pgm_add_ones(const pgm_change *list, int64_t f, int64_t count, const float *rows,
                                int64_t stride, int64_t end, int groups, int fresh, float *kept)
{
    const int vectors = groups * PGM_PIECES;
    pgm_vf sum[PGM_SUMS];
    for (int v = 0; v < vectors; v++)
        sum[v] = fresh ? pgm_splat_f(0.0f) : *(const pgm_vf *)(kept + v * PGM_WIDE);
    for (; f + 1 < count && list[f + 1].row < end; f += 2) {
        const float *a = rows + list[f].row * stride, *b = rows + list[f + 1].row * stride;
        for (int v = 0; v < vectors; v++)
            sum[v] += *(const pgm_vf *)(a + v * PGM_WIDE) + *(const pgm_vf *)(b + v * PGM_WIDE);
    }
    if (f < count && list[f].row < end) {
        const float *a = rows + list[f++].row * stride;
        for (int v = 0; v < vectors; v++) sum[v] += *(const pgm_vf *)(a + v * PGM_WIDE);
    }
    for (int v = 0; v < vectors; v++) *(pgm_vf *)(kept + v * PGM_WIDE) = sum[v];
    return f;
}

/* Add the listed rows before row `end` to the sums, which start at 0 if `fresh`; rows lie `stride`
 * apart. */
PGM_INLINE void pgm_add_lists(pgm_lists *l, int fresh, const float *rows, int64_t stride,
                              int64_t end, int groups)
{
    for (int64_t r = 0; r < l->some; r++) {
        for (int64_t k = r; k < l->lines; k += l->some)
            for (int64_t i = 0; i < l->length; i += PGM_LINE)
                __builtin_prefetch(l->next + k * l->far + i, 0, 2);
        const pgm_change *list = l->list + r * l->capacity;
        float *sums = l->sums + r * l->apart;
        l->done[r] = l->ones[r] ? pgm_add_ones(list, l->done[r], l->count[r], rows, stride, end,
                                               groups, fresh, sums)
                                : pgm_add_rows(list, l->done[r], l->count[r], rows, stride, end,
                                               groups, fresh, sums);
    }
}

/* the same with a tile of 64 columns whose first row is number `begin`, and with as many groups as
 * its columns fill */
PGM_INLINE void pgm_add_tile_lists(pgm_lists *l, int fresh, const float *tile, int64_t begin,
                                   int64_t end, int64_t wide)
{
    const float *rows = tile - begin * 64;
    if (wide > 48)
        pgm_add_lists(l, fresh, rows, 64, end, 4);
    else if (wide > 32)
        pgm_add_lists(l, fresh, rows, 64, end, 3);
    else if (wide > 16)
        pgm_add_lists(l, fresh, rows, 64, end, 2);
    else
        pgm_add_lists(l, fresh, rows, 64, end, 1);
}

#define PGM_BAND \
    96 /* rows of a tile of 64 columns: 24 KiB, so that it and a list stay in the nearest cache */

/* Copy the tile (high, 64) of w from (row, column) on. The next tile, below or at the top to
 * the right, is fetched while this one is used. */
PGM_INLINE void pgm_take_tile(pgm_lists *l, const pgm_matrix *w, int64_t high, int64_t row,
                              int64_t column, float *tile)
{
    int64_t below = row + high < w->rows ? row + high : 0,
            beside = below ? column : pgm_min_l(w->columns, column + 64);
    int64_t next_high = pgm_min_l(high, w->rows - below),
            next_wide = pgm_min_l(64, w->columns - beside);
    l->next = w->w + below * w->down + beside * w->right,
    l->far = w->right == 1 ? w->down : w->right;
    l->lines = w->right == 1 ? next_high : next_wide,
    l->length = w->right == 1 ? next_wide : next_high;
    pgm_copy_tile(w, row, column, pgm_min_l(high, w->rows - row), 64, tile);
}

/* y (rows, m), its rows `apart` apart, += x (rows, n) w (n, m); list has room for PGM_LISTS * n */
static void pgm_multiply(const float *x, const pgm_matrix *w, int64_t rows, int64_t apart,
                         pgm_change *list, float *y)
{
    float tile[PGM_BAND * 64] __attribute__((aligned(64))),
        sums[PGM_LISTS * 64] __attribute__((aligned(64)));
    const int64_t n = w->rows, bands = (n + PGM_BAND - 1) / PGM_BAND,
                  band = (n + bands - 1) / bands;
    pgm_lists l = {.list = list, .capacity = n, .sums = sums, .apart = 64};
    for (int64_t first = 0; first < rows; first += PGM_LISTS) {
        int64_t uses = 0;
        l.some = pgm_min_l(PGM_LISTS, rows - first);
        pgm_list_rows(&l, x + first * n, n);
        for (int64_t r = 0; r < l.some; r++) uses += l.count[r];
        for (int64_t column = 0; column < w->columns; column += 64) {
            int64_t wide = pgm_min_l(64, w->columns - column);
            memset(l.done, 0, sizeof l.done);
            for (int64_t row = 0; row < n; row += band) /* few uses of a row are not worth a copy */
                if (w->right == 1 && wide == 64 && uses <= PGM_SHARED * n) {
                    l.lines = 0;
                    pgm_add_lists(&l, row == 0, w->w + column, w->down, row + band, 4);
                } else {
                    pgm_take_tile(&l, w, band, row, column, tile);
                    pgm_add_tile_lists(&l, row == 0, tile, row, row + band, wide);
                }
            for (int64_t r = 0; r < l.some; r++)
                for (int64_t j = 0; j < wide; j++)
                    y[(first + r) * apart + column + j] += sums[r * 64 + j];
        }
    }
}

#define PGM_TALL \
    112 /* rows of b in a tile: a batch of 100 is one band, which saves a pass over the sums */

/* rows first .. last - 1 of out (n, m): sum over r of a[r, i] b[r, :]; list has room for PGM_LISTS
 * * PGM_TALL, tiles for the lesser of rows and PGM_TALL times m rounded up to 64 */
static void pgm_outer(const float *a, const float *b, int64_t rows, int64_t n, int64_t m,
                      int64_t first, int64_t last, pgm_change *list, float *tiles, float *out)
{
    const int64_t bands = (rows + PGM_TALL - 1) / PGM_TALL, band = (rows + bands - 1) / bands;
    /* few sums: only the last columns, if there are less than 64, need a tile */
    const int few = last - first <= PGM_SHARED;
    const pgm_matrix whole = {b, m, 1, rows, m};
    float narrow[PGM_LISTS * 64];
    pgm_lists l = {.list = list, .capacity = PGM_TALL, .length = 64, .far = m};
    memset(l.ones, pgm_is_binary(a, rows * n), sizeof l.ones);
    for (int64_t row = 0; row < rows; row += band) {
        int64_t high = pgm_min_l(band, rows - row);
        for (int64_t column = few ? m / 64 * 64 : 0; column < m; column += 64)
            pgm_copy_tile(&whole, row, column, high, 64, tiles + high * column);
        for (int64_t i = first; i < last; i += PGM_LISTS) {
            l.some = l.lines = pgm_min_l(PGM_LISTS, last - i);
            pgm_list_columns(&l, a + row * n + i, high, n);
            for (int64_t column = 0; column < m; column += 64) {
                int64_t wide = pgm_min_l(64, m - column);
                float *to = out + i * m + column;
                l.sums = wide < 64 ? narrow : to, l.apart = wide < 64 ? 64 : m, l.next = to + 64;
                memset(l.done, 0, sizeof l.done);
                for (int64_t k = 0; wide < 64 && row && k < l.some; k++)
                    memcpy(narrow + k * 64, to + k * m, sizeof(float) * wide);
                if (few && wide == 64)
                    pgm_add_lists(&l, row == 0, b + row * m + column, m, high, 4);
                else
                    pgm_add_tile_lists(&l, row == 0, tiles + high * column, 0, high, wide);
                for (int64_t k = 0; wide < 64 && k < l.some; k++)
                    memcpy(to + k * m, narrow + k * 64, sizeof(float) * wide);
            }
        }
    }
}

static void pgm_multiply_part(void *job, int64_t first, int64_t last)
{
    pgm_product_job *j = job;
    const int64_t n = j->n;
    pgm_change *list = malloc(sizeof *list * PGM_LISTS * (size_t)n);
    if (list)
        pgm_multiply(j->a + first * n, &j->b, last - first, j->apart, list,
                     j->out + first * j->apart);
    else
        j->failed = 1;
    free(list);
}

static void pgm_outer_part(void *job, int64_t first, int64_t last)
{
    pgm_product_job *j = job;
    const int64_t m = j->b.columns;
    pgm_change *list = malloc(sizeof *list * PGM_LISTS * PGM_TALL);
    char *memory =
        malloc(sizeof(float) * (size_t)(pgm_min_l(j->rows, PGM_TALL) * ((m + 63) / 64 * 64)) + 64);
    if (list && memory) {
        float *tiles = (float *)(memory + (64 - (uintptr_t)memory % 64));
        pgm_outer(j->a, j->b.w, j->rows, j->n, m, first, last, list, tiles, j->out);
    } else
        j->failed = 1;
    free(list);
    free(memory);
}

#endif
