/* What the processor at hand can run. */
#ifndef PGM_PROCESSOR_H
#define PGM_PROCESSOR_H

/* 0: whatever the compiler takes for granted; 1: AVX2 and what came with it; 2: AVX-512 as servers have had it since 2017 */
static int pgm_processor(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
#define PGM_HAS(name) (__builtin_cpu_supports(name) != 0)
    if (!(PGM_HAS("avx2") && PGM_HAS("fma") && PGM_HAS("bmi") && PGM_HAS("bmi2"))) return 0;
    return 1 + (PGM_HAS("avx512f") && PGM_HAS("avx512bw") && PGM_HAS("avx512cd") && PGM_HAS("avx512dq") && PGM_HAS("avx512vl"));
#else
    return 0;
#endif
}

#endif
