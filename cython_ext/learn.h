/* What learning does once for every update: products with sparse states, sums of outer products, packing of weights
 * for the sweeps, and the steps of the optimizers. */
#ifndef PGM_LEARN_H
#define PGM_LEARN_H

#include "sweep.h"

#define PGM_ROWS 64 /* rows of a product whose lists are made together */

/* `vectors` vectors of y += sum of delta * weight row over a list; rows of the weight lie `stride` apart */
PGM_INLINE void pgm_add_rows(const pgm_change *list, int64_t count, const float *weight, int64_t stride, int vectors,
                             float *y)
{
    pgm_vf sum[4];
    for (int v = 0; v < vectors; v++) sum[v] = *(const pgm_vf *)(y + v * PGM_WIDE);
    for (int64_t f = 0; f < count; f++) {
        const float *row = weight + list[f].row * stride;
        for (int v = 0; v < vectors; v++) sum[v] += *(const pgm_vf *)(row + v * PGM_WIDE) * list[f].delta;
    }
    for (int v = 0; v < vectors; v++) *(pgm_vf *)(y + v * PGM_WIDE) = sum[v];
}

/* y (rows, m) += x (rows, n) w (n, m), zeros in x skipped; list has room for PGM_ROWS * n + 1 */
PGM_CLONES
void pgm_multiply(const float *x, const float *w, int64_t rows, int64_t n, int64_t m, pgm_change *list, float *y)
{
    int64_t count[PGM_ROWS];
    for (int64_t first = 0; first < rows; first += PGM_ROWS) {
        int64_t some = rows - first < PGM_ROWS ? rows - first : PGM_ROWS;
        for (int64_t r = 0; r < some; r++) {
            const float *row = x + (first + r) * n;
            pgm_change *to = list + r * n;
            count[r] = 0;
            for (int64_t i = 0; i < n; i++) {
                to[count[r]] = (pgm_change){(int32_t)i, row[i]};
                count[r] += row[i] != 0.0f;
            }
        }
        int64_t column = 0;
        for (; column + 64 <= m; column += 64)
            for (int64_t r = 0; r < some; r++)
                pgm_add_rows(list + r * n, count[r], w + column, m, 4, y + (first + r) * m + column);
        for (; column + PGM_WIDE <= m; column += PGM_WIDE)
            for (int64_t r = 0; r < some; r++)
                pgm_add_rows(list + r * n, count[r], w + column, m, 1, y + (first + r) * m + column);
        for (; column < m; column++)
            for (int64_t r = 0; r < some; r++) {
                float sum = y[(first + r) * m + column];
                for (int64_t f = 0; f < count[r]; f++) sum += list[r * n + f].delta * w[list[r * n + f].row * m + column];
                y[(first + r) * m + column] = sum;
            }
    }
}

#define PGM_BAND 96 /* rows of b that a tile of 64 columns keeps in the nearest cache */
#define PGM_GROUP 64 /* rows of the sum that share such a tile */

/* rows first .. last - 1 of out (n, m): sum over r of a[r, i] b[r, :], zeros in a (rows, n) skipped; b (rows, m);
 * list has room for PGM_GROUP * PGM_BAND */
PGM_CLONES
void pgm_outer(const float *a, const float *b, int64_t rows, int64_t n, int64_t m, int64_t first, int64_t last,
               pgm_change *list, float *out)
{
    int64_t count[PGM_GROUP];
    memset(out + first * m, 0, sizeof(float) * (last - first) * m);
    for (int64_t band = 0; band < rows; band += PGM_BAND) {
        int64_t high = rows - band < PGM_BAND ? rows - band : PGM_BAND;
        const float *from = b + band * m;
        for (int64_t i = first; i < last; i += PGM_GROUP) {
            int64_t some = last - i < PGM_GROUP ? last - i : PGM_GROUP;
            for (int64_t k = 0; k < some; k++) count[k] = 0;
            for (int64_t r = 0; r < high; r++)
                for (int64_t k = 0; k < some; k++) {
                    float x = a[(band + r) * n + i + k];
                    list[k * PGM_BAND + count[k]] = (pgm_change){(int32_t)r, x};
                    count[k] += x != 0.0f;
                }
            int64_t column = 0;
            for (; column + 64 <= m; column += 64)
                for (int64_t k = 0; k < some; k++)
                    pgm_add_rows(list + k * PGM_BAND, count[k], from + column, m, 4, out + (i + k) * m + column);
            for (; column + PGM_WIDE <= m; column += PGM_WIDE)
                for (int64_t k = 0; k < some; k++)
                    pgm_add_rows(list + k * PGM_BAND, count[k], from + column, m, 1, out + (i + k) * m + column);
            for (; column < m; column++)
                for (int64_t k = 0; k < some; k++)
                    for (int64_t f = 0; f < count[k]; f++)
                        out[(i + k) * m + column] += list[k * PGM_BAND + f].delta * from[list[k * PGM_BAND + f].row * m + column];
        }
    }
}

/* panels `first` .. last - 1 (rows, tile) of a weight with element (i, j) at w[i * down + j * right] */
PGM_CLONES
void pgm_pack(const float *w, int64_t rows, int64_t columns, int64_t down, int64_t right, int64_t tile, int64_t first,
              int64_t last, float *out)
{
    for (int64_t t = first; t < last; t++) {
        int64_t wide = columns - t * tile < tile ? columns - t * tile : tile;
        float *panel = out + t * rows * tile;
        const float *from = w + t * tile * right;
        if (right == 1) {
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < wide; j++) panel[i * tile + j] = from[i * down + j];
        } else {
            for (int64_t i = 0; i < rows; i += 8) { /* eight numbers of a cache line at a time */
                int64_t high = rows - i < 8 ? rows - i : 8;
                for (int64_t j = 0; j < wide; j++)
                    for (int64_t k = 0; k < high; k++) panel[(i + k) * tile + j] = from[(i + k) * down + j * right];
            }
        }
        for (int64_t i = 0; i < rows && wide < tile; i++)
            for (int64_t j = wide; j < tile; j++) panel[i * tile + j] = 0.0f;
    }
}

/* ---- optimizers: all ascend ---- */

enum { PGM_SGD, PGM_ADAM, PGM_ADAMAX };

typedef struct {
    double rate, keep1, keep2, unbias1, unbias2, epsilon, l1, l2; /* unbias: what the moments are divided by */
} pgm_rates;

typedef float pgm_f8u __attribute__((vector_size(32), aligned(4), may_alias));

PGM_INLINE pgm_v8 pgm_sqrt8(pgm_v8 x)
{
    for (int i = 0; i < PGM_LANES; i++) x[i] = sqrt(x[i]);
    return x;
}

/* eight parameters after one step; m and v may be NULL for plain SGD */
PGM_INLINE pgm_v8 pgm_ascend8(int kind, const pgm_rates *o, pgm_v8 p, pgm_v8 g, double *m, double *v)
{
    const pgm_v8 zero = {0};
    g -= o->l2 * p + pgm_pick(p > zero, zero + o->l1, pgm_pick(p < zero, zero - o->l1, zero));
    pgm_v8 step = g;
    if (m) {
        pgm_v8 mean = *(pgm_v8 *)m * o->keep1;
        if (kind == PGM_SGD)
            mean += g;
        else
            mean += (1 - o->keep1) * g;
        *(pgm_v8 *)m = step = mean;
    }
    if (kind == PGM_ADAM) {
        pgm_v8 square = *(pgm_v8 *)v * o->keep2 + (1 - o->keep2) * g * g;
        *(pgm_v8 *)v = square;
        step = step / o->unbias1 / (pgm_sqrt8(square / o->unbias2) + o->epsilon);
    } else if (kind == PGM_ADAMAX) {
        pgm_v8 large = *(pgm_v8 *)v * o->keep2, size = pgm_pick(g < zero, -g, g);
        large = pgm_pick(size > large, size, large);
        large = pgm_pick(g == g, large, g); /* NaN stays */
        *(pgm_v8 *)v = large;
        step = step / o->unbias1 / (large + o->epsilon);
    }
    return p + o->rate * step;
}

/* parameters first .. last - 1; the gradient is g, or single when g is NULL; whether all new parameters are finite;
 * p2 receives them, and copy in single precision */
PGM_INLINE int pgm_ascend_kind(int kind, const pgm_rates *o, const double *p, const double *g, const float *single,
                               double *p2, float *copy, double *m, double *v, int64_t first, int64_t last)
{
    int finite = 1;
    int64_t i = first;
    pgm_v8 bad = {0};
    for (; i + PGM_LANES <= last; i += PGM_LANES) {
        pgm_v8 slope = g ? *(const pgm_v8 *)(g + i) : __builtin_convertvector(*(const pgm_f8u *)(single + i), pgm_v8);
        pgm_v8 new = pgm_ascend8(kind, o, *(const pgm_v8 *)(p + i), slope, m ? m + i : NULL, v ? v + i : NULL);
        *(pgm_v8 *)(p2 + i) = new;
        *(pgm_f8u *)(copy + i) = __builtin_convertvector(new, pgm_f8u);
        bad += new - new;
    }
    for (int k = 0; k < PGM_LANES; k++) finite &= bad[k] == 0.0;
    if (i < last) {
        double part[4][PGM_LANES] = {{0}};
        for (int64_t k = 0; k < last - i; k++) {
            part[0][k] = p[i + k], part[1][k] = g ? g[i + k] : single[i + k];
            if (m) part[2][k] = m[i + k];
            if (v) part[3][k] = v[i + k];
        }
        pgm_v8 out = pgm_ascend8(kind, o, *(pgm_v8 *)part[0], *(pgm_v8 *)part[1], m ? part[2] : NULL, v ? part[3] : NULL);
        for (int64_t k = 0; k < last - i; k++) {
            p2[i + k] = out[k], copy[i + k] = (float)out[k], finite &= out[k] - out[k] == 0.0;
            if (m) m[i + k] = part[2][k];
            if (v) v[i + k] = part[3][k];
        }
    }
    return finite;
}

PGM_CLONES
int pgm_ascend(int kind, const pgm_rates *o, const double *p, const double *g, const float *single, double *p2,
               float *copy, double *m, double *v, int64_t first, int64_t last)
{
    if (kind == PGM_SGD) return pgm_ascend_kind(PGM_SGD, o, p, g, single, p2, copy, m, NULL, first, last);
    if (kind == PGM_ADAM) return pgm_ascend_kind(PGM_ADAM, o, p, g, single, p2, copy, m, v, first, last);
    return pgm_ascend_kind(PGM_ADAMAX, o, p, g, single, p2, copy, m, v, first, last);
}

#endif
