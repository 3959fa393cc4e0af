"""Variables: units that are declared one by one, by name.

A variable is a unit of a layer whose label is the name of the variable. Variables with the same
states share one layer, so that a network of thousands of variables is a graph of a few layers. A
variable that a coupling names has a layer of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import TypeAlias

import numpy as np

from pgmengine.base.checks import check_text
from pgmengine.base.errors import PgmError
from pgmengine.base.names import hashable, is_sequence, is_several, nearest
from pgmengine.base.types import Array
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.units import Binary, Categorical, Constant, Unit

# A member of a scope as users give it: the name of a variable, or (layer, number or label).
Member: TypeAlias = "str | tuple[str, Hashable]"

# The layer of a unit, and its number there.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class Variable:
    """A variable as it is declared: its name, its number of states, and their names if any."""

    name: str
    count: int
    state_names: tuple[str, ...] | None = None

    @property
    def unit(self) -> Unit:
        """The type of unit: Binary with two states, Constant with one, else Categorical."""
        if self.count == 1:
            return Constant()
        return Binary() if self.count == 2 else Categorical(self.count)


def check_variable(name: object, states: int | Iterable[str]) -> Variable:
    """Return a variable; PgmError unless it has a name and at least one state."""
    if not isinstance(name, str) or not name:
        raise PgmError(f"a variable's name must be a non-empty string, not {name!r}")
    check_text(name, "a variable's name")
    what = f"variable {name!r}: states"
    if isinstance(states, (int, np.integer)) and not isinstance(states, bool):
        if states < 1:
            raise PgmError(f"{what} must be 1 or more, or a list of their names, not {states}")
        return Variable(name, int(states))
    if not is_sequence(states):
        raise PgmError(f"{what} must be a number or a list of names in order, not {states!r}")
    names = tuple(states)
    if any(isinstance(one, Number) for one in names):
        texts = tuple(map(str, names))
        raise PgmError(
            f"{what} must be names as text, not {names!r}: give {texts!r}; evidence may then be "
            f"{names[0]!r} as well"
        )
    if not all(isinstance(one, str) for one in names) or len(set(names)) < max(len(names), 1):
        raise PgmError(f"{what} must be one or more different names, not {names!r}")
    for one in names:
        check_text(one, f"variable {name!r}: a name of a state")
    return Variable(name, len(names), names)


def layers_of(
    variables: Sequence[Variable], apart: Collection[str], taken: Collection[Hashable]
) -> list[Layer]:
    """Return the layers of variables.

    Parameters
    ----------
    variables : in the order of their declaration.
    apart : names of the variables that get layers of their own.
    taken : names of layers and units that exist.
    """
    groups: dict[object, list[Variable]] = {}
    for v in variables:
        key: object = v.name if v.name in apart else (v.count, v.state_names)
        groups.setdefault(key, []).append(v)
    layers, names = list[Layer](), {*taken, *(v.name for v in variables)}
    for key, members in groups.items():
        first = members[0]
        name = key if isinstance(key, str) else free_name(f"variables{first.count}", names)
        names.add(name)
        labels = tuple(v.name for v in members)
        own = key in apart
        layers.append(Layer(name, first.unit, len(members), labels, first.state_names, not own))
    return layers


def free_name(name: str, taken: Collection[Hashable]) -> str:
    """Return a name, with a number appended if the name is taken."""
    numbered = (f"{name}_{i}" for i in range(1, len(taken) + 2))
    return name if name not in taken else next(n for n in numbered if n not in taken)


def check_names(variables: Sequence[Variable], layers: Sequence[Layer]) -> None:
    """PgmError if two variables, or a variable and a layer or a unit, have the same name."""
    seen = {layer.name for layer in layers}
    labels = {
        label: layer.name for layer in layers for label in layer.labels or () if hashable(label)
    }
    for v in variables:
        if v.name in seen:
            raise PgmError(f"variable {v.name!r} is declared twice, or has the name of a layer")
        if v.name in labels:
            raise PgmError(
                f"variable {v.name!r} has the name of a unit of layer {labels[v.name]!r}; choose "
                "another"
            )
        seen.add(v.name)


def find(structure: Structure, member: object, what: str) -> Place:
    """Return the place of a unit by its name, or by (layer, number or label).

    Raises
    ------
    PgmError with the nearest name if there is no such unit.
    """
    if (place := place_of(structure, member)) is not None:
        return place
    known = hashable(member)
    if known and isinstance(member, tuple) and len(member) == 2 and member[0] in structure.layers:
        layer, given = structure.layers[member[0]], member[1]
        labels = layer.labels or ()
        raise PgmError(
            f"{what}: layer {layer.name!r} has no unit {given!r}, expected 0..{layer.size - 1}"
            f"{' or a label' if labels else ''}{nearest(given, labels)}"
        )
    if known and isinstance(member, str) and member in structure.layers:
        raise PgmError(f"{what}: {member!r} is a layer; name a unit as ({member!r}, number)")
    raise PgmError(
        f"{what}: {member!r} is no variable{nearest(member, structure.places)}; expected the name "
        "of a variable, or (layer, number of a unit)"
    )


def place_of(structure: Structure, name: object) -> Place | None:
    """Return (layer, unit) of the unit with this name, or None; every public function reads so.

    A unit is named by its variable, by a label that no other unit has, or by (layer, number or
    label), which tables and files write as "layer[number]" or "('layer', number)". The name of a
    layer of one unit is also a name of its unit.
    """
    if not hashable(name):
        return None
    if name in structure.places:
        return structure.places[name]
    if isinstance(name, tuple) and len(name) == 2 and name[0] in structure.layers:
        unit = structure.layers[name[0]].unit_of(name[1])
        return None if unit is None else (name[0], unit)
    if not isinstance(name, str) or name in structure.layers:
        return None
    if name in structure.texts:
        return structure.texts[name]
    if not name.endswith(("]", ")")):
        return None
    units = ((x.name, x.unit_in(name)) for x in structure.layers.values())
    found = {(layer, unit) for layer, unit in units if unit is not None}
    return found.pop() if len(found) == 1 else None


def as_members(given: object, what: str) -> tuple[Member, ...]:
    """Return names of units or layers as a tuple; PgmError for a string or for no sequence."""
    if not is_several(given):
        raise PgmError(
            f"{what} must be a sequence of layers or variables such as ({given!r},), not "
            f"{'a string' if isinstance(given, str) else repr(given)}"
        )
    names = tuple(given)
    for name in names:
        if not hashable(name):
            raise PgmError(
                f"{what}: {name!r} is no name; expected the name of a layer or variable, or "
                "(layer, number of a unit)"
            )
    return names


def alone_or_several(structure: Structure, names: Iterable[Member]) -> tuple[Member, ...]:
    """Return names as a tuple; a tuple that is the name of one unit counts as one name.

    It counts as several names if each of its parts is the name of a layer or of a unit.
    """
    known = [x in structure.layers or place_of(structure, x) is not None for x in names]
    single = isinstance(names, tuple) and place_of(structure, names) is not None
    # The type of a name allows text or a pair, but a label may be any tuple.
    return (names,) if single and not all(known) else tuple(names)  # type: ignore[return-value]


def units_named(s: Structure, names: Iterable[Member], what: str) -> dict[str, Array]:
    """Return layer -> (size,) bool, the units that are named, for layers with such units.

    `names` are names of layers, of variables, or (layer, number or label of a unit).

    Raises
    ------
    PgmError for unknown names.
    """
    units: dict[str, Array] = {}
    for name in alone_or_several(s, names):
        if isinstance(name, tuple) or (name not in s.layers and place_of(s, name) is not None):
            layer, unit = find(s, name, what)
            units.setdefault(layer, np.zeros(s.layers[layer].size, dtype=bool))[unit] = True
        else:
            whole = s.layer(name, what=f"{what}: layer")
            units[whole.name] = np.ones(whole.size, dtype=bool)
    return units


def described(structure: Structure, layer: str, units: Array | None = None) -> str:
    """Return a layer, or one of its variables, in words for a message.

    `units` (size,) marks the units that are meant; the first of them is named if it is a variable.
    """
    if units is None or not units.any():
        return structure.layers[layer].title
    number = int(np.flatnonzero(units)[0])
    if (layer, number) in structure.variables:
        return f"variable {unit_name(structure.layers, (layer, number))!r}"
    return f"layer {layer!r}"


def unit_name(layers: Mapping[str, Layer], place: Place) -> str:
    """Return the name of a unit as parameters have it: its label, or layer[number]."""
    layer = layers[place[0]]
    if layer.labels is not None and isinstance(layer.labels[place[1]], str):
        return str(layer.labels[place[1]])
    return f"{layer.name}[{place[1]}]"
