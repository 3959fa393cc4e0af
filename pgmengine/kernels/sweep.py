"""One sweep over a target: colour class by colour class, each layer in one step or unit by unit.

A layer moves in one step when its units are independent given all else: no coupling inside it and no child whose
normaliser joins them. Otherwise unit by unit, with log weights per state

    log w_k = u x_k + beta log p(x_k | zeta) + beta sum over children c of log p(x_c | zeta_c with x_k).

This is the plain numpy engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from pgmengine.couplings import Arrow
from pgmengine.errors import PgmError
from pgmengine.layer import Layer
from pgmengine.model import Flat
from pgmengine.target import Target, times
from pgmengine.units import Unit

Array = np.ndarray


def layers_by_unit(target: Target) -> set[str]:
    """Free layers that must be swept unit by unit."""
    s = target.structure
    inside = {c.a for c in s.couplings if c.a == c.b}
    parents = {c.a for c in s.arrows if not target.cut[c.b].all()}
    return {name for name in inside | parents if target.free[name].any()}


def refusal(target: Target) -> str:
    """Why this target cannot be swept, or an empty string."""
    s = target.structure
    for name in layers_by_unit(target):
        if s.layers[name].unit.support is None and any(not target.cut[c.b].all() for c in s.arrows_from[name]):
            return (f"layer {name!r} has {s.layers[name].unit!r} units, which are free and have directed children: their "
                    "conditional is not in the family; observe them")
    return ""


def start(target: Target, rng: np.random.Generator) -> Flat:
    """A dispersed state: directed layers from their parents, others from the reference; observed units clamped."""
    s = target.structure
    x = {name: np.array(value) for name, value in target.evidence.values.items()}
    order = [n for n in s.layers if n not in s.directed_layers] + list(s.directed_layers)
    for name in order:
        layer = s.layers[name]
        if not target.free[name].any():
            continue
        eta = np.zeros_like(x[name]) + target.reference.get(name, 0.0)
        if name in s.directed_layers:
            eta = layer.flat(layer.unit.link(layer.shaped(target.model.inputs(x, name))))
        drawn = layer.flat(layer.unit.sample(layer.shaped(eta), rng))
        x[name] = np.where(target.components(name, target.free[name]), drawn, x[name])
    return x


def sweep(target: Target, kernel: Any, x: Flat, rng: np.random.Generator) -> Flat:
    """One sweep: a new complete state (rows, width) of every layer."""
    by_unit = layers_by_unit(target)
    x = dict(x)
    for color in target.structure.colors:
        for name in color:
            if name in by_unit:
                x[name] = _unit_by_unit(target, kernel, x, name, rng)
            elif target.free[name].any():
                layer = target.structure.layers[name]
                eta = layer.shaped(target.natural(x, name))
                moved = layer.flat(kernel.move(layer.unit, eta, layer.shaped(x[name]), rng))
                x[name] = np.where(target.components(name, target.free[name]), moved, x[name])
    return x


@dataclass(eq=False)
class _Child:
    """A directed layer below the one being swept, with its input kept up to date."""

    layer: Layer
    value: Array  # (rows, width)
    zeta: Array  # (rows, width)
    alive: Array  # (rows, size): not cut
    weight: Any  # (width of parent, width of child)

    def rows_of(self, columns: Array) -> tuple[Array, Array]:
        """(components of the child reached, weights) from the parent's components."""
        block = self.weight[columns]
        block = block.toarray() if sp.issparse(block) else block
        k = self.layer.unit.width
        units = np.flatnonzero((block != 0).any(axis=0).reshape(-1, k).any(axis=1))
        reached = self.layer.columns(units)
        return reached, block[:, reached]

    def log_prob(self, reached: Array, change: Array) -> Array:
        """Sum of log p(x_c | zeta_c + change) over the children reached, (rows,)."""
        k = self.layer.unit.width
        shape = (len(self.zeta), -1) if k == 1 else (len(self.zeta), -1, k)
        value, zeta = self.value[:, reached].reshape(shape), (self.zeta[:, reached] + change).reshape(shape)
        own = self.layer.unit.log_conditional(value, zeta)
        return np.where(self.alive[:, reached[::k] // k], own, 0.0).sum(axis=1)


def _unit_by_unit(target: Target, kernel: Any, x: Flat, name: str, rng: np.random.Generator) -> Array:
    s = target.structure
    layer = s.layers[name]
    x = {**x, name: x[name].copy()}
    value = x[name]
    outer = np.array(target.outer_field(x, name))
    directed = name in s.directed_layers
    zeta = np.array(target.model.inputs(x, name)) if directed else None
    children = [_child(target, x, arrow, zeta) for arrow in s.arrows_from[name]]
    inside = [target.model.weight(c) for c in s.undirected if c.a == c.b == name]
    for index in np.flatnonzero(target.free[name].any(axis=0)):
        columns = layer.columns(np.array([index]))
        old = value[:, columns].copy()
        eta = outer[:, columns]
        if directed and zeta is not None:
            link = layer.unit.link(zeta[:, columns] if layer.unit.width > 1 else zeta[:, index])
            eta = eta + times(target.beta[:, None], link.reshape(len(link), -1))
        new = _moved(target, kernel, layer.unit, eta, old, children, columns, rng)
        new = np.where(target.free[name][:, [index]], new, old)
        value[:, columns] = new
        step = new - old
        for weight in inside:
            outer += target.beta[:, None] * (step @ weight[columns])
        for child in children:
            child.zeta += step @ child.weight[columns]
    return value


def _child(target: Target, x: Flat, arrow: Arrow, own_input: Array | None) -> _Child:
    same = arrow.a == arrow.b and own_input is not None
    zeta = own_input if same else np.array(target.model.inputs(x, arrow.b))
    assert zeta is not None
    return _Child(target.structure.layers[arrow.b], x[arrow.b], zeta, ~target.cut[arrow.b],
                  target.model.weight(arrow))


def _moved(target: Target, kernel: Any, unit: Unit, eta: Array, old: Array, children: list[_Child], columns: Array,
           rng: np.random.Generator) -> Array:
    """New values (rows, w) of one unit of every row."""
    shaped = eta if unit.width > 1 else eta[:, 0]
    if unit.support is None:
        if children and any(child.alive.any() for child in children):
            raise PgmError(refusal(target))
        return kernel.move(unit, shaped, old[:, 0], rng)[:, None]
    support = unit.support.reshape(len(unit.support), unit.width)
    log_weights = unit.log_weights(np.where(np.isneginf(shaped), -1e300, shaped))
    for child in children:
        reached, block = child.rows_of(columns)
        if len(reached):
            share = np.stack([child.log_prob(reached, (v - old) @ block) for v in support], axis=1)
            log_weights = log_weights + times(target.beta[:, None], share)
    current = np.abs(old[:, None] - support).max(axis=-1).argmin(axis=1)
    return support[kernel.move_state(log_weights, current, rng)]
