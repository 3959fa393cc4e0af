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

#endif
