"""The impact of each observation on one variable, in log-odds.

The log-odds of a state s of x are log P(x = s) - log P(x != s). An observation e among the evidence
E has two contributions to them, its weights of evidence (Good 1950, Probability and the Weighing of
Evidence, chapter 6):

    removed   log-odds(s | E) - log-odds(s | E without e)    the last piece of evidence
    alone     log-odds(s | e) - log-odds(s)                  the only piece of evidence

Neither depends on an order of the observations. They are equal, and those of all observations add
up to the whole change, where the observations are independent given x. Where they say the same
twice, `removed` is smaller: of two sensors that cannot fail, each adds nothing to the other. The
average over all orders (Shapley 1953) would need the answers for all subsets of the evidence; the
two contributions are differences of answers of their own, and need 2 n + 2 of them.

A certain state has infinite log-odds. Two infinite log-odds that are equal differ by 0, because the
observation has changed nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.display import as_html, as_text, few, plain
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.evidence.columns import Values
from pgmengine.evidence.frames import state_keys
from pgmengine.evidence.soft import Soft
from pgmengine.evidence.target import Target
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.prepared import MethodLike
from pgmengine.infer.results.by_name import state_values
from pgmengine.infer.results.result import Result
from pgmengine.model.names.unit_names import Member, Place
from pgmengine.model.tables import check_finite

if TYPE_CHECKING:
    import pandas as pd

# The columns of the table for notebooks.
COLUMNS = ("observation", "when it is removed", "alone")

# Digits after the point that a log-odds may have; rounding leaves fewer.
ROUNDED_DIGITS = 12


@dataclass(frozen=True)
class Contribution:
    """The contribution of one observation to the log-odds of each state of a variable.

    Attributes
    ----------
    name : the observed unit, or the name under which soft evidence was given.
    value : its state or value; None for soft evidence.
    removed : state -> the change of the log-odds that this observation makes as the last one.
    alone : state -> the change of the log-odds that it makes as the only one.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> net = pgm.read(pgm.datasets.asia())
    >>> first = pgm.impact(net, {"xray": "yes", "dysp": "yes"}, "lung").contributions[0]
    >>> str(first), round(first.removed["yes"], 2), round(first.alone["yes"], 2)
    ('xray=yes', 2.66, 2.8)
    """

    name: Hashable
    value: Any
    removed: Mapping[Hashable, float]
    alone: Mapping[Hashable, float]

    def __str__(self) -> str:
        if self.value is None:
            return f"soft evidence on {plain(self.name)}"
        return f"{plain(self.name)}={plain(_text(self.value))}"


@dataclass(frozen=True)
class Impact:
    """The contributions of all observations to the log-odds of the states of one variable.

    Attributes
    ----------
    name : the variable.
    before : state -> log-odds without evidence (interventions and inputs are in place).
    after : state -> log-odds given all evidence.
    contributions : one for each observation, the largest change by removal first.
    kind : the guarantee of the log-odds: "exact", "estimate" or "lower bound".
    warnings : the warnings of the answers from which they come.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> net = pgm.read(pgm.datasets.asia())
    >>> found = pgm.impact(net, {"xray": "yes"}, "lung")
    >>> [(one.name, round(one.removed["yes"], 2)) for one in found.contributions]
    [('xray', 2.8)]
    """

    name: Hashable
    before: Mapping[Hashable, float]
    after: Mapping[Hashable, float]
    contributions: tuple[Contribution, ...]
    kind: str
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        lines = [
            f"{one}: {_changes(one.removed)}; alone {_changes(one.alone)}"
            for one in self.contributions
        ]
        return as_text("\n  ".join([self._head, self._way, *self.warnings[:1]]), lines, len(lines))

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        rows = [
            (str(one), _changes(one.removed), _changes(one.alone)) for one in self.contributions
        ]
        return as_html(self._head, COLUMNS, rows, len(rows), [self._way, *self.warnings[:1]])

    @property
    def _head(self) -> str:
        return f"Impact on {plain(self.name)}: changes of log-odds; {self.kind}"

    @property
    def _way(self) -> str:
        ways = [
            f"{plain(s)} from {_rounded(self.before[s]):.4g} to {_rounded(self.after[s]):.4g}"
            for s in self.after
        ]
        return f"log-odds: {few(ways)}"


def impact(
    model: ModelLike,
    evidence: Mapping[str, ArrayLike] | pd.DataFrame | None,
    name: Member,
    soft: Soft | None = None,
    do: Mapping[str, ArrayLike] | pd.DataFrame | None = None,
    method: MethodLike | None = None,
    rng: RngLike = None,
    seconds: float | None = None,
) -> Impact:
    """Return the log-odds that each observation contributes to the states of one variable.

    Use it to see why an answer is as it is: which observations speak for a state, which against it,
    and which say nothing that the others do not say as well.

    Parameters
    ----------
    model : the model, or the Fit that holds it.
    evidence : one row of evidence, as in `infer`; each observed unit is an observation.
    name : the variable, or (layer, number of a unit), that is not observed.
    soft : soft evidence, as in `infer`; each entry is an observation.
    do : interventions, as in `infer`. Like values of inputs, they hold in all answers.
    method, rng, seconds : as in `infer`.

    Returns
    -------
    An Impact with a Contribution for each observation, in natural logarithms of odds (nats).
    Certain states have infinite log-odds.

    Raises
    ------
    PgmError if the evidence has several rows, if the variable is observed or has infinitely many
    states, or if a probability could not be computed.

    References
    ----------
    Good (1950), Probability and the Weighing of Evidence.

    >>> import pgmengine as pgm
    >>> net = pgm.read(pgm.datasets.asia())
    >>> print(pgm.impact(net, {"xray": "yes", "dysp": "yes"}, "lung"))
    Impact on lung: changes of log-odds; exact
      log-odds: yes from -2.844 to 0.4949, no from 2.844 to -0.4949
      xray=yes: yes +2.66, no -2.66; alone yes +2.8, no -2.8
      dysp=yes: yes +0.54, no -0.54; alone yes +0.677, no -0.677
    """
    model = as_model(model)
    target = model.given(evidence, soft=soft, do=do)
    place = open_place(model, target, name, "impact")
    places = observations(model, target)
    ask = _Ask(model, place, dict(do=do, method=method, rng=rng, seconds=seconds))
    every = np.ones((1, len(places)), dtype=bool)
    each = np.eye(len(places), dtype=bool)
    full = ask(rows_of(model, target, places, np.concatenate([every, ~each])), soft)
    single = ask(rows_of(model, target, places, np.concatenate([~every, each])), None)
    states = state_keys(model.structure.layers[place[0]])
    found = [
        Contribution(
            model.structure.names.of(one),
            _state(model, target, one),
            _by_state(states, _change(full[0], full[1 + i])),
            _by_state(states, _change(single[1 + i], single[0])),
        )
        for i, one in enumerate(places)
    ]
    weights: dict[Any, Any] = dict(soft or {})
    for key, weight in weights.items():
        others = {k: v for k, v in weights.items() if k != key}
        without = ask(rows_of(model, target, places, every), others or None)[0]
        alone = ask(rows_of(model, target, places, ~every), {key: weight})[0]
        removed = _by_state(states, _change(full[0], without))
        found.append(Contribution(key, None, removed, _by_state(states, _change(alone, single[0]))))
    found.sort(key=lambda one: -max(map(abs, one.removed.values())))
    return Impact(
        model.structure.names.of(place),
        _by_state(states, single[0]),
        _by_state(states, full[0]),
        tuple(found),
        next((r.kind for r in ask.results if r.kind != "exact"), "exact"),
        tuple(dict.fromkeys(w for r in ask.results for w in r.warnings)),
    )


def open_place(model: Model, target: Target, name: Member, what: str) -> Place:
    """Return the place of a free unit with finitely many states, in a single row of evidence.

    PgmError, which begins with `what`, for everything else.
    """
    if target.evidence.has_rows:
        raise PgmError(
            f"{what} is about one row of evidence without an axis of rows, and was given "
            f"{target.rows} rows; ask about each row by itself"
        )
    place = model.structure.names.unit(name, what)
    check_finite(model.structure, place[0])
    if not target.free[place[0]][0, place[1]]:
        raise PgmError(
            f"{what}: {model.structure.names.of(place)!r} is given, so that no observation "
            "changes its probabilities; name a variable that is not observed"
        )
    return place


class _Ask:
    """The log-odds (rows, states) of one unit for rows of evidence, and the results so far."""

    def __init__(self, model: Model, place: Place, settings: dict[str, Any]) -> None:
        self.model, self.place, self.settings = model, place, settings
        self.results: list[Result] = []

    def __call__(self, rows: Values, soft: Any) -> Array:
        result: Result = infer(self.model, rows, soft=soft, **self.settings)
        self.results.append(result)
        layer, unit = self.place
        return _log_odds(np.asarray(result.raw("prob")[layer])[:, unit], result)


def _log_odds(prob: Array, result: Result) -> Array:
    """Return the log-odds of each state (rows, states); the sum of the others keeps its digits."""
    if np.isnan(prob).any():
        raise PgmError(
            "impact: probabilities could not be computed: "
            f"{(*result.warnings, result.status.value)[0]}"
        )
    states = prob.shape[1]
    others = prob @ (1.0 - np.eye(states))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(prob) - np.log(others))


def _change(after: Array, before: Array) -> Array:
    """Return differences of log-odds; 0 where both are infinite and equal."""
    same = after == before
    return np.where(same, 0.0, np.where(same, 0.0, after) - np.where(same, 0.0, before))


def observations(model: Model, target: Target) -> list[Place]:
    """Return the places of the units that are observed, without inputs and interventions."""
    found = list[Place]()
    for name, layer in model.structure.layers.items():
        if not layer.unit.observed_only:
            seen = target.pattern.observed[name][0] & ~target.intervened[name][0]
            found += [(name, i) for i in np.flatnonzero(seen).tolist()]
    return found


def rows_of(model: Model, target: Target, places: list[Place], kept: Array) -> Values:
    """Return the evidence with some observations in each row; `kept` is (rows, observations)."""
    masks = {
        name: np.full((len(kept), layer.size), layer.unit.observed_only)
        for name, layer in model.structure.layers.items()
    }
    for (name, unit), column in zip(places, kept.T, strict=True):
        masks[name][:, unit] = column
    rows = Values()
    for name, layer in model.structure.layers.items():
        flat = np.where(layer.components(masks[name]), target.evidence.values[name], np.nan)
        rows[name] = layer.shaped(flat)
    return rows


def _state(model: Model, target: Target, place: Place) -> Any:
    """Return the state of an observed unit by its name, or its value."""
    layer = model.structure.layers[place[0]]
    return state_values(layer, layer.shaped(target.evidence.values[place[0]]))[0, place[1]]


def _by_state(states: tuple[Hashable, ...], numbers: Array) -> dict[Hashable, float]:
    return dict(zip(states, numbers.tolist(), strict=True))


def _changes(changes: Mapping[Hashable, float]) -> str:
    """Return the changes of the log-odds of the states as text."""
    return few([f"{plain(state)} {_rounded(change):+.3g}" for state, change in changes.items()])


def _text(value: Any) -> str:
    """Return a state, or a value of a unit without names of states, as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rounded(odds: float) -> float:
    """Return a number of log-odds without the rounding that is left of numbers that cancel."""
    return round(odds, ROUNDED_DIGITS) + 0.0
