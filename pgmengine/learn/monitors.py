"""Monitors: callbacks (model, update) -> name -> value, or None for updates in between.

All but EarlyStopping take `every`, the number of updates from one value to the next. Those that
look at data take layer -> (rows, size) of complete or incomplete rows, or a DataFrame, as fit does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pgmengine.base.checks import check_number, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, LayerValues, States
from pgmengine.engine.chains import make_chains, start
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.frames import data_by_layer
from pgmengine.graph.model import Model
from pgmengine.graph.target import Target
from pgmengine.graph.weights import numbers
from pgmengine.infer.exact.method import Exact
from pgmengine.infer.prepared import Method
from pgmengine.infer.sampling.ais import AIS
from pgmengine.infer.sampling.travels import Travels
from pgmengine.infer.variational.factors import Factors
from pgmengine.infer.variational.mean_field import MeanField
from pgmengine.protocols import Kernel, ModelPhase, Monitor, Records

Found = Mapping[str, float] | None


class _Monitor:
    """Base of the monitors that measure a model at every `every`-th update."""

    every: int

    def __post_init__(self) -> None:
        check_whole(self, "every")

    def __call__(self, model: Model, update: int) -> Found:
        """Return name -> number, or None between two values."""
        return None if update % self.every else self.measured(model)

    @abstractmethod
    def measured(self, model: Model) -> Mapping[str, float]:
        """Return name -> number."""


@dataclass(frozen=True, eq=False)
class ExactLogLikelihood(_Monitor):
    """The exact mean log-likelihood of a data set, in nats a row, by enumeration.

    Parameters
    ----------
    data : layer -> (rows, size), or a DataFrame.
    name : name of the value in the history.
    every : updates from one value to the next.

    Raises
    ------
    PgmError if `every` is not an integer of at least 1; when called, if enumeration does not fit.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> monitor = pgm.ExactLogLikelihood({"v": [[0, 1]]}, name="train")
    >>> sorted(monitor(pgm.rbm(2, 1, rng=0), 0))
    ['train']
    """

    data: LayerValues
    name: str = "log_likelihood"
    every: int = 100

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the mean of log p(row)."""
        result = Exact().run(model.given(self.data), ("log_prob",))
        return {self.name: float(result.log_prob.mean())}


@dataclass(frozen=True, eq=False)
class VariationalBound(_Monitor):
    """The mean-field bound of the mean log-likelihood, in nats a row.

    It is E_Q[log_density] + H(Q) - log Z (system 3, eq. 3): exact where the posterior factorises,
    up to the error of log Z.

    Parameters
    ----------
    data : layer -> (rows, size), or a DataFrame.
    name : name of the value in the history; its standard error is name + "_error".
    every : updates from one value to the next.
    log_z : method for log Z with nothing observed, which is 0 in a normalised (directed) model.
    positive : the mean-field method.
    rng : seed of `log_z`, the same at every update.

    Raises
    ------
    PgmError if `every` is not an integer of at least 1; when called, if a method refuses.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> monitor = pgm.VariationalBound({"v": [[0, 1, 1]]}, log_z=pgm.Exact())
    >>> sorted(monitor(pgm.dbm([3, 2, 2], rng=0), 0))
    ['bound', 'bound_error']
    """

    data: LayerValues
    name: str = "bound"
    every: int = 1000
    log_z: Method = AIS(chains=100)
    positive: MeanField = MeanField(precision=np.float32, tolerance=1e-5)
    rng: int = 0

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the bound and its error."""
        target = model.given(self.data)
        bound = self.positive.run(target, ("log_z",)).log_z
        if model.structure.normalized:
            return {self.name: float(bound.mean()), f"{self.name}_error": 0.0}
        whole = self.log_z.run(target.nothing_observed, ("log_z",), rng=self.rng)
        # Rows that have a log Z each have chains each, so that their errors are independent.
        error = float(np.linalg.norm(whole.log_z_error)) / len(whole.log_z)
        return {self.name: float((bound - whole.log_z).mean()), f"{self.name}_error": error}


@dataclass(frozen=True, eq=False)
class AISLogLikelihood(_Monitor):
    """The mean log-likelihood of a data set, in nats a row, with log Z by AIS.

    For models too large for ExactLogLikelihood, and rows whose posterior factorises.

    Parameters
    ----------
    data : layer -> (rows, size), or a DataFrame.
    name : name of the value in the history; its standard error is name + "_error".
    every : updates from one value to the next.
    log_z : method for log Z with nothing observed.
    rng : seed of `log_z`, the same at every update.

    Raises
    ------
    PgmError if `every` is not an integer of at least 1; when called, if posteriors do not
    factorise.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> sorted(pgm.AISLogLikelihood({"v": [[0, 1, 1]]})(pgm.rbm(3, 2, rng=0), 0))
    ['log_likelihood', 'log_likelihood_error']
    """

    data: LayerValues
    name: str = "log_likelihood"
    every: int = 1000
    log_z: Method = AIS(chains=100)
    rng: int = 0

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the likelihood and the standard error of log Z."""
        target = model.given(self.data)
        if not target.pattern.independent:
            raise PgmError(
                "AISLogLikelihood needs rows whose posterior factorises; use VariationalBound"
            )
        bound = VariationalBound(self.data, self.name, log_z=self.log_z, rng=self.rng)
        return bound.measured(model)


@dataclass(frozen=True, eq=False)
class PseudoLikelihood(_Monitor):
    """The mean log pseudo-likelihood of a data set, in nats a row.

    The sum over all units of log p(unit | the other units of the row), with hidden units summed
    out. All units, no random one: the same data give the same number. For complete rows of
    undirected layers given which the hidden units are independent.

    Parameters
    ----------
    data : layer -> (rows, size), or a DataFrame.
    name : name of the value in the history.
    every : updates from one value to the next.

    Raises
    ------
    PgmError if `every` is not an integer of at least 1; when called, for other rows or models.

    References
    ----------
    Besag (1975), Statistical analysis of non-lattice data.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> sorted(pgm.PseudoLikelihood({"v": [[0, 1, 1]]})(pgm.rbm(3, 2, rng=0), 0))
    ['pseudo_likelihood']
    """

    data: LayerValues
    name: str = "pseudo_likelihood"
    every: int = 100

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the mean over rows."""
        data = data_by_layer(model.structure, self.data)
        target = model.given(data)
        _check_pseudo(target, data)
        q, total = Factors(target), np.zeros(target.rows)
        q.settle(1, 0.0)
        for name in data:
            layer, field = model.structure.layers[name], q.still(name)
            for index in range(layer.size):
                total += _log_conditional(q, name, layer.columns(np.array([index])), field)
        return {self.name: float(total.mean())}


def _check_pseudo(target: Target, data: Iterable[str]) -> None:
    """PgmError for rows or models that have no pseudo-likelihood."""
    for name in data:
        layer = target.structure.layers[name]
        if (
            target.free[name].any()
            or layer.unit.support is None
            or name in target.structure.directed_layers
        ):
            raise PgmError(
                "PseudoLikelihood needs complete rows of undirected units with finitely many "
                f"values, but layer {name!r} is missing values, directed, or has other units"
            )
        for arrow in target.structure.arrows_from[name]:
            if arrow.b in target.structure.undirected_layers:
                raise PgmError(
                    "PseudoLikelihood needs units whose children have no undirected couplings; "
                    f"layer {arrow.b!r}, a child of {name!r}, has some"
                )
    if not target.pattern.independent:
        raise PgmError("PseudoLikelihood needs rows given which the hidden units are independent")


def _log_conditional(q: Factors, name: str, columns: Array, field: Array) -> Array:
    """Return log p(unit | the rest of the row), (rows,), of the unit at `columns` of a layer."""
    layers, value = q.target.structure.layers, q.mean[name][:, columns]
    unit = layers[name].unit
    assert unit.support is not None and unit.log_base is not None
    weights = []
    for state, base in zip(unit.support.reshape(-1, unit.width), unit.log_base, strict=True):
        step = state - value
        weight = base + (step * field[:, columns]).sum(axis=1)
        for c, other in q.target.structure.meetings[name]:
            if other in q.eta:
                block = q.target.model.weight(c)
                rows = block[columns] if name == c.a else block.T[columns]
                eta = layers[other].shaped(q.eta[other] + step @ rows)
                weight = weight + np.where(
                    q.target.free[other], layers[other].unit.log_normalizer(eta), 0.0
                ).sum(axis=1)
        weights.append(weight)
    each = np.stack(weights)
    state = unit.state_of(value if unit.width > 1 else value[:, 0])
    here: Array = np.take_along_axis(each, state[None], axis=0)[0]
    return here - log_sum(each, axis=0)


@dataclass(frozen=True, eq=False)
class ReconstructionError(_Monitor):
    """The mean square of x - E[x | means of the hidden units given x], over units and rows.

    A quick sign of progress, without log Z. It may fall while the likelihood falls, too.
    Categorical units count over their states.

    Parameters
    ----------
    data : layer -> (rows, size), or a DataFrame.
    name : name of the value in the history.
    every : updates from one value to the next.
    updates : rounds of mean field at most, where hidden units are coupled.
    tolerance : the change of a mean in the last of these rounds.

    Raises
    ------
    PgmError for settings out of their range; when called, for models without such means.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> sorted(pgm.ReconstructionError({"v": [[0, 1, 1]]})(pgm.rbm(3, 2, rng=0), 0))
    ['reconstruction_error']
    """

    data: LayerValues
    name: str = "reconstruction_error"
    every: int = 100
    updates: int = 200
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "updates")
        check_number(self, "tolerance")

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the mean square, in squares of the units' values."""
        data = data_by_layer(model.structure, self.data)
        target = model.given(data)
        _check_reconstruction(target, data)
        q = Factors(target)
        q.settle(self.updates, self.tolerance)
        whole = target.nothing_observed
        same = np.zeros(target.rows, dtype=int)
        back = Factors(whole if whole.rows == target.rows else whole.take(same), mean=q.mean)
        errors, count = 0.0, 0
        for name in (n for n in data if n in back.field):
            seen = target.components(name, ~target.free[name])
            errors += float(np.square((back.predicted(name) - q.mean[name])[seen]).sum())
            count += int(seen.sum())
        return {self.name: errors / max(count, 1)}


def _check_reconstruction(target: Target, data: Iterable[str]) -> None:
    """PgmError for models without means of hidden units and of data given these."""
    for name in data:
        if name in target.structure.directed_layers or any(
            c.a == c.b == name for c in target.structure.couplings
        ):
            raise PgmError(
                "ReconstructionError needs undirected layers of data without couplings inside; "
                f"layer {name!r} is directed or has some"
            )
    if target.pattern.free_parents:
        raise PgmError("ReconstructionError needs hidden units without directed children")
    MeanField().prepare(target, ("marginals",)).check()


def _check_no_input(monitor: object, model: Model) -> None:
    """PgmError if a model has Input layers."""
    for name, layer in model.structure.layers.items():
        if layer.unit.observed_only:
            raise PgmError(
                f"{type(monitor).__name__} needs a model of all its layers; layer {name!r} has "
                f"{layer.unit!r} units, which have no distribution"
            )


@dataclass(frozen=True, eq=False)
class FreeEnergyGap(_Monitor):
    """The free energy of validation rows less that of training rows: a measure of over-fitting.

    The mean over rows of log sum over hidden units of exp(log_density), of training rows less that
    of validation rows, in nats. Both have the same normaliser, which is not needed. By mean field;
    exact where posteriors factorise.

    Parameters
    ----------
    train, validation : layer -> (rows, size), or a DataFrame.
    name : name of the value in the history.
    every : updates from one value to the next.
    positive : the mean-field method.

    Raises
    ------
    PgmError if `every` is not an integer of at least 1; when called, for models with Input layers,
    whose rows have normalisers of their own.

    References
    ----------
    Hinton (2012), A practical guide to training restricted Boltzmann machines, section 6.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> sorted(pgm.FreeEnergyGap({"v": [[0, 1, 1]]}, {"v": [[1, 1, 1]]})(pgm.rbm(3, 2, rng=0), 0))
    ['free_energy_gap']
    """

    train: LayerValues
    validation: LayerValues
    name: str = "free_energy_gap"
    every: int = 100
    positive: MeanField = MeanField(precision=np.float32, tolerance=1e-5)

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the gap."""
        _check_no_input(self, model)
        ends = [
            float(self.positive.run(model.given(x), ("log_z",)).log_z.mean())
            for x in (self.train, self.validation)
        ]
        return {self.name: ends[0] - ends[1]}


@dataclass(frozen=True)
class WeightNorms(_Monitor):
    """The Euclidean norm of each parameter, under "norm " and its name.

    Parameters
    ----------
    every : updates from one value to the next.

    Raises
    ------
    PgmError if `every` is not an integer of at least 1.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> sorted(pgm.WeightNorms()(pgm.rbm(3, 2, rng=0), 0))
    ['norm h.bias', 'norm v-h.weight', 'norm v.bias']
    """

    every: int = 100

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return all norms."""
        return {f"norm {k}": float(np.linalg.norm(numbers(v))) for k, v in model.params.items()}


@dataclass(frozen=True)
class FlipRates(_Monitor):
    """The share of each layer's units that a sweep changes, under "flips " and its name.

    Measured in chains of its own that have run for a while, it tells how well chains can mix.

    Parameters
    ----------
    every : updates from one value to the next.
    chains : number of chains.
    sweeps : sweeps before the one that is measured.
    kernel : any kernel.
    rng : seed of the chains, the same at every update.

    Raises
    ------
    PgmError for settings out of their range; when called, for models with Input layers, which no
    chain can draw.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> sorted(pgm.FlipRates()(pgm.rbm(3, 2, rng=0), 0))
    ['flips h', 'flips v']
    """

    every: int = 1000
    chains: int = 20
    sweeps: int = 50
    kernel: Kernel = Gibbs()
    rng: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "chains")
        check_whole(self, "sweeps", least=0)

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return shares between 0 and 1."""
        _check_no_input(self, model)
        rng, target = seeded(self.rng), model.given().take(np.zeros(self.chains, dtype=int))
        chains = make_chains(target, self.kernel, start(target, rng), rng)
        chains.sweep(self.sweeps)
        before: States = chains.values()
        chains.sweep(1)
        after = chains.values()
        layers = model.structure.layers
        return {
            f"flips {n}": float(
                (layers[n].flat(before[n]) != layers[n].flat(after[n]))
                .reshape(self.chains, layers[n].size, -1)
                .any(axis=2)
                .mean()
            )
            for n in layers
        }


@dataclass(frozen=True)
class Occupancy:
    """Moves on the ladder of a trainer that has one: CAST, AdaptiveSAP, PT or TransSAP.

    Every `every` updates the history gains, of all chains and sweeps on the ladder since the last
    entry: "occupancy", a row with the share of each level, beta = 1 first; "round_trips", the
    number of ways from beta = 1 to the other end and back; "hop_acceptance", the accepted share of
    the proposed changes of level (of TransSAP, of whole excursions); and with CAST
    "swap_acceptance", the share of pairs that changed places when it was time to. No entry is made
    where no chain moved on the ladder, as at update 0. Levels without a chain mean that the trainer
    does less than its name says. PT and TransSAP visit all levels alike, whatever happens, so that
    only round trips and acceptance tell of them. A fit takes one Occupancy, for its entries start
    the counts again.

    Parameters
    ----------
    every : updates from one entry to the next.

    Raises
    ------
    PgmError if `every` is not an integer of at least 1; in fits whose trainer has no ladder.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> cast = pgm.CAST(chains=10, betas=[0.5, 0.8, 1.0])
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, negative=cast, updates=40,
    ...             callbacks=[pgm.Occupancy(every=20)], progress=False)
    >>> f.history["occupancy"]["value"].shape
    (2, 3)
    """

    every: int = 1000

    def __post_init__(self) -> None:
        check_whole(self, "every")

    def __call__(self, model: Model, update: int) -> Found:
        """Refuse: a model has no chains."""
        raise PgmError("Occupancy looks at the chains of a fit: give it to fit itself in callbacks")

    def watching(self, phase: ModelPhase) -> Monitor:
        """Return the monitor of a model phase; PgmError if it has no ladder."""
        if phase.travels is None:
            raise PgmError(
                "Occupancy needs a trainer with a ladder of temperatures, such as "
                "negative=CAST(), AdaptiveSAP(), PT() or TransSAP(); this fit has none"
            )
        return partial(_occupied, phase.travels, self.every)


def _occupied(travels: Travels, every: int, model: Model, update: int) -> dict[str, Any] | None:
    """Return the entry of an update; None between two, and where no chain has moved."""
    if update % every:
        return None
    entry = travels.entry()
    if not entry.visits.any():
        return None
    found = {"occupancy": entry.visits / entry.visits.sum(), "round_trips": float(entry.trips)}
    if entry.proposed:
        found["hop_acceptance"] = entry.taken / entry.proposed
    if entry.due:
        found["swap_acceptance"] = entry.swapped / entry.due
    return found


@dataclass(frozen=True, eq=False)
class EarlyStopping:
    """A monitor that ends the fit when its value has stopped to rise, or to fall.

    Parameters
    ----------
    monitor : the monitor whose values decide.
    patience : number of values without a rise by more than `least` after which the fit ends.
    least : the least rise that counts.
    rising : whether the value should rise; False for errors, which should fall.
    name : name of the value that decides, if the monitor has several.

    Raises
    ------
    PgmError for settings out of their range; when learning starts, without a name.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> stop = pgm.EarlyStopping(pgm.ExactLogLikelihood({"v": x}, every=1), patience=3, least=1.0)
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=100, callbacks=[stop], progress=False)
    >>> f.stopped
    'log_likelihood has not risen by 1 for 3 values'
    """

    monitor: Monitor
    patience: int = 10
    least: float = 0.0
    rising: bool = True
    name: str = ""

    def __post_init__(self) -> None:
        check_whole(self, "patience")
        check_number(self, "least")

    def __call__(self, model: Model, update: int) -> Mapping[str, Any] | None:
        """Return the values of the monitor."""
        return self.monitor(model, update)

    @property
    def watched(self) -> str:
        """The name in the history that decides."""
        name: str = self.name or getattr(self.monitor, "name", "")
        if not name:
            raise PgmError(
                f"EarlyStopping: say which name of {type(self.monitor).__name__} to watch, name=..."
            )
        return name

    def stops(self, history: Records) -> str:
        """Return the reason to stop, or an empty string."""
        name = self.watched
        found = np.array([v for _, v in history.get(name, [])]) * (1 if self.rising else -1)
        values = np.where(np.isnan(found), -np.inf, found)
        if len(values) <= self.patience:
            return ""
        late, early = values[-self.patience :].max(), values[: -self.patience].max()
        if late > early + self.least:
            return ""
        way = "risen" if self.rising else "fallen"
        return f"{name} has not {way} by {self.least:g} for {self.patience} values"
