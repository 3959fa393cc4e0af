"""Gibbs sweeps: conditionals equal differences of the log density, p is invariant, broken kernels are caught."""

import numpy as np
import pytest
from brute import Brute
from scipy.stats import chi2
from tiny import FINITE, as_evidence, draw_row, patterns

import pgmengine as pgm
from pgmengine.diagnostics import series_statistics
from pgmengine.kernels import plain as engine
from pgmengine.kernels.chains import make_chains
from pgmengine.target import Target

CHAINS, MORE_CHAINS, FEW_STATES = 40_000, 200_000, 128  # more chains on the smallest machines
table = pytest.mark.parametrize("machine", [m for m in FINITE if m.name != "rbm large weights"], ids=repr)


def exact_start(truth, chains, rng):
    """States drawn by the oracle, as flat values."""
    index = rng.choice(len(truth.p), size=chains, p=truth.p)
    return {n: v[index] for n, v in truth.values.items()}


def counts_of(truth, x):
    """How often each joint state occurs among the rows of x."""
    place = {state.tobytes(): i for i, state in enumerate(joint(truth.values))}
    found = [place[state.tobytes()] for state in joint(x)]
    return np.bincount(found, minlength=len(truth.p))


def joint(values):
    return np.ascontiguousarray(np.round(np.concatenate(list(values.values()), axis=1) * 1000).astype(np.int64))


def p_value(truth, x):
    """Chi-square over all joint states, those with few expected counts pooled."""
    counts, expected = counts_of(truth, x), truth.p * len(next(iter(x.values())))
    small = expected < 10
    pooled = np.append(counts[~small], counts[small].sum()), np.append(expected[~small], expected[small].sum())
    keep = pooled[1] > 0
    if not keep[-1] and pooled[0][-1]:
        return 0.0
    statistic = ((pooled[0] - pooled[1])[keep] ** 2 / pooled[1][keep]).sum()
    return float(chi2.sf(statistic, max(int(keep.sum()) - 1, 1)))


def after_sweeps(machine, row, beta, sweeps, rng):
    """p-value of the joint states after sweeps from an exact start."""
    truth = Brute(machine, row, beta=beta)
    chains = MORE_CHAINS if len(truth.p) <= FEW_STATES else CHAINS
    target = machine.build().given(as_evidence(machine, [row]), beta=beta).take(np.zeros(chains, dtype=int))
    x = exact_start(truth, chains, rng)
    for _ in range(sweeps):
        x = engine.sweep(target, pgm.Gibbs(), x, rng)
    return p_value(truth, x)


@table
@pytest.mark.parametrize(("share", "beta", "sweeps"), [(0.0, 1.0, 1), (0.0, 0.37, 3), (0.4, 1.0, 3)])
def test_gibbs_leaves_p_invariant(machine, share, beta, sweeps):
    rng = np.random.default_rng(5)
    row = draw_row(machine, np.random.default_rng(11), share)
    assert after_sweeps(machine, row, beta, sweeps, rng) > 1e-6


@table
def test_conditionals_equal_differences_of_the_log_density(machine):
    """The log weights that a unit is drawn from, for every unit and state."""
    model, rng = machine.build(), np.random.default_rng(0)
    target = model.given(as_evidence(machine, [draw_row(machine, rng, 0.0)] * 3), beta=0.7)
    seen = []

    class Spy:
        def move(self, unit, eta, current, rng):
            seen.append(("block", eta))
            return current

        def move_state(self, log_weights, current, rng):
            seen.append(("unit", log_weights))
            return current

    full = as_evidence(machine, [draw_row(machine, rng, 1.0) for _ in range(3)])
    x = dict(model.given(full).evidence.values)
    engine.sweep(target, Spy(), {n: v.copy() for n, v in x.items()}, rng)
    by_unit, calls = engine.layers_by_unit(target), iter(seen)
    for name in (n for color in model.structure.colors for n in color):
        layer = model.structure.layers[name]
        support = layer.unit.support.reshape(len(layer.unit.support), layer.unit.width)
        block = None if name in by_unit else next(calls)[1]
        for i in range(layer.size):
            weights = next(calls)[1] if block is None else layer.unit.log_weights(block[:, i])
            densities = []
            for value in support:
                y = {n: v.copy() for n, v in x.items()}
                y[name][:, layer.columns(np.array([i]))] = value
                densities.append(target.log_density(y))
            densities = np.stack(densities, axis=1)
            if np.isfinite(densities).all():
                np.testing.assert_allclose(weights - weights[:, :1], densities - densities[:, :1], rtol=1e-10, atol=1e-10)


def test_chains_agree_with_exact_within_mcse():
    for name in ("dbm mixed", "sbn deep", "ising", "mixed"):
        machine = next(m for m in FINITE if m.name == name)
        rows = patterns(machine)[:3]
        evidence = as_evidence(machine, rows)
        chains = pgm.infer(machine.build(), evidence, method=pgm.MCMC(chains=8, draws=2000), rng=3)
        exact = pgm.infer(machine.build(), evidence, method=pgm.Exact())
        assert chains.status is pgm.Status.OK and chains.kind == "estimate"
        for layer in exact.mean:
            error = chains.stats["mcse"][layer]
            assert np.all(np.abs(chains.mean[layer] - exact.mean[layer]) <= 5 * error + 1e-9)


def test_cross_layer_moments_are_not_products_of_means():
    machine = next(m for m in FINITE if m.name == "rbm")
    chains = pgm.infer(machine.build(), method=pgm.MCMC(chains=8, draws=4000), want=("pairs", "gradient"), rng=0)
    exact = pgm.infer(machine.build(), method=pgm.Exact(), want=("pairs",))
    np.testing.assert_allclose(chains.pairs["v-h"], exact.pairs["v-h"], atol=5 * 0.5 / np.sqrt(8000))
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
    assert s["mcse"][0, 0] == 0 and s["ess"][0, 0] == 400 and s["ess"][0, 1] == 1 and s["ess"][0, 2] > 200


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
        pgm.infer(model)
    assert pgm.infer(model, {"z": [0.1, 2.0]}).kind == "exact"


# Broken engines: each must be caught by the invariance test that the real one passes.


def synchronous(monkeypatch):
    def sweep(target, kernel, x, rng):
        return (
            {n: real(target, kernel, x, rng)[n] for n in x}
            if False
            else {n: _one_layer(target, kernel, x, n, rng) for n in x}
        )

    real = engine.sweep
    monkeypatch.setattr(engine, "sweep", sweep)


def _one_layer(target, kernel, x, name, rng):
    layer = target.structure.layers[name]
    eta = layer.shaped(target.natural(x, name))
    moved = layer.flat(kernel.move(layer.unit, eta, layer.shaped(x[name]), rng))
    return np.where(target.components(name, target.free[name]), moved, x[name])


def forgotten_clamp(monkeypatch):
    monkeypatch.setattr(
        Target,
        "components",
        lambda self, name, mask: (
            np.ones_like(mask)
            if self.structure.layers[name].unit.width == 1
            else np.ones((len(mask), self.structure.layers[name].width), dtype=bool)
        ),
    )


def forgotten_normaliser(monkeypatch):
    monkeypatch.setattr(
        engine._Child,
        "log_prob",
        lambda self, reached, change: (self.value[:, reached] * (self.zeta[:, reached] + change)).sum(axis=1),
    )


def forgotten_bias(monkeypatch):
    real = Target.outer_field
    monkeypatch.setattr(
        Target,
        "outer_field",
        lambda self, x, name: (
            real(self, x, name)
            - (0 if name in self.structure.directed_layers else self.beta[:, None] * self.model.bias(name))
        ),
    )


def factor_two(monkeypatch):
    real = Target.outer_field
    monkeypatch.setattr(Target, "outer_field", lambda self, x, name: 2 * real(self, x, name))


@pytest.mark.parametrize(
    ("mutant", "name", "share"),
    [
        (synchronous, "dbm", 0.0),
        (forgotten_clamp, "rbm", 0.5),
        (forgotten_normaliser, "sbn", 0.0),
        (forgotten_bias, "rbm", 0.0),
        (factor_two, "rbm", 0.0),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_broken_engines_are_caught(mutant, name, share, monkeypatch):
    machine = next(m for m in FINITE if m.name == name)
    row = draw_row(machine, np.random.default_rng(11), share)
    assert after_sweeps(machine, row, 1.0, 3, np.random.default_rng(5)) > 1e-6
    mutant(monkeypatch)
    try:
        caught = after_sweeps(machine, row, 1.0, 3, np.random.default_rng(5)) < 1e-6
    except KeyError:  # a state that the evidence forbids
        caught = True
    assert caught
