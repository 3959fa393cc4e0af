"""Tables from a function of the states of their scope, and from sparse rows.

A function is called once for each entry of the table, or for each row of the conditional. Sparse
rows name the states of the parents of a few rows, and all other rows are equal.

Joint states of which a function returns the same, and those that sparse rows leave out, are a leaf:
learning keeps them equal. A table whose entries or rows are all equal tells no states apart, and is
an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pgmengine.base.checks import real
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.base.work.memory import no_room
from pgmengine.declare.values.forms import Axis, Form, given_states, row_of, sized
from pgmengine.model.forms.table_forms import Formed, Leaves


@dataclass(frozen=True)
class FromFunction(Form):
    """The values of a table as a function of the states of its scope, or of the parents.

    Attributes
    ----------
    function : the function.
    log : whether it returns logarithms of entries.
    """

    function: Callable[..., Any]
    log: bool = False

    def resolved(self, axes: Sequence[Axis], conditional: bool, what: str) -> Array | Formed:
        """Return the table; a conditional has a row for each call, another table an entry."""
        _check_room(axes, what)
        if conditional and self.log:
            raise PgmError(
                f"{what}: log=True takes an array of log probabilities, or let the function return "
                "probabilities or a state without log"
            )
        out = np.full(sized(axes), np.nan)
        scope = axes[:-1] if conditional else axes
        leaf, results = np.zeros(sized(scope), dtype=np.int64), dict[bytes, int]()
        for states in product(*(range(axis.count) for axis in scope)):
            place = f"{what}{given_states(scope, states)}"
            found = self._call([a.states[k] for a, k in zip(scope, states, strict=True)], place)
            said = f"{place}: the function returned"
            out[states] = row_of(found, axes[-1], said) if conditional else self._entry(found, said)
            leaf[states] = results.setdefault(out[states].tobytes(), len(results))
        return _with_leaves(out, leaf, -np.inf if self.log else 0.0)

    def _call(self, states: Sequence[Any], place: str) -> Any:
        """Return the result of the function; its own errors become the cause of a PgmError."""
        try:
            return self.function(*states)
        except Exception as error:
            given = ", ".join(map(repr, states))
            raise PgmError(
                f"{place}: the function raised {type(error).__name__}: {error}; it was called "
                f"with ({given}), the states of its variables in order"
            ) from error

    def _entry(self, given: Any, what: str) -> float:
        """Return an entry of a table that is no conditional, or its logarithm."""
        if isinstance(given, (np.ndarray, np.generic)) and not given.ndim:
            given = given.item()
        if not self.log:
            return _entry(given, what)
        number = real(given)
        if not number < math.inf:
            raise PgmError(f"{what} {given!r}, expected a finite number, or -inf, with log=True")
        return number


def _with_leaves(table: Array, leaf: Array, impossible: float = 0.0) -> Array | Formed:
    """Return a table as the numbers of its leaves, where joint states share one that can learn.

    Parameters
    ----------
    table : the entries, or the rows of a conditional.
    leaf : the number of the leaf of each joint state.
    impossible : an entry of 0, or its logarithm.
    """
    rows = table.reshape(leaf.size, -1)
    _, first, places = np.unique(leaf, return_index=True, return_counts=True)
    possible = (rows[first] > impossible).sum(axis=1) > table.ndim - leaf.ndim
    if len(first) == 1 or not (possible & (places > 1)).any():
        return table
    numbers = rows[first].reshape(len(first), *table.shape[leaf.ndim :])
    return Formed(Leaves(leaf, numbers.shape), numbers)


def _entry(given: Any, what: str) -> float:
    """Return an entry of a table that is no conditional; True is 1, and False is 0."""
    number = float(given) if isinstance(given, bool) else real(given)
    if not 0 <= number < math.inf:
        raise PgmError(
            f"{what} {given!r}, expected a finite number of at least 0, or True or False"
        )
    return number


@dataclass(frozen=True)
class FromRows(Form):
    """A conditional by some of its rows; all other rows are equal.

    Attributes
    ----------
    rows : (states of the parents, in order) -> row, or the state of a single parent -> row.
    otherwise : the row of all other states of the parents, or None if there are no others.
    """

    rows: Mapping[Any, Any]
    otherwise: Any = None

    def resolved(self, axes: Sequence[Axis], conditional: bool, what: str) -> Array | Formed:
        """Return the conditional; the states of the parents that have no row share a leaf."""
        _check_room(axes, what)
        *parents, child = axes
        out, leaf = np.full(sized(axes), np.nan), np.zeros(sized(parents), dtype=np.int64)
        if self.otherwise is not None:
            out[...] = row_of(self.otherwise, child, f"{what}: otherwise is")
        seen = dict[tuple[int, ...], Any]()
        for key, row in self.rows.items():
            states = _states_of(key, parents, what)
            if states in seen:
                raise PgmError(f"{what}: rows {seen[states]!r} and {key!r} have the same states")
            seen[states] = key
            out[states] = row_of(row, child, f"{what}: the row of {key!r} is")
            leaf[states] = len(seen)
        missing = np.isnan(out[..., 0])
        if missing.any():
            first = tuple(int(k) for k in np.argwhere(missing)[0])
            raise PgmError(
                f"{what}{given_states(parents, first)} has no row, and neither have "
                f"{int(missing.sum()) - 1} other joint states of the parents: add the row, or give "
                "otherwise=, the row of all others"
            )
        return _with_leaves(out, leaf)


def _states_of(key: Any, parents: Sequence[Axis], what: str) -> tuple[int, ...]:
    """Return the states of the parents that are the key of a row."""
    alone = len(parents) == 1 and (not isinstance(key, tuple) or parents[0].state(key) is not None)
    given = (key,) if alone else key
    if not isinstance(given, tuple) or len(given) != len(parents):
        names = ", ".join(repr(axis.name) for axis in parents)
        raise PgmError(
            f"{what}: rows has the key {key!r}, expected a tuple with a state of each parent, in "
            f"the order ({names})"
        )
    states = [axis.state(state) for axis, state in zip(parents, given, strict=True)]
    for axis, state, number in zip(parents, given, states, strict=True):
        if number is None:
            raise PgmError(
                f"{what}: rows has the key {key!r}, and {state!r} is no state of {axis.name!r}; "
                f"{axis.expected(state)}"
            )
    return tuple(k for k in states if k is not None)


def _check_room(axes: Sequence[Axis], what: str) -> None:
    """PgmError unless the table fits into memory."""
    entries = math.prod(sized(axes))
    if why := no_room(8 * entries, "take fewer parents, or a noisy gate such as pgm.noisy_or"):
        raise PgmError(f"{what} with {entries:.3g} entries does not fit: {why}")
