"""Files of templates: parameters meet the variables, states and places that they belong to."""

import itertools
import logging
from pathlib import Path

import numpy as np
import pytest
from damaged import parts_of
from loops import one_test_over

import pgmengine as pgm
from pgmengine.base.files import write_tensors

KEPT = Path(__file__).parents[1] / "files"
SEEN, HIDDEN = ("home", "basket", "pay"), ("idle", "eager")


def chain(seen=SEEN, hidden=HIDDEN, country=("no", "yes"), more=None, late=False):
    """A hidden Markov model whose emissions also depend on a variable of all steps."""

    def declare(steps):
        b = pgm.GraphBuilder()
        if not late:
            c = b.variable("country", states=country)
        z = b.variable("z", states=hidden, shape=steps)
        x = b.variable("x", states=seen, shape=steps)
        if late:
            c = b.variable("country", states=country)
        b.conditional(c, (), [0.3, 0.7], name="country")
        b.conditional(z[0], (), equal(hidden), name="start")
        b.conditional(z[1:], (z[:-1],), equal(hidden, hidden), name="move")
        b.conditional(x, (c, z), equal(country, hidden, seen), name="show")
        if more:
            more(b, z, x)
        return b

    return declare


def count(names):
    return names if isinstance(names, int) else len(names)


def equal(*axes):
    sizes = tuple(map(count, axes))
    return np.full(sizes, 1 / sizes[-1])


def learned(declare, seed=0):
    """The template with random shared tables."""
    rng, template = np.random.default_rng(seed), pgm.Template(declare)
    params = {
        k: np.log(rng.dirichlet(np.ones(v.shape[-1]), v.shape[:-1]))
        for k, v in template.params.items()
        if k in ("country", "start", "move", "show")
    }
    return template.with_params(params)


ROW = [{"x": ["pay", None, "home", "basket"], "country": "yes"}]


def answers(template):
    r = pgm.infer(template, ROW, want=("marginals", "log_prob"))[0]
    return float(np.ravel(r.log_prob)[0]), r.marginal("x")["pay"], r.marginal("z")["eager"]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("hidden", [HIDDEN, HIDDEN[::-1]])
@pytest.mark.parametrize("country", [("no", "yes"), ("yes", "no")])
def test_states_in_another_order_are_put_in_order(tmp_path, hidden, country, late):
    template = learned(chain())
    pgm.save(template, tmp_path / "t")
    for seen in itertools.permutations(SEEN):
        again = pgm.load(tmp_path / "t", declare=chain(seen, hidden, country, late=late))
        for one, other in zip(answers(template), answers(again), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def reversed_moves(steps):
    b = chain()(steps)
    name = [d.name for d in b.declared].index("move")
    z = b.declared[name].scope
    del b.declared[name]
    b.conditional(z[0], (z[1],), equal(HIDDEN, HIDDEN), name="move")
    del b.declared[[d.name for d in b.declared].index("start")]
    b.conditional(("z", steps - 1), (), [0.5, 0.5], name="start")
    return b


def potential(b, z, x):
    b.table((z[1:], z[:-1]), np.ones((2, 2)), name="extra")


def further(b, z, x):
    y = b.variable("y", shape=len(x))
    b.conditional(y, (z,), [[0.5, 0.5], [0.5, 0.5]], name="further")


REFUSED = {
    "renamed": (chain(("a", "b", "c")), "'x' has the states 'home', 'basket', 'pay' in the file"),
    "one renamed": (chain(("home", "basket", "buy")), "'x' has the states .* 'buy' in declare"),
    "without names": (chain(3), r"'x' has the states .*, and \(none\) in"),
    "more states": (chain((*SEEN, "leave")), "'x' has"),
    "a hidden one renamed": (chain(hidden=("idle", "keen")), "'z' has the states"),
    "another variable": (chain(more=further), "has the layer or variable 'y', and the file has"),
    "another term": (chain(more=potential), "has the parameter 'extra', and the file has none"),
    "other places": (reversed_moves, "'start' has the places"),
}


@one_test_over("name", REFUSED)
def test_other_differences_are_refused_and_named(tmp_path, name):
    declare, said = REFUSED[name]
    pgm.save(learned(chain()), tmp_path / "t")
    with pytest.raises(pgm.PgmError, match=said):
        pgm.load(tmp_path / "t", declare=declare)


def test_what_is_declared_alone_is_in_the_file_too(tmp_path):
    """A file with learned parameters only would be read with others of a later declaration."""
    template = pgm.Template(chain()).with_params({"move": np.log([[0.9, 0.1], [0.2, 0.8]])})
    pgm.save(template, tmp_path / "t")

    def later(steps):
        b = chain()(steps)
        at = [d.name for d in b.declared].index("country")
        del b.declared[at]
        b.conditional("country", (), [0.9, 0.1], name="country")
        return b

    again = pgm.load(tmp_path / "t", declare=later)
    np.testing.assert_array_equal(again.params["country"], np.log([0.3, 0.7]))


def test_weights_cannot_be_put_in_order(tmp_path):
    def spins(states):
        def declare(steps):
            b = pgm.GraphBuilder()
            s = b.layer("s", pgm.Spin(), steps, states=states)
            b.couple(s[1:], s[:-1], 0.3, name="bond")
            b.bias(s, 0.1, name="field")
            return b

        return declare

    template = pgm.Template(spins(("down", "up"))).with_params({"bond": 0.5})
    pgm.save(template, tmp_path / "t")
    assert pgm.load(tmp_path / "t", declare=spins(("down", "up"))).params["bond"] == 0.5
    with pytest.raises(pgm.PgmError, match="Tables can be put in order, but '.*' cannot"):
        pgm.load(tmp_path / "t", declare=spins(("up", "down")))


def test_one_table_for_two_orders_is_refused(tmp_path):
    def pair(first, second):
        def declare(steps):
            b = pgm.GraphBuilder()
            for name, states in (("a", first), ("b", second)):
                b.conditional(b.variable(name, states=states, shape=steps), (), [0.5, 0.5], "coin")
            return b

        return declare

    sides = ("head", "tail")
    pgm.save(
        pgm.Template(pair(sides, sides)).with_params({"coin": np.log([0.2, 0.8])}), tmp_path / "t"
    )
    both = pgm.load(tmp_path / "t", declare=pair(sides[::-1], sides[::-1]))
    assert pgm.infer(both, [2])[0].marginal("b[1]")["tail"] == pytest.approx(0.8)
    with pytest.raises(pgm.PgmError, match="'coin' is used by variables whose states have other"):
        pgm.load(tmp_path / "t", declare=pair(sides, sides[::-1]))


def test_biases_of_variables_do_not_change_places(tmp_path):
    """Variables with the same states share a layer, in the order in which they are declared."""

    def tilted(first, second, states=("no", "yes")):
        def declare(steps):
            b = pgm.GraphBuilder()
            b.variable(first, states=states)
            b.variable(second, states=states)
            s = b.variable("s", states=2, shape=steps)
            b.table((s, "a"), [[2.0, 1.0], [1.0, 2.0]], name="left")
            b.table((s, "b"), [[3.0, 1.0], [1.0, 3.0]], name="right")
            return b

        return declare

    template = pgm.Template(tilted("a", "b")).with_params({"variables2.bias": [2.0, -1.0]})
    pgm.save(template, tmp_path / "t")
    again = pgm.load(tmp_path / "t", declare=tilted("a", "b"))
    assert again.params["variables2.bias"].tolist() == [2.0, -1.0]
    for other in (tilted("b", "a"), tilted("a", "b", ("yes", "no"))):
        with pytest.raises(pgm.PgmError, match="variables2.bias' (has the units|cannot)"):
            pgm.load(tmp_path / "t", declare=other)


def test_numbers_of_large_gates_are_in_the_file(tmp_path):
    """They are parameters; another kind of gate is refused."""

    def alarm(p, gate=pgm.noisy_or):
        def declare(steps):
            b = pgm.GraphBuilder()
            c, y = b.variable("c", shape=(steps, 30)), b.variable("y", states=("no", "yes"))
            b.conditional(c, (), [0.9, 0.1], name="cause")
            b.conditional(y, [c[0, i] for i in range(30)], gate([p] * 30))
            return b

        return declare

    template = pgm.Template(alarm(0.5)).with_params({"cause": np.log([0.8, 0.2])})
    pgm.save(template, tmp_path / "t")
    assert "cause" in pgm.load(tmp_path / "t", declare=alarm(0.5)).learned
    (key,) = (k for k in template(1).params if k.endswith(".gate"))
    again = pgm.load(tmp_path / "t", declare=alarm(0.4))
    assert np.array_equal(again(1).params[key], template(1).params[key])
    with pytest.raises(pgm.PgmError, match="has the (shape|form)"):
        pgm.load(tmp_path / "t", declare=alarm(0.4, pgm.noisy_and))


@pytest.mark.parametrize("causes", [3, 23])
def test_states_beside_a_gate_are_put_in_order(causes, tmp_path):
    def chain(states):
        def declare(steps):
            b = pgm.GraphBuilder()
            z = b.variable("z", states=states, shape=steps)
            b.conditional(z, (), [0.6, 0.4] if states[0] == "a" else [0.4, 0.6], name="first")
            c, y = b.variable("c", shape=causes), b.variable("y", shape=steps)
            b.conditional(c, (), [0.9, 0.1], name="cause")
            b.conditional(y, [c[i] for i in range(causes)], pgm.noisy_or([0.3] * causes), name="g")
            return b

        return declare

    rows = [{"z": ["a", "b"], "y": [1, 0]}, {"z": ["a", "a"], "y": [1, 1]}]
    learned = pgm.fit(pgm.Template(chain(("a", "b"))), rows, updates=2, progress=False)
    pgm.save(learned, tmp_path / "t")
    again = pgm.load(tmp_path / "t", declare=chain(("b", "a")))
    one, two = (pgm.infer(t, rows, want=("log_prob",)) for t in (learned, again))
    for r, q in zip(one, two, strict=True):
        np.testing.assert_allclose(r.log_prob, q.log_prob, rtol=1e-12)


def test_terms_of_a_long_memory_are_compared(tmp_path):
    def memory(*lags):
        def declare(steps):
            b = pgm.GraphBuilder()
            z = b.variable("z", states=2, shape=steps)
            for lag in lags:
                if steps > lag:
                    b.table((z[lag:], z[:-lag]), np.ones((2, 2)), name=f"lag{lags[-1]}")
            return b

        return declare

    template = pgm.Template(memory(5)).with_params({"lag5": np.zeros((2, 2))})
    pgm.save(template, tmp_path / "t")
    with pytest.raises(pgm.PgmError, match="'lag5' has the places"):
        pgm.load(tmp_path / "t", declare=memory(4, 5))
    assert "lag5" in pgm.load(tmp_path / "t", declare=memory(5)).learned


def test_files_without_names_of_states_are_read_with_a_warning(caplog):
    def weather(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", states=("dry", "wet"), shape=steps)
        x = b.variable("x", states=("walk", "umbrella"), shape=steps)
        b.conditional(z[0], (), [0.6, 0.4], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.8, 0.2], [0.3, 0.7]], name="transition")
        b.conditional(x, (z,), [[0.9, 0.1], [0.2, 0.8]], name="emission")
        return b

    with caplog.at_level(logging.WARNING, "pgmengine"):
        found = pgm.load(KEPT / "template-1.safetensors", declare=weather)
    np.testing.assert_array_equal(found.params["start"], np.log([0.25, 0.75]))
    assert "without the names of states" in caplog.text


def test_weights_of_a_saved_model_meet_its_states_and_units(tmp_path):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, states=("off", "on"))
    b.layer("h", pgm.Binary(), 1)
    b.couple("v", "h", weight=[[1.0], [2.0]])
    pgm.save(b.build(), tmp_path / "w.safetensors")
    text = """
    weights = "w.safetensors"
    [[layers]]
    name = "v"
    unit = "Binary"
    size = 2
    states = ["off", "on"]
    [[layers]]
    name = "h"
    unit = "Binary"
    size = 1
    [[couplings]]
    couple = ["v", "h"]
    """
    (tmp_path / "m.toml").write_text(text)
    found = pgm.load_declaration(tmp_path / "m.toml").params["v-h.weight"]
    np.testing.assert_array_equal(found, [[1.0], [2.0]])
    for old, new, said in (
        ('"off", "on"', '"on", "off"', "another order of them in the declaration"),
        ('"off", "on"', '"low", "high"', "states 'off', 'on' in the file, and 'low', 'high'"),
        ('"Binary"', '"Spin"', "the unit type Binary in the file, and Spin"),
    ):
        (tmp_path / "m.toml").write_text(text.replace(old, new))
        with pytest.raises(pgm.PgmError, match=said):
            pgm.load_declaration(tmp_path / "m.toml")


def test_fits_that_are_made_at_once_have_their_tables_over_the_same_units():
    def pairs(index):
        b = pgm.GraphBuilder()
        b.layer("v", pgm.Binary(), 3)
        b.tables(("v", "v"), index, np.ones((2, 2)))
        return b.build()

    models = [pairs([[0, 1], [1, 2]]), pairs([[0, 1], [0, 2]])]
    with pytest.raises(pgm.PgmError, match="over the same units"):
        pgm.fit(models, {"v": np.eye(3)}, updates=1, repeats=2, progress=False)


def test_checkpoints_belong_to_the_order_of_states(tmp_path):
    rows = [{"x": ["pay", "home", "home"]}, {"x": ["basket", "home"]}]

    def fit(seen):
        template = pgm.Template(chain(seen))
        return pgm.fit(template, rows, updates=2, checkpoint=tmp_path / "c", progress=False)

    fit(SEEN)
    with pytest.raises(pgm.PgmError, match="belongs to another fit, which differs in model"):
        fit(SEEN[::-1])


@one_test_over("text", ["", "[1]", '{"2": 3}', '{"2": {"variables": {"x": 1}}}', "{]"])
def test_damaged_descriptions_are_refused(tmp_path, text):
    pgm.save(learned(chain()), tmp_path / "t")
    tensors, metadata = parts_of(tmp_path / "t")
    del metadata["sha256"]
    write_tensors(tmp_path / "t", tensors, {**metadata, "descriptions": text})
    with pytest.raises(pgm.PgmError, match="is damaged: its descriptions"):
        pgm.load(tmp_path / "t", declare=chain())
