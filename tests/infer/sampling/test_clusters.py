"""Cluster moves: invariance by chi-square, broken moves, frustration, answers and refusals.

The oracle adds up all states of models of a few units, from fields and couplings that are written
down here.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from invariance import ALARM, CAUGHT, tail
from loops import one_test_over
from smoke import in_lane

import pgmengine as pgm
from pgmengine import _kernels
from pgmengine.infer.sampling.clusters import moves
from pgmengine.infer.sampling.clusters.moves import (
    ClusterMoves,
    Part,
    cluster_parts,
    surely_frustrated,
)

CHAINS = 40_000
RING = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (4, 5)]


def declared(edges, J, units=6, kinds=False):
    """A model of spins with couplings, or of binary, categorical and spin units with tables."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(1)
    if not kinds:
        s = b.layer("s", pgm.Spin(), units, bias=rng.normal(0, 0.4, units))
        for (i, j), strength in zip(edges, J):
            b.couple(s[i], s[j], strength)
        return b.build()
    third = units // 3
    b.layer("x", pgm.Binary(), third, bias=rng.normal(0, 0.4, third))
    b.layer("c", pgm.Categorical(2), third, bias=rng.normal(0, 0.4, (third, 2)))
    b.layer("s", pgm.Spin(), units - 2 * third)
    places = [("x", i) for i in range(third)] + [("c", i) for i in range(third)]
    places += [("s", i) for i in range(units - 2 * third)]
    for (i, j), strength in zip(edges, J):
        table = np.exp(strength * np.array([[1.0, -1.0], [-1.0, 1.0]]) + rng.normal(0, 0.1))
        table *= np.exp(rng.normal(0, 0.2, (2, 1))) * np.exp(rng.normal(0, 0.2, (1, 2)))
        b.table([places[i], places[j]], table)
    return b.build()


def every_state(model, evidence=None):
    """All states of the free units of a target, flat values by layer, and their probabilities."""
    target = model.given(evidence)
    choices = []
    for name, layer in model.structure.layers.items():
        support = np.reshape(layer.unit.support, (len(layer.unit.support), -1))
        value = target.evidence.values[name].reshape(layer.size, -1)
        for i in range(layer.size):
            free = target.free[name][0, i]
            choices.append(support if free else value[i : i + 1])
    flat = np.array([np.concatenate(c) for c in itertools.product(*choices)])
    ends = np.cumsum([layer.width for layer in model.structure.layers.values()])[:-1]
    x = dict(zip(model.structure.layers, np.split(flat, ends, axis=1)))
    log_p = np.array(
        [
            model.flat_log_density({n: v[k : k + 1] for n, v in x.items()})[0]
            for k in range(len(flat))
        ]
    )
    p = np.exp(log_p - log_p.max())
    return x, p / p.sum()


def p_value(model, evidence=None, seed=0):
    """The p-value of joint states after a move that starts from exact draws."""
    x, p = every_state(model, evidence)
    rng = np.random.default_rng(seed)
    start = rng.choice(len(p), size=CHAINS, p=p)
    many = model.given(evidence).take(np.zeros(CHAINS, dtype=int))
    rngs = tuple(np.random.default_rng((seed, k)) for k in range(CHAINS))
    moves = ClusterMoves(many, tuple(cluster_parts(many)), rngs)
    layers = model.structure.layers
    new = moves.moved({n: layers[n].states(v[start]) for n, v in x.items()})
    new = {
        n: np.take(layers[n].unit.support, v, axis=0).reshape(CHAINS, -1) for n, v in new.items()
    }
    joint, all_of = (np.concatenate([d[n] for n in x], axis=1) for d in (new, x))
    code = np.random.default_rng(0).normal(size=all_of.shape[1])
    order = np.argsort(all_of @ code)
    place = np.searchsorted((all_of @ code)[order], joint @ code - 1e-9)
    found = order[place.clip(0, len(order) - 1)]
    np.testing.assert_allclose(all_of[found], joint)
    moved = (joint != all_of[start]).any(axis=1).mean()
    return tail(np.bincount(found, minlength=len(p)), CHAINS * p), moved


# Couplings of both signs that one state satisfies, frustrated ones, and a coupling of 0.
STRENGTHS = {
    "one sign": [0.5, 0.3, 0.8, 0.4, 1.0, 0.2],
    "both signs": [0.5, -0.3, -0.8, 0.4, -1.0, 0.2],
    "frustrated": [0.5, 0.3, 0.8, -0.4, 1.0, 0.0],
}
EVIDENCE = {False: {"s": [np.nan, np.nan, 1, np.nan, -1, np.nan]}, True: {"x": [1, np.nan]}}


@pytest.mark.few(2)
@pytest.mark.parametrize("J", STRENGTHS.values(), ids=STRENGTHS)
@pytest.mark.parametrize("kinds", [False, True], ids=["spins", "kinds"])
@pytest.mark.parametrize("observed", in_lane([False, True], "False"))
def test_a_move_leaves_the_distribution_as_it_is(J, kinds, observed):
    p, moved = p_value(declared(RING, J, kinds=kinds), EVIDENCE[kinds] if observed else None)
    assert p > ALARM / 12 and moved > 0.3


def potts(J, states=3):
    """Units of three states, by tables over agreement with fields of their own, and a bias."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(2)
    x = b.variable("x", states=states, shape=5)
    for (i, j), strength in zip(RING[:5], J):
        table = np.exp(2 * strength * np.eye(states)) * np.exp(rng.normal(0, 0.3, (states, 1)))
        b.table([x[i], x[j]], table * np.exp(rng.normal(0, 0.3, states)))
    b.table((x,), np.exp(rng.normal(0, 0.5, states)))
    return b.build()


@pytest.mark.parametrize("J", [STRENGTHS["one sign"], STRENGTHS["both signs"]], ids=["one", "both"])
def test_units_of_three_states(J):
    """Couplings against agreement are invariant as well, where they are asked for."""
    p, moved = p_value(potts(J))
    assert p > ALARM / 12 and moved > 0.3


class HalfOpen(Part):
    """Edges open with 1 - exp(-J) in place of 1 - exp(-2 J)."""

    chance = property(lambda self: np.ascontiguousarray(-np.expm1(-np.abs(self.J.T))))


class NoField(Part):
    """Clusters change sign whatever their field."""

    def moved(self, up, uniform):
        return Part(self.rows, self.layers, self.edges, 0 * self.h, self.J, self.constant).moved(
            up, uniform
        )


class OneSign(Part):
    """Edges with negative couplings count as positive ones."""

    def moved(self, up, uniform):
        return Part(self.rows, self.layers, self.edges, self.h, abs(self.J), self.constant).moved(
            up, uniform
        )


@pytest.mark.parametrize("broken", [HalfOpen, NoField, OneSign])
def test_broken_moves_are_caught(broken, monkeypatch):
    monkeypatch.setattr(moves, "Part", broken)
    assert p_value(declared(RING, STRENGTHS["both signs"]))[0] < CAUGHT
    assert p_value(potts(STRENGTHS["both signs"]))[0] < CAUGHT


def test_chains_have_random_numbers_of_their_own(chains=400):
    """Chains that start alike move apart, and each moves as it would alone."""
    model = declared(RING, STRENGTHS["one sign"])

    def moved(numbers):
        target = model.given().take(np.zeros(len(numbers), dtype=int))
        rngs = tuple(np.random.default_rng((3, k)) for k in numbers)
        moves = ClusterMoves(target, tuple(cluster_parts(target)), rngs)
        return moves.moved({"s": np.ones((len(numbers), 6), dtype=np.uint8)})["s"]

    new = moved(range(chains))
    assert len(np.unique(new, axis=0)) > 10
    np.testing.assert_array_equal(moved([7]), new[7:8])


@pytest.mark.parametrize("states", [2, 3, 5])
@pytest.mark.parametrize("lanes", [1, 40])
@pytest.mark.parametrize("count", [0, 1, 12, 300])
def test_compiled_moves_are_the_plain_ones(lanes, count, states, rows=40, units=30):
    rng = np.random.default_rng(count)
    edges = rng.integers(0, units, (count, 2))
    J, h = rng.normal(0, 1, (count, lanes)), rng.normal(0, 0.5, (units, states, lanes))
    part = Part(np.arange(rows), {"s": np.arange(units)}, edges, h, J, np.zeros(rows))
    state, uniform = rng.integers(states, size=(rows, units)), rng.random((rows, count + units))
    before = state.copy()
    new = part.moved(state, uniform)
    np.testing.assert_array_equal(new, part.plain(state, uniform))
    np.testing.assert_array_equal(state, before)
    assert (new != state).any() and (new == state).any() and new.max() < states


@pytest.mark.skipif(not _kernels.MOST_STATES, reason="there are no compiled routines")
def test_arrays_that_do_not_fit_are_refused():
    part = Part(
        np.arange(2), {}, np.array([[0, 3]]), np.zeros((3, 2, 1)), np.ones((1, 1)), np.zeros(2)
    )
    up = np.zeros((2, 3), dtype=bool)
    with pytest.raises(ValueError, match="edge 0 joins 0 and 3, of 3 units"):
        part.moved(up, np.zeros((2, 4)))
    with pytest.raises(ValueError, match="do not fit"):
        part.moved(up, np.zeros((2, 5)))


def test_frustration_is_found(trials=200):
    """Against all states: a graph is not frustrated if one state satisfies every coupling."""
    rng, both = np.random.default_rng(0), set()
    states = np.array(list(itertools.product([-1, 1], repeat=5)))
    for _ in range(trials):
        pairs = [pair for pair in itertools.combinations(range(5), 2) if rng.random() < 0.45]
        edges = np.reshape(np.array(pairs, dtype=int), (-1, 2))
        J = rng.choice([-0.5, 0.0, 0.5], (len(edges), 2), p=[0.3, 0.2, 0.5])
        part = Part(np.arange(2), {"s": np.arange(5)}, edges, np.zeros((5, 2, 1)), J, np.zeros(2))
        a, b = edges.T
        satisfied = [(j * states[:, a] * states[:, b] >= 0).all(axis=1).any() for j in J.T]
        assert part.frustrated == (not all(satisfied))
        both.add(part.frustrated)
    assert both == {False, True}


@pytest.mark.parametrize("sparse", [False, True])
def test_a_quick_look_sees_frustration_only_where_it_is(sparse, trials=60):
    rng, seen = np.random.default_rng(1), []
    for _ in range(trials):
        weight = rng.choice([-0.5, 0.0, 0.5], (6, 5), p=[0.3, 0.3, 0.4])
        if rng.random() < 0.5:
            weight = np.abs(weight) * np.outer(rng.choice([-1, 1], 6), rng.choice([-1, 1], 5))
        b = pgm.GraphBuilder()
        b.layer("v", pgm.Binary(), 6)
        b.layer("h", pgm.Spin(), 5)
        b.couple("v", "h", weight=sp.csr_array(weight) if sparse else weight)
        target = b.build().given({"v": np.where(np.arange(6) < 1, 1.0, np.nan)})
        (part,) = cluster_parts(target)
        assert surely_frustrated(target) == part.frustrated
        seen.append(part.frustrated)
    assert 10 < sum(seen) < trials - 10


def lattice(side, k, field=0.0):
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (side, side), bias=np.full((side, side), field))
    b.couple(s[1:], s[:-1], k)
    b.couple(s[:, 1:], s[:, :-1], k)
    return b.build()


def size(x):
    return np.abs(x["s"].mean(axis=(-1, -2)))


def bonds(x):
    s = x["s"]
    vertical = (s[..., 1:, :] * s[..., :-1, :]).sum(axis=(-1, -2))
    return vertical + (s[..., 1:] * s[..., :-1]).sum(axis=(-1, -2))


@pytest.mark.parametrize(
    "k",
    [pytest.param(k, marks=pytest.mark.long) for k in (0.3, 0.4407, 1.0)] + in_lane([0.6], "0.6"),
)
def test_lattices_at_every_temperature(k, errors=5.0):
    """The default answers well where chains of single units do not, and both phases are visited.

    The bonds are compared with the exact gradient, and the size with exact draws of a smaller one.
    """
    r = pgm.infer(lattice(28, k), want=("samples",), rng=0)
    assert type(r.method) is pgm.SwendsenWang and r.status is pgm.Status.OK
    exact = pgm.infer(lattice(28, k), want=("gradient",))
    total = sum(float(np.sum(v)) for n, v in exact.gradient.items() if "bias" not in n)
    found = r.expectation(bonds)
    assert not found.doubt and abs(found.mean - total) < errors * found.error
    ups = (r.samples["s"].mean(axis=(-1, -2, -3)) > 0).reshape(4, -1).mean(axis=1)
    assert (abs(ups - 0.5) < 0.1).all()
    small = lattice(12, k)
    one, other = (
        pgm.infer(small, want=("samples",), method=m, rng=1).expectation(size)
        for m in (pgm.SwendsenWang(), pgm.Exact(draws=4000))
    )
    assert abs(one.mean - other.mean) < errors * np.hypot(one.error, other.error)


def test_rows_with_patterns_of_their_own():
    """Means of every row against exact ones, with gaps in other places and soft evidence."""
    rng, model = np.random.default_rng(0), lattice(5, 0.5, field=0.1)
    rows = np.where(rng.random((6, 5, 5)) < 0.3, rng.choice([-1.0, 1.0], (6, 5, 5)), np.nan)
    rows[0] = np.nan
    chains = pgm.infer(model, {"s": rows}, method=pgm.SwendsenWang(draws=4000), rng=0)
    exact = pgm.infer(model, {"s": rows}, method=pgm.Exact())
    assert chains.status is pgm.Status.OK
    gap = np.abs(chains.mean["s"] - exact.mean["s"])
    assert (gap <= 6 * np.reshape(chains.stats["mcse"]["s"], gap.shape) + 1e-9).all()


def test_same_bits_on_any_executor():
    model = lattice(60, 0.5)
    want, method = ("samples",), pgm.SwendsenWang(warmup=20, draws=60, chains=5)
    with ThreadPoolExecutor(3) as pool:
        one, other = (
            pgm.infer(model, want=want, method=method, rng=4, executor=e) for e in (None, pool)
        )
    np.testing.assert_array_equal(one.samples["s"], other.samples["s"])
    chains = one.samples["s"].reshape(5, 60, -1)
    assert len(np.unique(chains[:, 0], axis=0)) == 5


def glass():
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (9, 9))
    b.couple(s[1:], s[:-1], rng.choice([-1.0, 1.0], (8, 9)))
    b.couple(s[:, 1:], s[:, :-1], rng.choice([-1.0, 1.0], (9, 8)))
    return b.build()


def with_table(values, states=2):
    b = pgm.GraphBuilder()
    names = [b.variable(f"v{k}", states=states) for k in range(np.ndim(values))]
    b.table(names, values)
    return b.build()


def two_and_three_states():
    b = pgm.GraphBuilder()
    b.table([b.variable("x", states=2), b.variable("y", states=3)], np.ones((2, 3)))
    return b.build()


def with_gaussian_child():
    b = pgm.GraphBuilder()
    b.layer("s", pgm.Spin(), 2)
    b.layer("g", pgm.Gaussian(), 2)
    b.couple("s", "s", weight=[[0.0, 0.5], [0.5, 0.0]])
    b.cause("s", "g", weight=np.eye(2))
    return b.build()


@one_test_over(
    ("model", "why"),
    [
        (glass(), "frustrated"),
        (with_table(np.arange(1.0, 10).reshape(3, 3) ** 2, 3), "more than whether two units agree"),
        (with_table(1.0 + 0.5 * (np.eye(3) < 1), 3), "frustrated"),
        (two_and_three_states(), "2 or 3 states"),
        (with_table([[1.0, 0.0], [1.0, 1.0]]), "entries of tables are 0"),
        (with_table(np.arange(1.0, 9).reshape(2, 2, 2)), "more than two units"),
        (with_gaussian_child(), "infinitely many values"),
    ],
)
def test_refusals(model, why):
    with pytest.raises(pgm.PgmError, match=f"SwendsenWang refused: .*{why}"):
        pgm.infer(model, want=("marginals",), method=pgm.SwendsenWang())


def test_frustrated_couplings_on_request():
    """The means of a small glass with fields, against exact ones."""
    rng = np.random.default_rng(0)
    model = glass().with_params({"s.bias": rng.normal(0, 0.3, 81)})
    r = pgm.infer(model, method=pgm.SwendsenWang(draws=4000, frustrated=True), rng=0)
    exact = pgm.infer(model, method=pgm.Exact())
    gap = np.abs(r.mean["s"] - exact.mean["s"])
    assert (gap < 6 * np.reshape(r.stats["mcse"]["s"], gap.shape)).all()


def test_many_couplings_are_refused_before_they_are_read(monkeypatch):
    monkeypatch.setattr(moves, "MAX_ENTRIES", 100)
    monkeypatch.setattr(moves, "agreements", None)
    with pytest.raises(pgm.PgmError, match="144 couplings, and at most 100"):
        pgm.infer(pgm.rbm(12, 12, rng=0), method=pgm.SwendsenWang(frustrated=True))


def test_a_run_goes_on_from_its_state():
    method = pgm.SwendsenWang(warmup=5, draws=20)
    first = pgm.infer(lattice(6, 0.5), want=("samples",), method=method, rng=0)
    more = pgm.infer(lattice(6, 0.5), want=("samples",), method=method, rng=0, state=first.state)
    assert more.samples["s"].shape == first.samples["s"].shape
