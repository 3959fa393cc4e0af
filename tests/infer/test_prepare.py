"""Prepared questions: planned once, asked many times, with the answers of infer."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import tiny
from limits import free_memory
from loops import one_test_over
from registry import METHODS

import pgmengine as pgm
from pgmengine.base.work.cache import Cache
from pgmengine.infer import answering as asking
from pgmengine.infer.exact import exact

RBM = pgm.rbm(5, 3, rng=1)
MIXED = pgm.dbm([4, 3, 2], rng=2)
ROWS = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(float)


@one_test_over("want", ["marginals", "log_z", "log_prob", "mode", "pairs", "gradient"])
def test_a_prepared_question_has_the_answers_of_infer(want):
    ask = pgm.prepare(RBM, observed=("v",), want=(want,))
    for evidence in (ROWS[0], ROWS[1], ROWS, ROWS[:3], ROWS[::-1]):
        told, asked = pgm.infer(RBM, {"v": evidence}, (want,)), ask({"v": evidence})
        assert list(told.answers) == list(asked.answers) and told.plan == asked.plan
        for name, value in told.answers.items():
            np.testing.assert_equal(asked.answers[name], value)


def test_nothing_observed_and_samples():
    ask = pgm.prepare(MIXED, want=("samples", "marginals"))
    one, two = ask(rng=3), pgm.infer(MIXED, want=("samples", "marginals"), rng=3)
    np.testing.assert_equal(dict(one.samples), dict(two.samples))
    assert ask.plan == two.plan and "given nothing" in repr(ask)


def test_it_plans_once(monkeypatch):
    planned = []
    scheme = pgm.Exact.scheme
    monkeypatch.setattr(pgm.Exact, "scheme", lambda *args: planned.append(args) or scheme(*args))
    ask = pgm.prepare(RBM, observed=("v",))
    for row in ROWS:
        ask({"v": row})
    assert len(planned) == 1
    asking.REMEMBERED.clear()
    for row in ROWS:
        pgm.infer(RBM, {"v": row})
    assert len(planned) == 2


def test_many_threads_ask_at_once():
    ask, generator = pgm.prepare(RBM, observed=("v",)), np.random.default_rng(1)
    rows = [generator.integers(0, 2, (n, 5)).astype(float) for n in generator.integers(1, 9, 200)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: ask({"v": x}).mean["h"], rows))
    for x, mean in zip(rows, found, strict=True):
        np.testing.assert_array_equal(mean, pgm.infer(RBM, {"v": x}).mean["h"])


def test_other_units_observed_than_promised():
    ask = pgm.prepare(RBM, observed=("v",))
    with pytest.raises(pgm.PgmError, match="layer 'v', row 0, index 2 is not observed"):
        ask({"v": [1, 0, np.nan, 1, 0]})
    with pytest.raises(pgm.PgmError, match="layer 'h', row 0, index 0 is observed"):
        ask({"v": ROWS[0], "h": [1, np.nan, np.nan]})
    with pytest.raises(pgm.PgmError, match="layer 'x'"):
        pgm.prepare(RBM, observed=("x",))


def test_a_question_that_nobody_can_answer():
    with pytest.raises(pgm.PgmError, match="AIS refused: importance weights give no marginals"):
        pgm.prepare(RBM, method=pgm.AIS())
    with pytest.raises(pgm.PgmError, match="no method can answer: Enumeration: refused"):
        pgm.prepare(RBM, method=pgm.Auto(candidates=(pgm.Enumeration(max_bits=0),)))


def test_the_values_of_noisy_or_units_are_planned_for():
    b = pgm.GraphBuilder()
    b.layer("cause", pgm.Binary(), 2)
    b.layer("sign", pgm.NoisyOr(), 2, bias=[0.0, 0.2])
    b.cause("cause", "sign", weight=[[1.0, 0.5], [0.3, 2.0]])
    model = b.build()
    ask = pgm.prepare(model, observed=("sign",), want=("gradient", "log_z"))
    for sign in ([0, 0], [1, 0], [0, 1], [1, 1]):
        one, two = (f({"sign": sign}) for f in (ask, lambda e: pgm.infer(model, e, ask.want)))
        np.testing.assert_equal(dict(one.gradient), dict(two.gradient))


def test_infer_remembers_the_last_questions_about_small_models(monkeypatch):
    monkeypatch.setattr(asking, "MAX_REMEMBERED_QUESTIONS", 4)
    model = pgm.rbm(5, 3, rng=1)
    pgm.infer(model, {"v": ROWS[0]})
    assert len(asking.REMEMBERED[model]) == 1
    for n in range(10):
        pgm.infer(model, {"v": np.where(np.arange(5) < n % 5, ROWS[0], np.nan)})
    assert len(asking.REMEMBERED[model]) == 4
    monkeypatch.setattr(asking, "MAX_REMEMBERED_NUMBERS", 20)
    large = pgm.rbm(5, 3, rng=1)
    pgm.infer(large, {"v": ROWS[0]})
    assert large not in asking.REMEMBERED


def test_remembered_questions_do_not_keep_their_model():
    model = pgm.rbm(5, 3, rng=1)
    kept = weakref.ref(model)
    pgm.infer(model, {"v": ROWS}, want=("marginals", "log_prob"))
    pgm.infer(model, want=("log_z",), method=pgm.AIS(betas=4), rng=0)
    assert len(asking.REMEMBERED[model]) == 2
    for question in asking.REMEMBERED[model]._values.values():
        assert not isinstance(question, pgm.Prepared) and not hasattr(question, "target")
    del model
    gc.collect()
    assert kept() is None


def network():
    """Five variables, each of which depends on the one before."""
    b = pgm.GraphBuilder()
    for name in "abcde":
        b.variable(name)
    b.conditional("a", (), [0.3, 0.7])
    for parent, child in pairwise("abcde"):
        b.conditional(child, (parent,), [[0.2, 0.8], [0.6, 0.4]])
    return b.build()


def calls(ask):
    """How often functions of the package are entered while a function runs.

    Functions that dataclasses generate do not count.
    """
    entered = []

    def note(frame, event, _):
        code, module = frame.f_code, frame.f_globals["__name__"]
        if event == "call" and module.startswith("pgmengine.") and code.co_filename != "<string>":
            entered.append(code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        ask()
    finally:
        sys.setprofile(before)
    return len(entered)


SHORT = {
    "rbm": (lambda: pgm.rbm(6, 3, rng=0), {"v": [1, 0, 1, *[np.nan] * 3]}, 387, 195),
    "network": (network, {"e": 1}, 349, 134),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_question_about_a_small_model_takes_few_calls(name):
    """Calls take most of the time of a small answer; each layer that checks again adds some."""
    make, evidence, first, later = SHORT[name]
    pgm.infer(make(), evidence)
    model = make()
    assert calls(lambda: pgm.infer(model, evidence)) <= first
    assert calls(lambda: pgm.infer(model, evidence)) <= later


def test_no_bound_of_the_width_is_needed_where_enumeration_is_short(monkeypatch):
    monkeypatch.setattr(exact, "least_width", lambda _: pytest.fail("a bound was computed"))
    assert pgm.Exact().prepare(RBM.given(), ("log_z",)).plan.accepted


@one_test_over("name", list(METHODS))
def test_every_statistic_is_declared_with_its_axes(name):
    method = METHODS[name]
    if isinstance(method, pgm.Auto):
        return
    model = pgm.sbn([3, 2], rng=0) if isinstance(method, pgm.Forward) else pgm.rbm(3, 2, rng=0)
    want = tuple({"marginals", "log_z", "log_prob"} & method.gives) or ("mode",)
    evidence = {next(iter(model.structure.layers)): [[1, 0, 1], [0, 0, 1]]}
    question = method.prepare(model.given(evidence), want)
    if not question.plan.accepted:
        want = tuple(set(want) - {"log_prob"})
        question = method.prepare(model.given(evidence), want)
    stats = question.run(rng=0).stats
    assert set(stats) <= set(method.statistics)
    for statistic, value in stats.items():
        axes = method.statistics[statistic]
        arrays = list(value.values()) if isinstance(value, dict) else [value]
        for array in arrays:
            assert np.ndim(array) == len(axes)
            if pgm.Axis.ROW in axes:
                assert np.shape(array)[axes.index(pgm.Axis.ROW)] == 2


def test_equal_settings_of_another_type_are_another_question():
    """2 == 2.0, but a number of temperatures is an integer."""
    for _ in range(2):
        with pytest.raises(pgm.PgmError, match="betas"):
            pgm.infer(RBM, want=("log_z",), method=pgm.AIS(betas=2.0), rng=0)
        assert pgm.infer(RBM, want=("log_z",), method=pgm.AIS(betas=2), rng=0).kind == "estimate"


def test_as_many_categorical_units_as_states():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Categorical(2), 2)
    b.layer("h", pgm.Binary(), 1)
    b.couple("v", "h")
    model = b.build(rng=0)
    one, two = pgm.prepare(model, observed=("v",)), pgm.infer(model, {"v": [[0, 1]]})
    np.testing.assert_array_equal(one({"v": [[0, 1]]}).mean["h"], two.mean["h"])


def test_refusals_are_not_remembered(monkeypatch):
    method = pgm.Exact(draws=150_000)
    free_memory(monkeypatch, 2.0**20)
    model = pgm.rbm(60, 9, rng=0)
    with pytest.raises(pgm.PgmError, match="GiB"):
        pgm.infer(model, want=("samples",), method=method)
    monkeypatch.undo()
    assert pgm.infer(model, want=("samples",), method=method, rng=0).kind == "exact"


def test_methods_with_plan_and_run_of_their_own():
    class Half:
        def plan(self, target, want):
            return pgm.Plan("Half", "estimate", "always one half")

        def run(self, target, want=("log_z",), rng=None, state=None):
            half = np.full(target.rows, 0.5)
            return pgm.Result({"log_z": half}, "estimate", self, self.plan(target, want))

    r = pgm.infer(RBM, {"v": ROWS}, want=("log_z",), method=Half())
    assert (r.log_z == 0.5).all() and isinstance(r.method, Half)
    assert pgm.prepare(RBM, want=("log_z",), method=Half())().log_z[0] == 0.5


def test_the_cache_forgets_what_was_used_least_recently():
    cache = Cache(most=2)
    for key in ("a", "b", "a", "c"):
        cache.recall(key, lambda key=key: key.upper())
    assert cache.recall("a", lambda: "new") == "A" and cache.recall("b", lambda: "new") == "new"
    with pytest.raises(TypeError):
        cache.recall([], lambda: 0)


@one_test_over("m", [*tiny.MODELS, tiny.NORMAL], ids=lambda m: m.name)
def test_every_type_of_unit_can_be_observed_or_not(m):
    """Without values, planning takes any: of each type, with as many components as it has."""
    model = m.build()
    for observed in ((), *((name,) for name in model.structure.layers)):
        assert pgm.prepare(model, observed).plan.method
