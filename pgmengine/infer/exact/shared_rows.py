"""Rows of many evidence patterns on one junction tree.

A row is data: rows of different gaps share the tree of one model wherever that is cheaper than a
tree for each pattern, whose planning takes milliseconds. A unit of a row is one of three things:

    free        a variable of the tree
    observed    fixed, or, where other rows leave it free, a variable with a likelihood: 1 at the
                state of the row, and 0 elsewhere
    absent      a free unit whose conditional sums to one, which leaves the model of its row as if
                do() had set it: a barren unit where only log Z or a gradient is wanted, and a child
                with infinitely many values, whose mean follows from its parents

Rows with the same free units are lanes of one pass, whatever they observe of the others. Rows with
different free units share the tree in which a unit is free if any of them leaves it free. If this
tree is small, they are lanes of one pass as well. If it is large, each row has passes of its own
over the states that are possible for it: restricted to these, the cliques are a junction tree of
the row (`run_restricted`).

Measured on 20 % random evidence, a row of munin2: 136 ms with a tree for each pattern; 19 ms on the
whole tree with the rows as lanes; 1 ms on the restricted tree. Impossible states make most of the
difference: the whole tree has 2^21.6 entries. It has 2^18.5 entries if observed units have one
state each, and 2^15 if states that are then excluded by zeros of tables are removed as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pgmengine.base.equal_rows import distinct, rows_by_kind, spread
from pgmengine.base.types import Array
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.junction_tree.conditioned_model import Conditioned
from pgmengine.infer.exact.junction_tree.impossible_states import Possible

# Kinds with at least MIN_ROWS_OF_OWN_TREE rows do not share a large tree, and at least
# MIN_KINDS_TO_SHARE kinds share any.
MIN_ROWS_OF_OWN_TREE, MIN_KINDS_TO_SHARE = 8, 3

# The most table entries of a shared tree whose rows are lanes of one pass.
MAX_LANE_ENTRIES = 2**12

# Seconds of planning one more pattern: for the pattern, for each free unit, and for each table
# entry that is examined to remove impossible states.
PATTERN_SECONDS, FREE_UNIT_SECONDS, REMOVED_ENTRY_SECONDS = 2e-3, 3e-6, 1e-6

# Wanted quantities for which barren units are left out of the tree, and those for which children
# with infinitely many values are.
NEED_NO_BARREN = {"log_z", "gradient"}
NEED_NO_LEAVES = NEED_NO_BARREN | {"marginals", "samples", "joint", "mode"}


@dataclass(frozen=True, eq=False)
class KindOfRows:
    """Rows with the same free units, besides those that may be absent from a row.

    Attributes
    ----------
    rows : their numbers, ascending.
    certain : layer -> (size,) bool, the units that are free in every tree of the rows.
    absent : layer -> (all rows or 1, size) bool, absent units whose means are wanted.
    """

    rows: Array
    certain: dict[str, Array]
    absent: Mapping[str, Array]

    @cached_property
    def free(self) -> dict[str, Array]:
        """Layer -> (size,) bool: the units that are free in the tree of these rows.

        A unit that all of the rows leave out is free as well, where its mean is wanted: no row of
        the tree observes it.
        """
        out = dict(self.certain)
        for name, mask in self.absent.items():
            out[name] = out[name] | mask[self.rows % len(mask)].all(axis=0)
        return out


def leaving(target: Target, kinds: set[str], structural: bool) -> dict[str, Array]:
    """Return layer -> (rows or 1, size) bool: free units that may be absent from their rows.

    Parameters
    ----------
    target : the rows.
    kinds : the wanted quantities.
    structural : whether arrows of the weight 0 count.
    """
    leaves = [name for name, states in target.structure.state_counts.items() if not states]
    names = list(target.structure.layers) if kinds <= NEED_NO_BARREN else leaves
    if not names or not kinds <= NEED_NO_LEAVES:
        return {}
    found = target.barren(structural)
    return {name: found[name] for name in names if found[name].any()}


def kinds_of_rows(target: Target, absent: Mapping[str, Array], means: bool) -> list[KindOfRows]:
    """Return the rows of each kind: of equal free units, beta, and units that do() has set.

    Parameters
    ----------
    target : the rows.
    absent : the units that may be absent from their rows, see `leaving`.
    means : whether their means are wanted.
    """
    s, rows = target.structure, target.rows
    wanted = absent if means else {}
    if rows == 1 and not absent:
        return [
            KindOfRows(np.zeros(1, dtype=int), {n: m[0] for n, m in target.free.items()}, wanted)
        ]
    free = {n: distinct(mask) & ~absent.get(n, np.False_) for n, mask in target.free.items()}
    masks = [*free.values(), *map(distinct, target.intervened.values())]
    # Small tables of noisy-or units depend on which of them are absent.
    masks += [m for name, m in absent.items() if s.layers[name].unit.independent_causes]
    if all((m == m[0]).all() for m in masks) and (target.beta == target.beta[0]).all():
        groups = [np.arange(rows)]
    else:
        packed = [spread(np.packbits(m, axis=1), rows) for m in masks if len(m) > 1]
        if (target.beta != target.beta[0]).any():
            packed.append(target.beta[:, None])
        groups = rows_by_kind(*packed)
    return [
        KindOfRows(some, {n: np.asarray(m[some[0] % len(m)]) for n, m in free.items()}, wanted)
        for some in groups
    ]


def joint_kind(kinds: list[KindOfRows]) -> KindOfRows:
    """Return all rows of several kinds, in which a unit is free if it is free in any of them."""
    rows = np.sort(np.concatenate([kind.rows for kind in kinds]))
    certain = {
        name: np.logical_or.reduce([kind.certain[name] for kind in kinds])
        for name in kinds[0].certain
    }
    return KindOfRows(rows, certain, kinds[0].absent)


def can_share(target: Target, kinds: list[KindOfRows]) -> bool:
    """Return whether kinds of rows can share a tree.

    Their free units may differ in units with finitely many states only, and not in do() or in beta.
    Below beta = 1, a target with a reference shares no tree, because the reference of the tempering
    path is a density of the free units, which differ between the rows.
    """
    if len(kinds) < MIN_KINDS_TO_SHARE or (target.reference and not target.untempered):
        return False
    layers, first = target.structure.layers, kinds[0].certain
    endless = [name for name, layer in layers.items() if layer.unit.support is None]
    if any((kind.certain[n] != first[n]).any() for kind in kinds for n in endless):
        return False
    fixed = [target.beta[:, None], *map(distinct, target.intervened.values())]
    return all((mask == mask[0]).all() for mask in fixed)


def planning_seconds(conditioned: Conditioned, looked_at: float) -> float:
    """Return about the seconds that it takes to plan the tree of one more pattern.

    `looked_at` is the number of entries that are examined to remove impossible states.

    If the shared tree takes longer for a row, the row has a tree of its own: an order for its
    pattern alone can be far better than an order for the model without this evidence.
    """
    return (
        PATTERN_SECONDS
        + FREE_UNIT_SECONDS * len(conditioned.free.states)
        + REMOVED_ENTRY_SECONDS * looked_at
    )


def freed(target: Target, free: Mapping[str, Array]) -> Target:
    """Return a target whose free units are `free`, layer -> (size,) bool.

    Observed units among them become free. Other units that a row does not observe leave its model:
    they count as set by do(), at the value 0, which nothing depends on.
    """
    own, rows = target.pattern.free, slice(1 if target.pattern.alike else None)
    # A loop takes fewer calls than a comprehension, which count in the first question of a model.
    for name, mask in free.items():
        if (own[name][rows] != mask).any():
            break
    else:
        return target
    key = ("freed", *(mask.tobytes() for mask in free.values()))
    evidence = target.evidence.memo.recall(key, lambda: _freed(target, free))
    return replace(target, evidence=evidence)


def _freed(target: Target, free: Mapping[str, Array]) -> Evidence:
    """Return the evidence of a target whose free units are `free`."""
    s, given, rows = target.structure, target.evidence, target.rows
    observed, absent, values = {}, {}, {}
    for name, layer in s.layers.items():
        fixed, value = ~free[name], given.values[name]
        observed[name] = spread(fixed[None], rows)
        cut = distinct(target.intervened[name])
        left = distinct(target.free[name]) & fixed
        absent[name] = spread(cut | left, rows) if left.any() else target.intervened[name]
        if not fixed.any():
            value = spread(s.no_evidence[name][0], rows)
        elif not fixed.all():
            value = np.where(layer.components(fixed[None]), value, 0.0)
        values[name] = value
    return Evidence(given.has_rows, values, EvidencePattern(s, rows, observed, absent))


def observed_states(target: Target, conditioned: Conditioned, possible: Possible | None) -> Array:
    """Return the observed states (rows, n) of the variables of a tree that rows share.

    A variable that a row does not observe has -1, and one whose observed state is impossible has
    -2. States are numbered among those that are left in `possible`.
    """
    units = np.flatnonzero(conditioned.free.number >= 0)
    seen = np.concatenate([target.pattern.observed[n] for n in target.structure.layers], axis=1)
    states = target.states[:, units]
    if possible is not None:
        number = np.full((len(units), int(conditioned.free.states.max(initial=1))), -2)
        for v, kept in enumerate(possible.kept[: len(units)]):
            number[v, kept] = np.arange(len(kept))
        states = number[np.arange(len(units)), states]
    # Auxiliary variables come after the units, and are never observed.
    out = np.full((target.rows, len(conditioned.states)), -1, dtype=np.int32)
    out[:, : len(units)] = np.where(seen[:, units], states, -1)
    return out
