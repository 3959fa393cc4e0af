"""Proven lower bounds against an estimate of log Z.

Chains that are cooled from independent units do not reach a phase that appears late and suddenly,
and no statistic of these chains can show it. Mean field starts from points that are spread over the
space, and its bound is proven: where the bound lies above the interval of an estimate, the estimate
is wrong. Where all free units have finitely many values, the log density of any single state is a
lower bound as well.

The check takes no longer than the method that it checks is planned to take, or `MIN_CHECK_SECONDS`.
Where all rounds from all starts would take longer, there are fewer of them: any Q has a proven
bound, so that the check is then weaker, but not wrong. The plan says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import row_beyond
from pgmengine.infer.variational.mean_field import by_tables
from pgmengine.infer.variational.modes import CLIMB, Modes, modes, start_count
from pgmengine.infer.variational.round_prices import rounds_seconds

# Rounds of mean field from one start: enough to usually reach a fixed point, and the fewest that
# still come near one.
USUAL_ROUNDS, FEWEST_ROUNDS = 25, 10

# Seconds that a check may take even if the method takes less.
MIN_CHECK_SECONDS = 0.1

# Relative error of a bound by rounding.
BOUND_ROUNDING = 1e-6


@dataclass(frozen=True)
class Check:
    """The search for modes that checks an estimate, which is part of the method's plan.

    Attributes
    ----------
    starts, rounds : the largest numbers of starts, and of rounds from each.
    seconds, work : its planned time and work.
    how : a note for the plan if there is not enough time for all starts and rounds.
    """

    starts: int = 0
    rounds: int = 0
    seconds: float = 0.0
    work: float = 0.0
    how: str = ""

    def modes(self, target: Target) -> Modes | None:
        """Return the modes of a target, the same at every call; None if nothing is searched."""
        if not self.starts:
            return None
        return modes(target, np.random.default_rng(0), self.starts, self.rounds)


def check_within(target: Target, seconds: float) -> Check:
    """Return the check of an estimate whose own planned time is `seconds`."""
    plan = CLIMB.plan(target, ("bound",))
    if not plan.accepted:
        return Check()
    starts, limit = start_count(target), max(seconds, MIN_CHECK_SECONDS)
    most = CLIMB.rounds_within(target, limit)
    if most >= starts * USUAL_ROUNDS:
        return _check(target, starts, CLIMB.updates, starts * USUAL_ROUNDS)
    few = int(np.clip(most // FEWEST_ROUNDS, 1, starts))
    rounds = int(np.clip(most // few, 1, CLIMB.updates))
    how = f", checked by {rounds} rounds of mean field from each of {few} starts"
    return _check(target, few, rounds, few * min(rounds, USUAL_ROUNDS), how)


def _check(target: Target, starts: int, rounds: int, expected: float, how: str = "") -> Check:
    """Return a check of this expected total number of rounds."""
    plan = CLIMB.plan(target, ("bound",))
    seconds = rounds_seconds(target, expected, by_tables(target))
    return Check(starts, rounds, seconds, plan.work * starts, how)


def below_a_bound(target: Target, interval: Array, found: Modes | None) -> tuple[str, ...]:
    """Return a warning if a mean-field bound of log Z lies above the interval of an estimate.

    Parameters
    ----------
    target : the question, whose log Z was estimated.
    interval : (rows, 2), lower and upper end, in nats.
    found : its modes, or None if there are none.
    """
    if found is None:
        return ()
    bound = found.bound[:, 0]
    above = bound - interval[:, 1] - BOUND_ROUNDING * (1.0 + np.abs(bound))
    if (row := row_beyond(above)) is None:
        return ()
    return (
        f"row {target.row_numbers[row]}: mean field proves that log Z is at least "
        f"{bound[row]:.6g}, above the interval of the estimate, which ends at "
        f"{interval[row, 1]:.6g}",
    )


def below_a_state(target: Target, highest: Array, interval: Array) -> tuple[str, ...]:
    """Return a warning if a single state has more probability than an estimate of log Z allows.

    Parameters
    ----------
    target : the question, whose log Z was estimated.
    highest : (rows,), the largest log density of the states that chains have met.
    interval : (rows, 2), lower and upper end, in nats.
    """
    layers = target.structure.layers.items()
    if any(layer.unit.support is None and target.free[n].any() for n, layer in layers):
        return ()
    above = highest - interval[:, 1] - BOUND_ROUNDING * (1.0 + np.abs(highest))
    if (row := row_beyond(above)) is None:
        return ()
    return (
        f"row {target.row_numbers[row]}: a state that chains have met has a log density of "
        f"{highest[row]:.6g}, above the interval of log Z, which ends at {interval[row, 1]:.6g}",
    )
