"""The Gibbs kernel: draw each unit from its conditional distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine.base.types import Array


@dataclass(frozen=True)
class Gibbs:
    """Draw each unit from its conditional distribution: x_i ~ p(x_i | all others).

    >>> import pgmengine as pgm
    >>> pgm.Gibbs().transition([0.3, 0.7], 0)
    array([0.3, 0.7])
    """

    # Compiled sweeps read this share of FlipState from the class of the kernel itself, so that a
    # subclass has to define its own.
    flip_share: ClassVar[float] = 0.0

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the conditional probabilities (..., K), whatever the current states (...,)."""
        return np.asarray(prob, dtype=np.float64)
