"""Entries of tables from their logarithms.

A model stores the logarithms of entries; files and networkx graphs store the entries. The
exponential of a logarithm may differ from the original entry: exp(log 0.1) is 0.10000000000000002,
although log(exp(log 0.1)) equals log 0.1. The functions here take, among all numbers
with the same logarithm, the number with the fewest digits, so that 0.1 stays 0.1.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array


def entries_of(logs: Array, what: str) -> Array:
    """Return numbers with these logarithms, each with as few digits as possible."""
    with np.errstate(over="ignore"):
        found = np.exp(logs)
    lost = np.isinf(found) | ((found == 0) & ~np.isneginf(logs))
    if lost.any():
        raise PgmError(
            f"{what}: the exponential of {logs[lost][0]:.6g} is no number in double precision; "
            "save the model with pgm.save"
        )
    # Many entries are equal, and counting digits is slow.
    different, places = np.unique(logs, return_inverse=True)
    return _shortest(different)[places].reshape(logs.shape)


def _shortest(logs: Array) -> Array:
    """Return the number with the fewest digits for each logarithm, or its exponential."""
    out = np.exp(logs)
    waiting = np.isfinite(logs)
    for digits in (3, 6, 10, 15, 16, 17):
        near = np.array([float(f"{x:.{digits}g}") for x in np.exp(logs[waiting])])
        out[waiting], right = near, np.log(near) == logs[waiting]
        waiting[waiting] = ~right
    for towards in (0.0, np.inf):
        near = np.nextafter(np.exp(logs[waiting]), towards)
        right = np.log(near) == logs[waiting]
        out[np.flatnonzero(waiting)[right]] = near[right]
        waiting[waiting] = ~right
    return out
