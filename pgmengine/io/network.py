"""Conversion of networks of tables to models, and of models to networks.

`Network` itself is in declare/networks/tabular.py, because builders also take networks of other
libraries. A model has the logarithms of its tables, and a network has the entries. An entry is
written as the number with the fewest digits that has this logarithm, so that 0.1 stays 0.1, and the
same logarithm is read again.

Biases and undirected couplings become tables of one and of two variables: their product is the
density of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from pgmengine.base.equal_rows import distinct_pairs
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.model import Model
from pgmengine.declare.networks.entries import entries_of
from pgmengine.declare.networks.tabular import Conditional, Declares, Network, Table
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Place
from pgmengine.model.weights import is_sparse


def build(network: Network) -> Model:
    """Return the model of a network, declared by a builder.

    Raises
    ------
    PgmError
        For conditionals that do not sum to 1, and all else that a builder refuses.
    """
    builder = GraphBuilder()
    network.declare(cast(Declares, builder))
    return builder.build()


def network_of(model: Model) -> Network:
    """Return the network of a model: its variables, conditionals and tables.

    Named variables come first, in their order, then units of other layers. Biases and undirected
    couplings become tables.

    Raises
    ------
    PgmError for units with infinitely many values, for arrows, and for entries that double
    precision cannot hold.

    >>> import pgmengine as pgm
    >>> n = network_of(pgm.boltzmann_machine(3, rng=0))
    >>> n.names, [t.scope for t in n.tables]
    (('x[0]', 'x[1]', 'x[2]'), [(0, 1), (0, 2), (1, 2)])
    """
    s = model.structure
    if s.arrows:
        raise PgmError(
            f"arrows {s.arrows[0].key!r} cannot be written: a network has tables only; declare the "
            "children with GraphBuilder.conditional"
        )
    for name, layer in s.layers.items():
        if layer.unit.support is None:
            raise PgmError(
                f"layer {name!r} has {layer.unit!r} units: a network has variables with finitely "
                "many states only"
            )
    places = model.structure.names.all_places()
    number = {place: i for i, place in enumerate(places)}
    conditionals, tables = _tables(model, number)
    return Network(
        _names(model, places),
        tuple(_states(s.layers[name]) for name, _ in places),
        tuple(conditionals),
        (*tables, *_bias_tables(model, number), *_pair_tables(model, number)),
    )


def finite_units(model: Model) -> list[Place]:
    """Return the units that evidence in a file counts: all that have finitely many states."""
    counts = model.structure.state_counts
    return [(name, i) for name, i in model.structure.names.all_places() if counts[name]]


def by_unit(model: Model, states: dict[Place, int | Array]) -> dict[str, Any]:
    """Return states of units as evidence: by the names of units, or as arrays of layers."""
    s, out = model.structure, dict[str, Any]()
    for name in dict.fromkeys(layer for layer, _ in states):
        layer = s.layers[name]
        own = {i: _values(layer, x) for (other, i), x in states.items() if other == name}
        names = {i: s.names.of((name, i)) for i in own}
        if all(s.names.unique.get(key) == (name, i) for i, key in names.items()):
            out |= {names[i]: value for i, value in own.items()}
            continue
        rows = {len(value) for value in own.values() if isinstance(value, np.ndarray)}
        values = np.full((*rows, layer.size), np.nan, dtype=object if layer.state_names else None)
        for i, value in own.items():
            values[..., i] = value
        out[name] = values
    return out


def _values(layer: Layer, states: int | Array) -> Any:
    """Return the names of states, or their values if they have no names.

    A state is an int, or (samples,) states are an array with NaN where nothing is observed.
    """
    table = layer.state_table
    if table is None and layer.unit.width > 1:
        return states
    known = _support(layer) if table is None else table.array
    if isinstance(states, np.ndarray):
        return np.append(known, np.nan)[np.where(np.isnan(states), -1, states).astype(int)]
    value = known.tolist()[states]
    return int(value) if table is None and value.is_integer() else value


def _names(model: Model, places: list[Place]) -> tuple[str, ...]:
    """Return a name for every unit, with the name of the layer in front if names would repeat."""
    names = [model.structure.names.of(place) for place in places]
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(
        name if names.count(name) == 1 else f"{layer}[{i}]"
        for name, (layer, i) in zip(names, places, strict=True)
    )


def _states(layer: Layer) -> tuple[str, ...]:
    """Return the names of the states of a layer's units, or their numbers."""
    count = len(_support(layer))
    return tuple(map(str, layer.state_names or range(count)))


def _support(layer: Layer) -> Array:
    """Return the values of each state, (states,), or the rows of the unit matrix if one-hot."""
    assert layer.unit.support is not None
    return layer.unit.support


def _tables(model: Model, number: dict[Place, int]) -> tuple[list[Conditional], list[Table]]:
    """Return the conditionals and the tables of a model in their order."""
    conditionals, tables = list[Conditional](), list[Table]()
    for t in model.structure.tables:
        values = entries_of(t.one_by_one(model.entries_of(t)), f"parameter {t.key!r}")
        for units, which in zip(t.index.tolist(), t.numbers.tolist(), strict=True):
            entries = values[which]
            scope = tuple(number[place] for place in zip(t.layers, units, strict=True))
            if t.conditional:
                conditionals.append(Conditional(scope[-1], scope[:-1], entries))
            else:
                tables.append(Table(scope, entries))
    for one in model.structure.compact_gates:
        for units in one.index.tolist():
            *parents, child = (number[x] for x in zip(one.layers, units, strict=True))
            conditionals.append(Conditional(child, tuple(parents), model.formed(one)))
    return conditionals, tables


def _bias_tables(model: Model, number: dict[Place, int]) -> Iterator[Table]:
    """Yield a table for each unit whose bias or base measure is not 0."""
    s = model.structure
    for name, layer in s.layers.items():
        bias = model.bias(name).reshape(layer.size, -1)
        values = _support(layer).reshape(len(_support(layer)), -1)
        base = np.zeros(len(values)) if layer.unit.log_base is None else layer.unit.log_base
        logs = bias @ values.T + base
        for i in np.flatnonzero((s.child_tables[name] < 0) & (logs != 0).any(axis=1)).tolist():
            yield Table((number[name, i],), entries_of(logs[i], f"bias of {name!r}"))


def _pair_tables(model: Model, number: dict[Place, int]) -> Iterator[Table]:
    """Yield a table for each pair of units whose weight is not 0."""
    for c in model.structure.undirected:
        layers = model.structure.layers
        one, two = (_support(layers[n]).reshape(len(_support(layers[n])), -1) for n in (c.a, c.b))
        for i, j, block in _blocks(model, c):
            if c.a != c.b or i < j:
                values = entries_of(one @ block @ two.T, f"weight of {c.key!r}")
                yield Table((number[c.a, i], number[c.b, j]), values)


def _blocks(model: Model, c: Coupling) -> Iterator[tuple[int, int, Array]]:
    """Yield (i, j, weight of units i and j) of a coupling where it is not 0."""
    layers, weight = model.structure.layers, model.weight(c)
    wa, wb = layers[c.a].unit.width, layers[c.b].unit.width
    rows, columns = weight.nonzero()
    for i, j in distinct_pairs(rows // wa, columns // wb)[0].tolist():
        block = weight[i * wa : (i + 1) * wa][:, j * wb : (j + 1) * wb]
        yield i, j, block.toarray() if is_sparse(block) else block
