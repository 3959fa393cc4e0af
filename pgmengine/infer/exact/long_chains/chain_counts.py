"""Expected counts of rows whose free units are chains, for all lengths in one pass.

Where the free units of every row are a chain, whose neighbours one shared table joins, as in a
hidden Markov model, the rows of all lengths are chains of the routine `chain_sums`. It takes a few
operations for each step, while a junction tree for each length takes a few for each length. All
other tables have at most one free unit. They add to its field, log f_t(k), and so do observed
children:

    weight of a path = prod_t f_t(z_t) prod_t T[z_{t-1}, z_t].

Observations that are no tables, such as Gaussian ones, are children of arrows with one parent each,
and have no children. A hidden class of a mixture is a chain of one step. Given the state k of its
parent, the input of a child is linear in the numbers
theta of the parameters that all places share, zeta_k = A_k theta, and an observed child adds
log p(x | zeta_k) to the field of its parent. Children with the same A are of one kind: their
densities are computed together, for the rows of all lengths. With the marginals q(k) of the parent,
the derivative in theta is

    sum over observed children and states of  q(k) A_k^T d log p(x | zeta_k) / d zeta.

A child that is not observed sums to one, and is left out. The reference is the sum over the models
of all lengths by junction trees, which the tests compare with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine.base.equal_rows import distinct, distinct_pairs
from pgmengine.base.numerics import add_at, log_sum
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.memory import no_room
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.long_chains.chain_sums import chain_sums
from pgmengine.model.structure import Structure, first_of
from pgmengine.model.tables import TableIndex
from pgmengine.model.terms.input_rows import add_sums, input_rows, shared_numbers
from pgmengine.units import Unit

# The fewest chains that reach a step on average, for which its operations on arrays pay.
MIN_CHAINS_A_STEP = 8

# Bytes of places, fields and messages for each state of each axis of a table in a row, and of the
# values and masks of each component of a unit.
BYTES_A_STATE = 24.0

# Log densities that are computed at a time, so that they stay in the cache of a core.
ENTRIES_AT_ONCE = 2**15

# Kinds with a child in a smaller share of all steps have arrays of their own.
LEAST_SHARE_OF_STEPS = 0.5

# The steps that take about as long as the tables of children in the junction tree of one length.
STEPS_A_TREE = 60


@dataclass(frozen=True, eq=False)
class Chains:
    """The chains of some rows; steps are numbered chain by chain.

    Attributes
    ----------
    lengths : (chains,) the number of steps of each, up to the last one with an observed child.
    weights : (chains,) the weight of each, 1 where a chain has several steps.
    pair : the first entry of the table that joins neighbours, -1 where all chains have one step.
    every : (m, states) the entries of tables with one free unit that all steps have.
    rows, used : (n, states) the entries of other such tables, all different, and how often each
        step has each of them, a CSR array (steps, n).
    constant : the weight of each entry of all tables in tables without a free unit, (entries,).
    emissions : the observed children of arrows.
    """

    lengths: Array
    weights: Array
    pair: int
    every: Array
    rows: Array
    used: Any
    constant: Array
    emissions: list[Stack]

    @cached_property
    def heavy(self) -> Array | None:
        """The weight (steps, 1) of each step; None if all are 1."""
        every = bool((self.weights == 1).all())
        return None if every else np.repeat(self.weights, self.lengths)[:, None]

    @cached_property
    def _constant(self) -> tuple[Array, Array]:
        """The entries with a weight in `constant`, and these weights."""
        at = np.flatnonzero(self.constant)
        return at, self.constant[at]

    def counts(self, model: Model) -> tuple[float, dict[str, Array]] | None:
        """Return the sum of log Z, the expected counts of entries, and the sums of inputs.

        None for an impossible row, and where chains of several steps have an impossible entry,
        because their messages need finite log weights.
        """
        found = self._summed(model)
        if found is None:
            return None
        log_z, counts, marginals = found
        rows, theta = input_rows(model.structure), shared_numbers(model)
        total = rows.zeros()
        for stack in self.emissions:
            stack.add_sums(theta, marginals, total)
        sums = rows.by_parameter(total, model.params)
        return log_z, model.parameter_counts(counts) | sums

    def gradient(self, model: Model, total: float) -> tuple[float, dict[str, Weight]] | None:
        """Return the sum of log Z / total over all rows, and its derivatives.

        They are the derivatives in tables and in the numbers that places share. None as in
        `counts`.
        """
        found = self._summed(model)
        if found is None:
            return None
        log_z, counts, marginals = found
        theta = shared_numbers(model)
        slope = np.zeros(len(theta))
        for stack in self.emissions:
            slope += stack.slope(theta, marginals)
        slopes = {**model.table_slopes(counts), **by_parameter(model, slope)}
        return log_z / total, {key: value / total for key, value in slopes.items()}

    def _summed(self, model: Model) -> tuple[float, Array, Array] | None:
        """Return the sum of log Z, the counts of entries, and marginals of steps, with weights."""
        entries = model.table_entries
        if self.pair >= 0 and not np.isfinite(entries).all():
            return None
        steps, k = self.used.shape[0], self.rows.shape[1]
        # Sums over the states of single steps are fast where each state has its steps together.
        field = np.zeros((k, steps)).T if self.pair < 0 else np.zeros((steps, k))
        field += entries.take(self.every).sum(axis=0)
        if len(self.rows):
            # Steps have few distinct observations.
            field += self.used @ entries.take(self.rows)
        theta = shared_numbers(model)
        for stack in self.emissions:
            stack.weigh(theta, field)
        # Looking at all entries is fast, and mostly finds that no step has only impossible states.
        if not (np.isfinite(field).all() or np.isfinite(field.max(axis=1)).all()):
            return None
        total = self.constant.copy()
        log_z, marginals = self._messages(field, entries, total)
        if self.heavy is not None:
            marginals *= self.heavy
        # A product is several times as fast as a sum along a long axis.
        add_at(total, self.every, np.ones(steps) @ marginals)
        if len(self.rows):
            add_at(total, self.rows, self.used.T @ marginals)
        whole, some = self._constant
        return float(self.weights @ log_z + some @ entries.take(whole)), total, marginals

    def _messages(self, field: Array, entries: Array, total: Array) -> tuple[Array, Array]:
        """Return log Z of chains, and the marginals (steps, states); add counts of pairs to all."""
        k = field.shape[1]
        if self.pair < 0:
            each = log_sum(field)
            log_z = np.zeros(len(self.lengths))
            log_z[self.lengths > 0] = each
            return log_z, np.exp(field - each[:, None])
        pairs = slice(self.pair, self.pair + k * k)
        move = entries[pairs].reshape(k, k)
        found = chain_sums(field, move, self.lengths)
        total[pairs] += found.pairs.ravel()
        return found.log_z, found.marginals


def chains_of(targets: Sequence[Target], weights: Sequence[Array]) -> Chains | None:
    """Return the chains of rows of several lengths, or None where they are no such chains.

    Parameters
    ----------
    targets : the rows of each length. The first target has all parameters.
    weights : the weight of each row, 1 where chains have several steps.
    """
    each = [t.structure.table_index.states.sum() + t.structure.width for t in targets]
    states = sum(t.rows * float(count) for t, count in zip(targets, each, strict=True))
    if no_room(BYTES_A_STATE * states):
        return None
    parts, kinds = list[_Part](), dict[bytes, Kind]()
    for target, heavy in zip(targets, weights, strict=True):
        part = _part(target, heavy, targets[0].structure, kinds)
        if part is None:
            return None
        parts.append(part)
    pairs = {part.pair for part in parts if part.pair >= 0}
    widths = {part.places.shape[1] for part in parts}
    lengths = np.concatenate([part.lengths for part in parts])
    weighed = any((w != 1).any() for w in weights)
    if len(pairs) > 1 or len(widths) != 1 or (pairs and weighed) or not lengths.any():
        return None
    many = not pairs or lengths.sum() >= MIN_CHAINS_A_STEP * lengths.max()
    # A junction tree with children of arrows takes the time of about so many steps.
    if not many and not (kinds and lengths.max() <= STEPS_A_TREE * len(targets)):
        return None
    return _joined(parts, lengths, pairs.pop() if pairs else -1)


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of one length: as in `Chains`, with observed children by kind, steps and values."""

    lengths: Array
    weights: Array
    pair: int
    step: Array
    places: Array
    constant: Array
    emissions: list[tuple[Kind, Array, Array]]


def _joined(parts: Sequence[_Part], lengths: Array, pair: int) -> Chains:
    """Return the chains of all parts, whose steps follow each other."""
    each = [int(part.lengths.sum()) for part in parts]
    numbered = list(zip(np.cumsum([0, *each[:-1]]), parts, strict=True))
    seen: dict[Kind, list[tuple[Array, Array]]] = {}
    for begin, part in numbered:
        for kind, at, x in part.emissions:
            seen.setdefault(kind, []).append((begin + at, x))
    joined = [
        (kind, np.concatenate([at for at, _ in some]), np.concatenate([x for _, x in some]))
        for kind, some in seen.items()
    ]
    return Chains(
        lengths,
        np.concatenate([part.weights for part in parts]),
        pair,
        *_tables(
            np.concatenate([begin + part.step for begin, part in numbered]),
            np.concatenate([part.places for part in parts]),
            int(lengths.sum()),
        ),
        np.sum([part.constant for part in parts], axis=0),
        stacks_of(joined, int(lengths.sum())),
    )


def _tables(step: Array, places: Array, steps: int) -> tuple[Array, Array, Any]:
    """Return tables (n,), (n, states) as `every`, `rows` and `used` of `Chains`."""
    from scipy.sparse import csr_array

    every, rest = np.empty((0, places.shape[1]), dtype=np.int64), np.ones(len(step), dtype=bool)
    for at in _once_a_step(step):
        if len(at) == steps and (places[at] == places[at[0]]).all():
            every, rest[at] = np.concatenate([every, places[at[:1]]]), False
    step, places, k = step[rest], places[rest], places.shape[1]
    # The entries of a row have equal distances.
    ends, number = distinct_pairs(places[:, 0], places[:, -1])
    rows = ends[:, :1] + np.diff(ends, axis=1) // max(k - 1, 1) * np.arange(k)
    shape = steps, len(rows)
    return every, rows, csr_array((np.ones(len(step)), (step, number)), shape=shape)


def _part(
    target: Target, weights: Array, whole: Structure, kinds: dict[bytes, Kind]
) -> _Part | None:
    """Return the rows of one length as chains, or None. New kinds of children join `kinds`."""
    s, index = target.structure, target.structure.table_index
    emitting = emitting_layers(s)
    if emitting is None:
        return None
    # Children that are not observed are no steps, in whatever rows they are missing.
    leaves = _leaves(s)
    free = [
        np.zeros((1, x.size), dtype=bool)
        if name in emitting
        else distinct(target.free[name]) & ~leaves[s.slices[name]]
        for name, x in s.layers.items()
    ]
    plain = target.untempered and not target.soft and s.with_base <= emitting
    biased = any(units.any() for name, units in s.has_bias.items() if name not in emitting)
    biased |= any(t.is_bias and t.layers[0] not in emitting for t in s.shared)
    acted = any(mask.any() for mask in target.intervened.values())
    if not plain or biased or acted or any((mask != mask[:1]).any() for mask in free):
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
    # A table whose child is barren in a row sums to one there.
    missing = np.concatenate([target.free[name] for name in s.layers], axis=1) & leaves
    kept = ~np.where(index.child >= 0, missing[:, index.child], False)
    single, whole_tables = np.flatnonzero(counts == 1), counts == 0
    axes = np.flatnonzero(is_free[index.unit] & (counts == 1)[index.table])
    k = int(index.states[axes[0]])
    along = index.stride[axes][:, None, None] * np.arange(k)
    places = base[:, single].T[:, :, None] + along
    # A chain ends at the last step with an observed child: later ones are barren.
    at = number[index.unit[axes]]
    lengths = np.zeros(target.rows, dtype=np.int64)
    for j in np.flatnonzero(index.child[single] != index.unit[axes]).tolist():
        lengths = np.where(kept[:, single[j]], np.maximum(lengths, at[j] + 1), lengths)
    for _, row, parent, _ in children:
        np.maximum.at(lengths, row, number[parent] + 1)
    begin = np.cumsum(lengths) - lengths
    step, some = at[:, None] + begin, kept[:, single].T & (at[:, None] < lengths)
    heavy = np.where(kept, weights[:, None], 0.0)[:, whole_tables]
    constant = np.zeros(whole.stored_entries)
    add_at(constant, base[:, whole_tables], heavy)
    return _Part(
        lengths,
        weights,
        int(first[joint[0]]) if len(joint) else -1,
        step[some],
        places[some],
        constant,
        [(kind, begin[row] + number[parent], x) for kind, row, parent, x in children],
    )


def _leaves(s: Structure) -> Array:
    """Return (units,) bool: the children in one conditional, and in nothing else."""
    index = s.table_index
    leaves = np.bincount(index.unit, minlength=s.units) == 1
    own = np.zeros(s.units, dtype=bool)
    own[index.child[index.child >= 0]] = True
    above = {name for c in s.couplings for name in (c.a, c.b)}
    for name in above:
        own[s.slices[name]] = False
    return np.asarray(leaves & own)


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

    @cached_property
    def rows(self) -> Array:
        """The row of inputs of each state, where it is the whole input."""
        width = self.unit.width
        return np.asarray(self.matrix.reshape(-1, width, self.matrix.shape[1])[:, 0].argmax(-1))


@dataclass(frozen=True, eq=False)
class Stack:
    """Observed children of some kinds of one unit type, each at most once in a step.

    Their densities are computed together, for some steps at a time.

    Attributes
    ----------
    kinds : m kinds; a kind with several children in a step comes several times.
    step : (n,) the steps of their parents, which all kinds share; None = all steps.
    x : (m, n[, width]) values, with any value of the kind where `seen` is 0.
    seen : (m, 1, n) 1 where a child is observed, else 0; None = all are.
    """

    kinds: tuple[Kind, ...]
    step: Array | None
    x: Array
    seen: Array | None

    @property
    def unit(self) -> Unit:
        """The unit type."""
        return self.kinds[0].unit

    @cached_property
    def matrix(self) -> Array:
        """The matrices of all kinds below each other."""
        return np.concatenate([kind.matrix for kind in self.kinds])

    def inputs(self, theta: Array) -> Array:
        """Return the inputs (m, states[, width]) at the numbers of the shared parameters."""
        width = (self.unit.width,) if self.unit.width > 1 else ()
        return (self.matrix @ theta).reshape(len(self.kinds), -1, *width)

    def _blocks(self, states: int) -> Iterator[tuple[slice | Array, Array, Array | None]]:
        """Yield some steps, and the values and masks of their children."""
        count = self.x.shape[1]
        most = max(1, ENTRIES_AT_ONCE // (len(self.kinds) * states))
        for some in (slice(i, min(i + most, count)) for i in range(0, count, most)):
            at = some if self.step is None else self.step[some]
            yield at, self.x[:, some], None if self.seen is None else self.seen[..., some]

    def weigh(self, theta: Array, field: Array) -> None:
        """Add log p(x | zeta_k) of all children to the field (steps, states) of their parents."""
        zeta = self.inputs(theta)[:, :, None]
        for at, x, seen in self._blocks(field.shape[1]):
            logs = self.unit.log_conditional(x[:, None], zeta)
            field[at] += (logs if seen is None else logs * seen).sum(axis=0).T

    def add_sums(self, theta: Array, marginals: Array, total: Array) -> None:
        """Add the sums of rows of inputs to those of all numbers."""
        if not self.kinds[0].summed:
            return
        zeta, rows = self.inputs(theta), np.stack([kind.rows for kind in self.kinds])
        for at, x, seen in self._blocks(marginals.shape[1]):
            q = np.ascontiguousarray(marginals[at].T)[None]
            add_sums(total, rows, self.unit.deviations(x, zeta, q if seen is None else q * seen))

    def slope(self, theta: Array, marginals: Array) -> Array:
        """Return the derivative (numbers,) of the sum of marginals times log p(x | zeta_k)."""
        zeta, out = self.inputs(theta)[:, :, None], np.zeros(len(theta))
        for at, x, seen in self._blocks(marginals.shape[1]):
            score = self.unit.score(*np.broadcast_arrays(x[:, None], zeta))
            q = marginals[at].T[None]
            q = np.broadcast_to(q if seen is None else q * seen, score.shape[:3])
            found = np.einsum("mkn,mknw->mkw", q, score.reshape(*q.shape, -1))
            out += found.ravel() @ self.matrix
        return out


def stacks_of(found: Sequence[tuple[Kind, Array, Array]], steps: int) -> list[Stack]:
    """Return observed children in stacks, from kinds with steps (n,) and values (n, width).

    Kinds with a child in most steps share a stack of all steps.
    """
    out, together = list[Stack](), dict[tuple[Unit, bool, int], list[tuple[Kind, Array, Array]]]()
    for kind, step, x in found:
        for at in _once_a_step(step):
            if len(at) < LEAST_SHARE_OF_STEPS * steps:
                own = x[at] if kind.unit.width > 1 else x[at, 0]
                out.append(Stack((kind,), step[at], own[None], None))
            else:
                alike = kind.unit, kind.summed, len(kind.matrix)
                together.setdefault(alike, []).append((kind, step[at], x[at]))
    for (unit, _, _), parts in together.items():
        seen = np.zeros((len(parts), 1, steps))
        # Components come first in memory.
        values = np.empty((unit.width, len(parts), steps))
        for i, (_, step, x) in enumerate(parts):
            seen[i, 0, step], values[:, i] = 1.0, x[0, :, None]
            values[:, i, step] = x.T
        whole = np.moveaxis(values, 0, -1) if unit.width > 1 else values[0]
        kinds = tuple(kind for kind, _, _ in parts)
        out.append(Stack(kinds, None, whole, None if seen.all() else seen))
    return out


def _once_a_step(step: Array) -> list[Array]:
    """Return the places of observations in parts, in each of which no step comes twice."""
    order = np.argsort(step, kind="stable")
    ranked = step[order]
    number = np.arange(len(step)) - np.searchsorted(ranked, ranked)
    ends = np.cumsum(np.bincount(number))
    return [np.sort(part) for part in np.split(order[np.argsort(number, kind="stable")], ends[:-1])]


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
