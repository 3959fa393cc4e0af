"""Checks of estimates against facts that are certain.

If an exact sum takes about a second, it shows whether the chains of a method that was chosen by
name have visited the whole space. Probabilities of the evidence are at most one, and so is their
sum over different values of the same units:

    sum over distinct rows x of p(x) <= 1

An estimate that any of these contradicts has the status CONTRADICTED.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import (
    CHAINS_AGREE,
    ERRORS_PER_INTERVAL_SIDE,
    MAX_MEAN_GAP_IN_ERRORS,
    row_beyond,
)
from pgmengine.infer.diagnostics.two_phases import TWO_PHASES, same_with_signs_changed
from pgmengine.infer.exact.exact import quick
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.result import Plan, Result, Status

# Largest cover, as log2 of its states, and largest junction tree, in table entries, of an exact sum
# that checks an estimate.
MAX_CHECK_BITS, MAX_CHECK_ENTRIES = 22.0, 2.0**20

# Largest number of unit updates and bytes of an exact sum that checks an estimate: about a second
# of one core. More is allowed if the estimate itself took more. If not all rows fit, some are
# checked at even spacing.
MAX_CHECK_UPDATES, MAX_CHECK_BYTES = 4e9, 2.0**24

# Relative rounding error of log Z and of means of chains, which compute in single precision.
ESTIMATE_ROUNDING = 1e-5


def checked(target: Target, result: Result) -> Result:
    """Return the result, with the status CONTRADICTED where a fact contradicts the estimate.

    A doubtful estimate of a model that may have two phases says so first.
    """
    if result.kind != "estimate":
        return result
    notes = tuple(_too_probable(target, result))
    if not notes and result.status.good:
        notes = tuple(_not_exact(target, result))
    if notes:
        return replace(result, status=Status.CONTRADICTED, warnings=notes + result.warnings)
    agree = any(CHAINS_AGREE in line for line in result.warnings)
    if not result.status.good and not agree and same_with_signs_changed(target):
        return _with_two_phases(result)
    return result


def _with_two_phases(result: Result) -> Result:
    """Return a doubtful result of a model that may have two phases, with the warning of it.

    The upper end of log Z allows for the phase that a one-sided estimate has not seen. Where few
    chains have all the weight, log Z can also be too high, and the warning comes last.
    """
    if result.status is Status.FEW_WEIGHTS:
        return replace(result, warnings=(*result.warnings, TWO_PHASES))
    answers = dict(result.answers)
    if result.status is Status.ONE_SIDED and "log_z_interval" in answers:
        estimated = answers["log_z_error"] > 0.0
        missed = np.stack((0.0 * estimated, np.log(2.0) * estimated), axis=1)
        answers["log_z_interval"] = answers["log_z_interval"] + missed
    return replace(result, answers=answers, warnings=(TWO_PHASES, *result.warnings))


def _not_exact(target: Target, result: Result) -> Iterator[str]:
    """Yield a warning for each answer that an exact sum contradicts, if the sum is quick."""
    answers = result.answers
    compared = {"mean": "marginals", "log_z": "log_z", "log_prob": "log_prob"}
    want = tuple(what for name, what in compared.items() if name in answers)
    if not want:
        return
    found = _quick_sum(target, want, result.plan)
    if found is None:
        return
    rows, question = found
    exact, stats = question.run().answers, result.stats
    if "log_z" in answers and "log_z_interval" in answers:
        ends = answers["log_z_interval"][rows]
        yield from _outside(target.row_numbers[rows], exact["log_z"], ends, "log Z")
    if "log_prob" in answers:
        every = np.broadcast_to(stats.get("log_prob_error", np.inf), (target.rows,))
        log_p, error = answers["log_prob"][rows], ERRORS_PER_INTERVAL_SIDE * every[rows]
        ends = np.stack((log_p - error, log_p + error), axis=-1)
        yield from _outside(target.row_numbers[rows], exact["log_prob"], ends, "log p")
    if "mean" in answers and "mcse" in stats:
        # Answers without an axis of rows have one row.
        some = rows if target.evidence.has_rows else ...
        mean = {n: np.asarray(v)[some] for n, v in answers["mean"].items()}
        mcse = {n: np.asarray(v)[rows] for n, v in stats["mcse"].items()}
        yield from _other_means(mean, mcse, exact["mean"])


def _quick_sum(
    target: Target, want: tuple[str, ...], plan: Plan[None]
) -> tuple[Array, AnyPrepared] | None:
    """Return the rows that an exact sum checks, and the question about them, or None.

    `plan` is the plan of the estimate.
    """
    rows = np.arange(target.rows)
    question = quick(target, want, MAX_CHECK_BITS, MAX_CHECK_ENTRIES, draws=1)
    if not question.plan.accepted:
        return None
    share = max(MAX_CHECK_UPDATES, plan.work) / max(question.plan.work, 1.0)
    share = min(share, max(MAX_CHECK_BYTES, plan.bytes) / max(question.plan.bytes, 1.0))
    if share >= 1:
        return rows, question
    count = int(share * target.rows)
    if not count:
        return None
    rows = np.unique(np.linspace(0, target.rows - 1, count).astype(np.int64))
    question = quick(target.take(rows), want, MAX_CHECK_BITS, MAX_CHECK_ENTRIES, draws=1)
    return (rows, question) if question.plan.accepted else None


def _outside(rows: Array, exact: Array, ends: Array, what: str) -> Iterator[str]:
    """Yield a warning if exact values (rows,) lie outside of their intervals (rows, 2)."""
    with np.errstate(invalid="ignore"):
        beyond = np.maximum(ends[:, 0] - exact, exact - ends[:, 1])
        beyond = beyond - ESTIMATE_ROUNDING * (1.0 + np.abs(exact))
    if (at := row_beyond(beyond)) is not None:
        yield (
            f"an exact sum gives {what} of row {rows[at]} as {exact[at]:.6g}, outside of the "
            f"interval from {ends[at, 0]:.6g} to {ends[at, 1]:.6g}"
        )


def _other_means(mean: States, mcse: States, exact: States) -> Iterator[str]:
    """Yield a warning for each layer with means that differ too much from the exact ones."""
    for name, value in exact.items():
        gap = np.abs(mean[name] - value)
        error = np.reshape(mcse[name], gap.shape)
        # Series that were not examined have the error NaN, and are not compared.
        with np.errstate(invalid="ignore"):
            apart = gap > MAX_MEAN_GAP_IN_ERRORS * error + ESTIMATE_ROUNDING * (1.0 + np.abs(value))
        if apart.any():
            yield (
                f"an exact sum disagrees on {np.count_nonzero(apart)} means of layer "
                f"{name!r}, by up to {gap[apart].max():.3g}"
            )


def _too_probable(target: Target, result: Result) -> Iterator[str]:
    """Yield a warning if probabilities of the evidence are above one, or sum to more than one."""
    if "log_prob" not in result.answers:
        return
    log_p = result.answers["log_prob"]
    error = np.broadcast_to(np.asarray(result.stats.get("log_prob_error", 0.0)), log_p.shape)
    rows = np.flatnonzero(np.isfinite(log_p) & np.isfinite(error) & _probabilities(target))
    for some in _alternatives(target, rows):
        total = float(log_sum(log_p[some]))
        slack = ERRORS_PER_INTERVAL_SIDE * float(error[some].max())
        if total - slack - ESTIMATE_ROUNDING * (1.0 + abs(total)) > 0:
            worst = target.row_numbers[some[log_p[some].argmax()]]
            alone = f"the probability of row {worst} is"
            several = f"{len(some)} rows that exclude each other, row {worst} and others, sum to"
            yield f"{several if len(some) > 1 else alone} e^{total:.4g}, which is more than 1"
            return


def _probabilities(target: Target) -> Array:
    """Return whether log_prob of each row is the logarithm of a probability, (rows,) bool.

    It is not if soft evidence adds a factor, or if a value of a continuous unit is observed.
    """
    found = np.ones(target.rows, dtype=bool) if target.common is None else target.common == 0
    for name, layer in target.structure.layers.items():
        if name in target.soft:
            found &= ~(target.soft[name] != 0).any(axis=1)
        if layer.unit.support is None and not layer.unit.observed_only:
            found &= ~(target.pattern.observed[name] & ~target.intervened[name]).any(axis=1)
    return found


def _alternatives(target: Target, rows: Array) -> Iterator[Array]:
    """Yield rows that exclude each other: different values of the same units, all else equal."""
    conditions, events = list[Array](), list[Array]()
    for name, layer in target.structure.layers.items():
        seen, cut = target.pattern.observed[name], target.intervened[name]
        given = seen if layer.unit.observed_only else cut
        values = target.evidence.values[name]
        conditions += [seen, cut, np.where(layer.components(given), values, 0.0)]
        events.append(np.where(layer.components(seen & ~given), values, 0.0))
    groups = dict[bytes, dict[bytes, int]]()
    for row in rows.tolist():
        condition, event = (
            b"".join(part[row].tobytes() for part in parts) for parts in (conditions, events)
        )
        groups.setdefault(condition, {}).setdefault(event, row)
    for group in groups.values():
        yield np.fromiter(group.values(), dtype=np.int64)
