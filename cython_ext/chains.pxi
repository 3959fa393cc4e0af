# Chains and their sweeps: see sweep.h.

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
        float *rest
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
        double *step
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
    void pgm_log_densities(const pgm_machine *m, int64_t first, int64_t end, int last, double *log_density)
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
    s.step = <double *> calloc(j.widest, sizeof(double))
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
              float[:, ::1] field, float[:, ::1] zeta, float[:, ::1] rest,
              uint8_t[:, ::1] state, float[:, ::1] value,
              const uint8_t[:, ::1] free_units, const uint8_t[:, ::1] alive):
        """Describe layer `index`; None where an array is not needed."""
        cdef pgm_layer *l = self.m.layer + index
        self.keep[index, 0] = (support, log_base, bias, reference, soft, base, field, zeta, rest, state,
                               value, free_units, alive)
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
        l.rest = &rest[0, 0] if rest is not None else NULL
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

    def log_density(self, double[:, ::1] out, bint last):
        """Write log p_beta = out[:, 0] + beta out[:, 1] of all chains, each up to a constant of the row.

        `last`: from the fields of the layers that a sweep draws last alone, see pgm_field_part.
        """
        if out.shape[0] != self.chains or out.shape[1] != 2:
            raise ValueError("chains out of range")
        with nogil:
            pgm_log_densities(&self.m, 0, self.chains, last, &out[0, 0])
