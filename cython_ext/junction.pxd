# c/junction.h for Cython: the fields that elimination.pxi reads and fills.

from libc.stdint cimport int32_t, int64_t

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
