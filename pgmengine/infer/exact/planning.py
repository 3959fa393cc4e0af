"""The trees of a question: one for each kind of rows, with its price or its refusal.

Rows with the same free units have one conditioned model (factors over the free units), one
elimination order, and one junction tree. Rows of other kinds share a tree where that is cheaper
(shared_rows.py). The structure remembers the factors, orders and trees of each kind, so that a
later question with such rows is planned quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from operator import attrgetter
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from pgmengine._kernels import JunctionTree
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import install
from pgmengine.base.types import Array
from pgmengine.base.work.division import check_divided
from pgmengine.base.work.executors import part_count
from pgmengine.base.work.memory import UNCHECKED_BYTES
from pgmengine.evidence.relevance import has_soft
from pgmengine.evidence.target import Target, one_for_all
from pgmengine.infer.diagnostics.rounding import fits
from pgmengine.infer.exact.gathered import Answer
from pgmengine.infer.exact.junction_tree.causal_independence import equal_findings, has_causes
from pgmengine.infer.exact.junction_tree.conditioned_model import (
    KINDS_OF_TABLE_TERMS,
    NEED_ALL_FACTORS,
    Conditioned,
    Form,
    condition,
)
from pgmengine.infer.exact.junction_tree.elimination_order import Order, best_order, has_order
from pgmengine.infer.exact.junction_tree.factors import weighs_units
from pgmengine.infer.exact.junction_tree.goatd_order import is_installed
from pgmengine.infer.exact.junction_tree.impossible_states import Possible, remove_impossible
from pgmengine.infer.exact.junction_tree.trees import (
    MAX_TREE_ENTRIES,
    PASSES_FOR_MARGINALS,
    Limits,
    Tree,
)
from pgmengine.infer.exact.marginal_map import ModePlan, found_modes, planned_modes
from pgmengine.infer.exact.mode_bounds import bounding_seconds, in_no_mode
from pgmengine.infer.exact.shared_rows import (
    MAX_LANE_ENTRIES,
    MIN_KINDS_TO_SHARE,
    MIN_ROWS_OF_OWN_TREE,
    NEED_NO_BARREN,
    KindOfRows,
    can_share,
    freed,
    joint_kind,
    kinds_of_rows,
    leaving,
    planning_seconds,
)
from pgmengine.infer.exact.zero_leaks import with_leaks, with_weights
from pgmengine.infer.results.answer_bytes import answer_bytes, peak_bytes
from pgmengine.infer.results.by_name import Joint, Mode, units_of
from pgmengine.infer.results.result import Plan, quantity
from pgmengine.model.terms.term import Term

# Seconds for one table entry in one pass, for each clique of a tree, and for each clique if a row
# has a tree of its own.
PASSED_ENTRY_SECONDS, TREE_CLIQUE_SECONDS, CLIQUE_SECONDS = 1.2e-9, 1e-7, 3e-7
# Seconds for an entry of the tables of the model: each pass makes it a probability, and a gradient
# counts it.
TABULATED_ENTRY_SECONDS, COUNTED_ENTRY_SECONDS = 2e-9, 1e-8
# Seconds for an entry that is looked up by the states of a row, and for counting it.
PLACED_ENTRY_SECONDS, COUNTED_PLACE_SECONDS = 1.4e-8, 5e-8
# Seconds for the likelihood of a state that other rows leave free, and for its answer.
SEEN_STATE_SECONDS = 4e-8
# Seconds for the passes on one tree of any size, besides the seconds for its entries.
CALL_SECONDS = 1.5e-4

# Longest search, in seconds, for an order that fits. There is no search if a quick order has a
# clique of more than 2^MAX_QUICK_BITS states, or if every order has one of more than
# 2^MAX_PROVEN_BITS.
MAX_SEARCH_SECONDS = 3.0
MAX_QUICK_BITS, MAX_PROVEN_BITS = 50, 34

# Longest search, in seconds, for a tree that rows of rare patterns share. It suffices for trees
# that fit.
MAX_SHARED_SEARCH_SECONDS = 0.05

# Trees with at most this number of table entries keep the quick order, because another search would
# take longer than elimination.
MAX_ENTRIES_WITHOUT_SEARCH = 2**12

# Causal independence is used if it takes less than this share of the time of tables over all
# parents.
MAX_SHARE_OF_WHOLE_TABLES = 1.0

# Only trees with more table entries are searched for impossible states, or use small tables for
# units with independent causes.
MIN_ENTRIES_TO_REDUCE = 2**16


@dataclass(frozen=True, eq=False)
class PlannedTrees:
    """The trees of a question, for all rows."""

    want: tuple[str, ...]
    posterior: list[Tree]
    # Trees of the model in which leaks of 0 are raised, for the gradient alone (zero_leaks.py).
    slope: list[Tree]
    limits: Limits
    target: ReferenceType[Target]
    modes: tuple[ModePlan, ...] = ()
    # The gates whose auxiliary variables are in the trees, in place of their tables.
    gates: tuple[Term, ...] = ()

    @property
    def without_modes(self) -> tuple[str, ...]:
        """The wanted quantities without modes of some units."""
        return _without_modes(self.want)

    def found_modes(self, target: Target) -> Answer:
        """Return the modes of some units that are wanted, if any are."""
        return found_modes(self.modes, target)

    @cached_property
    def trees(self) -> list[Tree]:
        """All trees."""
        return [*self.posterior, *self.slope]

    @cached_property
    def stats(self) -> dict[str, float]:
        """The table entries of the posterior's trees, and log2 of those of the largest clique."""
        width = max([tree.largest for tree in self.posterior], default=0.0)
        return {"width": width, "entries": sum([t.total for t in self.posterior], 0.0)}

    def scheme(self, target: Target, draws: int) -> Plan[PlannedTrees]:
        """Return the price of the trees for some draws of samples, or the refusal."""
        want = self.without_modes if self.modes else self.want
        trees, kinds = self.trees, {*map(quantity, want)}
        work = sum([tree.work(kinds, draws) for tree in trees])
        most = max(trees, key=attrgetter("most"))
        if most.most > self.limits.states:
            return Plan(work=work, refusal=self._refusal(most))
        working, fixed = self._needs(kinds, draws, 0.0)
        if (
            working + fixed >= UNCHECKED_BYTES
            and len(trees) == 1
            and part_count(work, target.rows) == 1
        ):
            # The answers of a single pass are made after it. With several passes, the answers of
            # earlier ones are in memory during a pass.
            if most.at_once(kinds, draws) >= target.rows:
                answers = answer_bytes(target, self.want, draws)
                working, fixed = self._needs(kinds, draws, answers)
        memory = peak_bytes(target, self.want, draws, work, working, fixed=fixed)
        seconds = work * PASSED_ENTRY_SECONDS
        for tree in trees:
            seconds += _seconds_of_tables(tree, kinds, draws)
        if "gradient" in kinds:
            seconds += COUNTED_ENTRY_SECONDS * float(target.structure.table_index.size.sum())
        for plan in self.modes:
            seconds += plan.seconds
            work += plan.entries * len(plan.rows)
            memory = max(memory, plan.bytes)
        return Plan(why=most.described, work=work, bytes=memory, seconds=seconds, basis=self)

    def _needs(self, kinds: set[str], draws: int, answers: float) -> tuple[float, float]:
        """Return the bytes of the largest pass: of its rows, and of the arrays that they share."""
        return max([tree.bytes(kinds, draws, answers) for tree in self.trees], key=sum)

    def _refusal(self, most: Tree) -> str:
        """Return the reason why the largest tree is too large."""
        limits = self.limits
        bits = [np.log2(max(x, 1)) for x in (most.most, limits.states)]
        refusal = (
            f"the best elimination order found needs 2^{bits[0]:.4g} table entries, the limit is "
            f"2^{bits[1]:.4g}; its width is {most.order.largest:.4g}, and no order has less "
            f"than {most.order.bound:.4g}"
        )
        if not is_installed() and most.order.bound < min(bits[1], most.order.largest):
            refusal += f"; the extra treewidth may find a better one: {install('goatd')}"
        if most.possible is not None:
            refusal += "; pgm.ModelCounting() may count the states that zeros leave"
            refusal += "" if find_spec("pyganak") else f": {install('pyganak')}"
        if limits.work > 0:
            refusal += self._cutset_refusal(most)
        if limits.max_states >= MAX_TREE_ENTRIES:
            refusal += f" (max_states is {limits.max_states:.4g}; 2^50 is too much for any tree)"
        if causes := most.conditioned.described:
            refusal += f" ({causes})"
        return refusal

    def _cutset_refusal(self, most: Tree) -> str:
        """Return the reason why conditioning on a cutset does not help."""
        limits, variables = self.limits, len(most.conditioned.states)
        if limits.states < variables:
            # A variable of the cutset keeps a table of one entry.
            return f"; even a cutset of all {variables} variables leaves as many entries"
        # All passes together have at least the entries of the whole tree.
        cutset = "any cutset" if most.most > limits.work else "the cutset that a search chose"
        return (
            f"; with {cutset} it needs more than 2^{np.log2(limits.work):.4g} entries in all passes"
        )

    def on(self, target: Target) -> PlannedTrees:
        """Return the trees of the question for a target with the same evidence pattern.

        Its values decide which states are possible. The structure remembers the trees of values
        that were asked about before.
        """
        if self.target() is target or not any(tree.by_value for tree in self.trees):
            return self
        return planned_trees(target, self.want, self.limits)


def _seconds_of_tables(tree: Tree, kinds: set[str], draws: int) -> float:
    """Return about the seconds of a tree besides its passes: for its tables, and for the calls."""
    rows, c = len(tree.rows), tree.conditioned
    passes = math.ceil(rows / tree.at_once(kinds, draws)) * tree.passes
    each = TABULATED_ENTRY_SECONDS + PLACED_ENTRY_SECONDS
    if "gradient" in kinds:
        each += COUNTED_PLACE_SECONDS
    seconds = CALL_SECONDS + rows * c.filling + TREE_CLIQUE_SECONDS * (len(c.scopes.start) - 1)
    for term, entries in tree.entries_left:
        if isinstance(term, KINDS_OF_TABLE_TERMS):
            by_row = term.by_row
            seconds += entries * (rows * each if by_row else passes * TABULATED_ENTRY_SECONDS)
    if tree.form.seen:
        seconds += SEEN_STATE_SECONDS * rows * float(c.states.sum())
    return seconds


def planned_trees(target: Target, want: tuple[str, ...], limits: Limits) -> PlannedTrees:
    """Return the trees of a question; PgmError where a term is no table."""
    if modes := [w for w in want if type(w) is Mode]:
        others = planned_trees(target, _without_modes(want), limits)
        return replace(others, want=want, modes=tuple(planned_modes(target, modes, limits)))
    steep = lifted(target) if "gradient" in want else target
    if steep is target:
        return PlannedTrees(want, _trees(target, want, limits), [], limits, ref(target))
    rest = tuple(w for w in want if w != "gradient") or ("log_z",)
    slope = _trees(steep, ("gradient",), limits)
    return PlannedTrees(want, _trees(target, rest, limits), slope, limits, ref(target))


def _without_modes(want: tuple[str, ...]) -> tuple[str, ...]:
    """Return wanted quantities without modes of some units, and at least log Z."""
    return tuple(w for w in want if not isinstance(w, Mode)) or ("log_z",)


def lifted(target: Target) -> Target:
    """Return the target with leaks and weights of 0 raised to LIFT (zero_leaks.py)."""
    return with_weights(with_leaks(target))


def rough_entries(target: Target, most: float) -> float:
    """Return the number of table entries of a tree by a quick order, for the largest pattern.

    The tree is one for samples. The number is infinite if a term cannot be a table, or if no quick
    order has at most `most` entries.
    """
    form, every = Form(), kinds_of_rows(target, {}, means=False)
    try:
        if not all(_has_order(target, kind.rows, form, most) for kind in every):
            return np.inf
        return max(_draft(target, kind, form).rough.entries for kind in every)
    except PgmError:
        return np.inf


def has_narrow_tree(target: Target, most: float) -> bool:
    """Return whether a quick search finds a tree of at most `most` entries for the first row."""
    try:
        return _has_order(target, np.zeros(1, dtype=int), Form(), most)
    except PgmError:
        return False


def _trees(target: Target, want: tuple[str, ...], limits: Limits) -> list[Tree]:
    """Return the trees of all rows: shared ones where that is cheaper, else one for each kind."""
    kinds = {*map(quantity, want)}
    structural = bool(NEED_ALL_FACTORS & kinds)
    absent = leaving(target, kinds, structural)
    means = bool(kinds - NEED_NO_BARREN)
    form = Form(
        structural=structural,
        joints=tuple(units_of(target.structure, w) for w in want if isinstance(w, Joint)),
        pairs="pairs" in kinds,
        maximum="mode" in kinds,
        bounded=kinds == {"mode"},
        absent=tuple(absent) if means else (),
    )
    every = kinds_of_rows(target, absent, means)
    # The tables of a shared tree contain the terms of observed units. Large terms would cost
    # digits.
    sharing = can_share(target, every) and fits(target, single=False)
    trees = _shared(target, every, form, limits) if sharing else []
    # Rows of one kind may need different trees: their values leave different states possible.
    done = np.zeros(target.rows, dtype=bool)
    for tree in trees:
        done[tree.rows] = True
    for kind in every:
        if len(left := kind.rows[~done[kind.rows]]):
            own = _of_kind(target, replace(kind, rows=left), form)
            trees += [_row_by_row(t, target, limits.states).within(limits, target) for t in own]
    check_divided([tree.rows for tree in trees], target.rows, "junction trees")
    return trees


def _shared(target: Target, every: list[KindOfRows], form: Form, limits: Limits) -> list[Tree]:
    """Return the trees that rows of several kinds share, without rows for which they are too large.

    There is no such tree if a term is a table only under the evidence of a single row.
    """
    form = replace(form, seen=True)
    try:
        lanes = _lanes(target, every, form, limits)
        if lanes is not None:
            return [lanes]
        rare = [kind for kind in every if len(kind.rows) < MIN_ROWS_OF_OWN_TREE]
        whole = len(rare) >= MIN_KINDS_TO_SHARE
        return _restricted(target, rare, replace(form, seen=False), limits) if whole else []
    except PgmError:
        return []


def _lanes(target: Target, every: list[KindOfRows], form: Form, limits: Limits) -> Tree | None:
    """Return the tree whose lanes are the rows of many kinds; None where it is too large."""
    draft = _draft(target, joint_kind(every), form)
    if draft.rough.entries > min(MAX_LANE_ENTRIES, limits.states):
        return None
    alone = planning_seconds(draft.conditioned, 0.0)
    some = [kind for kind in every if len(kind.rows) * draft.seconds <= alone]
    if len(some) < MIN_KINDS_TO_SHARE:
        return None
    return (draft if len(some) == len(every) else _draft(target, joint_kind(some), form)).tree()


def _restricted(target: Target, kinds: list[KindOfRows], form: Form, limits: Limits) -> list[Tree]:
    """Return the tree on which each row of some kinds has passes over its possible states."""
    draft = _draft(target, joint_kind(kinds), form)
    filling = draft.conditioned.filling
    # The price is computed before any table is built: tables may have 2^parents entries.
    if filling > planning_seconds(draft.conditioned, draft.looked_at):
        return []
    tree = draft.tree(MAX_SHARED_SEARCH_SECONDS)
    alone = planning_seconds(tree.conditioned, draft.looked_at if tree.possible else 0.0)
    if filling > alone:
        return []
    sizes = tree.sizes(target, tree.rows)
    seconds = (
        PASSES_FOR_MARGINALS * PASSED_ENTRY_SECONDS * sizes[:, 0]
        + CLIQUE_SECONDS * tree.tree.cliques
        + filling
    )
    fits = (seconds <= alone) & (sizes[:, 0] <= limits.states)
    return [replace(tree, rows=tree.rows[fits], restricted=sizes[fits])] if fits.any() else []


def _row_by_row(tree: Tree, target: Target, most: float) -> Tree:
    """Return the tree of one pattern; its rows have passes of their own where that is cheaper.

    It is cheaper if the evidence of each row excludes many states that other rows leave possible.
    Otherwise the rows are lanes of one pass.
    """
    if (
        tree.possible is None
        or len(tree.rows) < MIN_ROWS_OF_OWN_TREE
        or not tree.possible.cards.all()
    ):
        return tree
    some = np.unique(np.linspace(0, len(tree.rows) - 1, MIN_ROWS_OF_OWN_TREE).astype(int))
    mean = tree.sizes(target, tree.rows[some])[:, 0].mean()
    if (
        mean * PASSED_ENTRY_SECONDS + tree.tree.cliques * CLIQUE_SECONDS
        > 0.5 * tree.order.entries * PASSED_ENTRY_SECONDS
    ):
        return tree
    sizes = tree.sizes(target, tree.rows)
    return replace(tree, restricted=sizes) if sizes[:, 0].max() <= most else tree


def _of_kind(target: Target, kind: KindOfRows, form: Form) -> list[Tree]:
    """Return the trees of one kind of rows.

    The small tables of units with independent causes depend on the observed values of these units,
    so that rows with different values have different trees. Small tables are planned if one tree
    for all rows is large.
    """
    if not has_causes(target):
        return [_draft(target, kind, form).tree()]
    seconds = np.inf
    try:
        whole = _draft(target, kind, form)
        if whole.rough.entries <= MIN_ENTRIES_TO_REDUCE:
            return [whole.tree()]
        seconds = whole.seconds
    except PgmError:
        # A table over all parents is too large, but small tables may fit.
        pass
    small = replace(form, small=True)
    drafts = [
        _draft(target, replace(kind, rows=some), small)
        for some in equal_findings(target, kind.rows)
    ]
    # Each row gets the tree that it would get alone, so that answers in parts have the same bits.
    large = [draft.rows for draft in drafts if draft.seconds >= MAX_SHARE_OF_WHOLE_TABLES * seconds]
    trees = [
        draft.tree() for draft in drafts if draft.seconds < MAX_SHARE_OF_WHOLE_TABLES * seconds
    ]
    if large:
        joined = replace(kind, rows=np.sort(np.concatenate(large)))
        trees.append(_draft(target, joined, form).tree())
    return trees


@dataclass(frozen=True, eq=False)
class Draft:
    """The factors of some rows of one kind, with a first elimination order."""

    # The rows, whose units are free, observed or absent as in the tree.
    target: Target
    kind: KindOfRows
    form: Form
    # The key under which the structure remembers factors, orders and trees.
    key: tuple[Any, ...]
    conditioned: Conditioned
    rough: Order
    # The tree of the first order, where no other order is sought.
    small: JunctionTree | None

    @property
    def seconds(self) -> float:
        """About the seconds to fill the tables of a row and to eliminate by the first order."""
        return (
            PASSES_FOR_MARGINALS * PASSED_ENTRY_SECONDS * self.rough.entries
            + self.conditioned.filling
        )

    @property
    def looked_at(self) -> float:
        """The number of entries that are examined to remove impossible states.

        It is 0 for small trees, and if the passes are faster than filling these entries.
        """
        if self.rough.entries <= MIN_ENTRIES_TO_REDUCE:
            return 0.0
        entries, filling = self.conditioned.excluding(self.target)
        passed = PASSES_FOR_MARGINALS * PASSED_ENTRY_SECONDS * self.rough.entries
        return entries if filling <= passed else 0.0

    @property
    def _bounded(self) -> bool:
        """Whether states that are in no mode are left out: those of one row, from a large tree."""
        c = self.conditioned
        # Marginalised units count with their largest weight, which the tables do not hold.
        if not self.form.bounded or len(self.rows) > 1 or c.infinite or c.absent:
            return False
        passed = PASSED_ENTRY_SECONDS * self.rough.entries
        return 0 < bounding_seconds(c.scopes, c.sizes) < passed

    def tree(self, search: float = MAX_SEARCH_SECONDS) -> Tree:
        """Return the tree of these rows.

        `search` is the time limit, in seconds, of the search for an order.
        """
        conditioned, memo = self.conditioned, self.target.structure.memo
        states, scopes = conditioned.states, conditioned.scopes

        def make() -> tuple[Order, JunctionTree]:
            order = self.rough
            if _may_fit(order):
                order = best_order(states, scopes.start, scopes.scope, search, conditioned.passing)
            return order, JunctionTree(states, scopes.start, scopes.scope, order.order)

        bounded = self._bounded
        if self.looked_at or bounded:
            zeros = conditioned.impossible(self.target)
            if bounded:
                tables = [part.ravel() for part in conditioned.tables(self.target)]
                zeros |= in_no_mode(states, scopes, np.concatenate(tables))
            if zeros.any():
                digest = sha256(np.packbits(zeros).tobytes()).digest()
                key = ("possible", search, digest, *self.key)
                found = memo.recall(key, lambda: _reduced(conditioned, zeros, search))
                return self._with(key, *found)
        key = ("tree", search, *self.key)
        if self.small is not None:
            return self._with(key, self.rough, self.small)
        return self._with(key, *memo.recall(key, make))

    def _with(
        self,
        key: tuple[Any, ...],
        order: Order,
        tree: JunctionTree,
        possible: Possible | None = None,
    ) -> Tree:
        """Return the tree of these rows."""
        rows, free = self.kind.rows, self.kind.free
        return Tree(rows, self.form, free, key, self.conditioned, order, tree, possible)

    @property
    def rows(self) -> Array:
        """The numbers of the rows."""
        return self.kind.rows


def _draft(target: Target, kind: KindOfRows, form: Form) -> Draft:
    """Plan the factors of some rows; PgmError if a term is no table, or too large a table."""
    rows = kind.rows
    some = freed(target if len(rows) == target.rows else target.take(rows), kind.free)
    one = one_for_all(some, np.arange(len(rows)))
    masks = [*one.free.values(), *one.intervened.values()]
    masks += [has_soft(one, name) for name in one.soft]
    if form.small:
        layers = target.structure.layers
        causes = [n for n in layers if layers[n].unit.independent_causes]
        masks += [one.evidence.values[name] for name in causes]
    acting = one.model.parameter_places if form.structural else one.model.nonzero_places
    key = (
        form,
        one.untempered,
        weighs_units(one),
        *one.soft,
        *map(np.ndarray.tobytes, masks),
        *acting,
    )
    memo = target.structure.memo

    def make() -> tuple[Conditioned, Order, JunctionTree | None]:
        c = condition(one, form)
        graph = c.states, c.scopes.start, c.scopes.scope
        rough = best_order(*graph, 0.0, c.passing)
        small = rough.entries <= MAX_ENTRIES_WITHOUT_SEARCH
        return c, rough, JunctionTree(*graph, rough.order) if small else None

    found: tuple[Conditioned, Order, JunctionTree | None] = memo.recall(("draft", *key), make)
    return Draft(some, kind, form, key, *found)


def drafts(target: Target, want: tuple[str, ...]) -> list[Draft]:
    """Return the factors of all rows, with quick elimination orders; PgmError as for trees.

    Units with independent causes are small tables unless marginals are wanted.
    """
    kinds = {*map(quantity, want)}
    means = bool(kinds - NEED_NO_BARREN)
    every, form = kinds_of_rows(target, leaving(target, kinds, False), means), Form()
    if means or not has_causes(target):
        return [_draft(target, kind, form) for kind in every]
    return [
        _draft(target, replace(kind, rows=rows), replace(form, small=True))
        for kind in every
        for rows in equal_findings(target, kind.rows)
    ]


def _has_order(target: Target, rows: Array, form: Form, most: float) -> bool:
    """Return whether a quick search finds an order of at most `most` entries.

    A search without a limit would continue even with cliques of thousands of units: it takes
    minutes for 20,000 coupled spins.
    """
    c = condition(one_for_all(target, rows), form)
    return has_order(c.states, c.scopes.start, c.scopes.scope, most)


def _may_fit(rough: Order) -> bool:
    """Return whether a longer search may still find an order that fits, after a quick one."""
    return rough.largest <= MAX_QUICK_BITS and rough.bound <= MAX_PROVEN_BITS


def _reduced(
    conditioned: Conditioned, zeros: Array, search: float
) -> tuple[Order, JunctionTree, Possible]:
    """Return the tree over the states that are possible for at least one row."""
    scopes, offered = conditioned.scopes, conditioned.passing
    p = remove_impossible(conditioned.states, scopes.start, scopes.scope, zeros)
    # If no state is possible, the sum is 0. The tree then has one state for each variable, and is
    # never run.
    cards = np.maximum(p.cards, 1)
    order = best_order(cards, p.start, p.scope, 0.0, offered)
    if _may_fit(order):
        order = best_order(cards, p.start, p.scope, search, offered)
    return order, JunctionTree(cards, p.start, p.scope, order.order), p
