"""Noisy gates as tables, against the formulas of the field, written without the package."""

from itertools import product

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine import PgmError
from pgmengine.declare.values.noisy_forms import NoisyAverage


def table(values, parents, child):
    """The whole conditional of a gate, from the states of the variables (names or a number)."""
    b = pgm.GraphBuilder()
    names = [f"x{i}" for i in range(len(parents))]
    for name, states in zip(names, parents, strict=True):
        b.variable(name, states=states)
        count = states if isinstance(states, int) else len(states)
        b.conditional(name, (), np.full(count, 1 / count))
    b.variable("y", states=child)
    b.conditional("y", names, values)
    model = b.build()
    assert len(model.structure.gates) == 1 and not model.structure.compact_gates
    (gate,) = model.structure.gates
    return np.exp(model.entries_of(gate))


def by_formula(sizes, row):
    """A conditional (sizes, K) from a function of the states of the parents."""
    rows = [row(states) for states in product(*map(range, sizes))]
    return np.array(rows).reshape(*sizes, -1)


def off_and_on(on):
    return [1 - on, on]


@pytest.mark.parametrize("leak", [0.0, 0.07, 1.0])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_noisy_or_and_noisy_and(count, leak):
    p = np.random.default_rng(count).uniform(size=count)

    def either(x):
        return off_and_on(1 - (1 - leak) * np.prod([1 - a for a, k in zip(p, x, strict=True) if k]))

    def every(x):
        return off_and_on(
            leak + (1 - leak) * np.prod([a if k else 0 for a, k in zip(p, x, strict=True)])
        )

    for make, row in ((pgm.noisy_or, either), (pgm.noisy_and, every)):
        found = table(make(p, leak), [2] * count, 2)
        assert np.allclose(found, by_formula([2] * count, row), rtol=1e-13, atol=1e-15)


def test_tiny_probabilities_keep_their_digits():
    found = table(pgm.noisy_or([1e-18, 0.0], leak=1e-20), [2, 2], 2)
    assert np.allclose(found[..., 1], [[1e-20, 1e-20], [1.01e-18, 1.01e-18]], rtol=1e-12)


def test_certain_causes_have_zeros():
    found = table(pgm.noisy_or([1.0, 0.5]), [2, 2], 2)
    assert found[1, :, 0].tolist() == [0, 0] and found[0, 0].tolist() == [1, 0]
    found = table(pgm.noisy_and([1.0, 1.0]), [2, 2], 2)
    assert found[..., 1].tolist() == [[0, 0], [0, 1]]


def test_parents_with_several_states():
    p = [[0.1, 0.5, 0.9], 0.7]
    found = table(pgm.noisy_or(p, 0.02), [3, 2], 2)
    expected = by_formula(
        (3, 2), lambda x: off_and_on(1 - 0.98 * (1 - p[0][x[0]]) * (1 - 0.7 * x[1]))
    )
    assert np.allclose(found, expected)
    named = {"high": 0.9, "mid": 0.5, 0: 0.1}
    assert np.array_equal(
        found, table(pgm.noisy_or([named, 0.7], 0.02), [("low", "mid", "high"), 2], 2)
    )
    # A condition that is also met, with a smaller probability, without its parent.
    found = table(pgm.noisy_and([[0.2, 0.9], 0.7], 0.02), [2, 2], 2)
    expected = by_formula(
        (2, 2), lambda x: off_and_on(0.02 + 0.98 * (0.2, 0.9)[x[0]] * (0, 0.7)[x[1]])
    )
    assert np.allclose(found, expected)


def test_the_state_that_is_on_may_be_the_first_one():
    yes_first = ("yes", "no")
    found = table(pgm.noisy_or([0.4, 0.8], 0.1, on="yes"), [yes_first, yes_first], yes_first)
    plain = table(pgm.noisy_or([0.4, 0.8], 0.1), [2, 2], 2)
    assert np.array_equal(found, plain[::-1, ::-1, ::-1])
    found = table(pgm.noisy_and([0.4, 0.8], 0.1, on="yes"), [yes_first, 2], yes_first)
    assert np.array_equal(found, table(pgm.noisy_and([0.4, 0.8], 0.1), [2, 2], 2)[::-1, :, ::-1])
    assert np.allclose(table(pgm.noisy_or([], 0.1, on="yes"), [], yes_first), [0.1, 0.9])


def test_a_number_is_no_name_of_a_state_of_a_parent():
    with pytest.raises(PgmError, match="the second one would count as on"):
        table(pgm.noisy_or([0.9], on=1), [("yes", "no")], 2)


def random_tables(rng, sizes, count, zeros=0.3):
    """Tables (K_i, K) for each parent, and a leak, with some zeros."""

    def rows(n):
        weights = rng.random((n, count)) * (rng.random((n, count)) > zeros) + 1e-3
        return weights / weights.sum(axis=1, keepdims=True)

    return [rows(n) for n in sizes], rows(1)[0]


@one_test_over("seed", range(8))
def test_noisy_max_and_noisy_min(seed):
    rng = np.random.default_rng(seed)
    sizes, count = rng.integers(2, 4, rng.integers(0, 4)), int(rng.integers(2, 5))
    tables, leak = random_tables(rng, sizes, count)

    def combined(choose):
        """The distribution of the chosen contribution, by all contributions one after the other."""

        def row(x):
            parts = [leak, *(t[k] for t, k in zip(tables, x, strict=True))]
            out = np.zeros(count)
            for states in product(range(count), repeat=len(parts)):
                out[choose(states)] += np.prod([p[k] for p, k in zip(parts, states, strict=True)])
            return out

        return by_formula(sizes, row)

    parents = [int(n) for n in sizes]
    found = table(pgm.noisy_max(tables, leak), parents, count)
    assert np.allclose(found, combined(max), rtol=1e-12, atol=1e-15)
    found = table(pgm.noisy_min(tables, leak), parents, count)
    assert np.allclose(found, combined(min), rtol=1e-12, atol=1e-15)


def test_without_a_leak_the_absent_state_is_neutral():
    causes = {"yes": [0.5, 0.4, 0.1]}
    found = table(pgm.noisy_max([causes]), [("no", "yes")], ("none", "mild", "high"))
    assert np.allclose(found, [[1, 0, 0], [0.5, 0.4, 0.1]])
    found = table(pgm.noisy_min([causes]), [("no", "yes")], ("high", "mild", "none"))
    assert np.allclose(found, [[0, 0, 1], [0.5, 0.4, 0.1]])
    leak = {"mild": 0.2, "none": 0.8}
    found = table(pgm.noisy_max([causes], leak), [("no", "yes")], ("none", "mild", "high"))
    assert np.allclose(found[0], [0.8, 0.2, 0])


@one_test_over("seed", range(6))
def test_the_average(seed):
    rng = np.random.default_rng(seed)
    sizes, count = [int(n) for n in rng.integers(2, 4, rng.integers(0, 4))], 3
    tables, leak = random_tables(rng, sizes, count)
    weights = rng.random(len(sizes) + 1) * (rng.random(len(sizes) + 1) > 0.3)
    weights[rng.integers(len(weights))] = 0.7

    def row(x):
        parts = [*(t[k] for t, k in zip(tables, x, strict=True)), leak]
        return np.average(parts, axis=0, weights=weights)

    form = NoisyAverage(tuple(tables), tuple(weights), leak)
    found = table(form, sizes, count)
    assert np.allclose(found, by_formula(sizes, row), rtol=1e-12, atol=1e-15)


def test_pyagrum_agrees():
    """pyAgrum has the noisy-or with the probabilities of the parents without the leak (Net)."""
    gum = pytest.importorskip("pyagrum", reason="pyagrum is not installed: pip install pyagrum")
    p, leak = [0.35, 0.6, 0.9, 0.05], 0.08
    net = gum.BayesNet()
    causes = [net.add(gum.LabelizedVariable(f"x{i}", "", 2)) for i in range(len(p))]
    child = net.addNoisyORNet(gum.LabelizedVariable("y", "", 2), leak)
    for cause, each in zip(causes, p, strict=True):
        net.addWeightedArc(cause, child, each)
    found = table(pgm.noisy_or(p, leak), [2] * len(p), 2)
    at = gum.Instantiation(net.cpt(child))
    for states in product(range(2), repeat=len(p) + 1):
        for name, k in zip([*(f"x{i}" for i in range(len(p))), "y"], states, strict=True):
            at.chgVal(name, k)
        assert abs(found[states] - net.cpt(child).get(at)) < 1e-7


WRONG = (
    (pgm.noisy_or([0.5]), [2, 2], 2, r"1 probabilities for 2 parents \('x0', 'x1'\)"),
    (pgm.noisy_or([0.5, 1.5]), [2, 2], 2, r"probability of parent 'x1' is 1.5, expected numbers"),
    (pgm.noisy_or([0.5, float("nan")]), [2, 2], 2, r"parent 'x1' is nan, expected numbers"),
    (pgm.noisy_or([0.5, "high"]), [2, 2], 2, r"parent 'x1' is 'high', expected numbers"),
    (pgm.noisy_or([0.5, 0.5]), [2, 3], 2, r"'x1' is one number, and 'x1' has 3 states"),
    (pgm.noisy_or([0.5, [0.1, 0.2]]), [2, 3], 2, r"parent 'x1' has 2 numbers, expected 3"),
    (pgm.noisy_or([{"no": 1.0}]), [2], 2, r"parent 'x0': 'no' is no state of 'x0'"),
    (pgm.noisy_or([0.5]), [2], 3, r"'y' has 3 states, and a noisy-or or noisy-and needs 2"),
    (pgm.noisy_or([0.5]), [("yes", "no")], 2, r"'x0' are 'yes' and 'no', in this order"),
    (pgm.noisy_or([0.5]), [2], ("present", "absent"), r"as in on='present'"),
    (pgm.noisy_or([0.5], on="maybe"), [2], ("no", "yes"), r"on='maybe' is no state of 'y'"),
    (pgm.noisy_max([[[1, 0]]]), [2], 2, r"table of parent 'x0' is .*expected 2 rows"),
    (pgm.noisy_max([np.eye(2)]), [2, 2], 2, r"1 tables for 2 parents"),
    (pgm.noisy_max([[[0.5, 0.4], [0, 1]]]), [2], 2, r"state 0, is .*whose sum is 0.9"),
    (pgm.noisy_max([[[0.5, 0.5], "up"]]), [2], 2, r"state 1, is 'up', expected a state or 2"),
    (pgm.noisy_max([np.eye(2)], leak=[0.5, 0.2]), [2], 2, r"the leak is .*whose sum is 0.7"),
    (pgm.noisy_max([{"on": 0}]), [("no", "yes")], 2, r"parent 'x0': 'on' is no state of 'x0'"),
    (NoisyAverage(({0: 1},), (1.0, 1.0), [0.5, 0.5]), [2], 2, "no entry for the state 1 of 'x0'"),
    (NoisyAverage((np.eye(2),), (1.0,), [0.5, 0.5]), [2], 2, "expected 2 finite numbers"),
    (NoisyAverage((np.eye(2),), (0.0, 0.0), [0.5, 0.5]), [2], 2, "all weights are 0"),
)


@one_test_over(("values", "parents", "child", "message"), WRONG)
def test_wrong_gates_are_named(values, parents, child, message):
    with pytest.raises(PgmError, match=message) as caught:
        table(values, parents, child)
    assert str(caught.value).startswith("conditional of 'y'")


def test_wrong_arguments_are_found_at_once():
    with pytest.raises(PgmError, match="noisy_or: leak must be a probability"):
        pgm.noisy_or([0.5], leak=1.5)
    with pytest.raises(PgmError, match="noisy_and: leak must be a probability"):
        pgm.noisy_and([0.5], leak=float("nan"))
    for wrong in (0.5, {"a": 0.5}, {0.5}):
        with pytest.raises(PgmError, match="noisy_or needs a list with an item for each parent"):
            pgm.noisy_or(wrong)
    with pytest.raises(PgmError, match="noisy_max needs a list"):
        pgm.noisy_max({"a": 1})


def test_a_gate_is_no_potential():
    b = pgm.GraphBuilder()
    b.variable("x")
    b.variable("y")
    b.table(("x", "y"), pgm.noisy_or([0.5]))
    with pytest.raises(PgmError, match="a noisy gate is a conditional"):
        b.build()


@pytest.mark.parametrize("many", [3, 30])
def test_conditionals_are_checked_with_gates(many):
    """Two conditionals, cycles and biases are found, whether a gate is also a table or not."""
    names = [f"x{i}" for i in range(many)]

    def start():
        b = pgm.GraphBuilder()
        for name in names:
            b.variable(name)
        b.variable("y")
        b.conditional("y", names, pgm.noisy_or([0.5] * many))
        return b

    b = start()
    b.conditional("y", ("x0",), np.eye(2))
    with pytest.raises(PgmError, match="unit 'y' has two conditionals"):
        b.build()
    b = start()
    for name in names[1:]:
        b.conditional(name, (), [0.5, 0.5])
    b.conditional("x0", ("y",), np.eye(2))
    with pytest.raises(PgmError, match="the conditionals form a cycle") as caught:
        b.build()
    assert "after" not in str(caught.value) and "auxiliary" not in str(caught.value)
    with pytest.raises(PgmError, match="variable 'x0' has no conditional"):
        start().build()
    b = start()
    for name in names:
        b.conditional(name, (), [0.5, 0.5])
    model = b.build()
    layer = next(iter(model.structure.layers))
    with pytest.raises(PgmError, match="has a conditional, and a bias"):
        model.with_params({f"{layer}.bias": np.eye(1, many + 1, many).ravel()})


def test_numbers_of_a_gate_need_as_many_parents():
    """A gate of a built model, as `to_networkx` gives it, fits its own scope only."""

    def declared(parents, gate):
        b = pgm.GraphBuilder()
        for name in "abcy":
            b.variable(name)
        for name in "abc":
            b.conditional(name, (), [0.4, 0.6])
        b.conditional("y", parents, gate)
        return b.build()

    model = declared(tuple("abc"), pgm.noisy_or([0.2, 0.3, 0.4]))
    gate = model.formed(model.structure.gates[0])
    for parents in ("ab", "a"):
        with pytest.raises(pgm.PgmError, match=r"'y' has shape \(2, 2, 2, 2\), expected \(2, 2"):
            declared(tuple(parents), gate)
    again = declared(tuple("abc"), gate)
    assert pgm.infer(again).marginal("y") == pgm.infer(model).marginal("y")
