"""CD: contrastive divergence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.checks import check_whole
from pgmengine.engine.chains import Chains, make_chains
from pgmengine.engine.kernels import Gibbs
from pgmengine.graph.target import Target
from pgmengine.learn.batch import Batch, GradientSum
from pgmengine.learn.negative.base import NegativeRun, adopted
from pgmengine.learn.schedules import at


@dataclass(frozen=True)
class CD:
    """Contrastive divergence (Hinton 2002): E[d log_density | data] less its mean k sweeps after
    the data.

    Hidden units are drawn given the data; then each sweep visits the layers that have data first,
    and the others by their distance from these. So an RBM goes h_0 | v_0, v_1 | h_0, h_1 | v_1,
    ..., whichever layer was declared first, and the statistics are those of (v_k, h_k): taken at
    (v_k, h_(k-1)) they would teach the hidden layer nothing with k = 1. The last sweep draws layers
    without data from their conditionals, whatever the kernel, so that the mean is that of v_k E[h |
    v_k], as in system 2: moved by flip-the-state, h_k would still depend on h_0. Units of a layer
    with data that a row leaves open move with their layer. `kernel` may be a schedule, update ->
    kernel.

    >>> import pgmengine as pgm
    >>> pgm.CD(k=1).k
    1
    """

    k: int = 1
    kernel: Any = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "k")

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(self.k, self.kernel)


class _Run(NegativeRun):
    def __init__(self, k: int, kernel: Any) -> None:
        self.k, self.kernel = k, kernel
        self.chains: Chains | None = None

    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """The mean gradient at the states k sweeps after the completed data."""
        kernel, x = at(self.kernel, update), batch.complete()
        chains, (_, hidden) = self._chains(batch, kernel, rng), batch.outward
        chains.place_at(x)
        chains.sweep(self.k - 1)
        chains.sweep_once(anew=hidden)
        total.points(chains.values(dtype=total.precision), -batch.weights / batch.rows)

    def _chains(self, batch: Batch, kernel: Any, rng: np.random.Generator) -> Chains:
        if batch.alike and self.chains is not None and len(self.chains.beta) == batch.rows:
            self.chains = adopted(self.chains, batch.given.model, kernel, rng)
            return self.chains
        one = replace(batch.given, order=sum(batch.outward, ()))
        target = one.take(np.zeros(batch.rows, dtype=int)) if batch.alike else one
        chains = make_chains(target, kernel, dict(target.evidence.values), rng)
        self.chains = chains if batch.alike else None  # they serve every batch of this size
        return chains
