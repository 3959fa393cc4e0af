"""Expansion: shared couplings and biases as weights of whole layers, and back.

Methods, kernels and trainers see one weight for each pair of layers, and one bias for each layer.
The expansion adds the shared terms of a structure to them. All shared couplings of two layers
become one sparse weight, whose stored entries are in the same places for all parameters, so that
learning computes the places once. Terms that meet at an entry add up.

A derivative in the expanded weights and biases becomes one in the parameters by the transposed
step, which is the sum over places. An undirected coupling inside a layer is stored at (i, j) and at
(j, i), which are one entry in its derivative (`Lateral.statistics`); the sum takes it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pgmengine.base.types import Array, Params, Weight
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.shared.shared_term import SharedTerm
from pgmengine.model.weights import is_sparse, like


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a shared term: `numbers` of the flat parameter act at rows and columns.

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

    def unsigned(self) -> Entries:
        """Return the entries with the size of their factor."""
        return replace(self, factor=abs(self.factor))

    def summed(self, found: Array) -> Array:
        """Return the sum over places of numbers at these entries, in the shape of the parameter."""
        size = int(np.prod(self.shape, dtype=np.int64))
        total = self.factor * np.bincount(self.numbers, found, minlength=size)
        return total.reshape(self.shape).astype(found.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class SharedWeight:
    """All shared couplings of two layers as one weight of this shape.

    `symmetric`: whether each entry (i, j) also stands at (j, i).
    """

    shape: tuple[int, int]
    terms: tuple[Entries, ...]
    symmetric: bool

    def _places(self, rows: Array, columns: Array) -> Array:
        """Return the positions of entries among all entries of the weight, row by row."""
        return rows * self.shape[1] + columns

    @cached_property
    def _stored(self) -> tuple[Array, Array, Array]:
        """The positions of the stored entries, ascending, and indices and indptr of the rows."""
        parts = [self._places(t.rows, t.columns) for t in self.terms]
        if self.symmetric:
            parts += [self._places(t.columns, t.rows) for t in self.terms]
        stored = np.unique(np.concatenate(parts))
        rows, columns = np.divmod(stored, self.shape[1])
        start = np.searchsorted(rows, np.arange(self.shape[0] + 1))
        return stored, columns.astype(np.int32), start.astype(np.int32)

    @cached_property
    def _slots(self) -> tuple[tuple[Array, Array | None], ...]:
        """For each term the stored entries of (i, j), and of (j, i) in a symmetric weight."""
        stored = self._stored[0]
        return tuple(
            (
                np.searchsorted(stored, self._places(t.rows, t.columns)),
                np.searchsorted(stored, self._places(t.columns, t.rows))
                if self.symmetric
                else None,
            )
            for t in self.terms
        )

    def _data(self, params: Params) -> Array:
        """Return the numbers of the stored entries: the sum of all terms."""
        data = np.zeros(len(self._stored[0]))
        for term, slots in zip(self.terms, self._slots, strict=True):
            for at in slots:
                if at is not None:
                    data += np.bincount(at, term.of(params), minlength=len(data))
        return data

    def total(self, own: Weight | None, params: Params) -> Weight:
        """Return the weight at these parameters, with the coupling's own weight if it has one."""
        # Slow to import, and only models with shared couplings need it.
        from scipy.sparse import csr_array

        stored, indices, indptr = self._stored
        data = self._data(params)
        if own is not None and not is_sparse(own):
            dense = np.array(own, dtype=np.float64, order="C")
            dense.reshape(-1)[stored] += data
            return dense
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
        for term, (slots, _) in zip(self.terms, self._slots, strict=True):
            if own is None:
                at = found.data[slots]
            else:
                at = np.asarray(found[term.rows, term.columns]).reshape(-1)
            add_to(out, term.key, term.summed(at))
        return out


def add_to(out: dict[str, Array], key: str, found: Array) -> None:
    """Add an array to an entry of a dictionary, or make the entry."""
    out[key] = np.asarray(out[key] + found) if key in out else found


class Expansion:
    """The shared terms of a structure, as they act on the weights and biases of whole layers."""

    def __init__(
        self,
        layers: Mapping[str, Layer],
        couplings: Iterable[Coupling],
        shared: Sequence[SharedTerm],
    ) -> None:
        self.layers, self.keys = layers, frozenset(t.key for t in shared)
        self.biases: dict[str, list[Entries]] = {}
        for t in shared:
            for entries in self._in_bias(t):
                self.biases.setdefault(t.layers[-1], []).append(entries)
        self.weights: dict[str, SharedWeight] = {}
        for c in couplings:
            terms = tuple(e for t in shared if joins(c, t) for e in self._in_weight(c, t))
            if terms:
                shape = layers[c.a].width, layers[c.b].width
                self.weights[c.key] = SharedWeight(shape, terms, c.a == c.b and not c.directed)

    def _in_bias(self, t: SharedTerm) -> list[Entries]:
        """Return the entries of a term in the bias of its layer, or of its children."""
        shape, (*_, columns), numbers = (t.shape(self.layers), *t.entries(self.layers))
        if t.is_bias:
            return [Entries(t.key, shape, columns * 0, columns, numbers)]
        if not t.by_state:
            return []
        # The input where x is 0: (s_1 W_0 - s_0 W_1) / (s_1 - s_0).
        s_0, s_1 = self._states(t)
        width = self.layers[t.layers[1]].unit.width
        rows = ((numbers, s_1), (numbers + width, -s_0))
        return [
            Entries(t.key, shape, columns * 0, columns, row, float(state / (s_1 - s_0)))
            for row, state in rows
            if state
        ]

    def _in_weight(self, c: Coupling, t: SharedTerm) -> list[Entries]:
        """Return the entries of a term in the weight of a coupling."""
        (one, two), numbers = t.entries(self.layers)
        rows, columns = (one, two) if t.layers == (c.a, c.b) else (two, one)
        shape = t.shape(self.layers)
        if not t.by_state:
            return [Entries(t.key, shape, rows, columns, numbers)]
        # The slope is (W_1 - W_0) / (s_1 - s_0).
        s_0, s_1 = self._states(t)
        slope, width = float(1.0 / (s_1 - s_0)), self.layers[t.layers[1]].unit.width
        return [
            Entries(t.key, shape, rows, columns, numbers, -slope),
            Entries(t.key, shape, rows, columns, numbers + width, slope),
        ]

    def _states(self, t: SharedTerm) -> Array:
        """Return the values of the two states of the parents of a term."""
        support = self.layers[t.layers[0]].unit.support
        assert support is not None
        return np.ravel(support)

    def unsigned(self) -> Expansion:
        """Return the expansion with the sizes of all factors, so that no sums of it cancel."""
        out = copy(self)
        out.biases = {name: [e.unsigned() for e in found] for name, found in self.biases.items()}
        out.weights = {
            name: replace(weight, terms=tuple(e.unsigned() for e in weight.terms))
            for name, weight in self.weights.items()
        }
        return out

    def shared_bias(self, name: str, params: Params) -> Array:
        """Return the sum of the shared biases of a layer, (width,)."""
        out = np.zeros(self.layers[name].width)
        for t in self.biases.get(name, ()):
            out += np.bincount(t.columns, t.of(params), minlength=len(out))
        return out

    def expanded(self, params: Params) -> dict[str, Weight]:
        """Return biases and weights of whole layers, each with its shared terms added."""
        out = {
            key: value
            for key, value in params.items()
            if key not in self.keys and key.endswith((".bias", ".weight"))
        }
        for name in self.biases:
            bias, key = self.shared_bias(name, params), f"{name}.bias"
            out[key] = out[key] + bias.reshape(self.layers[name].bias_shape)
        for name, weight in self.weights.items():
            key = f"{name}.weight"
            out[key] = weight.total(params.get(key), params)
        return out

    def summed(self, gradient: Params, params: Params) -> dict[str, Weight]:
        """Return derivatives in expanded weights and biases as derivatives in the parameters.

        Derivatives in parameters are returned as they are.
        """
        if not self.keys.isdisjoint(gradient):
            return dict(gradient)
        out = dict(gradient)
        for name, terms in self.biases.items():
            found = np.reshape(gradient[f"{name}.bias"], -1)
            for t in terms:
                add_to(out, t.key, t.summed(found[t.columns]))
        for name, weight in self.weights.items():
            key = f"{name}.weight"
            own, found = params.get(key), out.pop(key)
            for name_of_term, total in weight.summed(own, found).items():
                add_to(out, name_of_term, total)
            if own is not None:
                out[key] = at_entries_of(own, found)
        return {key: out[key] for key in params if key in out}


def joins(c: Coupling, t: SharedTerm) -> bool:
    """Whether a shared coupling is a part of the coupling of two layers."""
    if t.is_bias or t.directed != c.directed:
        return False
    return t.layers == (c.a, c.b) or (not c.directed and t.layers == (c.b, c.a))


def at_entries_of(own: Weight, found: Weight) -> Weight:
    """Return a derivative in the whole weight at the entries of the coupling's own weight."""
    if not is_sparse(own):
        return found
    entries = own.tocoo()
    return like(own, np.asarray(found[entries.row, entries.col]).reshape(-1))
