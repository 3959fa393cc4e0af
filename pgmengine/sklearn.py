"""Estimators for scikit-learn (extra "sklearn").

RBMTransformer extracts features, GraphicalImputer fills missing values, and DRBMClassifier and
GenerativeClassifier predict labels. These take real numbers, and `fit` chooses the visible units
from the data: Binary units if all values are 0 or 1, and otherwise Gaussian(1) units for
standardised columns. ChainCRF labels the steps of sequences.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.apps.crf.estimator import ChainCRF
from pgmengine.apps.learners import classifier
from pgmengine.apps.learners.estimators import (
    Features,
    Graphical,
    RandomState,
    Scaling,
    checked,
    seed_of,
)
from pgmengine.apps.learners.fit_warnings import warn_of
from pgmengine.base.checks import check_whole, whole
from pgmengine.base.display import counted
from pgmengine.base.errors import PgmError, listed
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.declare.families import drbm
from pgmengine.declare.model import Model
from pgmengine.infer.methods import AIS, MCMC, Exact
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.auto import Auto, drawing
from pgmengine.learn.fit import Fit, fit, pass_on
from pgmengine.learn.loop import unlogged
from pgmengine.learn.monitoring.finding import Finding, FindingKind
from pgmengine.learn.negative import ExactGradient
from pgmengine.learn.starting.base_rate_start import base_rate_start
from pgmengine.learn.steps.optimizers import Adam
from pgmengine.learn.steps.schedules import linear_decay
from pgmengine.units import Binary, Unit

with needed_by("pgmengine.sklearn"):
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        OneToOneFeatureMixin,
        TransformerMixin,
    )
    from sklearn.utils import Tags, check_array
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from pgmengine.learn.contracts import Optimizer

# The smallest and the largest number of rows in a mini-batch of DRBMClassifier, and the number of
# mini-batches in a pass for sizes in between.
MIN_BATCH_ROWS, MAX_BATCH_ROWS, BATCHES_PER_EPOCH = 10, 100, 20

# The largest log2 of the number of enumerated states for which likelihoods are exact.
MAX_EXACT_LIKELIHOOD_BITS = 25

# The largest time in seconds of exact answers that fill missing values, as their plan estimates it.
MAX_EXACT_FILLING_SECONDS = 10.0

# The method that fills missing values. Exact answers are limited by their time alone: a limit of
# the enumerated states would leave the question to a junction tree for each row, which may take
# longer. Above this time a short run of chains is enough for means. A joint draw needs one sample.
IMPUTATION_METHOD = Auto(
    candidates=(
        Auto(candidates=(Exact(draws=1),), max_seconds=MAX_EXACT_FILLING_SECONDS),
        MCMC(chains=2, warmup=100, draws=200, rhat_limit=math.inf),
    )
)

__all__ = [
    "ChainCRF",
    "DRBMClassifier",
    "GenerativeClassifier",
    "GraphicalImputer",
    "RBMTransformer",
]


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return __all__


@dataclass(eq=False, repr=False, kw_only=True)
class RBMTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Graphical):
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
    n_iter : passes over the data; by default as many as make 4,000 updates, and at least 20.
    random_state : a seed, a numpy RandomState, or None.
    verbose : whether to show a progress bar.

    Attributes
    ----------
    model_ : the RBM, with layers "v" and "h".
    scaling_ : the visible units, and the shift and scale of each column.
    n_iter_ : the number of passes that were made.
    findings_ : signs that the model could be much better, as in the result of pgm.fit. `fit` warns
        of each kind of sign once (ConvergenceWarning); `partial_fit` does not.

    >>> import numpy as np
    >>> from pgmengine.sklearn import RBMTransformer
    >>> x = np.random.default_rng(0).integers(0, 2, (50, 6))
    >>> RBMTransformer(n_components=3, random_state=0).fit_transform(x).shape
    (50, 3)
    """

    @property
    def _n_features_out(self) -> int:
        """The number of features, from which scikit-learn makes their names."""
        return int(self.model_.structure.layers["h"].width)

    def fit(self, X: Features, y: ArrayLike | None = None) -> RBMTransformer:
        """Learn from X (rows, features) and return this transformer."""
        x = checked(self, X)
        for name in ("model_", "scaling_", "state_"):
            self.__dict__.pop(name, None)
        self.learn(x, seed_of(self.random_state))
        warn_of(self, self.findings_)
        return self

    def partial_fit(self, X: Features, y: ArrayLike | None = None) -> RBMTransformer:
        """Learn in one more pass over X; the first call chooses the visible units."""
        x = checked(self, X, reset=not hasattr(self, "model_"))
        self.learn(x, seed_of(self.random_state), epochs=1)
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
        seed = seed_of(random_state)
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
        return self.scaling_.values(checked(self, X, reset=False))


@dataclass(eq=False, repr=False, kw_only=True)
class GraphicalImputer(OneToOneFeatureMixin, TransformerMixin, Graphical):
    """Fill missing values (NaN) by an RBM that learns from the incomplete rows themselves.

    Parameters
    ----------
    n_components : number of hidden units.
    hidden, negative, optimizer, batch_size, n_iter, random_state, verbose : as in RBMTransformer.
    sample : whether to fill each row with one joint draw, for multiple imputation; otherwise values
        are posterior means.

    >>> import numpy as np
    >>> from pgmengine.sklearn import GraphicalImputer
    >>> x = np.array([[1, 1], [0, 0], [1, np.nan]] * 20)
    >>> bool(np.isnan(GraphicalImputer(random_state=0).fit_transform(x)).any())
    False
    """

    # These defaults were chosen on hidden cells of three data sets (benchmarks/filled_cells.py).
    n_components: int = field(default=64, kw_only=False)
    noise: ClassVar[float] = 0.6

    sample: bool = False

    def fit(self, X: Features, y: ArrayLike | None = None) -> GraphicalImputer:
        """Learn from X (rows, features), NaN where a value is missing; return this imputer."""
        x = checked(self, X, missing=True)
        self._warn_of_empty_columns(x)
        self.__dict__.pop("model_", None)
        self.learn(x, seed_of(self.random_state))
        # More passes than by default raise the likelihood, and seldom fill cells better.
        rising = FindingKind.STILL_RISING if self.n_iter is None else None
        warn_of(self, [finding for finding in self.findings_ if finding.kind is not rising])
        return self

    def transform(self, X: Features) -> Array:
        """Return X (rows, features) without NaN."""
        check_is_fitted(self)
        x: Array = checked(self, X, missing=True, reset=False)
        holes = np.isnan(x)
        if not holes.any():
            return x.copy()
        rows = np.flatnonzero(holes.any(axis=1))
        want = ("samples",) if self.sample else ("marginals",)
        seen = {"v": self.scaling_.values(x[rows])}
        r = infer(
            self.model_, seen, want=want, rng=seed_of(self.random_state), method=IMPUTATION_METHOD
        )
        filled = self.scaling_.data(r.samples["v"][-1] if self.sample else r.mean["v"])
        out = x.copy()
        out[rows] = np.where(holes[rows], filled, x[rows])
        return out

    def _warn_of_empty_columns(self, x: Array) -> None:
        """Warn of columns without a value, by name if they have names, else by number."""
        empty = np.flatnonzero(np.isnan(x).all(axis=0))
        if not len(empty):
            return
        names = getattr(self, "feature_names_in_", np.arange(x.shape[1]))[empty]
        warnings.warn(
            f"GraphicalImputer: no row has a value in {counted(len(empty), 'column')}, "
            f"{listed([repr(name) for name in names.tolist()])}: what is filled in there says "
            "nothing about the data; drop such columns",
            UserWarning,
            stacklevel=3,
        )

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


@dataclass(eq=False, repr=False)
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
    n_iter : passes over the data.
    random_state, verbose : as in RBMTransformer.

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

    n_components: int = 100
    _: KW_ONLY
    hidden: Unit | None = None
    optimizer: Optimizer | None = None
    alpha: float = 1e-3
    batch_size: int | None = None
    n_iter: int = 20
    random_state: RandomState = None
    verbose: int = 0

    def fit(self, X: Features, y: ArrayLike) -> DRBMClassifier:
        """Learn from X (rows, features) and labels y (rows,); return this classifier."""
        check_whole(self, "n_components", "n_iter")
        x, y = checked(self, X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.scaling_, seed = Scaling.limited(x), seed_of(self.random_state)
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
        with unlogged():
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
        self.model_, self.findings_, self.n_iter_ = found.model, found.findings, self.n_iter
        pass_on(found)
        warn_of(self, self.findings_)
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
        x = checked(self, X, reset=False)
        found = infer(self.model_, {"x": self.scaling_.values(x)}).prob["y"]
        # The label has at least two states; with a single class the second state is not used.
        some = found[:, 0, : len(self.classes_)]
        prob: Array = some / some.sum(axis=1, keepdims=True)
        return prob

    def predict_log_proba(self, X: Features) -> Array:
        """Return log p(class | row); -inf where the probability underflows."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


class GenerativeClassifier(_ByProbability, Graphical):
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
        self.check_settings()
        x, y = checked(self, X, y)
        self.n_iter_ = 0
        check_classification_targets(y)
        plain, seed = Scaling.of(x), seed_of(self.random_state)
        # A machine of a class in which a rare value lies far away would model this value alone.
        self.scaling_ = plain if isinstance(plain.unit, Binary) else Scaling.limited(x)
        self.findings_: tuple[Finding, ...] = ()
        bayes = classifier.GenerativeClassifier(self.empty(seed), self._class, rng=seed)
        self.bayes_ = bayes.fit(self.scaling_.values(x), y)
        self.classes_ = self.bayes_.classes_
        warn_of(self, self.findings_)
        return self

    def _class(self, model: Model, data: dict[str, Array], rng: np.random.Generator) -> Fit:
        """Learn one class, starting from biases at the base rates of its rows."""
        rows = len(data["v"])
        passes = self.passes(rows)
        updates, self.n_iter_ = passes * -(-rows // self.batch_size), max(passes, self.n_iter_)
        start = base_rate_start(model, data)
        with unlogged():
            learned: Fit = fit(start, data, rng=rng, updates=updates, **self.settings(updates))
        self.findings_ += learned.findings
        return learned

    def predict_log_proba(self, X: Features) -> Array:
        """Return log p(class | row), (rows, classes)."""
        check_is_fitted(self)
        x = checked(self, X, reset=False)
        return self.bayes_.predict_log_proba(self.scaling_.values(x))

    def predict_proba(self, X: Features) -> Array:
        """Return p(class | row), (rows, classes)."""
        return np.exp(self.predict_log_proba(X))
