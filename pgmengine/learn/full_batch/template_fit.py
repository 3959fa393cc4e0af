"""Learning of a template from rows of any length, by optimizers that see all rows at once.

The rows of each length have the model of this length, and an objective of their own. An optimizer
gets the objective of all of them (whole/joined.py); the model with the most steps holds the
parameters. Everything else is a fit of this model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from pgmengine.base.checks import is_missing
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, Params, Snapshot
from pgmengine.declare.model import Model
from pgmengine.declare.template import Row, Template, rows_of_data
from pgmengine.evidence.target import Target
from pgmengine.learn.contracts import Optimizer
from pgmengine.learn.full_batch.full_batch_run import WholeRun
from pgmengine.learn.full_batch.joined import JoinedObjective, check_shared, own_biases
from pgmengine.learn.full_batch.objective import Objective
from pgmengine.learn.full_batch.optimizer_contract import Ascended, FullBatch
from pgmengine.learn.starting.arguments import row_weights, target_of
from pgmengine.learn.starting.defaults import chosen
from pgmengine.learn.steps.em import EM, not_counted
from pgmengine.learn.steps.fixed import Fixed
from pgmengine.learn.steps.lbfgs import LBFGS
from pgmengine.learn.steps.optimizers import noisy_or_floors
from pgmengine.learn.steps.wrappers import holds
from pgmengine.model.containers import array_of


@dataclass(frozen=True, eq=False)
class OfLengths(FullBatch):
    """An optimizer for rows of several lengths.

    Attributes
    ----------
    optimizer : makes the updates.
    lengths : the number of steps and of rows of each other length.
    others : the objectives of the rows of other lengths than the longest.
    kept : the parameters that stay as they are declared.
    blank : the sum of the weights of rows that observe nothing, and belong to no objective.
    """

    optimizer: FullBatch | Fixed
    lengths: tuple[tuple[int, int], ...]
    others: tuple[Objective, ...]
    kept: tuple[str, ...]
    blank: float

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer."""
        return self.optimizer.start(params)

    def other_rows(self) -> tuple[Objective, ...]:
        """Return the objectives of the rows of other lengths than the longest."""
        return self.others

    def all_rows(self, objective: Objective) -> Objective:
        """Return the objective of rows of all lengths."""
        return self._joined(objective)

    def ascend(self, objective: Objective, model: Model, moments: Snapshot, t: int) -> Ascended:
        """Return the model after an update on rows of all lengths."""
        kept = {key: np.ones(np.shape(model.params[key]), dtype=bool) for key in self.kept}
        return self.optimizer.ascend(self._joined(objective).with_fixed(kept), model, moments, t)

    def _joined(self, objective: Objective) -> Objective:
        """Return the objective of all rows; it is kept, because it remembers complete counts."""
        joined = self.__dict__.get("joined")
        if joined is None or joined.parts[0] is not objective:
            joined = JoinedObjective((objective, *self.others), self.blank)
            self.__dict__["joined"] = joined
        return cast(Objective, joined)


def fit_template(
    template: Template,
    data: object,
    optimizer: Optimizer | FullBatch | None,
    sample_weight: Any,
    settings: Mapping[str, Any],
    fit: Callable[..., Any],
) -> Any:
    """Learn the shared parameters of a template.

    Parameters
    ----------
    template : the template at which learning begins.
    data : the rows, as `rows_of_data` takes them.
    optimizer, sample_weight : as in `fit`.
    settings : the other arguments of `fit`.
    fit : learns one model.

    Returns
    -------
    A Fit whose `model` is the template with the learned parameters.

    Raises
    ------
    PgmError
        For rows without a number of steps, parameters whose shape depends on it, and optimizers
        that take mini-batches.
    """
    rows = rows_of_data(template, data, "data")
    weights = None if sample_weight is None else row_weights(len(rows), sample_weight)
    whole = template.groups(rows, "data")
    seen = _with_values(whole, rows)
    groups = _with_weight(seen, weights)
    longest, *lengths = sorted(groups, reverse=True)
    first = template(longest).unfolded
    values = _together(first, rows, groups[longest])
    target, _, known, _ = target_of(first, values, settings["given"])
    by, why = chosen(optimizer, target, known, settings["negative"])
    uncounted = not_counted(target, known)
    if by is None and uncounted and not noisy_or_floors(target.structure):
        by, why = LBFGS(), f"learned by LBFGS, because EM cannot learn this model: {uncounted}"
    if not (holds(by, FullBatch) and isinstance(by, (FullBatch, Fixed))):
        raise PgmError(_refusal(target, known, by))
    longer = _with_all_parameters(template, longest + 1).unfolded
    check_shared(longer, first)
    kept = own_biases(longer, first)
    absent = [key for key in longer.params if key not in first.params]
    # It checks the settings of all parameters.
    by.start(longer.params)
    others = []
    for steps in lengths:
        model = template(steps).unfolded
        check_shared(first, model)
        own = None if weights is None else weights[groups[steps]]
        others.append(_objective(model, _together(model, rows, groups[steps]), settings, own))
    counts = tuple((steps, len(groups[steps])) for steps in lengths)
    own = None if weights is None else weights[groups[longest]]
    all_of_them, observing = (_weight_of(part, weights) for part in (whole, seen))
    blank = all_of_them - observing
    joined = OfLengths(_without(by, absent), counts, tuple(others), kept, blank)
    # A fresh model would begin at base rates, which biases that stay as declared must not take.
    begins = first.with_params(first.params)
    found = fit(begins, values, optimizer=joined, sample_weight=own, **settings)
    learned = {
        k: v for k, v in found.model.params.items() if k not in kept and _is_shared(first, k)
    }
    notes = (*found.notes, *filter(None, (why, _note_of_kept(first, kept), _note_of(absent))))
    # Fit.model has the type of the usual case.
    learned_template = cast(Model, template.with_params(learned))
    return replace(found, model=learned_template, optimizer=by, notes=notes)


def _refusal(target: Target, known: Mapping[str, Array], by: object) -> str:
    """Return why a template cannot learn by mini-batches, and the optimizer that can."""
    given = "the default of mini-batches" if by is None else repr(by)
    what = f"a template learns from all rows at once, not by {given}: "
    if bounded := noisy_or_floors(target.structure):
        return (
            f"{what}EM and LBFGS do so, and neither learns noisy-or units, to which "
            f"{next(iter(bounded))!r} belongs; declare units of another type"
        )
    uncounted = not_counted(target, known)
    if not uncounted:
        return f"{what}take optimizer=pgm.EM()"
    return f"{what}take optimizer=pgm.LBFGS(), because EM cannot learn this model: {uncounted}"


def _note_of_kept(model: Model, kept: Sequence[str]) -> str:
    """Return a sentence about layers that have biases, but none that learned."""
    s = model.structure
    shared = {term.layers[0] for term in s.shared if term.is_bias}
    names = [
        name
        for name, units in s.has_bias.items()
        if units.any() and f"{name}.bias" in kept and name not in shared
    ]
    if not names:
        return ""
    return (
        f"the biases of {listed([repr(name) for name in names])} stay as they are declared, "
        "because each step has its own; for one that all steps share and learn, declare it by "
        "b.bias(units, 0.0, name=...)"
    )


def _with_all_parameters(template: Template, steps: int) -> Model:
    """Return the model of so many steps, or of more if that has more parameters."""
    model, longer = template(steps), template(steps + 1)
    while set(longer.params) > set(model.params):
        steps += 1
        model, longer = longer, template(steps + 1)
    return model


def _without(by: FullBatch | Fixed, absent: Sequence[str]) -> FullBatch | Fixed:
    """Return an optimizer without the settings of some parameters, which no row has."""
    if isinstance(by, Fixed):
        given, inner = by.entries, by.optimizer
        assert isinstance(inner, FullBatch)
        entries = [name for name in given if name not in absent]
        own = {name: given[name] for name in entries} if isinstance(given, Mapping) else entries
        return Fixed(cast(FullBatch, _without(inner, absent)), own)
    if isinstance(by, EM) and isinstance(by.pseudocount, Mapping):
        counts = by.pseudocount.items()
        return replace(by, pseudocount={k: v for k, v in counts if k not in absent})
    return by


def _note_of(absent: Sequence[str]) -> str:
    """Return a sentence about parameters that no row has, because all rows are too short."""
    if not absent:
        return ""
    names = listed([repr(key) for key in absent])
    return f"{names} stay as declared, because all rows are too short to have them"


def _weight_of(groups: dict[int, list[int]], weights: Array | None) -> float:
    """Return the sum of the weights of the rows of all groups."""
    numbers = [i for group in groups.values() for i in group]
    return float(len(numbers) if weights is None else weights[numbers].sum())


def _with_values(groups: dict[int, list[int]], rows: Sequence[Row]) -> dict[int, list[int]]:
    """Return the groups without rows in which nothing is observed, unless there is no other row."""
    seen = {
        steps: [i for i in numbers if not _is_blank(rows[i])] for steps, numbers in groups.items()
    }
    kept = {steps: numbers for steps, numbers in seen.items() if numbers}
    return kept or groups


def _with_weight(groups: dict[int, list[int]], weights: Array | None) -> dict[int, list[int]]:
    """Return the groups without rows of weight 0, unless there is no other row."""
    if weights is None:
        return groups
    some = {steps: [i for i in rows if weights[i]] for steps, rows in groups.items()}
    return {steps: rows for steps, rows in some.items() if rows} or groups


def _is_blank(row: Row) -> bool:
    """Whether a row observes nothing."""
    if not isinstance(row, Mapping):
        return True
    arrays = [array_of(value, f"{key!r}") for key, value in row.items()]
    return all(all(map(is_missing, array.ravel().tolist())) for array in arrays)


def _objective(
    model: Model, values: dict[Any, Any], settings: Mapping[str, Any], weights: Array | None
) -> Objective:
    """Return the objective of the rows of one length."""
    target, _, known, _ = target_of(model, values, settings["given"])
    rng = np.random.default_rng(0)
    run = WholeRun(
        model,
        target,
        row_weights(target.rows, weights),
        settings["negative"],
        settings["positive"],
        known,
        # It makes no update here. Settings of the own optimizer may be for parameters that only
        # longer models have.
        EM(),
        rng,
        (target.rows, 1),
        settings["executor"],
    )
    return run.objective


def _is_shared(model: Model, key: str) -> bool:
    """Whether a parameter is shared: all but the biases of layers without any."""
    name = key.removesuffix(".bias")
    biases = model.structure.has_bias.get(name) if key.endswith(".bias") else None
    return biases is None or bool(biases.any())


def _together(model: Model, rows: Sequence[Row], numbers: Sequence[int]) -> dict[Any, Any]:
    """Return some rows of one length as name -> values with an axis of rows.

    Names that a row leaves out are not observed in it.
    """
    chosen_rows = [rows[i] if isinstance(rows[i], Mapping) else {} for i in numbers]
    keys = list(dict.fromkeys(key for row in chosen_rows for key in cast(Any, row)))
    layers = model.structure.layers
    out = {}
    for key in keys:
        blank = np.full(layers[key].grid if key in layers else (), None, dtype=object)
        values = [cast(Any, row).get(key, blank) for row in chosen_rows]
        for i, array in zip(numbers, values, strict=True):
            if np.shape(array) != np.shape(values[0]):
                raise PgmError(
                    f"data: row {i} has {key!r} of shape {np.shape(array)}, and row {numbers[0]}, "
                    f"which has as many steps, of shape {np.shape(values[0])}: give both in one "
                    "form"
                )
        out[key] = array_of(values, f"data: {key!r}")
    return out
