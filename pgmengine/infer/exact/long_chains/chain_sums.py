"""Sums over all paths of many chains at once, by forward and backward messages.

A chain of n steps has one state y_t at each step. All chains share one matrix of transitions, and
each step has log weights of its own, its field. The weight of a path is

    exp( sum_{t < n} field[t, y_t]  +  sum_{0 < t < n} transition[y_{t-1}, y_t] ).

`chain_sums` returns log Z of each chain, the marginals of each step, and the marginals of
neighbouring pairs, summed over all steps of all chains. These are the expectations that gradients
of a conditional random field need. A junction tree answers the same question one length at a time;
this routine takes all lengths together (`docs/decisions/infer-exact.md` has the measurement).

Layout: chains are sorted by length, the longest first. All first steps stand first, then all second
steps, and so on (`Packing`). The chains that reach a step are then the first ones of the step
before, and the messages of all of them are one matrix product of (chains, states) and (states,
states).

Forward messages are scaled to the sum 1 at each step, and backward messages by the same factors
(Rabiner 1989). No number under- or overflows while the log weights of each step, and those of the
transitions, differ by at most MAX_LOG_RANGE. Other weights go the plain way, `log_chain_sums`, the
reference of the tests, which keeps the logarithms of messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine.base.errors import InternalError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array

# The most that log weights of one step, or of transitions, may differ, in nats. With transitions
# in [e^-R, 1], factors of a step are in [e^-R, 1], and backward messages in [e^-R, e^R]; their
# products with an inverse scale stay within e^(3 R) < 1e308 for R = 230.
MAX_LOG_RANGE = 230.0
# The largest error of the sum of marginals of a step, which is 1.
MARGINAL_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Packing:
    """The order of the steps of chains in which messages are passed.

    Attributes
    ----------
    chains : the number of chains, also of those without a step.
    first : (longest + 1,) place of the first chain at each step; the last entry is the number of
        all steps.
    source : (steps,) place of each packed step among the steps of chain 0, then chain 1, ...
    chain : (steps,) chain of each packed step.
    """

    chains: int
    first: Array
    source: Array
    chain: Array

    @classmethod
    def of(cls, lengths: Array) -> Packing:
        """Return the packing of chains of these numbers of steps, (chains,)."""
        order = np.argsort(-lengths, kind="stable")
        longest = int(lengths.max(initial=0))
        begin = np.cumsum(lengths) - lengths
        # A chain of n steps reaches the steps 0 .. n - 1.
        ending = np.bincount(lengths, minlength=longest + 1)
        reach = len(lengths) - np.cumsum(ending)[:longest]
        chain = np.concatenate([order[:n] for n in reach]) if longest else order[:0]
        step = np.repeat(np.arange(longest), reach)
        return cls(len(lengths), np.append(0, np.cumsum(reach)), begin[chain] + step, chain)

    @property
    def start(self) -> slice:
        """The places of the first steps of chains."""
        return slice(0, int(self.first[:2][-1]))

    def steps(self) -> list[tuple[slice, slice]]:
        """Return for each step from the second one on: its places, and those one step before."""
        first, out = self.first.tolist(), []
        for t in range(1, len(first) - 1):
            count = first[t + 1] - first[t]
            out.append((slice(first[t], first[t + 1]), slice(first[t - 1], first[t - 1] + count)))
        return out

    def summed(self, values: Array) -> Array:
        """Return the sum over the steps of each chain, (chains,), of packed values (steps,)."""
        return np.bincount(self.chain, values, self.chains)


@dataclass(frozen=True, eq=False)
class ChainSums:
    """The sums over all paths of chains.

    Attributes
    ----------
    log_z : (chains,) log of the sum of the weights of all paths; 0 for a chain without a step.
    marginals : (steps, states) probability of each state, in packed order.
    pairs : (states, states) expected number of transitions from a state to a state, in all chains.
    """

    log_z: Array
    marginals: Array
    pairs: Array


def chain_sums(field: Array, transition: Array, packing: Packing) -> ChainSums:
    """Return the sums over all paths of chains.

    Parameters
    ----------
    field : (steps, states) log weights of the states, in packed order; finite ones where chains
        have several steps.
    transition : (states, states) finite log weights of the transitions, from row to column.
    packing : the order of the steps.

    Raises
    ------
    InternalError if the marginals of a step do not add to one.

    Examples
    --------
    >>> import numpy as np
    >>> chains = Packing.of(np.array([2, 1]))
    >>> found = chain_sums(np.zeros((3, 2)), np.log([[3.0, 1], [1, 3]]), chains)
    >>> np.exp(found.log_z).round(6), found.pairs.round(3)
    (array([8., 2.]), array([[0.375, 0.125],
           [0.125, 0.375]]))
    """
    top = field.max(axis=1, keepdims=True)
    scaled = field - top
    least = scaled.min(initial=0.0)
    if np.isneginf(least):
        # Impossible states of single steps are no matter of digits.
        least = scaled[scaled > -np.inf].min(initial=0.0)
    narrow = np.ptp(transition) <= MAX_LOG_RANGE and least >= -MAX_LOG_RANGE
    if narrow:
        found = _scaled_sums(scaled, transition, packing, top[:, 0])
    else:
        found = log_chain_sums(field, transition, packing)
    error = np.abs(found.marginals.sum(axis=1) - 1).max(initial=0.0)
    if not (error <= MARGINAL_ROUNDING and np.isfinite(found.log_z).all()):
        raise InternalError(f"the marginals of a step of a chain miss the sum 1 by {error:g}")
    return found


def _scaled_sums(scaled: Array, transition: Array, packing: Packing, top: Array) -> ChainSums:
    """Return the sums by scaled messages; `scaled` are fields minus their maxima `top`."""
    highest = transition.max()
    move, factor = np.exp(transition - highest), np.exp(scaled)
    forward, scale = np.full_like(factor, np.nan), np.full(len(factor), np.nan)
    start, steps = packing.start, packing.steps()
    for now, before in [(start, None), *steps]:
        message = factor[now] if before is None else (forward[before] @ move) * factor[now]
        scale[now] = message.sum(axis=1)
        np.divide(message, scale[now, None], out=forward[now])
    # The backward message is 1 at the last step of a chain.
    backward, pairs, back = np.ones_like(factor), np.zeros_like(move), move.T.copy()
    factor /= scale[:, None]
    for now, before in reversed(steps):
        ahead = factor[now] * backward[now]
        np.matmul(ahead, back, out=backward[before])
        pairs += forward[before].T @ ahead
    log_z = packing.summed(np.log(scale) + top)
    moves = np.bincount(packing.chain[start.stop :], minlength=packing.chains)
    backward *= forward
    return ChainSums(log_z + highest * moves, backward, pairs * move)


def log_chain_sums(field: Array, transition: Array, packing: Packing) -> ChainSums:
    """Return the same sums by logarithms of messages, which no weights are too large for.

    The parameters and the result are those of `chain_sums`. Each step takes an array (chains,
    states, states).
    """
    forward, backward = np.full_like(field, np.nan), np.zeros_like(field)
    start, steps = packing.start, packing.steps()
    forward[start] = field[start]
    for now, before in steps:
        paths = forward[before, :, None] + transition
        forward[now] = log_sum(paths, axis=1) + field[now]
    for now, before in reversed(steps):
        backward[before] = log_sum(transition + (field[now] + backward[now])[:, None, :], axis=2)
    whole = log_sum(forward + backward, axis=1)
    pairs = np.zeros_like(transition)
    for now, before in steps:
        ahead = (field[now] + backward[now] - whole[now, None])[:, None, :]
        pairs += np.exp(forward[before, :, None] + transition + ahead).sum(axis=0)
    log_z = np.zeros(packing.chains)
    log_z[packing.chain] = whole
    return ChainSums(log_z, np.exp(forward + backward - whole[:, None]), pairs)
