"""Dispersed starts: chains that begin in different valleys, so that their agreement means
something.

Chains that start at random share a valley by chance: of two equal ones four chains meet both with a
probability of 7/8 only. So half of the chains start from the opposite of where another one has
gone: every second chain takes the state that its neighbour has reached after some sweeps, each unit
at the other end of its range. Between two valleys that are mirror images, as in a ferromagnet, the
two chains always start apart. Where nothing is symmetric the opposite state is one more random
start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.engine.chains import make_chains, start
from pgmengine.graph.layer import Layer
from pgmengine.graph.target import Target

# Sweeps after which a chain has fallen into the valley that it started in.
FALL = 30


def dispersed(many: Target, chains: int, kernel: Any, rng: np.random.Generator) -> States:
    """Return states (rows * chains, width) of `chains` chains for each row, every second one
    opposite.

    `many` has the chains of a row next to each other. Where the
    opposite state is impossible, both chains start from the same one.
    """
    x = start(many, rng)
    if chains < 2 or not any(free.any() for free in many.free.values()):
        return x
    number = np.arange(many.rows) % chains
    second = np.flatnonzero(number % 2)
    fallen = make_chains(
        many.take(second - 1), kernel, {n: v[second - 1] for n, v in x.items()}, rng
    )
    fallen.sweep(FALL)
    here, there, layers = fallen.values(), many.take(second), many.structure.layers
    mirrored = there.clamp({n: opposite(layers[n], v, number[second]) for n, v in here.items()})
    possible = np.isfinite(there.log_density(mirrored))[:, None]
    out = {name: np.array(value) for name, value in x.items()}
    for name, value in mirrored.items():
        out[name][second - 1] = here[name]
        out[name][second] = np.where(possible, value, here[name])
    return out


def opposite(layer: Layer, x: Array, number: Array) -> Array:
    """Return flat values (chains, width) with each unit at the other end of its range.

    States that have an order change their direction. Those that have none move on by as many
    places as the chain's number says, so that several chains meet several states.
    """
    if layer.unit.support is None:
        return -x
    state, count = layer.states(x), len(layer.unit.support)
    moved = (state + number[:, None]) % count if layer.unit.one_hot else count - 1 - state
    return layer.flat(layer.unit.support[moved])
