"""Expected counts of rows whose free units are chains, for all lengths in one pass.

Where the free units of every row are a chain, whose neighbours one shared table joins, as in a
hidden Markov model, the rows of all lengths are chains of the routine `chain_sums`. It takes a few
operations for each step, while a junction tree for each length takes a few for each length. All
other tables have at most one free unit. They add to its field, log f_t(k):

    weight of a path = prod_t f_t(z_t) prod_t T[z_{t-1}, z_t].

The reference is the sum over the parts of a `JoinedObjective`, which the tests compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgmengine.base.numerics import add_at
from pgmengine.base.rows import distinct
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.chain_sums import Packing, chain_sums
from pgmengine.model.model import Model
from pgmengine.model.structure import Structure
from pgmengine.model.tables import TableIndex, table_gradient

# The fewest chains that reach a step on average, for which its operations on arrays pay.
MIN_CHAINS_A_STEP = 8


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one length as chains.

    Attributes
    ----------
    rows, steps : the numbers of rows, and of steps of each of them.
    pair : the first entry of the table that joins neighbours, -1 for chains of one step.
    step : (terms,) the step to which a table with one free unit adds.
    places : (terms, rows, states) the entries of these tables.
    constant : (tables, rows) the entries of the tables without a free unit.
    """

    rows: int
    steps: int
    pair: int
    step: Array
    places: Array
    constant: Array


@dataclass(frozen=True, eq=False)
class Chains:
    """The chains of rows of all lengths.

    Attributes
    ----------
    structure : the structure with all parameters, whose entries the places are.
    packing : the order of all steps.
    pair : the first entry of the table that joins neighbours.
    step, places : the step of each entry of tables with one free unit, and the entry, (n, states).
    constant : the entries of tables without a free unit.
    """

    structure: Structure
    packing: Packing
    pair: int
    step: Array
    places: Array
    constant: Array

    def counts(self, model: Model) -> tuple[float, dict[str, Array]] | None:
        """Return the sum of log Z over all rows, and the expected counts of the entries.

        None where a table has an impossible entry, because messages need finite log weights.
        """
        entries = model.table_entries
        if not np.isfinite(entries).all():
            return None
        k = self.places.shape[1]
        field = np.zeros((len(self.packing.source), k))
        at = self.step[:, None] * k + np.arange(k)
        add_at(field.reshape(-1), at, entries.take(self.places))
        move = entries[self.pair : self.pair + k * k].reshape(k, k)
        found = chain_sums(field[self.packing.source], move, self.packing)
        marginals = np.full(field.shape, np.nan)
        marginals[self.packing.source] = found.marginals
        total = np.zeros(len(entries))
        add_at(total, self.places, marginals.take(self.step, axis=0))
        add_at(total, self.constant, 1.0)
        total[self.pair : self.pair + k * k] += found.pairs.ravel()
        log_z = float(found.log_z.sum() + entries.take(self.constant).sum())
        # With logarithms of -inf, the gradient subtracts nothing from the counts.
        return log_z, table_gradient(self.structure, np.full(len(total), -np.inf), total)


def chains_of(targets: Sequence[Target], weights: Sequence[Array]) -> Chains | None:
    """Return the chains of rows of several lengths, or None where they are no such chains.

    Parameters
    ----------
    targets : the rows of each length. The first target has all parameters.
    weights : the weight of each row; chains have the weight 1.
    """
    whole = targets[0].structure
    if any((w != 1).any() for w in weights):
        return None
    parts = list[Part]()
    for target in targets:
        part = _part(target, whole)
        if part is None:
            return None
        parts.append(part)
    pairs = {part.pair for part in parts if part.pair >= 0}
    states = {part.places.shape[2] for part in parts}
    lengths = np.repeat([p.steps for p in parts], [p.rows for p in parts])
    if len(pairs) != 1 or len(states) != 1:
        return None
    if lengths.sum() < MIN_CHAINS_A_STEP * lengths.max():
        return None
    return _joined(whole, parts, lengths, pairs.pop())


def _joined(whole: Structure, parts: Sequence[Part], lengths: Array, pair: int) -> Chains:
    """Return the chains of all parts, the steps numbered chain by chain."""
    step, places, first = list[Array](), list[Array](), 0
    for part in parts:
        begin = first + part.steps * np.arange(part.rows)
        step.append((part.step[:, None] + begin).ravel())
        places.append(part.places.reshape(-1, part.places.shape[2]))
        first += part.steps * part.rows
    constant = np.concatenate([part.constant.ravel() for part in parts])
    packing = Packing.of(lengths)
    return Chains(whole, packing, pair, np.concatenate(step), np.concatenate(places), constant)


def _part(target: Target, whole: Structure) -> Part | None:
    """Return the rows of one length as chains, or None."""
    s, index = target.structure, target.structure.table_index
    free = [distinct(target.free[name]) for name in s.layers]
    plain = target.untempered and not (s.couplings or target.soft or s.with_base)
    biased = any(units.any() for units in s.has_bias.values()) and bool(target.model.biased)
    acted = any(mask.any() for mask in target.intervened.values())
    if not plain or biased or acted or any(len(mask) > 1 for mask in free):
        return None
    is_free = np.concatenate([mask[0] for mask in free])
    counts = np.add.reduceat(is_free[index.unit], index.start[:-1], dtype=np.int64)
    order = _path(index, is_free, counts)
    if order is None:
        return None
    first = index.first + _shifts(s, whole)
    joint = np.flatnonzero(counts == 2)
    number = np.full(len(is_free), -1)
    number[order] = np.arange(len(order))
    steps = target.states[:, index.unit] * np.where(is_free[index.unit], 0, index.stride)
    base = np.add.reduceat(steps, index.start[:-1], axis=1) + first
    single = np.flatnonzero(counts == 1)
    axes = np.flatnonzero(is_free[index.unit] & (counts == 1)[index.table])
    k = int(index.states[axes[0]])
    along = index.stride[axes][:, None, None] * np.arange(k)
    return Part(
        target.rows,
        len(order),
        int(first[joint[0]]) if len(joint) else -1,
        number[index.unit[axes]],
        base[:, single].T[:, :, None] + along,
        base[:, counts == 0].T,
    )


def _shifts(s: Structure, whole: Structure) -> Array:
    """Return the distance of the entries of each table between two structures, (tables,)."""
    each = [whole.table_places[t.key].start - s.table_places[t.key].start for t in s.tables]
    return np.repeat(each, [len(t.index) for t in s.tables])


def _path(index: TableIndex, is_free: Array, counts: Array) -> Array | None:
    """Return the free units in the order of the chain, or None if they are no chain.

    Neighbours are joined by one table of both alone, each time with the same entries, whose first
    axis is the unit before. Every free unit is in a table without another free unit.
    """
    units = np.flatnonzero(is_free)
    joint = np.flatnonzero(counts == 2)
    alone = index.unit[is_free[index.unit] & (counts == 1)[index.table]]
    if (counts > 2).any() or len(joint) != len(units) - 1 or len(np.unique(alone)) < len(units):
        return None
    axes = np.arange(2) + index.start[joint][:, None]
    sizes = index.start[joint + 1] - index.start[joint]
    one_table = len(joint) == 0 or (index.first[joint] == index.first[joint[0]]).all()
    if not one_table or (sizes != 2).any():
        return None
    before, after = index.unit[axes].T
    states = np.unique(index.states[np.isin(index.unit, units)])
    following = np.full(len(is_free), -1)
    following[before] = after
    starts = np.setdiff1d(units, after)
    if len(states) != 1 or len(starts) != 1 or len(np.unique(before)) < len(before):
        return None
    path = [int(starts[0])]
    while (now := int(following[path[-1]])) >= 0 and len(path) < len(units):
        path.append(now)
    return np.array(path) if len(path) == len(units) else None
