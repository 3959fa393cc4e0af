"""The states of a unit by their names: the table that every reader of values uses.

A value means the state that it names. Text, numbers and booleans are compared by their meaning: 1,
1.0 and "1" are one name, and so are True, "True" and "TRUE". If the exact spelling is a name, it
counts; otherwise the value must fit a single state. Numbers of states are accepted only if the
states have no names.

True and 1 are equal in Python. A boolean is therefore read as a number, or a number as a boolean,
only if the name and the number of the state agree: for the states 0 and 1, or False and True.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from math import isfinite
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.checks import SINGLE_ROUNDING, is_missing
from pgmengine.base.errors import PgmError, listed, told
from pgmengine.base.names import hashable, nearest
from pgmengine.base.types import Array
from pgmengine.model.containers import array_of

if TYPE_CHECKING:
    from pgmengine.model.layer import Layer

# A number as tables and files write it; `float` would also read "nan", "1_0" and spaces.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# The texts that readers of tables convert to an infinite number.
INFINITE = re.compile(r"[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)

# The texts that pandas converts to NaN when it reads a file.
MISSING = frozenset(
    """#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a nan
    null""".split()
) | {"", "#N/A N/A"}

# The largest integer or fraction that is read: larger ones have no float.
LARGEST_READ = 10**308


# Length of the longest text that is read as a number, in characters.
MAX_NUMBER_LENGTH = 400


class StateNames:
    """A table of the names of the states of a unit.

    Attributes
    ----------
    names : the names in the order of unit.support.
    array : the names as an array of objects.
    exact : (kind of value, name) -> state.
    alike : the meaning of a name, as a number, a boolean or text -> the states with such names.
    tuples : whether a name is a tuple.
    """

    def __init__(self, names: Sequence[Hashable]) -> None:
        self.names = tuple(names)
        self.array = np.empty(len(self.names), dtype=object)
        self.exact: dict[Hashable, int] = {}
        self.alike: dict[tuple[type, Any], tuple[int, ...]] = {}
        for state, given in enumerate(self.names):
            # numpy would make a second axis of names that are tuples.
            self.array[state] = given
            name = plain(given)
            self.exact[_kind(name), name] = state
            known = isinstance(name, (bool, int, float, str))
            for written in {_written(name), _written(name if known else text_of(name))}:
                self.alike[written] = (*self.alike.get(written, ()), state)
        self.tuples = any(isinstance(name, tuple) for name in self.names)

    def matches(self, value: object) -> tuple[int, ...]:
        """Return the states that a value may name: none, one, or several with the same meaning."""
        value = plain(value)
        if not hashable(value):
            return ()
        state = self.exact.get((_kind(value), value))
        if state is not None:
            return (state,)
        written = _written(value)
        found = self.alike.get(written, ())
        number = position(value)
        if found or number is None:
            return found or self._rounded(written)
        other = Number if isinstance(value, bool) else bool
        return (number,) if number < 2 and self.exact.get((other, number)) == number else ()

    def _rounded(self, written: Any) -> tuple[int, ...]:
        """Return the states whose names are fractions that single precision has rounded."""
        kind, value = written
        if kind is not Number or not isinstance(value, float) or value % 1 == 0:
            return ()
        known = self.alike.items()
        numbers = ((x, states) for (_, x), states in known if type(x) is float and isfinite(x))
        near = [states for x, states in numbers if abs(x - value) <= SINGLE_ROUNDING * abs(x)]
        return near[0] if len(near) == 1 else ()

    @cached_property
    def names_like_missing(self) -> list[Hashable]:
        """The names that pandas converts to NaN when it reads a file."""
        return [name for name, text in zip(self.names, self.texts, strict=True) if text in MISSING]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The names as text, as tables and files write them."""
        return tuple(map(text_of, self.names))

    def text(self, state: int, what: str) -> str:
        """Return the name of a state as text; PgmError if the text would mean another state."""
        if self.matches(text := self.texts[state]) != (state,):
            others = listed([repr(self.names[i]) for i in self.matches(text) if i != state])
            raise PgmError(
                f"{what}: the name {self.names[state]!r} would be the text {text!r}, which is "
                f"read as {others}; give the states names that differ as text"
            )
        return text

    def is_one(self, given: tuple[Any, ...], what: str) -> bool:
        """Whether a tuple is the name of a state; PgmError if it may also be a list of states."""
        if not self.matches(given):
            return False
        if given and all(self.matches(part) for part in given):
            raise PgmError(
                f"{what}: {given!r} may be the name of a state, or {len(given)} states: give the "
                f"text {text_of(given)!r}, or a list of the states"
            )
        return True

    def state(self, value: object, what: str) -> int:
        """Return the state that a value names; PgmError unless it names exactly one."""
        found = self.matches(value)
        if len(found) == 1:
            return found[0]
        ways = listed([repr(self.names[state]) for state in found or range(len(self.names))])
        if found:
            raise PgmError(f"{what}: {_shown(value)} may be any of {ways}; give one of these texts")
        raise PgmError(
            f"{what}: {_shown(value)} is no state, expected one of {ways}{self._instead(value)}"
        )

    def _instead(self, value: object) -> str:
        """Return the end of a message: the name of the state with this number, or a similar one."""
        number = None if isinstance(plain(value), bool) else position(value)
        numbered = any(isinstance(plain(name), Number) for name in self.names)
        if number is not None and number < len(self.names) and not numbered:
            name = self.names[number]
            return f"; states that have names are not numbered: for number {number} give {name!r}"
        if isinstance(value, str) and not value.strip():
            return "; give None, or NaN, where nothing is observed"
        return nearest(value, self.names)


def plain(value: object) -> object:
    """Return a scalar of numpy, or an array without axes, as a Python object."""
    scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim)
    return value.item() if scalar else value  # type: ignore[attr-defined]


def position(value: object) -> int | None:
    """Return a number or boolean as an integer of at least 0, or None."""
    value = plain(value)
    whole = isinstance(value, (int, float)) and value >= 0 and value % 1 == 0
    return int(value) if whole else None  # type: ignore[call-overload]


def _kind(value: object) -> type:
    """Return the kind of a value: boolean, number, text, or its own type."""
    return next((kind for kind in (bool, Number, str) if isinstance(value, kind)), object)


def text_of(name: object) -> str:
    """Return the name of a state as text, as tables and files write it.

    Numbers have as few digits as possible.
    """
    name = plain(name)
    if isinstance(name, str):
        # A member of an Enum may be a text as well; its own str() would return the name of the
        # member.
        return str.__str__(name)
    return text_of_number(name) if type(name) is float else str(name)


def text_of_number(number: float) -> str:
    """Return the shortest text that reads as the same double, without a final .0."""
    return repr(float(number)).removesuffix(".0")


def _written(value: Any) -> tuple[type, Any]:
    """Return the meaning of a value: (bool or Number, value), or (kind, value)."""
    if isinstance(value, (Decimal, Fraction)):
        return Number, _as_float(value)
    if not isinstance(value, str):
        return _kind(value), value
    if (truth := value.casefold()) in ("true", "false"):
        return bool, truth == "true"
    if INFINITE.fullmatch(value):
        return Number, float(value)
    number = written_number(value)
    return (str, value) if number is None else (Number, number)


def _as_float(value: Decimal | Fraction) -> float | Decimal | Fraction:
    """Return a number as float; a number beyond double precision stays unchanged."""
    try:
        return float(value)
    except (OverflowError, ValueError):
        return value


def written_number(text: str) -> int | float | None:
    """Return the number that is written in a text, or None."""
    if len(text) > MAX_NUMBER_LENGTH or not NUMBER.fullmatch(text):
        return None
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _shown(value: object) -> str:
    """Return a value for a message, shortened because it may be anything."""
    value = plain(value)
    if type(value) is float:
        return text_of_number(value)
    try:
        return repr(value) if isinstance(value, str) else reprlib.repr(value)
    except ValueError:
        return told(value)


def state_number(layer: Layer, value: Any, what: str) -> float:
    """Return one value of a unit as a number, NaN where it is not observed.

    A name becomes the value of the state for units of one component, else the number of the state.

    Raises
    ------
    PgmError with the names of the states, and with the most similar name.
    """
    if is_missing(value):
        return float("nan")
    if layer.state_table is None:
        return _number(value, what)
    state = layer.state_table.state(value, what)
    support = layer.unit.support
    return float(state if support is None or layer.unit.width > 1 else support[state])


def _number(value: Any, what: str) -> float:
    """Return the number of a state without a name; PgmError for text that is no number."""
    try:
        number = _written(value)[1] if isinstance(value, str) else value
        if isinstance(number, (str, complex, np.complexfloating)):
            raise TypeError
        return float(number)
    except (TypeError, ValueError, OverflowError):
        raise PgmError(
            f"{what}: {_shown(value)} is no state, expected a number of a state"
        ) from None


def as_entries(layer: Layer, given: Any, what: str) -> Array:
    """Return values of a layer as an array of numbers, or of objects, from any container.

    PgmError for what is no array of values, for times that name no states, and for cells in which
    pandas may have lost the name of a state.
    """
    is_value = None
    if (table := layer.state_table) is not None:
        _check_not_lost(table, given, what)
        is_value = partial(table.is_one, what=what) if table.tuples else None
    array = array_of(given, what, is_value)
    if array.dtype.kind not in "mM":
        return array
    if (times := _times(layer, array)) is not None:
        return times
    raise PgmError(f"{what} is not an array of numbers or names: it has dates or times")


def _times(layer: Layer, array: Array) -> Array | None:
    """Return times as objects if names of states are times; None for other arrays."""
    names = layer.state_names or ()
    if array.dtype.kind != "M" or not any(isinstance(plain(x), datetime) for x in names):
        return None
    times = array.astype("datetime64[us]")
    same = (times == array) | np.isnat(array)
    return times.astype(object) if same.all() else None


def _check_not_lost(table: StateNames, column: Any, what: str) -> None:
    """PgmError for NaN in a column of pandas that may have been the name of a state.

    pandas converts such texts to NaN when it reads a file, so that they look like empty cells.
    """
    if not hasattr(column, "isna") or not (names := table.names_like_missing):
        return
    entries = column.astype(object).to_numpy()
    lost = [row for row, value in enumerate(entries) if isinstance(value, float) and value != value]
    if lost:
        raise PgmError(
            f"{what}, row {lost[0]}: NaN may be not observed, or the state {names[0]!r}, of which "
            "pandas makes NaN: read files with pandas.read_csv(..., keep_default_na=False), and "
            "give None in columns of objects, frame.astype(object).where(frame.notna(), None), "
            "where nothing is observed"
        )


def state_numbers(layer: Layer, array: Array, what: str, axes: Sequence[str]) -> Array:
    """Return an array of values of units as numbers; see `state_number`.

    Parameters
    ----------
    layer : the layer of the units.
    array : numbers or objects, as `as_entries` returns them, of any shape.
    what : the name of the values in messages.
    axes : names of the axes, for messages.
    """
    numeric = array.dtype.kind in "biuf"
    if numeric and layer.state_table is None:
        return array.astype(np.float64)

    def place(index: int) -> str:
        """Return the position of an entry in words."""
        numbers = np.unravel_index(index, array.shape)
        # A single value has no axes.
        where = "".join(f", {axis} {i}" for axis, i in zip(axes, numbers, strict=False))
        label = f" ({layer.labels[numbers[-1]]!r})" if layer.labels and "index" in where else ""
        return f"{what}{where}{label}"

    def read(value: Any, index: Callable[[], int]) -> float:
        """Return one entry as a number; a refusal names its position."""
        try:
            return state_number(layer, value, what)
        except PgmError:
            return state_number(layer, value, place(index()))

    if numeric:
        # Many numbers are equal, and looking up names is slow.
        known, first, where = np.unique(array, return_index=True, return_inverse=True)
        # In the order of the array, so that a message names the first wrong entry.
        found = np.empty(len(known))
        for i in np.argsort(first):
            found[i] = read(known[i], partial(int, first[i]))
        return found[where].reshape(array.shape)
    values = array.ravel().tolist()
    kinds = set(map(type, values))
    # Values of different types may be equal, as True and 1 are, and mean different states. Text,
    # None and fractions never are.
    apart = len(kinds) == 1 or kinds <= {str, float, type(None)}
    keys = values if apart else list(zip(map(type, values), values, strict=True))
    try:
        # Each different value is read once, in the order of the array.
        numbers = dict.fromkeys(keys)
    except TypeError:
        # A value that cannot be hashed is no state, and is refused by its position.
        each = [read(value, partial(int, i)) for i, value in enumerate(values)]
        return np.array(each).reshape(array.shape)
    for key in numbers:
        value = key if apart else key[1]
        numbers[key] = read(value, partial(keys.index, key))
    out = np.fromiter(map(numbers.__getitem__, keys), dtype=np.float64, count=len(keys))
    return out.reshape(array.shape)
