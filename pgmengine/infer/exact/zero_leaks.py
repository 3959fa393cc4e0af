"""Derivatives (slopes) of log Z at a leak of exactly 0, to which impossible states contribute.

A noisy-or unit with input z is 1 with probability 1 - e^-z. At z = 0 this probability is 0, but its
slope e^-z is 1. An expectation of scores over the posterior then multiplies 0 by infinity, and
loses this part of the slope:

    d log Z / dz = sum over states of (product of all other factors) e^-z / Z.

If the leak is lifted (raised) from 0 to LIFT, the state has the probability LIFT and the score
1 / LIFT, whose product is right. All other terms change by LIFT divided by the probability of the
evidence.
Products of tables allow any LIFT that is a float. Enumeration computes 1 - e^-z, so that it
needs ENUMERATION_LIFT, which is far above rounding. In enumeration, only two kinds of slopes come
from the lifted target: those of lifted leaks, and those of weights of 0 of the same units. Their
error is the error of a forward difference with this step.
"""

from __future__ import annotations

import numpy as np

from pgmengine.base.types import Array, Weight
from pgmengine.evidence.target import Target
from pgmengine.model.weights import is_sparse, like

LIFT, ENUMERATION_LIFT = 1e-100, 1e-9


def zero_leaks(target: Target) -> dict[str, Array]:
    """Return masks, layer -> (size,), of the leaks of 0 at which an impossible state has a slope.

    Units that are observed to be 0, or that are intervened, have no such states. At beta < 1 all
    masks are empty, because the slope at 0 is infinite.
    """
    s, model, found = target.structure, target.model, dict[str, Array]()
    for name in s.directed_layers if (target.beta == 1).all() else ():
        if not s.layers[name].unit.nonnegative or model.bias(name).all():
            continue
        counts = target.free[name] | (target.evidence.values[name] == 1)
        found[name] = (model.bias(name) == 0) & (counts & ~target.intervened[name]).any(axis=0)
    return {name: mask for name, mask in found.items() if mask.any()}


def with_leaks(target: Target, lift: float = LIFT) -> Target:
    """Return the target with `lift` in place of leaks of 0 at which impossible states have a slope.

    It is the same object if there are no such leaks.
    """
    model, layers, lifted = target.model, target.structure.layers, {}
    for name, mask in zero_leaks(target).items():
        key = f"{name}.bias"
        lifted[key] = np.where(mask.reshape(layers[name].bias_shape), lift, model.params[key])
    return target.with_model(model.with_params(lifted)) if lifted else target


def with_slopes(
    target: Target, gradient: dict[str, Weight], lifted: dict[str, Weight]
) -> dict[str, Weight]:
    """Return a gradient with slopes of the lifted target at leaks of 0.

    The weights of 0 into the same units also get the slopes of the lifted target. Other weights do
    not need them: a parent with such a weight makes it possible that the unit is 1.
    """
    out, model = dict(gradient), target.model
    for name, mask in zero_leaks(target).items():
        key = f"{name}.bias"
        out[key] = np.where(mask.reshape(gradient[key].shape), lifted[key], gradient[key])
        for c in target.structure.arrows_into[name]:
            key, weight = f"{c.key}.weight", model.weight(c)
            if is_sparse(weight):
                beside = (weight.data == 0) & mask[weight.tocoo().coords[1]]
                data = np.where(beside, lifted[key].data, gradient[key].data)
                out[key] = like(weight, data)
            else:
                out[key] = np.where((weight == 0) & mask, lifted[key], gradient[key])
    return out


def with_weights(target: Target) -> Target:
    """Return the target with weights of LIFT in place of 0 in arrows.

    It is the same object if there are no such weights.

    Chains of auxiliary variables (causal_independence.py) have a link for each parent. A weight of
    0 makes the state impossible in which this parent alone turns the child on, but this state is a
    part of the slope of the weight.
    """
    s, model, lifted = target.structure, target.model, {}
    for key, t in s.parameters.items() if target.untempered else ():
        weight = model.params[key]
        if not (t.directed and s.layers[t.layers[1]].unit.nonnegative):
            continue
        # Inside a layer, entries of 0 of a whole weight are no parameters.
        inside = t.whole and t.layers[0] == t.layers[1]
        if is_sparse(weight):
            if (weight.data == 0).any():
                lifted[key] = like(weight, np.maximum(weight.data, LIFT))
        elif not inside and not weight.all():
            lifted[key] = np.where(weight == 0, LIFT, weight)
    return target.with_model(model.with_params(lifted)) if lifted else target
