"""The threads that compiled loops run on."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache


def threads() -> int:
    """Cores to use: PGMENGINE_THREADS, else those this process may run on."""
    return int(os.environ.get("PGMENGINE_THREADS", 0)) or len(os.sched_getaffinity(0))


def pool() -> ThreadPoolExecutor:
    """The pool of this process, kept between calls; a forked child gets its own."""
    return _pool(os.getpid(), threads())


@lru_cache(maxsize=1)
def _pool(process: int, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="pgmengine")
