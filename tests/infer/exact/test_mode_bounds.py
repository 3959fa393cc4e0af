"""States that are left out of the search for a mode are in no mode, and the mode stays."""

import itertools

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.exact import planning
from pgmengine.infer.exact.junction_tree.factors import Scopes
from pgmengine.infer.exact.mode_bounds import in_no_mode


def random_factors(rng, zeros, whole):
    """Return numbers of states, scopes and log entries; `whole` numbers make ties."""
    cards = rng.integers(1, 4, rng.integers(2, 7))
    scopes, logs = [[]], [np.array([rng.normal()])]
    for _ in range(int(rng.integers(2, 10))):
        own = rng.choice(len(cards), int(rng.integers(1, min(3, len(cards)) + 1)), replace=False)
        size = int(np.prod(cards[own]))
        entries = rng.integers(-2, 3, size) * 1.0 if whole else 3.0 * rng.normal(size=size)
        scopes.append(own.tolist())
        logs.append(np.where(rng.random(size) < zeros, -np.inf, entries))
    start = np.cumsum([0, *map(len, scopes)])
    flat = np.array([v for own in scopes for v in own], dtype=np.int32)
    return cards, Scopes(start, flat), logs, scopes


def every_state(cards, logs, scopes):
    """Yield each state's log density, and the entry of each factor."""
    for x in itertools.product(*map(range, cards)):
        at = [
            int(np.ravel_multi_index([x[v] for v in own], cards[own])) if own else 0
            for own in scopes
        ]
        yield sum(part[i] for part, i in zip(logs, at, strict=True)), at


@pytest.mark.parametrize("seed", range(200))
def test_entries_of_modes_are_never_left_out(seed):
    rng = np.random.default_rng(seed)
    cards, factors, logs, scopes = random_factors(
        rng, rng.choice([0, 0.1, 0.4]), rng.random() < 0.5
    )
    out = in_no_mode(cards, factors, np.concatenate(logs))
    ends = np.cumsum([0, *map(len, logs)])
    states = list(every_state(cards, logs, scopes))
    best = max(value for value, _ in states)
    for value, at in states:
        if value >= best - 1e-12 and np.isfinite(best):
            assert not any(out[a + i] for a, i in zip(ends, at, strict=False))


def test_bounds_leave_one_state_of_a_strong_field():
    cards = np.full(30, 4)
    rng = np.random.default_rng(0)
    fields = [(np.array([v]), 8.0 * rng.normal(size=4)) for v in range(30)]
    pairs = [(np.array([v, v + 1]), rng.normal(size=16)) for v in range(29)]
    scopes = [own for own, _ in fields + pairs]
    flat = np.concatenate(scopes).astype(np.int32)
    factors = Scopes(np.cumsum([0, *map(len, scopes)]), flat)
    out = in_no_mode(cards, factors, np.concatenate([x for _, x in fields + pairs]))
    assert out.mean() > 0.7


def glass(rng, side, field):
    """Return a lattice of 3-state units with random pairs, fields and some zeros."""
    b, number = pgm.GraphBuilder(), np.arange(side * side).reshape(side, side)
    b.layer("x", pgm.Categorical(3), side * side)
    for one, two in ((number[:-1], number[1:]), (number[:, :-1], number[:, 1:])):
        for pair in zip(one.ravel(), two.ravel(), strict=True):
            entries = np.exp(2.0 * rng.normal(size=(3, 3)))
            entries[rng.random((3, 3)) < 0.05] = 0.0
            b.tables(("x", "x"), [pair], entries)
    for unit in range(side * side):
        b.tables(("x",), [[unit]], np.exp(field * rng.normal(size=3)))
    return b.build()


@pytest.mark.parametrize("seed", range(24))
def test_modes_are_those_of_whole_trees(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    model = glass(rng, 4, rng.choice([0.5, 3.0]))
    evidence = {"x": np.where(np.arange(16) == seed % 16, 1.0, np.nan)}
    right = pgm.infer(model, evidence, want=("mode", "log_z"), method=pgm.Elimination())
    taken = []
    monkeypatch.setattr(planning, "bounding_seconds", lambda *_: 1e-12)
    whole = planning.in_no_mode
    monkeypatch.setattr(planning, "in_no_mode", lambda *args: taken.append(1) or whole(*args))
    found = pgm.infer(model.with_params({}), evidence, want=("mode",), method=pgm.Elimination())
    assert taken
    values = [
        float(pgm.infer(model, {"x": r.mode["x"]}, want=("log_z",)).log_z[0])
        for r in (found, right)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-12)
