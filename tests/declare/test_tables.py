"""Declarations of tables and conditionals: what is refused, and where the message points."""

import itertools

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

SUM = 1e-6


def declare(*calls):
    """Two variables and two layers, with calls of builder methods."""
    b = pgm.GraphBuilder()
    b.variable("smoke", states=("yes", "no"))
    b.variable("lung", states=("low", "high", "none"))
    b.layer("h", pgm.Spin(), 3)
    b.layer("g", pgm.Gaussian(1.0), 2)
    b.layer("p", pgm.Binary(), 2)
    for name, *arguments in calls:
        getattr(b, name)(*arguments)
    return b.build()


nan, inf = np.nan, np.inf
PAIR = ("smoke", "lung")
GOOD = [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]


def entry(value, at=(1, 2)):
    values = np.ones((2, 3))
    values[at] = value
    return values


BAD = {
    "shape": (("table", PAIR, np.ones((3, 2))), "smoke", "shape"),
    "axes": (("table", PAIR, np.ones(6)), "smoke", "shape"),
    "number": (("table", PAIR, 1.0), "smoke", "shape"),
    "empty": (("table", PAIR, []), "smoke", "shape"),
    "negative": (("table", PAIR, entry(-0.1)), "smoke", "-0.1"),
    "nan": (("table", PAIR, entry(nan)), "smoke", "nan"),
    "inf": (("table", PAIR, entry(inf)), "smoke", "inf"),
    "all zero": (("table", PAIR, np.zeros((2, 3))), "smoke", ""),
    "text": (("table", PAIR, [["a"] * 3] * 2), "smoke", ""),
    "ragged": (("table", PAIR, [[1, 2, 3], [1, 2]]), "smoke", ""),
    "complex": (("table", PAIR, np.ones((2, 3)) * 1j), "smoke", ""),
    "none": (("table", PAIR, None), "smoke", ""),
    "unknown variable": (("table", ("smok", "lung"), np.ones((2, 3))), "smok", "smoke"),
    "unknown layer": (("table", (("hh", 0), "lung"), np.ones((2, 3))), "hh", "h"),
    "unit outside": (("table", (("h", 3), "lung"), np.ones((2, 3))), "h", "3"),
    "unit below zero": (("table", (("h", -1), "lung"), np.ones((2, 3))), "h", "-1"),
    "unit no number": (("table", (("h", "a"), "lung"), np.ones((2, 3))), "h", "a"),
    "unit fraction": (("table", (("h", 0.5), "lung"), np.ones((2, 3))), "h", "0.5"),
    "twice": (("table", ("smoke", "smoke"), np.ones((2, 2))), "smoke", ""),
    "twice by number": (("table", (("h", 1), ("h", 1)), np.ones((2, 2))), "h", ""),
    "infinite": (("table", (("g", 0), "lung"), np.ones((2, 3))), "g", ""),
    "empty scope": (("table", (), 1.0), "", ""),
    "scope is none": (("table", None, 1.0), "", ""),
    "scope of numbers": (("table", (0, 1), np.ones((2, 3))), "", ""),
    "row sum": (("conditional", "lung", ("smoke",), [[0.2, 0.3, 0.5], [0.1] * 3]), "lung", "no"),
    "root sum": (("conditional", "lung", (), [0.2, 0.3, 0.4]), "lung", "0.9"),
    "zero row": (("conditional", "lung", ("smoke",), [[0.2, 0.3, 0.5], [0] * 3]), "lung", "no"),
    "negative row": (
        ("conditional", "lung", ("smoke",), [[0.2, 0.3, 0.5], [-0.5, 0.5, 1]]),
        "lung",
        "-0.5",
    ),
    "axes swapped": (("conditional", "lung", ("smoke",), np.transpose(GOOD)), "lung", "shape"),
    "own parent": (("conditional", "smoke", ("smoke",), [[1, 0], [0, 1]]), "smoke", ""),
    "infinite child": (("conditional", ("g", 0), (), [1.0]), "g", ""),
    "infinite parent": (("conditional", "smoke", (("g", 0),), [[1.0, 0]]), "g", ""),
    "unknown parent": (("conditional", "lung", ("smokes",), GOOD), "smokes", "smoke"),
    "parents text": (("conditional", "lung", "smoker", GOOD), "lung", ""),
    "tables index": (("tables", ("h", "p"), [[0, 2]], np.ones((2, 2))), "p", "2"),
    "tables index below": (("tables", ("h", "p"), [[-1, 0]], np.ones((2, 2))), "h", "-1"),
    "tables fraction": (("tables", ("h", "p"), [[0.5, 0]], np.ones((2, 2))), "h", "0.5"),
    "tables nan": (("tables", ("h", "p"), [[nan, 0]], np.ones((2, 2))), "h", ""),
    "tables width": (("tables", ("h", "p"), [[0, 0, 0]], np.ones((2, 2))), "h", "shape"),
    "tables flat": (("tables", ("h", "p"), [0, 0], np.ones((2, 2))), "h", "shape"),
    "tables count": (("tables", ("h", "p"), [[0, 0]], np.ones((2, 2, 2))), "h", "shape"),
    "tables twice": (("tables", ("h", "h"), [[0, 1], [2, 2]], np.ones((2, 2))), "h", "2"),
    "tables all zero": (("tables", ("h", "p"), [[0, 1], [2, 1]], [np.ones((2, 2)), np.zeros((2, 2))]), "h", "1"),  # noqa: E501
    "tables negative": (("tables", ("h", "p"), [[0, 1]], [[1, 1], [1, -2]]), "h", "-2"),
    "tables unknown": (("tables", ("h", "pp"), [[0, 1]], np.ones((2, 2))), "pp", "p"),
    "tables infinite": (("tables", ("h", "g"), [[0, 1]], np.ones((2, 2))), "g", ""),
    "tables text": (("tables", "hp", [["a", 1]], np.ones((2, 2))), "", ""),
    "tables none": (("tables", ("h", "p"), None, np.ones((2, 2))), "h", ""),
}  # fmt: skip


@one_test_over("name", BAD)
def test_bad_tables_are_refused_and_named(name):
    call, place, given = BAD[name]
    with pytest.raises(pgm.PgmError) as error:
        declare(call)
    assert place in str(error.value)
    assert given in str(error.value)


def test_six_printed_digits_are_within_the_tolerance():
    b = pgm.GraphBuilder()
    b.variable("a", states=3)
    b.conditional("a", (), [0.333333] * 3)
    np.testing.assert_allclose(np.exp(b.build().params["a|.table"]), 1 / 3, rtol=1e-14)
    b = pgm.GraphBuilder()
    b.variable("a", states=3)
    b.conditional("a", (), [0.333333, 0.333333, 0.333333 - 1e-9])
    with pytest.raises(pgm.PgmError, match="'a' sum to 0.999998999, expected 1"):
        b.build()


def test_conditionals_are_normalised_within_the_tolerance():
    near = np.array(GOOD) * (1 + SUM / 2)
    model = declare(ROOT, ("conditional", "lung", ("smoke",), near))
    log_p = model.params["lung|smoke.table"]
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(np.exp(log_p), GOOD, rtol=1e-12)
    with pytest.raises(pgm.PgmError, match="lung"):
        declare(("conditional", "lung", ("smoke",), np.array(GOOD) * (1 + 3 * SUM)))


ROOT = ("conditional", "smoke", (), [0.5, 0.5])
CHILD = ("conditional", "lung", ("smoke",), GOOD)
UNIT = ("conditional", ("p", 0), (), [0.5, 0.5])
CLASHES = {
    "two conditionals": ([ROOT, ROOT], "smoke"),
    "two conditionals, other parents": (
        [CHILD, ("conditional", "lung", (("h", 0),), GOOD)],
        "lung",
    ),
    "cycle of two": ([CHILD, ("conditional", "smoke", ("lung",), [[0.5, 0.5]] * 3)], "smoke"),
    "arrows into its layer": ([UNIT, ("cause", "h", "p", np.ones((3, 2)))], "p"),
    "cycle with arrows": (
        [
            ("conditional", ("h", 0), (("p", 0),), [[0.5, 0.5]] * 2),
            ("cause", "h", "p", np.ones((3, 2))),
        ],
        "p",
    ),
    "layer after variable": ([("layer", "smoke", pgm.Binary(), 2)], "smoke"),
    "variable after layer": ([("variable", "h")], "h"),
    "two variables": ([("variable", "smoke")], "smoke"),
}


@one_test_over("name", CLASHES)
def test_clashing_declarations_are_refused(name):
    calls, place = CLASHES[name]
    with pytest.raises(pgm.PgmError, match=place):
        declare(*calls)


def test_a_unit_with_a_conditional_has_no_bias():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2, bias=[0.0, 1.0])
    b.conditional(("h", 1), (), [0.5, 0.5])
    with pytest.raises(pgm.PgmError, match="h"):
        b.build()
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2, bias=[1.0, 0.0])
    b.conditional(("h", 1), (), [0.5, 0.5])
    model = b.build()
    with pytest.raises(pgm.PgmError, match="h"):
        model.with_params({"h.bias": np.ones(2)})


def test_long_cycles_are_refused():
    b = pgm.GraphBuilder()
    count = 3000
    for i in range(count):
        b.variable(f"x{i}")
    for i in range(count):
        b.conditional(f"x{i}", (f"x{(i + 1) % count}",), np.eye(2))
    with pytest.raises(pgm.PgmError, match="x"):
        b.build()


@one_test_over(
    "declared",
    (
        lambda b: b.layer("h", pgm.Binary(), 10**15),
        lambda b: b.variable("x", 10**15),
        lambda b: b.variable("x", 2, shape=10**15),
        lambda b: b.variable("x", 2, shape=(1,) * 40),
        lambda b: b.layer("h", pgm.Categorical(10**9), 10**9),
    ),
)
def test_huge_counts_are_refused_before_anything_is_allocated(declared):
    b = pgm.GraphBuilder()
    with pytest.raises(pgm.PgmError, match="h|x"):
        declared(b)
        b.build()


def test_a_table_of_huge_shape_is_refused_by_its_shape():
    """A view of one number stands for 2^51 entries."""
    b = pgm.GraphBuilder()
    names = [f"x{i}" for i in range(17)]
    for name in names:
        b.variable(name, 8)
    b.table(names, np.broadcast_to(1.0, (8,) * 17))
    with pytest.raises(pgm.PgmError, match="x0"):
        b.build()


def test_bad_parameters_are_refused():
    model = declare(("table", PAIR, GOOD), ROOT)
    name = "smoke,lung.table"
    for bad in (np.zeros((3, 2)), np.full((2, 3), nan), np.full((2, 3), inf), "a"):
        with pytest.raises(pgm.PgmError, match="smoke"):
            model.with_params({name: bad})
    with pytest.raises(pgm.PgmError, match="smoke"):
        model.with_params({name: np.full((2, 3), -inf)})
    possible = model.with_params({name: [[0, 0, -inf], [0, -inf, 0]]})
    # Four possible states of probability 1/2, and 2^5 of the units h and p.
    np.testing.assert_allclose(
        pgm.infer(possible, want=("log_z",)).log_z, np.log(0.5 * 4 * 32), rtol=1e-12
    )
    with pytest.raises(pgm.PgmError, match="h"):
        model.with_params({"h.bias": [-inf, 0, 0]})


def test_the_declared_array_may_change_afterwards():
    values = np.array(GOOD)
    model = declare(("table", PAIR, values))
    before = model.params["smoke,lung.table"].copy()
    values[:] = 7
    np.testing.assert_array_equal(model.params["smoke,lung.table"], before)


def test_two_tables_of_one_scope_multiply():
    b = pgm.GraphBuilder()
    b.variable("a")
    b.variable("c", 3)
    rng = np.random.default_rng(0)
    one, two, three = rng.random((2, 3)), rng.random((3, 2)), rng.random((2, 3))
    b.table(("a", "c"), one)
    b.table(("c", "a"), two)
    b.table(("a", "c"), three)
    r = pgm.infer(b.build(), want=(pgm.Joint("a", "c"), "log_z"))
    product = one * two.T * three
    np.testing.assert_allclose(r.joint["a", "c"], product / product.sum(), rtol=1e-12)
    np.testing.assert_allclose(r.log_z, np.log(product.sum()), rtol=1e-12)


@one_test_over("order", list(itertools.permutations(range(3))))
def test_axes_follow_the_scope(order):
    b = pgm.GraphBuilder()
    for name, states in (("a", 2), ("c", 3), ("d", 4)):
        b.variable(name, states)
    values = np.random.default_rng(1).random((2, 3, 4))
    b.table([("a", "c", "d")[i] for i in order], values.transpose(order))
    r = pgm.infer(b.build(), want=(pgm.Joint("d", "a", "c"),))
    expected = (values / values.sum()).transpose(2, 0, 1)
    np.testing.assert_allclose(r.joint["d", "a", "c"], expected, rtol=1e-12)
