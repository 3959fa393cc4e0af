"""fit: maximise the mean log-likelihood of data by stochastic gradient ascent."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pgmengine.base.checks import check_instance, seeded, whole
from pgmengine.base.errors import PgmError
from pgmengine.base.names import nearest
from pgmengine.base.progress import track
from pgmengine.base.threads import one_blas_thread
from pgmengine.base.types import Array, RngLike
from pgmengine.graph.frames import data_by_layer
from pgmengine.graph.model import Model
from pgmengine.graph.target import Target, make_target
from pgmengine.graph.validate import as_floats
from pgmengine.learn.averaged import averaged
from pgmengine.learn.checkpoint import fingerprint, read
from pgmengine.learn.history import History
from pgmengine.learn.interrupt import Interrupt
from pgmengine.learn.monitors import EarlyStopping
from pgmengine.learn.negative import CD, PCD
from pgmengine.learn.optimizers import Adam, check_optimizer
from pgmengine.learn.positive import factorises
from pgmengine.learn.run import Run
from pgmengine.learn.saver import Saver, alone

log = logging.getLogger(__name__)
SAVE_EVERY = 4.0  # seconds between checkpoints
KEPT = 30_000_000  # bytes of the largest arrays whose memory is kept for the next ones


@dataclass(frozen=True, eq=False)
class Fit:
    """What fit returns: the model, what was monitored, and the state to go on from.

    history maps a name to {"update": (n,), "value": (n,)}; `interrupted` is True after Ctrl-C, and
    the model is then that of the last complete update; `stopped` says why a callback ended the fit,
    if one did. `positive` and `negative` are the methods of the two phases, as chosen; a normalised
    model has no negative one. `state` is what fit(state=) takes to go on: arrays and numbers by
    name, of which "update" (how many have been made) is for reading. `unsaved` says why the
    checkpoint could not be written at the end, if that is so: the disk may have been full.
    `factorised` says that the posterior of each row is a product of its units, so that the data
    phase is exact by whatever method.
    """

    model: Model
    history: dict[str, dict[str, Array]]
    state: dict[str, Any]
    interrupted: bool = False
    stopped: str = ""
    positive: Any = None
    negative: Any = None
    unsaved: str = ""
    factorised: bool = False

    @property
    def averaged(self) -> Model:
        """The model at the average of the parameters that an `Averaged` optimizer keeps; PgmError
        with any other.
        """
        return averaged(self.model, self.state)

    def __repr__(self) -> str:
        unsaved = f"; {self.unsaved}" if self.unsaved else ""
        made = f"{self.model!r}; {self.state['update']} updates"
        exact = (
            "exact, because posteriors factorise" if self.factorised else f"by {self.positive!r}"
        )
        return (
            f"Fit({made}; data phase {exact}, model phase by {self.negative!r}; "
            f"monitored: {', '.join(self.history)}{unsaved})"
        )


def fit(
    model: Model,
    data: Any,
    negative: Any = None,
    positive: Any = None,
    given: Sequence[str] | None = (),
    optimizer: Any = None,
    batch_size: int = 100,
    epochs: int = 10,
    updates: int | None = None,
    callbacks: Sequence[Any] = (),
    rng: RngLike = 0,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    sample_weight: Any = None,
    state: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
) -> Fit:
    """Learn a model's parameters: theta += step(E[d log_density | data] - E[d log_density |
    given]).

    Parameters
    ----------
    model : where learning begins.
    data : layer -> (rows, size), or a DataFrame with a column for each unit; NaN = missing; layers
        left out are hidden.
    negative : the model phase: PCD() by default, CD() with `given` layers; a normalised (directed)
        model has none.
    positive : method for the data phase; by default exact where the posterior factorises or has up
        to 2^10 states, else MeanField(updates=5), whose bound is then what is maximised, or
        one-chain Gibbs sampling where that refuses and above noisy-or children.
    given : layers to condition on: log p(rest | given) is maximised.
    optimizer : Adam(1e-3) by default.
    batch_size : rows of an update; the last one of a pass over the data may have fewer.
    epochs : passes over the data, in all as `updates` are.
    updates : number of updates in all, those of a checkpoint or `state` included; overrides epochs.
        PgmError if that leaves none to make after `state`, or is less than a checkpoint has made.
    callbacks : called as callback(model, update), from update 0 (before learning) to the last; what
        they return, name -> number or None, is history. One with `stops(history)` ends the fit when
        that returns a reason; its history is name -> list of (update, value).
    rng : an integer or a numpy Generator; with `state` the random numbers go on where that left
        them.
    progress : whether a terminal shows how far learning is.
    checkpoint : file to which everything is written every few seconds and at the end, and from
        which a fit of the same model, data shape and settings goes on, to the same bits as without
        a stop on the same kind of processor. One fit at a time has it, by a lock on a file beside
        it that ends with the process. If it cannot be written, as on a full disk, a warning is
        logged, learning goes on, and it is tried again; `Fit.unsaved` says so if the last time
        failed, too.
    sample_weight : (rows,) how much each row counts; 1 on average is made of it.
    state : `Fit.state` of an earlier fit to go on from, with its model, on the same data or others.
    executor : on which the data phase is sampled, where `positive` samples and has much to do; the
        bits are the same.

    Raises PgmError for empty data, values outside their units' support, a checkpoint of something
    else or that another fit is writing, and parameters that are not finite.

    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=20, progress=False)
    >>> f.history["weight_norm"]["update"][-1]
    np.int64(20)
    """
    data, given = data_by_layer(model.structure, data), given or ()
    _check_settings(negative, positive, optimizer, callbacks)
    _check_start(state, checkpoint)
    watched = [c.watched for c in callbacks if isinstance(c, EarlyStopping)]
    target = make_target(model, _checked(model, data, given), what="data")
    if all(all_free or name in given for name, all_free in target.pattern.all_free.items()):
        why = "all layers with data are given" if given else "no value is known"
        raise PgmError(f"there is nothing to learn: {why}")
    size = min(whole("batch_size", batch_size), target.rows)
    total = (
        whole("epochs", epochs, 0) * -(-target.rows // size)
        if updates is None
        else whole("updates", updates, 0)
    )
    negative, optimizer = negative or (CD() if given else PCD()), optimizer or Adam()
    weights = _weights(target, sample_weight)
    settings = {
        "negative": negative,
        "positive": positive,
        "given": tuple(given),
        "optimizer": optimizer,
        "batch_size": size,
        "rng": rng,
        "sample_weight": None if sample_weight is None else weights,
        "state": None if state is None else dict(state),
    }
    mark = fingerprint(model, data, settings) if checkpoint is not None else {}
    with one_blas_thread(), alone(checkpoint):  # from the first product on
        run = Run(
            model,
            target,
            weights,
            negative,
            positive,
            tuple(given),
            optimizer,
            seeded(rng),
            executor,
        )
        log.info(
            "data phase by %r, model phase by %r",
            run.positive,
            run.settings if run.negative is not None else None,
        )
        history = History()
        if state is not None:
            run.load(dict(state))
            _check_left(total - run.count, 1, run.count, "the state")
        saved = read(checkpoint, mark) if checkpoint is not None else None
        if saved is not None:
            log.info("going on from %s", checkpoint)
            arrays, notes = saved
            run.set_params(arrays)
            run.load({**arrays, "rng": notes["rng"], "by": notes["by"]})
            _check_left(total - run.count, 0, run.count, f"{checkpoint}")
            history.values = notes["history"]
        else:
            history.add(run.model, run.count, callbacks, run.negative)
        saver = Saver(checkpoint, mark, SAVE_EVERY)
        interrupted, stopped = _learn(run, history, total, size, callbacks, progress, saver)
        unsaved = saver.at_the_end(run, history)
    if stopped:
        log.info("stopped after %d updates: %s", run.count, stopped)
    for name in watched:
        if (
            name not in history.values
        ):  # a monitor may be quiet for long, so that only the end can tell
            log.warning(
                "EarlyStopping watched %r, of which no callback said anything%s",
                name,
                nearest(name, history.values),
            )
    phases = run.positive, negative if run.negative is not None else None
    return Fit(
        run.model,
        history.arrays(),
        run.state(),
        interrupted,
        stopped,
        *phases,
        unsaved=unsaved,
        factorised=factorises(target),
    )


def _learn(
    run: Run,
    history: History,
    total: int,
    size: int,
    callbacks: Sequence[Any],
    progress: bool,
    saver: Saver,
) -> tuple[bool, str]:
    """Updates until the last one, Ctrl-C, or a callback's word: (interrupted, why stopped)."""
    stopped = _stops(callbacks, history)
    _keep_memory()
    with Interrupt() as interrupt:
        for update in track(range(run.count + 1, total + 1), "learning", progress):
            if interrupt.wanted or stopped:
                break
            run.update(run.next_rows(size))
            history.add(run.model, update, callbacks, run.negative)
            stopped = _stops(callbacks, history)
            saver.now_and_then(run, history)
    return interrupt.wanted, stopped


def _keep_memory() -> None:
    """Let freed memory be used again, update after update, which otherwise begins with zeros from
    the system each time.

    glibc gives arrays back to the system that are larger than any it has freed, up to 32 MiB, so
    one of nearly that size is freed, which was never written to. From then on the process keeps up
    to twice as much free memory for itself. Other allocators take no notice.
    """
    np.empty(KEPT, dtype=np.uint8)


def _stops(callbacks: Sequence[Any], history: History) -> str:
    """Why a callback wants to end the fit, or an empty string."""
    for callback in callbacks:
        if hasattr(callback, "stops") and (why := callback.stops(history.values)):
            return why if isinstance(why, str) else f"{type(callback).__name__} ended it"
    return ""


def _checked(model: Model, data: Mapping[str, Any], given: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or not data:
        found = "is empty" if isinstance(data, Mapping) else f"is {type(data).__name__}"
        raise PgmError(f"data {found}: give layer -> (rows, size) for at least one layer")
    if isinstance(given, str):
        raise PgmError(f"given must be a sequence of layers such as ({given!r},), not a string")
    for name in given:
        model.structure.layer(name, what="given: layer")
        if name not in data:
            raise PgmError(
                f"given: layer {name!r} is not in the data, which has {', '.join(map(repr, data))}"
            )
    for name, layer in model.structure.layers.items():
        if layer.unit.observed_only and name not in given:
            raise PgmError(
                f"layer {name!r} has {layer.unit!r} units, which have no distribution: fit with "
                f"given=({name!r},)"
            )
    return data


def _check_settings(negative: Any, positive: Any, optimizer: Any, callbacks: Any) -> None:
    """PgmError for what is not a method, an optimizer or a callback."""
    if optimizer is not None:
        check_optimizer(optimizer, "optimizer")
    roles = (
        ("negative", negative, ("start",), "PCD()"),
        ("positive", positive, ("run", "gradient", "expect"), "Exact()"),
    )
    for name, thing, does, example in roles:
        check_instance(thing, name)
        if thing is not None and not any(hasattr(thing, what) for what in does):
            raise PgmError(f"{name} must be one such as pgm.{example}, not {thing!r}")
    if negative is not None and not hasattr(negative, "precision"):
        raise PgmError(
            f"negative: {type(negative).__name__} must say in `precision`, np.float32 or np.float64, how "
            "exactly its gradient is worth computing"
        )
    if not isinstance(callbacks, Sequence):
        raise PgmError(f"callbacks must be a list, not {callbacks!r}")
    for callback in callbacks:
        check_instance(callback, "a callback")
        if not callable(callback):
            raise PgmError(
                f"a callback is called as callback(model, update), but {callback!r} cannot be"
            )


def _check_start(state: Any, checkpoint: Any) -> None:
    """PgmError for what learning cannot go on from."""
    if state is not None and not isinstance(state, Mapping):
        raise PgmError(f"state must be the `state` of an earlier fit, not {state!r}")
    if checkpoint is not None and not isinstance(checkpoint, (str, PathLike)):
        raise PgmError(f"checkpoint must be a path, not {checkpoint!r}")


def _check_left(left: int, least: int, made: int, what: str) -> None:
    """PgmError if fewer updates are left to make."""
    if left < least:
        raise PgmError(
            f"{what} has made {made} updates, and {made + left} are asked for: updates and epochs count those "
            "that it has"
        )


def _weights(target: Target, given: Any) -> Array:
    """Row weights with mean 1."""
    if given is None:
        return np.ones(target.rows)
    weights = as_floats(given, "sample_weight")
    if weights.shape != (target.rows,):
        raise PgmError(f"sample_weight has shape {weights.shape}, expected ({target.rows},)")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad) or not weights.any():
        where = (
            f"row {bad[0]} is {weights[bad[0]]}, expected a number >= 0"
            if len(bad)
            else "all rows weigh nothing"
        )
        raise PgmError(f"sample_weight: {where}")
    return (
        weights / weights.max() / (weights / weights.max()).mean()
    )  # of large ones the sum might be infinite
