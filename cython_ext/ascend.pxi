# Steps of the optimizers: see ascend.h.

cdef extern from "ascend.h" nogil:
    enum:
        PGM_SGD
        PGM_ADAM
        PGM_ADAMAX
    const double PGM_LARGEST

    ctypedef struct pgm_rates:
        double rate, keep1, keep2, unbias1, unbias2, epsilon, l1, l2

    int pgm_ascend(int kind, const pgm_rates *o, const double *p, const double *g, const float *single, double *p2,
                   float *copy, double *m, double *v, int64_t first, int64_t last)

SGD, ADAM, ADAMAX = PGM_SGD, PGM_ADAM, PGM_ADAMAX
LARGEST = PGM_LARGEST


cdef struct ascend_job:
    int kind, fine
    pgm_rates rates
    const double *p
    const double *g
    const float *single
    double *p2
    float *copy
    double *m
    double *v


cdef void ascend_part(void *what, int64_t first, int64_t last) noexcept nogil:
    cdef ascend_job *j = <ascend_job *> what
    if not pgm_ascend(j.kind, &j.rates, j.p, j.g, j.single, j.p2, j.copy, j.m, j.v, first, last):
        j.fine = 0


def ascend(int kind, double rate, tuple keep, tuple unbias, double epsilon, tuple decay, const double[::1] p, g,
           double[::1] p2, float[::1] copy, double[::1] m, double[::1] v, int parts):
    """One step of an optimizer, in parts on as many threads; whether all parameters stay numbers within LARGEST.

    p2 receives the new parameters, copy the same in single precision; the moments m and v (None where there are none)
    change in place. g is float64 or float32; keep (2,), unbias (2,) and decay = (l1, l2) are those of ascend.h.
    """
    cdef ascend_job j
    cdef const double[::1] g64 = None
    cdef const float[::1] g32 = None
    cdef int64_t n = p.shape[0]
    if p2.shape[0] != n or copy.shape[0] != n or g.shape[0] != n:
        raise ValueError("arrays do not fit")
    if (m is not None and m.shape[0] != n) or (kind != PGM_SGD and (m is None or v is None or v.shape[0] != n)):
        raise ValueError("the moments do not fit")
    if not n:
        return True
    j.g, j.single = NULL, NULL
    if g.dtype == np.float32:
        g32 = g
        j.single = &g32[0]
    else:
        g64 = g
        j.g = &g64[0]
    j.kind, j.fine, j.p, j.p2, j.copy = kind, 1, &p[0], &p2[0], &copy[0]
    j.m = &m[0] if m is not None else NULL
    j.v = &v[0] if v is not None else NULL
    j.rates.rate, j.rates.epsilon = rate, epsilon
    j.rates.keep1, j.rates.keep2 = keep
    j.rates.unbias1, j.rates.unbias2 = unbias
    j.rates.l1, j.rates.l2 = decay
    with nogil:
        pgm_share(ascend_part, &j, n, parts)
    return bool(j.fine)
