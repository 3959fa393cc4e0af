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
    # Input units have no conditionals.
    conditional_units = {
        name: target.components(name, ~target.intervened[name][:1])[0]
        & (not s.layers[name].unit.observed_only)
        for name in s.directed_layers
    }
    counted = {name: mask.copy() for name, mask in conditional_units.items()}
    for name, mask in counted.items():
        mask[s.layers[name].columns(cover.barren[name])] = False
    # Indicators change the values of cover units alone.
    inside = {name: layer.columns(cover.units[name]) for name, layer in s.layers.items()}

    def reached(source: str, weight: Weight) -> Array:
        """Return the amounts (D, width) that the steps of a layer add through a weight."""
        out: Array = steps[source][:, inside[source]] @ weight[inside[source]]
        return out

    inputs = {
        name: sum(
            [reached(arrow.a, model.weight(arrow)) for arrow in s.arrows_into[name]],
            np.zeros(steps[name].shape),
        )
        for name in s.directed_layers
    }
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
    children = {
        name: mask[:: s.layers[name].unit.width].nonzero()[0] for name, mask in counted.items()
    }
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
    for name, index in cover.units.items():
        layer = target.structure.layers[name]
        support = layer.unit.support
        for unit in index.tolist():
            assert support is not None
            owner += [(name, unit, a) for a in range(1, len(support))]
            states.append(len(support))
        if len(index) and support is not None and support[0].any():
            first[name] = np.zeros(layer.width)
            first[name][layer.columns(index)] = np.tile(np.ravel(support[0]), len(index))
    steps = {
        name: np.zeros((len(owner), layer.width)) for name, layer in target.structure.layers.items()
    }
    theta = np.zeros(len(owner))
    for d, (name, unit, a) in enumerate(owner):
        kind = target.structure.layers[name].unit
        support, base = kind.support, kind.log_base
        assert support is not None and base is not None
        steps[name][d, unit * kind.width : (unit + 1) * kind.width] = support[a] - support[0]
        theta[d] = base[a] - base[0]
    return owner, np.array(states, dtype=np.int64), steps, first, theta


def _fixed(target: Target, cover: Cover) -> dict[str, Array]:
    out = {}
    for name, layer in target.structure.layers.items():
        base = layer.unit.log_base
        if base is None or base.any():
            out[name] = target.pattern.observed[name][0] & ~target.intervened[name][0]
            out[name][cover.units[name]] = ~target.intervened[name][0][cover.units[name]]
    return out
