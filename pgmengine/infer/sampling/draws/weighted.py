"""Weighted draws of directed models, the draws of `Forward`.

Units are drawn in the steps of the drawing order of the structure. A step has layers of children of
arrows, which are drawn as a whole or generation by generation, and single units with conditional
tables (engine/ancestral_draws.py). Observed units and undirected terms multiply the importance
weight. The equations are in forward.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.rows import distinct
from pgmengine.base.types import Array, States
from pgmengine.engine.ancestral_draws import Conditionals
from pgmengine.evidence.target import Target
from pgmengine.model.layer import Layer
from pgmengine.model.unit_graph import Inputs, arrows_inside


@dataclass(eq=False)
class Drawn:
    """Draws of all units, `each` for each row, with their log importance weights (rows * each,).

    `conditionals` holds the states, and computes values on demand; it is None without tables.
    """

    target: Target
    each: int
    x: States
    log_w: Array
    conditionals: Conditionals | None

    def values(self, *names: str) -> States:
        """Return layer -> values (rows * each, width), which has at least the given layers."""
        return self.conditionals.refresh(names) if self.conditionals else self.x

    def counts(self, name: str, p: Array) -> tuple[Array, Array] | None:
        """Return sums of the weights (rows, each), and of their squares, at each state if kept."""
        if self.conditionals is None or self.target.structure.layers[name].unit.support is None:
            return None
        return self.conditionals.counted(name, p)


def drawn(target: Target, rng: np.random.Generator, each: int = 1) -> Drawn:
    """Return draws of the free units, `each` for each row of a target."""
    s = target.structure
    copies = np.repeat(np.arange(target.rows), each)
    # A model that has only conditional tables does not need a copy of the evidence for each draw.
    many = target.take(copies) if s.directed_layers or not s.tables else target
    log_w = np.zeros(len(copies))
    conditionals = Conditionals(target, target.evidence.values, each) if s.tables else None
    x = conditionals.x if conditionals else dict(many.evidence.values)
    out = Drawn(target, each, x, log_w, conditionals)
    for step in s.drawing_steps:
        for name in step.layers:
            x = out.values(*(c.a for c in s.arrows_into[name]))
            value, gained = _layer_drawn(many, name, x, rng)
            log_w += gained
            if conditionals is None:
                x[name] = value
            else:
                conditionals.put(name, value)
        if step.units and conditionals is not None:
            log_w += conditionals.draw(step.units, rng)
    _weigh(out)
    return out


def _weigh(draws: Drawn) -> None:
    """Add the terms that no unit was drawn from to the log importance weights.

    They are soft evidence, tables and couplings, and the biases and base measures of units without
    a conditional. All such units are observed.
    """
    target, s, log_w = draws.target, draws.target.structure, draws.log_w
    for name, field in target.soft.items():
        log_w += (draws.values(name)[name] * np.repeat(field, draws.each, axis=0)).sum(axis=1)
    for name, layer in s.layers.items():
        mine = s.child_tables[name] < 0
        if name in s.directed_layers or not mine.any():
            continue
        value = draws.values(name)[name]
        log_h = layer.unit.log_h(layer.shaped(value))
        log_w += value @ target.model.bias(name) + np.where(mine, log_h, 0.0).sum(axis=-1)
    potentials = np.flatnonzero(s.table_index.child < 0)
    if draws.conditionals is not None and len(potentials):
        entries = draws.conditionals.entries(potentials)
        log_w += target.model.table_entries.take(entries).sum(axis=1)
    for c in s.undirected:
        x = draws.values(c.a, c.b)
        log_w += c.log_density(target.model.weight(c), x[c.a], x[c.b])


def _layer_drawn(
    target: Target, name: str, x: States, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the states (rows, width) of a layer, and log p (rows,) of its observed units.

    Its parents in other layers must have been drawn before. Arrows inside the layer are followed
    generation by generation, in arrays with the unit as first axis, so that the cost of a
    generation depends on its own units only.
    """
    s, layer = target.structure, target.structure.layers[name]
    free = distinct(target.free[name])
    weigh = ~(free | distinct(target.intervened[name]))
    if not arrows_inside(target.model, name):
        zeta = layer.shaped(target.model.inputs(x, name))
        return _units_drawn(layer, zeta, x[name], free, weigh, rng)
    above = [(x[c.a] @ target.model.weight(c)).T for c in s.arrows_into[name] if c.a != name]
    zeta = sum(above, target.model.bias(name)[:, None])
    now, log_w = np.array(x[name].T, order="C"), np.zeros(target.rows)
    inside = Inputs(target.model, name)
    for units in target.model.generations[name]:
        columns = layer.columns(units)
        inputs = zeta[columns] + np.zeros((1, target.rows))
        inside.add(now, columns, inputs)
        eta = inputs.T if layer.unit.width == 1 else inputs.T.reshape(target.rows, len(units), -1)
        new, gained = _units_drawn(layer, eta, now[columns].T, free[:, units], weigh[:, units], rng)
        now[columns] = new.T
        log_w += gained
    return now.T, log_w


def _units_drawn(
    layer: Layer, zeta: Array, x: Array, free: Array, weigh: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return states (rows, columns) of units, and log p (rows,) of the units that `weigh`."""
    if free.any():
        new = layer.unit.sample(layer.unit.link(zeta), rng).reshape(x.shape)
        x = np.where(layer.components(free), new, x)
    if not weigh.any():
        return x, np.zeros(len(x))
    own = layer.unit.log_conditional(x.reshape(zeta.shape), zeta)
    return x, np.where(weigh, own, 0.0).sum(axis=1)
