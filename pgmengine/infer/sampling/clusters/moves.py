"""Cluster moves (Swendsen and Wang 1987): units that hold together change sign together.

The free units are spins, p(s) ~ exp(sum_ab J_ab s_a s_b + sum_a h_a s_a) (exact/spins.py). A move

    1. opens each edge with J_ab s_a s_b > 0 with probability 1 - exp(-2 J_ab s_a s_b), and
    2. draws the sign of each cluster, the units that open edges join: with H = sum h_a s_a over the
       cluster, all its units change sign with probability 1 / (1 + exp(2 H)).

Edges and spins have the joint density  prod_open (e^J' - e^-J') prod_closed e^-J'  times
exp(sum h_a s_a), J' = |J_ab|, where an edge can be open only if J_ab s_a s_b > 0. Its sum over the
edges is p(s), step 1 draws the edges given the spins, and step 2 the spins given the edges.

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
from pgmengine.base.types import Array, States
from pgmengine.base.work.threads import parts
from pgmengine.evidence.target import Target, evidence_patterns
from pgmengine.infer.exact.junction_tree.conditioned_model import Form
from pgmengine.infer.exact.spin_factors import conditioned_spins
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
    """The spins of rows of one evidence pattern.

    Attributes
    ----------
    rows : numbers of the rows.
    layers : layer -> its free units.
    edges : (edges, 2) pairs of spins, numbered through all layers.
    h : (units, rows) fields; one column if all rows have the same.
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
    def frustrated(self) -> bool:
        """Whether no state satisfies all couplings of a row."""
        signs = np.sign(self.J.T)
        different = signs[equal_rows(signs)[0]]
        return any((plus == minus).any() for plus, minus in map(self._sides, different))

    @property
    def satisfied(self) -> Array:
        """Whether each spin (units,) is 1 in a state that satisfies all couplings of the first row.

        Where they are frustrated, it is some state.
        """
        plus, minus = self._sides(np.sign(self.J[:, 0]))
        return np.asarray(plus <= minus)

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
        """Return the spins of one of the rows."""
        h, J = (x if x.shape[1] == 1 else x[:, [row]] for x in (self.h, self.J))
        return Part(self.rows[[row]], self.layers, self.edges, h, J, self.constant[[row]])

    def tempered(self, betas: Array) -> Part:
        """Return the spins of one row at several temperatures (lanes,), in place of rows."""
        lanes = np.repeat(self.rows, len(betas))
        constant = np.repeat(self.constant, len(betas))
        return Part(lanes, self.layers, self.edges, self.h * betas, self.J * betas, constant)

    def power(self, up: Array) -> Array:
        """Return sum J_ab s_a s_b + sum h_a s_a (chains,) of chains (chains, units) of one row."""
        (a, b), J, h = self.edges.T, self.J[:, 0], self.h[:, 0]
        agree = (up[:, a] == up[:, b]) @ (2.0 * J) - J.sum()
        return np.asarray(agree + up @ (2.0 * h) - h.sum())

    @cached_property
    def chance(self) -> Array:
        """The probability of opening each edge whose coupling is satisfied, (rows or 1, edges)."""
        return np.ascontiguousarray(-np.expm1(-2.0 * np.abs(self.J.T)))

    @cached_property
    def positive(self) -> Array:
        """Whether spins of the same sign satisfy each coupling, (rows or 1, edges)."""
        return np.ascontiguousarray(self.J.T > 0)

    @cached_property
    def fields(self) -> Array:
        """The fields, (rows or 1, units)."""
        return np.ascontiguousarray(self.h.T)

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """The ends a and b of the edges, for the compiled move."""
        a, b = np.ascontiguousarray(self.edges.T, dtype=np.int32)
        return a, b

    def moved(self, up: Array, uniform: Array) -> Array:
        """Return whether each spin is 1 after a move, (rows, units).

        Parameters
        ----------
        up : (rows, units), whether each spin is 1.
        uniform : (rows, edges + units), one number for each edge and one for each cluster.
        """
        if not _kernels.MOST_STATES:
            return self.plain(up, uniform)
        out = np.array(up, dtype=np.uint8, order="C")
        positive = self.positive.view(np.uint8)
        work = parts(uniform.size, MIN_NUMBERS_A_THREAD)
        _kernels.move_clusters(*self.ends, self.chance, positive, self.fields, uniform, out, work)
        return out > 0

    def plain(self, up: Array, uniform: Array) -> Array:
        """Return the same as `moved` in numpy and scipy."""
        rows, units = up.shape
        a, b = self.edges.T
        satisfied = (up[:, a] == up[:, b]) == self.positive
        row, edge = (satisfied & (uniform[:, : len(a)] < self.chance)).nonzero()
        cluster = clusters(row * units + a[edge], row * units + b[edge], rows * units)
        field = np.bincount(cluster, np.where(up, self.fields, -self.fields).ravel())
        # A cluster takes the number of its first unit, in whatever order clusters are found.
        first = np.zeros(len(field), dtype=np.int64)
        first[cluster[::-1]] = np.arange(rows * units)[::-1]
        with np.errstate(over="ignore"):
            turned = uniform[:, len(a) :].ravel()[first] < 1.0 / (1.0 + np.exp(2.0 * field))
        found: Array = up != turned[cluster].reshape(up.shape)
        return found


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
    fields, constant = np.zeros((place, 1)), np.zeros(1)
    couplings = np.concatenate(J)[:, None]
    return Part(np.arange(1), {}, every, fields, couplings, constant).frustrated


def clusters(a: Array, b: Array, units: int) -> Array:
    """Return the number of the cluster of each unit (units,), which the edges from a to b join."""
    import scipy.sparse as sp

    joins = sp.csr_array((np.ones(len(a), dtype=bool), (a, b)), shape=(units, units))
    cluster: Array = sp.csgraph.connected_components(joins, directed=False)[1]
    return cluster


def cluster_parts(target: Target) -> Iterator[Part]:
    """Yield the spins of each evidence pattern; PgmError where free units are not spins."""
    weights = [target.model.weight(c) for c in target.structure.couplings]
    entries = sum(int(np.count_nonzero(numbers(weight))) for weight in weights)
    if entries > MAX_ENTRIES:
        raise PgmError(f"the model has {entries} couplings, and at most {MAX_ENTRIES} are read")
    free = sum(mask.sum(axis=1) for mask in target.free.values())
    for rows in evidence_patterns(target):
        some = target.take(rows)
        spins, c, h, J = conditioned_spins(some, Form())
        if len(h) != free[rows[0]]:
            raise PgmError("some free units have infinitely many values, and are no spins")
        constant = np.broadcast_to(c + spins.conditioned.constant(some), len(rows))
        yield Part(rows, spins.conditioned.free.layers, spins.edges, h, J, constant)


def allowed_parts(target: Target, frustrated: bool) -> list[Part]:
    """Return the spins of each evidence pattern; PgmError unless clusters may move them.

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
    parts : the spins of each evidence pattern.
    rngs : (chains,) the random numbers of each chain.
    """

    target: Target
    parts: tuple[Part, ...]
    rngs: tuple[np.random.Generator, ...]

    def moved(self, x: States) -> States:
        """Return the states, layer -> (chains, width), after a move."""
        layers, out = self.target.structure.layers, {n: np.array(v) for n, v in x.items()}
        for part in self.parts:
            up = [layers[n].states(x[n][part.rows])[:, at] == 1 for n, at in part.layers.items()]
            needed = len(part.edges) + len(part.h)
            uniform = np.stack([self.rngs[row].random(needed) for row in part.rows])
            new = part.moved(np.concatenate(up, axis=1), uniform)
            ends = np.cumsum([len(at) for at in part.layers.values()])[:-1]
            for (name, at), state in zip(
                part.layers.items(), np.split(new, ends, axis=1), strict=True
            ):
                layer = layers[name]
                assert layer.unit.support is not None
                drawn = layer.unit.support[state.astype(np.int64)].reshape(len(part.rows), -1)
                out[name][np.ix_(part.rows, layer.columns(at))] = drawn
        return out
