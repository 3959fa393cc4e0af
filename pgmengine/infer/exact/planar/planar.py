"""Planar: exact answers on planar graphs of two-state units.

The free units of each evidence pattern are spins (spins.py). If their graph is planar, together
with the ghost where there are fields, then log Z is a determinant (kac_ward.py), and so are the
correlations of neighbours. A spin without any path to the ghost has the mean 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from weakref import ReferenceType, ref

import numpy as np

from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError
from pgmengine.base.rows import equal_rows
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.memory import no_room
from pgmengine.evidence.target import Target, evidence_patterns
from pgmengine.infer.exact.gathered import Answer, Gathered, exact_answers
from pgmengine.infer.exact.junction_tree.conditioned_model import NEED_ALL_FACTORS, Form
from pgmengine.infer.exact.junction_tree.expectations import FromMarginals
from pgmengine.infer.exact.junction_tree.factors import FreeUnits
from pgmengine.infer.exact.junction_tree.trees import NEED_MARGINALS
from pgmengine.infer.exact.least_width import least_width
from pgmengine.infer.exact.planar.drawing import drawing
from pgmengine.infer.exact.planar.kac_ward import COLUMNS_AT_ONCE, KacWard
from pgmengine.infer.exact.planning import lifted
from pgmengine.infer.exact.spins import Spins, conditioned_spins
from pgmengine.infer.question.prepared import AnyPrepared, Method, OtherPlanNeeded
from pgmengine.infer.results.answer_bytes import peak_bytes
from pgmengine.infer.results.by_name import Joint, units_of
from pgmengine.infer.results.result import Plan, Result, quantity
from pgmengine.model.graph.unit_graph import unit_graph
from pgmengine.model.structure import Structure

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
    """Rows of one evidence pattern, their graph and log Z.

    Attributes
    ----------
    rows : numbers of the rows.
    spins : the free units.
    ghosted : (units joined to the ghost,) their numbers.
    graph : the drawn graph; edges to the ghost follow after all others.
    couplings : (edges, different couplings) J of each edge.
    which : (rows,) which of these couplings each row has.
    log_z : (rows,) without the constant of the conditioned model.
    norm : the largest norm of an inverse.
    """

    rows: Array
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
        prune=not kinds & NEED_MARGINALS,
        structural=bool(NEED_ALL_FACTORS & kinds),
        joints=tuple(units_of(target.structure, w) for w in want if isinstance(w, Joint)),
        pairs="pairs" in kinds,
    )
    for rows in evidence_patterns(target):
        yield _part(target.take(rows), rows, form, kinds)


def _part(target: Target, rows: Array, form: Form, kinds: set[str]) -> Part:
    """Return the part of the rows of one evidence pattern, which are the rows of the target."""
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
    part = Part(rows, spins, ghosted, graph, J, every, np.broadcast_to(log_z, target.rows), norm)
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
        given = target.take(part.rows)
        conditioned, found = part.spins.conditioned, Answer()
        if not NEED_MARGINALS.isdisjoint(kinds):
            units, factors = part.marginals(kinds)
            asked = conditioned.asked(kinds)
            keep = np.repeat(np.isin(np.arange(len(conditioned.sizes)), asked), conditioned.sizes)
            e = FromMarginals(given, conditioned, units, asked, factors[keep], {})
            found = e.answers(want)
        gathered.add(part.rows, part.log_z + conditioned.constant(given), found)
    return gathered.complete()
