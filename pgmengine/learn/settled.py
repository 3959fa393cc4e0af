"""Layers that the model phase need not sample: directed ones below which nothing is known.

Their conditionals sum to 1, so E[d log_density] with respect to their biases and the weights into them is 0. Chains leave
them out, and their place is taken by conditional means, parents first: the score (x - E[x | parents]) is 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pgmengine.evidence import Evidence
from pgmengine.methods.conditions import barren
from pgmengine.model import Flat, Model
from pgmengine.target import Target


def settled_layers(target: Target) -> tuple[str, ...]:
    """Names, parents first: whole layers without arrows inside."""
    found, s = barren(target), target.structure
    inside = {c.a for c in s.couplings if c.a == c.b}
    return tuple(n for n in s.directed_layers if n not in inside and found[n].all())


def without(target: Target, names: Sequence[str]) -> Target:
    """The target with the layers set to some value, as do() sets them: chains leave them alone."""
    if not names:
        return target
    e, cut = target.evidence, dict(target.cut)
    values, seen = dict(e.values), dict(e.observed)
    for name in names:
        layer = target.structure.layers[name]
        one = np.zeros((1, 1)) if layer.unit.support is None else np.atleast_2d(layer.unit.support[0])
        some = np.tile(one, (1, layer.width // one.size))
        values[name] = np.broadcast_to(some.astype(e.values[name].dtype), (e.rows, layer.width))
        seen[name] = cut[name] = np.broadcast_to(True, (e.rows, layer.size))
    return replace(target, evidence=Evidence(e.rows, e.has_rows, values, seen), cut=cut)


def at_means(model: Model, x: Flat, names: Sequence[str]) -> Flat:
    """States with the layers at their means given their parents."""
    x = dict(x)
    for name in names:
        layer = model.structure.layers[name]
        mean = layer.unit.mean(layer.unit.link(layer.shaped(model.inputs(x, name))))
        x[name] = layer.flat(mean).astype(x[name].dtype, copy=False)
    return x
