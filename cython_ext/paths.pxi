# Sums over the paths of chains of states, and their best paths, for Python: checks of shapes.

# the most states of a step
MOST_STATES_OF_A_STEP = 2**12


cdef int fill_path_job(c.pgm_path_job *j, const int64_t[::1] first, const double[:, ::1] field,
                       const double[:, ::1] move, double[::1] log_z) except -1:
    """Set the arguments of a job, after a check that its steps follow each other."""
    cdef int64_t chains = first.shape[0] - 1, i
    if chains < 1 or first[0] != 0 or first[chains] != field.shape[0] or field.shape[0] < 1 \
            or not 1 <= field.shape[1] <= MOST_STATES_OF_A_STEP \
            or move.shape[0] != field.shape[1] or move.shape[1] != field.shape[1] \
            or log_z.shape[0] != chains:
        raise ValueError("the arrays of chains do not fit")
    for i in range(chains):
        if first[i + 1] < first[i]:
            raise ValueError(f"chain {i} begins at {first[i]} and ends at {first[i + 1]}")
    j.chains, j.states, j.first = chains, field.shape[1], &first[0]
    j.field, j.move, j.log_z, j.failed = &field[0, 0], &move[0, 0], &log_z[0], 0
    return 0


def sum_paths(const int64_t[::1] first, const double[:, ::1] field, const double[:, ::1] move,
              const double[::1] weight, double[::1] log_z, double[:, ::1] marginals,
              double[:, ::1] pairs):
    """Write sums over all paths of chains; the arguments are fields of pgm_path_job.

    There is at least one step. Log weights of a step differ by at most 230 or are -inf.
    """
    cdef c.pgm_path_job j
    fill_path_job(&j, first, field, move, log_z)
    if weight.shape[0] != j.chains or marginals.shape[0] != field.shape[0] \
            or marginals.shape[1] != j.states or pairs.shape[0] != j.states \
            or pairs.shape[1] != j.states:
        raise ValueError("the results of chains do not fit")
    j.weight, j.marginals, j.pairs, j.path = &weight[0], &marginals[0, 0], &pairs[0, 0], NULL
    with nogil:
        routines.sum_paths(&j)
    if j.failed:
        raise MemoryError()


def best_paths(const int64_t[::1] first, const double[:, ::1] field, const double[:, ::1] move,
               double[::1] log_z, int32_t[::1] path):
    """Write the states of the best path of each chain, and its log weight; see sum_paths."""
    cdef c.pgm_path_job j
    fill_path_job(&j, first, field, move, log_z)
    if path.shape[0] != field.shape[0]:
        raise ValueError("the results of chains do not fit")
    j.weight, j.marginals, j.pairs, j.path = NULL, NULL, NULL, &path[0]
    with nogil:
        routines.best_paths(&j)
    if j.failed:
        raise MemoryError()
