"""Ctrl-C between two updates, so that a fit ends after a whole one; a second one stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupt:
    """A context in which the first SIGINT only sets `wanted`."""

    def __init__(self) -> None:
        self.wanted, self.heard = False, False

    def __enter__(self) -> Interrupt:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._hear)
            self.heard = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.wanted = True
        self._give_back()

    def _give_back(self) -> None:
        if self.heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.heard = False


def pass_on(found: object) -> None:
    """Raise KeyboardInterrupt if a fit was interrupted, for callers that make several fits."""
    if getattr(found, "interrupted", False):
        raise KeyboardInterrupt
