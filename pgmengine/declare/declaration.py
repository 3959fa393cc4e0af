"""The declaration of a graph as plain data, for files and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import fields
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.declare.stored_tables import table_entries
from pgmengine.model.layer import Layer
from pgmengine.model.model import Model
from pgmengine.units import Unit

# Entries of a layer besides the fields of its unit.
RESERVED = {"name", "unit", "size", "bias", "labels", "states"}


def declaration_of(model: Model) -> dict[str, Any]:
    """Return the declaration of a model's graph, without its parameters.

    Tables are entries without their units, and variables are not in it: `stored_tables` has both as
    arrays.
    """
    layers, types = [], unit_types()
    for layer in model.structure.layers.values():
        own = types.get(kind := type(layer.unit).__name__)
        if own is not type(layer.unit) and own is not None and _ours(own):
            raise PgmError(
                f"layer {layer.name!r}: its unit type {kind!r} has the name of one of pgmengine's, "
                "which a file would mean: rename it"
            )
        entry = {"name": layer.name, "unit": kind, **_fields(layer), "size": int(layer.size)}
        if layer.labels is not None:
            entry["labels"] = [_label(v) for v in layer.labels]
        if layer.state_names is not None:
            entry["states"] = [_label(v) for v in layer.state_names]
        layers.append(entry)
    couplings = [
        {"cause" if c.directed else "couple": [c.a, c.b]} for c in model.structure.couplings
    ]
    out: dict[str, Any] = {"layers": layers, "couplings": couplings}
    if model.structure.tables:
        out["tables"] = table_entries(model.structure)
    return out


def _fields(layer: Layer) -> dict[str, Any]:
    """Return the fields of the layer's unit, if a file can hold them and give them back."""
    unit, own = layer.unit, [f.name for f in fields(layer.unit) if f.init]
    if taken := RESERVED.intersection(own):
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


def _label(value: Hashable) -> object:
    """Return a label as JSON has it: tuples become lists, all but numbers and text their text."""
    if isinstance(value, tuple):
        return [_label(v) for v in value]
    if isinstance(value, np.integer):
        return int(value)
    return value if value is None or isinstance(value, (int, float, str)) else str(value)


def plain_label(value: Any) -> Any:
    """Return a label as it was before a file made lists of its tuples."""
    return tuple(plain_label(v) for v in value) if isinstance(value, list) else value


def unit_types() -> dict[str, type[Unit]]:
    """Return every unit type by name; pgmengine's own types come before others of their name."""
    found, ours, waiting = dict[str, type[Unit]](), dict[str, type[Unit]](), [Unit]
    while waiting:
        waiting += (below := waiting.pop().__subclasses__())
        found |= {cls.__name__: cls for cls in below}
        ours |= {cls.__name__: cls for cls in below if _ours(cls)}
    return found | ours


def _ours(kind: type[Unit]) -> bool:
    """Whether a unit type belongs to pgmengine."""
    return kind.__module__.startswith("pgmengine.")
