"""Answers by the names of units and states."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pgmengine.base.checks import MAX_AXES
from pgmengine.base.display import few
from pgmengine.base.errors import NoSuchName, PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.base.names import hashable
from pgmengine.base.types import Array
from pgmengine.base.work.interrupts import whole_import
from pgmengine.declare.handles import Units, units_of_member
from pgmengine.evidence.frames import shown_units, state_keys
from pgmengine.evidence.target import Target
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Member, Names, Place
from pgmengine.model.structure import Structure
from pgmengine.model.tables import check_finite

if TYPE_CHECKING:
    import pandas as pd


class OfUnits(str):
    """Base of wanted quantities of some units: a name, like "marginals", that holds its units.

    `quantity` is the name of the answers, and `what` the first words of the name. Handles among the
    units know no builder, so that other processes can have them.
    """

    quantity: ClassVar[str]
    what: ClassVar[str]
    units: tuple[Member | Units, ...]

    def __new__(cls, *units: Member | Units) -> Self:
        """Return the name of the quantity of some units."""
        own = cls.__name__
        if wrong := [unit for unit in units if not hashable(unit)]:
            raise PgmError(
                f"{own} takes names of units one by one, {own}('a', 'b'), not {wrong[0]!r}"
            )
        if not units or len(set(units)) < len(units):
            raise PgmError(f"{own} needs different units, at least one, not {units!r}")
        name = super().__new__(cls, f"{cls.what} of {', '.join(map(_written, units))}")
        name.units = tuple(
            replace(unit, owner=None) if isinstance(unit, Units) else unit for unit in units
        )
        return name

    def __reduce__(self) -> tuple[type[Self], tuple[Member | Units, ...]]:
        return type(self), self.units


def _written(unit: Member | Units) -> str:
    """Return a unit as the name of a quantity has it; equal names mean equal units.

    The text of a handle is not enough: "z[...]" may stand for any units, and "z[-1]" for another
    unit in an array of another length.
    """
    if not isinstance(unit, Units):
        return repr(unit)
    numbers = [str(i) for i in unit.index.ravel()]
    sum_of_all = hashlib.sha256(" ".join([*numbers, str(unit.shape)]).encode()).hexdigest()[:12]
    return f"{unit.text} (units {few(numbers)}, {sum_of_all})" if unit.ndim else unit.text


class Joint(OfUnits):
    """A wanted quantity: the joint distribution of a few units given the evidence.

    Use it in `want=`, and read the answer as `result.joint[names]`, an array with an axis for each
    unit, and an axis of rows in front if the evidence has rows. It is a name of a quantity, like
    "marginals", that holds its units.

    Parameters
    ----------
    *units : names of variables, (layer, number of a unit), arrays of variables or layers by their
        names, and parts of them as "z[3:]" or by handles; each unit once. An array has an axis for
        each of its units, in order.

    Raises
    ------
    PgmError if there is no unit, or one unit twice.

    >>> import pgmengine as pgm
    >>> want = pgm.Joint(("h", 0), ("h", 1))
    >>> r = pgm.infer(pgm.rbm(3, 2, rng=0), want=(want,))
    >>> r.joint[("h", 0), ("h", 1)].shape
    (2, 2)
    """

    quantity = what = "joint"


class Mode(OfUnits):
    """A wanted quantity: the most probable states of some units, summed over all others.

    Use it in `want=`, and read the answer by `result.assignment(names)`. It is marginal MAP: the
    path of the hidden states of a sequence with gaps, for example. The mode of all units together,
    `want=("mode",)`, is another question: its states of these units may differ. Answers are exact,
    and refused where they need too large tables.

    Parameters
    ----------
    *units : names of variables, (layer, number of a unit), arrays of variables or layers by their
        names, and parts of them as "z[3:]" or by handles; each unit once. Their units have finitely
        many states.

    Raises
    ------
    PgmError if there is no unit, or one unit twice.

    References
    ----------
    Park and Darwiche (2004), Complexity results and approximation strategies for MAP explanations.

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> z, x = b.variable("z", states=("rest", "work"), shape=3), b.variable("x", states=3, shape=3)
    >>> b.conditional(z[0], (), [0.5, 0.5])
    >>> b.conditional(z[1:], (z[:-1],), [[0.6, 0.4], [0.4, 0.6]])
    >>> b.conditional(x, (z,), [[0.98, 0.01, 0.01], [0.3, 0.3, 0.4]])
    >>> r = pgm.infer(b.build(), {"x[0]": 2}, want=("mode", pgm.Mode("z")))
    >>> r.assignment("z")["z"].tolist(), r.assignment()["z"].tolist()
    (['work', 'work', 'work'], ['work', 'rest', 'rest'])
    """

    quantity, what = "modes", "mode"


class Joints(dict[Any, Array]):
    """Units -> their joint distribution, an array with an axis for each unit.

    The axis of rows, if there is one, comes first. The units may be named in any order and by any
    of their names, and a single unit by its name alone.
    """

    def __init__(self, values: Mapping[Any, Array], names: Names) -> None:
        super().__init__(values)
        self.names = names

    def __missing__(self, key: Any) -> Array:
        known, axes = self._known(key)
        if known is None:
            have = ", ".join(str(list(known)) for known in self)
            raise NoSuchName(
                f"there is no joint distribution of {key!r}; there are those of {have}"
            )
        found = self[known]
        rows = found.ndim - len(axes)
        return np.asarray(found.transpose(*range(rows), *(rows + axis for axis in axes)))

    def __contains__(self, key: object) -> bool:
        return self._known(key)[0] is not None

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the joint distribution of some units, or the default."""
        return self[key] if key in self else default

    def _known(self, key: Any) -> tuple[tuple[Any, ...] | None, list[int]]:
        """Return the units of a joint distribution, None if there is none, and the key's axes."""
        # The name of a single unit may be (layer, number).
        for units in ((key,), key if isinstance(key, tuple) else ()):
            asked = self._places(units)
            for known in self:
                places = self._places(known)
                if asked and sorted(asked) == sorted(places or ()):
                    return known, [places.index(place) for place in asked]  # type: ignore[union-attr]
        return None, []

    def _places(self, units: tuple[Any, ...]) -> list[Place] | None:
        """Return the units that names stand for, None if one of them is unknown."""
        try:
            return [place for one in members_of(self.names, units, "joint") for place in one.places]
        except PgmError:
            return None


def asked(target: Target | None) -> Target:
    """Return the target of a result; raise PgmError if it has none, as after `run` of a method."""
    if target is None:
        raise PgmError(
            "only results of pgm.infer and of prepared questions know their model, its names and "
            "the evidence; this is a result of a method's own run: ask by pgm.infer"
        )
    return target


@dataclass(frozen=True)
class Part:
    """The units that one name of a wanted quantity stands for.

    Attributes
    ----------
    name : the name, as answers have it.
    layer : their layer.
    units : their numbers in the layer; () if the name is that of a single unit.
    """

    name: Member
    layer: Layer
    units: Array

    @property
    def places(self) -> list[Place]:
        """The places of the units, in order."""
        return [(self.layer.name, int(i)) for i in self.units.ravel()]


def members_of(names: Names, given: Sequence[Member | Units], what: str) -> list[Part]:
    """Return the units of each name of a wanted quantity, which messages call `what`.

    PgmError for unknown names, and for an array without units.
    """
    found = list[Part]()
    for one in given:
        key = one.text if isinstance(one, Units) else one
        whole = names.layers.get(one) if isinstance(one, str) else None
        if whole is not None and (whole.is_array or not whole.holds_variables):
            found.append(Part(key, whole, np.arange(whole.size).reshape(whole.grid)))
            continue
        if whole is not None:
            # Users do not know the layers that hold variables.
            names.unit(one, what)
        layer, units, _ = units_of_member(names, one, what)
        if not units.size:
            raise PgmError(f"{what}: {key} has no units, expected at least one")
        found.append(Part(key, names.layers[layer], units))
    return found


def same_units(names: Names, one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether names stand for the same units, one by one, in any order."""
    try:
        one, other = ([tuple(x.places) for x in members_of(names, y, "mode")] for y in (one, other))
    except PgmError:
        return False
    return sorted(one) == sorted(other)


def units_of(structure: Structure, wanted: OfUnits) -> tuple[int, ...]:
    """Return the units of a Joint or Mode, numbered over all layers; they have finite states."""
    places = list[Place]()
    for part in members_of(structure.names, wanted.units, str(wanted)):
        check_finite(structure, part.layer.name)
        places += part.places
    if len(set(places)) < len(places):
        raise PgmError(f"{wanted}: a unit is named twice")
    if isinstance(wanted, Joint) and len(places) >= MAX_AXES:
        raise PgmError(
            f"{wanted} has {len(places)} units, expected at most {MAX_AXES - 1}, because it has an "
            "axis for each of them; pgm.Mode takes any number of units"
        )
    return tuple(structure.first_unit[layer] + i for layer, i in places)


def assignment_of(structure: Structure, mode: Mode, states: Array) -> dict[Hashable, Any]:
    """Return name -> state, or array of them, from numbers of states (..., units).

    States have the names, numbers or values that `assignment` gives for complete states.
    """
    found, first = dict[Hashable, Any](), 0
    for part in members_of(structure.names, mode.units, str(mode)):
        own = states[..., first : first + part.units.size]
        first += part.units.size
        keys, known = _keys_in_modes(part.layer), np.isfinite(own)
        named = keys[np.where(known, own, 0).astype(np.int64)]
        if not known.all():
            # States that were withheld are NaN, and stay NaN.
            named = np.where(known, named, np.nan)
        value = named.reshape((*named.shape[:-1], *part.units.shape))
        found[part.name] = value.item() if np.ndim(value) == 0 else value
    return found


def _keys_in_modes(layer: Layer) -> Array:
    """Return the states (states,) of a layer as modes show them.

    They are names, numbers of states of arrays and of units with several components, or values.
    """
    unit = layer.unit
    assert unit.support is not None
    if layer.state_table is not None:
        return np.asarray(layer.state_table.array)
    if layer.is_array or unit.width > 1:
        return np.arange(len(unit.support))
    return np.ravel(unit.support)


def marginal(
    structure: Structure, prob: Mapping[str, Array], name: Member | Units
) -> dict[Hashable, float | Array]:
    """Return state -> probability of a unit, of all units of a layer, or of a part, in its shape.

    The probabilities are arrays over rows where `prob` has rows.
    """
    whole = structure.layers.get(name) if isinstance(name, str) else None
    if whole is not None and (whole.is_array or whole.size > 1):
        check_finite(structure, whole.name)
        found = whole.in_shape(prob[whole.name], -2)
        return OfStates(whole, {key: found[..., k] for k, key in enumerate(state_keys(whole))})
    if isinstance(name, Units):
        of, units, _ = units_of_member(structure.names, name, "marginal")
    else:
        of, unit = structure.names.unit(name, "marginal")
        units = np.array(unit)
    check_finite(structure, of)
    layer = structure.layers[of]
    keys, found = state_keys(layer), prob[of][..., units, :]
    if found.ndim == 1:
        return OfStates(layer, {key: float(p) for key, p in zip(keys, found, strict=True)})
    return OfStates(layer, {key: found[..., k] for k, key in enumerate(keys)})


class OfStates(dict[Hashable, Any]):
    """Numbers by the names of states, which are read in all their spellings, as in evidence."""

    def __init__(self, layer: Layer, numbers: Mapping[Hashable, Any]) -> None:
        super().__init__(numbers)
        self.layer = layer

    def __missing__(self, key: Hashable) -> Any:
        table = self.layer.state_table
        if table is None:
            raise NoSuchName(
                f"{self.layer.title}: {key!r} is no state, expected {listed([*map(repr, self)])}"
            )
        try:
            return self[table.names[table.state(key, self.layer.title)]]
        except PgmError as error:
            raise NoSuchName(str(error)) from None

    def __reduce__(self) -> tuple[type[dict[Hashable, Any]], tuple[dict[Hashable, Any]]]:
        # A copy in another process or a file is plain.
        return dict, (dict(self),)


def state_values(layer: Layer, values: Array) -> Array:
    """Return the names of states for values (..., size[, k]), or the values if there are no names.

    Values that were withheld are NaN, and stay NaN.
    """
    unit = layer.unit
    if unit.support is None:
        return unit.numbers_of(values)
    if layer.state_table is None and unit.width == 1:
        return values
    states = unit.state_of(values)
    found = states if layer.state_table is None else layer.state_table.array[states]
    lost = np.isnan(values) if unit.width == 1 else np.isnan(values).any(axis=-1)
    return np.where(lost, np.nan, found) if lost.any() else found


def assignment(structure: Structure, mode: Mapping[str, Array]) -> dict[Hashable, Any]:
    """Return name of a unit -> name of its state in the most probable complete state.

    An array of variables has one entry, an array of its shape.
    """
    values = {name: state_values(structure.layers[name], v) for name, v in mode.items()}
    layers = structure.layers
    arrays = {}
    for name, layer in layers.items():
        if layer.is_array:
            named = layer.state_names is not None
            states = values[name] if named else layer.unit.state_of(mode[name])
            arrays[name] = layer.in_shape(states, -1)
    found = arrays | {
        key: values[name][..., i]
        for key, (name, i) in structure.names.by_key().items()
        if name not in arrays
    }
    return {
        key: v.item() if np.ndim(v) == 0 and hasattr(v, "item") else v for key, v in found.items()
    }


def drawn_states(structure: Structure, samples: Mapping[str, Array]) -> dict[Hashable, Array]:
    """Return draws as a user names them, (draws, rows, ...): variables, arrays and layers.

    Variables and arrays have the names of their states, or their numbers if they have no names.
    Layers have an axis of units, or their shape, and the values of their units, or the names of
    their states.
    """
    of_variables = {name for name, _ in structure.variables}
    known = assignment(structure, samples)
    found: dict[Hashable, Array] = {}
    for shown in shown_units(structure):
        layer = shown.layer
        if shown.variable or layer.is_array:
            found[shown.name] = np.asarray(known[shown.name])
        elif layer.name not in of_variables:
            named = state_values(layer, samples[layer.name])
            values = samples[layer.name] if layer.state_table is None else named
            found[shown.name] = layer.in_shape(values, 2)
    return found


def samples_frame(
    structure: Structure, samples: Mapping[str, Array], has_rows: bool
) -> pd.DataFrame:
    """Return draws as a DataFrame with a column for each unit.

    It has a row for each draw, or for each draw and row of evidence.

    `samples` are (draws, rows, size[, k]).
    """
    with needed_by("samples_frame()"), whole_import():
        import pandas as pd

    values = {name: state_values(structure.layers[name], v) for name, v in samples.items()}
    draws, rows = next(iter(values.values())).shape[:2]
    places = structure.names.all_places()
    names, levels = (["row", "draw"], [range(rows), range(draws)])
    index = pd.MultiIndex.from_product(levels, names=names)
    columns = {}
    for i, (name, unit) in enumerate(places):
        column = values[name][:, :, unit].T.ravel()
        text = all(isinstance(state, str) for state in structure.layers[name].state_names or ())
        # Names that are not text are kept as objects. Otherwise pandas would look for dates among
        # them, and some of its versions would turn every integer into a float.
        as_objects = column.dtype.kind == "O" and not text
        columns[i] = pd.Series(column, index, dtype=object) if as_objects else column
    frame = pd.DataFrame(columns, index=index)
    # If all names were pairs, pandas would make two levels of columns, which take two lines in a
    # file.
    own = [structure.names.column(place) for place in places]
    frame.columns = pd.Index(own, dtype=object, tupleize_cols=False)
    return frame if has_rows else frame.droplevel("row")
