"""Names of states and units that are no text: at every door, in files, and in displays."""

import datetime
import decimal
import enum
import fractions
import io

import networkx as nx
import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine.evidence.evidence import parse_evidence

pd = extra("pandas")


class Colour(enum.Enum):
    RED, BLUE = 1, 2


class Text(enum.StrEnum):
    RED, BLUE = "red", "blue"


DAY = datetime.date(2020, 1, 1)

# Two names of states, and whether a file gives them back.
NAMES = {
    "dates": ((DAY, datetime.date(2020, 1, 2)), False),
    "times": ((datetime.datetime(2020, 1, 1, 3), datetime.datetime(2020, 1, 2, 3)), False),
    "bytes": ((b"a", b"b"), False),
    "Enums": ((Colour.RED, Colour.BLUE), False),
    "Enums of text": ((Text.RED, Text.BLUE), True),
    "booleans of numpy": ((np.bool_(True), np.bool_(False)), True),
    "integers of numpy": ((np.int64(3), np.int64(4)), True),
    "text of numpy": ((np.str_("a"), np.str_("b")), True),
    "single precision": ((np.float32(0.1), np.float32(0.2)), True),
    "Decimals": ((decimal.Decimal("0.1"), decimal.Decimal("0.2")), False),
    "Fractions": ((fractions.Fraction(1, 3), 2), False),
    "complex numbers": ((1 + 2j, 3), False),
    "tuples": ((("a", 1), ("b", 2)), True),
    "tuples of numpy": ((("a", np.int64(1)), ("b", np.bool_(True))), True),
    "tuples within tuples": ((("a", ("b", None)), "a"), True),
    "tuples of dates": ((("a", DAY), "a"), False),
    "frozen sets": ((frozenset({1}), frozenset({2})), False),
    "infinite numbers": ((float("inf"), 0.0), True),
    "large integers": ((10**400, 1), False),
}
every = one_test_over("kind", NAMES)


def model_of(states=None, labels=None):
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Binary(), 1, states=states, labels=labels)
    b.layer("t", pgm.Binary(), 1)
    b.couple("s", "t", weight=[[1.5]])
    return b.build()


def read(model, given):
    """The states of unit s in the rows that were given."""
    evidence = parse_evidence(model.structure, given)
    assert evidence.pattern.observed["s"].all()
    return evidence.values["s"].ravel().tolist()


def forms(name):
    """A name alone, in lists, in arrays of objects and in pandas."""
    objects = np.empty(2, dtype=object)
    objects[0] = objects[1] = name
    yield {"s": name}
    yield {("s", 0): name}
    yield {"s": [name]}
    yield {"s": [name, name]}
    yield {"s": (name, name)}
    yield {"s": [[name], [name]]}
    yield {"s": objects}
    yield {"s": objects[:, None]}
    yield {"s": pd.Series(objects, dtype=object)}
    yield pd.DataFrame({"s": pd.Series(objects, dtype=object)})


@every
def test_every_form_of_a_name_is_its_state(kind):
    names = NAMES[kind][0]
    model = model_of(names)
    for state, name in enumerate(names):
        for given in forms(name):
            assert set(read(model, given)) == {state}, given
        truth = pgm.infer(model, {"s": name}).prob["t"]
        soft = {"s": {one: 0.0 if one == name else -np.inf for one in names}}
        np.testing.assert_allclose(pgm.infer(model, soft=soft).prob["t"], truth, atol=1e-12)
    r = pgm.infer(model, want=("marginals", "mode", "samples"), rng=0)
    assert set(r.marginal("s")) == set(names)
    assert set(read(model, r.samples_frame())) == {0.0, 1.0}
    assert read(model, {"s": r.assignment()["s", 0]}) == r.mode["s"].tolist()


@every
def test_a_table_of_draws_comes_back_from_text(kind):
    model = model_of(NAMES[kind][0])
    frame = pgm.infer(model, want="samples", method=pgm.Exact(draws=20), rng=0).samples_frame()
    text = frame.to_csv(index=False)
    if kind in ("Enums of text", "large integers"):
        # pandas writes the class of the first, and reads the second as infinite.
        return
    for back in (pd.read_csv(io.StringIO(text)), pd.read_csv(io.StringIO(text), dtype=str)):
        assert read(model, back) == read(model, frame)


@every
def test_a_file_gives_names_back_or_is_not_written(kind, tmp_path):
    names, comes_back = NAMES[kind]
    for model in (model_of(names), model_of(labels=names[:1])):
        if comes_back:
            pgm.save(model, tmp_path / "m")
            back = pgm.load(tmp_path / "m").structure.layers["s"]
            layer = model.structure.layers["s"]
            assert (back.labels, back.state_names) == (layer.labels, layer.state_names)
            continue
        (tmp_path / "m").write_text("as it was")
        with pytest.raises(pgm.PgmError, match="layer 's': .*cannot be saved as a"):
            pgm.save(model, tmp_path / "m")
        assert (tmp_path / "m").read_text() == "as it was"


def test_deep_tuples_and_numbers_that_are_none_are_not_written(tmp_path):
    for depth, saved in ((3, True), (60, True), (61, False), (70, False)):
        name = 1
        for _ in range(depth):
            name = (name,)
        model = model_of(labels=[name])
        if saved:
            pgm.save(model, tmp_path / "m")
            assert pgm.load(tmp_path / "m").structure.layers["s"].labels == (name,)
            continue
        with pytest.raises(pgm.PgmError, match="cannot be saved"):
            pgm.save(model, tmp_path / "m")
    with pytest.raises(pgm.PgmError, match="nan cannot be saved"):
        pgm.save(model_of(labels=[float("nan")]), tmp_path / "m")


def test_a_tuple_that_may_be_one_name_or_several_is_refused():
    model = model_of((("a", "b"), "a"))
    assert read(model, {"s": ("a", "a")}) == [1, 1]
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Categorical(3), 1, states=(("a", "b"), "a", "b"))
    layer = b.build()
    with pytest.raises(pgm.PgmError, match=r"may be the name of a state, or 2 states"):
        pgm.infer(layer, {"s": ("a", "b")})
    given = {"s": ["('a', 'b')", "a"]}
    np.testing.assert_array_equal(pgm.infer(layer, given).prob["s"][:, 0], np.eye(3)[:2])
    assert pgm.infer(layer, {"s": ["a", "b"]}).target.rows == 2


def test_lists_of_unequal_lengths_are_refused():
    ragged = [np.zeros((2, 3)), np.zeros((2, 2))]
    with pytest.raises(pgm.PgmError, match="is not an array of values"):
        pgm.infer(model_of(("a", "b")), {"s": ragged})
    with pytest.raises(pgm.PgmError, match="lists of 1 and 2 values"):
        pgm.infer(model_of(NAMES["tuples"][0]), {"s": [[("a", 1)], [("a", 1), ("b", 2)]]})


def grid():
    """Four units named by tuples, whose states are named by tuples."""
    graph = nx.grid_2d_graph(2, 2)
    nx.set_node_attributes(graph, (("lo", 0), ("hi", 1)), "states")
    nx.set_edge_attributes(graph, 1.0, "weight")
    return pgm.GraphBuilder.from_networkx(graph).build()


def test_units_named_by_tuples_are_named_alone_and_among_others(tmp_path):
    model, seen = grid(), {(0, 0): ("hi", 1)}
    truth = pgm.infer(model, seen)
    for observed in ((0, 0), ((0, 0),), [(0, 0)], "(0, 0)"):
        found = pgm.prepare(model, observed=observed)(seen)
        assert found.marginal((1, 1)) == truth.marginal((1, 1))
    for given in ({"(0, 0)": ("hi", 1)}, {(0, 0): "('hi', 1)"}):
        assert pgm.infer(model, given).marginal("(1, 1)") == truth.marginal((1, 1))
    r = pgm.infer(model, seen, want=(pgm.Joint((0, 1)), "samples"), rng=0)
    np.testing.assert_allclose(r.joint[(0, 1)], list(truth.marginal((0, 1)).values()))
    frame = r.samples_frame()
    pgm.fit(model, frame, given=(0, 0), updates=1, negative=pgm.CD(), progress=False)
    frame.to_csv(tmp_path / "x.csv", index=False)
    back = pd.read_csv(tmp_path / "x.csv")
    for name, rates in pgm.base_rates(model, back).items():
        np.testing.assert_array_equal(rates, pgm.base_rates(model, frame)[name])


def test_trees_of_arviz_have_names_that_are_tuples():
    extra("arviz_base")
    b = pgm.GraphBuilder()
    states, labels = [("a", 0), ("b", 1), ("c", 2)], [("p", 1), ("q", 2)]
    b.layer("v", pgm.Categorical(3), 2, labels=labels, states=states)
    tree = pgm.infer(b.build(), want=("samples",), rng=0).to_arviz()
    assert list(tree["posterior"]["v_state"].values) == [str(state) for state in states]
    assert list(tree["posterior"]["v_unit"].values) == [str(label) for label in labels]


@one_test_over("name", ["NA", "nan", "None", "null", "", "N/A"])
def test_states_of_which_pandas_makes_nan_are_not_lost_in_silence(name):
    b = pgm.GraphBuilder()
    b.variable("x", states=("low", name))
    b.conditional("x", (), [0.3, 0.7])
    model, text = b.build(), f'x\nlow\n"{name}"\n'
    frame = pd.read_csv(io.StringIO(text))
    for given in (frame, {"x": frame["x"]}, {"variables2": frame["x"]}, {"variables2": frame}):
        with pytest.raises(pgm.PgmError, match=rf"row 1.*NaN may be .*, or the state {name!r}"):
            pgm.infer(model, given)
    kept = pd.read_csv(io.StringIO(text), keep_default_na=False)
    np.testing.assert_array_equal(pgm.infer(model, kept).marginal("x")["low"], [1, 0])
    free = kept.astype(object).where(kept == "low", None)
    for given in (free, {"x": ["low", np.nan]}, {"x": np.array(["low", None], dtype=object)}):
        np.testing.assert_allclose(pgm.infer(model, given).marginal("x")["low"], [1, 0.3])
