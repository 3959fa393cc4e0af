# Matrix products of learning: see products.h, and BLAS.

cdef extern from "products.h" nogil:
    enum:
        PGM_LISTS
        PGM_TALL

    ctypedef struct pgm_matrix:
        const float *w
        int64_t down, right, rows, columns

    void pgm_multiply(const float *x, const pgm_matrix *w, int64_t rows, int64_t apart, pgm_change *list, float *y)
    void pgm_outer(const float *a, const float *b, int64_t rows, int64_t n, int64_t m, int64_t first, int64_t last,
                   pgm_change *list, float *tiles, float *out)
    void pgm_pack(const pgm_matrix *w, int64_t tile, int64_t first, int64_t last, float *out)


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
