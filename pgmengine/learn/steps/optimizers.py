"""Optimizers: ascent on the log-likelihood, one frozen dataclass each.

`start(params)` makes the moments, name -> array; `step(structure, params, gradient, moments, t)`
returns new parameters and changes the moments in place; t is the number of the step, from 0. The
loops are compiled (optimizers.h): a step of a parameter is one pass over its numbers, which also
writes them in single precision for the chains. With weight decay the gradient of a weight loses
weight_decay * weight + l1 * sign(weight); biases do not decay. After a step `fit` projects: a
parameter that leaves its range is set to the edge of the range.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.checks import check_instance, check_number, check_rate
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, Params, Snapshot, Weight
from pgmengine.base.work.threads import parts
from pgmengine.learn.contracts import Optimizer
from pgmengine.learn.phases.statistics import Gradient
from pgmengine.learn.steps.schedules import Rate, rate_at
from pgmengine.model.parameters import freeze
from pgmengine.model.structure import Structure
from pgmengine.model.tables import normalised
from pgmengine.model.terms.input_rows import rows_of_inputs
from pgmengine.model.weights import elementwise, like, numbers

if TYPE_CHECKING:
    from pgmengine.learn.recorded.recorder import Recorder, Slopes

# The number of parameters for each thread of a step.
PARAMETERS_PER_THREAD = 20_000

# The smallest leak of a noisy-or unit. With a leak of 0, a row in which no cause is active would be
# impossible, and nothing could be learned from it.
MIN_LEAK = 1e-6

# The smallest value of all numbers of a parameter, or of each component along its last axis.
Floor = float | tuple[float, ...]


class Stepped(dict[str, Any]):
    """New parameters, read only.

    Attributes
    ----------
    singles : name -> (parameter, its numbers in single precision). Another optimizer around this
        one may replace some of the parameters. Arrays of parameters cannot change in place, so the
        numbers are valid as long as the parameter is the same array object.
    """

    singles: dict[str, tuple[Weight, Weight]]


def check_optimizer(optimizer: object, what: str) -> None:
    """Raise PgmError unless the object is an optimizer."""
    check_instance(optimizer, what)
    if not isinstance(optimizer, Optimizer):
        raise PgmError(f"{what} must be one such as pgm.Adam(), not {told(optimizer)}")


class _Ascent:
    """Base of the compiled optimizers, whose steps follow the rule of each update."""

    rate: Rate
    weight_decay: float
    l1: float

    def __post_init__(self) -> None:
        check_rate(self, "rate")
        check_number(self, "weight_decay", "l1")

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of the moments that are kept for each parameter."""
        return ("m", "v")

    @abstractmethod
    def rule(self, t: int) -> dict[str, Any]:
        """Return the compiled step of update t.

        "kind" is the compiled routine. "keep" has the shares of the first and second moment that
        remain at each step. "unbias" has the factors that correct the moments for their start at 0.
        """

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

        A PgmError names the first parameter that is not a finite number of at most LARGEST.
        """
        rule, rate, out = self.rule(t), rate_at(self.rate, t), Stepped()
        out.singles = {}
        for k, value in params.items():
            p, g = numbers(value), numbers(gradient[k])
            g = g if g.dtype == np.float32 else g.astype(np.float64, copy=False)
            tabled = k in structure.table_groups
            impossible = np.isneginf(p) if tabled else np.zeros(0, dtype=bool)
            if impossible.any():
                # The routine takes only finite numbers; the moments of these entries remain 0.
                p, g = np.where(impossible, 0.0, p), np.where(impossible, g.dtype.type(0), g)
            new, single = np.empty(len(p)), np.empty(len(p), dtype=np.float32)
            within = _kernels.ascend(
                **rule,
                rate=rate,
                decay=(self.l1, self.weight_decay) if k in structure.weight_names else (0.0, 0.0),
                p=p,
                g=g,
                p2=new,
                copy=single,
                m=moments.get(f"m/{k}"),
                v=moments.get(f"v/{k}"),
                parts=parts(len(p), PARAMETERS_PER_THREAD),
            )
            if not within:
                raise _diverged(t + 1, k, g, new)
            if impossible.any():
                new[impossible] = single[impossible] = -np.inf
            if (idle := gradient.idle.get(k)) is not None:
                # Weight decay would move them.
                new = np.where(idle.ravel(), numbers(value), new)
                single = new.astype(np.float32)
            out[k] = freeze(like(value, new))
            out.singles[k] = out[k], like(value, single)
        return out

    def _recorded(self, recorder: Recorder, slopes: Slopes) -> None:
        """Append the step of each parameter to a compiled update."""
        rule, rate = self.rule(0), recorder.rate(self.rate)
        for k, single in recorder.single.items():
            weight, slope, work = (
                k in recorder.structure.weight_names,
                slopes.values[k],
                recorder.work[k],
            )

            def failure(
                update: int, k: str = k, slope: Array = slope, work: Array = work
            ) -> PgmError:
                return _diverged(update, k, slope, work)

            recorder.add(
                "ascend",
                failure,
                layer=recorder.names[k],
                n=single.size,
                a=slope,
                copy=single,
                work=work,
                step=rule["kind"],
                keep=rule["keep"],
                epsilon=rule["epsilon"],
                decay=(self.l1, self.weight_decay) if weight else (0.0, 0.0),
                scale=slopes.factors.get(k, 1.0),
                moments=tuple(recorder.moments.get(f"{name}/{k}") for name in ("m", "v")),
                rate=rate,
                parts=parts(single.size, PARAMETERS_PER_THREAD),
            )


def _diverged(update: int, name: str, gradient: Array, stepped: Array) -> PgmError:
    """Return the error for a parameter that has diverged in a step."""
    if not np.isfinite(gradient).all():
        what = f"the gradient of {name!r} is not finite"
    elif not np.isfinite(stepped).all():
        what = f"{name!r} is not finite"
    else:
        what = f"{name!r} is beyond {_kernels.LARGEST:g}"
    return PgmError(f"update {update}: {what}; learning has diverged, try a smaller rate")


@dataclass(frozen=True)
class SGD(_Ascent):
    """Stochastic gradient ascent: m = momentum m + g, theta += rate m.

    Parameters
    ----------
    rate : learning rate, or a schedule, update -> rate.
    momentum : share of the velocity m that remains from step to step, below 1.
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
        super().__post_init__()
        check_number(self, "momentum", below=1)

    @property
    def moments(self) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("m",) if self.momentum else ()

    def rule(self, t: int) -> dict[str, Any]:
        """Return the rule of step t."""
        keep, unbias = (self.momentum, 0.0), (1.0, 1.0)
        return {"kind": _kernels.SGD, "keep": keep, "unbias": unbias, "epsilon": 0.0}

    record = _Ascent._recorded


@dataclass(frozen=True)
class _Adaptive(_Ascent):
    """Base of optimizers that divide each step by a running average of the size of the gradient."""

    rate: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    l1: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "epsilon")
        check_number(self, "beta1", "beta2", below=1)


@dataclass(frozen=True)
class Adam(_Adaptive):
    """Adam (Kingma and Ba 2015, algorithm 1), ascending; the default of `fit`.

    Parameters
    ----------
    rate : learning rate, or a schedule, update -> rate.
    beta1, beta2 : shares of the first and second moment that remain from step to step, below 1.
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

    def rule(self, t: int) -> dict[str, Any]:
        """Return the rule of step t."""
        keep = self.beta1, self.beta2
        unbias = 1 - self.beta1 ** (t + 1), 1 - self.beta2 ** (t + 1)
        return {"kind": _kernels.ADAM, "keep": keep, "unbias": unbias, "epsilon": self.epsilon}

    record = _Ascent._recorded


@dataclass(frozen=True)
class AdaMax(_Adaptive):
    """AdaMax (Kingma and Ba 2015, algorithm 2), ascending: Adam with the infinity norm.

    Parameters
    ----------
    rate : learning rate, or a schedule, update -> rate.
    beta1, beta2 : shares of the first moment and of the norm that remain from step to step, below
        1.
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

    def rule(self, t: int) -> dict[str, Any]:
        """Return the rule of step t."""
        keep, unbias = (self.beta1, self.beta2), (1 - self.beta1 ** (t + 1), 1.0)
        return {"kind": _kernels.ADAMAX, "keep": keep, "unbias": unbias, "epsilon": self.epsilon}

    record = _Ascent._recorded


def noisy_or_floors(structure: Structure) -> dict[str, float]:
    """Return the smallest allowed value of each parameter of noisy-or units."""
    out: dict[str, float] = {}
    for key, t in structure.parameters.items():
        if (t.directed or t.is_bias) and structure.layers[t.layers[-1]].unit.nonnegative:
            out[key] = MIN_LEAK if t.is_bias and t.whole else 0.0
    return out


def floors(structure: Structure) -> dict[str, Floor]:
    """Return the smallest allowed values of each parameter that has some.

    They are one number, or one for each component of a child whose inputs are rows of the
    parameter.
    """
    out: dict[str, Floor] = {**noisy_or_floors(structure)}
    for key, unit in rows_of_inputs(structure).items():
        if max(unit.least_inputs) > -math.inf:
            out[key] = unit.least_inputs
    return out


def projected(structure: Structure, params: Params) -> Params:
    """Return the parameters in their ranges: at least their floors, conditionals normalised.

    A parameter that is within its range is returned as the same array.
    """
    return with_normalised(structure, raised(params, floors(structure)))


def with_normalised(structure: Structure, params: Params) -> Params:
    """Return the parameters, with the rows of conditionals normalised."""
    tables = [t for t in structure.tables if t.conditional]
    return {**params, **{t.key: normalised(t, params[t.key]) for t in tables}} if tables else params


def raised(params: Params, least: Mapping[str, Floor]) -> Params:
    """Return the parameters, where the named ones are at least these values."""
    if not least:
        return params
    out: dict[str, Weight] = dict(params)
    for name, value in least.items():
        out[name] = elementwise(partial(np.maximum, value), out[name])
    return out
