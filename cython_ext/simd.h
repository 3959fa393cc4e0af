/* Eight doubles at a time, and functions built once per instruction set and chosen when the module is loaded. */
#ifndef PGM_SIMD_H
#define PGM_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && !defined(PGM_NO_CLONES)
#define PGM_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define PGM_CLONES
#endif

#define PGM_LANES 8
#define PGM_INLINE static inline __attribute__((always_inline))

typedef double pgm_v8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef int64_t pgm_i8 __attribute__((vector_size(64), aligned(8), may_alias));

PGM_INLINE pgm_v8 pgm_pick(pgm_i8 mask, pgm_v8 yes, pgm_v8 no)
{
    return (pgm_v8)(((pgm_i8)yes & mask) | ((pgm_i8)no & ~mask));
}

PGM_INLINE pgm_v8 pgm_all(double x)
{
    return x - (pgm_v8){0};
}

PGM_INLINE pgm_v8 pgm_most(pgm_v8 a, pgm_v8 b)
{
    return pgm_pick(a > b, a, b);
}

PGM_INLINE pgm_v8 pgm_abs(pgm_v8 x)
{
    return (pgm_v8)((pgm_i8)x & 0x7fffffffffffffffLL);
}

PGM_INLINE int pgm_any(pgm_v8 x)
{
    pgm_i8 bits = (pgm_i8)x;
    bits |= __builtin_shuffle(bits, (pgm_i8){4, 5, 6, 7, 0, 1, 2, 3});
    bits |= __builtin_shuffle(bits, (pgm_i8){2, 3, 0, 1, 6, 7, 4, 5});
    return (bits[0] | bits[1]) != 0;
}

PGM_INLINE double pgm_greatest(pgm_v8 x)
{
    double top = x[0];
    for (int i = 1; i < PGM_LANES; i++) top = x[i] > top ? x[i] : top;
    return top;
}

PGM_INLINE double pgm_total(pgm_v8 s)
{
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* e^x for x <= 709 (0 below -708): 2^n e^r, |r| <= ln(2) / 2, by the series to r^12 */
PGM_INLINE pgm_v8 pgm_exp8(pgm_v8 x)
{
    pgm_v8 c = pgm_pick(x > -708.0, x, pgm_all(-708.0));
    pgm_v8 shifted = c * 1.4426950408889634 + 6755399441055744.0, n = shifted - 6755399441055744.0;
    pgm_v8 r = c - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
    pgm_v8 r2 = r * r, r4 = r2 * r2;
    pgm_v8 low = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6));
    pgm_v8 mid = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
    pgm_v8 top = (1.0 / 40320 + r * (1.0 / 362880)) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800));
    pgm_v8 p = low + r4 * (mid + r4 * (top + r4 * (1.0 / 479001600)));
    p = (pgm_v8)((pgm_i8)p + ((pgm_i8)shifted << 52));
    return pgm_pick(x > -708.0, p, pgm_all(0.0));
}

/* log x of positive normal numbers: exponent and 2 atanh((m - 1) / (m + 1)), m in [sqrt(1/2), sqrt(2)] */
PGM_INLINE pgm_v8 pgm_log8(pgm_v8 x)
{
    pgm_i8 bits = (pgm_i8)x, from = bits - 0x3fe6a09e667f3bcdLL, e = from >> 52;
    pgm_v8 m = (pgm_v8)(bits - (e << 52)), n = __builtin_convertvector(e, pgm_v8);
    pgm_v8 s = (m - 1.0) / (m + 1.0), q = s * s;
    pgm_v8 p = 2.0 / 21 * q + 2.0 / 19;
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

#endif
