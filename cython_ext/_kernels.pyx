# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled loops of pgmengine; thin wrappers over the C headers beside this file."""

from libc.math cimport INFINITY, exp
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer

import numpy as np


cdef extern from "octets.h" nogil:
    enum:
        PGM_OCTET
        PGM_NO_MOMENTS
        PGM_FIRST_MOMENTS
        PGM_EACH_MOMENT

    ctypedef struct pgm_block:
        int terms
        int64_t size
        int64_t start
        double power
        int complement

    ctypedef struct pgm_problem:
        int64_t units, indicators, components, blocks
        const int64_t *states
        const int64_t *first
        const double *theta
        const double *pair
        const double *offset
        const double *value
        const double *up
        const double *down
        const pgm_block *block
        int every

    ctypedef struct pgm_work:
        int64_t *state
        int64_t *direction
        double *field
        double *e
        double *sums
        double *open

    double pgm_gray_walk(const pgm_problem *p, pgm_work *w, double constant, int64_t index, int64_t count,
                         int moments, int best, double *log_weight, double *scale)
    bint pgm_in_octets(const pgm_problem *p, int64_t index, int64_t count)
    double pgm_octet_walk(const pgm_problem *p, pgm_work *w, double constant, int64_t index, int64_t count,
                         int moments, double *scale)


cdef class GrayWalk:
    """One enumeration problem for many rows: see gray.h for the arrays."""

    cdef pgm_problem problem
    cdef pgm_block *blocks
    cdef object keep

    def __cinit__(self):
        self.blocks = NULL

    def __dealloc__(self):
        free(self.blocks)

    def __init__(self, const int64_t[::1] states, const double[:, ::1] pair, const double[:, ::1] value,
                 const double[:, ::1] up, const double[:, ::1] down, list blocks):
        """`blocks`: tuples (terms, padded size, start, power, complement)."""
        cdef Py_ssize_t b, count = len(blocks)
        cdef int64_t[::1] first = np.concatenate(([0], np.cumsum(np.asarray(states) - 1)[:-1])).astype(np.int64) \
            if len(states) else np.zeros(1, dtype=np.int64)
        self.keep = (states, pair, value, up, down, first)
        self.blocks = <pgm_block *> malloc(sizeof(pgm_block) * max(count, 1))
        for b in range(count):
            self.blocks[b].terms, self.blocks[b].size, self.blocks[b].start, self.blocks[b].power, \
                self.blocks[b].complement = blocks[b]
        self.problem.units = states.shape[0]
        self.problem.indicators = pair.shape[0]
        self.problem.components = value.shape[1]
        self.problem.blocks = count
        self.problem.states = &states[0] if states.shape[0] else NULL
        self.problem.first = &first[0]
        self.problem.pair = &pair[0, 0] if pair.shape[0] else NULL
        if value.shape[0] and value.shape[1]:
            self.problem.value, self.problem.up, self.problem.down = &value[0, 0], &up[0, 0], &down[0, 0]
        else:
            self.problem.value = self.problem.up = self.problem.down = NULL
        self.problem.block = self.blocks

    def walk(self, double constant, const double[::1] theta, const double[::1] offset, int64_t start, int64_t count,
             int64_t step, int every, double[::1] log_sums, double[::1] log_weights=None, double[:, ::1] moments=None,
             bint best=False):
        """Walk `count` states from `start` in pieces of `step`; the GIL is released.

        every: factors of a product that cannot overflow before its exponent is taken out.
        log_sums (pieces,): log of the sum of the weights of each piece. log_weights (count,) if given. When best, units
        summed out take their most probable value instead.
        moments (1 or 1 + indicators, components + indicators) if given receives the weighted probabilities of all
        components and indicators (row 0), and the same while indicator d is on (row 1 + d), divided by exp(scale);
        returns scale.
        """
        cdef pgm_problem p = self.problem
        cdef pgm_work w
        cdef int64_t n = p.components + p.indicators
        cdef int64_t[::1] integers = np.zeros(2 * p.units + 1, dtype=np.int64)
        cdef int64_t rows = 0 if moments is None else moments.shape[0]
        cdef int wanted = PGM_NO_MOMENTS if rows == 0 else PGM_FIRST_MOMENTS if rows == 1 else PGM_EACH_MOMENT
        cdef int64_t c, length, size = n * rows
        cdef double[::1] reals = np.zeros(1 + p.indicators + p.components + size)
        cdef bint octets = rows < 2 and log_weights is None and not best and step % PGM_OCTET == 0 \
            and pgm_in_octets(&p, start, count)
        cdef double *sums = NULL
        cdef double *per_state = NULL
        cdef double scale = 0.0, total = -INFINITY, factor, keep
        cdef int64_t done = 0, piece = 0
        if theta.shape[0] != p.indicators or offset.shape[0] != p.components or log_sums.shape[0] * step < count \
                or (rows > 1 and rows != 1 + p.indicators) or (rows and moments.shape[1] != n):
            raise ValueError("arrays do not fit the problem")
        p.theta = &theta[0] if p.indicators else NULL
        p.offset = &offset[0] if p.components else NULL
        p.every = every
        w.state = &integers[0]
        w.direction = w.state + p.units
        w.field = &reals[0]
        w.e = w.field + p.indicators
        w.sums = w.e + p.components
        w.open = w.sums + n
        if wanted and size:
            sums = &moments[0, 0]
        with nogil:
            while done < count:
                length = min(step, count - done)
                if log_weights is not None:
                    per_state = &log_weights[done]
                if octets:
                    log_sums[piece] = pgm_octet_walk(&p, &w, constant, start + done, length, wanted, &scale)
                else:
                    log_sums[piece] = pgm_gray_walk(&p, &w, constant, start + done, length, wanted, best, per_state,
                                                     &scale)
                if wanted and scale > -INFINITY:
                    if scale > total:
                        keep = exp(total - scale)
                        for c in range(size):
                            sums[c] *= keep
                        total = scale
                    factor = exp(scale - total)
                    for c in range(size):
                        sums[c] += factor * w.sums[c]
                done += length
                piece += 1
        return total


cdef extern from "sweep.h" nogil:
    enum:
        PGM_CHAINS
        PGM_MOST_STATES

    ctypedef struct pgm_change:
        int32_t row
        float delta

    ctypedef struct pgm_link:
        int from_ "from"
        int to
        int arrow
        int at_once
        int64_t rows
        int64_t tile
        const float *weight
        const int64_t *start
        const int32_t *column

    ctypedef struct pgm_layer:
        int kind, states, width, moves, by_unit, summed, directed, complement, uneven
        int64_t size, stride, units
        float variance
        const float *support
        const float *log_base
        const float *bias
        const float *reference
        const float *soft
        float *base
        float *field
        float *zeta
        uint8_t *state
        float *value
        const uint8_t *free
        int64_t free_stride
        const uint8_t *alive

    ctypedef struct pgm_machine:
        int layers, links, visits
        pgm_layer *layer
        pgm_link *link
        const int32_t *visit
        float *beta
        uint32_t key[4]
        const uint32_t *stream
        float alpha

    ctypedef struct pgm_scratch:
        pgm_change *list
        int64_t *count
        int64_t capacity
        float *step
        uint8_t *touched
        int32_t *reached

    ctypedef struct pgm_run:
        uint64_t first, count
        int joint
        int backward
        int only
        int64_t chains
        const double *betas
        double *log_weight
        double *trace
        int64_t *changed

    void pgm_sweep(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last, const pgm_run *run)
    void pgm_log_densities(const pgm_machine *m, int64_t first, int64_t last, double *log_density)
    void pgm_reset(const pgm_machine *m, pgm_scratch *s, int64_t first, int64_t last)
    void pgm_fill_uniforms(const uint32_t *key, uint32_t sweep, uint32_t chain, uint32_t layer, uint32_t first,
                           int64_t blocks, float *out)

MOST_STATES = PGM_MOST_STATES


def uniforms(const uint32_t[::1] key, uint32_t sweep, uint32_t chain, uint32_t layer, uint32_t first, int64_t blocks):
    """Uniforms of blocks first .. first + blocks - 1 of one place of the generator, (64 blocks,) float32."""
    out = np.empty(64 * blocks, dtype=np.float32)
    cdef float[::1] view = out
    if blocks:
        pgm_fill_uniforms(&key[0], sweep, chain, layer, first, blocks, &view[0])
    return out


cdef extern from "learn.h" nogil:
    enum:
        PGM_LISTS
        PGM_TALL
        PGM_SGD
        PGM_ADAM
        PGM_ADAMAX
    const double PGM_LARGEST

    ctypedef struct pgm_rates:
        double rate, keep1, keep2, unbias1, unbias2, epsilon, l1, l2

    ctypedef struct pgm_matrix:
        const float *w
        int64_t down, right, rows, columns

    void pgm_multiply(const float *x, const pgm_matrix *w, int64_t rows, int64_t apart, pgm_change *list, float *y)
    void pgm_outer(const float *a, const float *b, int64_t rows, int64_t n, int64_t m, int64_t first, int64_t last,
                   pgm_change *list, float *tiles, float *out)
    void pgm_pack(const pgm_matrix *w, int64_t tile, int64_t first, int64_t last, float *out)
    int pgm_ascend(int kind, const pgm_rates *o, const double *p, const double *g, const float *single, double *p2,
                   float *copy, double *m, double *v, int64_t first, int64_t last)

SGD, ADAM, ADAMAX = PGM_SGD, PGM_ADAM, PGM_ADAMAX
LARGEST = PGM_LARGEST


cdef extern from "team.h" nogil:
    ctypedef void (*pgm_task)(void *what, int64_t first, int64_t last) noexcept nogil
    void pgm_share(pgm_task task, void *what, int64_t count, int parts)
    void pgm_atomic_add(int64_t *to, int64_t value)


cdef struct rows_job:
    const float *a
    const float *b
    float *out
    int64_t rows, n, m, apart
    pgm_matrix weight
    bint turned
    int failed


cdef int64_t row_stride(float[:, :] x) except -1:
    """How far apart rows are whose numbers lie side by side, and which have none in common."""
    if (x.shape[1] > 1 and x.strides[1] != 4) or (x.shape[0] > 1 and (x.strides[0] < 4 * x.shape[1] or x.strides[0] % 4)):
        raise ValueError("arrays do not fit")
    return max(x.strides[0] // 4, x.shape[1])


cdef pgm_matrix matrix_of(const float[:, :] weight):
    """A view of a weight, however it lies."""
    return pgm_matrix(&weight[0, 0], weight.strides[0] // 4, weight.strides[1] // 4, weight.shape[0], weight.shape[1])


cdef void product_part(void *what, int64_t first, int64_t last) noexcept nogil:
    cdef rows_job *j = <rows_job *> what
    cdef pgm_change *list = <pgm_change *> malloc(sizeof(pgm_change) * PGM_LISTS * j.n)
    if list == NULL:
        j.failed = 1
        return
    pgm_multiply(j.a + first * j.n, &j.weight, last - first, j.apart, list, j.out + first * j.apart)
    free(list)


def add_product(const float[:, ::1] x, const float[:, :] weight, float[:, :] out, int parts):
    """out += x weight, in parts on as many threads; zeros in x are skipped, whatever the weight there."""
    cdef rows_job j
    if out.shape[0] != x.shape[0] or weight.shape[0] != x.shape[1] or out.shape[1] != weight.shape[1] \
            or weight.strides[0] % 4 or weight.strides[1] % 4:
        raise ValueError("arrays do not fit")
    j.apart = row_stride(out)
    if not out.shape[0] or not out.shape[1] or not x.shape[1]:
        return
    j.a, j.out, j.n, j.weight, j.failed = &x[0, 0], &out[0, 0], x.shape[1], matrix_of(weight), 0
    with nogil:
        pgm_share(product_part, &j, x.shape[0], parts)
    if j.failed:
        raise MemoryError


cdef void outer_part(void *what, int64_t first, int64_t last) noexcept nogil:
    cdef rows_job *j = <rows_job *> what
    cdef float *tiles
    cdef pgm_change *list = <pgm_change *> malloc(sizeof(pgm_change) * PGM_LISTS * PGM_TALL)
    cdef char *memory = <char *> malloc(sizeof(float) * min(j.rows, PGM_TALL) * ((j.m + 63) // 64 * 64) + 64)
    if list == NULL or memory == NULL:
        j.failed = 1
    else:
        tiles = <float *> (memory + (64 - <size_t> memory % 64))
        pgm_outer(j.a, j.b, j.rows, j.n, j.m, first, last, list, tiles, j.out)
    free(list)
    free(memory)


def outer(const float[:, ::1] a, const float[:, ::1] b, float[:, ::1] out, int parts):
    """out = a' b, in parts on as many threads; zeros in a cost nothing."""
    cdef rows_job j
    if out.shape[0] != a.shape[1] or out.shape[1] != b.shape[1] or a.shape[0] != b.shape[0]:
        raise ValueError("arrays do not fit")
    if not out.shape[0] or not out.shape[1]:
        return
    if not a.shape[0]:
        out[:] = 0.0
        return
    j.a, j.b, j.out, j.rows, j.n, j.m, j.failed = &a[0, 0], &b[0, 0], &out[0, 0], a.shape[0], a.shape[1], b.shape[1], 0
    with nogil:
        pgm_share(outer_part, &j, a.shape[1], parts)
    if j.failed:
        raise MemoryError


ctypedef void (*sgemm_type)(char *ta, char *tb, int *m, int *n, int *k, float *alpha, float *a, int *lda, float *b,
                            int *ldb, float *beta, float *c, int *ldc) noexcept nogil

cdef sgemm_type sgemm = NULL


cdef bint find_sgemm() except -1:
    """The matrix product of scipy's BLAS, which can be called without Python."""
    global sgemm
    if sgemm == NULL:
        from scipy.linalg import cython_blas

        capsule = cython_blas.__pyx_capi__["sgemm"]
        sgemm = <sgemm_type> PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))
    return True


cdef enum:
    BLOCK = 128 # columns of one matrix product: each thread reads its own part of the weight
    BAND = 256 # rows of one


cdef inline int64_t edge(int64_t i, int64_t blocks, int64_t n) noexcept nogil:
    """Where block i of so many begins: in whole vectors, however many threads there are."""
    return min(n, (n + 15) // 16 * i // blocks * 16)


cdef inline int64_t blocks_of(int64_t n) noexcept nogil:
    return (n + BLOCK - 1) // BLOCK


cdef void times_part(void *what, int64_t first, int64_t last) noexcept nogil:
    """Blocks of out += a b; BLAS has columns where we have rows, so it is asked for out' += b' a'."""
    cdef rows_job *j = <rows_job *> what
    cdef int64_t i, row, column, blocks = blocks_of(j.m)
    cdef int m, some, n = <int> j.n, far = <int> (j.n if j.turned else j.m)
    cdef int apart = <int> j.apart
    cdef float one = 1.0
    cdef char plain = b"N", turn = b"T"
    cdef char *how = &turn if j.turned else &plain
    for i in range(first, last):
        row, column = i // blocks * BAND, edge(i % blocks, blocks, j.m)
        some, m = <int> min(BAND, j.rows - row), <int> (edge(i % blocks + 1, blocks, j.m) - column)
        sgemm(how, &plain, &m, &some, &n, &one, <float *> j.b + (column * n if j.turned else column), &far,
              <float *> j.a + row * n, &n, &one, j.out + row * apart + column, &apart)


def add_times(const float[:, ::1] x, const float[:, ::1] weight, bint turned, float[:, :] out, int parts):
    """out += x weight, or x weight' if turned, as matrix products, in parts on as many threads."""
    cdef rows_job j
    cdef int64_t n = weight.shape[1] if turned else weight.shape[0], m = weight.shape[0] if turned else weight.shape[1]
    if x.shape[1] != n or out.shape[0] != x.shape[0] or out.shape[1] != m:
        raise ValueError("arrays do not fit")
    j.apart = row_stride(out)
    if not x.shape[0] or not m or not n:
        return
    find_sgemm()
    j.a, j.b, j.out, j.rows, j.n, j.m, j.turned = &x[0, 0], &weight[0, 0], &out[0, 0], x.shape[0], n, m, turned
    with nogil:
        pgm_share(times_part, &j, (x.shape[0] + BAND - 1) // BAND * blocks_of(m), parts)


cdef void across_part(void *what, int64_t first, int64_t last) noexcept nogil:
    """Blocks of rows of out = a' b."""
    cdef rows_job *j = <rows_job *> what
    cdef int64_t i, row, blocks = blocks_of(j.n)
    cdef int rows = <int> j.rows, m = <int> j.m, n = <int> j.n, some
    cdef float one = 1.0, zero = 0.0
    cdef char plain = b"N", turn = b"T"
    for i in range(first, last):
        row = edge(i, blocks, j.n)
        some = <int> (edge(i + 1, blocks, j.n) - row)
        sgemm(&plain, &turn, &m, &some, &rows, &one, <float *> j.b, &m, <float *> j.a + row, &n, &zero,
              j.out + row * m, &m)


def across(const float[:, ::1] a, const float[:, ::1] b, float[:, ::1] out, int parts):
    """out = a' b as matrix products, in parts on as many threads."""
    cdef rows_job j
    if out.shape[0] != a.shape[1] or out.shape[1] != b.shape[1] or a.shape[0] != b.shape[0]:
        raise ValueError("arrays do not fit")
    if not out.shape[0] or not out.shape[1]:
        return
    if not a.shape[0]:
        out[:] = 0.0
        return
    find_sgemm()
    j.a, j.b, j.out, j.rows, j.n, j.m = &a[0, 0], &b[0, 0], &out[0, 0], a.shape[0], a.shape[1], b.shape[1]
    with nogil:
        pgm_share(across_part, &j, blocks_of(a.shape[1]), parts)


cdef struct pack_job:
    pgm_matrix weight
    float *out
    int64_t tile


cdef void pack_part(void *what, int64_t first, int64_t last) noexcept nogil:
    cdef pack_job *j = <pack_job *> what
    pgm_pack(&j.weight, j.tile, first, last, j.out)


def pack(const float[:, :] weight, float[:, :, ::1] out, int64_t panels, int parts):
    """The first panels (tiles, rows, tile) of a weight, filled up with zeros, in parts on as many threads."""
    cdef pack_job j
    if not 0 <= panels <= out.shape[0] or out.shape[1] != weight.shape[0] \
            or (panels and (panels - 1) * out.shape[2] >= weight.shape[1]):
        raise ValueError("arrays do not fit")
    if not panels or not out.shape[1]:
        return
    j.weight, j.out, j.tile = matrix_of(weight), &out[0, 0, 0], out.shape[2]
    with nogil:
        pgm_share(pack_part, &j, panels, parts)


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
    change in place. g is float64 or float32; keep (2,), unbias (2,) and decay = (l1, l2) are those of learn.h.
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


cdef struct sweep_job:
    const pgm_machine *machine
    const pgm_run *run
    int64_t capacity, widest
    bint refresh
    int failed


cdef void sweep_part(void *what, int64_t first, int64_t last) noexcept nogil:
    cdef sweep_job *j = <sweep_job *> what
    cdef int64_t a = first, b, chains = min(PGM_CHAINS, last - first)
    cdef int i
    cdef pgm_scratch s
    cdef pgm_run run = j.run[0]
    s.capacity = j.capacity
    s.list = <pgm_change *> malloc(sizeof(pgm_change) * j.capacity * max(chains, 1))
    s.count = <int64_t *> calloc(max(chains, 1), sizeof(int64_t))
    s.step = <float *> calloc(j.widest, sizeof(float))
    s.touched = <uint8_t *> calloc(j.widest, 1)
    s.reached = <int32_t *> calloc(j.widest, sizeof(int32_t))
    run.changed = <int64_t *> calloc(max(j.machine.layers, 1), sizeof(int64_t))
    if s.list == NULL or s.count == NULL or s.step == NULL or s.touched == NULL or s.reached == NULL or run.changed == NULL:
        j.failed = 1
        a = last
    while a < last:
        b = min(a + PGM_CHAINS, last)
        if j.refresh:
            pgm_reset(j.machine, &s, a, b)
        pgm_sweep(j.machine, &s, a, b, &run)
        a = b
    for i in range(j.machine.layers if not j.failed else 0):
        pgm_atomic_add(&j.run.changed[i], run.changed[i])
    free(s.list)
    free(s.count)
    free(s.step)
    free(s.touched)
    free(s.reached)
    free(run.changed)


cdef class Machine:
    """The chains of one target, see sweep.h; every array given is kept and changed in place."""

    cdef pgm_machine m
    cdef dict keep
    cdef int64_t capacity, widest, chains

    def __cinit__(self):
        self.m.layer = NULL
        self.m.link = NULL

    def __dealloc__(self):
        free(self.m.layer)
        free(self.m.link)

    def __init__(self, int layers, int links, const int32_t[::1] visit, float[::1] beta,
                 const uint32_t[::1] key, const uint32_t[::1] stream, float alpha):
        cdef int i
        self.keep = {None: (visit, beta, stream)}
        self.m.layers, self.m.links, self.m.visits, self.m.alpha = layers, links, visit.shape[0], alpha
        self.m.layer = <pgm_layer *> calloc(max(layers, 1), sizeof(pgm_layer))
        self.m.link = <pgm_link *> calloc(max(links, 1), sizeof(pgm_link))
        self.m.visit = &visit[0] if visit.shape[0] else NULL
        self.m.beta, self.m.stream = &beta[0], &stream[0]
        self.chains, self.capacity, self.widest = beta.shape[0], 1, 1
        for i in range(4):
            self.m.key[i] = key[i]

    def layer(self, int index, int kind, int states, int width, int64_t size, bint moves, bint by_unit, int summed,
              bint directed, bint complement, bint uneven, float variance, const float[::1] support, const float[::1] log_base,
              const float[::1] bias, const float[::1] reference, const float[:, ::1] soft, float[:, ::1] base,
              float[:, ::1] field, float[:, ::1] zeta, uint8_t[:, ::1] state, float[:, ::1] value,
              const uint8_t[:, ::1] free_units, const uint8_t[:, ::1] alive):
        """Describe layer `index`; None where an array is not needed."""
        cdef pgm_layer *l = self.m.layer + index
        self.keep[index, 0] = (support, log_base, bias, reference, soft, base, field, zeta, state, value, free_units, alive)
        l.kind, l.states, l.width, l.size, l.moves, l.by_unit = kind, states, width, size, moves, by_unit
        l.summed = summed
        l.directed, l.complement, l.uneven, l.variance, l.stride = directed, complement, uneven, variance, bias.shape[0]
        l.units = free_units.shape[1]
        l.free_stride = 0 if free_units.shape[0] == 1 else l.units
        l.bias, l.free = &bias[0], &free_units[0, 0]
        l.support = &support[0] if support is not None else NULL
        l.log_base = &log_base[0] if log_base is not None else NULL
        l.reference = &reference[0] if reference is not None else NULL
        l.soft = &soft[0, 0] if soft is not None else NULL
        l.base = &base[0, 0] if base is not None else NULL
        l.field = &field[0, 0] if field is not None else NULL
        l.zeta = &zeta[0, 0] if zeta is not None else NULL
        l.state = &state[0, 0] if state is not None else NULL
        l.value = &value[0, 0] if value is not None else NULL
        l.alive = &alive[0, 0] if alive is not None else NULL
        self.capacity = max(self.capacity, size * (2 if width > 1 else 1))
        self.widest = max(self.widest, l.stride)

    def bias(self, int index, const float[::1] bias):
        """Another bias of layer `index`, of the same length."""
        if bias.shape[0] != self.m.layer[index].stride:
            raise ValueError("the bias does not fit")
        self.keep[index, 2] = bias
        self.m.layer[index].bias = &bias[0]

    def rekey(self, const uint32_t[::1] key, float alpha):
        """Another stream of uniforms, and another share of the flip-the-state operator."""
        for i in range(4):
            self.m.key[i] = key[i]
        self.m.alpha = alpha

    def link(self, int index, int source, int to, bint arrow, bint at_once, const float[:, :, ::1] dense,
             const float[::1] entries, const int64_t[::1] start, const int32_t[::1] column):
        """Describe link `index`: panels (tiles, rows, tile) of a dense weight, or the entries, row starts and columns of a csr matrix."""
        cdef pgm_link *k = self.m.link + index
        self.keep[index, 1] = (dense, entries, start, column)
        k.from_, k.to, k.arrow, k.at_once = source, to, arrow, at_once
        if dense is not None:
            k.rows, k.tile, k.weight = dense.shape[1], dense.shape[2], &dense[0, 0, 0]
        else:
            k.weight = &entries[0] if entries.shape[0] else NULL
            k.start, k.column = &start[0], &column[0] if column.shape[0] else NULL

    def sweep(self, uint64_t sweep, uint64_t count, bint refresh, int64_t[::1] changed, int parts,
              double[:, :, ::1] trace=None, bint backward=False, const double[::1] betas=None,
              double[::1] log_weight=None, bint joint=False, int only=-1):
        """Sweeps number sweep .. sweep + count - 1 of all chains, in parts on as many threads, without the GIL.

        `refresh` recomputes all inputs first. changed (layers,) gains the number of changes of each layer; trace (count,
        chains, 2), if given, receives the log densities (see log_density) after each sweep. `backward` visits layers and
        units in the reverse order. With `only` a layer, no other is drawn, from inputs that are given, and no change is
        passed on. With betas (count + 1,), sweep t is made at betas[t + 1], and before it log_weight (chains,) gains
        log p_(betas[t + 1]) - log p_(betas[t]), the summed layers summed out unless `joint`.
        """
        cdef pgm_run run
        cdef sweep_job j
        if changed.shape[0] < self.m.layers:
            raise ValueError("changed does not fit")
        if trace is not None and (trace.shape[0] < <int64_t> count or trace.shape[1] != self.chains or trace.shape[2] != 2):
            raise ValueError("the trace does not fit")
        if betas is not None and (betas.shape[0] != <int64_t> count + 1 or log_weight.shape[0] != self.chains):
            raise ValueError("the schedule does not fit")
        run.joint, run.only = joint, only
        run.first, run.count, run.backward, run.chains, run.changed = sweep, count, backward, self.chains, &changed[0]
        run.trace = &trace[0, 0, 0] if trace is not None and count else NULL
        run.betas = &betas[0] if betas is not None else NULL
        run.log_weight = &log_weight[0] if betas is not None else NULL
        j.machine, j.run, j.capacity, j.widest, j.refresh, j.failed = &self.m, &run, self.capacity, self.widest, refresh, 0
        with nogil:
            pgm_share(sweep_part, &j, self.chains, parts)
        if j.failed:
            raise MemoryError

    def log_density(self, int64_t first, int64_t last, double[:, ::1] out):
        """Write log p_beta = out[:, 0] + beta out[:, 1] of chains first .. last - 1, each up to a constant of the row."""
        if not (0 <= first <= last <= self.chains) or out.shape[0] != self.chains or out.shape[1] != 2:
            raise ValueError("chains out of range")
        with nogil:
            pgm_log_densities(&self.m, first, last, &out[0, 0])
include "belief.pxi"
