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
# The thread that holds this lock has set the limit on the threads of BLAS.
_limiting = RLock()
# Its attribute `shared` is set in threads of the pool, which must not wait for each other.
_here = local()


def threads() -> int:
    """Return the cores to use: PGMENGINE_THREADS, or all of this process if it is 0 or not set."""
    given = os.environ.get(THREADS_VARIABLE, "0").strip()
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) <= MAX_THREADS):
        raise PgmError(
            f"{THREADS_VARIABLE} is {given!r}, expected an integer from 1 to {MAX_THREADS}; "
            "unset it to use every core"
        )
    return int(given) or _cores()


def _cores() -> int:
    """Return the cores that this process may run on; all cores if the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def shared_out(function: Callable[[A], B], items: Sequence[A]) -> Iterator[B]:
    """Map a function over items in order, on the threads of this process.

    If the caller is one of these threads, it runs all items itself.
    """
    if len(items) == 1 or threads() == 1 or getattr(_here, "shared", False):
        return map(function, items)
    return _pool(os.getpid(), threads()).map(function, items)


def parts(work: float, worth: float) -> int:
    """Return the number of threads for a compiled loop, each with at least `worth` of the work."""
    return 1 if work < 2 * worth else min(threads(), int(work / max(worth, 1e-9)))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run matrix products of this context on the calling thread alone.

    The threads of BLAS keep spinning for a while after a product, which takes cores from the
    compiled loops. If several threads are in such a context, only the first one sets the limit and
    lifts it. A second one would take the limit of the first for the original setting, and restore
    it at its end, after which the limit would stay.
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
    """Return the pool of a process, which is kept between calls; a forked child gets its own."""
    return ThreadPoolExecutor(count, "pgmengine", lambda: setattr(_here, "shared", True))
