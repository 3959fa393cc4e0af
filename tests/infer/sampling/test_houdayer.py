"""Houdayer's moves of pairs of replicas: the sum of log densities stays, p(x) p(y) is invariant,
and ladders with moves answer as without.
"""

import numpy as np
import pytest
from brute import Brute
from invariance import ALARM, CAUGHT, exact_start, p_value, tail
from loops import one_test_over
from random_graphs import random_graph
from test_annealing import covers
from tiny import FINITE, TABLED, as_evidence, draw_row

import pgmengine as pgm
from pgmengine.engine.chains import make_chains
from pgmengine.infer.sampling.ladders.replicas import Ladders
from pgmengine.model.graph.unit_graph import Rows, UnitGraph

PAIRS = 8_000
BETAS = np.array([0.0, 0.4, 1.0])
MODELS = [m for m in FINITE + TABLED if m.name != "rbm large weights"]
SPARSE = [m for m in MODELS if len(Brute(m).p) <= 64 and np.isfinite(Brute(m).log_z)]


def states_of(target, x):
    """The numbers of states of values."""
    return {n: target.structure.layers[n].states(v) for n, v in x.items()}


def values_of(target, states):
    """The values of numbers of states."""
    layers = target.structure.layers
    return {n: layers[n].flat(layers[n].unit.support[k]) for n, k in states.items()}


def moved(target, x, rng):
    """States of pairs, row i with row i + half, after a move; how many units have moved."""
    half = target.rows // 2
    before, after = states_of(target, x), states_of(target, x)
    pgm.Houdayer().over(target).swap(after, np.arange(half), half + np.arange(half), rng)
    changes = sum(int((after[n] != before[n]).sum()) for n in before)
    return values_of(target, after), changes


@one_test_over("seed", range(60))
def test_the_sum_of_log_densities_is_that_before(seed):
    """Arrows, tables of many places with zeros, evidence: the sum of -inf and others is -inf."""
    graph, rng = random_graph(seed, 2**10), np.random.default_rng(seed)
    model = graph.build()
    if any(layer.unit.support is None for layer in model.structure.layers.values()):
        return
    target = model.given().take(np.zeros(200, dtype=int))
    x = {
        n: layer.flat(layer.unit.support[rng.integers(layer.unit.support.shape[0],
                                                      size=(200, layer.size))])
        for n, layer in model.structure.layers.items()
    }  # fmt: skip
    y, _ = moved(target, x, rng)
    for beta in (1.0, 0.3):
        old, new = (target.at(beta).log_density(z).reshape(2, 100) for z in (x, y))
        possible = np.isfinite(old).all(axis=0)
        assert (np.isfinite(new).all(axis=0) >= possible).all()
        np.testing.assert_allclose(
            new.sum(axis=0)[possible], old.sum(axis=0)[possible], rtol=1e-9, atol=1e-9
        )


def pair_p_value(tiny_model, share, beta, moves=2):
    """The p-value of the joint states of pairs after moves from exact starts, and the changes."""
    rng = np.random.default_rng(7)
    row = draw_row(tiny_model, np.random.default_rng(11), share)
    truth = Brute(tiny_model, row, beta=beta)
    target = tiny_model.build().given(as_evidence(tiny_model, [row]), beta=beta)
    target = target.take(np.zeros(2 * PAIRS, dtype=int))
    x, changes = exact_start(truth, 2 * PAIRS, rng), 0
    for _ in range(moves):
        x, more = moved(target, x, rng)
        changes += more
    joint = [np.round(1000 * np.concatenate([truth.values[n] for n in x], axis=1))]
    joint.append(np.round(1000 * np.concatenate([x[n] for n in x], axis=1)))
    kinds, place = np.unique(np.concatenate(joint), axis=0, return_inverse=True)
    index = np.full(len(kinds), -1)
    index[place.ravel()[: len(truth.p)]] = np.arange(len(truth.p))
    found = index[place.ravel()[len(truth.p) :]].reshape(2, PAIRS)
    if (found < 0).any():
        raise KeyError("a state that has no probability")
    count = np.bincount(found[0] * len(truth.p) + found[1], minlength=len(truth.p) ** 2)
    return tail(count, PAIRS * np.outer(truth.p, truth.p).ravel()), changes


@pytest.mark.parametrize(
    ("share", "beta"), [(0.0, 1.0), pytest.param(0.3, 0.5, marks=pytest.mark.long)]
)
@one_test_over("tiny_model", SPARSE)
def test_the_product_of_both_distributions_is_invariant(tiny_model, share, beta):
    found, changes = pair_p_value(tiny_model, share, beta)
    assert found > ALARM and changes


@pytest.mark.parametrize("name", ["ising", "potentials zeros"])
def test_overlooked_neighbours_are_caught(name, monkeypatch):
    """Components that end where a factor does not."""
    tiny_model = next(m for m in MODELS if m.name == name)
    assert pair_p_value(tiny_model, 0.0, 1.0)[0] > ALARM
    none = np.zeros(0, dtype=np.int64)
    lonely = property(lambda self: Rows.of_pairs(none, none, self.structure.units))
    monkeypatch.setattr(UnitGraph, "near", lonely)
    try:
        caught = pair_p_value(tiny_model, 0.0, 1.0)[0] < CAUGHT
    except KeyError:
        caught = True
    assert caught


@pytest.mark.parametrize("kernel", [pgm.Gibbs(), pgm.TreeGibbs()], ids=repr)
@one_test_over("name", ["ising", "rbm", "potentials zeros", "network zeros"])
def test_ladders_with_moves_keep_the_distribution_of_each_rung(name, kernel):
    tiny_model = next(m for m in MODELS if m.name == name)
    rng, count = np.random.default_rng(4), 4000
    row = draw_row(tiny_model, np.random.default_rng(11), 0.0)
    target = tiny_model.build().given()
    ladders = Ladders(target, BETAS, count, kernel, rng, moves=pgm.Houdayer().over(target))
    truths = [Brute(tiny_model, row, beta=beta) for beta in BETAS]
    parts = [exact_start(truth, count, rng) for truth in truths]
    x = {
        n: np.stack([part[n] for part in parts], axis=1).reshape(count * len(BETAS), -1)
        for n in parts[0]
    }
    many = target.take(np.zeros(count * len(BETAS), dtype=int)).at(np.tile(BETAS, count))
    ladders.chains = make_chains(many, kernel, x, rng)
    for _ in range(3):
        ladders.step()
    for k, truth in enumerate(truths):
        found = p_value(truth, ladders.chains.values(ladders.at[0, :, k]))
        assert found > ALARM / len(BETAS)


def glass(side, seed, beta=1.2):
    """A square lattice with couplings of both signs, whose log Z is exact."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(seed)
    s = b.layer("s", pgm.Spin(), (side, side))
    for one, two in ((s[1:], s[:-1]), (s[:, 1:], s[:, :-1])):
        b.couple(one, two, beta * rng.choice([-1.0, 1.0], size=(side, side - 1)).reshape(one.shape))
    return b.build()


def test_answers_of_ladders_with_moves():
    """log Z of a glass within its interval, means of 0, and a pair as one chain."""
    model = glass(5, 1)
    method = pgm.ParallelTempering(draws=4000, moves=pgm.Houdayer())
    r = pgm.infer(model, want=("log_z", "marginals"), method=method, rng=1)
    assert covers(r, pgm.infer(model, want=("log_z",)).log_z).all() and r.status.good
    assert (np.abs(r.mean["s"].ravel()) < 6 * r.stats["mcse"]["s"].ravel()).all()
    assert r.stats["energy"].shape == r.stats["swap_accepted"].shape == (2, 8000, 1)


def test_refusals():
    with pytest.raises(pgm.PgmError, match="chains is 3: take an even number"):
        pgm.ParallelTempering(chains=3, moves=pgm.Houdayer())
    with pytest.raises(pgm.PgmError, match="moves must be Houdayer"):
        pgm.ParallelTempering(moves="houdayer")
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Gaussian(), 2)
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h")
    method = pgm.ParallelTempering(moves=pgm.Houdayer())
    with pytest.raises(pgm.PgmError, match="finitely many values"):
        pgm.infer(b.build(rng=0), method=method)
