"""Sessions of the explorer: the state after clicks, and answers equal to those of `infer`."""

import json
import math

import numpy as np
import pytest
from explored import MODELS, Clicks, hmm, numbers
from loops import one_test_over

import pgmengine as pgm
from pgmengine.apps.explorer.scenes import MAX_NODES
from pgmengine.apps.explorer.session import Session


def asia(evidence=None):
    return Session(pgm.read(pgm.datasets.asia()), evidence)


def place(session, name):
    layer, unit = session.structure.names.unit(name, "test")
    return f"{list(session.structure.layers).index(layer)},{unit}"


def click(session, name, state, **more):
    action = {"kind": "set", "at": [place(session, name)], "state": state, "toggle": True, **more}
    return session.reply({"seq": 1, "actions": [action]})


def prob(reply, at):
    return next(unit["p"] for unit in reply["units"] if unit["at"] == at)


def check_same(reply, expected, model):
    if isinstance(expected, str):
        assert reply["error"] == expected and reply["units"] == []
        return
    truth = numbers(expected, model)
    assert reply["error"] == "" and {unit["at"] for unit in reply["units"]} == {*truth}
    for unit in reply["units"]:
        np.testing.assert_allclose(unit["p"], truth[unit["at"]], rtol=1e-12, atol=1e-12)
    shown = float(reply["foot"]["log"].rpartition("= ")[2])
    assert shown == pytest.approx(float(expected.log_prob.item()), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_random_clicks_end_in_the_answer_of_a_fresh_infer(name, sequences=10, length=12):
    """Also by the line of code, and whether actions come one by one or together."""
    make = MODELS[name]
    model = make()
    directed = model.structure.normalized
    for seed in range(sequences):
        session, clicks = Session(model), Clicks(model, seed)
        actions = [clicks.next(directed) for _ in range(length)]
        together = Session(model).reply({"seq": 7, "hello": True, "actions": actions})
        for seq, action in enumerate(actions):
            reply = session.reply({"seq": seq, "actions": [action]})
            assert reply["seq"] == seq and reply["refused"] == ""
        check_same(reply, clicks.fresh(make), model)
        for part in ("given", "units", "error", "code", "undo", "redo"):
            assert together[part] == reply[part]
        assert (reply["undo"], reply["redo"]) == (bool(clicks.past), bool(clicks.future))
        if not reply["error"]:
            check_same(reply, eval(reply["code"], {"pgm": pgm, "model": make()}), model)
        json.dumps(reply, allow_nan=False)


def test_a_click_observes_and_a_second_one_releases():
    session = asia()
    before = session.reply({"seq": 0, "actions": []})
    reply = click(session, "smoke", 0)
    truth = pgm.infer(session.model, {"smoke": "yes"}).marginal("lung")["yes"]
    assert prob(reply, place(session, "lung"))[0] == truth
    assert [(one["kind"], one["text"]) for one in reply["given"]] == [("observed", "smoke = yes")]
    assert click(session, "smoke", 0)["units"] == before["units"]


def test_do_says_nothing_about_causes():
    session = asia()
    reply = click(session, "lung", 0, do=True)
    truth = pgm.infer(session.model, do={"lung": "yes"})
    assert prob(reply, place(session, "smoke"))[0] == truth.marginal("smoke")["yes"] == 0.5
    assert reply["given"][0]["text"] == "do(lung = yes)"
    assert "do={'lung': 'yes'}" in reply["code"]
    # An observation takes the place of an intervention.
    assert [one["kind"] for one in click(session, "lung", 0)["given"]] == ["observed"]


@pytest.mark.parametrize("to", [0.9, 0.5, 0.02])
@pytest.mark.parametrize("name", ["lung", "bronc"])
def test_a_dragged_bar_ends_where_it_was_dropped(name, to):
    session = asia({"dysp": "yes"})
    at = place(session, name)
    for _ in range(2):
        action = {"kind": "soft", "at": at, "state": 0, "to": to}
        reply = session.reply({"seq": 0, "actions": [action]})
        assert prob(reply, at)[0] == pytest.approx(to, abs=1e-3)
    model = session.model
    check_same(reply, eval(reply["code"], {"pgm": pgm, "model": model}), model)
    # The scale of likelihoods counts for log p(evidence): the most likely state has 1.
    (soft,) = [one["likelihoods"] for one in reply["given"] if one["kind"] == "soft"]
    assert max(soft) == 1
    assert "soft=pgm.likelihood(" in reply["code"]


def test_soft_evidence_by_keys_changes_log_odds_and_comes_back():
    session = asia()
    at = place(session, "smoke")
    reply = None
    for by in (0.5, 0.5, -0.5):
        action = {"kind": "soft", "at": at, "state": 0, "by": by}
        reply = session.reply({"seq": 0, "actions": [action]})
    p = prob(reply, at)[0]
    assert math.log(p / (1 - p)) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    "to", [math.nan, math.inf, pytest.param(10**400, id="large"), True, "0.5", None]
)
def test_soft_evidence_of_no_number_is_refused_in_words(to):
    session = asia()
    action = {"kind": "soft", "at": place(session, "smoke"), "state": 0, "to": to}
    reply = session.reply({"seq": 0, "actions": [action]})
    assert "expected a number" in reply["refused"] and not reply["undo"]


def test_soft_evidence_on_a_spin_of_a_layer():
    model = MODELS["spins"]()
    session = Session(model)
    action = {"kind": "soft", "at": "0,2", "state": 1, "to": 0.75}
    reply = session.reply({"seq": 0, "actions": [action]})
    assert prob(reply, "0,2")[1] == pytest.approx(0.75, abs=1e-3)
    check_same(reply, eval(reply["code"], {"pgm": pgm, "model": model}), model)


def test_a_stroke_of_paint_is_one_step():
    session = Session(pgm.rbm(16, 4, rng=0))
    stroke = [f"0,{i}" for i in range(5)]
    paint = {"kind": "set", "at": stroke, "state": 1, "do": False, "toggle": False}
    reply = session.reply({"seq": 0, "actions": [paint]})
    assert [one["at"] for one in reply["given"]] == stroke
    assert "{'v': [1, 1, 1, 1, 1, None, None" in reply["code"]
    assert session.reply({"seq": 0, "actions": [{"kind": "undo"}]})["given"] == []


def test_impossible_evidence_is_said_in_words_and_can_be_undone():
    session = asia({"lung": "yes"})
    good = session.reply({"seq": 0, "actions": []})
    reply = click(session, "either", 1)
    assert "probability zero" in reply["error"] and reply["units"] == []
    assert reply["foot"]["kind"] == "no answer" and len(reply["given"]) == 2
    again = session.reply({"seq": 1, "actions": [{"kind": "undo"}]})
    assert again["units"] == good["units"] and again["error"] == "" and again["redo"]


def test_do_on_an_undirected_layer_is_refused_in_words():
    session = Session(pgm.rbm(4, 2, rng=0))
    action = {"kind": "set", "at": ["0,0"], "state": 1, "do": True, "toggle": True}
    reply = session.reply({"seq": 0, "actions": [action]})
    assert "do" in reply["error"] and reply["units"] == [] and reply["undo"]


def test_soft_evidence_on_a_certain_state_is_refused():
    session = asia({"lung": "yes"})
    action = {"kind": "soft", "at": place(session, "either"), "state": 0, "to": 0.5}
    reply = session.reply({"seq": 0, "actions": [action]})
    assert "the probability of this state is 1" in reply["refused"] and not reply["undo"]


def test_reasons_are_those_of_impact():
    session = asia({"xray": "yes", "dysp": "yes"})
    why = session.reply({"seq": 0, "actions": [], "why": place(session, "lung")})["why"]
    found = pgm.impact(session.model, {"xray": "yes", "dysp": "yes"}, "lung")
    assert [row["text"] for row in why["rows"]] == ["xray=yes", "dysp=yes"]
    for row, one in zip(why["rows"], found.contributions):
        (change,) = row["changes"]
        assert change["state"] == "yes" and change["removed"] == f"{one.removed['yes']:+.2f}"
        assert change["alone"] == f"{one.alone['yes']:+.2f}"
    refused = session.reply({"seq": 0, "actions": [], "why": place(session, "xray")})["why"]
    assert "is given" in refused["error"]


def test_infinite_reasons_are_text():
    session = asia({"either": "no"})
    reply = session.reply({"seq": 0, "actions": [], "why": place(session, "lung")})
    (row,) = reply["why"]["rows"]
    assert row["changes"][0]["removed"] == "−∞" and row["changes"][0]["share"] == -1
    json.dumps(reply, allow_nan=False)


@one_test_over(
    "action",
    [
        3,
        {"kind": "eval"},
        {"kind": "set"},
        {"kind": "set", "at": [], "state": 0},
        {"kind": "set", "at": ["9,0"], "state": 0},
        {"kind": "set", "at": ["0,99"], "state": 0},
        {"kind": "set", "at": ["-1,0"], "state": 0},
        {"kind": "set", "at": [["0,0"]], "state": 0},
        {"kind": "set", "at": ["0,0"], "state": 2},
        {"kind": "set", "at": ["0,0"], "state": "0"},
        {"kind": "set", "at": ["0,0"], "state": True},
        {"kind": "soft", "at": "0,0", "state": 0, "to": "1"},
        {"kind": "soft", "at": "0,0", "state": 0, "to": math.nan},
        {"kind": "soft", "at": "0,0", "state": 0},
        {"kind": "focus", "name": "nobody"},
        {"kind": "release", "at": "0,0"},
    ],
)
def test_messages_that_make_no_sense_change_nothing(action):
    session = asia({"xray": "yes"})
    before = session.given
    reply = session.reply({"seq": 4, "actions": [action]})
    assert reply["refused"] and reply["seq"] == 4 and session.given is before


def test_a_large_network_shows_a_part_and_finds_the_rest():
    b = pgm.GraphBuilder()
    for i in range(MAX_NODES + 20):
        b.variable(f"x{i}", states=2)
        b.conditional(
            f"x{i}", (f"x{i - 1}",) if i else (), [[0.8, 0.2], [0.3, 0.7]] if i else [0.5, 0.5]
        )
    session = Session(b.build(), {"x70": 1})
    reply = session.reply({"seq": 0, "actions": [], "hello": True})
    assert reply["large"] and len(reply["names"]) == MAX_NODES + 20
    assert len(reply["scene"]["nodes"]) < 15 and len(reply["units"]) < 15
    moved = session.reply({"seq": 1, "actions": [{"kind": "focus", "name": "x40"}]})
    names = {node["name"] for node in moved["scene"]["nodes"]}
    # Parents and children within five steps, and the node that is observed.
    assert names == {*(f"x{i}" for i in range(35, 46)), "x70"}
    assert "scene" not in click(session, "x40", 1)


def test_inputs_stay_as_they_are():
    model = pgm.drbm(3, 2, 2, rng=0)
    session = Session(model, {"x": [1.0, 0.5, 0.0]})
    reply = session.reply({"seq": 0, "actions": [{"kind": "clear"}]})
    assert len(reply["given"]) == 3 and all(one["fixed"] for one in reply["given"])
    truth = pgm.infer(model, {"x": [1.0, 0.5, 0.0]})
    np.testing.assert_allclose(
        prob(reply, f"{list(model.structure.layers).index('y')},0"), truth.prob["y"][0]
    )
    # Soft evidence on an input, or another state of it, is refused.
    change = {"kind": "set", "at": [reply["given"][0]["at"]], "state": 0}
    assert session.reply({"seq": 1, "actions": [change]})["refused"]
    with pytest.raises(pgm.PgmError, match="layer 'x'.*not observed"):
        Session(model)


def test_evidence_of_several_rows_is_refused():
    with pytest.raises(pgm.PgmError, match="shows one row of evidence, and was given 2"):
        asia({"xray": ["yes", "no"]})


def test_the_title_of_a_large_model_has_its_whole_count():
    b = pgm.GraphBuilder()
    b.variable("x", states=2, shape=1041)
    reply = Session(b.build()).reply({"seq": 0, "hello": True, "actions": []})
    assert "1,041 variables" in reply["title"] and reply["title"].count(", ") == 0


def test_estimates_come_with_their_errors():
    """Sixty variables of which all pairs share a table are too wide for exact answers."""
    b = pgm.GraphBuilder()
    s = b.variable("s", states=("down", "up"), shape=60)
    i, j = np.triu_indices(60, 1)
    b.table((s[i], s[j]), np.exp(0.005 * np.array([[1, -1], [-1, 1]])))
    inside = [{"kind": "set", "at": ["0,5"], "state": 1}]
    reply = Session(b.build()).reply({"seq": 0, "actions": inside})
    errors = [unit["error"] for unit in reply["units"]]
    assert reply["foot"]["kind"] == "estimate" and len(errors) == 60
    assert max(e for one in errors for e in one) > 0 and errors[5] == [0.0, 0.0]


@pytest.mark.long
def test_an_estimated_log_p_comes_with_its_error():
    """A lattice with spins observed inside it is too wide for exact answers."""
    b = pgm.GraphBuilder()
    s = b.variable("s", states=("down", "up"), shape=(32, 32))
    bond = np.exp(0.4407 * np.array([[1, -1], [-1, 1]]))
    b.table((s[1:], s[:-1]), bond)
    b.table((s[:, 1:], s[:, :-1]), bond)
    session = Session(b.build())
    inside = [{"kind": "set", "at": [f"0,{i}"], "state": i % 2} for i in (5, 528)]
    reply = session.reply({"seq": 0, "actions": inside})
    foot, result = reply["foot"], session.answer().result
    assert foot["kind"] == "estimate" and f"± {result.log_prob_error[0]:.2g}" in foot["log"]
    errors = [unit["error"] for unit in reply["units"]]
    assert len(errors) == 1024 and max(e for one in errors for e in one) > 0
    assert errors[5] == [0.0, 0.0]
    # An answer that is exact has none.
    reply = session.reply({"seq": 1, "actions": [{"kind": "clear"}]})
    assert "±" not in reply["foot"]["log"]


def test_names_that_are_markup_stay_text():
    b = pgm.GraphBuilder()
    b.variable('<script>"x', states=("<i>", "&'"))
    b.conditional('<script>"x', (), [0.5, 0.5])
    reply = Session(b.build()).reply({"seq": 0, "hello": True, "actions": []})
    assert "<script" not in reply["scene"]["svg"] and "<i>" not in reply["scene"]["svg"]
    assert reply["scene"]["nodes"][0]["name"] == '<script>"x'


def test_a_chain_has_the_names_of_its_steps():
    reply = Session(hmm()).reply({"seq": 0, "hello": True, "actions": []})
    units = {name for node in reply["scene"]["nodes"] for name in node["units"].values()}
    assert "state[3]" in units and "sound[6]" in units


def nested(levels):
    """Lists within lists, as a message of 100,000 brackets has them."""
    out = []
    for _ in range(levels):
        out = [out]
    return out


# Values of JSON as Python reads it, which takes NaN and 1e999 as well.
VALUES = [math.nan, math.inf, -1, "x", [], None, True, 10**5000, {"a": 1}, nested(100_000)]
ACTIONS = [
    {"kind": "set", "at": ["0,0"], "state": 1, "do": False, "toggle": True},
    {"kind": "soft", "at": "0,0", "state": 1, "to": 0.8},
    {"kind": "soft", "at": "0,0", "state": 1, "by": 0.5},
    {"kind": "release", "at": ["0,0"]},
    {"kind": "focus", "name": "lung"},
]


@one_test_over("value", VALUES, ids=lambda x: type(x).__name__)
def test_no_message_raises_an_error(value):
    """The reply says in words what is wrong, and is JSON."""
    session = Session(pgm.read(pgm.datasets.asia()))
    messages = [value, {"seq": 1, "actions": [value]}]
    messages += [
        {"seq": 1, "actions": [], key: value} for key in ("seq", "actions", "hello", "why")
    ]
    messages += [{"seq": 1, "actions": [a | {key: value}]} for a in ACTIONS for key in a]
    for message in messages:
        reply = session.reply(message)
        assert json.loads(json.dumps(reply, allow_nan=False))["units"]
    places = ("0,0,0", "0,-1", "9" * 5000 + ",0", "0," + "9" * 5000, "٣,٣", "²,0")
    for place in places:
        reply = session.reply({"seq": 1, "actions": [{"kind": "release", "at": [place]}]})
        assert "no place of a unit" in reply["refused"]
    assert "no action" in session.reply({"actions": [{"kind": []}]})["refused"]
