"""The compiled junction tree against enumeration, its reference in numpy, and its errors."""

import itertools
import math
import signal
import threading

import numpy as np
import numpy_tree
import pytest
import scipy.stats
from comparisons import flat
from lattices import edges
from loops import one_test_over

from pgmengine._kernels import JunctionTree, uniforms
from pgmengine.base.errors import PgmError

KEY = np.arange(4, dtype=np.uint32)


def tree_of(cards, scopes, order):
    start = np.cumsum([0, *map(len, scopes)], dtype=np.int64)
    scope = np.array([v for s in scopes for v in s], dtype=np.int32)
    return JunctionTree(
        np.array(cards, dtype=np.int64), start, scope, np.array(order, dtype=np.int32)
    )


def random_tables(rng, cards, scopes, lanes, wide, scale, zeros):
    tables = []
    for scope, has_lanes in zip(scopes, wide):
        shape = tuple(cards[v] for v in scope) + ((lanes,) if has_lanes else ())
        table = rng.normal(size=shape) * scale
        tables.append(np.where(rng.random(shape) < zeros, -np.inf, table))
    return tables


def random_graph(rng, most=6):
    n = int(rng.integers(0, most + 1))
    cards = rng.integers(1, 5, n).tolist()
    count = int(rng.integers(0, 9))
    scopes = [
        tuple(rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)].tolist()) for _ in range(count)
    ]
    return cards, scopes, rng.permutation(n).tolist()


def enumerated(cards, scopes, tables):
    """All states (count, n), and their log weights."""
    states = np.array(list(itertools.product(*map(range, cards))), dtype=int)
    states = states.reshape(int(np.prod(cards)), len(cards))
    weight = np.zeros(len(states))
    for scope, table in zip(scopes, tables):
        weight = weight + table[tuple(states[:, v] for v in scope)]
    return states, weight


def lane_of(tables, wide, lane):
    return [t[..., lane] if w else t for t, w in zip(tables, wide)]


def counted(states, prob, cards, scope):
    """The marginal over a scope, flat."""
    number = np.zeros(len(states), dtype=int)
    for v in scope:
        number = number * cards[v] + states[:, v]
    return np.bincount(number, prob, minlength=int(np.prod([cards[v] for v in scope])))


def check_lane(result, lane, cards, scopes, tables, tolerance):
    """One lane of all results against enumeration."""
    states, weight = enumerated(cards, scopes, tables)
    top = weight.max()
    close = {"rtol": tolerance, "atol": tolerance}
    if top == -np.inf:
        assert result["log_z"][lane] == result["mode_value"][lane] == -np.inf
        assert np.isnan(result["marginals"][:, lane]).all()
        assert np.isnan(result["expected"][:, lane]).all()
        assert (result["mode"][lane] == -1).all() and (result["samples"][:, lane] == -1).all()
        return
    log_z = top + np.log(np.exp(weight - top).sum())
    prob = np.exp(weight - log_z)
    assert np.isclose(result["log_z"][lane], log_z, **close)
    assert np.isclose(result["mode_value"][lane], top, **close)
    assert np.isclose(weight[(states == result["mode"][lane]).all(axis=1)], top, **close).all()
    marginals = flat([counted(states, prob, cards, (v,)) for v in range(len(cards))])
    expected = flat([counted(states, prob, cards, s) for s in scopes])
    np.testing.assert_allclose(result["marginals"][:, lane], marginals, atol=tolerance)
    np.testing.assert_allclose(result["expected"][:, lane], expected, atol=tolerance)
    for drawn in result["samples"][:, lane]:
        assert prob[(states == drawn).all(axis=1)].sum() > 0.0


@pytest.mark.parametrize("log_space", [False, True])
@one_test_over("seed", range(6))
def test_random_graphs_by_enumeration(seed, log_space, *, graphs=100, tolerance=1e-10):
    rng = np.random.default_rng(seed)
    for _ in range(graphs):
        cards, scopes, order = random_graph(rng)
        lanes = int(rng.choice([1, 1, 2, 3, 8, 9]))
        wide = rng.integers(0, 2, len(scopes)).astype(np.uint8)
        scale, zeros = rng.choice([1.0, 1.0, 30.0, 500.0]), rng.choice([0.0, 0.1, 0.4])
        tables = random_tables(rng, cards, scopes, lanes, wide, scale, zeros)
        tree = tree_of(cards, scopes, order)
        result = tree.run(
            flat(tables),
            lanes=lanes,
            wide=wide,
            marginals=True,
            expected=np.arange(len(scopes)),
            mode=True,
            draws=2,
            key=KEY,
            log_space=log_space,
        )
        alone = tree.run(flat(tables), lanes=lanes, wide=wide, log_space=log_space)
        np.testing.assert_array_equal(alone["log_z"], result["log_z"])
        for lane in range(lanes):
            check_lane(result, lane, cards, scopes, lane_of(tables, wide, lane), tolerance)


def test_cliques_of_many_variables(n=30, graphs=20, tolerance=1e-10):
    """Most variables have one state: cliques have up to 30 axes, and few entries."""
    rng = np.random.default_rng(13)
    for _ in range(graphs):
        cards = np.where(rng.random(n) < 0.8, 1, rng.integers(2, 4, n)).tolist()
        # Both cliques have more axes than are sorted by insertion.
        scopes = [tuple((rng.permutation(n - 3) + i).tolist()) for i in (0, 3)]
        scopes += [(i,) for i in range(0, n, 4)]
        tables = random_tables(rng, cards, scopes, 1, [0] * len(scopes), 1.0, 0.1)
        order = [*rng.permutation(3), *(rng.permutation(n - 3) + 3)]
        result = tree_of(cards, scopes, order).run(
            flat(tables),
            marginals=True,
            expected=np.arange(len(scopes)),
            mode=True,
            draws=2,
            key=KEY,
        )
        check_lane(result, 0, cards, scopes, tables, tolerance)


def least_peak(tree, cards):
    """Entries of messages at once, over the best order of the children of every clique."""
    scopes, parent = tree.clique_scopes(), tree.parents().tolist()
    count = len(scopes)
    message = [
        1.0 if p < 0 else math.prod(cards[v] for v in {*scopes[i]} & {*scopes[p]})
        for i, p in enumerate(parent)
    ]

    def peak(i):
        below = [(peak(c), message[c]) for c in range(count) if parent[c] == i]
        found = []
        for children in itertools.permutations(below):
            held, most = 0.0, 0.0
            for needed, kept in children:
                most, held = max(most, held + needed), held + kept
            found.append(max(most, held + message[i]))
        return min(found)

    return max(peak(i) for i in range(count) if parent[i] < 0), message


@one_test_over("seed", range(20))
def test_the_children_of_a_clique_come_in_the_order_of_least_memory(seed, n=12):
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 5, n).tolist()
    scopes = [(int(v), i) for i in range(1, n) for v in {*rng.integers(max(0, i - 5), i, 2)}]
    tree = tree_of(cards, scopes, list(range(n))[::-1])
    size = [math.prod(cards[v] for v in s) for s in tree.clique_scopes()]
    # Larger cliques have several blocks.
    assert max(size) <= 512
    peak, message = least_peak(tree, cards)
    entries = sum(cards[a] * cards[b] for a, b in scopes)
    lane = entries + max(message) + peak + 2 * max(size) + tree.cliques + 2
    assert tree.bytes(2) - tree.bytes(1) == 8 * lane


def couplings_of_both_signs(rows, columns, rng, scale):
    """A lattice of spins with couplings of both signs, row by row."""
    scopes = [(a, b) for a, b in edges(rows, columns).tolist()]
    couplings = rng.uniform(-scale, scale, len(scopes))
    return scopes, [j * np.array([[1.0, -1.0], [-1.0, 1.0]]) for j in couplings]


def mixed(rng, n, most):
    """Factors over close variables of 2 to `most` states: cliques of several blocks."""
    cards = rng.integers(2, most + 1, n).tolist()
    scopes = [
        tuple(rng.permutation(np.arange(i, min(n, i + 5)))[: rng.integers(1, 4)].tolist())
        for i in range(n)
    ]
    scopes += [(i, i + 5) for i in range(n - 5)]
    return cards, scopes, random_tables(rng, cards, scopes, 1, [0] * len(scopes), 2.0, 0.05)


def numbers(compiled, plain):
    """The number of each clique of the reference in the compiled tree, which has the same ones."""
    scopes = [tuple(s.tolist()) for s in compiled.clique_scopes()]
    assert sorted(scopes) == sorted(plain.variables)
    return [scopes.index(s) for s in plain.variables]


@pytest.mark.parametrize("log_space", [False, True])
@pytest.mark.parametrize("lanes", [1, 3, 8, 20])
@one_test_over("seed", range(4))
def test_cliques_of_many_blocks_are_those_of_the_reference(seed, lanes, log_space):
    rng = np.random.default_rng(seed)
    cards, scopes, tables = mixed(rng, 14, 2 + seed)
    order = rng.permutation(14).tolist() if seed < 2 else list(range(14))
    wide = rng.integers(0, 2, len(scopes)).astype(np.uint8)
    given = [
        np.stack([t + rng.normal(size=t.shape) for _ in range(lanes)], axis=-1) if w else t
        for t, w in zip(tables, wide)
    ]
    compiled, plain = tree_of(cards, scopes, order), numpy_tree.build_tree(cards, scopes, order)
    number = numbers(compiled, plain)
    parents = compiled.parents()
    for i, above in enumerate(plain.parent):
        assert parents[number[i]] == (number[above] if above >= 0 else -1)
    result = compiled.run(
        flat(given),
        lanes=lanes,
        wide=wide,
        marginals=True,
        expected=np.arange(len(scopes)),
        mode=True,
        log_space=log_space,
    )
    alone = compiled.run(flat(given), lanes=lanes, wide=wide, log_space=log_space)
    np.testing.assert_array_equal(alone["log_z"], result["log_z"])
    for lane in range(0, lanes, 7):
        own = lane_of(given, wide, lane)
        log_z, messages = numpy_tree.collect(plain, own)
        marginals, expected = numpy_tree.distribute(plain, own, messages)
        value, largest = numpy_tree.collect(plain, own, numpy_tree.largest)
        mode = numpy_tree.states(plain, own, largest, lambda _, w: int(np.argmax(w)))
        assert np.isclose(result["log_z"][lane], log_z, rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(result["marginals"][:, lane], flat(marginals), atol=1e-10)
        np.testing.assert_allclose(result["expected"][:, lane], flat(expected), atol=1e-10)
        assert np.isclose(result["mode_value"][lane], value, rtol=1e-12, atol=1e-10)
        assert result["mode"][lane].tolist() == mode


def transfer(rows, columns, scopes, tables):
    """log Z and the mode's value of a lattice, row by row in logarithms; table by table."""
    pairs = dict(zip(scopes, tables))
    spins = np.array(list(itertools.product((0, 1), repeat=columns)))
    total = best = None
    for r in range(rows):
        inside = np.zeros(len(spins))
        for c in range(columns - 1):
            a = r * columns + c
            inside += pairs[a, a + 1][spins[:, c], spins[:, c + 1]]
        if r:
            across = np.zeros((len(spins), len(spins)))
            for c in range(columns):
                a = (r - 1) * columns + c
                across += pairs[a, a + columns][spins[:, None, c], spins[None, :, c]]
            total = np.logaddexp.reduce(total[:, None] + across, axis=0)
            best = (best[:, None] + across).max(axis=0)
        total = inside if total is None else total + inside
        best = inside if best is None else best + inside
    return np.logaddexp.reduce(total), best.max()


@one_test_over("scale", [1.0, 30.0, 500.0])
def test_strong_frustrated_couplings(scale, *, tolerance=1e-10):
    rng = np.random.default_rng(3)
    scopes, tables = couplings_of_both_signs(20, 8, rng, scale)
    log_z, value = transfer(20, 8, scopes, tables)
    result = tree_of([2] * 160, scopes, range(160)).run(flat(tables), mode=True, marginals=True)
    assert abs(result["log_z"][0] - log_z) <= tolerance * abs(log_z)
    assert abs(result["mode_value"][0] - value) <= tolerance * abs(value)
    # No field: every spin is up with probability 1/2.
    np.testing.assert_allclose(result["marginals"], 0.5, atol=1e-9)


def test_a_long_chain_whose_products_would_underflow():
    n = 5000
    scopes = [(i, i + 1) for i in range(n - 1)]
    table = np.log([[1e-3, 2e-3], [3e-3, 1e-3]])
    where = np.zeros(n - 1, dtype=np.int64)
    tree = tree_of([2] * n, scopes, range(n))
    result = tree.run(table.ravel(), where=where, marginals=True)
    vector, log_z = np.ones(2), 0.0
    for _ in range(n - 1):
        vector = np.exp(table) @ vector
        log_z += np.log(vector.sum())
        vector /= vector.sum()
    assert not result["log_space"]
    assert np.isclose(result["log_z"][0], log_z, rtol=1e-12)


def test_exponentials_of_tables_are_accurate_to_rounding():
    """The ratio of two marginals is e^x, for x across several octaves, in vectors and in tails.

    Impossible states among them are no reason for logarithms.
    """
    x = np.append(0.0, np.linspace(-40.0, 0.0, 2002))
    x[5::7] = -np.inf
    found = tree_of([x.size], [(0,)], [0]).run(x, marginals=True)
    assert not found["log_space"]
    ratio = found["marginals"][:, 0] / found["marginals"][0, 0]
    np.testing.assert_allclose(ratio, np.exp(x), rtol=2e-15)


@pytest.mark.parametrize("small", [-705.0, -720.0, -800.0])
@pytest.mark.parametrize("states", [2, 19])
@pytest.mark.parametrize("lanes", [1, 3])
def test_lost_entries_start_again_with_logarithms(small, states, lanes):
    """The first table makes state k tiny, and the second one all others: at each place k."""
    for k in range(states):
        here = np.arange(states) == k
        tables = [np.where(here, small, 0.0), np.where(here, 0.0, -np.inf)]
        given = [np.repeat(t[:, None], lanes, axis=1) for t in tables]
        result = tree_of([states], [(0,), (0,)], [0]).run(
            flat(given), lanes=lanes, wide=[1, 1], marginals=True
        )
        assert result["log_space"]
        np.testing.assert_allclose(result["log_z"], small, rtol=1e-14)
        np.testing.assert_array_equal(result["marginals"], here[:, None].repeat(lanes, axis=1))


@pytest.mark.parametrize("small", [-370.0, -400.0])
@pytest.mark.parametrize("lanes", [1, 3])
def test_products_that_underflow_start_again_with_logarithms(small, lanes):
    """Two tables that are representable, with a product that is subnormal or 0."""
    tables = [[0.0, small], [0.0, small], [-np.inf, 0.0], [0.25, 0.0]]
    given = [np.repeat(np.array(t)[:, None], lanes, axis=1) for t in tables]
    tree = tree_of([2], [(0,)] * 4, [0])
    result = tree.run(flat(given), lanes=lanes, wide=np.ones(4), marginals=True)
    assert result["log_space"]
    np.testing.assert_allclose(result["log_z"], 2 * small, rtol=1e-14)
    np.testing.assert_array_equal(result["marginals"], [[0.0] * lanes, [1.0] * lanes])


def test_underflows_in_the_exponentials_of_tables_do_not_count():
    """The square of 1e-200 underflows in the series of e^x, which loses nothing."""
    result = tree_of([2], [(0,)], [0]).run(np.array([0.0, -1e-200]))
    assert not result["log_space"] and np.isclose(result["log_z"], np.log(2.0), rtol=1e-15)


@pytest.mark.parametrize("log_space", [False, True])
@pytest.mark.parametrize("big_root", [False, True])
def test_draws_have_the_distribution(log_space, big_root, *, false_alarm=1e-7, draws=20_000):
    """Chi-square of the counts of all states against enumeration; null: chi2 with states - 1."""
    rng = np.random.default_rng(11)
    cards, lanes = [2, 3, 2, 4, 2], 2
    scopes = [(0, 1), (1, 2, 3), (3, 4), (4, 0)]
    if big_root:
        scopes = [(0, 1, 2, 3, 4)]
    tables = random_tables(rng, cards, scopes, lanes, [1] * len(scopes), 0.7, 0.1)
    key = rng.integers(0, 2**32, 4, dtype=np.uint32)
    result = tree_of(cards, scopes, rng.permutation(5)).run(
        flat(tables),
        lanes=lanes,
        wide=np.ones(len(scopes)),
        draws=draws,
        key=key,
        log_space=log_space,
    )
    for lane in range(lanes):
        states, weight = enumerated(cards, scopes, [t[..., lane] for t in tables])
        prob = np.exp(weight - np.logaddexp.reduce(weight))
        number = np.ravel_multi_index(tuple(result["samples"][:, lane].T), cards)
        counts = np.bincount(number, minlength=len(states))
        assert (counts[prob == 0] == 0).all()
        # Rare states are put together.
        rare = prob * draws < 10
        seen = np.append(counts[~rare], counts[rare].sum())
        mean = np.append(prob[~rare], prob[rare].sum()) * draws
        seen, mean = seen[mean > 0], mean[mean > 0]
        statistic = ((seen - mean) ** 2 / mean).sum()
        assert statistic < scipy.stats.chi2.isf(false_alarm / 4, len(mean) - 1)


def test_draws_do_not_depend_on_the_lanes_and_draws_beside_them():
    rng = np.random.default_rng(5)
    cards, scopes, tables = mixed(rng, 10, 3)
    tree = tree_of(cards, scopes, range(10))
    both = tree.run(flat(tables), lanes=2, draws=70, key=KEY, stream=[7, 3])["samples"]
    alone = tree.run(flat(tables), draws=70, key=KEY, stream=[3])["samples"]
    np.testing.assert_array_equal(both[:, 1], alone[:, 0])
    # Enough draws for the tables of sums: fewer have the same states, one draw after the other.
    few = tree.run(flat(tables), draws=5, key=KEY, stream=[3])["samples"]
    np.testing.assert_array_equal(few, alone[:5])
    # The same with more draws than are one block of the generator, below a separator of 64 states.
    cards, scopes = [5, 8, 8, 2], [(0, 1, 2), (1, 2, 3)]
    tree = tree_of(cards, scopes, range(4))
    values = flat(random_tables(rng, cards, scopes, 1, [0, 0], 1.0, 0.1))
    few, many = (tree.run(values, draws=d, key=KEY)["samples"] for d in (63, 64))
    np.testing.assert_array_equal(few, many[:63])


@pytest.mark.parametrize("log_space", [False, True])
@pytest.mark.parametrize("draws", [1, 5, 70, 1000])
def test_draws_by_given_uniforms_are_those_of_the_reference(draws, log_space):
    rng = np.random.default_rng(6)
    cards, scopes, tables = mixed(rng, 10, 3)
    tree = tree_of(cards, scopes, range(10))
    given = rng.random((draws, 1, tree.cliques))
    given[0] = 0.0
    drawn = tree.run(flat(tables), draws=draws, uniforms=given, log_space=log_space)["samples"]
    plain = numpy_tree.build_tree(cards, scopes, list(range(10)))
    _, messages = numpy_tree.collect(plain, tables)
    number = numbers(tree, plain)
    for k in range(0, draws, max(1, draws // 40)):

        def choose(clique, weights, k=k):
            total = np.cumsum(np.exp(weights - weights.max()))
            target = max(given[k, 0, number[clique]] * total[-1], 5e-324)
            return int(np.searchsorted(total, target))

        assert drawn[k, 0].tolist() == numpy_tree.states(plain, tables, messages, choose)


@pytest.mark.parametrize("log_space", [False, True])
def test_draws_of_a_large_root(log_space):
    """The root has too many entries for a table of their sums: it is swept by blocks."""
    rng, n = np.random.default_rng(7), 21
    table = rng.normal(size=2**n)
    table[rng.random(2**n) < 0.1] = -np.inf
    given = rng.random((50, 1, 1))
    tree = tree_of([2] * n, [tuple(range(n))], range(n))
    drawn = tree.run(table, draws=50, uniforms=given, log_space=log_space)["samples"][:, 0]
    weight = np.exp(table)
    found = np.ravel_multi_index(tuple(drawn.T), [2] * n)
    # The sums are rounded in another order.
    below, above = np.cumsum(weight)[found] - weight[found], np.cumsum(weight)[found]
    targets = given[:, 0, 0] * weight.sum()
    assert (weight[found] > 0).all()
    assert (targets > below - 1e-6).all() and (targets < above + 1e-6).all()


BIG = 21


@pytest.fixture(scope="module")
def big():
    """A root whose sums are not tabulated."""
    return tree_of([2] * BIG, [tuple(range(BIG))], range(BIG))


def numbered(samples, cards):
    """The states of all variables, which are one number."""
    return np.ravel_multi_index(tuple(samples[:, 0].T), cards)


@pytest.mark.parametrize("log_space", [False, True])
def test_uniforms_at_the_ends_of_states_of_a_large_root(big, log_space):
    """All possible states weigh 1: u = j / 2^m goes to the last state of the first share j / 2^m.

    Only the odd states between 2^20 and 3 2^19 are possible, so that the first and last blocks are
    empty, and so are the first and last entries of others.
    """
    number, u = np.arange(2**BIG), np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    possible = number[(number % 2 == 1) & (number >= 2**20) & (number < 3 * 2**19)]
    table = np.full(2**BIG, -np.inf)
    table[possible] = 0.0
    # Draws are in any order.
    mixed_up = np.array([3, 0, 4, 2, 1])
    drawn = big.run(table, draws=5, uniforms=u[mixed_up, None, None], log_space=log_space)
    right = possible[np.maximum(u * len(possible) - 1, 0).astype(int)]
    np.testing.assert_array_equal(numbered(drawn["samples"], [2] * BIG), right[mixed_up])


def test_rounding_reaches_no_impossible_state_of_a_large_root(big):
    """At u = 1 the sum of all entries, by vectors, may exceed their sum one after the other."""
    rng, last = np.random.default_rng(9), 512
    table = np.full(2**BIG, -np.inf)
    for _ in range(6):
        table[-last:-1] = rng.normal(size=last - 1)
        drawn = big.run(table, draws=1, uniforms=np.ones((1, 1, 1)))["samples"]
        assert table[numbered(drawn, [2] * BIG)] > -np.inf


@pytest.mark.parametrize("log_space", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_uniforms_at_the_ends_of_states(together, log_space):
    """The same for cliques below the root: from tables of sums, and one draw after the other."""
    possible, cards = np.array([1, 4, 5, 8]), (10, 6, 6)
    table = np.full((10, 6), -np.inf)
    table[possible] = 0.0
    tree = tree_of(cards, [(0, 1), (1, 2)], [0, 1, 2])
    assert tree.cliques == 2 and tree.parents()[0] == 1
    u = np.tile([0.0, 0.25, 0.5, 0.75, 1.0], 2)
    given = np.stack([u, np.full(10, 0.5)], axis=1)[:, None]
    values = flat([table, np.zeros((6, 6))])
    parts = [given] if together else np.split(given, 10)
    drawn = [
        tree.run(values, draws=len(p), uniforms=p, log_space=log_space)["samples"] for p in parts
    ]
    right = possible[np.maximum(u * 4 - 1, 0).astype(int)]
    np.testing.assert_array_equal(np.concatenate(drawn)[:, 0, 0], right)


def by_generator(clique, stream, draws):
    """Uniforms of 48 bits: 24 bits of every second number, and all bits of the number after it."""
    made = uniforms(KEY, clique, stream, 0, 0, -(-draws // 32)).astype(np.float64)
    high = np.minimum(np.floor(made[::2] * 2**24), 2**24 - 1)
    return ((high + made[1::2]) / 2**24)[:draws]


def test_draws_by_the_generator_use_all_bits_of_two_numbers(draws=1000, n=13):
    """3^13 states of equal weight, more than a table of sums has: low bits decide some draws."""
    u, tree = by_generator(0, 5, draws), tree_of([3] * n, [tuple(range(n))], range(n))
    assert (np.ceil(u * 3**n) != np.ceil((np.floor(u * 2**24) + 0.5) / 2**24 * 3**n)).any()
    drawn = tree.run(np.zeros(3**n), draws=draws, key=KEY, stream=[5])["samples"]
    np.testing.assert_array_equal(numbered(drawn, [3] * n), np.ceil(u * 3**n) - 1)


def test_no_uniform_is_above_1():
    """Single precision rounds some uniforms up to 1, once in 3e7; this stream has one."""
    stream = 512611
    assert uniforms(KEY, 0, stream, 0, 0, 1)[8] == 1.0
    tree = tree_of([3], [(0,)], [0])
    drawn = tree.run(np.array([0.0, 0.0, -np.inf]), draws=5, key=KEY, stream=[stream])["samples"]
    assert drawn[4] == 1 and (drawn < 2).all()


def test_draws_do_not_depend_on_the_sizes_of_weights(big):
    """Constants of 3,000 beside all logarithms cancel; e^-3000 and e^3000 are not representable."""
    rng = np.random.default_rng(12)
    cards, scopes, tables = mixed(rng, 10, 3)
    tree = tree_of(cards, scopes, range(10))
    more = [t + c for t, c in zip(tables, rng.choice([-3000.0, 3000.0], len(tables)))]
    for draws in (1, 70):
        one, two = (
            tree.run(flat(t), draws=draws, key=KEY, log_space=True)["samples"]
            for t in (tables, more)
        )
        np.testing.assert_array_equal(one, two)
    table = rng.integers(0, 4, 2**BIG) * np.log(2.0)
    one, two = (
        big.run(table + c, draws=20, key=KEY, log_space=True)["samples"] for c in (0.0, -3000.0)
    )
    # The constant rounds the logarithms to 5e-13.
    assert (numbered(one, [2] * BIG) != numbered(two, [2] * BIG)).sum() <= 1


def test_ties_go_to_the_first_state():
    result = tree_of([3, 2], [(0, 1)], [0, 1]).run(np.zeros(6), mode=True, log_z=False)
    assert result["mode"].tolist() == [[0, 0]] and "log_z" not in result


@pytest.mark.parametrize("n", [3, 10])
def test_ties_of_cliques_and_blocks_go_to_the_first_state(n):
    """Two cliques; and a root of two blocks, whose first entries are not the largest."""
    chain = tree_of([3] * n, [(i, i + 1) for i in range(n - 1)], range(n))
    assert not chain.run(np.zeros(9 * (n - 1)), mode=True)["mode"].any()
    root, table = tree_of([2] * n, [tuple(range(n))], range(n)), np.zeros(2**n)
    table[0] = -1.0
    assert root.run(table, mode=True)["mode"].tolist() == [[0] * (n - 1) + [1]]


def test_an_impossible_lane_does_not_harm_the_others():
    table = np.array([[0.0, -np.inf], [np.log(3.0), -np.inf]])
    result = tree_of([2], [(0,)], [0]).run(
        table.ravel(), lanes=2, wide=[1], marginals=True, mode=True, draws=1, key=KEY
    )
    np.testing.assert_allclose(result["log_z"], [np.log(4.0), -np.inf])
    np.testing.assert_allclose(result["marginals"], [[0.25, np.nan], [0.75, np.nan]])
    assert result["mode"].tolist() == [[1], [-1]] and result["samples"][0, 1].tolist() == [-1]


@one_test_over(
    ("cards", "start", "scope", "order", "message"),
    [
        ([2, 2], [0, 2], [0, 2], [0, 1], "variable 2"),
        ([2, 2], [0, 2], [0, -1], [0, 1], "variable -1"),
        ([2, 2], [0, 2], [1, 1], [0, 1], "twice"),
        ([2, 2], [0, 2], [0, 1], [0, 0], "permutation"),
        ([2, 2], [0, 2], [0, 1], [0, 5], "permutation"),
        ([2, 2], [0, 2], [0, 1], [0], "expected 2"),
        ([2, 0], [0, 2], [0, 1], [0, 1], "0 states"),
        ([2, 2], [0, 3], [0, 1], [0, 1], "start goes"),
        ([2, 2], [1, 2], [0, 1], [0, 1], "start goes"),
        ([2, 2], [0, 2, 1, 2], [0, 1], [0, 1], "start falls"),
        ([2, 2], [], [0, 1], [0, 1], "one number more"),
        ([2**20] * 3, [0, 3], [0, 1, 2], [0, 1, 2], "entries"),
    ],
)
def test_malformed_graphs_are_refused(cards, start, scope, order, message):
    arrays = [np.array(cards), np.array(start, dtype=np.int64)]
    arrays += [np.array(scope, dtype=np.int32), np.array(order, dtype=np.int32)]
    with pytest.raises(PgmError, match=message):
        JunctionTree(*arrays)


@one_test_over(
    ("change", "message"),
    [
        ({"values": np.zeros(3)}, "expected 4"),
        ({"values": np.array([0.0, np.nan, 0.0, 0.0])}, "NaN"),
        ({"values": np.array([0.0, np.inf, 0.0, 0.0])}, "NaN or"),
        ({"lanes": 0}, "lanes"),
        ({"wide": [1, 1]}, "wide"),
        ({"where": [1]}, "from 1 on"),
        ({"where": [-1]}, "from -1 on"),
        ({"where": [2**62]}, "on, and"),
        ({"where": [0, 0]}, "where"),
        ({"expected": [1]}, "expected"),
        ({"expected": [0, 0]}, "twice"),
        ({"draws": 1}, "key"),
        ({"draws": -1}, "draws"),
        ({"draws": 1, "key": [1, 2, 3]}, "words"),
        ({"draws": 1, "uniforms": np.zeros((1, 1, 5))}, "shape"),
        ({"draws": 1, "uniforms": np.full((1, 1, 1), 2.0)}, "outside"),
    ],
)
def test_malformed_questions_are_refused(change, message):
    tree = tree_of([2, 2], [(0, 1)], [0, 1])
    with pytest.raises(PgmError, match=message):
        tree.run(**{"values": np.zeros(4)} | change)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_is_found_at_every_place(lanes, bad, *, states=19):
    tree = tree_of([2, states], [(0,), (1,)], [0, 1])
    for place in range(states * lanes):
        values = np.zeros(2 + states * lanes)
        values[2 + place] = bad
        with pytest.raises(PgmError, match="factor 1 has NaN"):
            tree.run(values, lanes=lanes, wide=[0, 1])


def test_a_tree_that_is_too_large_says_so_and_is_measured():
    tree = tree_of([2] * 64, [(i, j) for i in range(64) for j in range(i)], range(64))
    assert tree.cliques == 1 and tree.largest == 64.0 and tree.bytes() > 8 * tree.separators
    with pytest.raises(PgmError, match="elimination order"):
        tree.run(np.zeros(64 * 63 // 2 * 4))


class Stop(Exception):
    pass


@pytest.mark.parametrize("log_space", [False, True])
def test_a_run_is_stopped_by_signals_and_by_progress(log_space):
    n = 34
    tree = tree_of([2] * n, [(i, j) for i in range(n) for j in range(i)], range(n))
    values = np.zeros(n * (n - 1) // 2 * 4)

    def stop(*_):
        raise Stop

    with pytest.raises(Stop):
        tree.run(values, progress=stop, log_space=log_space)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stop):
            tree.run(values, log_space=log_space)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_one_tree_serves_many_threads():
    rng = np.random.default_rng(8)
    cards, scopes, tables = mixed(rng, 14, 3)
    tree, values, found = tree_of(cards, scopes, range(14)), flat(tables), []

    def ask():
        found.extend(tree.run(values, marginals=True)["log_z"] for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80 and len({float(x[0]) for x in found}) == 1
