"""The mode as the state with the largest sum of log factors, for methods that need no tree.

The free units of each evidence pattern are variables, and the log density of the conditioned model
is a sum of factors over a few of them (junction_tree/factors.py). Units that are summed in closed
form, such as real children, count with their largest weight. A method finds a joint state of the
variables, and a number that no joint state exceeds. Their difference is the gap of the mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pgmengine.base.types import Array
from pgmengine.base.work.division import check_divided
from pgmengine.evidence.target import Target, evidence_patterns, one_for_all
from pgmengine.infer.exact.gathered import check_possible
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, Form, condition
from pgmengine.infer.exact.junction_tree.elimination import values_of_states, with_other_units
from pgmengine.infer.exact.junction_tree.factors import Scopes
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.axes import public
from pgmengine.infer.results.result import Result, Status

# Copies of the entries of a row while it is searched.
COPIES = 6


@dataclass(frozen=True, eq=False)
class LogFactors:
    """The log factors of one row.

    Attributes
    ----------
    cards : (n,) the numbers of states of the variables.
    scopes : the factors.
    sizes : (factors,) the number of entries of each.
    logs : (entries,) their log entries, -inf where impossible.
    """

    cards: Array
    scopes: Scopes
    sizes: Array
    logs: Array

    def value(self, state: Array) -> float:
        """Return the sum of the log factors at a state (n,)."""
        start, scope = self.scopes.start, self.scopes.scope
        places = self.sizes.cumsum() - self.sizes
        factor = np.arange(len(self.scopes)).repeat(np.diff(start))
        np.add.at(places, factor, strides(self.cards, self.scopes) * state[scope])
        return float(self.logs[places].sum())


def strides(cards: Array, scopes: Scopes) -> Array:
    """Return the distance of neighbouring states of each member of each factor, (members,)."""
    sizes = cards[scopes.scope].astype(np.int64)
    out = np.ones(len(sizes), dtype=np.int64)
    # Members of a factor lie behind each other, the last one with the stride 1.
    position = np.diff(scopes.start).repeat(np.diff(scopes.start))
    position -= np.arange(len(sizes)) - scopes.start[:-1].repeat(np.diff(scopes.start))
    for back in range(2, int(position.max(initial=0)) + 1):
        at = np.flatnonzero(position >= back)
        last = at + position[at] - back + 1
        out[at] *= sizes[last]
    return out


@dataclass(frozen=True, eq=False)
class Found:
    """A state of a row that a search has found.

    Attributes
    ----------
    state : (n,) the states of the variables.
    gap : by how much the log density of another state may be larger; 0 where it is proved that none
        is, and inf where nothing is known.
    """

    state: Array
    gap: float


def better(factors: LogFactors, one: Found, other: Found) -> Found:
    """Return the better one of two states, with the smaller one of both bounds."""
    values = factors.value(one.state), factors.value(other.state)
    upper = min(values[0] + one.gap, values[1] + other.gap)
    best = max(values)
    state = one.state if values[0] == best else other.state
    return Found(state, max(upper - best, 0.0) if np.isfinite(best) else np.inf)


@dataclass(frozen=True, eq=False)
class ModeFactors:
    """The factors of the rows of one evidence pattern, at whose joint maximum the mode is."""

    rows: Array
    conditioned: Conditioned

    @property
    def entries(self) -> float:
        """The number of entries of all factors of a row."""
        return float(self.conditioned.sizes.sum())

    @property
    def bytes(self) -> float:
        """The memory that a search needs."""
        return 8.0 * COPIES * self.entries

    def of_row(self, one: Target) -> LogFactors:
        """Return the log factors of a target of one row."""
        c = self.conditioned
        parts = [part.ravel() for part in c.largest(one, None, one)]
        return LogFactors(c.states, c.scopes, c.sizes, np.concatenate([np.empty(0), *parts]))

    def completed(self, one: Target, state: Array) -> dict[str, Array]:
        """Return the values (1, width) of all layers at a state of the variables."""
        values = values_of_states(self.conditioned, one, state[None, None])
        every = with_other_units(self.conditioned, one, one, values, None)
        return {name: x[:, 0] for name, x in every.items()}


def mode_factors(target: Target) -> list[ModeFactors]:
    """Return the factors of each evidence pattern; PgmError where a term is no table."""
    out = [
        ModeFactors(rows, condition(one_for_all(target, rows), Form(maximum=True)))
        for rows in evidence_patterns(target)
    ]
    check_divided([one.rows for one in out], target.rows, "modes")
    return out


def searched(question: AnyPrepared, search: Callable[[LogFactors], Found]) -> Result:
    """Return the modes of all rows, each by a search, with their gaps.

    The result is exact if every gap is 0. A state that is impossible has the status IMPOSSIBLE.
    """
    target, patterns = question.target, question.basis
    states = {
        name: np.full((target.rows, layer.width), np.nan)
        for name, layer in target.structure.layers.items()
    }
    gap = np.full(target.rows, np.nan)
    lost = list[int]()
    for pattern in patterns:
        for row in pattern.rows.tolist():
            one = target.take(np.array([row]))
            check_possible(pattern.conditioned.constant(one), np.array([row]), target)
            factors = pattern.of_row(one)
            found = search(factors)
            gap[row] = found.gap
            if np.isneginf(value := factors.value(found.state)):
                # A search that has proved that there is no better state has proved it of all.
                check_possible(
                    np.array([value if found.gap == 0 else 0.0]), np.array([row]), target
                )
                lost.append(row)
            for name, x in pattern.completed(one, found.state).items():
                states[name][row] = x[0]
    answers = {"mode": public(target, states), "mode_gap": gap}
    status, notes = Status.OK, tuple[str, ...]()
    if lost:
        status = Status.IMPOSSIBLE
        number = target.row_numbers[lost[0]]
        notes = (f"evidence row {number}: no state was found in which every factor is possible",)
    result = question.result(answers, status=status, warnings=notes)
    return result if gap.any() or lost else replace(result, kind="exact")
