"""The base of methods whose answers are draws of chains: settings, statistics, and the plan.

All of them move some chains for each row of evidence, drop a warm-up, keep draws, and judge these
by R-hat and effective sample sizes. They differ in how the chains move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pgmengine.base.checks import check_kernel, check_limit, check_whole
from pgmengine.engine.chains import refusal
from pgmengine.engine.kernels import Kernel
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.trust import unmixed_notes
from pgmengine.infer.question.prepared import Method
from pgmengine.infer.results.axes import Axis, by_row
from pgmengine.infer.results.result import Plan
from pgmengine.infer.sampling.draws.draw_costs import collecting, judging, sampler_bytes
from pgmengine.infer.sampling.methods.bound_check import Check, check_within
from pgmengine.model.structure import Structure

# The wanted quantities that draws of a posterior can answer.
WANTS_BY_DRAWS = frozenset({"marginals", "samples", "pairs", "gradient"})

# The statistics of chains.
CHAIN_STATISTICS: dict[str, tuple[Axis, ...]] = {
    "ess": (Axis.ROW, Axis.UNIT),
    "rhat": (Axis.ROW, Axis.UNIT),
    "mcse": (Axis.ROW, Axis.UNIT),
    **by_row("energy_ess", "energy_rhat", "energy_mcse", "sum_rhat", "sum_mcse"),
    "energy": (Axis.CHAIN, Axis.DRAW, Axis.ROW),
}


# The plan of a method of chains, with the check of its log Z, if it gives one.
ChainPlan: TypeAlias = Plan[Check | None]


class Sampler(Method[Check | None]):
    """Base of the methods whose answers are draws of chains, judged by R-hat up to `rhat_limit`."""

    gives = WANTS_BY_DRAWS
    source = "draws give"
    statistics = CHAIN_STATISTICS
    single = True

    kernel: Kernel
    chains: int
    warmup: int
    draws: int | None
    rhat_limit: float

    def __post_init__(self) -> None:
        check_whole(self, "chains", "draws")
        check_whole(self, "warmup", least=0)
        check_limit(self, "rhat_limit")
        check_kernel(self.kernel)

    def unmixed(self, stats: Mapping[str, Any], structure: Structure) -> tuple[str, ...]:
        """Return a warning for each quantity that has not mixed."""
        name, thin = type(self).__name__, int(getattr(self, "thin", 1))
        return unmixed_notes(stats, self.rhat_limit, structure, name, thin)

    def scheme_of(
        self,
        target: Target,
        want: tuple[str, ...],
        how: str,
        work: float,
        moving: float,
        *,
        draws: float | None = None,
        replicas: int = 1,
        more: float = 0.0,
        bounded: bool = False,
    ) -> ChainPlan:
        """Return the plan of chains that move, and whose draws are collected and judged.

        Parameters
        ----------
        target, want : the question.
        how : the description of the plan.
        work : number of unit updates.
        moving : seconds in which the chains move.
        draws : the draws that each chain is expected to keep, by default the setting.
        replicas : number of chains that move for each chain whose draws are kept.
        more : bytes of other working arrays of the method.
        bounded : whether the answer is checked against proven lower bounds of log Z.
        """
        kept = self.draws if draws is None else draws
        assert kept is not None
        chains, limit = self.chains, self.rhat_limit
        seconds = moving + collecting(target, want, target.rows * chains, kept)
        seconds += judging(target, chains, kept, limit, seconds)
        check = check_within(target, seconds) if bounded else Check()
        work += check.work
        size = (self.chains, max(int(kept), 1), limit)
        memory = sampler_bytes(target, want, *size, work, replicas, more)
        basis, seconds = check if bounded else None, seconds + check.seconds
        return Plan(
            why=how + check.how,
            work=work,
            bytes=memory,
            refusal=refusal(target),
            seconds=seconds,
            basis=basis,
        )
