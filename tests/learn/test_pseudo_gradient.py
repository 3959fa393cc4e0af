"""PseudoGradient against finite differences of a pseudo-likelihood written with the log density."""

import numpy as np
import pytest
from learn_models import crf, ising, observed, potts
from loops import one_test_over

import pgmengine as pgm
from pgmengine.evidence.given import make_target
from pgmengine.learn.full_batch.full_batch_run import WholeRun
from pgmengine.learn.run import compact


def mixed(seed=0):
    """Two layers of other units with a coupling between and inside them, and a table across."""
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    b.layer("m", pgm.MultiValued(2), 3)
    b.layer("c", pgm.Categorical(3), 2)
    b.couple("m", "m")
    b.couple("m", "c")
    b.couple("c", "c")
    b.tables(("m", "c"), [[0, 1], [2, 0]], rng.random((3, 3)) + 0.5)
    model = b.build(rng=seed)
    noise = {
        n: v + 0.3 * rng.standard_normal(v.shape) for n, v in model.params.items() if "bias" in n
    }
    return model.with_params(noise)


CASES = {
    "ising": (ising(), observed(ising(), 20, 0), ()),
    "mixed": (mixed(), observed(mixed(), 15, 1), ()),
    "potts": (potts(), {n: [0, 1, 2, 0, 1, 1] for n in "ab"} | {"c": [1, 2, 0, 2, 0, 2]}, ()),
    "crf": (crf(), observed(crf(), 12, 2), ("x",)),
    "given units": (mixed(), observed(mixed(), 15, 1), (("m", 1), ("c", 0))),
}


def log_pseudo_likelihood(model, values, given):
    """The sum over units of log p(unit | all others), (rows,), from log densities alone."""
    s = model.structure
    total = 0.0
    for name, layer in s.layers.items():
        if layer.unit.support is None:
            continue
        for unit in range(layer.size):
            if (
                name in given
                or (name, unit) in given
                or any(s.names.of((name, unit)) == key for key in given)
            ):
                continue
            logs = []
            for state in layer.unit.support:
                x = {n: v.copy() for n, v in values.items()}
                x[name][:, layer.columns(np.array([unit]))] = state
                logs.append(model.flat_log_density(x))
            total = total + model.flat_log_density(values) - np.logaddexp.reduce(logs, axis=0)
    return total


def objective_of(name):
    model, data, given = CASES[name]
    target = compact(make_target(model, data, what="data"), np.float64)
    units = model.structure.names.units(
        model.structure.names.alone_or_several(tuple(given)), "given"
    )
    weights = np.arange(1.0, target.rows + 1)
    rng = np.random.default_rng(0)
    run = WholeRun(model, target, weights, pgm.PseudoGradient(), None, units, pgm.LBFGS(), rng)
    return run.objective, model, target.evidence.values, weights


@one_test_over("name", CASES)
def test_the_objective_is_the_pseudo_likelihood(name, rtol=1e-10):
    objective, model, x, weights = objective_of(name)
    expected = weights @ log_pseudo_likelihood(model, x, CASES[name][2]) / weights.sum()
    np.testing.assert_allclose(objective.gradient(model).value, expected, rtol=rtol)


@one_test_over("name", CASES)
def test_every_derivative_is_a_finite_difference(name, step=1e-5, atol=1e-8):
    objective, model, x, weights = objective_of(name)
    slopes = objective.gradient(model).slopes
    given, tested = CASES[name][2], 0
    inside = {f"{c.key}.weight" for c in model.structure.couplings if c.a == c.b}
    for key, value in model.params.items():
        for place in np.ndindex(value.shape):
            both = [place, place[::-1]] if key in inside else [place]
            if not np.isfinite(value[place]) or (key in inside and value[place] == 0.0):
                continue
            ends = []
            for sign in (1, -1):
                moved = np.array(value)
                for entry in set(both):
                    moved[entry] = value[entry] + sign * step
                other = pgm.Model(model.structure, {**model.params, key: moved})
                ends.append(weights @ log_pseudo_likelihood(other, x, given) / weights.sum())
            np.testing.assert_allclose(
                slopes[key][place], (ends[0] - ends[1]) / (2 * step), atol=atol, err_msg=key
            )
            tested += 1
    assert tested > 5


def test_the_fit_takes_lbfgs_and_finds_the_couplings(atol=0.12):
    """From exact draws of an Ising model, as consistent estimates."""
    rng = np.random.default_rng(0)
    w = np.triu(rng.choice([-0.4, 0.4], (5, 5)), 1)
    truth = ising(5).with_params({"v-v.weight": w + w.T, "v.bias": np.full(5, 0.2)})
    x = pgm.infer(truth, want=("samples",), method=pgm.Exact(draws=20_000), rng=1).samples["v"]
    data = {"v": x[:, 0] if x.ndim == 3 else x}
    fit = pgm.fit(ising(5), data, negative=pgm.PseudoGradient(), progress=False)
    assert type(fit.optimizer) is pgm.LBFGS
    assert any("pseudo-likelihood is concave" in note for note in fit.notes)
    np.testing.assert_allclose(fit.model.params["v-v.weight"], w + w.T, atol=atol)
    np.testing.assert_allclose(fit.model.params["v.bias"], 0.2, atol=atol)


def test_mini_batches_go_along_the_same_gradient(atol=0.02):
    model, data, _ = CASES["ising"]
    settings = {"negative": pgm.PseudoGradient(), "progress": False}
    steps = pgm.SGD(pgm.linear_decay(0.5, 1500))
    slow = pgm.fit(model, data, optimizer=steps, updates=1500, batch_size=20, **settings)
    best = pgm.fit(model, data, **settings)
    for key, value in best.model.params.items():
        np.testing.assert_allclose(slow.model.params[key], value, atol=atol)


def test_hidden_units_and_other_models_are_refused():
    x = {"v": [[0.0, 1.0, 0.0]]}
    phase = pgm.PseudoGradient()
    with pytest.raises(pgm.PgmError, match="layer 'h', row 0, index 0 is not observed"):
        pgm.fit(pgm.rbm(3, 2, rng=0), x, negative=phase, progress=False)
    real, both = pgm.rbm(3, 2, visible=pgm.Gaussian(1.0), rng=0), x | {"h": [[0.0, 1.0]]}
    with pytest.raises(pgm.PgmError, match="finitely many states, or given ones; layer 'v'"):
        pgm.fit(real, both, negative=phase, progress=False)
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3)
    b.layer("u", pgm.Binary(), 2)
    b.layer("w", pgm.Binary(), 2)
    b.cause("u", "v")
    b.couple("u", "w")
    with pytest.raises(pgm.PgmError, match="is an arrow"):
        pgm.fit(b.build(rng=0), x, negative=phase, progress=False)
