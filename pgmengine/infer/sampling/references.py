"""Annealing from several references, until two runs agree on the highest log Z.

    E[w] = Z,   hence   P(estimate of log Z > log Z + t) < e^-t      (Markov)

for every reference. An estimate can be far too low, where its chains miss the phase that holds the
mass, but hardly too high: of several runs the highest counts. One run alone is no evidence that
nothing was missed, nor is its reverse run, which starts where it has ended. A second run on another
path is:

    first  : from the reference of the settings, uniform units by default
    second : from the base rates that the training has left with the model, if it has
    third  : from the mean-field fixed point with the highest bound, climbed to from spread starts
    others : from the means of the last states of the best run so far, by importance weight
    last   : from the reference of the best run, with LONGER times as many temperatures

Two forward runs may agree because both miss the same modes: of a 784x20 RBM of many modes, runs
from the best mode and from its means gave 213.4 and 213.5 with errors of 0.1, where 215.6 is exact.
The reverse run of each further run therefore starts from the last states of the earlier ones. From
states that its path does not reach, it comes out too high (239), and the two do not agree.

Each row of evidence goes on until a run from another reference, and a reverse run from the states
of another one, agree with the best run and have enough effective weights, or until no more runs
are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.types import Array, States
from pgmengine.graph.target import Target
from pgmengine.infer.sampling.annealing import AnnealedRun, Annealing, Settings, joined_runs
from pgmengine.infer.sampling.schedules import Adaptive, Betas, count_of
from pgmengine.infer.sampling.trust import SURE, few, heavy
from pgmengine.infer.variational.modes import Modes, near
from pgmengine.protocols import Kernel

# Nats by which two runs that agree may differ beyond their errors.
ALIKE = 0.01

# Nats by which a reverse run may differ from a forward run that it confirms, whatever the errors.
# The error of few weights is itself too small where modes are missed.
GAP = 0.5

# Nats that SURE errors of a run may be if it confirms another one. A coarser one agrees with
# anything.
COARSE = 1.0

# Temperatures of the last run, in those of the others.
LONGER = 4


# A forward run, and a reverse run where the settings ask for it.
Runs: TypeAlias = "tuple[AnnealedRun, AnnealedRun | None]"


@dataclass(frozen=True, eq=False)
class Confirmed:
    """The best run of each row, with the evidence for it.

    Attributes
    ----------
    best : the runs with the highest estimate.
    count : (rows,), number of references.
    agreed : (rows,), whether a run from another reference agrees with the best one.
    high : (rows,), the largest estimate plus SURE errors of the other runs that agree, or -inf.
    """

    best: Runs
    count: Array
    agreed: Array
    high: Array


def annealed(
    settings: Settings,
    confirm: int,
    target: Target,
    found: Modes | None,
    rng: np.random.Generator,
    work: float,
    executor: Executor | None,
) -> Confirmed:
    """Anneal all rows, and rows without exact draws again, from at most `confirm` references.

    `found` has the modes of the target, or is None without any.
    """
    up, down = first = Annealing(settings, target).runs(rng, work, executor)
    count, agreed = np.ones(target.rows, dtype=np.int64), np.zeros(target.rows, dtype=bool)
    high, sure = np.full(target.rows, -np.inf), (up.error == 0) | up.closed
    sure |= False if down is None else down.exact
    again = np.flatnonzero(~sure) if confirm else np.flatnonzero(sure[:0])
    best = list[Runs]()
    for row in again:
        alone = target.take(np.array([row]))
        mode = None if found is None else {n: v[row, :1] for n, v in found.mean.items()}
        start = first if target.rows == 1 else _rows(first, np.array([row]))
        search = _Search(settings, alone, rng, work / target.rows, executor, start)
        search.go(mode, confirm)
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
    """A pair of runs, and the reference they started from.

    `derived` says whether the reference is the means of an earlier run, `longer` whether the ladder
    was longer than the ones of the others.
    """

    runs: Runs
    reference: Mapping[str, ArrayLike] | None
    derived: bool = False
    longer: bool = False

    def independent(self, other: _Tried) -> bool:
        """Return whether the runs can confirm each other.

        Means of a run lead back to its modes, so that two such runs confirm nothing, nor does one
        of them where the model has so many modes that a longer run was needed.
        """
        derived = self.derived + other.derived
        enough = derived == 0 if self.longer or other.longer else derived < 2
        return enough and self.reference is not other.reference

    @property
    def least(self) -> float:
        """The lower end of the forward estimate."""
        return _least(self.runs[0])

    @property
    def sound(self) -> bool:
        """Whether the importance weights of both runs can be trusted."""
        return not any(
            few(run.ess, run.log_weights.shape[1]) or len(heavy(run.shape))
            for run in self.runs
            if run is not None
        )


class _Search:
    """The runs of one row of evidence, in the order in which they were made."""

    def __init__(
        self,
        settings: Settings,
        target: Target,
        rng: np.random.Generator,
        work: float,
        executor: Executor | None,
        first: Runs,
    ) -> None:
        self.settings, self.target, self.rng = settings, target, rng
        self.work, self.executor = work, executor
        self.tried = [_Tried(first, settings.reference)]

    @property
    def best(self) -> _Tried:
        """The runs with the highest estimate."""
        return max(self.tried, key=lambda one: one.least)

    @property
    def settled(self) -> bool:
        """Whether the best run is agreed upon, and has enough effective weights."""
        return self.agreement[0] and self.best.sound

    def go(self, mode: States | None, most: int) -> None:
        """Make at most `most` runs, and a longer one where they do not settle the row."""
        for reference, derived in self._references(mode, most):
            self._run(self.settings, reference, derived)
            if self.settled:
                return
        steps = LONGER * count_of(self.settings.betas)
        if isinstance(self.settings.betas, Adaptive):
            betas: Betas = replace(self.settings.betas, count=steps)
            best = self.best
            self._run(_Longer(self.settings, betas), best.reference, best.derived, longer=True)

    def _references(
        self, mode: States | None, most: int
    ) -> Iterator[tuple[dict[str, Array], bool]]:
        """Yield base rates of the training, the best mode, then the means of the best run.

        Each comes with whether it is derived from an earlier run.
        """
        training = self.target.model.training
        some = [] if training is None else [_training_rates(self.target, training.base_rates)]
        some += [] if mode is None else [_only(near(self.target, mode))]
        yield from ((reference, False) for reference in some[:most])
        for _ in range(most - len(some)):
            if not self.best.runs[0].mean:
                return
            yield _only(near(self.target, self.best.runs[0].mean)), True

    def _run(
        self,
        settings: Settings,
        reference: Mapping[str, ArrayLike] | None,
        derived: bool,
        longer: bool = False,
    ) -> None:
        """Anneal up from a reference, and down from the states that the other runs have reached."""
        earlier = [one.runs[0] for one in self.tried]
        # The first run of this row has had no exact draws.
        again = Annealing(settings, self.target, reference, drawn=False, earlier=earlier)
        runs = again.runs(self.rng, self.work, self.executor)
        self.tried.append(_Tried(runs, reference, derived, longer))

    @property
    def agreement(self) -> tuple[bool, float]:
        """Whether another forward run and a reverse run agree with the best, and their end."""
        return _agreement(self.tried)


@dataclass(frozen=True)
class _Longer:
    """Settings with another ladder."""

    settings: Settings
    betas: Betas

    @property
    def chains(self) -> int:
        return self.settings.chains

    @property
    def kernel(self) -> Kernel:
        return self.settings.kernel

    @property
    def reverse(self) -> bool:
        return self.settings.reverse

    @property
    def reference(self) -> Mapping[str, ArrayLike] | None:
        return self.settings.reference


def _training_rates(target: Target, rates: Mapping[str, Array]) -> dict[str, Array]:
    """Return natural parameters of independent units with the base rates of the training."""
    layers = target.structure.layers
    mean = {n: np.zeros((target.rows, x.width)) for n, x in layers.items()}
    mean |= {n: layers[n].flat(rate) for n, rate in rates.items()}
    eta = _only(near(target, mean))
    return {name: value for name, value in eta.items() if name in rates}


def _only(eta: States) -> dict[str, Array]:
    """Return the natural parameters (width,) of the only row."""
    return {name: value[0] for name, value in eta.items()}


def _agreement(tried: Sequence[_Tried]) -> tuple[bool, float]:
    """Return whether other runs agree with the best forward run, and the end of those that do.

    All runs have one row. The reverse run of the later one of two starts from the last states of
    the earlier one, and has to agree as well, as has the one of the best run.
    """
    top = max(range(len(tried)), key=lambda i: tried[i].least)
    best, agreed, ends = tried[top].runs[0], False, list[float]()
    for i, one in enumerate(tried):
        up = one.runs[0]
        if i == top or not _alike(up, best):
            continue
        ends.append(float(up.log_z[0] + SURE * up.error[0]))
        # The later of the two comes down from the states of the earlier one.
        downs = [run.runs[1] for run in (tried[max(i, top)], tried[top])]
        sure = SURE * up.error[0] <= COARSE and one.independent(tried[top])
        agreed |= sure and all(down is None or _alike(down, best, GAP) for down in downs)
    return agreed, max(ends, default=-np.inf)


def _alike(run: AnnealedRun, best: AnnealedRun, most: float = np.inf) -> bool:
    """Return whether two estimates of log Z agree within their errors and within `most` nats."""
    if not (np.isfinite(run.log_z[0]) and np.isfinite(best.log_z[0])):
        return False
    wide = SURE * np.hypot(run.error[0], best.error[0]) + ALIKE
    return bool(abs(run.log_z[0] - best.log_z[0]) <= min(wide, most))


def _least(up: AnnealedRun) -> float:
    """Return the lower end of the estimate of a single row; -inf where there is none."""
    known = np.isfinite(up.log_z[0]) and np.isfinite(up.error[0])
    return float(up.log_z[0] - SURE * up.error[0]) if known else -np.inf


def _rows(runs: Runs, rows: Array) -> Runs:
    """Return the estimates of some rows."""
    up, down = runs
    return up.take(rows), None if down is None else down.take(rows)
