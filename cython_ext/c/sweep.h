/* Event-driven sweeps: each chain stores the inputs of every layer, and a change of a unit by delta
 * adds delta times its row of the weight to the inputs of its neighbours.
 *
 * A pass over a layer draws the new states of all chains of a block and lists the changes. Each
 * link then applies the lists, one panel of columns at a time, so that the panel stays in cache
 * while all chains use it. If the units of a layer depend on each other (through couplings inside
 * the layer, or as parents of one child), they are drawn one by one.
 *
 * Invariants. Between passes, field and zeta are the inputs from the current states, up to rounding
 * errors, which `refresh` removes. Each chain has its own stream of uniforms, and its sums are
 * always computed in the order of its own changes. From given inputs, the path of a chain therefore
 * depends neither on the other chains nor on the number of threads. In the cases that
 * CompiledChains names, inputs begin as products of matrices, whose rounding may depend on the
 * other chains.
 *
 * Reference: PlainChains of pgmengine/engine/reference.py on the same uniforms
 * (test_compiled_sweeps.py, test_annealing.py).
 */
#ifndef PGM_SWEEP_H
#define PGM_SWEEP_H

#include "by_unit.h"
#include "density.h"

/* Draw a layer of one chain and list the changes; returns their number. */
PGM_INLINE int64_t pgm_pass(const pgm_chains *m, int index, int64_t chain, const pgm_stream *at,
                            int backward, pgm_scratch *s, pgm_change *list)
{
    const pgm_layer *l = m->layer + index;
    if (l->by_unit) return pgm_pass_by_unit(m, index, chain, at, backward, s, list);
    if (l->kind != PGM_FINITE) return pgm_pass_infinite(m, l, chain, at, list);
    if (l->states > 2 || l->width > 1)
        return pgm_pass_table(m, l, chain, at, pgm_alpha(m, chain), list);
    return pgm_pass_two(m, l, chain, at, list);
}

/* the sweeps of chains first .. last - 1, at most PGM_TOGETHER of them; `changed` (layers) gains
 * numbers of changes */
static void pgm_sweep(const pgm_sweep_job *j, pgm_scratch *s, int64_t first, int64_t last,
                      int64_t *changed)
{
    const pgm_chains *m = j->chains;
    int complement = 0,
        side = j->joint      ? 0
               : j->backward ? 2
                             : 1,
        two_sided = side && pgm_two_sided(m, side);
    /* layers that importance weights marginalise are drawn by Gibbs, independently of their former
     * states */
    pgm_chains gibbs = *m;
    gibbs.alpha = 0.0f;
    for (int i = 0; i < m->layers; i++) complement |= m->layer[i].complement && m->layer[i].zeta;
    for (uint64_t t = 0; t < j->sweeps; t++) {
        uint64_t sweep = j->first + t;
        if (complement) pgm_refresh(m, s, first, last, 1);
        for (int64_t c = first; j->betas && c < last; c++) {
            j->log_weight[c] +=
                pgm_weight_gain(m, c, j->betas[t], j->betas[t + 1], side, two_sided);
            m->beta[c] = (float)j->betas[t + 1];
        }
        for (int i = 0; i < m->visits; i++) {
            int index = m->visit[j->backward ? m->visits - 1 - i : i];
            if (j->only >= 0 && j->only != index) continue;
            const pgm_chains *by = j->betas && (m->layer[index].summed & side) ? &gibbs : m;
            for (int64_t c = first; c < last; c++) {
                pgm_stream at = pgm_open_stream(m->key, (uint32_t)sweep, m->stream[c],
                                                (uint32_t)index | (uint32_t)(sweep >> 32) << 16);
                int64_t n = pgm_pass(by, index, c, &at, j->backward, s,
                                     s->list + (c - first) * s->capacity);
                s->count[c - first] = n;
                changed[index] += n;
            }
            for (int k = 0; k < m->links && j->only < 0; k++)
                if (m->link[k].from == index && !m->link[k].at_once)
                    pgm_add(m, m->link + k, s, first, last, m->whole);
        }
        for (int64_t c = first; j->trace && c < last; c++)
            pgm_log_density(m, c, 0, 0, j->trace + 2 * ((int64_t)t * j->count + c));
    }
}

/* chains first .. last - 1 of a job, in blocks */
static void pgm_sweep_part(void *job, int64_t first, int64_t last)
{
    pgm_sweep_job *j = job;
    const size_t widest = (size_t)j->widest,
                 together = (size_t)pgm_min_l(PGM_TOGETHER, last - first);
    int64_t *changed = calloc((size_t)j->chains->layers + 1, sizeof *changed);
    pgm_scratch s = {
        .list = malloc(sizeof *s.list * (size_t)j->capacity * together + 1),
        .count = calloc(together + 1, sizeof *s.count),
        .capacity = j->capacity,
        .step = calloc(widest, sizeof *s.step),
        .touched = calloc(widest, sizeof *s.touched),
        .reached = calloc(widest, sizeof *s.reached),
    };
    if (changed && s.list && s.count && s.step && s.touched && s.reached) {
        for (int64_t a = first; a < last; a += PGM_TOGETHER) {
            const int64_t b = pgm_min_l(a + PGM_TOGETHER, last);
            if (j->refresh) pgm_refresh(j->chains, &s, a, b, 0);
            pgm_sweep(j, &s, a, b, changed);
        }
        for (int i = 0; i < j->chains->layers; i++)
            __atomic_fetch_add(j->changed + i, changed[i], __ATOMIC_RELAXED);
    } else
        j->failed = 1;
    free(s.list);
    free(s.count);
    free(s.step);
    free(s.touched);
    free(s.reached);
    free(changed);
}

#endif
