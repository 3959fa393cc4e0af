"""Walk the states of a Problem's cover: log weights, and weighted probabilities (moments).

Two walkers give the same answers in the same order of states: `gray` is compiled and multiplicative, for problems of
finite units whose exponents stay in range; `plain` is vectorised numpy in the log domain, for all others.

Moments of one row are a matrix (1 + D, columns): row 0 holds expectations, row 1 + d those times indicator d. Columns
are the finite blocks' probabilities (block, state, unit), then the indicators, then the smooth blocks' statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import logsumexp

from pgmengine import _kernels
from pgmengine.enumeration.problem import FiniteBlock, Problem, SmoothBlock
from pgmengine.threads import pool, threads

Array = np.ndarray
PIECE = 4096  # states between two recomputations from scratch: bounds rounding drift
TASK = 16 * PIECE  # states of one unit of work for the threads; fixed, so results do not depend on their number
LANES = 8
SAFE_EXPONENT = 600.0
SAFE_GAP = 1e-3  # 1 - e^a is taken for 0 when it is far below this: gray.h
FEW_STATES = 64  # below this the numpy walk, vectorised over rows, wins


class Walker(Protocol):
    """What the exact method needs from a walk."""

    def log_sums(self, moments: bool) -> tuple[Array, Array | None]:
        """Log sums of the weights per piece (n, pieces), and moments (n, 1 + D, columns) if wanted."""

    def log_weights(self, row: int, piece: int) -> Array:
        """Log weights of the states of one piece, in order."""

    def best_states(self) -> Array:
        """Number of the state (n,) with the largest weight when units summed out take their most probable value."""


def make_walker(p: Problem) -> Walker:
    """The compiled walk where it is safe and worth it, else the numpy walk."""
    if p.size < FEW_STATES or p.smooth or not GrayWalker.safe(p):
        return PlainWalker(p)
    return GrayWalker(p)


def decode(p: Problem, index: Array) -> Array:
    """Digits (len(index), cover units) of reflected mixed-radix Gray-code numbers."""
    digits = np.empty((len(index), len(p.states)), dtype=np.int64)
    for i, k in enumerate(p.states):
        index, digit = np.divmod(index, int(k))
        digits[:, i] = np.where(index % 2 == 1, k - 1 - digit, digit)
    return digits


def indicators(p: Problem, index: Array) -> Array:
    """The indicators (len(index), D) of the states with these numbers, as floats."""
    digits = decode(p, index)
    unit = np.repeat(np.arange(len(p.states)), p.states - 1)
    first = np.concatenate(([0], np.cumsum(p.states - 1)))
    state = np.arange(len(unit)) - first[unit] + 1
    return (digits[:, unit] == state).astype(np.float64)


def pieces(p: Problem) -> int:
    """Number of pieces in a walk."""
    return -(-p.size // PIECE)


def column_count(p: Problem) -> int:
    """Columns of the moments matrix."""
    finite = sum(_padded(b) * b.offset.shape[2] for b in p.finite)
    return finite + len(p.owner) + sum(len(b.index) for b in p.smooth)


def _padded(block: FiniteBlock) -> int:
    return -(-len(block.index) // LANES) * LANES


def _laid_out(block: FiniteBlock, array: Array, fill: float) -> Array:
    """(rows, T, K-1) -> (rows, (K-1) * padded T), the kernel's order."""
    out = np.full((array.shape[0], array.shape[2], _padded(block)), fill)
    out[:, :, : len(block.index)] = array.transpose(0, 2, 1)
    return out.reshape(array.shape[0], array.shape[2] * _padded(block))


class GrayWalker:
    """The compiled walk of gray.h over rows and pieces, on threads."""

    def __init__(self, p: Problem) -> None:
        self.problem = p
        self.offset = _joined([_laid_out(b, b.offset, -np.inf) for b in p.finite], p.target.rows)
        value = _joined([_laid_out(b, b.value, 0.0) for b in p.finite], len(p.owner))
        up, down = _steps(p, value)
        blocks, start = [], 0
        for b in p.finite:
            k, size = b.offset.shape[2], _padded(b)
            largest = _largest(b) + np.log(k + 1)
            blocks.append((k, size, start, b.power, int(np.clip(690 // max(largest, 1e-9), 1, 16)), b.complement))
            start += k * size
        self.kernel = _kernels.GrayWalk(p.states, np.ascontiguousarray(p.pair), np.ascontiguousarray(value), up, down,
                                        blocks)

    @staticmethod
    def safe(p: Problem) -> bool:
        """Whether every exponential stays far inside the range of a double, and none close to 1 is subtracted from 1."""
        inside = all(np.isfinite(b.offset).all() and _largest(b) < SAFE_EXPONENT for b in p.finite)
        return inside and bool(np.isfinite(p.theta).all()) and all(_apart(b) for b in p.finite if b.complement)

    def log_sums(self, moments: bool) -> tuple[Array, Array | None]:
        """See Walker."""
        p, count = self.problem, pieces(self.problem)
        tasks = [(row, start) for row in range(p.target.rows) for start in range(0, p.size, TASK)]
        shape = (1 + len(p.owner), column_count(p))
        sums = np.empty((p.target.rows, count))

        def run(task: tuple[int, int]) -> tuple[float, Array | None]:
            row, start = task
            states = min(TASK, p.size - start)
            out = np.zeros(shape) if moments else None
            part = np.empty(-(-states // PIECE))
            scale = self.kernel.walk(p.const[row], p.theta[row], self.offset[row], start, states, PIECE, part, None, out)
            sums[row, start // PIECE: start // PIECE + len(part)] = part
            return scale, out

        if len(tasks) == 1 or threads() == 1:
            done = map(run, tasks)
            total = self._merge(tasks, done, sums, shape) if moments else [None for _ in done]
        else:
            results = pool().map(run, tasks)
            total = self._merge(tasks, results, sums, shape) if moments else [None for _ in results]
        return sums, total if moments else None  # type: ignore[return-value]

    def _merge(self, tasks: list[tuple[int, int]], done: object, sums: Array, shape: tuple[int, int]) -> Array:
        """Expectations per row from the tasks' scaled sums, in the order of the tasks."""
        out = np.zeros((self.problem.target.rows, *shape))
        scales = np.full(self.problem.target.rows, -np.inf)
        for (row, _), (scale, part) in zip(tasks, done, strict=True):  # type: ignore[call-overload]
            if scale == -np.inf:
                continue
            new = max(scales[row], scale)
            out[row] = out[row] * np.exp(scales[row] - new) + part * np.exp(scale - new)
            scales[row] = new
        log_z = logsumexp(sums, axis=1)
        gap = np.subtract(scales, log_z, out=np.zeros(len(log_z)), where=np.isfinite(scales))
        return out * np.exp(gap)[:, None, None]

    def log_weights(self, row: int, piece: int, best: bool = False) -> Array:
        """See Walker."""
        p = self.problem
        count = min(PIECE, p.size - piece * PIECE)
        out = np.empty(count)
        self.kernel.walk(p.const[row], p.theta[row], self.offset[row], piece * PIECE, count, PIECE, np.empty(1), out,
                         None, best)
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


def _joined(parts: list[Array], rows: int) -> Array:
    return np.concatenate(parts, axis=1) if parts else np.zeros((rows, 0))


def _steps(p: Problem, value: Array) -> tuple[Array, Array]:
    """Exp of the change of every component when a unit steps up into an indicator, and its inverse."""
    change = value.copy()
    first = np.array([a == 1 for _, _, a in p.owner], dtype=bool)
    later = np.flatnonzero(~first)
    change[later] -= value[later - 1]
    return np.exp(change), np.exp(-change)


def _largest(b: FiniteBlock) -> float:
    """A bound on |a_tk| over all states of the cover, and on its change in one step."""
    if not b.offset.size:
        return 0.0
    reach = np.abs(b.value).sum(axis=0) + 2 * np.abs(b.value).max(axis=0, initial=0.0)
    return float((np.abs(b.offset).max(axis=0) + reach).max())


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
        widest = max([b.offset[0].size for b in p.finite] + [len(b.index) for b in p.smooth] + [len(p.owner), 1])
        return int(np.clip(4_000_000 // (widest * p.target.rows), 1, PIECE))

    def log_sums(self, moments: bool) -> tuple[Array, Array | None]:
        """See Walker."""
        p = self.problem
        n = p.target.rows
        sums = np.full((n, pieces(p)), -np.inf)
        total = np.zeros((n, 1 + len(p.owner), column_count(p))) if moments else None
        scale = np.full(n, -np.inf)
        for start in range(0, p.size, self.chunk):
            index = np.arange(start, min(start + self.chunk, p.size))
            ind = indicators(p, index)
            weight = self.weight(ind)
            for piece in np.unique(index // PIECE):
                part = logsumexp(weight[:, index // PIECE == piece], axis=1)
                sums[:, piece] = np.logaddexp(sums[:, piece], part)
            if total is not None:
                new = np.maximum(scale, weight.max(axis=1))
                safe = np.where(np.isneginf(new), 0.0, new)
                w = np.exp(weight - safe[:, None])
                total *= np.exp(scale - safe)[:, None, None]
                on = np.concatenate((np.ones((len(ind), 1)), ind), axis=1)
                columns = np.where(w[:, :, None] > 0, self.columns(ind), 0.0)  # the score of an impossible state is inf
                total += np.matmul((w[:, :, None] * on).transpose(0, 2, 1), columns)
                scale = new
        if total is not None:
            possible = np.isfinite(scale)
            gap = np.subtract(scale, logsumexp(sums, axis=1), out=np.zeros(n), where=possible)
            total *= np.exp(gap)[:, None, None]
        return sums, total

    def log_weights(self, row: int, piece: int) -> Array:
        """See Walker."""
        p = self.problem
        index = np.arange(piece * PIECE, min((piece + 1) * PIECE, p.size))
        return np.concatenate([self.weight(indicators(p, part))[row]
                               for part in np.array_split(index, -(-len(index) // self.chunk))])

    def best_states(self) -> Array:
        """See Walker."""
        p = self.problem
        best, where = np.full(p.target.rows, -np.inf), np.zeros(p.target.rows, dtype=np.int64)
        for start in range(0, p.size, self.chunk):
            index = np.arange(start, min(start + self.chunk, p.size))
            weight = self.best_weight(indicators(p, index))
            top = weight.argmax(axis=1)
            value = weight[np.arange(len(weight)), top]
            where = np.where(value > best, index[top], where)
            best = np.maximum(best, value)
        return where

    def weight(self, ind: Array) -> Array:
        """Log weights (n, states)."""
        return self._linear(ind) + self._blocks(ind, lambda b, a: b.power * _log_sum(b, a), lambda b: b.log_weight)

    def best_weight(self, ind: Array) -> Array:
        """Log weights (n, states) with every unit that is summed out at its most probable value instead."""
        return self._linear(ind) + self._blocks(
            ind, lambda b, a: _log_terms(b, a).max(axis=-1) if b.summed else b.power * _log_sum(b, a), lambda b: b.best)

    def _linear(self, ind: Array) -> Array:
        p = self.problem
        pairs = np.einsum("sd,sd->s", ind @ p.pair, ind) / 2
        return p.const[:, None] + p.theta @ ind.T + pairs

    def _blocks(self, ind: Array, finite: Callable[[FiniteBlock, Array], Array],
                smooth: Callable[[SmoothBlock], Callable[[Array], Array]]) -> Array:
        total = np.zeros((self.problem.target.rows, len(ind)))
        for b in self.problem.finite:
            total += finite(b, _exponents(b, ind)).sum(axis=-1)
        for s in self.problem.smooth:
            total += smooth(s)(_inputs(s, ind)).sum(axis=-1)
        return total

    def columns(self, ind: Array) -> Array:
        """The columns of the moments matrix for each state, (n, states, columns)."""
        p = self.problem
        n, states = p.target.rows, len(ind)
        parts = []
        for b in p.finite:
            a = _exponents(b, ind)
            log_sum = _log_sum(b, a)[..., None]
            prob = np.exp(np.subtract(a, log_sum, out=np.full_like(a, -np.inf), where=np.isfinite(log_sum)))
            padded = np.zeros((n, states, prob.shape[-1], _padded(b)))
            padded[..., : len(b.index)] = prob.swapaxes(-1, -2)
            parts.append(padded.reshape(n, states, -1))
        parts.append(np.broadcast_to(ind, (n, *ind.shape)))
        parts += [s.statistic(_inputs(s, ind)) for s in p.smooth]
        return np.concatenate(parts, axis=2)


def _exponents(b: FiniteBlock, ind: Array) -> Array:
    """A (n, states, T, K-1)."""
    return b.offset[:, None] + np.tensordot(ind, b.value, axes=1)


def _inputs(s: SmoothBlock, ind: Array) -> Array:
    return s.offset[:, None] + ind @ s.value


def _log_terms(b: FiniteBlock, a: Array) -> Array:
    """Logs of the terms of a block's sum, last axis: 0 and a; or log(1 - e^a_K) and a_k, k < K."""
    if not b.complement:
        return np.concatenate((np.zeros_like(a[..., :1]), a), axis=-1)
    with np.errstate(divide="ignore"):
        return np.concatenate((np.log(-np.expm1(np.minimum(a[..., -1:], 0.0))), a[..., :-1]), axis=-1)


def _log_sum(b: FiniteBlock, a: Array) -> Array:
    """log(1 + sum_k exp(a_k)) over the last axis, or its kin with a minus sign."""
    terms = _log_terms(b, a)
    top = terms.max(axis=-1)
    with np.errstate(divide="ignore"):
        safe = np.where(np.isneginf(top), 0.0, top)
        return safe + np.log(np.exp(terms - safe[..., None]).sum(axis=-1))
