"""The threads that compiled loops run on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from threading import RLock, local
from typing import Any, TypeVar

from pgmengine.base.errors import PgmError

# The environment variable with the number of threads.
THREADS_VARIABLE = "PGMENGINE_THREADS"
# A larger number of threads is a mistake: no computer has as many cores.
MAX_THREADS = 4096
A = TypeVar("A")
B = TypeVar("B")
# The thread that holds this lock limits BLAS.
_limiting = RLock()
# Whether this thread belongs to the pool, whose threads must not wait for each other.
_here = local()


def threads() -> int:
    """Cores to use: PGMENGINE_THREADS, else (or where that is 0) those this process may run on."""
    given = os.environ.get(THREADS_VARIABLE, "0").strip()
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) <= MAX_THREADS):
        raise PgmError(
            f"{THREADS_VARIABLE} is {given!r}, expected an integer from 1 to {MAX_THREADS}; "
            "unset it to use every core"
        )
    return int(given) or _cores()


def _cores() -> int:
    """Cores that this process may run on, or all where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shared_out(function: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """Map a function over items in order, on the threads of this process.

    A call from one of these threads runs in that thread.
    """
    if len(items) == 1 or threads() == 1 or getattr(_here, "shared", False):
        return map(function, items)
    return _pool(os.getpid(), threads()).map(function, items)


def parts(work: float, worth: float) -> int:
    """Threads for a compiled loop: as many as get `worth` of the work each."""
    return 1 if work < 2 * worth else min(threads(), int(work / max(worth, 1e-9)))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which matrix products run on the thread that asks for them.

    The threads of BLAS go on spinning for a while after a product, which takes the cores from the
    compiled loops. Of several threads in such a context, only the first one sets the limit and
    lifts it. A second one would find the limit of the first, take it for the original setting, and
    restore it at its end, after which the limit would stay.
    """
    mine = _limiting.acquire(blocking=False)
    try:
        with _controller().limit(limits=1, user_api="blas") if mine else nullcontext():
            yield
    finally:
        if mine:
            _limiting.release()


@lru_cache(maxsize=1)
def _controller() -> Any:
    from scipy.linalg import cython_blas  # noqa: F401  the compiled loops' BLAS: one loaded later would not be limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@lru_cache(maxsize=1)
def _pool(process: int, count: int) -> ThreadPoolExecutor:
    """Kept between calls; a forked child gets its own."""
    return ThreadPoolExecutor(count, "pgmengine", lambda: setattr(_here, "shared", True))
