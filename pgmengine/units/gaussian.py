"""Gaussian units, the real line with base N(0, sigma^2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.limits import LARGEST, in_range
from pgmengine.units.base import Array, Draw, Unit


@dataclass(frozen=True)
class Gaussian(Unit):
    """Real values with base measure N(0, sigma^2), A(eta) = sigma^2 eta^2 / 2: mean sigma^2 eta,
    variance sigma^2.

    >>> import pgmengine as pgm
    >>> float(pgm.Gaussian(2.0).mean(0.5))
    2.0
    """

    sigma: float = 1.0
    bounded = False

    def __post_init__(self) -> None:
        most = math.sqrt(LARGEST)
        if isinstance(self.sigma, bool) or not (
            isinstance(self.sigma, Real) and 1 / most <= self.sigma <= most
        ):
            raise PgmError(
                f"Gaussian: sigma must be a number from {1 / most:g} to {most:g}, not {self.sigma!r}"
            )
        object.__setattr__(self, "sigma", float(self.sigma))

    @property
    def curvature(self) -> float:
        """sigma^2."""
        return self.sigma**2

    @property
    def draw(self) -> Draw:
        """By formula."""
        return Draw.NORMAL

    def log_normalizer(self, eta: Array) -> Array:
        """sigma^2 eta^2 / 2."""
        return self.curvature / 2 * np.square(eta)

    def mean(self, eta: Array) -> Array:
        """sigma^2 eta."""
        return self.curvature * np.asarray(eta, dtype=np.float64)

    def variance(self, eta: Array) -> Array:
        """sigma^2."""
        return np.full(np.shape(eta), self.curvature)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """N(sigma^2 eta, sigma^2)."""
        return self.mean(eta) + self.sigma * rng.standard_normal(np.shape(eta))

    def mode(self, eta: Array) -> Array:
        """The mean."""
        return self.mean(eta)

    def max_log_weight(self, eta: Array) -> Array:
        """The largest value of eta x + log h(x), at the mean."""
        return self.log_normalizer(eta) - math.log(self.sigma * math.sqrt(2 * math.pi))

    def log_h(self, x: Array) -> Array:
        """The log density of N(0, sigma^2)."""
        return -np.square(x) / (2 * self.curvature) - math.log(self.sigma * math.sqrt(2 * math.pi))

    def contains(self, x: Array) -> Array:
        """Any finite number that is not beyond LARGEST."""
        return in_range(x)
