"""Shared couplings and biases as files store them: a record for each, and arrays of units.

A record is plain data. The units of all places of all terms are in one array, and the numbers of
their weights in another one. The parameters are stored under their names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.scopes import check_numbers_of_units
from pgmengine.declare.shared.declared_term import PlacedTerm, takes_rows
from pgmengine.model.containers import as_floats
from pgmengine.model.names.unit_names import Member
from pgmengine.model.names.variables import check_shape
from pgmengine.model.shared.shared_term import SharedTerm
from pgmengine.model.structure import Structure

# The fields of a record, and their types.
FIELD_TYPES: dict[str, type] = {
    "name": str,
    "layers": list,
    "count": int,
    "lead": list,
    "directed": bool,
}
# The fields that a record may leave out.
MORE_FIELD_TYPES: dict[str, type] = {"by_state": bool}


@dataclass(frozen=True, eq=False)
class StoredTerm:
    """A shared term of a file; it takes the part of a declaration (`Places`).

    Attributes
    ----------
    name : the name of the parameter.
    layers, lead, directed, by_state : as in SharedTerm.
    index : (n, m) units of the layers.
    which : (n,) the number of the weight of each place.
    values : the parameter.
    """

    name: str
    layers: tuple[str, ...]
    lead: tuple[int, ...]
    directed: bool
    index: Array
    which: Array
    values: Array
    by_state: bool = False

    @property
    def scope(self) -> tuple[Member, ...]:
        """The layers; a file has no handles."""
        return self.layers

    def placed(self, bare: Structure, taken: frozenset[str]) -> PlacedTerm:
        """Return the term, checked against the layers."""
        what = f"parameter {self.name!r}"
        for name in self.layers:
            bare.names.layer(name, what=f"{what}: layer")
        index = check_numbers_of_units(bare, self.layers, self.index, what)
        # Every weight of the parameter has a place.
        if not np.array_equal(np.unique(self.which), np.arange(math.prod(self.lead))):
            raise PgmError(f"{what}: the places have other weights than those of the parameter")
        which = self.which.astype(np.int64)
        term = SharedTerm(
            self.name, self.layers, index, which, self.lead, self.directed, self.by_state
        )
        if self.by_state and not takes_rows(bare, self.layers):
            raise PgmError(f"{what} has rows by state, which are for parents of two states")
        return PlacedTerm(term, self.values, what)


def term_records(structure: Structure) -> list[dict[str, Any]]:
    """Return a record of plain data for each shared term."""
    return [
        {
            "name": t.key,
            "layers": list(t.layers),
            "count": len(t.index),
            "lead": list(t.lead),
            "directed": t.directed,
            # Files without such rows stay readable by earlier versions.
            **({"by_state": True} if t.by_state else {}),
        }
        for t in structure.shared
    ]


def term_units(structure: Structure) -> Array:
    """Return the units of all places of shared terms, one after the other."""
    parts = [t.index.ravel() for t in structure.shared]
    return np.concatenate([*parts, np.empty(0)]).astype(np.int64)


def term_numbers(structure: Structure) -> Array:
    """Return the numbers of the weights of all places of shared terms, one after the other."""
    parts = [t.which for t in structure.shared]
    return np.concatenate([*parts, np.empty(0)]).astype(np.int64)


def stored_terms(
    records: object, units: object, numbers: object, params: dict[str, Any]
) -> list[StoredTerm]:
    """Return the shared terms of a file; their parameters are taken out of `params`.

    Raises
    ------
    PgmError for damaged data.
    """
    if not isinstance(records, list):
        raise PgmError(f"'shared' must be a list, not {type(records).__name__}")
    flat, which = (_integers(x, what) for x, what in ((units, "units"), (numbers, "numbers")))
    out, at, place = list[StoredTerm](), 0, 0
    for i, record in enumerate(records):
        _check_record(record, f"shared[{i}]")
        count, m, name = record["count"], len(record["layers"]), record["name"]
        own, mine = flat[at : at + count * m], which[place : place + count]
        if len(own) < count * m or len(mine) < count:
            raise PgmError(f"shared[{i}]: {count} places, where fewer are left")
        if name not in params:
            raise PgmError(f"parameter {name!r} is missing")
        lead = check_shape(record["lead"], f"shared[{i}]") if record["lead"] else ()
        values = as_floats(params[name], f"parameter {name!r}")
        layers, index = tuple(record["layers"]), own.reshape(count, m)
        by_state = record.get("by_state", False)
        out.append(
            StoredTerm(name, layers, lead, record["directed"], index, mine, values, by_state)
        )
        at, place = at + count * m, place + count
    if at != len(flat) or place != len(which):
        raise PgmError(f"the shared places have {len(flat)} units, expected {at}")
    for one in out:
        params.pop(one.name, None)
    return out


def _check_record(record: object, what: str) -> None:
    """PgmError unless a record has the fields of a shared term."""
    if (
        not isinstance(record, Mapping)
        or not set(FIELD_TYPES) <= set(record) <= {*FIELD_TYPES, *MORE_FIELD_TYPES}
        or any(type(record[key]) is not kind for key, kind in FIELD_TYPES.items())
        or any(type(record.get(key, kind())) is not kind for key, kind in MORE_FIELD_TYPES.items())
        or not all(isinstance(name, str) for name in record["layers"])
        or len(record["layers"]) not in (1, 2)
        or record["count"] < 1
    ):
        fields = ", ".join(f"{key} ({kind.__name__})" for key, kind in FIELD_TYPES.items())
        raise PgmError(f"{what} is damaged, expected the fields {fields}")


def _integers(given: object, what: str) -> Array:
    """Return a list of whole numbers (n,); PgmError if it is something else."""
    array = as_floats(given, f"the {what} of shared places")
    if array.ndim != 1 or not (np.abs(array) < 2**53).all() or (array != np.floor(array)).any():
        raise PgmError(f"the {what} of shared places must be a list of integers, not {array.shape}")
    return array
