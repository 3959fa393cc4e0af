"""A fit under way with an optimizer that sees all rows at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pgmengine.base.types import Array
from pgmengine.evidence.target import Target
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.learn.contracts import Negative, Positive
from pgmengine.learn.full_batch.counting import is_complete
from pgmengine.learn.full_batch.objective import Objective, Rows
from pgmengine.learn.full_batch.sharded_rows import Reading, ShardedRows, further_rows, names_in
from pgmengine.learn.full_batch.spreads import collapsed, other_spreads
from pgmengine.learn.full_batch.unused_states import unused_states
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.negative.exact_gradient import ExactGradient
from pgmengine.learn.recorded.recorded_updates import Call
from pgmengine.learn.run import Run, compact

# Updates of a fit whose length is not given, with an exact objective, which tells when it has
# converged, and with expectations by samples or bounds, which do not.
MAX_UPDATES, MAX_UPDATES_OF_ESTIMATES = 1000, 50


class WholeRun(Run):
    """A fit under way whose updates see all rows.

    Its findings need no scores, because the objective itself is known.
    """

    watched = False
    objective: Objective

    def _begin(
        self,
        target: Target,
        negative: Negative | None,
        positive: Positive | AnyMethod | None,
        optimizer: Any,
        plan: tuple[int, int],
    ) -> None:
        """Start the model phase, and make the objective."""
        self.negative = negative or ExactGradient(single=False)
        if not self.normalized:
            self.model_phase = self.negative.start(self.conditioned(target), self.rng)
        self.precision = np.float64
        self.target = compact(target, np.float64)
        own = self.target, self.weights, self.given, self.idle, self.uninformed, self.model_phase
        parts = [Rows(*own, positive, self.rng, self.executor)]
        if self.data.shards is not None:
            columns = names_in(self.data.values)
            reading = Reading(self.model, self.given, self.negative, positive, columns)
            parts = [ShardedRows(parts[0], self.data.shards, reading)]
        for other, weights, given in self.data.others:
            same = compact(other, np.float64), weights, given
            parts.append(further_rows(*same, self.negative, positive, self.executor))
        self.objective = Objective(parts, self.data, self.rng, self.notes, self.allowance)
        self.positive, self.optimizer = self.objective.method, optimizer
        self.factorised = is_complete(target)
        if not self.objective.exact:
            self.notes["data phase"] = (
                f"expectations given the data are by {type(self.positive).__name__}, which may not "
                "be exact, so that the objective is not known: it may fall, and learning ends "
                "after the last update"
            )

    def most_updates(self, total: int) -> int:
        """Return the number of updates of a fit whose length is not given."""
        return MAX_UPDATES if self.objective.exact else MAX_UPDATES_OF_ESTIMATES

    def next_rows(self, size: int) -> Array:
        """Return all rows."""
        return np.arange(self.target.rows)

    def call(self, most: int) -> Call | None:
        """Return None, because updates are made in Python."""
        return None

    def finish(self, call: Call | None) -> str:
        """Make an update of all rows, and before the first one those of random starts.

        Returns the reason for which learning ends, or an empty string.
        """
        found = self.optimizer.ascend(self.objective, self.model, self.moments, self.count)
        self.model, self.value, self.count = found.model, found.value, self.count + found.updates
        self.notes.pop("converged", None)
        if not found.stopped and self.objective.exact:
            self.notes["converged"] = (
                f"{self.count} updates have not converged; go on with more (updates=)"
            )
        return str(found.stopped)

    def masks_of_uninformed(self) -> Mapping[str, Array]:
        """Return the masks of the numbers that no row of any model informs."""
        return self.objective.uninformed

    def findings(self) -> tuple[Finding, ...]:
        """Return findings of standard deviations, and of unused states of latent variables."""
        whole = self.objective
        narrow = collapsed(self.model, whole.weighed_rows(self.model))
        # Data of a state that is not used are far from the means of the others.
        if unused := unused_states(whole, self.model):
            return (*narrow, *unused)
        found = list(narrow)
        for name, (sigma, spread) in other_spreads(whole, self.model).items():
            what = f"{name!r} has sigma={sigma:.4g}"
            found.append(Finding(FindingKind.OTHER_SIGMA, np.nan, 0.0, what, sigma=spread))
        return tuple(found)
