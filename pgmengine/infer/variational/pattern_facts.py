"""Facts about an evidence pattern that the rounds of mean field by tables need.

They follow from the structure, from the observed units, from the units with soft evidence, and from
the positions of zero weights. The values of evidence and weights do not matter, so that questions
with the same facts share them: they are made once, and kept with the pattern. Only these depend
on more, and are made anew for each question: those of noisy-or children, whose number of terms
follows from the smallest input, of rows with different patterns, and of beta other than 1.

A table adds power * E_Q[log T] to the bound (expected.h). The power is beta, except for
conditionals that do not count, where it is 0: those whose child is intervened, and those whose
child is barren, which sum to one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.base.types import Array
from pgmengine.base.work.cache import remembered
from pgmengine.evidence.relevance import barren
from pgmengine.evidence.target import Target
from pgmengine.infer.variational.conditions import log_sums
from pgmengine.infer.variational.infinite_units import infinite_layers
from pgmengine.infer.variational.packed_graph import SOURCES, Group, net_of
from pgmengine.model.couplings import Coupling
from pgmengine.model.parameters import Parameters
from pgmengine.model.structure import Structure
from pgmengine.model.weights import is_sparse

# Smaller probabilities of units in tables with zeros are taken as 0. The limit is larger if
# products of probabilities would otherwise fall below MIN_PRODUCT.
MIN_PROB = 1e-25
MIN_PRODUCT = 1e-290


class Facts:
    """The graph of the rounds, with the roles of its units and terms under an evidence pattern.

    Attributes
    ----------
    hidden : layer -> (rows or 1, size) bool, the barren units.
    net : the units with tables of probabilities, and the terms of their children.
    arrays : name -> (rows or 1, items), the arrays of the rounds that follow from the pattern.
    infinite : layers of free units with infinitely many values.
    all_free : layers of the net whose units are free in all rows.
    outside_terms : directed layers with terms whose units have no tables.
    inputs_from_outside : whether units without tables add to inputs or fields of the net.
    with_own_terms : layers whose bound may have terms that do not depend on tables.
    follow, follow_tables : the barren units of the net with arrows, and with tables, parents first.
    """

    def __init__(self, target: Target) -> None:
        s = target.structure
        self.layers, self._starts = s.layers, dict[float | None, Array]()
        self.hidden = {name: distinct(mask) for name, mask in barren(target).items()}
        tables = tuple(
            n
            for n in s.children_first
            if s.layers[n].unit.support is not None
            and (s.tabled[n].any() or target.pattern.some_free[n])
        )
        sums = {
            n: found
            for n in s.directed_layers
            if (found := log_sums(target, n, self.hidden)) is not None
        }
        self.net = net = net_of(target.model, tables, sums)
        self.all_free = frozenset(n for n in net.units if target.pattern.all_free[n])
        self.outside_terms = tuple(n for n in net.terms if n not in net.units)
        self.infinite = infinite_layers(target)
        self.inputs_from_outside = any(map(self._from_outside, s.couplings)) or bool(self.infinite)
        self.with_own_terms = tuple(n for n in s.layers if self._has_own_terms(target, n))
        self.outside_couplings = tuple(
            c for c in s.undirected if c.a not in net.units and c.b not in net.units
        )
        free = {n: distinct(target.free[n]) for n in net.units}
        beta = 1.0 if target.untempered else target.beta[:, None]
        live = {
            n: np.where(distinct(target.intervened[n]) | self.hidden[n], 0.0, beta)
            for n in net.terms
        }
        self.live = live
        self.arrays = {
            "open": _joined(free[n] & ~self.hidden[n] for n in net.units),
            "barren": _joined(self.hidden[n] for n in net.units),
            "live": _joined(repeated(live[n], net.terms[n]) for n in net.terms),
            "power": powers(target, self.hidden),
        }
        self.follow = self._follow(target)
        first = {name: g.first for name, g in net.units.items()}
        self.follow_tables = units_parents_first(s, first, self.hidden)

    def start(self, xi: float | None) -> Array:
        """Return the numbers from which rounds start, as far as the facts give them.

        They are those of the arrays SOURCES, one after the other: tables without a parameter, and
        each xi at the share `xi` of its range, or where None at a share from which rounds find the
        best one.
        """
        if xi in self._starts:
            return self._starts[xi]
        net, layers = self.net, self.layers
        parts = {name: np.zeros(net.places[name].stop - net.places[name].start) for name in SOURCES}
        parts |= {n: v[0] for n, v in self.arrays.items() if len(v) == 1}
        parts["on"], parts["beta"] = parts["live"], np.ones(1)
        for name, g in net.units.items():
            unit = layers[name].unit
            parts["q"][g.all_states] = np.tile(unit.prob(np.zeros(unit.width)), g.count)
        for name, g in net.terms.items():
            values = net.values(name)
            low, high = values.min(axis=1), values.max(axis=1)
            # The terms of a noisy-or unit have the values 0 and -2^m. At xi = 0, their largest
            # value, F is at most log 2. In the middle it may be thousands, and the minimum is then
            # not reached before the first round, which would leave the Q of a warm start.
            best = 0.5 if layers[name].unit.canonical else 1.0
            place = (low + (best if xi is None else xi) * (high - low) / g.width).ravel()
            parts["xi"][g.comps] = np.tile(place, g.count // g.sets)
        found = self._starts[xi] = np.concatenate([parts[name] for name in SOURCES])
        return found

    def _from_outside(self, c: Coupling) -> bool:
        """Return whether a coupling leads from a unit without a table to the net."""
        units, terms = self.net.units, self.net.terms
        if c.directed:
            return c.a not in units and c.b in terms
        return (c.a in units) != (c.b in units)

    def _has_own_terms(self, target: Target, name: str) -> bool:
        """Return whether a layer may have terms in the bound that compiled code does not add."""
        s, unit = target.structure, target.structure.layers[name].unit
        if name in s.directed_layers and name not in self.net.terms:
            return True
        outside = name not in self.net.units
        if outside and name not in s.directed_layers:
            return True
        # Observed units have their base measure.
        observed = not target.pattern.all_free[name]
        return observed and (unit.log_base is None or bool(np.any(unit.log_base)))

    def _follow(self, target: Target) -> Array:
        """Return the barren units of the net with arrows, parents first."""
        model = target.model
        found = [
            g.first + np.concatenate(model.generations[name])
            for name in model.structure.directed_layers
            if (g := self.net.units.get(name)) is not None and self.hidden[name].any()
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])


@remembered
def by_values(s: Structure) -> bool:
    """Return whether facts depend on values, as the terms of noisy-or children do."""
    return any(s.layers[name].unit.nonnegative for name in s.directed_layers)


def facts_of(target: Target) -> Facts:
    """Return the facts of a target, which questions with equal facts share."""
    s, pattern, model = target.structure, target.pattern, target.model
    weights = [model.weight(c) for c in s.couplings]
    shared = (
        pattern.alike
        and target.untempered
        and all(distinct(field).shape[0] == 1 for field in target.soft.values())
        and not by_values(s)
        and not any(map(is_sparse, weights))
    )
    if not shared:
        return Facts(target)
    key = (
        "mean-field facts",
        *[(name, (distinct(field) != 0).tobytes()) for name, field in target.soft.items()],
        *[b"" if np.count_nonzero(w) == w.size else (w != 0).tobytes() for w in weights],
    )
    # All rows have the pattern of the first one, which every number of rows shares.
    one = pattern.first
    found: Facts = one.memo.recall(key, lambda: Facts(target.take(np.zeros(1, dtype=np.int64))))
    return found


def repeated(values: Array, g: Group, width: int = 1) -> Array:
    """Return numbers (rows, size * width) of the children of a layer for each of their terms."""
    if g.sets == 1:
        return values
    each = values.reshape(len(values), -1, 1, width)
    return np.repeat(each, g.sets, axis=2).reshape(len(values), -1)


def _joined(parts: Iterable[Array]) -> Array:
    """Return arrays (rows or 1, n) side by side as floats."""
    parts = list(parts)
    rows = max((len(part) for part in parts), default=1)
    every = [np.broadcast_to(part, (rows, part.shape[1])) for part in parts]
    return np.concatenate([np.zeros((rows, 0)), *every], axis=1)


def powers(target: Target, hidden: dict[str, Array]) -> Array:
    """Return the power of each table in each row, (rows or 1, tables)."""
    s = target.structure
    absent = {n: distinct(target.intervened[n]) | hidden[n] for n in (s.layers if s.tables else ())}
    beta = np.ones(1) if target.untempered else target.beta
    rows = max((len(beta), *map(len, absent.values())))
    power = np.zeros((rows, len(s.table_index.child))) + beta[:, None]
    for name, mask in absent.items():
        units = np.flatnonzero(s.child_tables[name] >= 0)
        tables = s.child_tables[name][units]
        power[:, tables] = np.where(mask[:, units], 0.0, power[:, tables])
    return power


def units_parents_first(s: Structure, first: dict[str, int], some: dict[str, Array]) -> Array:
    """Return the units with a conditional that the masks `some` (rows, size) have in some row.

    Parents come first; `first` is the number of the first unit of each layer.
    """
    found = [np.zeros(0, dtype=np.int64)]
    for units in s.conditional_generations:
        for name, places in units.items():
            found.append(first[name] + places[some[name][:, places].any(axis=0)])
    return np.concatenate(found)


def hard_units(model: Parameters, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return which units are in a table with an entry of 0, and their smallest probability."""
    hard = np.zeros(len(arrays["own_table"]), dtype=np.int32)
    if not len(model.table_terms):
        return {"hard": hard, "cut": MIN_PROB}
    table = ~model.table_sizes[1]
    hard[arrays["axis_unit"][table[arrays["axis_table"]]]] = 1
    others = np.diff(arrays["table_start"])[table].max(initial=2) - 1
    return {"hard": hard, "cut": max(MIN_PROB, MIN_PRODUCT ** (1.0 / max(others, 1)))}
