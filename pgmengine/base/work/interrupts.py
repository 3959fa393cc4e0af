"""Ctrl-C that takes effect between two steps of long work, and never in the middle of an import."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(patience: float | None = None) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets, so that work ends after a whole step.

    A step that goes on for `patience` seconds after Ctrl-C, if that is given, is stopped by a
    KeyboardInterrupt. A second Ctrl-C stops a step at once.
    """
    interrupted, main = threading.Event(), threading.current_thread() is threading.main_thread()
    usual = signal.default_int_handler
    # At most one timer, which acts like a second Ctrl-C.
    late: list[threading.Timer] = []

    def stop_after_step(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, usual)
        if patience is not None:
            late.append(threading.Timer(patience, _thread.interrupt_main))
            late[0].daemon = True
            late[0].start()

    handled = main and signal.getsignal(signal.SIGINT) is usual
    if handled:
        signal.signal(signal.SIGINT, stop_after_step)
    try:
        yield interrupted
    finally:
        for timer in late:
            timer.cancel()
        if handled and not interrupted.is_set():
            signal.signal(signal.SIGINT, usual)


@contextmanager
def whole_import() -> Iterator[None]:
    """Raise KeyboardInterrupt after an import in this context, if Ctrl-C has arrived during it.

    Some packages, such as pandas and matplotlib, cannot be imported any more in a process in which
    their import was stopped half way.
    """
    with interruptible() as interrupted:
        yield
    if interrupted.is_set():
        raise KeyboardInterrupt
