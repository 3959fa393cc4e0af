"""Sums over all paths of many chains at once, by forward and backward messages, and best paths.

A chain of n steps has one state y_t at each step. All chains share one matrix of transitions, and
each step has log weights of its own, its field. The weight of a path is

    exp( sum_{t < n} field[t, y_t]  +  sum_{0 < t < n} transition[y_{t-1}, y_t] ).

`chain_sums` returns log Z of each chain, the marginals of each step, and the marginals of
neighbouring pairs, summed over all steps of all chains. These are the expectations that gradients
of a conditional random field need. `best_paths` returns the path of the largest weight. A junction
tree answers the same questions one length at a time; these routines take all lengths together
(`docs/decisions/infer-exact.md` has the measurement).

Steps are numbered chain by chain. Messages are passed by `cython_ext/c/paths.h`, scaled to the sum
1 at each step (Rabiner 1989). No number under- or overflows while the log weights of each step, and
those of the transitions, differ by at most MAX_LOG_RANGE. States and transitions may be impossible,
with the log weight -inf. The messages of all paths that go on may then underflow at a step, which
the sums of marginals show. Such chains and wider weights go the plain way, `log_chain_sums`, the
reference of the tests, which keeps the logarithms of messages. It sorts chains by length, so that
the messages of all chains at a step are one array (`Packing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgmengine import _kernels
from pgmengine.base.errors import InternalError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array

# The most that log weights of one step, or of transitions, may differ, in nats. With transitions
# in [e^-R, 1], factors of a step are in [e^-R, 1], and backward messages in [e^-R, e^R]; their
# products with an inverse scale stay within e^(3 R) < 1e308 for R = 230.
MAX_LOG_RANGE = 230.0
# The same for transitions beside which the weights of a step are raised to this range, and the
# smallest sum of marginals or of pairs that such steps do not change.
MAX_LOG_MOVES, LEAST_COUNTED = 50.0, 1e-20
# The largest error of the sum of marginals of a step, which is 1, and the largest one with which
# scaled messages are taken. Rounding in 100,000 steps is below 1e-10.
MARGINAL_ROUNDING, SCALED_ROUNDING = 1e-6, 1e-9


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


@dataclass(frozen=True, eq=False)
class ChainSums:
    """The sums over all paths of chains.

    Attributes
    ----------
    log_z : (chains,) log of the sum of the weights of all paths; 0 for a chain without a step, and
        -inf for one without a possible path, whose marginals are 0.
    marginals : (steps, states) probability of each state.
    pairs : (states, states) expected number of transitions from a state to a state, in all chains,
        each times its weight.
    """

    log_z: Array
    marginals: Array
    pairs: Array


def chain_sums(
    field: Array, transition: Array, lengths: Array, weights: Array | None = None
) -> ChainSums:
    """Return the sums over all paths of chains.

    Parameters
    ----------
    field : (steps, states) log weights of the states, chain by chain; -inf for impossible ones.
    transition : (states, states) log weights of the transitions, from row to column, or -inf.
    lengths : (chains,) the number of steps of each chain, which may be 0.
    weights : (chains,) how often each chain counts in the pairs; None: once.

    Raises
    ------
    InternalError if the marginals of a step do not add to one.

    Examples
    --------
    >>> import numpy as np
    >>> found = chain_sums(np.zeros((3, 2)), np.log([[3.0, 1], [1, 3]]), np.array([2, 1]))
    >>> np.exp(found.log_z).round(6), found.pairs.round(3)
    (array([8., 2.]), array([[0.375, 0.125],
           [0.125, 0.375]]))
    """
    weights = np.ones(len(lengths)) if weights is None else weights
    if _compiled(field):
        narrow = _narrow(field, transition)
        near = field if narrow else _raised(field, transition)
        if near is not None:
            found = _scaled_sums(near, transition, lengths, weights)
            if _error(found, lengths) <= SCALED_ROUNDING and (narrow or _is_counted(found)):
                return found
    found = log_chain_sums(field, transition, lengths, weights)
    error = _error(found, lengths)
    if not error <= MARGINAL_ROUNDING:
        raise InternalError(f"the marginals of a step of a chain miss the sum 1 by {error:g}")
    return found


def _error(found: ChainSums, lengths: Array) -> float:
    """Return the largest error of the sum of marginals of a step; NaN where one has no number."""
    sums = found.marginals @ np.ones(found.marginals.shape[1])
    if not (possible := found.log_z > -np.inf).all():
        sums += np.repeat(np.where(possible, 0.0, 1.0), lengths)
    known = not np.isnan(found.log_z).any() and found.log_z.max(initial=0.0) < np.inf
    return float(np.abs(sums - 1).max(initial=0.0)) if known else np.nan


def best_paths(field: Array, transition: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the states of the best path of each chain, (steps,), and its log weight, (chains,).

    The arguments are those of `chain_sums`. Of paths with equal weights it is any one.

    Raises
    ------
    InternalError if the log weight of a best path is no finite number.

    Examples
    --------
    >>> import numpy as np
    >>> field = np.log([[1.0, 2], [1, 1], [3, 1]])
    >>> best_paths(field, np.log([[5.0, 1], [1, 5]]), np.array([3]))[0]
    array([0, 0, 0], dtype=int32)
    """
    path, log_z = np.full(len(field), -1, dtype=np.int32), np.zeros(len(lengths))
    if len(field) and _compiled(field):
        given = _doubles(field), _doubles(transition)
        _kernels.best_paths(_first(lengths), given[0], given[1], log_z, path)
    elif len(field):
        log_best_paths(field, transition, lengths, log_z, path)
    if not np.isfinite(log_z).all() or path.min(initial=0) < 0:
        raise InternalError("the log weight of the best path of a chain is no finite number")
    return path, log_z


def _compiled(field: Array) -> bool:
    """Return whether the compiled routines take chains of so many states."""
    return bool(field.shape[1] <= _kernels.MOST_STATES_OF_A_STEP)


def _narrow(field: Array, transition: Array) -> bool:
    """Return whether no scaled message under- or overflows, as far as weights say."""
    low, high = field.min(initial=0.0), field.max(initial=0.0)
    if low > -np.inf and max(high - low, np.ptp(transition)) <= MAX_LOG_RANGE:
        return True
    return max(_range(field), _range(transition.reshape(1, -1))) <= MAX_LOG_RANGE


def _raised(field: Array, transition: Array) -> Array | None:
    """Return the field with log weights of at least -MAX_LOG_RANGE below the largest of their step.

    None if transitions are impossible or differ by more than MAX_LOG_MOVES. A state that is raised
    has the posterior probability e^(2 MAX_LOG_MOVES - MAX_LOG_RANGE) = 1e-56 at most, before and
    after.
    """
    if not np.ptp(transition) <= MAX_LOG_MOVES:
        return None
    top = field.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        return None
    return np.where(np.isneginf(field), field, np.maximum(field, top - MAX_LOG_RANGE))


def _is_counted(found: ChainSums) -> bool:
    """Return whether all sums of marginals and pairs are too large for raised states to matter."""
    states = found.marginals.sum(axis=0)
    return bool(min(states.min(initial=1.0), found.pairs.min(initial=1.0)) >= LEAST_COUNTED)


def _range(logs: Array) -> float:
    """Return the largest difference of the finite log weights of a row; inf if a row has none."""
    top = logs.max(axis=1)
    if not np.isfinite(top).all():
        return np.inf
    least = np.where(np.isneginf(logs), top[:, None], logs).min(axis=1)
    return float((top - least).max(initial=0.0))


def _first(lengths: Array) -> Array:
    """Return the first step of each chain, and the end of all, (chains + 1,)."""
    return np.append(0, np.cumsum(lengths, dtype=np.int64))


def _doubles(array: Array) -> Array:
    """Return an array in the layout that compiled code takes."""
    return np.ascontiguousarray(array, dtype=np.float64)


def _scaled_sums(field: Array, transition: Array, lengths: Array, weights: Array) -> ChainSums:
    """Return the sums by scaled messages."""
    log_z, marginals = np.zeros(len(lengths)), np.full(field.shape, np.nan)
    pairs = np.full(transition.shape, np.nan) if len(field) else np.zeros(transition.shape)
    if len(field):
        given = _doubles(field), _doubles(transition), _doubles(weights)
        _kernels.sum_paths(_first(lengths), given[0], given[1], given[2], log_z, marginals, pairs)
    return ChainSums(log_z, marginals, pairs)


def log_chain_sums(field: Array, transition: Array, lengths: Array, weights: Array) -> ChainSums:
    """Return the same sums by logarithms of messages, which no weights are too large for.

    The parameters and the result are those of `chain_sums`. Each step takes an array (chains,
    states, states).
    """
    packing = Packing.of(lengths)
    field = field[packing.source]
    forward, backward = np.full_like(field, np.nan), np.zeros_like(field)
    start, steps = packing.start, packing.steps()
    forward[start] = field[start]
    for now, before in steps:
        paths = forward[before, :, None] + transition
        forward[now] = log_sum(paths, axis=1) + field[now]
    for now, before in reversed(steps):
        backward[before] = log_sum(transition + (field[now] + backward[now])[:, None, :], axis=2)
    whole = log_sum(forward + backward, axis=1)
    # Impossible chains have no pairs, and the marginals 0.
    safe = np.where(np.isneginf(whole), 0.0, whole)[:, None]
    pairs = np.zeros_like(transition)
    for now, before in steps:
        ahead = (field[now] + backward[now] - safe[now])[:, None, :]
        each = np.exp(forward[before, :, None] + transition + ahead)
        pairs += np.tensordot(weights[packing.chain[now]], each, axes=1)
    log_z, marginals = np.zeros(len(lengths)), np.full_like(field, np.nan)
    log_z[packing.chain] = whole
    marginals[packing.source] = np.exp(forward + backward - safe)
    return ChainSums(log_z, marginals, pairs)


def log_best_paths(
    field: Array, transition: Array, lengths: Array, log_z: Array, path: Array
) -> None:
    """Write the best paths of chains and their log weights, one step of all chains at a time."""
    packing = Packing.of(lengths)
    best, came = field[packing.source], np.zeros(field.shape, dtype=np.int32)
    steps = packing.steps()
    for now, before in steps:
        paths = best[before, :, None] + transition
        came[now] = paths.argmax(axis=1)
        best[now] += paths.max(axis=1)
    log_z[packing.chain] = best.max(axis=1)
    found = best.argmax(axis=1)
    for now, before in reversed(steps):
        found[before] = came[np.arange(now.start, now.stop), found[now]]
    path[packing.source] = found
