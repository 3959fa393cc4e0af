"""Reduce a target whose rows share one evidence pattern to a log-linear problem over the states of its cover.

A cover unit with K states becomes K - 1 indicators, one per state but the first. With every cover unit in its first
state as the origin, the log weight of a state is

    const + sum_d theta_d ind_d + sum_{d<d'} pair_dd' ind_d ind_d' + sum_blocks power * sum_t log(1 +- sum_k exp(a_tk))

where a_tk = offset_tk + sum_d value_d,tk ind_d. A unit summed out and the normaliser of a child are the same thing with
power +1 and -beta. A child that is off with probability e^-z (noisy-or) has a last term with a minus sign. Units whose A
is quadratic (Gaussian) fold into theta and pair; units with infinitely many values are kept as smooth blocks, which only
the numpy walk knows how to read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pgmengine.enumeration.cover import Cover
from pgmengine.layer import Layer
from pgmengine.model import Flat
from pgmengine.target import Target

Array = np.ndarray
SWITCHED_OFF = -60.0  # exp of it is nothing beside 1, and a long way from underflow


@dataclass(frozen=True, eq=False)
class FiniteBlock:
    """Units t of one layer: power * sum_t log(1 + sum_k exp(a_tk)), a_tk = offset[n, t, k] + ind . value[:, t, k].

    When `complement`, the last term is subtracted: log(1 - exp(a_tK) + sum_{k<K} exp(a_tk)), a_tK <= 0.
    """

    layer: str
    index: Array  # (T,) units
    power: float
    summed: bool  # True: units summed out; False: conditionals of children
    offset: Array  # (n, T, K)
    value: Array  # (D, T, K)
    complement: bool = False


@dataclass(frozen=True, eq=False)
class SmoothBlock:
    """Units of log weight f(z), z = offset[n, t] + ind . value[:, t], by calls on arrays (n, states, T)."""

    layer: str
    index: Array
    summed: bool
    offset: Array  # (n, T)
    value: Array  # (D, T)
    log_weight: Callable[[Array], Array]
    best: Callable[[Array], Array]  # the same with the largest term in place of the sum
    statistic: Callable[[Array], Array]  # the expected value


@dataclass(frozen=True, eq=False)
class QuadraticBlock:
    """Units with A(z) = c z^2 / 2, already folded into theta and pair: the mean is c z."""

    layer: str
    index: Array
    summed: bool
    curvature: float
    offset: Array  # (n, T)
    value: Array  # (D, T)


@dataclass(eq=False)
class Problem:
    """See the module; D indicators, n rows."""

    target: Target
    cover: Cover
    origin: Flat  # evidence, cover units in their first state, 0 elsewhere
    owner: list[tuple[str, int, int]]  # (layer, unit, state) of each indicator
    states: Array  # (cover units,) number of states
    const: Array  # (n,)
    theta: Array  # (n, D)
    pair: Array  # (D, D), zero inside a unit
    finite: list[FiniteBlock] = field(default_factory=list)
    smooth: list[SmoothBlock] = field(default_factory=list)
    quadratic: list[QuadraticBlock] = field(default_factory=list)
    steps: Flat = field(default_factory=dict)  # layer -> (D, width): what an indicator adds to the layer's values

    @property
    def size(self) -> int:
        """Number of states of the cover."""
        return int(np.prod(self.states.astype(object))) if len(self.states) else 1


def origin_of(target: Target, cover: Cover) -> Flat:
    """Evidence with the cover units in the first state of their support."""
    origin = {name: np.array(value) for name, value in target.evidence.values.items()}
    for name, index in cover.units.items():
        layer = target.structure.layers[name]
        if len(index) and layer.unit.support is not None:
            origin[name][:, layer.columns(index)] = np.tile(np.ravel(layer.unit.support[0]), len(index))
    return origin


def build_problem(target: Target, cover: Cover) -> Problem:
    """The problem of a target whose rows share evidence pattern and beta."""
    owner, states, steps = _indicators(target, cover)
    origin = origin_of(target, cover)
    count = len(owner)
    beta = float(target.beta[0])
    p = Problem(target, cover, origin, owner, states, np.zeros(target.rows), np.zeros((target.rows, count)),
                np.zeros((count, count)), steps=steps)
    fixed = {name: target.evidence.observed[name][0].copy() for name in origin}
    for name, index in cover.units.items():
        fixed[name][index] = True
    for name, layer in target.structure.layers.items():
        _add_own_terms(p, name, layer, fixed[name], beta)
    for c in target.structure.undirected:
        p.const += beta * c.log_density(target.model.weight(c), origin[c.a], origin[c.b])
        for to, source, block in c.blocks(target.model.weight(c)):
            if (to == c.b or c.a == c.b) and len(cover.units[source]) and len(cover.units[to]):
                cross = steps[source] @ block @ steps[to].T * beta
                p.pair += cross if c.a == c.b else cross + cross.T
    for name in target.structure.directed_layers:
        _add_child(p, name, beta)
    return p


def _indicators(target: Target, cover: Cover) -> tuple[list[tuple[str, int, int]], Array, Flat]:
    owner: list[tuple[str, int, int]] = []
    states: list[int] = []
    for name, index in cover.units.items():
        support = target.structure.layers[name].unit.support
        for unit in index:
            assert support is not None
            owner += [(name, int(unit), a) for a in range(1, len(support))]
            states.append(len(support))
    steps = {name: np.zeros((len(owner), layer.width)) for name, layer in target.structure.layers.items()}
    for d, (name, unit, a) in enumerate(owner):
        layer = target.structure.layers[name]
        support = layer.unit.support
        assert support is not None
        steps[name][d, layer.columns(np.array([unit]))] = support[a] - support[0]
    return owner, np.array(states, dtype=np.int64), steps


def linear_field(p: Problem, name: str) -> tuple[Array, Array]:
    """Field of a layer's units from everything linear, at the origin (n, width) and per indicator (D, width).

    Undirected neighbours, soft evidence, reference, its own input if its link is linear, and its children's values.
    """
    target, s = p.target, p.target.structure
    beta = float(target.beta[0])
    at_origin = target.outer_field(p.origin, name)
    per_step = np.zeros((len(p.owner), s.layers[name].width))
    for c in s.undirected:
        for to, source, block in c.blocks(target.model.weight(c)):
            if to == name and len(p.cover.units[source]):
                per_step += beta * (p.steps[source] @ block)
    if name in s.directed_layers and s.layers[name].unit.canonical:
        zeta, change = child_input(p, name)
        alive = np.repeat(~target.cut[name][0], s.layers[name].unit.width)
        at_origin = at_origin + beta * zeta * alive
        per_step += beta * change * alive
    for arrow in s.arrows_from[name]:
        if s.layers[arrow.b].unit.canonical:
            weight = target.model.weight(arrow).T
            alive = counted(p, arrow.b)
            at_origin = at_origin + beta * ((p.origin[arrow.b] * alive) @ weight)
            per_step += beta * ((p.steps[arrow.b] * alive) @ weight)
    return at_origin, per_step


def counted(p: Problem, name: str) -> Array:
    """Which components of a directed layer have their conditional in the density: not cut, not barren. (width,)."""
    alive = ~p.target.cut[name][0]
    alive[p.cover.barren[name]] = False
    return np.repeat(alive, p.target.structure.layers[name].unit.width)


def child_input(p: Problem, name: str) -> tuple[Array, Array]:
    """Zeta of a directed layer at the origin (n, width), and what each indicator adds (D, width)."""
    zeta = p.target.model.inputs(p.origin, name)
    change = np.zeros((len(p.owner), zeta.shape[1]))
    for arrow in p.target.structure.arrows_into[name]:
        change += p.steps[arrow.a] @ p.target.model.weight(arrow)
    return zeta, change


def _add_own_terms(p: Problem, name: str, layer: Layer, fixed: Array, beta: float) -> None:
    """The layer's share of const, theta, pair (arrows), and its units that are summed out."""
    target, cover = p.target, p.cover
    value, at_origin, per_step = p.origin[name], *linear_field(p, name)
    own = target.outer_field({n: np.zeros_like(v) for n, v in p.origin.items()}, name)
    if (name in target.structure.directed_layers) and layer.unit.canonical:
        own = own + beta * child_input(p, name)[0] * counted(p, name)
    observed = np.repeat(target.evidence.observed[name][0], layer.unit.width)
    if name in target.reference:  # the reference is a density of the free units
        own = own - (1 - beta) * target.reference[name] * observed
    p.const += np.einsum("ni,ni->n", value, own)
    base = layer.unit.log_h(layer.shaped(value))
    p.const += np.where(fixed & ~target.cut[name][0], base, 0.0).sum(axis=1)
    p.theta += at_origin @ p.steps[name].T
    for d, (owner, _, a) in enumerate(p.owner):
        if owner == name and layer.unit.log_base is not None:
            p.theta[:, d] += layer.unit.log_base[a] - layer.unit.log_base[0]
    rest = cover.rest[name]
    if len(rest) and (layer.unit.canonical or name not in target.structure.directed_layers):
        columns = layer.columns(rest)
        add_log_sum(p, layer, rest, 1.0, True, at_origin[:, columns], per_step[:, columns])


def _add_child(p: Problem, name: str, beta: float) -> None:
    """Pairs through the arrows into a directed layer, and its normalisers."""
    layer = p.target.structure.layers[name]
    zeta, change = child_input(p, name)
    alive = counted(p, name)
    index = np.flatnonzero(alive[:: layer.unit.width])
    columns = layer.columns(index)
    if layer.unit.canonical:
        cross = beta * (change * alive) @ p.steps[name].T
        p.pair += cross + cross.T
        add_log_sum(p, layer, index, -beta, False, zeta[:, columns], change[:, columns])
    elif len(index):
        rest = np.isin(index, p.cover.rest[name])
        _add_off_switches(p, layer, index[~rest], zeta[:, index[~rest]], change[:, index[~rest]], beta)
        _add_off_summed(p, layer, index[rest], zeta[:, index[rest]], change[:, index[rest]])


def add_log_sum(p: Problem, layer: Layer, index: Array, power: float, summed: bool, offset: Array,
                value: Array) -> None:
    """Power * sum over units of A(offset + ind . value), offset (n, T*w), value (D, T*w)."""
    unit = layer.unit
    if not len(index):
        return
    if unit.curvature is not None:
        c = power * unit.curvature
        p.const += c / 2 * np.einsum("nt,nt->n", offset, offset)
        p.theta += c * offset @ value.T + c / 2 * np.einsum("dt,dt->d", value, value)
        p.pair += c * _between_units(p, value @ value.T)
        p.quadratic.append(QuadraticBlock(layer.name, index, summed, unit.curvature, offset, value))
    elif unit.support is not None and unit.log_base is not None:
        units = (len(index), unit.width)
        support = unit.support.reshape(len(unit.support), unit.width)
        log_weight = offset.reshape(len(offset), *units) @ support.T + unit.log_base  # (n, T, K)
        change = value.reshape(len(value), *units) @ support.T
        p.const += power * log_weight[..., 0].sum(axis=1)
        p.theta += power * change[..., 0].sum(axis=1)
        p.finite.append(FiniteBlock(layer.name, index, power, summed, log_weight[..., 1:] - log_weight[..., :1],
                                    change[..., 1:] - change[..., :1]))
    else:
        p.smooth.append(SmoothBlock(
            layer.name, index, summed, offset, value, lambda z: power * unit.log_normalizer(z),
            lambda z: unit.max_log_weight(z) if summed else power * unit.log_normalizer(z), unit.mean))


def _between_units(p: Problem, matrix: Array) -> Array:
    unit = np.repeat(np.arange(len(p.states)), p.states - 1)
    return np.where(unit[:, None] == unit, 0.0, matrix)


def _add_off_switches(p: Problem, layer: Layer, index: Array, zeta: Array, change: Array, beta: float) -> None:
    """Known or enumerated children with p(0 | z) = e^-z: beta [-(1 - x) z + log(1 - x e^-z)].

    x e^-z is e^(-z + log x), and log 0 is as good as SWITCHED_OFF.
    """
    if not len(index):
        return
    x, x_step = p.origin[layer.name][:, index], p.steps[layer.name][:, index]
    p.const += beta * ((x - 1) * zeta).sum(axis=1)
    p.theta += beta * ((x - 1) @ change.T + zeta @ x_step.T)
    cross = beta * x_step @ change.T
    p.pair += cross + cross.T
    offset, value = (1 - x) * SWITCHED_OFF - zeta, -x_step * SWITCHED_OFF - change
    p.finite.append(FiniteBlock(layer.name, index, beta, False, offset[..., None], value[..., None], complement=True))


def _add_off_summed(p: Problem, layer: Layer, index: Array, zeta: Array, change: Array) -> None:
    """The same children summed out (beta = 1): log(e^-z + e^u (1 - e^-z)) = u + log(1 + e^-(z + u) - e^-z)."""
    if not len(index):
        return
    u, per_step = (a[:, index] for a in linear_field(p, layer.name))
    p.const += u.sum(axis=1)
    p.theta += per_step.sum(axis=1)
    offset, value = np.stack((-zeta - u, -zeta), axis=-1), np.stack((-change - per_step, -change), axis=-1)
    p.finite.append(FiniteBlock(layer.name, index, 1.0, True, offset, value, complement=True))
