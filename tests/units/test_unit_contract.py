"""The contract of every unit type: A, its derivatives, samples, extremes, files, compiled draws."""

import math

import numpy as np
import pytest
from loops import one_test_over
from numpy_library import NUMPY
from registry import UNITS
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import chi2

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start
from pgmengine.engine.layerwise import CompiledChains
from pgmengine.units import Unit

DRAWN = [u for u in UNITS if not u.observed_only]
SCALAR = [u for u in DRAWN if u.width == 1]
FINITE = [u for u in DRAWN if u.support is not None]
pytestmark = pytest.mark.smoke
GRID = np.concatenate(([0.0], np.logspace(-12, 4, 60), -np.logspace(-12, 4, 60)))
drawn = pytest.mark.parametrize("unit", DRAWN, ids=repr)
scalar = pytest.mark.parametrize("unit", SCALAR, ids=repr)
finite = pytest.mark.parametrize("unit", FINITE, ids=repr)


def weights_of(unit, eta):
    """eta x + log h(x) of every value, from the definition."""
    return (eta[..., None] * unit.support if unit.width == 1 else eta @ unit.support.T) + (
        unit.log_base
    )


def some_parameters(unit, scale, count=200):
    """Natural parameters of units of any width; of some units not all numbers are parameters."""
    shape = (count,) if unit.width == 1 else (count, unit.width)
    found = np.random.default_rng(0).normal(0, scale, shape)
    return unit.link(found / 4) if isinstance(unit, pgm.Normal) else found


@finite
def test_log_normalizer_and_moments_are_sums_over_the_support(unit):
    eta = GRID if unit.width == 1 else some_parameters(unit, 10.0)
    a = weights_of(unit, eta)
    expected = np.logaddexp.reduce(a, axis=-1)
    p = np.exp(a - expected[..., None])
    mean = p @ unit.support
    np.testing.assert_allclose(unit.log_normalizer(eta), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(unit.prob(eta), p, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(unit.mean(eta), mean, rtol=1e-9, atol=1e-14)
    apart = unit.support - mean[..., None, :] if unit.width > 1 else unit.support - mean[..., None]
    variance = (p[..., None] * apart**2).sum(-2) if unit.width > 1 else (p * apart**2).sum(-1)
    np.testing.assert_allclose(unit.variance(eta), variance, rtol=1e-9, atol=1e-13)


@drawn
def test_the_mean_is_the_derivative_of_the_log_normalizer_and_the_variance_of_the_mean(unit):
    eta, h = some_parameters(unit, 2.0), 1e-5
    for i in range(unit.width):
        step = h if unit.width == 1 else h * np.eye(unit.width)[i]
        at = () if unit.width == 1 else (..., i)
        up, down = eta + step, eta - step
        slope = (unit.log_normalizer(up) - unit.log_normalizer(down)) / (2 * h)
        np.testing.assert_allclose(unit.mean(eta)[at], slope, rtol=1e-6, atol=1e-8)
        slope = (unit.mean(up) - unit.mean(down))[at] / (2 * h)
        np.testing.assert_allclose(unit.variance(eta)[at], slope, rtol=1e-6, atol=1e-8)


@one_test_over("unit", UNITS)
def test_densities_in_arrays_of_any_library(unit):
    """Also at inputs at which branches change, and NaN for values that a unit does not have."""
    zeta = some_parameters(unit, 3.0)
    zeta = np.abs(zeta) if unit.nonnegative else zeta
    zeta[0], zeta[1] = 0.0, 1e-9
    rng = np.random.default_rng(1)
    if unit.support is None:
        x = rng.uniform(-1, 1, len(zeta))
    else:
        x = unit.support[rng.integers(len(unit.support), size=len(zeta))]
    values = unit.values_of(x) if unit.support is None and unit.width > 1 else x
    with np.errstate(all="ignore"):
        found, child = unit.log_conditional_in(NUMPY, x, zeta), unit.log_conditional(values, zeta)
        np.testing.assert_allclose(found, child, rtol=1e-10, atol=1e-10)
        if not unit.child_only or unit.support is not None:
            np.testing.assert_allclose(unit.log_h_in(NUMPY, x), unit.log_h(x), atol=1e-12)
        if unit.bounded:
            assert np.isnan(unit.log_h_in(NUMPY, x + 3.7)).all()


def p_value(unit, eta, x, bins=40):
    """Chi-square of draws of one unit against exp(eta x + log h(x) - A(eta))."""
    if unit.support is not None:
        cell, weight = unit.state_of(x), weights_of(unit, eta)
        p = np.exp(weight - np.logaddexp.reduce(weight))
    else:
        first = () if unit.width == 1 else 0
        width = 1.0 if unit.bounded else 9 * np.sqrt(unit.variance(eta)[first])
        middle = 0.0 if unit.bounded else float(unit.mean(eta)[first])
        edges = middle + np.linspace(-width, width, 100 * bins + 1)
        values = edges[:, None] if unit.width == 1 else unit.values_of(edges)
        log_h = unit.log_h(edges if unit.width == 1 else values)
        density = np.exp(values @ np.reshape(eta, -1) + log_h - unit.log_normalizer(eta))
        x = x if unit.width == 1 else x[..., 0]
        below = np.append(0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(edges)))
        cell = (np.interp(x, edges, below) * bins).astype(int).clip(0, bins - 1)
        p = np.full(bins, 1 / bins)
    expected, found = p * len(x), np.bincount(cell, minlength=len(p))
    assert not found[expected < 1e-9].any()
    many = expected >= 10
    pairs = [(found[many], expected[many]), (found[~many].sum(), expected[~many].sum())]
    statistic = sum((np.square(f - e) / np.maximum(e, 1.0)).sum() for f, e in pairs)
    return chi2.sf(statistic, max(int(many.sum()) - 1 + (pairs[1][1] > 1), 1))


@drawn
def test_samples_have_their_distribution(unit, count=100_000, alarm=1e-7):
    rng = np.random.default_rng(1)
    for scale in (0.0, 1e-9, 0.4, 3.0):
        eta = some_parameters(unit, scale, 2)[0]
        x = unit.sample(np.broadcast_to(eta, (count, *np.shape(eta))), rng)
        assert unit.contains(x).all()
        assert p_value(unit, eta, x) > alarm


@drawn
def test_compiled_draws_have_the_distribution_of_the_unit(unit, count=40_000, alarm=1e-7):
    """One Gibbs sweep of units of different biases, from anywhere."""
    bias = some_parameters(unit, 1.5, 5)
    b = pgm.GraphBuilder()
    # The biases of a child are its inputs.
    bias = np.clip(bias, -1.5, 1.5) if unit.child_only else bias
    b.layer("x", unit, 5, bias=np.abs(bias) if unit.nonnegative else bias)
    if unit.child_only:
        b.layer("p", pgm.Binary(), 1)
        b.cause("p", "x", weight=np.zeros((1, 5 * unit.width)))
    model = b.build()
    target, rng = model.given().take(np.zeros(count, dtype=int)), np.random.default_rng(2)
    chains = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
    assert isinstance(chains, CompiledChains) == (unit.draw is not None)
    chains.sweep(1)
    x = model.structure.layers["x"].shaped(chains.values()["x"]).astype(float)
    eta = unit.link(model.structure.layers["x"].shaped(model.bias("x")))
    for i in range(5):
        assert p_value(unit, eta[i], x[:, i]) > alarm


@drawn
def test_models_come_back_from_files(unit, tmp_path):
    b = pgm.GraphBuilder()
    b.layer("x", unit, 2)
    b.layer("h", pgm.Binary(), 3)
    (b.cause if unit.child_only else b.couple)("h", "x")
    model = b.build(rng=0)
    pgm.save(model, tmp_path / "m")
    back = pgm.load(tmp_path / "m")
    assert back.structure.layers["x"].unit == unit
    x = unit.sample(some_parameters(unit, 1.0, 2), np.random.default_rng(0))
    x = np.asarray(x).reshape(1, -1) if unit.width == 1 else np.asarray(x)[None]
    one, two = (pgm.infer(m, {"x": x}, want=("log_z",)).log_z for m in (model, back))
    np.testing.assert_array_equal(one, two)


@one_test_over("eta", [0.0, 1e-6, 0.015, 0.021, 0.09, 0.11, 1.0, -3.0, 30.0])
def test_continuous_unit_by_quadrature(eta):
    unit = pgm.MultiValued(math.inf)
    nodes, weights = np.polynomial.legendre.leggauss(100)
    moment = [(weights * nodes**k * np.exp(eta * nodes - abs(eta))).sum() for k in range(3)]
    np.testing.assert_allclose(unit.log_normalizer(eta), math.log(moment[0]) + abs(eta), rtol=1e-12)
    np.testing.assert_allclose(unit.mean(eta), moment[1] / moment[0], rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(
        unit.variance(eta), moment[2] / moment[0] - (moment[1] / moment[0]) ** 2, rtol=1e-9
    )


@one_test_over("eta", [0.0, 0.5, -2.0])
def test_gaussian_unit_by_quadrature(eta):
    unit = pgm.Gaussian(0.7)
    total = quad(lambda x: math.exp(eta * x + float(unit.log_h(x))), -20, 20)[0]
    np.testing.assert_allclose(unit.log_normalizer(eta), math.log(total), rtol=1e-9, atol=1e-12)


@scalar
def test_extremes_are_finite_and_smooth(unit):
    for f in (unit.log_normalizer, unit.mean, unit.variance, unit.max_log_weight):
        assert np.isfinite(f(GRID)).all()
    assert np.all(unit.variance(GRID) >= 0)
    if unit.bounded:
        # Units without a support have the values from -1 to 1.
        least, largest = (-1.0, 1.0) if unit.support is None else unit.support[[0, -1]]
        assert np.all((least <= unit.mean(GRID)) & (unit.mean(GRID) <= largest))
        np.testing.assert_allclose(unit.mean(np.array([1e4])), largest, atol=2e-4)
    draws = unit.sample(GRID, np.random.default_rng(0))
    assert unit.contains(draws).all()


@scalar
def test_means_in_single_precision(unit, rtol=1e-6):
    eta = np.linspace(-85, 85, 1001, dtype=np.float32)
    np.testing.assert_allclose(unit.mean(eta), unit.mean(eta.astype(np.float64)), rtol=rtol)
    np.testing.assert_allclose(unit.mean(np.float32(200)), unit.mean(200.0), rtol=rtol)


@finite
def test_states_are_numbered_in_the_order_of_the_support(unit):
    support, rng = np.asarray(unit.support), np.random.default_rng(0)
    number = rng.integers(0, len(support), (5, 7))
    assert np.array_equal(unit.state_of(support[number]), number)
    assert np.array_equal(
        unit.state_of(support[number] + 1e-9 * rng.normal(size=support[number].shape)), number
    )


def test_states_of_users_units_need_no_one_hot_rows():
    class Corner(Unit):
        width, support = 2, np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])

    number = np.random.default_rng(0).integers(0, 3, (4, 6))
    assert np.array_equal(Corner().state_of(Corner.support[number]), number)


class Counts(Unit):
    """Poisson counts: h(x) = 1 / x! and A(eta) = e^eta, of no type of the package."""

    bounded = False

    def log_normalizer(self, eta):
        return np.exp(eta)

    mean = variance = log_normalizer

    def sample(self, eta, rng):
        return rng.poisson(np.exp(eta)).astype(float)

    def log_h(self, x):
        return -gammaln(np.asarray(x) + 1)

    def contains(self, x):
        return (np.asarray(x) >= 0) & (np.asarray(x) == np.floor(x))


def test_users_units_with_infinitely_many_values(sds=5.0):
    model, h = pgm.rbm(3, 2, visible=Counts(), rng=0), np.indices((2, 2)).reshape(2, -1).T
    log_p = np.exp(h @ model.params["v-h.weight"].T).sum(axis=1)
    exact = pgm.infer(model, want=("log_z", "marginals"))
    np.testing.assert_allclose(exact.log_z, np.logaddexp.reduce(log_p), rtol=1e-12)
    r = pgm.infer(model, method=pgm.MCMC(draws=2000), rng=0)
    assert np.all(np.abs(r.mean["h"] - exact.mean["h"]) < sds * r.stats["mcse"]["h"])
    with pytest.raises(NotImplementedError, match="Counts has no support: .* define this method"):
        Counts().mode(0.0)


def test_children_with_a_link_of_their_own():
    class Doubled(pgm.Binary):
        canonical = False

        def link(self, zeta):
            return 2 * np.asarray(zeta)

    zeta, x = np.linspace(-2, 2, 5), np.ones(5)
    same = pgm.Binary().log_conditional(x, 2 * zeta)
    np.testing.assert_allclose(Doubled().log_conditional(x, zeta), same, rtol=1e-12)
    np.testing.assert_allclose(Doubled().log_partition(zeta), np.logaddexp(0, 2 * zeta))


def test_noisy_or_is_the_binary_family():
    unit, z = pgm.NoisyOr(), np.array([0.0, 1e-9, 0.3, 2.0, 50.0, 1e4])
    np.testing.assert_allclose(unit.log_conditional(np.zeros(6), z), -z, rtol=1e-12)
    np.testing.assert_allclose(
        np.exp(unit.log_conditional(np.ones(6), z)), -np.expm1(-z), rtol=1e-12
    )
    np.testing.assert_allclose(unit.log_normalizer(unit.link(z)), z, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(unit.mean(unit.link(z)), -np.expm1(-z), rtol=1e-9)
    assert np.all(unit.sample(unit.link(np.zeros(50)), np.random.default_rng(0)) == 0)


def test_multivalued_is_twice_a_normalised_family():
    for s in (1, 2, 4, 9, math.inf):
        np.testing.assert_allclose(pgm.MultiValued(s).log_normalizer(0.0), math.log(2), rtol=1e-12)


@one_test_over(("s", "w"), [(1, 0.65848), (2, 0.78340), (4, 0.89410), (math.inf, 1.08866)])
def test_alpha_of_system_1(s, w):
    """alpha_s(w) with |H| = 2: the correlation <v1 v2> of two spins that share two hidden units
    with weights w.
    """
    from scipy.optimize import brentq

    def alpha(x):
        same, other = (2 * pgm.MultiValued(s).log_normalizer(f) for f in (2 * x, 0.0))
        return math.tanh((same - other) / 2)

    np.testing.assert_allclose(brentq(lambda x: alpha(x) - 0.6, 0.01, 5), w, rtol=2e-5)


@one_test_over(
    "make",
    [
        lambda: pgm.MultiValued(0),
        lambda: pgm.MultiValued(1.5),
        lambda: pgm.MultiValued(-math.inf),
        lambda: pgm.Categorical(1),
        lambda: pgm.Categorical(2.0),
        lambda: pgm.Gaussian(0),
        lambda: pgm.Gaussian(math.nan),
        lambda: pgm.MultiValued(True),
    ],
)
def test_bad_arguments(make):
    with pytest.raises(pgm.PgmError):
        make()


def test_input_has_no_distribution():
    with pytest.raises(pgm.PgmError, match="observe"):
        pgm.Input().sample(np.zeros(2), np.random.default_rng(0))
