"""The choice of an enumerator: sums over the states of a cover, compiled or in numpy.

Both give the same answers in the same order of states. CompiledEnumerator is multiplicative, and is
for finite units whose exponents stay in range. NumpyEnumerator works in the log domain, and is for
everything else. Tests compare the two.

The moments of one row of evidence are a matrix (1 or 1 + D, columns). Its row 0 holds expectations,
and its row 1 + d the expectations of the same quantities times indicator d. Columns are the finite
blocks' probabilities (block, state, unit), then the indicators, then the smooth blocks' statistics.
"""

from __future__ import annotations

from pgmengine.infer.exact.enumeration.compiled_enumerator import CompiledEnumerator
from pgmengine.infer.exact.enumeration.cover_states import Enumerator
from pgmengine.infer.exact.enumeration.log_linear import Problem
from pgmengine.infer.exact.enumeration.numpy_enumerator import NumpyEnumerator


def make_enumerator(p: Problem) -> Enumerator:
    """Return the compiled enumerator where it is safe, else the one in numpy."""
    if p.smooth:
        return NumpyEnumerator(p)
    enumerator = CompiledEnumerator(p)
    return enumerator if enumerator.safe else NumpyEnumerator(p)
