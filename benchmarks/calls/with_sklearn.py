"""Estimators with the interface of scikit-learn: a classifier of images, and an imputer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import material
import numpy as np
from harness import Settings

from calls import OURS, Answer, Array, Call, Given, spent, with_holes


def calls(given: Given) -> Iterator[Call]:
    """Yield the calls."""
    yield classifier(given)
    yield imputer(given)


def digits(given: Given) -> tuple[Array, Array, Array, Array]:
    """Return training rows, labels, test rows, labels: binary images of MNIST, or drawn ones."""
    rows, tests = given.size(5000, 80), given.size(1000, 80)
    if given.data is not None:
        from estimators import mnist

        x, y, x_test, y_test = mnist(given.data / "mnist")
        return x[:rows], y[:rows], x_test[:tests], y_test[:tests]
    # Ten shapes, of whose pixels a tenth is changed.
    rng = np.random.default_rng(0)
    shapes, y = material.images(Settings(), 10), rng.integers(10, size=rows + tests)
    x = np.abs(shapes[y] - (rng.random((rows + tests, 784)) < 0.1))
    return x[:rows], y[:rows], x[rows:], y[rows:]


def classifier(given: Given) -> Call:
    """Return the call of one model for each class: learning, and labels of new rows."""

    def measured(make: Any) -> Answer:
        x, y, x_test, y_test = digits(given)
        estimator = make()
        seconds, found = spent(lambda: estimator.fit(x, y).predict(x_test))
        return Answer(seconds, float(np.mean(found == y_test)))

    def ours() -> Answer:
        from pgmengine.sklearn import GenerativeClassifier

        # Two passes are enough to try the call.
        passes = {"n_iter": 2} if given.small else {}
        return measured(lambda: GenerativeClassifier(random_state=0, **passes))

    def theirs() -> Answer:
        from sklearn.neural_network import MLPClassifier

        return measured(lambda: MLPClassifier(random_state=0))

    def naive() -> Answer:
        from sklearn.naive_bayes import BernoulliNB

        return measured(BernoulliNB)

    cases = {OURS: ours, "scikit-learn, MLPClassifier": theirs}
    cases["scikit-learn, BernoulliNB"] = naive
    name = "GenerativeClassifier, 5,000 digits of 784 pixels, and labels of 1,000"
    return Call(name, cases, "accuracy", 1, 0.005, limit=20.0)


def imputer(given: Given) -> Call:
    """Return the call of an imputer of the wine table, of which a fifth is hidden."""
    share, theirs_name = 0.2, "scikit-learn, IterativeImputer"

    def measured(make: Any) -> Answer:
        from sklearn.datasets import load_wine

        x = load_wine().data[: given.size(178, 50)]
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        holes = with_holes(x, share, seed=0)
        estimator = make()
        with warnings.catch_warnings():
            # IterativeImputer says that it stops before it converges.
            warnings.simplefilter("ignore")
            seconds, filled = spent(lambda: estimator.fit_transform(holes))
        return Answer(seconds, float(np.sqrt(np.square(filled - x)[np.isnan(holes)].mean())))

    def ours() -> Answer:
        from pgmengine.sklearn import GraphicalImputer

        return measured(lambda: GraphicalImputer(random_state=0))

    def theirs() -> Answer:
        from sklearn.experimental import enable_iterative_imputer  # noqa: F401
        from sklearn.impute import IterativeImputer

        return measured(lambda: IterativeImputer(random_state=0))

    name = f"imputer, wine table of 178x13, {share:.0%} of the cells empty"
    cases = {OURS: ours, theirs_name: theirs}
    return Call(name, cases, "rmse", -1, 0.01, limit=2.8)
