/* New states of a layer whose units depend on each other, one unit after the other.
 *
 * Units depend on each other through couplings inside the layer and through common children. The
 * inputs from inside the layer are updated at each change (link.at_once). Common children add to
 * the log weight of a state the sum over children of log p(x_child | zeta + step) - log p(x_child |
 * zeta), where step is the change of the input of the child. With a sparse weight, only the
 * children that the weight connects to the unit are visited.
 *
 * Reference: `_unit_by_unit` in pgmengine/engine/reference.py (test_compiled_sweeps.py).
 */
#ifndef PGM_BY_UNIT_H
#define PGM_BY_UNIT_H

#include "draws.h"
#include "inputs.h"

static const double pgm_no_step[PGM_MOST_STATES];

/* A(z + step) of a child unit with `width` inputs z: its log normaliser */
static double pgm_normaliser(const pgm_layer *l, const float *z, const double *step)
{
    double sum = 0.0, top = -INFINITY, x;
    if (l->kind == PGM_NORMAL) {
        x = (double)z[0] + step[0];
        return 0.5 * l->variance * x * x;
    }
    if (l->kind == PGM_INTERVAL) {
        x = fabs((double)z[0] + step[0]);
        return x < 1e-4 ? log(2.0) + x * x / 6 : x + log1p(-exp(-2 * x)) - log(x);
    }
    for (int k = 0; k < l->states; k++) {
        x = l->log_base[k]
            + (l->width > 1 ? (double)z[k] + step[k] : l->support[k] * ((double)z[0] + step[0]));
        top = x > top ? x : top;
    }
    for (int k = 0; k < l->states; k++) {
        x = l->log_base[k]
            + (l->width > 1 ? (double)z[k] + step[k] : l->support[k] * ((double)z[0] + step[0]));
        sum += exp(x - top);
    }
    return top + log(sum);
}

/* A of child unit j, which does not depend on its state */
static double pgm_partition(const pgm_layer *l, int64_t chain, int64_t j)
{
    const float *z = l->zeta + chain * l->stride + j * l->width;
    if (l->complement) return pgm_complement_input(l, chain, j, 0.0);
    return pgm_normaliser(l, z, pgm_no_step);
}

/* log p(x | zeta + step) of child unit j */
static double pgm_log_prob(const pgm_layer *l, int64_t chain, int64_t j, const double *step)
{
    const float *z = l->zeta + chain * l->stride + j * l->width;
    if (l->complement) {
        double x = pgm_complement_input(l, chain, j, step[0]);
        return l->state[chain * l->units + j] ? log(-expm1(-x)) : -x;
    }
    int own = l->width > 1 ? l->state[chain * l->units + j] : 0;
    double x = l->width > 1 ? 1.0 : pgm_value(l, chain, j);
    return x * ((double)z[own] + step[own]) - pgm_normaliser(l, z, step);
}

/* the change of the log probability of a child layer of binary units, with a dense weight, if the
 * listed rows change its inputs */
PGM_INLINE double pgm_gain_dense_binary(const pgm_link *k, const pgm_layer *child, int64_t chain,
                                        const pgm_change *row, int rows)
{
    const float *z = child->zeta + chain * child->stride;
    const uint8_t *state = child->state + chain * child->units;
    const uint8_t *alive = child->alive ? child->alive + chain * child->units : NULL;
    pgm_vf sum[PGM_PIECES] = {0};
    float gap = child->support[1] - child->support[0],
          tilt = child->log_base[1] - child->log_base[0];
    for (int64_t j = 0; j < child->stride; j += PGM_WIDE) {
        pgm_vf step = pgm_splat_f(0.0f), zeta = *(const pgm_vf *)(z + j);
        for (int r = 0; r < rows; r++)
            step += *(const pgm_vf *)pgm_part(k, row[r].row, j) * row[r].delta;
        pgm_vf on = __builtin_convertvector(pgm_load_bytes(state + j), pgm_vf);
        pgm_vf gain =
            on * gap * step
            - (pgm_softplus_f((zeta + step) * gap + tilt) - pgm_softplus_f(zeta * gap + tilt));
        if (alive) gain = pgm_select_f(-(pgm_load_bytes(alive + j) & 1), gain, pgm_splat_f(0.0f));
        sum[j / PGM_WIDE % PGM_PIECES] += gain;
    }
    double total = 0.0;
    for (int i = 0; i < PGM_GROUP; i++) total += sum[i / PGM_WIDE][i % PGM_WIDE];
    return total;
}

/* the same for the listed units (or all), from the changes of their inputs */
static double pgm_gain_reached(const pgm_layer *child, int64_t chain, const double *step,
                               const int32_t *unit, int64_t count)
{
    double before = 0.0, after = 0.0;
    for (int64_t i = 0; i < count; i++) {
        int64_t j = unit ? unit[i] : i;
        if (child->alive && !child->alive[chain * child->units + j]) continue;
        before += pgm_log_prob(child, chain, j, pgm_no_step);
        after += pgm_log_prob(child, chain, j, step + j * child->width);
    }
    double gain = after - before;
    /* NaN: the state is impossible before and after */
    return gain != gain ? 0.0 : gain;
}

/* the same for any child layer */
static double pgm_gain(const pgm_link *k, const pgm_layer *child, int64_t chain,
                       const pgm_change *row, int rows, pgm_scratch *s)
{
    int64_t count = 0, n = child->size * child->width;
    if (k->rows && child->kind == PGM_FINITE && child->states == 2 && child->width == 1
        && !child->complement)
        return pgm_gain_dense_binary(k, child, chain, row, rows);
    if (k->rows) {
        for (int64_t j = 0; j < n; j++) s->step[j] = 0.0;
        for (int r = 0; r < rows; r++)
            for (int64_t j = 0; j < n; j++)
                s->step[j] += (double)row[r].delta * pgm_part(k, row[r].row, j)[0];
        double gain = pgm_gain_reached(child, chain, s->step, NULL, child->size);
        for (int64_t j = 0; j < n; j++) s->step[j] = 0.0;
        return gain;
    }
    for (int r = 0; r < rows; r++)
        for (int64_t e = k->start[row[r].row]; e < k->start[row[r].row + 1]; e++) {
            int32_t j = k->column[e] / child->width;
            s->step[k->column[e]] += (double)row[r].delta * k->weight[e];
            if (!s->touched[j]) s->reached[count++] = j;
            s->touched[j] = 1;
        }
    double gain = pgm_gain_reached(child, chain, s->step, s->reached, count);
    for (int64_t i = 0; i < count; i++) {
        s->touched[s->reached[i]] = 0;
        for (int w = 0; w < child->width; w++) s->step[s->reached[i] * child->width + w] = 0.0;
    }
    return gain;
}

/* Add the changes of one chain through a link, at once. */
PGM_INLINE void pgm_add_now(const pgm_chains *m, const pgm_link *k, int64_t chain,
                            const pgm_change *row, int rows)
{
    float *y = pgm_inputs(m, k, chain);
    if (!y) return;
    if (pgm_adds_exactly(m, k))
        pgm_add_exactly(m->layer + k->to, k, chain, row, rows);
    else if (!k->rows)
        pgm_add_sparse(k, row, rows, y);
    else
        for (int r = 0; r < rows; r++)
            for (int64_t j = 0; j < m->layer[k->to].stride; j += PGM_WIDE)
                *(pgm_vf *)(y + j) += *(const pgm_vf *)pgm_part(k, row[r].row, j) * row[r].delta;
}

/* the log weights of one unit's states, up to a constant */
PGM_INLINE void pgm_unit_weights(const pgm_chains *m, int index, int64_t chain, int64_t j,
                                 pgm_scratch *s, float *lw)
{
    const pgm_layer *l = m->layer + index;
    float beta = m->beta[chain];
    int now = l->state[chain * l->units + j];
    for (int k = 0; k < l->states; k++) {
        int64_t c = chain * l->stride + j * l->width + (l->width > 1 ? k : 0);
        float eta = l->field ? l->field[c] : 0.0f;
        if (l->complement && l->zeta)
            eta += pgm_link_of((float)pgm_complement_input(l, chain, j, 0.0));
        else if (l->zeta)
            eta += l->zeta[c];
        eta *= beta;
        if (l->reference)
            eta += (1.0f - beta) * l->reference[j * l->width + (l->width > 1 ? k : 0)];
        double gain = 0.0;
        for (int i = 0; i < m->links && k != now; i++) {
            const pgm_link *a = m->link + i;
            if (!a->arrow || a->from != index) continue;
            int32_t row = (int32_t)(j * l->width);
            pgm_change change[2] = {{row, l->width > 1 ? 0.0f : l->support[k] - l->support[now]},
                                    {0, 0.0f}};
            if (l->width > 1) {
                change[0] = (pgm_change){row + now, -1.0f};
                change[1] = (pgm_change){row + k, 1.0f};
            }
            gain += pgm_gain(a, m->layer + a->to, chain, change, l->width > 1 ? 2 : 1, s);
        }
        gain = beta == 0.0f || gain != gain ? 0.0 : beta * gain;
        gain = gain > 1e30 ? 1e30 : gain < -1e30 ? -1e30 : gain;
        lw[k] = (l->width > 1 ? eta : eta * l->support[k]) + l->log_base[k] + (float)gain;
    }
}

static int64_t pgm_pass_by_unit(const pgm_chains *m, int index, int64_t chain, const pgm_stream *at,
                                int backward, pgm_scratch *s, pgm_change *list)
{
    float alpha = pgm_alpha(m, chain);
    const pgm_layer *l = m->layer + index;
    const uint8_t *free = l->free + chain * l->free_stride;
    int64_t n = 0;
    pgm_vf u[PGM_VECTORS], v[PGM_VECTORS], lw[PGM_MOST_STATES];
    float weight[PGM_MOST_STATES];
    for (int64_t i = 0; i < l->size; i++) {
        int64_t j = backward ? l->size - 1 - i : i;
        if (i == 0 || j % PGM_BLOCK == (backward ? PGM_BLOCK - 1 : 0)) {
            pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK), u);
            if (l->kind != PGM_FINITE) pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK) | PGM_SECOND, v);
        }
        if (!free[j]) continue;
        int64_t before = n;
        float a = u[j / PGM_WIDE % PGM_VECTORS][j % PGM_WIDE];
        if (l->kind == PGM_FINITE) {
            uint8_t *state = l->state + chain * l->units + j;
            pgm_unit_weights(m, index, chain, j, s, weight);
            int next = *state;
            if (l->states == 2) {
                if (pgm_moves(pgm_splat_f(weight[1] - weight[0]), (pgm_vi){0} - *state,
                              pgm_splat_f(a), alpha)[0])
                    next = 1 - next;
            } else {
                for (int k = 0; k < l->states; k++) lw[k] = pgm_splat_f(weight[k]);
                next = pgm_draw(lw, l->states, (pgm_vi){0} + *state, pgm_splat_f(a), alpha)[0];
            }
            if (next != *state) n = pgm_record(l, j, state, next, list, n);
        } else {
            float b = v[j / PGM_WIDE % PGM_VECTORS][j % PGM_WIDE],
                  eta = pgm_natural(l, chain, j, m->beta[chain])[0];
            float *value = l->value + chain * l->units + j;
            float x = l->kind == PGM_NORMAL
                          ? l->variance * eta + sqrtf(l->variance) * pgm_normal(a, b)
                          : pgm_interval(eta, a);
            list[n++] = (pgm_change){(int32_t)j, x - *value};
            *value = x;
        }
        for (int k = 0; k < m->links && n > before; k++)
            if (m->link[k].from == index && m->link[k].at_once)
                pgm_add_now(m, m->link + k, chain, list + before, (int)(n - before));
    }
    return n;
}

#endif
