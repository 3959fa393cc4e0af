"""Jobs in this process or on the workers of an executor, any concurrent.futures.Executor.

A question is divided into parts that do not depend on the number of workers, and every part has a
random number generator of its own. Answers are therefore the same on any number of workers. A part
that is lost because its worker died runs again in this process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pgmengine.base.work.progress import track

T = TypeVar("T")

# Positional arguments of one call.
Job: TypeAlias = tuple[Any, ...]

# The largest number of parts of one question.
MAX_PARTS = 128

# The smallest number of unit updates in a part, about half a second of work. Smaller questions
# stay in one part.
MIN_UPDATES_A_PART = 1e9

log = logging.getLogger(__name__)


def part_count(work: float, most: int) -> int:
    """Return the number of parts, at most `most`, for this number of unit updates."""
    return max(1, int(min(MAX_PARTS, most, work / MIN_UPDATES_A_PART)))


def spawn(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Return generators for jobs, seeded by draws from `rng`.

    They depend on the state of `rng` alone. Generator.spawn counts the children of a seed sequence
    instead, so that a restored generator would not repeat the children that it had before.
    """
    seeds = rng.integers(0, 2**32, size=(count, 4), dtype=np.uint32)
    return [np.random.default_rng(seed) for seed in seeds]


def run_jobs(
    executor: Executor | None, function: Callable[..., T], jobs: Sequence[Job], what: str
) -> list[T]:
    """Return function(*job) of every job, in order.

    Jobs run in this process if there is no executor, or if it has lost its workers. `what` names
    the work on the progress bar.
    """
    if executor is None:
        items = track(jobs, what) if len(jobs) > 1 else jobs
        return [function(*job) for job in items]
    futures = [_submitted(executor, function, job) for job in jobs]
    try:
        return [
            _result(future, function, job)
            for future, job in zip(track(futures, what), jobs, strict=True)
        ]
    except BaseException:
        for future in futures:
            if future is not None:
                future.cancel()
        raise


def _submitted(executor: Executor, function: Callable[..., T], job: Job) -> Future[T] | None:
    """Return the future of a job, or None if the executor has lost its workers."""
    try:
        return executor.submit(function, *job)
    except BrokenExecutor:
        return None


def _result(future: Future[T] | None, function: Callable[..., T], job: Job) -> T:
    """Return the result of a future, or of the job in this process if its worker is lost."""
    try:
        if future is not None:
            return future.result()
    except BrokenExecutor as broken:
        log.warning("the executor lost a worker (%s): its job runs in this process", broken)
    return function(*job)
