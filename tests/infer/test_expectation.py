"""Means of functions of draws, and their standard errors."""

import re

import numpy as np
import pytest
from arviz_stats.base import array_stats
from extras import extra
from scipy.stats import chi2

import pgmengine as pgm

SIDE = 3


def lattice(k):
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (SIDE, SIDE))
    b.couple(s[1:], s[:-1], k)
    b.couple(s[:, 1:], s[:, :-1], k)
    return b.build()


def size(x):
    return np.abs(x["s"].mean(axis=(-1, -2)))


def exact_size(k):
    """E |magnetisation| by all states."""
    states = 2.0 * ((np.arange(2**SIDE**2)[:, None] >> np.arange(SIDE**2)) & 1) - 1
    s = states.reshape(-1, SIDE, SIDE)
    energy = (s[:, 1:] * s[:, :-1]).sum((1, 2)) + (s[:, :, 1:] * s[:, :, :-1]).sum((1, 2))
    weights = np.exp(k * energy)
    return float(weights @ np.abs(states.mean(axis=1)) / weights.sum())


def test_errors_of_chains_are_honest():
    """Squares of (mean - truth) / error are chi-square; those of independent draws are not."""
    k, count = 0.6, 60
    truth, model, found, naive = exact_size(k), lattice(k), [], []
    for seed in range(count):
        r = pgm.infer(model, want=("samples",), method=pgm.MCMC(warmup=300), rng=seed)
        e = r.expectation(size)
        assert e.mean.shape == e.error.shape == () and e.rhat < 1.05 and e.ess < 4000
        found.append((float(e.mean) - truth) / float(e.error))
        draws = size(r.samples)
        naive.append((draws.mean() - truth) / (draws.std() / np.sqrt(len(draws))))
    # A false alarm in 1e-5 runs; errors are estimates, which widens the distribution by a tenth.
    low, high = chi2.ppf([5e-6, 1 - 5e-6], count)
    assert low / 1.1 < np.sum(np.square(found)) < high * 1.1
    assert np.sum(np.square(naive)) > high * 1.1


def test_the_error_is_that_of_arviz():
    r = pgm.infer(lattice(0.3), want=("samples",), method=pgm.MCMC(), rng=0)
    e, series = r.expectation(size), size(r.samples).reshape(4, -1)
    assert e.mean == pytest.approx(series.mean(), abs=1e-12)
    assert e.error == pytest.approx(array_stats.mcse(series), rel=0.02)


def test_independent_draws():
    r = pgm.infer(lattice(0.3), want=("samples",), method=pgm.Exact(draws=500), rng=0)
    e, values = r.expectation(size), size(r.samples).ravel()
    assert e.error == pytest.approx(values.std(ddof=1) / np.sqrt(500)) and e.ess == 500
    assert repr(e) == f"Expectation: {values.mean():.4g} ± {e.error:.2g}"


@pytest.mark.parametrize("method", [pgm.Exact(), pgm.MCMC()])
def test_rows_and_shapes(method):
    model, rows = pgm.rbm(4, 3, rng=0), [[1, 0, 1, np.nan], [0, 0, 1, np.nan]]
    r = pgm.infer(model, {"v": rows}, want=("samples",), method=method, rng=0)
    e = r.expectation(lambda x: x["h"][..., :2] * x["v"][..., 3:])
    assert e.mean.shape == e.error.shape == e.ess.shape == e.rhat.shape == (2, 2)
    draws = r.samples["h"][..., :2] * r.samples["v"][..., 3:]
    assert e.mean == pytest.approx(draws.mean(axis=0), abs=1e-12)
    one = pgm.infer(model, {"v": rows[0]}, want=("samples",), method=method, rng=0)
    assert one.expectation(lambda x: x["h"][..., :2]).mean.shape == (2,)
    # One row may lose its axis; several may not.
    both = [one.expectation(f).mean for f in (lambda x: x["h"][:, 0, 0], lambda x: x["h"][..., 0])]
    assert both[0] == both[1]
    with pytest.raises(pgm.PgmError, match=r"returned the shape \(\d+,\), expected .* 2, ...\)"):
        r.expectation(lambda x: x["h"][:, 0, 0])


@pytest.mark.parametrize("method", [pgm.Exact(), pgm.MCMC()])
def test_a_value_that_never_changed_has_no_known_error(method):
    r = pgm.infer(lattice(0.3), want=("samples",), method=method, rng=0)
    e = r.expectation(lambda x: (x["s"] == 7).any(axis=(-1, -2)))
    assert e.mean == 0 and np.isnan(e.error) and repr(e) == "Expectation: 0 ± unknown"


def test_chains_that_disagree_are_named():
    r = pgm.infer(lattice(3.0), want=("samples",), method=pgm.MCMC(), rng=0)
    e = r.expectation(lambda x: x["s"].mean(axis=(-1, -2)))
    assert e.rhat > 1.05 and re.search(
        "disagree, R-hat (inf|[0-9.]+); the answer is NOT_MIXED$", repr(e)
    )


def test_what_is_refused():
    r = pgm.infer(lattice(0.3), want=("samples",), method=pgm.MCMC(draws=50), rng=0)
    with pytest.raises(pgm.PgmError, match=r"returned the shape \(\), expected"):
        r.expectation(lambda x: x["s"].mean())
    with pytest.raises(pgm.PgmError, match="expected real numbers"):
        r.expectation(lambda x: x["s"].astype(str))
    with pytest.raises(pgm.NotAsked):
        pgm.infer(lattice(0.3)).expectation(size)


@pytest.mark.parametrize("method", [pgm.Exact(draws=4000), pgm.MCMC()])
def test_states_with_names_are_given_by_them(method):
    """The file lists "yes" first, so that it is 0 in the values."""
    net = pgm.read(pgm.datasets.asia())
    ask = {"xray": "yes"}
    r = pgm.infer(net, ask, want=("samples",), method=method, rng=0)
    e = r.expectation(lambda x: (x["smoke"] == "yes") & (x["lung"] == "yes"))
    exact = pgm.infer(net, ask, want=(pgm.Joint("smoke", "lung"),)).joint["smoke", "lung"][0, 0]
    assert e.mean.shape == () and abs(e.mean - exact) < 5 * e.error
    with pytest.raises(pgm.PgmError, match="to be compared, as x\\['lung'\\] == 'yes'"):
        r.expectation(lambda x: x["smoke"] * x["lung"])
    extra("pandas")
    frame = r.samples_frame()
    both = (frame["smoke"] == "yes") & (frame["lung"] == "yes")
    assert e.mean == pytest.approx(both.mean())


def test_arrays_have_their_shape_and_numbers_of_states_without_names():
    b = pgm.GraphBuilder()
    z = b.variable("z", states=3, shape=(2, 4))
    w = b.variable("w", states=("dry", "wet"), shape=3)
    b.variable("a", states=2)
    b.layer("v", pgm.Binary(), (2, 2))
    b.conditional(z, (), [0.2, 0.3, 0.5])
    b.conditional(w, (), [0.4, 0.6])
    b.conditional("a", (), [0.1, 0.9])
    b.couple(("v", 0), ("v", 1))
    rows = {"a": [0, None, None]}
    r = pgm.infer(b.build(), rows, want=("samples",), method=pgm.Exact(draws=2000), rng=0)
    seen = {}

    def shares(x):
        seen.update({name: values.shape for name, values in x.items()})
        return (x["z"] == 2).mean(axis=(-1, -2)) + (x["w"] == "wet").mean(axis=-1)

    e = r.expectation(shares)
    assert e.mean.shape == (3,) and (abs(e.mean - 1.1) < 6 * e.error).all()
    draws = (2000, 3)
    shapes = {"z": (*draws, 2, 4), "w": (*draws, 3), "a": draws, "v": (*draws, 2, 2)}
    assert seen == shapes
    assert r.expectation(lambda x: x["a"]).mean[0] == 0


def test_rows_of_chains_and_rows_without_have_no_known_error():
    """Auto answers a row by chains, and the one whose chains do not mix exactly."""
    rows = np.full((2, SIDE, SIDE), np.nan)
    rows[1] = 1.0
    rows[1, 1, :2] = np.nan
    for second, known in ((pgm.Exact(), False), (pgm.ParallelTempering(), True)):
        both = pgm.Auto(candidates=(pgm.MCMC(), second))
        r = pgm.infer(lattice(1.5), {"s": rows}, want=("samples",), method=both, rng=0)
        assert len(r.method.methods) == 2
        e = r.expectation(lambda x: x["s"][..., 1, 1])
        assert e.mean.shape == (2,) and np.isfinite(e.mean).all()
        assert np.isfinite(e.error[0]) == known


def test_faults_of_a_function_of_numbers_stay_as_they_are():
    r = pgm.infer(lattice(0.3), want=("samples",), method=pgm.MCMC(draws=50), rng=0)
    with pytest.raises(TypeError, match="not callable"):
        r.expectation(lambda x: x["s"]())
