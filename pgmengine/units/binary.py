"""Binary units, {0, 1}."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.numerics import expit
from pgmengine.base.types import Array
from pgmengine.units.unit import Unit

# The support and the base measure, made once because methods read them often.
ZERO_ONE, FLAT = np.array([0.0, 1.0]), np.zeros(2)
ZERO_ONE.flags.writeable = FLAT.flags.writeable = False


@dataclass(frozen=True)
class Binary(Unit):
    """Values 0 and 1 with A(eta) = log(1 + e^eta).

    Restricted Boltzmann machines and sigmoid belief nets have these units.

    >>> import pgmengine as pgm
    >>> float(pgm.Binary().mean(0.0))
    0.5
    """

    width: ClassVar[int] = 1
    support: ClassVar[Array] = ZERO_ONE
    log_base: ClassVar[Array] = FLAT
    one_hot: ClassVar[bool] = False
    curvature: ClassVar[None] = None

    def log_normalizer(self, eta: Array) -> Array:
        """Return log(1 + e^eta), in single precision for eta in single precision."""
        eta = np.asarray(eta)
        if eta.dtype == np.float32:
            # Ten times as fast as logaddexp.
            return np.asarray(np.maximum(eta, 0) + np.log1p(np.exp(-np.abs(eta))))
        return np.logaddexp(0.0, eta)

    def mean(self, eta: Array) -> Array:
        """Return 1 / (1 + e^-eta), in single precision for eta in single precision."""
        eta = np.asarray(eta)
        if eta.dtype == np.float32:
            # An overflow gives 1 / (1 + inf) = 0, which is the mean.
            with np.errstate(over="ignore"):
                return np.asarray(1 / (1 + np.exp(-eta)))
        return expit(np.asarray(eta, dtype=np.float64))

    def variance(self, eta: Array) -> Array:
        """Return p (1 - p), without loss of digits where p is near 1."""
        return self.mean(eta) * self.mean(-np.asarray(eta))

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw 1 with probability mean(eta), else 0."""
        return (rng.random(np.shape(eta)) < self.mean(eta)).astype(np.float64)

    def mode(self, eta: Array) -> Array:
        """Return 1 where eta > 0, else 0."""
        return (np.asarray(eta) > 0).astype(np.float64)

    def max_log_weight(self, eta: Array) -> Array:
        """Return max(0, eta)."""
        return np.maximum(0.0, eta)

    def contains(self, x: Array) -> Array:
        """Return whether x is 0 or 1."""
        x = np.asarray(x)
        return np.asarray((x == 0) | (x == 1))
