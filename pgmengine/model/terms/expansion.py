"""Expansion: couplings, arrows and biases of places as parameters of whole layers, and back.

Methods, kernels and trainers see one weight for each pair of layers, and one bias for each layer.
The expansion adds the terms of a structure to them. All couplings of two layers become one sparse
weight, whose stored entries are in the same places for all parameters, so that learning computes
the places once. A bias is a weight with one row. Terms that meet at an entry add up.

A derivative in the expanded weights and biases becomes one in the parameters by the transposed
step, which is the sum over places. An undirected coupling inside a layer is stored at (i, j) and at
(j, i), which are one entry in its derivative (`Coupling.statistics`); the sum takes it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pgmengine.base.types import Array, Params, Weight
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.terms.term import Kind, Term
from pgmengine.model.weights import is_sparse, like


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a term: `numbers` of the flat parameter act at rows and columns.

    A bias has columns only, and `rows` are 0. The numbers are multiplied by `factor`.
    """

    key: str
    shape: tuple[int, ...]
    rows: Array
    columns: Array
    numbers: Array
    factor: float = 1.0

    def of(self, params: Params) -> Array:
        """Return the numbers that act at the entries."""
        return self.factor * np.reshape(params[self.key], -1)[self.numbers]

    def summed(self, found: Array) -> Array:
        """Return the sum over places of numbers at these entries, in the shape of the parameter."""
        total = self.factor * np.bincount(self.numbers, found, minlength=math.prod(self.shape))
        return total.reshape(self.shape).astype(found.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Whole:
    """All terms of two layers as one weight of this shape, or those of a layer as one bias.

    `symmetric`: whether each entry (i, j) also stands at (j, i).
    """

    shape: tuple[int, int]
    terms: tuple[Entries, ...]
    symmetric: bool = False

    @cached_property
    def _positions(self) -> tuple[tuple[Array, ...], ...]:
        """For each term, the positions of its entries (i, j), and of (j, i) if symmetric."""
        width = self.shape[1]
        return tuple(
            (t.rows * width + t.columns, t.columns * width + t.rows)[: 1 + self.symmetric]
            for t in self.terms
        )

    @cached_property
    def _stored(self) -> tuple[Array, Array, Array]:
        """The positions of the stored entries, ascending, and indices and indptr of the rows."""
        stored = np.unique(np.concatenate([at for pair in self._positions for at in pair]))
        rows, columns = np.divmod(stored, self.shape[1])
        start = np.searchsorted(rows, np.arange(self.shape[0] + 1))
        return stored, columns.astype(np.int32), start.astype(np.int32)

    @cached_property
    def _slots(self) -> tuple[tuple[Array, ...], ...]:
        """For each term, its stored entries, in the order of `_positions`."""
        stored = self._stored[0]
        return tuple(tuple(np.searchsorted(stored, at) for at in pair) for pair in self._positions)

    def _data(self, params: Params) -> Array:
        """Return the numbers of the stored entries: the sum of all terms."""
        data = np.zeros(len(self._stored[0]))
        for term, slots in zip(self.terms, self._slots, strict=True):
            for at in slots:
                data += np.bincount(at, term.of(params), minlength=len(data))
        return data

    def total(self, own: Weight | None, params: Params) -> Weight:
        """Return the weight at these parameters, with the weight of the whole layers if any."""
        stored, indices, indptr = self._stored
        data = self._data(params)
        if own is not None and not is_sparse(own):
            dense = np.array(own, dtype=np.float64, order="C")
            dense.reshape(-1)[stored] += data
            return dense
        # Slow to import, and only models with couplings of places need it.
        from scipy.sparse import csr_array

        shared = csr_array((data, indices, indptr), shape=self.shape)
        if own is None:
            return shared
        # Sums of sparse arrays would drop entries that become 0, which are parameters.
        one, two = own.tocoo(), shared.tocoo()
        numbers, rows, columns = (
            np.concatenate(pair)
            for pair in ((one.data, two.data), (one.row, two.row), (one.col, two.col))
        )
        both = csr_array((numbers, (rows, columns)), shape=self.shape)
        both.sum_duplicates()
        both.sort_indices()
        return both

    def summed(self, own: Weight | None, found: Weight) -> dict[str, Array]:
        """Return the sums over places of a derivative in the whole weight, by parameter."""
        out: dict[str, Array] = {}
        for term, (slots, *_) in zip(self.terms, self._slots, strict=True):
            if own is None:
                at = found.data[slots]
            else:
                found = found if is_sparse(found) else np.reshape(found, self.shape)
                at = np.asarray(found[term.rows, term.columns]).reshape(-1)
            add_to(out, term.key, term.summed(at))
        return out


def add_to(out: dict[str, Array], key: str, found: Array) -> None:
    """Add an array to an entry of a dictionary, or make the entry."""
    out[key] = np.asarray(out[key] + found) if key in out else found


class Expansion:
    """The terms of a structure as they act on weights and biases of whole layers, by their names.

    Biases come before weights.
    """

    def __init__(
        self, layers: Mapping[str, Layer], couplings: Sequence[Coupling], shared: Sequence[Term]
    ) -> None:
        self.layers, self.keys = layers, frozenset(t.key for t in shared)
        biases, weights = dict[str, list[Entries]](), dict[str, list[Entries]]()
        for t in shared:
            for entries in self._in_bias(t):
                biases.setdefault(t.layers[-1], []).append(entries)
            for c in couplings:
                if joins(c, t):
                    weights.setdefault(c.key, []).extend(self._in_weight(c, t))
        self.whole = {
            f"{name}.bias": Whole((1, layers[name].width), tuple(found))
            for name, found in biases.items()
        }
        for c in couplings:
            if c.key in weights:
                shape = layers[c.a].width, layers[c.b].width
                inside = c.a == c.b and not c.directed
                self.whole[f"{c.key}.weight"] = Whole(shape, tuple(weights[c.key]), inside)

    def terms(self, name: str) -> tuple[Entries, ...]:
        """Return the terms in a weight or bias of whole layers."""
        return self.whole[name].terms if name in self.whole else ()

    def _components(self, t: Term) -> tuple[tuple[Array, ...], Array]:
        """Return the components of all places, and their numbers in the flat parameter.

        The components are one array for each layer: the columns of the layer that an entry joins.
        With rows by state, the numbers are those of the first row.
        """
        widths = [self.layers[name].unit.width for name in t.layers]
        size = math.prod(widths)
        parts = np.unravel_index(np.arange(size), widths)
        columns = tuple(
            (t.index[:, axis, None] * width + part).ravel()
            for axis, (width, part) in enumerate(zip(widths, parts, strict=True))
        )
        rows = 2 if t.kind is Kind.ARROW_BY_STATE else 1
        return columns, (t.numbers[:, None] * (rows * size) + np.arange(size)).ravel()

    def _in_bias(self, t: Term) -> Iterator[Entries]:
        """Yield the entries of a term in the bias of its layer, or of its children."""
        if t.kind not in (Kind.BIAS, Kind.ARROW_BY_STATE):
            return
        shape, (*_, columns), numbers = (t.shape(self.layers), *self._components(t))
        if t.is_bias:
            yield Entries(t.key, shape, columns * 0, columns, numbers)
            return
        # The input where x is 0: (s_1 W_0 - s_0 W_1) / (s_1 - s_0).
        s_0, s_1 = self._states(t)
        for row, state in ((0, s_1), (shape[-1], -s_0)):
            if state:
                factor = float(state / (s_1 - s_0))
                yield Entries(t.key, shape, columns * 0, columns, numbers + row, factor)

    def _in_weight(self, c: Coupling, t: Term) -> Iterator[Entries]:
        """Yield the entries of a term in the weight of a coupling."""
        (one, two), numbers = self._components(t)
        rows, columns = (one, two) if t.layers == (c.a, c.b) else (two, one)
        shape = t.shape(self.layers)
        if t.kind is not Kind.ARROW_BY_STATE:
            yield Entries(t.key, shape, rows, columns, numbers)
            return
        # The slope is (W_1 - W_0) / (s_1 - s_0).
        s_0, s_1 = self._states(t)
        slope = float(1.0 / (s_1 - s_0))
        yield Entries(t.key, shape, rows, columns, numbers, -slope)
        yield Entries(t.key, shape, rows, columns, numbers + shape[-1], slope)

    def _states(self, t: Term) -> Array:
        """Return the values of the two states of the parents of a term."""
        support = self.layers[t.layers[0]].unit.support
        assert support is not None
        return np.ravel(support)

    def unsigned(self) -> Expansion:
        """Return the expansion with the sizes of all factors, so that no sums of it cancel."""
        out = copy(self)
        out.whole = {
            name: replace(one, terms=tuple(replace(e, factor=abs(e.factor)) for e in one.terms))
            for name, one in self.whole.items()
        }
        return out

    def expanded(self, params: Params) -> dict[str, Weight]:
        """Return biases and weights of whole layers, each with its terms added."""
        out = {
            key: value
            for key, value in params.items()
            if key not in self.keys and key.endswith((".bias", ".weight"))
        }
        return out | {name: one.total(params.get(name), params) for name, one in self.whole.items()}

    def summed(self, gradient: Params, params: Params) -> dict[str, Weight]:
        """Return derivatives in expanded weights and biases as derivatives in the parameters.

        Derivatives in parameters are returned as they are.
        """
        if not self.keys.isdisjoint(gradient):
            return dict(gradient)
        out = dict(gradient)
        for name, one in self.whole.items():
            own, found = params.get(name), out.pop(name)
            for key, total in one.summed(own, found).items():
                add_to(out, key, total)
            if own is not None:
                out[name] = at_entries_of(own, found)
        return {key: out[key] for key in params if key in out}


def joins(c: Coupling, t: Term) -> bool:
    """Whether a term is a part of the coupling of two layers."""
    if t.is_bias or t.is_table or t.directed != c.directed:
        return False
    return t.layers == (c.a, c.b) or (not c.directed and t.layers == (c.b, c.a))


def at_entries_of(own: Weight, found: Weight) -> Weight:
    """Return a derivative in the whole weight at the entries of the coupling's own weight."""
    if not is_sparse(own):
        return found
    entries = own.tocoo()
    return like(own, np.asarray(found[entries.row, entries.col]).reshape(-1))
