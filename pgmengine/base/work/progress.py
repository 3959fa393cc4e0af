"""Plans and progress bars on a terminal for work of more than two seconds; nothing elsewhere.

Both go to stderr, so that answers on stdout can be piped. Plans are always logged as well.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

# A progress bar appears after these seconds, and plans that take longer are announced.
SECONDS_BEFORE_BAR = 2.0

# Whether the caller of `infer` asked for progress.
PROGRESS_ASKED: ContextVar[bool] = ContextVar("progress", default=False)


class showing:
    """Choose whether the loops of methods show their progress in this context."""

    # A generator as a context would take longer, and every question enters one.
    def __init__(self, progress: bool) -> None:
        self.progress = progress

    def __enter__(self) -> None:
        self.token = PROGRESS_ASKED.set(self.progress)

    def __exit__(self, *error: object) -> None:
        PROGRESS_ASKED.reset(self.token)


def announce(plan: object, seconds: float) -> None:
    """Log a plan of more than two seconds; print it on a terminal if progress is shown."""
    if seconds <= SECONDS_BEFORE_BAR:
        return
    log.info("%s", plan)
    if PROGRESS_ASKED.get() and sys.stderr.isatty():
        print(plan, file=sys.stderr)


def track(items: Sequence[T], what: str, show: bool | None = None) -> Iterator[T]:
    """Yield the items and show a bar on a terminal after two seconds.

    `show` overrides the setting of `showing`. Loops inside this one show no bar.
    """
    shown = PROGRESS_ASKED.get()
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
            if time.monotonic() - begin > SECONDS_BEFORE_BAR:
                bar.start()
            bar.update(task, completed=done)
            # Two bars would write over each other.
            PROGRESS_ASKED.set(False)
            yield item
            PROGRESS_ASKED.set(shown)
    finally:
        PROGRESS_ASKED.set(shown)
        bar.stop()
