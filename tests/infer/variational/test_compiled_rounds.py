"""The compiled rounds of mean field with directed children against plain numpy, and what a user may
rely on.
"""

import signal
import sys

import numpy as np
import pytest
from bound_oracle import bound
from brute import Brute, grid, log_sum
from kept import kept
from loops import one_test_over
from tiny import MODELS, as_evidence, draw_row, tiny_model

import pgmengine as pgm
from pgmengine.infer.variational.unit_tables import Belief

SCALAR = [
    m
    for m in MODELS
    if m.directed
    and not m.tables
    and all(
        type(x.unit).__name__ in ("Binary", "Spin", "MultiValued", "Categorical") for x in m.layers
    )
    and all(x.unit.support is not None for x in m.layers)
]


class Twin:
    """One row: a table for every unit, children's xi fixed; units one after the other, as the
    formulas say.
    """

    def __init__(self, m, row, xi, soft=None):
        self.soft = soft or {}
        self.m, self.layers = m, {x.name: x for x in m.layers}
        self.children = {c for _, c, _ in m.directed}
        coupled = {n for a, b, _ in m.undirected for n in (a, b)}
        self.directed = self.children | {p for p, _, _ in m.directed if p not in coupled}
        self.q, self.free = {}, []
        for x in m.layers:
            values, base = grid(x.unit)
            for i, v in enumerate(row[x.name]):
                self.q[x.name, i] = np.exp(base - log_sum(base))
                if v is None:
                    self.free.append((x.name, i))
                else:
                    self.q[x.name, i] = (
                        np.all(
                            values == (np.eye(x.unit.k)[v] if values.shape[1] > 1 else v), axis=1
                        )
                        * 1.0
                    )
        low_high = {
            n: (grid(x.unit)[0].min(axis=0), grid(x.unit)[0].max(axis=0))
            for n, x in self.layers.items()
        }
        self.xi = {n: low + xi * (high - low) / len(low) for n, (low, high) in low_high.items()}

    def values(self, name):
        return grid(self.layers[name].unit)[0]

    def mean(self, u):
        return self.q[u] @ self.values(u[0])

    def block(self, weight, a, i, b, j):
        wa, wb = self.values(a).shape[1], self.values(b).shape[1]
        return weight[i * wa : (i + 1) * wa, j * wb : (j + 1) * wb]

    def bias(self, u):
        w = self.values(u[0]).shape[1]
        return np.ravel(self.layers[u[0]].bias)[u[1] * w : (u[1] + 1) * w]

    def parents(self, c):
        """(unit, weight block) of every parent of a child unit."""
        for p, name, weight in self.m.directed:
            if name == c[0]:
                for i in range(self.layers[p].size):
                    yield (p, i), self.block(weight, p, i, *c)

    def log_sums(self, c):
        """L_k of a child: log h_k + log E exp((y_k - xi) z)."""
        values, base = grid(self.layers[c[0]].unit)
        out = base + (values - self.xi[c[0]]) @ self.bias(c)
        for u, weight in self.parents(c):
            t = (
                (values - self.xi[c[0]]) @ weight.T @ self.values(u[0]).T
            )  # (K, states of the parent)
            out = out + np.log(np.exp(t) @ self.q[u])
        return out

    def update(self, u):
        values, base = grid(self.layers[u[0]].unit)
        eta, share = self.bias(u).astype(float), np.zeros(len(values))
        eta = (
            eta
            + np.ravel(self.soft.get(u[0], np.zeros(len(np.ravel(self.layers[u[0]].bias)))))[
                u[1] * len(eta) :
            ][: len(eta)]
        )
        for p, weight in self.parents(u):
            eta = eta + self.mean(p) @ weight
        for a, b, weight in self.m.undirected:
            for one, other, w in (
                ((a, b, weight), (b, a, weight.T)) if a != b else ((a, a, weight),)
            ):
                if one == u[0]:
                    eta = eta + sum(
                        self.block(w, *u, other, j) @ self.mean((other, j))
                        for j in range(self.layers[other].size)
                    )
        for p, name, weight in self.m.directed:
            for j in range(self.layers[name].size if p == u[0] else 0):
                block, c = self.block(weight, *u, name, j), (name, j)
                eta = eta + block @ (self.mean(c) - self.xi[name])
                phi = np.exp(self.log_sums(c) - log_sum(self.log_sums(c)))
                tilt = np.exp((self.values(name) - self.xi[name]) @ block.T @ values.T)
                share = share + phi @ (tilt / (tilt @ self.q[u])[:, None])
        w = base + values @ eta - share
        self.q[u] = np.exp(w - log_sum(w))


@pytest.mark.parametrize("xi", [0.0, 0.4, 1.0])
@one_test_over("m", SCALAR)
def test_rounds_are_those_of_plain_numpy(m, xi, rtol=1e-9):
    """After 1, 2 and 5 rounds, rows with all leaves observed (nothing is left out of the bound)."""
    rng, parents = np.random.default_rng(0), {p for p, c, _ in m.directed if p != c}
    rows = [draw_row(m, rng, 1.0) for _ in range(5)]
    for row in rows:
        for x in m.layers:
            if x.name in parents:
                row[x.name] = [v if rng.random() < 0.2 else None for v in row[x.name]]
    model = m.build()
    order = [n for n in model.structure.children_first]
    for rounds in (1, 2, 5):
        found = pgm.infer(
            model, as_evidence(m, rows), method=pgm.MeanField(updates=rounds, tolerance=0, xi=xi)
        )
        for i, row in enumerate(rows):
            twin = Twin(m, row, xi)
            for _ in range(rounds):
                for name in order:
                    for u in (u for u in twin.free if u[0] == name):
                        twin.update(u)
            for name in order:
                expected = np.array([twin.q[name, j] for j in range(twin.layers[name].size)])
                np.testing.assert_allclose(found.prob[name][i], expected, rtol=rtol, atol=1e-12)


def test_rounds_with_soft_evidence_are_those_of_plain_numpy(rtol=1e-9):
    m = next(m for m in SCALAR if m.name == "sbn deep")
    row, soft = (
        {"v": [1, 0, 1], "h1": [None, None], "h2": [None, None]},
        {"h1": np.array([1.5, -2.0]), "h2": np.array([0.3, 2.0])},
    )
    found = pgm.infer(
        m.build(), {"v": [1, 0, 1]}, soft=soft, method=pgm.MeanField(updates=3, tolerance=0, xi=0.5)
    )
    twin = Twin(m, row, 0.5, soft)
    for _ in range(3):
        for u in (("h1", 0), ("h1", 1), ("h2", 0), ("h2", 1)):
            twin.update(u)
    for name in ("h1", "h2"):
        np.testing.assert_allclose(found.prob[name], [twin.q[name, j] for j in range(2)], rtol=rtol)


FINITE = [m for m in MODELS if m.directed and all(x.unit.support is not None for x in m.layers)]


@one_test_over("m", FINITE)
def test_along_the_tempering_path(m, slack=1e-9):
    """At every beta, with a reference, below log Z; equal at 0; rows of one batch at different beta
    as alone.
    """
    rng, row = np.random.default_rng(1), draw_row(m, np.random.default_rng(2), 0.4)
    rows = [row] * 5
    reference = {x.name: rng.normal(0, 0.5, np.shape(x.bias)) for x in m.layers}
    betas = np.array([0.0, 0.37, 0.8, 1.0, 0.37])
    target, method = (
        m.build().given(as_evidence(m, rows)),
        pgm.MeanField(updates=3000, tolerance=1e-11),
    )
    together = method.run(target.at(betas, reference), ("log_z",)).log_z
    for i, beta in enumerate(betas):
        flat = {name: np.reshape(v, (v.shape[0], -1)) for name, v in reference.items()}
        exact = Brute(
            m,
            row,
            beta=beta,
            reference=None if any(v.shape[1] > 1 for v in flat.values()) else reference,
        ).log_z
        # The oracle takes a reference of one component only.
        if any(v.shape[1] > 1 for v in flat.values()):
            found = method.run(target.take(np.array([i])).at(beta, {}), ("log_z",)).log_z[0]
        else:
            found = together[i]
            alone = method.run(target.take(np.array([i])).at(beta, reference), ("log_z",)).log_z[0]
            np.testing.assert_allclose(found, alone, rtol=1e-7, atol=1e-7)
        assert found <= exact + slack * (1 + abs(exact))
        if beta == 0:
            np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9)


def noisy(parents, children, rng, bias=0.1):
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), parents, bias=rng.normal(0, 1, parents))
    b.layer("v", pgm.NoisyOr(), children, bias=np.full(children, bias))
    b.cause("h", "v", weight=rng.random((parents, children)))
    return b.build()


def test_same_bits_with_several_terms_a_child(monkeypatch):
    rng = np.random.default_rng(0)
    model, x = noisy(12, 20, rng), rng.integers(0, 2, (40, 20)).astype(float)
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("PGMENGINE_THREADS", threads)
        found.append(pgm.infer(model, {"v": x}, want=("gradient", "log_z"), method=pgm.MeanField()))
    for other in found[1:]:
        np.testing.assert_array_equal(
            found[0].gradient["h->v.weight"], other.gradient["h->v.weight"]
        )


@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_findings_that_nobody_made_have_their_probabilities(bias, rtol=1e-9):
    """1 - E[e^-z] of free noisy-or units, exact under Q; no leak is needed where nothing is
    seen.
    """
    model = noisy(3, 4, np.random.default_rng(1), bias)
    r = pgm.infer(model, want=("marginals", "log_z", "gradient"), method=pgm.MeanField())
    q, w = r.mean["h"], model.params["h->v.weight"]
    expected = 1 - np.exp(-bias) * np.prod(1 - q[:, None] + q[:, None] * np.exp(-w), axis=0)
    np.testing.assert_allclose(r.mean["v"], expected, rtol=rtol)
    np.testing.assert_allclose(r.mean["v"], pgm.infer(model).mean["v"], rtol=rtol)
    assert abs(r.log_z[0]) < 1e-12 and all(np.all(np.abs(g) < 1e-9) for g in r.gradient.values())


def test_findings_below_an_undirected_pair(rtol=1e-9):
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Binary(), 2)
    b.layer("h", pgm.Binary(), 2)
    b.layer("v", pgm.NoisyOr(), 2)
    b.couple("a", "h", weight=np.ones((2, 2)))
    b.cause("h", "v", weight=np.ones((2, 2)))
    r = pgm.infer(b.build(), method=pgm.MeanField())
    q = r.mean["h"]
    np.testing.assert_allclose(r.mean["v"], 1 - np.prod(1 - q + q * np.exp(-1)), rtol=rtol)


def test_many_parents_do_not_overflow(rtol=1e-9):
    """3,000 parents of weight 0: each multiplies a product by 2."""
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 3000)
    b.layer("v", pgm.Binary(), 1, bias=[0.3])
    b.cause("h", "v", weight=np.zeros((3000, 1)))
    r = pgm.infer(b.build(), {"v": [1.0]}, want="log_prob", method=pgm.MeanField())
    np.testing.assert_allclose(r.log_prob[0], -np.log1p(np.exp(-0.3)), rtol=rtol)


@one_test_over("unit", [pgm.Binary(), pgm.Spin(), pgm.MultiValued(2)], ids=repr)
def test_xi_is_at_its_minimum_after_one_round(unit, rtol=1e-7):
    """Also where F has kinks, so that plain Newton steps would not arrive."""
    size = 2 if len(unit.support) > 2 else 3
    m = tiny_model(
        "hard",
        {"v": (unit, size), "h": (unit, size), "g": (pgm.Binary(), 2)},
        (),
        [("g", "h"), ("h", "v")],
        30.0,
    )
    rows = [
        {**draw_row(m, np.random.default_rng(i), 1.0), "h": [None] * size, "g": [None] * 2}
        for i in range(8)
    ]
    r = pgm.infer(
        m.build(),
        as_evidence(m, rows),
        want=("log_z", "marginals"),
        method=pgm.MeanField(updates=1, tolerance=0),
    )
    expected = [
        bound(m, row, {name: p[i] for name, p in r.prob.items()}) for i, row in enumerate(rows)
    ]
    np.testing.assert_allclose(r.log_z, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "method", [pgm.MeanField(), pgm.Forward(40_000), pgm.MCMC(chains=8, draws=2000)], ids=repr
)
@pytest.mark.parametrize("name", ["sbn deep", "sbn categorical", "sbn lateral"])
def test_gradients_leave_out_what_do_has_cut(name, method, atol=0.08):
    m = next(m for m in MODELS if m.name == name)
    layer = "v" if name == "sbn lateral" else "h1"
    size = next(x.size for x in m.layers if x.name == layer)
    do = {layer: np.arange(size) % 2.0}
    rest = {"v": [1, 0, 1][: 2 if name == "sbn categorical" else 3]} if layer != "v" else {}
    exact = pgm.infer(m.build(), rest, do=do, want="gradient", method=pgm.Exact()).gradient
    found = pgm.infer(m.build(), rest, do=do, want="gradient", method=method, rng=0).gradient
    np.testing.assert_array_equal(found[f"{layer}.bias"], np.zeros_like(found[f"{layer}.bias"]))
    for key, value in exact.items():
        np.testing.assert_allclose(found[key], value, atol=atol)


def test_values_in_single_precision_are_still_values():
    """fit keeps data in float32, in which 1/3 is not 1/3."""
    rng = np.random.default_rng(0)
    model = kept(pgm.rbm(8, 12, visible=pgm.MultiValued(3), rng=0))
    x = rng.choice(pgm.MultiValued(3).support, (20, 8))
    x[::2, 2] = np.nan
    direct = pgm.infer(
        model, {"v": x}, want="gradient", method=pgm.MeanField(updates=5, tolerance=0)
    ).gradient
    settings = {
        "negative": pgm.ExactGradient(),
        "optimizer": pgm.SGD(1.0),
        "updates": 1,
        "batch_size": 20,
        "progress": False,
    }
    methods = pgm.MeanField(updates=5, tolerance=0), pgm.Exact()
    step = [
        pgm.fit(model, {"v": x}, positive=p, **settings).model.params["v.bias"] for p in methods
    ]
    free = pgm.infer(model, want="gradient").gradient["v.bias"]
    np.testing.assert_allclose(
        step[0] - model.params["v.bias"], direct["v.bias"] / 20 - free, atol=1e-5
    )
    np.testing.assert_allclose(step[0], step[1], atol=0.05)


def test_a_state_that_does_not_fit_is_refused(digits):
    model, x = digits
    state = pgm.infer(model, {"v": x}, method=pgm.MeanField()).state
    for other in (x[:3], np.where(np.isnan(x), 0.0, x)[:7]):
        with pytest.raises(pgm.PgmError, match="the state does not fit: layer"):
            pgm.infer(model, {"v": other}, method=pgm.MeanField(), state=state)


@pytest.fixture
def digits():
    rng = np.random.default_rng(0)
    model = pgm.sbn([64, 24, 8], rng=0)
    model = model.with_params(
        {name: rng.normal(0, 0.7, v.shape) for name, v in model.params.items()}
    )
    x = rng.integers(0, 2, (45, 64)).astype(float)
    return model, np.where(rng.random(x.shape) < 0.2, np.nan, x)


def test_same_bits_for_any_number_of_threads_and_rows(digits, monkeypatch):
    model, x = digits
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("PGMENGINE_THREADS", threads)
        found.append(
            pgm.infer(
                model, {"v": x}, want=("log_z", "marginals", "gradient"), method=pgm.MeanField()
            )
        )
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].log_z, other.log_z)
        for name in ("h1->v.weight", "h2->h1.weight"):
            np.testing.assert_array_equal(found[0].gradient[name], other.gradient[name])


@one_test_over("rows", [1, 7, 8, 9, 17])
def test_rows_need_not_fill_a_block(digits, rows, rtol=1e-6):
    """The bound of a row hardly depends on the rows beside it: they only decide how many rounds are
    made.
    """
    model, x = digits
    whole = pgm.infer(model, {"v": x}, want="log_z", method=pgm.MeanField())
    some = pgm.infer(model, {"v": x[:rows]}, want="log_z", method=pgm.MeanField())
    np.testing.assert_allclose(some.log_z, whole.log_z[:rows], rtol=rtol)


def test_warm_start_restarts_and_executor(digits):
    from concurrent.futures import ThreadPoolExecutor

    model, x = digits
    target, method = model.given({"v": x}), pgm.MeanField(tolerance=1e-8)
    first = method.run(target, ("log_z",))
    again = method.run(target, ("log_z",), state=first.state)
    assert again.stats["rounds"] < first.stats["rounds"]
    np.testing.assert_allclose(again.log_z, first.log_z, rtol=1e-9)
    rugged = model.with_params({name: 6 * value for name, value in model.params.items()}).given(
        {"v": x}
    )
    once, more = (
        pgm.MeanField(tolerance=1e-8, restarts=n).run(rugged, ("log_z",), rng=0).log_z
        for n in (0, 3)
    )
    assert np.all(more >= once - 1e-7) and np.any(more > once + 1e-3)
    with ThreadPoolExecutor(2) as pool:
        shared = pgm.infer(
            model, {"v": x}, want=("log_z", "marginals"), method=method, executor=pool
        )
    np.testing.assert_allclose(shared.log_z, first.log_z, rtol=1e-6)
    assert isinstance(shared.stats["rounds"], int)


def test_a_network_of_variables_in_any_order(rtol=1e-9):
    """A DAG given by its variables has the bound of the same network given by its layers."""
    model = pgm.sbn([6, 4, 2], rng=1)
    graph = model.to_networkx(level="variables")
    other = pgm.GraphBuilder.from_networkx(graph, unit=pgm.Binary()).build()
    x = np.array([1.0, 0, 1, 1, 0, 1])
    direct = pgm.infer(
        model, {"v": x}, want="log_prob", method=pgm.MeanField(updates=2000, tolerance=1e-12)
    )
    place = {
        label: (name, i)
        for name, layer in other.structure.layers.items()
        for i, label in enumerate(layer.labels)
    }
    evidence = {name: np.full(layer.size, np.nan) for name, layer in other.structure.layers.items()}
    for i, value in enumerate(x):
        name, at = place[("v", i)]
        evidence[name][at] = value
    found = pgm.infer(
        other, evidence, want="log_prob", method=pgm.MeanField(updates=2000, tolerance=1e-12)
    )
    np.testing.assert_allclose(found.log_prob, direct.log_prob, rtol=rtol)


def pairs_of_tables(units=200):
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), units)
    pairs = [[i, (i + 1) % units] for i in range(units)]
    b.tables(("x", "x"), pairs, np.tile([[1.0, 2.0], [3.0, 1.0]], (units, 1, 1)))
    return b.build()


class Stop(Exception):
    pass


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize(
    "model, evidence",
    [(pgm.sbn([30, 20, 10], rng=0), {"v": [1] * 30}), (pairs_of_tables(), {})],
    ids=["children", "tables"],
)
def test_rounds_are_stopped_by_signals(model, evidence, rows, monkeypatch):
    """Without end otherwise: no change is below a negative tolerance."""
    monkeypatch.setattr(
        sys.modules["pgmengine.infer.variational.unit_tables"], "MIN_EDGES_PER_THREAD", 1
    )
    q = Belief(model.given(evidence).take(np.zeros(rows, dtype=int)))

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stop):
            q.settle(10**15, -1.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@one_test_over(
    "keywords, match",
    [
        ({"xi": 1.5}, "xi must be None or a number from 0 to 1"),
        ({"xi": float("nan")}, "xi must be"),
        ({"xi": "a"}, "xi must be"),
        ({"updates": 0}, "updates must be an integer of at least 1"),
        ({"restarts": -1}, "restarts"),
        ({"tolerance": float("nan")}, "tolerance"),
    ],
)
def test_settings_are_checked(keywords, match):
    with pytest.raises(pgm.PgmError, match=match):
        pgm.MeanField(**keywords)


def test_what_it_cannot_bound_is_refused_in_words():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 2)
    b.layer("v", pgm.NoisyOr(), 2)
    b.cause("h", "v", weight=np.ones((2, 2)))
    with pytest.raises(pgm.PgmError, match="'v' of NoisyOr.* needs an input above 0"):
        pgm.infer(b.build(), {"v": [1, 0]}, method=pgm.MeanField())
    assert (
        pgm.infer(b.build(), {"v": [0, 0]}, want="log_prob", method=pgm.MeanField()).log_prob[0] < 0
    )
    g = pgm.GraphBuilder()
    g.layer("h", pgm.Gaussian(), 2)
    g.layer("v", pgm.Binary(), 2)
    g.cause("h", "v", weight=np.ones((2, 2)))
    with pytest.raises(pgm.PgmError, match="'h' is free and has infinitely many values"):
        pgm.infer(g.build(rng=0), {"v": [1, 0]}, method=pgm.MeanField())
