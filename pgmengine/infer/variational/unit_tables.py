"""Mean field with a table of probabilities for each unit.

It is used for free units with directed children, and for free units in tables of the model.

    log Z >= E_Q[linear part] + H(Q) - sum over children of F(xi)
    F(xi) = xi E[z] + log sum_k h_k E_Q[e^((y_k - xi) z)]

holds for every xi (Saul, Jaakkola and Jordan 1996, eq. 20, here for any finite unit). Tables of the
model add E_Q[log T], which is exact (expected.h). Free units with infinitely many values and
undirected couplings have factors of their own (infinite_units.py). Barren units are left out,
because their conditionals sum to one. The compiled rounds are in belief.h; each lane of their
vectors is a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from pgmengine import _kernels
from pgmengine._kernels import LANES
from pgmengine.base.types import Array, States, Weight
from pgmengine.base.work.cache import Cache, remembered
from pgmengine.base.work.threads import parts
from pgmengine.evidence.target import Target, times
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.variational.conditions import constant_input
from pgmengine.infer.variational.infinite_units import Infinite
from pgmengine.infer.variational.packed_graph import SOURCES
from pgmengine.infer.variational.pattern_facts import (
    Facts,
    by_values,
    facts_of,
    hard_units,
    repeated,
)
from pgmengine.infer.variational.support import move_to_possible
from pgmengine.model.graph.unit_graph import Inputs
from pgmengine.model.parameters import Parameters

# Numbers of Newton steps in xi: in each round, and for barren units after the last round.
NEWTON_STEPS = 2
LAST_NEWTON_STEPS = 12

# Smallest number of edges times blocks for which another thread pays.
MIN_EDGES_PER_THREAD = 2_000


@dataclass(frozen=True, eq=False)
class Constants:
    """Constants that all questions with equal facts about one model have in common.

    Attributes
    ----------
    facts : the facts about the evidence pattern.
    weights : the compiled graph with the numbers of the model.
    numbers : the arrays from which rounds start, one after the other, as far as they are equal in
        all rows.
    hard : (units,), whether a unit is in a table with an entry of 0; None if there are no such
        tables.
    """

    facts: Facts
    weights: _kernels.Weights
    numbers: Array
    hard: Array | None


@remembered
def _constants(model: Parameters) -> Cache[Constants]:
    """Return the constants of a model that are kept for further questions."""
    return Cache(most=8)


@remembered
def _compiled(model: Parameters) -> Cache[_kernels.Weights]:
    """Return the compiled graphs of a model, which many evidence patterns share."""
    return Cache(most=2)


@lru_cache(maxsize=64)
def _step(states: int, size: float, seed: int) -> Array:
    """Return factors of probabilities that make a small step, the same ones at every call."""
    return np.exp(np.random.default_rng(seed).normal(0.0, size, states))


class Belief:
    """A table of probabilities for every free unit, and xi for every child, in each row.

    Parameters
    ----------
    target : the model under evidence.
    xi : None to minimise F; or a fixed place of xi, from 0 (the smallest value of a child) to 1
        (the largest value). For Categorical(k) children it is the point xi / k in each component.
    start : the `state` of another fixed point, to start from.
    rng : random numbers for random tables at the start; none by default.
    search : whether a start whose bound is -inf is moved to possible states.
    step : distance of the start from the reference, in the same direction in all rows, so that the
        rounds do not stay at a saddle of the bound (saddles.py).
    """

    def __init__(
        self,
        target: Target,
        xi: float | None = None,
        start: States | None = None,
        rng: np.random.Generator | None = None,
        search: bool = True,
        step: float = 0.0,
    ) -> None:
        self.target, self.xi = target, xi
        self.steps = 0 if xi is not None else NEWTON_STEPS
        # The number of blocks of LANES rows.
        self.blocks = -(-target.rows // LANES)
        # beta and references change the numbers from which rounds start.
        plain = target.untempered and not target.reference
        make = partial(self._constants, plain)
        if plain and not target.soft and target.pattern.alike and not by_values(target.structure):
            key = target.pattern.first, xi, min(target.rows, LANES)
            self.constants = _constants(target.model).recall(key, make)
        else:
            self.constants = make()
        self.facts = self.constants.facts
        self.net, self.hidden = self.facts.net, self.facts.hidden
        self.parts = parts(self.net.work * self.blocks, MIN_EDGES_PER_THREAD)
        self.infinite, factor = Infinite(target, self.facts.infinite, start, rng), None
        if step:
            noise = np.random.default_rng(0)
            self.infinite.mean |= self.infinite.nudged(step, noise)
            factor = np.exp(noise.normal(0.0, step, self.net.arrays["states"]))
        self.given = self._given(plain)
        if start is not None or rng is not None or not self._starts_as_given(plain):
            self.given["q"] = self._first(start, rng)
        floor = 0.0 if start is not None and target.structure.tables else 1e-299
        self.routine = _kernels.Belief(self.constants.weights, target.rows)
        self._refill(factor, floor)
        if search and self.constants.hard is not None:
            move_to_possible(self, rng)

    def _refill(self, factor: Array | None = None, floor: float = 0.0) -> None:
        """Fill the compiled arrays with what is given; see start in kernels.pyx."""
        self._bound: Array | None = None
        given = {SOURCES.index(n): np.ascontiguousarray(v) for n, v in self.given.items()}
        self.routine.start(self.constants.numbers, given, factor, floor, self.parts)

    def beside(self, size: float, seed: int) -> Belief:
        """Return Q of the same rows at a small distance, in the same direction in all rows.

        Probabilities of 0 stay 0, so that Q stays on possible states.
        """
        if self.infinite.mean:
            return Belief(self.target, self.xi, self.nudged(size, seed))
        # The module copy takes ten times as long.
        other = object.__new__(Belief)
        other.__dict__.update(self.__dict__)
        other.given, other._bound = dict(self.given), None
        factor = _step(self.net.arrays["states"], size, seed)
        floor = 0.0 if self.target.structure.tables else 1e-299
        other.routine = self.routine.beside(factor, floor, self.parts)
        return other

    @property
    def mean(self) -> States:
        """Means of all units, (rows, width)."""
        return {name: self._mean(name) for name in self.target.structure.layers}

    @property
    def state(self) -> States:
        """The snapshot: tables (rows, size * K), and means of units with infinitely many values."""
        q = self._get("q")
        tables = {name: q[:, g.all_states] for name, g in self.net.units.items()}
        return tables | self.infinite.mean

    def nudged(self, size: float, seed: int) -> States:
        """Return a snapshot at a small distance from Q, in the same direction in all rows.

        Probabilities of 0 stay 0, so that Q stays on possible states.
        """
        rng, near = np.random.default_rng(seed), dict[str, Array]()
        for name in self.net.units:
            q, free = self.prob(name), self.target.free[name][..., None]
            moved = q * np.exp(rng.normal(0.0, size, (1, *q.shape[1:])))
            moved = np.where(free, moved / moved.sum(axis=-1, keepdims=True), q)
            near[name] = moved.reshape(self.target.rows, -1)
        return near | self.infinite.nudged(size, rng)

    def settle(self, updates: int, tolerance: float, least: float = -np.inf) -> tuple[int, float]:
        """Make rounds until no probability changes by more than the tolerance.

        Logarithms of table entries below `least` count as `least`. Returns the number of rounds,
        and the last change.
        """
        rounds, change, moved = 0, 0.0, np.inf
        self._bound = None
        while moved > tolerance and rounds < updates:
            made, change = self.routine.settle(
                updates - rounds, tolerance, self.steps, least, self.parts
            )
            rounds += made
            moved = self._move_infinite()
        if len(self.facts.follow):
            self.routine.forward(self.facts.follow, LAST_NEWTON_STEPS, self.parts)
        if len(self.facts.follow_tables):
            self.routine.forward_tables(self.facts.follow_tables, self.parts)
        return rounds, max(moved, change)

    def bound(self) -> Array:
        """Return the lower bound of log Z, (rows,)."""
        if self._bound is None:
            self._bound = self.routine.value(False, self.parts) + self._own_terms()
        return self._bound

    def _own_terms(self) -> Array | float:
        """Return the terms of the bound that no table of probabilities changes, (rows,)."""
        target, s, facts = self.target, self.target.structure, self.facts
        if not (facts.with_own_terms or facts.outside_couplings or target.soft):
            return 0.0
        outside = {n for n in target.soft if n not in self.net.units}
        names = dict.fromkeys((*facts.with_own_terms, *outside))
        x, (total, power) = {n: self._mean(n) for n in names}, np.zeros((2, target.rows))
        for name in names:
            layer, free = s.layers[name], target.free[name]
            if not free.all():
                base = layer.unit.log_h(layer.shaped(target.evidence.values[name]))
                total += np.where(free | target.intervened[name], 0.0, base).sum(axis=1)
            if name not in self.net.units:
                field = target.soft.get(name, 0.0) + (
                    0.0 if name in s.directed_layers else target.model.bias(name)
                )
                power += (x[name] * field).sum(axis=1)
            if name in s.directed_layers and name not in self.net.terms:
                total += self._conditional(name)
        for c in facts.outside_couplings:
            power += c.log_density(target.model.weight(c), self._mean(c.a), self._mean(c.b))
        return np.asarray(total + times(target.beta, power) + self.infinite.bound())

    def possible(self) -> Array:
        """Return whether Q gives no probability to entries of 0 in tables, (rows,) bool."""
        if self.constants.hard is None:
            return np.ones(self.target.rows, dtype=bool)
        return np.isfinite(self.routine.value(True, self.parts))

    def again(self, target: Target, rng: np.random.Generator | None) -> Belief:
        """Return the first Q of other rows; its bound may be -inf."""
        return Belief(target, self.xi, rng=rng, search=False)

    def likely(self) -> States:
        """Return the most probable states under Q, layer -> (rows, width)."""
        x = self.target.evidence.values | self.infinite.mean
        for name in self.net.units:
            layer = self.target.structure.layers[name]
            assert layer.unit.support is not None
            x[name] = layer.flat(layer.unit.support[self.prob(name).argmax(axis=-1)])
        return x

    def place_at(self, x: States, rows: Array) -> None:
        """Put Q of the free units in tables with zeros on single states, in some rows.

        x is layer -> (rows, width).
        """
        if not len(rows) or self.constants.hard is None:
            return
        hard, q = self.constants.hard, self._get("q")
        for name, g in self.net.units.items():
            layer = self.target.structure.layers[name]
            moves = (self.target.free[name] & hard[g.items])[rows][..., None]
            own = q[rows, g.all_states].reshape(len(rows), layer.size, -1)
            own = np.where(moves, layer.one_hot(x[name]), own)
            q[rows, g.all_states] = own.reshape(len(rows), -1)
        self.given["q"] = q
        self._refill()

    def prob(self, name: str) -> Array:
        """Return the state probabilities (rows, size, K)."""
        layer, target = self.target.structure.layers[name], self.target
        if name in self.net.units:
            return self._get("q", self.net.units[name].all_states).reshape(
                target.rows, layer.size, -1
            )
        return layer.one_hot(target.evidence.values[name])

    def gradient(self, weights: Array) -> dict[str, Weight]:
        """Return the gradient of the bound at Q and xi, summed over rows with weights (rows,)."""
        target, s, x = self.target, self.target.structure, self.mean
        out, weights = target.gradient(x, weights, tables=False), target.weighed(weights)
        for name in self.net.terms:
            slope = weights[:, None] * self._slope(name)
            out[f"{name}.bias"] = slope.sum(axis=0).reshape(s.layers[name].bias_shape)
            for c in s.arrows_into[name]:
                if c.a not in self.net.units:
                    out[f"{c.key}.weight"] = c.statistics(target.model.weight(c), x[c.a], slope)
        found = np.zeros(self.net.weight_count)
        # If a child has several terms, they add to the same weights.
        alone = all(g.sets == 1 for g in self.net.terms.values())
        self.routine.learn(self._row_weights(weights), found, self.parts if alone else 1)
        for e in self.net.edges:
            out[f"{e.arrow.key}.weight"] = e.gathered(target.model.weight(e.arrow), found)
        counts = np.zeros(len(target.model.table_entries))
        self.routine.count_tables(self._row_weights(weights), counts, self.parts)
        return out | target.model.table_slopes(counts)

    def add_slopes(self, weights: Array, total: Accumulator) -> None:
        """Add `gradient` to the sum of a phase."""
        total.arrays(self.gradient(weights), 1.0, float(weights.sum()))

    def _row_weights(self, weights: Array) -> Array:
        """Return weights (rows,) as (blocks, 1, lanes); lanes without a row have 0."""
        out = np.zeros(self.blocks * LANES)
        out[: len(weights)] = weights
        return out.reshape(self.blocks, 1, LANES)

    def entries(self) -> float:
        """Return the number of entries of tables that a round reads."""
        index = self.target.structure.table_index
        return float(index.axis_entries.sum()) * self.blocks

    def _put(self, name: str, value: Array) -> None:
        """Replace what is given, (rows, items), also in the compiled arrays."""
        self.given[name] = value
        rows = np.arange(self.blocks * LANES).reshape(self.blocks, LANES)
        self._array(name)[:] = value[np.minimum(rows, len(value) - 1)].transpose(0, 2, 1)

    def _array(self, name: str) -> Array:
        """Return an array of the rounds, (blocks, items, lanes)."""
        place, each = self.net.places[name], self.blocks * LANES
        found: Array = self.routine.numbers[place.start * each : place.stop * each]
        return found.reshape(self.blocks, place.stop - place.start, LANES)

    def _get(self, name: str, where: slice = slice(None)) -> Array:
        """Return a copy of numbers of the rounds, (rows, items)."""
        if self.target.rows == 1:
            place = self.net.places[name]
            one = self.routine.numbers[place.start * LANES : place.stop * LANES : LANES]
            return np.array(one[None, where])
        found = self._array(name)[:, where]
        rows = np.array(found.transpose(0, 2, 1), order="C")
        return rows.reshape(self.blocks * LANES, found.shape[1])[: self.target.rows]

    def _mean(self, name: str) -> Array:
        """Return means (rows, width); means of infinite barren units follow from their parents."""
        target, layer = self.target, self.target.structure.layers[name]
        if name in self.net.units:
            return self._get("mean", self.net.units[name].comps)
        if name in self.infinite.mean:
            return self.infinite.mean[name]
        if not target.free[name].any():
            return target.evidence.values[name]
        arrows = target.structure.arrows_into[name]
        zeta = np.zeros((target.rows, layer.width)) + target.model.bias(name)
        zeta += sum(self._mean(c.a) @ target.model.weight(c) for c in arrows if c.a != name)
        inside = Inputs(target.model, name)
        turns = target.model.generations[name] if inside.weights else [np.arange(layer.size)]
        free = target.components(name, target.free[name]).T
        x = np.array(target.evidence.values[name].T, order="C")
        for units in turns:
            columns = layer.columns(units)
            inputs = zeta.T[columns]
            inside.add(x, columns, inputs)
            x[columns] = np.where(free[columns], layer.unit.mean(inputs), x[columns])
        return np.ascontiguousarray(x.T)

    def _constants(self, plain: bool) -> Constants:
        """Return the constants; without `plain`, beta and reference count, and rows have fields."""
        model, facts = self.target.model, facts_of(self.target)
        net, by_term = facts.net, facts.net.rounds_by_term(self.target.rows)
        hard = hard_units(model, net.arrays)
        numbers = facts.start(self.xi).copy()
        if plain and not facts.inputs_from_outside:
            for name, value in self._fields(facts, {}).items():
                numbers[net.places[name]] = value[0]

        def compiled() -> _kernels.Weights:
            weights = net.weights(model)
            return _kernels.Weights(
                net.graph,
                net.by_term if by_term else None,
                net.link_weights(model),
                net.edge_numbers(weights, False, growth=not by_term),
                net.edge_numbers(weights, True) if by_term else None,
                np.ascontiguousarray(model.table_terms),
                hard["hard"],
                hard["cut"],
            )

        graph = _compiled(model).recall((net, by_term), compiled)
        return Constants(facts, graph, numbers, hard["hard"] > 0 if hard["hard"].any() else None)

    def _given(self, plain: bool) -> dict[str, Array]:
        """Return the arrays that depend on the rows, or on what else is not constant."""
        target, facts, net = self.target, self.facts, self.net
        given = {name: value for name, value in facts.arrays.items() if len(value) > 1}
        if not plain:
            given["beta"] = target.beta[:, None]
        if not plain or facts.inputs_from_outside or target.soft:
            given |= self._fields(facts, target.soft)
        complement = [
            n for n in facts.outside_terms if not target.structure.layers[n].unit.canonical
        ]
        if facts.outside_terms:
            # Observed children give the factors of their inputs; the tables of others set them.
            given["pull"] = np.zeros((target.rows, net.arrays["term_comps"]))
        if len(facts.arrays["live"]) > 1 or complement:
            given["on"] = (
                np.zeros((target.rows, len(net.arrays["term_kind"]))) + facts.arrays["live"]
            )
        for name in facts.outside_terms:
            g, x, live = net.terms[name], target.evidence.values[name], facts.live[name]
            if name in complement:
                # The terms of a noisy-or unit count if x is 1; -(1 - x) z is added separately.
                given["on"][:, g.items] = repeated(live * x, g)
                x = x - 1.0
            pull = live * x if g.width == 1 else np.repeat(live, g.width, axis=1) * x
            given["pull"][:, g.comps][:, :: g.sets] = pull
        return given

    def _fields(self, facts: Facts, soft: States) -> dict[str, Array]:
        """Return natural parameters of units, their part of the bound, and inputs of terms."""
        target, s, net = self.target, self.target.structure, facts.net
        from_outside = facts.inputs_from_outside
        rows = target.rows if from_outside or soft or not target.untempered else 1
        base, gain = np.zeros((2, rows, net.arrays["comps"]))
        still = np.zeros((rows, net.arrays["term_comps"]))
        constant = {}
        for name in s.directed_layers:
            constant[name] = target.model.bias(name)[None]
            if from_outside:
                constant[name] = constant_input(target, name, net.units)
            if name in net.terms:
                g = net.terms[name]
                still[:, g.comps] = repeated(constant[name], g)
        beta = 1.0 if target.untempered else target.beta[:, None]
        for name, g in net.units.items():
            field: Array = np.zeros(1) + soft.get(name, 0.0)
            if name not in constant:
                field = field + target.model.bias(name)
            for c in s.undirected if from_outside else ():
                for to, other, block in c.blocks(target.model.weight(c)):
                    if to == name and other not in net.units:
                        field = field + self._mean(other) @ block
            gain[:, g.comps] = field if target.untempered else times(beta, field)
            inputs = constant.get(name, np.zeros(1))
            base[:, g.comps] = gain[:, g.comps]
            base[:, g.comps] += inputs if target.untempered else times(beta, inputs)
            if name in target.reference and not target.untempered:
                tilt = (1.0 - beta) * target.reference[name]
                base[:, g.comps] += tilt
                moves = target.components(name, target.free[name] & ~facts.hidden[name])
                gain[:, g.comps] += np.where(moves, tilt, 0.0)
        return {"base": base, "gain": gain, "still": still}

    def _starts_as_given(self, plain: bool) -> bool:
        """Return whether all tables start at the constants."""
        return plain and len(self.facts.all_free) == len(self.net.units)

    def _first(self, start: States | None, rng: np.random.Generator | None) -> Array:
        """Return the probabilities to start from, (rows, states)."""
        target, parts = self.target, [np.zeros((self.target.rows, 0))]
        for name in self.net.units:
            layer = target.structure.layers[name]
            reference = np.zeros((target.rows, layer.width)) + target.reference.get(name, 0.0)
            begin = layer.unit.prob(layer.shaped(reference))
            if start is not None:
                begin = start[name].reshape(begin.shape)
            elif rng is not None:
                begin = rng.dirichlet(np.ones(begin.shape[-1]), size=begin.shape[:-1])
            if name not in self.facts.all_free:
                certain = layer.one_hot(target.evidence.values[name])
                begin = np.where(target.free[name][..., None], begin, certain)
            parts.append(begin.reshape(target.rows, -1))
        return np.concatenate(parts, axis=1)

    def _move_infinite(self) -> float:
        """Update the units with infinitely many values; return the largest change of a mean."""
        if not self.infinite.mean:
            return 0.0
        moved = self.infinite.update(self._mean)
        fields = self._fields(self.facts, self.target.soft)
        for name in ("base", "gain"):
            self._put(name, fields[name])
        return moved

    def _conditional(self, name: str) -> Array:
        """Return log p(x | parents) of a directed layer without terms, (rows,).

        The base measure is left out.
        """
        target, layer = self.target, self.target.structure.layers[name]
        x = {n: self._mean(n) for n in (name, *(c.a for c in target.structure.arrows_into[name]))}
        value, zeta = layer.shaped(x[name]), layer.shaped(target.model.inputs(x, name))
        own = layer.unit.log_conditional(value, zeta) - layer.unit.log_h(value)
        return times(
            target.beta, np.where(target.intervened[name] | self.hidden[name], 0.0, own).sum(axis=1)
        )

    def _pull(self, name: str) -> Array:
        """Return the factor of the input of a directed layer in the bound, (rows, width)."""
        g, rows = self.net.terms[name], self.target.rows
        pull = self._get("pull", g.comps).reshape(rows, -1, g.sets, g.width)
        return np.asarray(pull.sum(axis=2)).reshape(rows, -1)

    def _slope(self, name: str) -> Array:
        """Return the derivative of the bound in the input of a directed layer, (rows, width).

        It is pull - on * sum_k phi_k y_k.
        """
        g, rows = self.net.terms[name], self.target.rows
        curvature = self.target.structure.layers[name].unit.curvature
        phi = self._get("phi", g.all_states).reshape(rows, -1, g.sets, g.states)
        expected = (
            np.einsum("rusk,skw->rusw", phi, self.net.values(name))
            if curvature is None
            else curvature * phi
        )
        on = self._get("on", g.items).reshape(rows, -1, g.sets, 1)
        return np.asarray(self._pull(name) - (on * expected).sum(axis=2).reshape(rows, -1))
