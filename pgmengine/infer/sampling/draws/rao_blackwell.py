"""Comparison of means of draws with exact conditional means of blocks of units.

Chains that move one unit at a time stay in a part of the space if tables or strong couplings forbid
every move of a single unit out of it, and no statistic of their draws can show it. However, the
conditional of a block S given all other units can be computed exactly, and the mean over the
posterior of E[x_S | rest] is E[x_S]. Therefore

    gap_i = mean over some draws t of E[x_i | rest of draw t] - mean of x_i over all draws

is 0 for draws of the posterior, up to the errors of the two means (Gelfand and Smith 1990 call the
first one Rao-Blackwellised). If states of the block lead out of the part of the space that the
chains have visited, the gap is the probability of these states. The error of a gap has two parts,

    mcse_i^2    and    var_t(E[x_i | rest of draw t]) / n,

for n independent draws. The "rest" of a draw are its units outside the block. The second part is at
least the error from rests that may exist but are not among n draws (convergence.least_error). It is
0 where a block is closed: without a free neighbour outside, its conditional does not depend on the
draws.

Blocks are larger where there are fewer distinct draws. Rows with few distinct draws are compared
first, because chains that cannot move repeat the same states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pgmengine.base.equal_rows import equal_rows
from pgmengine.base.types import Array, States
from pgmengine.engine.cost import NS, US, free_units
from pgmengine.evidence.evidence import Evidence
from pgmengine.evidence.relevance import EvidencePattern
from pgmengine.evidence.target import Target
from pgmengine.infer.diagnostics.convergence import NORMAL_95, least_error
from pgmengine.infer.exact.exact import Exact
from pgmengine.infer.sampling.draws.blocks import blocks

# Limits of the comparison: the distinct draws of all rows together, the numbers in them, and the
# draws of each row if there are many rows or units.
MAX_DISTINCT_DRAWS, MAX_DISTINCT_NUMBERS, MAX_DRAWS_PER_ROW = 2048, 2**18, 64

# Limits of the number of blocks, of the units of all blocks together, and of the states of the
# cliques of all blocks together.
MAX_BLOCKS, MAX_BLOCK_UNITS, MAX_BLOCK_STATES = 16, 2**11, 2.0**24

# Growing a block takes GROWING_SECONDS_PER_UNIT for each unit of the model. Conditioning takes
# CONDITIONING_SECONDS_PER_UNIT for each unit of each draw.
GROWING_SECONDS_PER_UNIT, CONDITIONING_SECONDS_PER_UNIT = 1e-5, 2e-8
# Finding the different draws of a row takes FINDING_SECONDS_PER_UNIT for each of its units.
FINDING_SECONDS_PER_UNIT = 4e-6

# The comparison may take the share SHARE_COMPARING of the seconds of drawing, but no more than
# MAX_COMPARING_SECONDS divided by the number of rows. MIN_COMPARING_SECONDS are always allowed.
MAX_COMPARING_SECONDS, MIN_COMPARING_SECONDS, SHARE_COMPARING = 0.15, 0.03, 0.1

# The number of distinct draws in plans.
PLANNED_DISTINCT_DRAWS = 1024

# Elimination may find a somewhat worse order than the one in which the block has grown, so its
# limit on states is larger than needed.
BLOCK_METHOD = Exact(max_bits=20, max_states=2.0**22, max_work=0)

# A gap of more than NOTABLE_GAP_ERRORS standard errors widens the error of its mean. The largest of
# thousands of gaps is below MAX_CHANCE_GAP_ERRORS standard errors if it is due to chance.
NOTABLE_GAP_ERRORS, MAX_CHANCE_GAP_ERRORS = 3.0, 5.0


@dataclass(frozen=True, eq=False)
class SomeDraws:
    """Some draws of each row of a target.

    Attributes
    ----------
    target : one row for each row of evidence.
    x : layer -> (rows, draws, size) states, or values of units with infinitely many.
    weight : (rows, draws) importance weights.
    """

    target: Target
    x: States
    weight: Array

    def distinct(self) -> DistinctDraws:
        """Return the distinct draws of the rows with the fewest of them, up to the limits."""
        rows, draws = self.weight.shape
        most = min(
            MAX_DISTINCT_DRAWS, MAX_DISTINCT_NUMBERS // sum(v.shape[2] for v in self.x.values())
        )
        each = min(draws, max(MAX_DRAWS_PER_ROW, most // rows))
        chosen = np.arange(each) * draws // each
        groups = [equal_rows(*(v[row, chosen] for v in self.x.values())) for row in range(rows)]
        counts = np.array([len(first) for first, _ in groups])
        few = np.argsort(counts, kind="stable")
        few = np.sort(few[: max(1, int(np.sum(np.cumsum(counts[few]) <= most)))])
        states, values, weight = {}, {}, []
        for name, layer in self.target.structure.layers.items():
            state = np.concatenate([self.x[name][row, chosen[groups[row][0]]] for row in few])
            support, states[name] = layer.unit.support, state
            values[name] = layer.flat(state if support is None else support[state]).astype(float)
        for row in few:
            share = self.weight[row, chosen] / self.weight[row, chosen].sum()
            weight.append(np.bincount(groups[row][1], share))
        place = np.repeat(np.arange(len(few)), counts[few])
        found = self.target.take(few)
        return DistinctDraws(found, few, states, values, place, np.concatenate(weight), each)


@dataclass(frozen=True, eq=False)
class DistinctDraws:
    """The distinct draws of some rows; the draws of each row are adjacent.

    Attributes
    ----------
    target : the target of these rows.
    rows : (rows,) their numbers among all rows.
    states : layer -> (distinct draws, size) states, or values of units with infinitely many.
    x : layer -> (distinct draws, width) values.
    row : (distinct draws,) the row of each.
    weight : (distinct draws,) share of the draws of its row that are equal to it.
    draws : number of draws of each row.
    """

    target: Target
    rows: Array
    states: States
    x: States
    row: Array
    weight: Array
    draws: int

    def mean(self, value: Array) -> Array:
        """Return the means (rows, width) over the draws of each row."""
        first = np.searchsorted(self.row, np.arange(self.target.rows))
        return np.asarray(np.add.reduceat(self.weight[:, None] * value, first, axis=0))

    def given_rest(self, inside: dict[str, Array]) -> tuple[Target, Array]:
        """Return the target in which all units outside a block are observed as they were drawn.

        The target has one row for each distinct state of these units. The second array holds, for
        each draw, the number of its row.

        Parameters
        ----------
        inside : layer -> (rows, size), the units of the block, for layers with such units.
        """
        s = self.target.structure
        seen = {
            name: ~inside[name][self.row]
            if name in inside
            else np.ones((len(self.row), layer.size), dtype=bool)
            for name, layer in s.layers.items()
        }
        # States are compared, because they take an eighth of the bytes of values.
        # Units with infinitely many values have no states, and keep their values.
        rest = (
            np.where(seen[n] if s.state_counts[n] else s.layers[n].components(seen[n]), state, 0)
            for n, state in self.states.items()
        )
        first, group = equal_rows(self.row[:, None], *rest)
        many = self.target.take(self.row[first])
        seen = {name: mask[first] for name, mask in seen.items()}
        pattern = EvidencePattern(s, len(first), seen, many.intervened)
        values = {
            name: np.where(s.layers[name].components(seen[name]), x[first], 0.0)
            for name, x in self.x.items()
        }
        evidence = Evidence(True, values, pattern)
        return replace(many, evidence=evidence), group


@dataclass(frozen=True, eq=False)
class Gap:
    """The gaps of the units of a layer in a block.

    Attributes
    ----------
    layer : its name.
    units : number of units of the block.
    size : (rows, width) conditional mean less mean of the draws; 0 outside the block.
    error : (rows, width) standard error of the conditional mean.
    """

    layer: str
    units: int
    size: Array
    error: Array


def gaps(some: DistinctDraws, mean: States, ess: States, most: float) -> Iterator[Gap]:
    """Yield the gaps of blocks of units until their planned time reaches `most` seconds.

    `mean` and `ess`, each layer -> (rows, width), are the means and effective numbers of all draws
    of the rows of `some`.
    """
    target, seconds, units = some.target, 0.0, 0
    layers = target.structure.layers
    # The seconds for growing a block, and for conditioning on the rest of each draw.
    own = GROWING_SECONDS_PER_UNIT + CONDITIONING_SECONDS_PER_UNIT * len(some.row)
    own *= target.structure.units
    # The seed is fixed, so that blocks do not depend on the random numbers of the chains.
    each = blocks(target, MAX_BLOCK_STATES / MAX_BLOCKS / len(some.row), np.random.default_rng(0))
    for (block, closed), _ in zip(each, range(MAX_BLOCKS), strict=False):
        inside = _inside(target, block)
        rest, group = some.given_rest(inside)
        question = BLOCK_METHOD.prepare(rest, ("marginals",))
        seconds += question.plan.seconds + own
        units += len(block)
        if seconds > most:
            return
        exact = question.run() if question.plan.accepted else None
        if exact is None or not exact.status.good:
            continue
        for name, mask in inside.items():
            value = layers[name].flat(exact.answers["mean"][name])[group]
            center, n = some.mean(value), np.fmin(some.draws, ess[name])
            variance = some.mean((value - center[some.row]) ** 2)
            unseen = 0.0 if closed else least_error(layers[name], n)
            size = np.where(layers[name].components(mask), center - mean[name], 0.0)
            yield Gap(name, len(block), size, np.maximum(np.sqrt(variance / n), unseen))
        if units > MAX_BLOCK_UNITS:
            return


def _inside(target: Target, block: Array) -> dict[str, Array]:
    """Return the free units of a block, layer -> (rows, size); layers without any are absent."""
    out = {}
    for name, layer in target.structure.layers.items():
        units = target.structure.first_unit[name] + np.arange(layer.size)
        if (mask := np.isin(units, block)).any():
            out[name] = mask & target.free[name]
    return out


def with_gaps(
    some: SomeDraws, mean: States, stats: dict[str, dict[str, Array]], drawing: float
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return the MCSE of each mean widened by its gaps, and a warning for a gap beyond chance.

    The MCSE that is returned covers gaps of more than NOTABLE_GAP_ERRORS standard errors, as far as
    they exceed the 95 % interval of the conditional mean. The MCSE of the draws already covers
    smaller gaps; widening intervals by these as well would make them too wide.

    Parameters
    ----------
    some : some draws.
    mean : layer -> (rows, width), means of all draws.
    stats : ess and mcse, each layer -> (rows, size[, k]).
    drawing : planned seconds of the draws; the comparison may take a share of this time. Large
        questions are answered in parts of few rows, each with its own comparison.
    """
    layers, found, note = some.target.structure.layers, some.distinct(), ""
    mcse, ess = ({n: layers[n].flat(v) for n, v in stats[key].items()} for key in ("mcse", "ess"))
    means, counts = ({n: v[found.rows] for n, v in part.items()} for part in (mean, ess))
    wider, worst = {n: v.copy() for n, v in mcse.items()}, MAX_CHANCE_GAP_ERRORS
    seconds = comparing_limit(some.target.rows, drawing)
    for gap in gaps(found, means, counts, seconds):
        size, own = np.abs(gap.size), mcse[gap.layer][found.rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where(size > 0, size / np.hypot(gap.error, own), 0.0)
        beyond = np.hypot(own, np.maximum(size / NORMAL_95 - gap.error, 0.0))
        beyond = np.where(score > NOTABLE_GAP_ERRORS, beyond, own)
        wider[gap.layer][found.rows] = np.maximum(wider[gap.layer][found.rows], beyond)
        # Units that were not examined have an MCSE of NaN; they are left out here.
        if np.nanmax(score, initial=0.0) > worst:
            worst = float(np.nanmax(score))
            at = np.unravel_index(int(np.nanargmax(score)), score.shape)
            note = _note(found, gap, (int(at[0]), int(at[1])), means[gap.layer][at], worst)
    return {n: layers[n].shaped(v) for n, v in wider.items()}, (note,) * bool(note)


def _note(some: DistinctDraws, gap: Gap, at: tuple[int, int], mean: float, score: float) -> str:
    """Return a warning with the unit at a row and component, and the two means that disagree."""
    s, (row, column) = some.target.structure, at
    layer = s.layers[gap.layer]
    unit = np.arange(layer.size) == layer.owners(np.array(column))
    return (
        f"the draws of row {some.target.row_numbers[some.rows[row]]} give "
        f"{s.names.described(gap.layer, unit)} the mean {mean:.3g}; the exact conditional of a "
        f"block of {gap.units} units gives {mean + gap.size[at]:.3g}, {score:.3g} standard errors "
        "away: moves of single units do not reach all states that matter"
    )


def comparing_limit(rows: int, drawing: float) -> float:
    """Return the most seconds that the comparison may take, after `drawing` seconds of drawing."""
    return max(MIN_COMPARING_SECONDS, min(SHARE_COMPARING * drawing, MAX_COMPARING_SECONDS / rows))


def comparing(target: Target, chains: float, draws: float, drawing: float) -> float:
    """Return the seconds of exact conditionals of blocks of about ten units.

    Each unit is in about four blocks.
    """
    units = sum(free_units(target, name) for name in target.pattern.moving)
    blocks = min(1.0 + 0.4 * units, MAX_BLOCKS)
    distinct = min(PLANNED_DISTINCT_DRAWS, target.rows * chains * draws, 2.0 ** min(units, 50))
    states = min(2.0 ** min(units, 50), MAX_BLOCK_STATES / MAX_BLOCKS / max(distinct, 1.0))
    seconds = blocks * (1e-3 + 10 * US * units + (20 * units + 2 * states) * NS * distinct)
    # Different draws are found, and packed for the blocks, whatever the limit is.
    found = FINDING_SECONDS_PER_UNIT * target.rows * units
    return found + min(seconds, comparing_limit(target.rows, drawing))
