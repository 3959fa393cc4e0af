"""The reference implementation of the compiled junction tree: the same algorithms in plain numpy.

Tables hold logarithms, and -inf is impossible. Eliminating a variable connects it and its remaining
neighbours to a clique. A clique is kept only if no other clique contains it. A clique i has

    variables[i]   its axes, in the order of elimination
    residual[i]    the number of leading axes that its parent does not have
    parent[i]      a clique with a higher number that contains the other axes, or -1 at a root
    home[f]        a smallest clique that contains the scope of factor f

Collect: multiply the factors of a clique and the messages of its children, and sum the product over
the residual variables. The result is the message m of the clique to its parent. Distribute: the
marginal on a clique is the same product times b / m, where b is the marginal of the parent on the
separator (Jensen, Lauritzen and Olesen 1990). With the largest entry in place of the sum, the same
messages give the most probable states.

The compiled routines in cython_ext/c/elimination.h are compared with these functions in
tests/infer/exact/test_junction_tree.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array

Scope = tuple[int, ...]
Reduction = Callable[..., Array]


@dataclass(frozen=True)
class Tree:
    """A junction tree; the module describes its fields."""

    cards: Sequence[int]
    scopes: Sequence[Scope]
    variables: list[Scope]
    residual: list[int]
    parent: list[int]
    home: list[int]

    def separator(self, clique: int) -> Scope:
        """Return the variables that a clique shares with its parent."""
        return self.variables[clique][self.residual[clique] :]

    def children(self, clique: int) -> list[int]:
        """Return the cliques whose parent it is."""
        return [i for i, parent in enumerate(self.parent) if parent == clique]


def log_sum(table: Array, axis: tuple[int, ...]) -> Array:
    """Return log sum exp over some axes; -inf where all entries are -inf."""
    top = table.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total: Array = np.log(np.exp(table - top).sum(axis=axis, keepdims=True))
    return (total + top).squeeze(axis)


def largest(table: Array, axis: tuple[int, ...]) -> Array:
    """Return the largest entry over some axes."""
    top: Array = table.max(axis=axis, initial=-np.inf)
    return top


def build_tree(cards: Sequence[int], scopes: Sequence[Scope], order: Sequence[int]) -> Tree:
    """Eliminate all variables in order, and join cliques that lie in the clique of a child."""
    position = {variable: i for i, variable in enumerate(order)}
    lists = [set(scope) for scope in scopes]
    cliques: dict[int, Scope] = {}
    lead: dict[int, int] = {}
    last: dict[int, int] = {}
    for v in order:
        members = set().union({v}, *(s for s in lists if v in s))
        lists = [s for s in lists if v not in s] + [members - {v}]
        cliques[v] = tuple(sorted(members, key=position.__getitem__))
        # The clique of v is the separator of an earlier variable, and lies in its clique.
        below = [w for w in order[: position[v]] if cliques[w][1:] == cliques[v]]
        lead[v] = lead[below[-1]] if below else v
        last[lead[v]] = v
    groups = sorted(last, key=lambda v: position[last[v]])
    variables = [cliques[v] for v in groups]
    residual = [len(cliques[v]) - len(cliques[last[v]]) + 1 for v in groups]
    parent = [
        groups.index(lead[cliques[last[v]][1]]) if len(cliques[last[v]]) > 1 else -1 for v in groups
    ]
    size = [np.prod([cards[v] for v in clique]) for clique in variables]
    home = []
    for scope in scopes:
        fit = [i for i, clique in enumerate(variables) if set(scope) <= set(clique)]
        home.append(min(fit, key=size.__getitem__) if scope else -1)
    return Tree(cards, scopes, variables, residual, parent, home)


def spread(tree: Tree, table: Array, scope: Scope, clique: int) -> Array:
    """Return a view of a table with one axis for each variable of a clique."""
    axes = tree.variables[clique]
    order = sorted(range(len(scope)), key=lambda k: axes.index(scope[k]))
    shape = [tree.cards[v] if v in scope else 1 for v in axes]
    return table.transpose(order).reshape(shape)


def product(tree: Tree, tables: Sequence[Array], messages: dict[int, Array], clique: int) -> Array:
    """Return the product of the factors of a clique and the messages of its children."""
    total = np.zeros([tree.cards[v] for v in tree.variables[clique]])
    for f, home in enumerate(tree.home):
        if home == clique:
            total = total + spread(tree, tables[f], tree.scopes[f], clique)
    for child in tree.children(clique):
        total = total + spread(tree, messages[child], tree.separator(child), clique)
    return total


def collect(
    tree: Tree, tables: Sequence[Array], reduce: Reduction = log_sum
) -> tuple[float, dict[int, Array]]:
    """Return log Z, or with `largest` the log value of the mode, and all messages."""
    messages: dict[int, Array] = {}
    for i, residual in enumerate(tree.residual):
        messages[i] = reduce(product(tree, tables, messages, i), axis=tuple(range(residual)))
    constants = sum(float(t) for t, home in zip(tables, tree.home, strict=True) if home < 0)
    roots = sum(float(messages[i]) for i, parent in enumerate(tree.parent) if parent < 0)
    return constants + roots, messages


def distribute(
    tree: Tree, tables: Sequence[Array], messages: dict[int, Array]
) -> tuple[list[Array], list[Array]]:
    """Return the marginals of all variables, and those over the scopes of all factors."""
    beliefs: dict[int, Array] = {}
    marginals = [np.zeros(0)] * len(tree.cards)
    for i in reversed(range(len(tree.variables))):
        belief = product(tree, tables, messages, i)
        if tree.parent[i] < 0:
            belief = belief - messages[i]
        else:
            above = beliefs[tree.parent[i]]
            axes = tree.variables[tree.parent[i]]
            summed = tuple(k for k, v in enumerate(axes) if v not in tree.separator(i))
            # 0 / 0 = 0: where the message is impossible, so is the marginal.
            ratio = log_sum(above, summed) - np.where(messages[i] > -np.inf, messages[i], 0.0)
            belief = belief + ratio
        beliefs[i] = belief
        for k, v in enumerate(tree.variables[i][: tree.residual[i]]):
            rest = tuple(a for a in range(belief.ndim) if a != k)
            marginals[v] = np.exp(belief).sum(axis=rest)
    expected = []
    for scope, home in zip(tree.scopes, tree.home, strict=True):
        axes = tree.variables[home] if scope else ()
        rest = tuple(a for a, v in enumerate(axes) if v not in scope)
        kept = [v for v in axes if v in scope]
        table = np.exp(beliefs[home]).sum(axis=rest) if scope else np.array(1.0)
        expected.append(table.transpose([kept.index(v) for v in scope]))
    return marginals, expected


def states(
    tree: Tree,
    tables: Sequence[Array],
    messages: dict[int, Array],
    choose: Callable[[int, Array], int],
) -> list[int]:
    """Set states from the roots down: choose(clique, log weights of the residual states).

    With the messages of `largest` and np.argmax these are the most probable states; with those of
    `log_sum` and a draw from the weights, an exact draw.
    """
    state = [0] * len(tree.cards)
    for i in reversed(range(len(tree.variables))):
        weights = product(tree, tables, messages, i)
        weights = weights.reshape(-1, *weights.shape[tree.residual[i] :])
        given: list[slice | int] = [slice(None)]
        given += [state[v] for v in tree.separator(i)]
        weights = weights[tuple(given)]
        residual = tree.variables[i][: tree.residual[i]]
        chosen = np.unravel_index(choose(i, weights), [tree.cards[v] for v in residual])
        for v, value in zip(residual, chosen, strict=True):
            state[v] = int(value)
    return state
