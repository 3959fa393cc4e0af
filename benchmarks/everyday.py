"""Calls as users write them, beside numpy by hand and the best peers: time and quality.

    python benchmarks/everyday.py --data FOLDER --journal FILE [--only TEXT] [--scale small]
        [--repeats 3] [--patience 300] [--out benchmarks/results/everyday.md]

FOLDER has the folder mnist; without it, the rows about digits have random images. The peers are
scikit-learn, hmmlearn and python-crfsuite (benchmarks/requirements.txt), and plain lines of numpy;
one that is not installed is reported as absent. Every case runs in a process of its own on one
core, all cases of a row in turn, and a time is the median of the repeats. It is the time of the
whole first call by the clock, without imports. A case that takes longer than --patience seconds of
the processor, or that fails, is reported as such.

Each measurement is added to the journal as a line of JSON, and is not made again when the command
is run with the same journal: it goes on where it was interrupted. `--out` writes all rows of the
journal into a page. `--scale small` tries every case once on small sizes.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from apart import apart, put_block, table
from calls import (
    OURS,
    Answer,
    Call,
    Case,
    Given,
    hidden_classes,
    labelled_chains,
    sampled,
    with_sklearn,
)
from exact import one_core, shown, wrapped

ROOMS = (hidden_classes, labelled_chains, with_sklearn, sampled)
SCALES = ("full", "small")
# Seconds of a row after which no further round begins, and memory of a case in GiB.
ENOUGH, GIB = 120.0, 12.0
COLUMNS = ("call", "pgmengine", "others (ratio of times)", "quality", "asked")


@dataclass(frozen=True)
class Journal:
    """Measurements in a file, a line each: the call, the library, and an answer or a failure."""

    path: Path
    scale: str

    def found(self) -> dict[tuple[str, str], list[Answer | str]]:
        """Return (call, library) -> the measurements of this scale, failures as text."""
        out: dict[tuple[str, str], list[Answer | str]] = defaultdict(list)
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for line in map(json.loads, lines):
            if line["scale"] == self.scale:
                answer = line["failed"] or Answer(**line["answer"])
                out[line["call"], line["library"]].append(answer)
        return out

    def add(self, call: str, library: str, answer: Answer | None, failed: str) -> None:
        """Write a measurement."""
        line = {"scale": self.scale, "call": call, "library": library, "failed": failed}
        line["answer"] = None if answer is None else asdict(answer)
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def measure(call: Call, journal: Journal, repeats: int, patience: float) -> None:
    """Run every case in turn until each has been measured often enough, or has failed."""
    spent = 0.0
    for round_ in range(repeats):
        if round_ and spent > ENOUGH:
            return
        for library, case in call.cases.items():
            before = journal.found()[call.name, library]
            spent += sum(one.seconds for one in before[round_:] if isinstance(one, Answer))
            failed = any(isinstance(one, str) for one in before)
            if case is None or failed or len(before) > round_:
                continue
            done = apart(case, patience, GIB)
            journal.add(call.name, library, done.value, done.failed)
            spent += done.seconds
            print(f"{call.name}; {library}: {done.failed or said(done.value)}", flush=True)


def said(answer: Answer) -> str:
    """Return an answer in words."""
    quality = "" if answer.quality is None else f", {number(answer)}"
    return f"{shown(answer.seconds)}{quality}, {answer.note}"


def number(answer: Answer) -> str:
    """Return the quality with its error."""
    error = f" ± {answer.error:.2g}" if answer.error else ""
    return f"{answer.quality:.7g}{error}"


def middle(answers: list[Answer | str]) -> Answer | None:
    """Return the answer of the median time, None if there is none."""
    good = sorted((a for a in answers if isinstance(a, Answer)), key=lambda a: a.seconds)
    return good[(len(good) - 1) // 2] if good else None


def line_of(call: Call, found: dict[tuple[str, str], list[Answer | str]]) -> list[str]:
    """Return the line of a call in the table."""
    times = {who: in_words(case, found[call.name, who]) for who, case in call.cases.items()}
    own = middle(found[call.name, OURS])
    others = {who: middle(found[call.name, who]) for who in call.cases if who != OURS}
    quality, wanted = (
        [] if own is None or own.quality is None else [number(own)],
        [asked(call, own)],
    )
    for who, other in others.items():
        if own and other:
            ratio = other.seconds / own.seconds
            times[who] += f" ({ratio:.3g})"
            if who in call.over:
                wanted.append(f"{call.over[who]:.2g} of {who}: {reached(ratio >= call.over[who])}")
        if other and other.quality is not None:
            worse = own is not None and not call.as_good(own, other)
            quality.append(f"{who} {number(other)}{', better' * worse}")
    note = f", {own.note}" if own and own.note else ""
    beside = "; ".join(f"{who} {times[who]}" for who in others)
    measured = f"{call.measure} {'; '.join(quality)}" if quality else ""
    return [call.name, times[OURS] + note, beside, measured, "; ".join(filter(None, wanted))]


def in_words(case: Case | None, answers: list[Answer | str]) -> str:
    """Return the median of the times with the smallest and the largest, or why there is none."""
    times = [a.seconds for a in answers if isinstance(a, Answer)]
    if not times:
        why = next((a for a in answers if isinstance(a, str)), "")
        return f"`{why.replace('|', '/').replace(';', ',')}`" if why else "absent" * (case is None)
    median = shown(statistics.median_low(times))
    return f"{median} ({shown(min(times))} to {shown(max(times))})" if len(times) > 1 else median


def asked(call: Call, own: Answer | None) -> str:
    """Return the limit of the time of pgmengine, and whether it was reached."""
    if call.limit is None:
        return ""
    return f"at most {shown(call.limit)}: {reached(own is not None and own.seconds <= call.limit)}"


def reached(yes: bool) -> str:
    """Return a word for the end of a comparison."""
    return "reached" if yes else "not reached"


def page(calls: list[Call], journal: Journal) -> str:
    """Return the table of all measured rows."""
    found = journal.found()
    measured = [call for call in calls if any((call.name, who) in found for who in call.cases)]
    return table(COLUMNS, [line_of(call, found) for call in measured])


def main(
    data: Annotated[Path | None, typer.Option(help="the folder of mnist")] = None,
    journal: Annotated[Path | None, typer.Option(help="a file of measurements")] = None,
    only: Annotated[str, typer.Option(help="rows whose name contains this")] = "",
    scale: Annotated[str, typer.Option(help="full or small")] = "full",
    repeats: Annotated[int, typer.Option(help="rounds of every row")] = 3,
    patience: Annotated[float, typer.Option(help="limit of a case in seconds")] = 300.0,
    out: Annotated[Path | None, typer.Option(help="a file whose table is replaced")] = None,
) -> None:
    """Measure, print every measurement when it is done, and write the table."""
    if scale not in SCALES:
        raise typer.BadParameter(f"--scale must be one of {SCALES}, not {scale!r}")
    one_core()
    # Short fits would say that they learned little.
    logging.getLogger("pgmengine").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder)
        given = Given(scale == "small", data, kept)
        calls = [call for room in ROOMS for call in room.calls(given)]
        chosen = [call for call in calls if only in call.name]
        if not chosen:
            raise typer.BadParameter(f"no row contains {only!r}")
        notes, load = Journal(journal or kept / "journal.jsonl", scale), os.getloadavg()[0]
        for call in chosen:
            measure(call, notes, 1 if given.small else repeats, patience)
            if out is not None:
                text = f"One core. Load of the machine at the start: {load:.1f}."
                put_block(out, "everyday.py calls", f"{wrapped(text)}\n\n{page(calls, notes)}")


if __name__ == "__main__":
    typer.run(main)
