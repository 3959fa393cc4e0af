/* Vectors of doubles as wide as the registers that the module is compiled for: setup.py makes one for each kind of
 * processor, and pgmengine/_kernels/__init__.py takes the last one that the processor at hand can run. Wider vectors would
 * be right, too, but compilers keep them in memory. */
#ifndef PGM_SIMD_H
#define PGM_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(PGM_LANES) /* doubles in a vector, as a test would have it */
#elif defined(__AVX512F__)
#define PGM_LANES 8
#elif defined(__AVX2__)
#define PGM_LANES 4
#else
#define PGM_LANES 2
#endif
#define PGM_REGISTER (PGM_LANES * 8) /* bytes */
#define PGM_INLINE static inline __attribute__((always_inline))

typedef double pgm_vd __attribute__((vector_size(PGM_REGISTER), aligned(8), may_alias));
typedef int64_t pgm_vl __attribute__((vector_size(PGM_REGISTER), aligned(8), may_alias));

PGM_INLINE pgm_vd pgm_pick(pgm_vl mask, pgm_vd yes, pgm_vd no)
{
    return (pgm_vd)(((pgm_vl)yes & mask) | ((pgm_vl)no & ~mask));
}

PGM_INLINE pgm_vd pgm_all(double x)
{
    return x - (pgm_vd){0};
}

PGM_INLINE pgm_vd pgm_most(pgm_vd a, pgm_vd b)
{
    return pgm_pick(a > b, a, b);
}

PGM_INLINE pgm_vd pgm_abs(pgm_vd x)
{
    return (pgm_vd)((pgm_vl)x & 0x7fffffffffffffffLL);
}

PGM_INLINE int pgm_any(pgm_vd x)
{
    int64_t bits = 0;
    for (int i = 0; i < PGM_LANES; i++) bits |= ((pgm_vl)x)[i];
    return bits != 0;
}

PGM_INLINE double pgm_greatest(pgm_vd x)
{
    double top = x[0];
    for (int i = 1; i < PGM_LANES; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* the sum of all, neighbours first; and the product */
PGM_INLINE double pgm_total(pgm_vd s)
{
    for (int n = PGM_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) s[i] = s[2 * i] + s[2 * i + 1];
    return s[0];
}

PGM_INLINE double pgm_whole(pgm_vd p)
{
    for (int n = PGM_LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) p[i] = p[2 * i] * p[2 * i + 1];
    return p[0];
}

/* e^x for x <= 709 (0 below -708): 2^n e^r, |r| <= ln(2) / 2, by the series to r^12 */
PGM_INLINE pgm_vd pgm_exp_d(pgm_vd x)
{
    pgm_vd c = pgm_pick(x > -708.0, x, pgm_all(-708.0));
    pgm_vd shifted = c * 1.4426950408889634 + 6755399441055744.0, n = shifted - 6755399441055744.0;
    pgm_vd r = c - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
    pgm_vd r2 = r * r, r4 = r2 * r2;
    pgm_vd low = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6));
    pgm_vd mid = (1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040));
    pgm_vd top = (1.0 / 40320 + r * (1.0 / 362880)) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800));
    pgm_vd p = low + r4 * (mid + r4 * (top + r4 * (1.0 / 479001600)));
    p = (pgm_vd)((pgm_vl)p + ((pgm_vl)shifted << 52));
    return pgm_pick(x > -708.0, p, pgm_all(0.0));
}

/* log x of positive normal numbers: exponent and 2 atanh((m - 1) / (m + 1)), m in [sqrt(1/2), sqrt(2)] */
PGM_INLINE pgm_vd pgm_log_d(pgm_vd x)
{
    pgm_vl bits = (pgm_vl)x, from = bits - 0x3fe6a09e667f3bcdLL, e = from >> 52;
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

#endif
