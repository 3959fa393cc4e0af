"""Log Z by ladders of cluster moves, against sums over all states and the formula of Kaufman."""

import itertools

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.sampling.clusters import summed_part
from pgmengine.infer.sampling.clusters.moves import Part, cluster_parts

# A limit of table entries at which the lattices of these tests have several blocks.
FEW_ENTRIES = 2.0**9


def torus(side, k, field=0.0):
    b = pgm.GraphBuilder()
    s, after = b.layer("s", pgm.Spin(), (side, side)), (np.arange(side) + 1) % side
    b.couple(s, s[after], k)
    b.couple(s, s[:, after], k)
    b.bias(s, field)
    return b.build()


def kaufman(side, k):
    """Log Z of the torus without a field (Kaufman 1949), by its four products."""
    q = np.arange(2 * side)
    g = np.arccosh(np.maximum(np.cosh(2 * k) ** 2 / np.sinh(2 * k) - np.cos(np.pi * q / side), 1))
    g[0] = 2 * k + np.log(np.tanh(k))
    even, odd = side * g[::2] / 2, side * g[1::2] / 2
    products = [2 * np.cosh(odd), 2 * np.sinh(odd), 2 * np.cosh(even), 2 * np.sinh(even)]
    return side**2 / 2 * np.log(2 * np.sinh(2 * k)) + np.log(sum(map(np.prod, products)) / 2)


def unfrustrated(rng, units=9):
    """Random couplings that one state satisfies, fields of any sign, and a table of a pair."""
    b = pgm.GraphBuilder()
    s, v = b.layer("s", pgm.Spin(), units), b.variable("v", states=("no", "yes"))
    side = rng.choice([-1.0, 1.0], units)
    J = np.triu(rng.random((units, units)) * (rng.random((units, units)) < 0.5), 1)
    J = J * side[:, None] * side
    b.couple("s", "s", J + J.T)
    b.bias(s, rng.normal(size=units) * 0.5)
    table = np.exp(rng.normal(size=(2, 2)))
    # The pair (s_0, v) is one of a tree, and therefore satisfied by some value of v.
    b.table((s[0], v), table)
    return b.build(), (J + J.T, b)


@pytest.mark.parametrize("seed", range(6))
def test_log_z_and_log_p_of_rows_are_those_of_enumeration(seed, errors=5.0):
    rng = np.random.default_rng(seed)
    model, _ = unfrustrated(rng)
    x = rng.choice([-1.0, 1.0], (4, 9))
    x[rng.random(x.shape) < 0.6] = np.nan
    want = ("log_z", "log_prob")
    r = pgm.infer(model, {"s": x}, want, method=pgm.ClusterLadder(draws=400), rng=seed)
    truth = pgm.infer(model, {"s": x}, want, method=pgm.Exact())
    assert np.all(np.abs(r.log_z - truth.log_z) <= errors * r.log_z_error + 1e-9)
    error = np.hypot(r.log_z_error, r.log_prob_error)
    assert np.all(np.abs(r.log_prob - truth.log_prob) <= errors * error + 1e-9)
    assert (r.log_z_interval[:, 0] <= truth.log_z).all()
    assert (truth.log_z <= r.log_z_interval[:, 1]).all()
    assert r.kind == "estimate" and r.status is pgm.Status.OK


@pytest.mark.parametrize("k", (0.3, 0.4407, 0.6, 1.5))
def test_the_torus_at_every_temperature(k, monkeypatch, errors=5.0):
    monkeypatch.setattr(summed_part, "MAX_SUMMED_ENTRIES", FEW_ENTRIES)
    model, exact = torus(12, k), kaufman(12, k)
    auto = pgm.Auto(candidates=pgm.Auto().candidates[1:])
    r = pgm.infer(model, want=("log_z",), method=auto, rng=0)
    assert isinstance(r.method, pgm.ClusterLadder) and r.status is pgm.Status.OK
    assert abs(r.log_z[0] - exact) <= errors * r.log_z_error[0]
    assert r.log_z_error[0] < 0.2 and r.stats["rungs"][0] > 2


def test_kaufman_is_the_sum_over_states():
    """The oracle of the test above against a junction tree, which is another formula."""
    exact = pgm.infer(torus(6, 0.5), want=("log_z",), method=pgm.Exact()).log_z[0]
    np.testing.assert_allclose(kaufman(6, 0.5), exact, rtol=1e-12)


def test_a_field_is_a_part_of_the_path(errors=5.0):
    model = torus(6, 0.5, field=0.1)
    exact = pgm.infer(model, want=("log_z",), method=pgm.Exact()).log_z[0]
    r = pgm.infer(model, want=("log_z",), method=pgm.ClusterLadder(), rng=0)
    assert abs(r.log_z[0] - exact) <= errors * r.log_z_error[0]


def lattice(rng, states):
    """A lattice of units with random couplings of agreement and fields, of random size."""
    wide, side = int(rng.integers(6, 10)), int(rng.integers(4, 9 - states))
    b = pgm.GraphBuilder()
    x = b.variable("x", states=states, shape=(wide, side))
    scale = rng.uniform(0.2, 1.8)
    for one, other in ((x[1:], x[:-1]), (x[:, 1:], x[:, :-1])):
        strength = scale * rng.uniform(0.5, 1.5, one.shape)
        b.table((one, other), np.exp(strength[..., None, None] * np.eye(states)))
    field = rng.choice([0.0, 0.1, 0.5]) * rng.normal(size=(wide, side, states))
    b.table((x,), np.exp(field))
    return b.build()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(40))
def test_hot_and_cold_lattices(seed, monkeypatch, errors=5.0):
    monkeypatch.setattr(summed_part, "MAX_SUMMED_ENTRIES", FEW_ENTRIES)
    rng = np.random.default_rng(seed)
    model = lattice(rng, states=2 + seed % 3)
    exact = pgm.infer(model, want=("log_z",), method=pgm.Exact()).log_z[0]
    r = pgm.infer(model, want=("log_z",), method=pgm.ClusterLadder(), rng=seed)
    assert r.log_z_interval[0, 0] <= exact <= r.log_z_interval[0, 1] or not r.status.good
    assert abs(r.log_z[0] - exact) <= errors * r.log_z_error[0] or not r.status.good


@pytest.mark.parametrize("states", (2, 3))
def test_blocks_are_summed_exactly(states, monkeypatch):
    """Log Z without the couplings that are cut, against another formula, and how many there are."""
    monkeypatch.setattr(summed_part, "MAX_SUMMED_ENTRIES", FEW_ENTRIES)
    (part,) = cluster_parts(lattice(np.random.default_rng(states), states).given())
    found = summed_part.summed_part(part)
    assert found.cut.any() and not found.cut.all()
    b = pgm.GraphBuilder()
    x = b.variable("x", states=states, shape=len(part.h))
    (one, other), J = part.edges[~found.cut].T, part.J[~found.cut, :, None]
    b.table((x[one], x[other]), np.exp(J * (2.0 * np.eye(states) - 1.0)))
    b.table((x,), np.exp(part.h[:, :, 0]))
    exact = pgm.infer(b.build(), want=("log_z",), method=pgm.Exact()).log_z[0]
    np.testing.assert_allclose(found.log_z(part), exact + part.constant[0], rtol=1e-12)


def test_the_run_ends_where_the_error_is_small_enough():
    model = torus(12, 0.3)
    few, all_of = (
        pgm.infer(model, want=("log_z",), method=pgm.ClusterLadder(tolerance=e), rng=0)
        for e in (0.1, 0.0)
    )
    assert all_of.log_z_error[0] < few.log_z_error[0] <= 0.1
    assert few.plan.seconds <= few.plan.most_seconds


def test_the_sign_of_no_coupling_matters_for_the_start():
    """`satisfied` is a state that satisfies all couplings, of either sign."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        units = int(rng.integers(2, 12))
        side = rng.choice([-1.0, 1.0], units)
        pairs = np.array(list(itertools.combinations(range(units), 2)))
        edges = pairs[rng.random(len(pairs)) < 0.4]
        J = rng.random(len(edges)) * side[edges[:, 0]] * side[edges[:, 1]]
        h, c = rng.normal(size=(units, 2, 1)), np.zeros(1)
        part = Part(np.arange(1), {}, edges, h, J[:, None], c)
        s = 2.0 * part.satisfied - 1.0
        assert not part.frustrated and (J * s[edges[:, 0]] * s[edges[:, 1]] >= 0).all()
        up, some = rng.integers(2, size=(3, units)), rng.random(len(edges)) < 0.5
        s = 2.0 * up - 1.0
        coupled = (s[:, edges[some, 0]] * s[:, edges[some, 1]]) @ J[some]
        np.testing.assert_allclose(part.coupled(up, some), coupled, atol=1e-12)


def test_ladders_that_have_not_met_are_no_estimate():
    """Hardly any moves: ladders from random and from ordered states are still apart."""
    method = pgm.ClusterLadder(warmup=1, draws=8)
    r = pgm.infer(torus(24, 0.6), want=("log_z",), method=method, rng=0)
    assert not r.status.good and r.warnings


def test_frustrated_couplings_are_refused():
    model = pgm.rbm(6, 4, rng=0)
    with pytest.raises(pgm.PgmError, match="ClusterLadder refused: .*frustrated"):
        pgm.infer(model, want=("log_z",), method=pgm.ClusterLadder())
    r = pgm.infer(model, want=("log_z",), method=pgm.ClusterLadder(frustrated=True), rng=0)
    exact = pgm.infer(model, want=("log_z",)).log_z[0]
    assert r.log_z_interval[0, 0] <= exact <= r.log_z_interval[0, 1]


def test_no_free_units():
    model = torus(3, 0.4)
    x = np.ones((3, 3))
    r = pgm.infer(model, {"s": x}, want=("log_z",), method=pgm.ClusterLadder(), rng=0)
    np.testing.assert_allclose(r.log_z, 18 * 0.4, rtol=1e-12)
    assert r.log_z_error[0] == 0
