# c/team.h for Cython.

from libc.stdint cimport int64_t

from routines cimport pgm_task

cdef extern from "team.h" nogil:
    void pgm_share(pgm_task task, void *job, int64_t count, int parts)
