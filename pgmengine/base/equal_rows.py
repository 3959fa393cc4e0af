"""Arrays with an axis of rows, some or all of which are equal.

If all rows are equal, one row is stored, and a stride of 0 repeats it. `spread` makes such an
array, `distinct` returns the rows that are stored, and `rows_of` selects rows without copying.

`equal_rows` and `distinct_pairs` find equal rows in a time linear in the data, or nearly so.
np.unique(axis=) makes a type with a field for each column instead, which takes seconds for rows of
some 100,000 numbers, and numpy loses a Ctrl-C that arrives while it reads the fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array

# The number of rows from which short rows are sorted, which takes a tenth of the time of a
# dictionary for a row, and more for a call.
MIN_ROWS_TO_SORT = 256


def spread(array: Array, rows: int) -> Array:
    """Repeat an array of one row without copying; an array of `rows` rows is returned as it is."""
    return array if len(array) == rows else np.broadcast_to(array, (rows, *array.shape[1:]))


def distinct(array: Array) -> Array:
    """Return the rows that `spread` has not repeated: the first row, or all rows."""
    return array[:1] if array.strides[0] == 0 else array


def rows_of(arrays: Mapping[str, Array], index: Array) -> dict[str, Array]:
    """Select the rows `index` of every array; equal rows are not copied."""
    out = {}
    for name, array in arrays.items():
        if not len(array) or (len(array) > 1 and array.strides[0] != 0):
            out[name] = array[index]
        elif len(index) <= len(array):
            # A slice costs a tenth of the time of a new view.
            out[name] = array[: len(index)]
        else:
            out[name] = spread(array[:1], len(index))
    return out


def equal_rows(*arrays: Array) -> tuple[Array, Array]:
    """Return the number of the first row of each kind, and the kind of each row.

    Rows of one kind are equal in all arrays. Kinds are numbered in the order of their first rows.

    Parameters
    ----------
    arrays : (rows, ...) each, numbers or booleans; no NaN.

    >>> equal_rows(np.array([[1, 2], [0, 2], [1, 2]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    bytes_of_rows = np.concatenate([_bytes(array) for array in arrays], axis=1)
    if not bytes_of_rows.size:
        kind = np.zeros(len(bytes_of_rows), dtype=np.int64)
        return kind[:1], kind
    if len(bytes_of_rows) >= MIN_ROWS_TO_SORT and bytes_of_rows.shape[1] <= 8:
        return _sorted(np.pad(bytes_of_rows, ((0, 0), (0, 8 - bytes_of_rows.shape[1]))))
    seen: dict[Any, int] = {}
    keys = bytes_of_rows.view(np.dtype((np.void, bytes_of_rows.shape[1]))).ravel().tolist()
    kind = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    return np.unique(kind, return_index=True)[1], kind


def _sorted(bytes_of_rows: Array) -> tuple[Array, Array]:
    """Return what `equal_rows` does for rows of 8 bytes, which are numbers that can be sorted."""
    keys = np.ascontiguousarray(bytes_of_rows).view(np.uint64).ravel()
    _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.int64)
    number[order] = np.arange(len(first))
    return first[order], number[kind]


def _bytes(array: Array) -> Array:
    """Return the bytes (rows, bytes) of each row; those of equal rows are equal."""
    # 0 and -0 are equal, and their bytes are not.
    same = array + 0.0 if array.dtype.kind == "f" else array
    rows = np.ascontiguousarray(same).reshape(len(array), math.prod(array.shape[1:]))
    return rows.view(np.uint8)


def rows_by_kind(*arrays: Array) -> list[Array]:
    """Return the numbers of the rows of each kind, as `equal_rows` numbers the kinds."""
    first, kind = equal_rows(*arrays)
    order = np.argsort(kind, kind="stable")
    return np.split(order, np.cumsum(np.bincount(kind, minlength=len(first)))[:-1])


def distinct_pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the distinct pairs (pairs, 2) of numbers from 0 up, ascending, and which is which.

    The second array has the place of each pair (a[i], b[i]) among the distinct ones.
    """
    width = int(b.max(initial=0)) + 1
    # Two numbers of 32 bits make one of 64.
    keys, which = np.unique(a.astype(np.int64) * width + b, return_inverse=True)
    return np.stack(np.divmod(keys, width), axis=1), which


def common_rows(counts: Mapping[str, int]) -> int:
    """Return the common number of rows; an array of one row fits any number.

    PgmError names an array with another number of rows.
    """
    rows = max(counts.values())
    for what, n in counts.items():
        if n not in (1, rows):
            raise PgmError(f"{what} has {n} rows where others have {rows}")
    return rows
