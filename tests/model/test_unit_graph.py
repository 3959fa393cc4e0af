"""The graph of units, beside loops over all units and all entries of the weights."""

import numpy as np
import pytest
import scipy.sparse as sp
from loops import one_test_over
from random_graphs import random_graph

import pgmengine as pgm
from pgmengine.model.graph.unit_graph import Rows, acts, joined_units, unit_graph, units_of


def plain(structure, c, weight):
    """Return the pairs, entry by entry."""
    a, b = structure.layers[c.a], structure.layers[c.b]
    found = set()
    for i, j in np.argwhere(weight != 0).tolist():
        pair = i // a.unit.width, j // b.unit.width
        if c.a != c.b or c.directed or pair[0] < pair[1]:
            found.add(pair)
    return sorted(found)


def lateral(unit, sparse):
    rng, k = np.random.default_rng(0), unit.width
    block = rng.normal(size=(5 * k, 5 * k)) * (rng.random((5 * k, 5 * k)) < 0.5)
    block *= np.arange(5 * k)[:, None] // k != np.arange(5 * k) // k
    weight = block + block.T
    b = pgm.GraphBuilder()
    b.layer("x", unit, 5)
    b.couple("x", "x", weight=sp.csr_array(weight) if sparse else weight)
    return b.build(), weight


def between(unit, sparse):
    rng, k = np.random.default_rng(1), unit.width
    weight = rng.normal(size=(4 * k, 3)) * (rng.random((4 * k, 3)) < 0.5)
    b = pgm.GraphBuilder()
    b.layer("x", unit, 4)
    b.layer("y", pgm.Binary(), 3)
    b.couple("x", "y", weight=sp.csr_array(weight) if sparse else weight)
    return b.build(), weight


@pytest.mark.parametrize("make", [lateral, between])
@pytest.mark.parametrize("unit", [pgm.Binary(), pgm.Categorical(3)], ids=repr)
@pytest.mark.parametrize("sparse", [False, True])
def test_pairs_of_units(make, unit, sparse):
    model, weight = make(unit, sparse)
    (c,) = model.structure.couplings
    one, two = joined_units(model.structure, c, acts(model, c, structural=False))
    assert list(zip(one.tolist(), two.tolist(), strict=True)) == plain(model.structure, c, weight)


def components(model):
    """Return (unit, layer) of each component, unit by unit."""
    places = [(name, x) for name, x in model.structure.layers.items() for _ in range(x.size)]
    return [(u, name) for u, (name, x) in enumerate(places) for _ in range(x.unit.width)]


def entries(model, couplings):
    """Return {(source, to): weight} of components, both ways for undirected couplings."""
    names, found = [name for _, name in components(model)], {}
    for c in couplings:
        weight = model.weight(c)
        weight = weight.toarray() if sp.issparse(weight) else weight
        for i, j in np.argwhere(weight != 0).tolist():
            a, b = names.index(c.a) + i, names.index(c.b) + j
            found[a, b] = weight[i, j]
            if not c.directed:
                found[b, a] = weight[i, j]
    return found


@one_test_over("seed", range(20))
def test_units_and_their_components(seed):
    model = random_graph(seed).build()
    s, found, unit = model.structure, units_of(model.structure), 0
    assert found.owner.tolist() == [u for u, _ in components(model)]
    for name, layer in s.layers.items():
        assert s.slices[name] == slice(unit, unit + layer.size)
        assert found.first_component[name] == found.component[unit]
        for _ in range(layer.size):
            support = layer.unit.support
            assert found.states[unit] == (0 if support is None else len(support))
            assert found.width[unit] == layer.unit.width
            assert found.component[unit] == found.owner.tolist().index(unit)
            unit += 1
    assert unit == s.units == len(found.states)


@one_test_over("seed", range(20))
def test_weights_pairs_and_parents(seed):
    model = random_graph(seed).build()
    s, graph, owner = model.structure, unit_graph(model), [u for u, _ in components(model)]
    for found, couplings in ((graph.links, s.undirected), (graph.arrows, s.arrows)):
        ends = zip(found.source.tolist(), found.to.tolist(), strict=True)
        assert dict(zip(ends, found.weight, strict=True)) == entries(model, couplings)
        assert len(found.weight) == len(entries(model, couplings))
    for rows, couplings in ((graph.pairs, s.undirected), (graph.parents, s.arrows)):
        near = {(owner[b], owner[a]) for a, b in entries(model, couplings)}
        for unit in range(s.units):
            assert rows.of(unit).tolist() == sorted(a for b, a in near if b == unit)


@one_test_over("seed", range(20))
def test_factors_are_tables_and_conditionals(seed):
    model = random_graph(seed).build()
    s, graph, owner = model.structure, unit_graph(model), [u for u, _ in components(model)]
    first = s.first_unit
    members = [
        {first[name] + int(i) for name, i in zip(t.layers, scope, strict=True)}
        for t in s.tables
        for scope in t.index
    ]
    conditionals = [set() for _ in range(s.units)]
    for name in s.directed_layers:
        for unit in range(first[name], first[name] + s.layers[name].size):
            conditionals[unit].add(unit)
    for a, b in entries(model, s.arrows):
        conditionals[owner[b]].add(owner[a])
    members += conditionals
    assert [set(graph.members.of(f).tolist()) for f in range(len(members))] == members
    for unit in range(s.units):
        own = [f for f, some in enumerate(members) if unit in some]
        assert graph.factors.of(unit).tolist() == own


def test_stored_zeros_join_no_units():
    weight = sp.csr_array(([0.0, 0.5], ([0, 1], [0, 0])), shape=(2, 1))
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 2)
    b.layer("y", pgm.Binary(), 1)
    b.cause("x", "y", weight)
    model = b.build()
    assert model.weight(model.structure.couplings[0]).nnz == 2
    assert unit_graph(model).parents.of(2).tolist() == [1]


@one_test_over("seed", range(5))
@pytest.mark.parametrize("size", [0, 1, 400])
def test_rows_of_pairs_and_of_keys(size, seed):
    rng = np.random.default_rng(seed)
    row, column = rng.integers(0, 9, size), rng.integers(0, 5, size)
    pairs, keys = Rows.of_pairs(row, column, 10), Rows.of_keys(row, 10)
    for i in range(10):
        assert pairs.of(i).tolist() == sorted(set(column[row == i].tolist()))
        assert keys.of(i).tolist() == np.flatnonzero(row == i).tolist()
    assert pairs.rows.tolist() == [i for i in range(10) for _ in pairs.of(i)]
