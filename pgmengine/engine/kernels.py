"""Kernels: transitions of one unit given all others; sweeps apply them layer by layer.

FlipState is the Metropolised Gibbs kernel for more than two values. For p_1 <= ... <= p_K, its
eigenvalues besides 1 are, for k = 1 .. K - 1,

    lambda_k = 1 - sum_{i < k} p_i / (1 - p_i) - (p_k + ... + p_K) / (1 - p_k),

with the eigenvector that is 0 for values before k, p_{k+1} + ... + p_K at k, and -p_k after it.
None of them is positive, and they decrease with k, so that lambda_{K-1} determines the spectral
gap. Let q = p_{K-1} be the second largest probability, t = q / (1 - q), and r the sum of the
smaller probabilities. Then

    1 - t <= 1 + lambda_{K-1} <= 1 - t + r t,

because p_i <= p_i / (1 - p_i) <= p_i / (1 - q). The gap therefore vanishes only if two values have
nearly all of the probability in nearly equal shares; for K = 2 it is 1 - t. FlipState draws from
the conditional if log t > -c. This rule depends on the probabilities and not on the current value,
so that it keeps detailed balance, and the gap is at least 1 - e^-c everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Protocol

import numpy as np

from pgmengine.base.checks import check_number
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array


class Kernel(Protocol):
    """A Markov transition of one unit given all others.

    A class that blends FlipState and Gibbs may define `flip_share`, the share of FlipState from 0
    to 1, and is then run by compiled sweeps; with `forests` as well, each of these is followed by
    the exact draw of a random forest. The `transition` of any other class is called.
    """

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the probabilities (..., K) of the next state.

        prob (..., K) are the conditional probabilities of the states given all other units, current
        (...,) the current states.
        """


def share_of(kernel: Kernel) -> float:
    """Return the share of FlipState that a kernel defines; PgmError unless it is in [0, 1]."""
    share: Any = getattr(kernel, "flip_share", None)
    known = isinstance(share, Real) and not isinstance(share, bool)
    if not known or not 0.0 <= float(share) <= 1.0:
        raise PgmError(
            f"the kernel {kernel!r}: flip_share must be a number from 0 to 1, the share "
            f"of FlipState beside Gibbs, not {share!r}; leave it out, and the reference engine "
            "(PlainChains) runs the transition"
        )
    return float(share)


def draws_forests(kernel: Kernel) -> bool:
    """Return whether compiled sweeps of single units draw a forest of units after each sweep."""
    own = vars(type(kernel))
    return "flip_share" in own and bool(own.get("forests", False))


@dataclass(frozen=True)
class Gibbs:
    """Draw each unit from its conditional distribution: x_i ~ p(x_i | all others).

    >>> import pgmengine as pgm
    >>> pgm.Gibbs().transition([0.3, 0.7], 0)
    array([0.3, 0.7])
    """

    # Compiled sweeps read this share of FlipState from the class of the kernel itself, so that a
    # subclass has to define its own.
    flip_share: ClassVar[float] = 0.0

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the conditional probabilities (..., K), whatever the current states (...,)."""
        return np.asarray(prob, dtype=np.float64)


# For two values the limit is so small that the kernel is the published one up to rounding. The
# compiled transitions are pgm_moves (two values) and pgm_draw (K values) in cython_ext/c/draws.h;
# chains.h has the same limits.
TIE, TIE_OF_MANY = 1e-5, 0.05


@dataclass(frozen=True)
class FlipState:
    """Flip a unit with two values with probability min(1, p(other) / p(current)).

    No other kernel with detailed balance leaves the current value more often. For K > 2 values this
    is the Metropolised Gibbs kernel (Liu 1996), which moves from x to y != x with probability
    p(y) min(1 / (1 - p(x)), 1 / (1 - p(y))). It changes to each other value at least as often as
    Gibbs sampling, but not as often as detailed balance allows. Units with infinitely many values
    (s = inf, Gaussian) draw from the conditional, because there is no other value to flip to.

    In a tie, a unit draws from the conditional as well, because two units that always flip would
    never become equal. A tie is a conditional whose second most probable value has log-odds above
    -1e-5 against all others together, or above -0.05 for K > 2. The spectral gap of a unit's
    transitions is therefore at least 1e-5, and at least 0.048 for K > 2.

    >>> import pgmengine as pgm
    >>> pgm.FlipState().transition([0.2, 0.8], 1)
    array([0.25, 0.75])
    >>> pgm.FlipState().transition([0.5, 0.5, 0.0], 1)
    array([0.5, 0.5, 0. ])
    """

    flip_share: ClassVar[float] = 1.0

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the probabilities of the next state.

        Parameters
        ----------
        prob : conditional probabilities, (..., K).
        current : current states, (...,).

        Returns
        -------
        probabilities of the next state, (..., K).

        >>> import pgmengine as pgm
        >>> pgm.FlipState().transition([0.25, 0.25, 0.5], 0)
        array([0.        , 0.33333333, 0.66666667])
        """
        prob = np.asarray(prob, dtype=np.float64)
        here = np.arange(prob.shape[-1]) == np.asarray(current)[..., None]
        others = prob @ (1 - np.eye(prob.shape[-1]))
        leaving = np.where(here, others, 0.0).sum(axis=-1, keepdims=True)
        move = np.where(here, 0.0, prob / np.where(here, 1.0, np.maximum(leaving, others)))
        move = np.where(here, np.maximum(1 - move.sum(axis=-1, keepdims=True), 0.0), move)
        return np.where(_tied(prob, others), prob, move)


def _tied(prob: Array, others: Array) -> Array:
    """Return whether each conditional (..., K) is a tie, (..., 1), given 1 - prob, (..., K)."""
    second = np.argsort(prob, axis=-1)[..., -2:-1]
    odds = np.exp(TIE if prob.shape[-1] == 2 else TIE_OF_MANY)
    rest, own = (np.take_along_axis(sums, second, -1) for sums in (others, prob))
    found: Array = rest < odds * own
    return found


@dataclass(frozen=True)
class Blend:
    """Move each unit by FlipState with probability alpha, else by Gibbs.

    >>> import pgmengine as pgm
    >>> pgm.Blend(0.5).transition([0.2, 0.8], 1)
    array([0.225, 0.775])
    """

    alpha: float

    def __post_init__(self) -> None:
        check_number(self, "alpha", most=1.0)

    @property
    def flip_share(self) -> float:
        """The share of FlipState, from which the compiled sweeps recognise this kernel."""
        return self.alpha

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the probabilities (..., K) of the next state.

        prob (..., K) are conditional probabilities, current (...,) the current states.
        """
        prob = np.asarray(prob, dtype=np.float64)
        return self.alpha * FlipState().transition(prob, current) + (1 - self.alpha) * prob


@dataclass(frozen=True)
class TreeGibbs:
    """Draw each unit from its conditional, and then a random forest of units exactly.

    Use it where units hold each other: where zeros of tables, or strong couplings, forbid a unit to
    change alone while its neighbours may change with it. A sweep of Gibbs sampling is followed by a
    draw of all units of a random forest together, given the other units (Hamze and de Freitas
    2004). A forest is a set of free units in which no neighbours form a cycle: any two neighbours
    are in it with a positive probability, and most units of a sparse graph are. Of a table of three
    and more units it has at most two, and draws these given the others. A sweep costs several times
    as much as one of Gibbs sampling.

    Units with infinitely many values anywhere in a model leave Gibbs sampling alone.

    References
    ----------
    Hamze and de Freitas 2004, "From fields to trees".

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> b = pgm.GraphBuilder()
    >>> x, y = b.variable("x", ["no", "yes"]), b.variable("y", ["no", "yes"])
    >>> b.table([x, y], np.diag([1.0, 3.0]))
    >>> method = pgm.MCMC(kernel=pgm.TreeGibbs())
    >>> pgm.infer(b.build(), method=method, rng=0).prob["x"].round(1)
    array([[0.2, 0.8]])
    """

    flip_share: ClassVar[float] = 0.0
    # As with flip_share, a subclass has to define its own.
    forests: ClassVar[bool] = True

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the conditional probabilities (..., K): the move of a single unit.

        >>> import pgmengine as pgm
        >>> pgm.TreeGibbs().transition([0.3, 0.7], 0)
        array([0.3, 0.7])
        """
        return np.asarray(prob, dtype=np.float64)
