"""Parameters in the layout of the compiled routines: float32, padded to whole vectors.

Dense weights are stored in panels of columns, which stay in cache while the inputs of a chain are
updated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from pgmengine import _kernels
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.cache import remembered
from pgmengine.base.work.threads import parts
from pgmengine.model.couplings import MIN_PRODUCTS_A_THREAD, Coupling, adds_rows
from pgmengine.model.layer import Layer
from pgmengine.model.parameters import Parameters
from pgmengine.model.weights import is_sparse
from pgmengine.units.unit import Draw, Unit

# The number of floats in the widest vector.
FLOATS_A_VECTOR = 16

# The largest panel of weights, in bytes: it stays in the cache of a core.
PANEL_BYTES = 1_100_000

# The smallest number of unit updates for which a further thread is started.
MIN_UPDATES_A_THREAD = 20_000
# Numbers that are converted to single precision at a time.
CONVERTED_AT_ONCE = 2**16

# A dense weight as panels, or a sparse weight as entries, row starts and columns; None for others.
Rows: TypeAlias = "tuple[Array | None, Array | None, Array | None, Array | None]"


class Packed:
    """The parameters of one model, each converted at its first use."""

    def __init__(self, model: Parameters) -> None:
        # A reference to the model itself would keep it in memory.
        self.structure, self.params = model.structure, dict(model.expanded)
        self.rows: dict[tuple[str, str], Rows] = {}
        self.singles: dict[str, Weight] = {}
        # (coupling, layer) -> the last read-only values, and their field.
        self.fields: dict[tuple[str, str], tuple[Array, Array]] = {}

    def into(self, c: Coupling, name: str) -> Rows:
        """Return the weight through which a coupling reaches a layer."""
        key = c.key, name
        if key not in self.rows:
            weight = self.singles.get(f"{c.key}.weight", self.params[f"{c.key}.weight"])
            self.rows[key] = _rows(
                weight if name == c.b else weight.T, stride_of(self.structure.layers[name])
            )
        return self.rows[key]

    def add_product(self, c: Coupling, name: str, x: Array, field: Array) -> None:
        """Add the field (rows, width) float32 that values x of the other end give to a layer.

        x is (rows, width of the other end), float32. Both phases of an update need the field of the
        same data. It is therefore kept if x owns its memory and is read-only.
        """
        if x.base is not None or x.flags.writeable:
            self._add_product(c, name, x, field)
            return
        key = c.key, name
        # Threads may run this at the same time, so that a pair is read and stored as a whole.
        of, found = self.fields.get(key, (None, field))
        if of is not x:
            found = np.zeros((len(x), field.shape[1]), dtype=np.float32)
            self._add_product(c, name, x, found)
            self.fields[key] = x, found
        field += found

    def _add_product(self, c: Coupling, name: str, x: Array, field: Array) -> None:
        """Add the product of values with a weight to a field."""
        weight, x = self.single(f"{c.key}.weight"), np.ascontiguousarray(x)
        weight = weight if name == c.b else weight.T
        work = parts(x.size * weight.shape[1] / 4, MIN_PRODUCTS_A_THREAD)
        if is_sparse(weight):
            field += x @ weight
        elif adds_rows(x, weight.shape[1]):
            _kernels.add_product(x, weight, field, work)
        else:
            turned = not weight.flags.c_contiguous
            _kernels.add_times(x, weight.T if turned else weight, turned, field, work)

    def single(self, key: str) -> Weight:
        """Return a weight or bias of a whole layer, or the logarithms of tables, as float32."""
        if key not in self.singles:
            self.singles[key] = self.params[key].astype(np.float32, copy=False)
        return self.singles[key]


@remembered
def packed(model: Parameters) -> Packed:
    """Return the packed parameters of a model, which all chains on it share.

    They are made at every update of a fit.
    """
    return Packed(model)


def random_keys(rng: np.random.Generator, *shape: int) -> Array:
    """Return keys of the generator of uniform numbers, (*shape, 4).

    They are drawn at every update of a fit, and `rng.integers` would take three times as long.
    """
    return (rng.random((*shape, 4)) * 2.0**32).astype(np.uint32)


def unit_fields(unit: Unit) -> dict[str, Any]:
    """Return the description of a unit type for the compiled routines: fields of pgm_layer."""
    finite, table = unit.support is not None, None
    if unit.support is not None:
        table = np.zeros(len(unit.support)) if unit.log_base is None else unit.log_base
    return {
        "kind": Draw.TABLE if finite else unit.draw or Draw.NORMAL,
        "states": 0 if table is None else len(table),
        "width": unit.width,
        "variance": unit.curvature or 0.0,
        "support": None
        if unit.support is None or unit.width > 1
        else unit.support.astype(np.float32),
        "log_base": None if table is None else table.astype(np.float32),
    }


def padded(n: int) -> int:
    """Return the next multiple of the vector width."""
    return -(-n // FLOATS_A_VECTOR) * FLOATS_A_VECTOR


def aligned(
    shape: tuple[int, ...], dtype: DTypeLike = np.float32, fill: Callable[..., Array] = np.empty
) -> Array:
    """Return an array at a cache line, with memory for one more vector after its end."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = fill(size + 128, dtype=np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    found: Array = memory[start : start + size].view(dtype).reshape(shape)
    return found


def zeros(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Array:
    """Return an aligned array of zeros."""
    return aligned(shape, dtype, np.zeros)


def matrix(values: Array, columns: int) -> Array:
    """Return a float32 copy with padded rows."""
    out = zeros((values.shape[0], columns))
    out[:, : values.shape[1]] = values
    return out


def row(values: Array, columns: int) -> Array:
    """Return values as one padded row."""
    out = np.zeros(columns + FLOATS_A_VECTOR, dtype=np.float32)[:columns]
    out[: values.size] = values.ravel()
    return out


def mask(which: Array, units: int, shared: bool = True) -> Array:
    """Return a padded mask as bytes; a single row if all rows are equal and `shared`."""
    rows = which[:1] if shared and (which == which[0]).all() else which
    out = zeros((len(rows), units), np.uint8)
    out[:, : which.shape[1]] = rows
    return out


def stride_of(layer: Layer) -> int:
    """Return the number of floats of one chain in the inputs of a layer."""
    return padded(padded(layer.size) * layer.unit.width)


def panels(weight: Array, stride: int) -> Array:
    """Return a weight as panels of columns, (tiles, rows, tile) float32, each contiguous.

    A weight in double precision is converted a few panels at a time, without a full float32 copy.
    """
    rows = len(weight)
    tile = next((wide for wide in (64, 32) if 4 * rows * wide <= PANEL_BYTES), 16)
    tiles = -(-stride // tile)
    out = aligned((tiles, rows, tile))
    filled = -(-weight.shape[1] // tile)
    out[filled:] = 0.0
    step = filled if weight.dtype == np.float32 else max(1, CONVERTED_AT_ONCE // (rows * tile))
    for first in range(0, filled, step):
        some = weight[:, first * tile : (first + step) * tile].astype(np.float32, copy=False)
        _kernels.pack(
            some,
            out[first : first + step],
            min(step, filled - first),
            parts(some.size / 2, MIN_PRODUCTS_A_THREAD),
        )
    return out


def _rows(weight: Weight, stride: int) -> Rows:
    """Return a weight in the layout of the compiled sweeps."""
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
