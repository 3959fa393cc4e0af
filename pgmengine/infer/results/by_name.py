"""Answers by the names of units and states."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine.base.errors import NoSuchName, PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.names import hashable
from pgmengine.base.types import Array
from pgmengine.evidence.frames import state_keys
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.model.tables import check_finite
from pgmengine.model.variables import Member, Place, find, unit_name

if TYPE_CHECKING:
    import pandas as pd


class Joint(str):
    """A wanted quantity: the joint distribution of a few units given the evidence.

    Use it in `want=`, and read the answer as `result.joint[names]`, an array with an axis for each
    unit, and an axis of rows in front if the evidence has rows. It is the name of the quantity, as
    "marginals" is, and knows its units.

    Parameters
    ----------
    *units : names of variables, or (layer, number of a unit), each once.

    Raises
    ------
    PgmError if there is no unit, or one unit twice.

    >>> import pgmengine as pgm
    >>> want = pgm.Joint(("h", 0), ("h", 1))
    >>> r = pgm.infer(pgm.rbm(3, 2, rng=0), want=(want,))
    >>> r.joint[("h", 0), ("h", 1)].shape
    (2, 2)
    """

    units: tuple[Member, ...]

    def __new__(cls, *units: Member) -> Joint:
        """Return the name of the joint distribution of some units."""
        if wrong := [unit for unit in units if not hashable(unit)]:
            raise PgmError(
                f"Joint takes names of units one by one, Joint('a', 'b'), not {wrong[0]!r}"
            )
        if not units or len(set(units)) < len(units):
            raise PgmError(f"Joint needs different units, at least one, not {units!r}")
        name = super().__new__(cls, f"joint of {', '.join(map(repr, units))}")
        name.units = units
        return name

    def __reduce__(self) -> tuple[type[Joint], tuple[Member, ...]]:
        return Joint, self.units


class Joints(dict[Any, Array]):
    """Units -> their joint distribution, an array with an axis for each, rows in front if any.

    The units may be named in any order, and a single one by its name alone.
    """

    def __missing__(self, key: Any) -> Array:
        known, units = self._known(key)
        if known is None:
            have = ", ".join(str(list(known)) for known in self)
            raise NoSuchName(
                f"there is no joint distribution of {key!r}; there are those of {have}"
            )
        found = self[known]
        rows = found.ndim - len(known)
        order = (*range(rows), *(rows + known.index(unit) for unit in units))
        return np.asarray(found.transpose(order))

    def __contains__(self, key: object) -> bool:
        return self._known(key)[0] is not None

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the joint distribution of some units, or the default."""
        return self[key] if key in self else default

    def _known(self, key: Any) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
        """Return the units of a distribution in its order, None if there is none, and in key's."""
        single = {known[0] for known in self if len(known) == 1}
        # The name of a single unit may be (layer, number).
        units = key if isinstance(key, tuple) and key not in single else (key,)
        found = (known for known in self if sorted(map(repr, known)) == sorted(map(repr, units)))
        return next(found, None), units


def units_of(structure: Structure, joint: Joint) -> tuple[int, ...]:
    """Return the units of a Joint, numbered over all layers; they have finitely many states."""
    places = [find(structure, unit, str(joint)) for unit in joint.units]
    for layer, _ in places:
        check_finite(structure, layer)
    if len(set(places)) < len(places):
        raise PgmError(f"{joint}: a unit is named twice")
    return tuple(structure.first_unit[layer] + i for layer, i in places)


def marginal(
    structure: Structure, prob: Mapping[str, Array], name: Member
) -> dict[Hashable, float | Array]:
    """Return state -> probability of a unit; arrays over rows where `prob` has rows."""
    layer, unit = find(structure, name, "marginal")
    keys = state_keys(structure.layers[layer])
    found = prob[layer][..., unit, :]
    if found.ndim == 1:
        return {key: float(p) for key, p in zip(keys, found, strict=True)}
    return {key: found[:, k] for k, key in enumerate(keys)}


def named_places(structure: Structure) -> dict[Hashable, Place]:
    """Return the name of every unit -> its place: variables first, then all other units."""
    out: dict[Hashable, Place] = {
        unit_name(structure.layers, place): place for place in structure.variables
    }
    variables = set(structure.variables)
    for name, layer in structure.layers.items():
        for i in range(layer.size):
            if (name, i) in variables:
                continue
            label = layer.labels[i] if layer.labels else None
            known = structure.places.get(label) == (name, i) if label is not None else False
            out[label if known else (name, i)] = name, i
    return out


def state_values(layer: Layer, values: Array) -> Array:
    """Return names of states for values (..., size[, k]); values as they are without names.

    Values that were withheld are NaN, and stay so.
    """
    unit = layer.unit
    if unit.support is None or (layer.state_table is None and unit.width == 1):
        return values
    states = unit.state_of(values)
    found = states if layer.state_table is None else layer.state_table.array[states]
    lost = np.isnan(values) if unit.width == 1 else np.isnan(values).any(axis=-1)
    return np.where(lost, np.nan, found) if lost.any() else found


def assignment(structure: Structure, mode: Mapping[str, Array]) -> dict[Hashable, Any]:
    """Return name of a unit -> its state in the most probable complete state, by name."""
    values = {name: state_values(structure.layers[name], v) for name, v in mode.items()}
    found = {key: values[name][..., i] for key, (name, i) in named_places(structure).items()}
    return {
        key: v.item() if np.ndim(v) == 0 and hasattr(v, "item") else v for key, v in found.items()
    }


def samples_frame(
    structure: Structure, samples: Mapping[str, Array], has_rows: bool
) -> pd.DataFrame:
    """Return draws as a DataFrame: a row for each draw (and row of evidence), a column for a unit.

    `samples` are (draws, rows, size[, k]).
    """
    with needed_by("samples_frame()"):
        import pandas as pd

    values = {name: state_values(structure.layers[name], v) for name, v in samples.items()}
    draws, rows = next(iter(values.values())).shape[:2]
    columns = {
        key: values[name][:, :, i].T.ravel() for key, (name, i) in named_places(structure).items()
    }
    names, levels = (["row", "draw"], [range(rows), range(draws)])
    index = pd.MultiIndex.from_product(levels, names=names)
    frame = pd.DataFrame(columns, index=index)
    return frame if has_rows else frame.droplevel("row")
