"""Declare a model as a networkx graph of single units, the reverse of from_networkx.py.

A node with the attribute "cpt" has a conditional, whose parents are its predecessors. A node with
the attribute "table" is a factor and not a variable. Its attribute "scope" lists the nodes of its
axes, and its edges join it to these nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.checks import in_range
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.networks.entries import entries_of
from pgmengine.model.structure import Structure
from pgmengine.model.weights import is_sparse
from pgmengine.units import Binary

if TYPE_CHECKING:
    import networkx as nx

    from pgmengine.model.parameters import Parameters


def variable_graph(model: Parameters) -> nx.Graph:
    """Return the graph of single units, with an edge for every pair whose weight is not 0.

    from_networkx normalises a node if and only if all its edges are arrows. Weights of 0 have no
    edge, so that a unit may lack the edges that decide this. Its node then has a conditional
    without parents, and a constant table if it was not normalised. A unit with infinitely many
    values has an edge of weight 0 instead.

    Nodes are labels, or (layer, index), with unit, bias and states; labels that two layers share
    become (layer, label). Rows of a weight are the states of the first node of the edge. A unit
    with a conditional has it as "cpt", with edges from its parents in the order of its axes. A
    noisy gate that is too large for a table is there with its numbers. Other tables are nodes
    ("table", i) with "table", "scope", and an edge from each node of the scope.

    The graph is an nx.DiGraph if it has arrows or conditionals, else an nx.Graph. Undirected edges
    of an nx.DiGraph go one way and have directed=False.
    """
    import networkx as nx

    s = model.structure
    directed = bool(s.arrows) or any(t.conditional for t in s.tables_and_gates)
    graph: nx.Graph = nx.DiGraph() if directed else nx.Graph()
    names = _node_names(s)
    every = [(name, i) for name, layer in s.layers.items() for i in range(layer.size)]
    for name, i in dict.fromkeys([*s.variables, *every]):
        graph.add_node(names[name][i], **_node(model, name, i))
    free = (node for i in count() if (node := ("table", i)) not in graph)
    _add_table_nodes(model, graph, names, free)
    places = list(s.layers)
    for c in s.couplings:
        wa, wb = s.layers[c.a].unit.width, s.layers[c.b].unit.width
        weight, (a, b) = model.weight(c), (c.a, c.b)
        if not c.directed and places.index(a) > places.index(b):
            weight, a, b, wa, wb = weight.T, b, a, wb, wa
        rows, columns = weight.nonzero()
        pairs = {(int(i), int(j)) for i, j in zip(rows // wa, columns // wb, strict=True)}
        endless = s.layers[a].unit.support is None or s.layers[b].unit.support is None
        if endless and (c.directed or (directed and (s.arrows_from[a] or s.arrows_from[b]))):
            added = _without_weight(pairs, (s.layers[a].size, s.layers[b].size), a == b)
            pairs |= added if c.directed else {(min(p), max(p)) if a == b else p for p in added}
        for i, j in sorted(pairs):
            if c.a == c.b and not c.directed and i > j:
                continue
            block = weight[i * wa : (i + 1) * wa][:, j * wb : (j + 1) * wb]
            block = block.toarray() if is_sparse(block) else block
            extra = {"directed": c.directed} if directed else {}
            graph.add_edge(
                names[a][i],
                names[b][j],
                weight=float(block[0, 0]) if wa == wb == 1 else block,
                **extra,
            )
    if directed:
        _keep_normalisation(model, graph, names, free)
    return graph


def _keep_normalisation(
    model: Parameters,
    graph: nx.Graph,
    names: Mapping[str, tuple[Hashable, ...]],
    free: Iterator[Hashable],
) -> None:
    """Give nodes a conditional if they lack the edges that decide whether they are normalised.

    from_networkx normalises a node if and only if all its edges are arrows. A unit without edges
    that decide this gets a conditional without parents, p(x) = h(x) exp(eta x - A). If the unit is
    not normalised, it also gets a table with the entry exp(A).

    Raises
    ------
    PgmError for a bias that is too large for such tables.
    """
    s, arrows = model.structure, [e for e in graph.edges(data="directed") if e[2]]
    met = {node for *ends, kind in graph.edges(data="directed") if kind is False for node in ends}
    into, out_of = {child for _, child, _ in arrows}, {parent for parent, _, _ in arrows}
    for name, layer in s.layers.items():
        unit, bias = layer.unit, model.bias(name).reshape(layer.bias_shape)
        normalised = name in s.directed_layers
        for i, node in enumerate(names[name]):
            if normalised:
                lacks = node not in into and (unit.child_only or node not in out_of)
            else:
                lacks = node in out_of and node not in met
            if unit.support is None or s.conditioned[name][i] or not lacks:
                continue
            data = graph.nodes[node]
            eta = unit.link(bias[i]) if normalised else bias[i]
            prob, total = unit.prob(eta), unit.log_normalizer(eta)
            lost = (prob == 0) & np.isfinite(unit.log_weights(eta))
            if lost.any() or not (normalised or in_range(np.exp(total))):
                raise PgmError(
                    f"node {node!r}: its bias is {bias[i]}, and its weights are 0: as a table it "
                    "would have entries that are 0 or infinite; take a smaller bias"
                )
            data["cpt"] = prob
            del data["bias"]
            if unit.child_only:
                data["unit"] = Binary()
            if not normalised:
                constant = np.full(len(unit.support), np.exp(total))
                _add_factor(graph, free, constant, (node,))


def _without_weight(
    pairs: set[tuple[int, int]], sizes: tuple[int, int], inside: bool
) -> set[tuple[int, int]]:
    """Return pairs of units of two layers, or of one layer, for the units that are in no pair.

    Arrows inside a layer stay acyclic, because a unit without arrows becomes a parent.
    """
    first, second = {i for i, _ in pairs}, {j for _, j in pairs}
    if inside:
        child = min(second, default=sizes[1] - 1)
        return {(i, child) for i in range(sizes[0]) if i not in first | second | {child}}
    added = {(i, 0) for i in range(sizes[0]) if i not in first}
    second |= {j for _, j in added}
    return added | {(0, j) for j in range(sizes[1]) if j not in second}


def _node(model: Parameters, name: str, i: int) -> dict[str, Any]:
    """Return the attributes of the node of a unit; units with a conditional have no bias."""
    layer, bias = model.structure.layers[name], model.bias(name)
    bias = bias.reshape(layer.bias_shape)
    free = not model.structure.conditioned[name][i]
    value = float(bias[i]) if layer.unit.width == 1 else bias[i]
    return {
        "unit": layer.unit,
        **({"bias": value} if free else {}),
        "layer": name,
        "index": i,
        **({"states": layer.state_names} if layer.state_names else {}),
    }


def _add_table_nodes(
    model: Parameters,
    graph: nx.Graph,
    names: Mapping[str, tuple[Hashable, ...]],
    free: Iterator[Hashable],
) -> None:
    """Add conditionals as attributes of their children, and other tables as nodes."""
    for t in model.structure.tables:
        values = entries_of(t.one_by_one(model.entries_of(t)), f"parameter {t.key!r}")
        for units, number in zip(t.index.tolist(), t.numbers.tolist(), strict=True):
            table = values[number]
            scope = tuple(names[layer][i] for layer, i in zip(t.layers, units, strict=True))
            if t.conditional:
                graph.nodes[scope[-1]]["cpt"] = table
                graph.add_edges_from((parent, scope[-1]) for parent in scope[:-1])
                continue
            _add_factor(graph, free, table, scope)
    for one in model.structure.compact_gates:
        for units in one.index.tolist():
            *parents, child = (names[n][i] for n, i in zip(one.layers, units, strict=True))
            graph.nodes[child]["cpt"] = model.formed(one)
            graph.add_edges_from((parent, child) for parent in parents)


def _add_factor(
    graph: nx.Graph, free: Iterator[Hashable], table: Array, scope: tuple[Hashable, ...]
) -> None:
    """Add a node for a table, with an edge from each node of its scope."""
    factor = next(free)
    graph.add_node(factor, table=table, scope=scope)
    graph.add_edges_from((node, factor) for node in scope)


def _node_names(s: Structure) -> dict[str, tuple[Hashable, ...]]:
    """Return layer -> names of its nodes: unique labels, else (layer, label or index)."""
    counts = Counter(label for layer in s.layers.values() for label in layer.labels or ())
    out: dict[str, tuple[Hashable, ...]] = {}
    for name, layer in s.layers.items():
        bare = layer.labels is not None and all(counts[label] == 1 for label in layer.labels)
        out[name] = tuple(
            label if bare else (name, label) for label in layer.labels or range(layer.size)
        )
    return out
