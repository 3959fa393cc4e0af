"""Positions of the nodes of a graph in a picture, and ways for its edges between them.

Nodes stand in lines: parents above children, or, without directed edges, by their distance from a
central node. An edge that passes a line has a bend there, which takes a place in the line as a node
does, so that edges never run through boxes. Sweeps over the lines sort each by the mean place of
the neighbours, as Sugiyama, Tagawa and Toda (1981) do; then nodes move towards their neighbours as
far as boxes do not overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import networkx as nx

# The gap between boxes, the width of a node without a box, and the depth of an arch, in inches.
GAP_INCHES, NARROW_INCHES, ARCH_INCHES = 0.25, 0.2, 0.3

# The distance of lines of boxes, and the width of an edge that passes a line, in inches.
CHANNEL_INCHES, PASS_INCHES = 0.5, 0.12

# The ends of edges are spread over this share of the width of a box.
PORTS = 0.75

# An end of an edge: a node, whether the edge leaves it at its lower side, and the other node.
End: TypeAlias = tuple[Hashable, bool, Hashable]

# Node -> its neighbours.
Near: TypeAlias = Mapping[Hashable, Collection[Hashable]]

# Node -> (x, y) in inches.
Places: TypeAlias = dict[Hashable, tuple[float, float]]

# The corners of an edge: a line to the first one, then by turns a curve and a line.
Route: TypeAlias = list[tuple[float, float]]


@dataclass(frozen=True)
class Bend:
    """The place at which an edge passes a line of boxes."""

    edge: tuple[Hashable, Hashable]
    line: int


@dataclass(frozen=True, eq=False)
class Drawing:
    """The places of nodes, and the route of each edge from its upper to its lower node.

    A route begins and ends at the edge of a box. Its points 0-1, 2-3, ... are joined by vertical
    lines, and its points 1-2, 3-4, ... by curves between two lines of boxes. A route of two points
    is a straight line.
    """

    places: Places
    routes: dict[tuple[Hashable, Hashable], Route]

    def extent(self, boxes: Mapping[Hashable, tuple[float, float]]) -> tuple[float, ...]:
        """Return the left, right, lower and upper end of all boxes and edges."""
        sizes = [(*at, *boxes.get(node, (0.0, 0.0))) for node, at in self.places.items()]
        bends = [
            (x, y - ARCH_INCHES * is_arch(way)) for way in self.routes.values() for x, y in way
        ]
        across = [x + side * wide for x, _, wide, _ in sizes for side in (-0.5, 0.5)]
        upright = [y + side * high for _, y, _, high in sizes for side in (-0.5, 0.5)]
        x, y = across + [x for x, _ in bends], upright + [y for _, y in bends]
        return min(x), max(x), min(y), max(y)


def is_arch(route: Route) -> bool:
    """Whether a route leaves and enters two boxes of one line at their lower edges."""
    return len(route) == 4 and route[1][1] == route[2][1]


def segments(route: Route, arch: float) -> Iterator[Route]:
    """Yield the end of each line of a route, and the three points of each of its curves.

    Lines are vertical, and curves stay within their four points, thus between two lines of boxes.
    `arch` is the depth of an arch, upwards.
    """
    for i, (x, y) in enumerate(route[1:], 1):
        before, level = route[i - 1]
        if i % 2 == 0:
            middle = (level + y) / 2 if level != y else y + arch
            yield [(before, middle), (x, middle), (x, y)]
        # The head of an arrow has no direction on a line without length.
        elif len(route) == 2 or not np.allclose((before, level), (x, y)):
            yield [(x, y)]


def drawing(
    graph: nx.Graph,
    boxes: Mapping[Hashable, tuple[float, float]],
    lines: Sequence[Sequence[Hashable]] | None = None,
) -> Drawing:
    """Return places and routes for boxes of different sizes.

    Parameters
    ----------
    graph : nodes and edges; directed edges lead down, unless their attribute `directed` is false.
    boxes : node -> (width, height) in inches; other nodes are small.
    lines : the nodes of each line from above; by default parents stand above children.
    """
    ranks = [list(nodes) for nodes in lines] if lines is not None else _ranks(graph)
    line = {node: i for i, nodes in enumerate(ranks) for node in nodes}
    # Node, or bend -> its neighbours, in the order of the edges.
    near: dict[Hashable, dict[Hashable, None]] = {node: {} for node in graph}
    bends = dict[tuple[Hashable, Hashable], list[Hashable]]()
    for one, two in graph.edges():
        if one == two:
            continue
        up, down = (one, two) if line[one] <= line[two] else (two, one)
        passed: list[Hashable] = [Bend((up, down), i) for i in range(line[up] + 1, line[down])]
        bends[up, down] = passed
        for bend in passed:
            ranks[bend.line].append(bend)  # type: ignore[attr-defined]
        for above, below in pairwise([up, *passed, down]):
            near.setdefault(above, {})[below] = None
            near.setdefault(below, {})[above] = None
    widths = {node: size[0] for node, size in boxes.items()}
    order = _with_few_crossings(near, ranks)
    x = _across(near, order, widths)
    heights = [max(_height(node, boxes) for node in nodes) for nodes in order]
    tops = -np.concatenate(([0.0], np.cumsum(np.add(heights, CHANNEL_INCHES))))
    ends = [(float(top), float(top) - height) for top, height in zip(tops, heights, strict=False)]
    found = {node: (x[node], sum(ends[line[node]]) / 2) for node in graph}
    beside = {frozenset(pair) for nodes in order for pair in pairwise(nodes)}
    level = {edge for edge in bends if line[edge[0]] == line[edge[1]]}
    straight = {edge for edge in level if frozenset(edge) in beside}
    towards = dict[End, float]()
    for up, down in bends.keys() - straight:
        via = [x[bend] for bend in bends[up, down]] or [x[down], x[up]]
        towards[up, True, down] = via[0]
        towards[down, (up, down) in level, up] = via[-1]
    port = _ports(towards, x, boxes)
    routes = dict[tuple[Hashable, Hashable], Route]()
    for (up, down), passed in bends.items():
        if (up, down) in straight:
            routes[up, down] = _sideways(found, boxes, up, down)
            continue
        first, last = port[up, True, down], port[down, (up, down) in level, up]
        under, half = ends[line[up]][1], _height(down, boxes) / 2
        route = [(first, found[up][1] - _height(up, boxes) / 2), (first, under)]
        for bend in passed:
            route += [(x[bend], end) for end in ends[bend.line]]  # type: ignore[attr-defined]
        if (up, down) in level:
            route += [(last, under), (last, found[down][1] - half)]
        else:
            route += [(last, ends[line[down]][0]), (last, found[down][1] + half)]
        routes[up, down] = route
    return Drawing(found, routes)


def _height(node: Hashable, boxes: Mapping[Hashable, tuple[float, float]]) -> float:
    """Return the height of a node in inches; 0 for nodes without a box."""
    return boxes[node][1] if node in boxes else 0.0


def _ports(
    towards: Mapping[End, float],
    x: Mapping[Hashable, float],
    boxes: Mapping[Hashable, tuple[float, float]],
) -> dict[End, float]:
    """Return the place of each end of an edge: spread over its side, in the order of the edges."""
    sides = dict[tuple[Hashable, bool], list[End]]()
    for end in sorted(towards, key=lambda end: (towards[end], str(end))):
        sides.setdefault(end[:2], []).append(end)
    out = dict[End, float]()
    for (node, _), ends in sides.items():
        wide = PORTS * boxes[node][0] if node in boxes else 0.0
        for i, end in enumerate(ends):
            out[end] = x[node] + wide * ((i + 0.5) / len(ends) - 0.5)
    return out


def _sideways(
    found: Places, boxes: Mapping[Hashable, tuple[float, float]], one: Hashable, two: Hashable
) -> Route:
    """Return the straight route between two boxes that stand side by side."""
    left, right = sorted((one, two), key=lambda node: found[node][0])
    route = []
    for node, sign in ((left, 1.0), (right, -1.0)):
        half = boxes[node][0] / 2 if node in boxes else 0.0
        route.append((found[node][0] + sign * half, found[node][1]))
    return route if left == one else route[::-1]


def _ranks(graph: nx.Graph) -> list[list[Hashable]]:
    """Return the nodes by rank: below all parents, or by the distance from a centre."""
    import networkx as nx

    if graph.is_directed():
        # Only arrows determine ranks, because undirected edges could close a cycle.
        arrows: nx.DiGraph = nx.DiGraph()
        arrows.add_nodes_from(graph)
        edges = graph.edges(data="directed", default=True)
        arrows.add_edges_from((one, two) for one, two, directed in edges if directed)
        graph = arrows
        ranks = [list(nodes) for nodes in nx.topological_generations(graph)]
        depth = {node: i for i, nodes in enumerate(ranks) for node in nodes}
        # A node moves down to just above its nearest child.
        for node in reversed(list(nx.topological_sort(graph))):
            below = [depth[child] for child in graph.successors(node)]
            depth[node] = min(below) - 1 if below else depth[node]
    else:
        depth = {}
        for part in nx.connected_components(graph):
            start = nx.center(graph.subgraph(part))[0] if len(part) < 200 else next(iter(part))
            depth |= nx.single_source_shortest_path_length(graph, start)
    wide = max(6, round(1.3 * np.sqrt(len(graph))))
    by_rank: dict[int, list[Hashable]] = {}
    for node in graph:
        by_rank.setdefault(depth[node], []).append(node)
    out = list[list[Hashable]]()
    for rank in sorted(by_rank):
        nodes = by_rank[rank]
        lines = -(-len(nodes) // wide)
        # A rank of many nodes takes several lines.
        out += [nodes[i::lines] for i in range(lines)]
    return out


def _mean_place(node: Hashable, near: Collection[Hashable], x: Mapping[Hashable, float]) -> float:
    """Return the mean place of the neighbours of a node, or its own if it has none."""
    return sum(x[other] for other in near) / len(near) if near else x[node]


def _with_few_crossings(near: Near, ranks: list[list[Hashable]]) -> list[list[Hashable]]:
    """Return the ranks, each sorted by the mean position of the neighbours of its nodes.

    Reference: Sugiyama, Tagawa and Toda (1981).
    """
    x = {n: i - (len(nodes) - 1) / 2 for nodes in ranks for i, n in enumerate(nodes)}
    for _ in range(24):
        for nodes in (*ranks, *reversed(ranks)):
            middle = {n: _mean_place(n, near[n], x) for n in nodes}
            nodes.sort(key=middle.__getitem__)
            x |= {n: i - (len(nodes) - 1) / 2 for i, n in enumerate(nodes)}
    return ranks


def _across(
    near: Near, order: list[list[Hashable]], widths: Mapping[Hashable, float]
) -> dict[Hashable, float]:
    """Return the place of each node from left to right, near its neighbours, without overlap."""
    half = {
        node: PASS_INCHES / 2
        if isinstance(node, Bend)
        else (widths.get(node, NARROW_INCHES) + GAP_INCHES) / 2
        for nodes in order
        for node in nodes
    }
    x = dict[Hashable, float]()
    for nodes in order:
        at = -sum(half[node] for node in nodes)
        for node in nodes:
            x[node] = at + half[node]
            at += 2 * half[node]
    for _ in range(12):
        for nodes in (*order, *reversed(order)):
            for i, node in enumerate(nodes):
                wish = _mean_place(node, near[node], x)
                low = x[nodes[i - 1]] + half[nodes[i - 1]] + half[node] if i else -np.inf
                high = np.inf
                if i + 1 < len(nodes):
                    high = x[nodes[i + 1]] - half[nodes[i + 1]] - half[node]
                x[node] = min(max(wish, low), max(high, low))
    middle = (max(x.values()) + min(x.values())) / 2
    return {node: at - middle for node, at in x.items()}
