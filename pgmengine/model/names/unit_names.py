"""Names of layers, variables and units: the table that every reader and every answer uses.

A place is the layer of a unit and its number there. A unit has these names:

    variable or label     if no other unit has it and no layer is called so; also as text
    (layer, unit)         with the number or the label of the unit, also as text
    (variable, variable)  as in columns of results, where a variable's name replaces its layer's
    "layer[unit]"         (layer, unit) as tables and files write it, and also "('layer', unit)"
    layer                 the name of a layer of one unit

Names of states are read by the table of their layer (state_names.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from pgmengine.base.errors import PgmError, listed, told
from pgmengine.base.names import closest, hashable, is_several, nearest
from pgmengine.base.types import Array
from pgmengine.model.layer import Layer

# A unit or a layer as users name it: the name of a variable, or (layer, number or label).
Member: TypeAlias = "str | tuple[str, Hashable]"

# The layer of a unit, and its number there.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Names:
    """The names of all units of a structure.

    Attributes
    ----------
    layers : name -> layer, in the order of their declaration.
    variables : the places of the variables, in order; empty while a model is built.
    """

    layers: Mapping[str, Layer]
    variables: tuple[Place, ...] = ()

    @cached_property
    def unique(self) -> dict[Hashable, Place]:
        """Name -> place: labels that are unique, and names of layers of one unit."""
        named = [
            (label, (name, i))
            for name, layer in self.layers.items()
            for i, label in enumerate(layer.labels or ())
            if label != name
        ]
        counts = Counter(label for label, _ in named)
        out = {label: at for label, at in named if counts[label] == 1 and label not in self.layers}
        return out | {name: (name, 0) for name, layer in self.layers.items() if layer.size == 1}

    @cached_property
    def texts(self) -> dict[str, Place]:
        """Text of a name that is not text itself -> place, for texts that are unique."""
        named = [(str(name), at) for name, at in self.unique.items() if not isinstance(name, str)]
        counts = Counter(text for text, _ in named)
        taken = {*self.unique, *self.layers}
        return {text: at for text, at in named if counts[text] == 1 and text not in taken}

    @cached_property
    def storage(self) -> frozenset[str]:
        """Layers that no user declared. They hold variables, which messages name instead."""
        return frozenset(name for name, layer in self.layers.items() if layer.holds_variables)

    def declared(self, layers: Iterable[str] | None = None) -> list[Hashable]:
        """Return the names of the variables in some layers, or in all, then of other layers.

        These are the names that users gave: a layer that holds variables is not among them.
        """
        wanted = set(self.layers if layers is None else layers)
        inside = [layer for name, layer in self.layers.items() if name in wanted]
        names = [(self.layers[a].labels or ())[i] for a, i in self.variables if a in wanted]
        # While a model is built, `variables` is not filled yet.
        names += [label for x in inside if x.holds_variables for label in x.labels or ()]
        return list(dict.fromkeys([*names, *(x.name for x in inside if not x.holds_variables)]))

    def layer(self, name: str, what: str = "layer") -> Layer:
        """Return the layer called `name`; PgmError that lists the names when there is none."""
        if name in self.layers:
            return self.layers[name]
        base = name.partition("[")[0] if isinstance(name, str) else ""
        if base in self.layers and name.endswith("]"):
            grid = self.layers[base].grid
            raise PgmError(f"{what} {name!r} is unknown: {base!r} has the shape {grid}")
        own = [x.holds_variables or (x.name, 0) in self.variables for x in self.layers.values()]
        kinds = ["variable"] * any(own) + ["layer"] * (not all(own))
        if what.endswith("layer"):
            what = what.removesuffix("layer") + " or ".join(kinds)
        known = self.declared()
        near = closest(name, [*known, *self.unique])
        raise PgmError(
            f"{what} {told(name)} is unknown; the {' and '.join(f'{kind}s' for kind in kinds)} are "
            f"{listed([*map(str, known)])}{f'; did you mean {near!r}?' if near else ''}"
        )

    def layer_of(self, name: object) -> Layer | None:
        """Return the layer with this name, or the layer of the unit with this name, or None."""
        if hashable(name) and name in self.layers:
            return self.layers[name]  # type: ignore[index]
        place = self.place(name)
        return None if place is None else self.layers[place[0]]

    def place(self, name: object) -> Place | None:
        """Return the place of the unit with this name, or None, as public functions read names."""
        try:
            if name in self.unique:
                return self.unique[name]
        except TypeError:
            return None
        if isinstance(name, tuple) and len(name) == 2:
            if name[0] in self.layers:
                unit = self.layers[name[0]].unit_of(name[1])
                return None if unit is None else (name[0], unit)
            found = self.unique.get(name[0]) if name[0] == name[1] else None
            return found if found in self.variables else None
        if not isinstance(name, str) or name in self.layers:
            return None
        if name in self.texts:
            return self.texts[name]
        if not name.endswith(("]", ")")):
            return None
        units = ((x.name, x.unit_in(name)) for x in self.layers.values())
        written = {(layer, unit) for layer, unit in units if unit is not None}
        return written.pop() if len(written) == 1 else None

    def unit_of(self, layer: Layer, name: object) -> int | None:
        """Return the unit that has this name in a table of the layer, or None."""
        if (unit := layer.unit_of(name)) is not None:
            return unit
        place = self.place(name)
        return None if place is None or place[0] != layer.name else place[1]

    def unit(self, name: object, what: str) -> Place:
        """Return the place of the unit with this name.

        Raises
        ------
        PgmError with the nearest name if there is no such unit.
        """
        if (place := self.place(name)) is not None:
            return place
        known = hashable(name)
        if known and isinstance(name, tuple) and len(name) == 2 and name[0] in self.layers:
            layer, given = self.layers[name[0]], name[1]
            labels = layer.labels or ()
            raise PgmError(
                f"{what}: layer {layer.name!r} has no unit {told(given)}, expected "
                f"0..{layer.size - 1}"
                f"{' or a label' if labels else ''}{nearest(given, labels)}"
            )
        if known and isinstance(name, str) and name in self.layers:
            raise PgmError(f"{what}: {name!r} is a layer; name a unit as ({name!r}, number)")
        raise PgmError(
            f"{what}: {told(name)} is no variable{nearest(name, self.unique)}; expected the name "
            "of a variable, or (layer, number of a unit)"
        )

    def alone_or_several(self, names: Iterable[Member]) -> tuple[Member, ...]:
        """Return names as a tuple; a tuple that is the name of one unit counts as one name.

        It counts as several names if each of its parts is the name of a layer or of a unit.
        """
        known = [x in self.layers or self.place(x) is not None for x in names]
        single = isinstance(names, tuple) and self.place(names) is not None
        # The type of a name allows text or a pair, but a label may be any tuple.
        return (names,) if single and not all(known) else tuple(names)  # type: ignore[return-value]

    def units(self, names: Iterable[Member], what: str) -> dict[str, Array]:
        """Return layer -> (size,) bool, the units that are named, for layers with such units.

        `names` are names of layers or of units.

        Raises
        ------
        PgmError for unknown names.
        """
        units: dict[str, Array] = {}
        for name in self.alone_or_several(names):
            if isinstance(name, tuple) or (name not in self.layers and self.place(name)):
                layer, unit = self.unit(name, what)
                units.setdefault(layer, np.zeros(self.layers[layer].size, dtype=bool))[unit] = True
            else:
                whole = self.layer(name, what=f"{what}: layer")
                units[whole.name] = np.ones(whole.size, dtype=bool)
        return units

    def of(self, place: Place) -> str:
        """Return the name of a unit as parameters have it: its label, or layer[number]."""
        layer = self.layers[place[0]]
        if layer.labels is not None and isinstance(layer.labels[place[1]], str):
            return str(layer.labels[place[1]])
        return f"{layer.name}[{layer.unit_texts[place[1]] if layer.shape else place[1]}]"

    def at(self, number: int) -> Place:
        """Return the place of a unit by its number among the units of all layers."""
        layer = bisect_right(self._first, number) - 1
        return list(self.layers)[layer], number - self._first[layer]

    @cached_property
    def _first(self) -> list[int]:
        """The number of the first unit of each layer among the units of all layers."""
        return list(accumulate((x.size for x in self.layers.values()), initial=0))[:-1]

    def all_places(self) -> list[Place]:
        """Return the places of all units: variables in their order, then other units by layer."""
        units = ((name, i) for name, layer in self.layers.items() for i in range(layer.size))
        return list(dict.fromkeys([*self.variables, *units]))

    def by_key(self) -> dict[Hashable, Place]:
        """Return name -> place of all units: the names of variables, labels, or (layer, number).

        Each name is read as its unit.
        """
        out: dict[Hashable, Place] = {self.of(place): place for place in self.variables}
        for place in self.all_places()[len(out) :]:
            # The common case is quick: a unit without a label, and no other unit named like its
            # place.
            plain = self.layers[place[0]].labels is None and place not in self.unique
            out[place if plain else next(self._names(place))] = place
        return out

    def _names(self, place: Place) -> Iterator[Hashable]:
        """Yield names that are read as this unit, the shortest first."""
        layer, unit = self.layers[place[0]], place[1]
        label = None if layer.labels is None else layer.labels[unit]
        if label is not None and self.place(label) == place:
            yield label
        if self.place(place) == place:
            yield place
        text = f"{layer.name}[{layer.unit_texts[unit]}]"
        yield from (way for way in ((layer.name, label), text) if self.place(way) == place)

    def column(self, place: Place) -> Hashable:
        """Return a name of a unit that is also read as this unit when it is written as text."""
        for name in self._names(place):
            if self.place(str(name)) == place:
                return name
        return next(self._names(place))

    def text(self, place: Place) -> str:
        """Return the text for a unit in files: a variable, layer[unit], or another of its names."""
        layer, unit = self.layers[place[0]], place[1]
        own = layer.holds_variables or layer.is_variable
        first = self.of(place) if own else f"{layer.name}[{layer.unit_texts[unit]}]"
        if self.place(first) == place:
            return first
        return next((str(x) for x in self._names(place) if self.place(str(x)) == place), first)

    def described(self, layer: str, units: Array | None = None) -> str:
        """Return a layer, or one of its variables, in words for a message.

        `units` (size,) marks the units that are meant; the first of them is named if it is a
        variable.
        """
        if units is None or not units.any():
            return self.layers[layer].title
        place = layer, int(np.flatnonzero(units)[0])
        return f"variable {self.of(place)!r}" if place in self.variables else f"layer {layer!r}"


def as_members(given: object, what: str) -> tuple[Member, ...]:
    """Return names of units or layers as a tuple; PgmError for a string or for no sequence."""
    if not is_several(given):
        raise PgmError(
            f"{what} must be a sequence of layers or variables such as ({told(given)},), not "
            f"{'a string' if isinstance(given, str) else told(given)}"
        )
    names = tuple(given)
    for name in names:
        if not hashable(name):
            raise PgmError(
                f"{what}: {name!r} is no name; expected the name of a layer or variable, or "
                "(layer, number of a unit)"
            )
    return names
