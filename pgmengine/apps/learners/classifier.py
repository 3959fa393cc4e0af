"""GenerativeClassifier: a model of each class, combined by Bayes' rule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pgmengine.base.checks import check_method, check_name, is_missing, seeded
from pgmengine.base.errors import PgmError, told
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array, RngLike
from pgmengine.declare.model import Model, ModelLike, as_model
from pgmengine.evidence.frames import in_order, names_of_columns
from pgmengine.infer.question.ask import infer
from pgmengine.infer.question.prepared import AnyMethod
from pgmengine.learn.fit import fit, pass_on
from pgmengine.learn.loop import report, unlogged
from pgmengine.model.containers import array_of, is_frame

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import sparray

# Rows of one layer.
Rows: TypeAlias = "ArrayLike | sparray | pd.DataFrame"


class Learned(Protocol):
    """The result of learning one class."""

    @property
    def model(self) -> Model:
        """The model of the class."""


@dataclass(eq=False)
class GenerativeClassifier:
    """Classify by log p(class | x) = log p(x | class) + log p(class) + const.

    A model of each class gives log p(x | class), exactly, as an estimate or as a lower bound. Use
    it if rows have missing values, which are marginalised in learning and in prediction, or if the
    models themselves are also wanted.

    Parameters
    ----------
    model : the model from which each class starts, or a function from the number of a class (0, 1,
        ...) to such a model.
    learn : called as learn(model, {layer: rows of the class}, rng=generator); its result has an
        attribute `model`. The default is pgm.fit without a progress bar; functools.partial(pgm.fit,
        ...) changes its settings.
    method : the inference method of log p(x | class), Auto() by default. MeanField() gives a bound.
    layer : the layer of the rows x.
    rng : a seed or a generator, for learning.

    Attributes
    ----------
    classes_ : the labels, sorted, (classes,). Like the other attributes it is set by `fit`.
    models_ : the model of each class, a list.
    log_prior_ : the logarithm of the share of each class, (classes,).
    feature_names_in_ : the names of the columns of x, a list; None if they had no names.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> x = np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]] * 5)
    >>> model = pgm.GenerativeClassifier(pgm.sbn([2, 2], rng=0)).fit(x, x[:, 0].astype(int))
    >>> model.predict([[1, np.nan]])
    array([1])
    """

    model: ModelLike | Callable[[int], ModelLike]
    learn: Callable[..., Learned] | None = None
    method: AnyMethod | None = None
    layer: str = "v"
    rng: RngLike = 0

    def __post_init__(self) -> None:
        check_name(self, "layer")
        if self.learn is not None and not callable(self.learn):
            raise PgmError(
                "GenerativeClassifier: learn must be a function such as pgm.fit, not "
                f"{told(self.learn)}"
            )
        if self.method is not None:
            check_method(self.method)
        seeded(self.rng)

    def fit(self, x: Rows, y: ArrayLike) -> GenerativeClassifier:
        """Learn a model from the rows of each class.

        Parameters
        ----------
        x : (rows, size), NaN where a value is missing; or a DataFrame with a column for each unit.
            Names of columns are remembered: frames in `predict` have them in any order.
        y : (rows,) labels of any sortable kind.

        Returns
        -------
        This classifier.

        Raises
        ------
        PgmError
            For x and y that do not fit together, and for missing labels.
        KeyboardInterrupt
            After Ctrl-C, since some classes have no model yet.
        """
        x, y = _rows(x), labels_of(y)
        if y.ndim != 1 or len(x) != len(y):
            raise PgmError(
                f"y has shape {y.shape}, expected ({len(x)},): one label for each row of x"
            )
        if not len(y):
            raise PgmError("x has no rows, expected at least one of each class")
        self.classes_, number, counts = _classes(y)
        self.feature_names_in_ = names_of_columns(x, "x")
        generators = seeded(self.rng).spawn(len(self.classes_))
        learn, rows = self.learn or partial(fit, progress=False), getattr(x, "iloc", x)
        self.log_prior_ = np.log(counts / len(y))
        models, findings = [], []
        # The findings of all classes are said together; a function of users says its own.
        with unlogged() if self.learn is None else nullcontext():
            for c, generator in enumerate(generators):
                start = as_model(self.model(c) if callable(self.model) else self.model)
                found = learn(start, {self.layer: rows[number == c]}, rng=generator)
                pass_on(found)
                models.append(found.model)
                findings.append(getattr(found, "findings", ()))
        if self.learn is None:
            report(findings)
        self.models_ = models
        return self

    def log_prob(self, x: Rows, rng: RngLike = 0) -> Array:
        """Return log p(x | class), or its bound, (rows, classes)."""
        if not hasattr(self, "models_"):
            raise PgmError("this GenerativeClassifier is not fitted yet: call fit(x, y) first")
        x = in_order(_rows(x), self.feature_names_in_, "x")
        found = [
            infer(model, {self.layer: x}, want=("log_prob",), method=self.method, rng=rng).log_prob
            for model in self.models_
        ]
        return np.stack(found, axis=1)

    def predict_log_proba(self, x: Rows) -> Array:
        """Return log p(class | x), (rows, classes); the prior where no class can explain a row."""
        joint = self.log_prob(x) + self.log_prior_
        known = np.isfinite(joint).any(axis=1, keepdims=True)
        joint = np.where(known, joint, self.log_prior_)
        posterior: Array = joint - log_sum(joint)[:, None]
        return posterior

    def predict_proba(self, x: Rows) -> Array:
        """Return p(class | x), (rows, classes)."""
        return np.exp(self.predict_log_proba(x))

    def predict(self, x: Rows) -> Array:
        """Return the most probable label of each row."""
        best = self.predict_log_proba(x).argmax(axis=1)
        labels: Array = self.classes_[best]
        return labels

    def score(self, x: Rows, y: ArrayLike) -> float:
        """Return the share of rows whose label is predicted."""
        found, y = self.predict(x), labels_of(y)
        if y.shape != found.shape:
            raise PgmError(
                f"y has shape {y.shape}, expected {found.shape}: one label for each row of x"
            )
        return float(np.mean(found == y))


def _classes(y: Array) -> tuple[Array, Array, Array]:
    """Return the sorted labels, the index of the label of each row, and the rows of each label."""
    try:
        return np.unique(y, return_inverse=True, return_counts=True)
    except TypeError:
        raise PgmError(
            f"y: labels of different kinds, such as {y[0]!r}, cannot be sorted"
        ) from None


def labels_of(y: Any) -> Array:
    """Return labels from any container; PgmError for a label that is missing."""
    labels = array_of(y, "y")
    if labels.dtype.kind == "O":
        # Numbers among objects are numbers.
        labels = array_of(labels.tolist(), "y", lambda _: True)
    for row, label in enumerate(labels.ravel().tolist()):
        if is_missing(label):
            raise PgmError(f"y: row {row} is {label}, expected a label")
    texts = labels.dtype.kind == "O" and labels.size and all(type(x) is str for x in labels.flat)
    return labels.astype(str) if texts else labels


def _rows(x: Rows) -> Any:
    """Return data as an array (rows, ...); a DataFrame stays, since its columns have names."""
    if is_frame(x):
        return x
    rows = array_of(x, "x")
    if rows.ndim < 2:
        raise PgmError(
            f"x has shape {rows.shape}, expected (rows, size): one row for each thing to be "
            "classified"
        )
    return rows
