"""History: what is monitored, by name and update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.graph.model import Model
from pgmengine.graph.weights import numbers

Callback = Callable[[Model, int], Mapping[str, Any] | None]
OWN = 10  # updates between two weight norms


def _said(callback: Any, model: Model, update: int, negative: Any) -> Any:
    """Ask a callback, one that looks at the chains of the model phase by `of_chains`."""
    if hasattr(callback, "of_chains"):
        return callback.of_chains(negative, update)
    return callback(model, update)


def _number(value: Any) -> Any:
    """A float, or an array of a row of numbers."""
    return np.array(value, dtype=np.float64) if np.ndim(value) == 1 else float(value)


def _numbers(callback: Callback, said: Any) -> dict[str, Any]:
    """The names and numbers, or rows of numbers, that a callback returned."""
    if said is None:
        return {}
    if not isinstance(said, Mapping):
        raise PgmError(
            f"callback {callback!r} returned {type(said).__name__}, expected a mapping of names to numbers, "
            "or None"
        )
    try:
        return {str(name): _number(value) for name, value in said.items()}
    except (TypeError, ValueError):
        raise PgmError(
            f"callback {callback!r} returned {said!r}, expected one number, or one row "
            "of them, for each name"
        ) from None


class History:
    """Collects the weight norm every ten updates, and what the callbacks return."""

    def __init__(self) -> None:
        self.values: dict[str, list[tuple[int, Any]]] = {}

    def add(
        self, model: Model, update: int, callbacks: Sequence[Callback], negative: Any = None
    ) -> None:
        """Keep the answers of all callbacks after an update; `negative` runs the model phase."""
        found: dict[str, Any] = {}
        if update % OWN == 0:
            norms = [
                float(np.vdot(w, w))
                for k, v in model.params.items()
                if k.endswith(".weight")
                for w in [numbers(v)]
            ]
            found["weight_norm"] = sum(norms) ** 0.5
        for callback in callbacks:
            said = _numbers(callback, _said(callback, model, update, negative))
            for name in sorted(set(said) & set(found)):
                if not np.array_equal(said[name], found[name], equal_nan=True):
                    who = "fit itself and a callback" if name == "weight_norm" else "two callbacks"
                    raise PgmError(f"{who} say {name!r}: give one of them another name")
            found |= said
        for name, value in found.items():
            self.values.setdefault(name, []).append((update, value))

    def arrays(self) -> dict[str, dict[str, Any]]:
        """Name -> {"update": (n,), "value": (n,)}, or (n, numbers) of rows of numbers."""
        return {
            name: {
                "update": np.array([u for u, _ in pairs]),
                "value": np.array([v for _, v in pairs]),
            }
            for name, pairs in self.values.items()
        }
