/* A junction tree for rows of many evidence patterns: the tree of the model that they share,
 * restricted to the states that are possible for one row.
 *
 * A row observes some variables, and leaves them one state. Zeros of tables then exclude states of
 * others: a state is impossible if a table is 0 wherever it occurs, and so on until nothing changes
 * (generalised arc consistency). Cliques, separators and their order stay as they are, with fewer
 * states, so that no order is searched and no clique is found again. Tables are copied at the
 * states that are left; only the sizes and the schedule are made for each row.
 *
 * Layout. State s of variable v is number first[v] + s of all states. The states of v that are left
 * are kept[first[v]] .. kept[first[v] + card[v] - 1], ascending.
 *
 * Reference: the whole tree with the evidence as indicator tables, and remove_impossible in
 * pgmengine/infer/exact/possible.py (test_restricted_trees.py).
 */
#ifndef PGM_RESTRICT_H
#define PGM_RESTRICT_H

#include <math.h>

#include "junction.h"

/* The table of a factor: its entries are value[0], value[step], value[2 step] .. */
typedef struct {
    const double *value;
    int64_t step;
} pgm_entries;

typedef struct {
    const pgm_tree *whole;
    int64_t *first;    /* (variables + 1) */
    int64_t *card;     /* (variables) states that are left */
    int32_t *kept;     /* (states) */
    uint8_t *found;    /* (states of one factor) states with a possible entry */
    int64_t *stride;   /* (axes of one factor) */
    int64_t *digit;    /* (axes of one factor) */
    int64_t *of_start; /* (variables + 1) into of: */
    int32_t *of;       /* factors with zeros that each variable is in */
    int32_t *queue;    /* (factors) waiting for a visit */
    uint8_t *waiting;  /* (factors) */
    uint8_t *own;      /* (factors) whether zeros differ from row to row */
    int64_t waits;
} pgm_part;

static int pgm_any_zero(const double *value, int64_t n)
{
    int any = 0;
    for (int64_t i = 0; i < n; i++) any |= value[i] == -INFINITY;
    return any;
}

static void pgm_part_close(pgm_part *p)
{
    void *all[] = {p->first, p->card,  p->kept,    p->found, p->stride,  p->digit,
                   p->of,    p->queue, p->waiting, p->own,   p->of_start};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Make room, and list the factors of each variable that have zeros (tight); 0 without memory.
 * Tables of `wide` factors differ from row to row. */
static int pgm_part_open(pgm_part *p, const pgm_tree *t, const uint8_t *tight,
                         const uint8_t *wide)
{
    int64_t axes = 0, states = 0;
    p->whole = t;
    p->first = pgm_tree_room(t->variables + 1, sizeof(int64_t));
    p->card = pgm_tree_room(t->variables, sizeof(int64_t));
    p->of_start = pgm_tree_room(t->variables + 2, sizeof(int64_t));
    p->of = pgm_tree_room(t->start[t->factors], sizeof(int32_t));
    p->queue = pgm_tree_room(t->factors, sizeof(int32_t));
    p->waiting = pgm_tree_room(t->factors, 1);
    p->own = pgm_tree_room(t->factors, 1);
    if (!p->first || !p->card || !p->of_start || !p->of || !p->queue || !p->waiting || !p->own)
        return 0;
    for (int64_t v = 0; v < t->variables; v++) p->first[v + 1] = p->first[v] + t->card[v];
    for (int64_t f = 0; f < t->factors; f++) {
        int64_t own = 0, n = t->start[f + 1] - t->start[f];
        for (int64_t k = t->start[f]; k < t->start[f + 1]; k++) {
            own += t->card[t->scope[k]];
            p->of_start[t->scope[k] + 2] += tight[f];
        }
        if (own > states) states = own;
        if (n > axes) axes = n;
        p->own[f] = tight[f] && wide[f] && n;
    }
    for (int64_t v = 0; v < t->variables; v++) p->of_start[v + 2] += p->of_start[v + 1];
    for (int64_t f = 0; f < t->factors; f++)
        for (int64_t k = t->start[f]; tight[f] && k < t->start[f + 1]; k++)
            p->of[p->of_start[t->scope[k] + 1]++] = (int32_t)f;
    p->kept = pgm_tree_room(p->first[t->variables], sizeof(int32_t));
    p->found = pgm_tree_room(states, 1);
    p->stride = pgm_tree_room(axes, sizeof(int64_t));
    p->digit = pgm_tree_room(axes, sizeof(int64_t));
    return p->kept && p->found && p->stride && p->digit;
}

/* Let the tight factors of a variable wait for a visit. */
static void pgm_part_wake(pgm_part *p, int64_t v)
{
    for (int64_t k = p->of_start[v]; k < p->of_start[v + 1]; k++) {
        int32_t f = p->of[k];
        if (!p->waiting[f]) p->waiting[f] = 1, p->queue[p->waits++] = f;
    }
}

/* ---- the entries of a factor that are left ---- */

/* Begin with the first entry of factor f that is left; returns its place in the whole table. */
static int64_t pgm_part_first(pgm_part *p, int64_t f)
{
    const pgm_tree *t = p->whole;
    const int32_t *scope = t->scope + t->start[f];
    int64_t at = 0, size = 1;
    for (int64_t a = t->start[f + 1] - t->start[f] - 1; a >= 0; a--) {
        p->stride[a] = size;
        p->digit[a] = 0;
        at += p->kept[p->first[scope[a]]] * size;
        size *= t->card[scope[a]];
    }
    return at;
}

/* Go on from the entries along the last axis to the next ones; returns how far, or -1 at the end. */
static int64_t pgm_part_next(pgm_part *p, int64_t f, int64_t at)
{
    const pgm_tree *t = p->whole;
    const int32_t *scope = t->scope + t->start[f];
    for (int64_t a = t->start[f + 1] - t->start[f] - 2; a >= 0; a--) {
        const int32_t *kept = p->kept + p->first[scope[a]];
        int64_t d = p->digit[a];
        if (d + 1 < p->card[scope[a]]) {
            p->digit[a] = d + 1;
            return at + (kept[d + 1] - kept[d]) * p->stride[a];
        }
        p->digit[a] = 0;
        at -= (kept[d] - kept[0]) * p->stride[a];
    }
    return -1;
}

/* List the places of the entries of factor f that are left; returns their number. */
static int64_t pgm_part_places(pgm_part *p, int64_t f, int64_t *place)
{
    const pgm_tree *t = p->whole;
    int64_t end = t->start[f + 1], n = 0, at = pgm_part_first(p, f);
    if (end == t->start[f]) {
        place[0] = 0;
        return 1;
    }
    const int32_t last = t->scope[end - 1], *kept = p->kept + p->first[last];
    int64_t count = p->card[last];
    for (; at >= 0; at = pgm_part_next(p, f, at))
        for (int64_t k = 0; k < count; k++) place[n++] = at + kept[k] - kept[0];
    return n;
}

/* ---- states that are left ---- */

/* Remove the states of factor f without a possible entry; 0 if a variable has lost all states. */
static int pgm_part_visit(pgm_part *p, int64_t f, pgm_entries e)
{
    const pgm_tree *t = p->whole;
    const int32_t *scope = t->scope + t->start[f];
    int64_t axes = t->start[f + 1] - t->start[f], offset = 0, states = 0;
    const int32_t last = scope[axes - 1], *kept = p->kept + p->first[last];
    int64_t count = p->card[last];
    for (int64_t a = 0; a < axes; a++) states += p->card[scope[a]];
    memset(p->found, 0, (size_t)states);
    uint8_t *end = p->found + states - count;
    for (int64_t at = pgm_part_first(p, f); at >= 0; at = pgm_part_next(p, f, at)) {
        int some = 0;
        for (int64_t k = 0; k < count; k++) {
            int possible = e.value[(at + kept[k] - kept[0]) * e.step] > -INFINITY;
            end[k] |= (uint8_t)possible;
            some |= possible;
        }
        uint8_t *found = p->found;
        for (int64_t a = 0; some && a < axes - 1; a++) {
            found[p->digit[a]] = 1;
            found += p->card[scope[a]];
        }
    }
    for (int64_t a = 0; a < axes; a++) {
        int64_t v = scope[a], before = p->card[v], left = 0;
        int32_t *own = p->kept + p->first[v];
        for (int64_t k = 0; k < before; k++)
            if (p->found[offset + k]) own[left++] = own[k];
        offset += before;
        p->card[v] = left;
        if (!left) return 0;
        if (left < before) pgm_part_wake(p, v);
    }
    return 1;
}

/* Restrict to a row: seen (variables) has the state of each observed variable, -1 for free ones,
 * and -2 where no state is possible. Returns 0 if the row is impossible. */
static int pgm_part_restrict(pgm_part *p, const int32_t *seen, const pgm_entries *e)
{
    const pgm_tree *t = p->whole;
    p->waits = 0;
    for (int64_t f = 0; f < t->factors; f++) {
        p->waiting[f] = p->own[f];
        if (p->own[f]) p->queue[p->waits++] = (int32_t)f;
    }
    for (int64_t v = 0; v < t->variables; v++) {
        int32_t *own = p->kept + p->first[v];
        p->card[v] = seen[v] < 0 ? t->card[v] : 1;
        for (int64_t k = 0; k < p->card[v]; k++) own[k] = seen[v] < 0 ? (int32_t)k : seen[v];
        if (seen[v] < -1) return 0;
    }
    for (int64_t v = 0; v < t->variables; v++)
        if (seen[v] >= 0) pgm_part_wake(p, v);
    while (p->waits) {
        int32_t f = p->queue[--p->waits];
        int fine = pgm_part_visit(p, f, e[f]);
        p->waiting[f] = 0;
        if (!fine) return 0;
    }
    return 1;
}

/* ---- the tree of a row ---- */

/* Work out the sizes of cliques and separators with other numbers of states. */
static void pgm_tree_resize(pgm_tree *t)
{
    double stack = 0.0;
    t->peak = 0.0;
    for (int64_t i = 0; i < t->cliques; i++) {
        double size = 1.0, above = 1.0;
        for (int64_t k = t->member_start[i + 1] - 1; k >= t->member_start[i]; k--) {
            if (k == t->member_start[i] + t->residual[i] - 1) above = size;
            size *= (double)t->card[t->member[k]];
        }
        t->size[i] = size;
        t->separator[i] = above;
        if (stack + above > t->peak) t->peak = stack + above;
        for (int64_t k = t->child_start[i]; k < t->child_start[i + 1]; k++)
            stack -= t->separator[t->child[k]];
        if (t->parent[i] >= 0) stack += above;
    }
}

/* Free what belongs to the tree of a row alone: its sizes, and its schedule. */
static void pgm_tree_unplan(pgm_tree *t)
{
    void *all[] = {t->clique, t->card_of_axis, t->stride, t->delta, t->operand, t->at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    t->clique = NULL;
    t->card_of_axis = t->stride = t->delta = NULL;
    t->operand = NULL;
    t->at = NULL;
}

static void pgm_tree_free_part(pgm_tree *t)
{
    pgm_tree_unplan(t);
    free(t->size), free(t->separator);
}

/* Make `part` the tree of a row: it shares the cliques of the whole tree; 0 without memory. */
static int pgm_tree_part(pgm_tree *part, const pgm_tree *whole, const int64_t *card)
{
    *part = *whole;
    part->card = card;
    part->clique = NULL;
    part->card_of_axis = part->stride = part->delta = NULL;
    part->operand = NULL;
    part->at = NULL;
    part->size = pgm_tree_room(whole->cliques, sizeof(double));
    part->separator = pgm_tree_room(whole->cliques, sizeof(double));
    return part->size && part->separator;
}

#endif
