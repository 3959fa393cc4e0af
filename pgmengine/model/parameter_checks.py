"""Checks of the numbers of a model: biases, weights, and parameters that places share.

A check returns the numbers in the form in which a model stores them. A PgmError names the layer or
the coupling, the index, the number that was given, and the numbers that are expected.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import IN_RANGE, in_range
from pgmengine.base.errors import PgmError
from pgmengine.base.sparse import csr_of
from pgmengine.base.types import Array, Weight
from pgmengine.model.containers import as_floats
from pgmengine.model.couplings import Coupling
from pgmengine.model.graph.parent_order import cycle_of
from pgmengine.model.layer import Layer
from pgmengine.model.structure import Structure
from pgmengine.model.weights import is_sparse


def check_bias(layer: Layer, bias: ArrayLike | None) -> Array:
    """Return a bias, which may have the shape of the layer, in its bias shape; None = zeros."""
    if bias is None:
        return np.zeros(layer.bias_shape)
    array = layer.in_line(as_floats(bias, f"{layer.title}: bias"), layer.bias_shape[1:])
    if array.shape != layer.bias_shape:
        raise PgmError(f"{layer.title}: bias has shape {array.shape}, expected {layer.bias_shape}")
    _check_entries(array, f"{layer.title}: bias", layer.unit.nonnegative)
    return array.copy()


def check_weight(structure: Structure, coupling: Coupling, weight: Weight) -> Weight:
    """Return a weight as float64, dense in C order or csr, (width of a, width of b)."""
    a, b = structure.layers[coupling.a], structure.layers[coupling.b]
    what = f"coupling {coupling.key!r} of layers {coupling.a!r} and {coupling.b!r}: weight"
    if is_sparse(weight):
        _check_shape(weight, (a.width, b.width), what)
        array = csr_of(weight, what)
        array.sum_duplicates()
        array.sort_indices()
    else:
        array = np.array(as_floats(weight, what), order="C")
    by_state = coupling.directed and a.width == 1 and array.shape[:1] == (2,)
    more = "; handles in place of names take a row for each of two states" if by_state else ""
    _check_shape(array, (a.width, b.width), what, more)
    _check_entries(array, what, coupling.directed and b.unit.nonnegative)
    if coupling.a == coupling.b:
        _check_inside(array, a, coupling.directed, what)
        if not coupling.directed:
            array = _symmetric(array)
    return array


def _check_shape(array: Weight, shape: tuple[int, int], what: str, more: str = "") -> None:
    """PgmError unless a weight has a shape; `more` is what to do."""
    if tuple(array.shape) != shape:
        raise PgmError(f"{what} has shape {tuple(array.shape)}, expected {shape}{more}")


def _check_entries(array: Weight, what: str, nonnegative: bool) -> None:
    """PgmError with its index for a number out of range."""
    values = array.data if is_sparse(array) else array
    for bad, expected in (
        (~in_range(values), IN_RANGE),
        ((values < 0) & nonnegative, ">= 0 for this unit"),
    ):
        if bad.any():
            first = tuple(int(i) for i in np.argwhere(bad)[0])
            value, at = values[first], first
            if is_sparse(array):
                entries = array.tocoo()
                at = (int(entries.row[first]), int(entries.col[first]))
            raise PgmError(f"{what}[{', '.join(map(str, at))}] is {value}, expected {expected}")


def _symmetric(array: Weight) -> Weight:
    """Return the mean of a weight and its transpose, with stored zeros."""
    if not is_sparse(array):
        return (array + array.T) / 2
    across = array.T.tocsr()
    across.sort_indices()
    if np.array_equal(across.indptr, array.indptr) and np.array_equal(
        across.indices, array.indices
    ):
        array.data = (array.data + across.data) / 2
        return array
    return ((array + across) / 2).tocsr()


def _check_inside(array: Weight, layer: Layer, directed: bool, what: str) -> None:
    """PgmError unless a weight in a layer is symmetric or acyclic, and 0 inside each unit."""
    rows, columns = array.nonzero()
    own = np.flatnonzero(layer.owners(rows) == layer.owners(columns))
    if len(own):
        raise PgmError(
            f"{what}[{rows[own[0]]}, {columns[own[0]]}] couples a unit with itself, expected 0"
        )
    if directed:
        if cycle := cycle_of(zip(layer.owners(rows), layer.owners(columns), strict=True)):
            raise PgmError(
                f"{what}: arrows inside layer {layer.name!r} form a directed cycle through unit "
                f"{cycle[0]}"
            )
    else:
        above = abs(array - array.T) > 1e-12 * abs(array).max()
        if len(wrong := above.nonzero()[0]):
            i, j = int(wrong[0]), int(above.nonzero()[1][0])
            raise PgmError(
                f"{what} is not symmetric at [{i}, {j}]: {array[i, j]:.17g} and {array[j, i]:.17g}"
            )


def check_no_bias(structure: Structure, params: Mapping[str, Weight]) -> None:
    """PgmError if a unit with a conditional has a bias."""
    for name, layer in structure.layers.items() if structure.tables or structure.gates else ():
        bias = np.asarray(params[f"{name}.bias"]).reshape(layer.size, -1)
        wrong = structure.conditioned[name] & (bias != 0).any(axis=1)
        if wrong.any():
            unit = structure.names.of((name, int(np.flatnonzero(wrong)[0])))
            raise PgmError(f"unit {unit!r} has a conditional, and a bias, expected 0")
    for t in structure.shared if structure.tables_and_gates else ():
        name, units = t.layers[0], t.index[:, 0]
        wrong = structure.conditioned[name][units]
        if t.is_bias and wrong.any():
            unit = structure.names.of((name, int(units[wrong][0])))
            raise PgmError(
                f"unit {unit!r} has a conditional, and the shared bias {t.key!r}: give it one of "
                "them"
            )
