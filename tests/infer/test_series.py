"""Diagnostics of series by compiled code, against ArviZ and scipy, one series after the other."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import norm, rankdata

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.infer.diagnostics.convergence import (
    MIN_CHAINS_FOR_SPREAD,
    MIN_DRAWS_FOR_AUTOCORRELATION,
    series_statistics,
)

SHAPES = [(1, 25), (1, 8), (2, 9), (3, 26), (4, 5), (4, 200), (5, 101), (30, 4), (33, 20)]


def scores(x, ranked):
    """Normal scores of the ranks of one series (chains, draws), or the series itself."""
    if not ranked:
        return x
    ranks = rankdata(x, method="average").reshape(x.shape)
    return norm.ppf((ranks - 0.375) / (x.size + 0.25))


def oracle(x, ranked):
    """Return ess, rhat and mcse of one series (chains, draws) that changes."""
    chains, draws = x.shape
    if chains >= MIN_CHAINS_FOR_SPREAD:
        error = x.mean(axis=1).std(ddof=1) / math.sqrt(chains)
    elif draws >= MIN_DRAWS_FOR_AUTOCORRELATION:
        error = x.std() / math.sqrt(array_stats.ess(x, method="mean", chain_axis=0, draw_axis=1))
    else:
        error = math.nan
    method, y = ("split", x) if chains > 1 else ("identity", x[:, : draws // 2 * 2].reshape(2, -1))
    with np.errstate(divide="ignore", invalid="ignore"):
        both = [
            array_stats.rhat(scores(z, ranked), method=method, chain_axis=0, draw_axis=1)
            for z in (y, np.abs(y - np.median(y)))
        ]
    larger = np.fmax(*both)
    return x.var() / error**2, 1.0 if np.isnan(larger) else larger, error


def two(rng, shape):
    return (rng.random(shape) < rng.random(shape[3])).astype(float)


def rare(rng, shape):
    return (rng.random(shape) < 0.1 * rng.random(shape[3])).astype(float)


def three(rng, shape):
    return rng.integers(0, 3, shape) / 2.0


def fifths(rng, shape):
    """Means of five spins: differences from the median are equal up to rounding at most."""
    return (2 * rng.binomial(5, rng.random(shape[3]), shape) - 5) / 5.0


def hundred(rng, shape):
    """More values than are counted, with ties."""
    return rng.integers(0, 100, shape) * 0.1


def real(rng, shape):
    return rng.normal(size=shape)


def walk(rng, shape):
    return np.cumsum(rng.normal(size=shape), axis=1)


def slow(rng, shape):
    """Two values that stay for some draws."""
    x = two(rng, shape)
    for t in range(1, shape[1]):
        x[:, t] = np.where(rng.random((shape[0], *shape[2:])) < 0.9, x[:, t - 1], x[:, t])
    return x


@pytest.mark.parametrize("ranked", [True, False])
@pytest.mark.parametrize("kind", [two, rare, three, fifths, hundred, real, walk, slow])
@pytest.mark.parametrize("chains, draws", SHAPES)
def test_series_of_any_values_have_the_numbers_of_arviz(kind, chains, draws, ranked, close=1e-12):
    x = kind(np.random.default_rng([chains, draws]), (chains, draws, 2, 7))
    found = series_statistics(x, ranked=ranked)
    for row, unit in np.ndindex(2, 7):
        one = x[:, :, row, unit]
        got = [found[key][row, unit] for key in ("ess", "rhat", "mcse")]
        if (one == one[0, 0]).all():
            assert got == [chains * draws, 1.0, 0.0]
        elif (one == one[:, :1]).all():
            assert got == [1.0, math.inf, pytest.approx(one[:, 0].std(), rel=close)]
        else:
            assert got == pytest.approx(oracle(one, ranked), rel=close, nan_ok=True)


def test_a_series_with_nan_has_no_diagnostics_and_leaves_the_others_alone():
    x = two(np.random.default_rng(0), (4, 50, 3, 9))
    clean = series_statistics(x)
    x[1, 7, 1, 4] = np.nan
    found = series_statistics(x)
    for key, value in found.items():
        assert np.isnan(value[1, 4])
        value[1, 4] = clean[key][1, 4]
        np.testing.assert_array_equal(value, clean[key])


@pytest.mark.parametrize("step", [1, 3])
def test_a_series_has_the_same_bits_among_any_others(step):
    rng = np.random.default_rng(0)
    x = np.concatenate([kind(rng, (4, 30, 2, 9)) for kind in (two, fifths, hundred, real)], axis=3)
    x[:, :, 0, 3], x[:, :, 1, 5] = 1.0, x[:, :1, 1, 5]
    whole, some = series_statistics(x), series_statistics(x, step=step)
    moves = np.flatnonzero(~np.isin(np.arange(72), (3, 41)))
    known = np.union1d(moves[::step], (3, 41))
    for key, value in whole.items():
        apart = [series_statistics(x[:, :, [i // 36]][..., [i % 36]])[key] for i in range(72)]
        np.testing.assert_array_equal(np.ravel(apart), value.ravel())
        np.testing.assert_array_equal(some[key].ravel()[known], value.ravel()[known])
        assert np.isnan(np.delete(some[key], known)).all()


# Arrays are laid out for the vectors of the kind that was loaded, so that no wider one can follow.
KINDS = _kernels.PROCESSORS[: _kernels.PROCESSORS.index(_kernels.PROCESSOR) + 1]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_processor_and_number_of_threads_gives_the_same_bits(name, monkeypatch):
    rng = np.random.default_rng(1)
    x = np.concatenate([kind(rng, (5, 41, 50, 9)) for kind in (two, fifths, real)], axis=3)
    monkeypatch.setenv("PGMENGINE_THREADS", "1")
    own = series_statistics(x)
    monkeypatch.setenv("PGMENGINE_THREADS", "3")
    try:
        _kernels.use(name)
        for key, value in series_statistics(x).items():
            np.testing.assert_array_equal(value, own[key])
    finally:
        _kernels.use(_kernels.PROCESSOR)


@pytest.mark.parametrize("draws", [3000, 4001])
def test_chains_of_thousands_of_slow_draws_have_the_error_of_arviz(draws, close=1e-12):
    """Their autocorrelation needs more lags than compiled code sums up."""
    x = walk(np.random.default_rng(0), (3, draws, 1, 2))
    found = series_statistics(x, ranked=False)
    assert (found["ess"] < 40).all()
    for unit in range(2):
        assert found["mcse"][0, unit] == pytest.approx(
            oracle(x[:, :, 0, unit], False)[2], rel=close
        )


def test_no_series_is_judged_by_a_call_of_its_own(monkeypatch):
    """A call of ArviZ for each series once took nine tenths of the time of a sampled answer."""

    def refused(*args, **kwargs):
        raise AssertionError("ArviZ is the oracle of tests, not a part of each answer")

    monkeypatch.setattr(array_stats, "rhat", refused)
    monkeypatch.setattr(array_stats, "ess", refused)
    for model in (pgm.rbm(5, 3, rng=0), pgm.rbm(5, 3, visible=pgm.Gaussian(), rng=0)):
        r = pgm.infer(model, method=pgm.MCMC(draws=500, warmup=50), rng=0)
        assert np.isfinite(r.stats["energy_ess"]).all()


def test_observed_real_units_have_no_error(draws=500, seen=0.1):
    """Batches of two and of three draws: their means of 0.1 differ by rounding."""
    model = pgm.rbm(6, 3, visible=pgm.Gaussian(), rng=0)
    values = np.array([[seen, seen, seen, np.nan, np.nan, np.nan]])
    r = pgm.infer(model, {"v": values}, method=pgm.MCMC(draws=draws, warmup=50), rng=0)
    rhat, ess, mcse = (r.stats[key]["v"][0] for key in ("rhat", "ess", "mcse"))
    np.testing.assert_array_equal(rhat[:3], 1.0)
    np.testing.assert_array_equal(mcse[:3], 0.0)
    np.testing.assert_array_equal(ess[:3], 4 * draws)
    assert (mcse[3:] > 0).all()
