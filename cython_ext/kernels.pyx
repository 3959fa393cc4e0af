# cython: language_level=3, cdivision=True
# cython: boundscheck=False, wraparound=False, initializedcheck=False
# cython: freethreading_compatible=False
"""The compiled routines of pgmengine: checks of arrays and threads around the C of cython_ext/c.

Routines are compiled for several kinds of processors, and the last kind that runs here is used. The
environment variable PGMENGINE_KERNELS=base, avx2 or avx512 chooses another one of PROCESSORS. All
kinds give the same bits, except where numbers are summed over the lanes of vectors. Every function
and class takes C-contiguous arrays unless its docstring says otherwise, keeps references to the
arrays that it needs, and releases the GIL. `parts` is the number of threads that share the work.
"""

import os

import numpy as np

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

cimport routines as c
from team cimport pgm_share

from pgmengine.base.errors import PgmError


include "watch.pxi"


# ---- kinds of processors ----

cdef const c.pgm_routines *routines = NULL


def _named():
    """Name -> number of every kind of processor whose routines run here."""
    kinds = {}
    while c.pgm_routines_of(len(kinds)) != NULL:
        kinds[c.pgm_routines_of(len(kinds)).name.decode()] = len(kinds)
    return kinds


PROCESSORS = tuple(_named())


def use(str name):
    """Use the routines of one of PROCESSORS from now on; return the number of doubles in a vector.

    The layout of arrays depends on LANES, which the first call sets. Later calls are only for tests
    of sweeps and of enumeration. Their vectors must not be wider, because wider ones would reach
    beyond the arrays.
    """
    global routines
    cdef const c.pgm_routines *found
    if name not in PROCESSORS:
        raise PgmError(
            f"PGMENGINE_KERNELS is {name!r}; the routines that run on this processor are "
            f"{', '.join(PROCESSORS)}"
        )
    found = c.pgm_routines_of(PROCESSORS.index(name))
    if found.lanes > LANES > 0:
        raise PgmError(
            f"{name} has {found.lanes} doubles in a vector, and arrays are laid out for {LANES}; "
            f"set PGMENGINE_KERNELS={name} before pgmengine is imported"
        )
    routines = found
    return routines.lanes


LANES = 0
PROCESSOR = os.environ.get("PGMENGINE_KERNELS") or PROCESSORS[len(PROCESSORS) - 1]
# doubles in a vector: enumeration pads units to a multiple of it, and mean field has blocks of so
# many rows of evidence
LANES = use(PROCESSOR)


cdef extern from "build.h":
    const char *PGM_BUILD_FLAGS
    const char *PGM_BUILD_UNIT_FLAGS
    const char *PGM_BUILD_ADDED_FLAGS
    const char *PGM_BUILD_KINDS
    const char *PGM_BUILD_KIND_FLAGS
    const char *PGM_BUILD_PLATFORM
    const char *PGM_BUILD_EPOCH
    const char *PGM_BUILD_CYTHON

cdef extern from *:
    """
    #if defined(__clang__)
    #define PGM_COMPILER "clang " __clang_version__
    #elif defined(__GNUC__)
    #define PGM_COMPILER "gcc " __VERSION__
    #else
    #define PGM_COMPILER "unknown"
    #endif
    #ifdef Py_GIL_DISABLED
    #define PGM_WITHOUT_GIL 1
    #else
    #define PGM_WITHOUT_GIL 0
    #endif
    """
    const char *PGM_COMPILER
    int PGM_WITHOUT_GIL


def build_record():
    """Return how this module was built: setup.py has the meaning of the words."""
    return {
        "compiler": PGM_COMPILER.decode(),
        "flags": PGM_BUILD_FLAGS.decode(),
        "unit_flags": PGM_BUILD_UNIT_FLAGS.decode(),
        "added_flags": PGM_BUILD_ADDED_FLAGS.decode(),
        "kinds": PGM_BUILD_KINDS.decode(),
        "kind_flags": PGM_BUILD_KIND_FLAGS.decode(),
        "platform": PGM_BUILD_PLATFORM.decode(),
        "epoch": PGM_BUILD_EPOCH.decode(),
        "cython": PGM_BUILD_CYTHON.decode(),
        "without_gil": bool(PGM_WITHOUT_GIL),
    }


# ---- sweeps of chains: c/sweep.h ----

MOST_STATES = c.PGM_MOST_STATES


def uniforms(const uint32_t[::1] key, uint32_t sweep, uint32_t chain, uint32_t layer,
             uint32_t first, int64_t blocks):
    """Return the uniforms of blocks at one position of the generator, (64 blocks,) float32."""
    out = np.empty(64 * blocks, dtype=np.float32)
    cdef float[::1] view = out
    if blocks:
        routines.fill_uniforms(&key[0], sweep, chain, layer, first, blocks, &view[0])
    return out


cdef class Chains:
    """The chains of one target; every array given is kept, and changed in place.

    visit (visits,) has the layers in the order of a sweep, beta (chains,) and stream (chains,) the
    inverse temperature and the stream of uniforms of each chain, key (4,) the key of the uniforms;
    alpha is the share of the flip-the-state kernel. Layers and links are described before the first
    sweep.
    """

    cdef c.pgm_chains chains
    cdef dict keep
    cdef int64_t capacity, widest, count

    def __cinit__(self):
        self.chains.layer = NULL
        self.chains.link = NULL

    def __dealloc__(self):
        free(self.chains.layer)
        free(self.chains.link)

    def __init__(self, *, int layers, int links, const int32_t[::1] visit, float[::1] beta,
                 const uint32_t[::1] key, const uint32_t[::1] stream, float alpha):
        self.keep = {None: (visit, beta, stream)}
        self.chains.layers, self.chains.links, self.chains.visits = layers, links, visit.shape[0]
        self.chains.layer = <c.pgm_layer *> calloc(max(layers, 1), sizeof(c.pgm_layer))
        self.chains.link = <c.pgm_link *> calloc(max(links, 1), sizeof(c.pgm_link))
        if self.chains.layer == NULL or self.chains.link == NULL:
            raise MemoryError
        self.chains.visit = &visit[0] if visit.shape[0] else NULL
        self.chains.beta, self.chains.stream = &beta[0], &stream[0]
        self.count, self.capacity, self.widest = beta.shape[0], 1, 1
        self.rekey(key, alpha)

    def layer(self, int index, *, int kind, int states, int width, int64_t size, bint moves,
              bint by_unit, int summed, bint directed, bint complement, bint uneven, float variance,
              const float[::1] support, const float[::1] log_base, const float[::1] bias,
              const float[::1] reference, const float[:, ::1] soft, float[:, ::1] base,
              float[:, ::1] field, float[:, ::1] zeta, float[:, ::1] rest, uint8_t[:, ::1] state,
              float[:, ::1] value, const uint8_t[:, ::1] free_units, const uint8_t[:, ::1] alive,
              int64_t begin=0, int64_t end=-1, int reads=0):
        """Describe layer `index`: pgm_layer in c/routines.h; None where there is no array."""
        cdef c.pgm_layer *l = self.chains.layer + index
        self.keep[index, 0] = (support, log_base, bias, reference, soft, base, field, zeta, rest,
                               state, value, free_units, alive)
        l.kind, l.states, l.width, l.size, l.variance = kind, states, width, size, variance
        l.moves, l.by_unit, l.summed, l.directed, l.complement, l.uneven = \
            moves, by_unit, summed, directed, complement, uneven
        l.stride, l.units = bias.shape[0], free_units.shape[1]
        end = l.stride if end < 0 else end
        if not 0 <= begin <= end <= l.stride or begin % 64 or (end % 64 and end != l.stride):
            raise ValueError(f"columns {begin} to {end} of {l.stride} do not fit")
        l.begin, l.end, l.reads = begin, end, reads
        l.free_stride = 0 if free_units.shape[0] == 1 else l.units
        l.bias, l.free = &bias[0], &free_units[0, 0]
        l.support = &support[0] if support is not None else NULL
        l.log_base = &log_base[0] if log_base is not None else NULL
        l.reference = &reference[0] if reference is not None else NULL
        l.soft = &soft[0, 0] if soft is not None else NULL
        l.base = &base[0, 0] if base is not None else NULL
        l.field = &field[0, 0] if field is not None else NULL
        l.zeta = &zeta[0, 0] if zeta is not None else NULL
        l.rest = &rest[0, 0] if rest is not None else NULL
        l.state = &state[0, 0] if state is not None else NULL
        l.value = &value[0, 0] if value is not None else NULL
        l.alive = &alive[0, 0] if alive is not None else NULL
        self.capacity = max(self.capacity, size * (2 if width > 1 else 1))
        self.widest = max(self.widest, l.stride)

    def keep_whole(self):
        """Keep the fields of all units from the next refresh on."""
        self.chains.whole = 1

    def rekey(self, const uint32_t[::1] key, float alpha):
        """Take another key of the uniforms, and another share of the flip-the-state kernel."""
        cdef int i
        for i in range(4):
            self.chains.key[i] = key[i]
        self.chains.alpha = alpha

    def link(self, int index, int source, int to, bint arrow, bint at_once,
             const float[:, :, ::1] dense,
             const float[::1] entries, const int64_t[::1] start, const int32_t[::1] column):
        """Describe link `index`: panels (tiles, rows, tile) of a dense weight, or a csr matrix."""
        cdef c.pgm_link *k = self.chains.link + index
        self.keep[index, 1] = (dense, entries, start, column)
        k.source, k.to, k.arrow, k.at_once = source, to, arrow, at_once
        if dense is not None:
            k.rows, k.tile, k.weight = dense.shape[1], dense.shape[2], &dense[0, 0, 0]
        else:
            k.weight = &entries[0] if entries.shape[0] else NULL
            k.start, k.column = &start[0], &column[0] if column.shape[0] else NULL

    def sweep(self, uint64_t sweep, uint64_t count, bint refresh, int64_t[::1] changed, int parts,
              *,
              double[:, :, ::1] trace=None, bint backward=False, const double[::1] betas=None,
              double[::1] log_weight=None, bint joint=False, int only=-1):
        """Make sweeps number sweep .. sweep + count - 1 of all chains.

        `refresh` computes all inputs first. changed (layers,) gains the number of changes of each
        layer; trace (count, chains, 2), if given, receives the log densities (see log_density)
        after each sweep. `backward` visits layers and units in the reverse order. With the number
        of a layer as `only`, just this layer is drawn, from given inputs, and no inputs are
        updated. With betas (count + 1,), sweep t is made at betas[t + 1], and before it log_weight
        (chains,) gains log p_(betas[t + 1]) - log p_(betas[t]), with layers marked `summed`
        marginalised unless `joint`.
        """
        cdef c.pgm_sweep_job j
        if changed.shape[0] < self.chains.layers:
            raise ValueError("changed does not fit")
        if trace is not None and (trace.shape[0] < <int64_t> count or trace.shape[1] != self.count
                                  or trace.shape[2] != 2):
            raise ValueError("the trace does not fit")
        if betas is not None and (betas.shape[0] != <int64_t> count + 1
                                  or log_weight.shape[0] != self.count):
            raise ValueError("the schedule does not fit")
        j.chains, j.count, j.capacity, j.widest, j.failed = \
            &self.chains, self.count, self.capacity, self.widest, 0
        j.first, j.sweeps, j.refresh, j.joint, j.backward, j.only = \
            sweep, count, refresh, joint, backward, only
        j.changed = &changed[0]
        j.trace = &trace[0, 0, 0] if trace is not None and count else NULL
        j.betas = &betas[0] if betas is not None else NULL
        j.log_weight = &log_weight[0] if betas is not None else NULL
        with nogil:
            pgm_share(routines.sweep, &j, self.count, parts)
        if j.failed:
            raise MemoryError

    def log_density(self, double[:, ::1] out, bint last):
        """Write log p_beta = out[:, 0] + beta out[:, 1] of all chains, up to a constant of the row.

        `last`: only from the fields of the layers that a sweep draws last; see pgm_field_part.
        """
        if out.shape[0] != self.count or out.shape[1] != 2:
            raise ValueError(f"log densities of {self.count} chains do not fit an array of shape "
                             f"({out.shape[0]}, {out.shape[1]})")
        with nogil:
            routines.log_densities(&self.chains, self.count, last, &out[0, 0])


# ---- sweeps of models with tables: c/tabled.h ----

include "tabled.pxi"
include "ancestral.pxi"
include "paths.pxi"
# ---- products of matrices: c/products.h, and BLAS ----

cdef int64_t row_stride(float[:, :] x) except -1:
    """Return the distance between rows, which must be contiguous and must not overlap."""
    cdef bint apart = x.shape[0] < 2 or (x.strides[0] >= 4 * x.shape[1] and x.strides[0] % 4 == 0)
    if not apart or (x.shape[1] > 1 and x.strides[1] != 4):
        raise ValueError("arrays do not fit: the rows of the result must lie one after the other")
    return max(x.strides[0] // 4, x.shape[1])


cdef c.pgm_matrix matrix_of(const float[:, :] weight):
    """Return a view of a weight with any strides."""
    return c.pgm_matrix(&weight[0, 0], weight.strides[0] // 4, weight.strides[1] // 4,
                        weight.shape[0], weight.shape[1])


cdef bint fit(int64_t rows, int64_t columns, float[:, :] out) except -1:
    """ValueError unless a product has the shape of the result; return whether it is not empty."""
    if out.shape[0] != rows or out.shape[1] != columns:
        raise ValueError(f"arrays do not fit: a product of shape ({rows}, {columns}) and a result "
                         f"of shape ({out.shape[0]}, {out.shape[1]})")
    return rows > 0 and columns > 0


cdef bint meet(int64_t a, int64_t b) except -1:
    """ValueError unless the axes to sum over have equal lengths; return whether it is not 0."""
    if a != b:
        raise ValueError(f"arrays do not fit: {a} and {b} are to be summed over")
    return a > 0


def add_product(const float[:, ::1] x, const float[:, :] weight, float[:, :] out, int parts):
    """Add x weight to `out`; the weight is any view, and its rows at zeros of x are not read."""
    cdef c.pgm_product_job j
    cdef bint any_terms = meet(x.shape[1], weight.shape[0])
    cdef bint any_sums = fit(x.shape[0], weight.shape[1], out)
    if weight.strides[0] % 4 or weight.strides[1] % 4:
        raise ValueError("arrays do not fit: copy a weight that is a field of records first")
    j.apart = row_stride(out)
    if not any_terms or not any_sums:
        return
    j.a, j.rows, j.n, j.b, j.out, j.failed = \
        &x[0, 0], x.shape[0], x.shape[1], matrix_of(weight), &out[0, 0], 0
    with nogil:
        pgm_share(routines.multiply, &j, j.rows, parts)
    if j.failed:
        raise MemoryError


def outer(const float[:, ::1] a, const float[:, ::1] b, float[:, ::1] out, int parts):
    """Write a' b to `out`; zeros in a take no time."""
    cdef c.pgm_product_job j
    cdef bint any_terms = meet(a.shape[0], b.shape[0])
    if not fit(a.shape[1], b.shape[1], out):
        return
    if not any_terms:
        out[:] = 0.0
        return
    j.a, j.rows, j.n, j.b, j.out, j.failed = \
        &a[0, 0], a.shape[0], a.shape[1], matrix_of(b), &out[0, 0], 0
    with nogil:
        pgm_share(routines.outer, &j, j.n, parts)
    if j.failed:
        raise MemoryError


def pack(const float[:, :] weight, float[:, :, ::1] out, int64_t panels, int parts):
    """Write the first panels (tiles, rows, tile) of a weight, any view, filled up with zeros."""
    cdef c.pgm_pack_job j
    if not 0 <= panels <= out.shape[0] or out.shape[1] != weight.shape[0] \
            or (panels and (panels - 1) * out.shape[2] >= weight.shape[1]):
        raise ValueError(f"arrays do not fit: a weight of shape ({weight.shape[0]}, "
                         f"{weight.shape[1]}) and {panels} panels of shape ({out.shape[1]}, "
                         f"{out.shape[2]})")
    if not panels or not out.shape[1]:
        return
    j.weight, j.out, j.tile = matrix_of(weight), &out[0, 0, 0], out.shape[2]
    with nogil:
        pgm_share(routines.pack, &j, panels, parts)


ctypedef void (*sgemm_type)(char *ta, char *tb, int *m, int *n, int *k, float *alpha, float *a,
                            int *lda, float *b, int *ldb, float *beta, float *c,
                            int *ldc) noexcept nogil

cdef sgemm_type sgemm = NULL


cdef bint find_sgemm() except -1:
    """Return the matrix product of scipy's BLAS as a C function."""
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
    """Return the start of block i, a multiple of a vector for any number of threads."""
    return min(n, (n + 15) // 16 * i // blocks * 16)


cdef inline int64_t blocks_of(int64_t n) noexcept nogil:
    return (n + BLOCK - 1) // BLOCK


cdef void times_part(void *job, int64_t first, int64_t last) noexcept nogil:
    """Compute blocks of out += a b. BLAS stores columns, so that it computes out' += b' a'."""
    cdef c.pgm_blas_job *j = <c.pgm_blas_job *> job
    cdef int64_t i, row, column, blocks = blocks_of(j.m)
    cdef int m, some, n = <int> j.n, far = <int> (j.n if j.turned else j.m)
    cdef int apart = <int> j.apart
    cdef float one = 1.0
    cdef char plain = b"N", turn = b"T"
    cdef char *how = &turn if j.turned else &plain
    for i in range(first, last):
        row, column = i // blocks * BAND, edge(i % blocks, blocks, j.m)
        some, m = <int> min(BAND, j.rows - row), <int> (edge(i % blocks + 1, blocks, j.m) - column)
        sgemm(how, &plain, &m, &some, &n, &one,
              <float *> j.b + (column * n if j.turned else column), &far,
              <float *> j.a + row * n, &n, &one, j.out + row * apart + column, &apart)


def add_times(const float[:, ::1] x, const float[:, ::1] weight, bint turned, float[:, :] out,
              int parts):
    """Add x weight, or x weight' if turned, to `out` by BLAS."""
    cdef c.pgm_blas_job j
    cdef int64_t n = weight.shape[1] if turned else weight.shape[0]
    cdef int64_t m = weight.shape[0] if turned else weight.shape[1]
    cdef bint any_terms = meet(x.shape[1], n)
    cdef bint any_sums = fit(x.shape[0], m, out)
    j.apart = row_stride(out)
    if not any_terms or not any_sums:
        return
    find_sgemm()
    j.a, j.b, j.out, j.rows, j.n, j.m, j.turned = \
        &x[0, 0], &weight[0, 0], &out[0, 0], x.shape[0], n, m, turned
    with nogil:
        pgm_share(times_part, &j, (j.rows + BAND - 1) // BAND * blocks_of(m), parts)


cdef void across_part(void *job, int64_t first, int64_t last) noexcept nogil:
    """Compute blocks of rows of out = a' b."""
    cdef c.pgm_blas_job *j = <c.pgm_blas_job *> job
    cdef int64_t i, row, blocks = blocks_of(j.n)
    cdef int rows = <int> j.rows, m = <int> j.m, n = <int> j.n, some
    cdef float one = 1.0, zero = 0.0
    cdef char plain = b"N", turn = b"T"
    for i in range(first, last):
        row = edge(i, blocks, j.n)
        some = <int> (edge(i + 1, blocks, j.n) - row)
        sgemm(&plain, &turn, &m, &some, &rows, &one, <float *> j.b, &m, <float *> j.a + row, &n,
              &zero,
              j.out + row * m, &m)


def across(const float[:, ::1] a, const float[:, ::1] b, float[:, ::1] out, int parts):
    """Write a' b to `out` by BLAS."""
    cdef c.pgm_blas_job j
    cdef bint any_terms = meet(a.shape[0], b.shape[0])
    if not fit(a.shape[1], b.shape[1], out):
        return
    if not any_terms:
        out[:] = 0.0
        return
    find_sgemm()
    j.a, j.b, j.out, j.rows, j.n, j.m = \
        &a[0, 0], &b[0, 0], &out[0, 0], a.shape[0], a.shape[1], b.shape[1]
    with nogil:
        pgm_share(across_part, &j, blocks_of(j.n), parts)


# ---- optimizers: c/optimizers.h ----

SGD, ADAM, ADAMAX = c.PGM_SGD, c.PGM_ADAM, c.PGM_ADAMAX
LARGEST = c.PGM_LARGEST


def ascend(int kind, *, double rate, tuple keep, tuple unbias, double epsilon, tuple decay,
           const double[::1] p, g,
           double[::1] p2, float[::1] copy, double[::1] m, double[::1] v, int parts):
    """Make one step of an optimizer; return whether all parameters stay numbers within LARGEST.

    p2 receives the new parameters, copy the same in single precision; the moments m and v (None
    where there are none) change in place. g is float64 or float32; keep (2), unbias (2) and decay =
    (l1, l2) are in c/optimizers.h.
    """
    cdef c.pgm_ascend_job j
    cdef const double[::1] g64
    cdef const float[::1] g32
    cdef int64_t n = p.shape[0]
    if p2.shape[0] != n or copy.shape[0] != n or g.shape[0] != n:
        raise ValueError(f"arrays do not fit: {n} parameters, {g.shape[0]} numbers of the "
                         f"gradient, and room for {p2.shape[0]} and {copy.shape[0]}")
    if (m is not None and m.shape[0] != n) or (kind != c.PGM_SGD
                                               and (m is None or v is None or v.shape[0] != n)):
        raise ValueError(f"the moments do not fit {n} parameters")
    if not n:
        return True
    j.g, j.single = NULL, NULL
    if g.dtype == np.float32:
        g32 = g
        j.single = &g32[0]
    else:
        g64 = g
        j.g = &g64[0]
    j.scale = 1.0
    j.kind, j.fine, j.p, j.p2, j.copy = kind, 1, &p[0], &p2[0], &copy[0]
    j.m = &m[0] if m is not None else NULL
    j.v = &v[0] if v is not None else NULL
    j.rate, j.epsilon = rate, epsilon
    j.keep1, j.keep2 = keep
    j.unbias1, j.unbias2 = unbias
    j.l1, j.l2 = decay
    with nogil:
        pgm_share(routines.ascend, &j, n, parts)
    return bool(j.fine)


include "learning.pxi"

# ---- enumeration: c/gray.h and c/bunches.h ----

cdef class GrayWalk:
    """A compiled log-linear form for many rows of evidence: pgm_problem in c/routines.h.

    blocks: tuples (terms, padded size, start, power, complement).
    """

    cdef c.pgm_problem problem
    cdef c.pgm_block *blocks
    cdef object keep

    def __cinit__(self):
        self.blocks = NULL

    def __dealloc__(self):
        free(self.blocks)

    def __init__(self, const int64_t[::1] states, const double[:, ::1] pair,
                 const double[:, ::1] value,
                 const double[:, ::1] up, const double[:, ::1] down, list blocks):
        cdef Py_ssize_t b, count = len(blocks)
        cdef int64_t[::1] first = np.zeros(len(states) + 1, dtype=np.int64)
        np.cumsum(np.asarray(states) - 1, out=np.asarray(first)[1:])
        self.keep = (states, pair, value, up, down, first)
        self.blocks = <c.pgm_block *> calloc(max(count, 1), sizeof(c.pgm_block))
        if self.blocks == NULL:
            raise MemoryError
        for b in range(count):
            self.blocks[b].terms, self.blocks[b].size, self.blocks[b].start, self.blocks[b].power, \
                self.blocks[b].complement = blocks[b]
        self.problem.units, self.problem.indicators = states.shape[0], pair.shape[0]
        self.problem.components, self.problem.blocks = value.shape[1], count
        self.problem.states = &states[0] if states.shape[0] else NULL
        self.problem.first = &first[0]
        self.problem.pair = &pair[0, 0] if pair.shape[0] else NULL
        if value.shape[0] and value.shape[1]:
            self.problem.value, self.problem.up, self.problem.down = \
                &value[0, 0], &up[0, 0], &down[0, 0]
        else:
            self.problem.value = self.problem.up = self.problem.down = NULL
        self.problem.block = self.blocks

    def walk(self, *, const double[:, ::1] theta, const double[:, ::1] offset,
             int64_t start, int64_t count, int64_t step, int every, double[:, ::1] log_sums,
             double[:, ::1] log_weights=None, double[:, :, ::1] moments=None, bint best=False):
        """Enumerate `count` states of each row from `start` in pieces of `step`.

        Return (scale, mass), each (rows,).

        theta (rows, indicators), offset (rows, components): the coefficients of each row.
        every: a number of factors whose product cannot overflow before its exponent is extracted.
        log_sums (rows, pieces): receives the log of the sum of the weights of each piece.
        log_weights (rows, count): receives the log weights, if given.
        moments (rows, 1 or 1 + indicators, components + indicators): zeros; receives, if given, the
        weighted probabilities of all components and indicators (row 0), and the same over the
        states with indicator d = 1 (row 1 + d), divided by exp(scale). The mass is the sum of the
        weights, divided by exp(scale) as well; it is 0 without moments.
        best: units take their most probable value instead of being marginalised.
        """
        cdef c.pgm_walk_job j
        cdef c.pgm_problem *p = &j.problem
        p[0] = self.problem
        cdef Py_ssize_t row, rows = theta.shape[0]
        cdef int64_t n = p.components + p.indicators
        cdef int64_t each = 0 if moments is None else moments.shape[1]
        cdef int64_t[::1] integers = np.zeros(2 * p.units + 1, dtype=np.int64)
        cdef double[::1] reals = np.zeros(1 + n + n * each)
        if theta.shape[1] != p.indicators or offset.shape[1] != p.components \
                or offset.shape[0] != rows \
                or log_sums.shape[0] != rows or log_sums.shape[1] * step < count \
                or (log_weights is not None
                    and (log_weights.shape[0] != rows or log_weights.shape[1] < count)) \
                or (each > 1 and each != 1 + p.indicators) \
                or (each and (moments.shape[0] != rows or moments.shape[2] != n)):
            raise ValueError(f"arrays do not fit {rows} rows of the problem of {p.indicators} "
                             f"indicators and {p.components} components")
        found = np.empty((2, rows))
        cdef double[:, ::1] ends = found
        p.every = every
        j.work.state, j.work.direction = &integers[0], &integers[0] + p.units
        j.work.field = &reals[0]
        j.work.e = j.work.field + p.indicators
        j.work.sums = j.work.e + p.components
        j.work.open = j.work.sums + n
        j.start, j.count, j.step, j.best = start, count, step, best
        if each:
            j.moments = c.PGM_FIRST_MOMENTS if each == 1 else c.PGM_EACH_MOMENT
        else:
            j.moments = c.PGM_NO_MOMENTS
        with nogil:
            for row in range(rows):
                p.theta = &theta[row, 0] if p.indicators else NULL
                p.offset = &offset[row, 0] if p.components else NULL
                j.log_sums = &log_sums[row, 0] if log_sums.shape[1] else NULL
                j.log_weights = &log_weights[row, 0] if log_weights is not None else NULL
                j.sums = &moments[row, 0, 0] if each and n else NULL
                j.scale, j.mass = -INFINITY, 0.0
                routines.walk(&j)
                ends[0, row], ends[1, row] = j.scale, j.mass
        return found[0], found[1]


# ---- mean field with directed children: c/belief.h ----

cdef const int64_t *longs_at(dict net, str name, int64_t count) except? NULL:
    cdef const int64_t[::1] view = net[name]
    if view.shape[0] != count:
        raise ValueError(f"{name} has {view.shape[0]} numbers and does not fit, expected {count}")
    return &view[0] if count else NULL


cdef const int32_t *ints_at(dict net, str name, int64_t count) except? NULL:
    cdef const int32_t[::1] view = net[name]
    if view.shape[0] != count:
        raise ValueError(f"{name} has {view.shape[0]} numbers and does not fit, expected {count}")
    return &view[0] if count else NULL


cdef const double *doubles_at(const double[::1] view):
    return &view[0] if view.shape[0] else NULL


cdef class Graph:
    """The graph of mean-field problems, without its weights.

    kinds: tuples (states, width, curvature, value, log_base). net: the arrays of pgm_net in
    c/routines.h; it has "own_term" if lanes are terms.
    """

    cdef c.pgm_net net
    cdef c.pgm_kind *kinds
    cdef object keep

    def __cinit__(self):
        self.kinds = NULL

    def __dealloc__(self):
        free(self.kinds)

    def __init__(self, list kinds, dict net):
        cdef c.pgm_net *n = &self.net
        cdef int64_t axes = len(net["axis_unit"]), links = len(net["link_from"])
        self.keep = kinds, net
        n.units, n.terms, n.edges = \
            len(net["unit_kind"]), len(net["term_kind"]), len(net["edge_unit"])
        n.states, n.comps, n.capacity = net["states"], net["comps"], net["capacity"]
        n.term_states, n.term_comps = net["term_states"], net["term_comps"]
        self.kinds = <c.pgm_kind *> calloc(max(len(kinds), 1), sizeof(c.pgm_kind))
        if self.kinds == NULL:
            raise MemoryError
        for i, (states, width, curvature, value, log_base) in enumerate(kinds):
            if max(states, width) > c.PGM_MOST_VALUES or len(value) != states * width \
                    or len(log_base) != states:
                raise ValueError(f"a kind of unit with {states} states of {width} components does "
                                 f"not fit: {len(value)} values and {len(log_base)} base measures")
            self.kinds[i].states, self.kinds[i].width, self.kinds[i].curvature = \
                states, width, curvature
            self.kinds[i].value, self.kinds[i].log_base = doubles_at(value), doubles_at(log_base)
        n.kind = self.kinds
        n.unit_kind, n.term_kind = \
            ints_at(net, "unit_kind", n.units), ints_at(net, "term_kind", n.terms)
        n.term_plain = ints_at(net, "term_plain", n.terms)
        n.unit_state, n.unit_comp = \
            longs_at(net, "unit_state", n.units), longs_at(net, "unit_comp", n.units)
        n.term_state, n.term_comp = \
            longs_at(net, "term_state", n.terms), longs_at(net, "term_comp", n.terms)
        n.link_start = longs_at(net, "link_start", n.comps + 1)
        n.link_from = ints_at(net, "link_from", links)
        n.link_share = doubles_at(net["link_share"])
        n.down_start, n.down_edge = \
            longs_at(net, "down_start", n.units + 1), longs_at(net, "down_edge", n.edges)
        n.up_start = longs_at(net, "up_start", n.terms + 1)
        n.edge_unit, n.edge_term = \
            ints_at(net, "edge_unit", n.edges), ints_at(net, "edge_term", n.edges)
        n.edge_weight = longs_at(net, "edge_weight", n.edges)
        n.own_first, n.own_count = \
            longs_at(net, "own_first", n.units), longs_at(net, "own_count", n.units)
        n.own_complement = ints_at(net, "own_complement", n.units)
        if "own_term" in net:
            n.own_term = longs_at(net, "own_term", len(net["own_term"]))
        n.tables = len(net["table_entry"])
        n.table_start = longs_at(net, "table_start", n.tables + 1)
        n.table_entry = longs_at(net, "table_entry", n.tables)
        n.axis_unit, n.axis_table = longs_at(net, "axis_unit", axes), longs_at(net, "axis_table", axes)
        n.axis_stride = longs_at(net, "axis_stride", axes)
        n.in_start, n.in_axis = longs_at(net, "in_start", n.units + 1), longs_at(net, "in_axis", axes)
        n.own_table = longs_at(net, "own_table", n.units)


# The arrays of pgm_batch that start from a source, in the order of Belief.numbers; behind them are
# log_q, mean, phi, f and input.
BELIEF_SOURCES = ("q", "open", "barren", "live", "beta", "power", "base", "gain", "still", "on",
                  "pull", "xi")


cdef class Weights:
    """The graph of mean-field problems with the numbers of a model.

    graph: the graph with rows as lanes. by_term: the same graph with terms as lanes, on which
    rounds are made row by row; None for rounds with rows as lanes. edges, grouped: the numbers
    (weight, growth, term_two) of the edges of both. link_weight, entry, hard, cut: see pgm_net.
    """

    cdef c.pgm_net net
    cdef c.pgm_net by_term
    cdef bint grouped
    cdef object keep

    def __init__(self, Graph graph, Graph by_term, const double[::1] link_weight, tuple edges,
                 tuple grouped, const double[::1] entry, const int32_t[::1] hard, double cut):
        cdef c.pgm_net *n
        cdef const int32_t[::1] two
        cdef int i
        self.keep = graph, by_term, link_weight, edges, grouped, entry, hard
        self.net, self.grouped = graph.net, by_term is not None
        if by_term is not None:
            self.by_term = by_term.net
        if hard.shape[0] != self.net.units \
                or link_weight.shape[0] != len((<dict> graph.keep[1])["link_from"]):
            raise ValueError(f"{hard.shape[0]} hard units or {link_weight.shape[0]} links do not "
                             "fit")
        for i in range(1 + self.grouped):
            n = &self.by_term if i else &self.net
            weight, growth, two = grouped if i else edges
            if two.shape[0] != n.terms:
                raise ValueError(f"term_two has {two.shape[0]} numbers, expected {n.terms}")
            n.weight, n.growth = doubles_at(weight), doubles_at(growth)
            n.term_two = &two[0] if n.terms else NULL
            n.link_weight, n.entry = doubles_at(link_weight), doubles_at(entry)
            n.hard, n.cut = &hard[0] if n.units else NULL, cut


cdef class Belief:
    """The arrays of the rows of evidence of a mean-field problem, and its rounds.

    `numbers` has the arrays of pgm_batch, (blocks, items, lanes), one after the other.
    """

    cdef Weights weights
    cdef const c.pgm_net *net
    cdef c.pgm_batch batch
    cdef c.pgm_belief_job job
    cdef c.pgm_source sources[12]
    cdef readonly object numbers

    def __init__(self, Weights weights, int64_t rows):
        cdef const c.pgm_net *n = &weights.net
        cdef c.pgm_batch *a = &self.batch
        cdef int64_t lanes = routines.lanes, b = (rows + lanes - 1) // lanes, total = 0, shift
        cdef double[::1] room
        cdef double *to
        cdef int i
        cdef int64_t[12] items = [n.states, n.units, n.units, n.terms, 1, n.tables, n.comps,
                                  n.comps, n.term_comps, n.terms, n.term_comps, n.term_comps]
        self.weights, self.net = weights, n
        self.job.net, self.job.batch, self.job.blocks, self.job.rows = n, a, b, rows
        if weights.grouped:
            self.job.by_term = &weights.by_term
        for i in range(12):
            total += items[i]
        total += n.states + n.comps + n.term_states + n.terms + n.term_comps
        total *= b * lanes
        room = padded = np.zeros(total + lanes)
        # Vectors are loaded faster from addresses that are multiples of their size.
        shift = (lanes - <int64_t> (<size_t> &room[0] // sizeof(double)) % lanes) % lanes
        self.numbers = padded[shift:shift + total]
        to = &room[shift]
        for i in range(12):
            self.sources[i].to, self.sources[i].items = to, items[i]
            to += b * lanes * items[i]
        a.q, a.open, a.barren = self.sources[0].to, self.sources[1].to, self.sources[2].to
        a.live, a.beta, a.power = self.sources[3].to, self.sources[4].to, self.sources[5].to
        a.base, a.gain, a.still = self.sources[6].to, self.sources[7].to, self.sources[8].to
        a.on, a.pull, a.xi = self.sources[9].to, self.sources[10].to, self.sources[11].to
        a.log_q, a.mean = to, to + b * lanes * n.states
        a.phi = a.mean + b * lanes * n.comps
        a.f = a.phi + b * lanes * n.term_states
        a.input = a.f + b * lanes * n.terms

    def beside(self, const double[::1] factor, double floor, int parts):
        """Return a copy with other probabilities of free units, as in `start`."""
        cdef Belief other = Belief(self.weights, self.job.rows)
        cdef const double[::1] own = self.numbers
        cdef double[::1] to = other.numbers
        cdef c.pgm_belief_job j = other.job
        if factor.shape[0] != self.net.states:
            raise ValueError(f"{factor.shape[0]} factors do not fit {self.net.states} states")
        if own.shape[0]:
            memcpy(&to[0], &own[0], own.shape[0] * sizeof(double))
        j.factor, j.floor = &factor[0] if factor.shape[0] else NULL, floor
        with nogil:
            pgm_share(routines.start, &j, j.blocks, parts)
        return other

    def start(self, const double[::1] common, dict rows, const double[::1] factor, double floor,
              int parts):
        """Fill the arrays, and set what follows from the probabilities.

        common: the numbers of all sources that are equal in all rows, one source after the other.
        rows: number of a source -> (1 or rows, items), numbers that replace them. factor (states):
        factors of the probabilities of free units, or None. floor: their smallest probability.
        """
        cdef c.pgm_belief_job j = self.job
        cdef const double[:, ::1] view
        cdef const double *at = &common[0]
        cdef int64_t used = 0
        cdef int i
        for i in range(c.PGM_SOURCES):
            self.sources[i].from_, self.sources[i].rows = at + used, 1
            used += self.sources[i].items
        if common.shape[0] != used or (factor is not None and factor.shape[0] != self.net.states):
            raise ValueError(f"{common.shape[0]} numbers or the factors do not fit, expected "
                             f"{used}")
        for number, given in rows.items():
            view, i = given, number
            if view.shape[1] != self.sources[i].items or view.shape[0] not in (1, j.rows):
                raise ValueError(f"{BELIEF_SOURCES[i]} has shape {(view.shape[0], view.shape[1])}, "
                                 f"expected (1 or {j.rows}, {self.sources[i].items})")
            self.sources[i].from_ = &view[0, 0] if view.shape[1] else NULL
            self.sources[i].rows = view.shape[0]
        j.source, j.floor = self.sources, floor
        j.factor = &factor[0] if factor is not None and factor.shape[0] else NULL
        with nogil:
            pgm_share(routines.start, &j, j.blocks, parts)

    def settle(self, int64_t rounds, double tolerance, int steps, double least, int parts):
        """Make rounds until no probability changes by more than the tolerance; `steps` in each xi.

        Logarithms of entries of tables below `least` count as `least`. Returns the largest number
        of rounds of a block, and the largest of their last changes. Signal handlers are called
        repeatedly, and an exception that they raise ends the rounds.
        """
        cdef c.pgm_belief_job j = self.job
        cdef Watch watching = Watch()
        cdef int64_t one, most = 0
        cdef double last, largest = 0.0
        cdef int64_t[::1] made
        cdef double[::1] change
        cdef int64_t b
        if not j.blocks:
            return 0, 0.0
        j.made, j.change = &one, &last
        if j.blocks > 1:
            made, change = np.zeros(j.blocks, dtype=np.int64), np.zeros(j.blocks)
            j.made, j.change = &made[0], &change[0]
        j.rounds, j.tolerance, j.steps, j.least = rounds, tolerance, steps, least
        j.poll, j.token, j.stopped = watch, watching.begin(), 0
        with nogil:
            pgm_share(routines.settle, &j, j.blocks, parts)
        if j.failed:
            raise MemoryError
        if j.stopped:
            raise watching.error
        for b in range(j.blocks):
            most, largest = max(most, j.made[b]), max(largest, j.change[b])
        return most, largest

    def forward(self, const int64_t[::1] order, int steps, int parts):
        """Give the barren units in `order` the probabilities of their own terms."""
        cdef c.pgm_belief_job j = self.job
        if not order.shape[0] or not j.blocks:
            return
        j.order, j.count, j.steps = &order[0], order.shape[0], steps
        with nogil:
            pgm_share(routines.forward, &j, j.blocks, parts)

    def forward_tables(self, const int64_t[::1] order, int parts):
        """Give the barren units in `order` the expectation of their conditional tables."""
        cdef c.pgm_belief_job j = self.job
        if not order.shape[0] or not j.blocks:
            return
        j.order, j.count = &order[0], order.shape[0]
        with nogil:
            pgm_share(routines.forward_tables, &j, j.blocks, parts)

    def value(self, bint only_tables, int parts):
        """Return the bound without the terms of observed units, or the terms of tables, (rows,)."""
        cdef c.pgm_belief_job j = self.job
        found = np.zeros((j.blocks, routines.lanes))
        cdef double[:, ::1] view = found
        if j.blocks:
            j.value, j.only_tables = &view[0, 0], only_tables
            with nogil:
                pgm_share(routines.value, &j, j.blocks, parts)
        return found.reshape(-1)[:j.rows]

    def count_tables(self, const double[:, :, ::1] row_weight, double[::1] counts, int parts):
        """Add the expected indicators of all entries, summed over rows, to `counts`."""
        cdef c.pgm_belief_job j = self.job
        if row_weight.shape[0] != j.blocks or row_weight.shape[2] != routines.lanes:
            raise ValueError(f"row_weight does not fit {j.blocks} blocks of {routines.lanes} rows")
        if not j.blocks or not counts.shape[0]:
            return
        self.batch.row_weight = &row_weight[0, 0, 0]
        j.counts = &counts[0]
        with nogil:
            pgm_share(routines.count_tables, &j, self.net.tables, parts)

    def learn(self, const double[:, :, ::1] row_weight, double[::1] weight, int parts):
        """Add the slopes of the bound in the weights of the edges, summed over rows, to `weight`.

        row_weight (blocks, 1, LANES) has the weight of each row.
        """
        cdef c.pgm_belief_job j = self.job
        if row_weight.shape[0] != j.blocks or row_weight.shape[2] != routines.lanes:
            raise ValueError(f"row_weight does not fit {j.blocks} blocks of {routines.lanes} rows")
        if not j.blocks or not weight.shape[0]:
            return
        self.batch.row_weight = &row_weight[0, 0, 0]
        j.weight = &weight[0]
        with nogil:
            pgm_share(routines.learn, &j, self.net.terms, parts)


def move_clusters(const int32_t[::1] a, const int32_t[::1] b, const double[:, ::1] chance,
                  const uint8_t[:, ::1] positive, const double[:, :, ::1] field,
                  const double[:, ::1] uniform, uint8_t[:, ::1] state, int parts):
    """Move the clusters of some chains: c/clusters.h.

    All arrays are fields of pgm_cluster_job in c/routines.h; `state` changes in place.
    """
    cdef c.pgm_cluster_job j
    j.rows, j.units, j.edges = state.shape[0], state.shape[1], a.shape[0]
    j.lanes, j.field_lanes, j.states = chance.shape[0], field.shape[0], field.shape[2]
    if b.shape[0] != j.edges or chance.shape[1] != j.edges or positive.shape[0] != j.lanes \
            or positive.shape[1] != j.edges or field.shape[1] != j.units or j.states < 2 \
            or j.lanes not in (1, j.rows) or j.field_lanes not in (1, j.rows) \
            or uniform.shape[0] != j.rows or uniform.shape[1] != j.edges + j.units:
        raise ValueError("the arrays of a move of clusters do not fit")
    if not j.rows or not j.units:
        return
    cdef int64_t e
    for e in range(j.edges):
        if not (0 <= a[e] < j.units and 0 <= b[e] < j.units):
            raise ValueError(f"edge {e} joins {a[e]} and {b[e]}, of {j.units} units")
    cdef int32_t[:, ::1] parent = np.empty((j.rows, j.units), dtype=np.int32)
    cdef double[:, ::1] total = np.empty((j.rows, j.units * (j.states - 1)))
    j.a, j.b, j.chance, j.positive = NULL, NULL, NULL, NULL
    if j.edges:
        j.a, j.b, j.chance, j.positive = &a[0], &b[0], &chance[0, 0], &positive[0, 0]
    j.field, j.uniform, j.state = &field[0, 0, 0], &uniform[0, 0], &state[0, 0]
    j.parent, j.total = &parent[0, 0], &total[0, 0]
    with nogil:
        pgm_share(routines.clusters, &j, j.rows, parts)


def update_inside(const double[:, ::1] value, const double[::1] log_base,
                  const double[::1] weight, const int64_t[::1] start, const int32_t[::1] column,
                  const double[:, ::1] field, const double[::1] beta, const double[::1] reference,
                  const uint8_t[:, ::1] free_units, uint8_t[:, ::1] stale, double[:, ::1] mean,
                  double[:, ::1] eta, double quiet, int parts):
    """Update the stale units of a layer coupled with itself, one after the other: c/lateral.h.

    All arrays are fields of pgm_lateral_job in c/routines.h; value is None where the values are the
    interval [-1, 1], and start and column are None where the weight is dense. The columns of a
    sparse weight are not checked. stale (rows, units), mean and eta (rows, components) change in
    place.
    """
    cdef c.pgm_lateral_job j
    cdef int64_t comps = mean.shape[1]
    j.rows, j.units, j.comps, j.quiet = mean.shape[0], free_units.shape[1], comps, quiet
    j.states = 0 if value is None else value.shape[0]
    j.width = 1 if value is None else value.shape[1]
    if field.shape[0] != j.rows or field.shape[1] != comps or eta.shape[0] != j.rows \
            or eta.shape[1] != comps or beta.shape[0] != j.rows or reference.shape[0] != comps \
            or free_units.shape[0] != j.rows or j.units * j.width != comps \
            or stale.shape[0] != j.rows or stale.shape[1] != j.units \
            or j.states > MOST_STATES or j.width > MOST_STATES \
            or (value is not None and log_base.shape[0] != j.states):
        raise ValueError("the arrays of a layer coupled with itself do not fit")
    if not j.rows or not comps:
        return
    if start is None:
        if weight.shape[0] != comps * comps:
            raise ValueError(f"weight has {weight.shape[0]} numbers, expected {comps} squared")
    elif start.shape[0] != comps + 1 or column.shape[0] != weight.shape[0] \
            or start[0] != 0 or start[comps] != weight.shape[0]:
        raise ValueError("the arrays of a sparse weight do not fit")
    j.value, j.log_base, j.start, j.column = NULL, NULL, NULL, NULL
    if value is not None:
        j.value, j.log_base = &value[0, 0], &log_base[0]
    if start is not None:
        j.start = &start[0]
    if column is not None and column.shape[0]:
        j.column = &column[0]
    j.weight = &weight[0] if weight.shape[0] else &beta[0]
    j.field, j.beta, j.reference = &field[0, 0], &beta[0], &reference[0]
    j.free, j.stale, j.mean, j.eta = &free_units[0, 0], &stale[0, 0], &mean[0, 0], &eta[0, 0]
    with nogil:
        pgm_share(routines.lateral, &j, (j.rows + routines.lanes - 1) // routines.lanes, parts)


include "series.pxi"
include "orders.pxi"
# ---- junction trees: c/junction.h, c/elimination.h, c/tree_states.h, c/possible.h and
# c/restrict.h ----

include "elimination.pxi"
include "restricted.pxi"

# ---- belief propagation: c/messages.h ----

include "messages.pxi"
