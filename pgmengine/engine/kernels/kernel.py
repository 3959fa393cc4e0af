"""Kernel: the contract of the transitions of one unit given all others."""

from __future__ import annotations

from typing import Protocol

from pgmengine.base.types import Array


class Kernel(Protocol):
    """A Markov transition of one unit given all others.

    A class that blends FlipState and Gibbs may define `flip_share`, the share of FlipState from 0
    to 1, and is then run by compiled sweeps. The `transition` of any other class is called.
    """

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the probabilities (..., K) of the next state.

        prob (..., K) are the conditional probabilities of the states given all other units, current
        (...,) the current states.
        """
