# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
include "kernels.pxi"


cdef extern from "processor.h" nogil:
    int pgm_processor()


PROCESSORS = ("base", "avx2", "avx512")[:1 + pgm_processor()]  # the modules that run here
