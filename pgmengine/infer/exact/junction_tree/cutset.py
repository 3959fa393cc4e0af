"""Cutset conditioning: a few variables are conditioned on where the junction tree is too wide.

Given the joint state s of the cutset, all other variables have a smaller tree:

    Z = sum over s of Z(s),   p(x) = sum over s of Z(s) / Z p(x | s)

The memory is that of the smaller tree. The work is its number of table entries times the number of
joint states of the cutset. The cutset is chosen greedily: the next variable is the one that removes
the most table entries from the cliques of the best order so far. As many joint states as fit into
memory are lanes of one pass.

Reference: the junction tree of all variables (tests/infer/exact/test_outside.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pgmengine._kernels import JunctionTree
from pgmengine.base.types import Array
from pgmengine.infer.exact.junction_tree.elimination_order import Order, best_order

# Largest size, in bytes, of the joint states of the cutset that share a pass; and their largest
# number.
MAX_PASS_STATE_BYTES, MAX_STATES_PER_PASS = 256 * 2**20, 8
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
class CutsetTree:
    """The junction tree given the states of a cutset; it is used like a tree of all variables.

    Attributes
    ----------
    tree : the tree of the other variables, here called inner variables.
    factors : the factors of all variables.
    variables : (m,) the variables of the cutset.
    """

    tree: JunctionTree
    factors: Factors
    variables: Array

    @property
    def cliques(self) -> int:
        """The number of cliques."""
        return int(self.tree.cliques)

    @property
    def states(self) -> int:
        """The number of joint states of the cutset."""
        return math.prod(self.factors.cards[self.variables].tolist())

    def bytes(self, lanes: int = 1, distribute: bool = False, draws: int = 0) -> float:
        """Return the largest memory of a pass in bytes."""
        at_once = self._at_once(lanes, distribute)
        return float(self.tree.bytes(lanes * at_once, distribute, draws))

    def _at_once(self, lanes: int, distribute: bool) -> int:
        """Return the number of joint states that share a pass."""
        fit = int(MAX_PASS_STATE_BYTES // self.tree.bytes(lanes, distribute))
        return max(1, min(MAX_STATES_PER_PASS, self.states, fit))

    @cached_property
    def _inner(self) -> Factors:
        """The factors over the inner variables, given the cutset."""
        return self.factors.without(self.variables)

    @cached_property
    def _places(self) -> tuple[Array, Array]:
        """The places of the entries of inner factors in the factors of all variables, and steps.

        The places (entries,) are those where the cutset is in state 0. The steps (factors, m) lead
        from there to the next state of each variable of the cutset.
        """
        f, inner = self.factors, self._inner
        steps = np.zeros((len(f.sizes), len(self.variables)), dtype=np.int64)
        owner = np.repeat(np.arange(len(f.sizes)), inner.sizes)
        first = np.cumsum(inner.sizes) - inner.sizes
        base = np.arange(len(owner)) - first[owner]
        number = {v: k for k, v in enumerate(self.variables.tolist())}
        touched = np.unique(
            np.searchsorted(f.start, np.flatnonzero(np.isin(f.scope, self.variables)), "right") - 1
        )
        for i in touched.tolist():
            scope = f.scope[f.start[i] : f.start[i + 1]].tolist()
            shape = [int(f.cards[v]) for v in scope]
            places = np.arange(math.prod(shape)).reshape(shape)
            for axis, v in enumerate(scope):
                if v in number:
                    steps[i, number[v]] = math.prod(shape[axis + 1 :])
            given = tuple(0 if v in number else slice(None) for v in scope)
            base[first[i] : first[i] + inner.sizes[i]] = places[given].ravel()
        return base, steps

    def _joint_states(self, first: int, stop: int) -> Array:
        """Return joint states first, ..., stop - 1 of the cutset, (n, m)."""
        cards = self.factors.cards[self.variables]
        return np.stack(np.unravel_index(np.arange(first, stop), cards), axis=1)

    def run(
        self,
        values: Array,
        *,
        lanes: int = 1,
        wide: Array | None = None,
        marginals: bool = False,
        expected: Array | None = None,
        mode: bool = False,
        draws: int = 0,
        key: Array | None = None,
    ) -> dict[str, Array]:
        """Return the wanted quantities of all lanes, as JunctionTree.run does for all variables."""
        wide = np.ones(len(self.factors.sizes), dtype=np.uint8) if wide is None else wide
        question = _Question(self, values, lanes, wide > 0)
        total = _Total(self, lanes, marginals, expected, mode)
        wanted = {"marginals": marginals, "expected": expected, "mode": mode}
        at_once = self._at_once(lanes, marginals or expected is not None)
        for first in range(0, self.states, at_once):
            states = self._joint_states(first, min(first + at_once, self.states))
            total.add(states, question.run(states, **wanted))
        found = total.answers()
        if draws:
            found["samples"] = self._draws(question, total.log_weights(), draws, key)
        return found

    def _draws(self, question: _Question, logs: Array, draws: int, key: Array | None) -> Array:
        """Draw (draws, lanes, n): first the joint state of the cutset, then the other variables.

        Parameters
        ----------
        logs : (states, lanes) log Z given each joint state.
        """
        rng = np.random.default_rng(key)
        lanes = logs.shape[1]
        samples = np.full((draws, lanes, len(self.factors.cards)), -1, dtype=np.int32)
        for lane in np.flatnonzero(np.isfinite(logs.max(axis=0))).tolist():
            weights = np.exp(logs[:, lane] - logs[:, lane].max())
            counts = rng.multinomial(draws, weights / weights.sum())
            # In random order, so that draws are not sorted by the joint state.
            places = rng.permutation(draws)
            for state in np.flatnonzero(counts).tolist():
                mine, places = places[: counts[state]], places[counts[state] :]
                cutset_states = self._joint_states(state, state + 1)
                own = rng.integers(0, 2**32, 4, dtype=np.uint32)
                found = question.of(lane).run(cutset_states, draws=len(mine), key=own)["samples"][
                    :, 0
                ]
                found[:, self.variables] = cutset_states[0]
                samples[mine, lane] = found
        return samples


@dataclass(frozen=True, eq=False)
class _Question:
    """The tables of all lanes."""

    cutset_tree: CutsetTree
    values: Array
    lanes: int
    wide: Array

    @cached_property
    def _first(self) -> Array:
        """The place of the first value of each factor."""
        counts = self.cutset_tree.factors.sizes * np.where(self.wide, self.lanes, 1)
        return np.asarray(np.cumsum(counts) - counts)

    def of(self, lane: int) -> _Question:
        """Return the tables of one lane."""
        if self.lanes == 1:
            return self
        sizes, owner = self.cutset_tree.factors.sizes, self._owner(self.cutset_tree.factors)
        local = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
        step = np.where(self.wide[owner], self.lanes, 1)
        places = self._first[owner] + local * step + np.where(self.wide[owner], lane, 0)
        return _Question(self.cutset_tree, self.values[places], 1, self.wide)

    @staticmethod
    def _owner(factors: Factors) -> Array:
        """The factor of each entry."""
        return np.repeat(np.arange(len(factors.sizes)), factors.sizes)

    def run(self, states: Array, **wanted: Any) -> dict[str, Array]:
        """Run the inner tree; it has the lanes of the question once for each joint state."""
        o = self.cutset_tree
        base, steps = o._places
        lanes = len(states) * self.lanes
        wide = self.wide | steps.any(axis=1)
        owner = self._owner(o._inner)
        here = np.where(self.wide, self.lanes, 1)[owner]
        counts = np.where(wide, lanes, 1)[owner]
        ends = np.cumsum(counts)
        values = np.empty(ends[-1] if len(ends) else 0)
        one = np.flatnonzero(~wide[owner])
        values[ends[one] - 1] = self.values[self._first[owner[one]] + base[one]]
        many = np.flatnonzero(wide[owner])
        moved = base[many][:, None] + (states @ steps.T).T[owner[many]]
        places = self._first[owner[many]][:, None] + moved * here[many][:, None]
        lane = np.arange(self.lanes) * self.wide[owner[many]][:, None]
        found = self.values[places[:, :, None] + lane[:, None]]
        values[(ends - counts)[many][:, None] + np.arange(lanes)] = found.reshape(-1, lanes)
        result: dict[str, Array] = o.tree.run(
            values, lanes=lanes, wide=wide.astype(np.uint8), **wanted
        )
        return result


class _Total:
    """Sums over the joint states of the cutset, with weights relative to the largest so far."""

    def __init__(
        self,
        cutset_tree: CutsetTree,
        lanes: int,
        marginals: bool,
        expected: Array | None,
        mode: bool,
    ) -> None:
        self.cutset_tree, self.lanes, self.asked = cutset_tree, lanes, expected
        f = cutset_tree.factors
        self.logs: list[Array] = []
        self.scale = np.full(lanes, -np.inf)
        self.marginals = np.zeros((int(f.cards.sum()), lanes)) if marginals else None
        size = 0 if expected is None else int(f.sizes[expected].sum())
        self.expected = None if expected is None else np.zeros((size, lanes))
        self.best = np.full(lanes, -np.inf)
        self.mode = np.full((lanes, len(f.cards)), -1, dtype=np.int32) if mode else None

    @cached_property
    def _unit_places(self) -> Array:
        """The place of each inner variable's marginals among those of all variables."""
        cards, inner = self.cutset_tree.factors.cards, self.cutset_tree._inner.cards
        first = np.cumsum(cards) - cards
        owner = np.repeat(np.arange(len(cards)), inner)
        local = np.arange(len(owner)) - (np.cumsum(inner) - inner)[owner]
        return np.asarray(first[owner] + local)

    @cached_property
    def _factor_places(self) -> tuple[Array, Array]:
        """The place of each entry of the wanted factors at cutset state 0, and its factor."""
        assert self.asked is not None
        base, _ = self.cutset_tree._places
        sizes, inner = self.cutset_tree.factors.sizes, self.cutset_tree._inner.sizes
        mine = np.zeros(len(sizes), dtype=bool)
        mine[self.asked] = True
        first = np.zeros(len(sizes), dtype=np.int64)
        first[self.asked] = np.cumsum(sizes[self.asked]) - sizes[self.asked]
        owner = np.repeat(np.arange(len(sizes)), inner)
        kept = mine[owner]
        return first[owner[kept]] + base[kept], owner[kept]

    def add(self, states: Array, found: dict[str, Array]) -> None:
        """Add the results of the inner tree given some joint states."""
        logs = found["log_z"].reshape(len(states), self.lanes)
        self.logs.append(logs)
        if self.marginals is not None or self.expected is not None:
            top = np.maximum(self.scale, logs.max(axis=0))
            safe = np.where(np.isfinite(top), top, 0.0)
            # The sums so far, and the weights (states, lanes) of the joint states.
            before, weights = np.exp(self.scale - safe), np.exp(logs - safe)
            self.scale = top
            if self.marginals is not None:
                self.marginals *= before
                for s, part in self._weighed(found["marginals"], weights):
                    self.marginals[self._unit_places + self._steps(states[s])] += part
            if self.expected is not None:
                self.expected *= before
                places, owner = self._factor_places
                moved = states @ self.cutset_tree._places[1].T
                for s, part in self._weighed(found["expected"], weights):
                    self.expected[places + moved[s][owner]] += part
        if self.mode is not None:
            self._keep_best(states, found)

    def _weighed(self, found: Array, weights: Array) -> Iterator[tuple[int, Array]]:
        """Yield each joint state's number, and its share (entries, lanes) of the expectations."""
        parts = found.reshape(len(found), len(weights), self.lanes)
        for s, weight in enumerate(weights):
            # Impossible joint states have no expectations.
            yield s, np.where(weight > 0, parts[:, s], 0.0) * weight

    def _steps(self, states: Array) -> Array:
        """Return the steps that move the places of marginals to the states of the cutset."""
        steps = np.zeros(len(self.cutset_tree.factors.cards), dtype=np.int64)
        steps[self.cutset_tree.variables] = states
        return np.repeat(steps, self.cutset_tree._inner.cards)

    def _keep_best(self, states: Array, found: dict[str, Array]) -> None:
        """Keep the most probable states of each lane."""
        assert self.mode is not None
        values = found["mode_value"].reshape(len(states), self.lanes)
        modes = found["mode"].reshape(len(states), self.lanes, -1)
        top, lanes = values.argmax(axis=0), np.arange(self.lanes)
        better = values[top, lanes] > self.best
        self.best = np.maximum(self.best, values[top, lanes])
        for lane in np.flatnonzero(better).tolist():
            self.mode[lane] = modes[top[lane], lane]
            self.mode[lane, self.cutset_tree.variables] = states[top[lane]]

    def log_weights(self) -> Array:
        """Return log Z (states, lanes) given each joint state."""
        return np.asarray(np.concatenate(self.logs))

    def answers(self) -> dict[str, Array]:
        """Return the quantities of all lanes."""
        logs = self.log_weights()
        top = logs.max(axis=0)
        safe = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            out = {"log_z": safe + np.log(np.exp(logs - safe).sum(axis=0))}
        share = np.exp(logs - safe).sum(axis=0)
        share = np.where(share > 0, share, np.nan)
        if self.marginals is not None:
            out["marginals"] = self.marginals / share
        if self.expected is not None:
            out["expected"] = self.expected / share
        if self.mode is not None:
            out["mode"], out["mode_value"] = self.mode, self.best
        return out


def condition_on_cutset(
    factors: Factors, order: Order, most: float, work: float
) -> tuple[Order, CutsetTree] | None:
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
        # The cutset will have at least so many joint states in the end.
        passes = states * found.entries / most
        found = best_order(
            inner.cards, inner.start, inner.scope, SEARCH_SECONDS_PER_CHOICE, found.order, passes
        )
    found = best_order(
        inner.cards, inner.start, inner.scope, LAST_SEARCH_SECONDS, found.order, states
    )
    if found.entries * states > work:
        return None
    tree = JunctionTree(inner.cards, inner.start, inner.scope, found.order)
    return found, CutsetTree(tree, factors, np.array(cutset))


def _most_entries(tree: JunctionTree, cards: Array) -> int:
    """Return the variable that saves the most clique entries for each bit of work."""
    gain = np.zeros(len(cards))
    for clique in tree.clique_scopes():
        gain[clique] += np.exp(np.log(cards[clique]).sum())
    # Conditioning on K states saves a share 1 - 1/K of the entries, and multiplies the work by K.
    several = cards > 1
    gain[several] *= (1 - 1 / cards[several]) / np.log(cards[several])
    return int(np.where(several, gain, -1.0).argmax())
