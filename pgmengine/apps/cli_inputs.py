"""Models, evidence and data as the command line reads them, from files and inline texts."""

from __future__ import annotations

import csv
import json
import math
import os
from io import StringIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

import pgmengine as pgm
from pgmengine.base.files import plain_text, readable, shown
from pgmengine.base.memory import no_room
from pgmengine.graph.named_units import state_number
from pgmengine.graph.validate import as_floats
from pgmengine.io.formats import EVIDENCE, READERS
from pgmengine.io.opened import suffix_of


def read_model(path: Path, seed: int = 0) -> pgm.Model:
    """Return the model of a .toml declaration, a file of the field, or a .safetensors file."""
    if path.suffix == ".toml":
        return pgm.load_declaration(path, rng=seed)
    return pgm.read(path) if suffix_of(path) in READERS else pgm.load(path)


def read_evidence(model: pgm.Model, given: list[str] | None) -> dict[str, Any]:
    """Return evidence from inline texts and files: layer -> array with NaN where not observed."""
    evidence: dict[str, Any] = {}
    for text in given or ():
        # os.path.exists is False for texts that are too long for a file name.
        if "=" in text and not os.path.exists(text):
            found = _inline(model, text)
        else:
            found = read_arrays(model, Path(text))
        if twice := sorted(set(found) & set(evidence)):
            raise pgm.PgmError(f"evidence {text!r}: {twice[0]!r} has been given before")
        evidence |= found
    return evidence


def _inline(model: pgm.Model, text: str) -> dict[str, Any]:
    """Return the evidence of one text: a state of a variable by its name, or values of a layer."""
    key, _, given = text.partition("=")
    name, what = key.strip(), f"evidence {text!r}"
    s = model.structure
    if name in s.places:
        layer, unit = s.places[name]
        state = given.strip()
        named = s.layers[layer].state_names or ()
        number = state_number(s.layers[layer], state, what) if state != "?" else math.nan
        # A layer of one unit takes numbers.
        return {name: [number]} if name in s.layers else {name: state if state in named else number}
    s.layer(name, what=f"{what}: layer")
    return {name: [_number(v, what) for v in given.split(",")]}


def _number(text: str, where: str) -> float:
    """Return a number, or NaN for a question mark or an empty text."""
    text = text.strip()
    try:
        return float("nan") if text in ("?", "") else float(text)
    except ValueError:
        raise pgm.PgmError(f"{where}: {text!r} is not a number or ?") from None


def read_arrays(model: pgm.Model, path: Path) -> dict[str, Any]:
    """Return arrays by layer from a .npz, .csv or .json file; a .csv is for the first layer."""
    place = shown(path)
    readers = {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}
    if suffix_of(path) == EVIDENCE:
        return dict(pgm.read_evidence(path, model))
    if path.suffix not in readers:
        raise pgm.PgmError(f"evidence file {place}: expected .npz, .csv, .json or .evid")
    try:
        return readers[path.suffix](model, readable(path))
    except pgm.PgmError as error:
        why = str(error).removeprefix(f"{place}: ")
        raise pgm.PgmError(f"evidence file {place}: {why}") from None
    except Exception as error:
        # numpy, zipfile, json and csv raise a dozen kinds of errors for damaged files.
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise pgm.PgmError(f"evidence file {place} cannot be read: {why}") from None


def _read_npz(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the arrays of an archive by their names."""
    with ZipFile(place) as parts:
        needed = sum(part.file_size for part in parts.infolist())
    if why := no_room(2 * needed, "give fewer rows"):
        raise pgm.PgmError(f"its arrays do not fit into memory: {why}")
    with np.load(place, allow_pickle=False) as arrays:
        found = dict(arrays)
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            raise pgm.PgmError(f"{name!r} is not an array")
    return found


def _read_json(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the arrays of a JSON object by their names."""
    found = json.loads(plain_text(place))
    if not isinstance(found, dict):
        raise pgm.PgmError(f"expected an object of arrays by layer, not {type(found).__name__}")
    return {name: as_floats(value, f"layer {name!r}") for name, value in found.items()}


def _read_csv(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the rows of a table as the array of the first layer."""
    # numpy.loadtxt would count rows without the empty lines, and so name the wrong line.
    lines = csv.reader(StringIO(plain_text(place), newline=""))
    rows = [(lines.line_num, row) for row in lines if row]
    if not rows:
        raise pgm.PgmError("there are no rows, expected at least one")
    for number, row in rows:
        if len(row) != len(rows[0][1]):
            raise pgm.PgmError(
                f"rows of unequal length: line {number} has {len(row)} cells, "
                f"line {rows[0][0]} has {len(rows[0][1])}"
            )
    values = [[_number(cell, f"line {number}") for cell in row] for number, row in rows]
    return {next(iter(model.structure.layers)): np.array(values)}
