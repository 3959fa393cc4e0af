"""The tables of the model as factors over free units.

Large tables take most of the memory of a question. They are therefore not copied, and no array of
places has a number for each of their entries. There are four kinds:

    free        a table without an observed unit, with the entries of the model
    sliced      a large table with observed units: a slice of it for each row
    placed      all small tables together, with the place of each entry in the model
    observed    a table without a free unit: a constant of each row

If no unit is observed, all tables are free. If some are observed, and all tables of a question are
small, all of them are placed, which takes the fewest operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from pgmengine.base.numerics import add_at
from pgmengine.base.types import Array
from pgmengine.evidence.target import Target, times
from pgmengine.infer.exact.junction_tree.factors import FreeUnits, Scopes
from pgmengine.infer.exact.junction_tree.marginalised import relative_to_base
from pgmengine.model.tables import BLOCK_ENTRIES, TableIndex

# Largest number of table entries for which tables are placed. It limits all tables of a question
# without evidence, one table with observed units, and each run of free tables that follow each
# other in the model.
MAX_PLACED_ENTRIES = 2**16

# The largest number of places of entries that evidence remembers for the next update of a fit.
MAX_KEPT_PLACES = 2**18


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of some tables at the states of observed units, by their place in the model.

    Attributes
    ----------
    base : (entries,) the place of each entry where all observed units are in state 0.
    owner : (entries,) the table of each entry, as its number among these tables.
    unit : (axes,) the unit of each axis of these tables.
    stride : (axes,) entries between two neighbouring states, 0 where the unit is free.
    start : (tables,) the first axis of each table.
    child : (tables,) the unit whose conditional each table is, -1 for other tables.
    """

    base: Array
    owner: Array
    unit: Array
    stride: Array
    start: Array
    child: Array

    def given(self, target: Target) -> tuple[Array, Array | None]:
        """Return the places (entries, rows), or (entries, 1) where no unit is observed.

        The second item is a mask (entries, rows or 1) of conditionals that are absent from a row;
        None if all are there.
        """
        if len(self.owner) * target.rows > MAX_KEPT_PLACES:
            return self._places(target), self._absent(target)
        found: tuple[Array, Array | None] = target.evidence.memo.recall(
            self, lambda: (self._places(target), self._absent(target))
        )
        return found

    def _absent(self, target: Target) -> Array | None:
        """Return the mask of entries of units that do() sets in some rows."""
        cut = target.pattern.cut
        if cut is None:
            return None
        absent = cut.T[self.child] & (self.child >= 0)[:, None]
        return absent.take(self.owner, 0) if absent.any() else None

    def _places(self, target: Target) -> Array:
        if not len(self.unit):
            return self.base[:, None]
        # States of one unit are next to each other.
        steps = np.add.reduceat(
            target.evidence.states.T.take(self.unit, 0) * self.stride, self.start
        )
        places = steps.take(self.owner, 0)
        places += self.base[:, None]
        return places


NO_PLACES = np.empty(0, dtype=np.int64)
NO_ENTRIES = Entries(NO_PLACES, NO_PLACES, NO_PLACES, NO_PLACES, NO_PLACES, NO_PLACES)


def _entries(target: Target, tables: Array, base: Array, owner: Array, seen: Array) -> Entries:
    """Return the entries of some tables; the mask `seen` (S,) marks the axes of observed units."""
    index = target.structure.table_index
    mine, child = np.zeros(len(index.child), dtype=bool), index.child[tables]
    mine[tables] = True
    axes = mine[index.table].nonzero()[0]
    if not seen[axes].any():
        return Entries(base, owner, NO_PLACES, NO_PLACES, NO_PLACES, child)
    lengths = index.start[tables + 1] - index.start[tables]
    stride = np.where(seen[axes], index.stride[axes], 0)[:, None]
    return Entries(base, owner, index.unit[axes], stride, np.cumsum(lengths) - lengths, child)


@dataclass(frozen=True, eq=False)
class TableTerm:
    """beta log T of small tables with a free unit, at the states of their observed units.

    Attributes
    ----------
    tables : (n,) the numbers of the tables.
    entries : the places of their entries.
    """

    tables: Array
    scopes: Scopes
    entries: Entries

    @property
    def by_row(self) -> bool:
        """Whether the entries may differ between rows."""
        return len(self.entries.unit) > 0

    def held(self, lanes: int) -> float:
        """Return the bytes of places and values, and of states from which places follow."""
        e, rows = self.entries, lanes if self.by_row else 1
        return 8.0 * (len(e.base) * (2 + 2 * rows) + 2 * len(e.unit) * rows)

    def values(self, target: Target) -> Array:
        """Return the entries of all tables."""
        places, absent = self.entries.given(target)
        found = target.model.table_terms.take(places)
        if absent is not None:
            np.copyto(found, 0.0, where=absent)
        return _tempered(target, found)

    def add(
        self, target: Target, counts: Array, found: Array, weights: Array, idle: Array | None
    ) -> None:
        """Add expected indicators (entries, rows) to the counts of all entries of the model.

        `idle` is a mask (rows or 1, tables) of tables that do not count, None without any.
        """
        at, found = self.entries.given(target)[0], found * weights
        if idle is not None:
            np.copyto(found, 0.0, where=idle.T.take(self.entries.owner, 0))
        if at.shape[1] == 1:
            # No unit of the tables is observed, so that all rows add to the same entries.
            found = found.sum(axis=1, keepdims=True)
        add_at(counts, at, found)


@dataclass(frozen=True, eq=False)
class FreeTables:
    """beta log T of tables without an observed unit.

    Attributes
    ----------
    tables : (n,) their numbers.
    runs : the first entry and the end of each run of entries that follow each other in the model.
    """

    tables: Array
    scopes: Scopes
    runs: tuple[tuple[int, int], ...]

    by_row = False

    def held(self, lanes: int) -> float:
        """Return the bytes of the values; a single run is a view of the model, and takes none."""
        return 8.0 * sum(end - first for first, end in self.runs) * (len(self.runs) > 1)

    def values(self, target: Target) -> Array:
        """Return the entries of all tables, which no evidence changes."""
        terms = target.model.table_terms
        parts = [terms[first:end] for first, end in self.runs]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return _tempered(target, found[:, None])

    def add(
        self, target: Target, counts: Array, found: Array, weights: Array, idle: Array | None
    ) -> None:
        """Add expected indicators (entries, rows) to the counts of all entries of the model.

        `idle` is a mask (rows or 1, tables) of tables that do not count, None without any.
        """
        place, sizes = 0, target.structure.table_index.size[self.tables]
        owner = None if idle is None else np.arange(len(sizes)).repeat(sizes)
        for first, end in self.runs:
            for at in range(first, end, BLOCK_ENTRIES):
                some = min(BLOCK_ENTRIES, end - at)
                part = found[place : place + some]
                if idle is not None and owner is not None:
                    part = np.where(idle.T.take(owner[place : place + some], 0), 0.0, part)
                counts[at : at + some] += part @ weights
                place += some


@dataclass(frozen=True, eq=False)
class SlicedTables:
    """beta log T of large tables with observed units, at the states of these units.

    Attributes
    ----------
    tables : (n,) their numbers.
    slices : each table.
    """

    tables: Array
    scopes: Scopes
    slices: tuple[Slice, ...]

    by_row = True

    def held(self, lanes: int) -> float:
        """Return the bytes of values."""
        return 8.0 * sum(one.size for one in self.slices) * lanes

    def values(self, target: Target) -> Array:
        """Return the entries of all tables."""
        terms, states, cut = target.model.table_terms, target.states, target.pattern.cut
        out = np.full((sum(one.size for one in self.slices), len(states)), np.nan)
        place = 0
        for one in self.slices:
            part = out[place : place + one.size].reshape(*one.free_shape, len(states))
            for row, state in enumerate(states):
                part[..., row] = 0.0 if one.absent(cut, row) else one.of(terms, state)
            place += one.size
        return _tempered(target, out)

    def add(
        self, target: Target, counts: Array, found: Array, weights: Array, idle: Array | None
    ) -> None:
        """Add expected indicators (entries, rows) to the counts of all entries of the model.

        `idle` is a mask (rows or 1, tables) of tables that do not count, None without any.
        """
        place = 0
        for number, one in enumerate(self.slices):
            part = found[place : place + one.size].reshape(*one.free_shape, -1)
            for row, state in enumerate(target.states):
                if idle is not None and idle[row % len(idle), number]:
                    continue
                # Most questions weigh all rows by 1, and need no copy.
                weighed = part[..., row] if weights[row] == 1 else part[..., row] * weights[row]
                one.of(counts, state)[...] += weighed
            place += one.size


@dataclass(frozen=True, eq=False)
class Slice:
    """One table of the model with observed units.

    Attributes
    ----------
    first : its first entry.
    shape : the numbers of states of its units.
    units : its units, numbered over all layers.
    seen : whether each of them is observed.
    child : the unit whose conditional it is, -1 for another table.
    """

    first: int
    shape: tuple[int, ...]
    units: Array
    seen: Array
    child: int

    @property
    def free_shape(self) -> tuple[int, ...]:
        """The numbers of states of its free units."""
        return tuple(n for n, seen in zip(self.shape, self.seen, strict=True) if not seen)

    @property
    def size(self) -> int:
        """The number of entries over its free units."""
        return int(np.prod(self.free_shape, dtype=np.int64))

    def absent(self, cut: Array | None, row: int) -> bool:
        """Return whether do() sets its child in a row."""
        return cut is not None and self.child >= 0 and bool(cut[row % len(cut), self.child])

    def of(self, entries: Array, states: Array) -> Array:
        """Return a view (states of the free units, ...) of the entries of all tables."""
        table = entries[self.first : self.first + int(np.prod(self.shape, dtype=np.int64))]
        own = zip(states[self.units].tolist(), self.seen, strict=True)
        return table.reshape(self.shape)[tuple(k if seen else slice(None) for k, seen in own)]


TablesTerm: TypeAlias = TableTerm | FreeTables | SlicedTables


def _tempered(target: Target, found: Array) -> Array:
    """Return beta times entries; the entries themselves at beta = 1."""
    beta = float(target.beta[0])
    return found if beta == 1 else times(beta, found)


@dataclass(frozen=True, eq=False)
class _Active:
    """The tables with free units.

    Attributes
    ----------
    tables : (n,) their numbers.
    axes : their free axes, table by table.
    start : (n + 1,) the first free axis of each table.
    size : (n,) the number of entries over free units.
    number : (axes of all tables,) the number of each free unit, -1 for others.
    """

    tables: Array
    axes: Array
    start: Array
    size: Array
    number: Array

    def scopes(self) -> Scopes:
        """Return the scopes of the factors."""
        return Scopes(self.start, self.number[self.axes].astype(np.int32))

    def some(self, mine: Array) -> _Active:
        """Return the tables that a mask (n,) selects."""
        lengths = np.diff(self.start)
        start = np.concatenate([[0], np.cumsum(lengths[mine])])
        axes = self.axes[np.repeat(mine, lengths)]
        return _Active(self.tables[mine], axes, start, self.size[mine], self.number)


def table_terms(
    target: Target, free: FreeUnits, counted: Array
) -> tuple[list[TablesTerm], Entries]:
    """Return the terms of the tables with free units, and the entries of all other tables.

    `counted` (F,) are the tables that count.
    """
    s = target.structure
    if not s.tables:
        return [], NO_ENTRIES
    index = s.table_index
    number = free.number.take(index.unit)
    active = number >= 0
    every = counted.all()
    if every and index.apart and active.all():
        scopes = Scopes(index.start, number.astype(np.int32))
        run = 0, int(index.first[-1] + index.size[-1])
        return [FreeTables(np.arange(len(counted)), scopes, (run,))], NO_ENTRIES
    if not every:
        active &= counted[index.table]
    lengths = np.add.reduceat(active, index.start[:-1], dtype=np.int64)
    observed = (counted & (lengths == 0)).nonzero()[0]
    seen = number < 0
    whole = _entries(target, observed, index.first[observed], np.arange(len(observed)), seen)
    tables, axes = lengths.nonzero()[0], active.nonzero()[0]
    if not len(tables):
        return [], whole
    start = np.zeros(len(tables) + 1, dtype=np.int64)
    lengths[tables].cumsum(out=start[1:])
    size = np.multiply.reduceat(index.states[axes], start[:-1])
    return _terms(target, _Active(tables, axes, start, size, number)), whole


def _terms(target: Target, every: _Active) -> list[TablesTerm]:
    """Return the terms of the tables with free units, where some units are observed."""
    index, tables, size = target.structure.table_index, every.tables, every.size
    if size.sum() <= MAX_PLACED_ENTRIES:
        return [_placed(target, every)]
    # Small tables that places share are placed like tables with observed units.
    apart = ~index.shared[tables] | (size > MAX_PLACED_ENTRIES)
    whole = (size == index.size[tables]) & apart
    out: list[TablesTerm] = list(_free(index, every.some(whole))) if whole.any() else []
    sliced = ~whole & (size > MAX_PLACED_ENTRIES)
    if sliced.any():
        out.append(_sliced(index, every.some(sliced)))
    if (rest := ~whole & ~sliced).any():
        out.append(_placed(target, every.some(rest)))
    return out


def _free(index: TableIndex, these: _Active) -> list[FreeTables]:
    """Return the terms of tables without observed units; each long run of tables is a term."""
    first = index.first[these.tables]
    end = first + index.size[these.tables]
    breaks = np.flatnonzero(end[:-1] != first[1:]) + 1
    ends = [0, *breaks.tolist(), len(first)]
    short = np.zeros(len(first), dtype=bool)
    out, runs = list[FreeTables](), list[tuple[int, int]]()
    for a, b in pairwise(ends):
        run = int(first[a]), int(end[b - 1])
        if run[1] - run[0] < MAX_PLACED_ENTRIES and len(ends) > 2:
            short[a:b] = True
            runs.append(run)
            continue
        mine = np.zeros(len(first), dtype=bool)
        mine[a:b] = True
        part = these.some(mine)
        out.append(FreeTables(part.tables, part.scopes(), (run,)))
    if runs:
        part = these.some(short)
        out.append(FreeTables(part.tables, part.scopes(), tuple(runs)))
    return out


def _sliced(index: TableIndex, these: _Active) -> SlicedTables:
    """Return the term of large tables with observed units."""
    slices = []
    for t in these.tables.tolist():
        own = slice(int(index.start[t]), int(index.start[t + 1]))
        shape = tuple(index.states[own].tolist())
        child, seen = int(index.child[t]), these.number[own] < 0
        slices.append(Slice(int(index.first[t]), shape, index.unit[own], seen, child))
    return SlicedTables(these.tables, these.scopes(), tuple(slices))


def _placed(target: Target, these: _Active) -> TableTerm:
    """Return the term of small tables."""
    index, tables, size = target.structure.table_index, these.tables, these.size
    owner = np.arange(len(tables)).repeat(size)
    first, begin = index.first[tables], size.cumsum() - size
    # This is already the place of the entry if all units of its table are free.
    base = np.arange(len(owner)) + (first - begin)[owner]
    part = size < index.size[tables]
    if part.any():
        some = part[owner].nonzero()[0]
        local = some - begin[owner[some]]
        base[some] += _places(index, these.axes, these.start, owner[some], local) - local
    entries = _entries(target, tables, base, owner, these.number < 0)
    return TableTerm(tables, these.scopes(), entries)


def _places(index: TableIndex, axes: Array, start: Array, owner: Array, local: Array) -> Array:
    """Return the places of entries in their tables where all observed units are in state 0.

    Parameters
    ----------
    axes : the free axes of the tables.
    start : (tables + 1,) the first free axis of each table.
    owner, local : the table of each entry, and its number among the entries of the table's factor.
    """
    found, lengths = np.zeros_like(local), start[1:] - start[:-1]
    # The loop goes from the last free axis of each table to the first one.
    for p in range(int(lengths.max())):
        have = lengths > p
        axis = axes[np.where(have, start[1:] - 1 - p, 0)]
        states = np.where(have, index.states[axis], 1)[owner]
        found += local % states * np.where(have, index.stride[axis], 0)[owner]
        local = local // states
    return found


def observed_constant(target: Target, whole: Entries) -> Array:
    """Return the sum (rows,) of all terms without a free unit, except children of arrows.

    `whole` holds the entries of the tables without a free unit.
    """
    s, seen = target.structure, target.evidence.values
    total = np.zeros(target.rows)
    for name in s.layers:
        if name in s.with_base and relative_to_base(target, name):
            layer = s.layers[name]
            observed = ~target.free[name] & ~target.intervened[name]
            base = np.where(observed, layer.unit.log_h(layer.shaped(seen[name])), 0.0)
            total += base.sum(axis=1)
        if name in target.model.biased and name not in s.directed_layers:
            total += target.beta * (seen[name] @ target.model.bias(name))
        if name in target.soft:
            total += target.beta * (seen[name] * target.soft[name]).sum(axis=1)
    for c in s.undirected:
        total += target.beta * c.log_density(target.model.weight(c), seen[c.a], seen[c.b])
    if len(whole.base):
        places, absent = whole.given(target)
        logs = np.ascontiguousarray(target.model.table_terms.take(places).T)
        if absent is not None:
            logs = np.where(absent.T, 0.0, logs)
        found = logs.sum(axis=1)
        total += found if target.untempered else times(target.beta, found)
    return total
