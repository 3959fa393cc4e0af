"""Entropies and mutual information of units given the evidence, in nats.

    H(a) = -sum_s p(s) log p(s),    I(a; b) = H(a) + H(b) - H(a, b)

Both are functions of the joint distribution of the units, which is exact where the method of the
answer gives it. Otherwise it is the table of frequencies of draws, and the standard error comes
from the first order in the frequencies: the one of the mean of -log p(s), or of the log ratio
log p(s, t) / p(s) p(t), over the draws, which knows how the draws of a chain depend on each other.
Frequencies of n independent draws make I too large by about (states_a - 1)(states_b - 1) / 2n
(Miller 1955, Note on the bias of information estimates), which the error does not contain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import NotAsked, PgmError
from pgmengine.base.types import Array
from pgmengine.infer.results.by_name import Joint, asked, members_of
from pgmengine.model.names.unit_names import Place
from pgmengine.model.tables import check_finite

if TYPE_CHECKING:
    from pgmengine.declare.handles import Units
    from pgmengine.model.names.unit_names import Member

# Information that rounding alone can make, as a share of the entropies.
ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class JointTable:
    """The joint distribution of the units of two groups, of which the second one may be empty.

    Attributes
    ----------
    table : (rows, states of the first group, states of the second group).
    states : the states (draws, rows) of both groups in each draw; None of exact tables, and where
        there are no draws.
    """

    table: Array
    states: tuple[Array, ...] | None = None

    def entropy(self) -> Array:
        """Return the entropy (rows,) of all units."""
        return np.asarray(np.maximum(-_x_log_x(self.table).sum(axis=(1, 2)), 0.0))

    def information(self) -> Array:
        """Return the mutual information (rows,) of both groups; what rounding can make is 0."""
        one, two = self.table.sum(axis=2), self.table.sum(axis=1)
        separate = -_x_log_x(one).sum(axis=1) - _x_log_x(two).sum(axis=1)
        found = separate - self.entropy()
        return np.where(found > ROUNDING * (1.0 + separate), found, 0.0)

    def at_draws(self, logs: Array) -> Array:
        """Return the entries (draws, rows) of logs (rows, states, states) at the draws."""
        assert self.states is not None
        return np.asarray(logs[np.arange(len(logs)), *self.states])


def _x_log_x(p: Array) -> Array:
    """Return p log p, 0 where p is 0."""
    return p * np.log(np.where(p > 0, p, 1.0))


def entropy(result: Any, units: Sequence[Member | Units]) -> tuple[Array, Array]:
    """Return the joint entropy (rows,) of some units, and its standard error."""
    joint = _joint(result, units, ())
    return joint.entropy(), _error(result, joint, -_log(joint.table))


def mutual_information(
    result: Any, one: Sequence[Member | Units], other: Sequence[Member | Units]
) -> tuple[Array, Array]:
    """Return the mutual information (rows,) of two groups of units, and its standard error."""
    joint = _joint(result, one, other)
    table = joint.table
    ratio = _log(table) - _log(table.sum(axis=2, keepdims=True))
    ratio = ratio - _log(table.sum(axis=1, keepdims=True))
    return joint.information(), _error(result, joint, ratio)


def _log(p: Array) -> Array:
    """Return the logarithm, 0 where p is 0: no draw has such a state."""
    return np.asarray(np.log(np.where(p > 0, p, 1.0)))


def _error(result: Any, joint: JointTable, logs: Array) -> Array:
    """Return the standard error (rows,) of the mean of logs at the draws; 0 of exact tables."""
    if joint.states is None:
        known = result.kind == "exact"
        return np.full(len(joint.table), 0.0 if known else np.nan)
    return np.atleast_1d(result.expectation(lambda _: joint.at_draws(logs)).error)


def _joint(
    result: Any, one: Sequence[Member | Units], other: Sequence[Member | Units]
) -> JointTable:
    """Return the joint distribution of two groups: as answered, asked again, or of the draws."""
    target = asked(result.target)
    structure = target.structure
    groups = [_places(structure, group) for group in (one, other)]
    both = [*groups[0], *groups[1]]
    if len(set(both)) < len(both):
        raise PgmError("entropy and mutual information need different units, each named once")
    counts = [math.prod(structure.state_counts[name] for name, _ in group) for group in groups]
    found = _of_answers(result, [*one, *other], both)
    drawn = "samples" in result.answers and (found is None or result.kind != "exact")
    states = tuple(_states(result, group) for group in groups) if drawn else None
    if found is not None:
        return JointTable(np.asarray(found).reshape(target.rows, *counts), states)
    if states is None:
        names = ", ".join(map(repr, (*one, *other)))
        raise NotAsked(
            f"the joint distribution of {names} was not computed: ask for "
            f"want=(pgm.Joint({names}),), or for draws by want=('samples',)"
        )
    table = np.zeros((target.rows, *counts))
    np.add.at(table, (np.arange(target.rows)[None], *states), 1.0 / len(states[0]))
    return JointTable(table, states)


def _places(structure: Any, group: Sequence[Member | Units]) -> list[Place]:
    """Return the places of units with finitely many states."""
    places = list[Place]()
    for part in members_of(structure.names, group, "information"):
        check_finite(structure, part.layer.name)
        places += part.places
    return places


def _of_answers(
    result: Any, names: Sequence[Member | Units], places: Sequence[Place]
) -> Array | None:
    """Return the joint distribution from the answers, or from the method, or None."""
    if "joint" in result.answers and tuple(names) in result.joint:
        return np.asarray(result.joint[tuple(names)])
    ((name, unit), *more) = places
    if not more and "prob" in result.answers:
        return np.asarray(result.raw("prob")[name][..., unit, :])
    target = asked(result.target)
    # States that soft evidence has excluded are findings, which the target of a result has not.
    excluded = any(units.any() for units in target.found.values())
    if result.kind != "exact" or excluded or not hasattr(result.method, "prepare"):
        return None
    question = result.method.prepare(target, (Joint(*names),))
    if question.plan.refusal:
        return None
    (found,) = question.run().answers["joint"].values()
    return np.asarray(found)


def _states(result: Any, group: Sequence[Place]) -> Array:
    """Return the number (draws, rows) of the joint state of a group in each draw."""
    structure, samples = asked(result.target).structure, result.raw("samples")
    first = next(iter(samples.values()))
    number = np.zeros(first.shape[:2], dtype=np.int64)
    for name, unit in group:
        states = structure.layers[name].unit.state_of(samples[name])[..., unit]
        number = number * structure.state_counts[name] + states
    return number
