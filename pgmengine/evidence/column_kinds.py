"""The kind of a column of data: the states of a variable, or numbers, and how many cells are empty.

    text, categories    states in the order of the alphabet, or of the categories
    booleans            False and True
    integers            states in their order, if they are few
    numbers             no states

Programs make fractions of integers where a cell is empty, so that whole numbers beside empty cells
count as integers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any

import numpy as np

from pgmengine.base.checks import is_missing
from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.model.containers import array_of, as_floats

# The most different integers of a column that are states. More of them are likelier a measurement,
# or the number of a row.
MOST_INTEGERS = 30

# Kinds of single values with their words, the first one that fits.
KINDS = ((bool, "booleans"), (np.bool_, "booleans"), (str, "text"), (Integral, "integers"))


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column.

    Attributes
    ----------
    word : the kind in a word.
    rows, missing : the numbers of its cells, and of cells without a value.
    states : the states in order; None for numbers.
    sd : the standard deviation of numbers.
    """

    word: str
    rows: int
    missing: int
    states: tuple[Hashable, ...] | None = None
    sd: float = 0.0

    @property
    def text(self) -> str:
        """The kind and the number of empty cells in words."""
        if not self.missing:
            return f"{self.word}, no empty cell"
        return f"{self.word}, {self.missing:,} of {counted(self.rows, 'cell')} empty"


def kind_of(column: Any, what: str, declared: bool = False) -> ColumnKind:
    """Return the kind of a column in any container; `declared`: whether its states are known.

    Raises
    ------
    PgmError with the column, and the row where there is one, for a column without a value or with
    one value only, for cells of several kinds, dates, empty text and too many integers.
    """
    array = array_of(column, what)
    if array.ndim != 1:
        raise PgmError(f"{what} has shape {array.shape}, expected one value in each row")
    if array.dtype.kind in "mM":
        raise PgmError(f"{what} holds dates or times: give text or numbers, such as the month")
    seen = _seen(array)
    missing = len(array) - len(seen)
    if declared:
        return ColumnKind("as declared", len(array), missing)
    known = _categories(column, what)
    if not len(seen) and known is None:
        raise PgmError(
            f"{what}: all of its {counted(len(array), 'cell')} are empty, so that it has no states;"
            f" leave it out of the edges, or declare them by states={{...}}"
        )
    if known is not None:
        return ColumnKind("categories", len(array), missing, _several(known, "category", what))
    word = _word(array, seen, missing, what)
    if word == "numbers":
        numbers = as_floats(seen, what)
        _several(np.unique(numbers), "number", what)
        return ColumnKind(word, len(array), missing, sd=float(numbers.std()))
    if word == "booleans":
        return ColumnKind(word, len(array), missing, (False, True))
    values = sorted(set(map(int, seen)) if word == "integers" else set(map(str, seen)))
    return ColumnKind(word, len(array), missing, _several(values, "value", what))


def _seen(array: Array) -> Array:
    """Return the entries that are not missing."""
    if array.dtype.kind == "f":
        return np.asarray(array[~np.isnan(array)])
    if array.dtype.kind != "O":
        return array
    return np.asarray(array[~np.fromiter(map(is_missing, array), bool, len(array))])


def _categories(column: Any, what: str) -> list[Any] | None:
    """Return the categories of a column of pandas or polars in their order, None without any."""
    found = getattr(getattr(column, "dtype", None), "categories", None)
    # Columns of polars without an order of their own have no list of them.
    if not hasattr(found, "__len__"):
        return None
    names: list[Any] = array_of(found, what).tolist()
    if any(not isinstance(name, (str, bool, int, float)) for name in names):
        raise PgmError(
            f"{what} has categories such as {told(names[0])}, expected text, numbers or booleans; "
            "for intervals give names, pandas.cut(..., labels=[...])"
        )
    return names


def _several(values: Any, word: str, what: str) -> tuple[Any, ...]:
    """Return different values as states; PgmError for a single one."""
    states = tuple(values)
    if len(states) < 2:
        raise PgmError(
            f"{what} has one {word} only, {told(states[0]) if states else 'none'}, in all cells, "
            "expected two or more; leave it out of the edges, or declare all states by "
            "states={...}"
        )
    return states


def _word(array: Array, seen: Array, missing: int, what: str) -> str:
    """Return the kind of the entries in a word."""
    if array.dtype.kind == "O":
        word = _word_of_objects(array, what)
    else:
        word = {"b": "booleans", "i": "integers", "u": "integers"}.get(array.dtype.kind, "numbers")
    if word not in ("integers", "numbers"):
        return word
    numbers = as_floats(seen, what)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(as_floats(array, what)))[0])
        raise PgmError(f"{what}, row {row} holds {told(array[row])}, expected a finite number")
    whole = word == "numbers" and missing and bool((numbers == np.floor(numbers)).all())
    if word != "integers" and not whole:
        return word
    if (count := len(np.unique(numbers))) <= MOST_INTEGERS:
        return "integers"
    if whole:
        return "numbers"
    name = what.rpartition(" ")[2]
    raise PgmError(
        f"{what} holds {count:,} different integers, expected at most {MOST_INTEGERS} as states; "
        f"for numbers declare states={{{name}: pgm.Normal()}}, for states cut them into bins, or "
        f"declare states={{{name}: range(...)}}"
    )


def _word_of_objects(array: Array, what: str) -> str:
    """Return the kind of objects in a word; PgmError with the first row of another kind."""
    words = {
        kind: next((w for base, w in KINDS if issubclass(kind, base)), "numbers")
        for kind in set(map(type, array))
        if issubclass(kind, (bool, np.bool_, str, Number))
    }
    first: tuple[int, str] | None = None
    for row, value in enumerate(array):
        if is_missing(value):
            continue
        word = words.get(type(value), "")
        if not word or (type(value) is str and not value.strip()):
            advice = "None where nothing is observed" if word else "text, numbers or booleans"
            raise PgmError(f"{what}, row {row} holds {told(value)}: give {advice}")
        if first is None or {first[1], word} == {"integers", "numbers"}:
            first = (first[0] if first else row, word if first is None else "numbers")
        elif word != first[1]:
            raise PgmError(
                f"{what}, row {row} holds {told(value)}, of another kind than "
                f"{told(array[first[0]])} in row {first[0]}; give cells of one kind, such as text"
            )
    assert first is not None
    return first[1]
