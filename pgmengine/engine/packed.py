"""Parameters as the compiled loops read them: float32, padded to whole vectors, weights in panels
of columns.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pgmengine import _kernels
from pgmengine.base.threads import parts
from pgmengine.base.types import Array
from pgmengine.graph.couplings import WORTH_A_THREAD, adds_rows
from pgmengine.graph.layer import Layer
from pgmengine.graph.model import Model
from pgmengine.graph.weights import is_sparse
from pgmengine.protocols import Coupling

WIDE = 16  # floats of a vector
CACHED = 1_100_000  # bytes of a panel of weights
SLAB = 2**16  # numbers that are converted to single precision at a time


class Packed:
    """The parameters of one model, each converted when it is first asked for."""

    def __init__(self, model: Model) -> None:
        self.structure, self.params = (
            model.structure,
            dict(model.params),
        )  # the model itself would never be freed
        self.kept: dict[Any, Any] = {}
        self.singles: dict[str, Any] = {}

    def bias(self, name: str) -> Array:
        """The bias of a layer, (stride,)."""
        if name not in self.kept:
            layer = self.structure.layers[name]
            self.kept[name] = row(self.params[f"{name}.bias"], stride_of(layer))
        return self.kept[name]

    def into(self, c: Coupling, name: str) -> tuple[Any, ...]:
        """The weight through which a coupling reaches a layer: panels, or entries, row starts and
        columns if sparse.
        """
        key = c.key, name
        if key not in self.kept:
            weight = self.singles.get(f"{c.key}.weight", self.params[f"{c.key}.weight"])
            self.kept[key] = _rows(
                weight if name == c.b else weight.T, stride_of(self.structure.layers[name])
            )
        return self.kept[key]

    def add_product(self, c: Coupling, name: str, x: Array, field: Array) -> None:
        """Add what x (rows, width) float32 of the other end adds to a layer's field (rows, width)
        float32.
        """
        weight, x = self._single(c, name), np.ascontiguousarray(x)
        work = parts(x.size * weight.shape[1] / 4, WORTH_A_THREAD)
        if is_sparse(weight):
            field += x @ weight
        elif adds_rows(x, weight.shape[1]):
            _kernels.add_product(x, weight, field, work)
        else:
            turned = not weight.flags.c_contiguous
            _kernels.add_times(x, weight.T if turned else weight, turned, field, work)

    def _single(self, c: Coupling, name: str) -> Any:
        """The weight in single precision, from the other end to this one."""
        weight = self.single(f"{c.key}.weight")
        return weight if name == c.b else weight.T

    def single(self, key: str) -> Any:
        """A parameter in single precision."""
        if key not in self.singles:
            self.singles[key] = self.params[key].astype(np.float32, copy=False)
        return self.singles[key]


_packed: WeakKeyDictionary[Model, Packed] = WeakKeyDictionary()


def packed(model: Model) -> Packed:
    """The packed parameters of a model, shared by everything that runs on it."""
    if model not in _packed:
        _packed[model] = Packed(model)
    return _packed[model]


def padded(n: int) -> int:
    """The next multiple of the vector width."""
    return -(-n // WIDE) * WIDE


def aligned(shape: tuple[int, ...], dtype: Any = np.float32, fill: Any = np.empty) -> Array:
    """An array that starts on a cache line and ends a vector before the end of its memory."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = fill(size + 128, dtype=np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def zeros(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Zeros, aligned."""
    return aligned(shape, dtype, np.zeros)


def matrix(values: Array, columns: int) -> Array:
    """A float32 copy with padded rows."""
    out = zeros((values.shape[0], columns))
    out[:, : values.shape[1]] = values
    return out


def row(values: Array, columns: int) -> Array:
    """One padded row."""
    out = np.zeros(columns + WIDE, dtype=np.float32)[:columns]
    out[: values.size] = values.ravel()
    return out


def stride_of(layer: Layer) -> int:
    """Floats that a chain has in the inputs of a layer."""
    return padded(padded(layer.size) * layer.unit.width)


def panels(weight: Array, stride: int) -> Array:
    """(tiles, rows, tile) float32: panels of columns, each contiguous, so that the one in use stays
    in cache.

    A weight in double precision is converted some panels at a time, so that there is never a second
    whole copy.
    """
    rows = len(weight)
    tile = next((wide for wide in (64, 32) if 4 * rows * wide <= CACHED), 16)
    tiles = -(-stride // tile)
    out = aligned((tiles, rows, tile))
    filled = -(-weight.shape[1] // tile)
    out[filled:] = 0.0
    step = filled if weight.dtype == np.float32 else max(1, SLAB // (rows * tile))
    for first in range(0, filled, step):
        some = weight[:, first * tile : (first + step) * tile].astype(np.float32, copy=False)
        _kernels.pack(
            some,
            out[first : first + step],
            min(step, filled - first),
            parts(some.size / 2, WORTH_A_THREAD),
        )
    return out


def _rows(weight: Any, stride: int) -> tuple[Any, ...]:
    if not is_sparse(weight):
        return panels(weight, stride), None, None, None
    rows = weight.tocsr()
    rows.sort_indices()
    return (
        None,
        rows.data.astype(np.float32),
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32),
    )
