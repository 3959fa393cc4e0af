"""Fixed: an optimizer in which some entries of parameters stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.checks import check_instance
from pgmengine.base.errors import PgmError, told
from pgmengine.base.names import is_several, nearest
from pgmengine.base.types import Array, Params, Snapshot, Weight
from pgmengine.declare.model import Model
from pgmengine.learn.contracts import Optimizer
from pgmengine.learn.full_batch.fixed_rows import slopes_with_kept, with_kept
from pgmengine.learn.full_batch.objective import Objective
from pgmengine.learn.full_batch.optimizer_contract import Ascended, FullBatch
from pgmengine.learn.phases.statistics import Gradient
from pgmengine.learn.steps.optimizers import check_optimizer
from pgmengine.model.containers import array_of
from pgmengine.model.structure import Structure
from pgmengine.model.weights import like, numbers


@dataclass(frozen=True, eq=False)
class Fixed:
    """Another optimizer, in which some parameters, or entries of them, stay as they are.

    Use it to keep known numbers, such as a table from an expert, an emission of a hidden Markov
    model, or weights of a trained part. It goes around every optimizer, also EM and LBFGS. In a row
    of a conditional with fixed entries, the others share the probability that is left.

    Parameters
    ----------
    optimizer : the optimizer that learns the other entries.
    entries : names of parameters that stay as a whole, or parameter -> boolean array, True where an
        entry is fixed. An array has the shape of the parameter, or (stored entries,) for a sparse
        weight.

    Raises
    ------
    PgmError for entries of another kind; when learning starts, for unknown names and for arrays of
    other shapes.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> rain = b.variable("rain", states=("no", "yes"))
    >>> wet = b.variable("wet", states=("no", "yes"))
    >>> b.conditional("rain", (), [0.8, 0.2])
    >>> b.conditional("wet", ("rain",), [[0.9, 0.1], [0.2, 0.8]])
    >>> steps = pgm.Fixed(pgm.EM(), ["rain|.table"])
    >>> data = {"wet": ["yes", "yes", "yes", "no"]}
    >>> f = pgm.fit(b.build(), data, optimizer=steps, progress=False)
    >>> round(pgm.infer(f.model).marginal("rain")["yes"], 6)
    0.2
    """

    optimizer: Optimizer | FullBatch
    entries: Sequence[str] | Mapping[str, Array]

    def __post_init__(self) -> None:
        check_instance(self.optimizer, "Fixed: optimizer")
        if not hasattr(self.optimizer, "ascend"):
            check_optimizer(self.optimizer, "Fixed: optimizer")
        given = self.entries
        if isinstance(given, Mapping):
            for name, mask in given.items():
                kind = array_of(mask, f"Fixed: entries of {name!r}").dtype
                if kind.kind != "b":
                    raise PgmError(
                        f"Fixed: entries of {name!r} must be booleans, True where an entry is "
                        f"fixed, not {kind}"
                    )
        elif not is_several(given) or not all(isinstance(name, str) for name in given):
            raise PgmError(
                "Fixed: entries must be names of parameters, or a mapping of names to boolean "
                f"arrays, not {told(given)}"
            )

    @cached_property
    def _masks(self) -> dict[str, Array | None]:
        """The masks by parameter, None for whole parameters."""
        given = self.entries
        if isinstance(given, Mapping):
            return {name: array_of(mask, f"{name!r}") for name, mask in given.items()}
        return dict.fromkeys(given)

    def masks(self, params: Params) -> dict[str, Array]:
        """Return parameter -> mask of its stored numbers; PgmError for names and shapes."""
        out = {}
        for name, mask in self._masks.items():
            if name not in params:
                raise PgmError(
                    f"Fixed: parameter {name!r} is unknown{nearest(name, params)}; the parameters "
                    f"are {', '.join(params)}"
                )
            own = params[name]
            shape = own.shape if isinstance(own, np.ndarray) else numbers(own).shape
            if mask is not None and mask.shape != shape:
                raise PgmError(f"Fixed: {name!r} has a mask {mask.shape}, expected {shape}")
            out[name] = np.ones(shape, dtype=bool) if mask is None else mask
        return out

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer; PgmError for masks that do not fit."""
        self.masks(params)
        return self.optimizer.start(params)

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t, in which the fixed entries have not moved."""
        assert isinstance(self.optimizer, Optimizer)
        masks = self.masks(params)
        rows = {t.key for t in structure.tables if t.conditional}
        slopes = {
            name: slopes_with_kept(params[name], gradient[name], mask)
            if name in rows
            else like(gradient[name], np.where(mask.ravel(), 0.0, numbers(gradient[name])))
            for name, mask in masks.items()
        }
        stepped = self.optimizer.step(structure, params, gradient.replaced(slopes), moments, t)
        kept = {
            name: _kept(params[name], stepped[name], mask, name in rows)
            for name, mask in masks.items()
        }
        return {**stepped, **kept}

    @property
    def counts_entries(self) -> bool:
        """Whether the optimizer inside learns tables by counts of their entries."""
        return isinstance(self.optimizer, FullBatch) and self.optimizer.counts_entries

    def entry_counts(self, objective: Objective, model: Model) -> dict[str, Array]:
        """Return the counts of the optimizer inside."""
        assert isinstance(self.optimizer, FullBatch)
        return self.optimizer.entry_counts(objective, model)

    def ascend(self, objective: Objective, model: Model, moments: Snapshot, t: int) -> Ascended:
        """Return the result of update t on all rows, in which the fixed entries do not move."""
        assert isinstance(self.optimizer, FullBatch)
        masks = self.masks(model.params)
        for c in model.structure.undirected:
            if (key := f"{c.key}.weight") in masks:
                both = c.projected(model.weight(c), like(model.weight(c), 1.0 * masks[key]))
                if not np.isin(numbers(both), (0.0, 1.0)).all():
                    raise PgmError(
                        f"Fixed: {key!r} is symmetric, and its mask is not: fix both entries of "
                        "each pair of units"
                    )
        fixed = objective.with_fixed(masks)
        return self.optimizer.ascend(fixed, model, moments, t)


def _kept(before: Weight, after: Weight, mask: Array, conditional: bool) -> Weight:
    """Return a parameter after a step, with its fixed entries as they were before the step."""
    if conditional:
        top = after.max(axis=-1, keepdims=True)
        return with_kept(before, np.exp(after - top), mask)
    return like(before, np.where(mask.ravel(), numbers(before), numbers(after)))
