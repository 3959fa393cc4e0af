"""Tables of hundreds of states: answers, and arrays that are not copied."""

import tracemalloc

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.infer.exact.junction_tree.conditioned_model import Form, condition
from pgmengine.infer.exact.junction_tree.table_terms import FreeTables, SlicedTables, TableTerm
from pgmengine.model.joined_tables import largest_entries

STEPS, STATES = 6, 330


def random_table(rng, states, zeros):
    """Rows that sum to one, a third of whose entries are 0 if `zeros`."""
    table = rng.random((states, states))
    if zeros:
        table[rng.random(table.shape) < 1 / 3] = 0.0
        table[:, 0] += 0.01
    return table / table.sum(axis=1, keepdims=True)


def start_of(rng, states):
    return rng.dirichlet(np.ones(states))


def declared_together(start, steps):
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(len(start)), len(steps) + 1)
    b.table((("c", 0),), start)
    at = np.arange(len(steps))
    b.tables(("c", "c"), np.stack([at, at + 1], axis=1), np.stack(steps))
    return b


def declared_one_by_one(start, steps):
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(len(start)), len(steps) + 1)
    b.table((("c", 0),), start)
    for i, table in enumerate(steps):
        b.table((("c", i), ("c", i + 1)), table)
    return b


def declared_as_conditionals(start, steps):
    b = pgm.GraphBuilder()
    for i in range(len(steps) + 1):
        b.variable(f"x{i}", len(start))
    b.conditional("x0", (), start)
    for i, table in enumerate(steps):
        b.conditional(f"x{i + 1}", (f"x{i}",), table)
    return b


WAYS = (declared_together, declared_one_by_one, declared_as_conditionals)


def evidence_of(way, rows):
    """Evidence of unit 2 in the form of a declaration, and whether there are several rows."""
    if rows is None:
        return None
    if way is declared_as_conditionals:
        return {"x2": rows}
    x = np.full((len(rows), STEPS), np.nan)
    x[:, 2] = rows
    return {"c": x}


def posteriors(start, steps, seen):
    """Marginals (units, states) and log p of a chain in which unit 2 is seen, in plain numpy."""
    forward, backward = [start], [np.ones(len(start))]
    keep = np.zeros(len(start))
    keep[seen] = 1.0
    local = [keep if i == 2 and seen is not None else np.ones(len(start)) for i in range(STEPS)]
    for i, table in enumerate(steps):
        forward.append((forward[-1] * local[i]) @ table)
    for i in reversed(range(STEPS - 1)):
        backward.insert(0, steps[i] @ (local[i + 1] * backward[0]))
    both = np.stack(forward) * np.stack(local) * np.stack(backward)
    return both / both.sum(axis=1, keepdims=True), np.log(both[0].sum())


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [None, np.array([7.0]), np.array([7.0, 300.0, 7.0])])
def test_answers_are_those_of_matrix_products(way, zeros, rows, *, tolerance=1e-9):
    rng = np.random.default_rng(0)
    start = start_of(rng, STATES)
    steps = [random_table(rng, STATES, zeros) for _ in range(STEPS - 1)]
    model = way(start, steps).build()
    want = ("marginals", "log_prob", "log_z")
    r = pgm.infer(model, evidence_of(way, rows), want=want)
    for row, seen in enumerate([None] if rows is None else rows.astype(int)):
        truth, log_prob = posteriors(start, steps, seen)
        found = r.prob["c"] if "c" in r.prob else next(iter(r.prob.values()))
        found = found if rows is None else found[row]
        np.testing.assert_allclose(found, truth, rtol=tolerance, atol=1e-13)
        np.testing.assert_allclose(r.log_z[row], log_prob, rtol=tolerance, atol=1e-9)
        np.testing.assert_allclose(r.log_prob[row], log_prob, rtol=tolerance, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_joints_modes_and_samples(way, *, tolerance=1e-9):
    rng = np.random.default_rng(1)
    start, steps = start_of(rng, STATES), [random_table(rng, STATES, True) for _ in range(5)]
    model = way(start, steps).build()
    names = ("x0", "x1") if way is declared_as_conditionals else (("c", 0), ("c", 1))
    want = ("gradient", pgm.Joint(*names), "mode", "samples")
    r = pgm.infer(model, evidence_of(way, np.array([7.0])), want=want, rng=0)
    reach = steps[1][:, 7]
    joint = start[:, None] * steps[0] * reach
    joint /= joint.sum()
    np.testing.assert_allclose(r.joint[names][0], joint, rtol=tolerance, atol=1e-13)
    gradient = list(r.gradient.values())
    if way is declared_together:
        found = r.gradient["c,c.table"][0]
    else:
        shaped = [g for g in gradient if np.shape(g) == joint.shape]
        found = shaped[0]
    expected = joint
    if way is declared_as_conditionals:
        expected = joint - joint.sum(axis=1, keepdims=True) * steps[0]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)
    mode, samples = r.mode, r.samples
    flat = [next(iter(part.values())) for part in (mode, samples)]
    best = np.argmax(flat[0][0], axis=-1)
    tail = steps[4].max(axis=1)
    for table in (steps[3], steps[2]):
        tail = (table * tail).max(axis=1)
    head = (start[:, None] * steps[0]).max(axis=0) * steps[1][:, 7]
    chain = [start[best[0]], *(steps[i][best[i], best[i + 1]] for i in range(5))]
    np.testing.assert_allclose(np.prod(chain), head.max() * tail[7], rtol=tolerance)
    states = flat[1].argmax(axis=-1).reshape(-1, STEPS)
    assert (states[:, 2] == 7).all()
    for i, table in enumerate(steps):
        assert (table[states[:, i], states[:, i + 1]] > 0).all()


def probabilities(result, name):
    """Return the marginals (rows, states) of a variable."""
    return np.stack([*result.marginal(name).values()], axis=-1)


def test_a_large_table_with_observed_units_is_sliced(*, tolerance=1e-9):
    rng = np.random.default_rng(2)
    table = rng.dirichlet(np.ones(300), size=(260, 4))
    b = pgm.GraphBuilder()
    b.variable("a", 260)
    b.variable("b", 4)
    b.variable("c", 300)
    b.conditional("a", (), np.full(260, 1 / 260))
    b.conditional("b", (), np.full(4, 1 / 4))
    b.conditional("c", ("a", "b"), table)
    model = b.build()
    target = model.given({"b": [1.0]})
    kinds = {type(term) for term in condition(target, Form()).terms}
    assert SlicedTables in kinds
    r = pgm.infer(model, {"b": [1.0, 3.0, 1.0]}, want=("marginals", "log_prob", "gradient"))
    for row, seen in enumerate((1, 3, 1)):
        np.testing.assert_allclose(
            probabilities(r, "c")[row], table[:, seen].mean(axis=0), rtol=tolerance
        )
    np.testing.assert_allclose(r.log_prob, np.log(1 / 4), rtol=tolerance)
    np.testing.assert_allclose(r.gradient["c|a,b.table"], 0.0, atol=1e-12)
    r = pgm.infer(model, {"b": [1.0, 3.0], "c": [5.0, 9.0]}, want=("marginals", "gradient"))
    expected = np.zeros_like(table)
    for row, (seen, own) in enumerate(((1, 5), (3, 9))):
        truth = table[:, seen, own] / table[:, seen, own].sum()
        np.testing.assert_allclose(probabilities(r, "a")[row], truth, rtol=tolerance)
        expected[:, seen, own] += truth
        expected[:, seen] -= truth[:, None] * table[:, seen]
    np.testing.assert_allclose(r.gradient["c|a,b.table"], expected, atol=1e-10)


def test_small_tables_are_placed_and_free_ones_are_views():
    small = declared_one_by_one(*chain_of(5, 3)).build()
    kinds = [type(term) for term in condition(small.given(), Form()).terms]
    assert kinds == [FreeTables]
    kinds = [type(term) for term in condition(small.given({("c", 0): 1}), Form()).terms]
    assert kinds == [TableTerm]
    model = declared_one_by_one(*chain_of(6, 300)).build()
    (free,) = condition(model.given(), Form()).terms
    assert isinstance(free, FreeTables) and len(free.runs) == 1
    assert np.shares_memory(free.values(model.given()), model.params["c[0],c[1].table"])


def chain_of(length, states):
    rng = np.random.default_rng(0)
    return start_of(rng, states), [random_table(rng, states, False) for _ in range(length - 1)]


def allocated(function):
    """Return what a function returns, and the growth of the memory of arrays in bytes."""
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("rows", [None, np.array([7.0]), np.array([7.0, 300.0, 7.0])])
@pytest.mark.parametrize("way", WAYS)
def test_large_tables_are_not_copied(way, rows, *, share=0.35):
    """Arrays of numpy take a fraction of the tables; probabilities are in compiled code."""
    start, steps = chain_of(STEPS, 700)
    pgm.infer(way(*chain_of(STEPS, 4)).build(), want=("marginals", "log_prob", "mode"))
    b = way(start, steps)
    # One-hot values of 700 states are made once in a process.
    b.build()
    model, taken = allocated(b.build)
    size = sum(value.nbytes for key, value in model.params.items() if key.endswith(".table"))
    assert taken < 1.2 * size
    evidence = evidence_of(way, rows)
    for want in (("marginals", "log_prob"), ("log_z",), ("mode",)):
        _, taken = allocated(lambda want=want: pgm.infer(model, evidence, want=want))
        # The temporary arrays of a block, and one-hot evidence.
        assert taken < share * size + 2**23, want
    assert model.table_terms is model.table_entries
    assert all(np.shares_memory(model.table_entries, model.params[t.key])
               for t in model.structure.tables)  # fmt: skip


def test_parameters_of_other_arrays_become_views():
    model = declared_one_by_one(*chain_of(STEPS, 500)).build()
    params = {t.key: model.params[t.key] for t in model.structure.tables}
    moved = model.with_params(params)
    assert not np.shares_memory(*(moved.params[key] for key in list(params)[1:3]))
    before = {key: value.copy() for key, value in moved.params.items()}
    entries = moved.table_entries
    for key in params:
        assert np.shares_memory(entries, moved.params[key])
        np.testing.assert_array_equal(moved.params[key], before[key])
    np.testing.assert_array_equal(entries, model.table_entries)
    with pytest.raises(ValueError, match="read-only"):
        moved.params[next(iter(params))][...] = 0.0


@pytest.mark.parametrize("block", [3, 7, 2**20])
def test_the_largest_entries_are_those_of_each_table(monkeypatch, block):
    monkeypatch.setattr("pgmengine.model.joined_tables.BLOCK_ENTRIES", block)
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 9, 30)
    first = np.concatenate([[0], np.cumsum(counts)])
    logs = np.where(rng.random(first[-1]) < 0.2, -np.inf, rng.normal(size=first[-1]))
    sizes, whole = largest_entries(logs, first)
    for i, (a, b) in enumerate(zip(first, first[1:], strict=False)):
        finite = logs[a:b][np.isfinite(logs[a:b])]
        assert sizes[i] == np.abs(finite).max(initial=0.0)
        assert whole[i] == np.isfinite(logs[a:b]).all()
