"""FastPCD: persistent chains that fast weights drive on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.checks import check_number, check_rate, check_whole
from pgmengine.base.errors import PgmError
from pgmengine.base.limits import LARGEST
from pgmengine.engine.kernels import Gibbs
from pgmengine.engine.packed import packed
from pgmengine.graph.model import Model
from pgmengine.graph.target import Target
from pgmengine.graph.weights import elementwise, like, numbers
from pgmengine.learn.batch import Batch, Gradient, GradientSum
from pgmengine.learn.negative.base import NegativeRun, Persistent, State, moved
from pgmengine.learn.projected import projected
from pgmengine.learn.schedules import Rate, rate_at


@dataclass(frozen=True)
class FastPCD:
    """Fast persistent contrastive divergence (Tieleman and Hinton 2009; system 3, section 4.1).

    The chains move at theta + theta_fast; after each update theta_fast = decay theta_fast + rate
    gradient. So the probability falls where the chains are, and they move on.

    >>> import pgmengine as pgm
    >>> pgm.FastPCD(rate=0.01).decay
    0.95
    """

    k: int = 1
    chains: int = 100
    rate: Rate = 0.01
    decay: float = 0.95
    kernel: Any = Gibbs()
    precision: ClassVar[type] = np.float32

    def __post_init__(self) -> None:
        check_whole(self, "k", "chains")
        check_rate(self, "rate", most=LARGEST)
        check_number(self, "decay", most=1)

    def start(self, given: Target, rng: np.random.Generator) -> NegativeRun:
        """See Negative."""
        return _Run(self, given, rng)


class _Run(Persistent):
    def __init__(self, settings: FastPCD, given: Target, rng: np.random.Generator) -> None:
        super().__init__(
            "FastPCD",
            given,
            settings.chains,
            settings.kernel,
            rng,
            lambda chains, t, rng: moved(chains, settings.k),
        )
        self.settings, self.update = settings, 0
        self.fast = {
            k: like(v, np.zeros(numbers(v).size, dtype=np.float32))
            for k, v in given.model.params.items()
        }

    def add(self, total: GradientSum, batch: Batch, update: int, rng: np.random.Generator) -> None:
        """See NegativeRun."""
        self.update = update
        super().add(total, batch, update, rng)

    def driven(self, model: Model) -> Model:
        """The model with the fast weights added, in single precision as the chains are."""
        slow = packed(model)
        params = {k: elementwise(np.add, slow.single(k), f) for k, f in self.fast.items()}
        return Model(model.structure, projected(model.structure, params))

    def learned(self, gradient: Gradient) -> None:
        """Let the fast weights decay and follow the gradient."""
        rate, decay = rate_at(self.settings.rate, self.update), self.settings.decay
        for k, value in self.fast.items():
            f = numbers(value)
            f *= decay
            with np.errstate(over="ignore", invalid="ignore"):
                f += rate * numbers(gradient[k])
                fine = np.isfinite(f.sum())
            if not fine:
                raise PgmError(
                    f"update {self.update + 1}: the fast weights of {k!r} are not finite; try a smaller rate "
                    "of FastPCD"
                )

    def state(self) -> State:
        """The chains' states and the fast weights."""
        return super().state() | {f"fast/{k}": numbers(v) for k, v in self.fast.items()}

    def load(self, state: State) -> None:
        """See NegativeRun."""
        super().load(state)
        for name, value in self.fast.items():
            numbers(value)[...] = state[f"fast/{name}"]
