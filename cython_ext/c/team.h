/* A team of threads that share the parts of a job. A call costs about 1 us, where a pool of Python
 * threads takes 60 us.
 *
 * Learning makes a dozen short calls in each update. Workers therefore spin for half a millisecond
 * before they sleep, so that the next call finds them awake. The caller computes the first part,
 * because only its thread can handle signals. Then it and its workers claim one part after the
 * other. A worker that does not run, because other programs keep the cores busy, is
 * therefore not waited for: the caller computes its parts as well. The team works on one job at a
 * time; a second caller computes its whole job alone. After a fork, the child process starts without
 * workers, even if the team of its parent was at work. Without POSIX threads, callers compute
 * everything.
 *
 * `ticket` holds the number of the last job, its number of parts, and the next part that nobody has
 * claimed. A claim fails if any of them has changed. `left` says how many parts are not finished, and
 * the caller returns at 0. Accesses to both are sequentially consistent. The other fields are read
 * only by the owner of a part that is not finished, while they do not change.
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
    atomic_ullong ticket; /* job << 32 | parts << 16 | next part */
    atomic_int left;      /* parts that are not finished */
    atomic_int asleep;
    int workers;
    int64_t count;
    pgm_task task;
    void *object; /* its argument */
} pgm_team = {.use = PTHREAD_MUTEX_INITIALIZER,
              .sleep = PTHREAD_MUTEX_INITIALIZER,
              .wake = PTHREAD_COND_INITIALIZER};

typedef struct {
    unsigned long long seen; /* the last job before the first one of a worker */
} pgm_place;

/* the number of the last job */
static unsigned long long pgm_last_job(void) { return atomic_load(&pgm_team.ticket) >> 32; }

/* Claim parts of the job under way and compute them; returns its number when all are claimed. */
static unsigned long long pgm_claim_parts(void)
{
    unsigned long long t = atomic_load(&pgm_team.ticket);
    for (;;) {
        const int64_t part = (int64_t)(t & 0xffff), parts = (int64_t)(t >> 16 & 0xffff);
        if (part >= parts) return t >> 32;
        if (!atomic_compare_exchange_weak(&pgm_team.ticket, &t, t + 1)) continue;
        pgm_team.task(pgm_team.object, pgm_team.count * part / parts,
                      pgm_team.count * (part + 1) / parts);
        atomic_fetch_sub(&pgm_team.left, 1);
        t = atomic_load(&pgm_team.ticket);
    }
}

static int64_t pgm_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Wait for a job after number `seen`, for a while. */
static void pgm_linger(unsigned long long seen)
{
    const int64_t end = pgm_clock() + PGM_PATIENCE;
    do
        for (int i = 0; i < PGM_SPINS; i++) {
            if (pgm_last_job() != seen) return;
            PGM_PAUSE();
        }
    while (pgm_clock() < end);
}

static void *pgm_worker(void *place)
{
    unsigned long long seen = ((pgm_place *)place)->seen;
    free(place);
    for (;;) {
        pgm_linger(seen);
        if (pgm_last_job() == seen) {
            pthread_mutex_lock(&pgm_team.sleep);
            atomic_fetch_add(&pgm_team.asleep, 1);
            while (pgm_last_job() == seen)
                pthread_cond_wait(&pgm_team.wake, &pgm_team.sleep);
            atomic_fetch_sub(&pgm_team.asleep, 1);
            pthread_mutex_unlock(&pgm_team.sleep);
        }
        seen = pgm_claim_parts();
    }
    return NULL;
}

/* Start workers, which wait for the job after the current one; fewer than wanted if the system
 * refuses more. */
static void pgm_hire(int wanted)
{
    while (pgm_team.workers < wanted && pgm_team.workers < PGM_MOST_WORKERS) {
        pthread_t thread;
        pgm_place *place = malloc(sizeof *place);
        if (!place) break;
        *place = (pgm_place){pgm_last_job()};
        pthread_attr_t how;
        pthread_attr_init(&how);
        pthread_attr_setstacksize(&how, PGM_STACK);
        int failed = pthread_create(&thread, &how, pgm_worker, place);
        pthread_attr_destroy(&how);
        if (failed) {
            free(place);
            break;
        }
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
    const int all = pgm_team.workers + 1 < parts ? pgm_team.workers + 1 : parts;
    atomic_store(&pgm_team.left, all);
    atomic_store(&pgm_team.ticket, (pgm_last_job() + 1) << 32 | (unsigned long long)all << 16 | 1);
    if (atomic_load(&pgm_team.asleep)) {
        pthread_mutex_lock(&pgm_team.sleep);
        pthread_cond_broadcast(&pgm_team.wake);
        pthread_mutex_unlock(&pgm_team.sleep);
    }
    task(job, 0, count / all);
    atomic_fetch_sub(&pgm_team.left, 1);
    pgm_claim_parts();
    for (int i = 0; atomic_load(&pgm_team.left); i++)
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
