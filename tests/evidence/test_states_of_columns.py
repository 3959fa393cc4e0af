"""States named by the values of a column: numbers and booleans, in any order.

A value is always the name of a state, and never its number.
"""

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine.apps.explorer.exploration import arguments, given_of
from pgmengine.apps.reading.inputs import read_evidence

pd = extra("pandas")

STATES = [
    (False, True), (True, False), (0, 1), (1, 0), (0, 1, 2), (1, 2, 3), (2, 1, 0), (0.5, 1.5),
    (-1, 1), ("unknown", 1, 2),
]  # fmt: skip


def low(states):
    """P(y = low) in each state of x."""
    return np.linspace(0.9, 0.2, len(states))


def root(states):
    return np.arange(1, len(states) + 1) / sum(range(1, len(states) + 1))


def pair(states):
    b = pgm.GraphBuilder()
    b.variable("x", states=states)
    b.variable("y", states=("low", "high"))
    b.conditional("x", (), root(states))
    b.conditional("y", ("x",), np.stack([low(states), 1 - low(states)], axis=1))
    return b.build()


def columns(states):
    """The column in every type that a table may give it."""
    column = pd.Series(list(states))
    return {
        "list": list(states),
        "array": np.array(states, dtype=column.dtype),
        "objects": np.array(states, dtype=object),
        "series": column,
        "nullable": column.convert_dtypes(),
        "categories": column.astype("category"),
        "text": [str(x) for x in states],
    }


@one_test_over("states", STATES)
def test_a_column_names_the_states(states):
    model = pair(states)
    for name, column in columns(states).items():
        for given in ({"x": column}, pd.DataFrame({"x": column})):
            found = pgm.infer(model, given).marginal("y")["low"]
            np.testing.assert_allclose(found, low(states), err_msg=name)
        done = pgm.infer(model, do={"x": column}).marginal("y")["low"]
        np.testing.assert_allclose(done, low(states), err_msg=name)
    for state, p in zip(states, low(states), strict=True):
        assert pgm.infer(model, {"x": state}).marginal("y")["low"] == pytest.approx(p)


@one_test_over("states", STATES)
def test_answers_have_the_states_and_can_be_given_back(states):
    model = pair(states)
    r = pgm.infer(model, want=("marginals", "samples", "mode"), rng=0)
    marginal = r.marginal("x")
    assert [*map(repr, marginal)] == [*map(repr, states)]
    for state, p in zip(states, root(states), strict=True):
        assert marginal[state] == marginal[str(state)] == pytest.approx(p)
    with pytest.raises(KeyError, match="'other' is no state"):
        marginal["other"]
    assert r.assignment()["x"] == states[-1]
    draws = r.samples_frame().head(20)
    np.testing.assert_allclose(
        pgm.infer(model, draws[["x"]]).marginal("y")["low"],
        [low(states)[states.index(x)] for x in draws["x"]],
    )
    code = arguments(model.structure, given_of(model, {"x": states[0]})).code()
    assert code == repr({"x": states[0]})
    given = read_evidence(model, [f"x={states[0]}"])
    assert pgm.infer(model, given).marginal("y")["low"] == pytest.approx(low(states)[0])


@one_test_over("states", STATES)
def test_learning_counts_the_states(states):
    b = pgm.GraphBuilder()
    b.variable("x", states=states)
    b.conditional("x", (), np.ones(len(states)) / len(states))
    column = pd.Series([states[0]] + [states[-1]] * 3)
    fit = pgm.fit(b.build(), {"x": column}, optimizer=pgm.EM(), progress=False)
    expected = np.bincount([0] + [len(states) - 1] * 3, minlength=len(states)) + 1.0
    found = list(pgm.infer(fit).marginal("x").values())
    np.testing.assert_allclose(found, expected / expected.sum(), atol=1e-6)


@one_test_over("states", STATES)
def test_files_and_graphs_keep_the_states(states, tmp_path):
    model = pair(states)
    pgm.save(model, tmp_path / "m.safetensors")
    again = [pgm.load(tmp_path / "m.safetensors")]
    again.append(pgm.GraphBuilder.from_networkx(model.to_networkx("variables")).build())
    for other in again:
        assert [*map(repr, pgm.infer(other).marginal("x"))] == [*map(repr, states)]
    for suffix in ("bif", "net", "xmlbif"):
        pgm.write(model, tmp_path / f"m.{suffix}")
        again.append(pgm.read(tmp_path / f"m.{suffix}"))
    for other in again:
        for state, p, share in zip(states, low(states), root(states), strict=True):
            assert pgm.infer(other, {"x": state}).marginal("y")["low"] == pytest.approx(p)
            assert pgm.infer(other).marginal("x")[state] == pytest.approx(share)


def test_declarations_templates_and_functions_take_them(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(
        "[[variables]]\nname = 'n'\nstates = [3, 2, 1]\n"
        "[[variables]]\nname = 'w'\nstates = [true, false]\n"
        "[[tables]]\nscope = ['n', 'w']\nvalues = [[1, 9], [2, 8], [3, 7]]\n"
    )
    model = pgm.load_declaration(file)
    assert pgm.infer(model, {"n": 2}).marginal("w")[True] == pytest.approx(0.2)

    def chain(steps):
        b = pgm.GraphBuilder()
        x = b.variable("x", states=(1, 0), shape=steps)
        b.conditional(x[0], (), [0.9, 0.1], name="start")
        b.conditional(x[1:], (x[:-1],), lambda before: before, name="move")
        return b

    rows = [{"x": np.ma.array([1, 0, 0], mask=[False, True, True])}, {"x": [None, 0]}]
    found = pgm.infer(pgm.Template(chain), rows)
    assert [float(r.marginal("x[1]")[1]) for r in found] == [1.0, 0.0]
    b = pgm.GraphBuilder()
    a = b.variable("a", states=np.array([2, 0]))
    c = b.variable("c", states=(np.int64(0), np.int64(2)))
    b.conditional(a, (), [0.25, 0.75])
    b.conditional(c, (a,), rows={(2,): 2}, otherwise={0: 1.0})
    assert pgm.infer(b.build()).marginal("c") == pytest.approx({0: 0.75, 2: 0.25})


@one_test_over(
    ("states", "message"),
    [
        ((True, 1), "names that differ as text"),
        (("1", 1), "names that differ as text"),
        ((1, 1), "names that differ as text"),
        ((), "one or more names"),
        ((0, float("nan")), "must be text, numbers or booleans, not nan"),
        ((0, None), "must be text, numbers or booleans, not None"),
        ((0, (1, 2)), r"must be text, numbers or booleans, not \(1, 2\)"),
        (np.array(["2020", "2021"], "M8[ns]"), "must be text, numbers or booleans"),
    ],
)
def test_names_that_mean_one_thing_or_nothing_are_refused(states, message):
    with pytest.raises(pgm.PgmError, match=message):
        pgm.GraphBuilder().variable("x", states=states)


@one_test_over("states", [(1, 2, 3), (True, False), (0.5, 1.5)])
def test_a_number_of_a_state_is_refused(states):
    with pytest.raises(pgm.PgmError, match=f"0 is no state, expected one of {states[0]}"):
        pgm.infer(pair(states), {"x": 0})
