"""The states of a cover by number, in reflected mixed-radix Gray-code order, and complete states of
a problem.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, States
from pgmengine.infer.exact.problem import Problem

PIECE = 4096  # states between two recomputations from scratch: bounds rounding drift
AT_ONCE = 2**22  # log weights that draws are made from


def decode(p: Problem, index: Array) -> Array:
    """Digits (len(index), cover units) of reflected mixed-radix Gray-code numbers."""
    digits = np.empty((len(index), len(p.skeleton.states)), dtype=np.int64)
    for i, k in enumerate(p.skeleton.states):
        index, digit = np.divmod(index, int(k))
        digits[:, i] = np.where(index % 2 == 1, k - 1 - digit, digit)
    return digits


def indicators_of(p: Problem, index: Array) -> Array:
    """The indicators (len(index), D) of the states with these numbers, as floats."""
    digits, states = decode(p, index), p.skeleton.states
    unit = np.repeat(np.arange(len(states)), states - 1)
    first = np.concatenate(([0], np.cumsum(states - 1)))
    state = np.arange(len(unit)) - first[unit] + 1
    return (digits[:, unit] == state).astype(np.float64)


def pieces(p: Problem) -> int:
    """Number of pieces in a walk."""
    return -(-p.size // PIECE)


def fill_rest(p: Problem, states: Array, rows: Array, choose: Any) -> States:
    """Complete flat values of cover states (m, D) for the rows (m,), the rest chosen by
    choose(unit, eta).
    """
    target = p.target.take(rows)
    x = {name: p.origin[name][rows] + states @ p.skeleton.steps[name] for name in p.origin}
    for name in target.structure.undirected_first:
        index = p.skeleton.cover.rest[name]
        if len(index):
            layer = target.structure.layers[name]
            value = layer.flat(choose(layer.unit, layer.shaped(target.natural(x, name))))
            columns = layer.columns(index)
            x[name] = x[name].copy()
            x[name][:, columns] = value[:, columns]
    return x


def mode_of(p: Problem, walker: Any) -> States:
    """The jointly most probable completion of every row; ties go to the first state in the walk's
    order.
    """
    where = walker.best_states()
    return fill_rest(
        p, indicators_of(p, where), np.arange(p.target.rows), lambda unit, eta: unit.mode(eta)
    )


def draw(p: Problem, walker: Any, sums: Array, draws: int, rng: np.random.Generator) -> States:
    """Independent exact samples, flat (draws, rows, width): a piece, a state in it, then the rest
    given the cover.
    """
    n, share = p.target.rows, np.exp(sums - log_sum(sums)[:, None])
    counts = rng.multinomial(draws, share / share.sum(axis=1, keepdims=True))
    chosen, made = np.empty((n, draws), dtype=np.int64), np.zeros(n, dtype=np.int64)
    for piece in np.flatnonzero(counts.any(axis=0)):
        some = np.flatnonzero(counts[:, piece])
        for rows in np.array_split(some, -(-len(some) * min(p.size, PIECE) // AT_ONCE)):
            count = counts[rows, piece]
            row, ends = np.repeat(rows, count), np.cumsum(count)
            place = np.arange(len(row)) - np.repeat(ends - count, count) + made[row]
            chosen[row, place] = piece * PIECE + _drawn(
                walker.log_weights(rows, int(piece)), count, rng
            )
        made += counts[:, piece]
    index = rng.permuted(chosen, axis=1).T.ravel()
    x = fill_rest(
        p,
        indicators_of(p, index),
        np.tile(np.arange(n), draws),
        lambda unit, eta: unit.sample(eta, rng),
    )
    return {name: value.reshape(draws, n, -1) for name, value in x.items()}


def _drawn(log_weights: Array, count: Array, rng: np.random.Generator) -> Array:
    """Column numbers, count[i] of row i, with probabilities in proportion: one search in all rows'
    sums side by side.
    """
    rows, columns = log_weights.shape
    weight = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    share = weight.cumsum(axis=1)
    share /= share[:, -1:]
    row = np.repeat(np.arange(rows), count)
    found = np.searchsorted(
        (share + np.arange(rows)[:, None]).ravel(), rng.random(len(row)) + row, side="right"
    )
    last = (
        columns - 1 - (weight[:, ::-1] > 0).argmax(axis=1)
    )  # to which a number near 1 may be rounded up, no further
    found = np.minimum(found - row * columns, last[row])
    return found
