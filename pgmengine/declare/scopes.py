"""Scopes: conversion of declared tables, which name their units, to `Tables`, which number them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.declare.handles import Units, broadcast_shape, in_words, units_of_member
from pgmengine.declare.stored_forms import same_form
from pgmengine.declare.values.forms import Axis, Form
from pgmengine.model.forms.gate import Steps, fits_as_table
from pgmengine.model.forms.table_forms import Formed
from pgmengine.model.forms.unfolding import unfolded_structure
from pgmengine.model.graph.parent_order import cycle_of
from pgmengine.model.graph.unit_graph import joined_units
from pgmengine.model.names.state_names import text_of_number
from pgmengine.model.names.unit_names import Member, Place
from pgmengine.model.names.variables import Variable
from pgmengine.model.parameter_checks import check_no_bias
from pgmengine.model.structure import Structure
from pgmengine.model.tables import Tables, check_finite, check_log_table, check_table

# Bytes that each entry takes while tables are declared: its logarithm, and one more number in steps
# that work on a whole table.
BYTES_AN_ENTRY = 12


@dataclass(frozen=True, eq=False)
class Declared:
    """Tables as they are declared.

    Attributes
    ----------
    scope : the units of each axis; the layer of each axis where `index` is given.
    values : entries; of many tables (n, ...), or (...) for n equal ones; or a form that becomes
        entries, or fewer numbers, when the units of the scope are known.
    index : (n, m) numbers of units of many tables, None where the shapes of the scope give them.
    conditional : whether it is p(last | others).
    name : the name of the parameter, "" if the scope gives it. Equal names share a parameter.
    log : whether the values are logarithms of entries.
    """

    scope: tuple[Member | Units, ...]
    values: Array | Form | Formed
    index: Array | None = None
    conditional: bool = False
    name: str = ""
    log: bool = False


@dataclass(frozen=True, eq=False)
class Placed:
    """A declaration with its tables, its name in messages, and the values of its parameter."""

    tables: Tables
    declared: Declared
    what: str
    numbers: Array


def add_tables(
    structure: Structure,
    params: dict[str, Weight],
    declared: Sequence[Declared],
    variables: Sequence[Variable],
) -> tuple[Structure, dict[str, Weight]]:
    """Return the structure with its variables and declared tables, and all parameters."""
    found: dict[str, list[Placed]] = {}
    gates, compact = list[Tables](), set[tuple[str, str]]()
    taken, total = set[str](), 0
    for tables, values, small, one, what in _with_values(structure, declared):
        shape, given = tables.shape(structure), values.shape
        if given not in (shape, shape[1:] if one.index is not None else shape):
            raise PgmError(f"{what} has shape {given}, expected {shape}")
        if not tables.named:
            tables = replace(tables, name=free_parameter(tables.name, taken))
        taken.add(tables.name)
        if not len(tables.index):
            # A slice such as z[1:] of a single step is empty: the table is used nowhere.
            continue
        if isinstance(tables.form, Steps):
            gates.append(tables)
            compact |= set() if small else {tables.store}
        numbers = values.numbers if isinstance(values, Formed) else values
        group = found.setdefault(tables.key, [])
        group.append(Placed(tables, one, what, numbers))
        if tables.key in params:
            raise PgmError(f"{what}: the name {one.name!r} is taken by another parameter")
        if len(group) > 1:
            _check_same(structure, group[0], group[-1])
            continue
        total += math.prod(tables.parameter_shape(structure))
        entries = math.prod(shape) if small else 0
        if why := no_room(BYTES_AN_ENTRY * (total + entries), "take a smaller scope"):
            raise PgmError(f"{what} with {math.prod(shape):.3g} entries does not fit: {why}")
    logs = _logs(structure, [group[0] for group in found.values()], total)
    single = [v for v in variables if v.shape is None]
    every = [one.tables for group in found.values() for one in group]
    whole = replace(
        structure,
        tables=tuple(tables for tables in every if tables.store not in compact),
        variables=tuple(structure.names.unique[v.name] for v in single),
        gates=tuple(gates),
    )
    if found:
        check_conditionals(whole, params)
        _check_complete(whole)
    return whole, params | logs


def _check_same(structure: Structure, first: Placed, other: Placed) -> None:
    """PgmError unless two declarations of one name have the same shape, kind and values."""
    what = f"{other.what}: the name {other.declared.name!r} is also of {first.what}"
    if first.tables.conditional != other.tables.conditional:
        raise PgmError(f"{what}: one is a conditional, and the other is not")
    if first.declared.log != other.declared.log:
        raise PgmError(f"{what}: one has log=True, and the other has not; give both alike")
    shapes = [placed.tables.shape(structure) for placed in (first, other)]
    if shapes[0] != shapes[1]:
        raise PgmError(f"{what}, whose shape is {shapes[0]}, not {shapes[1]}")
    if not same_form(first.tables.form, other.tables.form):
        raise PgmError(f"{what}: other entries of the two follow from one number")
    if not np.array_equal(first.numbers, other.numbers):
        raise PgmError(f"{what}, which has other values: a shared parameter has one value")


def _with_values(
    structure: Structure, declared: Sequence[Declared]
) -> Iterator[tuple[Tables, Array | Formed, bool, Declared, str]]:
    """Yield the units of each declaration, its values, and its name in messages.

    Before the name it says whether the whole table is small enough.
    """
    made = [(_of_shapes if x.index is None else _many)(structure, x) for x in declared]
    values = [
        x.values.resolved(_axes(structure, x, tables), x.conditional, what)
        if isinstance(x.values, Form)
        else x.values
        for x, (tables, what) in zip(declared, made, strict=True)
    ]
    forms = [value.form if isinstance(value, Formed) else None for value in values]
    small = iter(fits_as_table([form for form in forms if isinstance(form, Steps)]))
    for one, (tables, what), value, form in zip(declared, made, values, forms, strict=True):
        fits = next(small) if isinstance(form, Steps) else True
        yield replace(tables, form=form) if form else tables, value, fits, one, what


def _logs(structure: Structure, found: Sequence[Placed], total: int) -> dict[str, Array]:
    """Return the parameters of tables, which are views of one array.

    `Model.table_entries` is this array where no table has a form, so that no answer copies large
    tables.
    """
    numbers, place = np.full(total, np.nan), 0
    logs: dict[str, Array] = {}
    for one in found:
        shape = one.tables.parameter_shape(structure)
        out = numbers[place : place + math.prod(shape)].reshape(shape)
        axes = _axes(structure, one.declared, one.tables)
        scope = [(a.name, a.states) for a in axes]
        if one.tables.form:
            scope = [("row", tuple(range(shape[0]))), *scope[-1:]][: len(shape)]
        check = check_log_table if one.declared.log else check_table
        check(one.numbers, one.tables.conditional, one.what, scope, out)
        logs[one.tables.key] = out
        place += out.size
    numbers.flags.writeable = False
    return logs


def _check_complete(structure: Structure) -> None:
    """PgmError for a variable without a conditional in a network that has only conditionals.

    The user has probably forgotten it, and it would be uniform. In other models, couplings, arrows
    and tables may give the variable its distribution.
    """
    if structure.couplings or structure.shared or not all(t.conditional for t in structure.tables):
        return
    arrays = [
        (name, int(i))
        for name, layer in structure.layers.items()
        if layer.is_array
        for i in np.flatnonzero(~structure.conditioned[name])[:1]
    ]
    for name, i in (*structure.variables, *arrays):
        if structure.conditioned[name][i] or structure.state_counts[name] == 1:
            continue
        variable, count = structure.names.of((name, i)), structure.state_counts[name]
        raise PgmError(
            f"variable {variable!r} has no conditional, and all other tables are conditionals: "
            f"give conditional({variable!r}, (), values), which are [1/{count}] * {count} if its "
            "states have the same probability"
        )


def _axes(structure: Structure, one: Declared, tables: Tables) -> list[Axis]:
    """Return the name of each axis of a declaration, and its states."""
    out = list[Axis]()
    for member, layer in zip(one.scope, tables.layers, strict=True):
        text = member.text if isinstance(member, Units) else str(member)
        count, names = structure.state_counts[layer], structure.layers[layer].state_names
        out.append(Axis(text, count, names))
    return out


def free_parameter(name: str, taken: Container[str]) -> str:
    """Return a name for tables: the name itself, or with #2, #3, ... if it is taken."""
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"


def _of_shapes(structure: Structure, one: Declared) -> tuple[Tables, str]:
    """Return the tables of a scope whose members broadcast together, and their name in messages.

    A table with as many axes as the scope is shared by all places. Leading axes of the values
    broadcast to the shape of the places, and give them tables of their own.
    """
    kind = "conditional of" if one.conditional else "table of"
    scope = f"({', '.join(map(in_words, one.scope))})"
    what = f"{kind} {in_words(one.scope[-1]) if one.conditional else scope}"
    what = f"{what}, {one.name!r}," if one.name else what
    if not one.scope:
        raise PgmError("a table needs at least one unit in its scope")
    members = [units_of_member(structure.names, member, what) for member in one.scope]
    layers = tuple(layer for layer, _, _ in members)
    for layer in layers:
        check_finite(structure, layer)
    shape = broadcast_shape([units.shape for _, units, _ in members], one.scope, what)
    index = np.stack([np.broadcast_to(units, shape).ravel() for _, units, _ in members], axis=1)
    _check_distinct(structure, layers, index, what)
    texts = [text for _, _, text in members]
    name = f"{texts[-1]}|{','.join(texts[:-1])}" if one.conditional else ",".join(texts)
    # Functions, sparse rows and gates give one table, which all places share.
    own = one.values.ndim - len(layers) if isinstance(one.values, np.ndarray) else 0
    lead = one.values.shape[: max(own, 0)] if isinstance(one.values, np.ndarray) else ()
    which = None if not lead and len(index) == 1 else numbers_of_places(lead, shape, what)
    named = bool(one.name)
    tables = Tables(one.name or name, layers, index, one.conditional, lead, which, named)
    return tables, what


def numbers_of_places(lead: tuple[int, ...], shape: tuple[int, ...], what: str) -> Array:
    """Return the number of the table of each place, where the leading axes of the values broadcast.

    PgmError if they do not broadcast to the shape of the places.
    """
    try:
        numbers = np.arange(math.prod(lead)).reshape(lead)
        return np.ascontiguousarray(np.broadcast_to(numbers, shape).ravel())
    except ValueError:
        raise PgmError(
            f"{what}: its leading axes {lead} do not broadcast, as in numpy, to {shape}, the shape "
            "of the places where it is used"
        ) from None


def _check_distinct(structure: Structure, layers: tuple[str, ...], index: Array, what: str) -> None:
    """PgmError if a unit is twice in the scope of a place."""
    numbers = index + [structure.first_unit[name] for name in layers]
    ordered = np.sort(numbers, axis=1)
    twice = np.argwhere(ordered[:, 1:] == ordered[:, :-1])
    if len(twice):
        unit = structure.names.of(structure.names.at(int(ordered[tuple(twice[0])])))
        raise PgmError(f"{what}: unit {unit!r} occurs twice")


def _many(structure: Structure, one: Declared) -> tuple[Tables, str]:
    """Return many tables of one shape, and their name in messages."""
    firsts = [_first_unit(structure, name) for name in one.scope]
    layers, names = tuple(layer for layer, _ in firsts), tuple(map(str, one.scope))
    what, given = f"tables of {names!r}", np.atleast_1d(np.asarray(one.index))
    if not layers or given.ndim != 2 or given.shape[1] != len(layers) or not len(given):
        raise PgmError(
            f"{what}: index has shape {given.shape}, expected (tables, {len(layers)}), with at "
            "least one table"
        )
    for axis, name in enumerate(names):
        if name not in structure.layers and (wrong := np.flatnonzero(given[:, axis])).size:
            number = text_of_number(given[wrong[0], axis])
            raise PgmError(
                f"{what}: index[{wrong[0]}, {axis}] is {number}, expected 0 for the variable "
                f"{name!r}"
            )
    index = check_units(structure, layers, given + [unit for _, unit in firsts], what)
    for name in layers:
        check_finite(structure, name)
    states = [structure.state_counts[name] for name in layers]
    if why := no_room(
        BYTES_AN_ENTRY * len(index) * float(np.prod(states)), "take fewer or smaller tables"
    ):
        raise PgmError(f"{what} do not fit into memory: {why}")
    return Tables(",".join(names), layers, index, lead=(len(index),)), what


def _first_unit(structure: Structure, name: object) -> Place:
    """Return (layer, 0) of a layer, or the place of a variable."""
    place = None if name in structure.layers else structure.names.place(name)
    return place or (structure.names.layer(str(name), what="tables: layer").name, 0)


def check_numbers_of_units(
    structure: Structure, layers: Sequence[str], given: Array, what: str
) -> Array:
    """Return units (n, m) of these layers as integers; PgmError unless the layers have them."""
    sizes = np.array([structure.layers[name].size for name in layers])
    bad = ~((given >= 0) & (given < sizes) & (given == np.floor(given)))
    if bad.any():
        row, axis = (int(i) for i in np.argwhere(bad)[0])
        number = text_of_number(given[row, axis])
        raise PgmError(
            f"{what}: index[{row}, {axis}] is {number}, expected a unit of layer "
            f"{layers[axis]!r}, 0..{sizes[axis] - 1}"
        )
    return given.astype(np.int64)


def check_units(structure: Structure, layers: Sequence[str], given: Array, what: str) -> Array:
    """Return the units (n, m) of tables as integers; PgmError unless they are different units."""
    index = check_numbers_of_units(structure, layers, given, what)
    numbers = index + [structure.first_unit[name] for name in layers]
    numbers.sort(axis=1)
    twice = (numbers[:, 1:] == numbers[:, :-1]).any(axis=1)
    if twice.any():
        row = int(np.flatnonzero(twice)[0])
        raise PgmError(f"{what}: a unit occurs twice in index[{row}], {index[row].tolist()}")
    return index


def check_conditionals(structure: Structure, params: Mapping[str, Weight]) -> None:
    """PgmError for a unit with two conditionals, a bias beside a conditional, or a cycle."""
    check_no_bias(structure, params)
    if structure.compact_gates:
        # The small tables of a gate join its parents and its child.
        structure = unfolded_structure(structure, structure.compact_gates)
    index, layers = structure.table_index, structure.layers
    children = index.child[index.child >= 0]
    units, counts = np.unique(children, return_counts=True)
    if (counts > 1).any():
        name = structure.names.of(structure.names.at(int(units[counts > 1][0])))
        raise PgmError(f"unit {name!r} has two conditionals, expected at most one")
    for name in layers:
        inside = structure.child_tables[name] >= 0
        if inside.any() and structure.arrows_into[name]:
            unit = structure.names.of((name, int(np.flatnonzero(inside)[0])))
            raise PgmError(f"unit {unit!r} has a conditional, and arrows into its layer {name!r}")
    # The parents of a unit are the other members of its conditional. Arrows also join parents and
    # children.
    child_of_axis = index.child[index.table]
    arrows = (child_of_axis >= 0) & (index.unit != child_of_axis)
    above, below = [index.unit[arrows]], [child_of_axis[arrows]]
    weights = structure.expanded(params)
    for c in structure.arrows:
        parents, children = joined_units(structure, c, weights[f"{c.key}.weight"])
        above.append(structure.first_unit[c.a] + parents)
        below.append(structure.first_unit[c.b] + children)
    one, two = np.concatenate(above), np.concatenate(below)
    # Arrows that all lead to later units close no cycle, as in long chains.
    if (one < two).all():
        return
    if found := cycle_of(zip(one.tolist(), two.tolist(), strict=True)):
        names = structure.names
        places = [names.at(unit) for unit in found[:-1]]
        cycle = [names.of(place) for place in places if place[0] not in structure.auxiliary]
        raise PgmError(f"the conditionals form a cycle: {' -> '.join([*cycle, cycle[0]])}")
