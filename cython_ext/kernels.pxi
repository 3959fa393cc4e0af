"""The compiled loops of pgmengine; thin wrappers over the C headers beside this file."""

from libc.math cimport INFINITY, exp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer

import numpy as np


cdef extern from "team.h" nogil:
    ctypedef void (*pgm_task)(void *what, int64_t first, int64_t last) noexcept nogil
    void pgm_share(pgm_task task, void *what, int64_t count, int parts)
    void pgm_atomic_add(int64_t *to, int64_t value)


include "gray.pxi"
include "chains.pxi"
include "products.pxi"
include "ascend.pxi"
include "belief.pxi"
