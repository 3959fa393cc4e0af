"""Counts of table entries and sums of inputs: of complete rows, and expected ones of others.

The count of an entry is the sum over rows of weight * P(units of the table are at this entry |
row). A conditional that belongs to a barren unit has no counts in a row: its expected counts would
be those of its parents times its present probabilities, which moves nothing. Any method that
answers a gradient also gives expected counts, because the gradient of a table without the
constraint that its rows sum to one is its counts. `CountingModel` leaves this constraint out.
Counts of entries that follow from fewer numbers, as in a gate, become counts of these numbers.

Children of arrows have sums in the place of counts, where these determine the rows of their inputs
(model/terms/input_rows.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgmengine.base.equal_rows import distinct, equal_rows
from pgmengine.base.types import Array, Weight
from pgmengine.declare.model import Model
from pgmengine.evidence.target import Target
from pgmengine.model.structure import Structure, first_of
from pgmengine.model.terms.input_rows import InputRows, add_sums, input_rows, shared_numbers
from pgmengine.model.terms.term import Kind, of_whole_layers

# Rows times axes of tables whose entries are computed at a time.
AXES_AT_ONCE = 2_000_000


class CountingModel(Model):
    """A model whose gradient is the expected counts of tables, and the sums of rows of inputs."""

    @property
    def counted_inputs(self) -> InputRows:
        """The rows of inputs with sums."""
        return input_rows(self.structure)

    def in_parameters(self, gradient: Mapping[str, Weight]) -> dict[str, Weight]:
        """Return counts and sums, which are by parameter."""
        return dict(gradient)

    def table_slopes(self, counts: Array) -> dict[str, Array]:
        """Return the counts by parameter."""
        return self.parameter_counts(counts)


def counted(structure: Structure, states: Array, weights: Array) -> Array:
    """Return the counts of all entries in complete rows, in the order of `table_entries`.

    Parameters
    ----------
    structure : the tables.
    states : (rows, units) states of all units.
    weights : (rows,) weight of each row.
    """
    index = structure.table_index
    total = np.zeros(structure.stored_entries)
    step = max(1, AXES_AT_ONCE // max(len(index.unit), 1))
    for first in range(0, len(states), step):
        some, heavy = np.ascontiguousarray(states[first : first + step].T), weights[first:][:step]
        for table, (begin, end) in enumerate(zip(index.start[:-1], index.start[1:], strict=True)):
            entry = some[index.unit[begin]] * index.stride[begin]
            for axis in range(begin + 1, end):
                entry += some[index.unit[axis]] * index.stride[axis]
            place = slice(index.first[table], index.first[table] + index.size[table])
            total[place] += np.bincount(entry, heavy, place.stop - place.start)
    return total


def summed_inputs(model: Model, target: Target, weights: Array) -> dict[str, Array]:
    """Return the sums of rows of inputs over complete rows of data, by parameter."""
    rows, theta = input_rows(model.structure), shared_numbers(model)
    total = rows.zeros()
    for name, own in rows.layers.items():
        x = model.structure.layers[name].shaped(target.evidence.values[name])
        for child in np.flatnonzero(own.first >= 0).tolist():
            k = int(own.states[child])
            places = own.of(np.array([child]), k)
            q = weights * (target.states[:, own.parent[child]] == np.arange(k)[:, None])
            zeta = theta[places[..., None] + np.arange(own.unit.width)]
            zeta = zeta if own.unit.width > 1 else zeta[..., 0]
            add_sums(total, places, own.unit.deviations(x[:, child][None], zeta, q[None]))
    return rows.by_parameter(total, model.params)


@dataclass(frozen=True, eq=False)
class Moments:
    """The data of the children of one parameter: weight, mean and variance, in its leading axes.

    Means and variances of units with cells have an axis of cells behind these.

    Places that share a number of the parameter have their data together. Without data the mean is 0
    and the variance 1.
    """

    weight: Array
    mean: Array
    variance: Array


def data_moments(rows: Sequence[tuple[Target, Array]]) -> dict[str, Moments]:
    """Return the moments of observed children with real values, by parameter of arrows or biases.

    The bias of a whole layer has those of each unit. `rows` are the rows of data of each length,
    and their weights.
    """
    whole = rows[0][0].structure
    terms, out = {**whole.parameters, **first_of(whole.shared)}, dict[str, Moments]()
    for key, term in terms.items():
        seen = [some for target, w in rows for some in _observations(target, w, key)]
        if not seen:
            continue
        lead = (whole.layers[term.layers[0]].size,) if term.whole else term.lead
        at, x, w = (np.concatenate(part) for part in zip(*seen, strict=True))
        cells = math.prod(x.shape[1:])
        columns = [_moments(at, part, w, math.prod(lead)) for part in x.reshape(len(x), cells).T]
        weight = np.bincount(at, w, math.prod(lead)).reshape(lead)
        both = (
            np.stack(part, -1).reshape((*lead, *x.shape[1:])) for part in zip(*columns, strict=True)
        )
        out[key] = Moments(weight, *both)
    return out


def _moments(at: Array, x: Array, w: Array, count: int) -> tuple[Array, Array]:
    """Return mean and variance of the numbers at each of `count` places; NaN is missing."""
    seen = ~np.isnan(x)
    at, x, w = at[seen], x[seen], w[seen]
    weight = np.bincount(at, w, count)
    share = w / np.where(weight > 0, weight, 1.0)[at]
    mean = np.bincount(at, share * x, count)
    square = np.bincount(at, share * np.square(x - mean[at]), count)
    return mean, np.where(weight > 0, square, 1.0)


def _observations(target: Target, weights: Array, key: str) -> Iterator[tuple[Array, Array, Array]]:
    """Yield the number of the parameter, value and weight of observed children with real values."""
    s = target.structure
    biases = [of_whole_layers(f"{name}.bias", Kind.BIAS, name) for name in s.directed_layers]
    for t in (*s.shared, *biases):
        layer = s.layers[t.layers[-1]]
        if t.key != key or layer.unit.support is not None or not (t.directed or t.is_bias):
            continue
        child = np.arange(layer.size) if t.whole else t.index[:, -1]
        x = layer.unit.numbers_of(layer.shaped(target.evidence.values[layer.name]))
        seen = np.broadcast_to(target.pattern.observed[layer.name], (target.rows, layer.size))
        row, place = np.nonzero(seen[:, child])
        number = child if t.whole else t.numbers
        yield number[place], x[row, child[place]], weights[row]


def merged(target: Target, weights: Array) -> tuple[Target, Array]:
    """Return the distinct rows of data, and the sum of the weights of the rows equal to each.

    Rows are equal if they observe the same units in the same states; rows of weight 0 are left out.
    Data of units with infinitely many values are returned as they are.
    """
    if not all(target.structure.state_counts.values()):
        return target, weights
    kept = np.flatnonzero(weights > 0)
    if len(kept) < target.rows:
        target, weights = target.take(kept), weights[kept]
    free = np.concatenate([target.free[name] for name in target.structure.layers], axis=1)
    # In the order of the data, so that equal data give equal bits.
    first, same = equal_rows(np.where(free, -1, target.states).astype(np.int32))
    if len(first) == target.rows:
        return target, weights
    return target.take(first), np.bincount(same, weights, len(first))


def is_complete(target: Target) -> bool:
    """Return whether every row observes all units, and all of their cells."""
    if any(distinct(free).any() for free in target.free.values()):
        return False
    cells = [x for x in target.structure.layers.values() if x.unit.cells]
    values = target.evidence.values
    return not any(x.unit.partial(x.shaped(values[x.name])).any() for x in cells)
