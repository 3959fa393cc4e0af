"""The objective of rows of different lengths: the sum over the models of their lengths.

A template has a model for each number of steps, and its parameters are shared by name. The rows of
each length have an objective of their own. Counts and gradients of shared parameters are added:

    objective = sum over lengths n of  total weight_n * objective_n  /  sum of the total weights.

The model with the most steps holds the parameters; others take theirs from it. Rows that observe
nothing have the log-likelihood 0 at all parameters, so that only their weights count, in the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.learn.full_batch.chain_counts import Chains, chains_of
from pgmengine.learn.full_batch.fixed_rows import slopes_with_kept
from pgmengine.learn.full_batch.objective import Evaluation, Objective
from pgmengine.model.parameters import Parameters
from pgmengine.model.weights import plus


class JoinedObjective(Objective):
    """The objective of rows whose models share parameters by name.

    Attributes
    ----------
    parts : the objectives of the rows of each model; the first one holds all parameters.
    blank : the sum of the weights of rows that observe nothing, and are in no part.
    """

    def __init__(self, parts: Sequence[Objective], blank: float = 0.0) -> None:
        # The first part says which parameters there are, and which units are latent.
        self.__dict__.update(copy(parts[0]).__dict__)
        self.parts = tuple(parts)
        self.total = sum(part.total for part in parts) + blank
        self.complete = all(part.complete for part in parts)
        self.counted_once = all(part.counted_once for part in parts)
        self.fixed = _in_all(parts, [part.fixed for part in parts])
        self.uninformed = _in_all(parts, [part.uninformed for part in parts])
        self._last: list[tuple[Model, str, Evaluation]] = []
        # Objectives that differ in their fixed entries share the chains.
        self._chains: list[Chains | None] = []
        for part in parts[1:]:
            check_shared(parts[0].target.model, part.target.model)

    @property
    def exact(self) -> bool:
        """Whether expectations given the data are exact for rows of every length."""
        return all(part.exact for part in self.parts)

    @property
    def chains(self) -> Chains | None:
        """The rows of all lengths as chains; None where rows are not chains, or not exact."""
        if not self._chains:
            plain = self.exact and not any(part.complete for part in self.parts)
            targets, weights = zip(*((p.target, p.weights) for p in self.parts), strict=True)
            self._chains.append(chains_of(targets, weights) if plain else None)
        return self._chains[0]

    def weighed_rows(self, model: Model) -> Iterator[tuple[Target, Array]]:
        """Yield the rows of each length, with the parameters of a model, and their weights."""
        for part in self.parts:
            yield part.target.with_model(_with_shared(part, model)), part.weights

    def _rows_and_given(self, model: Model) -> list[tuple[Target, Mapping[str, Array]]]:
        shared = [part.target.with_model(_with_shared(part, model)) for part in self.parts]
        return [(target, part.given) for target, part in zip(shared, self.parts, strict=True)]

    def _counts(self, model: Model) -> Evaluation:
        summed = None if self.chains is None else self.chains.counts(model)
        if summed is not None:
            log_z, counts = summed
            return Evaluation(log_z / self.total, dict(counts))
        found = [part.counts(_with_shared(part, model)) for part in self.parts]
        return self._joined(model, found, [1.0] * len(found))

    def _gradient(self, model: Model) -> Evaluation:
        # Without given units, a normalised model has no other phase.
        plain = model.structure.normalized and not self.given and self.chains is not None
        summed = self.chains.gradient(model) if plain and self.chains is not None else None
        if summed is not None:
            log_z, found_slopes = summed
            slopes = {key: slope / self.total for key, slope in found_slopes.items()}
            for t in model.structure.table_groups.values():
                if t.conditional and t.key in self.fixed:
                    kept = self.fixed[t.key]
                    slopes[t.key] = slopes_with_kept(model.params[t.key], slopes[t.key], kept)
            for key, value in model.params.items():
                # Biases that stay as they are declared.
                slopes.setdefault(key, np.zeros(np.shape(value)))
            return Evaluation(log_z / self.total, slopes)
        found = [part.gradient(_with_shared(part, model)) for part in self.parts]
        return self._joined(model, found, [part.total / self.total for part in self.parts])

    def _joined(
        self, model: Model, found: Sequence[Evaluation], shares: Sequence[float]
    ) -> Evaluation:
        """Return the sum of the evaluations of all parts, the slopes times these shares."""
        slopes: dict[str, Weight] = {}
        for one, share in zip(found, shares, strict=True):
            for key, slope in one.slopes.items():
                if key not in model.params or np.shape(slope) != np.shape(model.params[key]):
                    # The biases of an array, one for each unit, which stay as they are declared.
                    continue
                slopes[key] = plus(slopes[key], slope, share) if key in slopes else share * slope
        for key, value in model.params.items():
            if key not in slopes:
                slopes[key] = np.zeros(np.shape(value))
        values = [one.value for one in found]
        if any(value is None for value in values):
            return Evaluation(None, slopes)
        weighted = zip(values, self.parts, strict=True)
        total = sum(value * part.total for value, part in weighted if value is not None)
        return Evaluation(total / self.total, slopes)


def _with_shared(part: Objective, model: Model) -> Model:
    """Return the model of a part with the parameters that it shares with another model."""
    own = part.target.model.params
    shared: dict[str, Any] = {
        key: model.params[key]
        for key, value in own.items()
        if key in model.params and np.shape(model.params[key]) == np.shape(value)
    }
    return Model(part.target.structure, {**own, **shared})


def _in_all(parts: Sequence[Objective], masks: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return parameter -> mask of the numbers that the masks of all parts with them have."""
    first = parts[0].target.model.params
    out = dict(masks[0])
    for part, own in zip(parts[1:], masks[1:], strict=True):
        for key in out:
            # The biases of an array stay at every length.
            other = part.target.model.params.get(key)
            if other is not None and np.shape(other) == np.shape(first[key]):
                out[key] = out[key] & own[key] if key in own else np.zeros_like(out[key])
    return {key: mask for key, mask in out.items() if mask.any()}


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
