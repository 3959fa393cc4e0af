"""The flip-the-state kernel: leave the current state as often as detailed balance allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

Array = np.ndarray
TIE = 1e-5  # log-odds


@dataclass(frozen=True)
class FlipState:
    """A unit with two values flips with probability min(1, p(other) / p(current)) (system 2, eq. 2).

    At a tie it flips with probability 1/2, for two units that always flip never meet. With K > 2 values it makes the
    Metropolised Gibbs move (Liu 1996): from x to y != x with probability p(y) min(1 / (1 - p(x)), 1 / (1 - p(y))),
    which is the same for K = 2; when all values are equally probable it draws from the conditional. Units with infinitely
    many values (s = inf, Gaussian) draw from the conditional too: there is no other state to flip to.

    A tie is a difference of log weights below 1e-5; there the conditional is drawn, which leaves p invariant as well.

    >>> import pgmengine as pgm
    >>> pgm.FlipState().transition([0.2, 0.8], 1)
    array([0.25, 0.75])
    """

    flip_share: ClassVar[float] = 1.0

    def transition(self, prob: Array, current: Array) -> Array:
        """Probabilities (..., K) of the next state, from conditional probabilities (..., K) and current states (...,)."""
        prob = np.asarray(prob, dtype=np.float64)
        here = np.arange(prob.shape[-1]) == np.asarray(current)[..., None]
        others = prob @ (1 - np.eye(prob.shape[-1]))
        leaving = np.where(here, others, 0.0).sum(axis=-1, keepdims=True)
        move = np.where(here, 0.0, prob / np.where(here, 1.0, np.maximum(leaving, others)))
        move = np.where(here, np.maximum(1 - move.sum(axis=-1, keepdims=True), 0.0), move)
        tie = prob.max(axis=-1, keepdims=True) < np.exp(TIE) * prob.min(axis=-1, keepdims=True)
        return np.where(tie, prob, move)
