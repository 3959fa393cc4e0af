"""GenerativeClassifier: one model for each class, and Bayes' rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgmengine.base.checks import seeded
from pgmengine.base.errors import PgmError
from pgmengine.base.numerics import log_sum
from pgmengine.base.types import Array
from pgmengine.graph.frames import is_frame
from pgmengine.graph.model import Model
from pgmengine.infer.ask import infer
from pgmengine.learn.fit import fit
from pgmengine.learn.interrupt import pass_on


@dataclass(eq=False)
class GenerativeClassifier:
    """log p(class | x) = log p(x | class) + log p(class) + const, with log p(x | class) or its
    bound from a model each.

    Parameters
    ----------
    model : the model that each class starts from, or a function from the number of a class (0, 1,
        ...) to one.
    learn : called as learn(model, {layer: rows of the class}, rng=generator); its result has
        `model`. By default pgm.fit without a progress bar; functools.partial(pgm.fit, ...) sets
        more.
    method : how log p(x | class) is inferred; Auto() by default. With MeanField() it is a bound.
    layer : the layer that holds x.
    rng : int or numpy Generator.

    After fit: `classes_` (the labels, sorted), `models_` (one each), `log_prior_` (log of their
    shares). Ctrl-C in fit raises KeyboardInterrupt. x may hold NaN: missing values are summed out,
    in learning as in prediction.

    >>> import numpy as np
    >>> import pgmengine as pgm
    >>> x = np.array([[0.0, 0], [0, 1], [1, 1], [1, 0]] * 5)
    >>> model = pgm.GenerativeClassifier(pgm.sbn([2, 2], rng=0)).fit(x, x[:, 0].astype(int))
    >>> model.predict([[1, np.nan]])
    array([1])
    """

    model: Model | Callable[[int], Model]
    learn: Callable[..., Any] | None = None
    method: Any = None
    layer: str = "v"
    rng: Any = 0

    def fit(self, x: Any, y: Any) -> GenerativeClassifier:
        """Learn a model from the rows of each class; x (rows, size), y (rows,) labels."""
        x, y = _rows(x), np.asarray(y)
        if y.ndim != 1 or len(x) != len(y):
            raise PgmError(
                f"y has shape {y.shape}, expected ({len(x)},): one label for each row of x"
            )
        if not len(y):
            raise PgmError("x has no rows")
        self.classes_, number, counts = _classes(y)
        generators = seeded(self.rng).spawn(len(self.classes_))
        learn, rows = self.learn or _quiet_fit, getattr(x, "iloc", x)
        self.log_prior_ = np.log(counts / len(y))
        models = []
        for c, generator in enumerate(generators):
            found = learn(self._start(c), {self.layer: rows[number == c]}, rng=generator)
            pass_on(found)
            models.append(found.model)
        self.models_ = models
        return self

    def _start(self, c: int) -> Model:
        return self.model if isinstance(self.model, Model) else self.model(c)

    def log_prob(self, x: Any, rng: Any = 0) -> Array:
        """Log p(x | class), or its bound, (rows, classes)."""
        if not hasattr(self, "models_"):
            raise PgmError("this GenerativeClassifier is not fitted yet: call fit(x, y) first")
        x = _rows(x)
        found = [
            infer(model, {self.layer: x}, want=("log_prob",), method=self.method, rng=rng).log_prob
            for model in self.models_
        ]
        return np.stack(found, axis=1)

    def predict_log_proba(self, x: Any) -> Array:
        """Log p(class | x), (rows, classes); the prior for a row that no class can explain."""
        joint = self.log_prob(x) + self.log_prior_
        known = np.isfinite(joint).any(axis=1, keepdims=True)
        joint = np.where(known, joint, self.log_prior_)
        return joint - log_sum(joint)[:, None]

    def predict_proba(self, x: Any) -> Array:
        """p(class | x), (rows, classes)."""
        return np.exp(self.predict_log_proba(x))

    def predict(self, x: Any) -> Array:
        """The most probable label of each row."""
        best = self.predict_log_proba(x).argmax(axis=1)
        return self.classes_[best]

    def score(self, x: Any, y: Any) -> float:
        """The share of rows whose label is predicted."""
        found, y = self.predict(x), np.asarray(y)
        if y.shape != found.shape:
            raise PgmError(
                f"y has shape {y.shape}, expected {found.shape}: one label for each row of x"
            )
        return float(np.mean(found == y))


def _classes(y: Array) -> tuple[Array, Array, Array]:
    """The labels, sorted; the number of each row's; how many rows each has."""
    for row, label in enumerate(y.tolist()):
        try:
            missing = label is None or bool(label != label)  # NaN alone differs from itself,
        except (TypeError, ValueError):  # pandas.NA does not say, an array has several answers
            missing = True
        if missing:
            raise PgmError(f"y: row {row} is {label}, expected a label")
    try:
        return np.unique(y, return_inverse=True, return_counts=True)
    except TypeError:
        raise PgmError(
            f"y: labels of different kinds, such as {y[0]!r}, cannot be sorted"
        ) from None


def _rows(x: Any) -> Any:
    """Data as an array (rows, ...); DataFrames as they are, whose columns have names."""
    if is_frame(x):
        return x
    if hasattr(x, "toarray"):
        x = x.toarray()
    x = np.asarray(x)
    if x.ndim < 2:
        raise PgmError(
            f"x has shape {x.shape}, expected (rows, size): one row for each thing to be classified"
        )
    return x


def _quiet_fit(model: Model, data: Any, rng: Any) -> Any:
    return fit(model, data, rng=rng, progress=False)
