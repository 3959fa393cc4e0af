"""Bounds by weighted mini-buckets contain the exact values, by enumeration in plain numpy.

Random questions of mixed_questions.py have zeros, evidence of mixed patterns, soft evidence,
interventions, gates, couplings, continuous leaves and 1 to 6 states. The tables are so small that
most questions are split.
"""

import itertools

import numpy as np
import pytest
from mixed_questions import question

import pgmengine as pgm
from pgmengine.infer.bounds.mini_buckets import mini_buckets

# The rounding error of the enumeration itself, relative to the size of log Z, and in probabilities.
ORACLE, ORACLE_PROB = 1e-11, 1e-12
# Questions that are split in the quick lane and in all long items, and in one of them; one in MOST
# has to be.
QUICK, LONG, A_BLOCK, MOST = 5, 2000, 100, 9
WANT = ("log_z", "marginals")


def inside(low, value, high, slack):
    return (low <= value + slack) & (value - slack <= high)


def check_question(seed):
    """Compare the bounds of the possible rows of a question; return how it was answered."""
    q, rng = question(seed, most_rows=4), np.random.default_rng([62, seed])
    index = q.possible
    if not index:
        return ""
    most, seconds = float(rng.choice([1.0, 2.0, 4.0])), float(rng.choice([0.002, 0.02, 0.05]))
    method, model = pgm.MiniBucket(max_states=most, seconds=seconds), q.graph.build()
    found = q.arguments(index)
    arguments = {"evidence": {}} | found
    if pgm.explain(model, want=WANT, method=method, **arguments).chosen is None:
        want = ("log_z",)
    else:
        want = WANT
    r = pgm.infer(model, want=want, method=method, **arguments)
    for i, row in enumerate(index):
        oracle, where = q.oracles[row], f"seed {seed}, row {row}, {method}"
        slack = ORACLE * (1.0 + abs(oracle.log_z))
        assert inside(*r.log_z_interval[i, [0]], oracle.log_z, r.log_z_interval[i, 1], slack), where
        assert inside(*r.log_z_interval[i, [0]], r.log_z[i], r.log_z_interval[i, 1], 0.0), where
        if want == WANT:
            check_marginals(q.graph, oracle, r, i, where)
    return r.kind


def check_marginals(graph, oracle, r, row, where):
    for name, layer in graph.layers.items():
        if layer.unit.support is None:
            continue
        for unit in range(layer.size):
            joint = np.ravel(oracle.joint((name, unit)))
            interval, point = (r.prob_interval[name][row, unit], r.prob[name][row, unit])
            assert inside(interval[:, 0], joint, interval[:, 1], ORACLE_PROB).all(), where
            assert inside(interval[:, 0], point, interval[:, 1], ORACLE_PROB).all(), where
            np.testing.assert_allclose(point.sum(), 1.0, rtol=1e-12)


def check_many(first, count):
    """Check questions until so many of them had to be split; the others are exact."""
    split, number = 0, 0
    while split < count:
        kind = check_question(first + number)
        assert kind in ("bounds", "exact", "")
        split, number = split + (kind == "bounds"), number + 1
        assert number < MOST * count, "too few questions are split"


def test_bounds_of_random_questions_hold():
    check_many(0, QUICK)


@pytest.mark.long
@pytest.mark.parametrize("block", range(LONG // A_BLOCK))
def test_bounds_of_many_random_questions_hold(block):
    check_many(1000 * (block + 1), A_BLOCK)


def dense(seed, n=8, states=2):
    """A model of pairs and triples, and its exact log Z by enumeration."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    b.layer("x", pgm.Spin() if states == 2 else pgm.Categorical(states), n)
    x = np.array(list(itertools.product(range(states), repeat=n)))
    total = np.zeros(len(x))
    for m in [2] * 12 + [3] * 4:
        scope = rng.choice(n, m, replace=False).tolist()
        table = np.exp(rng.normal(size=(states,) * m))
        b.tables(("x",) * m, [scope], table)
        total += np.log(table[tuple(x[:, scope].T)])
    return b.build(), np.logaddexp.reduce(total)


@pytest.mark.parametrize("states", [2, 3])
def test_more_states_and_steps_are_tighter_and_at_last_exact(states):
    model, exact = dense(3, states=states)
    gaps = []
    for most in (4, 32, 2**20):
        r = pgm.infer(model, want=("log_z",), method=pgm.MiniBucket(most, seconds=0.3))
        low, high = r.log_z_interval[0]
        assert low <= exact + 1e-12 and exact - 1e-12 <= high
        gaps.append(high - low)
    assert gaps[0] > gaps[1] >= gaps[2] and gaps[2] < 1e-11 and r.kind == "exact"
    assert r.plan.guarantee == "exact" and r.stats["split"] == 0


def test_log_p_of_the_evidence_has_an_interval():
    model, _ = dense(4)
    evidence = {"x": [[1, -1] + [np.nan] * 6, [np.nan] * 7 + [1]]}
    want = ("log_prob",)
    exact = pgm.infer(model, evidence, want, method=pgm.Exact()).log_prob
    r = pgm.infer(model, evidence, want, method=pgm.MiniBucket(4, seconds=0.2))
    assert r.kind == "bounds" and r.log_prob_interval.shape == (2, 2)
    assert (r.log_prob_interval[:, 0] <= exact).all() and (exact <= r.log_prob_interval[:, 1]).all()


def test_an_impossible_row_has_a_log_z_of_minus_infinity():
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 2)
    b.tables(("x", "x"), [[0, 1]], [[1.0, 0.0], [1.0, 1.0]])
    method, evidence = pgm.MiniBucket(2, seconds=0.1), {"x": [-1, 1]}
    assert pgm.infer(b.build(), evidence, ("log_z",), method).log_z[0] == -np.inf
    with pytest.raises(pgm.PgmError, match="probability zero"):
        pgm.infer(b.build(), evidence, ("marginals",), method)


def test_tables_of_mini_buckets_hold_every_factor_once_and_stay_small():
    rng = np.random.default_rng(0)
    cards = rng.integers(2, 4, 12).tolist()
    scopes = [tuple(rng.choice(12, 3, replace=False).tolist()) for _ in range(30)]
    graph = mini_buckets(cards, scopes, list(range(12)), 64)
    assert sorted(f for part in graph.parts for f in part.factors) == list(range(30))
    sent = [child for part in graph.parts for child in part.children]
    ends = [r for r, part in enumerate(graph.parts) if len(part.scope) == 1]
    assert sorted(sent + ends) == list(range(len(graph.parts)))
    assert max(part.entries for part in graph.parts) <= 64 and graph.split


def test_marginals_of_continuous_units_are_refused():
    b = pgm.GraphBuilder()
    x, y = b.layer("x", pgm.Spin(), 3), b.layer("y", pgm.Gaussian(), 3)
    b.couple(x, y, 0.3)
    plan = pgm.MiniBucket().plan(b.build().given(), "marginals")
    assert "finitely many values" in plan.refusal and "y" in plan.refusal
