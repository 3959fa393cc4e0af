"""Intervals of answers that include the error of learning: the same question about many models.

The answer is the one of the learned model. Its interval of 95 % has the ends at the k-th smallest
and the k-th largest of n answers by the other models, k = 0.025 (n + 1) rounded down, so that a
further answer lies between them with a probability of at least 95 %. Where answers are estimates,
their errors are in the interval as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.errors import InternalError, PgmError, listed
from pgmengine.base.types import Array, RngLike
from pgmengine.base.work.executors import spawn
from pgmengine.base.work.progress import track
from pgmengine.declare.model import StandsForModel
from pgmengine.declare.model_draws import Models
from pgmengine.infer.results.result import Result

# The answers that get intervals, and the share of models whose answers are outside them.
WITH_INTERVALS = ("mean", "prob", "joint", "log_z", "log_prob")
OUTSIDE = 0.05
# Warnings of the other models that a result takes over.
MOST_WARNINGS = 3


def models_of(given: object, rng: RngLike) -> Models:
    """Return the models of a question with parameters=True; PgmError where there are none."""
    if isinstance(given, Models):
        return given
    draw = getattr(given, "posterior", None)
    if draw is None or not isinstance(given, StandsForModel):
        raise PgmError(
            "parameters=True needs a Fit, whose data tell the error of its parameters, or the "
            f"Models of Fit.posterior or pgm.bootstrap, not {type(given).__name__}"
        )
    found: Models = draw(rng=rng)
    return found


def with_learning_error(
    models: Models, ask: Callable[..., Any], rng: RngLike, progress: bool
) -> Result | list[Result]:
    """Return the answers of a question with intervals, as `infer` returns them.

    `ask` takes a model, and random numbers as rng=.
    """
    if not np.floor(OUTSIDE / 2 * (len(models) + 1)):
        raise PgmError(
            f"an interval of 95 % takes at least 39 models, and there are {len(models)}: ask for "
            "more draws"
        )
    answer, rngs = ask(models.model, rng=rng), spawn(seeded(rng), len(models))
    jobs = list(zip(models, rngs, strict=True))
    others = [ask(one, rng=own) for one, own in track(jobs, "answers by other models", progress)]
    if isinstance(answer, Result):
        return _with_intervals(answer, others)
    return [_with_intervals(*row) for row in zip(answer, zip(*others, strict=True), strict=True)]


def _with_intervals(answer: Result, others: Sequence[Result]) -> Result:
    """Return a result with intervals over other ones; PgmError if no answer gets one."""
    names = [name for name in WITH_INTERVALS if name in answer.answers]
    if not names:
        raise PgmError(
            "parameters=True gives intervals to marginals, log_z, log_prob and pgm.Joint(...), and "
            f"the answers are {listed([*answer.answers])}"
        )
    found = {name: _ends([r.answers[name] for r in (answer, *others)]) for name in names}
    warnings = dict.fromkeys(w for r in others if not r.status.good for w in r.warnings)
    added = [f"with other parameters, {w}" for w in warnings if w not in answer.warnings]
    return replace(
        answer, parameter_intervals=found, warnings=(*answer.warnings, *added[:MOST_WARNINGS])
    )


def _ends(values: Sequence[Any]) -> Any:
    """Return the ends (..., 2) of the answers but the first; by name where they are mappings."""
    first, *rest = values
    if isinstance(first, Mapping):
        return {key: _ends([value[key] for value in values]) for key in first}
    every: Array = np.sort(np.stack([np.asarray(x) for x in rest]), axis=0)
    if every.shape[1:] != np.shape(first):
        raise InternalError(f"answers {every.shape[1:]} of other models to one of {first.shape}")
    k = int(np.floor(OUTSIDE / 2 * (len(rest) + 1)))
    ends = np.stack([every[k - 1], every[-k]], axis=-1)
    ends[np.isnan(every).any(axis=0)] = np.nan
    return ends
