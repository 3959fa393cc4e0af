"""States that no mode has: they are left out before a tree is built, where only the mode is wanted.

The log density is a sum of factors, so that the sum of their largest entries, U, bounds it from
above. Moving cost between factors changes the bound and no density: with the max-marginals
m_f(x_v) of the factors f of a variable v, and their average a(x_v) with the weights 1 / arity,

    theta_f(x) += (a(x_v) - m_f(x_v)) / arity of f    for all variables v of f at once,

which is a step of max-sum diffusion (Kovalevsky and Koval 1975; Werner 2007, section 5). A state
found on the way, with the log density L, bounds the mode from below. An entry e of a factor f with

    U - max theta_f + theta_f(e) < L

is in no mode, and counts as impossible. What is left is often a tree, or a single state: of the
UAI 2014 instances, 60 variables of 16 states with cliques of 2^27 entries keep 65 states of 960
after 13 ms. Nothing is approximate: entries are left out only where the bound shows it, beyond a
margin for rounding, and the tree of the others gives the mode.

Reference: the mode of the whole tree (test_mode_bounds.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array
from pgmengine.infer.exact.junction_tree.factors import Scopes

# Rounds of diffusion before each state that is tried.
ROUNDS = 20, 40, 80
# Seconds of a round for a factor entry, and of a state for each variable of each factor.
ROUND_SECONDS, STATE_SECONDS = 1e-8, 8e-6
# The largest number of factor entries that are bounded.
MAX_BOUNDED_ENTRIES = 2**22
# The share of the size of the bounds by which entries have to miss the best state. Sums of a round
# lose a few digits of sixteen.
MARGIN = 1e-9
# What an impossible entry costs at most, in nats: more would cost the digits of all others.
MAX_PENALTY = 1e6


@dataclass(frozen=True, eq=False)
class _Group:
    """Factors of one shape: their variables (n, arity), and the places (n, size) of their entries.

    `states` has for each axis the places (n, card) of the states of its variable among all.
    """

    shape: tuple[int, ...]
    scope: Array
    places: Array
    states: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class Diffused:
    """Bounds of the largest log density, by max-sum diffusion.

    Attributes
    ----------
    upper : no state has a larger log density; inf where nothing was found.
    margin : what `upper` allows for rounding.
    best : the log density of `state`, -inf if it is impossible.
    state : (n,) the best state that was found.
    in_no_mode : (entries,) whether each entry is shown to be in no mode.
    """

    upper: float
    margin: float
    best: float
    state: Array
    in_no_mode: Array


def in_no_mode(cards: Array, scopes: Scopes, logs: Array) -> Array:
    """Return whether each entry (entries,) of some factors is shown to be in no mode."""
    return diffused(cards, scopes, logs).in_no_mode


def diffused(cards: Array, scopes: Scopes, logs: Array) -> Diffused:
    """Return bounds of the largest log density.

    Parameters
    ----------
    cards : (n,) the numbers of states of the variables.
    scopes : the factors.
    logs : (entries,) their log entries, -inf where impossible.
    """
    out, finite = np.zeros(len(logs), dtype=bool), np.isfinite(logs)
    state = np.zeros(len(cards), dtype=np.int64)
    if not finite.any():
        # Without entries, all states have the log density 0.
        nothing = (0.0, 0.0, 0.0) if not len(logs) else (np.inf, 0.0, -np.inf)
        return Diffused(*nothing, state, out)
    groups, alone = _groups(cards, scopes)
    constant = float(logs[alone].sum())
    # An impossible entry costs more than all other entries can be apart, so that it is in no mode
    # unless every state is impossible.
    ranges = [np.ptp(np.where(finite[g.places], logs[g.places], np.nan), axis=1) for g in groups]
    apart = float(sum(np.nan_to_num(r).sum() for r in ranges))
    theta = np.where(finite, logs, logs[finite].min() - min(apart + 1.0, MAX_PENALTY))
    parts = [theta[g.places].reshape(-1, *g.shape) for g in groups]
    weight = _weights(cards, groups)
    best, upper = -np.inf, np.inf
    for rounds in ROUNDS:
        for _ in range(rounds):
            average = _moved(groups, parts, weight)
        value, found = _found(cards, groups, parts, logs, average)
        if value + constant > best or not math.isfinite(best):
            best, state = value + constant, found
        upper = constant + sum([part.reshape(len(part), -1).max(axis=1).sum() for part in parts])
        margin = MARGIN * (1.0 + abs(upper) + apart)
        if not math.isfinite(best):
            return Diffused(upper + margin, margin, best, state, out)
        margin += MARGIN * abs(best)
        if upper - best <= margin:
            break
    for g, part in zip(groups, parts, strict=True):
        flat = part.reshape(len(part), -1)
        out[g.places] = upper - flat.max(axis=1, keepdims=True) + flat < best - margin
    return Diffused(upper + margin, margin, best, state, out)


def bounding_seconds(scopes: Scopes, sizes: Array) -> float:
    """Return about the seconds of `in_no_mode`; infinite where there are too many entries."""
    entries = float(sizes.sum())
    if entries > MAX_BOUNDED_ENTRIES:
        return math.inf
    return sum(ROUNDS) * ROUND_SECONDS * entries + len(ROUNDS) * STATE_SECONDS * len(scopes.scope)


def _groups(cards: Array, scopes: Scopes) -> tuple[list[_Group], Array]:
    """Return the factors by shape, and the places of the entries of factors without variables."""
    start, scope = scopes.start, scopes.scope
    first_state = np.cumsum(cards) - cards
    shapes: dict[tuple[int, ...], list[int]] = {}
    each = [tuple(cards[scope[a:b]].tolist()) for a, b in zip(start[:-1], start[1:], strict=True)]
    for number, shape in enumerate(each):
        shapes.setdefault(shape, []).append(number)
    sizes = np.array([math.prod(shape) for shape in each], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    out = []
    for shape, numbers in shapes.items():
        own = scope[start[numbers][:, None] + np.arange(len(shape))].astype(np.int64)
        places = first[numbers][:, None] + np.arange(math.prod(shape))
        states = [first_state[own[:, a]][:, None] + np.arange(k) for a, k in enumerate(shape)]
        out.append(_Group(shape, own, places, tuple(states)))
    alone = [g.places.ravel() for g in out if not g.shape]
    return [g for g in out if g.shape], np.concatenate([*alone, np.empty(0, dtype=np.int64)])


def _weights(cards: Array, groups: list[_Group]) -> Array:
    """Return the sum of 1 / arity over the factors of each state's variable, (states,)."""
    out = np.zeros(int(cards.sum()))
    for g in groups:
        for at in g.states:
            out += np.bincount(at.ravel(), minlength=len(out)) / len(g.shape)
    return np.maximum(out, np.finfo(np.float64).tiny)


def _moved(groups: list[_Group], parts: list[Array], weight: Array) -> Array:
    """Make a round of diffusion, and return the average max-marginal (states,) before it."""
    total, tops = np.zeros(len(weight)), []
    for g, part in zip(groups, parts, strict=True):
        axes = range(len(g.shape))
        own = [part.max(axis=tuple(1 + b for b in axes if b != a)) for a in axes]
        tops.append(own)
        for at, top in zip(g.states, own, strict=True):
            total += np.bincount(at.ravel(), top.ravel() / len(g.shape), len(total))
    average = total / weight
    for g, part, own in zip(groups, parts, tops, strict=True):
        for a, (at, top) in enumerate(zip(g.states, own, strict=True)):
            along = [len(part), *(k if b == a else 1 for b, k in enumerate(g.shape))]
            part += ((average[at] - top) / len(g.shape)).reshape(along)
    return average


def _found(
    cards: Array, groups: list[_Group], parts: list[Array], logs: Array, average: Array
) -> tuple[float, Array]:
    """Return the log density of a good state, -inf if it is impossible, and the state (n,).

    Variables take their states one by one, the surest ones first: the best one given the states
    that others have taken, with the most that is possible for the rest.
    """
    first = np.cumsum(cards) - cards
    near: list[list[tuple[int, int, int]]] = [[] for _ in cards]
    for i, g in enumerate(groups):
        for j, own in enumerate(g.scope.tolist()):
            for axis, v in enumerate(own):
                near[v].append((i, j, axis))
    lead = [np.sort(average[a : a + k])[-2:] for a, k in zip(first, cards, strict=True)]
    taken: list[list[list[int | slice]]] = [
        [[slice(None)] * len(g.shape) for _ in g.places] for g in groups
    ]
    states = np.zeros(len(cards), dtype=np.int64)
    for v in np.argsort([top[0] - top[-1] for top in lead], kind="stable").tolist():
        score = np.zeros(cards[v])
        for i, j, axis in near[v]:
            index = taken[i][j]
            left = parts[i][j][tuple(index)]
            # Axes of variables that have a state are gone.
            place = sum(isinstance(x, slice) for x in index[:axis])
            score += left.max(axis=tuple(b for b in range(left.ndim) if b != place))
        states[v] = state = int(score.argmax())
        for i, j, axis in near[v]:
            taken[i][j][axis] = state
    total = 0.0
    for g, own in zip(groups, taken, strict=True):
        at = np.array(own, dtype=np.int64).T
        numbers = np.asarray(np.ravel_multi_index(tuple(at), g.shape))
        total += float(logs[g.places[np.arange(len(numbers)), numbers]].sum())
    return total, states
