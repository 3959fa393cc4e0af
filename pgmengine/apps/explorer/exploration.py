"""The evidence of an exploration: what is given about each unit, and the call of `infer` for it.

The same dictionaries are asked and written as code, so that the code gives the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import LayerValues
from pgmengine.declare.model import Model
from pgmengine.evidence.soft import likelihood
from pgmengine.model.layer import Layer
from pgmengine.model.names.unit_names import Place
from pgmengine.model.structure import Structure

# Units of a layer that are given by their own names; more are given as the array of the layer.
MAX_NAMED_UNITS = 4

# Significant digits of likelihoods, which are written as code.
LIKELIHOOD_DIGITS = 4

# The number of a state, or the value of a unit that is none of finitely many states.
Value = int | float


@dataclass(frozen=True)
class Given:
    """Evidence, interventions and soft evidence of units; a unit has at most one of the three.

    Attributes
    ----------
    observed, done : place -> number of a state (int) or value (float), by evidence and by do().
    soft : place -> likelihood of each state, at most 1.
    """

    observed: Mapping[Place, Value] = field(default_factory=dict)
    done: Mapping[Place, Value] = field(default_factory=dict)
    soft: Mapping[Place, tuple[float, ...]] = field(default_factory=dict)

    @property
    def key(self) -> Hashable:
        """A value that is equal for equal evidence."""
        return tuple(frozenset(part.items()) for part in (self.observed, self.done, self.soft))

    def without(self, places: Iterable[Place]) -> Given:
        """Return what is given about other units."""
        drop = set(places)
        return Given(
            {p: v for p, v in self.observed.items() if p not in drop},
            {p: v for p, v in self.done.items() if p not in drop},
            {p: v for p, v in self.soft.items() if p not in drop},
        )

    def observing(self, places: Iterable[Place], state: int) -> Given:
        """Return the same with units observed in a state."""
        return self._with("observed", dict.fromkeys(places, state))

    def doing(self, places: Iterable[Place], state: int) -> Given:
        """Return the same with units set to a state by do()."""
        return self._with("done", dict.fromkeys(places, state))

    def weighing(self, place: Place, likelihoods: tuple[float, ...]) -> Given:
        """Return the same with soft evidence about a unit; none if all states are as likely."""
        if len(set(likelihoods)) == 1:
            return self.without([place])
        return self._with("soft", {place: likelihoods})

    def _with(self, part: str, values: Mapping[Place, Any]) -> Given:
        rest = self.without(values)
        return Given(**{**vars(rest), part: {**getattr(rest, part), **values}})


def given_of(model: Model, evidence: LayerValues | None) -> Given:
    """Return evidence that a user gave.

    Raises
    ------
    PgmError if it is unusable, or has several rows.
    """
    target = model.given(evidence)
    if target.evidence.has_rows and target.rows > 1:
        raise PgmError(
            f"explore shows one row of evidence, and was given {target.rows}; give one of them"
        )
    observed = dict[Place, Value]()
    for name, layer in model.structure.layers.items():
        values = layer.shaped(target.evidence.values[name])[0]
        for unit in np.flatnonzero(target.pattern.observed[name][0]).tolist():
            observed[name, unit] = _value(layer, values[unit])
    return Given(observed)


def _value(layer: Layer, value: Any) -> Value:
    """Return the number of the state with this value, or the value if it is no state."""
    support = layer.unit.support
    if support is not None:
        state = int(layer.unit.state_of(np.asarray(value)[None])[0])
        if np.allclose(support[state], value):
            return state
    return float(np.ravel(value)[0])


@dataclass(frozen=True)
class Arguments:
    """The arguments of `infer` for evidence, by the names that users give.

    Attributes
    ----------
    evidence, do : name of a unit or of a layer -> a state, or the states of the layer.
    likelihoods : name of a unit -> likelihood of each state.
    """

    evidence: dict[Any, Any]
    do: dict[Any, Any]
    likelihoods: dict[Any, list[float]]

    @property
    def soft(self) -> Any:
        """The argument `soft`."""
        return likelihood(self.likelihoods) if self.likelihoods else None

    def code(self) -> str:
        """Return the arguments as Python."""
        parts = [repr(self.evidence)] if self.evidence or not self.do else []
        parts += [f"do={self.do!r}"] * bool(self.do)
        parts += [f"soft=pgm.likelihood({self.likelihoods!r})"] * bool(self.likelihoods)
        return ", ".join(parts)


def arguments(structure: Structure, given: Given) -> Arguments:
    """Return what is given as arguments of `infer`."""
    keys = {place: key for key, place in structure.names.by_key().items()}
    soft = {keys[place]: list(values) for place, values in given.soft.items()}
    return Arguments(
        _by_name(structure, keys, given.observed), _by_name(structure, keys, given.done), soft
    )


def _by_name(
    structure: Structure, keys: Mapping[Place, Hashable], values: Mapping[Place, Value]
) -> dict[Any, Any]:
    """Return name -> state, by units or by whole layers."""
    out = dict[Any, Any]()
    for name, layer in structure.layers.items():
        units = sorted(unit for at, unit in values if at == name)
        variable = (name, 0) in structure.variables or layer.holds_variables
        if len(units) <= MAX_NAMED_UNITS or variable:
            out |= {keys[name, i]: state_given(layer, values[name, i]) for i in units}
            continue
        whole = np.full(layer.size, None, dtype=object)
        for i in units:
            whole[i] = state_given(layer, values[name, i])
        out[name] = whole.reshape(layer.grid).tolist()
    return out


def state_given(layer: Layer, value: Value) -> Any:
    """Return a state as evidence names it: its name, its number, or the value of a unit."""
    if isinstance(value, float):
        return value
    if layer.state_table is not None:
        name = layer.state_table.names[value]
        plain = isinstance(name, (str, bool, int, float))
        return name if plain else layer.state_table.text(value, layer.title)
    if layer.unit.width > 1:
        return value
    assert layer.unit.support is not None
    number = float(layer.unit.support[value])
    return int(number) if number == math.floor(number) else number


def tilted(likelihoods: tuple[float, ...], state: int, change: float) -> tuple[float, ...]:
    """Return likelihoods with those of one state changed by log-odds, scaled and rounded."""
    logs = np.log(likelihoods)
    logs[state] += change
    scaled = np.exp(logs - logs.max())
    return tuple(float(f"{x:.{LIKELIHOOD_DIGITS}g}") for x in scaled)
