"""The columns of a walk's moments, and the kernel's layout of the components of finite blocks."""

from __future__ import annotations

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array
from pgmengine.infer.exact.problem import FiniteBlock, Problem

LANES = _kernels.LANES  # units of a block are padded to a multiple of it


def padded(block: FiniteBlock) -> int:
    """Its units, with those that fill the last vector."""
    return -(-len(block.index) // LANES) * LANES


def laid_out(blocks: list[FiniteBlock], arrays: list[Array], rows: int, fill: float) -> Array:
    """(rows, T, K-1) of each block as (rows, components), the kernel's order: block, state, padded
    unit.
    """
    out = np.full((rows, sum(b.value.shape[2] * padded(b) for b in blocks)), fill)
    start = 0
    for b, array in zip(blocks, arrays, strict=True):
        terms, size = b.value.shape[2], padded(b)
        part = out[:, start : start + terms * size].reshape(rows, terms, size)
        part[:, :, : len(b.index)] = array.transpose(0, 2, 1)
        start += terms * size
    return out


def column_count(p: Problem) -> int:
    """Columns of the moments matrix."""
    finite = sum(padded(b) * b.offset.shape[2] for b in p.finite)
    return finite + p.skeleton.indicators + sum(len(b.index) for b in p.smooth)
