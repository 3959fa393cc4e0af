/* Neighbours of vertices as growing lists, for orders.c.
 *
 * The list of v is pool[at[v]] .. pool[at[v] + length[v] - 1], in any order, without repetition. A
 * removed vertex stays in the lists of its neighbours, and readers skip vertices that are not
 * `alive`. degree[v] counts the neighbours that have not been removed. A list that is full moves to
 * the end of the pool with twice the room, and the pool grows by realloc. Pointers into the pool
 * are therefore valid only until the next insertion.
 */
#ifndef PGM_ADJACENCY_H
#define PGM_ADJACENCY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t n;
    int64_t *at;
    int32_t *length, *room, *degree;
    uint8_t *alive;
    int32_t *pool;
    int64_t used, size;
} pgm_adjacency;

static void pgm_adjacency_free(pgm_adjacency *g)
{
    free(g->at), free(g->length), free(g->room), free(g->degree), free(g->alive), free(g->pool);
    memset(g, 0, sizeof *g);
}

/* arrays for n vertices and a pool of `size`; frees everything if memory runs out */
static int pgm_adjacency_allocate(pgm_adjacency *g, int32_t n, int64_t size)
{
    size_t count = n > 0 ? n : 1;
    g->n = n, g->used = 0, g->size = size > 0 ? size : 1;
    g->at = malloc(count * sizeof *g->at), g->length = calloc(count, sizeof *g->length);
    g->room = malloc(count * sizeof *g->room), g->degree = calloc(count, sizeof *g->degree);
    g->alive = malloc(count), g->pool = malloc(g->size * sizeof *g->pool);
    if (g->at && g->length && g->room && g->degree && g->alive && g->pool) {
        memset(g->alive, 1, count);
        return 0;
    }
    pgm_adjacency_free(g);
    return -1;
}

/* move the list of v to the end of the pool, with twice the room */
static int pgm_adjacency_grow(pgm_adjacency *g, int32_t v)
{
    int32_t room = 2 * g->room[v] + 4;
    if (g->used + room > g->size) {
        int64_t size = 2 * g->size + room;
        int32_t *pool = realloc(g->pool, size * sizeof *pool);
        if (!pool) return -1;
        g->pool = pool, g->size = size;
    }
    memcpy(g->pool + g->used, g->pool + g->at[v], g->length[v] * sizeof *g->pool);
    g->at[v] = g->used, g->room[v] = room, g->used += room;
    return 0;
}

/* append u to the list of v, which does not contain it */
static inline int pgm_adjacency_push(pgm_adjacency *g, int32_t v, int32_t u)
{
    if (g->length[v] == g->room[v] && pgm_adjacency_grow(g, v)) return -1;
    g->pool[g->at[v] + g->length[v]++] = u;
    g->degree[v]++;
    return 0;
}

/* drop the removed vertices from the list of v */
static void pgm_adjacency_tidy(pgm_adjacency *g, int32_t v)
{
    int32_t *list = g->pool + g->at[v], kept = 0;
    for (int32_t i = 0; i < g->length[v]; i++)
        if (g->alive[list[i]]) list[kept++] = list[i];
    g->length[v] = kept;
}

/* Build the graph of a set of scopes: all pairs are written to the pool, and repetitions dropped. A
 * vertex with one state has no edges; cards may be NULL. */
static int pgm_adjacency_build(pgm_adjacency *g, int32_t n, int64_t factors, const int64_t *start,
                               const int32_t *scope, const int64_t *cards)
{
    int64_t total = 0;
    for (int64_t f = 0; f < factors; f++)
        total += (start[f + 1] - start[f]) * (start[f + 1] - start[f] - 1);
    int32_t *last = malloc((n > 0 ? n : 1) * sizeof *last);
    int64_t *end = calloc(n + 1, sizeof *end);
    if (!last || !end || pgm_adjacency_allocate(g, n, total)) {
        free(last), free(end);
        return -1;
    }
    for (int64_t f = 0; f < factors; f++)
        for (int64_t i = start[f]; i < start[f + 1]; i++)
            end[scope[i]] += start[f + 1] - start[f] - 1;
    for (int32_t v = 0; v < n; v++) g->at[v] = g->used, g->used += end[v], end[v] = g->at[v];
    for (int64_t f = 0; f < factors; f++)
        for (int64_t i = start[f]; i < start[f + 1]; i++)
            for (int64_t j = start[f]; j < start[f + 1]; j++)
                if (i != j && (!cards || (cards[scope[i]] > 1 && cards[scope[j]] > 1)))
                    g->pool[end[scope[i]]++] = scope[j];
    for (int32_t v = 0; v < n; v++) last[v] = -1;
    for (int32_t v = 0; v < n; v++) {
        int32_t kept = 0, *list = g->pool + g->at[v];
        for (int64_t i = 0; i < end[v] - g->at[v]; i++)
            if (last[list[i]] != v) last[list[i]] = v, list[kept++] = list[i];
        g->length[v] = g->degree[v] = kept;
        g->room[v] = end[v] - g->at[v] < INT32_MAX ? (int32_t)(end[v] - g->at[v]) : INT32_MAX;
    }
    free(last), free(end);
    return 0;
}

/* a copy of the subgraph of the `count` vertices in `member`; place (n,) has their new numbers */
static int pgm_adjacency_part(pgm_adjacency *to, const pgm_adjacency *g, const int32_t *member,
                              int32_t count, const int32_t *place)
{
    int64_t total = 0;
    for (int32_t i = 0; i < count; i++) total += 2 * (int64_t)g->degree[member[i]] + 4;
    if (pgm_adjacency_allocate(to, count, 2 * total)) return -1;
    for (int32_t i = 0; i < count; i++) {
        const int32_t *list = g->pool + g->at[member[i]];
        to->at[i] = to->used, to->room[i] = 2 * g->degree[member[i]] + 4;
        for (int32_t k = 0; k < g->length[member[i]]; k++)
            if (g->alive[list[k]]) to->pool[to->used + to->length[i]++] = place[list[k]];
        to->degree[i] = to->length[i];
        to->used += to->room[i];
    }
    return 0;
}

/* copy g to `to`, which was allocated for as many vertices */
static int pgm_adjacency_copy(pgm_adjacency *to, const pgm_adjacency *g)
{
    if (to->size < g->used) {
        int32_t *pool = realloc(to->pool, 2 * g->used * sizeof *pool);
        if (!pool) return -1;
        to->pool = pool, to->size = 2 * g->used;
    }
    memcpy(to->at, g->at, g->n * sizeof *g->at);
    memcpy(to->length, g->length, g->n * sizeof *g->length);
    memcpy(to->room, g->room, g->n * sizeof *g->room);
    memcpy(to->degree, g->degree, g->n * sizeof *g->degree);
    memcpy(to->alive, g->alive, g->n);
    memcpy(to->pool, g->pool, g->used * sizeof *g->pool);
    to->used = g->used;
    return 0;
}

#endif
