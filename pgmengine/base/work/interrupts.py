"""Ctrl-C that takes effect between two steps of long work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets, so that work ends after a whole step.

    A second Ctrl-C stops at once.
    """
    interrupted, main = threading.Event(), threading.current_thread() is threading.main_thread()
    usual = signal.default_int_handler

    def stop_after_step(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, usual)

    handled = main and signal.getsignal(signal.SIGINT) is usual
    if handled:
        signal.signal(signal.SIGINT, stop_after_step)
    try:
        yield interrupted
    finally:
        if handled and not interrupted.is_set():
            signal.signal(signal.SIGINT, usual)
