"""Exact answers: log Z of RBMs with few hidden units, and posteriors of missing pixels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache

import material
import numpy as np
from harness import OURS, Row, Settings, once
from peers import JAX, NUMPY, RBMS, TORCH

import pgmengine as pgm

Array = np.ndarray
MISSING = 12


def rows(settings: Settings) -> Iterator[Row]:
    """See the table."""
    for visible, hidden, bits in ((784, 20, 16), (784, 25, 16), (22, 22, 22)):
        yield _log_z(visible, hidden, bits)
    yield _posterior(settings)


def _log_z(visible: int, hidden: int, bits: int) -> Row:
    """Peers do 2^bits of the states."""
    times = 2.0 ** (hidden - bits)
    given = cache(lambda: material.wide(visible, hidden))
    model = cache(lambda: material.rbm(*given()))
    fewer = bits - 3 if visible > 100 else bits - 4  # np.logaddexp takes longer
    cases = {
        OURS: once(lambda: lambda: pgm.infer(model(), want=("log_z",), method=pgm.Exact())),
        TORCH.name: TORCH.once(lambda peer: peer.log_z(*given(), bits), times),
        JAX.name: JAX.once(lambda peer: peer.log_z(*given(), bits), times),
        RBMS.name: RBMS.once(lambda peer: peer.log_z(*given(), bits - 2), 4 * times),
        NUMPY.name: NUMPY.once(
            lambda peer: peer.log_z(*given(), fewer, np.float64), times * 2.0 ** (bits - fewer)
        ),
        "numpy float32": NUMPY.once(lambda peer: peer.log_z(*given(), bits, np.float32), times),
    }
    part = "" if bits == hidden else f"peers: 2^{bits} of 2^{hidden} states, scaled up; "
    return Row(
        f"exact log Z, {visible}x{hidden} RBM",
        "s",
        cases,
        goal=10.0,
        over={NUMPY.name: 50.0},
        note=f"{part}numpy 2^{fewer}, by np.logaddexp in float64, the only peer with as many "
        f"digits as pgmengine; rbms 2^{bits - 2}; all but rbms compute the fields of a chunk once "
        "and add a row for the rest",
    )


def _posterior(settings: Settings) -> Row:
    count = 1000

    def with_gaps(seed: int) -> Array:
        x = material.images(settings, count).copy()
        gaps = np.argsort(np.random.default_rng(seed).random(x.shape), axis=1)[:, :MISSING]
        np.put_along_axis(x, gaps, np.nan, axis=1)
        return x

    @cache
    def given() -> tuple[Array, Array, Array, Array]:
        return *material.trained(settings), with_gaps(4)

    def ours() -> Callable[[], object]:
        model, asked = material.rbm(*given()[:3]), itertools.count()
        new = [
            with_gaps(seed) for seed in range(settings.repeats + 1)
        ]  # pgmengine remembers the covers of patterns
        return lambda: pgm.infer(model, {"v": new[next(asked) % len(new)]}, method=pgm.Exact())

    cases = {
        OURS: once(ours),
        TORCH.name: TORCH.rate(lambda peer: peer.posterior(*given()), count),
        JAX.name: JAX.rate(lambda peer: peer.posterior(*given()), count),
        NUMPY.name: NUMPY.rate(lambda peer: peer.posterior(*given()), count),
    }
    return Row(
        f"exact posterior of {count} rows, each with {MISSING} different missing pixels, 784x500 "
        "RBM",
        "s",
        cases,
        note="means of missing pixels and hidden units; peers: as many rows as take 0.2 s, "
        "scaled up, in float32",
    )
