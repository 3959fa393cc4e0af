"""ChainCRF: linear-chain conditional random fields for lists of sequences.

`fit` stacks the steps of all sequences, and minimises the exact negative log-likelihood. The
learned labels are a template of the engine, a chain of variables with one shared table of
transitions, whose soft evidence is X @ coef_. Its mode is the prediction, and any other question
can be asked about it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.apps.crf.likelihood import Likelihood, parts_of
from pgmengine.apps.crf.minimise import minimise
from pgmengine.apps.crf.stacked_sequences import (
    Labels,
    Sequences,
    Steps,
    by_columns,
    classes_of,
    divided,
    holds_items,
    listed_sequences,
    numbered,
    stacked_items,
    stacked_labels,
    stacked_numbers,
)
from pgmengine.base.checks import check_number, check_whole
from pgmengine.base.errors import InternalError, PgmError
from pgmengine.base.extras import needed_by
from pgmengine.base.types import Array
from pgmengine.base.work.threads import one_blas_thread
from pgmengine.declare.builder import GraphBuilder
from pgmengine.declare.template import Template
from pgmengine.infer.exact.long_chains.chain_sums import best_paths, chain_sums
from pgmengine.learn.starting.arguments import row_weights

with needed_by("pgmengine.sklearn"):
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.validation import check_is_fitted

# The chain of labels in questions to the engine, and its shared table.
LABELS, TRANSITION = "y", "transition"


@dataclass(frozen=True)
class ChainOfLabels:
    """The declaration of a chain of labels of any length."""

    labels: tuple[str, ...]

    def __call__(self, steps: int) -> GraphBuilder:
        """Return the declaration of a chain with this number of steps."""
        b = GraphBuilder()
        y = b.variable(LABELS, states=self.labels, shape=steps)
        if steps > 1:
            weights = np.ones((len(self.labels),) * 2)
            b.table((y[:-1], y[1:]), weights, name=TRANSITION)
        return b


@dataclass(eq=False, repr=False)
class ChainCRF(BaseEstimator):
    """Label the steps of sequences by a linear-chain conditional random field.

    Use it for tagging words, and for any sequences whose labels depend on their neighbours. The
    objective is the one of CRFsuite,

        sum over sequences of -log p(y | x)  +  l1 * |w|_1  +  l2 * |w|_2^2,

    where w are the weights of all pairs of a feature and a label, and of all pairs of successive
    labels. The optimum is that of CRFsuite with feature.possible_states and
    feature.possible_transitions set (all_possible_states and all_possible_transitions in
    sklearn-crfsuite). As there, labels and the ends of sequences have no weights of their own: give
    a feature that is always 1 for a bias of each label, and features of the first and the last
    step. CRFsuite also leaves out pairs whose values add to less than its feature.minfreq, 0, which
    matters for features with negative values.

    Parameters
    ----------
    l1 : weight of the sum of absolute weights. With l1 > 0 most weights are exactly 0.
    l2 : weight of the sum of squared weights.
    max_iter : the most iterations of L-BFGS, or of OWL-QN where l1 > 0.
    tol : learning ends when ten iterations have lowered the objective by less than this share of
        it.

    Attributes
    ----------
    classes_ : (labels,) the labels, sorted. Like the other attributes it is set by `fit`.
    coef_ : (features, labels) weights of the features.
    transitions_ : (labels, labels) weights of successive labels, from row to column.
    feature_names_ : names of the features, a list in the order of coef_: those of the columns of
        frames, and "x0", "x1", ... for features that are numbered. Later frames are read by them.
    n_features_in_ : the number of features.
    has_items_ : whether steps were dicts or lists of names, and not rows of numbers.
    objective_ : the objective at the weights, in nats.
    n_iter_ : the number of iterations.
    template_ : the chain of labels as a pgm.Template, for other questions; see `soft_evidence`.

    Raises
    ------
    PgmError
        Where X or y cannot be read; it names the sequence, the step, and the label or the feature.

    References
    ----------
    Lafferty, McCallum and Pereira (2001), Conditional random fields: probabilistic models for
    segmenting and labeling sequence data. Andrew and Gao (2007), Scalable training of
    L1-regularized log-linear models.

    Examples
    --------
    >>> from pgmengine.sklearn import ChainCRF
    >>> X = [[{"word": "we"}, {"word": "run"}], [{"word": "the"}, {"word": "run"}]]
    >>> y = [["pronoun", "verb"], ["article", "noun"]]
    >>> crf = ChainCRF(l2=0.01).fit(X, y)
    >>> [labels.tolist() for labels in crf.predict([[{"word": "the"}, {"word": "run"}]])]
    [['article', 'noun']]
    >>> crf.score(X, y)
    1.0
    """

    l1: float = 0.0
    l2: float = 1.0
    _: KW_ONLY
    max_iter: int = 1000
    tol: float = 1e-6

    def fit(self, X: Sequences, y: Labels, sample_weight: ArrayLike | None = None) -> ChainCRF:
        """Learn from labelled sequences, and return this estimator.

        Sequences may lack labels: they are learned by the probability of the labels that are known,
        summed over the others. That objective has several maxima, and learning ends in one.

        Parameters
        ----------
        X : a list with one entry for each sequence: an array, a DataFrame or a scipy.sparse matrix
            (steps, features), or a list with a dict of features, or a list of names, for each step.
            {"word": "walk"} is the feature "word=walk" with the value 1.
        y : a list with a list of labels, texts or numbers, for each sequence; None is a label that
            is not known.
        sample_weight : (sequences,) how often each sequence counts, from 0 up; None: once.
        """
        check_number(self, "l1", "l2", "tol")
        check_whole(self, "max_iter")
        sequences = listed_sequences(X, "X")
        items = holds_items(sequences)
        if items:
            steps, names = stacked_items(sequences, None)
        else:
            sequences, columns = by_columns(sequences, None)
            steps = stacked_numbers(sequences, None)
            names = columns or numbered(steps.values.shape[1])
        labels = stacked_labels(y, steps.lengths, gaps=True)
        weights = None if sample_weight is None else row_weights(len(sequences), sample_weight)
        if not labels:
            raise PgmError(
                f"X has {len(sequences)} sequences without a step, expected at least one step"
            )
        self.classes_, codes = classes_of(labels, steps.lengths)
        self.has_items_, self.feature_names_, self.n_features_in_ = items, names, len(names)
        self.__dict__.pop("_column", None)
        self._learn(Likelihood(steps, codes, len(self.classes_), weights))
        declared = ChainOfLabels(tuple(str(label) for label in self.classes_.tolist()))
        self.template_ = Template(declared).with_params({TRANSITION: self.transitions_})
        return self

    def _learn(self, likelihood: Likelihood) -> None:
        """Set the weights that minimise the objective."""
        labels, size = likelihood.labels, likelihood.features * likelihood.labels
        # L-BFGS sees weights times the size of their features, so that features of any scale are
        # learned alike. Where l2 is larger than their squares, it sets the scale.
        sizes = np.append(np.repeat(likelihood.sizes, labels), np.ones(labels**2))
        scale = np.hypot(sizes, np.sqrt(self.l2))
        scale[scale == 0] = 1.0

        def objective(scaled: Array) -> tuple[float, Array]:
            w = scaled / scale
            coef, transitions = w[:size].reshape(-1, labels), w[size:].reshape(labels, labels)
            value, *slopes = likelihood(coef, transitions)
            slope = np.concatenate([part.ravel() for part in slopes])
            slope += 2 * self.l2 * w
            return value + self.l2 * float(w @ w), slope / scale

        # Several threads of BLAS lose time on the short products of messages and of steps.
        with one_blas_thread():
            start = np.zeros(len(scale))
            found = minimise(objective, start, self.l1 / scale, self.tol, self.max_iter)
        if not found.converged:
            warnings.warn(
                f"ChainCRF has not converged in max_iter={self.max_iter} iterations; give more, "
                "or a larger l2",
                ConvergenceWarning,
                stacklevel=3,
            )
        weights = found.point / scale
        self.coef_ = weights[:size].reshape(-1, labels)
        self.transitions_ = weights[size:].reshape(labels, labels)
        self.objective_, self.n_iter_ = found.value, found.iterations

    def predict(self, X: Sequences) -> list[Array]:
        """Return the most probable labels of each sequence, a list of arrays (steps,).

        Features that were not seen in `fit` are ignored.
        """
        field, lengths = self._field(X)
        path, _ = best_paths(field, self.transitions_, lengths)
        return divided(self.classes_[path], lengths)

    def predict_marginals(self, X: Sequences) -> list[Array]:
        """Return P(label of the step | x), a list of arrays (steps, labels).

        Columns are in the order of `classes_`.
        """
        field, lengths = self._field(X)
        found = np.full_like(field, np.nan)
        for part in parts_of(lengths, len(self.classes_)):
            sums = chain_sums(field[part.steps], self.transitions_, part.lengths)
            found[part.steps] = sums.marginals
        if np.isnan(found).any():
            raise InternalError("a step of a sequence has no marginals")
        return divided(found, lengths)

    def soft_evidence(self, X: Sequences) -> list[dict[str, Array]]:
        """Return the soft evidence of each sequence, for questions about `template_`.

        A sequence has {"y": log weights}, where the log weights (steps, labels) are X @ coef_. With
        it the engine answers whatever else is wanted: labels when some of them are known, draws,
        joint distributions of neighbours, log Z.

        Examples
        --------
        >>> import pgmengine as pgm
        >>> from pgmengine.sklearn import ChainCRF
        >>> X = [[["we"], ["run"]], [["the"], ["run"]]]
        >>> crf = ChainCRF(l2=0.01).fit(X, [["pronoun", "verb"], ["article", "noun"]])
        >>> soft = crf.soft_evidence([[["old"], ["run"]]])
        >>> [r] = pgm.infer(crf.template_, [{"y": ["pronoun", None]}], soft=soft)
        >>> r.marginal("y[1]")["verb"] > 0.9
        True
        """
        return [{LABELS: field} for field in divided(*self._field(X))]

    def _field(self, X: Sequences) -> tuple[Array, Array]:
        """Return the log weights of the labels of all steps, (steps, labels), and the lengths."""
        check_is_fitted(self)
        steps = self._steps(listed_sequences(X, "X"))
        return np.asarray(steps.values @ self.coef_), steps.lengths

    @cached_property
    def _column(self) -> dict[str, int]:
        """The column of each feature. It is kept, as single sentences are read in less time."""
        return {name: i for i, name in enumerate(self.feature_names_)}

    def _steps(self, sequences: Sequence[Any]) -> Steps:
        """Return the steps of sequences with the features of `fit`."""
        if self.has_items_:
            return stacked_items(sequences, self._column)[0]
        names = self.feature_names_
        known = None if names == numbered(len(names)) else names
        return stacked_numbers(by_columns(sequences, known)[0], self.n_features_in_)

    def score(self, X: Sequences, y: Labels) -> float:
        """Return the share of steps whose label is predicted right, NaN if there are no steps.

        A label that was not seen in `fit` counts as a label that is predicted wrong.
        """
        found = self.predict(X)
        labels = stacked_labels(y, np.array([len(part) for part in found], dtype=np.int64))
        predicted = [label for part in found for label in part.tolist()]
        right = [a == b for a, b in zip(predicted, labels, strict=True)]
        return float(np.mean(right)) if right else float("nan")
