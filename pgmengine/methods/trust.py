"""How far estimates are to be trusted: the same rules for all methods that make them."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
SURE = 3.0  # standard errors on either side of an interval
FEW = 0.05  # a smaller share of the chains, or draws, that carries the weight is not to be trusted
BATCHES = 10  # of each chain, for a standard error


def interval(low: Array, low_error: Array, high: Array, high_error: Array) -> Array:
    """From SURE standard errors below a low estimate to as many above a high one, (rows, 2); without end if not known."""
    with np.errstate(invalid="ignore"):
        ends = np.stack((low - SURE * low_error, high + SURE * high_error), axis=1)
    return np.where(np.isnan(ends), (-np.inf, np.inf), ends)


def few(ess: Array, draws: int) -> bool:
    """Whether so small an effective number of draws carries the weight of a row that it is not to be trusted."""
    return not ess.min() >= max(FEW * draws, 2.0)  # NaN is not to be trusted, either
