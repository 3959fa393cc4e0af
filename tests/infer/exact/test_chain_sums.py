"""Sums over paths of chains, by formulas over all paths and by the junction tree."""

import itertools

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.base.errors import InternalError
from pgmengine.infer.exact.long_chains import chain_sums as routine
from pgmengine.infer.exact.long_chains.chain_sums import Packing, chain_sums, log_chain_sums


def by_paths(field, transition):
    """Log Z, marginals and pairs of one chain by enumeration; `field` is (steps, states)."""
    steps, states = field.shape
    paths = list(itertools.product(range(states), repeat=steps))
    logs = np.array(
        [
            sum(field[t, p[t]] for t in range(steps))
            + sum(transition[p[t - 1], p[t]] for t in range(1, steps))
            for p in paths
        ]
    )
    log_z = np.logaddexp.reduce(logs)
    prob = np.exp(logs - log_z)
    marginals, pairs = np.zeros((steps, states)), np.zeros((states, states))
    for path, share in zip(paths, prob):
        for t in range(steps):
            marginals[t, path[t]] += share
            if t:
                pairs[path[t - 1], path[t]] += share
    return log_z, marginals, pairs


def question(seed, states, size=1.0, chains=9, longest=5):
    """Random chains, some without a step, some with one step: (fields of each, transitions)."""
    rng = np.random.default_rng(seed)
    lengths = np.append(rng.integers(0, longest + 1, chains), [0, 1, 1, longest])
    fields = [rng.normal(size=(n, states)) * size for n in rng.permutation(lengths)]
    return fields, rng.normal(size=(states, states)) * size


def agrees(found, packing, fields, transition, exact=1e-9):
    """Whether sums are those by enumeration."""
    begin = np.cumsum([0] + [len(field) for field in fields])
    plain = np.full_like(found.marginals, np.nan)
    plain[packing.source] = found.marginals
    pairs = np.zeros_like(transition)
    for i, field in enumerate(fields):
        if len(field):
            log_z, marginals, of_chain = by_paths(field, transition)
            pairs += of_chain
            np.testing.assert_allclose(found.log_z[i], log_z, rtol=exact, atol=exact)
            np.testing.assert_allclose(plain[begin[i] : begin[i + 1]], marginals, atol=exact)
        else:
            assert found.log_z[i] == 0
    np.testing.assert_allclose(found.pairs, pairs, atol=exact)


@pytest.mark.parametrize("routine", [chain_sums, log_chain_sums])
@pytest.mark.parametrize("states", [1, 2, 4])
@pytest.mark.parametrize("size", [0.0, 1.0, 20.0])
def test_sums_are_those_over_all_paths(routine, states, size, cases=5):
    for seed in range(cases):
        fields, transition = question(seed, states, size)
        packing = Packing.of(np.array([len(field) for field in fields]))
        found = routine(np.concatenate(fields)[packing.source], transition, packing)
        agrees(found, packing, fields, transition)


@one_test_over("wide", ["field", "transition", "both"])
def test_weights_of_any_size_give_the_same_sums(wide, cases=5):
    """Beyond the range of scaled messages, chains go the way of logarithms."""
    for seed in range(cases):
        fields, transition = question(seed, 3)
        if wide != "transition":
            fields = [1e4 * field for field in fields]
        if wide != "field":
            transition = 1e4 * transition
        packing = Packing.of(np.array([len(field) for field in fields]))
        found = chain_sums(np.concatenate(fields)[packing.source], transition, packing)
        agrees(found, packing, fields, transition)


@pytest.mark.parametrize("share", [0.5, 0.999, 1.001, 2.0])
def test_scaled_messages_hold_up_to_the_limit_of_their_range(share, monkeypatch):
    """The paths that scaled messages take last, and the first that logarithms take."""
    limit = share * routine.MAX_LOG_RANGE
    rng = np.random.default_rng(0)
    fields = [limit * rng.integers(0, 2, (n, 3)).astype(float) for n in (5, 4, 1)]
    transition = -limit * (1 - np.eye(3)[[1, 2, 0]])
    packing = Packing.of(np.array([5, 4, 1]))
    ways = []
    plain = routine.log_chain_sums
    monkeypatch.setattr(routine, "log_chain_sums", lambda *q: ways.append(1) or plain(*q))
    found = chain_sums(np.concatenate(fields)[packing.source], transition, packing)
    agrees(found, packing, fields, transition)
    assert len(ways) == (share > 1)


def test_sums_are_those_of_the_junction_tree(steps=30, states=6, rows=4):
    rng = np.random.default_rng(3)
    field, transition = rng.normal(size=(rows, steps, states)), rng.normal(size=(states, states))
    b = pgm.GraphBuilder()
    y = b.variable("y", states=[str(k) for k in range(states)], shape=steps)
    b.table((y[:-1], y[1:]), np.exp(transition), name="transition")
    tree = pgm.infer(
        b.build(),
        {},
        soft={"y": field},
        want=("log_z", "marginals", "gradient"),
        method=pgm.Exact(),
    )
    packing = Packing.of(np.full(rows, steps))
    found = chain_sums(field.reshape(-1, states)[packing.source], transition, packing)
    plain = np.empty_like(found.marginals)
    plain[packing.source] = found.marginals
    np.testing.assert_allclose(found.log_z, tree.log_z, rtol=1e-12)
    np.testing.assert_allclose(plain.reshape(field.shape), tree.prob["y"], atol=1e-12)
    np.testing.assert_allclose(found.pairs, tree.gradient["transition"], atol=1e-10)


@one_test_over("lengths", [[], [0], [0, 0], [1], [3, 0, 1]])
def test_packing_has_every_step_once(lengths):
    packing = Packing.of(np.array(lengths, dtype=int))
    assert sorted(packing.source) == list(range(sum(lengths)))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    assert (owner[packing.source] == packing.chain).all()
    for now, before in packing.steps():
        assert (packing.chain[now] == packing.chain[before]).all()
        assert (packing.source[now] == packing.source[before] + 1).all()
    found = chain_sums(np.zeros((sum(lengths), 2)), np.zeros((2, 2)), packing)
    np.testing.assert_allclose(found.log_z, np.log(2.0) * np.array(lengths), atol=1e-12)


def test_sums_without_a_number_are_refused():
    with pytest.raises(InternalError, match="marginals of a step"):
        chain_sums(np.full((2, 2), np.nan), np.zeros((2, 2)), Packing.of(np.array([2])))
