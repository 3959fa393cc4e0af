"""Ctrl-C between two updates, so that what a fit leaves is whole; a second one stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Within it, the first SIGINT only sets `wanted`."""

    def __init__(self) -> None:
        self.wanted = False
        self.before: Any = None

    def __enter__(self) -> Interrupt:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: Any) -> None:
        self._give_back()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        self._give_back()

    def _give_back(self) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            self.before = None


def pass_on(found: Any) -> None:
    """KeyboardInterrupt if this fit was interrupted: for what makes several, or is told by nothing
    else.
    """
    if getattr(found, "interrupted", False):
        raise KeyboardInterrupt
