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
from functools import lru_cache

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, Weight
from pgmengine.evidence.relevance import barren, forced_units, has_soft
from pgmengine.evidence.target import Target, check_one
from pgmengine.model.couplings import Coupling

Vertex = tuple[str, int]
Groups = dict[str, list[Array]]
# Vertex -> its neighbours, as the keys of a dictionary, in the order in which they were found.
Graph = dict[Vertex, dict[Vertex, None]]

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
    # Units that are marginalised one by one, given a state of the cover.
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
        """The number of states and the units of the cover in words, for plans."""
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
    s, free = target.structure, {name: mask[0] for name, mask in target.free.items()}
    left_out = {name: np.zeros_like(mask) for name, mask in free.items()}
    if prune:
        left_out = {name: mask[0] for name, mask in barren(target).items()}
        free = {name: mask & ~left_out[name] for name, mask in free.items()}
    if s.arrows:
        active = {name: ~mask for name, mask in left_out.items()}
        chosen = forced_units(target, active, structural)
        others = {name: mask & ~chosen[name] for name, mask in free.items()}
        picked = _vertex_cover(target, others, structural)
        chosen = {name: mask | picked[name] for name, mask in chosen.items()}
    else:
        chosen = _vertex_cover(target, free, structural)
    units, rest, barren_units = dict[str, Array](), dict[str, Array](), dict[str, Array]()
    bits, indicators, columns = 0.0, 0, sum([s.layers[n].width for n in s.directed_layers])
    for name, layer in s.layers.items():
        # Units with infinitely many values count as two-valued.
        states = s.state_counts[name]
        each = states - 1 if states else 1
        units[name] = chosen[name].nonzero()[0]
        rest[name] = (free[name] & ~chosen[name]).nonzero()[0]
        barren_units[name] = left_out[name].nonzero()[0]
        if len(units[name]) and not states:
            raise PgmError(
                f"layer {name!r} has {layer.unit!r} units, whose infinitely many values cannot be "
                "enumerated; observe them"
            )
        bits += _bits(target, name) * len(units[name])
        indicators += len(units[name]) * each
        columns += (len(units[name]) + len(rest[name])) * each
    return Cover(units, rest, barren_units, bits, indicators, columns)


def _bits(target: Target, name: str) -> float:
    """Return log2 of the number of states of a unit; a prohibitive number if it is infinite."""
    states = target.structure.state_counts[name]
    return float(np.log2(states)) if states else 1e6


def _vertex_cover(target: Target, free: dict[str, Array], structural: bool) -> dict[str, Array]:
    """Return the cheapest vertex cover of conflicts among free units: layer -> (size,) bool.

    Arrows put no two of these units in conflict: where the normaliser of a child counts, its
    parents are in the cover already.
    """
    s = target.structure
    inside = {name: mask.nonzero()[0] for name, mask in free.items()}
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
    graph = Graph()
    for c, acting in acts.items():
        for one, two in _conflicts(target, c, acting, places):
            graph.setdefault(one, {})[two] = None
            graph.setdefault(two, {})[one] = None
    weights = {v: _bits(target, v[0]) * len(groups[v[0]][v[1]]) for v in graph}
    for part in _connected_parts(graph):
        for name, group in _cover_of(part, weights):
            out[name][groups[name][group]] = True
    return out


def _connected_parts(graph: Graph) -> Iterator[Graph]:
    """Yield the connected parts of a graph, with its vertices in their order."""
    left, place = dict(graph), {v: i for i, v in enumerate(graph)}
    while left:
        part = [next(iter(left))]
        del left[part[0]]
        for v in part:
            near = [u for u in graph[v] if u in left]
            part += near
            for u in near:
                del left[u]
        yield {v: graph[v] for v in sorted(part, key=place.__getitem__)}


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


@lru_cache(maxsize=8)
def _marks(count: int) -> Array:
    """Return random numbers, always the same ones."""
    marks = np.random.default_rng(0).random(count)
    marks.flags.writeable = False
    return marks


def _merged_units(target: Target, inside: dict[str, Array], acts: dict[Coupling, Weight]) -> Groups:
    """Return the places of the units with conflicts, in groups of equal neighbourhoods.

    Neighbourhoods are compared by sums of random numbers, one for each unit.
    """
    s, mark, begin = target.structure, dict[str, Array](), 0
    marks = _marks(sum(map(len, inside.values())))
    for name, units in inside.items():
        mark[name] = marks[begin : begin + len(units)]
        begin += len(units)
    sums = {n: np.zeros(len(units)) for n, units in inside.items()}
    for c, acting in acts.items():
        a, b = s.layers[c.a], s.layers[c.b]
        met = acting @ mark[c.b].repeat(b.unit.width)
        sums[c.a] += met.reshape(len(mark[c.a]), -1).sum(axis=1)
        if c.a != c.b:
            met = acting.T @ mark[c.a].repeat(a.unit.width)
            sums[c.b] += met.reshape(len(mark[c.b]), -1).sum(axis=1)
    out: Groups = {}
    for name in s.layers:
        found = dict[float, list[int]]()
        for place, total in enumerate(sums[name].tolist()):
            if total > 0:
                found.setdefault(round(total, 9), []).append(place)
        out[name] = [np.array(found[total]) for total in sorted(found)]
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


def _cover_of(graph: Graph, weights: dict[Vertex, float]) -> set[Vertex]:
    """Return the cheapest vertex cover that is found.

    Small graphs are solved by integer programming, if it ends in time. For larger graphs the linear
    relaxation is solved. Its values are 0, 1/2 or 1, and it is exact for bipartite graphs. Some
    best cover contains all vertices of value 1 and none of value 0 (Nemhauser and Trotter 1975); a
    greedy search decides about the vertices of value 1/2.
    """
    if len(graph) == 2:
        return {min([(weights[v], v) for v in graph])[1]}
    greedy = _greedy_cover(graph, weights)
    if sum(map(len, graph.values())) > 2 * MAX_RELAXED_EDGES:
        return greedy
    # Slow to import, and seldom needed.
    import scipy.optimize as so
    import scipy.sparse as sp

    vertices, place = list(graph), {v: i for i, v in enumerate(graph)}
    edges = [(v, u) for v in graph for u in graph[v] if place[v] < place[u]]
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
    halves = {v for v, x in zip(vertices, found.x, strict=True) if 0.25 <= x <= 0.75}
    half = {v: {u: None for u in graph[v] if u in halves} for v in vertices if v in halves}
    best |= _greedy_cover(half, weights)
    if any(u not in best and v not in best for u, v in edges):
        # If the time limit stopped the relaxation, its values are not 0, 1/2 or 1.
        return greedy
    return min(best, greedy, key=lambda cover: sum(weights[v] for v in cover))


def _greedy_cover(graph: Graph, weights: dict[Vertex, float]) -> set[Vertex]:
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
