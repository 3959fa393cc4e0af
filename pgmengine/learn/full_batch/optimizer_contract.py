"""The contract of optimizers that see all rows at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from pgmengine.base.types import Array, Params, Snapshot
from pgmengine.declare.model import Model
from pgmengine.learn.full_batch.objective import Objective


@dataclass(frozen=True, eq=False)
class Ascended:
    """The result of one update of a full-batch optimizer.

    Attributes
    ----------
    model : the model after the update.
    value : the objective at this model, in nats a row; None if it is not known.
    stopped : the reason for which learning ends here, or an empty string.
    updates : the number of updates made, with those of random starts.
    """

    model: Model
    value: float | None
    stopped: str = ""
    updates: int = 1


class FullBatch(ABC):
    """Base of optimizers whose updates see all rows at once, and which end when they converge.

    Its snapshot, `moments`, changes in place. It keeps nothing else from update to update.

    Attributes
    ----------
    counts_entries : whether it learns tables by counts of their entries, which `entry_counts` then
        returns.
    """

    counts_entries: ClassVar[bool] = False

    @abstractmethod
    def start(self, params: Params) -> Snapshot:
        """Return the moments before the first update."""

    @abstractmethod
    def ascend(self, objective: Objective, model: Model, moments: Snapshot, t: int) -> Ascended:
        """Return the result of update t, counted from 0, which begins at `model`."""

    def entry_counts(self, objective: Objective, model: Model) -> dict[str, Array]:
        """Return the counts, with pseudocounts, of the entries of tables, by parameter."""
        raise NotImplementedError
