"""Graphs of single variables: grouped into layers on reading, taken apart on writing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.names import nearest
from pgmengine.base.types import Array, Weight
from pgmengine.graph.structure import Structure
from pgmengine.graph.validate import as_floats, check_settings, check_unit_room
from pgmengine.graph.weights import is_sparse
from pgmengine.units import Unit

if TYPE_CHECKING:
    from pgmengine.graph.builder import GraphBuilder
    from pgmengine.graph.model import Model

# The attributes that are read, and with them the attributes that variable_graph writes.
NODE, EDGE = ("bias", "unit", "states"), ("weight",)
OF_NODES = {*NODE, "layer", "index"}
OF_EDGES = {*EDGE, "directed"}


def add_variables(b: GraphBuilder, graph: nx.Graph, unit: Unit) -> None:
    """Add the variables of a graph to a builder as layers.

    Layers are colour classes "c0", "c1", ... of an nx.Graph, and topological generations "g0",
    "g1", ... of an nx.DiGraph. Node attributes: bias (default 0; k numbers for Categorical), unit
    (default `unit`), and states, the names of its states. Edge attribute: weight (default 1;
    between Categorical units a matrix, its rows the states of the parent, or in an nx.Graph of the
    node that the graph has first). Units of different types, or with other names of states, get
    layers of their own in one class. The nodes become the labels of the units, in the order of the
    graph. Attributes of other names are refused, except for the attributes that variable_graph
    writes.
    """
    if not isinstance(graph, nx.Graph) or graph.is_multigraph() or not len(graph):
        raise PgmError("from_networkx takes an nx.Graph or nx.DiGraph with at least one node")
    _check_attributes(graph)
    units = {node: data.get("unit", unit) for node, data in graph.nodes(data=True)}
    for node, one in units.items():
        if not isinstance(one, Unit):
            raise PgmError(f"node {node!r}: the unit must be one such as Binary(), not {one!r}")
        check_settings(one, f"node {node!r}")
        check_unit_room(one, f"node {node!r}")
    states = {node: _names_of_states(node, data) for node, data in graph.nodes(data=True)}
    members = _groups(graph, {node: (units[node], states[node]) for node in graph})
    place = {node: (name, i) for name, nodes in members.items() for i, node in enumerate(nodes)}
    for name, nodes in members.items():
        bias = [
            graph.nodes[node].get("bias", np.zeros(units[node].width).squeeze()) for node in nodes
        ]
        b.layer(name, units[nodes[0]], len(nodes), bias=bias, labels=nodes, states=states[nodes[0]])
    blocks: dict[tuple[str, str], list[tuple[int, int, Array]]] = {}
    for one, two, data in graph.edges(data=True):
        (a, i), (c, j) = place[one], place[two]
        if graph.is_directed() and not data.get("directed", True):
            raise PgmError(
                f"edge {one!r}, {two!r} is undirected: declare arrows and undirected edges "
                "together with a GraphBuilder"
            )
        weight = _weight(data.get("weight", 1.0), (units[one].width, units[two].width), (one, two))
        if not graph.is_directed() and list(members).index(a) > list(members).index(c):
            (a, i), (c, j), weight = (c, j), (a, i), weight.T
        blocks.setdefault((a, c), []).append((i, j, weight))
    for (a, c), entries in blocks.items():
        wa, wc = units[members[a][0]].width, units[members[c][0]].width
        matrix = _sparse(entries, wa, wc, len(members[a]), len(members[c]))
        (b.cause if graph.is_directed() else b.couple)(a, c, weight=matrix)


def _check_attributes(graph: nx.Graph) -> None:
    """PgmError for attributes that are not read, because they may be mistyped."""
    nodes = ((f"node {node!r}", data, NODE, OF_NODES) for node, data in graph.nodes(data=True))
    edges = ((f"edge {a!r}, {b!r}", data, EDGE, OF_EDGES) for a, b, data in graph.edges(data=True))
    for what, data, read, known in (*nodes, *edges):
        if unknown := [name for name in data if name not in known]:
            raise PgmError(
                f"{what}: attribute {unknown[0]!r} is unknown{nearest(unknown[0], read)}; expected "
                f"{', '.join(read)}: rename it, or remove it from the graph"
            )


def _names_of_states(node: Hashable, data: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the names of the states of a node, if it has any."""
    if "states" not in data:
        return None
    try:
        names = tuple(data["states"])
        hash(names)
    except TypeError:
        raise PgmError(
            f"node {node!r}: states must be a list of names, not {data['states']!r}"
        ) from None
    return names


def _groups(graph: nx.Graph, units: dict[Hashable, Any]) -> dict[str, list[Hashable]]:
    """Return layer -> its nodes: classes of colour or generation, and of unit in these."""
    if graph.is_directed():
        if not nx.is_directed_acyclic_graph(graph):
            cycle = [edge[0] for edge in nx.find_cycle(graph)]
            raise PgmError(
                f"the graph has a directed cycle: {' -> '.join(map(str, [*cycle, cycle[0]]))}"
            )
        color = {
            node: i for i, nodes in enumerate(nx.topological_generations(graph)) for node in nodes
        }
    else:
        loop = next(nx.selfloop_edges(graph), None)
        if loop is not None:
            raise PgmError(f"node {loop[0]!r} is coupled with itself; remove this edge")
        color = (
            nx.bipartite.color(graph)
            if nx.is_bipartite(graph)
            else nx.greedy_color(graph, strategy="DSATUR")
        )
    keys: dict[tuple[int, Any], list[Hashable]] = {}
    for node in graph:
        keys.setdefault((color[node], units[node]), []).append(node)
    letter = "g" if graph.is_directed() else "c"
    kinds = {c: [u for cc, u in keys if cc == c] for c, _ in keys}
    order = sorted(keys, key=lambda key: (key[0], kinds[key[0]].index(key[1])))
    return {
        f"{letter}{c}" + (f"_{kinds[c].index(u)}" if len(kinds[c]) > 1 else ""): keys[c, u]
        for c, u in order
    }


def _weight(given: Any, shape: tuple[int, int], edge: tuple[Hashable, Hashable]) -> Array:
    """Return the weight of an edge, (states of its first node, states of its second node)."""
    what = f"edge {edge[0]!r}, {edge[1]!r}: weight"
    weight = as_floats(given, what)
    if weight.ndim and weight.shape != shape:
        raise PgmError(f"{what} has shape {weight.shape}, expected a number or {shape}")
    return np.broadcast_to(weight, shape)


def _sparse(entries: list[tuple[int, int, Array]], wa: int, wc: int, na: int, nc: int) -> Weight:
    """Return the weight (na * wa, nc * wc) of blocks (wa, wc) between units of two layers."""
    from scipy.sparse import csr_array

    blocks = np.array([w for _, _, w in entries])
    i, j = np.array([e[0] for e in entries]), np.array([e[1] for e in entries])
    rows = (i[:, None, None] * wa + np.arange(wa)[:, None]) + np.zeros((1, 1, wc), dtype=int)
    columns = (j[:, None, None] * wc + np.arange(wc)) + np.zeros((1, wa, 1), dtype=int)
    return csr_array((blocks.ravel(), (rows.ravel(), columns.ravel())), shape=(na * wa, nc * wc))


def variable_graph(model: Model) -> nx.Graph:
    """Return the graph of single units, with an edge for every pair whose weight is not 0.

    Nodes are labels, or (layer, index), with unit, bias and states; labels that two layers share
    become (layer, label). Rows of a weight are the states of the node that comes first. The graph
    is an nx.DiGraph if all couplings are arrows, an nx.Graph if none is; with both it is an
    nx.DiGraph whose undirected edges go one way and have directed=False.
    """
    s = model.structure
    graph: nx.Graph = nx.DiGraph() if s.arrows else nx.Graph()
    names = _node_names(s)
    for name, layer in s.layers.items():
        bias = model.params[f"{name}.bias"]
        for i, node in enumerate(names[name]):
            graph.add_node(
                node,
                unit=layer.unit,
                bias=float(bias[i]) if layer.unit.width == 1 else bias[i],
                layer=name,
                index=i,
                **({"states": layer.state_names} if layer.state_names else {}),
            )
    places = list(s.layers)
    for c in s.couplings:
        wa, wb = s.layers[c.a].unit.width, s.layers[c.b].unit.width
        weight, (a, b) = model.weight(c), (c.a, c.b)
        if not c.directed and places.index(a) > places.index(b):
            weight, a, b, wa, wb = weight.T, b, a, wb, wa
        rows, columns = weight.nonzero()
        units = {(int(i), int(j)) for i, j in zip(rows // wa, columns // wb, strict=True)}
        for i, j in sorted(units):
            if c.a == c.b and not c.directed and i > j:
                continue
            block = weight[i * wa : (i + 1) * wa][:, j * wb : (j + 1) * wb]
            block = block.toarray() if is_sparse(block) else block
            extra = {"directed": c.directed} if s.arrows else {}
            graph.add_edge(
                names[a][i],
                names[b][j],
                weight=float(block[0, 0]) if wa == wb == 1 else block,
                **extra,
            )
    return graph


def _node_names(s: Structure) -> dict[str, tuple[Hashable, ...]]:
    """Return layer -> names of its nodes: labels, (layer, label) if shared, or (layer, index)."""
    counts = Counter(label for layer in s.layers.values() for label in layer.labels or ())
    out: dict[str, tuple[Hashable, ...]] = {}
    for name, layer in s.layers.items():
        bare = layer.labels is not None and all(counts[label] == 1 for label in layer.labels)
        out[name] = tuple(
            label if bare else (name, label) for label in layer.labels or range(layer.size)
        )
    return out
