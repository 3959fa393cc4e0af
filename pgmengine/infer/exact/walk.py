"""Walk the states of a Problem's cover: log weights, and weighted probabilities (moments).

Two walkers give the same answers in the same order of states: GrayWalker is compiled and
multiplicative, for problems of finite units whose exponents stay in range; PlainWalker is
vectorised numpy in the log domain, for all others.

Moments of one row are a matrix (1 or 1 + D, columns): row 0 holds expectations, row 1 + d those
times indicator d. Columns are the finite blocks' probabilities (block, state, unit), then the
indicators, then the smooth blocks' statistics.
"""

from __future__ import annotations

from typing import Protocol

from pgmengine.base.types import Array
from pgmengine.infer.exact.gray import GrayWalker
from pgmengine.infer.exact.problem import Problem
from pgmengine.infer.exact.reference import PlainWalker

FEW_STATES = 64  # below this the numpy walk, vectorised over rows, wins, unless there are
FEW_ROWS = 4


class Walker(Protocol):
    """What the exact method needs from a walk."""

    def walk(self, moments: int) -> tuple[Array, Array | None]:
        """Log sums of the weights per piece (n, pieces), and so many rows of moments (n, moments,
        columns), or None.
        """

    def log_weights(self, rows: Array, piece: int) -> Array:
        """Log weights (rows, states) of some rows in the states of one piece, in order."""

    def best_states(self) -> Array:
        """Number of the state (n,) with the largest weight when units summed out take their most
        probable value.
        """


def make_walker(p: Problem) -> Walker:
    """The compiled walk where it is safe and worth it, else the numpy walk."""
    if p.smooth or (p.size < FEW_STATES and p.target.rows > FEW_ROWS):
        return PlainWalker(p)
    walker = GrayWalker(p)
    return walker if walker.safe else PlainWalker(p)
