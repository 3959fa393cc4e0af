"""Rows of many evidence patterns that share a tree have the answers of a tree for each pattern."""

import numpy as np
import pytest
from comparisons import close_answers
from limits import planning_takes, rows_are_restricted
from networks import with_zeros
from random_graphs import as_arguments, as_hints, draw_question, random_graph
from scipy.stats import binom
from small_networks import states_drawn

import pgmengine as pgm
from pgmengine.infer.exact import planning

FALSE_ALARM = 1e-6


def network_of(seed):
    return with_zeros(seed, variables=12, states=4, zeros=0.2)


def both(model, want, monkeypatch, **arguments):
    """The answers by shared trees, and by a tree for each pattern."""
    method = arguments.pop("method", pgm.Elimination())
    found = pgm.infer(model, want=want, method=method, **arguments)
    with monkeypatch.context() as alone:
        alone.setattr(planning, "can_share", lambda *_: False)
        alone.setattr(planning, "leaving", lambda *_: {})
        # A fresh model remembers no plan.
        right = pgm.infer(model.with_params({}), want=want, method=method, **arguments)
    assert "shared by" not in right.plan.why
    return found, right


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed, monkeypatch):
    graph = random_graph(90_000 + seed, 2**10)
    asked = draw_question(graph, seed, rows=12)
    arguments = {
        "evidence": as_arguments(graph, asked, 0),
        "soft": as_hints(graph, asked),
        "do": as_arguments(graph, asked, 2),
    }
    want = ("log_z", "log_prob", "marginals", "pairs", "gradient")
    found, right = both(graph.build(), want, monkeypatch, **arguments)
    close_answers(found.answers, right.answers)


def rows_of(model, rows, share, seed=1):
    """Rows of draws of the model, of which a random share of the variables is observed."""
    rng = np.random.default_rng(seed)
    r = pgm.infer(model, want=("samples",), method=pgm.Exact(draws=rows), rng=seed)
    names = list(model.variables)
    hidden = rng.random((rows, len(names))) >= share
    return {n: np.where(hidden[:, i], np.nan, states_drawn(r, n)) for i, n in enumerate(names)}


def test_networks_with_impossible_states(monkeypatch):
    model = network_of(0)
    evidence = rows_of(model, 60, 0.3)
    joint = pgm.Joint("x3", "x7", "x11")
    want = ("log_z", "log_prob", "marginals", "mode", "gradient", joint)
    found, right = both(model, want, monkeypatch, evidence=evidence)
    assert "shared by" in found.plan.why
    close_answers(found.answers, right.answers)


def test_units_that_all_rows_observe_and_patterns_of_many_rows(monkeypatch):
    model = network_of(1)
    evidence = rows_of(model, 60, 0.3)
    all_rows = rows_of(model, 60, 1.0)
    evidence["x5"] = all_rows["x5"]
    # The last rows have one pattern, and a tree of their own.
    for name, values in evidence.items():
        values[40:] = all_rows[name][40:] if name in ("x2", "x5") else np.nan
    monkeypatch.setattr(planning, "MAX_LANE_ENTRIES", 0)
    found, right = both(model, ("log_z", "marginals"), monkeypatch, evidence=evidence)
    assert {"shared by" in tree.described for tree in _trees(model, evidence)} == {True, False}
    close_answers(found.answers, right.answers)


def _trees(model, evidence, most=2.0**27):
    return planning._trees(model.given(evidence), ("marginals",), planning.Limits(most, 0))


def test_rows_that_are_too_large_have_trees_of_their_own(monkeypatch):
    model = network_of(2)
    monkeypatch.setattr(planning, "MAX_LANE_ENTRIES", 0)
    evidence = rows_of(model, 30, 0.3)
    trees = _trees(model, evidence)
    sizes = [[t.order.entries] if t.restricted is None else t.restricted[:, 0] for t in trees]
    sizes = np.sort(np.concatenate(sizes))
    limit = 3 * planning.PASSED_ENTRY_SECONDS * sizes[10]
    planning_takes(monkeypatch, limit)
    trees = _trees(model, evidence)
    assert len(trees) > 1 and 0 < len(trees[0].rows) < 30
    assert sorted(np.concatenate([tree.rows for tree in trees]).tolist()) == list(range(30))
    found, right = both(model, ("log_z", "marginals"), monkeypatch, evidence=evidence)
    close_answers(found.answers, right.answers)


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_one_pattern_that_exclude_different_states(seed, monkeypatch):
    """Each is restricted to its own states, where that leaves far fewer of them."""
    model = network_of(10 + seed)
    draws = rows_of(model, 20, 1.0)
    evidence = {name: draws[name] for name in ("x9", "x10", "x11")}
    want = ("log_z", "marginals", "mode", "gradient")
    method = pgm.Elimination()
    right = pgm.infer(model, evidence, want=want, method=method)
    rows_are_restricted(monkeypatch)
    found = pgm.infer(model.with_params({}), evidence, want=want, method=method)
    assert "shared by" in found.plan.why and "shared by" not in right.plan.why
    close_answers(found.answers, right.answers)


def test_the_row_of_contradictory_evidence_is_named():
    b = pgm.GraphBuilder()
    b.variable("a"), b.variable("b"), b.variable("c")
    b.conditional("a", (), [0.5, 0.5])
    b.conditional("b", ("a",), [[1.0, 0.0], [0.3, 0.7]])
    b.conditional("c", ("b",), [[0.2, 0.8], [0.9, 0.1]])
    evidence = {"a": [0, np.nan, 0, 1], "b": [np.nan, 1, 1, np.nan], "c": [1, 1, np.nan, np.nan]}
    model, method = b.build(), pgm.Elimination()
    with pytest.raises(pgm.PgmError, match="evidence row 2 has probability zero"):
        pgm.infer(model, evidence, method=method)
    found = pgm.infer(model, evidence, want=("log_prob",), method=method)
    expected = [0.5 * 0.8, 0.35 * 0.1, 0.0, 0.5]
    np.testing.assert_allclose(np.exp(found.log_prob), expected, rtol=1e-12)


def test_a_prepared_question_serves_other_values_of_the_same_patterns():
    model = network_of(3)
    first, second = rows_of(model, 20, 0.3, 1), rows_of(model, 20, 1.0, 2)
    other = {n: np.where(np.isnan(first[n]), np.nan, second[n]) for n in first}
    method = pgm.Elimination()
    pgm.infer(model, first, method=method)
    again = pgm.infer(model, other, method=method)
    fresh = pgm.infer(model.with_params({}), other, method=method)
    for name in model.structure.layers:
        np.testing.assert_array_equal(again.prob[name], fresh.prob[name])


def test_draws_of_rows_have_their_marginals(*, draws=4000):
    """The count of every state is binomial; a false alarm has probability 1e-6 in all."""
    model = network_of(4)
    evidence = rows_of(model, 10, 0.3)
    method = pgm.Elimination(draws=draws)
    r = pgm.infer(model, evidence, want=("marginals", "samples"), method=method, rng=3)
    assert "shared by" in r.plan.why
    for name in model.variables:
        exact = np.stack(list(r.marginal(name).values()), axis=1)
        layer, unit = model.structure.names.unique[name]
        states = model.structure.layers[layer].states(r.samples[layer].reshape(draws, 10, -1))
        for row, p in enumerate(exact):
            counts = np.bincount(states[:, row, unit], minlength=len(p))
            tails = np.minimum(binom.cdf(counts, draws, p), binom.sf(counts - 1, draws, p))
            # At most 10 rows of 12 variables with 4 states, and two tails.
            assert (tails > FALSE_ALARM / 960).all()


def test_units_with_infinitely_many_values(monkeypatch):
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 8)
    b.layer("y", pgm.Gaussian(), 3)
    b.couple("x", "y", 0.5 * rng.normal(size=(8, 3)))
    model = b.build()
    x = np.where(rng.random((20, 8)) < 0.4, rng.choice([-1.0, 1.0], (20, 8)), np.nan)
    want = ("log_z", "marginals", "pairs", "gradient")
    for evidence in ({"x": x}, {"x": x, "y": rng.normal(size=(20, 3))}):
        found, right = both(model, want, monkeypatch, evidence=evidence)
        assert "shared by" in found.plan.why
        close_answers(found.answers, right.answers)
    # Rows that differ in these units share no tree.
    y = np.where(rng.random((20, 3)) < 0.4, 0.3, np.nan)
    found, right = both(model, want, monkeypatch, evidence={"x": x, "y": y})
    assert "shared by" not in found.plan.why
    close_answers(found.answers, right.answers)
