"""Traces of Markov chains: energies, states and values of units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.apps.pictures.boxes import state_texts
from pgmengine.apps.pictures.result_rows import energies
from pgmengine.apps.pictures.style import (
    CYCLE,
    INK,
    SMALL,
    axes_of,
    framed,
    legend_beside,
    shown,
    state_colors,
)
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.infer.results.by_name import asked
from pgmengine.infer.results.result import Result
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Member

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Legends name at most so many chains and states.
NAMED_CHAINS, NAMED_STATES = 7, 12

# 95 % of a normal distribution lie within so many standard errors.
BAND = 2.0


def trace(result: Result, name: Member | None = None, row: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the energies of chains, or the values of one unit, against draws.

    Chains that have mixed lie over one another. A unit with few states has a line of colours for
    each chain instead. The title has R-hat, which compares the chains, and the number of
    independent draws that the draws are worth. The band is the mean with two standard errors.

    Parameters
    ----------
    result : an answer of chains, with samples if a unit is drawn.
    name : the unit: a variable, "layer[3]", or (layer, number); the energy by default.
    row : the row of evidence.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        For the result of a method without chains, or an unknown unit.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.MCMC(draws=200), rng=0)
    >>> ax = pgm.plots.trace(r)
    """
    values = energies(result, row)
    stats = {key: np.ravel(result.stats[f"energy_{key}"])[row] for key in QUALITY}
    if name is None:
        ax = _lines(values, axes_of(ax, (7.0, 3.0)), stats)
        label = "energy, nats"
    else:
        place = asked(result.target).structure.names.unit(name, "name")
        layer = asked(result.target).structure.layers[place[0]]
        stats = {
            # Of one-hot components, the worst one is judged.
            key: worst(_of_unit(result, result.stats[key][layer.name], layer, place[1], row))
            for key, worst in QUALITY.items()
        }
        label = asked(result.target).structure.names.of(place)
        draws = _draws(result, layer, place[1], row)
        if layer.unit.support is not None and len(layer.unit.support) <= NAMED_STATES:
            states = layer.unit.state_of(draws).reshape(len(values), -1)
            ax = _barcodes(states, layer, axes_of(ax, (7.0, 1.0 + 0.3 * len(states))))
            label = f"state of {label}"
        else:
            ax = _lines(draws.reshape(len(values), -1), axes_of(ax, (7.0, 3.0)), stats)
            label = f"value of {label}"
    ax.set_title(_quality(stats, values.size), fontsize=SMALL + 1, loc="left")
    return framed(ax, "draw of the chain", label)


# Statistic of the quality of draws -> the worst of several values.
QUALITY = {"rhat": np.max, "ess": np.min, "mcse": np.max}


def _lines(values: Array, ax: Axes, stats: Mapping[str, float]) -> Axes:
    """Draw a line for each chain, and the mean with its error."""
    for i, chain in enumerate(values):
        label = f"chain {i + 1}" if i < NAMED_CHAINS else "_more"
        color = CYCLE[i % len(CYCLE)]
        ax.plot(np.arange(1, len(chain) + 1), chain, color=color, lw=0.7, alpha=0.85, label=label)
    if np.isfinite(stats["mcse"]) and np.isfinite(values).all():
        mean, error = float(np.mean(values)), BAND * stats["mcse"]
        label = "mean, 2 standard errors"
        ends = mean - error, mean + error
        ax.axhspan(*ends, color=INK, alpha=0.25, lw=0, zorder=3, label=label)
    handles = ax.get_legend_handles_labels()[0]
    more = len(values) - NAMED_CHAINS
    legend = legend_beside(ax, handles, title=f"{more} more chains" if more > 0 else None)
    for line in legend.get_lines():
        line.set(linewidth=1.8, alpha=1.0)
    return ax


def _barcodes(states: Array, layer: Layer, ax: Axes) -> Axes:
    """Draw numbers of states (chains, draws) as a line of colours for each chain."""
    with needed_by("pgmengine.plots"):
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch

    texts = state_texts(layer)
    colors = state_colors(len(texts))
    chains, draws = states.shape
    ax.imshow(
        states,
        aspect="auto",
        cmap=ListedColormap(colors[: len(texts)]),
        vmin=-0.5,
        vmax=len(texts) - 0.5,
        interpolation="nearest",
        extent=(0.5, draws + 0.5, chains + 0.5, 0.5),
    )
    for edge in range(1, chains):
        ax.axhline(edge + 0.5, color="white", lw=2)
    ticks = range(1, chains + 1, -(-chains // 20))
    ax.set_yticks(list(ticks), [f"chain {i}" for i in ticks], fontsize=SMALL)
    pairs = zip(texts, colors, strict=False)
    legend_beside(ax, [Patch(label=shown(text), facecolor=color) for text, color in pairs])
    return ax


def _of_unit(result: Result, values: Any, layer: Layer, unit: int, row: int) -> Array:
    """Return a statistic of the components of a unit in a row."""
    rows = 1 if result.target is None else result.target.rows
    return np.asarray(np.reshape(values, (rows, layer.size, -1))[row, unit], dtype=np.float64)


def _draws(result: Result, layer: Layer, unit: int, row: int) -> Array:
    """Return the draws of a unit, (draws,) or (draws, components)."""
    draws = np.asarray(result.raw("samples")[layer.name])[:, row]
    return np.asarray(layer.shaped(layer.flat(draws))[:, unit])


def _quality(quality: Mapping[str, float], draws: int) -> str:
    """Return R-hat and the effective number of draws in words."""
    if not np.isfinite(quality["ess"]):
        return f"{draws:,} draws, too few to be judged"
    worth = f"{draws:,} draws are worth {quality['ess']:,.0f} independent ones"
    return f"R-hat {quality['rhat']:.3f}; {worth}"
