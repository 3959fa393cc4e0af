"""Draws that cannot cross: conditional means of blocks against an oracle, faults, false alarms."""

import math

import numpy as np
import pytest
from random_graphs import Oracle, as_arguments, as_hints, draw_question, random_graph, unit_numbers
from registry import METHODS, SAMPLERS, every

import pgmengine as pgm
from pgmengine.infer.diagnostics.convergence import least_error
from pgmengine.infer.sampling.draws import blocks, collected, rao_blackwell
from pgmengine.infer.sampling.draws.rao_blackwell import SomeDraws, gaps, with_gaps


def columns(graph, model):
    """Layer of the model -> the rows of an oracle's `index` that have its units, in order."""
    order, s = np.argsort(unit_numbers(graph, model)), model.structure
    return {n: order[s.first_unit[n] :][: layer.size] for n, layer in s.layers.items()}


def values(oracle, rows):
    """The values (states, width) of a layer of the model in all states of an oracle."""
    return np.concatenate([oracle.x[oracle.units[r]] for r in rows], axis=1)


@pytest.mark.parametrize("seed", range(12))
def test_conditional_means_are_those_of_an_enumeration(seed, monkeypatch, tolerance=1e-9):
    """Rows of mixed evidence, hints and do(), draws with importance weights, random blocks."""
    rng = np.random.default_rng([1, seed])
    graph = random_graph(seed, 2**10)
    asked, model, draws = draw_question(graph, seed, rows=3), graph.build(), 8
    target = model.given(
        as_arguments(graph, asked, 0), as_hints(graph, asked), as_arguments(graph, asked, 2)
    )
    oracles, places = [Oracle(graph, *row) for row in asked], columns(graph, model)
    # A draw may come up twice.
    drawn = [rng.choice(len(o.p), size=draws, p=o.p) for o in oracles]
    rows = np.arange(target.rows)
    weight = rng.uniform(0.5, 2.0, size=(len(rows), draws))
    x = {
        n: np.stack([oracles[r].index[place][:, drawn[r]].T for r in rows])
        for n, place in places.items()
    }
    if (virtual := target.structure.findings) in target.structure.layers:
        seen = target.states[:, target.structure.first_unit[virtual] :]
        x[virtual] = np.repeat(seen[:, None], draws, axis=1)
    block = np.flatnonzero(rng.random(len(graph.units)) < 0.5)
    monkeypatch.setattr(rao_blackwell, "blocks", lambda *_: iter([(block, False)]))
    some, layers = SomeDraws(target, x, weight).distinct(), model.structure.layers
    zero, one = (
        {n: np.full((some.target.rows, layer.width), v) for n, layer in layers.items()}
        for v in (0.0, 1.0)
    )
    found = {gap.layer: gap.size for gap in gaps(some, zero, one, np.inf)}
    assert set(found) == {
        n
        for n in layers
        if np.isin(model.structure.first_unit[n] + np.arange(layers[n].size), block).any()
    }
    inside = np.isin(
        np.arange(len(graph.units)), np.array(unit_numbers(graph, model)).argsort()[block]
    )
    for row, number in enumerate(some.rows):
        o, share = oracles[number], weight[number] / weight[number].sum()
        rest = o.index[~inside]
        for name, size in found.items():
            value, expected = values(o, places[name]), 0.0
            for t, w in zip(drawn[number], share):
                same = (rest == rest[:, [t]]).all(axis=0)
                expected = expected + w * (o.p[same] @ value[same]) / o.p[same].sum()
            free = inside[places[name]] & target.free[name][number]
            free = layers[name].components(free)
            np.testing.assert_allclose(size[row][free], expected[free], atol=tolerance)
            assert not size[row][~free].any()


def nearly_deterministic(rng, size, concentration, states=2, zeros=True):
    """Conditionals with three random parents and nearly deterministic rows."""
    b = pgm.GraphBuilder()
    for i in range(size):
        b.variable(f"v{i}", states=states)
        parents = sorted(rng.permutation(i)[: min(i, 3)])
        shape = (states,) * len(parents)
        rows = np.clip(rng.dirichlet([concentration] * states, size=shape), 1e-5, None)
        rows = np.where(rows < 2e-5, 0.0, rows) if zeros else rows
        rows /= rows.sum(-1, keepdims=True)
        b.conditional(f"v{i}", tuple(f"v{j}" for j in parents), rows)
    model = b.build()
    state = pgm.infer(model, want=("mode",)).assignment()
    return model, {v: state[v] for v in rng.permutation(model.variables)[:3]}


def parities(rng):
    """Twelve two-valued variables; the sums of four random triples are even."""
    b = pgm.GraphBuilder()
    for i in range(12):
        b.variable(f"x{i}")
        b.table((f"x{i}",), rng.uniform(0.2, 0.8, 2))
    even = (np.indices((2, 2, 2)).sum(axis=0) % 2 == 0) * 1.0
    for _ in range(4):
        b.table(tuple(f"x{i}" for i in rng.permutation(12)[:3]), even)
    return b.build(), {}


def one_of_each(rng):
    """Three groups of four variables of which one is on, coupled from group to group."""
    b = pgm.GraphBuilder()
    one = (np.indices((2,) * 4).sum(axis=0) == 1) * 1.0
    for group in range(3):
        names = [f"x{group}{i}" for i in range(4)]
        for name in names:
            b.variable(name)
        b.table(names, one)
        if group:
            for i in range(4):
                b.table((f"x{group - 1}{i}", f"x{group}{i}"), np.exp(rng.normal(size=(2, 2))))
    return b.build(), {}


def permutations(rng):
    """Four variables of four states, all different."""
    b = pgm.GraphBuilder()
    for i in range(4):
        b.variable(f"r{i}", states=4)
        b.table((f"r{i}",), rng.dirichlet([1.0] * 4))
        for j in range(i):
            b.table((f"r{j}", f"r{i}"), 1.0 - np.eye(4))
    return b.build(), {}


def strong_rbm(rng):
    """Hidden units that hold groups of visible units together."""
    weight = np.zeros((10, 4))
    for j in range(4):
        weight[rng.permutation(10)[:4], j] = 8.0
    bias = {"v.bias": rng.normal(0, 0.3, 10) - weight.sum(1) / 2}
    bias["h.bias"] = rng.normal(0, 0.3, 4) - weight.sum(0) / 2
    return pgm.rbm(10, 4).with_params({"v-h.weight": weight, **bias}), {}


def tiny_leaks(rng):
    """Findings that a single cause explains, one of several, with leaks of 1e-6."""
    b = pgm.GraphBuilder()
    b.layer("d", pgm.Binary(), 6, bias=rng.normal(-3, 0.5, 6))
    b.layer("s", pgm.NoisyOr(), 3, bias=np.full(3, 1e-6))
    weight = np.zeros((6, 3))
    weight[:3, 0], weight[3:, 1], weight[::2, 2] = 20.0, 20.0, 1.0
    b.cause("d", "s", weight=weight)
    return b.build(), {"s": [1.0, 1.0, np.nan]}


def pairs_of_spins(rng):
    """Pairs of spins, and of values with three states, with couplings of 12."""
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Spin(), 6, bias=rng.normal(0, 0.5, 6))
    b.layer("c", pgm.Categorical(3), 4, bias=rng.normal(0, 0.5, (4, 3)))
    b.layer("m", pgm.MultiValued(3), 2, bias=rng.normal(0, 0.2, 2))
    inside = np.kron(np.eye(3), [[0.0, 12.0], [12.0, 0.0]])
    b.couple("s", "s", weight=inside)
    b.couple("c", "c", weight=np.kron(np.kron(np.eye(2), [[0.0, 1.0], [1.0, 0.0]]), 12 * np.eye(3)))
    b.couple("m", "s", weight=12.0 * np.eye(2, 6))
    return b.build(), {}


KINDS = {
    "zeros": lambda rng: nearly_deterministic(rng, 16, 0.05),
    "nearly zeros": lambda rng: nearly_deterministic(rng, 12, 0.1, zeros=False),
    "three states": lambda rng: nearly_deterministic(rng, 10, 0.05, states=3),
    "parities": parities,
    "one of each": one_of_each,
    "permutations": permutations,
    "rbm": strong_rbm,
    "leaks": tiny_leaks,
    "spins": pairs_of_spins,
}


@pytest.mark.parametrize("states", [2**20, 2**9])
@pytest.mark.parametrize("kind", KINDS)
def test_a_good_status_excludes_chains_that_cannot_cross(
    kind, states, monkeypatch, errors=6.0, away=0.1, models=3
):
    """A single chain meets no other, and four may share a start: only the tables show the fault.

    Blocks of 2^9 states seldom hold a whole model, as in models that are too large for exact
    answers. Some errors of a few hundredths then stay within the error of the conditional means.
    """
    growing = blocks.blocks
    monkeypatch.setattr(
        rao_blackwell, "blocks", lambda target, most, rng: growing(target, min(most, states), rng)
    )
    for seed in range(models):
        model, evidence = KINDS[kind](np.random.default_rng([2, seed]))
        exact = pgm.infer(model, evidence, method=pgm.Exact())
        for chains in (1, 4):
            method = pgm.MCMC(chains=chains, draws=2000 // chains, warmup=200)
            found = pgm.infer(model, evidence, method=method, rng=seed)
            if not found.status.good:
                assert found.warnings
                continue
            for name, mean in exact.mean.items():
                off = np.abs(found.mean[name] - mean)
                assert off.max() < away, (kind, seed, chains, found.warnings)
                if states > 2**10:
                    assert np.all(off <= errors * found.stats["mcse"][name] + 1e-9), (kind, seed)


ONE_CHAIN = {
    "MCMC": pgm.MCMC(chains=1, draws=2000),
    "ParallelTempering": pgm.ParallelTempering(rungs=[1.0], chains=1, warmup=100, draws=1000),
    "SimulatedTempering": pgm.SimulatedTempering(betas=[1.0], chains=1, warmup=100, draws=1000),
    "TemperedTransitions": pgm.TemperedTransitions(betas=[1.0], chains=1, draws=1000),
    "WangLandau": pgm.WangLandau(
        lambda x: np.zeros(len(np.asarray(x["r0"])), int), 1, chains=1, warmup=10, draws=400,
        layers=("r0",),
    ),
}  # fmt: skip
# Clusters do not move where entries of tables are 0, as in the model of this test.
every([METHODS[name] for name in SAMPLERS], [*ONE_CHAIN.values(), pgm.SwendsenWang()])


@pytest.mark.parametrize("name", ONE_CHAIN)
def test_every_sampler_of_chains_is_compared(name):
    """Permutations: a single chain at beta = 1 stays with the one that it started from."""
    model, _ = permutations(np.random.default_rng(0))
    found = pgm.infer(model, method=ONE_CHAIN[name], rng=0)
    assert found.status is pgm.Status.NOT_MIXED
    assert any("exact conditional" in line and "variable 'r" in line for line in found.warnings)


def test_rows_that_cannot_move_are_found_among_many():
    """Of 200 rows of evidence three leave two states that no single move joins."""
    b = pgm.GraphBuilder()
    b.variable("switch")
    for name in "ab":
        b.variable(name)
    free, tied = np.full((2, 2), 0.25), np.diag([0.3, 0.7])
    b.table(("switch", "a", "b"), np.stack([free, tied]))
    switch = np.zeros(200)
    switch[[20, 90, 199]] = 1
    method = pgm.MCMC(chains=1, draws=500, warmup=10)
    found = pgm.infer(b.build(), {"switch": switch}, method=method, rng=0)
    assert any("exact conditional" in line for line in found.warnings)
    assert any(f"row {row} " in line for line in found.warnings for row in (20, 90, 199))


@pytest.mark.parametrize("states", [2**20, 2**5])
def test_independent_draws_are_seldom_warned_of(states, monkeypatch, models=40, draws=1000):
    """Independent draws have gaps by chance, of which the largest is beyond five errors seldom.

    A gap is a difference of two means, whose errors are added as if they were independent. With
    normal errors and 40 models of up to 60 comparisons, one beyond five of its standard errors has
    a probability below 0.002. No more than one warning is allowed.
    """
    growing = blocks.blocks
    monkeypatch.setattr(
        rao_blackwell, "blocks", lambda target, most, rng: growing(target, min(most, states), rng)
    )
    warned = 0
    for seed in range(models):
        graph = random_graph(seed, 2**10)
        model, oracle, rng = graph.build(), Oracle(graph), np.random.default_rng([3, seed])
        target, at = model.given(), rng.choice(len(oracle.p), size=draws, p=oracle.p)
        layers, places = target.structure.layers, columns(graph, model)
        x = {n: oracle.index[place][:, at].T[None] for n, place in places.items()}
        flat = {n: values(oracle, place)[at] for n, place in places.items()}
        mean = {n: v.mean(axis=0)[None] for n, v in flat.items()}
        ess = {n: np.full((1, layer.width), float(draws)) for n, layer in layers.items()}
        mcse = {
            n: np.maximum(v.std(axis=0) / math.sqrt(draws), least_error(layers[n], ess[n]))
            for n, v in flat.items()
        }
        stats = {
            key: {n: layers[n].shaped(v) for n, v in part.items()}
            for key, part in (("ess", ess), ("mcse", mcse))
        }
        wider, note = with_gaps(SomeDraws(target, x, np.ones((1, draws))), mean, stats, np.inf)
        warned += len(note)
        assert all(np.all(wider[n] >= stats["mcse"][n]) for n in layers)
    assert warned <= 1


def test_ordinary_models_keep_their_status(models=12):
    """RBMs of weights with a standard deviation of 0.5, whose chains mix."""
    for seed in range(models):
        rng = np.random.default_rng([4, seed])
        model = pgm.rbm(8, 6).with_params({"v-h.weight": 0.5 * rng.normal(size=(8, 6))})
        found = pgm.infer(model, method=pgm.MCMC(), rng=seed)
        assert not any("exact conditional" in line for line in found.warnings)


def test_chains_in_groups_keep_the_same_draws():
    """The bits of the comparison do not depend on how the chains of a row are divided."""
    model, evidence = nearly_deterministic(np.random.default_rng(5), 12, 0.3, zeros=False)
    many = model.given(evidence).take(np.zeros(6, dtype=int))
    rng = np.random.default_rng(6)
    whole = collected.Draws.none(many, ("marginals",), 6, 300)
    parts = [collected.Draws.none(many.take(np.arange(n)), ("marginals",), n, 300) for n in (2, 4)]
    for t in range(300):
        x, energy = many.draw_at_0(rng), rng.normal(size=6)
        whole.add(t, x, energy)
        for part, some in zip(parts, (slice(0, 2), slice(2, 6))):
            part.add(t, {name: v[some] for name, v in x.items()}, energy[some])
    joined = collected.Draws.joined(many, [part.detached() for part in parts])
    one, two = (d._some(model.given(evidence)) for d in (whole, joined))
    assert all(np.array_equal(one.x[name], two.x[name]) for name in one.x)
    assert np.array_equal(one.weight, two.weight)


def test_chains_of_near_copies_that_evidence_divides_have_errors_that_hold(seeds=25):
    """Evidence in the middle divides a chain of near copies: both halves are closed blocks.

    Their conditional means are exact, so that gaps of three standard errors widen the errors. With
    an error for states that the draws have not shown, means were off by up to ten of their errors.
    """
    b = pgm.GraphBuilder()
    for i in range(12):
        b.variable(f"x{i}", states=2)
    b.conditional("x0", (), [0.3, 0.7])
    for i in range(1, 12):
        b.conditional(f"x{i}", (f"x{i - 1}",), [[0.9993, 0.0007], [0.0004, 0.9996]])
    model, evidence = b.build(), {"x5": 0}
    exact, held, worst = pgm.infer(model, evidence).mean, [], 0.0
    target = model.given(evidence)
    for seed in range(seeds):
        r = pgm.MCMC().run(target, ("marginals",), rng=seed)
        for name, mean in exact.items() if r.status.good else ():
            error = np.reshape(r.stats["mcse"][name], np.shape(mean))
            gap = np.abs(np.asarray(r.answers["mean"][name]) - mean)[error > 0] / error[error > 0]
            held, worst = [*held, *(gap < 1.96)], max(worst, float(gap.max()))
    assert len(held) > 20 and np.mean(held) > 0.85 and worst < 4
