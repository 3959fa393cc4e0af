"""Chains of units over time, with the probabilities of their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.apps.pictures.boxes import state_texts
from pgmengine.apps.pictures.result_rows import checked_row
from pgmengine.apps.pictures.style import (
    CYCLE,
    DASHES,
    FAINT,
    MARKERS,
    SMALL,
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
from pgmengine.declare.pictures.scene import ERRORS_DRAWN, Values
from pgmengine.infer.results.by_name import asked
from pgmengine.infer.results.overview import values_drawn
from pgmengine.infer.results.result import Result
from pgmengine.model.layer import Layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Sequences of at most so many states are drawn as lines, others as an image.
LINE_STATES = 6

# Lines of at most so many places have markers.
MARKED_PLACES = 60

# Legends name at most so many states.
NAMED_STATES = 12


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
    values = values_drawn(result, checked_row(result, row))
    if layer.name not in values.prob:
        raise PgmError(f"{name!r} has no finite number of states, and no probabilities of them")
    prob, error, texts = values.prob[layer.name], values.errors_of(layer.name), state_texts(layer)
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
                low, high = np.clip(
                    prob[:, i] + np.outer((-ERRORS_DRAWN, ERRORS_DRAWN), error[:, i]), 0, 1
                )
                ax.fill_between(time, low, high, color=CYCLE[i], alpha=0.2, lw=0)
        ax.set_ylim(-0.02, 1.02)
        title = f"posterior of {name}" + "\nwith 2 standard errors" * bool(error.any())
        legend_beside(ax, title=title, title_fontsize=SMALL + 1, alignment="left")
    framed(ax, "place in the sequence", "" if len(texts) > LINE_STATES else "probability")
    if observed is not None:
        _draw_observed(ax, result, observed, layer.size, values)
    return ax


def _chain(result: Result, name: str) -> Layer:
    """Return a layer of one axis."""
    layer = asked(result.target).structure.names.layer(name, "array")
    if len(layer.grid) > 1:
        raise PgmError(f"{name!r} has the shape {layer.grid}, expected one axis: see plots.graph")
    return layer


def _as_image(ax: Axes, prob: Array, texts: list[str]) -> None:
    """Draw probabilities (places, states) as an image with a line for each state."""
    picture = ax.imshow(
        prob.T, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest"
    )
    # At most twenty names of states fit beside the image.
    ticks = range(0, len(texts), -(-len(texts) // 20))
    ax.set_yticks(list(ticks), [texts[i] for i in ticks], fontsize=SMALL)
    color_scale(ax, picture, "probability", (1.02, 0.0, 0.02, 1.0))


def _draw_observed(ax: Axes, result: Result, name: str, size: int, values: Values) -> None:
    """Draw the observed states of an array of the same length below the Axes."""
    with needed_by("pgmengine.plots"):
        from matplotlib.patches import Patch

    layer = _chain(result, name)
    if layer.size != size:
        raise PgmError(f"{name!r} has {layer.size} places, expected {size} as the sequence has")
    if layer.name not in values.prob:
        raise PgmError(f"{name!r} has no finite number of states, and cannot be drawn as colours")
    prob, texts = values.prob[layer.name], state_texts(layer)
    states = np.where(values.observed[layer.name], prob.argmax(axis=1), np.nan)
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
