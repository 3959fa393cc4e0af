"""Models, evidence and data as the command line reads them, from files and inline texts."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np

import pgmengine as pgm
from pgmengine.base.files import plain_text, readable, shown
from pgmengine.base.names import hashable, nearest
from pgmengine.base.types import Array
from pgmengine.base.work.memory import too_large
from pgmengine.declare.validate import as_floats
from pgmengine.evidence.named_units import check_states, numbers_of_layer
from pgmengine.evidence.names import Place
from pgmengine.evidence.state_names import as_entries, state_number
from pgmengine.io.formats import EVIDENCE_SUFFIX, READERS
from pgmengine.io.opened import suffix_of
from pgmengine.model.layer import Layer

# Names of the answers that are states of units.
ANSWERS_OF_STATES = ("samples", "mode")

# Bytes of memory for each byte of a compressed archive, for arrays with few distinct values.
MEMORY_PER_ARCHIVE_BYTE = 200.0


def read_model(path: Path, seed: int = 0) -> pgm.Model:
    """Return the model in a .toml, a .safetensors, or another file that `read` knows."""
    if path.suffix == ".toml":
        return pgm.load_declaration(path, rng=seed)
    return pgm.read(path) if suffix_of(path) in READERS else pgm.load(path)


def read_evidence(model: pgm.Model, given: list[str] | None) -> dict[str, Any]:
    """Return evidence from inline texts and files.

    The evidence is layer -> array, or variable -> a state or the states of many rows, with NaN
    where nothing is observed.
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
    # Names of variables and of states may contain an equals sign.
    ends = [i for i, letter in enumerate(text) if letter == "="]
    names = [(text[:i].strip(), text[i + 1 :]) for i in reversed(ends)]
    known = ((n, g) for n, g in names if n in s.layers or s.names.place(n) is not None)
    name, given = next(known, names[-1])
    if (place := s.names.place(name)) is not None:
        return {name: _entry(_state(s.layers[place[0]], given, what))}
    layer = s.names.layer(name, what=f"{what}: layer")
    return {name: _states(layer, given.split(","), lambda i: f"{what}, index {i}")}


def _entry(value: Any) -> Any:
    """Return one value as evidence; a tuple is the name of a state, not a list of states."""
    if not isinstance(value, tuple):
        return value
    out = np.empty((), dtype=object)
    out[()] = value
    return out


def _cell(layer: Layer, given: Any) -> Any:
    """Return a cell of a table or of the command line, NaN where it is missing.

    A cell may have spaces around it, and is missing where it is empty or a question mark, unless
    this is the name of a state.
    """
    table = layer.state_table
    if not isinstance(given, str) or (table is not None and table.matches(given)):
        return given
    text = given.strip()
    missing = text in ("", "?") and not (table is not None and table.matches(text))
    return math.nan if missing else text


def _state(layer: Layer, given: Any, what: str) -> Any:
    """Return the name of a state, or the number of one without a name; NaN where it is missing."""
    text, table = _cell(layer, given), layer.state_table
    value = state_number(layer, text, what)
    if math.isnan(value):
        return value
    if table is not None:
        return table.names[table.state(text, what)]
    check_states(layer, np.asarray(value), what)
    return value


def _states(layer: Layer, given: Sequence[Any], place: Callable[[int], str]) -> Array:
    """Return the states (n,) of n cells; `place` names a cell by its number for messages."""
    known, out = dict[Hashable, Any](), np.empty(len(given), dtype=object)
    # Each distinct value is looked up once, because values repeat and a look-up is slow.
    for i, value in enumerate(given):
        key = (type(value), value) if hashable(value) else i
        if key not in known:
            known[key] = _state(layer, value, place(i))
        out[i] = known[key]
    return out if layer.state_table is not None else out.astype(np.float64)


def read_arrays(model: pgm.Model, path: Path) -> dict[str, Any]:
    """Return values by layer or variable from a .npz, .csv or .json file.

    A .csv file has names of variables in its first line, or rows of numbers for the first layer.
    """
    place = shown(path)
    readers = {".npz": _read_npz, ".json": _read_json, ".csv": _read_csv}
    if suffix_of(path) == EVIDENCE_SUFFIX:
        found = pgm.read_evidence(path, model)
        return {name: _as_rows(model, name, states) for name, states in found.items()}
    if path.suffix not in readers:
        raise pgm.PgmError(f"evidence file {place}: expected .npz, .csv, .json or .evid")
    try:
        return readers[path.suffix](model, readable(path))
    except pgm.PgmError as error:
        why = str(error).removeprefix(f"{place}: ")
        raise pgm.PgmError(f"evidence file {place}: {why}") from None
    except Exception as error:
        # numpy, zipfile, json and csv raise many kinds of errors for damaged files.
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise pgm.PgmError(f"evidence file {place} cannot be read: {why}") from None


def _read_npz(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the arrays of an archive by their names."""
    with ZipFile(place) as parts:
        needed = sum(_bytes_of_array(parts, part) for part in parts.infolist())
    if why := too_large(needed, MEMORY_PER_ARCHIVE_BYTE * place.stat().st_size, "give fewer rows"):
        raise pgm.PgmError(f"its arrays do not fit into memory: {why}")
    with np.load(place, allow_pickle=False) as arrays:
        found = dict(arrays)
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            raise pgm.PgmError(f"{name!r} is not an array")
    values = {name: _drawn(model, name, x) for name, x in _of_answers(model, found).items()}
    # Text has states by their names, with empty cells.
    return {
        name: _as_rows(model, name, _of_json(model, name, x.tolist()) if x.dtype.kind == "U" else x)
        for name, x in values.items()
    }


def _one_unit(model: pgm.Model, name: object) -> bool:
    """Return whether a name belongs to a single unit."""
    return model.structure.names.place(name) is not None


def _as_rows(model: pgm.Model, name: str, values: Any) -> Any:
    """Return values of a single unit with an axis of units added; other values as they are.

    A column of a file has a value for each row, and is never a one-hot row.
    """
    alone = name in model.structure.layers and not model.structure.layers[name].is_variable
    column = np.ndim(values) == 1 and _one_unit(model, name) and not alone
    return np.asarray(values)[:, None] if column else values


def _of_answers(model: pgm.Model, found: dict[str, Any]) -> dict[str, Any]:
    """Return the draws, or else the modes, in a file of answers; other values as they are.

    In such a file the names are "samples.v", for example.
    """
    s = model.structure
    unknown = [name for name in found if name not in s.layers and not _one_unit(model, name)]
    kinds = [
        kind for kind in ANSWERS_OF_STATES if any(name.startswith(f"{kind}.") for name in unknown)
    ]
    if not kinds:
        return found
    if len(kinds) > 1 or len(unknown) < len(found):
        raise pgm.PgmError(
            f"has both {' and '.join(kinds)} among its answers, or other values beside them: "
            "give a file with one of them"
        )
    before = f"{kinds[0]}."
    return {n.removeprefix(before): x for n, x in found.items() if n.startswith(before)}


def _drawn(model: pgm.Model, name: str, values: Any) -> Any:
    """Return draws (draws, rows, ...) as rows, grouped by row; other values as they are."""
    s, axes = model.structure, _axes(values)
    place, layer = s.names.place(name), s.layers.get(name)
    if axes < 2 or (layer is not None and not layer.is_variable and axes < 3):
        return values
    array = np.asarray(values, dtype=object if isinstance(values, list) else None)
    if layer is not None and not layer.is_variable:
        kind = array.dtype.kind
        text = kind == "U" or (kind == "O" and any(isinstance(x, str) for x in array.flat))
        expected = 3 + (layer.unit.width > 1 and not text)
    elif place is not None:
        width, expected = s.layers[place[0]].unit.width, 2
        if width > 1 and array.shape == (1, width) and _one_hot(array):
            raise pgm.PgmError(
                f"{name!r} has shape {array.shape}, which may be a one-hot row, or one draw in "
                f"each of {width} rows: give ({width}, 1) states"
            )
    else:
        return values
    if array.ndim != expected:
        return values
    rows = array.swapaxes(0, 1).reshape(-1, *array.shape[2:])
    return rows.tolist() if isinstance(values, list) else rows


def _axes(values: Any) -> int:
    """Return the number of axes of an array or of nested lists, by their first elements."""
    if not isinstance(values, list):
        return int(np.ndim(values))
    return 1 + (_axes(values[0]) if values and isinstance(values[0], list) else 0)


def _one_hot(row: Array) -> bool:
    """Return whether a row has a single 1, and is 0 elsewhere."""
    found = row.ravel().tolist()
    return sorted(map(str, found)) == [*["0"] * (len(found) - 1), "1"]


def _bytes_of_array(parts: ZipFile, part: ZipInfo) -> float:
    """Return the bytes of memory that an array of an archive takes, by its header.

    These are the bytes of the array, and of two copies in double precision while it is checked.
    """
    form = np.lib.format
    with parts.open(part) as file:
        if file.read(len(form.MAGIC_PREFIX)) != form.MAGIC_PREFIX:
            return float(part.file_size)
    with parts.open(part) as file:
        version = form.read_magic(file)
        # The header of a later version differs only in its encoding.
        header = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
        shape, _, dtype = header(file)
    entries = math.prod(shape)
    if dtype.itemsize * entries > part.file_size:
        raise pgm.PgmError(
            f"{part.filename!r} declares an array of shape {shape}, {dtype.itemsize * entries} "
            f"bytes, but has {part.file_size} bytes"
        )
    return float(part.file_size) + 16.0 * entries


def _read_json(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the values of a JSON object by the names of layers and variables."""
    found = json.loads(plain_text(place), object_pairs_hook=_different)
    if not isinstance(found, dict):
        raise pgm.PgmError(f"expected an object of arrays by layer, not {type(found).__name__}")
    values = {name: _drawn(model, name, x) for name, x in _of_answers(model, found).items()}
    return {name: _of_json(model, name, value) for name, value in values.items()}


def _different(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict; PgmError if a name appears twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise pgm.PgmError(f"the name {twice!r} occurs twice")
    return found


def _of_json(model: pgm.Model, name: str, value: Any) -> Any:
    """Return the states of a variable, or the array of a layer; states may be given by name."""
    s, each = model.structure, value if isinstance(value, list) else [value]
    place = s.names.place(name)
    if place is not None and not any(isinstance(x, list) for x in each):
        layer, what = s.layers[place[0]], f"variable {name!r}"
        if isinstance(value, list):
            states = _states(layer, value, lambda row: f"{what}, row {row}")
            # A list of numbers may also be a one-hot row, as in Python.
            return value if all(isinstance(x, (int, float)) for x in value) else states
        return _entry(_state(layer, value, what))
    layer = s.names.layer(name, what="layer")
    cells = as_entries(layer, value, layer.title)
    if cells.dtype.kind == "O":
        given, cells = cells, np.empty_like(cells)
        for i, cell in enumerate(given.flat):
            cells.flat[i] = _cell(layer, cell)
    # The check is made here, so that its message names the file.
    numbers = as_floats(numbers_of_layer(layer, cells, layer.title), layer.title)
    return numbers if layer.state_table is None else cells


def _read_csv(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return variable -> column if the table begins with names, else first layer -> rows."""
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
    header = [c if _one_unit(model, c) or _fits(first, c) else c.strip() for c in rows[0][1]]
    if _are_names(model, first, header, rows[0][0]):
        return _columns(model, header, rows)
    cells, width = [cell for _, row in rows for cell in row], len(rows[0][1])
    states = _states(first, cells, lambda i: f"line {rows[i // width][0]}, index {i % width}")
    return {first.name: states.reshape(-1, width)}


def _are_names(model: pgm.Model, first: Layer, cells: list[str], line: int) -> bool:
    """Return whether the first line of a table has names of variables, not values of a layer.

    The names of variables may be numbers, as in .uai files. Raise PgmError if the line could be
    either.
    """
    named = [cell for cell in cells if _one_unit(model, cell)]
    numbers = all(_is_number(cell) for cell in cells)
    # Rows may hold names of states only if a user declared their layer.
    rows = len(cells) == first.size and all(_fits(first, cell) for cell in cells)
    rows = rows and (numbers or not first.holds_variables)
    if numbers and (len(set(cells)) < len(cells) or len(named) < len(cells)):
        return False
    if rows and named:
        raise pgm.PgmError(
            f"line {line} may be names of variables, or values of layer {first.name!r}: give a "
            ".json file, which has the names"
        )
    return not rows


def _fits(layer: Layer, cell: str) -> bool:
    """Return whether the cell of a table may be a value of a unit of the layer."""
    try:
        _state(layer, cell, "")
    except pgm.PgmError:
        return False
    return True


def _is_number(cell: str) -> bool:
    """Return whether the cell of a table is a number, or missing."""
    try:
        return cell in ("", "?") or bool(float(cell)) or True
    except ValueError:
        return False


def _columns(
    model: pgm.Model, header: list[str], rows: list[tuple[int, list[str]]]
) -> dict[str, Any]:
    """Return variable -> the states of its column, NaN in empty cells."""
    s, out, taken = model.structure, dict[str, Any](), dict[Place, str]()
    if len(rows) < 2:
        raise pgm.PgmError("there are no rows below the names of variables, expected at least one")

    def where(name: str, row: int) -> str:
        """Return the place of a cell in words."""
        return f"line {rows[row + 1][0]}, column {name!r}"

    if unknown := [name for name in header if not _one_unit(model, name)]:
        # An empty cell says less about the mistake than another one.
        name = max(unknown, key=bool)
        raise pgm.PgmError(
            f"line {rows[0][0]}: {name!r} is no variable{nearest(name, s.names.unique)}; the first "
            "line has the names of variables, or numbers for the first layer; delete columns of "
            "other names"
        )
    for column, name in enumerate(header):
        place = s.names.unit(name, f"line {rows[0][0]}")
        if place in taken:
            raise pgm.PgmError(f"line {rows[0][0]}: variable {name!r} has two columns")
        taken[place] = name
        cells = [row[column] for _, row in rows[1:]]
        # With an axis of one unit the values are rows, and not one one-hot row.
        out[name] = _states(s.layers[place[0]], cells, partial(where, name))[:, None]
    return out
