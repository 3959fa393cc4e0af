"""CAST: coupled adaptive simulated tempering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pgmengine import _kernels
from pgmengine.base.checks import check_truth, check_whole
from pgmengine.base.types import Snapshot
from pgmengine.engine.kernels import Gibbs
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.ladders.coupled_ladders import CoupledTempering
from pgmengine.infer.sampling.ladders.temperatures import Betas, check_betas, fixed, ladder
from pgmengine.infer.sampling.ladders.wandering import GammaSchedule, OneOverT, check_gamma
from pgmengine.learn.contracts import ModelPhase
from pgmengine.learn.negative.phase_chains import Kernels, adopted, restored, unconditioned
from pgmengine.learn.phases.batch import Batch
from pgmengine.learn.phases.statistics import Statistics
from pgmengine.learn.recorded.recorded_chains import RecordedChains
from pgmengine.learn.recorded.recorder import NotCompiled, Recorder
from pgmengine.learn.steps.schedules import at


@dataclass(frozen=True)
class CAST:
    """Coupled adaptive simulated tempering (Salakhutdinov 2010, section 6.1).

    Use it for models whose modes plain chains rarely leave. Slow chains at beta = 1 give the
    gradient. As many fast chains move over a ladder with adaptive weights. Every `swap_every`
    updates the two chains of a pair change places, if the fast one is then at beta = 1. See
    CoupledTempering.

    The model phase takes 1.7 to 3.3 times as long as that of PCD with as many slow chains, because
    it has twice the chains and computes log p of the fast ones. The factor is larger in small
    models and with more sweeps. A whole update takes 1.2 to 1.8 times as long with k = 1, and up to
    2.7 times with k = 5.

    Parameters
    ----------
    chains : number of slow chains, and of fast ones.
    betas : the ladder: a schedule, or numbers in [0, 1] that reach 1. The default suits large
        models; small ones need lower temperatures.
    swap_every : updates from one exchange to the next.
    k : sweeps of an update.
    kernel : a kernel, or a schedule of kernels, update -> kernel.
    gamma : schedule of the weights of the rungs. They have to follow a model that learns, so the
        rate has a floor. The floor has a price: with a higher floor or fewer chains, the shares of
        modes that chains rarely leave have larger errors, even at fixed parameters, and learning
        suffers (see the results). OneOverT() has no such error, but its weights soon cease to
        follow the model. Per update, the log weights of the two ends of the ladder move apart by
        at most the floor times the difference of their shares of the fast chains. So a ladder of n
        rungs is held only where log Z of the two ends moves apart by clearly less than floor / n
        nats per update. While an RBM 784x100 learns 5,000 digits by SGD(0.05), they move apart by
        0.005, twice as much as 20 rungs and a floor of 0.05 can follow: between updates 500 and
        1,000, six rungs had less than 1 % of the fast chains each. With a floor of 0.3 each rung
        had 3 % or more. `Fit.notes` says if rungs were hardly visited, and
        `Occupancy` shows the shares.
    weights_per_chain : whether each fast chain has its own log weights of the rungs, as in the
        paper; by default all pairs share one set. Weights of its own also adapt to the mode of the
        chain: at fixed parameters and with a floor, they bias the shares of modes more. They take
        no measurable time, and pairs x rungs numbers of memory.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Salakhutdinov (2010), Learning deep Boltzmann machines using adaptive MCMC.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> pgm.CAST(chains=50, swap_every=50).k
    1
    """

    chains: int = 100
    betas: Betas = tuple(np.linspace(0.9, 1.0, 20).tolist())
    swap_every: int = 50
    k: int = 1
    kernel: Kernels = Gibbs()
    gamma: GammaSchedule = OneOverT(floor=0.05)
    weights_per_chain: bool = False
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_gamma(self)
        check_whole(self, "chains", "swap_every", "k")
        check_betas(self)
        check_truth(self, "weights_per_chain")
        object.__setattr__(self, "betas", fixed(self.betas))

    def start(self, given: Target, rng: np.random.Generator) -> ModelPhase:
        """Start the chains, and find the ladder."""
        return _Phase(self, given, rng)


class _Phase(ModelPhase):
    def __init__(self, settings: CAST, given: Target, rng: np.random.Generator) -> None:
        one, kernel, self.settings = unconditioned("CAST", given), at(settings.kernel, 0), settings
        many = one.take(np.zeros(settings.chains, dtype=int))
        betas = ladder(settings.betas, one, kernel, rng)
        steps = settings.swap_every * settings.k
        self.coupled = CoupledTempering(
            many, betas, kernel, settings.gamma, steps, rng, settings.weights_per_chain
        )
        self.travels, self.chains_an_update = self.coupled.travels, settings.chains

    def statistics(self, batch: Batch, update: int, rng: np.random.Generator) -> Statistics:
        """Make k steps of the coupled chains; the slow chains give the expectation."""
        coupled, kernel = self.coupled, self.settings.kernel
        coupled.chains = adopted(coupled.chains, batch.model, kernel, update, rng)
        coupled.rng = rng
        for _ in range(self.settings.k):
            coupled.step()
        return batch.mean(coupled.chains.values(coupled.slow, dtype=batch.precision))

    def record(self, recorder: Recorder) -> None:
        """Append the sweep of all chains, the moves on the ladder, and the exchanges."""
        coupled, settings = self.coupled, self.settings
        if settings.k > 1 or type(settings.gamma) is not OneOverT:
            raise NotCompiled("CAST has several sweeps, or weights that depend on their visits")
        chains = RecordedChains(recorder, coupled.chains, settings.kernel, all_rows=True)
        if not chains.chains.two_sided:
            raise NotCompiled("log densities do not follow from the fields of half of the layers")
        chains.take_biases()
        chains.sweep_once(recorder.key())
        # A ladder of one rung proposes nothing.
        recorder.uniform_numbers(2 * settings.chains if len(coupled.betas) > 1 else 0)
        increment = recorder.rate(self._increment)
        recorder.rate(self._due)
        coupled.rung = np.ascontiguousarray(coupled.rung)
        travels, weights = coupled.travels, coupled.weights
        ladder = _kernels.Ladder(
            betas=np.array(coupled.betas, dtype=np.float64),
            rung=coupled.rung,
            slow=coupled.slow,
            fast=coupled.fast,
            log_g=weights.log_g,
            visits=weights.visits,
            seen=travels.seen,
            visited=travels.visits,
            counts=travels.counts,
            from_below=travels.from_below.view(np.uint8),
        )
        recorder.add(
            "ladder",
            rate=increment,
            ladder=ladder,
            chains=chains.chains.routine,
            rows=chains.rows,
            parts=chains.parts(1),
        )
        recorder.afterwards.append(travels.warn)
        for name, value in chains.values.items():
            recorder.add(
                "pick", m=value.shape[1], a=value, chosen=coupled.slow, out=recorder.values[name]
            )

    def _increment(self, update: int) -> float:
        """Return the increment of the log weights in an update, and go on to the next one."""
        weights = self.coupled.weights
        now, weights.t = weights.rate, weights.t + 1
        bins = weights.log_g.shape[1]
        weights.rate, _ = weights.schedule.rate(now, weights.t, bins, weights.visits)
        return now

    def _due(self, update: int) -> float:
        """Return 1 if exchanges are due in an update, else 0."""
        self.coupled.steps += 1
        return float(self.coupled.steps % self.coupled.swap_every == 0)

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the coupled chains."""
        return self.coupled.state()

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""
        betas = restored(self.settings.betas, self.coupled.betas, snapshot)
        self.coupled.load({**snapshot, "/betas": betas})
