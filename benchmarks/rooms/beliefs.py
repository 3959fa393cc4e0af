"""The mean-field bound of a belief network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import material
import numpy as np
from harness import OURS, Row, Settings, once
from peers import JAX, NUMPY

import pgmengine as pgm

Array = np.ndarray
SIZES = (64, 24, 8)
COUNT, PART = 1000, 5


def rows(settings: Settings) -> Iterator[Row]:
    """All leaves observed, to two tolerances; numpy does one row in PART."""

    @cache
    def images() -> Array:
        return material.small_images(settings)

    @cache
    def model() -> pgm.Model:
        return learned(SIZES, images()[::2][:700])

    def given(count: int, tolerance: float) -> tuple[list[Array], list[Array], Array, float]:
        p = model().params
        return (
            [p["h2.bias"], p["h1.bias"], p["v.bias"]],
            [p["h2->h1.weight"], p["h1->v.weight"]],
            images()[:count].copy(),
            tolerance,
        )

    for tolerance in (1e-3, 1e-5):
        method = pgm.MeanField(tolerance=tolerance)
        cases = {
            OURS: once(
                lambda method=method: (
                    lambda: method.run(model().given({"v": images()[:COUNT]}), ("bound",))
                )
            ),
            JAX.name: JAX.once(lambda peer, t=tolerance: peer.belief_bound(*given(COUNT, t))),
            NUMPY.name: NUMPY.once(
                lambda peer, t=tolerance: peer.belief_bound(*given(COUNT // PART, t)), PART
            ),
        }
        yield Row(
            f"mean-field bound, 8x24x64 belief net, {COUNT} digits, tolerance {tolerance:.0e}",
            "s",
            cases,
            note=f"numpy: float64, {COUNT // PART} rows, times {PART}; JAX: float32, all rows "
            "until the last has settled",
        )


def learned(sizes: tuple[int, ...], x: Array) -> pgm.Model:
    """A network that knows something of the images."""
    return pgm.fit(
        pgm.sbn(list(sizes), rng=0),
        {"v": x},
        positive=pgm.MeanField(updates=10, tolerance=1e-3),
        optimizer=pgm.Adam(0.01),
        batch_size=50,
        epochs=5,
        progress=False,
    ).model
