"""The columns of a walk's moments, and the layout of finite blocks in the compiled walk.

The compiled walk reads the components of all finite blocks in one row: block by block, state by
state, unit by unit, with the units of a block padded to whole vectors.
"""

from __future__ import annotations

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array
from pgmengine.infer.exact.problem import FiniteBlock, Problem

# The units of a block are padded to a multiple of this number.
LANES = _kernels.LANES


def padded(block: FiniteBlock) -> int:
    """Return the number of units of a block, with padding."""
    return -(-len(block.index) // LANES) * LANES


def laid_out(blocks: list[FiniteBlock], arrays: list[Array], rows: int, fill: float) -> Array:
    """Return an array (rows, T, K-1) for each block as one (rows, components), padded by `fill`."""
    out = np.full((rows, sum(b.value.shape[2] * padded(b) for b in blocks)), fill)
    start = 0
    for b, array in zip(blocks, arrays, strict=True):
        terms, size = b.value.shape[2], padded(b)
        part = out[:, start : start + terms * size].reshape(rows, terms, size)
        part[:, :, : len(b.index)] = array.transpose(0, 2, 1)
        start += terms * size
    return out


def column_count(p: Problem) -> int:
    """Return the number of columns of the moments."""
    finite: int = sum(padded(b) * b.offset.shape[2] for b in p.finite)
    return finite + p.skeleton.indicators + sum(len(b.index) for b in p.smooth)
