/* Vectors of floats as wide as the registers: exp, log(1 + e^z), and counter-based uniforms (Threefry4x32 of 12 rounds:
 * Salmon, Moraes, Dror and Shaw 2011). The same bits whatever the width. */
#ifndef PGM_VECTOR_H
#define PGM_VECTOR_H

#include "simd.h"

#define PGM_WIDE (2 * PGM_LANES)          /* floats in a vector: 16, 8 or 4 */
#define PGM_GROUP 16                      /* floats to a multiple of which layers are padded */
#define PGM_PIECES (PGM_GROUP / PGM_WIDE) /* vectors in a group */

typedef float pgm_vf __attribute__((vector_size(PGM_REGISTER), aligned(4), may_alias));
typedef int32_t pgm_vi __attribute__((vector_size(PGM_REGISTER), aligned(4), may_alias));
typedef uint32_t pgm_vu __attribute__((vector_size(PGM_REGISTER), aligned(4), may_alias));
typedef int16_t pgm_vs __attribute__((vector_size(PGM_REGISTER / 2), aligned(2), may_alias));
typedef int8_t pgm_bytes __attribute__((vector_size(PGM_REGISTER / 4), aligned(1), may_alias));

PGM_INLINE pgm_vf pgm_same(float x)
{
    return x - (pgm_vf){0};
}

/* Between bytes and numbers in two steps, which are instructions; in one step compilers take the bytes one by one. */
PGM_INLINE pgm_vi pgm_widened(pgm_bytes x)
{
    return __builtin_convertvector(__builtin_convertvector(x, pgm_vs), pgm_vi);
}

PGM_INLINE pgm_bytes pgm_narrowed(pgm_vi x)
{
    return __builtin_convertvector(__builtin_convertvector(x, pgm_vs), pgm_bytes);
}

PGM_INLINE pgm_vf pgm_choose_where(pgm_vi mask, pgm_vf yes, pgm_vf no)
{
    return (pgm_vf)(((pgm_vi)yes & mask) | ((pgm_vi)no & ~mask));
}

PGM_INLINE pgm_vf pgm_magnitude(pgm_vf x)
{
    return (pgm_vf)((pgm_vi)x & 0x7fffffff);
}

PGM_INLINE pgm_vf pgm_at_most(pgm_vf x, float top)
{
    return pgm_choose_where(x < top, x, pgm_same(top));
}

PGM_INLINE pgm_vf pgm_at_least(pgm_vf x, float low)
{
    return pgm_choose_where(x > low, x, pgm_same(low));
}

PGM_INLINE int pgm_any_where(pgm_vi mask)
{
    return pgm_any((pgm_vd)mask);
}

typedef float pgm_half __attribute__((vector_size(PGM_REGISTER / 2), aligned(4), may_alias));

/* the sums of many floats in double precision: one for each lane, the same lanes whatever the width */
typedef struct {
    pgm_vd lane[PGM_PIECES];
} pgm_sums;

PGM_INLINE void pgm_gather(pgm_sums *sums, const pgm_vf group[PGM_PIECES])
{
    const pgm_half *half = (const pgm_half *)group;
    for (int i = 0; i < PGM_PIECES; i++)
        sums->lane[i] += __builtin_convertvector(half[i], pgm_vd) + __builtin_convertvector(half[i + PGM_PIECES], pgm_vd);
}

PGM_INLINE double pgm_sum_of(const pgm_sums *sums)
{
    double total[PGM_PIECES];
    for (int i = 0; i < PGM_PIECES; i++) total[i] = pgm_total(sums->lane[i]);
    for (int n = PGM_PIECES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) total[i] = total[2 * i] + total[2 * i + 1];
    return total[0];
}

/* e^x for x in [-87, 88]: 2^n e^r with |r| <= ln(2)/2 and a polynomial of degree 6; relative error below 2e-7 */
PGM_INLINE pgm_vf pgm_exp(pgm_vf x)
{
    pgm_vf shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f; /* rounds to the nearest integer */
    pgm_vf r = x - n * 0.693145752f - n * 1.42860677e-6f;
    pgm_vf p = r * 1.38888889e-3f + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + (r + 1.0f);
    return (pgm_vf)((pgm_vi)p + ((pgm_vi)shifted << 23));
}

/* log(1 + e^z) = max(z, 0) + 2 atanh(t / (2 + t)), t = e^-|z| */
PGM_INLINE pgm_vf pgm_softplus(pgm_vf z)
{
    pgm_vf t = pgm_exp(-pgm_at_most(pgm_magnitude(z), 87.0f)), s = t / (t + 2.0f), q = s * s;
    pgm_vf p = q * (2.0f / 13) + 2.0f / 11;
    p = p * q + 2.0f / 9;
    p = p * q + 2.0f / 7;
    p = p * q + 2.0f / 5;
    p = p * q + 2.0f / 3;
    p = p * q + 2.0f;
    return pgm_at_least(z, 0.0f) + p * s;
}

#define PGM_TURN(x, k) (((x) << (k)) | ((x) >> (32 - (k))))
#define PGM_ROUND(a, b, c, d, j, k) \
    a += b, b = PGM_TURN(b, j) ^ a, c += d, d = PGM_TURN(d, k) ^ c

/* a place in the streams: the counter is (block, sweep, chain, layer); its constant words with the key added */
typedef struct {
    pgm_vu b, c, d;
    uint32_t key[5];
} pgm_stream;

PGM_INLINE pgm_vu pgm_repeat(uint32_t x)
{
    return (pgm_vu){0} + x;
}

PGM_INLINE pgm_stream pgm_open_stream(const uint32_t *key, uint32_t sweep, uint32_t chain, uint32_t layer)
{
    uint32_t k0 = key[0], k1 = key[1], k2 = key[2], k3 = key[3];
    return (pgm_stream){pgm_repeat(sweep + k1), pgm_repeat(chain + k2), pgm_repeat(layer + k3),
                        {k0, k1, k2, k3, 0x1BD11BDAu ^ k0 ^ k1 ^ k2 ^ k3}};
}

#define PGM_BLOCK 64                      /* uniforms of one call of the generator, */
#define PGM_VECTORS (PGM_BLOCK / PGM_WIDE) /* and the vectors that they fill */
#define PGM_SECOND 0x8000000u /* block numbers of second uniforms: 16 counters a block, half of the 2^32 */

/* 31 bits, so that small ones are fine-grained */
PGM_INLINE pgm_vf pgm_uniform_of(pgm_vu bits)
{
    return __builtin_convertvector((pgm_vi)(bits >> 1), pgm_vf) * 4.656612873077393e-10f + 2.3283064e-10f;
}

/* uniforms in (0, 1] number 64 block ... 64 block + 63 of a place: the first words of sixteen counters, the second ones... */
PGM_INLINE void pgm_uniforms(const pgm_stream *at, uint32_t block, pgm_vf u[PGM_VECTORS])
{
    static const uint32_t lane[PGM_GROUP] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint32_t k0 = at->key[0], k1 = at->key[1], k2 = at->key[2], k3 = at->key[3], k4 = at->key[4];
    for (int i = 0; i < PGM_PIECES; i++) {
        pgm_vu a = *(const pgm_vu *)(lane + i * PGM_WIDE) + (block * PGM_GROUP + k0), b = at->b, c = at->c, d = at->d;
        PGM_ROUND(a, b, c, d, 10, 26);
        PGM_ROUND(a, d, c, b, 11, 21);
        PGM_ROUND(a, b, c, d, 13, 27);
        PGM_ROUND(a, d, c, b, 23, 5);
        a += k1, b += k2, c += k3, d += k4 + 1;
        PGM_ROUND(a, b, c, d, 6, 20);
        PGM_ROUND(a, d, c, b, 17, 11);
        PGM_ROUND(a, b, c, d, 25, 10);
        PGM_ROUND(a, d, c, b, 18, 20);
        a += k2, b += k3, c += k4, d += k0 + 2;
        PGM_ROUND(a, b, c, d, 10, 26);
        PGM_ROUND(a, d, c, b, 11, 21);
        PGM_ROUND(a, b, c, d, 13, 27);
        PGM_ROUND(a, d, c, b, 23, 5);
        a += k3, b += k4, c += k0, d += k1 + 3;
        u[i] = pgm_uniform_of(a);
        u[i + PGM_PIECES] = pgm_uniform_of(b);
        u[i + 2 * PGM_PIECES] = pgm_uniform_of(c);
        u[i + 3 * PGM_PIECES] = pgm_uniform_of(d);
    }
}

/* bit i: the lowest bit of byte i */
PGM_INLINE uint64_t pgm_flags(const uint64_t bytes[8])
{
    uint64_t bits = 0;
    for (int w = 0; w < 8; w++) bits |= (bytes[w] * 0x0102040810204080u >> 56) << 8 * w;
    return bits;
}

#endif
