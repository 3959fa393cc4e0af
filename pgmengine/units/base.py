"""Unit: an exponential family in one natural parameter, p(x | eta) = h(x) exp(eta x - A(eta))."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np

from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array


class Draw(IntEnum):
    """How the compiled sweeps draw a unit: from a table of its states, or by a formula of their
    own.
    """

    TABLE = 0
    NORMAL = 1
    INTERVAL = 2
    COMPLEMENT = 3  # two values, off with probability e^-z: from the table, but for the link


@dataclass(frozen=True)
class Unit:
    """Base of all unit types. A finite type needs only `support` and `log_base`; the rest follows
    from them.

    A scalar unit takes eta and x of shape (...,); Categorical(k) takes (..., k). A child's natural
    parameter is link(zeta) of its directed input zeta, the identity unless a type says otherwise.
    """

    bounded: ClassVar[bool] = True
    observed_only: ClassVar[bool] = False
    child_only: ClassVar[bool] = False
    nonnegative: ClassVar[bool] = False  # its incoming weights and bias must be >= 0
    canonical: ClassVar[bool] = True  # link is the identity

    @property
    def width(self) -> int:
        """Numbers that one unit counts in a weight matrix."""
        return 1

    @property
    def support(self) -> Array | None:
        """Values (K,), ascending; (K, k) one-hot rows for Categorical; None when there are
        infinitely many.
        """
        return None

    @property
    def support_bytes(self) -> int:
        """Memory of the support of types whose settings say how many values there are, else 0."""
        return 0

    @property
    def log_base(self) -> Array | None:
        """Log h of each value of the support, (K,)."""
        return None if self.support is None else np.zeros(len(self.support))

    @property
    def draw(self) -> Draw | None:
        """How the compiled sweeps draw it; None leaves it to `sample` and the plain engine."""
        if self.support is None or not self.canonical:
            return None
        return Draw.TABLE if self.width == 1 or self.one_hot else None

    @property
    def one_hot(self) -> bool:
        """Whether the components of a value say which state it is: its mean is then the probability
        of each.
        """
        return (
            self.width > 1
            and self.support is not None
            and np.array_equal(self.support, np.eye(self.width))
        )

    @property
    def curvature(self) -> float | None:
        """C when A(eta) = c eta^2 / 2 exactly, else None."""
        return None

    def log_weights(self, eta: Array) -> Array:
        """Eta x + log h(x) of every value of a finite unit, (..., K)."""
        assert self.support is not None and self.log_base is not None
        eta = np.asarray(eta, dtype=np.float64)
        dot = eta[..., None] * self.support if self.width == 1 else eta @ self.support.T
        return dot + self.log_base

    def log_normalizer(self, eta: Array) -> Array:
        """A(eta) = log sum_x h(x) exp(eta x)."""
        return log_sum(self.log_weights(eta))

    def prob(self, eta: Array) -> Array:
        """p(x | eta) of every value of a finite unit, (..., K)."""
        return softmax(self.log_weights(eta))

    def mean(self, eta: Array) -> Array:
        """A'(eta)."""
        assert self.support is not None
        return self.prob(eta) @ self.support

    def variance(self, eta: Array) -> Array:
        """A''(eta)."""
        assert self.support is not None
        p = self.prob(eta)
        mean = p @ self.support
        if self.width > 1:  # of each component
            return (p[..., None] * (self.support - mean[..., None, :]) ** 2).sum(axis=-2)
        return (p * (self.support - mean[..., None]) ** 2).sum(axis=-1)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw x ~ p(x | eta), one for each eta."""
        assert self.support is not None
        return self.support[choose(self.prob(eta), rng)]

    def mode(self, eta: Array) -> Array:
        """The most probable value; ties go to the first."""
        assert self.support is not None
        return self.support[self.log_weights(eta).argmax(axis=-1)]

    def max_log_weight(self, eta: Array) -> Array:
        """Largest eta x + log h(x)."""
        return self.log_weights(eta).max(axis=-1)

    def log_h(self, x: Array) -> Array:
        """Log h(x) of values in the support, shape (...,)."""
        assert self.support is not None and self.log_base is not None
        x = np.asarray(x, dtype=np.float64)
        if not np.any(self.log_base - self.log_base[0]):
            return np.full(x.shape if self.width == 1 else x.shape[:-1], self.log_base[0])
        return np.asarray(self.log_base)[self.state_of(x)]

    def state_of(self, x: Array) -> Array:
        """Numbers (...,) of the states that values x (..., [w]) are, or are nearest to."""
        assert self.support is not None
        x, points = np.asarray(x), self.support
        if self.width > 1:
            return np.abs(x[..., None, :] - points).max(axis=-1).argmin(axis=-1)
        if len(points) == 2:
            return (x > (points[0] + points[1]) / 2).astype(np.int64)
        return np.searchsorted((points[1:] + points[:-1]) / 2, x)

    def contains(self, x: Array) -> Array:
        """Which x are values of the unit, shape (...,)."""
        assert self.support is not None
        x = np.asarray(x)
        if self.width > 1:
            return (x[..., None, :] == self.support).all(axis=-1).any(axis=-1)
        return (x[..., None] == self.support).any(axis=-1)

    def link(self, zeta: Array) -> Array:
        """The natural parameter of a child with directed input zeta."""
        return np.asarray(zeta, dtype=np.float64)

    def log_partition(self, zeta: Array) -> Array:
        """A(link(zeta))."""
        return self.log_normalizer(zeta)

    def log_sums(self, least: float) -> tuple[Array, Array] | None:
        """Values y (sets, K, width) and their log base (K,): what makes log p(x | zeta) not linear
        in zeta.

        A(zeta) = log sum_k h_k e^(y_k zeta), one set. Where `curvature` gives A the values do not
        matter; None when it is no such sum. `least` is the least input that a child can have.
        """
        if self.curvature is not None:
            return np.zeros((1, 1, 1)), np.zeros(1)
        if self.support is None or self.log_base is None:
            return None
        return self.support.reshape(1, len(self.support), self.width), self.log_base

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """Log p(x | zeta) = x link(zeta) + log h(x) - A(link(zeta)) of a child, shape (...,)."""
        dot = np.asarray(x) * zeta
        return (
            (dot if self.width == 1 else dot.sum(axis=-1))
            + self.log_h(x)
            - self.log_normalizer(zeta)
        )

    def score(self, x: Array, zeta: Array) -> Array:
        """D log p(x | zeta) / d zeta of a child, the shape of x."""
        return np.asarray(x) - self.mean(zeta)


def choose(prob: Array, rng: np.random.Generator) -> Array:
    """Indices drawn in proportion to weights (..., K), by inverse CDF."""
    total = np.cumsum(prob, axis=-1)
    u = rng.random(total.shape[:-1]) * total[..., -1]
    return (u[..., None] >= total[..., :-1]).sum(axis=-1)
