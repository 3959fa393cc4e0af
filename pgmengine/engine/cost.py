"""Prices of plans: the seconds of engines for a call, a visit of a layer, a unit, an entry.

Every estimate is a sum of counts times rates, each rate measured on one core of a processor of 2023
(benchmarks/rooms/plans.py compares plans with runs). Counts come from the graph, the evidence and
the stored entries of weights. Quantities that are unknown before a run have typical values: half of
the units change in a sweep, mean field takes a typical number of rounds, and code of users takes no
time. Plans do not include the imports of the first call in a process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.rows import distinct
from pgmengine.engine import layerwise
from pgmengine.engine.kernels.kernel import Kernel
from pgmengine.engine.single_site import packed_units, sweeps
from pgmengine.evidence.target import Target
from pgmengine.model.unit_graph import arrows_inside
from pgmengine.model.weights import count, is_sparse

US, NS = 1e-6, 1e-9

# The most series that are judged, and the length of each in a chain.
MAX_JUDGED_SERIES = 20_000
JUDGED_A_CHAIN = 200

# Series with at most so many different values are judged by counting, all others by sorting
# (series.h).
MAX_COUNTED_VALUES = 32

# The most blocks of units that are compared with draws, distinct draws for each, and states of all
# their cliques (infer/sampling/draws/rao_blackwell.py).
BLOCKS, DISTINCT, CLIQUES = 16, 1024, 2.0**24

# Seconds of the comparison: at most for a single row, at least for a part of many rows, and between
# the two a share of the seconds of drawing.
MAX_COMPARING_SECONDS, MIN_COMPARING_SECONDS, SHARE_COMPARING = 0.15, 0.03, 0.1

# Where chains are lanes of vectors, so many chains take as long as one.
LANES_FREE = 12

# Numbers (units times draws) that one call of the ancestral draws makes.
DRAWN_AT_ONCE = 2.0**23


@dataclass(frozen=True)
class Price:
    """Seconds of one call, and of each chain in it; less than `least` chains cost as much."""

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
        """Return the seconds of sweeps in some calls."""
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
        return _tabled(target)
    return _compiled(target) if layerwise.knows(target, kernel) else _plain(target)


def free_units(target: Target, name: str) -> float:
    """Return the number of free units of a layer, the mean over rows."""
    return float(distinct(target.free[name]).mean() * target.structure.layers[name].size)


def _states(target: Target, name: str) -> int:
    """Return the number of states of a unit; for infinite units, a number with the same cost."""
    support = target.structure.layers[name].unit.support
    return 4 if support is None else len(support)


def _compiled(target: Target) -> Engine:
    """Return prices of event-driven sweeps: visits, draws, and rows of weights of changed units."""
    s, moving, by_unit = target.structure, target.pattern.moving, target.pattern.by_unit
    chain = density = 0.0
    for name in moving:
        each = 20.0 if name in by_unit else 0.6 if _states(target, name) == 2 else 2.0
        chain += 80 * NS + each * NS * _states(target, name) * free_units(target, name)
        # A visit unit by unit searches for the couplings of the layer.
        chain += 1.5 * NS * len(s.couplings) * (name in by_unit)
    for c in s.couplings:
        weight = target.model.weight(c)
        some, sparse = count(weight), is_sparse(weight)
        if c.directed and c.a in by_unit:
            units = free_units(target, c.a)
            each = (50 if sparse else 2) * (_states(target, c.a) - 1)
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

    An entry is found by comparisons with the joint states of the other members, or by loads if they
    are many. The inputs of a child are added up at each visit of a parent.
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
    parent = np.repeat(np.arange(units), np.diff(packed.children.indptr))
    of_children = np.bincount(
        parent, given[packed.children.indices] * (states[parent] / 2 + 0.5), units
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


def _plain(target: Target) -> Engine:
    """Return prices of numpy: calls for each layer, or for each unit that moves alone."""
    s, moving, by_unit = target.structure, target.pattern.moving, target.pattern.by_unit
    sweep = density = Price()
    for name in moving:
        units, states = free_units(target, name), _states(target, name)
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
            sweep += Price(slicing, 18 * NS * _states(target, c.a) * reached) * units
        elif c.a == c.b and c.a in by_unit:
            sweep += Price(20 * US, 2 * NS * some / s.layers[c.a].size) * units
        sweep, density = sweep + product * 2, density + product
    for layer in s.layers.values():
        density += Price(45 * US, 25 * NS * layer.width)
    values = Price(1 * US * len(s.layers), 0.0)
    return Engine(sweep, sweep + density * 4, density, values, False)


def collecting(target: Target, wanted: tuple[str, ...], chains: float, draws: float) -> float:
    """Return the seconds of adding draws of chains (of all rows) to the statistics."""
    s = target.structure
    width = sum(layer.width for layer in s.layers.values())
    each = Price(2 * US * len(s.layers), (1 + 2 * ("samples" in wanted)) * NS * width)
    for name, layer in s.layers.items():
        if layer.unit.support is not None and not layer.unit.one_hot and _states(target, name) > 2:
            each += Price(15 * US, 30 * NS * layer.size * _states(target, name))
    for c in s.couplings:
        if "pairs" in wanted:
            each += Price(20 * US, 0.6 * NS * s.layers[c.a].width * s.layers[c.b].width)
        if "gradient" in wanted:
            each += Price(50 * US, 0.4 * NS * count(target.model.weight(c)))
    return each.of(chains, draws)


def judging(target: Target, chains: float, draws: float, limit: float, drawing: float) -> float:
    """Return the seconds of R-hat, effective sizes and errors; 0 if R-hat has no limit.

    `drawing` is the seconds of the draws that are judged.
    """
    if limit == np.inf:
        return 0.0
    seconds = comparing(target, chains, draws, drawing)
    for name in target.pattern.moving:
        layer, batch = target.structure.layers[name], max(draws / JUDGED_A_CHAIN, 1.0)
        series = min(target.rows * free_units(target, name) * layer.unit.width, MAX_JUDGED_SERIES)
        finite = layer.unit.support is not None
        counted = finite and (_states(target, name) - 1) * batch < MAX_COUNTED_VALUES
        seconds += series * (US + (7 if counted else 80) * NS * chains * min(draws, JUDGED_A_CHAIN))
    return seconds


def comparing_limit(rows: int, drawing: float) -> float:
    """Return the most seconds of the comparison, after so many seconds of drawing."""
    return max(MIN_COMPARING_SECONDS, min(SHARE_COMPARING * drawing, MAX_COMPARING_SECONDS / rows))


def comparing(target: Target, chains: float, draws: float, drawing: float) -> float:
    """Return the seconds of exact conditionals of blocks of about ten units.

    Each unit is in about four blocks.
    """
    units = sum(free_units(target, name) for name in target.pattern.moving)
    blocks = min(1.0 + 0.4 * units, BLOCKS)
    distinct = min(DISTINCT, target.rows * chains * draws, 2.0 ** min(units, 50))
    states = min(2.0 ** min(units, 50), CLIQUES / BLOCKS / max(distinct, 1.0))
    seconds = blocks * (1e-3 + 10 * US * units + (20 * units + 2 * states) * NS * distinct)
    return min(seconds, comparing_limit(target.rows, drawing))


def sampling(
    target: Target,
    kernel: Kernel,
    wanted: tuple[str, ...],
    chains: float,
    warmup: float,
    draws: float,
    thin: float,
    limit: float,
) -> float:
    """Return the seconds of chains (of each row) that warm up, draw, and are judged."""
    e, n = engine(target, kernel), target.rows * chains
    drawing = (
        e.run(n, warmup + draws * thin, warmup + draws)
        + (e.density + e.values).of(n, draws)
        + collecting(target, wanted, n, draws)
    )
    return drawing + judging(target, chains, draws, limit, drawing)


def exchanging(
    target: Target,
    kernel: Kernel,
    wanted: tuple[str, ...],
    ladders: float,
    rungs: float,
    warmup: float,
    draws: float,
    thin: float,
    limit: float,
) -> float:
    """Return the seconds of ladders (of each row) whose replicas may swap after each sweep."""
    e, n, tops = engine(target, kernel), target.rows * ladders * rungs, target.rows * ladders
    swapping = Price(80 * US, 60 * NS)
    drawing = (
        (e.sweep + e.density + swapping).of(n, warmup + draws * thin)
        + e.density.of(n, draws)
        + e.values.of(tops, draws)
        + collecting(target, wanted, tops, draws)
    )
    return drawing + judging(target, ladders, draws, limit, drawing)


def wandering(
    target: Target,
    kernel: Kernel,
    wanted: tuple[str, ...],
    chains: float,
    levels: float,
    warmup: float,
    draws: float,
    limit: float,
) -> float:
    """Return the seconds of chains (of each row) over levels; one draw in `levels` is kept."""
    e, n = engine(target, kernel), target.rows * chains
    hopping = Price(120 * US, 60 * NS)
    drawing = (
        (e.sweep + e.density + hopping).of(n, warmup + draws)
        + (e.density + e.values).of(n, draws)
        + collecting(target, wanted, n, draws / max(levels, 1))
    )
    return drawing + judging(target, chains, draws / max(levels, 1), limit, drawing)


def excursions(
    target: Target,
    kernel: Kernel,
    wanted: tuple[str, ...],
    chains: float,
    steps: float,
    warmup: float,
    draws: float,
    limit: float,
) -> float:
    """Return the seconds of tempered transitions: up and down the ladder, and back if rejected."""
    e, n = engine(target, kernel), target.rows * chains
    each = 2 * e.anneal(n, steps) + (e.sweep + e.density + e.values * 3).of(n)
    drawing = (
        (warmup + draws) * each
        + (e.density + e.values).of(n, draws)
        + collecting(target, wanted, n, draws)
    )
    return drawing + judging(target, chains, draws, limit, drawing)


def wang_landau(
    target: Target,
    wanted: tuple[str, ...],
    read: tuple[str, ...],
    chains: float,
    warmup: float,
    draws: float,
    limit: float,
) -> float:
    """Return the seconds of Wang-Landau in numpy, with a bin for each state of each unit read."""
    e, n = _plain(target), target.rows * chains
    asking = Price()
    for name in read:
        one = Price(70 * US, 300 * NS) + Price(25 * US, 100 * NS) * _states(target, name)
        asking += one * free_units(target, name)
    drawing = (
        (e.sweep + asking).of(n, warmup + draws)
        + e.density.of(n, draws)
        + collecting(target, wanted, n, draws)
    )
    return drawing + judging(target, chains, draws, limit, drawing)


def drawing(target: Target, wanted: tuple[str, ...], draws: float) -> float:
    """Return the seconds of ancestral draws of each row: conditionals, products, generations."""
    s, n = target.structure, target.rows * draws
    width = sum(layer.width for layer in s.layers.values())
    each, calls = Price(0.0, 30 * NS * width * ("samples" in wanted)), 0.0
    for name, layer in s.layers.items():
        tabled = float((s.child_tables[name] >= 0).sum())
        rest = layer.width * (1.0 - tabled / layer.size)
        each += Price(60 * US, (25 + 12 * _states(target, name)) * NS * rest + 9 * NS * tabled)
        if arrows_inside(target.model, name):
            calls += len(target.model.generations[name]) * 50 * US + 3 * US * layer.width
    if s.tables:
        calls += len(s.drawing_steps) * 60 * US
        each += Price(0.0, 0.5 * NS * len(s.table_index.unit))
    for c in s.couplings:
        weight = target.model.weight(c)
        each += Price(20 * US, count(weight) * (1.5 if is_sparse(weight) else 0.05) * NS)
        if "pairs" in wanted:
            each += Price(0.0, 1.0 * NS * s.layers[c.a].width * s.layers[c.b].width)
    return each.of(n) + calls * min(target.rows, max(1.0, n * width / DRAWN_AT_ONCE))


def enumerating(
    states: float, columns: float, moments: bool, pairs: bool, best: bool, plain: bool
) -> float:
    """Return the seconds of enumerating states, with weights and moments of some columns."""
    if plain:
        return states * columns * (12 + 10 * (moments or pairs or best)) * NS
    each = 5.0 + columns * (0.1 + 0.3 * moments + 1.2 * pairs + 0.6 * best)
    return 0.6e-3 + states * each * NS
