"""fit: maximise the mean log-likelihood of data by stochastic gradient ascent.

The arguments are checked and completed first (starting/fit_plan.py). Then updates are made
(loop.py, run.py), between which monitors look at the model and checkpoints are written.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from pgmengine.base.checks import amount, check_executor, seeded, whole
from pgmengine.base.errors import PgmError
from pgmengine.base.names import nearest
from pgmengine.base.types import Array, RngLike, States
from pgmengine.base.work.executors import spawn
from pgmengine.base.work.interrupts import stoppable
from pgmengine.base.work.threads import one_blas_thread
from pgmengine.declare.declaration import declaration_of, placed_units
from pgmengine.declare.model import Model, ModelLike, StandsForModel, as_model
from pgmengine.declare.model_draws import Models
from pgmengine.declare.template import Template, as_template
from pgmengine.evidence.frames import labels_of_columns
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.learn.contracts import Monitor, Negative, Optimizer, PhaseMonitor, Positive
from pgmengine.learn.fit_overview import fit_html, fit_text
from pgmengine.learn.full_batch.objective import FitData
from pgmengine.learn.full_batch.optimizer_contract import FullBatch
from pgmengine.learn.full_batch.template_fit import template_fit
from pgmengine.learn.judging.account import Account, account_of
from pgmengine.learn.judging.bootstrap import Again
from pgmengine.learn.judging.posterior import posterior_of
from pgmengine.learn.loop import UnderWay, learn, report
from pgmengine.learn.monitoring.finding import Finding
from pgmengine.learn.monitoring.history import History
from pgmengine.learn.monitoring.monitors import EarlyStopping
from pgmengine.learn.run import State
from pgmengine.learn.saving.checkpoint import Saver, mark_of, place_of
from pgmengine.learn.saving.lock import Lock
from pgmengine.learn.starting.arguments import (
    check_left,
    check_settings,
    check_start,
    row_weights,
    written,
)
from pgmengine.learn.starting.fit_plan import FitPlan, plan_fit, read_data
from pgmengine.learn.steps.wrappers import averaged, holds
from pgmengine.model.names.unit_names import Member
from pgmengine.model.structure import Structure
from pgmengine.model.training import Training

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

log = logging.getLogger(__name__)

# Seconds between checkpoints.
SECONDS_BETWEEN_CHECKPOINTS = 4.0


@dataclass(frozen=True, eq=False)
class Fit(StandsForModel):
    """The result of `fit`: a model, the history of its learning, and the state to go on from.

    Functions that take a model also take a Fit, and use its `model`.

    Attributes
    ----------
    model : the learned model, or template; after Ctrl-C, the one after the last complete update.
    history : name -> {"update": (n,), "value": (n,)} of every monitor. EM and LBFGS add
        "objective", in nats a row, which they maximise.
    state : the state that `fit(state=)` takes to go on: arrays and numbers by name. Its entry
        "update" is the number of updates made.
    interrupted : whether Ctrl-C ended the fit.
    stopped : the reason for which a callback ended the fit, or EM or LBFGS has converged, or an
        empty string.
    positive, negative : the methods of the data phase and of the model phase, given or chosen by
        default; `negative` is None for a normalised model.
    unsaved : the reason for which the checkpoint could not be written at the end (the disk may have
        been full), or an empty string.
    factorised : whether the posterior of each row is a product of its units, so that the data phase
        is exact by any method.
    optimizer : the optimizer, given or chosen by default.
    started : the layers whose biases began at the base rates of the data; empty unless the model
        had only parameters that its constructor chose.
    findings : signs that the model could be much better, each with its advice: its score rose in
        the second half of the updates, it is hardly better than independent units, or it became
        worse. Each is also logged as a warning. Empty where there is none, and where the model has
        no score that is cheap (see `Finding`).
    account : what is known of the fit beside its model: the sum of the weights of its rows, how
        many numbers have learned, the log-likelihood of all rows, and counts.
    again : the call that made it, for `pgm.bootstrap`, with the data as they were given.
    notes : sentences about choices that the fit has made, such as an optimizer that sees all rows,
        several starts of EM, rows of conditionals without data, parameters that no row informs,
        which keep their numbers, and a ladder of temperatures of which chains hardly visited a
        part.
    """

    model: Model
    history: dict[str, dict[str, Array]]
    state: State
    interrupted: bool = False
    stopped: str = ""
    positive: Positive | AnyMethod | None = None
    negative: Negative | None = None
    unsaved: str = ""
    factorised: bool = False
    optimizer: Optimizer | FullBatch | None = None
    started: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    account: Account | None = None
    again: Again | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the learned model, or those that all models of a template share."""
        return self.model.params

    @property
    def averaged(self) -> Model:
        """The model at the average of the parameters; PgmError without an Averaged optimizer."""
        return averaged(self.model, self.state)

    @property
    def numbers(self) -> int:
        """How many free numbers have learned: the degrees of freedom of `bic` and `aic`.

        A row of a conditional with k possible states counts k - 1, a number that several places
        share once, a bias or a weight one, and a Normal child two in each state of its parent.
        Fixed and uninformed numbers do not count. PgmError where only a part of the numbers acts.
        """
        return self._account.numbers.get("the number of free numbers")

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of all rows, weighted, in nats; PgmError where it is not exact."""
        return self._account.log_likelihood.get("the log-likelihood of the rows")

    @property
    def bic(self) -> float:
        """Schwarz's criterion, -2 log L + k log n; lower is better.

        Use it to choose among fits to the same rows: it finds the true model, if that is among
        them, as rows become many. log L is `log_likelihood`, k is `numbers`, and n is the sum of
        the weights of the rows; a sequence is a row. PgmError where one of them is not known.

        References
        ----------
        Schwarz (1978), Estimating the dimension of a model.
        """
        return self.numbers * math.log(self._account.rows) - 2.0 * self.log_likelihood

    @property
    def aic(self) -> float:
        """Akaike's criterion, -2 log L + 2 k; lower is better.

        Use it to choose the fit among several to the same rows that predicts new rows best.
        PgmError where log L or k is not known, as in `bic`.

        References
        ----------
        Akaike (1974), A new look at the statistical model identification.
        """
        return 2.0 * self.numbers - 2.0 * self.log_likelihood

    def posterior(self, draws: int = 200, rng: RngLike = None) -> Models:
        """Return models from the posterior of tables that were counted in complete rows.

        Use it to see how sure answers are: `pgm.infer(models, ...)`, or `pgm.infer(fit, ...,
        parameters=True)`, gives each an interval that includes the error of learning. Each row of
        a conditional is Dirichlet(counts + pseudocounts), whose mean is the learned row.

        Parameters
        ----------
        draws : the number of models.
        rng : an integer or a numpy Generator.

        Raises
        ------
        PgmError where something else than tables has learned, rows have gaps, or an entry has
        neither data nor a pseudocount; `pgm.bootstrap` has models of such fits.

        Examples
        --------
        >>> import pgmengine as pgm
        >>> rows = {"rain": ["no"] * 6 + ["yes"] * 2, "wet": ["no"] * 5 + ["yes"] * 3}
        >>> f = pgm.fit(pgm.network(rows, "rain -> wet"), rows, progress=False)
        >>> r = pgm.infer(f.posterior(rng=0), {"wet": "yes"})
        >>> low, high = r.marginal_interval("rain")["yes"]
        >>> low < r.marginal("rain")["yes"] < high
        True

        References
        ----------
        Spiegelhalter and Lauritzen (1990), Sequential updating of conditional probabilities on
        directed graphical structures.
        """
        return posterior_of(self.model, self.params, self._account, draws, rng)

    @property
    def _account(self) -> Account:
        if self.account is None:
            raise PgmError("this Fit was made without its account; take one that pgm.fit returns")
        return self.account

    def __repr__(self) -> str:
        return fit_text(self)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return fit_html(self)


@overload
def fit(
    model: ModelLike | Template,
    data: Any,
    negative: Negative | None = None,
    positive: Positive | AnyMethod | None = None,
    given: Iterable[Member] | None = (),
    optimizer: Optimizer | FullBatch | None = None,
    batch_size: int = 100,
    epochs: int | None = None,
    updates: int | None = None,
    callbacks: Sequence[Monitor | PhaseMonitor] = (),
    rng: RngLike = 0,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    sample_weight: ArrayLike | None = None,
    state: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    *,
    repeats: None = None,
    probabilities: Iterable[Member] | None = (),
    seconds: float | None = None,
) -> Fit: ...


@overload
def fit(
    model: ModelLike | Sequence[ModelLike],
    data: Any,
    negative: Negative | None = None,
    positive: Positive | AnyMethod | None = None,
    given: Iterable[Member] | None = (),
    optimizer: Optimizer | FullBatch | None = None,
    batch_size: int = 100,
    epochs: int | None = None,
    updates: int | None = None,
    callbacks: Sequence[Monitor | PhaseMonitor] = (),
    rng: RngLike = 0,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    sample_weight: ArrayLike | None = None,
    state: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    *,
    repeats: int,
    probabilities: Iterable[Member] | None = (),
    seconds: float | None = None,
) -> list[Fit]: ...


@stoppable
def fit(
    model: ModelLike | Template | Sequence[ModelLike],
    data: Any,
    negative: Negative | None = None,
    positive: Positive | AnyMethod | None = None,
    given: Iterable[Member] | None = (),
    optimizer: Optimizer | FullBatch | None = None,
    batch_size: int = 100,
    epochs: int | None = None,
    updates: int | None = None,
    callbacks: Sequence[Monitor | PhaseMonitor] = (),
    rng: RngLike = 0,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    sample_weight: ArrayLike | None = None,
    state: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    *,
    repeats: int | None = None,
    probabilities: Iterable[Member] | None = (),
    seconds: float | None = None,
) -> Fit | list[Fit]:
    """Learn the parameters of a model from data.

    Networks of conditionals are learned by counting and EM, and small observed models by L-BFGS,
    on all rows at once. Other models are learned by stochastic gradient ascent: each update takes a
    mini-batch of rows and steps along the gradient of their mean log-likelihood, theta +=
    step(E[d log_density | data] - E[d log_density | given]).

    Parameters
    ----------
    model : the model at which learning begins, or a Fit that has learned it (with `repeats` also a
        list of them). One whose parameters
        are all as its constructor chose them (`Model.fresh`) begins at the base rates of the data:
        biases are set so that observed units have the means of the data. Given and learned
        parameters stay. Rows of inputs of Normal children that are all 0 begin at the mean and the
        standard deviation of their data.
    data : layer -> (rows, size), or a DataFrame with a column for each unit; NaN is a missing
        value, and layers that are left out are hidden. States have their names, as in `infer`.
        A DataFrame as the value of a layer has the units of the layer as columns, by their names.
        Units without names are taken in order, and the learned model keeps the names of columns
        as their labels, so that later frames are read by name.
        For a template: a list of rows of any length, such as [{"x": values}, ...], or name -> list
        of the values of each row. A template learns by EM or LBFGS.
    negative : the method of the model phase. By default ExactGradient() where that takes at most
        two milliseconds of an update, else PCD(), or CD() with `given`; a normalised (directed)
        model has no model phase.
    positive : inference method for the data phase. By default exact where the posterior factorises
        or has up to 2^10 states, else MeanField(updates=5), whose bound is then maximised, or
        one-chain Gibbs sampling where that refuses and above noisy-or children. MeanField also
        stands in for exact answers where many evidence patterns make them three times slower.
    given : layers, variables, or units (layer, number) to condition on: log p(rest | given) is
        maximised.
    optimizer : EM(), LBFGS(), or an optimizer of mini-batches. By default EM() where every
        parameter is the table of a conditional, or the rows of a parent's states for real children,
        and no `negative` is given; LBFGS() where complete
        data make the objective concave and its normaliser is cheap, for other templates, for
        directed models with tables or real children whose exact posterior is cheap, or with
        `negative=PseudoGradient()`; `Fit.notes` says so. Elsewhere centred gradients, with steps
        that fit the units and the sizes of the layers and fall to 0 at the last update:
        Centered(Scaled(SGD(linear_decay(rate, updates)))), and for models with tables or noisy-or
        units Adam(linear_decay(0.1, updates)). `Fit.optimizer` is the choice.
    batch_size : rows of an update; the last one of a pass over the data may have fewer. EM and
        LBFGS always take all rows.
    epochs : passes over the data, in all, as in `updates`; 10 by default. An update of EM or LBFGS
        is a pass. They end when they have converged, and by default after 1,000 passes, or 50 where
        the objective is only estimated.
    updates : number of updates in all, including the ones that a checkpoint or `state` has made,
        and those of random starts of EM and LBFGS; overrides `epochs`.
    callbacks : monitors, called as callback(model, update) from update 0 (before learning) to the
        last, but not within random starts; they return name -> number, or None, for the history. A
        callback with a method `stops(history)` ends the fit when that returns a reason; its history
        is name -> list of (update, value).
    rng : an integer or a numpy Generator; with `state` the random numbers go on from there.
    progress : whether a terminal shows the progress.
    checkpoint : file that is written every few seconds and at the end. A fit of the same model,
        data shape and settings goes on from it, to the same bits as without a stop on the same kind
        of processor. Settings are the same if their types, fields and values are; of a function,
        such as a schedule, only the module and qualified name count, so that a change inside it, or
        of a number that it reads, goes unnoticed. One fit at a time has the file, by a lock on a
        file beside it that ends with the process. If it cannot be written, as on a full disk, a
        warning is logged, learning goes on and tries again; `Fit.unsaved` reports a failure at the
        end.
    sample_weight : (rows,) weight of each row, from 0 up. Mini-batches scale them to 1 on average;
        EM counts a row of weight 2 as two rows.
    state : `Fit.state` of an earlier fit to go on from, with its model, on the same or other data.
        Its arrays belong to parameters by the position of their entries.
    executor : where the data phase is sampled, if `positive` samples and there is enough to do; the
        bits are the same.
    repeats : number of fits, which are independent of each other: each has random numbers of its
        own. They share the data and the threads, which takes less time than one after the other.
        They begin at one model, or `model` is a list of as many models of one structure, such as
        `[pgm.rbm(16, 8, rng=i) for i in range(25)]`. There is no checkpoint then.
    probabilities : layers, variables or units, of Binary type, whose data are numbers from 0 to 1,
        such as grey levels: each is the probability of 1, and is drawn anew in each pass over the
        data. It needs an optimizer of mini-batches.
    seconds : time after which learning ends with the model so far, also within random starts, of
        which the best one is taken; None = no limit. It does not count what comes before the first
        update.

    Returns
    -------
    A Fit with the learned model, the history and the state; with `repeats`, a list of them. For a
    template, its `model` is the template with the learned parameters.

    Raises
    ------
    PgmError for empty data, values outside the support of their units, settings of the wrong kind,
    a checkpoint of another fit or in use by another fit, no updates left to make, and parameters
    that become infinite.

    References
    ----------
    Younes (1989), Parametric inference for imperfectly observed Gibbsian fields; Tieleman (2008),
    Training restricted Boltzmann machines using approximations to the likelihood gradient.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> norms = pgm.WeightNorms(every=10)
    >>> f = pgm.fit(
    ...     pgm.rbm(16, 4, rng=0), {"v": x}, updates=20, callbacks=[norms], progress=False
    ... )
    >>> f.history["norm v-h.weight"]["update"]
    array([ 0, 10, 20])
    >>> starts = [pgm.rbm(16, 4, rng=i) for i in range(3)]
    >>> len(pgm.fit(starts, {"v": x}, updates=20, repeats=3, progress=False))
    3
    """
    if repeats is not None and (state is not None or checkpoint is not None):
        raise PgmError("repeats: a state or a checkpoint is of a single fit; leave them out")
    # An iterator could be read once only, and the fit may be made again.
    given, probabilities = (
        tuple(x) if isinstance(x, Iterator) else x for x in (given, probabilities)
    )
    own = sample_weight, data
    if (template := as_template(model)) is not None:
        if repeats is not None:
            raise PgmError("repeats: fits of a template are made one by one; leave it out")
        if probabilities is not None and tuple(probabilities):
            raise PgmError(
                "probabilities: a template learns from all rows at once, and draws of the data "
                "change from pass to pass; give states, such as rng.random(x.shape) < x"
            )
        of_template = template_fit(template, data, optimizer, sample_weight, given, negative)
        model, data = of_template.model, of_template.data
        optimizer, sample_weight = of_template.optimizer, of_template.sample_weight
    declared = _models(model, repeats)
    # The numbers of a gate without a table are learned by its auxiliary variables.
    models = [one.unfolded for one in declared]
    check_settings(negative, positive, optimizer, callbacks)
    check_start(state, checkpoint)
    check_executor(executor)
    limit = math.inf if seconds is None else amount("seconds", seconds)
    read = data if isinstance(data, FitData) else read_data(data, sample_weight)
    plan = plan_fit(
        models[0],
        read,
        negative,
        positive,
        given,
        optimizer,
        batch_size,
        epochs,
        updates,
        callbacks,
        sample_weight,
        state,
        executor,
        probabilities,
    )
    # BLAS keeps to one thread from its first product on, because its other threads would go on
    # spinning after a product and occupy the cores.
    alone = nullcontext() if checkpoint is None else Lock(place_of(checkpoint))
    rngs = [seeded(rng)] if repeats is None else spawn(seeded(rng), len(models))
    with one_blas_thread(), alone:
        fits, saver = _begun(plan, models, rngs), None
        first = fits[0]
        if checkpoint is not None:
            saver = _saver(checkpoint, plan, models[0], first, rng, sample_weight)
        if saver is None or not _resumed(saver, first):
            for each in fits:
                each.history.add(each.run.model, each.run.count)
        interrupted = learn(fits, progress, saver, limit)
        unsaved = saver.at_the_end(first.run, first.history, first.watch) if saver else ""
    _warn_of_absent_values(callbacks, first.history)
    labels = labels_of_columns(declared[0].structure, read.values)
    found = [
        _ended(each, one.structure, plan.means, labels, interrupted, unsaved)
        for each, one in zip(fits, declared, strict=True)
    ]
    if plan.length.by_default and not interrupted:
        # Whoever sets the length knows that it may be short.
        for note in dict.fromkeys(each.run.notes.get("converged", "") for each in fits):
            if note:
                log.warning("%s", note)
    report([each.findings for each in found])
    rows = plan.given_rows
    if template is not None:
        found, rows = [of_template.ended(found[0])], of_template.rows
    settings = {
        "negative": negative,
        "positive": positive,
        "given": given,
        "batch_size": batch_size,
        "epochs": epochs,
        "probabilities": probabilities,
        "seconds": seconds,
    }
    found = [
        replace(each, again=Again(_call(each, updates, settings), rows, *own)) for each in found
    ]
    return found[0] if repeats is None else found


def _call(made: Fit, updates: int | None, settings: Mapping[str, Any]) -> Callable[..., Fit]:
    """Return the call of `fit` that has the settings and the optimizer of a fit."""
    if not holds(made.optimizer, FullBatch):
        # A callback may have ended the fit.
        updates = int(made.state["update"])
    return partial(fit, optimizer=made.optimizer, updates=updates, progress=False, **settings)


def _begun(
    plan: FitPlan, models: Sequence[Model], rngs: Sequence[np.random.Generator]
) -> list[UnderWay]:
    """Return the fits before their first update."""
    first = plan.begun(models[0], plan.target, rngs[0])
    # All fits share the rows of data in the precision of learning.
    shared, others = first.run.target, zip(models[1:], rngs[1:], strict=True)
    log.info("data phase by %r, model phase by %r", first.run.positive, first.run.phase)
    log.info("steps by %r%s", first.run.optimizer, "; at base rates" if first.begun else "")
    return [first, *(plan.begun(model, shared, rng, first) for model, rng in others)]


def _saver(
    checkpoint: str | Path,
    plan: FitPlan,
    model: Model,
    one: UnderWay,
    rng: RngLike,
    sample_weight: ArrayLike | None,
) -> Saver:
    """Return the writer of the checkpoint; its mark has all settings on which the fit depends."""
    weights = None if sample_weight is None else row_weights(np.size(sample_weight), sample_weight)
    settings: dict[str, object] = {
        "negative": plan.negative,
        "positive": plan.positive,
        "given": written(model.structure, plan.given),
        "optimizer": plan.optimizer,
        "batch_size": plan.length.batch_size,
        "rng": rng,
        "sample_weight": weights,
        "state": plan.state,
        "started": one.begun,
    }
    if plan.probabilities:
        drawn = {n: np.asarray(~np.isnan(p).all(axis=0)) for n, p in plan.probabilities.items()}
        settings["probabilities"] = written(model.structure, drawn)
    if shards := plan.data.shards:
        settings["shards"] = [part.title for part in shards.parts]
    if others := plan.data.others:
        settings["others"] = [(rows.structure.units, rows.rows) for rows, _, _ in others]
    mark = mark_of(model, plan.rows, settings)
    return Saver(checkpoint, mark, SECONDS_BETWEEN_CHECKPOINTS)


def _resumed(saver: Saver, one: UnderWay) -> bool:
    """Whether the fit goes on from a checkpoint; PgmError if it has no updates left to make."""
    found = saver.resume(one.run, one.history, one.watch)
    if found:
        check_left(one.total - one.run.count, 0, one.run.count, f"{saver.path}")
    return found


def _ended(
    one: UnderWay,
    structure: Structure,
    means: States,
    labels: Mapping[str, tuple[str, ...]],
    interrupted: bool,
    unsaved: str,
) -> Fit:
    """Return the result of a fit of a model that was declared with this structure."""
    run, travels = one.run, one.run.model_phase.travels
    if travels is not None and (why := travels.hardly_visited()):
        run.notes["ladder"] = why
        # Of rungs without any chain there has been a warning.
        if not travels.warned:
            log.warning("%s", why)
    if one.stopped:
        log.info("stopped after %d updates: %s", run.count, one.stopped)
    for note in run.notes.values():
        log.info("%s", note)
    return Fit(
        _learned(run.model, structure, labels, Training(means, run.last_chains())),
        one.history.arrays(),
        run.state(),
        interrupted,
        one.stopped,
        run.positive,
        run.phase,
        unsaved,
        run.factorised,
        run.optimizer,
        one.begun,
        one.findings(interrupted),
        tuple(run.notes.values()),
        account_of(run),
    )


def _learned(
    model: Model, structure: Structure, labels: Mapping[str, tuple[str, ...]], training: Training
) -> Model:
    """Return a learned model, without the auxiliary variables that the declared structure lacks."""
    if model.structure is not structure:
        gone = model.structure.auxiliary - structure.auxiliary
        biases = {f"{name}.bias" for name in gone}
        params = {key: value for key, value in model.params.items() if key not in biases}
        chains = {name: x for name, x in training.chains.items() if name not in gone}
        model, training = Model(structure, params), replace(training, chains=chains)
    return model.with_labels(labels).with_training(training)


def _models(given: Any, repeats: int | None) -> list[Model]:
    """Return the model at which each fit begins; PgmError if several of them do not fit."""
    if repeats is None:
        return [as_model(given)]
    count = whole("repeats", repeats)
    if not isinstance(given, (list, tuple)):
        return [as_model(given)] * count
    models = [as_model(one) for one in given]
    if len(models) != count:
        raise PgmError(f"repeats is {count}, but there are {len(models)} models to begin with")
    same, units = declaration_of(models[0]), placed_units(models[0].structure)
    for number, one in enumerate(models):
        # A declaration lists tables and shared terms without their units.
        if declaration_of(one) != same or placed_units(one.structure) != units:
            raise PgmError(
                f"model {number} has another structure than model 0: fits that are made at once "
                "have the same layers, couplings and tables, over the same units"
            )
    # What is known of a structure, such as plans, is found once.
    structure = models[0].structure
    return [Model(structure, one.params, one.training, one.fresh) for one in models]


def _warn_of_absent_values(callbacks: Sequence[Monitor | PhaseMonitor], history: History) -> None:
    """Warn of names that EarlyStopping watched and no callback returned.

    A monitor may return nothing for a long time, so that only the end of the fit shows such names.
    """
    for name in (c.watched for c in callbacks if isinstance(c, EarlyStopping)):
        if name not in history.values:
            log.warning(
                "EarlyStopping watched %r, of which no callback said anything%s",
                name,
                nearest(name, history.values),
            )


def pass_on(found: object) -> None:
    """Raise KeyboardInterrupt if a fit was interrupted, so that a series of fits ends as well."""
    if getattr(found, "interrupted", False):
        raise KeyboardInterrupt
