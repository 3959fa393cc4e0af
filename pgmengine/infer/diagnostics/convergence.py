"""Diagnostics of chains: effective sample size, R-hat and Monte Carlo standard error (MCSE).

Long runs are stored as means of batches of draws, because the draws of all units would not fit into
memory. The MCSE of the batch means is the MCSE of the draws, because both have the same mean. The
effective sample size of the draws follows from their variance: ess = variance / mcse^2.

The means of independent chains have the variance mcse^2 * chains, whatever the autocorrelation.
With at least MIN_CHAINS_FOR_SPREAD chains, the MCSE is computed from this variance. With fewer
chains it is computed from the autocorrelation, which takes MIN_DRAWS_FOR_AUTOCORRELATION draws of
each chain: with 500 chains of 8 independent draws, it gives half the true error. If there are
neither enough chains nor enough draws, MCSE and ESS are NaN.

R-hat is the larger of two split R-hats of normal scores of ranks (Vehtari, Gelman, Simpson,
Carpenter and Buerkner 2021). The first is taken of the series, and shows chains with different
locations. The second is taken of the distances from the median, and shows chains with different
spreads. Energies are not ranked: chains compute them in single precision, and rounding errors would
give states of equal energy ranks that depend on the chain.

A unit that never changed has a sample variance of 0, but its mean still has an error. An event that
did not occur in n independent draws has a probability of at most 3 / n, with a confidence of 95 %.
The MCSE of a bounded unit is therefore at least the MCSE whose 95 % interval has this width. Blocks
of series are judged by compiled code (series.h), with the same results as ArviZ.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, States
from pgmengine.base.work.interrupts import whole_import
from pgmengine.base.work.threads import parts
from pgmengine.evidence.target import Target
from pgmengine.model.layer import Layer

# Largest number of series that are examined. If there are more, some are examined at even spacing,
# and the others get NaN.
MAX_SERIES_EXAMINED = 20_000

# Smallest count of numbers in series for which another thread pays; each number takes about 1 ns.
MIN_SERIES_NUMBERS_PER_THREAD = 50_000

# Energies that differ by less than this share are taken as equal, because they are computed in
# single precision.
ENERGY_ROUNDING = 1e-5

# Smallest number of chains for which the MCSE is computed from the spread of their means. With 30
# chains its relative error is 13 %, and nominal 95 % intervals of normal means cover 94 %.
MIN_CHAINS_FOR_SPREAD = 30

# Smallest number of draws of a chain, or of batch means, for an estimate by autocorrelation.
# Nominal 95 % intervals cover 93 to 95 % with 4 to 25 chains of 25 independent draws, and 87 % with
# 16 chains of 10 draws.
MIN_DRAWS_FOR_AUTOCORRELATION = 25

# Smallest number of draws of a chain for a split R-hat: two for each half.
MIN_DRAWS_PER_CHAIN_FOR_RHAT = 4

# 95 % of a normal distribution lie within this many standard deviations.
NORMAL_95 = 1.96

# The 95 % upper limit of the mean of a Poisson count of zero (the "rule of three").
COUNT_OF_ZERO = 3.0


def chain_statistics(
    trace: States,
    variance: States,
    energy: Array,
    target: Target,
    chains: int,
    most: Array | float = np.inf,
) -> dict[str, Any]:
    """Return the diagnostics of each layer's means and of the energy.

    Parameters
    ----------
    trace : layer -> (batches, rows * chains, width), means of equal batches of draws.
    variance : layer -> (rows, width), variance of the draws of all chains together.
    energy : (draws, rows * chains).
    target : the target with one row for each row of evidence.
    chains : number of chains for each row.
    most : (rows,), the most draws that a row is worth where a state has not been met.

    Returns
    -------
    ess, rhat and mcse by layer, (rows, size[, k]); energy_ess, energy_rhat and energy_mcse (rows,);
    sum_rhat and sum_mcse of the sum over the units of each layer with several, (rows[, k]). Two
    phases may differ by little in each unit, and by much in a sum or in the energy. The
    R-hat of a single chain compares its halves. All are NaN where chains are `too_short`.
    """
    widths = sum(v.shape[2] for v in trace.values()) * target.rows
    step = -(-widths // MAX_SERIES_EXAMINED)
    energies = _rounded(_by_chain(energy[:, :, None], target.rows, chains))
    total = series_statistics(energies, ranked=False)
    out: dict[str, Any] = {"ess": {}, "rhat": {}, "mcse": {}, "sum_rhat": {}, "sum_mcse": {}}
    out |= {f"energy_{key}": value[:, 0] for key, value in total.items()}
    free = {name: x.components(target.free[name]) for name, x in target.structure.layers.items()}
    parts_of = {name: _by_chain(series, target.rows, chains) for name, series in trace.items()}
    found = {
        name: series_statistics(series, variance[name], step, free=free[name])
        for name, series in parts_of.items()
    }
    draws = energy.size / target.rows
    slowest = _slowest(found, variance, np.fmin(total["ess"][:, 0], np.fmin(draws, most)))
    for name, stats in found.items():
        layer = target.structure.layers[name]
        stats["ess"] = np.where(variance[name] == 0, draws, stats["ess"])
        least = np.where(free[name], least_error(layer, slowest[:, None]), 0.0)
        stats["mcse"] = np.maximum(stats["mcse"], least)
        for key, value in stats.items():
            out[key][name] = layer.shaped(value)
    for name, series in trace.items():
        layer = target.structure.layers[name]
        if layer.size > 1:
            # Observed units add a constant, which changes neither of the two statistics.
            sums = series.reshape(*series.shape[:2], layer.size, -1).sum(axis=2)
            whole = series_statistics(_by_chain(sums, target.rows, chains))
            shape = (target.rows,) if sums.shape[2] == 1 else (target.rows, sums.shape[2])
            for key in ("rhat", "mcse"):
                out[f"sum_{key}"][name] = whole[key].reshape(shape)
    return out


def _rounded(energy: Array) -> Array:
    """Return energies (chains, draws, rows, 1) without differences that are due to rounding."""
    low, high = (end(energy, axis=(0, 1)) for end in (np.min, np.max))
    with np.errstate(invalid="ignore"):
        same = high - low <= ENERGY_ROUNDING * np.maximum(abs(low), abs(high))
    return np.where(same, low, energy)


def least_error(layer: Layer, count: Array) -> Array:
    """Return the smallest MCSE (rows, width) that `count` independent draws can guarantee.

    A state that was never drawn may have the probability 3 / count. The 95 % interval covers the
    change of the mean by such a state. The MCSE is 0 for an unbounded unit, which changes at every
    draw.
    """
    if not layer.unit.bounded:
        return np.zeros_like(count)
    support = layer.unit.support
    each = np.array([-1.0, 1.0]) if support is None else support.reshape(-1, layer.unit.width)
    width = np.tile(np.atleast_1d(np.ptp(each, axis=0)), layer.size)
    unseen = np.minimum(COUNT_OF_ZERO / np.maximum(count, 1.0), 1.0)
    return np.asarray(width * unseen / NORMAL_95)


def _slowest(found: dict[str, dict[str, Array]], variance: States, most: Array) -> Array:
    """Return the effective number of draws (rows,) by which states that were not met are judged.

    It is the smallest effective number of the energy, which is `most`, and of all series that
    changed. A unit that hardly changed is not sampled faster than the other units, whatever its own
    series says: a unit of an RBM that was met in its second state for a few draws had 4,087 of
    4,000 effective draws, its row had 580, and the mean was off by ten standard errors.
    """
    each = [
        np.where((variance[name] > 0) & (stats["ess"] < most[:, None]), stats["ess"], most[:, None])
        for name, stats in found.items()
    ]
    return np.asarray(np.min([values.min(axis=1) for values in each], axis=0))


def _by_chain(series: Array, rows: int, chains: int) -> Array:
    """Return a series (draws, rows * chains, width) as (chains, draws, rows, width)."""
    return series.reshape(len(series), rows, chains, -1).transpose(2, 0, 1, 3)


@lru_cache(maxsize=8)
def normal_scores(count: int) -> Array:
    """Return the normal quantiles of the ranks i / 2 of `count` draws, i = 0, ..., 2 count.

    Equal draws share the mean of their ranks, which may be a multiple of 1/2. The scores of 0 and
    1/2 are NaN, because ranks begin at 1.
    """
    # scipy.stats has this function too, but its import takes longer than everything else together.
    from scipy.special import ndtri

    scores = np.full(2 * count + 1, np.nan)
    scores[2:] = ndtri((np.arange(2, 2 * count + 1) / 2 - 0.375) / (count + 0.25))
    return scores


def series_statistics(
    x: Array,
    variance: Array | None = None,
    step: int = 1,
    ranked: bool = True,
    free: Array | None = None,
) -> dict[str, Array]:
    """Return ess, rhat and mcse of the means of many series, each (rows, width).

    A series that never changes has R-hat 1 and MCSE 0 if all chains agree, and otherwise an
    infinite R-hat.

    Parameters
    ----------
    x : (chains, draws, rows, width), draws or means of equal batches of draws.
    variance : (rows, width), variance of the draws; None if x has the draws themselves.
    step : only every step-th series that changes is examined; the others get NaN.
    ranked : whether R-hat is taken of the normal scores of ranks, not of the numbers themselves.
    free : (rows, width) bool, the series that may change; all of them by default.
    """
    x = np.asarray(x, dtype=np.float64)
    chains, draws, rows, width = x.shape
    where = np.arange(rows * width) if free is None else np.flatnonzero(free)
    kind = np.full(rows * width, _kernels.CONSTANT, dtype=np.uint8)
    rhat, mcse, own = np.full((3, rows * width), np.nan)
    if step > 1:
        kind[where] = _judged(x, where, ranked, kinds=True)[0]
        moves = where[kind[where] == _kernels.MOVES]
        where = np.setdiff1d(where, np.delete(moves, np.s_[::step]))
    kind[where], rhat[where], mcse[where], own[where] = _judged(x, where, ranked)
    for i in np.flatnonzero(kind == _kernels.SLOW):
        mcse[i] = _mcse_of_slow(x[:, :, i // width, i % width])
    agree, stuck = kind == _kernels.CONSTANT, kind == _kernels.STUCK
    rhat[agree], rhat[stuck], mcse[agree] = 1.0, np.inf, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = (own if variance is None else variance.reshape(-1)) / mcse**2
    ess[agree], ess[stuck] = chains * draws, 1.0
    found = {"ess": ess, "rhat": rhat, "mcse": mcse}
    return {key: value.reshape(rows, width) for key, value in found.items()}


def _judged(x: Array, where: Array, ranked: bool, kinds: bool = False) -> tuple[Array, ...]:
    """Return kind, R-hat, MCSE and variance of some series, each (series,)."""
    chains, draws = x.shape[:2]
    compared = _compared_draws(chains, draws)
    kind, rhat, mcse, variance = _kernels.judge(
        x,
        where,
        compared,
        normal_scores(chains * compared) if ranked else None,
        chains >= MIN_CHAINS_FOR_SPREAD,
        not too_short(chains, draws),
        kinds,
        parts(len(where) * chains * draws, MIN_SERIES_NUMBERS_PER_THREAD),
    )
    if not compared and draws >= MIN_DRAWS_PER_CHAIN_FOR_RHAT:
        # There is one chain, and its halves are too short for R-hat.
        rhat[:] = 1.0
    return kind, rhat, mcse, variance


def _compared_draws(chains: int, draws: int) -> int:
    """Return the number of draws of each chain that R-hat is taken of; 0 if they are too few.

    A single chain is judged by two halves of equal length.
    """
    if chains == 1:
        return draws // 2 * 2 if draws >= 2 * MIN_DRAWS_PER_CHAIN_FOR_RHAT else 0
    return draws if draws >= MIN_DRAWS_PER_CHAIN_FOR_RHAT else 0


def too_short(chains: int, draws: int) -> bool:
    """Return whether chains with this number of draws are too short to be judged."""
    return draws < MIN_DRAWS_PER_CHAIN_FOR_RHAT or (
        chains < MIN_CHAINS_FOR_SPREAD and draws < MIN_DRAWS_FOR_AUTOCORRELATION
    )


def judging_bytes(series: int, chains: int, draws: int) -> float:
    """Return the working memory of judging series, of which each thread has a block at a time."""
    blocks = -(-series // _kernels.LANES)
    shared = min(parts(series * chains * draws, MIN_SERIES_NUMBERS_PER_THREAD), blocks)
    return 8.0 * shared * chains * draws * (2 * _kernels.LANES + 9)


def _mcse_of_slow(x: Array) -> float:
    """Return the MCSE of the mean of x (chains, draws), from the autocorrelation of all lags.

    The compiled routine sums products lag by lag. If many lags are needed, ArviZ is faster, because
    it uses Fourier transforms.
    """
    with whole_import():
        from arviz_stats.base import array_stats

    ess = array_stats.ess(x, method="mean", chain_axis=0, draw_axis=1)
    return float(x.std() / np.sqrt(ess))
