"""Exact: the cheapest of enumeration, elimination, and the determinant of a planar graph.

Enumeration of the states of a cover wins on dense graphs with a small side, such as RBMs with few
hidden units; elimination wins on sparse graphs of any size; the determinant wins on planar lattices
of spins without fields. Planning a junction tree takes longer than a short enumeration. A tree is
therefore planned only if enumeration would take long, and only if the average number of neighbours
does not rule out a smaller tree. A planar graph is drawn before the long search for a tree, if a
quick search finds none with few entries.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from pgmengine.base.checks import check_limit, check_whole
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.evidence.target import Target
from pgmengine.infer.accumulator import Accumulator
from pgmengine.infer.diagnostics.rounding import fits
from pgmengine.infer.exact.enumeration.enumeration import Enumeration, cover_bits
from pgmengine.infer.exact.enumeration.product_mixture import shared_mixture
from pgmengine.infer.exact.junction_tree.elimination import Elimination
from pgmengine.infer.exact.least_width import cycles, free_counts, least_width
from pgmengine.infer.exact.planar import Planar, may_be_planar
from pgmengine.infer.exact.planning import has_narrow_tree, rough_entries
from pgmengine.infer.question.prepared import (
    AnyMethod,
    AnyPrepared,
    Method,
    OtherPlanNeeded,
    Prepared,
)
from pgmengine.infer.results.result import WANTS, AnyPlan, Plan, Result
from pgmengine.model.weights import count

# Seconds of an enumeration below which no junction tree is planned.
MAX_ENUMERATION_SECONDS = 0.02

# No planar graph is drawn if a quick elimination order has at most so many table entries. Graphs of
# few units or cycles are not even searched for such an order: a lattice of 10x10 has 80 more pairs
# than units, and a tree of 2^17 entries.
MAX_ENTRIES_WITHOUT_DRAWING = 2.0**24
MAX_UNITS_WITHOUT_DRAWING, MIN_CYCLES = 100, 80


# The method that was chosen, and its plan.
Chosen: TypeAlias = tuple[AnyMethod, AnyPlan]


@dataclass(frozen=True)
class Exact(Method["Chosen"]):
    """Exact answers by enumeration, elimination or a planar determinant, whichever is cheapest.

    Use it wherever the answer has to be exact; Auto tries it first. The plan says which of them
    answers, and names the cost of enumeration where a junction tree is cheaper.

    Parameters
    ----------
    max_bits : the largest cover that is enumerated, as log2 of its number of states.
    draws : number of samples where they are wanted.
    max_states : the largest number of table entries of all cliques of a junction tree.
    max_work : the largest number of table entries of all passes over a tree that is conditioned on
        a cutset, as in `Elimination`; 0 for no cutset. The limit is lower here, about ten seconds
        for a row, because Auto tries this method first.

    >>> import pgmengine as pgm
    >>> model = pgm.rbm(4, 2, rng=0)
    >>> evidence, want = {"v": [1, 0, float("nan"), 1]}, ("marginals", "log_prob")
    >>> r = pgm.infer(model, evidence, want, method=pgm.Exact())
    >>> r.mean["h"].shape, r.log_prob.shape, r.kind
    ((2,), (1,), 'exact')
    """

    gives = frozenset(WANTS) - {"bound"} | {"joint", "modes"}
    subtracts = True
    source = "exact answers give log_z itself,"
    guarantee = "exact"
    statistics = Elimination.statistics

    max_bits: float = 25
    draws: int = 1000
    max_states: float = 2**30
    max_work: float = 2**32

    def __post_init__(self) -> None:
        check_limit(self, "max_bits", "max_states", "max_work")
        check_whole(self, "draws")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[Chosen]:
        """Plan an enumeration, and another method where it may be cheaper."""
        enumeration = _enumeration(self.max_bits, self.draws).planned(target, want)
        seconds = np.inf if enumeration.plan.refusal else enumeration.plan.seconds
        if seconds < MAX_ENUMERATION_SECONDS:
            return _chosen(enumeration)
        bits, least = cover_bits(enumeration), least_width(target)
        if target.structure.units > MAX_UNITS_WITHOUT_DRAWING and _wide(target, least):
            planar = Planar().planned(target, want)
            if not planar.plan.refusal and planar.plan.seconds < seconds:
                return _chosen(planar)
        # A tree of this width has more entries than the cover has states, or than max_states
        # allows.
        if least >= min(bits, math.log2(max(self.max_states, 1.0))):
            return _chosen(enumeration)
        tree = _elimination(self.max_states, self.draws, self.max_work).planned(target, want)
        if tree.plan.refusal and enumeration.plan.refusal:
            both = f"{enumeration.plan.refusal}; {tree.plan.refusal}"
            return Plan(work=enumeration.plan.work, bytes=enumeration.plan.bytes, refusal=both)
        if tree.plan.refusal or seconds <= tree.plan.seconds:
            return _chosen(enumeration)
        return _chosen(tree, f" (enumeration: 2^{bits:.4g})" if math.isfinite(bits) else "")

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Answer by the method that was chosen."""
        chosen: Chosen = question.plan.basis
        method, plan = chosen
        given: AnyPrepared = Prepared(self, question.want, plan, question.target)
        try:
            result = method.answer(given, rng, state, executor)
        except OtherPlanNeeded:
            again = self.planned(question.target, question.want)
            again.check()
            return self.answer(again, rng, state, executor)
        return result.of_plan(question.plan.bare)

    def expect(
        self, target: Target, weights: Array, total: Accumulator, rng: np.random.Generator
    ) -> None:
        """Add the sum over rows of weight * E[d log_density | row] to the sum of a phase."""
        # Larger terms need the smaller ones that `gradient` finds.
        shared = shared_mixture(target, np.float64) if fits(target, False) else None
        if shared is not None and shared.cover.bits <= self.max_bits:
            shared.expect(target, weights, total)
        else:
            total.arrays(self.gradient(target, weights), 1.0, float(weights.sum()))


def _wide(target: Target, least: float) -> bool:
    """Return whether a planar graph may have a determinant, but no junction tree of few entries.

    The row with the most free units decides for all.
    """
    if not may_be_planar(target.structure, least) or cycles(target.model) < MIN_CYCLES:
        return False
    widest = target.take(np.argmax(free_counts(target), keepdims=True))
    return not has_narrow_tree(widest, MAX_ENTRIES_WITHOUT_DRAWING)


def _mean_parents(target: Target) -> float:
    """Return the largest mean number of free parents of the children of an arrow between layers.

    A child with so many parents is a factor over all of them, unless it has independent causes.
    """
    s, pattern = target.structure, target.pattern
    whole = [c for c in pattern.acting_arrows if pattern.all_free[c.a]]
    dense = [c for c in whole if s.layers[c.b].unit.canonical]
    return max([count(target.model.weight(c)) / s.layers[c.b].size for c in dense], default=0.0)


def _chosen(by: AnyPrepared, note: str = "") -> Plan[Chosen]:
    """Return the plan of the method that was chosen, with a note on the other method."""
    p = by.plan
    sizes = p.work, p.bytes, p.refusal, p.seconds, p.most_seconds
    # dataclasses.replace takes ten times as long.
    return Plan(p.method, p.guarantee, p.why + note, *sizes, (by.method, p))


@lru_cache(maxsize=64)
def _enumeration(max_bits: float, draws: int) -> Enumeration:
    """Return the enumeration with these limits, which are checked once."""
    return Enumeration(max_bits, draws)


@lru_cache(maxsize=64)
def _elimination(max_states: float, draws: int, max_work: float) -> Elimination:
    """Return the junction tree with these limits, which are checked once."""
    return Elimination(max_states, draws, max_work)


def quick(
    target: Target, want: tuple[str, ...], bits: float, entries: float, draws: int
) -> AnyPrepared:
    """Prepare an exact question if it is small; a larger question is returned as refused.

    A junction tree is found by one quick elimination order, without a longer search.

    Parameters
    ----------
    target, want : the question.
    bits : the largest cover, as log2 of its number of states.
    entries : the largest number of table entries of a junction tree.
    draws : number of samples where they are wanted.
    """
    enumeration = Enumeration(bits, draws).prepare(target, want)
    seconds = np.inf if enumeration.plan.refusal else enumeration.plan.seconds
    bits = float(np.log2(entries))
    wide = least_width(target) > bits or _mean_parents(target) > bits
    if seconds < MAX_ENUMERATION_SECONDS or wide or rough_entries(target, entries) > entries:
        return enumeration
    tree = Elimination(entries, draws, max_work=0).prepare(target, want)
    return enumeration if tree.plan.refusal or seconds <= tree.plan.seconds else tree
