"""Tables and variables as files store them: a record for each group, and an array of units.

A record is plain data: the name, the layers and the number of tables of a group. The units of all
axes of all tables are in one array, because there may be hundreds of thousands of tables. The
logarithms of the entries of tables are stored as parameters, so that no bit is lost. The forms of
tables are one array of whole numbers (stored_forms.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.declare.scopes import check_conditionals, check_units
from pgmengine.declare.stored_forms import Reader, of_links, whole_numbers
from pgmengine.model.containers import as_floats
from pgmengine.model.forms.gate import Steps, fits_as_table
from pgmengine.model.names.variables import check_shape
from pgmengine.model.structure import Structure
from pgmengine.model.tables import Tables, check_finite, check_logs, rows_are_one

# The fields of a record, and their types.
FIELD_TYPES: dict[str, type] = {
    "name": str,
    "layers": list,
    "count": int,
    "conditional": bool,
    "named": bool,
    "lead": list,
}

# The fields of a record of files with forms.
TYPES_WITH_FORM: dict[str, type] = {**FIELD_TYPES, "form": str}

# The largest difference of logarithms between a gate of an earlier file and its table that is
# rounding. Learning changed tables in those versions.
MAX_GATE_ERROR = 1e-12

# The fields of a record of earlier files, in which no tables were shared.
EARLIER_TYPES: dict[str, type] = {
    "name": str,
    "layers": list,
    "count": int,
    "conditional": bool,
    "single": bool,
}


def table_entries(structure: Structure) -> list[dict[str, Any]]:
    """Return a record of plain data for each group of tables, and for each gate without a table."""
    formed = has_forms(structure)
    return [
        {
            "name": t.name,
            "layers": list(t.layers),
            "count": len(t.index),
            "conditional": t.conditional,
            "named": t.named,
            "lead": list(t.lead),
            **({"form": t.form.kind if t.form else ""} if formed else {}),
        }
        for t in structure.tables_and_gates
    ]


def has_forms(structure: Structure) -> bool:
    """Whether some entries follow from fewer numbers."""
    return any(t.form for t in structure.tables_and_gates)


def table_forms(structure: Structure) -> Array:
    """Return the forms of all groups, one after the other, as whole numbers."""
    parts = [whole_numbers(t.form) for t in structure.tables_and_gates]
    return np.concatenate([*parts, np.empty(0, dtype=np.int64)])


def table_units(structure: Structure) -> Array:
    """Return the units of the axes of all tables, one after the other, each within its layer."""
    parts = [t.index.ravel() for t in structure.tables_and_gates]
    return np.concatenate([*parts, np.empty(0)]).astype(np.int64)


def table_numbers(structure: Structure) -> Array:
    """Return the number of the table of each place in its parameter, group by group."""
    parts = [t.numbers for t in structure.tables_and_gates]
    return np.concatenate([*parts, np.empty(0)]).astype(np.int64)


def variable_units(structure: Structure) -> Array:
    """Return the units that are variables, in order, numbered over all layers."""
    return np.array([structure.first_unit[n] + i for n, i in structure.variables], dtype=np.int64)


def with_stored_tables(
    model: Model,
    entries: object,
    gates: object,
    arrays: Collection[str],
    units: Array,
    numbers: Array | None,
    forms: Array | None,
    variables: Array,
    params: Mapping[str, Any],
) -> Model:
    """Return a model with tables and variables that a file holds.

    Parameters
    ----------
    model : the layers and couplings.
    entries : as `table_entries` returns them.
    gates : the gates of earlier files, each with its units, the distribution of its first auxiliary
        variable, and its links.
    arrays : the names of the layers that are arrays of variables.
    units : as `table_units` returns them.
    numbers : as `table_numbers` returns them, None in earlier files.
    forms : as `table_forms` returns them, None in files without forms.
    variables : as `variable_units` returns them.
    params : parameter name -> logarithms of entries.

    Raises
    ------
    PgmError for damaged data, and for tables that a declaration may not have.
    """
    structure = model.structure
    if not isinstance(entries, list):
        raise PgmError(f"'tables' must be a list, not {type(entries).__name__}")
    flat = _units(units, "the units of the tables")
    which = None if numbers is None else _units(numbers, "the numbers of the tables")
    reader = None if forms is None else Reader(_units(forms, "the forms of the tables").astype(int))
    tables, at, place = list[Tables](), 0, 0
    for i, entry in enumerate(entries):
        own = None if which is None else which[place:]
        one = _tables(structure, entry, flat[at:], own, reader, f"tables[{i}]")
        tables.append(one)
        at, place = at + tables[-1].index.size, place + len(tables[-1].index)
    if at != len(flat) or (which is not None and place != len(which)):
        raise PgmError(f"the tables have {len(flat)} axes, expected {at}")
    keys = {t.key: t for t in tables}
    for i, t in enumerate(tables):
        first = keys[t.key]
        same = t.named and first.named and first.conditional == t.conditional
        shapes = t.parameter_shape(structure), first.parameter_shape(structure)
        if t is not first and not (same and shapes[0] == shapes[1]):
            raise PgmError(f"two tables have the same name: tables[{i}], {t.key!r}")
    if extra := [key for key in params if key not in keys]:
        raise PgmError(f"{extra[0]!r} belongs to no table of the declaration")
    places = _places(structure, _units(variables, "variables"))
    held = {name for name, _ in places}
    layers = {
        name: replace(
            layer, holds_variables=name in held and not layer.is_variable, is_array=name in arrays
        )
        for name, layer in structure.layers.items()
    }
    earlier = [_gate(structure, entry, f"gates[{i}]") for i, entry in enumerate(_listed(gates))]
    tables, params = _with_earlier_gates(tables, earlier, params)
    steps = [t for t in tables if isinstance(t.form, Steps)]
    small = fits_as_table([t.form for t in steps if isinstance(t.form, Steps)])
    large = {t.store for t, fits in zip(steps, small, strict=True) if not fits}
    kept = tuple(t for t in tables if t.store not in large)
    whole = replace(structure, layers=layers, tables=kept, variables=places, gates=tuple(steps))
    logs = {key: _logs(whole, t, params) for key, t in whole.table_groups.items()}
    check_conditionals(whole, model.params)
    return Model(whole, {**model.params, **logs})


def _units(given: object, what: str) -> Array:
    """Return an array of numbers of units (n,); PgmError if it is something else."""
    array = as_floats(given, what)
    if array.ndim != 1 or not (np.abs(array) < 2**53).all() or (array != np.floor(array)).any():
        raise PgmError(f"{what} must be a list of integers, not an array {array.shape}")
    return array


def _tables(
    structure: Structure,
    entry: object,
    units: Array,
    numbers: Array | None,
    forms: Reader | None,
    what: str,
) -> Tables:
    """Return the tables of a record, whose units come first in `units`, as its numbers do."""
    types = EARLIER_TYPES if numbers is None else TYPES_WITH_FORM if forms else FIELD_TYPES
    if (
        not isinstance(entry, Mapping)
        or set(entry) != set(types)
        or any(type(entry[key]) is not kind for key, kind in types.items())
        or not all(isinstance(name, str) for name in entry["layers"])
    ):
        fields = ", ".join(f"{key} ({kind.__name__})" for key, kind in types.items())
        raise PgmError(f"{what} is damaged, expected the fields {fields}")
    layers, count = tuple(entry["layers"]), entry["count"]
    for name in layers:
        structure.names.layer(name, what=f"{what}: layer")
        check_finite(structure, name)
    size = count * len(layers)
    alone = entry.get("single", False)
    if count < 1 or not layers or size > len(units) or (alone and count > 1):
        raise PgmError(
            f"{what}: {min(count, 10**18):.6g} tables of {len(layers)} axes, where {len(units)} "
            "units are left"
        )
    index = units[:size].reshape(count, len(layers))
    index = check_units(structure, layers, index, what)
    if numbers is None:
        shape = () if alone else (count,)
        return Tables(entry["name"], layers, index, entry["conditional"], shape)
    lead, which = check_shape(entry["lead"], what) if entry["lead"] else (), numbers[:count]
    # Every table of the parameter has a place.
    if not np.array_equal(np.unique(which), np.arange(min(math.prod(lead), count + 1))):
        raise PgmError(f"{what}: the places have other tables than those of its parameter")
    which = which.astype(np.int64)
    plain = np.array_equal(which, np.arange(count))
    own = None if plain else which
    form = forms.next(entry["form"], what) if forms else None
    states = tuple(structure.state_counts[name] for name in layers)
    fits = form is None or (form.shape == states and not lead)
    fits &= not isinstance(form, Steps) or entry["conditional"]
    if not fits:
        raise PgmError(f"{what} is damaged: its form does not fit its units, with {states} states")
    conditional, named = entry["conditional"], entry["named"]
    return Tables(entry["name"], layers, index, conditional, lead, own, named, form)


def _listed(gates: object) -> list[Any]:
    """Return the gates of an earlier file as a list."""
    if not isinstance(gates, list):
        raise PgmError(f"'gates' must be a list, not {type(gates).__name__}")
    return gates


def _with_earlier_gates(
    tables: Sequence[Tables], gates: Sequence[tuple[Tables, Array]], params: Mapping[str, Any]
) -> tuple[list[Tables], dict[str, Any]]:
    """Return tables and parameters with gates of an earlier file in place of their tables.

    A table that learning has changed is no gate and stays.
    """
    out, found = list(tables), dict(params)
    for gate, numbers in gates:
        before = f"{gate.name}.table"
        with np.errstate(divide="ignore"):
            logs = np.log(numbers)
        if before in found:
            assert gate.form is not None
            one, two = as_floats(found[before], before), gate.form.logs(logs)
            if not np.allclose(one, two, rtol=MAX_GATE_ERROR, atol=MAX_GATE_ERROR):
                continue
            del found[before]
            out = [t for t in out if t.key != before]
        out.append(gate)
        found[gate.key] = logs
    return out, found


def _gate(structure: Structure, entry: object, what: str) -> tuple[Tables, Array]:
    """Return a gate of an earlier file and its numbers.

    PgmError unless its links fit its units and sum to one.
    """
    if not isinstance(entry, Mapping) or set(entry) != {"name", "units", "start", "links"}:
        raise PgmError(f"{what} is damaged, expected the fields name, units, start and links")
    if not isinstance(entry["name"], str) or not isinstance(entry["links"], list):
        raise PgmError(f"{what} is damaged, expected a name as text, and a list of links")
    scope = _places(structure, _units(entry["units"], f"{what}: units"))
    start = as_floats(entry["start"], f"{what}: start")
    links = tuple(as_floats(link, f"{what}: a link") for link in entry["links"])
    fits = start.ndim == 1 and all(link.ndim == 3 for link in links)
    if not fits or not all(
        before.shape[-1] == link.shape[0]
        for before, link in zip((start, *links), links, strict=False)
    ):
        raise PgmError(f"{what} is damaged: its links do not fit each other")
    for part in (start, *links):
        if not ((part >= 0).all() and rows_are_one(part)):
            raise PgmError(f"{what} is damaged: its rows are no probabilities that sum to one")
    gate = of_links(start, links)
    states = tuple(structure.state_counts[name] for name, _ in scope)
    if gate.shape != states:
        raise PgmError(f"{what} is damaged: it has the states {gate.shape}, its units {states}")
    index = np.array([[unit for _, unit in scope]], dtype=np.int64)
    layers = tuple(name for name, _ in scope)
    return Tables(entry["name"], layers, index, True, form=gate.form), gate.numbers


def _places(structure: Structure, variables: Array) -> tuple[tuple[str, int], ...]:
    """Return the places of units that are numbered over all layers."""
    total = sum(layer.size for layer in structure.layers.values())
    if (
        len(np.unique(variables)) < len(variables)
        or not ((variables >= 0) & (variables < total)).all()
    ):
        raise PgmError(f"variables must be different units, 0..{total - 1}")
    names, firsts = list(structure.layers), list(structure.first_unit.values())
    owners = np.searchsorted(firsts, variables, side="right") - 1
    inside = variables - np.array(firsts)[owners]
    return tuple((names[o], int(i)) for o, i in zip(owners, inside, strict=True))


def _logs(structure: Structure, tables: Tables, params: Mapping[str, Any]) -> Array:
    """Return the logarithms of tables; PgmError if they are missing."""
    if tables.key not in params:
        raise PgmError(f"parameter {tables.key!r} is missing")
    return check_logs(structure, tables, as_floats(params[tables.key], f"{tables.key!r}"))
