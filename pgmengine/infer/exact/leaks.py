"""Slopes of log Z at a leak of exactly 0, to which impossible states contribute.

A noisy-or unit with input z is 1 with probability 1 - e^-z. At z = 0 this probability is 0, but its
slope e^-z is 1. There an expectation of scores over the posterior multiplies 0 by infinity, and
loses the following part of the slope:

    d log Z / dz = sum over states of (product of all other factors) e^-z / Z.

With a leak of LIFT in place of 0, the state has the probability LIFT and the score 1 / LIFT, whose
product is right. The error is of the order of LIFT times the square of the slope. This is the error
of a forward difference with step LIFT, but without the rounding of a difference.
"""

from __future__ import annotations

import numpy as np

from pgmengine.graph.queries import barren
from pgmengine.graph.target import Target
from pgmengine.graph.weights import is_sparse, like

LIFT = 1e-9


def with_leaks(target: Target) -> Target:
    """Return the target with leaks of LIFT where an impossible state has a slope, or itself.

    Units that are observed to be 0, that are free without any children or that do() holds have no
    such states. At beta < 1 the slope at 0 is infinite, and nothing is lifted.
    """
    s, model, lifted = target.structure, target.model, {}
    off = [n for n in s.directed_layers if s.layers[n].unit.nonnegative]
    names = [n for n in off if (model.bias(n) == 0).any()]
    gone = barren(target) if names and (target.beta == 1).all() else {}
    for name in names if gone else []:
        # A weight of 0 to a child has a slope, too, so its parent is enumerated although barren.
        summed = gone[name] & (not s.arrows_from[name])
        counts = np.where(target.free[name], ~summed, target.evidence.values[name] == 1)
        needed = (model.bias(name) == 0) & (counts & ~target.cut[name]).any(axis=0)
        if needed.any():
            bias = np.where(needed, LIFT, model.bias(name))
            lifted[f"{name}.bias"] = bias.reshape(s.layers[name].bias_shape)
    return target.with_model(model.with_params(lifted)) if lifted else target


def with_weights(target: Target) -> Target:
    """Return the target with weights of LIFT in place of 0 in arrows, or itself.

    Chains of auxiliary variables (causes.py) have a link for each parent. A weight of 0 makes the
    state impossible in which this parent alone turns the child on, and its slope rests on it.
    """
    s, model, lifted = target.structure, target.model, {}
    for c in s.arrows if target.untempered else ():
        weight = model.weight(c)
        if not s.layers[c.b].unit.nonnegative:
            continue
        if is_sparse(weight):
            if (weight.data == 0).any():
                lifted[f"{c.key}.weight"] = like(weight, np.maximum(weight.data, LIFT))
        elif ((weight == 0) & (c.parameters(weight) != 0)).any():
            zero = (weight == 0) & (c.parameters(weight) != 0)
            lifted[f"{c.key}.weight"] = np.where(zero, LIFT, weight)
    return target.with_model(model.with_params(lifted)) if lifted else target
