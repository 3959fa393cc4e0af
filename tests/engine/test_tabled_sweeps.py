"""Compiled sweeps of single units, with chains as lanes, for models with tables and networks of
single variables: the states and densities of the plain engine,
invariance from exact starts, and nothing that depends on other chains or on the number of threads.
"""

import functools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from brute import Brute
from invariance import ALARM, CAUGHT, exact_start, p_value, tail
from kernels_of_users import Lazy
from lattices import edges
from loops import one_test_over
from random_graphs import Oracle, as_arguments, as_hints, draw_question, random_graph
from registry import COMPILED, KNOWN, NEGATIVES
from tiny import FINITE, TABLED, as_evidence, draw_row, mixed_target
from twin import LanesReplay, key_of

import pgmengine as pgm
from pgmengine.engine import layerwise, reference
from pgmengine.engine.chains import engine_for, start
from pgmengine.engine.kernels import draws_forests
from pgmengine.engine.single_site import conditional_tables, packed_units, sweeps
from pgmengine.engine.single_site.sweeps import TabledChains

CHAINS = 40_000
# Log densities in single precision.
CLOSE = {"rtol": 1e-5, "atol": 1e-4}
TABLED_IN_LANES = [m for m in TABLED if sweeps.in_lanes(m.build().structure)]
IN_LANES = TABLED_IN_LANES + [m for m in FINITE if m.name != "rbm large weights"]
kernels = pytest.mark.parametrize("kernel", COMPILED, ids=repr)
known_kernels = pytest.mark.parametrize("kernel", KNOWN, ids=repr)
models = one_test_over("tiny_model", IN_LANES)
# No conditionals of children are read from tables, and all with few entries are.
listing = pytest.mark.parametrize(
    "most", [1, conditional_tables.MAX_LISTED_ENTRIES], ids=["summed", "listed"], indirect=True
)


@pytest.fixture
def most(request, monkeypatch):
    """The number of entries up to which the conditionals of children are read from tables."""
    monkeypatch.setattr(conditional_tables, "MAX_LISTED_ENTRIES", request.param)


@functools.cache
def graphs(count, most_states=2**10):
    """Random graphs whose models the engine knows, with their numbers."""
    found, seed = [], 0
    while len(found) < count:
        graph = random_graph(seed, most_states)
        if sweeps.in_lanes(graph.build().structure):
            found.append((seed, graph))
        seed += 1
    return found


def mixed_rows(seed, graph, rows):
    """Rows with masks, soft evidence, interventions and beta of their own, and a reference."""
    rng = np.random.default_rng(seed)
    asked = draw_question(graph, seed, rows=4)
    model = graph.build()
    target = model.given(
        as_arguments(graph, asked, 0), soft=as_hints(graph, asked), do=as_arguments(graph, asked, 2)
    )
    layers = model.structure.layers
    reference = {n: rng.normal(size=x.width) for n, x in layers.items() if rng.random() < 0.7}
    target = target.take(rng.integers(0, target.rows, size=rows))
    return target.at(rng.choice([0.0, 0.37, 1.0], size=rows), reference)


def parting(target, kernel, seed, backward):
    """Rows whose states are not those of the plain engine; the log densities of others agree."""
    x = start(target, np.random.default_rng(0))
    ours = TabledChains(target, kernel, x, np.random.default_rng(seed))
    theirs = reference.PlainChains(
        target, kernel, x, LanesReplay(target, key_of(seed), None, backward)
    )
    parted = np.zeros(target.rows, dtype=bool)
    for _ in range(3):
        ours.sweep(1, backward)
        theirs.sweep(1, backward)
        for name, value in theirs.values().items():
            parted |= (ours.values()[name] != value).any(axis=1)
    same = ~parted
    for found, truth in zip(ours.path(), theirs.path(), strict=True):
        np.testing.assert_allclose(found[same], truth[same], **CLOSE)
    np.testing.assert_allclose(ours.log_density()[same], theirs.log_density()[same], **CLOSE)
    return parted


@kernels
@pytest.mark.parametrize("rows", [2, 40])
@pytest.mark.parametrize("number", range(40))
def test_same_states_as_the_plain_engine_on_the_same_uniforms(number, rows, kernel, monkeypatch):
    """All that a target may have: masks, soft evidence, do(), beta, reference, zeros, couplings.

    Every other graph has no conditionals of children in tables.
    A uniform is within single precision of its threshold at most once in a million draws, so one
    of 40 rows of at most 14 units parts in three sweeps with 2e-3, one row twice with 1e-7.
    """
    seed, graph = graphs(40)[number]
    monkeypatch.setattr(
        conditional_tables,
        "MAX_LISTED_ENTRIES",
        conditional_tables.MAX_LISTED_ENTRIES ** (number % 2),
    )
    target = mixed_rows(seed, graph, rows)
    for backward in (False, True):
        parted = parting(target, kernel, 8, backward)
        assert parted.sum() <= 1
        assert not parted.any() or not (parted & parting(target, kernel, 9, backward)).any()


@kernels
@listing
@one_test_over("tiny_model", FINITE)
def test_same_states_as_the_plain_engine_without_tables(tiny_model, most, kernel):
    """Couplings and arrows of all units; false alarms as above."""
    target = mixed_target(tiny_model)
    parted = parting(target, kernel, 8, False)
    assert parted.sum() <= 1
    assert not parted.any() or not (parted & parting(target, kernel, 9, False)).any()


def parents_of_many(children=50):
    """Two parents of children of all kinds in turn; many children are on against long odds."""
    rng, b, seen = np.random.default_rng(5), pgm.GraphBuilder(), {}
    b.layer("two", pgm.Binary(), 1, bias=[0.3])
    b.layer("three", pgm.Categorical(3), 1, bias=rng.normal(size=(1, 3)))
    for i in range(children):
        # Runs of a kind are longer than a vector.
        unit = (pgm.Binary(), pgm.NoisyOr(), pgm.Categorical(3))[i // 20]
        width, size = unit.width, 1e-3 if i // 20 == 1 else 0.3
        weights = [size * rng.random((rows, width)) for rows in (1, 3)]
        b.layer(f"x{i}", unit, 1, bias=1e-3 * rng.random((1, 3) if width > 1 else 1))
        b.cause("two", f"x{i}", weight=weights[0])
        b.cause("three", f"x{i}", weight=weights[1])
        # Of the 20 noisy-or units 15 are on, with p about 1e-3 each: their product is 1e-45.
        if i // 20 == 1 and i % 4:
            seen[f"x{i}"] = np.ones((1, 1))
    return b.build().given(seen)


@kernels
@listing
@pytest.mark.parametrize("rows", [1, 40])
def test_many_children_of_all_kinds(rows, most, kernel):
    """Whole vectors of children, products below the smallest float; false alarms as above."""
    target = parents_of_many()
    target = target.take(np.zeros(rows, dtype=int))
    parted = parting(target, kernel, 8, False)
    assert parted.sum() <= 1
    assert not parted.any() or not (parted & parting(target, kernel, 9, False)).any()


@one_test_over("number", range(40))
def test_densities_are_those_of_an_oracle(number):
    """At random possible states, without evidence."""
    _, graph = graphs(40)[number]
    oracle, model = Oracle(graph), graph.build()
    index = np.random.default_rng(0).choice(len(oracle.p), size=50, p=oracle.p)
    x = {
        layer.name: np.concatenate(
            [
                # Variables share layers, in which they have labels.
                oracle.x[(layer.labels[i], 0) if layer.labels else (layer.name, i)][index]
                for i in range(layer.size)
            ],
            axis=1,
        )
        for layer in model.structure.layers.values()
    }
    target = model.given().take(np.zeros(50, dtype=int))
    chains = TabledChains(target, pgm.Gibbs(), x, np.random.default_rng(0))
    np.testing.assert_allclose(chains.log_density(), oracle.log_weight[index], **CLOSE)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@one_test_over("number", range(20))
def test_annealing_weights_are_those_of_the_plain_engine(number, backward, joint):
    """Some of the graphs have layers without tables, which the weights marginalise."""
    seed, graph = graphs(40)[number]
    check_annealing(mixed_rows(seed, graph, 40).at(0.0), backward, joint)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@listing
@one_test_over("tiny_model", FINITE)
def test_annealing_weights_without_tables_are_those_of_the_plain_engine(
    tiny_model, most, backward, joint
):
    check_annealing(mixed_target(tiny_model, 40).at(0.0), backward, joint)


def check_annealing(target, backward, joint):
    """The importance weights of the plain engine on the same uniforms, but for one tie."""
    betas = np.array([0.0, 1e-4, 0.2, 0.7, 0.7005, 1.0])

    def parted(seed):
        x = start(target, np.random.default_rng(0))
        ours = TabledChains(target, pgm.Blend(0.3), x, np.random.default_rng(seed))
        replay = LanesReplay(target, key_of(seed), None, backward)
        theirs = reference.PlainChains(target, pgm.Blend(0.3), x, replay)
        found, truth = (c.anneal(betas, joint=joint, backward=backward) for c in (ours, theirs))
        assert np.array_equal(ours.beta, np.ones(40))
        finite = np.isfinite(truth)
        near = np.isclose(found, np.where(finite, truth, 0.0), rtol=2e-4, atol=2e-4)
        return np.where(finite, ~near, found != truth)

    first = parted(8)
    assert first.sum() <= 1
    assert not first.any() or not (first & parted(9)).any()


@known_kernels
@pytest.mark.parametrize("joint", [False, True])
@one_test_over("tiny_model", TABLED_IN_LANES)
def test_the_mean_of_importance_weights_is_unbiased(tiny_model, kernel, joint, sure=6.0):
    """E exp(w) = Z_1 / Z_0, in standard errors: false alarms are 2e-9, more by skewness."""
    truth = Brute(tiny_model)
    target = tiny_model.build().given().at(0.0).take(np.zeros(CHAINS, dtype=int))
    rng = np.random.default_rng(1)
    chains = TabledChains(target, kernel, target.draw_at_0(rng), rng)
    w = chains.anneal(np.array([0.0, 0.2, 0.5, 0.8, 1.0]), joint=joint)
    w = np.exp(w - (truth.log_z - target.log_z_at_0()[0]))
    # Where all weights are equal only rounding is left.
    assert abs(w.mean() - 1) < sure * w.std() / np.sqrt(CHAINS) + 1e-5


def after_sweeps(tiny_model, kernel, row=None, soft=None, beta=1.0, do=None, backward=False):
    """p-value of the joint states after sweeps from an exact start."""
    rng, hints = np.random.default_rng(5), {}
    for name, log_weights in (soft or {}).items():
        wide = log_weights.shape[1] > 2
        hints[name] = log_weights if wide else log_weights[:, 1] - log_weights[:, 0]
    truth = Brute(tiny_model, row, soft=soft, do=do, beta=beta)
    evidence = as_evidence(tiny_model, [row]) if row else None
    forced = {n: v[0] for n, v in as_evidence(tiny_model, [do]).items()} if do else None
    target = tiny_model.build().given(evidence, soft=hints, do=forced, beta=beta)
    target = target.take(np.zeros(CHAINS, dtype=int))
    chains = TabledChains(target, kernel, exact_start(truth, CHAINS, rng), rng)
    chains.sweep(2, backward)
    return p_value(truth, chains.values())


def possible_row(tiny_model, share):
    """A row of evidence that is possible: some units of a state drawn by the oracle."""
    truth, rng = Brute(tiny_model), np.random.default_rng(11)
    at = rng.choice(len(truth.p), p=truth.p)
    row = draw_row(tiny_model, rng, 1.0)
    for layer in tiny_model.layers:
        value = truth.values[layer.name][at].reshape(layer.size, -1)
        known = value.argmax(axis=1) if value.shape[1] > 1 else value[:, 0]
        row[layer.name] = [v if rng.random() < share else None for v in known]
    return row


@known_kernels
@pytest.mark.parametrize(
    ("share", "beta", "backward"),
    [
        (0.2, 0.6, False),
        pytest.param(0.0, 1.0, False, marks=pytest.mark.long),
        pytest.param(0.3, 1.0, True, marks=pytest.mark.long),
    ],
)
@models
def test_p_is_invariant(tiny_model, kernel, share, beta, backward):
    row = possible_row(tiny_model, share)
    assert after_sweeps(tiny_model, kernel, row, beta=beta, backward=backward) > ALARM


@known_kernels
@one_test_over("tiny_model", TABLED_IN_LANES)
def test_p_is_invariant_under_soft_evidence_and_interventions(tiny_model, kernel):
    rng, soft = np.random.default_rng(9), {}
    for layer in tiny_model.layers:
        if len(layer.unit.support) == 2 or layer.unit.width > 1:
            soft[layer.name] = rng.normal(size=(layer.size, len(layer.unit.support)))
    children = [scope[-1] for scope, _, conditional in tiny_model.tables if conditional]
    row = draw_row(tiny_model, rng, 1.0)
    do = {
        x.name: [row[x.name][i] if (x.name, i) in children[1:2] else None for i in range(x.size)]
        for x in tiny_model.layers
    }
    # do() is refused in layers with couplings.
    assert after_sweeps(tiny_model, kernel, soft=soft, do=do if children else None) > ALARM


# Broken engines: each must be caught by the test of invariance that the real one passes.


def changed(monkeypatch, name, **changes):
    """Replace fields of what a packing function returns by functions of it."""
    real = getattr(packed_units, name)

    def broken(*given):
        found = real(*given)
        return replace(found, **{field: make(found) for field, make in changes.items()})

    monkeypatch.setattr(packed_units, name, broken)


def forgotten_tables(monkeypatch):
    changed(monkeypatch, "pack_parameters", terms=lambda p: np.zeros_like(p.terms))


def doubled_tables(monkeypatch):
    changed(monkeypatch, "pack_parameters", terms=lambda p: 2 * p.terms)


def forgotten_couplings(monkeypatch):
    changed(monkeypatch, "pack_parameters", links=lambda p: 0 * p.links)


def forgotten_bias(monkeypatch):
    changed(monkeypatch, "pack_parameters", bias=lambda p: 0 * p.bias)


def forgotten_members(monkeypatch):
    """Every table is read at state 0 of the other members."""
    still = np.array([1, 0], dtype=np.int32)
    changed(monkeypatch, "pack_parameters", members=lambda p: p.members * still)


def forgotten_clamp(monkeypatch):
    real = TabledChains._order

    def every(self):
        real(self)
        return np.arange(len(self.sites), dtype=np.int32)

    monkeypatch.setattr(TabledChains, "_order", every)


def forgotten_cut(monkeypatch):
    real = TabledChains._mask

    def no_cut(self, masks, spared):
        return None if masks is self.target.intervened else real(self, masks, spared)

    monkeypatch.setattr(TabledChains, "_mask", no_cut)


@pytest.mark.parametrize(
    ("mutant", "name", "given"),
    [
        (forgotten_tables, "potentials", "nothing"),
        (doubled_tables, "network", "nothing"),
        (forgotten_members, "potentials", "nothing"),
        (forgotten_couplings, "tables and couplings", "nothing"),
        (forgotten_bias, "tables and couplings", "nothing"),
        (forgotten_clamp, "network", "row"),
        (forgotten_cut, "network zeros", "do"),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_broken_engines_are_caught(mutant, name, given, monkeypatch):
    tiny_model = next(m for m in TABLED if m.name == name)
    # The second unit has a parent that depends on nothing else, and children. How much a cut
    # changes depends on the random tables, so that any unit may show that it was forgotten.
    units = {"nothing": [None], "row": [1], "do": range(4)}[given]
    asked = [{} if i is None else {given: seen(tiny_model, i)} for i in units]
    assert all(after_sweeps(tiny_model, pgm.Gibbs(), **one) > ALARM for one in asked)
    mutant(monkeypatch)
    assert any(is_caught(tiny_model, one) for one in asked)


def seen(tiny_model, unit):
    """Evidence that one unit of layer v has its second value."""
    row = {x.name: [None] * x.size for x in tiny_model.layers}
    row["v"][unit] = 1
    return row


def is_caught(tiny_model, asked):
    """Whether the states after some sweeps are not those of the model."""
    try:
        return after_sweeps(tiny_model, pgm.Gibbs(), **asked) < CAUGHT
    except KeyError:  # a state that the evidence forbids
        return True


# ---- what a chain does not depend on ----


BLEND = pgm.Blend(0.3)


def chains_of(target, index, kernel=BLEND, seed=4):
    """Chains of some rows, each started and numbered as among all rows."""
    x = start(target, np.random.default_rng(0))
    some = {n: v[index] for n, v in x.items()}
    rng = np.random.default_rng(seed)
    return TabledChains(target.take(index), kernel, some, rng, streams=index)


@known_kernels
@one_test_over("number", range(12))
def test_a_chain_does_not_depend_on_the_others(number, kernel):
    """One chain, two one after the other, and lanes of one vector or of several."""
    seed, graph = graphs(40)[number]
    target = mixed_rows(seed, graph, 150)
    if draws_forests(kernel):
        # A forest has the units that are free in any of the rows.
        target = target.take(np.zeros(150, dtype=int))
    together = chains_of(target, np.arange(150), kernel)
    together.sweep(5)
    for count in (1, 2, 3, 17, 70):
        index = np.random.default_rng(count).choice(150, size=count, replace=False)
        some = chains_of(target, index, kernel)
        some.sweep(5)
        for name, value in some.values().items():
            assert np.array_equal(value, together.values()[name][index])
        assert np.array_equal(some.log_density(), together.log_density()[index])


def coupled_lattice(side=12, states=3):
    """A lattice of categorical units with tables along all edges, and couplings along some."""
    rng, size = np.random.default_rng(0), side * side
    pairs = edges(side)
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(states), size)
    b.layer("h", pgm.Spin(), 10)
    b.tables(("x", "x"), pairs, rng.gamma(1.0, size=(len(pairs), states, states)))
    b.couple("h", "x", weight=0.3 * rng.normal(size=(10, size * states)))
    return b.build()


@pytest.mark.parametrize("rows", [2, 150])
def test_threads_and_pieces_do_not_change_a_bit(rows, monkeypatch):
    target = coupled_lattice().given().take(np.zeros(rows, dtype=int))
    x, found = start(target, np.random.default_rng(0)), []
    monkeypatch.setattr(sweeps, "MIN_UPDATES_A_THREAD", 0)
    for count, pieces, most in (("1", (9,), 10**9), ("2", (9,), 1), ("3", (1, 2, 6), 10**9)):
        monkeypatch.setenv("PGMENGINE_THREADS", count)
        monkeypatch.setattr(sweeps, "UPDATES_A_POLL", most)
        chains = TabledChains(target, pgm.Gibbs(), x, np.random.default_rng(1))
        for some in pieces:
            chains.sweep(some)
        found.append((chains.values(), chains.log_density()))
    for values, density in found[1:]:
        assert all(np.array_equal(values[n], v) for n, v in found[0][0].items())
        assert np.array_equal(density, found[0][1])


# ---- the protocol of chains ----


@pytest.mark.parametrize("rows", [2, 30])
def test_trace_is_the_log_density_after_each_sweep(rows):
    target = coupled_lattice(4).given().take(np.zeros(rows, dtype=int)).at(0.7)
    x = start(target, np.random.default_rng(0))
    one, two, three = (
        TabledChains(target, pgm.Gibbs(), x, np.random.default_rng(1)) for _ in range(3)
    )
    found = one.trace(6)
    for t in range(6):
        two.sweep(1)
        path, power = three.sweep_path()
        np.testing.assert_allclose(found[t], target.log_density(two.values()), **CLOSE)
        np.testing.assert_allclose(path + 0.7 * power, found[t], **CLOSE)


@pytest.mark.parametrize("rows", [2, 30])
def test_kept_chains_come_back_and_chains_can_be_placed(rows):
    target = coupled_lattice(4).given().take(np.zeros(rows, dtype=int))
    rng = np.random.default_rng(0)
    chains = TabledChains(target, pgm.Gibbs(), start(target, rng), rng)
    chains.sweep(3)
    kept, before = chains.keep(), chains.values()
    chains.sweep(5)
    after, back = chains.values(), np.arange(rows) % 2 == 0
    chains.restore(kept, back)
    truth = {n: np.where(back[:, None], before[n], after[n]) for n in before}
    for name, value in truth.items():
        assert np.array_equal(chains.values()[name], value)
        assert np.array_equal(chains.values(back, np.float32)[name], value[back])
        assert not np.array_equal(before[name], after[name])
    np.testing.assert_allclose(chains.log_density(), target.log_density(truth), **CLOSE)
    chains.place_at(after)
    np.testing.assert_allclose(chains.log_density(), target.log_density(after), **CLOSE)


def test_adopted_chains_are_chains_of_the_new_model():
    """They go on as chains of the new model that start at their states."""
    model = coupled_lattice(4)
    rng = np.random.default_rng(2)
    new = model.with_params(
        {"x,x.table": rng.normal(size=model.params["x,x.table"].shape), "h.bias": np.ones(10)}
    )
    target = model.given().take(np.zeros(20, dtype=int))
    chains = TabledChains(target, pgm.Gibbs(), start(target, rng), rng)
    chains.sweep(3)
    x = chains.values()
    chains.adopt(new, pgm.FlipState(), np.random.default_rng(7))
    fresh = TabledChains(target.with_model(new), pgm.FlipState(), x, np.random.default_rng(7))
    for one in (chains, fresh):
        one.sweep(4)
    assert all(np.array_equal(fresh.values()[n], v) for n, v in chains.values().items())
    np.testing.assert_array_equal(chains.log_density(), fresh.log_density())


@one_test_over("number", range(12))
def test_layers_drawn_anew_are_drawn_as_by_gibbs(number):
    seed, graph = graphs(40)[number]
    target = mixed_rows(seed, graph, 24)
    x, found = start(target, np.random.default_rng(2)), []
    for kernel, anew in ((pgm.Gibbs(), ()), (pgm.FlipState(), tuple(x))):
        chains = TabledChains(target, kernel, x, np.random.default_rng(1))
        chains.sweep_once(anew=anew)
        chains.sweep_once(anew=anew)
        found.append(chains.values())
    assert all(np.array_equal(found[0][name], found[1][name]) for name in x)


def test_beta_may_change_in_place():
    """At beta = 0 impossible entries do not count, and every kernel draws exactly."""
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(3), 2)
    b.table((("x", 0), ("x", 1)), np.eye(3))
    target = b.build().given().take(np.zeros(CHAINS, dtype=int))
    rng = np.random.default_rng(0)
    chains = TabledChains(target, pgm.FlipState(), start(target, rng), rng)
    chains.beta[:] = 0.0
    chains.sweep(1)
    both = chains.values()["x"].reshape(-1, 2, 3).argmax(axis=2)
    counts = np.bincount(3 * both[:, 0] + both[:, 1], minlength=9)
    assert tail(counts, np.full(9, CHAINS / 9)) > ALARM
    assert np.isneginf(chains.path()[1]).any() and (chains.log_density() == 0).all()
    chains.beta[: CHAINS // 2] = 1.0
    chains.sweep(2)
    both = chains.values()["x"].reshape(-1, 2, 3).argmax(axis=2)
    same = both[:, 0] == both[:, 1]
    assert same[: CHAINS // 2].all() and not same[CHAINS // 2 :].all()


# ---- which engine sweeps ----


def net_of_layers(unit):
    """A sparse net of 40 units, each a layer of its own, with arrows from three earlier ones."""
    rng, b = np.random.default_rng(3), pgm.GraphBuilder()
    for i in range(40):
        b.layer(f"x{i}", pgm.Binary() if i < 3 else unit, 1, bias=[0.1])
        for j in rng.choice(i, size=3, replace=False) if i > 2 else ():
            b.cause(f"x{j}", f"x{i}", weight=[[abs(rng.normal())]])
    return b.build()


def grid_of_layers(side):
    """A lattice of single units, each a layer of its own."""
    b = pgm.GraphBuilder()
    graph = nx.grid_2d_graph(side, side)
    for node in graph:
        b.layer(str(node), pgm.Spin(), 1, bias=[0.2])
    for one, two in graph.edges:
        b.couple(str(one), str(two), weight=[[0.4]])
    return b.build()


def test_engines_are_chosen_by_what_they_can_sweep():
    one = {m.name: m.build().given() for m in TABLED}
    assert engine_for(one["network zeros"], pgm.Gibbs()) is TabledChains
    assert engine_for(one["network zeros"], Lazy()) is reference.PlainChains
    assert engine_for(one["tables above arrows"], pgm.Gibbs()) is TabledChains
    assert engine_for(one["tables beside gaussian"], pgm.Gibbs()) is reference.PlainChains
    assert engine_for(pgm.rbm(4, 3).given(), pgm.Gibbs()) is layerwise.CompiledChains
    assert engine_for(grid_of_layers(3).given(), pgm.Gibbs()) is layerwise.CompiledChains
    assert engine_for(grid_of_layers(8).given(), pgm.Gibbs()) is TabledChains
    for unit in (pgm.Binary(), pgm.NoisyOr()):
        assert engine_for(net_of_layers(unit).given(), pgm.Gibbs()) is TabledChains


def test_many_tiny_layers_are_swept_like_layers():
    """The law of an Ising lattice whose spins are layers: a chi-square of its corner."""
    model = grid_of_layers(6)
    target = model.given().take(np.zeros(CHAINS, dtype=int))
    rng = np.random.default_rng(0)
    exact = pgm.infer(model, want=("samples",), method=pgm.Elimination(draws=CHAINS), rng=1)
    x = {n: v.reshape(CHAINS, 1) for n, v in exact.samples.items()}
    chains = TabledChains(target, pgm.FlipState(), x, rng)
    chains.sweep(2)
    after, names = chains.values(), ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]
    joint = pgm.infer(model, want=(pgm.Joint(*names[:2]),)).joint[tuple(names[:2])]
    at = sum(2**i * (after[n][:, 0] > 0) for i, n in enumerate(names[1::-1])).astype(int)
    assert tail(np.bincount(at, minlength=4), joint.ravel() * CHAINS) > ALARM
    np.testing.assert_allclose(chains.log_density(), target.log_density(after), **CLOSE)


@pytest.mark.parametrize("unit", [pgm.Binary(), pgm.NoisyOr()], ids=repr)
def test_nets_of_many_layers_have_the_law_of_their_ancestral_draws(unit):
    """Starts from exact draws: the means after sweeps, in standard errors, of 40 units.

    One of 40 is beyond 6 standard errors of two samples once in 1e7 tests.
    """
    model = net_of_layers(unit)
    target = model.given().take(np.zeros(CHAINS, dtype=int))
    drawn = pgm.infer(model, want=("samples",), method=pgm.Forward(draws=CHAINS), rng=1).samples
    x = {n: v.reshape(CHAINS, 1) for n, v in drawn.items()}
    chains = TabledChains(target, pgm.FlipState(), x, np.random.default_rng(0))
    chains.sweep(3)
    after = chains.values()
    for name, value in after.items():
        assert abs(value.mean() - x[name].mean()) < 6 * np.sqrt(0.5 / CHAINS)
    np.testing.assert_allclose(chains.log_density(), target.log_density(after), **CLOSE)


@pytest.mark.parametrize("name", [n for n, t in NEGATIVES.items() if hasattr(t, "kernel")])
def test_trainers_change_the_engine_with_the_kernel(name):
    """A schedule of kernels begins with one of the library and goes on with a user's."""
    model = coupled_lattice(3)
    x = {"x": np.random.default_rng(0).integers(0, 3, size=(20, 9))}
    trainer = replace(NEGATIVES[name], **{"k" if name == "cd" else "chains": 5})
    trainer = replace(trainer, kernel=lambda t: Lazy() if t in (2, 3) else pgm.Gibbs())
    found = pgm.fit(model, x, negative=trainer, updates=5, progress=False, rng=0).model
    assert any((found.params[n] != model.params[n]).any() for n in model.params)


# ---- packing ----


def test_packed_tables_are_the_tables():
    """Each slot reads the entries of its table at the states of the other members."""
    _, graph = max(graphs(40), key=lambda item: len(item[1].tables))
    model = graph.build()
    s, sites = model.structure, packed_units.packed_graph(model.structure).sites
    packed = packed_units.packed_parameters(model)
    states = np.array([len(x.unit.support) for x in s.layers.values() for _ in range(x.size)])
    x = np.random.default_rng(0).integers(0, states)
    first = np.cumsum(packed.counts) - packed.counts
    for unit, site in enumerate(sites):
        tables, truth = s.table_index.log_weights(model.table_terms, x[None], unit) if (
            len(s.table_index.of_unit(unit))
        ) else ([], np.zeros((1, 0, 0)))  # fmt: skip
        slots = packed.slots[first[unit] :][: packed.counts[unit]]
        # Tables of children follow.
        slots = slots[slots["first"] < len(model.table_terms)]
        assert site["states"] == states[unit] and len(slots) == len(tables)
        for slot, terms in zip(slots, truth[0], strict=True):
            members = packed.members[slot["member"] :][: slot["members"]]
            at = slot["first"] + members[:, 1] @ x[members[:, 0]]
            own = at + slot["stride"] * np.arange(states[unit])
            np.testing.assert_array_equal(model.table_terms[own], terms)
            assert slot["configs"] == np.prod(states[members[:, 0]])
    assert packed.slots["leads"].sum() == len(s.table_index.child)


@pytest.mark.parametrize(
    "make",
    [TabledChains, layerwise.CompiledChains, reference.PlainChains],
    ids=lambda c: c.__name__,
)
@pytest.mark.parametrize("rows", [2, 30])
def test_chains_can_be_placed_at_numbers_of_states(make, rows):
    """Categorical, spin and ordinal units: numbers of states are the values, there and back."""
    b = pgm.GraphBuilder()
    b.layer("c", pgm.Categorical(3), 4)
    b.layer("s", pgm.Spin(), 5)
    b.layer("m", pgm.MultiValued(4), 3)
    rng = np.random.default_rng(0)
    for one, other, shape in (("c", "s", (12, 5)), ("s", "m", (5, 3))):
        b.couple(one, other, weight=rng.normal(size=shape))
    target = b.build().given({"s": [np.nan, 1, np.nan, -1, np.nan]}).take(np.zeros(rows, int))
    chains = make(target, pgm.Gibbs(), start(target, rng), rng)
    chains.sweep(2)
    states, before = chains.states(), chains.values()
    layers = target.structure.layers
    for name, value in before.items():
        np.testing.assert_array_equal(states[name], layers[name].states(value))
    chains.sweep(3)
    chains.place_states(states)
    for name, value in chains.values().items():
        np.testing.assert_array_equal(value, before[name])
    np.testing.assert_allclose(chains.log_density(), target.log_density(before), **CLOSE)
