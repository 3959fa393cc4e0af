"""Learning from all rows at once: counting and EM beside other libraries.

    python benchmarks/learning.py --data DIRECTORY [--out benchmarks/results/learning.md]

DIRECTORY has the folder bnlearn, with networks as .bif.gz. Data are drawn from the network by a
fixed seed, as a pandas DataFrame of names of states, and every library gets the same ones. A group
whose library is absent has our numbers alone. Each group is a block of Markdown, and `--out`
replaces the block of the same name in a file.

The peer of Bayesian networks is pyAgrum (BNLearner, with its default number of threads). Both add a
pseudocount of 1 to each entry. EM begins at uniform conditionals here, and where pyAgrum begins it;
both end where the log-likelihood changes by at most 1e-4 of its size. To add a row, add a function
that yields lines to GROUPS.
"""

from __future__ import annotations

import gzip
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from apart import apart, interleaved, put_block, spent, table

import pgmengine as pgm

AGRUM = "pyAgrum"
# Change of the log-likelihood, as a share of its size, with which EM ends.
RATE = 1e-4
# The same change in nats a row, of which alarm has about ten.
TOLERANCE = RATE * 10.0
# Limits of one fit of a peer: seconds of the processor, and memory.
PATIENCE, GIB = 2000.0, 8.0


@dataclass(frozen=True)
class Settings:
    """The folder of the data, repeats of a time, numbers of rows, and the share of empty cells."""

    data: Path | None
    repeats: int
    rows: int
    rows_with_holes: int
    share: float


@dataclass(frozen=True)
class Group:
    """A table of results: its title, columns, lines, and a note."""

    title: str
    columns: tuple[str, ...]
    lines: Callable[[Settings], Iterator[list[str]]]
    note: str


def network(settings: Settings, name: str) -> tuple[pgm.Model, Path]:
    """Return a network, and a file of it that other libraries read."""
    assert settings.data is not None
    path = settings.data / "bnlearn" / f"{name}.bif.gz"
    plain = Path(tempfile.mkdtemp()) / f"{name}.bif"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    return pgm.read(path), plain


def drawn(model: pgm.Model, rows: int, seed: int = 0) -> pd.DataFrame:
    """Return draws of a network as names of states, a column for each variable."""
    method = pgm.Forward(draws=rows)
    frame = pgm.infer(model, want=("samples",), method=method, rng=seed).samples_frame()
    return frame.astype(object)


def with_holes(frame: pd.DataFrame, share: float, seed: int = 1) -> pd.DataFrame:
    """Return the frame with a share of its cells empty, at random."""
    kept = np.random.default_rng(seed).random(frame.shape) >= share
    return frame.where(kept, None)


def uniform(model: pgm.Model) -> pgm.Model:
    """Return the network with uniform conditionals, in which every state is possible."""
    keys = [t.key for t in model.structure.tables]
    logs = {key: np.full(model.params[key].shape, 0.0) for key in keys}
    return model.with_params(logs)


def learned(begin: pgm.Model, data: Any, **settings: Any) -> pgm.Fit:
    """Return our fit, without progress."""
    return pgm.fit(begin, data, progress=False, **settings)


def agrum(path: Path, frame: pd.DataFrame, em: bool) -> int:
    """Learn by pyAgrum, and return the number of its iterations."""
    import pyagrum

    net = pyagrum.loadBN(str(path))
    learner = pyagrum.BNLearner(frame.fillna("?"), net, ["?"])
    learner.useSmoothingPrior(1)
    if em:
        learner.useEM(RATE)
    learner.learnParameters(net.dag())
    return int(learner.EMnbrIterations()) if em else 1


def times(values: list[float]) -> str:
    """Return the median of some seconds with the smallest and the largest."""
    shown = [f"{1e3 * x:.4g}" for x in (statistics.median(values), min(values), max(values))]
    return f"{shown[0]} ms ({shown[1]} to {shown[2]})"


def counting(settings: Settings) -> Iterator[list[str]]:
    """Yield the times of the whole call of complete data."""
    yield from counted_network(settings, "alarm")


def counted_network(settings: Settings, name: str) -> Iterator[list[str]]:
    """Yield the times of counting for one network."""
    model, path = network(settings, name)
    frame, begin = drawn(model, settings.rows), uniform(model)
    columns = {key: frame[key].to_numpy() for key in frame}
    cases: dict[str, Callable[[], Callable[[], Any]]] = {
        "pgmengine, DataFrame": lambda: partial(learned, begin, frame),
        "pgmengine, arrays by name": lambda: partial(learned, begin, columns),
    }
    if find_spec("pyagrum"):
        cases[f"{AGRUM}, DataFrame"] = lambda: partial(agrum, path, frame, em=False)
    for case in cases.values():
        case()()
    found = interleaved(cases, settings.repeats)
    ours = statistics.median(found["pgmengine, DataFrame"])
    for who, seconds in found.items():
        ratio = statistics.median(seconds) / ours
        yield [f"{name}, {len(frame):,} rows", who, times(seconds), f"{ratio:.3g}"]


def errors(model: pgm.Model, frame: pd.DataFrame, fitted: pgm.Fit) -> str:
    """Return the share of parameters within three standard errors of those of complete data."""
    whole, inside, total = learned(uniform(model), frame), 0, 0
    for key, seen in _row_counts(model, frame).items():
        p, q = (np.exp(f.model.params[key]) for f in (whole, fitted))
        error = np.sqrt(p * (1 - p) / np.maximum(seen, 1.0)[..., None])
        near = np.abs(p - q) <= 3 * error
        many = np.broadcast_to((seen >= 30)[..., None], near.shape)
        inside, total = inside + int(near[many].sum()), total + int(many.sum())
    return f"{inside} of {total} entries with 30 cases"


def _row_counts(model: pgm.Model, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return how often each row of each conditional occurs in complete data."""
    from pgmengine.evidence.given import make_target
    from pgmengine.learn.full_batch.counting import counted

    target = make_target(model, frame, what="data")
    found = counted(model.structure, target.states, np.ones(target.rows))
    return {key: counts.sum(axis=-1) for key, counts in found.items()}


def missing(settings: Settings) -> Iterator[list[str]]:
    """Yield the times of EM with empty cells."""
    yield from network_with_holes(settings, "alarm")


def network_with_holes(settings: Settings, name: str) -> Iterator[list[str]]:
    """Yield the times of EM for one network."""
    model, path = network(settings, name)
    frame, begin = drawn(model, settings.rows_with_holes), uniform(model)
    holes = with_holes(frame, settings.share)
    what = f"{name}, {len(frame):,} rows, {100 * settings.share:g} % empty"
    steps = pgm.EM(tolerance=TOLERANCE)
    seconds, fitted = spent(partial(learned, begin, holes, optimizer=steps))
    count, near = int(fitted.state["update"]), errors(model, frame, fitted)
    yield [what, "pgmengine", f"{seconds:.3g} s", "1", str(count), near]
    if find_spec("pyagrum"):
        job = apart(lambda: spent(partial(agrum, path, holes, em=True)), PATIENCE, GIB)
        if job.failed:
            yield [what, AGRUM, job.failed, "", "", ""]
        else:
            taken, count = job.value
            yield [what, AGRUM, f"{taken:.3g} s", f"{taken / seconds:.3g}", str(count), ""]


GROUPS = {
    "counting": Group(
        "Counting of complete data",
        ("data", "library", "time of the whole call", "ratio"),
        counting,
        "The call of `fit` with its defaults, from data of names of states to the learned model.",
    ),
    "missing": Group(
        "EM with empty cells",
        ("data", "library", "time", "ratio", "iterations", "within three standard errors"),
        missing,
        "Nearly every row has an evidence pattern of its own. The last column compares with the "
        "conditionals learned from the same rows without empty cells.",
    ),
}


def main(
    data: Annotated[Path | None, typer.Option(help="the folder of bnlearn")] = None,
    only: Annotated[str, typer.Option(help="groups whose name contains this")] = "",
    repeats: Annotated[int, typer.Option(help="repeats of a time")] = 7,
    rows: Annotated[int, typer.Option(help="rows of complete data")] = 10_000,
    rows_with_holes: Annotated[int, typer.Option(help="rows with empty cells")] = 10_000,
    share: Annotated[float, typer.Option(help="share of empty cells")] = 0.2,
    out: Annotated[Path | None, typer.Option(help="a file whose blocks are replaced")] = None,
) -> None:
    """Measure, print every line when it is done, and write a block of Markdown for each group."""
    settings = Settings(data, repeats, rows, rows_with_holes, share)
    if data is None or not (data / "bnlearn").is_dir():
        raise typer.BadParameter("--data must be a folder that has the folder bnlearn")
    for name, group in GROUPS.items():
        if only not in name:
            continue
        load, lines = os.getloadavg()[0], []
        for line in group.lines(settings):
            print(f"{name}: " + "; ".join(cell for cell in line if cell), flush=True)
            lines.append(line)
        note = f"{group.note} Load of the machine at the start: {load:.1f}."
        if out is not None:
            text = f"## {group.title}\n\n{note}\n\n{table(group.columns, lines)}\n"
            put_block(out, f"learning.py {name}", text)


if __name__ == "__main__":
    typer.run(main)
