"""Checks of a declaration; every error names the layer or coupling, the index and a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property

import numpy as np

from pgmengine.base.checks import check_text, is_missing, whole
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Weight
from pgmengine.base.work.memory import no_room
from pgmengine.model.couplings import Coupling
from pgmengine.model.graph.parent_order import cycle_of
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.model.terms.input_rows import input_rows
from pgmengine.model.weights import is_sparse
from pgmengine.units import Normal, Unit

# Copies of a parameter, or of a list of values, that exist at a time during the checks.
COPIES_WHILE_CHECKED = 3
SMALLER_ADVICE = "declare it smaller, or with sparse weights"


def check_layers(layers: list[Layer]) -> None:
    """PgmError unless names are distinct strings, units are units, and sizes positive integers."""
    if not layers:
        raise PgmError("the graph has no layers: add one with builder.layer(name, unit, size)")
    seen: set[str] = set()
    for layer in layers:
        check_name(layer.name)
        if layer.name in seen:
            raise PgmError(f"layer {layer.name!r} is declared twice; give one of them another name")
        seen.add(layer.name)
        check_size(layer)
        _check_names(layer)
        _check_unit(layer)
        check_settings(layer.unit, f"layer {layer.name!r}")
        count = 0 if layer.unit.support is None else len(layer.unit.support)
        names = layer.state_names
        if names is not None and (len(names) != count or len(set(names)) != count):
            raise PgmError(
                f"layer {layer.name!r}: {', '.join(map(repr, names))} are not {count} different "
                "names, one "
                f"for each state of {layer.unit!r}"
            )


def check_name(name: object) -> None:
    """PgmError unless the name of a layer is text that files can hold."""
    if not isinstance(name, str) or not name:
        raise PgmError(f"a layer's name must be a non-empty string, not {name!r}")
    check_text(name, "a layer's name")


def check_parameter(name: object) -> str:
    """Return the name of a parameter, "" for None; PgmError unless it is text."""
    if name is None:
        return ""
    if not isinstance(name, str) or not name:
        raise PgmError(f"the name of a parameter must be a non-empty string, not {name!r}")
    check_text(name, "the name of a parameter")
    return name


def check_size(layer: Layer) -> None:
    """PgmError unless the size is a positive integer, and its numbers fit into memory."""
    if not isinstance(layer.unit, Unit):
        raise PgmError(
            f"layer {layer.name!r}: the unit must be one such as Binary(), not {told(layer.unit)}"
        )
    whole(f"layer {layer.name!r}: the size", layer.size)
    check_unit_room(layer.unit, f"layer {layer.name!r}")
    if why := no_room(COPIES_WHILE_CHECKED * 8 * _width(layer), SMALLER_ADVICE):
        raise PgmError(
            f"layer {layer.name!r}: {layer.size} units of {layer.unit!r} do not fit into memory: "
            f"{why}"
        )


def check_unit_room(unit: Unit, what: str) -> None:
    """PgmError unless the list of a unit's values fits into memory."""
    if why := no_room(COPIES_WHILE_CHECKED * unit.support_bytes, "take fewer states"):
        raise PgmError(f"{what}: the values of {unit!r} do not fit into memory: {why}")


def _width(layer: Layer) -> int:
    """Return the width of the layer as a Python integer, which does not overflow."""
    return int(layer.size) * int(layer.unit.width)


def _check_names(layer: Layer) -> None:
    """PgmError unless labels and names of states differ, with one label for each unit."""
    for what, names in (("label", layer.labels), ("name of a state", layer.state_names)):
        for name in names or ():
            try:
                hash(name)
            except TypeError:
                raise PgmError(
                    f"layer {layer.name!r}: {name!r} cannot be a {what}: give text or numbers"
                ) from None
            for part in name if isinstance(name, tuple) else (name,):
                if isinstance(part, str):
                    check_text(part, f"layer {layer.name!r}: a {what}")
    for name in layer.state_names or ():
        if is_missing(name):
            raise PgmError(
                f"layer {layer.name!r}: {name!r} cannot be a name of a state: it means not observed"
            )
    labels = layer.labels
    if labels is not None and len(labels) != layer.size:
        raise PgmError(
            f"layer {layer.name!r}: {len(labels)} labels for {layer.size} units, expected as many"
        )
    if labels is not None and len(set(labels)) < layer.size:
        twice = next(label for label in labels if labels.count(label) > 1)
        raise PgmError(f"layer {layer.name!r}: two units have the label {twice!r}")


def check_room(structure: Structure, weights: Sequence[Weight | None]) -> None:
    """PgmError unless all parameters fit into memory, including weights that `build` draws.

    Parameters
    ----------
    structure : the layers and couplings.
    weights : the weight of each coupling in order; None if `build` draws it.
    """
    layers, sizes = structure.layers, dict[str, int]()
    for layer in layers.values():
        sizes[f"layer {layer.name!r} of {layer.size} units"] = _width(layer)
    for c, weight in zip(structure.couplings, weights, strict=True):
        dense = _width(layers[c.a]) * _width(layers[c.b])
        stored = np.size(getattr(weight, "data", ()))
        sizes[f"coupling {c.key!r} of layers {c.a!r} and {c.b!r}"] = (
            2 * stored if is_sparse(weight) else dense
        )
    if why := no_room(COPIES_WHILE_CHECKED * 8 * sum(sizes.values()), SMALLER_ADVICE):
        largest = max(sizes, key=lambda what: sizes[what])
        raise PgmError(f"{largest}: the parameters of the model do not fit into memory: {why}")


def check_settings(unit: Unit, what: str) -> None:
    """PgmError unless all settings of a unit are fields of its dataclass, which can be hashed.

    Units are equal when these fields are equal.
    """
    kind, known = type(unit), {field.name for field in fields(unit)}
    apart = [
        name
        for name in vars(unit)
        if name not in known and not isinstance(getattr(kind, name, None), cached_property)
    ]
    if apart:
        raise PgmError(
            f"{what}: {apart[0]!r} of {kind.__name__} is not a field: a unit type is a frozen "
            "dataclass, whose fields tell its units apart"
        )
    try:
        hash(unit)
    except TypeError as error:
        raise PgmError(
            f"{what}: the fields of {kind.__name__}, a frozen dataclass, must be numbers, text or "
            f"tuples of these: {error}"
        ) from None


def _check_unit(layer: Layer) -> None:
    """PgmError unless the support and the base measure of a unit fit together."""
    unit, support, base = layer.unit, layer.unit.support, layer.unit.log_base
    if support is None:
        return
    shape = (unit.width,) if unit.width > 1 else ()
    if (
        not isinstance(support, np.ndarray)
        or support.ndim < 1
        or support.shape[1:] != shape
        or len(support) < 1
    ):
        raise PgmError(
            f"layer {layer.name!r}: the support of {unit!r} must be an array {('K', *shape)} of "
            f"its values, not {support!r}"
        )
    if unit.width == 1 and np.any(np.diff(support) <= 0):
        raise PgmError(
            f"layer {layer.name!r}: the support of {unit!r} must be ascending, not {support!r}"
        )
    if (
        not isinstance(base, np.ndarray)
        or base.shape != support.shape[:1]
        or not np.isfinite(base).all()
    ):
        raise PgmError(
            f"layer {layer.name!r}: log_base of {unit!r} must be an array of {len(support)} finite "
            f"numbers, one for each value, not {base!r}"
        )


def check_structure(structure: Structure) -> None:
    """PgmError unless couplings join declared layers, once each, with a finite normaliser."""
    seen: set[tuple[str, ...] | frozenset[str]] = set()
    keys: dict[str, Coupling] = {}
    for c in structure.couplings:
        for name in (c.a, c.b):
            if not isinstance(name, str):
                raise PgmError(f"a coupling joins layers by their names, not {name!r}")
            structure.names.layer(name, what=f"coupling {c.key!r}: layer")
        end = (c.a, c.b) if c.directed else frozenset((c.a, c.b))
        if end in seen:
            raise PgmError(f"coupling {c.key!r} is declared twice; declare it once")
        seen.add(end)
        if (other := keys.setdefault(c.key, c)) is not c:
            raise PgmError(
                f"couplings {other.a!r} to {other.b!r} and {c.a!r} to {c.b!r} have the same name, "
                f"{c.key!r}: rename a layer"
            )
        a, b = structure.layers[c.a], structure.layers[c.b]
        if not c.directed and all(_unbounded(layer) for layer in (a, b)):
            raise PgmError(
                f"coupling {c.key!r} joins two unbounded layers, {c.a!r} and {c.b!r}: the density "
                "would have no finite normaliser"
            )
        if c.directed and b.unit.observed_only:
            raise PgmError(
                f"coupling {c.key!r}: layer {c.b!r} has {b.unit!r} units, which cannot be children"
            )
        if c.directed and b.unit.nonnegative and not _nonnegative(a):
            raise PgmError(
                f"coupling {c.key!r}: parents of {b.unit!r} units must have values >= 0, "
                f"layer {c.a!r} has {a.unit!r}"
            )
    _check_child_only(structure)
    _check_acyclic(structure)


def _unbounded(layer: Layer) -> bool:
    """Whether values are unbounded, in units that need not be observed."""
    return not layer.unit.bounded and not layer.unit.observed_only


def _nonnegative(layer: Layer) -> bool:
    """Whether all values are at least 0."""
    return layer.unit.support is not None and bool(np.all(layer.unit.support >= 0))


def _check_child_only(structure: Structure) -> None:
    """PgmError for units that have to be children, and are not."""
    for name, layer in structure.layers.items():
        if layer.unit.child_only and (
            name in structure.undirected_layers or not structure.arrows_into[name]
        ):
            raise PgmError(
                f"layer {name!r}: {layer.unit!r} units are children of arrows only; "
                "give them a parent with cause() and no undirected coupling"
            )
        if isinstance(layer.unit, Normal) and layer.unit.full:
            raise PgmError(
                f"layer {name!r}: Normal(full=True) is declared by the layer() of a "
                "GraphBuilder, which reads the columns from the last axis of the shape"
            )


def check_groups(structure: Structure) -> None:
    """PgmError unless units with cells are children of one variable, by rows of inputs."""
    for name, layer in structure.layers.items():
        if not layer.unit.cells:
            continue
        rows = input_rows(structure).layers.get(name)
        parents = any(c.a == name for c in structure.couplings)
        if parents or rows is None or (rows.first < 0).any():
            raise PgmError(
                f"layer {name!r}: each group of Normal(full=True) columns is the child of one "
                "variable, with a row of inputs for each of its states, and has no other parents, "
                "biases or children: declare cause(variable, units, means), with handles"
            )


def _check_acyclic(structure: Structure) -> None:
    """PgmError for a directed cycle of layers."""
    if cycle := cycle_of((c.a, c.b) for c in structure.arrows if c.a != c.b):
        raise PgmError(f"the arrows form a directed cycle: {' -> '.join(cycle)}; remove one")
