"""Optimizers: ascent on the log-likelihood, one frozen dataclass each.

`start(params)` makes the moments, name -> array; `step(structure, params, gradient, moments, t)`
returns new parameters and changes the moments in place; t counts from 0. The loops are compiled
(optimizers.h): a step of a parameter is one pass over its numbers, which also writes them in single
precision for the chains. With weight decay the gradient of a weight loses
weight_decay * weight + l1 * sign(weight); biases do not decay.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.checks import check_instance, check_number, check_rate
from pgmengine.base.errors import PgmError
from pgmengine.base.threads import parts
from pgmengine.base.types import Array, Weight
from pgmengine.graph.model import freeze
from pgmengine.graph.structure import Structure
from pgmengine.graph.weights import is_sparse, like, numbers, pattern, plus
from pgmengine.learn.projected import floors
from pgmengine.learn.schedules import Rate, rate_at
from pgmengine.learn.statistics import Gradient
from pgmengine.protocols import Optimizer, Params, Snapshot

# Parameters for each thread of a step.
WORTH_A_THREAD = 20_000


class Stepped(dict[str, Any]):
    """New parameters, read only, and their numbers in single precision.

    An optimizer around the one that made them may replace some of them. As the arrays cannot change
    in place, a number in single precision is valid as long as its parameter is the array with which
    it was made.
    """

    def __init__(self, params: Params, singles: Params) -> None:
        super().__init__(params)
        self._made, self._singles = params, singles

    def singles_of(self, params: Params) -> Params:
        """Return the parameters in single precision, except any that have been replaced since."""
        made = self._made
        return {k: v for k, v in self._singles.items() if params[k] is made[k]}


def check_optimizer(optimizer: object, what: str) -> None:
    """PgmError unless it is an optimizer."""
    check_instance(optimizer, what)
    if not isinstance(optimizer, Optimizer):
        raise PgmError(f"{what} must be one such as pgm.Adam(), not {optimizer!r}")


@dataclass(frozen=True)
class Rule:
    """The compiled step of one update.

    Attributes
    ----------
    kind : the routine.
    keep : shares of the first and second moment that stay.
    unbias : factors that undo the bias of the moments towards their start at 0.
    """

    kind: int
    keep: tuple[float, float] = (0.0, 0.0)
    unbias: tuple[float, float] = (1.0, 1.0)
    epsilon: float = 0.0


class _Ascent:
    """Base of the compiled optimizers: steps by the rule of each update."""

    rate: Rate
    weight_decay: float
    l1: float

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of the moments that it keeps of each parameter."""
        return ("m", "v")

    @abstractmethod
    def rule(self, t: int) -> Rule:
        """Return the rule of step t."""

    def start(self, params: Params) -> Snapshot:
        """Return moments of 0."""
        return {
            f"{name}/{k}": np.zeros(numbers(v).size)
            for name in self.moments
            for k, v in params.items()
        }

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t.

        PgmError names the first parameter that is not a number within LARGEST.
        """
        rule, rate = self.rule(t), rate_at(self.rate, t)
        out: dict[str, Weight] = {}
        singles: dict[str, Weight] = {}
        for k, value in params.items():
            p, g = numbers(value), numbers(gradient[k])
            g = g if g.dtype == np.float32 else g.astype(np.float64, copy=False)
            decay = (self.l1, self.weight_decay) if k.endswith(".weight") else (0.0, 0.0)
            new, single = np.empty(len(p)), np.empty(len(p), dtype=np.float32)
            within = _kernels.ascend(
                rule.kind,
                rate=rate,
                keep=rule.keep,
                unbias=rule.unbias,
                epsilon=rule.epsilon,
                decay=decay,
                p=p,
                g=g,
                p2=new,
                copy=single,
                m=moments.get(f"m/{k}"),
                v=moments.get(f"v/{k}"),
                parts=parts(len(p), WORTH_A_THREAD),
            )
            if not within:
                raise PgmError(
                    f"update {t + 1}: {_diverged(k, g, new)}; learning has diverged, try a "
                    "smaller rate"
                )
            out[k], singles[k] = freeze(like(value, new)), like(value, single)
        return Stepped(out, singles)


def _diverged(name: str, gradient: Array, stepped: Array) -> str:
    """Return the fault of a parameter after a step."""
    if not np.isfinite(gradient).all():
        return f"the gradient of {name!r} is not finite"
    if not np.isfinite(stepped).all():
        return f"{name!r} is not finite"
    return f"{name!r} is beyond {_kernels.LARGEST:g}"


@dataclass(frozen=True)
class SGD(_Ascent):
    """Stochastic gradient ascent: m = momentum m + g, theta += rate m.

    Parameters
    ----------
    rate : learning rate, or a schedule, update -> rate.
    momentum : share of the velocity m that stays from step to step, below 1.
    weight_decay, l1 : strengths of the penalties of weights.

    Raises
    ------
    PgmError for settings out of their range.

    Examples
    --------
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

    @property
    def moments(self) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("m",) if self.momentum else ()

    def rule(self, t: int) -> Rule:
        """Return the rule of step t."""
        return Rule(_kernels.SGD, (self.momentum, 0.0))


@dataclass(frozen=True)
class Adam(_Ascent):
    """Adam (Kingma and Ba 2015, algorithm 1), ascending; the default of `fit`.

    Parameters
    ----------
    rate : learning rate, or a schedule, update -> rate.
    beta1, beta2 : shares of the first and second moment that stay from step to step, below 1.
    epsilon : added to the root of the second moment.
    weight_decay, l1 : strengths of the penalties of weights.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization.

    Examples
    --------
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

    def rule(self, t: int) -> Rule:
        """Return the rule of step t."""
        unbias = 1 - self.beta1 ** (t + 1), 1 - self.beta2 ** (t + 1)
        return Rule(_kernels.ADAM, (self.beta1, self.beta2), unbias, self.epsilon)


@dataclass(frozen=True)
class AdaMax(_Ascent):
    """AdaMax (Kingma and Ba 2015, algorithm 2), ascending: Adam with the infinity norm.

    Parameters
    ----------
    rate : learning rate, or a schedule, update -> rate.
    beta1, beta2 : shares of the first moment and of the norm that stay from step to step, below 1.
    epsilon : added to the norm.
    weight_decay, l1 : strengths of the penalties of weights.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization.

    Examples
    --------
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

    def rule(self, t: int) -> Rule:
        """Return the rule of step t."""
        unbias = 1 - self.beta1 ** (t + 1), 1.0
        return Rule(_kernels.ADAMAX, (self.beta1, self.beta2), unbias, self.epsilon)


@dataclass(frozen=True)
class Centered:
    """The gradient of the centred model, handed to another optimizer.

    The same model in other coordinates: the fixed points are the same, the way to them is not, and
    is often shorter. With offsets o, running means of E[x | data], dW' = dW - o_a db_b^T - db_a
    o_b^T, and db' = db less the sum of dW' o over the couplings. It acts on undirected couplings
    of layers without directed parents.

    Parameters
    ----------
    optimizer : the optimizer that makes the steps. Tied is refused.
    follow : share of the mean of each update in the offsets, from 0 to 1.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Montavon and Mueller (2012), Deep Boltzmann machines and the centering trick. Melchior, Fischer
    and Wiskott (2016), How to center deep Boltzmann machines.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.Centered(pgm.SGD(0.1)).follow
    0.01
    """

    optimizer: Optimizer = SGD()
    follow: float = 0.01

    def __post_init__(self) -> None:
        check_number(self, "follow", most=1)
        check_optimizer(self.optimizer, "Centered: optimizer")
        _check_inside(self, Tied)

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer, and offsets that are not known yet."""
        offsets = {
            f"offset/{k.removesuffix('.bias')}": np.full(v.size, np.nan)
            for k, v in params.items()
            if k.endswith(".bias")
        }
        return self.optimizer.start(params) | offsets

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t along the centred gradient."""
        means = gradient.data.means(structure)
        for name, mean in means.items():
            offset = moments[f"offset/{name}"]
            followed = (1 - self.follow) * offset + self.follow * mean
            offset[:] = np.where(np.isnan(offset), mean, followed)
        bias = {name: np.ravel(gradient[f"{name}.bias"]).astype(np.float64) for name in means}
        out: dict[str, Any] = {}
        for c in structure.undirected:
            # An end with directed parents has no mean of its own.
            if not {c.a, c.b} <= set(means):
                continue
            weight, a, b = f"{c.key}.weight", moments[f"offset/{c.a}"], moments[f"offset/{c.b}"]
            terms = ((-a, bias[c.b]), (-bias[c.a], b))
            slope = out[weight] = c.projected(params[weight], _plus_outer(gradient[weight], terms))
            # In the precision of the slope, or all of it would be converted.
            a, b = a.astype(slope.dtype), b.astype(slope.dtype)
            for name, share in ((c.a, slope @ b), (c.b, a @ slope))[: 1 + (c.a != c.b)]:
                if (key := f"{name}.bias") not in gradient.idle:
                    before = out.get(key, gradient[key])
                    out[key] = before - share.reshape(np.shape(before))
        return self.optimizer.step(structure, params, gradient.replaced(out), moments, t)


def _check_inside(outer: Centered | Tied, other: type) -> None:
    """PgmError if an optimizer is inside that does not go with this one.

    Centred gradients shift each bias by offsets of its own: ties would break, or the fixed points
    of their sum would move.
    """
    inner: object = outer.optimizer
    while inner is not None and not isinstance(inner, other):
        inner = getattr(inner, "optimizer", None)
    if inner is not None:
        raise PgmError(
            f"{type(outer).__name__} does not go with {other.__name__}: centred gradients of tied "
            "parameters are not those of one parameter"
        )


def _plus_outer(slope: Any, terms: Sequence[tuple[Array, Array]]) -> Weight:
    """Return slope + sum of a b', at the stored entries of a sparse one."""
    if not is_sparse(slope):
        left, right = (
            np.stack([term[i] for term in terms], axis=1).astype(slope.dtype) for i in (0, 1)
        )
        total: Array = slope + left @ right.T
        return total
    entry = slope.tocoo()
    sums = sum(a[entry.row] * b[entry.col] for a, b in terms)
    sparse: Weight = like(slope, slope.data + sums)
    return sparse


@dataclass(frozen=True)
class Tied:
    """Groups of parameters that stay equal: each moves by the sum of the gradients of its group.

    Parameters
    ----------
    optimizer : the optimizer that makes the steps. Centered is refused.
    groups : groups of names of parameters, equal to begin with.

    Raises
    ------
    PgmError for groups that name no parameter; when learning starts, for unknown names, for names
    in two groups and for parameters that differ.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.Tied(pgm.SGD(0.1), (("a.bias", "b.bias"),)).groups
    (('a.bias', 'b.bias'),)
    """

    optimizer: Optimizer
    groups: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer, "Tied: optimizer")
        _check_inside(self, Centered)
        try:
            groups = [g if isinstance(g, str) else tuple(g) for g in self.groups]
        except TypeError:
            groups = [""]
        if any(isinstance(group, str) for group in groups):
            raise PgmError(
                f"Tied: groups must be sequences of names of parameters, not {self.groups!r}"
            )
        if not all(groups):
            raise PgmError("Tied: a group names no parameter; remove it")
        # An iterator would be at its end.
        object.__setattr__(self, "groups", tuple(groups))

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer; PgmError if a group is not equal to begin with."""
        for group in self.groups:
            for name in group:
                if sum(list(other).count(name) for other in self.groups) > 1:
                    raise PgmError(f"Tied: parameter {name!r} is named twice")
                if name not in params:
                    raise PgmError(
                        f"Tied: parameter {name!r} is unknown; the parameters are "
                        f"{', '.join(params)}"
                    )
                if not _equal(params[name], params[group[0]]):
                    raise PgmError(f"Tied: {name!r} and {group[0]!r} differ to begin with")
        return self.optimizer.start(params)

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t along the sums of the groups' gradients."""
        out: dict[str, Weight] = {}
        least = floors(structure)
        for group in self.groups:
            for name in group:
                if least.get(name) != least.get(group[0]):
                    raise PgmError(
                        f"Tied: {name!r} and {group[0]!r} have not the same range, which "
                        "noisy-or units bound"
                    )
            total = gradient[group[0]]
            for name in group[1:]:
                total = plus(total, gradient[name])
            out.update(dict.fromkeys(group, total))
        return self.optimizer.step(structure, params, gradient.replaced(out), moments, t)


def _equal(one: Weight, other: Weight) -> bool:
    """Return whether two parameters have the same shape, pattern and numbers."""
    alike = one.shape == other.shape and pattern(one) == pattern(other)
    return alike and bool((numbers(one) == numbers(other)).all())
