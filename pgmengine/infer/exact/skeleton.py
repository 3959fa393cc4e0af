"""What all rows of one evidence pattern have in common: the indicators, and what each adds to
values, fields and inputs.

A model remembers the small skeletons of the patterns that it was asked about, so that a question
asked again costs no more than its arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine.base.cache import Cache
from pgmengine.base.types import Array, States
from pgmengine.graph.target import Target
from pgmengine.infer.exact.cover import Cover

SMALL = 512  # numbers in an array of a skeleton that is remembered


@dataclass(frozen=True, eq=False)
class Skeleton:
    """D indicators, one for each state but the first of each cover unit; masks are (width,) but for
    `fixed`.
    """

    cover: Cover
    beta: float
    owner: list[tuple[str, int, int]]  # (layer, unit, state) of each indicator
    states: Array  # (cover units,) number of states
    first_states: (
        States  # layer -> (width,) the first states of its cover units, where they are not 0
    )
    steps: States  # layer -> (D, width): what an indicator adds to the layer's values
    fields: States  # layer -> (D, width): ... to its linear field
    inputs: States  # directed layer -> (D, width): ... to its input zeta
    observed: States
    uncut: States  # of directed layers
    counted: States  # of directed layers: conditionals that are in the density, not cut, not barren
    children: dict[str, Array]  # their units
    linear: frozenset[str]  # directed layers in whose conditionals the input is linear
    fixed: dict[
        str, Array
    ]  # layers with a base measure -> (size,) units whose log h counts: observed or in the cover
    theta: Array  # (D,) log h of states against the first
    pair: Array  # (D, D), zero inside a unit
    small: bool  # whether the model remembers it
    # The compiled walk and the program, which the first problem with this skeleton makes for all.
    memo: Cache[Any] = field(default_factory=lambda: Cache(most=2))

    @property
    def indicators(self) -> int:
        """D."""
        return len(self.owner)

    @cached_property
    def size(self) -> int:
        """Number of states of the cover."""
        return int(np.prod(self.states.astype(object))) if len(self.states) else 1

    def between_units(self, matrix: Array) -> Array:
        """A matrix over pairs of indicators, 0 inside a unit."""
        unit = np.repeat(np.arange(len(self.states)), self.states - 1)
        return np.where(unit[:, None] == unit, 0.0, matrix)


def skeleton_of(target: Target, cover: Cover) -> Skeleton:
    """Return the skeleton of a target whose rows share one evidence pattern, and beta."""
    s, beta, model = target.structure, float(target.beta[0]), target.model
    numbers = cover.indicators * sum(layer.width for layer in s.layers.values())
    owner, states, steps, first = _indicators(target, cover)
    observed = {
        name: target.components(name, mask[:1])[0]
        for name, mask in target.evidence.observed.items()
    }
    uncut = {
        name: target.components(name, ~target.cut[name][:1])[0]
        & (not s.layers[name].unit.observed_only)
        for name in s.directed_layers
    }  # inputs have no conditionals
    counted = {
        name: _without(target, name, mask, cover.barren[name]) for name, mask in uncut.items()
    }
    inside = {
        name: layer.columns(cover.units[name]) for name, layer in s.layers.items()
    }  # the others take no steps

    def reached(source: str, weight: Any) -> Array:
        """What the steps of a layer add through a weight."""
        out: Array = steps[source][:, inside[source]] @ weight[inside[source]]
        return out

    inputs = {
        name: sum(
            (reached(arrow.a, model.weight(arrow)) for arrow in s.arrows_into[name]),
            np.zeros_like(steps[name]),
        )
        for name in s.directed_layers
    }
    linear = frozenset(name for name in s.directed_layers if s.layers[name].unit.canonical)
    fields, pair = {}, np.zeros((len(owner), len(owner)))
    for name in s.layers:
        near = sum(
            (reached(source, block) for source, block in model.neighbours[name]),
            np.zeros_like(steps[name]),
        )
        pair += beta * near @ steps[name].T
        if name in linear:
            cross = beta * (inputs[name] * counted[name]) @ steps[name].T
            pair += cross + cross.T
            near = near + inputs[name] * uncut[name]
        for arrow in s.arrows_from[name]:
            if arrow.b in linear:
                near = near + (steps[arrow.b] * counted[arrow.b]) @ model.weight(arrow).T
        fields[name] = beta * near
    children = {
        name: np.flatnonzero(mask[:: s.layers[name].unit.width]) for name, mask in counted.items()
    }
    return Skeleton(
        cover,
        beta,
        owner,
        states,
        first,
        steps,
        fields,
        inputs,
        observed,
        uncut,
        counted,
        children,
        linear,
        _fixed(target, cover),
        _log_base_steps(target, owner),
        pair,
        target.untempered and numbers <= SMALL,
    )


def _indicators(
    target: Target, cover: Cover
) -> tuple[list[tuple[str, int, int]], Array, States, States]:
    owner: list[tuple[str, int, int]] = []
    states: list[int] = []
    first: States = {}
    for name, index in cover.units.items():
        layer = target.structure.layers[name]
        support = layer.unit.support
        for unit in index:
            assert support is not None
            owner += [(name, int(unit), a) for a in range(1, len(support))]
            states.append(len(support))
        if len(index) and support is not None and support[0].any():
            first[name] = np.zeros(layer.width)
            first[name][layer.columns(index)] = np.tile(np.ravel(support[0]), len(index))
    steps = {
        name: np.zeros((len(owner), layer.width)) for name, layer in target.structure.layers.items()
    }
    for d, (name, unit, a) in enumerate(owner):
        layer = target.structure.layers[name]
        support = layer.unit.support
        assert support is not None
        steps[name][d, layer.columns(np.array([unit]))] = support[a] - support[0]
    return owner, np.array(states, dtype=np.int64), steps, first


def _without(target: Target, name: str, mask: Array, units: Array) -> Array:
    """A mask of components without those of some units."""
    layer = target.structure.layers[name]
    out = mask.copy()
    out[layer.columns(units)] = False
    return out


def _fixed(target: Target, cover: Cover) -> dict[str, Array]:
    out = {}
    for name, layer in target.structure.layers.items():
        base = layer.unit.log_base
        if base is None or base.any():
            out[name] = target.evidence.observed[name][0] & ~target.cut[name][0]
            out[name][cover.units[name]] = ~target.cut[name][0][cover.units[name]]
    return out


def _log_base_steps(target: Target, owner: list[tuple[str, int, int]]) -> Array:
    out = np.zeros(len(owner))
    for d, (name, _, a) in enumerate(owner):
        base = target.structure.layers[name].unit.log_base
        assert base is not None
        out[d] = base[a] - base[0]
    return out
