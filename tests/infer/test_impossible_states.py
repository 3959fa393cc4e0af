"""States that the model rules out: NoisyOr units without a leak (bias 0) are off unless a parent is
on.
"""

import numpy as np
import pytest
from kernels_of_users import OwnGibbs
from loops import one_test_over
from registry import FEW_DRAWS, GIVE_LOG_Z, GIVE_MARGINALS

import pgmengine as pgm
from pgmengine.engine.chains import make_chains
from pgmengine.learn.phases.positive import default_positive

NAN = np.nan


KERNELS = pytest.mark.parametrize("kernel", [pgm.Gibbs(), OwnGibbs()], ids=["compiled", "plain"])


def leakless(weight=None):
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2)
    b.layer("v", pgm.NoisyOr(), 3)
    b.cause(
        "h",
        "v",
        weight=np.abs(np.random.default_rng(0).normal(size=(2, 3))) if weight is None else weight,
    )
    return b.build()


EVIDENCE = {
    "nothing": {},
    "off": {"v": [0, NAN, NAN]},
    "on and off": {"v": [0, 1, NAN]},
    "one parent": {"h": [0, NAN]},
    "no parent": {"h": [0, 0]},
    "one of each": {"h": [0, NAN], "v": [1, NAN, NAN]},
}


@KERNELS
@pytest.mark.parametrize("evidence", EVIDENCE.values(), ids=EVIDENCE)
@pytest.mark.parametrize(
    "betas", [100, pytest.param(1501, marks=pytest.mark.long)], ids=["differences", "midpoints"]
)
def test_annealing_does_not_care_what_a_unit_that_is_summed_out_was(
    evidence, betas, kernel, errors=5.0
):
    chains = 3000 if betas == 100 else 400
    if isinstance(kernel, OwnGibbs):
        chains //= 4
        betas = min(betas, 301)
    method = pgm.AIS(chains=chains, betas=betas, kernel=kernel)
    r = pgm.infer(leakless(), evidence, want=("log_z",), method=method, rng=1)
    truth = pgm.infer(leakless(), evidence, want=("log_z",)).log_z[0]
    assert abs(r.log_z[0] - truth) < errors * r.log_z_error[0] + 1e-5
    assert r.log_z_interval[0, 0] - 1e-5 <= truth <= r.log_z_interval[0, 1] + 1e-5
    assert r.stats["reverse_log_z"][0] > truth - errors * r.stats["reverse_error"][0] - 1e-5


@KERNELS
def test_nothing_is_left_to_chance_when_all_is_summed_out(kernel, atol=1e-5):
    method = pgm.AIS(chains=20, betas=30, kernel=kernel, reference={"v": [0.5, -0.3, 0.0]})
    r = pgm.infer(leakless(), {"h": [[0, 0], [0, 1]]}, want=("log_z",), method=method, rng=0)
    np.testing.assert_allclose(r.log_z, -2 * np.log(2), atol=atol)
    np.testing.assert_allclose(r.stats["reverse_log_z"], -2 * np.log(2), atol=atol)


@KERNELS
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_of_probability_zero_have_log_z_minus_infinity_and_leave_others_alone(
    kernel, reverse, errors=5.0
):
    evidence = {"h": [[NAN, NAN], [1, 1], [0, 0]], "v": [[NAN] * 3, [1, NAN, NAN], [1, NAN, NAN]]}
    method = pgm.AIS(chains=300, betas=50, reverse=reverse, kernel=kernel)
    r = pgm.infer(leakless(), evidence, want=("log_z",), method=method, rng=0)
    truth = pgm.infer(leakless(), evidence, want=("log_z",)).log_z
    assert np.all(np.abs(r.log_z[:2] - truth[:2]) < errors * r.log_z_error[:2] + 1e-5)
    assert r.log_z[2] == truth[2] == -np.inf and r.log_z_error[2] == np.inf
    assert np.array_equal(r.log_z_interval[2], [-np.inf, np.inf])
    assert not r.status.good and any("row 2" in line for line in r.warnings)


# Clusters do not move where a state is impossible, and say so.
@pytest.mark.parametrize("name", [n for n in GIVE_MARGINALS if n != "SwendsenWang"])
def test_samplers_say_so_when_they_meet_no_possible_state(name):
    r = pgm.infer(leakless(), {"h": [0, 0], "v": [1, 0, NAN]}, method=FEW_DRAWS[name], rng=0)
    assert not r.status.good and r.warnings


@pytest.mark.parametrize("name", [n for n in GIVE_LOG_Z if n != "ClusterLadder"])
def test_log_z_of_what_cannot_be_is_not_a_number_that_could_be(name):
    r = pgm.infer(
        leakless(), {"h": [0, 0], "v": [1, 0, NAN]}, want=("log_z",), method=FEW_DRAWS[name], rng=0
    )
    assert not np.isfinite(r.log_z[0]) and r.log_z_error[0] == np.inf and not r.status.good
    assert np.array_equal(r.log_z_interval, [[-np.inf, np.inf]])


def test_gradient_leaves_impossible_draws_out(errors=5.0):
    evidence, draws, times = {"v": [0, 1, 1]}, 4000, 10
    truth = pgm.infer(leakless(), evidence, want=("gradient",), method=pgm.Exact()).gradient
    found = [
        pgm.infer(
            leakless(), evidence, want=("gradient",), method=pgm.Forward(draws), rng=s
        ).gradient
        for s in range(times)
    ]
    for name, value in truth.items():
        each = np.stack([f[name] for f in found])
        assert np.all(
            np.abs(each.mean(axis=0) - value)
            < errors * each.std(axis=0, ddof=1) / np.sqrt(times) + 1e-9
        ), name


@KERNELS
def test_samplers_agree_with_enumeration(kernel, errors=5.0):
    evidence = {"v": [0, 1, NAN]}
    truth = pgm.infer(leakless(), evidence)
    for method in (
        pgm.MCMC(kernel=kernel),
        pgm.ParallelTempering(kernel=kernel, draws=500, warmup=200),
    ):
        r = pgm.infer(leakless(), evidence, method=method, rng=0)
        for name in ("h", "v"):
            assert np.all(
                np.abs(r.mean[name] - truth.mean[name]) <= errors * r.stats["mcse"][name][0] + 1e-9
            )


@KERNELS
def test_evidence_that_contradicts_itself_where_nothing_moves(kernel):
    """a = 0 leaves no way for o to be on; h, below a, moves all the same."""
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Binary(), 1)
    b.layer("o", pgm.NoisyOr(), 1)
    b.layer("h", pgm.Binary(), 2)
    b.cause("a", "o", [[1.0]])
    b.cause("a", "h", [[1.0, 0.5]])
    model, evidence = b.build(), {"a": [[1.0], [0.0]], "o": [[1.0], [1.0]]}
    truth = pgm.infer(model, evidence, want=("log_z",)).log_z
    for reverse in (False, True):
        r = pgm.infer(
            model, evidence, want=("log_z",), method=pgm.AIS(50, 10, kernel, reverse), rng=0
        )
        assert abs(r.log_z[0] - truth[0]) < 1e-5 and r.log_z[1] == truth[1] == -np.inf
        assert not r.status.good and np.array_equal(r.log_z_interval[1], [-np.inf, np.inf])
    for method in (
        pgm.MCMC(kernel, draws=50),
        pgm.ParallelTempering(kernel=kernel, draws=50, warmup=20),
        pgm.TemperedTransitions(kernel=kernel, draws=20, warmup=5),
    ):
        r = pgm.infer(model, evidence, method=method, rng=0)
        assert not r.status.good and any("impossible" in line for line in r.warnings)


@KERNELS
def test_rounding_of_inputs_is_no_way_to_turn_a_unit_on(kernel):
    """Parents on and off leave 1e-17 of an input behind, which where beta is small is as good as
    any.
    """
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 6)
    b.layer("v", pgm.NoisyOr(), 1)
    b.cause("h", "v", np.random.default_rng(3).uniform(0.1, 1.0, (6, 1)))
    many = b.build().given({"v": [1]}).at(1e-3).take(np.zeros(2000, dtype=int))
    x = {"h": np.ones((2000, 6)), "v": many.evidence.values["v"]}
    chains = make_chains(many, kernel, x, np.random.default_rng(1))
    for _ in range(20):
        chains.sweep(1)
        on = chains.values()["h"].sum(axis=1)
        assert on.min() == 1 and on.max() == 6


@pytest.mark.parametrize("leak", [0.0, 1e-6, 0.3])
@pytest.mark.parametrize(
    "method", [pgm.Exact(), pgm.Forward(50), pgm.MCMC(chains=2, draws=20), None], ids=repr
)
def test_units_of_which_nothing_is_known_below_have_no_slope(method, leak, atol=1e-15):
    """Draws alone would give -(1 - x). The states that compensate for it have probability 0 and an
    infinite score.
    """
    model = leakless().with_params({"v.bias": np.full(3, leak)})
    evidence = {"h": [[0, 0], [0, 1], [1, 1]], "v": [[NAN] * 3] * 3}
    target = model.given(evidence)
    found = (
        (method or default_positive(target, np.float64))
        .run(target, ("gradient",), rng=0)
        .answers["gradient"]
    )
    for name in ("v.bias", "h->v.weight"):
        np.testing.assert_allclose(found[name], 0.0, atol=atol)
    free = pgm.infer(
        model, {"v": [NAN, 0, NAN]}, want=("gradient",), method=method or pgm.Exact(), rng=0
    ).gradient
    np.testing.assert_allclose(free["v.bias"][[0, 2]], 0.0, atol=atol)
    np.testing.assert_allclose(free["v.bias"][1], -1.0, atol=atol)


@pytest.mark.parametrize("negative", [pgm.ExactGradient(), pgm.PCD(chains=20), pgm.CD(3)], ids=repr)
def test_learning_from_a_leak_of_0_starts_along_the_slope(
    negative, rate=1e-4, step=1e-5, rtol=1e-3
):
    """For a row that no cause explains, the slope comes from a state that is impossible at a leak
    of 0. Forward differences confirm it.
    """
    b = pgm.GraphBuilder()
    b.layer("v", pgm.NoisyOr(), 3)
    b.layer("h", pgm.Binary(), 2, bias=[-0.5, 0.2])
    b.layer("t", pgm.Binary(), 2)
    b.couple("h", "t", weight=[[0.0, 0.1], [0.2, 0.0]])
    b.cause("h", "v", weight=np.abs(np.random.default_rng(3).normal(size=(2, 3))))
    model, x = b.build(), {"v": [[1, 0, 1], [0, 1, NAN], [1, NAN, 0], [0, 0, 0]]}
    f = pgm.fit(
        model,
        x,
        negative=negative,
        positive=pgm.Exact(),
        optimizer=pgm.SGD(rate),
        updates=1,
        progress=False,
    )

    def log_likelihood(bias):
        return pgm.infer(model.with_params({"v.bias": bias}), x, want=("log_prob",)).log_prob.mean()

    slope = [(log_likelihood(step * e) - log_likelihood(np.zeros(3))) / step for e in np.eye(3)]
    np.testing.assert_allclose(
        f.model.params["v.bias"] / rate, np.maximum(slope, 0), rtol=rtol, atol=0.02
    )


def test_the_default_data_phase_of_noisy_or_children_does_not_depend_on_how_large_the_leak_is():
    """A fit that starts from the model of another fit, whose leaks have shrunk, continues in the
    same way.
    """
    b = pgm.GraphBuilder()
    b.layer("v", pgm.NoisyOr(), 3)
    b.layer("h", pgm.Binary(), 30)
    b.cause("h", "v", weight=np.ones((30, 3)))
    for leak in (0.0, 1e-6, 0.1, 2.0):
        target = b.build().with_params({"v.bias": np.full(3, leak)}).given({"v": [1, 0, 1]})
        assert isinstance(default_positive(target, np.float32), pgm.MCMC)
    known = b.build().given({"h": np.ones(30), "v": [1, 0, NAN]})
    assert isinstance(default_positive(known, np.float32), pgm.MeanField)


def test_base_rates_of_noisy_or_units_are_leaks(atol=1e-12):
    x = [[1, 0, NAN], [1, 0, 1], [0, 0, 0], [1, 1, 0]]
    start = pgm.base_rate_start(leakless(np.zeros((2, 3))), {"v": x}, strength=0.0)
    np.testing.assert_allclose(pgm.infer(start).mean["v"], np.nanmean(x, axis=0), atol=atol)


def rare_finding(tables):
    """An improbable cause of a finding without a leak, perhaps beside a table."""
    b = pgm.GraphBuilder()
    b.layer("d", pgm.Binary(), 1, bias=[-12.0])
    b.layer("f", pgm.NoisyOr(), 1, bias=[0.0])
    b.cause("d", "f", weight=[[0.01]])
    if tables:
        b.variable("a")
        b.table(("a", ("d", 0)), [[1.0, 2.0], [3.0, 1.0]])
    return b.build()


@one_test_over(
    ("method", "tables"),
    [(pgm.Elimination(), False), (pgm.Elimination(), True), (pgm.Enumeration(), False)],
)
def test_a_leak_of_0_does_not_change_other_slopes(method, tables, rtol=1e-10):
    """The finding is there with probability 6e-8 or so, and proves the cause.

    With p = sigmoid(-12) and q = 1 - e^-0.01, Z = sum over a and d of table p(d) p(f | d).
    """
    p, q = 1 / (1 + np.exp(12.0)), -np.expm1(-0.01)
    off, on = (4.0 * (1 - p), 3.0 * p) if tables else (1 - p, p)
    found = pgm.infer(rare_finding(tables), {"f": 1}, ("gradient",), method=method).gradient
    np.testing.assert_allclose(found["d.bias"], [1 - p], rtol=rtol)
    np.testing.assert_allclose(found["d->f.weight"], [[(1 - q) / q]], rtol=rtol)
    # Without the cause the finding is impossible, but has a slope.
    slope = (off + on * (1 - q)) / (on * q)
    # A walk takes a forward difference with a step of 1e-9.
    near = 2e-9 * slope if method == pgm.Enumeration() else rtol
    np.testing.assert_allclose(found["f.bias"], [slope], rtol=near)
    if tables:
        by_state = [[0.0, 2 / 3], [0.0, 1 / 3]]
        np.testing.assert_allclose(found["a,d[0].table"], by_state, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("method", [pgm.Elimination(), pgm.Exact()], ids=repr)
def test_a_leak_of_0_of_an_unknown_unit_has_no_slope(method, atol=1e-12):
    """Nothing depends on the second unit, also where its tables are part of the tree."""
    b = pgm.GraphBuilder()
    b.layer("d", pgm.Binary(), 1)
    b.layer("f", pgm.NoisyOr(), 2, bias=[0.0, 0.0])
    b.cause("d", "f", weight=[[1.0, 1.0]])
    found = pgm.infer(b.build(), {"f": [0, np.nan]}, ("gradient",), method=method).gradient
    np.testing.assert_allclose(found["f.bias"], [-1.0, 0.0], atol=atol)
