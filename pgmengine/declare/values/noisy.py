r"""Noisy gates in the parameters of the field: noisy-or, noisy-and, noisy-max, noisy-min, average.

Each parent, on its own, brings the child to a state at random, by a row of probabilities for each
state of the parent. A function combines the contributions of all parents and of the leak:

    noisy-or        the child is on if any contribution is on
    noisy-and       the child is on if all contributions are on, or else by the leak
    noisy-max, -min the child is in the largest, or smallest, state of all contributions
    noisy average   the child takes one contribution, chosen at random by the weights

Each of them is a gate: the auxiliary variable of model/gates/gate.py is the combination of the leak
and of the first i contributions. For the average it is the contribution that was taken, or one more
state that says that none has been taken yet.

References: Pearl (1988), noisy-or; Henrion (1989), leak; Diez (1993), noisy-max; Diez and Druzdzel
(2006), all of them in one system; Zagorecki (2010), noisy average.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import real
from pgmengine.base.errors import PgmError
from pgmengine.base.names import is_several
from pgmengine.base.types import Array
from pgmengine.base.work.memory import no_room
from pgmengine.declare.values.forms import Axis, Form, by_state, row_of
from pgmengine.model.gates.gate import Gate

# Names of states, in lower case, that say that a variable is on, or off. A variable whose first
# state is on has its states in the reverse of the order that numbers without names of states mean.
NAMES_OF_ON = frozenset({"yes", "true", "on", "present", "1", "positive", "y", "t"})
NAMES_OF_OFF = frozenset({"no", "false", "off", "absent", "0", "negative", "n", "f"})


@dataclass(frozen=True)
class NoisyLogic(Form):
    """A noisy-or, or a noisy-and: a child with two states, on and off.

    Attributes
    ----------
    probabilities : for each parent, a number, a number for each state, or state -> number.
    leak : the probability that the child is on although its parents do not turn it on.
    on : the name of the state that counts as on, or None for the second state.
    every : whether all parents are needed (and), not just one of them (or).
    """

    probabilities: tuple[Any, ...]
    leak: float
    on_state: Any
    every: bool

    def on(self, axes: Sequence[Axis], conditional: bool, what: str) -> Gate:
        """Return the gate."""
        *parents, child = axes
        _check_conditional(conditional, what)
        _check_count(self.probabilities, parents, what, "probabilities")
        if child.count != 2:
            raise PgmError(
                f"{what}: {child.name!r} has {child.count} states, and a noisy-or or noisy-and "
                "needs 2; give pgm.noisy_max, with a table for each parent"
            )
        state = self._on_of(child, what)
        pairs = zip(parents, self.probabilities, strict=True)
        links = [self._link(self._by_state(parent, p, what)) for parent, p in pairs]
        if self.every:
            # The leak comes last: it turns the child on after all.
            start, leak = np.array([0.0, 1.0]), np.array([[1 - self.leak, self.leak], [0.0, 1.0]])
            links = [*links[:-1], *(link @ leak for link in links[-1:])]
            start = start if links else start @ leak
        else:
            start = np.array([1 - self.leak, self.leak])
        order = [0, 1] if state else [1, 0]
        if not links:
            return Gate(start[order], ())
        return Gate(start, (*links[:-1], links[-1][..., order]))

    def _link(self, p: Array) -> Array:
        """Return the small table (2, K, 2) of a parent that contributes with probability p (K,)."""
        link = np.zeros((2, len(p), 2))
        mixed, kept = (1, 0) if self.every else (0, 1)
        link[mixed, :, 0], link[mixed, :, 1] = 1 - p, p
        link[kept, :, kept] = 1.0
        return link

    def _on_of(self, axis: Axis, what: str) -> int:
        """Return the state of a variable with two states that counts as on."""
        found = None if self.on_state is None else axis.state(self.on_state)
        if found is None and self.on_state is not None:
            raise PgmError(
                f"{what}: on={self.on_state!r} is no state of {axis.name!r}; "
                f"{axis.expected(self.on_state)}"
            )
        if found is None and axis.state_names is not None:
            first, second = (str(name).lower() for name in axis.state_names)
            if first in NAMES_OF_ON or second in NAMES_OF_OFF:
                raise PgmError(
                    f"{what}: the states of {axis.name!r} are {first!r} and {second!r}, in "
                    "this order, and the second one would count as on: name the state that is on, "
                    f"as in on={axis.states[0]!r}"
                )
        return 1 if found is None else found

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

    def _on_of_parent(self, parent: Axis, what: str) -> int:
        """Return the state of a parent that counts as on: the one called as that of the child."""
        if self.on_state is not None and (state := parent.state(self.on_state)) is not None:
            return state
        return NoisyLogic((), 0.0, None, self.every)._on_of(parent, what)


def noisy_or(
    probabilities: Iterable[Any], leak: float = 0.0, on: str | int | None = None
) -> NoisyLogic:
    """Return a noisy-or, as the values of the conditional of a child with two states.

    Use it for effects with independent causes, such as symptoms of diseases: n numbers stand for a
    table with 2^n rows. The child is off only if the leak and all parents fail to turn it on,

        p(off | parents) = (1 - leak) * product over the parents that are on of (1 - probability)

    Elimination does not expand the table: its cost grows linearly with the number of parents.

    Parameters
    ----------
    probabilities : for each parent in order, the probability that it turns the child on, alone and
        without the leak. It is a number for a parent with two states, which acts in its state that
        is on. Otherwise it is a number for each state, or a dictionary from states to numbers, in
        which states that are left out have 0.
    leak : the probability that the child is on although no parent turns it on.
    on : the name or number of the state that is on, in the child and in parents that have a state
        of this name. The default is the second state, which is refused for states such as "yes",
        "no", in this order.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError for a leak outside of [0, 1]; other errors are found when the model is built.

    References
    ----------
    Pearl (1988); Henrion (1989); Diez and Druzdzel (2006). With a leak, Diez and pgmengine give the
    probabilities of the parents without the leak, and Henrion gives them together with it:
    1 - p_Henrion = (1 - p) (1 - leak).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for cause in ("cold", "flu"):
    ...     b.variable(cause, states=("no", "yes"))
    ...     b.conditional(cause, (), [0.9, 0.1])
    >>> b.variable("fever", states=("no", "yes"))
    >>> b.conditional("fever", ("cold", "flu"), pgm.noisy_or([0.4, 0.8], leak=0.01))
    >>> r = pgm.infer(b.build(), {"cold": "yes", "flu": "no"})
    >>> round(float(r.marginal("fever")["yes"]), 6)
    0.406
    """
    return NoisyLogic(_listed(probabilities, "noisy_or"), _leak(leak, "noisy_or"), on, False)


def noisy_and(
    probabilities: Iterable[Any], leak: float = 0.0, on: str | int | None = None
) -> NoisyLogic:
    """Return a noisy-and, as the values of the conditional of a child with two states.

    Use it for effects that need all of their conditions. A parent that is on meets its condition
    with its probability, and a parent that is off does not meet it. The child is on if all
    conditions are met, or else with the probability of the leak,

        p(on | parents) = leak + (1 - leak) * product over all parents of p_i

    where p_i is the probability of the parent if it is on, and 0 if it is off.

    Parameters
    ----------
    probabilities : for each parent in order, as in `noisy_or`: a number, or a number for each
        state. A number for the state that is off lets the condition be met without the parent.
    leak : the probability that the child is on although some condition is not met.
    on : the name or number of the state that is on, as in `noisy_or`.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError for a leak outside of [0, 1]; other errors are found when the model is built.

    References
    ----------
    Diez and Druzdzel (2006).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for need in ("fuel", "spark"):
    ...     b.variable(need, states=("no", "yes"))
    ...     b.conditional(need, (), [0.1, 0.9])
    >>> b.variable("starts", states=("no", "yes"))
    >>> b.conditional("starts", ("fuel", "spark"), pgm.noisy_and([0.95, 0.9]))
    >>> r = pgm.infer(b.build(), {"fuel": "yes", "spark": "yes"})
    >>> round(float(r.marginal("starts")["yes"]), 6)
    0.855
    """
    return NoisyLogic(_listed(probabilities, "noisy_and"), _leak(leak, "noisy_and"), on, True)


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

    def on(self, axes: Sequence[Axis], conditional: bool, what: str) -> Gate:
        """Return the gate."""
        *parents, child = axes
        _check_conditional(conditional, what)
        neutral = 0 if self.largest else child.count - 1
        start = _leak_row(neutral if self.leak is None else self.leak, child, what)
        tables = _tables(self.tables, parents, child, what, neutral)
        return Gate(start, tuple(self._link(table) for table in tables))

    def _link(self, table: Array) -> Array:
        """Return the small table (K, K_i, K) of a parent.

        In a noisy-max, state j is kept by contributions up to j, and others lead to themselves.
        """
        if not self.largest:
            return NoisyExtreme((), None, True)._link(table[:, ::-1])[::-1, :, ::-1]
        count = table.shape[1]
        link = np.where(np.tri(count, dtype=bool)[:, None], 0.0, table)
        states = np.arange(count)
        link[states, :, states] = np.cumsum(table, axis=1).T
        return link


def noisy_max(tables: Iterable[Any], leak: Any = None) -> NoisyExtreme:
    """Return a noisy-max, as the values of the conditional of a child with ordered states.

    Use it for effects of several degrees with independent causes. The states of the child are in
    ascending order, and the first one means that the effect is absent. Each parent brings the child
    to a degree at random, and so does the leak. The child has the largest of these degrees,

        p(child <= k | parents) = leak(<= k) * product over the parents of table_i(<= k | x_i)

    Elimination does not expand the table: its cost grows linearly with the number of parents. For
    states in descending order there is `noisy_min`.

    Parameters
    ----------
    tables : for each parent in order, the distribution of the degree that it causes, given its
        state, (states of the parent, states of the child). A row may also be a state of the child,
        which then has probability one, or a dictionary from states to probabilities. Rows may be
        given by a dictionary from the states of the parent; states that are left out cause nothing.
    leak : the distribution of the leak (states of the child,); None = it causes nothing.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError when the model is built: for tables of another number or shape, and for rows that do
    not sum to one.

    References
    ----------
    Diez (1993); Diez and Galan (2003).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for cause in ("cold", "flu"):
    ...     b.variable(cause, states=("no", "yes"))
    ...     b.conditional(cause, (), [0.9, 0.1])
    >>> b.variable("fever", states=("none", "mild", "high"))
    >>> cold, flu = {"yes": [0.5, 0.4, 0.1]}, {"yes": [0.1, 0.3, 0.6]}
    >>> b.conditional("fever", ("cold", "flu"), pgm.noisy_max([cold, flu]))
    >>> r = pgm.infer(b.build(), {"cold": "yes", "flu": "yes"})
    >>> {state: round(float(p), 3) for state, p in r.marginal("fever").items()}
    {'none': 0.05, 'mild': 0.31, 'high': 0.64}
    """
    return NoisyExtreme(_listed(tables, "noisy_max"), leak, True)


def noisy_min(tables: Iterable[Any], leak: Any = None) -> NoisyExtreme:
    """Return a noisy-min, as the values of the conditional of a child with ordered states.

    Use it for a noisy-max whose states are in descending order, where the last state means that the
    effect is absent, and for a chain that is as strong as its weakest part. The child has the
    smallest state of all contributions,

        p(child >= k | parents) = leak(>= k) * product over the parents of table_i(>= k | x_i)

    Parameters
    ----------
    tables : for each parent in order, the distribution of its contribution, as in `noisy_max`.
    leak : the distribution of the leak (states of the child,); None = the last state.

    Returns
    -------
    The values for `GraphBuilder.conditional`.

    Raises
    ------
    PgmError when the model is built, as for `noisy_max`.

    References
    ----------
    Diez and Druzdzel (2006).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> for part in ("pump", "pipe"):
    ...     b.variable(part, states=("old", "new"))
    ...     b.conditional(part, (), [0.5, 0.5])
    >>> b.variable("flow", states=("low", "high"))
    >>> wear = {"old": [0.3, 0.7], "new": "high"}
    >>> b.conditional("flow", ("pump", "pipe"), pgm.noisy_min([wear, wear]))
    >>> r = pgm.infer(b.build(), {"pump": "old", "pipe": "old"})
    >>> round(float(r.marginal("flow")["high"]), 6)
    0.49
    """
    return NoisyExtreme(_listed(tables, "noisy_min"), leak, False)


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

    def on(self, axes: Sequence[Axis], conditional: bool, what: str) -> Gate:
        """Return the gate; the last state of its auxiliary variables means that none is taken."""
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
        total = float(weights.sum())
        if not total:
            raise PgmError(f"{what}: all weights are 0, expected one above 0")
        if not parents:
            return Gate(leak, ())
        # left[i] is the weight of parents i, i + 1, ... together.
        left = np.cumsum(weights[-2::-1])[::-1]
        start = np.append(weights[-1] / total * leak, left[0] / total)
        shares = np.divide(weights[:-1], left, out=np.zeros(len(left)), where=left > 0)
        # The last parent is taken if no other is. Where its weight is 0, this never happens.
        shares[-1] = 1.0
        links = [_taken(t, share) for t, share in zip(tables, shares, strict=True)]
        return Gate(start, (*links[:-1], links[-1][..., :-1]))


def _taken(table: Array, share: float) -> Array:
    """Return the small table (K + 1, K_i, K + 1) of a parent that is taken with a probability."""
    states, count = table.shape
    link = np.zeros((count + 1, states, count + 1))
    link[:count, :, :count] = np.eye(count)[:, None]
    link[count, :, :count], link[count, :, count] = share * table, 1 - share
    return link


def _listed(given: Iterable[Any], name: str) -> tuple[Any, ...]:
    """Return an item for each parent; PgmError unless they are several in order."""
    if not is_several(given) or isinstance(given, (Mapping, set, frozenset)):
        raise PgmError(f"{name} needs a list with an item for each parent, in order, not {given!r}")
    return tuple(given)


def _leak(given: float, name: str) -> float:
    """Return a leak as a float; PgmError unless it is a probability."""
    if not 0 <= real(given) <= 1:
        raise PgmError(f"{name}: leak must be a probability from 0 to 1, not {given!r}")
    return real(given)


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
