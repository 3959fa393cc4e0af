# Sweeps of models with tables for Python: checks of shapes, and threads.


def waves(const int32_t[::1] visit, const int64_t[::1] start, const int32_t[::1] scope,
          int64_t scopes):
    """Return the wave (visits,) of each visit of a sweep, and the period: independent_visits.py.

    start (units + 1,) and scope list the scopes of each unit.
    """
    cdef int64_t i, e, wave, period = 1, visits = visit.shape[0], f
    found = np.empty(visits, np.int64)
    low, high = np.full(scopes, -1, np.int64), np.full(scopes, -1, np.int64)
    cdef int64_t[::1] out = found, first = low, last = high
    for i in range(visits):
        wave = 0
        for e in range(start[visit[i]], start[visit[i] + 1]):
            wave = max(wave, last[scope[e]] + 1)
        out[i] = wave
        for e in range(start[visit[i]], start[visit[i] + 1]):
            last[scope[e]] = wave
            if first[scope[e]] < 0:
                first[scope[e]] = wave
    for f in range(scopes):
        period = max(period, last[f] - first[f] + 1)
    return found, period


cdef class TabledSweeps:
    """The chains of one target with tables; every array given is kept, and changed in place.

    sites (units, 15) has the columns of pgm_site in c/routines.h; visit (visits,) has the units in
    the order of a sweep. support and log_base have the values of each kind of unit and log h of
    these. state (units, chains), value, soft, free and cut have their rows padded to whole groups
    of chains, or are (chains, units) with `alone`; free and cut are None where there is no mask.
    The memory of these arrays ends a vector after their last number, as engine.packed.zeros makes
    them.
    """

    cdef c.pgm_tabled chains
    cdef dict keep
    cdef float[::1] beta

    def __init__(self, *, int64_t chains, bint alone, const int64_t[:, ::1] sites,
                 const int32_t[::1] visit, const float[::1] support, const float[::1] log_base,
                 float[::1] beta, const uint32_t[::1] stream, uint8_t[:, ::1] state,
                 float[:, ::1] value, const float[:, ::1] soft, const uint8_t[:, ::1] free_units,
                 const uint8_t[:, ::1] cut, const float[::1] reference):
        cdef c.pgm_tabled *m = &self.chains
        cdef int64_t units = sites.shape[0], lanes = state.shape[0] if alone else state.shape[1]
        if sites.shape[1] * 8 != sizeof(c.pgm_site):
            raise ValueError("sites do not fit")
        if lanes < chains or beta.shape[0] < lanes or stream.shape[0] < lanes \
                or (state.shape[1] if alone else state.shape[0]) != units:
            raise ValueError(f"the states of {chains} chains of {units} units do not fit")
        self.keep = {0: (sites, visit, support, log_base, beta, stream, state,
                         value, soft, free_units, cut, reference)}
        self.beta = beta
        m.units, m.visits, m.chains, m.alone = units, visit.shape[0], chains, alone
        m.apart = 1 if alone else lanes
        m.values, m.softs = value.shape[1], soft.shape[1]
        m.site = <const c.pgm_site *> &sites[0, 0]
        m.visit = &visit[0] if visit.shape[0] else NULL
        m.support, m.log_base = &support[0], &log_base[0]
        m.reference = &reference[0] if reference is not None else NULL
        m.state, m.value, m.soft = &state[0, 0], &value[0, 0], &soft[0, 0]
        m.free = &free_units[0, 0] if free_units is not None else NULL
        m.cut = &cut[0, 0] if cut is not None else NULL
        m.beta, m.stream = &beta[0], &stream[0]

    def parameters(self, const int64_t[:, ::1] slots, const int32_t[:, ::1] members,
                   const float[::1] term, const float[::1] bias,
                   const int64_t[::1] link_start, const int32_t[::1] link_from,
                   const float[::1] link_weight, const int64_t[::1] arrow_start,
                   const int32_t[::1] arrow_from, const float[::1] arrow_weight,
                   const int64_t[::1] child_start, const int32_t[::1] child):
        """Take the parameters of a model: tables, biases, couplings as csr.

        slots (n, 7) and members (n, 2) have the columns of pgm_slot and pgm_member in c/routines.h,
        term the logarithms of all entries.
        """
        if slots.shape[1] * 8 != sizeof(c.pgm_slot) or members.shape[1] * 4 != sizeof(c.pgm_member):
            raise ValueError("slots or members do not fit")
        self.keep[1] = (slots, members, term, bias, link_start, link_from, link_weight, arrow_start, arrow_from,
                        arrow_weight, child_start, child)
        self.chains.wave = NULL
        self.chains.slot = <const c.pgm_slot *> &slots[0, 0]
        self.chains.member = <const c.pgm_member *> &members[0, 0]
        self.chains.term, self.chains.bias = &term[0], &bias[0]
        self.chains.link_start = &link_start[0]
        self.chains.link_from, self.chains.link_weight = &link_from[0], &link_weight[0]
        self.chains.arrow_start = &arrow_start[0]
        self.chains.arrow_from, self.chains.arrow_weight = &arrow_from[0], &arrow_weight[0]
        self.chains.child_start, self.chains.child = &child_start[0], &child[0]

    def by_forests(self, const int64_t[::1] start, const int32_t[::1] near,
                   const int32_t[::1] value_unit):
        """Draw a random forest in each sweep: c/forests.h.

        start (units + 1,) and near list the moving neighbours of each unit, value_unit (values,)
        has the unit of each row of values.
        """
        cdef c.pgm_tabled *m = &self.chains
        cdef int64_t i, e, rows = self.keep[0][7].shape[0]
        if m.alone or start.shape[0] != m.units + 1 or start[0] != 0 \
                or near.shape[0] < start[m.units] or value_unit.shape[0] != rows:
            raise ValueError("the neighbours do not fit")
        for i in range(m.units):
            for e in range(start[i], start[i + 1]):
                if not 0 <= near[e] < m.units or near[e] == i:
                    raise ValueError(f"unit {i} has the neighbour {near[e]}, of {m.units} units")
        for i in range(rows):
            if not 0 <= value_unit[i] < m.units:
                raise ValueError(f"row {i} of the values belongs to unit {value_unit[i]}")
        self.keep[3] = (start, near, value_unit)
        m.near_start, m.near, m.value_unit = &start[0], &near[0], &value_unit[0]

    def by_waves(self, const int32_t[::1] unit, const int64_t[::1] start, int64_t period,
                 float[:, ::1] uniforms):
        """Overlap several sweeps of each chain by waves, with `alone`: independent_visits.py.

        uniforms (chains, PGM_SWEEPS_TOGETHER * 64 * blocks) is written to; blocks of 64 hold the
        uniforms of all units. A call of `parameters` discards the waves.
        """
        cdef c.pgm_tabled *m = &self.chains
        cdef int64_t blocks = (m.units + 63) // 64
        if not m.alone or unit.shape[0] != m.visits or start[start.shape[0] - 1] != m.visits \
                or uniforms.shape[0] < m.chains \
                or uniforms.shape[1] != c.PGM_SWEEPS_TOGETHER * 64 * blocks:
            raise ValueError("the waves do not fit")
        self.keep[2] = (unit, start, uniforms)
        m.wave, m.wave_start, m.uniforms = &unit[0], &start[0], &uniforms[0, 0]
        m.waves, m.period = start.shape[0] - 1, period

    def rekey(self, const uint32_t[::1] key, float alpha):
        """Take another key of the uniforms, and another share of the flip-the-state kernel."""
        cdef int i
        for i in range(4):
            self.chains.key[i] = key[i]
        self.chains.alpha = alpha

    def sweep(self, uint64_t first, uint64_t count, int parts, *, double[:, :, ::1] trace=None,
              bint backward=False, const double[::1] betas=None, double[::1] log_weight=None,
              bint joint=False, const uint8_t[::1] anew=None):
        """Make sweeps number first .. first + count - 1 of all chains.

        trace (count, chains, 2), if given, receives the log densities after each sweep: log p_beta
        = trace[..., 0] + beta trace[..., 1]. With betas (count + 1,), sweep t is made at betas[t +
        1], and before it log_weight (chains,) gains log p_(betas[t + 1]) - log p_(betas[t]), with
        the units marked `summed` marginalised unless `joint`. Units of the mask anew (units,) are
        drawn from their conditionals.
        """
        cdef c.pgm_tabled_job j
        cdef int64_t chains = self.chains.chains
        if trace is not None and (trace.shape[0] < <int64_t> count or trace.shape[1] != chains
                                  or trace.shape[2] != 2):
            raise ValueError("the trace does not fit")
        if betas is not None and (betas.shape[0] != <int64_t> count + 1
                                  or log_weight.shape[0] != chains):
            raise ValueError("the schedule does not fit")
        if anew is not None and anew.shape[0] != self.chains.units:
            raise ValueError("the mask of units does not fit")
        j.first, j.sweeps, j.joint, j.backward = first, count, joint, backward
        j.anew = &anew[0] if anew is not None else NULL
        j.betas = &betas[0] if betas is not None else NULL
        j.log_weight = &log_weight[0] if betas is not None else NULL
        j.trace = &trace[0, 0, 0] if trace is not None and count else NULL
        j.density = NULL
        self.share(&j, parts)

    def log_density(self, double[:, ::1] out, int parts):
        """Write log p_beta = out[:, 0] + beta out[:, 1] of the current states of all chains."""
        cdef c.pgm_tabled_job j
        if out.shape[0] != self.chains.chains or out.shape[1] != 2:
            raise ValueError(f"log densities of {self.chains.chains} chains do not fit an array of "
                             f"shape ({out.shape[0]}, {out.shape[1]})")
        j.first = j.sweeps = 0
        j.joint = j.backward = 0
        j.anew, j.betas, j.log_weight, j.trace, j.density = NULL, NULL, NULL, NULL, &out[0, 0]
        self.share(&j, parts)

    cdef share(self, c.pgm_tabled_job *j, int parts):
        cdef int64_t items = self.chains.chains
        cdef int failed = 0
        j.failed = &failed
        if not self.chains.alone:
            items = self.chains.apart // c.PGM_LANES_TOGETHER
        j.chains, j.beta = &self.chains, &self.beta[0]
        with nogil:
            pgm_share(routines.tabled, j, items, parts)
        if failed:
            raise MemoryError("no memory for the forests of a sweep")


