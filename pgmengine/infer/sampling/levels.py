"""Chains that wander over a ladder of temperatures with Wang-Landau weights (system 3, algorithm
1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_instance, check_number
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.graph.target import Target


@dataclass(frozen=True)
class OneOverT:
    """log(1 + gamma) = min(initial, bins / t) at sweep t (Belardinelli and Pereyra 2007).

    The errors of the weights of a fixed model fall as those of averages do. It never falls below
    `floor`: weights that have to follow a model that learns need one, or they stand still.

    >>> import pgmengine as pgm
    >>> pgm.OneOverT(2.0).rate(2.0, 100, 10, None)
    (0.1, False)
    >>> pgm.OneOverT(2.0, floor=0.05).rate(0.1, 10_000, 10, None)
    (0.05, False)
    """

    # log(1 + 10), the paper's first gamma
    initial: float = 2.4
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_number(self, "initial", "floor")

    def rate(self, rate: float, t: int, bins: int, visits: Any) -> tuple[float, bool]:
        """The next increment of a log weight, and whether counting visits starts again."""
        return max(min(self.initial, bins / max(t, 1)), self.floor), False


@dataclass(frozen=True)
class FlatHistogram:
    """The increment shrinks by `factor` whenever all bins met have `flatness` of their share (Wang
    and Landau 2001).

    Below bins / t it follows bins / t, for a factor at a time would stop too early. It never falls
    below `floor`, which weights that follow a model that learns need.

    >>> import pgmengine as pgm
    >>> pgm.FlatHistogram().factor
    0.5
    """

    initial: float = 2.4
    factor: float = 0.5
    flatness: float = 0.8
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_number(self, "initial", "factor", "flatness", "floor")

    def rate(self, rate: float, t: int, bins: int, visits: Array) -> tuple[float, bool]:
        """The next increment of a log weight, and whether counting visits starts again."""
        least = max(bins / max(t, 1), self.floor)
        if rate <= least:
            return least, False
        met = visits > 0  # a bin that nobody has found yet must not hold the others up
        mean = visits.sum(axis=1, keepdims=True) / np.maximum(met.sum(axis=1, keepdims=True), 1)
        flat = bool(np.all((visits >= self.flatness * mean) | ~met)) and t >= 10 * bins
        return (max(rate * self.factor, least), True) if flat else (rate, False)


def check_gamma(settings: Any) -> None:
    """PgmError unless `gamma` is a schedule of increments."""
    check_instance(settings.gamma, f"{type(settings).__name__}: gamma")
    if not callable(getattr(settings.gamma, "rate", None)):
        raise PgmError(
            f"{type(settings).__name__}: gamma must be a schedule such as OneOverT(initial=2.4), where 2.4 is "
            f"log(1 + 10), not {settings.gamma!r}"
        )


class Weights:
    """Log weights (rows, bins) of bins, which grow where the chains of a row are while they adapt."""

    def __init__(self, rows: int, bins: int, schedule: Any) -> None:
        self.log_g, self.schedule, self.t = np.zeros((rows, bins)), schedule, 0
        self.rate = float(schedule.initial)
        self.visits = np.zeros((rows, bins))

    def adapt(self, bins: Array) -> None:
        """Raise the weights of the bins (rows, chains) that are occupied."""
        self.t += 1
        rows, count = self.log_g.shape
        place = (bins + count * np.arange(rows)[:, None]).ravel()
        visits = np.bincount(place, minlength=rows * count).reshape(rows, count)
        self.visits += visits
        self.log_g += visits * (self.rate / bins.shape[1])
        self.log_g -= self.log_g[:, :1]
        self.rate, again = self.schedule.rate(self.rate, self.t, self.log_g.shape[1], self.visits)
        if again:
            self.visits[:] = 0.0

    def state(self) -> dict[str, Any]:
        """Everything that changes, under names that no layer has."""
        return {"/log_g": self.log_g, "/t": self.t, "/rate": self.rate, "/visits": self.visits}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.log_g[...], self.visits[...] = state["/log_g"], state["/visits"]
        self.t, self.rate = int(state["/t"]), float(state["/rate"])


class Levels:
    """Chains (rows, chains) of a target with a level each: level l is at betas[l], betas ascend to
    1.
    """

    def __init__(
        self,
        target: Target,
        betas: Array,
        chains: int,
        kernel: Any,
        schedule: Any,
        rng: np.random.Generator,
    ) -> None:
        many = target.take(np.repeat(np.arange(target.rows), chains))
        self.betas, self.rng = np.asarray(betas, dtype=np.float64), rng
        self.level = rng.integers(len(betas), size=(target.rows, chains))
        self.chains: Chains = make_chains(
            many.at(self.betas[self.level.ravel()]), kernel, many.draw_at_0(rng), rng
        )
        self.weights = Weights(target.rows, len(betas), schedule)

    def step(self, adapt: bool) -> None:
        """One sweep, one proposal of a neighbouring level, and while adapting one update of the
        weights.
        """
        power = self.chains.sweep_path()[1].reshape(self.level.shape)
        self.level = hop(self.level, power, self.betas, self.weights.log_g, self.rng)
        self.chains.beta[:] = self.betas[self.level.ravel()]
        if adapt:
            self.weights.adapt(self.level)

    def at_1(self) -> Array:
        """Mask (rows, chains) of the chains at beta = 1."""
        return self.level == len(self.betas) - 1


def hop(level: Array, power: Array, betas: Array, log_g: Array, rng: np.random.Generator) -> Array:
    """New levels (rows, chains): a neighbour l' is proposed, and taken with the probability of
    algorithm 1.

    min(1, p_l'(x) q(l | l') g_l / (p_l(x) q(l' | l) g_l')); log p_beta(x) = path + beta * power.
    """
    top = len(betas) - 1
    if top == 0:
        return level
    step = np.where(rng.random(level.shape) < 0.5, 1, -1)
    proposed = np.where(level == 0, 1, np.where(level == top, top - 1, level + step))
    rows = np.arange(len(level))[:, None]
    with np.errstate(invalid="ignore"):
        gain = np.nan_to_num((betas[proposed] - betas[level]) * power, nan=0.0)
    log_ratio = (
        gain + log_q(proposed, top) - log_q(level, top) + log_g[rows, level] - log_g[rows, proposed]
    )
    return np.where(np.log(rng.random(level.shape)) < log_ratio, proposed, level)


def log_q(level: Array, top: int) -> Array:
    """Log probability of proposing one given neighbour of a level: 1/2, and 1 at the ends."""
    return np.where((level == 0) | (level == top), 0.0, -np.log(2.0))
