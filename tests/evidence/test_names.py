"""Evidence, interventions and answers by the names of variables and states."""

import numpy as np
import pytest
from extras import extra
from loops import one_test_over
from small_networks import states_drawn

import pgmengine as pgm

EXACT = {"rtol": 1e-12, "atol": 1e-12}
nan, inf = np.nan, np.inf


def smoking_beside_layers(leaf=True):
    """smoke -> lung, a deterministic child, and layers of spins and of a Gaussian beside them."""
    b = pgm.GraphBuilder()
    b.variable("smoke", states=("yes", "no"))
    b.variable("lung", states=("low", "high", "none"))
    b.variable("age", 4)
    b.variable("same", states=("yes", "no"))
    b.layer("h", pgm.Spin(), 3, labels=("left", "middle", "right"))
    if leaf:
        b.layer("g", pgm.Gaussian(1.0), 1)
    b.conditional("smoke", (), [0.25, 0.75])
    b.conditional("lung", ("smoke",), [[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    b.conditional("same", ("smoke",), np.eye(2))
    b.conditional("age", (), [0.25] * 4)
    return b.build()


def test_answers_by_name():
    model = smoking_beside_layers(leaf=False)
    assert model.variables == ["smoke", "lung", "age", "same"]
    r = pgm.infer(
        model,
        {"lung": "high"},
        want=("marginals", "mode", "samples", "log_prob", pgm.Joint("same", "smoke")),
        method=pgm.Elimination(draws=50),
        rng=0,
    )
    p = 0.25 * 0.3 / (0.25 * 0.3 + 0.75 * 0.1)
    np.testing.assert_allclose(r.log_prob, np.log(0.15), **EXACT)
    found = r.marginal("smoke")
    assert list(found) == ["yes", "no"]
    np.testing.assert_allclose(list(found.values()), [p, 1 - p], **EXACT)
    assert list(r.marginal("age")) == [0, 1, 2, 3]
    np.testing.assert_allclose(r.joint["same", "smoke"], np.diag([p, 1 - p]), **EXACT)
    best = r.assignment()
    assert best["lung"] == "high"
    assert best["same"] == best["smoke"]
    np.testing.assert_array_equal(states_drawn(r, "lung"), np.ones(50))
    np.testing.assert_array_equal(r.samples["same"], r.samples["smoke"])


def test_draws_as_a_frame_have_the_names_of_states():
    extra("pandas")
    frame = pgm.infer(
        smoking_beside_layers(),
        {"lung": "high"},
        want="samples",
        method=pgm.Elimination(draws=50),
        rng=0,
    ).samples_frame()
    assert len(frame) == 50
    assert set(frame["lung"]) == {"high"}
    assert set(frame["smoke"]) == {"yes", "no"}


@one_test_over(
    "evidence",
    (
        {"lung": ["low", None, "none"]},
        {"lung": ["low", nan, "none"]},
        {"lung": [["low"], [None], ["none"]]},
        {"lung": np.array(["low", None, "none"], dtype=object)},
    ),
)
def test_many_rows_by_name(evidence):
    r = pgm.infer(smoking_beside_layers(False), evidence, want=("marginals", "log_prob", "mode"))
    p = np.array([0.25 * 0.2 / 0.125, 0.25, 0.25 * 0.5 / 0.725])
    np.testing.assert_allclose(r.marginal("smoke")["yes"], p, **EXACT)
    np.testing.assert_allclose(r.log_prob, np.log([0.125, 1, 0.725]), **EXACT)
    assert list(r.assignment()["lung"]) == ["low", "none", "none"]


def test_a_frame_with_a_column_for_each_variable():
    pd = extra("pandas")
    frame = pd.DataFrame({"lung": ["low", None, "none"], "age": [0, 3, 1]})
    model = smoking_beside_layers()
    r = pgm.infer(model, frame, want=("marginals", "log_prob"))
    p = [0.25 * 0.2 / 0.125, 0.25, 0.25 * 0.5 / 0.725]
    np.testing.assert_allclose(r.marginal("smoke")["yes"], p, **EXACT)
    np.testing.assert_allclose(r.marginal("age")[3], [0, 1, 0], **EXACT)
    with pytest.raises(pgm.PgmError, match="lungs.*lung"):
        pgm.infer(model, frame.rename(columns={"lung": "lungs"}))
    with pytest.raises(pgm.PgmError, match="lung.*huge"):
        pgm.infer(model, pd.DataFrame({"lung": ["low", "huge"]}))


def test_do_by_name():
    model = smoking_beside_layers()
    r = pgm.infer(model, {"lung": "low"}, do={"same": "no"}, want=("marginals",))
    np.testing.assert_allclose(r.marginal("smoke")["yes"], 0.4, **EXACT)
    r = pgm.infer(model, {"lung": "low"}, do={"smoke": "no"}, want=("log_prob",))
    np.testing.assert_allclose(r.log_prob, np.log(0.1), **EXACT)


BAD = {
    "unknown variable": ({"smok": "yes"}, "smok.*smoke"),
    "unknown state": ({"lung": "hihg"}, "lung.*high"),
    "unknown state of a row": ({"lung": ["low", "hihg"]}, "lung.*high"),
    "number outside": ({"lung": 3}, "lung.*3"),
    "number below zero": ({"lung": -1}, "lung.*-1"),
    "fraction": ({"lung": 0.5}, r"lung.*0\.5"),
    "infinite": ({"lung": inf}, "lung.*inf"),
    "rows of unequal number": ({"age": [0, 1], "smoke": ["no"] * 3}, "smoke.*(2|3)|age.*(2|3)"),
    "rows beside a layer": ({"age": [0, 1], "h": [[1, 1, 1]] * 3}, "age|h"),
    "table as rows": ({"lung": [["low", "high"]]}, "lung"),
    "object": ({"lung": object()}, "lung"),
    "mapping": ({"lung": {"low": 1.0}}, "lung"),
    "layer of wrong value": ({"h": [0.5, nan, nan]}, "h"),
    "layer of wrong size": ({"h": [1, 1]}, "h"),
    "ragged layer": ({"h": [[1, 1, 1], [1, 1]]}, "h"),
    "text in a layer": ({"h": ["a", "b", "c"]}, "h"),
    "name that is no text": ({3: 1}, "3"),
    "tuple as a name": ({("h", 7): 1}, "h"),
    "evidence is text": ("lung", "evidence|do"),
    "evidence is a number": (3, "evidence|do"),
    "evidence is a list": (["lung"], "evidence|do"),
}


@one_test_over("name", BAD)
def test_bad_evidence_is_refused_and_named(name):
    evidence, message = BAD[name]
    with pytest.raises(pgm.PgmError, match=message):
        pgm.infer(smoking_beside_layers(), evidence)


@one_test_over("name", sorted(set(BAD) - {"table as rows"}))
def test_bad_interventions_are_refused(name):
    evidence, message = BAD[name]
    with pytest.raises(pgm.PgmError, match=message):
        pgm.infer(smoking_beside_layers(), {}, do=evidence)


@one_test_over(
    "soft",
    (
        {"smok": 1.0},
        {"smoke": "yes"},
        {"lung": 1.0},
        {"lung": [1.0, 2.0]},
        {"lung": [0.0, nan, 1.0]},
        {"smoke": [[1.0, 2.0, 3.0]]},
        {"smoke": object()},
        3,
    ),
)
def test_bad_hints_are_refused(soft):
    with pytest.raises(pgm.PgmError):
        pgm.infer(smoking_beside_layers(), {}, soft=soft)


def test_evidence_of_a_unit_by_name_and_by_layer():
    """Both are refused, or they agree; they never win silently over each other."""
    model = smoking_beside_layers()
    layer = next(n for n, x in model.structure.layers.items() if "smoke" in (x.labels or ()))
    size = model.structure.layers[layer].size
    with pytest.raises(pgm.PgmError, match="smoke"):
        pgm.infer(model, {layer: [0] * size, "smoke": "no"})


@one_test_over(
    "want",
    (
        lambda: pgm.Joint(),
        lambda: pgm.Joint("smoke", "smoke"),
        lambda: pgm.Joint("smok"),
        lambda: pgm.Joint(("h", 3)),
        lambda: pgm.Joint(("h", -1)),
        lambda: pgm.Joint(("h", "a")),
        lambda: pgm.Joint(("g", 0)),
        lambda: pgm.Joint(3),
        lambda: pgm.Joint(("h", 0.5)),
        lambda: pgm.Joint(("h",)),
        lambda: "marginal",
        lambda: 3,
    ),
)
def test_bad_questions_are_refused(want):
    with pytest.raises(pgm.PgmError):
        pgm.infer(smoking_beside_layers(), want=(want(),))


@one_test_over("name", ("smok", ("h", 3), ("h", -1), ("h", "a"), 3, None, ("g", 0)))
def test_marginals_of_unknown_units_are_refused(name):
    r = pgm.infer(smoking_beside_layers())
    with pytest.raises(pgm.PgmError):
        r.marginal(name)


@pytest.mark.parametrize("want", ("marginals", "mode", "samples", "pairs", "gradient"))
@pytest.mark.parametrize("method", (None, pgm.Elimination()))
def test_contradictory_evidence_names_the_row(want, method):
    evidence = {"smoke": ["yes", "yes", "no"], "same": ["yes", "no", "no"]}
    with pytest.raises(pgm.PgmError, match="row 1"):
        pgm.infer(smoking_beside_layers(False), evidence, want=(want,), method=method)
    with pytest.raises(pgm.PgmError):
        pgm.infer(
            smoking_beside_layers(False),
            {"smoke": "yes", "same": "no"},
            want=(want,),
            method=method,
        )


@pytest.mark.parametrize("method", (None, pgm.Elimination()))
def test_contradictory_evidence_has_log_z_minus_infinity(method):
    evidence = {"smoke": ["yes", "yes", "no"], "same": ["yes", "no", "no"]}
    for want in (("log_z",), ("log_prob",), ("log_z", "log_prob")):
        r = pgm.infer(smoking_beside_layers(), evidence, want=want, method=method)
        for name in want:
            expected = np.log([0.25, 0, 0.75], where=[True, False, True], out=np.full(3, -inf))
            # log_z adds 2^3 states of h.
            np.testing.assert_allclose(
                getattr(r, name) - np.log(8) * (name == "log_z"), expected, **EXACT
            )


@one_test_over(
    "declared",
    (
        lambda b: b.variable(""),
        lambda b: b.variable(3),
        lambda b: b.variable(None),
        lambda b: b.variable("a", 1.5),
        lambda b: b.variable("a", 0),
        lambda b: b.variable("a", -2),
        lambda b: b.variable("a", nan),
        lambda b: b.variable("a", None),
        lambda b: b.variable("a", ()),
        lambda b: b.variable("a", ("yes", "yes")),
        lambda b: b.variable("a", (1, None)),
        lambda b: b.variable(("h", 0)),
    ),
)
def test_bad_variables_are_refused(declared):
    b = pgm.GraphBuilder()
    with pytest.raises(pgm.PgmError):
        declared(b)
        b.build()


@one_test_over("name", ("a b", "a,b", "a|b", "a.table", "a-b", "a->b", "ä", "a[0]", "'", "{"))
def test_names_of_any_text(name):
    """Whatever is accepted works under its name, and no two parameters share one."""
    b = pgm.GraphBuilder()
    try:
        for n in (name, "a", "b"):
            b.variable(n, 3)
        b.table((name, "a"), np.arange(1.0, 10).reshape(3, 3))
        b.conditional("b", (name,), np.full((3, 3), 1 / 3))
        model = b.build()
    except pgm.PgmError as error:
        assert name in str(error)
        return
    r = pgm.infer(model, {name: 2}, want=("marginals", "gradient"))
    np.testing.assert_allclose(list(r.marginal("a").values()), np.array([7, 8, 9]) / 24, **EXACT)
    tables = [n for n in model.params if n.endswith(".table")]
    assert len(tables) == 2
    assert set(r.gradient) == set(model.params)


def test_variables_named_after_generated_layers():
    """Names that the builder uses for its own layers may be taken."""
    model = smoking_beside_layers()
    b = pgm.GraphBuilder()
    for name in model.structure.layers:
        if name not in ("h", "g"):
            b.variable(name)
    b.variable("smoke")
    b.variable("lung", 3)
    b.table(("smoke", "lung"), np.ones((2, 3)))
    try:
        made = b.build()
    except pgm.PgmError:
        return
    assert len(pgm.infer(made).marginal("smoke")) == 2


def rain():
    """Two variables that a coupling joins, so that each has a layer of its own."""
    b = pgm.GraphBuilder()
    b.variable("rain", states=("no", "yes"))
    b.variable("wet", states=("no", "yes", "very"))
    b.cause("rain", "wet", weight=[[2.0, 1.0, 0.0]])
    return b.build()


def test_states_have_names_where_a_variable_has_a_layer_of_its_own():
    model = rain()
    one_hot = np.eye(3)[[1, 0, 0, 2]][:, None]
    one_hot[2] = np.nan
    components = pgm.infer(model, {"wet": one_hot}).mean["rain"]
    named = pgm.infer(model, {"wet": ["yes", "no", None, "very"]}).mean["rain"]
    np.testing.assert_array_equal(named, components)
    one, done = pgm.infer(model, {"wet": "yes"}), pgm.infer(model, do={"rain": "yes"})
    assert one.mean["rain"].shape == (1, 2)
    np.testing.assert_array_equal(one.mean["rain"], components[0])
    e = np.exp([2.0, 1.0, 0.0])
    np.testing.assert_allclose(done.mean["wet"], [e / e.sum()], **EXACT)
    best = pgm.infer(model, want=("mode",)).assignment()
    assert best == {"rain": "yes", "wet": "no"}
    log_p = model.log_density(best)
    np.testing.assert_allclose(pgm.infer(model, best, want=("log_prob",)).log_prob, log_p)
    with pytest.raises(pgm.PgmError, match="variable 'wet', row 1: 'nope' is no state"):
        pgm.infer(model, {"wet": ["yes", "nope"]})


def test_hints_may_leave_out_the_axis_of_one_unit():
    model, ask = rain(), pgm.infer
    for name, short, whole in (
        ("rain", [[1.0, 2.0]], [[[1.0, 2.0]]]),
        ("rain", [[1.0, 2.0], [2.0, 0.5]], [[[1.0, 2.0]], [[2.0, 0.5]]]),
        ("wet", [[1.0, 2.0, 0.0]], [[[1.0, 2.0, 0.0]]]),
        ("wet", [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]], [[[1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]]),
    ):
        one, two = (ask(model, soft={name: hints}).mean["rain"] for hints in (short, whole))
        np.testing.assert_array_equal(one, two)


def test_arrays_of_a_layer_may_have_names_of_states():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Spin(), 2, states=("low", "high"))
    b.layer("g", pgm.Binary(), 1)
    b.couple("h", "g", weight=[[1.0], [0.5]])
    model = b.build()
    named = pgm.infer(model, {"h": [["low", "high"], [None, "low"]]}).mean["g"]
    z = np.array([[-0.5], [-0.5 + np.log(np.cosh(1.5) / np.cosh(0.5))]])
    np.testing.assert_allclose(named[0], 1 / (1 + np.exp(-z[0])), **EXACT)
    with pytest.raises(pgm.PgmError, match="layer 'h', row 0, index 0: -1 is no state"):
        pgm.infer(model, {"h": [[-1, 1], [np.nan, -1]]})
    with pytest.raises(pgm.PgmError, match="layer 'h', row 1, index 1: 'lo' is no state"):
        pgm.infer(model, {"h": np.array([["low", "high"], ["low", "lo"]])})


def test_joint_distributions_are_found_in_any_order_of_their_units():
    model = rain()
    want = (pgm.Joint("rain", "wet"), pgm.Joint("rain"))
    for evidence, lead in (({}, ()), ({"rain": ["no", "yes", "yes"]}, (3,))):
        joint = pgm.infer(model, evidence, want=want).joint
        assert joint["rain", "wet"].shape == (*lead, 2, 3)
        np.testing.assert_array_equal(joint["wet", "rain"], joint["rain", "wet"].swapaxes(-1, -2))
        np.testing.assert_array_equal(joint["rain"], joint[("rain",)])
    with pytest.raises(pgm.PgmError, match="no joint distribution of 'wet'; there are those of"):
        joint["wet"]
    with pytest.raises(pgm.PgmError, match="names of units one by one"):
        pgm.Joint(["rain", "wet"])


def test_complete_states_have_units_of_layers_beside_variables():
    b = pgm.GraphBuilder()
    b.variable("a", states=("no", "yes"))
    b.layer("h", pgm.Spin(), 2)
    b.table(("a", ("h", 1)), [[1.0, 2.0], [3.0, 4.0]])
    r = pgm.infer(b.build(), want=("mode", "samples"), rng=0)
    assert r.assignment() == {"a": "yes", ("h", 0): -1.0, ("h", 1): 1.0}
    extra("pandas")
    assert list(r.samples_frame()) == ["a", ("h", 0), ("h", 1)]


def pair():
    """Three variables in tables; two of them share a layer."""
    b = pgm.GraphBuilder()
    b.variable("cold", states=("no", "yes"))
    b.variable("rain", states=("no", "yes"))
    b.variable("wet", states=("no", "yes", "very"))
    b.table(("cold", "rain"), [[2.0, 1.0], [1.0, 4.0]])
    b.table(("rain", "wet"), [[3.0, 1.0, 0.5], [0.2, 1.0, 2.0]])
    return b.build()


def test_references_of_annealing_may_name_variables():
    model = pair()
    named = pgm.AIS(chains=20, reference={"rain": 0.3, "wet": [0.1, -0.2, 0.0]})
    by_layer = {"variables2": [0.0, 0.3], "variables3": [[0.1, -0.2, 0.0]]}
    found = pgm.infer(model, want=("log_z",), method=named, rng=0)
    other = pgm.infer(model, want=("log_z",), method=pgm.AIS(chains=20, reference=by_layer), rng=0)
    assert found.log_z == other.log_z
    with pytest.raises(pgm.PgmError, match="reference: 'wet' has shape"):
        pgm.infer(model, want=("log_z",), method=pgm.AIS(reference={"wet": 0.1}))


def test_partitions_read_variables_by_name():
    model = pair()

    def sky(x):
        return x["rain"][:, 0].astype(int)

    method = pgm.WangLandau(sky, bins=2, layers=("rain",), warmup=200, draws=2000)
    found = pgm.infer(model, method=method, rng=0).stats["bin_prob"][0]
    exact = pgm.infer(model).marginal("rain")
    np.testing.assert_allclose(found, list(exact.values()), atol=0.05)


def test_one_row_is_a_row_of_variables_with_and_without_a_layer_of_their_own():
    for model in (rain(), pair()):
        for rows, lead in ((1, (1,)), (2, (2,)), (None, ())):
            for given, hint in (("yes", [0.0, 1.0, 0.5]), ("no", [1.0, 0.0, 0.0])):
                evidence = given if rows is None else [given] * rows
                soft = hint if rows is None else [hint] * rows
                for found in (
                    pgm.infer(model, {"wet": evidence}),
                    pgm.infer(model, soft={"wet": soft}),
                    pgm.infer(model, {"rain": evidence}),
                    pgm.infer(
                        model, soft={"rain": hint[:2] if rows is None else [hint[:2]] * rows}
                    ),
                ):
                    assert found.mean["rain"].shape == (*lead, 1, 2)


def test_messages_name_variables():
    model = pair()
    ask = pgm.infer
    for wrong, message in (
        ({"evidence": {"rain": []}}, "evidence: 'rain' has no rows"),
        ({"soft": {"rain": []}}, "soft: 'rain' has no rows"),
        (
            {"soft": {"rain": [[0.0, 1.0], [0.0, np.inf]]}},
            "soft: 'rain', row 1, state 'yes' is inf",
        ),
        ({"evidence": {"rian": 1}}, "'rian' is unknown.* did you mean 'rain'"),
        ({"want": (pgm.Joint("rain", "wett"),)}, "'wett' is no variable; did you mean wet"),
        ({"want": (pgm.Joint("rain", ("variables2", 1)),)}, "a unit is named twice"),
        ({"evidence": {"variables2": ["no", 3]}}, r"'cold'.*: 3 is no state"),
    ):
        with pytest.raises(pgm.PgmError, match=message):
            ask(model, **wrong)
    with pytest.raises(pgm.PgmError, match="do: variable 'rain', row 0 is both observed and set"):
        ask(rain(), {"rain": "yes"}, do={"rain": "yes"})
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, labels=("p", "q"))
    b.variable("p", states=2)
    with pytest.raises(pgm.PgmError, match="variable 'p' has the name of a unit of layer 'v'"):
        b.build()


def test_many_tables_may_share_a_variable():
    """One table for each unit of a layer and a variable, as by single tables."""
    values = np.random.default_rng(0).gamma(1.0, size=(4, 2, 3))
    found = []
    for many in (True, False):
        b = pgm.GraphBuilder()
        b.variable("calm", states=("no", "yes"))
        b.variable("hot", states=("no", "yes"))
        b.layer("x", pgm.Categorical(3), 4)
        if many:
            b.tables(("hot", "x"), [[0, i] for i in range(4)], values)
        for i in range(0 if many else 4):
            b.table(("hot", ("x", i)), values[i])
        found.append(b.build())
    one, other = (pgm.infer(model, {"x": [0, 2, 1, 1]}).marginal("hot") for model in found)
    assert one == pytest.approx(other)
    assert "hot,x.table" in found[0].params
    b.tables(("hot", "x"), [[0, 0], [1, 1]], values[:2])
    with pytest.raises(
        pgm.PgmError, match=r"index\[1, 0\] is 1, expected 0 for the variable 'hot'"
    ):
        b.build()
    b = pgm.GraphBuilder()
    b.variable("hot")
    b.tables(("hot", "cold"), [[0, 0]], values[:1, :, :2])
    with pytest.raises(
        pgm.PgmError, match="tables: variable 'cold' is unknown; the variables are hot$"
    ):
        b.build()


def shared_and_own():
    """Variables that share a layer, and variables with a layer of their own."""
    b = pgm.GraphBuilder()
    b.variable("a", states=("no", "yes"))
    b.variable("b", states=("no", "yes"))
    b.variable("odd", states=("nan", "?"))
    b.variable("turned", states=("1", "0"))
    b.variable("own", states=("no", "yes"))
    b.layer("h", pgm.Binary(), 2)
    b.couple("own", "h", weight=[[1.0, -1.0]])
    b.table(("a", "b"), [[4.0, 1.0], [1.0, 3.0]])
    b.table(("b", "own"), [[2.0, 1.0], [1.0, 5.0]])
    b.table(("odd", "turned"), [[1.0, 2.0], [3.0, 5.0]])
    return b.build()


def log_z_of(model, evidence):
    return pgm.infer(model, evidence, want=("log_z",)).log_z


@pytest.mark.parametrize("name", ["a", "own"])
def test_values_of_every_form_are_read_alike(name):
    pd = extra("pandas")
    model = shared_and_own()
    expected = log_z_of(model, {name: ["yes", None]})
    for given in (
        np.ma.array(["yes", "no"], mask=[0, 1]),
        ["yes", np.nan],
        ["yes", pd.NA],
        np.array(["yes", None], dtype=object),
        [["yes"], [None]],
        pd.array(["yes", None], dtype="string"),
        pd.Series(["yes", None]),
        pd.Series(["yes", None], dtype="category"),
    ):
        np.testing.assert_array_equal(log_z_of(model, {name: given}), expected)
    for given in (None, pd.NA, np.nan):
        assert log_z_of(model, {name: given}) == log_z_of(model, {})


def test_names_and_numbers_in_one_list_stay_what_they_are():
    """numpy would make text of both: "nan" and "0" are names of states here."""
    model = shared_and_own()
    for one, other in (
        ({"odd": ["?", np.nan]}, {"odd": ["?", None]}),
        ({"turned": ["1", 0]}, {"turned": ["1", "0"]}),
        ({"turned": ["0", 1.0]}, {"turned": ["0", "1"]}),
    ):
        np.testing.assert_array_equal(log_z_of(model, one), log_z_of(model, other))
    np.testing.assert_allclose(
        log_z_of(model, {"odd": ["?", "nan"]}) - log_z_of(model, {}), np.log([8 / 11, 3 / 11])
    )


@pytest.mark.parametrize("name", ["a", "own"])
@one_test_over(
    "wrong",
    [[1 + 5j], 10**400, [10**400, 1], [[1], [1, 2]], [1, [1, 2]], [[1, 0], 1], {1}, object(), 1j],
    ids=lambda wrong: str(wrong)[:20],
)
def test_values_that_are_no_states_are_refused(name, wrong):
    with pytest.raises(pgm.PgmError, match=f"'{name}'"):
        pgm.infer(shared_and_own(), {name: wrong})


def test_answers_by_name_are_mappings():
    model = shared_and_own()
    r = pgm.infer(model, want=("marginals", pgm.Joint("own", "a")))
    for name in ("a", "own"):
        assert name in r.mean
        np.testing.assert_array_equal(r.mean[name], r.prob[name])
        np.testing.assert_array_equal(r.mean.get(name), r.mean[name])
    assert "c" not in r.prob
    assert r.prob.get("c", 7) == 7
    assert ("a", "own") in r.joint
    assert ("a", "b") not in r.joint
    assert r.joint.get(("a", "b")) is None
    np.testing.assert_array_equal(r.joint.get(("a", "own")), r.joint["own", "a"].T)
    with pytest.raises(pgm.PgmError, match="did you mean own"):
        r.mean["owm"]
    with pytest.raises(pgm.PgmError, match=r"want=\(pgm.Joint"):
        _ = pgm.infer(model).joint


def test_what_is_no_name_is_refused():
    model = shared_and_own()
    for observed in (5, None, (["a"],), [("h", [0])]):
        with pytest.raises(pgm.PgmError, match="observed"):
            pgm.prepare(model, observed=observed)
    for units in ((("h", [0]),), ((["h"], 0),)):
        with pytest.raises(pgm.PgmError, match="names of units one by one"):
            pgm.Joint(*units)
    ask = pgm.prepare(model, observed=(("h", 1), "a"))
    assert ask({"h": [np.nan, 1], "a": "yes"}).kind == "exact"
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2)
    for declare in (
        lambda: b.layer(["x"], pgm.Binary(), 2),
        lambda: b.table(np.array("h"), [1.0, 2.0]),
        lambda: b.conditional("h", np.array("h"), [1.0, 2.0]),
        lambda: b.variable("q", states=np.array(2)),
    ):
        with pytest.raises(pgm.PgmError):
            declare()
    b.table(((["h"], 0),), [1.0, 2.0])
    with pytest.raises(pgm.PgmError, match="is no variable"):
        b.build()


def test_complete_states_are_evidence():
    """Keys (layer, number) of an assignment are understood as they are."""
    model = shared_and_own()
    best = pgm.infer(model, want=("mode",))
    again = pgm.infer(model, best.assignment(), want=("log_z",)).log_z
    np.testing.assert_allclose(again, model.log_density(best.assignment()), atol=1e-12)
    with pytest.raises(pgm.PgmError, match="layer 'h' has no unit 5"):
        pgm.infer(model, {("h", 5): 1})
    with pytest.raises(pgm.PgmError, match="by its name, and with layer 'h'"):
        pgm.infer(model, {("h", 1): 1, "h": [0, 1]})


def test_a_unit_that_is_named_twice_is_refused():
    model = shared_and_own()
    with pytest.raises(pgm.PgmError, match="'a' and .*0.* are the same unit"):
        pgm.infer(model, {"a": "yes", ("variables2", 0): "no"})


def test_missing_joints_are_no_keys():
    r = pgm.infer(shared_and_own(), want=(pgm.Joint("own", "a"),))
    with pytest.raises(KeyError):
        r.joint["a", "b"]
    assert ("a", "a") not in r.joint


def test_a_label_that_holds_a_dict_is_refused():
    """A tuple with a dict in it says that it can be a name, and cannot."""
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, labels=("a", ({}, 1)))
    b.variable("x")
    with pytest.raises(pgm.PgmError, match="cannot be a label"):
        b.build()
