"""Splitting of large questions into parts: rows of evidence, or chains, here or on an executor.

The splitting depends on the question alone, and each part has its own random numbers, so that the
answer has the same bits with any executor and without one. Results of parts are joined along the
axes that methods declare for their statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.types import RngLike, Snapshot
from pgmengine.base.work.division import check_divided
from pgmengine.base.work.executors import part_count, run_jobs, spawn
from pgmengine.base.work.progress import announce
from pgmengine.evidence.target import Target
from pgmengine.infer.question.prepared import AnyMethod, AnyPrepared, as_method
from pgmengine.infer.results.axes import Axis, Statistics, add_gradients, check_rows
from pgmengine.infer.results.result import Result, Status, weakest
from pgmengine.model.structure import Structure

# The largest number of warnings about parts of the rows; the others are counted.
MAX_WARNINGS_OF_PARTS = 10


def answer(
    executor: Executor | None, question: AnyPrepared, rng: RngLike, state: Snapshot | None = None
) -> Result:
    """Answer a prepared question, in parts of its rows if there is enough to do.

    Methods with `groups_chains` divide the chains of a single row among the workers of an executor.
    A question that continues from a snapshot is not divided.
    """
    question.check()
    target = question.target
    if question.method.divides:
        return question.accepted(rng, state, executor)
    if question.plan.terms:
        generator = None if rng is None else seeded(rng)
        return question.difference(lambda term, at: answer(executor, term, generator, at), state)
    announce(question.plan, question.plan.seconds)
    if target.rows > 1 and state is None:
        count = part_count(question.plan.work, target.rows)
        if count > 1:
            return _by_rows(executor, question, seeded(rng), count)
    if executor is None:
        return question.accepted(rng, state, None)
    if target.rows == 1 and state is None and question.method.groups_chains:
        return question.accepted(rng, state, executor)
    generator = seeded(rng)
    jobs = [(question.method, target, question.want, generator, state)]
    found, generator.bit_generator.state = run_jobs(executor, _run, jobs, "")[0]
    return found


def _run(
    method: AnyMethod,
    target: Target,
    want: tuple[str, ...],
    rng: np.random.Generator,
    state: Snapshot | None,
) -> tuple[Result, Any]:
    """Return the answer, and the state of the random number generator after it."""
    return method.run(target, want, rng=rng, state=state), rng.bit_generator.state


def _by_rows(
    executor: Executor | None, question: AnyPrepared, rng: np.random.Generator, count: int
) -> Result:
    """Answer in parts of consecutive rows."""
    method, target, want = question.method, question.target, question.want
    # Part i has stream i + 1, so that seeded answers keep their bits from version to version.
    streams, rows = spawn(rng, count + 1)[1:], np.array_split(np.arange(target.rows), count)
    jobs = [(target.take(some), want, one) for some, one in zip(rows, streams, strict=True)]
    each = run_jobs(executor, method.run, jobs, "parts of the rows")
    check_divided(rows, target.rows, "parts of the rows")
    result = joined(each, target.structure)
    check_rows(target, result.answers)
    statistics = as_method(each[0].method).statistics
    ladders = _by_ladder(statistics, each, [len(some) for some in rows])
    return replace(result, plan=question.plan.bare, stats={**result.stats, **ladders})


def joined(found: Sequence[Result], structure: Structure) -> Result:
    """Return one result from results of one method for consecutive rows, judged together.

    `structure` has the names of variables, for warnings.
    """
    if len(found) == 1:
        return found[0]
    result = stacked(found)
    status, warnings = _judged(as_method(found[0].method), found, result.stats, structure)
    return replace(result, status=status, warnings=warnings)


def stacked(found: Sequence[Result]) -> Result:
    """Return the answers of several results for consecutive rows, with their common statistics.

    Status, warnings and method are those of the first.
    """
    statistics = as_method(found[0].method).statistics
    found = _with_equal_draws(found)
    first = found[0]
    answers = {
        name: _answers(name, [part.answers[name] for part in found]) for name in first.answers
    }
    stats = {
        name: _statistic(statistics.get(name), [part.stats[name] for part in found])
        for name in first.stats
        if all(name in part.stats for part in found)
    }
    kind = weakest(part.kind for part in found)
    return replace(first, answers=answers, kind=kind, stats=stats, state=_snapshot(found))


def _judged(
    method: AnyMethod, found: Sequence[Result], stats: Mapping[str, Any], structure: Structure
) -> tuple[Status, tuple[str, ...]]:
    """Return status and warnings of all parts; mixing is judged for all rows together."""
    notes, statuses, others = method.unmixed(stats, structure), list[Status](), list[str]()
    for part in found:
        own = method.unmixed(part.stats, structure)
        rest = [line for line in part.warnings if line not in own]
        forgiven = part.status is Status.NOT_MIXED and own and not rest
        statuses.append(Status.OK if forgiven else part.status)
        others += rest
    bad = [status for status in statuses if not status.good]
    doubtful = [status for status in statuses if status is not Status.OK]
    worst = (*bad, *([Status.NOT_MIXED] if notes else []), *doubtful, Status.OK)[0]
    others = list(dict.fromkeys(others))
    if len(others) > MAX_WARNINGS_OF_PARTS:
        others[MAX_WARNINGS_OF_PARTS - 1 :] = [
            f"{len(others) - MAX_WARNINGS_OF_PARTS + 1} more warnings about other rows"
        ]
    return worst, tuple(dict.fromkeys((*notes, *others)))


def _with_equal_draws(found: Sequence[Result]) -> Sequence[Result]:
    """Thin parts to equal length, because chains of simulated tempering differ in length."""
    counts = [part.stats["energy"].shape[1] for part in found if "energy" in part.stats]
    least = min(counts, default=0)
    return found if all(n == least for n in counts) else [_cut(part, least) for part in found]


def _cut(part: Result, draws: int) -> Result:
    """Return a part with this number of evenly spaced draws of each chain."""
    chains, count, _ = part.stats["energy"].shape
    kept = np.linspace(0, count - 1, draws).round().astype(np.int64)
    answers, stats = dict(part.answers), dict(part.stats)
    for name, x in answers.get("samples", {}).items():
        by_chain = x.reshape(chains, count, *x.shape[1:])[:, kept]
        answers["samples"] = answers["samples"] | {name: by_chain.reshape(-1, *x.shape[1:])}
    for name, axes in as_method(part.method).statistics.items():
        if name in stats and Axis.DRAW in axes and axes[0] is Axis.CHAIN:
            stats[name] = stats[name][:, kept]
    return replace(part, answers=answers, stats=stats)


def _snapshot(found: Sequence[Result]) -> Snapshot | None:
    """Return the snapshot of all rows, layer -> (rows, ...), or None if the shapes differ."""
    forms = [
        {name: np.shape(x)[1:] for name, x in part.state.items()} if part.state else None
        for part in found
    ]
    if forms[0] is None or any(form != forms[0] for form in forms):
        return None
    joint: Snapshot = _concatenated([part.state for part in found], 0)
    return joint


def _answers(name: str, values: list[Any]) -> Any:
    """Return an answer for all rows; gradients are sums over rows."""
    if name == "gradient":
        return reduce(add_gradients, values)
    return (
        _concatenated(_equally_many(values), 1) if name == "samples" else _concatenated(values, 0)
    )


def _equally_many(samples: list[Any]) -> list[Any]:
    """Return as many samples of each part as the smallest has, evenly spaced."""
    counts = [len(next(iter(part.values()))) for part in samples]
    kept = [np.linspace(0, count - 1, min(counts)).round().astype(np.int64) for count in counts]
    return [
        {name: value[some] if len(some) < len(value) else value for name, value in part.items()}
        for part, some in zip(samples, kept, strict=True)
    ]


def statistic_axes(declared: tuple[Axis, ...] | None, value: Any) -> tuple[Axis, ...]:
    """Return the axes of a statistic; undeclared arrays have the rows as their first axis."""
    if declared is not None:
        return declared
    return (Axis.ROW,) if isinstance(value, dict) or np.ndim(value) else ()


def _statistic(axes: tuple[Axis, ...] | None, values: list[Any]) -> Any:
    """Return a statistic for all rows."""
    axes = statistic_axes(axes, values[0])
    if Axis.ROW in axes:
        return _concatenated(values, axes.index(Axis.ROW))
    # A single number, such as the number of rounds, is that of the slowest part. An array without
    # an axis of rows is a setting, and equal in all parts.
    return values[0] if axes else max(values)


def _concatenated(values: list[Any], axis: int) -> Any:
    """Return arrays, or mappings of arrays, joined along an axis."""
    if isinstance(values[0], dict):
        return {key: _concatenated([v[key] for v in values], axis) for key in values[0]}
    return np.concatenate(values, axis=axis)


def _by_ladder(
    statistics: Statistics, found: Sequence[Result], rows: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return the statistics of ladders: (rungs,) if all parts have the same, else (rows, rungs).

    Ladders with fewer rungs than others have NaN in their place.
    """
    names = [n for n, axes in statistics.items() if axes == (Axis.RUNG,) and n in found[0].stats]
    each = {n: np.repeat(_padded([p.stats[n] for p in found]), rows, axis=0) for n in names}
    if "betas" in each and (each["betas"] != each["betas"][0]).any():
        return each
    return {n: value[0] if n == "betas" else value.mean(axis=0) for n, value in each.items()}


def _padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays (n,) as rows of one array, with NaN at the ends of the shorter ones."""
    out = np.full((len(arrays), max(map(len, arrays))), np.nan)
    for row, array in zip(out, arrays, strict=True):
        row[: len(array)] = array
    return out
