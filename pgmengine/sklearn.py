"""Estimators for scikit-learn (extra "sklearn"): RBMTransformer, GraphicalImputer, DRBMClassifier,
GenerativeClassifier.

All take real numbers. Data whose values are all 0 or 1 get Binary visible units; other data are
standardised column by column and get Gaussian(1) ones, which fit decides when it first sees them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pgmengine.apps import classifier
from pgmengine.base.checks import check_whole, whole
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.graph.families import drbm, rbm
from pgmengine.graph.model import Model
from pgmengine.infer.ask import infer
from pgmengine.infer.auto import Auto, drawing
from pgmengine.infer.methods import AIS, MCMC, Exact
from pgmengine.learn import PCD, Adam, ExactGradient, base_rate_start, fit
from pgmengine.learn.interrupt import pass_on
from pgmengine.units import Binary, Gaussian, Unit

LEARNING = ("n_components", "batch_size", "n_iter")
FEW = 25  # bits up to which likelihoods are exact
FILL = Auto(
    candidates=(Exact(10), MCMC(chains=2, warmup=100, draws=200, rhat_limit=math.inf))
)  # for missing values

__all__ = ["DRBMClassifier", "GenerativeClassifier", "GraphicalImputer", "RBMTransformer"]


@dataclass(frozen=True)
class Scaling:
    """How columns become values of the visible units: x -> (x - shift) / scale."""

    unit: Unit
    shift: Array
    scale: Array

    @classmethod
    def of(cls, x: Array) -> Scaling:
        """Binary units for zeros and ones, else Gaussian ones of unit variance; NaN is left out."""
        seen = x[~np.isnan(x)]
        if np.isin(seen, (0.0, 1.0)).all():
            return cls(Binary(), np.zeros(x.shape[1]), np.ones(x.shape[1]))
        return cls.standard(x)

    @classmethod
    def standard(cls, x: Array) -> Scaling:
        """Gaussian units of unit variance; NaN is left out."""
        filled = np.where(np.isnan(x).all(axis=0), 0.0, x)
        shift, scale = np.nanmean(filled, axis=0), np.nanstd(filled, axis=0)
        return cls(Gaussian(1.0), shift, np.where(scale > 1e-12 * (1 + np.abs(shift)), scale, 1.0))

    def values(self, x: Array) -> Array:
        """Data as values of the units; PgmError for what Binary ones cannot be."""
        if not isinstance(self.unit, Binary):
            return (x - self.shift) / self.scale
        for row, column in np.argwhere((x != 0) & (x != 1) & ~np.isnan(x))[:1]:
            raise PgmError(
                f"row {row}, column {column}: {x[row, column]:g} is not 0 or 1; all were when the units were "
                "chosen"
            )
        return x

    def data(self, v: Array) -> Array:
        """Values of the units as data."""
        return v * self.scale + self.shift


class _Graphical(BaseEstimator):
    """What the estimators of a visible layer share: an RBM whose visible units suit the data."""

    def __init__(
        self,
        n_components: int = 16,
        *,
        hidden: Unit | None = None,
        negative: Any = None,
        optimizer: Any = None,
        batch_size: int = 20,
        n_iter: int = 50,
        random_state: Any = None,
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

    def _learn(self, x: Array, rng: int, epochs: int) -> None:
        check_whole(self, *LEARNING)
        if not hasattr(self, "model_"):
            self.scaling_ = Scaling.of(x)
            self.model_ = base_rate_start(self._empty(rng), {"v": self.scaling_.values(x)})
            self.state_ = None
        done = self.state_["update"] if self.state_ else 0
        found = fit(
            self.model_,
            {"v": self.scaling_.values(x)},
            negative=self.negative or PCD(),
            optimizer=self.optimizer or Adam(0.01),
            batch_size=self.batch_size,
            rng=rng,
            state=self.state_,
            updates=done + epochs * -(-len(x) // self.batch_size),
            progress=bool(self.verbose),
        )
        self.model_, self.state_ = found.model, found.state
        pass_on(found)

    def _empty(self, rng: int) -> Model:
        """The RBM with small weights and no biases."""
        columns = len(self.scaling_.shift)
        model = rbm(
            columns, self.n_components, visible=self.scaling_.unit, hidden=self.hidden, rng=rng
        )
        return model.with_params({"v-h.weight": 0.1 * model.params["v-h.weight"]})


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


class RBMTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Graphical):
    """A restricted Boltzmann machine as a transformer: features are E[hidden | visible].

    Parameters
    ----------
    n_components : hidden units.
    hidden : their unit type, Binary() by default.
    negative, optimizer : of pgm.fit; PCD() and Adam(0.01) by default.
    batch_size, n_iter : rows of a mini-batch, passes over the data.
    random_state : int, RandomState or None.
    verbose : show a progress bar.

    >>> import numpy as np
    >>> from pgmengine.sklearn import RBMTransformer
    >>> x = np.random.default_rng(0).integers(0, 2, (50, 6))
    >>> RBMTransformer(n_components=3, random_state=0).fit_transform(x).shape
    (50, 3)
    """

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.structure.layers["h"].width)

    def fit(self, X: Any, y: Any = None) -> RBMTransformer:
        """Learn from X (rows, features)."""
        x = validate_data(self, X, dtype=np.float64)
        for name in ("model_", "scaling_", "state_"):
            self.__dict__.pop(name, None)
        self._learn(x, _seed(self.random_state), self.n_iter)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> RBMTransformer:
        """One more pass, over X; the first call decides the visible units."""
        x = validate_data(self, X, dtype=np.float64, reset=not hasattr(self, "model_"))
        self._learn(x, _seed(self.random_state), 1)
        return self

    def transform(self, X: Any) -> Array:
        """E[hidden | row], (rows, n_components); (rows, n_components * k) of Categorical(k) units,
        unit by unit.
        """
        x = self._values(X)
        found: Array = infer(self.model_, {"v": x}).mean["h"]
        return found.reshape(len(x), -1)

    def inverse_transform(self, X: Any) -> Array:
        """E[visible | hidden means], in the units of the data, (rows, features)."""
        check_is_fitted(self)
        hidden = check_array(X, dtype=np.float64)
        weight = self.model_.params["v-h.weight"]
        if hidden.shape[1] != weight.shape[1]:
            raise PgmError(
                f"X has {hidden.shape[1]} columns, expected the {weight.shape[1]} of transform"
            )
        field = self.model_.params["v.bias"] + hidden @ weight.T
        return self.scaling_.data(self.scaling_.unit.mean(field))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draws of the visible units, (n_samples, features): exact for small machines, else Gibbs
        sampling.
        """
        check_is_fitted(self)
        seed = _seed(random_state)
        drawn = infer(
            self.model_, want=("samples",), method=drawing(whole("n_samples", n_samples)), rng=seed
        )
        order = np.random.default_rng(seed).permutation(len(drawn.samples["v"]))[
            :n_samples
        ]  # of all chains alike
        return self.scaling_.data(drawn.samples["v"][order, 0])

    def score_samples(self, X: Any) -> Array:
        """The log-likelihood (density) of every row: exact while min(features, components) <= 25,
        else by AIS.
        """
        x = self._values(X)
        exact = Exact(FEW)
        whole = self.model_.given()
        method = exact if exact.plan(whole, ("log_z",)).accepted else AIS()
        log_z = method.run(whole, ("log_z",), rng=0).log_z[0]
        return (
            infer(self.model_, {"v": x}, want=("log_z",)).log_z
            - log_z
            - np.log(self.scaling_.scale).sum()
        )

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood."""
        return float(self.score_samples(X).mean())

    def _values(self, X: Any) -> Array:
        check_is_fitted(self)
        return self.scaling_.values(validate_data(self, X, dtype=np.float64, reset=False))


class GraphicalImputer(OneToOneFeatureMixin, TransformerMixin, _Graphical):
    """Fill missing values (NaN) from an RBM learned from incomplete rows.

    Parameters
    ----------
    n_components, hidden, negative, optimizer, batch_size, n_iter, random_state, verbose : as in
        RBMTransformer.
    sample : fill with one joint draw for each row in place of means.

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
        negative: Any = None,
        optimizer: Any = None,
        batch_size: int = 20,
        n_iter: int = 50,
        sample: bool = False,
        random_state: Any = None,
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

    def fit(self, X: Any, y: Any = None) -> GraphicalImputer:
        """Learn from X (rows, features) with NaN where a value is missing."""
        x = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        self.__dict__.pop("model_", None)
        self._learn(x, _seed(self.random_state), self.n_iter)
        return self

    def transform(self, X: Any) -> Array:
        """X with its NaN filled."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        holes = np.isnan(x)
        if not holes.any():
            return x.copy()
        rows = np.flatnonzero(holes.any(axis=1))
        want = ("samples",) if self.sample else ("marginals",)
        r = infer(
            self.model_,
            {"v": self.scaling_.values(x[rows])},
            want=want,
            rng=_seed(self.random_state),
            method=FILL,
        )
        filled, out = (
            self.scaling_.data(r.samples["v"][-1] if self.sample else r.mean["v"]),
            x.copy(),
        )
        out[rows] = np.where(holes[rows], filled, x[rows])
        return out

    def __sklearn_tags__(self) -> Any:
        """NaN is what it is for."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class _ByProbability(ClassifierMixin):
    """A classifier that knows predict_proba."""

    def predict(self, X: Any) -> Array:
        """The most probable label of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


class DRBMClassifier(_ByProbability, BaseEstimator):
    """The discriminative RBM of system 1: p(class | x) learned by its exact gradient (eqs. 25 to
    28).

    Columns are standardised. Parameters as in RBMTransformer but `negative`: the gradient is exact.
    `hidden` is MultiValued(inf) by default, `alpha` the weight decay.

    >>> import numpy as np
    >>> from pgmengine.sklearn import DRBMClassifier
    >>> x = np.array([[0.0, 1], [1, 0]] * 30)
    >>> DRBMClassifier(random_state=0).fit(x, ["a", "b"] * 30).predict(x[:2])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(
        self,
        n_components: int = 32,
        *,
        hidden: Unit | None = None,
        optimizer: Any = None,
        alpha: float = 1e-4,
        batch_size: int = 20,
        n_iter: int = 50,
        random_state: Any = None,
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

    def fit(self, X: Any, y: Any) -> DRBMClassifier:
        """Learn from X (rows, features) and labels y (rows,)."""
        check_whole(self, *LEARNING)
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.scaling_, seed = Scaling.standard(x), _seed(self.random_state)
        start = drbm(
            x.shape[1], self.n_components, max(len(self.classes_), 2), hidden=self.hidden, rng=seed
        )
        optimizer = self.optimizer or Adam(0.02, weight_decay=self.alpha)
        data = {"x": self.scaling_.values(x), "y": labels[:, None].astype(float)}
        found = fit(
            start,
            data,
            given=("x",),
            negative=ExactGradient(),
            optimizer=optimizer,
            rng=seed,
            batch_size=self.batch_size,
            epochs=self.n_iter,
            progress=bool(self.verbose),
        )
        self.model_ = found.model
        pass_on(found)
        return self

    def predict_proba(self, X: Any) -> Array:
        """p(class | row), (rows, classes)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        prob = infer(self.model_, {"x": self.scaling_.values(x)}).prob["y"][
            :, 0, : len(self.classes_)
        ]
        return prob / prob.sum(
            axis=1, keepdims=True
        )  # a single class has a state beside it that stands for none

    def predict_log_proba(self, X: Any) -> Array:
        """Its logarithm, -inf where it is below the least number."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class GenerativeClassifier(_ByProbability, _Graphical):
    """One RBM for each class, and Bayes' rule; likelihoods are exact while min(features,
    components) <= 25.

    Real columns have variance 1 over all classes, and so has every Gaussian unit given the hidden
    ones: classes that are much narrower than that call for DRBMClassifier. Any model of one's own:
    pgm.GenerativeClassifier. Parameters as in RBMTransformer.

    >>> import numpy as np
    >>> from pgmengine.sklearn import GenerativeClassifier
    >>> x = np.array([[0.0, 1, 1], [1, 0, 0]] * 30)
    >>> GenerativeClassifier(random_state=0).fit(x, [3, 5] * 30).predict(x[:2])
    array([3, 5])
    """

    def fit(self, X: Any, y: Any) -> GenerativeClassifier:
        """Learn a model from the rows of each class."""
        check_whole(self, *LEARNING)
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.scaling_, seed = Scaling.of(x), _seed(self.random_state)
        learn = partial(
            _from_base_rates,
            negative=self.negative or PCD(),
            optimizer=self.optimizer or Adam(0.01),
            batch_size=self.batch_size,
            epochs=self.n_iter,
            progress=bool(self.verbose),
        )
        self.bayes_ = classifier.GenerativeClassifier(self._empty(seed), learn, rng=seed).fit(
            self.scaling_.values(x), y
        )
        self.classes_ = self.bayes_.classes_
        return self

    def predict_log_proba(self, X: Any) -> Array:
        """Log p(class | row), (rows, classes)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        return self.bayes_.predict_log_proba(self.scaling_.values(x))

    def predict_proba(self, X: Any) -> Array:
        """p(class | row), (rows, classes)."""
        return np.exp(self.predict_log_proba(X))


def _from_base_rates(model: Model, data: Any, rng: Any, **settings: Any) -> Any:
    return fit(base_rate_start(model, data), data, rng=rng, **settings)
