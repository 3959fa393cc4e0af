"""LinearPlan: the marginals of a small pattern as linear maps around one enumeration.

Let o be the observed values and m the first moments. Then theta and the offsets are linear in (1,
o), the constant is quadratic in (1, o), and means and state probabilities are linear in (1, o, m).
For a small pattern the matrices of these maps are computed once, by running the general code on one
basis vector after another. An answer then takes three small matrix products and an enumeration, in
half the time of the general code. Computing the matrices takes as long as four questions, so they
are made at the fifth question. From then on, answers may differ in their last bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.enumeration.compiled_enumerator import (
    MAX_SAFE_EXPONENT,
    CompiledEnumerator,
    laid_out,
)
from pgmengine.infer.exact.enumeration.cover_states import STATES_PER_PIECE
from pgmengine.infer.exact.enumeration.log_linear import LogLinearForm, log_linear_form
from pgmengine.infer.exact.enumeration.moments import FromMoments
from pgmengine.infer.exact.enumeration.pattern_form import PatternForm
from pgmengine.units import Unit

Seen = list[tuple[str, Array]]

# Largest number of observed numbers. The constant has about half their square of terms.
MAX_OBSERVED_NUMBERS = 24

# Largest number of entries of a matrix.
MAX_MATRIX_NUMBERS = 2**14

# The first question about a pattern, counted from 1, for which a linear plan is made.
FIRST_PLANNED_QUESTION = 5

# With more rows the general code is faster: it divides rows among threads, and computes only the
# quantities that are asked for.
MAX_PLANNED_ROWS = 50

# A log weight whose exponential does not change any sum.
NEGLIGIBLE_LOG_WEIGHT = -1e4


@dataclass(frozen=True, eq=False)
class LinearPlan:
    """Maps between O observed numbers, D indicators, C components, M moments and R answers."""

    # (layer, observed columns).
    seen: Seen
    # The compiled enumeration.
    routine: Any
    # Number of states.
    size: int
    # D.
    indicators: int
    # (1 + O, D + C).
    linear: Array
    # (1 + O, 1 + O).
    quadratic: Array
    # (C,) the largest distance of an exponent from its offset.
    reach: Array
    # (1 + O + M, R).
    answers: Array
    # (layer, its columns in the answers).
    means: list[tuple[str, slice]]
    # (layer, its columns in the answers, (size, states)).
    probs: list[tuple[str, slice, tuple[int, int]]]

    def run(self, target: Target) -> tuple[Array, States, States] | None:
        """Return log_z (rows,), means and state probabilities.

        None where an exponent could leave the range of a double.
        """
        rows, d = target.rows, self.indicators
        known = np.ones((rows, len(self.linear)))
        start = 1
        for name, columns in self.seen:
            known[:, start : start + len(columns)] = target.evidence.values[name][:, columns]
            start += len(columns)
        inputs = known @ self.linear
        if not (np.abs(inputs[:, d:]) + self.reach).max(initial=0.0) < MAX_SAFE_EXPONENT:
            return None
        const = ((known @ self.quadratic) * known).sum(axis=1)
        moments, log_z = (
            np.zeros((rows, len(self.answers) - known.shape[1])),
            np.full((rows, 1), np.nan),
        )
        _, mass = self.routine.walk(
            theta=np.ascontiguousarray(inputs[:, :d]),
            offset=np.ascontiguousarray(inputs[:, d:]),
            start=0,
            count=self.size,
            step=STATES_PER_PIECE,
            every=1,
            log_sums=log_z,
            moments=moments[:, None],
        )
        moments /= mass[:, None]
        found = np.concatenate((known, moments), axis=1) @ self.answers
        return (
            log_z[:, 0] + const,
            {name: found[:, place] for name, place in self.means},
            {
                name: np.minimum(np.maximum(found[:, place], 0.0), 1.0).reshape(rows, *shape)
                for name, place, shape in self.probs
            },
        )


def linear_plan_of(target: Target, pattern_form: PatternForm) -> LinearPlan | None:
    """Return the linear plan of a few rows of one evidence pattern, if the pattern is small."""
    if target.rows > MAX_PLANNED_ROWS or not pattern_form.small or target.soft or target.reference:
        return None
    first = np.zeros(1, dtype=int)
    found: LinearPlan | None = pattern_form.memo.recall(
        "linear plan", lambda: _compile(target.take(first), pattern_form)
    )
    return found


def _compile(target: Target, pattern_form: PatternForm) -> LinearPlan | None:
    layers = target.structure.layers
    seen = [
        (name, np.flatnonzero(target.components(name, mask[:1])[0]))
        for name, mask in target.pattern.observed.items()
        if mask.any()
    ]
    count = sum(len(columns) for _, columns in seen)
    if count > MAX_OBSERVED_NUMBERS or any(_curved(layers[name].unit) for name, _ in seen):
        return None
    # All observed numbers 0, then one after another 1.
    p = _asked(target, pattern_form, seen, np.eye(count + 1)[:, 1:])
    size = p.columns
    width = sum(
        x.width + (0 if x.unit.support is None else x.size * len(x.unit.support))
        for x in layers.values()
    )
    if (1 + count + size) * max(width, size) > MAX_MATRIX_NUMBERS or p.size > STATES_PER_PIECE:
        return None
    if p.smooth or p.quadratic or any(b.complement for b in p.finite):
        return None
    enumerator = CompiledEnumerator(p)
    if not enumerator.safe:
        return None
    linear = np.concatenate(
        (
            p.theta,
            np.where(np.isneginf(enumerator.offset), NEGLIGIBLE_LOG_WEIGHT, enumerator.offset),
        ),
        axis=1,
    )
    linear[1:] -= linear[0]
    known = FromMoments(target, p, np.zeros((count + 1, 1, size)))
    asked = _asked(target, pattern_form, seen, np.zeros((size, count)))
    moved = FromMoments(asked.target, asked, np.eye(size)[:, None])
    means = [_affine(known.expected(name)[:, 0], moved.expected(name)[:, 0]) for name in layers]
    finite = [name for name, layer in layers.items() if layer.unit.support is not None]
    probs = [_prob_map(known, moved, name, seen) for name in finite]
    ends = np.cumsum([0, *(part.shape[1] for part in means + probs)])
    places = [slice(int(a), int(b)) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    shapes = [known.prob(name).shape[1:] for name in finite]
    reach = laid_out(p.finite, enumerator.reach, 1, NEGLIGIBLE_LOG_WEIGHT)[0]
    return LinearPlan(
        seen,
        enumerator.routine,
        p.size,
        pattern_form.indicators,
        linear,
        _quadratic(target, pattern_form, seen, count),
        reach,
        np.concatenate(means + probs, axis=1),
        list(zip(layers, places, strict=False)),
        list(zip(finite, places[len(layers) :], shapes, strict=True)),
    )


def _curved(unit: Unit) -> bool:
    """Return whether a linear plan cannot serve a unit.

    Its probabilities or log h are not linear in observed values, or its values have no bound.
    """
    if unit.support is None or unit.log_base is None:
        return True
    return not (unit.one_hot or (unit.width == 1 and len(unit.support) == 2)) or bool(
        np.ptp(unit.log_base) > 0
    )


def _asked(target: Target, pattern_form: PatternForm, seen: Seen, values: Array) -> LogLinearForm:
    """Return the log-linear form for any numbers (rows, O) in the place of observed values."""
    rows = target.take(np.zeros(len(values), dtype=int))
    flat, start = {name: np.zeros(value.shape) for name, value in rows.evidence.values.items()}, 0
    for name, columns in seen:
        flat[name][:, columns] = values[:, start : start + len(columns)]
        start += len(columns)
    return log_linear_form(replace(rows, evidence=Evidence(True, flat, rows.pattern)), pattern_form)


def _affine(known: Array, moved: Array) -> Array:
    """Return the matrix (1 + O + M, width) of an answer.

    `known` (1 + O, width) is the answer at 0 and at each o, `moved` (M, width) at 0 and each m.
    """
    return np.concatenate((known[:1], known[1:] - known[0], moved - known[0]))


def _quadratic(target: Target, pattern_form: PatternForm, seen: Seen, count: int) -> Array:
    """Return Q with const = (1, o) Q (1, o)', from its values at 0, e_i and e_i + e_j."""
    i, j = np.triu_indices(count)
    basis = np.eye(count)
    c = _asked(
        target,
        pattern_form,
        seen,
        np.concatenate((np.zeros((1, count)), basis, basis[i] + basis[j])),
    ).const
    at_0, at_i, at_ij = c[0], c[1 : count + 1], c[count + 1 :]
    out = np.zeros((count + 1, count + 1))
    out[1 + i, 1 + j] = out[1 + j, 1 + i] = (at_ij - at_i[i] - at_i[j] + at_0) / 2
    out[0, 0] = at_0
    out[0, 1:] = out[1:, 0] = (at_i - at_0 - np.diagonal(out)[1:]) / 2
    return out


def _prob_map(known: FromMoments, moved: FromMoments, name: str, seen: Seen) -> Array:
    """Return `_affine` of the state probabilities of a finite layer.

    The probabilities of observed units follow from their values.
    """
    free, by_moments = known.prob(name), moved.prob(name)
    layer, start = known.form.target.structure.layers[name], 1
    support = layer.unit.support
    assert support is not None
    free[1:] = free[0]
    for other, columns in seen:
        if other == name:
            units = np.unique(layer.owners(columns))
            free[:, units] = 0.0
            for row, column in enumerate(columns, start):
                unit, state = divmod(int(column), layer.unit.width)
                if layer.unit.width > 1:
                    free[row, unit, state] = 1.0
                else:
                    gap = support[1] - support[0]
                    free[:, unit] = np.array([support[1], -support[0]]) / gap
                    free[row, unit] += np.array([-1.0, 1.0]) / gap
            by_moments[:, units] = free[0, units]
        start += len(columns)
    size = free.shape[1] * free.shape[2]
    return _affine(free.reshape(len(free), size), by_moments.reshape(len(by_moments), size))
