"""Progress bars: shown on a terminal for work over two seconds, silent elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

PATIENCE = 2.0  # seconds before a bar appears
SHOWN: ContextVar[bool] = ContextVar(
    "progress", default=False
)  # whether infer was asked for progress


@contextmanager
def showing(progress: bool) -> Iterator[None]:
    """Within it, the methods' loops show their progress."""
    token = SHOWN.set(progress)
    try:
        yield
    finally:
        SHOWN.reset(token)


def track(items: Sequence[Any], what: str, show: bool | None = None) -> Iterator[Any]:
    """The items, with a bar on a terminal once the work has taken two seconds; `show` overrides
    `showing`.
    """
    if not ((SHOWN.get() if show is None else show) and sys.stderr.isatty()):
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    begin, bar, task = time.monotonic(), None, None
    try:
        for done, item in enumerate(items):
            if bar is None and time.monotonic() - begin > PATIENCE:
                bar = Progress(console=Console(stderr=True), transient=True)
                bar.start()
                task = bar.add_task(what, total=len(items))
            if bar is not None and task is not None:
                bar.update(task, completed=done)
            yield item
    finally:
        if bar is not None:
            bar.stop()
