"""Scopes: conversion of declared tables, which name their units, to `Tables`, which number them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.declare.values.forms import Axis, Form
from pgmengine.evidence.names import Member, Place
from pgmengine.evidence.state_names import text_of_number
from pgmengine.model.gates.gate import Gate, PlacedGate, fits_as_table
from pgmengine.model.gates.unfolding import unfolded_structure
from pgmengine.model.structure import Structure
from pgmengine.model.tables import Tables, check_finite, check_table
from pgmengine.model.unit_graph import joined_units
from pgmengine.model.variables import Variable

# Bytes that each entry takes while tables are declared: its logarithm, and one more number in steps
# that work on a whole table.
BYTES_AN_ENTRY = 12


@dataclass(frozen=True, eq=False)
class Declared:
    """Tables as they are declared.

    Attributes
    ----------
    scope : the unit of each axis; the layer of each axis where `index` is given.
    values : entries; of many tables (n, ...), or (...) for n equal ones; or a form that becomes
        entries or a gate when the units of the scope are known.
    index : (n, m) numbers of units of many tables, None for a single table.
    conditional : whether it is p(last | others).
    """

    scope: tuple[Member, ...]
    values: Array | Form | Gate
    index: Array | None = None
    conditional: bool = False


def add_tables(
    structure: Structure,
    params: dict[str, Weight],
    declared: Sequence[Declared],
    variables: Sequence[Variable],
) -> tuple[Structure, dict[str, Weight]]:
    """Return the structure with its variables and declared tables, and all parameters."""
    made: dict[str, Tables] = {}
    found: list[tuple[Tables, Declared, str]] = []
    gates: list[PlacedGate] = []
    taken, total = set[str](), 0
    for tables, array, gate, one, what in _with_values(structure, declared):
        values = array if gate is None else gate
        assert values is not None
        shape, given = tables.shape(structure), values.shape
        if given not in (shape, shape[1:] if one.index is not None else shape):
            raise PgmError(f"{what} has shape {given}, expected {shape}")
        name = _free(tables.name, taken)
        taken.add(name)
        if gate is not None:
            gates.append(_placed(name, tables, gate))
        if array is None:
            continue
        total += math.prod(shape)
        if why := no_room(BYTES_AN_ENTRY * total, "take a smaller scope"):
            raise PgmError(f"{what} with {math.prod(shape):.3g} entries does not fit: {why}")
        made[name] = tables if tables.name == name else replace(tables, name=name)
        found.append((made[name], replace(one, values=array), what))
    logs = _logs(structure, found, total)
    places = tuple(structure.names.unique[v.name] for v in variables)
    kept = tuple(made.values())
    whole = replace(structure, tables=kept, variables=places, gates=tuple(gates))
    if made or gates:
        check_conditionals(whole, params)
        _check_complete(whole)
    return whole, params | logs


def _with_values(
    structure: Structure, declared: Sequence[Declared]
) -> Iterator[tuple[Tables, Array | None, Gate | None, Declared, str]]:
    """Yield the units of each declaration, its table, its gate, and its name in messages.

    A gate that is too large has no table. A gate in several places is a table alone.
    """
    made = [(_single if x.index is None else _many)(structure, x) for x in declared]
    values = [
        x.values.resolved(_axes(structure, x), x.conditional, what)
        if isinstance(x.values, Form)
        else x.values
        for x, (_, what) in zip(declared, made, strict=True)
    ]
    small = iter(fits_as_table([v for v in values if isinstance(v, Gate)]))
    for one, (tables, what), value in zip(declared, made, values, strict=True):
        if not isinstance(value, Gate):
            yield tables, value, None, one, what
            continue
        is_small, single = next(small), len(tables.index) == 1
        array = value.whole(what) if is_small or not single else None
        yield tables, array, value if single else None, one, what


def _placed(name: str, tables: Tables, gate: Gate) -> PlacedGate:
    """Return a gate with the places of its units."""
    scope = zip(tables.layers, tables.index[0].tolist(), strict=True)
    return PlacedGate(name, tuple(scope), gate)


def _logs(
    structure: Structure, found: Sequence[tuple[Tables, Declared, str]], total: int
) -> dict[str, Array]:
    """Return the parameters of tables, which are views of one array.

    `Model.table_entries` is this array, so that no answer copies large tables.
    """
    entries, place = np.empty(total), 0
    logs: dict[str, Array] = {}
    for tables, one, what in found:
        shape = tables.shape(structure)
        out = entries[place : place + math.prod(shape)].reshape(shape)
        assert isinstance(one.values, np.ndarray)
        scope = [(axis.name, axis.states) for axis in _axes(structure, one)]
        check_table(one.values, one.conditional, what, scope, out)
        logs[tables.key] = out
        place += out.size
    entries.flags.writeable = False
    return logs


def _check_complete(structure: Structure) -> None:
    """PgmError for a variable without a conditional in a network that has only conditionals.

    The user has probably forgotten it, and it would be uniform. In other models, couplings, arrows
    and tables may give the variable its distribution.
    """
    if structure.couplings or not all(tables.conditional for tables in structure.tables):
        return
    for name, i in structure.variables:
        if structure.conditioned[name][i] or structure.state_counts[name] == 1:
            continue
        variable, count = structure.names.of((name, i)), structure.state_counts[name]
        raise PgmError(
            f"variable {variable!r} has no conditional, and all other tables are conditionals: "
            f"give conditional({variable!r}, (), values), which are [1/{count}] * {count} if its "
            "states have the same probability"
        )


def _axes(structure: Structure, one: Declared) -> list[Axis]:
    """Return the name of each axis of a declaration, and its states."""
    out = list[Axis]()
    for member in one.scope:
        many = one.index is not None
        layer = (
            _first_unit(structure, member)[0] if many else structure.names.unit(member, "table")[0]
        )
        count, names = structure.state_counts[layer], structure.layers[layer].state_names
        out.append(Axis(str(member), count, names))
    return out


def _free(name: str, taken: Collection[str]) -> str:
    """Return a name for tables: the name itself, or with #2, #3, ... if it is taken."""
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"


def _single(structure: Structure, one: Declared) -> tuple[Tables, str]:
    """Return a single table, and its name in messages."""
    kind = "conditional of" if one.conditional else "table of"
    what = f"{kind} {one.scope[-1]!r}" if one.conditional else f"{kind} {one.scope!r}"
    if not one.scope:
        raise PgmError("a table needs at least one unit in its scope")
    places = [structure.names.unit(member, what) for member in one.scope]
    for layer, _ in places:
        check_finite(structure, layer)
    _check_distinct(structure, places, what)
    names = [structure.names.of(place) for place in places]
    name = f"{names[-1]}|{','.join(names[:-1])}" if one.conditional else ",".join(names)
    index = np.array([[unit for _, unit in places]], dtype=np.int64)
    tables = Tables(name, tuple(layer for layer, _ in places), index, one.conditional)
    return tables, what


def _check_distinct(structure: Structure, places: Sequence[Place], what: str) -> None:
    """PgmError if a unit is twice in a scope."""
    for i, place in enumerate(places):
        if place in places[:i]:
            raise PgmError(f"{what}: unit {structure.names.of(place)!r} occurs twice")


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
    return Tables(",".join(names), layers, index, single=False), what


def _first_unit(structure: Structure, name: object) -> Place:
    """Return (layer, 0) of a layer, or the place of a variable."""
    place = None if name in structure.layers else structure.names.place(name)
    return place or (structure.names.layer(str(name), what="tables: layer").name, 0)


def check_units(structure: Structure, layers: Sequence[str], given: Array, what: str) -> Array:
    """Return the units (n, m) of tables as integers; PgmError unless they are different units."""
    sizes = np.array([structure.layers[name].size for name in layers])
    bad = ~((given >= 0) & (given < sizes) & (given == np.floor(given)))
    if bad.any():
        row, axis = (int(i) for i in np.argwhere(bad)[0])
        number = text_of_number(given[row, axis])
        raise PgmError(
            f"{what}: index[{row}, {axis}] is {number}, expected a unit of layer "
            f"{layers[axis]!r}, 0..{sizes[axis] - 1}"
        )
    index = given.astype(np.int64)
    numbers = index + [structure.first_unit[name] for name in layers]
    numbers.sort(axis=1)
    twice = (numbers[:, 1:] == numbers[:, :-1]).any(axis=1)
    if twice.any():
        row = int(np.flatnonzero(twice)[0])
        raise PgmError(f"{what}: a unit occurs twice in index[{row}], {index[row].tolist()}")
    return index


def check_conditionals(structure: Structure, params: Mapping[str, Weight]) -> None:
    """PgmError unless each unit has at most one conditional, then no bias, and no cycle occurs."""
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
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_edges_from(
        zip(index.unit[arrows].tolist(), child_of_axis[arrows].tolist(), strict=True)
    )
    for c in structure.arrows:
        parents, children = joined_units(structure, c, params[f"{c.key}.weight"])
        first, second = structure.first_unit[c.a], structure.first_unit[c.b]
        ends = (first + parents).tolist(), (second + children).tolist()
        graph.add_edges_from(zip(*ends, strict=True))
    if not nx.is_directed_acyclic_graph(graph):
        names = structure.names
        places = [names.at(edge[0]) for edge in nx.find_cycle(graph)]
        cycle = [names.of(place) for place in places if place[0] not in structure.auxiliary]
        raise PgmError(f"the conditionals form a cycle: {' -> '.join([*cycle, cycle[0]])}")


def check_no_bias(structure: Structure, params: Mapping[str, Weight]) -> None:
    """PgmError if a unit with a conditional has a bias."""
    for name, layer in structure.layers.items() if structure.tables or structure.gates else ():
        bias = np.asarray(params[f"{name}.bias"]).reshape(layer.size, -1)
        wrong = structure.conditioned[name] & (bias != 0).any(axis=1)
        if wrong.any():
            unit = structure.names.of((name, int(np.flatnonzero(wrong)[0])))
            raise PgmError(f"unit {unit!r} has a conditional, and a bias, expected 0")
