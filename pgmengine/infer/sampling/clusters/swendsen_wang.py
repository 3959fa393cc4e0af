"""Chains that move clusters of units, for models whose couplings do not contradict each other.

Chains of single units need a time that grows with the size of a lattice at its critical point, and
do not leave a phase below the critical temperature. The clusters of Swendsen and Wang (1987), as
large as the regions that agree, change state at once (moves.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_truth
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.engine.chains import Chains
from pgmengine.engine.cost import NS, US
from pgmengine.evidence.target import Target
from pgmengine.infer.results.result import Plan
from pgmengine.infer.sampling.clusters.moves import ClusterMoves, allowed_parts, cluster_parts
from pgmengine.infer.sampling.draws.sampler import ChainPlan
from pgmengine.infer.sampling.methods.mcmc import MCMC

# The time of a move: of its calls, and for each edge and each unit of a chain.
CALL_SECONDS, EDGE_SECONDS, UNIT_SECONDS = 150 * US, 12 * NS, 12 * NS


@dataclass(frozen=True)
class SwendsenWang(MCMC):
    """Chains in which clusters of units change state together, each move followed by a sweep.

    Use it for marginals, samples, pairs and gradients of lattices and other graphs of units with
    two states, and of Potts models, near a critical point and below it: all phases are visited.
    `Auto` takes it where it can answer and the model is too large for exact answers. All factors
    must join at most two free units, with equally many states each, and no entry of a table may be
    0. Couplings should not be frustrated, as they are in spin glasses and most trained Boltzmann
    machines: there should be a state that satisfies all couplings (not the fields, which may have
    any sign). Units of more than two states must be coupled by whether they agree, and agreement
    must be the more probable.

    Parameters
    ----------
    kernel : the kernel of the sweep after each move.
    chains, warmup, draws, thin, rhat_limit : as in MCMC, where a sweep has a move before it.
    frustrated : whether to answer about frustrated couplings as well. The draws are right there,
        too, but clusters join units that need not agree, and the moves seldom help.

    References
    ----------
    Swendsen and Wang (1987).

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> s = b.layer("s", pgm.Spin(), (32, 32))
    >>> b.couple(s[1:], s[:-1], 0.6)
    >>> b.couple(s[:, 1:], s[:, :-1], 0.6)
    >>> r = pgm.infer(b.build(), want=("samples",), method=pgm.SwendsenWang(), rng=0)
    >>> r.status.name
    'OK'
    >>> r.expectation(lambda x: np.abs(x["s"].mean(axis=(-1, -2))))
    Expectation: 0.9518 ± 0.00049
    """

    # Clusters reach other modes at once, without the states in between.
    local = False

    warmup: int = 100
    frustrated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_truth(self, "frustrated")

    def scheme(self, target: Target, want: tuple[str, ...]) -> ChainPlan:
        """Return the work and memory of the chains; refuse couplings that are frustrated."""
        try:
            parts = allowed_parts(target, self.frustrated)
        except PgmError as error:
            return Plan(refusal=str(error))
        edges = sum(len(part.rows) * len(part.edges) for part in parts) * self.chains
        units = sum(len(part.rows) * len(part.h) for part in parts) * self.chains
        each = CALL_SECONDS * len(parts) + EDGE_SECONDS * edges + UNIT_SECONDS * units
        sweeps = self.warmup + self.draws * self.thin
        return self.scheme_of_sweeps(
            target, want, "each after a move of clusters", sweeps * (edges + units), sweeps * each
        )

    def mover(
        self, many: Target, chains: Chains, rng: np.random.Generator, streams: Array
    ) -> Callable[[int], None]:
        """Return a function that moves clusters before each of some sweeps."""
        key = int(rng.integers(2**63))
        rngs = tuple(np.random.default_rng((key, int(number))) for number in streams)
        parts = tuple(part for part in cluster_parts(many) if len(part.h))
        moves = ClusterMoves(many, parts, rngs)

        def sweep(count: int) -> None:
            for _ in range(count):
                chains.place_states(moves.moved(chains.states()))
                chains.sweep(1)

        return sweep
