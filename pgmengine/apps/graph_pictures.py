"""Pictures of models: layers as boxes, or named variables in ranks with their marginals."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.declare.pictures.layout import NARROW_INCHES, places
from pgmengine.declare.summary import layer_text
from pgmengine.evidence.names import Place
from pgmengine.infer.results.result import Result
from pgmengine.model.model import Model
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The width of a letter in a drawing of variables, in inches.
LETTER_INCHES = 0.085

# The distances from the middle of a box to its lower and upper edge, in inches.
BELOW_BOX_INCHES, ABOVE_BOX_INCHES = 0.16, 0.2

LINE_COLOR = "#35618f"


def axes_of(ax: Axes | None, size: tuple[float, float] = (6.0, 4.0)) -> Axes:
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


def state_colors(count: int) -> Array:
    """Return a colour (4,) for each of some states."""
    with needed_by("pgmengine.plots"):
        import matplotlib as mpl

    colors: Array = mpl.colormaps["viridis"](np.linspace(0.1, 0.95, max(count, 2)))
    return colors


def layers_drawn(model: Model, ax: Axes | None) -> Axes:
    """Draw the layers as boxes."""
    s, ax = model.structure, axes_of(ax, (4.0, 0.9 * len(model.structure.layers)))
    edges = layer_edges(s)
    inside = {a for a, b, _ in edges if a == b}
    place = {name: (0.0, float(i)) for i, name in enumerate(_children_first(s, edges))}
    box = {"boxstyle": "round,pad=0.5", "facecolor": "#eef3fa", "edgecolor": LINE_COLOR}
    for a, b, directed in edges:
        if a == b:
            continue
        bend = 0.0 if abs(place[a][1] - place[b][1]) == 1 else 0.5
        _edge(ax, place[a], place[b], directed, 16, connectionstyle=f"arc3,rad={bend}")
    for name, layer in s.layers.items():
        own = " (coupled inside)" if name in inside else ""
        text = f"{name}: {layer_text(layer)}{own}"
        ax.text(*place[name], text, ha="center", va="center", bbox=box)
    ax.set(xlim=(-1.5, 1.5), ylim=(-0.5, len(place) - 0.5))
    ax.set_axis_off()
    return ax


def layer_edges(s: Structure) -> list[tuple[str, str, bool]]:
    """Return the pairs of layers that couplings and tables join, and whether an arrow does."""
    found = [(c.a, c.b, c.directed) for c in s.couplings]
    for t in s.tables:
        *before, last = t.layers
        found += [(name, last, t.conditional) for name in before]
    return list(dict.fromkeys(found))


def _children_first(s: Structure, edges: list[tuple[str, str, bool]]) -> list[str]:
    """Return the layers, children before their parents where arrows close no cycle."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(s.layers)
    graph.add_edges_from((b, a) for a, b, directed in edges if directed and a != b)
    if not nx.is_directed_acyclic_graph(graph):
        return list(s.layers)
    return list(nx.lexicographical_topological_sort(graph, key=list(s.layers).index))


def _edge(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    directed: bool,
    shrink: float,
    **look: Any,
) -> None:
    """Draw a line or an arrow that ends so many points before its nodes, behind their boxes."""
    style = {"arrowstyle": "-|>" if directed else "-", "shrinkA": shrink, "shrinkB": shrink}
    ax.annotate("", end, start, arrowprops={**style, "color": LINE_COLOR, **look}, zorder=1)


def variables_drawn(model: Model, ax: Axes | None, result: Result | None, row: int) -> Axes:
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
    ax = axes_of(ax, (max(2 * across, 3.0), down + 1.0))
    for one, two, data in nodes.edges(data=True):
        arrow = nodes.is_directed() and data.get("directed", True) and two in widths
        (x1, y1), (x2, y2) = place[one], place[two]
        # Arrows lead from the lower edge of a box to the upper edge of another one, so that their
        # heads are visible.
        start = x1, y1 - BELOW_BOX_INCHES * arrow
        end = x2, y2 + ABOVE_BOX_INCHES * arrow
        _edge(ax, start, end, arrow, 0, lw=0.8, alpha=0.7)
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
    if result is None or unit[0] not in result.raw("prob"):
        return
    prob = np.asarray(result.raw("prob")[unit[0]])
    shares = (prob[row] if prob.ndim == 3 else prob)[unit[1]].tolist()
    colors = state_colors(len(shares))
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
