"""Gradients of every machine of the table against differences of what they are gradients of."""

import numpy as np
import pytest
import scipy.sparse as sp
from tiny import FINITE, MACHINES, as_evidence, draw_row, lateral, patterns

import pgmengine as pgm
from pgmengine.weights import is_sparse

SMOOTH = [m for m in MACHINES if m.name != "rbm large weights"]  # differences say nothing of steps


def direction(model, name, rng):
    """A random change of the parameters of an array, kept symmetric where the array is."""
    value = model.params[name]
    step = rng.normal(size=value.shape) if not is_sparse(value) else sp.csr_array(value)
    if is_sparse(value):
        step.data = rng.normal(size=step.nnz)
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
    up, down = (value(model.with_params({name: model.params[name] + s * by * step})) for s in (1, -1))
    return (up - down) / (2 * by)


@pytest.mark.parametrize("machine", SMOOTH, ids=repr)
def test_slopes_of_the_log_density(machine, rtol=1e-6, atol=1e-7):
    model, rng = machine.build(), np.random.default_rng(1)
    x = as_evidence(machine, [draw_row(machine, rng, 1.0) for _ in range(6)])
    weights = rng.random(6)
    found = model.gradient(model.given(x).evidence.values, weights)
    for name in model.params:
        step = direction(model, name, rng)
        expected = slope(lambda m: weights @ m.log_density(x), model, name, step)
        np.testing.assert_allclose(along(found[name], step, name), expected, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("positive, complete", [(None, False), (pgm.Exact(), False), (None, True)],
                         ids=["default", "exact", "complete"])
@pytest.mark.parametrize("machine", [m for m in FINITE if m in SMOOTH], ids=repr)
def test_one_step_is_the_slope_of_the_log_likelihood(machine, positive, complete, rate=1e-4, rtol=1e-5, atol=1e-6):
    """Whatever is observed in each row, or everything; the posteriors of tiny machines are exact by default."""
    model, rng = machine.build(), np.random.default_rng(2)
    data = as_evidence(machine, [draw_row(machine, rng, 1.0) for _ in range(6)] if complete else patterns(machine))
    f = pgm.fit(model, data, negative=pgm.ExactGradient(), positive=positive, optimizer=pgm.SGD(rate), updates=1,
                batch_size=100, progress=False)
    for name, value in model.params.items():
        step = direction(model, name, rng)
        expected = slope(lambda m: pgm.infer(m, data, want=("log_prob",)).log_prob.mean(),
                         model, name, step)
        found = along((f.model.params[name] - value) / rate, step, name)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=name)
