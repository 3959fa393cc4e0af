"""Chains that move over a ladder, with log weights of the rungs by the Wang-Landau rule.

A chain has a state x and a rung l. Their joint distribution is p_l(x) / g_l, with p_l the
unnormalised density at beta_l: with g_l = Z_l all rungs are visited equally often (Salakhutdinov
2010, algorithm 1). One step of a chain is

    x ~ kernel that leaves p_l invariant
    l' = a neighbour of l, proposed with q(l' | l) = 1/2, or 1 from an end of the ladder
    l = l' with probability min(1, p_l'(x) q(l | l') g_l / (p_l(x) q(l' | l) g_l'))
    while adapting: log g_l += log(1 + gamma) / chains, for the rung of each chain

The chains of a row share the weights. Along the path log p_beta(x) = path(x) + beta * power(x), so
that the ratio of densities is (beta_l' - beta_l) * power(x). Adaptive steps do not leave the joint
distribution invariant; steps with frozen weights do, which the tests check by chi-square from exact
starts. The weights themselves are compared with differences of the exact log Z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pgmengine.base.checks import check_instance, check_number
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.engine.kernels import Kernel
from pgmengine.evidence.target import Target


class GammaSchedule(Protocol):
    """A schedule of log(1 + gamma), the increment of the log weight of a bin or rung.

    Attributes
    ----------
    initial : the first increment.
    """

    @property
    def initial(self) -> float:
        """The first increment."""

    def rate(self, rate: float, t: int, bins: int, visits: Array) -> tuple[float, bool]:
        """Return the increment after sweep t, and whether the counts of visits start again.

        `rate` is the present increment, `visits` (rows, bins) the visits since the last start.
        """


@dataclass(frozen=True)
class OneOverT:
    """log(1 + gamma) = min(initial, bins / t) at sweep t, and never less than `floor`.

    Use it for a model whose parameters do not change: the errors of the weights then fall like the
    error of an average. Weights that follow a model while it learns need a floor, because without
    one they soon cease to change.

    Parameters
    ----------
    initial : the first increment of a log weight; 2.4 is log(1 + 10), for the first gamma of
        Salakhutdinov (2010).
    floor : the smallest increment.

    References
    ----------
    Belardinelli and Pereyra 2007, "Fast algorithm to calculate density of states".

    >>> import pgmengine as pgm
    >>> pgm.OneOverT(2.0).rate(2.0, 100, 10, None)
    (0.1, False)
    >>> pgm.OneOverT(2.0, floor=0.05).rate(0.1, 10_000, 10, None)
    (0.05, False)
    """

    initial: float = 2.4
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_number(self, "initial", "floor")

    def rate(self, rate: float, t: int, bins: int, visits: Array | None) -> tuple[float, bool]:
        """Return the increment after sweep t, and False: visits are not counted."""
        return max(min(self.initial, bins / max(t, 1)), self.floor), False


@dataclass(frozen=True)
class FlatHistogram:
    """The increment shrinks by `factor` whenever the histogram of visits is flat.

    The histogram is flat when every bin that has been visited has at least `flatness` of the mean
    number of visits. Once the increment has fallen to bins / t it remains bins / t, because with
    further factors it would shrink too fast. Use it for ladders whose weights differ widely: chains
    have to cross them before small increments make sense.

    Parameters
    ----------
    initial : the first increment of a log weight; 2.4 is log(1 + 10).
    factor : ratio of an increment to the one before.
    flatness : share of the mean number of visits.
    floor : the smallest increment; weights that follow a model while it learns need one.

    References
    ----------
    Wang and Landau 2001, "Efficient, multiple-range random walk algorithm to calculate the density
    of states".

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
        """Return the increment after sweep t, and whether the counts of visits start again."""
        least = max(bins / max(t, 1), self.floor)
        if rate <= least:
            return least, False
        # A bin that no chain has visited yet must not prevent a flat histogram of the others.
        met = visits > 0
        mean = visits.sum(axis=1, keepdims=True) / np.maximum(met.sum(axis=1, keepdims=True), 1)
        flat = bool(np.all((visits >= self.flatness * mean) | ~met)) and t >= 10 * bins
        return (max(rate * self.factor, least), True) if flat else (rate, False)


def check_gamma(settings: Any) -> None:
    """Raise PgmError unless the `gamma` of these settings is a schedule of increments."""
    check_instance(settings.gamma, f"{type(settings).__name__}: gamma")
    if not callable(getattr(settings.gamma, "rate", None)):
        raise PgmError(
            f"{type(settings).__name__}: gamma must be a schedule such as OneOverT(initial=2.4), "
            f"where 2.4 is log(1 + 10), not {told(settings.gamma)}"
        )


class Weights:
    """Log weights log g (rows, bins), which grow at the bins of the chains of a row.

    Only differences of log g matter, so log g of the first bin is kept at 0.
    """

    def __init__(self, rows: int, bins: int, schedule: GammaSchedule) -> None:
        self.log_g, self.schedule, self.t = np.zeros((rows, bins)), schedule, 0
        self.rate = float(schedule.initial)
        self.visits = np.zeros((rows, bins))

    def adapt(self, bins: Array) -> None:
        """Raise the log weights of the bins (rows, chains) of the chains."""
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
        """Return a snapshot, under names that no layer has."""
        return {"/log_g": self.log_g, "/t": self.t, "/rate": self.rate, "/visits": self.visits}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self.log_g[...], self.visits[...] = state["/log_g"], state["/visits"]
        self.t, self.rate = int(state["/t"]), float(state["/rate"])


class Levels:
    """Chains (rows, chains) of a target, each on a rung of a ladder.

    Attributes
    ----------
    betas : (rungs,), ascending to 1.
    rung : (rows, chains), the rung of each chain; rung l is at betas[l].
    chains : the states of all chains, the chains of a row together.
    weights : log weights of the rungs.
    """

    def __init__(
        self,
        target: Target,
        betas: Array,
        chains: int,
        kernel: Kernel,
        schedule: GammaSchedule,
        rng: np.random.Generator,
    ) -> None:
        many = target.take(np.repeat(np.arange(target.rows), chains))
        self.betas, self.rng = np.asarray(betas, dtype=np.float64), rng
        self.rung = rng.integers(len(betas), size=(target.rows, chains))
        self.chains: Chains = make_chains(
            many.at(self.betas[self.rung.ravel()]), kernel, many.draw_at_0(rng), rng
        )
        self.weights = Weights(target.rows, len(betas), schedule)

    def step(self, adapt: bool) -> None:
        """Sweep all chains, propose a rung to each, and adapt the weights if asked to."""
        power = self.chains.sweep_path()[1].reshape(self.rung.shape)
        self.rung = hop(self.rung, power, self.betas, self.weights.log_g, self.rng)
        self.chains.beta[:] = self.betas[self.rung.ravel()]
        if adapt:
            self.weights.adapt(self.rung)

    def at_1(self) -> Array:
        """Return a mask (rows, chains) of the chains at beta = 1."""
        return np.asarray(self.rung == len(self.betas) - 1)


def hop(rung: Array, power: Array, betas: Array, log_g: Array, rng: np.random.Generator) -> Array:
    """Return the rungs (rows, chains) after one Metropolis-Hastings proposal of a neighbour.

    Parameters
    ----------
    rung : (rows, chains).
    power : (rows, chains), d log p_beta(x) / d beta.
    betas : (rungs,).
    log_g : (rows, rungs).
    """
    top = len(betas) - 1
    if top == 0:
        return rung
    step = np.where(rng.random(rung.shape) < 0.5, 1, -1)
    proposed = np.where(rung == 0, 1, np.where(rung == top, top - 1, rung + step))
    rows = np.arange(len(rung))[:, None]
    # The power of an impossible state may be NaN. The ratio of the densities then counts as 1.
    with np.errstate(invalid="ignore"):
        gain = np.nan_to_num((betas[proposed] - betas[rung]) * power, nan=0.0)
    log_ratio = (
        gain + log_q(proposed, top) - log_q(rung, top) + log_g[rows, rung] - log_g[rows, proposed]
    )
    return np.where(np.log(rng.random(rung.shape)) < log_ratio, proposed, rung)


def log_q(rung: Array, top: int) -> Array:
    """Return the log probability of proposing one given neighbour of a rung."""
    return np.where((rung == 0) | (rung == top), 0.0, -np.log(2.0))
