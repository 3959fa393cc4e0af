"""Progress bars on a terminal for work of more than two seconds; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

# Seconds before a bar appears.
PATIENCE = 2.0

# Whether the caller of `infer` asked for progress.
SHOWN: ContextVar[bool] = ContextVar("progress", default=False)


@contextmanager
def showing(progress: bool) -> Iterator[None]:
    """Let the loops of methods show their progress, or not, in this context."""
    token = SHOWN.set(progress)
    try:
        yield
    finally:
        SHOWN.reset(token)


def track(items: Sequence[T], what: str, show: bool | None = None) -> Iterator[T]:
    """Yield the items and show a bar on a terminal after two seconds.

    `show` overrides the setting of `showing`.
    """
    if not ((SHOWN.get() if show is None else show) and sys.stderr.isatty()):
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    begin = time.monotonic()
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=len(items))
    try:
        for done, item in enumerate(items):
            if time.monotonic() - begin > PATIENCE:
                bar.start()
            bar.update(task, completed=done)
            yield item
    finally:
        bar.stop()
