"""Means, pairs and the gradient of one evidence pattern, from marginals of units and factors.

If one unit of a pair is observed, the two units are independent given the evidence, and E[x_a x_b']
is the product of their means. A pair of free units has a factor of its own. The expected score of a
conditional follows from the marginal of the child's factor, and the mean of a unit with infinitely
many values from the marginal of its factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.numerics import add_at
from pgmengine.base.types import Array, States, Weight
from pgmengine.infer.exact.expectations import Expectations, put_second_moments
from pgmengine.infer.exact.junction_tree.causal_independence import AbsentTerm, ChainTerm, Links
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, JointTerm
from pgmengine.infer.exact.junction_tree.factors import PairTerm
from pgmengine.infer.exact.junction_tree.marginalised import ChildTerm, Field, InfiniteTerm
from pgmengine.model.couplings import Coupling
from pgmengine.model.layer import Layer
from pgmengine.model.weights import is_sparse, like
from pgmengine.units.base import one_hot_rows


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
        states = self.target.states[:, first : first + layer.size]
        # `take` is ten times as fast as an index.
        return one_hot_rows(len(layer.unit.support)).take(states, axis=0)

    @cached_property
    def mean(self) -> States:
        """Means (rows, width) of all layers."""
        out = {}
        for name, layer in self.target.structure.layers.items():
            if layer.unit.support is None:
                out[name] = self.target.evidence.values[name].copy()
            else:
                support = layer.unit.support.reshape(len(layer.unit.support), -1)
                out[name] = layer.flat(self.prob[name] @ support)
        for term, f, marginal in self._infinite():
            layer = self.target.structure.layers[term.name]
            mean = layer.unit.mean(term.shaped(self.target, f))
            out[term.name][:, f.unit] = (marginal * mean).sum(axis=0)
        return out

    def _infinite(self) -> Iterator[tuple[InfiniteTerm, Field, Array]]:
        """Yield units with infinitely many values, and the marginal of the neighbours of each."""
        for term, place in self.conditioned.infinite:
            for i, f in enumerate(term.fields):
                yield term, f, self.factor(place.start + i)

    def marginals(self) -> tuple[States, States]:
        """Return the means of all layers, and the probabilities of states of finite ones."""
        return self.mean, self.prob

    def products(self, c: Coupling) -> Array:
        """Return E[x_a x_b'] of each row, (rows, width of a, width of b)."""
        s = self.target.structure
        a, b = s.layers[c.a], s.layers[c.b]
        found: Array = np.einsum("ri,rj->rij", self.mean[c.a], self.mean[c.b])
        for i, j, moment in self._joint_moments(c):
            rows, columns = a.columns(np.array([i])), b.columns(np.array([j]))
            found[:, rows[:, None], columns] = moment
            if c.a == c.b:
                found[:, columns[:, None], rows] = moment.swapaxes(1, 2)
        if c.a == c.b and a.unit.support is not None:
            put_second_moments(found, a, self.prob[c.a], range(a.size))
        return found

    def _joint_moments(self, c: Coupling) -> Iterator[tuple[int, int, Array]]:
        """Yield (i, j, E[x_i x_j'] (rows, width, width)) of the free pairs of a coupling."""
        s = self.target.structure
        for term, place in self.conditioned.places(PairTerm):
            if term.coupling is not c:
                continue
            one, two = (s.layers[n].unit.support for n in (c.a, c.b))
            assert one is not None and two is not None
            one, two = (v.reshape(len(v), -1) for v in (one, two))
            joint = self.marginals_of(place).reshape(len(term.first), len(one), len(two), -1)
            moment = np.einsum("nklr,ki,lj->nrij", joint, one, two, optimize=True)
            yield from zip(term.first.tolist(), term.second.tolist(), moment, strict=True)
        for child, place in self.conditioned.places(ChildTerm):
            for i, f in enumerate(child.fields if c.directed and child.name == c.b else ()):
                if child.free[f.unit]:
                    yield from self._child_moments(c, f, self.factor(place.start + i))
        for chain, place in self.conditioned.places(ChainTerm):
            for links, where in chain.joined_places(place.stop) if chain.name == c.b else ():
                if links.arrow is c:
                    yield from self._chain_moments(links, self.marginals_of(where))
        for it, f, marginal in self._infinite():
            if it.name in (c.a, c.b):
                yield from self._infinite_moments(c, it, f, marginal)

    def _chain_moments(self, links: Links, marginal: Array) -> Iterator[tuple[int, int, Array]]:
        """Yield the moments of the free children and their free parents that chains join."""
        support = links.support(self.target)
        both = marginal.reshape(len(links.parents), len(support), 2, -1)[:, :, 1]
        moment = np.einsum("nkr,ki->nri", both, support)[..., None]
        yield from zip(links.parents.tolist(), links.children.tolist(), moment, strict=True)

    def _child_moments(
        self, c: Coupling, f: Field, marginal: Array
    ) -> Iterator[tuple[int, int, Array]]:
        """Yield the moments of a free child and its free parents in an arrow."""
        s = self.target.structure
        one, two = (s.layers[n].unit.support for n in (c.a, c.b))
        assert two is not None
        joint = marginal.reshape(*(n.states for n in f.near), len(two), -1)
        for axis, n in enumerate(f.near):
            if n.layer == c.a and one is not None:
                others = tuple(i for i in range(len(f.near)) if i != axis)
                pair = joint.sum(axis=others)
                one, two = (v.reshape(len(v), -1) for v in (one, two))
                yield n.unit, f.unit, np.einsum("klr,ki,lj->rij", pair, one, two)

    def _infinite_moments(
        self, c: Coupling, term: InfiniteTerm, f: Field, marginal: Array
    ) -> Iterator[tuple[int, int, Array]]:
        """Yield the moments of an infinite unit and its free neighbours in a coupling."""
        layer = self.target.structure.layers[term.name]
        weighted = marginal * layer.unit.mean(term.shaped(self.target, f))
        other = c.b if term.name == c.a else c.a
        shape = [n.states for n in f.near]
        for axis, n in enumerate(f.near):
            if n.layer != other:
                continue
            support = self.target.structure.layers[other].unit.support
            assert support is not None
            parts = np.moveaxis(weighted.reshape(*shape, -1), axis, 0)
            by_state = parts.reshape(n.states, -1, weighted.shape[1]).sum(axis=1)
            moment = np.einsum("kr,kj->rj", by_state, support.reshape(n.states, -1))
            if term.name == c.a:
                yield f.unit, n.unit, moment[:, None, :]
            else:
                yield n.unit, f.unit, moment[:, :, None]

    def derivatives(self, weights: Array) -> dict[str, Weight]:
        """Return the gradient in all parameters, summed over rows times their weights."""
        s, out = self.target.structure, dict[str, Weight]()
        scores = {name: self._score(name, weights) for name in s.directed_layers}
        for name, layer in s.layers.items():
            if name in scores:
                out[f"{name}.bias"] = scores[name][0]
            else:
                untabled = layer.components(s.child_tables[name] < 0)
                out[f"{name}.bias"] = weights @ self.mean[name] * untabled
        for c in s.couplings:
            found = scores[c.b][1][c.key] if c.directed else self._undirected(c, weights)
            out[f"{c.key}.weight"] = _like(self.target.model.weight(c), found)
        return out | self._tables(weights)

    def _undirected(self, c: Coupling, weights: Array) -> Array:
        """Return the sum over rows of weight * E[x_a x_b'], dense."""
        s = self.target.structure
        a, b = s.layers[c.a], s.layers[c.b]
        found = (weights[:, None] * self.mean[c.a]).T @ self.mean[c.b]
        for i, j, moment in self._joint_moments(c):
            rows, columns = a.columns(np.array([i])), b.columns(np.array([j]))
            total = np.tensordot(weights, moment, axes=1)
            found[rows[:, None], columns] = total
            if c.a == c.b:
                found[columns[:, None], rows] = total.T
        return found

    def _score(self, name: str, weights: Array) -> tuple[Array, dict[str, Array]]:
        """Return the expected scores of the bias of a directed layer, and of each arrow into it."""
        s, target = self.target.structure, self.target
        layer = s.layers[name]
        bias = np.zeros(layer.width)
        arrows = {c.key: np.zeros((s.layers[c.a].width, layer.width)) for c in s.arrows_into[name]}
        for term, place in self.conditioned.places(ChildTerm):
            for i, f in enumerate(term.fields if term.name == name else ()):
                columns = layer.columns(np.array([f.unit]))
                score = term.score(target, f)
                # (parents' states, child's states or 1, rows, width)
                marginal = self.factor(place.start + i).reshape(*score.shape[:2], -1, 1)
                # The score of a state of probability 0 may be infinite, and counts as 0.
                counted = np.where(marginal > 0, score, 0.0)
                heavy = (marginal * counted).sum(axis=1) * weights[:, None]
                bias[columns] += heavy.sum(axis=(0, 1))
                for c in s.arrows_into[name]:
                    arrows[c.key][:, columns] += self._with_parents(c, f, heavy)
        for absent, _ in self.conditioned.places(AbsentTerm):
            if absent.name == name:
                bias[absent.children] -= weights.sum()
                for c in s.arrows_into[name]:
                    found = weights @ self.mean[c.a]
                    arrows[c.key][:, absent.children] -= found[:, None]
        for chain, place in self.conditioned.places(ChainTerm):
            if chain.name == name:
                self._chain_score(chain, place.start, weights, bias, arrows)
        return bias, arrows

    def _chain_score(
        self, chain: ChainTerm, first: int, weights: Array, bias: Array, arrows: dict[str, Array]
    ) -> None:
        """Add the expected scores of chains: of leaks to `bias`, and of links to `arrows`.

        The derivative of log Z in a parameter is the expected derivative of the log of its table.
        """
        target, count = self.target, len(chain.children)
        found = self.marginals_of(slice(first, first + count)).reshape(count, 2, -1)
        slope = weights * _slope(chain.leaks(target).T, found[:, 1], found[:, 0])
        bias[chain.children] += slope.sum(axis=1)
        for c in target.structure.arrows_into[chain.name]:
            # Free parents have the value 0 in the evidence, so that observed ones alone count.
            seen = target.evidence.values[c.a]
            arrows[c.key][:, chain.children] += seen.T @ slope.T
        for links, place in chain.places(first):
            steps, support = links.steps(target), links.support(target)
            joint = self.marginals_of(place).reshape(len(steps), 2, steps.shape[1], 2, -1)
            slope = _slope(steps[..., None], joint[:, 0, :, 1], joint[:, 0, :, 0]) @ weights
            layer = target.structure.layers[links.arrow.a]
            rows = layer.columns(links.parents).reshape(len(steps), -1)
            arrows[links.arrow.key][rows, links.children[:, None]] += slope @ support

    def _with_parents(self, c: Coupling, f: Field, heavy: Array) -> Array:
        """Return E[x_parent score] (width of parents, width) of one child, summed over rows.

        `heavy` (parents' states, rows, width) is the score times probability and weight.
        """
        layer = self.target.structure.layers[c.a]
        # Parents that are not in the factor are observed.
        found = self.target.evidence.values[c.a].T @ heavy.sum(axis=0)
        shape = [n.states for n in f.near]
        for axis, n in enumerate(f.near):
            if n.layer != c.a:
                continue
            support = layer.unit.support
            assert support is not None
            parts = np.moveaxis(heavy.reshape(*shape, *heavy.shape[1:]), axis, 0)
            by_state = parts.reshape(n.states, -1, heavy.shape[2]).sum(axis=1)
            found[layer.columns(np.array([n.unit]))] = support.reshape(n.states, -1).T @ by_state
        return np.asarray(found)

    def _tables(self, weights: Array) -> dict[str, Array]:
        """Return the gradient of all tables."""
        s, target = self.target.structure, self.target
        if not s.tables:
            return {}
        counts = np.zeros(len(target.model.table_entries))
        tables = self.conditioned.counted.copy()
        for term, place in self.conditioned.tabled:
            term.add(target, counts, self.marginals_of(place), weights)
            tables[term.tables] = False
        # All units of the other tables are observed.
        whole = np.flatnonzero(tables)
        if len(whole):
            add_at(counts, s.table_index.entries_of(target.states, whole), weights[:, None])
        return target.model.table_slopes(counts)


def _slope(z: Array, on: Array, off: Array) -> Array:
    """Return E[d/dz]: of log(1 - e^-z) with probability `on`, and of -z with probability `off`."""
    # The slope of a state of probability 0 may be infinite, and counts as 0.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.where(on > 0, on / np.expm1(z), 0.0) - off)


def _like(weight: Weight, found: Array) -> Weight:
    """Return a dense matrix at the stored entries of a sparse weight, or as it is."""
    if not is_sparse(weight):
        return found
    entries = weight.tocoo()
    return like(weight, found[entries.row, entries.col])
