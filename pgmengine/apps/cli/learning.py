"""The command `learn`: parameters from a table, and how far to trust them.

The choices are the ones of `pgm.fit`. The log-likelihood of the rows is measured where it is exact
and takes little time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer

import pgmengine as pgm
from pgmengine.apps.cli.answers import check_folder, json_text
from pgmengine.apps.reading.calls import NEGATIVES, OPTIMIZERS, read_call
from pgmengine.apps.reading.inputs import read_arrays, read_model, read_table
from pgmengine.base.display import counted, few
from pgmengine.base.files import shown
from pgmengine.declare.networks.edges import parents_of_edges
from pgmengine.io.formats import WRITERS
from pgmengine.io.network import network_of
from pgmengine.io.opened import named, suffix_of
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.loop import unlogged
from pgmengine.learn.steps.wrappers import holds
from pgmengine.model.containers import array_of, with_nan

# The exit status after Ctrl-C, as is usual for shells.
STATUS_INTERRUPTED = 130

# Seconds on one core that the log-likelihood of the rows may take, by its plan.
MAX_SECONDS_OF_LIKELIHOOD = 2.0


@dataclass(frozen=True)
class Settings:
    """The options of `learn` as texts and numbers; None is the default of `pgm.fit`."""

    optimizer: str | None
    negative: str | None
    given: str | None
    epochs: int | None
    batch_size: int
    seed: int
    json: bool


@dataclass(frozen=True)
class Rows:
    """The size of a table of data.

    Attributes
    ----------
    count : its rows.
    cells : its cells.
    empty : cells that are not observed.
    hidden : variables and layers that have no column.
    """

    count: int
    cells: int
    empty: int
    hidden: tuple[str, ...]


def learned(model: Path, data: Path, out: Path | None, settings: Settings) -> None:
    """Learn the model in a file from data, write it, and print what was done."""
    m = read_model(model, settings.seed)
    out = _place(m, model, out)
    _learn(m, read_arrays(m, data, "data"), out, settings)


def learned_by_edges(edges: str, data: Path, out: Path | None, settings: Settings) -> None:
    """Declare a network from a table of data, learn it, write it, and print what was done."""
    table = read_table(data, parents_of_edges(edges))
    # Arrays are columns, where short lists of different names would be states.
    columns = {name: with_nan(array_of(cells, name)) for name, cells in table.items()}
    m = pgm.network(columns, edges)
    out = _place(m, data, out)
    if not settings.json:
        print(m)
    left_out = m.structure.left_out
    # With an axis of one unit the values are rows, and not one one-hot row.
    values = {name: x[:, None] for name, x in columns.items() if name not in left_out}
    _learn(m, values, out, settings)


def _learn(m: pgm.Model, values: dict[str, Any], out: Path, settings: Settings) -> None:
    """Learn a model, write it, and print what was done."""
    rows = _rows(m, values)
    options: dict[str, Any] = {}
    if settings.optimizer is not None:
        options["optimizer"] = read_call(settings.optimizer, "optimizer", OPTIMIZERS)
    if settings.negative is not None:
        options["negative"] = read_call(settings.negative, "negative", NEGATIVES)
    if settings.given is not None:
        options["given"] = tuple(x.strip() for x in settings.given.split(",") if x.strip())
    # The line on trust says the findings.
    with unlogged():
        found = pgm.fit(
            m,
            values,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            rng=settings.seed,
            **options,
        )
    if found.interrupted:
        beside = out.with_name(f"{out.stem}.interrupted{out.suffix}")
        _write(found, beside)
        print(
            f"pgmengine: interrupted after {counted(_updates(found), 'update')}: {shown(out)} is "
            f"as it was, and what was learned is in {shown(beside)}",
            *_advice(found),
            sep="\n",
            file=sys.stderr,
        )
        raise typer.Exit(STATUS_INTERRUPTED)
    _write(found, out)
    scores = _scores(m, found.model, values) if settings.given is None else None
    if settings.json:
        print(json_text(_as_json(found, rows, scores, out)))
    else:
        for line in _lines(found, rows, scores):
            print(line)
        print(f"wrote {shown(out)} after {counted(_updates(found), 'update')}")


def _updates(fit: pgm.Fit) -> int:
    """Return the number of updates."""
    return int(fit.state["update"])


def _place(model: pgm.Model, source: Path, out: Path | None) -> Path:
    """Return the file to write; PgmError, before any work, if it cannot be written.

    Without `out`, it is a new file in the present folder.
    """
    if out is None:
        name = source.name.partition(".")[0]
        out = Path(f"{'network' if name == '-' else name}.learned.safetensors")
        if out.exists():
            raise pgm.PgmError(
                f"{shown(out)} exists: name the file to write, or to replace, by --out FILE"
            )
    suffix = suffix_of(out)
    if suffix not in ("", ".safetensors", *WRITERS):
        raise pgm.PgmError(
            f"out must end in .safetensors, or in {', '.join(WRITERS)}, not {shown(out)}"
        )
    check_folder(out)
    if suffix in WRITERS:
        with named(out):
            WRITERS[suffix](network_of(model))
    return out


def _write(fit: pgm.Fit, out: Path) -> None:
    """Write a learned model in the format of its suffix."""
    if suffix_of(out) in WRITERS:
        pgm.write(fit, out)
    else:
        pgm.save(fit, out)


def _rows(model: pgm.Model, values: Mapping[str, Any]) -> Rows:
    """Return the size of the data."""
    s, arrays = model.structure, {name: np.asarray(x) for name, x in values.items()}
    empty = sum(int(np.sum(x != x)) for x in arrays.values())
    seen = {s.names.place(name) or (name, None) for name in arrays}
    whole = {layer for layer, unit in seen if unit is None}
    every = [(place, s.names.of(place)) for place in s.variables]
    hidden = [name for place, name in every if place not in seen and place[0] not in whole]
    layers = {name for name, _ in s.variables} | s.names.storage | {layer for layer, _ in seen}
    hidden += [name for name in s.layers if name not in layers]
    count = max((len(x) for x in arrays.values() if x.ndim), default=1)
    return Rows(count, sum(x.size for x in arrays.values()), empty, tuple(hidden))


def _scores(before: pgm.Model, after: pgm.Model, data: Any) -> tuple[float, float] | None:
    """Return the mean log-likelihood of the rows before and after learning, in nats.

    None where it would be an estimate, or would take long.
    """
    found = list[float]()
    for model in (before, after):
        try:
            plan = pgm.explain(model, data, ("log_prob",)).chosen
        except pgm.PgmError:
            # Data that are no evidence, such as values of given layers, have no likelihood.
            return None
        if plan is None or plan.guarantee != "exact" or plan.seconds > MAX_SECONDS_OF_LIKELIHOOD:
            return None
        found.append(float(np.mean(pgm.infer(model, data, ("log_prob",), progress=False).log_prob)))
    return found[0], found[1]


def _lines(fit: pgm.Fit, rows: Rows, scores: tuple[float, float] | None) -> Iterator[str]:
    """Yield the data, the parts of the fit, the likelihood, and how far to trust it."""
    yield f"data: {_text_of_rows(rows)}"
    for line in repr(fit).splitlines():
        # The line on trust says the findings.
        if not line.startswith("  finding: "):
            yield _in_options(line)
    if scores is not None:
        before, after = scores
        yield (f"log-likelihood of these rows: {after:.6g} nats a row; {before:.6g} before (exact)")
    yield f"trust: {_trust(fit, rows)}"


def _text_of_rows(rows: Rows) -> str:
    """Return the number of rows, and of cells that are empty."""
    empty = (
        f"{rows.empty:,} of {counted(rows.cells, 'cell')} empty" if rows.empty else "no empty cell"
    )
    hidden = f"; not in the data: {few(rows.hidden)}" if rows.hidden else ""
    return f"{counted(rows.count, 'row')}, {empty}{hidden}"


def _trust(fit: pgm.Fit, rows: Rows) -> str:
    """Return how far the learned parameters can be trusted."""
    if fit.findings:
        return f"the model could be much better: {'; '.join(_advice(fit))}"
    if not holds(fit.optimizer, FullBatch):
        return (
            "parameters by gradients of mini-batches; no test found a fault, and nothing proves "
            "that learning has converged: compare a longer fit (--epochs) on rows kept apart"
        )
    if not fit.stopped:
        return "not converged: the passes over the data were used up; give more by --epochs"
    if isinstance(fit.optimizer, pgm.EM):
        if rows.empty == 0 and not rows.hidden:
            return (
                "the maximum, by counting complete data; rows kept apart tell whether it overfits"
            )
        return (
            "a local maximum: expectation maximisation has converged, and other starts may end "
            "higher, EM(starts=...)"
        )
    return "the optimizer has converged; rows kept apart tell whether it overfits"


def _advice(fit: pgm.Fit) -> list[str]:
    """Return the findings of a fit in words."""
    return [_in_options(str(finding)) for finding in fit.findings]


def _in_options(text: str) -> str:
    """Return advice about the arguments of `pgm.fit` as advice about the options of `learn`."""
    text = re.sub(r"(epochs=, )?updates=", "epochs=", text).replace("pgm.", "")
    return re.sub(r"\b(epochs|optimizer|negative)=", r"--\1", text)


def _as_json(
    fit: pgm.Fit, rows: Rows, scores: tuple[float, float] | None, out: Path
) -> dict[str, Any]:
    """Return what was learned, and how far to trust it."""
    before, after = (None, None) if scores is None else scores
    return {
        "file": str(out),
        "updates": _updates(fit),
        "stopped": fit.stopped,
        "optimizer": type(fit.optimizer).__name__,
        "rows": rows.count,
        "cells": rows.cells,
        "empty_cells": rows.empty,
        "not_in_data": list(rows.hidden),
        "log_likelihood": after,
        "log_likelihood_before": before,
        "trust": _trust(fit, rows),
        "notes": [*map(_in_options, fit.notes)],
        "findings": _advice(fit),
        "history": {name: dict(entry) for name, entry in fit.history.items()},
    }
