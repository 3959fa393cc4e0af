"""The reader of containers of values, which every public function that takes values uses.

A list, an array, a masked array, a column of pandas or a tensor becomes one array, so that a value
means the same in all of them:

    not observed    a masked entry, None, NaN, NA or NaT, at any depth of lists and tuples
    categories      their values, never their codes
    tensors         their numbers, without the history of their gradients
    objects         where numbers, booleans and texts are mixed, so that True and 1 stay apart
    refused         iterators and sets, which have no second reading or no order; frames that pandas
                    does not know; records

Names of columns and of states are read elsewhere (columns.py, state_names.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, MappingView, Sequence
from typing import Any

import numpy as np

from pgmengine.base.checks import is_missing
from pgmengine.base.errors import PgmError
from pgmengine.base.sparse import csr_of
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.model.weights import is_sparse

# The largest size up to which each integer is a double.
LARGEST_WHOLE = 2**53

# Types of single values that lists have most often.
PLAIN = {int, float, bool, str, type(None)}

# Errors by which containers refuse to become an array.
UNREADABLE = (
    TypeError, ValueError, RuntimeError, OverflowError, RecursionError, MemoryError,
)  # fmt: skip


def is_frame(given: object) -> bool:
    """Whether it is a DataFrame of pandas, or of a package with the same interface."""
    return hasattr(given, "iloc") and hasattr(given, "columns")


def columns_in(given: Any) -> list[tuple[Any, Any]] | None:
    """Return the names and the columns of a DataFrame of pandas or polars, or a Table of pyarrow.

    None for everything else; a lazy frame of polars holds no values yet.
    """
    if is_frame(given):
        return [(name, given.iloc[:, i]) for i, name in enumerate(given.columns)]
    if hasattr(given, "get_columns"):
        return [*zip(given.columns, given.get_columns(), strict=True)]
    if hasattr(given, "column_names") and hasattr(given, "columns"):
        return [*zip(given.column_names, given.columns, strict=True)]
    return None


def is_container(kind: type) -> bool:
    """Whether things of a type hold values, as lists, arrays, columns and iterators do."""
    if issubclass(kind, (str, bytes, bytearray, np.generic)):
        return False
    return issubclass(kind, (Sequence, Iterator, set, MappingView)) or hasattr(kind, "__array__")


def array_of(
    given: Any, what: str, is_value: Callable[[Any], bool] | None = None, kind: str = "values"
) -> Array:
    """Return the values of any container as an array of numbers, booleans, times or objects.

    Missing values are NaN among numbers, and NaN, None, NA or NaT among objects.

    Parameters
    ----------
    given : the container, or a single value.
    what : the name of the values in messages.
    is_value : whether a tuple is one value, such as the name of a state; None if no tuple is.
    kind : the kind of values that is expected, for messages.

    Raises
    ------
    PgmError for what is no container of values, and for lists of unequal lengths.
    """
    try:
        if type(given) is np.ndarray and given.dtype.kind in "biuf":
            return given
        if is_value is not None and isinstance(given, tuple) and is_value(given):
            one = np.empty((), dtype=object)
            one[()] = given
            return one
        if isinstance(given, (list, tuple)) or _is_sequence(given):
            return _of_list(given, what, is_value, kind)
        if is_sparse(given):
            return _filled(given, what)
        if isinstance(given, np.ma.MaskedArray):
            given = _unmasked(given)
        array = _in_memory(given, what)
        if array.dtype.kind != "O" or not array.ndim or not _is_nested(set(map(type, array.flat))):
            return array
        return _of_list(array.tolist(), what, is_value, kind)
    except PgmError:
        raise
    except UNREADABLE as error:
        raise PgmError(f"{what} is not an array of {kind}: {error}") from None


def as_floats(given: Any, what: str) -> Array:
    """Return the values of any container as float64, NaN where missing; PgmError for others."""
    array = array_of(given, what, kind="numbers")
    try:
        # numpy would drop the unit of dates.
        if array.dtype.kind in "mM":
            raise TypeError(f"it has {array.dtype} entries")
        return with_nan(array).astype(np.float64, copy=False)
    except UNREADABLE as error:
        raise PgmError(f"{what} is not an array of numbers: {error}") from None


def with_nan(array: Array) -> Array:
    """Return an array with NaN in the place of all objects that mean not observed."""
    if array.dtype.kind != "O":
        return array
    # From Python 3.13 on, a comparison with NaN sets the flag that numpy warns of.
    with np.errstate(invalid="ignore"):
        missing = np.asarray(np.frompyfunc(is_missing, 1, 1)(array), bool)
    return np.where(missing, np.nan, array)


def _filled(matrix: Weight, what: str) -> Array:
    """Return a sparse matrix as a dense one."""
    if why := no_room(8 * math.prod(map(int, matrix.shape))):
        raise PgmError(f"{what}: with its zeros the sparse matrix does not fit into memory: {why}")
    filled: Array = csr_of(matrix, what).toarray()
    return filled


def _check_kind(given: Any, what: str) -> None:
    """PgmError for what can be read once only, has no order, or has columns that stay unread."""
    kind = type(given).__name__
    if isinstance(given, (Iterator, set, MappingView)):
        raise PgmError(
            f"{what} is of type {kind}, which has no order or can be read only once; give a list"
        )
    named = hasattr(given, "columns") or hasattr(given, "column_names")
    if named and hasattr(given, "to_pandas"):
        raise PgmError(f"{what} is a {kind}; give its to_pandas(), whose columns are read by name")


def _in_memory(given: Any, what: str) -> Array:
    """Return anything that numpy reads as an array of numbers, times or objects."""
    _check_kind(given, what)
    if hasattr(given, "detach") and hasattr(given, "cpu"):
        # A tensor of torch, without its gradients and off any accelerator.
        given = given.detach().cpu()
    if hasattr(getattr(given, "type", None), "index_type"):
        # Codes of a dictionary of pyarrow; numpy would get its last value where a cell is missing.
        given = given.cast(given.type.value_type)
    array = np.asarray(given)
    kind = array.dtype.kind
    if kind == "V":
        raise TypeError(f"it has {array.dtype} entries")
    if kind in "mM" and np.isnat(array).all():
        return np.full(array.shape, np.nan)
    return array if kind in "biufmM" else array.astype(object, copy=False)


def _is_sequence(given: object) -> bool:
    """Whether it is a sequence such as a range, and no text or array."""
    plain = isinstance(given, Sequence) and not isinstance(given, (str, bytes, bytearray))
    return plain and not hasattr(given, "__array__")


def _is_nested(kinds: set[type]) -> bool:
    """Whether some of the types of entries are containers."""
    return not kinds <= PLAIN and any(map(is_container, kinds))


def _of_list(
    given: Sequence[Any], what: str, is_value: Callable[[Any], bool] | None, kind: str
) -> Array:
    """Return a list of values, or of containers of equal shapes, as one array."""
    kinds = set(map(type, given))
    if kinds <= PLAIN or not _is_nested(kinds):
        if kinds <= {int, float} or all(map(_is_number, kinds)):
            array = np.array(given)
            if array.dtype.kind in "iu" or _is_whole(array, kinds != {float}):
                return array
        if kinds <= {bool, np.bool_}:
            return np.array(given, dtype=bool)
        return np.fromiter(given, dtype=object, count=len(given))
    parts = [array_of(part, what, is_value, kind) for part in given]
    if len(shapes := {part.shape for part in parts}) > 1:
        lengths = sorted({shape[0] for shape in shapes if shape})
        several = f"lists of {' and '.join(map(str, lengths))} values" if len(lengths) > 1 else ""
        raise ValueError(f"it has {several or f'parts of the shapes {sorted(shapes)}'}")
    types = "".join({part.dtype.kind for part in parts})
    if types in ("b", "m", "M"):
        return np.stack(parts)
    if not types.strip("iuf") and _is_whole(whole := np.stack(parts), types != "f"):
        return whole
    return np.stack([_objects(part) for part in parts])


def _is_number(kind: type) -> bool:
    """Return whether a type holds numbers; booleans do not count."""
    return issubclass(kind, (int, float, np.integer, np.floating)) and kind is not bool


def _is_whole(array: Array, integers: bool) -> bool:
    """Whether numbers, with integers among them, stayed what they are in an array of one type."""
    if not integers or array.dtype.kind != "f":
        return array.dtype.kind in "iuf"
    return not bool((np.abs(array) >= LARGEST_WHOLE).any())


def _objects(array: Array) -> Array:
    """Return an array as objects of Python."""
    # Times in nanoseconds would become integers.
    timed = array.dtype.kind in "mM"
    return (array.astype(f"{array.dtype.kind}8[us]") if timed else array).astype(object)


def _unmasked(given: np.ma.MaskedArray[Any, Any]) -> Array:
    """Return a masked array as numbers or objects that are missing where it is masked."""
    mask, data = np.ma.getmaskarray(given), np.asarray(np.ma.getdata(given))
    if data.dtype.kind == "V" or not mask.any():
        return data
    seen = data[~mask]
    small = data.dtype.kind in "iu" and not (np.abs(seen.astype(float)) >= LARGEST_WHOLE).any()
    if small or data.dtype.kind == "f":
        return np.where(mask, np.nan, data)
    out = _objects(data)
    out[mask] = None
    return out
