/* Greedy elimination with incremental updates of fills, for orders.c.
 *
 * missing[v] is the number of pairs of neighbours of v that are not adjacent, fill[v] the sum over
 * these pairs of the product of the weights of the two, sum[v] the weight of all neighbours, and
 * load[v] the sum of their bits (log2 of numbers of states). A new edge a-b removes the pair (a, b)
 * from the missing pairs of each common neighbour. It adds to the missing pairs of a the pairs of b
 * with those neighbours of a that are not neighbours of b:
 *     fill[a] += weight[b] * (sum[a] - sum over common neighbours of their weights).
 * When v is removed, its neighbours C are a clique. The fill of each u in C decreases by
 *     weight[v] * (sum[u] - weight[v] - (sum[v] - weight[u])).
 * Weights are integers, so that fills are exact. A vertex v is simplicial if missing[v] is 0. The
 * cost of a step is the sum of the degrees of C, plus the degree of b for each new edge a-b. `work`
 * counts the cost in entries of lists, so that limits of work do not depend on a clock.
 *
 * Vertices wait in a heap by (first, second). Simplicial vertices come before all others. Next come
 * vertices whose neighbours lack one edge, on two conditions: their clique has at most `low` bits,
 * where `low` is a lower bound of the largest clique, and no neighbour has more states than the
 * vertex. Contracting such a vertex into an end of the missing edge gives the same graph as
 * eliminating it, so that the largest clique need not grow (Bodlaender, Koster and van den Eijkhof,
 * Preprocessing rules for triangulation of probabilistic networks, 2005).
 */
#ifndef PGM_GREEDY_H
#define PGM_GREEDY_H

#include <math.h>

#include "adjacency.h"
#include "orders.h"

#define PGM_SIMPLICIAL (-2.0)
#define PGM_ALMOST (-1.0)
/* work between two polls, a few milliseconds */
#define PGM_GREEDY_WORK_A_POLL 1000000

typedef struct {
    pgm_adjacency g;
    double *bits, *weight, *sum, *load, *fill, *first, *second;
    int64_t *missing;
    int32_t *heap, *slot, *mark, *touched, *recent, *order;
    int32_t waiting, stamp, touches, count;
    int rule;
    uint64_t random;
    int64_t work;
    double noise, low, total, largest;
    pgm_order_watch watch; /* no poll: 0 */
    int64_t due;           /* the work at the next poll */
    void *memory;
} pgm_greedy;

static void pgm_greedy_free(pgm_greedy *s)
{
    pgm_adjacency_free(&s->g);
    free(s->memory);
    memset(s, 0, sizeof *s);
}

/* room for a search of a graph of n vertices; the graph itself is copied by pgm_greedy_start */
static int pgm_greedy_allocate(pgm_greedy *s, int32_t n, int64_t pool)
{
    memset(s, 0, sizeof *s);
    if (pgm_adjacency_allocate(&s->g, n, pool)) return -1;
    double *d = s->memory = calloc(n + 1, 8 * sizeof(double) + 6 * sizeof(int32_t));
    if (!d) {
        pgm_adjacency_free(&s->g);
        return -1;
    }
    s->bits = d, s->weight = d + n, s->sum = d + 2 * n, s->load = d + 3 * n, s->fill = d + 4 * n;
    s->first = d + 5 * n, s->second = d + 6 * n, s->missing = (int64_t *)(d + 7 * n);
    int32_t *i = (int32_t *)(d + 8 * (int64_t)n);
    s->heap = i, s->slot = i + n, s->mark = i + 2 * n, s->touched = i + 3 * n;
    s->recent = i + 4 * n, s->order = i + 5 * n;
    return 0;
}

/* a uniform number in [0, 1): splitmix64 */
static double pgm_greedy_uniform(uint64_t *random)
{
    uint64_t z = *random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* ---- heap ---- */

static int pgm_greedy_before(const pgm_greedy *s, int32_t u, int32_t v)
{
    if (s->first[u] != s->first[v]) return s->first[u] < s->first[v];
    if (s->second[u] != s->second[v]) return s->second[u] < s->second[v];
    return u < v;
}

static void pgm_greedy_place(pgm_greedy *s, int32_t at, int32_t v) { s->heap[s->slot[v] = at] = v; }

static void pgm_greedy_sift(pgm_greedy *s, int32_t at)
{
    int32_t v = s->heap[at];
    for (; at > 0 && pgm_greedy_before(s, v, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        pgm_greedy_place(s, at, s->heap[(at - 1) / 2]);
    for (int32_t child; (child = 2 * at + 1) < s->waiting; at = child) {
        if (child + 1 < s->waiting && pgm_greedy_before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!pgm_greedy_before(s, s->heap[child], v)) break;
        pgm_greedy_place(s, at, s->heap[child]);
    }
    pgm_greedy_place(s, at, v);
}

static void pgm_greedy_remove(pgm_greedy *s, int32_t v)
{
    int32_t at = s->slot[v], moved = s->heap[--s->waiting];
    if (moved == v) return;
    pgm_greedy_place(s, at, moved);
    pgm_greedy_sift(s, at);
}

/* ---- scores ---- */

/* Whether no neighbour of v has more states than v. */
static int pgm_greedy_heaviest(const pgm_greedy *s, int32_t v)
{
    const pgm_adjacency *g = &s->g;
    for (int64_t i = g->at[v]; i < g->at[v] + g->length[v]; i++)
        if (g->alive[g->pool[i]] && s->bits[g->pool[i]] > s->bits[v]) return 0;
    return 1;
}

static void pgm_greedy_score(pgm_greedy *s, int32_t v)
{
    double clique = s->load[v] + s->bits[v], score = s->fill[v];
    s->second[v] = clique;
    if (s->missing[v] == 0) {
        s->first[v] = PGM_SIMPLICIAL;
        return;
    }
    if (s->missing[v] == 1 && clique <= s->low && pgm_greedy_heaviest(s, v)) {
        s->first[v] = PGM_ALMOST;
        return;
    }
    if (s->rule == PGM_ORDER_WEIGHT) score = clique, s->second[v] = s->fill[v];
    if (s->rule == PGM_ORDER_SIZE) score = s->g.degree[v], s->second[v] = s->fill[v];
    if (s->rule == PGM_ORDER_WEIGHT_FILL) score = 8.0 + clique + log2(s->fill[v]);
    if (s->random) {
        s->second[v] = pgm_greedy_uniform(&s->random);
        if (s->noise > 0.0) score *= 1.0 + s->noise * pgm_greedy_uniform(&s->random);
    }
    s->first[v] = score;
}

static void pgm_greedy_touch(pgm_greedy *s, int32_t v)
{
    if (s->slot[v] >= 0) {
        s->touched[s->touches++] = s->heap[s->slot[v]];
        s->slot[v] = -1 - s->slot[v];
    }
}

static void pgm_greedy_settle(pgm_greedy *s)
{
    for (int32_t i = 0; i < s->touches; i++) s->slot[s->touched[i]] = -1 - s->slot[s->touched[i]];
    for (int32_t i = 0; i < s->touches; i++) {
        pgm_greedy_score(s, s->touched[i]);
        pgm_greedy_sift(s, s->slot[s->touched[i]]);
    }
    s->touches = 0;
}

/* ---- the start ---- */

static double pgm_greedy_weight(int rule, double bits)
{
    if (rule == PGM_ORDER_FILL_STATES) return rint(exp2(bits < 20.0 ? bits : 20.0));
    if (rule == PGM_ORDER_FILL || rule == PGM_ORDER_SIZE) return 1.0;
    return rint(8.0 * bits) + (bits < 0.0625);
}

/* Subtract the adjacent pairs from the fills. They are triangles, and each is found once, at its
 * vertex with the smallest (degree, number), whose later neighbours are `out`. */
static int pgm_greedy_triangles(pgm_greedy *s)
{
    pgm_adjacency *g = &s->g;
    int64_t *from = malloc((g->n + 1) * sizeof *from), used = 0;
    for (int32_t v = 0; v < g->n; v++) used += g->degree[v];
    int32_t *out = malloc((used / 2 + 1) * sizeof *out);
    if (!from || !out) {
        free(from), free(out);
        return -1;
    }
    used = 0;
    for (int32_t v = 0; v < g->n; v++) {
        from[v] = used;
        for (int64_t i = g->at[v]; i < g->at[v] + g->length[v]; i++) {
            int32_t u = g->pool[i];
            if (g->degree[u] > g->degree[v] || (g->degree[u] == g->degree[v] && u > v))
                out[used++] = u;
        }
    }
    from[g->n] = used;
    for (int32_t v = 0; v < g->n; v++) {
        s->stamp++;
        for (int64_t i = from[v]; i < from[v + 1]; i++) s->mark[out[i]] = s->stamp;
        for (int64_t i = from[v]; i < from[v + 1]; i++)
            for (int64_t j = from[out[i]]; j < from[out[i] + 1]; j++) {
                int32_t a = out[i], b = out[j];
                if (s->mark[b] != s->stamp) continue;
                s->missing[v]--, s->missing[a]--, s->missing[b]--;
                s->fill[v] -= s->weight[a] * s->weight[b];
                s->fill[a] -= s->weight[v] * s->weight[b];
                s->fill[b] -= s->weight[v] * s->weight[a];
            }
    }
    free(from), free(out);
    return 0;
}

/* Copy a graph without removed vertices, and score its vertices. */
static int pgm_greedy_start(pgm_greedy *s, const pgm_adjacency *graph, const double *bits, int rule,
                            uint64_t seed, double noise, double low)
{
    pgm_adjacency *g = &s->g;
    if (pgm_adjacency_copy(g, graph)) return -1;
    s->rule = rule, s->random = seed ? seed * 0xd1342543de82ef95u + 1 : 0, s->noise = noise;
    s->low = low, s->total = 0.0, s->largest = 0.0, s->count = 0, s->touches = 0, s->stamp = 0;
    s->work = 8 * (int64_t)g->n + graph->used;
    for (int32_t v = 0; v < g->n; v++) {
        s->bits[v] = bits[v], s->weight[v] = pgm_greedy_weight(rule, bits[v]);
        s->mark[v] = s->recent[v] = 0;
    }
    for (int32_t v = 0; v < g->n; v++) {
        double sum = 0.0, squares = 0.0, load = 0.0;
        for (int64_t i = g->at[v]; i < g->at[v] + g->length[v]; i++) {
            double w = s->weight[g->pool[i]];
            sum += w, squares += w * w, load += s->bits[g->pool[i]];
        }
        s->sum[v] = sum, s->load[v] = load, s->fill[v] = 0.5 * (sum * sum - squares);
        s->missing[v] = (int64_t)g->degree[v] * (g->degree[v] - 1) / 2;
    }
    if (pgm_greedy_triangles(s)) return -1;
    /* The heap grows by one vertex at a time: sifting moves a vertex up as well as down, which
     * would break the heap property below it if the rest were not a heap yet. */
    for (int32_t v = 0; v < g->n; v++) {
        s->waiting = v + 1;
        pgm_greedy_place(s, v, v), pgm_greedy_score(s, v);
        pgm_greedy_sift(s, v);
    }
    return 0;
}

/* ---- one step ---- */

/* Add the edge a-b, where the neighbours of a have the mark s->stamp. */
static int pgm_greedy_connect(pgm_greedy *s, int32_t a, int32_t b)
{
    pgm_adjacency *g = &s->g;
    const int32_t *list = g->pool + g->at[b];
    double common = 0.0, pair = s->weight[a] * s->weight[b];
    int32_t shared = 0;
    s->work += g->length[b];
    for (int32_t i = 0; i < g->length[b]; i++) {
        int32_t x = list[i];
        if (s->mark[x] != s->stamp) continue;
        common += s->weight[x], shared++;
        s->fill[x] -= pair, s->missing[x]--;
        pgm_greedy_touch(s, x);
    }
    s->fill[a] += s->weight[b] * (s->sum[a] - common);
    s->fill[b] += s->weight[a] * (s->sum[b] - common);
    s->missing[a] += g->degree[a] - shared, s->missing[b] += g->degree[b] - shared;
    s->sum[a] += s->weight[b], s->sum[b] += s->weight[a];
    s->load[a] += s->bits[b], s->load[b] += s->bits[a];
    s->mark[b] = s->stamp;
    return pgm_adjacency_push(g, a, b) || pgm_adjacency_push(g, b, a) ? -1 : 0;
}

/* Mark the neighbours of a, and tidy its list if most of them have been removed. */
static void pgm_greedy_mark(pgm_greedy *s, int32_t a)
{
    pgm_adjacency *g = &s->g;
    if (g->length[a] > 2 * g->degree[a] + 8) pgm_adjacency_tidy(g, a);
    const int32_t *list = g->pool + g->at[a];
    s->stamp++;
    s->work += g->length[a];
    for (int32_t i = 0; i < g->length[a]; i++)
        if (g->alive[list[i]]) s->mark[list[i]] = s->stamp;
}

/* Join the neighbours of v. */
static int pgm_greedy_join(pgm_greedy *s, int32_t v)
{
    pgm_adjacency *g = &s->g;
    for (int32_t i = 0; i < g->length[v] && s->missing[v] > 0; i++) {
        int32_t a = g->pool[g->at[v] + i];
        pgm_greedy_mark(s, a);
        for (int32_t j = i + 1; j < g->length[v] && s->missing[v] > 0; j++) {
            int32_t b = g->pool[g->at[v] + j];
            if (s->mark[b] != s->stamp && pgm_greedy_connect(s, a, b)) return -1;
        }
    }
    return 0;
}

/* Eliminate v. */
static int pgm_greedy_step(pgm_greedy *s, int32_t v)
{
    pgm_adjacency *g = &s->g;
    pgm_greedy_remove(s, v);
    s->slot[v] = -1;
    pgm_adjacency_tidy(g, v);
    if (pgm_greedy_join(s, v)) return -1;
    int32_t degree = g->degree[v];
    double clique = s->bits[v];
    g->alive[v] = 0;
    for (int32_t i = 0; i < degree; i++) {
        int32_t u = g->pool[g->at[v] + i];
        clique += s->bits[u];
        s->fill[u] -= s->weight[v] * (s->sum[u] - s->weight[v] - (s->sum[v] - s->weight[u]));
        s->missing[u] -= g->degree[u] - degree;
        s->sum[u] -= s->weight[v], s->load[u] -= s->bits[v], g->degree[u]--;
        pgm_greedy_touch(s, u);
    }
    if (s->recent[v] != degree + 1) s->total += exp2(clique);
    if (clique > s->largest) s->largest = clique;
    for (int32_t i = 0; i < degree; i++) s->recent[g->pool[g->at[v] + i]] = degree;
    s->order[s->count++] = v;
    s->work += 8 + 8 * (int64_t)s->touches;
    pgm_greedy_settle(s);
    return 0;
}

/* Eliminate vertices in the order of the heap: all, or with `safe` while the score is below 0.
 * Return 1 if the total has exceeded `best`, and PGM_ORDER_STOPPED as polls say. */
static int pgm_greedy_run(pgm_greedy *s, int safe, double best)
{
    while (s->waiting > 0) {
        if (safe && s->first[s->heap[0]] >= 0.0) return 0;
        if (pgm_greedy_step(s, s->heap[0])) return -1;
        if (s->total > best) return 1;
        if (s->watch.poll && s->work > s->due) {
            s->due = s->work + PGM_GREEDY_WORK_A_POLL;
            if (s->watch.poll(s->watch.token)) return PGM_ORDER_STOPPED;
        }
    }
    return 0;
}

#endif
