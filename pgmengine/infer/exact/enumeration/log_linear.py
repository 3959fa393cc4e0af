"""The log-linear form of a target of one evidence pattern, over the states of its cover.

A cover unit with K states becomes K - 1 indicators, one for each state except the first. The origin
is the state in which every cover unit is in its first state. The log weight of a state of the cover
is

    const + sum_d theta_d ind_d + sum_{d<d'} pair_dd' ind_d ind_d'
          + sum over blocks of power * sum_t log(1 +- sum_k exp(a_tk))

where a_tk = offset_tk + sum_d value_d,tk ind_d. The term of a marginalised unit has the power 1,
and the normaliser of a child has the power -beta. A child that is 0 with probability e^-z
(noisy-or) has a last term with a minus sign. Units whose log normaliser A is quadratic (Gaussian)
are added to theta and pair. Other units with infinitely many values are smooth blocks, which only
the numpy enumerator supports.

A PatternForm holds the numbers that are the same in all rows (pattern_form.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pgmengine._kernels import LANES
from pgmengine.base.equal_rows import distinct, spread
from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.enumeration.pattern_form import PatternForm
from pgmengine.model.layer import Layer

# The leak, at beta = 0, of a unit whose own leak is 0: no state is impossible there.
LEAK_AT_BETA_ZERO = 1e-9

# A log weight that stands for log 0: its exponential does not change 1, and does not underflow.
SWITCHED_OFF_LOG_WEIGHT = -60.0


@dataclass(frozen=True, eq=False)
class FiniteBlock:
    """Units t of one layer with the log weight power * sum_t log(1 + sum_k exp(a_tk)).

    a_tk = offset[n, t, k] + ind . value[:, t, k]. In a `complement`, the last term is subtracted:
    log(1 - exp(a_tK) + sum_{k<K} exp(a_tk)) with a_tK <= 0.
    """

    layer: str
    # (T,) units.
    index: Array
    power: float
    # Whether these are marginalised units, not normalisers of children.
    marginalised: bool
    # (n, T, K).
    offset: Array
    # (D, T, K).
    value: Array
    complement: bool = False

    @cached_property
    def padded(self) -> int:
        """The number of units with padding, as the compiled routine reads them."""
        return -(-len(self.index) // LANES) * LANES


@dataclass(frozen=True, eq=False)
class SmoothBlock:
    """Units with the log weight f(z), z = offset[n, t] + ind . value[:, t].

    The functions take arrays (n, states, T).
    """

    layer: str
    index: Array
    marginalised: bool
    # (n, T).
    offset: Array
    # (D, T).
    value: Array
    log_weight: Callable[[Array], Array]
    # The log weight for the mode, with the largest term in place of the sum.
    best: Callable[[Array], Array]
    # The expected value of a unit, as a function of z.
    statistic: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class QuadraticBlock:
    """Units with A(z) = c z^2 / 2, which are added to theta and pair; their mean is c z."""

    layer: str
    index: Array
    marginalised: bool
    curvature: float
    # (n, T).
    offset: Array
    # (D, T).
    value: Array


@dataclass(eq=False)
class LogLinearForm:
    """The log weight of every state, as in the equation of the module; D indicators, n rows."""

    target: Target
    pattern_form: PatternForm
    # Values at the origin: the evidence, cover units in their first state, and 0 elsewhere.
    origin: States
    # (n,).
    const: Array
    # (n, D).
    theta: Array
    # (D, D) pair terms of the pattern and of quadratic blocks, the same for all rows; 0 between the
    # indicators of one unit.
    pair: Array
    finite: list[FiniteBlock] = field(default_factory=list)
    smooth: list[SmoothBlock] = field(default_factory=list)
    quadratic: list[QuadraticBlock] = field(default_factory=list)

    @cached_property
    def columns(self) -> int:
        """The number of columns of the moments; see enumerator.py."""
        finite: int = sum([b.padded * b.offset.shape[2] for b in self.finite])
        return finite + self.pattern_form.indicators + sum([len(b.index) for b in self.smooth])

    @property
    def size(self) -> int:
        """The number of states of the cover."""
        return self.pattern_form.size


def log_linear_form(target: Target, pattern_form: PatternForm) -> LogLinearForm:
    """Return the form of a target whose rows share the pattern and the beta of `pattern_form`."""
    origin = {
        name: spread(distinct(value) + pattern_form.first_states[name], target.rows)
        if name in pattern_form.first_states
        else value
        for name, value in target.evidence.values.items()
    }
    theta = np.zeros((target.rows, pattern_form.indicators)) + pattern_form.theta
    p = LogLinearForm(target, pattern_form, origin, np.zeros(target.rows), theta, pattern_form.pair)
    for name, layer in target.structure.layers.items():
        _add_layer(p, name, layer)
    return p


def _add_layer(p: LogLinearForm, name: str, layer: Layer) -> None:
    """Add the share of a layer in const and theta, and its blocks."""
    target, pattern_form = p.target, p.pattern_form
    beta, directed = pattern_form.beta, name in target.structure.directed_layers
    zeta = target.model.inputs(p.origin, name) if directed else None
    outer = target.outer_field(p.origin, name)
    # Halves, because each coupling is in the fields of both of its ends.
    own = (target.own_field(name) + distinct(outer)) / 2
    # The reference of the tempering path is a density of the free units alone.
    if name in target.reference:
        own = own - (1 - beta) * target.reference[name] * pattern_form.observed[name]
    if zeta is not None and layer.unit.canonical:
        own = own + beta * zeta * pattern_form.counted[name]
    p.const += _products(p.origin[name], own)
    if name in pattern_form.fixed:
        p.const += np.where(
            pattern_form.fixed[name], layer.unit.log_h(layer.shaped(p.origin[name])), 0.0
        ).sum(axis=1)
    field = _linear_field(p, name, layer, outer, zeta)
    if len(pattern_form.cover.units[name]):
        p.theta += field @ pattern_form.steps[name].T
    _add_blocks(p, name, layer, field, zeta)


def _products(x: Array, y: Array) -> Array:
    """Return the inner products of the rows of two arrays; an array of one row fits all rows."""
    x, y = distinct(x), distinct(y)
    if len(x) == 1:
        x, y = y, x
    found: Array = x @ y[0] if len(y) == 1 else np.einsum("rj,rj->r", x, y)
    return found


def _linear_field(
    p: LogLinearForm, name: str, layer: Layer, outer: Array, zeta: Array | None
) -> Array:
    """Return the field of a layer from all terms linear in its values, at the origin (n, width).

    The terms are those of undirected neighbours, soft evidence, the reference, the children and, if
    the link of the layer is linear, its own input.
    """
    target, pattern_form, total = p.target, p.pattern_form, outer
    if zeta is not None and layer.unit.canonical:
        total = total + pattern_form.beta * zeta * pattern_form.conditional_units[name]
    for arrow in target.structure.arrows_from[name]:
        if arrow.b in pattern_form.linear:
            values = p.origin[arrow.b] * pattern_form.counted[arrow.b]
            total = total + pattern_form.beta * (values @ target.model.weight(arrow).T)
    return total


def _add_blocks(
    p: LogLinearForm, name: str, layer: Layer, field: Array, zeta: Array | None
) -> None:
    """Add the marginalised units of a layer, and the normalisers of its conditionals."""
    pattern_form = p.pattern_form
    rest, slopes = pattern_form.cover.rest[name], pattern_form.fields[name]
    if len(rest) and (layer.unit.canonical or zeta is None):
        columns = layer.columns(rest)
        _add_log_sum(p, layer, rest, 1.0, True, field[:, columns], slopes[:, columns])
    if zeta is None:
        return
    index, change = pattern_form.children[name], pattern_form.inputs[name]
    columns = layer.columns(index)
    if layer.unit.canonical:
        _add_log_sum(
            p, layer, index, -pattern_form.beta, False, zeta[:, columns], change[:, columns]
        )
    elif len(index):
        marginalised = np.isin(index, rest)
        own = index[~marginalised]
        _add_off_switches(p, layer, own, zeta[:, own], change[:, own])
        _add_off_marginalised(p, layer, index[marginalised], zeta, change, field, slopes)


def _add_log_sum(
    p: LogLinearForm,
    layer: Layer,
    index: Array,
    power: float,
    marginalised: bool,
    offset: Array,
    value: Array,
) -> None:
    """Add power * sum over units of A(offset + ind . value); offset (n, T*w), value (D, T*w)."""
    unit = layer.unit
    if not len(index):
        return
    if unit.curvature is not None:
        c = power * unit.curvature
        p.const += c / 2 * np.einsum("nt,nt->n", offset, offset)
        p.theta += c * offset @ value.T + c / 2 * np.einsum("dt,dt->d", value, value)
        p.pair = p.pair + c * p.pattern_form.between_units(value @ value.T)
        p.quadratic.append(
            QuadraticBlock(layer.name, index, marginalised, unit.curvature, offset, value)
        )
    elif unit.support is not None and unit.log_base is not None:
        support = unit.support.reshape(len(unit.support), unit.width)
        first, gap, base = support[0], (support[1:] - support[0]).T, unit.log_base
        offset = offset.reshape(len(offset), len(index), unit.width)
        value = value.reshape(len(value), len(index), unit.width)
        if first.any() or base[0]:
            p.const += power * ((offset @ first).sum(axis=1) + base[0] * len(index))
            p.theta += power * (value @ first).sum(axis=1)
        offset, value = offset @ gap + (base[1:] - base[0]), value @ gap
        p.finite.append(FiniteBlock(layer.name, index, power, marginalised, offset, value))
    else:
        p.smooth.append(
            SmoothBlock(
                layer.name,
                index,
                marginalised,
                offset,
                value,
                lambda z: power * unit.log_normalizer(z),
                lambda z: (
                    unit.max_log_weight(z) if marginalised else power * unit.log_normalizer(z)
                ),
                unit.mean,
            )
        )


def _add_off_switches(
    p: LogLinearForm, layer: Layer, index: Array, zeta: Array, change: Array
) -> None:
    """Add children with p(0 | z) = e^-z that are observed or in the cover.

    Their log weight is beta [-(1 - x) z + log(1 - x e^-z)], where x e^-z = e^(-z + log x), with
    SWITCHED_OFF_LOG_WEIGHT for log 0.
    """
    if not len(index):
        return
    beta, x = p.pattern_form.beta, p.origin[layer.name][:, index]
    x_step = p.pattern_form.steps[layer.name][:, index]
    p.const += beta * ((x - 1) * zeta).sum(axis=1)
    p.theta += beta * ((x - 1) @ change.T + zeta @ x_step.T)
    cross = beta * x_step @ change.T
    p.pair = p.pair + cross + cross.T
    offset = (1 - x) * SWITCHED_OFF_LOG_WEIGHT - zeta
    value = -x_step * SWITCHED_OFF_LOG_WEIGHT - change
    if beta == 0:
        # At beta = 0 no state is impossible: any finite logarithm will do.
        offset = offset - LEAK_AT_BETA_ZERO
    offset, value = offset[..., None], value[..., None]
    p.finite.append(FiniteBlock(layer.name, index, beta, False, offset, value, complement=True))


def _add_off_marginalised(
    p: LogLinearForm,
    layer: Layer,
    index: Array,
    zeta: Array,
    change: Array,
    field: Array,
    slopes: Array,
) -> None:
    """Add children with p(0 | z) = e^-z that are marginalised, at beta = 1.

    Their log weight is log(e^-z + e^u (1 - e^-z)) = u + log(1 + e^-(z + u) - e^-z).
    """
    if not len(index):
        return
    zeta, change, u, per_step = (array[:, index] for array in (zeta, change, field, slopes))
    p.const += u.sum(axis=1)
    p.theta += per_step.sum(axis=1)
    offset = np.stack((-zeta - u, -zeta), axis=-1)
    value = np.stack((-change - per_step, -change), axis=-1)
    p.finite.append(FiniteBlock(layer.name, index, 1.0, True, offset, value, complement=True))
