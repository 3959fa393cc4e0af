"""Diagnostics of chains: effective sample size, R-hat and Monte Carlo standard error (MCSE).

Long runs are kept as batch means, since the draws of all units would not fit into memory. The MCSE
of the batch means is the MCSE of the draws, because both have the same mean; the effective sample
size of the draws then follows from their variance: ess = variance / mcse^2.

R-hat is the larger one of two split R-hats of normal scores of ranks (Vehtari, Gelman, Simpson,
Carpenter and Buerkner 2021): of the series, which shows chains of different location, and of the
distances from the median, which shows chains of different spread. Energies are not ranked: chains
compute them in single precision, whose rounding would order states of equal energy by chain.

A unit that never changed has no sample variance, but its mean has an error all the same. An event
that n independent draws have not shown has a probability of at most 3 / n, with a confidence of 95
%. The MCSE of a bounded unit is never taken to be smaller than the MCSE whose 95 % interval has
this width. ESS and split R-hat come from ArviZ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.graph.layer import Layer
from pgmengine.graph.target import Target

# Above this number of series, units are examined at even spacing and the others get NaN.
MANY_SERIES = 20_000

# Energies of single precision that differ by this share of themselves are equal.
ROUNDING = 1e-5

# 95 % of a normal distribution lie within this many standard deviations.
NORMAL_95 = 1.96

# The 95 % upper limit of the mean of a Poisson count of zero (the "rule of three").
COUNT_OF_ZERO = 3.0


def chain_statistics(
    trace: States, variance: States, energy: Array, target: Target, chains: int
) -> dict[str, Any]:
    """Return the diagnostics of each layer's means and of the energy.

    Parameters
    ----------
    trace : layer -> (batches, rows * chains, width), means of equal batches of draws.
    variance : layer -> (rows, width), variance of the draws of all chains together.
    energy : (draws, rows * chains).
    target : the target with one row for each row of evidence.
    chains : number of chains for each row.

    Returns
    -------
    ess, rhat and mcse by layer, (rows, size[, k]); energy_ess, energy_rhat and energy_mcse (rows,).
    The R-hat of a single chain compares its halves, if these have four draws each.
    """
    widths = sum(v.shape[2] for v in trace.values()) * target.rows
    step = -(-widths // MANY_SERIES)
    energies = _rounded(_by_chain(energy[:, :, None], target.rows, chains))
    total = series_statistics(energies, scores=None)
    out: dict[str, Any] = {"ess": {}, "rhat": {}, "mcse": {}}
    out |= {f"energy_{key}": value[:, 0] for key, value in total.items()}
    found = {
        name: series_statistics(_by_chain(series, target.rows, chains), variance[name], step)
        for name, series in trace.items()
    }
    draws = energy.size / target.rows
    slowest = _slowest(
        found, variance, np.where(total["ess"][:, 0] < draws, total["ess"][:, 0], draws)
    )
    for name, stats in found.items():
        layer = target.structure.layers[name]
        still = variance[name] == 0
        stats["ess"] = np.where(still, draws, stats["ess"])
        count = np.where(still, slowest[:, None], stats["ess"])
        free = layer.components(target.free[name])
        stats["mcse"] = np.maximum(stats["mcse"], np.where(free, least_error(layer, count), 0.0))
        for key, value in stats.items():
            out[key][name] = layer.shaped(value)
    return out


def _rounded(energy: Array) -> Array:
    """Return energies (chains, draws, rows, 1) without differences that are due to rounding."""
    low, high = (end(energy, axis=(0, 1)) for end in (np.min, np.max))
    with np.errstate(invalid="ignore"):
        same = high - low <= ROUNDING * np.maximum(abs(low), abs(high))
    return np.where(same, low, energy)


def least_error(layer: Layer, count: Array) -> Array:
    """Return the smallest MCSE (rows, width) that `count` independent draws can guarantee.

    Its 95 % interval covers the change of the mean by an unseen state of probability 3 / count. It
    is 0 where the unit is not bounded, since the unit then changes at every draw.
    """
    if not layer.unit.bounded:
        return np.zeros_like(count)
    support = layer.unit.support
    each = np.array([-1.0, 1.0]) if support is None else support.reshape(-1, layer.unit.width)
    width = np.tile(np.atleast_1d(np.ptp(each, axis=0)), layer.size)
    unseen = np.minimum(COUNT_OF_ZERO / np.maximum(count, 1.0), 1.0)
    return np.asarray(width * unseen / NORMAL_95)


def _slowest(found: dict[str, dict[str, Array]], variance: States, most: Array) -> Array:
    """Return the effective number of draws (rows,) by which units that never moved are judged.

    It is the smallest effective number among the energy, `most`, and the series that did move: a
    unit that stands still is not sampled faster than its neighbours.
    """
    each = [
        np.where((variance[name] > 0) & (stats["ess"] < most[:, None]), stats["ess"], most[:, None])
        for name, stats in found.items()
    ]
    return np.asarray(np.min([values.min(axis=1) for values in each], axis=0))


def _by_chain(series: Array, rows: int, chains: int) -> Array:
    """Return a series (draws, rows * chains, width) as (chains, draws, rows, width)."""
    return series.reshape(len(series), rows, chains, -1).transpose(2, 0, 1, 3)


def normal_scores(x: Array) -> Array:
    """Return the normal quantiles of the ranks of each series of x (chains, draws, series)."""
    # The import of scipy.stats takes longer than everything else together.
    from scipy.special import ndtri
    from scipy.stats import rankdata

    chains, draws, series = x.shape
    ranks = rankdata(x.reshape(chains * draws, series), axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (chains * draws + 0.25)).reshape(x.shape))


def series_statistics(
    x: Array,
    variance: Array | None = None,
    step: int = 1,
    scores: Callable[[Array], Array] | None = normal_scores,
) -> dict[str, Array]:
    """Return ess, rhat and mcse of the means of many series, each (rows, width).

    A series that never changes has R-hat 1 and MCSE 0 if all chains agree, and otherwise an
    infinite R-hat.

    Parameters
    ----------
    x : (chains, draws, rows, width), draws or means of equal batches of draws.
    variance : (rows, width), variance of the draws; None if x has the draws themselves.
    step : only every step-th series is examined, the others get NaN.
    scores : a transformation of the series before R-hat is taken, or None.
    """
    chains, draws, rows, width = x.shape
    flat = x.reshape(chains, draws, rows * width)
    agree = (flat == flat[:1, :1]).all(axis=(0, 1))
    # Series of which no chain ever moved.
    still = (flat == flat[:, :1]).all(axis=(0, 1))
    out = {key: np.full(rows * width, np.nan) for key in ("ess", "rhat", "mcse")}
    out["ess"][agree], out["rhat"][agree], out["mcse"][agree] = chains * draws, 1.0, 0.0
    stuck = still & ~agree
    out["ess"][stuck], out["rhat"][stuck] = 1.0, np.inf
    out["mcse"][stuck] = flat[:, :, stuck].mean(axis=1).std(axis=0)
    index = np.flatnonzero(~still & ~agree)[::step]
    if len(index) and draws >= 4:
        from arviz_stats.base import array_stats

        some = flat[:, :, index]
        ess = array_stats.ess(some, method="mean", chain_axis=0, draw_axis=1)
        out["mcse"][index] = some.std(axis=(0, 1)) / np.sqrt(ess)
        if variance is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                ess = variance.reshape(-1)[index] / out["mcse"][index] ** 2
        out["ess"][index], out["rhat"][index] = ess, rhat(some, scores)
    return {key: value.reshape(rows, width) for key, value in out.items()}


def rhat(x: Array, scores: Callable[[Array], Array] | None = normal_scores) -> Array:
    """Return R-hat (series,) of x (chains, draws, series): the larger one of location and spread.

    ArviZ computes the split R-hat; the normal scores are taken here for all series at once, which
    is several times as fast as one series after the other.
    """
    from arviz_stats.base import array_stats

    chains, draws, _ = x.shape
    if chains == 1:
        # A single chain is judged by its halves.
        x = x[:, : draws // 2 * 2].reshape(2, draws // 2, -1)
    method = "split" if chains > 1 else "identity"
    both = [x, np.abs(x - np.median(x, axis=(0, 1)))]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Halves in which nothing changes give an infinite R-hat, or NaN.
        found = [
            array_stats.rhat(scores(y) if scores else y, method=method, chain_axis=0, draw_axis=1)
            for y in both
        ]
    larger: Array = np.fmax(*found)
    # NaN: all values are equal, or the halves are too short to tell.
    return np.where(np.isnan(larger), 1.0, larger)
