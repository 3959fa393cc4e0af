"""Tables of text (.csv): a column for each variable, and a line for each row of evidence or data.

The first line has the names of variables. The cells below have names of states, or numbers of
states without names; an empty cell, or ?, is not observed. A table without a line of names has rows
of values for the first layer of the model. Cells are separated by commas, and under names also by
semicolons or tabs, if only one of them makes names of variables out of the first line.

A table that a network is declared from (`read_columns`) has columns of other names as well.

A table that could be read in two ways is refused, with the line and the column.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from io import StringIO
from typing import Any

import pgmengine as pgm
from pgmengine.apps.reading.cells import (
    MARKS_OF_OTHERS,
    WHERE_MISSING,
    one_unit,
    state,
    states_of_cells,
)
from pgmengine.base.display import few
from pgmengine.base.names import nearest
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import written_number
from pgmengine.model.names.unit_names import Place

# Separators of cells, with their names for messages. The first one is the usual one.
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}

# The number of a line, and its cells.
Line = tuple[int, list[str]]


def read_csv(model: pgm.Model, text: str) -> dict[str, Any]:
    """Return variable -> column if the table begins with names, else first layer -> rows."""
    rows = _rows(text, _separator(model, text))
    first = next(iter(model.structure.layers.values()))
    header = [_name(model, cell) if not _fits(first, cell) else cell for cell in rows[0][1]]
    if _are_names(model, first, header, rows[0][0]):
        return _columns(model, header, rows)
    cells, width = [cell for _, row in rows for cell in row], len(rows[0][1])
    states = states_of_cells(
        first, cells, lambda i: f"line {rows[i // width][0]}, index {i % width}"
    )
    return {first.name: states.reshape(-1, width)}


def read_columns(text: str, names: Collection[str]) -> dict[str, list[Any]]:
    """Return the columns of a table without a model, None in empty cells.

    A column of numbers has integers or fractions, one of true and false has booleans, and all
    others have text. Cells are separated by whatever makes most of `names` out of the first line.

    Raises
    ------
    PgmError with the line for rows of unequal length, and for a mark of a missing value, such as
    NA, among numbers.
    """
    lines = {by: next((row for _, row in _lines(text, by) if row), []) for by in SEPARATORS}
    found = {by: len({x.strip() for x in line} & {*names}) for by, line in lines.items()}
    rows = _rows(text, max(found, key=lambda by: found[by]))
    header = [cell.strip() for cell in rows[0][1]]
    if len(rows) < 2:
        raise pgm.PgmError("there are no rows below the names of columns, expected at least one")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise pgm.PgmError(f"line {rows[0][0]}: {twice!r} is the name of two columns")
    columns = zip(*(row for _, row in rows[1:]), strict=True)
    lines_of_rows = [line for line, _ in rows[1:]]
    return {
        name: _typed(cells, name, lines_of_rows)
        for name, cells in zip(header, columns, strict=True)
    }


def _typed(cells: Sequence[str], name: str, lines: Sequence[int]) -> list[Any]:
    """Return the cells of a column as numbers, booleans or text, None where they are empty."""
    texts = [None if (cell := given.strip()) in ("", "?") else cell for given in cells]
    seen = {text for text in texts if text is not None}
    if seen and all(text.casefold() in ("true", "false") for text in seen):
        return [text and text.casefold() == "true" for text in texts]
    numbers = {text: written_number(text) for text in seen}
    marks = {text for text in seen if text.casefold() in MARKS_OF_OTHERS}
    if any(numbers[text] is None for text in seen - marks):
        return texts
    if seen - marks and marks:
        row = next(i for i, text in enumerate(texts) if text in marks)
        raise pgm.PgmError(
            f"line {lines[row]}, column {name!r}: {texts[row]!r} among numbers{WHERE_MISSING}"
        )
    return texts if marks else [text and numbers[text] for text in texts]


def _name(model: pgm.Model, cell: str) -> str:
    """Return a cell as a name, without spaces around it unless they belong to the name."""
    return cell if one_unit(model, cell) else cell.strip()


def _separator(model: pgm.Model, text: str) -> str:
    """Return the separator that makes names of variables out of the first line; else a comma."""
    found = dict[tuple[str, ...], str]()
    for separator in SEPARATORS:
        try:
            first = next((row for _, row in _lines(text, separator) if row), [])
        except pgm.PgmError:
            continue
        names = tuple(_name(model, cell) for cell in first)
        if names and all(one_unit(model, name) for name in names):
            # A single name is the same with every separator.
            found.setdefault(names, separator)
    if len(found) > 1:
        ways = " or ".join(f"{len(names)} by {SEPARATORS[by]}" for names, by in found.items())
        raise pgm.PgmError(
            f"line 1 may have names of variables that are separated in several ways: {ways}; give "
            "a .json file, which has the names"
        )
    return next(iter(found.values()), ",")


def _lines(text: str, separator: str) -> Iterator[Line]:
    """Yield the number and the cells of each line; PgmError for quotes that do not fit."""
    # numpy.loadtxt would count rows without the empty lines, and so name the wrong line.
    lines = csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
    begin = 1
    while True:
        try:
            row = next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            raise pgm.PgmError(
                f"the row that begins in line {begin} has quotes that do not fit: {error}; a cell "
                "in quotes begins and ends with one, and has each quote inside twice"
            ) from None
        yield lines.line_num, row
        begin = lines.line_num + 1


def _rows(text: str, separator: str) -> list[Line]:
    """Return the lines that have cells, all of the same length; PgmError if there is none."""
    every = list(_lines(text, separator))
    rows = [(number, row) for number, row in every if row]
    if not rows:
        raise pgm.PgmError("there are no rows, expected at least one")
    first, width = rows[0][0], len(rows[0][1])
    for number, row in rows:
        if len(row) != width:
            raise pgm.PgmError(
                f"rows of unequal length: line {number} has {len(row)} cells, line {first} has "
                f"{width}"
            )
    empty = [number for number, row in every if not row and first < number < rows[-1][0]]
    if width == 1 and empty:
        raise pgm.PgmError(
            f"line {empty[0]} is empty, which may be a row or none: write ? for a row that is not "
            "observed, or delete the line"
        )
    return rows


def _are_names(model: pgm.Model, first: Layer, cells: list[str], line: int) -> bool:
    """Return whether the first line of a table has names of variables, not values of a layer.

    The names of variables may be numbers, as in .uai files. Raise PgmError if the line could be
    either.
    """
    named = [cell for cell in cells if one_unit(model, cell)]
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
        state(layer, cell, "")
    except pgm.PgmError:
        return False
    return True


def _is_number(cell: str) -> bool:
    """Return whether the cell of a table is a number, or missing."""
    try:
        return cell in ("", "?") or bool(float(cell)) or True
    except ValueError:
        return False


def _columns(model: pgm.Model, header: list[str], rows: list[Line]) -> dict[str, Any]:
    """Return variable -> the states of its column, NaN in empty cells."""
    s, out, taken = model.structure, dict[str, Any](), dict[Place, str]()
    line = rows[0][0]
    if len(rows) < 2:
        raise pgm.PgmError("there are no rows below the names of variables, expected at least one")

    def where(name: str, row: int) -> str:
        """Return the place of a cell in words."""
        return f"line {rows[row + 1][0]}, column {name!r}"

    if unknown := [name for name in header if not one_unit(model, name)]:
        # An empty cell says less about the mistake than another one.
        name = max(unknown, key=bool)
        others = f" (and {few(map(repr, unknown))})" if len(unknown) > 1 else ""
        raise pgm.PgmError(
            f"line {line}, column {header.index(name) + 1}: {name!r} is no variable"
            f"{nearest(name, s.names.unique)}{others}; the first line has the names of variables, "
            "or numbers for the first layer; delete columns of other names"
        )
    for column, name in enumerate(header):
        place = s.names.unit(name, f"line {line}")
        if place in taken:
            raise pgm.PgmError(f"line {line}: variable {name!r} has two columns")
        taken[place] = name
        cells = [row[column] for _, row in rows[1:]]
        # With an axis of one unit the values are rows, and not one one-hot row.
        out[name] = states_of_cells(s.layers[place[0]], cells, partial(where, name))[:, None]
    return out
