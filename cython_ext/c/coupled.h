/* Fast chains on a ladder of temperatures, each coupled with a slow chain at beta = 1: a step of
 * coupled adaptive simulated tempering after the sweep (Salakhutdinov 2010, section 6.1).
 *
 * A fast chain with state x on rung l proposes a neighbour l', with q(l' | l) = 1/2, or 1 from an end
 * of the ladder, and accepts it with probability
 *
 *     min(1, p_l'(x) q(l | l') g_l / (p_l(x) q(l' | l) g_l')).
 *
 * Then log g grows at the rung of each chain. Where an exchange is due, the numbers of a slow chain
 * and of its fast chain at beta = 1 change places. log p_beta(x) = path(x) + beta power(x), so that
 * the ratio of densities is exp((beta_l' - beta_l) power(x)).
 *
 * Reference: CoupledTempering.step of coupled_ladders.py, with `hop` and `Weights` of wandering.py
 * and `Travels` of round_trips.py (tests/learn/test_compiled_fits.py: the same bits).
 */
#ifndef PGM_COUPLED_H
#define PGM_COUPLED_H

#include "density.h"

typedef struct {
    const pgm_chains *chains;
    double *density; /* (chains, 2) path and power */
} pgm_density_job;

static void pgm_density_part(void *job, int64_t first, int64_t last)
{
    const pgm_density_job *j = job;
    for (int64_t c = first; c < last; c++) pgm_log_density(j->chains, c, 1, 0, j->density + 2 * c);
}

/* log of the probability of proposing one given neighbour of a rung */
PGM_INLINE double pgm_log_q(int64_t rung, int64_t top)
{
    return rung == 0 || rung == top ? 0.0 : -log(2.0);
}

/* The rung of a fast chain after one proposal, with two uniforms. */
PGM_INLINE int64_t pgm_hop(const pgm_ladder *l, int64_t rung, double power, const double *log_g,
                           double direction, double chance)
{
    const int64_t top = l->rungs - 1;
    const int64_t to = rung == 0     ? 1
                       : rung == top ? top - 1
                                     : rung + (direction < 0.5 ? 1 : -1);
    double gain = (l->betas[to] - l->betas[rung]) * power;
    /* the power of an impossible state may be NaN: the ratio of the densities then counts as 1 */
    gain = isnan(gain) ? 0.0 : gain;
    gain = gain + pgm_log_q(to, top) - pgm_log_q(rung, top) + log_g[rung] - log_g[to];
    return log(chance) < gain ? to : rung;
}

/* Raise the log weights at the rungs of the chains; only differences matter, so that the first one
 * stays 0. */
PGM_INLINE void pgm_adapt(pgm_ladder *l, double rate)
{
    const int64_t each = l->pairs / l->rows;
    for (int64_t row = 0; row < l->rows; row++) {
        double *log_g = l->log_g + row * l->rungs, *visits = l->visits + row * l->rungs;
        memset(l->here, 0, sizeof *l->here * (size_t)l->rungs);
        for (int64_t c = row * each; c < (row + 1) * each; c++) l->here[l->rung[c]]++;
        for (int64_t r = 0; r < l->rungs; r++) {
            visits[r] += (double)l->here[r];
            log_g[r] += (double)l->here[r] * (rate / (double)each);
        }
        const double first = log_g[0];
        for (int64_t r = 0; r < l->rungs; r++) log_g[r] -= first;
    }
}

/* Count one step: visits, round trips, changes of rung and exchanges. */
PGM_INLINE void pgm_travel(pgm_ladder *l, int64_t taken, int64_t due, int64_t swapped)
{
    const int64_t top = l->rungs - 1;
    int64_t trips = 0;
    l->counts[0]++;
    for (int64_t c = 0; c < l->pairs; c++) {
        const int64_t rung = l->rung[c];
        l->visited[rung]++, l->seen[rung] = l->counts[0];
        l->from_below[c] |= rung == 0;
        if (rung == top) {
            trips += top > 0 && l->from_below[c];
            l->from_below[c] = 0;
        }
    }
    l->counts[1] += trips, l->counts[2] += top > 0 ? l->pairs : 0, l->counts[3] += taken;
    l->counts[4] += due, l->counts[5] += swapped;
}

/* A step after the sweep of all chains; uniform (2, pairs). */
static void pgm_couple(pgm_ladder *l, const double *uniform, double rate, int due, float *beta)
{
    const int64_t each = l->pairs / l->rows, top = l->rungs - 1;
    int64_t taken = 0, swapped = 0;
    for (int64_t c = 0; top > 0 && c < l->pairs; c++) {
        const int64_t to =
            pgm_hop(l, l->rung[c], l->density[2 * l->fast[c] + 1], l->log_g + c / each * l->rungs,
                    uniform[c], uniform[l->pairs + c]);
        taken += to != l->rung[c];
        l->rung[c] = to;
    }
    pgm_adapt(l, rate);
    for (int64_t c = 0; due && c < l->pairs; c++)
        if (l->rung[c] == top) {
            const int64_t one = l->slow[c];
            l->slow[c] = l->fast[c], l->fast[c] = one, swapped++;
        }
    pgm_travel(l, taken, due ? l->pairs : 0, swapped);
    for (int64_t c = 0; c < l->pairs; c++) {
        beta[l->slow[c]] = 1.0f;
        beta[l->fast[c]] = (float)l->betas[l->rung[c]];
    }
}

#endif
