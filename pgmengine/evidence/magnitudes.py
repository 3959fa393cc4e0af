"""Magnitudes: how large the terms of the log density of a target can be.

The log weight of a state is a sum of terms: biases and soft evidence times values, pair terms of
couplings, conditionals, and entries of tables. In floating point, the error of the sum
is about the relative rounding error times the sum of the sizes of all terms, even if the sum itself
is small. `magnitudes` bounds
these sizes, row by row, from parameters, evidence and soft evidence alone:

    v    the largest |value| of each component: of a finite unit its support, of an observed unit
         its value, of a free unit with infinitely many values its mean at the largest field
    z    |bias| + sum over parents of v |J|, the largest |input| of a child of arrows
    own  v (|bias| + |soft|);  pair  v_a |W| v_b;  child  v z + A(z);  table  max |finite entry|

`infer/diagnostics/rounding.py` compares them with the digits of an answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array, States
from pgmengine.base.work.cache import remembered
from pgmengine.model.layer import Layer
from pgmengine.model.terms.input_rows import input_rows, shared_numbers
from pgmengine.model.weights import numbers

if TYPE_CHECKING:
    from pgmengine.evidence.target import Target
    from pgmengine.model.parameters import Parameters

# A rough bound on the terms of the log density suffices if it is at most this many nats.
MAX_ROUGH_TERM = 2.0**12

# Tables with at most this number of entries together count with the sum over all of their entries.
MAX_SUMMED_ENTRIES = 2**8


@dataclass(eq=False)
class Magnitudes:
    """Bounds on the terms of the log density of a target, with a rows axis or one row for all.

    Attributes
    ----------
    whole : name of a parameter or of soft evidence -> (rows,), the sum of the sizes of its terms.
    free : the same for the terms that depend on free units.
    own : layer -> (rows, width), the sizes of biases and soft evidence times values; 0 for observed
        units.
    rest : layer -> (rows, size), the largest difference between two states of a unit in its terms
        with other free units; 0 for observed units, and for units with infinitely many values.
    seen : layer -> (rows, size), the same for couplings with observed units.
    loose : layer -> (size,) bool: units whose change leaves every possible state possible.
    """

    whole: dict[str, Array] = field(default_factory=dict)
    free: dict[str, Array] = field(default_factory=dict)
    own: States = field(default_factory=States)
    rest: dict[str, Array] = field(default_factory=dict)
    seen: dict[str, Array] = field(default_factory=dict)
    loose: dict[str, Array] = field(default_factory=dict)

    @cached_property
    def total(self) -> Array:
        """The sizes of all terms together, (rows,) or (1,)."""
        return np.asarray(sum(self.whole.values(), np.zeros(1)))

    @cached_property
    def of_states(self) -> Array:
        """The sizes of all terms that depend on free units, (rows,) or (1,)."""
        return np.asarray(sum(self.free.values(), np.zeros(1)))

    @cached_property
    def of_a_unit(self) -> Array:
        """The largest sum of the terms of a single free unit, (rows,) or (1,)."""
        found = np.zeros(1)
        for name, rest in self.rest.items():
            own = self.own[name].reshape(len(self.own[name]), rest.shape[1], -1).sum(axis=-1)
            sizes = rest + self.seen[name] + own
            found = np.maximum(found, sizes.max(axis=1, initial=0.0))
        return found

    def largest(self, row: int, free: bool) -> tuple[str, float]:
        """Return the parameter or soft evidence with the largest terms in a row, and their size."""
        sizes = {
            name: float(size[row if len(size) > 1 else 0])
            for name, size in (self.free if free else self.whole).items()
        }
        name = max(sizes, key=lambda key: sizes[key])
        return name, sizes[name]


def magnitudes(target: Target, exact: bool = False) -> Magnitudes:
    """Return bounds on the terms of the log density of a target at beta = 1.

    `exact`: of exact methods, which take the conditionals of real children as they are.
    """
    # Missing cells of units that are observed in part count as 0.
    seen = {name: distinct(np.nan_to_num(np.abs(x))) for name, x in target.evidence.values.items()}
    free = {name: distinct(target.components(name, mask)) for name, mask in target.free.items()}
    with np.errstate(over="ignore", invalid="ignore"):
        found = _measured(target.model, seen, free, target.soft)
        for name in input_rows(target.structure).layers if exact and target.untempered else ():
            _count_rows(found, target, name)
        return found


def _count_rows(m: Magnitudes, target: Target, name: str) -> None:
    """Replace the bounds of children with whole rows of inputs by the sizes of their terms.

    log p(x | zeta) is a square of one difference, whose error is relative to its own size, however
    large x is. The terms of the likeliest state of each parent bound the error of an answer: a
    state with larger ones has the less probability.
    """
    s, own = target.structure, input_rows(target.structure).layers[name]
    layer = s.layers[name]
    if own.unit.canonical or (own.first < 0).any():
        return
    x = layer.shaped(target.evidence.values[name])
    seen = np.broadcast_to(target.pattern.observed[name], (target.rows, layer.size))
    above, number = np.unique(own.parent, return_inverse=True)
    total = np.zeros((target.rows, len(above), int(own.states.max())))
    theta = shared_numbers(target.model)
    for child in range(layer.size):
        k = int(own.states[child])
        zeta = theta[own.of(np.array([child]), k)[0][:, None] + np.arange(own.unit.width)]
        logs = np.abs(own.unit.log_conditional(x[:, child, None], zeta))
        total[:, number[child], :k] += np.where(seen[:, child, None], logs, 0.0)
        total[:, number[child], k:] = np.inf
    size, nothing = total.min(axis=-1).sum(axis=1), np.zeros(1)
    m.whole[f"the conditionals of {layer.title}"] = size
    m.free[f"the conditionals of {layer.title}"] = size
    m.whole[f"the values of {layer.title}"] = m.free[f"the values of {layer.title}"] = nothing


@remembered
def largest_terms(model: Parameters) -> tuple[float, float, tuple[str, ...]]:
    """Return bounds on the sizes of all terms of the log density, and of the terms of one unit.

    They hold for any evidence with values up to 1. For larger values of the layers whose names come
    third, they grow with the square of the values.
    """
    rough = roughly(model)
    if rough <= MAX_ROUGH_TERM:
        # The terms of one unit are differences between two states, each at most twice as large as a
        # term.
        total, of_a_unit = rough, 2.0 * rough
    else:
        found = anywhere(model)
        total, of_a_unit = float(found.total.max()), float(found.of_a_unit.max())
    unbounded = (n for n, layer in model.structure.layers.items() if not layer.unit.bounded)
    return total, of_a_unit, tuple(unbounded)


def roughly(model: Parameters) -> float:
    """Return a rough bound on all terms, for any evidence with values up to 1, in little time.

    Let a be the sum of the sizes of all parameters, of large tables only the largest entry, and
    V the largest |value| of a unit. The bound is 2 a V^2 plus the base measures of all units. It is
    infinite if a type of unit has no such bound.
    """
    s, a = model.structure, 0.0
    if s.tables and len(model.table_terms) <= MAX_SUMMED_ENTRIES:
        # The sum over all entries takes a quarter of the time of the largest entries.
        every = np.abs(model.table_terms)
        a = float(every[every < np.inf].sum())
    elif s.tables:
        # Each joint state reads one entry of each table.
        a = float(model.table_sizes[0].sum())
    for name in model.biased:
        a += float(np.abs(model.bias(name)).sum())
    for c in s.couplings:
        a += float(np.abs(numbers(model.weight(c))).sum())
    most, base, far = 1.0, 0.0, 0.0
    for name, layer in s.layers.items():
        unit, support = layer.unit, layer.unit.support
        if support is not None:
            # Values of one component are ascending.
            low, high = (0, -1) if unit.width == 1 else (support.argmin(), support.argmax())
            most = max(most, -support.item(low), support.item(high))
            base += layer.size * math.log(len(support))
        elif not unit.bounded and not unit.observed_only:
            if unit.curvature is None or name in s.directed_layers:
                return math.inf
            # Gaussian units: log h of values up to 1, and the means c eta.
            base += layer.size * (1.0 / unit.curvature + abs(math.log(unit.curvature)) + 1.0)
            far = max(far, unit.curvature * a)
    most *= max(1.0, far)
    return 2.0 * a * most**2 + base


def anywhere(model: Parameters) -> Magnitudes:
    """Return bounds that hold for any evidence, without soft evidence.

    The |value| of a unit with infinitely many values counts as 1, or as its mean if that is larger.
    The terms grow at most with the square of the values.
    """
    s = model.structure
    seen = {name: np.ones((1, layer.width)) for name, layer in s.layers.items()}
    free = {
        name: np.full((1, layer.width), not layer.unit.observed_only)
        for name, layer in s.layers.items()
    }
    with np.errstate(over="ignore", invalid="ignore"):
        return _measured(model, seen, free, States(), least=1.0)


def _measured(
    model: Parameters, seen: States, free: dict[str, Array], soft: States, least: float = 0.0
) -> Magnitudes:
    """Return the bounds from sizes of observed values (rows, width) and masks of components."""
    s, m = model.structure, Magnitudes()
    own = {n: abs(soft[n]) if n in soft else np.zeros((1, 1)) for n in s.layers}
    v, zeta = _values(model, seen, free, own, least)
    moving = {n: np.where(free[n], v[n], 0.0) for n in s.layers}
    span = {n: np.where(free[n], _span(layer), 0.0) for n, layer in s.layers.items()}
    rest = {n: np.zeros((1, layer.width)) for n, layer in s.layers.items()}
    near_seen = dict(rest)
    for name, layer in s.layers.items():
        if name in soft:
            _add(m, f"soft evidence of {layer.title}", v[name] * own[name], free[name])
        if name in s.directed_layers:
            # All of them count as free, because the log weights of states in exact methods contain
            # the normalisers of observed children.
            terms = layer.unit.largest_terms(layer.shaped(v[name]), layer.shaped(zeta[name]))
            _add(m, f"the conditionals of {layer.title}", terms, np.ones(1, dtype=bool))
            rest[name] = rest[name] + span[name] * zeta[name]
        else:
            bias = np.abs(model.bias(name))
            # If A is quadratic, A(bias + field) - A(bias) consists of products with the field.
            tells = free[name] & (layer.unit.curvature is None)
            _add(m, f"the bias of {layer.title}", v[name] * bias, tells)
            own[name] = own[name] + bias
        if not layer.unit.bounded:
            base = np.abs(layer.unit.log_h(layer.shaped(np.maximum(seen[name], least))))
            _add(m, f"the values of {layer.title}", base, np.zeros(1, dtype=bool))
        m.own[name] = moving[name] * own[name]
    for c in s.couplings:
        weight = abs(model.weight(c))
        if c.directed:
            slope = 2.0 * np.maximum(v[c.b], least)
            rest[c.a] = rest[c.a] + span[c.a] * (slope @ weight.T)
            continue
        share = 0.5 if c.a == c.b else 1.0
        near, loose = v[c.a] @ weight, moving[c.a] @ weight
        fixed = v[c.b] - moving[c.b]
        m.whole[f"the weight of {c.key!r}"] = share * (near * v[c.b]).sum(axis=1)
        m.free[f"the weight of {c.key!r}"] = share * (
            (near * moving[c.b]).sum(axis=1) + (loose * fixed).sum(axis=1)
        )
        ends = [(c.b, loose, v[c.a] - moving[c.a], weight)]
        if c.a != c.b:
            ends.append((c.a, moving[c.b] @ weight.T, fixed, weight.T))
        for name, from_free, of_seen, block in ends:
            rest[name] = rest[name] + span[name] * from_free
            near_seen[name] = near_seen[name] + span[name] * (of_seen @ block)
    at_units, loose = _tables(m, model)
    for name, layer in s.layers.items():
        each = rest[name].reshape(len(rest[name]), layer.size, -1).sum(axis=-1)
        log_base = layer.unit.log_base
        each = each + (0.0 if log_base is None else float(np.ptp(log_base)))
        each = each + at_units[s.slices[name]]
        unit_free = free[name].reshape(len(free[name]), layer.size, -1)[..., 0]
        finite = layer.unit.support is not None
        m.rest[name] = np.where(unit_free & finite, each, 0.0)
        by_unit = near_seen[name].reshape(len(near_seen[name]), layer.size, -1)
        m.seen[name] = by_unit.sum(axis=-1)
        m.loose[name] = _loose(model, name, loose[s.slices[name]])
    return m


def _values(
    model: Parameters, seen: States, free: dict[str, Array], own: States, least: float
) -> tuple[States, States]:
    """Return the largest |values| v and |inputs| z of each component, (rows, width)."""
    s, v, zeta = model.structure, States(), States()
    for name, layer in s.layers.items():
        if layer.unit.bounded and not layer.unit.observed_only:
            v[name] = np.where(free[name], _reach(layer), seen[name])
    for name in s.undirected_first:
        layer, above = s.layers[name], np.abs(model.bias(name))[None]
        if layer.unit.observed_only:
            v[name], zeta[name] = np.maximum(seen[name], least), np.zeros((1, layer.width))
            continue
        inside = [abs(model.weight(c)) for c in s.arrows_into[name] if c.a == name]
        for c in s.arrows_into[name]:
            above = above if c.a == name else above + v[c.a] @ abs(model.weight(c))
        zeta[name] = above
        if layer.unit.bounded:
            zeta[name] = sum((v[name] @ weight for weight in inside), above)
            continue
        near = sum((v[o] @ abs(block) for o, block in model.neighbours[name]), own[name])
        # Unbounded values grow from one generation of the layer to the next.
        for _ in model.generations[name]:
            h = layer.shaped(zeta[name] + near)
            far = np.maximum(np.abs(layer.unit.mean(h)), np.abs(layer.unit.mean(-h)))
            v[name] = np.where(free[name], np.maximum(layer.flat(far), least), seen[name])
            zeta[name] = sum((v[name] @ weight for weight in inside), above)
    return v, zeta


def _add(m: Magnitudes, what: str, sizes: Array, free: Array) -> None:
    """Add the terms of single components; the mask `free` marks those that depend on free units."""
    m.whole[what] = sizes.sum(axis=1)
    m.free[what] = np.where(free, sizes, 0.0).sum(axis=1)


def _tables(m: Magnitudes, model: Parameters) -> tuple[Array, Array]:
    """Add the largest finite entry of each table.

    Return twice their sum at each unit, (units,), and a mask of the units that are in no table with
    zeros. Entries of -inf make states impossible and do not count.
    """
    s = model.structure
    if not s.tables:
        return np.zeros(s.units), np.ones(s.units, dtype=bool)
    index, (sizes, whole), place = s.table_index, model.table_sizes, 0
    for tables in s.tables:
        part = sizes[place : place + len(tables.index)]
        place += len(tables.index)
        # Groups of one name share a parameter.
        what = f"table {tables.key!r}"
        m.whole[what] = m.free[what] = m.whole.get(what, 0.0) + part.sum(keepdims=True)
    tied = np.bincount(index.unit[~whole[index.table]], minlength=s.units)
    return 2.0 * np.bincount(index.unit, sizes[index.table], s.units), tied == 0


def _loose(model: Parameters, name: str, untied: Array) -> Array:
    """Return the units (size,) that no table with zeros and no noisy-or unit depends on."""
    s = model.structure
    causes = any(s.layers[c.b].unit.nonnegative for c in s.arrows_from[name])
    return untied & (not causes and not s.layers[name].unit.nonnegative)


def _reach(layer: Layer) -> Array:
    """Return the largest |value| of each component of a layer with bounded values, (width,)."""
    support = layer.unit.support
    if support is None:
        return np.ones(layer.width)
    return np.tile(np.abs(support).reshape(len(support), -1).max(axis=0), layer.size)


def _span(layer: Layer) -> Array:
    """Return the largest difference between two values of each component, (width,)."""
    support = layer.unit.support
    if support is None:
        return np.zeros(layer.width)
    return np.tile(np.ptp(support.reshape(len(support), -1), axis=0), layer.size)
