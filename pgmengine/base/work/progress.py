"""Plans and progress bars on a terminal for work of more than two seconds; nothing elsewhere.

Both go to stderr, so that answers can be piped. Plans are logged wherever they go.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

# Seconds before a bar appears, and of a plan from which it is shown.
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


def announce(plan: object, seconds: float) -> None:
    """Log a plan of more than two seconds; where progress is shown, print it on a terminal."""
    if seconds <= PATIENCE:
        return
    log.info("%s", plan)
    if SHOWN.get() and sys.stderr.isatty():
        print(plan, file=sys.stderr)


def track(items: Sequence[T], what: str, show: bool | None = None) -> Iterator[T]:
    """Yield the items and show a bar on a terminal after two seconds.

    `show` overrides the setting of `showing`. Loops inside of this one show nothing.
    """
    shown = SHOWN.get()
    if not ((shown if show is None else show) and sys.stderr.isatty()):
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
            # Two bars would write over each other.
            SHOWN.set(False)
            yield item
            SHOWN.set(shown)
    finally:
        SHOWN.set(shown)
        bar.stop()
