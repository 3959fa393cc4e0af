"""Checks of sparse matrices that may be damaged, before compiled code follows their indices.

scipy's constructors and methods trust the arrays of a sparse matrix. scipy skips its own check
where the last entry of indptr is not positive, and its compiled loops then write outside of their
arrays. The functions here therefore compare all arrays of a matrix with its shape in numpy, before
they call a method of the matrix or pass its arrays to scipy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array

REBUILD_ADVICE = "build the matrix again from its entries"


def csr_of(matrix: Any, what: str) -> Any:
    """Return a scipy sparse matrix of any format as a csr_array of float64 with its own memory.

    Parameters
    ----------
    matrix : one of scipy's sparse arrays or matrices.
    what : words for the matrix, with which every refusal begins.

    Raises
    ------
    PgmError for a matrix that is not two-dimensional, or whose arrays contradict its shape or each
    other.

    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> csr_of(sp.coo_array(np.eye(2)), "weight").nnz
    2
    """
    from scipy.sparse import csr_array

    shape = _shape(tuple(matrix.shape), what)
    if matrix.format == "csr":
        return compressed(matrix.data, matrix.indices, matrix.indptr, shape, what)
    if matrix.format == "csc":
        turned = compressed(matrix.data, matrix.indices, matrix.indptr, shape[::-1], what)
        return turned.T.tocsr()
    if matrix.format not in ENTRIES_OF_FORMAT:
        raise PgmError(
            f"{what} is a sparse matrix of format {matrix.format!r}; give it as a csr_array"
        )
    rows, columns, data = ENTRIES_OF_FORMAT[matrix.format](matrix, shape, what)
    _check_entries(rows, shape[0], "row", what)
    _check_entries(columns, shape[1], "column", what)
    return csr_array((data.astype(np.float64), (rows, columns)), shape=shape)


def compressed(data: Array, indices: Array, indptr: Array, shape: object, what: str) -> Any:
    """Return a csr_array of float64 from copies of arrays; PgmError unless these fit together."""
    from scipy.sparse import csr_array

    rows, columns = _shape(shape, what)
    indptr, indices = _indptr(indptr, rows, what), _integers(indices, "indices", what)
    _check_values(data, 1, what)
    if len(data) != len(indices):
        raise _broken(
            what, f"data has {len(data)} entries and indices has {len(indices)}, expected as many"
        )
    if indptr[-1] > len(indices):
        raise _broken(what, f"indptr ends in {indptr[-1]}, and there are {len(indices)} indices")
    # Memory that a matrix has reserved for further entries is not initialised.
    used = slice(0, int(indptr[-1]))
    _check_entries(indices[used], columns, "column", what)
    return csr_array(
        (data[used].astype(np.float64), indices[used].copy(), indptr.copy()), shape=(rows, columns)
    )


def _shape(shape: object, what: str) -> tuple[int, int]:
    array = np.asarray(shape)
    if array.shape != (2,) or array.dtype.kind not in "iu" or (array < 0).any():
        raise _broken(
            what, f"its shape is {tuple(np.ravel(array).tolist())}, expected two integers from 0 up"
        )
    return int(array[0]), int(array[1])


def _indptr(found: object, rows: int, what: str) -> Array:
    indptr = _integers(found, "indptr", what)
    if len(indptr) != rows + 1:
        raise _broken(
            what, f"indptr has {len(indptr)} entries, expected {rows + 1}, one more than rows"
        )
    if indptr[0] != 0:
        raise _broken(what, f"indptr[0] is {indptr[0]}, expected 0")
    if len(down := np.flatnonzero(indptr[1:] < indptr[:-1])):
        at = int(down[0])
        raise _broken(
            what, f"indptr[{at + 1}] is {indptr[at + 1]}, less than the {indptr[at]} before it"
        )
    return indptr


def _integers(found: object, name: str, what: str) -> Array:
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind != "i":
        raise _broken(what, f"{name} is {_said(found)}, expected a list of integers (n,)")
    return found


def _check_values(data: object, ndim: int, what: str) -> None:
    if not isinstance(data, np.ndarray) or data.ndim != ndim or data.dtype.kind not in "biuf":
        raise _broken(what, f"data is {_said(data)}, expected numbers in {ndim} dimensions")


def _check_entries(indices: Array, count: int, name: str, what: str) -> None:
    """PgmError unless indices lie in 0 .. count - 1."""
    wrong = np.flatnonzero((indices < 0) | (indices >= count))
    if len(wrong):
        first = int(wrong[0])
        raise _broken(what, f"entry {first} has {name} {indices[first]}, expected 0 .. {count - 1}")


def _said(found: object) -> str:
    if isinstance(found, np.ndarray):
        return f"an array {found.shape} of {found.dtype}"
    return f"of type {type(found).__name__}"


def _broken(what: str, why: str) -> PgmError:
    return PgmError(f"{what} is not a whole sparse matrix: {why}; {REBUILD_ADVICE}")


def _of_coo(matrix: Any, shape: tuple[int, int], what: str) -> tuple[Array, Array, Array]:
    # Newer versions of scipy keep a tuple `coords`, older ones `row` and `col`.
    places = getattr(matrix, "coords", None) or (matrix.row, matrix.col)
    if len(places) != 2:
        raise _broken(what, f"it has {len(places)} arrays of coordinates, expected 2")
    rows, columns = (
        _integers(x, name, what) for x, name in zip(places, ("row", "col"), strict=True)
    )
    _check_values(matrix.data, 1, what)
    if not len(rows) == len(columns) == len(matrix.data):
        raise _broken(
            what,
            f"row, col and data have {len(rows)}, {len(columns)} and {len(matrix.data)} entries, "
            "expected as many",
        )
    return rows, columns, matrix.data


def _of_bsr(matrix: Any, shape: tuple[int, int], what: str) -> tuple[Array, Array, Array]:
    data = matrix.data
    _check_values(data, 3, what)
    high, wide = data.shape[1:]
    if not high or not wide or shape[0] % high or shape[1] % wide:
        raise _broken(
            what, f"its blocks are {high} by {wide}, which do not fill {shape[0]} by {shape[1]}"
        )
    blocks = compressed(
        np.arange(len(data)),
        matrix.indices,
        matrix.indptr,
        (shape[0] // high, shape[1] // wide),
        what,
    )
    at = blocks.tocoo()
    rows = (
        at.row[:, None, None] * high
        + np.arange(high)[:, None]
        + np.zeros((1, 1, wide), dtype=np.int64)
    )
    columns = (
        at.col[:, None, None] * wide + np.arange(wide) + np.zeros((1, high, 1), dtype=np.int64)
    )
    return rows.ravel(), columns.ravel(), data[at.data.astype(np.int64)].ravel()


def _of_dia(matrix: Any, shape: tuple[int, int], what: str) -> tuple[Array, Array, Array]:
    offsets, data = _integers(matrix.offsets, "offsets", what).astype(np.int64), matrix.data
    _check_values(data, 2, what)
    if len(offsets) != len(data) or len(set(offsets.tolist())) < len(offsets):
        raise _broken(
            what,
            f"it has {len(data)} diagonals and {len(offsets)} offsets, expected as many, all "
            "different",
        )
    columns = np.arange(min(data.shape[1], shape[1]))
    # Diagonals outside of the matrix have no entries, and their offsets could overflow below.
    near = np.flatnonzero((offsets > -shape[0]) & (offsets < shape[1]))
    rows = columns - offsets[near, None]
    inside = (rows >= 0) & (rows < shape[0]) & (data[near, : len(columns)] != 0)
    return (
        rows[inside],
        np.broadcast_to(columns, rows.shape)[inside],
        data[near, : len(columns)][inside],
    )


def _of_lil(matrix: Any, shape: tuple[int, int], what: str) -> tuple[Array, Array, Array]:
    rows, data = matrix.rows, matrix.data
    if not all(
        isinstance(x, np.ndarray) and x.shape == shape[:1] and x.dtype == object
        for x in (rows, data)
    ):
        raise _broken(
            what,
            f"its rows and data are {_said(rows)} and {_said(data)}, expected {shape[0]} lists "
            "each",
        )
    for i, (columns, values) in enumerate(zip(rows, data, strict=True)):
        if (
            not isinstance(columns, list)
            or not isinstance(values, list)
            or len(columns) != len(values)
        ):
            raise _broken(
                what, f"row {i} has columns and values that are not two lists of one length"
            )
    where = [(i, column) for i, columns in enumerate(rows) for column in columns]
    return _listed(where, [value for values in data for value in values], matrix.dtype, what)


def _of_dok(matrix: Any, shape: tuple[int, int], what: str) -> tuple[Array, Array, Array]:
    return _listed(list(matrix.keys()), list(matrix.values()), matrix.dtype, what)


def _listed(
    where: list[Any], values: list[Any], dtype: Any, what: str
) -> tuple[Array, Array, Array]:
    """Return (data, rows, columns) of entries that are listed one by one."""
    try:
        places = np.array(where, dtype=np.int64).reshape(len(where), 2)
        data = np.array(values, dtype=dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise _broken(what, f"its entries cannot be read: {error}") from None
    _check_values(data, 1, what)
    return places[:, 0], places[:, 1], data


ENTRIES_OF_FORMAT = {"coo": _of_coo, "bsr": _of_bsr, "dia": _of_dia, "lil": _of_lil, "dok": _of_dok}
