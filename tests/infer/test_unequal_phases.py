"""Phases of unequal weight: a good status must not prefer runs that have missed the minority."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.engine.chains import make_chains
from pgmengine.infer.diagnostics.convergence import chain_statistics
from pgmengine.infer.question.auto import disagreement, with_difference
from pgmengine.infer.sampling.draws.dispersed_starts import sweeps_apart

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from two_phases import KINDS, Case, asked, built, case, share_of, summed  # noqa: E402


def ferromagnet(weight, n=40, field=0.0):
    pairs = weight / n * (np.ones((n, n)) - np.eye(n))
    return pgm.boltzmann_machine(n, weight=pairs).with_params({"x.bias": np.full(n, field)})


@pytest.mark.parametrize("number", [0, pytest.param(2, marks=pytest.mark.long)])
def test_good_answers_are_right(number, seeds=2, errors=5.0):
    """By chains alone, good answers about models of this kind were up to 28 errors off."""
    found = asked(number, list(range(seeds)))
    assert all(abs(one["z"]) < errors for one in found if one["good"]), found
    assert any(one["good"] for one in found)


@pytest.mark.long
def test_good_answers_lean_to_neither_phase(models=28, seeds=4, lean=0.3, errors=5.0):
    """The mean of z differs from 0 by at most `lean`, and by five of its own standard errors.

    Answers about one model are counted as independent, because each has a run of its own.
    """
    found = [one for number in range(models) for one in asked(number, list(range(seeds)))]
    z = np.array([one["z"] for one in found if one["good"]])
    assert len(z) >= 0.8 * len(found)
    assert np.abs(z).max() < errors
    assert abs(z.mean()) < lean + errors / math.sqrt(len(z))


def apart(model, x, most, rng=0):
    """The sweeps in which chains (rows, chains, size) of one layer meet."""
    rows, chains, size = x.shape
    many = model.given().take(np.zeros(rows * chains, dtype=int))
    made = make_chains(many, pgm.Gibbs(), {"x": x.reshape(-1, size)}, np.random.default_rng(rng))
    return sweeps_apart(made, made.sweep, rows, most)


def opposite(rows, n=40):
    return np.stack((np.ones((rows, n)), -np.ones((rows, n))), axis=1)


def test_chains_from_opposite_starts_meet_as_the_model_allows():
    """Without couplings, two chains have met with a probability of at least 1/2 after each sweep,
    and in a cold ferromagnet they leave their phases in e^20 sweeps.
    """
    assert apart(ferromagnet(0.0), opposite(20), 60).max() <= 60
    assert (apart(ferromagnet(4.0), opposite(20), 60) == 61).all()
    # Chains from one start are together, in each row by itself.
    x = opposite(2)
    x[1, 1] = x[1, 0]
    assert apart(ferromagnet(4.0), x, 60).tolist() == [61, 1]


def test_chains_that_stay_apart_are_doubted_whatever_their_draws_say():
    """The field makes all draws after the warm-up agree, and R-hat with them."""
    model = ferromagnet(1.4, n=60, field=0.03)
    method = pgm.MCMC(rhat_limit=100.0)
    for seed in range(4):
        r = pgm.infer(model, method=method, rng=seed)
        late = r.stats["sweeps_apart"].max() > 40
        assert late == any("stayed apart" in line for line in r.warnings)
        assert not (late and r.status.good)
    quick = pgm.infer(ferromagnet(0.2), method=pgm.MCMC(), rng=0)
    assert quick.stats["sweeps_apart"].shape == (1,) and not quick.warnings
    # Chains that go on from other chains, or that are not judged, have no starts to compare.
    on = pgm.infer(ferromagnet(0.2), method=pgm.MCMC(), rng=0, state=quick.state)
    free = pgm.infer(ferromagnet(0.2), method=pgm.MCMC(rhat_limit=math.inf), rng=0)
    assert "sweeps_apart" not in on.stats and "sweeps_apart" not in free.stats


def test_states_that_were_hardly_met_are_judged_by_the_slowest_series(chains=4, draws=4000):
    """Unit 0 stays for 200 draws where it is. Unit 1 was met in state 1 for a few single draws, so
    that its own series looks independent; the third one never changed.
    """
    model, rng = pgm.rbm(3, 1, rng=0), np.random.default_rng(0)
    slow = np.repeat(rng.integers(0, 2, (draws // 200, chains)), 200, axis=0)
    rare = (np.arange(draws)[:, None] % 1999 == 7) & np.ones((1, chains), dtype=bool)
    never = np.zeros((draws, chains))
    v = np.stack((slow, rare, never), axis=2).astype(float)
    trace = {"v": v, "h": np.zeros((draws, chains, 1))}
    trace["v"], trace["h"] = (x.reshape(200, -1, *x.shape[1:]).mean(axis=1) for x in trace.values())
    variance = {"v": v.var(axis=(0, 1))[None], "h": np.zeros((1, 1))}
    energy = rng.normal(size=(draws, chains))
    stats = chain_statistics(trace, variance, energy, model.given(), chains)
    slowest = float(np.min(stats["ess"]["v"][0, 0]))
    assert slowest < 200 and stats["ess"]["v"][0, 1] > 4000
    least = 3 / slowest / 1.96
    np.testing.assert_allclose(stats["mcse"]["v"][0, 1:], least)
    # Moves that are counted, such as tours of a ladder, limit the number of draws as well.
    few = chain_statistics(trace, variance, energy, model.given(), chains, np.full(1, 5.0))
    np.testing.assert_allclose(few["mcse"]["v"][0, 1:], 3 / 5 / 1.96)


class Local:
    """Chains of a given time apart; they move locally."""

    local = True

    def __init__(self, apart):
        self.apart = apart

    def plan(self, target, want):
        return pgm.Plan("Local", "estimate")

    def run(self, target, want, rng=None, state=None):
        r = pgm.MCMC(rhat_limit=100.0).run(target, want, rng=rng)
        stats = {**r.stats, "sweeps_apart": np.array([self.apart])}
        return pgm.Result(r.answers, "estimate", self, r.plan, stats=stats)


class Ladder:
    """A ladder that is planned at five seconds, and counts how often it runs."""

    tempered = True

    def __init__(self):
        self.runs = 0

    def plan(self, target, want):
        return pgm.Plan("Ladder", "estimate", seconds=5.0)

    def run(self, target, want, rng=None, state=None):
        self.runs += 1
        r = pgm.MCMC(rhat_limit=100.0).run(target, want, rng=rng)
        return pgm.Result(r.answers, "estimate", self, self.plan(target, want), stats=r.stats)


@pytest.mark.parametrize(
    ("apart", "settings", "runs"),
    [
        (10, {}, 0),
        (10, {"confirm_seconds": 6.0}, 1),
        (11, {}, 1),
        (11, {"retry_seconds": 4.0}, 0),
        (11, {"confirm_seconds": 0.0}, 0),
    ],
)
def test_a_ladder_runs_where_chains_stayed_apart(apart, settings, runs):
    """Whether it runs depends on plans and on the starts, and not on what the chains say."""
    ladder = Ladder()
    auto = pgm.Auto(candidates=(Local(apart), ladder), **settings)
    r = pgm.infer(pgm.rbm(4, 3, rng=0), method=auto, rng=0)
    assert ladder.runs == runs and isinstance(r.method, Ladder if runs else Local)


@pytest.mark.parametrize("of_sum", [1.0, 0.01])
def test_the_error_of_a_ladder_covers_its_difference_from_the_chains(of_sum):
    """A difference of .03 is due to chance, unless the sums over the layer differ as well."""
    target = pgm.rbm(3, 1, rng=0).given()
    one = pgm.MCMC().run(target, ("marginals",), rng=0)
    error = {"v": np.full((1, 3), 0.01), "h": np.full((1, 1), 0.01)}
    stats = {**one.stats, "mcse": error, "sum_mcse": {"v": np.full((1, 1), of_sum)}}
    mean = {"v": np.array([0.5, 0.5, 0.5]), "h": np.array([0.5])}
    ladder = replace(one, answers={**one.answers, "mean": mean}, stats=stats)
    other = {"v": np.array([0.5, 0.53, 0.7]), "h": np.array([0.5])}
    chains = replace(ladder, answers={**one.answers, "mean": other})
    found = with_difference(target, ladder, chains).stats["mcse"]
    wide, little = (np.hypot(0.01, gap / 1.96 - 0.01) for gap in (0.2, 0.03))
    expected = [[0.01, 0.01 if of_sum == 1.0 else little, wide]]
    np.testing.assert_allclose(found["v"], expected, rtol=1e-3)
    np.testing.assert_allclose(found["h"], [[0.01]])
    said = disagreement(target, chains, ladder)
    assert "on 1 means of layer 'v'" in said
    # Sums and energies are compared where no unit differs by enough.
    near = replace(ladder, answers={**one.answers, "mean": {**mean, "v": mean["v"] + 0.04}})
    assert ("the sum over layer 'v'" in disagreement(target, near, ladder)) == (of_sum == 0.01)
    hot = replace(ladder, stats={**stats, "energy": stats["energy"] + 1.0})
    assert "the mean energy" in disagreement(target, hot, ladder)
    assert not disagreement(target, ladder, ladder)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_models_have_the_means_that_they_say(kind):
    """The sums over numbers of units are those over states, in models that are small enough."""
    sizes = (5,) if len(kind.groups) == 1 else (4, 3)
    log_w, share, count = summed(kind, sizes, 0.3)
    p = np.exp(log_w + 0.4 * count)
    found = Case(kind, sizes, 0.3, 0.4, float(p @ share / p.sum()), 0.1, 1)
    mean = share_of(found, pgm.infer(built(found)).mean["x"])
    spins = kind.name in ("pairs", "RBM")
    assert ((mean + 1) / 2 if spins else mean) == pytest.approx(found.mean)
    drawn = case(KINDS.index(kind))
    assert drawn.kind is kind and 0.004 < drawn.minority < 0.21
