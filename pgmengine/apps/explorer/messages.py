"""Messages of front ends, read and checked: places of units, states, lists and numbers.

A place is the text "number of the layer,number of the unit".
"""

from __future__ import annotations

import re
import sys

from pgmengine.base.errors import PgmError, told
from pgmengine.model.names.unit_names import Place
from pgmengine.model.structure import Structure

# The numbers of a layer and a unit, of which no model has more than a thousand million.
PLACE = re.compile(r"([0-9]{1,9}),([0-9]{1,9})")


def place_text(structure: Structure, place: Place) -> str:
    """Return the text of a place."""
    return f"{list(structure.layers).index(place[0])},{place[1]}"


def places(structure: Structure, given: object) -> list[Place]:
    """Return the places of a message; PgmError if there is none or one is unknown."""
    found, names = [], list(structure.layers)
    for text in list_of(given, "at"):
        numbers = PLACE.fullmatch(text) if isinstance(text, str) else None
        layer, unit = map(int, numbers.groups()) if numbers else (len(names), 0)
        if layer >= len(names) or unit >= structure.layers[names[layer]].size:
            raise PgmError(f"the explorer was sent {told(text)}, which is no place of a unit")
        found.append((names[layer], unit))
    if not found:
        raise PgmError("the explorer was sent an action without a unit")
    return found


def state_number(structure: Structure, place: Place, state: object) -> int:
    """Return the number of a state of a unit; PgmError if it has no such state, or is an input."""
    count = structure.state_counts[place[0]]
    if type(state) is not int or not 0 <= state < count:
        name = structure.names.of(place)
        raise PgmError(
            f"the explorer was sent the state {told(state)} of {name!r}, which has {count}"
        )
    if structure.layers[place[0]].unit.observed_only:
        raise PgmError(f"{structure.names.of(place)!r} is an input, and stays as it is")
    return state


def list_of(given: object, what: str) -> list[object]:
    """Return a list of a message; PgmError if it is something else."""
    if not isinstance(given, list):
        raise PgmError(f"the explorer was sent {told(given)} as {what}, expected a list")
    return given


def number(given: object, what: str) -> float:
    """Return a finite number of a message; PgmError if it is something else."""
    # A bool is an int for Python, and an int of JSON may be too large for a float.
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        if abs(given) <= sys.float_info.max:
            return float(given)
    raise PgmError(f"the explorer was sent {told(given)} as {what}, expected a number")
