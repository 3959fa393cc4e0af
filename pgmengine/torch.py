"""Models as layers of programs in torch (extra "torch").

`log_z` is differentiable in soft evidence and in parameters: its gradient is made of the exact
marginals and expected statistics of the engine, which one more question answers for each backward
pass. The engine computes in double precision on the CPU; tensors come from any device, and answers
go back to it. `log_density` is written in torch itself, and runs where its tensors are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pgmengine.apps.bridges.array_density import array_log_density
from pgmengine.apps.bridges.bridged_question import (
    NO_GRADIENT,
    NO_SECOND,
    Answers,
    BridgedQuestion,
    answers_of,
    bridged_question,
    converted,
)
from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array, RngLike
from pgmengine.declare.model import ModelLike, as_model
from pgmengine.infer.question.prepared import MethodLike

with needed_by("pgmengine.torch"):
    import torch
    from torch import Tensor
    from torch.autograd import Function


def log_z(
    model: ModelLike,
    evidence: Any = None,
    *,
    soft: Mapping[Any, Tensor] | None = None,
    params: Mapping[str, Tensor] | None = None,
    do: Any = None,
    method: MethodLike | None = None,
) -> Tensor:
    """Return log Z of each row, differentiable in soft evidence and in parameters.

    Use it as a layer: a network computes the soft evidence of a chain, a tree or any model of small
    width, and log Z of the model with the labels observed less log Z without them is the
    log-likelihood of the labels (a neural CRF).

    Parameters
    ----------
    model : a model, or the Fit that holds it.
    evidence, do : as in `infer`, also in tensors; rows of evidence are rows of the answer. They
        have no gradient, and tensors that require one are refused.
    soft : layer or variable -> log weights of its states, in the shapes of `infer`, in nats.
    params : parameter -> numbers in place of those of `model.params`, by the same names and in the
        same shapes. Rows of conditional tables are normalised. A sparse weight has the numbers that
        it stores, (nnz,).
    method : `pgm.Exact()` by default, or another exact method.

    Returns
    -------
    Log Z (rows,), on the device and in the precision of the first tensor; double precision if
    there is none. The derivative in soft evidence is the probability of each state, the one in a
    parameter its expected statistic; each backward pass asks one question.

    Raises
    ------
    PgmError if the input is unusable, if the model is too wide for exact answers, and where second
    derivatives are taken.

    References
    ----------
    Lafferty, McCallum and Pereira (2001), Conditional random fields; Wainwright and Jordan (2008),
    Graphical models, exponential families, and variational inference.

    Examples
    --------
    >>> import torch
    >>> import pgmengine as pgm
    >>> from pgmengine.torch import log_z
    >>> field = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    >>> log_z(pgm.rbm(3, 2, rng=0), soft={"v": field}).sum().backward()
    >>> field.grad.shape  # the probabilities of v = 1
    torch.Size([3])
    """
    given = _constants(evidence, "evidence"), soft, params, _constants(do, "do")
    question, tensors = bridged_question(model, *given, method, True, torch.as_tensor)
    found: Tensor = _LogZ.apply(question, *tensors)
    return found


def infer(
    model: ModelLike,
    evidence: Any = None,
    want: Iterable[str] = ("marginals",),
    *,
    soft: Mapping[Any, Tensor] | None = None,
    params: Mapping[str, Tensor] | None = None,
    do: Any = None,
    method: MethodLike | None = None,
    rng: RngLike = None,
) -> Answers:
    """Return marginals and draws as tensors.

    Use it for predictions, and with `log_density` for expectations in the middle of a program.
    A backward pass through marginals raises PgmError. Draws are constants for every
    gradient.

    Parameters
    ----------
    model, evidence, soft, params, do : as in `log_z`.
    want : "marginals", "samples" or both.
    method, rng : as in `pgm.infer`, so that models that are too wide have estimates.
        `pgm.Exact(draws=50)` makes 50 draws.

    Returns
    -------
    Answers, with `mean`, `prob` and `samples` by name, and with the `result`, whose status says
    whether estimates deserve to be used.

    Raises
    ------
    PgmError as `pgm.infer`, and where the gradient of marginals is taken.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> from pgmengine.torch import infer
    >>> infer(pgm.rbm(3, 2, rng=0), {"v": [1, 0, 1]}).mean["h"].shape
    torch.Size([2])
    """
    given = _constants(evidence, "evidence"), soft, params, _constants(do, "do")
    question, tensors = bridged_question(model, *given, method, False, torch.as_tensor)
    result = question.ask(_numpy(tensors), want, rng=rng)
    mean, prob = (
        {name: _Refused.apply(x, *tensors) for name, x in answers_of(result, answer).items()}
        for answer in ("mean", "prob")
    )
    drawn = {name: _tensor(x, tensors) for name, x in answers_of(result, "samples").items()}
    return Answers(mean, prob, drawn, result)


def log_density(
    model: ModelLike, states: Mapping[Any, Tensor], params: Mapping[str, Tensor] | None = None
) -> Tensor:
    """Return the log of the unnormalised joint density of complete states, a function in torch.

    Use it to run a model on a GPU, as the prior or the energy of a larger program. It is
    differentiable in states and parameters, any number of times.

    Parameters
    ----------
    model : a model, or the Fit that holds it.
    states : layer -> values (rows, size[, k]), as `infer` gives draws, or labels (rows, size) of
        Categorical units; variable -> numbers of states (rows,), which count from 0 whatever the
        states are called, or one-hot rows.
    params : parameter -> tensor in place of those of `model.params`, as in `log_z`.

    Returns
    -------
    The log density (rows,), equal to `model.log_density`, on the device and in the precision of
    the first tensor of floating point; double precision if there is none. Values are not read back
    from the device: a row with a value that its unit does not have is NaN.

    Raises
    ------
    PgmError for unknown names, wrong shapes, units without values, and unit types of users that
    torch does not know (`Unit.log_h_in`).

    Examples
    --------
    >>> import torch
    >>> import pgmengine as pgm
    >>> from pgmengine.torch import log_density
    >>> x = {"v": torch.zeros(2, 3), "h": torch.ones(2, 2)}
    >>> log_density(pgm.rbm(3, 2, rng=0), x)
    tensor([0., 0.])
    """
    given = converted(states, "states", torch.as_tensor)
    own = converted({} if params is None else params, "params", torch.as_tensor)
    where = _where([*given.values(), *own.values()])
    x, numbers = ({n: v.to(**where) for n, v in part.items()} for part in (given, own))
    found: Tensor = array_log_density(as_model(model), x, numbers, _LIBRARY)
    return found


class _LogZ(Function):
    """Log Z and its first derivatives."""

    @staticmethod
    def forward(ctx: Any, question: BridgedQuestion, *tensors: Tensor) -> Tensor:
        """Return log Z (rows,)."""
        ctx.question = question
        ctx.save_for_backward(*tensors)
        return _tensor(question.log_z(_numpy(tensors)), tensors)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Return the derivatives of a loss, from those in log Z."""
        needed = ctx.needs_input_grad[1:]
        return None, *_Slopes.apply(ctx.question, needed, slope, *ctx.saved_tensors)


class _Slopes(Function):
    """The first derivatives of log Z, which have none."""

    @staticmethod
    def forward(
        ctx: Any, question: BridgedQuestion, needed: Sequence[bool], slope: Tensor, *tensors: Tensor
    ) -> Any:
        """Return the derivative in each tensor, or None."""
        found = question.slopes(_numpy(tensors), _numpy([slope])[0], needed)
        pairs = zip(found, tensors, strict=True)
        return tuple(None if x is None else _tensor(x, [tensor]) for x, tensor in pairs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        """Raise PgmError."""
        raise PgmError(NO_SECOND)


class _Refused(Function):
    """An answer without a gradient."""

    @staticmethod
    def forward(ctx: Any, found: Array, *tensors: Tensor) -> Tensor:
        """Return the answer."""
        return _tensor(found, tensors)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        """Raise PgmError."""
        raise PgmError(NO_GRADIENT)


def _numpy(tensors: Sequence[Tensor]) -> list[Array]:
    """Return tensors in double precision on the CPU."""
    return [x.detach().to("cpu", torch.float64).numpy() for x in tensors]


def _constants(given: Any, what: str) -> Any:
    """Return evidence without tensors; PgmError for one that expects a gradient."""
    if not isinstance(given, Mapping):
        return given
    for name, x in given.items():
        if isinstance(x, Tensor) and x.requires_grad:
            raise PgmError(
                f"{what}: {name!r} requires a gradient, which only soft evidence and parameters "
                "have; detach the tensor, or give soft evidence"
            )
    return {n: x.cpu().numpy() if isinstance(x, Tensor) else x for n, x in given.items()}


def _where(tensors: Sequence[Tensor]) -> dict[str, Any]:
    """Return the precision and the device of the first tensor of floating point."""
    real = [x for x in tensors if x.is_floating_point()]
    device = (real or [*tensors] or [torch.empty(0)])[0].device
    return {"dtype": real[0].dtype if real else torch.float64, "device": device}


def _tensor(found: Array, tensors: Sequence[Tensor]) -> Tensor:
    """Return an answer of the engine as a tensor beside others."""
    return torch.from_numpy(np.array(found)).to(**_where(tensors))


def _constant(array: Array, like: Tensor) -> Tensor:
    """Return a constant on the device of a tensor, in its precision unless it is of integers."""
    found = torch.from_numpy(np.array(array))
    return found.to(like.device, like.dtype if found.is_floating_point() else None)


def _added(total: Tensor, columns: Array, numbers: Tensor) -> Tensor:
    """Return a sum at columns, which may repeat."""
    shape = np.broadcast_shapes(total.shape[:-1], numbers.shape[:-1])
    at = torch.from_numpy(np.array(columns, dtype=np.int64)).to(total.device)
    numbers = numbers.expand(*shape, numbers.shape[-1])
    return total.expand(*shape, total.shape[-1]).index_add(-1, at, numbers)


_LIBRARY = ArrayLibrary(torch, _constant, _added)
