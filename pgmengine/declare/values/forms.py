"""Forms of the values of a table besides an array.

A form becomes an array, or fewer numbers from which the entries follow, once the variables of its
scope and their states are known, which is when a declaration is built. The same functions read a
state by its name or number, and a row of probabilities, in everything that users write: results of
functions, and sparse rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine.base.checks import real
from pgmengine.base.errors import PgmError, listed, told
from pgmengine.base.names import is_several, nearest
from pgmengine.base.types import Array
from pgmengine.model.containers import array_of, as_floats
from pgmengine.model.forms.table_forms import Formed
from pgmengine.model.names.state_names import StateNames, position
from pgmengine.model.tables import MAX_SUM_ERROR


@dataclass(frozen=True)
class Axis:
    """One variable of a scope.

    Attributes
    ----------
    name : its name in messages.
    count : the number of its states.
    state_names : the names of its states, or None if they have none.
    """

    name: str
    count: int
    state_names: tuple[Hashable, ...] | None = None

    @cached_property
    def states(self) -> tuple[Hashable, ...]:
        """The names of the states, or their numbers."""
        return self.state_names or tuple(range(self.count))

    @cached_property
    def _table(self) -> StateNames:
        """The table that reads names of states."""
        return StateNames(self.states)

    @cached_property
    def _numbered(self) -> bool:
        """Whether a number can only mean the number of a state: no name of a state is a number."""
        return not any(self._table.matches(number) for number in range(self.count))

    def state(self, given: object) -> int | None:
        """Return the number of a state that is given by its name or its number, or None."""
        found = self._table.matches(given)
        if len(found) == 1:
            return found[0]
        number = None if isinstance(given, (str, tuple)) else position(given)
        inside = number is not None and number < self.count
        return number if inside and not found and self._numbered else None

    def named(self, given: object) -> int | None:
        """Return the number of the state that has this name, or None."""
        found = self._table.matches(given)
        return found[0] if len(found) == 1 else None

    def expected(self, given: object) -> str:
        """Return the end of a message that lists the states, with the nearest one."""
        near = nearest(given, self.states) if isinstance(given, str) else ""
        return f"the states are {listed([repr(state) for state in self.states])}{near}"


class Form(ABC):
    """The values of a table in another form than an array."""

    @abstractmethod
    def resolved(self, axes: Sequence[Axis], conditional: bool, what: str) -> Array | Formed:
        """Return the values for a scope; in a conditional, the child is the last axis.

        Raises
        ------
        PgmError that begins with `what`, the table in messages.
        """


def sized(axes: Sequence[Axis]) -> tuple[int, ...]:
    """Return the shape of a table."""
    return tuple(axis.count for axis in axes)


def given_states(axes: Sequence[Axis], states: Sequence[int]) -> str:
    """Return " given a = yes, b = no" for a message, or an empty string without parents."""
    each = [f"{axis.name} = {axis.states[k]}" for axis, k in zip(axes, states, strict=True)]
    return f" given {', '.join(each)}" if each else ""


def row_of(given: Any, child: Axis, what: str) -> Array:
    """Return a row of probabilities (K,) from a row, a mapping, or the state with probability one.

    `what` says in messages what was given, such as "conditional of 'c': the function returned".
    """
    given = given.item() if isinstance(given, np.ndarray) and given.ndim == 0 else given
    if (state := child.state(given)) is not None:
        return np.asarray(np.eye(child.count)[state])
    expected = f"expected a state or {child.count} probabilities; {child.expected(given)}"
    if isinstance(given, Mapping):
        row = np.array([real(x) for x in by_state(given, child, f"{what} {given!r}", 0.0)])
    elif not is_several(given):
        raise PgmError(f"{what} {told(given)}, {expected}")
    else:
        row = _numbers(given, f"{what} {given!r}, {expected}")
    if row.shape != (child.count,):
        raise PgmError(f"{what} {given!r}, an array of shape {row.shape}, {expected}")
    # The comparisons are False for NaN.
    if not (row >= 0).all():
        raise PgmError(f"{what} {given!r}, expected {child.count} probabilities of at least 0")
    if not abs(row.sum() - 1) <= MAX_SUM_ERROR:
        raise PgmError(f"{what} {given!r}, whose sum is {row.sum():.9g}, expected 1")
    return row


def by_state(given: Mapping[Any, Any], axis: Axis, what: str, missing: Any) -> list[Any]:
    """Return the entry of each state of a mapping from states, and `missing` for other states.

    If `missing` is None, PgmError names the first state without an entry.
    """
    found = dict[int, Any]()
    for key, value in given.items():
        state = axis.state(key)
        if state is None:
            raise PgmError(f"{what}: {key!r} is no state of {axis.name!r}; {axis.expected(key)}")
        if state in found:
            raise PgmError(f"{what}: two entries for the state {axis.states[state]!r}")
        found[state] = value
    if missing is None and len(found) < axis.count:
        first = next(axis.states[k] for k in range(axis.count) if k not in found)
        raise PgmError(f"{what} has no entry for the state {first!r} of {axis.name!r}")
    return [found.get(state, missing) for state in range(axis.count)]


def _numbers(given: Any, message: str) -> Array:
    """Return anything that numpy reads as numbers; PgmError with the message for the rest."""
    try:
        array = array_of(given, message)
        texts = array.dtype.kind == "O" and any(isinstance(x, (str, bytes)) for x in array.flat)
        if not texts:
            return as_floats(array, message)
    except PgmError:
        pass
    raise PgmError(message)
