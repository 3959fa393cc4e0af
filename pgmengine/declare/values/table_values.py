"""The values of a table as users give them: arrays, functions, sparse rows and noisy gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from numpy.typing import ArrayLike

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.values.forms import Form
from pgmengine.declare.values.functions import FromFunction, FromRows
from pgmengine.model.containers import as_floats
from pgmengine.model.forms.table_forms import Formed

Values: TypeAlias = "ArrayLike | Callable[..., Any] | Form | Formed"


def values_of(given: Values | None, what: str, log: bool = False) -> Array | Form | Formed:
    """Return the values of a table as an array, or as a form that becomes one; else PgmError.

    `log` says that they are logarithms.
    """
    if given is None:
        raise PgmError(f"{what}: neither values nor rows= are given")
    check_log(log, what)
    if isinstance(given, (Form, Formed)):
        if log:
            raise PgmError(
                f"{what}: log=True takes an array or a function, and a noisy gate has "
                "probabilities: leave out log"
            )
        return given
    if callable(given):
        return FromFunction(given, log)
    return as_floats(given, what)


def check_log(log: object, what: str) -> None:
    """PgmError unless `log` is True or False."""
    if not isinstance(log, bool):
        raise PgmError(f"{what}: log must be True or False, not {log!r:.60}")


def rows_of(rows: object, otherwise: Any, values: object, what: str) -> FromRows:
    """Return sparse rows; PgmError unless they are a mapping, and no values are given as well."""
    if values is not None:
        raise PgmError(f"{what}: both values and rows= are given, expected one of the two")
    if not isinstance(rows, Mapping):
        raise PgmError(
            f"{what}: rows must be a dictionary (states of the parents) -> row, not {rows!r}"
        )
    return FromRows(rows, otherwise)
