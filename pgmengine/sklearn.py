"""Estimators for scikit-learn (extra "sklearn").

RBMTransformer extracts features, GraphicalImputer fills missing values, and DRBMClassifier and
GenerativeClassifier predict labels. These take real numbers, and `fit` chooses the visible units
from the data: Binary units if all values are 0 or 1, and otherwise Gaussian(1) units for
standardised columns. ChainCRF labels the steps of sequences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from pgmengine.apps import classifier
from pgmengine.apps.crf.estimator import ChainCRF
from pgmengine.base.checks import check_whole, whole
from pgmengine.base.errors import PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.declare.families import drbm, rbm
from pgmengine.infer.methods import AIS, MCMC, Exact
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.auto import Auto, drawing
from pgmengine.learn.fit import Fit, fit, pass_on
from pgmengine.learn.negative import PCD, ExactGradient
from pgmengine.learn.starting.base_rate_start import base_rate_start
from pgmengine.learn.steps.optimizers import SGD, Adam
from pgmengine.learn.steps.schedules import linear_decay
from pgmengine.model.model import Model
from pgmengine.units import Binary, Gaussian, Unit

with needed_by("pgmengine.sklearn"):
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        OneToOneFeatureMixin,
        TransformerMixin,
    )
    from sklearn.utils import Tags, check_array, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data

if TYPE_CHECKING:
    import pandas as pd

    from pgmengine.learn.contracts import Negative, Optimizer

# Data (rows, features), and scikit-learn's argument random_state.
Features: TypeAlias = "ArrayLike | pd.DataFrame"
RandomState: TypeAlias = int | np.random.RandomState | None

LEARNING_ARGUMENTS = ("n_components", "batch_size", "n_iter")

# The smallest scale of a column of inputs, as a share of the range of the column.
MIN_SCALE_SHARE = 0.25

# The smallest and the largest number of rows in a mini-batch of DRBMClassifier, and the number of
# mini-batches in a pass for sizes in between.
MIN_BATCH_ROWS, MAX_BATCH_ROWS, BATCHES_PER_EPOCH = 10, 100, 20

# The largest log2 of the number of enumerated states for which likelihoods are exact.
MAX_EXACT_LIKELIHOOD_BITS = 25

# The method that fills missing values: a short run of chains is enough for means.
IMPUTATION_METHOD = Auto(
    candidates=(Exact(10), MCMC(chains=2, warmup=100, draws=200, rhat_limit=math.inf))
)

__all__ = [
    "ChainCRF",
    "DRBMClassifier",
    "GenerativeClassifier",
    "GraphicalImputer",
    "RBMTransformer",
]


@dataclass(frozen=True)
class Scaling:
    """Visible units for columns of data, and their values (x - shift) / scale."""

    unit: Unit
    shift: Array
    scale: Array

    @classmethod
    def of(cls, x: Array) -> Scaling:
        """Return Binary units for values 0 and 1, else the standard scaling; NaN is ignored."""
        seen = x[~np.isnan(x)]
        if np.isin(seen, (0.0, 1.0)).all():
            return cls(Binary(), np.zeros(x.shape[1]), np.ones(x.shape[1]))
        return cls.standard(x)

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
        wide = MIN_SCALE_SHARE * (x.max(axis=0) - x.min(axis=0))
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


class _Graphical(BaseEstimator):
    """Base of estimators with an RBM whose visible units suit the data."""

    def __init__(
        self,
        n_components: int = 16,
        *,
        hidden: Unit | None = None,
        negative: Negative | None = None,
        optimizer: Optimizer | None = None,
        batch_size: int = 20,
        n_iter: int = 50,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.hidden = hidden
        self.negative = negative
        self.optimizer = optimizer
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, x: Array, rng: int, epochs: int, falling: bool = True) -> None:
        """Learn for some passes over the data; the present model, if there is one, is the start."""
        check_whole(self, *LEARNING_ARGUMENTS)
        updates = epochs * -(-len(x) // self.batch_size)
        if not hasattr(self, "model_"):
            self.scaling_ = Scaling.of(x)
            self.model_ = base_rate_start(self._empty(rng), {"v": self.scaling_.values(x)})
            self.state_ = None
        done = self.state_["update"] if self.state_ else 0
        found = fit(
            self.model_,
            {"v": self.scaling_.values(x)},
            rng=rng,
            state=self.state_,
            updates=done + updates,
            **self._settings(updates if falling else None),
        )
        self.model_, self.state_ = found.model, found.state
        pass_on(found)

    def _settings(self, updates: int | None) -> dict[str, Any]:
        """Return the settings of pgm.fit; with `updates` the rate falls to 0 over these."""
        return {
            "negative": self.negative or PCD(),
            "optimizer": self.optimizer or _ascent(self.scaling_.unit, updates),
            "batch_size": self.batch_size,
            "progress": bool(self.verbose),
        }

    def _empty(self, rng: int) -> Model:
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


def _seed(random_state: RandomState) -> int:
    """Return a seed from scikit-learn's argument random_state."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def _checked(
    estimator: BaseEstimator, X: Features, *y: ArrayLike, missing: bool = False, reset: bool = True
) -> Any:
    """Return X (rows, features) as numbers, and y with it if it is given.

    `missing` allows NaN. With `reset` False, X must have the features of the first fit. A PgmError
    says what to do with sparse matrices, names and missing values.
    """
    if issparse(X):
        raise PgmError("X is sparse, expected a dense array: give X.toarray()")
    finite = "allow-nan" if missing else True
    try:
        return validate_data(
            estimator, X, *y, dtype=np.float64, ensure_all_finite=finite, reset=reset
        )
    except ValueError as error:
        if fault := _fault(X, missing):
            raise PgmError(fault) from error
        raise


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
            return (
                f"{where}: {value!r} is not a number; encode names as numbers first, for example "
                "by sklearn.preprocessing.OneHotEncoder"
            )
        if math.isinf(number):
            return f"{where}: {number} is infinite, expected a finite number"
        if math.isnan(number) and not missing:
            return (
                f"{where}: NaN, expected a number; fill missing values first, for example by "
                "make_pipeline(GraphicalImputer(), ...)"
            )
    return ""


class RBMTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Graphical):
    """Extract features by a restricted Boltzmann machine: the features are E[hidden | visible].

    Use it in front of a classifier, or to draw new data and to score rows by their likelihood.

    Parameters
    ----------
    n_components : number of hidden units.
    hidden : type of the hidden units, Binary() by default.
    negative : model phase of pgm.fit, PCD() by default.
    optimizer : optimizer of pgm.fit; by default one whose rate falls to 0 over the passes, SGD(0.2)
        for Binary units and Adam(0.01) for Gaussian ones. In `partial_fit` half the rate stays.
    batch_size : rows of a mini-batch.
    n_iter : passes over the data.
    random_state : a seed, a numpy RandomState, or None.
    verbose : whether to show a progress bar.

    Attributes
    ----------
    model_ : the RBM, with layers "v" and "h".
    scaling_ : the visible units, and the shift and scale of each column.

    >>> import numpy as np
    >>> from pgmengine.sklearn import RBMTransformer
    >>> x = np.random.default_rng(0).integers(0, 2, (50, 6))
    >>> RBMTransformer(n_components=3, random_state=0).fit_transform(x).shape
    (50, 3)
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
        hidden: Unit | None = None,
        negative: Negative | None = None,
        optimizer: Optimizer | None = None,
        batch_size: int = 20,
        n_iter: int = 20,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            hidden=hidden,
            negative=negative,
            optimizer=optimizer,
            batch_size=batch_size,
            n_iter=n_iter,
            random_state=random_state,
            verbose=verbose,
        )

    @property
    def _n_features_out(self) -> int:
        """The number of features, from which scikit-learn makes their names."""
        return int(self.model_.structure.layers["h"].width)

    def fit(self, X: Features, y: ArrayLike | None = None) -> RBMTransformer:
        """Learn from X (rows, features) and return this transformer."""
        x = _checked(self, X)
        for name in ("model_", "scaling_", "state_"):
            self.__dict__.pop(name, None)
        self._learn(x, _seed(self.random_state), self.n_iter)
        return self

    def partial_fit(self, X: Features, y: ArrayLike | None = None) -> RBMTransformer:
        """Learn in one more pass over X; the first call chooses the visible units."""
        x = _checked(self, X, reset=not hasattr(self, "model_"))
        self._learn(x, _seed(self.random_state), 1, falling=False)
        return self

    def transform(self, X: Features) -> Array:
        """Return E[hidden | row], (rows, n_components).

        For hidden units Categorical(k) the shape is (rows, n_components * k), unit by unit.
        """
        x = self._values(X)
        found: Array = infer(self.model_, {"v": x}).mean["h"]
        return found.reshape(len(x), -1)

    def inverse_transform(self, X: Features) -> Array:
        """Return E[visible | hidden means] on the scale of the data, (rows, features)."""
        check_is_fitted(self)
        hidden = check_array(X, dtype=np.float64)
        weight = self.model_.params["v-h.weight"]
        if hidden.shape[1] != weight.shape[1]:
            raise PgmError(
                f"X has {hidden.shape[1]} columns, expected the {weight.shape[1]} of transform"
            )
        field = self.model_.params["v.bias"] + hidden @ weight.T
        return self.scaling_.data(self.scaling_.unit.mean(field))

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draw rows from the model, (n_samples, features).

        Draws are exact for small models, and from Gibbs chains otherwise.
        """
        check_is_fitted(self)
        seed = _seed(random_state)
        method = drawing(whole("n_samples", n_samples))
        drawn = infer(self.model_, want=("samples",), method=method, rng=seed).samples["v"]
        # Draws of a chain are adjacent, so a permutation is needed to take draws from all chains.
        order = np.random.default_rng(seed).permutation(len(drawn))[:n_samples]
        return self.scaling_.data(drawn[order, 0])

    def score_samples(self, X: Features) -> Array:
        """Return the log-likelihood of each row, a log density for real data, (rows,).

        The partition function is exact while min(features, n_components) <= 25, and an estimate by
        AIS otherwise.
        """
        x = self._values(X)
        exact, prior = Exact(MAX_EXACT_LIKELIHOOD_BITS), self.model_.given()
        method = exact if exact.plan(prior, ("log_z",)).accepted else AIS()
        log_z = method.run(prior, ("log_z",), rng=0).log_z[0]
        log_weight = infer(self.model_, {"v": x}, want=("log_z",)).log_z
        score: Array = log_weight - log_z - np.log(self.scaling_.scale).sum()
        return score

    def score(self, X: Features, y: ArrayLike | None = None) -> float:
        """Return the mean log-likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def _values(self, X: Features) -> Array:
        """Return checked data as values of the visible units."""
        check_is_fitted(self)
        return self.scaling_.values(_checked(self, X, reset=False))


class GraphicalImputer(OneToOneFeatureMixin, TransformerMixin, _Graphical):
    """Fill missing values (NaN) by an RBM that learns from the incomplete rows themselves.

    Parameters
    ----------
    n_components, hidden, negative, optimizer, batch_size, n_iter, random_state, verbose : as in
        RBMTransformer.
    sample : whether to fill each row with one joint draw, for multiple imputation; otherwise values
        are posterior means.

    >>> import numpy as np
    >>> from pgmengine.sklearn import GraphicalImputer
    >>> x = np.array([[1, 1], [0, 0], [1, np.nan]] * 20)
    >>> bool(np.isnan(GraphicalImputer(random_state=0).fit_transform(x)).any())
    False
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
        hidden: Unit | None = None,
        negative: Negative | None = None,
        optimizer: Optimizer | None = None,
        batch_size: int = 20,
        n_iter: int = 50,
        sample: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            hidden=hidden,
            negative=negative,
            optimizer=optimizer,
            batch_size=batch_size,
            n_iter=n_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.sample = sample

    def fit(self, X: Features, y: ArrayLike | None = None) -> GraphicalImputer:
        """Learn from X (rows, features), NaN where a value is missing; return this imputer."""
        x = _checked(self, X, missing=True)
        self.__dict__.pop("model_", None)
        self._learn(x, _seed(self.random_state), self.n_iter)
        return self

    def transform(self, X: Features) -> Array:
        """Return X (rows, features) without NaN."""
        check_is_fitted(self)
        x: Array = _checked(self, X, missing=True, reset=False)
        holes = np.isnan(x)
        if not holes.any():
            return x.copy()
        rows = np.flatnonzero(holes.any(axis=1))
        want = ("samples",) if self.sample else ("marginals",)
        seen = {"v": self.scaling_.values(x[rows])}
        r = infer(
            self.model_, seen, want=want, rng=_seed(self.random_state), method=IMPUTATION_METHOD
        )
        filled = self.scaling_.data(r.samples["v"][-1] if self.sample else r.mean["v"])
        out = x.copy()
        out[rows] = np.where(holes[rows], filled, x[rows])
        return out

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of scikit-learn; NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class _ByProbability(ClassifierMixin):
    """Base of classifiers that have predict_proba."""

    classes_: Array

    def predict(self, X: Features) -> Array:
        """Return the most probable label of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels


class DRBMClassifier(_ByProbability, BaseEstimator):
    """Classify by a discriminative RBM, which learns p(class | x) by its exact gradient.

    Columns are standardised, but the scale of a column is at least a quarter of its range.

    Parameters
    ----------
    n_components : number of hidden units.
    hidden : type of the hidden units, Binary() by default; the paper uses MultiValued(inf).
    optimizer : optimizer of pgm.fit; by default Adam with this weight decay and a rate that falls
        from 0.03 to 0.
    alpha : weight decay.
    batch_size : rows of a mini-batch; by default a twentieth of all rows, from 10 to 100.
    n_iter, random_state, verbose : as in RBMTransformer.

    References
    ----------
    Yokoyama, Katsumata and Yasuda (2019), "Restricted Boltzmann machine with multivalued hidden
    variables: a model suppressing over-fitting", equations 25 to 28.

    >>> import numpy as np
    >>> from pgmengine.sklearn import DRBMClassifier
    >>> x = np.array([[0.0, 1], [1, 0]] * 30)
    >>> DRBMClassifier(random_state=0).fit(x, ["a", "b"] * 30).predict(x[:2])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(
        self,
        n_components: int = 100,
        *,
        hidden: Unit | None = None,
        optimizer: Optimizer | None = None,
        alpha: float = 1e-3,
        batch_size: int | None = None,
        n_iter: int = 20,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.hidden = hidden
        self.optimizer = optimizer
        self.alpha = alpha
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Features, y: ArrayLike) -> DRBMClassifier:
        """Learn from X (rows, features) and labels y (rows,); return this classifier."""
        check_whole(self, "n_components", "n_iter")
        x, y = _checked(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.scaling_, seed = Scaling.limited(x), _seed(self.random_state)
        start = drbm(
            x.shape[1],
            self.n_components,
            max(len(self.classes_), 2),
            hidden=self.hidden or Binary(),
            rng=seed,
        )
        size = self._rows_at_once(len(x))
        falling = linear_decay(0.03, self.n_iter * -(-len(x) // size))
        optimizer = self.optimizer or Adam(falling, weight_decay=self.alpha)
        data = {"x": self.scaling_.values(x), "y": labels[:, None].astype(float)}
        found = fit(
            start,
            data,
            given=("x",),
            negative=ExactGradient(),
            optimizer=optimizer,
            rng=seed,
            batch_size=size,
            epochs=self.n_iter,
            progress=bool(self.verbose),
        )
        self.model_ = found.model
        pass_on(found)
        return self

    def _rows_at_once(self, rows: int) -> int:
        """Return the number of rows in a mini-batch."""
        if self.batch_size is not None:
            check_whole(self, "batch_size")
            return self.batch_size
        return int(np.clip(rows // BATCHES_PER_EPOCH, MIN_BATCH_ROWS, MAX_BATCH_ROWS))

    def predict_proba(self, X: Features) -> Array:
        """Return p(class | row), (rows, classes)."""
        check_is_fitted(self)
        x = _checked(self, X, reset=False)
        found = infer(self.model_, {"x": self.scaling_.values(x)}).prob["y"]
        # The label has at least two states; with a single class the second state is not used.
        some = found[:, 0, : len(self.classes_)]
        prob: Array = some / some.sum(axis=1, keepdims=True)
        return prob

    def predict_log_proba(self, X: Features) -> Array:
        """Return log p(class | row); -inf where the probability underflows."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class GenerativeClassifier(_ByProbability, _Graphical):
    """Classify by one RBM for each class and Bayes' rule.

    Likelihoods are exact while min(features, n_components) <= 25. Real columns have variance 1 over
    all classes, and so has every Gaussian unit given the hidden units: use DRBMClassifier if
    classes are much narrower than that. pgm.GenerativeClassifier does the same with any model.

    Parameters
    ----------
    n_components, hidden, negative, optimizer, batch_size, n_iter, random_state, verbose : as in
        RBMTransformer.

    >>> import numpy as np
    >>> from pgmengine.sklearn import GenerativeClassifier
    >>> x = np.array([[0.0, 1, 1], [1, 0, 0]] * 30)
    >>> GenerativeClassifier(random_state=0).fit(x, [3, 5] * 30).predict(x[:2])
    array([3, 5])
    """

    def fit(self, X: Features, y: ArrayLike) -> GenerativeClassifier:
        """Learn a model from the rows of each class; return this classifier."""
        check_whole(self, *LEARNING_ARGUMENTS)
        x, y = _checked(self, X, y)
        check_classification_targets(y)
        self.scaling_, seed = Scaling.of(x), _seed(self.random_state)
        self.bayes_ = classifier.GenerativeClassifier(self._empty(seed), self._class, rng=seed).fit(
            self.scaling_.values(x), y
        )
        self.classes_ = self.bayes_.classes_
        return self

    def _class(self, model: Model, data: dict[str, Array], rng: np.random.Generator) -> Fit:
        """Learn one class, starting from biases at the base rates of its rows."""
        updates = self.n_iter * -(-len(data["v"]) // self.batch_size)
        start = base_rate_start(model, data)
        return fit(start, data, rng=rng, updates=updates, **self._settings(updates))

    def predict_log_proba(self, X: Features) -> Array:
        """Return log p(class | row), (rows, classes)."""
        check_is_fitted(self)
        x = _checked(self, X, reset=False)
        return self.bayes_.predict_log_proba(self.scaling_.values(x))

    def predict_proba(self, X: Features) -> Array:
        """Return p(class | row), (rows, classes)."""
        return np.exp(self.predict_log_proba(X))
