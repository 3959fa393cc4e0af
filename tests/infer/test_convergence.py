"""MCSE and R-hat of chains, from one long chain to thousands of short ones, by simulated series."""

import math

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.diagnostics.convergence import (
    MIN_DRAWS_PER_CHAIN_FOR_RHAT,
    series_statistics,
    too_short,
)
from pgmengine.infer.diagnostics.trust import unmixed_notes

LONG_AND_SHORT = [(1, 4000), (4, 1000), (8, 50), (40, 25), (100, 40), (500, 8), (1000, 4)]


def gaussian(shape, again, rng):
    """Normal series (chains, draws, series) of correlation `again` from draw to draw; mean 0."""
    x = rng.normal(size=shape)
    for t in range(1, shape[1]):
        x[:, t] = again * x[:, t - 1] + math.sqrt(1 - again**2) * x[:, t]
    return x, 0.0


def renewed(values, mean):
    """Series whose value is drawn anew by `values`, or stays with probability `again`."""

    def series(shape, again, rng):
        x = values(rng, shape)
        for t in range(1, shape[1]):
            stays = rng.random((shape[0], shape[2])) < again
            x[:, t] = np.where(stays, x[:, t - 1], x[:, t])
        return x, mean

    return series


SERIES = {
    "gaussian": gaussian,
    "binary": renewed(lambda rng, shape: (rng.random(shape) < 0.2).astype(float), 0.2),
    "category": renewed(lambda rng, shape: np.minimum(rng.geometric(0.5, shape), 4.0), 1.875),
    "energy": renewed(lambda rng, shape: rng.gamma(3.0, size=shape), 3.0),
}


def judged(x):
    """R-hat, ESS and MCSE (series,) of draws (chains, draws, series), long ones in 200 batches."""
    chains, draws, series = x.shape
    batches = x.reshape(chains, min(draws, 200), -1, series).mean(axis=2)
    found = series_statistics(batches[:, :, None], x.var(axis=(0, 1))[None])
    return tuple(found[name][0] for name in ("rhat", "ess", "mcse"))


@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.parametrize("chains, draws", LONG_AND_SHORT)
def test_intervals_hold_with_any_number_of_chains(kind, chains, draws, again=0.05, count=300):
    """95 % intervals of 300 means with a good status hold in 87 to 99 %.

    They hold in 94 to 95 %. The number that do not hold is nearly a Poisson count of 15 to 19,
    which is above 39 or below 3 in one case of 10,000. Errors by autocorrelation alone held in 69 %
    with 500 chains of 8 draws.
    """
    rng = np.random.default_rng([chains, draws])
    x, mean = SERIES[kind]((chains, draws, count), again, rng)
    rhat, ess, error = judged(x)
    good = (rhat <= 1.05) & (ess >= min(400, chains * draws / 2))
    assert good.mean() > 0.9
    share = np.mean(np.abs(x.mean(axis=(0, 1)) - mean)[good] < 1.96 * error[good])
    assert 0.87 < share < 0.99


@pytest.mark.parametrize("chains, draws", [(100, 40), (500, 8), (1000, 4)])
@pytest.mark.parametrize("tau", [10.0, 100.0])
def test_errors_of_many_chains_hold_for_any_autocorrelation(chains, draws, tau, count=300):
    """The R-hat of chains that are shorter than their autocorrelation time is far above 1.05."""
    rng = np.random.default_rng(0)
    x, mean = gaussian((chains, draws, count), (tau - 1) / (tau + 1), rng)
    rhat, _, error = judged(x)
    assert 0.87 < np.mean(np.abs(x.mean(axis=(0, 1)) - mean) < 1.96 * error) < 0.99
    assert np.min(rhat) > 1.05


@pytest.mark.parametrize("chains, draws", [(4000, 1), (2000, 3), (4, 24), (16, 10), (1, 20)])
def test_chains_that_are_too_short_are_not_called_good(chains, draws):
    rng = np.random.default_rng(0)
    rhat, _, error = judged(rng.normal(size=(chains, draws, 5)))
    # R-hat of four draws or more is known, and no verdict by itself.
    assert np.isnan(rhat).all() == (draws < MIN_DRAWS_PER_CHAIN_FOR_RHAT) and too_short(
        chains, draws
    )
    # The spread of many chains is known all the same.
    known = np.sqrt(1 / (chains * draws)) if chains > 30 else np.nan
    assert error == pytest.approx(np.full(5, known), rel=0.1, nan_ok=True)
    method = pgm.MCMC(chains=chains, draws=draws, warmup=5)
    model = pgm.rbm(2, 2, rng=0)
    r = pgm.infer(model, method=method, rng=0)
    assert r.status is pgm.Status.NOT_MIXED
    assert f"{chains} chains of {draws} draws are too short to be judged" in r.warnings[0]
    assert r.warnings == unmixed_notes(r.stats, 1.05, model.structure, "MCMC")


def test_short_chains_in_two_wells_have_not_mixed():
    """Chains that stay where they began: R-hat needs no long chains to see that."""
    rng = np.random.default_rng(0)
    x = rng.choice([-3.0, 3.0], size=(500, 1, 20)) + rng.normal(size=(500, 4, 20))
    assert judged(x)[0].min() > 1.3


def test_intervals_of_hundreds_of_short_chains_hold_end_to_end(seeds=6):
    """36 means of weakly coupled categories, six seeds; the share once was 69 %."""
    rng = np.random.default_rng(1)
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(4), 9, bias=0.1 * rng.normal(size=(9, 4)))
    for i in range(9):
        for j in range(i):
            b.table((("x", i), ("x", j)), np.exp(0.15 * rng.normal(size=(4, 4))))
    model, held = b.build(), []
    exact = pgm.infer(model, method=pgm.Exact()).mean["x"]
    for seed in range(seeds):
        r = pgm.infer(model, method=pgm.MCMC(chains=500, draws=8, warmup=50), rng=seed)
        assert r.status.good
        held.append(np.abs(r.mean["x"] - exact) < 1.96 * r.stats["mcse"]["x"])
    assert np.mean(held) > 0.85
