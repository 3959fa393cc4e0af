"""Scaled: the scale of each layer, one step, and independence of the values of units."""

import math

import numpy as np
import pytest
from loops import one_test_over
from quadrature import legendre

import pgmengine as pgm
from pgmengine.learn.steps.scaled import scale

# Means count as so much nearer to the middle of their range.
INWARD = 1e-3


def moments_on(values):
    """Return the function from natural parameters to (mean, variance) of a unit with values."""
    values = np.array(values)

    def of(eta):
        p = np.exp(eta * values)
        p /= p.sum()
        return p @ values, p @ values**2 - (p @ values) ** 2

    return of


def on_the_interval(eta):
    """Return the mean and the variance of a density in proportion to exp(eta x) on [-1, 1]."""
    x, w = legendre(200)
    p = w * np.exp(eta * x)
    p /= p.sum()
    return p @ x, p @ x**2 - (p @ x) ** 2


def variance_at(of, mean):
    """Return the variance at the natural parameter with this mean, by halving an interval."""
    low, high = -500.0, 500.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle)[0] < mean else (low, middle)
    return of(middle)[1]


def layer_of(unit, size):
    return pgm.rbm(size, 1, visible=unit, rng=0).structure.layers["v"]


def formula(most, total):
    """Return 4 v (1 + T / 50) with v the largest variance of a unit, T = sum of variances / 4 v."""
    return 4 * most * (1 + total / (4 * most) / 50)


@pytest.mark.parametrize("size", [1, 7, 300])
@pytest.mark.parametrize(
    "unit, most, of, low",
    [
        (pgm.Binary(), 0.25, moments_on([0.0, 1.0]), 0.0),
        (pgm.Spin(), 1.0, moments_on([-1.0, 1.0]), -1.0),
        (pgm.MultiValued(2), 1.0, moments_on([-1.0, 0.0, 1.0]), -1.0),
        (pgm.MultiValued(math.inf), 1.0, on_the_interval, -1.0),
    ],
    ids=["Binary", "Spin", "three values", "interval"],
)
def test_the_scale_of_a_layer_follows_from_its_variances(unit, most, of, low, size, rtol=1e-6):
    mean = np.random.default_rng(size).uniform(low + 0.02, 0.98, size)
    middle = (low + 1) / 2
    total = sum(variance_at(of, m + INWARD * (middle - m)) for m in mean)
    assert scale(layer_of(unit, size), mean) == pytest.approx(formula(most, total), rel=rtol)


@one_test_over("size", [1, 7, 300])
def test_the_scale_of_one_hot_units_counts_each_state(size):
    """A state has the variance p (1 - p), of at most 1/4."""
    p = np.random.default_rng(size).dirichlet(np.ones(3), size)
    inside = p + INWARD * (1 / 3 - p)
    right = formula(0.25, (inside * (1 - inside)).sum())
    assert scale(layer_of(pgm.Categorical(3), size), np.ravel(p)) == pytest.approx(right)


@one_test_over("sigma", [0.1, 1.0, 30.0])
def test_the_scale_of_gaussian_units_is_that_of_their_variance(sigma):
    """It does not depend on the data: units count as if all of them varied together by 2 sigma."""
    layer = layer_of(pgm.Gaussian(sigma), 20)
    for mean in (None, np.linspace(-9.0, 9.0, 20)):
        right = formula(sigma**2, 20 * 4 * sigma**2)
        assert scale(layer, mean) == pytest.approx(right)


@one_test_over(
    "unit, most, width",
    [(pgm.Binary(), 0.25, 1), (pgm.Spin(), 1.0, 1), (pgm.Categorical(4), 0.25, 4)],
    ids=repr,
)
def test_layers_of_unknown_means_count_as_of_largest_variance(unit, most, width):
    right = formula(most, 10 * width * most)
    assert scale(layer_of(unit, 10), None) == pytest.approx(right)


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_constant_units_have_a_finite_scale(value):
    found = scale(layer_of(pgm.Spin(), 50), np.full(50, value))
    assert 4.0 < found < 4.1


def model_of(values, rng):
    """Return the same model of binary units of the values 0 and 1, or of spins."""
    w, a, c = rng.normal(size=(6, 4)) * 0.3, rng.normal(size=6) * 0.3, rng.normal(size=4) * 0.3
    b, spins = pgm.GraphBuilder(), values == "spins"
    unit = pgm.Spin() if spins else pgm.Binary()
    # x = (1 + s) / 2.
    b.layer("v", unit, 6, bias=a / 2 + w.sum(axis=1) / 4 if spins else a)
    b.layer("h", unit, 4, bias=c / 2 + w.sum(axis=0) / 4 if spins else c)
    b.couple("v", "h", weight=w / 4 if spins else w)
    return b.build()


def columns(rng, rows=60):
    """Draw rows of 6 values 0 and 1, of which some depend on others."""
    x = (rng.random((rows, 6)) < rng.uniform(0.1, 0.9, 6)).astype(float)
    for to, source in ((1, 0), (3, 2)):
        x[:, to] = np.where(rng.random(rows) < 0.8, x[:, source], x[:, to])
    return x


def one_step(model, x, optimizer):
    settings = {"negative": pgm.ExactGradient(), "updates": 1, "batch_size": 99}
    found = pgm.fit(model, {"v": x}, optimizer=optimizer, progress=False, **settings).model
    return {k: found.params[k] - value for k, value in model.params.items()}


@pytest.mark.parametrize("values", ["binary", "spins"])
def test_one_step_divides_the_gradient_by_the_scales(values, rate=0.3, rtol=1e-6):
    """Weights by the scales of both layers; biases by four times that of their own."""
    rng = np.random.default_rng(0)
    model, x = model_of(values, rng), columns(rng)
    x, most, low = (2 * x - 1, 1.0, -1.0) if values == "spins" else (x, 0.25, 0.0)
    slope = one_step(model, x, pgm.SGD(1.0))
    found = one_step(model, x, pgm.Scaled(pgm.SGD(rate)))
    means = {"v": x.mean(axis=0), "h": pgm.infer(model, {"v": x}).mean["h"].mean(axis=0)}
    of, s = moments_on([low, 1.0]), {}
    for name, mean in means.items():
        inside = mean + INWARD * ((low + 1) / 2 - mean)
        s[name] = formula(most, sum(variance_at(of, m) for m in inside))
    for name in means:
        right = rate / (4 * s[name]) * slope[f"{name}.bias"]
        np.testing.assert_allclose(found[f"{name}.bias"], right, rtol=rtol, atol=1e-12)
    right = rate / (s["v"] * s["h"]) * slope["v-h.weight"]
    np.testing.assert_allclose(found["v-h.weight"], right, rtol=rtol, atol=1e-12)


def test_scales_are_kept_from_the_first_update(rtol=1e-6):
    """The second of two steps has the scales of the first, so that only the gradient differs."""
    rng = np.random.default_rng(0)
    model, x = model_of("binary", rng), columns(rng)
    settings = {"optimizer": pgm.Scaled(pgm.SGD(0.5)), "negative": pgm.ExactGradient()}
    first, third = (pgm.fit(model, {"v": x}, updates=n, progress=False, **settings) for n in (1, 3))
    names = [f"optimizer/scale/{name}" for name in ("v", "h")]
    for name in names:
        assert 1.0 < first.state[name][0] == third.state[name][0] < 1.1


@pytest.mark.parametrize("wrap", [pgm.Scaled, lambda o: pgm.Centered(pgm.Scaled(o))])
@pytest.mark.parametrize("inner", [pgm.SGD(0.3), pgm.SGD(0.3, momentum=0.5), pgm.Adam(0.01)])
def test_resuming_gives_the_same_bits(wrap, inner, tmp_path):
    x, model = columns(np.random.default_rng(0)), pgm.rbm(6, 4, rng=0)
    settings = {"optimizer": wrap(inner), "negative": pgm.PCD(), "batch_size": 16, "rng": 1}
    whole = pgm.fit(model, {"v": x}, updates=9, progress=False, **settings)
    half = pgm.fit(model, {"v": x}, updates=4, progress=False, **settings)
    on = pgm.fit(half, {"v": x}, updates=9, state=half.state, progress=False, **settings)
    for updates in (4, 9):
        saved = pgm.fit(
            model, {"v": x}, updates=updates, checkpoint=tmp_path / "c", progress=False, **settings
        )
    for name, value in whole.model.params.items():
        np.testing.assert_array_equal(on.model.params[name], value)
        np.testing.assert_array_equal(saved.model.params[name], value)


def test_tables_move_as_without_scales():
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, 2)
    b.table(("a", "b"), [[1.0, 2.0], [3.0, 4.0]])
    b.table(("b", "c"), [[2.0, 1.0], [1.0, 2.0]])
    model = b.build()
    x = {n: np.random.default_rng(i).integers(0, 2, (20, 1)) for i, n in enumerate("abc")}
    settings = {"negative": pgm.ExactGradient(), "updates": 1, "progress": False}
    one, two = (
        pgm.fit(model, x, optimizer=o, **settings).model
        for o in (pgm.SGD(0.1), pgm.Scaled(pgm.SGD(0.1)))
    )
    moved = [name for name in model.params if name.endswith(".table")]
    assert len(moved) == 2
    for name in moved:
        np.testing.assert_array_equal(two.params[name], one.params[name])
        assert np.abs(two.params[name] - model.params[name]).max() > 1e-3


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(pgm.PgmError, match="Scaled: optimizer must be one such as"):
        pgm.Scaled(0.1)
