"""The contents of a picture of a model: boxes of layers, arrays or variables, and their edges."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgmengine.apps.pictures.boxes import DETAILED_BOXES, Box, layer_box, unit_box
from pgmengine.declare.pictures.scene import Values
from pgmengine.model.model import Model
from pgmengine.model.parent_order import cycle_of, parents_first
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    import networkx as nx

# Arrays and layers of at most so many units are drawn unit by unit where variables are.
MOST_UNITS = 12

# The name of a place in a drawing: a layer, (layer, unit), or a table.
Node = Hashable


@dataclass(frozen=True, eq=False)
class Contents:
    """The graph that is drawn, with the boxes of its nodes; nodes without a box are tables."""

    graph: nx.Graph
    boxes: dict[Node, Box]
    lines: list[list[Node]] | None = None


def contents(model: Model, values: Values | None) -> Contents:
    """Return layers as boxes, or single units where a model has variables or small arrays."""
    apart = _units_apart(model.structure)
    return _by_unit(model, apart, values) if apart else _by_layer(model.structure, values)


def _layer_edges(s: Structure) -> list[tuple[str, str, bool]]:
    """Return the pairs of layers that couplings and tables join, and whether an arrow does."""
    found = [(c.a, c.b, c.directed) for c in s.couplings]
    for t in s.tables:
        *before, last = t.layers
        found += [(name, last, t.conditional) for name in before]
    return list(dict.fromkeys(found))


def _by_layer(s: Structure, values: Values | None) -> Contents:
    """Return the layers as boxes, one above the other."""
    import networkx as nx

    edges = _layer_edges(s)
    inside = {a: directed for a, b, directed in edges if a == b}
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(s.layers)
    graph.add_edges_from((a, b, {"directed": directed}) for a, b, directed in edges if a != b)
    boxes: dict[Node, Box] = {
        name: layer_box(layer, name, values, inside.get(name)) for name, layer in s.layers.items()
    }
    arrows = [(b, a) for a, b, directed in edges if directed and a != b]
    names = [*s.layers]
    # Children stand below their parents where arrows close no cycle.
    order = names if cycle_of(arrows) else parents_first(names, arrows)
    return Contents(graph, boxes, [[name] for name in reversed(order)])


def _units_apart(s: Structure) -> set[str]:
    """Return the layers whose units have boxes of their own."""
    if not s.variables and not any(layer.is_array for layer in s.layers.values()):
        return set()
    held = {name for name, _ in s.variables}
    return {
        name
        for name, layer in s.layers.items()
        if layer.holds_variables or name in held or layer.size <= MOST_UNITS
    }


def _by_unit(model: Model, apart: set[str], values: Values | None) -> Contents:
    """Return single units of some layers as boxes, and the other layers whole."""
    import networkx as nx

    s, units = model.structure, model.to_networkx("variables")
    node_of: dict[Hashable, Node] = {
        node: (data["layer"], data["index"]) if data["layer"] in apart else data["layer"]
        for node, data in units.nodes(data=True)
        if "table" not in data
    }
    graph: nx.Graph = nx.DiGraph() if units.is_directed() else nx.Graph()
    graph.add_nodes_from(dict.fromkeys(node_of.values()))
    tables = dict[frozenset[Node], Node]()
    for node in units:
        if node in node_of:
            continue
        scope = frozenset(node_of[other] for other in nx.all_neighbors(units, node))
        if len(scope) > 2:
            # Tables over the same boxes are one square.
            node_of[node] = tables.setdefault(scope, node)
        elif len(scope) == 2:
            graph.add_edge(*scope, directed=False)
    for one, two, data in units.edges(data=True):
        if one in node_of and two in node_of:
            directed = units.is_directed() and data.get("directed", True)
            directed = directed and "table" not in {**units.nodes[one], **units.nodes[two]}
            graph.add_edge(node_of[one], node_of[two], directed=directed)
    inside = {one: data["directed"] for one, two, data in graph.edges(data=True) if one == two}
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    names = [node for node in graph if node not in tables.values()]
    detailed = len(names) <= DETAILED_BOXES
    boxes: dict[Node, Box] = {}
    for node in names:
        if isinstance(node, tuple):
            boxes[node] = unit_box(s, node, values, detailed)
        else:
            name = str(node)
            boxes[node] = layer_box(s.layers[name], name, values, inside.get(node))
    return Contents(graph, boxes)
