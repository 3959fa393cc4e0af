"""Modes without a tree: states, gaps and proofs beside all states, one by one."""

import itertools

import numpy as np
import pytest
from extras import extra

import pgmengine as pgm
from pgmengine.infer.modes.mode_factors import mode_factors
from pgmengine.infer.modes.possible_state import possible_state

UNITS = 6


def random_tables(rng):
    """Random numbers of states, and tables (scope, entries) with zeros over one to four units."""
    cards = rng.integers(2, 5, UNITS)
    tables = []
    for _ in range(8):
        scope = rng.choice(UNITS, rng.integers(1, 5), replace=False)
        entries = rng.gamma(0.7, size=cards[scope])
        if rng.random() < 0.5:
            entries[rng.random(entries.shape) < 0.25] = 0
        # A table without a possible entry is refused where it is declared.
        entries.flat[rng.integers(entries.size)] = 1.0
        tables.append((scope, entries))
    return cards, tables


def model_of(cards, tables):
    b = pgm.GraphBuilder()
    units = [b.variable(f"x{i}", states=int(k)) for i, k in enumerate(cards)]
    for scope, entries in tables:
        b.table([units[i] for i in scope], entries)
    return b.build()


def log_density(tables, state):
    with np.errstate(divide="ignore"):
        return sum(np.log(entries[tuple(state[scope])]) for scope, entries in tables)


def check(method, seed):
    """Compare the mode of a random model with all its states; return whether it was proved."""
    rng = np.random.default_rng(seed)
    cards, tables = random_tables(rng)
    evidence = {"x0": int(rng.integers(cards[0]))} if rng.random() < 0.5 else {}
    every = [
        np.array(s)
        for s in itertools.product(*map(range, cards))
        if not evidence or s[0] == evidence["x0"]
    ]
    best = max(log_density(tables, s) for s in every)
    model = model_of(cards, tables)
    if np.isneginf(best):
        try:
            r = pgm.infer(model, evidence, want=("mode",), method=method, rng=0)
        except pgm.PgmError as error:
            assert "probability zero" in str(error)
            return True
        assert r.status is pgm.Status.IMPOSSIBLE and r.kind == "lower bound"
        return False
    r = pgm.infer(model, evidence, want=("mode",), method=method, rng=0)
    if r.status is pgm.Status.IMPOSSIBLE:
        assert r.mode_gap[0] == np.inf and "no state was found" in r.warnings[0]
        return False
    assert r.status is pgm.Status.OK
    found = r.assignment()
    state = np.array([found[f"x{i}"] for i in range(UNITS)], dtype=int)
    assert not evidence or state[0] == evidence["x0"]
    value, gap = log_density(tables, state), float(r.mode_gap[0])
    assert value <= best + 1e-9 and best <= value + gap + 1e-9
    assert (r.kind == "exact") == (gap == 0)
    return gap == 0


@pytest.mark.parametrize("seed", range(200))
def test_searched_modes_are_within_their_gap(seed):
    check(pgm.ModeSearch(sweeps=60), seed)


@pytest.mark.parametrize("seed", range(500))
def test_toulbar2_proves_the_best_of_all_states(seed):
    extra("pytoulbar2")
    assert check(pgm.Toulbar2(), seed)


def glass(side, seed):
    """A spin glass with fields, as tables of four-state units."""
    rng = np.random.default_rng(seed)
    b = pgm.GraphBuilder()
    x = b.variable("x", states=4, shape=(side, side))
    b.table((x,), rng.normal(0, 1, (side, side, 4)), log=True)
    b.table((x[1:], x[:-1]), rng.normal(0, 2, (side - 1, side, 4, 4)), log=True)
    b.table((x[:, 1:], x[:, :-1]), rng.normal(0, 2, (side, side - 1, 4, 4)), log=True)
    return b.build()


def test_a_search_that_is_over_gives_its_best_state_and_the_gap():
    extra("pytoulbar2")
    model = glass(30, 0)
    solved = pgm.infer(model, want=("mode",), method=pgm.Toulbar2(seconds=1))
    searched = pgm.infer(model, want=("mode",), method=pgm.ModeSearch(), rng=0)
    one, other = (
        float(model.log_density({"x": r.raw("mode")["x"][None]})[0]) for r in (solved, searched)
    )
    for r in (solved, searched):
        assert r.kind == "lower bound" and 0 < r.mode_gap[0] < 1e4 and r.status.good
    # Both bounds hold for both states.
    assert one <= other + searched.mode_gap[0] and other <= one + solved.mode_gap[0]


def test_auto_gives_a_mode_where_no_tree_fits():
    model = glass(30, 1)
    with pytest.raises(pgm.PgmError):
        pgm.infer(model, want=("mode",), method=pgm.Exact())
    r = pgm.infer(
        model, want=("mode",), method=pgm.Auto(candidates=(pgm.Exact(), pgm.ModeSearch()))
    )
    assert r.kind == "lower bound" and "ModeSearch" in str(r) and r.mode_gap[0] > 0


def test_rows_have_modes_and_gaps_of_their_own():
    model = glass(4, 2)
    rows = np.full((3, 4, 4), None, dtype=object)
    rows[1, 0, 0], rows[2, 3, 3] = 2, 1
    exact = pgm.infer(model, {"x": rows}, want=("mode",), method=pgm.Elimination())
    found = pgm.infer(model, {"x": rows}, want=("mode",), method=pgm.ModeSearch(), rng=0)
    assert found.mode_gap.shape == (3,) and exact.mode_gap.tolist() == [0, 0, 0]
    for row in range(3):
        best, own = (
            float(model.log_density({"x": r.raw("mode")["x"][[row]]})[0]) for r in (exact, found)
        )
        assert own <= best + 1e-9 <= own + found.mode_gap[row] + 2e-9


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pytoulbar2", None)
    with pytest.raises(pgm.PgmError, match=r"pip install 'pgmengine\[map\]'"):
        pgm.infer(glass(3, 0), want=("mode",), method=pgm.Toulbar2())


def test_nothing_is_left_open_without_free_units():
    model = glass(2, 0)
    r = pgm.infer(
        model, {"x": np.zeros((2, 2), dtype=int)}, want=("mode",), method=pgm.ModeSearch()
    )
    assert r.kind == "exact" and r.mode_gap.tolist() == [0]


@pytest.mark.parametrize("want", ["mode", "marginals"])
def test_weights_without_digits_leave_no_proof(want):
    """Neither a gap nor an interval is given of what rounding has reached."""
    model = pgm.rbm(6, 4, rng=0)
    key = next(k for k, w in model.params.items() if np.ndim(w) == 2)
    huge = model.with_params({key: 1e9 * model.params[key]})
    method = pgm.ModeSearch() if want == "mode" else pgm.MiniBucket(max_states=8, seconds=1)
    with pytest.raises(pgm.PgmError, match="rounding of log weights so large"):
        pgm.infer(huge, want=(want,), method=method, rng=0)


def constraints(seed):
    """Return cards and tables of a few entries that are mostly 0, by scope."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 8)), int(rng.integers(2, 4))
    tables = []
    for _ in range(int(rng.integers(1, 12))):
        scope = rng.choice(n, min(int(rng.integers(1, 4)), n), replace=False).tolist()
        some = rng.random((k,) * len(scope)) < rng.choice([0.3, 0.5, 0.8])
        if some.any():
            tables.append((scope, some * rng.uniform(0.5, 2.0, some.shape)))
    b = pgm.GraphBuilder()
    x = b.variable("x", states=k, shape=n)
    for scope, table in tables:
        b.table(tuple(x[i] for i in scope), table)
    with np.errstate(divide="ignore"):
        logs = [
            sum(np.log(table[tuple(state[i] for i in scope)]) for scope, table in tables)
            for state in itertools.product(range(k), repeat=n)
        ]
    return b.build(), max(logs, default=0.0)


@pytest.mark.parametrize("seed", range(40))
def test_a_possible_state_is_found_or_proved_absent(seed):
    for number in range(seed * 10, seed * 10 + 10):
        model, best = constraints(number)
        (one,) = mode_factors(model.given())
        if np.isneginf(one.conditioned.constant(model.given())).any():
            continue
        factors = one.of_row(model.given())
        state = possible_state(factors)
        assert len(state) == 0 if np.isneginf(best) else np.isfinite(factors.value(state))
        search = pgm.ModeSearch(sweeps=20)
        if np.isneginf(best):
            with pytest.raises(pgm.PgmError, match="impossible|probability"):
                pgm.infer(model, want=("mode",), method=search, rng=0)
        else:
            assert pgm.infer(model, want=("mode",), method=search, rng=0).status.good


def test_a_hard_sudoku_is_solved_without_a_package():
    b = pgm.GraphBuilder()
    z = b.variable("z", states=9, shape=81)
    cells = np.arange(81).reshape(9, 9)
    groups = [*cells, *cells.T, *cells.reshape(3, 3, 3, 3).swapaxes(1, 2).reshape(9, 9)]
    pairs = {(min(i, j), max(i, j)) for g in groups for i in g for j in g if i != j}
    one, two = np.array(sorted(pairs)).T
    b.table((z[one], z[two]), 1 - np.eye(9), name="differ")
    given = "1....7.9..3..2...8..96..5....53..9...1..8...26....4...3......1..4......7..7...3.."
    row = [np.nan if c == "." else int(c) - 1 for c in given]
    r = pgm.infer(b.build(), {"z": row}, want=("mode",), method=pgm.ModeSearch(), rng=0)
    assert r.kind == "exact" and r.status.good
    for group in groups:
        assert sorted(r.assignment()["z"][group]) == list(range(9))
