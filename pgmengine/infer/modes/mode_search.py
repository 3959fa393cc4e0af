"""ModeSearch: a good state of any graph, by annealing, and by how much another may be better.

Annealing draws each variable from its conditional distribution at a temperature that falls from
sweep to sweep (Kirkpatrick, Gelatt and Vecchi 1983), for several starts at once, and ends with
sweeps that take the best state of each variable until nothing changes. Variables of a colour share
no factor, and are drawn together. The score of state k of variable v is the sum of the entries

    entry(place of factor f + stride of v in f * (k - x_v))    over the factors f of v

where the place of a factor follows the states of all its members. An impossible entry costs a
penalty, which grows from round to round as long as the best state is impossible, so that the search
can cross states that no draw could. Where two rounds have failed, a search by propagation of zeros
finds a possible state, or proves that there is none (possible_state.py).

Max-sum diffusion (mode_bounds.py) gives another state, and bounds all from above: the gap is the
difference of its bound and the best state.

Reference: all states, one by one (test_modes_of_any_graph.py).
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pgmengine.base.checks import check_whole, seeded
from pgmengine.base.equal_rows import distinct_pairs
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array, RngLike, Snapshot
from pgmengine.base.work.progress import track
from pgmengine.evidence.target import Target
from pgmengine.infer.exact.mode_bounds import MAX_BOUNDED_ENTRIES, bounding_seconds, diffused
from pgmengine.infer.modes.mode_factors import (
    Found,
    LogFactors,
    ModeFactors,
    mode_factors,
    searched,
    strides,
)
from pgmengine.infer.modes.possible_state import possible_state
from pgmengine.infer.question.prepared import AnyPrepared, Method
from pgmengine.infer.results.result import Plan, Result

# Temperatures of the first and the last sweep, as shares of the typical range of a conditional.
HOT, COLD = 3.0, 0.05
# The penalty of an impossible entry in the first round, in typical ranges of a factor, the factor
# by which it grows, and the number of rounds.
PENALTY, GROWTH, ROUNDS = 2.0, 4.0, 4
# Sweeps of descent at most.
MAX_DESCENT = 100
# Seconds of a sweep for each start and each state of a member of a factor, and for each colour.
STATE_SECONDS, COLOUR_SECONDS = 1.5e-8, 1e-4


@dataclass(frozen=True)
class ModeSearch(Method["list[ModeFactors]"]):
    """A state of high probability for any graph, by annealing, with a proven gap.

    Use it where elimination is too wide and the optional solver of `Toulbar2` is not installed or
    takes too long. The kind is "lower bound": the most probable state is at least as good, and its
    log density is larger by `mode_gap` at most. Where the gap closes, the kind is "exact".

    Parameters
    ----------
    sweeps : sweeps from the hottest to the coldest temperature.
    starts : states that are annealed side by side; the best one is given.

    References
    ----------
    Kirkpatrick, Gelatt and Vecchi (1983); Werner (2007) for the bound.

    >>> import pgmengine as pgm
    >>> r = pgm.infer(pgm.rbm(8, 4, rng=0), want=("mode",), method=pgm.ModeSearch(), rng=0)
    >>> r.mode["v"].shape, float(r.mode_gap[0]) < 1.0
    ((8,), True)
    """

    gives = frozenset({"mode"})
    source = "a search for the mode gives the mode,"
    guarantee = "lower bound"

    sweeps: int = 300
    starts: int = 4

    def __post_init__(self) -> None:
        check_whole(self, "sweeps", "starts")

    def scheme(self, target: Target, want: tuple[str, ...]) -> Plan[list[ModeFactors]]:
        """Find the factors of every evidence pattern."""
        try:
            patterns = mode_factors(target)
        except PgmError as error:
            return Plan(refusal=str(error))
        seconds = bytes_ = 0.0
        for one in patterns:
            c = one.conditioned
            members = float(c.states[c.scopes.scope].sum())
            bounding = min(bounding_seconds(c.scopes, c.sizes), 60.0)
            each = self.sweeps * self.starts * members * STATE_SECONDS + bounding
            seconds += len(one.rows) * each
            bytes_ = max(bytes_, one.bytes + 40.0 * self.starts * members)
        return Plan(
            why=f"annealing of {self.starts} starts in {self.sweeps} sweeps",
            work=sum(self.sweeps * self.starts * len(p.rows) * p.entries for p in patterns),
            bytes=bytes_,
            seconds=seconds,
            basis=patterns,
        )

    def answer(
        self, question: AnyPrepared, rng: RngLike, state: Snapshot | None, executor: Executor | None
    ) -> Result:
        """Search row by row."""
        generator = seeded(rng)
        return searched(question, lambda factors: self.search(factors, generator))

    def search(self, factors: LogFactors, rng: np.random.Generator) -> Found:
        """Return the best state of a row that annealing or diffusion finds, and its gap."""
        upper, margin, states = np.inf, 0.0, list[Array]()
        if len(factors.logs) <= MAX_BOUNDED_ENTRIES:
            bounds = diffused(factors.cards, factors.scopes, factors.logs)
            upper, margin, states = bounds.upper, bounds.margin, [bounds.state]
        penalty = PENALTY
        for number in range(ROUNDS):
            states += annealed(factors, self.sweeps, self.starts, penalty, rng)
            if number == 1:
                # Annealing has failed twice, so that few states are possible.
                found = possible_state(factors)
                if found is not None and not len(found):
                    return Found(states[-1], 0.0)
                states += [] if found is None else [found]
            values = [factors.value(one) for one in states]
            if np.isfinite(best := max(values)):
                # What the bound allows for rounding, on both sides, is no gap.
                gap = 0.0 if upper - best <= 2.0 * margin else upper - best
                return Found(states[int(np.argmax(values))], gap)
            penalty *= GROWTH
        return Found(states[-1], np.inf)


@dataclass(frozen=True, eq=False)
class _Colour:
    """Variables of one number of states that share no factor.

    Attributes
    ----------
    units : (m,) the variables.
    first : (m,) the place of the first member of each among `factor` and `stride`.
    factor, stride : the factors of these variables, and the stride of the variable in each.
    """

    units: Array
    states: int
    first: Array
    factor: Array
    stride: Array


@dataclass(frozen=True, eq=False)
class _Graph:
    """The factors of a row, from the point of view of their variables."""

    factors: LogFactors

    @cached_property
    def colours(self) -> list[_Colour]:
        """The variables in groups that are drawn together."""
        cards, scopes = self.factors.cards, self.factors.scopes
        factor = np.arange(len(scopes)).repeat(np.diff(scopes.start))
        by_unit = np.argsort(scopes.scope, kind="stable")
        ends = np.searchsorted(scopes.scope[by_unit], np.arange(len(cards) + 1))
        step = strides(cards, scopes)
        near: list[set[int]] = [set() for _ in cards]
        for own in np.split(scopes.scope, scopes.start[1:-1]):
            members = own.tolist()
            for unit in members:
                near[unit].update(members)
        colour = np.full(len(cards), -1)
        for unit in np.argsort([-len(s) for s in near], kind="stable").tolist():
            taken = {int(colour[other]) for other in near[unit]}
            colour[unit] = next(c for c in range(len(cards)) if c not in taken)
        out = list[_Colour]()
        for pair in distinct_pairs(colour, cards)[0].tolist():
            units = np.flatnonzero((colour == pair[0]) & (cards == pair[1]))
            # A variable without a factor keeps its state.
            units = units[ends[units + 1] > ends[units]]
            if not len(units):
                continue
            lengths = ends[units + 1] - ends[units]
            first = lengths.cumsum() - lengths
            at = by_unit[np.arange(lengths.sum()) + (ends[units] - first).repeat(lengths)]
            out.append(_Colour(units, pair[1], first, factor[at], step[at]))
        return out

    def places(self, states: Array) -> Array:
        """Return the place (factors, starts) of each factor among the entries."""
        f = self.factors
        at = (f.sizes.cumsum() - f.sizes)[:, None].repeat(states.shape[1], axis=1)
        factor = np.arange(len(f.scopes)).repeat(np.diff(f.scopes.start))
        np.add.at(at, factor, strides(f.cards, f.scopes)[:, None] * states[f.scopes.scope])
        return at


def annealed(
    factors: LogFactors, sweeps: int, starts: int, penalty: float, rng: np.random.Generator
) -> list[Array]:
    """Return a state of each start, (n,), after annealing and descent.

    Parameters
    ----------
    factors : the log factors of a row.
    sweeps, starts : sweeps of annealing, and states side by side.
    penalty : of an impossible entry, in typical ranges of a factor.
    rng : for the starts and the draws.
    """
    graph = _Graph(factors)
    entries, scale = _penalised(factors, penalty)
    states = (rng.random((len(factors.cards), starts)) * factors.cards[:, None]).astype(np.int64)
    place = graph.places(states)
    ladder: list[float] = (scale * np.geomspace(HOT, COLD, sweeps)).tolist()
    for temperature in track(ladder, "sweeps of annealing"):
        for colour in graph.colours:
            _drawn(colour, entries, states, place, temperature, rng)
    for _ in range(MAX_DESCENT):
        if not any([_drawn(c, entries, states, place, 0.0, rng) for c in graph.colours]):
            break
    return list(states.T)


def _penalised(factors: LogFactors, penalty: float) -> tuple[Array, float]:
    """Return the entries with impossible ones replaced, and the typical range of a factor."""
    finite = np.isfinite(factors.logs)
    known = np.where(finite, factors.logs, np.nan)
    first = (factors.sizes.cumsum() - factors.sizes)[factors.sizes > 0]
    high = np.fmax.reduceat(known, first) if len(first) else np.zeros(0)
    low = np.fmin.reduceat(known, first) if len(first) else np.zeros(0)
    ranges = np.nan_to_num(high - low)
    scale = float(ranges[ranges > 0].mean()) if (ranges > 0).any() else 1.0
    floor = np.nan_to_num(low) - penalty * scale
    of_entry = floor.repeat(factors.sizes[factors.sizes > 0])
    return np.where(finite, factors.logs, of_entry), scale


def _drawn(
    colour: _Colour,
    entries: Array,
    states: Array,
    place: Array,
    temperature: float,
    rng: np.random.Generator,
) -> bool:
    """Draw the variables of a colour, or take their best states at 0; return whether one changed.

    `states` (n, starts) and `place` (factors, starts) are changed.
    """
    now = states[colour.units]
    base = place[colour.factor] - colour.stride[:, None] * now.repeat(
        np.diff([*colour.first, len(colour.factor)]), axis=0
    )
    scores = np.stack(
        [
            np.add.reduceat(entries[base + k * colour.stride[:, None]], colour.first, axis=0)
            for k in range(colour.states)
        ]
    )
    if temperature:
        # The largest of the scores with Gumbel noise is a draw from their softmax.
        scores = scores / temperature - np.log(rng.exponential(size=scores.shape))
        new = scores.argmax(axis=0)
    else:
        new = scores.argmax(axis=0)
        same = np.take_along_axis(scores, now[None], 0)[0] >= scores.max(axis=0)
        new = np.where(same, now, new)
    moved = new - now
    if not moved.any():
        return False
    states[colour.units] = new
    lengths = np.diff([*colour.first, len(colour.factor)])
    # No two variables of a colour share a factor, so that each place changes once.
    place[colour.factor] += colour.stride[:, None] * moved.repeat(lengths, axis=0)
    return True
