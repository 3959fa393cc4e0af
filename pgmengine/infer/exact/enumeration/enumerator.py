"""The choice of an enumerator: sums over the states of a cover, compiled or in numpy.

Both visit the states in the same order, and give the same answers. CompiledEnumerator multiplies
weights, which needs finite units whose exponents stay in range. NumpyEnumerator works in the log
domain, and takes all other models. Tests compare the two.

The moments of one row of evidence are a matrix (1 or 1 + D, columns). Its row 0 holds expectations,
and its row 1 + d holds the expectations of the same quantities times indicator d. The columns are
the probabilities of the finite blocks (block, state, unit), then the indicators, then the
statistics of the smooth blocks.
"""

from __future__ import annotations

from pgmengine.infer.exact.enumeration.compiled_enumerator import CompiledEnumerator
from pgmengine.infer.exact.enumeration.cover_states import Enumerator
from pgmengine.infer.exact.enumeration.log_linear import LogLinearForm
from pgmengine.infer.exact.enumeration.numpy_enumerator import NumpyEnumerator


def make_enumerator(p: LogLinearForm) -> Enumerator:
    """Return the compiled enumerator if it is safe, and the numpy enumerator otherwise."""
    if p.smooth:
        return NumpyEnumerator(p)
    enumerator = CompiledEnumerator(p)
    return enumerator if enumerator.safe else NumpyEnumerator(p)
