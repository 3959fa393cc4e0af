"""Gradients of every tiny model against finite differences."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from brute import Brute
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import one_test_over
from tiny import (
    FINITE,
    MODELS,
    as_evidence,
    draw_row,
    lateral,
    patterns,
    random_model,
    without_fixed_biases,
)

import pgmengine as pgm
from pgmengine.model.weights import is_sparse

# With large weights probabilities are nearly steps, of which finite differences are wrong.
SMOOTH = [m for m in MODELS if m.name != "rbm large weights"]


def direction(model, name, rng):
    """A random change of the parameters of an array, kept symmetric where the array is; none at the
    edge of a range.
    """
    value = model.params[name]
    step = rng.normal(size=value.shape) if not is_sparse(value) else sp.csr_array(value)
    step = without_fixed_biases(model, name, step)
    if is_sparse(value):
        step.data = rng.normal(size=step.nnz)
    last = name.removesuffix(".bias").removesuffix(".weight").split(">")[-1]
    if last in model.structure.layers and model.structure.layers[last].unit.nonnegative:
        step = step * (value > 1e-3)
    if lateral(name):
        step = (step + step.T) / 2
        return step if is_sparse(value) else step * between_units(model, name)
    inside = "->" in name and len(set(name.removesuffix(".weight").split("->"))) == 1
    return step * (value != 0) if inside and not is_sparse(value) else step


def between_units(model, name):
    layer = model.structure.layers[name.split("-")[0]]
    unit = np.arange(layer.width) // layer.unit.width
    return unit[:, None] != unit


def along(gradient, step, name):
    """The slope along a step; an entry of a symmetric array and that across are one parameter."""
    return (gradient * step).sum() / (2 if lateral(name) else 1)


def slope(value, model, name, step, by=1e-5):
    up, down = (
        value(model.with_params({name: model.params[name] + s * by * step})) for s in (1, -1)
    )
    return (up - down) / (2 * by)


@one_test_over("tiny_model", SMOOTH)
def test_slopes_of_the_log_density(tiny_model, rtol=1e-6, atol=1e-7):
    model, rng = tiny_model.build(), np.random.default_rng(1)
    x = as_evidence(tiny_model, [draw_row(tiny_model, rng, 1.0) for _ in range(6)])
    weights = rng.random(6)
    found = model.gradient(model.given(x).evidence.values, weights)
    for name in model.params:
        step = direction(model, name, rng)
        expected = slope(lambda m: weights @ m.log_density(x), model, name, step)
        np.testing.assert_allclose(
            along(found[name], step, name), expected, rtol=rtol, atol=atol, err_msg=name
        )


@pytest.mark.parametrize(
    "positive, complete",
    [(None, False), (pgm.Exact(), False), (None, True)],
    ids=["default", "exact", "complete"],
)
@one_test_over("tiny_model", [m for m in FINITE if m in SMOOTH])
def test_one_step_is_the_slope_of_the_log_likelihood(
    tiny_model, positive, complete, rate=1e-4, rtol=1e-5, atol=1e-6
):
    """Rows that are partly or completely observed. The posteriors of tiny models are exact by
    default.
    """
    model, rng = tiny_model.build(), np.random.default_rng(2)
    data = as_evidence(
        tiny_model,
        [draw_row(tiny_model, rng, 1.0) for _ in range(6)] if complete else patterns(tiny_model),
    )
    f = pgm.fit(
        model,
        data,
        negative=pgm.ExactGradient(),
        positive=positive,
        optimizer=pgm.SGD(rate),
        updates=1,
        batch_size=100,
        progress=False,
    )
    for name, value in model.params.items():
        step = direction(model, name, rng)
        expected = slope(
            lambda m: pgm.infer(m, data, want=("log_prob",)).log_prob.mean(), model, name, step
        )
        found = along((f.model.params[name] - value) / rate, step, name)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=name)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_one_step_on_random_models(seed):
    one_step_is_the_slope(seed)


def one_step_is_the_slope(seed, rate=1e-4, rtol=1e-5, atol=1e-6):
    """Any graph of any units, rows with holes and weights, some layers given."""
    tiny_model, rng = random_model(seed), np.random.default_rng(seed)
    model, names = tiny_model.build(), [layer.name for layer in tiny_model.layers]
    share = rng.choice([0.5, 0.8, 1.0])
    rows, weights = [draw_row(tiny_model, rng, share) for _ in range(5)], rng.random(5) + 0.2
    conditions = tuple(name for name in names if rng.random() < 0.3)
    data = as_evidence(tiny_model, rows)
    known = {name: data[name] for name in conditions}
    truth = [Brute(tiny_model, row).log_z for row in rows]
    np.testing.assert_allclose(
        pgm.infer(model, data, want=("log_z",)).log_z, truth, rtol=1e-9, atol=1e-9
    )
    learn = partial(
        pgm.fit,
        model,
        data,
        negative=pgm.ExactGradient(),
        positive=pgm.Exact(),
        given=conditions,
        sample_weight=weights,
        optimizer=pgm.SGD(rate),
        updates=1,
        batch_size=100,
        progress=False,
    )
    if all(none or name in conditions for name, none in model.given(data).pattern.all_free.items()):
        with pytest.raises(pgm.PgmError, match="nothing to learn"):
            learn()
        return
    f = learn()
    if any("exchangeable" in note for note in f.notes):
        # Such a start is left at random before the step.
        return

    def value(m):
        both = (pgm.infer(m, evidence, want=("log_z",)).log_z for evidence in (data, known))
        return weights @ np.subtract(*both) / weights.sum()

    for name, before in model.params.items():
        step = direction(model, name, rng)
        found = along((f.model.params[name] - before) / rate, step, name)
        np.testing.assert_allclose(
            found, slope(value, model, name, step), rtol=rtol, atol=atol, err_msg=name
        )


def regression(bias):
    """y given inputs x, as a directed net; the bias of x is that of a value which has no
    distribution.
    """
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Input(), 2, bias=bias)
    b.layer("y", pgm.Binary(), 1)
    b.cause("x", "y", weight=[[0.7], [-0.4]])
    return b.build()


@one_test_over("method", [pgm.Exact(), pgm.MeanField(), pgm.AIS(chains=5)], ids=repr)
def test_the_bias_of_inputs_does_not_act(method):
    x, y = np.array([[2.0, 1.0], [0.5, -1.0]]), np.array([[1.0], [0.0]])
    expected = -np.log1p(np.exp((1 - 2 * y[:, 0]) * (x @ [0.7, -0.4])))
    model = regression([1.5, -0.5])
    np.testing.assert_allclose(model.log_density({"x": x, "y": y}), expected, rtol=1e-12)
    found = pgm.infer(model, {"x": x, "y": y}, want=("log_z",), method=method).log_z
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("negative", [None, pgm.CD(), pgm.ExactGradient()], ids=repr)
@pytest.mark.parametrize(
    "make", [lambda: regression([0.1, 0.2]), lambda: pgm.drbm(2, 3, 2, rng=0)], ids=["net", "drbm"]
)
def test_parameters_of_what_is_given_stay(make, negative):
    """A gradient must be exactly 0, because Adam makes a full step of a rounding residue."""
    rng, model = np.random.default_rng(0), make()
    data = {"x": rng.normal(size=(50, 2)), "y": rng.integers(0, 2, (50, 1)).astype(float)}
    f = pgm.fit(
        model,
        data,
        given=("x",),
        negative=negative,
        optimizer=pgm.Adam(0.1),
        updates=30,
        progress=False,
    )
    assert np.array_equal(f.model.params["x.bias"], model.params["x.bias"])
    assert not np.allclose(f.model.params["y.bias"], model.params["y.bias"], atol=0.01)


def test_mini_batches_of_weighted_rows_add_up():
    """At fixed parameters the steps of a pass are the gradient of the weighted likelihood, however
    rows are parted.
    """
    rng, model = np.random.default_rng(0), pgm.rbm(4, 3, rng=1)
    x, w = rng.integers(0, 2, (9, 4)).astype(float), rng.random(9) * 4
    rate = 1e-9
    steps = {}
    for size in (9, 4, 1):  # 4: the last batch has one row
        f = pgm.fit(
            model,
            {"v": x},
            negative=pgm.ExactGradient(),
            sample_weight=w,
            batch_size=size,
            epochs=1,
            optimizer=pgm.SGD(lambda t, size=size: rate * min(size, 9 - t * size)),
            progress=False,
        )
        steps[size] = (f.model.params["v-h.weight"] - model.params["v-h.weight"]) / rate
    for size in (4, 1):
        np.testing.assert_allclose(steps[size], steps[9], atol=1e-4)
