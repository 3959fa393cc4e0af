"""Findings: the signs at the end of a fit that its model could be much better.

A fit measures its model by a score that is 0 for independent units at the base rates of the data
(scores.py): at the start, after half of its updates and at the end, and a long fit also after an
eighth and a quarter. Changes of the score are compared with their standard errors over rows, and
with the whole score. A run of twice the length gains about as much as the second half of the
updates, so there is a finding if this half gave a large share of the score.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, States
from pgmengine.declare.model import Model
from pgmengine.learn.monitoring.changed_rows import Pairs
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.monitoring.scores import Score, learned_units, score_for
from pgmengine.learn.run import Run

# The number of rows measured at each point is a share of the rows of all updates, and lies between
# MIN_MEASURED_ROWS and MAX_MEASURED_ROWS.
MEASURED_SHARE, MIN_MEASURED_ROWS, MAX_MEASURED_ROWS = 0.02, 50, 500
# Fits of at least this many updates are also measured after an eighth and a quarter of them. If the
# chains make the likelihood fall, it was often best there.
LONG_FIT_UPDATES = 400
# A change counts if it exceeds this many standard errors, and this share of the score.
MIN_CHANGE_ERRORS, MIN_CHANGE_SHARE = 2.5, 0.05
# Shares of the entropy of base rates. A score below SURELY_NO_GAIN_SHARE counts as that of base
# rates, and so does a score below NO_GAIN_SHARE that is within its standard errors of 0. A change
# below SURELY_NO_GAIN_SHARE does not count.
NO_GAIN_SHARE, SURELY_NO_GAIN_SHARE = 0.01, 0.005

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Watch:
    """The scores of a fit: update -> score of each row.

    `score` is None if the model has no score that is cheap; there are then no findings. `left` is
    the share of the rows of data that are not measured; if it is 0, a change has no sampling error.
    """

    score: Score | Pairs | None
    weights: Array
    dependent: bool
    left: float
    total: int
    scores: dict[int, Array] = field(default_factory=dict)
    points: frozenset[int] = frozenset()

    def anew(self) -> Watch:
        """Return the watch of another fit with the same data and number of updates."""
        return Watch(self.score, self.weights, self.dependent, self.left, self.total)

    def resume(self, scores: Mapping[int, Array]) -> None:
        """Take the scores of a checkpoint, if they belong to the same rows."""
        if all(np.shape(values) == self.weights.shape for values in scores.values()):
            self.scores = {update: np.asarray(values) for update, values in scores.items()}

    def begin(self, model: Model, update: int) -> None:
        """Measure the model before its first update, unless a checkpoint has given scores."""
        if not self.scores:
            self.measure(model, update)
        first = min(self.scores, default=update)
        made = self.total - first
        self.points = frozenset(
            first + made // part for part in ((8, 4, 2) if made >= LONG_FIT_UPDATES else (2,))
        )

    def due(self, update: int) -> int:
        """Return the next point of measurement after an update."""
        return min((u for u in self.points if u > update), default=self.total)

    def look(self, model: Model, update: int) -> None:
        """Measure the model if this update is one of the points of measurement."""
        if update in self.points:
            self.measure(model, update)

    def measure(self, model: Model, update: int) -> None:
        """Measure the scores of a model, and keep them."""
        if self.score is None or update in self.scores:
            return
        try:
            self.scores[update] = self.score.of(model)
        except PgmError as error:
            log.info("update %d: no score, so that nothing is found: %s", update, error)
            self.score = None

    def findings(self, ended: bool) -> tuple[Finding, ...]:
        """Return the findings of a fit; `ended` says whether it has made all its updates."""
        updates = sorted(self.scores)
        if self.score is None or len(updates) < 2:
            return ()
        first, last = updates[0], updates[-1]
        gain, error = self._mean(self.scores[last])
        best = max(updates[:-1], key=lambda u: self._mean(self.scores[u])[0])
        top, little = self._mean(self.scores[best])[0], SURELY_NO_GAIN_SHARE * self.score.entropy
        fall, fall_error = self._change(best, last)
        found = []
        if -fall > max(MIN_CHANGE_ERRORS * fall_error, MIN_CHANGE_SHARE * top, little):
            found.append(Finding(FindingKind.FELL, fall, fall_error))
        at_base = gain <= max(
            min(NO_GAIN_SHARE * self.score.entropy, MIN_CHANGE_ERRORS * error), little
        )
        if self.dependent and at_base:
            found.append(Finding(FindingKind.AT_BASE_RATES, gain, error))
        half = min(updates[:-1], key=lambda u: abs(2 * u - first - last))
        if found or not ended or not first < half:
            return tuple(found)
        rise, rise_error = self._change(half, last)
        if rise > max(MIN_CHANGE_ERRORS * rise_error, MIN_CHANGE_SHARE * gain, little):
            found.append(Finding(FindingKind.STILL_RISING, rise, rise_error, updates=last - first))
        return tuple(found)

    def _change(self, early: int, late: int) -> tuple[float, float]:
        """Return the mean change of the score of training rows, and its standard error."""
        # Rows that are impossible in a model give NaN, and are left out.
        with np.errstate(invalid="ignore", over="ignore"):
            change, error = self._mean(self.scores[late] - self.scores[early])
        # A score by changed rows samples units of each row, and always has a sampling error.
        return change, error if isinstance(self.score, Pairs) else error * math.sqrt(self.left)

    def _mean(self, values: Array) -> tuple[float, float]:
        """Return the weighted mean over the rows with a number, and its standard error."""
        good = np.isfinite(values)
        if not good.any():
            return -np.inf, 0.0
        share = self.weights[good] / self.weights[good].sum()
        # If squares of scores overflow, the error is infinite, and leads to no finding.
        with np.errstate(over="ignore"):
            mean = float(share @ values[good])
            return mean, float(np.sqrt((share**2) @ (values[good] - mean) ** 2))


def watch_of(run: Run, means: States, size: int, total: int) -> Watch:
    """Return the watch of a fit of `total` updates with mini-batches of `size` rows."""
    if not run.watched:
        return Watch(None, run.weights[:0], False, 0.0, total)
    rows = np.flatnonzero(run.weights > 0)
    count = int(
        np.clip(MEASURED_SHARE * size * (total - run.count), MIN_MEASURED_ROWS, MAX_MEASURED_ROWS)
    )
    if len(rows) > count:
        # A generator of its own, so that the random numbers of the fit stay the same.
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:count])
    target = run.target.take(rows).with_model(run.model)
    learned = [mask.any(axis=1) for mask in learned_units(target, run.given).values()]
    some = np.flatnonzero(np.any(learned, axis=0)) if learned else np.zeros(0, dtype=int)
    score = None
    if len(some):
        target = target.take(some)
        try:
            score = score_for(target, run.conditioned(target), run.given, means, total)
        except PgmError as error:
            log.info("no score, so that nothing is found: %s", error)
    s = run.model.structure
    dependent = bool(s.couplings) or any(len(t.layers) > 1 for t in s.tables)
    left = 1.0 - len(some) / max(int(np.count_nonzero(run.weights)), 1)
    return Watch(score, run.weights[rows[some]], dependent, left, total)
