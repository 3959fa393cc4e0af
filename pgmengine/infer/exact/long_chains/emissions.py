"""Children of the units of a chain, as log weights of the states of their parents.

Observations of a hidden Markov model that are no tables, such as Gaussian ones, are children of
arrows with one parent each, and have no children. Given the state k of its parent, the input of a
child is linear in the numbers theta of the parameters that all places share,

    zeta_k = A_k theta,

and an observed child adds log p(x | zeta_k) to the field of its parent. Children with the same A
are of one kind: their densities are computed together, for the rows of all lengths. With the
marginals q(k) of the parent, the derivative in theta is

    sum over observed children and states of  q(k) A_k^T d log p(x | zeta_k) / d zeta.

A child that is not observed sums to one, and is left out. The tests compare with junction trees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.equal_rows import distinct_pairs
from pgmengine.base.types import Array
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.model.structure import Structure, first_of
from pgmengine.units import Unit


@dataclass(frozen=True, eq=False)
class Kind:
    """Children whose inputs are the same function of the shared parameters.

    Attributes
    ----------
    unit : their type.
    matrix : (states * width, numbers) A, for all states of the parent.
    """

    unit: Unit
    matrix: Array

    def inputs(self, theta: Array) -> Array:
        """Return the inputs (states, width) at the numbers of the shared parameters."""
        return (self.matrix @ theta).reshape(-1, self.unit.width)

    def weigh(self, x: Array, zeta: Array) -> Array:
        """Return log p(x | zeta_k) of observations x (n, width), (n, states)."""
        return np.asarray(self.unit.log_conditional(*self._both(x, zeta)))

    def slope(self, x: Array, zeta: Array, q: Array) -> Array:
        """Return the derivative (numbers,) of the sum of q (n, states) times log p(x | zeta_k)."""
        score = self.unit.score(*self._both(x, zeta)).reshape(*q.shape, -1)
        found: Array = np.einsum("nk,nkw->kw", q, score).ravel() @ self.matrix
        return found

    def _both(self, x: Array, zeta: Array) -> tuple[Array, Array]:
        """Return observations and inputs as the functions of a unit take them, (n, states[, w])."""
        one, two = np.broadcast_arrays(x[:, None], zeta)
        return (one, two) if self.unit.width > 1 else (one[..., 0], two[..., 0])


def shared_numbers(model: Model) -> Array:
    """Return the numbers of all parameters that places share, in order."""
    groups = first_of(model.structure.shared)
    return np.concatenate([np.empty(0), *(np.ravel(model.params[key]) for key in groups)])


def by_parameter(model: Model, slope: Array) -> dict[str, Array]:
    """Return a derivative in the shared numbers by parameter."""
    out, first = dict[str, Array](), 0
    for key in first_of(model.structure.shared):
        value = np.asarray(model.params[key])
        out[key] = slope[first : first + value.size].reshape(value.shape)
        first += value.size
    return out


def emitting_layers(s: Structure) -> frozenset[str] | None:
    """Return the layers of children without children; None if there are other couplings.

    All their weights are shared by places, and no unit of theirs is in a table.
    """
    layers = {c.b for c in s.couplings}
    plain = all(c.directed and c.key in s.without_weight for c in s.couplings)
    if not plain or any(c.a in layers for c in s.couplings):
        return None
    if any(s.tabled[name].any() or len(s.arrows_into[name]) > 1 for name in layers):
        return None
    return frozenset(layers)


def observed_children(
    target: Target, layers: frozenset[str], whole: Structure, kinds: dict[bytes, Kind]
) -> list[tuple[Kind, Array, Array, Array]] | None:
    """Return the observed children of all layers by kind; None unless each has one parent.

    With the kind are row and parent (n,), a number among all units, and the values (n, width).
    `whole` has all parameters, of which a short model may lack some. New kinds are added to
    `kinds`.
    """
    out = list[tuple[Kind, Array, Array, Array]]()
    for name in sorted(layers):
        if target.structure.has_bias[name].any() or np.any(target.model.params[f"{name}.bias"]):
            # A bias of the layer's own is one more part of the input, and may be learned.
            return None
        found = _children(target.structure, name, whole, kinds)
        if found is None:
            return None
        parents, keys = found
        layer, values = target.structure.layers[name], target.evidence.values[name]
        seen = np.broadcast_to(target.pattern.observed[name], (target.rows, layer.size))
        x = np.broadcast_to(values, (target.rows, layer.width))
        x = x.reshape(target.rows, layer.size, -1)
        for key in dict.fromkeys(keys):
            mine = np.flatnonzero([other == key for other in keys])
            row, place = np.nonzero(seen[:, mine])
            unit = mine[place]
            out.append((kinds[key], row, parents[unit], x[row, unit]))
    return out


def _children(
    s: Structure, name: str, whole: Structure, kinds: dict[bytes, Kind]
) -> tuple[Array, list[bytes]] | None:
    """Return the parent and the kind of each unit of a layer; None unless each has one parent."""
    (arrow,) = s.arrows_into[name]
    child, parent = s.layers[name], s.layers[arrow.a]
    offsets, first = dict[str, int](), 0
    for name_of_term, term in first_of(whole.shared).items():
        offsets[name_of_term] = first
        first += int(np.prod(term.shape(whole.layers), dtype=np.int64))
    weights = s.expansion.terms(f"{arrow.key}.weight")
    biases = s.expansion.terms(f"{name}.bias")
    above = np.concatenate([e.rows for e in weights])
    column = np.concatenate([e.columns for e in (*weights, *biases)])
    number = np.concatenate([offsets[e.key] + e.numbers for e in (*weights, *biases)])
    factor = np.concatenate([np.full(len(e.numbers), e.factor) for e in (*weights, *biases)])
    # The component of the parent; a bias has none.
    part = np.concatenate([above % parent.unit.width, np.full(len(column) - len(above), -1)])
    unit, of = column // child.unit.width, column % child.unit.width
    ends, _ = distinct_pairs(unit[: len(above)], above // parent.unit.width)
    if not np.array_equal(ends[:, 0], np.arange(child.size)) or parent.unit.support is None:
        return None
    support = parent.unit.support.reshape(-1, parent.unit.width)
    order = np.lexsort((factor, number, part, of, unit))
    rows = np.stack([of, part, number, factor], axis=1)[order]
    keys = list[bytes]()
    for own in np.split(rows, np.flatnonzero(np.diff(unit[order])) + 1):
        key = name.encode() + own.tobytes()
        if key not in kinds:
            kinds[key] = Kind(child.unit, _matrix(own, support, child.unit.width, first))
        keys.append(key)
    return s.first_unit[arrow.a] + ends[:, 1], keys


def _matrix(entries: Array, support: Array, width: int, numbers: int) -> Array:
    """Return A (states * width, numbers) from entries (component, parent's one, number, factor)."""
    out = np.zeros((len(support), width, numbers))
    for of, part, number, factor in entries:
        values = support[:, int(part)] if part >= 0 else 1.0
        out[:, int(of), int(number)] += factor * values
    return out.reshape(-1, numbers)
