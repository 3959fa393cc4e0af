"""Optimizers and rate schedules: ascent on the log-likelihood, one frozen dataclass each.

`start(params)` makes the state, `step(params, gradient, state, t)` returns new parameters and state; t counts from 0.
Weight decay is L2: the gradient of a weight loses weight_decay * weight; biases do not decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Params = dict[str, Any]
Rate = float | Callable[[int], float]


@dataclass(frozen=True)
class harmonic:  # noqa: N801 - called like a function
    """The schedule a / (b + t), as in system 3.

    >>> import pgmengine as pgm
    >>> pgm.harmonic(10, 2000)(0)
    0.005
    """

    a: float
    b: float

    def __call__(self, t: int) -> float:
        """The rate of update t."""
        return self.a / (self.b + t)


def rate_at(rate: Rate, t: int) -> float:
    """The rate of update t of a number or a schedule."""
    return rate(t) if callable(rate) else rate


def decayed(gradient: Mapping[str, Any], params: Mapping[str, Any], decay: float) -> Params:
    """The gradient less decay * weight."""
    if not decay:
        return dict(gradient)
    return {k: g - decay * params[k] if k.endswith(".weight") else g for k, g in gradient.items()}


def elementwise(f: Callable[..., Any], *arrays: Any) -> Any:
    """F on dense arrays, or on the stored entries of sparse ones with the same pattern."""
    if not sp.issparse(arrays[0]):
        return f(*arrays)
    first = arrays[0]
    return sp.csr_array((f(*(a.data for a in arrays)), first.indices, first.indptr), shape=first.shape)


def zeros(params: Mapping[str, Any]) -> Params:
    """A state of zeros, one array for each parameter."""
    return {k: elementwise(np.zeros_like, v) for k, v in params.items()}


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient ascent: m = momentum m + g, theta += rate m.

    >>> import pgmengine as pgm
    >>> pgm.SGD(0.1, momentum=0.9).momentum
    0.9
    """

    rate: Rate = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0

    def start(self, params: Mapping[str, Any]) -> Any:
        """The velocity m."""
        return zeros(params)

    def step(self, params: Mapping[str, Any], gradient: Mapping[str, Any], state: Any, t: int) -> tuple[Params, Any]:
        """One update."""
        g, rate = decayed(gradient, params, self.weight_decay), rate_at(self.rate, t)
        m = {k: elementwise(lambda m, g: self.momentum * m + g, state[k], g[k]) for k in params}
        return {k: elementwise(lambda p, m: p + rate * m, params[k], m[k]) for k in params}, m


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1), ascending.

    >>> import pgmengine as pgm
    >>> pgm.Adam(1e-3).beta2
    0.999
    """

    rate: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def start(self, params: Mapping[str, Any]) -> Any:
        """First and second moments."""
        return zeros(params), zeros(params)

    def step(self, params: Mapping[str, Any], gradient: Mapping[str, Any], state: Any, t: int) -> tuple[Params, Any]:
        """One update."""
        return adaptive_step(self, params, gradient, state, t,
                             lambda v, g: self.beta2 * v + (1 - self.beta2) * g * g,
                             lambda v: np.sqrt(v / (1 - self.beta2 ** (t + 1))))


@dataclass(frozen=True)
class AdaMax:
    """AdaMax (Kingma and Ba 2015, algorithm 2), ascending.

    >>> import pgmengine as pgm
    >>> pgm.AdaMax().rate
    0.002
    """

    rate: Rate = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def start(self, params: Mapping[str, Any]) -> Any:
        """First moment and the infinity norm."""
        return zeros(params), zeros(params)

    def step(self, params: Mapping[str, Any], gradient: Mapping[str, Any], state: Any, t: int) -> tuple[Params, Any]:
        """One update."""
        return adaptive_step(self, params, gradient, state, t,
                             lambda u, g: np.maximum(self.beta2 * u, np.abs(g)), lambda u: u)


def adaptive_step(o: Adam | AdaMax, params: Mapping[str, Any], gradient: Mapping[str, Any], state: Any, t: int,
                  grow: Callable[[Any, Any], Any], size: Callable[[Any], Any]) -> tuple[Params, Any]:
    """Theta += rate m_hat / (size(v) + epsilon), m_hat the debiased mean of gradients and v grown by each gradient."""
    g, rate = decayed(gradient, params, o.weight_decay), rate_at(o.rate, t)
    m = {k: elementwise(lambda m, g: o.beta1 * m + (1 - o.beta1) * g, state[0][k], g[k]) for k in params}
    v = {k: elementwise(grow, state[1][k], g[k]) for k in params}

    def move(p: Any, m: Any, v: Any) -> Any:
        return p + rate * (m / (1 - o.beta1 ** (t + 1))) / (size(v) + o.epsilon)

    return {k: elementwise(move, params[k], m[k], v[k]) for k in params}, (m, v)
