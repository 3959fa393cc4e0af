"""Prices of the engines: the seconds of a call, a visit of a layer, a unit, an entry.

The price of a method stands beside the method. Every estimate is a sum of counts times rates, each
rate measured on one core of a processor of 2023. The ratio for another machine is its pace
(base/work/pace.py), and benchmarks/plans_and_reality.py compares plans with answers. Counts come
from the graph, the evidence and the stored entries of weights. Quantities that are unknown before a
run have typical values: half of the units change in a sweep, mean field takes a typical number of
rounds, and code of users takes no time. Plans do not include the imports of the first call in a
process, nor an exact sum that checks an estimate, which takes less than a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pgmengine.base.equal_rows import distinct
from pgmengine.engine import layerwise
from pgmengine.engine.kernels import Kernel, draws_forests
from pgmengine.engine.single_site import packed_units, sweeps
from pgmengine.evidence.target import Target
from pgmengine.model.weights import count, is_sparse

US, NS = 1e-6, 1e-9

# The number of chains that take as long as one, where chains are lanes of vectors.
LANES_FREE = 12

# The time of drawing a forest, in sweeps: 3 to 5 on lattices, chains of tables and dense layers,
# with 2 to 16 states of a unit.
FOREST_SWEEPS = 4.0


@dataclass(frozen=True)
class Price:
    """Seconds of a call, and of each chain in it; fewer than `least` chains count as `least`."""

    call: float = 0.0
    chain: float = 0.0
    least: float = 0.0

    def __add__(self, other: Price) -> Price:
        least = max(self.least, other.least)
        return Price(self.call + other.call, self.chain + other.chain, least)

    def __mul__(self, times: float) -> Price:
        return Price(times * self.call, times * self.chain, self.least)

    def of(self, chains: float, calls: float = 1.0) -> float:
        """Return the seconds of some calls for some chains."""
        return calls * (self.call + max(chains, self.least) * self.chain)


@dataclass(frozen=True)
class Engine:
    """Prices of the operations of chains.

    A step of annealing is a sweep and an importance weight. If sweeps are made `in_one_call`, they
    pay the time of a call only once.
    """

    sweep: Price
    step: Price
    density: Price
    values: Price
    in_one_call: bool

    def run(self, chains: float, sweeps: float, calls: float) -> float:
        """Return the seconds of sweeps that are made in `calls` calls."""
        return self.sweep.of(chains, sweeps) - (
            self.sweep.call * (sweeps - calls) if self.in_one_call else 0.0
        )

    def anneal(self, chains: float, steps: float) -> float:
        """Return the seconds of one annealing run."""
        return self.step.of(chains, steps) - (
            self.step.call * (steps - 1) if self.in_one_call else 0.0
        )


def engine(target: Target, kernel: Kernel) -> Engine:
    """Return the prices of the engine that sweeps this target by this kernel."""
    if sweeps.knows(target, kernel):
        found = _tabled(target)
        if not draws_forests(kernel):
            return found
        forest = found.sweep * FOREST_SWEEPS
        return replace(found, sweep=found.sweep + forest, step=found.step + forest)
    return _compiled(target) if layerwise.knows(target, kernel) else plain(target)


def free_units(target: Target, name: str) -> float:
    """Return the number of free units of a layer, the mean over rows."""
    return float(distinct(target.free[name]).mean() * target.structure.layers[name].size)


def state_count(target: Target, name: str) -> int:
    """Return the number of states of a unit; if it is infinite, a number with the same cost."""
    support = target.structure.layers[name].unit.support
    return 4 if support is None else len(support)


def _compiled(target: Target) -> Engine:
    """Return prices of event-driven sweeps: visits, draws, and rows of weights of changed units."""
    s, moving, by_unit = target.structure, target.pattern.moving, target.pattern.by_unit
    chain = density = 0.0
    for name in moving:
        each = 20.0 if name in by_unit else 0.6 if state_count(target, name) == 2 else 2.0
        chain += 80 * NS + each * NS * state_count(target, name) * free_units(target, name)
        # A visit unit by unit searches for the couplings of the layer.
        chain += 1.5 * NS * len(s.couplings) * (name in by_unit)
    for c in s.couplings:
        weight = target.model.weight(c)
        some, sparse = count(weight), is_sparse(weight)
        if c.directed and c.a in by_unit:
            units = free_units(target, c.a)
            # A noisy unit takes two logarithms for each state of a parent.
            dense = 2 if s.layers[c.b].unit.canonical else 14
            each = (50 if sparse else dense) * (state_count(target, c.a) - 1)
            chain += (30 * units + each * some * units / s.layers[c.a].size) * NS
        elif not c.directed:
            ends = {c.a, c.b}
            each = 0.035 if not sparse else 3.0 if ends <= by_unit else 1.0
            chain += each * NS * some * len(ends & set(moving)) / len(ends)
        if c.directed and not s.layers[c.b].unit.canonical:
            # All inputs are computed anew.
            chain += some * (2.0 if sparse else 0.1) * NS
    for name, layer in s.layers.items():
        density += 60 * NS + layer.width * (30 if name in s.directed_layers else 0.3) * NS
    sweep, every = Price(5 * US, chain), Price(12 * US, density)
    values = Price(len(moving) * 2.5 * US, 1.0 * NS * sum(s.layers[n].width for n in moving))
    return Engine(sweep, sweep + Price(10 * US, density), every, values, True)


def _tabled(target: Target) -> Engine:
    """Return prices of sweeps with chains as lanes: states, tables, couplings and children.

    An entry is found by comparisons with the joint states of the other members, or by reading
    entries from memory if there are many joint states. The inputs of a child are added up at each
    visit of a parent.
    """
    s, graph = target.structure, packed_units.packed_graph(target.structure)
    packed, sites = packed_units.packed_parameters(target.model), graph.sites
    free = np.concatenate([distinct(target.free[n]).mean(axis=0) for n in s.layers])
    units, states = len(sites), sites["states"]
    owner = np.repeat(np.arange(units), packed.counts)
    each = 0.15 + states[owner] * np.minimum(0.03 * packed.slots["configs"], 0.5)
    of_tables = np.bincount(owner, each, units)
    links, inputs = (
        np.add.reduceat(np.diff(matrix.indptr), sites["component"])
        for matrix in (packed.links, packed.arrows)
    )
    # The time of log p of a unit at one directed input.
    given = 0.3 * inputs + states * (1.0 + sites["complement"])
    parent = packed.children.rows
    of_children = np.bincount(
        parent, given[packed.children.columns] * (states[parent] / 2 + 0.5), units
    )
    summed = packed.directed & packed_units.SWEEPS
    own = 1.4 + 0.6 * states + 0.1 * links + summed * (0.3 * inputs + 20.0 * sites["complement"])
    chain = float(free @ (own + of_tables + of_children))
    density = float((0.4 + links + (sites["directed"] > 0) * (5.0 + given)).sum())
    density += 1.5 * len(s.table_index.child)
    moving = target.pattern.moving
    values = Price(len(moving) * 2.5 * US, 1.0 * NS * sum(s.layers[n].width for n in moving))
    sweep = Price(8 * US, chain * NS, LANES_FREE)
    every = Price(5 * US, density * NS, LANES_FREE)
    return Engine(sweep, sweep + every, every, values, True)


def plain(target: Target) -> Engine:
    """Return prices of numpy: calls for each layer, or for each unit that moves alone."""
    s, moving, by_unit = target.structure, target.pattern.moving, target.pattern.by_unit
    sweep = density = Price()
    for name in moving:
        units, states = free_units(target, name), state_count(target, name)
        sweep += (
            Price(70 * US, 110 * NS * states * units)
            if name not in by_unit
            else Price(70 * US * units, 300 * NS * units)
        )
    for c in s.couplings:
        weight = target.model.weight(c)
        some, sparse = count(weight), is_sparse(weight)
        product = Price(60 * US, 2.0 * NS * some) if sparse else Price(15 * US, 0.1 * NS * some)
        units = free_units(target, c.a)
        if c.directed and c.a in by_unit:
            reached = some / s.layers[c.a].size
            slicing = (120 + 1e-3 * s.layers[c.b].width * sparse) * US
            sweep += Price(slicing, 18 * NS * state_count(target, c.a) * reached) * units
        elif c.a == c.b and c.a in by_unit:
            sweep += Price(20 * US, 2 * NS * some / s.layers[c.a].size) * units
        sweep, density = sweep + product * 2, density + product
    for layer in s.layers.values():
        density += Price(45 * US, 25 * NS * layer.width)
    values = Price(1 * US * len(s.layers), 0.0)
    return Engine(sweep, sweep + density * 2, density, values, False)
