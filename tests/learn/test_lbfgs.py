"""L-BFGS: gradients of the objective by finite differences, optima by conditions, its behaviour."""

from itertools import product

import numpy as np
import pytest
from learn_models import crf, ising, network, observed, potts
from loops import one_test_over
from scipy.optimize import minimize

import pgmengine as pgm
from pgmengine.evidence.given import make_target
from pgmengine.learn.full_batch.full_batch_run import WholeRun
from pgmengine.learn.run import compact
from pgmengine.learn.steps.lbfgs import LBFGS, _Path


def only(data, *names):
    return {name: data[name] for name in names}


CASES = {
    "ising": (ising(), observed(ising(), 30, 0), {}),
    "ising with holes": (ising(), observed(ising(), 30, 0, 0.2), {}),
    "potts": (potts(), {n: [0, 1, 2, 0, 1, 1] for n in "ab"} | {"c": [1, 2, 0, 2, 0, 2]}, {}),
    "network": (network(), {n: [0, 1, 2, 0, 1, 2] for n in "abc"}, {}),
    "network with a latent variable": (network(), {n: [0, 1, 2, 0, 1, 2] for n in "bc"}, {}),
    "rbm": (pgm.rbm(4, 2, rng=0), only(observed(pgm.rbm(4, 2), 20, 1), "v"), {}),
    "crf": (crf(), observed(crf(), 12, 2), {"given": ("x",)}),
    "labels given rows": (
        pgm.drbm(3, 2, 3, rng=0),
        only(observed(pgm.drbm(3, 2, 3), 12, 4), "x", "y"),
        {"given": ("x",)},
    ),
    "belief net": (pgm.sbn([4, 2], rng=0), only(observed(pgm.sbn([4, 2]), 20, 3), "v"), {}),
}


def path_of(name, optimizer, **settings):
    model, data, more = CASES[name]
    given = {n: np.ones(model.structure.layers[n].size, bool) for n in more.get("given", ())}
    target = compact(make_target(model, data, what="data"), np.float64)
    rng = np.random.default_rng(0)
    weights = np.arange(1.0, target.rows + 1)
    negative = settings.pop("negative", None)
    run = WholeRun(model, target, weights, negative, None, given, optimizer, rng)
    return _Path(optimizer, run.objective, run.model)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_gradients_are_finite_differences(name, l2, step=1e-5, atol=1e-8):
    """Along random directions that keep symmetric weights symmetric, at random points."""
    path = path_of(name, LBFGS(l2=l2))
    rng = np.random.default_rng(0)
    for _ in range(3):
        _, slope = path.at(path.here)
        # Gradients of random points are combinations of moves that the model can make.
        direction = slope + 0.1 * np.where(path.moves & (slope != 0), slope * rng.random(), 0.0)
        up, down = (path.at(path.here + s * step * direction)[0] for s in (1, -1))
        np.testing.assert_allclose((up - down) / (2 * step), slope @ direction, atol=atol)
        path.here = path.here + direction * rng.random()


def pair_log_likelihood(theta, x):
    """The mean log-likelihood of spins by enumeration; theta has biases, then pairs i < j."""
    n = x.shape[1]
    pairs = [(i, j) for i in range(n) for j in range(i)]
    states = np.array(list(product((-1.0, 1.0), repeat=n)))

    def energy(v):
        return v @ theta[:n] + sum(t * v[:, i] * v[:, j] for t, (i, j) in zip(theta[n:], pairs))

    return energy(x).mean() - np.log(np.exp(energy(states)).sum())


@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_an_ising_model_reaches_the_maximum_found_by_scipy(l2, atol=1e-4):
    x = observed(ising(3), 60, 5)["v"]
    fit = pgm.fit(ising(3), {"v": x}, optimizer=pgm.LBFGS(l2=l2, tolerance=1e-8), progress=False)

    def loss(theta):
        return l2 / 2 * np.square(theta[3:]).sum() - pair_log_likelihood(theta, x)

    best = minimize(loss, np.zeros(6), options={"gtol": 1e-7})
    w = fit.model.params["v-v.weight"]
    found = [*fit.model.params["v.bias"], w[1, 0], w[2, 0], w[2, 1]]
    np.testing.assert_allclose(found, best.x, atol=atol)
    np.testing.assert_allclose(fit.history["objective"]["value"][-1], -best.fun, atol=1e-9)
    np.testing.assert_array_equal(w, w.T)
    assert "no derivative" in fit.stopped


@one_test_over("name", CASES)
def test_the_objective_never_falls(name, updates=25):
    model, data, more = CASES[name]
    steps = pgm.LBFGS(l2=0.01)
    fit = pgm.fit(model, data, optimizer=steps, updates=updates, progress=False, **more)
    assert (np.diff(fit.history["objective"]["value"]) >= -1e-12).all()
    assert fit.history["objective"]["value"][-1] > fit.history["objective"]["value"][0]


@pytest.mark.parametrize("l1", [0.02, 0.1])
def test_l1_reaches_the_conditions_of_its_optimum(l1, atol=1e-5):
    """Weights of 0 have a derivative of at most l1, others one of l1 times their sign."""
    path = path_of("ising", LBFGS(l1=l1))
    model, data, _ = CASES["ising"]
    weights = np.arange(1.0, len(data["v"]) + 1)
    steps = pgm.LBFGS(l1=l1, tolerance=1e-7)
    fit = pgm.fit(model, data, optimizer=steps, sample_weight=weights, progress=False)
    slope = path.objective.gradient(fit.model).slopes
    w, g = fit.model.params["v-v.weight"], slope["v-v.weight"]
    off = ~np.eye(len(w), dtype=bool)
    zero = off & (w == 0)
    assert zero.any() or l1 < 0.05
    assert (np.abs(g[zero]) <= l1 + atol).all()
    np.testing.assert_allclose(g[off & ~zero], l1 * np.sign(w[off & ~zero]), atol=atol)
    np.testing.assert_allclose(slope["v.bias"], 0.0, atol=atol)


def test_conditionals_reach_the_counts(atol=1e-4):
    rng = np.random.default_rng(0)
    data = {n: rng.integers(0, 3, 200) for n in "abc"}
    counts = pgm.fit(network(), data, optimizer=pgm.EM(pseudocount=0.0), progress=False)
    slopes = pgm.fit(network(), data, optimizer=pgm.LBFGS(tolerance=1e-7), progress=False)
    for key, value in counts.model.params.items():
        np.testing.assert_allclose(np.exp(slopes.model.params[key]), np.exp(value), atol=atol)


def test_fixed_entries_stay_and_others_reach_their_optimum(atol=1e-4):
    rng = np.random.default_rng(0)
    data = {n: rng.integers(0, 3, 200) for n in "abc"}
    mask = {"b|a.table": np.eye(3, dtype=bool), "a|.table": np.array([True, False, False])}
    of = [
        pgm.fit(network(), data, optimizer=pgm.Fixed(steps, mask), progress=False).model
        for steps in (pgm.EM(pseudocount=0.0), pgm.LBFGS(tolerance=1e-7))
    ]
    for key, value in of[0].params.items():
        np.testing.assert_allclose(np.exp(of[1].params[key]), np.exp(value), atol=atol)
    one, two = (np.exp(m.params["b|a.table"]) for m in (network(), of[1]))
    np.testing.assert_allclose(np.diag(one), np.diag(two), rtol=1e-12)
    half = np.zeros((4, 4), dtype=bool)
    half[0, 1] = True
    with pytest.raises(pgm.PgmError, match="symmetric, and its mask is not"):
        steps = pgm.Fixed(pgm.LBFGS(), {"v-v.weight": half})
        pgm.fit(ising(), CASES["ising"][1], optimizer=steps, progress=False)
    both = pgm.Fixed(pgm.LBFGS(), {"v-v.weight": half | half.T})
    fit = pgm.fit(ising(), CASES["ising"][1], optimizer=both, progress=False)
    w = fit.model.params["v-v.weight"]
    assert w[0, 1] == w[1, 0] == ising().params["v-v.weight"][0, 1]


def test_phases_that_are_not_exact_are_refused():
    x = observed(pgm.rbm(4, 2), 10, 0)
    x = {"v": x["v"]}
    with pytest.raises(pgm.PgmError, match="take negative=pgm.ExactGradient"):
        pgm.fit(pgm.rbm(4, 2, rng=0), x, negative=pgm.PCD(), optimizer=pgm.LBFGS(), progress=False)
    with pytest.raises(pgm.PgmError, match="data phase by MCMC only estimates"):
        pgm.fit(pgm.rbm(4, 2, rng=0), x, positive=pgm.MCMC(), optimizer=pgm.LBFGS(), progress=False)
    with pytest.raises(pgm.PgmError, match="noisy-or"):
        pgm.fit(noisy(), x, optimizer=pgm.LBFGS(), progress=False)


def noisy():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.NoisyOr(), 4)
    b.layer("h", pgm.Binary(), 2)
    b.cause("h", "v")
    return b.build(rng=0)


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path):
    settings = {"optimizer": pgm.LBFGS(l2=0.1, tolerance=0.0), "progress": False}
    model, data, _ = CASES["rbm"]
    whole = pgm.fit(model, data, updates=12, **settings)
    pgm.fit(model, data, updates=5, checkpoint=tmp_path / "c", **settings)
    two = pgm.fit(model, data, updates=12, checkpoint=tmp_path / "c", **settings)
    for name, value in whole.model.params.items():
        np.testing.assert_array_equal(value, two.model.params[name])
