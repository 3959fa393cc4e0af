"""Gaussian units: the real line with base measure N(0, sigma^2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.checks import LARGEST, in_range, real
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.units.unit import Draw, Unit


@dataclass(frozen=True)
class Gaussian(Unit):
    """Real values with base measure N(0, sigma^2) and A(eta) = sigma^2 eta^2 / 2.

    The mean is sigma^2 eta, and the variance is sigma^2 for every eta. Use them for standardised
    real data. Gaussian layers are coupled to layers of bounded units only.

    Parameters
    ----------
    sigma : standard deviation, from 1e-15 to 1e15, in the unit of the data.

    Raises
    ------
    PgmError
        If sigma is not such a number.

    >>> import pgmengine as pgm
    >>> float(pgm.Gaussian(2.0).mean(0.5))
    2.0
    """

    sigma: float = 1.0
    bounded = False
    refits = True

    def __post_init__(self) -> None:
        most = math.sqrt(LARGEST)
        if not 1 / most <= real(self.sigma) <= most:
            raise PgmError(
                f"Gaussian: sigma must be a number from {1 / most:g} to {most:g}, "
                f"not {told(self.sigma)}"
            )
        object.__setattr__(self, "sigma", float(self.sigma))

    @property
    def curvature(self) -> float:
        """The variance sigma^2."""
        return self.sigma**2

    @property
    def draw(self) -> Draw:
        """A normal draw."""
        return Draw.NORMAL

    def log_normalizer(self, eta: Array) -> Array:
        """Return sigma^2 eta^2 / 2."""
        return np.asarray(self.curvature / 2 * np.square(eta))

    def mean(self, eta: Array) -> Array:
        """Return sigma^2 eta."""
        return self.curvature * np.asarray(eta, dtype=np.float64)

    def variance(self, eta: Array) -> Array:
        """Return sigma^2."""
        return np.full(np.shape(eta), self.curvature)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw from N(sigma^2 eta, sigma^2)."""
        return self.mean(eta) + self.sigma * rng.standard_normal(np.shape(eta))

    def mode(self, eta: Array) -> Array:
        """Return the mean."""
        return self.mean(eta)

    def max_log_weight(self, eta: Array) -> Array:
        """Return eta x + log h(x) at the mean, where it is largest."""
        return self.log_normalizer(eta) - self._log_scale

    def log_h(self, x: Array) -> Array:
        """Return the log density of N(0, sigma^2)."""
        return np.asarray(-np.square(x) / (2 * self.curvature) - self._log_scale)

    def log_h_in(self, lib: ArrayLibrary, x: Any) -> Any:
        """Return the log density of N(0, sigma^2)."""
        return -(x**2) / (2 * self.curvature) - self._log_scale

    def contains(self, x: Array) -> Array:
        """Return whether x is finite and at most LARGEST in size, the limit of chains."""
        return in_range(x)

    def deviations(self, x: Array, zeta: Array, q: Array) -> Array:
        """Return the sums of q and of q (x - mean)."""
        far = x[..., None, :] - self.mean(zeta)[..., None]
        total = (q * far).sum(axis=-1)
        return np.stack([np.broadcast_to(q.sum(axis=-1), total.shape), total], axis=-1)

    def refitted(self, zeta: Array, sums: Array, prior: tuple[Array, Array], fixed: Array) -> Array:
        """Return the inputs at the mean of the values; rows without values stay."""
        count = sums[..., :1]
        step = sums[..., 1:] / np.where(count > 0, count, 1.0) / self.curvature
        return np.where(fixed, zeta, zeta + step)

    @property
    def _log_scale(self) -> float:
        """The logarithm of the normalizer of the base measure."""
        return math.log(self.sigma * math.sqrt(2 * math.pi))
