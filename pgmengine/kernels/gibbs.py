"""The Gibbs kernel: draw each unit from its conditional distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.units import Unit
from pgmengine.units.base import choose

Array = np.ndarray


@dataclass(frozen=True)
class Gibbs:
    """x_i ~ p(x_i | all else).

    >>> import pgmengine as pgm
    >>> pgm.Gibbs()
    Gibbs()
    """

    def move(self, unit: Unit, eta: Array, current: Array, rng: np.random.Generator) -> Array:
        """New values of units that are independent given all else, from their natural parameters."""
        return unit.sample(eta, rng)

    def move_state(self, log_weights: Array, current: Array, rng: np.random.Generator) -> Array:
        """New state indices (rows,) from log weights (rows, K); a unit with no possible state moves anywhere."""
        impossible = np.isneginf(log_weights).all(axis=-1, keepdims=True)
        return choose(np.where(impossible, 0.0, log_weights), rng)
