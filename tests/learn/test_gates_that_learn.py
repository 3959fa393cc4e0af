"""Gates and leaves keep what their declaration ties, under every learner."""

from itertools import product

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm


def rows_of(rng, count, size):
    """Random rows of probabilities."""
    return rng.dirichlet(np.ones(size), count)


def frame(model, count, seed):
    """Draws of a model as columns of numbers of states."""
    extra("pandas")
    r = pgm.infer(model, want=("samples",), method=pgm.Exact(draws=count), rng=seed)
    return {name: np.array(column, dtype=float) for name, column in r.samples_frame().items()}


def numbers(model, child="y"):
    """The probabilities of the numbers of a child."""
    (key,) = (k for k in model.params if k.startswith(f"{child}|"))
    return np.exp(model.params[key])


def entries(model, child="y"):
    """The whole conditional of a child."""
    (tables,) = (t for t in model.structure.tables if t.key.startswith(f"{child}|"))
    return np.exp(model.entries_of(tables))


def network(values, states, child, prior=0.4):
    """A child with parents of these numbers of states."""
    b = pgm.GraphBuilder()
    names = [f"x{i}" for i in range(len(states))]
    for name, count in zip(names, states, strict=True):
        b.variable(name, states=count)
        b.conditional(name, (), [1 - prior, *[prior / (count - 1)] * (count - 1)])
    b.variable("y", states=child)
    b.conditional("y", names, values)
    return b.build()


LEARNERS = (pgm.EM(), pgm.EM(pseudocount=0), pgm.LBFGS(), pgm.Adam(0.05))


@pytest.mark.parametrize("optimizer", LEARNERS, ids=str)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_every_learner_keeps_the_gate(optimizer, missing):
    """The learned table is that of a noisy-or: log p(off) is a sum over parents."""
    model = network(pgm.noisy_or([0.3, 0.6, 0.8], leak=0.1), [2, 2, 2], 2)
    data, rng = frame(model, 300, 1), np.random.default_rng(0)
    for column in data.values():
        column[rng.random(len(column)) < missing] = np.nan
    start = network(pgm.noisy_or([0.5, 0.5, 0.5], leak=0.3), [2, 2, 2], 2)
    found = pgm.fit(start, data, optimizer=optimizer, updates=8, progress=False, rng=0)
    off = np.log(entries(found.model)[..., 0])
    for x in product(range(2), repeat=3):
        parts = [off[tuple(np.eye(3, dtype=int)[i])] - off[0, 0, 0] for i in range(3) if x[i]]
        assert np.isclose(off[x], off[0, 0, 0] + sum(parts), rtol=0, atol=1e-12)
    learned = numbers(found.model)
    assert not np.allclose(learned, numbers(start))
    # The rows of parents that are off keep their zeros.
    assert learned[1::2].tolist() == [[1.0, 0.0]] * 3
    assert "1 noisy gate" in str(found.model) and "7 parameters" in str(found.model)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["max", "min", "average"])
def test_em_and_gradients_meet_at_one_maximum(kind, seed):
    """EM(pseudocount=0) never falls (it checks itself), and ends where no derivative is left."""
    from pgmengine.declare.values.noisy_forms import NoisyAverage

    rng = np.random.default_rng([seed, 5])
    states = [2, 3]

    def gate():
        tables, leak = [rows_of(rng, n, 3) for n in states], rows_of(rng, 1, 3)[0]
        if kind == "average":
            return NoisyAverage(tuple(tables), tuple(rng.random(3) + 0.1), leak)
        return (pgm.noisy_max if kind == "max" else pgm.noisy_min)(tables, leak)

    data = frame(network(gate(), states, 3), 150, seed)
    data["x0"][::4] = np.nan
    em = pgm.EM(pseudocount=0, tolerance=1e-11)
    f = pgm.fit(network(gate(), states, 3), data, optimizer=em, updates=4000, progress=False)
    gradient = pgm.infer(f.model, data, ("gradient",)).gradient
    key = f.model.structure.gates[0].key
    # A number at the border of its range may have a derivative that pulls it over the border.
    inside = numbers(f.model) > 1e-3
    assert np.abs(gradient[key][inside]).max() < 0.02 * 150**0.5
    assert "rose by at most" in f.stopped


def test_rows_that_share_a_leaf_have_the_sum_of_their_counts():
    """Complete data: the maximum of a leaf is the mean of its rows, in one update."""
    states = (2, 2, 2)
    declared = {
        "rows": {"rows": {(1, 1, 1): [0.1, 0.9]}, "otherwise": [0.8, 0.2]},
        "function": {"values": lambda *x: [0.1, 0.9] if all(x) else [0.8, 0.2]},
    }
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2, (400, 3))
    y = (rng.random(400) < 0.2 + 0.3 * x[:, 0] + 0.4 * x.all(axis=1)).astype(float)
    data = {f"x{i}": x[:, i].astype(float) for i in range(3)} | {"y": y}
    for settings in declared.values():
        b = pgm.GraphBuilder()
        for i in range(3):
            b.variable(f"x{i}")
            b.conditional(f"x{i}", (), [0.5, 0.5])
        b.variable("y")
        b.conditional("y", ("x0", "x1", "x2"), **settings)
        model = b.build()
        for optimizer in (pgm.EM(pseudocount=0), pgm.LBFGS()):
            f = pgm.fit(model, data, optimizer=optimizer, progress=False)
            table, every = entries(f.model), x.all(axis=1)
            rest = np.delete(table.reshape(8, 2), 7, axis=0)
            assert (rest == rest[0]).all()
            assert np.isclose(table[1, 1, 1, 1], y[every].mean(), atol=1e-5)
            assert np.isclose(rest[0, 1], y[~every].mean(), atol=1e-5)
            assert any("leaves" in note and "2 for 8" in note for note in f.notes)
        assert len(model.structure.gates) == 0 and model.params["y|x0,x1,x2.leaves"].shape == (2, 2)
        assert states == tuple(table.shape[:-1])


def test_a_function_with_one_result_is_an_array():
    b = pgm.GraphBuilder()
    for name in ("a", "c"):
        b.variable(name)
    b.conditional("a", (), [0.5, 0.5])
    b.conditional("c", ("a",), lambda a: [0.5, 0.5])
    assert b.build().params["c|a.table"].shape == (2, 2)


def test_potentials_of_a_function_keep_their_leaves():
    """Pairs of three variables by one function with two results: the gradient has two numbers."""
    b = pgm.GraphBuilder()
    s = b.variable("s", states=3, shape=3)
    b.table((s[1:], s[:-1]), lambda a, c: 3.0 if a == c else 1.0, name="equal")
    model = b.build()
    assert model.params["equal"].shape == (2,)
    data = {"s": np.array([[0, 0, 1], [2, 2, 2], [1, 0, 0]])}
    f = pgm.fit(model, data, updates=30, progress=False, rng=0)
    table = np.exp(f.model.entries_of(f.model.structure.tables[0]))
    assert len(np.unique(table[~np.eye(3, dtype=bool)])) == len(np.unique(np.diag(table))) == 1
    # Four of six pairs are equal: of a pair, odds * 3 equal states to 6 others give 2 to 1.
    assert np.isclose(table[0, 0] / table[0, 1], 4.0, rtol=0.05)


def gated_chain(values):
    """A template: a hidden chain, and a noisy-or of two neighbours at each step."""

    def declare(steps):
        b = pgm.GraphBuilder()
        z, y = b.variable("z", states=2, shape=steps), b.variable("y", states=2, shape=steps)
        b.conditional(z[0], (), [0.6, 0.4], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="move")
        b.conditional(y[:1], (z[:1],), [[0.9, 0.1], [0.5, 0.5]], name="first")
        b.conditional(y[1:], (z[1:], z[:-1]), values, name="show")
        return b

    return declare


@pytest.mark.parametrize("optimizer", [pgm.EM(), pgm.LBFGS()], ids=str)
def test_gates_in_arrays_and_templates(optimizer):
    declare = gated_chain(pgm.noisy_or([0.7, 0.4], leak=0.05))
    model = declare(5).build()
    assert "4 noisy gates" in str(model) and model.params["show"].shape == (5, 2)
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, (40, 5)).astype(float)
    y[rng.random(y.shape) < 0.2] = np.nan
    settings = {"optimizer": optimizer, "updates": 6, "progress": False, "rng": 0}
    one = pgm.fit(model, {"y": y}, **settings).model
    template = pgm.fit(pgm.Template(declare), [{"y": row} for row in y], **settings).model
    for key in ("start", "move", "first", "show"):
        assert np.allclose(np.exp(one.params[key]), np.exp(template.params[key]), atol=1e-9), key
    assert not np.allclose(one.params["show"][2], model.params["show"][2])
    mixed = [{"y": row[: 2 + i % 4]} for i, row in enumerate(y)]
    learned = pgm.fit(pgm.Template(declare), mixed, **settings).model.params["show"]
    assert learned.shape == (5, 2) and learned[1].tolist() == [0.0, -np.inf]


def test_gates_of_one_name_share_their_numbers():
    b = pgm.GraphBuilder()
    for name in "abcd":
        b.variable(name)
    for name in "ab":
        b.conditional(name, (), [0.5, 0.5])
    for child in "cd":
        b.conditional(child, ("a", "b"), pgm.noisy_or([0.3, 0.6], leak=0.1), name="either")
    model = b.build()
    rng = np.random.default_rng(0)
    data = {name: rng.integers(0, 2, 50) for name in "abcd"}
    f = pgm.fit(model, data, progress=False)
    first, second = (np.exp(f.model.entries_of(t)) for t in f.model.structure.gates)
    assert np.array_equal(first, second) and f.model.params["either"].shape == (5, 2)
    b.conditional("a", ("b",), [[0.5, 0.5]] * 2)
    with pytest.raises(pgm.PgmError, match="has other values"):
        b = pgm.GraphBuilder()
        for name in "abcd":
            b.variable(name)
        for child, p in zip("cd", (0.3, 0.4), strict=True):
            b.conditional(child, ("a", "b"), pgm.noisy_or([p, 0.6]), name="either")
        b.build()


def test_a_gate_of_forty_parents_learns():
    """A compact gate never needs its table; its numbers come near those of the data."""
    p = np.linspace(0.2, 0.9, 40)
    model = network(pgm.noisy_or(p, leak=0.05), [2] * 40, 2, prior=0.05)
    assert model.structure.compact_gates
    data = frame(model, 3000, 4)
    start = network(pgm.noisy_or([0.5] * 40, leak=0.2), [2] * 40, 2, prior=0.05)
    f = pgm.fit(start, data, progress=False)
    assert f.model.structure.compact_gates and f.model.variables == start.variables
    learned = numbers(f.model)[2::2, 1]
    # About 55 rows have each cause alone: the standard error is about 0.07.
    assert np.sqrt(np.mean((learned - p) ** 2)) < 0.15
    pgm.infer(f.model, {"y": 1})


def equal_names(kind):
    """Two declarations of one name at different numbers of places."""
    b = pgm.GraphBuilder()
    x, y = b.variable("x", shape=3), b.variable("y", shape=3)
    b.conditional(x, (), [0.5, 0.5])
    values = {
        "gate": pgm.noisy_or([0.5], leak=0.1),
        "table": [[0.9, 0.1], [0.45, 0.55]],
        "compact": pgm.noisy_or([0.5] * 22, leak=0.1),
    }[kind]
    if kind == "compact":
        c = b.variable("c", shape=22)
        b.conditional(c, (), [0.9, 0.1])
        for i in range(2):
            b.conditional(y[i], [c[k] for k in range(22)], values, name="g")
        b.conditional(y[2], (), [0.5, 0.5])
        return b.build()
    b.conditional(y[:2], (x[:2],), values, name="g")
    b.conditional(y[2], (x[2],), values, name="g")
    return b.build()


@one_test_over("kind", ["gate", "table", "compact"])
def test_declarations_of_one_name_survive_files_and_learn(kind, tmp_path):
    model = equal_names(kind)
    pgm.save(model, tmp_path / "m")
    again = pgm.load(tmp_path / "m")
    data = {"y": [[1, 0, 1], [1, 1, np.nan], [0, 0, 0]] * 5}
    for want in ("log_prob", "log_z"):
        one, two = (getattr(pgm.infer(m, data, want), want) for m in (model, again))
        assert np.array_equal(one, two)
    f = pgm.fit(again, data, updates=3, progress=False)
    assert f.model.params["g"].shape == model.params["g"].shape


def test_hidden_children_of_gates_of_one_name_are_exchangeable():
    b = pgm.GraphBuilder()
    for name in ("x0", "x1"):
        b.variable(name)
        b.conditional(name, (), [0.5, 0.5])
    for name in ("y0", "y1"):
        b.variable(name)
        b.conditional(name, ("x0", "x1"), pgm.noisy_or([0.6, 0.3], leak=0.1), name="g")
    for i in range(4):
        b.variable(f"v{i}")
        b.conditional(f"v{i}", ("y0", "y1"), pgm.noisy_or([0.5, 0.5], leak=0.05))
    rng = np.random.default_rng(0)
    data = {f"v{i}": rng.integers(0, 2, 60) for i in range(4)}
    f = pgm.fit(b.build(), data, updates=30, progress=False, rng=0)
    assert any("'y0' and 'y1' are exchangeable" in note for note in f.notes)


def test_a_child_of_a_large_gate_has_no_bias():
    b = pgm.GraphBuilder()
    c, y = b.variable("c", shape=22), b.variable("y")
    b.conditional(c, (), [0.9, 0.1])
    b.conditional(y, [c[i] for i in range(22)], pgm.noisy_or([0.3] * 22))
    b.bias("y", 2.0, name="level")
    with pytest.raises(pgm.PgmError, match="has a conditional, and the shared bias"):
        b.build()
    b = pgm.GraphBuilder()
    c = b.variable("c", shape=22)
    b.layer("v", pgm.Binary(), 2)
    b.conditional(c, (), [0.9, 0.1])
    b.conditional(("v", 0), [c[i] for i in range(22)], pgm.noisy_or([0.3] * 22))
    started = pgm.base_rate_start(b.build(), {"v": [[1, 1], [0, 1]]})
    assert started.params["v.bias"][0] == 0 and started.params["v.bias"][1] > 0


@pytest.mark.parametrize("gaps", [False, True])
def test_complete_rows_of_the_longest_length_are_not_all_rows(gaps):
    """Counting once suffices only where the rows of every length are complete."""

    def chain(steps):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=2, shape=steps), b.variable("x", states=2, shape=steps)
        b.conditional(z[0], (), [0.6, 0.4], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="move")
        b.conditional(x, (z,), [[0.7, 0.3], [0.2, 0.8]], name="show")
        return b

    rng = np.random.default_rng(0)
    rows = [{"z": rng.integers(0, 2, 4), "x": rng.integers(0, 2, 4)} for _ in range(5)]
    hidden = [None] * 3 if gaps else [0, 1, 1]
    rows += [{"z": hidden, "x": rng.integers(0, 2, 3)} for _ in range(20)]
    f = pgm.fit(pgm.Template(chain), rows, optimizer=pgm.EM(), progress=False)
    assert ("counting is enough" in f.stopped) == (not gaps)
