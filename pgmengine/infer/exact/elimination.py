"""Elimination: exact answers on graphs of small width, by message passing on a junction tree.

Each evidence pattern has its conditioned model (factors over the free units), an elimination order,
and a junction tree. One pass answers all rows of a pattern, which are lanes of the tables. Rows of
rare patterns share a tree (shared.py). log Z needs only the collect pass; marginals and
expectations also need the distribute pass. The mode uses the same schedule with the maximum in
place of the sum. Samples are drawn from the root of the tree to its leaves.

References: Lauritzen and Spiegelhalter (1988); Shafer and Shenoy (1990); Koller and Friedman
(2009), chapter 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from pgmengine._kernels import JunctionTree, restricted_entries, run_restricted
from pgmengine.base.checks import check_limit, check_whole, seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, States
from pgmengine.graph.queries import hinted
from pgmengine.graph.tables import check_finite
from pgmengine.graph.target import Target
from pgmengine.graph.variables import find
from pgmengine.infer.answers import add_gradients, evidence_patterns
from pgmengine.infer.by_name import Joint
from pgmengine.infer.exact.answered import Answer, check_possible, exact_answers, output_bytes, put
from pgmengine.infer.exact.causes import equal_findings, has_causes, shares
from pgmengine.infer.exact.conditioned import Conditioned, Form, condition
from pgmengine.infer.exact.expected import Expected
from pgmengine.infer.exact.leaks import with_leaks, with_weights
from pgmengine.infer.exact.order import Order, best_order
from pgmengine.infer.exact.outside import Factors, Outside, condition_outside
from pgmengine.infer.exact.possible import Possible, remove_impossible
from pgmengine.infer.exact.shared import (
    RARE,
    free_in_some,
    freed,
    observed_states,
    planning_seconds,
    rare_rows,
)
from pgmengine.infer.exact.summed import InfiniteTerm
from pgmengine.infer.prepared import Method, Prepared, Scheme
from pgmengine.infer.result import WANTS, Result, quantity
from pgmengine.protocols import Accumulator

# Seconds for a table entry and a pass, and for a clique of a row that has a tree of its own.
ENTRY, CLIQUE = 3e-9, 3e-7

# Passes of a question about marginals.
PASSES = 3
# Seconds for the passes on one tree, however small it is.
CALL = 1.5e-4

# Quantities that need the marginals of units, and those that need the factors of all parameters.
MOMENTS = {"marginals", "pairs", "gradient", "joint"}
PAIRS = {"pairs", "gradient"}

# Bytes of the rows that share a pass.
ROWS_BYTES = 256 * 2**20

# Seconds of the search for an order that fits. There is none where a quick search finds a largest
# clique of more than 2^50 states, or proves that every order has one of more than 2^34.
SEARCH = 3.0
FAR, PROVEN = 50, 34

# The longest search for a tree that rows of rare patterns share. It is enough for trees that fit.
SHORT_SEARCH = 0.05

# Table entries up to which the quick search takes longer than elimination.
QUICK = 2**12

# Small tables are taken where they have less than this share of the entries of whole tables.
WHOLE = 1.0

# The number of table entries that no junction tree may have.
MOST = 2.0**50

# Table entries above which impossible states are looked for, and above which units with independent
# causes have small tables.
WORTH = 2**16


@dataclass(frozen=True)
class Elimination(Method):
    """Exact answers by message passing on a junction tree.

    Use it for graphs of small width, of any size: chains, trees, lattices of a small side, Bayesian
    networks and factor graphs. `Exact` takes it wherever it is cheaper than enumeration.

    Parameters
    ----------
    max_states : the largest number of table entries of all cliques together.
    draws : number of samples where they are wanted.
    max_work : the largest number of table entries of all passes over the tree where it needs more
        than `max_states`, so that some variables are conditioned on outside of it: one pass for
        each of their joint states. 0 for no variables outside.

    >>> import pgmengine as pgm
    >>> chain = pgm.GraphBuilder()
    >>> chain.layer("x", pgm.Spin(), 100)
    >>> neighbours = [[i, i + 1] for i in range(99)]
    >>> chain.tables(("x", "x"), neighbours, [[2.0, 1.0], [1.0, 2.0]])
    >>> r = pgm.infer(chain.build(), want=("log_z",), method=pgm.Elimination())
    >>> r.log_z.round(3), r.stats["width"]
    (array([109.456]), 2.0)
    """

    gives = frozenset(WANTS) - {"bound"} | {"joint"}
    source = "elimination gives log_z itself,"
    guarantee = "exact"
    statistics = {"width": (), "entries": ()}

    max_states: float = 2**30
    draws: int = 1000
    max_work: float = 2**36

    def __post_init__(self) -> None:
        check_limit(self, "max_states", "max_work")
        check_whole(self, "draws")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Scheme:
        """Find an order for every evidence pattern; refuse above max_states."""
        try:
            basis = _planned(target, want, Limits(min(self.max_states, MOST - 1), self.max_work))
        except PgmError as error:
            return Scheme(refusal=str(error))
        trees = basis.trees
        most = max(trees, key=lambda tree: tree.entries.max())
        work = sum(tree.work(self.draws, want) for tree in trees)
        if most.entries.max() > basis.limits.states:
            bits = [np.log2(max(x, 1)) for x in (most.entries.max(), basis.limits.states)]
            refusal = (
                f"the best elimination order needs 2^{bits[0]:.4g} table entries, the limit is "
                f"2^{bits[1]:.4g}; its width is {most.order.largest:.4g}, and no order has less "
                f"than {most.order.bound:.4g}"
            )
            if self.max_work > 0:
                refusal += (
                    "; with variables outside it needs more than "
                    f"2^{np.log2(self.max_work):.4g} entries in all passes"
                )
            if self.max_states >= MOST:
                refusal += f" (max_states is {self.max_states:.4g}; 2^50 is too much for any tree)"
            if causes := most.conditioned.described:
                refusal += f" ({causes})"
            return Scheme(work=work, refusal=refusal)
        memory = max(tree.bytes(want, self.draws) for tree in trees)
        memory += output_bytes(target, want, self.draws)
        filling = sum(len(tree.rows) * tree.conditioned.filling for tree in trees)
        seconds = work * ENTRY + CALL * len(trees) + filling
        return Scheme(most.described, work, memory, seconds, basis)

    def answer(
        self, question: Prepared, rng: RngLike, state: Any = None, executor: Executor | None = None
    ) -> Result:
        """Pass messages on the tree of every evidence pattern."""
        target, planned = question.target, _on(question.basis, question.target)
        generator = seeded(rng) if "samples" in question.want else None
        log_z, found = self._all(planned, target, generator)
        answers = exact_answers(target, log_z, found)
        if "log_prob" in question.want:
            answers["log_prob"] = log_z - _normaliser(planned.without_evidence, target)
        trees = planned.posterior
        width = max((tree.largest for tree in trees), default=0.0)
        entries = float(sum(tree.entries.sum() for tree in trees))
        return question.result(answers, {"width": width, "entries": entries})

    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> None:
        """Add the sum over rows of weight * E[d log_density | row] to the sum of a phase."""
        total.arrays(self.gradient(target, weights), 1.0, float(weights.sum()))

    def gradient(self, target: Target, weights: Array) -> dict[str, Any]:
        """Return the sum over rows of weight * E[d log_density | row], parameter by parameter."""
        weighed = replace(target, weights=target.weighed(weights))
        question = self.prepare(weighed, ("gradient",))
        question.check()
        found: dict[str, Any] = self._all(question.basis, weighed, None)[1]["gradient"]
        return found

    def _all(
        self, planned: _Planned, target: Target, rng: np.random.Generator | None
    ) -> tuple[Array, Answer]:
        """Return log_z (rows,) of the posterior, and the other answers."""
        want = planned.want
        if not planned.slope:
            return _eliminated(planned.posterior, target, want, self.draws, rng)
        rest = tuple(w for w in want if w != "gradient")
        log_z, found = _eliminated(planned.posterior, target, rest, self.draws, rng)
        check_possible(log_z, np.arange(target.rows), target)
        return log_z, found | _eliminated(planned.slope, _lifted(target), ("gradient",), 0, None)[1]


@dataclass(frozen=True)
class Limits:
    """The largest number of table entries of a tree, and of all passes with variables outside."""

    states: float
    work: float


@dataclass(frozen=True, eq=False)
class _Tree:
    """Rows of one evidence pattern, or rows that share a tree, with factors and junction tree."""

    rows: Array
    form: Form
    # The key under which the structure remembers the tree.
    key: tuple[Any, ...]
    conditioned: Conditioned
    order: Order
    tree: JunctionTree | Outside
    # The states that are left where impossible ones were removed.
    possible: Possible | None = None
    # Where rows of several patterns share the tree: the entries of all cliques and of the largest
    # one over the states that each row leaves, (rows, 2).
    restricted: Array | None = None

    def within(self, limits: Limits, target: Target) -> _Tree:
        """Return the tree with variables outside, where it has too many entries and that helps."""
        if self.restricted is not None or self.order.entries <= limits.states:
            return self
        conditioned, p = self.conditioned, self.possible
        factors = Factors(conditioned.states, conditioned.scopes.start, conditioned.scopes.scope)
        if p is not None:
            factors = Factors(np.maximum(p.cards, 1), p.start, p.scope)
        found = target.structure.memo.recall(
            ("outside", limits, *self.key),
            lambda: condition_outside(factors, self.order, limits.states, limits.work),
        )
        return self if found is None else replace(self, order=found[0], tree=found[1])

    @property
    def passes(self) -> int:
        """The number of joint states outside, each with a pass of its own."""
        return self.tree.states if isinstance(self.tree, Outside) else 1

    @property
    def by_value(self) -> bool:
        """Whether other values of the evidence may need another tree."""
        values = self.possible is not None or self.restricted is not None
        return values or self.form.small

    @property
    def junction(self) -> JunctionTree:
        """The tree of all variables, or of those that are not outside."""
        return self.tree.tree if isinstance(self.tree, Outside) else self.tree

    @property
    def entries(self) -> Array:
        """The table entries of the pattern, or of each row that shares the tree."""
        if self.restricted is None:
            return np.array([self.order.entries])
        return self.restricted[:, 0]

    @property
    def largest(self) -> float:
        """log2 of the table entries of the largest clique."""
        if self.restricted is None:
            return self.order.largest
        return float(np.log2(max(self.restricted[:, 1].max(), 1.0)))

    def given(self, target: Target) -> Target:
        """Return the target with all units of the tree free."""
        free = {n: np.zeros(layer.size, dtype=bool) for n, layer in target.structure.layers.items()}
        for name, units in self.conditioned.free.layers.items():
            free[name][units] = True
        return freed(target, free)

    def values(self, parts: list[Array], lanes: int) -> tuple[Array, Array]:
        """Return the entries of all factors at the states that are left, and which have lanes.

        `parts` are the entries (entries, lanes or 1) of all terms.
        """
        if self.possible is not None:
            ends, stays = np.cumsum([0, *map(len, parts)]), self.possible.stays
            parts = [part[stays[a : a + len(part)]] for a, part in zip(ends, parts, strict=False)]
        wide = [part.shape[1] > 1 or lanes == 1 for part in parts]
        counts = [len(term.scopes) for term in self.conditioned.terms]
        flat = np.concatenate([np.empty(0), *(part.ravel() for part in parts)])
        return flat, np.repeat(np.array(wide, dtype=np.uint8), counts)

    def sizes(self, target: Target, rows: Array) -> Array:
        """Return the entries of all cliques and of the largest over the states of each row."""
        step = int(max(1, ROWS_BYTES // (16 * max(self.conditioned.sizes.sum(), 1))))
        found = [np.empty((0, 2))]
        for part in np.split(rows, range(step, len(rows), step)):
            some = target if len(part) == target.rows else target.take(part)
            parts = self.conditioned.tables(self.given(some))
            values, wide = self.values(parts, some.rows)
            seen = observed_states(some, self.conditioned, self.possible)
            found.append(restricted_entries(self.junction, values, seen, wide=wide))
        return np.concatenate(found)

    def all_states(self, units: Array) -> Array:
        """Return marginals of units with a 0 at the states that were removed."""
        if self.possible is None:
            return units
        first = np.cumsum([0, *self.conditioned.states])
        places = [a + kept for a, kept in zip(first, self.possible.kept, strict=False)]
        out = np.zeros((first[-1], units.shape[1]))
        out[np.concatenate(places)] = units
        return out

    def all_entries(self, asked: Array, found: Array) -> Array:
        """Return marginals of the factors asked for with a 0 at the states that were removed."""
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

    def work(self, draws: int, want: tuple[str, ...]) -> float:
        """Return the number of table entries of all passes and rows."""
        kinds = {quantity(w) for w in want}
        passes = 1 + (PASSES - 1) * bool(MOMENTS & kinds) + ("mode" in kinds)
        if "marginals" in kinds:
            passes += sum(map(len, self.conditioned.separate.values()))
        drawn = draws * len(self.conditioned.free.states) * ("samples" in kinds)
        each = self.order.entries if self.restricted is None else float(self.entries.mean())
        return len(self.rows) * (passes * self.passes * each + drawn)

    def bytes(self, want: tuple[str, ...], draws: int) -> float:
        """Return the most memory of a pass over some rows."""
        return self._bytes(min(len(self.rows), self.at_once(want, draws)), want, draws)

    def at_once(self, want: tuple[str, ...], draws: int) -> int:
        """Return the number of rows that share a pass."""
        if len(self.rows) == 1:
            return 1
        each = self._bytes(2, want, draws) - self._bytes(1, want, draws)
        return int(max(1, ROWS_BYTES // max(each, 1)))

    def _bytes(self, rows: int, want: tuple[str, ...], draws: int) -> float:
        """Return the memory of a pass over some rows."""
        kinds = {quantity(w) for w in want}
        draws = draws if "samples" in kinds else 0
        # A state of a draw is there as a number of 4 bytes, and of 8 while values are looked up.
        states = 12.0 * rows * draws * len(self.conditioned.free.states)
        # The values of all factors are there one by one and joined, beside the tables of the tree.
        states += 16.0 * float(self.conditioned.sizes.sum())
        if self.restricted is None:
            return states + float(self.tree.bytes(rows, bool(kinds - {"log_z", "log_prob"}), draws))
        # Values and marginals of all rows; messages, and tables of sums, of one row.
        each = float(self.conditioned.free.states.sum() + self.conditioned.sizes.sum())
        return states + 16.0 * rows * each + 32.0 * float(self.entries.max())

    @property
    def described(self) -> str:
        """The tree in words."""
        causes = self.conditioned.described
        outside = ""
        if isinstance(self.tree, Outside):
            several = "variables" if len(self.tree.variables) > 1 else "variable"
            outside = (
                f", conditioning on {len(self.tree.variables)} {several} outside with "
                f"2^{np.log2(self.passes):.4g} joint states"
            )
        sharing = "" if self.restricted is None else f", shared by {len(self.rows)} rows"
        return (
            f"junction tree of {self.tree.cliques} cliques{sharing}, largest 2^{self.largest:.4g} "
            f"states, 2^{np.log2(max(self.entries.max(), 1)):.4g} in all{outside}"
        ) + (f" ({causes})" if causes else "")


@dataclass(frozen=True, eq=False)
class _Planned:
    """The trees of a question: of the posterior, and of the model without evidence for log_prob."""

    want: tuple[str, ...]
    posterior: list[_Tree]
    without_evidence: list[_Tree]
    # Of leaks of 0 lifted, for the gradient alone (leaks.py).
    slope: list[_Tree]
    limits: Limits
    target: ReferenceType[Target]

    @property
    def trees(self) -> list[_Tree]:
        """All trees."""
        return [*self.posterior, *self.without_evidence, *self.slope]


def _on(planned: _Planned, target: Target) -> _Planned:
    """Return the trees of a question for a target with the same evidence pattern.

    Which states are possible depends on its values; the trees of values that were seen before are
    remembered by the structure.
    """
    if planned.target() is target:
        return planned
    by_value = any(tree.by_value for tree in planned.trees)
    return _planned(target, planned.want, planned.limits) if by_value else planned


def _planned(target: Target, want: tuple[str, ...], limits: Limits) -> _Planned:
    """Return the trees of a question; PgmError where a term is no table."""
    without: list[_Tree] = []
    if "log_prob" in want and not _normalised(target):
        without = _trees(target.nothing_observed, ("log_z",), limits)
    lifted = _lifted(target) if "gradient" in want else target
    if lifted is target:
        return _Planned(want, _trees(target, want, limits), without, [], limits, ref(target))
    rest = tuple(w for w in want if w != "gradient") or ("log_z",)
    slope = _trees(lifted, ("gradient",), limits)
    return _Planned(want, _trees(target, rest, limits), without, slope, limits, ref(target))


def _lifted(target: Target) -> Target:
    """Return the target with leaks and weights of 0 lifted where they have a slope, or itself."""
    return with_weights(with_leaks(target))


def _normalised(target: Target) -> bool:
    """Whether log Z without evidence is 0."""
    return target.structure.normalized and target.untempered


def _normaliser(trees: list[_Tree], target: Target) -> Array | float:
    """Return log Z without evidence."""
    if _normalised(target):
        return 0.0
    return _eliminated(trees, target.nothing_observed, ("log_z",), 0, None)[0]


def rough_entries(target: Target) -> float:
    """Return the table entries of a tree for samples by a quick order, the largest of all patterns.

    It is infinite where a term is no table.
    """
    form = Form(prune=False)
    try:
        return max(_draft(target, rows, form).rough.entries for rows in evidence_patterns(target))
    except PgmError:
        return np.inf


def _trees(target: Target, want: tuple[str, ...], limits: Limits) -> list[_Tree]:
    """Return a tree for every evidence pattern, and one that rows of rare patterns share."""
    kinds = {quantity(w) for w in want}
    form = Form(
        prune=not kinds & {"samples", "mode", *MOMENTS},
        structural=bool(PAIRS & kinds),
        joints=tuple(_units(target, w) for w in want if isinstance(w, Joint)),
        pairs="pairs" in kinds,
        maximum="mode" in kinds,
    )
    patterns = evidence_patterns(target)
    rare = rare_rows(target, patterns)
    shared = _shared(target, rare, form, limits) if len(rare) else []
    done = np.zeros(target.rows, dtype=bool)
    for tree in shared:
        done[tree.rows] = True
    alone = [rows for rows in patterns if not done[rows[0]]]
    trees = [tree for rows in alone for tree in _of_pattern(target, rows, form)]
    return shared + [_row_by_row(t, target, limits.states).within(limits, target) for t in trees]


def _shared(target: Target, rows: Array, form: Form, limits: Limits) -> list[_Tree]:
    """Return the tree that rows of several patterns share, without rows for which it is too large.

    There is none where a term is no table before the evidence of single rows is known.
    """
    some = target if len(rows) == target.rows else target.take(rows)
    try:
        whole = freed(some, free_in_some(some))
        tree = _draft(whole, np.arange(len(rows)), replace(form, prune=False)).tree(SHORT_SEARCH)
    except PgmError:
        return []
    alone = planning_seconds(tree.conditioned, tree.possible)
    if tree.conditioned.filling > alone:
        return []
    sizes = tree.sizes(some, tree.rows)
    seconds = PASSES * ENTRY * sizes[:, 0] + CLIQUE * tree.tree.cliques + tree.conditioned.filling
    fits = seconds <= alone
    fits &= sizes[:, 0] <= limits.states
    return [replace(tree, rows=rows[fits], restricted=sizes[fits])] if fits.any() else []


def _row_by_row(tree: _Tree, target: Target, most: float) -> _Tree:
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


def _of_pattern(target: Target, rows: Array, form: Form) -> list[_Tree]:
    """Return the trees of one evidence pattern.

    Small tables of units with independent causes depend on which of them are 1, so that rows with
    other values have other trees. They are planned where one tree for all rows is large.
    """
    if not has_causes(target):
        return [_draft(target, rows, form).tree()]
    entries = np.inf
    try:
        whole = _draft(target, rows, form)
        entries = whole.rough.entries
        if entries <= WORTH:
            return [whole.tree()]
    except PgmError:
        # A table is too large: small ones may do.
        pass
    small = replace(form, small=True)
    drafts = [_draft(target, some, small) for some in equal_findings(target, rows)]
    # Each row has the tree that it would have alone, so that parts of a question have equal bits.
    large = [draft.rows for draft in drafts if draft.rough.entries >= WHOLE * entries]
    trees = [draft.tree() for draft in drafts if draft.rough.entries < WHOLE * entries]
    if large:
        trees.append(_draft(target, np.sort(np.concatenate(large)), form).tree())
    return trees


def _units(target: Target, joint: Joint) -> tuple[int, ...]:
    """Return the units of a Joint, numbered over all layers."""
    places = [find(target.structure, unit, str(joint)) for unit in joint.units]
    for layer, _ in places:
        check_finite(target.structure, layer)
    return tuple(target.structure.first_unit[layer] + i for layer, i in places)


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

    def tree(self, search: float = SEARCH) -> _Tree:
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

        if self.rough.entries > WORTH:
            values = conditioned.highest(self.target.take(self.rows))
            zeros = np.isneginf(values)
            if zeros.any():
                digest = sha256(np.packbits(zeros).tobytes()).digest()
                key = ("possible", search, digest, *self.key)
                found = memo.recall(key, lambda: _reduced(conditioned, values, search))
                return _Tree(self.rows, self.form, key, conditioned, *found)
        key = ("tree", search, *self.key)
        return _Tree(self.rows, self.form, key, conditioned, *memo.recall(key, make))


def _draft(target: Target, rows: Array, form: Form) -> _Draft:
    """Plan the factors of some rows; PgmError where a term is no table, or too large a table."""
    # Hints are no part of the pattern, so that their rows are looked at all together.
    one = target.take(rows if target.soft else rows[:1])
    masks = [mask[0] for both in (one.free, one.cut) for mask in both.values()]
    masks += [hinted(one, name).any(axis=0) for name in one.soft]
    if form.small:
        layers = target.structure.layers
        causes = [n for n in layers if layers[n].unit.independent_causes]
        masks += [one.evidence.values[name][0] for name in causes]
    acting = one.model.parameter_places if form.structural else one.model.nonzero_places
    seen = tuple(m.tobytes() for m in masks)
    key = (form, one.untempered, *one.soft, *seen, *acting)
    memo = target.structure.memo
    conditioned: Conditioned = memo.recall(("factors", *key), lambda: condition(one, form))
    states, scopes, offered = conditioned.states, conditioned.scopes, conditioned.passing
    rough: Order = memo.recall(
        ("rough order", *key), lambda: best_order(states, scopes.start, scopes.scope, 0.0, offered)
    )
    return _Draft(target, rows, form, key, conditioned, rough)


def _may_fit(rough: Order) -> bool:
    """Whether a longer search may find an order that fits, after a quick one."""
    return rough.largest <= FAR and rough.bound <= PROVEN


def _reduced(
    conditioned: Conditioned, values: Array, search: float
) -> tuple[Order, JunctionTree, Possible]:
    """Return the tree over the states that are possible for some row."""
    scopes, offered = conditioned.scopes, conditioned.passing
    p = remove_impossible(conditioned.states, scopes.start, scopes.scope, values)
    # A sum without states is 0; the tree of one state each is never run.
    cards = np.maximum(p.cards, 1)
    order = best_order(cards, p.start, p.scope, 0.0, offered)
    if _may_fit(order):
        order = best_order(cards, p.start, p.scope, search, offered)
    return order, JunctionTree(cards, p.start, p.scope, order.order), p


def _eliminated(
    trees: list[_Tree],
    target: Target,
    want: tuple[str, ...],
    draws: int,
    rng: np.random.Generator | None,
) -> tuple[Array, Answer]:
    """Return log_z (rows,), and the other answers: quantity -> layer or coupling -> (rows, ...)."""
    log_z, answers = np.empty(target.rows), Answer()
    needs_posterior = any(w not in ("log_z", "log_prob") for w in want)
    for tree, rows in _jobs(trees, want, draws):
        some = target if len(rows) == target.rows else target.take(rows)
        log_z[rows], more = _solved(tree, some, want, draws, rng)
        if needs_posterior:
            check_possible(log_z[rows], rows, target)
        if "gradient" in more:
            answers["gradient"] = add_gradients(answers.get("gradient"), more.pop("gradient"))
        for what, values in more.items():
            put(answers.setdefault(what, {}), values, rows, target.rows)
    return log_z, answers


def _jobs(trees: list[_Tree], want: tuple[str, ...], draws: int) -> Iterator[tuple[_Tree, Array]]:
    """Yield the rows that share a pass, with their tree."""
    for tree in trees:
        step = tree.at_once(want, draws)
        for first in range(0, len(tree.rows), step):
            yield tree, tree.rows[first : first + step]


def _solved(
    tree: _Tree, target: Target, want: tuple[str, ...], draws: int, rng: np.random.Generator | None
) -> tuple[Array, Answer]:
    """Return log_z of some rows of a pattern, and the other answers."""
    kinds, conditioned, given = {quantity(w) for w in want}, tree.conditioned, target
    moments = bool(MOMENTS & kinds)
    asked = _asked_factors(conditioned, kinds)
    target = tree.given(target) if tree.restricted is not None else target
    if tree.possible is not None and not tree.possible.cards.all():
        return np.full(target.rows, -np.inf), Answer()
    infinite = any(conditioned.places(InfiniteTerm))
    asking: dict[str, Any] = {
        "marginals": moments,
        "expected": asked if moments else None,
        "mode": "mode" in kinds and not infinite,
        "draws": draws if "samples" in kinds else 0,
        "key": None if rng is None else rng.integers(0, 2**32, 4, dtype=np.uint32),
    }
    seen = None
    if tree.restricted is not None:
        seen = observed_states(given, conditioned, tree.possible)
    found = _run(tree, conditioned.tables(target), target.rows, seen, **asking)
    if "mode" in kinds and infinite:
        largest = conditioned.largest(target)
        found["mode"] = _run(tree, largest, target.rows, seen, mode=True)["mode"]
    log_z = found["log_z"] + conditioned.constant(target)
    answers = Answer()
    if moments and not np.isneginf(log_z).any():
        units = tree.all_states(found["marginals"])
        factors = tree.all_entries(asked, found["expected"])
        on = _separate(tree, target, log_z) if "marginals" in kinds else {}
        answers = _expected(Expected(target, conditioned, units, asked, factors, on), want)
    if "mode" in kinds:
        x = _values(conditioned, target, tree.named(found["mode"])[:, None])
        x = _with_others(conditioned, target, x, None)
        answers["mode"] = {name: value[:, 0] for name, value in x.items()}
    if "samples" in kinds and rng is not None:
        drawn = tree.named(found["samples"].swapaxes(0, 1))
        x = _values(conditioned, target, drawn)
        answers["samples"] = _with_others(conditioned, target, x, rng)
    return log_z, answers


def _separate(tree: _Tree, target: Target, log_z: Array) -> States:
    """Return the probabilities (rows, units) of 1 of the units that are in no factor.

    Each is 0 with the probability E[e^-z] = Z with this unit observed to be 0, divided by Z. The
    sum z over parents changes the tables of single units only, so that all units are lanes of one
    pass.
    """
    conditioned, rows, out = tree.conditioned, target.rows, States()
    for name, units in conditioned.separate.items():
        at_once = max(1, int(ROWS_BYTES // max(tree.tree.bytes(rows), 1)))
        chunks = [units[i : i + at_once] for i in range(0, len(units), at_once)]
        found = [_log_off(tree, target, name, chunk) for chunk in chunks]
        out[name] = -np.expm1(np.concatenate(found, axis=1) - log_z[:, None])
    return out


def _log_off(tree: _Tree, target: Target, name: str, units: Array) -> Array:
    """Return log Z (rows, units) with one more unit observed to be 0, for each of some units."""
    conditioned, free = tree.conditioned, tree.conditioned.free
    lanes = target.rows, len(units)
    added = np.zeros((int(free.states.sum()), len(units)))
    first = np.cumsum([0, *free.states])
    for c in target.structure.arrows_into[name]:
        parents = free.layers.get(c.a, np.empty(0, dtype=int))
        places = first[free.of(target, c.a, parents)][:, None] + np.arange(
            target.structure.state_counts[c.a]
        )
        added[places.ravel()] += shares(target, c, parents, units)
    parts = conditioned.tables(target)
    # The first tables are those of single units, where any unit is free.
    alone, others = (parts[:1], parts[1:]) if len(added) else ([], parts)
    parts = [
        np.broadcast_to(p[:, :, None] + added[:, None], (len(p), *lanes)).reshape(len(p), -1)
        for p in alone
    ]
    parts += [np.repeat(p, len(units), axis=1) if p.shape[1] > 1 else p for p in others]
    found = _run(tree, parts, target.rows * len(units))
    leaks = target.model.inputs(target.evidence.values, name)[:, units]
    total: Array = found["log_z"].reshape(lanes) + conditioned.constant(target)[:, None] - leaks
    return total


def _run(
    tree: _Tree, parts: list[Array], lanes: int, seen: Array | None = None, **asking: Any
) -> dict[str, Array]:
    """Pass messages for the entries (entries, lanes or 1) of all terms.

    `seen` are the states that rows observe where they share the tree.
    """
    values, wide = tree.values(parts, lanes)
    if seen is not None:
        return run_restricted(tree.junction, values, seen, wide=wide, **asking)
    found: dict[str, Array] = tree.tree.run(values, lanes=lanes, wide=wide, **asking)
    return found


def _asked_factors(conditioned: Conditioned, kinds: set[str]) -> Array:
    """Return the factors whose marginals are needed, ascending."""
    return np.arange(len(conditioned.scopes)) if PAIRS & kinds else conditioned.for_means


def _expected(e: Expected, want: tuple[str, ...]) -> Answer:
    """Return the answers that are expectations."""
    target, answers = e.target, Answer()
    if "marginals" in want:
        answers["mean"], answers["prob"] = e.mean, e.prob
    if "pairs" in want:
        answers["pairs"] = {c.key: e.pairs(c) for c in target.structure.couplings}
    if "gradient" in want:
        answers["gradient"] = e.gradient(target.weighed(np.ones(target.rows)))
    if joints := [w for w in want if isinstance(w, Joint)]:
        found = e.joints([_units(target, w) for w in joints])
        answers["joint"] = {w.units: table for w, table in zip(joints, found, strict=True)}
    return answers


def _values(conditioned: Conditioned, target: Target, states: Array) -> States:
    """Return complete flat values (rows, ..., width) from states (rows, ..., n) of the free units.

    Free units with infinitely many values are 0.
    """
    s, x, start = target.structure, States(), 0
    for name, layer in s.layers.items():
        units = conditioned.free.layers.get(name, np.empty(0, dtype=np.int64))
        mine = states[..., start : start + len(units)]
        start += len(units)
        drawn = None
        if len(units):
            assert layer.unit.support is not None
            drawn = layer.unit.support.take(mine, axis=0).reshape(*states.shape[:-1], -1)
        if drawn is not None and len(units) == layer.size:
            x[name] = drawn
            continue
        seen = target.evidence.values[name]
        x[name] = np.empty((*states.shape[:-1], layer.width))
        x[name][:] = seen.reshape(len(seen), *(1,) * (states.ndim - 2), layer.width)
        if drawn is not None:
            x[name][..., layer.columns(units)] = drawn
    return x


def _with_others(
    conditioned: Conditioned, target: Target, x: States, rng: np.random.Generator | None
) -> States:
    """Draw the units with infinitely many values, and those in no factor, given all others.

    `x` has the states (rows, draws, width) of the others. Without `rng` the units have their most
    probable values.
    """
    terms = [term for term, _ in conditioned.places(InfiniteTerm)]
    if not terms and not conditioned.separate:
        return x
    rows, draws = next(iter(x.values())).shape[:2]
    each = target.take(np.repeat(np.arange(rows), draws))
    flat = {name: value.reshape(rows * draws, -1) for name, value in x.items()}
    for term in terms:
        layer = target.structure.layers[term.name]
        eta = layer.shaped(each.natural(flat, term.name))
        drawn = layer.unit.mode(eta) if rng is None else layer.unit.sample(eta, rng)
        free = each.components(term.name, each.free[term.name])
        flat[term.name] = np.where(free, layer.flat(drawn), flat[term.name])
    for name, units in conditioned.separate.items():
        assert rng is not None
        drawn = target.structure.layers[name].unit.sample(each.natural(flat, name), rng)
        flat[name] = flat[name].copy()
        flat[name][:, units] = drawn[:, units]
    return {name: value.reshape(rows, draws, -1) for name, value in flat.items()}
