"""Progress bars: shown on a terminal for work over two seconds, silent elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

PATIENCE = 2.0  # seconds before a bar appears


def track(items: Sequence[Any], what: str, show: bool) -> Iterator[Any]:
    """The items, with a bar on a terminal once the work has taken two seconds."""
    if not (show and sys.stderr.isatty()):
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
