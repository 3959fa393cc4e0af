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

The first two kinds are functions of a field that is linear in the states of a few free units.
`Field` holds these units and the steps that their states add to the field, so that the entries of a
table are

    f(field_0 + sum over units n of step_n[state of n])

where field_0 is the contribution of the bias and of the observed units, which differs from row to
row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.rows import distinct
from pgmengine.base.types import Array, Weight
from pgmengine.evidence.target import Target, times
from pgmengine.infer.exact.junction_tree.factors import FreeUnits, Scopes
from pgmengine.model.layer import Layer
from pgmengine.model.unit_graph import acts
from pgmengine.model.weights import is_sparse

# Largest number of entries of a table of a child, or of a unit with infinitely many values, over
# its neighbours.
MAX_MARGINALISED_ENTRIES = 2**22


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
    def entries(self) -> int:
        """The number of joint states of the neighbours."""
        return int(np.prod([n.states for n in self.near], dtype=np.float64))

    def at_states(self, target: Target, blocks: dict[str, list[Weight]], own: Array) -> Array:
        """Return the field (entries, rows, width) at every joint state of the neighbours.

        Parameters
        ----------
        target : the model.
        blocks : layer -> weights (width of the layer, width of this layer) from it.
        own : (rows, width) the field without the neighbours.
        """
        s = target.structure
        columns = s.layers[self.layer].columns(np.array([self.unit]))
        found = own[None]
        for n in self.near:
            layer = s.layers[n.layer]
            support = layer.unit.support
            assert support is not None
            rows = layer.columns(np.array([n.unit]))
            weight = sum(dense(block, rows, columns) for block in blocks[n.layer])
            steps = support.reshape(len(support), -1) @ weight
            found = (found[:, None] + steps[None, :, None]).reshape(-1, *found.shape[1:])
        return found


def dense(weight: Weight, rows: Array, columns: Array) -> Array:
    """Return the entries of a weight at some rows and columns as a dense array."""
    block = weight[rows][:, columns]
    return np.asarray(block.toarray() if is_sparse(block) else block)


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
        for i, u in np.unique(np.stack(ends, axis=1), axis=0).tolist():
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
    """The conditionals of the children of one layer, over their free parents.

    `free` (size,) is True for children that are free themselves.
    """

    name: str
    fields: tuple[Field, ...]
    free: Array
    scopes: Scopes

    by_row = True

    def values(self, target: Target) -> Array:
        """Return the entries of all children."""
        parts = [self.logs(target, f) for f in self.fields]
        rows = max((p.shape[1] for p in parts), default=1)
        return np.concatenate(
            [np.empty((0, rows)), *(np.broadcast_to(p, (len(p), rows)) for p in parts)]
        )

    def logs(self, target: Target, f: Field) -> Array:
        """Return beta [log p(x | zeta) - log h(x)] (entries, rows) of one child."""
        layer = target.structure.layers[self.name]
        zeta, value = self.inputs(target, f), self.child_values(target, f)
        shape = np.broadcast_shapes(zeta.shape, value.shape)
        zeta, value = (_shaped(layer, np.broadcast_to(v, shape)) for v in (zeta, value))
        found = layer.unit.log_conditional(value, zeta) - layer.unit.log_h(value)
        return times(target.beta[0], found.reshape(-1, shape[-2]))

    def score(self, target: Target, f: Field) -> Array:
        """Return the score d log p(x | zeta) / d zeta of one child.

        Its axes are the parents' states, the child's states or 1, rows, and components.
        """
        layer = target.structure.layers[self.name]
        zeta, value = self.inputs(target, f), self.child_values(target, f)
        shape = np.broadcast_shapes(zeta.shape, value.shape)
        zeta, value = (_shaped(layer, np.broadcast_to(v, shape)) for v in (zeta, value))
        return layer.unit.score(value, zeta).reshape(shape)

    def inputs(self, target: Target, f: Field) -> Array:
        """Return zeta (parents' states, 1, rows, width) at every joint state of the parents."""
        layer = target.structure.layers[self.name]
        columns = layer.columns(np.array([f.unit]))
        own = target.model.inputs(target.evidence.values, self.name)[:, columns]
        blocks = blocks_into(target, self.name)
        return f.at_states(target, blocks, distinct(own))[:, None]

    def child_values(self, target: Target, f: Field) -> Array:
        """Return the values (1, states or 1, rows or 1, width) of a child."""
        layer = target.structure.layers[self.name]
        if self.free[f.unit]:
            support = layer.unit.support
            assert support is not None
            return support.reshape(1, len(support), 1, layer.unit.width)
        columns = layer.columns(np.array([f.unit]))
        return distinct(target.evidence.values[self.name])[None, None][..., columns]


def _shaped(layer: Layer, values: Array) -> Array:
    """Return (..., width) as (..., [k]), as the functions of a unit take values."""
    return values if layer.unit.width > 1 else values[..., 0]


def blocks_into(target: Target, name: str) -> dict[str, list[Weight]]:
    """Return parent layer -> weights of the arrows into a layer."""
    found: dict[str, list[Weight]] = {}
    for c in target.structure.arrows_into[name]:
        found.setdefault(c.a, []).append(target.model.weight(c))
    return found


def child_term(target: Target, free: FreeUnits, name: str, fields: list[Field]) -> ChildTerm | None:
    """Return the term of the children of a directed layer with these fields, or None."""
    if not fields:
        return None
    check_entries(fields)
    first = target.structure.first_unit[name]
    mine = free.number[first : first + target.structure.layers[name].size] >= 0
    own = [[int(free.number[first + f.unit])] if mine[f.unit] else [] for f in fields]
    scopes = [[n.number for n in f.near] + last for f, last in zip(fields, own, strict=True)]
    return ChildTerm(name, tuple(fields), mine, scopes_of(scopes))


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
    fields: tuple[Field, ...]
    scopes: Scopes
    leaf: bool

    by_row = True

    def values(self, target: Target) -> Array:
        """Return the entries of all units."""
        if self.leaf:
            return np.zeros((sum(f.entries for f in self.fields), 1))
        parts = [self._sums(target, f) for f in self.fields]
        rows = max(p.shape[1] for p in parts)
        return np.concatenate([np.broadcast_to(p, (len(p), rows)) for p in parts])

    def largest(self, target: Target) -> Array:
        """Return the entries with the largest log weight of a unit in place of the log of its sum.

        For a leaf it is the log of its largest conditional density.
        """
        unit, parts = target.structure.layers[self.name].unit, []
        if unit.curvature is not None:
            # The largest log weight differs from the log of the sum by a constant.
            return self.values(target)
        for f in self.fields:
            eta = self.shaped(target, f)
            top = unit.max_log_weight(eta)
            parts.append(top - unit.log_normalizer(eta) if self.leaf else top)
        rows = max(p.shape[1] for p in parts)
        return np.concatenate([np.broadcast_to(p, (len(p), rows)) for p in parts])

    def constant(self, target: Target) -> Array:
        """Return the part (rows or 1,) of the log sums that is not in the tables; see `_sums`."""
        unit, total = target.structure.layers[self.name].unit, np.zeros(1)
        if self.leaf or unit.curvature is None:
            return total
        for f in self.fields:
            own, _ = self._near(target, f)
            total = total + unit.log_normalizer(own).sum(axis=1)
        return total

    def _sums(self, target: Target, f: Field) -> Array:
        """Return A(eta) (entries, rows) of a unit; of a quadratic A, A(own + s) - A(own).

        The difference, c s (own + s / 2), keeps its digits however large the own field is.
        """
        unit = target.structure.layers[self.name].unit
        if unit.curvature is None:
            return np.asarray(unit.log_normalizer(self.shaped(target, f)))
        own, blocks = self._near(target, f)
        steps = f.at_states(target, blocks, np.zeros_like(own))
        found: Array = unit.curvature * (steps * (own + steps / 2)).sum(axis=-1)
        return found

    def shaped(self, target: Target, f: Field) -> Array:
        """Return `natural` in the shape that functions of the unit take, (entries, rows)."""
        return _shaped(target.structure.layers[self.name], self.natural(target, f))

    def natural(self, target: Target, f: Field) -> Array:
        """Return eta (entries, rows, width) at every joint state of the neighbours."""
        own, blocks = self._near(target, f)
        return f.at_states(target, blocks, own)

    def _near(self, target: Target, f: Field) -> tuple[Array, dict[str, list[Weight]]]:
        """Return the field (rows or 1, width) without the neighbours, and their weights."""
        columns = target.structure.layers[self.name].columns(np.array([f.unit]))
        if self.leaf:
            own = distinct(target.model.inputs(target.evidence.values, self.name))[:, columns]
            return own, blocks_into(target, self.name)
        own = distinct(target.outer_field(target.evidence.values, self.name))[:, columns]
        blocks: dict[str, list[Weight]] = {}
        for source, block in target.model.neighbours[self.name]:
            blocks.setdefault(source, []).append(float(target.beta[0]) * block)
        return own, blocks


def infinite_term(target: Target, free: FreeUnits, name: str, structural: bool) -> InfiniteTerm:
    """Return the term of the free units of a layer with infinitely many values.

    PgmError where their sum is no table over their neighbours.
    """
    s = target.structure
    into, coupled = bool(s.arrows_into[name]), name in s.undirected_layers
    leaf = into and not coupled and not s.arrows_from[name] and target.untempered
    if (into and not leaf) or s.arrows_from[name] or not s.layers[name].unit.canonical:
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
    return InfiniteTerm(name, tuple(fields), scopes, leaf)
