"""The Gibbs kernel: draw each unit from its conditional distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.types import Array


@dataclass(frozen=True)
class Gibbs:
    """x_i ~ p(x_i | all else).

    >>> import pgmengine as pgm
    >>> pgm.Gibbs().transition([0.3, 0.7], 0)
    array([0.3, 0.7])
    """

    # All that the compiled sweeps know of a kernel is its share of FlipState beside Gibbs, and they
    # read it from the class of the kernel alone: a subclass has to say its own.
    flip_share: ClassVar[float] = 0.0

    def transition(self, prob: Array, current: Array) -> Array:
        """Probabilities (..., K) of the next state, from conditional probabilities (..., K) and
        current states (...,).
        """
        return np.asarray(prob, dtype=np.float64)
