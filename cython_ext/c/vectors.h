/* Types for vectors of numbers, and a name for each operation on them.
 *
 * A vector is as wide as a register of the kind of processor for which this file is compiled
 * (routines.c). Wider vectors would also be correct, but compilers keep them in memory. The types
 * are extensions of C that gcc and clang share. No code names an instruction of a particular
 * processor. The last letter of a name is the type of the numbers:
 *     d  double          l  int64_t, bits or masks of doubles
 *     f  float           i  int32_t, bits or masks of floats
 *     u  uint32_t
 * In each lane of a mask, as comparisons return it, all bits are set or none of them.
 * pgm_select(mask, a, b) is a where the mask is set, and b elsewhere. pgm_min and pgm_max return b
 * where either is NaN. hsum, hprod and hmax reduce the lanes of a vector.
 *
 * Invariants. Results depend on the operands only: multiplications are not fused with additions
 * (-ffp-contract=off), and sums are not reordered. Reductions add neighbours first, so that hsum of
 * floats in groups of 16 (pgm_sums) has the same bits for any width. Loads through these types need
 * only the alignment of one number, and may alias.
 *
 * Tests: test_processors.py (the same bits for all widths), test_compiled_sweeps.py (functions
 * against numpy).
 */
#ifndef PGM_VECTORS_H
#define PGM_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define PGM_LANES 8
#elif defined(__AVX2__)
#define PGM_LANES 4
#else
#define PGM_LANES 2
#endif
#define PGM_REGISTER (PGM_LANES * 8)      /* bytes */
#define PGM_WIDE (2 * PGM_LANES)          /* floats in a vector: 16, 8 or 4 */
#define PGM_GROUP 16                      /* layers are padded to a multiple of so many floats */
#define PGM_PIECES (PGM_GROUP / PGM_WIDE) /* vectors in a group */
#define PGM_INLINE static inline __attribute__((always_inline))

typedef double pgm_vd __attribute__((vector_size(PGM_REGISTER), aligned(8), may_alias));
typedef int64_t pgm_vl __attribute__((vector_size(PGM_REGISTER), aligned(8), may_alias));
typedef float pgm_vf __attribute__((vector_size(PGM_REGISTER), aligned(4), may_alias));
typedef int32_t pgm_vi __attribute__((vector_size(PGM_REGISTER), aligned(4), may_alias));
typedef uint32_t pgm_vu __attribute__((vector_size(PGM_REGISTER), aligned(4), may_alias));
/* floats, as many as pgm_vd has numbers; and 16 and 8 bits, as many as pgm_vf has numbers */
typedef float pgm_vh __attribute__((vector_size(PGM_REGISTER / 2), aligned(4), may_alias));
typedef int16_t pgm_vs __attribute__((vector_size(PGM_REGISTER / 2), aligned(2), may_alias));
typedef int8_t pgm_bytes __attribute__((vector_size(PGM_REGISTER / 4), aligned(1), may_alias));
/* four floats, whatever the width of registers */
typedef float pgm_f4 __attribute__((vector_size(16), aligned(4), may_alias));

/* ---- splat, select, min, max, abs, any ---- */

PGM_INLINE pgm_vd pgm_splat_d(double x) { return x - (pgm_vd){0}; }

PGM_INLINE pgm_vf pgm_splat_f(float x) { return x - (pgm_vf){0}; }

PGM_INLINE pgm_vu pgm_splat_u(uint32_t x) { return (pgm_vu){0} + x; }

PGM_INLINE pgm_vd pgm_select_d(pgm_vl mask, pgm_vd yes, pgm_vd no)
{
    return (pgm_vd)(((pgm_vl)yes & mask) | ((pgm_vl)no & ~mask));
}

PGM_INLINE pgm_vf pgm_select_f(pgm_vi mask, pgm_vf yes, pgm_vf no)
{
    return (pgm_vf)(((pgm_vi)yes & mask) | ((pgm_vi)no & ~mask));
}

PGM_INLINE pgm_vi pgm_select_i(pgm_vi mask, pgm_vi yes, pgm_vi no)
{
    return (yes & mask) | (no & ~mask);
}

PGM_INLINE pgm_vd pgm_min_d(pgm_vd a, pgm_vd b) { return pgm_select_d(a < b, a, b); }

PGM_INLINE pgm_vd pgm_max_d(pgm_vd a, pgm_vd b) { return pgm_select_d(a > b, a, b); }

PGM_INLINE pgm_vf pgm_min_f(pgm_vf a, pgm_vf b) { return pgm_select_f(a < b, a, b); }

PGM_INLINE pgm_vf pgm_max_f(pgm_vf a, pgm_vf b) { return pgm_select_f(a > b, a, b); }

PGM_INLINE int64_t pgm_min_l(int64_t a, int64_t b) { return a < b ? a : b; }

PGM_INLINE pgm_vd pgm_abs_d(pgm_vd x) { return (pgm_vd)((pgm_vl)x & INT64_MAX); }

PGM_INLINE pgm_vf pgm_abs_f(pgm_vf x) { return (pgm_vf)((pgm_vi)x & INT32_MAX); }

PGM_INLINE pgm_vd pgm_sqrt_d(pgm_vd x)
{
    for (int i = 0; i < PGM_LANES; i++) x[i] = sqrt(x[i]);
    return x;
}

/* Whether any bit is set; every number except +0 has one. */
PGM_INLINE int pgm_any_l(pgm_vl x)
{
    int64_t bits = 0;
    for (int i = 0; i < PGM_LANES; i++) bits |= x[i];
    return bits != 0;
}

PGM_INLINE int pgm_any_d(pgm_vd x) { return pgm_any_l((pgm_vl)x); }

PGM_INLINE int pgm_any_i(pgm_vi x) { return pgm_any_l((pgm_vl)x); }

/* ---- reductions, neighbours first ---- */

PGM_INLINE double pgm_hmax_d(pgm_vd x)
{
    double top = x[0];
    for (int i = 1; i < PGM_LANES; i++) top = x[i] > top ? x[i] : top;
    return top;
}

PGM_INLINE double pgm_hsum_d(pgm_vd s)
{
    for (int n = PGM_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) s[i] = s[2 * i] + s[2 * i + 1];
    return s[0];
}

PGM_INLINE double pgm_hprod_d(pgm_vd p)
{
    for (int n = PGM_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) p[i] = p[2 * i] * p[2 * i + 1];
    return p[0];
}

/* Running sums of many floats in double precision, one for each lane, with the same lanes for any
 * width. */
typedef struct {
    pgm_vd lane[PGM_PIECES];
} pgm_sums;

PGM_INLINE void pgm_sums_add(pgm_sums *sums, const pgm_vf group[PGM_PIECES])
{
    const pgm_vh *half = (const pgm_vh *)group;
    for (int i = 0; i < PGM_PIECES; i++)
        sums->lane[i] += __builtin_convertvector(half[i], pgm_vd)
                         + __builtin_convertvector(half[i + PGM_PIECES], pgm_vd);
}

PGM_INLINE double pgm_sums_total(const pgm_sums *sums)
{
    double total[PGM_PIECES];
    for (int i = 0; i < PGM_PIECES; i++) total[i] = pgm_hsum_d(sums->lane[i]);
    for (int n = PGM_PIECES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) total[i] = total[2 * i] + total[2 * i + 1];
    return total[0];
}

/* ---- bytes ---- */

/* Each of the two conversions of bytes to numbers is one instruction. For a direct conversion,
 * compilers process bytes one by one. */
PGM_INLINE pgm_vi pgm_widen(pgm_bytes x)
{
    return __builtin_convertvector(__builtin_convertvector(x, pgm_vs), pgm_vi);
}

PGM_INLINE pgm_bytes pgm_narrow(pgm_vi x)
{
    return __builtin_convertvector(__builtin_convertvector(x, pgm_vs), pgm_bytes);
}

/* PGM_WIDE states of units, 0 to 255 */
PGM_INLINE pgm_vi pgm_load_bytes(const uint8_t *p)
{
    return pgm_widen(*(const pgm_bytes *)p) & 255;
}

/* Bit i is the lowest bit of byte i. */
PGM_INLINE uint64_t pgm_flags(const uint64_t bytes[8])
{
    uint64_t bits = 0;
    for (int w = 0; w < 8; w++) bits |= (bytes[w] * 0x0102040810204080u >> 56) << 8 * w;
    return bits;
}

/* ---- permutations: gcc has had __builtin_shuffle for long, clang and gcc 12 have
 * __builtin_shufflevector ---- */

#if defined(__clang__) || __GNUC__ >= 12
#define PGM_SHUFFLE(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t pgm_i4 __attribute__((vector_size(16)));
#define PGM_SHUFFLE(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif

/* Turn four columns, `right` apart, into four rows, `wide` apart. */
PGM_INLINE void pgm_transpose4(const float *w, int64_t right, int64_t wide, float *out)
{
    pgm_f4 a = *(const pgm_f4 *)w, b = *(const pgm_f4 *)(w + right);
    pgm_f4 c = *(const pgm_f4 *)(w + 2 * right), d = *(const pgm_f4 *)(w + 3 * right);
    pgm_f4 ab = PGM_SHUFFLE(pgm_i4, a, b, 0, 4, 1, 5), AB = PGM_SHUFFLE(pgm_i4, a, b, 2, 6, 3, 7);
    pgm_f4 cd = PGM_SHUFFLE(pgm_i4, c, d, 0, 4, 1, 5), CD = PGM_SHUFFLE(pgm_i4, c, d, 2, 6, 3, 7);
    *(pgm_f4 *)out = PGM_SHUFFLE(pgm_i4, ab, cd, 0, 1, 4, 5);
    *(pgm_f4 *)(out + wide) = PGM_SHUFFLE(pgm_i4, ab, cd, 2, 3, 6, 7);
    *(pgm_f4 *)(out + 2 * wide) = PGM_SHUFFLE(pgm_i4, AB, CD, 0, 1, 4, 5);
    *(pgm_f4 *)(out + 3 * wide) = PGM_SHUFFLE(pgm_i4, AB, CD, 2, 3, 6, 7);
}

/* Reduce x[0] .. x[PGM_LANES - 1] by an operation: lane i of x[0] receives the reduction of all
 * lanes of x[i]. Each step combines runs of `by` lanes: in a pair of vectors, the first of every
 * two runs with the second. */
#define PGM_FIRST(j, by) ((j) / (by) % 2 ? PGM_LANES + (j) - (by) : (j))
#define PGM_SECOND_OF(j, by) ((j) / (by) % 2 ? PGM_LANES + (j) : (j) + (by))
#if PGM_LANES == 8
#define PGM_EACH(f, by) \
    f(0, by), f(1, by), f(2, by), f(3, by), f(4, by), f(5, by), f(6, by), f(7, by)
#elif PGM_LANES == 4
#define PGM_EACH(f, by) f(0, by), f(1, by), f(2, by), f(3, by)
#else
#define PGM_EACH(f, by) f(0, by), f(1, by)
#endif
#define PGM_REDUCE_BY(x, by, op)                                                         \
    for (int i = 0; i + by < PGM_LANES; i += 2 * by)                                     \
    x[i] = PGM_SHUFFLE(pgm_vl, x[i], x[i + by], PGM_EACH(PGM_FIRST, by)) op PGM_SHUFFLE( \
        pgm_vl, x[i], x[i + by], PGM_EACH(PGM_SECOND_OF, by))
#if PGM_LANES == 8
#define PGM_REDUCE(x, op)        \
    do {                         \
        PGM_REDUCE_BY(x, 1, op); \
        PGM_REDUCE_BY(x, 2, op); \
        PGM_REDUCE_BY(x, 4, op); \
    } while (0)
#elif PGM_LANES == 4
#define PGM_REDUCE(x, op)        \
    do {                         \
        PGM_REDUCE_BY(x, 1, op); \
        PGM_REDUCE_BY(x, 2, op); \
    } while (0)
#else
#define PGM_REDUCE(x, op)        \
    do {                         \
        PGM_REDUCE_BY(x, 1, op); \
    } while (0)
#endif

/* ---- functions ---- */

/* e^x for x <= 709, 0 below -708: 2^n e^r with |r| <= ln(2) / 2 and the series to r^12 */
PGM_INLINE pgm_vd pgm_exp_d(pgm_vd x)
{
    pgm_vd c = pgm_max_d(x, pgm_splat_d(-708.0));
    /* adding 1.5 2^52 rounds to the nearest integer */
    pgm_vd shifted = c * 1.4426950408889634 + 6755399441055744.0, n = shifted - 6755399441055744.0;
    pgm_vd r = c - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
    pgm_vd r2 = r * r, r4 = r2 * r2;
    pgm_vd low = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6));
    pgm_vd mid = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
    pgm_vd top = (1.0 / 40320 + r * (1.0 / 362880)) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800));
    pgm_vd p = low + r4 * (mid + r4 * (top + r4 * (1.0 / 479001600)));
    p = (pgm_vd)((pgm_vl)p + ((pgm_vl)shifted << 52));
    return pgm_select_d(x > -708.0, p, pgm_splat_d(0.0));
}

/* log x of positive normal numbers: the exponent, and 2 atanh((m - 1) / (m + 1)) with m in
 * [sqrt(1/2), sqrt(2)] */
PGM_INLINE pgm_vd pgm_log_d(pgm_vd x)
{
    pgm_vl bits = (pgm_vl)x, from = bits - INT64_C(0x3fe6a09e667f3bcd), e = from >> 52;
    pgm_vd m = (pgm_vd)(bits - (e << 52)), n = __builtin_convertvector(e, pgm_vd);
    pgm_vd s = (m - 1.0) / (m + 1.0), q = s * s;
    pgm_vd p = 2.0 / 21 * q + 2.0 / 19;
    p = p * q + 2.0 / 17;
    p = p * q + 2.0 / 15;
    p = p * q + 2.0 / 13;
    p = p * q + 2.0 / 11;
    p = p * q + 2.0 / 9;
    p = p * q + 2.0 / 7;
    p = p * q + 2.0 / 5;
    p = p * q + 2.0 / 3;
    p = p * q + 2.0;
    return n * 0.693147180369123816490 + (p * s + n * 1.90821492927058770002e-10);
}

/* e^x for x in [-87, 88]: 2^n e^r with |r| <= ln(2) / 2 and a polynomial of degree 6; relative
 * error below 2e-7 */
PGM_INLINE pgm_vf pgm_exp_f(pgm_vf x)
{
    /* adding 1.5 2^23 rounds to the nearest integer */
    pgm_vf shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    pgm_vf r = x - n * 0.693145752f - n * 1.42860677e-6f;
    pgm_vf p = r * 1.38888889e-3f + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + (r + 1.0f);
    return (pgm_vf)((pgm_vi)p + ((pgm_vi)shifted << 23));
}

/* e^-min(|x|, 87) */
PGM_INLINE pgm_vf pgm_exp_minus_abs_f(pgm_vf x)
{
    return pgm_exp_f(-pgm_min_f(pgm_abs_f(x), pgm_splat_f(87.0f)));
}

/* log(1 + e^z) = max(z, 0) + 2 atanh(t / (2 + t)), t = e^-|z| */
PGM_INLINE pgm_vf pgm_softplus_f(pgm_vf z)
{
    pgm_vf t = pgm_exp_minus_abs_f(z), s = t / (t + 2.0f), q = s * s;
    pgm_vf p = q * (2.0f / 13) + 2.0f / 11;
    p = p * q + 2.0f / 9;
    p = p * q + 2.0f / 7;
    p = p * q + 2.0f / 5;
    p = p * q + 2.0f / 3;
    p = p * q + 2.0f;
    return pgm_max_f(z, pgm_splat_f(0.0f)) + p * s;
}

/* 1 - e^-z for z >= 0, without a loss of digits at small z: relative error below 3e-7 */
PGM_INLINE pgm_vf pgm_one_minus_exp_f(pgm_vf z)
{
    /* pgm_exp_f, with the 1 of the series left out: e^r = 1 + p */
    pgm_vf x = -pgm_min_f(z, pgm_splat_f(87.0f));
    pgm_vf shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    pgm_vf r = x - n * 0.693145752f - n * 1.42860677e-6f;
    pgm_vf p = r * 1.38888889e-3f + 8.33333333e-3f;
    pgm_vf power = (pgm_vf)((pgm_vi)pgm_splat_f(1.0f) + ((pgm_vi)shifted << 23));
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r;
    return (1.0f - power) - power * p;
}

/* log x of positive normal numbers, by the series of pgm_log_d to s^9; error below 1e-7
 * max(1, |result|) */
PGM_INLINE pgm_vf pgm_log_f(pgm_vf x)
{
    pgm_vi bits = (pgm_vi)x, e = (bits - 0x3f3504f3) >> 23;
    pgm_vf m = (pgm_vf)(bits - (e << 23)), n = __builtin_convertvector(e, pgm_vf);
    pgm_vf s = (m - 1.0f) / (m + 1.0f), q = s * s;
    pgm_vf p = q * (2.0f / 9) + 2.0f / 7;
    p = p * q + 2.0f / 5;
    p = p * q + 2.0f / 3;
    p = p * q + 2.0f;
    return n * 0.693145752f + (p * s + n * 1.42860677e-6f);
}

#endif
