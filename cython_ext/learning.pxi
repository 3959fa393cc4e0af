# ---- updates of learning: c/learning.h ----

OPERATIONS = {
    "take": c.PGM_TAKE, "keep": c.PGM_KEEP, "take_states": c.PGM_TAKE_STATES,
    "copy_rows": c.PGM_COPY_ROWS,
    "start_field": c.PGM_START_FIELD,
    "add_product": c.PGM_ADD_PRODUCT, "add_each": c.PGM_ADD_EACH, "mean": c.PGM_MEAN,
    "change": c.PGM_CHANGE, "settled": c.PGM_SETTLED, "check_field": c.PGM_CHECK_FIELD,
    "draw": c.PGM_DRAW, "pack": c.PGM_PACK, "sweep": c.PGM_SWEEP, "values": c.PGM_VALUES,
    "weigh": c.PGM_WEIGH, "outer": c.PGM_OUTER, "sum": c.PGM_SUM, "follow": c.PGM_FOLLOW,
    "centre": c.PGM_CENTRE, "combine": c.PGM_COMBINE, "fast": c.PGM_FAST,
    "ladder": c.PGM_LADDER, "pick": c.PGM_PICK,
    "ascend": c.PGM_ASCEND, "average": c.PGM_AVERAGE,
}


def shuffled(const uint32_t[::1] key, uint64_t number, int64_t rows):
    """Return rows 0 .. rows - 1 in the random order of a pass with this number, (rows,)."""
    out = np.empty(rows, dtype=np.int64)
    cdef int64_t[::1] view = out
    if key.shape[0] != 4:
        raise ValueError("the key does not fit")
    if rows:
        routines.shuffle(&key[0], number, rows, &view[0])
    return out


def means(int kind, int states, int width, float variance, const float[::1] support,
          const float[::1] log_base, const float[:, ::1] eta, float[:, ::1] out, int parts):
    """Write the means of units with natural parameters eta to `out`: c/means.h."""
    cdef c.pgm_mean_job j
    if eta.shape[0] != out.shape[0] or eta.shape[1] != out.shape[1]:
        raise ValueError("arrays do not fit")
    if not eta.shape[0] or not eta.shape[1]:
        return
    j.eta, j.out, j.n, j.unit, j.values, j.width, j.variance = \
        &eta[0, 0], &out[0, 0], eta.shape[1], kind, states, width, variance
    j.support = &support[0] if support is not None else NULL
    j.log_base = &log_base[0] if log_base is not None else NULL
    with nogil:
        pgm_share(routines.mean, &j, eta.shape[0], parts)


cdef class Ladder:
    """Pairs of slow and fast chains, and their ladder: pgm_ladder in c/routines.h.

    All arrays are kept, and all but betas change in place.
    """

    cdef c.pgm_ladder ladder
    cdef object keep

    def __init__(self, *, const double[::1] betas, int64_t[:, ::1] rung, int64_t[::1] slow,
                 int64_t[::1] fast, double[:, ::1] log_g, double[:, ::1] visits,
                 int64_t[::1] seen, int64_t[::1] visited, int64_t[::1] counts,
                 uint8_t[::1] from_below):
        cdef int64_t pairs = slow.shape[0], rungs = betas.shape[0]
        if rung.shape[0] * rung.shape[1] != pairs or log_g.shape[0] != rung.shape[0] \
                or log_g.shape[1] != rungs or visits.shape[0] != rung.shape[0] \
                or visits.shape[1] != rungs or fast.shape[0] != pairs \
                or seen.shape[0] != rungs or visited.shape[0] != rungs or counts.shape[0] != 6 \
                or from_below.shape[0] != pairs or not pairs:
            raise ValueError("arrays do not fit")
        density, here = np.zeros((2 * pairs, 2)), np.zeros(rungs, dtype=np.int64)
        cdef double[:, ::1] density_view = density
        cdef int64_t[::1] here_view = here
        self.keep = (betas, rung, slow, fast, log_g, visits, seen, visited, counts, from_below,
                     density, here)
        self.ladder.pairs, self.ladder.rungs, self.ladder.rows = pairs, rungs, rung.shape[0]
        self.ladder.betas, self.ladder.rung = &betas[0], &rung[0, 0]
        self.ladder.slow, self.ladder.fast = &slow[0], &fast[0]
        self.ladder.log_g, self.ladder.visits = &log_g[0, 0], &visits[0, 0]
        self.ladder.seen, self.ladder.visited = &seen[0], &visited[0]
        self.ladder.counts, self.ladder.from_below = &counts[0], &from_below[0]
        self.ladder.density, self.ladder.here = &density_view[0, 0], &here_view[0]


cdef class Updates:
    """The operations of an update of learning, and a loop over updates: c/learning.h.

    rows and size are the rows of data and of a mini-batch, weight (rows,) their weights, chains the
    number of chains, or 0 if each row of a batch has its own. order_key (4,) is the key of the
    order of rows. moved and scratch are working memory; sparse_share and listing decide between a
    matrix product and sums of rows. Every array given is kept. `add` appends an operation.
    """

    cdef c.pgm_learning u
    cdef list keep
    cdef int64_t room

    def __cinit__(self):
        self.u.op = NULL

    def __dealloc__(self):
        free(self.u.op)

    def __init__(self, *, int64_t rows, int64_t size, int64_t chains, int64_t keys, int64_t rates,
                 int64_t uniforms, const uint32_t[::1] order_key, const double[::1] weight, float[::1] weights,
                 int64_t[::1] moved, float[::1] scratch, float sparse_share, float listing):
        mark, batch = np.zeros(rows // 64 + 1, dtype=np.uint64), np.empty(size, dtype=np.int64)
        cdef uint64_t[::1] mark_view = mark
        cdef int64_t[::1] batch_view = batch
        if rows < 1 or size < 1 or weight.shape[0] != rows or order_key.shape[0] != 4 \
                or weights.shape[0] < (chains or size) + size:
            raise ValueError("arrays do not fit")
        self.keep, self.room = [mark, batch, order_key, weight, weights, moved, scratch], 0
        self.u.ops, self.u.rows, self.u.size, self.u.chains = 0, rows, size, chains
        self.u.keys, self.u.rates, self.u.order_key = keys, rates, &order_key[0]
        self.u.uniforms = uniforms
        self.u.weight, self.u.weights = &weight[0], &weights[0]
        self.u.mark, self.u.batch = &mark_view[0], &batch_view[0]
        self.u.moved, self.u.scratch = &moved[0], &scratch[0]
        self.u.sparse_share, self.u.listing = sparse_share, listing
        find_sgemm()
        self.u.times, self.u.across, self.u.share = times_part, across_part, pgm_share

    cdef float *floats(self, array) except? NULL:
        """Return the address of a contiguous array of float32, and keep the array."""
        cdef const float[::1] view
        if array is None:
            return NULL
        view = array.reshape(-1)
        self.keep.append(array)
        return <float *> &view[0]

    cdef double *doubles(self, array) except? NULL:
        """Return the address of a contiguous array of float64, and keep the array."""
        cdef const double[::1] view
        if array is None:
            return NULL
        view = array.reshape(-1)
        self.keep.append(array)
        return <double *> &view[0]

    cdef uint8_t *bytes_of(self, array) except? NULL:
        """Return the address of a contiguous array of bytes, and keep the array."""
        cdef const uint8_t[::1] view
        if array is None:
            return NULL
        view = array.reshape(-1)
        self.keep.append(array)
        return <uint8_t *> &view[0]

    def add(self, str kind, *, int span=0, bint turned=False, int to=0, int64_t n=0, int64_t m=0,
            int64_t apart=0, a=None, b=None, c_=None, d=None, x=None, out=None, more=None,
            sums=None, states=None, to_states=None, double number=0.0, double rest=0.0, int rate=0,
            int key=-1, bint anew=False, int layer=0, uint64_t first=0, uint64_t sweeps=1,
            Chains chains=None, int unit=0, int values=0, int width=1, float variance=0.0,
            support=None, log_base=None, int64_t tile=0, int step=0, tuple keep=(0.0, 0.0),
            double epsilon=0.0, tuple decay=(0.0, 0.0), float scale=1.0, moments=(None, None),
            copy=None, work=None, int64_t rows=0, Ladder ladder=None,
            const int64_t[::1] chosen=None, int parts=1):
        """Append an operation: pgm_op in c/routines.h. Returns its number."""
        cdef c.pgm_op *o
        cdef void *more_room
        if self.u.ops == self.room:
            self.room = 2 * self.room + 16
            more_room = malloc(self.room * sizeof(c.pgm_op))
            if more_room == NULL:
                raise MemoryError
            if self.u.op != NULL:
                memcpy(more_room, self.u.op, self.u.ops * sizeof(c.pgm_op))
                free(self.u.op)
            self.u.op = <c.pgm_op *> more_room
        o = self.u.op + self.u.ops
        memset(o, 0, sizeof(c.pgm_op))
        o.kind, o.parts, o.span, o.turned, o.to = OPERATIONS[kind], parts, span, turned, to
        o.n, o.m, o.apart, o.number, o.rest = n, m, apart or m, number, rest
        o.a, o.b, o.c, o.d = self.floats(a), self.floats(b), self.floats(c_), self.floats(d)
        o.x, o.sums = self.doubles(x), self.doubles(sums)
        o.out, o.more = self.floats(out), self.floats(more)
        o.states, o.to_states = self.bytes_of(states), self.bytes_of(to_states)
        o.rate, o.key, o.anew, o.layer, o.first, o.sweeps = rate, key, anew, layer, first, sweeps
        o.mean.n, o.mean.unit, o.mean.values, o.mean.width = m, unit, values, width
        o.mean.variance = variance
        o.mean.support, o.mean.log_base = self.floats(support), self.floats(log_base)
        if chains is not None:
            o.chains, o.capacity, o.widest = &chains.chains, chains.capacity, chains.widest
            self.keep.append(chains)
        o.rows = rows
        if ladder is not None:
            o.ladder = &ladder.ladder
            self.keep.append(ladder)
        if chosen is not None:
            o.chosen = &chosen[0]
            self.keep.append(chosen)
        if tile:
            # panels of a weight, or of its transpose
            o.pack.tile, o.pack.out = tile, o.out
            o.pack.weight = c.pgm_matrix(o.a, 1 if turned else m, n if turned else 1, n, m)
            o.n = (m + tile - 1) // tile
        o.step.kind, o.step.epsilon, o.step.scale = step, epsilon, scale
        o.step.keep1, o.step.keep2 = keep
        o.beta1, o.beta2 = keep
        o.step.l1, o.step.l2 = decay
        o.step.single, o.step.copy = o.a, self.floats(copy)
        o.step.m, o.step.v = self.doubles(moments[0]), self.doubles(moments[1])
        o.work = self.doubles(work)
        self.u.ops += 1
        return self.u.ops - 1

    def ready(self, int64_t updates, *, int64_t first, const double[:, ::1] rate,
              const float[::1] alpha, const uint32_t[:, :, ::1] key,
              const double[:, ::1] uniform, int64_t[::1] order,
              int64_t left, uint64_t number, tuple begins, tuple ends):
        """Get ready for updates number first + 1 .. first + updates, for `make_updates`.

        rate (updates, rates), alpha (updates,), key (updates, keys, 4) and uniform (updates,
        uniforms) belong to the updates.
        The last `left` entries of order (rows,) are the rest of a pass; `number` is that of the
        next pass. The parameters of operation i are begins[i] (not changed) and become ends[i].
        All arrays have to stay until the updates have been made.
        """
        cdef int64_t i
        cdef const double[::1] begin
        cdef double[::1] end
        if updates < 1 or rate.shape[0] != updates or rate.shape[1] != self.u.rates \
                or alpha.shape[0] != updates or order.shape[0] != self.u.rows \
                or not 0 <= left <= self.u.rows \
                or (self.u.keys and (key.shape[0] != updates or key.shape[1] != self.u.keys)) \
                or uniform.shape[0] != updates or uniform.shape[1] != self.u.uniforms:
            raise ValueError("arrays do not fit")
        for i in range(self.u.ops):
            if self.u.op[i].work != NULL:
                begin, end = begins[self.u.op[i].layer], ends[self.u.op[i].layer]
                if begin.shape[0] != self.u.op[i].n or end.shape[0] != self.u.op[i].n:
                    raise ValueError("parameters do not fit")
                self.u.op[i].x, self.u.op[i].last = &begin[0], &end[0]
        self.u.updates, self.u.first, self.u.left, self.u.passes = updates, first, left, number
        self.u.rate = &rate[0, 0] if self.u.rates else NULL
        self.u.alpha = &alpha[0]
        self.u.key = &key[0, 0, 0] if self.u.keys else NULL
        self.u.uniform = &uniform[0, 0] if self.u.uniforms else NULL
        self.u.order = &order[0]

    def outcome(self):
        """Return what `make_updates` has done.

        These are the number of updates made, the operation that has failed or -1, and the rows left
        and the number of passes afterwards.
        """
        return self.u.made, self.u.failed, self.u.left, self.u.passes


cdef void make_some(void *job, int64_t first, int64_t last) noexcept nogil:
    """Make the updates of some fits."""
    cdef int64_t i
    for i in range(first, last):
        routines.update((<c.pgm_learning **> job)[i])


def make_updates(list fits, int parts):
    """Make the updates for which each of these Updates is ready, `parts` fits at a time."""
    cdef int64_t i, count = len(fits)
    cdef Updates one
    cdef c.pgm_learning **jobs = <c.pgm_learning **> malloc((count + 1) * sizeof(void *))
    if jobs == NULL:
        raise MemoryError
    try:
        for i in range(count):
            one = fits[i]
            jobs[i] = &one.u
        with nogil:
            pgm_share(make_some, jobs, count, parts)
    finally:
        free(jobs)
