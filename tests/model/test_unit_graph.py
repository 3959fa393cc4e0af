"""Pairs of units that couplings join, beside a loop over all entries of their weights."""

import numpy as np
import pytest
import scipy.sparse as sp

import pgmengine as pgm
from pgmengine.model.unit_graph import acts, joined_units


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
