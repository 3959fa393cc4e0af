"""The graph of a picture: variables and layers as nodes, and the pairs of nodes that are joined.

A node is a variable, an array of variables, or a layer. Tables, couplings and gates join units; the
sketch keeps one edge for each pair of nodes that they join, so that a chain of any length is two
nodes. A table without a direction over three or more nodes is a factor, a small node of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.types import Array
from pgmengine.declare.pictures.layout import Drawing, Route
from pgmengine.evidence.frames import Shown, shown_units
from pgmengine.model.graph.unit_graph import joined_units
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False)
class Sketch:
    """The nodes of a picture by their numbers, and what joins them.

    Attributes
    ----------
    nodes : variables and layers.
    arrows : (parent, child).
    lines : pairs that are joined without a direction, the smaller number first.
    factors : the nodes of each table over three or more nodes without a direction.
    inside : the nodes whose own units are joined, and whether arrows join them.
    """

    nodes: tuple[Shown, ...]
    arrows: frozenset[tuple[int, int]]
    lines: frozenset[tuple[int, int]]
    factors: tuple[tuple[int, ...], ...]
    inside: Mapping[int, bool]

    def around(self, node: int) -> list[int]:
        """Return a node with its parents, its children, their other parents, and its partners."""
        parents = {a for a, b in self.arrows if b == node}
        children = {b for a, b in self.arrows if a == node}
        others = {a for a, b in self.arrows if b in children}
        partners = {n for pair in (*self.lines, *self.factors) if node in pair for n in pair}
        near = [*sorted(parents), *sorted(children), *sorted(partners), *sorted(others)]
        return list(dict.fromkeys([node, *near]))

    def near(self, node: int, enough: int, most: int) -> list[int]:
        """Return a node with those around it, and with those around them while they are few.

        It has at most `most` nodes, and goes on to further ones while it has fewer than `enough`.
        """
        found, edge = [node], [node]
        while edge and len(found) < enough:
            next_to = dict.fromkeys(n for one in edge for n in self.around(one))
            edge = [n for n in next_to if n not in found]
            if len(found) > 1 and len(found) + len(edge) > most:
                break
            found += edge
        return found[:most]

    def edges(self, placed: Drawing) -> Iterator[tuple[Route, bool]]:
        """Yield the route of each edge in its direction, and whether it is an arrow."""
        for ends, route in placed.routes.items():
            both = [pair for pair in (ends, ends[::-1]) if pair in self.arrows]
            yield from ((route if pair == ends else route[::-1], True) for pair in both)
            if not both:
                yield route, False

    def graph(self, chosen: Collection[int]) -> nx.DiGraph:
        """Return the graph of some nodes for the layout; factors are nodes ("factor", number).

        Arrows on a cycle, as between two arrays that depend on each other's earlier steps, count
        as undirected there.
        """
        import networkx as nx

        graph: nx.DiGraph = nx.DiGraph()
        graph.add_nodes_from(sorted(chosen))
        graph.add_edges_from(sorted(pair for pair in self.arrows if {*pair} <= {*chosen}))
        cycles = {
            n: i for i, part in enumerate(nx.strongly_connected_components(graph)) for n in part
        }
        for a, b in graph.edges():
            graph.edges[a, b]["directed"] = cycles[a] != cycles[b]
        for pair in sorted(self.lines):
            if (
                {*pair} <= {*chosen}
                and not graph.has_edge(*pair)
                and not graph.has_edge(*pair[::-1])
            ):
                graph.add_edge(*pair, directed=False)
        for i, scope in enumerate(self.factors):
            if {*scope} <= {*chosen}:
                graph.add_edges_from((("factor", i), n, {"directed": False}) for n in scope)
        return graph


def sketch(
    structure: Structure, apart: Collection[str] = (), model: Parameters | None = None
) -> Sketch:
    """Return the nodes and edges of the picture of a model.

    The units of the layers `apart` are nodes of their own, and weights of the model other than 0
    are edges between them.
    """
    nodes = tuple(_nodes(structure, apart))
    owner = {name: np.zeros(layer.size, dtype=int) for name, layer in structure.layers.items()}
    for i, node in enumerate(nodes):
        owner[node.layer.name][list(node.units)] = i
    arrows, lines = set[tuple[int, int]](), set[tuple[int, int]]()
    factors = dict[tuple[int, ...], None]()
    for scope, conditional in _scopes(structure, owner):
        if conditional:
            arrows |= {(n, scope[-1]) for n in scope[:-1]}
            continue
        members = sorted({*scope})
        if len(members) > 2:
            factors[tuple(members)] = None
        elif len(scope) > 1:
            lines.add((members[0], members[-1]))
    for c in structure.couplings:
        if model is not None and {c.a, c.b} & {*apart}:
            one, two = joined_units(structure, c, model.weight(c))
            pairs = {*zip(owner[c.a][one].tolist(), owner[c.b][two].tolist(), strict=True)}
        else:
            pairs = {*product({*owner[c.a].tolist()}, {*owner[c.b].tolist()})}
        if c.directed:
            arrows |= pairs
        else:
            lines |= {(min(pair), max(pair)) for pair in pairs}
    inside = {a: kind is arrows for kind in (lines, arrows) for a, b in kind if a == b}
    far_arrows, far_lines = (
        frozenset((a, b) for a, b in kind if a != b) for kind in (arrows, lines)
    )
    return Sketch(nodes, far_arrows, far_lines, tuple(factors), inside)


def _nodes(structure: Structure, apart: Collection[str]) -> Iterator[Shown]:
    """Yield layers, arrays and variables, and the units of layers that are apart."""
    for x in shown_units(structure):
        if x.variable or x.layer.name not in apart:
            yield x
            continue
        for unit, label in zip(x.units, x.labels, strict=True):
            name = structure.names.of((x.layer.name, unit))
            yield Shown(name, x.layer, (unit,), (label,), True)


def _scopes(
    structure: Structure, owner: dict[str, Array]
) -> Iterable[tuple[tuple[int, ...], bool]]:
    """Yield the different scopes of tables and gates as numbers of nodes; the child is last."""
    for t in structure.tables_and_gates:
        axes = [owner[name][t.index[:, axis]] for axis, name in enumerate(t.layers)]
        for scope in sorted(set(zip(*(axis.tolist() for axis in axes), strict=True))):
            yield scope, t.conditional
