"""Categorical units: one of k states, with one-hot values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import whole
from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array
from pgmengine.units.unit import Unit, one_hot_rows


@dataclass(frozen=True)
class Categorical(Unit):
    """One-hot values of k states with A(eta) = log sum_k e^(eta_k); eta and x are (..., k).

    Use them for Potts models, and for labels.

    Parameters
    ----------
    k : number of states, at least 2.

    Raises
    ------
    PgmError
        If k is not an integer of at least 2.

    >>> import pgmengine as pgm
    >>> pgm.Categorical(2).mean([0.0, 0.0])
    array([0.5, 0.5])
    """

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("Categorical: k", self.k, least=2))

    @property
    def width(self) -> int:
        """The number k of states."""
        return self.k

    @property
    def support(self) -> Array:
        """The k one-hot rows, read only."""
        return one_hot_rows(self.k)

    @property
    def one_hot(self) -> bool:
        """Values are one-hot."""
        return True

    @property
    def support_bytes(self) -> int:
        """The memory of k rows of k numbers."""
        return 8 * self.k * self.k

    def log_normalizer(self, eta: Array) -> Array:
        """Return log sum_k e^(eta_k)."""
        return log_sum(eta)

    def mean(self, eta: Array) -> Array:
        """Return the probability of each state."""
        return softmax(np.asarray(eta, dtype=np.float64))

    def variance(self, eta: Array) -> Array:
        """Return p (1 - p) of each component."""
        p = self.mean(eta)
        each: Array = p * (1 - p)
        return each

    def state_of(self, x: Array) -> Array:
        """Return the index of the largest component."""
        state: Array = np.asarray(x).argmax(axis=-1)
        return state

    def contains(self, x: Array) -> Array:
        """Return whether one component is 1 and all others are 0."""
        x = np.asarray(x)
        # Products take a quarter of the time of sums over a short axis.
        each = np.ones(x.shape[-1])
        one: Array = (x == 1) @ each == 1
        return np.asarray(one & ((x == 0) @ each == len(each) - 1))
