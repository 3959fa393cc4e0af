"""Junction trees in the log domain: c/junction.h, c/elimination.h and c/tree_states.h in numpy.

There is a clique for each variable: the variable, and the later ones of the elimination order that
are connected to it when it is eliminated. The clique's parent is the clique of its next variable.
A table has an axis for each variable of its clique, and the lanes as last axis. The passes are
those of tests/numpy_tree.py; the compiled ones join cliques that lie in others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.numpy_routines.orders import checked_factors, eliminated, entries_of
from pgmengine.base.types import Array

# The most axes of an array in numpy, with one for the lanes.
MOST_AXES = 63


def _log_sum(table: Array, axis: tuple[int, ...]) -> Array:
    """Return log sum exp over some axes; -inf where all entries are -inf."""
    top = table.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(table - top).sum(axis=axis, keepdims=True))
    return np.asarray((total + top).squeeze(axis))


class JunctionTree:
    """The junction tree of an elimination order; see JunctionTree in elimination.pxi."""

    def __init__(self, cards: Array, start: Array, scope: Array, order: Array) -> None:
        factors = checked_factors(cards, start, scope)
        if sorted(order.tolist()) != list(range(len(cards))):
            raise PgmError(f"the order is no permutation of {len(cards)} variables")
        self.cards = np.asarray(cards, dtype=np.int64)
        self.scopes = [tuple(scope[start[f] : start[f + 1]].tolist()) for f in range(factors)]
        self.members = list(eliminated(cards, self.scopes, order.tolist()))
        place = {clique[0]: i for i, clique in enumerate(self.members)}
        self.parent = [place[c[1]] if len(c) > 1 else -1 for c in self.members]
        self.children: list[list[int]] = [[] for _ in self.members]
        for i, above in enumerate(self.parent):
            if above >= 0:
                self.children[above].append(i)
        self.home = [min((place[v] for v in s), default=-1) for s in self.scopes]
        self.own: list[list[int]] = [[] for _ in self.members]
        for f, home in enumerate(self.home):
            if home >= 0:
                self.own[home].append(f)
        sizes = [entries_of(cards, clique) for clique in self.members]
        self.cliques, self.entries = len(sizes), float(sum(sizes))
        self.largest = math.log2(max(sizes, default=1.0))
        self.separators = sum(
            size / float(cards[c[0]]) for size, c in zip(sizes, self.members, strict=True)
        )
        self.size = [int(entries_of(cards, s)) for s in self.scopes]

    def clique_scopes(self) -> list[Array]:
        """Return the variables of each clique, in the order of their axes."""
        return [np.array(clique, dtype=np.int32) for clique in self.members]

    def parents(self) -> Array:
        """Return the parent of each clique, -1 for roots."""
        return np.array(self.parent, dtype=np.int32)

    def bytes(
        self, lanes: int = 1, more: bool = False, draws: int = 0, narrow: float = 0.0
    ) -> float:
        """Return an estimate of the bytes of a run, without results."""
        return 8.0 * lanes * (3 * self.entries + self.separators + sum(self.size)) + 16.0 * draws

    def run(
        self,
        values: Array | list[Array],
        *,
        lanes: int = 1,
        wide: Array | None = None,
        where: Array | None = None,
        log_z: bool = True,
        marginals: bool = False,
        expected: Array | None = None,
        mode: bool = False,
        draws: int = 0,
        uniforms: Array | None = None,
        key: Array | None = None,
        stream: Array | None = None,
        log_space: bool = False,
        progress: Callable[[float], None] | None = None,
        seen: Array | None = None,
    ) -> dict[str, Any]:
        """Return the wanted quantities of all lanes; see JunctionTree.run in elimination.pxi.

        seen : (lanes, n) the observed states of each lane, as in `run_restricted`.
        """
        if max([len(c) for c in self.members], default=0) > MOST_AXES:
            raise PgmError(
                f"a clique has more than {MOST_AXES} variables, which needs the compiled routines: "
                "install a C compiler and install pgmengine again"
            )
        passes = _Passes(self, self._tables(values, lanes, wide, where), lanes, seen)
        result: dict[str, Any] = {}
        if log_z or marginals or expected is not None or draws:
            total = passes.collect(_log_sum)
            result |= {"log_z": total, "log_space": True}
            if draws:
                chosen = self._uniforms(draws, lanes, uniforms, key, stream)
                result["samples"] = passes.states(total, chosen)
            if marginals or expected is not None:
                passes.distribute()
                if marginals:
                    result["marginals"] = passes.marginals(total)
                if expected is not None:
                    result["expected"] = passes.expected(total, expected)
        if mode:
            best = passes.collect(lambda table, axis: table.max(axis=axis))
            result["mode_value"], result["mode"] = best, passes.states(best, None)[0]
        if progress is not None:
            progress(1.0)
        return result

    def _tables(
        self, values: Array | list[Array], lanes: int, wide: Array | None, where: Array | None
    ) -> list[Array]:
        """Return the table of each factor, with an axis for each variable and one for lanes."""
        parts = [values] if isinstance(values, np.ndarray) else list(values)
        flat = np.concatenate([np.zeros(0), *(np.ravel(part) for part in parts)])
        if np.isnan(flat).any() or np.isposinf(flat).any():
            raise PgmError("a table has NaN or +inf: log values are finite or -inf")
        tables, at = [], 0
        for f, s in enumerate(self.scopes):
            own = lanes if wide is not None and wide[f] else 1
            first = at if where is None else int(where[f])
            at = first + self.size[f] * own
            if at > len(flat):
                raise PgmError(f"values has {len(flat)} entries, and factor {f} ends at {at}")
            tables.append(flat[first:at].reshape(*(self.cards[v] for v in s), own))
        if where is None and at != len(flat):
            raise PgmError(f"values has {len(flat)} entries, expected {at}")
        return tables

    def _uniforms(
        self,
        draws: int,
        lanes: int,
        uniforms: Array | None,
        key: Array | None,
        stream: Array | None,
    ) -> Array:
        """Return the uniforms of draws, (draws, lanes, cliques)."""
        if uniforms is not None:
            if uniforms.shape != (draws, lanes, self.cliques):
                raise PgmError(
                    f"uniforms has the shape {uniforms.shape}, expected "
                    f"({draws}, {lanes}, {self.cliques})"
                )
            return uniforms
        if key is None:
            raise PgmError("draws need uniforms or a key")
        streams = range(lanes) if stream is None else stream
        words = [int(word) for word in key]
        each = [np.random.default_rng([*words, int(s)]) for s in streams]
        return np.stack([rng.random((draws, self.cliques)) for rng in each], axis=1)


class _Passes:
    """The messages of one run, and the products of factors and messages in each clique."""

    def __init__(
        self, tree: JunctionTree, tables: list[Array], lanes: int, seen: Array | None
    ) -> None:
        self.tree, self.tables, self.lanes, self.seen = tree, tables, lanes, seen
        self.products: list[Array] = []
        self.messages: list[Array] = []
        self.beliefs: list[Array] = []

    def collect(self, reduce: Callable[[Array, tuple[int, ...]], Array]) -> Array:
        """Pass messages to the roots; return the sums (lanes,) of all states, or the largest."""
        tree = self.tree
        self.products, self.messages = [], []
        total = np.zeros(self.lanes)
        for f, home in enumerate(tree.home):
            if home < 0:
                total = total + self.tables[f]
        for i, clique in enumerate(tree.members):
            product = np.zeros([*(tree.cards[v] for v in clique), self.lanes])
            for f in tree.own[i]:
                product += self._spread(self.tables[f], tree.scopes[f], clique)
            for child in tree.children[i]:
                product += self._spread(self.messages[child], tree.members[child][1:], clique)
            if self.seen is not None:
                seen, states = self.seen[:, clique[0]], np.arange(tree.cards[clique[0]])
                fine = (seen == -1) | (seen == states[:, None])
                product += np.where(fine, 0.0, -np.inf).reshape(
                    len(states), *[1] * (len(clique) - 1), self.lanes
                )
            self.products.append(product)
            self.messages.append(reduce(product, (0,)))
            if tree.parent[i] < 0:
                total = total + self.messages[i]
        return total

    def distribute(self) -> None:
        """Compute the log marginals of all cliques, from the roots down."""
        tree = self.tree
        self.beliefs = [np.zeros(0)] * tree.cliques
        for i in reversed(range(tree.cliques)):
            # 0 / 0 = 0: where the message is impossible, so is the marginal.
            below = np.where(np.isneginf(self.messages[i]), 0.0, self.messages[i])
            belief = self.products[i] - below
            if tree.parent[i] >= 0:
                above = tree.members[tree.parent[i]]
                rest = tuple(k for k, v in enumerate(above) if v not in tree.members[i])
                # The variables of a separator have the same order in both cliques.
                belief = belief + _log_sum(self.beliefs[tree.parent[i]], rest)
            self.beliefs[i] = belief

    def marginals(self, total: Array) -> Array:
        """Return the marginals of all variables, (sum of cards, lanes)."""
        found = [np.zeros((0, self.lanes))] * len(self.tree.cards)
        for clique, belief in zip(self.tree.members, self.beliefs, strict=True):
            found[clique[0]] = np.exp(_log_sum(belief, tuple(range(1, len(clique)))))
        return self._possible(np.concatenate([np.zeros((0, self.lanes)), *found]), total)

    def expected(self, total: Array, factors: Array) -> Array:
        """Return the marginals over the scopes of some factors, (entries, lanes)."""
        found = [np.zeros((0, self.lanes))]
        for f in np.asarray(factors).tolist():
            scope, home = self.tree.scopes[f], self.tree.home[f]
            if home < 0:
                found.append(np.ones((1, self.lanes)))
                continue
            clique = self.tree.members[home]
            kept = [v for v in clique if v in scope]
            rest = tuple(k for k, v in enumerate(clique) if v not in scope)
            table = np.exp(_log_sum(self.beliefs[home], rest))
            axes = [kept.index(v) for v in scope]
            found.append(table.transpose(*axes, len(kept)).reshape(-1, self.lanes))
        return self._possible(np.concatenate(found), total)

    def states(self, total: Array, uniforms: Array | None) -> Array:
        """Return draws, or without uniforms one most probable state, (draws, lanes, n)."""
        tree, draws = self.tree, 1 if uniforms is None else len(uniforms)
        lane = np.broadcast_to(np.arange(self.lanes), (draws, self.lanes))
        state = np.zeros((draws, self.lanes, len(tree.cards)), dtype=np.int32)
        for i in reversed(range(tree.cliques)):
            v, *rest = tree.members[i]
            # (states, draws, lanes)
            at: tuple[Any, ...] = (slice(None), *(state[:, :, w] for w in rest), lane)
            weight = self.products[i][at]
            if uniforms is None:
                state[:, :, v] = weight.argmax(axis=0)
                continue
            top = weight.max(axis=0)
            share = np.exp(weight - np.where(np.isfinite(top), top, 0.0)).cumsum(axis=0)
            state[:, :, v] = (uniforms[:, :, i] * share[-1] >= share[:-1]).sum(axis=0)
        state[:, np.isneginf(total)] = -1
        return state

    def _spread(self, table: Array, scope: tuple[int, ...], clique: tuple[int, ...]) -> Array:
        """Return a view of a table with one axis for each variable of a clique, and the lanes."""
        order = sorted(range(len(scope)), key=lambda k: clique.index(scope[k]))
        shape = [self.tree.cards[v] if v in scope else 1 for v in clique]
        return table.transpose(*order, len(scope)).reshape(*shape, table.shape[-1])

    def _possible(self, table: Array, total: Array) -> Array:
        """Return a table (entries, lanes) with NaN in the lanes that have no possible state."""
        return np.where(np.isneginf(total), np.nan, table)


def _checked(tree: JunctionTree, seen: Array) -> Array:
    """Return the states that rows observe; PgmError unless they are states of the variables."""
    states = np.ascontiguousarray(seen, dtype=np.int32)
    if states.shape[1] != len(tree.cards):
        raise PgmError(f"seen has {states.shape[1]} variables, expected {len(tree.cards)}")
    if (states < -2).any() or (states >= tree.cards).any():
        raise PgmError("seen has a number that is no state, -1 or -2")
    return states


def run_restricted(
    tree: JunctionTree,
    values: Array,
    seen: Array,
    *,
    wide: Array | None = None,
    marginals: bool = False,
    expected: Array | None = None,
    mode: bool = False,
    draws: int = 0,
    key: Array | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Return the wanted quantities of rows that observe different variables."""
    states = _checked(tree, seen)
    return tree.run(
        values,
        lanes=len(states),
        wide=wide,
        marginals=marginals,
        expected=expected,
        mode=mode,
        draws=draws,
        key=key,
        progress=progress,
        seen=states,
    )


def restricted_entries(
    tree: JunctionTree, values: Array, seen: Array, *, wide: Array | None = None
) -> Array:
    """Return the entries of all cliques, and of the largest one, for each row, (rows, 2)."""
    states = _checked(tree, seen)
    cards = np.where(states == -1, tree.cards, np.where(states == -2, 0, 1)).astype(np.float64)
    sizes = [cards[:, list(clique)].prod(axis=1) for clique in tree.members]
    if not sizes:
        return np.zeros((len(states), 2))
    table = np.stack(sizes)
    table = np.where((states == -2).any(axis=1), 0.0, table)
    return np.stack((table.sum(axis=0), table.max(axis=0)), axis=1)
