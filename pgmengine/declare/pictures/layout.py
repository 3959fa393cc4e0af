"""Positions of the nodes of a graph in a picture: ranks, orders with few crossings, columns.

Nodes stand in ranks: parents above children, or, without directed edges, by their distance from a
central node. Sweeps over the ranks sort each by the mean place of the neighbours, as Sugiyama,
Tagawa and Toda (1981) do; then nodes move towards their neighbours as far as boxes do not overlap.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeAlias

import networkx as nx
import numpy as np

# The height of a rank, the gap between boxes, and the width of a node without a box, in inches.
RANK_INCHES, GAP_INCHES, NARROW_INCHES = 0.95, 0.25, 0.2


# Node -> (x, y) in inches.
Places: TypeAlias = dict[Hashable, tuple[float, float]]


def places(graph: nx.Graph, widths: Mapping[Hashable, float]) -> Places:
    """Return node -> (x, y) in inches: ranks from above, in an order with few crossings."""
    ranks = _ranks(graph)
    order = _with_few_crossings(graph, ranks)
    place = Places()
    for depth, nodes in enumerate(order):
        total = sum(widths.get(n, NARROW_INCHES) + GAP_INCHES for n in nodes) - GAP_INCHES
        x = -total / 2
        for node in nodes:
            wide = widths.get(node, NARROW_INCHES)
            place[node] = x + wide / 2, -RANK_INCHES * depth
            x += wide + GAP_INCHES
    return _near_neighbours(graph, order, place, widths)


def _ranks(graph: nx.Graph) -> list[list[Hashable]]:
    """Return the nodes by rank: below all parents, or by the distance from a centre."""
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


def _with_few_crossings(graph: nx.Graph, ranks: list[list[Hashable]]) -> list[list[Hashable]]:
    """Return the ranks, each sorted by the mean position of the neighbours of its nodes.

    Reference: Sugiyama, Tagawa and Toda (1981).
    """
    x = {n: i - (len(nodes) - 1) / 2 for nodes in ranks for i, n in enumerate(nodes)}
    for _ in range(24):
        for nodes in (*ranks, *reversed(ranks)):
            near = {n: [x[m] for m in nx.all_neighbors(graph, n)] for n in nodes}
            middle = {n: float(np.mean(near[n])) if near[n] else x[n] for n in nodes}
            nodes.sort(key=middle.__getitem__)
            x |= {n: i - (len(nodes) - 1) / 2 for i, n in enumerate(nodes)}
    return ranks


def _near_neighbours(
    graph: nx.Graph, order: list[list[Hashable]], place: Places, widths: Mapping[Hashable, float]
) -> Places:
    """Return positions nearer to those of the neighbours, without overlap of boxes."""
    x = {node: p[0] for node, p in place.items()}
    for _ in range(12):
        for nodes in order:
            half = [widths.get(n, NARROW_INCHES) / 2 + GAP_INCHES / 2 for n in nodes]
            for i, node in enumerate(nodes):
                near = [x[m] for m in nx.all_neighbors(graph, node)]
                wish = float(np.mean(near)) if near else x[node]
                low = x[nodes[i - 1]] + half[i - 1] + half[i] if i else -np.inf
                high = x[nodes[i + 1]] - half[i + 1] - half[i] if i + 1 < len(nodes) else np.inf
                x[node] = min(max(wish, low), max(high, low))
    middle = (max(x.values()) + min(x.values())) / 2
    return {node: (x[node] - middle, p[1]) for node, p in place.items()}
