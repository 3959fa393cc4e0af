# Exact enumeration: see gray.h and bunches.h.

cdef extern from "bunches.h" nogil:
    enum:
        PGM_BUNCH
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
    bint pgm_in_bunches(const pgm_problem *p, int64_t index, int64_t count)
    double pgm_bunch_walk(const pgm_problem *p, pgm_work *w, double constant, int64_t index, int64_t count,
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
        cdef bint bunches = rows < 2 and log_weights is None and not best and step % PGM_BUNCH == 0 \
            and pgm_in_bunches(&p, start, count)
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
                if bunches:
                    log_sums[piece] = pgm_bunch_walk(&p, &w, constant, start + done, length, wanted, &scale)
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
