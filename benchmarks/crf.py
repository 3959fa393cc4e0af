"""Conditional random fields of chains beside CRFsuite, on sentences that are simulated here.

    python benchmarks/crf.py [--sentences 2000] [--out benchmarks/results/crf.md]

Both libraries get the same lists of dicts of features, have weights for every pair of a feature
and a label and for every pair of labels, and end when ten iterations have lowered the objective by
less than 1e-6 of it. Times are of whole calls, from the lists to the learned weights, or to the
labels. Without python-crfsuite the tables have our numbers alone.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from apart import interleaved, put_block, table

from pgmengine.base.work.threads import threads
from pgmengine.sklearn import ChainCRF

# Fall of the objective in ten iterations, as a share of it, with which learning ends.
TOLERANCE = 1e-6

Sentences = tuple[list[list[dict[str, float]]], list[list[str]]]


def corpus(
    sentences: int, labels: int, features: int, active: int = 10, seed: int = 0
) -> Sentences:
    """Return features and labels of sentences of a random chain, of 21 steps on average.

    Each step draws `active` features whose shares fall as those of words do, and depend on the
    label.
    """
    rng = np.random.default_rng(seed)
    move = rng.dirichlet(np.full(labels, 0.3), size=labels)
    share = 1 / np.arange(1, features + 1)
    emit = np.array([rng.permutation(share) for _ in range(labels)]) + 3 * share
    emit = (emit / emit.sum(axis=1, keepdims=True)).cumsum(axis=1)
    X, y = [], []
    for steps in 1 + rng.poisson(20, sentences):
        path = [int(rng.integers(labels))]
        while len(path) < steps:
            path.append(int(rng.choice(labels, p=move[path[-1]])))
        drawn = [np.searchsorted(emit[k], rng.random(active)).clip(0, features - 1) for k in path]
        X.append([{f"f{j}": 1.0 for j in row} for row in drawn])
        y.append([f"L{k:02}" for k in path])
    return X, y


def learned(data: Sentences, l1: float, l2: float, notes: dict[str, Any]) -> ChainCRF:
    """Return our fit, and note its objective and iterations."""
    crf = ChainCRF(l1, l2, tol=TOLERANCE).fit(*data)
    notes["pgmengine"] = (
        crf.objective_,
        crf.n_iter_,
        sum(map(np.count_nonzero, (crf.coef_, crf.transitions_))),
    )
    return crf


def crfsuite(data: Sentences, l1: float, l2: float, path: Path, notes: dict[str, Any]) -> None:
    """Learn by CRFsuite into a file, and note the objective and the iterations."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    for x, labels in zip(*data, strict=True):
        trainer.append(x, labels)
    every = {"feature.possible_states": True, "feature.possible_transitions": True}
    end = {"delta": TOLERANCE, "epsilon": 1e-9, "max_iterations": 1000}
    trainer.set_params({"c1": l1, "c2": l2} | every | end)
    trainer.train(str(path))
    last = trainer.logparser.last_iteration
    notes["CRFsuite"] = last["loss"], last["num"], last["active_features"]


def tagged(data: Sentences, path: Path) -> None:
    """Predict all labels by CRFsuite."""
    import pycrfsuite

    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    for x in data[0]:
        tagger.tag(x)


def times(values: list[float]) -> str:
    """Return the median of some seconds with the smallest and the largest."""
    shown = [f"{x:.3g}" for x in (statistics.median(values), min(values), max(values))]
    return f"{shown[0]} s ({shown[1]} to {shown[2]})"


def fits(data: Sentences, repeats: int, path: Path) -> list[list[str]]:
    """Return the lines of learning with l2 alone and with l1 alone."""
    lines = []
    for l1, l2 in ((0.0, 1.0), (1.0, 0.0)):
        notes: dict[str, Any] = {}
        cases: dict[str, Callable[[], Callable[[], Any]]] = {
            "pgmengine": partial(partial, learned, data, l1, l2, notes)
        }
        if find_spec("pycrfsuite"):
            cases["CRFsuite"] = partial(partial, crfsuite, data, l1, l2, path, notes)
        lines += compared(f"l1 = {l1:g}, l2 = {l2:g}", cases, repeats, notes)
    return lines


def predictions(data: Sentences, repeats: int, path: Path) -> list[list[str]]:
    """Return the lines of predicting the labels of all sentences."""
    crf = learned(data, 0.0, 1.0, {})
    cases: dict[str, Callable[[], Callable[[], Any]]] = {
        "pgmengine": partial(partial, crf.predict, data[0])
    }
    if find_spec("pycrfsuite"):
        cases["CRFsuite"] = partial(partial, tagged, data, path)
    return compared("labels of all sentences", cases, repeats, {})


def compared(
    what: str,
    cases: dict[str, Callable[[], Callable[[], Any]]],
    repeats: int,
    notes: dict[str, Any],
) -> list[list[str]]:
    """Measure cases in turn, print a line for each, and return the lines."""
    found, lines = interleaved(cases, repeats), []
    for who, seconds in found.items():
        ratio = statistics.median(seconds) / statistics.median(found["pgmengine"])
        value, count, weights = notes.get(who, (None, None, None))
        said = ["", "", ""] if value is None else [f"{value:.3f}", str(count), f"{weights:,}"]
        lines.append([what, who, times(seconds), f"{ratio:.3g}", *said])
        print("; ".join(cell for cell in lines[-1] if cell), flush=True)
    return lines


def main(
    sentences: Annotated[int, typer.Option(help="sentences")] = 2000,
    labels: Annotated[int, typer.Option(help="labels")] = 20,
    features: Annotated[int, typer.Option(help="features")] = 10_000,
    repeats: Annotated[int, typer.Option(help="repeats of a time")] = 3,
    out: Annotated[Path | None, typer.Option(help="a file whose block is replaced")] = None,
) -> None:
    """Measure, print every line when it is done, and write a block of Markdown."""
    load, data = os.getloadavg()[0], corpus(sentences, labels, features)
    path = Path(tempfile.mkdtemp()) / "model.crfsuite"
    lines = fits(data, repeats, path) + predictions(data, repeats, path)
    if out is not None:
        count = "one thread" if threads() == 1 else f"{threads()} threads"
        columns = ("task", "library", "time", "ratio", "objective", "iterations", "weights")
        note = (
            f"{sentences:,} sentences, {sum(map(len, data[1])):,} steps, {labels} labels, "
            f"{features:,} features of which 10 are present at a step; {count} here, one in "
            f"CRFsuite. Load of the machine at the start: {load:.1f}."
        )
        text = f"## Chains of labels, {count}\n\n{note}\n\n{table(columns, lines)}\n"
        put_block(out, f"crf.py {count}", text)


if __name__ == "__main__":
    typer.run(main)
