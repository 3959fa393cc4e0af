"""Models as layers of programs in JAX (extra "jax").

`log_z` is differentiable in soft evidence and in parameters: its gradient is made of the exact
marginals and expected statistics of the engine, which one more question answers for each backward
pass. The engine computes in double precision on the CPU, as a callback of compiled programs.
`log_density` is written in jax.numpy itself, and runs where its arrays are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

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

with needed_by("pgmengine.jax"):
    import jax
    import jax.numpy as jnp


def log_z(
    model: ModelLike,
    evidence: Any = None,
    *,
    soft: Mapping[Any, jax.Array] | None = None,
    params: Mapping[str, jax.Array] | None = None,
    do: Any = None,
    method: MethodLike | None = None,
) -> jax.Array:
    """Return log Z of each row, differentiable in soft evidence and in parameters.

    Use it as a layer: a network computes the soft evidence of a chain, a tree or any model of small
    width, and log Z of the model with the labels observed less log Z without them is the
    log-likelihood of the labels (a neural CRF). It works under `jax.grad`, `jax.vjp`, `jax.jit` and
    `jax.vmap`, which asks one question after the other: rows of one question are faster.

    Parameters
    ----------
    model : a model, or the Fit that holds it.
    evidence : as in `infer`; rows of evidence are rows of the answer. Arrays of JAX may be traced.
        It has no gradient: derivatives in it are NaN.
    soft : layer or variable -> log weights of its states, in the shapes of `infer`, in nats.
    params : parameter -> numbers in place of those of `model.params`, by the same names and in the
        same shapes. Rows of conditional tables are normalised. A sparse weight has the numbers that
        it stores, (nnz,).
    do : as in `infer`, but not traced.
    method : `pgm.Exact()` by default, or another exact method.

    Returns
    -------
    Log Z (rows,), in the precision of the first array. The derivative in soft evidence is the
    probability of each state, the one in a parameter its expected statistic; each backward pass
    asks one question.

    Raises
    ------
    PgmError if the input is unusable, if the model is too wide for exact answers, and where second
    derivatives are taken. Compiled programs raise an error of JAX with its message.

    References
    ----------
    Lafferty, McCallum and Pereira (2001), Conditional random fields; Wainwright and Jordan (2008),
    Graphical models, exponential families, and variational inference.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import pgmengine as pgm
    >>> from pgmengine.jax import log_z
    >>> model = pgm.rbm(3, 2, rng=0)
    >>> jax.grad(lambda x: log_z(model, soft={"v": x})[0])(jnp.zeros(3)).shape
    (3,)
    """
    given = model, evidence, soft, params, do, method
    question, inputs = bridged_question(*given, True, jnp.asarray)
    # Arrays of JAX may be traced, and are arguments of the callback.
    named = evidence.items() if isinstance(evidence, Mapping) else ()
    seen = {name: x for name, x in named if isinstance(x, jax.Array)}
    rest = {name: x for name, x in named if name not in seen} if seen else evidence
    asked = _Asked(question, rest, tuple(seen), _precision(inputs))
    stand_in = {**rest, **{n: np.full(x.shape, np.nan) for n, x in seen.items()}} if seen else rest
    rows = question.rows([x.shape for x in inputs], stand_in)
    values = [jnp.asarray(x, float) for x in seen.values()]
    found: jax.Array = _log_z(asked, rows, values, inputs)
    return found


def infer(
    model: ModelLike,
    evidence: Any = None,
    want: Iterable[str] = ("marginals",),
    *,
    soft: Mapping[Any, jax.Array] | None = None,
    params: Mapping[str, jax.Array] | None = None,
    do: Any = None,
    method: MethodLike | None = None,
    rng: RngLike = None,
) -> Answers:
    """Return marginals and draws as arrays of JAX.

    Use it for predictions, and with `log_density` for expectations in the middle of a program.
    Ask outside of `jit`, and outside of functions whose gradient is taken. Draws
    are constants for every gradient.

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
    >>> from pgmengine.jax import infer
    >>> infer(pgm.rbm(3, 2, rng=0), {"v": [1, 0, 1]}).mean["h"].shape
    (2,)
    """
    given = model, evidence, soft, params, do, method
    question, inputs = bridged_question(*given, False, jnp.asarray)
    if any(isinstance(x, jax.core.Tracer) for x in inputs):
        raise PgmError(f"{NO_GRADIENT}; outside of jit and grad, infer answers")
    result, own = question.ask(_numpy(inputs), want, rng=rng), _precision(inputs)
    mean, prob, drawn = (
        {name: jnp.asarray(x, own) for name, x in answers_of(result, answer).items()}
        for answer in ("mean", "prob", "samples")
    )
    return Answers(mean, prob, drawn, result)


def log_density(
    model: ModelLike, states: Mapping[Any, jax.Array], params: Mapping[str, jax.Array] | None = None
) -> jax.Array:
    """Return the log of the unnormalised joint density of complete states, a function in JAX.

    Use it to run a model on a GPU, as the prior or the energy of a larger program. It is
    differentiable in states and parameters, any number of times, and compiles.

    Parameters
    ----------
    model : a model, or the Fit that holds it.
    states : layer -> values (rows, size[, k]), as `infer` gives draws, or labels (rows, size) of
        Categorical units; variable -> numbers of states (rows,), which count from 0 whatever the
        states are called, or one-hot rows.
    params : parameter -> array in place of those of `model.params`, as in `log_z`.

    Returns
    -------
    The log density (rows,), equal to `model.log_density`, in the precision of the first array of
    floating point. Values may be traced: a row with a value that its unit does not have is NaN.

    Raises
    ------
    PgmError for unknown names, wrong shapes, units without values, and unit types of users that
    JAX does not know (`Unit.log_h_in`).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import pgmengine as pgm
    >>> from pgmengine.jax import log_density
    >>> x = {"v": jnp.zeros((2, 3)), "h": jnp.ones((2, 2))}
    >>> log_density(pgm.rbm(3, 2, rng=0), x).shape
    (2,)
    """
    given = converted(states, "states", jnp.asarray)
    own = converted({} if params is None else params, "params", jnp.asarray)
    precision = _precision([*given.values(), *own.values()])
    x, numbers = ({n: v.astype(precision) for n, v in part.items()} for part in (given, own))
    found: jax.Array = array_log_density(as_model(model), x, numbers, _LIBRARY)
    return found


# JAX has no types for it.
_SHAPE: Any = jax.ShapeDtypeStruct


class _Asked(NamedTuple):
    """A question with the names of the evidence in arrays of JAX, and the precision of answers."""

    question: BridgedQuestion
    rest: Any
    seen: tuple[Any, ...]
    precision: Any

    def of(self, values: Sequence[Any]) -> BridgedQuestion:
        """Return the question with the values of this evidence."""
        if not self.seen:
            return self.question
        given = dict(zip(self.seen, map(np.asarray, values), strict=True))
        return replace(self.question, evidence={**self.rest, **given})

    def log_z(self, values: Sequence[Any], inputs: Sequence[Any]) -> Array:
        """Return log Z (rows,)."""
        return self.of(values).log_z(_numpy(inputs)).astype(self.precision)

    def slopes(self, values: Sequence[Any], inputs: Sequence[Any], slope: Any) -> list[Any]:
        """Return the derivatives of a loss in the inputs, from those in log Z."""
        whole = _numpy(inputs)
        found = self.of(values).slopes(whole, _numpy([slope])[0], [True] * len(inputs))
        return [np.asarray(x, a.dtype) for x, a in zip(found, inputs, strict=True)]


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _answer(asked: _Asked, rows: int, values: Any, inputs: Any) -> Any:
    """Return log Z (rows,) where its first derivatives are taken."""
    out = _SHAPE((rows,), asked.precision)
    return _called(asked.log_z, out, values, inputs)


_log_z = jax.custom_vjp(_answer.fun, nondiff_argnums=(0, 1))


def _forward(asked: _Asked, rows: int, values: Any, inputs: Any) -> Any:
    return _answer(asked, rows, values, inputs), (values, inputs)


def _backward(asked: _Asked, rows: int, kept: Any, slope: Any) -> Any:
    values, inputs = kept
    # Evidence has no gradient, and a derivative of 0 would hide it.
    return [jnp.full_like(x, jnp.nan) for x in values], _slopes(asked, values, inputs, slope)


_log_z.defvjp(_forward, _backward)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _slopes(asked: _Asked, values: Any, inputs: Any, slope: Any) -> Any:
    """Return the first derivatives of log Z by a callback; they have none."""
    out = [_SHAPE(x.shape, x.dtype) for x in inputs]
    return _called(asked.slopes, out, values, inputs, slope)


def _second(*given: Any) -> Any:
    raise PgmError(NO_SECOND)


_answer.defjvp(_second)
_slopes.defjvp(_second)


def _called(function: Any, out: Any, *given: Any) -> Any:
    """Return the answer of the engine, by a callback where arrays are traced.

    A callback would raise every error as one of JAX.
    """
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(given)):
        return jax.pure_callback(function, out, *given, vmap_method="sequential")
    return jax.tree.map(jnp.asarray, function(*given))


def _numpy(inputs: Sequence[Any]) -> list[Array]:
    """Return arrays in double precision."""
    return [np.asarray(x, dtype=np.float64) for x in inputs]


def _precision(arrays: Sequence[jax.Array]) -> Any:
    """Return the precision of the first array of floating point, else the highest of JAX."""
    real = [x.dtype for x in arrays if jnp.issubdtype(x.dtype, jnp.floating)]
    return (real or [jnp.zeros(()).dtype])[0]


def _constant(array: Array, like: jax.Array) -> jax.Array:
    """Return a constant, in the precision of an array unless it is of integers."""
    return jnp.asarray(array, like.dtype if array.dtype.kind == "f" else None)


def _added(total: jax.Array, columns: Array, numbers: jax.Array) -> jax.Array:
    """Return a sum at columns, which may repeat."""
    shape = np.broadcast_shapes(total.shape[:-1], numbers.shape[:-1])
    return jnp.broadcast_to(total, (*shape, total.shape[-1])).at[..., columns].add(numbers)


_LIBRARY = ArrayLibrary(jnp, _constant, _added)
