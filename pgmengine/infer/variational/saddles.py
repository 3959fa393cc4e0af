"""Saddle points of mean field: how they are found, and how rounds leave them.

Updates start from units at their reference. In a model with a symmetry (spins without biases,
states that can be exchanged, equal hidden units) this Q is symmetric as well. Every update keeps
the symmetry, and the rounds end at a saddle point of the bound, whose value is n log 2 for n spins,
whatever their couplings are. A small random step distinguishes a saddle from a maximum: further
rounds return to a maximum, in fewer rounds than led to it, and move away from a saddle.

Once the symmetry is broken, there are several maxima, and a random step may lead to any of them.
Rounds at rising inverse temperatures lead to a good one: slightly below the temperature at which
the symmetric Q becomes unstable, only the first unstable direction grows (deterministic annealing,
Rose 1998). A few such runs are made, and in small models also some runs from large random steps.
Each row keeps its best bound, which is never lower than the bound at the saddle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.model.layer import Layer
from pgmengine.model.weights import count

# Sizes of steps in means of units. STEP_OF_START is that of a step from the reference, which is
# made where there are too few rounds for a step from a fixed point.
STEP_FROM_FIXED_POINT = 1e-3
STEP_OF_ANNEALING = 1e-2
STEP_OF_START = 0.1

# The inverse temperatures of an annealing run, as shares of beta. At each of them there are at most
# MAX_ROUNDS_PER_SHARE rounds.
ANNEALING_SHARES = tuple(2.0**-k for k in range(10, 0, -1))
MAX_ROUNDS_PER_SHARE = 8

# Number of rounds after a step, or at the end of an annealing run, that show how far the bound
# rises.
TRIAL_ROUNDS = 20

# Number of runs that leave a saddle: at most MAX_RUNS, or fewer if they would visit more than
# MAX_VISITED_ENTRIES units and table entries, but at least two. The first are annealing runs. The
# others begin with a large random step, because annealing runs often end at the same maximum.
MAX_RUNS = 9
ANNEALING_RUNS = 3
LARGE_STEP = 2.0
MAX_ROUNDS_AFTER_LARGE_STEP = 60
MAX_VISITED_ENTRIES = 2e7

# Smaller relative gains of the bound do not show a saddle, but the last rounds to a fixed point.
NEGLIGIBLE_GAIN = 1e-6

# Nats; larger than any bound, so that its sum with -inf is -inf.
LARGEST_BOUND = 1e300


class Q(Protocol):
    """A product distribution with its bound: Factors or Belief."""

    target: Target

    @property
    def state(self) -> States:
        """The snapshot from which a new Q continues."""

    def settle(self, updates: int, tolerance: float) -> tuple[int, float]:
        """Make rounds; return their number and the last change."""

    def bound(self) -> Array:
        """Return the lower bound of log Z, (rows,)."""

    def nudged(self, size: float, seed: int) -> States:
        """Return a snapshot at a distance `size` from Q, in a random direction."""

    def beside(self, size: float, seed: int) -> Self:
        """Return Q of this snapshot."""


AnyQ = TypeVar("AnyQ", bound=Q)
Start = Callable[[Target, States | None], AnyQ]


def leave_saddles(q: AnyQ, start: Start[AnyQ], updates: int, tolerance: float) -> tuple[AnyQ, int]:
    """Return a Q that is a maximum in every row, and the number of rounds that led there.

    Rows of q that are maxima do not change.

    Parameters
    ----------
    q : a fixed point.
    start : makes the first Q of a target, or the Q of a snapshot.
    updates, tolerance : the limits of the rounds from one fixed point to the next (MeanField).
    """
    bound = q.bound()
    other, above, rounds = _after_a_step(q, bound, updates, tolerance)
    rows = above.nonzero()[0]
    if not len(rows):
        return q, 0
    best = _better((bound, q.state), other, np.arange(q.target.rows))
    del other
    target = q.target.take(rows)
    for seed in range(1, _runs(q.target) + 1):
        if seed <= ANNEALING_RUNS:
            other, more = _annealed(target, start, updates, tolerance, seed)
        else:
            far = {name: value[rows] for name, value in q.nudged(LARGE_STEP, seed).items()}
            other = start(target, far)
            more = other.settle(min(updates, MAX_ROUNDS_AFTER_LARGE_STEP), tolerance)[0]
        best, rounds = _better(best, other, rows), rounds + more
        # Its arrays are free before the next one has some.
        del other
    q = start(q.target, best[1])
    return q, rounds + q.settle(updates, tolerance)[0]


def _after_a_step(q: AnyQ, bound: Array, updates: int, tolerance: float) -> tuple[AnyQ, Array, int]:
    """Return Q after a small step and further rounds, where it is above `bound`, and the rounds.

    The rounds end at fixed points, or once all rows have a higher bound.
    """
    other, rounds, change = q.beside(STEP_FROM_FIXED_POINT, 0), 0, np.inf
    above = np.zeros(len(bound), dtype=bool)
    while rounds < updates and change > tolerance and not above.all():
        more, change = other.settle(min(TRIAL_ROUNDS, updates - rounds), tolerance)
        rounds += more
        above = _above(other.bound(), bound)
    return other, above, rounds


def _annealed(
    target: Target, start: Start[AnyQ], updates: int, tolerance: float, seed: int
) -> tuple[AnyQ, int]:
    """Return Q after rounds at rising inverse temperatures, and the number of these rounds."""
    state, rounds, each = (
        None,
        0,
        int(np.clip(updates // len(ANNEALING_SHARES), 1, MAX_ROUNDS_PER_SHARE)),
    )
    for i, share in enumerate(ANNEALING_SHARES):
        q = start(target.at(share * target.beta), state)
        rounds += q.settle(each, STEP_OF_ANNEALING / 10)[0]
        state = q.nudged(STEP_OF_ANNEALING, seed + MAX_RUNS * i)
        del q
    q = start(target, state)
    return q, rounds + q.settle(min(TRIAL_ROUNDS, updates), tolerance)[0]


def _runs(target: Target) -> int:
    """Return the number of runs to leave a saddle, which does not depend on the number of rows."""
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
    """Return where a bound is above another bound by more than NEGLIGIBLE_GAIN."""
    # A bound of -inf has no size.
    size = np.minimum(np.abs(other), LARGEST_BOUND)
    return np.asarray(one > other + NEGLIGIBLE_GAIN * (1.0 + size))


def _better(best: tuple[Array, States], q: Q, rows: Array) -> tuple[Array, States]:
    """Return the better of the best bounds so far and those of Q, with their snapshots."""
    bound, state = best[0].copy(), dict(best[1])
    found = q.bound()
    better = _above(found, bound[rows])
    bound[rows[better]] = found[better]
    for name, value in q.state.items():
        state[name] = state[name].copy()
        state[name][rows[better]] = value[better]
    return bound, state


def nudged(layer: Layer, eta: Array, size: float, rng: np.random.Generator) -> Array:
    """Return natural parameters that move each mean by about `size`, or less if it is near an end.

    Parameters
    ----------
    layer : the layer of the units.
    eta : (rows, size) or (rows, size, width), natural parameters.
    size : the distance in values of the unit; in standard deviations if the variance is above 1.
    rng : random numbers; all rows get the same ones.
    """
    noise = layer.shaped(rng.normal(0.0, size, (1, layer.width)))
    wide = np.sqrt(np.maximum(layer.unit.variance(eta), 1.0))
    return eta + noise / wide
