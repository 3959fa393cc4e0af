"""Target: a model given evidence, at inverse temperature beta.

Kernels and methods have access to the model and the evidence only through a target. `given.py`
makes targets from the evidence of users.

The tempering path is geometric, log p_beta = (1 - beta) log r + beta log_density, where r is a
distribution of independent units with natural parameters `reference` and the base measure h of the
model. The power of h is therefore 1 at every beta. Soft evidence is part of the log density, except
for a log weight that all states of a row have in common, which only log Z contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import IN_RANGE, in_range
from pgmengine.base.display import counted
from pgmengine.base.equal_rows import distinct, rows_by_kind, rows_of, spread
from pgmengine.base.errors import InternalError, PgmError
from pgmengine.base.types import Array, States, Weight
from pgmengine.base.work.cache import Cache
from pgmengine.evidence.columns import by_name, check_mapping
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.relevance import EvidencePattern, barren, pattern_of
from pgmengine.model.containers import as_floats
from pgmengine.model.headline import headline
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure

if TYPE_CHECKING:
    from pgmengine.model.parameters import Parameters

# The natural parameter of a unit that is never 1. It acts as -inf, but its product with 0 is 0.
NEVER_ON = -1e30


@dataclass(frozen=True, eq=False)
class Target:
    """A model given evidence, at beta; all arrays except those of `reference` have rows.

    Attributes
    ----------
    model : the model.
    evidence : values and pattern of the observed units.
    soft : layer -> (rows, width), linear log-likelihoods; layers without soft evidence are absent.
    rows : the number of rows of evidence.
    structure : layers, couplings and tables of the model.
    pattern : the evidence pattern of every row, with facts derived from it.
    intervened : layer -> (rows, size) bool, units set by do(), whose conditionals are absent.
    beta : (rows,) inverse temperatures.
    reference : layer -> (width,) natural parameters of r; 0 where absent.
    weights : (rows,) weight of each row in a gradient; None = 1.
    numbers : (rows,) the numbers by which messages name rows that are a part of a question.
    order : layers in the order in which a sweep visits them; empty for the order of the colours.
    common : (rows,) log weight of soft evidence that all states have in common, None if it is 0.
        Prepared questions add it to log Z. The targets that methods receive do not have it.
    found : layer -> (rows, size) bool, units with virtual findings; only the target of a result,
        whose model is without the units of findings, has them.
    """

    rows: int = field(init=False, repr=False)
    structure: Structure = field(init=False, repr=False)
    pattern: EvidencePattern = field(init=False, repr=False)
    intervened: dict[str, Array] = field(init=False, repr=False)
    model: Parameters
    evidence: Evidence
    soft: States
    beta: Array
    reference: States
    weights: Array | None = None
    numbers: Array | None = None
    order: tuple[str, ...] = ()
    common: Array | None = None
    found: States = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Nearly every function reads these attributes. As properties they would take longer than
        # most functions that use them.
        keep = object.__setattr__
        keep(self, "structure", self.model.structure)
        keep(self, "pattern", self.evidence.pattern)
        keep(self, "intervened", self.evidence.pattern.intervened)
        keep(self, "rows", self.evidence.pattern.rows)

    def __repr__(self) -> str:
        given = sum(int((~mask).sum()) for mask in self.free.values())
        what = headline(self.structure, self.model.params)
        return f"Target: {counted(self.rows, 'row')}, {counted(given, 'value')} given; {what}"

    @property
    def row_numbers(self) -> Array:
        """The numbers (rows,) of the rows in the question that the user has asked."""
        return np.arange(self.rows) if self.numbers is None else self.numbers

    @property
    def free(self) -> dict[str, Array]:
        """Layer -> (rows, size) bool: the units to be inferred."""
        return self.pattern.free

    def take(self, index: Array) -> Target:
        """Return the same target with the rows `index`; repeats are allowed."""
        if len(index) == self.rows == 1:
            return self
        return Target(
            self.model,
            self.evidence.take(index),
            rows_of(self.soft, index),
            self.beta[index],
            self.reference,
            None if self.weights is None else self.weights[index],
            index if self.numbers is None else self.numbers[index],
            self.order,
            None if self.common is None else self.common[index],
            rows_of(self.found, index),
        )

    def at(self, beta: ArrayLike, reference: Mapping[str, ArrayLike] | None = None) -> Target:
        """Return the same target at another beta, and with another reference if one is given.

        beta is one number, or one for each row.
        """
        beta = np.broadcast_to(as_floats(beta, "beta"), (self.rows,))
        if not np.all((beta >= 0) & (beta <= 1)):
            raise PgmError(f"beta must lie in [0, 1], not {beta[~((beta >= 0) & (beta <= 1))][0]}")
        if reference is None:
            return replace(self, beta=beta)
        return replace(self, beta=beta, reference=_parse_reference(self.structure, reference))

    def with_model(self, model: Parameters) -> Target:
        """Return the same evidence on another model of the same structure."""
        same = self.soft, self.beta, self.reference, self.weights, self.numbers, self.order
        return Target(model, self.evidence, *same, self.common, self.found)

    @cached_property
    def memo(self) -> Cache[Any]:
        """Results that parts of one computation share, by keys of their users."""
        return Cache(most=16)

    @property
    def states(self) -> Array:
        """The states (rows, units) of all units in the evidence, in the order of the layers."""
        return self.evidence.states

    @cached_property
    def nothing_observed(self) -> Target:
        """The target whose log_z normalises log_prob: evidence on Input layers and by do() only."""
        e = self.evidence
        keep = {
            name: (
                self.pattern.observed[name] if layer.unit.observed_only else self.intervened[name]
            )
            for name, layer in self.structure.layers.items()
        }
        values = {
            name: np.where(layer.components(keep[name]), e.values[name], 0.0)
            if distinct(keep[name]).any()
            else spread(self.structure.no_evidence[name][0], self.rows)
            for name, layer in self.structure.layers.items()
        }
        intervened = self.intervened
        if name := self.structure.findings:
            # Findings that do() sets have no term in the log density.
            every = np.ones((1, self.structure.layers[name].size))
            values[name], keep[name] = spread(every, self.rows), spread(every > 0, self.rows)
            intervened = intervened | {name: keep[name]}
        pattern = EvidencePattern(self.structure, self.rows, keep, intervened)
        target = replace(self, evidence=Evidence(e.has_rows, values, pattern), soft={}, common=None)
        same = all(
            (v == v[0]).all() for part in (values, keep) for v in map(distinct, part.values())
        )
        if self.rows == 1 or not (same and np.all(self.beta == self.beta[0])):
            return target
        # The one row stands for all, and has no number of its own.
        return replace(target.take(np.zeros(1, dtype=int)), numbers=None)

    def with_soft(self, name: str) -> Array:
        """Return the free units of a layer that have soft evidence, (rows, size) bool."""
        given = np.zeros(self.free[name].shape, dtype=bool) | self.found.get(name, False)
        if name in self.soft:
            given |= np.reshape(self.soft[name] != 0, (*given.shape, -1)).any(axis=-1)
        return given & self.free[name]

    def components(self, name: str, mask: Array) -> Array:
        """Return a mask of units (rows, size) as a mask of components (rows, width)."""
        return self.structure.layers[name].components(mask)

    def outer_field(self, x: States, name: str) -> Array:
        """Return the natural parameter of a layer without its directed input, (rows, width).

        u = beta (bias of an undirected layer + undirected neighbours + soft evidence) + (1 - beta)
        reference.
        """
        u = self.own_field(name)
        for source, block in self.model.neighbours[name]:
            near = distinct(x[source]) @ block
            u = u + (near if self.untempered else self.beta[:, None] * near)
        return u if u.shape == x[name].shape else np.broadcast_to(u, x[name].shape)

    def own_field(self, name: str) -> Array:
        """Return outer_field without neighbours, (rows or 1, width)."""
        directed = name in self.structure.directed_layers
        u = self.structure.no_evidence[name][0] if directed else self.model.bias(name)[None]
        if name in self.soft:
            u = u + self.soft[name]
        if self.untempered:
            return u
        beta = self.beta[:, None]
        return (
            beta * u + (1.0 - beta) * self.reference[name] if name in self.reference else beta * u
        )

    @cached_property
    def untempered(self) -> bool:
        """Whether beta = 1 in all rows."""
        return not np.count_nonzero(self.beta != 1.0)

    def natural(self, x: States, name: str) -> Array:
        """Return the natural parameter (rows, width) of a layer, without the terms of its children.

        eta = outer_field + beta link(zeta), where zeta is the directed input; eta is finite.
        """
        eta = self.outer_field(x, name)
        if name in self.structure.directed_layers:
            layer = self.structure.layers[name]
            link = layer.flat(layer.unit.link(layer.shaped(self.model.inputs(x, name))))
            own = np.where(
                self.components(name, self.intervened[name]),
                0.0,
                self.beta[:, None] * np.maximum(link, NEVER_ON),
            )
            eta = eta + own
        return eta

    def log_density(self, x: States) -> Array:
        """Return the log of the unnormalised density at beta of complete flat states, (rows,)."""
        total = np.zeros(self.rows)
        for name, layer in self.structure.layers.items():
            value = layer.shaped(x[name])
            base = np.where(self.intervened[name], 0.0, layer.unit.log_h(value))
            own = np.zeros_like(base)
            if name in self.structure.directed_layers:
                zeta = layer.shaped(self.model.inputs(x, name))
                own = np.where(
                    self.intervened[name], 0.0, layer.unit.log_conditional(value, zeta) - base
                )
            else:
                own = own + _per_unit(layer, x[name] * self.model.bias(name))
            if name in self.soft:
                own = own + _per_unit(layer, x[name] * self.soft[name])
            total += times(self.beta, own.sum(axis=-1)) + base.sum(axis=-1)
            if name in self.reference:
                share = _per_unit(layer, x[name] * self.reference[name])
                total += (1.0 - self.beta) * np.where(self.free[name], share, 0.0).sum(axis=-1)
        for c in self.structure.undirected:
            total += self.beta * c.log_density(self.model.weight(c), x[c.a], x[c.b])
        return total + times(self.beta, self.table_log_density(x).sum(axis=1))

    def table_log_density(self, x: States) -> Array:
        """Return the term (rows, tables) of each table; 0 for conditionals of units set by do()."""
        terms, s = self.model.table_log_density(x), self.structure
        for name in s.layers if s.tables else ():
            units = np.flatnonzero(s.child_tables[name] >= 0)
            tables = s.child_tables[name][units]
            terms[:, tables] = np.where(self.intervened[name][:, units], 0.0, terms[:, tables])
        return terms

    def gradient(
        self, x: States, weights: Array | None = None, tables: bool = True
    ) -> dict[str, Weight]:
        """Return Model.gradient without the conditionals of barren units and units set by do().

        The expected score of a barren unit is 0 for any parents, so that draws would add only
        noise. For a noisy-or unit with an input near 0, it depends on states that are never drawn.
        Barren units in tables are found only if all rows share one evidence pattern. `tables`:
        whether to include the parameters of tables.
        """
        total = self.weights if weights is None else self.weighed(weights)
        return self.model.gradient(x, total, self._unscored, tables)

    def weighed(self, weights: Array) -> Array:
        """Return the product of weights of rows with the weights of the target."""
        return weights if self.weights is None else np.asarray(weights * self.weights)

    def barren(self, structural: bool) -> dict[str, Array]:
        """Return the barren units of each row, layer -> (rows or 1, size) bool.

        `structural`: whether an arrow with the weight 0 counts. It is remembered for the next
        update of a fit where it follows from the pattern alone.
        """

        def make() -> dict[str, Array]:
            return {n: distinct(mask) for n, mask in barren(self, structural=structural).items()}

        if self.soft or not self.untempered or (self.structure.arrows and not structural):
            return make()
        found: dict[str, Array] = self.pattern.memo.recall(("barren", structural), make)
        return found

    @property
    def idle(self) -> Array | None:
        """The mask (rows or 1, units) of units whose conditionals do not count in a gradient.

        They are barren, or do() has set them; None where there are none.
        """

        def make() -> Array | None:
            found, cut = self.barren(structural=True), self.intervened
            masks = [found[name] | distinct(cut[name]) for name in self.structure.layers]
            if not any([mask.any() for mask in masks]):
                return None
            rows = max(map(len, masks))
            return np.concatenate([spread(mask, rows) for mask in masks], axis=1)

        if self.soft or not self.untempered:
            return make()
        idle: Array | None = self.pattern.memo.recall("idle", make)
        return idle

    @cached_property
    def _unscored(self) -> dict[str, Array]:
        """Layer -> (rows, size) bool: units whose conditionals do not count in a gradient."""
        s = self.structure
        names = [
            name
            for name in s.layers
            if (name in s.directed_layers or (s.child_tables[name] >= 0).any())
            and (self.intervened[name].any() or self.free[name].any())
        ]
        if not names:
            return {}
        masks = (*self.free.values(), *self.intervened.values())
        found = barren(self, tables=all((m == m[:1]).all() for m in map(distinct, masks)))
        return {name: self.intervened[name] | found[name] for name in names}

    def log_z_at_0(self) -> Array:
        """Return log Z at beta = 0, where all free units are independent, (rows,).

        It is the sum of A(reference) of free units and of log h of observed units.
        """
        total = np.zeros(self.rows)
        for name, layer in self.structure.layers.items():
            base = np.where(
                self.intervened[name],
                0.0,
                layer.unit.log_h(layer.shaped(self.evidence.values[name])),
            )
            free = layer.unit.log_normalizer(self._at_0(name))
            total += np.where(self.free[name], free, base).sum(axis=1)
        return total

    def draw_at_0(self, rng: np.random.Generator) -> States:
        """Draw states at beta = 0."""
        drawn = {
            name: layer.flat(layer.unit.sample(self._at_0(name), rng))
            if self.free[name].any()
            else self.evidence.values[name]
            for name, layer in self.structure.layers.items()
        }
        return self.clamp(drawn)

    def _at_0(self, name: str) -> Array:
        """Return the natural parameters of a layer at beta = 0, (rows, size[, k])."""
        layer = self.structure.layers[name]
        return layer.shaped(np.zeros((self.rows, layer.width)) + self.reference.get(name, 0.0))

    def clamp(self, x: States) -> States:
        """Return the flat values x with the observed units set to their evidence."""
        e = self.evidence
        return {
            name: np.where(self.components(name, self.free[name]), x[name], e.values[name])
            for name in x
        }


def _parse_reference(structure: Structure, reference: Mapping[str, ArrayLike]) -> States:
    """Return the natural parameters (width,) of each layer at beta = 0."""
    check_mapping(structure, reference, "reference")
    flat = States()
    for one in by_name(structure, reference, "reference"):
        layer, k = one.layer, one.layer.unit.width
        own = slice(0, layer.width) if one.unit is None else slice(k * one.unit, k * (one.unit + 1))
        array = as_floats(one.value, one.where)
        if array.size != own.stop - own.start:
            shape = layer.bias_shape[one.unit is not None :]
            raise PgmError(f"{one.where} has shape {array.shape}, expected {shape}, without rows")
        flat.setdefault(layer.name, np.zeros(layer.width))[own] = array.ravel()
    for name in flat:
        layer = structure.layers[name]
        with np.errstate(all="ignore"):
            possible = np.isfinite(layer.unit.log_normalizer(layer.shaped(flat[name])))
        if np.isfinite(flat[name]).all() and not possible.all():
            index = int(np.flatnonzero(~possible)[0])
            raise PgmError(
                f"reference: {layer.place(index)}: its numbers are no natural parameter of "
                f"{layer.unit!r}"
            )
        if not in_range(flat[name]).all():
            index = int(np.flatnonzero(~in_range(flat[name]))[0])
            raise PgmError(
                f"reference: {layer.place(index // layer.unit.width)} is "
                f"{flat[name][index]}, expected {IN_RANGE}"
            )
    return flat


def check_one(target: Target) -> None:
    """Raise InternalError unless a target has one row, as plans of an evidence pattern need."""
    if target.rows != 1:
        raise InternalError(f"a plan looks at one row, and was given {target.rows}")


def times(beta: ArrayLike, value: Array) -> Array:
    """Return beta * value, and 0 for an infinite value at beta = 0."""
    return np.where(np.equal(beta, 0), 0.0, beta) * np.where(np.equal(beta, 0), 0.0, value)


def _per_unit(layer: Layer, flat: Array) -> Array:
    """Return the sums (rows, size) over the components of each unit."""
    shaped = layer.shaped(flat)
    return shaped if layer.unit.width == 1 else shaped.sum(axis=-1)


def evidence_patterns(target: Target) -> list[Array]:
    """Return the rows of each evidence pattern and beta, as a list of index arrays."""
    if target.rows == 1:
        return [np.zeros(1, dtype=int)]
    masks = [
        m
        for name in target.structure.layers
        for m in (target.pattern.observed[name], target.intervened[name])
    ]
    if (
        all((m == m[0]).all() for m in map(distinct, masks))
        and (target.beta == target.beta[0]).all()
    ):
        return [np.arange(target.rows)]
    return rows_by_kind(*(np.packbits(m, axis=1) for m in masks), target.beta[:, None])


def one_for_all(target: Target, rows: Array) -> Target:
    """Return a target of one row that stands for rows of one evidence pattern in a plan.

    It has their free units and beta, and the values of the first row. A conditional is absent from
    it if do() has removed it from all rows. Soft evidence is not a part of a pattern. The row
    therefore has soft evidence, with arbitrary values, wherever any of the rows has some: a unit is
    then barren in this row if it is barren in all rows.
    """
    one = target.take(rows[:1])
    if len(rows) > 1 and not target.pattern.alike:
        cut = {
            name: np.asarray(mask.all(axis=0, keepdims=True))
            for name, mask in rows_of(target.intervened, rows).items()
        }
        pattern = pattern_of(target.structure, 1, one.pattern.observed, cut)
        one = replace(one, evidence=replace(one.evidence, pattern=pattern))
    if not target.soft:
        return one
    soft = {
        name: (distinct(field) != 0).any(axis=0, keepdims=True).astype(np.float64)
        for name, field in rows_of(target.soft, rows).items()
    }
    return replace(one, soft=soft)
