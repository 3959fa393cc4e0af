"""Belief propagation against plain numpy message by message, and against exact answers on trees."""

import itertools

import numpy as np
import pytest
from exact_answers import check_rows
from loops import one_test_over
from mixed_questions import question
from plain_messages import Plain

import pgmengine as pgm
from pgmengine.infer.exact.junction_tree.factors import Scopes
from pgmengine.infer.messages.factor_graph import FactorGraph

SWEEPS = 4
WANTS = ("mode",), ("log_z", "log_prob", "marginals", "pairs"), ("log_z", "marginals")


def by_count(rng, n, states):
    """A table that depends on the number of ones, or on its parity."""
    entries = np.log(rng.gamma(0.5, size=states)) - np.where(rng.random(states) < 0.3, np.inf, 0)
    entries[rng.integers(states)] = 0.0
    return entries[np.indices((2,) * n).sum(axis=0) % states]


def random_factors(seed):
    """Numbers of states, and factors with zeros, counts, parities, constants and wide ranges."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 5, 9)
    cards[:6] = 2
    factors = [((), np.array(rng.normal()))]
    for _ in range(rng.integers(5, 14)):
        scope = rng.permutation(len(cards))[: rng.integers(1, 4)]
        # Some factors are so peaked that products of messages leave the range of numbers.
        logs = rng.normal(size=cards[scope]) * rng.choice([1.0, 3.0, 300.0], p=[0.6, 0.3, 0.1])
        logs[rng.random(logs.shape) < rng.choice([0.0, 0.3])] = -np.inf
        logs.flat[rng.integers(logs.size)] = 0.0
        factors.append((tuple(scope.tolist()), logs))
    for n in rng.integers(3, 7, 3).tolist():
        scope = rng.permutation(6)[:n]
        factors.append((tuple(scope.tolist()), by_count(rng, n, int(rng.choice([2, n + 1])))))
    return rng, cards, factors


def graph_of(cards, factors):
    start = np.cumsum([0, *(len(scope) for scope, _ in factors)])
    scope = np.array([v for scope, _ in factors for v in scope], dtype=np.int32)
    sizes = np.array([logs.size for _, logs in factors])
    return FactorGraph(cards, Scopes(start, scope), sizes)


def passed(graph, log, maximum, dampings):
    """The compiled messages after a sweep for each damping; None where nothing is possible."""
    messages = graph.messages(maximum)
    if not messages.begin(log):
        return None
    for damping in dampings:
        if messages.run(np.empty(1), 0.0, damping) < 0:
            return None
    return messages


@pytest.mark.parametrize("block", range(10))
def test_messages_are_those_of_plain_numpy(block):
    for seed in range(20 * block, 20 * block + 20):
        check_messages(seed, False)
        check_messages(seed, True)


def check_messages(seed, maximum):
    _, cards, factors = random_factors(seed)
    graph, log = graph_of(cards, factors), np.concatenate([x.ravel() for _, x in factors])
    plain, dampings = Plain(cards, factors, maximum), [0.0, 0.0, 0.3, 0.7, 0.3][: SWEEPS + 1]
    for damping in dampings:
        plain.impossible or plain.sweep(graph.factors.tolist(), damping)
    messages = passed(graph, log, maximum, dampings)
    assert (messages is None) == plain.impossible
    if messages is None:
        return
    for f, (scope, _) in enumerate(factors):
        expected = np.concatenate([[], *(plain.sent[f, i] for i in range(len(scope)))])
        np.testing.assert_allclose(messages.sent(f)[0], expected, rtol=1e-9, atol=1e-9)
    weights = np.full(cards.sum(), np.nan)
    messages.log_weights(weights)
    for v, x in enumerate(np.split(weights, np.cumsum(cards)[:-1])):
        np.testing.assert_allclose(
            np.exp(x - x.max()), np.exp(plain.into(v) - plain.into(v).max()), atol=1e-10
        )
    for f, (_, logs) in enumerate(factors):
        own = np.full(logs.size, np.nan)
        messages.of_factors(np.array([f]), own)
        expected = plain.weights(f).ravel()
        np.testing.assert_allclose(own - own.max(), expected - expected.max(), atol=1e-8)


def test_counts_are_recognised_by_their_entries():
    rng = np.random.default_rng(0)
    expected = {2: by_count(rng, 5, 2), 8: by_count(rng, 7, 8), 0: rng.normal(size=(2,) * 7)}
    small = {"pairs": by_count(rng, 2, 2), "three states": np.zeros((2, 2, 2, 3, 2, 2))}
    for counts, logs in [*expected.items(), *((0, x) for x in small.values())]:
        graph = graph_of(np.array(logs.shape), [(tuple(range(logs.ndim)), logs)])
        messages = graph.messages(False)
        messages.begin(logs.ravel())
        assert messages.sent(0)[1] == counts


def ask(q, index, want):
    """The answer for some rows of a question; None where the method refuses it."""
    method, model = pgm.BeliefPropagation(), q.graph.build()
    found = {"evidence": {}} | q.arguments(index)
    if pgm.explain(model, want=want, method=method, **found).chosen is None:
        return None
    return pgm.infer(model, want=want, method=method, **found)


def check_random_question(seed):
    """Rows together and alone, and all exact answers against enumeration."""
    q = question(seed, most_rows=4)
    if not (index := q.possible):
        return ""
    for want in WANTS:
        if (r := ask(q, index, want)) is None:
            continue
        if r.kind == "exact":
            check_rows(q, index, r, f"{want} of seed {seed}")
        elif "mode" in want:
            check_states(q, index, r)
        if "mode" not in want:
            check_alone(q, index, r, want)
    return "" if r is None else r.kind


def check_states(q, index, r):
    """States that are no modes for sure are not above the best one, and possible or said not to."""
    own = [
        q.oracles[row].log_weight_of({n: r.mode[n][i] for n in q.graph.layers})
        for i, row in enumerate(index if q.graph.finite else ())
    ]
    best = [q.oracles[row].log_weight.max() for row in index[: len(own)]]
    assert r.kind == "lower bound" and np.isin(r.mode_gap, (0, np.inf)).all()
    assert np.all(np.array(own) <= np.array(best) + 1e-9)
    assert np.isfinite(own).all() == (r.status is not pgm.Status.IMPOSSIBLE) or not own


def check_alone(q, index, r, want):
    for i, row in enumerate(index):
        one = ask(q, [row], want)
        if not (one.status.good and r.status.good):
            continue
        where = f"row {row} of seed {q.seed}"
        np.testing.assert_allclose(r.log_z[i], one.log_z[0], rtol=1e-6, atol=1e-6, err_msg=where)
        for name in r.mean:
            np.testing.assert_allclose(r.mean[name][i], one.mean[name][0], atol=1e-6)


def check_questions(seeds):
    kinds = [check_random_question(seed) for seed in seeds]
    assert {"exact", "approximation"} <= {*kinds}


def test_random_questions_have_equal_answers_in_all_rows_and_exact_ones_on_trees():
    check_questions(range(8))


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_many_random_questions_have_the_same_answers(block):
    check_questions(range(1000 * (block + 1), 1000 * (block + 1) + 100))


def loopy(seed):
    """A declared model of tables with loops, the same as plain factors, and rows with gaps."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    cards = rng.integers(2, 4, 8)
    x = [b.variable(f"x{i}", states=int(k)) for i, k in enumerate(cards)]
    factors = []
    for arity in [2] * 8 + [3] * 2:
        scope = rng.permutation(8)[:arity].tolist()
        table = rng.gamma(3.0, size=cards[scope])
        table[rng.random(table.shape) < 0.1] = 0.0
        b.table([x[i] for i in scope], table)
        with np.errstate(divide="ignore"):
            factors.append((tuple(scope), np.log(table)))
    seen = np.where(rng.random((4, 8)) < 0.25, rng.integers(0, 2, (4, 8)), -1)
    soft = [rng.normal(size=(4, k)) * (seen[:, [i]] < 0) for i, k in enumerate(cards)]
    return cards, b.build(), factors, seen, soft


def plain_row(cards, factors, seen, soft):
    """Converged plain messages of a row whose evidence and soft evidence are factors."""
    own = [
        ((v,), np.where((k < 0) | (np.arange(cards[v]) == k), logs, -np.inf))
        for v, (k, logs) in enumerate(zip(seen, soft, strict=True))
    ]
    plain = Plain(cards, [*factors, *own])
    for _ in range(200):
        if plain.sweep([*range(len(factors) + len(own))]) < 1e-12 or plain.impossible:
            break
    return plain


@one_test_over("seed", range(4))
def test_rows_with_gaps_and_soft_evidence_are_fixed_points_of_plain_messages(seed):
    cards, model, factors, seen, soft = loopy(seed)
    plains = [plain_row(cards, factors, seen[i], [x[i] for x in soft]) for i in range(4)]
    rows = [i for i in range(4) if not plains[i].impossible]
    evidence = {f"x{v}": np.where(seen[rows, v] < 0, np.nan, seen[rows, v]) for v in range(8)}
    r = pgm.infer(
        model,
        evidence,
        ("log_z", "log_prob", "marginals"),
        pgm.BeliefPropagation(),
        soft={f"x{v}": x[rows] for v, x in enumerate(soft)},
    )
    prior = plain_row(cards, factors, [-1] * 8, [np.zeros(k) for k in cards]).log_z()
    assert r.kind == "approximation" and r.status.good and np.isnan(r.log_prob_error).all()
    for i, row in enumerate(rows):
        np.testing.assert_allclose(r.log_z[i], plains[row].log_z(), atol=1e-6)
        np.testing.assert_allclose(r.log_prob[i], plains[row].log_z() - prior, atol=1e-6)
        for v, p in enumerate(plains[row].beliefs()):
            found = np.array([x[i] for x in r.marginal(f"x{v}").values()])
            np.testing.assert_allclose(found, p, atol=1e-6)


def frustrated(coupling):
    """Nine binary variables, each pair of which prefers to differ."""
    b = pgm.GraphBuilder()
    x = b.variable("x", states=2, shape=9)
    for i, j in itertools.combinations(range(9), 2):
        b.table((x[i], x[j]), np.exp(-coupling * np.eye(2)))
    return b.build()


def test_a_verdict_says_how_messages_have_ended():
    soft = {"x": np.random.default_rng(0).normal(size=(9, 2))}
    for coupling, method, status in (
        (0.1, pgm.BeliefPropagation(), "OK"),
        (0.1, pgm.BeliefPropagation(sweeps=3), "NOT_CONVERGED"),
        (5.0, pgm.BeliefPropagation(sweeps=50), "OSCILLATING"),
    ):
        r = pgm.infer(frustrated(coupling), want="marginals", method=method, soft=soft)
        assert r.status.name == status and r.kind == "approximation"
        assert (r.stats["residual"][0] > method.tolerance) == (status != "OK")
        assert any("whose error is unknown" in line for line in r.warnings)
        assert (status == "OK") or "messages still change by" in r.warnings[0]


def test_impossible_evidence_is_the_error_of_exact_answers():
    b = pgm.GraphBuilder()
    x = b.variable("x", states=2, shape=3)
    for i, j in ((0, 1), (1, 2), (0, 2)):
        b.table((x[i], x[j]), [[1.0, 0.0], [1.0, 1.0]])
    evidence = {"x": [0, np.nan, 1]}
    for want in ("marginals", "mode"):
        found = []
        for method in (pgm.BeliefPropagation(), pgm.Exact()):
            with pytest.raises(pgm.PgmError, match="probability zero") as error:
                pgm.infer(b.build(), evidence, want, method)
            found.append(str(error.value))
        assert found[0] == found[1]
    r = pgm.infer(b.build(), evidence, "log_prob", pgm.BeliefPropagation())
    assert r.log_z[0] == r.log_prob[0] == -np.inf


@one_test_over(
    "settings, text",
    [
        ({"damping": 1.0}, "damping must be at least 0 and below 1, not 1.0"),
        ({"sweeps": 0}, "sweeps"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
)
def test_wrong_settings_are_errors(settings, text):
    with pytest.raises(pgm.PgmError, match=text):
        pgm.BeliefPropagation(**settings)


def test_checks_and_gates_of_many_variables_have_the_messages_of_their_whole_tables():
    """A check of ten bits, exactly four of nine, and noisy-ors of seven causes, by plain numpy."""
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    x, factors = b.variable("x", states=2, shape=12), []
    for scope, holds in (
        (range(10), lambda *s: sum(s) % 2 == 0),
        (range(3, 12), lambda *s: sum(s) == 4),
    ):
        b.table([x[i] for i in scope], holds)
        states = itertools.product(range(2), repeat=len(scope))
        logs = np.where([holds(*s) for s in states], 0.0, -np.inf)
        factors.append((tuple(scope), logs.reshape((2,) * len(scope))))
    for child in ("a", "b"):
        scope, p = rng.permutation(12)[:7].tolist(), rng.uniform(0.1, 0.8, 7)
        b.conditional(b.variable(child, states=2), [x[i] for i in scope], pgm.noisy_or(p, 0.05))
        states = np.array(list(itertools.product(range(2), repeat=7)))
        off = 0.95 * np.prod(1 - states * p, axis=1)
        logs = np.log(off if child == "a" else 1 - off)
        factors.append((tuple(scope), logs.reshape((2,) * 7)))
    soft = [rng.normal(size=2) for _ in range(12)]
    plain = plain_row(np.full(12, 2), factors, [-1] * 12, soft)
    method = pgm.BeliefPropagation(tolerance=1e-12)
    r = pgm.infer(
        b.build(), {"a": 0, "b": 1}, ("log_z", "marginals"), method, soft={"x": np.array(soft)}
    )
    assert r.status.good and r.kind == "approximation"
    np.testing.assert_allclose(r.log_z, plain.log_z(), atol=1e-8)
    np.testing.assert_allclose(r.marginal("x")[1], [p[1] for p in plain.beliefs()], atol=1e-9)


def test_fewer_sweeps_are_made_where_time_is_short():
    model, method = frustrated(5.0), pgm.BeliefPropagation(sweeps=10_000)
    target = model.given()
    most = method.plan(target, "marginals").most_seconds
    fewer = method.faster(target, ("marginals",), most / 100)
    assert fewer == pgm.BeliefPropagation(sweeps=100)
    assert fewer.plan(target, "marginals").most_seconds <= most / 99
    assert method.faster(target, ("marginals",), most / 10_000) is None


def test_auto_asks_for_messages_last_and_says_so():
    """Checks of bits, between whose words no chain of single bits moves."""
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    x = b.variable("x", states=2, shape=120)
    checks = np.concatenate([rng.permutation(120).reshape(-1, 6) for _ in range(3)])
    b.table([x[checks[:, i]] for i in range(6)], lambda *s: sum(s) % 2 == 0)
    soft = np.where(rng.random((120, 1)) < 0.04, [0.0, 3.0], [3.0, 0.0])
    draws = pgm.MCMC(chains=4, warmup=20, draws=50)
    auto = pgm.Auto(candidates=(pgm.Exact(max_states=2), draws, pgm.BeliefPropagation()))
    r = pgm.infer(b.build(), soft={"x": soft}, method=auto, rng=0)
    assert (
        r.kind == "approximation"
        and r.status.good
        and [p.method for p in r.refused] == [*("Exact", "MCMC")]
    )
    assert any("`refused` says why" in line for line in r.warnings)
    assert (r.marginal("x")[1] < 0.5).all()
    assert type(pgm.Auto().candidates[-1]) is pgm.BeliefPropagation
