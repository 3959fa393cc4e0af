"""MCMC: answers against enumeration, chains that do not mix, refusals."""

import numpy as np
import pytest
from tiny import FINITE, INFINITE, as_evidence, patterns

import pgmengine as pgm
from pgmengine.engine import layerwise
from pgmengine.infer.diagnostics.convergence import series_statistics
from pgmengine.infer.sampling.draws import collected
from pgmengine.infer.sampling.methods import mcmc


def test_chains_agree_with_exact_within_mcse():
    """Means of chains that have mixed lie within 7 standard errors of the exact means.

    There are fewer than 400 means, and a standard error rests on 800 batch means, so the
    false-alarm rate is below 1e-8. A random model may have modes that chains cross seldom; then the
    status has to say so, and most of the models have none.
    """
    names = (
        "dbm mixed",
        "sbn deep",
        "ising",
        "mixed",
        "rbm continuous",
        "rbm gaussian",
        "gaussian child",
    )
    mixed = 0
    for name in names:
        tiny_model = next(m for m in FINITE + INFINITE if m.name == name)
        rows = patterns(tiny_model)[:3]
        evidence = as_evidence(tiny_model, rows)
        chains = pgm.infer(
            tiny_model.build(), evidence, method=pgm.MCMC(chains=8, draws=2000), rng=3
        )
        exact = pgm.infer(tiny_model.build(), evidence, method=pgm.Exact())
        assert chains.kind == "estimate"
        if chains.status is not pgm.Status.OK:
            continue
        mixed += 1
        for layer in exact.mean:
            error = chains.stats["mcse"][layer]
            assert np.all(np.abs(chains.mean[layer] - exact.mean[layer]) <= 7 * error + 1e-9)
    assert mixed >= 5


def test_cross_layer_moments_are_not_products_of_means():
    tiny_model = next(m for m in FINITE if m.name == "rbm")
    chains = pgm.infer(
        tiny_model.build(), method=pgm.MCMC(chains=8, draws=4000), want=("pairs", "gradient"), rng=0
    )
    exact = pgm.infer(tiny_model.build(), method=pgm.Exact(), want=("pairs",))
    np.testing.assert_allclose(
        chains.pairs["v-h"], exact.pairs["v-h"], atol=5 * 0.5 / np.sqrt(8000)
    )
    np.testing.assert_allclose(chains.gradient["v-h.weight"], chains.pairs["v-h"], rtol=1e-9)


def test_chains_that_do_not_mix_say_so():
    model = pgm.boltzmann_machine(2, weight=[[0, 5.0], [5.0, 0]])
    result = pgm.infer(model, method=pgm.MCMC(chains=6, warmup=0, draws=200), rng=0)
    stuck = pgm.boltzmann_machine(12, weight=np.full((12, 12), 3.0) - 3 * np.eye(12))
    stuck = stuck.with_params({"x.bias": np.full(12, 0.3)})
    result = pgm.infer(stuck, method=pgm.MCMC(chains=6, warmup=5, draws=200), rng=0)
    assert result.status is pgm.Status.NOT_MIXED and result.warnings


def test_constant_series_have_guarded_statistics():
    rng = np.random.default_rng(0)
    x = np.zeros((4, 100, 1, 3))
    x[2:, :, 0, 1] = 1.0
    x[:, :, 0, 2] = rng.normal(size=(4, 100))
    s = series_statistics(x)
    assert s["rhat"][0, :2].tolist() == [1.0, np.inf] and abs(s["rhat"][0, 2] - 1) < 0.05
    assert (
        s["mcse"][0, 0] == 0
        and s["ess"][0, 0] == 400
        and s["ess"][0, 1] == 1
        and s["ess"][0, 2] > 200
    )


def test_same_seed_same_bits_and_state_goes_on():
    model = pgm.rbm(6, 3, rng=0)
    method = pgm.MCMC(chains=2, warmup=5, draws=20)
    first, second = (pgm.infer(model, method=method, rng=7, want=("samples",)) for _ in range(2))
    assert np.array_equal(first.samples["v"], second.samples["v"])
    assert first.samples["v"].shape == (40, 1, 6)
    more = pgm.infer(model, method=method, rng=7, state=first.state)
    assert more.state["v"].shape == first.state["v"].shape


def test_a_free_parent_with_infinitely_many_values_is_refused():
    b = pgm.GraphBuilder()
    b.layer("z", pgm.Gaussian(), 2)
    b.layer("v", pgm.Binary(), 3)
    b.cause("z", "v")
    model = b.build(rng=0)
    with pytest.raises(pgm.PgmError, match="'z'.*observe"):
        pgm.infer(model, method=pgm.MCMC())
    assert isinstance(pgm.infer(model, {"v": [1, 0, 1]}, rng=0).method, pgm.Forward)
    assert pgm.infer(model, {"z": [0.1, 2.0]}).kind == "exact"


def test_warnings_name_the_worst_variable():
    """Two copies of a fair variable never leave the state of their start; the third one mixes."""
    b = pgm.GraphBuilder()
    for name in ("a", "b", "c"):
        b.variable(name)
    b.table(("a", "b"), [[1.0, 0.0], [0.0, 1.0]])
    b.table(("b", "c"), [[1.0, 1.0], [1.0, 1.0]])
    r = pgm.infer(b.build(), method=pgm.MCMC(chains=4, draws=200), rng=0)
    stuck = [line for line in r.warnings if "R-hat of variable" in line]
    assert len(stuck) == 1 and ("variable 'a'" in stuck[0] or "variable 'b'" in stuck[0])
    assert not any("layer" in line for line in r.warnings)
    layers = pgm.GraphBuilder()
    layers.layer("x", pgm.Binary(), 3)
    layers.table((("x", 0), ("x", 1)), [[1.0, 0.0], [0.0, 1.0]])
    r = pgm.infer(layers.build(), method=pgm.MCMC(chains=4, draws=200), rng=0)
    assert any("R-hat of layer 'x' reaches inf" in line for line in r.warnings)


@pytest.mark.parametrize("warmup", [0, 5, 8, 19])
def test_warming_up_makes_as_many_sweeps_as_asked(warmup, monkeypatch):
    """They are made several in a call. Chains that are judged make some more from their starts."""
    made = []
    real = mcmc.make_chains

    def counted(*arguments):
        chains = real(*arguments)
        sweep = chains.sweep
        monkeypatch.setattr(chains, "sweep", lambda n: (made.append(n), sweep(n)))
        return chains

    monkeypatch.setattr(mcmc, "make_chains", counted)
    model = pgm.rbm(3, 2, rng=0)
    method = pgm.MCMC(chains=2, warmup=warmup, draws=7, thin=3, rhat_limit=np.inf)
    pgm.infer(model, method=method, rng=0)
    assert sum(made) == warmup + 7 * 3
    assert made[-7:] == [3] * 7


@pytest.mark.parametrize("batches, draws", [(7, 25), (2, 700)])
@pytest.mark.parametrize("case", ["binary", "spin", "observed", "mixed"])
def test_states_that_are_counted_give_the_sums_of_values(case, batches, draws, monkeypatch):
    """Bytes hold up to 255 draws; the sums of whole numbers have the same bits in any order."""
    model = pgm.rbm(5, 3, rng=0)
    if case == "spin":
        model = pgm.boltzmann_machine(6, rng=0)
    if case == "mixed":
        model = pgm.rbm(5, 3, visible=pgm.Categorical(3), rng=0)
    evidence = {"v": np.array([[1, np.nan, 0, np.nan, 1]] * 2)} if case == "observed" else None
    monkeypatch.setattr(collected, "MAX_TRACE_BATCHES", batches)
    method = pgm.MCMC(chains=3, warmup=10, draws=draws)
    counted = pgm.infer(model, evidence, method=method, rng=0)
    monkeypatch.setattr(layerwise.CompiledChains, "two_valued", lambda chains: {})
    added = pgm.infer(model, evidence, method=method, rng=0)
    for name, mean in added.mean.items():
        np.testing.assert_array_equal(counted.mean[name], mean)
        for key in ("ess", "rhat", "mcse"):
            np.testing.assert_array_equal(counted.stats[key][name], added.stats[key][name])
    np.testing.assert_array_equal(counted.stats["energy"], added.stats["energy"])
