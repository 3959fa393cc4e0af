"""Prepared questions with soft evidence and interventions, and explanations before any evidence."""

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.question import ask as asking

STATES, SYMBOLS = ("calm", "busy", "down"), ("low", "high")
START = np.array([0.5, 0.4, 0.1])
SHOW = np.array([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])
MOVES = {
    "free": np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.2, 0.2, 0.6]]),
    "with zeros": np.array([[0.7, 0.3, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]),
}


def chain(move, start):
    def declare(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=STATES, shape=steps)
        x = b.variable("x", states=SYMBOLS, shape=steps)
        b.conditional(z[0], (), start, name="start")
        b.conditional(z[1:], (z[:-1],), move, name="move")
        b.conditional(x, (z,), SHOW, name="show")
        return b

    return pgm.Template(declare)


def plans(monkeypatch):
    """The calls in which a question is planned."""
    made = []
    plan = asking.plan_of
    monkeypatch.setattr(asking, "plan_of", lambda *args: made.append(args) or plan(*args))
    return made


@pytest.mark.parametrize("kind", MOVES)
def test_a_filter_steps_two_slices_and_carries_its_belief(kind, monkeypatch):
    """The belief after each step and the log-likelihood are those of the forward recursion."""
    made, move, rng = plans(monkeypatch), MOVES[kind], np.random.default_rng(0)
    slices = chain(move, np.full(3, 1 / 3))(2)
    step = pgm.prepare(slices, observed=(("x", 1),), want=("marginals", "log_z"))
    belief = START * SHOW[:, 0] / (START @ SHOW[:, 0])
    expected, log_p = belief, 0.0
    for symbol in rng.integers(0, 2, 40):
        with np.errstate(divide="ignore"):
            r = step({"x[1]": SYMBOLS[symbol]}, soft={"z[0]": np.log(belief)})
        belief = np.array([r.marginal("z[1]")[state] for state in STATES])
        joint = (expected @ move) * SHOW[:, symbol]
        log_p, expected = log_p + np.log(joint.sum()), joint / joint.sum()
        np.testing.assert_allclose(belief, expected, atol=1e-12)
        # The start of the slices is uniform, and the belief takes its place.
        assert float(r.log_z[0]) + np.log(3) == pytest.approx(np.log(joint.sum()))
    # The question without soft evidence, and the one with it.
    assert kind == "with zeros" or len(made) == 2
    whole = chain(move, START)
    rows = [{"x": [SYMBOLS[0], *(SYMBOLS[s] for s in np.random.default_rng(0).integers(0, 2, 40))]}]
    last = pgm.infer(whole, rows)[0].marginal("z")
    np.testing.assert_allclose([last[state][-1] for state in STATES], expected, atol=1e-12)


def network(seed=0):
    """Five variables of two or three states; each depends on one or two before."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    names, sizes = "abcde", (2, 3, 2, 3, 2)
    for i, (name, k) in enumerate(zip(names, sizes, strict=True)):
        parents = sorted(rng.choice(i, min(i, 2), replace=False)) if i else []
        shape = [sizes[j] for j in parents]
        table = rng.dirichlet(np.ones(k), shape) if shape else rng.dirichlet(np.ones(k))
        b.variable(name, states=k)
        b.conditional(name, [names[j] for j in parents], table)
    return b.build()


@pytest.mark.parametrize("rows", [None, 3])
def test_soft_evidence_and_interventions_have_the_answers_of_infer(rows):
    model, rng = network(), np.random.default_rng(1)
    ask = pgm.prepare(model, observed=("e",), want=("marginals", "log_prob"))
    shape = () if rows is None else (rows,)
    kinds = [{}, {"b": 3}, {"a": 2}, {"a": 2, "b": 3}]
    for _ in range(3):
        for soft in kinds:
            for do in ((), ("c",), ("a",)):
                given = {
                    "soft": {n: rng.normal(size=(*shape, k)) for n, k in soft.items()} or None,
                    "do": {n: rng.integers(0, 2, shape) for n in do} or None,
                }
                evidence = {"e": rng.integers(0, 2, shape)}
                if "a" in do and "a" in soft:
                    continue
                one, two = ask(evidence, **given), pgm.infer(model, evidence, ask.want, **given)
                np.testing.assert_equal(one.answers, two.answers)


def test_each_pattern_of_soft_evidence_and_interventions_is_planned_once(monkeypatch):
    model, made, rng = network(), plans(monkeypatch), np.random.default_rng(2)
    ask = pgm.prepare(model, observed=("e",))
    for _ in range(5):
        for more in ({}, {"soft": {"b": rng.normal(size=3)}}, {"do": {"c": 1}}, {"do": {"a": 0}}):
            ask({"e": 1}, **more)
    assert len(made) == 4


def test_interventions_are_no_observations():
    ask = pgm.prepare(network(), observed=("e",))
    with pytest.raises(pgm.PgmError, match="'e'.* is not observed"):
        ask(do={"e": 1})
    with pytest.raises(pgm.PgmError, match="'c'.* is observed"):
        ask({"e": 1, "c": 1})


def test_excluded_states_that_change_are_planned_for(monkeypatch):
    """A plan for states that are impossible must not answer where they are possible."""
    model, made = network(), plans(monkeypatch)
    ask = pgm.prepare(model, observed=("e",), want=("marginals", "log_z"))
    seen = set()
    for excluded in (0, 1, 2, 0, 1):
        soft = {"b": np.where(np.arange(3) == excluded, -np.inf, 0.3)}
        before = len(made)
        one = ask({"e": 1}, soft=soft)
        assert len(made) - before == (excluded not in seen)
        seen.add(excluded)
        two = pgm.infer(model, {"e": 1}, ask.want, soft=soft)
        np.testing.assert_equal(one.answers, two.answers)


def test_explain_takes_the_units_that_will_be_observed():
    model = pgm.rbm(12, 8, rng=0)
    seen = pgm.explain(model, {"v": np.zeros(12)}, want=("log_prob",))
    assert pgm.explain(model, observed=("v",), want=("log_prob",)) == seen
    some = pgm.explain(model, observed=(("v", 3), ("h", 1)))
    assert "2 of 20 units observed" in some
    with pytest.raises(pgm.PgmError, match="give one of the two"):
        pgm.explain(model, {"v": np.zeros(12)}, observed=("v",))
    with pytest.raises(pgm.PgmError, match="'w' is unknown"):
        pgm.explain(model, observed=("w",))


def test_explain_takes_templates():
    template = chain(MOVES["free"], START)
    rows = [{"x": ["low", "high"]}, {"x": [None, "low", "low"]}, {"x": ["high", None]}, 4]
    found = pgm.explain(template, rows)
    titles = [part.title for part in found.parts]
    assert titles == ["rows 0, 2 of 2 steps", "row 1 of 3 steps", "row 3 of 4 steps"]
    assert found.head.startswith("wanted: marginals; 4 rows of Template of declare")
    results = pgm.infer(template, rows)
    assert [part.chosen.method for part in found.parts] == ["Exact"] * 3
    assert results[0].plan == found.parts[0].chosen and results[3].plan == found.parts[2].chosen
    alone = pgm.explain(template, rows, want=("gradient",))
    assert [part.title for part in alone.parts][:2] == ["row 0 of 2 steps", "row 2 of 2 steps"]
    soft = [None, {"z[0]": [0.0, 1.0, 0.0]}, None, None]
    assert len(pgm.explain(template, rows, soft=soft).parts) == 3
    before = pgm.explain(template, [100], observed=("x",))
    assert before.chosen == pgm.explain(template, [{"x": ["low"] * 100}]).chosen
    with pytest.raises(pgm.PgmError, match="give one of the two"):
        pgm.explain(template, rows, observed=("x",))
