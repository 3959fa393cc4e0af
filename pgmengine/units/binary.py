"""Binary units, {0, 1}."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.numerics import expit
from pgmengine.units.base import Array, Unit


@dataclass(frozen=True)
class Binary(Unit):
    """Values {0, 1}, A(eta) = log(1 + e^eta).

    >>> import pgmengine as pgm
    >>> float(pgm.Binary().mean(0.0))
    0.5
    """

    @property
    def support(self) -> Array:
        """{0, 1}."""
        return np.array([0.0, 1.0])

    def log_normalizer(self, eta: Array) -> Array:
        """log(1 + e^eta)."""
        return np.logaddexp(0.0, eta)

    def mean(self, eta: Array) -> Array:
        """1 / (1 + e^-eta)."""
        eta = np.asarray(eta)
        if eta.dtype == np.float32:
            with np.errstate(over="ignore"):  # 1 / (1 + inf) is the mean
                return np.asarray(1 / (1 + np.exp(-eta)))
        return expit(np.asarray(eta, dtype=np.float64))

    def variance(self, eta: Array) -> Array:
        """P (1 - p)."""
        return self.mean(eta) * self.mean(-np.asarray(eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """1 with probability mean(eta)."""
        return (rng.random(np.shape(eta)) < self.mean(eta)).astype(np.float64)

    def mode(self, eta: Array) -> Array:
        """1 where eta > 0."""
        return (np.asarray(eta) > 0).astype(np.float64)

    def max_log_weight(self, eta: Array) -> Array:
        """max(0, eta)."""
        return np.maximum(0.0, eta)

    def contains(self, x: Array) -> Array:
        """0 or 1."""
        return (np.asarray(x) == 0) | (np.asarray(x) == 1)
