"""The threads that compiled loops run on."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any


def threads() -> int:
    """Cores to use: PGMENGINE_THREADS, else those this process may run on."""
    return int(os.environ.get("PGMENGINE_THREADS", 0)) or len(os.sched_getaffinity(0))


def pool() -> ThreadPoolExecutor:
    """The pool of this process, kept between calls; a forked child gets its own."""
    return _pool(os.getpid(), threads())


def share_out(task: Callable[[int, int], Any], count: int, work: float, worth: float) -> list[Any]:
    """task(first, last) on parts of range(count), one for each thread if each gets `worth` of the work."""
    many = 1 if work < 2 * worth else min(threads(), count, int(work / max(worth, 1e-9)))
    if many <= 1:
        return [task(0, count)]
    cuts = [count * i // many for i in range(many + 1)]
    others = [pool().submit(task, *ends) for ends in zip(cuts[1:-1], cuts[2:], strict=True)]
    return [task(0, cuts[1]), *(other.result() for other in others)]


def in_chunks(task: Callable[[slice], Any], count: int, chunk: int, work: float) -> None:
    """task(slice) on chunks of range(count), which do not depend on the number of threads, as bits of BLAS may."""
    cuts = [slice(i, min(i + chunk, count)) for i in range(0, count, chunk)]
    share_out(lambda first, last: [task(some) for some in cuts[first:last]], len(cuts), work, 4e6)


def one_blas_thread() -> Any:
    """A context in which matrix products run on the thread that asks for them.

    The threads of BLAS go on spinning for a while after a product, which takes the cores from the compiled loops.
    """
    return _controller().limit(limits=1, user_api="blas")


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@lru_cache(maxsize=1)
def _pool(process: int, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="pgmengine")
