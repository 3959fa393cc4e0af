"""Kernel: the contract of the transitions of one unit given all others, and its share of flips."""

from __future__ import annotations

from numbers import Real
from typing import Any, Protocol

from pgmengine.base.errors import PgmError
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


def share_of(kernel: Kernel) -> float:
    """Return the share of FlipState that a kernel defines; PgmError unless it is in [0, 1]."""
    share: Any = getattr(kernel, "flip_share", None)
    known = isinstance(share, Real) and not isinstance(share, bool)
    if not known or not 0.0 <= float(share) <= 1.0:
        raise PgmError(
            f"the kernel {kernel!r}: flip_share must be a number from 0 to 1, the share "
            f"of FlipState beside Gibbs, not {share!r}; leave it out, and the reference engine "
            "(PlainChains) runs the transition"
        )
    return float(share)
