"""Weighted model counting beside sums over all states."""

import itertools

import numpy as np
import pytest
from extras import extra

import pgmengine as pgm
from pgmengine.infer.counting.model_counting import Formula

UNITS = 6


def random_tables(rng):
    """Random numbers of states, and tables (scope, entries), most of them with many zeros."""
    cards = rng.integers(1, 5, UNITS)
    tables = []
    for _ in range(7):
        scope = rng.choice(UNITS, rng.integers(1, 4), replace=False)
        entries = np.exp(rng.normal(0, 3, cards[scope]))
        if rng.random() < 0.5:
            entries[:] = 1.0
        entries[rng.random(entries.shape) < rng.choice([0.0, 0.3])] = 0
        # A table without a possible entry is refused where it is declared.
        entries.flat[rng.integers(entries.size)] = 2.0
        tables.append((scope, entries))
    return cards, tables


def total(cards, tables, given):
    out = 0.0
    for state in itertools.product(*map(range, cards)):
        if all(state[i] == k for i, k in given.items()):
            s = np.array(state)
            out += np.prod([entries[tuple(s[scope])] for scope, entries in tables])
    return out


@pytest.mark.parametrize("seed", range(80))
@pytest.mark.few(2)
def test_counts_are_sums_over_all_states(seed):
    extra("pyganak")
    rng = np.random.default_rng(seed)
    cards, tables = random_tables(rng)
    b = pgm.GraphBuilder()
    units = [b.variable(f"x{i}", states=int(k)) for i, k in enumerate(cards)]
    for scope, entries in tables:
        b.table([units[i] for i in scope], entries)
    model, given = b.build(), {0: int(rng.integers(cards[0]))} if seed % 2 else {}
    evidence = {f"x{i}": k for i, k in given.items()}
    every, own = total(cards, tables, {}), total(cards, tables, given)
    with np.errstate(divide="ignore"):
        expected, whole = np.log(own), np.log(every)
    r = pgm.infer(model, evidence, want=("log_z",), method=pgm.ModelCounting())
    assert r.kind == "exact" and r.log_z[0] == pytest.approx(expected, abs=1e-9)
    if every:
        p = pgm.infer(model, evidence, want=("log_prob",), method=pgm.ModelCounting())
        assert p.log_prob[0] == pytest.approx(expected - whole, abs=1e-9)


def test_counts_beyond_double_precision():
    extra("pyganak")
    b = pgm.GraphBuilder()
    x = b.variable("x", states=4, shape=800)
    b.table((x[:-1], x[1:]), np.ones((4, 4)) - np.eye(4))
    model = b.build()
    r = pgm.infer(model, want=("log_z",), method=pgm.ModelCounting())
    assert r.log_z[0] == pytest.approx(np.log(4) + 799 * np.log(3), rel=1e-12)


@pytest.mark.parametrize("log_count", [-2e4, -1e3, -800.0, 0.0, 650.0, 800.0, 3e3, 2e4])
def test_a_common_weight_brings_counts_into_double_precision(log_count, monkeypatch):
    formula = Formula(states=[[-1, 1]] * 50)

    def counted(self, shift, seconds):
        total = log_count + 50 * shift
        return 0.0 if total < -745 else np.inf if total > 709 else np.exp(total)

    monkeypatch.setattr(Formula, "_counted", counted)
    monkeypatch.setattr(Formula, "_impossible", lambda self, seconds: False)
    assert formula.log_count(1.0) == pytest.approx(log_count, rel=1e-9, abs=1e-9)


def test_a_count_that_takes_too_long_says_so():
    extra("pyganak")
    b = pgm.GraphBuilder()
    b.table((b.variable("x", states=2),), [1.0, 2.0])
    with pytest.raises(pgm.PgmError, match="seconds="):
        pgm.infer(b.build(), want=("log_z",), method=pgm.ModelCounting(seconds=0.001))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyganak", None)
    b = pgm.GraphBuilder()
    b.table((b.variable("x", states=2),), [1.0, 2.0])
    with pytest.raises(pgm.PgmError, match=r"pip install 'pgmengine\[counting\]'"):
        pgm.infer(b.build(), want=("log_z",), method=pgm.ModelCounting())
