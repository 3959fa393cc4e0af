"""Monitors of the likelihood of data: exact, bounded, or with an estimate of log Z."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_method, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, LayerValues
from pgmengine.declare.model import Model
from pgmengine.evidence.columns import data_by_layer
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.infer.sampling.methods.ais import AIS
from pgmengine.infer.variational.mean_field import MeanField
from pgmengine.infer.variational.unit_families import Factors
from pgmengine.learn.monitoring.monitors import Periodic, check_no_input
from pgmengine.model.tables import joined_states


@dataclass(frozen=True, eq=False)
class ExactLogLikelihood(Periodic):
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
class VariationalBound(Periodic):
    """The mean-field bound of the mean log-likelihood, in nats a row.

    It is E_Q[log_density] + H(Q) - log Z. Where the posterior factorises it is the log-likelihood,
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
    log_z: AnyMethod = AIS(chains=100)
    positive: MeanField = MeanField(precision=np.float32, tolerance=1e-5)
    rng: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_method(self.log_z, "VariationalBound: log_z")
        check_method(self.positive, "VariationalBound: positive")
        seeded(self.rng)

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the bound and its error."""
        target = model.given(self.data)
        bound = self.positive.run(target, ("log_z",)).log_z
        if model.structure.normalized:
            return {self.name: float(bound.mean()), f"{self.name}_error": 0.0}
        whole = self.log_z.run(target.nothing_observed, ("log_z",), rng=self.rng)
        # If each row has its own log Z, it also has its own chains, and the errors are independent.
        error = float(np.linalg.norm(whole.log_z_error)) / len(whole.log_z)
        return {self.name: float((bound - whole.log_z).mean()), f"{self.name}_error": error}


@dataclass(frozen=True, eq=False)
class AISLogLikelihood(Periodic):
    """The mean log-likelihood of a data set, in nats a row, with log Z by AIS.

    Use it for models that are too large for ExactLogLikelihood, if the posterior of each row
    factorises.

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
    log_z: AnyMethod = AIS(chains=100)
    rng: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_method(self.log_z, "AISLogLikelihood: log_z")
        seeded(self.rng)

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
class PseudoLikelihood(Periodic):
    """The mean log pseudo-likelihood of a data set, in nats a row.

    It is the sum over all units of log p(unit | the other units of the row), with hidden units
    marginalised. No unit is chosen at random, so that the same data give the same number. Rows must
    be complete, layers undirected, and the hidden units independent given the row.

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
        states = joined_states(model.structure, target.evidence.values)
        for name in data:
            layer, field = model.structure.layers[name], q.constant_field(name)
            for index in range(layer.size):
                columns, by_tables = layer.columns(np.array([index])), np.zeros((1, 1))
                if model.structure.tabled[name][index]:
                    unit = model.structure.first_unit[name] + index
                    index_of = model.structure.table_index
                    found = index_of.log_weights(model.table_terms, states, unit)[1]
                    by_tables = found.sum(axis=1)
                total += _log_conditional(q, name, columns, field, by_tables)
        return {self.name: float(total.mean())}


def _check_pseudo(target: Target, data: Iterable[str]) -> None:
    """Raise PgmError for rows or models that have no pseudo-likelihood."""
    for name in data:
        layer = target.structure.layers[name]
        if (
            target.free[name].any()
            or layer.unit.support is None
            or name in target.structure.directed_layers
        ):
            raise PgmError(
                "PseudoLikelihood needs complete rows of undirected units with finitely many "
                f"values, but {layer.title} is missing values, directed, or has other units"
            )
        for arrow in target.structure.arrows_from[name]:
            if arrow.b in target.structure.undirected_layers:
                raise PgmError(
                    "PseudoLikelihood needs units whose children have no undirected couplings; "
                    f"layer {arrow.b!r}, a child of {name!r}, has some"
                )
    if not target.pattern.independent:
        raise PgmError("PseudoLikelihood needs rows given which the hidden units are independent")


def _log_conditional(
    q: Factors, name: str, columns: Array, field: Array, by_tables: Array
) -> Array:
    """Return log p(unit | the rest of the row), (rows,), of the unit at `columns` of a layer.

    `by_tables` (rows, K) are the log weights of its states by its tables.
    """
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
    each = np.stack(weights) + by_tables.T
    state = unit.state_of(value if unit.width > 1 else value[:, 0])
    here: Array = np.take_along_axis(each, state[None], axis=0)[0]
    return here - log_sum(each, axis=0)


@dataclass(frozen=True, eq=False)
class FreeEnergyGap(Periodic):
    """The free energy of validation rows less that of training rows: a measure of over-fitting.

    It is the mean over training rows of the log of the sum over hidden units of exp(log_density),
    less the same mean over validation rows, in nats. The normaliser cancels. The values are
    mean-field bounds, which are exact where posteriors factorise.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_method(self.positive, "FreeEnergyGap: positive")

    def measured(self, model: Model) -> Mapping[str, float]:
        """Return the gap."""
        check_no_input(self, model)
        ends = [
            float(self.positive.run(model.given(x), ("log_z",)).log_z.mean())
            for x in (self.train, self.validation)
        ]
        return {self.name: ends[0] - ends[1]}
