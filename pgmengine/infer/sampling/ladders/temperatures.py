"""Ladders: ascending inverse temperatures, from independent units at 0 to the model at 1.

A tempered method takes a schedule, a number of evenly spaced rungs, or the rungs themselves;
`ladder` turns each of these into rungs and checks them. Linear and ThreePiece place the rungs
without looking at the model; Adaptive measures it first. The tests compare the variance of Adaptive
with that of linear ladders of the same length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from pgmengine.base.checks import check_instance, check_whole, whole
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.engine.chains import make_chains
from pgmengine.engine.kernels import Kernel
from pgmengine.evidence.target import Target
from pgmengine.model.containers import as_floats

# Sweeps of a pilot run from one inverse temperature to the next.
SWEEPS_OF_PILOT = 4


@runtime_checkable
class Schedule(Protocol):
    """A rule that places the rungs of a ladder.

    Attributes
    ----------
    count : number of rungs.
    """

    @property
    def count(self) -> int:
        """Number of rungs."""

    def betas(self, target: Target, kernel: Kernel, rng: np.random.Generator) -> Array:
        """Return the ladder (count,): ascending inverse temperatures that end at 1."""


# A schedule, a number of evenly spaced rungs, or the rungs themselves, which must reach 1.
Betas: TypeAlias = "Schedule | int | Sequence[float] | Array"


@dataclass(frozen=True)
class Linear:
    """Evenly spaced rungs from 0 to 1.

    Use it for short ladders and where the cost of a pilot run matters.

    Parameters
    ----------
    count : number of rungs.

    >>> import pgmengine as pgm
    >>> pgm.Linear(3).betas()
    array([0. , 0.5, 1. ])
    """

    count: int

    def __post_init__(self) -> None:
        check_whole(self, "count")

    def betas(
        self,
        target: Target | None = None,
        kernel: Kernel | None = None,
        rng: np.random.Generator | None = None,
    ) -> Array:
        """Return the ladder (count,); the arguments are not needed."""
        return np.linspace(0.0, 1.0, max(self.count, 2))


@dataclass(frozen=True)
class ThreePiece:
    """Three evenly spaced pieces that become denser towards 1.

    The rungs divide in the proportion 500 up to 0.5, 4,000 up to 0.9 and 10,000 up to 1. Use it to
    repeat AIS with the settings of the paper.

    Parameters
    ----------
    count : number of rungs.

    References
    ----------
    Salakhutdinov and Murray 2008, "On the quantitative analysis of deep belief networks".

    >>> import pgmengine as pgm
    >>> len(pgm.ThreePiece(14_500).betas())
    14500
    """

    count: int

    def __post_init__(self) -> None:
        check_whole(self, "count")

    def betas(
        self,
        target: Target | None = None,
        kernel: Kernel | None = None,
        rng: np.random.Generator | None = None,
    ) -> Array:
        """Return the ladder (count,); the arguments are not needed."""
        low, middle = round(self.count * 5 / 145), round(self.count * 40 / 145)
        return np.concatenate(
            (
                np.linspace(0.0, 0.5, low, endpoint=False),
                np.linspace(0.5, 0.9, middle, endpoint=False),
                np.linspace(0.9, 1.0, max(self.count - low - middle, 2)),
            )
        )


@dataclass(frozen=True)
class Adaptive:
    """Steps of equal standard deviation of the log importance weights, by a pilot run.

    The variance of annealing is least when the density of the rungs is in proportion to the
    standard deviation of S = d log p_beta / d beta. Use it for AIS on models whose phases are not
    known; it is the default of AIS.

    Parameters
    ----------
    count : number of rungs.
    chains : number of chains of the pilot run, over all rows; each row has at least two.
    pilot : number of inverse temperatures at which the standard deviation is measured, with four
        sweeps from one to the next.

    References
    ----------
    Gelman and Meng 1998, "Simulating normalizing constants: from importance sampling to bridge
    sampling to path sampling".

    >>> import pgmengine as pgm
    >>> pgm.Adaptive(100).count
    100
    """

    count: int
    chains: int = 32
    pilot: int = 64

    def __post_init__(self) -> None:
        check_whole(self, "count", "chains")
        check_whole(self, "pilot", least=2)

    def betas(self, target: Target, kernel: Kernel, rng: np.random.Generator) -> Array:
        """Return the ladder (count,), one for all rows of the target."""
        rows = target.take(
            np.repeat(np.arange(target.rows), max(2, -(-self.chains // target.rows)))
        ).at(0.0)
        chains = make_chains(rows, kernel, rows.draw_at_0(rng), rng)
        # The grid is denser near 0, where the distribution changes most.
        grid = np.linspace(0.0, 1.0, self.pilot) ** 2
        spread = np.empty(self.pilot)
        for i, beta in enumerate(grid):
            chains.anneal(np.linspace(grid[max(i - 1, 0)], beta, SWEEPS_OF_PILOT + 1))
            spread[i] = _spread(chains.path()[1].reshape(target.rows, -1))
        spread += 1e-3 * spread.max() + 1e-12
        length = np.concatenate(([0.0], np.cumsum(np.diff(grid) * (spread[1:] + spread[:-1]) / 2)))
        return np.interp(np.linspace(0.0, length[-1], max(self.count, 2)), length, grid)


def _spread(power: Array) -> float:
    """Return the standard deviation over chains of S (rows, chains), averaged over the rows."""
    possible = np.isfinite(power)
    count = possible.sum(axis=1)
    centre = np.where(possible, power, 0.0).sum(axis=1) / np.maximum(count, 1)
    apart = np.where(possible, power, centre[:, None]) - centre[:, None]
    variance = np.square(apart).sum(axis=1) / np.maximum(count, 1)
    return float(np.sqrt(variance[count > 1].mean())) if (count > 1).any() else 0.0


def ladder(betas: Betas, target: Target, kernel: Kernel, rng: np.random.Generator) -> Array:
    """Return the rungs in ascending order; raise PgmError unless they lie in [0, 1] and reach 1."""
    schedule = Linear(int(betas)) if isinstance(betas, (int, np.integer)) else betas
    if isinstance(schedule, Schedule):
        return _checked(schedule.betas(target, kernel, rng), betas, "betas")
    return _rungs(schedule, "betas")


def ends_elsewhere(target: Target) -> str:
    """Return the refusal of a target at another beta than 1, the end of all ladders, or ""."""
    if target.untempered:
        return ""
    return "its temperatures end at beta = 1, and the target is at another beta; take Exact or MCMC"


def check_betas(settings: object, name: str = "betas") -> None:
    """Raise PgmError unless this attribute is a schedule, a number of rungs, or the rungs."""
    betas, what = getattr(settings, name), f"{type(settings).__name__}: {name}"
    check_instance(betas, what)
    if isinstance(betas, (int, np.integer)):
        whole(what, betas)
    elif not isinstance(betas, Schedule):
        _rungs(betas, what)


def _rungs(betas: object, what: str) -> Array:
    """Return rungs in ascending order, checked."""
    return _checked(np.sort(as_floats(betas, what).ravel()), betas, what)


def _checked(found: Array, betas: object, what: str) -> Array:
    """Return ascending rungs; raise PgmError unless they lie in [0, 1] and reach 1."""
    if not len(found) or found[-1] != 1.0 or not found[0] >= 0:
        raise PgmError(
            f"{what} must be numbers in [0, 1] that reach 1, or a schedule, not {told(betas)}"
        )
    return found


def fixed(betas: Betas) -> Betas:
    """Return numbers as a tuple, so that settings can be compared; other settings as they are."""
    if isinstance(betas, Schedule) or np.ndim(betas) != 1:
        return betas
    return tuple(np.asarray(betas, dtype=np.float64).tolist())


def count_of(betas: Betas) -> int:
    """Return the number of rungs that `ladder` returns."""
    if isinstance(betas, (int, np.integer)):
        return int(betas)
    return int(betas.count) if isinstance(betas, Schedule) else np.size(betas)
