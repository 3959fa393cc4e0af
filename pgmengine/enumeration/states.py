"""The states of a cover by number, in reflected mixed-radix Gray-code order, and complete states of a problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from pgmengine.enumeration.problem import Problem
from pgmengine.model import Flat
from pgmengine.stable import log_sum

Array = np.ndarray
PIECE = 4096  # states between two recomputations from scratch: bounds rounding drift


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


def fill_rest(p: Problem, states: Array, rows: Array, choose: Any) -> Flat:
    """Complete flat values of cover states (m, D) for the rows (m,), the rest chosen by choose(unit, eta)."""
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


def mode_of(p: Problem, walker: Any) -> Flat:
    """The jointly most probable completion of every row; ties go to the first state in the walk's order."""
    where = walker.best_states()
    return fill_rest(p, indicators_of(p, where), np.arange(p.target.rows), lambda unit, eta: unit.mode(eta))


def draw(p: Problem, walker: Any, sums: Array, draws: int, rng: np.random.Generator) -> Flat:
    """Independent exact samples, flat (draws, rows, width): a piece, a state in it, then the rest given the cover."""
    chosen = np.empty((draws, p.target.rows), dtype=np.int64)
    for row in range(p.target.rows):
        if p.size == 1:
            chosen[:, row] = 0
            continue
        share = np.exp(sums[row] - log_sum(sums[row]))
        counts = rng.multinomial(draws, share / share.sum())
        index = []
        for piece in np.flatnonzero(counts):
            weight = walker.log_weights(row, int(piece))
            prob = np.exp(weight - log_sum(weight))
            index.append(piece * PIECE + rng.choice(len(prob), size=counts[piece], p=prob / prob.sum()))
        chosen[:, row] = rng.permutation(np.concatenate(index))
    rows = np.tile(np.arange(p.target.rows), draws)
    x = fill_rest(p, indicators_of(p, chosen.ravel()), rows, lambda unit, eta: unit.sample(eta, rng))
    return {name: value.reshape(draws, p.target.rows, -1) for name, value in x.items()}

