/* Possible states: the states that no table of a factor graph makes impossible.
 *
 * A state is impossible if all entries of a table at this state are 0. Removing it can make states
 * of other variables impossible, and so on until nothing changes (generalised arc consistency;
 * Mackworth 1977). The result does not depend on the order of removals. A factor is visited again
 * only after one of its variables has lost a state, and factors without a zero are never visited.
 *
 * Layout. State s of variable v is number first[v] + s of all states. The possible states of v are
 * kept[first[v]] .. kept[first[v] + card[v] - 1], ascending. Only the entries of a table at
 * possible states are visited.
 *
 * Reference: repeated removal in numpy (test_orders.py, test_restricted_trees.py).
 */
#ifndef PGM_POSSIBLE_H
#define PGM_POSSIBLE_H

#include <math.h>

#include "junction.h"

/* The scopes of a factor graph: factor f has the variables scope[start[f]] .. scope[start[f + 1]
 * - 1], and variable v has card[v] states. */
typedef struct {
    int64_t variables, factors;
    const int64_t *card, *start;
    const int32_t *scope;
} pgm_scopes;

/* The table of a factor: its entries are value[0], value[step], value[2 step] .. If `zero` is not
 * NULL, it marks the entries that are -inf, and there are no values. */
typedef struct {
    const double *value;
    int64_t step;
    const uint8_t *zero;
} pgm_entries;

typedef struct {
    pgm_scopes all;
    int64_t *first;    /* (variables + 1) */
    int64_t *card;     /* (variables) number of possible states */
    int32_t *kept;     /* (states) */
    uint8_t *found;    /* (states of one factor) states with a possible entry */
    int64_t *stride;   /* (axes of one factor) */
    int64_t *digit;    /* (axes of one factor) */
    int64_t *of_start; /* (variables + 1) into of: */
    int32_t *of;       /* the factors with zeros of each variable */
    int32_t *queue;    /* (factors) waiting for a visit */
    uint8_t *waiting;  /* (factors) */
    uint8_t *own;      /* (factors) whether zeros differ between rows */
    int64_t waits;
} pgm_left;

static int pgm_any_zero(const double *value, int64_t n)
{
    int any = 0;
    for (int64_t i = 0; i < n; i++) any |= value[i] == -INFINITY;
    return any;
}

static void pgm_left_close(pgm_left *p)
{
    void *all[] = {p->first, p->card,  p->kept,    p->found, p->stride,  p->digit,
                   p->of,    p->queue, p->waiting, p->own,   p->of_start};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Allocate, and list the factors of each variable that have zeros (tight); 0 without memory. The
 * zeros of `wide` factors may exclude states of other variables that are still listed, for example
 * because they differ between rows. */
static int pgm_left_open(pgm_left *p, pgm_scopes all, const uint8_t *tight, const uint8_t *wide)
{
    int64_t axes = 0, states = 0;
    const pgm_scopes *t = &p->all;
    p->all = all;
    p->first = pgm_room(t->variables + 1, sizeof(int64_t));
    p->card = pgm_room(t->variables, sizeof(int64_t));
    p->of_start = pgm_room(t->variables + 2, sizeof(int64_t));
    p->of = pgm_room(t->start[t->factors], sizeof(int32_t));
    p->queue = pgm_room(t->factors, sizeof(int32_t));
    p->waiting = pgm_room(t->factors, 1);
    p->own = pgm_room(t->factors, 1);
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
    p->kept = pgm_room(p->first[t->variables], sizeof(int32_t));
    p->found = pgm_room(states, 1);
    p->stride = pgm_room(axes, sizeof(int64_t));
    p->digit = pgm_room(axes, sizeof(int64_t));
    return p->kept && p->found && p->stride && p->digit;
}

/* Put the tight factors of a variable into the queue. */
static void pgm_left_wake(pgm_left *p, int64_t v)
{
    for (int64_t k = p->of_start[v]; k < p->of_start[v + 1]; k++) {
        int32_t f = p->of[k];
        if (!p->waiting[f]) p->waiting[f] = 1, p->queue[p->waits++] = f;
    }
}

/* ---- the entries of a factor at possible states ---- */

/* Begin with the first entry of factor f at possible states; returns its position in the table. */
static int64_t pgm_left_first(pgm_left *p, int64_t f)
{
    const pgm_scopes *t = &p->all;
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

/* Go from a run of entries along the last axis to the next run; returns the distance, -1 at the
 * end. */
static int64_t pgm_left_next(pgm_left *p, int64_t f, int64_t at)
{
    const pgm_scopes *t = &p->all;
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

/* List the positions of the entries of factor f at possible states; returns their number. */
static int64_t pgm_left_places(pgm_left *p, int64_t f, int64_t *place)
{
    const pgm_scopes *t = &p->all;
    int64_t end = t->start[f + 1], n = 0, at = pgm_left_first(p, f);
    if (end == t->start[f]) {
        place[0] = 0;
        return 1;
    }
    const int32_t last = t->scope[end - 1], *kept = p->kept + p->first[last];
    int64_t count = p->card[last];
    for (; at >= 0; at = pgm_left_next(p, f, at))
        for (int64_t k = 0; k < count; k++) place[n++] = at + kept[k] - kept[0];
    return n;
}

/* Mark the entries of factor f at possible states. */
static void pgm_left_mark(pgm_left *p, int64_t f, uint8_t *stays)
{
    const pgm_scopes *t = &p->all;
    int64_t end = t->start[f + 1], at = pgm_left_first(p, f);
    if (end == t->start[f]) {
        stays[0] = 1;
        return;
    }
    const int32_t last = t->scope[end - 1], *kept = p->kept + p->first[last];
    int64_t count = p->card[last];
    for (; at >= 0; at = pgm_left_next(p, f, at))
        for (int64_t k = 0; k < count; k++) stays[at + kept[k] - kept[0]] = 1;
}

/* ---- possible states ---- */

/* Remove the states of factor f without a possible entry; 0 if a variable has lost all states. */
static int pgm_left_visit(pgm_left *p, int64_t f, pgm_entries e)
{
    const pgm_scopes *t = &p->all;
    const int32_t *scope = t->scope + t->start[f];
    int64_t axes = t->start[f + 1] - t->start[f], offset = 0, states = 0;
    const int32_t last = scope[axes - 1], *kept = p->kept + p->first[last];
    int64_t count = p->card[last];
    for (int64_t a = 0; a < axes; a++) states += p->card[scope[a]];
    memset(p->found, 0, (size_t)states);
    uint8_t *end = p->found + states - count;
    for (int64_t at = pgm_left_first(p, f); at >= 0; at = pgm_left_next(p, f, at)) {
        int some = 0;
        for (int64_t k = 0; k < count; k++) {
            int64_t i = at + kept[k] - kept[0];
            int possible = e.zero ? !e.zero[i] : e.value[i * e.step] > -INFINITY;
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
        if (left < before) pgm_left_wake(p, v);
    }
    return 1;
}

/* Restrict to a row: seen (variables) has the state of each observed variable, -1 for free ones,
 * and -2 where no state is possible. Returns 0 if the row is impossible. */
static int pgm_left_restrict(pgm_left *p, const int32_t *seen, const pgm_entries *e)
{
    const pgm_scopes *t = &p->all;
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
        if (seen[v] >= 0) pgm_left_wake(p, v);
    while (p->waits) {
        int32_t f = p->queue[--p->waits];
        int fine = pgm_left_visit(p, f, e[f]);
        p->waiting[f] = 0;
        if (!fine) return 0;
    }
    return 1;
}

#endif
