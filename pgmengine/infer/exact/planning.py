"""The trees of a question: one for each evidence pattern, with its price or its refusal.

Each evidence pattern has its conditioned model (factors over the free units), an elimination order,
and a junction tree. Rows of rare patterns share a tree (shared_rows.py). The structure remembers
what is found for a pattern, so that another question with this pattern plans little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
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
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.rounding import fits
from pgmengine.infer.exact.junction_tree.causal_independence import equal_findings, has_causes
from pgmengine.infer.exact.junction_tree.conditioned_model import (
    PAIRS,
    Conditioned,
    Form,
    condition,
)
from pgmengine.infer.exact.junction_tree.elimination_order import Order, best_order, has_order
from pgmengine.infer.exact.junction_tree.goatd_order import is_installed
from pgmengine.infer.exact.junction_tree.impossible_states import Possible, remove_impossible
from pgmengine.infer.exact.junction_tree.trees import MOMENTS, MOST, PASSES, Limits, Tree
from pgmengine.infer.exact.shared_rows import RARE, free_in_some, freed, planning_seconds, rare_rows
from pgmengine.infer.exact.zero_leaks import with_leaks, with_weights
from pgmengine.infer.question.prepared import Scheme
from pgmengine.infer.question.wanted import answer_bytes, evidence_patterns, one_for_all, peak_bytes
from pgmengine.infer.results.by_name import Joint, units_of
from pgmengine.infer.results.result import quantity

# Seconds for a table entry and a pass, and for a clique of a row that has a tree of its own.
ENTRY, CLIQUE = 3e-9, 3e-7
# Seconds for an entry of the tables of the model: it becomes a probability in each pass, and is
# counted in a gradient.
TABULATED, COUNTED = 2e-9, 1e-8
# Seconds for the passes on one tree, however small it is.
CALL = 1.5e-4

# Seconds of the search for an order that fits. There is none where a quick search finds a largest
# clique of more than 2^50 states, or proves that every order has one of more than 2^34.
SEARCH = 3.0
FAR, PROVEN = 50, 34

# The longest search for a tree that rows of rare patterns share. It is enough for trees that fit.
SHORT_SEARCH = 0.05

# Table entries up to which the quick search takes longer than elimination.
QUICK = 2**12

# Small tables are taken where they take less than this share of the time of whole tables.
WHOLE = 1.0

# Table entries above which impossible states may be looked for, and above which units with
# independent causes may have small tables.
WORTH = 2**16


@dataclass(frozen=True, eq=False)
class Planned:
    """The trees of a question: of the posterior, and of the model without evidence for log_prob."""

    want: tuple[str, ...]
    posterior: list[Tree]
    without_evidence: list[Tree]
    # Of leaks of 0 lifted, for the gradient alone (zero_leaks.py).
    slope: list[Tree]
    limits: Limits
    target: ReferenceType[Target]

    @property
    def trees(self) -> list[Tree]:
        """All trees."""
        return [*self.posterior, *self.without_evidence, *self.slope]

    @cached_property
    def width(self) -> float:
        """log2 of the table entries of the largest clique of the posterior."""
        return max((tree.largest for tree in self.posterior), default=0.0)

    @cached_property
    def entries(self) -> float:
        """The table entries of the trees of the posterior."""
        return float(sum(tree.entries.sum() for tree in self.posterior))

    def scheme(self, target: Target, draws: int) -> Scheme:
        """Return the price of the trees for some draws of samples, or the refusal."""
        work = sum(tree.work(draws, self.want) for tree in self.trees)
        most = max(self.trees, key=lambda tree: tree.most)
        if most.most > self.limits.states:
            return Scheme(work=work, refusal=self._refusal(most))
        working, fixed = self._needs(draws, 0.0)
        if (
            working + fixed >= UNCHECKED_BYTES
            and len(self.trees) == 1
            and part_count(work, target.rows) == 1
        ):
            # Answers of one pass are made after it; those of earlier passes are there during it.
            if most.at_once(self.want, draws) >= target.rows:
                working, fixed = self._needs(draws, answer_bytes(target, self.want, draws))
        memory = peak_bytes(target, self.want, draws, work, working, fixed=fixed)
        filling = sum(len(tree.rows) * tree.conditioned.filling for tree in self.trees)
        filling += TABULATED * sum(tree.tabulated(self.want, draws) for tree in self.trees)
        if "gradient" in self.want:
            filling += COUNTED * float(target.structure.table_index.first[-1])
        seconds = work * ENTRY + CALL * len(self.trees) + filling
        return Scheme(most.described, work, memory, seconds, self)

    def _needs(self, draws: int, answers: float) -> tuple[float, float]:
        """Return the bytes of the largest pass: of its rows, and of what they have in common."""
        return max((tree.bytes(self.want, draws, answers) for tree in self.trees), key=sum)

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
        if limits.work > 0:
            refusal += self._outside(most)
        if limits.max_states >= MOST:
            refusal += f" (max_states is {limits.max_states:.4g}; 2^50 is too much for any tree)"
        if causes := most.conditioned.described:
            refusal += f" ({causes})"
        return refusal

    def _outside(self, most: Tree) -> str:
        """Return the reason why variables outside are no help."""
        limits, variables = self.limits, len(most.conditioned.states)
        if limits.states < variables:
            # A variable outside keeps a table of one entry.
            return f"; even with all {variables} variables outside there are as many entries"
        # All passes together have at least the entries of the whole tree.
        chosen = "variables" if most.most > limits.work else "the variables that a search chose"
        return (
            f"; with {chosen} outside it needs more than 2^{np.log2(limits.work):.4g} entries in "
            "all passes"
        )

    def on(self, target: Target) -> Planned:
        """Return the trees of the question for a target with the same evidence pattern.

        Which states are possible depends on its values; the trees of values that were seen before
        are remembered by the structure.
        """
        if self.target() is target or not any(tree.by_value for tree in self.trees):
            return self
        return planned(target, self.want, self.limits)


def planned(target: Target, want: tuple[str, ...], limits: Limits) -> Planned:
    """Return the trees of a question; PgmError where a term is no table."""
    without: list[Tree] = []
    if "log_prob" in want and not normalised(target):
        without = _trees(target.nothing_observed, ("log_z",), limits)
    steep = lifted(target) if "gradient" in want else target
    if steep is target:
        return Planned(want, _trees(target, want, limits), without, [], limits, ref(target))
    rest = tuple(w for w in want if w != "gradient") or ("log_z",)
    slope = _trees(steep, ("gradient",), limits)
    return Planned(want, _trees(target, rest, limits), without, slope, limits, ref(target))


def lifted(target: Target) -> Target:
    """Return the target with leaks and weights of 0 lifted where they have a slope, or itself."""
    return with_weights(with_leaks(target))


def normalised(target: Target) -> bool:
    """Whether log Z without evidence is 0."""
    return target.structure.normalized and target.untempered


def rough_entries(target: Target, most: float) -> float:
    """Return the table entries of a tree for samples by a quick order, the largest of all patterns.

    It is infinite where a term is no table, and where no quick order has at most `most` entries.
    """
    form = Form(prune=False)
    try:
        if not all(_has_order(target, rows, form, most) for rows in evidence_patterns(target)):
            return np.inf
        return max(_draft(target, rows, form).rough.entries for rows in evidence_patterns(target))
    except PgmError:
        return np.inf


def _trees(target: Target, want: tuple[str, ...], limits: Limits) -> list[Tree]:
    """Return a tree for every evidence pattern, and one that rows of rare patterns share."""
    kinds = {quantity(w) for w in want}
    form = Form(
        prune=not kinds & {"samples", "mode", *MOMENTS},
        structural=bool(PAIRS & kinds),
        joints=tuple(units_of(target.structure, w) for w in want if isinstance(w, Joint)),
        pairs="pairs" in kinds,
        maximum="mode" in kinds,
    )
    patterns = evidence_patterns(target)
    # In a shared tree the terms of observed units are in its tables, where large ones cost digits.
    rare = rare_rows(target, patterns) if fits(target, single=False) else np.empty(0, dtype=int)
    shared = _shared(target, rare, form, limits) if len(rare) else []
    # Rows of one pattern may differ: other values leave other states, and a larger tree.
    done = np.zeros(target.rows, dtype=bool)
    for tree in shared:
        done[tree.rows] = True
    alone = [left for rows in patterns if len(left := rows[~done[rows]])]
    own = [tree for rows in alone for tree in _of_pattern(target, rows, form)]
    trees = shared + [_row_by_row(t, target, limits.states).within(limits, target) for t in own]
    check_divided([tree.rows for tree in trees], target.rows, "junction trees", target.first)
    return trees


def _shared(target: Target, rows: Array, form: Form, limits: Limits) -> list[Tree]:
    """Return the tree that rows of several patterns share, without rows for which it is too large.

    There is none where a term is no table before the evidence of single rows is known.
    """
    some = target if len(rows) == target.rows else target.take(rows)
    try:
        whole = freed(some, free_in_some(some))
        draft = _draft(whole, np.arange(len(rows)), replace(form, prune=False))
        filling = draft.conditioned.filling
        # Nothing is built before its price is known: tables may have 2^parents entries.
        if filling > planning_seconds(draft.conditioned, draft.looked_at):
            return []
        tree = draft.tree(SHORT_SEARCH)
    except PgmError:
        return []
    alone = planning_seconds(tree.conditioned, draft.looked_at if tree.possible else 0.0)
    if filling > alone:
        return []
    sizes = tree.sizes(some, tree.rows)
    seconds = PASSES * ENTRY * sizes[:, 0] + CLIQUE * tree.tree.cliques + filling
    fits = seconds <= alone
    fits &= sizes[:, 0] <= limits.states
    return [replace(tree, rows=rows[fits], restricted=sizes[fits])] if fits.any() else []


def _row_by_row(tree: Tree, target: Target, most: float) -> Tree:
    """Return the tree of one pattern, restricted to each row where that is cheaper than lanes.

    It is where the evidence of a row excludes many states that other rows leave possible.
    """
    if tree.possible is None or len(tree.rows) < RARE or not tree.possible.cards.all():
        return tree
    some = np.unique(np.linspace(0, len(tree.rows) - 1, RARE).astype(int))
    mean = tree.sizes(target, tree.rows[some])[:, 0].mean()
    if mean * ENTRY + tree.tree.cliques * CLIQUE > 0.5 * tree.order.entries * ENTRY:
        return tree
    sizes = tree.sizes(target, tree.rows)
    return replace(tree, restricted=sizes) if sizes[:, 0].max() <= most else tree


def _of_pattern(target: Target, rows: Array, form: Form) -> list[Tree]:
    """Return the trees of one evidence pattern.

    Small tables of units with independent causes depend on which of them are 1, so that rows with
    other values have other trees. They are planned where one tree for all rows is large.
    """
    if not has_causes(target):
        return [_draft(target, rows, form).tree()]
    seconds = np.inf
    try:
        whole = _draft(target, rows, form)
        if whole.rough.entries <= WORTH:
            return [whole.tree()]
        seconds = whole.seconds
    except PgmError:
        # A table is too large: small ones may do.
        pass
    small = replace(form, small=True)
    drafts = [_draft(target, some, small) for some in equal_findings(target, rows)]
    # Each row has the tree that it would have alone, so that parts of a question have equal bits.
    large = [draft.rows for draft in drafts if draft.seconds >= WHOLE * seconds]
    trees = [draft.tree() for draft in drafts if draft.seconds < WHOLE * seconds]
    if large:
        trees.append(_draft(target, np.sort(np.concatenate(large)), form).tree())
    return trees


@dataclass(frozen=True, eq=False)
class _Draft:
    """The factors of some rows of an evidence pattern, with a first elimination order."""

    target: Target
    rows: Array
    form: Form
    # The key under which the structure remembers what is planned.
    key: tuple[Any, ...]
    conditioned: Conditioned
    rough: Order

    @property
    def seconds(self) -> float:
        """About the seconds of the passes for a row by the first order, with its tables filled."""
        return PASSES * ENTRY * self.rough.entries + self.conditioned.filling

    @cached_property
    def looked_at(self) -> float:
        """The number of entries that are looked at to remove impossible states.

        It is 0 for small trees, and where the passes are faster than filling these entries.
        """
        entries, filling = self.conditioned.excluding(self.target)
        large = self.rough.entries > WORTH
        return entries if large and filling <= PASSES * ENTRY * self.rough.entries else 0.0

    def tree(self, search: float = SEARCH) -> Tree:
        """Return the tree of these rows.

        `search` is the longest time in seconds of the search for an order.
        """
        conditioned, memo = self.conditioned, self.target.structure.memo
        states, scopes = conditioned.states, conditioned.scopes

        def make() -> tuple[Order, JunctionTree]:
            order = self.rough
            if _may_fit(order) and order.entries > QUICK:
                order = best_order(states, scopes.start, scopes.scope, search, conditioned.passing)
            return order, JunctionTree(states, scopes.start, scopes.scope, order.order)

        if self.looked_at:
            zeros = conditioned.impossible(self.target.take(self.rows))
            if zeros.any():
                digest = sha256(np.packbits(zeros).tobytes()).digest()
                key = ("possible", search, digest, *self.key)
                found = memo.recall(key, lambda: _reduced(conditioned, zeros, search))
                return Tree(self.rows, self.form, key, conditioned, *found)
        key = ("tree", search, *self.key)
        return Tree(self.rows, self.form, key, conditioned, *memo.recall(key, make))


def _draft(target: Target, rows: Array, form: Form) -> _Draft:
    """Plan the factors of some rows; PgmError where a term is no table, or too large a table."""
    one = one_for_all(target, rows)
    masks = [mask[0] for both in (one.free, one.intervened) for mask in both.values()]
    masks += [has_soft(one, name)[0] for name in one.soft]
    if form.small:
        layers = target.structure.layers
        causes = [n for n in layers if layers[n].unit.independent_causes]
        masks += [one.evidence.values[name][0] for name in causes]
    acting = one.model.parameter_places if form.structural else one.model.nonzero_places
    seen = tuple(m.tobytes() for m in masks)
    key = (form, one.untempered, *one.soft, *seen, *acting)
    memo = target.structure.memo

    def make() -> tuple[Conditioned, Order]:
        c = condition(one, form)
        return c, best_order(c.states, c.scopes.start, c.scopes.scope, 0.0, c.passing)

    found: tuple[Conditioned, Order] = memo.recall(("draft", *key), make)
    return _Draft(target, rows, form, key, *found)


def _has_order(target: Target, rows: Array, form: Form, most: float) -> bool:
    """Return whether a quick search finds an order of at most `most` entries.

    The search of an order without a limit goes on where cliques have thousands of units, and takes
    minutes for 20,000 coupled spins.
    """
    c = condition(one_for_all(target, rows), form)
    return has_order(c.states, c.scopes.start, c.scopes.scope, most)


def _may_fit(rough: Order) -> bool:
    """Whether a longer search may find an order that fits, after a quick one."""
    return rough.largest <= FAR and rough.bound <= PROVEN


def _reduced(
    conditioned: Conditioned, zeros: Array, search: float
) -> tuple[Order, JunctionTree, Possible]:
    """Return the tree over the states that are possible for some row."""
    scopes, offered = conditioned.scopes, conditioned.passing
    p = remove_impossible(conditioned.states, scopes.start, scopes.scope, zeros)
    # A sum without states is 0; the tree of one state each is never run.
    cards = np.maximum(p.cards, 1)
    order = best_order(cards, p.start, p.scope, 0.0, offered)
    if _may_fit(order):
        order = best_order(cards, p.start, p.scope, search, offered)
    return order, JunctionTree(cards, p.start, p.scope, order.order), p
