"""Expected counts of rows whose free units are chains, for all lengths in one pass.

Where the free units of every row are a chain, whose neighbours one shared table joins, as in a
hidden Markov model, the rows of all lengths are chains of the routine `chain_sums`. It takes a few
operations for each step, while a junction tree for each length takes a few for each length. All
other tables have at most one free unit. They add to its field, log f_t(k), and so do observed
children of arrows (emissions.py):

    weight of a path = prod_t f_t(z_t) prod_t T[z_{t-1}, z_t].

The reference is the sum over the models of all lengths, which the tests compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.numerics import add_at
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.long_chains.chain_sums import Packing, chain_sums
from pgmengine.infer.exact.long_chains.emissions import (
    Kind,
    by_parameter,
    emitting_layers,
    observed_children,
    shared_numbers,
)
from pgmengine.model.structure import Structure
from pgmengine.model.tables import TableIndex

# The fewest chains that reach a step on average, for which its operations on arrays pay.
MIN_CHAINS_A_STEP = 8

# Bytes of places, fields and messages for each state of each axis of a table in a row.
BYTES_A_STATE = 24.0

# The steps that take about as long as the tables of children in the junction tree of one length.
STEPS_A_TREE = 60


@dataclass(frozen=True, eq=False)
class Chains:
    """The chains of some rows; steps are numbered chain by chain.

    Attributes
    ----------
    lengths : (chains,) the number of steps of each.
    pair : the first entry of the table that joins neighbours, -1 where all chains have one step.
    step, places : the step of each table with one free unit, (n,), and its entries, (n, states).
    constant : the entries of tables without a free unit.
    emissions : kind, steps of the parents (n,), and values (n, width) of observed children.
    """

    lengths: Array
    pair: int
    step: Array
    places: Array
    constant: Array
    emissions: list[tuple[Kind, Array, Array]]

    @cached_property
    def packing(self) -> Packing:
        """The order of all steps."""
        return Packing.of(self.lengths)

    def counts(self, model: Model) -> tuple[float, dict[str, Array]] | None:
        """Return the sum of log Z over all rows, and the expected counts of the entries.

        None where a table has an impossible entry, because messages need finite log weights.
        """
        found = None if self.emissions else self._summed(model)
        if found is None:
            return None
        log_z, total, _ = found
        return log_z, model.parameter_counts(total)

    def gradient(self, model: Model, total: float) -> tuple[float, dict[str, Weight]] | None:
        """Return the sum of log Z / total over all rows, and its derivatives.

        They are the derivatives in tables and in the numbers that places share. None where a table
        has an impossible entry.
        """
        found = self._summed(model)
        if found is None:
            return None
        log_z, counts, marginals = found
        theta = shared_numbers(model)
        slope = np.zeros(len(theta))
        for kind, step, x in self.emissions:
            slope += kind.slope(x, kind.inputs(theta), marginals.take(step, axis=0))
        slopes = {**model.table_slopes(counts), **by_parameter(model, slope)}
        return log_z / total, {key: value / total for key, value in slopes.items()}

    def _summed(self, model: Model) -> tuple[float, Array, Array] | None:
        """Return the sum of log Z, the expected counts of entries, and the marginals of steps."""
        entries = model.table_entries
        if not np.isfinite(entries).all():
            return None
        k = self.places.shape[1]
        field = np.zeros((len(self.packing.source), k))
        at = self.step[:, None] * k + np.arange(k)
        add_at(field.reshape(-1), at, entries.take(self.places))
        theta = shared_numbers(model)
        for kind, step, x in self.emissions:
            logs = kind.weigh(x, kind.inputs(theta))
            if not np.isfinite(logs).all():
                return None
            add_at(field.reshape(-1), step[:, None] * k + np.arange(k), logs)
        move = entries[self.pair : self.pair + k * k].reshape(k, k)
        found = chain_sums(field[self.packing.source], move, self.packing)
        marginals = np.full(field.shape, np.nan)
        marginals[self.packing.source] = found.marginals
        total = np.zeros(len(entries))
        add_at(total, self.places, marginals.take(self.step, axis=0))
        add_at(total, self.constant, 1.0)
        total[self.pair : self.pair + k * k] += found.pairs.ravel()
        log_z = float(found.log_z.sum() + entries.take(self.constant).sum())
        return log_z, total, marginals


def chains_of(targets: Sequence[Target], weights: Sequence[Array]) -> Chains | None:
    """Return the chains of rows of several lengths, or None where they are no such chains.

    Parameters
    ----------
    targets : the rows of each length. The first target has all parameters.
    weights : the weight of each row; chains have the weight 1.
    """
    states = sum(t.rows * float(t.structure.table_index.states.sum()) for t in targets)
    if any((w != 1).any() for w in weights) or no_room(BYTES_A_STATE * states):
        return None
    parts, kinds = list[Chains](), dict[bytes, Kind]()
    for target in targets:
        part = _part(target, targets[0].structure, kinds)
        if part is None:
            return None
        parts.append(part)
    pairs = {part.pair for part in parts if part.pair >= 0}
    widths = {part.places.shape[1] for part in parts}
    lengths = np.concatenate([part.lengths for part in parts])
    if len(pairs) != 1 or len(widths) != 1:
        return None
    many = lengths.sum() >= MIN_CHAINS_A_STEP * lengths.max()
    # A junction tree with children of arrows takes the time of about so many steps.
    if not many and not (kinds and lengths.max() <= STEPS_A_TREE * len(targets)):
        return None
    return _joined(parts, lengths, pairs.pop())


def _joined(parts: Sequence[Chains], lengths: Array, pair: int) -> Chains:
    """Return the chains of all parts, whose steps follow each other."""
    first = np.cumsum([0, *(part.lengths.sum() for part in parts[:-1])])
    numbered = list(zip(first, parts, strict=True))
    seen: dict[Kind, list[tuple[Array, Array]]] = {}
    for begin, part in numbered:
        for kind, at, x in part.emissions:
            seen.setdefault(kind, []).append((begin + at, x))
    return Chains(
        lengths,
        pair,
        np.concatenate([begin + part.step for begin, part in numbered]),
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.constant for part in parts]),
        [
            (kind, np.concatenate([at for at, _ in some]), np.concatenate([x for _, x in some]))
            for kind, some in seen.items()
        ],
    )


def _part(target: Target, whole: Structure, kinds: dict[bytes, Kind]) -> Chains | None:
    """Return the rows of one length as chains, or None. New kinds of children join `kinds`."""
    s, index = target.structure, target.structure.table_index
    emitting = emitting_layers(s)
    if emitting is None:
        return None
    # Children that are not observed are no steps, in whatever rows they are missing.
    free = [
        np.zeros((1, x.size), dtype=bool) if name in emitting else distinct(target.free[name])
        for name, x in s.layers.items()
    ]
    plain = target.untempered and not target.soft and s.with_base <= emitting
    biased = any(units.any() for name, units in s.has_bias.items() if name not in emitting)
    biased |= any(t.is_bias and t.layers[0] not in emitting for t in s.shared)
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
    children = observed_children(target, emitting, whole, kinds)
    if children is None or any((number[parent] < 0).any() for _, _, parent, _ in children):
        return None
    steps = target.states[:, index.unit] * np.where(is_free[index.unit], 0, index.stride)
    base = np.add.reduceat(steps, index.start[:-1], axis=1) + first
    single = np.flatnonzero(counts == 1)
    axes = np.flatnonzero(is_free[index.unit] & (counts == 1)[index.table])
    k = int(index.states[axes[0]])
    along = index.stride[axes][:, None, None] * np.arange(k)
    places = base[:, single].T[:, :, None] + along
    begin = len(order) * np.arange(target.rows)
    return Chains(
        np.full(target.rows, len(order)),
        int(first[joint[0]]) if len(joint) else -1,
        (number[index.unit[axes]][:, None] + begin).ravel(),
        places.reshape(-1, k),
        base[:, counts == 0].ravel(),
        [(kind, begin[row] + number[parent], x) for kind, row, parent, x in children],
    )


def _shifts(s: Structure, whole: Structure) -> Array:
    """Return the distance of the entries of each table between two structures, (tables,)."""
    each = [whole.table_places[t.store].start - s.table_places[t.store].start for t in s.tables]
    return np.repeat(each, [len(t.index) for t in s.tables])


def _path(index: TableIndex, is_free: Array, counts: Array) -> Array | None:
    """Return the free units in the order of the chain, or None if they are no chain.

    Neighbours are joined by one table of both alone, each time with the same entries, whose first
    axis is the unit before. Some free unit is in a table without another free unit.
    """
    units = np.flatnonzero(is_free)
    joint = np.flatnonzero(counts == 2)
    if (counts > 2).any() or len(joint) != len(units) - 1 or not (counts == 1).any():
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
