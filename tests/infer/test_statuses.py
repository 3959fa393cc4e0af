"""Whether statuses, errors and intervals can be trusted: answers that were wrong with a good
status.

Each case was wrong in the first edition. Verdicts compare with exact answers, many standard errors
wide, or count over seeds.
"""

import itertools
import math

import numpy as np
import pytest
from limits import no_exact_draws
from loops import one_test_over

import pgmengine as pgm
from pgmengine.engine.cost import engine
from pgmengine.infer.diagnostics.convergence import least_error, series_statistics
from pgmengine.infer.diagnostics.trust import few, few_tours, normal_end, pareto_shape
from pgmengine.infer.sampling.draws.dispersed_starts import dispersed
from pgmengine.infer.sampling.methods import annealing, references
from pgmengine.infer.sampling.methods.annealed_run import AnnealedRun
from pgmengine.infer.sampling.methods.simulated_tempering import round_trips
from pgmengine.infer.variational.modes import SHRINK_SHARE
from pgmengine.model.training import Training


def late_phase(spins=60, pairs=30):
    """A unit that is off until beta is near 1, and then holds nearly all of the mass with its
    spins.
    """
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Binary(), 1, bias=[-128.0])
    b.layer("s", pgm.Spin(), spins)
    b.layer("v", pgm.Binary(), pairs)
    b.layer("h", pgm.Binary(), pairs)
    b.couple("c", "s", weight=np.full((1, spins), 3.0))
    b.couple("v", "h", weight=np.eye(pairs))
    on = -128.0 + spins * math.log(2 * math.cosh(3.0))
    return b.build(), np.logaddexp(spins * math.log(2), on) + pairs * math.log(3 + math.e)


def ferromagnet(n=60, weight=4.0):
    return pgm.boltzmann_machine(n, weight=weight / n * (np.ones((n, n)) - np.eye(n)))


def two_spins(weight, bias=(0.3, 0.2)):
    return pgm.boltzmann_machine(2, weight=[[0, weight], [weight, 0]]).with_params(
        {"x.bias": np.array(bias)}
    )


def belief_net(sizes, scale, seed):
    rng, model = np.random.default_rng(seed), pgm.sbn(sizes)
    return model.with_params(
        {name: scale * rng.normal(size=np.shape(v)) for name, v in model.params.items()}
    )


# Annealing.


def test_a_phase_that_both_runs_of_annealing_miss_is_no_good_answer(monkeypatch):
    """Where there are no exact draws, as in larger models."""
    model, exact = late_phase()
    no_exact_draws(monkeypatch)
    r = pgm.AIS(confirm=0).run(model.given(), ("log_z",), rng=0)
    low, high = r.log_z_interval[0]
    assert not low <= exact <= high and not r.stats["reverse_exact"].any()
    assert r.status is pgm.Status.CONTRADICTED and "mean field proves" in r.warnings[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(5))
def test_a_second_reference_finds_the_phase_that_uniform_units_miss(seed, monkeypatch):
    model, exact = late_phase()
    no_exact_draws(monkeypatch)
    r = pgm.AIS().run(model.given(), ("log_z",), rng=seed)
    low, high = r.log_z_interval[0]
    assert low <= exact <= high and abs(r.log_z[0] - exact) < 1
    assert r.stats["references"][0] >= 2 and not r.stats["reverse_exact"].any()


def test_rates_and_chains_of_training_need_not_be_true(monkeypatch):
    """They are one more reference: the answer is as right with rates of anything."""
    model, exact = late_phase()
    no_exact_draws(monkeypatch)
    rng = np.random.default_rng(0)
    rates = {name: rng.random(x.bias_shape) for name, x in model.structure.layers.items()}
    r = pgm.AIS().run(model.with_training(Training(rates)).given(), ("log_z",), rng=0)
    low, high = r.log_z_interval[0]
    assert low <= exact <= high and abs(r.log_z[0] - exact) < 1


def some_search(target):
    by = annealing.Resources(np.random.default_rng(0), 1.0, None)
    return references._Search(pgm.AIS(), target, by, [])


def test_base_rates_of_training_are_a_reference():
    """They come after the means of chains, in the layers that have them, nearer to the middle."""
    bias = np.random.default_rng(0).normal(size=40) * 4
    model = pgm.rbm(40, 30, rng=0).with_params({"v.bias": bias})
    rates = Training({"v": 1 / (1 + np.exp(-bias))})
    assert len(list(some_search(model.given())._references(None))) == 1
    _, reference = some_search(model.with_training(rates).given())._references(None)
    assert list(reference) == ["v"]
    middle = rates.base_rates["v"] + SHRINK_SHARE * (0.5 - rates.base_rates["v"])
    np.testing.assert_allclose(1 / (1 + np.exp(-reference["v"])), middle)


def test_chains_of_training_are_a_reference(apart=8.0):
    """Chains that stay in one of two mirror images keep their share of both; dispersed ones of any
    start have another one.
    """
    n = 20
    model = pgm.rbm(n, n, visible=pgm.Spin(), hidden=pgm.Spin()).with_params(
        {"v-h.weight": np.full((n, n), apart / n)}
    )
    for share in (0.0, 0.2, 1.0):
        signs = np.where(np.arange(50) < 50 * share, 1.0, -1.0)
        chains = {name: np.outer(signs, np.ones(n)) for name in ("v", "h")}
        search = some_search(model.with_training(Training({}, chains)).given())
        reference = next(search._references(None))
        mean = np.tanh(np.concatenate(list(reference.values())))
        np.testing.assert_allclose(mean, (1 - SHRINK_SHARE) * (2 * share - 1), atol=0.02)


@pytest.mark.parametrize("betas", [pgm.Adaptive(40), pgm.Linear(40)], ids=repr)
@pytest.mark.parametrize("confirm", [1, 2, 5])
def test_plans_end_with_all_runs_that_a_row_may_make(betas, confirm, monkeypatch):
    """Rows that no run confirms make as many sweeps as the longest plan counts."""
    rungs, swept = [], []

    def ladder(*given):
        found = real(*given)
        rungs.append(len(found))
        return found

    real = annealing.ladder
    monkeypatch.setattr(annealing, "ladder", ladder)
    monkeypatch.setattr(references._Search, "finished", property(lambda self: False))
    chains = references.swept_chains
    monkeypatch.setattr(references, "swept_chains", lambda *a: swept.append(a[2]) or chains(*a))
    model = pgm.rbm(40, 30, rng=0)
    rates = {name: np.full(x.bias_shape, 0.4) for name, x in model.structure.layers.items()}
    trained = model.with_training(Training(rates))
    for target, further in ((model.given(), [1, 1]), (trained.given(), [1, 1, 1])):
        rungs.clear(), swept.clear()
        lengths = (further + [4] * isinstance(betas, pgm.Adaptive))[:confirm]
        method = pgm.AIS(chains=20, betas=betas, confirm=confirm)
        plan = method.plan(target, ("log_z",))
        r = method.run(target, ("log_z",), rng=0)
        assert references.run_lengths(method, target, True) == lengths
        assert rungs == [40] + [40 * n for n in lengths] and swept == [50]
        assert r.stats["references"][0] == 1 + len(lengths)
        assert (plan.most_seconds > plan.seconds) == (confirm > 1)
        more = 2 * sum(lengths[1:]) * engine(target, pgm.Gibbs()).anneal(20, 40)
        assert plan.most_seconds >= plan.seconds + more
        assert method.faster(target, ("log_z",), 0.9 * plan.seconds) is None


def test_a_further_run_comes_down_from_the_states_of_the_chains(n=20, apart=8.0):
    """Of two mirror images, a run that reaches one is low by log 2, and its reverse run is not."""
    model = pgm.rbm(n, n, visible=pgm.Spin(), hidden=pgm.Spin()).with_params(
        {"v-h.weight": np.full((n, n), apart / n)}
    )
    down_there = {name: np.full(n, -2.0) for name in ("v", "h")}
    settings = pgm.AIS(chains=200, betas=np.linspace(0, 1, 300), reference=down_there)
    target, by = model.given(), annealing.Resources(np.random.default_rng(0), 1.0, None)
    first = annealing.Annealing(settings, target, drawn=False).runs(by)
    search = references._Search(settings, target, by, [references._Tried(first, down_there)])
    up_there = {name: np.ones((200, n)) for name in ("v", "h")}
    search.__dict__["chains"] = up_there, up_there
    search._run(settings, {name: -2.0 * np.ones(n) for name in ("v", "h")})
    up, down = search.tried[-1].runs
    # Draws of half the states from each source, and the errors of the runs, have a standard
    # deviation of less than 0.08 together: the limit is five of these.
    limit = 0.4
    assert abs(up.log_z[0] - first[0].log_z[0]) < limit
    assert abs(first[1].log_z[0] - up.log_z[0]) < limit
    assert abs(down.log_z[0] - up.log_z[0] - np.log(2)) < limit


def test_chains_of_training_start_at_the_evidence():
    """Where units are observed, the states of a training without evidence say little."""
    model = pgm.rbm(12, 8, rng=0)
    chains = {"v": np.ones((5, 12)), "h": np.ones((5, 8))}
    evidence = {"v": [0.0] * 6 + [np.nan] * 6}
    target = model.with_training(Training({}, chains)).given(evidence)
    last, mean = some_search(target).chains
    assert not last["v"][:, :6].any() and 0 < mean["v"][0, 6:].mean() < 1


def test_rows_that_are_summed_out_are_not_annealed(monkeypatch):
    """All visible units of an RBM are observed, and each sum over a hidden unit is closed."""

    def never(*args):
        raise AssertionError("nothing is left to anneal")

    model = pgm.rbm(30, 40, rng=0)
    v = np.random.default_rng(0).integers(0, 2, (5, 30)).astype(float)
    monkeypatch.setattr(annealing, "_anneal", never)
    r = pgm.AIS().run(model.given({"v": v}), ("log_z",), rng=0)
    p = model.params
    exact = v @ p["v.bias"] + np.logaddexp(0, v @ p["v-h.weight"] + p["h.bias"]).sum(axis=1)
    np.testing.assert_allclose(r.log_z, exact, rtol=1e-12)
    assert r.status is pgm.Status.OK and np.all(r.log_z_error < 1e-4)


def test_a_run_is_confirmed_by_a_reverse_run_from_states_of_other_chains():
    def tried(log_z, down, error=0.1, reference=None):
        def run(value):
            one = np.ones(1)
            weights = np.full((1, 100), value)
            return AnnealedRun(value * one, error * one, 50 * one, weights, np.nan * one, one < 0)

        return references._Tried((run(log_z), run(down)), {} if reference is None else reference)

    def agreed(*runs, trained=False):
        return references._agreement(runs, trained)[0]

    # The reverse run of the first run starts where its forward run has ended.
    uniform, same = tried(5.0, 5.0), {"v": 1.0}
    for trained in (False, True):
        assert not agreed(uniform, trained=trained)
        assert agreed(uniform, tried(5.1, 5.1), trained=trained)
        assert not agreed(uniform, tried(0.0, 0.0), trained=trained)
        # The run down from the states of other chains finds more.
        assert not agreed(uniform, tried(5.1, 9.0), trained=trained)
        assert not agreed(uniform, tried(5.1, 5.7, error=0.25), trained=trained)
        assert not agreed(uniform, tried(15.0, 19.0), trained=trained)
        # A coarse run agrees with anything.
        assert not agreed(uniform, tried(5.0, 5.0, error=0.4), trained=trained)
        # Chains of the training are a witness, and other chains are not.
        assert agreed(uniform, tried(15.0, 15.0), trained=trained) == trained
        # Nor is another run that is coarse.
        coarse = tried(14.0, 14.0, error=0.4)
        assert agreed(coarse, tried(15.0, 15.0, reference=same), trained=trained) == trained
        # Nor is one that does not come down from the states of other chains.
        up_alone = tried(15.1, 17.0)
        assert agreed(tried(0.0, 0.0), tried(15.0, 15.0), up_alone, trained=trained) == trained
        # A longer run from the same reference is no second way.
        twice = [tried(15.0, 15.0, reference=same), tried(15.1, 15.1, reference=same)]
        assert agreed(uniform, *twice, trained=trained) == trained
        assert agreed(uniform, *twice, tried(15.0, 15.0), trained=trained)


def test_a_phase_that_annealing_from_exact_draws_leaves_is_within_the_interval():
    model, exact = late_phase()
    r = pgm.infer(model, want=("log_z",), method=pgm.AIS(), rng=0)
    low, high = r.log_z_interval[0]
    assert low <= exact <= high and r.stats["reverse_exact"].all()
    assert r.status is pgm.Status.FEW_WEIGHTS


def test_the_status_says_whether_something_independent_confirms_annealing():
    """Exact draws or another reference do; a reverse run from the last states does not."""
    small, large = pgm.rbm(8, 6, rng=0).given(), pgm.rbm(40, 30, rng=0).given()
    r = pgm.AIS().run(small, ("log_z",), rng=0)
    assert r.status is pgm.Status.OK and r.stats["reverse_exact"].all() and not r.warnings
    r = pgm.AIS().run(large, ("log_z",), rng=0)
    assert r.status is pgm.Status.OK and r.stats["agreed"].all() and r.stats["references"][0] == 2
    for method, target in ((pgm.AIS(confirm=0), large), (pgm.AIS(reverse=False, confirm=0), small)):
        r = method.run(target, ("log_z",), rng=0)
        assert r.status is pgm.Status.ONE_SIDED and not r.status.good
        assert "exact draws" in r.warnings[0] and r.stats["references"][0] == 1


def test_small_junction_trees_give_exact_draws(units=60):
    """A chain, whose cover of 2^30 states is not enumerated."""
    weight = np.zeros((units, units))
    weight[np.arange(units - 1), np.arange(1, units)] = 0.4
    model = pgm.boltzmann_machine(units, weight=weight + weight.T)
    evidence = {"x": [[np.nan] * units, [1] + [np.nan] * (units - 1)]}
    plan = pgm.AIS().plan(model.given(evidence), ("log_z",))
    assert "from exact draws" in plan.why
    r = pgm.infer(model, evidence, want=("log_z",), method=pgm.AIS(), rng=0)
    exact = pgm.infer(model, evidence, want=("log_z",), method=pgm.Elimination()).log_z
    assert r.status is pgm.Status.OK and r.stats["reverse_exact"].all()
    # Both ends are six standard errors from the exact value at most: 4 * 2e-9.
    for at, error in (
        (r.log_z, r.log_z_error),
        (r.stats["reverse_log_z"], r.stats["reverse_error"]),
    ):
        assert np.all(np.abs(at - exact) <= 6 * error)


def test_intervals_of_skewed_weights_hold(runs=4000, chains=100, sd=1.5):
    """Log weights are normal; of three standard errors at least 99 % hold where nothing is flagged.

    The standard error of the share is below 0.25 %, so less than 97.5 % is beyond six of them.
    Three standard errors of the mean alone hold in 96 % or less.
    """
    w = sd * np.random.default_rng(0).normal(size=(runs, chains)) - sd**2 / 2
    p = np.exp(w)
    mean, error = p.mean(axis=1), p.std(axis=1, ddof=1) / np.sqrt(chains)
    ess = p.sum(axis=1) ** 2 / np.square(p).sum(axis=1)
    low = np.log(mean) - 3 * error / mean
    high = np.fmax(np.log(mean) + 3 * error / mean, normal_end(w))
    kept = np.array([not few(one[None], chains) for one in ess])
    assert 0.3 < kept.mean() < 0.8
    assert (
        np.mean((low <= 0) & (high >= 0)) > 0.985
        and np.mean(((low <= 0) & (high >= 0))[kept]) > 0.975
    )
    plain = np.log(mean) + 3 * error / mean
    assert np.mean((low <= 0) & (plain >= 0)) < 0.975


def test_pareto_shapes_are_those_of_pareto_weights():
    """A shape of k from the 5,000 largest of a million weights has an error near (1 + k) / 70."""
    rng = np.random.default_rng(0)
    for k in (0.3, 0.9):
        log_w = -k * np.log(rng.random((1, 200_000)))
        assert abs(pareto_shape(log_w, np.zeros(1))[0] - k) < 0.2
    assert np.isnan(pareto_shape(np.zeros((1, 100)), np.full(1, 100.0))).all()
    assert np.isnan(pareto_shape(np.full((1, 100), -np.inf), np.zeros(1))).all()


# Chains.


def test_ess_is_that_of_the_draws():
    """80,000 independent draws of each of ten units.

    The estimate of one unit has a relative standard deviation of 10 % over 400 seeds, with a long
    tail. The median of ten independent ones has one of 4 %, so that its limits, 25 % away, are six
    deviations away, and an estimate that is wrong by a factor of two is seen.
    """
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 10)
    r = pgm.infer(b.build(), method=pgm.MCMC(draws=20_000, warmup=0), rng=0)
    assert 60_000 < np.median(r.stats["ess"]["x"]) < 107_000


def test_a_chain_of_another_spread_is_seen():
    """R-hat of normal draws of which one chain is ten times as wide, or two deviations higher.

    Over 400 seeds R-hat is 1.36 with sd 0.019, 1.32 with sd 0.014 and 1.0006 with sd 0.001: all
    limits are ten deviations away or more.
    """
    x = np.random.default_rng(0).normal(size=(4, 500, 1, 3))
    x[0, :, :, 0] *= 10
    x[0, :, :, 1] += 2
    rhat = series_statistics(x)["rhat"][0]
    assert rhat[0] > 1.1 and rhat[1] > 1.1 and rhat[2] < 1.05


def test_a_unit_that_never_changed_has_an_error():
    """The 95 % interval reaches the mean with a probability of 3 / n for the other state, as after
    zero counts in n draws.
    """
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 3, bias=[20.0, 0.0, 0.3])
    b.layer("y", pgm.Spin(), 2)
    model = b.build()
    r = pgm.infer(model, {"y": [1, math.nan]}, method=pgm.MCMC(), rng=0)
    error = np.ravel(r.stats["mcse"]["x"])[0]
    assert 3 * 2 / 4000 <= 1.96 * error * (1 + 1e-9) and 1.96 * error < 3 * 2 / 1000
    assert np.ravel(r.stats["mcse"]["y"])[0] == 0.0
    layer = model.structure.layers["x"]
    assert least_error(layer, np.full((1, 3), 100.0)) == pytest.approx(
        np.full((1, 3), 2 * 0.03 / 1.96)
    )


def test_chains_start_in_opposite_valleys():
    """Two of four by reflection, two in the modes that mean field finds."""
    target = ferromagnet().given().take(np.zeros(40, dtype=int))
    x = dispersed(target, 4, pgm.Gibbs(), np.random.default_rng(0))["x"].reshape(10, 4, 60)
    valley = x.mean(axis=2)
    assert np.array_equal(x[:, 1], -x[:, 0]) and np.all(valley[:, 2] * valley[:, 3] < 0)
    assert np.abs(valley).min() > 0.5


@pytest.mark.parametrize("method", [pgm.MCMC(), pgm.TemperedTransitions(draws=200)])
def test_a_phase_that_random_starts_miss_is_no_good_answer(method):
    """Unit c is on with a probability of 0.99997, and stays off in chains from random starts.

    Some chains start in the mode that mean field finds, so that the chains stay apart.
    """
    model, _ = late_phase()
    for seed in range(5):
        r = method.run(model.given(), ("marginals",), rng=seed)
        assert not r.status.good or np.ravel(r.mean["c"])[0] > 0.9, seed


def test_starts_of_categories_move_on_and_those_that_are_impossible_are_not_taken():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 1)
    b.cause("h", "v", weight=[[2.0]])
    x = dispersed(
        b.build().given({"v": [1]}).take(np.zeros(8, dtype=int)),
        4,
        pgm.Gibbs(),
        np.random.default_rng(0),
    )
    assert np.all(x["h"] == 1) and np.all(x["v"] == 1)
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(3), 4)
    x = dispersed(
        b.build().given().take(np.zeros(8, dtype=int)), 4, pgm.Gibbs(), np.random.default_rng(0)
    )
    label = x["c"].reshape(2, 4, 4, 3).argmax(axis=3)
    assert np.array_equal(label[:, 1], (label[:, 0] + 1) % 3) and np.array_equal(
        label[:, 3], label[:, 2]
    )


@pytest.mark.parametrize("method", [pgm.MCMC(), pytest.param(pgm.Auto(), marks=pytest.mark.long)])
def test_two_wells_are_never_one_with_a_good_status(method, seeds=8):
    """Exact means are 0, and each mode is at 0.999. Four chains with random starts are all in one
    mode in one of eight runs.
    """
    for seed in range(seeds):
        r = pgm.infer(ferromagnet(), method=method, rng=seed)
        assert not r.status.good or abs(r.mean["x"].mean()) < 0.5


def answering(value, status, seconds=1.0, chains=False):
    """A method that gives a log Z with a status, and counts how often it is asked."""

    class Answering:
        local, asked = chains, 0

        def plan(self, target, want):
            return pgm.Plan("Answering", "estimate", seconds=seconds)

        def run(self, target, want, rng=None, state=None):
            Answering.asked += 1
            answers = {"log_z": np.array([value]), "log_z_error": np.array([0.1])}
            answers["log_z_interval"] = np.array([[value - 1, value + 1]])
            return pgm.Result(answers, "estimate", self, self.plan(target, want), status)

    return Answering()


def test_a_doubtful_answer_stays_unless_a_later_one_is_better():
    few, trips, wrong = pgm.Status.FEW_WEIGHTS, pgm.Status.FEW_TRIPS, pgm.Status.CONTRADICTED
    good = pgm.Status.OK

    def asked(*candidates):
        auto = pgm.Auto(candidates=candidates)
        return auto.run(pgm.rbm(2, 2, rng=0).given(), ("log_z",), rng=0).log_z[0]

    # A good answer is taken, and another doubtful one is not.
    assert asked(answering(1.0, few), answering(2.0, good)) == 2
    assert asked(answering(1.0, few), answering(2.0, trips)) == 1
    # What would take longer than confirm_seconds is not asked after an estimate.
    slow = answering(2.0, good, seconds=5.0)
    assert asked(answering(1.0, few), slow) == 1 and slow.asked == 0
    # Chains that move locally, and answers that are known to be wrong, give way to any later one.
    for first in (answering(1.0, few, chains=True), answering(1.0, wrong)):
        assert asked(first, answering(2.0, trips, seconds=5.0)) == 2
    assert asked(answering(1.0, few), answering(2.0, wrong)) == 1


def test_of_two_doubtful_answers_the_better_one_stays():
    """It has the higher lower end of log Z; chains that have not travelled come last."""
    few, one_sided = pgm.Status.FEW_WEIGHTS, pgm.Status.ONE_SIDED
    trips, wrong = pgm.Status.FEW_TRIPS, pgm.Status.CONTRADICTED
    model = pgm.rbm(2, 2, rng=0).given()
    for first, second in itertools.permutations((few, one_sided)):
        low, high = answering(1.0, first), answering(2.0, second)
        for candidates in itertools.permutations((low, high, answering(9.0, wrong))):
            assert pgm.Auto(candidates=candidates).run(model, ("log_z",), rng=0).log_z[0] == 2
        for candidates in itertools.permutations((low, answering(3.0, trips))):
            assert pgm.Auto(candidates=candidates).run(model, ("log_z",), rng=0).log_z[0] == 1


def test_of_two_doubtful_answers_about_means_the_one_with_the_smaller_error_stays():
    """Few forward draws of rare evidence, and more of them."""
    b = pgm.GraphBuilder()
    for name in "ab":
        b.variable(name, states=2)
    b.conditional("a", (), [1 - 3e-4, 3e-4])
    b.conditional("b", ("a",), [[1 - 1e-6, 1e-6], [0.5, 0.5]])
    target, low = b.build().given({"b": 1}), pgm.Forward(draws=1000, most=1000)
    both = low, pgm.Forward(draws=40_000, most=40_000)
    for candidates in (both, both[::-1]):
        r = pgm.Auto(candidates=candidates).run(target, ("marginals",), rng=0)
        assert r.status is pgm.Status.FEW_WEIGHTS and r.method == both[1]


def test_a_ladder_that_has_run_answers_whether_chains_agree_or_not():
    class Stuck:
        local = True

        def plan(self, target, want):
            return pgm.Plan("Stuck", "estimate")

        def run(self, target, want, rng=None, state=None):
            r = pgm.MCMC(rhat_limit=100.0).run(target, want, rng=rng)
            mean = {name: np.ones_like(v) for name, v in r.answers["mean"].items()}
            return pgm.Result({**r.answers, "mean": mean}, "estimate", self, r.plan, stats=r.stats)

    model = two_spins(1.0)
    both = pgm.Auto(candidates=(Stuck(), pgm.ParallelTempering()))
    r = pgm.infer(model, method=both, rng=0)
    assert isinstance(r.method, pgm.ParallelTempering) and "disagrees" in r.refused[0].refusal
    alone = pgm.infer(
        model, method=pgm.Auto(candidates=both.candidates, confirm_seconds=0.0), rng=0
    )
    assert isinstance(alone.method, Stuck)
    fine = pgm.infer(
        model, method=pgm.Auto(candidates=(pgm.MCMC(), pgm.ParallelTempering())), rng=0
    )
    assert (
        isinstance(fine.method, pgm.ParallelTempering) and "ended well" in fine.refused[0].refusal
    )


# Tempering and Wang-Landau.


def test_round_trips_are_counted():
    level = np.array([3, 2, 1, 0, 1, 2, 3, 3, 2, 3, 0, 3, 1, 0])
    assert round_trips(np.stack((level, 0 * level), axis=1)[:, None, :], 4) == [2]
    warning = few_tours(np.array([100.0, 3.0]), np.array([5, 6]))[0]
    assert warning.startswith("the draws of row 6 are worth 3 independent tours")


def test_chains_that_do_not_travel_are_not_good():
    """Strong weights and a ladder of two rungs, which hardly ever exchange."""
    rng = np.random.default_rng(0)
    model = pgm.rbm(20, 18).with_params({"v-h.weight": 8 * rng.normal(size=(20, 18))})
    tempered = pgm.infer(model, method=pgm.ParallelTempering(rungs=2, warmup=50, draws=200), rng=0)
    wandering = pgm.infer(
        model,
        want=("marginals", "log_z"),
        rng=0,
        method=pgm.SimulatedTempering(betas=2, warmup=100, draws=300),
    )
    for r in (tempered, wandering):
        assert not r.status.good and (r.stats["tours"] < 20).all()
        assert any("independent tours" in line for line in r.warnings)


@pytest.mark.parametrize("weight", [3.0, 12.0])
def test_wang_landau_judges_chains_not_what_was_resampled(weight, seeds=4):
    """Bins of one spin, between which chains hardly move. The mean was once off by 0.5, with a
    standard error of 0.008.
    """
    model = two_spins(weight)
    exact = pgm.infer(model, method=pgm.Exact()).mean["x"]
    method = pgm.WangLandau(
        partition=lambda x: (x["x"][:, 0] > 0).astype(int), bins=2, warmup=300, draws=300
    )
    for seed in range(seeds):
        r = pgm.infer(model, method=method, rng=seed)
        z = np.abs(r.mean["x"] - exact) / np.ravel(r.stats["mcse"]["x"])
        assert not r.status.good or z.max() < 6


# Forward.


@pytest.mark.long
def test_few_draws_of_strong_belief_nets_do_not_carry_the_weight_unseen():
    """Errors of up to 140 nats once had a good status."""
    good = 0
    for seed in range(12):
        model = belief_net([6, 7, 6], 30.0, seed)
        evidence = {"v": np.random.default_rng(seed).integers(0, 2, 6)}
        exact = pgm.infer(model, evidence, want=("log_z",), method=pgm.Exact()).log_z[0]
        r = pgm.infer(model, evidence, want=("log_z",), method=pgm.Forward(), rng=seed)
        low, high = r.log_z_interval[0]
        assert not r.status.good or low - 0.1 <= exact <= high + 0.1
        sampled = pgm.Auto(candidates=pgm.Auto().candidates[1:])
        auto = pgm.infer(model, evidence, want=("log_z",), method=sampled, rng=seed)
        good += isinstance(auto.method, pgm.AIS)
    assert good >= 6


def test_forward_draws_until_the_error_asked_for():
    model, evidence = belief_net([6, 5, 4], 1.0, 3), {"v": [0, 1, 0, 1, 1, 0]}
    rough, fine = (
        pgm.infer(
            model, evidence, want=("log_z", "samples"), method=pgm.Forward(100, error=e), rng=0
        )
        for e in (1.0, 0.02)
    )
    assert rough.stats["drawn"][0] == 100 < fine.stats["drawn"][0] and fine.log_z_error[0] <= 0.03
    assert fine.samples["h1"].shape[0] == 100 and fine.stats["log_weights"].shape == (100, 1)


# The parts of a question.


def test_each_term_of_log_prob_has_the_best_method():
    model = pgm.rbm(60, 40, rng=0)
    x = np.random.default_rng(0).integers(0, 2, (5, 60))
    r = pgm.infer(model, {"v": x}, want=("log_prob", "marginals"), rng=0)
    assert {type(m).__name__ for m in r.method.methods} == {"Exact", "AIS"} and r.kind == "estimate"
    whole = pgm.infer(model, want=("log_z",), method=pgm.AIS(), rng=1)
    given = pgm.infer(model, {"v": x}, want=("log_z",), method=pgm.Exact()).log_z
    assert np.all(
        np.abs(r.log_prob - (given - whole.log_z))
        < 6 * np.hypot(r.stats["log_prob_error"], whole.log_z_error)
    )
    assert np.ptp(r.log_prob - given) < 1e-9
    told = pgm.explain(model, {"v": x}, want=("log_prob", "marginals"))
    assert "log_z without evidence by AIS, estimate" in told and "marginals by Exact, exact" in told
    assert [part.title for part in told.parts] == ["log_z, marginals", "log_z without evidence"]


def test_a_question_stays_whole_where_one_method_is_best():
    assert isinstance(
        pgm.infer(pgm.rbm(6, 4, rng=0), want=("marginals", "log_prob", "mode")).method, pgm.Exact
    )
    large = pgm.explain(pgm.rbm(40, 30, rng=0), want=("marginals", "pairs"))
    assert large.chosen is not None and large.chosen.method == "MCMC"
    split = pgm.infer(pgm.rbm(40, 30, rng=0), want=("marginals", "log_z"), rng=0)
    assert [type(m) for m in split.method.methods] == [pgm.ParallelTempering, pgm.AIS]
    assert split.mean["v"].shape == (40,)


def test_a_refused_part_refuses_the_question():
    with pytest.raises(pgm.PgmError, match="joint"):
        pgm.infer(pgm.rbm(40, 40, rng=0), want=("marginals", pgm.Joint(("v", 0), ("h", 0))))


def test_means_without_being_wanted_are_not_there():
    """Forward estimates log Z when it is needed, and chains that answer a question about pairs are
    confirmed by their means.
    """
    net = pgm.infer(pgm.sbn([4, 3], rng=0), {"v": [1, 0, 1, math.nan]}, method=pgm.Forward(), rng=0)
    pairs = pgm.infer(pgm.rbm(30, 28, rng=0), want=("pairs",), rng=0)
    assert not hasattr(net, "log_z") and not hasattr(pairs, "mean") and hasattr(pairs, "pairs")


def test_fit_says_when_its_data_phase_is_exact():
    x = pgm.datasets.bars_and_stripes(3).x_train
    exact = pgm.fit(pgm.rbm(9, 4, rng=0), {"v": x}, updates=2, progress=False)
    bound = pgm.fit(pgm.dbm([9, 12, 12], rng=0), {"v": x}, updates=2, progress=False)
    assert (
        exact.factorised and "data phase: exact" in repr(exact) and "MeanField" not in repr(exact)
    )
    assert not bound.factorised and "data phase: by MeanField" in repr(bound)


def test_each_doubt_about_the_parts_of_a_question_is_said():
    """log Z by annealing and draws by chains: the status is that of one part alone."""
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (4, 4))
    b.couple(s[1:], s[:-1], 3.0)
    b.couple(s[:, 1:], s[:, :-1], 3.0)
    b.bias(s[0, 0], 0.01)
    few = pgm.Auto(candidates=(pgm.AIS(chains=5, betas=pgm.Linear(3), confirm=0), pgm.MCMC()))
    r = pgm.infer(b.build(), want=("log_z", "samples"), method=few, rng=0)
    alone = [pgm.infer(r.target.model, want=(w,), method=few, rng=0) for w in ("log_z", "samples")]
    first, second = (one.status for one in alone)
    assert second is pgm.Status.NOT_MIXED and not first.good and first is not second
    assert r.status is first and f"samples: NOT_MIXED, {second.value}" in r.warnings[:2]
    assert "samples: NOT_MIXED" in repr(r)


@one_test_over("name", ["energy", "entropy", "mutual_information", "map", "mpe", "posterior"])
def test_quantities_that_are_found_elsewhere_say_where(name):
    with pytest.raises(pgm.PgmError, match=f"want: '{name}' is unknown: "):
        pgm.infer(pgm.rbm(2, 1), want=(name,))


def test_the_mean_energy_is_the_sum_that_the_error_names():
    model = pgm.rbm(3, 2, rng=0)
    gradient = pgm.infer(model, want=("gradient",)).gradient
    found = -sum(np.sum(model.params[name] * gradient[name]) for name in gradient)
    every = np.array(list(itertools.product((0.0, 1.0), repeat=5)))
    log_density = model.log_density({"v": every[:, :3], "h": every[:, 3:]})
    p = np.exp(log_density) / np.exp(log_density).sum()
    np.testing.assert_allclose(found, -p @ log_density, rtol=1e-12)
