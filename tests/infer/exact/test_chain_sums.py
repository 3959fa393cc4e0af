"""Sums over paths of chains, by formulas over all paths and by the junction tree."""

import itertools

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.base.errors import InternalError
from pgmengine.infer.exact.long_chains import chain_sums as routine
from pgmengine.infer.exact.long_chains.chain_sums import (
    Packing,
    best_paths,
    chain_sums,
    log_best_paths,
    log_chain_sums,
)


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


def lengths_of(fields):
    return np.array([len(field) for field in fields])


def agrees(found, fields, transition, weights, exact=1e-9):
    """Whether sums are those by enumeration."""
    begin = np.cumsum([0] + [len(field) for field in fields])
    pairs = np.zeros_like(transition)
    for i, field in enumerate(fields):
        if len(field):
            log_z, marginals, of_chain = by_paths(field, transition)
            pairs += weights[i] * of_chain
            np.testing.assert_allclose(found.log_z[i], log_z, rtol=exact, atol=exact)
            np.testing.assert_allclose(
                found.marginals[begin[i] : begin[i + 1]], marginals, atol=exact
            )
        else:
            assert found.log_z[i] == 0
    np.testing.assert_allclose(found.pairs, pairs, atol=exact)


@pytest.mark.parametrize("routine", [chain_sums, log_chain_sums])
@pytest.mark.parametrize("states", [1, 2, 4])
@pytest.mark.parametrize("size", [0.0, 1.0, 20.0])
def test_sums_are_those_over_all_paths(routine, states, size, cases=5):
    for seed in range(cases):
        fields, transition = question(seed, states, size)
        weights = np.random.default_rng(seed).integers(0, 4, len(fields)).astype(float)
        found = routine(np.concatenate(fields), transition, lengths_of(fields), weights)
        agrees(found, fields, transition, weights)


@one_test_over("wide", ["field", "transition", "both"])
def test_weights_of_any_size_give_the_same_sums(wide, cases=5):
    """Beyond the range of scaled messages, chains go the way of logarithms."""
    for seed in range(cases):
        fields, transition = question(seed, 3)
        if wide != "transition":
            fields = [1e4 * field for field in fields]
        if wide != "field":
            transition = 1e4 * transition
        found = chain_sums(np.concatenate(fields), transition, lengths_of(fields))
        agrees(found, fields, transition, np.ones(len(fields)))


@pytest.mark.parametrize("share", [0.5, 0.999, 1.001, 2.0])
def test_scaled_messages_hold_up_to_the_limit_of_their_range(share, monkeypatch):
    """The paths that scaled messages take last, and the first that logarithms take."""
    limit = share * routine.MAX_LOG_RANGE
    rng = np.random.default_rng(0)
    fields = [limit * rng.integers(0, 2, (n, 3)).astype(float) for n in (5, 4, 1)]
    transition = -limit * (1 - np.eye(3)[[1, 2, 0]])
    ways = []
    plain = routine.log_chain_sums
    monkeypatch.setattr(routine, "log_chain_sums", lambda *q: ways.append(1) or plain(*q))
    found = chain_sums(np.concatenate(fields), transition, lengths_of(fields))
    agrees(found, fields, transition, np.ones(3))
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
    found = chain_sums(field.reshape(-1, states), transition, np.full(rows, steps))
    np.testing.assert_allclose(found.log_z, tree.log_z, rtol=1e-12)
    np.testing.assert_allclose(found.marginals.reshape(field.shape), tree.prob["y"], atol=1e-12)
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
    found = chain_sums(np.zeros((sum(lengths), 2)), np.zeros((2, 2)), np.array(lengths, dtype=int))
    np.testing.assert_allclose(found.log_z, np.log(2.0) * np.array(lengths), atol=1e-12)


def test_sums_without_a_number_are_refused():
    with pytest.raises(InternalError, match="marginals of a step"):
        chain_sums(np.full((2, 2), np.nan), np.zeros((2, 2)), np.array([2]))


@pytest.mark.parametrize("routine", [chain_sums, log_chain_sums])
def test_impossible_states_and_transitions(routine, cases=20):
    """Chains without a possible path have log Z -inf and no marginals."""
    impossible = 0
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        fields, transition = question(seed, 3, 5.0)
        transition[rng.random((3, 3)) < 0.4] = -np.inf
        for field in fields:
            field[rng.random(field.shape) < 0.2] = -np.inf
        found = routine(np.concatenate(fields), transition, lengths_of(fields), np.ones(13))
        begin, pairs = np.cumsum([0, *lengths_of(fields)]), np.zeros((3, 3))
        for i, field in enumerate(fields):
            with np.errstate(invalid="ignore"):
                log_z, marginals, of_chain = by_paths(field, transition)
            mine = found.marginals[begin[i] : begin[i + 1]]
            if np.isneginf(log_z):
                impossible += 1
                assert found.log_z[i] == -np.inf and not mine.any()
            else:
                assert found.log_z[i] == pytest.approx(log_z, rel=1e-9, abs=1e-9)
                np.testing.assert_allclose(mine, marginals, atol=1e-9)
                pairs += of_chain
        np.testing.assert_allclose(found.pairs, pairs, atol=1e-9)
    assert impossible


@one_test_over("far", [100.0, 229.0])
def test_paths_that_alone_go_on_are_not_lost(far, steps=12):
    """All mass is on a state that ends, and the only path has e^-2748 of it."""
    field = np.tile([0.0, -far], (steps, 1))
    field[-1] = [-np.inf, 0.0]
    transition = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    found = chain_sums(field, transition, np.array([steps]))
    assert found.log_z[0] == pytest.approx(-far * (steps - 1), rel=1e-12)
    np.testing.assert_allclose(found.marginals, np.tile([0.0, 1.0], (steps, 1)))
    assert found.pairs[1, 1] == pytest.approx(steps - 1)


@pytest.mark.parametrize("states", [1, 2, 4, 9, 17, 40])
def test_compiled_sums_and_paths_are_the_plain_ones(states):
    """Also for numbers of states that do not fill their vectors."""
    for seed in range(3):
        fields, transition = question(seed, states, 2.0, longest=20)
        lengths, weights = lengths_of(fields), np.random.default_rng(seed).random(len(fields))
        field = np.concatenate(fields)
        found = chain_sums(field, transition, lengths, weights)
        plain = log_chain_sums(field, transition, lengths, weights)
        for name in ("log_z", "marginals", "pairs"):
            np.testing.assert_allclose(getattr(found, name), getattr(plain, name), atol=1e-11)
        path, value = best_paths(field, transition, lengths)
        slowly, plain_value = np.full_like(path, -1), np.zeros(len(lengths))
        log_best_paths(field, transition, lengths, plain_value, slowly)
        np.testing.assert_array_equal(path, slowly)
        np.testing.assert_allclose(value, plain_value, atol=1e-11)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_best_paths_have_the_largest_weight(size):
    fields, transition = question(7, 3, size)
    path, value = best_paths(np.concatenate(fields), transition, lengths_of(fields))
    begin = np.cumsum(lengths_of(fields)) - lengths_of(fields)
    for i, field in enumerate(fields):
        of = {
            p: sum(field[t, s] for t, s in enumerate(p))
            + sum(transition[a, b] for a, b in itertools.pairwise(p))
            for p in itertools.product(range(3), repeat=len(field))
        }
        best = max(of, key=of.get)
        assert tuple(path[begin[i] : begin[i] + len(field)].tolist()) == best
        assert value[i] == pytest.approx(of[best], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("wrong", ["lengths", "transition", "order"])
def test_compiled_routines_refuse_arrays_that_do_not_fit(wrong):
    field, moves, first = np.zeros((3, 2)), np.zeros((2, 2)), np.array([0, 2, 3])
    given = {
        "lengths": (np.array([0, 2, 4]), field, moves),
        "transition": (first, field, np.zeros((3, 3))),
        "order": (np.array([0, 4, 3]), field, moves),
    }[wrong]
    results = np.zeros(2), np.zeros((3, 2)), np.zeros((2, 2))
    with pytest.raises(ValueError, match="chain"):
        _kernels.sum_paths(*given, np.ones(2), *results)
    with pytest.raises(ValueError, match="chain"):
        _kernels.best_paths(*given, results[0], np.zeros(3, dtype=np.int32))


def test_raised_fields_give_the_plain_sums(cases=20):
    """Steps whose weights differ by more than messages hold, beside possible transitions."""
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        lengths = np.array([5, 1, 9, 3])
        field = -rng.exponential(300.0, (lengths.sum(), 3))
        field[rng.random(field.shape) < 0.05] = -np.inf
        field[:, seed % 3] = 0.0
        transition = np.log(rng.dirichlet(np.ones(3), 3))
        found = chain_sums(field, transition, lengths)
        plain = log_chain_sums(field, transition, lengths, np.ones(4))
        np.testing.assert_allclose(found.log_z, plain.log_z, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.marginals, plain.marginals, atol=1e-13)
        np.testing.assert_allclose(found.pairs, plain.pairs, rtol=1e-11, atol=1e-30)
