"""Cutset conditioning: a few variables are conditioned on where the junction tree is too wide.

Given the joint state s of the cutset, all other variables have a smaller tree:

    Z = sum over s of Z(s),   p(x) = sum over s of Z(s) / Z p(x | s)

The memory is that of the smaller tree. The work is its number of table entries times the number of
joint states of the cutset. The cutset is chosen greedily: the next variable is the one that removes
the most table entries from the cliques of the best order so far. Each joint state is a row that
observes the cutset, and all these rows share a tree (shared_rows.py).

Reference: the junction tree of all variables (tests/infer/exact/test_cutset.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine._kernels import JunctionTree, run_restricted
from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array
from pgmengine.base.work.division import blocks
from pgmengine.infer.exact.junction_tree.elimination_order import Order, best_order

# Largest numbers of joint states, and of entries of their results, that are in memory at once.
MAX_STATES_AT_ONCE, MAX_ENTRIES_AT_ONCE = 64, 2**19
# Quantities that are averaged over the joint states; and the axis of the lanes of each quantity.
EXPECTATIONS = {"marginals", "expected"}
LANE_AXIS = {"log_z": 0, "marginals": 1, "expected": 1, "mode": 0, "mode_value": 0, "samples": 1}
# Seconds of the search for an order after each choice, and after the last one.
SEARCH_SECONDS_PER_CHOICE, LAST_SEARCH_SECONDS = 0.3, 1.0


@dataclass(frozen=True, eq=False)
class Factors:
    """Variables with their numbers of states, and the scopes of factors over them."""

    cards: Array
    start: Array
    scope: Array

    def without(self, variables: Array) -> Factors:
        """Return the factors given the states of some variables, which then have one state each."""
        stays = ~np.isin(self.scope, variables)
        cards = self.cards.copy()
        cards[variables] = 1
        start = np.concatenate([[0], np.cumsum(stays)])[self.start]
        return Factors(cards, start, self.scope[stays])

    @cached_property
    def sizes(self) -> Array:
        """The number (factors,) of entries of each factor."""
        states = np.append(self.cards[self.scope], 1)
        sizes = np.multiply.reduceat(states, self.start[:-1]) if len(self.start) > 1 else states[:0]
        sizes[np.diff(self.start) == 0] = 1
        return np.asarray(sizes)


@dataclass(frozen=True, eq=False)
class Cutset:
    """The variables of a cutset, and the junction trees with and without them.

    Attributes
    ----------
    variables : (m,) the variables.
    tree : the tree of all variables; those of the cutset are eliminated last.
    inner : the tree of the other variables, which has the size of a pass.
    cards : (n,) the numbers of states of all variables.
    """

    variables: Array
    tree: JunctionTree
    inner: JunctionTree
    cards: Array

    @property
    def states(self) -> int:
        """The number of joint states of the cutset."""
        return math.prod(self.cards[self.variables].tolist())

    def at_once(self, entries: float) -> int:
        """Return the number of joint states that are rows of one run, for tables of some size."""
        fit = int(MAX_ENTRIES_AT_ONCE / (self.cards.sum() + entries))
        return max(1, min(MAX_STATES_AT_ONCE, self.states, fit))

    def bytes(self, entries: float, more: bool, draws: int) -> float:
        """Return the bytes that a run takes at most; `more`: whether it gives more than log Z."""
        results = (self.cards.sum() + entries) * self.at_once(entries) if more else 0.0
        return float(16.0 * (results + entries) + self.inner.bytes(1, more, draws))

    def seen(self, states: Array) -> Array:
        """Return the states (rows, n) that rows observe, one for each joint state; -1 elsewhere."""
        seen = np.full((len(states), len(self.cards)), -1, dtype=np.int32)
        cards = self.cards[self.variables]
        seen[:, self.variables] = np.stack(np.unravel_index(states, cards), axis=1)
        return seen

    def run(
        self, values: Iterable[Array], *, draws: int = 0, key: Array | None = None, **wanted: Any
    ) -> dict[str, Array]:
        """Return the wanted quantities of all lanes, as JunctionTree.run does.

        Parameters
        ----------
        values : the log tables of all factors for each lane.
        draws, key, wanted : as in JunctionTree.run.
        """
        rng, lanes = np.random.default_rng(key), []
        for tables in values:
            found, logs = self._mixed(tables, wanted)
            if draws:
                found["samples"] = self._drawn(tables, logs, draws, rng)
            lanes.append(found)
        return {
            name: np.concatenate([lane[name] for lane in lanes], axis=LANE_AXIS[name])
            for name in lanes[0]
        }

    def _mixed(self, values: Array, wanted: dict[str, Any]) -> tuple[dict[str, Array], Array]:
        """Return the quantities of one lane, and log Z (joint states,) given each joint state."""
        found, logs = dict[str, Array](), list[Array]()
        for states in blocks(np.arange(self.states), self.at_once(len(values))):
            rows = run_restricted(self.tree, values, self.seen(states), **wanted)
            logs.append(rows["log_z"])
            # The mixture of the joint states so far counts as one more row.
            for name, value in found.items():
                rows[name] = np.concatenate([value, rows[name]], axis=LANE_AXIS[name])
            found = _mixture(rows)
        return found, np.concatenate(logs)

    def _drawn(self, values: Array, logs: Array, draws: int, rng: np.random.Generator) -> Array:
        """Draw states (draws, 1, n): first the joint state of the cutset, then all variables.

        `logs` (joint states,) are log Z given each joint state.
        """
        samples = np.full((draws, 1, len(self.cards)), -1, dtype=np.int32)
        if logs.max() == -np.inf:
            return samples
        counts = rng.multinomial(draws, softmax(logs))
        # In random order, so that draws are not sorted by the joint state.
        places = rng.permutation(draws)
        for state in np.flatnonzero(counts):
            mine, places = places[: counts[state]], places[counts[state] :]
            own = rng.integers(0, 2**32, 4, dtype=np.uint32)
            row = self.seen(np.array([state]))
            samples[mine] = run_restricted(self.tree, values, row, draws=len(mine), key=own)[
                "samples"
            ]
        return samples


def _mixture(rows: dict[str, Array]) -> dict[str, Array]:
    """Return the quantities of one row that is a mixture of rows, weighted by their Z."""
    logs = rows["log_z"]
    found = {"log_z": log_sum(logs[None])}
    # Impossible rows have no expectations.
    some = np.flatnonzero(logs > -np.inf)
    for name in rows.keys() & EXPECTATIONS:
        values = rows[name]
        found[name] = values[:, some] @ softmax(logs[some])[:, None] if len(some) else values[:, :1]
    if "mode" in rows:
        best = [rows["mode_value"].argmax()]
        found["mode"], found["mode_value"] = rows["mode"][best], rows["mode_value"][best]
    return found


def condition_on_cutset(
    factors: Factors, order: Order, most: float, work: float
) -> tuple[Order, Cutset] | None:
    """Return a tree of at most `most` table entries, given a cutset; None if none is found.

    Parameters
    ----------
    factors : the factors.
    order : the best elimination order of all variables.
    most : the largest number of table entries of all cliques together.
    work : the largest number of table entries times joint states of the cutset.
    """
    cutset: list[int] = []
    states, inner, found = 1.0, factors, order
    while found.entries > most:
        if found.entries * states > work or not (inner.cards > 1).any():
            return None
        tree = JunctionTree(inner.cards, inner.start, inner.scope, found.order)
        cutset.append(_most_entries(tree, inner.cards))
        states *= float(factors.cards[cutset[-1]])
        inner = factors.without(np.array(cutset))
        # A lower bound of the number of joint states that the cutset will have.
        passes = states * found.entries / most
        found = best_order(
            inner.cards, inner.start, inner.scope, SEARCH_SECONDS_PER_CHOICE, found.order, passes
        )
    found = best_order(
        inner.cards, inner.start, inner.scope, LAST_SEARCH_SECONDS, found.order, states
    )
    if found.entries * states > work:
        return None
    return found, cutset_of(factors, found, np.array(cutset))


def cutset_of(factors: Factors, order: Order, variables: Array) -> Cutset:
    """Return the cutset of some variables; `order` is one of the factors without them."""
    inner = factors.without(variables)
    others = order.order[~np.isin(order.order, variables)]
    # Each row observes the variables of the cutset, which therefore come last.
    last = np.concatenate([others, variables]).astype(np.int32)
    tree = JunctionTree(factors.cards, factors.start, factors.scope, last)
    smaller = JunctionTree(inner.cards, inner.start, inner.scope, order.order)
    return Cutset(variables, tree, smaller, factors.cards)


def _most_entries(tree: JunctionTree, cards: Array) -> int:
    """Return the variable with the most saved clique entries for each doubling of the work."""
    gain = np.zeros(len(cards))
    for clique in tree.clique_scopes():
        gain[clique] += np.exp(np.log(cards[clique]).sum())
    # Conditioning on K states saves a share 1 - 1/K of the entries, and multiplies the work by K.
    several = cards > 1
    gain[several] *= (1 - 1 / cards[several]) / np.log(cards[several])
    return int(np.where(several, gain, -1.0).argmax())
