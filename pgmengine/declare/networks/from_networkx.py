"""Declare a model from a networkx graph of single variables, which become units of layers.

A node with the attribute "cpt" has a conditional, whose parents are its predecessors. A node with
the attribute "table" is a factor and not a variable. Its attribute "scope" lists the nodes of its
axes, and its edges join it to these nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.names import is_sequence, nearest, slip_of
from pgmengine.base.types import Array, Weight
from pgmengine.declare.validate import check_settings, check_unit_room
from pgmengine.model.containers import as_floats
from pgmengine.model.forms.table_forms import Formed
from pgmengine.model.graph.parent_order import cycle_of
from pgmengine.model.names.variables import Variable, free_name
from pgmengine.units import Unit

if TYPE_CHECKING:
    import networkx as nx

    from pgmengine.declare.builder import GraphBuilder

# The attributes that are read.
NODE, FACTOR, EDGE = ("bias", "unit", "states", "cpt"), ("table", "scope"), ("weight",)
OWN = (*NODE, *FACTOR, *EDGE)
# Common words for attributes of other programs that are one letter away from one of these.
OTHER_WORDS = ("status", "height", "cat")


def add_variables(b: GraphBuilder, graph: nx.Graph, unit: Unit) -> None:
    """Add the variables of a graph to a builder.

    Nodes that are strings, with tables or conditionals and without weighted edges, become
    variables. Other nodes become units of layers: colour classes "c0", "c1", ... of an nx.Graph,
    and topological generations "g0", "g1", ... of an nx.DiGraph; a number is appended if a node has
    this name. Units of different types, or with different names of states, get separate layers in a
    class. The nodes become the labels of the units, in the order of the graph.
    """
    _check_graph(graph)
    _check_attributes(graph)
    _check_directed(graph)
    families, tables = _families(graph), _tables(graph)
    nodes: nx.Graph = graph.copy()
    nodes.remove_nodes_from([node for node, data in graph.nodes(data=True) if "table" in data])
    counts = _counts(families, tables)
    units = {node: _unit(node, data, unit, counts) for node, data in nodes.nodes(data=True)}
    states = {node: _names_of_states(node, data) for node, data in nodes.nodes(data=True)}
    edges = [
        edge for edge in nodes.edges(data=True) if not _into_conditional(edge, graph, families)
    ]
    coupled = {node for one, two, _ in edges for node in (one, two)}
    # True and 1 are equal in Python, but different names of states.
    kinds: dict[Hashable, tuple[Any, ...]] = {
        node: (units[node], states[node], tuple(map(type, states[node] or ()))) for node in nodes
    }
    if graph.is_directed():
        # Roots of arrows are normalised only if their layer has no other units and no conditionals.
        kinds = {node: (*k, node in coupled, node in families) for node, k in kinds.items()}
    members = _groups(nodes, kinds)
    named = {
        node
        for node in nodes
        if node in counts and node not in coupled and _is_variable(nodes, node, units, states)
    }
    for node in nodes:
        if node in named:
            b.variable(node, states[node] or counts[node])
    kept = {name: [node for node in m if node not in named] for name, m in members.items()}
    members = {name: m for name, m in kept.items() if m}
    # Units are named by their labels: a node that is an integer could be the number of another
    # unit.
    place = {node: (name, node) for name, m in members.items() for node in m}
    for name, m in members.items():
        bias = [graph.nodes[node].get("bias", np.zeros(units[node].width).squeeze()) for node in m]
        b.layer(name, units[m[0]], len(m), bias=bias, labels=m, states=states[m[0]])
    _add_edges(b, nodes, edges, members, units)
    member = {node: place.get(node, str(node)) for node in nodes}
    for child, (parents, values) in families.items():
        b.conditional(member[child], [member[p] for p in parents], values)
    for scope, values in tables:
        b.table([member[node] for node in scope], values)


def _check_graph(graph: object) -> None:
    """Raise PgmError unless the argument is a graph with nodes, and not a multigraph."""
    import networkx as nx

    takes = "from_networkx takes an nx.Graph or nx.DiGraph with at least one node"
    if not isinstance(graph, nx.Graph):
        what = f"the class {graph.__name__}" if isinstance(graph, type) else type(graph).__name__
        raise PgmError(f"{takes}, not {what}")
    if graph.is_multigraph():
        raise PgmError(
            f"{takes}, not {type(graph).__name__}, in which a pair of nodes may have several "
            "edges; add up their weights into one edge each"
        )
    if not len(graph):
        raise PgmError(f"{takes}, not a graph without nodes")


def _add_edges(
    b: GraphBuilder,
    graph: nx.Graph,
    edges: list[tuple[Hashable, Hashable, dict[str, Any]]],
    members: dict[str, list[Hashable]],
    units: dict[Hashable, Unit],
) -> None:
    """Add the weighted edges of a graph as couplings between the layers of its nodes."""
    place = {node: (name, i) for name, nodes in members.items() for i, node in enumerate(nodes)}
    blocks: dict[tuple[str, str], list[tuple[int, int, Array]]] = {}
    for one, two, data in edges:
        (a, i), (c, j) = place[one], place[two]
        weight = _weight(data.get("weight", 1.0), (units[one].width, units[two].width), (one, two))
        if not graph.is_directed() and list(members).index(a) > list(members).index(c):
            (a, i), (c, j), weight = (c, j), (a, i), weight.T
        blocks.setdefault((a, c), []).append((i, j, weight))
    for (a, c), entries in blocks.items():
        wa, wc = units[members[a][0]].width, units[members[c][0]].width
        matrix = _sparse(entries, wa, wc, len(members[a]), len(members[c]))
        (b.cause if graph.is_directed() else b.couple)(a, c, weight=matrix)


Family = tuple[tuple[Hashable, ...], Array | Formed]


def _families(graph: nx.Graph) -> dict[Hashable, Family]:
    """Return node -> (parents, values) of the nodes with a conditional."""
    out: dict[Hashable, Family] = {}
    for node, data in graph.nodes(data=True):
        if "cpt" not in data:
            continue
        before = graph.predecessors(node) if graph.is_directed() else ()
        parents = tuple(n for n in before if "table" not in graph.nodes[n])
        values, what = data["cpt"], f"node {node!r}: cpt"
        if isinstance(values, Mapping):
            if set(values) != {"parents", "values"} or isinstance(values["parents"], str):
                raise PgmError(f"{what} must be an array, or a dict with 'parents' and 'values'")
            given, values = tuple(values["parents"]), values["values"]
            if graph.is_directed() and set(given) != set(parents):
                raise PgmError(
                    f"{what} has the parents {given!r}, the graph has edges from {parents!r}"
                )
            parents = given
        array = values if isinstance(values, Formed) else as_floats(values, what)
        if len(array.shape) != len(parents) + 1:
            raise PgmError(
                f"{what} has {len(array.shape)} axes, expected {len(parents) + 1}: one for each of "
                f"the parents {parents!r} in order, then the node"
            )
        _check_scope(graph, (*parents, node), what)
        out[node] = parents, array
    return out


def _tables(graph: nx.Graph) -> list[Family]:
    """Return (scope, values) of the nodes that are factors."""
    import networkx as nx

    out = list[Family]()
    for node, data in graph.nodes(data=True):
        if "table" not in data:
            continue
        what = f"node {node!r}: table"
        scope, array = data.get("scope"), as_floats(data["table"], what)
        if isinstance(scope, str) or not isinstance(scope, Iterable):
            raise PgmError(f"{what} needs the attribute 'scope', a list of nodes, not {scope!r}")
        scope = tuple(scope)
        if array.ndim != len(scope):
            raise PgmError(
                f"{what} has {array.ndim} axes, expected {len(scope)}, one for each node"
            )
        _check_scope(graph, scope, what)
        around = set(nx.all_neighbors(graph, node))
        if not around <= set(scope):
            other = next(n for n in around if n not in scope)
            raise PgmError(f"{what} has an edge to {other!r}, which is not in its scope {scope!r}")
        out.append((scope, array))
    return out


def _check_scope(graph: nx.Graph, scope: Iterable[Hashable], what: str) -> None:
    """PgmError unless all members of a scope are nodes of variables."""
    for node in scope:
        if node not in graph or "table" in graph.nodes[node]:
            raise PgmError(f"{what}: {node!r} is no variable of the graph{nearest(node, graph)}")


def _counts(families: Mapping[Hashable, Family], tables: Iterable[Family]) -> dict[Hashable, int]:
    """Return the number of states of the nodes in tables and conditionals."""
    scopes = [((*parents, child), values) for child, (parents, values) in families.items()]
    return {
        node: count
        for scope, values in (*tables, *scopes)
        for node, count in zip(scope, values.shape, strict=True)
    }


def _unit(
    node: Hashable, data: Mapping[str, Any], default: Unit, counts: Mapping[Hashable, int]
) -> Unit:
    """Return the unit of a node: its attribute, the default, or one to fit its table."""
    one = data.get("unit", default)
    if not isinstance(one, Unit):
        raise PgmError(f"node {node!r}: the unit must be one such as Binary(), not {one!r}")
    check_settings(one, f"node {node!r}")
    check_unit_room(one, f"node {node!r}")
    if "unit" in data or node not in counts:
        return one
    fits = one.support is not None and len(one.support) == counts[node]
    return one if fits or not counts[node] else Variable(str(node), counts[node]).unit


def _is_variable(
    graph: nx.Graph,
    node: Hashable,
    units: Mapping[Hashable, Unit],
    states: Mapping[Hashable, tuple[Any, ...] | None],
) -> bool:
    """Whether GraphBuilder.variable can declare a node without loss."""
    unit, names = units[node], states[node]
    count = 0 if unit.support is None else len(unit.support)
    return (
        isinstance(node, str)
        and bool(node)
        and count > 0
        and unit == Variable(node, count).unit
        and not np.any(np.asarray(graph.nodes[node].get("bias", 0.0)) != 0)
        and (names is None or (len(names) == count and all(isinstance(n, str) for n in names)))
    )


def _into_conditional(
    edge: tuple[Hashable, Hashable, dict[str, Any]],
    graph: nx.Graph,
    families: Mapping[Hashable, Family],
) -> bool:
    """Whether an edge leads from a parent to a node with a conditional, without a weight."""
    one, two, data = edge
    inside = graph.is_directed() and two in families
    if inside and "weight" in data:
        raise PgmError(
            f"edge {one!r}, {two!r} has a weight, and node {two!r} has a cpt: remove one"
        )
    return inside


def _check_attributes(graph: nx.Graph) -> None:
    """PgmError for attributes that are ours in a place where they mean nothing, or mistyped.

    Attributes of other programs, such as "pos", are left alone.
    """
    factors = {node for node, data in graph.nodes(data=True) if "table" in data}
    nodes = (
        (f"node {node!r}", data, FACTOR if node in factors else NODE)
        for node, data in graph.nodes(data=True)
    )
    edges = (
        (f"edge {a!r}, {b!r}", data, () if factors.intersection((a, b)) else EDGE)
        for a, b, data in graph.edges(data=True)
    )
    for what, data, read in (*nodes, *edges):
        for name in data:
            if name in read or name in OTHER_WORDS:
                continue
            if name in OWN:
                raise PgmError(
                    f"{what}: attribute {name!r} has no meaning here, and its value would be lost; "
                    f"{_place_of(name)}: remove it from the graph, or rename it"
                )
            if near := slip_of(name, OWN):
                raise PgmError(
                    f"{what}: attribute {name!r} is unknown; did you mean {near}? If it is "
                    "another program's, rename it, or remove it from the graph"
                )


def _place_of(name: str) -> str:
    """Return the place where an attribute has a meaning, for a message."""
    if name in EDGE:
        return "it belongs to edges between variables"
    if name in FACTOR:
        return "it belongs to nodes that are factors, with both 'table' and 'scope'"
    return "it belongs to nodes that are variables"


def _check_directed(graph: nx.Graph) -> None:
    """PgmError for undirected edges of an nx.DiGraph, which `Model.to_networkx` writes."""
    for one, two, directed in graph.edges(data="directed", default=True):
        if graph.is_directed() and not directed:
            raise PgmError(
                f"edge {one!r}, {two!r} is undirected: declare arrows and undirected edges "
                "together with a GraphBuilder"
            )


def _names_of_states(node: Hashable, data: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the names of the states of a node, if it has any."""
    if "states" not in data:
        return None
    try:
        if not is_sequence(data["states"]):
            raise TypeError
        names = tuple(data["states"])
        hash(names)
    except TypeError:
        raise PgmError(
            f"node {node!r}: states must be a list of names, not {data['states']!r}, which have an "
            "order"
        ) from None
    return names


def _groups(graph: nx.Graph, units: dict[Hashable, Any]) -> dict[str, list[Hashable]]:
    """Return layer -> its nodes, which share colour or generation, and the type of unit."""
    import networkx as nx

    if graph.is_directed():
        if cycle := cycle_of(graph.edges()):
            raise PgmError(f"the graph has a directed cycle: {' -> '.join(map(str, cycle))}")
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
    out, taken = dict[str, list[Hashable]](), set(graph)
    for c, u in order:
        name = f"{letter}{c}" + (f"_{kinds[c].index(u)}" if len(kinds[c]) > 1 else "")
        name = free_name(name, taken)
        taken.add(name)
        out[name] = keys[c, u]
    return out


def _weight(given: object, shape: tuple[int, int], edge: tuple[Hashable, Hashable]) -> Array:
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
