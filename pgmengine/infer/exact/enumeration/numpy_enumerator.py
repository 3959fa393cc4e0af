"""Enumeration in numpy, in the log domain, for pieces of the states and all rows at once.

It supports every kind of block. It is the reference implementation of the compiled enumeration, and
takes its place where the compiled enumeration could overflow or lose digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array
from pgmengine.infer.exact.enumeration import cover_states
from pgmengine.infer.exact.enumeration.log_linear import FiniteBlock, LogLinearForm, SmoothBlock


@dataclass(frozen=True, eq=False)
class NumpyEnumerator:
    """Enumeration of a log-linear form in numpy; see cover_states.Enumerator."""

    form: LogLinearForm

    @cached_property
    def chunk(self) -> int:
        """The number of states that are visited at a time.

        The largest temporary array of a thread then has about half a million numbers.
        """
        p = self.form
        widest = max([int(b.offset[0].size) for b in p.finite], default=1)
        widest = max([widest, p.pattern_form.indicators, *(len(b.index) for b in p.smooth)])
        return min(max(500_000 // (widest * p.target.rows), 1), cover_states.STATES_PER_PIECE)

    def _chunks(self, start: int, stop: int) -> Iterator[Array]:
        """Yield the numbers of the states from start to stop, piece by piece."""
        while start < stop:
            end = min(
                start + self.chunk,
                stop,
                (start // cover_states.STATES_PER_PIECE + 1) * cover_states.STATES_PER_PIECE,
            )
            yield np.arange(start, end)
            start = end

    def sums(self, moments: int) -> tuple[Array, Array | None]:
        """Return the log sums of the weights of each piece (n, pieces), and the moments."""
        p = self.form
        n = p.target.rows
        sums = np.full((n, cover_states.pieces(p)), -np.inf)
        total, mass = np.zeros((n, moments, p.columns)), np.zeros(n)
        scale = np.full(n, -np.inf)
        for index in self._chunks(0, p.size):
            ind = cover_states.indicators_of(p, index)
            terms = [_Terms(b, _exponents(b, ind)) for b in p.finite]
            weight = self._linear(ind)
            for t in terms:
                weight += t.block.power * t.log_sum.sum(axis=-1)
            for s in p.smooth:
                weight += s.log_weight(_inputs(s, ind)).sum(axis=-1)
            part = log_sum(weight)
            sums[:, index[0] // cover_states.STATES_PER_PIECE] = np.logaddexp(
                sums[:, index[0] // cover_states.STATES_PER_PIECE], part
            )
            if moments:
                new = np.maximum(scale, part)
                safe = np.where(np.isneginf(new), 0.0, new)
                w = np.exp(weight - safe[:, None])
                keep = np.exp(scale - safe)
                total *= keep[:, None, None]
                total += _weighted(w, ind, moments, self._columns(ind, terms))
                mass = mass * keep + w.sum(axis=1)
                scale = new
        # Dividing by the sum of the same weights gives averages even where log weights are rounded.
        return sums, total / np.where(mass > 0, mass, 1.0)[:, None, None] if moments else None

    def log_weights(self, rows: Array, piece: int) -> Array:
        """Return the log weights (rows, states) of some rows in the states of one piece."""
        p = self.form
        chunks = self._chunks(
            piece * cover_states.STATES_PER_PIECE,
            min((piece + 1) * cover_states.STATES_PER_PIECE, p.size),
        )
        return np.concatenate(
            [self.weight(cover_states.indicators_of(p, index))[rows] for index in chunks], axis=1
        )

    def best_states(self) -> Array:
        """Return the number (n,) of the state of the cover in the most probable state."""
        p = self.form
        best, where = np.full(p.target.rows, -np.inf), np.zeros(p.target.rows, dtype=np.int64)
        for index in self._chunks(0, p.size):
            weight = self.weight(cover_states.indicators_of(p, index), best=True)
            top = weight.argmax(axis=1)
            value = weight[np.arange(len(weight)), top]
            where = np.where(value > best, index[top], where)
            best = np.maximum(best, value)
        return where

    def weight(self, ind: Array, best: bool = False) -> Array:
        """Return the log weights (n, states).

        With `best`, each marginalised unit has its most probable value instead.
        """
        weight = self._linear(ind)
        for b in self.form.finite:
            terms = _Terms(b, _exponents(b, ind))
            weight += (
                terms.largest.sum(axis=-1)
                if best and b.marginalised
                else b.power * terms.log_sum.sum(axis=-1)
            )
        for s in self.form.smooth:
            weight += (s.best if best else s.log_weight)(_inputs(s, ind)).sum(axis=-1)
        return weight

    def _linear(self, ind: Array) -> Array:
        p = self.form
        pairs = ((ind @ p.pair) * ind).sum(axis=1) / 2
        linear: Array = p.theta @ ind.T + pairs
        return linear

    def _columns(self, ind: Array, terms: list[_Terms]) -> Array:
        """Return the columns of the moments of each state, (n, states, columns)."""
        n, count = self.form.target.rows, len(ind)
        parts = []
        for t in terms:
            filled = np.zeros((n, count, t.exponent.shape[-1], t.block.padded))
            filled[..., : len(t.block.index)] = t.prob.swapaxes(-1, -2)
            parts.append(filled.reshape(n, count, -1))
        parts.append(np.broadcast_to(ind, (n, *ind.shape)))
        parts += [s.statistic(_inputs(s, ind)) for s in self.form.smooth]
        return np.concatenate(parts, axis=2)


def _weighted(w: Array, ind: Array, moments: int, columns: Array) -> Array:
    """Return sums over states of weight, indicator and column, (n, moments, columns)."""
    # The score of an impossible state is infinite, and counts as 0.
    columns = np.where(w[:, :, None] > 0, columns, 0.0)
    on = np.concatenate((np.ones((len(ind), 1)), ind), axis=1)[:, :moments]
    return np.asarray(np.matmul((w[:, :, None] * on).transpose(0, 2, 1), columns))


def _exponents(b: FiniteBlock, ind: Array) -> Array:
    """Return the exponents a (n, states, T, K-1) of a finite block."""
    d, units, terms = b.value.shape
    moved = ind @ b.value.reshape(d, units * terms)
    found: Array = b.offset[:, None] + moved.reshape(len(ind), units, terms)
    return found


def _inputs(s: SmoothBlock, ind: Array) -> Array:
    """Return the inputs z (n, states, T) of a smooth block."""
    found: Array = s.offset[:, None] + ind @ s.value
    return found


@dataclass(frozen=True, eq=False)
class _Terms:
    """The terms of the sums of a block in each row, state and unit.

    They are 1 and exp(a_k); in a complement, 1 - exp(a_K) and exp(a_k) for k < K.
    """

    block: FiniteBlock
    # a (n, states, T, K-1).
    exponent: Array

    @cached_property
    def logs(self) -> Array:
        """Logs of the terms, on the last axis."""
        a = self.exponent
        if not self.block.complement:
            return np.concatenate((np.zeros_like(a[..., :1]), a), axis=-1)
        with np.errstate(divide="ignore"):
            return np.concatenate(
                (np.log(-np.expm1(np.minimum(a[..., -1:], 0.0))), a[..., :-1]), axis=-1
            )

    @property
    def largest(self) -> Array:
        """Log of the largest term, (n, states, T)."""
        return np.asarray(self.logs.max(axis=-1))

    @cached_property
    def log_sum(self) -> Array:
        """Log of the sum, (n, states, T)."""
        if self.exponent.shape[-1] == 1 and not self.block.complement:
            a = self.exponent[..., 0]
            return np.asarray(np.maximum(a, 0.0) + np.log1p(np.exp(-np.abs(a))))
        return log_sum(self.logs)

    @property
    def prob(self) -> Array:
        """exp(a) divided by the sum, in the shape of a; 0 where the sum is 0."""
        gap = self.log_sum[..., None]
        return np.exp(
            np.subtract(
                self.exponent, gap, out=np.full_like(self.exponent, -np.inf), where=gap > -np.inf
            )
        )
