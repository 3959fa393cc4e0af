"""Pictures of models, answers and learning (extra "plots").

Every function draws on the Axes `ax`, or on new ones, and returns the Axes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.apps.graph_layout import NARROW_INCHES, places
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.diagnostics import autocorrelation_function
from pgmengine.evidence.names import Place
from pgmengine.infer.results.result import Result
from pgmengine.learn.fit import Fit
from pgmengine.model.model import Model, ModelLike, as_model
from pgmengine.units import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Name of a monitored value -> {"update": (n,), "value": (n,)}.
History: TypeAlias = Mapping[str, Mapping[str, ArrayLike]]


def _axes(ax: Axes | None, size: tuple[float, float] = (6.0, 4.0)) -> Axes:
    """Return the Axes, or new ones of this size in inches; raise PgmError for another object."""
    if ax is not None:
        if not hasattr(ax, "transAxes"):
            raise PgmError(
                f"ax must be Axes of matplotlib, not {type(ax).__name__}; give arguments by name"
            )
        return ax
    with needed_by("pgmengine.plots"):
        import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="tight")[1]


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
    ax = _axes(ax, (width, width * len(framed) / columns**2))
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
    model, key = as_model(model), f"{coupling}.weight"
    if key not in model.params:
        known = [c.key for c in model.structure.couplings]
        raise PgmError(f"coupling {coupling!r} is unknown; the couplings are {listed(known)}")
    weight = model.params[key]
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
    if result.target is None:
        raise PgmError(
            f"states of {layer!r} are drawn, which the result of a method's own run does not know; "
            "ask by pgm.infer"
        )
    s = result.target.structure
    unit = (s.names.layer_of(layer) or s.names.layer(layer)).unit
    if unit.support is None:
        raise PgmError(
            f"layer {layer!r} has {unit!r} units, whose values have {unit.width} components and no "
            "states, and cannot be drawn as one image"
        )
    return unit


def _state_colors(count: int) -> Array:
    """Return a colour (4,) for each of some states."""
    with needed_by("pgmengine.plots"):
        import matplotlib as mpl

    colors: Array = mpl.colormaps["viridis"](np.linspace(0.1, 0.95, max(count, 2)))
    return colors


def _colors_of_states(unit: Unit) -> dict[str, Any]:
    """Return arguments of `images` that draw numbers of states in the colours of the states."""
    with needed_by("pgmengine.plots"):
        from matplotlib.colors import ListedColormap

    assert unit.support is not None
    count = max(len(unit.support), 2)
    return {"cmap": ListedColormap(_state_colors(count)), "vmin": -0.5, "vmax": count - 0.5}


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
    if result.target is None:
        raise PgmError("the result has no evidence; ask by pgm.infer")
    s, free = result.target.structure, result.target.free[layer]
    values = s.names.layer(layer).shaped(result.target.evidence.values[layer])
    if values.ndim > 2:
        unit = _unit(result, layer)
        states = np.where(free, np.nan, unit.state_of(values))
        best = np.reshape(result.prob[layer], (*free.shape, -1)).argmax(axis=-1)
        both = np.concatenate((states, np.where(free, best, states)))
        return images(both, shape, len(states), ax, **_colors_of_states(unit))
    seen = np.where(free, np.nan, values)
    # For a layer of one variable, `answers` has its mean; answers by name have probabilities of
    # states.
    means = result.answers if "mean" in result.answers else {"mean": result.mean}
    mean = np.reshape(means["mean"][layer], seen.shape)
    low, high = min(0.0, mean.min()), max(1.0, mean.max())
    return images(np.concatenate((seen, mean)), shape, len(seen), ax, vmin=low, vmax=high)


def history(
    fits: Fit | History | Sequence[Fit | History],
    name: str,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Draw a monitored value against updates.

    Parameters
    ----------
    fits : a result of pgm.fit, or its history. Several of them give their mean, with a band of two
        standard errors.
    name : the monitored value.
    ax : where to draw; new Axes by default.
    label : text of the legend, the name by default.

    Raises
    ------
    PgmError
        For a value that was not monitored.

    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> norms = pgm.WeightNorms(every=5)
    >>> f = pgm.fit(
    ...     pgm.rbm(16, 4, rng=0), {"v": x}, updates=20, callbacks=[norms], progress=False
    ... )
    >>> ax = pgm.plots.history(f, "norm v-h.weight")
    """
    several = [fits] if isinstance(fits, (Fit, Mapping)) else fits
    histories = [f.history if isinstance(f, Fit) else f for f in several]
    if missing := [h for h in histories if name not in h]:
        there = f"there is {', '.join(missing[0])}" if missing[0] else "give callbacks= to fit"
        raise PgmError(f"{name!r} was not monitored; {there}")
    found = [h[name] for h in histories]
    ax = _axes(ax)
    values = np.stack([np.asarray(h["value"], dtype=np.float64) for h in found])
    mean = values.mean(axis=0)
    line = ax.plot(found[0]["update"], mean, label=label or name)[0]
    if len(found) > 1:
        error = 2 * values.std(axis=0, ddof=1) / np.sqrt(len(found))
        ax.fill_between(
            found[0]["update"], mean - error, mean + error, alpha=0.25, color=line.get_color()
        )
    ax.set(xlabel="updates", ylabel=name)
    return ax


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
    ax = _axes(ax)
    betas = np.atleast_2d(result.stats["betas"])
    levels = result.stats["levels"][:, row, chain]
    ax.step(np.arange(len(levels)), betas[row if len(betas) > 1 else 0, levels], lw=0.7)
    ax.axvspan(0, int(np.sum(result.stats["adaptive"])), alpha=0.15, color="gray")
    ax.set(xlabel="sweep", ylabel="beta")
    return ax


def autocorrelation(
    series: Result | ArrayLike, lags: int = 100, ax: Axes | None = None, label: str | None = None
) -> Axes:
    """Draw the autocorrelation function of a series, or of the energies of chains.

    Parameters
    ----------
    series : (draws,), or an answer of chains: the mean over the chains of the first row of
        evidence.
    lags : the largest lag, in sweeps.
    ax : where to draw; new Axes by default.
    label : text of the legend.

    Raises
    ------
    PgmError
        For the result of a method without chains.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> ax = pgm.plots.autocorrelation(np.random.default_rng(0).normal(size=500))
    """
    if not isinstance(series, Result):
        chains = [np.asarray(series)]
    elif "energy" in series.stats:
        chains = list(series.stats["energy"][:, :, 0])
    else:
        raise PgmError(f"a Result of {type(series.method).__name__} has no chains with energies")
    curves = np.array([autocorrelation_function(chain)[: lags + 1] for chain in chains])
    ax = _axes(ax)
    ax.plot(curves.mean(axis=0), label=label)
    ax.axhline(0.0, color="gray", lw=0.5)
    ax.set(xlabel="lag, sweeps", ylabel="autocorrelation of the energy")
    return ax


def bound_gap(bound: ArrayLike, exact: ArrayLike, ax: Axes | None = None, bins: int = 40) -> Axes:
    """Draw a histogram of the relative error of bounds, bound / exact - 1, in per cent.

    Parameters
    ----------
    bound, exact : (n,), bounds of log-likelihoods and their exact values.
    ax : where to draw; new Axes by default.
    bins : number of bins.

    References
    ----------
    Saul, Jaakkola and Jordan (1996), "Mean field theory for sigmoid belief networks", figure 5.

    >>> import pgmengine as pgm
    >>> ax = pgm.plots.bound_gap([-4.1, -4.3], [-4.0, -4.2])
    """
    ax = _axes(ax)
    ax.hist(100 * (np.asarray(bound) / np.asarray(exact) - 1), bins=bins)
    ax.set(xlabel="relative error of the bound, %", ylabel="count")
    return ax


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
        return _variables(model, ax, result, row)
    return _layers(model, ax)


def _check_result(model: Model, result: Result, row: int) -> None:
    """Raise PgmError unless a result has marginals of the units of a model in this row."""
    if result.target is None:
        raise PgmError("the result has no target: give a result of infer or of a prepared question")
    if result.target.structure.layers != model.structure.layers:
        theirs, ours = (
            listed([*map(str, s.names.declared())])
            for s in (result.target.structure, model.structure)
        )
        raise PgmError(
            f"the result belongs to another model, with {theirs}; expected one with {ours}, and "
            "the same states and sizes"
        )
    rows = result.target.rows
    if isinstance(row, bool) or not isinstance(row, (int, np.integer)) or not 0 <= row < rows:
        raise PgmError(f"row {row!r} is no row of the result, expected 0..{rows - 1}")


def _layers(model: Model, ax: Axes | None) -> Axes:
    """Draw the layers as boxes."""
    s, ax = model.structure, _axes(ax, (4.0, 0.9 * len(model.structure.layers)))
    inside = {c.a for c in s.couplings if c.a == c.b}
    place = {name: (0.0, float(i)) for i, name in enumerate(s.children_first)}
    box = {"boxstyle": "round,pad=0.5", "facecolor": "#eef3fa", "edgecolor": "#35618f"}
    for c in s.couplings:
        if c.a == c.b:
            continue
        bend = 0.0 if abs(place[c.a][1] - place[c.b][1]) == 1 else 0.5
        ax.annotate(
            "",
            place[c.b],
            place[c.a],
            arrowprops={
                "arrowstyle": "-|>" if c.directed else "-",
                "shrinkA": 16,
                "shrinkB": 16,
                "color": "#35618f",
                "connectionstyle": f"arc3,rad={bend}",
            },
        )
    for name, layer in s.layers.items():
        own = ", coupled inside" if name in inside else ""
        ax.text(
            *place[name],
            f"{name}: {layer.size} {layer.unit!r}{own}",
            ha="center",
            va="center",
            bbox=box,
        )
    ax.set(xlim=(-1.5, 1.5), ylim=(-0.5, len(place) - 0.5))
    ax.set_axis_off()
    return ax


# The width of a letter in a drawing of variables, in inches.
LETTER_INCHES = 0.085

# The distances from the middle of a box to its lower and upper edge, in inches.
BELOW_BOX_INCHES, ABOVE_BOX_INCHES = 0.16, 0.2

LINE_COLOR = "#35618f"


def _variables(model: Model, ax: Axes | None, result: Result | None, row: int) -> Axes:
    """Draw named variables in ranks."""
    nodes = model.to_networkx("variables")
    units: dict[Hashable, Place] = {
        node: (data["layer"], data["index"])
        for node, data in nodes.nodes(data=True)
        if "table" not in data
    }
    names = {node: model.structure.names.of(place) for node, place in units.items()}
    widths = {node: 0.3 + LETTER_INCHES * max(len(name), 4) for node, name in names.items()}
    place = places(nodes, widths)
    across = max(abs(x) + widths.get(node, NARROW_INCHES) / 2 for node, (x, _) in place.items())
    down = max(-y for _, y in place.values())
    ax = _axes(ax, (max(2 * across, 3.0), down + 1.0))
    for one, two, data in nodes.edges(data=True):
        arrow = nodes.is_directed() and data.get("directed", True) and two in widths
        (x1, y1), (x2, y2) = place[one], place[two]
        style = "-|>" if arrow else "-"
        look = {"arrowstyle": style, "shrinkA": 0, "shrinkB": 0, "color": LINE_COLOR, "lw": 0.8}
        # Arrows lead from the lower edge of a box to the upper edge of another one, so that their
        # heads are visible.
        ends = (
            ((x2, y2 + ABOVE_BOX_INCHES), (x1, y1 - BELOW_BOX_INCHES))
            if arrow
            else ((x2, y2), (x1, y1))
        )
        ax.annotate("", *ends, arrowprops={**look, "alpha": 0.7}, zorder=1)
    for node, name in names.items():
        _variable(ax, name, (*place[node], widths[node]), units[node], result, row)
    for x, y in (place[node] for node in nodes if node not in widths):
        ax.plot([x], [y], "s", color=LINE_COLOR, markersize=4, zorder=2)
    ax.set(xlim=(-across - 0.2, across + 0.2), ylim=(-down - 0.5, 0.5))
    ax.set_axis_off()
    return ax


def _variable(
    ax: Axes,
    name: str,
    at: tuple[float, float, float],
    unit: Place,
    result: Result | None,
    row: int,
) -> None:
    """Draw the box of a variable at (x, y, width), with its marginal."""
    with needed_by("pgmengine.plots"):
        from matplotlib.patches import Rectangle

    x, y, wide = at
    seen = result is not None and _observed(result, unit, row)
    box = Rectangle(
        (x - wide / 2, y - BELOW_BOX_INCHES),
        wide,
        BELOW_BOX_INCHES + ABOVE_BOX_INCHES,
        facecolor="#eef3fa",
        zorder=3,
    )
    box.set(edgecolor=LINE_COLOR, linewidth=2.2 if seen else 0.8)
    ax.add_patch(box)
    ax.text(x, y + (0.05 if result else 0.02), name, ha="center", va="center", fontsize=8, zorder=5)
    if result is None or unit[0] not in result.prob:
        return
    prob = np.asarray(result.prob[unit[0]])
    shares = (prob[row] if prob.ndim == 3 else prob)[unit[1]].tolist()
    colors = _state_colors(len(shares))
    left = x - wide / 2
    for share, color in zip(shares, colors, strict=False):
        part = Rectangle(
            (left, y - BELOW_BOX_INCHES), wide * share, 0.11, facecolor=color, zorder=4
        )
        ax.add_patch(part)
        left += wide * share


def _observed(result: Result, unit: Place, row: int) -> bool:
    """Return whether a unit is observed in a row of the evidence of a result."""
    return result.target is not None and not bool(result.target.free[unit[0]][row, unit[1]])
