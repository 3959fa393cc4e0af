"""Elimination orders: against a plain symbolic elimination, brute force, and known treewidths."""

import itertools
import math
import re
import sys

import numpy as np
import pytest
from extras import extra
from lattices import edges
from loops import one_test_over

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.base.errors import PgmError
from pgmengine.infer.exact import planning
from pgmengine.infer.exact.junction_tree.elimination_order import best_order
from pgmengine.infer.exact.junction_tree.goatd_order import _leaves_first, order_by_goatd
from pgmengine.infer.exact.junction_tree.impossible_states import remove_impossible

RULES = range(_kernels.WEIGHT_FILL + 1)


def csr(scopes):
    start = np.cumsum([0, *map(len, scopes)]).astype(np.int64)
    return start, np.array([v for s in scopes for v in s], dtype=np.int32)


def graph(cards, scopes):
    return np.array(cards, dtype=np.int64), *csr(scopes)


def cliques(n, scopes, order):
    """The cliques of an order, by elimination with sets."""
    near = {v: set() for v in range(n)}
    for s in scopes:
        for a, b in itertools.permutations(s, 2):
            near[a].add(b)
    found = []
    for v in order:
        found.append(near[v] | {v})
        for a in near[v]:
            near[a] = (near[a] | near[v]) - {a, v}
    return found


def plain_cost(cards, scopes, order):
    """Entries of the maximal cliques, and log2 of the largest."""
    several = [[v for v in s if cards[v] > 1] for s in scopes]
    all_ = cliques(len(cards), several, order)
    size = [math.prod(int(cards[v]) for v in c) for c in all_]
    kept = [
        not any(c < d or (c == d and j < i) for j, d in enumerate(all_)) for i, c in enumerate(all_)
    ]
    return sum(s for s, k in zip(size, kept) if k), math.log2(max(size))


def random_graph(rng, n, factors, most=3, states=5):
    scopes = [
        rng.choice(n, size=min(n, int(rng.integers(1, most + 1))), replace=False).tolist()
        for _ in range(factors)
    ]
    return rng.integers(1, states + 1, size=n), scopes


@one_test_over("seed", range(30))
def test_entries_and_largest_agree_with_a_plain_elimination(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    cards, scopes = random_graph(rng, n, int(rng.integers(0, 3 * n)))
    model = graph(cards, scopes)
    for rule in RULES:
        for tie in (0, seed + 1):
            order, entries, largest = _kernels.elimination_order(*model, rule, tie, math.inf)
            assert sorted(order) == list(range(n))
            plain = plain_cost(cards, scopes, order)
            assert (entries, largest) == pytest.approx(plain, rel=1e-12)
    order = rng.permutation(n).astype(np.int32)
    assert _kernels.Orders(*model).cost(order) == pytest.approx(
        plain_cost(cards, scopes, order), rel=1e-12
    )


def scopes_of_lattice(rows, columns=None):
    """The scopes of the pairs of neighbours."""
    return edges(rows, columns).tolist()


class Plain:
    """Greedy elimination and the lower bound on lists of neighbours, all scores computed anew.

    Numbers of states are powers of two, so that sums of logarithms are exact.
    """

    def __init__(self, cards, scopes):
        self.bits = [math.log2(c) for c in cards]
        self.near = {v: [] for v in range(len(cards))}
        self.low, self.order = 0.0, []
        for s in scopes:
            for a, b in itertools.permutations(s, 2):
                if cards[a] > 1 and cards[b] > 1 and b not in self.near[a]:
                    self.near[a].append(b)

    def clique(self, v):
        return self.bits[v] + sum(self.bits[u] for u in self.near[v])

    def score(self, v, rule):
        """The pair by which vertices are taken: orders.h and greedy.h."""
        weight = [1.0] * len(self.bits)
        if rule == _kernels.FILL_STATES:
            weight = [2.0**b for b in self.bits]
        elif rule not in (_kernels.FILL, _kernels.SIZE):
            weight = [8.0 * b for b in self.bits]
        pairs = itertools.combinations(self.near[v], 2)
        apart = [weight[a] * weight[b] for a, b in pairs if b not in self.near[a]]
        clique, fill = self.clique(v), sum(apart)
        if not apart:
            return -2.0, clique
        heaviest = all(self.bits[u] <= self.bits[v] for u in self.near[v])
        if len(apart) == 1 and clique <= self.low and heaviest:
            return -1.0, clique
        if rule == _kernels.WEIGHT:
            return clique, fill
        if rule == _kernels.SIZE:
            return len(self.near[v]), fill
        return (8.0 + clique + math.log2(fill) if rule == _kernels.WEIGHT_FILL else fill), clique

    def eliminate(self, v):
        for a, b in itertools.combinations(self.near[v], 2):
            if b not in self.near[a]:
                self.near[a].append(b)
                self.near[b].append(a)
        for u in self.near.pop(v):
            self.near[u].remove(v)
        self.order.append(v)

    def reduce(self):
        """Eliminate what is safe; a larger clique makes more reductions safe."""
        largest = 0.0
        while self.near:
            score, _, v = min((*self.score(v, _kernels.FILL), v) for v in self.near)
            if score < 0.0:
                largest = max(largest, self.clique(v))
                self.eliminate(v)
            elif largest > self.low:
                self.low = largest
            else:
                break
        self.low = largest
        return self

    def parts(self):
        left, found = set(self.near), []
        while left:
            part = {min(left)}
            while more := {u for v in part for u in self.near[v]} - part:
                part |= more
            found.append(part)
            left -= part
        return found

    def search(self, rule):
        for part in self.reduce().parts():
            while part:
                v = min((*self.score(v, rule), v) for v in part)[-1]
                self.eliminate(v)
                part.remove(v)
        return self.order

    def bound(self):
        """Contract the vertex of the smallest clique into the neighbour it shares fewest with."""
        bound = self.reduce().low
        while self.near:
            clique, v = min((self.clique(v), v) for v in self.near)
            bound, near = max(bound, clique), self.near.pop(v)
            shared = [(len({*self.near[u]} & {*near}), self.clique(u) - self.bits[u]) for u in near]
            for u in near:
                self.near[u].remove(v)
            if near:
                u = near[shared.index(min(shared))]
                self.bits[u] = min(self.bits[u], self.bits[v])
                for x in near:
                    if x != u and x not in self.near[u]:
                        self.near[u].append(x)
                        self.near[x].append(u)
        return bound


def graph_of_powers(seed):
    """Several components, scopes of 2 or 3 variables, and 1 to 16 states."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 50))
    scopes = []
    for _ in range(int(rng.integers(n, 3 * n))):
        part = rng.integers(2) * (n // 3) * (seed % 2)
        size = n - n // 3 if seed % 2 and part else n // 3 if seed % 2 else n
        scopes.append((part + rng.permutation(size)[: rng.integers(2, 4)]).tolist())
    return 2 ** rng.integers(0, 5, n), scopes


@one_test_over("seed", range(40))
def test_greedy_orders_are_those_of_a_plain_search(seed):
    cards, scopes = graph_of_powers(seed)
    for rule in RULES:
        order, _, _ = _kernels.elimination_order(*graph(cards, scopes), rule, 0, math.inf)
        assert order.tolist() == Plain(cards, scopes).search(rule)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("rule", RULES)
def test_random_searches_take_vertices_of_nearly_the_least_score(rule, noise):
    """Ties are broken at random; noise lets scores win that are larger by its factor."""
    cards = 2 ** np.random.default_rng(2).integers(1, 4, 64)
    orders, larger = set(), 0
    for seed in range(1, 5):
        search, plain = (
            _kernels.Orders(*graph(cards, scopes_of_lattice(8))),
            Plain(cards, scopes_of_lattice(8)).reduce(),
        )
        search.greedy(rule, seed, noise, math.inf)
        order, first = search.best().tolist(), len(plain.order)
        assert search.parts == 1 and order[:first] == plain.order
        for v in order[first:]:
            least = min(plain.score(u, rule)[0] for u in plain.near)
            own = plain.score(v, rule)[0]
            assert own == least or 0.0 < own <= (1.0 + noise) * least
            larger += own > least
            plain.eliminate(v)
        orders.add(tuple(order))
    assert len(orders) > 1 and (larger > 0) == (noise > 0.0)


@one_test_over("seed", range(40))
def test_the_bound_is_that_of_a_plain_contraction(seed):
    cards, scopes = graph_of_powers(seed)
    assert _kernels.width_bound(*graph(cards, scopes)) == Plain(cards, scopes).bound()


@one_test_over("seed", range(40))
def test_the_bound_is_below_every_order_and_the_search_is_near_the_best(seed):
    rng = np.random.default_rng(seed)
    n = 7 if seed == 0 else int(rng.integers(2, 7))
    cards, scopes = random_graph(rng, n, int(rng.integers(n, 3 * n)), 2)
    search = _kernels.Orders(*graph(cards, scopes))
    every = np.array(list(itertools.permutations(range(n))), dtype=np.int32)
    costs = [search.cost(order) for order in every]
    found = best_order(*graph(cards, scopes))
    assert _kernels.width_bound(*graph(cards, scopes)) == pytest.approx(found.bound)
    assert found.bound <= min(largest for _, largest in costs) + 1e-9
    assert found.entries <= 2.0 * min(entries for entries, _ in costs)


def width(n, scopes):
    found = best_order(*graph([2] * n, scopes), seconds=0.1)
    return found.largest - 1, found.bound - 1


def test_known_treewidths():
    rng = np.random.default_rng(1)
    tree = [[int(rng.integers(v)), v] for v in range(1, 300)]
    assert width(300, tree) == (1, 1)
    assert width(50, [[v, (v + 1) % 50] for v in range(50)]) == (2, 2)
    assert width(9, list(itertools.combinations(range(9), 2))) == (8, 8)
    assert width(9, [list(range(9))]) == (8, 8)
    assert width(5, []) == (0, 0)
    for k in range(2, 9):
        search = _kernels.Orders(*graph([2] * k * k, scopes_of_lattice(k)))
        for seed in range(100):
            search.greedy(seed % 3, seed, 0.1, math.inf)
        search.improve(1, 300, 40)
        entries, largest = search.cost(search.best())
        rows, width_of_rows = search.cost(np.arange(k * k, dtype=np.int32))
        assert search.bound() <= width_of_rows == k + 1 <= largest
        assert entries <= rows
    assert width(100, scopes_of_lattice(2, 50)) == (2, 2)


def test_a_dense_bipartite_graph_has_the_width_of_its_smaller_side():
    scopes = [[v, 784 + h] for v in range(784) for h in range(20)]
    assert width(804, scopes) == (20, 20)


def test_searches_stop_above_their_limit():
    model = graph([2] * 64, scopes_of_lattice(8))
    order, entries, largest = _kernels.elimination_order(*model, 0, 0, 100.0)
    assert order is None and entries == largest == math.inf
    order, entries, _ = _kernels.elimination_order(*model, 0, 0, math.inf)
    assert _kernels.elimination_order(*model, 0, 0, entries)[1] == entries


def test_searches_of_a_component_stop_above_its_best():
    model, work = graph(np.random.default_rng(5).integers(2, 9, 64), scopes_of_lattice(8)), []
    entries = [_kernels.elimination_order(*model, rule, 0, math.inf)[1] for rule in RULES]
    good, bad = int(np.argmin(entries)), int(np.argmax(entries))
    assert entries[good] < entries[bad]
    for rules in ((good, bad), (bad,)):
        search = _kernels.Orders(*model)
        for rule in rules:
            before = search.work()
            search.greedy(rule, 0, 0.0, math.inf)
        work.append(search.work() - before)
        assert search.cost(search.best())[0] == min(entries[rule] for rule in rules)
    assert work[0] < work[1]
    search = _kernels.Orders(*model)
    search.greedy(good, 0, 0.0, entries[good] / 2)
    assert search.best() is None


def test_an_offer_is_shared_among_components():
    """Three bipartite graphs of 4 and 4 variables, of which none can safely be eliminated."""
    scopes = [[8 * k + i, 8 * k + 4 + j] for k in range(3) for i in range(4) for j in range(4)]
    search = _kernels.Orders(*graph([2] * 24, scopes))
    order = np.random.default_rng(4).permutation(24).astype(np.int32)
    search.offer(order)
    assert search.parts == 3 and search.best().tolist() == sorted(order, key=lambda v: v // 8)


def test_local_search_and_offers_never_make_the_best_order_worse():
    rng = np.random.default_rng(3)
    scopes = scopes_of_lattice(12)
    cards = rng.integers(2, 5, size=144)
    search = _kernels.Orders(*graph(cards, scopes))
    search.offer(rng.permutation(144).astype(np.int32))
    last = search.cost(search.best())[0]
    for seed in range(1, 40):
        search.greedy(seed % 4, seed, 0.1, math.inf)
        search.improve(seed, 5, 20)
        search.offer(rng.permutation(144).astype(np.int32))
        order = search.best()
        entries = search.cost(order)[0]
        assert entries == pytest.approx(plain_cost(cards, scopes, order)[0])
        assert entries <= last * (1 + 1e-12)
        last = entries


def test_orders_repeat():
    model = graph([3] * 100, scopes_of_lattice(10))
    first, second = best_order(*model), best_order(*model)
    assert np.array_equal(first.order, second.order) and first.entries == second.entries


def test_without_goatd_the_search_is_silent(monkeypatch):
    monkeypatch.setitem(sys.modules, "goatd", None)
    assert order_by_goatd(graph([2] * 4, scopes_of_lattice(2)), 1.0) is None


def test_orders_of_goatd_are_permutations():
    extra("goatd")
    order = order_by_goatd(graph([2] * 25, scopes_of_lattice(5)), 4.0)
    assert sorted(order) == list(range(25))


def test_trees_of_bags_become_orders():
    bags, edges = [[0, 1], [1, 2], [2, 3], [1, 4]], [(0, 1), (1, 2), (1, 3)]
    order = _leaves_first(6, bags, edges)
    assert sorted(order) == list(range(6))
    assert max(map(len, cliques(6, bags, order))) == 2


@one_test_over(
    ("cards", "start", "scope", "message"),
    [
        ([2, 2], [0, 2], [0, 2], "factor 0 names variable 2"),
        ([2, 2], [0, 2], [0, -1], "factor 0 names variable -1"),
        ([2, 2], [0, 2], [1, 1], "factor 0 names variable 1 twice"),
        ([2, 0], [0, 2], [0, 1], "variable 1 has 0 states"),
        ([2, 2], [0, 3], [0, 1], "start must lead from 0"),
        ([2, 2], [1, 2], [0, 1], "start must lead from 0"),
        ([2, 2], [0, 2, 1, 2], [0, 1], "start falls or leaves the scope at factor 1"),
        ([2, 2], [0, 9, 2], [0, 1], "start falls or leaves the scope at factor 0"),
        ([2, 2], [], [0, 1], "start must lead from 0"),
    ],
)
def test_malformed_graphs_are_refused(cards, start, scope, message):
    with pytest.raises(PgmError, match=message):
        best_order(np.array(cards, np.int64), np.array(start, np.int64), np.array(scope, np.int32))


def test_malformed_orders_and_rules_are_refused():
    search = _kernels.Orders(*graph([2] * 3, [[0, 1], [1, 2]]))
    with pytest.raises(PgmError, match="no permutation"):
        search.cost(np.array([0, 1, 1], np.int32))
    with pytest.raises(PgmError, match="does not fit"):
        search.offer(np.array([0, 1], np.int32))
    with pytest.raises(PgmError, match="rule is 99"):
        search.greedy(99, 0, 0.0, math.inf)


def log_z(cards, start, scope, values, offset=0):
    """The log of the sum over all states, by enumeration."""
    total = -math.inf
    for state in itertools.product(*map(range, cards)):
        term, place = 0.0, 0
        for a, b in itertools.pairwise(start.tolist()):
            shape = [int(cards[v]) for v in scope[a:b]]
            at = 0
            for v, k in zip(scope[a:b], shape):
                at = at * k + state[v]
            term += values[place + at]
            place += math.prod(shape)
        total = np.logaddexp(total, term)
    return total


def possible_by_repetition(cards, start, scope, values):
    """Return the states left of each variable: all tables are looked at until nothing changes."""
    left = [np.ones(k, dtype=bool) for k in cards]
    for _ in range(1 + sum(cards)):
        place = 0
        for a, b in itertools.pairwise(start.tolist()):
            members = scope[a:b]
            shape = tuple(int(cards[v]) for v in members)
            table = values[place : place + math.prod(shape)].reshape(shape) > -np.inf
            place += math.prod(shape)
            for axis, v in enumerate(members):
                allowed = table
                for other, u in enumerate(members):
                    axes = [1] * len(shape)
                    axes[other] = -1
                    allowed = allowed & left[u].reshape(axes)
                others = tuple(i for i in range(len(shape)) if i != axis)
                left[v] = left[v] & allowed.any(axis=others)
    return left


@one_test_over("seed", range(40))
def test_removing_impossible_states_keeps_the_sum(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    cards, scopes = random_graph(rng, n, int(rng.integers(0, 2 * n + 1)), 3, 3)
    model = graph(cards, scopes)
    size = sum(math.prod(int(cards[v]) for v in s) for s in scopes)
    values = np.where(rng.random(size) < 0.3 + 0.4 * (seed % 2), -np.inf, rng.normal(size=size))
    left = remove_impossible(*model, np.isneginf(values))
    before = log_z(*model, values)
    expected = possible_by_repetition(*model, values)
    if not left.cards.all():
        assert before == -math.inf
        assert not all(states.any() for states in expected)
        assert not left.cards.any() and not left.stays.any()
        return
    values = values[left.stays]
    after = log_z(left.cards, left.start, left.scope, values)
    assert after == pytest.approx(before, rel=1e-12)
    assert [len(k) for k in left.kept] == left.cards.tolist()
    assert [k.tolist() for k in left.kept] == [np.flatnonzero(k).tolist() for k in expected]
    assert (left.cards[left.scope] > 1).all()
    again = remove_impossible(left.cards, left.start, left.scope, np.isneginf(values))
    assert np.array_equal(again.cards, left.cards) and again.stays.all()


def test_removal_goes_from_table_to_table():
    scopes = [[v, v + 1] for v in range(5)] + [[0]]
    equal = np.where(np.eye(3, dtype=bool), 0.0, -np.inf).ravel()
    values = np.concatenate((*[equal] * 5, [-np.inf, 1.5, -np.inf]))
    left = remove_impossible(*graph([3] * 6, scopes), np.isneginf(values))
    assert [k.tolist() for k in left.kept] == [[1]] * 6
    assert not len(left.scope) and values[left.stays].sum() == 1.5


def test_malformed_tables_are_refused():
    model = graph([2, 2], [[0, 1]])
    with pytest.raises(PgmError, match="4 entries"):
        remove_impossible(*model, np.zeros(3, dtype=bool))
    with pytest.raises(PgmError, match="factor 0 names variable 5"):
        remove_impossible(*graph([2, 2], [[0, 5]]), np.zeros(4, dtype=bool))


def refused(links, monkeypatch, is_installed):
    """The refusal of a graph of 60 spins for want of a small tree, with or without goatd."""
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Spin(), 60)
    b.couple("s", "s", weight=links)
    monkeypatch.setattr(planning, "is_installed", lambda: is_installed)
    method = pgm.Elimination(max_states=2**18, max_work=0)
    return method.plan(b.build().given(), ("log_z",)).refusal


def sparse(seed, share=0.1):
    links = np.triu(np.random.default_rng(seed).random((60, 60)) < share, 1).astype(float)
    return links + links.T


@pytest.mark.parametrize("seed", range(3))
def test_a_refusal_says_that_the_order_is_the_best_one_found_and_names_the_extra(seed, monkeypatch):
    said = refused(sparse(seed), monkeypatch, False)
    assert said.startswith("the best elimination order found needs 2^")
    assert re.search(
        r"its width is [\d.]+, and no order has less than [\d.]+; the extra tree", said
    )
    assert "pip install 'pgmengine[treewidth]'" in said
    assert "treewidth" not in refused(sparse(seed), monkeypatch, True)


def test_the_extra_is_not_named_where_no_order_is_good_enough(monkeypatch):
    said = refused(np.ones((60, 60)) - np.eye(60), monkeypatch, False)
    assert "its width is 60, and no order has less than 60" in said and "treewidth" not in said


def test_graphs_whose_entries_exceed_all_numbers_are_refused(side=1050):
    """A complete bipartite graph needs a clique of 2^1050 states in each order."""
    pairs = [(a, side + b) for a in range(side) for b in range(side)]
    with pytest.raises(PgmError, match="more than 2"):
        best_order(*graph([2] * (2 * side), pairs), 0.0)
