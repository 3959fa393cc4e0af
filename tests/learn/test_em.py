"""EM against an EM by enumeration in plain numpy, and its behaviour as an optimizer of fit."""

import numpy as np
import pytest
from counting_oracle import data_of, drawn, expected, key_of, maximised, model_of, random_network

import pgmengine as pgm


def tables_of(model, parents):
    return [np.exp(model.params[key_of(unit, mine)]) for unit, mine in enumerate(parents)]


def fitted(model, rows, **settings):
    return pgm.fit(model, data_of(rows), **{"progress": False, **settings})


def with_holes(rng, rows, share=0.3, latent=True):
    """Rows with cells left out at random, and the first unit in all of them; none is empty."""
    holes = rng.random(rows.shape) < share
    holes[:, 0] |= latent
    holes[holes.all(axis=1), -1] = False
    return np.where(holes, -1, rows)


def log_prior(tables, added):
    return sum(added * np.log(t[t > 0]).sum() for t in tables)


@pytest.mark.parametrize("seed", range(12))
def test_complete_data_are_counted_at_once(seed, rtol=1e-12):
    rng = np.random.default_rng(seed)
    cards, parents, tables = random_network(rng, units=5)
    rows = drawn(rng, cards, parents, tables, 60)
    weights = rng.integers(0, 4, 60).astype(float)
    start = [np.ones(t.shape) / t.shape[-1] for t in tables]
    fit = fitted(model_of(cards, parents, start), rows, sample_weight=weights)
    assert type(fit.optimizer) is pgm.EM
    assert fit.state["update"] == 1
    assert "complete" in fit.stopped
    _, counts = expected(cards, parents, start, rows, weights)
    best = maximised(start, counts, 1.0)
    for one, two in zip(tables_of(fit.model, parents), best, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol)
    value, _ = expected(cards, parents, best, rows, weights)
    objective = (value + log_prior(best, 1.0)) / weights.sum()
    np.testing.assert_allclose(fit.history["objective"]["value"], [objective], rtol=rtol)


@pytest.mark.parametrize("seed", range(200))
def test_each_iteration_is_that_of_an_enumeration(seed, updates=4, rtol=1e-9):
    """Random networks with missing cells and latent variables, with and without pseudocounts."""
    rng = np.random.default_rng(seed)
    added = [0.0, 1.0, 0.3][seed % 3]
    cards, parents, tables = random_network(rng)
    rows = with_holes(rng, drawn(rng, cards, parents, tables, 25), latent=bool(seed % 2))
    weights = rng.integers(1, 4, len(rows)).astype(float)
    start = model_of(cards, parents, tables)
    steps = pgm.EM(pseudocount=added, tolerance=0.0, starts=1)
    fit = fitted(start, rows, optimizer=steps, updates=updates, sample_weight=weights)
    own, values = tables, []
    for _ in range(fit.state["update"]):
        own = maximised(own, expected(cards, parents, own, rows, weights)[1], added)
        value, _ = expected(cards, parents, own, rows, weights)
        values.append((value + log_prior(own, added)) / weights.sum())
    for one, two in zip(tables_of(fit.model, parents), own, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=1e-12)
    found = fit.history["objective"]["value"]
    np.testing.assert_allclose(found, values, rtol=rtol)
    assert (np.diff(found) >= -1e-10).all()


@pytest.mark.parametrize("seed", range(6))
def test_families_of_barren_units_do_not_move_the_optimum(seed, atol=1e-5):
    rng = np.random.default_rng(seed)
    cards, parents, tables = random_network(rng)
    rows = with_holes(rng, drawn(rng, cards, parents, tables, 40), latent=False)
    steps = pgm.EM(pseudocount=0.5, tolerance=1e-13)
    fit = fitted(model_of(cards, parents, tables), rows, optimizer=steps, updates=3000)
    own = tables_of(fit.model, parents)
    for whole in ([True] * len(rows), [False] * len(rows)):
        counts = expected(cards, parents, own, rows, np.ones(len(rows)), whole)[1]
        for one, two in zip(maximised(own, counts, 0.5), own, strict=True):
            np.testing.assert_allclose(one, two, atol=atol)
