"""How far estimates are to be trusted: the same rules for all methods that make them."""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array

SURE = 3.0  # standard errors on either side of an interval
FEW = 0.05  # a smaller share of the chains, or draws, that carries the weight is not to be trusted
LEAST = 20.0  # as many draws carry the weight, or a third of all: with fewer, errors are not errors
SHAPE = 0.7  # of a Pareto tail, at most
TAIL = 25  # draws, at least, for a tail
UNDERFLOW = 600.0  # log weights further below the largest one are 0
# Round trips of a row's chains; with fewer, glasses of 20 spins had means off by 0.1 to 0.4 under
# OK
TRIPS = 20
BATCHES = 10  # of each chain, for a standard error


def interval(low: Array, low_error: Array, high: Array, high_error: Array) -> Array:
    """From SURE standard errors below a low estimate to as many above a high one, (rows, 2);
    without end if not known.
    """
    with np.errstate(invalid="ignore"):
        ends = np.stack((low - SURE * low_error, high + SURE * high_error), axis=1)
    return np.where(np.isnan(ends), (-np.inf, np.inf), ends)


def few(ess: Array, draws: int) -> bool:
    """Whether so small an effective number of draws carries the weight of a row that it is not to
    be trusted.
    """
    return not ess.min() >= max(
        FEW * draws, min(LEAST, draws / 3)
    )  # NaN is not to be trusted, either


def pareto_shape(log_weights: Array, ess: Array) -> Array:
    """Return the shape k (rows,) of a Pareto tail of the largest weights, from log weights (rows,
    draws).

    Moments of order 1 / k and above do not exist: above 1/2 the weights have no variance, above 1
    no mean (Vehtari, Simpson, Gelman, Yao and Gabry 2024). NaN where a third of the draws carry the
    weight, because then the tail does not matter, and where a row has too few different weights for
    a tail.
    """
    from arviz_stats.base import array_stats

    out = np.full(len(log_weights), np.nan)
    for row in np.flatnonzero(ess < log_weights.shape[1] / 3):
        weights = log_weights[row]
        positive = weights[weights > weights.max() - UNDERFLOW]
        if len(positive) >= TAIL and len(np.unique(positive)) > len(positive) / 2:
            # With its own log_weights=True ArviZ fits the tail of the logarithms.
            out[row] = array_stats.pareto_khat(
                np.exp(positive - positive.max())[None],
                chain_axis=0,
                draw_axis=1,
                r_eff=1.0,
                tail="right",
            )
    return out


def heavy(shape: Array) -> Array:
    """Return the rows whose weights have so heavy a tail that their mean cannot be relied upon.

    The limit is that of Vehtari et al. (2024) for large samples. Their lower limit for small ones
    flags a third of a hundred weights whose logarithms are normal with a standard deviation of 1,
    whose intervals hold.
    """
    return np.flatnonzero(shape > SHAPE)


def normal_end(log_weights: Array) -> Array:
    """Return log mean exp w (rows,) plus SURE standard errors, if the log weights (rows, draws) are
    normal.

    The log of the mean of few skewed weights is too low far more often than its standard error
    says. Log weights are sums of many small terms and so are nearly normal: log E exp w = m + s^2 /
    2, whose error is that of m and s^2.
    """
    count = log_weights.shape[1]
    with np.errstate(invalid="ignore"):
        variance = log_weights.var(axis=1) * count / max(count - 1, 1)
        error = np.sqrt(variance / count + variance**2 / (2 * max(count - 1, 1)))
        end = log_weights.mean(axis=1) + variance / 2 + SURE * error
    return np.where(np.isfinite(end), end, -np.inf)


def travelled(trips: Array, first: int) -> tuple[str, ...]:
    """A warning where the chains of a row made too few round trips (rows,) on their ladder, which
    has two ends.
    """
    row = int(trips.argmin())
    if trips[row] >= TRIPS:
        return ()
    return (
        f"the chains of row {first + row} made {trips[row]:.0f} round trips between the ends of the ladder, at least "
        f"{TRIPS} are needed: use more temperatures, or draw longer",
    )
