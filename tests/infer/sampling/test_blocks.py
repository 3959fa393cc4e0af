"""Blocks of units: their neighbours, and the cliques of their elimination, against an oracle."""

import itertools

import numpy as np
import pytest
from random_graphs import random_graph, unit_numbers

from pgmengine.infer.sampling.draws.blocks import BLOCKS_PER_UNIT, MAX_CLIQUE_SHARE, blocks
from pgmengine.model.graph.unit_graph import unit_graph


def joined_pairs(graph, model):
    """Pairs of units that a coupling, a table or a common child joins, from the declaration."""
    units = dict(zip(graph.units, unit_numbers(graph, model)))
    cliques = [[units[u] for u in t.scope] for t in graph.tables]
    parents = {u: set() for u in units}
    for a, b, weight in graph.couples:
        for i, j in _nonzero(graph, a, b, weight):
            cliques.append([units[a, i], units[b, j]])
    for p, c, weight in graph.causes:
        for i, j in _nonzero(graph, p, c, weight):
            parents[c, j].add(units[p, i])
    cliques += [[units[u], *above] for u, above in parents.items()]
    return {frozenset(p) for c in cliques for p in itertools.combinations(c, 2) if p[0] != p[1]}


def _nonzero(graph, a, b, weight):
    """Units i of a and j of b whose components have a weight other than 0."""
    wide = [graph.layers[n].width for n in (a, b)]
    return {(i // wide[0], j // wide[1]) for i, j in np.argwhere(np.asarray(weight) != 0).tolist()}


@pytest.mark.parametrize("seed", range(20))
def test_neighbours_are_the_units_of_common_factors(seed):
    graph = random_graph(seed)
    model = graph.build()
    found, pairs = unit_graph(model), joined_pairs(graph, model)
    for unit in range(len(graph.units)):
        own = {other for pair in pairs if unit in pair for other in pair} - {unit}
        assert set(found.neighbours(unit).tolist()) - {unit} == own


@pytest.mark.parametrize("states", [2.0**6, 2.0**10])
@pytest.mark.parametrize("seed", range(10))
def test_some_order_eliminates_a_block_within_its_limits(seed, states):
    """The largest clique by an exhaustive choice of the cheapest unit is within the limit."""
    graph = random_graph(seed)
    model = graph.build()
    target, pairs = model.given(), joined_pairs(graph, model)
    counts = [len(x.unit.support) for x in model.structure.layers.values() for _ in range(x.size)]
    visits = np.zeros(len(graph.units), dtype=int)
    for block, closed in blocks(target, states, np.random.default_rng(seed)):
        # A closed block comes once, and no unit outside shares a factor with one of its units.
        visits[block] += BLOCKS_PER_UNIT if closed else 1
        inside = set(block.tolist())
        assert not closed or not any(p & inside and p - inside for p in pairs)
        assert np.array_equal(block, np.unique(block))
        near = {
            u: {v for v in block.tolist() if frozenset((u, v)) in pairs} for u in block.tolist()
        }
        largest, total = eliminated(near, counts)
        # A first unit enters in any case.
        assert len(block) == 1 or largest <= states * MAX_CLIQUE_SHARE
        assert total <= states * (1 + MAX_CLIQUE_SHARE)
    assert visits.min() >= BLOCKS_PER_UNIT


def eliminated(near, counts):
    """Return the least possible largest clique, in states, and its total, over all orders."""
    if not near:
        return 1.0, 0.0
    best = None
    for unit in sorted(near, key=lambda u: len(near[u]))[:2]:
        clique = float(np.prod([counts[u] for u in (unit, *near[unit])]))
        rest = {u: (v | near[unit] if u in near[unit] else v) - {u, unit} for u, v in near.items()}
        del rest[unit]
        largest, total = eliminated(rest, counts)
        found = max(clique, largest), clique + total
        best = found if best is None or found < best else best
    return best
