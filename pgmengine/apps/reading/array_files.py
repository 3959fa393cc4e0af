"""Arrays by layer or variable from .npz and .json files, also from the ones of the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np

import pgmengine as pgm
from pgmengine.apps.reading.cells import as_cell, as_entry, one_unit, state, states_of_cells
from pgmengine.base.types import Array
from pgmengine.base.work.memory import too_large
from pgmengine.evidence.columns import Named, column_of, entries_of

# Names of the answers that are states of units.
ANSWERS_OF_STATES = ("samples", "mode")

# Bytes of memory for each byte of a compressed archive, for arrays with few distinct values.
MEMORY_PER_ARCHIVE_BYTE = 200.0


def read_npz(model: pgm.Model, place: Path) -> dict[str, Any]:
    """Return the arrays of an archive by their names."""
    with ZipFile(place) as parts:
        needed = sum(_bytes_of_array(parts, part) for part in parts.infolist())
    if why := too_large(needed, MEMORY_PER_ARCHIVE_BYTE * place.stat().st_size, "give fewer rows"):
        raise pgm.PgmError(f"its arrays do not fit into memory: {why}")
    with np.load(place, allow_pickle=False) as arrays:
        try:
            found = dict(arrays)
        except ValueError as error:
            if "pickle" not in str(error):
                raise
            raise pgm.PgmError(
                "holds objects of Python, expected arrays of numbers or texts; save them as such"
            ) from None
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            raise pgm.PgmError(f"{name!r} is not an array")
    values = {name: _drawn(model, name, x) for name, x in _of_answers(model, found).items()}
    # Text has states by their names, with empty cells.
    return {
        name: as_rows(model, name, _of_json(model, name, x.tolist()) if x.dtype.kind == "U" else x)
        for name, x in values.items()
    }


def as_rows(model: pgm.Model, name: str, values: Any) -> Any:
    """Return values of a single unit with an axis of units added; other values as they are.

    A column of a file has a value for each row, and is never a one-hot row.
    """
    alone = name in model.structure.layers and not model.structure.layers[name].is_variable
    column = np.ndim(values) == 1 and one_unit(model, name) and not alone
    return np.asarray(values)[:, None] if column else values


def _of_answers(model: pgm.Model, found: dict[str, Any]) -> dict[str, Any]:
    """Return the draws, or else the modes, in a file of answers; other values as they are.

    In such a file the names are "samples.v", for example.
    """
    s = model.structure
    unknown = [name for name in found if name not in s.layers and not one_unit(model, name)]
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


def read_json(model: pgm.Model, text: str) -> dict[str, Any]:
    """Return the values of a JSON object by the names of layers and variables."""
    found = json.loads(text, object_pairs_hook=_different)
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
            states = states_of_cells(layer, value, lambda row: f"{what}, row {row}")
            # A list of numbers may also be a one-hot row, as in Python.
            return value if all(isinstance(x, (int, float)) for x in value) else states
        return as_entry(state(layer, value, what))
    layer = s.names.layer(name, what="layer")
    cells = entries_of(layer, value, layer.title)
    if cells.dtype.kind == "O":
        given, cells = cells, np.empty_like(cells)
        for i, cell in enumerate(given.flat):
            cells.flat[i] = as_cell(layer, cell)
    # The check is made here, so that its message names the file.
    column_of(Named(layer, None, cells, layer.title)).numbers()
    return cells
