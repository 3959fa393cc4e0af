"""The start of learning of fresh models: base rates of the data, in a centred model.

Means and natural parameters are computed here by formulas of their own.
"""

import math

import numpy as np
import pytest
from loops import one_test_over
from quadrature import legendre

import pgmengine as pgm
from pgmengine.declare.model import Model
from pgmengine.learn.starting.base_rate_start import observed_means, started

NAN = np.nan


def grid_mean(values):
    """Return the function from natural parameters to means of a unit with these values."""

    def mean(eta):
        weight = np.exp(np.multiply.outer(eta, values))
        return (weight @ values) / weight.sum(axis=-1)

    return mean


def langevin(eta):
    """Return the mean of a density in proportion to exp(eta x) on [-1, 1], by Gauss-Legendre."""
    x, w = legendre(200)
    weight = w * np.exp(np.multiply.outer(eta, x))
    return (weight @ x) / weight.sum(axis=-1)


def one_hot_mean(eta):
    weight = np.exp(eta)
    return weight / weight.sum(axis=-1, keepdims=True)


def components(k):
    """Return the function from states, NaN where missing, to one-hot rows."""
    return lambda x: np.where(np.isnan(x)[..., None], NAN, x[..., None] == np.arange(k))


# Name -> unit, draw of values, value by component, mean of eta, and the mean at eta = 0 that counts
# as one more observation (None: none is added).
UNITS = {
    "Binary": (pgm.Binary(), (0, 1), None, grid_mean(np.array([0.0, 1.0])), 0.5),
    "Spin": (pgm.Spin(), (-1, 1), None, grid_mean(np.array([-1.0, 1.0])), 0.0),
    "Categorical": (pgm.Categorical(3), (0, 1, 2), components(3), one_hot_mean, 1 / 3),
    "MultiValued": (pgm.MultiValued(3), (-1, -1 / 3, 1 / 3, 1), None,
                    grid_mean(np.linspace(-1, 1, 4)), 0.0),
    "interval": (pgm.MultiValued(math.inf), (-1, -0.4, 0.1, 0.7), None, langevin, 0.0),
    "Gaussian": (pgm.Gaussian(), (-2.5, 0.3, 4.0), None, lambda eta: eta, None),
    "narrow": (pgm.Gaussian(0.5), (-2.5, 0.3, 4.0), None, lambda eta: 0.25 * eta, None),
}  # fmt: skip
SIZE = 5


def draw(name, rows, seed=0):
    """Draw rows of a layer with unequal shares of the values in each column."""
    rng, values = np.random.default_rng(seed), np.array(UNITS[name][1], dtype=float)
    shares = rng.dirichlet(np.full(len(values), 0.6), SIZE)
    return np.stack([rng.choice(values, rows, p=p) for p in shares], axis=1)


def rates(name, x, weights=None):
    """Return the smoothed mean of each unit, (SIZE,) or (SIZE, k), one by one."""
    _, _, split, _, added = UNITS[name]
    x = np.array(x) if split is None else split(x)
    weights = np.ones(len(x)) if weights is None else np.array(weights) / np.mean(weights)
    out = np.empty(x.shape[1:])
    for i in np.ndindex(out.shape):
        column = x[(slice(None), *i)]
        seen = ~np.isnan(column) & (weights > 0)
        total, count = (weights * np.nan_to_num(column))[seen].sum(), weights[seen].sum()
        if added is not None:
            total, count = total + added, count + 1
        out[i] = total / count if count else 0.0
    return out


def input_at_means(model, name, means):
    """Return the input of a layer, with all its neighbours at their means."""
    total = model.bias(name).copy()
    for c in model.structure.couplings:
        weight = model.weight(c)
        weight = weight.toarray() if hasattr(weight, "toarray") else weight
        if c.b == name:
            total += np.ravel(means[c.a]) @ weight
        elif c.a == name and not c.directed:
            total += weight @ np.ravel(means[c.b])
    return total.reshape(model.params[f"{name}.bias"].shape)


def begun(model, data, **settings):
    """Return the model at which a fit begins."""
    return pgm.fit(model, data, updates=0, progress=False, **settings)


def kinds(name):
    """Return data of a kind each, kind -> (rows, weights or None)."""
    x = draw(name, 40)
    cells = np.where(np.random.default_rng(1).random(x.shape) < 0.3, NAN, x)
    column, constant = x.copy(), x.copy()
    column[:, 2], constant[:, 1] = NAN, x[0, 1]
    weights = np.random.default_rng(2).exponential(size=40) * (np.arange(40) % 3 > 0)
    return {
        "rows": (x, None),
        "weighted": (x, weights),
        "missing cells": (cells, None),
        "weighted missing cells": (cells, weights),
        "a column that is always missing": (column, None),
        "a constant column": (constant, None),
        "equal rows": (np.repeat(x[:1], 40, axis=0), None),
        "one row": (x[:1], None),
        "one row with a missing cell": (np.where(np.arange(SIZE) == 3, NAN, x[:1]), None),
    }


@pytest.mark.parametrize("kind", kinds("Binary"))
@pytest.mark.parametrize("name", UNITS)
def test_a_fresh_model_begins_with_the_means_of_the_data(name, kind, rtol=1e-7, atol=1e-9):
    """The input of each unit, its neighbours at their means, gives the smoothed mean of its data;
    hidden units have an input of 0, as with a bias of 0 and no weights.
    """
    unit, _, _, mean, _ = UNITS[name]
    x, weights = kinds(name)[kind]
    found = begun(pgm.rbm(SIZE, 4, visible=unit, rng=3), {"v": x}, sample_weight=weights)
    assert found.started == ("v",)
    expected = {"v": rates(name, x, weights), "h": np.full(4, 0.5)}
    at_means = mean(input_at_means(found.model, "v", expected))
    np.testing.assert_allclose(at_means, expected["v"], rtol=rtol, atol=atol)
    np.testing.assert_allclose(input_at_means(found.model, "h", expected), 0, atol=atol)
    rated = found.model.training.base_rates["v"]
    np.testing.assert_allclose(rated, expected["v"], rtol=rtol, atol=atol)


@one_test_over("name", UNITS)
def test_weights_stay_as_they_were_drawn(name):
    model = pgm.rbm(SIZE, 4, visible=UNITS[name][0], rng=3)
    found = begun(model, {"v": draw(name, 20)}).model
    np.testing.assert_array_equal(found.params["v-h.weight"], model.params["v-h.weight"])


@pytest.mark.parametrize("hidden", ["Binary", "Spin", "Categorical", "MultiValued"])
@pytest.mark.parametrize("name", [n for n in UNITS if n != "narrow"])
def test_without_weights_units_are_independent_at_their_base_rates(name, hidden, atol=1e-9):
    """log p of a row is a sum over its columns, by the definition of each unit."""
    unit, values, split, _, _ = UNITS[name]
    x, b = draw(name, 30), pgm.GraphBuilder()
    b.layer("v", unit, SIZE)
    b.layer("h", UNITS[hidden][0], 2)
    shape = [SIZE * unit.width, 2 * UNITS[hidden][0].width]
    b.couple("v", "h", weight=np.zeros(shape))
    target = b.build().given({"v": x})
    model, layers = started(target.model, observed_means(target, np.ones(len(x))))
    assert layers == ("v",)
    exact = pgm.Exact()
    found = pgm.infer(model, {"v": x}, want=("log_prob",), method=exact).log_prob
    r = rates(name, x)
    if name in ("Binary", "Spin"):
        # The probability of the larger value.
        p = r if name == "Binary" else (1 + r) / 2
        right = np.where(x == 1, np.log(p), np.log1p(-p)).sum(axis=1)
    elif name == "Categorical":
        right = np.log(r[np.arange(SIZE), x.astype(int)]).sum(axis=1)
    elif name == "Gaussian":
        right = (-((x - r) ** 2) / 2 - np.log(2 * np.pi) / 2).sum(axis=1)
    else:
        # Of all distributions with this mean, the one in proportion to exp(eta x).
        eta = np.array([_solved(UNITS[name][3], each) for each in r])
        if name == "MultiValued":
            each = eta * x - np.log(np.exp(np.multiply.outer(eta, values)).sum(axis=-1))
        else:
            each = eta * x - np.log(_length(eta))
        right = each.sum(axis=1)
    np.testing.assert_allclose(found, right, rtol=1e-7, atol=atol)


def _solved(mean, value):
    """Return the natural parameter with this mean, by halving an interval."""
    low, high = -200.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(np.array(middle)) < value else (low, middle)
    return middle


def _length(eta):
    """Return the integral of exp(eta x) over [-1, 1]."""
    x, w = legendre(200)
    return np.exp(np.multiply.outer(eta, x)) @ w


def stack():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), SIZE)
    b.layer("h", pgm.Spin(), 3)
    b.layer("g", pgm.Categorical(3), 2)
    b.couple("v", "h")
    b.couple("h", "g")
    b.couple("v", "v")
    return b.build(0)


def two_children():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3)
    b.layer("v", pgm.Binary(), SIZE)
    b.layer("g", pgm.Gaussian(), SIZE)
    b.cause("h", "v")
    b.cause("h", "g")
    return b.build(0)


def test_inputs_at_the_means_are_those_of_the_data_in_every_graph(rtol=1e-7, atol=1e-9):
    """Undirected stacks with couplings inside a layer, and children of arrows."""
    x, y = draw("Binary", 30), draw("Gaussian", 30)
    model = begun(stack(), {"v": x}).model
    means = {"v": rates("Binary", x), "h": np.zeros(3), "g": np.full((2, 3), 1 / 3)}
    found = UNITS["Binary"][3](input_at_means(model, "v", means))
    # Each unit of v is a neighbour of all others of v, by a symmetric weight.
    np.testing.assert_allclose(found, means["v"], rtol=rtol, atol=atol)
    for name in ("h", "g"):
        np.testing.assert_allclose(input_at_means(model, name, means), 0, atol=atol)
    fitted = begun(two_children(), {"v": x, "g": y})
    assert set(fitted.started) == {"v", "g"}
    means = {"v": rates("Binary", x), "g": rates("Gaussian", y), "h": np.full(3, 0.5)}
    for name, each in (("v", "Binary"), ("g", "Gaussian")):
        found = UNITS[each][3](input_at_means(fitted.model, name, means))
        np.testing.assert_allclose(found, means[name], rtol=rtol, atol=atol)
    # The bias of a parent does not depend on its children.
    np.testing.assert_array_equal(fitted.model.bias("h"), 0)


def causes():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2)
    b.layer("v", pgm.NoisyOr(), SIZE)
    b.cause("h", "v")
    return b.build(0)


def test_noisy_or_children_begin_at_their_base_rates_or_with_the_least_leak(least=1e-6):
    x = np.array([[1, 1, 0, 1, 0]] * 30 + [[1, 0, 0, 1, 1]] * 10, dtype=float)
    x[:, 3] = NAN
    model = causes()
    found = begun(model, {"v": x}).model
    r = rates("Binary", x)
    # p(x = 0) = e^-z, of which the parents at their means have a part.
    z = -np.log1p(-r)
    parents = np.full(2, 0.5) @ model.params["h->v.weight"]
    right = np.maximum(z - parents, least)
    np.testing.assert_allclose(found.bias("v"), right, rtol=1e-9)
    assert (right > least).any() and (right == least).any()


def test_inputs_have_no_bias_and_are_centred():
    """Inputs of 0 in the middle of the inputs: the label begins at its base rates there."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(2.0, 3.0, (50, 4)), rng.choice(3, 50, p=[0.7, 0.2, 0.1])
    fitted = begun(pgm.drbm(4, 3, 3, rng=1), {"x": x, "y": y}, given=("x",))
    model = fitted.model
    assert fitted.started == ("y",)
    assert not model.bias("x").any()
    means = {"x": x.mean(axis=0), "h": np.zeros(3)}
    means["y"] = (np.bincount(y, minlength=3) + 1 / 3) / 51
    found = one_hot_mean(input_at_means(model, "y", means))
    np.testing.assert_allclose(np.ravel(found), means["y"], rtol=1e-9)
    np.testing.assert_allclose(input_at_means(model, "h", means), 0, atol=1e-9)


def trained(x):
    return pgm.fit(pgm.rbm(SIZE, 3, rng=0), {"v": x}, updates=3, progress=False)


def built():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), SIZE)
    b.layer("h", pgm.Binary(), 3, bias=np.zeros(3))
    b.couple("v", "h")
    return b.build(0)


@one_test_over("kind", ["put", "trained", "of a fit", "loaded", "a bias of 0"])
def test_given_and_learned_parameters_stay(kind, tmp_path):
    x, fresh = draw("Binary", 30), pgm.rbm(SIZE, 3, rng=0)
    assert fresh.fresh
    if kind == "put":
        model = fresh.with_params(fresh.params)
    elif kind == "trained":
        model = trained(x)
    elif kind == "of a fit":
        model = trained(x).model
    elif kind == "a bias of 0":
        model = built()
    else:
        pgm.save(trained(x), tmp_path / "model.pgm")
        model = pgm.load(tmp_path / "model.pgm")
    own = model if isinstance(model, Model) else model.model
    assert not own.fresh
    found = begun(model, {"v": x})
    assert found.started == ()
    for name, value in own.params.items():
        np.testing.assert_array_equal(found.model.params[name], value)
    assert not found.model.fresh


def test_a_saved_fresh_model_is_fresh_when_loaded(tmp_path):
    x, model = draw("Binary", 30), pgm.rbm(SIZE, 3, rng=0)
    pgm.save(model, tmp_path / "model.pgm")
    loaded = pgm.load(tmp_path / "model.pgm")
    assert loaded.fresh
    first, second = begun(model, {"v": x}), begun(loaded, {"v": x})
    assert second.started == ("v",)
    for name, value in first.model.params.items():
        np.testing.assert_array_equal(second.model.params[name], value)


def test_weights_count_by_their_ratios_alone():
    """They are 1 on average, and rows of weight 0 are not seen."""
    x = draw("Binary", 30)
    weights = np.random.default_rng(0).exponential(size=30) * (np.arange(30) % 2)
    models = [
        begun(pgm.rbm(SIZE, 3, rng=0), {"v": rows}, sample_weight=factor * weights).model
        for rows, factor in ((x, 1.0), (x, 8.0), (np.where(weights[:, None] > 0, x, NAN), 1.0))
    ]
    for other in models[1:]:
        np.testing.assert_allclose(other.bias("v"), models[0].bias("v"), rtol=1e-12)
