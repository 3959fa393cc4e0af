"""Groups of columns with one joint normal distribution, N(m, C), given the state of a parent.

A group is one unit of d cells. Its inputs, and its statistics in the same order, are

    m_1 .. m_d,   log s_1 .. log s_d,   b_21, b_31, b_32, ..      and   x_i,   x_i^2,   x_i x_j,

where column i has the mean m_i + sum over j < i of b_ij (x_j - m_j) and the standard deviation s_i,
given the columns before it. With T = 1 - b the precision is T' S^-2 T, so that every row of inputs
is a distribution, inputs of 0 are N(0, 1), and each s_i has a smallest value of its own (Pourahmadi
1999). A missing cell of a group that is observed in part is NaN. Its density is the density of
the observed cells, which is a group of fewer columns. In the statistics of such a group the
missing cells have their moments given the observed ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pgmengine.base.array_library import ArrayLibrary
from pgmengine.base.checks import LARGEST, in_range, real, whole
from pgmengine.base.errors import PgmError, told
from pgmengine.base.types import Array
from pgmengine.units.unit import Unit

SQUARE_ROUNDING = 1e-9
MOST_LOG_SIGMA = 200.0
LOG_SCALE = math.log(2.0 * math.pi) / 2.0
# Deviations of a part of the columns are not bounded from below once more.
LEAST = 1 / math.sqrt(LARGEST)
# A variance given other columns that is this share of the whole one is rounding.
SINGULAR = 1e-14


@lru_cache(maxsize=64)
def _pairs(d: int) -> tuple[Array, Array]:
    """Return the columns i and j of the products x_i x_j: squares first, then i > j."""
    lower = np.tril_indices(d, -1)
    return tuple(np.concatenate([np.arange(d), part]) for part in lower)  # type: ignore


@dataclass(frozen=True)
class FullNormal(Unit):
    """A group of columns that `Normal(full=True)` declares, with a full covariance for each state.

    Use it to give rows of inputs by means and covariances, and to read those that were learned.
    Layers make their units themselves: an array of shape (..., d) of `Normal(full=True)` is an
    array (...) of groups of d columns. Each group is the child of one variable with states.
    Exact inference and EM take any gaps: missing cells are summed out, and their means given the
    observed cells are in `Result.mean`.

    Parameters
    ----------
    columns : the number d of columns.
    least_sigma : the smallest standard deviation of a column given the columns before it, in its
        unit.

    Raises
    ------
    PgmError
        If columns is no integer of at least 1, or least_sigma no number from 1e-15 to 1e15.

    Notes
    -----
    The M step of EM is closed. Its prior adds values with the deviations of the data and without
    correlations, as that of `Normal`. Parts of the means, or of the numbers of a covariance, of a
    state cannot be fixed alone. A group that is observed in part has marginals, draws and log p
    by exact inference alone, and no modes, pairs or do().

    References
    ----------
    Pourahmadi (1999), Joint mean-covariance models with applications to longitudinal data.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> unit = pgm.FullNormal(2)
    >>> rows = unit.inputs(np.zeros((2, 2)), [[[2.0, 1], [1, 1]], [[1, 0], [0, 1]]])
    >>> b = pgm.GraphBuilder()
    >>> z, x = b.variable("z"), b.layer("x", pgm.Normal(full=True), 2)
    >>> b.conditional(z, (), [1.0, 0.0])
    >>> b.cause(z, x, np.array([[0.0, 0.0], [5.0, 5.0]]), name="rows")
    >>> model = b.build().with_params({"rows": rows})
    >>> pgm.infer(model, {"x": [2.0, float("nan")]}).mean["x"][0, :2].round(6)
    array([2., 1.])
    """

    columns: int
    least_sigma: float = 1e-3
    bounded = False
    child_only = True
    canonical = False
    refits = True
    has_cells = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", whole("FullNormal: columns", self.columns))
        most = math.sqrt(LARGEST)
        if not 1 / most <= real(self.least_sigma) <= most:
            raise PgmError(
                f"FullNormal: least_sigma must be a number from {1 / most:g} to {most:g}, "
                f"not {told(self.least_sigma)}"
            )
        object.__setattr__(self, "least_sigma", float(self.least_sigma))

    @property
    def width(self) -> int:
        """The number of inputs, and of statistics: d means, d squares, d (d - 1) / 2 products."""
        return self.columns * (self.columns + 3) // 2

    @property
    def cells(self) -> int:
        """The numbers that users give."""
        return self.columns

    @property
    def least_inputs(self) -> tuple[float, ...]:
        """The smallest inputs: those of log s."""
        d = self.columns
        return (
            (-math.inf,) * d
            + (math.log(self.least_sigma),) * d
            + (-math.inf,) * (self.width - 2 * d)
        )

    def values_of(self, x: Array) -> Array:
        """Return the statistics (..., width) of columns (..., d)."""
        i, j = _pairs(self.columns)
        return np.concatenate([x, x[..., i] * x[..., j]], axis=-1)

    def numbers_of(self, values: Array) -> Array:
        """Return the columns (..., d)."""
        return np.asarray(values)[..., : self.columns]

    def partial(self, values: Array) -> Array:
        """Return where some cells of a group are missing, (...,)."""
        return np.asarray(np.isnan(self.numbers_of(values)).any(axis=-1))

    def contains(self, x: Array) -> Array:
        """Return whether all cells are finite or missing, and their products beside them."""
        x = np.asarray(x)
        whole = self.values_of(self.numbers_of(x))
        near = np.abs(x - whole) <= SQUARE_ROUNDING * np.abs(whole)
        good = (in_range(x) & near) | (np.isnan(x) & np.isnan(whole))
        return np.asarray(good.all(axis=-1))

    # ---- inputs, moments, natural parameters ----

    def _split(self, zeta: Array) -> tuple[Array, Array, Array]:
        """Return m (..., d), the variances s^2 (..., d), and T (..., d, d)."""
        d, zeta = self.columns, np.asarray(zeta, dtype=np.float64)
        log_s = np.clip(zeta[..., d : 2 * d], math.log(self.least_sigma), MOST_LOG_SIGMA)
        t = np.zeros((*zeta.shape[:-1], d, d)) + np.eye(d)
        i, j = np.tril_indices(d, -1)
        t[..., i, j] = -zeta[..., 2 * d :]
        return zeta[..., :d], np.exp(2.0 * log_s), t

    def moments(self, zeta: Array) -> tuple[Array, Array]:
        """Return the means (..., d) and the covariances (..., d, d) of inputs (..., width)."""
        m, variance, t = self._split(zeta)
        root = np.linalg.inv(t)
        return m, (root * variance[..., None, :]) @ root.swapaxes(-1, -2)

    def inputs(self, mean: Array, covariance: Array) -> Array:
        """Return the inputs (..., width) of means (..., d) and covariances (..., d, d).

        Where columns determine another one, its deviation is the smallest one.
        """
        d, c = self.columns, np.asarray(covariance, dtype=np.float64)
        lead = np.broadcast_shapes(np.shape(mean)[:-1], c.shape[:-2])
        u, variance = np.zeros((*lead, d, d)) + np.eye(d), np.zeros((*lead, d))
        for j in range(d):
            # C = U S^2 U' with U = T^-1, column by column.
            heavy = u[..., j, :j] * variance[..., :j]
            rest = c[..., j:, j] - (u[..., j:, :j] @ heavy[..., None])[..., 0]
            some = rest[..., 0] > SINGULAR * c[..., j, j]
            variance[..., j] = np.where(some, rest[..., 0], 0.0)
            below = rest[..., 1:] / np.where(some, rest[..., 0], 1.0)[..., None]
            u[..., j + 1 :, j] = np.where(some[..., None], below, 0.0)
        log_s = np.log(np.maximum(variance, self.least_sigma**2)) / 2.0
        rows, columns = np.tril_indices(d, -1)
        m = np.broadcast_to(mean, (*lead, d))
        return np.concatenate([m, log_s, -np.linalg.inv(u)[..., rows, columns]], axis=-1)

    def inputs_of(self, mean: Array, variance: Array) -> Array:
        """Return the inputs of independent columns with means and variances (..., d)."""
        return self.inputs(mean, variance[..., None] * np.eye(self.columns))

    def padded(self, weight: Array) -> Array:
        """Return rows of inputs (..., width) of weights (..., d) of means, or other weights."""
        if weight.shape[-1:] != (self.columns,):
            return weight
        return self.values_of(weight) * (np.arange(self.width) < self.columns)

    def link(self, zeta: Array) -> Array:
        """Return eta of the statistics, with the base measure N(0, 1) of each column."""
        m, variance, t = self._split(zeta)
        precision = t.swapaxes(-1, -2) @ (t / variance[..., None])
        i, j = _pairs(self.columns)
        second = np.where(i == j, (1.0 - precision[..., i, j]) / 2.0, -precision[..., i, j])
        return np.concatenate([(precision @ m[..., None])[..., 0], second], axis=-1)

    def _of(self, eta: Array) -> tuple[Array, Array]:
        """Return the means and covariances of natural parameters."""
        d, eta = self.columns, np.asarray(eta, dtype=np.float64)
        i, j = _pairs(d)
        precision = np.zeros((*eta.shape[:-1], d, d))
        precision[..., i, j] = np.where(i == j, 1.0 - 2.0 * eta[..., d:], -eta[..., d:])
        precision[..., j, i] = precision[..., i, j]
        covariance = np.linalg.inv(precision)
        return (covariance @ eta[..., :d, None])[..., 0], covariance

    def _statistics(self, mean: Array, covariance: Array) -> Array:
        """Return the expected statistics (..., width)."""
        i, j = _pairs(self.columns)
        out = self.values_of(mean)
        out[..., self.columns :] += covariance[..., i, j]
        return out

    def log_normalizer(self, eta: Array) -> Array:
        """Return A = (m' C^-1 m + log det C) / 2."""
        m, covariance = self._of(eta)
        size = np.sum(np.asarray(eta)[..., : self.columns] * m, axis=-1)
        return np.asarray(size + np.linalg.slogdet(covariance)[1]) / 2.0

    def mean(self, eta: Array) -> Array:
        """Return the expected statistics."""
        return self._statistics(*self._of(eta))

    def mean_given(self, zeta: Array) -> Array:
        """Return the expected statistics of a child."""
        return self._statistics(*self.moments(zeta))

    def variance(self, eta: Array) -> Array:
        """Return the variances of x_i and of x_i x_j."""
        m, c = self._of(eta)
        i, j = _pairs(self.columns)
        one, two, both = c[..., i, i], c[..., j, j], c[..., i, j]
        mi, mj = m[..., i], m[..., j]
        products = one * two + both**2 + mi**2 * two + mj**2 * one + 2.0 * mi * mj * both
        return np.concatenate([one[..., : self.columns], products], axis=-1)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw columns, and return their statistics."""
        m, covariance = self._of(eta)
        noise = rng.standard_normal(m.shape)[..., None]
        return self.values_of(m + (np.linalg.cholesky(covariance) @ noise)[..., 0])

    def mode(self, eta: Array) -> Array:
        """Return the statistics of the mean."""
        return self.values_of(self._of(eta)[0])

    def max_log_weight(self, eta: Array) -> Array:
        """Return eta x + log h(x) at the mean."""
        size = np.sum(np.asarray(eta)[..., : self.columns] * self._of(eta)[0], axis=-1)
        return np.asarray(size / 2.0 - self.columns * LOG_SCALE)

    def log_h(self, x: Array) -> Array:
        """Return the log density of N(0, 1) in each column; PgmError where cells are missing."""
        x = np.asarray(x)
        if self.partial(x).any():
            raise PgmError(
                "a group of Normal(full=True) columns has observed and missing cells, which only "
                "exact inference sums out: take method=pgm.Exact(), or observe all cells or none"
            )
        squares = np.square(self.numbers_of(x)).sum(axis=-1)
        return np.asarray(-squares / 2.0 - self.columns * LOG_SCALE)

    # ---- densities of rows with gaps ----

    def log_conditional(self, x: Array, zeta: Array) -> Array:
        """Return the log density of the observed cells."""
        x, zeta = np.asarray(x), np.asarray(zeta)
        if not np.isnan(x[..., : self.columns]).any():
            return np.asarray(self._log_density(x, zeta))
        some, back = _aligned(x, zeta)
        out = np.full((*some[0].shape[:2], some[1].shape[1]), np.nan)
        for seen, at, own, which in self._patterns(*some):
            m, covariance = self.moments(own)
            part = FullNormal(len(seen), LEAST)
            inputs = part.inputs(m[..., seen], covariance[..., seen[:, None], seen])
            out[at] = part._log_density(some[0][at][:, None, seen], inputs[which])
        return back(out)

    def log_conditional_in(self, lib: ArrayLibrary, x: Any, zeta: Any) -> Any:
        """Return the log density of numbers x (..., d), all of them observed."""
        return self._log_density(x, zeta, lib.xp)

    def _log_density(self, x: Any, zeta: Any, xp: Any = np) -> Any:
        """Return the log density of columns x (..., d), in arrays of the library `xp`."""
        d = self.columns
        log_s = xp.clip(zeta[..., d : 2 * d], math.log(self.least_sigma), MOST_LOG_SIGMA)
        logs = -log_s.sum(-1) - d * LOG_SCALE
        far, number = list[Any](), 2 * d
        for i in range(d):
            far.append(x[..., i] - zeta[..., i])
            rest = far[i] + 0.0 if i else far[i]
            for j in range(i):
                rest -= zeta[..., number] * far[j]
                number += 1
            logs = logs - xp.square(rest) * (0.5 * xp.exp(-2.0 * log_s[..., i]))
        return logs

    def _patterns(
        self, x: Array, zeta: Array
    ) -> Iterator[tuple[Array, tuple[Array, Array], Array, Array]]:
        """Yield the observed columns of each pattern of x (c, n, width), and its places in (c, n).

        With them are inputs (c', k, width) and the number of those of each place, or 0 of all.
        """
        gaps = np.isnan(self.numbers_of(x)).reshape(-1, self.columns)
        code = np.zeros(len(gaps), dtype=np.int64)
        patterns = gaps[:1]
        if gaps.any():
            # Columns are added one by one, so that any number of them fits into the code.
            for column in gaps.T:
                _, code = np.unique(2 * code + column, return_inverse=True)
            _, first = np.unique(code, return_index=True)
            patterns = gaps[first]
        for number, missing in enumerate(patterns):
            at = np.nonzero(code.reshape(x.shape[:2]) == number)
            groups, which = np.unique(at[0], return_inverse=True)
            only = np.zeros(1, dtype=np.int64) if len(groups) == 1 else which
            yield np.flatnonzero(~missing), (at[0], at[1]), zeta[groups], only

    def _regression(self, zeta: Array, seen: Array) -> tuple[Array, Array, Array]:
        """Return the missing columns u, and B and C of N(m_u + B (x_o - m_o), C) at inputs."""
        rest = np.setdiff1d(np.arange(self.columns), seen)
        _, c = self.moments(zeta)
        across = c[..., rest[:, None], seen]
        if len(seen):
            solved = np.linalg.solve(c[..., seen[:, None], seen], across.swapaxes(-1, -2))
            matrix = solved.swapaxes(-1, -2)
        else:
            matrix = across
        return rest, matrix, c[..., rest[:, None], rest] - matrix @ across.swapaxes(-1, -2)

    def completed(self, x: Array, zeta: Array, rng: np.random.Generator | None = None) -> Array:
        """Return statistics (..., width) with missing cells at their moments given the others.

        With random numbers, missing cells are drawn.
        """
        some, back = _aligned(np.asarray(x), np.asarray(zeta))
        out = np.full((*some[0].shape[:2], some[1].shape[1], self.width), np.nan)
        i, j = _pairs(self.columns)
        for seen, at, own, which in self._patterns(*some):
            rest, matrix, left = self._regression(own, seen)
            cells = np.array(
                np.broadcast_to(
                    some[0][at][:, None, : self.columns], (len(at[0]), own.shape[1], self.columns)
                )
            )
            m = own[which][..., : self.columns]
            far = (cells - m)[..., seen, None]
            cells[..., rest] = m[..., rest] + (matrix[which] @ far)[..., 0]
            covariance = np.zeros((*own.shape[:2], self.columns, self.columns))
            if rng is None:
                covariance[..., rest[:, None], rest] = left
            elif len(rest):
                noise = rng.standard_normal((*cells.shape[:2], len(rest), 1))
                cells[..., rest] += (np.linalg.cholesky(left)[which] @ noise)[..., 0]
            whole = self.values_of(cells)
            whole[..., self.columns :] += covariance[which][..., i, j]
            out[at] = whole
        return back(out)

    def score(self, x: Array, zeta: Array) -> Array:
        """Return the derivatives in m, log s and b, with missing cells at their moments."""
        x, zeta = np.broadcast_arrays(np.asarray(x), np.asarray(zeta))
        if self.partial(x).any():
            x = self.completed(x, zeta)
        d = self.columns
        i, j = _pairs(d)
        m, variance, t = self._split(zeta)
        far = x[..., :d] - m
        second = far[..., i] * far[..., j] + (x[..., d:] - x[..., i] * x[..., j])
        moment = np.empty((*far.shape, d))
        moment[..., i, j] = moment[..., j, i] = second
        rest = t @ moment
        mean = (t.swapaxes(-1, -2) @ ((t @ far[..., None])[..., 0] / variance)[..., None])[..., 0]
        own = np.einsum("...ij,...ij->...i", rest, t) / variance - 1.0
        counts = zeta[..., d : 2 * d] >= math.log(self.least_sigma)
        below = np.tril_indices(d, -1)
        slopes = (rest / variance[..., None])[..., below[0], below[1]]
        return np.concatenate([mean, np.where(counts, own, 0.0), slopes], axis=-1)

    # ---- learning ----

    def deviations(self, x: Array, zeta: Array, q: Array) -> Array:
        """Return the sums of q, of q times x_i - m_i, and of q times their products."""
        out = np.zeros((*zeta.shape[:2], 1 + self.width))
        q = np.broadcast_to(q, (len(x), *q.shape[1:]))
        i, j = _pairs(self.columns)
        for child, (values, inputs, heavy) in enumerate(zip(x, zeta, q, strict=True)):
            for seen, at, _, _ in self._patterns(values[None], inputs[None]):
                whole = len(at[1]) == len(values)
                cells = values[:, seen].T if whole else values[at[1]][:, seen].T
                rest, matrix, left = self._regression(inputs, seen)
                for k, own in enumerate(heavy if whole else heavy[:, at[1]]):
                    far = np.empty((self.columns, cells.shape[1]))
                    far[seen] = cells - inputs[k, seen, None]
                    far[rest] = matrix[k] @ far[seen]
                    weighed = far * own
                    second, count = weighed @ far.T, own.sum()
                    second[rest[:, None], rest] += count * left[k]
                    sums = [[count], weighed.sum(axis=1), second[i, j]]
                    out[child, k] += np.concatenate(sums)
        return out

    def refitted(self, zeta: Array, sums: Array, prior: tuple[Array, Array], fixed: Array) -> Array:
        """Return the mean and the covariance of the values and of the prior, as for `Normal`.

        PgmError where a part of the means, or of the numbers of a covariance, is fixed.
        """
        d, (weight, variance) = self.columns, prior
        i, j = _pairs(d)
        for part, what in ((fixed[..., :d], "means"), (fixed[..., d:], "covariance numbers")):
            if (part.any(axis=-1) != part.all(axis=-1)).any():
                raise PgmError(
                    f"EM: some {what} of a state of Normal(full=True) columns are fixed, and "
                    f"others are not; fix all {what} of the state or none"
                )
        count = sums[..., 0]
        mean = sums[..., 1 : 1 + d] / np.where(count > 0, count, 1.0)[..., None]
        shift = np.where(fixed[..., :d], 0.0, mean)
        square = np.empty((*shift.shape, d))
        own = shift[..., i] * mean[..., j] + mean[..., i] * shift[..., j]
        own = sums[..., 1 + d :] - count[..., None] * (own - shift[..., i] * shift[..., j])
        square[..., i, j] = square[..., j, i] = own
        square += (weight[..., None] * variance)[..., None] * np.eye(d)
        whole = count + weight
        covariance = square / np.where(whole > 0, whole, 1.0)[..., None, None]
        new = self.inputs(zeta[..., :d] + shift, covariance)
        stays = fixed[..., d:] | (whole <= 0)[..., None]
        new[..., d:] = np.where(stays, zeta[..., d:], new[..., d:])
        return new

    def log_prior(self, zeta: Array, prior: tuple[Array, Array]) -> Array:
        """Return -w (log det C + trace of C^-1 V) / 2 with the weight w and the variances V."""
        _, variance, t = self._split(zeta)
        trace = (np.square(t) * prior[1][..., None, :] / variance[..., None]).sum(axis=(-1, -2))
        return np.asarray(-prior[0] * (np.log(variance).sum(axis=-1) + trace) / 2.0)

    def input_scales(self, zeta: Array) -> Array:
        """Return s^2 for m, 1 for log s, and s_i^2 / s_j^2 for b_ij."""
        _, variance, _ = self._split(zeta)
        i, j = np.tril_indices(self.columns, -1)
        ratio = variance[..., i] / variance[..., j]
        return np.concatenate([variance, np.ones(variance.shape), ratio], axis=-1)

    def input_sizes(self, spread: Array) -> Array:
        """Return the standard deviations for m, a third for log s, and ratios of them for b."""
        d = self.columns
        wide = np.where(spread[:d] > 0, spread[:d], 1.0)
        i, j = np.tril_indices(d, -1)
        return np.concatenate([wide, np.full(d, 1.0 / 3.0), wide[i] / wide[j] / 3.0])

    def misfit(self, x: Array) -> str:
        """Return that mini-batches do not learn covariances."""
        return (
            "columns with full covariances are not learned by mini-batches: take "
            "optimizer=pgm.EM() or pgm.LBFGS()"
        )

    def largest_terms(self, x: Array, zeta: Array) -> Array:
        """Return about the size of the terms that matter, as for `Normal`."""
        d = self.columns
        own = np.square(x[..., :d] + zeta[..., :d]) / 2.0 + zeta[..., d : 2 * d] + LOG_SCALE
        return np.asarray(own.sum(axis=-1))


def _aligned(x: Array, zeta: Array) -> tuple[tuple[Array, Array], Callable[[Array], Array]]:
    """Return x as (c, n, width) and zeta as (c, k, width), and the way back from (c, n, k, ...).

    The axes c are of both, n of x alone, and k of zeta alone. Axes that arrays only repeat have
    the length 1.
    """
    lead = np.broadcast_shapes(x.shape[:-1], zeta.shape[:-1])
    own = [_compact(a.reshape((1,) * (len(lead) + 1 - a.ndim) + a.shape)) for a in (x, zeta)]
    sizes = [a.shape[:-1] for a in own]
    both = [a for a, (n, k) in enumerate(zip(*sizes, strict=True)) if n > 1 and k > 1]
    theirs = [a for a, (n, k) in enumerate(zip(*sizes, strict=True)) if n == 1 and k > 1]
    mine = [a for a in range(len(lead)) if a not in both and a not in theirs]
    order = [*both, *mine, *theirs]
    count = math.prod(sizes[0][a] for a in both)
    flat = tuple(a.transpose([*order, a.ndim - 1]).reshape(count, -1, a.shape[-1]) for a in own)

    def back(found: Array) -> Array:
        shape = [max(n, k) for n, k in zip(*sizes, strict=True)]
        rest = found.shape[3:]
        whole = found.reshape([shape[a] for a in order] + list(rest))
        last = range(len(order), len(order) + len(rest))
        whole = whole.transpose([*np.argsort(order).tolist(), *last])
        return np.array(np.broadcast_to(whole, (*lead, *rest)))

    return (flat[0], flat[1]), back


def _compact(a: Array) -> Array:
    """Return an array whose repeated axes have the length 1, but for the last one."""
    steps = zip(a.strides[:-1], a.shape[:-1], strict=True)
    return a[tuple([slice(0, 1) if n > 1 and not step else slice(None) for step, n in steps])]
