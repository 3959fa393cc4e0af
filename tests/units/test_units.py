"""The contract of every unit type: A, its derivatives, samples, extremes."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

import pgmengine as pgm
from pgmengine.units import Unit

SCALAR = (
    pgm.Binary(),
    pgm.Spin(),
    pgm.MultiValued(1),
    pgm.MultiValued(2),
    pgm.MultiValued(3),
    pgm.MultiValued(7),
    pgm.MultiValued(math.inf),
    pgm.Gaussian(0.7),
)
FINITE = (*(u for u in SCALAR if u.support is not None), pgm.Categorical(4))
GRID = np.concatenate(([0.0], np.logspace(-12, 4, 60), -np.logspace(-12, 4, 60)))
scalar = pytest.mark.parametrize("unit", SCALAR, ids=repr)
finite = pytest.mark.parametrize("unit", FINITE, ids=repr)


@pytest.mark.parametrize("unit", [u for u in SCALAR if u.support is not None], ids=repr)
def test_log_normalizer_and_moments_are_sums_over_the_support(unit):
    a = GRID[:, None] * unit.support + unit.log_base
    expected = np.logaddexp.reduce(a, axis=1)
    p = np.exp(a - expected[:, None])
    mean = p @ unit.support
    np.testing.assert_allclose(unit.log_normalizer(GRID), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(unit.mean(GRID), mean, rtol=1e-9, atol=1e-14)
    spread = (p * (unit.support - mean[:, None]) ** 2).sum(axis=1)
    np.testing.assert_allclose(unit.variance(GRID), spread, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("eta", [0.0, 1e-6, 0.015, 0.021, 0.09, 0.11, 1.0, -3.0, 30.0])
def test_continuous_unit_by_quadrature(eta):
    unit = pgm.MultiValued(math.inf)
    nodes, weights = np.polynomial.legendre.leggauss(100)
    moment = [(weights * nodes**k * np.exp(eta * nodes - abs(eta))).sum() for k in range(3)]
    np.testing.assert_allclose(unit.log_normalizer(eta), math.log(moment[0]) + abs(eta), rtol=1e-12)
    np.testing.assert_allclose(unit.mean(eta), moment[1] / moment[0], rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(
        unit.variance(eta), moment[2] / moment[0] - (moment[1] / moment[0]) ** 2, rtol=1e-9
    )


@pytest.mark.parametrize("eta", [0.0, 0.5, -2.0])
def test_gaussian_unit_by_quadrature(eta):
    unit = pgm.Gaussian(0.7)
    total = quad(lambda x: math.exp(eta * x + float(unit.log_h(x))), -20, 20)[0]
    np.testing.assert_allclose(unit.log_normalizer(eta), math.log(total), rtol=1e-9, atol=1e-12)


@scalar
def test_mean_and_variance_are_derivatives_of_the_log_normalizer(unit):
    eta, h = np.linspace(-5, 5, 41), 1e-5
    slope = (unit.log_normalizer(eta + h) - unit.log_normalizer(eta - h)) / (2 * h)
    np.testing.assert_allclose(unit.mean(eta), slope, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        unit.variance(eta),
        (unit.mean(eta + h) - unit.mean(eta - h)) / (2 * h),
        rtol=1e-6,
        atol=1e-8,
    )


@scalar
def test_extremes_are_finite_and_smooth(unit):
    for f in (unit.log_normalizer, unit.mean, unit.variance, unit.max_log_weight):
        assert np.isfinite(f(GRID)).all()
    assert np.all(unit.variance(GRID) >= 0)
    if unit.bounded:
        assert np.all(np.abs(unit.mean(GRID)) <= 1)
        np.testing.assert_allclose(unit.mean(np.array([1e4])), 1.0, atol=2e-4)
    draws = unit.sample(GRID, np.random.default_rng(0))
    assert unit.contains(draws).all()


@scalar
def test_means_in_single_precision(unit, rtol=1e-6):
    eta = np.linspace(-85, 85, 1001, dtype=np.float32)
    np.testing.assert_allclose(unit.mean(eta), unit.mean(eta.astype(np.float64)), rtol=rtol)
    np.testing.assert_allclose(unit.mean(np.float32(200)), unit.mean(200.0), rtol=rtol)


@scalar
def test_samples_have_the_mean_and_variance(unit):
    rng, n = np.random.default_rng(1), 200_000
    for eta in (-2.0, 0.0, 1e-9, 0.4, 3.0):
        x = unit.sample(np.full(n, eta), rng)
        error = math.sqrt(float(unit.variance(eta)) / n)
        assert abs(x.mean() - unit.mean(eta)) < 5 * error + 1e-12
        fourth = ((x - x.mean()) ** 4).mean()
        assert abs(x.var() - unit.variance(eta)) < 5 * math.sqrt(fourth / n) + 1e-12


def test_categorical():
    unit, rng = pgm.Categorical(4), np.random.default_rng(2)
    eta = np.array([0.3, -1.0, 2.0, 0.0])
    p = np.exp(eta) / np.exp(eta).sum()
    np.testing.assert_allclose(unit.mean(eta), p, rtol=1e-12)
    np.testing.assert_allclose(unit.log_normalizer(eta), math.log(np.exp(eta).sum()), rtol=1e-12)
    x = unit.sample(np.tile(eta, (100_000, 1)), rng)
    assert unit.contains(x).all()
    assert np.all(np.abs(x.mean(axis=0) - p) < 5 * np.sqrt(p * (1 - p) / len(x)))
    assert np.isfinite(unit.log_normalizer(np.array([1e4, -1e4, 0, 0])))


@pytest.mark.parametrize("unit", FINITE, ids=repr)
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


@pytest.mark.parametrize(
    ("s", "w"), [(1, 0.65848), (2, 0.78340), (4, 0.89410), (math.inf, 1.08866)]
)
def test_alpha_of_system_1(s, w):
    """alpha_s(w) with |H| = 2: the correlation <v1 v2> of two spins that share two hidden units
    with weights w.
    """
    from scipy.optimize import brentq

    def alpha(x):
        same, other = (2 * pgm.MultiValued(s).log_normalizer(f) for f in (2 * x, 0.0))
        return math.tanh((same - other) / 2)

    np.testing.assert_allclose(brentq(lambda x: alpha(x) - 0.6, 0.01, 5), w, rtol=2e-5)


@pytest.mark.parametrize(
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
