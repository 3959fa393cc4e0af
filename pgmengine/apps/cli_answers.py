"""Answers of the command line: printed as tables, or written to files."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from io import BytesIO, StringIO
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from rich.console import Console
from rich.table import Table

import pgmengine as pgm
from pgmengine.base.files import writable, write_whole
from pgmengine.base.types import Array
from pgmengine.declare.summary import headline, parents
from pgmengine.evidence.frames import shown_units, state_keys
from pgmengine.evidence.state_names import text_of
from pgmengine.infer.results.by_name import state_values
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure

# Names of the answers that have an axis of units.
ANSWERS_BY_UNIT = ("mean", "prob", "mode", "samples")


def tables_of_model(model: pgm.Model, title: str) -> list[Table]:
    """Return tables of the variables of a model, of its layers, and of its parameters."""
    s = model.structure
    if not s.variables:
        return [_table_of_layers(model, title), _table_of_parameters(model)]
    out = [_table_of_variables(model, title)]
    if len(s.variables) < s.units:
        out.append(_table_of_layers(model, "layers beside the variables"))
    return [*out, _table_of_parameters(model)] if s.couplings or len(out) > 1 else out


def _table_of_variables(model: pgm.Model, title: str) -> Table:
    """Return a table of the variables, with their states and parents."""
    s = model.structure
    caption = headline(s, model.params)
    out = Table("variable", "states", "parents", "tables", title=title, caption=caption)
    above = parents(s, s.variables)
    inside = Counter(
        place
        for t in s.tables
        if not t.conditional
        for units in t.index.tolist()
        for place in zip(t.layers, units, strict=True)
    )
    for place in s.variables:
        states = ", ".join(map(str, state_keys(s.layers[place[0]])))
        name, tables = s.names.of(place), str(inside[place] or "")
        out.add_row(name, states, ", ".join(above[place]), tables)
    return out


def _table_of_layers(model: pgm.Model, title: str) -> Table:
    """Return a table of the layers whose units are no variables."""
    s = model.structure
    caption = None if s.variables else headline(s, model.params)
    out = Table("layer", "unit or states", "size", title=title, caption=caption)
    for x in shown_units(s):
        if not x.variable:
            states = ", ".join(map(str, state_keys(x.layer))) if x.layer.is_array else ""
            size = " x ".join(map(str, x.layer.grid))
            out.add_row(x.name, states or repr(x.layer.unit), size)
    return out


def _table_of_parameters(model: pgm.Model) -> Table:
    """Return a table of the parameters.

    For a model with variables it leaves out tables, and biases of variables if they are 0.
    """
    s, out = model.structure, Table("parameter", "shape", "smallest", "largest")
    tables = {t.key for t in s.tables} if s.variables else set()
    biases = {f"{name}.bias" for name, _ in s.variables}
    biases |= {f"{name}.bias" for name, layer in s.layers.items() if layer.is_array}
    for name, value in model.params.items():
        dense = np.asarray(value.data if hasattr(value, "tocoo") else value)
        if name in tables or (name in biases and not dense.any()):
            continue
        layer = s.layers.get(name.removesuffix(".bias"))
        held = layer is not None and layer.holds_variables and name in biases
        # A layer that holds variables is only their storage, so each variable gets its own line.
        parts = zip(layer.unit_texts, dense, strict=True) if held and layer else [(name, dense)]
        for one, part in parts:
            low, high = (f"{f(part):.4g}" if np.size(part) else "-" for f in (np.min, np.max))
            shape = np.shape(part) or (1,) if held else value.shape
            axes = "x".join(map(str, shape)) or "1"
            out.add_row(f"{one}.bias" if held else name, axes, low, high)
    return out


def show(*tables: Table) -> None:
    """Print tables; names in them are not interpreted as styles.

    Titles and captions have separate lines, because they may be wider than a table.
    """
    console = Console(markup=False, emoji=False)
    for table in tables:
        title, caption = table.title, table.caption
        table.title = table.caption = None
        for part in (title, table, caption):
            if part:
                console.print(part)


def flat_answers(result: pgm.Result, structure: Structure) -> dict[str, Array]:
    """Return the answers as arrays: "log_z", "mean.v" of layer v, and "prob.rain" of a variable.

    Arrays of a variable have no axis of units. "states.rain" has the names of its states, in the
    order in which "prob.rain" and "mean.rain" have their probabilities.
    """
    arrays: dict[str, Array] = {}
    for name, value in result.answers.items():
        if name == "mean" and "prob" in result.answers:
            value = _by_state(value, result.answers["prob"], structure)
        if name in ANSWERS_BY_UNIT:
            arrays |= {f"{name}.{key}": v for key, v in by_name(name, value, structure).items()}
        elif isinstance(value, Mapping):
            arrays |= {f"{name}.{key}": np.asarray(v) for key, v in value.items()}
        else:
            arrays[name] = np.asarray(value)
    for x in shown_units(structure) if "prob" in result.answers else ():
        if x.variable:
            arrays[f"states.{x.name}"] = np.array(state_keys(x.layer))
    return arrays


def _by_state(
    mean: Mapping[str, Array], prob: Mapping[str, Array], structure: Structure
) -> dict[str, Array]:
    """Return means of layers, and probabilities of states for variables."""
    variables = {name for name, _ in structure.variables}
    return {name: prob[name] if name in variables else value for name, value in mean.items()}


def by_name(answer: str, values: Mapping[str, Array], structure: Structure) -> dict[str, Array]:
    """Return layer or variable -> array; states are given by their names."""
    out: dict[str, Array] = {}
    for x in shown_units(structure):
        if x.layer.name not in values:
            continue
        value = np.asarray(values[x.layer.name])
        named = x.layer.state_table is not None or x.variable
        if answer in ("mode", "samples") and named:
            states = _states_as_text(x.layer, value)
            out[x.name] = states[..., x.units[0]] if x.variable else states
        elif not x.variable:
            out[x.name] = value
        else:
            # Under "mean", a variable has the probabilities of its states.
            out[x.name] = np.asarray(np.take(value, x.units[0], axis=-2))
    return out


def _states_as_text(layer: Layer, values: Array) -> Array:
    """Return names of states as text, empty where a value was withheld.

    States without names stay numbers.
    """
    if (table := layer.state_table) is None:
        return np.asarray(state_values(layer, values))
    texts = np.array(table.texts, dtype=object)
    lost = np.isnan(values) if layer.unit.width == 1 else np.isnan(values).any(axis=-1)
    return np.where(lost, "", texts[layer.unit.state_of(values)]).astype(str)


def columns_of_samples(
    samples: Mapping[str, Array], structure: Structure
) -> list[tuple[str, Array]]:
    """Return a name and the draws (draws, rows) of each unit: variables, then units of layers."""
    layers = []
    for x in shown_units(structure):
        values = _states_as_text(x.layer, np.asarray(samples[x.layer.name]))
        columns = [(structure.names.text((x.layer.name, i)), values[:, :, i]) for i in x.units]
        layers.append((not x.variable, columns))
    return [column for _, columns in sorted(layers, key=itemgetter(0)) for column in columns]


def check_names_in_files(structure: Structure) -> None:
    """Raise PgmError, before any work, if the text of a state's name means another state."""
    for layer in structure.layers.values():
        if layer.state_table is not None:
            for state in range(len(layer.state_table.names)):
                layer.state_table.text(state, layer.title)


def check_folder(out: Path) -> None:
    """Raise PgmError, before any work, unless the file can be written."""
    writable(out)
    if not out.parent.is_dir():
        raise pgm.PgmError(f"{out}: there is no folder {out.parent}")


def check_out(out: Path | None, suffixes: Sequence[str] = (".npz", ".json")) -> None:
    """Raise PgmError unless a file of answers of one of these kinds can be written here."""
    if out is not None and out.suffix not in suffixes:
        *others, last = suffixes
        raise pgm.PgmError(f"out must end in {', '.join(others)} or {last}, not {out}")
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


def write_rows(
    samples: Mapping[str, Array], structure: Structure, file: TextIO, comma: str
) -> None:
    """Write draws as lines of text: the names of the units, then a column for each unit.

    The draws of a row of evidence are adjacent.
    """
    lines = csv.writer(file, delimiter=comma, lineterminator="\n")
    columns = columns_of_samples(samples, structure)
    lines.writerow(name for name, _ in columns)
    texts = ([text_of(x) for x in values.T.ravel().tolist()] for _, values in columns)
    lines.writerows(zip(*texts, strict=True))


def print_draws(named: Mapping[str, Array]) -> None:
    """Print a line for each draw and row of evidence, with the states of all layers."""
    draws, rows = next(iter(named.values())).shape[:2]
    for i, row in np.ndindex(draws, rows):
        head = f"row {row}: " if rows > 1 else ""
        layers = (f"{name}={texts_of_states(value[i, row], ',')}" for name, value in named.items())
        print(head + "  ".join(layers))


def write_csv(out: Path, samples: Mapping[str, Array], structure: Structure) -> None:
    """Write draws to a .csv file."""
    held = StringIO()
    write_rows(samples, structure, held, ",")
    write_whole(out, held.getvalue().encode())
    print(f"wrote {out}")


def _as_json(array: Array) -> Any:
    """Return nested lists, with null for NaN and infinities, which JSON does not have."""
    if array.dtype.kind == "U":
        return array.tolist()
    entries = np.array(array, dtype=object)
    entries[~np.isfinite(array)] = None
    return entries.tolist()


def print_answers(result: pgm.Result, arrays: Mapping[str, Array], title: str) -> None:
    """Print a table of arrays, and warnings to stderr."""
    table = Table("answer", "shape", "values", title=title)
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
    """Print marginals and the mode by the names of variables and states, then other answers."""
    title = f"{result.kind}: {result.plan}"
    table = Table("variable", title=title)
    mode = result.assignment() if "mode" in result.answers else {}
    if "prob" in result.answers:
        table.add_column("probabilities")
    if mode:
        table.add_column("most probable complete state")
    for name in model.variables if table.columns[1:] else ():
        shares = ["  ".join(_shares(result.marginal(name)))] if "prob" in result.answers else []
        table.add_row(name, *shares, *([texts_of_states(mode[name])] if mode else []))
    if table.rows:
        show(table)
    seen = {f"{answer}.{v}" for answer in (*ANSWERS_BY_UNIT, "states") for v in model.variables}
    seen -= {f"samples.{v}" for v in model.variables}
    rest = {name: a for name, a in arrays.items() if name not in seen}
    print_answers(result, rest, "" if table.rows else title)


def texts_of_states(values: object, between: str = " ") -> str:
    """Return a state, or the states of many rows or units, as text."""
    each = np.ravel(np.asarray(values, dtype=object)).tolist()
    return between.join(f"{x:g}" if isinstance(x, float) else text_of(x) for x in each)


def _shares(marginal: Mapping[Hashable, float | Array]) -> list[str]:
    """Return "state 0.25" for each state, with a number for each row."""
    return [
        f"{state} {' '.join(f'{p:.4f}' for p in np.atleast_1d(np.asarray(prob)))}"
        for state, prob in marginal.items()
    ]
