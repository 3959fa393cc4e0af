/* Mean field where free units have directed children (Saul, Jaakkola and Jordan 1996), computed for
 * PGM_LANES rows of evidence at a time.
 *
 * The distribution Q has a table of probabilities for each unit. A child with input z adds
 * -E_Q[A(z)] to the bound of log Z. For every xi, this term is bounded below (their eq. 20) by
 *     -F(xi) = -xi E[z] - log sum_k exp(L_k),
 *     L_k = log h_k + log E_Q[exp((y_k - xi) z)],
 * where y_k are the values of the child. The expectations are products over the parents. Therefore
 *   - F is convex in xi, and damped Newton steps find its minimum. The derivatives are moments
 *     under the tables of the parents, tilted by exp((y_k - xi) z);
 *   - given all other tables, -F is convex in the table of one parent. Maximising with its tangent,
 *     which is linear, gives a table that cannot lower the bound (their eq. 25, here for any number
 *     of values):
 *         q(x) ~ h(x) exp(eta x - share(x)),
 *         share(x) = sum_k phi_k exp(t_k x) / E_q[exp(t_k x)],  t_k = J (y_k - xi),
 *     where phi_k is the share of exp(L_k) in the sum.
 * A child with A(z) = c z^2 / 2 needs no bound: E[A] = c (E[z]^2 + Var z) / 2. A table adds its
 * expectation over the other units (expected.h) to the log weights of a state.
 *
 * Layout: arrays are (blocks, items, PGM_LANES), see pgm_batch. A lane is a row of evidence. Only
 * the sums of pgm_learn_part mix lanes.
 *
 * Reference: `Twin` in tests/infer/variational/test_compiled_rounds.py, `Beliefs` in
 * tests/bound_oracle.py.
 */
#ifndef PGM_BELIEF_H
#define PGM_BELIEF_H

#include "by_term.h"
#include "updates.h"
#include "xi.h"

/* updates of units between two looks at the clock */
#define PGM_UPDATES_A_POLL 64

/* Make Newton steps in the xi of every term that is present. */
PGM_INLINE void pgm_tighten_all(const pgm_net *n, pgm_rows *r, int steps, int by_term)
{
    for (int64_t t = 0; t < n->terms; t++)
        if (r->alive[t]) pgm_tighten(n, r, t, steps, by_term);
}

/* Return whether to stop; called after every update of a unit. Only the calling thread can handle
 * signals. It computes the first part, which polls for all parts. */
PGM_INLINE int pgm_stopped(pgm_belief_job *j, int asks, int64_t *updates)
{
    if (++*updates % PGM_UPDATES_A_POLL) return 0;
    if (asks && j->poll && j->poll(j->token)) __atomic_store_n(&j->stopped, 1, __ATOMIC_RELAXED);
    return __atomic_load_n(&j->stopped, __ATOMIC_RELAXED);
}

/* Make rounds: update every open unit, then every xi. Ends after a round in which no probability
 * changes by more than the tolerance. Returns the number of rounds; *change is the last largest
 * change. */
PGM_INLINE int64_t pgm_settle(const pgm_net *n, pgm_rows *r, pgm_belief_job *j, int asks,
                              int64_t *updates, pgm_vd *kept, double *change, int by_term)
{
    const int64_t rounds = j->rounds;
    const double tolerance = j->tolerance;
    const int steps = j->steps;
    int64_t made = 0;
    *change = INFINITY;
    /* from an xi that does not fit, a round would move away from a warm start */
    pgm_tighten_all(n, r, steps ? PGM_STUBBORN : 0, by_term);
    while (made<rounds && * change> tolerance) {
        *change = 0.0;
        for (int64_t u = 0; u < n->units; u++)
            if (pgm_any_d(r->open[u])) {
                double by = pgm_update(n, r, u, kept, by_term);
                *change = by > *change ? by : *change;
                if (pgm_stopped(j, asks, updates)) return made;
            }
        pgm_tighten_all(n, r,
                        ++made<rounds && * change> tolerance ? steps
                        : steps                              ? PGM_STUBBORN
                                                             : 0,
                        by_term);
    }
    return made;
}

/* Give barren units the probabilities phi of their own term, parents first. */
static void pgm_forward(const pgm_net *n, pgm_rows *r, const int64_t *order, int64_t count,
                        const pgm_vd *barren, int steps)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t u = order[i], t = n->own_first[u];
        const pgm_vl where = barren[u] > 0.0;
        pgm_vd *q = r->q + n->unit_state[u], *log_q = r->log_q + n->unit_state[u];
        const int w = n->kind[n->term_kind[t]].width, states = n->kind[n->term_kind[t]].states;
        pgm_vd *phi = r->phi + n->term_state[t], *xi = r->xi + n->term_comp[t];
        pgm_vd old_phi[PGM_MOST_VALUES], old_xi[PGM_MOST_VALUES], old_f = r->f[t];
        if (!pgm_any_d(barren[u])) continue;
        for (int k = 0; k < states; k++) old_phi[k] = phi[k];
        for (int l = 0; l < w; l++) old_xi[l] = xi[l];
        /* with xi = 0, phi_1 / phi_0 = E[e^-z] */
        if (n->own_complement[u]) xi[0] = pgm_splat_d(0.0);
        pgm_tighten(n, r, t, n->own_complement[u] ? 0 : steps, 0);
        for (int x = 0; x < n->kind[n->unit_kind[u]].states; x++) {
            pgm_vd p = phi[x];
            if (n->own_complement[u]) p = x ? 1.0 - phi[1] / phi[0] : phi[1] / phi[0];
            p = pgm_max_d(p, pgm_splat_d(1e-299));
            q[x] = pgm_select_d(where, p, q[x]);
            log_q[x] = pgm_select_d(where, pgm_log_d(p), log_q[x]);
        }
        /* in other rows the term belongs to the bound */
        for (int k = 0; k < states; k++) phi[k] = pgm_select_d(where, phi[k], old_phi[k]);
        for (int l = 0; l < w; l++) xi[l] = pgm_select_d(where, xi[l], old_xi[l]);
        r->f[t] = pgm_select_d(where, r->f[t], old_f);
        pgm_set_means(n, r, u, 0);
    }
}

/* Give barren units with a conditional the expectation of their conditional, parents first. */
static void pgm_forward_tables(const pgm_net *n, pgm_rows *r, const int64_t *order, int64_t count,
                               const pgm_vd *barren)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t u = order[i];
        const pgm_kind *kind = n->kind + n->unit_kind[u];
        const pgm_vl where = barren[u] > 0.0;
        pgm_vd *q = r->q + n->unit_state[u], *log_q = r->log_q + n->unit_state[u];
        pgm_vd found[PGM_MOST_VALUES], total = pgm_splat_d(0.0);
        pgm_place p;
        if (!pgm_any_d(barren[u])) continue;
        for (int k = 0; k < kind->states; k++) found[k] = pgm_splat_d(0.0);
        for (int more = pgm_begin(n, r, n->own_table[u], -1, pgm_splat_d(1.0), &p); more;
             more = pgm_next(&p))
            for (int k = 0; k < kind->states; k++)
                found[k] += p.product[p.axes] * exp(n->entry[p.at + k] + kind->log_base[k]);
        for (int k = 0; k < kind->states; k++) total += found[k];
        total = pgm_max_d(total, pgm_splat_d(1e-300));
        for (int k = 0; k < kind->states; k++) {
            q[k] = pgm_select_d(where, found[k] / total, q[k]);
            log_q[k] = pgm_log_d(pgm_max_d(q[k], pgm_splat_d(1e-299)));
        }
        pgm_set_means(n, r, u, 0);
    }
}

/* Add the derivatives of the bound in the weights of the edges of a term, at the current Q and xi,
 * times the weights of the rows: (pull - on xi) E[x] - on sum_k phi_k (y_k - xi) E[x tilted]
 * (their eq. 35). */
static void pgm_learn(const pgm_net *n, const pgm_rows *r, int64_t t, const pgm_vd *weights,
                      double *weight)
{
    const pgm_kind *kind = n->kind + n->term_kind[t];
    const int w = kind->width;
    const pgm_vd *phi = r->phi + n->term_state[t], *xi = r->xi + n->term_comp[t],
                 *pull = r->pull + n->term_comp[t];
    const pgm_vd on = r->on[t], row_weight = *weights;
    pgm_vd tau[PGM_MOST_VALUES], p[PGM_MOST_VALUES], top, total;
    for (int64_t e = n->up_start[t]; e < n->up_start[t + 1]; e++) {
        const int64_t u = n->edge_unit[e];
        const pgm_kind *parent = n->kind + n->unit_kind[u];
        const double *j = n->weight + n->edge_weight[e];
        const int wide = parent->width;
        for (int a = 0; a < wide; a++) {
            const pgm_vd mean = r->mean[n->unit_comp[u] + a];
            /* d/dJ of c (E[z]^2 + Var z) / 2 */
            if (kind->curvature > 0) {
                pgm_vd both = pgm_splat_d(0.0);
                for (int x = 0; x < parent->states; x++) {
                    double d = 0.0;
                    for (int b = 0; b < wide; b++) d += parent->value[x * wide + b] * j[b];
                    both += r->q[n->unit_state[u] + x] * parent->value[x * wide + a] * d;
                }
                pgm_vd own = pgm_splat_d(0.0);
                for (int b = 0; b < wide; b++) own += r->mean[n->unit_comp[u] + b] * j[b];
                total = pull[0] * mean - on * kind->curvature * (phi[0] * mean + both - own * mean);
                total *= row_weight;
                for (int i = 0; i < PGM_LANES; i++) weight[n->edge_weight[e] + a] += total[i];
                continue;
            }
            for (int l = 0; l < w; l++) {
                total = (pull[l] - on * xi[l]) * mean * row_weight;
                for (int i = 0; i < PGM_LANES; i++)
                    weight[n->edge_weight[e] + a * w + l] += total[i];
            }
        }
        for (int k = 0; k < kind->states && kind->curvature == 0; k++) {
            pgm_slopes(n, e, wide, kind, k, xi, tau, 0);
            pgm_tilt(parent, r->log_q + n->unit_state[u], tau, p, &top);
            for (int a = 0; a < wide; a++) {
                pgm_vd mean = pgm_splat_d(0.0);
                for (int x = 0; x < parent->states; x++) mean += p[x] * parent->value[x * wide + a];
                mean *= on * phi[k] * row_weight;
                for (int l = 0; l < w; l++) {
                    total = mean * (kind->value[k * w + l] - xi[l]);
                    for (int i = 0; i < PGM_LANES; i++)
                        weight[n->edge_weight[e] + a * w + l] -= total[i];
                }
            }
        }
    }
}

/* block number b of a batch */
PGM_INLINE pgm_rows pgm_block_of(const pgm_net *n, const pgm_batch *all, int64_t b)
{
#define PGM_AT(array, items) ((pgm_vd *)(array) + b * (items))
    return (pgm_rows){PGM_AT(all->log_q, n->states),
                      PGM_AT(all->q, n->states),
                      PGM_AT(all->mean, n->comps),
                      PGM_AT(all->base, n->comps),
                      PGM_AT(all->gain, n->comps),
                      PGM_AT(all->open, n->units),
                      PGM_AT(all->still, n->term_comps),
                      PGM_AT(all->live, n->terms),
                      PGM_AT(all->on, n->terms),
                      PGM_AT(all->pull, n->term_comps),
                      PGM_AT(all->xi, n->term_comps),
                      PGM_AT(all->phi, n->term_states),
                      PGM_AT(all->f, n->terms),
                      PGM_AT(all->input, n->term_comps),
                      PGM_AT(all->beta, 1),
                      PGM_AT(all->power, n->tables),
                      NULL,
                      -INFINITY};
}

/* Set which terms are present in some lane. */
PGM_INLINE void pgm_look(const pgm_net *n, pgm_rows *r, int32_t *alive)
{
    for (int64_t t = 0; t < n->terms; t++) alive[t] = pgm_any_d(r->live[t]);
    r->alive = alive;
}

/* the vectors that rounds need: for the tables that an update keeps, and for `alive` */
PGM_INLINE int64_t pgm_round_room(const pgm_net *n) { return n->capacity + n->terms; }

/* Make the rounds of a block of some rows. Returns the largest number of rounds of a row; *change
 * is the largest of the last changes. */
static int64_t pgm_settle_block(pgm_belief_job *j, pgm_rows *r, int rows, int asks,
                                int64_t *updates, pgm_vd *room, double *change)
{
    const pgm_net *n = j->net, *g = j->by_term;
    int64_t most = 0;
    double last;
    if (!g) {
        pgm_look(n, r, (int32_t *)(room + n->capacity));
        return pgm_settle(n, r, j, asks, updates, room, change, 0);
    }
    *change = 0.0;
    for (int i = 0; i < rows && !__atomic_load_n(&j->stopped, __ATOMIC_RELAXED); i++) {
        pgm_rows row = pgm_row_at(g, r, room + pgm_round_room(g));
        pgm_copy_row(n, g, r, &row, i, i + 1 == rows, 0);
        pgm_look(g, &row, (int32_t *)(room + g->capacity));
        const int64_t made = pgm_settle(g, &row, j, asks, updates, room, &last, 1);
        pgm_copy_row(n, g, r, &row, i, i + 1 == rows, 1);
        most = made > most ? made : most;
        *change = last > *change ? last : *change;
    }
    return most;
}

static void pgm_settle_part(void *job, int64_t first, int64_t last)
{
    pgm_belief_job *j = job;
    int64_t most = pgm_round_room(j->net);
    if (j->by_term) most += pgm_round_room(j->by_term) + pgm_row_room(j->by_term);
    char *bytes = (char *)malloc(sizeof(pgm_vd) * (size_t)(most + 2));
    /* vectors are loaded faster from addresses that are multiples of their size */
    pgm_vd *room = (pgm_vd *)(bytes + (PGM_REGISTER - (uintptr_t)bytes % PGM_REGISTER));
    int64_t updates = 0;
    if (!bytes) j->failed = 1;
    for (int64_t b = first; bytes && b < last; b++) {
        const int rows = (int)pgm_min_l(j->rows - b * PGM_LANES, PGM_LANES);
        pgm_rows r = pgm_block_of(j->net, j->batch, b);
        r.least = j->least;
        j->made[b] = pgm_settle_block(j, &r, rows, first == 0, &updates, room, j->change + b);
        if (__atomic_load_n(&j->stopped, __ATOMIC_RELAXED)) break;
    }
    free(bytes);
}

/* Fill a block of an array from the rows of its source. */
PGM_INLINE void pgm_fill_block(const pgm_belief_job *j, const pgm_source *s, int64_t b)
{
    pgm_vd *to = (pgm_vd *)s->to + b * s->items;
    const double *lane[PGM_LANES];
    if (!s->items) return;
    for (int i = 0; i < PGM_LANES; i++)
        lane[i] = s->from + s->items * pgm_min_l(b * PGM_LANES + i, s->rows - 1);
    for (int64_t k = 0; k < s->items; k++) {
        pgm_vd x;
        for (int i = 0; i < PGM_LANES; i++) x[i] = lane[i][k];
        to[k] = x;
    }
}

/* Fill all arrays from their sources, if there are any. Then set the probabilities of free units,
 * `factor` times those of the source, and what follows from them. */
static void pgm_start_part(void *job, int64_t first, int64_t last)
{
    const pgm_belief_job *j = job;
    const pgm_net *n = j->net;
    for (int64_t b = first; b < last; b++) {
        pgm_rows r = pgm_block_of(n, j->batch, b);
        const pgm_vd *barren = (const pgm_vd *)j->batch->barren + b * n->units;
        for (int s = 0; j->source && s < PGM_SOURCES; s++) pgm_fill_block(j, j->source + s, b);
        for (int64_t u = 0; u < n->units; u++) {
            const int states = n->kind[n->unit_kind[u]].states;
            const pgm_vl free = (r.open[u] > 0.0) | (barren[u] > 0.0);
            /* Rounds may raise a probability of 0 of a free unit, but not of an observed one. */
            const pgm_vd none = pgm_select_d(free, pgm_splat_d(PGM_LEAST), pgm_splat_d(-1e30));
            pgm_vd *q = r.q + n->unit_state[u], *log_q = r.log_q + n->unit_state[u];
            if (j->factor) {
                const double *factor = j->factor + n->unit_state[u];
                pgm_vd sum = pgm_splat_d(0.0);
                for (int x = 0; x < states; x++) sum += q[x] * factor[x];
                for (int x = 0; x < states; x++)
                    q[x] = pgm_select_d(free, q[x] * factor[x] / sum, q[x]);
            }
            for (int x = 0; x < states; x++) {
                q[x] = pgm_select_d(free, pgm_max_d(q[x], pgm_splat_d(j->floor)), q[x]);
                log_q[x] = pgm_select_d(q[x] > 0.0, pgm_log_d(q[x]), none);
            }
            pgm_set_means(n, &r, u, 0);
        }
    }
}

static void pgm_forward_part(void *job, int64_t first, int64_t last)
{
    pgm_belief_job *j = job;
    for (int64_t b = first; b < last; b++) {
        pgm_rows r = pgm_block_of(j->net, j->batch, b);
        pgm_forward(j->net, &r, j->order, j->count,
                    (const pgm_vd *)j->batch->barren + b * j->net->units, j->steps);
    }
}

static void pgm_forward_tables_part(void *job, int64_t first, int64_t last)
{
    pgm_belief_job *j = job;
    for (int64_t b = first; b < last; b++) {
        pgm_rows r = pgm_block_of(j->net, j->batch, b);
        pgm_forward_tables(j->net, &r, j->order, j->count,
                           (const pgm_vd *)j->batch->barren + b * j->net->units);
    }
}

/* The terms of the bound that depend on Q, apart from those of tables: entropies, products of
 * means, and the bounds of the children. */
PGM_INLINE pgm_vd pgm_value_of(const pgm_net *n, const pgm_rows *r)
{
    pgm_vd own = pgm_splat_d(0.0), linked = pgm_splat_d(0.0);
    for (int64_t u = 0; u < n->units; u++) {
        const pgm_kind *kind = n->kind + n->unit_kind[u];
        const pgm_vd *q = r->q + n->unit_state[u], *log_q = r->log_q + n->unit_state[u];
        pgm_vd entropy = pgm_splat_d(0.0);
        for (int x = 0; x < kind->states; x++) entropy += q[x] * (kind->log_base[x] - log_q[x]);
        own += pgm_select_d(r->open[u] > 0.0, entropy, pgm_splat_d(0.0));
    }
    for (int64_t c = 0; c < n->comps; c++) {
        own += r->gain[c] * r->mean[c];
        for (int64_t i = n->link_start[c]; i < n->link_start[c + 1]; i++)
            linked += n->link_share[i] * n->link_weight[i] * r->mean[c] * r->mean[n->link_from[i]];
    }
    for (int64_t t = 0; t < n->terms; t++) {
        if (!pgm_any_d(r->live[t])) continue;
        const pgm_vd *pull = r->pull + n->term_comp[t], *input = r->input + n->term_comp[t];
        for (int l = 0; l < n->kind[n->term_kind[t]].width; l++) own += pull[l] * input[l];
        own -= r->on[t] * r->f[t];
    }
    return own + *r->beta * linked;
}

static void pgm_value_part(void *job, int64_t first, int64_t last)
{
    pgm_belief_job *j = job;
    for (int64_t b = first; b < last; b++) {
        const pgm_rows r = pgm_block_of(j->net, j->batch, b);
        pgm_vd sum = j->only_tables ? pgm_splat_d(0.0) : pgm_value_of(j->net, &r);
        for (int64_t f = 0; f < j->net->tables; f++) sum += pgm_table_value(j->net, &r, f);
        for (int i = 0; i < PGM_LANES; i++) j->value[b * PGM_LANES + i] = sum[i];
    }
}

/* Parts are tables, not rows, so that no sum depends on the number of threads. */
static void pgm_count_tables_part(void *job, int64_t first, int64_t last)
{
    pgm_belief_job *j = job;
    for (int64_t b = 0; b < j->blocks; b++) {
        const pgm_rows r = pgm_block_of(j->net, j->batch, b);
        const pgm_vd weights = ((const pgm_vd *)j->batch->row_weight)[b];
        for (int64_t f = first; f < last; f++)
            pgm_table_counts(j->net, &r, f, weights, j->counts);
    }
}

/* Parts are terms, not rows, so that no sum depends on the number of threads. */
static void pgm_learn_part(void *job, int64_t first, int64_t last)
{
    pgm_belief_job *j = job;
    for (int64_t b = 0; b < j->blocks; b++) {
        pgm_rows r = pgm_block_of(j->net, j->batch, b);
        for (int64_t t = first; t < last; t++)
            pgm_learn(j->net, &r, t, (const pgm_vd *)j->batch->row_weight + b, j->weight);
    }
}

#endif
