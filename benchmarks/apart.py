"""Jobs in processes of their own, with limits of time and memory, and blocks of Markdown.

A job runs in a fork, so that it meets no caches of other jobs, and its peak memory is its own. Its
limits are those of the competitions: seconds of the processor, which other work on the machine
changes little, and bytes of address space.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GIB = 2**30


@dataclass(frozen=True)
class Outcome:
    """The end of a job: its value, or how it failed; seconds of the processor, and peak memory."""

    value: Any
    failed: str
    seconds: float
    gib: float


def apart(job: Callable[[], Any], seconds: float, gib: float) -> Outcome:
    """Run a job in a fork and return its outcome; a value has to be picklable."""
    sys.stdout.flush()
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        _limited(job, seconds, gib, sink)
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        sent = file.read()
    _, status, used = os.wait4(child, 0)
    spent, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    if sent:
        value, failed = pickle.loads(sent)
        return Outcome(value, failed, spent, peak)
    number = os.waitstatus_to_exitcode(status)
    over = number == -signal.SIGPROF
    failed = f"over {seconds:g} s" if over else f"ended with status {number}"
    return Outcome(None, failed, spent, peak)


def _limited(job: Callable[[], Any], seconds: float, gib: float, sink: int) -> None:
    """Run a job in this process, send what it returned, and end the process."""
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        resource.setrlimit(resource.RLIMIT_AS, (int(gib * GIB),) * 2)
        try:
            answer = job(), ""
        except BaseException as error:
            answer = None, f"{type(error).__name__}: {error}".splitlines()[0]
        with os.fdopen(sink, "wb") as file:
            pickle.dump(answer, file)
    finally:
        os._exit(0)


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and its value.

    The clock is the one on the wall: the clock of the processor has ticks of 4 ms in some places.
    """
    begin = time.perf_counter()
    value = work()
    return time.perf_counter() - begin, value


def interleaved(
    cases: dict[str, Callable[[], Callable[[], Any]]], repeats: int
) -> dict[str, list[float]]:
    """Return the seconds of each case, A B A B; a case makes the call whose time counts."""
    times: dict[str, list[float]] = {who: [] for who in cases}
    for _ in range(repeats):
        for who, make in cases.items():
            times[who].append(spent(make())[0])
    return times


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def put_block(path: Path, name: str, text: str) -> None:
    """Write a block of Markdown into a file, in place of the block of the same name."""
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    block = f"{first}\n{text}\n{last}"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    pattern = re.compile(re.escape(first) + ".*?" + re.escape(last), flags=re.S)
    if pattern.search(old):
        new = pattern.sub(lambda _: block, old, count=1)
    else:
        new = f"{old.rstrip()}\n\n{block}\n".lstrip()
    path.write_text(new, encoding="utf-8")
