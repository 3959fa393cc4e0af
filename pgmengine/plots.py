"""Pictures of models, answers and learning (extra "plots").

Every function draws on the Axes `ax`, or on new ones, and returns the Axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.apps.curves import autocorrelation, bound_gap, history, levels
from pgmengine.apps.graph_pictures import axes_of, layers_drawn, state_colors, variables_drawn
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.infer.results.by_name import asked
from pgmengine.infer.results.result import Result
from pgmengine.model.model import Model, ModelLike, as_model
from pgmengine.units import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "autocorrelation",
    "bound_gap",
    "completions",
    "graph",
    "history",
    "images",
    "levels",
    "receptive_fields",
    "samples",
]


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

    pixels = np.atleast_2d(np.asarray(rows, dtype=np.float64))
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
    frame = 3 * high - 2 * low
    framed = [np.pad(row.reshape(shape), 1, constant_values=frame) for row in pixels]
    framed += [np.full((shape[0] + 2, shape[1] + 2), frame)] * (-len(framed) % columns)
    mosaic = np.block([framed[i : i + columns] for i in range(0, len(framed), columns)])
    width = max(0.7 * columns, 3.0)
    ax = axes_of(ax, (width, width * len(framed) / columns**2))
    colors = get_cmap(imshow.pop("cmap", "gray_r")).with_extremes(bad="#bcd3ec", over="#e8e8e8")
    settings: dict[str, Any] = {"cmap": colors, "interpolation": "nearest"}
    if "norm" not in imshow:
        settings |= {"vmin": low, "vmax": high}
    ax.imshow(mosaic, **(settings | imshow))
    ax.set_axis_off()
    return ax


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
    return images(fields, shape, columns, ax, cmap="RdBu_r", vmin=-top, vmax=top)


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
    for each state in the order of the colours of `graph`.

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
    own = None if result.target is None else result.target.structure.layers.get(layer)
    if own is not None:
        # Layers of several axes have their draws in this shape.
        drawn = own.shaped(own.flat(drawn))
    if drawn.ndim > 2:
        unit = _unit(result, layer)
        lost = np.asarray(np.isnan(drawn).any(axis=-1))
        drawn = np.where(lost, np.nan, unit.state_of(np.where(lost[..., None], 0.0, drawn)))
        look = _colors_of_states(unit)
    by_chain = drawn.reshape(len(result.stats.get("energy", (0,))), -1, drawn.shape[1])
    draws = by_chain.shape[1]
    picked = by_chain[:chains, np.linspace(0, draws - 1, min(times, draws)).astype(int)]
    return images(picked.reshape(-1, drawn.shape[1]), shape, picked.shape[1], ax, **look)


def _unit(result: Result, layer: str) -> Unit:
    """Return the unit of a layer or variable; raise PgmError unless its states are known."""
    s = asked(result.target).structure
    unit = (s.names.layer_of(layer) or s.names.layer(layer)).unit
    if unit.support is None:
        raise PgmError(
            f"layer {layer!r} has {unit!r} units, whose values have {unit.width} components and no "
            "states, and cannot be drawn as one image"
        )
    return unit


def _colors_of_states(unit: Unit) -> dict[str, Any]:
    """Return arguments of `images` that draw numbers of states in the colours of the states."""
    with needed_by("pgmengine.plots"):
        from matplotlib.colors import ListedColormap

    assert unit.support is not None
    count = max(len(unit.support), 2)
    return {"cmap": ListedColormap(state_colors(count)), "vmin": -0.5, "vmax": count - 0.5}


def completions(result: Result, layer: str, shape: tuple[int, int], ax: Axes | None = None) -> Axes:
    """Draw the evidence above its completion by posterior means, a column for each row.

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
    values = target.structure.names.layer(layer).shaped(target.evidence.values[layer])
    if values.ndim > 2:
        unit = _unit(result, layer)
        states = np.where(free, np.nan, unit.state_of(values))
        best = np.reshape(result.prob[layer], (*free.shape, -1)).argmax(axis=-1)
        both = np.concatenate((states, np.where(free, best, states)))
        return images(both, shape, len(states), ax, **_colors_of_states(unit))
    seen = np.where(free, np.nan, values)
    # For a layer of one variable, answers by name have probabilities of states in place of a mean.
    mean = np.reshape(result.raw("mean")[layer], seen.shape)
    low, high = min(0.0, mean.min()), max(1.0, mean.max())
    return images(np.concatenate((seen, mean)), shape, len(seen), ax, vmin=low, vmax=high)


def graph(
    model: ModelLike, result: Result | None = None, ax: Axes | None = None, row: int = 0
) -> Axes:
    """Draw a model: its layers as boxes, or its named variables with their tables.

    Layers have parents above children. Arrows are directed couplings, and lines are undirected
    ones. Layers without arrows between them stand in the order of their declaration, from the
    bottom up.

    A model with named variables is drawn variable by variable, in ranks, parents above children;
    tables of two variables are lines, and tables of more are small squares. With a result, a bar
    in each box has the marginal probabilities, a colour for each state, the first state on the
    left, and the frames of observed variables are thick. Units of layers beside the variables are
    drawn as well; units with infinitely many values have no bars.

    Parameters
    ----------
    model : the model to draw.
    result : marginals of this model.
    ax : where to draw; new Axes by default, whose size grows with the number of variables.
    row : the row of evidence of the result that is drawn.

    Raises
    ------
    PgmError
        If `result` is not a result, has no marginals or no such row, or belongs to another model.

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.graph(pgm.dbn([12, 8, 4], rng=0))
    """
    model = as_model(model)
    if result is not None and not isinstance(result, Result):
        raise PgmError(
            f"result must be a Result of pgm.infer, not {type(result).__name__}; give Axes as ax="
        )
    if model.structure.variables:
        if result is not None:
            _check_result(model, result, row)
        return variables_drawn(model, ax, result, row)
    return layers_drawn(model, ax)


def _check_result(model: Model, result: Result, row: int) -> None:
    """Raise PgmError unless a result has marginals of the units of a model in this row."""
    s = asked(result.target).structure
    if s.layers != model.structure.layers:
        theirs, ours = (listed([*map(str, x.names.declared())]) for x in (s, model.structure))
        raise PgmError(
            f"the result belongs to another model, with {theirs}; expected one with {ours}, and "
            "the same states and sizes"
        )
    rows = asked(result.target).rows
    if isinstance(row, bool) or not isinstance(row, (int, np.integer)) or not 0 <= row < rows:
        raise PgmError(f"row {row!r} is no row of the result, expected 0..{rows - 1}")
