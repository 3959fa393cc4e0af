"""Pictures of models and results in notebooks: what is drawn, where, and that nothing is loaded."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest
from explored import MODELS, hmm
from tiny import MODELS as TINY

import pgmengine as pgm
from pgmengine.declare.pictures.scene import Form, scene
from pgmengine.declare.pictures.sketch import sketch
from pgmengine.declare.pictures.svg import MAX_NODES

NAMESPACE = "{http://www.w3.org/2000/svg}"


def drawn(thing):
    """The picture in the page of a model or result, or None."""
    page = ET.fromstring(f"<div>{thing._repr_html_()}</div>")
    return page.find(f"{NAMESPACE}svg")


def of_class(picture, name):
    return [e for e in picture.iter() if name in (e.get("class") or "").split()]


def edges(model):
    found = sketch(model.structure)
    names = [n.name for n in found.nodes]
    return {(names[a], names[b]) for a, b in found.arrows}, {
        (names[a], names[b]) for a, b in found.lines
    }


def network(count):
    b = pgm.GraphBuilder()
    for i in range(count):
        b.variable(f"x{i}", states=("no", "yes"))
        b.conditional(f"x{i}", (), [0.5, 0.5])
    return b.build()


@pytest.mark.parametrize("model", TINY, ids=repr)
def test_every_model_has_a_picture_without_scripts_or_links(model):
    built = model.build()
    picture = drawn(built)
    nodes = {e.get("data-node") for e in of_class(picture, "pgm-node")}
    assert len(nodes) == len(sketch(built.structure).nodes)
    tags = {e.tag.removeprefix(NAMESPACE) for e in picture.iter()}
    assert tags <= {"svg", "g", "rect", "text", "title", "path", "polygon"}
    for element in picture.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on") and name not in ("href", "style", "id")
            assert "url(" not in value


def test_arrows_lines_and_factors_are_those_of_the_model():
    arrows, lines = edges(MODELS["asia"]())
    assert arrows == {
        *(("asia", "tub"), ("smoke", "lung"), ("smoke", "bronc"), ("tub", "either")),
        *(("lung", "either"), ("either", "xray"), ("either", "dysp"), ("bronc", "dysp")),
    }
    assert not lines
    assert edges(hmm()) == ({("state", "sound")}, set())
    assert edges(pgm.rbm(4, 2, rng=0)) == (set(), {("v", "h")})
    assert edges(pgm.sbn([4, 3, 2], rng=0))[0] == {("h2", "h1"), ("h1", "v")}
    b = pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=2)
    b.table(("a", "b", "c"), np.ones((2, 2, 2)))
    b.table(("c", "a"), np.ones((2, 2)))
    model = b.build()
    found = sketch(model.structure)
    assert len(found.factors) == 1 and edges(model) == (set(), {("a", "c")})
    assert len(of_class(drawn(model), "pgm-factor")) == 1


def test_bars_are_as_long_as_states_are_probable():
    r = pgm.infer(MODELS["asia"](), {"xray": "yes"})
    picture, seen = drawn(r), 0
    for node in of_class(picture, "pgm-node"):
        name = node.find(f"{NAMESPACE}text/{NAMESPACE}title").text
        for state in of_class(node, "pgm-state"):
            word = state.find(f"{NAMESPACE}text/{NAMESPACE}title").text
            (bar,), (number,) = (of_class(state, f"pgm-{part}") for part in ("bar", "number"))
            p = r.marginal(name)[word]
            assert float(bar.get("width")) == pytest.approx(72 * p, abs=0.06)
            assert number.text.split() == [*["●"] * (p == 1), f"{100 * p:.1f}", "%"]
            assert (bar.get("fill") == "#d55e00") == (name == "xray")
            seen += 1
    assert seen == 16


def test_cells_are_as_dark_as_states_are_probable():
    model = pgm.rbm(9, 4, rng=0)
    r = pgm.infer(model, {"v": [1, 0] + [None] * 7})
    cells = {e.get("data-at"): e for e in of_class(drawn(r), "pgm-cell")}
    for i, p in enumerate(r.mean["v"]):
        (ink,) = of_class(cells[f"0,{i}"], "pgm-ink")
        assert float(ink.get("fill-opacity")) == pytest.approx(p, abs=6e-4)
        assert (ink.get("stroke") == "none") == (i > 1)
    assert len(cells) == 13


def test_an_intervention_has_a_mark_of_its_own():
    picture = drawn(pgm.infer(MODELS["asia"](), do={"lung": "yes"}))
    assert [e.text.split()[0] for e in of_class(picture, "pgm-number") if "▲" in e.text] == ["▲"]


@pytest.mark.parametrize("least", [0.2, 0.0])
def test_soft_evidence_has_a_mark_of_its_own(least):
    """Also where a likelihood of 0 makes it a virtual finding."""
    soft = pgm.likelihood({"dysp": [0.9, least]})
    picture = drawn(pgm.infer(MODELS["asia"](), {"xray": "yes"}, soft=soft))
    marked = [e.text.split()[0] for e in of_class(picture, "pgm-number") if "◐" in e.text]
    assert (
        marked == ["◐", "◐"]
        and [e.get("fill") for e in of_class(picture, "pgm-bar")].count("#00896b") == 2
    )
    # Soft evidence on an observed variable does not say more than its state.
    both = drawn(pgm.infer(MODELS["asia"](), {"dysp": "yes"}, soft={"dysp": [0.3, 0.1]}))
    assert not [e for e in of_class(both, "pgm-number") if "◐" in e.text]
    cells = of_class(drawn(pgm.infer(pgm.rbm(9, 4, rng=0), soft={("v", 3): 1.0})), "pgm-ink")
    assert [e.get("stroke-dasharray") for e in cells].count("1 2") == 1


def test_soft_evidence_is_marked_in_its_rows_alone():
    chances = pgm.likelihood({"dysp": [[0.9, 0.0], [1.0, 1.0]], "lung": [[1, 1], [2, 1]]})
    target = pgm.infer(MODELS["asia"](), soft=chances).target
    (name,) = {layer for layer, _ in target.structure.variables}
    found = target.with_soft(name)
    number = {x: i for i, x in enumerate(target.model.variables)}
    assert found.sum() == 2 and found[0, number["dysp"]] and found[1, number["lung"]]
    assert (target.take(np.array([1])).with_soft(name) == found[[1]]).all()


def test_bars_of_estimates_have_their_errors():
    model = MODELS["asia"]()
    r = pgm.infer(model, {"xray": "yes"}, method=pgm.MCMC(draws=400), rng=0)
    picture = drawn(r)
    errors = r.stats["mcse"]["variables2"].ravel()
    lines = of_class(picture, "pgm-spread")
    assert len(lines) == 2 * np.count_nonzero(errors > 0) > 0
    for state in of_class(picture, "pgm-state"):
        (bar,) = of_class(state, "pgm-bar")
        for line in of_class(state, "pgm-spread"):
            low, high = (float(x) for x in re.findall(r"M(\S+) \S+H(\S+)", line.get("d"))[0])
            end = float(bar.get("x")) + float(bar.get("width"))
            error = errors[int(state.get("data-at").partition(",")[2])]
            left = max(float(bar.get("x")), end - 144 * error)
            assert low == pytest.approx(left, abs=0.2)
            right = min(float(bar.get("x")) + 72, end + 144 * error)
            assert high == pytest.approx(right, abs=0.2)
    assert not of_class(drawn(pgm.infer(model)), "pgm-spread")


def test_a_picture_has_the_shape_of_its_layer_or_is_a_square():
    def columns(model):
        found = sketch(model.structure)
        return [n.columns for n in scene(model.structure, found, range(len(found.nodes))).nodes]

    assert columns(MODELS["lattice"]()) == [4]
    assert columns(pgm.rbm(64, 15, rng=0)) == [8, 15]


@pytest.mark.parametrize("name", MODELS)
def test_boxes_do_not_overlap_and_edges_stay_inside(name):
    model = MODELS[name]()
    found = sketch(model.structure)
    placed = scene(model.structure, found, range(len(found.nodes)))
    for a, b in combinations(placed.nodes, 2):
        apart = abs(2 * a.x + a.width - 2 * b.x - b.width) >= a.width + b.width
        assert apart or abs(2 * a.y + a.height - 2 * b.y - b.height) >= a.height + b.height
    for edge in placed.edges:
        for x, y in edge.route:
            assert 0 <= x <= placed.width and 0 <= y <= placed.height
    for node in placed.nodes:
        assert 0 <= node.x and node.x + node.width <= placed.width


def test_large_models_and_answers_of_many_rows_are_words_alone():
    assert drawn(network(MAX_NODES)) is not None
    large = network(MAX_NODES + 1)
    assert drawn(large) is None and "<table>" in large._repr_html_()
    assert drawn(pgm.infer(network(3), {"x0": ["no", "yes"]})) is None
    assert drawn(pgm.infer(pgm.rbm(2000, 2, rng=0), {"v": np.ones(2000)})) is None
    assert drawn(pgm.infer(network(3), want=("log_z",))) is None


def test_layers_of_means_are_drawn_by_their_size():
    b = pgm.GraphBuilder()
    b.layer("g", pgm.Gaussian(), 4, bias=[1.0, -2.0, 0.0, 0.5])
    b.layer("h", pgm.Binary(), 2)
    b.couple("g", "h", weight=np.zeros((4, 2)))
    r = pgm.infer(b.build())
    shares = [float(e.get("fill-opacity")) for e in of_class(drawn(r), "pgm-ink")[:4]]
    np.testing.assert_allclose(shares, np.abs(r.mean["g"]) / 2, atol=6e-4)


def test_two_arrays_that_depend_on_each_other_have_an_edge_each_way():
    b = pgm.GraphBuilder()
    x, y = (b.variable(name, states=2, shape=4) for name in "xy")
    flip = [[0.8, 0.2], [0.2, 0.8]]
    for one in (x, y):
        b.conditional(one[0], (), [0.5, 0.5])
    b.conditional(x[1:], (y[:-1],), flip)
    b.conditional(y[1:], (x[:-1],), flip)
    model = b.build()
    assert edges(model)[0] == {("x", "y"), ("y", "x")}
    assert len(of_class(drawn(model), "pgm-head")) == 2


def test_lines_between_boxes_side_by_side_pass_below_them():
    """An edge along the lower side of the boxes between its ends could not be seen."""
    b = pgm.GraphBuilder()
    for name in "abcd":
        b.variable(name, states=2)
    for pair in combinations("abcd", 2):
        b.table(pair, [[2.0, 1.0], [1.0, 2.0]])
    picture = drawn(b.build())
    low = max(float(e.get("y")) + float(e.get("height")) for e in of_class(picture, "pgm-box"))
    ways = [re.findall(r"-?[\d.]+", e.get("d")) for e in of_class(picture, "pgm-edge")]
    arches = [way for way in ways if len(way) > 4]
    assert len(ways) == 6 and len(arches) == 3
    assert all(low + 20 < float(max(way[1::2], key=float)) for way in arches)
    assert all(float(y) <= float(picture.get("height")) for way in ways for y in way[1::2])


def test_forms_follow_the_units():
    found = sketch(MODELS["spins"]().structure)
    nodes = scene(MODELS["spins"]().structure, found, range(2)).nodes
    assert [n.form for n in nodes] == [Form.PICTURE, Form.STRIP]
    assert re.search(r"coupled inside", hmm()._repr_html_())
