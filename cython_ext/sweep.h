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

#include <stdlib.h>

#include "vector.h"

enum { PGM_TABLE, PGM_NORMAL, PGM_INTERVAL }; /* finite; Gaussian; uniform base measure on [-1, 1] */

#define PGM_MOST_STATES 256
#define PGM_TIE 1e-5f /* log-odds below this count as a tie: the conditional is drawn, whatever the kernel */

typedef struct {
    int32_t row;
    float delta;
} pgm_change;

/* one direction of a coupling: what changes in layer `from` do to the inputs of layer `to` */
typedef struct {
    int from, to;
    int arrow;             /* adds to the directed input zeta of a child, not to the field */
    int at_once;           /* applied at each change and not at the end of a pass */
    int64_t rows;          /* of a dense weight, 0 when sparse */
    int64_t tile;          /* columns of a panel: 16, 32 or 64 */
    const float *weight;   /* dense: panels (tiles, rows, tile); or the entries of a csr matrix */
    const int64_t *start;  /* csr row starts, */
    const int32_t *column; /* and columns, ascending */
} pgm_link;

typedef struct {
    int kind, states, width; /* width: components a unit (k of a one-hot unit) */
    int moves, by_unit, summed, directed, complement, uneven; 
    /* complement: p(0 | zeta) = e^-zeta; uneven: log h varies; summed: 1, 2 or 3 when
     * summed out of the weights of annealing forward, backward or both */
    int64_t size, stride; /* units; floats a chain has in field, zeta, base (components, padded) */
    int64_t units;        /* bytes or floats a chain has in state, value, free, alive (units, padded) */
    float variance;       /* of a Gaussian */
    const float *support, *log_base; /* (states) */
    const float *bias, *reference;   /* (stride); bias of zeta when directed, else of the field; reference may be NULL */
    const float *soft;               /* (chains, stride) added to the field, or NULL */
    float *base;                     /* (chains, stride) the field less what moving layers add to it, or NULL: bias */
    float *field, *zeta;             /* (chains, stride), or NULL when nothing reads it */
    uint8_t *state;                  /* (chains, units) number of the value in the support; finite units */
    float *value;                    /* (chains, units) other units */
    const uint8_t *free;             /* (chains or 1, units) mask of the units that move */
    int64_t free_stride;             /* units or 0 */
    const uint8_t *alive;            /* (chains, units) mask of the conditionals that count, or NULL: all */
} pgm_layer;

typedef struct {
    int layers, links, visits;
    pgm_layer *layer;
    pgm_link *link;
    const int32_t *visit; /* layers in the order of a sweep */
    float *beta;          /* (chains) */
    uint32_t key[4];
    const uint32_t *stream; /* (chains) */
    float alpha;            /* share of the flip-the-state operator; at beta = 0 the exact draw is at hand, and made */
} pgm_machine;

/* scratch of one thread */
typedef struct {
    pgm_change *list;  /* (PGM_CHAINS, capacity) */
    int64_t *count;    /* (PGM_CHAINS) */
    int64_t capacity;
    float *step;       /* change of a child's inputs, kept at 0 */
    uint8_t *touched;  /* mask of child units, kept at 0 */
    int32_t *reached;  /* list of child units */
} pgm_scratch;

#define PGM_CHAINS 64 /* chains of a block */

PGM_INLINE double pgm_value(const pgm_layer *l, int64_t chain, int64_t unit)
{
    return l->kind == PGM_TABLE ? l->support[l->state[chain * l->units + unit]] : l->value[chain * l->units + unit];
}

/* ---- changes of inputs ---- */

PGM_INLINE float *pgm_inputs(const pgm_machine *m, const pgm_link *k, int64_t chain)
{
    const pgm_layer *to = m->layer + k->to;
    float *rows = k->arrow ? to->zeta : to->field;
    return rows ? rows + chain * to->stride : NULL;
}

#define PGM_FAR (1 << 21) /* floats of a weight that does not stay in the caches of a core */
#define PGM_SHARED 3      /* uses of each row of a panel that are worth fetching all of them in order */
#define PGM_MANY 8        /* where one row in so many changes, parts of panels are worth their loop */

/* a row's part in the panel that `column` (a multiple of 16) is in */
PGM_INLINE const float *pgm_part(const pgm_link *k, int64_t row, int64_t column)
{
    return k->weight + (column / k->tile * k->rows + row) * k->tile + column % k->tile;
}

/* y[column .. column + 16 vectors) += sum of delta * weight row over changes; four sums whatever the width, because one
 * that waits for its own last addition would be four times as slow */
PGM_INLINE void pgm_add_tile(const pgm_link *k, int64_t tile, const pgm_change *list, int64_t count, int64_t column,
                             int vectors, float *y)
{
    const float *weight = pgm_part(k, 0, column);
    const int together = 4 / vectors;
    pgm_vf sum[4];
    int64_t f = 0;
    for (int i = 0; i < 4; i++) sum[i] = pgm_same(0.0f);
    for (; f + together <= count; f += together)
        for (int i = 0; i < 4; i++) {
            const pgm_change *change = list + f + i / vectors;
            sum[i] += *(const pgm_vf *)(weight + change->row * tile + i % vectors * PGM_WIDE) * change->delta;
        }
    for (; f < count; f++)
        for (int v = 0; v < vectors; v++)
            sum[v] += *(const pgm_vf *)(weight + list[f].row * tile + v * PGM_WIDE) * list[f].delta;
    for (int i = vectors; i < 4; i++) sum[i % vectors] += sum[i];
    for (int v = 0; v < vectors; v++) *(pgm_vf *)(y + column + v * PGM_WIDE) += sum[v];
}

/* `vectors` vectors of sum += delta * row over a list, from entry `f` on while rows are before `end`; rows lie `stride`
 * apart; returns the next entry */
PGM_INLINE int64_t pgm_add_rows(const pgm_change *list, int64_t f, int64_t count, const float *rows, int64_t stride,
                                int64_t end, int vectors, int fresh, float *kept)
{
    pgm_vf sum[4];
    for (int v = 0; v < vectors; v++) sum[v] = fresh ? pgm_same(0.0f) : *(const pgm_vf *)(kept + v * PGM_WIDE);
    for (; f < count && list[f].row < end; f++) {
        const float *row = rows + list[f].row * stride, delta = list[f].delta;
        for (int v = 0; v < vectors; v++) sum[v] += *(const pgm_vf *)(row + v * PGM_WIDE) * delta;
    }
    for (int v = 0; v < vectors; v++) *(pgm_vf *)(kept + v * PGM_WIDE) = sum[v];
    return f;
}

#define PGM_PART 128 /* rows of 64 columns that stay in the nearest cache (32 KiB) while all chains use them */

/* a panel of 64 columns, part by part; the bits are those of pgm_add_tile, so that it may depend on all chains */
PGM_CLONES
void pgm_add_panel(const pgm_machine *m, const pgm_link *k, const pgm_scratch *s, int64_t first, int64_t last,
                   int64_t column)
{
    const int64_t parts = (k->rows + PGM_PART - 1) / PGM_PART, part = (k->rows + parts - 1) / parts;
    const float *panel = pgm_part(k, 0, column);
    float kept[PGM_CHAINS][64];
    int64_t done[PGM_CHAINS] = {0};
    memset(kept, 0, sizeof kept[0] * (last - first));
    for (int64_t row = 0; row < k->rows; row += part) {
        int64_t end = row + part < k->rows ? row + part : k->rows; /* the last one takes what was not in order */
        for (int64_t i = row * 64; i < end * 64; i += PGM_WIDE) __builtin_prefetch(panel + i);
        for (int64_t c = 0; c < last - first; c++)
            done[c] = pgm_add_rows(s->list + c * s->capacity, done[c], s->count[c], panel, 64, end, 4, 0, kept[c]);
    }
    for (int64_t c = first; c < last; c++)
        for (int64_t j = 0; j < 64; j += PGM_WIDE)
            *(pgm_vf *)(pgm_inputs(m, k, c) + column + j) += *(const pgm_vf *)(kept[c - first] + j);
}

PGM_INLINE void pgm_add_sparse(const pgm_link *k, const pgm_change *list, int64_t count, float *y)
{
    for (int64_t f = 0; f < count; f++)
        for (int64_t e = k->start[list[f].row]; e < k->start[list[f].row + 1]; e++)
            y[k->column[e]] += list[f].delta * k->weight[e];
}

/* the changes of chains first .. last - 1, each in its own list */
PGM_CLONES
void pgm_add(const pgm_machine *m, const pgm_link *k, const pgm_scratch *s, int64_t first, int64_t last)
{
    if (!pgm_inputs(m, k, first)) return;
    if (!k->rows) {
        for (int64_t c = first; c < last; c++)
            pgm_add_sparse(k, s->list + (c - first) * s->capacity, s->count[c - first], pgm_inputs(m, k, c));
        return;
    }
    int64_t columns = m->layer[k->to].stride, tile = k->tile, column = 0, changes = 0;
    for (int64_t c = first; c < last; c++) changes += s->count[c - first];
    int stream = columns * k->rows > PGM_FAR && changes > PGM_SHARED * k->rows; /* fetch rows in order */
    int many = tile == 64 && changes * PGM_MANY > k->rows * (last - first) && changes > PGM_SHARED * k->rows;
    for (; many && column + tile <= columns; column += tile) pgm_add_panel(m, k, s, first, last, column);
    for (; column + tile <= columns; column += tile) {
        const float *panel = pgm_part(k, 0, column);
        for (int64_t i = 0; stream && i < k->rows * tile; i += PGM_WIDE) __builtin_prefetch(panel + i);
        for (int64_t c = first; c < last; c++) {
            const pgm_change *list = s->list + (c - first) * s->capacity;
            int64_t count = s->count[c - first];
            float *y = pgm_inputs(m, k, c);
            if (tile == 64)
                pgm_add_tile(k, 64, list, count, column, 4, y);
            else if (tile == 32)
                pgm_add_tile(k, 32, list, count, column, 2, y);
            else
                pgm_add_tile(k, 16, list, count, column, 1, y);
        }
    }
    for (; column < columns; column += PGM_WIDE)
        for (int64_t c = first; c < last; c++)
            pgm_add_tile(k, tile, s->list + (c - first) * s->capacity, s->count[c - first], column, 1,
                         pgm_inputs(m, k, c));
}

/* bit i: the lowest bit of byte i */
PGM_INLINE uint64_t pgm_flags(const uint64_t bytes[8])
{
    uint64_t bits = 0;
    for (int w = 0; w < 8; w++) bits |= (bytes[w] * 0x0102040810204080u >> 56) << 8 * w;
    return bits;
}

/* the states of a chain as changes from 0; no branch on a state: nobody can predict it */
PGM_INLINE int64_t pgm_list_all(const pgm_layer *l, int64_t chain, pgm_change *list)
{
    const uint8_t *state = l->state + chain * l->units;
    int64_t n = 0;
    if (l->width > 1)
        for (; n < l->size; n++) list[n] = (pgm_change){(int32_t)(n * l->width + state[n]), 1.0f};
    else if (l->kind == PGM_TABLE && l->states == 2 && l->support[0] == 0.0f)
        for (int64_t first = 0; first < l->units; first += PGM_BLOCK) {
            uint64_t bytes[8] = {0};
            for (int64_t j = first; j < l->units && j < first + PGM_BLOCK; j += PGM_WIDE)
                memcpy((uint8_t *)bytes + j - first, state + j, PGM_WIDE);
            for (uint64_t left = pgm_flags(bytes); left; left &= left - 1)
                list[n++] = (pgm_change){(int32_t)first + __builtin_ctzll(left), l->support[1]};
        }
    else
        for (int64_t j = 0; j < l->size; j++) {
            float x = l->kind == PGM_TABLE ? l->support[state[j]] : l->value[chain * l->units + j];
            list[n] = (pgm_change){(int32_t)j, x};
            n += x != 0.0f;
        }
    return n;
}

/* y = a + b, either may be NULL; n is a multiple of PGM_WIDE */
PGM_INLINE void pgm_set_sum(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t j = 0; j < n; j += PGM_WIDE) {
        pgm_vf sum = pgm_same(0.0f);
        if (a) sum += *(const pgm_vf *)(a + j);
        if (b) sum += *(const pgm_vf *)(b + j);
        *(pgm_vf *)(y + j) = sum;
    }
}

/* the inputs of a layer from the states of chains first .. last - 1: what layers that never move add, then the rest */
PGM_INLINE void pgm_refresh_layer(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last, int index)
{
    pgm_layer *l = m->layer + index;
    for (int64_t c = first; c < last; c++) {
        const float *soft = l->soft ? l->soft + c * l->stride : NULL;
        if (l->field) pgm_set_sum(l->field + c * l->stride, soft, l->directed ? NULL : l->bias, l->stride);
        if (l->zeta) pgm_set_sum(l->zeta + c * l->stride, NULL, l->complement ? NULL : l->bias, l->stride);
    }
    for (int moving = 0; moving < 2; moving++) {
        for (int i = 0; i < m->links; i++) {
            const pgm_link *k = m->link + i;
            if (k->to != index || m->layer[k->from].moves != moving) continue;
            for (int64_t c = first; c < last; c++)
                s->count[c - first] = pgm_list_all(m->layer + k->from, c, s->list + (c - first) * s->capacity);
            pgm_add(m, k, s, first, last);
        }
        if (l->base && !moving)
            memcpy(l->base + first * l->stride, l->field + first * l->stride, sizeof(float) * l->stride * (last - first));
    }
}

/* all inputs, or only those of layers with complement links, which feel rounding near 0 */
PGM_INLINE void pgm_refresh(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last, int complement)
{
    for (int i = 0; i < m->layers; i++)
        if (!complement || m->layer[i].complement) pgm_refresh_layer(m, s, first, last, i);
}

/* ---- draws ---- */

/* Two values, log-odds eta of the upper one. With t = e^-|eta| the less probable value has probability t / (1 + t); a
 * kernel alpha T + (1 - alpha) G leaves the more probable value with probability alpha t + (1 - alpha) t / (1 + t) and
 * the other one with alpha + (1 - alpha) / (1 + t) (system 2, eq. 2). Returns which units move. */
PGM_INLINE pgm_vi pgm_moves(pgm_vf eta, pgm_vi upper, pgm_vf u, float alpha)
{
    pgm_vf size = pgm_magnitude(eta), t = pgm_exp(-pgm_at_most(size, 87.0f)), one = pgm_same(1.0f);
    pgm_vi at_mode = (eta > 0.0f) ^ ~upper; /* both or neither */
    pgm_vf rate = pgm_choose_where(at_mode, t, one);
    if (alpha > 0.0f) {
        pgm_vf share = pgm_choose_where(size < PGM_TIE, pgm_same(0.0f), pgm_same(alpha));
        rate *= share * (1.0f + t) + (1.0f - share);
    }
    return u * (1.0f + t) < rate;
}

/* New states of units with K values from log weights lw[k]: w_k min(1/r_x, 1/r_k) with r_k = sum_{j != k} w_j is the
 * Metropolised Gibbs move from x to k (Liu 1996; the two-valued rule for K = 2), w_k / sum w the Gibbs move. One uniform:
 * moves in the order of the values, then no move. */
PGM_INLINE pgm_vi pgm_draw(pgm_vf *lw, int states, pgm_vi current, pgm_vf u, float alpha)
{
    pgm_vf top = lw[0], low = lw[0], sum = pgm_same(0.0f), others = sum;
    pgm_vi best = {0}, chosen = current;
    for (int k = 1; k < states; k++) {
        pgm_vi more = lw[k] > top;
        best = (best & ~more) | (more & k);
        top = pgm_choose_where(more, lw[k], top);
        low = pgm_choose_where(lw[k] < low, lw[k], low);
    }
    pgm_vf share = pgm_choose_where(top - low < PGM_TIE, pgm_same(0.0f), pgm_same(alpha)), own = others;
    for (int k = 0; k < states; k++) {
        lw[k] = pgm_exp(pgm_at_least(lw[k] - top, -87.0f));
        sum += lw[k];
        others += pgm_choose_where(best == k, pgm_same(0.0f), lw[k]);
        own = pgm_choose_where(current == k, lw[k], own);
    }
    pgm_vf leaving = pgm_choose_where(current == best, others, sum - own), reached = pgm_same(0.0f);
    pgm_vi open = ~(pgm_vi){0};
    for (int k = 0; k < states; k++) {
        pgm_vf back = pgm_choose_where(best == k, others, sum - lw[k]);
        pgm_vf rate = lw[k] * (share / pgm_choose_where(leaving > back, leaving, back) + (1.0f - share) / sum);
        reached += pgm_choose_where(current == k, pgm_same(0.0f), rate);
        pgm_vi hit = open & (u < reached) & (current != k);
        chosen = (chosen & ~hit) | (hit & k);
        open &= ~hit;
    }
    return chosen;
}

#define PGM_NOTHING 1e-5f /* less than this from the parents of a unit that is off with probability e^-z is rounding */

/* the input of such a unit: its bias and what its parents add, kept apart because the first may be tiny */
PGM_INLINE float pgm_clean(float z, float bias)
{
    return bias + (z < PGM_NOTHING ? 0.0f : z);
}

/* log(e^z - 1), its natural parameter */
static float pgm_link_of(float z)
{
    return z <= 0.0f ? -1e30f : z + logf(-expm1f(-z));
}

/* natural parameters of 16 components from `j` on: beta (field + directed input) + (1 - beta) reference */
PGM_INLINE pgm_vf pgm_natural(const pgm_layer *l, int64_t chain, int64_t j, float beta)
{
    pgm_vf eta = pgm_same(0.0f);
    if (l->field) eta = *(const pgm_vf *)(l->field + chain * l->stride + j);
    if (l->zeta) {
        pgm_vf zeta = *(const pgm_vf *)(l->zeta + chain * l->stride + j);
        if (l->complement)
            for (int i = 0; i < PGM_WIDE; i++) zeta[i] = pgm_link_of(pgm_clean(zeta[i], l->bias[j + i]));
        eta += zeta;
    }
    eta *= beta;
    if (l->reference) eta += *(const pgm_vf *)(l->reference + j) * (1.0f - beta);
    return eta;
}

PGM_INLINE pgm_vi pgm_load_bytes(const uint8_t *p)
{
    return pgm_widened(*(const pgm_bytes *)p) & 255;
}

PGM_INLINE float pgm_alpha(const pgm_machine *m, int64_t chain)
{
    return m->beta[chain] == 0.0f ? 0.0f : m->alpha;
}

/* A pass over a layer of two-valued units: lists the changes and returns their number. `plain`: the natural parameter is
 * beta times the field; alpha is a constant where this is inlined for Gibbs. */
PGM_INLINE int64_t pgm_two(const pgm_machine *m, const pgm_layer *l, int64_t chain, const pgm_stream *at, int plain,
                           float alpha, pgm_change *list)
{
    const float beta = m->beta[chain], gap = l->support[1] - l->support[0], bias = l->log_base[1] - l->log_base[0];
    const float scale = gap * beta, step[2] = {-gap, gap}, *field = l->field + chain * l->stride;
    const uint8_t *free = l->free + chain * l->free_stride;
    const int64_t units = l->units;
    uint8_t *state = l->state + chain * units;
    pgm_change *end = list;
    for (int64_t first = 0; first < units; first += PGM_BLOCK) {
        pgm_vf u[4];
        uint64_t moved[PGM_BLOCK / 8] = {0};
        pgm_uniforms(at, (uint32_t)(first / PGM_BLOCK), u);
        for (int i = 0; i < 4; i++) {
            int64_t j = first + i * PGM_WIDE;
            if (j >= units) break;
            pgm_vf eta = plain ? *(const pgm_vf *)(field + j) * scale : pgm_natural(l, chain, j, beta) * gap;
            pgm_bytes now = *(const pgm_bytes *)(state + j);
            pgm_vi move = pgm_moves(eta + bias, pgm_widened(-now), u[i], alpha);
            pgm_bytes hit = pgm_narrowed(move) & *(const pgm_bytes *)(free + j);
            *(pgm_bytes *)(state + j) = now ^ hit;
            memcpy(moved + 2 * i, &hit, sizeof hit);
        }
        for (uint64_t left = pgm_flags(moved); left; left &= left - 1) {
            int32_t j = (int32_t)first + __builtin_ctzll(left);
            *end++ = (pgm_change){j, step[state[j]]}; /* no branch: nobody can predict it */
        }
    }
    return end - list;
}

PGM_CLONES
int64_t pgm_pass_two(const pgm_machine *m, const pgm_layer *l, int64_t chain, const pgm_stream *at, pgm_change *list)
{
    float alpha = pgm_alpha(m, chain);
    if (l->zeta || l->reference || !l->field) return pgm_two(m, l, chain, at, 0, alpha, list);
    return alpha == 0.0f ? pgm_two(m, l, chain, at, 1, 0.0f, list) : pgm_two(m, l, chain, at, 1, alpha, list);
}

/* record the move of unit j to state `next` */
PGM_INLINE int64_t pgm_record(const pgm_layer *l, int64_t j, uint8_t *state, int next, pgm_change *list, int64_t n)
{
    int32_t row = (int32_t)(j * l->width);
    if (l->width > 1) {
        list[n++] = (pgm_change){row + *state, -1.0f};
        list[n++] = (pgm_change){row + next, 1.0f};
    } else
        list[n++] = (pgm_change){row, l->support[next] - l->support[*state]};
    *state = (uint8_t)next;
    return n;
}

/* the same for units with K values */
PGM_INLINE int64_t pgm_pass_table(const pgm_machine *m, const pgm_layer *l, int64_t chain, const pgm_stream *at,
                                  float alpha, pgm_change *list)
{
    float beta = m->beta[chain];
    uint8_t *state = l->state + chain * l->units;
    const uint8_t *free = l->free + chain * l->free_stride;
    pgm_vf lw[PGM_MOST_STATES], u[4], eta = pgm_same(0.0f);
    int64_t n = 0;
    for (int64_t j = 0; j < l->size; j += PGM_WIDE) {
        if (j % PGM_BLOCK == 0) pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK), u);
        if (l->width == 1) {
            eta = pgm_natural(l, chain, j, beta);
            for (int k = 0; k < l->states; k++) lw[k] = eta * l->support[k] + l->log_base[k];
        } else
            for (int64_t c = 0; c < PGM_WIDE * l->width; c++) {
                if (c % PGM_WIDE == 0) eta = pgm_natural(l, chain, j * l->width + c, beta);
                lw[c % l->width][c / l->width] = eta[c % PGM_WIDE] + l->log_base[c % l->width];
            }
        pgm_vi now = pgm_load_bytes(state + j), next = pgm_draw(lw, l->states, now, u[j / PGM_WIDE % 4], alpha);
        for (int i = 0; i < PGM_WIDE && j + i < l->size; i++)
            if (next[i] != now[i] && free[j + i])
                n = pgm_record(l, j + i, state + j + i, next[i], list, n);
    }
    return n;
}

/* the same for units with infinitely many values: draws from the conditional, two uniforms a unit */
static float pgm_normal(float u, float v)
{
    return sqrtf(-2.0f * logf(u)) * cosf(6.28318531f * v);
}

static float pgm_interval(float eta, float u)
{
    float size = fabsf(eta);
    if (size < 1e-4f) return 2.0f * u - 1.0f + eta * 2.0f * u * (1.0f - u);
    float x = 1.0f + log1pf((1.0f - u) * expm1f(-2.0f * size)) / size;
    x = x < -1.0f ? -1.0f : x;
    return eta < 0.0f ? -x : x;
}

static int64_t pgm_pass_infinite(const pgm_machine *m, const pgm_layer *l, int64_t chain, const pgm_stream *at,
                                 pgm_change *list)
{
    float beta = m->beta[chain], *value = l->value + chain * l->units;
    const uint8_t *free = l->free + chain * l->free_stride;
    pgm_vf u[4], v[4];
    int64_t n = 0;
    for (int64_t j = 0; j < l->size; j += PGM_WIDE) {
        if (j % PGM_BLOCK == 0) {
            pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK), u);
            pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK) | 0x8000000u, v);
        }
        pgm_vf eta = pgm_natural(l, chain, j, beta);
        for (int i = 0; i < PGM_WIDE && j + i < l->size; i++) {
            if (!free[j + i]) continue;
            float a = u[j / PGM_WIDE % 4][i], b = v[j / PGM_WIDE % 4][i];
            float x = l->kind == PGM_NORMAL ? l->variance * eta[i] + sqrtf(l->variance) * pgm_normal(a, b)
                                            : pgm_interval(eta[i], a);
            list[n++] = (pgm_change){(int32_t)(j + i), x - value[j + i]};
            value[j + i] = x;
        }
    }
    return n;
}

/* ---- unit by unit ---- */

/* log p(x | zeta) - x zeta of child unit j with inputs z (width of them): minus its normaliser */
static double pgm_normaliser(const pgm_layer *l, const float *z, const float *step)
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
        x = l->log_base[k] + (l->width > 1 ? (double)z[k] + step[k] : l->support[k] * ((double)z[0] + step[0]));
        top = x > top ? x : top;
    }
    for (int k = 0; k < l->states; k++) {
        x = l->log_base[k] + (l->width > 1 ? (double)z[k] + step[k] : l->support[k] * ((double)z[0] + step[0]));
        sum += exp(x - top);
    }
    return top + log(sum);
}

static double pgm_log_prob(const pgm_layer *l, int64_t chain, int64_t j, const float *step)
{
    const float *z = l->zeta + chain * l->stride + j * l->width;
    if (l->complement) {
        double x = pgm_clean(z[0] + step[0], l->bias[j]);
        return l->state[chain * l->units + j] ? log(-expm1(-x)) : -x;
    }
    int own = l->width > 1 ? l->state[chain * l->units + j] : 0;
    double x = l->width > 1 ? 1.0 : pgm_value(l, chain, j);
    return x * ((double)z[own] + step[own]) - pgm_normaliser(l, z, step);
}

static const float pgm_nothing[PGM_MOST_STATES];

/* what the child's log probability gains when the rows listed change its inputs */
PGM_INLINE double pgm_gain_dense_binary(const pgm_link *k, const pgm_layer *child, int64_t chain,
                                        const pgm_change *row, int rows)
{
    const float *z = child->zeta + chain * child->stride;
    const uint8_t *state = child->state + chain * child->units;
    const uint8_t *alive = child->alive ? child->alive + chain * child->units : NULL;
    pgm_vf sum = pgm_same(0.0f);
    float gap = child->support[1] - child->support[0], tilt = child->log_base[1] - child->log_base[0];
    for (int64_t j = 0; j < child->stride; j += PGM_WIDE) {
        pgm_vf step = pgm_same(0.0f), zeta = *(const pgm_vf *)(z + j);
        for (int r = 0; r < rows; r++)
            step += *(const pgm_vf *)pgm_part(k, row[r].row, j) * row[r].delta;
        pgm_vf on = __builtin_convertvector(pgm_load_bytes(state + j), pgm_vf);
        pgm_vf gain = on * gap * step - (pgm_softplus((zeta + step) * gap + tilt) - pgm_softplus(zeta * gap + tilt));
        if (alive) gain = pgm_choose_where(-(pgm_load_bytes(alive + j) & 1), gain, pgm_same(0.0f));
        sum += gain;
    }
    double total = 0.0;
    for (int i = 0; i < PGM_WIDE; i++) total += sum[i];
    return total;
}

static double pgm_gain_reached(const pgm_layer *child, int64_t chain, const float *step, const int32_t *unit,
                               int64_t count)
{
    double before = 0.0, after = 0.0;
    for (int64_t i = 0; i < count; i++) {
        int64_t j = unit ? unit[i] : i;
        if (child->alive && !child->alive[chain * child->units + j]) continue;
        before += pgm_log_prob(child, chain, j, pgm_nothing);
        after += pgm_log_prob(child, chain, j, step + j * child->width);
    }
    double gain = after - before;
    return gain != gain ? 0.0 : gain; /* impossible before and after */
}

static double pgm_gain(const pgm_link *k, const pgm_layer *child, int64_t chain, const pgm_change *row, int rows,
                       pgm_scratch *s)
{
    int64_t count = 0, n = child->size * child->width;
    if (k->rows && child->kind == PGM_TABLE && child->states == 2 && child->width == 1 && !child->complement)
        return pgm_gain_dense_binary(k, child, chain, row, rows);
    if (k->rows) {
        for (int64_t j = 0; j < n; j++) s->step[j] = 0.0f;
        for (int r = 0; r < rows; r++)
            for (int64_t j = 0; j < n; j++) s->step[j] += row[r].delta * pgm_part(k, row[r].row, j)[0];
        double gain = pgm_gain_reached(child, chain, s->step, NULL, child->size);
        for (int64_t j = 0; j < n; j++) s->step[j] = 0.0f;
        return gain;
    }
    for (int r = 0; r < rows; r++)
        for (int64_t e = k->start[row[r].row]; e < k->start[row[r].row + 1]; e++) {
            int32_t j = k->column[e] / child->width;
            s->step[k->column[e]] += row[r].delta * k->weight[e];
            if (!s->touched[j]) s->reached[count++] = j;
            s->touched[j] = 1;
        }
    double gain = pgm_gain_reached(child, chain, s->step, s->reached, count);
    for (int64_t i = 0; i < count; i++) {
        s->touched[s->reached[i]] = 0;
        for (int w = 0; w < child->width; w++) s->step[s->reached[i] * child->width + w] = 0.0f;
    }
    return gain;
}

/* add the changes of one chain through a link, at once */
PGM_INLINE void pgm_add_now(const pgm_machine *m, const pgm_link *k, int64_t chain, const pgm_change *row, int rows)
{
    float *y = pgm_inputs(m, k, chain);
    if (!y) return;
    if (!k->rows)
        pgm_add_sparse(k, row, rows, y);
    else
        for (int r = 0; r < rows; r++)
            for (int64_t j = 0; j < m->layer[k->to].stride; j += PGM_WIDE)
                *(pgm_vf *)(y + j) += *(const pgm_vf *)pgm_part(k, row[r].row, j) * row[r].delta;
}

/* the log weights of one unit's states, up to a constant */
PGM_INLINE void pgm_unit_weights(const pgm_machine *m, int index, int64_t chain, int64_t j, pgm_scratch *s, float *lw)
{
    const pgm_layer *l = m->layer + index;
    float beta = m->beta[chain];
    int now = l->state[chain * l->units + j];
    for (int k = 0; k < l->states; k++) {
        int64_t c = chain * l->stride + j * l->width + (l->width > 1 ? k : 0);
        float eta = l->field ? l->field[c] : 0.0f;
        if (l->zeta) eta += l->complement ? pgm_link_of(pgm_clean(l->zeta[c], l->bias[j])) : l->zeta[c];
        eta *= beta;
        if (l->reference) eta += (1.0f - beta) * l->reference[j * l->width + (l->width > 1 ? k : 0)];
        double gain = 0.0;
        for (int i = 0; i < m->links && k != now; i++) {
            const pgm_link *a = m->link + i;
            if (!a->arrow || a->from != index) continue;
            int32_t row = (int32_t)(j * l->width);
            pgm_change change[2] = {{row, l->width > 1 ? 0.0f : l->support[k] - l->support[now]}, {0, 0.0f}};
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

static int64_t pgm_pass_by_unit(const pgm_machine *m, int index, int64_t chain, const pgm_stream *at, int backward,
                                pgm_scratch *s, pgm_change *list)
{
    float alpha = pgm_alpha(m, chain);
    const pgm_layer *l = m->layer + index;
    const uint8_t *free = l->free + chain * l->free_stride;
    int64_t n = 0;
    pgm_vf u[4], v[4], lw[PGM_MOST_STATES];
    float weight[PGM_MOST_STATES];
    for (int64_t i = 0; i < l->size; i++) {
        int64_t j = backward ? l->size - 1 - i : i;
        if (i == 0 || j % PGM_BLOCK == (backward ? PGM_BLOCK - 1 : 0)) {
            pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK), u);
            if (l->kind != PGM_TABLE) pgm_uniforms(at, (uint32_t)(j / PGM_BLOCK) | 0x8000000u, v);
        }
        if (!free[j]) continue;
        int64_t before = n;
        float a = u[j / PGM_WIDE % 4][j % PGM_WIDE];
        if (l->kind == PGM_TABLE) {
            uint8_t *state = l->state + chain * l->units + j;
            pgm_unit_weights(m, index, chain, j, s, weight);
            int next = *state;
            if (l->states == 2) {
                if (pgm_moves(pgm_same(weight[1] - weight[0]), (pgm_vi){0} - *state, pgm_same(a), alpha)[0])
                    next = 1 - next;
            } else {
                for (int k = 0; k < l->states; k++) lw[k] = pgm_same(weight[k]);
                next = pgm_draw(lw, l->states, (pgm_vi){0} + *state, pgm_same(a), alpha)[0];
            }
            if (next != *state) n = pgm_record(l, j, state, next, list, n);
        } else {
            float b = v[j / PGM_WIDE % 4][j % PGM_WIDE], eta = pgm_natural(l, chain, j, m->beta[chain])[0];
            float *value = l->value + chain * l->units + j;
            float x = l->kind == PGM_NORMAL ? l->variance * eta + sqrtf(l->variance) * pgm_normal(a, b)
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

/* ---- log density ---- */

/* sum over a layer of x (a + sign b), b may be NULL */
PGM_CLONES
double pgm_dot(const pgm_layer *l, int64_t chain, const float *a, const float *b, float sign)
{
    double total = 0.0;
    if (l->kind == PGM_TABLE && l->width == 1 && l->states == 2) {
        const uint8_t *state = l->state + chain * l->units;
        const float low = l->support[0], gap = l->support[1] - low;
        pgm_v8 sums = {0};
        for (int64_t first = 0; first < l->units; first += 4 * PGM_WIDE) {
            pgm_vf sum = {0};
            for (int64_t j = first; j < first + 4 * PGM_WIDE && j < l->units; j += PGM_WIDE) {
                pgm_vf factor = *(const pgm_vf *)(a + j);
                if (b) factor += *(const pgm_vf *)(b + j) * sign;
                sum += (__builtin_convertvector(pgm_load_bytes(state + j), pgm_vf) * gap + low) * factor;
            }
            pgm_gather(&sums, sum);
        }
        return pgm_total(sums);
    }
    for (int64_t j = 0; j < l->size; j++) {
        int64_t c = l->width > 1 ? j * l->width + l->state[chain * l->units + j] : j;
        double factor = b ? (double)a[c] + sign * b[c] : a[c];
        total += factor * (l->width > 1 ? 1.0 : pgm_value(l, chain, j));
    }
    return total;
}

/* sum of x (base + field) / 2 over a layer: every coupling of two moving layers is seen from both of its ends, what
 * layers that never move add is in base */
PGM_INLINE double pgm_field_part(const pgm_layer *l, int64_t chain)
{
    const float *base = l->base ? l->base + chain * l->stride : l->directed ? NULL : l->bias;
    return 0.5 * pgm_dot(l, chain, l->field + chain * l->stride, base, 1.0f);
}

/* sum over a layer of log p(x | zeta) */
PGM_INLINE double pgm_directed_part(const pgm_layer *l, int64_t chain)
{
    double total = 0.0;
    for (int64_t j = 0; l->zeta && j < l->size; j++)
        if (!l->alive || l->alive[chain * l->units + j]) total += pgm_log_prob(l, chain, j, pgm_nothing);
    return total;
}

/* what a layer adds to log p_1 - log p_0 of a chain, its couplings with moving layers apart */
PGM_INLINE double pgm_power_alone(const pgm_layer *l, int64_t chain)
{
    const float *base = l->base ? l->base + chain * l->stride : l->directed ? NULL : l->bias;
    const float *reference = l->moves ? l->reference : NULL;
    double total = pgm_directed_part(l, chain);
    if (l->field && base) return total + pgm_dot(l, chain, base, reference, -1.0f);
    return reference ? total - pgm_dot(l, chain, reference, NULL, 0.0f) : total;
}

/* log p_beta = out[0] + beta out[1] of a chain, each up to a constant that depends on the evidence alone */
PGM_INLINE void pgm_log_density(const pgm_machine *m, int64_t chain, double out[2])
{
    double path = 0.0, power = 0.0; /* h and the reference; what is raised to beta */
    for (int i = 0; i < m->layers; i++) {
        const pgm_layer *l = m->layer + i;
        if (l->field) power += pgm_field_part(l, chain);
        power += pgm_directed_part(l, chain);
        if (!l->moves) continue;
        for (int64_t j = 0; l->uneven && j < l->size; j++) {
            double x = l->kind == PGM_NORMAL ? l->value[chain * l->units + j] : 0.0;
            path += l->kind == PGM_NORMAL ? -0.5 * x * x / l->variance : l->log_base[l->state[chain * l->units + j]];
        }
        double share = l->reference ? pgm_dot(l, chain, l->reference, NULL, 0.0f) : 0.0;
        path += share;
        power -= share;
    }
    out[0] = path, out[1] = power;
}

#define PGM_SMALL_STEP 1e-3 /* of beta: sums of (A(new) - A(old)) by the midpoint rule, more exact than the difference */

/* What log sum_(x of the layer) p_beta gains from beta = old to new: sum over its units of A(eta_new) - A(eta_old), or
 * x (eta_new - eta_old) where a unit is held. Its units are independent given the rest. Less the present state's gain
 * x (eta_new - eta_old) unless `whole`. */
PGM_CLONES
double pgm_summed_gain(const pgm_layer *l, int64_t chain, double old, double new, int whole)
{
    const uint8_t *free = l->free + chain * l->free_stride;
    double total = 0.0;
    if (l->kind == PGM_TABLE && l->states == 2 && l->width == 1) {
        const uint8_t *state = l->state + chain * l->units;
        const float gap = l->support[1] - l->support[0], bias = l->log_base[1] - l->log_base[0];
        const float middle_beta = (float)(0.5 * (old + new)), change = gap * (float)(new - old);
        const float *field = l->field && !l->zeta ? l->field + chain * l->stride : NULL, *reference = l->reference;
        const float low = l->support[0] / gap;
        const int small = fabs(new - old) < PGM_SMALL_STEP;
        pgm_v8 sums = {0};
        for (int64_t first = 0; first < l->units; first += 4 * PGM_WIDE) {
            pgm_vf sum = {0};
            for (int64_t j = first; j < first + 4 * PGM_WIDE && j < l->units; j += PGM_WIDE) {
                pgm_vf on = __builtin_convertvector(pgm_load_bytes(state + j), pgm_vf), gain, moved;
                if (small) {
                    pgm_vf zero = reference ? *(const pgm_vf *)(reference + j) : (pgm_vf){0};
                    pgm_vf slope = (field ? *(const pgm_vf *)(field + j) : pgm_natural(l, chain, j, 1.0f)) - zero;
                    pgm_vf middle = (zero + slope * middle_beta) * gap + bias;
                    pgm_vf t = pgm_exp(-pgm_at_most(pgm_magnitude(middle), 87.0f));
                    moved = slope * change;
                    gain = (pgm_choose_where(middle > 0.0f, pgm_same(1.0f), t) / (t + 1.0f) - on) * moved;
                } else {
                    pgm_vf a = pgm_natural(l, chain, j, (float)old) * gap + bias;
                    pgm_vf b = pgm_natural(l, chain, j, (float)new) * gap + bias;
                    moved = b - a;
                    gain = pgm_softplus(b) - pgm_softplus(a) - on * moved;
                }
                sum += pgm_choose_where(-(pgm_load_bytes(free + j) & 1), gain, pgm_same(0.0f));
                if (whole) sum += (on + low) * moved;
            }
            pgm_gather(&sums, sum);
        }
        return pgm_total(sums);
    }
    float eta[2][PGM_MOST_STATES];
    for (int64_t j = 0; j < l->size; j++) {
        if (!free[j] && !whole) continue;
        for (int k = 0; k < l->width; k++) {
            eta[0][k] = pgm_natural(l, chain, j * l->width + k, (float)old)[0];
            eta[1][k] = pgm_natural(l, chain, j * l->width + k, (float)new)[0];
        }
        int own = l->width > 1 ? l->state[chain * l->units + j] : 0;
        double moved = (l->width > 1 ? 1.0 : pgm_value(l, chain, j)) * ((double)eta[1][own] - eta[0][own]);
        if (free[j]) total += pgm_normaliser(l, eta[1], pgm_nothing) - pgm_normaliser(l, eta[0], pgm_nothing) - moved;
        if (whole) total += moved;
    }
    return total;
}

/* whether each coupling of moving layers has one end that is summed out: what the others add is then in their `base` */
PGM_INLINE int pgm_two_sided(const pgm_machine *m, int side)
{
    int apart = 1;
    for (int i = 0; i < m->layers; i++) apart &= !(m->layer[i].summed & side && m->layer[i].zeta);
    for (int i = 0; i < m->links; i++) {
        const pgm_layer *a = m->layer + m->link[i].from, *b = m->layer + m->link[i].to;
        if (a->moves && b->moves && !m->link[i].arrow) apart &= !(a->summed & side) != !(b->summed & side);
    }
    return apart;
}

/* log p_new - log p_old of a chain, the layers of that side summed out; side 0: none */
PGM_INLINE double pgm_weight_gain(const pgm_machine *m, int64_t chain, double old, double new, int side, int two_sided)
{
    double gain = 0.0, power[2] = {0.0, 0.0};
    if (!two_sided) pgm_log_density(m, chain, power);
    for (int i = 0; i < m->layers; i++) {
        const pgm_layer *l = m->layer + i;
        if (l->summed & side)
            gain += pgm_summed_gain(l, chain, old, new, two_sided);
        else if (two_sided)
            power[1] += pgm_power_alone(l, chain);
    }
    return gain + (new - old) * power[1];
}

/* log_density (chains, 2) of chains first .. last - 1 */
PGM_CLONES
void pgm_log_densities(const pgm_machine *m, int64_t first, int64_t last, double *log_density)
{
    for (int64_t c = first; c < last; c++) pgm_log_density(m, c, log_density + 2 * c);
}

/* ---- sweeps ---- */

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
PGM_CLONES
void pgm_sweep(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last, const pgm_run *run)
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
            pgm_log_density(m, c, run->trace + 2 * ((int64_t)t * run->chains + c));
    }
}

PGM_CLONES
void pgm_reset(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last)
{
    pgm_refresh(m, s, first, last, 0);
}

/* uniforms of blocks first .. first + blocks - 1 of one place */
PGM_CLONES
void pgm_fill_uniforms(const uint32_t *key, uint32_t sweep, uint32_t chain, uint32_t layer, uint32_t first,
                       int64_t blocks, float *out)
{
    pgm_stream at = pgm_open_stream(key, sweep, chain, layer);
    for (int64_t b = 0; b < blocks; b++) {
        pgm_vf u[4];
        pgm_uniforms(&at, first + (uint32_t)b, u);
        memcpy(out + b * PGM_BLOCK, u, sizeof u);
    }
}

#endif
