"""The observation that tells most about a variable: mutual information given the evidence.

With the state s of the target t clamped in turn, one question about all rows gives the marginals
of every other unit c, and with them

    I(t; c | e) = sum_s p(s | e) sum_j p(j | s, e) log p(j | s, e) / p(j | e),

the mean fall of the entropy of t when c is observed. The states of the target are few, so that all
candidates together cost about as much as one answer for each of its states.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import real
from pgmengine.base.display import as_html, as_text, plain
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array, RngLike
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.evidence.columns import Values
from pgmengine.evidence.soft import Soft
from pgmengine.evidence.target import Target
from pgmengine.infer.insight.impact import observations, open_place, rows_of
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.prepared import MethodLike
from pgmengine.infer.results.result import Result
from pgmengine.model.names.unit_names import Member, Place

if TYPE_CHECKING:
    import pandas as pd

# Information in nats that rounding alone can make.
ROUNDING = 1e-14

COLUMNS = ("observe", "information in nats", "cost", "information for each unit of cost")


@dataclass(frozen=True)
class Gain:
    """The information of one unobserved unit about the target.

    Attributes
    ----------
    name : the unit.
    information : the mutual information with the target given the evidence, in nats.
    error : its standard error; 0 where it is exact, NaN where it is not known.
    cost : the cost of the observation.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> found = pgm.best_observation(pgm.read(pgm.datasets.asia()), "lung", costs={"xray": 2})
    >>> [str(gain) for gain in found.gains if gain.name == "xray"]
    ['xray: 0.1281 nats, 0.06405 for each unit of cost']
    """

    name: Hashable
    information: float
    error: float
    cost: float

    @property
    def rate(self) -> float:
        """The information for each unit of cost."""
        return self.information / self.cost

    def __str__(self) -> str:
        error = "" if self.error == 0 else f" ± {self.error:.2g}"
        cost = "" if self.cost == 1 else f", {self.rate:.4g} for each unit of cost"
        return f"{plain(self.name)}: {self.information:.4g}{error} nats{cost}"


@dataclass(frozen=True)
class BestObservation:
    """All candidates for the next observation, the best one first.

    Attributes
    ----------
    target : the variable that the observation is about.
    entropy : its entropy given the evidence, in nats.
    gains : a Gain for each candidate, by information for each unit of cost.
    kind : the guarantee of the answers: "exact", "bounds", "estimate" or "approximation".
    warnings : the warnings of the answers.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> print(str(pgm.best_observation(pgm.read(pgm.datasets.asia()), "tub")).splitlines()[0])
    Best observation about tub, whose entropy is 0.05783 nats; exact
    """

    target: Hashable
    entropy: float
    gains: tuple[Gain, ...]
    kind: str
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> Hashable:
        """The unit that tells most about the target for its cost."""
        return self.gains[0].name

    def __repr__(self) -> str:
        lines = [*map(str, self.gains)]
        return as_text("\n  ".join([self._head, *self.warnings[:1]]), lines, len(lines))

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        rows = [
            (plain(g.name), f"{g.information:.4g}", f"{g.cost:g}", f"{g.rate:.4g}")
            for g in self.gains
        ]
        return as_html(self._head, COLUMNS, rows, len(rows), [*self.warnings[:1]])

    @property
    def _head(self) -> str:
        about = f"{plain(self.target)}, whose entropy is {self.entropy:.4g} nats"
        return f"Best observation about {about}; {self.kind}"


def best_observation(
    model: ModelLike,
    target: Member,
    evidence: Mapping[str, ArrayLike] | pd.DataFrame | None = None,
    costs: Mapping[Any, float] | None = None,
    soft: Soft | None = None,
    do: Mapping[str, ArrayLike] | pd.DataFrame | None = None,
    method: MethodLike | None = None,
    rng: RngLike = None,
    seconds: float | None = None,
) -> BestObservation:
    """Return which unobserved unit tells most about a variable, given what is known.

    Use it to choose the next test, sensor or question: the unit with the largest mutual information
    with the target, or with the largest one for each unit of cost.

    Parameters
    ----------
    model : the model, or the Fit that holds it.
    target : the variable, or (layer, number of a unit), that is not observed.
    evidence : one row of evidence, as in `infer`.
    costs : name -> cost of observing the unit, above 0; math.inf for a unit that cannot be
        observed, which is left out. Other units cost 1.
    soft, do, method, rng, seconds : as in `infer`.

    Returns
    -------
    A BestObservation: `name` is the best unit, `gains` all candidates with their information.

    Raises
    ------
    PgmError if the evidence has several rows, if the target is observed or has infinitely many
    states, for unknown names and costs that are no numbers above 0, and if no unit is left.

    References
    ----------
    Lindley (1956), On a measure of the information provided by an experiment.

    >>> import pgmengine as pgm
    >>> net = pgm.read(pgm.datasets.asia())
    >>> found = pgm.best_observation(net, "lung", {"dysp": "yes"}, costs={"either": 100})
    >>> found.name, round(found.gains[0].information, 3)
    ('xray', 0.209)
    """
    model = as_model(model)
    given = model.given(evidence, soft=soft, do=do)
    place = open_place(model, given, target, "target")
    prices = _prices(model, costs)
    places = [p for p in _candidates(model, given) if p != place and np.isfinite(prices.get(p, 1))]
    if not places:
        raise PgmError("best_observation: no unit is left that could be observed")
    settings: dict[str, Any] = dict(soft=soft, do=do, method=method, rng=rng, seconds=seconds)
    now = infer(model, _clamped(model, given, place, 1, None), **settings)
    p = np.asarray(now.raw("prob")[place[0]])[0, place[1]]
    possible = np.flatnonzero(p > 0)
    then = infer(model, _clamped(model, given, place, len(possible), possible), **settings)
    gains = [
        Gain(
            model.structure.names.of(one),
            *_information(now, then, one, p[possible]),
            float(prices.get(one, 1.0)),
        )
        for one in places
    ]
    gains.sort(key=lambda gain: -gain.rate)
    kinds = [r.kind for r in (now, then) if r.kind != "exact"]
    warnings = tuple(dict.fromkeys((*now.warnings, *then.warnings)))
    entropy = -float(np.sum(p[possible] * np.log(p[possible])))
    return BestObservation(
        model.structure.names.of(place), entropy, tuple(gains), (*kinds, "exact")[0], warnings
    )


def _prices(model: Model, costs: Mapping[Any, float] | None) -> dict[Place, float]:
    """Return the costs by place."""
    found = dict[Place, float]()
    if costs is None:
        return found
    if not isinstance(costs, Mapping):
        raise PgmError(f"costs must be a mapping from names to numbers, not {told(costs)}")
    for name, cost in costs.items():
        if not real(cost) > 0:
            raise PgmError(f"costs[{name!r}] must be a number above 0, not {told(cost)}")
        found[model.structure.names.unit(name, "costs")] = float(cost)
    return found


def _candidates(model: Model, given: Target) -> Iterator[Place]:
    """Yield the free units with finitely many states."""
    s = model.structure
    for name in s.layers:
        if s.state_counts[name] and name not in s.auxiliary:
            yield from ((name, i) for i in np.flatnonzero(given.free[name][0]).tolist())


def _clamped(model: Model, given: Target, place: Place, rows: int, states: Array | None) -> Values:
    """Return rows of the evidence, in which the unit at a place has these states if any."""
    places = observations(model, given)
    found = rows_of(model, given, places, np.ones((rows, len(places)), dtype=bool))
    if states is None:
        return found
    name, unit = place
    layer = model.structure.layers[name]
    flat = np.array(found[name], dtype=np.float64).reshape(rows, layer.width)
    width, support = layer.unit.width, np.asarray(layer.unit.support)
    flat[:, unit * width : (unit + 1) * width] = support[states].reshape(rows, width)
    return Values({**found, name: layer.shaped(flat)})


def _information(now: Result, then: Result, place: Place, p: Array) -> tuple[float, float]:
    """Return the information of the unit at a place and its standard error.

    `p` are the probabilities of the target's states, which are the rows of `then`.
    """
    name, unit = place
    before = np.asarray(now.raw("prob")[name])[0, unit]
    after = np.asarray(then.raw("prob")[name])[:, unit]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(after > 0, np.log(after) - np.log(before), 0.0)
    found = float((p[:, None] * after * ratio).sum())
    found = found if found > ROUNDING else 0.0
    if now.kind == then.kind == "exact":
        return found, 0.0
    # The first order in the probabilities given the target, which have most of the error.
    slopes = p[:, None] * ratio
    return found, float(np.sqrt((slopes**2 * _variances(then, place)).sum()))


def _variances(result: Result, place: Place) -> Array:
    """Return the squared standard errors (rows, states) of probabilities; NaN if not known."""
    name, unit = place
    layer, rows = result.target.structure.layers[name], result.target.rows  # type: ignore[union-attr]
    states = len(np.atleast_1d(layer.unit.support))  # type: ignore[arg-type]
    found = np.full((rows, states), np.nan)
    errors = result.stats.get("mcse", {}).get(name)
    if errors is None:
        return found
    own = np.reshape(errors, (rows, layer.size, -1))[:, unit]
    if own.shape[1] == states:
        return np.asarray(own**2)
    if states == 2:
        return np.asarray((own / np.ptp(layer.unit.support)) ** 2 + np.zeros(2))  # type: ignore[arg-type]
    return found
