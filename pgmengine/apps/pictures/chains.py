"""Chains of units over time, and Markov chains: traces, ladders, and how far they converged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.apps.pictures.boxes import Answers, state_texts
from pgmengine.apps.pictures.style import (
    BLUE,
    CYCLE,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    SMALL,
    VERMILION,
    axes_of,
    color_scale,
    framed,
    legend_beside,
    shown,
    state_colors,
)
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.evidence.names import Member
from pgmengine.infer.diagnostics.trust import MIN_DRAWS_FOR_RHAT, MIN_TOURS, MIN_TOURS_FOR_LOG_Z
from pgmengine.infer.results.by_name import asked
from pgmengine.infer.results.result import Result
from pgmengine.model.layer import Layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sequences of at most so many states are drawn as lines, others as an image.
LINE_STATES = 6

# Lines of at most so many places have markers.
MARKED_PLACES = 60

# Legends name at most so many chains and states.
NAMED_CHAINS, NAMED_STATES = 7, 12

# An R-hat above this value is drawn at it, with a triangle.
HIGHEST_RHAT = 3.0

# 95 % of a normal distribution lie within so many standard errors.
BAND = 2.0


def sequence(
    result: Result, name: str, observed: str | None = None, row: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw the posterior of an array of variables over time, such as the states of a chain.

    Up to six states are lines, with a band of two standard errors where the answer is an estimate;
    more are an image with a line for each state.

    Parameters
    ----------
    result : an answer with marginals.
    name : an array of variables, or a layer, with one axis and finitely many states.
    observed : an array of the same length, whose observed states are drawn below; gaps are units
        that are not observed.
    row : the row of evidence.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        For arrays of several axes, or without a finite number of states.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> z = b.variable("z", states=("calm", "storm"), shape=12)
    >>> x = b.variable("x", states=("low", "high"), shape=12)
    >>> _ = b.conditional(z[0], (), [0.5, 0.5])
    >>> _ = b.conditional(z[1:], (z[:-1],), [[0.9, 0.1], [0.2, 0.8]])
    >>> _ = b.conditional(x, (z,), [[0.8, 0.2], [0.3, 0.7]])
    >>> r = pgm.infer(b.build(), {"x": ["low"] * 6 + ["high"] * 6})
    >>> ax = pgm.plots.sequence(r, "z", observed="x")
    """
    layer = _chain(result, name)
    answers = Answers(asked(result.target).structure, result, _checked_row(result, row))
    found = answers.probabilities(layer)
    if found is None:
        raise PgmError(f"{name!r} has no finite number of states, and no probabilities of them")
    (prob, error), texts = found, state_texts(layer)
    time = np.arange(layer.size)
    ax = axes_of(ax, (7.0, 3.0 if observed is None else 3.4))
    if len(texts) > LINE_STATES:
        _as_image(ax, prob, texts)
    else:
        for i, text in enumerate(texts):
            mark = MARKERS[i] if layer.size <= MARKED_PLACES else ""
            look: dict[str, Any] = {
                "color": CYCLE[i],
                "ls": DASHES[i % 4],
                "marker": mark,
                "ms": 3.5,
                "lw": 1.4,
            }
            ax.plot(time, prob[:, i], label=text.lstrip("_") or " ", **look)
            if error[:, i].any():
                low, high = np.clip(prob[:, i] + np.outer((-BAND, BAND), error[:, i]), 0, 1)
                ax.fill_between(time, low, high, color=CYCLE[i], alpha=0.2, lw=0)
        ax.set_ylim(-0.02, 1.02)
        title = f"posterior of {name}" + "\nwith 2 standard errors" * bool(error.any())
        legend_beside(ax, title=title, title_fontsize=SMALL + 1, alignment="left")
    framed(ax, "place in the sequence", "" if len(texts) > LINE_STATES else "probability")
    if observed is not None:
        _draw_observed(ax, result, observed, layer.size, answers)
    return ax


def _chain(result: Result, name: str) -> Layer:
    """Return a layer of one axis."""
    layer = asked(result.target).structure.names.layer(name, "array")
    if len(layer.grid) > 1:
        raise PgmError(f"{name!r} has the shape {layer.grid}, expected one axis: see plots.graph")
    return layer


def _checked_row(result: Result, row: int) -> int:
    """Return the number of a row of the evidence of a result; raise PgmError for others."""
    rows = asked(result.target).rows
    if isinstance(row, bool) or not isinstance(row, (int, np.integer)) or not 0 <= row < rows:
        raise PgmError(f"row {row!r} is no row of the result, expected 0..{rows - 1}")
    return int(row)


def _as_image(ax: Axes, prob: Array, texts: list[str]) -> None:
    """Draw probabilities (places, states) as an image with a line for each state."""
    picture = ax.imshow(
        prob.T, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest"
    )
    # At most twenty names of states fit beside the image.
    ticks = range(0, len(texts), -(-len(texts) // 20))
    ax.set_yticks(list(ticks), [texts[i] for i in ticks], fontsize=SMALL)
    color_scale(ax, picture, "probability", (1.02, 0.0, 0.02, 1.0))


def _draw_observed(ax: Axes, result: Result, name: str, size: int, answers: Answers) -> None:
    """Draw the observed states of an array of the same length below the Axes."""
    with needed_by("pgmengine.plots"):
        from matplotlib.patches import Patch

    layer = _chain(result, name)
    if layer.size != size:
        raise PgmError(f"{name!r} has {layer.size} places, expected {size} as the sequence has")
    found, texts = answers.probabilities(layer), state_texts(layer)
    if found is None:
        raise PgmError(f"{name!r} has no finite number of states, and cannot be drawn as colours")
    states = np.where(answers.observed(layer), found[0].argmax(axis=1), np.nan)
    below = ax.inset_axes((0.0, -0.32, 1.0, 0.07), sharex=ax)
    colors = state_colors(len(texts))
    for place in np.flatnonzero(np.isfinite(states)):
        below.axvspan(place - 0.5, place + 0.5, facecolor=colors[int(states[place])], lw=0)
    below.set(yticks=[])
    below.tick_params(labelsize=SMALL + 1)
    below.spines[["top", "right", "left"]].set_visible(False)
    below.set_xlabel(ax.get_xlabel())
    ax.set(xlabel="", xlim=(-0.5, size - 0.5))
    handles = [
        Patch(label=shown(text), facecolor=color)
        for text, color in zip(texts, colors, strict=False)
        if len(texts) <= NAMED_STATES
    ]
    if np.isnan(states).any():
        handles.append(Patch(label="not observed", facecolor="white", edgecolor=FAINT, lw=0.5))
    legend_beside(
        below,
        handles,
        title=f"observed {name}",
        title_fontsize=SMALL + 1,
        alignment="left",
        bbox_to_anchor=(1.0, 3.2),
    )


def _energies(result: Result, row: int) -> Array:
    """Return the energies of the chains of a row, (chains, draws)."""
    if "energy" not in result.stats:
        raise PgmError(f"a Result of {type(result.method).__name__} has no chains with energies")
    energy = np.asarray(result.stats["energy"])
    return energy[:, :, row if result.target is None else _checked_row(result, row)]


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
    values = _energies(result, row)
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
    energies = _energies(result, row)
    if "betas" in result.stats:
        return _ladder(result, row, axes_of(ax, (6.5, 3.2)))
    return _by_unit(result, row, energies.size, axes_of(ax, (6.5, 3.4)))


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
