"""Dispersed starts: chains begin in different modes, so that their agreement is evidence of mixing.

Chains that start at random may all fall into the same mode: with two equal modes, four chains reach
both with a probability of only 7/8. For this reason every second chain starts from the opposite of
the state that its neighbour has reached after some sweeps, with each unit at the other end of its
range. Between two modes that are mirror images, as in a ferromagnet, the two chains always start
apart. Where the model has no such symmetry, the opposite state is as good as a random start.

Two of four chains start in this way. The other two start in modes that mean field has reached from
spread starts, because random starts of a trained model may all fall into one phase while most of
the probability is in another one. The chains then stay apart, and R-hat shows it.

The time in which such chains meet is evidence as well. R-hat and the standard errors know a part of
the space by the draws in it, so that they are the more content the less of it has been met. A chain
that starts in the part leaves it after a time that depends neither on its weight nor on the draws.
Chains a and b with starts x_a(0) and x_b(0) have met at sweep t if

    <x_b(t) - x_a(t), x_b(0) - x_a(0)> <= 0
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.engine.chains import Chains, make_chains, start
from pgmengine.engine.kernels import Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.variational.modes import modes, near
from pgmengine.model.layer import Layer

# The number of sweeps in which a chain reaches the mode nearest to its start.
SWEEPS_INTO_A_MODE = 30

# The number of rounds of mean field in which means come near a mode; the chains do the rest. With
# 60 rounds, starts took a quarter of the time of 200 completed images.
ROUNDS_INTO_A_MODE = 15

# The size of a group of chains, in which two start at random and two in modes.
CHAINS_PER_GROUP = 4


def dispersed(many: Target, chains: int, kernel: Kernel, rng: np.random.Generator) -> States:
    """Return the first states of all chains, layer -> (rows * chains, width).

    Where the opposite state is impossible, both chains start from the same state.

    Parameters
    ----------
    many : target with one row for each chain, the chains of a row of evidence together.
    chains : number of chains for each row of evidence.
    kernel : the kernel of the sweeps from the random states.
    rng : numpy Generator.
    """
    x = start(many, rng)
    if chains < 2 or not any(free.any() for free in many.free.values()):
        return x
    number = np.arange(many.rows) % chains
    second = np.flatnonzero(number % 2)
    fallen = make_chains(
        many.take(second - 1), kernel, {n: v[second - 1] for n, v in x.items()}, rng
    )
    fallen.sweep(SWEEPS_INTO_A_MODE)
    here, there, layers = fallen.values(), many.take(second), many.structure.layers
    mirrored = there.clamp({n: opposite(layers[n], v, number[second]) for n, v in here.items()})
    possible = np.isfinite(there.log_density(mirrored))[:, None]
    out = {name: np.array(value) for name, value in x.items()}
    for name, value in mirrored.items():
        out[name][second - 1] = here[name]
        out[name][second] = np.where(possible, value, here[name])
    return _in_modes(many, chains, out, rng) if chains >= CHAINS_PER_GROUP - 1 else out


def sweeps_apart(chains: Chains, sweep: Callable[[int], None], rows: int, most: int) -> Array:
    """Return the number of sweeps (rows,) until each two chains of a row have met.

    Where they have not met after `most` sweeps, the number is most + 1.

    Parameters
    ----------
    chains : chains at their starts, the same number for each row, the chains of a row together.
    sweep : makes a number of sweeps of the chains.
    rows : number of rows of evidence.
    most : the largest number of sweeps.
    """
    first = _of_rows(chains, rows)
    met = np.eye(len(chains.beta) // rows, dtype=bool)[None].repeat(rows, axis=0)
    apart = np.full(rows, most + 1)
    for made in range(1, most + 1):
        sweep(1)
        now = _of_rows(chains, rows)
        alike = sum(np.einsum("raw,rbw->rab", now[name], first[name]) for name in first)
        own = np.einsum("raa->ra", alike)
        met |= own[:, :, None] + own[:, None] - alike - alike.swapaxes(1, 2) <= 0
        apart = np.where(met.all(axis=(1, 2)), np.minimum(apart, made), apart)
        if (apart <= most).all():
            break
    return apart


def _of_rows(chains: Chains, rows: int) -> States:
    """Return the states of all chains, layer -> (rows, chains of a row, width)."""
    return {name: x.reshape(rows, -1, x.shape[1]) for name, x in chains.values().items()}


def _in_modes(many: Target, chains: int, x: States, rng: np.random.Generator) -> States:
    """Return the states, with two of every CHAINS_PER_GROUP chains moved to the best modes."""
    one_each = many.take(np.arange(0, many.rows, chains))
    found = (
        None if one_each.pattern.independent else modes(one_each, rng, rounds=ROUNDS_INTO_A_MODE)
    )
    if found is None:
        return x
    number = np.arange(many.rows) % chains % CHAINS_PER_GROUP
    moved = np.flatnonzero(number >= CHAINS_PER_GROUP - 2)
    row, place = moved // chains, (number[moved] == CHAINS_PER_GROUP - 1).astype(np.int64)
    there = many.take(moved)
    eta = near(there, {n: v[row, place] for n, v in found.mean.items()})
    layers = many.structure.layers
    drawn = {
        n: layers[n].flat(layers[n].unit.sample(layers[n].shaped(v), rng)) for n, v in eta.items()
    }
    drawn = there.clamp({n: v[moved] for n, v in x.items()} | drawn)
    possible = np.isfinite(there.log_density(drawn))
    for name, value in drawn.items():
        x[name][moved[possible]] = value[possible]
    return x


def opposite(layer: Layer, x: Array, number: Array) -> Array:
    """Return flat values (chains, width) with each unit at the other end of its range.

    Ordered states are reversed. A state without an order is moved on, cyclically, by the number
    (chains,) of its chain, so that different chains get different states.
    """
    if layer.unit.support is None:
        return -x
    state, count = layer.states(x), len(layer.unit.support)
    moved = (state + number[:, None]) % count if layer.unit.one_hot else count - 1 - state
    return layer.flat(layer.unit.support[moved])
