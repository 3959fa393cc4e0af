# c/junction.h, c/possible.h and c/restrict.h for Cython: the fields that elimination.pxi and
# restricted.pxi use.

from libc.stdint cimport int32_t, int64_t, uint8_t

from routines cimport pgm_clique

cdef extern from "junction.h" nogil:
    ctypedef struct pgm_tree:
        int64_t variables, factors, cliques
        const int64_t *card
        const int64_t *start
        const int32_t *scope
        const int32_t *order
        int64_t *member_start
        int32_t *member
        int32_t *residual
        int32_t *parent
        int64_t *child_start
        int32_t *child
        int32_t *home
        double *size
        double *separator
        double peak
        pgm_clique *clique
        int64_t most_operands, most_axes, most_inner

    int32_t pgm_block_axes(const pgm_tree *tree, int64_t clique, int64_t *inner)
    bint pgm_tree_build(pgm_tree *tree)
    bint pgm_tree_plan(pgm_tree *tree)
    void pgm_tree_free(pgm_tree *tree)

cdef extern from "possible.h" nogil:
    ctypedef struct pgm_scopes:
        int64_t variables, factors
        const int64_t *card
        const int64_t *start
        const int32_t *scope

    ctypedef struct pgm_entries:
        const double *value
        int64_t step
        const uint8_t *zero

    ctypedef struct pgm_left:
        int64_t *first
        int64_t *card
        int32_t *kept

    bint pgm_any_zero(const double *value, int64_t n)
    bint pgm_left_open(pgm_left *left, pgm_scopes all, const uint8_t *tight, const uint8_t *wide)
    void pgm_left_close(pgm_left *left)
    bint pgm_left_restrict(pgm_left *left, const int32_t *seen, const pgm_entries *entries)
    int64_t pgm_left_places(pgm_left *left, int64_t factor, int64_t *place)
    void pgm_left_mark(pgm_left *left, int64_t factor, uint8_t *stays)

cdef extern from "restrict.h" nogil:
    void pgm_tree_resize(pgm_tree *tree)
    void pgm_tree_unplan(pgm_tree *tree)
    void pgm_tree_free_part(pgm_tree *tree)
    bint pgm_tree_part(pgm_tree *part, const pgm_tree *whole, const int64_t *card)
