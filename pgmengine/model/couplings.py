"""Couplings: the edges of the layer graph, all bilinear, x_a W x_b.

A coupling gives the blocks of its weight that act on the fields of its layers, and the derivative
of the log density in its weight. An undirected coupling is also a term of the log density. An arrow
is not: it adds to the input of its child, and the conditional of the child is a term of the log
density. Weights are dense arrays, or scipy sparse arrays whose stored entries are the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pgmengine import _kernels
from pgmengine.base.types import Array, Weight
from pgmengine.base.work.threads import parts
from pgmengine.model.layer import Layer
from pgmengine.model.weights import is_sparse, like

# The largest share of nonzero numbers for which adding rows of the weight is faster than a matrix
# product, measured on 100 rows.
MAX_SPARSE_SHARE = 0.6

# Columns that are added in the time that it takes to list the nonzero numbers.
COLUMNS_A_LISTING = 20

# The smallest number of multiplications for which a further thread is started.
MIN_PRODUCTS_A_THREAD = 200_000


def bilinear(xa: Array, weight: Weight, xb: Array) -> Array:
    """Return x_a W x_b of every row, (rows,); xa is (rows, a), xb (rows, b)."""
    return np.asarray(np.einsum("ri,ri->r", xa @ weight, xb))


def outer(weight: Weight, xa: Array, xb: Array) -> Weight:
    """Return the sum over rows of x_a x_b', at the stored entries of a sparse weight only.

    In single precision, rows of x_b are added for the nonzero entries of x_a, so that zeros take no
    time. With few zeros or short rows, a matrix product is faster and is used.
    """
    if not is_sparse(weight):
        few = xa.dtype == xb.dtype == np.float32 and adds_rows(xa, xb.shape[1])
        return sum_of_rows(xa, xb) if few else columns_times(xa, xb)
    entries = weight.tocoo()
    return like(weight, np.einsum("re,re->e", xa[:, entries.row], xb[:, entries.col]))


def adds_rows(x: Array, columns: int) -> bool:
    """Whether x has so many zeros that adding rows of a weight is faster than a product."""
    few = MAX_SPARSE_SHARE - COLUMNS_A_LISTING / columns
    if few <= 0:
        return False
    # A sample of the rows is compared with 0 first, because counting booleans is fast.
    some = x[:: max(1, len(x) // 8)] != 0
    return bool(np.count_nonzero(some) <= few * some.size)


def sum_of_rows(xa: Array, xb: Array) -> Array:
    """Return x_a' x_b in single precision, by adding rows of x_b where x_a is not 0."""
    xa, xb = np.ascontiguousarray(xa), np.ascontiguousarray(xb)
    out = np.empty((xa.shape[1], xb.shape[1]), dtype=np.float32)
    _kernels.outer(xa, xb, out, parts(xa.size * xb.shape[1] / 4, MIN_PRODUCTS_A_THREAD))
    return out


def weighted_sum(weights: Array, x: Array) -> Array:
    """Return the sum over rows of weight * x, (width,)."""
    if weights.dtype == x.dtype == np.float32:
        return np.asarray(sum_of_rows(weights[:, None], x)[0])
    return np.asarray(weights @ x)


def columns_times(xa: Array, xb: Array) -> Array:
    """Return the matrix product x_a' x_b, divided among the threads."""
    if not xa.dtype == xb.dtype == np.float32:
        return np.asarray(xa.T @ xb)
    out = np.empty((xa.shape[1], xb.shape[1]), dtype=np.float32)
    work = parts(xa.size * xb.shape[1] / 4, MIN_PRODUCTS_A_THREAD)
    _kernels.across(np.ascontiguousarray(xa), np.ascontiguousarray(xb), out, work)
    return out


def stored(weight: Weight) -> Weight:
    """Return 1 at every stored entry of a sparse weight."""
    return like(weight, np.ones(weight.nnz))


def only_parameters(coupling: Coupling, weight: Weight, pairs: Array) -> Array:
    """Put NaN into pair statistics (rows, a, b) where they belong to no parameter; return them.

    These are entries that a sparse weight does not store, and the pairs of a unit with itself.
    """
    # Pairs of components of one unit count too, although no parameter joins them.
    inside = coupling.lateral and not is_sparse(weight)
    mask: Weight = 1.0 - np.eye(len(weight)) if inside else coupling.parameters(weight)
    joined = (mask > 0).toarray() if is_sparse(mask) else mask > 0
    apart = ~(joined | joined.T if coupling.a == coupling.b else joined)
    if apart.any():
        # An index of entries would take four times the memory of a row.
        np.copyto(pairs, np.nan, where=apart)
    return pairs


@dataclass(frozen=True)
class Coupling:
    """An edge of the layer graph, bilinear in the values of its two layers: x_a W x_b.

    An undirected coupling of two layers adds x_a W x_b to the log density, and one inside a layer
    x S x / 2, so that each pair of units counts once; S is symmetric, and 0 between components of
    one unit. Arrows add x_parent J to the input of the children instead.

    Attributes
    ----------
    a, b : names of the layers; the parent and the child of arrows.
    directed : whether it has arrows.
    unit_width : the number of components of the units, for a coupling inside a layer.
    """

    a: str
    b: str
    directed: bool = False
    unit_width: int = 1

    @property
    def key(self) -> str:
        """Name of the coupling; its weight is params[key + ".weight"]."""
        return f"{self.a}->{self.b}" if self.directed else f"{self.a}-{self.b}"

    @property
    def lateral(self) -> bool:
        """Whether it is undirected and inside a layer."""
        return self.a == self.b and not self.directed

    def within(self, layer: Layer) -> Coupling:
        """Return the coupling with the facts that it needs about its first layer."""
        return replace(self, unit_width=layer.unit.width) if self.lateral else self

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """Yield (to, from, M) for both ends: the field of layer `to` gains x_from @ M."""
        yield self.b, self.a, weight
        if not self.lateral:
            yield self.a, self.b, weight.T

    def parameters(self, weight: Weight) -> Weight:
        """Return 1 where an entry of the weight is a parameter, and 0 elsewhere.

        Inside one layer, only the nonzero entries of a dense weight of arrows are parameters,
        because others could close a cycle.
        """
        if is_sparse(weight):
            return stored(weight)
        if self.a != self.b:
            return np.ones(weight.shape)
        if self.directed:
            return (weight != 0) * 1.0
        unit = np.arange(len(weight)) // self.unit_width
        return (unit[:, None] != unit) * 1.0

    def log_density(self, weight: Weight, xa: Array, xb: Array) -> Array:
        """Return the term of an undirected coupling, (rows,)."""
        found = bilinear(xa, weight, xb)
        return found / 2 if self.lateral else found

    def statistics(self, weight: Weight, xa: Array, xb: Array) -> Weight:
        """Return the derivative of the log density in the weight, summed over rows.

        xa (rows, width of a) are values; xb (rows, width of b) are values, or for arrows the scores
        of the children, d log p(x_b | zeta) / d zeta. S_ij = S_ji is one parameter.
        """
        return self.projected(weight, outer(weight, xa, xb))

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """Return the part of a matrix of derivatives that changes parameters.

        Inside a layer it is exactly symmetric, with 0 between components of a unit.
        """
        if self.a != self.b or (self.directed and is_sparse(weight)):
            return found
        if self.directed:
            return found * self.parameters(weight)
        if not is_sparse(weight):
            return (found + found.T) / 2 * self.parameters(weight).astype(found.dtype)
        if not weight.nnz:
            return found
        entries = weight.tocoo()
        place = like(weight, np.arange(1.0, weight.nnz + 1))
        # For each stored entry (i, j), the number of the entry (j, i).
        other = np.asarray(place[entries.col, entries.row]).astype(int) - 1
        between = entries.row // self.unit_width != entries.col // self.unit_width
        return like(weight, np.where(between, (found.data + found.data[other]) / 2, 0.0))
