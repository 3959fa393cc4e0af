"""Elimination, and the default method, against enumeration of random models of every kind."""

import functools

import limits
import numpy as np
import pytest
import random_graphs
from brute import grid
from loops import in_blocks
from random_graphs import (
    Oracle,
    as_arguments,
    as_hints,
    draw_question,
    random_causes,
    random_graph,
    shifted,
)
from scipy.special import softmax
from scipy.stats import chi2, norm

import pgmengine as pgm

EXACT = {"rtol": 1e-10, "atol": 1e-10}
# Central differences with step 1e-4 have errors of about 1e-8 times the third derivative.
DIFFERENCE = {"rtol": 1e-5, "atol": 1e-5, "step": 1e-4}
FALSE_ALARM = 1e-6
METHODS = {"elimination": pgm.Elimination(), "small tables": pgm.Elimination(), "default": None}


seeds = in_blocks("seed", 2000, 50)
some_seeds = in_blocks("seed", 400, 20)
few_seeds = in_blocks("seed", 60, 6)
methods = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(autouse=True)
def tables_of_the_method(request, monkeypatch):
    """Small tables of noisy-or units, whatever they cost, in tests with this method."""
    if getattr(request.node, "callspec", None) is None:
        return
    if request.node.callspec.params.get("method") == "small tables":
        limits.small_tables(monkeypatch)


@functools.lru_cache(maxsize=4)
def question(seed, most_states=2**12, leaves=False):
    """A random graph with rows of evidence, its model, the oracle of each row, and arguments.

    Every third one is a network of noisy-or units.
    """
    with_causes = seed % 3 == 2 and not leaves
    graph = (
        random_causes(seed, most_states) if with_causes else random_graph(seed, most_states, leaves)
    )
    asked = draw_question(graph, seed, rows=1 + seed % 4)
    arguments = {
        "evidence": as_arguments(graph, asked, 0),
        "soft": as_hints(graph, asked),
        "do": as_arguments(graph, asked, 2),
    }
    return graph, graph.build(), asked, [Oracle(graph, *row) for row in asked], arguments


def row_of(answer, i, count, axes):
    """Answers without evidence have no rows axis, or one row for all."""
    answer = np.asarray(answer)
    if answer.ndim == axes:
        return answer
    return answer[min(i, len(answer) - 1)]


def check_log_z_and_marginals(graph, asked, oracles, r, log_prob=True):
    assert r.kind == "exact"
    for i, oracle in enumerate(oracles):
        last = len(r.log_z) - 1
        np.testing.assert_allclose(r.log_z[min(i, last)], oracle.log_z, **EXACT)
        if log_prob:
            prior = Oracle(graph, do=asked[i][2]).log_z
            np.testing.assert_allclose(r.log_prob[min(i, last)], oracle.log_z - prior, **EXACT)
        for x in graph.layers.values():
            axes = 1 if x.width == 1 else 2
            mean = row_of(r.mean[_layer(r, x)], i, len(oracles), axes)
            if not x.named:
                np.testing.assert_allclose(np.ravel(mean), oracle.mean(x.name), **EXACT)
            if x.unit.support is None:
                continue
            if not x.named:
                prob = row_of(r.prob[x.name], i, len(oracles), 2)
            for j in range(x.size):
                truth = oracle.prob((x.name, j))
                found = r.marginal(graph.member((x.name, j)))
                found = [row_of(p, i, len(oracles), 0) for p in found.values()]
                np.testing.assert_allclose(found, truth, **EXACT)
                if not x.named:
                    np.testing.assert_allclose(prob[j], truth, **EXACT)


def _layer(r, x):
    """The layer of a variable is one of the layers of its model."""
    if x.name in r.mean:
        return x.name
    return next(n for n, v in r.target.model.structure.layers.items() if x.name in (v.labels or ()))


@seeds
@methods
def test_log_z_log_prob_and_marginals(seed, method):
    graph, model, asked, oracles, arguments = question(seed)
    want = ("log_z", "log_prob", "marginals")
    r = pgm.infer(model, want=want, method=METHODS[method], **arguments)
    check_log_z_and_marginals(graph, asked, oracles, r)
    # Only messages to the root are passed here.
    r = pgm.infer(model, want=("log_z",), method=METHODS[method], **arguments)
    np.testing.assert_allclose(
        np.broadcast_to(r.log_z, len(oracles)), [o.log_z for o in oracles], **EXACT
    )


@some_seeds
def test_leaves_with_infinitely_many_values(seed):
    graph, model, asked, oracles, arguments = question(10_000 + seed, 2**7, leaves=True)
    r = pgm.infer(model, want=("log_z", "log_prob", "marginals"), **arguments)
    check_log_z_and_marginals(graph, asked, oracles, r)


@some_seeds
@methods
@pytest.mark.parametrize("beta", (0.37, 0.0))
def test_beta_below_one(seed, method, beta):
    graph, model, asked, _, arguments = question(20_000 + seed)
    target = model.given(beta=beta, **arguments)
    run = (METHODS[method] or pgm.Exact()).run(target, ("log_z", "marginals"))
    oracles = [Oracle(graph, *row, beta=beta) for row in asked]
    for i, oracle in enumerate(oracles):
        np.testing.assert_allclose(run.log_z[min(i, len(run.log_z) - 1)], oracle.log_z, **EXACT)
        for x in graph.layers.values():
            if not x.named:
                mean = row_of(run.mean[x.name], i, len(oracles), 1 if x.width == 1 else 2)
                np.testing.assert_allclose(np.ravel(mean), oracle.mean(x.name), **EXACT)


@some_seeds
@methods
def test_pairs_and_joints(seed, method):
    graph, model, asked, oracles, arguments = question(30_000 + seed)
    rng = np.random.default_rng(seed)
    some = rng.permutation(len(graph.units))[:4]
    places = [graph.units[k] for k in some]
    sets = [places[:1], places[:2], places]
    joints = [pgm.Joint(*(graph.member(u) for u in s)) for s in sets]
    r = pgm.infer(model, want=("pairs", *joints), method=METHODS[method], **arguments)
    for i, oracle in enumerate(oracles):
        for s in sets:
            key = tuple(graph.member(u) for u in s)
            found = r.joint[key if len(key) > 1 else key]
            found = row_of(found, i, len(oracles), len(s))
            np.testing.assert_allclose(found, oracle.joint(*s), **EXACT)
        for a, b, weight in graph.couples:
            found = row_of(r.pairs[f"{a}-{b}"], i, len(oracles), 2)
            stored = ~np.isnan(found)
            # Entries without a parameter are NaN; those of a weight that is not 0 never are.
            assert stored[(np.triu(weight) if a == b else weight) != 0].all()
            np.testing.assert_allclose(found[stored], oracle.pairs(a, b)[stored], **EXACT)


@some_seeds
@methods
def test_the_mode_has_the_largest_weight(seed, method):
    graph, model, asked, oracles, arguments = question(40_000 + seed)
    r = pgm.infer(model, want=("mode",), method=METHODS[method], **arguments)
    for i, oracle in enumerate(oracles):
        best = {}
        for x in graph.layers.values():
            layer = _mode_layer(r, x)
            value = row_of(r.mode[layer], i, len(oracles), 1 if x.width == 1 else 2)
            if x.named:
                labels = r.target.model.structure.layers[layer].labels
                value = value[list(labels).index(x.name)]
            best[x.name] = value
        np.testing.assert_allclose(oracle.log_weight_of(best), oracle.log_weight.max(), **EXACT)


@some_seeds
@methods
def test_the_mode_with_leaves_of_infinitely_many_values(seed, method, monkeypatch, step=0.05):
    """The mode is above all states of a grid, by less than the curvature allows between them."""
    graph = random_graph(70_000 + seed, 2**7, leaves=True)
    asked = draw_question(graph, seed)
    arguments = {
        "evidence": as_arguments(graph, asked, 0),
        "soft": as_hints(graph, asked),
        "do": as_arguments(graph, asked, 2),
    }
    r = pgm.infer(graph.build(), want=("mode", "log_z"), method=METHODS[method], **arguments)
    best, (evidence, soft, do) = {}, asked[0]
    for x in graph.layers.values():
        layer = _mode_layer(r, x)
        value = row_of(r.mode[layer], 0, 1, 1 if x.width == 1 else 2)
        if x.named:
            value = value[list(r.target.model.structure.layers[layer].labels).index(x.name)]
        best[x.name] = value
    at = {(n, 0): float(np.ravel(v)[0]) for n, v in best.items() if n.startswith("g")}
    found = Oracle(graph, {**evidence, **at}, soft, do).log_weight_of(best)

    def dense(unit):
        if unit.support is not None:
            return grid(unit)
        ends = 1.0 if isinstance(unit, pgm.MultiValued) else 4.0
        values = np.linspace(-ends, ends, round(2 * ends / step) + 1)
        return values[:, None], np.array([random_graphs._log_h(unit, v) for v in values])

    monkeypatch.setattr(random_graphs, "grid", dense)
    most = Oracle(graph, evidence, soft, do).log_weight.max()
    # A Gaussian of standard deviation 0.7 falls by (step / 2)^2 / (2 0.7^2) between two states.
    assert most - 1e-10 <= found <= most + len(at) * step**2 / (8 * 0.7**2) + 1e-10


def _mode_layer(r, x):
    layers = r.target.model.structure.layers
    return next(n for n, v in layers.items() if n == x.name or x.name in (v.labels or ()))


def log_z_after(graph, asked, change, amount):
    other = shifted(graph, lambda g: change(g, amount))
    return sum(Oracle(other, *row).log_z for row in asked)


def parameters(graph, rng):
    """(key of the gradient, index, change) of a few parameters: biases, weights and tables."""
    for x in graph.layers.values():
        taken = [t.scope[-1] for t in graph.tables if t.conditional]
        i, k = int(rng.integers(x.size)), int(rng.integers(x.width))
        if not x.named and (x.name, i) not in taken:
            index = (i, k) if x.width > 1 else (i,)
            if isinstance(x.unit, pgm.NoisyOr) and x.bias[i, k] == 0:
                # There is a slope from the right only; see test_noisy_or_leaks.py.
                continue

            def bias(g, by, name=x.name, i=i, k=k):
                g.layers[name].bias[i, k] += by

            yield f"{x.name}.bias", index, bias
    for link, kind in ((graph.couples, "couples"), (graph.causes, "causes")):
        for n, (a, b, w) in enumerate(link):
            stored = np.argwhere(np.triu(w) if kind == "couples" and a == b else w)
            if not len(stored):
                continue
            i, j = stored[rng.integers(len(stored))]

            def weight(g, by, kind=kind, n=n, i=i, j=j):
                a, b, w = getattr(g, kind)[n]
                w[i, j] += by
                if kind == "couples" and a == b:
                    w[j, i] += by

            yield f"{a}{'-' if kind == 'couples' else '->'}{b}.weight", (i, j), weight
    for n, t in enumerate(graph.tables):
        if t.many is not None:
            continue
        places = np.argwhere(t.values > 0)
        index = tuple(places[rng.integers(len(places))])

        def table(g, by, n=n, index=index):
            t = g.tables[n]
            with np.errstate(divide="ignore"):
                log = np.log(t.values)
            log[index] += by
            # Conditionals are normalised by their rows.
            t.values = softmax(log, axis=-1) if t.conditional else np.exp(log)

        def text(u):
            return u[0] if graph.layers[u[0]].named else f"{u[0]}[{u[1]}]"

        *parents, child = (text(u) for u in t.scope)
        name = f"{child}|{','.join(parents)}" if t.conditional else ",".join([*parents, child])
        yield f"{name}.table", index, table


@some_seeds
@methods
def test_gradient_against_differences(seed, method):
    graph, model, asked, oracles, arguments = question(50_000 + seed, 2**9)
    r = pgm.infer(model, want=("gradient",), method=METHODS[method], **arguments)
    # A question without evidence has one row.
    asked = asked if any(any(row) for row in asked) else asked[:1]
    step = DIFFERENCE["step"]
    for name, index, change in parameters(graph, np.random.default_rng(seed)):
        ends = [log_z_after(graph, asked, change, s * step) for s in (1, -1)]
        gradient = r.gradient[name]
        found = (gradient.toarray() if hasattr(gradient, "toarray") else gradient)[index]
        np.testing.assert_allclose(
            found,
            (ends[0] - ends[1]) / (2 * step),
            rtol=DIFFERENCE["rtol"],
            atol=DIFFERENCE["atol"],
            err_msg=f"{name} {index}",
        )


def chi_square(states, p):
    """Whether the counts of states are those of probabilities p, states below 5 draws together."""
    counts = np.bincount(states, minlength=len(p))
    assert not counts[p == 0].any()
    order = np.argsort(p)
    few = np.cumsum(p[order]) * len(states) < 5
    cells = np.append(np.flatnonzero(~few), [])
    expected = np.append(p[order][~few], p[order][few].sum()) * len(states)
    seen = np.append(counts[order][~few], counts[order][few].sum())
    keep = expected > 0
    assert len(cells) == 0 or (seen[~keep] == 0).all()
    value = ((seen[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    return value, chi2.isf(FALSE_ALARM / 8, max(keep.sum() - 1, 1))


@few_seeds
@methods
def test_samples_have_the_joint_distribution(seed, method):
    """Pearson's statistic of all complete states; a false alarm has probability 1e-6 a test."""
    graph, model, asked, oracles, arguments = question(60_000 + seed, 2**6)
    drawing = pgm.Elimination(draws=20_000) if METHODS[method] else pgm.Exact(draws=20_000)
    r = pgm.infer(model, want=("samples",), method=drawing, rng=seed, **arguments)
    for i, oracle in enumerate(oracles):
        values = []
        for x in graph.layers.values():
            layer = _mode_layer(r, x)
            draws = r.samples[layer]
            draws = draws[:, min(i, draws.shape[1] - 1)]
            if x.named:
                labels = list(r.target.model.structure.layers[layer].labels)
                draws = draws[:, labels.index(x.name)]
            values.append(draws.reshape(len(draws), -1))
        values = np.concatenate(values, axis=1)
        grid = np.concatenate([oracle.flat(n) for n in graph.layers], axis=1)
        distance = ((values[:, None] - grid[None]) ** 2).sum(axis=2)
        assert (distance.min(axis=1) < 1e-12).all()
        value, limit = chi_square(distance.argmin(axis=1), oracle.p)
        assert value < limit


def test_samples_of_units_that_are_summed_out(*, draws=4000):
    """Gaussian units are drawn given the drawn spins of the same draw and row.

    Their residuals are standard normal: the sum and the sum of squares have a normal and a
    chi-square distribution; a false alarm has probability 1e-6 in all.
    """
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 3)
    b.layer("y", pgm.Gaussian(), 2, bias=[0.5, -0.2])
    b.couple("x", "x", np.array([[0.0, 0.7, 0.0], [0.7, 0.0, -0.4], [0.0, -0.4, 0.0]]))
    weight = np.array([[0.9, 0.0], [-0.6, 0.3], [0.0, 1.2]])
    b.couple("x", "y", weight)
    evidence = {"x": [[1.0, np.nan, np.nan], [-1.0, np.nan, np.nan]]}
    method = pgm.Elimination(draws=draws)
    r = pgm.infer(b.build(), evidence, want=("samples", "log_z"), method=method, rng=1)
    x, y = r.samples["x"], r.samples["y"]
    assert x.shape == (draws, 2, 3) and (x[:, :, 0] == [1.0, -1.0]).all()
    rest = y - (x @ weight + [0.5, -0.2])
    each = FALSE_ALARM / 8
    for row in range(2):
        for unit in range(2):
            values = rest[:, row, unit]
            assert chi2.isf(1 - each / 2, draws) < (values**2).sum() < chi2.isf(each / 2, draws)
            assert abs(values.sum()) < norm.isf(each / 2) * np.sqrt(draws)


def test_a_model_without_possible_states_is_told():
    b = pgm.GraphBuilder()
    b.variable("a")
    b.table(("a",), [1.0, 0.0])
    b.table(("a",), [0.0, 1.0])
    with pytest.raises(pgm.PgmError, match="tables contradict each other"):
        pgm.infer(b.build(), {"a": 0}, want=("log_prob",))
