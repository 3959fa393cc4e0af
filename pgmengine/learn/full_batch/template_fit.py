"""Learning of a template from rows of any length, by optimizers that see all rows at once.

The rows of each length have the model of this length (`FitData`). The model with the most steps
holds the parameters, which the others share by name. Everything else is a fit of this model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, Weight
from pgmengine.declare.model import Model
from pgmengine.declare.template import Template
from pgmengine.evidence.target import Target
from pgmengine.infer.question.templates import questions_of
from pgmengine.learn.contracts import Negative, Optimizer
from pgmengine.learn.full_batch.objective import FitData
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.starting.arguments import row_weights, target_of
from pgmengine.learn.starting.defaults import chosen
from pgmengine.learn.steps.em import EM, not_counted
from pgmengine.learn.steps.fixed import Fixed
from pgmengine.learn.steps.lbfgs import LBFGS
from pgmengine.learn.steps.optimizers import noisy_or_floors
from pgmengine.learn.steps.wrappers import holds
from pgmengine.model.names.unit_names import Member
from pgmengine.model.parameters import Parameters


@dataclass(frozen=True, eq=False)
class TemplateFit:
    """The fit of the model of the longest rows of a template, and of all rows with it.

    Attributes
    ----------
    template : the template at which learning begins.
    model, data, optimizer, sample_weight : the arguments of the fit.
    notes : sentences for the user.
    rows : the number of rows of all lengths.
    given : the optimizer as it was given, also with settings of parameters that no row has.
    """

    template: Template
    model: Model
    data: FitData
    optimizer: FullBatch | Fixed
    sample_weight: Array | None
    notes: tuple[str, ...]
    given: FullBatch | Fixed
    rows: int

    def ended(self, found: Any) -> Any:
        """Return the Fit of the template from the one of the model."""
        s, kept = self.model.structure, self.data.kept
        unbiased = {f"{name}.bias" for name, units in s.has_bias.items() if not units.any()}
        learned = {k: v for k, v in found.params.items() if k not in kept and k not in unbiased}
        # Fit.model has the type of the usual case.
        model = cast(Model, self.template.with_params(learned))
        return replace(found, model=model, optimizer=self.given, notes=found.notes + self.notes)


def template_fit(
    template: Template,
    data: object,
    optimizer: Optimizer | FullBatch | None,
    sample_weight: Any,
    given: Iterable[Member] | None,
    negative: Negative | None,
) -> TemplateFit:
    """Return how the shared parameters of a template are learned.

    Parameters
    ----------
    template : the template at which learning begins.
    data : the rows, as `rows_of_data` takes them.
    optimizer, sample_weight, given, negative : as in `fit`.

    Raises
    ------
    PgmError
        For rows without a number of steps, parameters whose shape depends on it, and optimizers
        that take mini-batches.
    """
    lengths = questions_of(template, data, None, None, what="data")
    lengths.sort(key=lambda rows: -rows.steps)
    weights = row_weights(sum(len(rows.numbers) for rows in lengths), sample_weight)
    targets, blank = _informing([rows.target for rows in lengths], weights)
    parts = [(t, weights[t.row_numbers], target_of(t.model, t, given)[2]) for t in targets]
    target, own, known = parts[0]
    first = cast(Model, target.model)
    by, why = _learner(optimizer, target, known, negative)
    longer = _with_all_parameters(template, lengths[0].steps + 1).unfolded
    check_shared(longer, first)
    kept = own_biases(longer, first)
    absent = [key for key in longer.params if key not in first.params]
    # It checks the settings of all parameters.
    by.start(longer.params)
    _check_parts(parts)
    return TemplateFit(
        template,
        # A fresh model would begin at base rates, which biases that stay as declared must not take.
        first.with_params(first.params),
        FitData(target, tuple(parts[1:]), blank, kept),
        _without(by, absent),
        None if sample_weight is None else own,
        tuple(filter(None, (why, _note_of_kept(first, kept), _note_of(absent)))),
        by,
        len(weights),
    )


def _learner(
    optimizer: Optimizer | FullBatch | None,
    target: Target,
    known: Mapping[str, Array],
    negative: Negative | None,
) -> tuple[FullBatch | Fixed, str]:
    """Return the optimizer, and why it was chosen; PgmError for one of mini-batches."""
    by, why = chosen(optimizer, target, known, negative)
    bounded, uncounted = noisy_or_floors(target.structure), not_counted(target, known)
    if by is None and uncounted and not bounded:
        by, why = LBFGS(), f"learned by LBFGS, because EM cannot learn this model: {uncounted}"
    if holds(by, FullBatch) and isinstance(by, (FullBatch, Fixed)):
        return by, why
    given = "the default of mini-batches" if by is None else repr(by)
    what = f"a template learns from all rows at once, not by {given}: "
    if bounded:
        raise PgmError(
            f"{what}EM and LBFGS do so, and neither learns noisy-or units, to which "
            f"{next(iter(bounded))!r} belongs; declare units of another type"
        )
    if not uncounted:
        raise PgmError(f"{what}take optimizer=pgm.EM()")
    raise PgmError(
        f"{what}take optimizer=pgm.LBFGS(), because EM cannot learn this model: {uncounted}"
    )


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


def _check_parts(parts: Sequence[tuple[Target, Array, Mapping[str, Array]]]) -> None:
    """Raise PgmError for parameters of other shapes, and given units that no row observes."""
    first, _, given = parts[0]
    s, seen = first.structure, dict[str, None]()
    for target, _, _ in parts:
        check_shared(first.model, target.model)
        seen |= {repr(n): None for n, x in target.pattern.observed.items() if x.any()}
    for name, units in given.items():
        if not any((t.pattern.observed[name] & known[name]).any() for t, _, known in parts):
            whole = s.layers[name].title if units.all() else ""
            what = whole or repr(s.names.of((name, int(np.argmax(units)))))
            raise PgmError(f"given: {what} is not in the data, which has {listed([*seen])}")


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


def _informing(targets: Sequence[Target], weights: Array) -> tuple[list[Target], float]:
    """Return the rows that observe something and have a weight, and the weight of blank rows.

    If there are none, all rows stay.
    """
    out, blank = list[Target](), 0.0
    for target in targets:
        own = weights[target.row_numbers]
        seen = np.zeros(target.rows, dtype=bool)
        for units in target.pattern.observed.values():
            seen |= units.any(axis=1)
        blank += float(own[~seen].sum())
        kept = np.flatnonzero(seen & (own > 0))
        out += [target.take(kept)] if len(kept) else []
    return (out, blank) if out else (list(targets), 0.0)


def own_biases(first: Parameters, other: Parameters) -> tuple[str, ...]:
    """Return the biases of layers whose sizes differ in two models of a template.

    Each unit of such a layer has a bias of its own, which no model of another length has. They stay
    as they are declared: `GraphBuilder.bias` declares a bias that all places share.
    """
    return tuple(
        key
        for key in (f"{name}.bias" for name in first.structure.layers)
        if key in other.params and np.shape(first.params[key]) != np.shape(other.params[key])
    )


def check_shared(first: Parameters, other: Parameters) -> None:
    """PgmError unless the parameters that can learn have the same shapes in both models.

    Biases of units with a conditional, and those that stay as they are declared, do not count.
    """
    biases = {f"{name}.bias" for name, units in other.structure.has_bias.items() if not units.any()}
    biases |= set(own_biases(first, other))
    params: Mapping[str, Weight] = first.params
    for key, value in other.params.items():
        if key in biases or (key in params and np.shape(params[key]) == np.shape(value)):
            continue
        there = f"has shape {np.shape(params[key])}" if key in params else "is absent"
        raise PgmError(
            f"parameter {key!r} of shape {np.shape(value)} {there} in the model with more steps: "
            "models of a template share parameters of equal names and shapes; give name= and a "
            "value that all places share"
        )
