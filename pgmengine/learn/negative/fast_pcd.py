"""FastPCD: persistent chains with fast weights, which drive them out of the states they visit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pgmengine.base.checks import LARGEST, check_number, check_rate, check_whole
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Snapshot
from pgmengine.declare.model import Model
from pgmengine.engine.kernels import Gibbs
from pgmengine.engine.packed import packed
from pgmengine.evidence.target import Target
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.negative.phase_chains import Kernels, Persistent, record_sweeps, sweep
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Gradient, Statistics
from pgmengine.learn.recorded.recorder import Recorder, Slopes
from pgmengine.learn.steps.optimizers import projected
from pgmengine.learn.steps.schedules import Rate, rate_at
from pgmengine.model.weights import elementwise, like, numbers


@dataclass(frozen=True)
class FastPCD:
    """Fast persistent contrastive divergence: PCD whose chains see additional, fast weights.

    The chains move at theta + theta_fast; after each update theta_fast = decay theta_fast + rate
    gradient. The probability of the states that the chains visit therefore falls, and the chains
    move on.

    Parameters
    ----------
    k : sweeps of an update.
    chains : number of chains.
    rate : learning rate of the fast weights, or a schedule, update -> rate.
    decay : share of the fast weights that remains from one update to the next, from 0 to 1.
    kernel : a kernel, or a schedule of kernels, update -> kernel.

    Raises
    ------
    PgmError for settings out of their range; during learning, if the fast weights diverge.

    References
    ----------
    Tieleman and Hinton (2009), Using fast weights to improve persistent contrastive divergence.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.FastPCD(rate=0.01).decay
    0.95
    """

    k: int = 1
    chains: int = 100
    rate: Rate = 0.01
    decay: float = 0.95
    kernel: Kernels = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "k", "chains")
        check_rate(self, "rate", most=LARGEST)
        check_number(self, "decay", most=1)

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the chains, with fast weights of 0."""
        return _Phase(self, given, rng)


class _Phase(Persistent):
    def __init__(self, settings: FastPCD, given: Target, rng: np.random.Generator) -> None:
        super().__init__("FastPCD", given, settings.chains, settings.kernel, rng)
        self.settings = settings
        self.fast = {
            k: like(v, np.zeros(numbers(v).size, dtype=np.float32))
            for k, v in given.model.params.items()
        }

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Move the chains by k sweeps at theta + theta_fast."""
        chains = self.adopt(self.driven(batch.model), update, rng)
        sweep(chains, self.settings.k)
        return batch.mean(chains.values(dtype=batch.precision))

    def learned(self, gradient: Gradient, update: int) -> None:
        """Let the fast weights decay and follow the gradient."""
        rate, decay = rate_at(self.settings.rate, update), self.settings.decay
        for k, value in self.fast.items():
            f = numbers(value)
            f *= decay
            with np.errstate(over="ignore", invalid="ignore"):
                f += rate * numbers(gradient[k])
                fine = np.isfinite(f.sum())
            if not fine:
                raise _diverged(update + 1, k)

    def record(self, recorder: Recorder) -> None:
        """Append the sweeps at theta + theta_fast, and the step of the fast weights."""
        settings, driven = self.settings, {k: np.zeros_like(v) for k, v in recorder.single.items()}
        for k, single in recorder.single.items():
            recorder.add(
                "combine",
                m=single.size,
                a=single,
                b=numbers(self.fast[k]),
                out=driven[k],
                number=1.0,
            )
        record_sweeps(recorder, self.chains, self.kernel, settings.k, driven)
        rate = recorder.rate(settings.rate)

        def follow(slopes: Slopes) -> None:
            for k, slope in slopes.values.items():
                recorder.add(
                    "fast",
                    partial(_diverged, name=k),
                    n=slope.size,
                    a=slope,
                    out=numbers(self.fast[k]),
                    number=settings.decay,
                    rate=rate,
                )

        recorder.with_gradient.append(follow)

    def driven(self, model: Model) -> Model:
        """Return the model with the fast weights added, in single precision as the chains are."""
        slow, whole = packed(model), model.expanded
        params = {
            # Parameters that act as they are stored have been converted for the chains.
            k: elementwise(
                np.add, slow.single(k) if whole.get(k) is v else v.astype(np.float32), self.fast[k]
            )
            for k, v in model.params.items()
        }
        return Model(model.structure, projected(model.structure, params))

    def snapshot(self) -> Snapshot:
        """Return the states of the chains and the fast weights."""
        return super().snapshot() | {f"fast/{k}": numbers(v) for k, v in self.fast.items()}

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from the chains and fast weights of a snapshot."""
        super().restore(snapshot)
        for name, value in self.fast.items():
            numbers(value)[...] = snapshot[f"fast/{name}"]


def _diverged(update: int, name: str) -> PgmError:
    """Return the error for fast weights that have diverged."""
    return PgmError(
        f"update {update}: the fast weights of {name!r} are not finite; try a smaller rate of "
        "FastPCD"
    )
