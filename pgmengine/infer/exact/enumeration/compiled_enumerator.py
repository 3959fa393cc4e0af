"""Compiled enumeration, divided among threads by rows and by pieces of the states.

States follow each other in Gray code. A step multiplies the exponentials of all components by
factors that are computed beforehand (gray.h, bunches.h). numpy_enumerator.py is the reference
implementation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array
from pgmengine.base.work.threads import shared_out
from pgmengine.infer.exact.enumeration import cover_states
from pgmengine.infer.exact.enumeration.log_linear import FiniteBlock, LogLinearForm

# States, over all rows, that one task visits. The number is fixed, so that answers do not depend on
# the number of threads.
STATES_PER_TASK = 16 * cover_states.STATES_PER_PIECE

# Exponents up to this size stay far inside the range of a double.
MAX_SAFE_EXPONENT = 600.0

# Largest sum of the sizes of linear and pair terms in nats. The log weight of a state is updated at
# each of the STATES_PER_PIECE steps of a piece, and each update rounds it. The rounding errors of n
# steps add up to about sqrt(n) times one of them: to less than 1e-7 with terms of this size.
MAX_SAFE_TERMS = 2.0**22

# The compiled loop takes 1 - e^a as 0 where it is far below this number (gray.h). Noisy-or units
# with a smaller input are therefore enumerated in numpy.
MIN_SAFE_GAP = 1e-3


# Some rows, and the sums over the states of a task: scale and mass (rows,) of the sum of weights
# mass * exp(scale), and the moments (rows, moments, columns), scaled like the mass.
Sums: TypeAlias = tuple[slice, Array, Array, Array | None]


def laid_out(blocks: list[FiniteBlock], arrays: list[Array], rows: int, fill: float) -> Array:
    """Join arrays (rows, T, K-1), one for each block, as (rows, components), padded by `fill`.

    The compiled routine reads the components of all finite blocks in this order: block by block,
    state by state, unit by unit. The units of a block are padded to whole vectors.
    """
    out = np.full((rows, sum([b.value.shape[2] * b.padded for b in blocks])), fill)
    start = 0
    for b, array in zip(blocks, arrays, strict=True):
        terms, size = b.value.shape[2], b.padded
        part = out[:, start : start + terms * size].reshape(rows, terms, size)
        part[:, :, : len(b.index)] = array.transpose(0, 2, 1)
        start += terms * size
    return out


def _compiled(p: LogLinearForm) -> tuple[Any, list[Array], float]:
    """Compile the routine of a pattern: all its rows have the same pairs and values.

    Returns the routine, or None if exponents would leave the range of a double whatever the offsets
    are, or if there are no compiled routines; for each block a bound (1, T, K-1) on the distance of
    a_tk from its offset and on its change in one step; and the sum of the sizes of all pair terms.
    """
    size = [np.abs(b.value) for b in p.finite]
    reach = [a.sum(axis=0, keepdims=True) + 2 * a.max(axis=0, initial=0.0) for a in size]
    within = all([a.max(initial=0.0) < MAX_SAFE_EXPONENT for a in reach])
    if not within or _kernels.PROCESSOR == "plain":
        return None, reach, 0.0
    value = laid_out(p.finite, [b.value for b in p.finite], p.pattern_form.indicators, 0.0)
    # The change of every component when an indicator is switched on.
    change = value.copy()
    if later := [d for d, (_, _, a) in enumerate(p.pattern_form.owner) if a > 1]:
        change[later] -= value[np.array(later) - 1]
    blocks, start = [], 0
    for b in p.finite:
        blocks.append((b.value.shape[2], b.padded, start, b.power, b.complement))
        start += b.value.shape[2] * b.padded
    pair, up, down = np.ascontiguousarray(p.pair), np.exp(change), np.exp(-change)
    routine = _kernels.GrayWalk(p.pattern_form.states, pair, value, up, down, blocks)
    return routine, reach, float(np.abs(pair).sum()) / 2


class CompiledEnumerator:
    """Compiled enumeration of rows and pieces, on threads; see Enumerator."""

    def __init__(self, p: LogLinearForm) -> None:
        self.form = p
        # `reach` is the largest distance of an exponent from its offset, `pairs` the size of all
        # pair terms.
        compiled = p.pattern_form.memo.recall("routine", lambda: _compiled(p))
        self.routine, self.reach, pairs = compiled
        self.offset = laid_out(p.finite, [b.offset for b in p.finite], p.target.rows, -np.inf)
        # Bounds on |a_tk| in all states and on its change in one step. They are NaN or inf where an
        # offset is.
        both = zip(p.finite, self.reach, strict=True)
        largest = [float((np.abs(b.offset) + reach).max(initial=0.0)) for b, reach in both]
        # Exponentials stay in range, and differences 1 - e^a keep their digits.
        self.safe = (
            self.routine is not None
            and all([a < MAX_SAFE_EXPONENT for a in largest])
            # False for NaN and inf as well.
            and bool(np.abs(p.theta).sum(axis=1).max(initial=0.0) + pairs < MAX_SAFE_TERMS)
            and all(_apart(b) for b in p.finite if b.complement)
        )
        several = zip(largest, p.finite, strict=True)
        factors = max([a + np.log(b.value.shape[2] + 1) for a, b in several], default=0.0)
        self.every = int(min(max(690 // max(factors, 0.1), 1), 64)) if self.safe else 1

    def sums(self, moments: int) -> tuple[Array, Array | None]:
        """Return the log sums of the weights of each piece (n, pieces), and the moments."""
        p, count = self.form, cover_states.pieces(self.form)
        sums = np.full((p.target.rows, count), np.nan)

        def run(task: tuple[slice, int]) -> Sums:
            rows, start = task
            piece, length = cover_states.STATES_PER_PIECE, min(STATES_PER_TASK, p.size - start)
            part = np.full((rows.stop - rows.start, -(-length // piece)), np.nan)
            out = np.zeros((len(part), moments, p.columns)) if moments else None
            scale, mass = self.routine.walk(
                theta=p.theta[rows],
                offset=self.offset[rows],
                start=start,
                count=length,
                step=piece,
                every=self.every,
                log_sums=part,
                moments=out,
            )
            sums[rows, start // piece : start // piece + part.shape[1]] = part
            return rows, scale, mass, out

        done = shared_out(run, self._tasks())
        if moments:
            total = np.zeros((p.target.rows, moments, p.columns))
            return sums, _averages(done, total, p.size <= STATES_PER_TASK)
        for _ in done:
            pass
        return sums, None

    def _tasks(self) -> list[tuple[slice, int]]:
        """Return the rows and the first state of each task; rows with few states share a task."""
        p = self.form
        together = max(1, STATES_PER_TASK // p.size)
        rows = range(0, p.target.rows, together)
        starts = range(0, p.size, STATES_PER_TASK)
        return [
            (slice(row, min(row + together, p.target.rows)), start)
            for row in rows
            for start in starts
        ]

    def log_weights(self, rows: Array, piece: int) -> Array:
        """Return the log weights (rows, states) of some rows in the states of one piece."""
        return self._log_weights(rows, piece)

    def _log_weights(self, rows: Array | slice, piece: int, best: bool = False) -> Array:
        p = self.form
        theta, start = p.theta[rows], piece * cover_states.STATES_PER_PIECE
        out = np.full((len(theta), min(cover_states.STATES_PER_PIECE, p.size - start)), np.nan)
        self.routine.walk(
            theta=theta,
            offset=self.offset[rows],
            start=start,
            count=out.shape[1],
            step=cover_states.STATES_PER_PIECE,
            every=self.every,
            log_sums=np.full((len(theta), 1), np.nan),
            log_weights=out,
            best=best,
        )
        return out

    def best_states(self) -> Array:
        """Return the numbers (n,) of the cover states of the most probable complete states."""
        p = self.form
        together = max(1, cover_states.STATES_PER_PIECE // p.size)
        tasks = [
            (slice(row, row + together), piece)
            for row in range(0, p.target.rows, together)
            for piece in range(cover_states.pieces(p))
        ]

        def run(task: tuple[slice, int]) -> tuple[Array, Array]:
            weight = self._log_weights(*task, best=True)
            top = weight.argmax(axis=1)
            return weight[np.arange(len(top)), top], task[1] * cover_states.STATES_PER_PIECE + top

        found = list(shared_out(run, tasks))
        of_piece = [
            found[piece :: cover_states.pieces(p)] for piece in range(cover_states.pieces(p))
        ]
        # (pieces, n): the largest weight of each piece, and its state.
        value, state = (
            np.stack([np.concatenate([pair[i] for pair in part]) for part in of_piece])
            for i in range(2)
        )
        return np.asarray(state[value.argmax(axis=0), np.arange(p.target.rows)], dtype=np.int64)


def _averages(done: Iterator[Sums], out: Array, alone: bool) -> Array:
    """Return the expectations `out` of each row from the sums of tasks, in their order.

    `alone`: each row has one task, so that no common scale of several tasks is needed.

    They are divided by the sum of the same weights, so that they are averages even where the log
    weights are rounded.
    """
    scales, total = np.full(len(out), -np.inf), np.zeros(len(out))
    for rows, scale, mass, gained in done:
        assert gained is not None
        if alone:
            out[rows], total[rows] = gained, mass
            continue
        new = np.maximum(scales[rows], scale)
        # Rows without a possible state so far.
        safe = np.where(np.isneginf(new), 0.0, new)
        keep, gain = np.exp(scales[rows] - safe), np.exp(scale - safe)
        out[rows] *= keep[:, None, None]
        gained *= gain[:, None, None]
        out[rows] += gained
        total[rows] = total[rows] * keep + mass * gain
        scales[rows] = new
    out /= np.where(total > 0, total, 1.0)[:, None, None]
    return out


def _apart(b: FiniteBlock) -> bool:
    """Return whether the subtracted term is exactly 1 or at most 1 - MIN_SAFE_GAP in each state."""
    offset, value = b.offset[..., -1], b.value[..., -1]
    top = offset + np.maximum(value, 0.0).sum(axis=0)
    exact = (np.abs(top) < 1e-12) & ((np.abs(value) > MIN_SAFE_GAP) | (value == 0)).all(axis=0)
    return bool(((top < -MIN_SAFE_GAP) | exact).all())
