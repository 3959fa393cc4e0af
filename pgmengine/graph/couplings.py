"""Couplings: the edges of the layer graph, all bilinear, x_a W x_b.

A coupling knows three things and no caller asks which kind it has: the bilinear `blocks` through
which it reaches layers' fields, its share of the log density, and its weight statistics. Weights
are dense arrays or scipy sparse arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgmengine import _kernels
from pgmengine.base.threads import parts
from pgmengine.base.types import Array
from pgmengine.graph.layer import Layer
from pgmengine.graph.weights import is_sparse, like

Weight = Any  # a 2-D numpy array or a scipy sparse array: they share @, .T and slicing
# Share of non-zero numbers up to which adding long rows is faster than a matrix product of 100 rows
FEW = 0.6
LISTS = 20  # columns that could be added in the time that it takes to list what is not 0
WORTH_A_THREAD = 200_000  # multiplications


def bilinear(xa: Array, weight: Weight, xb: Array) -> Array:
    """x_a W x_b for every row; xa (rows, a), xb (rows, b) -> (rows,)."""
    return np.einsum("ri,ri->r", xa @ weight, xb)


def outer(weight: Weight, xa: Array, xb: Array) -> Weight:
    """Sum over rows of x_a x_b', kept at the stored entries of a sparse weight.

    In single precision zeros of x_a cost nothing where the rows of x_b are summed; with few zeros
    or short rows a matrix product is faster.
    """
    if not is_sparse(weight):
        few = xa.dtype == xb.dtype == np.float32 and adds_rows(xa, xb.shape[1])
        return sum_of_rows(xa, xb) if few else columns_times(xa, xb)
    entries = weight.tocoo()
    return like(weight, np.einsum("re,re->e", xa[:, entries.row], xb[:, entries.col]))


def adds_rows(x: Array, columns: int) -> bool:
    """Whether to make a product with x by adding rows of so many columns: few numbers of x are not
    0.
    """
    few = FEW - LISTS / columns
    if few <= 0:
        return False
    some = x[:: max(1, len(x) // 8)] != 0  # a sample, compared first: counting booleans is quick
    return bool(np.count_nonzero(some) <= few * some.size)


def sum_of_rows(xa: Array, xb: Array) -> Array:
    """x_a' x_b in single precision, by adding rows of x_b where x_a is not 0."""
    xa, xb = np.ascontiguousarray(xa), np.ascontiguousarray(xb)
    out = np.empty((xa.shape[1], xb.shape[1]), dtype=np.float32)
    _kernels.outer(xa, xb, out, parts(xa.size * xb.shape[1] / 4, WORTH_A_THREAD))
    return out


def weighted_sum(weights: Array, x: Array) -> Array:
    """Sum over rows of weight * x, (width,)."""
    return (
        sum_of_rows(weights[:, None], x)[0]
        if weights.dtype == x.dtype == np.float32
        else weights @ x
    )


def columns_times(xa: Array, xb: Array) -> Array:
    """x_a' x_b as a matrix product, shared out among the threads."""
    if not xa.dtype == xb.dtype == np.float32:
        return xa.T @ xb
    out = np.empty((xa.shape[1], xb.shape[1]), dtype=np.float32)
    work = parts(xa.size * xb.shape[1] / 4, WORTH_A_THREAD)
    _kernels.across(np.ascontiguousarray(xa), np.ascontiguousarray(xb), out, work)
    return out


def stored(weight: Weight) -> Weight:
    """1 at every stored entry of a sparse weight."""
    return like(weight, np.ones(weight.nnz))


def only_parameters(coupling: Coupling, weight: Weight, pairs: Array) -> Array:
    """Pair statistics (rows, a, b) with NaN where the coupling has no parameter, or a unit would
    meet itself.
    """
    inside = isinstance(coupling, Lateral) and not is_sparse(
        weight
    )  # two components of one unit are a pair, too
    mask: Weight = 1.0 - np.eye(len(weight)) if inside else coupling.parameters(weight)
    dense = mask.toarray() if is_sparse(mask) else mask
    return np.where(
        (dense > 0) | (dense.T > 0) if coupling.a == coupling.b else dense > 0, pairs, np.nan
    )


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
        """The coupling, told of its first layer."""
        return self

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """(to, from, M): the field of `to` gains x_from @ M."""
        yield self.b, self.a, weight
        yield self.a, self.b, weight.T

    def parameters(self, weight: Weight) -> Weight:
        """1 where an entry of the weight is a parameter: everywhere, or where a sparse weight
        stores one.
        """
        return stored(weight) if is_sparse(weight) else np.ones(weight.shape)

    def log_density(self, weight: Weight, xa: Array, xb: Array) -> Array:
        """x_a W x_b, shape (rows,)."""
        return bilinear(xa, weight, xb)

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """The part of a matrix of slopes that changes parameters."""
        return found

    def statistics(self, weight: Weight, xa: Array, xb: Array) -> Weight:
        """D log_density / d W summed over rows."""
        return outer(weight, xa, xb)


@dataclass(frozen=True)
class Lateral:
    """Undirected coupling inside a layer: x S x / 2, S symmetric, so each pair counts once; 0
    inside a unit.
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

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """(to, from, M): the field of `to` gains x_from @ M."""
        yield self.a, self.a, weight

    def within(self, layer: Layer) -> Lateral:
        """The coupling, told of its layer."""
        return replace(self, unit_width=layer.unit.width)

    def parameters(self, weight: Weight) -> Weight:
        """1 where an entry of the weight is a parameter: between units, or where a sparse weight
        stores one.
        """
        if is_sparse(weight):
            return stored(weight)
        unit = np.arange(len(weight)) // self.unit_width
        return (unit[:, None] != unit) * 1.0

    def log_density(self, weight: Weight, xa: Array, xb: Array) -> Array:
        """X S x / 2, shape (rows,)."""
        return bilinear(xa, weight, xb) / 2

    def statistics(self, weight: Weight, xa: Array, xb: Array) -> Weight:
        """D log_density / d S_ij with S_ij = S_ji one parameter, summed over rows."""
        return self.projected(weight, outer(weight, xa, xb))

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """Symmetric to the last bit, so that the weights stay so, and 0 inside a unit."""
        if not is_sparse(weight):
            return (found + found.T) / 2 * self.parameters(weight).astype(found.dtype)
        if not weight.nnz:
            return found
        entries = weight.tocoo()
        place = like(weight, np.arange(1.0, weight.nnz + 1))
        other = (
            np.asarray(place[entries.col, entries.row]).astype(int) - 1
        )  # the number of the entry across
        between = entries.row // self.unit_width != entries.col // self.unit_width
        return like(weight, np.where(between, (found.data + found.data[other]) / 2, 0.0))


@dataclass(frozen=True)
class Arrow:
    """Directed coupling: the children's input gains x_parent J, J of shape (width of parent, width
    of child).
    """

    a: str
    b: str
    directed = True

    @property
    def key(self) -> str:
        """Name of the coupling; its weight is params[key + ".weight"]."""
        return f"{self.a}->{self.b}"

    def within(self, layer: Layer) -> Arrow:
        """The coupling, told of its first layer."""
        return self

    def blocks(self, weight: Weight) -> Iterator[tuple[str, str, Weight]]:
        """(to, from, M): the bilinear part x_parent J x_child seen from both ends."""
        yield self.b, self.a, weight
        yield self.a, self.b, weight.T

    def parameters(self, weight: Weight) -> Weight:
        """1 where an entry of the weight is a parameter.

        Inside one layer a dense weight has its non-zero entries only, for others could close a
        cycle.
        """
        if is_sparse(weight):
            return stored(weight)
        return np.ones(weight.shape) if self.a != self.b else (weight != 0) * 1.0

    def statistics(self, weight: Weight, xa: Array, score: Array) -> Weight:
        """D log_density / d J summed over rows, score = d log p(x_b | zeta) / d zeta."""
        return self.projected(weight, outer(weight, xa, score))

    def projected(self, weight: Weight, found: Weight) -> Weight:
        """The part of a matrix of slopes that changes parameters."""
        return found if self.a != self.b or is_sparse(weight) else found * self.parameters(weight)


Coupling = Pair | Lateral | Arrow
