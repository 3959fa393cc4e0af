"""Layers and parameters that need neither samples nor learning.

Parameters that act on given layers alone have the gradient 0. And the model phase need not sample
layers below which nothing is given. These depend on the graph alone, not on weights or rows, so
that they are the same in all of a fit. Their conditionals sum to 1, so E[d log_density] with
respect to their biases and the weights into them is 0. Chains leave them out, and their conditional
means take their place, parents first: the score (x - E[x | parents]) is 0 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pgmengine.base.types import States
from pgmengine.graph.evidence import Evidence
from pgmengine.graph.model import Model
from pgmengine.graph.queries import EvidencePattern
from pgmengine.graph.structure import Structure
from pgmengine.graph.target import Target


def settled_layers(s: Structure, given: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the layers that chains may leave out, parents first.

    They are directed, without arrows inside, not given, and all their children are such layers.
    """
    out: list[str] = []
    for name in reversed(s.directed_layers):
        children = {arrow.b for arrow in s.arrows_from[name]}
        if name not in given and name not in s.undirected_layers and children <= set(out):
            out.insert(0, name)
    return tuple(out)


def idle_parameters(target: Target, given: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the parameters that act on given layers only.

    The layers have to be complete: then E[. | row] = E[. | given].
    """
    s = target.structure
    known = {name for name in given if not target.pattern.some_free[name]}
    whole = {name for name in known if {arrow.a for arrow in s.arrows_into[name]} <= known}
    return (
        *(f"{name}.bias" for name in s.layers if name in whole),
        *(
            f"{c.key}.weight"
            for c in s.couplings
            if {c.a, c.b} <= known and (not c.directed or c.b in whole)
        ),
    )


def without(target: Target, names: Sequence[str]) -> Target:
    """Return the target with the layers set to any value by do(), so that chains leave them out."""
    if not names:
        return target
    e, cut = target.evidence, dict(target.cut)
    values, seen = dict(e.values), dict(e.observed)
    for name in names:
        layer = target.structure.layers[name]
        support = layer.unit.support
        one = np.zeros((1, 1)) if support is None else np.atleast_2d(support[0])
        some = np.tile(one, (1, layer.width // one.size))
        values[name] = np.broadcast_to(some.astype(e.values[name].dtype), (e.rows, layer.width))
        seen[name] = cut[name] = np.broadcast_to(True, (e.rows, layer.size))
    pattern = EvidencePattern(target.structure, e.rows, seen, cut)
    return replace(target, evidence=Evidence(e.has_rows, values, pattern))


def at_means(model: Model, x: States, names: Sequence[str]) -> States:
    """Return states in which the layers are at their means given their parents."""
    x = dict(x)
    for name in names:
        layer = model.structure.layers[name]
        mean = layer.unit.mean(layer.unit.link(layer.shaped(model.inputs(x, name))))
        x[name] = layer.flat(mean).astype(x[name].dtype, copy=False)
    return x
