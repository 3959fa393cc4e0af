"""A question as a function of soft evidence and parameters, for the gradients of other programs.

Log Z is a cumulant function, so that its derivatives are expectations:

    d log Z / d w_i[k] = p(x_i = k),      d log Z / d theta = E[d log_density / d theta].

Both come from one more question, with the derivative of a loss in the log Z of each row as the
weight of the row. A question is asked by the engine itself, in double precision on the CPU. Arrays
are listed soft evidence first, then parameters, each in the order in which they were given.

The weight S of a coupling inside a layer is symmetric, and each pair of units counts as one
parameter of the engine. Other programs see two numbers S_ij and S_ji, each with half of the slope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pgmengine.base.checks import check_method
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike
from pgmengine.base.work.interrupts import stoppable
from pgmengine.declare.model import Model, as_model
from pgmengine.evidence.columns import by_name, check_mapping, columns_of
from pgmengine.evidence.soft import parse_soft, takes_odds
from pgmengine.infer.answering import DEFAULT, about, answered, planned
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.prepared import MethodLike, as_method
from pgmengine.infer.results.result import Result
from pgmengine.model.weights import is_sparse, like, numbers

NO_GRADIENT = (
    "marginals have no gradient in torch and JAX: only log_z has, and only a first one; detach "
    "them, or write the loss with log_z, whose gradient in soft evidence they are"
)
NO_SECOND = (
    "log_z has no second derivatives: its gradient is made of marginals and expected statistics, "
    "which are answers of their own; take first derivatives alone"
)


@dataclass(frozen=True, eq=False)
class BridgedQuestion:
    """A question whose soft evidence and parameters are arrays that come later.

    Attributes
    ----------
    model, method, evidence, do : as in `infer`.
    soft, params : the names of the arrays.
    """

    model: Model
    method: MethodLike
    evidence: Any
    do: Any
    soft: tuple[Any, ...]
    params: tuple[str, ...]

    @stoppable
    def ask(
        self,
        arrays: Sequence[Array],
        want: Iterable[str],
        weights: Array | None = None,
        rng: RngLike = None,
    ) -> Result:
        """Return the answer of the engine; `weights` (rows,) are those of rows in a gradient."""
        several = len(self.soft)
        soft = dict(zip(self.soft, arrays[:several], strict=True))
        own = {k: self._shaped(k, a) for k, a in zip(self.params, arrays[several:], strict=True)}
        model = self.model.with_params(own) if own else self.model
        target = model.given(self.evidence, soft=soft or None, do=self.do)
        if weights is not None:
            target = replace(target, weights=weights)
        return about(model, answered(planned(target, tuple(want), self.method), rng), target)

    def _shaped(self, key: str, array: Array) -> Any:
        """Return a parameter from its numbers, at the stored entries of a sparse one."""
        own = self.model.params.get(key)
        if own is None or not is_sparse(own):
            return array
        if array.shape != (own.nnz,):
            raise PgmError(
                f"parameter {key!r} has shape {array.shape}, expected the ({own.nnz},) numbers "
                "that the sparse weight stores"
            )
        return like(own, array)

    def rows(self, shapes: Sequence[tuple[int, ...]], evidence: Any) -> int:
        """Return the number of rows, from the shapes of the arrays and any values of evidence."""
        s = self.model.structure
        soft = {name: np.zeros(shape) for name, shape in zip(self.soft, shapes, strict=False)}
        columns = columns_of(s, evidence, "evidence") + columns_of(s, self.do, "do")
        found = [len(column.entries) for column in columns if column.has_rows]
        return max([parse_soft(s, soft).rows or 1, *found])

    def log_z(self, arrays: Sequence[Array]) -> Array:
        """Return log Z of each row, (rows,)."""
        return self.ask(arrays, ("log_z",)).log_z

    def slopes(
        self, arrays: Sequence[Array], weights: Array, needed: Sequence[bool]
    ) -> list[Array | None]:
        """Return the derivatives of the sum of weights (rows,) times log Z in each array needed."""
        several = len(self.soft)
        want = ("marginals",) * any(needed[:several]) + ("gradient",) * any(needed[several:])
        result = self.ask(arrays, want, weights)
        out: list[Array | None] = [None] * len(arrays)
        given = by_name(self.model.structure, dict(zip(self.soft, arrays, strict=False)), "soft")
        for i, one in enumerate(given):
            if needed[i]:
                name, own = one.layer.name, slice(None) if one.unit is None else [one.unit]
                prob = result.raw("prob")[name].reshape(len(weights), one.layer.size, -1)[:, own]
                prob = prob[..., 1] if takes_odds(self.model.structure, one) else prob
                each = np.einsum("r,r...->r...", weights, prob)
                alike = arrays[i].size < each.size
                out[i] = (each.sum(axis=0) if alike else each).reshape(arrays[i].shape)
        gradient = result.raw("gradient") if any(needed[several:]) else {}
        for i, key in enumerate(self.params, several):
            if needed[i]:
                found = numbers(gradient[key]) * self._shares(key)
                out[i] = found.reshape(arrays[i].shape)
        return out

    def _shares(self, key: str) -> Any:
        """Return the part of a slope that belongs to each number: 0 where there is no parameter."""
        s = self.model.structure
        if any(key == f"{c.key}.weight" for c in s.undirected if c.lateral):
            return 0.5
        t = s.parameters[key]
        if not (t.whole and t.is_bias):
            return 1.0
        layer = s.layers[t.layers[0]]
        return layer.components(s.has_bias[layer.name])


def bridged_question(
    model: object,
    evidence: Any,
    soft: Any,
    params: Any,
    do: Any,
    method: MethodLike | None,
    exact: bool,
    convert: Callable[[Any], Any] = np.asarray,
) -> tuple[BridgedQuestion, list[Any]]:
    """Return a question and its arrays.

    Parameters
    ----------
    model, evidence, soft, params, do, method : as in `log_z` of the libraries.
    exact : whether the answer has to be exact, as one with a gradient; then `Exact` is the default.
    convert : makes an array of the library.
    """
    one = as_model(model)
    if method is not None:
        check_method(method)
        guarantee = getattr(as_method(method), "guarantee", "")
        if exact and guarantee != "exact":
            raise PgmError(
                f"log_z needs an exact method, as pgm.Exact(), for the gradient to be the one of "
                f"its answer; {type(method).__name__} has the guarantee {guarantee!r}"
            )
    chosen = method if method is not None else Exact() if exact else DEFAULT
    given = [{} if x is None else x for x in (soft, params)]
    check_mapping(one.structure, given[0], "soft")
    parts = [converted(x, what, convert) for x, what in zip(given, ("soft", "params"), strict=True)]
    names, arrays = tuple(map(tuple, parts)), [x for part in parts for x in part.values()]
    return BridgedQuestion(one, chosen, evidence, do, *names), arrays


def converted(given: Any, what: str, convert: Callable[[Any], Any]) -> dict[Any, Any]:
    """Return name -> array of a library; PgmError for what is no array of numbers."""
    if not isinstance(given, Mapping):
        raise PgmError(f"{what} must map names to arrays, not {type(given).__name__}")
    out = {}
    for name, x in given.items():
        # Names of states, in mappings and frames, are for `infer` of the package.
        if not hasattr(x, "shape") or hasattr(x, "columns"):
            raise PgmError(
                f"{what}: {name!r} is a {type(x).__name__}, expected an array of numbers of torch, "
                "JAX or numpy"
            )
        try:
            out[name] = convert(x)
        except (TypeError, ValueError) as error:
            raise PgmError(f"{what}: {name!r} is no array of numbers: {error}") from None
    return out


class Answers(NamedTuple):
    """Answers by the names of variables and layers, in the shapes of `Result`.

    Attributes
    ----------
    mean : name -> posterior means; empty unless marginals are wanted.
    prob : name -> probabilities of states, of units with finitely many.
    samples : name -> draws (draws, rows, size[, k]); empty unless they are wanted.
    result : the answer of the engine, with its guarantee, status and warnings.
    """

    mean: dict[Any, Any]
    prob: dict[Any, Any]
    samples: dict[Any, Any]
    result: Result


def answers_of(result: Result, answer: str) -> dict[Any, Array]:
    """Return one of `Answers` in arrays of numpy."""
    if answer not in result.answers or result.target is None:
        return {}
    found = getattr(result, answer)
    return {name: found[name] for name in result.target.structure.names.declared() if name in found}
