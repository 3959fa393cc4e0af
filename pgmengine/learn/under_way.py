"""Fits under way: one, or several of one structure, whose updates are made together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from pgmengine.base.errors import PgmError
from pgmengine.base.work.interrupts import interruptible
from pgmengine.base.work.progress import track
from pgmengine.learn.checkpoint import Saver
from pgmengine.learn.compiled.updates import Call, make
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.monitoring.findings import Watch
from pgmengine.learn.monitoring.history import History
from pgmengine.learn.run import Run

log = logging.getLogger(__name__)


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

    def findings(self, interrupted: bool) -> tuple[Finding, ...]:
        """Return the findings at the end."""
        return self.watch.findings(not interrupted and not self.stopped) + self.run.findings()


def learn(fits: Sequence[UnderWay], progress: bool, saver: Saver | None) -> bool:
    """Make updates up to the last, Ctrl-C or a callback; return whether Ctrl-C has ended them.

    A saver writes the checkpoint of a single fit.
    """
    for one in fits:
        one.stopped = one.history.stops()
        one.watch.begin(one.run.model, one.run.count)
    made, last = (f(one.run.count for one in fits) for f in (min, max))
    total = max(last, *(one.total for one in fits))
    with interruptible() as interrupted:
        for one in fits:
            one.run.allowance.interrupted = interrupted.is_set
        for update in track(range(made + 1, total + 1), "learning", progress):
            # A call may make many updates, up to the next one at which somebody looks.
            if update <= made:
                continue
            active = [one for one in fits if not one.ended]
            if interrupted.is_set() or not active:
                break
            _advance(active, len(fits))
            made = min(one.run.count for one in active)
            if saver is not None:
                saver.now_and_then(fits[0].run, fits[0].history, fits[0].watch)
    for one in fits:
        one.watch.measure(one.run.model, one.run.count)
    return interrupted.is_set()


def _advance(active: Sequence[UnderWay], count: int) -> None:
    """Make some updates of each fit."""
    # All make as many updates, so that a monitor that ends one does not hold up the others.
    most = min(one.due() for one in active)
    calls = [one.run.call(most) for one in active]
    make([call for call in calls if call is not None])
    for number, (one, call) in enumerate(zip(active, calls, strict=True), 1):
        try:
            one.finish(call)
        except PgmError as error:
            where = f"fit {number} of {count}: " if count > 1 else ""
            raise PgmError(f"{where}{error}") from None


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
