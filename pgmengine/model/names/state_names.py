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
from collections.abc import Hashable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import isfinite
from numbers import Number
from typing import Any

import numpy as np

from pgmengine.base.checks import SINGLE_ROUNDING
from pgmengine.base.errors import PgmError, listed, told
from pgmengine.base.names import hashable, nearest

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


# Kinds of values of the types that are asked about most often.
KINDS: dict[type, type] = {bool: bool, int: Number, float: Number, str: str}


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
            if type(given) is str:
                # Most names are text, and the first question about a network waits for them.
                self.exact[str, given] = state
                written = _written(given)
                self.alike[written] = (*self.alike.get(written, ()), state)
                continue
            name = plain(given)
            self.exact[_kind(name), name] = state
            known = isinstance(name, (bool, int, float, str))
            for written in {_written(name), _written(name if known else text_of(name))}:
                self.alike[written] = (*self.alike.get(written, ()), state)
        self.tuples = any(isinstance(name, tuple) for name in self.names)

    def matches(self, value: object) -> tuple[int, ...]:
        """Return the states that a value may name: none, one, or several with the same meaning."""
        kind = KINDS.get(type(value))
        if kind is None:
            value = plain(value)
            if not hashable(value):
                return ()
            kind = _kind(value)
        state = self.exact.get((kind, value))
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


def number_of(value: Any, what: str) -> float:
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
