# Diagnostics of series of draws: c/series.h.

# Kinds of series: a constant, chains that stay where they are, chains that move, and chains whose
# autocorrelation needs more lags than are computed.
CONSTANT, STUCK, MOVES, SLOW = range(4)


def judge(const double[:, :, :, :] x, const int64_t[::1] at, int64_t ranked,
          const double[::1] score, bint by_means, bint by_lags, bint kinds, int parts):
    """Return kind, rhat, mcse and variance, each (series,), of some series; NaN if not computed.

    x is (chains, draws, rows, width), of any strides, and series at[i] has the row at[i] // width.
    R-hat is computed from the first `ranked` draws of each chain. score[i] is the score of rank i /
    2; if it is None, values are not ranked. mcse comes from the means of the chains, or from the
    autocorrelation. With `kinds`, only the kinds are found.
    """
    cdef c.pgm_series_job j
    cdef int64_t i, width = x.shape[3], size = sizeof(double), count = at.shape[0]
    place = np.empty(count, np.int64)
    kind, found = np.full(count, MOVES, np.uint8), np.full((3, count), np.nan)
    cdef int64_t[::1] offset = place
    cdef uint8_t[::1] kind_view = kind
    cdef double[:, ::1] found_view = found
    if not 0 <= ranked <= x.shape[1] or ranked == 1 \
            or (score is not None and score.shape[0] != 2 * x.shape[0] * ranked + 1) \
            or (by_lags and x.shape[1] < 4):
        raise ValueError("the arrays of some series do not fit")
    if not count or not x.shape[0] or not x.shape[1]:
        return kind, *found
    for i in range(count):
        if not 0 <= at[i] < x.shape[2] * width:
            raise ValueError(f"there is no series {at[i]}")
        offset[i] = at[i] // width * (x.strides[2] // size) + at[i] % width * (x.strides[3] // size)
    j.series, j.chains, j.draws, j.x, j.at = count, x.shape[0], x.shape[1], &x[0, 0, 0, 0], &offset[0]
    j.chain, j.draw, j.ranked = x.strides[0] // size, x.strides[1] // size, ranked
    j.score = NULL
    if score is not None:
        j.score = &score[0]
    j.error = c.PGM_SERIES_BY_MEANS if by_means else (
        c.PGM_SERIES_BY_LAGS if by_lags else c.PGM_SERIES_NO_ERROR)
    j.kind, j.failed = &kind_view[0], 0
    j.rhat = NULL if kinds else &found_view[0, 0]
    j.mcse, j.variance = &found_view[1, 0], &found_view[2, 0]
    with nogil:
        pgm_share(routines.series, &j, (count + routines.lanes - 1) // routines.lanes, parts)
    if j.failed:
        raise MemoryError
    return kind, *found
