"""Optimizers: ascent on the log-likelihood, one frozen dataclass each; the loops are compiled (learn.h).

`start(params)` makes the state, name -> array; `step(params, gradient, state, t)` returns new parameters and changes the
state in place; t counts from 0. Weight decay: the gradient of a weight loses l2 * weight + l1 * sign(weight); biases do
not decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from pgmengine import _kernels
from pgmengine.errors import PgmError
from pgmengine.learn.batch import Gradient
from pgmengine.learn.schedules import Rate, at
from pgmengine.structure import Structure
from pgmengine.threads import share_out

Params = dict[str, Any]


class Stepped(dict[str, Any]):
    """New parameters; `singles` are the same in single precision."""

    def __init__(self, params: Params, singles: Params) -> None:
        super().__init__(params)
        self.singles = singles


Array = np.ndarray
WORTH_A_THREAD = 50_000  # parameters


class Optimizer(Protocol):
    """What fit asks of an optimizer."""

    def start(self, params: Mapping[str, Any]) -> Params:
        """The state before the first step."""

    def step(self, structure: Structure, params: Mapping[str, Any], gradient: Gradient, state: Params, t: int) -> Params:
        """New parameters."""


def elementwise(f: Callable[..., Any], *arrays: Any) -> Any:
    """F on dense arrays, or on the stored entries of sparse ones with the same pattern."""
    if not sp.issparse(arrays[0]):
        return f(*arrays)
    first = arrays[0]
    return sp.csr_array((f(*(a.data for a in arrays)), first.indices, first.indptr), shape=first.shape)


def zeros(params: Mapping[str, Any]) -> Params:
    """Zeros, one array for each parameter."""
    return {k: elementwise(np.zeros_like, v) for k, v in params.items()}


def _moments(name: str, params: Mapping[str, Any]) -> Params:
    return {f"{name}/{k}": np.zeros(numbers(v).size) for k, v in params.items()}


def numbers(value: Any) -> Array:
    """All numbers of a parameter, (n,); a copy only if they do not lie in order."""
    return np.ascontiguousarray(value.data if sp.issparse(value) else value).reshape(-1)


def like(value: Any, flat: Array) -> Any:
    """A parameter of the same shape, and pattern, with other numbers."""
    if not sp.issparse(value):
        return flat.reshape(value.shape)
    return sp.csr_array((flat, value.indices, value.indptr), shape=value.shape)


def _ascend(kind: int, rate: float, params: Mapping[str, Any], gradient: Mapping[str, Any], state: Params, t: int,
            moments: tuple[str, ...], keep: tuple[float, float] = (0.0, 0.0),
            unbias: tuple[float, float] = (1.0, 1.0), epsilon: float = 0.0, l1: float = 0.0, l2: float = 0.0) -> Params:
    """One compiled step for every parameter; PgmError names the first that is not finite."""
    out, singles = {}, {}
    for k, value in params.items():
        p, g = numbers(value), numbers(gradient[k])
        g = g if g.dtype == np.float32 else g.astype(np.float64, copy=False)
        decay = (l1, l2) if k.endswith(".weight") else (0.0, 0.0)
        first_moment, second_moment = (state.get(f"{name}/{k}") for name in (*moments, None, None)[:2])
        new, copy = np.empty_like(p), np.empty(len(p), dtype=np.float32)

        def task(first: int, last: int, decay: Any = decay, p: Array = p, g: Array = g, new: Array = new,
                 copy: Array = copy, m: Any = first_moment, v: Any = second_moment) -> bool:
            return _kernels.ascend(kind, rate, keep, unbias, epsilon, decay, p, g, new, copy, m, v, first, last)

        if not all(share_out(task, len(p), len(p), WORTH_A_THREAD)):
            what = f"the gradient of {k!r}" if not np.isfinite(g).all() else f"{k!r}"
            raise PgmError(f"update {t + 1}: {what} is not finite; learning has diverged, try a smaller rate")
        out[k], singles[k] = like(value, new), like(value, copy)
    return Stepped(out, singles)


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
    l1: float = 0.0

    def start(self, params: Mapping[str, Any]) -> Params:
        """The velocity m, if there is momentum."""
        return _moments("m", params) if self.momentum else {}

    def step(self, structure: Structure, params: Mapping[str, Any], gradient: Gradient, state: Params, t: int) -> Params:
        """One update."""
        return _ascend(_kernels.SGD, at(self.rate, t), params, gradient, state, t, ("m",) if self.momentum else (),
                       (self.momentum, 0.0), l1=self.l1, l2=self.weight_decay)


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
    l1: float = 0.0

    def start(self, params: Mapping[str, Any]) -> Params:
        """First and second moments."""
        return _moments("m", params) | _moments("v", params)

    def step(self, structure: Structure, params: Mapping[str, Any], gradient: Gradient, state: Params, t: int) -> Params:
        """One update."""
        unbias = 1 - self.beta1 ** (t + 1), 1 - self.beta2 ** (t + 1)
        return _ascend(_kernels.ADAM, at(self.rate, t), params, gradient, state, t, ("m", "v"),
                       (self.beta1, self.beta2), unbias, self.epsilon, self.l1, self.weight_decay)


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
    l1: float = 0.0

    def start(self, params: Mapping[str, Any]) -> Params:
        """First moment and the infinity norm."""
        return _moments("m", params) | _moments("v", params)

    def step(self, structure: Structure, params: Mapping[str, Any], gradient: Gradient, state: Params, t: int) -> Params:
        """One update."""
        return _ascend(_kernels.ADAMAX, at(self.rate, t), params, gradient, state, t, ("m", "v"),
                       (self.beta1, self.beta2), (1 - self.beta1 ** (t + 1), 1.0), self.epsilon, self.l1,
                       self.weight_decay)


@dataclass(frozen=True)
class Centered:
    """The gradient of the centred model (Montavon and Mueller 2012; Melchior, Fischer and Wiskott 2016).

    For undirected couplings. With offsets o, running means of E[x | data]: dW' = dW - o_a db_b' - db_a o_b', and
    db' = db - sum of dW' o over the couplings. The same model in other coordinates: the fixed points are the same, the
    way to them is not.

    >>> import pgmengine as pgm
    >>> pgm.Centered(pgm.SGD(0.1)).follow
    0.01
    """

    optimizer: Any = SGD()
    follow: float = 0.01  # share of each update's mean in the offsets

    def start(self, params: Mapping[str, Any]) -> Params:
        """That of the optimizer, and the offsets."""
        offsets = {f"offset/{k.removesuffix('.bias')}": np.full(v.size, np.nan) for k, v in params.items()
                   if k.endswith(".bias")}
        return self.optimizer.start(params) | offsets

    def step(self, structure: Structure, params: Mapping[str, Any], gradient: Gradient, state: Params, t: int) -> Params:
        """One update."""
        for name, mean in gradient.means.items():
            offset = state[f"offset/{name}"]
            offset[:] = np.where(np.isnan(offset), mean, (1 - self.follow) * offset + self.follow * mean)
        bias = {name: np.ravel(gradient[f"{name}.bias"]).astype(np.float64) for name in gradient.means}
        out = Gradient(gradient)
        for c in structure.undirected:
            a, b = (state[f"offset/{name}"] for name in (c.a, c.b))
            weight = _less_outer(params[f"{c.key}.weight"], gradient[f"{c.key}.weight"], a, bias[c.b], bias[c.a], b)
            out[f"{c.key}.weight"] = weight * c.parameters(params[f"{c.key}.weight"]) if c.a == c.b else weight
            for name, share in ((c.a, out[f"{c.key}.weight"] @ b), (c.b, a @ out[f"{c.key}.weight"]))[: 1 + (c.a != c.b)]:
                out[f"{name}.bias"] = out[f"{name}.bias"] - share.reshape(np.shape(out[f"{name}.bias"]))
        return self.optimizer.step(structure, params, out, state, t)


def _less_outer(weight: Any, slope: Any, a: Array, to_b: Array, to_a: Array, b: Array) -> Any:
    """Slope - a to_b' - to_a b', at the stored entries of a sparse one."""
    if not sp.issparse(weight):
        return slope - np.outer(a, to_b) - np.outer(to_a, b)
    at_entry = slope.tocoo()
    less = slope.data - a[at_entry.row] * to_b[at_entry.col] - to_a[at_entry.row] * b[at_entry.col]
    return like(slope, less)


@dataclass(frozen=True)
class Tied:
    """Parameters that are to stay equal: each of a group moves by the sum of the group's gradients.

    >>> import pgmengine as pgm
    >>> pgm.Tied(pgm.SGD(0.1), (("a.bias", "b.bias"),)).groups
    (('a.bias', 'b.bias'),)
    """

    optimizer: Any
    groups: Sequence[Sequence[str]]

    def start(self, params: Mapping[str, Any]) -> Params:
        """That of the optimizer; PgmError when a group is not equal to begin with."""
        for group in self.groups:
            for name in group:
                if name not in params:
                    raise PgmError(f"Tied: parameter {name!r} is unknown; the parameters are {', '.join(params)}")
                if params[name].shape != params[group[0]].shape or abs(params[name] - params[group[0]]).max() > 0:
                    raise PgmError(f"Tied: {name!r} and {group[0]!r} differ to begin with")
        return self.optimizer.start(params)

    def step(self, structure: Structure, params: Mapping[str, Any], gradient: Gradient, state: Params, t: int) -> Params:
        """One update."""
        out = Gradient(gradient)
        out.means = gradient.means
        for group in self.groups:
            total = sum(gradient[name] for name in group[1:]) + gradient[group[0]]
            out.update(dict.fromkeys(group, total))
        return self.optimizer.step(structure, params, out, state, t)
