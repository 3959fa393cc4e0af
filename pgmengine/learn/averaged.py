"""Averages of the parameters over the updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pgmengine.base.checks import check_number
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.graph.model import Model
from pgmengine.graph.structure import Structure
from pgmengine.graph.weights import like, numbers
from pgmengine.learn.optimizers import SGD, check_optimizer
from pgmengine.learn.projected import projected
from pgmengine.learn.statistics import Gradient
from pgmengine.protocols import Optimizer, Params, Snapshot

# Updates between two that count: neighbours differ little, and an average costs as much as a step.
EVERY = 10


@dataclass(frozen=True)
class Averaged:
    """An optimizer that also keeps an average of the parameters, which `Fit.averaged` returns.

    While steps are not yet small, parameters move about the place where they would settle, and
    their average is nearer to it. Learning itself is as without it. After t updates a = theta_t for
    t <= 10, and a += max(10 follow, 10 / t) (theta_t - a) at every further tenth: the mean so far
    at first, without the place where learning began; later the mean over about the last 1 / follow
    updates.

    Parameters
    ----------
    optimizer : the optimizer that makes the steps.
    follow : share of the parameters of each update in the average, above 0, at most 1.

    Raises
    ------
    PgmError for settings out of their range.

    References
    ----------
    Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging.

    Examples
    --------
    >>> import pgmengine as pgm
    >>> x, sgd = pgm.datasets.bars_and_stripes().x_train, pgm.SGD(0.1)
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, optimizer=pgm.Averaged(sgd, follow=0.01),
    ...             updates=50, progress=False)
    >>> f.averaged
    Model(v: 16 Binary(), h: 4 Binary(); v-h)
    """

    optimizer: Optimizer = SGD()
    follow: float = 1e-3

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer, "Averaged: optimizer")
        check_number(self, "follow", most=1)
        if self.follow == 0:
            raise PgmError(
                "Averaged: follow must be above 0, or the average would stay where learning began"
            )

    def start(self, params: Params) -> Snapshot:
        """Return the moments of the optimizer, and the average."""
        average = {f"average/{k}": np.array(numbers(v)) for k, v in params.items()}
        return self.optimizer.start(params) | average

    def step(
        self, structure: Structure, params: Params, gradient: Gradient, moments: Snapshot, t: int
    ) -> Params:
        """Return the parameters after step t, and let the average follow them."""
        stepped, made = self.optimizer.step(structure, params, gradient, moments, t), t + 1
        if made % EVERY == 0 or made < EVERY:
            share = min(max(EVERY * self.follow, EVERY / made), 1.0)
            for k, value in projected(structure, stepped).items():
                average = moments[f"average/{k}"]
                average += share * (numbers(value) - average)
        return stepped


def averaged(model: Model, state: Mapping[str, Array]) -> Model:
    """Return the model at the average in the snapshot of a fit; PgmError if there is none."""
    kept = {k: f"optimizer/average/{k}" for k in model.params}
    if any(name not in state for name in kept.values()):
        raise PgmError(
            "there is no average of the parameters: fit with an optimizer pgm.Averaged(optimizer)"
        )
    params = {k: like(value, np.array(state[kept[k]])) for k, value in model.params.items()}
    return Model(model.structure, projected(model.structure, params))
