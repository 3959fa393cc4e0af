/* Counter-based uniforms: Threefry4x32 of 12 rounds (Salmon, Moraes, Dror and Shaw 2011).
 *
 * The counter is (block, sweep, chain, layer). Every uniform number belongs to one counter, and can
 * be computed at any time. The draws of a chain therefore depend neither on the other chains nor on
 * the number of threads. One call computes the PGM_BLOCK uniforms of a block: the first words of
 * sixteen consecutive counters, then their second words, and so on. The numbers are the same for
 * any width of vectors.
 *
 * Reference: `threefry` and `uniforms` in tests/twin.py, and published answers
 * (test_compiled_sweeps.py).
 */
#ifndef PGM_RANDOM_H
#define PGM_RANDOM_H

#include "vectors.h"

#define PGM_BLOCK 64                       /* uniforms in a block, */
#define PGM_VECTORS (PGM_BLOCK / PGM_WIDE) /* and vectors in a block */
/* Blocks whose number has this bit hold second uniforms. A block has 16 counters, so that they are
 * half of the 2^32 counters. */
#define PGM_SECOND 0x8000000u

/* a position in the streams: the constant words of its counters with the key added */
typedef struct {
    pgm_vu b, c, d;
    uint32_t key[5];
} pgm_stream;

PGM_INLINE pgm_stream pgm_open_stream(const uint32_t *key, uint32_t sweep, uint32_t chain,
                                      uint32_t layer)
{
    uint32_t k0 = key[0], k1 = key[1], k2 = key[2], k3 = key[3];
    return (pgm_stream){pgm_splat_u(sweep + k1),
                        pgm_splat_u(chain + k2),
                        pgm_splat_u(layer + k3),
                        {k0, k1, k2, k3, 0x1BD11BDAu ^ k0 ^ k1 ^ k2 ^ k3}};
}

/* 31 bits in (0, 1]; the conversion to float keeps the precision of small numbers */
PGM_INLINE pgm_vf pgm_uniform_of(pgm_vu bits)
{
    return __builtin_convertvector((pgm_vi)(bits >> 1), pgm_vf) * 4.656612873077393e-10f
           + 2.3283064e-10f;
}

#define PGM_TURN(x, k) (((x) << (k)) | ((x) >> (32 - (k))))
#define PGM_ROUND(a, b, c, d, j, k) a += b, b = PGM_TURN(b, j) ^ a, c += d, d = PGM_TURN(d, k) ^ c

/* Write the uniforms of one counter in each lane: word w of the counters to u[w * apart]. The key
 * has been added to the words b, c and d. */
PGM_INLINE void pgm_threefry(const uint32_t key[5], pgm_vu a, pgm_vu b, pgm_vu c, pgm_vu d,
                             pgm_vf *u, int apart)
{
    const uint32_t k0 = key[0], k1 = key[1], k2 = key[2], k3 = key[3], k4 = key[4];
    a += k0;
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
    u[0] = pgm_uniform_of(a);
    u[apart] = pgm_uniform_of(b);
    u[2 * apart] = pgm_uniform_of(c);
    u[3 * apart] = pgm_uniform_of(d);
}

/* 64 bits of counter (i, pass): the first two words of the generator, without vectors */
static uint64_t pgm_threefry_bits(const uint32_t k[5], uint64_t i, uint64_t pass)
{
    static const uint8_t turn[6][4] = {{10, 26, 11, 21}, {13, 27, 23, 5}, {6, 20, 17, 11},
                                       {25, 10, 18, 20}, {10, 26, 11, 21}, {13, 27, 23, 5}};
    uint32_t a = (uint32_t)i + k[0], b = (uint32_t)(i >> 32) + k[1];
    uint32_t c = (uint32_t)pass + k[2], d = (uint32_t)(pass >> 32) + k[3];
    for (int r = 0; r < 6; r++) {
        const uint8_t *t = turn[r];
        PGM_ROUND(a, b, c, d, t[0], t[1]);
        PGM_ROUND(a, d, c, b, t[2], t[3]);
        if (r % 2) {
            const int s = r / 2 + 1;
            a += k[s % 5], b += k[(s + 1) % 5], c += k[(s + 2) % 5];
            d += k[(s + 3) % 5] + (uint32_t)s;
        }
    }
    return (uint64_t)a << 32 | b;
}

/* uniforms number 64 block .. 64 block + 63 of a position */
PGM_INLINE void pgm_uniforms(const pgm_stream *at, uint32_t block, pgm_vf u[PGM_VECTORS])
{
    static const uint32_t lane[PGM_GROUP] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int i = 0; i < PGM_PIECES; i++)
        pgm_threefry(at->key, *(const pgm_vu *)(lane + i * PGM_WIDE) + block * PGM_GROUP, at->b,
                     at->c, at->d, u + i, PGM_PIECES);
}

/* Write the uniforms of blocks first .. first + blocks - 1 of one position, (64 blocks). */
static void pgm_fill_uniforms(const uint32_t *key, uint32_t sweep, uint32_t chain, uint32_t layer,
                              uint32_t first, int64_t blocks, float *out)
{
    pgm_stream at = pgm_open_stream(key, sweep, chain, layer);
    for (int64_t b = 0; b < blocks; b++) {
        pgm_vf u[PGM_VECTORS];
        pgm_uniforms(&at, first + (uint32_t)b, u);
        memcpy(out + b * PGM_BLOCK, u, sizeof u);
    }
}

#endif
