"""PatternForm: the part of a log-linear form that all rows of an evidence pattern share.

A cover unit with K states has K - 1 indicators, one for each state except the first. The
PatternForm lists the indicators, and the amounts that each of them adds to values, fields and
inputs. A prepared question keeps its PatternForms, so that asking it again takes only the
arithmetic that depends on the observed values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine.base.types import Array, States, Weight
from pgmengine.base.work.cache import Cache
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.enumeration.cover import Cover

# Largest number of entries of an array of a form for which a linear plan (linear_plan.py) may be
# made.
MAX_PLANNED_NUMBERS = 512


@dataclass(frozen=True, eq=False)
class PatternForm:
    """The D indicators of a cover at one beta. Masks are (width,); those of `fixed` are (size,)."""

    cover: Cover
    beta: float
    # (layer, unit, state) of each indicator.
    owner: list[tuple[str, int, int]]
    # (cover units,) number of states.
    states: Array
    # Layer -> (width,) first values of its cover units, where they are not 0.
    first_states: States
    # Layer -> (D, width): the amount that an indicator adds to the values of the layer.
    steps: States
    # Layer -> (D, width): the amount that an indicator adds to the linear field of the layer.
    fields: States
    # Directed layer -> (D, width): the amount that an indicator adds to its input zeta.
    inputs: States
    observed: States
    # Directed layers: units with a conditional, since do() does not set them.
    conditional_units: States
    # Directed layers: units whose conditionals are in the density, neither intervened nor barren.
    counted: States
    # The same units by their index.
    children: dict[str, Array]
    # Directed layers with conditionals in which the input is linear.
    linear: frozenset[str]
    # Layer with a base measure -> (size,) units whose log h counts, observed or in the cover.
    fixed: dict[str, Array]
    # (D,) log h of the state of each indicator, minus log h of the first state of the unit.
    theta: Array
    # (D, D) interactions; 0 between the indicators of one unit.
    pair: Array
    # Whether a linear plan may be made.
    small: bool
    # The compiled routine and the linear plan; the first rows with this form make them for all
    # rows.
    memo: Cache[Any] = field(default_factory=lambda: Cache(most=2))

    @property
    def indicators(self) -> int:
        """D, the number of indicators."""
        return len(self.owner)

    @cached_property
    def size(self) -> int:
        """The number of states of the cover."""
        return int(np.prod(self.states.astype(object))) if len(self.states) else 1

    def between_units(self, matrix: Array) -> Array:
        """Return a matrix over pairs of indicators with 0 inside each unit."""
        unit = np.repeat(np.arange(len(self.states)), self.states - 1)
        return np.where(unit[:, None] == unit, 0.0, matrix)


def pattern_form_of(target: Target, cover: Cover) -> PatternForm:
    """Return the form of a target whose rows share one evidence pattern, and beta."""
    s, beta, model = target.structure, float(target.beta[0]), target.model
    numbers = cover.indicators * s.width
    owner, states, steps, first, theta = _indicators(target, cover)
    observed = {
        name: target.components(name, mask[:1])[0] for name, mask in target.pattern.observed.items()
    }
    # Indicators change the values of cover units alone.
    inside = {name: layer.columns(cover.units[name]) for name, layer in s.layers.items()}

    def reached(source: str, weight: Weight) -> Array:
        """Return the amounts (D, width) that the steps of a layer add through a weight."""
        out: Array = steps[source][:, inside[source]] @ weight[inside[source]]
        return out

    conditional_units, counted, inputs = States(), States(), States()
    children = dict[str, Array]()
    for name in s.directed_layers:
        layer = s.layers[name]
        # Input units have no conditionals.
        own = target.components(name, ~target.intervened[name][:1])[0]
        conditional_units[name] = own & (not layer.unit.observed_only)
        counted[name] = conditional_units[name].copy()
        counted[name][layer.columns(cover.barren[name])] = False
        children[name] = counted[name][:: layer.unit.width].nonzero()[0]
        inputs[name] = np.zeros(steps[name].shape)
        for arrow in s.arrows_into[name]:
            inputs[name] = inputs[name] + reached(arrow.a, model.weight(arrow))
    linear = frozenset(name for name in s.directed_layers if s.layers[name].unit.canonical)
    fields, pair = {}, np.zeros((len(owner), len(owner)))
    for name in s.layers:
        near = np.zeros(steps[name].shape)
        for source, block in model.neighbours[name]:
            near = near + reached(source, block)
        pair += beta * near @ steps[name].T
        if name in linear:
            cross = beta * (inputs[name] * counted[name]) @ steps[name].T
            pair += cross + cross.T
            near = near + inputs[name] * conditional_units[name]
        for arrow in s.arrows_from[name]:
            if arrow.b in linear:
                near = near + (steps[arrow.b] * counted[arrow.b]) @ model.weight(arrow).T
        fields[name] = beta * near
    indicators = owner, states, first, steps, fields, inputs
    masks = observed, conditional_units, counted, children, linear, _fixed(target, cover)
    small = target.untempered and numbers <= MAX_PLANNED_NUMBERS
    return PatternForm(cover, beta, *indicators, *masks, theta, pair, small)


def _indicators(
    target: Target, cover: Cover
) -> tuple[list[tuple[str, int, int]], Array, States, States, Array]:
    """Return the fields owner, states, steps, first_states and theta of a form."""
    owner: list[tuple[str, int, int]] = []
    states: list[int] = []
    first: States = {}
    layers, d = target.structure.layers, cover.indicators
    steps, theta = {name: np.zeros((d, x.width)) for name, x in layers.items()}, np.zeros(d)
    for name, index in cover.units.items():
        if not len(index):
            continue
        unit, width = layers[name].unit, layers[name].unit.width
        support, base = unit.support, unit.log_base
        assert support is not None and base is not None
        for i in index.tolist():
            states.append(len(support))
            for a in range(1, len(support)):
                steps[name][len(owner), i * width : (i + 1) * width] = support[a] - support[0]
                theta[len(owner)] = base[a] - base[0]
                owner.append((name, i, a))
        if support[0].any():
            first[name] = np.zeros(layers[name].width)
            first[name][layers[name].columns(index)] = np.tile(np.ravel(support[0]), len(index))
    return owner, np.array(states, dtype=np.int64), steps, first, theta


def _fixed(target: Target, cover: Cover) -> dict[str, Array]:
    out = {}
    for name, layer in target.structure.layers.items():
        base = layer.unit.log_base
        if base is None or base.any():
            out[name] = target.pattern.observed[name][0] & ~target.intervened[name][0]
            out[name][cover.units[name]] = ~target.intervened[name][0][cover.units[name]]
    return out
