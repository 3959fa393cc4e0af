"""One reading of a value at every door: names of states as text, numbers and booleans.

The tables below have each kind of names, each form of a value, and what it means: a state, or None
where it is refused. Every door has to give the same reading or the same refusal.
"""

import itertools
import json
import re

import networkx as nx
import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine.apps.reading.inputs import read_evidence
from pgmengine.evidence.evidence import parse_evidence

pd = extra("pandas")

# Names of states, and values with the number of the state that each means, None if refused.
KINDS = {
    "text": (
        ("low", "high"),
        [("low", 0), ("high", 1), ("High", None), ("1", None), (" 1 ", None), ("1e0", None),
         ("nan", None), ("", None), (1, None), (0.0, None), (True, None)],
    ),
    "integers": (
        (3, 4, 5, 6),
        [(3, 0), (4.0, 1), ("5", 2), ("6.0", 3), ("3e0", 0), ("06", 3), (0, None), (1, None),
         (7, None), ("1", None), (3.5, None), (True, None), ("three", None)],
    ),
    "turned": (
        (1, 0),
        [(1, 0), (0, 1), (1.0, 0), ("0", 1), ("1.0", 0), (True, None), (False, None)],
    ),
    "zero and one": (
        (0, 1),
        [(0, 0), (1.0, 1), ("1", 1), (True, 1), (False, 0), ("True", None), (2, None)],
    ),
    "digits": (
        ("1", "2", "3"),
        [("1", 0), (2, 1), (3.0, 2), ("2.0", 1), ("03", 2), (0, None), ("0", None),
         (True, None), ("1_0", None)],
    ),
    "digits turned": (("1", "0"), [(1, 0), (0, 1), ("1.0", 0), ("0", 1), (True, None)]),
    "booleans": (
        (True, False),
        [(True, 0), (False, 1), ("True", 0), ("FALSE", 1), ("true", 0), (1, None), (0.0, None),
         ("1", None)],
    ),
    "booleans in order": (
        (False, True),
        [(True, 1), (False, 0), ("false", 0), (1, 1), (0.0, 0), (2, None), ("1", None)],
    ),
    "booleans as text": (
        ("TRUE", "FALSE"),
        [(True, 0), (False, 1), ("TRUE", 0), ("False", 1), (1, None), (0, None), ("T", None)],
    ),
    "floats": (
        (0.1, 2.5, 10.0),
        [(0.1, 0), (float(np.float32(0.1)), 0), (2.5, 1), (10, 2), ("0.10", 0), ("1e1", 2),
         (0.1001, None), (1, None)],
    ),
    "numbers of one value": (("1", "1.0"), [("1", 0), ("1.0", 1), (1, None), ("01", None)]),
    "truths of one value": (
        ("True", "TRUE"),
        [("True", 0), ("TRUE", 1), (True, None), ("true", None), (False, None)],
    ),
    "a number and its text": ((1, "1"), [(1, 0), ("1", 1), (1.0, 0), ("1.0", None)]),
    "infinite numbers": (
        ("inf", "low", "-inf"),
        [("inf", 0), (np.inf, 0), ("-inf", 2), (-np.inf, 2), ("low", 1), ("+Infinity", 0),
         (0.3, None), (1, None), ("+-inf", None)],
    ),
    "fractions beside an infinite one": (
        (0.5, np.inf),
        [(0.5, 0), ("0.50", 0), (np.inf, 1), ("inf", 1), (0.3, None), (-np.inf, None), (1, None)],
    ),
    "no names": (
        None,
        [(0, 0), (2, 2), (1.0, 1), ("1", 1), ("2.0", 2), (3, None), (0.5, None), ("a", None),
         (" 1 ", None), ("nan", None), ("", None)],
    ),
}  # fmt: skip
kinds = one_test_over("kind", KINDS)


def model_of(names):
    """A layer of one unit with these names of states, by the names "s" and "unit"."""
    count = 3 if names is None else len(names)
    unit = pgm.Binary() if count == 2 else pgm.Categorical(count)
    b = pgm.GraphBuilder()
    b.layer("s", unit, 1, states=names, labels=["unit"])
    b.variable("y", states=("lo", "hi"))
    b.conditional(("s", 0), (), np.full(count, 1 / count))
    b.conditional("y", (("s", 0),), np.stack([np.linspace(0.9, 0.2, count),
                                              np.linspace(0.1, 0.8, count)], axis=1))  # fmt: skip
    return b.build()


def frame_of(value):
    """A column of one value, of the type that pandas finds."""
    return pd.DataFrame({"unit": [value]})


def doubled(value):
    """An array of two equal values, of the type that numpy finds."""
    return np.array([value, value])


# Evidence in every form.
FORMS = {
    "a value by unit": lambda x: {"unit": x},
    "a value by layer": lambda x: {"s": x},
    "a value by place": lambda x: {("s", 0): x},
    "a list by unit": lambda x: {"unit": [x, None]},
    "a list of one by unit": lambda x: {"unit": [x]},
    "a list by layer": lambda x: {"s": [[x], [None]]},
    "an array by unit": lambda x: {"unit": doubled(x)},
    "an array by layer": lambda x: {"s": doubled(x)[:, None]},
    "a scalar of numpy": lambda x: {"unit": doubled(x)[0]},
    "an array without axes": lambda x: {"unit": np.array(x)},
    "objects by unit": lambda x: {"unit": np.array([x, x], dtype=object)},
    "objects by layer": lambda x: {"s": np.array([[x], [x]], dtype=object)},
    "a Series": lambda x: {"unit": pd.Series([x, x])},
    "a Series of categories": lambda x: {"unit": pd.Series([x, x]).astype("category")},
    "a masked array": lambda x: {"unit": np.ma.array(doubled(x), mask=[False, True])},
    "a DataFrame": frame_of,
    "a DataFrame of objects": lambda x: frame_of(x).astype(object),
    "a DataFrame by layer": lambda x: {"s": frame_of(x)},
    "a DataFrame of pairs": lambda x: pd.DataFrame({("s", "unit"): [x]}),
}


def reading(model, ask):
    """The state that `ask()` observes of the unit in the first row, None if it is refused."""
    layer = model.structure.layers["s"]
    try:
        evidence = ask()
    except pgm.PgmError as error:
        assert re.search("no state|may be any of|not a label|not a value", str(error)), error
        return None
    assert evidence.pattern.observed["s"][0].all()
    return int(layer.states(evidence.values["s"])[0, 0])


@kinds
def test_every_form_of_evidence_reads_a_value_alike(kind):
    names, values = KINDS[kind]
    model, wrong = model_of(names), []
    for (value, state), form, what in itertools.product(values, FORMS, ("evidence", "do")):
        given = FORMS[form](value)
        found = reading(model, lambda x=given, what=what: parse_evidence(model.structure, x, what))
        wrong += [(value, form, what, found, state)] if found != state else []
    assert not wrong


@kinds
def test_answers_interventions_and_densities_read_a_value_alike(kind):
    names, values = KINDS[kind]
    model, truth = model_of(names), np.linspace(0.9, 0.2, len(names or "abc"))
    prepared = pgm.prepare(model, observed=("s",))
    asks = (
        lambda x: pgm.infer(model, {"unit": x}).marginal("y")["lo"],
        lambda x: pgm.infer(model, do={"unit": [x]}).marginal("y")["lo"],
        lambda x: prepared({"unit": x}).marginal("y")["lo"],
        lambda x: np.exp(model.log_density({"unit": x, "y": "lo"})) * len(truth),
        lambda x: pgm.explain(model, {"unit": x}) and truth[state],
    )
    for (value, state), ask in itertools.product(values, asks):
        if state is None:
            with pytest.raises(pgm.PgmError):
                ask(value)
        else:
            np.testing.assert_allclose(ask(value), truth[state], atol=1e-12, err_msg=repr(value))


@kinds
def test_data_are_read_as_evidence_is(kind):
    """Base rates read data once, and `fit` and its monitors hand on what they have read."""
    names, values = KINDS[kind]
    model = model_of(names)

    def learned(data):
        """The states that the base rates, and the update of a fit, are most in favour of."""
        rates = pgm.base_rates(model, data, shrink=1e-9)["s"]
        monitor = pgm.ExactLogLikelihood(data, every=1)
        found = pgm.fit(
            model, data, updates=1, progress=False, optimizer=pgm.SGD(1.0), callbacks=[monitor]
        )
        gained = found.model.params["unit|.table"] - model.params["unit|.table"]
        return {int(rates.argmax() if len(rates) > 1 else rates[0] > 0), int(gained.argmax())}

    for (value, state), form in itertools.product(values, ("a list by unit", "a DataFrame")):
        if state is None:
            with pytest.raises(pgm.PgmError):
                learned(FORMS[form](value))
        else:
            assert learned(FORMS[form](value)) == {state}, (form, value)


def as_text(names, text):
    """The state of a text by the plain rule: its own name, or the one name of the same writing."""

    def written(x):
        known = {"true": True, "false": False}
        return known.get(str(x).lower()) if str(x).lower() in known else float(x)

    names = range(3) if names is None else names
    if text in [x for x in names if isinstance(x, str)]:
        return names.index(text)
    found = []
    for state, name in enumerate(names):
        try:
            one, other = written(name), written(text)
            same = one == other or (one % 1 != 0 and np.float32(one) == np.float32(other))
            found += [state] if same and isinstance(one, bool) == isinstance(other, bool) else []
        except ValueError:
            continue
    return found[0] if len(found) == 1 else None


def given_as(kind, value, path):
    """The argument of the command line with one value for the unit, in a file or inline."""
    if kind == ".csv":
        path.write_text(f"unit,y\n{value},\n")
    elif kind == ".json":
        path.write_text(json.dumps({"unit": [value]}))
    elif kind == ".npz":
        np.savez(path, unit=np.array([value]))
    return f"unit={value}" if kind == "inline" else str(path)


@kinds
def test_the_command_line_reads_a_value_alike(kind, tmp_path):
    """Cells of csv files and of the command line are text, without spaces around them."""
    names, values = KINDS[kind]
    model = model_of(names)
    for (value, state), way in itertools.product(values, (".csv", ".json", ".npz", "inline")):
        argument = given_as(way, value, tmp_path / f"e{way}")
        if way in (".csv", "inline") or isinstance(value, str):
            state = as_text(names, str(value).strip())

        def parsed(argument=argument):
            return parse_evidence(model.structure, read_evidence(model, [argument]))

        if value == "":
            assert not parsed().pattern.observed["s"].any()
        else:
            assert reading(model, parsed) == state, (way, value)


@kinds
def test_answers_go_back_in_through_frames_and_files(kind, tmp_path):
    """Draws and complete states have names, which pandas may turn into numbers or booleans."""
    names, _ = KINDS[kind]
    model = model_of(names)
    r = pgm.infer(model, want=("samples", "mode"), method=pgm.Exact(draws=50), rng=0)
    frame = r.samples_frame()
    counts = pgm.base_rates(model, frame)
    pd.testing.assert_frame_equal(
        pgm.infer(model, frame, want=("samples",), method=pgm.Exact(draws=1), rng=0)
        .samples_frame()
        .reset_index(drop=True),
        frame.reset_index(drop=True),
        check_dtype=False,
    )
    assert pgm.infer(model, r.assignment(), want=("mode",)).assignment() == r.assignment()
    frame.to_csv(tmp_path / "x.csv", index=False)
    if names in (("1", "1.0"), ("True", "TRUE"), (1, "1")):
        # A file of text does not say which of two names of one writing is meant.
        return
    for back in (pd.read_csv(tmp_path / "x.csv"), read_evidence(model, [str(tmp_path / "x.csv")])):
        for name, rates in pgm.base_rates(model, back).items():
            np.testing.assert_array_equal(rates, counts[name])


def test_evidence_files_of_the_field_give_names(tmp_path):
    for names, _ in KINDS.values():
        model, path = model_of(names), tmp_path / "m.uai.evid"
        for state in range(3 if names is None else len(names)):
            path.write_text(f"2 0 0 1 {state}\n")
            found = pgm.read_evidence(path, model)
            value = np.ravel(model.structure.layers["s"].unit.support[state])
            one = parse_evidence(model.structure, found)
            np.testing.assert_array_equal(one.values["s"][0], value)
            path.write_text(f"2\n1 1 {state}\n1 0 1\n")
            two = parse_evidence(model.structure, pgm.read_evidence(path, model))
            np.testing.assert_array_equal(two.pattern.observed["s"][:, 0], [True, False])
            np.testing.assert_array_equal(two.values["s"][0], value)


def test_converted_networks_read_numbers_and_booleans_by_name():
    g = nx.DiGraph([("r", "w")])
    g.nodes["r"].update(cpt=[0.2, 0.3, 0.5], states=(3, 2, 1))
    g.nodes["w"].update(cpt=[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], states=(True, False))
    g.add_node("v", cpt=[0.5, 0.5], states=(1, 0))
    model = pgm.GraphBuilder.from_networkx(g).build()
    assert list(pgm.infer(model).marginal("v")) == [1, 0]
    assert not any(isinstance(name, bool) for name in pgm.infer(model).marginal("v"))
    for three, true in ((3, True), ([3], [True]), (np.array([3]), np.array([True]))):
        assert np.all(pgm.infer(model, {"r": three}).marginal("w")[True] == 0.9)
        assert np.allclose(pgm.infer(model, {"w": true}).marginal("r")[3], 0.18 / 0.46)
        assert np.all(pgm.infer(model, do={"r": three}).marginal("w")[True] == 0.9)


@one_test_over(
    ("names", "given"), [((1, 2, 3), [True, 2]), ((True, False), [True, 1]), ((1, 0), [1, False])]
)
def test_booleans_among_numbers_stay_booleans(names, given):
    """numpy makes numbers of both."""
    for evidence in ({"unit": given}, {"s": [[x] for x in given]}):
        with pytest.raises(pgm.PgmError, match="is no state"):
            pgm.infer(model_of(names), evidence)


def test_a_value_that_may_mean_two_things_says_how_to_write_it():
    for names, value, match in (
        (("1", "1.0"), 1, "1 may be any of '1', '1.0'; give one of these texts"),
        (("low", "high"), 1, "for number 1 give 'high'"),
        (("low", "high"), "hihg", "did you mean high"),
        ((10, 20), 21, "21 is no state, expected one of 10, 20"),
    ):
        with pytest.raises(pgm.PgmError, match=f"'unit'.*{match}"):
            pgm.infer(model_of(names), {"unit": value})
    frame = pd.DataFrame({"unit": ["low", "high", "nope"]})
    with pytest.raises(pgm.PgmError, match="column 'unit', row 2: 'nope' is no state"):
        pgm.infer(model_of(("low", "high")), frame)


@pytest.mark.parametrize("kind", [set, frozenset])
def test_names_without_an_order_are_refused(kind):
    """The order of a set of texts is another one in each process, and with it the table."""
    names, b = kind({"no", "yes"}), pgm.GraphBuilder()
    b.variable("a", states=("no", "yes"))
    g = nx.DiGraph()
    g.add_node("a", cpt=[0.9, 0.1], states=names)
    for declare in (
        lambda: b.variable("x", states=names),
        lambda: b.layer("x", pgm.Binary(), 2, states=names),
        lambda: b.layer("x", pgm.Binary(), 2, labels=names),
        lambda: b.conditional("x", kind({"a", "b"}), np.full((2, 2, 2), 0.5)),
        lambda: b.table(kind({"a", "b"}), np.ones((2, 2))),
        lambda: b.tables(kind({"a", "b"}), [[0, 0]], np.ones((1, 2, 2))),
        lambda: pgm.GraphBuilder.from_networkx(g),
    ):
        with pytest.raises(pgm.PgmError, match="order|sequence"):
            declare()


@one_test_over("name", [None, np.nan, pd.NA])
def test_a_missing_value_is_no_name(name):
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Binary(), 1, states=("a", name))
    with pytest.raises(pgm.PgmError, match="cannot be a name of a state"):
        b.build()


def test_a_variable_without_a_conditional_is_refused_in_a_network_of_conditionals():
    def network(*roots):
        b = pgm.GraphBuilder()
        for name in "abc":
            b.variable(name, states=("no", "yes"))
        b.conditional("c", ("a",), [[0.1, 0.9], [0.4, 0.6]])
        for name in roots:
            b.conditional(name, (), [0.2, 0.8])
        return b

    for roots, missing in (((), "a"), (("a",), "b"), (("b",), "a")):
        with pytest.raises(pgm.PgmError, match=f"variable '{missing}' has no conditional"):
            network(*roots).build()
    network("a", "b").build()
    mixed = network("a")
    mixed.table(("a", "b"), [[1.0, 2.0], [3.0, 1.0]])
    mixed.build()


@one_test_over("names", [(1, 2, 3), (True, False), (0.5, "high")])
def test_variables_have_names_of_text_that_may_be_given_as_numbers(names):
    b = pgm.GraphBuilder()
    b.variable("x", states=tuple(map(str, names)))
    b.conditional("x", (), np.full(len(names), 1 / len(names)))
    model = b.build()
    for state, name in enumerate(names):
        assert list(pgm.infer(model, {"x": name}).marginal("x").values())[state] == 1


def test_arrows_between_variables_need_a_weight():
    b = pgm.GraphBuilder()
    b.variable("a", states=("no", "yes"))
    b.variable("c", states=("no", "yes"))
    b.cause("a", "c")
    with pytest.raises(pgm.PgmError, match=r"give weight=.*conditional\('c', \('a',\)"):
        b.build()
    b.weights[0] = [[1.0]]
    b.build()


@pytest.mark.parametrize("names", [None, (0, 1, 2), ("0", "1", "2")])
@pytest.mark.parametrize("key", ["unit", "s", ("s", 0)])
def test_a_vector_that_may_be_a_one_hot_row_is_refused(names, key):
    model = model_of(names)
    for row in ([0, 1, 0], np.array([1.0, 0.0, 0.0]), pd.Series([0, 0, 1]), (0, 1, 0)):
        for question in ({"evidence": {key: row}}, {"do": {key: row}}):
            with pytest.raises(pgm.PgmError, match="may be a one-hot row, or a state in each of 3"):
                pgm.infer(model, **question)
        rows = np.reshape(row, (3, 1))
        for given in (rows, rows.tolist(), [tuple(one) for one in rows]):
            found = pgm.infer(model, {key: given}).prob["s"]
            np.testing.assert_array_equal(found, np.eye(3)[np.asarray(rows, int)])
        # Other evidence says that there are three rows.
        also = pgm.infer(model, {key: row, "y": ["lo", "hi", "lo"]}).prob["s"]
        np.testing.assert_array_equal(also, found)
        # So do the rows of do() and of soft evidence.
        three = {"soft": {"y": [[0.0, 0.0]] * 3}}, {"do": {"y": ["lo", "hi", "lo"]}}
        for beside in three:
            also = pgm.infer(model, {key: row}, **beside).prob["s"]
            np.testing.assert_array_equal(also, found)
        also = pgm.infer(model, {"y": ["lo", "hi", "lo"]}, do={key: row}).prob["s"]
        np.testing.assert_array_equal(also, found)
        for beside in ({"soft": {"y": [0.0, 1.0]}}, {"do": {"y": "lo"}}):
            with pytest.raises(pgm.PgmError, match="may be a one-hot row"):
                pgm.infer(model, {key: row}, **beside)
        pgm.fit(model, {key: row}, updates=1, progress=False)
    for rows in ([0, 1, 1], [0, 2, 0], [0, 1], [0, 1, 0, 0], [0, 1, None]):
        assert pgm.infer(model, {key: rows}).prob["s"].shape[0] == len(rows)
    if names is None:
        one_hot = pgm.infer(model, {"s": [[0, 1, 0]]}).prob["s"]
        np.testing.assert_array_equal(np.ravel(one_hot), [0, 1, 0])


def test_labels_that_look_like_one_hot_rows_are_labels_by_their_names():
    """Three units of three states in three rows of names."""
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(3), 3, states=("a", "b", "c"))
    names = [["b", "a", "a"], ["a", "b", "a"], ["a", "a", "b"]]
    found = pgm.infer(b.build(), {"c": names}).prob["c"]
    np.testing.assert_array_equal(found, np.eye(3)[np.eye(3, dtype=int)])


@one_test_over("names", [("0", "1", "2"), (0, 1, 2), (0.0, 1.0, "2")])
def test_text_in_a_square_array_is_names(names):
    """Numbers may be rows of values of units as well, and are refused."""
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(3), 3, states=names)
    model, rows = b.build(), np.eye(3, dtype=int)
    for text in (rows.astype(str), rows.astype(str).tolist(), rows.astype(str).astype(object)):
        found = pgm.infer(model, {"c": text}).prob["c"]
        np.testing.assert_array_equal(found, np.eye(3)[rows])
    with pytest.raises(pgm.PgmError, match="may also be labels"):
        pgm.infer(model, {"c": rows})


@pytest.mark.parametrize("unit", [pgm.Binary(), pgm.Spin(), pgm.MultiValued(3), pgm.Categorical(3)])
@pytest.mark.parametrize("wrong", [0.9999999, 1.0000002, -1e-7])
def test_messages_have_the_digits_that_tell_a_number_from_a_state(unit, wrong, tmp_path):
    b = pgm.GraphBuilder()
    b.layer("v", unit, 1, labels=["x"])
    (tmp_path / "e.json").write_text(json.dumps({"x": wrong}))
    text = re.escape(repr(wrong)) + " is "
    for ask in (
        lambda: pgm.infer(b.build(), {"x": wrong}),
        lambda: pgm.infer(b.build(), {"v": [[wrong]]}),
        lambda: pgm.infer(b.build(), pd.DataFrame({"x": [wrong]})),
        lambda: read_evidence(b.build(), [str(tmp_path / "e.json")]),
    ):
        with pytest.raises(pgm.PgmError, match=text):
            ask()


@one_test_over(
    ("states", "advice"),
    [
        (("1", "0", "2"), "give the state, '1', or the rows"),
        (("yes", "no", "perhaps"), "give the state, 'yes'$"),
        (3, "give the state, 0, or the rows"),
    ],
)
def test_the_advice_for_one_hot_rows_names_the_state(states, advice):
    b = pgm.GraphBuilder()
    b.variable("x", states=states)
    b.variable("y", states=("no", "yes"))
    for name, k in (("x", 3), ("y", 2)):
        b.conditional(name, (), np.full(k, 1 / k))
    for beside in ({}, {"y": None}, {"y": "no"}):
        with pytest.raises(pgm.PgmError, match=advice):
            pgm.infer(b.build(), {"x": [1, 0, 0]} | beside)


def test_booleans_and_fractions_beside_other_names_are_refused_plainly():
    def ask(states, value):
        b = pgm.GraphBuilder()
        b.variable("x", states=states)
        b.conditional("x", (), [0.5, 0.5])
        return pgm.infer(b.build(), {"x": value})

    with pytest.raises(pgm.PgmError, match="True is no state, expected one of 'no', 'yes'$"):
        ask(("no", "yes"), True)
    for states in (("0.1", str(10**390)), (f"{10**390}", "x")):
        with pytest.raises(pgm.PgmError, match="0.5 is no state"):
            ask(states, 0.5)


def test_an_empty_text_is_no_state_and_the_message_says_what_is_not_observed():
    net = pgm.read(pgm.datasets.asia())
    with pytest.raises(pgm.PgmError, match="'' is no state.*give None, or NaN, where nothing is"):
        pgm.infer(net, {"xray": ""})
