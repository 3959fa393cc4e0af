"""Accumulator: the contract of gradient sums, to which inference methods add expectations."""

from __future__ import annotations

from typing import Protocol

from pgmengine.base.types import Array, Params, States


class Accumulator(Protocol):
    """A weighted sum of d log_density / d parameters, to which a phase adds its share."""

    def points(self, x: States, weights: Array) -> None:
        """Add the sum over rows of weight * d log_density at x."""

    def arrays(self, gradient: Params, factor: float, mass: float) -> None:
        """Add factor * gradient, which stands for the total weight `mass`."""
