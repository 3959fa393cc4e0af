/* Local search in an elimination order, for orders.c.
 *
 * The cliques of an order form a tree, in which the parent of a vertex is its first later
 * neighbour. A window is a connected part of this tree. The order of elimination within a window
 * does not affect the graph that remains after it, nor any clique outside of the window. Each
 * window is therefore a separate graph. It has the vertices of the window and the border, which
 * consists of the later neighbours of the top vertex. Its edges are those of the whole graph, and
 * for each child of the window in the tree a clique on the later neighbours of this child. The
 * border is made a clique, because it becomes one in any case, and fill within it must not count.
 * Randomised greedy searches find new orders of the window. An order that is at least as good
 * replaces the old one, so that the search can move between orders of equal cost. Each trial
 * computes the cost of the whole component. Up to some thousand vertices, this takes little time
 * compared with the search.
 */
#ifndef PGM_WINDOWS_H
#define PGM_WINDOWS_H

#include "cliques.h"
#include "greedy.h"

typedef struct {
    const pgm_adjacency *g;
    const double *bits;
    int32_t *order, *trial; /* the best order, and one that is being tried */
    pgm_cliques c;
    int32_t *member, *local; /* the window, then its border; the numbers of vertices in it, or -1 */
    int32_t size, all;
    int32_t *scope; /* the factors of the graph of the window */
    int64_t *start, factors, room, many;
    double *own; /* bits of the vertices of the window */
    uint64_t random;
    int64_t work;
    pgm_order_watch watch;
} pgm_window;

static void pgm_window_free(pgm_window *w)
{
    pgm_cliques_free(&w->c);
    free(w->trial), free(w->scope), free(w->start), free(w->own);
}

static int pgm_window_allocate(pgm_window *w, const pgm_adjacency *g)
{
    int64_t n = g->n;
    if (pgm_cliques_allocate(&w->c, g->n, 4 * g->used + 16)) return -1;
    w->trial = malloc(3 * n * sizeof *w->trial), w->own = malloc(n * sizeof *w->own);
    w->room = 1024, w->scope = malloc(w->room * sizeof *w->scope);
    w->many = 256, w->start = malloc(w->many * sizeof *w->start);
    if (!w->trial || !w->own || !w->scope || !w->start) return -1;
    w->member = w->trial + n, w->local = w->member + n;
    for (int32_t v = 0; v < g->n; v++) w->local[v] = -1;
    return 0;
}

static int32_t pgm_window_below(pgm_window *w, int32_t count)
{
    return (int32_t)(pgm_greedy_uniform(&w->random) * count);
}

static void pgm_window_take(pgm_window *w, int32_t v)
{
    w->local[v] = w->all, w->member[w->all++] = v;
}

/* Choose a window: the path from a vertex with a large clique to one of its ancestors, and then
 * children, either random ones or those with large cliques. */
static void pgm_window_choose(pgm_window *w, int32_t most)
{
    const pgm_cliques *c = &w->c;
    int32_t v = pgm_window_below(w, w->g->n), tries = 1 << pgm_window_below(w, 6);
    for (int32_t i = 0; i < tries; i++) {
        int32_t u = pgm_window_below(w, w->g->n);
        if (c->clique[u] > c->clique[v]) v = u;
    }
    int32_t climb = pgm_window_below(w, most / 2 + 1);
    double greed = pgm_greedy_uniform(&w->random);
    w->size = w->all = 0;
    for (; v >= 0 && climb >= 0; v = c->parent[v], climb--) pgm_window_take(w, v);
    while (w->all < most) {
        int32_t best = -1, seen = 0;
        double score = -1.0;
        for (int32_t i = 0; i < w->all; i++)
            for (int32_t k = c->child[w->member[i]]; k >= 0; k = c->next[k]) {
                if (w->local[k] >= 0) continue;
                double s = greed * c->clique[k] / (c->clique[w->member[0]] + 1.0)
                           + (1.0 - greed) * pgm_greedy_uniform(&w->random);
                if (s > score) score = s, best = k;
                seen++;
            }
        w->work += seen + w->all;
        if (best < 0) break;
        pgm_window_take(w, best);
    }
    w->size = w->all;
}

/* Add a factor of the members of a list that are in the graph of the window, and of v if v >= 0. */
static int pgm_window_factor(pgm_window *w, const int32_t *list, int32_t length, int32_t v)
{
    int64_t end = w->start[w->factors];
    if (end + length + 1 > w->room) {
        int64_t room = 2 * (end + length + 1);
        int32_t *scope = realloc(w->scope, room * sizeof *scope);
        if (!scope) return -1;
        w->scope = scope, w->room = room;
    }
    if (w->factors + 2 > w->many) {
        int64_t *start = realloc(w->start, 2 * w->many * sizeof *start);
        if (!start) return -1;
        w->start = start, w->many *= 2;
    }
    if (v >= 0) w->scope[end++] = w->local[v];
    for (int32_t i = 0; i < length; i++)
        if (w->local[list[i]] >= 0) w->scope[end++] = w->local[list[i]];
    w->start[++w->factors] = end;
    return 0;
}

/* Build the factors of the graph of the window, and add the border to `member`. */
static int pgm_window_problem(pgm_window *w)
{
    const pgm_cliques *c = &w->c;
    int32_t top = w->member[0];
    for (int32_t i = 1; i < w->size; i++)
        if (c->place[w->member[i]] > c->place[top]) top = w->member[i];
    for (int64_t i = c->from[top]; i < c->from[top] + c->size[top]; i++)
        pgm_window_take(w, c->pool[i]);
    w->factors = 0, w->start[0] = 0;
    if (pgm_window_factor(w, c->pool + c->from[top], c->size[top], -1)) return -1;
    for (int32_t i = 0; i < w->size; i++) {
        int32_t v = w->member[i];
        for (int64_t e = w->g->at[v]; e < w->g->at[v] + w->g->length[v]; e++) {
            int32_t u = w->g->pool[e];
            if (w->local[u] > i && pgm_window_factor(w, &u, 1, v)) return -1;
        }
        for (int32_t k = c->child[v]; k >= 0; k = c->next[k])
            if ((w->local[k] < 0 || w->local[k] >= w->size) && c->size[k] > 1
                && pgm_window_factor(w, c->pool + c->from[k], c->size[k], -1))
                return -1;
    }
    for (int32_t i = 0; i < w->all; i++) w->own[i] = w->bits[w->member[i]];
    return 0;
}

/* Write the order with the window in the order `found`, placed where its top vertex was. */
static void pgm_window_splice(pgm_window *w, const int32_t *found)
{
    int32_t last = 0, count = 0;
    for (int32_t i = 0; i < w->size; i++)
        if (w->c.place[w->member[i]] > last) last = w->c.place[w->member[i]];
    for (int32_t i = 0; i < w->g->n; i++) {
        int32_t v = w->order[i], inside = w->local[v] >= 0 && w->local[v] < w->size;
        if (!inside) w->trial[count++] = v;
        for (int32_t k = 0; i == last && k < w->size; k++) w->trial[count++] = w->member[found[k]];
    }
}

/* Search the graph of the window; return 1 if the best order has changed. */
static int pgm_window_search(pgm_window *w, const pgm_adjacency *graph, double limit, double low,
                             double *total)
{
    static const double noises[] = {0.0, 0.05, 0.2, 0.5, 1.0};
    pgm_greedy s;
    double entries, largest;
    if (pgm_greedy_allocate(&s, w->all, 2 * graph->used)) return -1;
    int rule = pgm_window_below(w, 4), status;
    if (rule == 3) rule = PGM_ORDER_WEIGHT;
    double noise = noises[pgm_window_below(w, 5)];
    uint64_t seed = 1 + (w->random >> 1);
    status = pgm_greedy_start(&s, graph, w->own, rule, seed, noise, low);
    s.watch = w->watch;
    for (int32_t i = w->size; status == 0 && i < w->all; i++)
        pgm_greedy_remove(&s, i), s.slot[i] = -1;
    if (status == 0) status = pgm_greedy_run(&s, 0, limit);
    w->work += s.work;
    if (status == 0) {
        pgm_window_splice(w, s.order);
        status = pgm_cliques_run(&w->c, w->g, w->bits, w->trial, &entries, &largest);
        w->work += 2 * w->c.used;
        if (status == 0 && entries <= *total) {
            memcpy(w->order, w->trial, w->g->n * sizeof *w->order);
            *total = entries, status = 1;
        } else if (status == 0)
            status = pgm_cliques_run(&w->c, w->g, w->bits, w->order, &entries, &largest);
    } else if (status > 0)
        status = 0;
    pgm_greedy_free(&s);
    return status;
}

/* Treat one window: build its graph, and search it a few times. */
static int pgm_window_round(pgm_window *w, int32_t most, double low, double *total)
{
    pgm_adjacency graph;
    pgm_window_choose(w, most);
    if (pgm_window_problem(w)) return -1;
    double limit = 0.0;
    for (int32_t i = 0; i < w->size; i++) limit += exp2(w->c.clique[w->member[i]]);
    if (pgm_adjacency_build(&graph, w->all, w->factors, w->start, w->scope, NULL)) return -1;
    w->work += 4 * graph.used;
    int status = 0;
    for (int tries = 0; status == 0 && tries < 6; tries++) {
        status = pgm_window_search(w, &graph, limit, low, total);
        /* each trial computes the cost of the whole component */
        if (status >= 0 && w->watch.poll && w->watch.poll(w->watch.token))
            status = PGM_ORDER_STOPPED;
    }
    pgm_adjacency_free(&graph);
    for (int32_t i = 0; i < w->all; i++) w->local[w->member[i]] = -1;
    return status < 0 ? status : 0;
}

static int pgm_windows_improve(const pgm_adjacency *g, const double *bits, int32_t *order,
                               double *total, double low, uint64_t seed, int64_t rounds,
                               int64_t most, int64_t *work, pgm_order_watch watch)
{
    pgm_window w;
    double largest;
    memset(&w, 0, sizeof w);
    w.watch = watch;
    w.g = g, w.bits = bits, w.order = order, w.random = seed * 0xd1342543de82ef95u + 1;
    int status = pgm_window_allocate(&w, g);
    if (status == 0) status = pgm_cliques_run(&w.c, g, bits, order, total, &largest);
    for (int64_t i = 0; status == 0 && i < rounds; i++) {
        int32_t size = 4 + pgm_window_below(&w, (int32_t)(most < g->n ? most : g->n));
        status = pgm_window_round(&w, size, low, total);
    }
    *work += w.work;
    pgm_window_free(&w);
    return status;
}

#endif
