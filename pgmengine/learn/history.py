"""History: what is monitored, by name and update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pgmengine.model import Model
from pgmengine.weights import numbers

Callback = Callable[[Model, int], Mapping[str, float] | None]
OWN = 10  # updates between two weight norms


class History:
    """Collects the weight norm every ten updates, and what the callbacks return."""

    def __init__(self) -> None:
        self.values: dict[str, list[tuple[int, float]]] = {}

    def add(self, model: Model, update: int, callbacks: Sequence[Callback]) -> None:
        """What there is to say of the model after an update."""
        found: dict[str, float] = {}
        if update % OWN == 0:
            norms = [float(np.vdot(w, w)) for k, v in model.params.items() if k.endswith(".weight") for w in [numbers(v)]]
            found["weight_norm"] = sum(norms) ** 0.5
        for callback in callbacks:
            found |= callback(model, update) or {}
        for name, value in found.items():
            self.values.setdefault(name, []).append((update, float(value)))

    def arrays(self) -> dict[str, dict[str, Any]]:
        """Name -> {"update": (n,), "value": (n,)}."""
        return {name: {"update": np.array([u for u, _ in pairs]), "value": np.array([v for _, v in pairs])}
                for name, pairs in self.values.items()}
