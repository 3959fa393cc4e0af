/* A junction tree for rows of many evidence patterns: all rows share the tree of the model, which
 * is restricted to the possible states of one row at a time.
 *
 * A variable that a row observes has one possible state. Zeros of tables then exclude states of
 * other variables (possible.h). Cliques, separators and their order do not change, so that no order
 * has to be searched; they only have fewer states. For each row, tables are copied at the possible
 * states, and the sizes and the schedule are computed, unless they are those of the row before.
 *
 * Reference: the whole tree with the evidence as indicator tables, and remove_impossible in
 * pgmengine/infer/exact/junction_tree/impossible_states.py (test_restricted_trees.py).
 */
#ifndef PGM_RESTRICT_H
#define PGM_RESTRICT_H

#include "junction.h"
#include "possible.h"

/* ---- the tree of a row ---- */

/* Compute the sizes of cliques and separators for other numbers of states. */
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

/* Free the memory that the tree of a row does not share: its sizes and its schedule. */
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
    part->size = pgm_room(whole->cliques, sizeof(double));
    part->separator = pgm_room(whole->cliques, sizeof(double));
    return part->size && part->separator;
}

#endif
