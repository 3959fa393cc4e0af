"""Results of training that a model keeps: base rates of its data, and its last chains.

They only help to start, for example annealing or chains that are continued. No answer may rely on
them: a question may be about other data, and the chains may have missed a part of the space.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.model.structure import Structure


def _empty() -> Mapping[str, Array]:
    return MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Training:
    """Base rates of the data and final states of persistent chains; the arrays are read only.

    Attributes
    ----------
    base_rates : layer -> (size,) or (size, K), the mean of every component of an observed layer.
    chains : layer -> (n, width), final states of persistent chains; empty where there were none.
    """

    base_rates: Mapping[str, Array] = field(default_factory=_empty)
    chains: Mapping[str, Array] = field(default_factory=_empty)

    def __post_init__(self) -> None:
        for name in ("base_rates", "chains"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))

    def __reduce__(self) -> tuple[type[Training], tuple[dict[str, Array], dict[str, Array]]]:
        # A mapping proxy cannot be pickled, and executors send models to other processes.
        return Training, (dict(self.base_rates), dict(self.chains))


def check_training(structure: Structure, training: Training) -> None:
    """Raise PgmError unless the layers, shapes and numbers of a training fit a structure."""
    for name, rates in training.base_rates.items():
        layer = structure.names.layer(name, what="training: base rates: layer")
        _check(f"base rates of {layer.title}", rates, rates.shape == layer.bias_shape)
    rows = {len(states) for states in training.chains.values() if states.ndim}
    if len(rows) > 1:
        raise PgmError(f"training: chains of layers differ in their number: {sorted(rows)}")
    if rows == {0}:
        raise PgmError("training: chains must be at least one, or be left out")
    for name, states in training.chains.items():
        layer = structure.names.layer(name, what="training: chains: layer")
        fits = states.ndim == 2 and states.shape[1] == layer.width
        _check(f"chains of {layer.title}", states, fits)


def _check(what: str, numbers: Array, fits: bool) -> None:
    """Raise PgmError unless an array fits and is finite."""
    if not fits:
        raise PgmError(f"training: {what} have shape {numbers.shape}, which does not fit the layer")
    if not np.isfinite(numbers).all():
        raise PgmError(f"training: {what} must be finite")


def _frozen(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return read-only copies of arrays."""
    copies = {name: np.array(value, dtype=np.float64) for name, value in arrays.items()}
    for copy in copies.values():
        copy.flags.writeable = False
    return MappingProxyType(copies)
