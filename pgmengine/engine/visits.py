"""The order in which a sweep visits layers, and the layers that it can draw as a whole."""

from __future__ import annotations

from itertools import combinations

from pgmengine import _kernels
from pgmengine.base.work.cache import remembered
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.target import Target
from pgmengine.model.structure import Structure

# The most layers for which DSATUR colours the graph; its time grows with their square.
DSATUR_LAYERS = 200


@remembered
def colors(s: Structure) -> tuple[tuple[str, ...], ...]:
    """Return the colour classes of layers, which sweeps visit in this order.

    Layers of one class share neither a coupling nor a child, so that they may move together. In a
    bipartite graph, such as a deep Boltzmann machine, the layers at odd distances from the first
    layer come first, then the layers at even distances. Other graphs are coloured greedily.
    """
    import networkx as nx

    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(s.layers)
    graph.add_edges_from((c.a, c.b) for c in s.couplings if c.a != c.b)
    graph.add_edges_from((a, b) for t in s.tables for a, b in combinations(t.layers, 2) if a != b)
    # The normaliser of a child depends on all its parents together.
    for child in s.layers:
        parents = sorted({c.a for c in s.arrows_into[child]} - {child})
        graph.add_edges_from((p, q) for i, p in enumerate(parents) for q in parents[i + 1 :])
    if nx.is_bipartite(graph):
        color = dict.fromkeys(nx.isolates(graph), 0)
        for part in nx.connected_components(graph):
            first = min(part, key=list(s.layers).index)
            far = nx.single_source_shortest_path_length(graph, first)
            color |= {n: (far[n] + 1) % 2 for n in part if n not in color}
    else:
        # The time of DSATUR grows with the square of the number of layers.
        few = len(graph) <= DSATUR_LAYERS
        color = nx.greedy_color(graph, strategy="DSATUR" if few else "largest_first")
    return tuple(tuple(n for n in s.layers if color[n] == c) for c in sorted(set(color.values())))


def visited(target: Target) -> tuple[tuple[str, ...], ...]:
    """Return the layers in the order of a sweep; layers of one tuple may move together."""
    return tuple((name,) for name in target.order) or colors(target.structure)


def marginalised_layers(target: Target, backward: bool) -> frozenset[str]:
    """Return the layers that a sweep draws first, all at once.

    Their states before the sweep have no effect on the states after it. There is no such layer if
    the sweep visits its first layers unit by unit.
    """
    free = target.pattern.some_free
    visits = [[n for n in names if free[n]] for names in visited(target)]
    first = next((names for names in (visits[::-1] if backward else visits) if names), [])
    return frozenset() if target.pattern.by_unit & set(first) else frozenset(first)


@remembered
def drawable(pattern: EvidencePattern) -> bool:
    """Whether the compiled sweeps of whole layers can draw all units that move."""
    s = pattern.structure
    if s.tables:
        return False
    drawn = {x.unit for name, x in s.layers.items() if pattern.some_free[name]}
    drawn |= {s.layers[name].unit for name in s.layers if s.arrows_into[name]}
    # Chains keep states instead of values, so that a unit with several components must be one-hot.
    return all(unit.draw is not None for unit in drawn) and all(
        (x.unit.support is None or 2 <= len(x.unit.support) <= _kernels.MOST_STATES)
        and (x.unit.width == 1 or x.unit.one_hot)
        for x in s.layers.values()
    )
