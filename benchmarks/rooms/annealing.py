"""Annealed importance sampling of the trained RBM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import material
import numpy as np
from harness import OURS, Row, Settings, once
from peers import JAX, RBMS, TORCH

import pgmengine as pgm

Array = np.ndarray
CHAINS, TEMPERATURES, PART = 500, 2000, 20


def rows(settings: Settings) -> Iterator[Row]:
    """One row: the peers' work does not depend on the temperature, so they do one step in PART,
    scaled up.
    """

    @cache
    def base() -> Array:
        model = material.rbm(*material.trained(settings))
        return pgm.base_rates(model, {"v": material.images(settings, 5000)})["v"]

    @cache
    def some() -> tuple[Array, ...]:
        return *material.trained(settings), base(), np.linspace(0, 1, TEMPERATURES // PART + 1)

    def ours() -> Callable[[], object]:
        model = material.rbm(*material.trained(settings))
        # The peers anneal once, up, and confirm nothing.
        method = pgm.AIS(
            CHAINS, pgm.Linear(TEMPERATURES), reverse=False, reference={"v": base()}, confirm=0
        )
        return lambda: pgm.infer(model, want=("log_z",), method=method, rng=0)

    cases = {
        OURS: once(ours),
        TORCH.name: TORCH.once(lambda peer: peer.ais(*some(), CHAINS), PART),
        JAX.name: JAX.once(lambda peer: peer.ais(*some(), CHAINS), PART),
        RBMS.name: RBMS.once(
            lambda peer: peer.ais(*some()[:3], TEMPERATURES // PART + 1, CHAINS), PART
        ),
    }
    yield Row(
        f"AIS, trained 784x500 RBM, {CHAINS} chains, {TEMPERATURES} temperatures",
        "s",
        cases,
        goal=3.0,
        note=f"peers: {TEMPERATURES // PART} temperatures, times {PART}; pgmengine all of them",
    )
