"""The shortcuts of exact inference: their thresholds, and how often each was taken.

Most shortcuts begin at sizes that no enumeration of states can check. `lowered` draws thresholds at
which models of a dozen units reach them, `raised` switches them off, and `counted` counts the
questions in which each was taken. A threshold has one line for each module that reads it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from pgmengine.base.work import cache, executors
from pgmengine.evidence.target import evidence_patterns
from pgmengine.infer import answering
from pgmengine.infer.exact import exact, planning, shared_rows
from pgmengine.infer.exact.enumeration import (
    compiled_enumerator,
    cover_states,
    enumeration,
    linear_plan,
)
from pgmengine.infer.exact.junction_tree import (
    causal_independence,
    conditioned_model,
    cutset,
    elimination,
    table_terms,
    trees,
)
from pgmengine.infer.exact.junction_tree.causal_independence import AbsentTerm, ChainTerm
from pgmengine.infer.exact.junction_tree.table_terms import FreeTables, SlicedTables
from pgmengine.infer.question import auto, splitting
from pgmengine.infer.results.result import quantity

INF = np.inf


@dataclass(frozen=True)
class Share:
    """The time of planning as a share of the time of a pass over the entries of all factors.

    Of the rows of one pattern some then have a shared tree, and others one of their own.
    """

    share: float

    def __call__(self, conditioned, possible):
        passes = planning.PASSES_FOR_MARGINALS * planning.PASSED_ENTRY_SECONDS
        return self.share * passes * float(conditioned.sizes.sum())


# (modules that read it, name): the values that are drawn, and the value that switches it off.
THRESHOLDS = {
    # Rows of several kinds share a tree, as lanes of one pass or with passes of their own.
    ((planning,), "MIN_ROWS_OF_OWN_TREE"): ((8, 3), 0),
    ((shared_rows, planning), "MIN_KINDS_TO_SHARE"): ((2,), INF),
    ((planning,), "MAX_LANE_ENTRIES"): ((0, 0, 2**12), 0),
    # Barren units leave the model of their row.
    ((shared_rows,), "NEED_NO_BARREN"): ((shared_rows.NEED_NO_BARREN,), set()),
    ((shared_rows,), "NEED_NO_LEAVES"): ((shared_rows.NEED_NO_LEAVES,), set()),
    # A row has a tree of its own where the shared one takes longer than planning.
    ((planning,), "planning_seconds"): (
        (shared_rows.planning_seconds, *(Share(x) for x in (0.05, 0.1, 0.2, 0.35))),
        shared_rows.planning_seconds,
    ),
    ((planning,), "CLIQUE_SECONDS"): ((0.0, 0.0, 0.0, -1.0), 3e-7),
    # Impossible states are removed, and units with independent causes have small tables.
    ((planning,), "MIN_ENTRIES_TO_REDUCE"): ((0, 0, 2**16), INF),
    ((planning,), "MAX_SHARE_OF_WHOLE_TABLES"): ((1.0, INF), 0.0),
    ((planning,), "MAX_ENTRIES_WITHOUT_SEARCH"): ((0, 2**12), 2**12),
    ((causal_independence,), "MAX_WHOLE_ENTRIES"): ((1, 8), INF),
    # Large tables stay where they are in the model.
    ((table_terms,), "MAX_PLACED_ENTRIES"): ((0, 6, 2**16), INF),
    ((trees,), "MAX_JOINED_ENTRIES"): ((0, 2**16), INF),
    # Rows, and units in no factor, share a pass.
    ((trees, elimination), "MAX_PASS_BYTES"): ((1, 2**10, 2**28), 2**28),
    ((conditioned_model,), "MAX_SEARCH_BYTES"): ((1.0, 2.0**26), 2.0**26),
    ((cutset,), "MAX_STATES_AT_ONCE"): ((3, 64), 1),
    # Walks in pieces, of which a few are a task; groups of rows; the numpy walk; programs.
    ((cover_states, linear_plan), "STATES_PER_PIECE"): ((4, 16, 4096), 4096),
    ((compiled_enumerator, enumeration), "STATES_PER_TASK"): ((2, 16), 16),
    ((enumeration,), "MAX_MOMENT_BYTES"): ((1, 2**12, 2**28, 2**28), 2**28),
    ((compiled_enumerator, linear_plan), "MAX_SAFE_EXPONENT"): ((-1.0, 600.0, 600.0), -1.0),
    ((linear_plan,), "MAX_PLANNED_ROWS"): ((4, 40), 0),
    ((enumeration,), "FIRST_PLANNED_QUESTION"): ((1, 1, 5), 5),
    ((exact,), "MAX_ENUMERATION_SECONDS"): ((0.0, 0.02), 0.02),
    # Parts of rows for workers.
    ((executors,), "MIN_UPDATES_A_PART"): ((100.0, 2e8, 2e8), 2e8),
}


@contextmanager
def raised():
    """Switch all shortcuts off: each row is answered by whole tables on a tree of its own."""
    with _patched({key: off for key, (_, off) in THRESHOLDS.items()}):
        yield


@contextmanager
def lowered(rng):
    """Draw thresholds at which small models take shortcuts."""
    drawn = {key: some[rng.integers(len(some))] for key, (some, _) in THRESHOLDS.items()}
    with _patched(drawn):
        yield {f"{modules[0].__name__}.{name}": v for (modules, name), v in drawn.items()}


@contextmanager
def _patched(values):
    with pytest.MonkeyPatch.context() as patch:
        for (modules, name), value in values.items():
            for module in modules:
                patch.setattr(module, name, value)
        # A task has whole pieces.
        for module in (compiled_enumerator, enumeration):
            patch.setattr(
                module, "STATES_PER_TASK", module.STATES_PER_TASK * cover_states.STATES_PER_PIECE
            )
        yield


# The shortcuts that `counted` counts.
NAMES = (
    "shared tree",
    "lanes of several kinds",
    "units absent from some rows",
    "rows of a pattern in several trees",
    "restricted to the states of a row",
    "cutset",
    "impossible states removed",
    "barren units pruned",
    "units in no factor",
    "absent children",
    "chains of causes",
    "tables without a copy",
    "several runs of tables",
    "slices of tables",
    "leaks lifted",
    "several patterns in a tree question",
    "several passes on a tree",
    "several patterns in a walk",
    "several groups of a pattern in a walk",
    "compiled walk",
    "compiled walk in pieces",
    "numpy walk",
    "program",
    "remembered question",
    "remembered draft",
    "remembered tree",
    "remembered possible",
    "remembered cutset",
    "remembered cover",
    "parts of rows",
    "parts of a question",
)


@contextmanager
def counted(reached: Counter):
    """Count each shortcut that is taken."""
    with pytest.MonkeyPatch.context() as patch:

        def watch(module, name, see):
            inner = getattr(module, name)

            def outer(*args, **kwargs):
                found = inner(*args, **kwargs)
                for what in see(found, *args, **kwargs):
                    reached[what] += 1
                return found

            patch.setattr(module, name, outer)

        watch(planning, "_shared", lambda found, *_: ["shared tree"] * len(found))
        watch(planning, "_trees", _of_trees)
        watch(elimination, "lifted", lambda found, target: ["leaks lifted"] * (found is not target))
        watch(elimination, "_eliminated", _of_passes)
        watch(enumeration, "_part", _of_part)
        watch(enumeration, "make_enumerator", _of_walker)
        watch(linear_plan.LinearPlan, "run", lambda found, *_: ["program"] * (found is not None))
        watch(splitting, "_by_rows", lambda *_: ["parts of rows"])
        watch(auto, "joined_parts", lambda *_: ["parts of a question"])
        patch.setattr(cache.Cache, "recall", _recall(cache.Cache.recall, reached))
        yield reached


def _of_trees(found, target, want, limits):
    """Yield the shortcuts that the trees of a question take."""
    patterns = evidence_patterns(target)
    if len(patterns) > 1:
        yield "several patterns in a tree question"
    for rows in patterns:
        mine = [tree for tree in found if np.isin(rows, tree.rows).any()]
        if len(mine) > 1 and any(tree.restricted is not None for tree in mine):
            yield "rows of a pattern in several trees"
    for tree in found:
        if tree.restricted is not None:
            yield "restricted to the states of a row"
        if tree.cutset is not None:
            yield "cutset"
        if tree.possible is not None:
            yield "impossible states removed"
        if tree.form.seen:
            yield "lanes of several kinds"
        mine = target.take(tree.rows)
        cut = [mine.free[name] & ~free for name, free in tree.free.items()]
        if any(mask.any() for mask in cut):
            yield "barren units pruned"
        if any((mask != mask[0]).any() for mask in cut):
            yield "units absent from some rows"
        if tree.conditioned.separate:
            yield "units in no factor"
        for term in tree.conditioned.terms:
            if isinstance(term, AbsentTerm):
                yield "absent children"
            if isinstance(term, ChainTerm):
                yield "chains of causes"
            if isinstance(term, FreeTables):
                yield "tables without a copy" if len(term.runs) == 1 else "several runs of tables"
            if isinstance(term, SlicedTables):
                yield "slices of tables"


def _of_passes(found, trees, target, want, draws, rng):
    """Yield a shortcut where the rows of a tree are divided."""
    if any(tree.at_once({*map(quantity, want)}, draws) < len(tree.rows) for tree in trees):
        yield "several passes on a tree"


def _of_part(found, target, wanted):
    """Yield the shortcuts of the groups of a walk."""
    if len(found) > 1:
        yield "several patterns in a walk"
    for group in found:
        if group.at_once < len(group.rows):
            yield "several groups of a pattern in a walk"
        if any(len(units) for units in group.cover.barren.values()):
            yield "barren units pruned"


def _of_walker(found, problem):
    if isinstance(found, compiled_enumerator.CompiledEnumerator):
        yield "compiled walk"
        if cover_states.pieces(problem) > 1:
            yield "compiled walk in pieces"
    else:
        yield "numpy walk"


def _recall(inner, reached):
    """Cache.recall that counts what was remembered, by the first word of its key."""

    def recall(self, key, make):
        made = []
        found = inner(self, key, lambda: made.append(0) or make())
        if not made and isinstance(key, tuple):
            # The key of a question begins with its method and with the wanted quantities.
            question = len(key) > 2 and isinstance(key[0], tuple) and isinstance(key[1], tuple)
            kind = key[0] if isinstance(key[0], str) else "question" if question else ""
            if f"remembered {kind}" in NAMES:
                reached[f"remembered {kind}"] += 1
        return found

    return recall


def forget():
    """Forget the prepared questions of all models."""
    answering.REMEMBERED.clear()
