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
from pgmengine.base.names import nearest
from pgmengine.graph.layer import Layer
from pgmengine.graph.named_units import numbers_of_layer, state_number
from pgmengine.graph.validate import as_floats
from pgmengine.io.formats import EVIDENCE, READERS
from pgmengine.io.opened import suffix_of


def read_model(path: Path, seed: int = 0) -> pgm.Model:
    """Return the model of a .toml declaration, a file of the field, or a .safetensors file."""
    if path.suffix == ".toml":
        return pgm.load_declaration(path, rng=seed)
    return pgm.read(path) if suffix_of(path) in READERS else pgm.load(path)


def read_evidence(model: pgm.Model, given: list[str] | None) -> dict[str, Any]:
    """Return evidence from inline texts and files.

    It is layer -> array, or variable -> state, or states of many rows; NaN where not observed.
    """
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
    s, what = model.structure, f"evidence {text!r}"
    # Names may have an equals sign in them, as names of states may.
    splits = [text.rpartition("="), text.partition("=")]
    names = [(one.strip(), given) for one, _, given in splits]
    name, given = next(((n, g) for n, g in names if n in s.places or n in s.layers), names[1])
    if name in s.places:
        return {name: _values(model, name, given, what)}
    s.layer(name, what=f"{what}: layer")
    return {name: [_number(v, what) for v in given.split(",")]}


def _values(model: pgm.Model, name: str, given: Any, what: str) -> Any:
    """Return one state of a variable, or a list for many rows, as numbers, NaN where missing."""
    s = model.structure
    layer = s.layers[s.places[name][0]]
    if isinstance(given, list):
        return np.array([_state(layer, x, f"{what}, row {i}") for i, x in enumerate(given)])
    return _state(layer, given, what)


def _state(layer: Layer, given: Any, what: str) -> float:
    """Return a state by its name or number, NaN for an empty text or a question mark."""
    text = given.strip() if isinstance(given, str) else given
    known = layer.state_names or ()
    missing = text in ("", "?") and text not in known
    value = state_number(layer, math.nan if missing else text, what)
    support = layer.unit.support
    states = () if support is None else range(len(support)) if layer.unit.width > 1 else support
    if math.isfinite(value) and len(states) and not np.isclose(value, states).any():
        expected = ", ".join(map(repr, known)) or ", ".join(f"{x:g}" for x in states[:8])
        raise pgm.PgmError(f"{what}: {value:g} is no state, expected one of {expected}")
    return value


def _number(text: str, where: str) -> float:
    """Return a number, or NaN for a question mark or an empty text."""
    text = text.strip()
    try:
        return float("nan") if text in ("?", "") else float(text)
    except ValueError:
        raise pgm.PgmError(f"{where}: {text!r} is not a number or ?") from None


def read_arrays(model: pgm.Model, path: Path) -> dict[str, Any]:
    """Return values by layer or variable from a .npz, .csv or .json file.

    A .csv file has names of variables in its first line, or rows of numbers for the first layer.
    """
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
    # States by their names.
    texts = {n for n, x in found.items() if x.dtype.kind == "U" and n in model.structure.places}
    return found | {name: _of_json(model, name, found[name].tolist()) for name in texts}


def _read_json(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the values of a JSON object by the names of layers and variables."""
    found = json.loads(plain_text(place), object_pairs_hook=_different)
    if not isinstance(found, dict):
        raise pgm.PgmError(f"expected an object of arrays by layer, not {type(found).__name__}")
    return {name: _of_json(model, name, value) for name, value in found.items()}


def _different(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of some pairs; PgmError if a name is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise pgm.PgmError(f"the name {twice!r} occurs twice")
    return found


def _of_json(model: pgm.Model, name: str, value: Any) -> Any:
    """Return the states of a variable, which may be names, or the array of a layer."""
    s, each = model.structure, value if isinstance(value, list) else [value]
    named = name in s.places and not any(isinstance(x, list) for x in each)
    if named and (name not in s.layers or any(isinstance(x, str) for x in each)):
        return _values(model, name, value, f"variable {name!r}")
    layer = s.layer(name, what="layer")
    return as_floats(numbers_of_layer(layer, value, layer.title), layer.title)


def _read_csv(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the columns of a table below names of variables, or its rows for the first layer."""
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
    first = next(iter(model.structure.layers.values()))
    header = [cell.strip() for cell in rows[0][1]]
    if _are_names(model, first, header, rows[0][0]):
        return _columns(model, header, rows)
    values = [[_number(cell, f"line {number}") for cell in row] for number, row in rows]
    return {first.name: np.array(values)}


def _are_names(model: pgm.Model, first: Layer, cells: list[str], line: int) -> bool:
    """Whether the first line of a table has names of variables, and not values of a layer.

    Variables may be called by numbers, as those of .uai files are. PgmError where the line could be
    both.
    """
    if not all(_is_number(cell) for cell in cells):
        return True
    places = model.structure.places
    if len(set(cells)) < len(cells) or not all(cell in places for cell in cells):
        return False
    values, support = [float(cell) for cell in cells], first.unit.support
    known = () if support is None else range(len(support)) if first.unit.width > 1 else support
    fits = support is None or all(value in known for value in values)
    if len(cells) == first.size and fits:
        raise pgm.PgmError(
            f"line {line} may be names of variables, or values of layer {first.name!r}: give a "
            ".json file, which has the names"
        )
    return True


def _is_number(cell: str) -> bool:
    """Whether the cell of a table is a number, or missing."""
    try:
        return cell in ("", "?") or bool(float(cell)) or True
    except ValueError:
        return False


def _columns(
    model: pgm.Model, header: list[str], rows: list[tuple[int, list[str]]]
) -> dict[str, Any]:
    """Return variable -> the states of its column, NaN in empty cells."""
    s, out = model.structure, dict[str, Any]()
    if len(rows) < 2:
        raise pgm.PgmError("there are no rows below the names of variables, expected at least one")
    for column, name in enumerate(header):
        if name not in s.places:
            raise pgm.PgmError(
                f"line {rows[0][0]}: {name!r} is no variable{nearest(name, s.places)}; the first "
                "line has the names of variables, or numbers for the first layer; delete columns "
                "of other names"
            )
        if name in out:
            raise pgm.PgmError(f"line {rows[0][0]}: variable {name!r} has two columns")
        layer, known = s.layers[s.places[name][0]], dict[str, float]()
        # Cells repeat, and names are looked up one by one.
        for line, row in rows[1:]:
            if row[column] not in known:
                what = f"line {line}, column {name!r}"
                known[row[column]] = _state(layer, row[column], what)
        out[name] = np.array([known[row[column]] for _, row in rows[1:]])
    return out
