"""Networks of tables: their checks, files by suffix, fuzzing, and models of other libraries."""

import gzip
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from extras import extra
from limits import free_memory
from loops import one_test_over
from mutations import raw
from small_networks import NAMES, RAIN, STATES, TEXTS, WET, WIND, drawn, network, same

import pgmengine as pgm
from pgmengine.base.errors import PgmError
from pgmengine.declare.networks.converters import network_from_pgmpy, network_from_pyagrum
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.formats import read_evidence, read_network, write_network
from pgmengine.io.network import build

AB = (("a", "b"), (("x", "y"), ("u", "v", "w")))


@one_test_over(
    ("parts", "match"),
    [
        (((), ()), "there are no variables"),
        ((("a",), ()), "1 names of variables, but states of 0"),
        ((("a", "a"), (("x",), ("x",))), "'a' is a name of a variable twice"),
        ((("",), (("x",),)), "a name of a variable must be text"),
        (((1,), (("x",),)), "a name of a variable must be text"),
        ((("a",), ((),)), "variable 'a' has no states"),
        ((("a",), (("x", "x"),)), "'x' is a state of variable 'a' twice"),
        ((*AB, ((0, (), [1]),)), r"conditional of 'a' has .* shape \(1,\), expected \(2,\)"),
        ((*AB, ((0, (1,), np.ones((2, 3))),)), r"shape \(2, 3\), expected \(3, 2\)"),
        ((*AB, ((0, (), [0.5, 0.5]),) * 2), "variable 'a' has 2 conditionals"),
        ((*AB, ((0, (0,), np.eye(2)),)), "variable number 0 occurs twice"),
        ((*AB, ((2, (), [0.5, 0.5]),)), "variable number 2, expected 0 to 1"),
        ((*AB, ((0, (), [-0.5, 1.5]),)), r"conditional of 'a': entry \[0\] is -0.5"),
        (
            (*AB, (), (((0, 1), [[1, 2, 3], [4, 5, np.nan]]),)),
            r"of \(a, b\): entry \[1, 2\] is nan",
        ),
        ((*AB, (), (((0,), [1, np.inf]),)), r"of \(a\): entry \[1\] is inf"),
        ((*AB, (), (((), [1.0]),)), r"shape \(1,\), expected \(\)"),
        ((*AB, (), (((0,), ["p", "q"]),)), "not an array of numbers"),
        (
            (*AB, ((0, (1,), np.ones((3, 2))), (1, (0,), np.ones((2, 3))))),
            "directed cycle: (a -> b -> a|b -> a -> b)",
        ),
    ],
)
def test_networks_that_make_no_sense_are_refused(parts, match):
    with pytest.raises(PgmError, match=match):
        Network(*parts)


def test_files_by_suffix(tmp_path):
    for suffix in ("", ".safetensors", ".gz", ".bif.zip", ".evid"):
        path = tmp_path / f"m{suffix}"
        path.write_text("x")
        with pytest.raises(PgmError, match=f"^{path}: .*expected one of .uai, .bif, .xmlbif"):
            read_network(path)
    with pytest.raises(PgmError, match="cannot be written, expected one of .uai, .bif, .xmlbif, "):
        write_network(network(), tmp_path / "m.dsl")
    with pytest.raises(PgmError, match="cannot be read as evidence, expected one of .evid"):
        read_evidence(tmp_path / "m.uai")
    with pytest.raises(PgmError, match="did you mean .bif"):
        read_network(tmp_path / "m.biff")
    (tmp_path / "M.BIF.GZ").write_bytes(gzip.compress(TEXTS[".bif"].encode()))
    assert same(read_network(tmp_path / "M.BIF.GZ"), network())


@one_test_over("suffix", [*TEXTS, ".uai.evid"])
@one_test_over(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", r"line 1: byte 0 is not text in UTF-8"),
        (b"a\nb\0", "line 2: has a zero byte"),
    ],
)
def test_files_without_text(suffix, content, match, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.write_bytes(content)
    with pytest.raises(PgmError, match=f"^{path}: {match}"):
        (read_evidence if suffix.endswith(".evid") else read_network)(path)


def test_files_that_cannot_be_unpacked_or_opened(tmp_path):
    path, whole = tmp_path / "m.bif.gz", gzip.compress(TEXTS[".bif"].encode())
    for content in (b"x" * 40, b"", whole[:-5], whole[:20], whole[:30] + b"xx" + whole[32:]):
        path.write_bytes(content)
        with pytest.raises(PgmError, match=f"^{path}: (cannot be unpacked|is empty)"):
            read_network(path)
    with pytest.raises(PgmError, match="absent.bif: cannot be read: No such file"):
        read_network(tmp_path / "absent.bif")
    with pytest.raises(PgmError, match="it is a directory"):
        (tmp_path / "d.bif").mkdir()
        read_network(tmp_path / "d.bif")


def test_a_small_file_that_unpacks_to_much_text(tmp_path, monkeypatch):
    free_memory(monkeypatch, 2.0**26)
    path = tmp_path / "m.uai.gz"
    path.write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(PgmError, match=f"^{path}: cannot be unpacked: it needs .* GiB"):
        read_network(path)


def fuzz(path, content, rng, count):
    """How many mutations are taken; every exception must be a PgmError that names the file."""
    taken, model = 0, build(network())
    for _ in range(count):
        mutated = raw(content, rng)
        path.write_bytes(mutated)
        try:
            if path.suffix == ".evid":
                read_evidence(path, model)
            else:
                read_network(path)
            taken += 1
        except PgmError as error:
            assert str(error).startswith(f"{path}: ")
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} ({error}) of {mutated!r}") from error
    return taken


@pytest.mark.parametrize("count", [60, pytest.param(3_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("suffix", [*TEXTS, ".uai.evid"])
def test_mutations_of_files(suffix, count, tmp_path, monkeypatch, seed=0):
    free_memory(monkeypatch, 2.0**26)
    content = TEXTS.get(suffix, "2\n3 0 1 1 2 2 0\n2 1 0 2 1\n").encode()
    taken = fuzz(tmp_path / f"m{suffix}", content, np.random.default_rng(seed), count)
    assert taken < count


def test_a_dimod_model_is_a_layer_with_the_negative_energy(seed=0):
    dimod = extra("dimod")
    rng = np.random.default_rng(seed)
    for kind in ("SPIN", "BINARY"):
        linear = {f"a{i}": rng.normal() for i in range(5)}
        pairs = {(f"a{i}", f"a{j}"): rng.normal() for i in range(5) for j in range(i)}
        bqm = dimod.BinaryQuadraticModel(linear, pairs, 1.5, kind)
        model = pgm.GraphBuilder.from_dimod(bqm).build()
        layer = model.structure.layers["x"]
        assert layer.labels == tuple(bqm.variables)
        samples = rng.choice(layer.unit.support, (20, 5))
        energies = bqm.energies((samples, list(bqm.variables)))
        assert np.allclose(model.log_density({"x": samples}), 1.5 - energies)
        states = layer.unit.support[np.indices((2,) * 5).reshape(5, -1).T]
        log_z = np.logaddexp.reduce(-bqm.energies((states, list(bqm.variables))))
        assert np.allclose(pgm.infer(model, want=("log_z",)).log_z, log_z + 1.5)


def bqm(kind="SPIN", linear=None, quadratic=None):
    """An object with the attributes of a model of dimod."""
    vartype = SimpleNamespace(name=kind)
    return SimpleNamespace(vartype=vartype, linear=linear or {}, quadratic=quadratic or {})


def test_a_dimod_variable_may_be_called_as_the_layer():
    model = pgm.GraphBuilder.from_dimod(bqm("SPIN", {"x": 1.0, "y": -1.0}, {("x", "y"): 1.0}))
    found = pgm.infer(model.build())
    log = np.array([[-h + g - h * g for g in (-1, 1)] for h in (-1, 1)])
    p = np.exp(log) / np.exp(log).sum()
    assert found.marginal("x")[1] == pytest.approx(p[1].sum())
    assert found.marginal("y")[1] == pytest.approx(p[:, 1].sum())
    given = pgm.infer(model.build(), {"x": 1}).marginal("y")
    assert given[1] == pytest.approx(p[1, 1] / p[1].sum())


def test_variables_called_as_their_layer():
    names = ("variables2", "variables2_1", "b")
    n = Network(
        names, (("no", "yes"),) * 3, tuple((i, (), [0.9 - i / 4, 0.1 + i / 4]) for i in range(3))
    )
    builder = pgm.GraphBuilder()
    n.declare(builder)
    found = pgm.infer(builder.build())
    assert [found.marginal(name)["yes"] for name in names] == pytest.approx([0.1, 0.35, 0.6])


def test_dimod_models_without_couplings_or_variables():
    model = pgm.GraphBuilder.from_dimod(bqm("BINARY", {"p": 0.5, 2: -1.0})).build()
    assert model.params["x.bias"].tolist() == [-0.5, 1.0] and len(model.params) == 1
    with pytest.raises(PgmError, match="no variables"):
        pgm.GraphBuilder.from_dimod(bqm())
    for other in (3, bqm("INTEGER"), pgm.rbm(2, 2, rng=0)):
        with pytest.raises(PgmError, match="from_dimod takes a BinaryQuadraticModel"):
            pgm.GraphBuilder.from_dimod(other)


def factor(names, values, states):
    """An object with the attributes of a table of pgmpy."""
    return SimpleNamespace(variables=names, values=values, state_names=states)


def pgmpy_like(cpds):
    nodes = [cpd.variables[0] for cpd in cpds]
    return SimpleNamespace(nodes=lambda: nodes, get_cpds=lambda: cpds)


def test_a_table_of_pgmpy_may_have_states_in_another_order():
    rain = factor(["rain"], RAIN, {"rain": ["yes", "no"]})
    states = {"wet": ["yes", "no"], "rain": ["no", "yes"]}
    values = np.array([[0.05, 0.9], [0.95, 0.1]])
    n = network_from_pgmpy(pgmpy_like([rain, factor(["wet", "rain"], values, states)]))
    assert n.conditionals[1].values.tolist() == [[0.9, 0.1], [0.05, 0.95]]
    values[:] = 0.0
    assert n.conditionals[1].values.any()
    states["rain"] = ["no", "maybe"]
    with pytest.raises(PgmError, match=r"'rain' has the states \['no', 'maybe'\] in one table"):
        network_from_pgmpy(pgmpy_like([rain, factor(["wet", "rain"], values, states)]))
    with pytest.raises(PgmError, match="'rain' has a table, but is no variable"):
        states["rain"] = ["no", "yes"]
        network_from_pgmpy(pgmpy_like([factor(["wet", "rain"], values, states)]))


@pytest.mark.parametrize("convert", [network_from_pgmpy, network_from_pyagrum])
def test_objects_that_are_no_models_are_refused(convert):
    for other in (None, 3, {"a": 1}, pgm.rbm(2, 2, rng=0)):
        with pytest.raises(PgmError, match="takes a .*, not an object of type"):
            convert(other)


# Importing pgmpy takes seconds.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_models_of_pgmpy():
    pytest.importorskip("pgmpy", reason="pgmpy is not installed: pip install pgmpy")
    models = pytest.importorskip("pgmpy.models", reason="pgmpy lacks some of its dependencies")
    from pgmpy.factors.discrete import DiscreteFactor, TabularCPD

    named = dict(zip(NAMES, STATES))
    model = models.DiscreteBayesianNetwork([("rain", "wet"), ("wind", "wet")])
    model.add_cpds(
        TabularCPD("rain", 2, RAIN[:, None], state_names={"rain": STATES[0]}),
        TabularCPD("wind", 3, WIND[:, None], state_names={"wind": STATES[1]}),
        TabularCPD("wet", 2, WET.reshape(6, 2).T, ["rain", "wind"], [2, 3], state_names=named),
    )
    n = network_from_pgmpy(model)
    assert sorted(n.names) == sorted(NAMES)
    tables = {n.names[c.child]: c for c in n.conditionals}
    assert [n.names[i] for i in tables["wet"].parents] == ["rain", "wind"]
    assert np.array_equal(tables["wet"].values, WET) and np.array_equal(tables["rain"].values, RAIN)
    assert n.states[n.names.index("wind")] == STATES[1]
    markov = models.DiscreteMarkovNetwork([("a", "b")])
    markov.add_factors(DiscreteFactor(["a", "b"], [2, 3], np.arange(6.0)))
    n = network_from_pgmpy(markov)
    assert n.tables[0].values.tolist() == [[0, 1, 2], [3, 4, 5]] and not n.conditionals
    assert [n.names[i] for i in n.tables[0].scope] == ["a", "b"]


# A part of pyAgrum that is loaded late crashes where its own warnings are errors.
@pytest.mark.filterwarnings("ignore")
def test_models_of_pyagrum():
    gum = pytest.importorskip("pyagrum", reason="pyagrum is not installed: pip install pyagrum")
    bn = gum.BayesNet()
    for name, own in zip(NAMES, STATES):
        bn.add(gum.LabelizedVariable(name, name, list(own)))
    bn.addArc("rain", "wet")
    bn.addArc("wind", "wet")
    bn.cpt("rain").fillWith(RAIN.tolist())
    bn.cpt("wind").fillWith(WIND.tolist())
    for (i, j), row in zip(np.ndindex(2, 3), WET.reshape(6, 2)):
        bn.cpt("wet")[{"rain": STATES[0][i], "wind": STATES[1][j]}] = row.tolist()
    assert same(network_from_pyagrum(bn), network())
    mrf = gum.MarkovRandomField()
    for name, own in zip(NAMES, STATES):
        mrf.add(gum.LabelizedVariable(name, name, list(own)))
    tensor = mrf.addFactor(["wet", "wind"])
    for i, j in np.ndindex(2, 3):
        tensor[{"wet": STATES[2][i], "wind": STATES[1][j]}] = 10.0 * i + j
    n = network_from_pyagrum(mrf)
    scope, values = n.tables[0]
    assert {n.names[i] for i in scope} == {"wet", "wind"} and len(n.tables) == 1
    values = values if n.names[scope[0]] == "wet" else values.T
    assert values.tolist() == [[0, 1, 2], [10, 11, 12]] and not n.conditionals
    with pytest.raises(PgmError, match="from_pyagrum takes"):
        network_from_pyagrum(gum.InfluenceDiagram())


def noisy(gum, kind):
    """A network of pyAgrum with a node whose entries pyAgrum computes."""
    net, numbers = gum.BayesNet(), gum.RangeVariable
    for name in "xz":
        net.add(numbers(name, name, 0, 1))
    child = numbers("y", "y", 0, 1)
    if kind in ("NoisyORNet", "NoisyORCompound", "NoisyAND"):
        getattr(net, f"add{kind}")(child, 0.25)
        net.addWeightedArc("x", "y", 0.75)
        net.addWeightedArc("z", "y", 0.5)
    else:
        getattr(net, f"add{kind}")(child)
        net.addArc("x", "y")
        net.addArc("z", "y")
    for name in "xz":
        net.cpt(name).fillWith([0.5, 0.5])
    return net


@pytest.mark.filterwarnings("ignore")
@one_test_over(
    "kind",
    ["NoisyORNet", "NoisyORCompound", "NoisyAND", "MAX", "MIN", "OR", "AND", "EXISTS", "FORALL"],
)
def test_nodes_of_pyagrum_whose_entries_are_computed(kind):
    """The function toarray of their conditionals reads memory that nothing was written to."""
    gum = pytest.importorskip("pyagrum", reason="pyagrum is not installed: pip install pyagrum")
    net = noisy(gum, kind)
    for _ in range(5):
        n = network_from_pyagrum(net)
        (found,) = (c for c in n.conditionals if n.names[c.child] == "y")
        names = [n.names[i] for i in found.parents]
        for x, z, y in np.ndindex(2, 2, 2):
            entry = gum.Instantiation(net.cpt("y"))
            for name, value in (("x", x), ("z", z), ("y", y)):
                entry.chgVal(name, value)
            at = tuple({"x": x, "z": z}[name] for name in names)
            assert found.values[(*at, y)] == net.cpt("y").get(entry)


class Computed:
    """A table as pyAgrum has it, whose entries are computed where they are asked for one by one."""

    names = ("a",)

    def toarray(self):
        return np.full(2, 9e276)

    def tolist(self):
        return [0.25, 0.75]


class NetOfComputed:
    """A network as pyAgrum has it, with one variable."""

    def nodes(self):
        return [0]

    def cpt(self, node):
        return Computed()

    def variable(self, node):
        return type("V", (), {"name": lambda self: "a", "labels": lambda self: ("u", "v")})()


def test_computed_entries_of_pyagrum_are_asked_for():
    n = network_from_pyagrum(NetOfComputed())
    assert n.conditionals[0].values.tolist() == [0.25, 0.75]


def test_classes_in_place_of_models_are_refused():
    convert = (network_from_pgmpy, network_from_pyagrum, pgm.GraphBuilder.from_dimod)
    for function in (*convert, pgm.GraphBuilder.from_networkx):
        for kind in (pgm.Model, NetOfComputed, nx.Graph, dict):
            with pytest.raises(PgmError, match=f"the class {kind.__name__}"):
                function(kind)


def test_graphs_that_cannot_be_converted_are_told_apart():
    for graph, match in (
        (nx.MultiGraph([("a", "b"), ("a", "b")]), "not MultiGraph, in which .* several edges"),
        (nx.MultiDiGraph([("a", "b")]), "not MultiDiGraph, in which .* several edges"),
        (nx.Graph(), "not a graph without nodes"),
        ({"a": ["b"]}, "not dict"),
        (None, "not NoneType"),
    ):
        with pytest.raises(PgmError, match=f"from_networkx takes an nx.Graph .*{match}"):
            pgm.GraphBuilder.from_networkx(graph)


class Recorder:
    """A builder that keeps what is declared."""

    def __init__(self):
        self.calls = []

    def variable(self, name, states, shape=None):
        self.calls.append(("variable", name, states))

    def conditional(self, child, parents, values):
        self.calls.append(("conditional", child, parents, values.tolist()))

    def table(self, scope, values):
        self.calls.append(("table", scope, np.asarray(values).tolist()))


def test_declarations_to_a_builder():
    record = Recorder()
    n = Network(("a", "b"), (("x", "y"),) * 2, ((1, (0,), np.eye(2)),), (((0,), [1, 2]), ((), 3)))
    n.declare(record)
    assert record.calls == [
        ("variable", "a", ("x", "y")),
        ("variable", "b", ("x", "y")),
        ("conditional", "b", ("a",), [[1, 0], [0, 1]]),
        ("table", ("a",), [1, 2]),
        ("table", ("a",), [3, 3]),
    ]


def test_random_networks_are_written_over_existing_files(tmp_path, seed=3):
    rng, path = np.random.default_rng(seed), tmp_path / "m.uai"
    for directed in (True, False):
        n = drawn(rng, directed=directed)
        write_network(n, path)
        assert same(read_network(path), n, names=False)
    assert [p.name for p in tmp_path.iterdir()] == ["m.uai"]
