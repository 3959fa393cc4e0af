"""The most probable states of some units, summed over the others (marginal MAP).

    argmax_q sum_s p(q, s | evidence)

Sums and maxima do not commute, so that the summed units s have to be eliminated before the units q
whose states are wanted: a constrained order, which may need larger tables than a sum or a maximum
alone. `eliminate` sums units out of the factors of the conditioned model, in numpy; the junction
tree of the factors that are left gives the maximum.

References: Park and Darwiche (2004); Koller and Friedman (2009), section 13.2.3. The tests compare
it with sums over all states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine._kernels import JunctionTree
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array
from pgmengine.base.work.division import blocks, check_divided
from pgmengine.evidence.target import Target, evidence_patterns, one_for_all
from pgmengine.infer.exact.gathered import Answer
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, Form, condition
from pgmengine.infer.exact.junction_tree.elimination_order import best_order
from pgmengine.infer.exact.junction_tree.trees import MAX_PASS_BYTES, Limits
from pgmengine.infer.results.by_name import Mode, units_of

# Seconds of a step of elimination, besides the seconds for its entries, and for each entry.
STEP_SECONDS, ENTRY_SECONDS = 5e-5, 2e-8

# Copies of the largest table while it is summed.
COPIES = 5

# A factor: the units of its axes, and its logarithms with one more axis for the rows.
Factor = tuple[tuple[int, ...], Array]


@dataclass(frozen=True, eq=False)
class ModePlan:
    """The order of elimination for the mode of some units, for rows of one evidence pattern.

    Attributes
    ----------
    mode : the wanted units.
    rows : the rows of the pattern.
    conditioned : the factors of the pattern.
    summed : the free units that are summed out, in the order of elimination.
    kept : the free units whose states are wanted, ascending.
    entries : the number of entries of all tables of the sums, and of the cliques of `tree`.
    tree : the junction tree of the factors over kept units that are left; None without such units.
    """

    mode: Mode
    rows: Array
    conditioned: Conditioned
    summed: tuple[int, ...]
    kept: tuple[int, ...]
    entries: float
    tree: JunctionTree | None

    @property
    def seconds(self) -> float:
        """About the seconds of all rows."""
        return STEP_SECONDS * len(self.summed) + ENTRY_SECONDS * self.entries * len(self.rows)

    @property
    def bytes(self) -> float:
        """The bytes of a pass."""
        return min(8.0 * COPIES * self.entries * len(self.rows), max(MAX_PASS_BYTES, self._each))

    @property
    def _each(self) -> float:
        return 8.0 * COPIES * self.entries

    def states(self, target: Target) -> Array:
        """Return the most probable states (rows, units of the mode) of the rows of the plan."""
        out = np.full((len(self.rows), len(units_of(target.structure, self.mode))), np.nan)
        for part in blocks(np.arange(len(self.rows)), MAX_PASS_BYTES / self._each):
            out[part] = self._of(target.take(self.rows[part]))
        return out

    def _of(self, target: Target) -> Array:
        """Return the most probable states of rows that share a pass."""
        units = np.array(units_of(target.structure, self.mode))
        number = self.conditioned.free.number[units]
        states = np.asarray(target.states[:, units], dtype=np.float64)
        if self.tree is None:
            return states
        factors = summed_out(factors_of(self.conditioned, target), self.summed)
        # Factors are in the order of the plan, because elimination takes the same steps.
        values = [np.broadcast_to(x, (*x.shape[:-1], target.rows)).ravel() for _, x in factors]
        wide = np.ones(len(factors), dtype=np.uint8)
        found = self.tree.run(
            [np.concatenate(values)], lanes=target.rows, wide=wide, marginals=False, mode=True
        )
        place = {unit: i for i, unit in enumerate(self.kept)}
        for i, unit in enumerate(number.tolist()):
            if unit >= 0:
                states[:, i] = found["mode"][:, place[unit]]
        return states


def planned_modes(target: Target, modes: Sequence[Mode], limits: Limits) -> list[ModePlan]:
    """Return the plan of each mode and evidence pattern; PgmError for tables that are too large."""
    plans = [
        _planned(target, rows, mode, limits) for mode in modes for rows in evidence_patterns(target)
    ]
    for mode in modes:
        own = [plan.rows for plan in plans if plan.mode is mode]
        check_divided(own, target.rows, "modes of units")
    return plans


def found_modes(plans: Sequence[ModePlan], target: Target) -> Answer:
    """Return the modes of all plans: "modes" -> units -> numbers of states (rows, units)."""
    out = dict[Any, Array]()
    for plan in plans:
        count = len(units_of(target.structure, plan.mode))
        found = out.setdefault(plan.mode.units, np.full((target.rows, count), np.nan))
        found[plan.rows] = plan.states(target)
    return {"modes": out} if out else {}


def _planned(target: Target, rows: Array, mode: Mode, limits: Limits) -> ModePlan:
    """Return the plan of one mode and one evidence pattern."""
    conditioned = condition(one_for_all(target, rows), Form())
    states, scopes = conditioned.states, _scopes(conditioned)
    number = conditioned.free.number[np.array(units_of(target.structure, mode))]
    kept = np.unique(number[number >= 0])
    asked = np.isin(np.arange(len(states)), kept)
    if not len(kept):
        return ModePlan(mode, rows, conditioned, (), (), 1.0, None)
    order, left, entries = constrained_order(states, scopes, asked, limits.states)
    place = {int(unit): i for i, unit in enumerate(kept)}
    flat = np.array([place[unit] for scope in left for unit in scope], dtype=np.int32)
    start = np.cumsum([0, *map(len, left)])
    search = best_order(states[kept], start, flat, 0.0)
    if search.entries > limits.states:
        raise _too_large(mode, search.entries, limits.states)
    tree = JunctionTree(states[kept], start, flat, search.order)
    return ModePlan(
        mode, rows, conditioned, tuple(order), tuple(kept.tolist()), entries + search.entries, tree
    )


def _too_large(mode: Mode | str, entries: float, most: float) -> PgmError:
    return PgmError(
        f"{mode}: the units that are summed have to be eliminated before the others, which needs a "
        f"table of 2^{math.log2(entries):.4g} entries, the limit is 2^{math.log2(most):.4g}"
    )


def _scopes(conditioned: Conditioned) -> list[tuple[int, ...]]:
    """Return the scopes of the factors, and of a factor of each unit alone."""
    start, scope = conditioned.scopes.start, conditioned.scopes.scope
    own = [tuple(scope[a:b].tolist()) for a, b in zip(start[:-1], start[1:], strict=True)]
    return own + [(unit,) for unit in range(len(conditioned.states))]


def factors_of(conditioned: Conditioned, target: Target) -> list[Factor]:
    """Return the factors of some rows, in the order of `_scopes`."""
    states, out, scopes = conditioned.states, list[Factor](), _scopes(conditioned)
    tables, first = conditioned.tables(target), 0
    for term, values in zip(conditioned.terms, tables, strict=True):
        begin = 0
        for scope in scopes[first : first + len(term.scopes)]:
            shape = tuple(int(states[unit]) for unit in scope)
            size = math.prod(shape)
            out.append((scope, values[begin : begin + size].reshape(*shape, -1)))
            begin += size
        first += len(term.scopes)
    return out + [((unit,), np.zeros((int(k), 1))) for unit, k in enumerate(states)]


def constrained_order(
    states: Array, scopes: Sequence[tuple[int, ...]], kept: Array, most: float
) -> tuple[list[int], list[tuple[int, ...]], float]:
    """Return an order that eliminates all units but the kept ones, the smallest table first.

    Parameters
    ----------
    states : (units,) numbers of states.
    scopes : the scopes of the factors.
    kept : (units,) bool.
    most : the largest number of entries of a table; PgmError above it.

    Returns
    -------
    The order, the scopes that are left, and the number of entries of all tables.
    """
    near: list[set[int]] = [{unit} for unit in range(len(states))]
    for scope in scopes:
        for unit in scope:
            near[unit].update(scope)
    logs = np.log2(states.astype(np.float64))
    waiting = set(np.flatnonzero(~kept).tolist())
    cost = {unit: float(sum(logs[list(near[unit])])) for unit in waiting}
    order, left, entries = list[int](), list(scopes), 0.0
    while waiting:
        unit = min(waiting, key=lambda u: (cost[u], u))
        if cost[unit] > math.log2(most):
            raise _too_large("the mode of some units", 2.0 ** min(cost[unit], 1000.0), most)
        waiting.remove(unit)
        order.append(unit)
        entries += 2.0 ** cost[unit]
        joint = near[unit] - {unit}
        left = [scope for scope in left if unit not in scope] + [tuple(sorted(joint))]
        for other in joint:
            near[other] |= joint
            near[other].discard(unit)
        for other in joint & waiting:
            cost[other] = float(sum(logs[list(near[other])]))
    return order, left, entries


def summed_out(factors: Sequence[Factor], order: Sequence[int]) -> list[Factor]:
    """Return factors after units are summed out one after the other."""
    left = list(factors)
    for unit in order:
        mine = [factor for factor in left if unit in factor[0]]
        left = [factor for factor in left if unit not in factor[0]]
        joint = (unit, *sorted({u for scope, _ in mine for u in scope} - {unit}))
        total = sum(_aligned(factor, joint) for factor in mine)
        left.append((joint[1:], log_sum(np.asarray(total), axis=0)))
    return left


def _aligned(factor: Factor, joint: tuple[int, ...]) -> Array:
    """Return a factor with an axis for each unit of `joint`, and the axis of rows at the end."""
    scope, values = factor
    order = sorted(range(len(scope)), key=lambda axis: joint.index(scope[axis]))
    moved = values.transpose(*order, len(scope))
    shape = iter(moved.shape)
    mine = set(scope)
    return moved.reshape(*(next(shape) if unit in mine else 1 for unit in joint), -1)
