"""pgmengine alone: what a unit of work costs as units, chains, rows, threads and sparsity grow.

In brackets the ratio to the first point: flat is 1. All on one thread, but for the curves of
threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import material
import numpy as np
import scipy.sparse as sp
from harness import Case, Row, Settings, rate

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start
from rooms.beliefs import learned
from rooms.sweeps import ours

Array = np.ndarray


def rows(settings: Settings) -> Iterator[Row]:
    """One row a curve; its cases are the points."""
    yield _curve(
        "sweeps: units, 100 chains, 8 % flip",
        "ns a changed unit and weight",
        {f"{n}x{n}": _sweep(n, n, 100) for n in (125, 250, 500, 1000, 2000, 4000)},
    )
    yield _curve(
        "sweeps: chains, 784x500, 8 % flip",
        "us a chain and sweep",
        {str(n): _chains(n) for n in (1, 4, 16, 64, 256, 1024, 4096)},
    )
    yield _curve(
        "sweeps: share of units that flip, 784x500, 100 chains",
        "us a chain and sweep",
        {f"{flips:.0%}": _flips(flips) for flips in (0.02, 0.05, 0.1, 0.2, 0.5)},
    )
    yield _curve(
        "sweeps: neighbours of each of 100,000 spins, sparse",
        "ns a spin update",
        {str(n): _sparse(100_000, n) for n in (2, 4, 8, 16, 32)},
    )
    yield _curve(
        "sweeps: spins of a sparse graph, 4 neighbours each",
        "ns a spin update",
        {str(n): _sparse(n, 4) for n in (1000, 10_000, 100_000, 1_000_000)},
    )
    for name, (make, units) in SINGLE_UNITS.items():
        yield _curve(
            f"sweeps: chains, {name}",
            "ns a unit update",
            {str(n): _single_units(make, units, n) for n in (1, 4, 16, 256)},
        )
    yield _curve(
        "exact log Z: visible units, 18 hidden",
        "ns a state and visible unit",
        {str(n): _log_z(n, 18) for n in (16, 64, 256, 784, 2048)},
    )
    yield _curve(
        "exact log Z: hidden units, 784 visible",
        "ns a state and visible unit",
        {str(n): _log_z(784, n) for n in (10, 14, 18, 22)},
    )
    yield _curve(
        "bound of an 8x24x64 belief net: rows",
        "us a row",
        {str(n): _bound(settings, n) for n in (1, 8, 64, 512)},
    )
    if settings.threads > 1:
        counts = sorted({1, 2, settings.threads})
        for name, unit, case in (
            (
                "Gibbs sweeps, 784x500, 1,000 chains, 8 % flip",
                "us a chain and sweep",
                _chains(1000),
            ),
            ("exact log Z, 784x20", "s", _log_z(784, 20, 1.0)),
            ("bound, 512 rows", "us a row", _bound(settings, 512)),
        ):
            yield Row(f"threads: {name}", unit, {str(n): _on(n, case) for n in counts}, peers=False)


def _curve(name: str, unit: str, cases: dict[str, Case]) -> Row:
    return Row(name, unit, {point: _on(1, case) for point, case in cases.items()}, peers=False)


def _sweep(visible: int, hidden: int, chains: int) -> Case:
    scale = 1e9 / (chains * 2 * visible * hidden * material.FLIPS)
    return rate(
        lambda: ours(
            material.rbm(*material.flipping(visible, hidden)), None, np.zeros((chains, visible))
        ),
        scale,
    )


def _chains(chains: int) -> Case:
    return rate(
        lambda: ours(material.rbm(*material.flipping(784, 500)), None, np.zeros((chains, 784))),
        1e6 / chains,
    )


def _flips(flips: float) -> Case:
    return rate(
        lambda: ours(material.rbm(*material.flipping(784, 500, flips)), None, np.zeros((100, 784))),
        1e4,
    )


def _sparse(spins: int, neighbours: int) -> Case:
    """Two colours of spins; every one of the first has so many neighbours in the second, at
    random.
    """

    def make() -> Callable[[int], None]:
        rng, half = np.random.default_rng(0), spins // 2
        ends = [np.repeat(np.arange(half), neighbours), rng.integers(0, half, half * neighbours)]
        # About half of the spins flip, for any number of neighbours.
        values = np.full(half * neighbours, 0.5 / neighbours)
        weight = sp.coo_array((values, ends), shape=(half, half)).tocsr()
        builder = pgm.GraphBuilder()
        builder.layer("a", pgm.Spin(), half)
        builder.layer("b", pgm.Spin(), half)
        builder.couple("a", "b", weight=weight)
        target = builder.build().given()
        chains = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
        chains.sweep(10)
        return chains.sweep

    return rate(make, 1e9 / spins)


def _single_units(make: Callable[[], pgm.Model], units: int, chains: int) -> Case:
    """Gibbs sweeps of a model whose units move one by one, with chains as lanes."""

    def sweeping() -> Callable[[int], None]:
        target = make().given().take(np.zeros(chains, dtype=int))
        rng = np.random.default_rng(0)
        running = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
        running.sweep(10)
        return running.sweep

    return rate(sweeping, 1e9 / (units * chains))


def _log_z(visible: int, hidden: int, scale: float | None = None) -> Case:
    model = cache(lambda: material.rbm(*material.wide(visible, hidden)))

    def run(count: int) -> None:
        for _ in range(count):
            pgm.infer(model(), want=("log_z",), method=pgm.Exact())

    return rate(lambda: run, 1e9 / (2.0**hidden * visible) if scale is None else scale)


@cache
def _network(settings: Settings) -> tuple[pgm.Model, Array]:
    images = material.small_images(settings)
    return learned((64, 24, 8), images[::2][:700]), images


def _bound(settings: Settings, rows: int) -> Case:
    def make() -> Callable[[int], Any]:
        model, images = _network(settings)
        method, target = pgm.MeanField(tolerance=1e-3), model.given({"v": images[:rows]})
        return lambda count: [method.run(target, ("bound",)) for _ in range(count)]

    return rate(make, 1e6 / rows)


def _on(threads: int, case: Case) -> Case:
    """The case on so many threads: pgmengine asks for their number in every call."""

    def limited() -> float:
        before = os.environ.get("PGMENGINE_THREADS")
        os.environ["PGMENGINE_THREADS"] = str(threads)
        try:
            return case()
        finally:
            if before is None:
                del os.environ["PGMENGINE_THREADS"]
            else:
                os.environ["PGMENGINE_THREADS"] = before

    return limited


@cache
def hidden_markov(length: int = 10_000, states: int = 4) -> pgm.Model:
    """A chain of categorical units, declared by tables."""
    rng, at = np.random.default_rng(0), np.arange(length)
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Categorical(states), length)
    steps = np.stack((at[:-1], at[1:]), axis=1)
    b.tables(("x", "x"), steps, rng.gamma(1.0, size=(length - 1, states, states)))
    b.tables(("x",), at[:, None], rng.gamma(1.0, size=(length, states)))
    return b.build()


@cache
def tabled_lattice(side: int = 100, strength: float = 0.4) -> pgm.Model:
    """An Ising lattice, declared by tables."""
    at = np.arange(side * side).reshape(side, side)
    across = np.stack((at[:, :-1].ravel(), at[:, 1:].ravel()), axis=1)
    down = np.stack((at[:-1].ravel(), at[1:].ravel()), axis=1)
    pairs = np.concatenate((across, down))
    entries = np.exp(strength * np.array([[1.0, -1.0], [-1.0, 1.0]]))
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), side * side)
    b.tables(("x", "x"), pairs, np.broadcast_to(entries, (len(pairs), 2, 2)))
    return b.build()


@cache
def sigmoid_network(units: int = 2000, parents: int = 3) -> pgm.Model:
    """A sparse sigmoid belief net of single units, each a layer of its own."""
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    for i in range(units):
        b.layer(f"x{i}", pgm.Binary(), 1)
        for j in rng.choice(i, size=min(i, parents), replace=False):
            b.cause(f"x{j}", f"x{i}", weight=[[rng.normal()]])
    return b.build()


@cache
def symptoms(diseases: int = 600, findings: int = 1400, causes: int = 5) -> pgm.Model:
    """A two-layer noisy-or network of single units, each a layer of its own."""
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    for i in range(diseases):
        b.layer(f"d{i}", pgm.Binary(), 1, bias=[-3.0])
    for j in range(findings):
        b.layer(f"f{j}", pgm.NoisyOr(), 1, bias=[0.02])
        for i in rng.choice(diseases, size=causes, replace=False):
            b.cause(f"d{i}", f"f{j}", weight=[[rng.uniform(0.2, 2.0)]])
    return b.build()


SINGLE_UNITS = {
    "chain of 10,000 units with 4 states in tables": (hidden_markov, 10_000),
    "100x100 Ising lattice in tables": (tabled_lattice, 10_000),
    "sigmoid belief net of 2,000 single units, 3 parents each": (sigmoid_network, 2_000),
    "noisy-or network of 600 causes and 1,400 effects, 5 causes each": (symptoms, 2_000),
}
