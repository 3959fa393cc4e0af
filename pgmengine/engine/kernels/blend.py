"""A blend of the flip-the-state and Gibbs kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_number
from pgmengine.base.types import Array
from pgmengine.engine.kernels.flip_state import FlipState


@dataclass(frozen=True)
class Blend:
    """Move each unit by FlipState with probability alpha, else by Gibbs.

    >>> import pgmengine as pgm
    >>> pgm.Blend(0.5).transition([0.2, 0.8], 1)
    array([0.225, 0.775])
    """

    alpha: float

    def __post_init__(self) -> None:
        check_number(self, "alpha", most=1.0)

    @property
    def flip_share(self) -> float:
        """The share of FlipState, from which the compiled sweeps recognise this kernel."""
        return self.alpha

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the probabilities (..., K) of the next state.

        prob (..., K) are conditional probabilities, current (...,) the current states.
        """
        prob = np.asarray(prob, dtype=np.float64)
        return self.alpha * FlipState().transition(prob, current) + (1 - self.alpha) * prob
