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

import numpy as np

from pgmengine import _kernels
from pgmengine._kernels import LANES
from pgmengine.base.types import Array, States, Weight
from pgmengine.base.work.threads import parts
from pgmengine.evidence.relevance import barren
from pgmengine.evidence.target import Target, times
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.variational.conditions import constant_input, log_sums
from pgmengine.infer.variational.infinite_units import Infinite
from pgmengine.infer.variational.packed_graph import as_blocks, net_of
from pgmengine.infer.variational.packed_tables import hard_units, powers, units_parents_first
from pgmengine.infer.variational.support import move_to_possible
from pgmengine.model.unit_graph import Inputs

# Numbers of Newton steps in xi: in each round, and for barren units after the last round.
NEWTON_STEPS = 2
LAST_NEWTON_STEPS = 12

# The number that the compiled rounds take as the logarithm of probability 0.
LOG_ZERO = -690.0

# Smallest number of edges times blocks for which another thread pays.
MIN_EDGES_PER_THREAD = 2_000


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
        self.target, self.hidden, s = target, barren(target), target.structure
        self.xi = xi
        names = tuple(
            n
            for n in s.children_first
            if s.layers[n].unit.support is not None and (s.tabled[n].any() or target.free[n].any())
        )
        sums = {
            n: found
            for n in s.directed_layers
            if (found := log_sums(target, n, self.hidden)) is not None
        }
        self.net = net_of(target.model, names, sums)
        self.steps, self.blocks = 0 if xi is not None else NEWTON_STEPS, -(-target.rows // LANES)
        n = self.net.arrays
        self.arrays = self.net.working_arrays(self.blocks)
        self._put("beta", slice(None), target.beta[:, None])
        self._put("power", slice(None), powers(target, self.hidden))
        self.constant_field = {
            name: constant_input(target, name, self.net.units) for name in s.directed_layers
        }
        noise = np.random.default_rng(0)
        self.infinite = Infinite(target, start, rng)
        if step:
            self.infinite.mean |= self.infinite.nudged(step, noise)
        for name in names:
            self._describe_unit(name, start, rng)
            if step:
                self._put_q(name, self._nudged(name, step, noise))
        hard = hard_units(target.model, n)
        self.hard = {name: hard["hard"][g.items] > 0 for name, g in self.net.units.items()}
        self._describe_terms()
        self.routine = _kernels.Belief(
            self.net.kinds,
            n | hard,
            self.net.link_weights(target.model),
            self.net.weights(target.model),
            np.ascontiguousarray(target.model.table_terms),
            self.arrays,
        )
        if search and any(some.any() for some in self.hard.values()):
            move_to_possible(self, rng)
            self._describe_terms()

    @property
    def mean(self) -> States:
        """Means of all units, (rows, width)."""
        return {name: self._mean(name) for name in self.target.structure.layers}

    @property
    def state(self) -> States:
        """The snapshot: tables (rows, size * K), and means of units with infinitely many values."""
        tables = {name: self._get("q", g.all_states) for name, g in self.net.units.items()}
        return tables | self.infinite.mean

    def nudged(self, size: float, seed: int) -> States:
        """Return a snapshot at a small distance from Q, in the same direction in all rows.

        Probabilities of 0 stay 0, so that Q stays on possible states.
        """
        rng, near = np.random.default_rng(seed), dict[str, Array]()
        for name in self.net.units:
            near[name] = self._nudged(name, size, rng).reshape(self.target.rows, -1)
        return near | self.infinite.nudged(size, rng)

    def _nudged(self, name: str, size: float, rng: np.random.Generator) -> Array:
        """Return probabilities (rows, size, K) near those of the free units of a layer."""
        q, free = self.prob(name), self.target.free[name][..., None]
        near = q * np.exp(rng.normal(0.0, size, (1, *q.shape[1:])))
        return np.where(free, near / near.sum(axis=-1, keepdims=True), q)

    def settle(self, updates: int, tolerance: float, least: float = -np.inf) -> tuple[int, float]:
        """Make rounds until no probability changes by more than the tolerance.

        Logarithms of table entries below `least` count as `least`. Returns the number of rounds,
        and the last change.
        """
        made, change = np.zeros(self.blocks, dtype=np.int64), np.zeros(self.blocks)
        rounds, moved = 0, np.inf
        while moved > tolerance and rounds < updates:
            left = updates - rounds
            self.routine.settle(left, tolerance, self.steps, least, made, change, self._parts())
            rounds += int(made.max(initial=1))
            moved = self._move_infinite()
        model = self.target.model
        follow = [
            g.first + np.concatenate(model.generations[name])
            for name in model.structure.directed_layers
            if (g := self.net.units.get(name)) is not None and self.hidden[name].any()
        ]
        if follow:
            self.routine.forward(np.concatenate(follow), LAST_NEWTON_STEPS, self._parts())
        first = {name: g.first for name, g in self.net.units.items()}
        barren_children = units_parents_first(model.structure, first, self.hidden)
        self.routine.forward_tables(barren_children, self._parts())
        return rounds, max(moved, float(change.max(initial=0.0)))

    def bound(self) -> Array:
        """Return the lower bound of log Z, (rows,)."""
        target, s, x = self.target, self.target.structure, self.mean
        total, power = np.zeros(target.rows), np.zeros(target.rows)
        for name, layer in s.layers.items():
            free, own = target.free[name], np.zeros((target.rows, layer.size))
            if not free.all():
                base = layer.unit.log_h(layer.shaped(target.evidence.values[name]))
                own = np.where(free | target.intervened[name], 0.0, base)
            if name in self.net.units:
                own = np.where(free & ~self.hidden[name], self._entropy(name), own)
            total += own.sum(axis=1)
            field = target.soft.get(name, 0.0) + (
                0.0 if name in s.directed_layers else target.model.bias(name)
            )
            power += (x[name] * field).sum(axis=1)
            if name in s.directed_layers:
                total += self._conditional(name, x)
        for c in s.undirected:
            power += c.log_density(target.model.weight(c), x[c.a], x[c.b])
        return total + times(target.beta, power) + self._expected_tables() + self.infinite.bound()

    def possible(self) -> Array:
        """Return whether Q gives no probability to entries of 0 in tables, (rows,) bool."""
        return np.isfinite(self._expected_tables())

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
        for name in self.net.units if len(rows) else ():
            layer = self.target.structure.layers[name]
            q, moves = self.prob(name), self.target.free[name] & self.hard[name]
            q[rows] = np.where(moves[rows][..., None], layer.one_hot(x[name]), q[rows])
            self._put_q(name, q)

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
        found = np.zeros(sum(e.count for e in self.net.edges))
        # If a child has several terms, they add to the same weights.
        alone = all(g.sets == 1 for g in self.net.terms.values())
        self.routine.learn(
            as_blocks(weights[:, None], self.blocks, 0.0), found, self._parts() if alone else 1
        )
        for e in self.net.edges:
            out[f"{e.arrow.key}.weight"] = e.gathered(target.model.weight(e.arrow), found)
        counts = np.zeros(len(target.model.table_entries))
        self.routine.count_tables(
            as_blocks(weights[:, None], self.blocks, 0.0), counts, self._parts()
        )
        return out | target.model.table_slopes(counts)

    def add_slopes(self, weights: Array, total: Accumulator) -> None:
        """Add `gradient` to the sum of a phase."""
        total.arrays(self.gradient(weights), 1.0, float(weights.sum()))

    def _parts(self) -> int:
        n = self.net.arrays
        work = len(n["edge_unit"]) + len(n["axis_unit"]) + 1
        return parts(work * self.blocks, MIN_EDGES_PER_THREAD)

    def entries(self) -> float:
        """Return the number of entries of tables that a round reads."""
        index = self.target.structure.table_index
        return float(index.axis_entries.sum()) * self.blocks

    def _expected_tables(self) -> Array:
        """Return the sum of the expected terms of the tables, (rows,)."""
        value = np.zeros((self.blocks, LANES))
        if len(self.net.arrays["table_entry"]):
            self.routine.value_tables(value, self._parts())
        return value.reshape(-1)[: self.target.rows]

    def _put(self, name: str, where: slice, value: Array) -> None:
        self.arrays[name][:, where] = value.T if len(value) == 1 else as_blocks(value, self.blocks)

    def _get(self, name: str, where: slice) -> Array:
        found = self.arrays[name][:, where]
        return found.transpose(0, 2, 1).reshape(self.blocks * LANES, found.shape[1])[
            : self.target.rows
        ]

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

    def _describe_unit(
        self, name: str, start: States | None, rng: np.random.Generator | None
    ) -> None:
        """Set the constant part of the natural parameter of a layer, and its first tables."""
        target, layer, g = self.target, self.target.structure.layers[name], self.net.units[name]
        self._put_base(name)
        self._put("open", g.items, target.free[name] & ~self.hidden[name])
        self._put("barren", g.items, self.hidden[name])
        reference = np.zeros((target.rows, layer.width)) + target.reference.get(name, 0.0)
        begin = layer.unit.prob(layer.shaped(reference))
        if start is not None:
            begin = start[name].reshape(begin.shape)
        elif rng is not None:
            begin = rng.dirichlet(np.ones(begin.shape[-1]), size=begin.shape[:-1])
        certain = layer.one_hot(target.evidence.values[name])
        least = 0.0 if start is not None and target.structure.tables else 1e-299
        self._put_q(name, np.where(target.free[name][..., None], np.maximum(begin, least), certain))

    def _put_base(self, name: str) -> None:
        """Set the natural parameter of a layer without the inputs from tables."""
        target, layer, g = self.target, self.target.structure.layers[name], self.net.units[name]
        field: Array = np.zeros((target.rows, layer.width)) + target.soft.get(name, 0.0)
        field += (
            self.constant_field[name] if name in self.constant_field else target.model.bias(name)
        )
        for c in target.structure.undirected:
            for to, other, block in c.blocks(target.model.weight(c)):
                if to == name and other not in self.net.units:
                    field += self._mean(other) @ block
        beta, reference = (
            target.beta[:, None],
            np.zeros(layer.width) + target.reference.get(name, 0.0),
        )
        self._put("base", g.comps, times(beta, field) + (1.0 - beta) * reference)

    def _move_infinite(self) -> float:
        """Update the units with infinitely many values; return the largest change of a mean."""
        if not self.infinite.mean:
            return 0.0
        moved = self.infinite.update(self._mean)
        for name in self.net.units:
            if any(
                other in self.infinite.mean for _, other in self.target.structure.meetings[name]
            ):
                self._put_base(name)
        return moved

    def _put_q(self, name: str, q: Array) -> None:
        """Set the probabilities (rows, size, K) of a layer, and its means."""
        layer, g, rows = self.target.structure.layers[name], self.net.units[name], len(q)
        # Rounds may raise a probability of 0 of a free unit, but not of an observed one.
        log_q = np.where(self.target.free[name][..., None], LOG_ZERO, -1e30) + np.zeros(q.shape)
        np.log(q, out=log_q, where=q > 0)
        self._put("q", g.all_states, q.reshape(rows, -1))
        self._put("log_q", g.all_states, log_q.reshape(rows, -1))
        assert layer.unit.support is not None
        self._put("mean", g.comps, (q @ layer.unit.support).reshape(rows, -1))

    def _describe_terms(self) -> None:
        for name in self.net.terms:
            # The terms of a noisy-or unit have the values 0 and -2^m. At xi = 0, their largest
            # value, F is at most log 2. In the middle it may be thousands, and the minimum is then
            # not reached before the first round, which would leave the Q of a warm start.
            best = 0.5 if self.target.structure.layers[name].unit.canonical else 1.0
            self._describe_term(name, best if self.xi is None else self.xi)

    def _describe_term(self, name: str, xi: float) -> None:
        """Set the constant inputs of a directed layer, their factors, and xi."""
        target, layer, g = self.target, self.target.structure.layers[name], self.net.terms[name]
        power = np.where(target.intervened[name] | self.hidden[name], 0.0, target.beta[:, None])
        x, constant = self._mean(name), self.constant_field[name]
        on, pull = power, (power if g.width == 1 else np.repeat(power, g.width, axis=1)) * x
        # The terms of a noisy-or unit count if x is 1; -(1 - x) z is added separately.
        if not layer.unit.canonical:
            on, pull = power * x, power * (x - 1.0)
        if g.sets > 1:
            power, on, constant = (np.repeat(v, g.sets, axis=1) for v in (power, on, constant))
            pull = np.where(
                np.arange(pull.shape[1] * g.sets) % g.sets == 0,
                np.repeat(pull, g.sets, axis=1),
                0.0,
            )
        values = self.net.values(name)
        low, high = values.min(axis=1), values.max(axis=1)
        self._put("still", g.comps, constant)
        self._put("live", g.items, power)
        self._put("on", g.items, on)
        self._put("pull", g.comps, pull)
        self._put(
            "xi", g.comps, np.tile((low + xi * (high - low) / g.width).ravel(), layer.size)[None]
        )

    def _entropy(self, name: str) -> Array:
        """Return entropy, base measure and reference term of the units of a layer, (rows, size)."""
        target, layer, g = self.target, self.target.structure.layers[name], self.net.units[name]
        q, log_q = (
            self._get(what, g.all_states).reshape(target.rows, layer.size, -1)
            for what in ("q", "log_q")
        )
        own: Array = (q * (layer.unit.log_base - log_q)).sum(axis=-1)
        if name not in target.reference:
            return own
        tilt = (
            (self._mean(name) * target.reference[name])
            .reshape(target.rows, layer.size, -1)
            .sum(axis=-1)
        )
        return np.asarray(own + (1.0 - target.beta[:, None]) * tilt)

    def _conditional(self, name: str, x: States) -> Array:
        """Return E[log p(x | parents)] of a directed layer, or a lower bound of it, (rows,).

        The base measure is left out.
        """
        target, layer = self.target, self.target.structure.layers[name]
        if name in self.net.terms:
            g = self.net.terms[name]
            linear: Array = (self._pull(name) * target.model.inputs(x, name)).sum(axis=1)
            linear -= (self._get("on", g.items) * self._get("f", g.items)).sum(axis=1)
            return linear
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
