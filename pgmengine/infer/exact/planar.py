"""Planar: exact answers on planar graphs of two-state units, by the determinant of Kac and Ward.

The free units of each evidence pattern are spins (spin_factors.py). If their graph is planar,
together with the ghost where there are fields, then log Z is a determinant, and so are the
correlations of neighbours. A spin without any path to the ghost has the mean 0.

Spins s_i = -1, 1 on the vertices of a graph have the log weight sum_e J_e s_a s_b, where the edge e
joins a and b. With t_e = tanh J_e,

    Z = 2^vertices prod_e cosh J_e * S,    S = sum over even subgraphs of prod_e t_e

and, for a drawing in the plane with straight edges that do not cross,

    S^2 = det M,    M = I - T A

T and A are matrices over directed edges, two for each edge. T is diagonal, with t_e. A has the
entry e^(i angle / 2) from each directed edge to each one that begins where it ends, other than its
reverse, where `angle` is the turn between the two, in (-pi, pi). The derivative of log Z in J_e is
the correlation of the ends of the edge,

    E[s_a s_b] = t_e - (1 - t_e^2) Re [A M^-1]_ee

The determinant of a lattice of n spins takes about n^1.5 operations, by a sparse LU factorisation
(SuperLU, in scipy), where elimination takes 2^sqrt(n).

Rounding changes M by about 2^-52 of its entries. log det M then changes by 2^-52 |M^-1|, with the
largest sum of a column as the norm, and the entries of M^-1 by 2^-52 |M^-1|^2. The norm of a
lattice of 128x128 with equal couplings is at most 600. In a spin glass it grows exponentially with
the couplings, to 3e3 for +-1 and 3e8 for +-3, so that correlations lose their digits before log Z.

References: Kac and Ward (1952); Dolbilin et al. (1999) prove the formula for all planar graphs; Lis
(2016). Chrobak and Payne (1995) place the vertices on a grid, by networkx. The reference
implementation of the tests is elimination, and Kaufman's formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from weakref import ReferenceType, ref

import numpy as np

from pgmengine.base.display import counted
from pgmengine.base.equal_rows import equal_rows
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot, Weight
from pgmengine.base.work.division import blocks
from pgmengine.base.work.memory import no_room
from pgmengine.base.work.progress import track
from pgmengine.base.work.threads import one_blas_thread
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.gathered import Answer, Gathered, exact_answers
from pgmengine.infer.exact.junction_tree.conditioned_model import NEED_ALL_FACTORS, Form
from pgmengine.infer.exact.junction_tree.factors import FreeUnits
from pgmengine.infer.exact.junction_tree.tree_expectations import FromMarginals
from pgmengine.infer.exact.junction_tree.trees import NEED_MARGINALS
from pgmengine.infer.exact.least_width import least_width
from pgmengine.infer.exact.planning import lifted
from pgmengine.infer.exact.shared_rows import (
    NEED_NO_BARREN,
    KindOfRows,
    freed,
    kinds_of_rows,
    leaving,
)
from pgmengine.infer.exact.spin_factors import Spins, conditioned_spins
from pgmengine.infer.question.prepared import AnyPrepared, Method, OtherPlanNeeded
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.by_name import Joint, units_of
from pgmengine.infer.results.result import Plan, Result, quantity
from pgmengine.model.graph.unit_graph import unit_graph
from pgmengine.model.structure import Structure


def drawing(vertices: int, edges: Array, structure: Structure) -> Array | None:
    """Return the places (vertices, 2) of the vertices of a graph, or None if it is not planar.

    Vertices without an edge are at (0, 0). The structure remembers the drawing.

    Parameters
    ----------
    vertices : number of vertices.
    edges : (edges, 2) their ends; each pair of vertices has at most one edge.
    structure : the structure of the model that has this graph.
    """
    key = "planar drawing", vertices, sha256(np.ascontiguousarray(edges).tobytes()).digest()
    found: Array | None = structure.memo.recall(key, lambda: _drawn(vertices, edges))
    return found


def _drawn(vertices: int, edges: Array) -> Array | None:
    import networkx as nx

    graph: nx.Graph = nx.Graph()
    graph.add_edges_from(edges.tolist())
    planar, embedding = nx.check_planarity(graph)
    if not planar:
        return None
    places = np.zeros((vertices, 2))
    for vertex, place in nx.combinatorial_embedding_to_pos(embedding).items():
        places[vertex] = place
    return places


def grid_places(structure: Structure, free: FreeUnits, edges: Array) -> Array | None:
    """Return the places (units + 1, 2) of the units of an array with two axes, if no edges cross.

    None if other units are free, or if an edge joins units that are no neighbours or crosses
    another one. A lattice then needs no drawing, which takes most of the time of its log Z.
    """
    (name, units), *others = [*free.layers.items()] or [("", np.empty(0, dtype=np.int64))]
    shape = structure.layers[name].shape if name else ()
    if others or len(shape) != 2 or edges.max(initial=-1) >= len(units):
        return None
    places = np.stack(np.unravel_index(units, shape), axis=1)
    ends = places[edges]
    steps = np.abs(ends[:, 0] - ends[:, 1])
    # Edges can cross only where both diagonals of a cell are there.
    cells = ends.min(axis=1)[steps.sum(axis=1) == 2]
    if steps.max(initial=0) > 1 or len(equal_rows(cells)[0]) < len(cells):
        return None
    return np.concatenate([places, np.zeros((1, 2))])


# Columns of the inverse that are computed together.
COLUMNS_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class KacWard:
    """A drawn planar graph, for sums over the states of the spins on its vertices.

    Attributes
    ----------
    edges : (edges, 2) the ends of each edge.
    places : (vertices, 2) the places of the vertices in the plane.
    """

    edges: Array
    places: Array

    @cached_property
    def turns(self) -> Weight:
        """The matrix A (2 edges, 2 edges); edges in reverse follow after all others."""
        import scipy.sparse as sp

        count = len(self.edges)
        tail, head = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        step = self.places[head] - self.places[tail]
        direction = np.arctan2(step[:, 1], step[:, 0])
        every, shape = np.arange(2 * count), (2 * count, len(self.places))
        ends = sp.csr_array((np.ones(2 * count), (every, head)), shape=shape)
        begins = sp.csr_array((np.ones(2 * count), (every, tail)), shape=shape)
        first, second = (ends @ begins.T).nonzero()
        other = first % count != second % count
        first, second = first[other], second[other]
        turn = (direction[second] - direction[first] + np.pi) % (2.0 * np.pi) - np.pi
        return sp.csr_array((np.exp(0.5j * turn), (first, second)), shape=(2 * count, 2 * count))

    @one_blas_thread()
    def log_even(self, couplings: Array) -> tuple[float, float]:
        """Return log S, and about the norm of M^-1, infinite where M is singular.

        Parameters
        ----------
        couplings : (edges,) J of each edge.
        """
        from scipy.sparse.linalg import LinearOperator, onenormest

        if not len(self.edges):
            return 0.0, 0.0
        t = np.tanh(couplings)
        try:
            lu = self._factorised(t)
        except RuntimeError:
            # The matrix is singular in double precision.
            return np.nan, np.inf
        inverse = LinearOperator(
            lu.shape, matvec=lu.solve, rmatvec=lambda x: lu.solve(x, "H"), dtype=complex
        )
        # With more than one column, the estimate of the norm depends on random numbers.
        norm = float(onenormest(inverse, t=1))
        return 0.5 * float(np.log(np.abs(lu.U.diagonal())).sum()), norm

    # The columns are too few for the threads of BLAS, which wait for each other on a busy computer.
    @one_blas_thread()
    def correlations(self, couplings: Array, asked: Array) -> Array:
        """Return E[s_a s_b] (edges,) of the ends of some edges; others are NaN.

        Parameters
        ----------
        couplings : (edges,) J of each edge.
        asked : numbers of the edges.
        """
        count, t = len(self.edges), np.tanh(couplings)
        diagonal = np.full(count, np.nan)
        if not len(asked):
            return diagonal
        lu = self._factorised(t)
        for some in track(list(blocks(asked, COLUMNS_AT_ONCE)), "correlations"):
            unit = np.zeros((2 * count, len(some)), dtype=complex)
            unit[some, np.arange(len(some))] = 1.0
            # The two directions of an edge have conjugate entries.
            columns = self.turns[some].multiply(lu.solve(unit).T)
            diagonal[some] = np.asarray(columns.sum(axis=1)).ravel().real
        return np.asarray(t - (1.0 - t**2) * diagonal)

    def _factorised(self, t: Array) -> Weight:
        """Return the LU factorisation of M."""
        import scipy.sparse as sp
        from scipy.sparse.linalg import splu

        both = sp.diags_array(np.concatenate([t, t]))
        return splu((sp.eye_array(2 * len(t)) - both @ self.turns).tocsc())


# Largest rounding error of log Z, as every method promises (diagnostics/rounding.py), and of
# correlations. The norm of the inverse overestimates both, by a factor of a thousand in lattices.
MAX_ROUNDING, MAX_ROUNDING_OF_CORRELATIONS = 2.0**-22, 2.0**-26

# Largest number of edges whose graph is drawn; this takes about five seconds.
MAX_EDGES = 100_000

# A planar graph has a unit with at most this number of neighbours.
MAX_LEAST_NEIGHBOURS = 5

# About the entries of the factors of a matrix of n rows, divided by n log2(n)^2, and their bytes.
FACTOR_ENTRIES, ENTRY_BYTES = 0.45, 40.0
# Seconds for an entry of the factors, in the factorisation and in a column of the inverse.
FACTORED_ENTRY_SECONDS, SOLVED_ENTRY_SECONDS = 1.5e-7, 2.5e-9


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of one kind, their graph and log Z.

    Attributes
    ----------
    kind : the rows, and their free units.
    spins : the free units.
    ghosted : (units joined to the ghost,) their numbers.
    graph : the drawn graph; edges to the ghost follow after all others.
    couplings : (edges, different couplings) J of each edge.
    which : (rows,) which of these couplings each row has.
    log_z : (rows,) without the constant of the conditioned model.
    norm : the largest norm of an inverse.
    """

    kind: KindOfRows
    spins: Spins
    ghosted: Array
    graph: KacWard
    couplings: Array
    which: Array
    log_z: Array
    norm: float

    def check_digits(self, kinds: set[str]) -> None:
        """Raise PgmError where rounding leaves too few digits of the wanted quantities."""
        rounding, why = (
            float(np.finfo(np.float64).eps) * self.norm,
            "the couplings are so strong that",
        )
        if not rounding <= MAX_ROUNDING:
            raise PgmError(f"{why} rounding would reach log Z")
        if len(self.asked(kinds)) and not rounding * self.norm <= MAX_ROUNDING_OF_CORRELATIONS:
            raise PgmError(f"{why} rounding would reach correlations")

    def asked(self, kinds: set[str]) -> Array:
        """Return the edges whose correlations are needed: to the ghost, or all."""
        if not kinds & NEED_MARGINALS:
            return np.arange(0)
        factors = len(self.spins.conditioned.asked(kinds))
        return np.arange(0 if factors else len(self.spins.edges), len(self.graph.edges))

    def work(self, kinds: set[str]) -> float:
        """Return the entries of all LU factors that are visited."""
        visits = max(1, len(self.asked(kinds)))
        return factor_entries(len(self.graph.edges)) * float(self.couplings.shape[1] * visits)

    def marginals(self, kinds: set[str]) -> tuple[Array, Array]:
        """Return the marginals of units (2 units, rows), and of factors (entries, rows).

        Those of factors that the wanted quantities do not need are NaN.
        """
        asked, edges = self.asked(kinds), len(self.spins.edges)
        found = np.stack([self.graph.correlations(J, asked) for J in self.couplings.T], axis=1)
        means = np.zeros((len(self.spins.conditioned.states), found.shape[1]))
        means[self.ghosted] = found[edges:]
        units, factors = self.spins.marginals(means, found[:edges])
        return units[:, self.which], factors[:, self.which]


@dataclass(frozen=True, eq=False)
class PlannedParts:
    """The parts of a question, one for each evidence pattern."""

    want: tuple[str, ...]
    parts: list[Part]
    target: ReferenceType[Target]

    def on(self, target: Target) -> PlannedParts:
        """Return the parts for a target with the same evidence pattern, whose values may differ.

        Raises OtherPlanNeeded where fields of the new values are so strong that rounding matters.
        """
        if self.target() is target:
            return self
        try:
            return planned_parts(target, self.want)
        except PgmError as error:
            raise OtherPlanNeeded(f"the plan does not hold for these values: {error}") from None


@dataclass(frozen=True)
class Planar(Method[PlannedParts]):
    """Exact answers on planar graphs of two-state units, by the determinant of Kac and Ward.

    Use it for lattices of spins and other planar graphs that are too wide for a junction tree. A
    graph is planar if it can be drawn without crossing edges. All factors must join at most two
    units, and no entry of a table may be 0. A field (a bias, or an observed neighbour) counts as
    an edge to one more unit. A lattice may have fields at its border for log_z; the other answers
    need such an edge from each unit that has a path to a field. `Exact` takes this method where it
    is cheaper than enumeration and elimination.

    It gives log_z, log_prob, marginals, pairs, joint distributions of neighbours and the gradient,
    and neither samples nor the mode.

    Notes
    -----
    The time is about that of (units)^1.5 operations: 0.1 s for log Z of a lattice of 32x32, and 1 s
    for its gradient. Spin glasses with strong couplings are refused, because rounding would reach
    the answer: lattices with couplings of +-3 or more, and for answers that need correlations
    (pairs, gradient, means beside fields), of +-1.5 or more. Couplings of one sign may have any
    size.

    References
    ----------
    Kac and Ward (1952); Dolbilin et al. (1999).

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> s = b.layer("s", pgm.Spin(), (24, 24))
    >>> b.couple(s[1:], s[:-1], 0.4407, name="vertical")
    >>> b.couple(s[:, 1:], s[:, :-1], 0.4407, name="horizontal")
    >>> r = pgm.infer(b.build(), want=("log_z",), method=pgm.Planar())
    >>> r.log_z.round(4), r.kind
    (array([527.2527]), 'exact')
    """

    gives = frozenset({"log_z", "log_prob", "marginals", "pairs", "joint", "gradient"})
    subtracts = True
    source = "the determinant of a planar graph gives"
    guarantee = "exact"

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[PlannedParts]:
        """Draw the graph of every evidence pattern, and compute log Z."""
        try:
            planned = planned_parts(target, want)
        except PgmError as error:
            return Plan(refusal=str(error))
        kinds = {*map(quantity, want)}
        edges = max([len(part.graph.edges) for part in planned.parts])
        work = sum([part.work(set()) for part in planned.parts])
        solved = sum([part.work(kinds) for part in planned.parts])
        seconds = FACTORED_ENTRY_SECONDS * work + SOLVED_ENTRY_SECONDS * solved
        memory = peak_bytes(target, want, 0, 0.0, 0.0, fixed=working_bytes(edges))
        why = f"the determinant of a planar graph of {counted(edges, 'edge')}"
        return Plan(why=why, work=work + solved, bytes=memory, seconds=seconds, basis=planned)

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Add up log Z, and compute the correlations of neighbours where they are needed."""
        planned: PlannedParts = question.basis
        parts = planned.on(question.target).parts
        log_z, found = _answered(parts, question.target, question.want)
        return question.result(exact_answers(question, log_z, found))


def factor_entries(edges: int) -> float:
    """Return about the number of entries of the LU factors of the matrix of so many edges."""
    rows = 2.0 * edges + 2.0
    return FACTOR_ENTRIES * rows * float(np.log2(rows)) ** 2


def working_bytes(edges: int) -> float:
    """Return the bytes of the LU factors, and of the columns of the inverse."""
    return ENTRY_BYTES * factor_entries(edges) + 3 * 16.0 * 2 * edges * min(edges, COLUMNS_AT_ONCE)


def may_be_planar(s: Structure, least: float) -> bool:
    """Return whether the graph may be planar, with pairs of two-state units, at a glance.

    `least` is a lower bound of its width (least_width.py). It is at most half the average number of
    neighbours, or the least number of neighbours within a coupling; planar graphs have less than 3
    edges a unit, and a unit of at most 5 neighbours.
    """
    two_states = all(count == 2 for count in s.state_counts.values())
    few = bool((np.diff(s.table_index.start) <= 2).all())
    return two_states and few and not s.directed_layers and least <= MAX_LEAST_NEIGHBOURS


def planned_parts(target: Target, want: tuple[str, ...]) -> PlannedParts:
    """Return the parts of a question; PgmError where one of them is not planar."""
    return PlannedParts(want, list(_parts(target, want)), ref(target))


def _parts(target: Target, want: tuple[str, ...]) -> Iterator[Part]:
    """Yield the part of each evidence pattern; raise PgmError with the reason for a refusal."""
    kinds = {*map(quantity, want)}
    if "gradient" in kinds and lifted(target) is not target:
        raise PgmError("leaks or weights of 0 need a limit, which the determinant does not take")
    if not may_be_planar(target.structure, least_width(target)):
        raise PgmError("the graph is not planar, or not one of couplings of two-state units")
    form = Form(
        structural=bool(NEED_ALL_FACTORS & kinds),
        joints=tuple(units_of(target.structure, w) for w in want if isinstance(w, Joint)),
        pairs="pairs" in kinds,
    )
    absent = leaving(target, kinds, form.structural) if kinds <= NEED_NO_BARREN else {}
    for kind in kinds_of_rows(target, absent, means=False):
        yield _part(freed(target.take(kind.rows), kind.free), kind, form, kinds)


def _part(target: Target, kind: KindOfRows, form: Form, kinds: set[str]) -> Part:
    """Return the part of the rows of one kind, which are the rows of the target."""
    spins, constant, h, couplings = conditioned_spins(target, form)
    conditioned, lanes = spins.conditioned, couplings.shape[1]
    units, edges = len(conditioned.states), spins.edges
    # A plan holds for all values of the observed units, which may cancel in these rows.
    fields = (h != 0.0).any(axis=1) | _beside_observed(target, conditioned.free)
    ghosted = _ghosted(edges, fields, bool(kinds & NEED_MARGINALS))
    to_ghost = np.stack([ghosted, np.full(len(ghosted), units)], axis=1)
    edges = np.concatenate([edges, to_ghost])
    if len(edges) > MAX_EDGES:
        raise PgmError(f"the graph has {len(edges)} edges, and at most {MAX_EDGES} are drawn")
    if why := no_room(working_bytes(len(edges))):
        raise PgmError(f"the determinant of a planar graph of {len(edges)} edges: {why}")
    places = grid_places(target.structure, conditioned.free, edges)
    if places is None:
        places = drawing(units + 1, edges, target.structure)
    if places is None:
        fields = f", counting {len(ghosted)} fields as edges to one more unit"
        raise PgmError(f"the graph is not planar{fields * bool(len(ghosted))}")
    joined = np.concatenate([couplings, h[ghosted]])
    first, which = equal_rows(joined.T)
    J = joined[:, first]
    graph = KacWard(edges, places)
    even = [graph.log_even(each) for each in J.T]
    # The two halves of the states, with the ghost up and down, have equal sums.
    each = np.array([value for value, _ in even]) + (np.logaddexp(J, -J) - np.log(2.0)).sum(axis=0)
    log_z = constant + units * np.log(2.0) + each[which]
    every = np.broadcast_to(which, target.rows) if lanes == 1 else which
    norm = max(norm for _, norm in even)
    part = Part(kind, spins, ghosted, graph, J, every, np.broadcast_to(log_z, target.rows), norm)
    part.check_digits(kinds)
    return part


def _beside_observed(target: Target, free: FreeUnits) -> Array:
    """Return whether each free unit (units,) has an observed neighbour."""
    graph, observed = unit_graph(target.model), free.number < 0
    touched = np.zeros(len(observed), dtype=bool)
    touched[graph.pairs.rows[observed[graph.pairs.columns]]] = True
    members = graph.members
    touching = np.unique(members.rows[observed[members.columns]])
    touched[members.columns[np.isin(members.rows, touching)]] = True
    return touched[~observed]


def _ghosted(edges: Array, fields: Array, moments: bool) -> Array:
    """Return the units (n,) that are joined to the ghost.

    They are those with a field, and, where means are needed, all units that have a path to one.
    """
    if not moments or not fields.any():
        return np.flatnonzero(fields)
    import scipy.sparse as sp

    joins = sp.csr_array((np.ones(len(edges)), (*edges.T,)), shape=(len(fields), len(fields)))
    _, component = sp.csgraph.connected_components(joins, directed=False)
    return np.flatnonzero(np.isin(component, component[fields]))


def _answered(parts: list[Part], target: Target, want: tuple[str, ...]) -> tuple[Array, Answer]:
    """Return log Z (rows,), and the other answers: quantity -> layer or coupling -> (rows, ...)."""
    gathered, kinds = Gathered(target, "determinants"), {*map(quantity, want)}
    for part in parts:
        rows = part.kind.rows
        whole = target.take(rows)
        given = freed(whole, part.kind.free)
        conditioned, found = part.spins.conditioned, Answer()
        if not NEED_MARGINALS.isdisjoint(kinds):
            units, factors = part.marginals(kinds)
            asked = conditioned.asked(kinds)
            keep = np.repeat(np.isin(np.arange(len(conditioned.sizes)), asked), conditioned.sizes)
            e = FromMarginals(given, conditioned, units, asked, factors[keep], {}, whole)
            found = e.answers(want)
        gathered.add(rows, part.log_z + conditioned.constant(given), found)
    return gathered.complete()
