"""Products of states and weights, and steps of optimizers: c/products.h and c/optimizers.h."""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array

SGD, ADAM, ADAMAX = range(3)

# The largest size of a parameter: a sum of 1e8 of them is finite in single precision.
LARGEST = 1e30


def add_product(x: Array, weight: Array, out: Array, parts: int) -> None:
    """Add x weight to `out`."""
    out += x @ weight


def add_times(x: Array, weight: Array, turned: bool, out: Array, parts: int) -> None:
    """Add x weight, or x weight' if turned, to `out`."""
    out += x @ (weight.T if turned else weight)


def outer(a: Array, b: Array, out: Array, parts: int) -> None:
    """Write a' b to `out`."""
    out[:] = a.T @ b


across = outer


def pack(weight: Array, out: Array, panels: int, parts: int) -> None:
    """Write the first panels (tiles, rows, tile) of a weight, filled up with zeros."""
    tile = out.shape[2]
    for i in range(panels):
        some = weight[:, i * tile : (i + 1) * tile]
        out[i] = 0.0
        out[i, :, : some.shape[1]] = some


def ascend(
    kind: int,
    *,
    rate: float,
    keep: tuple[float, float],
    unbias: tuple[float, float],
    epsilon: float,
    decay: tuple[float, float],
    p: Array,
    g: Array,
    p2: Array,
    copy: Array,
    m: Array | None,
    v: Array | None,
    parts: int,
) -> bool:
    """Make one step of an optimizer; return whether all parameters stay numbers within LARGEST."""
    g = g.astype(np.float64) - (decay[1] * p + decay[0] * np.sign(p))
    step = g
    if m is not None:
        m[:] = m * keep[0] + (g if kind == SGD else (1 - keep[0]) * g)
        step = m
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == ADAM and v is not None:
            v[:] = v * keep[1] + (1 - keep[1]) * g * g
            step = step / unbias[0] / (np.sqrt(v / unbias[1]) + epsilon)
        elif kind == ADAMAX and v is not None:
            v[:] = np.maximum(np.abs(g), v * keep[1])
            step = step / unbias[0] / (v + epsilon)
        p2[:] = p + rate * step
        copy[:] = p2
        return bool((np.abs(p2) <= LARGEST).all())
