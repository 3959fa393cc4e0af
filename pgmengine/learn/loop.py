"""Fits under way: one, or several of one structure, whose updates are made together."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from pgmengine.base.errors import PgmError
from pgmengine.base.work.interrupts import CtrlC
from pgmengine.base.work.progress import track
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.monitoring.findings import Watch
from pgmengine.learn.monitoring.history import History
from pgmengine.learn.recorded.recorded_updates import Call, make
from pgmengine.learn.run import Run
from pgmengine.learn.saving.checkpoint import Saver

log = logging.getLogger(__name__)

# Seconds for which the update under way goes on after Ctrl-C.
PATIENCE_SECONDS = 0.5
# After an update of so many seconds, the next one is kept from being half made.
LONG_UPDATE_SECONDS = 0.1


@dataclass(eq=False)
class UnderWay:
    """A fit under way: its run, and everything that looks at its models.

    Attributes
    ----------
    total : number of updates in all.
    begun : the layers whose biases began at the base rates of the data.
    stopped : the reason for which learning has ended before its last update, or an empty string.
    """

    run: Run
    history: History
    watch: Watch
    total: int
    begun: tuple[str, ...]
    stopped: str = ""

    @property
    def ended(self) -> bool:
        """Whether there are no updates left to make."""
        return bool(self.stopped) or self.run.count >= self.total

    def due(self) -> int:
        """Return the number of updates until somebody looks at the model."""
        count = self.run.count
        return min(self.total, self.history.due(count), self.watch.due(count)) - count

    def finish(self, call: Call | None) -> None:
        """Take the updates of a call, or make one in Python; then let monitors look."""
        run = self.run
        ended = run.finish(call)
        if run.value is not None:
            self.history.put("objective", run.count, run.value)
        self.stopped = self.history.add(run.model, run.count) or ended
        self.watch.look(run.model, run.count)

    def kept(self) -> Callable[[], None]:
        """Return a function that takes back everything that has happened since this call."""
        run, history = self.run, self.history
        model, value, state = run.model, run.value, run.state()
        notes, scores, stopped = dict(run.notes), dict(self.watch.scores), self.stopped
        values = {name: list(pairs) for name, pairs in history.values.items()}

        def take_back() -> None:
            run.model, run.value, run.notes = model, value, notes
            run.load(state)
            history.values, self.watch.scores, self.stopped = values, scores, stopped

        return take_back

    def findings(self, interrupted: bool) -> tuple[Finding, ...]:
        """Return the findings at the end."""
        return self.watch.findings(not interrupted and not self.stopped) + self.run.findings()


def learn(
    fits: Sequence[UnderWay], progress: bool, saver: Saver | None, seconds: float = math.inf
) -> bool:
    """Make updates up to the last, Ctrl-C, a callback or so many seconds.

    Returns whether Ctrl-C has ended them. A saver writes the checkpoint of a single fit.
    """
    for one in fits:
        one.stopped = one.history.stops()
        one.watch.begin(one.run.model, one.run.count)
    ctrl_c = CtrlC(PATIENCE_SECONDS)
    try:
        ctrl_c.begin()
        _learn(fits, progress, saver, ctrl_c, seconds)
    finally:
        ctrl_c.over = True
        ctrl_c.end()
    if not ctrl_c.pressed:
        for one in fits:
            one.watch.measure(one.run.model, one.run.count)
    return ctrl_c.pressed


def _learn(
    fits: Sequence[UnderWay], progress: bool, saver: Saver | None, ctrl_c: CtrlC, seconds: float
) -> None:
    """Make updates; a long one that Ctrl-C has stopped half way is taken back."""
    end = time.monotonic() + seconds
    made, last = (f(one.run.count for one in fits) for f in (min, max))
    total = max(last, *(one.total for one in fits))
    for one in fits:
        one.run.allowance.interrupted = lambda: ctrl_c.pressed or time.monotonic() >= end
    # The time of the first update is not known.
    long, most = True, 1 if seconds < math.inf else sys.maxsize
    for update in track(range(made + 1, total + 1), "learning", progress):
        # A call may make many updates, up to the next one at which somebody looks.
        if update <= made:
            continue
        active = [one for one in fits if not one.ended]
        if ctrl_c.pressed or not active:
            break
        if time.monotonic() >= end:
            for one in active:
                one.stopped = f"{seconds:g} seconds are over"
            break
        kept = [one.kept() for one in active] if long else []
        began = time.monotonic()
        try:
            _advance(active, len(fits), most)
        except KeyboardInterrupt:
            if not (kept and ctrl_c.pressed):
                raise
            for take_back in kept:
                take_back()
            break
        now, before = time.monotonic(), made
        long = now - began > LONG_UPDATE_SECONDS
        made = min(one.run.count for one in active)
        # A call of the compiled loop ends by itself only.
        each = (now - began) / max(made - before, 1)
        most = max(1, int(min((end - now) / max(each, 1e-9), 1e9)))
        if saver is not None:
            saver.now_and_then(fits[0].run, fits[0].history, fits[0].watch)


def _advance(active: Sequence[UnderWay], count: int, most: int) -> None:
    """Make some updates of each fit, at most so many."""
    # All make as many updates, so that a monitor that ends one does not hold up the others.
    most = min(most, *(one.due() for one in active))
    calls = [one.run.call(most) for one in active]
    make([call for call in calls if call is not None])
    for number, (one, call) in enumerate(zip(active, calls, strict=True), 1):
        try:
            one.finish(call)
        except PgmError as error:
            where = f"fit {number} of {count}: " if count > 1 else ""
            raise PgmError(f"{where}{error}") from None


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep the findings of fits in this thread out of the log, because the caller says them."""
    own = threading.get_ident()

    def other(record: logging.LogRecord) -> bool:
        """Return whether a record is of another thread, or no finding."""
        args = record.args if isinstance(record.args, tuple) else ()
        return record.thread != own or not any(isinstance(arg, Finding) for arg in args)

    log.addFilter(other)
    try:
        yield
    finally:
        log.removeFilter(other)


def report(findings: Sequence[tuple[Finding, ...]]) -> None:
    """Log the findings as warnings: of several fits, one line for each kind."""
    if len(findings) == 1:
        for finding in findings[0]:
            log.warning("%s", finding)
        return
    kinds: dict[FindingKind, list[Finding]] = {}
    for finding in chain(*findings):
        kinds.setdefault(finding.kind, []).append(finding)
    for same in kinds.values():
        most = max(abs(finding.nats) for finding in same)
        said = same[0].described(f"up to {most:.3g} nats a row")
        log.warning("in %d of %d fits, %s", len(same), len(findings), said)
