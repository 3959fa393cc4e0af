"""The parts of a picture with their places in pixels: nodes as bars, strips or cells, and edges.

A variable is a box with a bar for each state. An array of variables, or a layer of units with
several states, is a strip: a column for each unit and a row for each state. A layer or an array of
units with two values is a picture, in the shape of its last two axes, else a square, else lines. A
layer with infinitely many values is a picture of means.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.display import plain
from pgmengine.base.types import Array
from pgmengine.declare.pictures.layout import ARCH_INCHES, Route, drawing
from pgmengine.declare.pictures.sketch import Sketch
from pgmengine.evidence.frames import Shown, state_keys
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    import networkx as nx

# Pixels of an inch, in which the layout counts.
PIXELS_PER_INCH = 96.0

# The depth of an arch, which the layout has upwards.
ARCH_PIXELS = ARCH_INCHES * PIXELS_PER_INCH

# Standard errors on both sides of the end of a bar: 95 % of a normal distribution lie within them.
ERRORS_DRAWN = 2.0

# Heights of the title of a node and of the row of a state, and the margin, in pixels.
TITLE_PIXELS, ROW_PIXELS, MARGIN_PIXELS = 24.0, 18.0, 8.0

# Widths of a bar of probability 1 and of its number, in pixels.
BAR_PIXELS, NUMBER_PIXELS = 72.0, 74.0

# Widths of a capital and of another letter, in pixels.
CAPITAL_PIXELS, LETTER_PIXELS = 8.8, 7.0

# Letters of a name of a state, and of a title, that are drawn.
MAX_STATE_LETTERS, MAX_TITLE_LETTERS = 14, 34

# Units of a strip and of a picture that are drawn.
MAX_STRIP_UNITS, MAX_PICTURE_UNITS = 400, 4096

# The largest number of columns of a picture without a shape of its own, unless it is a square.
MAX_COLUMNS = 32

# The size of a picture that its cells should fill, and the limits of a cell, in pixels.
PICTURE_PIXELS, MIN_CELL_PIXELS, MAX_CELL_PIXELS = 224.0, 6.0, 28.0


class Seen(Enum):
    """How a unit is known, or all units of a layer."""

    INFERRED = "inferred"
    OBSERVED = "observed"
    SOFT = "soft evidence"
    DONE = "set by do()"

    @property
    def fixed(self) -> bool:
        """Whether the state is given."""
        return self in (Seen.OBSERVED, Seen.DONE)


@dataclass(frozen=True, eq=False)
class Values:
    """The numbers of a picture for one row of evidence, by layer.

    Attributes
    ----------
    prob : (size, states) probabilities; layers may be missing.
    mean : (size, components) means.
    observed : (size,) bool, also of units set by do(); layers may be missing.
    intervened, soft : (size,) bool; layers may be missing.
    error : (size, states) standard errors of estimated probabilities; layers may be missing.
    """

    prob: Mapping[str, Array] = field(default_factory=dict)
    mean: Mapping[str, Array] = field(default_factory=dict)
    observed: Mapping[str, Array] = field(default_factory=dict)
    intervened: Mapping[str, Array] = field(default_factory=dict)
    soft: Mapping[str, Array] = field(default_factory=dict)
    error: Mapping[str, Array] = field(default_factory=dict)

    def errors_of(self, layer: str) -> Array:
        """Return the standard errors of a layer's probabilities, 0 where they are exact."""
        found = self.error.get(layer)
        return np.zeros_like(self.prob[layer]) if found is None else found

    def seen(self, layer: str, units: Sequence[int]) -> Seen:
        """Return how units of a layer are known; several count as observed if all of them are."""
        at = [*units]
        if layer in self.intervened and self.intervened[layer][at].any():
            return Seen.DONE
        if layer in self.observed and self.observed[layer][at].all():
            return Seen.OBSERVED
        one = len(at) == 1 and layer in self.soft and self.soft[layer][at[0]]
        return Seen.SOFT if one else Seen.INFERRED


class Form(Enum):
    """The form of a node in a picture."""

    BARS = "bars"
    STRIP = "strip"
    PICTURE = "picture"
    MEANS = "means"


@dataclass(frozen=True)
class Node:
    """A node with the place of its box.

    Attributes
    ----------
    number : its number in the sketch.
    title, name : the text above its parts, and its whole name.
    layer : the layer of its units.
    units : the units that are drawn.
    names : the name of each of them.
    states : the names of the states; none if there are infinitely many.
    form : how it is drawn.
    columns : the units in a line.
    cell : the width and the height of a cell, in pixels.
    indent : the width of the names of the states, in pixels.
    x, y, width, height : its box, in pixels.
    """

    number: int
    title: str
    name: str
    layer: str
    units: tuple[int, ...]
    names: tuple[str, ...]
    states: tuple[str, ...]
    form: Form
    columns: int
    cell: tuple[float, float]
    indent: float
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def left(self) -> float:
        """The left end of its cells, in pixels."""
        return self.x + MARGIN_PIXELS + self.indent


@dataclass(frozen=True)
class Edge:
    """An edge between nodes: its route in pixels, and whether its end has the head of an arrow."""

    route: Route
    arrow: bool


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture: nodes, edges, places (x, y) of factors, and the size of the whole in pixels."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    factors: tuple[tuple[float, float], ...]
    width: float
    height: float

    @property
    def marks(self) -> int:
        """The number of bars and cells."""
        return sum(
            len(n.units) * (1 if n.form in (Form.PICTURE, Form.MEANS) else len(n.states))
            for n in self.nodes
        )


def scene(structure: Structure, drawn: Sketch, chosen: Collection[int]) -> Scene:
    """Return the picture of some nodes of a sketch."""
    nodes = [_node(structure, drawn, i) for i in sorted(chosen)]
    graph = drawn.graph(chosen)
    boxes: dict[Hashable, tuple[float, float]] = {
        n.number: (n.width / PIXELS_PER_INCH, n.height / PIXELS_PER_INCH) for n in nodes
    }
    found = drawing(graph, boxes, _lines(drawn, graph))
    left, right, low, high = (x * PIXELS_PER_INCH for x in found.extent(boxes))

    def placed(point: tuple[float, float]) -> tuple[float, float]:
        # The layout has the y axis upwards and its origin in the middle.
        x, y = (MARGIN_PIXELS + PIXELS_PER_INCH * at for at in (point[0], -point[1]))
        return x - left, y + high

    out = list[Node]()
    for n in nodes:
        x, y = placed(found.places[n.number])
        out.append(Node(**{**vars(n), "x": x - n.width / 2, "y": y - n.height / 2}))
    edges = (Edge([placed(point) for point in way], arrow) for way, arrow in drawn.edges(found))
    factors = (placed(found.places[n]) for n in graph if n not in boxes)
    width, height = right - left + 2 * MARGIN_PIXELS, high - low + 2 * MARGIN_PIXELS
    return Scene(tuple(out), tuple(edges), tuple(factors), width, height)


def _lines(drawn: Sketch, graph: nx.DiGraph) -> list[list[Hashable]] | None:
    """Return the lines of layers without arrows: the first layer, the visible one, is below.

    None if there are arrows or variables, for which the layout chooses.
    """
    layers = all(
        node in range(len(drawn.nodes)) and not drawn.nodes[node].variable for node in graph
    )
    if not layers or any(kind for *_, kind in graph.edges(data="directed")):
        return None
    import networkx as nx

    depth: dict[Hashable, int] = {}
    for part in nx.weakly_connected_components(graph):
        depth |= nx.single_source_shortest_path_length(graph.to_undirected(), min(part))
    deepest = max(depth.values())
    return [[n for n in graph if depth[n] == line] for line in range(deepest, -1, -1)]


def _node(structure: Structure, drawn: Sketch, number: int) -> Node:
    """Return a node with its size, and without its place."""
    shown = drawn.nodes[number]
    layer, variable = shown.layer, shown.variable or shown.layer.is_variable
    finite = bool(structure.state_counts[layer.name])
    states = tuple(plain(key) for key in state_keys(layer)) if finite else ()
    form, columns = _form(shown, len(states)), len(shown.units)
    most = MAX_STRIP_UNITS if form is Form.STRIP else MAX_PICTURE_UNITS
    units = shown.units[:most]
    cell, indent = (BAR_PIXELS, ROW_PIXELS), 0.0
    if form in (Form.BARS, Form.STRIP):
        indent = 2 * MARGIN_PIXELS + max(_wide(state[:MAX_STATE_LETTERS]) for state in states)
    if form is Form.STRIP:
        cell = min(max(480.0 / len(units), MIN_CELL_PIXELS), 22.0), ROW_PIXELS
    elif form is not Form.BARS:
        columns = _columns(shown)
        lines = -(-len(units) // columns)
        side = PICTURE_PIXELS / max(columns, lines)
        cell = (min(max(side, MIN_CELL_PIXELS), MAX_CELL_PIXELS),) * 2
    name = plain(shown.name)
    title = name if variable else f"{name} · {' × '.join(f'{n:,}' for n in layer.grid)}"
    title += " · means" if form is Form.MEANS else ""
    title += f" · first {len(units)}" if len(units) < len(shown.units) else ""
    title += " · coupled inside" if number in drawn.inside else ""
    title = title if len(title) <= MAX_TITLE_LETTERS else f"{title[: MAX_TITLE_LETTERS - 1]}…"
    if form is Form.BARS:
        wide, high = indent + BAR_PIXELS + NUMBER_PIXELS, ROW_PIXELS * len(states)
    else:
        wide = indent + min(columns, len(units)) * cell[0] + 2 * MARGIN_PIXELS
        rows = len(states) if form is Form.STRIP else -(-len(units) // columns)
        high = rows * cell[1]
    names = tuple(name if variable else structure.names.of((layer.name, u)) for u in units)
    return Node(
        number,
        title,
        name,
        layer.name,
        units,
        names,
        states,
        form,
        columns,
        cell,
        indent,
        max(wide, _wide(title) + 4 * MARGIN_PIXELS),
        TITLE_PIXELS + high + MARGIN_PIXELS,
    )


def _wide(text: str) -> float:
    """Return about the width of a text in pixels."""
    return sum(CAPITAL_PIXELS if letter.isupper() else LETTER_PIXELS for letter in text)


def _form(shown: Shown, states: int) -> Form:
    """Return the form of a node with so many states, 0 if there are infinitely many."""
    if not states:
        return Form.MEANS
    if shown.variable or (shown.layer.size == 1 and states > 1):
        return Form.BARS
    # The states of a chain with two states have names that a picture would not show.
    line = len(shown.layer.grid) == 1 and shown.layer.is_array
    return Form.PICTURE if states == 2 and not line else Form.STRIP


def _columns(shown: Shown) -> int:
    """Return the number of units in a line of a picture: the last axis, a square, or lines."""
    if len(shown.layer.grid) > 1:
        return shown.layer.grid[-1]
    size = len(shown.units)
    return side_of_square(size) or min(size, MAX_COLUMNS)


def side_of_square(size: int) -> int:
    """Return the side of a square of so many units, or 0; a layer without a shape is drawn so."""
    side = math.isqrt(size)
    return side if side * side == size and side > 1 else 0
