"""Sweeps: block Gibbs and flip-the-state, early and late in training, deep, sparse, with evidence
of every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import material
import networkx as nx
import numpy as np
from harness import OURS, Row, Settings, rate
from peers import JAX, NUMPY, RBMS, SKLEARN, THRML, TORCH

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start

Array = np.ndarray
GOAL = 5.0
SIDE = 512
UNIT = "us a chain and sweep"


def rows(settings: Settings) -> Iterator[Row]:
    """See the table."""
    for chains in (1, 100, 1000):
        yield _gibbs(
            f"Gibbs sweeps, trained 784x500 RBM, chains: {chains}",
            chains,
            settings,
            lambda: material.trained(settings),
        )
    yield _gibbs(
        "Gibbs sweeps, early in training, half of the units flip, chains: 100",
        100,
        settings,
        lambda: material.early(settings),
    )
    yield _flip_state(settings)
    yield _deep(settings)
    yield _ising()
    yield _clamped(settings)


def ours(
    model: pgm.Model, evidence: dict[str, Array] | None, v: Array, kernel: object = pgm.Gibbs()
) -> Callable[[int], None]:
    """sweep(count) of chains on a model, started at visible states v."""
    rng = np.random.default_rng(0)
    target = model.given(evidence) if evidence else model.given().take(np.zeros(len(v), dtype=int))
    x = start(target, rng)
    chains = make_chains(target, kernel, x if evidence else x | {"v": v}, rng)
    chains.sweep(20)
    return chains.sweep


def _gibbs(
    name: str, chains: int, settings: Settings, weights: Callable[[], tuple[Array, Array, Array]]
) -> Row:
    each = 1e6 / chains

    @cache
    def given() -> tuple[Array, Array, Array, Array]:
        return *weights(), material.images(settings, 1000)[:chains]

    cases = {
        OURS: rate(lambda: ours(material.rbm(*weights()), None, given()[-1]), each),
        TORCH.name: TORCH.rate(lambda peer: peer.sweeps(*given()), each),
        JAX.name: JAX.rate(lambda peer: peer.sweeps(*given()), each),
        RBMS.name: RBMS.rate(lambda peer: peer.sweeps(*given()), each),
        SKLEARN.name: SKLEARN.rate(lambda peer: peer.sweeps(*given()), each),
        NUMPY.name: NUMPY.rate(lambda peer: peer.sweeps(*given()), each),
    }
    # THRML gathers chains x 784 x 500 numbers, so one row with it is enough.
    if chains == 100:
        cases[THRML.name] = THRML.rate(lambda peer: peer.sweeps(*given()), each)
    return Row(name, UNIT, cases, GOAL)


def _flip_state(settings: Settings) -> Row:
    each = 1e6 / 100

    def given() -> tuple[Array, Array, Array, Array]:
        return *material.trained(settings), material.images(settings, 1000)[:100]

    cases = {
        OURS: rate(
            lambda: ours(material.rbm(*given()[:3]), None, given()[-1], pgm.FlipState()), each
        ),
        TORCH.name: TORCH.rate(lambda peer: peer.flip_sweeps(*given()), each),
        JAX.name: JAX.rate(lambda peer: peer.flip_sweeps(*given()), each),
        NUMPY.name: NUMPY.rate(lambda peer: peer.flip_sweeps(*given()), each),
    }
    return Row(
        "flip-the-state sweeps, trained 784x500 RBM, chains: 100",
        UNIT,
        cases,
        GOAL,
        note="no peer has this kernel: all are written by hand",
    )


def _deep(settings: Settings) -> Row:
    each = 1e6 / 100

    def model() -> pgm.Model:
        w1, w2, a, b, c = material.deep()
        return pgm.dbm([784, 500, 1000]).with_params(
            {"v.bias": a, "h1.bias": b, "h2.bias": c, "v-h1.weight": w1, "h1-h2.weight": w2}
        )

    def given() -> tuple[Array, ...]:
        return *material.deep(), material.images(settings, 1000)[:100]

    cases = {
        OURS: rate(lambda: ours(model(), None, given()[-1]), each),
        TORCH.name: TORCH.rate(lambda peer: peer.dbm_sweeps(*given()), each),
        JAX.name: JAX.rate(lambda peer: peer.dbm_sweeps(*given()), each),
        THRML.name: THRML.rate(lambda peer: peer.dbm_sweeps(*given()), each),
        NUMPY.name: NUMPY.rate(lambda peer: peer.dbm_sweeps(*given()), each),
    }
    return Row(
        "Gibbs sweeps, 784-500-1000 deep model, 8 % of the units flip, chains: 100",
        UNIT,
        cases,
        GOAL,
        note="random weights: no trained ones are published",
    )


def _ising() -> Row:
    beta, each = 0.44, 1e9 / SIDE**2

    def lattice() -> Callable[[int], None]:
        graph = nx.grid_2d_graph(SIDE, SIDE, periodic=True)
        nx.set_edge_attributes(graph, beta, "weight")
        target = pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build().given()
        rng = np.random.default_rng(0)
        chains = make_chains(target, pgm.Gibbs(), start(target, rng), rng)
        chains.sweep(50)
        return chains.sweep

    cases = {
        OURS: rate(lattice, each),
        TORCH.name: TORCH.rate(lambda peer: peer.ising(SIDE, beta), each),
        JAX.name: JAX.rate(lambda peer: peer.ising(SIDE, beta), each),
        THRML.name: THRML.rate(lambda peer: peer.ising(SIDE, beta), each),
        NUMPY.name: NUMPY.rate(lambda peer: peer.ising(SIDE, beta), each),
    }
    return Row(
        f"Gibbs sweeps, {SIDE}x{SIDE} Ising lattice at beta {beta}, one chain",
        "ns a spin update",
        cases,
        GOAL,
        note="PyTorch, JAX and numpy know that it is a lattice; pgmengine and THRML take any "
        "sparse graph",
    )


def _clamped(settings: Settings) -> Row:
    count = 512
    each = 1e6 / count

    @cache
    def given() -> tuple[Array, Array, Array, Array]:
        hidden = np.random.default_rng(3).random((count, 784)) < 0.5
        return *material.trained(settings), np.where(
            hidden, np.nan, material.images(settings, 1000)[:count]
        )

    cases = {
        OURS: rate(lambda: ours(material.rbm(*given()[:3]), {"v": given()[-1]}, given()[-1]), each),
        TORCH.name: TORCH.rate(lambda peer: peer.clamped_sweeps(*given()), each),
        JAX.name: JAX.rate(lambda peer: peer.clamped_sweeps(*given()), each),
        NUMPY.name: NUMPY.rate(lambda peer: peer.clamped_sweeps(*given()), each),
    }
    return Row(
        f"Gibbs sweeps, {count} rows, each with a different half of its pixels missing",
        UNIT,
        cases,
        GOAL,
    )
