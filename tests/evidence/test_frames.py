"""DataFrames as evidence, as data, and of results."""

import networkx as nx
import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm

pd = extra("pandas")


def weather():
    graph = nx.DiGraph()
    graph.add_node(
        "sky", unit=pgm.Categorical(3), states=("sun", "cloud", "rain"), bias=[0.0, 0.5, 1.0]
    )
    graph.add_node("wet", unit=pgm.Binary(), states=("dry", "wet"))
    graph.add_node("mood", unit=pgm.MultiValued(2))
    graph.add_edge("sky", "wet", weight=np.array([[-2.0], [-1.0], [3.0]]))
    graph.add_edge("sky", "mood", weight=np.array([[2.0], [0.0], [-1.0]]))
    return pgm.GraphBuilder.from_networkx(graph).build()


def test_names_of_variables_and_states():
    model = weather()
    frame = pd.DataFrame(
        {"wet": ["wet", None, "dry"], "mood": [np.nan, -1.0, 0.0], "sky": [None, "rain", pd.NA]}
    )
    shown = pgm.infer(model, frame, want=("marginals", "log_prob"))
    s = model.structure
    places = {label: (x.name, i) for x in s.layers.values() for i, label in enumerate(x.labels)}
    plain = {x.name: np.full((3, x.size), np.nan, dtype=object) for x in s.layers.values()}
    for label, values in {
        "wet": ["wet", np.nan, "dry"],
        "mood": [np.nan, -1, 0],
        "sky": [np.nan, "rain", np.nan],
    }.items():
        layer, i = places[label]
        plain[layer][:, i] = values
    told = pgm.infer(model, plain, want=("marginals", "log_prob"))
    np.testing.assert_array_equal(shown.log_prob, told.log_prob)
    out = shown.to_frame()
    assert {u for _, u in out.columns} == {
        *("sky[sun]", "sky[cloud]", "sky[rain]", "wet[dry]", "wet[wet]"),
        "mood",
    }
    assert out["g0", "sky[rain]"].iloc[1] == 1.0 and len(out) == 3


def test_a_result_goes_back_in():
    """The columns of to_frame are understood as evidence."""
    model = pgm.rbm(3, 2, rng=0)
    rows = np.array([[1.0, 0, 1], [0, 0, 1]])
    frame = pgm.infer(model, {"v": rows}).to_frame()
    again = pgm.infer(model, frame[["v"]], want=("log_prob",))
    np.testing.assert_array_equal(
        again.log_prob, pgm.infer(model, {"v": rows}, want=("log_prob",)).log_prob
    )


def test_fit_takes_frames():
    x = pgm.datasets.bars_and_stripes().x_train
    labels = [f"p{i}" for i in range(16)]
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 16, labels=labels)
    b.layer("h", pgm.Binary(), 4)
    b.couple("v", "h")
    one = pgm.fit(b.build(rng=0), pd.DataFrame(x, columns=labels), updates=5, progress=False)
    two = pgm.fit(b.build(rng=0), {"v": x}, updates=5, progress=False)
    np.testing.assert_array_equal(one.model.params["v-h.weight"], two.model.params["v-h.weight"])


@one_test_over(
    ("frame", "message"),
    [
        (pd.DataFrame({"wett": [1]}), "column 'wett' is no unit's name; did you mean wet"),
        (
            pd.DataFrame({"sky": ["snow"]}),
            "column 'sky', row 0: 'snow' is no state, expected one of 'sun', 'cloud', 'rain'",
        ),
        (
            pd.DataFrame({"mood": ["good"]}),
            "column 'mood', row 0: 'good' is no state, expected a number",
        ),
        (pd.DataFrame({"mood": [0.3]}), "is not a value of"),
    ],
)
def test_what_cannot_be_read_is_named(frame, message):
    with pytest.raises(pgm.PgmError, match=message):
        pgm.infer(weather(), frame)


@one_test_over("dtype", ["Int64", "boolean", "Float64"])
def test_missing_values_of_every_kind(dtype):
    model = pgm.rbm(2, 1, rng=0)
    frame = pd.DataFrame({("v", 0): pd.array([1, None, 0], dtype=dtype), ("v", 1): [None, 1, 0]})
    plain = {"v": [[1, np.nan], [np.nan, 1], [0, 0]]}
    want = ("log_prob",)
    np.testing.assert_array_equal(
        pgm.infer(model, frame, want=want).log_prob, pgm.infer(model, plain, want=want).log_prob
    )


def test_nothing_is_lost_in_silence():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, labels=["1", 1])
    model = b.build()
    assert [u for _, u in pgm.infer(model).to_frame().columns] == ["'1'", "1"]
    seen = pgm.infer(
        model, pd.DataFrame([[1, 0]], columns=pd.Index([("v", "1"), ("v", 1)], tupleize_cols=False))
    )
    np.testing.assert_array_equal(seen.mean["v"][0], [1, 0])
    twice = pd.DataFrame([["wet", np.nan]], columns=["wet", "wet"])
    with pytest.raises(pgm.PgmError, match="columns 'wet' and 'wet' are the same unit"):
        pgm.infer(weather(), twice)
    with pytest.raises(pgm.PgmError, match="has no columns"):
        pgm.infer(weather(), pd.DataFrame(index=range(5)))
    with pytest.raises(pgm.PgmError, match="soft must map layer names to arrays, not DataFrame"):
        pgm.infer(weather(), soft=pd.DataFrame({"wet": [1.0]}))
    b.layer("w", pgm.Binary(), 2, labels=["a", "a"])
    with pytest.raises(pgm.PgmError, match="layer 'w': two units have the label 'a'"):
        b.build()


def test_where_states_are_named_by_numbers_others_are_no_states():
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(3), 1, states=[10, 20, 30])
    model = b.build()
    found = pgm.infer(model, pd.DataFrame({"x": [30, 10]}))
    np.testing.assert_array_equal(found.prob["x"][:, 0], np.eye(3)[[2, 0]])
    with pytest.raises(pgm.PgmError, match="row 0: 2 is no state, expected one of 10, 20, 30"):
        pgm.infer(model, pd.DataFrame({"x": [2, 10]}))


def test_columns_of_one_layers_frame_are_taken_by_name():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3, labels=["a", "b", "c"], states=["no", "yes"])
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h")
    model, x = b.build(rng=0), np.array([[1.0, 0, 0], [0, 1, np.nan]])
    names = np.array([["yes", "no", "no"], ["no", "yes", None]], dtype=object)
    truth = pgm.infer(model, {"v": names}).mean["h"]
    words = pd.DataFrame(names, columns=list("abc"))
    for frame in (words, words[["c", "a", "b"]], words.set_axis(range(3), axis=1)):
        assert np.array_equal(pgm.infer(model, {"v": frame}).mean["h"], truth)
    numbers, plain = pd.DataFrame(x), pgm.rbm(3, 2, rng=0)
    turned = pgm.infer(plain, {"v": numbers[[2, 0, 1]]}).mean["h"]
    assert np.array_equal(turned, pgm.infer(plain, {"v": x}).mean["h"])
    one, other = (
        pgm.fit(plain, {"v": frame}, updates=3, rng=0, progress=False)
        for frame in (x, numbers[[1, 2, 0]])
    )
    assert np.array_equal(one.model.params["v.bias"], other.model.params["v.bias"])
    missing = np.where([True, False, True], x, np.nan)
    assert np.array_equal(
        pgm.infer(plain, {"v": missing}).mean["h"],
        pgm.infer(plain, {"v": numbers[[2, 0]]}).mean["h"],
    )
    with pytest.raises(pgm.PgmError, match=r"shape \(2, 2\), expected \(3,\) or \(rows, 3\)"):
        pgm.infer(plain, {"v": numbers[[0, 1]].set_axis(["p", "q"], axis=1)})
    for columns, what in (
        (["c", "a", "bb"], "column 'bb' is no unit's name"),
        (["a", "a", "c"], "columns 'a' and 'a' are the same unit"),
        (["p", "q", "r"], "column 'p' is no unit's name; the units are 'a', 'b', 'c', in this"),
    ):
        with pytest.raises(pgm.PgmError, match=what):
            pgm.infer(model, {"v": words.set_axis(columns, axis=1)})
    pairs = words.set_axis(pd.MultiIndex.from_tuples([("v", "c"), ("v", "a"), ("v", "b")]), axis=1)
    turned = pgm.infer(model, {"v": words.set_axis(["c", "a", "b"], axis=1)}).mean["h"]
    assert np.array_equal(pgm.infer(model, {"v": pairs}).mean["h"], turned)
    hint = pd.DataFrame([[0.5, -1.0]], columns=["c", "a"])
    in_order = pgm.infer(model, soft={"v": [-1.0, 0, 0.5]}).mean["h"]
    assert np.array_equal(pgm.infer(model, soft={"v": hint}).mean["h"][0], in_order)
    with pytest.raises(pgm.PgmError, match="layer 'v', column 'a', row 0: 'maybe' is no state"):
        pgm.infer(model, {"v": pd.DataFrame([["maybe", "no", "no"]], columns=list("abc"))})


def test_labels_in_tables_and_in_data_are_labels_where_they_might_be_states():
    """Three units of three states in three rows."""
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(3), 3, labels=["p", "q", "r"])
    b.layer("h", pgm.Binary(), 2)
    b.couple("c", "h")
    model, labels = b.build(rng=0), np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    truth = pgm.infer(model, {"c": np.eye(3)[labels]}).mean["h"]
    frame = pd.DataFrame(labels, columns=["p", "q", "r"])
    for evidence in (frame, frame[["r", "p", "q"]], {"c": frame}, {"c": frame[["q", "r", "p"]]}):
        assert np.array_equal(pgm.infer(model, evidence).mean["h"], truth)
    one, two, three = (
        pgm.fit(
            model,
            data,
            updates=3,
            rng=0,
            progress=False,
            callbacks=[pgm.PseudoLikelihood(data, every=3), pgm.ReconstructionError(data, every=3)],
        )
        for data in ({"c": np.eye(3)[labels]}, {"c": labels}, frame)
    )
    for other in (two, three):
        assert np.array_equal(one.model.params["c-h.weight"], other.model.params["c-h.weight"])
        assert all(
            np.array_equal(one.history[n]["value"], other.history[n]["value"]) for n in one.history
        )
    rates = pgm.base_rates(model, {"c": np.eye(3)[labels]})["c"]
    assert np.array_equal(rates, pgm.base_rates(model, {"c": labels})["c"])


def smokers(*more):
    """Two variables with named states, one of three states, beside the given layers."""
    b = pgm.GraphBuilder()
    for name in more:
        b.layer(name, pgm.Binary(), 2)
    b.variable("smoke", states=("yes", "no"))
    b.variable("color", states=("red", "green", "blue"))
    b.variable("lung", states=("yes", "no"))
    b.conditional("smoke", (), [0.5, 0.5])
    b.conditional("lung", ("smoke",), [[0.1, 0.9], [0.01, 0.99]])
    b.conditional("color", ("lung",), [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    return b.build(rng=0)


def test_variables_are_columns_by_their_names(atol=1e-12):
    r = pgm.infer(smokers(), {"smoke": ["yes", "no"]})
    frame = r.to_frame()
    states = {"smoke": ("yes", "no"), "color": ("red", "green", "blue"), "lung": ("yes", "no")}
    assert list(frame.columns) == [f"{name}[{x}]" for name, some in states.items() for x in some]
    np.testing.assert_allclose(frame["lung[no]"], [0.9, 0.99], atol=atol)
    for name, some in states.items():
        for state in some:
            np.testing.assert_array_equal(frame[f"{name}[{state}]"], r.marginal(name)[state])


def test_variables_beside_layers_stand_for_their_layer():
    frame = pgm.infer(smokers("h")).to_frame()
    expected = [("h", 0), ("h", 1), ("smoke", "smoke[yes]"), ("smoke", "smoke[no]"),
                ("color", "color[red]"), ("color", "color[green]"), ("color", "color[blue]"),
                ("lung", "lung[yes]"), ("lung", "lung[no]")]  # fmt: skip
    assert list(frame.columns) == expected
    assert frame["lung", "lung[no]"][0] == pytest.approx(0.945)
    assert frame["h"].shape == (1, 2)
    shown = pgm.infer(smokers("h"), {"smoke": ["no", "yes"], "h": [[0, 1], [1, 1]]}).to_frame()
    np.testing.assert_array_equal(shown["smoke", "smoke[no]"], [1, 0])
    seen = shown["h"].set_axis([("h", 0), ("h", 1)], axis=1)
    seen["smoke"] = ["no", "yes"]
    back = pgm.infer(smokers("h"), seen)
    np.testing.assert_array_equal(back.prob["smoke"][:, 0, 1], [1, 0])
    np.testing.assert_array_equal(back.mean["h"], [[0, 1], [1, 1]])


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_nothing_has_the_probability_of_one_state_under_the_name_of_a_variable(rows):
    """In a shared layer, a layer of its own, and beside layers with names of states."""
    b = pgm.GraphBuilder()
    for name, states in {"a": ("no", "yes"), "b": 2, "c": 1, "d": 3, "own": ("up", "down")}.items():
        b.variable(name, states=states)
    b.layer("v", pgm.Binary(), 2, bias=[0.3, -1.0])
    b.layer("s", pgm.Spin(), 2, bias=[0.3, -1.0], labels=("p", "q"), states=("low", "high"))
    b.layer("l", pgm.Spin(), 2, bias=[0.3, -1.0], labels=("e", "f"))
    b.couple("own", "v", weight=[[1.0, -0.5]])
    b.table(("a", "b"), [[0.1, 0.2], [0.3, 0.4]])
    b.table(("a", "d"), [[0.1, 0.2, 0.3], [0.3, 0.4, 0.7]])
    b.table(("c",), [2.0])
    model = b.build()
    evidence = {} if rows is None else {"v": [[1.0, np.nan]] * rows}
    r = pgm.infer(model, evidence)
    frame = r.to_frame()
    for name in ("a", "b", "c", "d", "own", "p", "q"):
        marginal = r.marginal(name)
        np.testing.assert_array_equal(r.mean[name], r.prob[name])
        found = np.asarray(r.mean[name]).reshape(-1, len(marginal)).T
        expected = [np.broadcast_to(p, rows or 1) for p in marginal.values()]
        np.testing.assert_array_equal(found, expected)
        layer = "s" if name in ("p", "q") else name
        for state, prob in marginal.items():
            np.testing.assert_array_equal(frame[layer, f"{name}[{state}]"], prob)
        assert (layer, name) not in frame
    # Numbers keep their means.
    np.testing.assert_array_equal(frame["v"], np.reshape(r.mean["v"], (-1, 2)))
    np.testing.assert_array_equal(frame["l"], np.reshape(r.mean["l"], (-1, 2)))
    np.testing.assert_array_equal(np.ravel(r.mean["e"]), frame["l", "e"])


@pytest.mark.parametrize("wrong", [["id"], ["id", 7], [("a", "b"), "weight"]])
@one_test_over("door", ["evidence", "soft", "data", "layer", "hints of a layer"])
def test_extra_columns_are_refused_with_the_way_to_drop_them(door, wrong):
    """The message holds an expression, whose value is taken where the frame was not."""
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3, labels=("a", "b", "c"))
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h")
    model = b.build(rng=0)
    good = pd.DataFrame([[0, 1, 1], [1, 0, 0]], columns=list("abc"))
    data = good.copy()
    for name in wrong:
        data[name] = 1
    ask = {
        "evidence": lambda x: pgm.infer(model, x).mean["h"],
        "soft": lambda x: pgm.infer(model, soft={"v": x}).mean["h"],
        "data": lambda x: pgm.fit(model, x, updates=1, progress=False).model.params["v.bias"],
        "layer": lambda x: pgm.infer(model, {"v": x}).mean["h"],
        "hints of a layer": lambda x: pgm.infer(model, soft={"v": x}).mean["v"],
    }[door]
    with pytest.raises(pgm.PgmError, match="to leave (it|them) out, give data.drop") as error:
        ask(data)
    advice = str(error.value).rpartition(", give ")[2]
    np.testing.assert_array_equal(ask(eval(advice, {"data": data})), ask(good))


def test_many_extra_columns_are_counted():
    model = pgm.GraphBuilder()
    model.variable("a", states=("no", "yes"))
    model.conditional("a", (), [0.5, 0.5])
    data = pd.DataFrame({"a": ["no"]} | {f"gene {i}": [0] for i in range(500)})
    with pytest.raises(pgm.PgmError, match="500 columns are no names") as error:
        pgm.infer(model.build(), data)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("labels", [("rain", "wet"), (15, 16)])
def test_columns_that_are_no_units_are_refused(labels):
    """Also where only one of them is near the name of a unit."""
    b = pgm.GraphBuilder()
    b.layer("L", pgm.Binary(), 2, labels=labels)
    wrong = pd.DataFrame({"x": [1.0], "rian" if labels[0] == "rain" else 1: [0.0]})
    for ask in ({"evidence": {"L": wrong}}, {"soft": {"L": wrong}}):
        try:
            pgm.infer(b.build(), **ask)
        except pgm.PgmError as error:
            assert "is no unit's name" in str(error)


def test_states_that_write_alike_have_columns_of_their_own():
    b = pgm.GraphBuilder()
    b.layer("L", pgm.Binary(), 1, bias=[0.7], states=(1, "1"))
    frame = pgm.infer(b.build()).to_frame()
    assert [name for _, name in frame.columns] == ["0[1]", "0['1']"]
    assert frame.sum(axis=1)[0] == pytest.approx(1)


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
def test_dates_are_no_states(kind):
    b = pgm.GraphBuilder()
    b.variable("y", states=3)
    b.conditional("y", (), [0.2, 0.3, 0.5])
    for x in (
        pd.DataFrame({"y": np.array([1, 2], dtype=kind)}),
        {"y": np.array([1, 2], dtype=kind)},
    ):
        with pytest.raises(pgm.PgmError, match="not an array of numbers or names: it has dates"):
            pgm.infer(b.build(), x)
