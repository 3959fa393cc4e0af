"""Arrays with a rows axis of which all rows may be equal.

An array whose rows are all equal is kept once and repeated by a stride of 0. `spread` makes such an
array, `distinct` gives the rows that it holds, and `rows_of` selects rows without copying it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array


def spread(array: Array, rows: int) -> Array:
    """Repeat an array of one row without copying; an array of `rows` rows is returned as it is."""
    return array if len(array) == rows else np.broadcast_to(array, (rows, *array.shape[1:]))


def distinct(array: Array) -> Array:
    """Return the rows that `spread` has not repeated: the first row, or all rows."""
    return array[:1] if array.strides[0] == 0 else array


def rows_of(arrays: Mapping[str, Array], index: Array) -> dict[str, Array]:
    """Select the rows `index` of every array; equal rows are not copied."""
    return {
        name: _repeated(v, len(index))
        if len(v) == 1 or (len(v) and v.strides[0] == 0)
        else v[index]
        for name, v in arrays.items()
    }


def _repeated(array: Array, rows: int) -> Array:
    """Return an array of equal rows with another number of rows."""
    # A slice costs a tenth of the time of a new view.
    return array[:rows] if rows <= len(array) else spread(array[:1], rows)


def common_rows(counts: Mapping[str, int]) -> int:
    """Return the number of rows that all share, where one row fits any number.

    PgmError names the array that has another number.
    """
    rows = max(counts.values())
    for what, n in counts.items():
        if n not in (1, rows):
            raise PgmError(f"{what} has {n} rows where others have {rows}")
    return rows
