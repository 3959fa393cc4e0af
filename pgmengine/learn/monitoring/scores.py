"""The score of a model in training: nats a row above independent units at base rates.

`fit` measures it a few times, always on the same rows, to judge how learning went (findings.py).
The score covers the units that are learned. It is the first of these three that is cheap:

- log p(row | given), exact, where that takes no longer than a few updates;
- the mean-field bound of log p(row), if the model is normalised, so that log Z is 0;
- else the log probability with which the model distinguishes a row from the same row with one unit
  changed, which does not need log Z (Ceylan and Gutmann 2018). For a unit with two states it is the
  log pseudo-likelihood of the unit. The changed unit represents all units of its row: units that
  are uncertain at base rates are changed more often, and have smaller weights.

In all three the score of independent units with the means of the data is subtracted, so that a
model has the score 0 if it has learned no more than these means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.learn.monitoring.changed_rows import BOUND_METHOD, Pairs, changed_units, log_rate
from pgmengine.learn.phases.positive import one_of_each_pattern

# The largest log2 of the number of states, and the largest number of table entries, for which exact
# scores are considered.
MAX_SCORE_BITS, MAX_SCORE_ENTRIES = 14, 2**14
# The largest planned time of an exact score: seconds, and additional seconds for each update of the
# fit.
MAX_SCORE_SECONDS, SCORE_SECONDS_PER_UPDATE = 2e-3, 2e-6
# The largest number of evidence patterns for which an exact score is planned.
MAX_SCORED_PATTERNS = 20


@dataclass(frozen=True, eq=False)
class Score:
    """A score of models on fixed rows.

    Attributes
    ----------
    rows : the rows with their evidence.
    others : the rows as the model phase sees them, whose log Z is subtracted; None if that log Z is
        0.
    method : the method for the log Z of both.
    base : (rows,) the log probability of the row by independent units at base rates.
    entropy : the entropy of these units in nats: minus the mean log probability of a row.
    """

    rows: Target
    others: Target | None
    method: AnyMethod
    base: Array
    entropy: float

    def of(self, model: Model) -> Array:
        """Return the score of each row, (rows,)."""
        found = self.method.run(self.rows.with_model(model), ("log_z",)).log_z
        if self.others is not None:
            others = self.others.with_model(model)
            found = found - self.method.run(others, ("log_z",)).log_z
        return found - self.base


def score_for(
    target: Target,
    conditioned: Target,
    given: Mapping[str, Array],
    means: Mapping[str, Array],
    updates: int,
) -> Score | Pairs | None:
    """Return the score of a fit on some rows; None if no score is cheap.

    Parameters
    ----------
    target : rows with all their evidence, each with an observed unit that is learned.
    conditioned : the rows as the model phase sees them; a single one if they are all the same.
    given : layer -> (size,) the units that are given.
    means : layer -> the means of the data.
    updates : updates of the fit, which say how long an exact score may take.
    """
    etas = base_parameters(target, means)
    learned = learned_units(target, given)
    if not learned or not set(learned) <= set(etas):
        return None
    layers, values = target.structure.layers, target.evidence.values
    each = {
        name: log_rate(
            layers[name], layers[name].shaped(values[name].astype(np.float64)), etas[name]
        )
        for name in learned
    }
    base = sum(np.where(mask, each[name], 0.0).sum(axis=1) for name, mask in learned.items())
    base = np.asarray(base)
    entropy = float(np.abs(base.mean()))
    normalised = target.structure.normalized and not given
    others = None if normalised else conditioned
    exact, seconds = Exact(MAX_SCORE_BITS, max_states=MAX_SCORE_ENTRIES, max_work=0), 0.0
    if one_of_each_pattern(target).rows > MAX_SCORED_PATTERNS:
        seconds = np.inf
    for part in (target, others):
        if part is not None and seconds < np.inf:
            plan = exact.plan(part, ("log_z",))
            seconds += plan.seconds if plan.accepted else np.inf
    if seconds <= max(MAX_SCORE_SECONDS, SCORE_SECONDS_PER_UPDATE * updates):
        return Score(target, others, exact, base, entropy)
    if not BOUND_METHOD.plan(target, ("log_z",)).accepted:
        return None
    if normalised:
        return Score(target, None, BOUND_METHOD, base, entropy)
    return changed_units(target, learned, etas, each)


def base_parameters(target: Target, means: Mapping[str, Array]) -> States:
    """Return layer -> natural parameters of independent units with these means."""
    out = {}
    for name, mean in means.items():
        unit = target.structure.layers[name].unit
        if not unit.observed_only and (unit.width == 1 or unit.one_hot):
            out[name] = unit.natural(mean)
    return out


def learned_units(target: Target, given: Mapping[str, Array]) -> dict[str, Array]:
    """Return layer -> (rows, size): the observed units whose probability is learned, if any are."""
    found = {
        name: ~target.free[name] & ~target.intervened[name] & ~given.get(name, np.False_)
        for name, layer in target.structure.layers.items()
        if not layer.unit.observed_only
    }
    return {name: mask for name, mask in found.items() if mask.any()}
