"""Averages of the parameters on the way to where they settle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import check_number
from pgmengine.base.errors import PgmError
from pgmengine.graph.model import Model
from pgmengine.graph.structure import Structure
from pgmengine.graph.weights import like, numbers
from pgmengine.learn.batch import Gradient
from pgmengine.learn.optimizers import SGD, check_optimizer
from pgmengine.learn.projected import projected

Params = dict[str, Any]
# Updates between two that count: neighbours differ little, and an average costs as much as a step
EVERY = 10


@dataclass(frozen=True)
class Averaged:
    """An optimizer that keeps an average of the parameters besides (Polyak and Juditsky 1992),
    which `Fit.averaged` has.

    After t updates a = theta_t for t <= 10, and a += max(10 follow, 10 / t) (theta_t - a) at every
    further tenth: the mean so far at first, without where learning began, later that of about the
    last 1 / follow updates. Learning itself is as without it. While steps are not yet small,
    parameters move about where they would settle, and their average is nearer to it.

    >>> import pgmengine as pgm
    >>> x, optimizer = pgm.datasets.bars_and_stripes().x_train, pgm.Averaged(pgm.SGD(0.1), follow=0.01)
    >>> f = pgm.fit(pgm.rbm(16, 4, rng=0), {"v": x}, optimizer=optimizer, updates=50, progress=False)
    >>> f.averaged
    Model(v: 16 Binary(), h: 4 Binary(); v-h)
    """

    optimizer: Any = SGD()
    follow: float = 1e-3  # share of each update's parameters in the average

    def __post_init__(self) -> None:
        check_optimizer(self.optimizer, "Averaged: optimizer")
        check_number(self, "follow", most=1)
        if self.follow == 0:
            raise PgmError(
                "Averaged: follow must be above 0, or the average would stay where learning began"
            )

    def start(self, params: Mapping[str, Any]) -> Params:
        """That of the optimizer, and the average."""
        return self.optimizer.start(params) | {
            f"average/{k}": np.array(numbers(v)) for k, v in params.items()
        }

    def step(
        self,
        structure: Structure,
        params: Mapping[str, Any],
        gradient: Gradient,
        state: Params,
        t: int,
    ) -> Params:
        """One update."""
        stepped, made = self.optimizer.step(structure, params, gradient, state, t), t + 1
        if made % EVERY == 0 or made < EVERY:
            share = min(max(EVERY * self.follow, EVERY / made), 1.0)
            for k, value in projected(structure, stepped).items():
                average = state[f"average/{k}"]
                average += share * (numbers(value) - average)
        return stepped


def averaged(model: Model, state: Mapping[str, Any]) -> Model:
    """The model at the average in the state of a fit; PgmError if there is none."""
    kept = {k: f"optimizer/average/{k}" for k in model.params}
    if any(name not in state for name in kept.values()):
        raise PgmError(
            "there is no average of the parameters: fit with an optimizer pgm.Averaged(optimizer)"
        )
    params = {k: like(value, np.array(state[kept[k]])) for k, value in model.params.items()}
    return Model(model.structure, projected(model.structure, params))
