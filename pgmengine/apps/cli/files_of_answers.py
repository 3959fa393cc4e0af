"""Answers of the command line in files: .npz, .json and .csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import BytesIO, StringIO
from operator import itemgetter
from pathlib import Path
from typing import TextIO

import numpy as np

import pgmengine as pgm
from pgmengine.apps.cli.json_text import as_json, json_text
from pgmengine.base.files import writable, write_whole
from pgmengine.base.types import Array
from pgmengine.evidence.frames import shown_units, state_keys
from pgmengine.infer.results.by_name import state_values
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import text_of
from pgmengine.model.structure import Structure

# Names of the answers that have an axis of units.
ANSWERS_BY_UNIT = ("mean", "prob", "mode", "samples")


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
        content = json_text({name: as_json(value) for name, value in arrays.items()}).encode()
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


def write_csv(out: Path, samples: Mapping[str, Array], structure: Structure) -> None:
    """Write draws to a .csv file."""
    held = StringIO()
    write_rows(samples, structure, held, ",")
    write_whole(out, held.getvalue().encode())
    print(f"wrote {out}")
