"""Tables: factors of the log density that are given entry by entry.

A table over units with finitely many states adds the logarithm of one of its entries to the log
density: the entry at the states of the units in its scope. An entry of 0, whose logarithm is -inf,
makes these states impossible. A conditional is a table p(child | parents), whose rows sum to one;
its last axis is the child.

A term (terms/term.py) has tables of one shape over units of the same layers. A table may be used in
many places: then it is stored once, its entries are added in each place, and its gradient is the
sum over the places. `TableIndex` lists the tables of all places of a structure, one after the
other, as arrays, so that no operation loops over tables in Python. All units of a structure are
numbered in the order of their layers (`Structure.first_unit`).

    log density gains  sum over places f of  entries[first_f + sum over axes a of stride_fa x_fa]
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.checks import IN_RANGE, in_range
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, Params, States

if TYPE_CHECKING:
    from pgmengine.model.structure import Structure
    from pgmengine.model.terms.term import Term

# The largest distance from 1 of the sum of a conditional's row that is taken for rounding: 1e-6 and
# the rounding of the sum itself, so that 0.999999 passes.
MAX_SUM_ERROR = 1e-6 + 1e-12

# The rounding error of an entry that is printed with six decimals: half a unit of the sixth.
PRINTED_ENTRY_ERROR = 0.5e-6

# The largest distance from 1 of the sum of a row that keeps its bits: dividing it by its sum again
# would change them whenever a file is read.
MAX_KEPT_ERROR = 1e-12

# Entries of a table for which temporary arrays are made at a time.
BLOCK_ENTRIES = 2**18


def check_finite(structure: Structure, name: str) -> None:
    """PgmError unless the units of a layer have finitely many states."""
    if not structure.state_counts[name]:
        raise PgmError(
            f"layer {name!r} has {structure.layers[name].unit!r} units: tables and joint "
            "distributions need finitely many states"
        )


@dataclass(frozen=True, eq=False)
class TableIndex:
    """The tables of all places of a structure, one after the other: F tables, S axes in total.

    Attributes
    ----------
    start : (F + 1,) the first axis of each table.
    unit : (S,) the unit of each axis, numbered over all layers.
    stride : (S,) the distance, in entries, between neighbouring states of the axis.
    first : (F,) the first entry of each table; places that share a table have the same one.
    size : (F,) the number of entries of each table.
    child : (F,) the child of a conditional, -1 for other tables.
    states : (S,) the number of states of the axis.
    """

    start: Array
    unit: Array
    stride: Array
    first: Array
    size: Array
    child: Array
    states: Array

    @cached_property
    def table(self) -> Array:
        """The table of each axis, (S,)."""
        return np.repeat(np.arange(len(self.child)), np.diff(self.start))

    @cached_property
    def apart(self) -> bool:
        """Whether no places share a table, so that entries follow each other as tables do."""
        return bool((self.first[1:] > self.first[:-1]).all())

    @cached_property
    def stored(self) -> tuple[Array, Array]:
        """The first entry of each stored table, ascending, and the number of each place's table."""
        if self.apart:
            return self.first, np.arange(len(self.first))
        return np.unique(self.first, return_inverse=True)

    @cached_property
    def shared(self) -> Array:
        """Whether the table of each place is used in other places, too, (F,)."""
        if self.apart:
            return np.zeros(len(self.first), dtype=bool)
        _, number = self.stored
        return np.bincount(number)[number] > 1

    @cached_property
    def axis_entries(self) -> Array:
        """The number of entries of the table of each axis, (S,)."""
        return self.size[self.table]

    @cached_property
    def axes_of(self) -> tuple[Array, Array]:
        """All axes sorted by unit, and the position of the first axis of each unit among them."""
        order = np.argsort(self.unit, kind="stable")
        most = int(self.unit.max(initial=-1))
        return order, np.searchsorted(self.unit[order], np.arange(most + 2))

    def of_unit(self, unit: int) -> Array:
        """Return the axes that belong to a unit."""
        order, first = self.axes_of
        return order[first[unit] : first[unit + 1]] if unit + 1 < len(first) else order[:0]

    def log_weights(self, terms: Array, states: Array, unit: int) -> tuple[Array, Array]:
        """Return the terms of the tables of a unit at each of its states.

        Parameters
        ----------
        terms : the logarithms of all entries.
        states : (rows, units) states of all units; the state of the unit itself is not read.
        unit : the number of the unit.

        Returns
        -------
        The numbers of its tables (n,), and the terms (rows, n, K).
        """
        mine = self.of_unit(unit)
        tables = self.table[mine]
        own = np.arange(self.states[mine[0]])
        found = np.empty((len(states), len(mine), len(own)))
        for i, (axis, table) in enumerate(zip(mine, tables, strict=True)):
            axes = slice(self.start[table], self.start[table + 1])
            entry = states[:, self.unit[axes]] @ self.stride[axes] + self.first[table]
            entry -= states[:, unit] * self.stride[axis]
            found[:, i] = terms.take(entry[:, None] + own * self.stride[axis])
        return tables, found

    def entries(self, states: Array) -> Array:
        """Return the entry (rows, F) of each table at states (rows, units) of all units."""
        steps = states[:, self.unit] * self.stride
        found: Array = np.add.reduceat(steps, self.start[:-1], axis=1) + self.first
        return found

    def entries_of(self, states: Array, tables: Array) -> Array:
        """Return the entries (rows, n) of some tables at states (rows, units) of all units."""
        lengths = self.start[tables + 1] - self.start[tables]
        begin = np.cumsum(lengths) - lengths
        axes = np.repeat(self.start[tables] - begin, lengths) + np.arange(lengths.sum())
        steps = states[:, self.unit[axes]] * self.stride[axes]
        found: Array = np.add.reduceat(steps, begin, axis=1) + self.first[tables]
        return found


def index_tables(structure: Structure) -> TableIndex:
    """Return the arrays of all tables of a structure."""
    parts = []
    for tables in structure.tables:
        counts = np.array([structure.state_counts[name] for name in tables.layers])
        begin = np.array([structure.first_unit[name] for name in tables.layers])
        parts.append((tables.index + begin, counts, tables.conditional))
    index, stored = index_scopes(parts), len(structure.stored_tables)
    if all(t.which is None for t in structure.tables) and stored == len(structure.tables):
        return index
    starts = structure.table_places
    first = [
        starts[t.store].start + t.numbers * math.prod(t.shape(structure.layers)[len(t.lead) :])
        for t in structure.tables
    ]
    return replace(index, first=np.concatenate(first))


def index_scopes(parts: Iterable[tuple[Array, Array, bool]]) -> TableIndex:
    """Return the arrays of tables that share no entries, the last unit of a scope varying fastest.

    `parts` has the scopes (n, m) of tables of one shape, their numbers of states (m,), and whether
    the last unit is the child of a conditional.
    """
    unit, stride, states = (list[Array]() for _ in range(3))
    # For each part: its tables, their axes and entries, and whether they are conditionals.
    shapes = list[tuple[int, int, int, bool]]()
    known: dict[tuple[int, ...], Array] = {}
    for scope, counts, conditional in parts:
        key = tuple(counts.tolist())
        if key not in known:
            known[key] = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
        n, m = scope.shape
        shapes.append((n, m, math.prod(key), conditional))
        unit.append(scope.ravel())
        # In networks from files, most parts are single tables.
        stride.append(known[key] if n == 1 else np.tile(known[key], n))
        states.append(counts if n == 1 else np.tile(counts, n))
    several, axes, sizes, conditionals = np.array(shapes, dtype=np.int64).reshape(-1, 4).T
    start = np.concatenate([[0], np.cumsum(np.repeat(axes, several))])
    size = np.repeat(sizes, several)
    units, strides, cards = (
        np.concatenate([*x, []]).astype(np.int64) for x in (unit, stride, states)
    )
    child = np.full(len(start) - 1, -1)
    mine = np.repeat(conditionals, several) > 0
    child[mine] = units[start[1:][mine] - 1]
    return TableIndex(start, units, strides, size.cumsum() - size, size, child, cards)


def joined_states(structure: Structure, x: States) -> Array:
    """Return the states (rows, units) of all units; 0 for units with infinitely many values."""
    return np.concatenate(
        [
            np.zeros((len(x[name]), layer.size), dtype=np.int64)
            if layer.unit.support is None
            else layer.states(x[name])
            for name, layer in structure.layers.items()
        ],
        axis=1,
    )


def parameter_counts(structure: Structure, params: Params, counts: Array) -> dict[str, Array]:
    """Return the expected counts of the numbers of each parameter, from those of all entries.

    Parameters
    ----------
    structure : the tables.
    params : the logarithms of the numbers, on which the counts of a gate depend.
    counts : the (expected) number of rows at each entry, in the order of `table_entries`. The
        result may have views of this array.
    """
    out: dict[str, Array] = {}
    for store, part in structure.table_places.items():
        t = structure.stored_tables[store]
        own = counts[part].reshape(t.shape(structure.layers))
        if t.form:
            own = t.form.counts(params[t.key], own)
        out[t.key] = out[t.key] + own if t.key in out else own
    return out


def table_gradient(structure: Structure, params: Params, counts: Array) -> dict[str, Array]:
    """Return d log_density / d parameter of all tables, by parameter.

    For an undirected table it is the counts of the entries. For a conditional, whose rows stay
    normalised, it is the counts minus the total of their row times the probability.

    Parameters
    ----------
    structure, params, counts : as in `parameter_counts`. The counts may become the gradient.
    """
    out = parameter_counts(structure, params, counts)
    for key, found in out.items():
        if not structure.table_groups[key].conditional:
            continue
        own, rows = (x.reshape(-1, x.shape[-1]) for x in (params[key], found))
        step = max(1, BLOCK_ENTRIES // rows.shape[-1])
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            some -= some.sum(axis=-1, keepdims=True) * np.exp(own[first : first + step])
    return out


def check_logs(structure: Structure, tables: Term, logs: object) -> Array:
    """Return the logarithms of tables as a parameter of the right shape, conditionals normalised.

    PgmError if an entry is NaN or +inf, if no entry is possible, or if the shape is another one.
    """
    what, shape = f"parameter {tables.key!r}", tables.parameter_shape(structure.layers)
    try:
        array = np.asarray(logs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PgmError(f"{what} is not an array of numbers: {error}") from None
    if array.shape != shape:
        raise PgmError(f"{what} has shape {array.shape}, expected {shape}")
    # The axes of one table, which the axes of places come before.
    axes = tuple(range(len(tables.lead), array.ndim))
    # The maximum is NaN if any entry is, and no array of the size of the table is made.
    top = array.max(axis=-1)
    if not (top < np.inf).all():
        at = np.argwhere(np.isnan(array) | np.isposinf(array))[0].tolist()
        raise PgmError(f"{what}: entry {at} is {array[tuple(at)]}, expected a logarithm below inf")
    dead = np.isneginf(top if tables.conditional else top.max(axis=axes[:-1]))
    if dead.any():
        where = np.argwhere(np.atleast_1d(dead))[0].tolist()
        raise PgmError(f"{what}: all entries of row {where} are -inf, so that no state is possible")
    return normalised(tables, array, copy=True)


# The name of an axis, and the names of its states, for messages.
Axis = tuple[str, Sequence[Hashable]]


def check_table(
    values: Array, conditional: bool, what: str, scope: Sequence[Axis], out: Array
) -> None:
    """Write the logarithms of the entries of tables; conditionals are normalised.

    Parameters
    ----------
    values : (..., K_1, ..., K_m), at least 0.
    conditional : whether the last axis sums to one.
    what : the name of the table in messages.
    scope : names of the axes of one table and of their states, for messages.
    out : the result; `values` can be broadcast to it, and no other array of its size is made.
    """
    # NaN makes both comparisons false.
    if not (values.min(initial=np.inf) >= 0 and values.max(initial=0.0) < np.inf):
        at = np.argwhere(~(np.isfinite(values) & (values >= 0)))[0].tolist()
        raise PgmError(f"{what}: entry {at} is {values[tuple(at)]}, expected a number >= 0")
    axes = tuple(range(values.ndim - len(scope), values.ndim))
    _check_possible(values.max(axis=axes) == 0, "0", what)
    if conditional:
        sums = values.sum(axis=-1, keepdims=True)
        check_sums(sums, what, scope)
        sums[np.abs(sums - 1) < MAX_KEPT_ERROR] = 1.0
        values = values if (sums == 1.0).all() else np.divide(values, sums, out=out)
    with np.errstate(divide="ignore"):
        if out.shape == values.shape:
            np.log(values, out=out)
        else:
            out[...] = np.log(values)


def check_log_table(
    values: Array, conditional: bool, what: str, scope: Sequence[Axis], out: Array
) -> None:
    """Write entries of tables that are given by their logarithms; see `check_table`.

    Their bits are kept, except that rows of conditionals that do not sum to 1 exactly are
    normalised.
    """
    good = in_range(values) | np.isneginf(values)
    if not good.all():
        at = np.argwhere(~good)[0].tolist()
        raise PgmError(
            f"{what}: entry {at} is {values[tuple(at)]}, expected {IN_RANGE}, or -inf, which makes "
            "a state impossible, because log=True takes logarithms"
        )
    axes = tuple(range(values.ndim - len(scope), values.ndim))
    _check_possible(np.isneginf(values.max(axis=axes)), "-inf", what)
    out[...] = values
    if conditional:
        sums = log_sum(values)[..., None]
        check_sums(np.exp(sums), what, scope)
        out -= np.where(np.abs(sums) < MAX_KEPT_ERROR, 0.0, sums)


def _check_possible(empty: Array, entry: str, what: str) -> None:
    """PgmError for a table without possible entries; `empty` says which tables have none."""
    if empty.any():
        where = f" {int(np.flatnonzero(empty)[0])}" if empty.ndim else ""
        raise PgmError(
            f"{what}: all entries of table{where} are {entry}, so that no state is possible"
        )


def rows_are_one(values: Array, tolerance: float = 0.0) -> bool:
    """Whether all rows of a conditional sum to one up to the rounding of printed entries."""
    return wrong_row(values, tolerance) is None


def wrong_row(values: Array, tolerance: float = 0.0) -> tuple[tuple[int, ...], float] | None:
    """Return the states of the parents, and the sum, of the first row that does not sum to one.

    The sum may differ from one by the rounding of printed entries, or by the tolerance.
    """
    sums = values.sum(axis=-1)
    # The comparison is False for NaN.
    wrong = ~(np.abs(sums - 1) <= _allowed(values, tolerance))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return at, float(sums[at])


def _allowed(values: Array, tolerance: float) -> float:
    """Return how far the sum of a row may be from 1 and still count as rounded."""
    return max(MAX_SUM_ERROR + PRINTED_ENTRY_ERROR * int(values.shape[-1]), tolerance)


def as_printed(values: Array, tolerance: float = 0.0) -> Array:
    """Return a conditional from a file or another library, whose entries may have been printed.

    A row is divided by its sum if the sum differs from 1 by at most 1e-6 plus 0.5e-6 for each
    state: many programs print probabilities with six decimals, and 0.5e-6 is half a unit of the
    last one. A larger tolerance replaces this limit. Other rows keep their entries, and the later
    check refuses them and names their position.
    """
    sums = values.sum(axis=-1, keepdims=True)
    away = np.abs(sums - 1)
    near = (away >= MAX_KEPT_ERROR) & (away <= _allowed(values, tolerance))
    return values / np.where(near, sums, 1.0) if near.any() else values


def check_sums(sums: Array, what: str, scope: Sequence[Axis]) -> None:
    """PgmError unless the sums (..., 1) of the rows of conditionals are one."""
    wrong = np.argwhere(np.abs(sums[..., 0] - 1) > MAX_SUM_ERROR)
    if len(wrong):
        at = wrong[0].tolist()
        row = at[len(at) - len(scope) + 1 :]
        states = ", ".join(f"{n} = {names[k]}" for (n, names), k in zip(scope, row, strict=False))
        total = float(sums[tuple(at)][0])
        given = f" given states {states}" if states else ""
        raise PgmError(
            f"{what}: the probabilities of {scope[-1][0]!r}{given} sum to {total:.9g}, expected 1"
        )


def normalised(tables: Term, logs: Array, copy: bool = False) -> Array:
    """Return the logarithms of tables, with the rows of conditionals normalised.

    Rows that are normalised already keep their bits. Tables that are not conditionals are returned
    unchanged, as a copy if `copy` is set.
    """
    if not tables.conditional:
        return logs.copy() if copy else logs
    # In C order, so that the rows below are views.
    out = np.array(logs, order="C")
    rows = out.reshape(-1, out.shape[-1])
    step = max(1, BLOCK_ENTRIES // rows.shape[1])
    for first in range(0, len(rows), step):
        part = rows[first : first + step]
        sums = log_sum(part)[..., None]
        part -= np.where(np.abs(sums) < MAX_KEPT_ERROR, 0.0, sums)
    return out
