"""Conditioning on variables outside a junction tree, against the junction tree of all variables."""

import numpy as np
import pytest
from lattices import edges
from loops import one_test_over
from random_graphs import Oracle, as_arguments, as_hints, draw_question, random_graph
from scipy.stats import chi2

import pgmengine as pgm
from pgmengine._kernels import JunctionTree
from pgmengine.infer.exact.junction_tree import cutset
from pgmengine.infer.exact.junction_tree.cutset import Factors, condition_on_cutset, cutset_of
from pgmengine.infer.exact.junction_tree.elimination_order import best_order

EXACT = {"rtol": 1e-10, "atol": 1e-10}
FALSE_ALARM = 1e-6


def random_factors(seed):
    """Variables of 1 to 3 states, and tables over up to 3 of them, some entries impossible."""
    rng = np.random.default_rng([41, seed])
    n = int(rng.integers(3, 8))
    cards = rng.integers(1, 4, n)
    scopes = [[int(v)] for v in range(n)]
    scopes += [rng.permutation(n)[: rng.integers(1, 4)].tolist() for _ in range(8)] + [[]]
    start = np.cumsum([0, *map(len, scopes)])
    scope = np.array([v for s in scopes for v in s], dtype=np.int32)
    lanes = int(rng.integers(1, 4))
    wide = (rng.random(len(scopes)) < 0.5).astype(np.uint8)
    values = []
    for s, many in zip(scopes, wide, strict=True):
        size = int(np.prod(cards[s])) * (lanes if many else 1)
        table = rng.normal(0, 2, size)
        values.append(np.where(rng.random(size) < 0.1, -np.inf, table))
    factors = Factors(cards.astype(np.int64), start.astype(np.int64), scope)
    return factors, np.concatenate(values), lanes, wide, rng


def trees_of(factors, variables):
    whole = best_order(factors.cards, factors.start, factors.scope)
    inner = factors.without(variables)
    order = best_order(inner.cards, inner.start, inner.scope)
    tree = JunctionTree(factors.cards, factors.start, factors.scope, whole.order)
    return tree, cutset_of(factors, order, variables)


def in_lanes(factors, values, lanes, wide):
    """The tables of all factors, lane by lane."""
    counts = factors.sizes * np.where(wide, lanes, 1)
    parts = np.split(values, np.cumsum(counts)[:-1])
    tables = [np.broadcast_to(x.reshape(n, -1), (n, lanes)) for x, n in zip(parts, factors.sizes)]
    return list(np.concatenate(tables).T.copy())


@pytest.mark.parametrize("seed", range(60))
def test_all_quantities_equal_those_of_one_tree(seed, monkeypatch):
    factors, values, lanes, wide, rng = random_factors(seed)
    monkeypatch.setattr(cutset, "MAX_STATES_AT_ONCE", int(rng.integers(1, 6)))
    variables = rng.permutation(len(factors.cards))[: rng.integers(1, 4)]
    tree, split = trees_of(factors, variables)
    asked = np.flatnonzero(rng.random(len(factors.sizes)) < 0.6)
    wanted = {"marginals": True, "expected": asked, "mode": True}
    truth = tree.run(values, lanes=lanes, wide=wide, **wanted)
    found = split.run(in_lanes(factors, values, lanes, wide), **wanted)
    for name in ("log_z", "marginals", "expected", "mode_value"):
        np.testing.assert_allclose(found[name], truth[name], **EXACT, err_msg=name)
    np.testing.assert_array_equal(found["mode"], truth["mode"])


@one_test_over("seed", range(6))
def test_draws_have_the_joint_distribution(seed, draws=20_000):
    """Pearson's statistic of all states of each lane; a false alarm has probability 1e-6 a test."""
    factors, values, lanes, wide, rng = random_factors(100 + seed)
    variables = rng.permutation(len(factors.cards))[:2]
    tree, split = trees_of(factors, variables)
    key = rng.integers(0, 2**32, 4, dtype=np.uint32)
    one = split.run(in_lanes(factors, values, lanes, wide), draws=draws, key=key)["samples"]
    two = tree.run(values, lanes=lanes, wide=wide, draws=draws, key=key)
    for lane in range(lanes):
        if two["log_z"][lane] == -np.inf:
            assert (one[:, lane] == -1).all()
            continue
        both = [np.ravel_multi_index(x[:, lane].T, factors.cards) for x in (one, two["samples"])]
        counts = np.array([np.bincount(x, minlength=np.prod(factors.cards)) for x in both])
        counts = counts[:, np.argsort(-counts.sum(axis=0))]
        many = counts.sum(axis=0) >= 20
        cells = np.column_stack([counts[:, many], counts[:, ~many].sum(axis=1)])
        cells = cells[:, cells.sum(axis=0) > 0]
        value = ((cells[0] - cells[1]) ** 2 / cells.sum(axis=0)).sum()
        assert value < chi2.isf(FALSE_ALARM / lanes, max(cells.shape[1] - 1, 1))
        # Neighbouring draws are independent: no joint state outside comes in a block.
        first = one[:, lane, variables[0]]
        same, share = (first[1:] == first[:-1]).mean(), np.bincount(first) / draws
        assert abs(same - (share**2).sum()) < 5.5 / np.sqrt(draws)


@one_test_over("seed", range(60))
def test_answers_of_random_models(seed):
    """A limit below the entries of the tree leads to variables outside, unless the tree is tiny."""
    graph = random_graph(seed, 2**10)
    asked = draw_question(graph, seed, rows=1 + seed % 3)
    arguments = {
        "evidence": as_arguments(graph, asked, 0),
        "soft": as_hints(graph, asked),
        "do": as_arguments(graph, asked, 2),
    }
    model, want = graph.build(), ("log_z", "marginals", "gradient", "mode", "pairs")
    whole = pgm.infer(model, want=want, method=pgm.Elimination(), **arguments)
    method = pgm.Elimination(max_states=max(whole.stats["entries"] / 6, len(graph.units)))
    found = pgm.infer(model, want=want, method=method, **arguments)
    np.testing.assert_allclose(found.log_z, whole.log_z, **EXACT)
    for name in whole.mean:
        np.testing.assert_allclose(found.mean[name], whole.mean[name], **EXACT)
    for name, value in whole.gradient.items():
        assert abs(found.gradient[name] - value).max() < 1e-8
    for i, row in enumerate(asked):
        oracle = Oracle(graph, *row)
        last = len(found.log_z) - 1
        np.testing.assert_allclose(found.log_z[min(i, last)], oracle.log_z, **EXACT)


def spin_glass(side, seed=0):
    rng = np.random.default_rng(seed)
    index = edges(side)
    w = rng.normal(0, 1, len(index))
    values = np.exp(w[:, None, None] * np.array([[1, -1], [-1, 1]]))
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Spin(), side * side, bias=rng.normal(0, 0.2, side * side))
    b.tables(("s", "s"), index, values)
    return b.build()


def test_a_lattice_that_is_too_wide_has_variables_outside():
    model, want = spin_glass(11), ("log_z", "marginals", "mode")
    whole = pgm.infer(model, want=want, method=pgm.Elimination())
    method = pgm.Elimination(max_states=2**13)
    found = pgm.infer(model, want=want, method=method)
    assert "conditioning on a cutset of" in found.plan.why
    assert whole.stats["entries"] > 2**14 > 2 * found.stats["entries"]
    np.testing.assert_allclose(found.log_z, whole.log_z, **EXACT)
    np.testing.assert_allclose(found.mean["s"], whole.mean["s"], **EXACT)
    np.testing.assert_array_equal(found.mode["s"], whole.mode["s"])


def test_work_is_limited():
    model = spin_glass(11)
    plan = pgm.Elimination(max_states=2**10, max_work=2**18).plan(model.given(), ("log_z",))
    assert "2^18 entries in all passes" in plan.refusal
    with pytest.raises(pgm.PgmError, match="refused"):
        pgm.infer(model, want=("log_z",), method=pgm.Elimination(max_states=2**10, max_work=2**18))


def test_variables_outside_are_as_few_as_the_limit_needs():
    model = spin_glass(6)
    index = model.structure.table_index
    factors = Factors(np.full(36, 2), index.start.astype(np.int64), index.unit.astype(np.int32))
    order = best_order(factors.cards, factors.start, factors.scope)
    found = condition_on_cutset(factors, order, order.entries - 1, 2.0**30)
    assert found is not None
    assert len(found[1].variables) == 1
    assert condition_on_cutset(factors, order, order.entries / 64, order.entries) is None


def ring(variables, states):
    b, rng = pgm.GraphBuilder(), np.random.default_rng(0)
    for i in range(variables):
        b.variable(f"x{i}", states)
    for i in range(variables):
        scope = (f"x{i}", f"x{(i + 1) % variables}")
        b.table(scope, rng.random((states, states)))
    return b.build()


@one_test_over(
    ("limits", "reason"),
    [
        ((8, 2**36), "even a cutset of all 9 variables leaves as many entries"),
        ((9, 2**9), "with the cutset that a search chose it needs more than 2^9 entries"),
        ((20, 2**5), "with any cutset it needs more than 2^5 entries in all passes"),
    ],
)
def test_the_reason_why_variables_outside_are_no_help(limits, reason):
    """All 9 variables outside leave 9 entries in each of 2^9 passes; the tree has 56 entries."""
    model, want = ring(9, 2), ("log_z",)
    states, work = limits
    with pytest.raises(pgm.PgmError) as error:
        pgm.infer(model, want=want, method=pgm.Elimination(max_states=states, max_work=work))
    assert reason in str(error.value)
    enough = pgm.Elimination(max_states=9, max_work=9 * 2**9)
    log_z = pgm.infer(model, want=want, method=enough).log_z
    np.testing.assert_allclose(log_z, pgm.infer(model, want=want).log_z, rtol=1e-12)


@pytest.mark.parametrize("most", (2**70, np.inf))
def test_a_limit_beyond_every_tree_is_named_in_the_refusal(most):
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Spin(), 60)
    b.couple("s", "s", weight=np.ones((60, 60)) - np.eye(60))
    plan = pgm.Elimination(max_states=most).plan(b.build().given(), ("log_z",))
    assert "needs 2^60 table entries, the limit is 2^50" in plan.refusal
    assert f"max_states is {most:.4g}" in plan.refusal


def test_a_limit_beyond_every_float_is_refused():
    with pytest.raises(pgm.PgmError, match="max_states must be a number of at least 0"):
        pgm.Elimination(max_states=10**400)
