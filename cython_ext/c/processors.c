/* The kinds of processors that the routines have been compiled for, and those that this processor
 * can run. */
#include <stddef.h>

#include "routines.h"

/* One function that fills a table of functions: each unit of routines adds its own. */
#define PGM_FILL(kind)                                                         \
    void pgm_layers_##kind(pgm_routines *), pgm_draws_##kind(pgm_routines *),  \
        pgm_rounds_##kind(pgm_routines *), pgm_sums_##kind(pgm_routines *);    \
    static void fill_##kind(pgm_routines *table)                               \
    {                                                                          \
        table->name = #kind;                                                   \
        pgm_layers_##kind(table), pgm_draws_##kind(table);                     \
        pgm_rounds_##kind(table), pgm_sums_##kind(table);                      \
    }

PGM_FILL(base)

#ifdef PGM_X86 /* setup.py compiles the other kinds, too */
PGM_FILL(avx2)
PGM_FILL(avx512)

static void (*const fill[])(pgm_routines *) = {fill_base, fill_avx2, fill_avx512};

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
static void (*const fill[])(pgm_routines *) = {fill_base};

static int last_kind(void) { return 0; }
#endif

static pgm_routines table[sizeof fill / sizeof *fill];

const pgm_routines *pgm_routines_of(int kind)
{
    if (kind < 0 || kind > last_kind()) return NULL;
    if (!table[kind].name) fill[kind](&table[kind]);
    return &table[kind];
}
