"""Large questions in parts: rows of evidence, or chains, here or on the workers of an executor.

How a question is parted depends on the question alone, and each part has random numbers of its own,
so the answer is the same bits with any executor and without one.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.executors import children, done, parts
from pgmengine.graph.target import Target
from pgmengine.infer.answers import add_gradients
from pgmengine.infer.result import Plan, Result, Status
from pgmengine.infer.sampling.collect import unmixed_notes

ROWS_AXIS = {
    "samples": 1,
    "log_weights": 1,
    "levels": 1,
    "energy": 2,
    "swap_accepted": 2,
}  # of all others 0
OF_THE_RUN = {"betas", "adaptive"}  # no rows; of ladders that differ see _ladders
OF_LADDERS = ("betas", "swap_rejection")


def answer(
    executor: Executor | None,
    method: Any,
    target: Target,
    wanted: tuple[str, ...],
    rng: Any,
    state: Any = None,
) -> Result:
    """Run a method on the target, in parts of its rows if there is enough to do.

    A single row is parted by its chains, by methods that know how (`run_on`), if there is an
    executor. A state belongs to the whole.
    """
    if executor is not None and target.rows == 1 and state is None and hasattr(method, "run_on"):
        result: Result = method.run_on(executor, target, wanted, rng)
        return result
    if target.rows > 1 and state is None:
        plan = method.plan(target, wanted)
        if (count := parts(plan.work, target.rows)) > 1:
            return _by_rows(executor, method, target, wanted, seeded(rng), count, plan)
    if executor is None:
        return method.run(target, wanted, rng=rng, state=state)
    generator = seeded(rng)
    found, generator.bit_generator.state = done(
        executor, _run, [(method, target, wanted, generator, state)], ""
    )[0]
    return found


def _run(
    method: Any, target: Target, wanted: tuple[str, ...], rng: np.random.Generator, state: Any
) -> tuple[Result, Any]:
    """The answer, and the state of the random numbers after it."""
    return method.run(target, wanted, rng=rng, state=state), rng.bit_generator.state


def _by_rows(
    executor: Executor | None,
    method: Any,
    target: Target,
    wanted: tuple[str, ...],
    rng: np.random.Generator,
    count: int,
    plan: Plan,
) -> Result:
    """Parts of consecutive rows. log Z without evidence, which log_prob needs, is a part of its
    own: once for all.
    """
    streams, rows = children(rng, count + 1), np.array_split(np.arange(target.rows), count)
    apart = (
        "log_prob" in wanted
        and not target.structure.normalized
        and target.nothing_observed.rows == 1
    )
    asked = tuple(dict.fromkeys("log_z" if w == "log_prob" and apart else w for w in wanted))
    jobs = [
        (replace(target.take(some), first=target.first + int(some[0])), asked, stream)
        for some, stream in zip(rows, streams[1:], strict=True)
    ]
    if apart:
        jobs.insert(0, (target.nothing_observed, ("log_z",), streams[0]))
    found = done(executor, method.run, jobs, "parts of the rows")
    result = _less(joined(found[1:]), found[0]) if apart else joined(found)
    return replace(
        result,
        plan=plan,
        stats={**result.stats, **_ladders(found[-count:], [len(r) for r in rows])},
    )


def _ladders(found: list[Result], rows: list[int]) -> dict[str, np.ndarray]:
    """What is known of ladders, (levels,), or that of each row, (rows, levels), where parts have
    their own.
    """
    names = [name for name in OF_LADDERS if name in found[0].stats]
    if not names:
        return {}
    each = {name: np.repeat([part.stats[name] for part in found], rows, axis=0) for name in names}
    alike = (each["betas"] == each["betas"][0]).all()
    return (
        {n: value[0] if n == "betas" else value.mean(axis=0) for n, value in each.items()}
        if alike
        else each
    )


def _less(result: Result, whole: Result) -> Result:
    """log_prob = log_z less that without evidence."""
    answers, stats = dict(result.answers), dict(result.stats)
    answers["log_prob"] = answers["log_z"] - whole.log_z
    error, more = answers.get("log_z_error"), whole.answers.get("log_z_error")
    if error is not None and more is not None and np.any(error + more > 0):
        stats["log_prob_error"] = np.hypot(error, more)
    notes = result.warnings + tuple(f"without evidence, {line}" for line in whole.warnings)
    return replace(
        result,
        answers=answers,
        stats=stats,
        warnings=tuple(dict.fromkeys(notes)),
        status=result.status if not result.status.good else whole.status,
    )


def joined(found: list[Result]) -> Result:
    """One Result from those of consecutive rows."""
    found = _alike(found)
    first = found[0]
    answers = {name: _join(name, [part.answers[name] for part in found]) for name in first.answers}
    kinds = {part.kind for part in found}
    kind = first.kind if len(kinds) == 1 else "estimate"
    stats = {
        name: _join(name, [part.stats[name] for part in found])
        for name in first.stats
        if all(name in part.stats for part in found)
    }
    status, warnings = _judged(found, stats)
    return replace(
        first,
        answers=answers,
        status=status,
        kind=kind,
        stats=stats,
        warnings=warnings,
        state=_state(found),
    )


def _judged(found: list[Result], stats: dict[str, Any]) -> tuple[Status, tuple[str, ...]]:
    """Whether chains mixed is judged on all rows together; whatever else went badly in a part, went
    badly.
    """
    if "energy_rhat" not in stats or not hasattr(found[0].method, "rhat_limit"):
        bad = next((part.status for part in found if not part.status.good), Status.OK)
        return bad, tuple(dict.fromkeys(w for part in found for w in part.warnings))
    limit = found[0].method.rhat_limit
    others = [
        [w for w in part.warnings if w not in unmixed_notes(part.stats, limit)] for part in found
    ]
    notes = unmixed_notes(stats, limit)
    bad = next(
        (
            part.status
            for part, rest in zip(found, others, strict=True)
            if rest and not part.status.good
        ),
        Status.NOT_MIXED if notes else Status.OK,
    )
    return bad, tuple(dict.fromkeys([*notes, *(w for rest in others for w in rest)]))


def _alike(found: list[Result]) -> list[Result]:
    """With as many draws of each chain as the least: chains of simulated tempering come to beta = 1
    by chance.
    """
    shapes = [part.stats["energy"].shape for part in found if "energy" in part.stats]
    least = min((shape[1] for shape in shapes), default=0)
    return (
        found
        if all(shape[1] == least for shape in shapes)
        else [_cut(part, least) for part in found]
    )


def _cut(part: Result, draws: int) -> Result:
    """The first draws of each chain."""
    chains, count, _ = part.stats["energy"].shape
    answers = dict(part.answers)
    if "samples" in answers:
        answers["samples"] = {
            name: x.reshape(chains, count, *x.shape[1:])[:, :draws].reshape(
                chains * draws, *x.shape[1:]
            )
            for name, x in answers["samples"].items()
        }
    return replace(
        part, answers=answers, stats={**part.stats, "energy": part.stats["energy"][:, :draws]}
    )


def _state(found: list[Result]) -> Any:
    """Where to go on from, if the parts say so in the same way: layer -> (rows, ...)."""
    kinds = [
        {name: np.shape(x)[1:] for name, x in part.state.items()} if part.state else None
        for part in found
    ]
    return (
        None
        if kinds[0] is None or any(k != kinds[0] for k in kinds)
        else _join("state", [p.state for p in found])
    )


def _join(name: str, values: list[Any]) -> Any:
    if name == "gradient":
        total = None
        for value in values:
            total = add_gradients(total, value)
        return total
    if isinstance(values[0], dict):
        return {key: _join(name, [value[key] for value in values]) for key in values[0]}
    if name in OF_THE_RUN:
        return values[0]
    if name == "swap_rejection":
        return np.mean(values, axis=0)
    if np.ndim(values[0]) == 0:
        return max(values)  # rounds, and the like
    return np.concatenate(values, axis=ROWS_AXIS.get(name, 0))
