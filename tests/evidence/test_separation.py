"""model.separated: d-separation, separation by paths, and what both have in common."""

import itertools

import networkx as nx
import numpy as np
import pytest

import pgmengine as pgm


def random_dag(rng, nodes):
    order = rng.permutation(nodes)
    pairs = itertools.combinations(order, 2)
    share = rng.uniform(0.1, 0.6)
    graph = nx.DiGraph([(f"x{i}", f"x{j}") for i, j in pairs if rng.random() < share])
    graph.add_nodes_from(f"x{i}" for i in range(nodes))
    return graph


def random_sets(rng, names):
    """Disjoint a, b and given, of which the last one may be empty."""
    part = rng.permutation(names).tolist()
    one, two = rng.integers(1, 3, 2)
    return part[:one], part[one : one + two], part[one + two :][: rng.integers(0, 3)]


def by_weights(graph, rng):
    """The graph as arrows or couplings between units of layers."""
    for *_, data in graph.edges(data=True):
        data["weight"] = rng.normal()
    return pgm.GraphBuilder.from_networkx(graph).build()


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 540), marks=pytest.mark.long)])
def test_directed_graphs_agree_with_networkx(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        graph = random_dag(rng, int(rng.integers(5, 9)))
        states = dict.fromkeys(graph.nodes, 2)
        model = pgm.network(states, graph) if seed % 2 else by_weights(graph, rng)
        for _ in range(4):
            a, b, given = random_sets(rng, list(graph.nodes))
            truth = nx.is_d_separator(graph, set(a), set(b), set(given))
            assert model.separated(a, b, given) == truth, (seed, a, b, given)


def test_undirected_graphs_agree_with_paths(graphs=40):
    for seed in range(graphs):
        rng = np.random.default_rng(seed)
        graph = random_dag(rng, 8).to_undirected()
        if seed % 2:
            builder = pgm.GraphBuilder()
            for name in graph:
                builder.variable(name)
            for pair in graph.edges:
                builder.table(pair, np.ones((2, 2)))
            model = builder.build()
        else:
            model = by_weights(graph, rng)
        a, b, given = random_sets(rng, list(graph.nodes))
        left = graph.subgraph(set(graph) - set(given))
        truth = not any(nx.has_path(left, x, y) for x in a for y in b)
        assert model.separated(a, b, given) == truth, (seed, a, b, given)


def mixed(rng):
    """Conditionals, tables, couplings, arrows and biases of places, over six variables."""
    names = [f"x{i}" for i in range(6)]
    graph, b = random_dag(rng, 6), pgm.GraphBuilder()
    units = {name: b.variable(name) for name in names}
    for name in names:
        above = list(graph.predecessors(name))[:3]
        if not above or rng.random() < 0.7:
            b.conditional(name, above, rng.dirichlet([1, 1], (2,) * len(above)))
            continue
        for parent in above:
            b.cause(units[parent], units[name], rng.normal())
    for _ in range(rng.integers(0, 3)):
        scope = [units[x] for x in rng.permutation(names)[: rng.integers(1, 4)]]
        b.table(scope, rng.uniform(0.2, 3.0, (2,) * len(scope)))
    return b.build()


def independent(model, a, b, given):
    """Whether p(a, b | given) is a product in all states, by the formula of the density."""
    states = np.array([*itertools.product((0, 1), repeat=6)])
    names = [f"x{i}" for i in range(6)]
    logs = model.log_density({name: states[:, i] for i, name in enumerate(names)})
    joint = np.exp(logs - logs.max()).reshape((2,) * 6)
    axes = [[names.index(x) for x in some] for some in (a, b, given)]
    rest = tuple(set(range(6)) - {*itertools.chain(*axes)})
    kept = [i for i in range(6) if i not in rest]
    order = [kept.index(i) for i in itertools.chain(*axes)]
    table = joint.sum(axis=rest).transpose(order)
    table = table.reshape([2 ** len(some) for some in (a, b, given)])
    product = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    return np.allclose(table * table.sum(axis=(0, 1)), product, rtol=1e-9, atol=0)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 320), marks=pytest.mark.long)])
def test_mixed_graphs_agree_with_the_density(seeds):
    found = {True: 0, False: 0}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        model = mixed(rng)
        for _ in range(5):
            a, b, given = random_sets(rng, [f"x{i}" for i in range(6)])
            truth = model.separated(a, b, given)
            assert truth == independent(model, a, b, given), (seed, a, b, given)
            found[truth] += 1
    assert min(found.values()) > 5


def test_names_of_layers_units_and_numbers():
    rbm = pgm.rbm(3, 2, rng=0)
    assert rbm.separated(("v", 0), ("v", 1), "h")
    assert not rbm.separated(("v", 0), ["v[1]", ("v", 2)], given=[("h", 0)])
    assert rbm.separated(("h", 0), ("h", 1), given="v")
    model = pgm.network({"z": 2, "x": pgm.Normal(), "y": pgm.Normal()}, "x <- z -> y")
    # All arrows have the weight 0 before learning, and are there.
    assert not model.separated("x", "y") and model.separated("x", "y", "z")
    inputs = pgm.drbm(3, 2, 2, rng=0)
    assert inputs.separated(("h", 0), ("h", 1), given="y")
    gate = pgm.GraphBuilder()
    for i in range(12):
        gate.variable(f"c{i}")
        gate.conditional(f"c{i}", (), [0.5, 0.5])
    gate.variable("e")
    gate.conditional("e", [f"c{i}" for i in range(12)], pgm.noisy_or([0.5] * 12))
    assert gate.build().separated("c0", "c1") and not gate.build().separated("c0", "c1", "e")


@pytest.mark.parametrize("names, message", [
    (("lung", "lang", ()), "lang"),
    (("lung", "xray", ("lung",)), "'lung' is named twice"),
    (("lung", 3, ()), "3"),
])  # fmt: skip
def test_messages(names, message):
    with pytest.raises(pgm.PgmError, match=message):
        pgm.read(pgm.datasets.asia()).separated(*names)
