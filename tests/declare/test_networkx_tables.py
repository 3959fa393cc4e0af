"""Graphs of networkx with conditionals and tables: there and back is the identity."""

import networkx as nx
import numpy as np
import pytest
from loops import one_test_over
from random_graphs import random_graph
from tiny import MODELS

import pgmengine as pgm


def weather():
    g = nx.DiGraph([("rain", "wet"), ("wind", "wet")])
    g.nodes["rain"].update(cpt=[0.2, 0.8], states=("yes", "no"))
    g.nodes["wind"].update(cpt=[0.5, 0.3, 0.2])
    g.nodes["wet"]["cpt"] = np.random.default_rng(0).dirichlet(np.ones(2), (2, 3))
    return g


def same_graph(one, two):
    assert type(one) is type(two) and set(one) == set(two)
    for node, data in one.nodes(data=True):
        other = two.nodes[node]
        for key in ("cpt", "table", "bias"):
            np.testing.assert_allclose(data.get(key, 0), other.get(key, 0), rtol=1e-14)
        for key in ("unit", "states", "scope"):
            assert data.get(key) == other.get(key)
    if one.is_directed():
        assert all(list(one.predecessors(n)) == list(two.predecessors(n)) for n in one)
    else:
        assert set(map(frozenset, one.edges)) == set(map(frozenset, two.edges))


def test_conditionals_are_attributes_of_nodes():
    model = pgm.GraphBuilder.from_networkx(weather()).build()
    assert model.variables == ["rain", "wet", "wind"]
    assert model.structure.normalized
    found = model.to_networkx("variables")
    assert list(found.predecessors("wet")) == ["rain", "wind"]
    np.testing.assert_allclose(found.nodes["wet"]["cpt"], weather().nodes["wet"]["cpt"], rtol=1e-15)
    back = pgm.GraphBuilder.from_networkx(found).build()
    for name, value in model.params.items():
        np.testing.assert_array_equal(value, back.params[name])
    assert list(found) == list(back.to_networkx("variables"))
    same_graph(found, back.to_networkx("variables"))


def test_the_order_of_the_parents_may_be_given():
    g, h = weather(), weather()
    values = np.swapaxes(h.nodes["wet"]["cpt"], 0, 1)
    h.nodes["wet"]["cpt"] = {"parents": ["wind", "rain"], "values": values}
    one, two = (pgm.GraphBuilder.from_networkx(x).build() for x in (g, h))
    evidence = {"rain": "no", "wind": 2}
    assert pgm.infer(one, evidence).marginal("wet") == pgm.infer(two, evidence).marginal("wet")
    assert "wet|wind,rain.table" in two.params


def test_tables_are_nodes(seed=0):
    rng, g = np.random.default_rng(seed), nx.Graph()
    for i in range(4):
        g.add_node(f"f{i}", table=rng.random((2, 3)), scope=(f"a{i}", f"b{i % 2}"))
        g.add_edges_from([(f"f{i}", f"a{i}"), (f"f{i}", f"b{i % 2}")])
    g.add_edge("a0", "x", weight=0.5)
    model = pgm.GraphBuilder.from_networkx(g).build()
    total = 0.0
    for values in np.ndindex(2, 2, 2, 2, 3, 3, 2):
        *a, b0, b1, x = values
        factors = [g.nodes[f"f{i}"]["table"][a[i], (b0, b1)[i % 2]] for i in range(4)]
        total += np.prod(factors) * np.exp(0.5 * a[0] * x)
    np.testing.assert_allclose(pgm.infer(model, want=("log_z",)).log_z, np.log(total))
    found = model.to_networkx("variables")
    assert [n for n, d in found.nodes(data=True) if "table" in d] == [
        ("table", i) for i in range(4)
    ]
    same_graph(found, pgm.GraphBuilder.from_networkx(found).build().to_networkx("variables"))


def mixed(m):
    """Whether the graph has undirected edges beside arrows or conditionals."""
    arrows = m.directed or any(conditional for *_, conditional in m.tables)
    return bool(m.undirected and arrows)


TABLED = [m for m in MODELS if m.tables and not mixed(m)]


@one_test_over("tiny", TABLED)
def test_tiny_models_come_back_as_the_same_distribution(tiny):
    model = tiny.build()
    back = pgm.GraphBuilder.from_networkx(model.to_networkx("variables")).build()
    one, two = (pgm.infer(m, want=("log_z",)).log_z for m in (model, back))
    np.testing.assert_allclose(one, two, atol=1e-12)


def prob_of_one(model, node, evidence=None):
    return float(pgm.infer(model, evidence or {}).marginal(node)[1])


def test_nodes_with_names_of_layers_keep_their_own_answers():
    d = nx.DiGraph()
    d.add_node("g1", bias=5.0)
    d.add_node("g0", bias=-5.0)
    d.add_edge("g1", "g0", weight=0.0)
    model = pgm.GraphBuilder.from_networkx(d).build()
    assert prob_of_one(model, "g1") == pytest.approx(1 / (1 + np.exp(-5)))
    assert prob_of_one(model, "g0", {"g1": 0}) == pytest.approx(1 / (1 + np.exp(5)))
    assert prob_of_one(model, "g1", {"g1": 0}) == 0.0
    g = nx.Graph([("c0", "c1"), ("c1", "q"), ("c1", "c0_1")])
    nx.set_node_attributes(g, {"c0": 3.0, "c1": -2.0, "q": 1.0, "c0_1": -1.0}, "bias")
    nx.set_edge_attributes(g, 0.0, "weight")
    model = pgm.GraphBuilder.from_networkx(g).build()
    for node, data in g.nodes(data=True):
        assert prob_of_one(model, node) == pytest.approx(1 / (1 + np.exp(-data["bias"])))


def test_a_layer_of_variables_does_not_hide_a_node():
    g = nx.Graph()
    g.add_edge("variables2", "other", weight=0.0)
    g.nodes["variables2"]["bias"] = 2.0
    g.add_node("f", table=[1.0, 3.0], scope=["a"])
    g.add_node("a")
    model = pgm.GraphBuilder.from_networkx(g).build()
    assert prob_of_one(model, "a") == pytest.approx(0.75)
    assert prob_of_one(model, "variables2") == pytest.approx(1 / (1 + np.exp(-2)))


def test_tables_of_nodes_that_are_integers():
    g = nx.Graph([(1, 2), (0, 2)])
    nx.set_edge_attributes(g, 0.0, "weight")
    g.add_node("f", table=[1.0, 9.0], scope=[1])
    model = pgm.GraphBuilder.from_networkx(g).build()
    assert [prob_of_one(model, i) for i in (0, 1, 2)] == pytest.approx([0.5, 0.9, 0.5])


def broken(change):
    g = weather()
    change(g)
    return g


@one_test_over(
    ("change", "match"),
    [
        (lambda g: g.nodes["wet"].update(cpt=[0.5, 0.5]), "'wet': cpt has 1 axes, expected 3"),
        (lambda g: g.nodes["wet"].update(cpt="x"), "'wet': cpt is not an array of numbers"),
        (lambda g: g.nodes["wet"].update(cpt={"values": 1}), "or a dict with 'parents' and"),
        (
            lambda g: g.nodes["wet"].update(cpt={"parents": ["rain"], "values": [[1, 0]] * 2}),
            "has the parents .'rain',., the graph has edges from .'rain', 'wind'.",
        ),
        (lambda g: g.edges["rain", "wet"].update(weight=1), "has a weight, and node 'wet' has a"),
        (lambda g: g.add_edge("wet", "rain"), "directed cycle|'rain': cpt has 1 axes"),
        (lambda g: g.nodes["wet"].update(ctp=3), "attribute 'ctp' is unknown; did you mean cpt"),
        (lambda g: g.add_node("f", table=[1, 2]), "node 'f': table needs the attribute 'scope'"),
        (lambda g: g.add_node("f", table=[1, 2], scope="rain"), "'f': table needs the .* 'scope'"),
        (lambda g: g.add_node("f", table=[1, 2], scope=["ran"]), "'ran' is no variable.* rain"),
        (lambda g: g.add_node("f", table=[1, 2], scope=["rain"] * 2), "has 1 axes, expected 2"),
        (
            lambda g: (g.add_node("f", table=[1, 2], scope=["rain"]), g.add_edge("f", "wet")),
            "table has an edge to 'wet', which is not in its scope",
        ),
        (
            lambda g: g.add_node("f", table=[1, 2], scope=["rain"], bias=1),
            "'f': attribute 'bias' has no",
        ),
        (
            lambda g: (
                g.add_node("f", table=[1, 2], scope=["rain"]),
                g.add_edge("f", "rain", weight=2.0),
            ),
            "'weight' has no meaning here",
        ),
        (lambda g: g.nodes["rain"].update(bias=1.0), "'rain' has a conditional, and a bias"),
        (lambda g: g.add_node("f", table=[1, 2, 3], scope=["rain"]), r"shape \(3,\), expected"),
    ],
)
def test_mistakes_are_refused(change, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.GraphBuilder.from_networkx(broken(change)).build()


def log_z(model):
    return float(pgm.infer(model, want=("log_z",)).log_z[0])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kept", [[], [(0, 1)], [(1, 2), (0, 2)]])
def test_units_without_arrows_but_of_weight_0_are_normalised(kept, inside):
    """A root of arrows is normalised; without its arrows it would not be."""
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Binary(), 3, bias=[1.0, -2.0, 0.5])
    b.layer("b", pgm.Spin(), 3, bias=[0.5, 0.25, 1.0])
    b.layer("c", pgm.Categorical(3), 2, bias=[[0.0, 1.0, 2.0]] * 2)
    weight = np.zeros((3, 3))
    for i, j in kept:
        weight[i, j] = 0.75
    b.cause("a", "a" if inside else "b", weight=weight)
    b.layer("alone", pgm.Binary(), 1, bias=[1.5])
    b.cause("b", "c", weight=np.zeros((3, 6)))
    model = b.build()
    # Everything but the layer without arrows sums to one.
    assert log_z(model) == pytest.approx(np.log1p(np.exp(1.5)), abs=1e-12)
    graph = model.to_networkx("variables")
    assert nx.is_directed_acyclic_graph(graph)
    back = pgm.GraphBuilder.from_networkx(graph).build()
    assert log_z(back) == pytest.approx(log_z(model), abs=1e-12)
    same_graph(graph, back.to_networkx("variables"))
    assert set(graph.edges) == set(back.to_networkx("variables").edges)


def test_a_root_beside_a_unit_with_a_conditional_is_normalised():
    g = nx.DiGraph()
    g.add_node(0, cpt=[0.25, 0.75])
    g.add_node(1, bias=2.0)
    g.add_edges_from([(0, 2), (1, 2)], weight=1.0)
    model = pgm.GraphBuilder.from_networkx(g).build()
    assert log_z(model) == pytest.approx(0.0, abs=1e-12)


@one_test_over(
    "change",
    [
        lambda g: g.add_edge("wet", "rain", weight=1.0, directed=False),
        lambda g: g.add_edge("cold", "wet", weight=1.0, directed=False),
        lambda g: g.add_edge("wet", "cold", weight=1.0, directed=False),
    ],
)
def test_undirected_edges_are_no_parents(change):
    with pytest.raises(pgm.PgmError, match="is undirected: declare arrows and undirected edges"):
        pgm.GraphBuilder.from_networkx(broken(change))


def test_a_unit_in_a_coupling_of_weight_0_beside_arrows_is_not_normalised():
    """A unit in an undirected coupling is no root, so that its bias is not normalised."""
    b = pgm.GraphBuilder()
    for name in "abc":
        b.layer(name, pgm.Binary(), 1, bias=[1.0])
    b.cause("a", "b", weight=[[1.0]])
    b.couple("a", "c", weight=[[0.0]])
    model = b.build()
    back = pgm.GraphBuilder.from_networkx(model.to_networkx("variables")).build()
    assert log_z(back) == pytest.approx(log_z(model), abs=1e-12)


@one_test_over("seed", range(40))
def test_weights_of_zero_change_nothing(seed):
    """Whole couplings, or half of their weights; graphs of both kinds of edges are refused."""
    model, rng = random_graph(seed, 2**10).build(), np.random.default_rng(seed)
    for key, value in model.params.items():
        if key.endswith(".weight"):
            dense = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
            kept = rng.random(dense.shape) < 0.5 * (rng.random() < 0.5)
            model = model.with_params({key: dense * kept})
    graph = model.to_networkx("variables")
    if any(kind is False for *_, kind in graph.edges(data="directed")):
        with pytest.raises(pgm.PgmError, match="is undirected: declare arrows and undirected"):
            pgm.GraphBuilder.from_networkx(graph)
        return
    back = pgm.GraphBuilder.from_networkx(graph).build()
    assert log_z(back) == pytest.approx(log_z(model), abs=1e-9)


def test_a_noisy_or_unit_without_causes_is_a_root():
    b = pgm.GraphBuilder()
    b.layer("cause", pgm.Binary(), 1, bias=[0.5], labels=("cold",))
    b.layer("effect", pgm.NoisyOr(), 2, bias=[0.25, 1.0], labels=("cough", "fever"))
    b.cause("cause", "effect", weight=[[0.0, 2.0]])
    model = b.build()
    graph = model.to_networkx("variables")
    back = pgm.GraphBuilder.from_networkx(graph).build()
    assert graph.nodes["cough"]["cpt"] == pytest.approx([np.exp(-0.25), 1 - np.exp(-0.25)])
    for cough, fever in ((0, 0), (0, 1), (1, 0), (1, 1)):
        seen = {"cough": cough, "fever": fever}
        one, other = (pgm.infer(m, seen, want=("log_z",)).log_z for m in (model, back))
        np.testing.assert_allclose(other, one, atol=1e-12)


def test_biases_that_no_table_can_hold_are_refused():
    for bias, normalised in ((800.0, False), (-800.0, True)):
        b = pgm.GraphBuilder()
        b.layer("a", pgm.Binary(), 1, bias=[bias])
        b.layer("b", pgm.Binary(), 1)
        b.layer("c", pgm.Binary(), 1)
        b.cause("a", "b", weight=[[0.0 if normalised else 1.0]])
        if not normalised:
            b.couple("a", "c", weight=[[0.0]])
        with pytest.raises(pgm.PgmError, match="its bias is"):
            b.build().to_networkx("variables")


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
def test_attributes_of_other_programs_are_left_alone(kind):
    """Those of networkx, of drawings, and words that look a little like ours."""
    plain = kind([("a", "b"), ("b", "c")])
    nx.set_node_attributes(plain, {"a": 0.5, "b": -1.0, "c": 0.25}, "bias")
    nx.set_edge_attributes(plain, 0.75, "weight")
    foreign = plain.copy()
    words = ("pos", "club", "bipartite", "community", "subset", "colour", "label", "title", "shape")
    for word in (*words, "status", "height", "size", "values", "layer", 3, ("a", "pair")):
        nx.set_node_attributes(foreign, "any", word)
    for word in ("capacity", "width", "length", "key", "relation", "height"):
        nx.set_edge_attributes(foreign, 5, word)
    one, two = (pgm.GraphBuilder.from_networkx(g).build() for g in (plain, foreign))
    assert one.params.keys() == two.params.keys() and log_z(one) == log_z(two)


def test_graphs_that_come_with_networkx_become_models():
    for graph in (
        nx.karate_club_graph(),
        nx.davis_southern_women_graph(),
        nx.les_miserables_graph(),
    ):
        model = pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build()
        assert sum(layer.size for layer in model.structure.layers.values()) == len(graph)
