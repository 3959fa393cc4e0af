"""Rounding: whether the digits of log weights carry an answer.

The log weight of a state is a sum of terms. Let S be the sum of their sizes
(evidence/magnitudes.py). In double precision, log weights have an absolute error of about 2^-52 S,
and probabilities have a relative error of the same size. Answers promise log weights to 2^-22, so
that probabilities have six digits or more. S may therefore be at most 2^30. log Z is promised
relative to its own size: for log Z, S may be at most 2^30 max(1, |log Z|). Chains in single
precision draw each unit from its own terms, whose error is 2^-24 of their size. With terms of 2^16,
the log odds of a draw have an error of 2^-8, and a probability one of less than a thousandth.

Rows with larger terms are treated in two steps:

    ease      If the bias, the soft evidence and the observed neighbours of a unit exceed all its
              other terms by CERTAIN_LEAD_NATS, the unit has one possible state in double precision,
              whatever the states of all other units are. It is then taken as observed in this
              state. The biases and the soft evidence of observed units are constants of log Z, and
              are added to it at the end. A state of a categorical unit that is excluded in the same
              way keeps a weight that is just small enough.
    withhold  Rows whose terms are still too large have NaN for answers, and the status is ROUNDED.

Units in tables with entries of 0, noisy-or units and their causes are not changed, because the
favoured state of such a unit may be impossible.

For ordinary questions, one number that is kept with the model shows that all terms are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine.base.checks import SINGLE_ROUNDING
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.declare.model import Model
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.magnitudes import Magnitudes, largest_terms, magnitudes
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.target import Target
from pgmengine.infer.results.result import Result, Status
from pgmengine.model.layer import Layer
from pgmengine.model.weights import is_sparse

# Largest sum of the sizes of the terms of a log weight, in double precision: its error is 2^-22.
MAX_TERMS_IN_DOUBLE = 2.0**30

# Largest sum of the sizes of the terms of a unit, in single precision: its error is 2^-8.
MAX_TERMS_IN_SINGLE = 2.0**16

# If a state leads all others by this number of nats, the others have the probability 0 in double
# precision, whose smallest positive number is e^-745.
CERTAIN_LEAD_NATS = 800.0

# Rounding error of a sum of few terms, relative to the sum of their sizes.
SUM_ROUNDING = 2.0**-48

# Largest number of rows that a warning names.
MAX_ROWS_NAMED = 3

# Answers whose axis 0 has the rows of the evidence, if the evidence had rows.
ANSWERS_BY_ROW = (
    *("mean", "prob", "prob_interval", "pairs", "joint"),
    *("mode", "mode_gap", "modes"),
)

# Answers (rows,) that are logarithms of sums over states.
LOG_ANSWERS = frozenset({"log_z", "log_prob", "bound"})
# Answer -> the answer with its interval.
INTERVALS = {"log_z": "log_z_interval", "log_prob": "log_prob_interval"}


def fits(target: Target, single: bool) -> bool:
    """Return whether terms are small enough for any answer, by bounds that are quick to compute."""
    total, of_a_unit, unbounded = largest_terms(target.model)
    scale, soft_terms = 1.0, 0.0
    for name in unbounded:
        scale = max(scale, float(np.abs(target.evidence.values[name]).max(initial=0.0)))
    for name, soft in target.soft.items():
        support = target.structure.layers[name].unit.support
        most = 1.0 if support is None else max(1.0, float(np.abs(support).max()))
        soft_terms += 2.0 * most * float(np.abs(soft).sum(axis=1).max(initial=0.0))
    small = total * scale**2 + soft_terms <= MAX_TERMS_IN_DOUBLE
    return bool(small and (not single or of_a_unit * scale**2 + soft_terms <= MAX_TERMS_IN_SINGLE))


@dataclass(frozen=True, eq=False)
class Eased:
    """A target in which units with only one possible state are observed.

    Attributes
    ----------
    target : a target with the same posterior as the original one.
    gain : (rows,), log Z of the original target minus log Z of this target.
    sizes : bounds on the terms of this target.
    moved : (rows,), the sum of the sizes of the terms that were moved into `gain`.
    """

    target: Target
    gain: Array
    sizes: Magnitudes
    moved: Array

    def lost(self, single: bool) -> Array:
        """Return bool (rows,): whether terms are too large for the digits of the posterior."""
        # The negation makes NaN count as lost.
        lost = ~(self.sizes.of_states <= MAX_TERMS_IN_DOUBLE)
        if single:
            # Chains compute log densities of states including all constants.
            lost = ~(
                (self.sizes.of_a_unit <= MAX_TERMS_IN_SINGLE)
                & (self.sizes.total <= MAX_TERMS_IN_DOUBLE)
            )
        return np.broadcast_to(lost, self.gain.shape)

    @property
    def whole(self) -> Array:
        """The sizes of all terms of log Z together, (rows,)."""
        return self.sizes.total + self.moved


def ease(target: Target, single: bool, exact: bool = False) -> Eased:
    """Observe the units with only one possible state, in rows where terms are too large.

    `exact` says whether an exact method asks, as in `magnitudes`.
    """
    none, sizes = np.zeros(target.rows), magnitudes(target, exact)
    as_it_is = Eased(target, none, sizes, none)
    rows = as_it_is.lost(single) | ~(sizes.total <= MAX_TERMS_IN_DOUBLE)
    if not rows.any() or not target.untempered:
        return as_it_is
    decided, sizes = _decided(target, sizes, rows, exact)
    model, soft = target.model, States(target.soft)
    biases, gain, moved = dict[str, Array](), none, none
    for name, room in _rooms(decided, sizes).items():
        layer = target.structure.layers[name]
        new, constant, here = _lessened(decided, name, room + sizes.seen[name])
        here &= rows[:, None]
        if not here.any():
            continue
        constant = np.where(here, constant, 0.0)
        gain, moved = gain + constant.sum(axis=1), moved + np.abs(constant).sum(axis=1)
        # The bias of these units is moved into the soft evidence, which may differ between rows.
        touched = layer.components(np.asarray(here.any(axis=0)))
        new = np.where(layer.components(here), new, target.own_field(name))
        soft[name] = np.where(touched, new, target.soft.get(name, np.zeros((1, 1))))
        if name not in target.structure.directed_layers:
            # What is left of the bias of a layer and of the biases that its places share is 0.
            own = np.reshape(model.params[f"{name}.bias"], -1)
            left = np.where(touched, -model.shared_bias(name), own)
            biases[f"{name}.bias"] = left.reshape(layer.bias_shape)
    if biases:
        model = Model(target.structure, {**model.params, **biases})
    eased = replace(decided, model=model, soft=soft)
    return Eased(eased, gain, magnitudes(eased, exact), moved)


def _rooms(target: Target, sizes: Magnitudes) -> dict[str, Array]:
    """Return layer -> (rows, size): the lead in nats that makes one state the only possible one.

    It exceeds all terms with other free units, and the rounding error of the lead itself. It is
    infinite for units that are never taken as observed.
    """
    out = dict[str, Array]()
    for name, layer in target.structure.layers.items():
        if layer.unit.support is None or not (layer.unit.width == 1 or layer.unit.one_hot):
            continue
        own = sizes.own[name].reshape(len(sizes.own[name]), layer.size, -1).sum(axis=-1)
        room = sizes.rest[name] + SUM_ROUNDING * (own + sizes.seen[name]) + CERTAIN_LEAD_NATS
        room = np.where(sizes.loose[name], room, np.inf)
        out[name] = np.broadcast_to(room, target.free[name].shape)
    return out


def _decided(
    target: Target, sizes: Magnitudes, rows: Array, exact: bool
) -> tuple[Target, Magnitudes]:
    """Return a target in which units with one possible state are observed, and its bounds.

    Only the rows `rows` change. The search for such units is repeated, because an observed unit
    may leave its neighbours one possible state.
    """
    while True:
        values, observed = dict(target.evidence.values), dict(target.pattern.observed)
        changed = False
        for name, room in _rooms(target, sizes).items():
            layer = target.structure.layers[name]
            top, lead = _leading(layer, target.outer_field(target.evidence.values, name))
            sure = target.free[name] & rows[:, None] & (lead > room)
            if sure.any():
                changed = True
                values[name] = np.where(layer.components(sure), top, values[name])
                observed[name] = observed[name] | sure
        if not changed:
            return target, sizes
        pattern = EvidencePattern(target.structure, target.rows, observed, target.intervened)
        evidence = Evidence(target.evidence.has_rows, values, pattern)
        target = replace(target, evidence=evidence)
        sizes = magnitudes(target, exact)


def _leading(layer: Layer, field: Array) -> tuple[Array, Array]:
    """Return the values (rows, width) of the states that fields favour, and their lead in nats."""
    support = layer.unit.support
    assert support is not None
    if layer.unit.width > 1:
        shaped = np.sort(layer.shaped(field), axis=-1)
        top = np.eye(layer.unit.width)[layer.shaped(field).argmax(axis=-1)]
        return layer.flat(top), shaped[..., -1] - shaped[..., -2]
    if len(support) < 2:
        return np.full(field.shape, support[0]), np.zeros(field.shape)
    up = field > 0
    gap = np.where(up, support[-1] - support[-2], support[1] - support[0])
    return np.where(up, support[-1], support[0]), np.abs(field) * gap


def _lessened(target: Target, name: str, room: Array) -> tuple[Array, Array, Array]:
    """Return smaller biases and soft evidence together (rows, width) of a layer.

    Also returns the constants (rows, size) by which this changes log Z, and the units that change,
    (rows, size) bool. For an observed unit, the constant is the whole term; for a free one-hot
    unit, it is the largest weight. An excluded state keeps a weight that is just small enough.
    """
    layer, values = target.structure.layers[name], target.evidence.values[name]
    field, slip = _own_sum(target, name)
    seen = layer.shaped((field + slip) * values)
    if layer.unit.width == 1:
        return np.zeros_like(field), seen, ~target.free[name] & (seen != 0)
    seen, free = seen.sum(axis=-1), target.free[name]
    field, slip = layer.shaped(field), layer.shaped(slip)
    best = field.argmax(axis=-1)[..., None]
    top, more = (np.take_along_axis(x, best, axis=-1) for x in (field, slip))
    new = np.maximum((field - top) + (slip - more), -room[..., None])
    moves = np.where(free, np.isfinite(room) & (top[..., 0] != 0), seen != 0)
    new = np.where(free[..., None], new, 0.0)
    return layer.flat(new), np.where(free, (top + more)[..., 0], seen), moves


def _own_sum(target: Target, name: str) -> tuple[Array, Array]:
    """Return bias plus soft evidence (rows, width), and its rounding error (Knuth 1969)."""
    shape = target.evidence.values[name].shape
    soft = np.broadcast_to(target.soft.get(name, np.zeros((1, 1))), shape)
    if name in target.structure.directed_layers:
        return soft, np.zeros(shape)
    bias = target.model.bias(name)
    field = bias + soft
    rest = field - bias
    return field, (bias - (field - rest)) + (soft - rest)


def withheld(result: Result, eased: Eased, single: bool, target: Target) -> Result:
    """Return a result for the original target; answers whose digits are wrong become NaN."""
    answers, lost = _shifted(result, eased.gain), eased.lost(single)
    bad = dict[str, Array]()
    for name in ("log_z", "bound"):
        if name in answers:
            bad[name] = _cancels(eased.whole, answers[name]) | (lost if single else False)
    bad |= {name: lost for name in (*ANSWERS_BY_ROW, "samples", "gradient") if name in answers}
    bad = {name: rows for name, rows in bad.items() if rows.any()}
    return _without(replace(result, answers=answers), bad, eased.sizes, target)


def _shifted(result: Result, change: Array) -> dict[str, Any]:
    """Return the answers, with a change (rows,) added to all that are logarithms."""
    out = {n: v + change if n in LOG_ANSWERS else v for n, v in result.answers.items()}
    for name in INTERVALS.values() & out.keys():
        out[name] = out[name] + change[:, None]
    return out


def raised(result: Result, common: Array, target: Target) -> Result:
    """Return a result whose log Z includes a log weight (rows,) that all states have in common.

    Rows in which log Z or log p lose their digits, because the terms of log Z and this weight
    cancel, become NaN.
    """
    common = target.beta * common
    answers, sizes = _shifted(result, common), magnitudes(target, result.kind == "exact")
    size, lost = sizes.total + 2.0 * np.abs(common), np.zeros(len(common), dtype=bool)
    for name in LOG_ANSWERS & answers.keys():
        lost |= _cancels(size, answers[name]) & ~np.isnan(answers[name])
    bad = dict.fromkeys(LOG_ANSWERS & answers.keys(), lost) if lost.any() else {}
    return checked_difference(
        _without(replace(result, answers=answers), bad, sizes, target), target
    )


def checked_difference(result: Result, target: Target) -> Result:
    """Return a result with log_prob NaN where its two terms cancel and leave too few digits."""
    if "log_prob" not in result.answers or fits(target, False):
        return result
    log_prob, whole = result.answers["log_prob"], target.nothing_observed
    exact = result.kind == "exact"
    sizes = magnitudes(target, exact)
    both = sizes.total + magnitudes(whole, exact).total
    rows = _cancels(both, log_prob) & ~np.isnan(log_prob)
    return _without(result, {"log_prob": rows} if rows.any() else {}, sizes, target)


def _cancels(size: Array, log_z: Array) -> Array:
    """Return bool (rows,): whether a log Z from terms of this size has too few digits."""
    # -inf is exact. NaN is the result of an overflow, and counts as too few digits.
    return ~(size <= MAX_TERMS_IN_DOUBLE * np.maximum(1.0, np.abs(log_z)))


def rounding_of_chains(target: Target) -> Array:
    """Return the rounding error (rows,) of log Z from chains in single precision.

    The errors of the terms t are independent, and sum t^2 <= (sum t) (max t).
    """
    sizes = magnitudes(target)
    return np.broadcast_to(SINGLE_ROUNDING * np.sqrt(sizes.total * sizes.of_a_unit), (target.rows,))


def with_summed_rounding(result: Result, target: Target) -> Result:
    """Return a result whose interval of log Z allows for the rounding of sums in double precision.

    Of a row without anything to draw, it is all that an interval has.
    """
    if "log_z_interval" not in result.answers:
        return result
    room = SUM_ROUNDING * np.broadcast_to(magnitudes(target).total, (target.rows,))
    ends = result.answers["log_z_interval"] + np.multiply.outer(room, (-1.0, 1.0))
    return replace(result, answers={**result.answers, "log_z_interval": ends})


def known_log_z(target: Target) -> Array:
    """Return log Z (rows,) of rows without anything to draw, and NaN for all other rows.

    In such a row each free unit has a single value, if there is a free unit. log Z is the log
    density of the only state.
    """
    out, certain = np.full(target.rows, np.nan), np.ones(target.rows, dtype=bool)
    for name, layer in target.structure.layers.items():
        if layer.unit.support is None or len(layer.unit.support) > 1:
            certain &= ~target.free[name].any(axis=1)
    if certain.any():
        rows = np.flatnonzero(certain)
        out[rows] = (
            target.take(rows)
            .at(1.0)
            .log_density({name: x[rows] for name, x in target.evidence.values.items()})
        )
    return out


def check_digits(target: Target) -> Target:
    """Return a target with the same expectations and small terms; PgmError if none exists."""
    if fits(target, False):
        return target
    eased = ease(target, False)
    lost = np.flatnonzero(eased.lost(False))
    if len(lost):
        raise PgmError(_line(int(lost[0]), eased.sizes, target, free=True))
    return eased.target


def nothing_left(answers: Mapping[str, Any]) -> bool:
    """Return whether every answer is NaN in all rows."""
    beside = ("log_z_error", *INTERVALS.values())
    return all(_all_nan(value) for name, value in answers.items() if name not in beside)


def _all_nan(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_all_nan(part) for part in value.values())
    numbers = value.data if is_sparse(value) else value
    return bool(np.isnan(numbers).all())


def _without(result: Result, bad: Mapping[str, Array], sizes: Magnitudes, target: Target) -> Result:
    """Return a result with NaN in the bad rows of each answer, and its status and warnings."""
    if not bad:
        return result
    answers = {
        n: _with_nan(n, v, bad[n], target) if n in bad else v for n, v in result.answers.items()
    }
    for name in bad.keys() & INTERVALS:
        if (of := INTERVALS[name]) in answers:
            answers[of] = np.where(bad[name][:, None], (-np.inf, np.inf), answers[of])
    if "log_z" in bad and "log_z_error" in answers:
        answers["log_z_error"] = np.where(bad["log_z"], np.inf, answers["log_z_error"])
    if "log_z" in bad and "log_prob" in answers:
        answers["log_prob"] = np.where(bad["log_z"], np.nan, answers["log_prob"])
    if "log_z" in bad and "log_prob_interval" in answers:
        everything = np.where(
            bad["log_z"][:, None], (-np.inf, np.inf), answers["log_prob_interval"]
        )
        answers["log_prob_interval"] = everything
    rows = np.flatnonzero(np.any(list(bad.values()), axis=0))
    posterior = not bad.keys() <= LOG_ANSWERS
    lines = [_line(int(row), sizes, target, posterior) for row in rows[:MAX_ROWS_NAMED]]
    if len(rows) > MAX_ROWS_NAMED:
        lines.append(f"the same holds for {len(rows) - MAX_ROWS_NAMED} more rows")
    return replace(
        result,
        answers=answers,
        # A status of ROUNDED means that the answers that are not NaN are good. It must therefore
        # not replace a bad status.
        status=Status.ROUNDED if result.status.good else result.status,
        warnings=tuple(dict.fromkeys((*lines, *result.warnings))),
    )


def _line(row: int, sizes: Magnitudes, target: Target, free: bool) -> str:
    """Return the warning of a row, which names its largest terms."""
    what, size = sizes.largest(row, free)
    return (
        f"evidence row {target.row_numbers[row]}: the terms of {what} are of size {size:.3g}, "
        "and rounding of log weights so large reaches the answer; use smaller numbers, or observe "
        "the units that they decide"
    )


def _with_nan(name: str, value: Any, rows: Array, target: Target) -> Any:
    """Return an answer with NaN in some rows; a gradient is a sum over rows."""
    if isinstance(value, Mapping):
        return {key: _with_nan(name, part, rows, target) for key, part in value.items()}
    if name == "gradient":
        return value * np.nan
    out = np.array(value, dtype=np.float64)
    if name == "samples":
        out[:, rows] = np.nan
    elif name in ANSWERS_BY_ROW and not target.evidence.has_rows:
        out[...] = np.nan
    else:
        out[rows] = np.nan
    return out
