"""Walks over the states of a problem's cover, which sum weights and weighted probabilities.

Two walkers give the same answers in the same order of states. GrayWalker is compiled and
multiplicative. It is used for problems of finite units whose exponents stay in range. PlainWalker
works in the log domain with numpy. It is used for all other problems. Tests compare GrayWalker with
it.

The moments of one row of evidence are a matrix (1 or 1 + D, columns). Its row 0 holds expectations,
and its row 1 + d the expectations of the same quantities times indicator d. Columns are the finite
blocks' probabilities (block, state, unit), then the indicators, then the smooth blocks' statistics.
"""

from __future__ import annotations

from typing import Protocol

from pgmengine.base.types import Array
from pgmengine.infer.exact.enumeration.compiled_enumerator import GrayWalker
from pgmengine.infer.exact.enumeration.log_linear import Problem
from pgmengine.infer.exact.enumeration.numpy_enumerator import PlainWalker


class Walker(Protocol):
    """A walk over the states of a problem, as exact answers use it."""

    def walk(self, moments: int) -> tuple[Array, Array | None]:
        """Return the log sums of the weights of each piece (n, pieces), and the moments.

        Weights are without the constant of the problem, which is the same in all states. There are
        `moments` rows of them, (n, moments, columns); None for 0.
        """
        ...

    def log_weights(self, rows: Array, piece: int) -> Array:
        """Return the log weights (rows, states) of some rows in the states of one piece."""
        ...

    def best_states(self) -> Array:
        """Return the number (n,) of the state of the cover in the most probable state."""
        ...


def make_walker(p: Problem) -> Walker:
    """Return the compiled walk where it is safe, else the numpy walk."""
    if p.smooth:
        return PlainWalker(p)
    walker = GrayWalker(p)
    return walker if walker.safe else PlainWalker(p)
