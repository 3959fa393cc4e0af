"""Layers coupled with themselves: the compiled round against plain numpy, and its price."""

import math
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer.sampling.methods.bound_check import MIN_CHECK_SECONDS, check_within
from pgmengine.infer.variational.lateral import Inside
from pgmengine.infer.variational.modes import CLIMB, start_count
from pgmengine.infer.variational.unit_families import Factors

UNITS = (
    pgm.Spin(),
    pgm.Binary(),
    pgm.MultiValued(3),
    pgm.MultiValued(math.inf),
    pgm.Categorical(4),
)


def coupled(unit, n, sparse, rng, scale=1.0, neighbours=3):
    k = unit.width
    keep = rng.random((n, n)) < neighbours / n
    w = np.kron(np.triu(keep * rng.normal(size=(n, n)) * scale, 1), np.ones((k, k)))
    b = pgm.GraphBuilder()
    b.layer("x", unit, n, bias=rng.normal(size=(n,) if k == 1 else (n, k)))
    b.couple("x", "x", weight=sp.csr_array(w + w.T) if sparse else w + w.T)
    return b.build()


def evidence(unit, rows, n, rng):
    values = np.arange(4) if unit.width > 1 else unit.support
    x = rng.uniform(-1, 1, (rows, n)) if values is None else rng.choice(values, (rows, n))
    return {"x": np.where(rng.random((rows, n)) < 0.3, x, np.nan)}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unit", UNITS, ids=repr)
@pytest.mark.parametrize("rows", [1, 3, 19])
def test_a_round_is_that_of_plain_numpy(unit, sparse, rows, n=13, atol=1e-12):
    rng = np.random.default_rng(0)
    model = coupled(unit, n, sparse, rng)
    target = model.given(evidence(unit, rows, n, rng)).at(
        rng.choice([0.0, 0.3, 1.0], rows), {"x": rng.normal(size=n * unit.width)}
    )
    inside, mean = Inside(target, "x"), Factors(target).mean["x"]
    for _ in range(3):
        # A new field makes every unit stale.
        field = rng.normal(size=mean.shape)
        expected = inside.plain(field, mean)
        eta, mean = inside.update(field, mean)
        np.testing.assert_allclose(eta, expected[0], atol=atol)
        np.testing.assert_allclose(mean, expected[1], atol=atol)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_units_that_are_not_stale_would_not_change(unit, sparse, n=25, rounds=12, atol=1e-10):
    rng = np.random.default_rng(1)
    model = coupled(unit, n, sparse, rng, scale=0.5)
    q = Factors(model.given(evidence(unit, 5, n, rng)))
    inside, mean = q.inside["x"], q.mean["x"]
    plain = mean
    for _ in range(rounds):
        plain = inside.plain(q.field["x"], plain)[1]
        mean = inside.update(q.field["x"], mean)[1]
        np.testing.assert_allclose(mean, plain, atol=atol)


@one_test_over("unit", UNITS, ids=repr)
def test_the_bound_never_decreases_from_round_to_round(unit, slack=1e-9):
    rng = np.random.default_rng(2)
    q = Factors(coupled(unit, 20, True, rng, scale=2.0).given(), quiet=1e-7)
    before = -np.inf
    for _ in range(30):
        q.round()
        assert q.bound()[0] >= before - slack * (1 + abs(before) if np.isfinite(before) else 1)
        before = q.bound()[0]


def calls(ask):
    """The number of calls of Python and of compiled functions."""
    made = [0]

    def count(frame, event, argument):
        made[0] += event in ("call", "c_call")

    ask()
    sys.setprofile(count)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return made[0]


def with_tables(unit, n, rng):
    """Units coupled with each other, and with units in a chain of tables."""
    b, k = pgm.GraphBuilder(), sp.eye(n, k=1)
    b.layer("x", unit, n, bias=rng.normal(size=n))
    b.layer("y", pgm.Binary(), n)
    b.couple("x", "x", weight=sp.csr_array(k + k.T))
    b.couple("x", "y", weight=sp.csr_array(sp.eye(n) * 0.3))
    places = np.stack((np.arange(n - 1), np.arange(1, n)), axis=1)
    b.tables(("y", "y"), places, rng.gamma(1.0, size=(n - 1, 2, 2)))
    return b.build()


@pytest.mark.parametrize("restarts", [0, 4])
@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("unit", UNITS[:4], ids=repr)
def test_no_loop_in_python_visits_units(unit, tables, restarts, most=2.0):
    """Four times the units do not take twice the calls, of ten rounds each."""
    method = pgm.MeanField(updates=10, tolerance=0.0, restarts=restarts)
    counts = []
    for n in (40, 160):
        rng = np.random.default_rng(0)
        model = with_tables(unit, n, rng) if tables else coupled(unit, n, True, rng)
        counts.append(calls(lambda m=model: method.run(m.given(), ("log_z",), rng=0)))
    assert counts[1] < most * counts[0]


@pytest.mark.parametrize(
    "method",
    [
        pgm.AIS(chains=2, betas=3),
        pgm.ParallelTempering(rungs=2, chains=1, warmup=2, draws=4),
        pgm.SimulatedTempering(betas=pgm.Linear(2), chains=1, warmup=2, draws=4),
    ],
    ids=repr,
)
def test_plans_count_the_bound_that_checks_them(method, n=900):
    rng = np.random.default_rng(0)
    large, small = coupled(pgm.Spin(), n, False, rng).given(), pgm.rbm(5, 3, rng=0).given()
    plan = method.plan(large, ("log_z",))
    check = method.prepare(large, ("log_z",)).basis
    most = 2.5 * max(MIN_CHECK_SECONDS, plan.seconds - check.seconds)
    assert 0 < check.seconds < plan.seconds <= most
    assert check.work < plan.work
    # There is time for the whole check of a small model.
    whole = method.prepare(small, ("log_z",)).basis
    assert (whole.starts, whole.rounds) == (start_count(small), CLIMB.updates)
    assert "checked by" not in str(method.plan(small, ("log_z",)))


def test_a_check_that_is_cut_says_so_and_makes_no_more_rounds(monkeypatch, n=1500):
    rng, made = np.random.default_rng(0), []
    target = coupled(pgm.Spin(), n, False, rng).given()
    check = check_within(target, 0.0)
    assert 0 < check.starts * check.rounds < start_count(target) * CLIMB.updates
    assert "checked by" in check.how
    assert check.seconds <= 2 * MIN_CHECK_SECONDS
    update = Inside.update
    monkeypatch.setattr(Inside, "update", lambda *a: made.append(1) or update(*a))
    # All starts of a row are rows of one Q.
    assert check.modes(target).bound.shape == (1, check.starts)
    assert len(made) <= check.rounds
