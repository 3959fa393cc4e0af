"""Junction trees restricted to rows of evidence, against the whole tree with indicator tables."""

import numpy as np
import pytest
from comparisons import flat
from loops import one_test_over

from pgmengine._kernels import JunctionTree, restricted_entries, run_restricted
from pgmengine.base.errors import PgmError
from pgmengine.infer.exact.junction_tree.impossible_states import remove_impossible

KEY = np.arange(4, dtype=np.uint32)


def graph(rng, most=7):
    """Cards, scopes (one variable each first), and whether each factor differs between rows."""
    n = int(rng.integers(0, most + 1))
    cards = rng.integers(1, 5, n)
    scopes = [(v,) for v in range(n)]
    for _ in range(int(rng.integers(0, 9))):
        scopes.append(tuple(rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)].tolist()))
    return cards, scopes, rng.integers(0, 2, len(scopes)).astype(np.uint8)


def arrays(scopes):
    start = np.cumsum([0, *map(len, scopes)], dtype=np.int64)
    return start, np.array([v for s in scopes for v in s], dtype=np.int32)


def tables(rng, cards, scopes, wide, rows, scale, zeros):
    found = []
    for scope, has_rows in zip(scopes, wide):
        shape = (int(np.prod(cards[list(scope)])), *((rows,) * int(has_rows)))
        table = rng.normal(size=shape) * scale
        found.append(np.where(rng.random(shape) < zeros, -np.inf, table))
    return found


def with_evidence(cards, given, wide, seen):
    """The tables of all factors with the evidence in those of single variables, all wide."""
    rows = len(seen)
    out = [t if w else np.repeat(t[:, None], rows, axis=1) for t, w in zip(given, wide)]
    for v, card in enumerate(cards):
        for row in np.flatnonzero(seen[:, v] != -1):
            out[v] = out[v].copy()
            out[v][np.arange(card) != seen[row, v], row] = -np.inf
    return out


@one_test_over("seed", range(6))
def test_rows_of_evidence_are_indicator_tables(seed, *, graphs=60, tolerance=1e-11):
    rng = np.random.default_rng(seed)
    for _ in range(graphs):
        cards, scopes, wide = graph(rng)
        n, rows = len(cards), int(rng.integers(1, 5))
        seen = np.where(rng.random((rows, n)) < 0.4, rng.integers(0, 100, (rows, n)) % cards, -1)
        seen[rng.random((rows, n)) < 0.02] = -2
        scale, zeros = rng.choice([1.0, 30.0, 500.0]), rng.choice([0.0, 0.1, 0.4])
        given = tables(rng, cards, scopes, wide, rows, scale, zeros)
        tree = JunctionTree(cards, *arrays(scopes), rng.permutation(n).astype(np.int32))
        asked = rng.permutation(len(scopes))[: rng.integers(0, len(scopes) + 1)]
        wanted = {"marginals": True, "expected": asked, "mode": True, "draws": 3, "key": KEY}
        found = run_restricted(tree, flat(given), seen, wide=wide, **wanted)
        # Without a distribute pass, messages are on a stack.
        alone = run_restricted(tree, flat(given), seen, wide=wide)["log_z"]
        np.testing.assert_array_equal(alone, found["log_z"])
        every = flat(with_evidence(cards, given, wide, seen))
        wanted["wide"] = np.ones(len(scopes))
        right = tree.run(every, lanes=rows, **wanted)
        for name in ("log_z", "marginals", "expected", "mode_value"):
            np.testing.assert_allclose(found[name], right[name], rtol=tolerance, atol=tolerance)
        impossible = np.isneginf(right["log_z"])
        assert (found["mode"][impossible] == -1).all()
        assert (found["samples"][:, impossible] == -1).all()
        observed = (seen >= 0) & ~impossible[:, None]
        assert (found["mode"] == seen)[observed].all()
        assert (found["samples"] == seen)[:, observed].all()
        for row in np.flatnonzero(~impossible):
            for states in (found["mode"][row], *found["samples"][:, row]):
                assert np.isfinite(log_weight(cards, scopes, given, wide, row, states))
            value = log_weight(cards, scopes, given, wide, row, found["mode"][row])
            np.testing.assert_allclose(value, right["mode_value"][row], rtol=1e-10, atol=1e-10)


def log_weight(cards, scopes, given, wide, row, states):
    total = 0.0
    for scope, table, has_rows in zip(scopes, given, wide):
        place = 0
        for v in scope:
            place = place * cards[v] + states[v]
        total += table[place, row] if has_rows else table[place]
    return total


def test_states_that_the_evidence_excludes_do_not_cost():
    """A chain of copies: one observed variable leaves one state to all others."""
    n, k = 40, 6
    copy = np.where(np.eye(k, dtype=bool), 0.0, -np.inf)
    scopes = [(i, i + 1) for i in range(n - 1)]
    tree = JunctionTree(np.full(n, k), *arrays(scopes), np.arange(n, dtype=np.int32))
    seen = np.full((2, n), -1)
    seen[0, 20], seen[1, [3, 30]] = 4, [1, 2]
    shares = []
    found = run_restricted(
        tree, np.tile(copy.ravel(), n - 1), seen, marginals=True, progress=shares.append
    )
    assert found["log_z"].tolist() == [0.0, -np.inf] and shares == [0.0, 0.5]
    assert (found["marginals"][:, 0].reshape(n, k).argmax(axis=1) == 4).all()
    assert np.isnan(found["marginals"][:, 1]).all()


def test_zeros_of_tables_that_differ_between_rows_exclude_states():
    n, k = 10, 3
    copy = np.where(np.eye(k, dtype=bool), 0.0, -np.inf)
    scopes = [(0,)] + [(i, i + 1) for i in range(n - 1)]
    tree = JunctionTree(np.full(n, k), *arrays(scopes), np.arange(n, dtype=np.int32))
    own = np.array([[0.0, -np.inf], [-np.inf, 0.0], [-np.inf, 0.0]])
    wide = np.zeros(n)
    wide[0] = 1
    values = np.concatenate([own.ravel(), np.tile(copy.ravel(), n - 1)])
    found = restricted_entries(tree, values, np.full((2, n), -1), wide=wide)
    np.testing.assert_allclose(found, [[n - 1, 1], [4 * (n - 1), 4]])


def test_a_table_is_visited_again_when_its_variables_lose_states():
    """a = 0 excludes b = 2; then b = 1 has no c; then d = 1, which is b, is left without a b."""
    cards, scopes = [2, 3, 2, 2], [(0, 1, 3), (1, 2)]
    first = np.full((2, 3, 2), -np.inf)
    first[1] = first[0, 0, 0] = first[0, 1, 1] = 0.0
    second = np.array([[0.0, 0.0], [-np.inf, -np.inf], [0.0, 0.0]])
    tree = JunctionTree(np.array(cards), *arrays(scopes), np.array([0, 3, 1, 2], dtype=np.int32))
    found = restricted_entries(tree, flat([first, second]), np.array([[0, -1, -1, -1]]))
    np.testing.assert_array_equal(found, [[1 + 2, 2]])


@one_test_over("seed", range(4))
def test_impossible_states_are_those_of_the_reference(seed, *, tolerance=1e-12):
    """Answers on the reference's reduced factors are the same."""
    rng = np.random.default_rng(seed)
    for _ in range(30):
        cards, scopes, _ = graph(rng)
        n = len(cards)
        wide = np.zeros(len(scopes), dtype=np.uint8)
        given = tables(rng, cards, scopes, wide, 1, 1.0, 0.5)
        seen = np.where(rng.random((1, n)) < 0.3, rng.integers(0, 100, (1, n)) % cards, -1)
        order = rng.permutation(n).astype(np.int32)
        tree = JunctionTree(cards, *arrays(scopes), order)
        found = run_restricted(tree, flat(given), seen)
        every = flat(with_evidence(cards, given, wide, seen))
        left = remove_impossible(cards, *arrays(scopes), np.isneginf(every))
        if not left.cards.all():
            assert np.isneginf(found["log_z"]).all()
            continue
        reduced = JunctionTree(left.cards, left.start, left.scope, order)
        right = reduced.run(every[left.stays])["log_z"]
        np.testing.assert_allclose(found["log_z"], right, rtol=tolerance, atol=tolerance)


def test_entries_of_rows():
    tree = JunctionTree(
        np.array([2, 3, 4]), *arrays([(0, 1), (1, 2)]), np.arange(3, dtype=np.int32)
    )
    values = np.zeros(18)
    # State 0 of variable 0 excludes all states of variable 1 but the last one.
    values[:2] = -np.inf
    seen = np.array([[-1, -1, -1], [-1, 1, -1], [0, -1, -1], [1, 2, 3], [0, 0, -1]])
    found = restricted_entries(tree, values, seen)
    np.testing.assert_allclose(found, [[18, 12], [5, 4], [5, 4], [2, 1], [0, 0]])
    with pytest.raises(PgmError, match="expected 3"):
        restricted_entries(tree, values, seen[:, :2])


@one_test_over(
    ("change", "message"),
    [
        ({"seen": np.zeros((1, 3))}, "expected 2"),
        ({"seen": np.array([[0, 2]])}, "below 2"),
        ({"seen": np.array([[-3, 0]])}, "below 2"),
        ({"values": np.zeros(3)}, "expected 4"),
        ({"values": np.full(4, np.nan)}, "NaN"),
        ({"wide": [1, 1]}, "wide"),
        ({"expected": [1]}, "expected"),
        ({"draws": 1}, "key"),
    ],
)
def test_malformed_questions_are_refused(change, message):
    tree = JunctionTree(np.array([2, 2]), *arrays([(0, 1)]), np.arange(2, dtype=np.int32))
    arguments = {"values": np.zeros(4), "seen": np.array([[0, -1]])} | change
    with pytest.raises(PgmError, match=message):
        run_restricted(tree, arguments.pop("values"), arguments.pop("seen"), **arguments)
