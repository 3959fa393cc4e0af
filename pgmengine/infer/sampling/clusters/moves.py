"""Cluster moves (Swendsen and Wang 1987): units that hold together change state together.

The free units have q states each, p(s) ~ exp(sum_ab J_ab (2 [s_a = s_b] - 1) + sum_a h_a(s_a))
(agreements.py); two states are spins. An edge is satisfied if J_ab > 0 and its ends agree, or if
J_ab < 0 and they do not. A move

    1. opens each edge that is satisfied with probability 1 - exp(-2 |J_ab|), and
    2. draws a number t for each cluster, the units that open edges join, with probability in
       proportion to exp(sum h_a(s_a + t)) over the cluster, and moves its units on by t modulo q.

Edges and units have the joint density  prod_open (e^J' - e^-J') prod_closed e^-J'  times
exp(sum h_a(s_a)), J' = |J_ab|, where an edge can be open only if it is satisfied. Its sum over the
edges is p(s), step 1 draws the edges given the units. Step 2 draws from the units given the edges,
among the states that a cluster reaches by such moves: all of them if q = 2 or all J_ab > 0.

Where couplings are frustrated, so that no state satisfies all of them, clusters join units that
need not agree: they cover the whole graph before chains move better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine import _kernels
from pgmengine.base.equal_rows import equal_rows
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.base.work.threads import parts
from pgmengine.evidence.target import Target, evidence_patterns
from pgmengine.infer.sampling.clusters.agreements import agreements
from pgmengine.model.weights import numbers

# Largest number of couplings that are read as edges; each takes about 12 ns in a move of a chain.
MAX_ENTRIES = 200_000

# Smallest number of uniforms in a move for which another thread pays; each takes about 5 ns.
MIN_NUMBERS_A_THREAD = 50_000

FRUSTRATED = (
    "the couplings are frustrated: no state satisfies all of them, and clusters would join units "
    "that need not agree (frustrated=True allows it)"
)

# The number of free units of a layer at which a quick look for frustration stops.
UNITS_LOOKED_AT = 32


@dataclass(frozen=True, eq=False)
class Part:
    """The units of rows of one evidence pattern.

    Attributes
    ----------
    rows : numbers of the rows.
    layers : layer -> its free units.
    edges : (edges, 2) pairs of units, numbered through all layers.
    h : (units, states, rows) fields; one column if all rows have the same.
    J : (edges, rows) couplings, likewise.
    constant : (rows,) the part of the log density that is the same for all states.
    """

    rows: Array
    layers: dict[str, Array]
    edges: Array
    h: Array
    J: Array
    constant: Array

    @property
    def states(self) -> int:
        """The number of states of each unit."""
        return int(self.h.shape[1])

    @property
    def frustrated(self) -> bool:
        """Whether no state satisfies all couplings of a row.

        Couplings that do not favour agreement count as frustrated with more than two states.
        """
        signs = np.sign(self.J.T)
        if self.states > 2:
            return bool((signs < 0).any())
        different = signs[equal_rows(signs)[0]]
        return any((plus == minus).any() for plus, minus in map(self._sides, different))

    @property
    def satisfied(self) -> Array:
        """A state (units,) that satisfies all couplings of the first row.

        Where they are frustrated, it is some state.
        """
        if self.states > 2:
            return np.full(len(self.h), self.h[:, :, 0].sum(axis=0).argmax())
        plus, minus = self._sides(np.sign(self.J[:, 0]))
        return np.asarray(plus <= minus, dtype=np.int64)

    def _sides(self, signs: Array) -> tuple[Array, Array]:
        """Return the components of (spin, +) and of (spin, -), (units,) each, by signs of J.

        The graph of all (spin, sign) has an edge from (a, +) to (b, +) if J_ab > 0, and to (b, -)
        if J_ab < 0. Signs contradict each other where (a, +) and (a, -) are connected.
        """
        units = len(self.h)
        (a, b), other = self.edges[signs != 0].T, units * (signs[signs != 0] < 0)
        ends = np.concatenate([a, a + units]), np.concatenate([b + other, b + units - other])
        cluster = clusters(*ends, 2 * units)
        return cluster[:units], cluster[units:]

    def lane(self, row: int) -> Part:
        """Return the units of one of the rows."""
        h, J = (x if x.shape[-1] == 1 else x[..., [row]] for x in (self.h, self.J))
        return Part(self.rows[[row]], self.layers, self.edges, h, J, self.constant[[row]])

    def tempered(self, betas: Array, some: Array) -> Part:
        """Return the units of one row with some couplings (edges,) times betas (lanes,)."""
        lanes = np.repeat(self.rows, len(betas))
        constant = np.repeat(self.constant, len(betas))
        J = self.J * np.where(some[:, None], betas, 1.0)
        return Part(lanes, self.layers, self.edges, self.h, J, constant)

    def coupled(self, state: Array, some: Array) -> Array:
        """Return the sum of J (2 [s_a = s_b] - 1) over some edges, of chains of one row.

        `state` is (chains, units), and the sum (chains,).
        """
        (a, b), J = self.edges[some].T, self.J[some, 0]
        return np.asarray((state[:, a] == state[:, b]) @ (2.0 * J) - J.sum())

    @cached_property
    def chance(self) -> Array:
        """The probability of opening each edge whose coupling is satisfied, (rows or 1, edges)."""
        return np.ascontiguousarray(-np.expm1(-2.0 * np.abs(self.J.T)))

    @cached_property
    def positive(self) -> Array:
        """Whether equal states satisfy each coupling, (rows or 1, edges)."""
        return np.ascontiguousarray(self.J.T > 0)

    @cached_property
    def fields(self) -> Array:
        """The fields, (rows or 1, units, states)."""
        return np.ascontiguousarray(np.moveaxis(self.h, 2, 0))

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """The ends a and b of the edges, for the compiled move."""
        a, b = np.ascontiguousarray(self.edges.T, dtype=np.int32)
        return a, b

    def moved(self, state: Array, uniform: Array) -> Array:
        """Return the states (rows, units), uint8, after a move.

        Parameters
        ----------
        state : (rows, units).
        uniform : (rows, edges + units), one number for each edge and one for each cluster.
        """
        if not _kernels.MOST_STATES:
            return self.plain(state, uniform)
        out = np.array(state, dtype=np.uint8, order="C")
        positive = self.positive.view(np.uint8)
        work = parts(uniform.size, MIN_NUMBERS_A_THREAD)
        _kernels.move_clusters(*self.ends, self.chance, positive, self.fields, uniform, out, work)
        return out

    def plain(self, state: Array, uniform: Array) -> Array:
        """Return the same as `moved` in numpy and scipy."""
        rows, units = state.shape
        a, b = self.edges.T
        state = np.asarray(state, dtype=np.int64)
        satisfied = (state[:, a] == state[:, b]) == self.positive
        row, edge = (satisfied & (uniform[:, : len(a)] < self.chance)).nonzero()
        cluster = clusters(row * units + a[edge], row * units + b[edge], rows * units)
        turned = (state[:, :, None] + np.arange(self.states)) % self.states
        fields = np.broadcast_to(self.fields, (rows, units, self.states))
        # The fields after a move by t > 0 less those now, summed up over each cluster.
        own = np.take_along_axis(fields, turned, axis=2)
        own = (own - own[:, :, :1]).reshape(-1, self.states)
        total = np.stack([np.bincount(cluster, column) for column in own.T], axis=1)
        # A cluster takes the number of its first unit, in whatever order clusters are found.
        first = np.zeros(len(total), dtype=np.int64)
        first[cluster[::-1]] = np.arange(rows * units)[::-1]
        weight = np.exp(total - total.max(axis=1, keepdims=True))
        below = (
            np.cumsum(weight[:, 1:], axis=1)
            > (uniform[:, len(a) :].ravel()[first] * weight.sum(axis=1))[:, None]
        )
        turn = np.where(below.any(axis=1), 1 + below.argmax(axis=1), 0)
        moved: Array = (state + turn[cluster].reshape(rows, units)) % self.states
        return moved.astype(np.uint8)


def surely_frustrated(target: Target) -> bool:
    """Return whether the couplings of some free units of the first row contradict each other.

    A quick look at the first free units of each layer of two-valued units. It costs next to
    nothing, and sees the frustration of dense random couplings, whose edges would be many.
    """
    import scipy.sparse as sp

    s, first, place = target.structure, dict[str, Array](), 0
    own = dict[str, Array]()
    for name in s.undirected_layers:
        unit = s.layers[name].unit
        if unit.width == 1 and unit.support is not None and len(unit.support) == 2:
            first[name] = np.flatnonzero(target.free[name][0])[:UNITS_LOOKED_AT]
            own[name] = place + np.arange(len(first[name]))
            place += len(first[name])
    edges, J = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)]
    for c in s.undirected:
        if c.a in first and c.b in first:
            block = sp.coo_array(target.model.weight(c)[first[c.a]][:, first[c.b]])
            edges.append(np.stack([own[c.a][block.row], own[c.b][block.col]], axis=1))
            J.append(block.data)
    every = np.concatenate(edges)
    fields, constant = np.zeros((place, 2, 1)), np.zeros(1)
    couplings = np.concatenate(J)[:, None]
    return Part(np.arange(1), {}, every, fields, couplings, constant).frustrated


def clusters(a: Array, b: Array, units: int) -> Array:
    """Return the number of the cluster of each unit (units,), which the edges from a to b join."""
    import scipy.sparse as sp

    joins = sp.csr_array((np.ones(len(a), dtype=bool), (a, b)), shape=(units, units))
    cluster: Array = sp.csgraph.connected_components(joins, directed=False)[1]
    return cluster


def cluster_parts(target: Target) -> Iterator[Part]:
    """Yield the units of each evidence pattern; PgmError where clusters cannot move them."""
    weights = [target.model.weight(c) for c in target.structure.couplings]
    entries = sum(int(np.count_nonzero(numbers(weight))) for weight in weights)
    if entries > MAX_ENTRIES:
        raise PgmError(f"the model has {entries} couplings, and at most {MAX_ENTRIES} are read")
    free = sum(mask.sum(axis=1) for mask in target.free.values())
    for rows in evidence_patterns(target):
        some = target.take(rows)
        found = agreements(some)
        if len(found.h) != free[rows[0]]:
            raise PgmError("some free units have infinitely many values, and are in no cluster")
        constant = np.broadcast_to(found.constant, len(rows))
        yield Part(rows, found.layers, found.edges, found.h, found.J, constant)


def allowed_parts(target: Target, frustrated: bool) -> list[Part]:
    """Return the units of each evidence pattern; PgmError unless clusters may move them.

    `frustrated` says whether couplings may contradict each other.
    """
    if not frustrated and surely_frustrated(target):
        raise PgmError(FRUSTRATED)
    parts = list(cluster_parts(target))
    if not frustrated and any(part.frustrated for part in parts):
        raise PgmError(FRUSTRATED)
    return parts


@dataclass(frozen=True, eq=False)
class ClusterMoves:
    """Moves of all clusters of some chains, each with random numbers of its own.

    Attributes
    ----------
    target : one row for each chain.
    parts : the units of each evidence pattern.
    rngs : (chains,) the random numbers of each chain.
    """

    target: Target
    parts: tuple[Part, ...]
    rngs: tuple[np.random.Generator, ...]

    def moved(self, states: dict[str, Array]) -> dict[str, Array]:
        """Return the numbers of states, layer -> (chains, size), after a move; they are changed."""
        for part in self.parts:
            now = [states[name][np.ix_(part.rows, at)] for name, at in part.layers.items()]
            needed = len(part.edges) + len(part.h)
            uniform = np.stack([self.rngs[row].random(needed) for row in part.rows])
            new = part.moved(np.concatenate(now, axis=1), uniform)
            ends = np.cumsum([len(at) for at in part.layers.values()])[:-1]
            for (name, at), state in zip(
                part.layers.items(), np.split(new, ends, axis=1), strict=True
            ):
                states[name][np.ix_(part.rows, at)] = state
        return states
