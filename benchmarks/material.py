"""Weights and images for the rooms: trained weights and real images where they are given, otherwise
stand-ins with similar statistics.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
from harness import Settings
from scipy.optimize import brentq

import pgmengine as pgm

Array = np.ndarray
FLIPS = 0.08  # share of the units of the trained RBM that change in a sweep
ON = 0.13  # share of the pixels of MNIST that are on


def described(settings: Settings) -> list[str]:
    """Return a sentence for each stand-in."""
    out = []
    if settings.weights is None:
        out.append(
            f"no --weights: the trained 784x500 RBM is a random one, {FLIPS:.0%} of its units flip "
            "in a sweep"
        )
    if settings.data is None:
        out.append(f"no --data: images are random blobs with {ON:.0%} of the pixels on")
    return out


@cache
def trained(settings: Settings) -> tuple[Array, Array, Array]:
    """(weight, b, c) of a 784x500 RBM: the file's, or a stand-in."""
    if settings.weights is None:
        return flipping(784, 500)
    from scipy.io import loadmat

    raw = loadmat(settings.weights)
    return raw["vishid"], raw["visbiases"][0], raw["hidbiases"][0]


@cache
def early(settings: Settings) -> tuple[Array, Array, Array]:
    """(weight, b, c) of a 784x500 RBM as training starts: about half of its units flip in a
    sweep.
    """
    return 0.01 * np.random.default_rng(0).normal(size=(784, 500)), np.zeros(784), np.zeros(500)


@cache
def deep() -> tuple[Array, Array, Array, Array, Array]:
    """(w1, w2, a, b, c) of a 784-500-1000 model of which FLIPS of the units change in a sweep."""
    w1, a, b = flipping(784, 500)
    w2, _, c = flipping(500, 1000)
    return w1, w2, a, b, c


def flipping(visible: int, hidden: int, flips: float = FLIPS) -> tuple[Array, Array, Array]:
    """(weight, b, c) of an RBM of which this share of the units changes in a sweep: strong biases,
    weak weights.
    """
    rng = np.random.default_rng(1)
    p = brentq(lambda p: 2 * p * (1 - p) - flips, 0, 0.5)
    b, c = (np.log(p / (1 - p)) + 0.3 * rng.normal(size=n) for n in (visible, hidden))
    return 0.01 * rng.normal(size=(visible, hidden)), b, c


def wide(visible: int, hidden: int) -> tuple[Array, Array, Array]:
    """(weight, b, c) of an RBM for enumeration."""
    rng = np.random.default_rng(0)
    return (
        rng.normal(0, 0.3, (visible, hidden)),
        0.1 * rng.normal(size=visible),
        0.1 * rng.normal(size=hidden),
    )


def rbm(weight: Array, b: Array, c: Array) -> pgm.Model:
    """The RBM for enumeration, as a model."""
    return pgm.rbm(*weight.shape).with_params({"v.bias": b, "h.bias": c, "v-h.weight": weight})


@cache
def images(settings: Settings, rows: int) -> Array:
    """Binary images of 28x28 pixels, (rows, 784)."""
    if settings.data is not None:
        os.environ["PGMENGINE_DATA"] = settings.data
        return pgm.datasets.mnist(rng=0).x_train[:rows]
    rng = np.random.default_rng(2)
    smooth = rng.normal(size=(rows, 28, 28))
    for axis in (1, 2):
        for _ in range(3):
            smooth = smooth + np.roll(smooth, 1, axis) + np.roll(smooth, -1, axis)
    return (smooth > np.quantile(smooth, 1 - ON)).reshape(rows, 784).astype(float)


def small_images(settings: Settings) -> Array:
    """Binary images of 8x8 pixels, (rows, 64): USPS where the directory has them, else the digits
    that come along.
    """
    file = Path(settings.data or "") / "usps" / "usps_8x8_binary.npz"
    if settings.data is not None and file.exists():
        with np.load(file) as packed:
            return np.unpackbits(packed["X"], axis=1).astype(float)
    digits = pgm.datasets.digits()
    return np.concatenate((digits.x_train, digits.x_test))
