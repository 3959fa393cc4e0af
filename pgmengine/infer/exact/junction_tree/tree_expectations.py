"""Means, pairs and the gradient of one evidence pattern, from marginals of units and factors.

If one unit of a pair is observed, the two units are independent given the evidence, and E[x_a x_b']
is the product of their means. A pair of free units has a factor of its own. The expected score of a
conditional follows from the marginal of the child's factor, and the mean of a unit with infinitely
many values from the marginal of its factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine.base.numerics import add_at
from pgmengine.base.types import Array, States, Weight
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.expectations import Expectations, put_second_moments
from pgmengine.infer.exact.gathered import Answer
from pgmengine.infer.exact.junction_tree.causal_independence import AbsentTerm, ChainTerm, Links
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, JointTerm
from pgmengine.infer.exact.junction_tree.factors import PairTerm
from pgmengine.infer.exact.junction_tree.marginalised import (
    ChildTerm,
    Group,
    InfiniteTerm,
    parts_of,
)
from pgmengine.infer.results.by_name import Joint, units_of
from pgmengine.model.couplings import Coupling, outer
from pgmengine.model.layer import Layer
from pgmengine.model.terms.input_rows import InputRows, add_sums, shared_numbers
from pgmengine.model.weights import is_sparse, like
from pgmengine.units.unit import one_hot_rows


@dataclass(frozen=True, eq=False)
class FromMarginals(Expectations):
    """Expectations under the posterior of some rows of one evidence pattern.

    Attributes
    ----------
    target : the rows.
    conditioned : their factors.
    units : (sum of states of the free units, rows) marginals of free units.
    asked : numbers of the factors whose marginals were computed, ascending.
    factors : (sum of their entries, rows) marginals of these factors.
    separate : layer -> (rows, units) probabilities of 1 of the units that are in no factor.
    """

    conditioned: Conditioned
    units: Array
    asked: Array
    factors: Array
    separate: States
    # The rows as they were given: their units that are absent from the tree have means, too.
    given: Target

    @cached_property
    def _ends(self) -> Array:
        """The first entry of each factor in `factors`, and the end of the last one."""
        return np.concatenate([[0], np.cumsum(self.conditioned.sizes[self.asked])])

    def marginals_of(self, place: slice) -> Array:
        """Return the marginals (entries, rows) of factors that follow each other."""
        first = int(np.searchsorted(self.asked, place.start))
        last = first + place.stop - place.start
        return self.factors[self._ends[first] : self._ends[last]]

    def factor(self, number: int) -> Array:
        """Return the marginal (entries, rows) of a factor."""
        return self.marginals_of(slice(number, number + 1))

    def group(self, place: slice, group: Group) -> Array:
        """Return the marginals (n, entries, rows) of a group of the term at a place."""
        return np.asarray(self.marginals_of(place)[group.places])

    def answers(self, wanted: Iterable[str]) -> Answer:
        """Return the wanted answers that are expectations, with joint distributions."""
        want = tuple(wanted)
        found, joints = super().answers(want), [w for w in want if isinstance(w, Joint)]
        if joints:
            tables = self.joints([units_of(self.target.structure, w) for w in joints])
            found["joint"] = dict(zip((w.units for w in joints), tables, strict=True))
        return found

    def joints(self, sets: list[tuple[int, ...]]) -> list[Array]:
        """Return the joint distribution (rows, states, ...) of each set of units."""
        s, target = self.target.structure, self.target
        states = target.states
        counts = np.concatenate(
            [
                np.full(x.size, 0 if x.unit.support is None else len(x.unit.support))
                for x in s.layers.values()
            ]
        )
        ((_, place),) = self.conditioned.places(JointTerm)
        out = []
        for i, units in enumerate(sets):
            free = [k for k, u in enumerate(units) if self.conditioned.free.number[u] >= 0]
            found = self.factor(place.start + i).T.reshape(-1, *(counts[units[k]] for k in free))
            for k, u in enumerate(units):
                if k not in free:
                    seen = np.eye(counts[u])[states[:, u]]
                    shape = [1] * (found.ndim + 1)
                    shape[0], shape[k + 1] = len(seen), counts[u]
                    found = np.expand_dims(found, k + 1) * seen.reshape(shape)
            out.append(found)
        return out

    @cached_property
    def prob(self) -> States:
        """Probabilities (rows, size, K) of the states of layers with finitely many states."""
        out, target = {}, self.target
        start = 0
        for name, layer in target.structure.layers.items():
            if layer.unit.support is None:
                continue
            k = len(layer.unit.support)
            units = self.conditioned.free.layers.get(name)
            if units is None:
                out[name] = self._seen(layer)
                continue
            mine = self.units[start : start + k * len(units)].reshape(len(units), k, -1)
            start += k * len(units)
            if len(units) == layer.size:
                out[name] = np.ascontiguousarray(mine.transpose(2, 0, 1))
                continue
            out[name] = self._seen(layer)
            out[name][:, units] = mine.transpose(2, 0, 1)
        for name, on in self.separate.items():
            units = self.conditioned.separate[name]
            out[name][:, units] = np.stack([1.0 - on, on], axis=-1)
        return out

    def _seen(self, layer: Layer) -> Array:
        """Return 1 at the state in the evidence of each unit and 0 elsewhere, (rows, size, K)."""
        assert layer.unit.support is not None
        first = self.target.structure.first_unit[layer.name]
        states = self.target.evidence.states[:, first : first + layer.size]
        # `take` is ten times as fast as an index.
        return one_hot_rows(len(layer.unit.support)).take(states, axis=0)

    def mean(self, name: str) -> Array:
        """Return the means (rows, width) of a layer."""
        if name not in self._means:
            self._means[name] = self._mean(name)
        return self._means[name]

    @cached_property
    def _means(self) -> States:
        """The means that were computed, by layer."""
        return {}

    def _mean(self, name: str) -> Array:
        layer = self.target.structure.layers[name]
        if layer.unit.support is not None:
            support = layer.unit.support.reshape(len(layer.unit.support), -1)
            return layer.flat(self.prob[name] @ support)
        out = self.target.evidence.values[name].copy()
        for term, group, weighted in self._infinite():
            if term.name == name:
                means = weighted.sum(axis=1).swapaxes(0, 1).reshape(len(out), -1)
                out[:, layer.columns(group.units)] = means
        if name in absent_layers(self.given, self.target):
            self._put_absent(name, out)
        return out

    def _put_absent(self, name: str, out: Array) -> None:
        """Fill in the means (rows, width) of units of a layer that are absent from their rows."""
        absent = self.given.free[name] & ~self.target.free[name]
        layer = self.target.structure.layers[name]
        for term, place in self.conditioned.places(ChildTerm):
            for group, mean in term.means(self.target) if term.name == name else ():
                means = (self.group(place, group)[..., None] * mean).sum(axis=1).swapaxes(0, 1)
                columns = layer.columns(group.units)
                mask = layer.components(absent)[:, columns]
                out[:, columns] = np.where(mask, means.reshape(len(out), -1), out[:, columns])

    def _infinite(self) -> Iterator[tuple[InfiniteTerm, Group, Array]]:
        """Yield groups of units with infinitely many values, with means times probabilities.

        These are arrays (n, neighbours' states, rows, width of a unit) of the means given the
        neighbours' states.
        """
        for term, place in self.conditioned.infinite:
            for group, mean in term.means(self.target):
                yield term, group, self.group(place, group)[..., None] * mean

    def marginals(self) -> tuple[States, States]:
        """Return the means of all layers, and the probabilities of states of finite ones."""
        return {name: self.mean(name) for name in self.target.structure.layers}, self.prob

    def products(self, c: Coupling) -> Array:
        """Return E[x_a x_b'] of each row, (rows, width of a, width of b)."""
        s = self.target.structure
        a, b = s.layers[c.a], s.layers[c.b]
        found: Array = np.einsum("ri,rj->rij", self.mean(c.a), self.mean(c.b))
        for first, second, moment in self._joint_moments(c):
            rows, columns = _blocks(a, first, b, second)
            found[:, rows, columns] = moment.swapaxes(0, 1)
            if c.a == c.b:
                found[:, columns, rows] = moment.swapaxes(0, 1)
        if c.a == c.b and a.unit.support is not None:
            put_second_moments(found, a, self.prob[c.a], range(a.size))
        return found

    def _joint_moments(self, c: Coupling) -> Iterator[tuple[Array, Array, Array]]:
        """Yield units i, j (n,) and E[x_i x_j'] (n, rows, width, width) of free coupled pairs."""
        for term, place in self.conditioned.places(PairTerm):
            if term.coupling is not c:
                continue
            one, two = self._support(c.a), self._support(c.b)
            joint = self.marginals_of(place).reshape(len(term.first), len(one), len(two), -1)
            moment = np.einsum("nklr,ki,lj->nrij", joint, one, two, optimize=True)
            yield term.first, term.second, moment
        for child, place in self.conditioned.places(ChildTerm):
            for group in child.groups if c.directed and child.name == c.b else ():
                if group.states:
                    yield from self._child_moments(c, group, self.group(place, group))
        for chain, place in self.conditioned.places(ChainTerm):
            for links, where in chain.joined_places(place.stop) if chain.name == c.b else ():
                if links.arrow is c:
                    yield self._chain_moments(links, self.marginals_of(where))
        for it, group, weighted in self._infinite():
            if it.name in (c.a, c.b):
                yield from self._infinite_moments(c, it, group, weighted)

    def _support(self, name: str) -> Array:
        """Return the values (states, width) of a unit of a layer with finitely many states."""
        support = self.target.structure.layers[name].unit.support
        assert support is not None
        return support.reshape(len(support), -1)

    def _chain_moments(self, links: Links, marginal: Array) -> tuple[Array, Array, Array]:
        """Return the moments of the free children and their free parents that chains join."""
        support = links.support(self.target)
        both = marginal.reshape(len(links.parents), len(support), 2, -1)[:, :, 1]
        moment = np.einsum("nkr,ki->nri", both, support)[..., None]
        return links.parents, links.children, moment

    def _child_moments(
        self, c: Coupling, group: Group, marginal: Array
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Yield the moments of free children and their free parents in an arrow."""
        joint = marginal.reshape(len(marginal), -1, group.states, marginal.shape[-1])
        for axis, n in enumerate(group.near):
            if n.layer == c.a:
                pair, one, two = group.by_state(joint, axis), self._support(c.a), self._support(c.b)
                moment = np.einsum("nklr,ki,lj->nrij", pair, one, two, optimize=True)
                yield n.units, group.units, moment

    def _infinite_moments(
        self, c: Coupling, term: InfiniteTerm, group: Group, weighted: Array
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Yield the moments of infinite units and their free neighbours in a coupling."""
        other = c.b if term.name == c.a else c.a
        for axis, n in enumerate(group.near):
            if n.layer != other:
                continue
            pair = group.by_state(weighted, axis)
            moment = np.einsum("nkri,kj->nrij", pair, self._support(other))
            if term.name == c.a:
                yield group.units, n.units, moment
            else:
                yield n.units, group.units, moment.swapaxes(2, 3)

    def derivatives(self, weights: Array) -> dict[str, Weight]:
        """Return the gradient in all parameters, summed over rows times their weights."""
        if (rows := self.target.model.counted_inputs) is not None:
            return self._tables(weights) | self._input_sums(rows, weights)
        s, out = self.target.structure, dict[str, Weight]()
        scores = {name: self._score(name, weights) for name in s.directed_layers}
        for name, layer in s.layers.items():
            if name in scores:
                out[f"{name}.bias"] = scores[name][0]
            else:
                untabled = layer.components(s.child_tables[name] < 0)
                means = self.mean(name) if untabled.any() else np.zeros((len(weights), 1))
                out[f"{name}.bias"] = weights @ means * untabled
        for c in s.couplings:
            slopes = scores[c.b][1][c.key] if c.directed else self._undirected(c, weights)
            out[f"{c.key}.weight"] = slopes.weight
        return out | self._tables(weights)

    def _undirected(self, c: Coupling, weights: Array) -> _Slopes:
        """Return the sum over rows of weight * E[x_a x_b']."""
        a, b = (self.target.structure.layers[n] for n in (c.a, c.b))
        out = _Slopes(self.target.model.weight(c))
        out.add_products(weights[:, None] * self.mean(c.a), self.mean(c.b))
        for first, second, moment in self._joint_moments(c):
            rows, columns = _blocks(a, first, b, second)
            total = np.einsum("r,nrij->nij", weights, moment)
            out.put(rows, columns, total)
            if c.a == c.b:
                out.put(columns, rows, total)
        return out

    def _score(self, name: str, weights: Array) -> tuple[Array, dict[str, _Slopes]]:
        """Return the expected scores of the bias of a directed layer, and of each arrow into it."""
        s, target = self.target.structure, self.target
        layer, into = s.layers[name], s.arrows_into[name]
        arrows = {c.key: _Slopes(target.model.weight(c)) for c in into}
        # Expected scores times weights, and those of the children of absent terms.
        scores, absent = np.zeros((2, target.rows, layer.width))
        for term, place in self.conditioned.places(ChildTerm):
            for group, score in term.scores(target) if term.name == name else ():
                # (children, parents' states, child's states or 1, rows, components)
                marginal = self.group(place, group).reshape(*score.shape[:3], -1, 1)
                # The score of a state of probability 0 may be infinite, and counts as 0.
                counted = np.where(marginal > 0, score, 0.0)
                heavy = (marginal * counted).sum(axis=2) * weights[:, None]
                by_row = heavy.sum(axis=1).swapaxes(0, 1)
                scores[:, layer.columns(group.units)] = by_row.reshape(target.rows, -1)
                for c in into:
                    self._add_parents(c, group, heavy.sum(axis=2), arrows[c.key])
        for one, _ in self.conditioned.places(AbsentTerm):
            if one.name == name:
                absent[:, one.children] = -weights[:, None]
        for chain, place in self.conditioned.places(ChainTerm):
            if chain.name == name:
                scores[:, chain.children] = self._chain_score(chain, place.start, weights, arrows)
        for c in into:
            # Free parents have the value 0 in the evidence, so that observed ones alone count.
            arrows[c.key].add_products(target.evidence.values[c.a], scores)
            if absent.any():
                arrows[c.key].add_products(self.mean(c.a), absent)
        return (scores + absent).sum(axis=0), arrows

    def _input_sums(self, rows: InputRows, weights: Array) -> dict[str, Weight]:
        """Return the sums of rows of inputs over observed children, by parameter."""
        target, total, theta = self.target, rows.zeros(), shared_numbers(self.target.model)
        for term, place in self.conditioned.places(ChildTerm):
            if term.name not in rows.layers:
                continue
            own, layer = rows.layers[term.name], target.structure.layers[term.name]
            values = layer.shaped(target.evidence.values[term.name])
            # Neither free, nor absent, nor set by do().
            seen = ~(target.free[term.name] | target.intervened[term.name])
            for group in parts_of(term.groups, target.rows):
                at, x = group.units, values[:, group.units].swapaxes(0, 1)
                heavy = np.where(seen[:, at].T, weights, 0.0)[:, None] * self.group(place, group)
                for k in np.unique(own.states[at]).tolist():
                    some = np.flatnonzero(own.states[at] == k)
                    q, places = heavy[some], own.of(at[some], k)
                    if not group.near:
                        above = target.states[:, own.parent[at[some]]].T
                        q = q * (above[:, None] == np.arange(k)[:, None])
                    zeta = theta[places[..., None] + np.arange(own.unit.width)]
                    zeta = zeta if own.unit.width > 1 else zeta[..., 0]
                    add_sums(total, places, own.unit.deviations(x[some], zeta, q))
        return dict(rows.by_parameter(total, target.model.params))

    def _chain_score(
        self, chain: ChainTerm, first: int, weights: Array, arrows: dict[str, _Slopes]
    ) -> Array:
        """Return the expected scores (rows, children) of leaks, and add those of links to `arrows`.

        The derivative of log Z in a parameter is the expected derivative of the log of its table.
        """
        target, count = self.target, len(chain.children)
        found = self.marginals_of(slice(first, first + count)).reshape(count, 2, -1)
        leaks = weights * _slope(chain.leaks(target).T, found[:, 1], found[:, 0])
        for links, place in chain.places(first):
            steps, support = links.steps(target), links.support(target)
            joint = self.marginals_of(place).reshape(len(steps), 2, steps.shape[1], 2, -1)
            slope = _slope(steps[..., None], joint[:, 0, :, 1], joint[:, 0, :, 0]) @ weights
            layer = target.structure.layers[links.arrow.a]
            rows = layer.columns(links.parents).reshape(len(steps), -1)
            arrows[links.arrow.key].add(rows, links.children[:, None], slope @ support)
        return leaks.T

    def _add_parents(self, c: Coupling, group: Group, heavy: Array, out: _Slopes) -> None:
        """Add E[x_parent score] of the free parents of a group of children to the slopes.

        `heavy` (n, parents' states, width) is the sum over rows of the score times probability and
        weight.
        """
        layer = self.target.structure.layers[c.a]
        for axis, n in enumerate(group.near):
            if n.layer == c.a:
                rows, columns = _blocks(layer, n.units, group.layer, group.units)
                out.add(rows, columns, self._support(c.a).T @ group.by_state(heavy, axis))

    def _idle(self, tables: Array) -> Array | None:
        """Return the mask (rows or 1, tables) of conditionals without counts; None without any.

        They are those of units that do() sets, and of barren units: these would have the counts of
        their parents times the present probabilities, which moves nothing.
        """
        idle = self.given.idle
        if idle is None:
            return None
        child = self.target.structure.table_index.child[tables]
        mask = idle[:, child] & (child >= 0)
        return mask if mask.any() else None

    def _tables(self, weights: Array) -> dict[str, Array]:
        """Return the gradient of all tables."""
        s, target = self.target.structure, self.target
        if not s.tables:
            return {}
        counts = np.zeros(len(target.model.table_entries))
        tables = self.conditioned.counted.copy()
        for term, place in self.conditioned.tabled:
            found, idle = self.marginals_of(place), self._idle(term.tables)
            term.add(target, counts, found, weights, idle)
            tables[term.tables] = False
        # All units of the other tables are observed.
        whole = np.flatnonzero(tables)
        if len(whole):
            places, heavy = s.table_index.entries_of(target.states, whole), weights[:, None]
            if (idle := self._idle(whole)) is not None:
                heavy = np.where(idle, 0.0, heavy)
            add_at(counts, places, heavy)
        return target.model.table_slopes(counts)


def absent_layers(given: Target, target: Target) -> list[str]:
    """Return the layers with infinitely many values of which units are absent from some rows."""
    layers = target.structure.layers
    return [
        name
        for name, free in given.free.items()
        if layers[name].unit.support is None and (free & ~target.free[name]).any()
    ]


def _blocks(a: Layer, first: Array, b: Layer, second: Array) -> tuple[Array, Array]:
    """Return rows (n, width, 1) and columns (n, 1, width) of pairs of units in a weight."""
    rows, columns = a.columns(first), b.columns(second)
    return rows.reshape(len(first), -1, 1), columns.reshape(len(second), 1, -1)


def _slope(z: Array, on: Array, off: Array) -> Array:
    """Return E[d/dz]: of log(1 - e^-z) with probability `on`, and of -z with probability `off`."""
    # The slope of a state of probability 0 may be infinite, and counts as 0.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.where(on > 0, on / np.expm1(z), 0.0) - off)


class _Slopes:
    """The gradient in a weight, which for a sparse weight has its stored entries only."""

    def __init__(self, weight: Weight) -> None:
        self.like = weight
        self.numbers = np.zeros(weight.nnz if is_sparse(weight) else weight.shape)

    @property
    def weight(self) -> Weight:
        """The gradient in the form of the weight."""
        return like(self.like, self.numbers)

    @cached_property
    def _places(self) -> Weight:
        """One more than the place of each stored entry in `numbers`, and 0 elsewhere."""
        return like(self.like, np.arange(1.0, self.like.nnz + 1))

    def add_products(self, xa: Array, xb: Array) -> None:
        """Add the sum over rows of x_a x_b'."""
        found = outer(self.like, xa, xb)
        self.numbers += found.data if is_sparse(found) else found

    def add(self, rows: Array, columns: Array, values: Array) -> None:
        """Add values at rows and columns, which are all different pairs."""
        places, some = self._stored(rows, columns, values)
        self.numbers[places] += some

    def put(self, rows: Array, columns: Array, values: Array) -> None:
        """Replace the numbers at rows and columns."""
        places, some = self._stored(rows, columns, values)
        self.numbers[places] = some

    def _stored(self, rows: Array, columns: Array, values: Array) -> tuple[Any, Array]:
        """Return an index of `numbers` for rows and columns, and the values that belong there."""
        if not is_sparse(self.like):
            return (rows, columns), values
        at = np.broadcast_arrays(rows, columns)
        # Copies, because older versions of scipy set flags of the indices.
        found = np.asarray(self._places[at[0].flatten(), at[1].flatten()]).astype(np.int64)
        return found[found > 0] - 1, values.reshape(-1)[found > 0]
