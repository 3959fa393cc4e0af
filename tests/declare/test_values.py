"""Values of tables by functions and sparse rows: entries against loops, and messages."""

from itertools import product

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine import PgmError

NAMES = {"a": ("low", "mid", "high"), "b": ("no", "yes"), "c": ("red", "green", "blue")}


def builder(*names, plain=()):
    """A builder with variables; those in `plain` have states without names."""
    b = pgm.GraphBuilder()
    for name in names:
        b.variable(name, states=len(NAMES[name]) if name in plain else NAMES[name])
    return b


def entries(b, key):
    """The entries of a table of the built model."""
    model = b.build()
    (tables,) = (t for t in model.structure.tables if t.key.rpartition(".")[0] == key)
    return np.exp(model.entries_of(tables))


def with_roots(b, *names):
    """The builder, with a uniform distribution of some roots."""
    for name in names:
        b.conditional(name, (), np.full(len(NAMES[name]), 1 / len(NAMES[name])))
    return b


def of_function(function, parents=("a", "b"), child="c", plain=()):
    """The conditional of a child that a function gives."""
    b = with_roots(builder(*parents, child, plain=plain), *parents)
    b.conditional(child, parents, function)
    return entries(b, f"{child}|{','.join(parents)}")


def test_a_function_is_called_with_the_names_of_states():
    seen = []

    def f(a, b):
        seen.append((a, b))
        return "red"

    of_function(f)
    assert seen == list(product(NAMES["a"], NAMES["b"]))


def test_states_without_names_are_integers():
    seen = []
    of_function(lambda a, b: seen.append((a, b)) or 0, plain=("a", "b"))
    assert seen == list(product(range(3), range(2))) and all(type(k) is int for k, _ in seen)


def color_of(a, b):
    """A state by its name."""
    return "blue" if b == "yes" else {"low": "red", "mid": "green", "high": "red"}[a]


def number_of(a, b):
    """The same state by its number."""
    return NAMES["c"].index(color_of(a, b))


def row_of(a, b):
    """The same state as a row."""
    return [float(color_of(a, b) == c) for c in NAMES["c"]]


FORMS = (
    color_of,
    number_of,
    row_of,
    lambda a, b: np.int64(number_of(a, b)),
    lambda a, b: np.array(number_of(a, b)),
    lambda a, b: float(number_of(a, b)),
    lambda a, b: np.array(row_of(a, b)),
    lambda a, b: {color_of(a, b): 1.0},
)


@one_test_over("form", FORMS)
def test_a_state_may_be_given_in_any_form(form):
    expected = [[row_of(a, b) for b in NAMES["b"]] for a in NAMES["a"]]
    assert np.array_equal(of_function(form), expected)


def test_a_function_may_return_rows_of_probabilities():
    rows = np.random.default_rng(1).dirichlet(np.ones(3), (3, 2))

    def f(a, b):
        return rows[NAMES["a"].index(a), NAMES["b"].index(b)]

    assert np.allclose(of_function(f), rows, rtol=0, atol=1e-15)


def test_booleans_are_states():
    b = with_roots(builder("a", "b"), "a")
    b.conditional("b", ("a",), lambda a: a == "high")
    assert np.array_equal(entries(b, "b|a"), [[1, 0], [1, 0], [0, 1]])


def test_names_that_are_numbers_are_names():
    """The number 1 is the state that is called 1, which is not the state with this number."""
    b = pgm.GraphBuilder()
    b.variable("die", states=("1", "2", "3"))
    b.conditional("die", (), lambda: 1)
    assert entries(b, "die|").tolist() == [1, 0, 0]
    b = pgm.GraphBuilder()
    b.variable("die", states=("1", "2", "3"))
    b.conditional("die", (), lambda: 0)
    with pytest.raises(PgmError, match=r"returned 0, expected a state or 3 probabilities"):
        b.build()


def test_roots_and_layers_take_functions():
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 2)
    b.conditional(("x", 0), (), lambda: [0.2, 0.8])
    b.conditional(("x", 1), (("x", 0),), lambda k: 1 - k)
    r = pgm.infer(b.build())
    assert np.allclose(r.mean["x"], [0.8, 0.2])


def test_a_table_takes_potentials_and_booleans():
    b = builder("a", "c")
    b.table(("a", "c"), lambda a, c: len(a) * 10 + len(c))
    b.table(("c", "a"), lambda c, a: c != "red" or a == "low")
    sizes = [[len(a) * 10 + len(c) for c in NAMES["c"]] for a in NAMES["a"]]
    allowed = [[c != "red" or a == "low" for a in NAMES["a"]] for c in NAMES["c"]]
    assert np.allclose(entries(b, "a,c"), sizes)
    assert np.array_equal(entries(b, "c,a"), allowed)


def test_a_function_builds_the_same_model_twice():
    b = with_roots(builder("a", "b", "c"), "a", "b")
    b.conditional("c", ("a", "b"), color_of)
    assert np.array_equal(*(b.build().params["c|a,b.table"] for _ in range(2)))


WRONG_RESULTS = (
    (lambda a, b: None, r"returned None, expected a state or 3 probabilities; the states are"),
    (lambda a, b: "purple", r"returned 'purple', expected a state"),
    (lambda a, b: "gren", r"did you mean green"),
    (lambda a, b: 3, r"returned 3, expected a state or 3 prob"),
    (lambda a, b: -1, r"returned -1, expected a state or 3 prob"),
    (lambda a, b: 0.5, r"returned 0.5, expected a state or 3 prob"),
    (lambda a, b: float("nan"), r"returned nan, expected a state or 3 prob"),
    (lambda a, b: [0.5, 0.5], r"\[0.5, 0.5\], an array of shape \(2,\), expected"),
    (lambda a, b: [[0.5, 0.2, 0.3]], r"an array of shape \(1, 3\), expected"),
    (lambda a, b: [0.5, 0.2, 0.2], r"whose sum is 0.9, expected 1"),
    (lambda a, b: [0.5, float("nan"), 0.5], r"expected 3 probabilities of at least 0"),
    (lambda a, b: [1.5, -0.5, 0.0], r"expected 3 probabilities of at least 0"),
    (lambda a, b: ["x", "y", "z"], r"expected a state or 3 prob"),
    (lambda a, b: {"red": 0.5}, r"whose sum is 0.5, expected 1"),
    (lambda a, b: {"rot": 1.0}, r"'rot' is no state of 'c'"),
    (lambda a, b: {"red": 0.5, 0: 0.5}, r"two entries for the state 'red'"),
    (lambda a, b: {"red": "many"}, r"expected 3 probabilities of at least 0"),
)


@one_test_over(("function", "message"), WRONG_RESULTS)
def test_wrong_results_are_named(function, message):
    def f(a, b):
        return function(a, b) if (a, b) == ("mid", "yes") else "red"

    with pytest.raises(PgmError, match=message) as caught:
        of_function(f)
    assert "conditional of 'c' given a = mid, b = yes: the function returned" in str(caught.value)


@one_test_over(
    ("value", "message"),
    [
        (-1.0, "returned -1.0, expected a finite number of at least 0"),
        (float("nan"), "returned nan, expected"),
        (float("inf"), "returned inf, expected"),
        ("red", "returned 'red', expected"),
        (None, "returned None, expected"),
        ([1.0], r"returned \[1.0\], expected"),
    ],
)
def test_wrong_entries_are_named(value, message):
    b = builder("a", "b")
    b.table(("a", "b"), lambda a, b: value if a == "high" else 1.0)
    with pytest.raises(PgmError, match=message) as caught:
        b.build()
    assert "table of ('a', 'b') given a = high, b = no: the function" in str(caught.value)


def test_errors_of_the_function_are_the_cause():
    def f(a, b):
        return {"low": "red", "mid": "red"}[a]

    with pytest.raises(
        PgmError, match=r"given a = high, b = no: the function raised KeyError"
    ) as e:
        of_function(f)
    assert isinstance(e.value.__cause__, KeyError) and "('high', 'no')" in str(e.value)
    with pytest.raises(PgmError, match="raised TypeError"):
        of_function(lambda a: "red")


def with_rows(rows, parents=("a", "b"), **settings):
    """The conditional of c by sparse rows."""
    b = with_roots(builder(*parents, "c"), *parents)
    b.conditional("c", parents, rows=rows, **settings)
    return entries(b, f"c|{','.join(parents)}")


def test_rows_and_otherwise():
    first, rest = [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]
    rows = {("mid", "yes"): first, (0, 0): "blue", ("high", "no"): {"red": 0.4, "blue": 0.6}}
    found = with_rows(rows, otherwise=rest)
    expected = np.tile(rest, (3, 2, 1))
    expected[1, 1], expected[0, 0], expected[2, 0] = first, [0, 0, 1], [0.4, 0, 0.6]
    assert np.allclose(found, expected, rtol=0, atol=1e-15)


def test_the_states_of_a_single_parent_need_no_tuple():
    rows = {"low": "red", ("mid",): "green", 2: "blue"}
    assert np.array_equal(with_rows(rows, parents=("a",)), np.eye(3))


def test_rows_of_a_root():
    assert with_rows({(): [0.2, 0.3, 0.5]}, parents=()).round(9).tolist() == [0.2, 0.3, 0.5]


@one_test_over(
    ("rows", "settings", "message"),
    [
        (
            {("mid", "yes"): "red"},
            {},
            r"given a = low, b = no has no row, and neither have 4 other",
        ),
        ({("mid",): "red"}, {}, r"key \('mid',\), expected a tuple with a state of each parent"),
        ({"mid": "red"}, {}, r"in the order \('a', 'b'\)"),
        ({("mid", "maybe"): "red"}, {}, r"'maybe' is no state of 'b'; the states are 'no', 'yes'"),
        ({("mid", 2): "red"}, {}, r"2 is no state of 'b'"),
        ({("mid", "yes"): "red", (1, 1): "red"}, {"otherwise": "red"}, "have the same states"),
        ({("mid", "yes"): [0.5, 0.5]}, {"otherwise": "red"}, r"row of \('mid', 'yes'\) is"),
        ({}, {"otherwise": [0.5, 0.2, 0.2]}, "otherwise is .*whose sum is 0.9"),
        ([("mid", "yes")], {"otherwise": "red"}, "rows must be a dictionary"),
        ({}, {"otherwise": "red", "values": np.ones((3, 2, 3)) / 3}, "both values and rows="),
    ],
)
def test_wrong_rows_are_named(rows, settings, message):
    with pytest.raises(PgmError, match=message) as caught:
        with_rows(rows, **settings)
    assert "conditional of 'c'" in str(caught.value)


def test_otherwise_needs_rows_and_values_are_needed():
    b = builder("a")
    with pytest.raises(PgmError, match="otherwise= needs rows="):
        b.conditional("a", (), [0.2, 0.3, 0.5], otherwise="low")
    with pytest.raises(PgmError, match="neither values nor rows="):
        b.conditional("a", ())


def test_a_frame_with_a_column_named_on_is_an_array():
    pd = extra("pandas")
    b = with_roots(builder("b"), "b")
    b.variable("lamp", states=("off", "on"))
    b.conditional("lamp", ("b",), pd.DataFrame({"off": [0.9, 0.2], "on": [0.1, 0.8]}))
    assert np.allclose(entries(b, "lamp|b"), [[0.9, 0.1], [0.2, 0.8]])


def test_tables_that_do_not_fit_are_refused_before_they_are_made():
    b = pgm.GraphBuilder()
    names = [f"x{i}" for i in range(45)]
    for name in names:
        b.variable(name)
        b.conditional(name, (), [0.5, 0.5])
    b.variable("y")
    b.conditional("y", names, rows={}, otherwise=[0.5, 0.5])
    with pytest.raises(PgmError, match="conditional of 'y' with 7.04e.13 entries does not fit"):
        b.build()
