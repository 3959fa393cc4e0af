"""Markov chain Monte Carlo: several chains for each row of evidence, with diagnostics.

Each chain sweeps its kernel, drops the sweeps of the warm-up, and keeps every `thin`-th state.
Chains have dispersed starts (draws/starts.py), so that their agreement is evidence of mixing. They
are judged by R-hat and effective sample size (diagnostics/convergence.py). Groups of chains have
random numbers of their own, so that the answer has the same bits on any executor. The tests compare
means with exact answers, and kernels with invariance by chi-square.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_whole, seeded
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.types import Array, RngLike, Snapshot, States
from pgmengine.base.work.progress import track
from pgmengine.engine.chains import Chains, engine_for, make_chains, over_chains, sweep_work
from pgmengine.engine.cost import engine
from pgmengine.engine.kernels import Gibbs, Kernel, draws_forests
from pgmengine.engine.single_site.sweeps import TabledChains
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import independent, most_apart
from pgmengine.infer.question.prepared import AnyPrepared
from pgmengine.infer.results.axes import by_row
from pgmengine.infer.results.result import Result, Status
from pgmengine.infer.sampling.draws.collected import Draws
from pgmengine.infer.sampling.draws.dispersed_starts import (
    CHAINS_PER_GROUP,
    dispersed,
    sweeps_apart,
)
from pgmengine.infer.sampling.draws.sampler import CHAIN_STATISTICS, ChainPlan, Sampler
from pgmengine.model.containers import as_floats

# Sweeps of the warm-up in one call. Where visits are independent, the sweeps of one call overlap
# (engine/single_site/independent_visits.py).
WARMUP_SWEEPS_AT_ONCE = 8

# Seconds for a unit of the dispersed starts of a row, half of whose chains begin in modes.
STARTING_SECONDS_PER_UNIT = 4e-6


@dataclass(frozen=True)
class MCMC(Sampler):
    """Chains of sweeps of a kernel at beta = 1.

    Use it for marginals, samples, pairs and gradients of models that are too large for exact
    answers and in which chains move between modes. If chains stay in one mode, use
    ParallelTempering.

    Parameters
    ----------
    kernel : any kernel.
    chains : number of chains for each row of evidence.
    warmup : sweeps that are dropped.
    draws : draws of each chain.
    thin : sweeps from one draw to the next.
    rhat_limit : largest R-hat of chains that have mixed; with math.inf, diagnostics are left out.

    Notes
    -----
    `stats` holds ess, rhat and mcse of each layer's means (rows, size[, k]), sum_rhat and sum_mcse
    of the sum over each layer of several units (rows, k), energy_ess, energy_rhat and energy_mcse
    (rows,), energy (chains, draws, rows), and sweeps_apart (rows,), the sweeps in which chains from
    opposite starts met, or the first number that was too large. The status is NOT_MIXED where more
    than 1 in 100 R-hats are above the limit, where the effective number of draws is too small, and
    where chains from opposite starts stayed apart for more than a hundredth of the sweeps of all
    chains. A run goes on from the `state` of an earlier result.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), method=pgm.MCMC(draws=200), rng=0)
    >>> sorted(r.stats)[:6], r.kind
    (['energy', 'energy_ess', 'energy_mcse', 'energy_rhat', 'ess', 'mcse'], 'estimate')
    """

    # Chains can reach another mode only through the states in between.
    local = True
    groups_chains = True
    statistics = CHAIN_STATISTICS | by_row("sweeps_apart")

    kernel: Kernel = Gibbs()
    chains: int = 4
    warmup: int = 500
    draws: int = 1000
    thin: int = 1
    rhat_limit: float = 1.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "thin")

    def scheme(self, target: Target, want: tuple[str, ...]) -> ChainPlan:
        """Return the work and memory of the chains.

        Free parents of directed units are refused if they have infinitely many values.
        """
        return self.scheme_of_sweeps(target, want)

    def scheme_of_sweeps(
        self,
        target: Target,
        want: tuple[str, ...],
        also: str = "",
        work: float = 0.0,
        seconds: float = 0.0,
    ) -> ChainPlan:
        """Return the plan of the sweeps, and of what else moves the chains.

        `work` and `seconds` are those of the other moves, and `also` describes them.
        """
        sweeps = self.warmup + self.draws * self.thin
        slow = sorted(map(repr, target.structure.names.declared(target.pattern.by_unit)))
        how = f"unit by unit in {listed(slow)}" if slow else "layer by layer"
        if draws_forests(self.kernel):
            drawn = engine_for(target, self.kernel) is TabledChains
            how = (
                "unit by unit, each before the draw of a forest"
                if drawn
                else f"{how}, and no forests, which need units with finitely many values"
            )
        e, n = engine(target, self.kernel), target.rows * self.chains
        moving = e.run(n, sweeps, self.warmup + self.draws)
        moving += (e.density + e.values).of(n, self.draws)
        few = target.rows * min(self.chains, CHAINS_PER_GROUP)
        moving += (e.sweep + e.values).of(few, most_apart(self._swept))
        moving += STARTING_SECONDS_PER_UNIT * target.rows * target.structure.units
        how = f"{self.chains} chains of {sweeps} {type(self.kernel).__name__} sweeps, {how}"
        how, work = ", ".join([how] + [also] * bool(also)), work + sweeps * n * sweep_work(target)
        return self.scheme_of(target, want, how, work, moving + seconds)

    def mover(
        self, many: Target, chains: Chains, rng: np.random.Generator, streams: Array
    ) -> Callable[[int], None]:
        """Return the function that makes a number of sweeps of the chains.

        `rng` and `streams` are those of `make_chains`.
        """
        return chains.sweep

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Sweep the chains; those of a single row are divided into groups on an executor.

        If sums over all chains are wanted, there is one group, so that the sums have the same bits.
        """
        target, want = question.target, question.want
        work = 0.0 if {"pairs", "gradient"} & set(want) else question.plan.work
        generator = seeded(rng)
        many = target.take(np.repeat(np.arange(target.rows), self.chains))
        known: dict[str, Array] = {}
        if state is None:
            x = dispersed(many, self.chains, self.kernel, generator)
            known = self._apart(many, x, generator)
        else:
            x = many.clamp(_checked_state(many, state))
        found = over_chains(
            executor, self._sweep, many, self.kernel, x, generator, work, want, target.rows
        )
        draws = Draws.joined(many, [part for part, _ in found])
        name, most = type(self).__name__, independent(known, self._swept)
        stats, _, note = draws.judged(
            target, self.rhat_limit, question.plan.seconds, name, self.thin, most
        )
        stats |= known
        note = tuple(dict.fromkeys((*self.unmixed(stats, target.structure), *note)))
        status = Status.NOT_MIXED if note else Status.OK
        last = {name: np.concatenate([x[name] for _, x in found]) for name in x}
        return question.result(draws.answers(target), stats, status, note, last)

    def _apart(self, many: Target, x: States, rng: np.random.Generator) -> dict[str, Array]:
        """Return the statistic of the sweeps in which chains from the starts `x` meet.

        These chains are not the ones that draw, so that a run is not judged by its own luck, and an
        executor that divides the chains changes nothing.
        """
        if self.rhat_limit == math.inf or self.chains < 2:
            return {}
        some = np.flatnonzero(np.arange(many.rows) % self.chains < CHAINS_PER_GROUP)
        few, stream, streams = many.take(some), rng.spawn(1)[0], np.arange(len(some))
        chains = make_chains(few, self.kernel, {n: v[some] for n, v in x.items()}, stream, streams)
        sweep, rows = self.mover(few, chains, stream, streams), many.rows // self.chains
        return {"sweeps_apart": sweeps_apart(chains, sweep, rows, most_apart(self._swept))}

    @property
    def _swept(self) -> int:
        """The number of sweeps of all chains of a row, without the warm-up."""
        return self.chains * self.draws * self.thin

    def _sweep(
        self,
        many: Target,
        x: States,
        rng: np.random.Generator,
        streams: np.ndarray,
        wanted: tuple[str, ...],
        rows: int,
    ) -> tuple[Draws, States]:
        """Return the draws of some chains, and their last states."""
        chains = make_chains(many, self.kernel, x, rng, streams)
        sweep = self.mover(many, chains, rng, streams)
        for made in track(range(0, self.warmup, WARMUP_SWEEPS_AT_ONCE), "warming up"):
            sweep(min(WARMUP_SWEEPS_AT_ONCE, self.warmup - made))
        judged = self.rhat_limit < math.inf
        draws = Draws.none(many, wanted, many.rows // rows, self.draws, judged)
        for t in track(range(self.draws), "sampling"):
            sweep(self.thin)
            draws.add_now(t, chains)
        return draws.detached(), chains.values()


def _checked_state(target: Target, state: Snapshot) -> States:
    """Return a snapshot as floats; raise PgmError unless it fits the model, rows and chains."""
    if not isinstance(state, Mapping):
        raise PgmError(
            f"MCMC: state must be the `state` of another result, not {type(state).__name__}"
        )
    found = {}
    for name, layer in target.structure.layers.items():
        found[name] = as_floats(state.get(name, ()), f"MCMC: state of {layer.title}")
        if found[name].shape != (target.rows, layer.width):
            raise PgmError(
                f"MCMC: state does not fit: {layer.title} has shape {found[name].shape}, "
                f"expected (rows * chains, width) = {(target.rows, layer.width)}"
            )
        if not layer.unit.contains(layer.shaped(found[name])).all():
            raise PgmError(
                f"MCMC: state of {layer.title} has a number that is not a value of {layer.unit!r}"
            )
    return found
