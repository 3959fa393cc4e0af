/* The cliques of an elimination order, for orders.c.
 *
 * Vertices are taken in order. The later neighbours of v, after fill, are its own later neighbours
 * and those of its children: the vertices whose first later neighbour is v. The work is
 * proportional to the total size of the lists. The clique of v is contained in another clique if
 * and only if a child of v has one later neighbour more than v.
 */
#ifndef PGM_CLIQUES_H
#define PGM_CLIQUES_H

#include <math.h>

#include "adjacency.h"

/* The later neighbours of each vertex after fill: pool[from[v]] .. pool[from[v] + size[v] - 1]. The
 * vertices whose first later neighbour is v are a linked list: child[v], next[child[v]], ... */
typedef struct {
    int32_t *place, *mark, *child, *next, *size, *parent, *pool;
    double *clique;
    int64_t *from, used, room;
} pgm_cliques;

static void pgm_cliques_free(pgm_cliques *c)
{
    free(c->place), free(c->from), free(c->pool), free(c->clique);
}

static int pgm_cliques_allocate(pgm_cliques *c, int32_t n, int64_t room)
{
    memset(c, 0, sizeof *c);
    c->place = malloc((6 * (int64_t)n + 1) * sizeof *c->place);
    c->from = malloc((n + 1) * sizeof *c->from);
    c->pool = malloc(room * sizeof *c->pool), c->room = room;
    c->clique = malloc((n + 1) * sizeof *c->clique);
    if (!c->clique || !c->place || !c->from || !c->pool) return -1;
    c->mark = c->place + n, c->child = c->mark + n, c->next = c->child + n, c->size = c->next + n;
    c->parent = c->size + n;
    return 0;
}

/* Add u to the list of v, unless it is there. */
static inline void pgm_cliques_add(pgm_cliques *c, int32_t v, int32_t u)
{
    if (c->mark[u] == v) return;
    c->mark[u] = v, c->pool[c->used++] = u;
}

/* Collect the later neighbours of v: its own, and those of its children. */
static int pgm_cliques_gather(pgm_cliques *c, const pgm_adjacency *g, int32_t v)
{
    int64_t most = c->used + g->length[v];
    for (int32_t k = c->child[v]; k >= 0; k = c->next[k]) most += c->size[k];
    if (most > c->room) {
        int32_t *pool = realloc(c->pool, 2 * most * sizeof *pool);
        if (!pool) return -1;
        c->pool = pool, c->room = 2 * most;
    }
    c->from[v] = c->used, c->mark[v] = v;
    for (int64_t i = g->at[v]; i < g->at[v] + g->length[v]; i++)
        if (c->place[g->pool[i]] > c->place[v]) pgm_cliques_add(c, v, g->pool[i]);
    for (int32_t k = c->child[v]; k >= 0; k = c->next[k])
        for (int64_t i = c->from[k]; i < c->from[k] + c->size[k]; i++)
            pgm_cliques_add(c, v, c->pool[i]);
    c->size[v] = (int32_t)(c->used - c->from[v]);
    return 0;
}

/* Sum the bits of the clique of v; v becomes a child of its first later neighbour. */
static void pgm_cliques_close(pgm_cliques *c, const double *bits, int32_t v)
{
    int32_t parent = -1;
    double clique = bits[v];
    for (int64_t i = c->from[v]; i < c->from[v] + c->size[v]; i++) {
        int32_t u = c->pool[i];
        clique += bits[u];
        if (parent < 0 || c->place[u] < c->place[parent]) parent = u;
    }
    if (parent >= 0) c->next[v] = c->child[parent], c->child[parent] = v;
    c->parent[v] = parent, c->clique[v] = clique;
}

/* Eliminate all vertices in an order: fills c, and adds up the sizes of the cliques. */
static int pgm_cliques_run(pgm_cliques *c, const pgm_adjacency *g, const double *bits,
                           const int32_t *order, double *entries, double *largest)
{
    *entries = *largest = 0.0;
    c->used = 0;
    for (int32_t i = 0; i < g->n; i++)
        c->place[order[i]] = i, c->mark[order[i]] = c->child[order[i]] = -1;
    for (int32_t i = 0; i < g->n; i++) {
        int32_t v = order[i], contained = 0;
        if (pgm_cliques_gather(c, g, v)) return -1;
        for (int32_t k = c->child[v]; k >= 0; k = c->next[k])
            contained |= c->size[k] == c->size[v] + 1;
        pgm_cliques_close(c, bits, v);
        if (!contained) *entries += exp2(c->clique[v]);
        if (c->clique[v] > *largest) *largest = c->clique[v];
    }
    return 0;
}

static int pgm_cliques_cost(const pgm_adjacency *g, const double *bits, const int32_t *order,
                            double *entries, double *largest)
{
    pgm_cliques c;
    int status = pgm_cliques_allocate(&c, g->n, 4 * g->used + 16);
    if (status == 0) status = pgm_cliques_run(&c, g, bits, order, entries, largest);
    pgm_cliques_free(&c);
    return status;
}

#endif
