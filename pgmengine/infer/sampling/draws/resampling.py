"""Systematic resampling: draws of equal importance weight, chosen from weighted draws.

One uniform number u for each row places the grid (i + u) / draws on the cumulative importance
weights p. A draw is chosen either floor(draws * p) or ceil(draws * p) times, and draws * p times on
average.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array, States


def systematic(weights: Array, rng: np.random.Generator) -> Array:
    """Return indices (rows, draws) of draws, chosen in proportion to importance weights."""
    rows, draws = weights.shape
    grid = (np.arange(draws) + rng.random((rows, 1))) / draws
    edges = np.cumsum(weights, axis=1)
    chosen = np.stack([np.searchsorted(e / e[-1], g) for e, g in zip(edges, grid, strict=True)])
    return chosen.clip(0, draws - 1)


def resampled(each: States, p: Array, count: int, rng: np.random.Generator) -> States:
    """Return `count` draws (rows, count, width) of equal importance weight, in random order."""
    index = rng.permuted(systematic(np.where(np.isnan(p), 1.0, p), rng), axis=1)[:, :count]
    lost = np.isnan(p[:, :1, None])
    return {
        name: np.where(lost, np.nan, np.take_along_axis(v, index[..., None], axis=1))
        for name, v in each.items()
    }
