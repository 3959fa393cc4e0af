"""Arrays with an axis of rows that may all be equal.

If all rows are equal, one row is stored, and a stride of 0 repeats it. `spread` makes such an
array, `distinct` returns the rows that are stored, and `rows_of` selects rows without copying.
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


def common_rows(counts: Mapping[str, int]) -> int:
    """Return the common number of rows; an array of one row fits any number.

    PgmError names an array with another number of rows.
    """
    rows = max(counts.values())
    for what, n in counts.items():
        if n not in (1, rows):
            raise PgmError(f"{what} has {n} rows where others have {rows}")
    return rows
