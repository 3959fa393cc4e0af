"""Weighted mini-buckets: a bound of log Z by power sums, and steps that make it tighter.

The mini-buckets r of a variable x have tables f_r, given the other variables of their scopes, and
weights w_r that sum to one. With the power sum [f, w] = (sum_x f^(1/w))^w, Hoelder's inequality is

    sum_x prod_r f_r <= prod_r [f_r, w_r]    if all weights are positive,
    sum_x prod_r f_r >= prod_r [f_r, w_r]    if one weight is positive and all others are negative

(Liu and Ihler 2011). The power sums are messages to later buckets. States at which the product is 0
for every state of the variables that the mini-buckets do not share are left out of all sums.

A pass to the end gives the bound; a pass back gives beliefs, the gradient of the bound,

    q_r(x, rest) = mu(rest) p_r(x | rest),    p_r = (f_r / [f_r, w_r])^(1/w_r),

where mu is the belief of the mini-bucket that received the message. Two steps use them. Cost moves
between the mini-buckets of a variable until their beliefs agree on the variables that they share:
log f_r += w_r (sum_s w_s log q_s - log q_r). Weights move to mini-buckets of small conditional
entropy (upper bound) or away from them (lower bound). The bound holds for all costs that sum to 0
and all weights that sum to 1, so that no step can break it: a step that goes too far is shortened.

Rounding. The factors are never changed: the cost that was moved is an array of its own, and the
last one of a bucket is computed from the others. A power sum changes by no more than its largest
entry, so that the errors of all messages add up to at most the error of the bound. The error of a
message is below 2^-52 (t + 16) (T + |w| (k + 16)), with t terms whose largest sizes have the sum
T, and k states. `end` returns the sum beside the bound.

Layout: log values (states of the scope, lanes), float64; the summed variable is the first axis.
Reference: enumeration (test_mini_bucket.py); pyGMs (Ihler) in benchmarks/bounds.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from pgmengine.base.types import Array
from pgmengine.infer.bounds.mini_buckets import MiniBuckets

# The unit of rounding of double precision, and the operations of a message besides its terms.
ROUNDING, MORE_OPERATIONS = 2.0**-52, 16
# The exponent of the step of weights, and the least size of a weight.
WEIGHT_STEP, LEAST_WEIGHT = 0.3, 1e-6
# After a step without gain the next one is shorter by the first factor, and longer after others by
# the second. The least step still leaves points at which shorter ones stay. Lower bounds have many
# maxima, and steps of one size leave poor ones (Grids_14 of UAI 2014: 0.1 below log Z, not 9.3).
SHORTENED, LONGER, LEAST_STEP, LOWER_STEP = 0.7, 1.1, 0.2, 0.5


@dataclass(frozen=True, eq=False)
class Tables:
    """The factors of mini-buckets in some lanes.

    Attributes
    ----------
    own : the sum of the factors of each mini-bucket, (states of the scope, lanes or 1).
    sizes : the sum of the largest sizes of these factors, (lanes,) each.
    lanes : the number of lanes.
    possible : variable -> (states, lanes) bool, for variables that are fixed in some lanes.
    """

    own: tuple[Array, ...]
    sizes: tuple[Array, ...]
    lanes: int
    possible: dict[int, Array] = field(default_factory=dict)


def size_of(values: Array) -> Array:
    """Return the largest size (lanes,) of the finite entries of a table."""
    flat = values.reshape(-1, values.shape[-1])
    return np.asarray(np.abs(np.where(np.isfinite(flat), flat, 0.0)).max(axis=0, initial=0.0))


class Side:
    """The upper or the lower bound of log Z in some lanes, with its moved cost and its weights."""

    def __init__(self, graph: MiniBuckets, tables: Tables, upper: bool) -> None:
        self.graph, self.tables, self.upper = graph, tables, upper
        n = len(graph.parts)
        self.moved: list[Array | None] = [None] * n
        self.weight: list[Array | None] = [None] * n
        self.best = np.full(tables.lanes, np.inf if upper else -np.inf)
        # The bound on the other side, where no bucket is split and the sum is exact.
        self.exact_lower = np.full(tables.lanes, -np.inf)
        self.step = np.full(tables.lanes, 1.0 if upper else LOWER_STEP)
        self.first = [numbers[0] for numbers in graph.buckets for _ in numbers]
        # p_r, and log mu less the message over w_r, of the last passes.
        self.conditional: list[Array | None] = [None] * n
        self.context: list[Array | None] = [None] * n
        self.message: list[Array | None] = [None] * n
        self.entropy: list[Array | None] = [None] * n

    def on(self, tables: Tables, rows: Array) -> Side:
        """Return the bound for lanes that start from the costs and weights of some lanes."""
        out = Side(self.graph, tables, self.upper)
        out.moved = [None if m is None else m[..., rows] for m in self.moved]
        out.weight = [None if w is None else w[..., rows] for w in self.weight]
        return out

    def improve(self) -> None:
        """Make a pass back and a pass to the end with a step, and keep the best bound."""
        self.back()
        found = self.end(stepping=True)
        if self.upper:
            longer = np.minimum(self.step * LONGER, 1.0)
            shorter = np.maximum(self.step * SHORTENED, LEAST_STEP)
            self.step = np.where(found < self.best, longer, shorter)
        self._keep(found)

    def start(self) -> None:
        """Make the first pass to the end."""
        self._keep(self.end(stepping=False))

    def _keep(self, found: Array) -> None:
        """Keep the better bound of each lane; NaN is none."""
        self.best = (np.fmin if self.upper else np.fmax)(self.best, found)

    def end(self, stepping: bool) -> Array:
        """Return the bound (lanes,) after a pass to the end, rounded outwards."""
        g, lanes = self.graph, self.tables.lanes
        total, error = np.zeros(lanes), np.zeros(lanes)
        # Weights of -inf or of 0 entries give infinities that are sorted out where they arise.
        with np.errstate(all="ignore"):
            for numbers, common in zip(g.buckets, g.common, strict=True):
                sums, sizes = zip(*[self._table(r) for r in numbers], strict=True)
                gone = self._gone(numbers, common, sums)
                if len(numbers) > 1:
                    self._choose_weights(numbers, sums)
                    if stepping:
                        self._move_weights(numbers)
                        sums = self._move_cost(numbers, common, sums, gone)
                        more = [size_of(self._moved(r)) for r in numbers]
                        grown = zip(sizes, more, strict=True)
                        sizes = tuple(s + MORE_OPERATIONS * m for s, m in grown)
                for r, values, size in zip(numbers, sums, sizes, strict=True):
                    sent, lost = self._send(r, values, size, gone)
                    error += lost
                    if len(g.parts[r].scope) == 1:
                        total = total + sent
        error += ROUNDING * len(g.parts) * np.abs(np.where(np.isfinite(total), total, 0.0))
        self.exact_lower = total - error
        return total + error if self.upper else total - error

    def _table(self, r: int) -> tuple[Array, Array]:
        """Return the log table of a mini-bucket with all messages, and the size of its terms."""
        part, size = self.graph.parts[r], self.tables.sizes[r]
        values, terms = self.tables.own[r], len(part.factors) + len(part.children) + 1
        for child in part.children:
            message = self.message[child]
            assert message is not None
            scope = self.graph.parts[child].scope[1:]
            values = values + message.reshape(*part.within(scope), self.tables.lanes)
            size = size + size_of(message)
        if (moved := self.moved[r]) is not None:
            values = values + moved
            size = size + size_of(moved)
        shape = (*part.shape, self.tables.lanes)
        return np.broadcast_to(values, shape), (terms + MORE_OPERATIONS) * size

    def _moved(self, r: int) -> Array:
        """Return the cost that was moved to a mini-bucket."""
        moved = self.moved[r]
        assert moved is not None
        return moved

    def _gone(
        self, numbers: tuple[int, ...], common: tuple[int, ...], sums: tuple[Array, ...]
    ) -> list[Array | None]:
        """Return for each mini-bucket which states (shared ones) all sums leave out, or None."""
        part = self.graph.parts[numbers[0]]
        whole: Array | None = None
        if (possible := self.tables.possible.get(part.scope[0])) is not None:
            cards = tuple(k for v, k in zip(part.scope, part.shape, strict=True) if v in common)
            fixed = possible.reshape(len(possible), *[1] * (len(cards) - 1), -1)
            whole = np.broadcast_to(~fixed, (*cards, self.tables.lanes))
        for r, values in zip(numbers, sums, strict=True):
            if len(numbers) > 1 and values.min(initial=0.0) == -np.inf:
                out = np.isneginf(values.max(axis=self.graph.parts[r].without(common)))
                whole = out if whole is None else whole | out
        if whole is None:
            return [None] * len(numbers)
        lanes = self.tables.lanes
        return [whole.reshape(*self.graph.parts[r].within(common), lanes) for r in numbers]

    def _choose_weights(self, numbers: tuple[int, ...], sums: tuple[Array, ...]) -> None:
        """Set the first weights: equal ones, or one positive one where most states are impossible.

        A negative power of 0 is infinite, so that the mini-bucket with most zeros is positive.
        """
        if self.weight[numbers[0]] is not None:
            return
        n, lanes = len(numbers), self.tables.lanes
        if self.upper:
            for r in numbers:
                self.weight[r] = np.full(lanes, 1.0 / n)
            return
        zeros = [np.isneginf(v).reshape(-1, lanes).mean(axis=0) for v in sums]
        size = [1e-9 * math.log(self.graph.parts[r].entries) for r in numbers]
        first = np.argmax([z + s for z, s in zip(zeros, size, strict=True)], axis=0)
        for i, r in enumerate(numbers):
            self.weight[r] = np.where(first == i, 1.0 + (n - 1.0) / n, -1.0 / n)

    def _move_weights(self, numbers: tuple[int, ...]) -> None:
        """Step the weights by the conditional entropies, the gradient of the bound."""
        weights = np.stack([self._weight(r) for r in numbers])
        found = [self.entropy[r] for r in numbers]
        entropy = np.stack([e for e in found if e is not None])
        rate = WEIGHT_STEP * self.step
        if self.upper:
            mean = (weights * entropy).sum(axis=0)
            new = weights * np.exp(np.clip(-rate * (entropy - mean), -2.0, 2.0))
            new = np.maximum(new, LEAST_WEIGHT)
            new = new / new.sum(axis=0)
        else:
            first = weights > 0
            own = np.where(first, entropy, 0.0).sum(axis=0)
            size = np.where(first, 0.0, -weights)
            size = size * np.exp(np.clip(rate * (own - entropy), -2.0, 2.0))
            size = np.where(first, 0.0, np.clip(size, LEAST_WEIGHT, 1.0 / LEAST_WEIGHT))
            new = np.where(first, 1.0 + size.sum(axis=0), -size)
        fine = np.isfinite(new).all(axis=0)
        for r, own in zip(numbers, np.where(fine, new, weights), strict=True):
            self.weight[r] = own

    def _weight(self, r: int) -> Array:
        """Return the weight (lanes,) of a mini-bucket: 1 where it is alone."""
        found = self.weight[r]
        return np.ones(self.tables.lanes) if found is None else found

    def _move_cost(
        self,
        numbers: tuple[int, ...],
        common: tuple[int, ...],
        sums: tuple[Array, ...],
        gone: list[Array | None],
    ) -> tuple[Array, ...]:
        """Move cost between mini-buckets until their beliefs agree; return the new tables."""
        parts, lanes = [self.graph.parts[r] for r in numbers], self.tables.lanes
        cards = tuple(k for v, k in zip(parts[0].scope, parts[0].shape, strict=True) if v in common)
        beliefs, weights = [], [self._weight(r) for r in numbers]
        for r, part, values, w, out in zip(numbers, parts, sums, weights, gone, strict=True):
            own = values / w
            if (context := self.context[r]) is not None:
                own = own + context
            axes = part.without(common)
            if axes or out is not None:
                own = np.where(np.isnan(own) | (own == np.inf), -np.inf, own)
            beliefs.append(_log_sum(own, axes).reshape(*cards, lanes))
        fine = np.logical_and.reduce([np.isfinite(b) for b in beliefs])
        mean = sum(w * np.where(fine, b, 0.0) for w, b in zip(weights, beliefs, strict=True))
        new, rest = [], np.zeros((*cards, lanes))
        for r, belief, w in zip(numbers, beliefs, weights, strict=True):
            old = self.moved[r]
            change = np.where(fine, self.step * w * (mean - belief), 0.0)
            whole = change if old is None else old.reshape(*cards, lanes) + change
            if r == numbers[-1]:
                whole = -rest
            rest = rest + whole
            new.append(whole)
        out_sums = []
        for r, part, values, whole in zip(numbers, parts, sums, new, strict=True):
            old, shaped = self.moved[r], whole.reshape(*part.within(common), lanes)
            self.moved[r] = shaped
            out_sums.append(values + (shaped if old is None else shaped - old))
        return tuple(out_sums)

    def _send(
        self, r: int, values: Array, size: Array, gone: list[Array | None]
    ) -> tuple[Array, Array]:
        """Return the power sum over the variable of a mini-bucket, and its rounding error."""
        part, lanes = self.graph.parts[r], self.tables.lanes
        out = gone[r - self._first(r)]
        weight = self.weight[r]
        w = 1.0 if weight is None else weight
        scaled = values if weight is None else values / w
        if out is not None:
            scaled = np.where(out, -np.inf, scaled)
        top = scaled.max(axis=0)
        shift = np.where(np.isfinite(top), top, 0.0)
        weighted = np.exp(scaled - shift)
        total = weighted.sum(axis=0)
        sent = w * (shift + np.log(total))
        empty = np.isneginf(top)
        if weight is not None and empty.any():
            # A sum without a state is 0 for the positive weight; the product then is 0 as well.
            sent = np.where(empty, np.where(weight > 0, -np.inf, 0.0), sent)
        self.message[r] = sent
        self.conditional[r] = weighted / np.where((total > 0) & np.isfinite(total), total, 1.0)
        states = np.abs(w) * (part.shape[0] + MORE_OPERATIONS)
        error = ROUNDING * (size + MORE_OPERATIONS * size_of(sent) + states)
        return sent, np.broadcast_to(error, (lanes,))

    def _first(self, r: int) -> int:
        """Return the number of the first mini-bucket of the same bucket."""
        return self.first[r]

    def back(self) -> None:
        """Make a pass back: the context of each message, and the conditional entropies."""
        g, lanes = self.graph, self.tables.lanes
        above: list[Array | None] = [None] * len(g.parts)
        with np.errstate(all="ignore"):
            for r in reversed(range(len(g.parts))):
                part, p = g.parts[r], self.conditional[r]
                assert p is not None
                mu = above[r]
                belief = p if mu is None else p * mu
                if self.weight[r] is not None:
                    message = self.message[r]
                    assert message is not None
                    context = -message / self._weight(r)
                    if mu is not None:
                        context = np.log(mu) + context
                    context = np.where(
                        np.isfinite(message) & np.isfinite(context), context, -np.inf
                    )
                    self.context[r] = context[None]
                    logs = np.log(np.maximum(p, np.finfo(np.float64).tiny))
                    self.entropy[r] = -(belief * logs).reshape(-1, lanes).sum(axis=0)
                for child in part.children:
                    scope = g.parts[child].scope[1:]
                    shape = (*g.parts[child].shape[1:], lanes)
                    above[child] = belief.sum(axis=part.without(scope)).reshape(shape)


def _log_sum(values: Array, axes: tuple[int, ...]) -> Array:
    """Return the logarithm of the sum of exponentials over some axes, -inf where there is none."""
    if not axes:
        return values
    top = values.max(axis=axes, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0.0)
    total = np.log(np.exp(values - shift).sum(axis=axes, keepdims=True)) + shift
    return np.asarray(total.reshape([k for a, k in enumerate(total.shape) if a not in axes]))
