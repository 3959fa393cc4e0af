/* Products of small matrices, for which a call of BLAS takes longer than the arithmetic.
 *
 *     multiply: out += a b, a (rows, n), b any view (n, m)
 *     outer:    out = a' b, a (rows, n), b (rows, m)
 * with m of at most PGM_SMALL_COLUMNS and n of at most PGM_SMALL_ROWS. The right factor is copied
 * into rows of whole vectors first. Each entry is one running sum over ascending terms, whatever
 * the width of vectors is.
 *
 * Reference: numpy products (test_compiled_updates.py).
 */
#ifndef PGM_SMALL_PRODUCTS_H
#define PGM_SMALL_PRODUCTS_H

#include "products.h"

#define PGM_SMALL_COLUMNS 64
#define PGM_SMALL_ROWS 128

PGM_INLINE int pgm_is_small(int64_t n, int64_t m)
{
    return n <= PGM_SMALL_ROWS && m <= PGM_SMALL_COLUMNS;
}

/* sums of four rows: a (4, n) times tile (n, 16 groups); rows of a lie `apart` apart, and their
 * numbers `along` */
PGM_INLINE void pgm_four_rows(const float *a, int64_t apart, int64_t along, int64_t rows, int64_t n,
                              const float *tile, int groups, float *out)
{
    const int vectors = groups * PGM_PIECES;
    pgm_vf sum[4][PGM_PIECES * 4];
    for (int r = 0; r < 4; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = pgm_splat_f(0.0f);
    if (rows == 4)
        for (int64_t k = 0; k < n; k++)
            for (int r = 0; r < 4; r++)
                for (int v = 0; v < vectors; v++)
                    sum[r][v] += *(const pgm_vf *)(tile + k * groups * PGM_GROUP + v * PGM_WIDE)
                                 * a[r * apart + k * along];
    else
        for (int64_t k = 0; k < n; k++)
            for (int64_t r = 0; r < rows; r++)
                for (int v = 0; v < vectors; v++)
                    sum[r][v] += *(const pgm_vf *)(tile + k * groups * PGM_GROUP + v * PGM_WIDE)
                                 * a[r * apart + k * along];
    for (int r = 0; r < 4; r++)
        for (int v = 0; v < vectors; v++)
            *(pgm_vf *)(out + r * groups * PGM_GROUP + v * PGM_WIDE) = sum[r][v];
}

PGM_INLINE void pgm_some_rows(const float *a, int64_t apart, int64_t along, int64_t rows, int64_t n,
                              const float *tile, int groups, float *out)
{
    if (groups == 1)
        pgm_four_rows(a, apart, along, rows, n, tile, 1, out);
    else if (groups == 2)
        pgm_four_rows(a, apart, along, rows, n, tile, 2, out);
    else if (groups == 3)
        pgm_four_rows(a, apart, along, rows, n, tile, 3, out);
    else
        pgm_four_rows(a, apart, along, rows, n, tile, 4, out);
}

static void pgm_small_product(const float *a, const pgm_matrix *b, int64_t rows, int64_t apart,
                              float *out)
{
    float tile[PGM_SMALL_ROWS * PGM_SMALL_COLUMNS] __attribute__((aligned(64)));
    float sums[4 * PGM_SMALL_COLUMNS] __attribute__((aligned(64)));
    const int64_t n = b->rows, m = b->columns;
    const int groups = (int)((m + PGM_GROUP - 1) / PGM_GROUP);
    const int64_t wide = groups * PGM_GROUP;
    pgm_copy_tile(b, 0, 0, n, wide, tile);
    for (int64_t r = 0; r < rows; r += 4) {
        const int64_t some = pgm_min_l(4, rows - r);
        pgm_some_rows(a + r * n, n, 1, some, n, tile, groups, sums);
        for (int64_t i = 0; i < some; i++)
            for (int64_t j = 0; j < m; j++) out[(r + i) * apart + j] += sums[i * wide + j];
    }
}

static void pgm_small_outer(const float *a, const float *b, int64_t rows, int64_t n, int64_t m,
                            float *out)
{
    float tile[PGM_SMALL_ROWS * PGM_SMALL_COLUMNS] __attribute__((aligned(64)));
    float sums[4 * PGM_SMALL_COLUMNS] __attribute__((aligned(64)));
    const int groups = (int)((m + PGM_GROUP - 1) / PGM_GROUP);
    const int64_t wide = groups * PGM_GROUP;
    for (int64_t first = 0; first < rows; first += PGM_SMALL_ROWS) {
        const int64_t high = pgm_min_l(PGM_SMALL_ROWS, rows - first);
        const pgm_matrix part = {b + first * m, m, 1, high, m};
        pgm_copy_tile(&part, 0, 0, high, wide, tile);
        for (int64_t i = 0; i < n; i += 4) {
            const int64_t some = pgm_min_l(4, n - i);
            pgm_some_rows(a + first * n + i, 1, n, some, high, tile, groups, sums);
            for (int64_t r = 0; r < some; r++)
                for (int64_t j = 0; j < m; j++)
                    out[(i + r) * m + j] =
                        (first ? out[(i + r) * m + j] : 0.0f) + sums[r * wide + j];
        }
    }
}

#endif
