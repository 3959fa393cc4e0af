"""The minimum of a smooth convex function plus sum l1 |w|, by limited-memory BFGS.

OWL-QN (Andrew and Gao 2007): the gradient of the smooth part is completed to the steepest
subgradient, the direction of L-BFGS (Nocedal 1980) is kept where it descends, and a step never
crosses zero in a coordinate. With l1 = 0 this is L-BFGS itself. The step of a line search is halved
until the function has fallen enough (Armijo); gradients of convex functions then always give pairs
of positive curvature.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array

# Pairs of steps and changes of the gradient that describe the curvature.
PAIRS = 10
# The share of the fall promised by the gradient that a step has to reach.
LEAST_FALL = 1e-4
# Halvings of a step before the search ends: the function is then as low as rounding lets it be.
MAX_HALVINGS = 30
# The fall of the function over this number of iterations decides whether it has converged.
PERIOD = 10

Function = Callable[[Array], "tuple[float, Array]"]


@dataclass(frozen=True, eq=False)
class Minimum:
    """The result of a minimisation.

    Attributes
    ----------
    point : the minimum.
    value : the function there, with the l1 term.
    iterations : the number of steps made.
    converged : whether the function has stopped falling.
    """

    point: Array
    value: float
    iterations: int
    converged: bool


def minimise(
    function: Function, start: Array, l1: Array, tolerance: float, max_iterations: int
) -> Minimum:
    """Return the minimum of function(w) + sum of l1 |w|.

    Parameters
    ----------
    function : returns the value of a smooth convex function, and its gradient.
    start : (n,) the first point.
    l1 : (n,) weights of the absolute values.
    tolerance : the end is reached when the value has fallen by less than this share of itself over
        the last PERIOD iterations.
    max_iterations : the most steps.

    Examples
    --------
    >>> import numpy as np
    >>> quadratic = lambda w: (float(((w - [3, 0.2]) ** 2).sum()), 2 * (w - [3, 0.2]))
    >>> minimise(quadratic, np.zeros(2), np.ones(2), 1e-9, 100).point.round(6)
    array([2.5, 0. ])
    """
    w, (smooth, gradient) = start, function(start)
    value = smooth + float(l1 @ np.abs(w))
    pairs: deque[tuple[Array, Array, float]] = deque(maxlen=PAIRS)
    values = [value]
    for done in range(max_iterations):
        slope = _steepest(w, gradient, l1)
        if not slope.any():
            return Minimum(w, value, done, True)
        found = _search(function, w, value, slope, _direction(slope, pairs), l1, not pairs)
        if found is None and pairs:
            # Rounding may have spoilt the curvature; the gradient itself decides.
            pairs.clear()
            continue
        if found is None:
            return Minimum(w, value, done, True)
        new, value, new_gradient = found
        step, change = new - w, new_gradient - gradient
        curvature = float(step @ change)
        if curvature > 0:
            pairs.append((step, change, curvature))
        w, gradient = new, new_gradient
        values.append(value)
        if len(values) > PERIOD and values[-1 - PERIOD] - value < tolerance * abs(value):
            return Minimum(w, value, done + 1, True)
    return Minimum(w, value, max_iterations, False)


def _steepest(w: Array, gradient: Array, l1: Array) -> Array:
    """Return the subgradient of smallest size, 0 where no direction descends."""
    if not l1.any():
        return gradient
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    found: Array = np.where(w == 0, at_zero, gradient + l1 * np.sign(w))
    return found


def _direction(slope: Array, pairs: deque[tuple[Array, Array, float]]) -> Array:
    """Return the direction of L-BFGS by its two loops, kept where it descends against `slope`."""
    direction, shares = -slope, []
    for step, change, curvature in reversed(pairs):
        share = float(step @ direction) / curvature
        shares.append(share)
        direction = direction - share * change
    if pairs:
        _, change, curvature = pairs[-1]
        direction *= curvature / float(change @ change)
    for (step, change, curvature), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(change @ direction) / curvature) * step
    return direction


def _search(
    function: Function,
    w: Array,
    value: float,
    slope: Array,
    direction: Array,
    l1: Array,
    first: bool,
) -> tuple[Array, float, Array] | None:
    """Return the next point, its value and gradient; None if no step descends."""
    bent = bool(l1.any())
    if bent:
        direction = np.where(direction * slope < 0, direction, 0.0)
        # The orthant of a step: signs of w, and of the direction where w is 0.
        signs = np.where(w == 0, -np.sign(slope), np.sign(w))
    size = 1.0 / np.linalg.norm(direction) if first else 1.0
    for _ in range(MAX_HALVINGS):
        new = w + size * direction
        if bent:
            new[new * signs < 0] = 0.0
        smooth, gradient = function(new)
        found = smooth + float(l1 @ np.abs(new))
        if found <= value + LEAST_FALL * float(slope @ (new - w)):
            return new, found, gradient
        size /= 2
    return None
