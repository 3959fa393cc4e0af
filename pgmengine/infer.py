"""infer and explain: one call for every question; Auto chooses the method and says why."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from pgmengine.errors import PgmError
from pgmengine.explanation import Explanation
from pgmengine.methods.ais import AIS
from pgmengine.methods.answers import check_want
from pgmengine.methods.exact import Exact
from pgmengine.methods.forward import Forward
from pgmengine.methods.mcmc import MCMC
from pgmengine.methods.mean_field import MeanField
from pgmengine.methods.parallel_tempering import ParallelTempering
from pgmengine.model import Model
from pgmengine.progress import showing
from pgmengine.result import ANSWERS, Plan, Result, duration
from pgmengine.settings import check_limit, check_method
from pgmengine.shares import answer
from pgmengine.target import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Auto:
    """Walk the candidates in order; the first whose plan fits and whose run ends well answers.

    Parameters
    ----------
    max_work : unit updates allowed.
    candidates : methods in the order in which they are tried.
    max_seconds : seconds allowed, as plans estimate them for one core: a unit update takes 0.1 ns
        where states are enumerated, 0.2 to 2 ns in compiled sweeps of dense layers, up to 1 us
        where layers of one unit are many, and up to 100 us in the engine for users' own kernels
        and units. Methods that say nothing about seconds are not refused.
    """

    max_work: float = 2e11
    candidates: tuple[Any, ...] = (Exact(), Forward(), MCMC(), AIS(), ParallelTempering(), MeanField())
    max_seconds: float = 3600.0

    def __post_init__(self) -> None:
        check_limit(self, "max_work", "max_seconds")
        if not isinstance(self.candidates, Sequence) or not self.candidates:
            raise PgmError(f"Auto: candidates must be a tuple of methods, not {self.candidates!r}")
        for method in self.candidates:
            check_method(method)

    def plans(self, target: Target, want: Iterable[str]) -> list[Plan]:
        """The plan of every candidate, refused when it takes more work than allowed."""
        return [self._limited(method.plan(target, want)) for method in self.candidates]

    def _limited(self, plan: Plan) -> Plan:
        if plan.accepted and plan.work > self.max_work:
            return replace(plan, refusal=f"about {plan.work:.2g} unit updates, the limit is {self.max_work:.2g}")
        if plan.accepted and plan.seconds > self.max_seconds:
            limit = f"the limit is {duration(self.max_seconds)} (Auto's max_seconds)"
            return replace(plan, refusal=f"about {duration(plan.seconds)} on one core, {limit}")
        return plan

    def plan(self, target: Target, want: Iterable[str]) -> Plan:
        """The plan of the candidate that would answer."""
        plans = self.plans(target, want)
        chosen = next((p for p in plans if p.accepted), None)
        return chosen or Plan("Auto", refusal="; ".join(map(str, plans)))

    def run(self, target: Target, want: Iterable[str] = ("marginals",), rng: Any = None, state: Any = None) -> Result:
        """Run the first candidate that can answer; fall through when its status is bad and another can."""
        return self.run_on(None, target, check_want(want), rng, state)

    def run_on(self, executor: Executor | None, target: Target, want: tuple[str, ...], rng: Any,
               state: Any = None) -> Result:
        """The same bits, on an executor."""
        refused: list[Plan] = []
        last: Result | None = None
        for method in self.candidates:
            plan = self._limited(method.plan(target, want))
            if plan.accepted and last is not None and plan.guarantee == "lower bound":
                plan = replace(plan, refusal="an estimate has been made, and a bound says less")
            if not plan.accepted:
                refused.append(plan)
                continue
            log.debug("%s answers", plan)
            last = answer(executor, method, target, want, rng, state)
            last = replace(last, refused=tuple(refused)) if refused else last
            if last.status.good:
                return last
            log.info("%s ended badly (%s): the next candidate is asked", plan.method, last.status.value)
            refused.append(replace(plan, refusal=last.status.value))
        if last is None:
            raise PgmError("no method can answer: " + "; ".join(map(str, refused)))
        return last


def drawing(draws: int) -> Auto:
    """Auto whose candidates draw at least so many samples, the chains of MCMC far apart."""
    return Auto(candidates=(Exact(draws=draws), Forward(draws=max(draws, 2)),
                            MCMC(chains=4, draws=max(4, -(-draws // 4)), thin=10)))


def infer(model: Model, evidence: Any = None, want: Iterable[str] = ("marginals",), method: Any = None, soft: Any = None,
          do: Any = None, rng: Any = None, state: Any = None, executor: Any = None, progress: bool = False) -> Result:
    """Ask a model anything under any pattern of evidence.

    Parameters
    ----------
    evidence : layer -> (size,) or (rows, size); NaN = not observed; omitted layers are free. Categorical layers take
        labels or one-hot rows. Or a pandas DataFrame with a column for each unit.
    want : any of "marginals", "log_z", "log_prob", "samples", "mode", "pairs", "gradient", and "bound", a lower bound of
        log_z.
    method : Auto() by default.
    soft : layer -> log-likelihood to add: log-odds for two-valued units, (..., k) log weights for Categorical.
    do : layer -> values; cuts the arrows into those units (directed layers only).
    rng : int or numpy Generator; the same rng gives the same bits.
    state : a previous Result.state, to go on from.
    executor : any concurrent.futures.Executor (a process pool, `distributed.Client(...).get_executor()`, ...) on which to
        answer: in parts of rows, or of the chains of one row, where there is enough to do. The bits are the same as
        without. What a worker that died had to do is done again.
    progress : show a progress bar on work over two seconds, when the output is a terminal.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(4, 2, rng=0), {"v": [[1, 0, 1, 1]]}, want=("marginals", "log_prob"))
    >>> r.mean["h"].shape, r.kind
    ((1, 2), 'exact')
    """
    _check(model, method)
    target, wanted, chosen = model.given(evidence, soft=soft, do=do), check_want(want), method or Auto()
    with showing(progress):
        if isinstance(chosen, Auto):
            result = chosen.run_on(executor, target, wanted, rng, state)
        else:
            result = answer(executor, chosen, target, wanted, rng, state)
    if missing := [w for w in wanted if not any(ANSWERS.get(name) == w for name in result.answers)]:
        raise PgmError(f"{result.method!r} was asked for {', '.join(missing)}, but its answers are "
                       f"{', '.join(result.answers)}")
    return replace(result, target=target)


def explain(model: Model, evidence: Any = None, want: Iterable[str] = ("marginals",), method: Any = None,
            soft: Any = None, do: Any = None) -> Explanation:
    """The plan as text, without running: what each candidate would do, and which one answers; a table to rich.print.

    >>> import pgmengine as pgm
    >>> print(pgm.explain(pgm.rbm(4, 2, rng=0), want=("log_z",)).splitlines()[0])
    wanted: log_z; 1 evidence row, 0 of 6 units observed
    """
    _check(model, method)
    target = model.given(evidence, soft=soft, do=do)
    wanted = check_want(want)
    chooser = method if isinstance(method, Auto) else Auto(candidates=(method,)) if method else Auto()
    seen = int(sum(mask.sum() for mask in target.evidence.observed.values()))
    units = sum(layer.size for layer in model.structure.layers.values())
    share = f"{seen} of {units} units observed" if target.rows == 1 else (
        f"{seen / target.rows:.4g} of {units} units observed on average")
    head = f"wanted: {', '.join(wanted)}; {target.rows} evidence row{'s' * (target.rows > 1)}, {share}"
    plans = chooser.plans(target, wanted)
    return Explanation(head, plans, next((p for p in plans if p.accepted), None))


def _check(model: Any, method: Any) -> None:
    """PgmError for what is no model, or no method."""
    if not isinstance(model, Model):
        raise PgmError(f"model must be a Model, not {type(model).__name__}"
                       + ("; it has one, as .model" if isinstance(getattr(model, "model", None), Model) else ""))
    if method is not None:
        check_method(method)
