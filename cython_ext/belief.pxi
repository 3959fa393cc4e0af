# Mean field where free units have directed children: see belief.h.

cdef extern from "belief.h" nogil:
    enum:
        PGM_MOST_VALUES
        PGM_LANES

    ctypedef struct pgm_kind:
        int states, width
        double curvature
        const double *value
        const double *log_base

    ctypedef struct pgm_net:
        int64_t units, terms, states, comps, term_states, term_comps, edges, capacity
        const pgm_kind *kind
        const int32_t *unit_kind
        const int32_t *term_kind
        const int32_t *term_plain
        const int64_t *unit_state
        const int64_t *unit_comp
        const int64_t *term_state
        const int64_t *term_comp
        const int64_t *link_start
        const int32_t *link_from
        const double *link_weight
        const int64_t *down_start
        const int64_t *down_edge
        const int64_t *up_start
        const int32_t *edge_unit
        const int32_t *edge_term
        const int64_t *edge_weight
        const double *weight
        const int64_t *own_first
        const int64_t *own_count
        const int32_t *own_complement

    ctypedef struct pgm_batch:
        double *log_q
        double *q
        double *mean
        const double *base
        const double *open
        const double *still
        const double *live
        double *on
        double *pull
        double *xi
        double *phi
        double *f
        const double *beta
        const double *barren
        const double *row_weight

    ctypedef struct pgm_belief_job:
        const pgm_net *net
        const pgm_batch *batch
        int64_t rounds, blocks, count
        double tolerance
        int steps, failed
        int64_t *made
        double *change
        const int64_t *order
        double *weight

    void pgm_settle_part(void *what, int64_t first, int64_t last)
    void pgm_forward_part(void *what, int64_t first, int64_t last)
    void pgm_learn_part(void *what, int64_t first, int64_t last)


LANES = PGM_LANES  # rows of a block


cdef double *table(dict arrays, str name, int64_t blocks, int64_t items) except? NULL:
    """The first number of a C-contiguous (blocks, items, LANES) array, NULL if it has none."""
    cdef double[:, :, ::1] view = arrays[name]
    if view.shape[0] != blocks or view.shape[1] != items or view.shape[2] != PGM_LANES:
        raise ValueError(f"{name} does not fit")
    return &view[0, 0, 0] if blocks * items else NULL


cdef const int64_t *long_at(object array, int64_t count) except? NULL:
    cdef const int64_t[::1] view = array
    if view.shape[0] != count:
        raise ValueError("an array does not fit")
    return &view[0] if count else NULL


cdef const int32_t *int_at(object array, int64_t count) except? NULL:
    cdef const int32_t[::1] view = array
    if view.shape[0] != count:
        raise ValueError("an array does not fit")
    return &view[0] if count else NULL


cdef const double *double_at(object array) except? NULL:
    cdef const double[::1] view = array
    return &view[0] if view.shape[0] else NULL


cdef class Belief:
    """The graph of one mean-field problem with its tables for many rows: see belief.h for the arrays.

    kinds: tuples (states, width, curvature, value, log_base). net: the integer arrays of pgm_net. arrays: those of
    pgm_batch, (blocks, items, LANES), changed in place.
    """

    cdef pgm_net net
    cdef pgm_batch batch
    cdef pgm_kind *kinds
    cdef object keep
    cdef int64_t blocks

    def __cinit__(self):
        self.kinds = NULL

    def __dealloc__(self):
        free(self.kinds)

    def __init__(self, list kinds, dict net, const double[::1] link_weight, const double[::1] weight, dict arrays):
        cdef pgm_net *n = &self.net
        cdef int64_t b
        self.keep = kinds, net, link_weight, weight, arrays
        n.units, n.terms, n.edges = len(net["unit_kind"]), len(net["term_kind"]), len(net["edge_unit"])
        n.states, n.comps, n.capacity = net["states"], net["comps"], net["capacity"]
        n.term_states, n.term_comps = net["term_states"], net["term_comps"]
        self.kinds = <pgm_kind *> calloc(max(len(kinds), 1), sizeof(pgm_kind))
        for i, (states, width, curvature, value, log_base) in enumerate(kinds):
            if max(states, width) > PGM_MOST_VALUES or len(value) != states * width or len(log_base) != states:
                raise ValueError("a kind of unit does not fit")
            self.kinds[i].states, self.kinds[i].width, self.kinds[i].curvature = states, width, curvature
            self.kinds[i].value, self.kinds[i].log_base = double_at(value), double_at(log_base)
        n.kind = self.kinds
        n.unit_kind, n.term_kind = int_at(net["unit_kind"], n.units), int_at(net["term_kind"], n.terms)
        n.term_plain = int_at(net["term_plain"], n.terms)
        n.unit_state, n.unit_comp = long_at(net["unit_state"], n.units), long_at(net["unit_comp"], n.units)
        n.term_state, n.term_comp = long_at(net["term_state"], n.terms), long_at(net["term_comp"], n.terms)
        n.link_start = long_at(net["link_start"], n.comps + 1)
        n.link_from = int_at(net["link_from"], link_weight.shape[0])
        n.link_weight = &link_weight[0] if link_weight.shape[0] else NULL
        n.down_start, n.down_edge = long_at(net["down_start"], n.units + 1), long_at(net["down_edge"], n.edges)
        n.up_start = long_at(net["up_start"], n.terms + 1)
        n.edge_unit, n.edge_term = int_at(net["edge_unit"], n.edges), int_at(net["edge_term"], n.edges)
        n.edge_weight = long_at(net["edge_weight"], n.edges)
        n.weight = &weight[0] if weight.shape[0] else NULL
        n.own_first, n.own_count = long_at(net["own_first"], n.units), long_at(net["own_count"], n.units)
        n.own_complement = int_at(net["own_complement"], n.units)
        self.blocks = b = len(arrays["beta"])
        self.batch.log_q, self.batch.q = table(arrays, "log_q", b, n.states), table(arrays, "q", b, n.states)
        self.batch.mean, self.batch.base = table(arrays, "mean", b, n.comps), table(arrays, "base", b, n.comps)
        self.batch.open, self.batch.barren = table(arrays, "open", b, n.units), table(arrays, "barren", b, n.units)
        self.batch.still, self.batch.live = table(arrays, "still", b, n.term_comps), table(arrays, "live", b, n.terms)
        self.batch.on, self.batch.pull = table(arrays, "on", b, n.terms), table(arrays, "pull", b, n.term_comps)
        self.batch.xi, self.batch.phi = table(arrays, "xi", b, n.term_comps), table(arrays, "phi", b, n.term_states)
        self.batch.f, self.batch.beta = table(arrays, "f", b, n.terms), table(arrays, "beta", b, 1)

    def settle(self, int64_t rounds, double tolerance, int steps, int64_t[::1] made, double[::1] change, int parts):
        """Rounds until nothing changes by more than the tolerance; made and change (blocks,) say how it ended."""
        cdef pgm_belief_job j
        if made.shape[0] != self.blocks or change.shape[0] != self.blocks:
            raise ValueError("made or change does not fit")
        if not self.blocks:
            return
        j.net, j.batch, j.rounds, j.tolerance, j.steps, j.failed = &self.net, &self.batch, rounds, tolerance, steps, 0
        j.made, j.change = &made[0], &change[0]
        with nogil:
            pgm_share(pgm_settle_part, &j, self.blocks, parts)
        if j.failed:
            raise MemoryError

    def forward(self, const int64_t[::1] order, int steps, int parts):
        """Give the units in `order`, where they are barren, the probabilities of their own terms."""
        cdef pgm_belief_job j
        if not order.shape[0] or not self.blocks:
            return
        j.net, j.batch, j.order, j.count, j.steps = &self.net, &self.batch, &order[0], order.shape[0], steps
        with nogil:
            pgm_share(pgm_forward_part, &j, self.blocks, parts)

    def learn(self, const double[:, :, ::1] row_weight, double[::1] weight, int parts):
        """Add the slopes of the bound in the edges' weights, summed over rows."""
        cdef pgm_belief_job j
        if row_weight.shape[0] != self.blocks or row_weight.shape[2] != PGM_LANES:
            raise ValueError("arrays do not fit")
        if not self.blocks or not weight.shape[0]:
            return
        self.batch.row_weight = &row_weight[0, 0, 0]
        j.net, j.batch, j.blocks = &self.net, &self.batch, self.blocks
        j.weight = &weight[0]
        with nogil:
            pgm_share(pgm_learn_part, &j, self.net.terms, parts)
