"""Children with independent causes (noisy-or units) as small tables.

Such a child has the input z = leak + sum over parents i of step_i(x_i), and is 0 with probability
e^-z: the leak and every parent fail to turn it on. A table over all parents has one entry for each
of their joint states. Two forms are small, however many parents there are:

    absent   a child that is observed to be 0: -beta z, the sum of a constant and one table for
             each free parent
    chain    any other child, at beta = 1. The auxiliary variable a_i says whether the leak or any
             of the first i parents has turned the child on:

                 p(a_0 = 0) = e^-leak
                 p(a_i = 0 | a_i-1 = 0, x_i) = e^-step_i(x_i)
                 p(a_i = 1 | a_i-1 = 1, x_i) = 1

             The last auxiliary variable is the child.

All entries are probabilities, so that no digits cancel. Their sum over the auxiliary variables is
the conditional of the child. The maximum over states has no such form, because it would be taken
over the auxiliary variables as well. For the mode, absent children are small tables, and all other
children are tables over all parents.

References: Heckerman (1989); Diez and Druzdzel (2006).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pgmengine.base.equal_rows import distinct, rows_by_kind
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, Weight
from pgmengine.evidence.relevance import barren, parents_of
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.junction_tree.factors import FreeUnits, Scopes
from pgmengine.infer.exact.junction_tree.marginalised import (
    MAX_MARGINALISED_ENTRIES,
    Field,
    scopes_of,
)
from pgmengine.model.couplings import Coupling
from pgmengine.model.weights import is_sparse

# Largest number of entries of a table over all parents that is taken in place of a chain.
MAX_WHOLE_ENTRIES = 8


def log_on(z: Array) -> Array:
    """Return log(1 - e^-z), which is -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(-np.expm1(-z)))


def has_causes(target: Target) -> bool:
    """Whether a layer has units with independent causes."""
    return any([layer.unit.independent_causes for layer in target.structure.layers.values()])


def equal_findings(target: Target, rows: Array) -> list[Array]:
    """Return rows of one evidence pattern by the values of their units with independent causes."""
    layers = target.structure.layers
    seen = [target.evidence.values[n][rows] for n in layers if layers[n].unit.independent_causes]
    return [rows[some] for some in rows_by_kind(*seen)]


def absent_children(target: Target, name: str) -> Array:
    """Return the children (size,) of a layer with independent causes that are observed to be 0."""
    if not target.structure.layers[name].unit.independent_causes:
        return np.zeros(target.structure.layers[name].size, dtype=bool)
    seen = ~target.free[name][0] & ~target.intervened[name][0]
    return np.asarray(seen & (target.evidence.values[name][0] == 0))


def separate_units(target: Target, structural: bool) -> dict[str, Array]:
    """Return the barren units with independent causes and without children: layer -> (size,) bool.

    They are in no factor: each is 0 with the probability E[e^-z], where z is a sum over its
    parents. The target is one row, which stands for all rows of its pattern.
    """
    s = target.structure
    out = {name: np.zeros(layer.size, dtype=bool) for name, layer in s.layers.items()}
    names = [n for n in s.directed_layers if s.layers[n].unit.independent_causes]
    if not names or not target.untempered:
        return out
    all_barren = barren(target, tables=False)
    for name in names:
        mine = all_barren[name][0].copy()
        for c in s.arrows_from[name]:
            mine &= ~parents_of(target, c, ~target.intervened[c.b][:1], structural)[0]
        out[name] = mine
    return out


def shares(target: Target, arrow: Coupling, parents: Array, children: Array) -> Array:
    """Return the amounts (entries, children) that each state of each parent adds to -z."""
    layer = target.structure.layers[arrow.a]
    support = layer.unit.support
    assert support is not None
    block = target.model.weight(arrow)[layer.columns(parents)][:, children]
    dense = np.asarray(block.toarray() if is_sparse(block) else block)
    by_unit = dense.reshape(len(parents), layer.unit.width, len(children))
    values = support.reshape(len(support), -1)
    found = np.einsum("kw,pwc->pkc", values, by_unit)
    return np.asarray(-found.reshape(len(parents) * len(values), len(children)))


@dataclass(frozen=True, eq=False)
class AbsentTerm:
    """Children of one layer that are observed to be 0: -beta z, a sum over their parents.

    Attributes
    ----------
    name : the layer.
    children : (size,) bool, the children among the units of the layer.
    parents : the arrows, each with its free parents.
    """

    name: str
    children: Array
    parents: tuple[tuple[Coupling, Array], ...]
    scopes: Scopes

    by_row = True

    def values(self, target: Target) -> Array:
        """Return the entries of the parents, and the constant."""
        children = np.flatnonzero(self.children)
        parts = [shares(target, c, units, children).sum(axis=1) for c, units in self.parents]
        leaks = distinct(target.model.inputs(target.evidence.values, self.name))[:, children]
        constant = -leaks.sum(axis=1)[None]
        above = np.concatenate([np.empty(0), *parts])[:, None]
        above = np.broadcast_to(above, (len(above), constant.shape[1]))
        return np.asarray(float(target.beta[0]) * np.concatenate([above, constant]))


def absent_term(target: Target, free: FreeUnits, name: str, children: Array) -> AbsentTerm | None:
    """Return the term of the children (size,) that are observed to be 0, or None without any."""
    if not children.any():
        return None
    parents, scopes = [], list[list[int]]()
    for c in target.structure.arrows_into[name]:
        units = np.flatnonzero(parents_of(target, c, children[None])[0])
        numbers = free.of(target, c.a, units)
        parents.append((c, units[numbers >= 0]))
        scopes += [[int(u)] for u in numbers[numbers >= 0]]
    return AbsentTerm(name, children, tuple(parents), scopes_of([*scopes, []]))


@dataclass(frozen=True, eq=False)
class Links:
    """Pairs of a parent and a child that one arrow joins: the numbers (n,) of both units."""

    arrow: Coupling
    parents: Array
    children: Array

    def support(self, target: Target) -> Array:
        """Return the values (K, width) of the parents."""
        support = target.structure.layers[self.arrow.a].unit.support
        assert support is not None
        return np.asarray(support.reshape(len(support), -1))

    def steps(self, target: Target) -> Array:
        """Return the input (n, K) that each state of a parent gives to its child."""
        layer = target.structure.layers[self.arrow.a]
        rows = layer.columns(self.parents)
        columns = np.repeat(self.children, layer.unit.width)
        found = np.asarray(_entries(target.model.weight(self.arrow), rows, columns))
        return np.asarray(found.reshape(len(self.parents), -1) @ self.support(target).T)


def _entries(weight: Weight, rows: Array, columns: Array) -> Array:
    """Return some entries of a weight."""
    return np.asarray(weight[rows, columns]).ravel()


@dataclass(frozen=True, eq=False)
class ChainTerm:
    """Children of one layer as chains of auxiliary variables.

    There are four kinds of factors: the leaks, over a_0; the values of observed children, over
    their last auxiliary variable; the links, over (a_i-1, parent, a_i); and, where joint
    distributions are wanted, factors over (parent, child) whose entries are all 0.

    Attributes
    ----------
    name : the layer.
    children : (n,) units.
    observed : (n,) bool, whether each child is observed to be 1; the others are free.
    links : the links, arrow by arrow.
    joined : the parents of free children whose joint distributions are wanted.
    auxiliaries : the number of auxiliary variables.
    """

    name: str
    children: Array
    observed: Array
    links: tuple[Links, ...]
    joined: tuple[Links, ...]
    auxiliaries: int
    scopes: Scopes

    by_row = True

    def values(self, target: Target) -> Array:
        """Return the entries of all factors."""
        leaks = self.leaks(target)
        parts = [np.stack([-leaks, log_on(leaks)], axis=-1).reshape(len(leaks), -1).T]
        parts.append(np.tile([-np.inf, 0.0], int(self.observed.sum()))[:, None])
        for links in self.links:
            steps = links.steps(target)
            table = np.zeros((len(steps), 2, steps.shape[1], 2))
            table[:, 0, :, 0], table[:, 0, :, 1] = -steps, log_on(steps)
            table[:, 1, :, 0] = -np.inf
            parts.append(table.reshape(-1, 1))
        for links in self.joined:
            parts.append(np.zeros((2 * links.steps(target).size, 1)))
        return np.concatenate([np.broadcast_to(p, (len(p), len(leaks))) for p in parts])

    def leaks(self, target: Target) -> Array:
        """Return the input (rows, n) of each child, without the shares of its free parents."""
        found = distinct(target.model.inputs(target.evidence.values, self.name))
        return np.asarray(found[:, self.children])

    def places(self, first: int) -> Iterator[tuple[Links, slice]]:
        """Yield the links of each arrow with their factor numbers, which begin at `first`."""
        first += len(self.children) + int(self.observed.sum())
        for links in self.links:
            yield links, slice(first, first + len(links.parents))
            first += len(links.parents)

    def joined_places(self, stop: int) -> Iterator[tuple[Links, slice]]:
        """Yield the pairs of each arrow with their factor numbers, which end at `stop`."""
        first = stop - sum(len(links.parents) for links in self.joined)
        for links in self.joined:
            yield links, slice(first, first + len(links.parents))
            first += len(links.parents)


def chained(target: Target, f: Field) -> bool:
    """Return whether a child becomes a chain, not one table over its parents."""
    causes = target.structure.layers[f.layer].unit.independent_causes
    return causes and target.untempered and f.entries > MAX_WHOLE_ENTRIES


def check_mode(target: Target, fields: list[Field]) -> None:
    """Raise PgmError for a child whose table is too large for the mode, which has no chains."""
    for f in fields:
        if (
            f.entries > MAX_MARGINALISED_ENTRIES
            and target.structure.layers[f.layer].unit.independent_causes
        ):
            raise PgmError(
                f"the mode needs the whole table of unit {f.unit} of layer {f.layer!r}, whose "
                f"{len(f.near)} free neighbours have {f.entries:.3g} joint states, the limit is "
                f"{MAX_MARGINALISED_ENTRIES}: small tables of units with independent causes serve "
                "sums, not the maximum; observe some of the parents, or ask for marginals or "
                "samples"
            )


def passage(fields: list[Field], units: int) -> Array:
    """Return the place (units,) of each free unit in an order of the parents of all chains.

    Elimination in this order works on all chains at the same time. Its width is about the number of
    chains that have begun and have not ended. The next parent is therefore the one for which the
    number of chains that it begins, minus the number that it ends, is smallest.
    """
    members = [np.array([n.number for n in f.near]) for f in fields]
    chains: dict[int, list[int]] = {}
    for j, near in enumerate(members):
        for n in near.tolist():
            chains.setdefault(n, []).append(j)
    score, place = np.full(units, np.inf), np.arange(units)
    begun, left = np.zeros(len(fields), dtype=bool), np.array([len(near) for near in members])
    for n, mine in chains.items():
        score[n] = len(mine) - np.sum(left[mine] == 1)
    for step in range(len(chains)):
        parent = int(score.argmin())
        place[parent], score[parent] = step, np.inf
        for j in chains[parent]:
            left[j] -= 1
            score[members[j]] -= int(not begun[j]) + int(left[j] == 1)
            begun[j] = True
    return place


def passing(terms: list[ChainTerm], place: Array, variables: int) -> Array:
    """Return the elimination order (variables,) that follows `passage` along all chains.

    The auxiliary variables from which the links of a parent start are eliminated before this
    parent. All other variables come first.
    """
    at, parents_last = np.full(variables, -1), np.zeros(variables, dtype=bool)
    for term in terms:
        first = len(term.children) + int(term.observed.sum())
        count = sum(len(links.parents) for links in term.links)
        start = term.scopes.start[first]
        before, parent, after = term.scopes.scope[start : start + 3 * count].reshape(-1, 3).T
        ends = after >= len(place)
        at[after[ends]] = place[parent[ends]]
        at[before], at[parent], parents_last[parent] = place[parent], place[parent], True
    return np.lexsort((parents_last, at)).astype(np.int32)


def chain_term(
    target: Target,
    free: FreeUnits,
    name: str,
    fields: list[Field],
    place: Array,
    first: int,
    joined: bool,
) -> ChainTerm | None:
    """Return the term of the chains of some children of a layer, or None without any.

    Parameters
    ----------
    fields : their fields.
    place : the order of the parents in every chain, by `passage`.
    first : the number of the first auxiliary variable.
    joined : whether joint distributions of children and parents are wanted.
    """
    if not fields:
        return None
    children = np.array([f.unit for f in fields])
    own = free.of(target, name, children)
    leaks, ends, links = list[list[int]](), list[list[int]](), dict[str, list[list[int]]]()
    members, auxiliaries = dict[str, list[tuple[int, int]]](), first
    for f, child in zip(fields, own.tolist(), strict=True):
        here = auxiliaries
        auxiliaries += 1
        leaks.append([here])
        near = sorted(f.near, key=lambda n: int(place[n.number]))
        for n in near:
            if n is near[-1] and child >= 0:
                after = child
            else:
                after = auxiliaries
                auxiliaries += 1
            links.setdefault(n.layer, []).append([here, n.number, after])
            members.setdefault(n.layer, []).append((n.unit, f.unit))
            here = after
        if child < 0:
            ends.append([here])
    arrows = {c.a: c for c in target.structure.arrows_into[name]}
    found = tuple(Links(arrows[a], *np.array(members[a]).T) for a in links)
    scopes = [*leaks, *ends, *(scope for some in links.values() for scope in some)]
    pairs = _of_children(found, children[own >= 0]) if joined else ()
    for x in pairs:
        both = free.of(target, x.arrow.a, x.parents), free.of(target, name, x.children)
        scopes += np.stack(both, axis=1).tolist()
    return ChainTerm(name, children, own < 0, found, pairs, auxiliaries - first, scopes_of(scopes))


def _of_children(links: tuple[Links, ...], children: Array) -> tuple[Links, ...]:
    """Return the links into some children."""
    kept = [np.isin(x.children, children) for x in links]
    both = zip(links, kept, strict=True)
    return tuple(Links(x.arrow, x.parents[k], x.children[k]) for x, k in both if k.any())
