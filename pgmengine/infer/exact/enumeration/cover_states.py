"""The states of a cover by number; draws and the mode as complete states.

States are numbered in reflected mixed-radix Gray-code order: the digits of a number are the states
of the cover units. From each number to the next, exactly one unit changes, by one state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from pgmengine.base.errors import InternalError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, States
from pgmengine.infer.exact.enumeration.log_linear import LogLinearForm
from pgmengine.units import Unit

# States between two computations of log weights from scratch, which bound the drift of rounding.
STATES_PER_PIECE = 4096

# Log weights that are held at a time while states are drawn.
MAX_LOG_WEIGHTS_AT_ONCE = 2**22

# Complete states are drawn in blocks of at most MAX_DRAWN_NUMBERS_AT_ONCE numbers. Each number
# takes BYTES_PER_DRAWN_NUMBER, for its value, natural parameter, mean and random number.
MAX_DRAWN_NUMBERS_AT_ONCE, BYTES_PER_DRAWN_NUMBER = 2**19, 56.0


class Enumerator(Protocol):
    """Sums over the states of a cover, as exact answers use them."""

    def sums(self, moments: int) -> tuple[Array, Array | None]:
        """Return the log sums of the weights of each piece (n, pieces), and the moments.

        The weights leave out the constant of the form, which is the same in all states. The moments
        are (n, `moments`, columns), or None if `moments` is 0.
        """
        ...

    def log_weights(self, rows: Array, piece: int) -> Array:
        """Return the log weights (rows, states) of some rows in the states of one piece."""
        ...

    def best_states(self) -> Array:
        """Return the numbers (n,) of the cover states of the most probable complete states."""
        ...


def decode(p: LogLinearForm, index: Array) -> Array:
    """Return the digits (len(index), cover units) of reflected mixed-radix Gray-code numbers."""
    digits = np.empty((len(index), len(p.pattern_form.states)), dtype=np.int64)
    for i, k in enumerate(p.pattern_form.states):
        index, digit = np.divmod(index, int(k))
        digits[:, i] = np.where(index % 2 == 1, k - 1 - digit, digit)
    return digits


def indicators_of(p: LogLinearForm, index: Array) -> Array:
    """Return the indicators (len(index), D) of the states with these numbers, as floats."""
    digits, states = decode(p, index), p.pattern_form.states
    unit = np.repeat(np.arange(len(states)), states - 1)
    first = np.concatenate(([0], np.cumsum(states - 1)))
    state = np.arange(len(unit)) - first[unit] + 1
    return np.equal(digits[:, unit], state).astype(np.float64)


def pieces(p: LogLinearForm) -> int:
    """Return the number of pieces into which the states are divided."""
    return -(-p.size // STATES_PER_PIECE)


def fill_rest(
    p: LogLinearForm, states: Array, rows: Array, choose: Callable[[Unit, Array], Array]
) -> States:
    """Return complete flat values (m, width) for cover states (m, D) and rows (m,).

    The values of all other units are choose(unit, natural parameter), parents first.
    """
    target = p.target.take(rows)
    x = {name: p.origin[name][rows] + states @ p.pattern_form.steps[name] for name in p.origin}
    for name in target.structure.undirected_first:
        index = p.pattern_form.cover.rest[name]
        if len(index):
            layer = target.structure.layers[name]
            value = layer.flat(choose(layer.unit, layer.shaped(target.natural(x, name))))
            columns = layer.columns(index)
            x[name] = x[name].copy()
            x[name][:, columns] = value[:, columns]
    return x


def mode_of(p: LogLinearForm, enumerator: Enumerator) -> States:
    """Return the most probable completion of every row; ties go to the first state by number."""
    where = enumerator.best_states()
    return fill_rest(
        p, indicators_of(p, where), np.arange(p.target.rows), lambda unit, eta: unit.mode(eta)
    )


def draw(
    p: LogLinearForm, enumerator: Enumerator, sums: Array, draws: int, rng: np.random.Generator
) -> States:
    """Return independent exact samples, flat (draws, rows, width).

    First a piece is drawn in proportion to `sums` (rows, pieces), then a state of this piece, then
    the other units given this state.
    """
    n, share = p.target.rows, np.exp(sums - log_sum(sums)[:, None])
    counts = rng.multinomial(draws, share / share.sum(axis=1, keepdims=True))
    chosen, made = np.full((n, draws), -1), np.zeros(n, dtype=np.int64)
    for piece in np.flatnonzero(counts.any(axis=0)):
        some = np.flatnonzero(counts[:, piece])
        for rows in np.array_split(
            some, -(-len(some) * min(p.size, STATES_PER_PIECE) // MAX_LOG_WEIGHTS_AT_ONCE)
        ):
            count = counts[rows, piece]
            row, ends = np.repeat(rows, count), np.cumsum(count)
            place = np.arange(len(row)) - np.repeat(ends - count, count) + made[row]
            chosen[row, place] = piece * STATES_PER_PIECE + _drawn(
                enumerator.log_weights(rows, int(piece)), count, rng
            )
        made += counts[:, piece]
    # As many states are drawn as there are places, so that no place is filled twice either.
    if np.count_nonzero(chosen < 0):
        raise InternalError(
            f"{np.count_nonzero(chosen < 0)} of {chosen.size} draws of cover states are missing"
        )
    index, layers = rng.permuted(chosen, axis=1).T, p.target.structure.layers
    out = {name: np.full((draws, n, layer.width), np.nan) for name, layer in layers.items()}
    step = max(1, MAX_DRAWN_NUMBERS_AT_ONCE // (n * p.target.structure.width))
    for begin in range(0, draws, step):
        some = index[begin : begin + step]
        x = fill_rest(
            p,
            indicators_of(p, some.ravel()),
            np.tile(np.arange(n), len(some)),
            lambda unit, eta: unit.sample(eta, rng),
        )
        for name, value in x.items():
            out[name][begin : begin + step] = value.reshape(len(some), n, -1)
    return out


def _drawn(log_weights: Array, count: Array, rng: np.random.Generator) -> Array:
    """Draw count[i] column numbers for each row i, in proportion to the weights of the row.

    One search in the running sums of all rows, laid end to end, finds all of them.
    """
    rows, columns = log_weights.shape
    weight = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    share = weight.cumsum(axis=1)
    share /= share[:, -1:]
    row = np.repeat(np.arange(rows), count)
    found = np.searchsorted(
        (share + np.arange(rows)[:, None]).ravel(), rng.random(len(row)) + row, side="right"
    )
    # Rounding may move a number near 1 past the last column with a weight.
    last = columns - 1 - (weight[:, ::-1] > 0).argmax(axis=1)
    return np.asarray(np.minimum(found - row * columns, last[row]))
