"""log Z of rows in which nothing is left to draw, and the rounding of chains in all others."""

import numpy as np
import pytest
from chains_of_units import of_tables
from registry import GIVE_LOG_Z, METHODS, every

import pgmengine as pgm

NAN = np.nan
ESTIMATES = [
    pgm.AIS(chains=20, betas=pgm.Linear(20)),
    pgm.AIS(chains=20, betas=pgm.Linear(20), reverse=False),
    pgm.ParallelTempering(rungs=4, warmup=20, draws=100),
    pgm.SimulatedTempering(betas=pgm.Linear(3), warmup=100, draws=200),
    pgm.Forward(200),
    pgm.ClusterLadder(chains=2, warmup=2, draws=10),
]
every([METHODS[name] for name in GIVE_LOG_Z], ESTIMATES)


def tables(rng, logs=None):
    logs = rng.standard_normal((4, 3, 3)) * 3.3 if logs is None else logs
    return of_tables(pgm.Categorical(3), 5, np.exp(logs))


def observed(name, rng):
    """A model with evidence for all units."""
    if name == "tables":
        return tables(rng), {"x": [0, 2, 1, 1, 0]}
    if name == "net":
        return pgm.sbn([4, 3], rng=rng), {"v": [1, 0, 1, 1], "h1": [1, 0, 1]}
    if name == "gaussian":
        m = pgm.rbm(3, 2, visible=pgm.Gaussian(1.7), rng=rng)
        return m, {"v": [0.3, 1.7, -2.0], "h": [1, 0]}
    if name == "one state":
        b = pgm.GraphBuilder()
        b.variable("a", 3)
        b.variable("b", 1)
        b.table(("a", "b"), np.exp(3.3 * rng.standard_normal((3, 1))))
        return b.build(), {"a": 1}
    m = pgm.rbm(6, 4, rng=rng).with_params({"v-h.weight": 3.3 * rng.standard_normal((6, 4))})
    return m, {"v": [1, 0, 1, 1, 0, 0], "h": [1, 0, 1, 1]}


@pytest.mark.parametrize("method", ESTIMATES, ids=repr)
@pytest.mark.parametrize("name", ["rbm", "tables", "net", "gaussian", "one state"])
def test_log_z_of_a_complete_state_is_its_log_density(method, name, relative=1e-14):
    model, evidence = observed(name, np.random.default_rng(0))
    try:
        r = pgm.infer(model, evidence, ("log_z",), method=method, rng=0)
    except pgm.PgmError as error:
        assert "refused" in str(error)
        # A unit of one state is no spin.
        spins = isinstance(method, pgm.ClusterLadder) and name == "one state"
        assert spins or isinstance(method, pgm.Forward)
        return
    exact = pgm.infer(model, evidence, ("log_z",), method=pgm.Exact()).log_z
    np.testing.assert_allclose(r.log_z, exact, rtol=relative)
    low, high = r.log_z_interval[0]
    # The interval has room for the sum of the terms in another order.
    assert low <= exact[0] <= high and high - low <= 20 * relative * max(abs(exact[0]), 1.0)
    assert r.log_z_error == 0 and r.status.good


@pytest.mark.parametrize("method", ESTIMATES[:4], ids=repr)
def test_complete_rows_among_others_are_exact_and_the_others_are_not(method):
    model, full = observed("tables", np.random.default_rng(1))
    rows = {"x": [full["x"], [0, NAN, NAN, 1, 0], [2, 2, 1, 0, 0]]}
    r = pgm.infer(model, rows, ("log_z",), method=method, rng=0)
    exact = pgm.infer(model, rows, ("log_z",), method=pgm.Exact()).log_z
    np.testing.assert_allclose(r.log_z[[0, 2]], exact[[0, 2]], rtol=1e-14)
    assert r.log_z_error[[0, 2]].tolist() == [0, 0] and r.log_z_error[1] > 0
    assert abs(r.log_z[1] - exact[1]) < 2


@pytest.mark.parametrize("method", ESTIMATES[:4], ids=repr)
def test_the_interval_contains_the_rounding_of_chains_where_no_draw_varies(method):
    # All states have one probability: no weight and no energy varies, and nothing but rounding
    # moves log Z.
    model = tables(None, np.full((4, 3, 3), np.log(0.3)))
    r = pgm.infer(model, want=("log_z",), method=method, rng=0)
    exact = pgm.infer(model, want=("log_z",)).log_z[0]
    assert r.log_z_interval[0, 0] <= exact <= r.log_z_interval[0, 1]
    assert r.log_z_error > 0


def test_impossible_complete_rows_stay_impossible():
    model = tables(None, np.where(np.eye(3), -np.inf, 0.0) + np.zeros((4, 1, 1)))
    evidence = {"x": [[0, 0, 1, 2, 1], [0, 1, 0, 1, 2]]}
    r = pgm.infer(model, evidence, ("log_z",), method=ESTIMATES[0], rng=0)
    assert r.log_z[0] == -np.inf and r.log_z[1] == 0
