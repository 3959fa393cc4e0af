"""Expected counts of rows whose free units are chains, for all lengths in one pass.

Where the free units of every row are a chain, whose neighbours one shared table joins, as in a
hidden Markov model, the rows of all lengths are chains of the routine `chain_sums`. It takes a few
operations for each step, while a junction tree for each length takes a few for each length. All
other tables have at most one free unit. They add to its field, log f_t(k), and so do observed
children:

    weight of a path = prod_t f_t(z_t) prod_t T[z_{t-1}, z_t].

Observations that are no tables, such as Gaussian ones, are children of arrows with one parent each,
and have no children. Given the state k of its parent, the input of a child is linear in the numbers
theta of the parameters that all places share, zeta_k = A_k theta, and an observed child adds
log p(x | zeta_k) to the field of its parent. Children with the same A are of one kind: their
densities are computed together, for the rows of all lengths. With the marginals q(k) of the parent,
the derivative in theta is

    sum over observed children and states of  q(k) A_k^T d log p(x | zeta_k) / d zeta.

A child that is not observed sums to one, and is left out. The reference is the sum over the models
of all lengths by junction trees, which the tests compare with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.equal_rows import distinct, distinct_pairs
from pgmengine.base.numerics import add_at
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.long_chains.chain_sums import Packing, chain_sums
from pgmengine.model.structure import Structure, first_of
from pgmengine.model.tables import TableIndex
from pgmengine.model.terms.input_rows import add_sums, input_rows, shared_numbers
from pgmengine.units import Unit

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
        """Return the sum of log Z over all rows, the expected counts of entries, and sums of inputs.

        None where a table has an impossible entry, because messages need finite log weights.
        """
        found = self._summed(model)
        if found is None:
            return None
        log_z, counts, marginals = found
        rows, theta = input_rows(model.structure), shared_numbers(model)
        total = rows.zeros()
        for kind, step, x in self.emissions:
            if kind.summed:
                q = marginals.take(step, axis=0)
                add_sums(total, kind.rows[None], kind.sums(x, kind.inputs(theta), q))
        sums = rows.by_parameter(total, model.params)
        return log_z, model.parameter_counts(counts) | sums

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


@dataclass(frozen=True, eq=False)
class Kind:
    """Children whose inputs are the same function of the shared parameters.

    Attributes
    ----------
    unit : their type.
    matrix : (states * width, numbers) A, for all states of the parent.
    summed : whether sums determine their rows of inputs.
    """

    unit: Unit
    matrix: Array
    summed: bool

    def inputs(self, theta: Array) -> Array:
        """Return the inputs (states, width) at the numbers of the shared parameters."""
        return (self.matrix @ theta).reshape(-1, self.unit.width)

    def weigh(self, x: Array, zeta: Array) -> Array:
        """Return log p(x | zeta_k) of observations x (n, width), (n, states)."""
        return np.asarray(self.unit.log_conditional(*self._both(x, zeta)))

    @cached_property
    def rows(self) -> Array:
        """The row of inputs of each state, where it is the whole input."""
        width = self.unit.width
        return np.asarray(self.matrix.reshape(-1, width, self.matrix.shape[1])[:, 0].argmax(-1))

    def sums(self, x: Array, zeta: Array, q: Array) -> Array:
        """Return the sums (1, states, 1 + width) of observations with weights q (n, states)."""
        if self.unit.width == 1:
            x, zeta = x[..., 0], zeta[..., 0]
        return self.unit.deviations(x[None], zeta[None], q.T[None])

    def slope(self, x: Array, zeta: Array, q: Array) -> Array:
        """Return the derivative (numbers,) of the sum of q (n, states) times log p(x | zeta_k)."""
        score = self.unit.score(*self._both(x, zeta)).reshape(*q.shape, -1)
        found: Array = np.einsum("nk,nkw->kw", q, score).ravel() @ self.matrix
        return found

    def _both(self, x: Array, zeta: Array) -> tuple[Array, Array]:
        """Return observations and inputs as the functions of a unit take them, (n, states[, w])."""
        one, two = np.broadcast_arrays(x[:, None], zeta)
        return (one, two) if self.unit.width > 1 else (one[..., 0], two[..., 0])


def by_parameter(model: Model, slope: Array) -> dict[str, Array]:
    """Return a derivative in the shared numbers by parameter."""
    out, first = dict[str, Array](), 0
    for key in first_of(model.structure.shared):
        value = np.asarray(model.params[key])
        out[key] = slope[first : first + value.size].reshape(value.shape)
        first += value.size
    return out


def emitting_layers(s: Structure) -> frozenset[str] | None:
    """Return the layers of children without children; None if there are other couplings.

    All their weights are shared by places, and no unit of theirs is in a table.
    """
    layers = {c.b for c in s.couplings}
    plain = all(c.directed and c.key in s.without_weight for c in s.couplings)
    if not plain or any(c.a in layers for c in s.couplings):
        return None
    if any(s.tabled[name].any() or len(s.arrows_into[name]) > 1 for name in layers):
        return None
    return frozenset(layers)


def observed_children(
    target: Target, layers: frozenset[str], whole: Structure, kinds: dict[bytes, Kind]
) -> list[tuple[Kind, Array, Array, Array]] | None:
    """Return the observed children of all layers by kind; None unless each has one parent.

    With the kind are row and parent (n,), a number among all units, and the values (n, width).
    `whole` has all parameters, of which a short model may lack some. New kinds are added to
    `kinds`.
    """
    out = list[tuple[Kind, Array, Array, Array]]()
    for name in sorted(layers):
        if target.structure.has_bias[name].any() or np.any(target.model.params[f"{name}.bias"]):
            # A bias of the layer's own is one more part of the input, and may be learned.
            return None
        found = _children(target.structure, name, whole, kinds)
        if found is None:
            return None
        parents, keys = found
        layer, values = target.structure.layers[name], target.evidence.values[name]
        seen = np.broadcast_to(target.pattern.observed[name], (target.rows, layer.size))
        x = np.broadcast_to(values, (target.rows, layer.width))
        x = x.reshape(target.rows, layer.size, -1)
        for key in dict.fromkeys(keys):
            mine = np.flatnonzero([other == key for other in keys])
            row, place = np.nonzero(seen[:, mine])
            unit = mine[place]
            out.append((kinds[key], row, parents[unit], x[row, unit]))
    return out


def _children(
    s: Structure, name: str, whole: Structure, kinds: dict[bytes, Kind]
) -> tuple[Array, list[bytes]] | None:
    """Return the parent and the kind of each unit of a layer; None unless each has one parent."""
    (arrow,) = s.arrows_into[name]
    child, parent = s.layers[name], s.layers[arrow.a]
    offsets, first = dict[str, int](), 0
    for name_of_term, term in first_of(whole.shared).items():
        offsets[name_of_term] = first
        first += int(np.prod(term.shape(whole.layers), dtype=np.int64))
    weights = s.expansion.terms(f"{arrow.key}.weight")
    biases = s.expansion.terms(f"{name}.bias")
    above = np.concatenate([e.rows for e in weights])
    column = np.concatenate([e.columns for e in (*weights, *biases)])
    number = np.concatenate([offsets[e.key] + e.numbers for e in (*weights, *biases)])
    factor = np.concatenate([np.full(len(e.numbers), e.factor) for e in (*weights, *biases)])
    # The component of the parent; a bias has none.
    part = np.concatenate([above % parent.unit.width, np.full(len(column) - len(above), -1)])
    unit, of = column // child.unit.width, column % child.unit.width
    ends, _ = distinct_pairs(unit[: len(above)], above // parent.unit.width)
    if not np.array_equal(ends[:, 0], np.arange(child.size)) or parent.unit.support is None:
        return None
    support = parent.unit.support.reshape(-1, parent.unit.width)
    order = np.lexsort((factor, number, part, of, unit))
    rows = np.stack([of, part, number, factor], axis=1)[order]
    summed = input_rows(s).layers.get(name)
    keys = list[bytes]()
    for own in np.split(rows, np.flatnonzero(np.diff(unit[order])) + 1):
        key = name.encode() + own.tobytes()
        if key not in kinds:
            whole_rows = summed is not None and bool(summed.first[len(keys)] >= 0)
            matrix = _matrix(own, support, child.unit.width, first)
            kinds[key] = Kind(child.unit, matrix, whole_rows)
        keys.append(key)
    return s.first_unit[arrow.a] + ends[:, 1], keys


def _matrix(entries: Array, support: Array, width: int, numbers: int) -> Array:
    """Return A (states * width, numbers) from entries (component, parent's one, number, factor)."""
    out = np.zeros((len(support), width, numbers))
    for of, part, number, factor in entries:
        values = support[:, int(part)] if part >= 0 else 1.0
        out[:, int(of), int(number)] += factor * values
    return out.reshape(-1, numbers)
