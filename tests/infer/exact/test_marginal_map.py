"""The mode of some units, summed over the others, against sums over all states."""

import itertools
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

NAN = np.nan


def network(rng, zeros=0.0):
    """A network of six variables in random order of names, with zeros in its tables."""
    states = rng.integers(2, 4, 6)
    b = pgm.GraphBuilder()
    handles = [b.variable(f"v{i}", states=int(k)) for i, k in enumerate(states)]
    for i, k in enumerate(states):
        parents = [int(p) for p in rng.permutation(i)[:2]]
        table = rng.random((*(states[p] for p in parents), k)) ** 3
        if zeros:
            table *= rng.random(table.shape) > zeros
            table[..., 0] += table.sum(axis=-1) == 0
        table /= table.sum(axis=-1, keepdims=True)
        b.conditional(handles[i], [handles[p] for p in parents], table)
    return b.build(), states


def boltzmann(rng, zeros=0.0):
    """Spins, categorical units and a table of three units."""
    b = pgm.GraphBuilder()
    s, c = b.layer("s", pgm.Spin(), 3), b.layer("c", pgm.Categorical(3), 2)
    J = np.triu(rng.normal(size=(3, 3)), 1)
    b.couple("s", "s", J + J.T)
    b.couple("s", "c", rng.normal(size=(3, 6)))
    b.bias(c, rng.normal(size=3))
    table = rng.random((2, 3, 3))
    b.table((s[0], c[0], c[1]), table * (rng.random(table.shape) > zeros))
    return b.build(), np.array([2, 2, 2, 3, 3])


def joint(model, states, places):
    """log p of every joint state, by the package's density of complete states."""
    every = np.array(list(itertools.product(*map(range, states))))
    evidence = {}
    for name, layer in model.structure.layers.items():
        columns = [i for i, (of, _) in enumerate(places) if of == name]
        evidence[name] = layer.shaped(
            layer.unit.support[every[:, columns]].reshape(len(every), -1).astype(float)
        )
    with np.errstate(divide="ignore"):
        return every, pgm.infer(model, evidence, want=("log_z",), method=pgm.Elimination()).log_z


@pytest.mark.parametrize("zeros", (0.0, 0.3))
@pytest.mark.parametrize("make", (network, boltzmann), ids=("network", "boltzmann"))
@one_test_over("seed", range(5))
def test_against_sums_over_all_states(make, seed, zeros):
    rng = np.random.default_rng(seed)
    model, states = make(rng, zeros)
    places = [model.structure.names.at(i) for i in range(len(states))]
    states = [model.structure.state_counts[layer] for layer, _ in places]
    every, logs = joint(model, states, places)
    names = [model.structure.names.of(place) for place in places]
    # Possible evidence: units of a possible state are observed at random, row by row.
    possible = every[np.isfinite(logs)]
    for _ in range(6):
        rows = possible[rng.integers(len(possible), size=5)]
        seen = rng.random(rows.shape) < 0.3
        asked = sorted(rng.permutation(len(states))[: rng.integers(1, 4)].tolist())
        keys = [model.structure.layers[of].unit for of, _ in places]
        columns = {
            name: [
                None if not seen[r, i] else _value(keys[i], rows[r, i]) for r in range(len(rows))
            ]
            for i, name in enumerate(names)
        }
        wanted = pgm.Mode(*(names[i] for i in asked))
        r = pgm.infer(model, columns, want=("log_z", wanted))
        found = r.assignment(*(names[i] for i in asked))
        assert r.kind == "exact"
        for row in range(len(rows)):
            fits = (every[:, seen[row]] == rows[row, seen[row]]).all(axis=1)
            sums = {}
            for state, log in zip(every[fits], logs[fits], strict=True):
                key = tuple(state[asked])
                sums[key] = np.logaddexp(sums.get(key, -np.inf), log)
            mine = tuple(_state(model, places[i], found[names[i]][row]) for i in asked)
            assert sums[mine] >= max(sums.values()) - 1e-9


def _state(model, place, shown):
    """The number of a state that is shown by its number or its value."""
    unit = model.structure.layers[place[0]].unit
    return int(shown) if unit.one_hot else np.ravel(unit.support).tolist().index(float(shown))


def _value(unit, state):
    """The value of a unit in evidence by name: a number of a state, or the value itself."""
    return int(state) if unit.one_hot else float(np.ravel(unit.support)[state])


def hmm(steps, rng):
    start, move = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3)
    emit = rng.dirichlet(np.full(4, 0.3), 3)
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=3, shape=steps), b.variable("x", states=4, shape=steps)
    b.conditional(z[0], (), start)
    b.conditional(z[1:], (z[:-1],), move)
    b.conditional(x, (z,), emit)
    return b.build(), (start, move, emit)


def viterbi(x, start, move, emit):
    """The most probable path of the states alone; gaps say nothing about them."""
    logs = np.where(np.isnan(x)[:, None], 0.0, np.log(emit.T[np.nan_to_num(x).astype(int)]))
    best, back = np.log(start) + logs[0], []
    for t in range(1, len(x)):
        each = best[:, None] + np.log(move)
        back.append(each.argmax(axis=0))
        best = each.max(axis=0) + logs[t]
    path = [int(best.argmax())]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return path[::-1]


def log_p(path, x, start, move, emit):
    """The log probability of a path of states and of the symbols that are seen."""
    seen = np.flatnonzero(~np.isnan(x))
    found = np.log(start[path[0]]) + np.log(emit[np.array(path)[seen], x[seen].astype(int)]).sum()
    return found + np.log(move[path[:-1], path[1:]]).sum()


@one_test_over("seed", range(4))
def test_the_path_of_the_states_alone_is_that_of_viterbi(seed):
    rng = np.random.default_rng(seed)
    model, tables = hmm(60, rng)
    x = rng.integers(0, 4, (5, 60)).astype(float)
    x[rng.random(x.shape) < 0.3] = NAN
    x[0] = NAN
    r = pgm.infer(model, {"x": x}, want=("mode", pgm.Mode("z")))
    for row, path in zip(x, r.assignment("z")["z"].astype(int), strict=True):
        # Paths through the same moves in another order are equally probable.
        best = log_p(viterbi(row, *tables), row, *tables)
        np.testing.assert_allclose(log_p(path, row, *tables), best, rtol=1e-12)
    # Without gaps both modes are one.
    full = rng.integers(0, 4, 60)
    r = pgm.infer(model, {"x": full}, want=("mode", pgm.Mode("z")))
    assert r.assignment("z")["z"].tolist() == r.assignment()["z"].tolist()


def test_templates_prepared_questions_and_workers():
    rng = np.random.default_rng(0)

    def declare(steps):
        b = pgm.GraphBuilder()
        z, x = b.variable("z", states=3, shape=steps), b.variable("x", states=4, shape=steps)
        b.conditional(z[0], (), tables[0])
        if steps > 1:
            b.conditional(z[1:], (z[:-1],), tables[1], name="move")
        b.conditional(x, (z,), tables[2], name="emit")
        return b

    model, tables = hmm(8, rng)
    rows = [[0, None, 2, None], [1, None, 3, 3, 0, None, 1, 2]]
    answers = pgm.infer(pgm.Template(declare), [{"x": row} for row in rows], want=(pgm.Mode("z"),))
    for row, r in zip(rows, answers, strict=True):
        x = np.array([NAN if v is None else v for v in row], dtype=float)
        assert r.assignment("z")["z"].tolist() == viterbi(x, *tables)
    ask = pgm.prepare(model, ("x",), want=(pgm.Mode("z"),))
    for other in rng.integers(0, 4, (3, 8)):
        path = viterbi(other.astype(float), *tables)
        assert ask({"x": other}).assignment("z")["z"].tolist() == path
    many = rng.integers(0, 4, (400, 8)).astype(float)
    many[rng.random(many.shape) < 0.2] = NAN
    with ThreadPoolExecutor(2) as pool:
        r = pgm.infer(model, {"x": many}, want=(pgm.Mode("z"),), executor=pool)
    assert r.assignment("z")["z"].tolist() == [viterbi(row, *tables) for row in many]


def test_real_children_interventions_and_soft_evidence():
    """Children that are not observed are summed out, and those that are weigh the states."""
    rng = np.random.default_rng(0)
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=("a", "b", "c")), b.layer("x", pgm.Normal(), 2)
    b.conditional(z, (), [0.3, 0.3, 0.4])
    means = np.stack([rng.normal(size=3), np.zeros(3)], axis=1)
    b.cause(z, x, means, name="means")
    model = b.build()
    for values in ([0.5, NAN], [NAN, NAN], [0.5, -1.0]):
        weigh = np.log([0.3, 0.3, 0.4])
        for value in values:
            if np.isfinite(value):
                weigh = weigh - (value - means[:, 0]) ** 2 / 2
        r = pgm.infer(model, {"x": values}, want=(pgm.Mode("z"),))
        assert r.assignment("z") == {"z": "abc"[weigh.argmax()]}
    r = pgm.infer(model, soft={"z": [0.0, 3.0, 0.0]}, want=(pgm.Mode("z"),))
    assert r.assignment("z") == {"z": "b"}
    r = pgm.infer(model, {"x": [0.5, -1.0]}, do={"z": "a"}, want=(pgm.Mode("z"),))
    assert r.assignment("z") == {"z": "a"}


def test_what_is_refused_or_not_asked():
    rng = np.random.default_rng(0)
    model, _ = hmm(5, rng)
    r = pgm.infer(model, want=("mode", pgm.Mode("z[0]", "z[1]")))
    assert set(r.assignment("z[1]", "z[0]")) == {"z[0]", "z[1]"}
    assert "mode of 'z[0]', 'z[1]'" in repr(r)
    with pytest.raises(pgm.NotAsked, match=r"pgm.Mode\('x'\)"):
        r.assignment("x")
    with pytest.raises(pgm.PgmError, match="a unit is named twice"):
        pgm.infer(model, want=(pgm.Mode("z", "z[0]"),))
    with pytest.raises(pgm.PgmError, match="different units"):
        pgm.Mode("z", "z")
    with pytest.raises(pgm.PgmError, match="infinitely|finitely"):
        pgm.infer(pgm.rbm(3, 2, visible=pgm.Gaussian()), want=(pgm.Mode("v"),))
    # A star of pairs: the centre is summed first, and joins all leaves.
    b = pgm.GraphBuilder()
    c, x = b.variable("c", states=2), b.variable("x", states=2, shape=40)
    b.conditional(c, (), [0.5, 0.5])
    b.conditional(x, (c,), [[0.9, 0.1], [0.2, 0.8]])
    with pytest.raises(pgm.PgmError, match=r"2\^41 entries"):
        pgm.infer(b.build(), want=(pgm.Mode("x"),), method=pgm.Elimination(max_states=2**20))
    # Impossible evidence has no mode.
    b = pgm.GraphBuilder()
    b.variable("a", states=2), b.variable("b", states=2)
    b.conditional("a", (), [1.0, 0.0])
    b.conditional("b", ("a",), [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(pgm.PgmError, match="probability zero"):
        pgm.infer(b.build(), {"a": 1}, want=(pgm.Mode("b"),))


def test_states_are_shown_as_in_complete_states():
    """Without names: values of units of layers, and numbers of states of arrays."""
    b = pgm.GraphBuilder()
    b.layer("h", pgm.MultiValued(2), 2, bias=[3.0, -3.0])
    b.layer("s", pgm.Spin(), (2, 2), bias=[1.0, -1.0, 2.0, -2.0])
    b.layer("c", pgm.Categorical(3), 2, bias=[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    b.bias(b.variable("z", states=2, shape=3), 0.5)
    b.variable("a", states=("no", "yes"))
    b.variable("d", states=("lo", "mid", "hi"))
    b.table(("a", "d"), [[1, 2, 1], [1, 1, 5]])
    model = b.build()
    names = ("h", "s", "c", "z", "a", "d", ("s", 1))
    r = pgm.infer(model, want=("mode", *(pgm.Mode(name) for name in names)))
    whole = r.assignment()
    assert r.assignment("h")["h"].tolist() == [whole["h", 0], whole["h", 1]] == [1.0, -1.0]
    assert r.assignment("s")["s"].tolist() == [[1.0, -1.0], [1.0, -1.0]]
    assert r.assignment(("s", 1)) == {("s", 1): whole["s", 1]}
    assert r.assignment("c")["c"].tolist() == [whole["c", 0], whole["c", 1]] == [1, 2]
    assert r.assignment("z")["z"].tolist() == whole["z"].tolist() == [1, 1, 1]
    assert r.assignment("a") == {"a": "yes"} and r.assignment("d") == {"d": "hi"}
    # An axis of rows, and no other one, for a single variable.
    rows = pgm.infer(model, {"a": ["no", "yes"]}, want=(pgm.Mode("d"),))
    assert rows.assignment("d")["d"].tolist() == ["mid", "hi"]


def test_memory_is_estimated_before_it_is_taken():
    rng = np.random.default_rng(0)
    model, _ = hmm(200, rng)
    x = rng.integers(0, 4, (200, 200)).astype(float)
    x[:, rng.random(200) < 0.3] = NAN
    pgm.infer(model, {"x": x[:2]}, want=(pgm.Mode("z"),))
    tracemalloc.start()
    r = pgm.infer(model, {"x": x}, want=(pgm.Mode("z"),))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= r.plan.bytes <= 4 * peak
