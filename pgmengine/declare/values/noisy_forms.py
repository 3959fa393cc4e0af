r"""Noisy gates in the parameters of the field: noisy-or, noisy-and, noisy-max, noisy-min, average.

Each parent, on its own, brings the child to a state at random, by a row of probabilities for each
state of the parent. A function combines the contributions of all parents and of the leak:

    noisy-or        the child is on if any contribution is on
    noisy-and       the child is on if all contributions are on, or else by the leak
    noisy-max, -min the child is in the largest, or smallest, state of all contributions
    noisy average   the child takes one contribution, chosen at random by the weights

Each of them is a gate: the auxiliary variable of model/forms/gate.py is the combination of the leak
and of the first i contributions. For the average it is the contribution that was taken, or one more
state that says that none has been taken yet. The numbers of a gate are these rows of probabilities,
which learning changes.

References: Pearl (1988), noisy-or; Henrion (1989), leak; Diez (1993), noisy-max; Diez and Druzdzel
(2006), all of them in one system; Zagorecki (2010), noisy average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.checks import real
from pgmengine.base.errors import PgmError, told
from pgmengine.base.names import is_several
from pgmengine.base.types import Array
from pgmengine.base.work.memory import no_room
from pgmengine.declare.values.forms import Axis, Form, by_state, row_of
from pgmengine.model.forms.gate import Step, Steps
from pgmengine.model.forms.table_forms import Formed

# Names of states, in lower case, that say that a variable is on, or off. A variable whose first
# state is on has its states in the reverse of the order that numbers without names of states mean.
NAMES_OF_ON = frozenset({"yes", "true", "on", "present", "1", "positive", "y"})
NAMES_OF_OFF = frozenset({"no", "false", "off", "absent", "0", "negative", "n"})

# The state of a chain after a contribution.
LARGEST, SMALLEST = np.maximum, np.minimum


@dataclass(frozen=True)
class NoisyLogic(Form):
    """A noisy-or, or a noisy-and: a child with two states, on and off.

    Attributes
    ----------
    probabilities : for each parent, a number, a number for each state, or state -> number.
    leak : the probability that the child is on although its parents do not turn it on.
    on : the name or number of the state that is on, or None for the second state.
    every : whether all parents are needed (and), not just one of them (or).
    """

    probabilities: tuple[Any, ...]
    leak: float
    on: Any
    every: bool

    def resolved(self, axes: Sequence[Axis], conditional: bool, what: str) -> Formed:
        """Return the gate."""
        *parents, child = axes
        _check_conditional(conditional, what)
        _check_count(self.probabilities, parents, what, "probabilities")
        if child.count != 2:
            raise PgmError(
                f"{what}: {child.name!r} has {child.count} states, and a noisy-or or noisy-and "
                "needs 2; give pgm.noisy_max, with a table for each parent"
            )
        order = np.array([0, 1] if self._on_of_child(child, what) else [1, 0])
        on = [
            self._by_state(parent, p, what)
            for parent, p in zip(parents, self.probabilities, strict=True)
        ]
        tables = [np.stack([1 - p, p], axis=1) for p in on]
        leak = np.array([1 - self.leak, self.leak])
        if not self.every:
            return _chain(leak, tables, LARGEST, order)
        # The leak comes last: it turns the child on after all. A child without parents is on.
        return _chain(np.array([0.0, 1.0]), tables, SMALLEST, order, last=leak)

    def _on_of_child(self, child: Axis, what: str) -> int:
        """Return the state of the child that is on."""
        if self.on is None:
            return _second_is_on(child, what)
        if (state := child.state(self.on)) is None:
            raise PgmError(
                f"{what}: on={told(self.on)} is no state of {child.name!r}; "
                f"{child.expected(self.on)}"
            )
        return state

    def _on_of_parent(self, parent: Axis, what: str) -> int:
        """Return the state of a parent that is on: the one called as that of the child."""
        state = None if self.on is None else parent.named(self.on)
        return _second_is_on(parent, what) if state is None else state

    def _by_state(self, parent: Axis, given: Any, what: str) -> Array:
        """Return the probability that each state (K,) of a parent contributes."""
        place = f"{what}: the probability of parent {parent.name!r}"
        if isinstance(given, Mapping):
            p = np.array([real(x) for x in by_state(given, parent, place, 0.0)])
        elif is_several(given):
            p = np.array([real(x) for x in given])
            if len(p) != parent.count:
                raise PgmError(f"{place} has {len(p)} numbers, expected {parent.count}, by state")
        elif parent.count == 2:
            p = np.zeros(2)
            p[self._on_of_parent(parent, what)] = real(given)
        else:
            raise PgmError(
                f"{place} is one number, and {parent.name!r} has {parent.count} states: give a "
                "number for each state, or a dictionary from states to numbers"
            )
        # The comparison is False for NaN.
        if not ((p >= 0) & (p <= 1)).all():
            raise PgmError(f"{place} is {given!r}, expected numbers from 0 to 1")
        return p


def _second_is_on(axis: Axis, what: str) -> int:
    """Return 1, the second state; PgmError if its name says that the first state is on."""
    if axis.state_names is not None:
        first, second = (str(name).lower() for name in axis.state_names)
        if first in NAMES_OF_ON or second in NAMES_OF_OFF:
            raise PgmError(
                f"{what}: the states of {axis.name!r} are {axis.states[0]!r} and "
                f"{axis.states[1]!r}, in this order, and the second one would count as on: name "
                f"the state that is on, as in on={axis.states[0]!r}"
            )
    return 1


@dataclass(frozen=True)
class NoisyExtreme(Form):
    """A noisy-max or noisy-min: the largest, or smallest, state of all contributions.

    Attributes
    ----------
    tables : for each parent, the distribution of its contribution given its state, (K_i, K).
    leak : the distribution of the leak (K,), or None for the state that changes nothing.
    largest : whether the child is in the largest state.
    """

    tables: tuple[Any, ...]
    leak: Any
    largest: bool

    def resolved(self, axes: Sequence[Axis], conditional: bool, what: str) -> Formed:
        """Return the gate."""
        *parents, child = axes
        _check_conditional(conditional, what)
        neutral = 0 if self.largest else child.count - 1
        leak = _leak_row(neutral if self.leak is None else self.leak, child, what)
        tables = _tables(self.tables, parents, child, what, neutral)
        choose = LARGEST if self.largest else SMALLEST
        return _chain(leak, tables, choose, np.arange(child.count))


def _chain(
    first: Array, tables: Sequence[Array], choose: np.ufunc, order: Array, last: Array | None = None
) -> Formed:
    """Return a gate whose state is the largest or the smallest of all contributions so far.

    Parameters
    ----------
    first : the distribution of the first state (K,).
    tables : for each parent, the distribution of its contribution given its state, (K_i, K).
    choose : chooses the larger or the smaller one of the state and a contribution.
    order : the state of the child for each state of the chain.
    last : the distribution (K,) of one more contribution, of which the largest counts.
    """
    count, numbers = len(first), [first[None], *tables, *([] if last is None else [last[None]])]
    states, begin = np.arange(count), np.cumsum([0, *map(len, numbers)])
    steps = [Step(np.zeros((1, 1), dtype=np.int64), states[None], count, False)]
    for start, table in zip(begin[1:], tables, strict=False):
        rows = np.broadcast_to(start + np.arange(len(table)), (count, len(table)))
        steps.append(Step(rows, choose.outer(states, states), count, True))
    if last is not None:
        rows = np.full((count, 1), begin[-2])
        steps.append(Step(rows, LARGEST.outer(states, states), count, False))
    steps[-1] = replace(steps[-1], after=order[steps[-1].after])
    theta = np.concatenate(numbers)
    return Formed(Steps(tuple(steps), theta.shape), theta)


@dataclass(frozen=True)
class NoisyAverage(Form):
    """The noisy-adder of GeNIe: an average of distributions, with a weight for each parent.

        p(child | parents) = (weight_leak leak + sum_i weight_i table_i(. | x_i)) / sum of weights

    Attributes
    ----------
    tables : for each parent, the distribution of the child given its state, (K_i, K).
    weights : the weight of each parent, then that of the leak; at least 0, not all 0.
    leak : the distribution of the leak (K,).
    """

    tables: tuple[Any, ...]
    weights: tuple[float, ...]
    leak: Any

    def resolved(self, axes: Sequence[Axis], conditional: bool, what: str) -> Formed:
        """Return the gate, whose rows are those of the tables, and whether each table is taken."""
        *parents, child = axes
        _check_conditional(conditional, what)
        tables = _tables(self.tables, parents, child, what, None)
        weights = np.array(self.weights, dtype=np.float64)
        if len(weights) != len(parents) + 1 or not ((weights >= 0) & (weights < np.inf)).all():
            raise PgmError(
                f"{what}: the weights {self.weights!r}, expected {len(parents) + 1} finite numbers "
                "of at least 0: one for each parent, and one for the leak"
            )
        leak = _leak_row(self.leak, child, what)
        if not weights.any():
            raise PgmError(f"{what}: all weights are 0, expected one above 0")
        # The leak is the first table. A table is taken, if none was, with its share of the weights
        # that are left; the last one is taken if no other is.
        ordered = np.append(weights[-1], weights[:-1])
        left = np.cumsum(ordered[::-1])[::-1]
        shares = np.divide(ordered, left, out=np.zeros(len(left)), where=left > 0)
        shares[-1] = 1.0
        return _taken_in_turn(leak, tables, shares)


def _taken_in_turn(leak: Array, tables: Sequence[Array], shares: Array) -> Formed:
    """Return a gate that takes one contribution: of the leak, or of a parent, by shares.

    State K of the chain of a child with K states says that none has been taken, and K + 1 that the
    next one is.
    """
    count = len(leak)
    width, none, now = max(count, 2), count, count + 1
    numbers = np.zeros((len(shares), width))
    numbers[:, 0], numbers[:, 1] = shares, 1 - shares
    rows, steps = [numbers], list[Step]()
    begin, states, each = len(shares), np.arange(count), np.arange(width)
    for i, table in enumerate([leak[None], *tables]):
        before = np.array([none]) if i == 0 else np.append(states, none)
        choice = np.repeat(before[:, None], width, axis=1)
        choice[-1] = np.where(each == 0, now, none)
        steps.append(Step(np.full((len(before), 1), i), choice, count + 2, False))
        last = i == len(tables)
        taken = np.repeat(np.arange(count + 2)[:, None], width, axis=1)
        # Contributions beyond the states of the child are impossible, as is none at the end.
        taken[now], taken[none] = np.minimum(each, count - 1), 0 if last else none
        own = np.broadcast_to(begin + np.arange(len(table)), (count + 2, len(table)))
        steps.append(Step(own, taken, count if last else count + 1, i > 0))
        rows.append(np.pad(table, ((0, 0), (0, width - count))))
        begin += len(table)
    theta = np.concatenate(rows)
    return Formed(Steps(tuple(steps), theta.shape), theta)


def _leak_row(given: Any, child: Axis, what: str) -> Array:
    """Return the distribution (K,) of a leak."""
    return row_of(given, child, f"{what}: the leak is")


def _check_conditional(conditional: bool, what: str) -> None:
    """PgmError for a noisy gate in a table that is no conditional."""
    if not conditional:
        raise PgmError(f"{what}: a noisy gate is a conditional; declare it by conditional()")


def _check_count(given: Sequence[Any], parents: Sequence[Axis], what: str, name: str) -> None:
    """PgmError unless there is an item for each parent."""
    if len(given) != len(parents):
        raise PgmError(
            f"{what}: {len(given)} {name} for {len(parents)} parents "
            f"({', '.join(repr(p.name) for p in parents)}), expected one for each"
        )


def _tables(
    given: Sequence[Any], parents: Sequence[Axis], child: Axis, what: str, neutral: int | None
) -> list[Array]:
    """Return the table (K_i, K) of each parent.

    `neutral` is the contribution of states that a dictionary leaves out; None if they are refused.
    """
    _check_count(given, parents, what, "tables")
    numbers = child.count**2 * sum(parent.count for parent in parents)
    if why := no_room(16 * numbers, "take fewer states"):
        raise PgmError(f"{what}: its small tables with {numbers:.3g} entries do not fit: {why}")
    pairs = zip(given, parents, strict=True)
    return [_table(one, parent, child, what, neutral) for one, parent in pairs]


def _table(given: Any, parent: Axis, child: Axis, what: str, neutral: int | None) -> Array:
    """Return the table (K_i, K) of a parent."""
    place = f"{what}: the table of parent {parent.name!r}"
    if isinstance(given, Mapping):
        rows = by_state(given, parent, place, neutral)
    elif is_several(given) and len(listed_rows := list(given)) == parent.count:
        rows = listed_rows
    else:
        raise PgmError(
            f"{place} is {given!r}, expected {parent.count} rows, one for each of its states"
        )
    said = (f"{place}, state {state}, is" for state in parent.states)
    return np.array([row_of(row, child, line) for row, line in zip(rows, said, strict=True)])
