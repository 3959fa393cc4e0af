"""Monitors: callbacks that take (model, update), and return name -> value or None.

All but EarlyStopping take `every`, the number of updates from one value to the next. Monitors that
use data take layer -> (rows, size), with complete or incomplete rows, or a DataFrame, as fit does.
The monitors of likelihoods are in likelihoods.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import (
    check_instance,
    check_kernel,
    check_name,
    check_number,
    check_truth,
    check_whole,
    seeded,
)
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import LayerValues
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.engine.chains import make_chains, start
from pgmengine.engine.kernels import Gibbs, Kernel
from pgmengine.evidence.columns import data_by_layer
from pgmengine.evidence.frames import shown_units
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.ladders.round_trips import Travels
from pgmengine.infer.variational.mean_field import MeanField
from pgmengine.infer.variational.saddles import STEP_OF_START
from pgmengine.infer.variational.unit_families import Factors
from pgmengine.learn.contracts import ModelPhase, Monitor, Records
from pgmengine.model.weights import numbers


class Periodic:
    """Base of the monitors that measure a model at every `every`-th update."""

    every: int

    def __post_init__(self) -> None:
        check_whole(self, "every")
        if hasattr(self, "name"):
            check_name(self)

    @property
    def updates_apart(self) -> int:
        """The number of updates from one value to the next; a fit may skip those in between."""
        # A subclass with a call of its own may measure at any update.
        return self.every if type(self).__call__ is Periodic.__call__ else 1

    def __call__(self, model: ModelLike, update: int) -> Mapping[str, float] | None:
        """Return name -> number, or None between two values."""
        return None if update % self.every else self.measured(as_model(model))

    @abstractmethod
    def measured(self, model: Model) -> Mapping[str, float]:
        """Return name -> number."""


def check_no_input(monitor: object, model: Model) -> None:
    """Raise PgmError if a model has Input layers."""
    for name, layer in model.structure.layers.items():
        if layer.unit.observed_only:
            raise PgmError(
                f"{type(monitor).__name__} needs a model of all its layers; layer {name!r} has "
                f"{layer.unit!r} units, which have no distribution"
            )


@dataclass(frozen=True, eq=False)
class ReconstructionError(Periodic):
    """The mean square of x - E[x | means of the hidden units given x], over units and rows.

    It is a quick sign of progress that does not need log Z. It may fall while the likelihood falls
    as well. For Categorical units the mean is also over their states.

    Parameters
    ----------
    data : layer -> (rows, size), or a DataFrame.
    name : name of the value in the history.
    every : updates from one value to the next.
    updates : the largest number of rounds of mean field, where hidden units are coupled.
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
        q = Factors(target, step=STEP_OF_START)
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
    """Raise PgmError for models without means of the hidden units, or of the data given these."""
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
    if tabled := [t.key for t in target.structure.tables]:
        raise PgmError(
            f"ReconstructionError needs models without tables, and this has {tabled[0]!r}"
        )
    MeanField().prepare(target, ("marginals",)).check()


@dataclass(frozen=True)
class WeightNorms(Periodic):
    """The Euclidean norm of each parameter, under "norm " and its name; biases by variable.

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
        s, norms = model.structure, dict[str, float]()
        for one in shown_units(s):
            if one.layer.holds_variables:
                # A variable with a conditional has no bias.
                if s.child_tables[one.layer.name][one.units[0]] < 0:
                    bias = model.params[f"{one.layer.name}.bias"][one.units[0]]
                    norms[f"norm {one.name}.bias"] = float(np.linalg.norm(bias))
        held = {f"{name}.bias" for name in s.names.storage}
        others = {k: v for k, v in model.params.items() if k not in held}
        return norms | {f"norm {k}": float(np.linalg.norm(numbers(v))) for k, v in others.items()}


@dataclass(frozen=True)
class FlipRates(Periodic):
    """The share of units that a sweep changes, under "flips " and the name of layer or variable.

    It is measured in separate chains after some sweeps, and shows how well chains can mix.

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
        check_kernel(self.kernel)
        seeded(self.rng)

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return shares between 0 and 1."""
        check_no_input(self, model)
        rng, target = seeded(self.rng), model.given().take(np.zeros(self.chains, dtype=int))
        chains = make_chains(target, self.kernel, start(target, rng), rng)
        chains.sweep(self.sweeps)
        before = chains.values()
        chains.sweep(1)
        after = chains.values()
        rates = {}
        for one in shown_units(model.structure):
            name, layer = one.layer.name, one.layer
            components = (before[name] != after[name]).reshape(self.chains, layer.size, -1)
            flips = components.any(axis=2)[:, list(one.units)]
            rates[f"flips {one.name}"] = float(flips.mean())
        return rates


@dataclass(frozen=True)
class Occupancy:
    """Moves on the ladder of a trainer that has one: CAST, AdaptiveSAP, PT or TransSAP.

    Every `every` updates the history gets an entry about all chains and sweeps on the ladder since
    the last entry:

    - "occupancy", a row with the share of each rung, beta = 1 first;
    - "round_trips", the number of ways from beta = 1 to the other end and back;
    - "hop_acceptance", the accepted share of the proposed changes of rung, or of whole excursions
      with TransSAP;
    - "swap_acceptance", the share of due exchanges that were made, with CAST alone.

    There is no entry if no chain has moved on the ladder, as at update 0. If rungs have no chain,
    tempering does not work there. PT and TransSAP always visit all rungs equally often, so that
    only round trips and acceptance say how well they work. A fit can have only one Occupancy,
    because each entry sets the counts to 0.

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

    def __call__(self, model: ModelLike, update: int) -> Mapping[str, float] | None:
        """Raise PgmError, because a model alone has no chains."""
        raise PgmError("Occupancy looks at the chains of a fit: give it to fit itself in callbacks")

    def watching(self, phase: ModelPhase) -> Monitor:
        """Return the monitor of a model phase; PgmError if it has no ladder."""
        if phase.travels is None:
            raise PgmError(
                "Occupancy needs a trainer with a ladder of temperatures, such as "
                "negative=CAST(), AdaptiveSAP(), PT() or TransSAP(); this fit has none"
            )
        return _Occupied(phase.travels, self.every)


@dataclass(frozen=True, eq=False)
class _Occupied:
    """Occupancy of the ladder of a phase."""

    travels: Travels
    updates_apart: int

    def __call__(self, model: Model, update: int) -> dict[str, Any] | None:
        """Return the entry of an update; None if none is due, or if no chain has moved."""
        if update % self.updates_apart:
            return None
        entry = self.travels.entry()
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
    """A monitor that ends the fit when its value no longer rises, or no longer falls.

    Parameters
    ----------
    monitor : the monitor whose values decide.
    patience : the fit ends after this many values without a rise by more than `least`.
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
        check_instance(self.monitor, "EarlyStopping: monitor")
        if not callable(self.monitor):
            raise PgmError(
                "EarlyStopping: monitor must be one such as pgm.ExactLogLikelihood(data), not "
                f"{told(self.monitor)}"
            )
        check_whole(self, "patience")
        check_number(self, "least")
        check_truth(self, "rising")
        check_name(self)

    def __call__(self, model: ModelLike, update: int) -> Mapping[str, Any] | None:
        """Return the values of the monitor."""
        return self.monitor(as_model(model), update)

    @property
    def updates_apart(self) -> int:
        """The number of updates from one value of the monitor to the next."""
        # A subclass with a call, or an end, of its own may look at any update.
        own = type(self) is EarlyStopping
        return int(getattr(self.monitor, "updates_apart", 1)) if own else 1

    @property
    def watched(self) -> str:
        """The name of the value in the history that decides."""
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
