"""Declaring: what build refuses, networkx in and out, families, files."""

import json
import math
import os
import subprocess
import sys
import types
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from extras import extra
from loops import one_test_over
from safetensors.numpy import save_file
from tiny import MODELS

import pgmengine as pgm
from pgmengine.model.weights import is_sparse


def declared(*steps):
    b = pgm.GraphBuilder()
    for step in steps:
        getattr(b, step[0])(*step[1:3], **(step[3] if len(step) > 3 else {})) if step[
            0
        ] != "layer" else b.layer(*step[1:])
    return b


V, H = ("layer", "v", pgm.Binary(), 3), ("layer", "h", pgm.Binary(), 2)
GAUSS = [("layer", "g", pgm.Gaussian(), 2), ("layer", "f", pgm.Gaussian(), 2)]
NOISY = ("layer", "n", pgm.NoisyOr(), 2)
bad = np.zeros((3, 2))
bad[1, 1] = math.nan


@one_test_over(
    ("steps", "match"),
    [
        ([], "no layers"),
        ([V, V], "'v' is declared twice"),
        ([V, ("couple", "v", "w")], "'w' is unknown"),
        (
            [V, H, ("couple", "v", "h", {"weight": np.zeros((2, 3))})],
            r"shape \(2, 3\), expected \(3, 2\)",
        ),
        ([V, H, ("couple", "v", "h", {"weight": bad})], r"\[1, 1\] is nan"),
        ([V, H, ("couple", "v", "h", {"weight": sp.csr_array(bad)})], r"\[1, 1\] is nan"),
        ([V, H, ("couple", "v", "h", {"weight": bad * 0 + math.inf})], r"\[0, 0\] is (inf|nan)"),
        (
            [V, H, ("couple", "v", "h", {"weight": np.full((3, 2), -1.1e30)})],
            r"is -1.1e.30, expected .* up to 1e",
        ),
        ([V, H, ("couple", "v", "h", {"weight": "text"})], "not an array of numbers"),
        ([V, H, ("couple", "v", "h"), ("couple", "h", "v")], "declared twice"),
        ([V, H, ("cause", "v", "h"), ("cause", "h", "v")], "directed cycle: "),
        ([*GAUSS, ("couple", "g", "f")], "unbounded layers, 'g' and 'f'"),
        ([GAUSS[0], ("couple", "g", "g")], "unbounded"),
        (
            [V, NOISY, ("cause", "v", "n", {"weight": -np.ones((3, 2))})],
            r"\[0, 0\] is -1.0, expected >= 0",
        ),
        (
            [V, ("layer", "n", pgm.NoisyOr(), 2, [0.1, -0.1]), ("cause", "v", "n")],
            r"layer 'n': bias\[1\] is -0.1",
        ),
        ([V, NOISY, ("couple", "v", "n")], "children of arrows only"),
        ([NOISY], "children of arrows only"),
        ([("layer", "s", pgm.Spin(), 2), NOISY, ("cause", "s", "n")], "values >= 0"),
        ([V, ("layer", "x", pgm.Input(), 2), ("cause", "v", "x")], "cannot be children"),
        ([("layer", "v", pgm.Binary(), 0)], "size must be"),
        ([("layer", "v", "Binary", 3)], "unit must be"),
        ([("layer", "", pgm.Binary(), 3)], "name"),
        ([("layer", "v", pgm.Binary(), 3, [0, 0])], r"shape \(2,\), expected \(3,\)"),
        (
            [V, ("couple", "v", "v", {"weight": np.triu(np.ones((3, 3)), 1)})],
            r"not symmetric at \[0, 1\]: 1 and 0",
        ),
        ([V, ("couple", "v", "v", {"weight": np.eye(3)})], r"\[0, 0\] couples a unit with itself"),
        (
            [V, ("cause", "v", "v", {"weight": np.ones((3, 3)) - np.eye(3)})],
            "directed cycle through unit",
        ),
    ],
)
def test_build_refuses(steps, match):
    with pytest.raises(pgm.PgmError, match=match):
        declared(*steps).build(rng=0)


def test_did_you_mean():
    with pytest.raises(pgm.PgmError, match="did you mean 'hidden'"):
        declared(V, ("layer", "hidden", pgm.Binary(), 2), ("couple", "v", "hiden")).build()


def test_the_builder_is_a_networkx_graph_of_layers():
    b = declared(V, H, ("couple", "v", "h"))
    assert set(b.graph.nodes) == {"v", "h"} and list(b.graph.edges(keys=True)) == [
        ("v", "h", "v-h")
    ]
    model = pgm.dbn([4, 3, 2], rng=0)
    assert set(model.params) == {"v.bias", "h1.bias", "h2.bias", "h1->v.weight", "h1-h2.weight"}
    assert model.to_networkx().number_of_edges() == 2
    with pytest.raises(pgm.PgmError, match="level"):
        model.to_networkx(level="units")


def test_drawn_weights_are_seeded_and_bounded():
    one, two = (pgm.rbm(30, 20, rng=4).params["v-h.weight"] for _ in range(2))
    assert np.array_equal(one, two) and np.abs(one).max() <= math.sqrt(6 / 50)


def test_models_do_not_change():
    model = pgm.rbm(3, 2, rng=0)
    with pytest.raises(ValueError, match="read-only"):
        model.params["v.bias"][0] = 1
    other = model.with_params({"v.bias": [1, 2, 3]})
    assert other.params["v.bias"][0] == 1 and model.params["v.bias"][0] == 0
    with pytest.raises(pgm.PgmError, match="'v.bia' is unknown"):
        model.with_params({"v.bia": [1, 2, 3]})


def ising_log_z(graph):
    nodes = list(graph)
    place = {n: i for i, n in enumerate(nodes)}
    states = 2.0 * ((np.arange(2 ** len(nodes))[:, None] >> np.arange(len(nodes))) & 1) - 1
    energy = sum(
        d["weight"] * states[:, place[a]] * states[:, place[b]]
        for a, b, d in graph.edges(data=True)
    )
    energy = energy + states @ [graph.nodes[n]["bias"] for n in nodes]
    return np.logaddexp.reduce(energy)


@one_test_over(
    "graph",
    [nx.grid_2d_graph(3, 4), nx.complete_graph(6), nx.petersen_graph(), nx.path_graph(9)],
    ids=str,
)
def test_undirected_variables_by_colour_class(graph):
    rng = np.random.default_rng(0)
    nx.set_edge_attributes(graph, {e: float(rng.normal()) for e in graph.edges}, "weight")
    nx.set_node_attributes(graph, {n: float(rng.normal()) for n in graph}, "bias")
    model = pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build()
    np.testing.assert_allclose(
        pgm.infer(model, want=("log_z",)).log_z[0], ising_log_z(graph), rtol=1e-10
    )
    assert not any(c.a == c.b for c in model.structure.couplings)
    back = model.to_networkx(level="variables")
    assert set(back) == set(graph) and back.number_of_edges() == graph.number_of_edges()
    again = pgm.GraphBuilder.from_networkx(back).build()
    np.testing.assert_allclose(
        pgm.infer(again, want=("log_z",)).log_z[0], ising_log_z(graph), rtol=1e-10
    )


def test_directed_variables_by_generation():
    graph = nx.DiGraph([("rain", "wet"), ("sprinkler", "wet"), ("rain", "sprinkler")])
    nx.set_edge_attributes(graph, 1.5, "weight")
    nx.set_node_attributes(graph, -0.5, "bias")
    model = pgm.GraphBuilder.from_networkx(graph).build()
    assert model.structure.normalized and model.structure.layers["g0"].labels == ("rain",)
    np.testing.assert_allclose(pgm.infer(model, want=("log_z",)).log_z, 0.0, atol=1e-12)
    with pytest.raises(pgm.PgmError, match="directed cycle"):
        pgm.GraphBuilder.from_networkx(nx.DiGraph([(0, 1), (1, 0)]))


def test_mixed_units_in_a_variable_graph():
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {0: pgm.Spin(), 1: pgm.Categorical(3)}, "unit")
    graph.edges[0, 1]["weight"] = np.array([[0.1, 0.2, 0.3]])
    graph.edges[1, 2]["weight"] = np.array([[0.5], [0.0], [-1.0]])
    model = pgm.GraphBuilder.from_networkx(graph).build()
    assert {type(x.unit) for x in model.structure.layers.values()} == {
        pgm.Spin,
        pgm.Binary,
        pgm.Categorical,
    }
    assert pgm.infer(model, want=("log_z",)).kind == "exact"


@one_test_over("tiny_model", MODELS)
def test_save_and_load_are_exact(tiny_model, tmp_path):
    model = tiny_model.build()
    pgm.save(model, tmp_path / "m.safetensors")
    back = pgm.load(tmp_path / "m.safetensors")
    assert repr(back) == repr(model) and list(back.params) == list(model.params)
    for name, value in model.params.items():
        other = back.params[name]
        assert type(other) is type(value)
        pairs = (
            [(value.data, other.data), (value.indices, other.indices), (value.indptr, other.indptr)]
            if sp.issparse(value)
            else [(value, other)]
        )
        assert all(np.array_equal(a, b) for a, b in pairs)


def test_transposed_weights_survive_a_file(tmp_path):
    weight = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    model = pgm.rbm(3, 2).with_params({"v-h.weight": weight})
    pgm.save(model, tmp_path / "m.safetensors")
    assert np.array_equal(pgm.load(tmp_path / "m.safetensors").params["v-h.weight"], weight)


def test_labels_survive_a_file(tmp_path):
    model = pgm.GraphBuilder.from_networkx(nx.grid_2d_graph(2, 2)).build()
    pgm.save(model, tmp_path / "m.safetensors")
    assert (
        pgm.load(tmp_path / "m.safetensors").structure.layers["c0"].labels
        == model.structure.layers["c0"].labels
    )


def test_truncated_and_foreign_files(tmp_path):
    path = tmp_path / "m.safetensors"
    pgm.save(pgm.rbm(3, 2, rng=0), path)
    whole = path.read_bytes()
    for length in (0, 4, 40, len(whole) - 5):
        path.write_bytes(whole[:length])
        with pytest.raises(pgm.PgmError, match="safetensors"):
            pgm.load(path)
    save_file({"a": np.zeros(3)}, str(path))
    with pytest.raises(pgm.PgmError, match="not a model of pgmengine"):
        pgm.load(path)
    save_file(
        {"a": np.zeros(3)},
        str(path),
        metadata={"format": "pgmengine-1", "declaration": json.dumps({"layers": []})},
    )
    with pytest.raises(pgm.PgmError, match="'a' belongs to no layer"):
        pgm.load(path)
    with pytest.raises(pgm.PgmError, match="nothing"):
        pgm.load(tmp_path / "nothing.safetensors")


TOML = """
[[layers]]
name = "v"
unit = "Binary"
size = 3
bias = 0.5
[[layers]]
name = "h"
unit = "MultiValued"
s = inf
size = 2
[[layers]]
name = "y"
unit = "Categorical"
k = 3
size = 1
[[couplings]]
couple = ["v", "h"]
weight = [[1, 2], [3, 4], [5, 6]]
[[couplings]]
cause = ["v", "y"]
"""


def test_toml_declaration(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(TOML)
    model = pgm.load_declaration(path, rng=0)
    assert repr(model).split("\n") == [
        "Graphical model: 3 layers, 1 directed coupling, 1 coupling, 23 parameters",
        "  v: 3 Binary",
        "  h: 2 MultiValued(s=inf)",
        "  y: 1 Categorical(k=3)",
        "  couplings: v-h, v->y",
    ]
    assert model.params["v-h.weight"][2, 1] == 6 and model.params["v.bias"][0] == 0.5
    save_file({"v-h.weight": np.ones((3, 2))}, str(tmp_path / "w.safetensors"))
    path.write_text('weights = "w.safetensors"\n' + TOML)
    assert pgm.load_declaration(path, rng=0).params["v-h.weight"][2, 1] == 1


@one_test_over(
    ("old", "new", "match"),
    [
        ('"Binary"', '"Binry"', "unit 'Binry' is unknown"),
        ("s = inf", "t = 3", "'t' is not an argument"),
        ("s = inf", "", "missing"),
        ('couple = ["v", "h"]', 'couple = ["v"]', "couple = "),
        ("k = 3", "k = 1", "Categorical"),
        ('couple = ["v", "h"]', 'couple = ["v", "z"]', "'z' is unknown"),
        ("[[layers]]", "[layers]", "TOML|list of tables"),
        ("[[1, 2], [3, 4], [5, 6]]", "[[1, 2], [3, 4]]", "shape"),
        ("size = 3", "size = 'a'", "size"),
        ("size = 3", "size = 3\nlabels = 5", "labels must be a list of names, not 5"),
        ("size = 3", "size = 3\nstates = 'on'", "states must be a list of names, not 'on'"),
    ],
)
def test_bad_toml(old, new, match, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(TOML.replace(old, new))
    with pytest.raises(pgm.PgmError, match=match):
        pgm.load_declaration(path, rng=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_rounding_of_symmetric_weights_is_forgiven(sparse):
    weight = np.random.default_rng(0).normal(size=(5, 5))
    weight = weight + weight.T
    np.fill_diagonal(weight, 0)
    weight[0, 1] *= 1 + 1e-15
    found = pgm.boltzmann_machine(5, weight=sp.csr_array(weight) if sparse else weight).params[
        "x-x.weight"
    ]
    dense = found.toarray() if sparse else found
    assert sp.issparse(found) == sparse and np.array_equal(dense, dense.T)
    np.testing.assert_allclose(dense, weight, rtol=1e-14)


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.3, 0.3], [0.0] * 4])
def test_stored_zeros_of_sparse_lateral_weights_are_parameters(values):
    weight = sp.csr_array((values, ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
    model = pgm.boltzmann_machine(3, unit=pgm.Binary(), weight=weight)
    assert model.params["x-x.weight"].nnz == 4
    x = {"x": [[1, 1, 0], [1, 1, 1]]}
    f = pgm.fit(
        model, x, negative=pgm.ExactGradient(), optimizer=pgm.SGD(0.1), updates=3, progress=False
    )
    assert f.model.params["x-x.weight"][0, 1] > 0.01
    none = pgm.boltzmann_machine(3, unit=pgm.Binary(), weight=sp.csr_array((3, 3)))
    pgm.fit(none, x, negative=pgm.ExactGradient(), updates=2, progress=False)


def test_weights_that_are_not_symmetric_are_refused():
    weight = np.array([[0.0, 1.0], [1.0 + 1e-9, 0.0]])
    for w in (weight, sp.csr_array(weight)):
        with pytest.raises(pgm.PgmError, match=r"not symmetric at \[0, 1\]: 1 and 1.000000001"):
            pgm.boltzmann_machine(2, weight=w)


def test_states_have_names_and_keep_them(tmp_path):
    graph = nx.DiGraph()
    graph.add_node(
        "sky", unit=pgm.Categorical(3), states=("sun", "cloud", "rain"), bias=[0.0, 0.5, 1.0]
    )
    graph.add_node("wet", unit=pgm.Binary(), states=("dry", "wet"))
    graph.add_edge("sky", "wet", weight=np.array([[-2.0], [-1.0], [3.0]]))
    model = pgm.GraphBuilder.from_networkx(graph).build()
    pgm.save(model, tmp_path / "m.safetensors")
    for m in (model, pgm.load(tmp_path / "m.safetensors")):
        nodes = m.to_networkx(level="variables").nodes
        assert nodes["sky"]["states"] == ("sun", "cloud", "rain") and nodes["wet"]["states"] == (
            "dry",
            "wet",
        )
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), 2, states=("a", "b", "c"))
    with pytest.raises(pgm.PgmError, match="layer 'x': 'a', 'b', 'c' are not 2 different names"):
        b.build()


def test_both_views_can_be_drawn():
    extra("matplotlib")
    from matplotlib import pyplot as plt

    model = pgm.dbn([4, 3, 2], rng=0)
    for level in ("layers", "variables"):
        graph, ax = model.to_networkx(level=level), plt.figure().gca()
        nx.draw(graph, ax=ax, with_labels=True)
        assert {t.get_text() for t in ax.texts} >= {str(node) for node in graph}
        assert len(ax.collections[0].get_offsets()) == len(graph) == (3 if level == "layers" else 9)
    plt.close("all")


@dataclass(frozen=True)
class Odd(pgm.Unit):
    """A unit type with a missing or wrong definition."""

    values: object = None
    base: object = None

    @property
    def support(self):
        return self.values

    @property
    def log_base(self):
        return self.base


@one_test_over(
    ("values", "base", "message"),
    [
        ([0.0, 1.0], np.zeros(2), "must be an array"),
        (np.arange(3.0), np.zeros(2), "3 finite numbers"),
        (np.eye(2), np.zeros(2), "must be an array"),
        (np.arange(2.0), np.array([0.0, np.nan]), "2 finite numbers"),
    ],
)
def test_unit_types_that_do_not_fit_together_are_named(values, base, message):
    b = pgm.GraphBuilder()
    b.layer("x", Odd(values, base), 2)
    with pytest.raises(pgm.PgmError, match=f"(?s)layer 'x'.*{message}"):
        b.build()


@dataclass(frozen=True)
class Three(pgm.Unit):
    """The number of heads of three coins."""

    @property
    def support(self):
        return np.arange(4.0)

    @property
    def log_base(self):
        return np.log([1.0, 3.0, 3.0, 1.0])


def test_a_unit_needs_only_its_support_and_base_measure(rtol=1e-9):
    """By every way in which log h is used."""
    model = pgm.rbm(3, 2, visible=Three(), rng=0)
    v = np.array(np.meshgrid(*[np.arange(4.0)] * 3, indexing="ij")).reshape(3, -1).T
    h = np.array(np.meshgrid([0.0, 1.0], [0.0, 1.0], indexing="ij")).reshape(2, -1).T
    log_p = [
        model.log_density({"v": np.repeat(v[i : i + 1], 4, axis=0), "h": h}) for i in range(len(v))
    ]
    r = pgm.infer(model, want=("log_z",))
    np.testing.assert_allclose(np.logaddexp.reduce(np.concatenate(log_p)), r.log_z[0], rtol=rtol)
    annealed = pgm.infer(model, want=("log_z",), method=pgm.AIS(chains=500, betas=200), rng=0)
    assert abs(annealed.log_z[0] - r.log_z[0]) < 5 * annealed.log_z_error[0]


def test_nothing_is_sparse_while_scipy_is_being_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", types.ModuleType("scipy.sparse"))
    assert not is_sparse(np.zeros(3))


PARTS = """
import numpy as np, pgmengine as pgm
from pgmengine.engine.visits import colors
b = pgm.GraphBuilder()
for name in "vwhxyz":
    b.layer(name, pgm.Binary(), 2)
for a, c in ("vw", "hx", "yz"):
    b.couple(a, c, weight=np.ones((2, 2)))
print(colors(b.build().structure))
"""


def test_the_order_of_a_sweep_is_the_same_in_every_process():
    """Graphs of several parts: nothing follows the order of a set of names, which each process has
    its own of.
    """
    found = {
        subprocess.run(
            [sys.executable, "-c", PARTS],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    }
    assert found == {"(('w', 'x', 'z'), ('v', 'h', 'y'))\n"}


@pytest.mark.parametrize(
    "joins",
    [
        [("couple", "a-b", "c"), ("couple", "a", "b-c")],
        [("cause", "p", "v"), ("couple", "p", ">v")],
    ],
)
def test_two_couplings_of_one_name_are_refused(joins):
    """Their weights would be one parameter."""
    builder = pgm.GraphBuilder()
    for name in dict.fromkeys(end for _, *ends in joins for end in ends):
        builder.layer(name, pgm.Binary(), 1)
    for how, one, other in joins:
        getattr(builder, how)(one, other, weight=[[1.0]])
    with pytest.raises(pgm.PgmError, match="have the same name, '(a-b-c|p->v)': rename a layer"):
        builder.build()


def test_variable_graphs_keep_directions_orientations_and_names():
    """A round trip by single variables is the same distribution, or is refused."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(0)
    b.layer("a", pgm.Categorical(2), 2)
    b.layer("c", pgm.Categorical(3), 2)
    b.couple("c", "a", weight=rng.normal(size=(6, 4)))
    model = b.build()
    back = pgm.GraphBuilder.from_networkx(model.to_networkx("variables")).build()
    names = {layer.labels: name for name, layer in back.structure.layers.items()}
    a, c = names[("a", 0), ("a", 1)], names[("c", 0), ("c", 1)]
    for x, y in ([[0, 1], [2, 0]], [[1, 1], [1, 2]]):
        np.testing.assert_allclose(
            back.log_density({a: [x], c: [y]}), model.log_density({"a": [x], "c": [y]})
        )
    with pytest.raises(pgm.PgmError, match="is undirected: declare arrows and undirected edges"):
        pgm.GraphBuilder.from_networkx(pgm.dbn([3, 2, 2], rng=0).to_networkx("variables"))
    g = nx.Graph([("x", "y", {"weight": [[1, 2, 3]]})])
    with pytest.raises(
        pgm.PgmError,
        match=r"edge 'x', 'y': weight has shape \(1, 3\), expected a number or \(1, 1\)",
    ):
        pgm.GraphBuilder.from_networkx(g)
    with pytest.raises(pgm.PgmError, match="takes an nx.Graph"):
        pgm.GraphBuilder.from_networkx([1])
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, labels=["a", "b"])
    b.layer("h", pgm.Binary(), 2, labels=["b", "d"])
    b.couple("v", "h", weight=np.ones((2, 2)))
    nodes = [("v", "a"), ("v", "b"), ("h", "b"), ("h", "d")]
    assert list(b.build().to_networkx("variables").nodes) == nodes


@pytest.mark.parametrize(
    "values", [np.array([[1j, 0]]), np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[D]")]
)
def test_what_has_parts_that_are_no_numbers_is_refused(values):
    with pytest.raises(pgm.PgmError, match="not an array of numbers|index 0: 1j is no state"):
        pgm.infer(pgm.rbm(2, 1, visible=pgm.Gaussian(), rng=0), {"v": values})
