"""Spin units, {-1, +1}."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.numerics import expit
from pgmengine.base.types import Array
from pgmengine.units.unit import Unit


@dataclass(frozen=True)
class Spin(Unit):
    """Values -1 and +1 with A(eta) = log(2 cosh eta).

    Ising models have these units.

    >>> import pgmengine as pgm
    >>> float(pgm.Spin().mean(0.0))
    0.0
    """

    @property
    def support(self) -> Array:
        """The values -1 and +1."""
        return np.array([-1.0, 1.0])

    def log_normalizer(self, eta: Array) -> Array:
        """Return log(2 cosh eta)."""
        return np.logaddexp(-np.asarray(eta, dtype=np.float64), eta)

    def mean(self, eta: Array) -> Array:
        """Return tanh(eta)."""
        return np.tanh(eta)

    def variance(self, eta: Array) -> Array:
        """Return 1 / cosh(eta)^2, computed as 4 p (1 - p), which does not overflow."""
        twice = 2 * np.asarray(eta, dtype=np.float64)
        return 4 * expit(twice) * expit(-twice)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw +1 with probability 1 / (1 + e^(-2 eta)), else -1."""
        up = expit(2 * np.asarray(eta, dtype=np.float64))
        return np.where(rng.random(np.shape(eta)) < up, 1.0, -1.0)

    def max_log_weight(self, eta: Array) -> Array:
        """Return |eta|."""
        return np.abs(eta)
