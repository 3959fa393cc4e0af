"""Walk the states of a Problem's cover: log weights, and weighted probabilities (moments).

Two walkers give the same answers in the same order of states: `gray` is compiled and multiplicative, for problems of
finite units whose exponents stay in range; `plain` is vectorised numpy in the log domain, for all others.

Moments of one row are a matrix (1 or 1 + D, columns): row 0 holds expectations, row 1 + d those times indicator d.
Columns are the finite blocks' probabilities (block, state, unit), then the indicators, then the smooth blocks'
statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from pgmengine import _kernels
from pgmengine.enumeration.problem import FiniteBlock, Problem, SmoothBlock
from pgmengine.stable import log_sum
from pgmengine.threads import pool, threads

Array = np.ndarray
PIECE = 4096  # states between two recomputations from scratch: bounds rounding drift
TASK = 16 * PIECE  # states of one unit of work for the threads; fixed, so results do not depend on their number
LANES = 8
SAFE_EXPONENT = 600.0
SAFE_GAP = 1e-3  # 1 - e^a is taken for 0 when it is far below this: gray.h
FEW_STATES = 64  # below this the numpy walk, vectorised over rows, wins, unless there are
FEW_ROWS = 4


class Walker(Protocol):
    """What the exact method needs from a walk."""

    def log_sums(self, moments: int) -> tuple[Array, Array | None]:
        """Log sums of the weights per piece (n, pieces), and so many rows of moments (n, moments, columns), or None."""

    def log_weights(self, row: int, piece: int) -> Array:
        """Log weights of the states of one piece, in order."""

    def best_states(self) -> Array:
        """Number of the state (n,) with the largest weight when units summed out take their most probable value."""


def make_walker(p: Problem) -> Walker:
    """The compiled walk where it is safe and worth it, else the numpy walk."""
    if p.smooth or (p.size < FEW_STATES and p.target.rows > FEW_ROWS):
        return PlainWalker(p)
    walker = GrayWalker(p)
    return walker if walker.safe else PlainWalker(p)


def decode(p: Problem, index: Array) -> Array:
    """Digits (len(index), cover units) of reflected mixed-radix Gray-code numbers."""
    digits = np.empty((len(index), len(p.frame.states)), dtype=np.int64)
    for i, k in enumerate(p.frame.states):
        index, digit = np.divmod(index, int(k))
        digits[:, i] = np.where(index % 2 == 1, k - 1 - digit, digit)
    return digits


def indicators(p: Problem, index: Array) -> Array:
    """The indicators (len(index), D) of the states with these numbers, as floats."""
    digits, states = decode(p, index), p.frame.states
    unit = np.repeat(np.arange(len(states)), states - 1)
    first = np.concatenate(([0], np.cumsum(states - 1)))
    state = np.arange(len(unit)) - first[unit] + 1
    return (digits[:, unit] == state).astype(np.float64)


def pieces(p: Problem) -> int:
    """Number of pieces in a walk."""
    return -(-p.size // PIECE)


def column_count(p: Problem) -> int:
    """Columns of the moments matrix."""
    finite = sum(_padded(b) * b.offset.shape[2] for b in p.finite)
    return finite + p.frame.indicators + sum(len(b.index) for b in p.smooth)


def _padded(block: FiniteBlock) -> int:
    return -(-len(block.index) // LANES) * LANES


def laid_out(blocks: list[FiniteBlock], arrays: list[Array], rows: int, fill: float) -> Array:
    """(rows, T, K-1) of each block as (rows, components), the kernel's order: block, state, padded unit."""
    out = np.full((rows, sum(b.value.shape[2] * _padded(b) for b in blocks)), fill)
    start = 0
    for b, array in zip(blocks, arrays, strict=True):
        terms, size = b.value.shape[2], _padded(b)
        part = out[:, start: start + terms * size].reshape(rows, terms, size)
        part[:, :, : len(b.index)] = array.transpose(0, 2, 1)
        start += terms * size
    return out


@dataclass(frozen=True, eq=False)
class _Compiled:
    """The part of a compiled walk that does not depend on the rows."""

    kernel: Any  # None when no offsets could be safe
    reach: list[Array]  # of each block (1, T, K-1): how far a_tk can be from its offset, or go in one step


def _compiled(p: Problem) -> _Compiled:
    size = [np.abs(b.value) for b in p.finite]
    reach = [a.sum(axis=0, keepdims=True) + 2 * a.max(axis=0, initial=0.0) for a in size]
    if not all(a.max(initial=0.0) < SAFE_EXPONENT for a in reach):
        return _Compiled(None, reach)
    value = laid_out(p.finite, [b.value for b in p.finite], p.frame.indicators, 0.0)
    up, down = _steps(p, value)
    blocks, start = [], 0
    for b in p.finite:
        blocks.append((b.value.shape[2], _padded(b), start, b.power, b.complement))
        start += b.value.shape[2] * _padded(b)
    kernel = _kernels.GrayWalk(p.frame.states, np.ascontiguousarray(p.pair), value, up, down, blocks)
    return _Compiled(kernel, reach)


class GrayWalker:
    """The compiled walk of gray.h over rows and pieces, on threads."""

    def __init__(self, p: Problem) -> None:
        compiled: _Compiled = p.frame.memo.recall("compiled walk", lambda: _compiled(p))
        self.problem, self.kernel, self.reach = p, compiled.kernel, compiled.reach
        self.offset = laid_out(p.finite, [b.offset for b in p.finite], p.target.rows, -np.inf)
        largest = [_largest(b, reach) for b, reach in zip(p.finite, compiled.reach, strict=True)]
        self.safe = self._inside(largest)
        factors = max((a + np.log(b.value.shape[2] + 1) for a, b in zip(largest, p.finite, strict=True)), default=0.0)
        self.every = int(min(max(690 // max(factors, 0.1), 1), 64)) if self.safe else 1

    def _inside(self, largest: list[float]) -> bool:
        """Whether every exponential stays far inside the range of a double, and none close to 1 is subtracted from 1."""
        p = self.problem
        inside = all(a < SAFE_EXPONENT for a in largest) and bool(np.isfinite(p.theta).all())
        return inside and all(_apart(b) for b in p.finite if b.complement)

    def log_sums(self, moments: int) -> tuple[Array, Array | None]:
        """See Walker."""
        p, count = self.problem, pieces(self.problem)
        tasks = [(row, start) for row in range(p.target.rows) for start in range(0, p.size, TASK)]
        shape = (moments, column_count(p))
        sums = np.empty((p.target.rows, count))

        def run(task: tuple[int, int]) -> tuple[float, Array | None]:
            row, start = task
            states = min(TASK, p.size - start)
            out = np.zeros(shape) if moments else None
            part = np.empty(-(-states // PIECE))
            scale = self.kernel.walk(p.const[row], p.theta[row], self.offset[row], start, states, PIECE, self.every, part,
                                     None, out)
            sums[row, start // PIECE: start // PIECE + len(part)] = part
            return scale, out

        done = map(run, tasks) if len(tasks) == 1 or threads() == 1 else pool().map(run, tasks)
        if moments:
            return sums, self._merge(tasks, done, sums, shape)
        for _ in done:
            pass
        return sums, None

    def _merge(self, tasks: list[tuple[int, int]], done: Iterator[tuple[float, Array | None]], sums: Array,
               shape: tuple[int, int]) -> Array:
        """Expectations per row from the tasks' scaled sums, in the order of the tasks."""
        out = np.zeros((self.problem.target.rows, *shape))
        scales = [-math.inf] * len(out)
        for (row, _), (scale, part) in zip(tasks, done, strict=True):
            if part is None or scale == -math.inf:
                continue
            new = max(scales[row], scale)
            out[row] *= math.exp(scales[row] - new)
            out[row] += part * math.exp(scale - new)
            scales[row] = new
        for row, (scale, log_z) in enumerate(zip(scales, log_sum(sums).tolist(), strict=True)):
            if scale > -math.inf:
                out[row] *= math.exp(scale - log_z)
        return out

    def log_weights(self, row: int, piece: int, best: bool = False) -> Array:
        """See Walker."""
        p = self.problem
        count = min(PIECE, p.size - piece * PIECE)
        out = np.empty(count)
        self.kernel.walk(p.const[row], p.theta[row], self.offset[row], piece * PIECE, count, PIECE, self.every,
                         np.empty(1), out, None, best)
        return out

    def best_states(self) -> Array:
        """See Walker."""
        tasks = [(row, piece) for row in range(self.problem.target.rows) for piece in range(pieces(self.problem))]

        def run(task: tuple[int, int]) -> tuple[float, int]:
            weight = self.log_weights(*task, best=True)
            top = int(weight.argmax())
            return float(weight[top]), task[1] * PIECE + top

        found = np.array(list(pool().map(run, tasks))).reshape(self.problem.target.rows, -1, 2)
        winner = found[:, :, 0].argmax(axis=1)
        return found[np.arange(len(found)), winner, 1].astype(np.int64)


def _steps(p: Problem, value: Array) -> tuple[Array, Array]:
    """Exp of the change of every component when a unit steps up into an indicator, and its inverse."""
    change = value.copy()
    first = np.array([a == 1 for _, _, a in p.frame.owner], dtype=bool)
    later = np.flatnonzero(~first)
    change[later] -= value[later - 1]
    return np.exp(change), np.exp(-change)


def _largest(b: FiniteBlock, reach: Array) -> float:
    """A bound on |a_tk| over all states of the cover, and on its change in one step; NaN or inf where an offset is."""
    return float((np.abs(b.offset) + reach).max(initial=0.0))


def _apart(b: FiniteBlock) -> bool:
    """Whether the subtracted term of every state is 1 exactly or at most 1 - SAFE_GAP."""
    offset, value = b.offset[..., -1], b.value[..., -1]
    top = offset + np.maximum(value, 0.0).sum(axis=0)
    exact = (np.abs(top) < 1e-12) & ((np.abs(value) > SAFE_GAP) | (value == 0)).all(axis=0)
    return bool(((top < -SAFE_GAP) | exact).all())


@dataclass(frozen=True, eq=False)
class PlainWalker:
    """The numpy walk: chunks of states by all rows, in the log domain; reads every kind of block."""

    problem: Problem

    @cached_property
    def chunk(self) -> int:
        """States at a time: about 4 million numbers in the largest temporary."""
        p = self.problem
        widest = max([b.offset[0].size for b in p.finite] + [len(b.index) for b in p.smooth] + [p.frame.indicators, 1])
        return min(max(4_000_000 // (widest * p.target.rows), 1), PIECE)

    def _chunks(self, start: int, stop: int) -> Iterator[Array]:
        """Numbers of the states from start to stop, none of two pieces."""
        while start < stop:
            end = min(start + self.chunk, stop, (start // PIECE + 1) * PIECE)
            yield np.arange(start, end)
            start = end

    def log_sums(self, moments: int) -> tuple[Array, Array | None]:
        """See Walker."""
        p = self.problem
        n = p.target.rows
        sums = np.full((n, pieces(p)), -np.inf)
        total, scale = np.zeros((n, moments, column_count(p))), np.full(n, -np.inf)
        for index in self._chunks(0, p.size):
            ind = indicators(p, index)
            terms = [_Terms(b, _exponents(b, ind)) for b in p.finite]
            weight = self._linear(ind)
            for t in terms:
                weight += t.block.power * t.log_sum.sum(axis=-1)
            for s in p.smooth:
                weight += s.log_weight(_inputs(s, ind)).sum(axis=-1)
            part = log_sum(weight)
            sums[:, index[0] // PIECE] = np.logaddexp(sums[:, index[0] // PIECE], part)
            if moments:
                new = np.maximum(scale, part)
                safe = np.where(np.isneginf(new), 0.0, new)
                w = np.exp(weight - safe[:, None])
                total *= np.exp(scale - safe)[:, None, None]
                total += _weighted(w, ind, moments, self._columns(ind, terms))
                scale = new
        gap = np.subtract(scale, log_sum(sums), out=np.zeros(n), where=np.isfinite(scale))
        return sums, total * np.exp(gap)[:, None, None] if moments else None

    def log_weights(self, row: int, piece: int) -> Array:
        """See Walker."""
        p = self.problem
        stop = min((piece + 1) * PIECE, p.size)
        return np.concatenate([self.weight(indicators(p, index))[row] for index in self._chunks(piece * PIECE, stop)])

    def best_states(self) -> Array:
        """See Walker."""
        p = self.problem
        best, where = np.full(p.target.rows, -np.inf), np.zeros(p.target.rows, dtype=np.int64)
        for index in self._chunks(0, p.size):
            weight = self.weight(indicators(p, index), best=True)
            top = weight.argmax(axis=1)
            value = weight[np.arange(len(weight)), top]
            where = np.where(value > best, index[top], where)
            best = np.maximum(best, value)
        return where

    def weight(self, ind: Array, best: bool = False) -> Array:
        """Log weights (n, states); `best`: with every unit that is summed out at its most probable value instead."""
        weight = self._linear(ind)
        for b in self.problem.finite:
            terms = _Terms(b, _exponents(b, ind))
            weight += terms.largest.sum(axis=-1) if best and b.summed else b.power * terms.log_sum.sum(axis=-1)
        for s in self.problem.smooth:
            weight += (s.best if best else s.log_weight)(_inputs(s, ind)).sum(axis=-1)
        return weight

    def _linear(self, ind: Array) -> Array:
        p = self.problem
        pairs = ((ind @ p.pair) * ind).sum(axis=1) / 2
        return p.const[:, None] + p.theta @ ind.T + pairs

    def _columns(self, ind: Array, terms: list[_Terms]) -> Array:
        """The columns of the moments matrix for each state, (n, states, columns)."""
        n, states = self.problem.target.rows, len(ind)
        parts = []
        for t in terms:
            padded = np.zeros((n, states, t.exponent.shape[-1], _padded(t.block)))
            padded[..., : len(t.block.index)] = t.prob.swapaxes(-1, -2)
            parts.append(padded.reshape(n, states, -1))
        parts.append(np.broadcast_to(ind, (n, *ind.shape)))
        parts += [s.statistic(_inputs(s, ind)) for s in self.problem.smooth]
        return np.concatenate(parts, axis=2)


def _weighted(w: Array, ind: Array, moments: int, columns: Array) -> Array:
    """Sums over states of weight times column, and times each indicator, (n, moments, columns)."""
    columns = np.where(w[:, :, None] > 0, columns, 0.0)  # the score of an impossible state is inf
    on = np.concatenate((np.ones((len(ind), 1)), ind), axis=1)[:, :moments]
    return np.matmul((w[:, :, None] * on).transpose(0, 2, 1), columns)


def _exponents(b: FiniteBlock, ind: Array) -> Array:
    """A (n, states, T, K-1)."""
    d, units, terms = b.value.shape
    return b.offset[:, None] + (ind @ b.value.reshape(d, units * terms)).reshape(len(ind), units, terms)


def _inputs(s: SmoothBlock, ind: Array) -> Array:
    return s.offset[:, None] + ind @ s.value


@dataclass(frozen=True, eq=False)
class _Terms:
    """The terms of a block's sums, 1 and exp(a_k), or exp(a_k) and 1 - exp(a_K), for each row, state and unit."""

    block: FiniteBlock
    exponent: Array  # a (n, states, T, K-1)

    @cached_property
    def logs(self) -> Array:
        """Logs of the terms, last axis."""
        a = self.exponent
        if not self.block.complement:
            return np.concatenate((np.zeros_like(a[..., :1]), a), axis=-1)
        with np.errstate(divide="ignore"):
            return np.concatenate((np.log(-np.expm1(np.minimum(a[..., -1:], 0.0))), a[..., :-1]), axis=-1)

    @property
    def largest(self) -> Array:
        """Log of the largest term, (n, states, T)."""
        return self.logs.max(axis=-1)

    @cached_property
    def log_sum(self) -> Array:
        """Log of the sum, (n, states, T)."""
        if self.exponent.shape[-1] == 1 and not self.block.complement:
            a = self.exponent[..., 0]
            return np.maximum(a, 0.0) + np.log1p(np.exp(-np.abs(a)))
        return log_sum(self.logs)

    @property
    def prob(self) -> Array:
        """exp(a) over the sum, the shape of a; 0 where the sum is."""
        gap = self.log_sum[..., None]
        return np.exp(np.subtract(self.exponent, gap, out=np.full_like(self.exponent, -np.inf), where=gap > -np.inf))
