"""Limits of time: what a question may take, what refusals offer, and bounds instead of estimates.

No test measures time: limits are compared with plans, whose estimates are numbers of the question.
"""

import logging
import math
import re
import sys
import time

import numpy as np
import pytest
from limits import bars_after, small_parts
from loops import one_test_over
from terminals import Terminal

import pgmengine as pgm
from pgmengine.base.work import progress
from pgmengine.infer.question.auto import within

RNG = np.random.default_rng(0)


def images(rows, size=784):
    return (np.random.default_rng(1).random((rows, size)) < 0.2).astype(float)


def mixed():
    """A deep machine of spins, labels and values."""
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Spin(), 300)
    b.layer("h", pgm.Categorical(3), 40)
    b.layer("g", pgm.Binary(), 40)
    b.couple("v", "h", weight=0.1 * RNG.normal(size=(300, 120)))
    b.couple("h", "g", weight=0.1 * RNG.normal(size=(120, 40)))
    return b.build()


# Name -> a model that is made when it is needed, with rows of v.
LARGE = {
    "DBM 784-100-100": lambda: pgm.dbm([784, 100, 100], rng=0),
    "SBN 784-50": lambda: pgm.sbn([784, 50], rng=0),
    "DBN 784-100-50": lambda: pgm.dbn([784, 100, 50], rng=0),
    "SBN 784-200": lambda: pgm.sbn([784, 200], rng=0),
    "DBN 784-200-100": lambda: pgm.dbn([784, 200, 100], rng=0),
    "DBM 784-60-60-60": lambda: pgm.dbm([784, 60, 60, 60], rng=0),
    "spins and labels": mixed,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("rows", [100, 10_000])
def test_log_prob_of_many_rows_of_deep_models_has_an_answer(name, rows):
    """The old limit, 2e11 unit updates, refused most of these; plans alone are asked for here."""
    model = LARGE[name]()
    x = images(rows, model.structure.layers["v"].size)
    told = pgm.explain(model, {"v": 2 * x - 1 if name.startswith("spins") else x}, "log_prob")
    chosen = [part.chosen for part in told.parts]
    assert all(chosen), told
    assert all(p.seconds <= pgm.Auto().max_seconds == 600 for p in chosen)
    bound = any(p.guarantee == "lower bound" for p in chosen)
    assert ("estimate of a lower bound" in told) == (bound and len(chosen) > 1)


# Questions that take long: model, evidence, wanted quantities.
SLOW = {
    "chains": lambda: (pgm.boltzmann_machine(40, rng=0), None, "marginals"),
    "annealing": lambda: (pgm.dbm([30, 30, 30], rng=0), None, "log_z"),
    "annealing of rows": lambda: (pgm.dbm([30, 30, 30], rng=0), {"v": images(40, 30)}, "log_prob"),
    "bounds": lambda: (pgm.sbn([60, 40], rng=0), {"v": images(2000, 60)}, "bound"),
    "walks": lambda: (pgm.rbm(30, 20, rng=0), None, "mode"),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_refusal_names_what_would_work_and_its_advice_works(name):
    model, evidence, want = SLOW[name]()
    with pytest.raises(pgm.PgmError) as caught:
        pgm.infer(model, evidence, want, seconds=1e-5)
    found = re.search(
        r"no method can answer: (.*: )?(\w+\(.*\)) would take about .* on one core and .* MiB: "
        r"ask with seconds=(\d+(?:\.\d+)?(?:e[+-]\d+)?)",
        str(caught.value),
    )
    told = pgm.explain(model, evidence, want, seconds=float(found[3]))
    answers = told.parts[0].chosen
    assert answers is not None and found[2].startswith(answers.method + "(")
    # The time is that of all terms of log_prob, and a part may have another method.
    method = next(m for m in pgm.Auto().candidates if repr(m) == found[2])
    whole = method.plan(model.given(evidence), want).seconds
    assert answers.seconds <= whole <= float(found[3]) <= 1.2 * whole


def test_the_advice_includes_rows_that_fit():
    model, x = pgm.sbn([60, 40], rng=0), images(2000, 60)
    limit = 0.1 * pgm.MeanField(updates=5).plan(model.given({"v": x}), "bound").seconds
    with pytest.raises(pgm.PgmError, match=r"or about \d+ rows at a time") as caught:
        pgm.infer(model, {"v": x}, "bound", seconds=limit)
    rows = int(re.search(r"about (\d+) rows at", str(caught.value))[1])
    assert pgm.explain(model, {"v": x[:rows]}, "bound", seconds=2 * limit).chosen


def test_limits_hold_for_the_longest_time_of_a_plan():
    """Annealing makes fewer further runs where all of them would take too long."""
    ask = lambda seconds: pgm.explain(pgm.rbm(40, 30, rng=0), None, "log_z", seconds=seconds)  # noqa: E731
    free = ask(math.inf).parts[0].chosen
    assert free.method == "AIS" and free.most_seconds > 2 * free.seconds
    assert re.search(r"2 to 4 references; .* [\d.]+( s)? to [\d.]+ s, ", str(free))
    seen = set()
    for limit in np.geomspace(1.001 * free.seconds, 1.1 * free.most_seconds, 9):
        plan = ask(float(limit)).parts[0].chosen
        assert plan.method == "AIS" and plan.most_seconds <= limit and plan.seconds <= free.seconds
        seen.add(plan.why)
    assert len(seen) == 3 and "2 references" in min(seen)
    assert "AIS" != ask(0.99 * free.seconds).parts[0].chosen.method


def test_the_time_of_a_plan_is_a_range_where_it_depends_on_the_run():
    plan = lambda *seconds: pgm.Plan("M", seconds=seconds[0], most_seconds=seconds[-1]).sizes[1]  # noqa: E731
    assert plan(24.0) == plan(24.0, 0.0) == plan(24.0, 24.1) == "24 s"
    assert plan(24.0, 85.0) == "24 to 85 s" and plan(24.0, 600.0) == "24 s to 10 min"
    assert plan(0.0) == ""


def test_seconds_limits_any_method_and_every_door():
    model = pgm.rbm(6, 4, rng=0)
    for ask in (pgm.infer, pgm.prepare):
        with pytest.raises(pgm.PgmError, match=r"MCMC\(.*\) would take about .* ask with seconds="):
            ask(model, method=pgm.MCMC(), seconds=1e-6)
    assert "answer: none" in pgm.explain(model, method=pgm.MCMC(), seconds=1e-6)
    free = pgm.infer(model, method=pgm.MCMC(draws=50), rng=3)
    limited = pgm.infer(model, method=pgm.MCMC(draws=50), rng=3, seconds=100)
    assert limited.method == free.method and limited.status is free.status
    np.testing.assert_array_equal(limited.mean["v"], free.mean["v"])
    assert pgm.prepare(model, seconds=math.inf)().kind == "exact"


@one_test_over("wrong", [0, -1, math.nan, "10", True])
def test_seconds_is_a_number_above_0(wrong):
    with pytest.raises(pgm.PgmError, match="seconds must be a number above 0"):
        pgm.infer(pgm.rbm(2, 1), seconds=wrong)


def test_the_clock_has_no_part_in_the_choice(monkeypatch):
    """A machine that takes an hour between two looks at the clock chooses the same."""
    ask = lambda: pgm.explain(pgm.dbm([30, 30, 30], rng=0), {"v": images(9, 30)}, "log_prob")  # noqa: E731
    before, ticks = ask(), iter(range(0, 10**9, 3600))
    for clock in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, clock, lambda: float(next(ticks)))
    assert ask() == before


def of_deviation(model, deviation, rng=5):
    """Return the model with normal parameters."""
    draw, params = np.random.default_rng(rng), dict(model.params)
    for name, value in params.items():
        # Couplings inside a layer are symmetric, without the diagonal.
        new = deviation * draw.normal(size=value.shape)
        one = name in ("x-x.weight",)
        params[name] = np.triu(new, 1) + np.triu(new, 1).T if one else new
    return model.with_params(params)


ESTIMATES = pgm.Auto(candidates=(pgm.AIS(chains=200, betas=200), pgm.MeanField()))


def without_estimates_of(target, want=("log_z",)):
    """Return an Auto whose limit refuses annealing of rows, and allows it for log Z alone."""
    one, all_rows = (
        ESTIMATES.candidates[0].plan(t, want).seconds for t in (target.nothing_observed, target)
    )
    assert 1.2 * one < all_rows
    return pgm.Auto(candidates=ESTIMATES.candidates, max_seconds=1.1 * one)


@pytest.mark.parametrize("deviation", [0.3, 1.0])
@pytest.mark.parametrize("make", [pgm.dbm, pgm.dbn], ids=["dbm", "dbn"])
def test_a_bound_less_an_estimate_is_called_an_estimate_of_a_lower_bound(
    make, deviation, errors=5.0
):
    """It is the bound of mean field less log Z by annealing, and below exact log p within errors.

    A false alarm has probability 3e-7 a model by the normal tail.
    """
    model, x = of_deviation(make([8, 5, 4], rng=0), deviation), images(60, 8)
    target = model.given({"v": x})
    r = pgm.infer(model, {"v": x}, ("log_prob",), without_estimates_of(target), rng=0)
    exact = pgm.infer(model, {"v": x}, ("log_prob", "log_z"))
    assert r.kind == "estimate" and r.status is pgm.Status.ESTIMATED_BOUND and not r.status.good
    assert any("estimate of a lower bound" in line for line in r.warnings)
    assert "an estimate of a lower bound" in r.plan.why
    bound = pgm.infer(model, {"v": x}, ("bound",), pgm.MeanField()).bound
    log_z = exact.log_z[0] - exact.log_prob[0]
    error = r.stats["log_prob_error"]
    np.testing.assert_allclose(r.log_z, bound, rtol=1e-9)
    assert np.all(np.abs(r.log_prob - (bound - log_z)) < errors * error + 1e-5)
    assert np.all(r.log_prob < exact.log_prob + errors * error + 1e-5)
    assert np.isfinite(r.log_prob).all() and r.log_z_interval[0, 1] == np.inf
    below = exact.log_prob - r.log_prob
    assert below.max() < 3.0 * (1 + deviation)


def test_a_bound_less_an_exact_log_z_is_a_bound():
    """Of a DBN 6-10-3 the undirected part has a cover of 3 units; given v it has one of 10."""
    model, x = of_deviation(pgm.dbn([6, 10, 3], rng=0), 0.7), images(20, 6)
    small = pgm.Exact(max_bits=4, max_states=2**8, max_work=0)
    r = pgm.infer(model, {"v": x}, ("log_prob",), pgm.Auto(candidates=(small, pgm.MeanField())))
    exact = pgm.infer(model, {"v": x}, ("log_prob",), pgm.Exact())
    assert r.kind == "lower bound" and r.status is pgm.Status.OK
    assert np.all(r.log_prob <= exact.log_prob + 1e-9)


def test_no_bound_takes_the_place_of_log_z_without_evidence():
    """A bound of it would make log p too high."""
    model = of_deviation(pgm.dbm([8, 30, 30], rng=0), 0.5)
    auto = pgm.Auto(candidates=(pgm.MeanField(),))
    with pytest.raises(pgm.PgmError, match="a bound of log Z is no bound of log p|less log Z"):
        pgm.infer(model, {"v": images(3, 8)}, ("log_prob",), auto)


def test_annealing_answers_where_there_is_time():
    """A bound says less than an estimate, and never takes its place below the limit."""
    told = pgm.explain(pgm.dbm([784, 100, 100], rng=0), {"v": images(100)}, "log_prob")
    assert told.chosen.method == "AIS" and "lower bound" not in told


def test_mean_field_makes_fewer_rounds_where_a_fixed_point_would_take_too_long():
    model, x = pgm.sbn([60, 40], rng=0), images(300, 60)
    target = model.given({"v": x})
    whole = pgm.MeanField().plan(target, "bound").seconds
    short = pgm.MeanField(updates=5).plan(target, "bound").seconds
    assert short < whole
    r = pgm.infer(model, {"v": x}, "bound", seconds=(whole + short) / 2)
    assert 5 <= r.method.updates < 12 and r.plan.seconds <= (whole + short) / 2
    best = pgm.infer(model, {"v": x}, "bound", pgm.MeanField()).bound
    assert r.kind == "lower bound" and np.all(r.bound <= best + 1e-9)


@one_test_over("name", ["sbn", "dbm", "dbn", "spins"])
def test_plans_expect_about_as_many_rounds_as_mean_field_makes(name, factor=5.0):
    """The rounds that show that a fixed point is a maximum are in the plan, and not in stats."""
    make = {"sbn": pgm.sbn, "dbm": pgm.dbm, "dbn": pgm.dbn}
    if name == "spins":
        model, evidence = of_deviation(pgm.boltzmann_machine(20, rng=0), 0.05), None
    else:
        model, evidence = of_deviation(make[name]([40, 15, 10], rng=0), 0.2), {"v": images(50, 40)}
    method, target = pgm.MeanField(), model.given(evidence)
    made = method.run(target, "log_z").stats["rounds"]
    assert made / factor < method._expected_rounds(target) < made * factor


def test_rows_are_answered_in_parts_and_all_of_them(monkeypatch):
    """The parts of a slow question show its progress and bound its memory."""
    steps = []

    def followed(jobs, what):
        steps.append(what)
        return jobs

    monkeypatch.setattr("pgmengine.base.work.executors.track", followed)
    small_parts(monkeypatch, 1e6)
    model, x = pgm.sbn([60, 20], rng=0), images(2000, 60)
    r = pgm.infer(model, {"v": x}, "bound", pgm.MeanField(updates=5))
    assert steps == ["parts of the rows"]
    some = [0, 999, 1999]
    few = pgm.infer(model, {"v": x[some]}, "bound", pgm.MeanField(updates=5))
    np.testing.assert_allclose(r.bound[some], few.bound, rtol=1e-9)
    assert np.isfinite(r.bound).all()


def test_plans_of_slow_questions_are_logged_and_shown_on_a_terminal_alone(
    monkeypatch, caplog, capsys
):
    bars_after(monkeypatch, 1e-9)
    caplog.set_level(logging.INFO, "pgmengine.base.work.progress")
    model = pgm.rbm(4, 2, rng=0)
    plan = str(pgm.infer(model, want="log_z").plan)
    assert plan in caplog.text and capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    pgm.infer(model, want="log_z")
    assert plan in terminal.getvalue() and capsys.readouterr().out == ""
    shown = terminal.getvalue()
    pgm.infer(model, want="log_z", progress=False)
    assert terminal.getvalue() == shown


def test_quick_questions_say_nothing(caplog):
    caplog.set_level(logging.INFO, "pgmengine.base.work.progress")
    pgm.infer(pgm.rbm(4, 2, rng=0))
    assert caplog.text == ""


def test_loops_inside_of_a_loop_that_shows_progress_are_quiet(monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **settings):
            bars.append(self)  # noqa: E704

        def add_task(self, *args, **more):
            return 0  # noqa: E704

        def update(self, *args, **more):
            pass  # noqa: E704

        def start(self):
            pass  # noqa: E704

        def stop(self):
            pass  # noqa: E704

    monkeypatch.setattr("rich.progress.Progress", Bar)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.showing(True):
        for _ in progress.track(range(2), "outside"):
            assert list(progress.track(range(3), "inside")) == [0, 1, 2]
        assert len(bars) == 1 and progress.PROGRESS_ASKED.get()


def test_within_leaves_methods_alone_without_a_limit():
    method = pgm.MCMC()
    assert within(method, None) is method
    assert within(pgm.Auto(), 5) == pgm.Auto(max_seconds=5.0, retry_seconds=5.0)
