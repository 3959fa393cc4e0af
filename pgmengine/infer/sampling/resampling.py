"""Systematic resampling: draws of equal weight from weighted ones."""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array


def systematic(weights: Array, rng: np.random.Generator) -> Array:
    """Numbers (rows, draws) of the draws chosen in proportion to their weights (rows, draws), one
    uniform a row.
    """
    rows, draws = weights.shape
    grid = (np.arange(draws) + rng.random((rows, 1))) / draws
    edges = np.cumsum(weights, axis=1)
    chosen = np.stack([np.searchsorted(e / e[-1], g) for e, g in zip(edges, grid, strict=True)])
    return chosen.clip(0, draws - 1)
