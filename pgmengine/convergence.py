"""Diagnostics of chains: effective sample size, R-hat and Monte Carlo standard error, from arviz-stats."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.model import Flat
from pgmengine.target import Target

Array = np.ndarray
MANY_SERIES = 20_000  # above this, units are examined at even spacing and the others get NaN


def chain_statistics(trace: Flat, energy: Array, target: Target, chains: int) -> dict[str, Any]:
    """ess, rhat and mcse per layer (rows, size[, k]), and energy_ess, energy_rhat, energy_mcse (rows,).

    trace[layer] (draws, rows * chains, width) sums or means of equal batches, energy (draws, rows * chains). A series
    that never changes has R-hat 1 and MCSE 0 when all chains agree, R-hat inf when they do not. The R-hat of a single
    chain compares its halves, if these have four draws each.
    """
    widths = sum(v.shape[2] for v in trace.values()) * target.rows
    step = -(-widths // MANY_SERIES)
    out: dict[str, Any] = {"ess": {}, "rhat": {}, "mcse": {}}
    for name, series in trace.items():
        layer = target.structure.layers[name]
        split = _by_chain(series, target.rows, chains)
        for key, value in series_statistics(split, step).items():
            out[key][name] = layer.shaped(value)
    total = series_statistics(_by_chain(energy[:, :, None], target.rows, chains), 1)
    for key, value in total.items():
        out[f"energy_{key}"] = value[:, 0]
    return out


def _by_chain(series: Array, rows: int, chains: int) -> Array:
    """(draws, rows * chains, width) -> (chains, draws, rows, width)."""
    return series.reshape(len(series), rows, chains, -1).transpose(2, 0, 1, 3)


def series_statistics(x: Array, step: int = 1) -> dict[str, Array]:
    """ess, rhat and mcse of the means of series x (chains, draws, rows, width), each (rows, width)."""
    chains, draws, rows, width = x.shape
    flat = x.reshape(chains, draws, rows * width)
    agree = (flat == flat[:1, :1]).all(axis=(0, 1))
    still = (flat == flat[:, :1]).all(axis=(0, 1))  # no chain ever moved
    out = {"ess": np.full(rows * width, np.nan), "rhat": np.full(rows * width, np.nan),
           "mcse": np.full(rows * width, np.nan)}
    out["ess"][agree], out["rhat"][agree], out["mcse"][agree] = chains * draws, 1.0, 0.0
    stuck = still & ~agree
    out["ess"][stuck], out["rhat"][stuck] = 1.0, np.inf
    out["mcse"][stuck] = flat[:, :, stuck].mean(axis=1).std(axis=0)
    index = np.flatnonzero(~still & ~agree)[::step]
    if len(index) and draws >= 4:
        from arviz_stats.base import array_stats

        some = flat[:, :, index]
        axes = {"chain_axis": 0, "draw_axis": 1}
        out["ess"][index] = array_stats.ess(some, method="mean", **axes)
        with np.errstate(divide="ignore", invalid="ignore"):  # halves of chains that stood still: infinite, or NaN
            halves = some if chains > 1 else some[:, : draws // 2 * 2].reshape(2, draws // 2, -1)
            rhat = array_stats.rhat(halves, method="split" if chains > 1 else "identity", **axes)
            out["rhat"][index] = rhat if chains > 1 else np.where(np.isnan(rhat), 1.0, rhat)  # too short to tell
        out["mcse"][index] = flat[:, :, index].std(axis=(0, 1)) / np.sqrt(out["ess"][index])
    return {key: value.reshape(rows, width) for key, value in out.items()}
