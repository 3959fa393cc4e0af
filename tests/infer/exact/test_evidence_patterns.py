"""Forms, linear plans and covers that are remembered for patterns: the same answers, and small."""

import gc
import tracemalloc
import weakref
from operator import attrgetter

import networkx as nx
import numpy as np
import pytest
from brute import Brute
from limits import free_memory
from loops import one_test_over
from tiny import MODELS, as_evidence, patterns

import pgmengine as pgm
from pgmengine.engine.visits import drawable
from pgmengine.evidence.target import one_for_all
from pgmengine.infer.exact.enumeration import cover, enumeration, linear_plan
from pgmengine.infer.exact.junction_tree import conditioned_model
from pgmengine.infer.exact.junction_tree.conditioned_model import Form, condition
from pgmengine.infer.variational.unit_families import coupled, layer_order
from pgmengine.learn.run import compact

EXACT = {"rtol": 1e-9, "atol": 1e-9}
table = one_test_over("tiny_model", MODELS)


def check_the_same(tiny_model, row, first, last):
    """Both answers are exact, and have the same bits."""
    truth, log_z = Brute(tiny_model, row), Brute(tiny_model, {}).log_z
    np.testing.assert_allclose(first.log_z[0], truth.log_z, **EXACT)
    np.testing.assert_allclose(first.log_prob, truth.log_z - log_z, **EXACT)
    assert np.array_equal(last.log_z, first.log_z)
    assert np.array_equal(last.log_prob, first.log_prob)
    for x in tiny_model.layers:
        assert np.array_equal(last.mean[x.name], first.mean[x.name])
        np.testing.assert_allclose(np.ravel(first.mean[x.name]), truth.mean(x.name), **EXACT)
        if x.unit.support is not None:
            assert np.array_equal(last.prob[x.name], first.prob[x.name])
            np.testing.assert_allclose(first.prob[x.name], truth.prob(x.name), **EXACT)


@pytest.mark.few(4)
@pytest.mark.parametrize("tiny_model", MODELS, ids=repr)
def test_patterns_asked_again_give_the_same(tiny_model, monkeypatch):
    model, rows, compiled = tiny_model.build(), patterns(tiny_model), []
    made = linear_plan._compile
    monkeypatch.setattr(
        linear_plan, "_compile", lambda *args: compiled.append(made(*args)) or compiled[-1]
    )
    want = ("log_z", "log_prob", "marginals")
    for row in rows:
        evidence = {name: value[0] for name, value in as_evidence(tiny_model, [row]).items()}
        # Before a linear plan pays, and from then on.
        for times in (3, 3):
            found = [pgm.infer(model, evidence, want, method=pgm.Exact()) for _ in range(times)]
            check_the_same(tiny_model, row, found[0], found[-1])
            pgm.infer(model, evidence, want, method=pgm.Exact())
    plain = all(x.unit in (pgm.Binary(), pgm.Spin()) for x in tiny_model.layers) and not (
        tiny_model.tables or "large" in repr(tiny_model)
    )
    assert not plain or all(p is not None for p in compiled) and compiled


def test_linear_plans_serve_other_values(monkeypatch):
    """One linear plan for a pattern; the values of one answer leave nothing behind in the next."""
    monkeypatch.setattr(enumeration, "FIRST_PLANNED_QUESTION", 1)
    model = pgm.rbm(5, 3, visible=pgm.Spin(), hidden=pgm.MultiValued(2), rng=0)
    for values in ([1, -1, 1], [-1, -1, 1], [1, -1, 1]):
        evidence = {"v": [*values[:2], np.nan, values[2], np.nan]}
        found, fresh = pgm.infer(model, evidence), pgm.infer(model.with_params({}), evidence)
        for name in ("v", "h"):
            assert np.array_equal(found.mean[name], fresh.mean[name])
        joined = pgm.infer(model, {"v": [evidence["v"]] * 60})  # too many rows for a plan
        np.testing.assert_allclose(joined.mean["h"][4], found.mean["h"], rtol=1e-12)


@pytest.mark.parametrize("sigma", [1.0, 1e3])
def test_large_gaussian_evidence_keeps_its_digits(sigma):
    model, v = (
        pgm.rbm(6, 3, visible=pgm.Gaussian(sigma), rng=0),
        1e3 * np.array([1.0, -2.0, 0.5, 3.0, -1.0, 2.0]),
    )
    model = model.with_params({"v-h.weight": 0.01 * model.params["v-h.weight"]})
    w, b, c = (model.params[k].astype(np.longdouble) for k in ("v-h.weight", "v.bias", "h.bias"))
    x = v.astype(np.longdouble)
    base = (
        -(x**2) / (2 * np.longdouble(sigma) ** 2)
        - np.log(np.longdouble(sigma))
        - np.log(2 * np.longdouble(np.pi)) / 2
    )
    truth = (base + b * x).sum() + np.logaddexp(0, c + x @ w).sum()
    for _ in range(3):
        found = pgm.infer(model, {"v": v}, want=("log_z", "marginals")).log_z[0]
        np.testing.assert_allclose(found, float(truth), rtol=1e-13)


def test_a_model_keeps_little_of_many_patterns():
    """Programs and skeletons are small, and no model outlives its last name."""
    model = pgm.sbn([200, 1], rng=0)
    kept = weakref.ref(model)
    rng = np.random.default_rng(0)
    tracemalloc.start()
    for row in np.where(rng.random((200, 200)) < 0.5, np.nan, 1.0):
        pgm.infer(model, {"v": row})
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 20e6
    gc.disable()
    try:
        del model
        assert kept() is None
    finally:
        gc.enable()


def test_covers_are_searched_once_while_a_model_learns(monkeypatch):
    calls, search = [], cover._cheapest
    monkeypatch.setattr(cover, "_cheapest", lambda *args: calls.append(1) or search(*args))
    for model in (pgm.boltzmann_machine(5, rng=0), sparse_model()):
        name, calls[:] = next(iter(model.structure.layers)), []
        x = np.where(
            np.random.default_rng(0).random((8, model.structure.layers[name].size)) < 0.5, -1.0, 1.0
        )
        pgm.fit(model, {name: x}, negative=pgm.ExactGradient(), updates=10, progress=False)
        # The data phase, the model phase and the scores of the findings, and none of the updates.
        assert len(calls) <= 3


def sparse_model():
    graph = nx.grid_2d_graph(3, 3)
    nx.set_edge_attributes(graph, 0.3, "weight")
    return pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build()


def test_nothing_known_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        pgm.rbm(3, 2, rng=0).given().pattern.observed["h"][0] = True


FACTS = (
    *map(attrgetter, ("independent", "moving", "by_unit", "free_parents", "acting_arrows")),
    layer_order,
    coupled,
    drawable,
)


@table
def test_facts_belong_to_their_pattern(tiny_model):
    """Rows that are taken in any number and order have the facts of the same evidence parsed
    anew.
    """
    model, rows = tiny_model.build(), patterns(tiny_model)
    many = model.given(as_evidence(tiny_model, rows))
    for fact in FACTS:
        for index in ([0], [1], [0, 1], [1, 0, 1], [*range(len(rows))][::-1], [0, 0, 0]):
            fresh = model.given(as_evidence(tiny_model, [rows[i] for i in index]))
            for _ in range(2):
                taken = many.take(np.array(index)).pattern
                assert fact(taken) == fact(fresh.pattern), fact
        alike = compact(model.given(as_evidence(tiny_model, rows[:1] * 6)), np.float32)
        taken = [alike.take(np.arange(n)).pattern for n in (2, 3, 2)]
        assert taken[0] is taken[2] and [p.rows for p in taken] == [2, 3, 2]
        one = many.take(np.zeros(1, dtype=int)).pattern
        assert fact(taken[1]) == fact(one), fact


def test_facts_see_what_is_set():
    model = pgm.sbn([3, 2], rng=0)
    free, done = model.given(), model.given(do={"v": [1, 0, 1]})
    assert not free.pattern.independent and done.pattern.independent
    assert free.pattern.free_parents and not done.pattern.free_parents
    assert not free.take(np.zeros(4, dtype=int)).pattern.independent
    assert done.take(np.zeros(4, dtype=int)).pattern.independent


@table
def test_entries_are_impossible_where_all_rows_are(tiny_model):
    model, form = tiny_model.build(), Form()
    for row in patterns(tiny_model):
        target = model.given(as_evidence(tiny_model, [row, row]))
        try:
            factors = condition(one_for_all(target, np.arange(2)), form)
        except pgm.PgmError:
            continue
        parts = [np.empty((0, 1)), *factors.tables(target)]
        expected = np.concatenate([np.isneginf(part).all(axis=1) for part in parts])
        assert np.array_equal(factors.impossible(target), expected)


def test_the_search_for_zeros_looks_at_some_rows_at_a_time(monkeypatch):
    """Impossible states are the same, and a row that does not fit is refused before it is there."""
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3)
    b.layer("v", pgm.NoisyOr(), 4, bias=np.zeros(4))
    b.cause("h", "v", weight=np.arange(12.0).reshape(3, 4) % 3)
    target = b.build(rng=0).given({"v": np.array([[0, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 0]])})
    factors = condition(one_for_all(target, np.arange(3)), Form())
    whole, looked = factors.impossible(target), []
    monkeypatch.setattr(conditioned_model, "MAX_SEARCH_BYTES", 1.0)
    take = type(target).take
    monkeypatch.setattr(
        type(target), "take", lambda s, rows: looked.append(len(rows)) or take(s, rows)
    )
    np.testing.assert_array_equal(factors.impossible(target), whole)
    assert looked == [1, 1, 1] and whole.any()
    free_memory(monkeypatch, 100.0)
    monkeypatch.setattr("pgmengine.base.work.memory.UNCHECKED_BYTES", 0.0)
    with pytest.raises(pgm.PgmError, match="the factors of a row have .* entries: it needs"):
        factors.impossible(target)


def test_a_finding_without_a_leak_excludes_the_absence_of_all_causes():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2)
    b.layer("v", pgm.NoisyOr(), 1, bias=[0.0])
    b.cause("h", "v", weight=[[0.7], [1.3]])
    target = b.build().given({"v": [[1.0]]})
    factors = condition(target, Form())
    impossible = factors.impossible(target)
    assert impossible.sum() == 1
    # The last factor is the finding, with its parents' states in order.
    assert np.array_equal(impossible[-4:], [True, False, False, False])


def test_tables_of_children_are_priced():
    """Filling 30 tables of 2^12 entries for each row takes longer than walking its 2^17 states."""
    model, rng = pgm.sbn([30, 12, 5], rng=0), np.random.default_rng(0)
    rows = rng.integers(0, 2, (20, 30)).astype(float)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    walk, tree, chosen = (
        method.prepare(model.given({"v": rows}), ("log_prob",)).plan
        for method in (pgm.Enumeration(), pgm.Elimination(), pgm.Exact())
    )
    assert tree.work < walk.work and tree.seconds > walk.seconds
    assert chosen.why == walk.why
