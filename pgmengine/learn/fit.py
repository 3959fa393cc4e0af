"""fit: maximise the mean log-likelihood of data by stochastic gradient ascent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from pgmengine.errors import PgmError
from pgmengine.graph import Rng
from pgmengine.learn.optimizers import Adam
from pgmengine.learn.phases import PCD, Batch, only, scaled
from pgmengine.methods.exact import Exact
from pgmengine.methods.mcmc import MCMC
from pgmengine.model import Flat, Model
from pgmengine.progress import track
from pgmengine.target import Target

Array = np.ndarray
POSITIVE_BITS = 10  # posteriors that need more than this are sampled unless `positive` says otherwise


@dataclass(frozen=True, eq=False)
class Fit:
    """What fit returns: the model, what was monitored, and the state to go on from.

    history maps a name to {"update": (n,), "value": (n,)}; `interrupted` is True after Ctrl-C, and the model is then
    that of the last complete update.
    """

    model: Model
    history: dict[str, dict[str, Array]]
    state: dict[str, Any]
    interrupted: bool = False


def fit(model: Model, data: Mapping[str, Any], negative: Any = None, positive: Any = None, given: Sequence[str] = (),
        optimizer: Any = None, batch_size: int = 100, epochs: int = 10, updates: int | None = None,
        callbacks: Sequence[Any] = (), rng: Rng = 0, progress: bool = True) -> Fit:
    """Learn a model's parameters: theta += step(E[d log_density | data] - E[d log_density | given]).

    Parameters
    ----------
    data : layer -> (rows, size); NaN = missing; layers left out are hidden.
    negative : the model phase, PCD() by default; a normalised (directed) model has none.
    positive : method for the data phase; by default Exact up to 2^10 states a row, else one-chain Gibbs sampling.
    given : layers to condition on: log p(rest | given) is maximised.
    optimizer : Adam(1e-3) by default.
    updates : number of updates; overrides epochs.
    callbacks : called as callback(model, update), from update 0 (before learning) to the last; what they return is
        history.

    Raises PgmError for empty data, values outside their units' support, and a gradient that is not finite.

    >>> import pgmengine as pgm
    >>> x = pgm.datasets.bars_and_stripes().x_train
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, updates=20, progress=False)
    >>> f.history["weight_norm"]["update"][-1]
    np.int64(20)
    """
    target = model.given(_checked(model, data))
    rows = target.rows
    size = min(batch_size, rows)
    if size < 1:
        raise PgmError(f"batch_size must be at least 1, not {batch_size}")
    total = updates if updates is not None else epochs * -(-rows // size)
    run = _Run(model, target, negative or PCD(), positive, tuple(given), optimizer or Adam(), np.random.default_rng(rng))
    history = _History()
    history.add(0, run, callbacks)
    interrupted = False
    try:
        for update in track(range(1, total + 1), "learning", progress):
            run.update(run.next_rows(size))
            history.add(update, run, callbacks)
    except KeyboardInterrupt:
        interrupted = True
    return Fit(run.model, history.arrays(), run.state(), interrupted)


def _checked(model: Model, data: Mapping[str, Any]) -> Mapping[str, Any]:
    if not data:
        raise PgmError("data is empty: give layer -> (rows, size) for at least one layer")
    return data


class _Run:
    """The moving parts of one fit; `model` is always the last complete state."""

    def __init__(self, model: Model, target: Target, negative: Any, positive: Any, given: tuple[str, ...],
                 optimizer: Any, rng: np.random.Generator) -> None:
        for name in given:
            model.structure.layer(name, what="given: layer")
        self.model, self.target, self.negative, self.given = model, target, negative, given
        self.optimizer, self.rng = optimizer, rng
        self.positive = positive or self._default_positive()
        self.moments = optimizer.start(model.params)
        self.normalized = model.structure.normalized and not given
        self.chains = None if self.normalized else negative.start(model, only(target.take(np.zeros(1, dtype=int)),
                                                                              given), rng)
        self.order: Array = np.zeros(0, dtype=int)
        self.count = 0

    def _default_positive(self) -> Any:
        exact = Exact(POSITIVE_BITS)
        fits = exact.plan(self.target, ("gradient",)).accepted
        return exact if fits else MCMC(chains=1, warmup=10, draws=5)

    def next_rows(self, size: int) -> Array:
        """The next mini-batch: shuffled passes over the rows, the last batch of a pass may be smaller."""
        if not len(self.order):
            self.order = self.rng.permutation(self.target.rows)
        rows, self.order = self.order[:size], self.order[size:]
        return np.sort(rows)

    def update(self, rows: Array) -> None:
        """One update; `model` changes only when all of it is done."""
        data = self.target.take(rows).with_model(self.model)
        result = self.positive.run(data, ("gradient",), rng=self.rng)
        gradient = scaled(result.gradient, 1 / len(rows))
        chains = self.chains
        if not self.normalized:
            batch = Batch(data, only(data, self.given), lambda: self._complete(data))
            second, chains = self.negative.gradient(batch, self.chains, self.rng)
            gradient = {k: gradient[k] - second[k] for k in gradient}
        _check_finite(gradient, self.count + 1)
        params, moments = self.optimizer.step(self.model.params, gradient, self.moments, self.count)
        _check_finite(params, self.count + 1)
        params = _nonnegative(self.model, params)
        self.model, self.moments, self.chains, self.count = (Model(self.model.structure, params), moments, chains,
                                                             self.count + 1)

    def _complete(self, data: Target) -> Flat:
        """A posterior draw of the batch, flat."""
        fits = Exact(POSITIVE_BITS, draws=1)
        method = fits if fits.plan(data, ("samples",)).accepted else MCMC(chains=1, warmup=10, draws=1)
        samples = method.run(data, ("samples",), rng=self.rng).samples
        return {n: data.structure.layers[n].flat(v[0]) for n, v in samples.items()}

    def state(self) -> dict[str, Any]:
        """Everything needed to go on."""
        return {"update": self.count, "optimizer": self.moments, "chains": self.chains,
                "rng": self.rng.bit_generator.state}


def _check_finite(arrays: Mapping[str, Any], update: int) -> None:
    for name, value in arrays.items():
        if not np.isfinite(value.data if sp.issparse(value) else value).all():
            raise PgmError(f"update {update}: the gradient of {name!r} is not finite; learning has diverged")


def _nonnegative(model: Model, params: dict[str, Any]) -> dict[str, Any]:
    """Parameters into units that need them >= 0 are brought back to 0 (projected gradient ascent)."""
    s = model.structure
    for name, layer in s.layers.items():
        if layer.unit.nonnegative:
            for key in (f"{name}.bias", *(f"{c.key}.weight" for c in s.arrows_into[name])):
                params[key] = params[key].maximum(0) if sp.issparse(params[key]) else np.maximum(params[key], 0)
    return params


class _History:
    """Collects what is monitored."""

    def __init__(self) -> None:
        self.values: dict[str, list[tuple[int, float]]] = {}

    def add(self, update: int, run: _Run, callbacks: Sequence[Any]) -> None:
        """The weight norm, and what the callbacks return."""
        norm = sum(float(np.square(v.data if sp.issparse(v) else v).sum()) for k, v in run.model.params.items()
                   if k.endswith(".weight"))
        found = {"weight_norm": norm**0.5}
        for callback in callbacks:
            found |= callback(run.model, update) or {}
        for name, value in found.items():
            self.values.setdefault(name, []).append((update, value))

    def arrays(self) -> dict[str, dict[str, Array]]:
        """Name -> {"update", "value"}."""
        return {name: {"update": np.array([u for u, _ in pairs]), "value": np.array([v for _, v in pairs])}
                for name, pairs in self.values.items()}
