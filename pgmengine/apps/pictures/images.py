"""Rows as images: data, weights, samples, and evidence with its completion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.apps.pictures.boxes import state_texts
from pgmengine.apps.pictures.style import (
    FAINT,
    MISSING,
    SMALL,
    Place,
    axes_of,
    bare,
    color_scale,
    legend_beside,
    shown,
    state_colors,
)
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.declare.model import ModelLike, as_model
from pgmengine.infer.results.by_name import asked
from pgmengine.infer.results.result import Result
from pgmengine.model.containers import as_floats
from pgmengine.model.layer import Layer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The gap before a scale beside the Axes, and its width, as shares of the width of an image.
SCALE_GAP, SCALE_WIDTH = 0.15, 0.17

# Legends name the colours of at most so many states.
LEGEND_STATES = 12

# Rows of evidence whose completions are drawn.
MOST_COMPLETIONS = 24


def images(
    rows: ArrayLike,
    shape: tuple[int, int],
    columns: int = 10,
    ax: Axes | None = None,
    **imshow: Any,
) -> Axes:
    """Draw rows as a mosaic of images.

    Parameters
    ----------
    rows : (n, pixels), a row for each image; NaN is light blue.
    shape : rows and columns of an image.
    columns : images side by side.
    ax : where to draw; new Axes by default.
    imshow : further arguments of Axes.imshow.

    Raises
    ------
    PgmError
        If there are no rows, or their length does not fit the shape.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> ax = pgm.plots.images(np.eye(16), (4, 4), columns=4)
    """
    with needed_by("pgmengine.plots"):
        from matplotlib.pyplot import get_cmap

    pixels = np.atleast_2d(as_floats(rows, "rows"))
    if not pixels.size:
        raise PgmError("there are no rows to draw, expected at least one")
    if pixels.shape[1] != shape[0] * shape[1]:
        raise PgmError(
            f"rows have {pixels.shape[1]} pixels, "
            f"images of shape {shape} have {shape[0] * shape[1]}"
        )
    columns = min(columns, len(pixels))
    seen = pixels[np.isfinite(pixels)]
    low = imshow.pop("vmin", seen.min(initial=np.inf))
    high = imshow.pop("vmax", seen.max(initial=-np.inf))
    if not low < high:
        low, high = (min(low, 0.0), max(high, 1.0)) if len(seen) else (0.0, 1.0)
    # Frames between images have a value above the scale, which is drawn in light grey.
    mosaic = _mosaic(pixels, shape, columns, 3 * high - 2 * low)
    lines = -(-len(pixels) // columns)
    width = max(0.7 * columns, 3.0)
    ax = axes_of(ax, (width, width * lines / columns * (shape[0] + 2) / (shape[1] + 2)))
    colors = get_cmap(imshow.pop("cmap", "gray_r")).with_extremes(bad=MISSING, over="#e8e8e8")
    settings: dict[str, Any] = {"cmap": colors, "interpolation": "nearest"}
    if "norm" not in imshow:
        settings |= {"vmin": low, "vmax": high}
    ax.imshow(mosaic, **(settings | imshow))
    return bare(ax)


def _mosaic(pixels: Array, shape: tuple[int, int], columns: int, frame: float) -> Array:
    """Return images side by side, each in a frame of this value."""
    framed = [np.pad(row.reshape(shape), 1, constant_values=frame) for row in pixels]
    framed += [np.full((shape[0] + 2, shape[1] + 2), frame)] * (-len(framed) % columns)
    return np.block([framed[i : i + columns] for i in range(0, len(framed), columns)])


def receptive_fields(
    model: ModelLike,
    coupling: str,
    shape: tuple[int, int],
    columns: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw the weights of hidden units as images over visible units; blue is negative.

    Parameters
    ----------
    model : a model with this coupling.
    coupling : "v-h" for an image over v of each unit of h; "h->v" for an image over the children v
        of each parent in h.
    shape : rows and columns of an image.
    columns : images side by side.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        For a coupling that the model does not have.

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.receptive_fields(pgm.rbm(16, 6, rng=0), "v-h", (4, 4))
    """
    model = as_model(model)
    found = {c.key: c for c in model.structure.couplings}
    if coupling not in found:
        raise PgmError(f"coupling {coupling!r} is unknown; the couplings are {listed([*found])}")
    weight = model.weight(found[coupling])
    dense = weight.toarray() if hasattr(weight, "toarray") else weight
    fields = dense if "->" in coupling else dense.T
    top = float(np.abs(fields).max(initial=1e-300))
    ax = images(fields, shape, columns, ax, cmap="RdBu_r", vmin=-top, vmax=top)
    color_scale(ax, ax.images[0], "weight", _beside(min(columns, len(fields))))
    return ax


def _beside(columns: int, low: float = 0.0, height: float = 1.0) -> Place:
    """Return the place of a scale at the right of a mosaic of so many columns."""
    return 1 + SCALE_GAP / columns, low, SCALE_WIDTH / columns, height


def samples(
    result: Result,
    layer: str,
    shape: tuple[int, int],
    times: int = 12,
    chains: int = 6,
    ax: Axes | None = None,
) -> Axes:
    """Draw samples of a layer as images: a line for each chain, with time to the right.

    Units with several components, such as Categorical units, are drawn by their states, a colour
    for each state.

    Parameters
    ----------
    result : an answer with samples; independent draws are on one line.
    layer : the layer to draw, for the first row of evidence.
    shape : rows and columns of an image.
    times : images of each chain, at even spacing.
    chains : number of chains.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        If the states of units are not known, because the units have several components and
        infinitely many values, or because the result comes from `run` of a method.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(16, 4, rng=0), want=("samples",), method=pgm.MCMC(draws=50), rng=0)
    >>> ax = pgm.plots.samples(r, "v", (4, 4))
    """
    drawn, look = result.samples[layer][:, 0], dict[str, Any]()
    named = greys = None
    own = None if result.target is None else result.target.structure.layers.get(layer)
    if own is not None:
        # Layers of several axes have their draws in this shape.
        drawn = own.shaped(own.flat(drawn))
    if drawn.ndim > 2:
        named = _with_states(result, layer)
        lost = np.asarray(np.isnan(drawn).any(axis=-1))
        drawn = np.where(lost, np.nan, named.unit.state_of(np.where(lost[..., None], 0.0, drawn)))
        look = _colors_of_states(named)
    elif own is not None and own.state_names and own.unit.support is not None:
        low, high = own.unit.support[[0, -1]].tolist()
        look, greys = {"vmin": low, "vmax": high}, own
    several = "energy" in result.stats
    by_chain = drawn.reshape(len(result.stats["energy"]) if several else 1, -1, drawn.shape[1])
    draws = by_chain.shape[1]
    picked = by_chain[:chains, np.linspace(0, draws - 1, min(times, draws)).astype(int)]
    if ax is None:
        wide = 0.7 * picked.shape[1] + 0.7 * several + 1.3 * ((named or greys) is not None)
        ax = axes_of(None, (wide, 0.7 * len(picked) * (shape[0] + 2) / (shape[1] + 2) + 0.5))
    ax = images(picked.reshape(-1, drawn.shape[1]), shape, picked.shape[1], ax, **look)
    many = f"{picked.shape[1]} of {draws:,} draws"
    ax.set_xlabel(f"{many}, time to the right" if several else f"{many}, independent")
    if several:
        lines = [f"chain {i + 1}" for i in range(len(picked))]
        _name_lines(ax, lines, shape[0] + 2)
    if named is not None:
        _name_states(ax, named)
    elif greys is not None:
        _name_states(ax, greys, grey=True)
    return ax


def _name_lines(ax: Axes, names: list[str], height: int) -> None:
    """Write the names of lines of images to their left."""
    middle = [height * (i + 0.5) - 0.5 for i in range(len(names))]
    ax.set_yticks(middle, names, fontsize=SMALL + 1)
    ax.tick_params(axis="y", length=0)


def _with_states(result: Result, layer: str) -> Layer:
    """Return a layer, or the layer of a variable; raise PgmError unless its states are known."""
    s = asked(result.target).structure
    found = s.names.layer_of(layer) or s.names.layer(layer)
    if found.unit.support is None:
        raise PgmError(
            f"layer {layer!r} has {found.unit!r} units, whose values have {found.unit.width} "
            "components and no states, and cannot be drawn as one image"
        )
    return found


def _colors_of_states(layer: Layer) -> dict[str, Any]:
    """Return arguments of `images` that draw numbers of states in the colours of the states."""
    with needed_by("pgmengine.plots"):
        from matplotlib.colors import ListedColormap

    assert layer.unit.support is not None
    count = max(len(layer.unit.support), 2)
    return {"cmap": ListedColormap(state_colors(count)), "vmin": -0.5, "vmax": count - 0.5}


def _name_states(ax: Axes, layer: Layer, missing: bool = False, grey: bool = False) -> None:
    """Put a legend of the colours, or of the greys, of states beside the Axes."""
    with needed_by("pgmengine.plots"):
        from matplotlib.patches import Patch
        from matplotlib.pyplot import get_cmap

    texts = state_texts(layer)
    colors = state_colors(len(texts))
    if grey:
        support = np.asarray(layer.unit.support)
        colors = get_cmap("gray_r")((support - support[0]) / np.ptp(support))
    pairs = list(zip(texts, colors, strict=False))
    handles = [
        Patch(label=shown(text), facecolor=color, edgecolor=FAINT, lw=0.5)
        for text, color in pairs[:LEGEND_STATES]
    ]
    if missing:
        handles.append(Patch(label="not observed", facecolor=MISSING))
    legend_beside(ax, handles, title="state", title_fontsize=SMALL + 1)


def completions(result: Result, layer: str, shape: tuple[int, int], ax: Axes | None = None) -> Axes:
    """Draw evidence, its completion, and the certainty of each pixel, a column for each row.

    Of more than 24 rows the first 24 are drawn, which the title says.

    The completion of a pixel is its posterior mean. For units with finitely many values, a third
    line has the probability of the most probable state of each pixel: the darker, the less certain.
    Units with several components, such as Categorical units, are drawn by their states, as in
    `samples`, and completed by their most probable state.

    Parameters
    ----------
    result : an answer of pgm.infer with marginals.
    layer : the layer to draw; units that are not observed are light blue.
    shape : rows and columns of an image.
    ax : where to draw; new Axes by default.

    Raises
    ------
    PgmError
        For a result without evidence or from `run` of a method, and for units with several
        components and infinitely many values.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> row = np.where(np.arange(16) < 8, 1.0, np.nan)
    >>> ax = pgm.plots.completions(pgm.infer(pgm.rbm(16, 4, rng=0), {"v": row}), "v", (4, 4))
    """
    target = asked(result.target)
    free = target.free[layer]
    own = target.structure.names.layer(layer)
    values = own.shaped(target.evidence.values[layer])
    prob = result.raw("prob").get(layer)
    states = None if prob is None else np.reshape(prob, (*free.shape, -1))
    named, look = None, dict[str, Any]()
    if values.ndim > 2:
        named = _with_states(result, layer)
        assert states is not None
        number = named.unit.state_of(values)
        seen = np.where(free, np.nan, number)
        done = np.where(free, states.argmax(axis=-1), number)
        look.update(_colors_of_states(named))
    else:
        seen = np.where(free, np.nan, values)
        # For a layer of one variable, answers by name have probabilities in place of a mean.
        done = np.reshape(result.raw("mean")[layer], seen.shape)
        look.update({"vmin": min(0.0, done.min()), "vmax": max(1.0, done.max())})
    lines, rows = 2 if states is None else 3, len(seen)
    seen, done = seen[:MOST_COMPLETIONS], done[:MOST_COMPLETIONS]
    states = None if states is None else states[:MOST_COMPLETIONS]
    if ax is None:
        width = 0.8 * len(seen) + (2.0 if named is None else 3.0)
        ax = axes_of(None, (width, 0.8 * lines * (shape[0] + 2) / (shape[1] + 2) + 0.3))
    ax = images(np.concatenate((seen, done)), shape, len(seen), ax, **look)
    names = ["observed", "completed"]
    if named is not None:
        _name_states(ax, named, missing=bool(free.any()))
    else:
        upper = _beside(len(seen), 1.02 - 2 / lines, 1.94 / lines)
        color_scale(ax, ax.images[0], _scale_label(own), upper)
    if states is not None:
        names.append("certainty")
        _draw_certainty(ax, states.max(axis=-1), shape, len(seen), named is None)
    _name_lines(ax, names, shape[0] + 2)
    if rows > len(seen):
        ax.set_title(f"the first {len(seen)} of {rows} rows", loc="left")
    return ax


def _scale_label(layer: Layer) -> str:
    """Return the meaning of the posterior means of a layer in words."""
    support = layer.unit.support
    if support is not None and np.array_equal(support, [0.0, 1.0]):
        return f"probability of {state_texts(layer)[1]}"
    return "posterior mean"


def _draw_certainty(
    ax: Axes, certainty: Array, shape: tuple[int, int], columns: int, scale: bool
) -> None:
    """Draw the probabilities of the most probable states below the completions."""
    with needed_by("pgmengine.plots"):
        from matplotlib.pyplot import get_cmap

    mosaic = _mosaic(certainty, shape, columns, 3.0)
    # There are two lines of images above, of the same size.
    above = 2 * len(mosaic)
    low = min(0.5, float(np.nanmin(certainty)))
    picture = ax.imshow(
        mosaic,
        cmap=get_cmap("cividis").with_extremes(bad=MISSING, over="#e8e8e8"),
        vmin=low,
        vmax=1.0,
        interpolation="nearest",
        extent=(-0.5, mosaic.shape[1] - 0.5, above + mosaic.shape[0] - 0.5, above - 0.5),
    )
    ax.set(xlim=(-0.5, mosaic.shape[1] - 0.5), ylim=(above + mosaic.shape[0] - 0.5, -0.5))
    # Beside named states there is no room for a second label.
    label = "certainty" if scale else "prob."
    color_scale(ax, picture, label, _beside(columns, 0.02, 0.27))
