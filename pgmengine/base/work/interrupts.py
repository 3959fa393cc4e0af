"""Ctrl-C: that it always stops work, after a whole step where work has steps.

Python raises KeyboardInterrupt wherever the main thread is. The exception is lost where the caller
of that place cannot pass it on: in a function that runs because an object is deleted, such as the
callback of a weak reference, and in Python code that a C function calls without looking at errors.
A signal that has waited for the end of a long C function often arrives there, because the function
deletes its arrays before it returns. Ctrl-C is therefore repeated until work has ended.

Only the main thread gets signals. Handlers of users stay as they are.
"""

from __future__ import annotations

import _signal
import _thread
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The functions of the module `signal` make enumerations of handlers, which takes 20 us.
get_handler, set_handler = _signal.getsignal, _signal.signal
SIGINT = int(signal.SIGINT)

# Seconds after which a KeyboardInterrupt that has not ended work is raised again.
SECONDS_BETWEEN = 0.25


class CtrlC:
    """The handler of Ctrl-C during work, from `begin` to `end`.

    Work has the form

        try:
            ctrl_c.begin()
            ...
        finally:
            ctrl_c.over = True
            ctrl_c.end()

    where Python looks for signals neither before `over` is set nor with an effect after it, so that
    no exception keeps `end` from being reached.

    Parameters
    ----------
    patience : seconds from the first Ctrl-C to a KeyboardInterrupt; 0 raises it at once, and None
        leaves it to whoever looks at `pressed`. A second Ctrl-C always raises it.

    Attributes
    ----------
    pressed : whether Ctrl-C has arrived.
    over : whether work has ended, so that nothing is raised any more.
    """

    def __init__(self, patience: float | None = 0.0) -> None:
        self.patience, self.pressed, self.over = patience, False, False
        self._usual: Any = None
        self._ended: threading.Event | None = None

    def begin(self) -> None:
        """Take Ctrl-C, unless a user or an outer work of the same kind has taken it."""
        now = get_handler(SIGINT)
        outer = isinstance(now, CtrlC) and now.patience == 0 != self.patience
        if not (outer or now is signal.default_int_handler):
            return
        self._usual = now
        try:
            set_handler(SIGINT, self)
        except ValueError:
            # Another thread than the main one gets no signals.
            self._usual = None

    def end(self) -> None:
        """Give Ctrl-C back."""
        if self._ended is not None:
            self._ended.set()
        if self._usual is not None:
            set_handler(SIGINT, self._usual)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        first, self.pressed = not self.pressed, True
        if self.over:
            return
        if first and self.patience is not None:
            self._ended = threading.Event()
            given = self._ended, self.patience or SECONDS_BETWEEN
            threading.Thread(target=_repeat, args=given, daemon=True).start()
        if not first or self.patience == 0:
            raise KeyboardInterrupt


def _repeat(ended: threading.Event, seconds: float) -> None:
    """Act like a further Ctrl-C every few seconds, until the event is set."""
    while not ended.wait(seconds):
        _thread.interrupt_main()


def stoppable(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function, so that Ctrl-C raises KeyboardInterrupt in it, whatever it is doing."""

    @wraps(function)
    def stopped(*args: P.args, **named: P.kwargs) -> T:
        ctrl_c = CtrlC()
        try:
            ctrl_c.begin()
            found = function(*args, **named)
        finally:
            ctrl_c.over = True
            ctrl_c.end()
        if ctrl_c.pressed:
            # The exception was lost until now.
            raise KeyboardInterrupt
        return found

    return stopped


@contextmanager
def whole_import() -> Iterator[None]:
    """Raise KeyboardInterrupt after an import in this context, if Ctrl-C has arrived during it.

    Some packages, such as pandas and matplotlib, cannot be imported any more in a process in which
    their import was stopped half way.
    """
    ctrl_c = CtrlC(patience=None)
    try:
        ctrl_c.begin()
        yield
    finally:
        ctrl_c.over = True
        ctrl_c.end()
    if ctrl_c.pressed:
        raise KeyboardInterrupt
