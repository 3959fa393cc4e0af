"""A blend of the flip-the-state and Gibbs kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.engine.kernels.flip_state import FlipState


@dataclass(frozen=True)
class Blend:
    """Alpha T + (1 - alpha) G for each unit: FlipState with probability alpha, else Gibbs (system
    2, section 3).

    >>> import pgmengine as pgm
    >>> pgm.Blend(0.5).transition([0.2, 0.8], 1)
    array([0.225, 0.775])
    """

    alpha: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise PgmError(f"Blend: alpha must lie in [0, 1], not {self.alpha!r}")

    @property
    def flip_share(self) -> float:
        """Return the share of FlipState, by which the compiled sweeps know this kernel."""
        return self.alpha

    def transition(self, prob: Array, current: Array) -> Array:
        """Probabilities (..., K) of the next state, from conditional probabilities (..., K) and
        current states (...,).
        """
        prob = np.asarray(prob, dtype=np.float64)
        return self.alpha * FlipState().transition(prob, current) + (1 - self.alpha) * prob
