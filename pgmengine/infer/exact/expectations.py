"""Expectations under the posterior, as exact answers: marginals, pairs and the gradient.

Each exact method has a subclass, which computes the numbers of a layer or of a coupling from its
moments (enumeration/moments.py) or marginals (junction_tree/expectations.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array, States, Weight
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.gathered import Answer
from pgmengine.model.couplings import Coupling, only_parameters
from pgmengine.model.layer import Layer


@dataclass(frozen=True, eq=False)
class Expectations(ABC):
    """Expectations under the posterior of some rows."""

    target: Target

    @abstractmethod
    def marginals(self) -> tuple[States, States]:
        """Return the means (rows, width) of all layers, and the probabilities of states.

        Probabilities (rows, size, K) are those of the layers with finitely many states.
        """

    @abstractmethod
    def products(self, c: Coupling) -> Array:
        """Return E[x_a x_b'] of each row, (rows, width of a, width of b)."""

    @abstractmethod
    def derivatives(self, weights: Array) -> dict[str, Weight]:
        """Return the gradient in each bias (width,) and each weight, without its constraints.

        It is summed over rows times their weights (rows,). Tables follow after the couplings. A
        model that counts has no biases and weights, but the sums of its rows of inputs.
        """

    def answers(self, wanted: Iterable[str]) -> Answer:
        """Return the wanted answers that are expectations."""
        target, out, kinds = self.target, Answer(), set(wanted)
        if "marginals" in kinds:
            out["mean"], out["prob"] = self.marginals()
        if "pairs" in kinds:
            out["pairs"] = {c.key: self._pairs(c) for c in target.structure.couplings}
        if "gradient" in kinds:
            out["gradient"] = self.gradient(target.weighed(np.ones(target.rows)))
        return out

    def gradient(self, weights: Array) -> dict[str, Weight]:
        """Return E[d log_density] by parameter, summed over rows times their weights (rows,)."""
        s, out = self.target.structure, self.derivatives(weights)
        if self.target.model.counted_inputs is not None:
            return out
        for name, layer in s.layers.items():
            out[f"{name}.bias"] = out[f"{name}.bias"].reshape(layer.bias_shape)
        for c in s.couplings:
            key = f"{c.key}.weight"
            out[key] = c.projected(self.target.model.weight(c), out[key])
        return out

    def _pairs(self, c: Coupling) -> Array:
        return only_parameters(c, self.target.model.weight(c), self.products(c))


def put_second_moments(pairs: Array, layer: Layer, prob: Array, units: Iterable[int]) -> None:
    """Put E[x_i x_j] of components of one unit into pairs of a layer with itself, for some units.

    Components of one unit are not independent, so that these are no products of means.
    """
    if layer.unit.support is None or layer.unit.width == 1:
        return
    support = layer.unit.support.reshape(len(layer.unit.support), layer.unit.width)
    second = np.einsum("nuk,ki,kj->nuij", prob, support, support)
    for unit in units:
        columns = layer.columns(np.array([unit]))
        pairs[:, columns[:, None], columns] = second[:, unit]
