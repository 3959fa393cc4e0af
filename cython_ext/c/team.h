/* A team of threads that share the parts of a job. A call costs about 1 us, where a pool of Python
 * threads takes 60 us.
 *
 * Learning makes a dozen short calls in each update. Workers therefore spin for half a millisecond
 * before they sleep, so that the next call finds them awake. The caller and the workers claim parts
 * one by one. Where other programs keep a worker off its core, the caller computes its parts too: a
 * call that waited for every worker took five times as long as on one thread. The team works on one
 * job at a time; a second caller computes its whole job alone. After a fork, the child process
 * starts without workers, even if the team of its parent was at work. Without POSIX threads,
 * callers compute everything.
 *
 * `ticket` has the number of the job, the number of its parts and the next part that nobody has
 * claimed. A part is claimed by a compare-and-swap, so that it is one of this job. The other fields
 * change only after `done` has reached the number of parts. Accesses to both are sequentially
 * consistent, so that the other fields need no protection.
 *
 * Tests: test_compiled_updates.py, with many callers and forks.
 */
#ifndef PGM_TEAM_H
#define PGM_TEAM_H

#include <stdlib.h>

#include "routines.h"

#if defined(__GNUC__) && !defined(_WIN32) && !defined(PGM_NO_TEAM)
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define PGM_MOST_WORKERS 63
#define PGM_STACK (4 << 20) /* bytes; the rounds of belief.h take half a megabyte */
#define PGM_SPINS 64        /* pauses between two looks at the clock */
#define PGM_PATIENCE \
    500000 /* ns before a worker sleeps: numpy takes up to 300000 between two calls */

#if defined(__x86_64__) || defined(__i386__)
#define PGM_PAUSE() __builtin_ia32_pause()
#else
#define PGM_PAUSE() atomic_signal_fence(memory_order_seq_cst)
#endif

static struct {
    pthread_mutex_t use, sleep;
    pthread_cond_t wake;
    atomic_ullong ticket; /* number of the last job, 16 bits for its parts, 16 for the next one */
    atomic_int done;      /* its parts that are finished */
    atomic_int asleep;
    int workers, parts;
    int64_t count;
    pgm_task task;
    void *object; /* its argument */
} pgm_team = {.use = PTHREAD_MUTEX_INITIALIZER,
              .sleep = PTHREAD_MUTEX_INITIALIZER,
              .wake = PTHREAD_COND_INITIALIZER};

static int64_t pgm_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int pgm_has_parts(unsigned long long ticket)
{
    return (ticket & 0xffff) < (ticket >> 16 & 0xffff);
}

/* Compute parts of the job until all are claimed. */
static void pgm_take_parts(void)
{
    unsigned long long ticket = atomic_load(&pgm_team.ticket);
    while (pgm_has_parts(ticket)) {
        if (!atomic_compare_exchange_weak(&pgm_team.ticket, &ticket, ticket + 1)) continue;
        const int64_t part = ticket & 0xffff, parts = pgm_team.parts;
        pgm_team.task(pgm_team.object, pgm_team.count * part / parts,
                      pgm_team.count * (part + 1) / parts);
        atomic_fetch_add(&pgm_team.done, 1);
        ticket = atomic_load(&pgm_team.ticket);
    }
}

/* Wait for parts that nobody has claimed, for a while. */
static void pgm_linger(void)
{
    const int64_t end = pgm_clock() + PGM_PATIENCE;
    do
        for (int i = 0; i < PGM_SPINS; i++) {
            if (pgm_has_parts(atomic_load(&pgm_team.ticket))) return;
            PGM_PAUSE();
        }
    while (pgm_clock() < end);
}

static void *pgm_worker(void *none)
{
    for (;;) {
        pgm_linger();
        pthread_mutex_lock(&pgm_team.sleep);
        atomic_fetch_add(&pgm_team.asleep, 1);
        const unsigned long long seen = atomic_load(&pgm_team.ticket);
        while (!pgm_has_parts(seen) && atomic_load(&pgm_team.ticket) == seen)
            pthread_cond_wait(&pgm_team.wake, &pgm_team.sleep);
        atomic_fetch_sub(&pgm_team.asleep, 1);
        pthread_mutex_unlock(&pgm_team.sleep);
        pgm_take_parts();
    }
    return none;
}

/* Start workers, fewer than wanted if the system refuses more. */
static void pgm_hire(int wanted)
{
    while (pgm_team.workers < wanted && pgm_team.workers < PGM_MOST_WORKERS) {
        pthread_t thread;
        pthread_attr_t how;
        pthread_attr_init(&how);
        pthread_attr_setstacksize(&how, PGM_STACK);
        int failed = pthread_create(&thread, &how, pgm_worker, NULL);
        pthread_attr_destroy(&how);
        if (failed) break;
        pthread_detach(thread);
        pgm_team.workers++;
    }
}

/* in a child process */
static void pgm_disband(void)
{
    pthread_mutex_init(&pgm_team.use, NULL);
    pthread_mutex_init(&pgm_team.sleep, NULL);
    pthread_cond_init(&pgm_team.wake, NULL);
    pgm_team.workers = 0;
    /* New workers must not take up a job of the parent. */
    atomic_store(&pgm_team.ticket, 0);
    atomic_store(&pgm_team.asleep, 0);
}

static void pgm_found(void) { pthread_atfork(NULL, NULL, pgm_disband); }

/* task(job, ...) on items 0 .. count - 1 in `parts` parts; any thread may process any part
 */
static void pgm_share(pgm_task task, void *job, int64_t count, int parts)
{
    if (parts > count) parts = (int)count;
    if (parts <= 1) {
        task(job, 0, count);
        return;
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, pgm_found);
    if (pthread_mutex_trylock(&pgm_team.use)) {
        task(job, 0, count);
        return;
    }
    pgm_hire(parts - 1);
    pgm_team.task = task, pgm_team.object = job, pgm_team.count = count;
    pgm_team.parts = pgm_team.workers + 1 < parts ? pgm_team.workers + 1 : parts;
    const unsigned long long all = (unsigned long long)pgm_team.parts,
                             number = (atomic_load(&pgm_team.ticket) >> 32) + 1;
    atomic_store(&pgm_team.done, 0);
    atomic_store(&pgm_team.ticket, number << 32 | all << 16);
    if (atomic_load(&pgm_team.asleep)) {
        pthread_mutex_lock(&pgm_team.sleep);
        pthread_cond_broadcast(&pgm_team.wake);
        pthread_mutex_unlock(&pgm_team.sleep);
    }
    pgm_take_parts();
    for (int i = 0; atomic_load(&pgm_team.done) < (int)all; i++)
        if (i < 64 * PGM_SPINS)
            PGM_PAUSE();
        else
            sched_yield();
    pthread_mutex_unlock(&pgm_team.use);
}

#else

static void pgm_share(pgm_task task, void *job, int64_t count, int parts)
{
    (void)parts;
    task(job, 0, count);
}

#endif

#endif
