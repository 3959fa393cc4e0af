"""Share the evidence rows of one inference out over an executor, and put the answers together again."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.methods.answers import add_gradients
from pgmengine.result import Result, Status
from pgmengine.target import Target

PARTS = 16  # at most; fixed, so that the same rng gives the same bits on any number of workers
ROWS_AXIS = {"samples": 1, "log_weights": 1, "levels": 1, "energy": 2}  # all others have their rows in front
OF_THE_RUN = {"betas", "adaptive"}  # no rows: the same in all parts


def run_on(executor: Executor, method: Any, target: Target, wanted: tuple[str, ...], rng: np.random.Generator) -> Result:
    """Run the method on parts of the rows, each with a random stream of its own."""
    rows = np.array_split(np.arange(target.rows), min(PARTS, target.rows))
    jobs = [executor.submit(method.run, target.take(some), wanted, generator)
            for some, generator in zip(rows, rng.spawn(len(rows)), strict=True)]
    return joined([job.result() for job in jobs])


def joined(parts: list[Result]) -> Result:
    """One Result from those of consecutive rows; methods may differ between parts, the first stands for all."""
    first = parts[0]
    answers = {name: _join(name, [part.answers[name] for part in parts]) for name in first.answers}
    bad = next((part.status for part in parts if not part.status.good), Status.OK)
    kinds = {part.kind for part in parts}
    kind = first.kind if len(kinds) == 1 else "estimate"
    stats = {name: _join(name, [part.stats[name] for part in parts]) for name in first.stats
             if all(name in part.stats for part in parts)}
    warnings = tuple(dict.fromkeys(w for part in parts for w in part.warnings))
    return replace(first, answers=answers, status=bad, kind=kind, stats=stats, warnings=warnings, state=None)


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
