"""Annealing against the oracle: the path, unbiased weights in every direction, brackets, base
rates.
"""

import math

import numpy as np
import pytest
from loops import one_test_over
from tiny import FINITE, INFINITE, TABLED, as_evidence, mixed_target, patterns
from twin import Replay, key_of

import pgmengine as pgm
from pgmengine.engine import layerwise, reference
from pgmengine.engine.chains import make_chains, refusal, start
from pgmengine.infer.sampling.methods.ais import _interval
from pgmengine.infer.sampling.methods.annealed_run import AnnealedRun
from pgmengine.infer.sampling.methods.base_rates import base_rates
from pgmengine.infer.sampling.methods.references import Confirmed


def random_rbm(seed, v=30, h=12, sd=2.0):
    rng = np.random.default_rng(seed)
    return pgm.rbm(v, h).with_params(
        {
            "v-h.weight": rng.normal(size=(v, h)) * sd,
            "v.bias": rng.normal(size=v),
            "h.bias": rng.normal(size=h),
        }
    )


# ---- the path ----


@one_test_over("tiny_model", FINITE + INFINITE + TABLED)
def test_log_z_at_0_is_exact_and_so_are_its_draws(tiny_model):
    target = mixed_target(tiny_model, rows=6).at(0.0)
    layers = target.structure.layers
    for i in range(target.rows):
        one = target.take(np.array([i]))
        x = one.take(np.zeros(400, dtype=int)).draw_at_0(np.random.default_rng(0))
        for name, mask in one.pattern.observed.items():
            seen = np.repeat(mask[0], layers[name].unit.width)
            assert np.array_equal(
                x[name][:, seen], np.repeat(one.evidence.values[name][:, seen], 400, axis=0)
            )
        if all(x.unit.support is not None for x in tiny_model.layers):
            states = pgm.diagnostics.joint_states(one)
            count = len(next(iter(states.values())))
            log_p = one.take(np.zeros(count, dtype=int)).log_density(states)
            np.testing.assert_allclose(
                np.logaddexp.reduce(log_p), one.log_z_at_0()[0], rtol=1e-10, atol=1e-10
            )


@pytest.mark.parametrize("tiny_model", FINITE + INFINITE, ids=repr)
@pytest.mark.parametrize("joint", [False, True])
def test_annealing_weights_are_those_of_the_plain_engine(tiny_model, joint):
    target = mixed_target(tiny_model).at(0.0)
    if refusal(target):
        return
    betas = np.array([0.0, 1e-4, 0.2, 0.7, 0.7005, 1.0])

    def parting(backward, seed):
        """The rows whose weights are not those of the plain engine."""
        x = start(target, np.random.default_rng(0))
        ours = layerwise.CompiledChains(target, pgm.Blend(0.3), x, np.random.default_rng(seed))
        replay = Replay(target, key_of(seed), ours.by_unit, backward=backward)
        theirs = reference.PlainChains(target, pgm.Blend(0.3), x, replay)
        found, truth = (c.anneal(betas, joint=joint, backward=backward) for c in (ours, theirs))
        assert np.array_equal(ours.beta, np.ones(24))
        finite = np.isfinite(truth)
        return np.where(
            finite,
            ~np.isclose(found, np.where(finite, truth, 0.0), rtol=2e-4, atol=2e-4),
            found != truth,
        )

    # By ties of a uniform with its threshold one row may part, but not again; as in the contract
    # of kernels, false alarms are below 1e-6 (twice 5e-7).
    for backward in (False, True):
        parted = parting(backward, 8)
        assert parted.sum() <= 1
        assert not parted.any() or not (parted & parting(backward, 9)).any()


class OwnFlip:
    """FlipState as a user's kernel, which the plain engine sweeps."""

    def transition(self, prob, current):
        return pgm.FlipState().transition(prob, current)


@pytest.mark.parametrize(
    "kernel",
    [pgm.Gibbs(), pgm.FlipState(), pgm.Blend(0.5), OwnFlip()],
    ids=["G", "T", "blend", "own"],
)
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("count", [100_000, pytest.param(600_000, marks=pytest.mark.long)])
def test_mean_of_the_weights_is_unbiased_summed_out_or_not(
    kernel, backward, joint, count, sure=5.5
):
    """E exp(w) = Z_1 / Z_0 at any number of temperatures: what is summed out must be drawn anew,
    not flipped.

    Two means in standard errors: false alarms are 8e-8, and still below 1e-6 with the skewness of
    weights (6 for log weights of deviation 1, which makes an end of 5.5 four times as likely).
    """
    model = random_rbm(0, 4, 3, 0.8)
    target = model.given().at(0.0)
    truth = pgm.infer(model, want=("log_z",)).log_z[0] - target.log_z_at_0()[0]
    count = min(count, 100_000) if isinstance(kernel, OwnFlip) else count
    many, rng = target.take(np.zeros(count, dtype=int)), np.random.default_rng(1)
    for betas in ([0.0, 1.0], [0.0, 0.3, 0.8, 1.0]):
        chains = make_chains(many, kernel, many.draw_at_0(rng), rng)
        w = np.exp(chains.anneal(np.array(betas), joint=joint, backward=backward) - truth)
        assert abs(w.mean() - 1) < sure * w.std() / np.sqrt(count)


# ---- AIS ----


def covers(result, truth):
    low, high = result.log_z_interval.T
    return (low <= truth) & (truth <= high)


@pytest.mark.long
def test_ais_brackets_random_rbms_dbms_and_belief_nets(outside=5):
    """Intervals end three standard errors away, so the truth is outside once in 370 models.

    That it is outside for more than five of 60 has a probability of 4e-8 (binomial). With intervals
    of half the width eight would be outside, of a third of it 19. The estimates of both directions
    differ by 0.04 nats (a deviation), so 0.5 is 12 deviations.
    """
    inside = []
    for seed in range(20):
        model = random_rbm(seed)
        r = pgm.infer(model, want=("log_z",), method=pgm.AIS(), rng=seed)
        inside.append(covers(r, pgm.infer(model, want=("log_z",)).log_z)[0])
        assert abs(r.log_z[0] - r.stats["reverse_log_z"][0]) < 0.5 and r.status.good
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model = pgm.dbm([10, 8, 6]).with_params(
            {
                "v-h1.weight": rng.normal(size=(10, 8)) * 1.5,
                "h1-h2.weight": rng.normal(size=(8, 6)) * 1.5,
            }
        )
        r = pgm.infer(model, want=("log_z",), method=pgm.AIS(), rng=seed)
        inside.append(covers(r, pgm.infer(model, want=("log_z",)).log_z)[0])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model = pgm.sbn([12, 6, 3], rng=seed)
        leaves = np.where(np.arange(12) % 2, np.nan, rng.integers(0, 2, 12))
        r = pgm.infer(model, {"v": leaves}, want=("log_prob",), method=pgm.AIS(), rng=seed)
        inside.append(covers(r, pgm.infer(model, {"v": leaves}, want=("log_prob",)).log_prob)[0])
    assert len(inside) == 60 and sum(inside) >= 60 - outside


@pytest.mark.parametrize(
    "tiny_model", [m for m in FINITE + INFINITE if "large" not in m.name], ids=repr
)
@pytest.mark.long
def test_ais_on_the_table_with_evidence_row_by_row(tiny_model, sure=7.0):
    """At most 20 numbers, whose errors come from 400 chains: normal, with errors too small by a
    fifth, false alarms are 20 x 2e-8.
    """
    rows = patterns(tiny_model)
    model = tiny_model.build()
    target = model.given(as_evidence(tiny_model, rows))
    if refusal(target):
        target = target.take(
            np.array([i for i in range(len(rows)) if not refusal(target.take(np.array([i])))])
        )
    r = pgm.AIS(chains=400, betas=pgm.Linear(60)).run(target, ("log_z",), rng=3)
    exact = pgm.Exact().run(target, ("log_z",)).log_z
    assert np.all(np.abs(r.log_z - exact) <= sure * r.log_z_error + 1e-4)
    off = np.abs(r.stats["reverse_log_z"] - exact)
    assert np.all(off <= sure * r.stats["reverse_error"] + 1e-4)


def test_log_prob_of_partial_rows():
    model = random_rbm(1, 8, 5, 1.0)
    x = np.array(
        [[1, 0, np.nan, np.nan, 1, np.nan, 0, 1], [0, 0, 1, 1, np.nan, np.nan, np.nan, np.nan]]
    )
    exact = pgm.infer(model, {"v": x}, want=("log_prob",)).log_prob
    for method in (pgm.AIS(chains=300), pgm.ParallelTempering()):
        r = pgm.infer(model, {"v": x}, want=("log_prob",), method=method, rng=0)
        # Four numbers with errors that may be too small by a fifth: 4 x 2e-8.
        assert r.status.good and np.all(np.abs(r.log_prob - exact) < 7 * r.stats["log_prob_error"])
        assert r.stats["log_prob_error"].max() < 0.2


@pytest.mark.long
def test_variance_of_ais_falls_as_one_over_the_temperatures():
    model = random_rbm(3, 12, 8, 1.0)
    spread = [
        pgm.infer(
            model,
            want=("log_z",),
            method=pgm.AIS(chains=2000, betas=pgm.Linear(n), reverse=False),
            rng=0,
        ).stats["log_weight_sd"][0]
        ** 2
        for n in (250, 1000, 4000)
    ]
    assert 3 < spread[0] / spread[1] < 5.5 and 3 < spread[1] / spread[2] < 5.5


def test_coupled_chains_keep_their_distribution_where_valleys_are_rarely_left():
    """A swap when the fast chain comes to beta = 1, not just when it is there, gives the modes
    other shares.
    """
    n, w = 6, 2.0
    weight = w * (1 - np.eye(n))
    model = pgm.boltzmann_machine(n, unit=pgm.Binary(), weight=weight)
    # The state with all units on is 1.5 nats above the state with all units off.
    model = model.with_params({"x.bias": np.full(n, (1.5 - w * n * (n - 1) / 2) / n)})
    pairs, steps = 3000, 600
    target = model.given().take(np.zeros(pairs, dtype=int))
    coupled = pgm.CoupledTempering(
        target, np.linspace(0.3, 1.0, 6), pgm.Gibbs(), pgm.OneOverT(), 20, np.random.default_rng(0)
    )
    exact = pgm.infer(
        model, want=("samples", "marginals"), method=pgm.Exact(draws=2 * pairs), rng=1
    )
    coupled.chains.place_at({"x": exact.samples["x"][:, 0]})
    means = []
    for t in range(steps):
        coupled.step()
        if t >= steps // 2:
            means.append(coupled.states()["x"].mean(axis=1))
    each = np.mean(means, axis=0)
    assert coupled.travels.entry().swapped > 3 * pairs
    assert abs(each.mean() - exact.mean["x"].mean()) < 5 * each.std() / np.sqrt(pairs)


def test_base_rates_of_every_unit(atol=1e-6):
    """A'(eta) is the shrunk mean of the data, missing values left out."""
    rng = np.random.default_rng(0)
    units = {
        "b": pgm.Binary(),
        "s": pgm.Spin(),
        "m": pgm.MultiValued(3),
        "i": pgm.MultiValued(math.inf),
        "g": pgm.Gaussian(2.0),
        "c": pgm.Categorical(3),
    }
    b = pgm.GraphBuilder()
    for name, unit in units.items():
        b.layer(name, unit, 2)
    model, rows = b.build(), 50
    data = {
        "b": rng.integers(0, 2, (rows, 2)),
        "s": rng.choice([-1, 1], (rows, 2)),
        "c": rng.integers(0, 3, (rows, 2)),
        "m": rng.choice([-1, -1 / 3, 1 / 3, 1], (rows, 2)),
        "i": rng.uniform(-1, 0.5, (rows, 2)),
        "g": rng.normal(3, 5, (rows, 2)),
    }
    data["b"] = np.where(rng.random((rows, 2)) < 0.3, np.nan, data["b"])
    found = base_rates(model, data, shrink=4.0)
    for name, unit in units.items():
        x = np.eye(3)[data[name]] if name == "c" else np.asarray(data[name], dtype=float)
        seen = (~np.isnan(x)).sum(axis=0)
        middle = {"b": 0.5, "c": 1 / 3}.get(name, 0.0)
        more = 0 if name == "g" else 4  # real values have finite means anyway
        mean = (np.nansum(x, axis=0) + more * middle) / (seen + more)
        np.testing.assert_allclose(unit.mean(found[name].reshape(mean.shape)), mean, atol=atol)
    narrow = base_rates(
        pgm.rbm(1, 1, visible=pgm.Gaussian(0.01)), {"v": [[4.9], [5.0]]}, shrink=0.0
    )
    np.testing.assert_allclose(narrow["v"], 49_500)
    grey = base_rates(pgm.rbm(2, 1), {"v": [[0.3, 0.5], [0.2, 0.9]]}, shrink=0.0)["v"]
    np.testing.assert_allclose(1 / (1 + np.exp(-grey)), [0.25, 0.7])
    assert set(base_rates(pgm.drbm(2, 3, 2), {"y": [[0], [1]]})) == {"y"}
    start = pgm.base_rate_start(model, {"m": data["m"]}, strength=0.0)
    np.testing.assert_allclose(pgm.infer(start).mean["m"], data["m"].mean(axis=0), atol=atol)


def test_base_rates_and_adaptive_temperatures_lower_the_variance(models=16):
    """Ratios of the standard deviation of the log weights with and without, on average over models.

    One of them may be above 1: over 60 models the ratio is 0.57 with sd 0.18 for base rates, 0.80
    with sd 0.03 for adaptive temperatures, where strong biases make the path change most near 0.
    So the means of 16 are 7 standard errors below 0.9; without an effect they would be 1 with a
    standard error of 0.01.
    """

    def spread(model, seed, **settings):
        method = pgm.AIS(chains=2000, reverse=False, confirm=0, **settings)
        return pgm.infer(model, want=("log_z",), method=method, rng=seed).stats["log_weight_sd"][0]

    even, ratios = pgm.Linear(50), []
    for seed in range(models):
        rng = np.random.default_rng(seed)
        data = {"v": (rng.random((500, 20)) < np.linspace(0.01, 0.3, 20)) * 1.0}
        rates, weight = base_rates(pgm.rbm(20, 6), data), rng.normal(size=(20, 6))
        model = pgm.rbm(20, 6).with_params({"v.bias": rates["v"], "v-h.weight": 0.7 * weight})
        steep = pgm.rbm(20, 6).with_params(
            {"v.bias": np.full(20, -8.0), "h.bias": np.full(6, -8.0), "v-h.weight": weight}
        )
        ratios.append(
            (
                spread(model, seed, betas=even, reference=rates) / spread(model, seed, betas=even),
                spread(steep, seed, betas=pgm.Adaptive(50)) / spread(steep, seed, betas=even),
            )
        )
    assert np.all(np.mean(ratios, axis=0) < 0.9)


@pytest.mark.parametrize(
    "method",
    [
        pgm.AIS(chains=1, betas=[1.0]),
        pgm.AIS(chains=1),
        pgm.AIS(betas=[0.0, 1.0]),
        pgm.ParallelTempering(rungs=2, chains=1, warmup=0, draws=500),
    ],
)
def test_extremes_give_an_answer_with_an_honest_error(method):
    """One temperature, one chain; all observed; zero weights; weights of 1e3."""
    model = random_rbm(0, 5, 3, 1.0)
    exact = pgm.infer(model, want=("log_z",)).log_z[0]
    r = pgm.infer(model, want=("log_z",), method=method, rng=0)
    # The error is infinite where it cannot be estimated.
    # Errors of 500 draws that depend on each other may be too small by a fifth: 2e-8. (Those of 50
    # draws are too rough for any such limit.)
    assert abs(r.log_z[0] - exact) < 7 * r.log_z_error[0]
    assert np.isfinite(r.log_z[0]) and np.isinf(r.log_z_error[0]) == (
        isinstance(method, pgm.AIS) and method.chains == 1
    )
    seen = {"v": np.ones(5), "h": np.ones(3)}
    r = pgm.infer(model, seen, want=("log_z",), method=method, rng=0)
    np.testing.assert_allclose(r.log_z, pgm.infer(model, seen, want=("log_z",)).log_z, rtol=1e-6)
    assert r.log_z_error[0] < 1e-6
    empty = pgm.rbm(5, 3).with_params({"v-h.weight": np.zeros((5, 3))})
    r = pgm.infer(empty, want=("log_z",), method=method, rng=0)
    np.testing.assert_allclose(r.log_z, 8 * np.log(2), rtol=1e-6)
    huge = pgm.rbm(5, 3).with_params({"v-h.weight": np.full((5, 3), 1e3)})
    r = pgm.infer(huge, want=("log_z",), method=method, rng=0)
    assert np.isfinite(r.log_z[0]) and (
        r.warnings or not np.isfinite(r.log_z_error[0]) or abs(r.log_z[0] - 15_000) < 20
    )


def test_annealing_of_a_row_does_not_depend_on_what_others_leave_open():
    """A row with observed visible units has independent free units only. Its error is 0, for any
    other rows beside it.
    """
    model = pgm.rbm(6, 9).with_params({"v-h.weight": np.random.default_rng(0).normal(size=(6, 9))})
    v = np.array([[1, 0, 1, 1, 0, 0], [np.nan] * 6, [0, 1, np.nan, 1, 1, 0]])
    truth = pgm.infer(model, {"v": v}, want=("log_z", "log_prob"), method=pgm.Exact())
    for order in ([0, 1, 2], [2, 0, 1]):
        r = pgm.infer(
            model,
            {"v": v[order]},
            want=("log_z", "log_prob"),
            method=pgm.AIS(chains=400, betas=300),
            rng=0,
        )
        assert r.log_z_error[order.index(0)] < 1e-5
        # Twelve numbers with errors from 400 chains (Student's t: 12 x 2.4e-10).
        assert np.all(np.abs(r.log_z - truth.log_z[order]) < 6.5 * r.log_z_error + 1e-4)
        assert np.all(
            np.abs(r.log_prob - truth.log_prob[order]) < 6.5 * r.stats["log_prob_error"] + 1e-4
        )
        assert r.stats["log_weights"].shape == (400, 3)


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("sizes", [(4, 3), (20, 10), (300, 200)])
def test_weights_without_variance_have_the_error_of_their_rounding(sizes, reverse):
    """Given v all of an RBM is summed out: what is left is single precision, and the interval must
    hold the truth.
    """
    rng, (n, m) = np.random.default_rng(0), sizes
    model = pgm.rbm(n, m).with_params(
        {"v-h.weight": rng.normal(0, 3 / np.sqrt(n), (n, m)), "h.bias": rng.normal(size=m)}
    )
    v = rng.integers(0, 2, (20, n)).astype(float)
    truth = np.logaddexp(0, v @ model.params["v-h.weight"] + model.params["h.bias"]).sum(axis=1)
    r = pgm.infer(
        model,
        {"v": v},
        want=("log_z",),
        method=pgm.AIS(chains=50, betas=50, reverse=reverse),
        rng=0,
    )
    assert np.all(r.log_z_interval[:, 0] <= truth) and np.all(truth <= r.log_z_interval[:, 1])
    assert np.all(np.diff(r.log_z_interval, axis=1) < 1e-6 * (10 + np.abs(truth)[:, None]))


def test_the_interval_of_both_runs_contains_the_estimate():
    """Also where noise puts the forward run above the end of the reverse run."""

    def run(log_z, error):
        log_weights = np.full((1, 5), log_z)
        one = np.ones(1)
        return AnnealedRun(log_z * one, error * one, 5 * one, log_weights, np.nan * one, one > 0)

    for up, down in ((2.0, 1.0), (1.0, 2.0), (1.5, 1.5)):
        no = np.zeros(1, dtype=bool)
        runs = Confirmed((run(up, 0.1), run(down, 0.1)), np.ones(1), no, np.full(1, -np.inf))
        low, high = _interval(runs)[0]
        assert low == pytest.approx(up - 0.3)
        assert high == pytest.approx(max(up, down + 0.3))
