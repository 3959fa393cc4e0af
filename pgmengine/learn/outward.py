"""The order in which contrastive divergence visits the layers: outward from the data."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from pgmengine.graph.target import Target


def outward(target: Target, given: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the layers with data that are not given, and the others by their distance from these.

    A layer that moves after the layers on its way from the data depends on them within one sweep;
    given layers let nothing through.
    """
    s = target.structure
    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(name for name in s.layers if name not in given)
    graph.add_edges_from((c.a, c.b) for c in s.couplings if c.a in graph and c.b in graph)
    data = {name for name in graph if not target.pattern.all_free[name]}
    far = nx.multi_source_dijkstra_path_length(graph, data) if data else {}
    order = [name for color in s.colors for name in color]
    rest = [name for name in order if name not in data]
    rest.sort(key=lambda name: far.get(name, len(order)))
    return tuple(n for n in order if n in data), tuple(rest)
