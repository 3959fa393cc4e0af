"""The mean-field bound of a belief network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import material
import numpy as np
from harness import OURS, Row, Settings, once, rate
from peers import JAX, NUMPY

import pgmengine as pgm

Array = np.ndarray
SIZES = (64, 24, 8)
SMALL = (6, 4, 2)
COUNT, PART = 1000, 5

# The most microseconds that one row should take.
ONE_ROW = 100.0


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
    for tolerance in (1e-3, 1e-7):
        yield from _one_row("8x24x64", model, images, tolerance)
    yield from _one_row("2x4x6", small, leaves, 1e-7)


def _one_row(
    net: str, model: Callable[[], pgm.Model], images: Callable[[], Array], tolerance: float
) -> Iterator[Row]:
    """The bound of another row at each call: by a prepared question, and by infer."""
    method = pgm.MeanField(tolerance=tolerance)

    def prepared() -> Callable[[Array], object]:
        ask = pgm.prepare(model(), ("v",), ("bound",), method=method)
        return lambda x: ask({"v": x})

    def inferred() -> Callable[[Array], object]:
        return lambda x: pgm.infer(model(), {"v": x}, ("bound",), method=method)

    def each(make: Callable[[], Callable[[Array], object]]) -> Callable[[], Callable[[int], None]]:
        def made() -> Callable[[int], None]:
            ask, rows = make(), images()

            def run(count: int) -> None:
                for i in range(count):
                    ask(rows[i % len(rows)])

            return run

        return made

    def by_peer(peer: object) -> Callable[[int], None]:
        p, row = model().params, images()[:1].copy()
        biases = [p["h2.bias"], p["h1.bias"], p["v.bias"]]
        job = peer.belief_bound(biases, [p["h2->h1.weight"], p["h1->v.weight"]], row, tolerance)

        def run(count: int) -> None:
            for _ in range(count):
                job()

        return run

    for way, make in (("prepared", prepared), ("by infer", inferred)):
        yield Row(
            f"mean-field bound, {net} belief net, one row, tolerance {tolerance:.0e}, {way}",
            "us a row",
            {
                OURS: rate(each(make), 1e6),
                JAX.name: JAX.rate(by_peer, 1e6),
                NUMPY.name: NUMPY.rate(by_peer, 1e6),
            },
            limit=ONE_ROW,
            note="numpy and JAX: a bare function for this net, nothing checked or planned, and no "
            "test of a saddle; JAX: float32",
        )


@cache
def small() -> pgm.Model:
    """A net of the size of figure 5 of Saul, Jaakkola and Jordan (1996)."""
    rng, empty = np.random.default_rng(0), pgm.sbn(list(SMALL), rng=0)
    return empty.with_params({n: rng.uniform(-1, 1, v.shape) for n, v in empty.params.items()})


@cache
def leaves() -> Array:
    """Rows of six leaves."""
    return np.random.default_rng(1).integers(0, 2, (COUNT, SMALL[0])).astype(float)


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
