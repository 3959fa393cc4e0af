"""Chains whose parameters change: sweeps that keep nothing, and what they say of the path."""

import numpy as np
import pytest
from loops import one_test_over
from registry import COMPILED
from tiny import FINITE, INFINITE, as_evidence, draw_row, mixed_target, tiny_model

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start
from pgmengine.engine.layerwise import CompiledChains
from pgmengine.engine.reference import PlainChains


@pytest.mark.parametrize("kernel", COMPILED, ids=repr)
def test_chains_that_keep_nothing_make_the_same_sweeps(kernel, ties=3):
    """sweep_once and sweep(1) from the same states with the same random numbers; DBM with several
    unit types.

    Inputs are summed in other orders. At most once in a million draws a uniform is so near to its
    threshold that this decides. Of 50 chains with 308 draws, more than three part once in 1e8
    tests.
    """
    b = pgm.GraphBuilder()
    for name, unit, size in (
        ("v", pgm.Binary(), 40),
        ("h1", pgm.MultiValued(3), 30),
        ("h2", pgm.Categorical(3), 7),
    ):
        b.layer(name, unit, size)
    b.couple("h1", "v")
    b.couple("h1", "h2")
    model = b.build(rng=0)
    target = model.given({"v": np.r_[np.full(30, np.nan), np.ones(10)]}).take(
        np.zeros(50, dtype=int)
    )
    x = start(target, np.random.default_rng(0))
    found = []
    for once in (False, True):
        chains = make_chains(target, kernel, x, np.random.default_rng(1))
        for t in range(4):
            chains.adopt(
                model.with_params({"v.bias": np.full(40, 0.1 * t)}),
                kernel,
                np.random.default_rng(t),
            )
            chains.sweep_once() if once else chains.sweep(1)
        found.append((chains.values(), chains.log_density()))
    same = np.all([(found[0][0][name] == found[1][0][name]).all(axis=1) for name in x], axis=0)
    assert (~same).sum() <= ties
    np.testing.assert_allclose(found[0][1][same], found[1][1][same], rtol=1e-4)


@pytest.mark.parametrize("observed", ["nothing", "here and there"])
@one_test_over("tiny_model", FINITE)
@pytest.mark.parametrize("engine", [CompiledChains, PlainChains])
def test_layers_drawn_anew_are_drawn_as_by_gibbs(engine, tiny_model, observed):
    """The sweep of all kinds of layers, those that move unit by unit and those with arrows
    included.
    """
    target, rng = rows_of(tiny_model, observed), np.random.default_rng(2)
    x, found = start(target, rng), []
    for kernel, anew in ((pgm.Gibbs(), ()), (pgm.FlipState(), tuple(x))):
        chains = engine(target, kernel, x, np.random.default_rng(1))
        chains.sweep_once(anew=anew)
        chains.sweep_once(anew=anew)
        found.append(chains.values())
    for name in x:
        np.testing.assert_array_equal(found[0][name], found[1][name])


def test_adopted_chains_are_chains_of_the_new_model(sure=5.5):
    """Exact start, other parameters, long run: means of the new model, not of the old.

    One of seven means of independent chains is beyond the limit once in 4e6 tests (normal errors,
    deviations of at most 1/2); the old means are more than 20 limits away.
    """
    old = pgm.rbm(4, 3, rng=0)
    new = old.with_params({k: v + 1.0 for k, v in old.params.items()})
    target = old.given().take(np.zeros(20_000, dtype=int))
    chains = make_chains(
        target, pgm.Gibbs(), start(target, np.random.default_rng(0)), np.random.default_rng(0)
    )
    chains.sweep(3)
    chains.adopt(new, pgm.FlipState(), np.random.default_rng(1))
    chains.sweep(30)
    exact = pgm.infer(new, method=pgm.Exact()).mean
    for name, value in chains.values().items():
        assert np.all(np.abs(value.mean(axis=0) - exact[name]) < sure * 0.5 / np.sqrt(len(value)))


B, S = pgm.Binary(), pgm.Spin()
FOUR = tiny_model(
    "four in a row",
    {"v": (B, 2), "h1": (S, 2), "h2": (B, 2), "h3": (S, 1)},
    [("v", "h1"), ("h1", "h2"), ("h2", "h3")],
)


def rows_of(tiny_model, observed, rows=24):
    """Rows at several beta and with a reference: with evidence of their own, with a layer observed,
    or free.
    """
    if observed == "here and there":
        return mixed_target(tiny_model, rows)
    rng, model = np.random.default_rng(0), tiny_model.build()
    reference = {n: rng.normal(size=layer.width) for n, layer in model.structure.layers.items()}
    seen = tiny_model.layers[-1].name if observed == "a layer" else None
    evidence = {
        n: x
        for n, x in as_evidence(tiny_model, [draw_row(tiny_model, rng, 1.0)]).items()
        if n == seen
    }
    return (
        model.given(evidence)
        .take(np.zeros(rows, dtype=int))
        .at(rng.choice([0.0, 0.37, 1.0], size=rows), reference)
    )


@pytest.mark.parametrize("observed", ["nothing", "a layer", "here and there"])
@one_test_over("tiny_model", (*FINITE, *INFINITE, FOUR))
def test_the_path_of_adopted_chains_is_that_of_their_states(tiny_model, observed, rtol=2e-5):
    """The first sweep after adopt sums the couplings from the layers drawn last alone, the second
    from all of them.
    """
    target, rng = rows_of(tiny_model, observed), np.random.default_rng(2)
    new = target.model.with_params({k: 1.2 * v for k, v in target.model.params.items()})
    chains = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
    chains.sweep(2)
    chains.adopt(new, pgm.Gibbs(), rng)
    for _ in range(2):
        path, power = chains.sweep_path()
        at_0, at_1 = (
            target.with_model(new).at(b, target.reference).log_density(chains.values())
            for b in (0.0, 1.0)
        )
        np.testing.assert_allclose(path, at_0, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(power, at_1 - at_0, rtol=rtol, atol=10 * rtol)


@pytest.mark.parametrize("kernel", [pgm.Gibbs(), pgm.FlipState()], ids=repr)
def test_a_sweep_with_its_path_is_the_sweep_without(kernel, ties=4):
    """But for ties: as above, of 50 chains with 630 draws more than four part once in 1e9 tests."""
    model, rng = pgm.dbm([40, 30, 20], rng=0), np.random.default_rng(0)
    target = model.given().take(np.zeros(50, dtype=int))
    x, found = start(target, rng), []
    for path in (False, True):
        chains = make_chains(target, kernel, x, np.random.default_rng(1))
        for t in range(4):
            chains.adopt(
                model.with_params({"v.bias": np.full(40, 0.1 * t)}),
                kernel,
                np.random.default_rng(t),
            )
            chains.sweep_path() if path else chains.sweep_once()
        chains.sweep(3)
        found.append(chains.values())
    same = np.all([(found[0][name] == found[1][name]).all(axis=1) for name in x], axis=0)
    assert (~same).sum() <= ties
