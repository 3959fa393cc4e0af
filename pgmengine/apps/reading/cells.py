"""Cells of tables and words of the command line as states of units."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

import pgmengine as pgm
from pgmengine.base.checks import SINGLE_ROUNDING
from pgmengine.base.names import hashable
from pgmengine.base.types import Array
from pgmengine.evidence.columns import state_number
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import text_of_number

# Texts by which other programs mark a missing value. They may be names of states, and are not read
# as missing; the message about them says how to write a missing value.
MARKS_OF_OTHERS = frozenset({"na", "n/a", "nan", "none", "null", "nil", "-", ".", "*"})
WHERE_MISSING = "; leave the cell empty, or write ?, where nothing was observed"


def as_entry(value: Any) -> Any:
    """Return one value as evidence; a tuple is the name of a state, not a list of states."""
    if not isinstance(value, tuple):
        return value
    out = np.empty((), dtype=object)
    out[()] = value
    return out


def as_cell(layer: Layer, given: Any) -> Any:
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


def state(layer: Layer, given: Any, what: str) -> Any:
    """Return the name of a state, or the number of one without a name; NaN where it is missing."""
    text, table = as_cell(layer, given), layer.state_table
    try:
        value = state_number(layer, text, what)
    except pgm.PgmError as error:
        marks = isinstance(text, str) and text.casefold() in MARKS_OF_OTHERS
        raise pgm.PgmError(f"{error}{WHERE_MISSING if marks else ''}") from None
    if math.isnan(value):
        return value
    if table is not None:
        return table.names[table.state(text, what)]
    known, rounding = layer.unit.support, SINGLE_ROUNDING
    if known is not None and layer.unit.width > 1:
        known, rounding = np.arange(len(known)), 0.0
    if known is not None and not (np.abs(value - known) <= rounding * np.abs(known)).any():
        raise pgm.PgmError(
            f"{what}: {text_of_number(value)} is no state, expected one of "
            f"{', '.join(map(repr, known.tolist()[:8]))}"
        )
    return value


def states_of_cells(layer: Layer, given: Sequence[Any], place: Callable[[int], str]) -> Array:
    """Return the states (n,) of n cells; `place` names a cell by its number for messages."""
    known, out = dict[Hashable, Any](), np.empty(len(given), dtype=object)
    # Each distinct value is looked up once, because values repeat and a look-up is slow.
    for i, value in enumerate(given):
        key = (type(value), value) if hashable(value) else i
        if key not in known:
            known[key] = state(layer, value, place(i))
        out[i] = known[key]
    return out if layer.state_table is not None else out.astype(np.float64)


def one_unit(model: pgm.Model, name: object) -> bool:
    """Return whether a name belongs to a single unit."""
    return model.structure.names.place(name) is not None
