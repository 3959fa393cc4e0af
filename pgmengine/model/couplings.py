"""Couplings: the edges of the layer graph, all bilinear, x_a W x_b.

Every coupling follows the protocol `Coupling`. It gives the blocks of its weight that act on the
fields of its layers, and the derivative of the log density in its weight. An undirected coupling is
also a term of the log density. An arrow is not: it adds to the input of its child, and the
conditional of the child is a term of the log density. Weights are dense arrays, or scipy sparse
arrays whose stored entries are the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

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


class Coupling(Protocol):
    """An edge of the layer graph, which is bilinear in the values of its two layers: x_a W x_b.

    Attributes
    ----------
    a, b : names of the layers; the parent and the child of a directed coupling.
    directed : whether the coupling adds to the input of its child instead of to the log density.
    key : name of the coupling; its weight is params[key + ".weight"].
    """

    @property
    def a(self) -> str: ...  # noqa: D102

    @property
    def b(self) -> str: ...  # noqa: D102

    @property
    def directed(self) -> bool: ...  # noqa: D102

    @property
    def key(self) -> str: ...  # noqa: D102

    def within(self, layer: Layer) -> Coupling:
        """Return the coupling with the facts that it needs about its first layer."""

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """Yield (to, from, M) for both ends: the field of layer `to` gains x_from @ M."""

    def parameters(self, weight: Weight) -> Weight:
        """Return 1 where an entry of the weight is a parameter, and 0 elsewhere."""

    def statistics(self, weight: Weight, xa: Array, xb: Array) -> Weight:
        """Return the derivative of the log density in the weight, summed over rows.

        xa (rows, width of a) are values; xb (rows, width of b) are values, or the scores of the
        children of a directed coupling.
        """

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """Return the part of a matrix of derivatives that changes parameters."""


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
    inside = isinstance(coupling, Lateral) and not is_sparse(weight)
    mask: Weight = 1.0 - np.eye(len(weight)) if inside else coupling.parameters(weight)
    joined = (mask > 0).toarray() if is_sparse(mask) else mask > 0
    apart = ~(joined | joined.T if coupling.a == coupling.b else joined)
    if apart.any():
        # An index of entries would take four times the memory of a row.
        np.copyto(pairs, np.nan, where=apart)
    return pairs


@dataclass(frozen=True)
class Pair:
    """Undirected coupling of two layers: x_a W x_b, W of shape (width of a, width of b)."""

    a: str
    b: str
    directed = False

    @property
    def key(self) -> str:
        """Name of the coupling; its weight is params[key + ".weight"]."""
        return f"{self.a}-{self.b}"

    def within(self, layer: Layer) -> Pair:
        """Return the coupling itself."""
        return self

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """Yield (to, from, M): the field of `to` gains x_from @ M."""
        yield self.b, self.a, weight
        yield self.a, self.b, weight.T

    def parameters(self, weight: Weight) -> Weight:
        """Return 1 everywhere, or where a sparse weight stores an entry."""
        return stored(weight) if is_sparse(weight) else np.ones(weight.shape)

    def log_density(self, weight: Weight, xa: Array, xb: Array) -> Array:
        """Return x_a W x_b, (rows,)."""
        return bilinear(xa, weight, xb)

    def statistics(self, weight: Weight, xa: Array, xb: Array) -> Weight:
        """Return d log_density / d W summed over rows."""
        return outer(weight, xa, xb)

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """Return the matrix itself: every entry is a parameter."""
        return found


@dataclass(frozen=True)
class Lateral:
    """Undirected coupling inside a layer: x S x / 2, so that each pair of units counts once.

    S is symmetric, and 0 between components of one unit.
    """

    a: str
    unit_width: int = 1
    directed = False

    @property
    def b(self) -> str:
        """The same layer."""
        return self.a

    @property
    def key(self) -> str:
        """Name of the coupling; its weight is params[key + ".weight"]."""
        return f"{self.a}-{self.a}"

    def within(self, layer: Layer) -> Lateral:
        """Return the coupling with the number of components of the layer's units."""
        return replace(self, unit_width=layer.unit.width)

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """Yield (to, from, M): the field of `to` gains x_from @ M."""
        yield self.a, self.a, weight

    def parameters(self, weight: Weight) -> Weight:
        """Return 1 between units, or where a sparse weight stores an entry."""
        if is_sparse(weight):
            return stored(weight)
        unit = np.arange(len(weight)) // self.unit_width
        return (unit[:, None] != unit) * 1.0

    def log_density(self, weight: Weight, xa: Array, xb: Array) -> Array:
        """Return x S x / 2, (rows,)."""
        return bilinear(xa, weight, xb) / 2

    def statistics(self, weight: Weight, xa: Array, xb: Array) -> Weight:
        """Return d log_density / d S_ij summed over rows, where S_ij = S_ji is one parameter."""
        return self.projected(weight, outer(weight, xa, xb))

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """Return the exactly symmetric part of the matrix, with 0 between components of a unit."""
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


@dataclass(frozen=True)
class Arrow:
    """Directed coupling: the input of the children gains x_parent J.

    J has the shape (width of the parent layer, width of the child layer).
    """

    a: str
    b: str
    directed = True

    @property
    def key(self) -> str:
        """Name of the coupling; its weight is params[key + ".weight"]."""
        return f"{self.a}->{self.b}"

    def within(self, layer: Layer) -> Arrow:
        """Return the coupling itself."""
        return self

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """Yield (to, from, M) of the bilinear part x_parent J x_child, seen from both ends."""
        yield self.b, self.a, weight
        yield self.a, self.b, weight.T

    def parameters(self, weight: Weight) -> Weight:
        """Return 1 where an entry of the weight is a parameter.

        Inside one layer, only the nonzero entries of a dense weight are parameters, because others
        could close a cycle.
        """
        if is_sparse(weight):
            return stored(weight)
        return np.ones(weight.shape) if self.a != self.b else (weight != 0) * 1.0

    def statistics(self, weight: Weight, xa: Array, score: Array) -> Weight:
        """Return d log_density / d J summed over rows; score = d log p(x_b | zeta) / d zeta."""
        return self.projected(weight, outer(weight, xa, score))

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """Return the matrix with 0 in the entries that are not parameters."""
        return found if self.a != self.b or is_sparse(weight) else found * self.parameters(weight)


Undirected: TypeAlias = Pair | Lateral
