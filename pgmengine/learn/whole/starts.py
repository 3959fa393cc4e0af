"""Starts of EM: states of latent variables that it could never tell apart, and random changes.

A latent unit is one that no row observes. If the tables of its children are equal for two of its
states, both have the same expected counts, and the M step leaves their tables equal: such a start
stays as it is for ever, and random changes have to come first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pgmengine.base.rows import distinct
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.learn.whole.fixed_rows import with_kept
from pgmengine.model.model import Model
from pgmengine.model.tables import normalised
from pgmengine.model.weights import numbers

# Standard deviation of the random changes of the logarithms of entries.
CHANGE_OF_LOGS = 1.0


def latent_units(target: Target) -> Array:
    """Return a mask of the units that no row observes, in the order of the layers."""
    return np.concatenate([distinct(f).all(axis=0) for f in target.free.values()])


def look_alike(model: Model, target: Target) -> list[str]:
    """Return the names of latent units with two states that all children's tables treat alike."""
    s, index, entries = model.structure, model.structure.table_index, model.table_entries
    found = []
    for unit in np.flatnonzero(latent_units(target)):
        slices = []
        for axis in index.of_unit(int(unit)):
            table = index.table[axis]
            if index.child[table] == unit:
                continue
            axes = slice(index.start[table], index.start[table + 1])
            own = entries[index.first[table] : index.first[table] + index.size[table]]
            whole = own.reshape(index.states[axes])
            first = np.moveaxis(whole, axis - index.start[table], 0)
            slices.append(first.reshape(len(first), -1))
        if slices and len(np.unique(np.concatenate(slices, axis=1), axis=0)) < len(slices[0]):
            found.append(repr(s.names.of(s.names.at(int(unit)))))
    return found


def perturbed(
    model: Model, target: Target, fixed: Mapping[str, Array], rng: np.random.Generator
) -> Model:
    """Return the model with random changes of the tables of latent units and of their children.

    Fixed entries, and entries of 0, stay as they are.
    """
    s, index, latent = model.structure, model.structure.table_index, latent_units(target)
    params, first = dict(model.params), 0
    for t in s.tables:
        axes = index.unit[index.start[first] : index.start[first + len(t.index)]]
        first += len(t.index)
        if latent[axes].any():
            logs = numbers(model.params[t.key]).reshape(model.params[t.key].shape)
            moved = logs + CHANGE_OF_LOGS * rng.standard_normal(logs.shape)
            params[t.key] = with_kept(logs, np.exp(normalised(t, moved)), fixed.get(t.key))
    return Model(s, params)
