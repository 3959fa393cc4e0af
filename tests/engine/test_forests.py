"""Random forests of units, drawn exactly after each sweep by TreeGibbs.

The reference sums over all joint states of a forest, and draws its units one after the other on the
same random numbers. Invariance, importance weights and what a chain does not depend on are tested
with those of the other kernels in test_tabled_sweeps.py.
"""

from itertools import product

import numpy as np
import pytest
from brute import Brute
from invariance import ALARM, CAUGHT, exact_start, p_value
from loops import one_test_over
from test_tabled_sweeps import IN_LANES, graphs, listing, mixed_rows, most  # noqa: F401
from tiny import draw_row, mixed_target
from twin import LanesReplay, key_of, threefry

import pgmengine as pgm
from pgmengine.engine import reference
from pgmengine.engine.chains import engine_for, start
from pgmengine.engine.kernels import draws_forests
from pgmengine.engine.single_site.sweeps import TabledChains
from pgmengine.model.graph.unit_graph import Rows, UnitGraph, unit_graph

CHAINS = 40_000


def forest(near, visit, key, sweep):
    """The order of the units of a forest, parents first, and their parents; -1 for roots."""
    count = np.arange(len(visit), dtype=np.uint64)
    fixed = np.ones_like(count)
    words = threefry(np.stack([count, 0 * fixed, sweep * fixed, 2 * fixed], axis=1), key)
    bits = words[:, 0].astype(np.uint64) << np.uint64(32) | words[:, 1].astype(np.uint64)
    queue = []
    for i, unit in enumerate(visit.tolist()):
        other = int(bits[i] % np.uint64(i + 1))
        queue.append(unit)
        queue[i], queue[other] = queue[other], unit
    trees = {}
    for unit in queue:
        met = [trees[v] for v in near.of(unit).tolist() if v in trees]
        if len({id(tree) for tree in met}) == len(met):
            joined = {unit}.union(*met)
            trees |= dict.fromkeys(joined, joined)
    order, above = [], {}
    for root in queue:
        if root not in trees or root in above:
            continue
        above[root], line = -1, [root]
        while line:
            order.append(unit := line.pop(0))
            for v in near.of(unit).tolist():
                if v in trees and v not in above:
                    above[v] = unit
                    line.append(v)
    return np.array(order), above


def joint_log_weights(target, x, order):
    """The joint states (states, units) of a forest, and their log weights (states, rows)."""
    s, names = target.structure, list(target.structure.layers)
    place = [(n, i) for n in names for i in range(s.layers[n].size)]
    own = [place[unit] for unit in order]
    states = np.array(list(product(*(range(s.state_counts[n]) for n, _ in own))))
    weights = np.empty((len(states), target.rows))
    for joint, out in zip(states, weights, strict=True):
        y = {n: v.copy() for n, v in x.items()}
        held = np.zeros(target.rows, dtype=bool)
        for (name, i), state in zip(own, joint, strict=True):
            layer = s.layers[name]
            value = layer.unit.support.reshape(-1, layer.unit.width)[state]
            columns = layer.columns(np.array([i]))
            held |= ~target.free[name][:, i] & (x[name][:, columns] != value).any(axis=1)
            y[name][:, columns] = value
        out[:] = np.where(held, -np.inf, target.log_density(y))
    return states, weights


def after_forest(target, x, key, sweep):
    """The states after the draw of the forest of a sweep, by the sum over all its joint states.

    The states of a row whose joint states are all impossible are NaN.
    """
    s, names = target.structure, list(target.structure.layers)
    moving = np.concatenate([target.free[n].any(axis=0) for n in names])
    states = np.concatenate([np.full(s.layers[n].size, s.state_counts[n]) for n in names])
    order_of = TabledChains(target, pgm.Gibbs(), x, np.random.default_rng(0)).visit
    visit = order_of[(moving & (states > 1))[order_of]]
    order, _ = forest(unit_graph(target.model).near, visit, key, sweep)
    joint, weights = joint_log_weights(target, x, order)
    with np.errstate(invalid="ignore"):
        weights = np.exp(weights - weights.max(axis=0))
    out = {n: s.layers[n].states(x[n]).astype(float) for n in names}
    place = [(n, i) for n in names for i in range(s.layers[n].size)]
    for row in range(target.rows):
        left = np.ones(len(joint), dtype=bool)
        for i, unit in enumerate(order):
            word = threefry(np.array([[i // 4, sweep, row, 1]]), key)[0, i % 4]
            u = ((int(word) >> 1) + 0.5) * 2.0**-31
            name, index = place[unit]
            if np.isnan(weights[:, row]).any():
                out[name][row, index] = np.nan
                continue
            share = np.bincount(joint[left, i], weights[left, row], states[unit])
            total = np.cumsum(share)
            state = int((total < u * total[-1]).sum())
            # A unit that is held has one state with a weight.
            left &= joint[:, i] == state
            out[name][row, index] = state
    return out


def parted(target, seed):
    """The rows that differ from the reference after a sweep and the draw of its forest."""
    x = start(target, np.random.default_rng(0))
    ours = TabledChains(target, pgm.TreeGibbs(), x, np.random.default_rng(seed))
    theirs = reference.PlainChains(target, pgm.Gibbs(), x, LanesReplay(target, key_of(seed)))
    ours.sweep(1)
    theirs.sweep(1)
    truth, found = after_forest(target, theirs.values(), key_of(seed), 0), ours.states()
    known = {n: np.isnan(v).any(axis=1) for n, v in truth.items()}
    differ = np.zeros(target.rows, dtype=bool)
    for name, value in truth.items():
        differ |= ~known[name] & (found[name] != value).any(axis=1)
    assert np.mean(list(known.values())) < 0.5
    return differ


def check_reference(target):
    """Equal states but for one tie of single precision."""
    first = parted(target, 8)
    assert first.sum() <= 1
    assert not first.any() or not (first & parted(target, 9)).any()


@listing
@one_test_over("tiny_model", IN_LANES)
def test_forests_are_those_of_the_reference(tiny_model, most):  # noqa: F811
    """Couplings, arrows and their normalisers, tables with zeros, masks, beta, soft evidence."""
    check_reference(mixed_target(tiny_model, 10))


@pytest.mark.long
@one_test_over("number", range(40))
def test_forests_of_random_graphs_are_those_of_the_reference(number):
    """Interventions, conditionals, references at beta = 0, and factors of many places."""
    seed, graph = graphs(40)[number]
    check_reference(mixed_rows(seed, graph, 12))


def hard(zeros):
    """Six units of three states that must equal their neighbours, and two others in a table."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(1)
    names = [b.variable(f"x{i}", ["a", "b", "c"]) for i in range(6)]
    for one, two in zip(names, names[1:], strict=False):
        b.table([one, two], np.where(np.eye(3) > 0, 1 + rng.random((3, 3)), zeros))
    others = [b.variable(f"y{i}", ["a", "b", "c"]) for i in range(2)]
    b.table([names[0], *others], rng.random((3, 3, 3)) + 0.2)
    return b.build()


def test_units_that_hold_each_other_move_together():
    """No unit of six can change alone, and Gibbs sampling never does."""
    model, want = hard(0.0), ("marginals",)
    truth = pgm.infer(model, want=want, method=pgm.Exact())
    by_trees, alone = (
        pgm.infer(model, want=want, method=pgm.MCMC(kernel=k, draws=2000, warmup=100), rng=0)
        for k in (pgm.TreeGibbs(), pgm.Gibbs())
    )
    assert by_trees.status.good and not alone.status.good
    error = by_trees.prob["x2"] - truth.prob["x2"]
    # Half a unit is the largest standard deviation of a state, and 1,000 draws are effective.
    assert by_trees.stats["energy_ess"].min() > 1000 and np.abs(error).max() < 6 * 0.5 / 1000**0.5


def test_a_kernel_that_draws_forests_says_so_itself():
    class Derived(pgm.TreeGibbs):
        """A transition of its own, which compiled sweeps do not know."""

    target = hard(0.1).given()
    assert draws_forests(pgm.TreeGibbs()) and not draws_forests(pgm.Gibbs())
    assert not draws_forests(Derived())
    assert engine_for(target, Derived()) is reference.PlainChains
    assert engine_for(pgm.rbm(4, 3, rng=0).given(), pgm.TreeGibbs()) is TabledChains


# Broken forests: each must be caught by the test of invariance that the real one passes.


def after_sweeps(tiny_model):
    """The p-value of the joint states after sweeps from an exact start."""
    rng, row = np.random.default_rng(5), draw_row(tiny_model, np.random.default_rng(11), 0.0)
    truth = Brute(tiny_model, row)
    target = tiny_model.build().given().take(np.zeros(CHAINS, dtype=int))
    chains = TabledChains(target, pgm.TreeGibbs(), exact_start(truth, CHAINS, rng), rng)
    chains.sweep(2)
    return p_value(truth, chains.values())


@pytest.mark.parametrize("name", ["tables and couplings", "rbm", "sbn"])
def test_cycles_in_a_forest_are_caught(name, monkeypatch):
    """Where some neighbours are overlooked, units of a forest are in factors with others of it."""
    tiny_model = next(m for m in IN_LANES if m.name == name)
    assert after_sweeps(tiny_model) > ALARM
    real = UnitGraph.near.func

    def every_second(self):
        found = real(self)
        kept = (found.rows + found.columns) % 2 == 0
        return Rows.of_pairs(found.rows[kept], found.columns[kept], self.structure.units)

    monkeypatch.setattr(UnitGraph, "near", property(every_second))
    assert after_sweeps(tiny_model) < CAUGHT


def test_every_forest_has_no_cycle_and_cannot_be_larger():
    """As a graph of networkx, of lattices and of tables of three places."""
    import networkx as nx

    side = np.arange(36).reshape(6, 6)
    graph = nx.Graph([*zip(side[1:].ravel(), side[:-1].ravel(), strict=True)])
    graph.add_edges_from(zip(side[:, 1:].ravel(), side[:, :-1].ravel(), strict=True))
    graph.add_edges_from([(0, 35), (0, 20), (20, 35)])
    ends = np.array([e for a, b in graph.edges for e in ((a, b), (b, a))]).T
    near, visit = Rows.of_pairs(*ends, 36), np.arange(36)
    for sweep in range(5):
        order, above = forest(near, visit, key_of(3), sweep)
        chosen = graph.subgraph(order.tolist())
        assert nx.is_forest(chosen)
        assert {frozenset((v, a)) for v, a in above.items() if a >= 0} == {
            frozenset(e) for e in chosen.edges
        }
        for v in set(graph) - set(order.tolist()):
            assert not nx.is_forest(graph.subgraph([*order.tolist(), v]))
