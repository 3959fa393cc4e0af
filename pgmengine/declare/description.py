"""A description of a model by names, which parameters are compared with before a model takes them.

The parameters of a file are arrays, whose axes say nothing about the states and units that they
belong to. A description says it, as plain data: the variables and layers with their units, states
and shapes, and the terms with the name of their parameter and the units of each place. It has no
numbers of parameters, and it does not depend on the order of the declaration.

The states of a variable may have another order in the declaration than in the file. Then the axes
of tables are put in order. Weights and biases belong to values of units, not to states, so that
they cannot be: they are refused, as is every other difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Weight
from pgmengine.declare.declaration import layer_entry
from pgmengine.declare.model import Model
from pgmengine.declare.stored_forms import whole_numbers
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.model.terms.term import Term

# A description: {"variables": name -> entry, "terms": parameter -> entry}.
Description: TypeAlias = Mapping[str, Any]

# The entries of a variable and of a term in words, for messages.
WORDS = {
    "unit": "the unit type",
    "size": "the shape",
    "labels": "the names of its units",
    "states": "the states",
    "kind": "the kind",
    "shape": "the shape of its parameter",
    "form": "the form, in whole numbers,",
    "places": "the places",
    "of": "the layers",
    "units": "the units",
    "start": "the numbers",
    "links": "the numbers",
}

ADVICE = ": declare it as it was when the file was written"

# The most characters of an entry in a message.
MAX_SHOWN = 200


def description_of(model: Model) -> dict[str, Any]:
    """Return the description of a model, as JSON gives it back.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> rain = b.variable("rain", states=("no", "yes"))
    >>> b.conditional(rain, (), [0.9, 0.1])
    >>> found = description_of(b.build())
    >>> found["variables"]
    {'rain': {'unit': 'Binary', 'size': 1, 'states': ['no', 'yes']}}
    >>> found["terms"]
    {'rain|.table': {'kind': 'conditional', 'shape': [2], 'places': [[0, ['rain']]]}}
    """
    s = model.structure
    variables: dict[str, Any] = {}
    for layer in s.layers.values():
        entry = layer_entry(layer)
        del entry["name"]
        if layer.holds_variables:
            single = {**entry, "size": 1}
            del single["labels"]
            variables |= {str(name): single for name in layer.labels or ()}
        else:
            variables[layer.name] = entry
    terms = {key: entry for key, entry in _terms(s, model.params)}
    out: dict[str, Any] = json.loads(json.dumps({"variables": variables, "terms": terms}))
    return out


def _terms(s: Structure, params: Mapping[str, Weight]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parameter of each term and its entry; terms of one parameter are one entry."""
    for name, has in own_biases(s).items():
        # The order of variables in a layer that holds them depends on the order of declaration.
        if has and s.layers[name].holds_variables:
            units = [s.names.of((name, i)) for i in range(s.layers[name].size)]
            yield f"{name}.bias", {"kind": "biases", "units": units}
    for key, first in s.parameters.items():
        if first.whole:
            if not first.is_bias:
                yield key, {"kind": first.kind.value, "of": list(first.layers)}
            continue
        kind = f"{first.kind.value} by {first.form.kind}" if first.form else first.kind.value
        entry = {"kind": kind, "shape": list(np.shape(params[key]))}
        if first.form:
            entry["form"] = whole_numbers(first.form).tolist()
        places = [place for t in s.terms if t.key == key for place in _places(s, t)]
        yield key, {**entry, "places": sorted(places)}


def _places(s: Structure, term: Term) -> Iterator[list[Any]]:
    """Yield the number of the table or weight of each place, and the names of its units."""
    for number, units in zip(term.numbers, term.index, strict=True):
        places = zip(term.layers, map(int, units), strict=True)
        yield [int(number), [s.names.of(place) for place in places]]


def own_biases(s: Structure) -> dict[str, bool]:
    """Return layer -> whether any of its units has a bias, which units with a conditional lack."""
    return {name: bool((has & ~s.conditioned[name]).any()) for name, has in s.has_bias.items()}


def in_order(
    params: Mapping[str, Weight], theirs: Description, model: Model, where: str, more: bool = False
) -> dict[str, Weight]:
    """Return parameters of a described model for another model of the same description.

    Parameters
    ----------
    params : the parameters, by name.
    theirs : the description of the model that they belong to.
    model : the model that is to take them. The states of its variables may have another order; the
        axes of tables are then put in order.
    where : the name of the model in messages.
    more : whether the model may have variables and terms that are not described.

    Raises
    ------
    PgmError that names the first other difference.
    """
    ours, s = description_of(model), model.structure
    if more:
        ours = {k: {n: x for n, x in ours[k].items() if n in theirs[k]} for k in ours}
    _check_same(theirs["variables"], ours["variables"], "layer or variable", where, {"states"})
    orders = {
        name: order
        for name, entry in ours["variables"].items()
        if (order := _order(theirs["variables"][name], entry, name, where)) is not None
    }
    _check_same(theirs["terms"], ours["terms"], "parameter", where, set())
    if not orders:
        return dict(params)
    _check_only_tables(s, orders, theirs["variables"], where)
    return {
        key: _in_order(s, key, value, orders, where) if key in s.table_groups else value
        for key, value in params.items()
    }


def _check_same(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], what: str, where: str, but: set[str]
) -> None:
    """PgmError unless both have the same names, with equal entries but for the fields `but`."""
    for names, others, has, lacks in ((theirs, ours, "file", where), (ours, theirs, where, "file")):
        if extra := [name for name in names if name not in others]:
            has, lacks = (f"the {x}" if x == "file" else x for x in (has, lacks))
            raise PgmError(
                f"{has} has the {what} {extra[0]!r}, and {lacks} has none of this name; it has "
                f"{listed([*map(repr, others)]) or 'none'}{ADVICE}"
            )
    for name, entry in theirs.items():
        fields = dict.fromkeys([*entry, *ours[name]])
        for key in fields:
            if key not in but and entry.get(key) != ours[name].get(key):
                _differ(what, name, key, entry.get(key), ours[name].get(key), where)


def _differ(what: str, name: str, key: str, theirs: Any, ours: Any, where: str) -> None:
    """Raise PgmError for two entries that differ."""
    if key == "places" and isinstance(theirs, list) and isinstance(ours, list):
        theirs, ours = ([x for x in a if x not in b] for a, b in ((theirs, ours), (ours, theirs)))
    raise PgmError(
        f"{what} {name!r} has {WORDS.get(key, repr(key))} {_shown(theirs)} in the file, and "
        f"{_shown(ours)} in {where}{ADVICE}"
    )


def _shown(entry: Any) -> str:
    """Return an entry in words for a message."""
    if entry is None or entry == []:
        return "(none)"
    plain = isinstance(entry, list) and all(isinstance(x, str) for x in entry)
    text = ", ".join(map(repr, entry)) if plain else str(entry)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _order(theirs: Any, ours: Any, name: str, where: str) -> list[int] | None:
    """Return the number that each of our states has in the file; None if all have the same.

    PgmError unless both have the same names of states.
    """
    old, new = theirs.get("states"), ours.get("states")
    if old == new:
        return None
    lists = isinstance(old, list) and isinstance(new, list)
    # A state may be a list, which no dictionary holds.
    if not lists or len(old) != len(new) or any(x not in old for x in new):
        _differ("layer or variable", name, "states", old, new, where)
    return [old.index(x) for x in new]


def _check_only_tables(
    s: Structure, orders: Mapping[str, Any], theirs: Mapping[str, Any], where: str
) -> None:
    """PgmError if a variable whose states have another order has parameters besides tables."""
    used = {
        _variable(s.layers[name], i): f"{name}.bias"
        for name, has in own_biases(s).items()
        if has
        for i in range(s.layers[name].size)
    }
    used |= dict.fromkeys(s.with_base, "the base measure of its units")
    used |= {name: f"{c.key}.weight" for c in s.couplings for name in (c.a, c.b)}
    places = [(place, t.key) for t in s.shared for name in t.layers for place in [(name, 0)]]
    places += [
        ((name, int(unit)), t.key)
        for t in s.tables_and_gates
        for name, units in zip(t.layers, t.index.T, strict=True)
        for unit in (units if t.form else ())
    ]
    used |= {_variable(s.layers[name], i): key for (name, i), key in places}
    for name in orders:
        if name in used:
            states = _shown(theirs[name]["states"])
            raise PgmError(
                f"layer or variable {name!r} has the states {states} in the file, and another "
                f"order of them in {where}. Tables can be put in order, but {used[name]!r} cannot: "
                "declare the states in the order of the file"
            )


def _variable(layer: Layer, unit: int) -> str:
    """Return the name of a variable or a layer in a description."""
    return str((layer.labels or ())[unit]) if layer.holds_variables else layer.name


def _in_order(
    s: Structure, key: str, value: Weight, orders: Mapping[str, list[int]], where: str
) -> Weight:
    """Return a parameter of tables with the states of each axis in our order."""
    first, out = s.table_groups[key], np.asarray(value)
    if first.form:
        # None of its units has states in another order.
        return value
    for axis in range(len(first.layers)):
        found = {
            tuple(orders.get(_variable(s.layers[t.layers[axis]], int(i)), ()))
            for t in s.tables
            if t.key == key
            for i in np.unique(t.index[:, axis])
        }
        if len(found) > 1:
            raise PgmError(
                f"parameter {key!r} is used by variables whose states have other orders in {where} "
                "than in the file, which are not the same for all of them: declare the states in "
                "the order of the file"
            )
        if order := found.pop():
            out = out.take(list(order), axis=len(first.lead) + axis)
    return out
