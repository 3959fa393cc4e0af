"""Optimizers: ascent on the log-likelihood, one frozen dataclass each; the loops are compiled
(optimizers.h).

`start(params)` makes the state, name -> array; `step(structure, params, gradient, state, t)`
returns new parameters and changes the state in place; t counts from 0. Weight decay: the gradient
of a weight loses l2 * weight + l1 * sign(weight); biases do not decay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pgmengine import _kernels
from pgmengine.base.checks import check_instance, check_number, check_rate
from pgmengine.base.errors import PgmError
from pgmengine.base.threads import parts
from pgmengine.base.types import Array
from pgmengine.graph.model import freeze
from pgmengine.graph.structure import Structure
from pgmengine.graph.weights import is_sparse, like, numbers, pattern, plus
from pgmengine.learn.batch import Gradient
from pgmengine.learn.projected import floors
from pgmengine.learn.schedules import Rate, rate_at

Params = dict[str, Any]


class Stepped(dict[str, Any]):
    """New parameters, read only, with the same numbers in single precision."""

    def __init__(self, params: Params, singles: Params) -> None:
        super().__init__({name: freeze(value) for name, value in params.items()})
        self.made, self.singles = dict(self), singles

    def singles_of(self, params: Mapping[str, Any]) -> Params:
        """Those of parameters that nobody has replaced since."""
        return {
            name: single for name, single in self.singles.items() if params[name] is self.made[name]
        }


WORTH_A_THREAD = 20_000  # parameters


class Optimizer(Protocol):
    """What fit asks of an optimizer."""

    def start(self, params: Mapping[str, Any]) -> Params:
        """The state before the first step."""

    def step(
        self,
        structure: Structure,
        params: Mapping[str, Any],
        gradient: Gradient,
        state: Params,
        t: int,
    ) -> Params:
        """New parameters."""


def check_optimizer(thing: Any, what: str) -> None:
    """PgmError unless it is an optimizer."""
    check_instance(thing, what)
    if not all(callable(getattr(thing, name, None)) for name in ("start", "step")):
        raise PgmError(f"{what} must be one such as pgm.Adam(), not {thing!r}")


def _moments(name: str, params: Mapping[str, Any]) -> Params:
    return {f"{name}/{k}": np.zeros(numbers(v).size) for k, v in params.items()}


@dataclass(frozen=True)
class _Rule:
    """What optimizers.h does with one parameter: the kind of step, its moments, and what it keeps of
    them.
    """

    kind: int
    moments: tuple[str, ...]
    keep: tuple[float, float] = (0.0, 0.0)
    unbias: tuple[float, float] = (1.0, 1.0)
    epsilon: float = 0.0
    l1: float = 0.0
    l2: float = 0.0

    def ascend(
        self,
        rate: float,
        params: Mapping[str, Any],
        gradient: Mapping[str, Any],
        state: Params,
        t: int,
    ) -> Params:
        """One compiled step for every parameter; PgmError names the first that is not a number
        within LARGEST.
        """
        out, singles = {}, {}
        for k, value in params.items():
            p, g = numbers(value), numbers(gradient[k])
            g = g if g.dtype == np.float32 else g.astype(np.float64, copy=False)
            decay = (self.l1, self.l2) if k.endswith(".weight") else (0.0, 0.0)
            first, second = [*(state[f"{name}/{k}"] for name in self.moments), None, None][:2]
            new, copy = np.empty(len(p)), np.empty(len(p), dtype=np.float32)
            if not _kernels.ascend(
                self.kind,
                rate=rate,
                keep=self.keep,
                unbias=self.unbias,
                epsilon=self.epsilon,
                decay=decay,
                p=p,
                g=g,
                p2=new,
                copy=copy,
                m=first,
                v=second,
                parts=parts(len(p), WORTH_A_THREAD),
            ):
                raise PgmError(
                    f"update {t + 1}: {_diverged(k, g, new)}; learning has diverged, try a smaller rate"
                )
            out[k], singles[k] = like(value, new), like(value, copy)
        return Stepped(out, singles)


def _diverged(name: str, gradient: Array, stepped: Array) -> str:
    """What is wrong with a parameter."""
    if not np.isfinite(gradient).all():
        return f"the gradient of {name!r} is not finite"
    return (
        f"{name!r} is not finite"
        if not np.isfinite(stepped).all()
        else f"{name!r} is beyond {_kernels.LARGEST:g}"
    )


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

    def __post_init__(self) -> None:
        check_rate(self, "rate")
        check_number(self, "weight_decay", "l1")
        check_number(self, "momentum", below=1)

    def start(self, params: Mapping[str, Any]) -> Params:
        """The velocity m, if there is momentum."""
        return _moments("m", params) if self.momentum else {}

    def step(
        self,
        structure: Structure,
        params: Mapping[str, Any],
        gradient: Gradient,
        state: Params,
        t: int,
    ) -> Params:
        """One update."""
        moments, keep = ("m",) if self.momentum else (), (self.momentum, 0.0)
        rule = _Rule(_kernels.SGD, moments, keep, l1=self.l1, l2=self.weight_decay)
        return rule.ascend(rate_at(self.rate, t), params, gradient, state, t)


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

    def __post_init__(self) -> None:
        check_rate(self, "rate")
        check_number(self, "epsilon", "weight_decay", "l1")
        check_number(self, "beta1", "beta2", below=1)

    def start(self, params: Mapping[str, Any]) -> Params:
        """First and second moments."""
        return _moments("m", params) | _moments("v", params)

    def step(
        self,
        structure: Structure,
        params: Mapping[str, Any],
        gradient: Gradient,
        state: Params,
        t: int,
    ) -> Params:
        """One update."""
        unbias = 1 - self.beta1 ** (t + 1), 1 - self.beta2 ** (t + 1)
        keep = self.beta1, self.beta2
        rule = _Rule(
            _kernels.ADAM, ("m", "v"), keep, unbias, self.epsilon, self.l1, self.weight_decay
        )
        return rule.ascend(rate_at(self.rate, t), params, gradient, state, t)


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

    def __post_init__(self) -> None:
        check_rate(self, "rate")
        check_number(self, "epsilon", "weight_decay", "l1")
        check_number(self, "beta1", "beta2", below=1)

    def start(self, params: Mapping[str, Any]) -> Params:
        """First moment and the infinity norm."""
        return _moments("m", params) | _moments("v", params)

    def step(
        self,
        structure: Structure,
        params: Mapping[str, Any],
        gradient: Gradient,
        state: Params,
        t: int,
    ) -> Params:
        """One update."""
        unbias, keep = (1 - self.beta1 ** (t + 1), 1.0), (self.beta1, self.beta2)
        rule = _Rule(
            _kernels.ADAMAX, ("m", "v"), keep, unbias, self.epsilon, self.l1, self.weight_decay
        )
        return rule.ascend(rate_at(self.rate, t), params, gradient, state, t)


@dataclass(frozen=True)
class Centered:
    """The gradient of the centred model (Montavon and Mueller 2012; Melchior, Fischer and Wiskott
    2016).

    For undirected couplings of layers without directed parents. With offsets o, running means of
    E[x | data]: dW' = dW - o_a db_b^T - db_a o_b^T, and db' = db - sum of dW' o over the couplings.
    The same model in other coordinates: the fixed points are the same, the way to them is not.

    >>> import pgmengine as pgm
    >>> pgm.Centered(pgm.SGD(0.1)).follow
    0.01
    """

    optimizer: Any = SGD()
    follow: float = 0.01  # share of each update's mean in the offsets

    def __post_init__(self) -> None:
        check_number(self, "follow", most=1)
        check_optimizer(self.optimizer, "Centered: optimizer")
        _check_inside(self, Tied)

    def start(self, params: Mapping[str, Any]) -> Params:
        """That of the optimizer, and the offsets."""
        offsets = {
            f"offset/{k.removesuffix('.bias')}": np.full(v.size, np.nan)
            for k, v in params.items()
            if k.endswith(".bias")
        }
        return self.optimizer.start(params) | offsets

    def step(
        self,
        structure: Structure,
        params: Mapping[str, Any],
        gradient: Gradient,
        state: Params,
        t: int,
    ) -> Params:
        """One update."""
        means = gradient.means()
        for name, mean in means.items():
            offset = state[f"offset/{name}"]
            offset[:] = np.where(
                np.isnan(offset), mean, (1 - self.follow) * offset + self.follow * mean
            )
        bias = {name: np.ravel(gradient[f"{name}.bias"]).astype(np.float64) for name in means}
        out = gradient.copy()
        for c in structure.undirected:
            if not {c.a, c.b} <= set(means):  # an end with directed parents has no mean of its own
                continue
            weight, a, b = f"{c.key}.weight", state[f"offset/{c.a}"], state[f"offset/{c.b}"]
            terms = ((-a, bias[c.b]), (-bias[c.a], b))
            slope = out[weight] = c.projected(params[weight], _plus_outer(gradient[weight], terms))
            a, b = a.astype(slope.dtype), b.astype(slope.dtype)  # or the whole slope is converted
            for name, share in ((c.a, slope @ b), (c.b, a @ slope))[: 1 + (c.a != c.b)]:
                if (key := f"{name}.bias") not in gradient.idle:
                    out[key] = out[key] - share.reshape(np.shape(out[key]))
        return self.optimizer.step(structure, params, out, state, t)


def _check_inside(outer: Any, other: type) -> None:
    """Centred gradients shift each bias by offsets of its own: ties break, or the fixed points of
    their sum move.
    """
    inner = outer.optimizer
    while inner is not None and not isinstance(inner, other):
        inner = getattr(inner, "optimizer", None)
    if inner is not None:
        raise PgmError(
            f"{type(outer).__name__} does not go with {other.__name__}: centred gradients of tied parameters "
            "are not those of one parameter"
        )


def _plus_outer(slope: Any, terms: Sequence[tuple[Array, Array]]) -> Any:
    """Slope + sum of a b', at the stored entries of a sparse one."""
    if not is_sparse(slope):
        left, right = (
            np.stack([term[i] for term in terms], axis=1).astype(slope.dtype) for i in (0, 1)
        )
        return slope + left @ right.T
    at_entry = slope.tocoo()
    return like(slope, slope.data + sum(a[at_entry.row] * b[at_entry.col] for a, b in terms))


@dataclass(frozen=True)
class Tied:
    """Parameters that are to stay equal: each of a group moves by the sum of the group's gradients.

    >>> import pgmengine as pgm
    >>> pgm.Tied(pgm.SGD(0.1), (("a.bias", "b.bias"),)).groups
    (('a.bias', 'b.bias'),)
    """

    optimizer: Any
    groups: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer, "Tied: optimizer")
        _check_inside(self, Centered)
        try:
            groups = tuple(
                group if isinstance(group, str) else tuple(group) for group in self.groups
            )
        except TypeError:
            groups = ("",)
        if any(isinstance(group, str) for group in groups):
            raise PgmError(
                f"Tied: groups must be sequences of names of parameters, not {self.groups!r}"
            )
        if not all(groups):
            raise PgmError("Tied: a group names no parameter")
        object.__setattr__(self, "groups", groups)  # an iterator would be at its end

    def start(self, params: Mapping[str, Any]) -> Params:
        """That of the optimizer; PgmError when a group is not equal to begin with."""
        for group in self.groups:
            for name in group:
                if sum(list(other).count(name) for other in self.groups) > 1:
                    raise PgmError(f"Tied: parameter {name!r} is named twice")
                if name not in params:
                    raise PgmError(
                        f"Tied: parameter {name!r} is unknown; the parameters are {', '.join(params)}"
                    )
                one, other = params[name], params[group[0]]
                if (
                    one.shape != other.shape
                    or pattern(one) != pattern(other)
                    or (numbers(one) != numbers(other)).any()
                ):
                    raise PgmError(f"Tied: {name!r} and {group[0]!r} differ to begin with")
        return self.optimizer.start(params)

    def step(
        self,
        structure: Structure,
        params: Mapping[str, Any],
        gradient: Gradient,
        state: Params,
        t: int,
    ) -> Params:
        """One update."""
        out, least = gradient.copy(), floors(structure)
        for group in self.groups:
            for name in group:
                if least.get(name) != least.get(group[0]):
                    raise PgmError(
                        f"Tied: {name!r} and {group[0]!r} have not the same range, which noisy-or units bound"
                    )
            total = gradient[group[0]]
            for name in group[1:]:
                total = plus(total, gradient[name])
            out.update(dict.fromkeys(group, total))
        return self.optimizer.step(structure, params, out, state, t)
