"""How far Markov chains converged, and how they moved over the levels of a ladder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.apps.pictures.result_rows import energies
from pgmengine.apps.pictures.style import (
    BLUE,
    CYCLE,
    FAINT,
    MARKERS,
    SMALL,
    VERMILION,
    axes_of,
    framed,
    legend_beside,
)
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.infer.diagnostics.trust import MIN_DRAWS_FOR_RHAT, MIN_TOURS, MIN_TOURS_FOR_LOG_Z
from pgmengine.infer.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# An R-hat above this value is drawn at it, with a triangle.
HIGHEST_RHAT = 3.0


def convergence(result: Result, row: int = 0, ax: Axes | None = None) -> Axes:
    """Draw how far chains converged: their ladder of temperatures, or R-hat of every unit.

    For a tempering method, bars show how freely the chains move over the ladder: the share of
    accepted exchanges between neighbouring inverse temperatures (ParallelTempering), or the share
    of sweeps at each of them (SimulatedTempering), where an even share is dashed. The title counts
    the round trips, and the independent tours from which the draws come. For other chains, R-hat
    stands against the effective number of draws of each unit, and the limits of a good status are
    dashed.

    Parameters
    ----------
    result : an answer of chains.
    row : the row of evidence.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        For the result of a method without chains.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.ParallelTempering(draws=200), rng=0)
    >>> ax = pgm.plots.convergence(r)
    """
    draws = energies(result, row).size
    if "betas" in result.stats:
        return _ladder(result, row, axes_of(ax, (6.5, 3.2)))
    return _by_unit(result, row, draws, axes_of(ax, (6.5, 3.4)))


def _ladder(result: Result, row: int, ax: Axes) -> Axes:
    """Draw exchanges, or occupancies, over the rungs of a ladder."""
    stats = result.stats
    betas = np.atleast_2d(stats["betas"])
    betas = betas[row if len(betas) > 1 else 0]
    if "swap_rejection" in stats:
        rejected = np.atleast_2d(stats["swap_rejection"])
        shares = 1 - rejected[row if len(rejected) > 1 else 0]
        texts = [f"{a:.2g}\u2013{b:.2g}" for a, b in zip(betas[:-1], betas[1:], strict=True)]
        label, names = "share of accepted exchanges", "inverse temperatures of an exchange"
    else:
        shares = np.atleast_2d(stats["occupancy"])[row]
        texts = [f"{beta:.2g}" for beta in betas]
        label, names = "share of sweeps", "inverse temperature"
    place = np.arange(len(shares))
    ax.bar(place, shares, color=BLUE, width=0.8)
    if "swap_rejection" in stats:
        ax.set_ylim(0, 1)
    else:
        even: dict[str, Any] = {"color": VERMILION, "ls": "--", "lw": 1.2}
        ax.axhline(1 / len(shares), label="even share", **even)
        legend_beside(ax)
    # At most a dozen names fit below the bars.
    ticks = place[:: -(-len(place) // 12)]
    ax.set_xticks(ticks, [texts[i] for i in ticks], rotation=30, ha="right")
    trips, tours = (float(np.ravel(stats[name])[row]) for name in ("round_trips", "tours"))
    needed = MIN_TOURS_FOR_LOG_Z if _needs_many(result) else MIN_TOURS
    verdict = "enough" if tours >= needed else "too few"
    text = f"{trips:,.0f} round trips; {tours:,.0f} independent tours, {verdict} ({needed} needed)"
    ax.set_title(text, fontsize=SMALL + 1, loc="left")
    return framed(ax, names, label)


def _needs_many(result: Result) -> bool:
    """Whether log Z by stepping stones was asked for, which needs more tours than means do."""
    return "log_z" in result.answers and "swap_rejection" in result.stats


def _by_unit(result: Result, row: int, draws: int, ax: Axes) -> Axes:
    """Draw R-hat against the effective number of draws."""
    stats = result.stats
    needed = min(MIN_DRAWS_FOR_RHAT, draws / 2)
    limit = float(getattr(result.method, "rhat_limit", 1.05))
    for i, (name, every) in enumerate(stats["rhat"].items()):
        rhat, ess = (_of_row(result, values, name, row) for values in (every, stats["ess"][name]))
        label = name
        if result.target is not None and result.target.structure.layers[name].holds_variables:
            label = "variables"
        _points(ax, rhat, ess, i, label)
    rhat, ess = (np.ravel(stats[f"energy_{key}"])[row : row + 1] for key in ("rhat", "ess"))
    _points(ax, rhat, ess, len(stats["rhat"]), "energy")
    look: dict[str, Any] = {"color": FAINT, "ls": "--", "lw": 1.1, "zorder": 1}
    ax.axhline(limit, label=f"limits: R-hat {limit:g}, {needed:g} draws", **look)
    ax.axvline(needed, **look)
    ax.set_xscale("log")
    legend_beside(ax)
    verdict = "no fault found" if result.status.good else result.status.value.partition(":")[0]
    ax.set_title(f"{draws:,} draws: {verdict}", fontsize=SMALL + 1, loc="left")
    return framed(ax, "effective number of draws", "R-hat")


def _of_row(result: Result, values: Any, name: str, row: int) -> Array:
    """Return a statistic of the units of a layer in a row, flat."""
    rows = 1 if result.target is None else result.target.rows
    return np.asarray(np.reshape(values, (rows, -1))[row], dtype=np.float64)


def _points(ax: Axes, rhat: Array, ess: Array, number: int, label: str) -> None:
    """Draw a point for each unit; an R-hat beyond the picture is a triangle at its upper edge."""
    kept = ~np.isnan(rhat) & ~np.isnan(ess)
    rhat, ess = rhat[kept], np.maximum(ess[kept], 1.0)
    high = rhat > HIGHEST_RHAT
    color = CYCLE[number % len(CYCLE)]
    marks: dict[str, Any] = {"color": color, "alpha": 0.7, "lw": 0, "s": 22}
    ax.scatter(ess[~high], rhat[~high], marker=MARKERS[number % 5], label=label, **marks)
    if high.any():
        beyond = np.full(int(high.sum()), HIGHEST_RHAT)
        ax.scatter(ess[high], beyond, marker="^", label=f"{label}, R-hat above 3", **marks)


def levels(result: Result, row: int = 0, chain: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the inverse temperature of a chain of SimulatedTempering against time.

    Parameters
    ----------
    result : an answer of SimulatedTempering. Its adaptive sweeps are shaded.
    row, chain : numbers of the row of evidence and of the chain.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        For the result of another method.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.SimulatedTempering(draws=100), rng=0)
    >>> ax = pgm.plots.levels(r)
    """
    if "levels" not in result.stats:
        raise PgmError("only results of SimulatedTempering have levels")
    ax = axes_of(ax, (7.0, 2.8))
    betas = np.atleast_2d(result.stats["betas"])
    levels = result.stats["levels"][:, row, chain]
    label = f"chain {chain + 1}"
    steps = betas[row if len(betas) > 1 else 0, levels]
    ax.step(np.arange(len(levels)), steps, lw=0.7, color=BLUE, label=label)
    adaptive = int(np.sum(result.stats["adaptive"]))
    ax.axvspan(0, adaptive, alpha=0.15, color="gray", lw=0, label="weights still adapt")
    ax.set_xlim(0, len(levels))
    legend_beside(ax)
    return framed(ax, "sweep", "inverse temperature")
