"""States of latent variables that learning could never tell apart, and random changes of a model.

A latent unit is one that no row observes. If its children and neighbours are treated alike by two
of its states, both states have the same expected counts and derivatives, so that an update leaves
them alike: learning that begins there stays there for ever, and random changes have to come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from pgmengine.base.rows import distinct
from pgmengine.base.types import Array, Params, Weight
from pgmengine.evidence.target import Target
from pgmengine.learn.whole.fixed_rows import with_kept
from pgmengine.model.couplings import Coupling
from pgmengine.model.model import Model
from pgmengine.model.tables import normalised
from pgmengine.model.weights import is_sparse, like, numbers

# Standard deviation of the random changes of the logarithms of entries of tables.
CHANGE_OF_LOGS = 1.0


def latent_units(target: Target) -> Array:
    """Return a mask of the units that no row observes, in the order of the layers."""
    return np.concatenate([distinct(f).all(axis=0) for f in target.free.values()])


def look_alike(model: Model, target: Target) -> list[str]:
    """Return the names of latent units with two states that treat everything else alike."""
    names, found = model.structure.names, []
    for unit in np.flatnonzero(latent_units(target)):
        layer, number = names.at(int(unit))
        if model.structure.layers[layer].unit.support is None:
            continue
        effects = [*_in_tables(model, int(unit)), *_in_couplings(model, layer, number)]
        states = len(effects[0]) if effects else 0
        # The sum makes one zero of both signs of zero, whose bytes differ.
        seen = {row.tobytes() for row in np.concatenate(effects, axis=1) + 0.0} if effects else ()
        if len(seen) < states:
            found.append(repr(names.of((layer, number))))
    return found


def _in_tables(model: Model, unit: int) -> Iterator[Array]:
    """Yield the entries of each table of other units by the states of a unit, (states, entries)."""
    index, entries = model.structure.table_index, model.table_entries
    for axis in index.of_unit(unit):
        table = index.table[axis]
        if index.child[table] == unit:
            continue
        axes = slice(index.start[table], index.start[table + 1])
        own = entries[index.first[table] : index.first[table] + index.size[table]]
        first = np.moveaxis(own.reshape(index.states[axes]), axis - index.start[table], 0)
        yield first.reshape(len(first), -1)


def _in_couplings(model: Model, layer: str, number: int) -> Iterator[Array]:
    """Yield the inputs that the states of a unit give to other units, (states, width of these)."""
    of = model.structure.layers[layer]
    support = of.unit.support
    assert support is not None
    values = support.reshape(-1, of.unit.width)
    columns = of.columns(np.array([number]))
    for c in model.structure.couplings:
        weight = model.weight(c)
        # A child gives its parent no input.
        ends = [(c.a, weight)] if c.directed else [(x, block) for _, x, block in c.blocks(weight)]
        for source, block in ends:
            if source == layer:
                own = block[columns]
                if is_sparse(own):
                    # Most columns are 0, and tell no states apart.
                    own = own[:, np.unique(own.nonzero()[1])].toarray()
                yield np.asarray(values @ own)


def perturbed(
    model: Model, target: Target, fixed: Mapping[str, Array], rng: np.random.Generator
) -> Model:
    """Return the model with random changes of the parameters of latent units and their children.

    Fixed entries, and entries of tables that are 0, stay as they are.
    """
    params = {**model.params, **_changed_tables(model, target, fixed, rng)}
    for name, change in _changes_of_weights(model, target, rng).items():
        flat, more = numbers(params[name]), numbers(change)
        kept = fixed.get(name)
        more = more if kept is None else np.where(np.ravel(kept), 0.0, more)
        params[name] = like(params[name], flat + more)
    return Model(model.structure, params)


def _changed_tables(
    model: Model, target: Target, fixed: Mapping[str, Array], rng: np.random.Generator
) -> Params:
    """Return the tables of latent units and of their children, changed at random."""
    s, index, latent = model.structure, model.structure.table_index, latent_units(target)
    out, first = dict[str, Array](), 0
    for t in s.tables:
        axes = index.unit[index.start[first] : index.start[first + len(t.index)]]
        first += len(t.index)
        if latent[axes].any():
            logs = numbers(model.params[t.key]).reshape(model.params[t.key].shape)
            moved = logs + CHANGE_OF_LOGS * rng.standard_normal(logs.shape)
            out[t.key] = with_kept(logs, np.exp(normalised(t, moved)), fixed.get(t.key))
    return out


def _changes_of_weights(
    model: Model, target: Target, rng: np.random.Generator
) -> dict[str, Weight]:
    """Return random changes of the weights between latent units and others, by parameter.

    Their size is such that the mean of a unit at the other end moves by about the standard
    deviation of its data.
    """
    s, out = model.structure, dict[str, Weight]()
    latent = {n: np.asarray(distinct(free).all(axis=0)) for n, free in target.free.items()}
    none = {name: np.zeros_like(units) for name, units in latent.items()}

    def change(key: str, ends: tuple[Array, Array], names: tuple[str, ...]) -> Weight:
        other = names[1] if ends[0].any() else names[0]
        value, size = model.params[key], _size(target, other)
        noise = rng.standard_normal(numbers(value).shape)
        # The components of a unit of several follow each other in the columns.
        by_unit = noise.reshape(-1, len(size)) if other == names[1] else noise[:, None]
        return like(value, (by_unit * (size if other == names[1] else size.mean())).ravel())

    for c in s.weighted:
        ends = latent[c.a], (none if c.directed else latent)[c.b]
        if ends[0].any() or ends[1].any():
            key = f"{c.key}.weight"
            noise, mask = change(key, ends, (c.a, c.b)), _of_units(model, c, *ends)
            out[key] = c.projected(model.params[key], like(noise, numbers(noise) * mask))
    for key, term in s.shared_groups.items():
        if not term.is_bias:
            a, b = term.layers
            ends = latent[a], (none if term.directed else latent)[b]
            if ends[0].any() or ends[1].any():
                out[key] = change(key, ends, term.layers)
    return out


def _of_units(model: Model, c: Coupling, first: Array, second: Array) -> Array:
    """Return whether the numbers of a weight belong to units of its two layers, (numbers,)."""
    layers, weight = model.structure.layers, model.params[f"{c.key}.weight"]
    rows, columns = layers[c.a].components(first), layers[c.b].components(second)
    if is_sparse(weight):
        entries = weight.tocoo()
        return np.asarray(rows[entries.row] | columns[entries.col])
    return np.asarray(rows[:, None] | columns[None, :]).ravel()


def _size(target: Target, name: str) -> Array:
    """Return the changes of the inputs (components of a unit,) for a random start of a layer.

    They are those of `Unit.input_sizes`; for inputs that have no distribution the change moves
    their product by about 1.
    """
    layer, values = target.structure.layers[name], target.evidence.values[name]
    free = np.broadcast_to(layer.components(target.free[name]), values.shape)
    parts = [
        values[:, i :: layer.unit.width][~free[:, i :: layer.unit.width]]
        for i in range(layer.unit.width)
    ]
    spread = np.array([np.std(part) if len(part) else 0.0 for part in parts])
    if layer.unit.observed_only:
        return 1.0 / np.where(spread > 0, spread, 1.0)
    return layer.unit.input_sizes(spread)
