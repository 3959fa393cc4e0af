"""Covers: free units given which all other free units are independent, at the lowest cost.

Two free units are in conflict when a coupling joins them. If the log density contains the
normaliser of a child, all free parents of the child have to be in the cover, because the normaliser
couples them. The other units are chosen by a minimum-weight vertex cover of the conflicts, where a
unit weighs log2(number of its states). Units of a layer with equal neighbours are in the cover
together or not at all, so they are merged before the search: a dense layer is one vertex.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, Weight
from pgmengine.evidence.relevance import barren, forced_units, has_soft
from pgmengine.evidence.target import Target, check_one
from pgmengine.model.couplings import Coupling

Vertex = tuple[str, int]
Groups = dict[str, list[Array]]

# With more vertices, the search solves the linear relaxation in place of the integer program. With
# more edges, it is greedy.
MAX_SEARCHED_VERTICES, MAX_RELAXED_EDGES = 400, 20_000

# With more groups of merged units, there is no search.
MAX_SEARCHED_GROUPS = 4000


@dataclass(frozen=True, eq=False)
class Cover:
    """The indices of the free units of each layer, by the way in which the sum treats them."""

    # Units whose states are enumerated.
    units: dict[str, Array]
    # Units that are summed out one by one, given a state of the cover.
    rest: dict[str, Array]
    # Units that are left out, because they sum to one.
    barren: dict[str, Array]
    # log2 of the number of states.
    bits: float
    # The sum over the cover units of the number of their states minus 1.
    indicators: int
    # Numbers that enumeration updates at each state: for `rest`, for children and for indicators.
    columns: int

    @property
    def described(self) -> str:
        """The states in words, for plans."""
        if not self.bits > 0:
            return "all free units are independent"
        units = [f"{len(i)} units of {n!r}" for n, i in self.units.items() if len(i)]
        return f"2^{self.bits:.4g} states of {listed(units, ' and ')}"


def choose_cover(target: Target, prune: bool, structural: bool) -> Cover:
    """Return the cheapest cover of a target of one row, which may stand for many (`one_for_all`).

    `prune` leaves out barren units, which log_z alone does not need. `structural` covers every
    parameter, zero or not. A cover depends on the structure, the evidence pattern and the places of
    weights other than 0. Learning does not change these, so the structure remembers the cover.
    """
    check_one(target)
    masks = [*target.free.values(), *target.intervened.values()]
    masks += [has_soft(target, name) for name in target.soft]
    acting = target.model.parameter_places if structural else target.model.nonzero_places
    seen = map(np.ndarray.tobytes, masks)
    key = "cover", prune, structural, target.untempered, *target.soft, *seen, *acting
    cover: Cover = target.structure.memo.recall(key, lambda: _cheapest(target, prune, structural))
    return cover


def _cheapest(target: Target, prune: bool, structural: bool) -> Cover:
    s = target.structure
    left_out = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    if prune:
        left_out = {name: mask[0] for name, mask in barren(target).items()}
    active = {name: ~mask for name, mask in left_out.items()}
    free = {name: target.free[name][0] & mask for name, mask in active.items()}
    forced = forced_units(target, active, structural)
    picked = _vertex_cover(target, {n: free[n] & ~forced[n] for n in s.layers}, structural)
    chosen = {name: forced[name] | picked[name] for name in s.layers}
    for name, mask in chosen.items():
        unit = s.layers[name].unit
        if mask.any() and unit.support is None:
            raise PgmError(
                f"layer {name!r} has {unit!r} units, whose infinitely many values cannot be "
                "enumerated; observe them"
            )
    units = {n: np.flatnonzero(chosen[n]) for n in s.layers}
    rest = {n: np.flatnonzero(free[n] & ~chosen[n]) for n in s.layers}
    states = {n: 2 if x.unit.support is None else len(x.unit.support) for n, x in s.layers.items()}
    indicators = sum(len(i) * (states[n] - 1) for n, i in units.items())
    outside = sum(len(i) * (states[n] - 1) for n, i in rest.items())
    return Cover(
        units,
        rest,
        {n: np.flatnonzero(left_out[n]) for n in s.layers},
        sum(_bits(target, n) * len(i) for n, i in units.items()),
        indicators,
        outside + indicators + sum(s.layers[n].width for n in s.directed_layers),
    )


def _bits(target: Target, name: str) -> float:
    """Return log2 of the number of states of a unit; infinite units have a prohibitive number."""
    support = target.structure.layers[name].unit.support
    return 1e6 if support is None else float(np.log2(len(support)))


def _vertex_cover(target: Target, free: dict[str, Array], structural: bool) -> dict[str, Array]:
    """Return the cheapest vertex cover of conflicts among free units: layer -> (size,) bool.

    Arrows put no two of these units in conflict: where the normaliser of a child counts, its
    parents are in the cover already.
    """
    s = target.structure
    inside = {name: np.flatnonzero(mask) for name, mask in free.items()}
    acts: dict[Coupling, Weight] = {
        c: _among(target, c, inside, structural)
        for c in s.undirected
        if len(inside[c.a]) and len(inside[c.b])
    }
    out = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    if not acts:
        return out
    places = _merged_units(target, inside, acts)
    groups = {name: [inside[name][place] for place in found] for name, found in places.items()}
    if sum(map(len, groups.values())) > MAX_SEARCHED_GROUPS:
        return _all_but_one_layer(target, groups, out)
    graph: nx.Graph = nx.Graph()
    for c, acting in acts.items():
        graph.add_edges_from(_conflicts(target, c, acting, places))
    weights = {v: _bits(target, v[0]) * len(groups[v[0]][v[1]]) for v in graph}
    for part in nx.connected_components(graph):
        for name, group in _cover_of(graph.subgraph(part), weights):
            out[name][groups[name][group]] = True
    return out


def _among(target: Target, c: Coupling, inside: dict[str, Array], structural: bool) -> Weight:
    """Return a matrix that is not 0 where a coupling acts between the given units of its layers."""
    layers, weight = target.structure.layers, target.model.weight(c)
    rows, columns = layers[c.a].columns(inside[c.a]), layers[c.b].columns(inside[c.b])
    if structural:
        return c.parameters(weight)[rows][:, columns]
    some = weight[rows][:, columns]
    return (some != 0).astype(np.float64)


def _all_but_one_layer(target: Target, groups: Groups, out: dict[str, Array]) -> dict[str, Array]:
    """Return a cover without a search: all units in conflict except those of one layer.

    It is the layer with the most bits among the layers without a lateral coupling.
    """
    lateral = {c.a for c in target.structure.undirected if c.a == c.b}
    price = {n: _bits(target, n) * sum(map(len, g)) for n, g in groups.items()}
    spared = max(price, key=lambda n: (n not in lateral, price[n]))
    for name, group in groups.items():
        if group and (name != spared or name in lateral):
            out[name][np.concatenate(group)] = True
    return out


def _merged_units(target: Target, inside: dict[str, Array], acts: dict[Coupling, Weight]) -> Groups:
    """Return the places of the units with conflicts, in groups of equal neighbourhoods.

    Neighbourhoods are compared by sums of random numbers, one for each unit.
    """
    s, rng = target.structure, np.random.default_rng(0)
    mark = {n: rng.random(len(units)) for n, units in inside.items()}
    sums = {n: np.zeros(len(units)) for n, units in inside.items()}
    for c, acting in acts.items():
        a, b = s.layers[c.a], s.layers[c.b]
        sums[c.a] += (
            (acting @ np.repeat(mark[c.b], b.unit.width)).reshape(len(mark[c.a]), -1).sum(axis=1)
        )
        if c.a != c.b:
            sums[c.b] += (
                (acting.T @ np.repeat(mark[c.a], a.unit.width))
                .reshape(len(mark[c.b]), -1)
                .sum(axis=1)
            )
    out: Groups = {}
    for name in s.layers:
        index = np.flatnonzero(sums[name] > 0)
        _, group = np.unique(np.round(sums[name][index], 9), return_inverse=True)
        order = np.argsort(group, kind="stable")
        out[name] = (
            np.split(index[order], np.flatnonzero(np.diff(group[order])) + 1) if len(index) else []
        )
    return out


def _conflicts(
    target: Target, c: Coupling, acting: Weight, places: Groups
) -> Iterator[tuple[Vertex, Vertex]]:
    """Yield the pairs of groups that a coupling puts in conflict."""
    a, b = target.structure.layers[c.a], target.structure.layers[c.b]
    one = a.columns(np.array([g[0] for g in places[c.a]], dtype=int))
    two = b.columns(np.array([g[0] for g in places[c.b]], dtype=int))
    row, column = acting[one][:, two].nonzero()
    for i, j in zip(a.owners(row), b.owners(column), strict=True):
        if (c.a, i) != (c.b, j):
            yield (c.a, int(i)), (c.b, int(j))


def _cover_of(graph: nx.Graph, weights: dict[Vertex, float]) -> set[Vertex]:
    """Return the cheapest vertex cover that is found.

    Small graphs are solved by integer programming, if it ends in time. For larger graphs the linear
    relaxation is solved. Its values are 0, 1/2 or 1, and it is exact for bipartite graphs. Some
    best cover contains all vertices of value 1 and none of value 0 (Nemhauser and Trotter 1975); a
    greedy search decides about the vertices of value 1/2.
    """
    if len(graph) == 2:
        return {min(graph, key=lambda v: (weights[v], v))}
    greedy = _greedy_cover(graph, weights)
    if graph.number_of_edges() > MAX_RELAXED_EDGES:
        return greedy
    # Slow to import, and seldom needed.
    import scipy.optimize as so
    import scipy.sparse as sp

    vertices, edges = list(graph), list(graph.edges)
    place = {v: i for i, v in enumerate(vertices)}
    # milp of scipy before 1.15 takes no other indices.
    rows = np.repeat(np.arange(len(edges), dtype=np.int32), 2)
    columns = np.array([place[v] for edge in edges for v in edge], dtype=np.int32)
    incidence = sp.csr_array(
        (np.ones(len(rows)), (rows, columns)), shape=(len(edges), len(vertices))
    )
    found = so.milp(
        np.array([weights[v] for v in vertices]),
        integrality=np.full(len(vertices), int(len(vertices) <= MAX_SEARCHED_VERTICES)),
        bounds=so.Bounds(0, 1),
        constraints=so.LinearConstraint(incidence, lb=1.0),
        options={"time_limit": 2.0},
    )
    if found.x is None:
        return greedy
    best = {v for v, x in zip(vertices, found.x, strict=True) if x > 0.75}
    halves = [v for v, x in zip(vertices, found.x, strict=True) if 0.25 <= x <= 0.75]
    best |= _greedy_cover(graph.subgraph(halves), weights)
    if any(u not in best and v not in best for u, v in edges):
        # If the time limit stopped the relaxation, its values are not 0, 1/2 or 1.
        return greedy
    return min(best, greedy, key=lambda cover: sum(weights[v] for v in cover))


def _greedy_cover(graph: nx.Graph, weights: dict[Vertex, float]) -> set[Vertex]:
    """Return the cover that is left by excluding vertices one by one, the cheapest first.

    The price of excluding a vertex is the weight of its neighbours, which then have to be in the
    cover, minus its own weight.
    """
    price = {v: sum(weights[u] for u in graph[v]) - weights[v] for v in graph}
    # Among vertices of equal price, neighbours of recently decided vertices come first, so that the
    # cover of a lattice is a chessboard pattern.
    queue = [(price[v], 0, v) for v in graph]
    heapq.heapify(queue)
    cover, decided, step = set[Vertex](), set[Vertex](), 0
    while queue:
        cost, _, v = heapq.heappop(queue)
        if v in decided or cost != price[v]:
            continue
        removed = {u for u in graph[v] if u not in decided}
        cover |= removed
        decided |= removed | {v}
        for u in removed:
            for near in graph[u]:
                if near not in decided:
                    step -= 1
                    price[near] -= weights[u]
                    heapq.heappush(queue, (price[near], step, near))
    return cover
