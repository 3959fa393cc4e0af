"""Ladders of inverse temperatures from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.engine.chains import make_chains
from pgmengine.graph.target import Target
from pgmengine.graph.validate import as_floats


@dataclass(frozen=True)
class Linear:
    """Evenly spaced.

    >>> import pgmengine as pgm
    >>> pgm.Linear(3).betas()
    array([0. , 0.5, 1. ])
    """

    count: int

    def __post_init__(self) -> None:
        check_whole(self, "count")

    def betas(self, target: Target | None = None, kernel: Any = None, rng: Any = None) -> Array:
        """The ladder (count,)."""
        return np.linspace(0.0, 1.0, max(self.count, 2))


@dataclass(frozen=True)
class ThreePiece:
    """In proportion 500 temperatures up to 0.5, 4,000 up to 0.9 and 10,000 to 1 (Salakhutdinov and
    Murray 2008).

    >>> import pgmengine as pgm
    >>> len(pgm.ThreePiece(14_500).betas())
    14500
    """

    count: int

    def __post_init__(self) -> None:
        check_whole(self, "count")

    def betas(self, target: Target | None = None, kernel: Any = None, rng: Any = None) -> Array:
        """The ladder (count,)."""
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
    """Steps of equal standard deviation of the log weights, from a pilot run of `chains` chains.

    The variance of annealing is least when the density of temperatures is in proportion to the
    standard deviation of d log p_beta / d beta (Gelman and Meng 1998).

    >>> import pgmengine as pgm
    >>> pgm.Adaptive(100).count
    100
    """

    count: int
    chains: int = 32
    pilot: int = (
        64  # points at which the standard deviation is taken, four sweeps between two of them
    )

    def __post_init__(self) -> None:
        check_whole(self, "count", "chains")
        check_whole(self, "pilot", least=2)

    def betas(self, target: Target, kernel: Any, rng: np.random.Generator) -> Array:
        """The ladder (count,), one for all rows of the target."""
        rows = target.take(
            np.repeat(np.arange(target.rows), max(2, -(-self.chains // target.rows)))
        ).at(0.0)
        chains = make_chains(rows, kernel, rows.draw_at_0(rng), rng)
        grid = np.linspace(0.0, 1.0, self.pilot) ** 2  # most change is near 0
        spread = np.empty(self.pilot)
        for i, beta in enumerate(grid):
            chains.anneal(np.linspace(grid[max(i - 1, 0)], beta, 5))
            spread[i] = _spread(chains.path()[1].reshape(target.rows, -1))
        spread += 1e-3 * spread.max() + 1e-12
        length = np.concatenate(([0.0], np.cumsum(np.diff(grid) * (spread[1:] + spread[:-1]) / 2)))
        return np.interp(np.linspace(0.0, length[-1], max(self.count, 2)), length, grid)


def _spread(power: Array) -> float:
    """The standard deviation among the possible states of a row (rows, chains), on average over
    rows with some.
    """
    possible = np.isfinite(power)
    count = possible.sum(axis=1)
    centre = np.where(possible, power, 0.0).sum(axis=1) / np.maximum(count, 1)
    apart = np.where(possible, power, centre[:, None]) - centre[:, None]
    variance = np.square(apart).sum(axis=1) / np.maximum(count, 1)
    return float(np.sqrt(variance[count > 1].mean())) if (count > 1).any() else 0.0


def ladder(betas: Any, target: Target, kernel: Any, rng: np.random.Generator) -> Array:
    """A ladder, ascending, from a schedule, a number of even steps, or the user's own numbers,
    which must reach 1.
    """
    schedule = Linear(int(betas)) if isinstance(betas, (int, np.integer)) else betas
    own = not hasattr(schedule, "betas")
    found = (
        np.sort(as_floats(schedule, "betas").ravel())
        if own
        else schedule.betas(target, kernel, rng)
    )
    if not len(found) or found[-1] != 1.0 or not found[0] >= 0:
        raise PgmError(
            f"betas must be numbers in [0, 1] that reach 1, or a schedule, not {betas!r}"
        )
    return found


def fixed(betas: Any) -> Any:
    """Numbers as a tuple, so that settings can be compared; anything else as it is."""
    return tuple(np.asarray(betas, dtype=np.float64).tolist()) if np.ndim(betas) == 1 else betas


def count_of(betas: Any) -> int:
    """The number of temperatures of what `ladder` takes."""
    if isinstance(betas, (int, np.integer)):
        return int(betas)
    return int(betas.count) if hasattr(betas, "betas") else np.size(betas)
