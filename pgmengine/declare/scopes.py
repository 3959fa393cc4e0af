"""Scopes: the units of terms by number, and checks of conditionals, which need all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.model.forms.unfolding import unfolded_structure
from pgmengine.model.graph.parent_order import cycle_of
from pgmengine.model.graph.unit_graph import joined_units
from pgmengine.model.names.state_names import text_of_number
from pgmengine.model.names.unit_names import Place
from pgmengine.model.parameter_checks import check_no_bias
from pgmengine.model.structure import Structure


def units_by_number(
    structure: Structure, names: Sequence[str], given: Array, what: str
) -> tuple[tuple[str, ...], Array]:
    """Return the layers of many scopes, and their units (n, m); a variable is a layer of one."""
    firsts = [_first_unit(structure, name) for name in names]
    layers, given = tuple(layer for layer, _ in firsts), np.atleast_1d(np.asarray(given))
    if given.ndim != 2 or given.shape[1] != len(layers) or not len(given):
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
    return layers, check_units(structure, layers, given + [unit for _, unit in firsts], what)


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


def check_distinct(structure: Structure, layers: tuple[str, ...], index: Array, what: str) -> None:
    """PgmError if a unit is twice in the scope of a place."""
    numbers = index + [structure.first_unit[name] for name in layers]
    ordered = np.sort(numbers, axis=1)
    twice = np.argwhere(ordered[:, 1:] == ordered[:, :-1])
    if len(twice):
        unit = structure.names.of(structure.names.at(int(ordered[tuple(twice[0])])))
        raise PgmError(f"{what}: unit {unit!r} occurs twice")


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


def check_complete(structure: Structure) -> None:
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
