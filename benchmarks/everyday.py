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
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from apart import apart, put_block, table
from calls import OURS, Answer, Call, Given, hidden_classes, labelled_chains, sampled, with_sklearn
from exact import one_core, shown, wrapped

ROOMS = (hidden_classes, labelled_chains, with_sklearn, sampled)
SCALES = ("full", "small")
# Seconds of a row after which no further round begins, and memory of a case in GiB.
ENOUGH, GIB = 120.0, 12.0
COLUMNS = ("call", "library", "time", "ratio", "quality", "as good", "notes", "asked")


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


def lines_of(call: Call, found: dict[tuple[str, str], list[Answer | str]]) -> Iterator[list[str]]:
    """Yield a line of the table for each library."""
    own = middle(found[call.name, OURS])
    for library, case in call.cases.items():
        answers = found[call.name, library]
        answer = middle(answers)
        if answer is None:
            why = next((a for a in answers if isinstance(a, str)), "absent" if case is None else "")
            limit = missed(call) if why and library == OURS else ""
            yield [call.name, library, why.replace("|", "/"), "", "", "", "", limit]
            continue
        times = [a.seconds for a in answers if isinstance(a, Answer)]
        ratio = f"{answer.seconds / own.seconds:.3g}" if own else ""
        good = None if own is None or library == OURS else call.as_good(own, answer)
        yield [
            call.name,
            library,
            in_words(times),
            ratio,
            "" if answer.quality is None else f"{call.measure} {number(answer)}",
            "" if good is None else "yes" if good else "no",
            answer.note,
            asked(call, library, answer, own),
        ]


def in_words(times: list[float]) -> str:
    """Return the median of some seconds, with the smallest and the largest."""
    middle = shown(statistics.median_low(times))
    return f"{middle} ({shown(min(times))} to {shown(max(times))})" if len(times) > 1 else middle


def missed(call: Call) -> str:
    """Return what is asked of a time that there is not."""
    return "" if call.limit is None else f"at most {shown(call.limit)}: {reached(False)}"


def asked(call: Call, library: str, answer: Answer, own: Answer | None) -> str:
    """Return what is asked of a time, and whether it was reached."""
    if library == OURS:
        if call.limit is None:
            return ""
        return f"at most {shown(call.limit)}: {reached(answer.seconds <= call.limit)}"
    if library not in call.over or own is None:
        return ""
    ratio = answer.seconds / own.seconds
    return f"ratio of {call.over[library]:.2g}: {reached(ratio >= call.over[library])}"


def reached(yes: bool) -> str:
    """Return a word for the end of a comparison."""
    return "reached" if yes else "not reached"


def page(calls: list[Call], journal: Journal) -> str:
    """Return the table of all measured rows."""
    found = journal.found()
    measured = [call for call in calls if any((call.name, who) in found for who in call.cases)]
    return table(COLUMNS, [line for call in measured for line in lines_of(call, found)])


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
