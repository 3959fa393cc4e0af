"""Fixed points of mean field that are not maxima, and ways off them.

Updates start from units at their reference. In a model with a symmetry (spins without biases,
states that may be exchanged, hidden units that are alike) this Q is symmetric as well, every update
keeps it so, and the rounds end at a saddle point of the bound: n log 2 for spins of any coupling.
A saddle is told from a maximum by a small random step: rounds from there come back to a maximum, in
fewer rounds than led to it, and leave a saddle.

Where a row has left a saddle, the broken symmetry has several maxima, and a random step leads to
any of them. Rounds at rising inverse temperatures lead to a good one: slightly below the
temperature at which the symmetric Q becomes unstable, the first unstable direction alone grows
(deterministic annealing, Rose 1998). A few such runs are made, in small models also some from large
random steps, and each row keeps its best bound, which is never lower than at the saddle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.model.layer import Layer
from pgmengine.model.weights import count

# Distances in means of units: of the step from a fixed point, of the steps of annealing runs, and
# of a start from the reference where rounds are too few for a step from a fixed point.
STEP_FROM_FIXED_POINT = 1e-3
STEP_OF_ANNEALING = 1e-2
STEP_OF_START = 0.1

# Shares of beta of an annealing run, and rounds at most at each of them.
ANNEALING_SHARES = tuple(2.0**-k for k in range(10, 0, -1))
MAX_ROUNDS_PER_SHARE = 8

# Rounds after a step, or at the end of an annealing run, that show how far the bound rises.
TRIAL_ROUNDS = 20

# Runs off a saddle: at least two, and no more than visit so many units and read so many entries.
# The first ones are annealing runs. The others go from a large random step, since annealing runs
# often end at one maximum.
MAX_RUNS = 9
ANNEALING_RUNS = 3
LARGE_STEP = 2.0
MAX_ROUNDS_AFTER_LARGE_STEP = 60
MAX_VISITED_ENTRIES = 2e7

# Smaller relative gains of the bound are the last steps to a fixed point, not the way off a saddle.
NEGLIGIBLE_GAIN = 1e-6


class Q(Protocol):
    """A product distribution with its bound (Factors, Belief)."""

    target: Target

    @property
    def state(self) -> States:
        """The snapshot from which a new Q goes on."""

    def settle(self, updates: int, tolerance: float) -> tuple[int, float]:
        """Make rounds; return their number and the last change."""

    def bound(self) -> Array:
        """Return the lower bound of log Z, (rows,)."""

    def nudged(self, size: float, seed: int) -> States:
        """Return a snapshot at a small distance."""


AnyQ = TypeVar("AnyQ", bound=Q)
Start = Callable[[Target, States | None], AnyQ]


def leave_saddles(q: AnyQ, start: Start[AnyQ], updates: int, tolerance: float) -> tuple[AnyQ, int]:
    """Return a Q that is a maximum in every row, and the rounds that led there.

    Rows of q that are maxima stay as they are.

    Parameters
    ----------
    q : a fixed point.
    start : makes the first Q of a target, or the Q of a snapshot.
    updates, tolerance : of the rounds from one fixed point to the next.
    """
    best = q.bound(), q.state
    other, rounds = _after_a_step(q, best[0], start, updates, tolerance)
    rows = np.flatnonzero(_above(other.bound(), best[0]))
    if not len(rows):
        return q, 0
    best, target = _better(best, other, np.arange(q.target.rows)), q.target.take(rows)
    for seed in range(1, _runs(q.target) + 1):
        if seed <= ANNEALING_RUNS:
            other, more = _annealed(target, start, updates, tolerance, seed)
        else:
            far = {name: value[rows] for name, value in q.nudged(LARGE_STEP, seed).items()}
            other = start(target, far)
            more = other.settle(min(updates, MAX_ROUNDS_AFTER_LARGE_STEP), tolerance)[0]
        best, rounds = _better(best, other, rows), rounds + more
    q = start(q.target, best[1])
    return q, rounds + q.settle(updates, tolerance)[0]


def _after_a_step(
    q: AnyQ, bound: Array, start: Start[AnyQ], updates: int, tolerance: float
) -> tuple[AnyQ, int]:
    """Return the Q of rounds after a small step, and their number.

    The rounds end at fixed points, or once all rows have a higher bound.
    """
    other, rounds, change = start(q.target, q.nudged(STEP_FROM_FIXED_POINT, 0)), 0, np.inf
    while rounds < updates and change > tolerance:
        more, change = other.settle(min(TRIAL_ROUNDS, updates - rounds), tolerance)
        rounds += more
        if _above(other.bound(), bound).all():
            break
    return other, rounds


def _annealed(
    target: Target, start: Start[AnyQ], updates: int, tolerance: float, seed: int
) -> tuple[AnyQ, int]:
    """Return the Q near the end of rounds at rising inverse temperatures, and their number."""
    state, rounds, each = (
        None,
        0,
        int(np.clip(updates // len(ANNEALING_SHARES), 1, MAX_ROUNDS_PER_SHARE)),
    )
    for i, share in enumerate(ANNEALING_SHARES):
        q = start(target.at(share * target.beta), state)
        rounds += q.settle(each, STEP_OF_ANNEALING / 10)[0]
        state = q.nudged(STEP_OF_ANNEALING, seed + MAX_RUNS * i)
    q = start(target, state)
    return q, rounds + q.settle(min(TRIAL_ROUNDS, updates), tolerance)[0]


def _runs(target: Target) -> int:
    """Return the number of runs off a saddle, which does not depend on the number of rows."""
    s = target.structure
    units = sum(layer.width for layer in s.layers.values())
    entries = sum(count(target.model.weight(c)) for c in s.couplings)
    each = units + entries + float(s.table_index.axis_entries.sum())
    return int(
        np.clip(
            MAX_VISITED_ENTRIES / (each * MAX_ROUNDS_PER_SHARE * len(ANNEALING_SHARES)), 2, MAX_RUNS
        )
    )


def _above(one: Array, other: Array) -> Array:
    """Return where a bound is above another one by more than rounding."""
    least = np.where(np.isfinite(other), NEGLIGIBLE_GAIN * (1.0 + np.abs(other)), 0.0)
    return np.asarray(one > other + least)


def _better(best: tuple[Array, States], q: Q, rows: Array) -> tuple[Array, States]:
    """Return the best bounds and their snapshots, of which Q may have better ones in some rows."""
    bound, state = best[0].copy(), dict(best[1])
    found = q.bound()
    better = _above(found, bound[rows])
    bound[rows[better]] = found[better]
    for name, value in q.state.items():
        state[name] = state[name].copy()
        state[name][rows[better]] = value[better]
    return bound, state


def nudged(layer: Layer, eta: Array, size: float, rng: np.random.Generator) -> Array:
    """Return natural parameters that move each mean by about `size`, or by less if it is certain.

    Parameters
    ----------
    layer : the layer of the units.
    eta : (rows, size) or (rows, size, width), natural parameters.
    size : the distance in values, of units of a variance above 1 in standard deviations.
    rng : random numbers, which are the same for all rows.
    """
    noise = layer.shaped(rng.normal(0.0, size, (1, layer.width)))
    wide = np.sqrt(np.maximum(layer.unit.variance(eta), 1.0))
    return eta + noise / wide
