"""Diagnostics of series of draws: c/series.h by ArviZ, one series after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pgmengine.base.types import Array
from pgmengine.base.work.interrupts import whole_import

# Kinds of series: a constant, chains that stay where they are, and chains that move. No series is
# too slow for ArviZ.
CONSTANT, STUCK, MOVES, SLOW = range(4)


def judge(
    x: Array,
    at: Array,
    ranked: int,
    score: Array | None,
    by_means: bool,
    by_lags: bool,
    kinds: bool,
    parts: int,
) -> tuple[Array, Array, Array, Array]:
    """Return kind, rhat, mcse and variance of some series, each (series,); see series.pxi."""
    chains, draws, _, width = x.shape
    kind, found = np.full(len(at), MOVES, np.uint8), np.full((3, len(at)), np.nan)
    if not len(at) or not chains or not draws:
        return kind, found[0], found[1], found[2]
    for i, number in enumerate(at):
        one = np.ascontiguousarray(x[:, :, number // width, number % width])
        if (one == one[0, 0]).all():
            kind[i] = CONSTANT
        elif draws > 1 and (one == one[:, :1]).all():
            kind[i] = STUCK
        if not kinds:
            found[:, i] = _judged(one, int(kind[i]), ranked, score, by_means, by_lags)
    return kind, found[0], found[1], found[2]


def _judged(
    x: Array, kind: int, ranked: int, score: Array | None, by_means: bool, by_lags: bool
) -> tuple[float, float, float]:
    """Return R-hat, MCSE and variance of one series (chains, draws)."""
    with whole_import():
        from arviz_stats.base import array_stats

    chains, means = len(x), x.mean(axis=1)
    variance, rhat, mcse = float(x.var()), math.nan, math.nan
    if kind == CONSTANT:
        return rhat, 0.0, variance
    if kind == STUCK:
        return rhat, float(means.std()), variance
    if by_means:
        mcse = float(means.std() / math.sqrt(chains - 1))
    elif by_lags and np.isfinite(x).all():
        ess: Any = array_stats.ess(x, method="mean", chain_axis=0, draw_axis=1)
        mcse = math.sqrt(variance / float(ess))
    if ranked and np.isfinite(x).all():
        rhat = _rhat(x[:, :ranked], score)
    return rhat, mcse, variance


def _rhat(x: Array, score: Array | None) -> float:
    """Return the larger R-hat of the scores of x and of its distance from the median."""
    half = x.shape[1] // 2
    found = []
    for y in (x, np.abs(x - np.median(x))):
        z = y if score is None else score[_doubled_ranks(y)]
        halves = np.concatenate((z[:, :half], z[:, x.shape[1] - half :]))
        between = half * halves.mean(axis=1).var(ddof=1)
        within = halves.var(axis=1, ddof=1).mean()
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append(np.sqrt((between / within + half - 1) / half))
    larger = float(np.fmax(*found))
    return 1.0 if math.isnan(larger) else larger


def _doubled_ranks(x: Array) -> Array:
    """Return twice the average ranks, which start at 1, of all numbers."""
    _, which, often = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(often)
    return np.asarray((2 * last - often + 1)[which].reshape(x.shape))
