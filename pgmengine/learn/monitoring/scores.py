"""The score of a model in training: nats a row above independent units at base rates.

`fit` measures it a few times, on the same few rows, to tell how learning went (findings.py). The
score is the first of three that is cheap, of the units that are learned:

- log p(row | given), exact, where that takes no longer than a few updates;
- the mean-field bound of log p(row), if the model is normalised, so that log Z is 0;
- else the log probability with which the model tells a row from the same row with one unit changed,
  which does not need log Z (Ceylan and Gutmann 2018). For a unit of two states it is the log
  pseudo-likelihood of the unit. The changed unit stands for all units of its row: those that the
  base rates leave uncertain are changed more often, and count less each.

In all three the score of independent units with the means of the data is subtracted, so that a
model has the score 0 if it has learned no more than these means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.prepared import Method
from pgmengine.learn.monitoring.changes import BOUND, Pairs, changed_units, log_rate
from pgmengine.learn.positive import one_of_each_pattern
from pgmengine.model.model import Model

# log2 of the states, and the table entries, up to which exact scores are considered.
BITS, STATES = 14, 2**14
# Seconds that an exact score may take, and seconds more for each update of the fit.
CHEAP_SECONDS, SECONDS_AN_UPDATE = 2e-3, 2e-6
# Evidence patterns for which it is planned at most.
PATTERNS = 20


@dataclass(frozen=True, eq=False)
class Score:
    """A score of models on fixed rows.

    Attributes
    ----------
    rows : the rows with their evidence.
    others : the rows whose log Z is subtracted: as the model phase sees them; None where
        that log Z is 0.
    method : the method for both log Z.
    base : (rows,) the same difference for independent units at base rates.
    entropy : the mean log probability of a row by these units, without its sign.
    """

    rows: Target
    others: Target | None
    method: Method
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
    """Return the score of a fit on some rows; None where there is none.

    Parameters
    ----------
    target : rows with all their evidence, each with an observed unit that is learned.
    conditioned : the rows as the model phase sees them, or a single one if it sees all alike.
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
    exact, seconds = Exact(BITS, max_states=STATES, max_work=0), 0.0
    if one_of_each_pattern(target).rows > PATTERNS:
        seconds = np.inf
    for part in (target, others):
        if part is not None and seconds < np.inf:
            plan = exact.plan(part, ("log_z",))
            seconds += plan.seconds if plan.accepted else np.inf
    if seconds <= max(CHEAP_SECONDS, SECONDS_AN_UPDATE * updates):
        return Score(target, others, exact, base, entropy)
    if not BOUND.plan(target, ("log_z",)).accepted:
        return None
    if normalised:
        return Score(target, None, BOUND, base, entropy)
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
