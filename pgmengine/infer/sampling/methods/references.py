"""Annealing from several references, until two runs agree on the highest log Z.

    E[w] = Z,   hence   P(estimate of log Z > log Z + t) < e^-t      (Markov)

for every reference. An estimate can be far too low, if its chains miss the phase with most of the
probability, but hardly too high. The highest estimate of several runs is therefore the answer. A
single run cannot show that it has missed nothing. Neither can its own reverse run, which starts
where the forward run has ended. Therefore more runs are made on other paths:

    first  : from the reference of the settings, uniform units by default
    second : from the means of chains of the model at beta = 1, which were not annealed
    third  : from the base rates that the training has left with the model, if it has
    fourth : from the mean-field fixed point with the highest bound, over spread starts
    last   : from the reference of the best run, at LAST_RUN_LENGTH_RATIO times as many temperatures

If nothing is observed and the model has the last chains of its training, the chains go on from
these. Because the parameters changed while they moved, they have visited each mode about in
proportion to its probability. Otherwise the chains have dispersed starts. Their means are the
reference nearest to most of the probability. For an RBM 784x500 after 20 epochs, 1,000 temperatures
gave a log Z of 470 from uniform units and from base rates, and 476.5 from the means of all layers.
Ten times as many temperatures also give 476.5.

Two forward runs may agree because both miss the same modes. The reverse run of each further run
therefore starts from the last states of the chains and of the earlier runs. If its own path does
not reach such states, the reverse run gives too high an estimate, and the run confirms nothing.
Chains of the training depend neither on the runs nor on mean field. A reverse run from them is
therefore enough to confirm its own forward run. Without them a forward run from another reference
has to agree as well. For an RBM 784x10 with many modes, forward runs from the means of dispersed
chains and reverse runs from these chains were both low by 0.5 to 0.7 nats, with errors of 0.1.

Each row of evidence goes on until its best run is confirmed and has enough effective weights, or
until no more runs are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.types import Array, States
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import ERRORS_PER_INTERVAL_SIDE, few, heavy
from pgmengine.infer.sampling.ladders.temperatures import Adaptive, count_of
from pgmengine.infer.sampling.methods.annealed_run import AnnealedRun, Runs, joined_runs
from pgmengine.infer.sampling.methods.annealing import (
    Annealing,
    Reached,
    Resources,
    has_chains,
    sweeps_before_reverse,
    swept_chains,
)
from pgmengine.infer.variational.modes import Modes, near

if TYPE_CHECKING:
    from pgmengine.infer.sampling.methods.ais import AIS

# Nats by which two runs that agree may differ in addition to their errors.
MIN_AGREEMENT_NATS = 0.01

# Nats by which a reverse run may differ from a forward run that it confirms, whatever the errors.
# The error that a few weights give is too small if modes are missed.
MAX_REVERSE_GAP_NATS = 0.5

# The largest value in nats of ERRORS_PER_INTERVAL_SIDE standard errors of a run that may confirm
# another one. A run with larger errors would agree with anything.
MAX_CONFIRMING_ERROR_NATS = 1.0

# The number of temperatures of the last run, as a multiple of that of the others.
LAST_RUN_LENGTH_RATIO = 4


@dataclass(frozen=True, eq=False)
class Confirmed:
    """The best run of each row, and whether other runs confirm it.

    Attributes
    ----------
    best : the runs with the highest estimate.
    count : (rows,), number of references.
    agreed : (rows,), whether a run from another reference agrees with the best one.
    high : (rows,), the largest upper end (estimate plus ERRORS_PER_INTERVAL_SIDE errors) of the
        other runs that agree, or -inf.
    """

    best: Runs
    count: Array
    agreed: Array
    high: Array


def annealed(settings: AIS, target: Target, found: Modes | None, by: Resources) -> Confirmed:
    """Anneal all rows; anneal rows without exact draws again, from other references.

    `found` holds the modes of the target, or is None if there are none.
    """
    up, down = first = Annealing(settings, target).runs(by)
    count, agreed = np.ones(target.rows, dtype=np.int64), np.zeros(target.rows, dtype=bool)
    high, sure = np.full(target.rows, -np.inf), (up.error == 0) | up.closed
    sure |= False if down is None else down.exact
    again = np.flatnonzero(~sure) if settings.confirm else np.flatnonzero(sure[:0])
    best = list[Runs]()
    for row in again:
        alone = target.take(np.array([row]))
        mode = None if found is None else {n: v[row, :1] for n, v in found.mean.items()}
        start = first if target.rows == 1 else _rows(first, np.array([row]))
        each = replace(by, work=by.work / target.rows)
        search = _Search(settings, alone, each, [_Tried(start, settings.reference)])
        search.go(mode)
        count[row] = len(search.tried)
        agreed[row], high[row] = search.agreement
        best.append(search.best.runs)
    if not best:
        return Confirmed(first, count, agreed, high)
    rest = np.flatnonzero(~np.isin(np.arange(target.rows), again))
    order = np.argsort(np.concatenate((rest, again)), kind="stable")
    every = [_rows(first, rest), *best]
    joined = joined_runs([up for up, _ in every], order)
    back = [down for _, down in every if down is not None]
    return Confirmed((joined, joined_runs(back, order) if back else None), count, agreed, high)


@dataclass(frozen=True, eq=False)
class _Tried:
    """A forward and a reverse run, and the reference of both."""

    runs: Runs
    reference: Mapping[str, ArrayLike] | None

    @property
    def least(self) -> float:
        """The lower end of the forward estimate."""
        return _end(self.runs[0], -1.0)

    @property
    def sound(self) -> bool:
        """Whether the importance weights of both runs can be trusted."""
        return not any(
            few(run.ess, run.log_weights.shape[1]) or len(heavy(run.shape))
            for run in self.runs
            if run is not None
        )


@dataclass(frozen=True, eq=False)
class _Search:
    """The runs of one row of evidence, in the order in which they were made."""

    settings: AIS
    target: Target
    by: Resources
    tried: list[_Tried]

    @property
    def best(self) -> _Tried:
        """The runs with the highest estimate."""
        return max(self.tried, key=lambda one: one.least)

    @property
    def finished(self) -> bool:
        """True if another run agrees with the best one, and this has enough effective weights."""
        return self.agreement[0] and self.best.sound

    def go(self, mode: States | None) -> None:
        """Make further runs, the last one of them longer, until the row is finished."""
        for settings, reference in islice(self._further(mode), self.settings.confirm):
            self._run(settings, reference)
            if self.finished:
                return

    def _further(self, mode: States | None) -> Iterator[tuple[AIS, Mapping[str, ArrayLike] | None]]:
        """Yield the settings and the reference of further runs; `run_lengths` counts them."""
        for reference in self._references(mode):
            yield self.settings, reference
        if isinstance(self.settings.betas, Adaptive):
            steps = LAST_RUN_LENGTH_RATIO * count_of(self.settings.betas)
            longer = replace(self.settings.betas, count=steps)
            yield replace(self.settings, betas=longer), self.best.reference

    @cached_property
    def chains(self) -> tuple[States, States]:
        """The last states (chains, width) of chains of the model, and their means (1, width)."""
        sweeps = sweeps_before_reverse(count_of(self.settings.betas))
        return swept_chains(self.settings, self.target, sweeps, self.by)

    def _references(self, mode: States | None) -> Iterator[dict[str, Array]]:
        """Yield the references of further runs: means of chains, base rates, and the best mode."""
        yield _only(near(self.target, self.chains[1]))
        if rates := training_rates(self.target):
            yield rates
        if mode is not None:
            yield _only(near(self.target, mode))

    def _run(self, settings: AIS, reference: Mapping[str, ArrayLike] | None) -> None:
        """Anneal up from a reference, and down from states that other chains have reached."""
        ups = [one.runs[0] for one in self.tried]
        reached = [Reached(up.last, float(up.log_z[0])) for up in ups if up.last]
        reached.append(Reached(self.chains[0]))
        # The first run of this row has shown that there are no exact draws.
        again = Annealing(settings, self.target, reference, drawn=False, reached=reached)
        self.tried.append(_Tried(again.runs(self.by), reference))

    @property
    def agreement(self) -> tuple[bool, float]:
        """The value of `_agreement`: whether further runs agree, and the upper end of these."""
        return _agreement(self.tried, has_chains(self.target))


def run_lengths(settings: AIS, target: Target, modes: bool) -> list[int]:
    """Return the lengths of the further runs of a row, as multiples of that of its first run.

    They are all the runs that a row makes which no run confirms; `modes` says whether modes are
    searched.
    """
    training = target.model.training
    rates = training is not None and bool(training.base_rates)
    longer = [LAST_RUN_LENGTH_RATIO] * isinstance(settings.betas, Adaptive)
    return ([1] * (1 + rates + modes) + longer)[: settings.confirm]


def training_rates(target: Target) -> dict[str, Array]:
    """Return natural parameters of independent units with the base rates of the training.

    There are none if the model has not been trained.
    """
    training, layers = target.model.training, target.structure.layers
    rates = {} if training is None else training.base_rates
    mean = {n: np.zeros((target.rows, x.width)) for n, x in layers.items()}
    mean |= {n: layers[n].flat(rate) for n, rate in rates.items()}
    eta = _only(near(target, mean))
    return {name: value for name, value in eta.items() if name in rates}


def _only(eta: States) -> dict[str, Array]:
    """Return the natural parameters (width,) of the only row."""
    return {name: value[0] for name, value in eta.items()}


def _agreement(tried: Sequence[_Tried], trained: bool) -> tuple[bool, float]:
    """Return whether further runs agree with the best forward run, and the upper end of these.

    All runs have one row. The reverse run of a further run starts from states of other chains, and
    has to agree as well. If these chains come from the training, this is enough. Otherwise a
    forward run from another reference has to agree, too.
    """
    top = max(tried, key=lambda one: one.least)
    best = top.runs[0]
    alike = [one for one in tried if one is top or _alike(one.runs[0], best)]
    down = [one for one in alike if one is not tried[0] and _comes_down_to(one.runs, best)]
    # The reverse run of the first run starts from its own states, and confirms nothing.
    ways = [one.reference for one in [*down, *tried[:1]] if one in alike and _precise(one.runs)]
    agreed = bool(down) and (trained or any(way is not ways[0] for way in ways))
    ends = [_end(one.runs[0], 1.0) for one in alike]
    return agreed, max(ends)


def _precise(runs: Runs) -> bool:
    """Return whether a forward run is precise enough to confirm another one."""
    return bool(ERRORS_PER_INTERVAL_SIDE * runs[0].error[0] <= MAX_CONFIRMING_ERROR_NATS)


def _comes_down_to(runs: Runs, best: AnnealedRun) -> bool:
    """Return whether a run is precise and its reverse run agrees with the best forward run."""
    down = runs[1]
    return _precise(runs) and down is not None and _alike(down, best, MAX_REVERSE_GAP_NATS)


def _alike(run: AnnealedRun, best: AnnealedRun, most: float = np.inf) -> bool:
    """Return whether two estimates of log Z agree within their errors and within `most` nats."""
    if not (np.isfinite(run.log_z[0]) and np.isfinite(best.log_z[0])):
        return False
    wide = ERRORS_PER_INTERVAL_SIDE * np.hypot(run.error[0], best.error[0]) + MIN_AGREEMENT_NATS
    return bool(abs(run.log_z[0] - best.log_z[0]) <= min(wide, most))


def _end(up: AnnealedRun, side: float) -> float:
    """Return the lower (-1) or upper (1) end of the estimate of a single row, -inf without one."""
    known = np.isfinite(up.log_z[0]) and np.isfinite(up.error[0])
    return float(up.log_z[0] + side * ERRORS_PER_INTERVAL_SIDE * up.error[0]) if known else -np.inf


def _rows(runs: Runs, rows: Array) -> Runs:
    """Return the estimates of some rows."""
    up, down = runs
    return up.take(rows), None if down is None else down.take(rows)
