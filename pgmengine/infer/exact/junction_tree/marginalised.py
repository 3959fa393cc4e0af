"""Children of arrows, and units with infinitely many values, as tables over their free neighbours.

    child       beta [log p(x_c | zeta_c) - log h(x_c)], zeta_c = bias + sum over parents of x_p J,
                over its free parents, and the child itself if it is free
    infinite    A(eta_u), eta_u = bias + sum over neighbours of x_n W, over its free neighbours: the
                unit has undirected couplings only, and is marginalised. If A is quadratic, the
                table holds the difference from A without the free neighbours
    leaf        0, over the free parents of a unit with infinitely many values and arrows into it
                only: its conditional sums to one, and its mean follows from its parents

For the mode, the largest log weight of such a unit (kinds "infinite" and "leaf") replaces the log
of the sum: max_x [eta x + log h(x)], minus A(eta) for a leaf. Given the mode of all other units,
the unit has its most probable value. For Gaussian units, the largest log weight and the log of the
sum differ by a constant only.

The first two kinds are functions of a field that is linear in the states of a few free units:

    field[states] = own + sum over the free neighbours n of step_n[state of n],  step_n = x_n W

where `own` is the contribution of the bias and of the observed units, which differs from row to
row. A `Field` names one unit and its free neighbours. A `Group` holds all units of a layer whose
neighbours have the same layers in the same order. Their tables have the same shape, and numpy
computes them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pgmengine.base.equal_rows import distinct, distinct_pairs
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.division import blocks, check_divided
from pgmengine.evidence.target import Target, times
from pgmengine.infer.exact.junction_tree.factors import FreeUnits, Scopes, weights_between
from pgmengine.model.graph.unit_graph import acts
from pgmengine.model.layer import Layer

# Largest number of entries of a table of a child, or of a unit with infinitely many values, over
# its neighbours.
MAX_MARGINALISED_ENTRIES = 2**22

# Largest number of field components of the units of a group that are computed together.
MAX_AT_ONCE = 2**18


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A free unit that a field depends on: its layer, its number there and among free units."""

    layer: str
    unit: int
    number: int
    states: int


@dataclass(frozen=True, eq=False)
class Field:
    """The field of one unit as a function of its free neighbours.

    Attributes
    ----------
    layer, unit : the unit whose field it is.
    near : its free neighbours.
    """

    layer: str
    unit: int
    near: tuple[Neighbour, ...]

    @property
    def entries(self) -> float:
        """The number of joint states of the neighbours, inf above the range of a float."""
        return math.prod([float(n.states) for n in self.near])


@dataclass(frozen=True, eq=False)
class Neighbours:
    """One free neighbour of each unit of a group: their layer, their numbers (n,), their states."""

    layer: str
    units: Array
    states: int


@dataclass(frozen=True, eq=False)
class Group:
    """Units of one layer whose free neighbours have the same layers in the same order.

    Attributes
    ----------
    layer, units : the n units.
    near : their free neighbours, the first axes of their tables.
    states : the number of states of the unit itself, the last axis; 0 if there is no such axis.
    first : (n,) the first entry of each table among the entries of a term.
    """

    layer: Layer
    units: Array
    near: tuple[Neighbours, ...]
    states: int
    first: Array

    @cached_property
    def size(self) -> int:
        """The number of entries of each table."""
        return math.prod([n.states for n in self.near]) * max(self.states, 1)

    @property
    def places(self) -> Array:
        """The places (n, entries) of the entries of each table among the entries of a term."""
        return self.first[:, None] + np.arange(self.size)

    def some(self, index: Array) -> Group:
        """Return some of the units."""
        near = tuple(replace(n, units=n.units[index]) for n in self.near)
        return replace(self, units=self.units[index], near=near, first=self.first[index])

    def of(self, flat: Array) -> Array:
        """Return the values (n, rows, width) of the units from those of their layer."""
        columns = self.layer.columns(self.units)
        return flat[:, columns].reshape(len(flat), len(self.units), -1).swapaxes(0, 1)

    def absent(self, target: Target) -> Array | None:
        """Return the mask (n, 1, rows or 1) of units that do() sets; None if there are none."""
        cut = target.pattern.cut
        if cut is None:
            return None
        mine = cut.T[target.structure.first_unit[self.layer.name] + self.units]
        return mine[:, None] if mine.any() else None

    def steps(self, target: Target, into: dict[str, list[Weight]]) -> Array:
        """Return what the neighbours add to the fields, (n, joint states, width).

        `into` holds the weights (width of another layer, width of this layer) by this other layer.
        """
        found = np.zeros((len(self.units), 1, self.layer.unit.width))
        for n in self.near:
            source = target.structure.layers[n.layer]
            assert source.unit.support is not None
            weights = sum(
                weights_between(w, n.units, self.units, source.unit.width, self.layer.unit.width)
                for w in into[n.layer]
            )
            step = source.unit.support.reshape(n.states, -1) @ weights
            found = (found[:, :, None] + step[:, None]).reshape(len(found), -1, found.shape[-1])
        return found

    def by_state(self, values: Array, axis: int) -> Array:
        """Return the sums (n, states, ...) of values (n, joint states, ...) by one neighbour."""
        by_axis = values.reshape(len(values), *(n.states for n in self.near), *values.shape[2:])
        others = tuple(1 + i for i in range(len(self.near)) if i != axis)
        return np.asarray(by_axis.sum(axis=others))


def groups_of(layer: Layer, fields: list[Field], states: list[int]) -> tuple[Group, ...]:
    """Return fields of a layer by the shape of their tables, which follow each other in a term.

    `states` has the number of states of each unit, or 0 if the unit is not in its table.
    """
    sizes = [int(f.entries) * max(k, 1) for f, k in zip(fields, states, strict=True)]
    first = np.cumsum([0, *sizes])
    alike: dict[tuple[int | str, ...], list[int]] = {}
    for i, (f, k) in enumerate(zip(fields, states, strict=True)):
        alike.setdefault((k, *(n.layer for n in f.near)), []).append(i)
    out = []
    for index in alike.values():
        some = [fields[i] for i in index]
        near = tuple(
            Neighbours(each[0].layer, np.array([n.unit for n in each]), each[0].states)
            for each in zip(*(f.near for f in some), strict=True)
        )
        units = np.array([f.unit for f in some])
        out.append(Group(layer, units, near, states[index[0]], first[index]))
    return tuple(out)


def parts_of(groups: Iterable[Group], rows: int) -> Iterator[Group]:
    """Yield groups in parts whose fields have at most MAX_AT_ONCE components, or of one unit."""
    for group in groups:
        each = group.size * rows * group.layer.unit.width
        for some in blocks(np.arange(len(group.units)), MAX_AT_ONCE / each):
            yield group.some(some)


def entries_of(found: list[tuple[Group, Array]]) -> Array:
    """Return the entries (entries, rows) of a term from those of groups (n, entries, rows)."""
    rows = max((values.shape[-1] for _, values in found), default=1)
    count = sum(len(group.units) * group.size for group, _ in found)
    out, jobs = np.full((count, rows), np.nan), [group.places.ravel() for group, _ in found]
    check_divided(jobs, count, "entries of tables")
    for group, values in found:
        out[group.places] = values
    return out


def child_fields(
    target: Target, free: FreeUnits, name: str, counted: Array, structural: bool
) -> list[Field]:
    """Return the fields of the counted children of a layer, with their free parents."""
    return _fields(
        target,
        free,
        name,
        counted,
        [(c.a, acts(target.model, c, structural)) for c in target.structure.arrows_into[name]],
    )


def infinite_fields(target: Target, free: FreeUnits, name: str, structural: bool) -> list[Field]:
    """Return the fields of the free units of a layer with infinitely many values."""
    links = []
    for c, other in target.structure.meetings[name]:
        acting = acts(target.model, c, structural)
        links.append((other, acting.T if name == c.a and c.a != c.b else acting))
    return _fields(target, free, name, target.free[name][0], links)


def _fields(
    target: Target, free: FreeUnits, name: str, units: Array, links: list[tuple[str, Weight]]
) -> list[Field]:
    """Return the fields of some units (size,) of a layer, from the weights `links` into it."""
    layer = target.structure.layers[name]
    near: dict[int, dict[int, Neighbour]] = {int(u): {} for u in np.flatnonzero(units)}
    for other, acting in links:
        source = target.structure.layers[other]
        rows, columns = acting.nonzero()
        counts = units[layer.owners(columns)]
        ends = source.owners(rows[counts]), layer.owners(columns[counts])
        for i, u in distinct_pairs(*ends)[0].tolist():
            number = int(free.number[target.structure.first_unit[other] + i])
            if number < 0 and target.free[other][0, i]:
                raise PgmError(
                    f"layer {name!r} depends on free units of layer {other!r} without tables"
                )
            if number >= 0:
                near[u][number] = Neighbour(other, i, number, int(free.states[number]))
    return [Field(name, u, tuple(found.values())) for u, found in near.items()]


def check_entries(fields: list[Field]) -> None:
    """Raise PgmError for a unit whose table over its free neighbours is too large."""
    for f in fields:
        if f.entries > MAX_MARGINALISED_ENTRIES:
            raise PgmError(
                f"unit {f.unit} of layer {f.layer!r} has {len(f.near)} free neighbours with "
                f"{f.entries:.3g} joint states, the limit is {MAX_MARGINALISED_ENTRIES}"
            )


@dataclass(frozen=True, eq=False)
class ChildTerm:
    """The conditionals of the children of one layer, over their free parents."""

    name: str
    groups: tuple[Group, ...]
    scopes: Scopes

    by_row = True

    def values(self, target: Target) -> Array:
        """Return beta [log p(x | zeta) - log h(x)] of all children, and 0 of those of do().

        `relative_to_base` says where the base measure is left out.
        """
        unit, found = target.structure.layers[self.name].unit, []
        relative = relative_to_base(target, self.name)
        for group, x, zeta in self._states(target):
            logs = unit.log_conditional(x, zeta)
            logs = times(target.beta[0], logs - unit.log_h(x)) if relative else logs
            logs = logs.reshape(len(group.units), group.size, -1)
            absent = group.absent(target)
            found.append((group, logs if absent is None else np.where(absent, 0.0, logs)))
        return entries_of(found)

    def largest(self, target: Target, given: Target) -> Array:
        """Return the entries for the mode: absent children count with their largest log density.

        `given` are the rows as they were given, from which no unit is absent.
        """
        unit, out = target.structure.layers[self.name].unit, self.values(target)
        if unit.support is not None:
            return out
        absent = given.free[self.name] & ~target.free[self.name]
        for group, _, zeta in self._states(target) if absent.any() else ():
            top = unit.log_conditional(unit.mode(unit.link(zeta)), zeta)
            mine, places = absent[:, group.units].T[:, None], group.places
            out[places] = np.where(mine, top.reshape(*places.shape, -1), out[places])
        return out

    def scores(self, target: Target) -> Iterator[tuple[Group, Array]]:
        """Yield groups of children, and their scores d log p(x | zeta) / d zeta.

        The axes are children, the parents' states, the child's states or 1, rows, and components.
        Children that do() sets have the score 0.
        """
        unit = target.structure.layers[self.name].unit
        for group, x, zeta in self._states(target):
            score = unit.score(x, zeta).reshape(*zeta.shape[:4], unit.width)
            if (absent := group.absent(target)) is not None:
                score = np.where(absent[:, :, None, :, None], 0.0, score)
            yield group, score

    def means(self, target: Target) -> Iterator[tuple[Group, Array]]:
        """Yield groups of children with infinitely many values, and their means given the parents.

        The axes are children, parents' states, rows, and components.
        """
        unit = target.structure.layers[self.name].unit
        for group, _, zeta in self._states(target):
            mean = unit.mean_given(zeta)
            yield group, mean.reshape(len(group.units), group.size, -1, unit.width)

    def _states(self, target: Target) -> Iterable[tuple[Group, Array, Array]]:
        """Return groups, and x and zeta (n, parents' states, states or 1, rows[, width]) of each.

        The log densities and the scores of one pass share them, if they are small.
        """
        width = target.structure.layers[self.name].unit.width
        numbers = sum([len(g.units) * g.size for g in self.groups]) * target.rows * width
        if numbers > MAX_AT_ONCE:
            return self._each_state(target)
        found: list[tuple[Group, Array, Array]] = target.memo.recall(
            self, lambda: [*self._each_state(target)]
        )
        return found

    def _each_state(self, target: Target) -> Iterator[tuple[Group, Array, Array]]:
        """Yield the items of `_states`."""
        layer = target.structure.layers[self.name]
        own, into = inputs_of(target, self.name)
        seen = distinct(target.evidence.values[self.name])
        for group in parts_of(self.groups, target.rows):
            zeta = (group.of(own)[:, None] + group.steps(target, into)[:, :, None])[:, :, None]
            if group.states:
                assert layer.unit.support is not None
                x = layer.unit.support.reshape(1, 1, group.states, 1, -1)
            else:
                x = group.of(seen)[:, None, None]
            x, zeta = (_shaped(layer, v) for v in np.broadcast_arrays(x, zeta))
            yield group, x, zeta


def _shaped(layer: Layer, values: Array) -> Array:
    """Return (..., width) as (..., [k]), as the functions of a unit take values."""
    return values if layer.unit.width > 1 else values[..., 0]


def relative_to_base(target: Target, name: str) -> bool:
    """Return whether terms of observed units of a layer are relative to their base measure.

    At beta = 1 it cancels. Real values in a unit of their own may be so far from the middle of the
    base measure that the difference would lose all digits.
    """
    real = target.structure.layers[name].unit.support is None
    return not (real and target.untempered and target.structure.arrows_into[name])


def inputs_of(target: Target, name: str) -> tuple[Array, dict[str, list[Weight]]]:
    """Return the inputs (rows or 1, width) of children without their free parents.

    The second item has the weights of the arrows into the layer, by parent layer.
    """
    into: dict[str, list[Weight]] = {}
    for c in target.structure.arrows_into[name]:
        into.setdefault(c.a, []).append(target.model.weight(c))
    return distinct(target.model.inputs(target.evidence.values, name)), into


def fields_of(target: Target, name: str) -> tuple[Array, dict[str, list[Weight]]]:
    """Return the fields (rows or 1, width) of units without their free neighbours.

    The second item has beta times the weights of the couplings of the layer, by neighbouring layer.
    """
    into: dict[str, list[Weight]] = {}
    for source, block in target.model.neighbours[name]:
        into.setdefault(source, []).append(float(target.beta[0]) * block)
    return distinct(target.outer_field(target.evidence.values, name)), into


def child_term(target: Target, free: FreeUnits, name: str, fields: list[Field]) -> ChildTerm | None:
    """Return the term of the children of a directed layer with these fields, or None."""
    if not fields:
        return None
    check_entries(fields)
    layer, first = target.structure.layers[name], target.structure.first_unit[name]
    numbers = [int(free.number[first + f.unit]) for f in fields]
    own = [[number] if number >= 0 else [] for number in numbers]
    scopes = [[n.number for n in f.near] + last for f, last in zip(fields, own, strict=True)]
    states = [int(free.states[number]) if number >= 0 else 0 for number in numbers]
    return ChildTerm(name, groups_of(layer, fields, states), scopes_of(scopes))


def scopes_of(lists: list[list[int]]) -> Scopes:
    """Return scopes from lists of units."""
    start = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return Scopes(start, np.array([u for one in lists for u in one], dtype=np.int32))


@dataclass(frozen=True, eq=False)
class InfiniteTerm:
    """Marginalised units of one layer with infinitely many values: A(eta) over their neighbours.

    If `leaf`, they are children without children, whose conditionals sum to one.
    """

    name: str
    groups: tuple[Group, ...]
    scopes: Scopes
    leaf: bool

    by_row = True

    def values(self, target: Target) -> Array:
        """Return A(eta) of all units; of a quadratic A, A(own + steps) - A(own).

        The difference, c steps (own + steps / 2), keeps its digits however large the own field is.
        """
        if self.leaf:
            return np.zeros((sum(len(g.units) * g.size for g in self.groups), 1))
        layer = target.structure.layers[self.name]
        c, found = layer.unit.curvature, list[tuple[Group, Array]]()
        for group, own, steps in self._fields(target):
            if c is None:
                logs = layer.unit.log_normalizer(_shaped(layer, own + steps))
            else:
                logs = c * (steps * (own + steps / 2)).sum(axis=-1)
            found.append((group, logs))
        return entries_of(found)

    def largest(self, target: Target) -> Array:
        """Return the entries with the largest log weight of a unit in place of the log of its sum.

        For a leaf it is the log of its largest conditional density.
        """
        layer, found = target.structure.layers[self.name], list[tuple[Group, Array]]()
        if layer.unit.curvature is not None:
            # The largest log weight differs from the log of the sum by a constant.
            return self.values(target)
        for group, own, steps in self._fields(target):
            eta = self._natural(layer, own + steps)
            top = layer.unit.max_log_weight(eta)
            found.append((group, top - layer.unit.log_normalizer(eta) if self.leaf else top))
        return entries_of(found)

    def constant(self, target: Target) -> Array:
        """Return the part (rows or 1,) of the log sums that is not in the tables; see `values`."""
        unit, total = target.structure.layers[self.name].unit, np.zeros(1)
        if self.leaf or unit.curvature is None:
            return total
        own, _ = fields_of(target, self.name)
        for group in self.groups:
            total = total + unit.log_normalizer(group.of(own)).sum(axis=(0, 2))
        return total

    def means(self, target: Target) -> Iterator[tuple[Group, Array]]:
        """Yield groups of units, and their means (n, neighbours' states, rows, width of a unit)."""
        layer = target.structure.layers[self.name]
        for group, own, steps in self._fields(target):
            shaped = _shaped(layer, own + steps)
            mean = (layer.unit.mean_given if self.leaf else layer.unit.mean)(shaped)
            yield group, mean.reshape(*mean.shape[:3], layer.unit.width)

    def _natural(self, layer: Layer, fields: Array) -> Array:
        """Return the natural parameters of units from their fields, which are inputs of leaves."""
        shaped = _shaped(layer, fields)
        return layer.unit.link(shaped) if self.leaf else shaped

    def _fields(self, target: Target) -> Iterator[tuple[Group, Array, Array]]:
        """Yield groups, `own` (n, 1, rows, width) and `steps` (n, neighbours' states, 1, width)."""
        own, into = (inputs_of if self.leaf else fields_of)(target, self.name)
        for group in parts_of(self.groups, target.rows):
            yield group, group.of(own)[:, None], group.steps(target, into)[:, :, None]


def infinite_term(target: Target, free: FreeUnits, name: str, structural: bool) -> InfiniteTerm:
    """Return the term of the free units of a layer with infinitely many values.

    PgmError where their sum is no table over their neighbours.
    """
    s = target.structure
    into, coupled = bool(s.arrows_into[name]), name in s.undirected_layers
    leaf = into and not coupled and not s.arrows_from[name] and target.untempered
    if (into and not leaf) or s.arrows_from[name]:
        raise PgmError(
            f"layer {name!r} has {s.layers[name].unit!r} units, which are free and have arrows: "
            "their sum is no table"
        )
    if leaf:
        fields = child_fields(target, free, name, target.free[name][0], structural)
    else:
        fields = infinite_fields(target, free, name, structural)
    check_entries(fields)
    scopes = scopes_of([[n.number for n in f.near] for f in fields])
    groups = groups_of(s.layers[name], fields, [0] * len(fields))
    return InfiniteTerm(name, groups, scopes, leaf)
