# Draws from conditional tables for Python: checks of shapes, and threads.


def draw_step(const int64_t[::1] unit, const int64_t[::1] states, const int64_t[::1] first,
              const int64_t[::1] start, const int64_t[::1] parent, const int64_t[::1] stride,
              const uint8_t[:, ::1] role, const int64_t[::1] place, const double[:, ::1] uniform,
              const double[::1] prob, const double[::1] log, int32_t[:, ::1] state,
              double[::1] log_weight, int parts):
    """Draw or weigh the units of a step, whose parents have been drawn.

    All arrays are fields of pgm_ancestral_job in c/routines.h. role (units, rows) is 0 where do()
    has set the unit, 1 where it is drawn, and 2 where it is observed.
    """
    cdef c.pgm_ancestral_job j
    cdef int64_t units = unit.shape[0], draws = state.shape[1], rows = role.shape[1]
    if states.shape[0] != units or first.shape[0] != units or start.shape[0] != units + 1 \
            or place.shape[0] != units or role.shape[0] != units \
            or parent.shape[0] != stride.shape[0] or prob.shape[0] != log.shape[0]:
        raise ValueError("the arrays of a step do not fit")
    if not units or not draws:
        return
    if not rows or draws % rows or log_weight.shape[0] != draws \
            or (uniform.shape[0] and uniform.shape[1] != draws):
        raise ValueError(f"{draws} draws do not fit {rows} rows")
    j.draws, j.rows, j.each, j.units = draws, rows, draws // rows, units
    j.unit, j.states, j.first, j.start = &unit[0], &states[0], &first[0], &start[0]
    j.parent = &parent[0] if parent.shape[0] else NULL
    j.stride = &stride[0] if parent.shape[0] else NULL
    j.role, j.place = &role[0, 0], &place[0]
    # The place of a unit that is not drawn is 0, and is not read.
    j.uniform = &uniform[0, 0] if uniform.shape[0] else &log_weight[0]
    j.prob, j.log, j.state, j.log_weight = &prob[0], &log[0], &state[0, 0], &log_weight[0]
    with nogil:
        pgm_share(routines.ancestral, &j,
                  (draws + c.PGM_ANCESTRAL_LANES - 1) // c.PGM_ANCESTRAL_LANES, parts)


def tally(const int32_t[:, :, ::1] state, const double[:, ::1] weight, double[:, :, :, ::1] out,
          int parts):
    """Write sums of weights, and of their squares, at each state to out (units, rows, states, 2).

    state (units, rows, draws) are below the number of states, weight is (rows, draws).
    """
    cdef c.pgm_tally_job j
    cdef int64_t units = state.shape[0], rows = state.shape[1]
    if out.shape[0] != units or out.shape[1] != rows or out.shape[3] != 2 \
            or weight.shape[0] != rows or weight.shape[1] != state.shape[2]:
        raise ValueError("the arrays of a tally do not fit")
    if not units or not rows or not state.shape[2] or not out.shape[2]:
        out[:] = 0.0
        return
    j.rows, j.each, j.most = rows, state.shape[2], out.shape[2]
    j.state, j.weight, j.out = &state[0, 0, 0], &weight[0, 0], &out[0, 0, 0, 0]
    with nogil:
        pgm_share(routines.tally, &j, units, parts)
