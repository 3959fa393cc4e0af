"""Weighted draws of directed models, the draws of `Forward`.

Units are drawn in the steps of the drawing order of the structure. A step has layers of children of
arrows, which are drawn as a whole or generation by generation, and single units with conditional
tables (engine/ancestral_draws.py). Observed units and undirected terms multiply the importance
weight. The equations are in forward.py. Averages of the draws, the number of factors that weigh
them, and their price follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array, States
from pgmengine.engine.ancestral_draws import Conditionals
from pgmengine.engine.cost import NS, US, Price, state_count
from pgmengine.evidence.relevance import has_soft, of_free_parents
from pgmengine.evidence.target import Target
from pgmengine.infer.results.axes import public, squeeze
from pgmengine.model.couplings import Coupling, only_parameters
from pgmengine.model.graph.unit_graph import Inputs, acts, arrows_inside, joined_units
from pgmengine.model.layer import Layer
from pgmengine.model.weights import count, is_sparse

# Numbers (units times draws) that one call of the ancestral draws makes.
DRAWN_AT_ONCE = 2.0**23

# Pairs of units that are processed in one array.
PAIRS_AT_ONCE = 2**12


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
    """Add to the log importance weights the terms from which no unit was drawn.

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


def moments(draws: Drawn, wanted: tuple[str, ...], p: Array) -> dict[str, Any]:
    """Return weighted means, their errors, state probabilities and pairs.

    The normalised importance weights p are (rows, draws).
    """
    target, answers = draws.target, dict[str, Any]()
    layers = target.structure.layers
    if "marginals" in wanted:
        mean, spread, prob = dict[str, Array](), dict[str, Array](), dict[str, Array]()
        for name, layer in layers.items():
            counts = draws.counts(name, p)
            if counts is None:
                value = draws.values(name)[name].reshape(*p.shape, -1)
                mean[name], variance = _averaged(value, p)
                if layer.unit.support is not None:
                    prob[name] = _prob(layer, value, p)
            else:
                prob[name] = counts[0]
                mean[name], variance = _of_states(layer, *counts)
            spread[name] = layer.shaped(np.sqrt(variance))
        answers = {"mean": public(target, mean), "mcse": spread, "prob": squeeze(target, prob)}
    if "pairs" in wanted:
        found = dict[Coupling, Array]()
        for c in target.structure.couplings:
            x = draws.values(c.a, c.b)
            a, b = (x[n].reshape(*p.shape, -1) for n in (c.a, c.b))
            found[c] = np.einsum("rdi,rdj->rij", p[..., None] * a, b, optimize=True)
        found = {c: only_parameters(c, target.model.weight(c), v) for c, v in found.items()}
        answers["pairs"] = squeeze(target, {c.key: v for c, v in found.items()})
    return answers


def _averaged(x: Array, p: Array) -> tuple[Array, Array]:
    """Return weighted means (rows, width) of x (rows, draws, width), and their variances."""
    # A contiguous array makes all sums in the same order, so that they have the same bits.
    x = np.ascontiguousarray(x)
    mean = np.einsum("rd,rdi->ri", p, x)
    return mean, np.einsum("rd,rdi->ri", p**2, (x - mean[:, None]) ** 2)


def _of_states(layer: Layer, prob: Array, squares: Array) -> tuple[Array, Array]:
    """Return means (rows, width) and their variances from sums at states (rows, size, K).

    The arguments are the sums of the normalised weights in each state, and of their squares.
    """
    assert layer.unit.support is not None
    value = layer.unit.support.reshape(prob.shape[-1], -1)
    mean = prob @ value
    far = (value - mean[..., None, :]) ** 2
    variance = np.einsum("rik,rikw->riw", squares, far)
    return layer.flat(mean), layer.flat(variance)


def _prob(layer: Layer, x: Array, p: Array) -> Array:
    """Return state probabilities (rows, size, states) of draws with importance weights p."""
    assert layer.unit.support is not None
    state, count = layer.states(x), len(layer.unit.support)
    return np.stack([np.einsum("rd,rdi->ri", p, state == k) for k in range(count)], axis=-1)


def weighing(target: Target) -> Array:
    """Return the number of observed units of each row that depend on free units, (rows,).

    Undirected tables with a free unit count as well, and so do coupled pairs with a free unit.
    """
    count = np.zeros(target.rows, dtype=int)
    for name in target.structure.directed_layers:
        seen = ~target.free[name] & ~target.intervened[name] & of_free_parents(target, name)
        count += (seen | (has_soft(target, name) & target.free[name])).sum(axis=1)
    for c in target.structure.undirected:
        count += _weighing_pairs(target, c)
    return count + _weighing_tables(target) if target.structure.tables else count


def _weighing_pairs(target: Target, c: Coupling) -> Array:
    """Return the number (rows,) of pairs of units that a coupling joins, one or both free."""
    one, two = joined_units(target.structure, c, acts(target.model, c, structural=False))
    count = np.zeros(target.rows, dtype=int)
    for begin in range(0, len(one), PAIRS_AT_ONCE):
        some = slice(begin, begin + PAIRS_AT_ONCE)
        count += (target.free[c.a][:, one[some]] | target.free[c.b][:, two[some]]).sum(axis=1)
    return count


def _weighing_tables(target: Target) -> Array:
    """Return the number (rows,) of tables that contribute to the importance weights.

    These are the tables with a free unit, except conditionals from which the child is drawn.
    """
    s, index = target.structure, target.structure.table_index
    free = np.concatenate([target.free[n] for n in s.layers], axis=1)
    intervened = np.concatenate([target.intervened[n] for n in s.layers], axis=1)
    some = np.logical_or.reduceat(free[:, index.unit], index.start[:-1], axis=1)
    drawn = (free | intervened)[:, index.child] & (index.child >= 0)
    soft = sum(
        (has_soft(target, n) & target.free[n] & (s.child_tables[n] >= 0)).sum(axis=1)
        for n in s.layers
    )
    return np.asarray((some & ~drawn).sum(axis=1) + soft)


def drawing_seconds(target: Target, wanted: tuple[str, ...], draws: float) -> float:
    """Return the seconds of ancestral draws of each row: conditionals, products, generations."""
    s, n = target.structure, target.rows * draws
    width = s.width
    each, calls = Price(0.0, 30 * NS * width * ("samples" in wanted)), 0.0
    for name, layer in s.layers.items():
        tabled = float((s.child_tables[name] >= 0).sum())
        rest = layer.width * (1.0 - tabled / layer.size)
        each += Price(60 * US, (25 + 12 * state_count(target, name)) * NS * rest + 9 * NS * tabled)
        if arrows_inside(target.model, name):
            calls += len(target.model.generations[name]) * 30 * US + 3 * US * layer.width
    if s.tables:
        calls += len(s.drawing_steps) * 60 * US
        each += Price(0.0, 0.5 * NS * len(s.table_index.unit))
    for c in s.couplings:
        weight = target.model.weight(c)
        each += Price(20 * US, count(weight) * (1.5 if is_sparse(weight) else 0.05) * NS)
        if "pairs" in wanted:
            each += Price(0.0, 1.0 * NS * s.layers[c.a].width * s.layers[c.b].width)
    return each.of(n) + calls * min(target.rows, max(1.0, n * width / DRAWN_AT_ONCE))
