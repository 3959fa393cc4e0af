"""Rows of conditionals in which some entries are fixed.

The entries that are not fixed share the probability L that the fixed ones leave over, as
p_k = L exp(theta_k) / sum over these entries of exp(theta). With the derivatives g of the log
density in the logarithms of the whole row, the derivative in theta_k is
g_k - (sum over these entries of g) p_k / L.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array


def with_kept(logs: Array, weights: Array, fixed: Array | None) -> Array:
    """Return the logarithms of rows proportional to weights, in which fixed entries stay.

    Entries that are not fixed share the probability that the fixed ones of their row leave over.
    A row without any weight to share stays as it is.
    """
    left = 1.0
    if fixed is not None and fixed.any():
        weights = np.where(fixed, 0.0, weights)
        left = 1.0 - np.where(fixed, np.exp(logs), 0.0).sum(axis=-1, keepdims=True)
        left = np.maximum(left, 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = np.log(weights) - np.log(total) + np.log(left)
    stays = total == 0 if fixed is None else (total == 0) | fixed
    return np.where(stays, logs, shared)


def slopes_with_kept(logs: Array, slopes: Array, fixed: Array) -> Array:
    """Return the derivatives in the entries that are not fixed, and 0 for the others."""
    prob, free = np.where(fixed, 0.0, np.exp(logs)), np.where(fixed, 0.0, slopes)
    left = prob.sum(axis=-1, keepdims=True)
    share = prob / np.where(left > 0, left, 1.0)
    return np.asarray(np.where(fixed, 0.0, free - free.sum(axis=-1, keepdims=True) * share))
