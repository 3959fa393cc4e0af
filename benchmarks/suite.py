"""The benchmark suite: times of pgmengine on this machine, and their ratios to the times of the
libraries that a user would choose instead.

    pip install -r benchmarks/requirements.txt
    python benchmarks/suite.py [--data DIR] [--weights mnistvh_CD25.mat] [--threads 1 --threads 2]
                               [--only TEXT] [--out benchmarks/results/suite.md]

The peers are optional: a peer that is not installed is reported as absent.

Every room (a group of rows) runs in a process of its own for each number of threads, all cases of a
row in turn, A B A B, medians. The directory holds the MNIST files (and usps/), the weights file
Salakhutdinov's CD25(500) RBM. `--out` replaces the set-up and the tables that were measured in a
file, so that a run of a few rows (`--only`) belongs in another file than a run of all.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import material
import typer
from apart import put_block
from harness import OURS, ROUNDS, Measured, Settings
from peers import PEERS

import pgmengine

# room -> with which of the numbers of threads it runs
ROOMS = {
    "sweeps": list,
    "learning": list,
    "annealing": list,
    "enumeration": list,
    "beliefs": list,
    "overhead": lambda counts: [min(counts)],
    "memory": lambda counts: [min(counts)],
    "scaling": lambda counts: [max(counts)],
    "plans": lambda counts: [min(counts)],
}
# The subject of the table of each room.
SUBJECTS = {
    "sweeps": "Time of one sweep of Markov chains over all free units.",
    "learning": "Time of one update of the parameters.",
    "annealing": "Time of one run of annealed importance sampling.",
    "enumeration": "Time of an exact answer.",
    "beliefs": "Time of the mean-field lower bounds of 1,000 images.",
    "overhead": "Time of an import, and of the smallest question.",
    "memory": "Peak memory of chains.",
    "scaling": (
        "Time of pgmengine alone, as one size grows. Each entry has the size, the time, and the "
        "ratio to the\nfirst entry."
    ),
    "plans": "Seconds of a run, the seconds of its plan, and their ratio.",
}
# A median of fewer rounds is none.
FEWEST_ROUNDS = 3
# Settings of OpenBLAS that choose its kernels.
BLAS_SETTINGS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
POOLS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "PGMENGINE_THREADS",
)


def main(
    data: Annotated[Path | None, typer.Option(help="directory of the MNIST files")] = None,
    weights: Annotated[Path | None, typer.Option(help="mnistvh_CD25.mat")] = None,
    threads: Annotated[
        list[int] | None, typer.Option(help="1 and, where there are 2 cores, 2")
    ] = None,
    only: Annotated[str, typer.Option(help="rows whose 'room: name' contains this")] = "",
    repeats: Annotated[int, typer.Option(help="rounds of every row")] = ROUNDS,
    out: Annotated[Path | None, typer.Option(help="a file whose tables are replaced")] = None,
) -> None:
    """Measure, print every row when it is done, and write the tables."""
    settings = Settings(_path(data), _path(weights), 1, repeats, only)
    head = list(heading(settings))
    print("\n".join(head), flush=True)
    tables: dict[str, list[str]] = {}
    troubles: list[str] = []
    for room, chosen in ROOMS.items():
        for count in chosen(_counts(threads)):
            key = f"{room}, {count} thread{'s' * (count > 1)}"
            for row in measured(room, replace(settings, threads=count), troubles):
                print(
                    f"\n{key}: {row.name}, {row.unit}\n"
                    + "\n".join(f"    {x}" for x in _lines(row)),
                    flush=True,
                )
                tables.setdefault(key, []).append(table_line(row))
                troubles += [
                    f"{key}: {row.name}: {who} failed: {why}" for who, why in row.failed.items()
                ]
    if not tables:
        troubles.append(f"no row contains {only!r}")
    print("\n" + "\n".join(troubles))
    if out is not None:
        for name, text in blocks(head, tables).items():
            put_block(out, f"suite.py {name}", text)
    raise SystemExit(1 if troubles else 0)


def _path(given: Path | None) -> str | None:
    return None if given is None else str(given.resolve())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counts(threads: list[int] | None) -> list[int]:
    chosen = threads or sorted({1, min(2, _cores())})
    if too_many := [n for n in chosen if not 1 <= n <= _cores()]:
        raise typer.BadParameter(f"{too_many[0]} threads on {_cores()} cores")
    return chosen


def heading(settings: Settings) -> Iterator[str]:
    """The computer, the versions, what is measured how, and what no peer can do."""
    python = platform.python_version()
    yield f"{_processor()}, {_cores()} cores, {platform.system()}, Python {python}"
    found = {
        OURS: pgmengine.__version__,
        **{p.name: p.version for p in PEERS},
        "scipy": version("scipy"),
    }
    yield "Versions: " + ", ".join(f"{name} {number}" for name, number in found.items())
    yield f"Matrix products of numpy and scipy: OpenBLAS, kernels for {blas_kernels()}"
    rounds = "a smoke run, no result: " if settings.repeats < FEWEST_ROUNDS else ""
    yield (
        f"{rounds}medians of {settings.repeats} interleaved rounds after one to warm up; every "
        "process may run on as "
        "many cores as it has threads; in brackets how many times pgmengine's time"
    )
    yield from material.described(settings)
    yield from (f"Why {p.name} is not in every row: {p.cannot}" for p in PEERS)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return f"{names[0] if names else platform.machine()}{' with AVX-512' * ('avx512f' in flags)}"


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which numpy runs the kernels of this processor: these two settings choose
    others, which take up to 1.7 times as long.
    """
    return {k: v for k, v in environment.items() if k not in BLAS_SETTINGS}


def blas_kernels() -> str:
    """The kernels that numpy and scipy run in such an environment, from a process of its own."""
    code = (
        "import numpy, scipy.linalg, threadpoolctl as t; print(', '.join(sorted({str(p.get("
        "'architecture')) for p in t.threadpool_info() if p['user_api'] == 'blas'})))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], env=clean(os.environ), capture_output=True, text=True
    )
    return made.stdout.strip() or "unknown"


def measured(room: str, settings: Settings, troubles: list[str]) -> Iterator[Measured]:
    """The rows of a room, from a process of its own."""
    environment = clean(os.environ) | {name: str(settings.threads) for name in POOLS}
    if (
        settings.threads == 1
    ):  # beyond the core that it may run on: no pool that hands work to itself
        environment["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        )
    root = Path(
        pgmengine.__file__
    ).parent.parent  # the same pgmengine, wherever this was started from
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(root), os.environ.get("PYTHONPATH")))
    )
    command = [
        sys.executable,
        str(Path(__file__).parent / "child.py"),
        room,
        json.dumps(asdict(settings)),
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            yield Measured(**json.loads(line))
    if child.returncode:
        troubles.append(
            f"room {room}, {settings.threads} threads: ended with code {child.returncode}"
        )


def _lines(row: Measured) -> list[str]:
    return [line for line in (said(row), row.note, verdict(row)) if line]


def said(row: Measured) -> str:
    """All cases of a row, pgmengine's first."""
    return ", ".join(f"{who} {_value(row, who)}" for who in row.medians)


def _value(row: Measured, who: str) -> str:
    value = row.medians[who]
    if value is None:
        return "failed" if who in row.failed else "absent"
    low, high = row.spans[who]
    # The range shows a noisy computer.
    spread = f" [{low:.3g} .. {high:.3g}]" if high > 1.25 * low else ""
    return f"{value:.3g}{spread}" + (f" ({row.ratios[who]:.2f})" if who in row.ratios else "")


def verdict(row: Measured) -> str:
    """The target of a row, and whether it was reached."""
    ours, words = next(iter(row.medians.values())), []
    if row.limit is not None and ours is not None:
        words.append(f"at most {row.limit:g}: {_reached(ours <= row.limit)}")
    asked = {row.best: row.goal} if row.goal is not None and row.best else {}
    for who, goal in (asked | row.over).items():
        if who in row.ratios:
            words.append(
                f"{goal:g} times {'the best peer, ' * (who in asked)}{who}: "
                f"{_reached(row.ratios[who] >= goal)}"
            )
    return "; ".join(words)


def _reached(yes: bool) -> str:
    return "reached" if yes else "not reached"


def table_line(row: Measured) -> str:
    """The row in a Markdown table."""
    note = f" ({row.note})" if row.note else ""
    return f"| {row.name}{note} | {row.unit} | {said(row)} | {verdict(row)} |"


def blocks(heading_lines: list[str], tables: dict[str, list[str]]) -> dict[str, str]:
    """Return the blocks of Markdown by their names: the set-up, and a table for each group."""
    found = {"set-up": "\n".join(f"- {line}" for line in heading_lines)}
    for title, lines in tables.items():
        head = [
            f"## {title.capitalize()}",
            "",
            SUBJECTS[title.split(",")[0]],
            "",
            "| row | unit | medians | target |",
            "|---|---|---|---|",
        ]
        found[title] = "\n".join(head + lines)
    return found


if __name__ == "__main__":
    typer.run(main)
