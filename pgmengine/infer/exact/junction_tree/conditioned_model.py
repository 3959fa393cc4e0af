"""The conditioned model of one evidence pattern: all of its factors.

`Conditioned` holds the terms of a pattern and the positions of their factors among all factors. It
computes the tables of any rows of the pattern. `condition` plans it from one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.base.work.division import blocks
from pgmengine.base.work.memory import no_room
from pgmengine.evidence.target import Target, check_one
from pgmengine.infer.exact.junction_tree.causal_independence import (
    AbsentTerm,
    ChainTerm,
    absent_children,
    absent_term,
    chain_term,
    chained,
    check_mode,
    passage,
    passing,
    separate_units,
)
from pgmengine.infer.exact.junction_tree.factors import (
    FreeUnits,
    Scopes,
    SeenTerm,
    Term,
    free_units,
    joined,
    pair_term,
    unit_term,
)
from pgmengine.infer.exact.junction_tree.marginalised import (
    ChildTerm,
    Field,
    InfiniteTerm,
    child_fields,
    child_term,
    infinite_term,
)
from pgmengine.infer.exact.junction_tree.table_terms import (
    Entries,
    FreeTables,
    SlicedTables,
    TablesTerm,
    TableTerm,
    observed_constant,
    table_terms,
)
from pgmengine.model.graph.unit_graph import acts

T = TypeVar("T", bound=Term)

# Rows are searched together for impossible states as long as their tables have at most
# MAX_SEARCH_BYTES. While a table is filled, there are COPIES_PER_FILLED_TABLE copies of it.
MAX_SEARCH_BYTES = 2.0**26
COPIES_PER_FILLED_TABLE = 2


@dataclass(frozen=True)
class Form:
    """The choices about the factors of a question.

    Attributes
    ----------
    structural : make a factor of every parameter of a coupling, zero or not.
    joints : sets of units, numbered over all layers, whose joint distribution is wanted.
    pairs : whether the pairs of all couplings are wanted.
    maximum : whether the mode is wanted, which needs the largest term of the sum; log Z may be
        wanted as well.
    small : use the small tables of causal_independence.py. The factors then also depend on the
        observed values of the units with independent causes.
    seen : make a factor of each free unit, for the rows that observe it (shared_rows.py).
    absent : layers with infinitely many values of which units are absent from some rows, and whose
        means are wanted.
    bounded : leave out states that are in no mode (mode_bounds.py), as only the mode is wanted.
    """

    structural: bool = False
    joints: tuple[tuple[int, ...], ...] = ()
    pairs: bool = False
    maximum: bool = False
    small: bool = False
    seen: bool = False
    absent: tuple[str, ...] = ()
    bounded: bool = False


# The kinds of terms that tables have.
KINDS_OF_TABLE_TERMS = (TableTerm, FreeTables, SlicedTables)

# Wanted quantities that need a factor for every parameter.
NEED_ALL_FACTORS = {"pairs", "gradient"}

# Seconds to fill a table entry that is a function of a field.
FILLED_ENTRY_SECONDS = 1e-7


@dataclass(frozen=True, eq=False)
class JointTerm:
    """Scopes whose joint distributions are wanted; all entries of their factors are 0."""

    scopes: Scopes
    entries: int

    by_row = False

    def values(self, target: Target) -> Array:
        """Return zeros."""
        return np.zeros((self.entries, 1))


@dataclass(frozen=True, eq=False)
class Conditioned:
    """The factors of one evidence pattern.

    Attributes
    ----------
    free : its free units.
    states : (variables,) the numbers of states of the free units, and of auxiliary variables.
    terms : its factors by kind.
    scopes : the scopes of all factors, in the order of the terms.
    sizes : (factors,) the number of entries of each.
    counted : (tables,) whether each table of the model is part of the density.
    whole : the entries of the counted tables without a free unit.
    separate : layer -> the barren units whose probabilities are wanted, but which are in no factor.
    passing : the elimination order along all chains (causal_independence.passing); None without
        chains.
    absent : layers of which units are absent from some rows, see `Form`.
    """

    free: FreeUnits
    states: Array
    terms: tuple[Term, ...]
    scopes: Scopes
    sizes: Array
    counted: Array
    whole: Entries
    separate: dict[str, Array]
    passing: Array | None
    absent: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """The small tables of units with independent causes in words; empty without any."""
        absent = ones = free = 0
        for term in self.terms:
            if isinstance(term, AbsentTerm):
                absent += int(term.children.sum())
            elif isinstance(term, ChainTerm):
                ones += int(np.sum(term.observed))
                free += int(np.sum(~term.observed))
        each = ((absent, "at 0 absorbed"), (ones, "at 1 as chains"), (free, "free as chains"))
        found = ", ".join(f"{count} {how}" for count, how in each if count)
        return f"units with independent causes: {found}" if found else ""

    def tables(self, target: Target, seen: Array | None = None) -> list[Array]:
        """Return the entries of each term, (entries, rows) or (entries, 1).

        `seen` (rows, free units) are the states that rows observe, -1 where they do not.
        """
        return [
            term.likelihoods(seen)
            if isinstance(term, SeenTerm) and seen is not None
            else term.values(target)
            for term in self.terms
        ]

    def finite_entries(self, target: Target) -> Array:
        """Return the entries (entries, lanes) of all factors; PgmError if a state is impossible."""
        tables = self.tables(target)
        lanes = max([table.shape[1] for table in tables], default=1)
        parts = [np.broadcast_to(table, (len(table), lanes)) for table in tables]
        entries = np.concatenate([np.zeros((0, lanes)), *parts])
        if self.excluding(target)[0] or not np.isfinite(entries).all():
            raise PgmError("entries of tables are 0, which couplings cannot express")
        return entries

    def impossible(self, target: Target) -> Array:
        """Return whether each entry (entries,) is -inf in all rows.

        Entries of tables can be -inf. So can entries of children with independent causes: such a
        child is 0 with certainty where no cause is present. A few rows are examined at a time.
        Raises PgmError if not even one row fits in memory.
        """
        out = np.zeros(int(self.sizes.sum()), dtype=bool)
        some = [(term, span) for term, _, span in self.spans if _may_exclude(target, term)]
        entries = float(sum(place.stop - place.start for term, place in some if term.by_row))
        each = COPIES_PER_FILLED_TABLE * 8.0 * entries
        if why := no_room(each):
            raise PgmError(f"the factors of a row have {self.sizes.sum():.3g} entries: {why}")
        for term, place in some:
            if not term.by_row:
                np.isneginf(term.values(target)[:, 0], out=out[place])
        rows = [(term, place) for term, place in some if term.by_row]
        parts = blocks(np.arange(target.rows), MAX_SEARCH_BYTES / max(each, 1.0)) if rows else []
        for number, part in enumerate(parts):
            given = target if len(parts) == 1 else target.take(part)
            for term, place in rows:
                found = np.isneginf(term.values(given)).all(axis=1)
                out[place] = found & out[place] if number else found
        return out

    @property
    def filling(self) -> float:
        """About the seconds that it takes to fill the tables of a row.

        Only entries that are functions of a field count. All other entries are read from the
        parameters.
        """
        fields = ChildTerm, InfiniteTerm
        entries = [s.stop - s.start for term, _, s in self.spans if isinstance(term, fields)]
        return float(FILLED_ENTRY_SECONDS * sum(entries))

    def excluding(self, target: Target) -> tuple[float, float]:
        """Return the number of entries that can be -inf, and about the seconds of filling them."""
        some = [(t, s.stop - s.start) for t, _, s in self.spans if _may_exclude(target, t)]
        filled = sum(entries for term, entries in some if isinstance(term, ChildTerm))
        return float(sum(entries for _, entries in some)), FILLED_ENTRY_SECONDS * filled

    def largest(self, target: Target, seen: Array | None, given: Target) -> list[Array]:
        """Return the entries for the mode: marginalised units count with their largest weight.

        So do units that are absent from the rows as they were given.
        """
        out = self.tables(target, seen)
        for i, term in enumerate(self.terms):
            if isinstance(term, InfiniteTerm):
                out[i] = term.largest(target)
            elif isinstance(term, ChildTerm):
                out[i] = term.largest(target, given)
        return out

    def constant(self, target: Target) -> Array:
        """Return the part (rows,) of the log weights that is equal for all states of free units."""
        total = observed_constant(target, self.whole)
        for term, _ in self.infinite:
            total = total + term.constant(target)
        return total

    @cached_property
    def infinite(self) -> list[tuple[InfiniteTerm, slice]]:
        """The terms of units with infinitely many values, with the places of their factors."""
        return self.places(InfiniteTerm)

    @cached_property
    def for_means(self) -> Array:
        """The factors that give means and joint distributions by their marginals, ascending.

        Means of units with infinitely many values are read from the factors of their neighbours,
        or from their own in rows from which they are absent.
        """
        ranges = [np.arange(p.start, p.stop) for term, p, _ in self.spans if self._gives(term)]
        return np.concatenate(ranges) if ranges else np.empty(0, dtype=np.int64)

    def asked(self, kinds: set[str]) -> Array:
        """Return the factors whose marginals the wanted quantities need, ascending."""
        return np.arange(len(self.scopes)) if NEED_ALL_FACTORS & kinds else self.for_means

    def asked_entries(self, kinds: set[str]) -> float:
        """Return the number of entries of these factors."""
        every = NEED_ALL_FACTORS & kinds
        spans = [s for term, _, s in self.spans if every or self._gives(term)]
        return float(sum([s.stop - s.start for s in spans]))

    def _gives(self, term: Term) -> bool:
        """Return whether the marginals of the factors of a term give means or joint ones."""
        if isinstance(term, ChildTerm):
            return term.name in self.absent
        return isinstance(term, (InfiniteTerm, JointTerm))

    def places(self, kind: type[T] | tuple[type[T], ...]) -> list[tuple[T, slice]]:
        """Return the terms of a kind, or of several, with the places of their factors."""
        return [(term, place) for term, place, _ in self.spans if isinstance(term, kind)]

    @cached_property
    def spans(self) -> list[tuple[Term, slice, slice]]:
        """All terms, with the places of their factors, and of their entries."""
        out, first, begin = list[tuple[Term, slice, slice]](), 0, 0
        ends = self.sizes.cumsum()
        for term in self.terms:
            last = first + len(term.scopes)
            end = int(ends[last - 1]) if last else 0
            out.append((term, slice(first, last), slice(begin, end)))
            first, begin = last, end
        return out

    @property
    def tabled(self) -> list[tuple[TablesTerm, slice]]:
        """The terms of the tables of the model, with the places of their factors."""
        return self.places(KINDS_OF_TABLE_TERMS)

    def held(self, lanes: int) -> float:
        """Return the bytes of the entries of all terms, and of their places."""
        total = 0.0
        for term, _, span in self.spans:
            if isinstance(term, KINDS_OF_TABLE_TERMS):
                total += term.held(lanes)
            else:
                total += 8.0 * (span.stop - span.start) * (lanes if term.by_row else 1)
        return total


def _may_exclude(target: Target, term: Term) -> bool:
    """Return whether entries of a term can be -inf: those of tables and of independent causes."""
    if isinstance(term, ChildTerm):
        return target.structure.layers[term.name].unit.independent_causes
    if isinstance(term, KINDS_OF_TABLE_TERMS):
        return not target.model.table_sizes[1][term.tables].all()
    return isinstance(term, ChainTerm)


def condition(target: Target, form: Form) -> Conditioned:
    """Return the factors of a target with one row of evidence.

    Parameters
    ----------
    target : one row, which stands for all rows of the pattern (`one_for_all`).
    form : the form of the factors.

    Raises
    ------
    PgmError if a term is no table, or too large a table.
    """
    check_one(target)
    s = target.structure
    left_out = _left_out(target, form)
    uncounted = {name: mask[0] for name, mask in target.intervened.items()}
    uncounted |= {name: uncounted[name] | mask for name, mask in left_out.items()}
    child = s.table_index.child
    counted = ~np.concatenate([uncounted[name] for name in s.layers])[child] | (child < 0)
    free = free_units(target, left_out)
    of_tables, full = table_terms(target, free, counted)
    terms: list[Term | None] = [unit_term(target, free), *of_tables]
    for c in s.undirected:
        terms.append(pair_term(target, free, c, acts(target.model, c, form.structural)))
    chains = dict[str, list[Field]]()
    for name, layer in s.layers.items():
        if name in s.directed_layers:
            children = ~uncounted[name]
            if layer.unit.support is None:
                children &= ~target.free[name][0]
            if form.small:
                absent = children & absent_children(target, name)
                children &= ~absent
                terms.append(absent_term(target, free, name, absent))
            fields = child_fields(target, free, name, children, form.structural)
            small = form.small and not form.maximum
            if form.maximum:
                check_mode(target, fields)
            chains[name] = [f for f in fields if small and chained(target, f)]
            whole = [f for f in fields if not (small and chained(target, f))]
            terms.append(child_term(target, free, name, whole))
        if (
            layer.unit.support is None
            and (target.free[name][0] & ~left_out.get(name, np.False_)).any()
        ):
            terms.append(infinite_term(target, free, name, form.structural))
    links, order = _links(target, free, chains, form.pairs)
    terms += links
    if form.joints:
        terms.append(_joint_term(free, form.joints))
    if form.seen:
        terms.append(SeenTerm(free))
    kept = tuple([term for term in terms if term is not None])
    scopes = joined([term.scopes for term in kept])
    states = free.states
    if auxiliaries := sum([link.auxiliaries for link in links]):
        states = np.concatenate([states, np.full(auxiliaries, 2)])
    sizes = _sizes(states, scopes)
    # Barren units that are in no factor still have means, which are computed on their own.
    separate = {name: np.flatnonzero(mask) for name, mask in left_out.items()}
    return Conditioned(
        free, states, kept, scopes, sizes, counted, full, separate, order, form.absent
    )


def _sizes(states: Array, scopes: Scopes) -> Array:
    """Return the number of entries (factors,) of each factor."""
    members, start = states[scopes.scope], scopes.start
    empty = start[1:] == start[:-1]
    if not np.count_nonzero(empty):
        return np.multiply.reduceat(members, start[:-1]) if len(scopes) else members
    sizes = np.multiply.reduceat(np.concatenate([members, [1]]), start[:-1])
    sizes[empty] = 1
    return sizes


def _left_out(target: Target, form: Form) -> dict[str, Array]:
    """Return layer -> (size,) bool: the barren units that are in no factor, where there are any."""
    s, left_out = target.structure, dict[str, Array]()
    if form.small and not form.pairs and not form.maximum:
        left_out = separate_units(target, form.structural)
        for name, mask in left_out.items():
            mask[[u - s.first_unit[name] for u in _within(target, name, form.joints)]] = False
    return {name: mask for name, mask in left_out.items() if mask.any()}


def _links(
    target: Target, free: FreeUnits, chains: dict[str, list[Field]], pairs: bool
) -> tuple[list[ChainTerm], Array | None]:
    """Return the chains of all layers, and the elimination order of one passage over them."""
    fields = [f for some in chains.values() for f in some]
    if not fields:
        return [], None
    variables, links = len(free.states), list[ChainTerm]()
    place = passage(fields, variables)
    for name, some in chains.items():
        term = chain_term(target, free, name, some, place, variables, pairs)
        if term is not None:
            links.append(term)
            variables += term.auxiliaries
    return links, passing(links, place, variables)


def _within(target: Target, name: str, joints: tuple[tuple[int, ...], ...]) -> list[int]:
    """Return the units of a layer that are in any of these sets, numbered over all layers."""
    first = target.structure.first_unit[name]
    last = first + target.structure.layers[name].size
    return [u for joint in joints for u in joint if first <= u < last]


def _joint_term(free: FreeUnits, joints: tuple[tuple[int, ...], ...]) -> JointTerm:
    """Return the term whose scopes are the free units of each of these sets of units."""
    lists = [[int(free.number[u]) for u in units if free.number[u] >= 0] for units in joints]
    start = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    scope = np.array([u for one in lists for u in one], dtype=np.int32)
    entries = sum(int(np.prod(free.states[one], dtype=np.int64)) for one in lists)
    return JointTerm(Scopes(start, scope), entries)
