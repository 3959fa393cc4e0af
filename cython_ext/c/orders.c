/* Elimination orders: see orders.h for the design, and greedy.h for the searches. */
#include "orders.h"

#include "cliques.h"
#include "greedy.h"
#include "windows.h"

/* A connected component of the graph after the safe reductions, with vertices numbered from 0: the
 * numbers of these vertices in the whole graph, and the best order so far. */
typedef struct {
    pgm_adjacency graph;
    int32_t *vertex, *order;
    double *bits;
    double total;
} pgm_part;

struct pgm_orders {
    int32_t n, first, parts;
    pgm_adjacency graph;
    double *bits, low;
    int64_t work;
    int32_t *prefix;
    pgm_part *part;
};

void pgm_orders_close(pgm_orders *o)
{
    if (!o) return;
    for (int32_t k = 0; o->part && k < o->parts; k++) {
        pgm_adjacency_free(&o->part[k].graph);
        free(o->part[k].vertex), free(o->part[k].order), free(o->part[k].bits);
    }
    pgm_adjacency_free(&o->graph);
    free(o->bits), free(o->prefix), free(o->part), free(o);
}

/* ---- lower bound: MMD+ ---- */

/* the neighbour of v that shares the fewest neighbours with it; of several, the smallest */
static int32_t pgm_bound_partner(pgm_greedy *s, int32_t v, int64_t *work)
{
    pgm_adjacency *g = &s->g;
    int32_t best = -1, least = INT32_MAX;
    pgm_greedy_mark(s, v);
    for (int32_t i = 0; i < g->length[v]; i++) {
        int32_t u = g->pool[g->at[v] + i], shared = 0;
        if (!g->alive[u]) continue;
        for (int32_t k = 0; k < g->length[u] && shared <= least; k++) {
            int32_t x = g->pool[g->at[u] + k];
            shared += g->alive[x] && s->mark[x] == s->stamp;
        }
        *work += g->length[u];
        if (shared < least || (shared == least && s->load[u] < s->load[best]))
            least = shared, best = u;
    }
    return best;
}

/* Contract v into its neighbour u, which keeps the smaller number of bits. */
static int pgm_bound_contract(pgm_greedy *s, int32_t v, int32_t u)
{
    pgm_adjacency *g = &s->g;
    double bits = s->bits[v] < s->bits[u] ? s->bits[v] : s->bits[u], change = bits - s->bits[u];
    pgm_greedy_mark(s, u);
    g->alive[v] = 0;
    for (int32_t i = 0; change < 0.0 && i < g->length[u]; i++) {
        int32_t x = g->pool[g->at[u] + i];
        if (g->alive[x]) s->load[x] += change, pgm_greedy_touch(s, x);
    }
    s->bits[u] = bits;
    for (int32_t i = 0; i < g->length[v]; i++) {
        int32_t x = g->pool[g->at[v] + i];
        if (!g->alive[x]) continue;
        s->load[x] -= s->bits[v], g->degree[x]--;
        pgm_greedy_touch(s, x);
        if (x == u || s->mark[x] == s->stamp) continue;
        s->load[x] += bits, s->load[u] += s->bits[x];
        if (pgm_adjacency_push(g, u, x) || pgm_adjacency_push(g, x, u)) return -1;
    }
    return 0;
}

/* The lower bound of a graph. At the limit of work, the bound found so far is returned. The heap is
 * that of a search, with the bits of the cliques as scores. */
static int pgm_bound_of(const pgm_adjacency *graph, const double *bits, double *bound)
{
    pgm_greedy s;
    int64_t work = 0;
    int status = 0;
    if (pgm_greedy_allocate(&s, graph->n, graph->used)) return -1;
    status = pgm_greedy_start(&s, graph, bits, PGM_ORDER_WEIGHT, 0, 0.0, -1.0);
    for (int32_t v = 0; status == 0 && v < graph->n; v++)
        s.missing[v] = 1, s.fill[v] = 0.0, pgm_greedy_touch(&s, v);
    while (status == 0 && work < 50000000) {
        pgm_greedy_settle(&s);
        if (!s.waiting) break;
        int32_t v = s.heap[0];
        double clique = s.bits[v] + s.load[v];
        *bound = clique > *bound ? clique : *bound;
        pgm_greedy_remove(&s, v);
        s.slot[v] = -1;
        int32_t u = pgm_bound_partner(&s, v, &work);
        if (u >= 0)
            status = pgm_bound_contract(&s, v, u);
        else
            s.g.alive[v] = 0;
    }
    pgm_greedy_free(&s);
    return status;
}

int pgm_orders_bound(const pgm_orders *o, double *bound)
{
    *bound = o->low;
    for (int32_t k = 0; k < o->parts; k++)
        if (pgm_bound_of(&o->part[k].graph, o->part[k].bits, bound)) return -1;
    return 0;
}

/* ---- opening: safe reductions, and components ---- */

/* number the components of the remaining graph of s; label (n,) is -1 for removed vertices */
static int32_t pgm_orders_label(pgm_greedy *s, int32_t *label, int32_t *queue, int32_t *size)
{
    pgm_adjacency *g = &s->g;
    int32_t parts = 0;
    for (int32_t v = 0; v < g->n; v++) label[v] = -1;
    for (int32_t v = 0; v < g->n; v++) {
        if (!g->alive[v] || label[v] >= 0) continue;
        int32_t end = 1;
        queue[0] = v, label[v] = parts;
        for (int32_t q = 0; q < end; q++)
            for (int64_t i = g->at[queue[q]]; i < g->at[queue[q]] + g->length[queue[q]]; i++) {
                int32_t u = g->pool[i];
                if (g->alive[u] && label[u] < 0) label[u] = parts, queue[end++] = u;
            }
        size[parts++] = end;
    }
    return parts;
}

static int pgm_part_fill(pgm_part *p, const pgm_greedy *s, const int32_t *label, int32_t *place,
                         int32_t k, int32_t size)
{
    p->total = INFINITY;
    p->vertex = malloc(size * sizeof *p->vertex), p->order = malloc(size * sizeof *p->order);
    p->bits = malloc(size * sizeof *p->bits);
    if (!p->vertex || !p->order || !p->bits) return -1;
    int32_t count = 0;
    for (int32_t v = 0; v < s->g.n; v++)
        if (label[v] == k) place[v] = count, p->bits[count] = s->bits[v], p->vertex[count++] = v;
    return pgm_adjacency_part(&p->graph, &s->g, p->vertex, size, place);
}

static int pgm_orders_split(pgm_orders *o, pgm_greedy *s)
{
    int32_t *label = malloc((4 * (int64_t)o->n + 1) * sizeof *label);
    if (!label) return -1;
    int32_t *place = label + o->n, *size = place + o->n, *queue = size + o->n;
    int32_t parts = pgm_orders_label(s, label, queue, size);
    o->part = calloc(parts + 1, sizeof *o->part);
    int status = o->part ? 0 : -1;
    for (int32_t k = 0; status == 0 && k < parts; k++) {
        o->parts = k + 1;
        status = pgm_part_fill(&o->part[k], s, label, place, k, size[k]);
    }
    free(label);
    return status;
}

/* Eliminate the vertices that are safe, and split the rest into components. */
static int pgm_orders_reduce(pgm_orders *o)
{
    pgm_greedy s;
    if (pgm_greedy_allocate(&s, o->n, o->graph.used)) return -1;
    int status = pgm_greedy_start(&s, &o->graph, o->bits, PGM_ORDER_FILL, 0, 0.0, 0.0);
    while (status == 0) {
        status = pgm_greedy_run(&s, 1, INFINITY);
        if (status || s.largest <= s.low) break;
        /* a larger clique has been found, which makes more reductions safe */
        s.low = s.largest;
        for (int32_t i = 0; i < s.waiting; i++)
            if (s.missing[s.heap[i]] == 1) pgm_greedy_touch(&s, s.heap[i]);
        pgm_greedy_settle(&s);
    }
    o->first = s.count, o->low = s.largest;
    memcpy(o->prefix, s.order, s.count * sizeof *s.order);
    if (status == 0) status = pgm_orders_split(o, &s);
    pgm_greedy_free(&s);
    return status;
}

pgm_orders *pgm_orders_open(int64_t n, const int64_t *cards, int64_t factors, const int64_t *start,
                            const int32_t *scope)
{
    pgm_orders *o = calloc(1, sizeof *o);
    if (!o) return NULL;
    o->n = n;
    o->bits = malloc((n + 1) * sizeof *o->bits), o->prefix = malloc((n + 1) * sizeof *o->prefix);
    if (!o->bits || !o->prefix || pgm_adjacency_build(&o->graph, n, factors, start, scope, cards)) {
        pgm_orders_close(o);
        return NULL;
    }
    for (int64_t v = 0; v < n; v++) o->bits[v] = log2((double)cards[v]);
    if (pgm_orders_reduce(o)) {
        pgm_orders_close(o);
        return NULL;
    }
    return o;
}

/* ---- searches ---- */

int pgm_orders_greedy(pgm_orders *o, int rule, uint64_t seed, double noise, double best,
                      pgm_order_watch watch)
{
    int status = 0;
    for (int32_t k = 0; status >= 0 && k < o->parts; k++) {
        pgm_part *p = &o->part[k];
        pgm_greedy s;
        if (pgm_greedy_allocate(&s, p->graph.n, 2 * p->graph.used)) return -1;
        status = pgm_greedy_start(&s, &p->graph, p->bits, rule, seed, noise, o->low);
        s.watch = watch;
        if (status == 0) status = pgm_greedy_run(&s, 0, best < p->total ? best : p->total);
        if (status == 0 && s.total < p->total) {
            p->total = s.total;
            memcpy(p->order, s.order, s.count * sizeof *s.order);
        }
        o->work += s.work;
        pgm_greedy_free(&s);
    }
    o->work += 100;
    return status < 0 ? status : 0;
}

/* Compare an order of the whole graph with the best of each component. */
int pgm_orders_offer(pgm_orders *o, const int32_t *order)
{
    int32_t *place = malloc((2 * (int64_t)o->n + 1) * sizeof *place), *own = place + o->n;
    int status = place ? 0 : -1;
    for (int32_t i = 0; status == 0 && i < o->n; i++) place[order[i]] = i, own[i] = -1;
    for (int32_t k = 0; status == 0 && k < o->parts; k++) {
        pgm_part *p = &o->part[k];
        for (int32_t i = 0; i < p->graph.n; i++) own[place[p->vertex[i]]] = i;
        for (int32_t i = 0, count = 0; i < o->n; i++) {
            if (own[i] >= 0) own[count++] = own[i];
            if (i >= count) own[i] = -1;
        }
        double entries, largest;
        status = pgm_cliques_cost(&p->graph, p->bits, own, &entries, &largest);
        if (status == 0 && entries < p->total) {
            p->total = entries;
            memcpy(p->order, own, p->graph.n * sizeof *own);
        }
        for (int32_t i = 0; i < o->n; i++) own[i] = -1;
    }
    free(place);
    return status;
}

int64_t pgm_orders_work(const pgm_orders *o) { return o->work; }

int64_t pgm_orders_parts(const pgm_orders *o) { return o->parts; }

int pgm_orders_improve(pgm_orders *o, uint64_t seed, int64_t rounds, int64_t window,
                       pgm_order_watch watch)
{
    int status = 0;
    for (int32_t k = 0; status >= 0 && k < o->parts; k++) {
        pgm_part *p = &o->part[k];
        if (p->total == INFINITY) continue;
        status = pgm_windows_improve(&p->graph, p->bits, p->order, &p->total, o->low, seed + k,
                                     rounds, window, &o->work, watch);
    }
    o->work += 100;
    return status;
}

int pgm_orders_best(const pgm_orders *o, int32_t *order)
{
    int32_t count = o->first;
    for (int32_t i = 0; i < count; i++) order[i] = o->prefix[i];
    for (int32_t k = 0; k < o->parts; k++) {
        const pgm_part *p = &o->part[k];
        if (p->total == INFINITY) return 1;
        for (int32_t i = 0; i < p->graph.n; i++) order[count++] = p->vertex[p->order[i]];
    }
    return 0;
}

int pgm_orders_cost(const pgm_orders *o, const int32_t *order, double *entries, double *largest)
{
    return pgm_cliques_cost(&o->graph, o->bits, order, entries, largest);
}
