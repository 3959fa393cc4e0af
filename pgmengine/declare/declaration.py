"""The declaration of a graph as plain data, for files and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from pgmengine.base.checks import MAX_AXES
from pgmengine.base.errors import PgmError
from pgmengine.declare.model import Model
from pgmengine.declare.terms.stored_terms import term_records, term_tensors
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import LARGEST_READ
from pgmengine.model.structure import Structure
from pgmengine.units import Unit

# Entries of a layer besides the fields of its unit.
LAYER_ENTRIES = {"name", "unit", "size", "bias", "labels", "states"}


# The most levels of tuples within tuples of a name. The list of names is the fourth level of a
# declaration.
MAX_NAME_DEPTH = MAX_AXES - 4


def declaration_of(model: Model) -> dict[str, Any]:
    """Return the declaration of a model's graph, without its parameters.

    Terms are listed without their units, and variables are left out: `stored_terms` has these as
    arrays.
    """
    layers = [layer_entry(layer) for layer in model.structure.layers.values()]
    couplings = [
        {"cause" if c.directed else "couple": [c.a, c.b]} for c in model.structure.weighted
    ]
    out: dict[str, Any] = {"layers": layers, "couplings": couplings}
    out |= term_records(model.structure)
    if arrays := [name for name, layer in model.structure.layers.items() if layer.is_array]:
        out["arrays"] = arrays
    return out


def placed_units(structure: Structure) -> tuple[bytes, ...]:
    """Return the units of terms and variables, which a declaration leaves out."""
    return tuple(part.tobytes() for part in term_tensors(structure).values())


def layer_entry(layer: Layer) -> dict[str, Any]:
    """Return the entry of a layer: its name, its unit with settings, its size, labels and states.

    PgmError if a file would read another unit type.
    """
    own = unit_types().get(kind := type(layer.unit).__name__)
    if own is not type(layer.unit) and own is not None and _ours(own):
        raise PgmError(
            f"layer {layer.name!r}: its unit type {kind!r} has the name of one of pgmengine's, "
            "which a file would mean: rename it"
        )
    size = list(layer.shape) or int(layer.size)
    entry: dict[str, Any] = {"name": layer.name, "unit": kind, **_fields(layer), "size": size}
    if layer.labels is not None:
        entry["labels"] = [_label(v) for v in layer.labels]
    if layer.state_names is not None:
        entry["states"] = [_label(v) for v in layer.state_names]
    return entry


def _fields(layer: Layer) -> dict[str, Any]:
    """Return the fields of the layer's unit; PgmError if reading a file would change them."""
    unit, own = layer.unit, [f.name for f in fields(layer.unit) if f.init]
    if taken := LAYER_ENTRIES.intersection(own):
        raise PgmError(
            f"layer {layer.name!r}: a file has another meaning for the field {min(taken)!r} of "
            f"{unit!r}: rename the field"
        )
    try:
        out: dict[str, Any] = json.loads(
            json.dumps({name: getattr(unit, name) for name in own}, default=np.generic.item)
        )
    except TypeError:
        out = {}
    if (
        not out
        and own
        or type(unit)(**{name: plain_label(value) for name, value in out.items()}) != unit
    ):
        raise PgmError(
            f"layer {layer.name!r}: a file holds numbers, text and tuples, not all of {unit!r}"
        )
    return out


def check_names_come_back(layers: Iterable[Layer]) -> None:
    """Raise PgmError for a name of a unit or of a state that differs after saving and loading.

    A date, for example, would become text, and the loaded model would not accept the date.
    """
    for layer in layers:
        of_units = "label", layer.labels
        for what, names in (of_units, ("name of a state", layer.state_names)):
            for name in names or ():
                if not _comes_back(name):
                    raise PgmError(
                        f"{layer.title}: {name!r:.80} cannot be saved as a {what}: a file "
                        "holds text, numbers in double precision, booleans, None and tuples of "
                        f"these; declare another {what}, such as the text {str(name)!r:.80}"
                    )


def _comes_back(name: Hashable) -> bool:
    """Whether the name is equal to this one after saving and loading."""
    if isinstance(name, tuple):
        inner: list[Hashable] = list(name)
        for _ in range(MAX_NAME_DEPTH):
            if not (deeper := [part for part in inner if isinstance(part, tuple)]):
                return all(_comes_back(part) for part in name)
            inner = [part for one in deeper for part in one]
        return False
    plain = name.item() if isinstance(name, np.generic) else name
    if isinstance(plain, int) and abs(plain) > LARGEST_READ:
        return False
    known = plain is None or isinstance(plain, (int, float, str))
    return known and bool(json.loads(json.dumps(plain)) == name)


def _label(value: Hashable) -> object:
    """Return a label for JSON: tuples become lists, and other objects their text."""
    if isinstance(value, tuple):
        return [_label(v) for v in value]
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if plain is None or isinstance(plain, (int, float, str)) else str(value)


def plain_label(value: Any) -> Any:
    """Return a label from JSON, in which tuples have become lists."""
    return tuple(plain_label(v) for v in value) if isinstance(value, list) else value


def unit_types() -> dict[str, type[Unit]]:
    """Return name -> unit type; a type of pgmengine replaces others of the same name."""
    found, ours, waiting = dict[str, type[Unit]](), dict[str, type[Unit]](), [Unit]
    while waiting:
        waiting += (below := waiting.pop().__subclasses__())
        found |= {cls.__name__: cls for cls in below}
        ours |= {cls.__name__: cls for cls in below if _ours(cls)}
    return found | ours


def _ours(kind: type[Unit]) -> bool:
    """Whether a unit type belongs to pgmengine."""
    return kind.__module__.startswith("pgmengine.")
