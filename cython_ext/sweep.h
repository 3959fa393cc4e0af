/* Event-driven sweeps: each chain keeps the inputs ("fields") of every layer, and a change of a unit by delta adds delta
 * times its weight row to the inputs of its neighbours.
 *
 * A pass over a layer draws the new states of all chains of a block and lists the changes; then each coupling applies
 * the lists, tile of columns by tile, so that the part of the weights in use stays in cache while all chains use it.
 * A layer whose units depend on each other (lateral couplings, parents of one child) moves unit by unit.
 *
 * Streams belong to chains, and a chain's sums are always taken in the order of its own changes: what a chain does
 * depends neither on the other chains nor on the number of threads.
 */
#ifndef PGM_SWEEP_H
#define PGM_SWEEP_H

#include "by_unit.h"
#include "density.h"

PGM_INLINE int64_t pgm_pass(const pgm_machine *m, int index, int64_t chain, const pgm_stream *at, int backward,
                            pgm_scratch *s, pgm_change *list)
{
    const pgm_layer *l = m->layer + index;
    if (l->by_unit) return pgm_pass_by_unit(m, index, chain, at, backward, s, list);
    if (l->kind != PGM_TABLE) return pgm_pass_infinite(m, l, chain, at, list);
    if (l->states > 2 || l->width > 1) return pgm_pass_table(m, l, chain, at, pgm_alpha(m, chain), list);
    return pgm_pass_two(m, l, chain, at, list);
}

/* what a run of sweeps is to do besides sweeping; chains are those of the machine */
typedef struct {
    uint64_t first, count; /* sweeps first .. first + count - 1 */
    int joint;             /* weights of annealing sum no layer out */
    int backward;          /* layers and units in the reverse order: the reversal of the sweep */
    int only;              /* the layer to draw, no other, its inputs being given and no change passed on; or -1 */
    int64_t chains;
    const double *betas;   /* (count + 1) or NULL: sweep t is made at betas[t + 1], and before it log_weight gains */
    double *log_weight;    /* (chains)  log p_(betas[t + 1]) - log p_(betas[t]), the summed layers summed out */
    double *trace;         /* (count, chains, 2) or NULL: log densities after each sweep */
    int64_t *changed;      /* (layers) number of changes so far */
} pgm_run;

/* chains first .. last - 1, at most PGM_CHAINS of them */
static void pgm_sweep(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last, const pgm_run *run)
{
    int complement = 0, side = run->joint ? 0 : run->backward ? 2 : 1, two_sided = side && pgm_two_sided(m, side);
    pgm_machine gibbs = *m; /* draws what weights sum out: what it was before must not matter */
    gibbs.alpha = 0.0f;
    for (int i = 0; i < m->layers; i++) complement |= m->layer[i].complement && m->layer[i].zeta;
    for (uint64_t t = 0; t < run->count; t++) {
        uint64_t sweep = run->first + t;
        if (complement) pgm_refresh(m, s, first, last, 1);
        for (int64_t c = first; run->betas && c < last; c++) {
            run->log_weight[c] += pgm_weight_gain(m, c, run->betas[t], run->betas[t + 1], side, two_sided);
            m->beta[c] = (float)run->betas[t + 1];
        }
        for (int i = 0; i < m->visits; i++) {
            int index = m->visit[run->backward ? m->visits - 1 - i : i];
            if (run->only >= 0 && run->only != index) continue;
            const pgm_machine *by = run->betas && (m->layer[index].summed & side) ? &gibbs : m;
            for (int64_t c = first; c < last; c++) {
                pgm_stream at = pgm_open_stream(m->key, (uint32_t)sweep, m->stream[c],
                                                (uint32_t)index | (uint32_t)(sweep >> 32) << 16);
                int64_t n = pgm_pass(by, index, c, &at, run->backward, s, s->list + (c - first) * s->capacity);
                s->count[c - first] = n;
                run->changed[index] += n;
            }
            for (int k = 0; k < m->links && run->only < 0; k++)
                if (m->link[k].from == index && !m->link[k].at_once) pgm_add(m, m->link + k, s, first, last);
        }
        for (int64_t c = first; run->trace && c < last; c++)
            pgm_log_density(m, c, 0, 0, run->trace + 2 * ((int64_t)t * run->chains + c));
    }
}

static void pgm_reset(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last)
{
    pgm_refresh(m, s, first, last, 0);
}

/* uniforms of blocks first .. first + blocks - 1 of one place */
static void pgm_fill_uniforms(const uint32_t *key, uint32_t sweep, uint32_t chain, uint32_t layer, uint32_t first,
                              int64_t blocks, float *out)
{
    pgm_stream at = pgm_open_stream(key, sweep, chain, layer);
    for (int64_t b = 0; b < blocks; b++) {
        pgm_vf u[PGM_VECTORS];
        pgm_uniforms(&at, first + (uint32_t)b, u);
        memcpy(out + b * PGM_BLOCK, u, sizeof u);
    }
}

#endif
