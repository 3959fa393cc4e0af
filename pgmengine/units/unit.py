"""Unit: the contract of unit types, and everything that follows from a finite set of values.

Every unit is an exponential family with one natural parameter eta: p(x | eta) = h(x) exp(eta x -
A(eta)), where h is the base measure and A the log normalizer. In a model, eta is the sum of the
bias and of the weights times the values of the neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.numerics import log_sum, softmax
from pgmengine.base.types import Array

# How far a value in torch or JAX may be from one of the unit: thirds in single precision are 3e-8
# from thirds in double precision.
MAX_VALUE_ROUNDING = 1e-6


@lru_cache(maxsize=64)
def one_hot_rows(k: int) -> Array:
    """Return the k one-hot rows, made once because methods read them often."""
    rows = np.eye(k)
    rows.flags.writeable = False
    return rows


class Draw(IntEnum):
    """Ways in which compiled sweeps draw the value of a unit."""

    # From the table of its values.
    TABLE = 0
    # From a normal distribution, by its mean and `curvature`.
    NORMAL = 1
    # From an exponential density on [-1, 1].
    INTERVAL = 2
    # From the table {0, 1}; the value is 0 with probability e^-z.
    COMPLEMENT = 3


@dataclass(frozen=True)
class Unit:
    """Base class of unit types: p(x | eta) = h(x) exp(eta x - A(eta)).

    Derive from it to add a unit type: one file with a frozen dataclass, whose fields are the
    arguments of the type (numbers, text or tuples, so that model files can hold them). Every
    method, kernel and trainer then works with it.

    A type with finitely many values has to define one property, `support`. Two more properties
    are for types that differ from the defaults: `log_base`, the logarithm of the base measure (0),
    and `width`, the number of components of a value (1). All methods follow from these. Define a
    method as well where a closed form is faster or more precise.

    A type with infinitely many values has `support = None`. It has to define `log_normalizer`,
    `mean`, `variance`, `sample`, `mode`, `max_log_weight`, `log_h` and `contains`, and to set
    `bounded = False` unless its values are the interval [-1, 1].

    The log density in torch and JAX needs `log_h_in` of a type with infinitely many values, and
    `log_conditional_in` of a type with a link of its own.

    A type whose natural parameter as a child is not its directed input zeta (the sum of the
    bias and of the weights times the values of the parents) sets `canonical = False` and has to
    define `link` and `score`, and `log_sums` if there is a bound. Enumeration leaves such types to
    elimination.

    A type with infinitely many values of several components may define `values_of`, which makes a
    value of one number that users give, and `numbers_of`, which gives the number back.

    In all shapes below, a scalar unit (`width` 1) has eta and x of shape (...,); a unit of width w
    has (..., w).

    Attributes
    ----------
    bounded : whether values are bounded.
    observed_only : whether the units must be observed, since they have no distribution.
    child_only : whether the units must be children of arrows.
    nonnegative : whether incoming weights and biases must be at least 0.
    has_cells : whether users give a value as several numbers, `cells`.
    independent_causes : whether values are 0 and 1, and 0 has probability e^-zeta: the bias and
        every parent turn the unit on independently of each other.
    canonical : whether `link` is the identity.
    refits : whether `deviations` determine the inputs of children, by `refitted`.

    The number of heads in n throws of a coin, whose log odds are eta:

    >>> import math
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> @dataclass(frozen=True)
    ... class Heads(pgm.Unit):
    ...     n: int
    ...
    ...     @property
    ...     def support(self):
    ...         return np.arange(self.n + 1.0)
    ...
    ...     @property
    ...     def log_base(self):
    ...         return np.log([math.comb(self.n, k) for k in range(self.n + 1)])
    >>> float(Heads(4).mean(0.0))
    2.0
    >>> pgm.rbm(3, 2, visible=Heads(4), rng=0)
    Restricted Boltzmann machine: 2 layers, 1 coupling, 11 parameters
      v: 3 Heads(n=4)
      h: 2 Binary
      couplings: v-h
    """

    bounded: ClassVar[bool] = True
    observed_only: ClassVar[bool] = False
    child_only: ClassVar[bool] = False
    nonnegative: ClassVar[bool] = False
    has_cells: ClassVar[bool] = False
    independent_causes: ClassVar[bool] = False
    canonical: ClassVar[bool] = True
    refits: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """The number of components of a value; each has a row in a weight matrix."""
        return 1

    @property
    def cells(self) -> int:
        """The numbers of a value that users give along the last axis; 0 = one, or all components.

        Cells may be missing on their own, as NaN, and such values are `partial`.
        """
        return 0

    def over(self, axes: tuple[int, ...]) -> tuple[Unit, tuple[int, ...]]:
        """Return the type and the axes of the units of a layer that is declared with these axes."""
        return self, axes

    def partial(self, values: Array) -> Array:
        """Return where only some cells of values (..., width) are missing, (...,)."""
        return np.zeros(np.shape(values)[:-1], dtype=bool)

    def padded(self, weight: Array) -> Array:
        """Return a weight that is given for some of the inputs with 0 for the others."""
        return weight

    def completed(self, x: Array, zeta: Array, rng: np.random.Generator | None = None) -> Array:
        """Return values of children, whose missing cells have their means, or are drawn."""
        raise NotImplementedError(f"{type(self).__name__} has no cells")

    @property
    def support(self) -> Array | None:
        """The values, ascending (K,), or rows (K, width); None if there are infinitely many."""
        return None

    @property
    def least_inputs(self) -> tuple[float, ...]:
        """The smallest input of each component as a child; smaller ones count as this one."""
        return (-math.inf,) * self.width

    def input_scales(self, zeta: Array) -> Array:
        """Return squares of steps that change log p of a child about equally, (..., width)."""
        return np.ones(np.shape(zeta))

    @property
    def support_bytes(self) -> int:
        """The bytes that `support` takes, computed from the arguments before it is made."""
        return 0

    @property
    def log_base(self) -> Array | None:
        """The logarithm of the base measure of each value, (K,)."""
        support = self.support
        return None if support is None else np.zeros(len(support))

    @property
    def draw(self) -> Draw | None:
        """The way in which compiled sweeps draw a value; None if only reference sweeps can."""
        if self.support is None or not self.canonical:
            return None
        return Draw.TABLE if self.width == 1 or self.one_hot else None

    @property
    def one_hot(self) -> bool:
        """Whether values are one-hot, so that the mean holds the probabilities of the states."""
        return (
            self.width > 1
            and self.support is not None
            and np.array_equal(self.support, np.eye(self.width))
        )

    @property
    def curvature(self) -> float | None:
        """The constant c if A(eta) = c eta^2 / 2 exactly, else None."""
        return None

    @property
    def _values(self) -> Array:
        """The support, for the methods below, which need finitely many values."""
        if self.support is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no support: a unit type with infinitely many values "
                "must define this method"
            )
        return self.support

    @property
    def _log_base(self) -> Array:
        """The log base measure of the support as an array; 0 for each value if it is None."""
        return np.zeros(len(self._values)) if self.log_base is None else np.asarray(self.log_base)

    def log_weights(self, eta: Array) -> Array:
        """Return eta x + log h(x) of every value x, (..., K)."""
        values = self._values
        eta = np.asarray(eta, dtype=np.float64)
        dot: Array = eta[..., None] * values if self.width == 1 else eta @ values.T
        return dot + self._log_base

    def log_normalizer(self, eta: Array) -> Array:
        """Return A(eta) = log sum_x h(x) exp(eta x), (...,)."""
        return log_sum(self.log_weights(eta))

    def prob(self, eta: Array) -> Array:
        """Return p(x | eta) of every value x, (..., K)."""
        return softmax(self.log_weights(eta))

    def mean(self, eta: Array) -> Array:
        """Return the mean of x, which is A'(eta), in the shape of eta."""
        mean: Array = self.prob(eta) @ self._values
        return mean

    def natural(self, mean: Array) -> Array:
        """Return the eta at which A'(eta) = mean, in the shape of mean: closed form, or bisection.

        The mean must lie strictly between the smallest and the largest value. Units of several
        components must be one-hot.
        """
        if self.one_hot and self.log_base is not None:
            return np.asarray(np.log(mean) - self.log_base)
        if self.curvature is not None:
            return np.asarray(mean / self.curvature)
        if self.support is not None and self.log_base is not None and len(self.support) == 2:
            (low, high), (h_low, h_high) = self.support, self.log_base
            share: Array = (mean - low) / (high - low)
            return np.asarray((np.log(share / (1 - share)) - (h_high - h_low)) / (high - low))
        low, high = np.full(mean.shape, -1.0), np.full(mean.shape, 1.0)
        while (wide := (self.mean(low) > mean) | (self.mean(high) < mean)).any() and np.abs(
            high
        ).max() < 1e4:
            low, high = np.where(wide, 2 * low, low), np.where(wide, 2 * high, high)
        for _ in range(60):
            half = (low + high) / 2
            below = self.mean(half) < mean
            low, high = np.where(below, half, low), np.where(below, high, half)
        return np.asarray(half)

    def variance(self, eta: Array) -> Array:
        """Return A''(eta), the variance of x, or the variance of each component."""
        p, values = self.prob(eta), self._values
        mean: Array = p @ values
        if self.width > 1:
            each: Array = (p[..., None] * (values - mean[..., None, :]) ** 2).sum(axis=-2)
            return each
        found: Array = (p * (values - mean[..., None]) ** 2).sum(axis=-1)
        return found

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw one x from p(x | eta) for each eta."""
        drawn: Array = self._values[choose(self.prob(eta), rng)]
        return drawn

    def mode(self, eta: Array) -> Array:
        """Return the most probable value, and the first one if several are equally probable."""
        best: Array = self._values[self.log_weights(eta).argmax(axis=-1)]
        return best

    def max_log_weight(self, eta: Array) -> Array:
        """Return the maximum of eta x + log h(x) over x, (...,)."""
        top: Array = self.log_weights(eta).max(axis=-1)
        return top

    def log_h(self, x: Array) -> Array:
        """Return log h(x) of values in the support, (...,)."""
        x, log_base = np.asarray(x, dtype=np.float64), self._log_base
        if not np.any(log_base - log_base[0]):
            return np.full(x.shape if self.width == 1 else x.shape[:-1], log_base[0])
        found: Array = log_base[self.state_of(x)]
        return found

    def state_of(self, x: Array) -> Array:
        """Return the index in `support` of each value, or of the value nearest to it, (...,)."""
        x, values = np.asarray(x), self._values
        if self.width > 1:
            nearest: Array = np.abs(x[..., None, :] - values).max(axis=-1).argmin(axis=-1)
            return nearest
        if len(values) == 2:
            return np.asarray(x > (values[0] + values[1]) / 2).astype(np.int64)
        return np.searchsorted((values[1:] + values[:-1]) / 2, x)

    def contains(self, x: Array) -> Array:
        """Return whether each x is a value of the unit, (...,)."""
        x, values = np.asarray(x), self._values
        if self.width > 1:
            return np.asarray((x[..., None, :] == values).all(axis=-1).any(axis=-1))
        return np.asarray((x[..., None] == values).any(axis=-1))

    def values_of(self, x: Array) -> Array | None:
        """Return the values (..., width) of single numbers (...,) that users give.

        None = users give all components. It is asked where values of several components are
        infinitely many.
        """
        return None

    def numbers_of(self, values: Array) -> Array:
        """Return the single numbers of values, or the values if users give all components."""
        return values

    def link(self, zeta: Array) -> Array:
        """Return the natural parameter of a child with directed input zeta."""
        return np.asarray(zeta, dtype=np.float64)

    def log_partition(self, zeta: Array) -> Array:
        """Return A(link(zeta)), the log normalizer of a child, (...,)."""
        return self.log_normalizer(self.link(zeta))

    def mean_given(self, zeta: Array) -> Array:
        """Return the mean of a child with directed input zeta."""
        return self.mean(self.link(zeta))

    def log_sums(self, least: float) -> tuple[Array, Array] | None:
        """Return the parts of log p(x | zeta) that are not linear in zeta, as sums over values.

        Bounds of directed layers treat each part as A(zeta) = log sum_k h_k exp(y_k zeta).

        Parameters
        ----------
        least : the smallest directed input that a child of the model can have.

        Returns
        -------
        Values y (parts, K, width) and their log base measure (K,); None if there is no such sum.
        The values are not read if `curvature` is given, which determines A.
        """
        if self.curvature is not None:
            return np.zeros((1, 1, 1)), np.zeros(1)
        if self.support is None or not self.canonical:
            return None
        return self.support.reshape(1, len(self.support), self.width), self._log_base

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """Return log p(x | zeta) of a child, x link(zeta) + log h(x) - A(link(zeta)), (...,)."""
        eta = self.link(zeta)
        dot = np.asarray(x) * eta
        linear: Array = dot if self.width == 1 else dot.sum(axis=-1)
        return linear + self.log_h(x) - self.log_normalizer(eta)

    # ---- in arrays of any library; units that are not in this way refuse ----

    def nearest_in(self, lib: ArrayLibrary, x: Any) -> tuple[Any, Any]:
        """Return the states nearest to values, (...,), and how far the values are from them."""
        values = lib.constant(self._values, x)
        if self.width == 1:
            far = abs(x[..., None] - values)
        else:
            # The square of a distance, so that no array has K values of each unit.
            far = abs((x * x).sum(-1)[..., None] - 2.0 * (x @ values.T) + (values**2).sum(-1))
        return lib.xp.argmin(far, -1), lib.xp.amin(far, -1)

    def log_h_in(self, lib: ArrayLibrary, x: Any) -> Any:
        """Return `log_h` in arrays of a library; NaN for what is no value of the unit.

        A type with infinitely many values that are not `child_only` has to define it for torch and
        JAX.
        """
        state, far = self.nearest_in(lib, x)
        base = lib.constant(self._log_base, x)[state]
        return lib.xp.where(far <= MAX_VALUE_ROUNDING, base, lib.xp.nan)

    def log_normalizer_in(self, lib: ArrayLibrary, eta: Any) -> Any:
        """Return `log_normalizer` in arrays of a library."""
        if self.curvature is not None:
            return self.curvature / 2 * eta**2
        values = lib.constant(self._values, eta)
        dot = eta[..., None] * values if self.width == 1 else eta @ values.T
        return lib.log_sum(dot + lib.constant(self._log_base, eta))

    def log_conditional_in(self, lib: ArrayLibrary, x: Any, zeta: Any) -> Any:
        """Return `log_conditional` in arrays of a library; NaN for what is no value of the unit.

        Where users give numbers in place of components, x are the numbers. A type with a link of
        its own has to define it for torch and JAX.
        """
        if not self.canonical:
            raise NotImplementedError(f"{type(self).__name__} must define log_conditional_in")
        dot = x * zeta if self.width == 1 else (x * zeta).sum(-1)
        return dot + self.log_h_in(lib, x) - self.log_normalizer_in(lib, zeta)

    def misfit(self, x: Array) -> str:
        """Return why the unit cannot learn from data x (n,) or (n, width), or an empty string."""
        return ""

    def input_sizes(self, spread: Array) -> Array:
        """Return the changes of the input that move a mean by the standard deviation of data.

        `spread` (width,) has the standard deviation of each component of the data, 0 where there
        are none. Its place then takes the standard deviation of the unit.
        """
        own = float(np.mean(self.variance(np.zeros(self.width if self.width > 1 else ()))))
        wide = float(np.sqrt(np.square(spread).mean())) or math.sqrt(own)
        # A unit of one value has no mean that could move.
        return np.full(self.width, wide / own if own > 0 else 1.0)

    def largest_terms(self, x: Array, zeta: Array) -> Array:
        """Return about the size of the largest terms of log p(x | zeta), (...,).

        It holds for values of the size x and inputs of the size zeta at most, both at least 0.
        """
        dot = x * zeta
        products: Array = dot if self.width == 1 else dot.sum(axis=-1)
        return products + np.abs(self.log_partition(zeta))

    def score(self, x: Array, zeta: Array) -> Array:
        """Return the derivative of log p(x | zeta) with respect to zeta, in the shape of x."""
        if not self.canonical:
            raise NotImplementedError(
                f"{type(self).__name__} has a link of its own: it must define `score` as well"
            )
        slope: Array = np.asarray(x) - self.mean(zeta)
        return slope

    def deviations(self, x: Array, zeta: Array, q: Array) -> Array:
        """Return the sums of q, and of q times the deviations of values at inputs (n, K[, width]).

        They are sums (n, K, 1 + width) over values x (n, m[, width]) with weights q (n or 1, K, m).
        Deviations at the present inputs keep their digits wherever the values are.
        """
        raise NotImplementedError(f"{type(self).__name__} has no inputs that sums determine")

    def refitted(self, zeta: Array, sums: Array, prior: tuple[Array, Array], fixed: Array) -> Array:
        """Return the inputs (..., width) with the largest expected log density of children.

        Parameters
        ----------
        zeta : the inputs (..., width) to which the sums belong.
        sums : (..., 1 + width), as `deviations` returns them.
        prior : weight and variance (...,) of values that are added to those of a state.
        fixed : (..., width) bool, the inputs that stay.
        """
        raise NotImplementedError(f"{type(self).__name__} has no inputs that sums determine")

    def log_prior(self, zeta: Array, prior: tuple[Array, Array]) -> Array:
        """Return the log density (...,) of the prior of `refitted`, but for a constant."""
        return np.zeros(np.shape(prior[0]))

    def divergence(self, zeta: Array, other: Unit, theirs: Array) -> Array | None:
        """Return the divergence (...,) of p(x | zeta) from another unit's; None without a formula.

        It is asked for children without children that have infinitely many values.
        """
        return None

    def inputs_of(self, mean: Array, variance: Array) -> Array | None:
        """Return the inputs (..., width) at which children have a mean and variance of data (...,).

        None = learning begins at the inputs that are declared.
        """
        return None


def choose(prob: Array, rng: np.random.Generator) -> Array:
    """Draw an index in proportion to weights (..., K) by the inverse CDF, (...,)."""
    total = np.cumsum(prob, axis=-1)
    u = rng.random(total.shape[:-1]) * total[..., -1]
    index: Array = (u[..., None] >= total[..., :-1]).sum(axis=-1)
    return index
