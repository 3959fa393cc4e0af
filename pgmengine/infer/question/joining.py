"""Results of several methods as one: parts of a question, and rows of evidence.

A part answers some of the wanted quantities, or one of the two terms of log_prob. Rows are joined
where chains have answered some of them well, and another method the others. Rows of evidence are
questions of their own, with chains of their own: a row is judged by its own statistics, as if it
had been asked alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.display import counted
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.question.prepared import MethodLike, as_method
from pgmengine.infer.question.splitting import stacked, statistic_axes
from pgmengine.infer.results.axes import Axis, Statistics
from pgmengine.infer.results.result import AnyPlan, Result, Status, joint_plan, weakest
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    from pgmengine.infer.question.auto import Choice


@dataclass(frozen=True)
class Several:
    """The methods that have answered the parts of one question, in order."""

    methods: tuple[MethodLike, ...]

    @property
    def statistics(self) -> Statistics:
        """The statistics of all methods with their axes."""
        each = (as_method(method).statistics for method in self.methods)
        return {name: axes for declared in each for name, axes in declared.items()}


def joined_parts(choices: Sequence[Choice], found: Sequence[Result]) -> Result:
    """Return one result from the results of the parts of a question."""
    both = list(zip(choices, found, strict=True))
    whole = next((r for c, r in both if c.normaliser), None)
    own = [r.less(whole) if whole and c.difference else r for c, r in both if not c.normaliser]
    answers = {name: value for r in own for name, value in r.answers.items()}
    stats = {name: value for r in own for name, value in r.stats.items()}
    if whole is not None:
        stats["without_evidence"] = whole.stats
    methods = tuple(
        r.method for i, r in enumerate(found) if r.method not in [o.method for o in found[:i]]
    )
    bad = [r.status for r in found if not r.status.good]
    if whole is not None and whole.kind != "exact":
        bounded = any(c.difference and r.kind == "lower bound" for c, r in both if not c.normaliser)
        bad += [Status.ESTIMATED_BOUND] * bounded
    doubtful = [r.status for r in found if r.status is not Status.OK]
    status = (*bad, *doubtful, Status.OK)[0]
    # The status is that of the first part in doubt, so that the others have to be said.
    notes = []
    sure = [c.title for c, r in both if r.kind == "exact" and r.status is Status.OK]
    if sure and not status.good:
        notes.append(f"the status does not concern {', '.join(sure)}: the answer is exact")
    notes += [
        f"{c.title}: {r.status.name}, {r.status.value}"
        for c, r in both
        if not r.status.good and r.status is not status
    ]
    notes += [
        f"{'without evidence, ' if c.normaliser else ''}{line}"
        for c, r in both
        for line in r.warnings
    ]
    notes += [Status.ESTIMATED_BOUND.value] * (Status.ESTIMATED_BOUND in bad)
    return Result(
        answers,
        weakest([r.kind for r in found]),
        methods[0] if len(methods) == 1 else Several(methods),
        joined_plans(choices, [r.plan for r in found]),
        status,
        tuple(dict.fromkeys(p for r in found for p in r.refused)),
        stats,
        next((r.state for r in own if r.state is not None), None),
        tuple(dict.fromkeys(notes)),
    )


def joined_plans(choices: Sequence[Choice], plans: Sequence[AnyPlan]) -> AnyPlan:
    """Return the plans of the parts of a question as one."""
    if len(plans) == 1:
        return plans[0]
    each = (f"{c.title} by {p.method}: {p.why}" for c, p in zip(choices, plans, strict=True))
    return joint_plan(plans, "; ".join(each))


def with_rest(found: Result, rest: Result, rows: Array, target: Target) -> Result:
    """Return a result of chains, in which a later result answers the rows of a mask."""
    which = target.row_numbers[rows]
    # A result that no later method has replaced still has the plan of the chains.
    if rest.plan is found.plan:
        note = f"{counted(len(which), 'row')} of chains that have not mixed, such as row {which[0]}"
        return replace(found, refused=rest.refused, warnings=(note, *rest.warnings))
    each, parts = (found.plan, rest.plan), isinstance(rest.method, Several)
    why = rest.plan.why if parts else _answered(len(which), rest.plan)
    plan = joint_plan(each, f"{_answered(len(rows) - len(which), found.plan)}; {why}")
    both = _with_rows(found, rest, rows)
    status, warnings = _judged_again(found.method, both, rest, target.structure)
    return replace(
        both,
        kind=plan.guarantee,
        method=Several((found.method, *(rest.method.methods if parts else (rest.method,)))),
        plan=plan,
        status=status,
        refused=rest.refused,
        warnings=warnings,
    )


def _judged_again(
    chains: MethodLike, both: Result, rest: Result, structure: Structure
) -> tuple[Status, tuple[str, ...]]:
    """Return status and warnings of all rows, of which `rest` holds the ones that were asked again.

    A few series of a question may be beyond a limit by chance. Where this is the only doubt about
    the rest, the series of all rows are therefore judged together, as in a question whose rows are
    all answered by the same chains.
    """
    unmixed = as_method(chains).unmixed
    if rest.status is not Status.NOT_MIXED or not {*rest.warnings} <= {
        *unmixed(rest.stats, structure)
    }:
        return rest.status, rest.warnings
    notes = unmixed(both.stats, structure)
    return (Status.NOT_MIXED, notes) if notes else (Status.OK, ())


def _answered(rows: int, plan: AnyPlan) -> str:
    """Return in words by which plan some rows were answered."""
    return f"{counted(rows, 'row')} by {plan.method}, {plan.why}"


def _with_rows(result: Result, other: Result, rows: Array) -> Result:
    """Return a result with the answers of another one in some rows.

    Both have answered the same wanted quantities. Statistics that only one of them has are left
    out, and so are draws beyond the shorter of two chains.

    Parameters
    ----------
    result : answers for all rows.
    other : answers for the rows of the mask, in their order.
    rows : mask (rows,).
    """
    order = np.concatenate((np.flatnonzero(~rows), np.flatnonzero(rows)))
    kept = rows_of(result, np.flatnonzero(~rows))
    common = {name: value for name, value in kept.answers.items() if name in other.answers}
    both = stacked([replace(kept, answers=common), other])
    return rows_of(both, np.argsort(order))


def unmixed_rows(result: Result, structure: Structure, rows: int) -> Array:
    """Return a mask (rows,) of the rows that have not mixed.

    It is True everywhere if the result has a warning that its method does not tell from the
    statistics of single rows.
    """
    method = as_method(result.method)
    if any(line not in method.unmixed(result.stats, structure) for line in result.warnings):
        return np.ones(rows, dtype=bool)
    alone = (np.array([row]) for row in range(rows))
    each = (_rows_of_statistics(method.statistics, result.stats, row) for row in alone)
    return np.array([bool(method.unmixed(stats, structure)) for stats in each])


def rows_of(result: Result, rows: Array) -> Result:
    """Return the result of some rows, or of all rows in another order; it has no gradient."""
    answers = {
        name: _taken(value, rows, 1 if name == "samples" else 0)
        for name, value in result.answers.items()
    }
    stats = _rows_of_statistics(as_method(result.method).statistics, result.stats, rows)
    # The snapshot of a sampler has a row for each chain.
    return replace(result, answers=answers, stats=stats, state=None)


def _rows_of_statistics(
    statistics: Statistics, stats: Mapping[str, Any], rows: Array
) -> dict[str, Any]:
    """Return the statistics of some rows; statistics without an axis of rows stay as they are."""
    out = {}
    for name, value in stats.items():
        axes = statistic_axes(statistics.get(name), value)
        out[name] = _taken(value, rows, axes.index(Axis.ROW)) if Axis.ROW in axes else value
    return out


def _taken(value: Any, rows: Array, axis: int) -> Any:
    """Return some rows of an array, or of a mapping of arrays."""
    if isinstance(value, Mapping):
        return {name: _taken(part, rows, axis) for name, part in value.items()}
    return np.take(value, rows, axis=axis)
