"""Spin units, {-1, +1}."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.numerics import expit
from pgmengine.units.base import Array, Unit


@dataclass(frozen=True)
class Spin(Unit):
    """Values {-1, +1}, A(eta) = log(2 cosh eta).

    >>> import pgmengine as pgm
    >>> float(pgm.Spin().mean(0.0))
    0.0
    """

    @property
    def support(self) -> Array:
        """{-1, +1}."""
        return np.array([-1.0, 1.0])

    def log_normalizer(self, eta: Array) -> Array:
        """log(2 cosh eta)."""
        return np.logaddexp(-np.asarray(eta, dtype=np.float64), eta)

    def mean(self, eta: Array) -> Array:
        """tanh(eta)."""
        return np.tanh(eta)

    def variance(self, eta: Array) -> Array:
        """1 / cosh(eta)^2, as 4 p (1 - p) so that nothing overflows."""
        twice = 2 * np.asarray(eta, dtype=np.float64)
        return 4 * expit(twice) * expit(-twice)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """+1 with probability 1 / (1 + e^(-2 eta))."""
        return np.where(
            rng.random(np.shape(eta)) < expit(2 * np.asarray(eta, dtype=np.float64)), 1.0, -1.0
        )

    def max_log_weight(self, eta: Array) -> Array:
        """|eta|."""
        return np.abs(eta)
