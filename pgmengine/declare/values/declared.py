"""The values of a table as users give them: arrays, functions, sparse rows and noisy gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.values.forms import Form
from pgmengine.declare.values.functions import FromFunction, FromRows
from pgmengine.evidence.containers import as_floats
from pgmengine.model.gates.gate import Gate

Values: TypeAlias = "ArrayLike | Callable[..., Any] | Form | Gate"


def values_of(given: Values | None, what: str) -> Array | Form | Gate:
    """Return the values of a table as an array, or as a form that becomes one; else PgmError."""
    if given is None:
        raise PgmError(f"{what}: neither values nor rows= are given")
    if isinstance(given, (Form, Gate)):
        return given
    if callable(given):
        return FromFunction(given)
    return as_floats(given, what)


def rows_of(rows: object, otherwise: Any, values: object, what: str) -> FromRows:
    """Return sparse rows; PgmError unless they are a mapping, and no values are given as well."""
    if values is not None:
        raise PgmError(f"{what}: both values and rows= are given, expected one of the two")
    if not isinstance(rows, Mapping):
        raise PgmError(
            f"{what}: rows must be a dictionary (states of the parents) -> row, not {rows!r}"
        )
    return FromRows(rows, otherwise)
