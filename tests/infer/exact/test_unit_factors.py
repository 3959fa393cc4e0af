"""Factors of single units, which networks of tables alone do not need."""

from itertools import product

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.exact.junction_tree.conditioned_model import Form, condition
from pgmengine.infer.exact.junction_tree.factors import UnitTerm


def network(seed):
    """Three two-valued variables in a chain of tables, and the tables."""
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.ones(2)), *(rng.dirichlet(np.ones(2), 2) for _ in range(2))]
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name)
    for scope, table in zip((("a",), ("a", "b"), ("b", "c")), tables, strict=True):
        b.table(scope, table)
    return b.build(), tables


def by_hand(tables, bias, weights, beta):
    """Return log Z and the probabilities of 1, from all states."""
    first, second, third = tables
    mass = np.zeros((2, 2, 2))
    for a, b, c in product((0, 1), repeat=3):
        x = np.array([a, b, c])
        logs = np.log(first[a] * second[a, b] * third[b, c]) + x @ bias + x @ weights
        mass[a, b, c] = np.exp(beta * logs)
    total = mass.sum()
    return np.log(total), np.array([mass[1].sum(), mass[:, 1].sum(), mass[:, :, 1].sum()]) / total


@one_test_over("seed", range(3))
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("beta", [1.0, 0.6])
def test_units_have_factors_where_something_weighs_them(seed, biased, soft, beta, tolerance=1e-12):
    """All models have one structure, which remembers the factors of earlier questions."""
    plain, tables = network(seed)
    pgm.infer(plain)
    rng = np.random.default_rng(seed)
    (layer,) = plain.structure.layers
    bias = rng.normal(size=3) if biased else np.zeros(3)
    weights = rng.normal(size=3) if soft else np.zeros(3)
    model = plain.with_params({f"{layer}.bias": bias})
    evidence = {name: [0.0, w] for name, w in zip("abc", weights, strict=True)} if soft else None
    target = model.given(soft=evidence, beta=beta)
    kinds = [type(term) for term in condition(target, Form()).terms]
    assert (UnitTerm in kinds) == (biased or soft or beta < 1)
    r = pgm.Elimination().run(target, ("log_z", "marginals"))
    log_z, ones = by_hand(tables, bias, weights, beta)
    np.testing.assert_allclose(r.log_z, log_z, atol=tolerance)
    np.testing.assert_allclose(r.mean[layer].ravel(), ones, atol=tolerance)
