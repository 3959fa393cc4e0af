"""Planned seconds beside measured seconds: the time of the run, the plan, and their ratio.

The rates of the engines (pgmengine/engine/cost.py) and of the methods are fitted to these rows. On
another computer all ratios move together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness import OURS, Row, Settings, once

import pgmengine as pgm

Array = np.ndarray
Asked = tuple[pgm.Model, Any]  # a model and evidence
SAMPLED = ("marginals",)


class Slow:
    """Gibbs sampling as a user may write it: the plain engine runs it."""

    def transition(self, prob: Array, current: Array) -> Array:
        """Probabilities of the next state."""
        return prob


@dataclass(frozen=True)
class Question:
    """A method, what is asked, and how to make what it is asked of."""

    name: str
    method: Any
    make: Callable[[], Asked]
    want: tuple[str, ...] = SAMPLED


def rows(settings: Settings) -> Iterator[Row]:
    """One row a question."""
    for question in questions():
        yield Row(
            f"{question.name}, {type(question.method).__name__}", "s", cases(question), peers=False
        )


def cases(question: Question) -> dict[str, Callable[[], float]]:
    """The measured seconds of a run, and the planned seconds."""
    asked = cache(question.make)

    def run() -> Callable[[], object]:
        model, evidence = asked()
        return lambda: pgm.infer(model, evidence, want=question.want, method=question.method, rng=0)

    def planned() -> float:
        model, evidence = asked()
        return float(question.method.plan(model.given(evidence), question.want).seconds)

    return {OURS: once(run), "planned": planned}


def questions() -> Iterator[Question]:
    """Every method and engine on small and large, dense and sparse, (un)directed graphs."""
    yield from _of_samplers()
    yield from _of_ladders()
    yield from _of_exact()
    yield from _of_others()
    yield from _of_tables()


def _of_samplers() -> Iterator[Question]:
    many = pgm.MCMC(chains=100, warmup=100, draws=200)
    for name, make in GRAPHS.items():
        yield Question(name, pgm.MCMC(), make)
        if not name.startswith(("lattice 100", "chain")):
            yield Question(f"{name}, 100 chains", many, make)
    for name in ("RBM 16x16", "RBM 64x64", "HMM of 20", "belief net 30-20-10"):
        yield Question(
            f"{name}, a user's kernel", pgm.MCMC(kernel=Slow(), warmup=50, draws=50), GRAPHS[name]
        )
    yield Question(
        "lattice 20x20, a user's kernel",
        pgm.MCMC(kernel=Slow(), warmup=5, draws=10),
        GRAPHS["lattice 20x20"],
    )
    yield Question("RBM 64x64, 100 rows", pgm.MCMC(warmup=100, draws=200), _rows)
    yield Question("RBM 64x64, gradient", pgm.MCMC(), GRAPHS["RBM 64x64"], ("gradient",))
    yield Question(
        "RBM 64x64, pairs and samples", pgm.MCMC(), GRAPHS["RBM 64x64"], ("pairs", "samples")
    )


def _of_ladders() -> Iterator[Question]:
    for name in ("RBM 64x64", "RBM 784x500", "lattice 20x20", "HMM of 20", "belief net 30-20-10"):
        yield Question(name, pgm.AIS(), GRAPHS[name], ("log_z",))
        yield Question(
            name, pgm.ParallelTempering(warmup=100, draws=200), GRAPHS[name], ("marginals", "log_z")
        )
        yield Question(name, pgm.SimulatedTempering(warmup=300, draws=1000), GRAPHS[name])
        if name != "RBM 784x500":
            yield Question(name, pgm.TemperedTransitions(warmup=20, draws=100), GRAPHS[name])
    yield Question(
        "RBM 16x16, a user's kernel",
        pgm.AIS(chains=20, kernel=Slow()),
        GRAPHS["RBM 16x16"],
        ("log_z",),
    )
    count = pgm.WangLandau(
        lambda x: x["v"].sum(axis=1).astype(int), 17, warmup=50, draws=50, layers=("v",)
    )
    yield Question("RBM 16x16", count, GRAPHS["RBM 16x16"])


def _of_exact() -> Iterator[Question]:
    for hidden in (10, 14, 18, 22):
        for want in (("log_z",), ("marginals",)):
            yield Question(f"RBM 64x{hidden}, {want[0]}", pgm.Exact(), _rbm(64, hidden), want)
    for want in (("gradient",), ("mode",), ("samples",)):
        yield Question(f"RBM 784x18, {want[0]}", pgm.Exact(), _rbm(784, 18), want)
    yield Question("belief net 64-18, log_z", pgm.Exact(), _belief(64, 18), ("log_z",))
    yield Question("belief net 64-14, marginals", pgm.Exact(), _belief(64, 14))
    yield Question("lattice 5x5, pairs", pgm.Exact(), _lattice(5), ("pairs",))
    yield Question("causes and findings, no leak", pgm.Exact(), _causes(1e-5), ("log_z",))
    yield Question("causes and findings", pgm.Exact(), _causes(0.05), ("log_z",))
    yield Question("RBM 20x6, 500 patterns", pgm.Exact(), _patterns)


def _of_others() -> Iterator[Question]:
    for name in (
        "RBM 64x64",
        "RBM 784x500",
        "DBM 200-100-100",
        "lattice 20x20",
        "lattice 100x100",
        "HMM of 200",
    ):
        yield Question(f"{name}, biases", pgm.MeanField(), _biased(GRAPHS[name]), ("bound",))
    yield Question(
        "belief net 784-100-50, biases",
        pgm.MeanField(),
        _biased(_belief(784, 100, 50), 0.5),
        ("bound",),
    )
    yield Question(
        "belief net 64-24-8, biases, 50 rows",
        pgm.MeanField(),
        _biased(_belief(64, 24, 8, rows=50), 0.5),
        ("bound",),
    )
    for name, make in {
        "belief net 784-100-50": _belief(784, 100, 50),
        "chain of 2,000": _chain(2000),
        "chain of 20,000": _chain(20_000),
    }.items():
        yield Question(name, pgm.Forward(), lambda make=make: (make()[0], None))
    yield Question("HMM of 200", pgm.Forward(), lambda: (_hmm(200)()[0], None))


def _of_tables() -> Iterator[Question]:
    """Models of tables and of gates, and graphs whose preparation takes most of the time."""
    for name, make in {
        "noisy-or, 200 findings": _findings,
        "Potts 40x40": _potts,
        "code of 200 bits": _code,
    }.items():
        yield Question(name, pgm.MCMC(), make)
        yield Question(name, pgm.ParallelTempering(), make)
        yield Question(name, pgm.MeanField(), make, ("bound",))
    for side in (64, 256, 512):
        few = pgm.SwendsenWang(warmup=20, draws=60)
        yield Question(f"tables {side}x{side}", few, _lattice_of_tables(side))
    yield Question("couplings 64x64", pgm.SwendsenWang(), _lattice_of_couplings(64))
    yield Question("lattice 32x32", pgm.ClusterLadder(), _lattice(32), ("log_z",))
    for want in (("marginals",), ("log_z",), ("gradient",), ("mode",)):
        yield Question(f"steps of 100,000, {want[0]}", pgm.Exact(), _steps(100_000, 2), want)
    yield Question("steps of 2,000 of 50 states", pgm.Exact(), _steps(2_000, 50))
    yield Question("lattice 16x16", pgm.Exact(), _lattice(16))
    yield Question("lattice 20x20", pgm.Exact(), _lattice(20))
    yield Question("lattice 60x60, log_z", pgm.Exact(), _lattice(60), ("log_z",))
    yield Question("tree of 5,000 variables", pgm.Exact(), _tree)


def _findings() -> Asked:
    rng, graph = np.random.default_rng(0), pgm.GraphBuilder()
    graph.layer("h", pgm.Binary(), 60)
    graph.layer("v", pgm.NoisyOr(), 200, bias=np.full(200, 0.02))
    graph.cause("h", "v", weight=rng.random((60, 200)) * (rng.random((60, 200)) < 0.2))
    return graph.build(), {"v": (rng.random(200) < 0.3) * 1.0}


def _potts() -> Asked:
    rng, graph = np.random.default_rng(0), pgm.GraphBuilder()
    s = graph.variable("s", states=4, shape=(40, 40))
    for one, two in ((s[1:], s[:-1]), (s[:, 1:], s[:, :-1])):
        graph.table((one, two), np.exp(0.8 * np.eye(4)))
    for i in range(40):
        graph.table((s[i],), np.exp(rng.normal(0.0, 1.0, 4)))
    return graph.build(), None


def _lattice_of_tables(side: int) -> Callable[[], Asked]:
    def make() -> Asked:
        graph = pgm.GraphBuilder()
        s = graph.variable("s", states=2, shape=(side, side))
        for one, two in ((s[1:], s[:-1]), (s[:, 1:], s[:, :-1])):
            graph.table((one, two), np.exp(0.8 * np.eye(2)))
        return graph.build(), None

    return make


def _lattice_of_couplings(side: int) -> Callable[[], Asked]:
    def make() -> Asked:
        graph = pgm.GraphBuilder()
        s = graph.layer("s", pgm.Spin(), (side, side))
        graph.couple(s[1:], s[:-1], 0.4, name="vertical")
        graph.couple(s[:, 1:], s[:, :-1], 0.4, name="horizontal")
        return graph.build(), None

    return make


def _code() -> Asked:
    """A regular (3, 6) code, with the log odds of a word that a channel has disturbed."""
    rng, graph = np.random.default_rng(0), pgm.GraphBuilder()
    places = rng.permutation(np.repeat(np.arange(200), 3)).reshape(100, 6)
    x = graph.variable("x", states=2, shape=200)
    parity = np.indices((2,) * 6).sum(0) % 2 == 0
    for row in places:
        scope = np.unique(row)
        graph.table(tuple(x[int(i)] for i in scope), parity[(..., *[0] * (6 - len(scope)))] * 1.0)
    for i in range(200):
        graph.table((x[i],), [0.05, 0.95] if rng.random() < 0.05 else [0.95, 0.05])
    return graph.build(), None


def _steps(count: int, states: int) -> Callable[[], Asked]:
    """A chain of tables."""

    def make() -> Asked:
        graph = pgm.GraphBuilder()
        x = graph.variable("x", states=states, shape=count)
        graph.table((x[:-1], x[1:]), np.random.default_rng(0).random((states, states)))
        return graph.build(), None

    return make


def _tree() -> Asked:
    """Variables of three states with one earlier parent each."""
    rng, graph = np.random.default_rng(0), pgm.GraphBuilder()
    graph.variable("x0", states=3)
    graph.conditional("x0", (), [0.2, 0.3, 0.5])
    for i in range(1, 5_000):
        graph.variable(f"x{i}", states=3)
        parent = f"x{int(rng.integers(max(0, i - 50), i))}"
        graph.conditional(f"x{i}", (parent,), rng.dirichlet(np.ones(3), 3))
    return graph.build(), {f"x{i}": 1 for i in range(4_000, 5_000)}


def _rbm(visible: int, hidden: int) -> Callable[[], Asked]:
    return lambda: (pgm.rbm(visible, hidden, rng=0), None)


def _rows() -> Asked:
    seen = np.full((100, 64), np.nan)
    seen[:, :32] = np.random.default_rng(0).random((100, 32)) < 0.5
    return pgm.rbm(64, 64, rng=0), {"v": seen}


def _patterns() -> Asked:
    random = np.random.default_rng(0).random((500, 20))
    return pgm.rbm(20, 6, rng=0), {"v": np.where(random < 0.3, np.nan, random < 0.6)}


def _belief(*sizes: int, rows: int = 1) -> Callable[[], Asked]:
    shape = (rows, sizes[0]) if rows > 1 else (sizes[0],)
    return lambda: (
        pgm.sbn(list(sizes), rng=0),
        {"v": (np.random.default_rng(0).random(shape) < 0.3) * 1.0},
    )


def _biased(make: Callable[[], Asked], weights: float = 0.0) -> Callable[[], Asked]:
    """With biases of size 1, and other dense weights if asked: symmetry makes one round do."""

    def made() -> Asked:
        (model, evidence), rng = make(), np.random.default_rng(0)
        new = {
            name: rng.normal(0, weights if name.endswith("weight") else 1.0, np.shape(value))
            for name, value in model.params.items()
            if weights or name.endswith("bias")
        }
        return model.with_params(new), evidence

    return made


def _lattice(side: int) -> Callable[[], Asked]:
    def make() -> Asked:
        place = np.arange(side * side).reshape(side, side)
        ends = [
            np.concatenate((x[:, a].ravel(), x[b].ravel()))
            for x, a, b in (
                (place, slice(None, -1), slice(None, -1)),
                (place, slice(1, None), slice(1, None)),
            )
        ]
        one = sp.coo_array((np.full(len(ends[0]), 0.2), tuple(ends)), shape=(side * side,) * 2)
        graph = pgm.GraphBuilder()
        graph.layer("s", pgm.Spin(), side * side)
        graph.couple("s", "s", weight=(one + one.T).tocsr())
        return graph.build(), None

    return make


def _chain(size: int) -> Callable[[], Asked]:
    def make() -> Asked:
        graph = pgm.GraphBuilder()
        graph.layer("c", pgm.Binary(), size)
        graph.cause(
            "c",
            "c",
            weight=sp.diags_array(np.ones(size - 1), offsets=1, shape=(size, size)).tocsr(),
        )
        return graph.build(), {"c": np.where(np.arange(size) % 2, np.nan, 1.0)}

    return make


def _hmm(steps: int) -> Callable[[], Asked]:
    """Layers of one unit each."""

    def make() -> Asked:
        graph = pgm.GraphBuilder()
        for t in range(steps):
            graph.layer(f"z{t}", pgm.Binary(), 1)
            graph.layer(f"x{t}", pgm.Binary(), 1)
            graph.cause(f"z{t}", f"x{t}", weight=[[1.5]])
            if t:
                graph.cause(f"z{t - 1}", f"z{t}", weight=[[1.0]])
        return graph.build(), {f"x{t}": [float(t % 3 == 0)] for t in range(steps)}

    return make


def _causes(leak: float) -> Callable[[], Asked]:
    def make() -> Asked:
        rng, graph = np.random.default_rng(0), pgm.GraphBuilder()
        graph.layer("h", pgm.Binary(), 14)
        graph.layer("v", pgm.NoisyOr(), 40, bias=np.full(40, leak))
        graph.cause("h", "v", weight=rng.random((14, 40)))
        return graph.build(), {"v": (rng.random(40) < 0.3) * 1.0}

    return make


def _words() -> Asked:
    graph = pgm.GraphBuilder()
    graph.layer("v", pgm.Categorical(5), 60)
    graph.layer("h", pgm.MultiValued(8), 30)
    graph.couple("v", "h", weight=np.random.default_rng(0).normal(0, 0.1, (300, 30)))
    return graph.build(), None


GRAPHS: dict[str, Callable[[], Asked]] = {
    "RBM 16x16": _rbm(16, 16),
    "RBM 64x64": _rbm(64, 64),
    "RBM 784x500": _rbm(784, 500),
    "DBM 200-100-100": lambda: (pgm.dbm([200, 100, 100], rng=0), None),
    "60 words of 5, 30 units of 17 levels": _words,
    "lattice 20x20": _lattice(20),
    "lattice 100x100": _lattice(100),
    "HMM of 20": _hmm(20),
    "HMM of 200": _hmm(200),
    "belief net 30-20-10": _belief(30, 20, 10),
    "belief net 784-100-50": _belief(784, 100, 50),
    "chain of 2,000": _chain(2000),
}
