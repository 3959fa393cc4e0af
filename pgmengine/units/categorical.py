"""Categorical units, one of k states, one-hot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum, softmax
from pgmengine.units.base import Array, Unit


@dataclass(frozen=True)
class Categorical(Unit):
    """One-hot rows of k, A(eta) = log sum_k e^(eta_k); eta and x have shape (..., k).

    >>> import pgmengine as pgm
    >>> pgm.Categorical(2).mean([0.0, 0.0])
    array([0.5, 0.5])
    """

    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, (int, np.integer)) or self.k < 2:
            raise PgmError(f"Categorical: k must be an integer of at least 2, not {self.k!r}")
        object.__setattr__(self, "k", int(self.k))

    @property
    def width(self) -> int:
        """The number k of states."""
        return int(self.k)

    @property
    def support(self) -> Array:
        """The k one-hot rows."""
        return np.eye(self.k)

    @property
    def support_bytes(self) -> int:
        """8 bytes for each of k numbers of k rows."""
        return 8 * self.k * self.k

    def log_normalizer(self, eta: Array) -> Array:
        """Log-sum-exp over the last axis."""
        return log_sum(eta)

    def mean(self, eta: Array) -> Array:
        """Softmax over the last axis."""
        return softmax(np.asarray(eta, dtype=np.float64))

    def variance(self, eta: Array) -> Array:
        """P (1 - p) of each component, (..., k)."""
        p = self.mean(eta)
        return p * (1 - p)

    def state_of(self, x: Array) -> Array:
        """The component that is largest."""
        return np.asarray(x).argmax(axis=-1)

    def contains(self, x: Array) -> Array:
        """Exactly one 1, all else 0."""
        x = np.asarray(x)
        return (((x == 0) | (x == 1)).all(axis=-1)) & (x.sum(axis=-1) == 1)
