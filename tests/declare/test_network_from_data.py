"""pgm.network: edges in every form, and columns of every kind in every container."""

from functools import cache

import networkx as nx
import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine.declare.networks.edges import parents_of_edges

TEXT = ["b", "a", None, "b", "c", "a"]
DATA = {
    "text": TEXT,
    "bool": [True, None, False, True, True, False],
    "int": [3, 1, None, 1, 2, 3],
    "real": [0.25, None, 1.5, 2.0, 0.5, 1.0],
    "whole": [2, 1, 3, 1, 2, 3],
    "id": list("uvwxyz"),
}
STATES = {"text": ("a", "b", "c"), "bool": (False, True), "int": (1, 2, 3), "whole": (1, 2, 3)}
EDGES = "text -> bool <- int, bool -> real; whole"


class Polars:
    """The interface of a DataFrame of polars that is read."""

    def __init__(self, data):
        self.columns, self.get_columns = list(data), lambda: list(data.values())

    def __len__(self):
        return 6


class Arrow:
    """The interface of a Table of pyarrow that is read."""

    def __init__(self, data):
        self.column_names, self.columns = list(data), list(data.values())

    def __len__(self):
        return 6


def states_of(model):
    layers = model.structure.layers
    return {
        model.structure.names.of(x): layers[x[0]].state_names for x in model.structure.variables
    }


def check(data):
    """Kinds, states and empty cells are those of DATA, and the model learns from the container."""
    model = pgm.network(data, EDGES)
    assert states_of(model) == STATES
    assert isinstance(model.structure.layers["real"].unit, pgm.Normal)
    assert set(model.structure.left_out) == {"id"}
    assert model.structure.origin.columns == {
        "text": "text, 1 of 6 cells empty",
        "bool": "booleans, 1 of 6 cells empty",
        "int": "integers, 1 of 6 cells empty",
        "real": "numbers, 1 of 6 cells empty",
        "whole": "integers, no empty cell",
    }
    learned = pgm.fit(model, data, updates=2, progress=False).model
    for name, value in learned_from_data().params.items():
        assert np.array_equal(learned.params[name], value), name


@cache
def learned_from_data():
    return pgm.fit(pgm.network(DATA, EDGES), DATA, updates=2, progress=False).model


def test_kinds_of_columns_in_mappings_and_frames():
    for data in (DATA, Polars(DATA), Arrow(DATA)):
        check(data)


@pytest.mark.long
def test_kinds_of_columns_in_frames_of_pandas():
    pd = extra("pandas")
    check(pd.DataFrame(DATA))
    check(pd.DataFrame(DATA).convert_dtypes())
    check(pd.DataFrame(DATA).assign(text=pd.Series(TEXT, dtype="string")))


@pytest.mark.long
def test_kinds_of_columns_in_frames_of_polars():
    pl = extra("polars")
    check(pl.DataFrame(DATA))
    check(pl.DataFrame(DATA).with_columns(pl.col("text").cast(pl.Categorical)))
    data = pl.DataFrame({"x": pl.Series(["b", None, "a"], dtype=pl.Enum(["b", "z", "a"]))})
    assert states_of(pgm.network(data, "x"))["x"] == ("b", "z", "a")
    with pytest.raises(pgm.PgmError, match="LazyFrame"):
        pgm.network(data.lazy(), "x")


@pytest.mark.long
def test_kinds_of_columns_in_tables_of_pyarrow():
    pa = extra("pyarrow")
    check(pa.table(DATA))
    check(pa.table(DATA).to_batches()[0])
    # numpy would read the missing cell of such a column as its last value.
    codes = [pa.array(TEXT[:3]).dictionary_encode(), pa.array(TEXT[3:]).dictionary_encode()]
    check(pa.table(DATA | {"text": pa.chunked_array(codes)}))


def test_categories_keep_their_order_and_the_unseen_ones():
    pd = extra("pandas")
    order = ["low", "high", "top"]
    data = pd.DataFrame(
        {"x": pd.Categorical(["high", None, "low"], order), "y": [True, False, True]}
    )
    model = pgm.network(data, [("x", "y")])
    assert states_of(model)["x"] == tuple(order)
    assert model.structure.origin.columns["x"] == "categories, 1 of 3 cells empty"
    assert pgm.fit(model, data, progress=False).stopped


@one_test_over("edges", [
    "a -> b <- c, b -> d",
    "a->b; c->b\n b -> d",
    "d <- b <- a; b <- c",
    [("a", "b"), ("c", "b"), ("b", "d")],
    ["a -> b <- c", ("b", "d"), "a"],
    nx.DiGraph([("a", "b"), ("c", "b"), ("b", "d")]),
])  # fmt: skip
def test_edges_in_every_form(edges):
    parents = parents_of_edges(edges)
    assert {x: set(above) for x, above in parents.items()} == {
        "a": set(), "b": {"a", "c"}, "c": set(), "d": {"b"},
    }  # fmt: skip


def test_without_data():
    states = {"rain": ["no", "yes"], "wet": 3, "dose": [0.5, 0.25]}
    for model in (
        pgm.network("rain -> wet; dose", states=states),
        pgm.network(states, [("rain", "wet"), ("dose",)]),
        pgm.network(states, "rain -> wet"),
    ):
        assert states_of(model) == {"rain": ("no", "yes"), "wet": None, "dose": (0.5, 0.25)}
        assert np.allclose(np.exp(model.params["wet|rain.table"]), 1 / 3)
        assert model.structure.origin is None
    numbers = pgm.network("rain -> x", states={"rain": 2, "x": pgm.Normal(0.5)})
    assert numbers.structure.layers["x"].unit == pgm.Normal(0.5)


def test_declared_states_override_columns_and_add_hidden_variables():
    states = {"h": 2, "int": pgm.Normal(), "text": ["c", "b", "a", "z"]}
    model = pgm.network(DATA, "h -> int, h -> text", states=states)
    assert states_of(model) == {"text": ("c", "b", "a", "z"), "h": None}
    assert "int: 1 Normal" in repr(model)
    assert "h: 2 states; no column" in repr(model)
    assert "as declared, 1 of 6 cells empty" in repr(model)


def test_columns_left_out_are_left_out_of_frames_and_of_data_only():
    model = pgm.network(DATA, "text -> bool")
    assert "declared from 6 rows; left out: int, real, whole, id" in repr(model)
    assert "left out" in model._repr_html_()
    learned = pgm.fit(model, DATA, progress=False)
    assert "declared from 6 rows" in repr(learned.model)
    with pytest.raises(pgm.PgmError, match="'id'"):
        pgm.infer(model, {"id": "u"})
    for frame in (Polars(DATA), Arrow(DATA)):
        assert len(pgm.infer(learned, frame, want=("log_prob",)).log_prob) == 6


def test_tables_of_several_kinds_count_the_rows():
    """Learned tables are the counts of complete rows, with the pseudocount that fit documents."""
    rng = np.random.default_rng(3)
    a, noise = rng.integers(0, 3, 200), rng.random(200)
    data = {"a": np.array(["x", "y", "z"])[a], "b": noise < 0.2 + 0.3 * a, "r": a * 5.0 + noise}
    model = pgm.network(data, "b <- a -> r")
    learned = pgm.fit(model, data, optimizer=pgm.EM(pseudocount=0), progress=False).model
    for state, name in enumerate("xyz"):
        shown, mine = pgm.infer(learned, {"a": name}), data["r"][a == state]
        assert shown.marginal("b")[True] == pytest.approx(data["b"][a == state].mean(), abs=1e-9)
        mean, square = shown.mean["r"][0]
        assert mean == pytest.approx(mine.mean(), rel=1e-6)
        assert square - mean**2 == pytest.approx(mine.var(), rel=1e-4)


WRONG = {
    "an unknown name": (DATA, "text -> bol", {}, "'bol' is no column.*did you mean bool"),
    "a cycle": (DATA, "text -> bool -> text", {}, "cycle: text -> bool -> text;"),
    "numbers as a parent": (DATA, "real -> bool", {}, "'real' -> 'bool'.*pandas.cut"),
    "numbers without a parent": (DATA, "real", {}, "'real' holds numbers and has no parent"),
    "undirected": (DATA, "text -- bool", {}, "'text -- bool'.*between arrows"),
    "an arrow to nothing": (DATA, "text ->", {}, "'text ->' has ''"),
    "a triple": (DATA, [("text", "bool", "int")], {}, "edge 0 is"),
    "one pair": (DATA, ("text", "bool"), {}, "may be one edge or two variables"),
    "a mapping": (DATA, {"text": "bool"}, {}, "the edges are {'text': 'bool'}"),
    "complex numbers": ({"a": [1j, 2, 2]}, "a", {}, "'a' is not an array of numbers"),
    "more than a double": ({"a": [10**400, 1, 1]}, "a", {}, "'a' is not an array of numbers"),
    "an undirected graph": (DATA, nx.Graph([("text", "bool")]), {}, "undirected graph"),
    "no edges": (DATA, "", {}, "no edges"),
    "edges that are left out": (DATA, None, {}, "edges are missing"),
    "no data": (3, "a -> b", {}, "data must be a DataFrame.*not int"),
    "a single value": ({"a": ["x", None, "x"]}, "a", {}, "column 'a' has one value only, 'x'"),
    "a single number": ({"a": [1.5, 1.5], "b": [0, 1]}, "b -> a", {}, "'a' has one number only"),
    "nothing but gaps": ({"a": [None] * 3, "b": [1, 2, 1]}, "a", {}, "all of its 3 cells"),
    "cells of two kinds": ({"a": ["x", "y", "x", 3]}, "a", {}, "'a', row 3 holds 3.*'x' in row 0"),
    "empty text": ({"a": ["x", " ", "x"]}, "a", {}, "'a', row 1 holds ' ': give None"),
    "an infinite number": ({"a": [1.5, np.inf, 1.5], "b": [1, 2, 1]}, "b -> a", {}, "'a', row 1"),
    "many integers": ({"a": [*range(40), 0]}, "a", {}, "'a' holds 40 different.*pgm.Normal()"),
    "unequal lengths": (
        {"a": [1, 2, 1], "b": [1, 2]}, "a -> b", {}, "'b' has 2 rows, and column 'a' has 3",
    ),
    "dates": ({"a": np.array(["2020-01-01"] * 2, "M8[D]")}, "a", {}, "dates or times"),
    "rows of two": ({"a": np.zeros((3, 2))}, "a", {}, r"'a' has shape \(3, 2\)"),
    "states without a name": ("a -> b", None, {"a": 2}, "no data, and 'b' has no states"),
    "states that no edge has": (DATA, "text", {"txt": 2}, "'txt' is in no edge; did you mean text"),
    "states twice": ({"a": 2}, "a", {"a": 2}, "given twice"),
    "another unit": (DATA, "text -> real", {"real": pgm.Spin()}, "unit Spin.*expected pgm.Normal"),
    "a table that is too large": (
        {x: [f"{x}{i}" for i in range(3000)] * 2 for x in "abcd"}, "a -> d <- b, c -> d", {},
        "table of 'd' given 'a', 'b', 'c' has 81,000,000,000,000 entries.*GiB",
    ),
}  # fmt: skip


@one_test_over("what", WRONG)
def test_messages(what):
    data, edges, states, message = WRONG[what]
    with pytest.raises(pgm.PgmError, match=message):
        pgm.network(data, edges, states=states or None)
