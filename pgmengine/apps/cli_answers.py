"""Answers as the command line prints them, as tables, or writes them to .npz and .json files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Hashable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import pgmengine as pgm
from pgmengine.base.files import writable, write_whole
from pgmengine.base.types import Array
from pgmengine.io.network import network_of


def table_of_variables(model: pgm.Model, title: str) -> Table:
    """Return a table of the variables of a model, with their states and conditionals."""
    network = network_of(model)
    entries = sum(c.values.size for c in network.conditionals)
    entries += sum(t.values.size for t in network.tables)
    out = Table(
        "variable",
        "states",
        "parents",
        "tables",
        title=title,
        caption=f"{len(network.names)} variables, {len(network.conditionals)} conditionals, "
        f"{len(network.tables)} tables, {entries} entries",
    )
    parents = {
        c.child: ", ".join(network.names[p] for p in c.parents) for c in network.conditionals
    }
    inside = Counter(i for t in network.tables for i in t.scope)
    for i, (name, states) in enumerate(zip(network.names, network.states, strict=True)):
        out.add_row(name, ", ".join(states), parents.get(i, ""), str(inside[i] or ""))
    return out


def show(*tables: Table) -> None:
    """Print tables, whose names are not read as styles."""
    Console(markup=False, emoji=False).print(*tables)


def flat_answers(result: pgm.Result) -> dict[str, Array]:
    """Return the answers as arrays: "log_z", and "mean.v" for the mean of layer v."""
    arrays: dict[str, Array] = {}
    for name, value in result.answers.items():
        if isinstance(value, Mapping):
            arrays |= {f"{name}.{key}": np.asarray(v) for key, v in value.items()}
        else:
            arrays[name] = np.asarray(value)
    return arrays


def check_folder(out: Path) -> None:
    """Raise PgmError, before any work, unless the file can be written."""
    writable(out)
    if not out.parent.is_dir():
        raise pgm.PgmError(f"{out}: there is no folder {out.parent}")


def check_out(out: Path | None) -> None:
    """Raise PgmError unless a file of answers can be written here."""
    if out is not None and out.suffix not in (".npz", ".json"):
        raise pgm.PgmError(f"out must end in .npz or .json, not {out}")
    if out is not None:
        check_folder(out)


def write(out: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to a .npz or .json file."""
    if out.suffix == ".npz":
        held = BytesIO()
        # The stubs of numpy take the names for its option allow_pickle.
        np.savez_compressed(held, **arrays)  # type: ignore[arg-type]
        content = held.getvalue()
    else:
        named = {name: _as_json(value) for name, value in arrays.items()}
        content = json.dumps(named, allow_nan=False).encode()
    write_whole(out, content)
    print(f"wrote {out}")


def _as_json(array: Array) -> Any:
    """Return nested lists, with null for NaN and infinities, which JSON does not have."""
    entries = array.astype(object)
    entries[~np.isfinite(array)] = None
    return entries.tolist()


def print_answers(result: pgm.Result, arrays: Mapping[str, Array]) -> None:
    """Print a table of arrays, and warnings to stderr."""
    table = Table("answer", "shape", "values", title=f"{result.kind}: {result.plan}")
    for name, array in arrays.items():
        text = np.array2string(
            array, precision=4, suppress_small=True, threshold=60, max_line_width=80
        )
        table.add_row(name, str(array.shape), text)
    if arrays:
        show(table)
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def print_by_name(model: pgm.Model, result: pgm.Result, arrays: Mapping[str, Array]) -> None:
    """Print marginals and the mode by the names of variables and states, and other answers."""
    table = Table("variable", title=f"{result.kind}: {result.plan}")
    mode = result.assignment() if "mode" in result.answers else {}
    if "prob" in result.answers:
        table.add_column("probabilities")
    if mode:
        table.add_column("most probable complete state")
    for name in model.variables if table.columns[1:] else ():
        shares = ["  ".join(_shares(result.marginal(name)))] if "prob" in result.answers else []
        table.add_row(name, *shares, *([str(mode[name])] if mode else []))
    if table.rows:
        show(table)
    by_name = ("prob.", "mean.", "mode.")
    print_answers(result, {n: a for n, a in arrays.items() if not n.startswith(by_name)})


def _shares(marginal: Mapping[Hashable, float | Array]) -> list[str]:
    """Return "state 0.25" for each state, with a number for each row."""
    return [
        f"{state} {' '.join(f'{p:.4f}' for p in np.atleast_1d(np.asarray(prob)))}"
        for state, prob in marginal.items()
    ]
