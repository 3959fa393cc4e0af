"""The model of a declaration: plain data, from a TOML file or from the metadata of a saved model.

A declaration lists layers, couplings, variables, shared biases, conditionals and tables. In TOML:

    # Optional: a file of parameters by name.
    weights = "weights.safetensors"

    [[layers]]
    name = "v"
    unit = "Binary"
    size = 784

    [[layers]]
    name = "h"
    unit = "MultiValued"
    # Arguments of the unit type stand beside it; inf is infinity.
    s = 4
    size = 500
    # Optional: a number or a list; names of the units; names of their states.
    bias = 0.0
    labels = ["first", "second"]
    states = ["low", "high"]

    [[couplings]]
    # An undirected coupling. An arrow is cause = ["parent", "child"].
    couple = ["v", "h"]
    # Optional: drawn if absent.
    weight = [[0.1, 0.2]]

    [[couplings]]
    # Text with subscripts couples units in many places, which share the weight.
    couple = ["s[1:]", "s[:-1]"]
    weight = 0.3
    # Optional: the name of the parameter.
    name = "vertical"

    [[biases]]
    # A bias that many places share.
    units = "s"
    value = 0.1
    name = "field"

    [[variables]]
    name = "wet"
    # Names, or a number; 2 if absent.
    states = ["no", "yes"]
    # Optional: the shape of an array of variables.
    shape = [300]

    [[conditionals]]
    child = "wet"
    # A name, text such as "z[1:]", or ["layer", number of a unit]. Absent for a root.
    parents = ["rain", ["v", 0]]
    # Probabilities; the axes are the parents in order, then the child.
    values = [[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.1, 0.9]]]

    # Optional: the name of the parameter, which all places share.
    name = "emission"

    [[tables]]
    # Or the layers of many tables, with index = [[0, 1], [1, 2]], a row of units for each.
    scope = ["wet", ["h", 3]]
    values = [[1.0, 2.0], [0.5, 1.0]]
    # Optional, also for conditionals: whether the values are logarithms, such as -1e4 or -inf.
    log = false
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeAlias

import numpy as np

from pgmengine.base.checks import MAX_AXES
from pgmengine.base.errors import PgmError
from pgmengine.base.names import nearest
from pgmengine.base.types import RngLike
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.declaration import LAYER_ENTRIES, plain_label, unit_types
from pgmengine.declare.model import Model
from pgmengine.declare.validate import check_size
from pgmengine.model.forms.table_forms import KINDS
from pgmengine.model.layer import Layer
from pgmengine.model.names.state_names import LARGEST_READ
from pgmengine.model.names.unit_names import Member
from pgmengine.model.names.variables import check_shape

# An entry of a declaration, or parameters by name. Functions that add entries take out parameters.
Entry: TypeAlias = dict[str, Any]

COUPLING_ENTRIES = {"couple", "cause", "weight", "name"}

# Names of the entries that hold only numbers.
NUMERIC_ENTRIES = {"bias", "weight", "value", "values", "index"}


def declared_model(declaration: object, params: dict[str, Any], rng: RngLike) -> Model:
    """Return the model of a declaration with these parameters, all of which must be used."""
    b = declared(declaration, params)
    logs = {key: params.pop(key) for key in list(params) if key.endswith(KINDS)}
    model = b.build(rng)
    return model.with_params(logs) if logs else model


def declared(declaration: object, params: dict[str, Any]) -> GraphBuilder:
    """Return the builder of a declaration; its parameters are taken out of `params`.

    Those of tables are left. PgmError for parameters of nothing.
    """
    if not isinstance(declaration, Mapping):
        raise PgmError(
            f"the declaration must be a table of layers and couplings, not {_kind(declaration)}"
        )
    _check_plain(declaration)
    entries = [
        (key, f"{key}[{i}]", entry)
        for key in DECLARATION_LISTS
        for i, entry in enumerate(_tables(declaration, key))
    ]
    for _, where, entry in entries:
        for name in NUMERIC_ENTRIES.intersection(entry):
            _check_numbers(entry[name], f"{where}.{name}")
    b = GraphBuilder()
    for key, where, entry in entries:
        DECLARATION_LISTS[key](b, dict(entry), params, where)
    unknown = [key for key in declaration if key not in DECLARATION_LISTS]
    if unknown:
        raise PgmError(
            f"{unknown[0]!r} belongs to no layer or coupling of the declaration"
            f"{nearest(unknown[0], (*DECLARATION_LISTS, 'weights'))}"
        )
    if left := [key for key in params if not key.endswith(KINDS)]:
        names = [f"{x.name}.bias" for x in b.layers] + [f"{c.key}.weight" for c in b.couplings]
        raise PgmError(
            f"{left[0]!r} belongs to no layer or coupling of the declaration"
            f"{nearest(left[0], names)}"
        )
    return b


def _check_numbers(value: object, where: str) -> None:
    """Raise PgmError unless a value is a number or nested lists of numbers.

    numpy would convert text and booleans to numbers.
    """
    if not isinstance(value, list):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise PgmError(
                f"{where} is {_kind(value)}, expected a number, or a list of numbers without "
                "quotation marks"
            )
        return
    # Weights are many, and of few types.
    if not {type(part) for part in value} <= {int, float}:
        for i, part in enumerate(value):
            _check_numbers(part, f"{where}[{i}]")


def _check_plain(declaration: Mapping[str, Any]) -> None:
    """Raise PgmError for lists that are too deep, integers that are too large, and dates.

    Such lists and integers cannot become arrays. Dates as labels would be text when they are read
    from a file again.
    """
    waiting: list[tuple[str, Any, int]] = [("", declaration, 0)]
    while waiting:
        where, value, depth = waiting.pop()
        if depth > MAX_AXES:
            raise PgmError(f"{where[:40]}...: lists within lists, more than {MAX_AXES} levels")
        if isinstance(value, int) and abs(value) > LARGEST_READ:
            raise PgmError(
                f"{where}: an integer beyond 1e308, the largest number in double precision"
            )
        if value is not None and not isinstance(value, (Mapping, list, int)):
            raise PgmError(
                f"{where} is {_kind(value)}, expected text, a number, a list or a table; write it "
                "in quotation marks"
            )
        named, items = (
            isinstance(value, Mapping),
            enumerate(value if isinstance(value, list) else ()),
        )
        for key, part in value.items() if isinstance(value, Mapping) else items:
            # Floats and text need no check. They are skipped early, because there may be millions.
            if not isinstance(part, (float, str)):
                place = f"{where}.{key}".removeprefix(".") if named else f"{where}[{key}]"
                waiting.append((place, part, depth + 1))


def _kind(value: object) -> str:
    """Return the type and the beginning of a value as text for messages."""
    return "null" if value is None else f"{type(value).__name__} {value!r:.40}"


def _tables(declaration: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the entries of a list of tables; a missing list is empty."""
    tables = declaration.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(t, Mapping) for t in tables):
        raise PgmError(f"{key!r} must be a list of tables, written [[{key}]]")
    return tables


def _add_layer(b: GraphBuilder, entry: Entry, params: Entry, where: str) -> None:
    """Add the layer of one TOML table; its bias is taken out of `params`."""
    name, kind, size = (entry.pop(key, None) for key in ("name", "unit", "size"))
    if not isinstance(name, str) or not isinstance(kind, str) or size is None:
        raise PgmError(
            f"{where}: layer {name!r}: every layer needs a name, a unit and a size"
            f"{_suggestion(entry, {'name', 'unit', 'size'})}"
        )
    types = unit_types()
    if kind not in types:
        raise PgmError(
            f"layer {name!r}: unit {kind!r} is unknown, expected one of {', '.join(sorted(types))}"
            f"{nearest(kind, types)}"
        )
    labels, states, bias = (entry.pop(key, None) for key in ("labels", "states", "bias"))
    for key, names in (("labels", labels), ("states", states)):
        if names is not None and not isinstance(names, list):
            raise PgmError(f"layer {name!r}: {key} must be a list of names, not {names!r}")
    own = {f.name for f in fields(types[kind]) if f.init}
    wrong = [key for key in entry if key not in own]
    if wrong:
        raise PgmError(
            f"layer {name!r}: {wrong[0]!r} is not an argument of {kind} or of a layer"
            f"{nearest(wrong[0], own | LAYER_ENTRIES)}"
        )
    needed = [f.name for f in fields(types[kind]) if f.init and f.default is MISSING]
    if lacking := [key for key in needed if key not in entry]:
        raise PgmError(f"layer {name!r}: the argument {lacking[0]!r} of {kind} is missing")
    try:
        unit = types[kind](**{key: plain_label(value) for key, value in entry.items()})
    except (TypeError, ValueError, ArithmeticError) as error:
        raise PgmError(f"layer {name!r}: {error}") from None
    axes = check_shape(size, f"layer {name!r}") if isinstance(size, list) else ()
    check_size(layer := Layer(name, unit, math.prod(axes) if axes else size))
    bias = params.pop(f"{name}.bias", bias)
    if isinstance(bias, (int, float)) and not isinstance(bias, bool):
        bias = np.broadcast_to(float(bias), layer.bias_shape)
    b.layer(
        name, unit, axes or size, bias=bias, labels=plain_label(labels), states=plain_label(states)
    )


def _suggestion(entry: Collection[str], known: set[str]) -> str:
    """Return a suggestion for the first key that resembles a known one, or an empty string."""
    return next((found for key in entry if (found := nearest(key, known))), "")


def _add_coupling(b: GraphBuilder, entry: Entry, params: Entry, where: str) -> None:
    """Add the coupling of one TOML table; its weight is taken out of `params`."""
    weight, name = entry.pop("weight", None), entry.pop("name", None)
    kind, ends = next(iter(entry.items()), ("", None))
    names = ends if isinstance(ends, list) and all(isinstance(name, str) for name in ends) else []
    if kind not in ("couple", "cause") or len(entry) != 1 or len(names) != 2:
        mistyped = [key for key in entry if key not in COUPLING_ENTRIES]
        raise PgmError(
            f"{where}: a coupling is couple = [a, b] or cause = [parent, child], and may have a "
            f"weight and a name, not {str(entry):.200}"
            f"{_suggestion(mistyped, COUPLING_ENTRIES)}"
        )
    a, c = names
    key = f"{a}->{c}.weight" if kind == "cause" else f"{a}-{c}.weight"
    add = b.cause if kind == "cause" else b.couple
    key = name if isinstance(name, str) else key
    add(a, c, weight=params.pop(key, weight), name=name)


def _add_bias(b: GraphBuilder, entry: Entry, params: Entry, where: str) -> None:
    """Add the shared bias of one TOML table; its value is taken out of `params`."""
    _check_keys(entry, ("units",), ("units", "value", "name"), where, "a shared bias")
    units, name = _member(entry["units"], where), entry.get("name")
    key = name if isinstance(name, str) else f"{entry['units']}.bias"
    b.bias(units, params.pop(key, entry.get("value")), name=name)


def _add_variable(b: GraphBuilder, entry: Entry, params: Entry, where: str) -> None:
    """Add the variable of one TOML table."""
    _check_keys(entry, ("name",), ("name", "states", "shape"), where, "a variable")
    b.variable(entry["name"], entry.get("states", 2), entry.get("shape"))


def _add_conditional(b: GraphBuilder, entry: Entry, params: Entry, where: str) -> None:
    """Add the conditional of one TOML table."""
    keys = ("child", "parents", "values", "name", "log")
    _check_keys(entry, ("child", "values"), keys, where, "a conditional")
    parents = [_member(one, where) for one in _listed(entry.get("parents", []), where)]
    child, name = _member(entry["child"], where), entry.get("name")
    b.conditional(child, parents, entry["values"], name=name, log=entry.get("log", False))


def _add_table(b: GraphBuilder, entry: Entry, params: Entry, where: str) -> None:
    """Add the table or the tables of one TOML table."""
    keys, log = ("scope", "values", "index", "name", "log"), entry.get("log", False)
    _check_keys(entry, ("scope", "values"), keys, where, "a table")
    scope = [_member(one, where) for one in _listed(entry["scope"], where)]
    if "index" not in entry:
        b.table(scope, entry["values"], name=entry.get("name"), log=log)
        return
    if not all(isinstance(one, str) for one in scope):
        raise PgmError(f"{where}: the scope of tables with an index must be names of layers")
    b.tables([str(one) for one in scope], entry["index"], entry["values"], log=log)


def _check_keys(
    entry: Mapping[str, Any], needed: Collection[str], known: Collection[str], where: str, what: str
) -> None:
    """Raise PgmError unless an entry has the needed keys and no unknown ones."""
    missing = [key for key in needed if key not in entry]
    wrong = [key for key in entry if key not in known]
    if missing or wrong:
        fault = f"{missing[0]!r} is missing" if missing else ""
        fault += " and " * bool(missing and wrong) + (f"{wrong[0]!r} is unknown" if wrong else "")
        raise PgmError(
            f"{where}: {what} has {', '.join(known)}, and {fault}{_suggestion(wrong, set(known))}"
        )


def _listed(value: object, where: str) -> list[object]:
    """Return a list of units; PgmError for anything but a list."""
    if not isinstance(value, list):
        raise PgmError(f"{where}: units must be a list such as [{value!r:.40}], not {value!r:.40}")
    return value


def _member(value: object, where: str) -> Member:
    """Return a unit: the name of a variable, or (layer, number or label)."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        # True equals 1 in Python, and would be taken for the second unit.
        if not isinstance(value[1], bool):
            return value[0], plain_label(value[1])
    raise PgmError(
        f"{where}: a unit is the name of a variable, or [layer, number], not {value!r:.40}"
    )


# The lists of a declaration, in the order in which their entries are added to a builder.
DECLARATION_LISTS: dict[str, Callable[[GraphBuilder, Entry, Entry, str], None]] = {
    "layers": _add_layer,
    "couplings": _add_coupling,
    "variables": _add_variable,
    "biases": _add_bias,
    "conditionals": _add_conditional,
    "tables": _add_table,
}
