"""Covers of large graphs: by the linear relaxation and a greedy search."""

import itertools

import networkx as nx
import numpy as np
import pytest
from lattices import lattice
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.exact.enumeration import cover
from pgmengine.infer.exact.enumeration.cover import choose_cover
from pgmengine.infer.exact.exact import least_width


@one_test_over("side", (22, 23, 40))
def test_the_cover_of_a_torus_is_minimal(side):
    """Every row is a cycle, so that it leaves out at most half of its units, rounded down."""
    found = choose_cover(lattice(side, periodic=True).given(), prune=True, structural=False)
    assert found.bits == side * -(-side // 2)


def random_weighted(seed, bipartite):
    rng = np.random.default_rng([43, seed])
    n = int(rng.integers(3, 11))
    ends = [e for e in itertools.combinations(range(n), 2) if rng.random() < 0.4]
    if bipartite:
        ends = [e for e in ends if (e[0] + e[1]) % 2]
    graph = nx.Graph([(("x", a), ("x", b)) for a, b in ends])
    return graph, {v: float(rng.integers(1, 6)) for v in graph}


def cheapest(graph, weights):
    """The weight of the cheapest cover, by all sets of vertices."""
    best, vertices = np.inf, list(graph)
    for bits in itertools.product((False, True), repeat=len(vertices)):
        chosen = {v for v, inside in zip(vertices, bits) if inside}
        if all(a in chosen or b in chosen for a, b in graph.edges):
            best = min(best, sum(weights[v] for v in chosen))
    return best


@pytest.mark.parametrize("bipartite", (True, False))
@pytest.mark.parametrize("seed", range(30))
def test_covers_by_the_relaxation(seed, bipartite, monkeypatch):
    monkeypatch.setattr(cover, "MAX_SEARCHED_VERTICES", 0)
    graph, weights = random_weighted(seed, bipartite)
    parts = list(cover._connected_parts({v: dict.fromkeys(graph[v]) for v in graph}))
    assert [{*part} for part in parts] == [*nx.connected_components(graph)]
    for part in parts:
        assert list(part) == [v for v in graph if v in part]
        edges, best = graph.subgraph(part).edges, cheapest(graph.subgraph(part), weights)
        for found in (cover._cover_of(part, weights), cover._greedy_cover(part, weights)):
            assert all(a in found or b in found for a, b in edges)
            assert sum(weights[v] for v in found) >= best
        price = sum(weights[v] for v in cover._cover_of(part, weights))
        # The halves of the relaxation cost twice their share at most.
        assert price == best if bipartite else price <= 2 * best


@one_test_over("seed", range(20))
def test_the_least_width_is_a_bound_of_every_order(seed):
    """It is at most the treewidth, which networkx bounds from above by two other rules."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, 2)
    weight = rng.normal(size=sizes) * (rng.random(sizes) < 0.7)
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), sizes[0])
    b.layer("h", pgm.Binary(), sizes[1])
    b.couple("v", "h", weight=weight)
    target = b.build().given()
    graph = nx.Graph([(("v", i), ("h", j)) for i, j in np.argwhere(weight)])
    found = least_width(target)
    assert found >= min((degree for _, degree in graph.degree), default=0)
    for rule in (nx.approximation.treewidth_min_degree, nx.approximation.treewidth_min_fill_in):
        assert found <= rule(graph)[0]


def test_the_least_width_is_that_of_the_row_with_most_free_units():
    missing = np.where(np.arange(9) < np.array([[2], [7], [4]]), np.nan, 1.0)
    assert least_width(pgm.rbm(9, 8, rng=0).given({"v": missing})) == 7
    assert least_width(pgm.boltzmann_machine(12, rng=0).given()) == 11


def test_no_tree_is_planned_where_a_dense_coupling_proves_it_larger(monkeypatch):
    """600 rows of missing pixels were planned one by one, and only to be refused."""

    def planned(*_):
        raise AssertionError("a junction tree was planned")

    monkeypatch.setattr(pgm.Elimination, "scheme", planned)
    missing = np.where(np.random.default_rng(0).random((5, 40)) < 0.8, np.nan, 1.0)
    plan = pgm.Exact().prepare(pgm.rbm(40, 23, rng=0).given({"v": missing}), ("marginals",)).plan
    assert plan.accepted and "2^23" in plan.why
