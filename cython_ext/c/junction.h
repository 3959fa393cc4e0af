/* The junction tree of an elimination order, and the schedule of its messages.
 *
 * Symbolic elimination. The variables are eliminated in order. The clique of variable v contains v,
 * the scopes of the factors in which v comes first, and the separators of the children of v. The
 * separator of v is its clique without v. The children of v are the earlier variables whose
 * separator has v as its first member. The clique of v is contained in the clique of a child w if
 * and only if it equals the separator of w; then v joins the group of w. A group stands for a
 * maximal clique, which is the clique of its first variable. The residual variables of this clique
 * are the members of the group, and its separator is the separator of the last member (Blair and
 * Peyton 1993). Time and memory are proportional to the sum of the sizes of the cliques of all
 * variables.
 *
 * Layout. Axes of cliques and separators are in the order of elimination, and the last one varies
 * fastest. The residual axes of a clique are therefore its slowest ones, a message is a sum of
 * contiguous pieces, and a separator has the same order of axes on both of its sides. Cliques are
 * numbered sub-tree by sub-tree, with the root of each sub-tree last. The messages of the children
 * of a clique are then the most recent ones that are still needed, and are on top of a stack.
 *
 * Schedule. The last axes of a clique, up to PGM_TREE_BLOCK entries, make a block. For each table
 * that is multiplied into the clique, the offsets of the segments of a block are listed once
 * (pgm_operand). The outer axes step through the clique by adding to the offsets of the tables
 * (delta).
 *
 * Invariant: no time or memory of this file is proportional to the number of entries of a clique.
 * Reference: build_tree in tests/numpy_tree.py (test_junction_tree.py).
 */
#ifndef PGM_JUNCTION_H
#define PGM_JUNCTION_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "routines.h"

#define PGM_TREE_BLOCK 512
/* the most cliques that are examined to find a smaller one for a factor */
#define PGM_TREE_LOOKS 64

typedef struct {
    int64_t variables, factors, cliques;
    const int64_t *card, *start; /* (variables), (factors + 1) */
    const int32_t *scope, *order;
    int64_t *member_start; /* (cliques + 1) into member */
    int32_t *member;       /* axes of the cliques, in the order of elimination */
    int32_t *residual;     /* (cliques) number of residual axes */
    int32_t *parent;       /* (cliques), -1 at a root */
    int64_t *child_start;  /* (cliques + 1) into child */
    int32_t *child;
    int32_t *home;         /* (factors) clique, -1 for an empty scope */
    int64_t *own_start;    /* (cliques + 1) into own */
    int32_t *own;
    double *size;          /* (cliques) entries */
    double *separator;     /* (cliques) entries of the separator */
    double peak;           /* entries of the messages that a collect pass stores at once */
    /* the schedule, made before the first run */
    pgm_clique *clique;
    int64_t *card_of_axis, *stride, *delta;
    pgm_operand *operand;
    int32_t *at;
    int64_t most_operands, most_axes, most_inner;
} pgm_tree;

static void pgm_tree_free(pgm_tree *t)
{
    void *all[] = {t->member_start, t->member,       t->residual, t->parent,  t->child_start,
                   t->child,        t->home,         t->own_start, t->own,    t->size,
                   t->separator,    t->clique,       t->card_of_axis, t->stride, t->delta,
                   t->operand,      t->at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void *pgm_room(int64_t count, size_t size)
{
    return calloc(count > 0 ? (size_t)count : 1, size);
}

/* ---- symbolic elimination ---- */

/* The cliques of all variables while they are found, as lists of positions in the order. */
typedef struct {
    int32_t *position; /* (variables) */
    int32_t *mark;     /* (variables), by position */
    int32_t *bucket;   /* (variables) first factor whose first variable is at this position */
    int32_t *next;     /* (factors) */
    int32_t *kid;      /* (variables) first child, */
    int32_t *sibling;  /* (variables) and the next one */
    int32_t *up;       /* (variables) first member of the separator, -1 without */
    int32_t *lead;     /* (variables) first variable of the group */
    int32_t *last;     /* (variables) last variable of a group, at its first one */
    int64_t *begin;    /* (variables + 1) into list */
    int32_t *list;
    int64_t room;
} pgm_search;

static void pgm_search_free(pgm_search *s)
{
    void *all[] = {s->position, s->mark, s->bucket, s->next,  s->kid, s->sibling,
                   s->up,       s->lead, s->last,   s->begin, s->list};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static int pgm_search_open(pgm_search *s, int64_t n, int64_t factors)
{
    int32_t **all[] = {&s->position, &s->mark, &s->bucket, &s->kid,
                       &s->sibling,  &s->up,   &s->lead,   &s->last};
    int fine = 1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i] = pgm_room(n, sizeof(int32_t));
        if (!*all[i]) fine = 0;
    }
    s->next = pgm_room(factors, sizeof(int32_t));
    s->begin = pgm_room(n + 1, sizeof(int64_t));
    s->room = 8 * n + 64;
    s->list = pgm_room(s->room, sizeof(int32_t));
    return fine && s->next && s->begin && s->list;
}

/* Put every factor into the bucket of its first variable. */
static void pgm_fill_buckets(const pgm_tree *t, pgm_search *s)
{
    for (int64_t i = 0; i < t->variables; i++) {
        s->position[t->order[i]] = (int32_t)i;
        s->mark[i] = s->bucket[i] = s->kid[i] = s->up[i] = -1;
    }
    for (int64_t f = t->factors - 1; f >= 0; f--) {
        if (t->start[f] == t->start[f + 1]) continue;
        int32_t first = INT32_MAX;
        for (int64_t k = t->start[f]; k < t->start[f + 1]; k++) {
            int32_t p = s->position[t->scope[k]];
            if (p < first) first = p;
        }
        s->next[f] = s->bucket[first];
        s->bucket[first] = (int32_t)f;
    }
}

/* Double the room of the lists until `more` numbers fit after `used`. */
static int pgm_list_room(pgm_search *s, int64_t used, int64_t more)
{
    if (used + more <= s->room) return 1;
    while (s->room < used + more) s->room *= 2;
    int32_t *list = realloc(s->list, (size_t)s->room * sizeof *list);
    if (!list) return 0;
    s->list = list;
    return 1;
}

/* Collect the clique of position i at the end of the lists; its end, or -1 without memory. */
static int64_t pgm_clique_of(const pgm_tree *t, pgm_search *s, int32_t i)
{
    int64_t end = s->begin[i];
    if (!pgm_list_room(s, end, 1)) return -1;
    s->list[end++] = i;
    s->mark[i] = i;
    for (int32_t f = s->bucket[i]; f >= 0; f = s->next[f]) {
        if (!pgm_list_room(s, end, t->start[f + 1] - t->start[f])) return -1;
        for (int64_t k = t->start[f]; k < t->start[f + 1]; k++) {
            int32_t p = s->position[t->scope[k]];
            if (s->mark[p] != i) s->mark[p] = i, s->list[end++] = p;
        }
    }
    for (int32_t w = s->kid[i]; w >= 0; w = s->sibling[w]) {
        if (!pgm_list_room(s, end, s->begin[w + 1] - s->begin[w])) return -1;
        for (int64_t k = s->begin[w] + 1; k < s->begin[w + 1]; k++) {
            int32_t p = s->list[k];
            if (s->mark[p] != i) s->mark[p] = i, s->list[end++] = p;
        }
    }
    return end;
}

/* Eliminate all variables; 0 without memory. */
static int pgm_eliminate(const pgm_tree *t, pgm_search *s)
{
    s->begin[0] = 0;
    for (int32_t i = 0; i < t->variables; i++) {
        int64_t end = pgm_clique_of(t, s, i);
        if (end < 0) return 0;
        s->begin[i + 1] = end;
        s->lead[i] = i;
        for (int32_t w = s->kid[i]; w >= 0; w = s->sibling[w])
            if (s->begin[w + 1] - s->begin[w] - 1 == end - s->begin[i]) {
                s->lead[i] = s->lead[w];
                break;
            }
        s->last[s->lead[i]] = i;
        int32_t up = INT32_MAX;
        for (int64_t k = s->begin[i] + 1; k < end; k++)
            if (s->list[k] < up) up = s->list[k];
        if (up == INT32_MAX) continue;
        s->up[i] = up;
        s->sibling[i] = s->kid[up];
        s->kid[up] = i;
    }
    return 1;
}

static int pgm_by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void pgm_sort_numbers(int32_t *x, int64_t n)
{
    if (n > 24) {
        qsort(x, (size_t)n, sizeof *x, pgm_by_number);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        int32_t v = x[i];
        int64_t k = i;
        for (; k > 0 && x[k - 1] > v; k--) x[k] = x[k - 1];
        x[k] = v;
    }
}

/* List numbers 0 .. count - 1 by their key in 0 .. keys - 1 (-1: not listed). */
static int pgm_group_by(const int32_t *key, int64_t count, int64_t keys, int64_t **start,
                        int32_t **list)
{
    *start = pgm_room(keys + 1, sizeof(int64_t));
    *list = pgm_room(count, sizeof(int32_t));
    if (!*start || !*list) return 0;
    for (int64_t i = 0; i < count; i++)
        if (key[i] >= 0) (*start)[key[i] + 1]++;
    for (int64_t k = 0; k < keys; k++) (*start)[k + 1] += (*start)[k];
    for (int64_t i = count - 1; i >= 0; i--)
        if (key[i] >= 0) (*list)[--(*start)[key[i] + 1]] = (int32_t)i;
    /* every start has moved to the end of its key: move the starts back */
    for (int64_t k = 0; k < keys; k++) (*start)[k] = (*start)[k + 1];
    (*start)[keys] = 0;
    for (int64_t i = 0; i < count; i++) (*start)[keys] += key[i] >= 0;
    return 1;
}

/* The groups while they are put in order: by their last variables, then as cliques. */
typedef struct {
    int64_t count;
    int32_t *lead;   /* position of the first variable */
    int32_t *parent; /* -1 at a root */
    int32_t *number; /* of the clique */
    int64_t *start;  /* children of each group, */
    int32_t *child;  /* in the order in which they send their messages */
    double *message; /* entries of the separator */
    double *peak;    /* entries that are stored at once while its sub-tree is collected */
} pgm_groups;

static void pgm_groups_free(pgm_groups *g)
{
    void *all[] = {g->lead, g->parent, g->number, g->start, g->child, g->message, g->peak};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Find the groups, their parents and the sizes of their messages; 0 without memory. */
static int pgm_find_groups(const pgm_tree *t, const pgm_search *s, pgm_groups *g)
{
    int64_t n = t->variables, count = 0;
    int32_t *number = s->mark; /* by position of the first variable of a group */
    for (int32_t i = 0; i < n; i++)
        if (s->last[s->lead[i]] == i) number[s->lead[i]] = (int32_t)count++;
    g->count = count;
    g->lead = pgm_room(count, sizeof(int32_t));
    g->parent = pgm_room(count, sizeof(int32_t));
    g->number = pgm_room(count, sizeof(int32_t));
    g->message = pgm_room(count, sizeof(double));
    g->peak = pgm_room(count, sizeof(double));
    if (!g->lead || !g->parent || !g->number || !g->message || !g->peak) return 0;
    for (int32_t i = 0, k = 0; i < n; i++) {
        if (s->last[s->lead[i]] != i) continue;
        g->lead[k] = s->lead[i];
        g->parent[k] = s->up[i] < 0 ? -1 : number[s->lead[s->up[i]]];
        g->message[k] = 1.0;
        for (int64_t m = s->begin[i] + 1; m < s->begin[i + 1]; m++)
            g->message[k] *= (double)t->card[t->order[s->list[m]]];
        k++;
    }
    return pgm_group_by(g->parent, count, count, &g->start, &g->child);
}

/* Sort the children of each group by their peak minus their message, the largest first, and compute
 * the peaks of the groups (Liu 1986). More than 16 children keep their order. */
static void pgm_sort_children(pgm_groups *g)
{
    for (int64_t i = 0; i < g->count; i++) {
        int64_t first = g->start[i], end = g->start[i + 1], few = end - first <= 16;
        for (int64_t k = first + 1; k < end; k++) {
            int32_t c = g->child[k];
            double need = g->peak[c] - g->message[c];
            int64_t m = k;
            for (; few && m > first; m--) {
                int32_t d = g->child[m - 1];
                if (g->peak[d] - g->message[d] >= need) break;
                g->child[m] = d;
            }
            g->child[m] = c;
        }
        double below = 0.0;
        for (int64_t k = first; k < end; k++) {
            int32_t c = g->child[k];
            if (below + g->peak[c] > g->peak[i]) g->peak[i] = below + g->peak[c];
            below += g->message[c];
        }
        if (below + g->message[i] > g->peak[i]) g->peak[i] = below + g->message[i];
    }
}

/* Number the groups so that each sub-tree comes before its root, child by child. A group that is
 * not finished has the number -1 - (number of children that have been entered). */
static void pgm_number_groups(pgm_groups *g)
{
    int32_t next = 0;
    for (int64_t i = 0; i < g->count; i++) g->number[i] = -1;
    for (int64_t root = 0; root < g->count; root++) {
        int32_t at = (int32_t)root;
        if (g->parent[root] >= 0) continue;
        while (at >= 0) {
            int64_t child = g->start[at] - 1 - g->number[at];
            if (child < g->start[at + 1]) {
                g->number[at]--;
                at = g->child[child];
            } else {
                g->number[at] = next++;
                at = g->parent[at];
            }
        }
    }
}

static int pgm_clique_room(pgm_tree *t, int64_t cliques, int64_t members)
{
    t->cliques = cliques;
    t->member_start = pgm_room(cliques + 1, sizeof(int64_t));
    t->member = pgm_room(members, sizeof(int32_t));
    t->residual = pgm_room(cliques, sizeof(int32_t));
    t->parent = pgm_room(cliques, sizeof(int32_t));
    t->size = pgm_room(cliques, sizeof(double));
    t->separator = pgm_room(cliques, sizeof(double));
    return t->member_start && t->member && t->residual && t->parent && t->size && t->separator;
}

/* Write group i as a clique. */
static void pgm_write_clique(pgm_tree *t, const pgm_search *s, const pgm_groups *g, int64_t i)
{
    int32_t lead = g->lead[i], last = s->last[lead];
    int64_t c = g->number[i], count = s->begin[lead + 1] - s->begin[lead];
    int32_t *axis = t->member + t->member_start[c];
    memcpy(axis, s->list + s->begin[lead], (size_t)count * sizeof *axis);
    pgm_sort_numbers(axis, count);
    t->residual[c] = (int32_t)(count - (s->begin[last + 1] - s->begin[last]) + 1);
    t->parent[c] = g->parent[i] < 0 ? -1 : g->number[g->parent[i]];
    t->size[c] = 1.0;
    t->separator[c] = g->message[i];
    for (int64_t k = 0; k < count; k++) {
        axis[k] = t->order[axis[k]];
        t->size[c] *= (double)t->card[axis[k]];
    }
    if (g->parent[i] < 0 && g->peak[i] > t->peak) t->peak = g->peak[i];
}

/* Make a clique of each group; 0 without memory. */
static int pgm_list_cliques(pgm_tree *t, pgm_search *s)
{
    pgm_groups g = {0};
    int64_t members = 0;
    int fine = pgm_find_groups(t, s, &g);
    if (fine) {
        pgm_sort_children(&g);
        pgm_number_groups(&g);
        for (int64_t i = 0; i < g.count; i++)
            members += s->begin[g.lead[i] + 1] - s->begin[g.lead[i]];
        fine = pgm_clique_room(t, g.count, members);
    }
    if (fine) {
        for (int64_t i = 0; i < g.count; i++)
            t->member_start[g.number[i] + 1] = s->begin[g.lead[i] + 1] - s->begin[g.lead[i]];
        for (int64_t c = 0; c < g.count; c++) t->member_start[c + 1] += t->member_start[c];
        for (int64_t i = 0; i < g.count; i++) pgm_write_clique(t, s, &g, i);
    }
    pgm_groups_free(&g);
    return fine;
}

/* Go down from a clique to smaller ones whose separator contains the scope of factor f. */
static int32_t pgm_smaller_home(const pgm_tree *t, int64_t f, int32_t c, const int32_t *mark)
{
    int64_t most = t->start[f + 1] - t->start[f];
    int looks = PGM_TREE_LOOKS;
    for (int moved = 1; moved;) {
        moved = 0;
        for (int64_t k = t->child_start[c]; k < t->child_start[c + 1] && looks-- > 0; k++) {
            int32_t d = t->child[k];
            int64_t found = 0;
            if (t->size[d] >= t->size[c]) continue;
            for (int64_t m = t->member_start[d] + t->residual[d]; m < t->member_start[d + 1]; m++)
                found += mark[t->member[m]] == f;
            if (found < most) continue;
            c = d;
            moved = 1;
            break;
        }
    }
    return c;
}

static int pgm_place_factors(pgm_tree *t, pgm_search *s)
{
    int32_t *number = s->kid; /* by position: the clique in which a variable is residual */
    int32_t *mark = s->mark;
    for (int64_t c = 0; c < t->cliques; c++)
        for (int64_t k = 0; k < t->residual[c]; k++)
            number[s->position[t->member[t->member_start[c] + k]]] = (int32_t)c;
    t->home = pgm_room(t->factors, sizeof(int32_t));
    if (!t->home || !pgm_group_by(t->parent, t->cliques, t->cliques, &t->child_start, &t->child))
        return 0;
    for (int64_t i = 0; i < t->variables; i++) mark[i] = -1;
    for (int64_t f = 0; f < t->factors; f++) {
        int32_t first = INT32_MAX;
        for (int64_t k = t->start[f]; k < t->start[f + 1]; k++) {
            int32_t v = t->scope[k];
            if (s->position[v] < first) first = s->position[v];
            mark[v] = (int32_t)f;
        }
        t->home[f] = first == INT32_MAX ? -1 : pgm_smaller_home(t, f, number[first], mark);
    }
    return pgm_group_by(t->home, t->factors, t->cliques, &t->own_start, &t->own);
}

/* Build the tree of t->order; 0 without memory. The input has been checked. */
static int pgm_tree_build(pgm_tree *t)
{
    pgm_search s = {0};
    int fine = pgm_search_open(&s, t->variables, t->factors);
    if (fine) {
        pgm_fill_buckets(t, &s);
        fine = pgm_eliminate(t, &s) && pgm_list_cliques(t, &s) && pgm_place_factors(t, &s);
    }
    pgm_search_free(&s);
    return fine;
}

/* ---- the schedule ---- */

/* The number of axes in a block, and its entries. */
static int32_t pgm_block_axes(const pgm_tree *t, int64_t c, int64_t *inner)
{
    int64_t first = t->member_start[c], k = t->member_start[c + 1];
    *inner = 1;
    while (k > first) {
        int64_t card = t->card[t->member[k - 1]];
        if (*inner > 1 && *inner * card > PGM_TREE_BLOCK) break;
        *inner *= card;
        k--;
    }
    return (int32_t)(t->member_start[c + 1] - k);
}

/* Strides of a table with axes `variable` (count), the last fastest, on the axes of a clique. */
static void pgm_strides_of(const pgm_tree *t, const pgm_clique *c, const int32_t *axis_of,
                           const int32_t *variable, int64_t count, int64_t operand,
                           int64_t *stride)
{
    int64_t size = 1;
    for (int64_t k = count - 1; k >= 0; k--) {
        stride[axis_of[variable[k]] * c->operands + operand] = size;
        size *= t->card[variable[k]];
    }
}

/* Choose the segments of operand o; returns their number. */
static int64_t pgm_choose_segments(pgm_clique *c, int64_t o)
{
    pgm_operand *p = c->operand + o;
    int32_t a = c->axes - 1;
    while (a >= c->outer && c->card[a] == 1) a--;
    p->along = a < c->outer || c->stride[a * c->operands + o] == 1;
    p->run = 1;
    for (; a >= c->outer; a--) {
        if (c->card[a] > 1 && c->stride[a * c->operands + o] != (p->along ? p->run : 0)) break;
        p->run *= c->card[a];
    }
    return c->inner / p->run;
}

/* List the first entries of the segments of operand o. */
static void pgm_list_segments(const pgm_clique *c, int64_t o, int32_t *at)
{
    const pgm_operand *p = c->operand + o;
    int32_t a = c->axes - 1;
    int64_t n = 1;
    for (int64_t run = 1; run < p->run; a--) run *= c->card[a];
    at[0] = 0;
    for (; a >= c->outer; a--) {
        int32_t step = (int32_t)c->stride[a * c->operands + o];
        for (int64_t s = 1; s < c->card[a]; s++)
            for (int64_t i = 0; i < n; i++) at[s * n + i] = at[i] + (int32_t)s * step;
        n *= c->card[a];
    }
}

/* Changes of the offsets if axis a steps and all faster outer axes return to their start. */
static void pgm_fill_delta(const pgm_clique *c, int64_t *delta)
{
    for (int64_t o = 0; o < c->operands; o++) {
        int64_t back = 0;
        for (int32_t a = c->outer - 1; a >= 0; a--) {
            int64_t stride = c->stride[a * c->operands + o];
            delta[a * c->operands + o] = stride - back;
            back += (c->card[a] - 1) * stride;
        }
    }
}

static void pgm_describe(pgm_tree *t, int64_t i, int32_t *axis_of, int64_t *stride,
                         int64_t *delta)
{
    pgm_clique *c = t->clique + i;
    const int32_t *own = t->own + t->own_start[i], *child = t->child + t->child_start[i];
    int64_t children = t->child_start[i + 1] - t->child_start[i];
    c->variable = t->member + t->member_start[i];
    c->card = t->card_of_axis + t->member_start[i];
    c->stride = stride;
    c->delta = delta;
    c->residual = t->residual[i];
    c->parent = t->parent[i];
    c->entries = (int64_t)t->size[i];
    c->separator = (int64_t)t->separator[i];
    for (int32_t a = 0; a < c->axes; a++) {
        axis_of[c->variable[a]] = a;
        t->card_of_axis[t->member_start[i] + a] = t->card[c->variable[a]];
    }
    for (int64_t k = 0; k < c->factors; k++) {
        int64_t f = own[k];
        c->operand[k].table = f;
        pgm_strides_of(t, c, axis_of, t->scope + t->start[f], t->start[f + 1] - t->start[f], k,
                       stride);
    }
    for (int64_t k = 0; k <= children; k++) {
        int64_t d = k < children ? child[k] : i, from = t->member_start[d] + t->residual[d];
        c->operand[c->factors + k].table = t->factors + d;
        pgm_strides_of(t, c, axis_of, t->member + from, t->member_start[d + 1] - from,
                       c->factors + k, stride);
    }
    pgm_fill_delta(c, delta);
}

/* Count the operands and axes of all cliques, and make room for their descriptions. */
static int pgm_plan_room(pgm_tree *t)
{
    int64_t strides = 0, deltas = 0;
    t->most_operands = t->most_axes = t->most_inner = 1;
    for (int64_t i = 0; i < t->cliques; i++) {
        pgm_clique *c = t->clique + i;
        c->axes = (int32_t)(t->member_start[i + 1] - t->member_start[i]);
        c->outer = c->axes - pgm_block_axes(t, i, &c->inner);
        c->factors = (int32_t)(t->own_start[i + 1] - t->own_start[i]);
        c->operands = c->factors + 1 + (int32_t)(t->child_start[i + 1] - t->child_start[i]);
        strides += (int64_t)c->axes * c->operands;
        deltas += (int64_t)c->outer * c->operands;
        if (c->operands > t->most_operands) t->most_operands = c->operands;
        if (c->axes > t->most_axes) t->most_axes = c->axes;
        if (c->inner > t->most_inner) t->most_inner = c->inner;
    }
    t->card_of_axis = pgm_room(t->member_start[t->cliques], sizeof(int64_t));
    t->stride = pgm_room(strides, sizeof(int64_t));
    t->delta = pgm_room(deltas, sizeof(int64_t));
    t->operand = pgm_room(t->factors + 2 * t->cliques, sizeof(pgm_operand));
    return t->card_of_axis && t->stride && t->delta && t->operand;
}

/* Make the schedule; 0 without memory. Every clique has fewer than 2^62 entries. */
static int pgm_tree_plan(pgm_tree *t)
{
    int64_t segments = 0, operands = 0, strides = 0, deltas = 0;
    int32_t *axis_of = pgm_room(t->variables, sizeof(int32_t));
    t->clique = pgm_room(t->cliques, sizeof(pgm_clique));
    if (!axis_of || !t->clique || !pgm_plan_room(t)) {
        free(axis_of);
        return 0;
    }
    for (int64_t i = 0; i < t->cliques; i++) {
        pgm_clique *c = t->clique + i;
        c->operand = t->operand + operands;
        pgm_describe(t, i, axis_of, t->stride + strides, t->delta + deltas);
        operands += c->operands;
        strides += (int64_t)c->axes * c->operands;
        deltas += (int64_t)c->outer * c->operands;
        for (int64_t o = 0; o < c->operands; o++) segments += pgm_choose_segments(c, o);
    }
    free(axis_of);
    t->at = pgm_room(segments, sizeof(int32_t));
    if (!t->at) return 0;
    segments = 0;
    for (int64_t i = 0; i < t->cliques; i++)
        for (int64_t o = 0; o < t->clique[i].operands; o++) {
            pgm_operand *p = t->clique[i].operand + o;
            pgm_list_segments(t->clique + i, o, t->at + segments);
            p->at = t->at + segments;
            segments += t->clique[i].inner / p->run;
        }
    return 1;
}

#endif
