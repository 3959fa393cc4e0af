"""Jobs here or on the workers of an executor: any concurrent.futures.Executor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

import numpy as np

from pgmengine.base.progress import track

PARTS = 128  # of a question, at most
# Unit updates that are worth a part of their own, half a second or so: small questions stay whole
WORTH = 2e8
Job = tuple[Any, ...]
log = logging.getLogger(__name__)


def parts(work: float, most: int) -> int:
    """How many parts so much work is worth."""
    return max(1, int(min(PARTS, most, work / WORTH)))


def children(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """Generators for jobs, seeded by draws: all of what they depend on is the state of `rng`, which
    moves on.
    """
    return [
        np.random.default_rng(seed)
        for seed in rng.integers(0, 2**32, size=(count, 4), dtype=np.uint32)
    ]


def done(
    executor: Executor | None, function: Callable[..., Any], jobs: Sequence[Job], what: str
) -> list[Any]:
    """function(*job) of every job, in order. Where a worker dies and takes its pool along, what is
    left is done here.
    """
    if executor is None:
        return (
            [function(*job) for job in track(jobs, what)]
            if len(jobs) > 1
            else [function(*job) for job in jobs]
        )
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


def _submitted(executor: Executor, function: Callable[..., Any], job: Job) -> Future[Any] | None:
    try:
        return executor.submit(function, *job)
    except BrokenExecutor:
        return None


def _result(future: Future[Any] | None, function: Callable[..., Any], job: Job) -> Any:
    try:
        if future is not None:
            return future.result()
    except BrokenExecutor as broken:
        log.warning(
            "the executor lost a worker (%s): what it had to do is done in this process", broken
        )
    return function(*job)
