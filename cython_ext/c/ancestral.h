/* Draws of units with a conditional table from their parents, and counts of their states.
 *
 *     p(x_u = k | parents) = T_u[states of the parents, k]
 *
 * A step has units whose parents have been drawn before. Draws are lanes: a row of an array belongs
 * to one unit, and has the draws of the first row of evidence, then of the second one, and so on.
 * Lanes are processed in groups that stay in the nearest cache. The states of the parents determine
 * the position of the entry of state 0, and the entries of the other states follow it. A free unit
 * takes the state at which the running sum of the entries exceeds the uniform times the sum of all,
 * and an observed one adds the logarithm of its entry to the log importance weight. One call
 * processes a step with some million draws, so that Python handles signals between two calls.
 *
 * Reference: Plain in tests/engine/test_ancestral.py.
 */
#ifndef PGM_ANCESTRAL_H
#define PGM_ANCESTRAL_H

#include "routines.h"

/* Write the entry of state 0 of unit i of the step in lanes begin .. begin + lanes - 1. */
static void pgm_first_entries(const pgm_ancestral_job *j, int64_t i, int64_t begin, int64_t lanes,
                              int64_t *at)
{
    for (int64_t l = 0; l < lanes; l++) at[l] = j->first[i];
    for (int64_t a = j->start[i]; a < j->start[i + 1]; a++) {
        const int32_t *state = j->state + j->parent[a] * j->draws + begin;
        const int64_t stride = j->stride[a];
        for (int64_t l = 0; l < lanes; l++) at[l] += state[l] * stride;
    }
}

/* The state that a uniform chooses among entries p (states). */
static int32_t pgm_chosen(const double *p, int64_t states, double uniform)
{
    double total = p[0], sum = 0.0;
    int32_t state = 0;
    for (int64_t k = 1; k < states; k++) total += p[k];
    uniform *= total;
    for (int64_t k = 0; k < states - 1; k++) {
        sum += p[k];
        state += uniform >= sum;
    }
    return state;
}

/* Draw or weigh the units of a step in groups of lanes. */
static void pgm_ancestral_part(void *job, int64_t first, int64_t last)
{
    const pgm_ancestral_job *j = job;
    int64_t at[PGM_ANCESTRAL_LANES], row[PGM_ANCESTRAL_LANES];
    for (int64_t group = first; group < last; group++) {
        const int64_t begin = group * PGM_ANCESTRAL_LANES, left = j->draws - begin;
        const int64_t lanes = left < PGM_ANCESTRAL_LANES ? left : PGM_ANCESTRAL_LANES;
        for (int64_t l = 0; l < lanes; l++) row[l] = (begin + l) / j->each;
        for (int64_t i = 0; i < j->units; i++) {
            const uint8_t *role = j->role + i * j->rows;
            int32_t *state = j->state + j->unit[i] * j->draws + begin;
            const double *uniform = j->uniform + j->place[i] * j->draws + begin;
            pgm_first_entries(j, i, begin, lanes, at);
            for (int64_t l = 0; l < lanes; l++)
                if (role[row[l]] == PGM_DRAWN)
                    state[l] = pgm_chosen(j->prob + at[l], j->states[i], uniform[l]);
                else if (role[row[l]] == PGM_WEIGHED)
                    j->log_weight[begin + l] += j->log[at[l] + state[l]];
        }
    }
}

/* Write the sums of weights, and of their squares, of the draws at each state of some units. */
static void pgm_tally_part(void *job, int64_t first, int64_t last)
{
    const pgm_tally_job *j = job;
    for (int64_t unit = first; unit < last; unit++)
        for (int64_t row = 0; row < j->rows; row++) {
            const int32_t *state = j->state + (unit * j->rows + row) * j->each;
            const double *weight = j->weight + row * j->each;
            double *out = j->out + (unit * j->rows + row) * j->most * 2;
            for (int64_t i = 0; i < j->most * 2; i++) out[i] = 0.0;
            for (int64_t l = 0; l < j->each; l++) {
                out[state[l] * 2] += weight[l];
                out[state[l] * 2 + 1] += weight[l] * weight[l];
            }
        }
}

#endif
