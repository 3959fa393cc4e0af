"""Log Z as a function in JAX: gradients, batches, compiled programs, answers, log densities."""

import numpy as np
import pytest
from bridged_models import CASES, case, free, random_states
from extras import extra
from loops import one_test_over
from tiny import MODELS

import pgmengine as pgm

jax = extra("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def log_z(*given, **named):
    return pgm.jax.log_z(*given, **named)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_derivatives(name):
    """Of soft evidence and parameters, in every row."""
    from jax.test_util import check_grads

    model, evidence, soft, params = case(name)

    def function(some, numbers):
        own = {key: free(model, key, x, jnp.asarray) for key, x in numbers.items()}
        return log_z(model, evidence, soft=some, params=own)

    start = [
        {k: jnp.asarray(np.nan_to_num(x, neginf=0.0)) for k, x in part.items()}
        for part in (soft, params)
    ]
    check_grads(function, start, order=1, modes=["rev"])


def test_compiled_programs_and_vmap_have_the_same_answers():
    model, evidence, soft, params = case("boltzmann")
    seen, field = jnp.asarray(evidence["v"]), jnp.asarray(soft["h"])

    def loss(field, weight, seen):
        given = {"v": seen}
        return log_z(model, given, soft={"h": field}, params={"v-h.weight": weight}).sum()

    slopes = jax.grad(loss, argnums=(0, 1))
    weight = jnp.asarray(params["v-h.weight"])
    plain, compiled = slopes(field, weight, seen), jax.jit(slopes)(field, weight, seen)
    for one, other in zip(plain, compiled):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    r = pgm.infer(model, evidence, soft=soft)
    np.testing.assert_allclose(plain[0], r.mean["h"], rtol=1e-10)
    each = jax.vmap(lambda one, x: log_z(model, {"v": x}, soft={"h": one})[0])(field, seen)
    whole = pgm.infer(model, evidence, ("log_z",), soft=soft).log_z
    np.testing.assert_allclose(each, whole, rtol=1e-12)


def test_evidence_has_no_gradient():
    model, seen = pgm.rbm(3, 2, rng=0), jnp.asarray([1.0, np.nan, 0])
    slope = jax.grad(lambda x: log_z(model, {"v": x})[0])(seen)
    assert np.isnan(slope).all()


def test_rows_of_evidence_by_names_and_interventions():
    model = pgm.read(pgm.datasets.asia())
    given = dict(evidence={"xray": ["yes", "no"]}, do={"smoke": "yes"})
    found = log_z(model, **given)
    np.testing.assert_array_equal(found, pgm.infer(model, want=("log_z",), **given).log_z)


def test_single_precision_stays():
    with jax.enable_x64(False):
        f = lambda x: log_z(pgm.rbm(3, 2, rng=0), soft={"v": x})[0]  # noqa: E731
        found, slope = jax.value_and_grad(f)(jnp.zeros(3))
    assert found.dtype == slope.dtype == np.float32


def test_second_derivatives_are_refused():
    f = lambda x: log_z(pgm.rbm(3, 2, rng=0), soft={"v": x})[0]  # noqa: E731
    for twice in (jax.hessian(f), jax.jacrev(jax.grad(f))):
        with pytest.raises(pgm.PgmError, match="log_z has no second derivatives"):
            twice(jnp.zeros(3))


def test_answers_are_those_of_infer_and_have_no_gradient():
    model, evidence, soft, _ = case("network")
    method, want = pgm.Exact(draws=7), ("marginals", "samples")
    given = {name: jnp.asarray(x) for name, x in soft.items()}
    found = pgm.jax.infer(model, evidence, want, soft=given, method=method, rng=0)
    r = pgm.infer(model, evidence, want, soft=soft, method=method, rng=0)
    for answer in ("mean", "prob", "samples"):
        assert sorted(getattr(found, answer)) == sorted(model.variables)
        for name, x in getattr(found, answer).items():
            np.testing.assert_array_equal(x, getattr(r, answer)[name])
    loss = lambda x: pgm.jax.infer(model, soft={"lung": x}).prob["lung"].sum()  # noqa: E731
    for traced in (jax.grad(loss), jax.jit(loss)):
        with pytest.raises(pgm.PgmError, match="have no gradient.*outside of jit and grad"):
            traced(jnp.zeros(2))


def test_errors_are_those_of_infer():
    with pytest.raises(pgm.PgmError, match="soft: layer 'v', index 0 is nan, expected a finite"):
        log_z(pgm.rbm(3, 2, rng=0), soft={"v": jnp.full(3, np.nan)})
    # Shapes and names are known before a program is compiled.
    with pytest.raises(pgm.PgmError, match=r"soft: layer 'v' has shape \(2,\), expected"):
        jax.jit(lambda x: log_z(pgm.rbm(3, 2, rng=0), soft={"v": x}))(jnp.zeros(2))


@pytest.mark.parametrize("tiny", MODELS, ids=repr)
def test_log_density_is_the_one_of_the_model(tiny):
    model = tiny.build()
    x = random_states(model)
    own = {k: jnp.asarray(v) for k, v in model.params.items() if type(v) is np.ndarray}
    found = pgm.jax.log_density(model, {n: jnp.asarray(v) for n, v in x.items()}, own)
    np.testing.assert_allclose(found, model.log_density(x), rtol=1e-10, atol=1e-10)


def test_log_density_compiles_and_is_differentiable():
    model = pgm.read(pgm.datasets.asia())
    x = {name: jnp.asarray([0, 1, 1]) for name in model.variables}
    f = jax.jit(lambda x, own: pgm.jax.log_density(model, x, own))
    own = {k: jnp.asarray(v) for k, v in model.params.items()}
    plain = model.log_density({name: ["yes", "no", "no"] for name in model.variables})
    np.testing.assert_allclose(f(x, own), plain)
    slope = jax.grad(lambda p: f(x, p)[jnp.isfinite(plain)].sum())(own)
    assert all(np.isfinite(s).all() for s in slope.values())


CALLS = {
    "log_z": lambda m: pgm.jax.log_z(m),
    "infer": lambda m: pgm.jax.infer(m).mean["v"],
    "log_density": lambda m: pgm.jax.log_density(
        m, {"v": jnp.zeros((1, 3)), "h": jnp.zeros((1, 2))}
    ),
}


@one_test_over("name", CALLS)
def test_a_fit_is_taken_and_nothing_else_by_chance(name):
    f = pgm.fit(pgm.rbm(3, 2, rng=0), {"v": np.eye(3)}, updates=3, progress=False)
    np.testing.assert_array_equal(CALLS[name](f), CALLS[name](f.model))
    with pytest.raises(pgm.PgmError, match="model must be a Model or a Fit, not Target"):
        CALLS[name](f.model.given())


WRONG_STATES = [
    (np.zeros((2, 3)), "states must map names to arrays, not ndarray"),
    ({"v": [[0, 0, 0]]}, "states: 'v' is a list, expected an array of numbers of torch, JAX"),
    ({"v": np.array([["a"] * 3])}, "states: 'v' is no array of numbers: "),
    ({"v": np.zeros((1, 3))}, "states need a value for every unit; layer 'h', index 0 has none"),
]


@one_test_over("states, message", WRONG_STATES)
def test_wrong_states_are_named(states, message):
    with pytest.raises(pgm.PgmError) as said:
        pgm.jax.log_density(pgm.rbm(3, 2, rng=0), states)
    assert message in str(said.value)
