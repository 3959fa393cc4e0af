"""The common part of the estimators for scikit-learn: data, scaling, and learning an RBM.

scikit-learn reads the settings of an estimator from the signature of its constructor, and expects
each as an attribute of the same name. Dataclasses have both.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from pgmengine.apps.learners.classifier import labels_of
from pgmengine.base.checks import check_whole
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.declare.families import rbm
from pgmengine.declare.model import Model
from pgmengine.learn.fit import fit, pass_on
from pgmengine.learn.loop import unlogged
from pgmengine.learn.negative import PCD
from pgmengine.learn.starting.base_rate_start import base_rate_start
from pgmengine.learn.steps.optimizers import SGD, Adam
from pgmengine.learn.steps.schedules import linear_decay
from pgmengine.model.containers import array_of, is_frame, with_nan
from pgmengine.units import Binary, Gaussian, Unit

with needed_by("pgmengine.sklearn"):
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import validate_data

if TYPE_CHECKING:
    import pandas as pd

    from pgmengine.learn.contracts import Negative, Optimizer

# Data (rows, features), and scikit-learn's argument random_state.
Features: TypeAlias = "ArrayLike | pd.DataFrame"
RandomState: TypeAlias = int | np.random.RandomState | None

# By default, as many passes over the data as make this number of updates, and at least MIN_PASSES.
# Of nine small cases, five are better than with the 20 or 50 passes of before, and three are level;
# the features of breast cancer lose 0.01 of accuracy (benchmarks/passes.py).
MIN_UPDATES, MIN_PASSES = 4000, 20

# The smallest scale of a column of inputs, as a share of the range of the column.
MIN_SCALE_SHARE = 0.25


# What to do with names, in data without and with missing values.
ENCODE = "encode names as numbers first, for example by sklearn.preprocessing.OneHotEncoder"
ENCODE_GAPS = (
    "encode columns of two names by sklearn.preprocessing.OrdinalEncoder, with NaN in empty cells "
    "(OneHotEncoder would make an empty cell a name of its own, so that no gap is left to fill); "
    "for columns of more names take a network, pgm.fit(network, rows) and pgm.infer(fitted, rows)"
)


@dataclass(frozen=True)
class Scaling:
    """Visible units for columns of data, and their values (x - shift) / scale."""

    unit: Unit
    shift: Array
    scale: Array

    @classmethod
    def of(cls, x: Array, noise: float = 1.0) -> Scaling:
        """Return Binary units for values 0 and 1, else Gaussian units; NaN is ignored.

        Gaussian units have this share of the standard deviation of their column as noise.
        """
        seen = x[~np.isnan(x)]
        if np.isin(seen, (0.0, 1.0)).all():
            return cls(Binary(), np.zeros(x.shape[1]), np.ones(x.shape[1]))
        plain = cls.standard(x)
        return replace(plain, scale=noise * plain.scale)

    @classmethod
    def standard(cls, x: Array) -> Scaling:
        """Return Gaussian units, with a scaling of columns to variance 1; NaN is ignored."""
        filled = np.where(np.isnan(x).all(axis=0), 0.0, x)
        shift, scale = np.nanmean(filled, axis=0), np.nanstd(filled, axis=0)
        return cls(Gaussian(1.0), shift, np.where(scale > 1e-12 * (1 + np.abs(shift)), scale, 1.0))

    @classmethod
    def limited(cls, x: Array) -> Scaling:
        """Return the standard scaling, with each scale at least a share of the range of the column.

        Otherwise the rare values of a nearly constant column would be scaled far away from all
        others.
        """
        plain = cls.standard(x)
        filled = np.where(np.isnan(x).all(axis=0), 0.0, x)
        wide = MIN_SCALE_SHARE * (np.nanmax(filled, axis=0) - np.nanmin(filled, axis=0))
        return replace(plain, scale=np.maximum(plain.scale, wide))

    def values(self, x: Array) -> Array:
        """Return data as values of the units; raise PgmError if Binary units cannot have them."""
        if not isinstance(self.unit, Binary):
            return (x - self.shift) / self.scale
        for row, column in np.argwhere((x != 0) & (x != 1) & ~np.isnan(x))[:1]:
            raise PgmError(
                f"row {row}, column {column}: {x[row, column]:g} is not 0 or 1, expected Binary "
                "values as in the data of the first fit"
            )
        return x

    def data(self, v: Array) -> Array:
        """Return values of the units on the scale of the data."""
        return v * self.scale + self.shift


@dataclass(eq=False, repr=False)
class Graphical(BaseEstimator):
    """Base of estimators with an RBM whose visible units suit the data.

    `noise` is the standard deviation of real columns given the hidden units, as a share of their
    whole standard deviation.
    """

    noise: ClassVar[float] = 1.0

    n_components: int = 16
    _: KW_ONLY
    hidden: Unit | None = None
    negative: Negative | None = None
    optimizer: Optimizer | None = None
    batch_size: int = 20
    n_iter: int | None = None
    random_state: RandomState = None
    verbose: int = 0

    def check_settings(self) -> None:
        """Raise PgmError unless the settings of learning are numbers from 1 up."""
        check_whole(self, "n_components", "batch_size")
        if self.n_iter is not None:
            check_whole(self, "n_iter")

    def passes(self, rows: int) -> int:
        """Return the number of passes over this number of rows."""
        if self.n_iter is not None:
            return self.n_iter
        return max(MIN_PASSES, -(-MIN_UPDATES // -(-rows // self.batch_size)))

    def learn(self, x: Array, rng: int, epochs: int | None = None) -> None:
        """Learn from the present model, if there is one: all passes, with a rate that falls to 0.

        With `epochs`, it makes this number of passes at a constant rate.
        """
        self.check_settings()
        self.n_iter_ = self.passes(len(x)) if epochs is None else epochs
        updates = self.n_iter_ * -(-len(x) // self.batch_size)
        if not hasattr(self, "model_"):
            self.scaling_ = Scaling.of(x, self.noise)
            self.model_ = base_rate_start(self.empty(rng), {"v": self.scaling_.values(x)})
            self.state_ = None
        done = self.state_["update"] if self.state_ else 0
        with unlogged():
            found = fit(
                self.model_,
                {"v": self.scaling_.values(x)},
                rng=rng,
                state=self.state_,
                updates=done + updates,
                **self.settings(updates if epochs is None else None),
            )
        self.model_, self.state_, self.findings_ = found.model, found.state, found.findings
        pass_on(found)

    def settings(self, updates: int | None) -> dict[str, Any]:
        """Return the settings of pgm.fit; with `updates` the rate falls to 0 over these."""
        return {
            "negative": self.negative or PCD(),
            "optimizer": self.optimizer or _ascent(self.scaling_.unit, updates),
            "batch_size": self.batch_size,
            "progress": bool(self.verbose),
        }

    def empty(self, rng: int) -> Model:
        """Return an RBM with small weights and no biases."""
        columns = len(self.scaling_.shift)
        model = rbm(
            columns, self.n_components, visible=self.scaling_.unit, hidden=self.hidden, rng=rng
        )
        return model.with_params({"v-h.weight": 0.1 * model.params["v-h.weight"]})


def _ascent(unit: Unit, updates: int | None) -> Optimizer:
    """Return the default optimizer of visible units, whose rate falls to 0 over the updates.

    The rate of SGD suits any number of units with values between 0 and 1, but its steps are too
    large for unbounded values, which use Adam. If the number of updates is not known, the rate is
    constant.
    """
    kind, rate = (Adam, 0.01) if unit.support is None else (SGD, 0.2)
    return kind(rate / 2 if updates is None else linear_decay(rate, updates))


def seed_of(random_state: RandomState) -> int:
    """Return a seed from scikit-learn's argument random_state."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def checked(
    estimator: BaseEstimator, X: Features, *y: ArrayLike, missing: bool = False, reset: bool = True
) -> Any:
    """Return X (rows, features) as numbers, and y with it if it is given.

    `missing` allows NaN. With `reset` False, X must have the features of the first fit. A PgmError
    says what to do with sparse matrices, names and missing values.
    """
    if issparse(X):
        raise PgmError("X is sparse, expected a dense array: give X.toarray()")
    finite = "allow-nan" if missing else True
    X = _read(X, "X")
    y = tuple(_read(part, "y") for part in y)
    try:
        return validate_data(
            estimator, X, *y, dtype=np.float64, ensure_all_finite=finite, reset=reset
        )
    except ValueError as error:
        raise PgmError(_fault(X, missing) or error) from error


def _read(given: Any, what: str) -> Any:
    """Return the values of other containers than plain arrays and frames as a plain array.

    scikit-learn would drop the mask of a masked array. It reads names of columns itself.
    """
    plain = type(given) is np.ndarray and given.dtype.kind != "O"
    if given is None or plain or is_frame(given):
        return given
    return labels_of(given) if what == "y" else with_nan(array_of(given, what))


def _fault(X: Features, missing: bool) -> str:
    """Return which entry of X is unusable and what to do, or an empty string."""
    entries = np.asarray(X, dtype=object)
    if entries.ndim != 2 or np.iscomplexobj(X):
        return ""
    for (row, column), value in np.ndenumerate(entries):
        where = f"X: row {row}, column {column}"
        try:
            number = float(value)
        except (TypeError, ValueError):
            return f"{where}: {value!r} is not a number; " + (ENCODE_GAPS if missing else ENCODE)
        if math.isinf(number):
            return f"{where}: {number} is infinite, expected a finite number"
        if math.isnan(number) and not missing:
            return (
                f"{where}: NaN, expected a number; fill missing values first, for example by "
                "make_pipeline(GraphicalImputer(), ...)"
            )
    return ""
