/* The kinds of processors that routines.c has been compiled for, and those that this processor
 * can run. */
#include <stddef.h>

#include "routines.h"

extern const pgm_routines pgm_routines_base;

#ifdef PGM_X86 /* setup.py compiles the other kinds, too */
extern const pgm_routines pgm_routines_avx2, pgm_routines_avx512;

static const pgm_routines *const compiled[] = {&pgm_routines_base, &pgm_routines_avx2,
                                               &pgm_routines_avx512};

#define PGM_HAS(name) (__builtin_cpu_supports(name) != 0)

/* The last kind that runs here. base has the instructions that every compiler uses by default;
 * avx512 has those of servers since 2017. */
static int last_kind(void)
{
    __builtin_cpu_init();
    if (!(PGM_HAS("avx2") && PGM_HAS("fma") && PGM_HAS("bmi") && PGM_HAS("bmi2"))) return 0;
    return PGM_HAS("avx512f") && PGM_HAS("avx512bw") && PGM_HAS("avx512cd") && PGM_HAS("avx512dq")
                   && PGM_HAS("avx512vl")
               ? 2
               : 1;
}
#else
static const pgm_routines *const compiled[] = {&pgm_routines_base};

static int last_kind(void) { return 0; }
#endif

const pgm_routines *pgm_routines_of(int kind)
{
    return kind >= 0 && kind <= last_kind() ? compiled[kind] : NULL;
}
