"""CD: contrastive divergence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.declare.model import Model
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.engine.kernels import Gibbs
from pgmengine.evidence.target import Target
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.negative.phase_chains import Kernels, adopted
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics
from pgmengine.learn.recorded.recorded_chains import RecordedChains
from pgmengine.learn.recorded.recorder import NotCompiled, Recorder
from pgmengine.learn.steps.schedules import at


@dataclass(frozen=True)
class CD:
    """Contrastive divergence: chains of k sweeps that start at the data.

    Its gradient is biased and has little variance; PCD is less biased. It is the default with
    `given` layers, where each row has a model phase of its own.

    Hidden units are drawn given the data; then each sweep visits the layers that have data first,
    and the others by their distance from these. An RBM goes h_0 | v_0, v_1 | h_0, h_1 | v_1, ...,
    whichever layer was declared first, and the statistics are taken at (v_k, h_k): at
    (v_k, h_(k-1)) they would teach the hidden layer nothing with k = 1. The last sweep draws layers
    without data from their conditionals, whatever the kernel, so that the statistics have the mean
    v_k E[h | v_k] (Brügge, Fischer and Igel 2013). After a sweep of flip-the-state, h_k would
    depend on h_0 as well. Missing values in a layer with data are drawn with their layer.

    Parameters
    ----------
    k : sweeps from the data.
    kernel : a kernel, or a schedule of kernels, update -> kernel.

    Raises
    ------
    PgmError if `k` is not an integer of at least 1.

    References
    ----------
    Hinton (2002), Training products of experts by minimizing contrastive divergence.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.CD(k=1).k
    1
    """

    k: int = 1
    kernel: Kernels = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "k")

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the phase; there are no persistent chains."""
        return _Phase(self, given)


class _Phase(ModelPhase):
    def __init__(self, settings: CD, given: Target) -> None:
        self.k, self.kernel, self.given = settings.k, settings.kernel, given
        # The chains are kept for later batches of the same size, if all rows have the same phase.
        self.kept: Chains | None = None

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Draw the hidden units, and make k sweeps; the states after them give the expectation."""
        x = batch.complete()
        chains, (_, hidden) = self._chains(batch, update, rng), batch.outward
        chains.place_at(x)
        chains.sweep(self.k - 1)
        chains.sweep_once(anew=hidden)
        return batch.mean(chains.values(dtype=batch.precision), batch.weights / len(batch.weights))

    def _chains(self, batch: Batch, update: int, rng: np.random.Generator) -> Chains:
        """Return a chain for each row, with sweeps that go outward from the data."""
        rows = len(batch.weights)
        if batch.given is not None:
            target = replace(batch.given, order=sum(batch.outward, ()))
            return make_chains(target, at(self.kernel, update), dict(target.evidence.values), rng)
        if self.kept is None or len(self.kept.beta) != rows:
            self.kept = self._shared_chains(batch.model, batch.outward, rows, update)
        self.kept = adopted(self.kept, batch.model, self.kernel, update, rng)
        return self.kept

    def _shared_chains(
        self, model: Model, outward: tuple[tuple[str, ...], tuple[str, ...]], rows: int, update: int
    ) -> Chains:
        """Return chains of the model phase that all rows have in common."""
        target = replace(self.given.with_model(model), order=sum(outward, ()))
        target = target.take(np.zeros(rows, dtype=int))
        # A generator of its own: the chains get others with the parameters of each update.
        rng = np.random.default_rng(0)
        return make_chains(target, at(self.kernel, update), dict(target.evidence.values), rng)

    def record(self, recorder: Recorder) -> None:
        """Append the draw of the hidden units, and the sweeps from the data."""
        if not recorder.fields:
            raise NotCompiled("hidden units are not independent given the data")
        _, hidden = recorder.outward
        made = self._shared_chains(recorder.model, recorder.outward, recorder.size, 0)
        chains = RecordedChains(recorder, made, self.kernel)
        posterior, key = recorder.key(), recorder.key()
        for name in recorder.observed():
            chains.take_states(name)
        for name, eta in recorder.fields.items():
            chains.take_field(name, eta)
            chains.draw(name, posterior, 0, anew=True, forget=True)
        if self.k > 1:
            chains.sweeps(self.k - 1, key)
            key = -1
        chains.sweep_once(key, self.k - 1, anew=hidden)
