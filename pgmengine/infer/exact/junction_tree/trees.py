"""The junction tree of some rows of evidence: its states, and what a pass over it costs.

A tree belongs to the rows of one evidence pattern, or to rows of several patterns that share it
(shared_rows.py). planning.py finds the trees of a question, and elimination.py passes messages on
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine._kernels import JunctionTree, restricted_entries
from pgmengine.base.types import Array
from pgmengine.base.work.division import blocks
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned, Form
from pgmengine.infer.exact.junction_tree.cutset import Cutset, Factors, condition_on_cutset
from pgmengine.infer.exact.junction_tree.elimination_order import Order
from pgmengine.infer.exact.junction_tree.factors import Term
from pgmengine.infer.exact.junction_tree.impossible_states import Possible
from pgmengine.infer.exact.shared_rows import freed, observed_states

# Number of passes over a tree for marginals; log Z alone takes one.
PASSES_FOR_MARGINALS = 3

# Quantities that need the marginals of units.
NEED_MARGINALS = {"marginals", "pairs", "gradient", "joint"}

# Largest size, in bytes, of the tables of the rows that share a pass.
MAX_PASS_BYTES = 256 * 2**20

# Largest number of table entries that are copied into one array for a pass.
MAX_JOINED_ENTRIES = 2**16

# Largest number of table entries of any junction tree, whatever limit is given.
MAX_TREE_ENTRIES = 2.0**50


@dataclass(frozen=True)
class Limits:
    """The largest number of table entries of a tree, and of all passes given a cutset."""

    max_states: float
    work: float

    @property
    def states(self) -> float:
        """The largest number of table entries that a tree may have."""
        return min(self.max_states, MAX_TREE_ENTRIES - 1)


@dataclass(frozen=True, eq=False)
class Tree:
    """Rows of one evidence pattern, or rows that share a tree, with factors and junction tree."""

    rows: Array
    form: Form
    # Layer -> (size,) bool: the units that are free in the tree. Other units are observed in a row,
    # or are absent from it.
    free: dict[str, Array]
    # The key under which the structure remembers the tree.
    key: tuple[Any, ...]
    conditioned: Conditioned
    order: Order
    tree: JunctionTree
    # The factors without impossible states, where these were removed.
    possible: Possible | None = None
    # (rows, 2), if the rows have passes of their own: the number of entries of all cliques, and of
    # the largest clique, over the states that are possible for each row.
    restricted: Array | None = None
    # The variables on which the tree is conditioned.
    cutset: Cutset | None = None

    def within(self, limits: Limits, target: Target) -> Tree:
        """Return the tree given a cutset, if it has too many entries and a cutset helps."""
        if self.restricted is not None or self.order.entries <= limits.states:
            return self
        conditioned, p = self.conditioned, self.possible
        factors = Factors(conditioned.states, conditioned.scopes.start, conditioned.scopes.scope)
        if p is not None:
            factors = Factors(np.maximum(p.cards, 1), p.start, p.scope)
        found = target.structure.memo.recall(
            ("cutset", limits, *self.key),
            lambda: condition_on_cutset(factors, self.order, limits.states, limits.work),
        )
        if found is None:
            return self
        return replace(self, order=found[0], tree=found[1].tree, cutset=found[1])

    @property
    def passes(self) -> int:
        """The number of passes: one for each joint state of the cutset, 1 without a cutset."""
        return 1 if self.cutset is None else self.cutset.states

    @property
    def shared(self) -> bool:
        """Whether units that are free in the tree may be observed in some rows."""
        return self.form.seen or self.restricted is not None

    @property
    def by_value(self) -> bool:
        """Whether other values of the evidence may need another tree."""
        values = self.possible is not None or self.restricted is not None
        return values or self.form.small

    @property
    def total(self) -> float:
        """The table entries of the pattern, or of all rows that share the tree together."""
        return self.order.entries if self.restricted is None else float(self.restricted[:, 0].sum())

    @property
    def most(self) -> float:
        """The largest number of table entries of a row."""
        return self.order.entries if self.restricted is None else float(self.restricted[:, 0].max())

    @property
    def largest(self) -> float:
        """log2 of the table entries of the largest clique."""
        if self.restricted is None:
            return self.order.largest
        return float(np.log2(max(self.restricted[:, 1].max(), 1.0)))

    def given(self, target: Target) -> Target:
        """Return the target in which the units of the tree are free, and no others."""
        return freed(target, self.free)

    def values(self, parts: list[Array], lanes: int) -> tuple[list[Array], Array]:
        """Return the entries of all factors at the possible states, and which factors have lanes.

        `parts` are the entries (entries, lanes or 1) of all terms. Large numbers of entries are not
        copied, but stay in several arrays.
        """
        if self.possible is not None:
            ends, stays = np.cumsum([0, *map(len, parts)]), self.possible.stays
            parts = [part[stays[a : a + len(part)]] for a, part in zip(ends, parts, strict=False)]
        flat = [part.ravel() for part in parts]
        if self._joins or sum(map(len, flat)) <= MAX_JOINED_ENTRIES:
            flat = [np.concatenate([np.empty(0), *flat])]
        if lanes == 1:
            return flat, np.ones(len(self.conditioned.scopes), dtype=np.uint8)
        wide = np.array([part.shape[1] > 1 for part in parts], dtype=np.uint8)
        return flat, np.repeat(wide, [len(term.scopes) for term in self.conditioned.terms])

    def lane(self, parts: list[Array], lane: int) -> Array:
        """Return the entries of all factors in one lane of a tree that joins them."""
        (values,), _ = self.values([part[:, [lane % part.shape[1]]] for part in parts], 1)
        return values

    @property
    def _joins(self) -> bool:
        """Return whether the passes need the entries of all factors in one array."""
        return self.cutset is not None or self.restricted is not None

    def sizes(self, target: Target, rows: Array) -> Array:
        """Return the entries of all cliques and of the largest one, over the states of each row."""
        found = [np.empty((0, 2))]
        for part in blocks(rows, MAX_PASS_BYTES / (16 * max(self.conditioned.sizes.sum(), 1))):
            some = target if len(part) == target.rows else target.take(part)
            parts = self.conditioned.tables(self.given(some))
            values, wide = self.values(parts, some.rows)
            seen = observed_states(some, self.conditioned, self.possible)
            joint = np.concatenate(values) if len(values) != 1 else values[0]
            found.append(restricted_entries(self.tree, joint, seen, wide=wide))
        return np.concatenate(found)

    def all_states(self, units: Array) -> Array:
        """Return the marginals of the units, with 0 at the states that were removed."""
        if self.possible is None:
            return units
        first = np.cumsum([0, *self.conditioned.states])
        places = [a + kept for a, kept in zip(first, self.possible.kept, strict=False)]
        out = np.zeros((first[-1], units.shape[1]))
        out[np.concatenate(places)] = units
        return out

    def all_entries(self, asked: Array, found: Array) -> Array:
        """Return the marginals of the wanted factors, with 0 at the states that were removed."""
        if self.possible is None:
            return found
        sizes = self.conditioned.sizes
        mine = np.zeros(len(sizes), dtype=bool)
        mine[asked] = True
        stays = self.possible.stays[np.repeat(mine, sizes)]
        out = np.zeros((len(stays), found.shape[1]))
        out[stays] = found
        return out

    def named(self, states: Array) -> Array:
        """Return states (..., units) of the tree as states of the model."""
        if self.possible is None:
            return states
        kept = np.zeros((len(self.possible.kept), max(self.conditioned.states)), dtype=int)
        for i, some in enumerate(self.possible.kept):
            kept[i, : len(some)] = some
        return np.asarray(kept[np.arange(len(kept)), states])

    def work(self, kinds: set[str], draws: int) -> float:
        """Return the number of table entries of all passes and rows."""
        passes = 1 + (PASSES_FOR_MARGINALS - 1) * bool(NEED_MARGINALS & kinds) + ("mode" in kinds)
        if "marginals" in kinds:
            passes += sum(map(len, self.conditioned.separate.values()))
        drawn = draws * len(self.conditioned.free.states) * ("samples" in kinds)
        rows = len(self.rows)
        every = rows * self.total if self.restricted is None else self.total
        return passes * self.passes * every + rows * drawn

    def bytes(self, kinds: set[str], draws: int, answers: float) -> tuple[float, float]:
        """Return the largest memory of a pass in bytes: of its rows, and of tables that they share.

        `answers` are the bytes of answers that are made after all passes, when tables and messages
        are freed.
        """
        if len(self.rows) == 1:
            return self._bytes(1, kinds, draws, answers), 0.0
        rows = min(len(self.rows), self.at_once(kinds, draws))
        common = self._bytes(0, kinds, draws, answers)
        return max(self._bytes(rows, kinds, draws, answers) - common, 0.0), common

    def at_once(self, kinds: set[str], draws: int) -> int:
        """Return the number of rows that share a pass."""
        if len(self.rows) == 1:
            return 1
        each = self._bytes(2, kinds, draws) - self._bytes(1, kinds, draws)
        return int(max(1, MAX_PASS_BYTES // max(each, 1)))

    def _bytes(self, rows: int, kinds: set[str], draws: int, answers: float = 0.0) -> float:
        """Return the bytes of a pass over some rows: of its results, tables and messages."""
        c, draws = self.conditioned, draws if "samples" in kinds else 0
        units = float(c.free.states.sum())
        asked = c.asked_entries(kinds) if NEED_MARGINALS & kinds else 0.0
        # A drawn state takes 4 bytes, and 8 more while values are looked up.
        results = 12.0 * rows * draws * len(c.free.states)
        # Marginals of the units, and of the factors that are asked for.
        results += 8.0 * rows * (2 * units + asked * (1 if self.possible is None else 2))
        needs = self._pass_bytes(rows, bool(kinds - {"log_z"}), draws)
        return results + max(needs - answers, 0.0)

    def _pass_bytes(self, rows: int, more: bool, draws: int) -> float:
        """Return the memory of tables and messages; `more`: whether more than log Z is wanted."""
        entries = [0.0, 0.0]
        for term, left in self.entries_left:
            entries[term.by_row] += left
        narrow, wide = entries
        # The values of all terms, and copies of those at possible states, or of all joined.
        memory = self.conditioned.held(rows)
        if self.possible is not None or self._joins or narrow + wide * rows <= MAX_JOINED_ENTRIES:
            memory += 8.0 * (narrow + wide * rows)
        if self.possible is not None:
            memory += 2.0 * len(self.possible.stays)
        if self.cutset is not None:
            return memory + self.cutset.bytes(narrow + wide, more, draws)
        if self.restricted is None:
            return memory + float(self.tree.bytes(rows, more, draws, narrow))
        # For one row: the tables, the places of one table, the messages, and tables of sums.
        most = float(self._sizes_left.max(initial=1.0))
        return memory + 8.0 * (narrow + wide) + 8.0 * most + 32.0 * self.most

    @property
    def _sizes_left(self) -> Array:
        """The number (factors,) of entries of each factor at the states that are left."""
        p = self.possible
        return self.conditioned.sizes if p is None else Factors(p.cards, p.start, p.scope).sizes

    @cached_property
    def entries_left(self) -> list[tuple[Term, float]]:
        """All terms with the number of their entries at the states that are left."""
        spans = self.conditioned.spans
        if self.possible is None:
            return [(term, float(span.stop - span.start)) for term, _, span in spans]
        sizes = self._sizes_left
        return [(term, float(sizes[place].sum())) for term, place, _ in spans]

    @property
    def described(self) -> str:
        """The tree in words."""
        causes = self.conditioned.described
        conditioning = ""
        if self.cutset is not None:
            count = len(self.cutset.variables)
            conditioning = (
                f", conditioning on a cutset of {count} variable{'s' * (count > 1)} with "
                f"2^{np.log2(self.passes):.4g} joint states"
            )
        cliques = f"{self.tree.cliques} clique{'s' * (self.tree.cliques != 1)}"
        sharing = f", shared by {len(self.rows)} rows" if self.shared else ""
        return (
            f"junction tree of {cliques}{sharing}, largest 2^{self.largest:.4g} states, "
            f"2^{math.log2(max(self.most, 1.0)):.4g} in all{conditioning}"
        ) + (f" ({causes})" if causes else "")
