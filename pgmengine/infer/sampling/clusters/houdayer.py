"""Cluster moves between two replicas at the same temperature (Houdayer 2001), for any factors.

Let x and y be two independent states of one target at the same beta, D the free units in which they
differ, and neighbours two units that some factor contains: a coupling, a table, a child with its
parents. Let C be a connected component of D. A move swaps x and y in C,

    (x', y') = (x, y) with x_C and y_C exchanged.

A factor that contains a unit of C contains no other unit of D: two units of D in one factor are
neighbours, and are in the same component. In all its units outside C, the states x and y are
therefore equal, so that the factor has the value f(y) at x', and f(x) at y'. A factor without units
in C keeps both values. The product of all factors at x and at y is the same after the move as
before it, zeros included, whatever the numbers of units in a factor and of states of a unit. The
states still differ in D, so that the opposite move is as probable, and p(x) p(y) is invariant. Each
component is swapped with probability 1/2; to swap all of them is to swap the replicas.

Components are the clusters of Swendsen and Wang (moves.py) of the states "equal" and "different" at
infinite couplings without fields. Where they percolate, so that one of them holds nearly all of D,
a move hardly changes the pair. That depends on the graph, and on the share of units that differ:
about half of them do with two states in a disordered model, and more with several states. Square
lattices and other sparse graphs with two states are below that, at low temperatures above all.

The move belongs to the replicas of one rung of ladders (ladders/replicas.py), because it needs two
states of the same distribution. Two ladders that exchange clusters are no longer independent: they
count as one chain of twice as many draws in all that judges answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.types import Array
from pgmengine.engine.cost import NS, US, Price
from pgmengine.evidence.target import Target
from pgmengine.infer.sampling.clusters.moves import Part
from pgmengine.model.graph.unit_graph import unit_graph

# The time of a move: of its calls, and for each edge and each unit of a pair.
CALL_SECONDS, EDGE_SECONDS, UNIT_SECONDS = 150 * US, 6 * NS, 20 * NS


@dataclass(frozen=True)
class Houdayer:
    """Swap clusters of units between pairs of ladders, at each temperature after each sweep.

    Use it as `ParallelTempering(moves=Houdayer())`, for units with two states on large sparse
    graphs, such as lattices with couplings of both signs, where ladders make hardly any round
    trips: it crosses barriers that no sweep crosses. Where they make enough of them, it takes more
    time than it saves; `TreeGibbs` as the kernel is the first thing to try. It is right for any
    model whose free units have finitely many values, tables with zeros included, but helps little
    where the units in which two states differ are all connected, as in dense graphs. The ladders
    are moved in pairs, so that their number must be even. A pair counts as one chain of twice as
    many draws.

    References
    ----------
    Houdayer 2001, "A cluster Monte Carlo algorithm for 2-dimensional spin glasses". Zhu, Ochoa and
    Katzgraber 2015, "Efficient cluster algorithm for spin glasses in any space dimension".

    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> s = b.layer("s", pgm.Spin(), (5, 5))
    >>> b.couple(s[1:], s[:-1], -1.0)
    >>> b.couple(s[:, 1:], s[:, :-1], 1.0)
    >>> method = pgm.ParallelTempering(rungs=4, draws=1000, moves=pgm.Houdayer())
    >>> pgm.infer(b.build(), want=("log_z",), method=method, rng=0).kind
    'estimate'
    """

    def refusal(self, target: Target) -> str:
        """Return the reason why pairs of states of a target cannot be moved, or nothing."""
        for name, layer in target.structure.layers.items():
            if layer.unit.support is None and target.free[name].any():
                return (
                    f"Houdayer moves swap units with finitely many values, and the free units of "
                    f"{layer.title} have infinitely many"
                )
        return ""

    def price(self, target: Target) -> Price:
        """Return the seconds of a move for each replica."""
        found = self.over(target).part
        each = EDGE_SECONDS * len(found.edges) + UNIT_SECONDS * len(found.h)
        return Price(CALL_SECONDS, each / 2)

    def over(self, target: Target) -> PairMoves:
        """Return the moves of pairs of states of a target, whatever its rows."""
        s, near = target.structure, unit_graph(target.model).near
        free = {n: np.flatnonzero(mask.any(axis=0)) for n, mask in target.free.items()}
        layers = {n: free[n] for n in s.layers if len(free[n])}
        place = np.full(s.units, -1)
        units = [s.first_unit[n] + at for n, at in layers.items()]
        own = np.concatenate(units) if units else np.zeros(0, dtype=np.int64)
        place[own] = np.arange(len(own))
        one, two = place[near.rows], place[near.columns]
        inside = (one >= 0) & (one < two)
        edges = np.stack((one[inside], two[inside]), axis=1)
        fields, sure = np.zeros((len(own), 2, 1)), np.full((len(edges), 1), np.inf)
        return PairMoves(Part(np.arange(1), layers, edges, fields, sure, np.zeros(1)))


@dataclass(frozen=True, eq=False)
class PairMoves:
    """Moves of pairs of states; `part` has the free units, and infinite couplings as its edges."""

    part: Part

    def swap(
        self, states: dict[str, Array], one: Array, two: Array, rng: np.random.Generator
    ) -> None:
        """Move the states of rows `one` with those of rows `two`, (pairs,) each, in place.

        `states` are numbers of states, layer -> (rows, size).
        """
        part, units, edges = self.part, len(self.part.h), len(self.part.edges)
        if not units or not len(one):
            return
        now = np.concatenate([states[n][:, at] for n, at in part.layers.items()], axis=1)
        x, y = now[one], now[two]
        differ = x != y
        uniform = np.zeros((len(one), edges + units))
        uniform[:, edges:] = rng.random((len(one), units))
        swapped = differ & (part.moved(differ, uniform) != differ)
        now[one], now[two] = np.where(swapped, y, x), np.where(swapped, x, y)
        ends = np.cumsum([len(at) for at in part.layers.values()])[:-1]
        for (name, at), state in zip(part.layers.items(), np.split(now, ends, axis=1), strict=True):
            states[name][:, at] = state
