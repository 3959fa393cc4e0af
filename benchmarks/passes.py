"""How many passes over small data are a good default of the estimators?

    python benchmarks/passes.py [--out benchmarks/results/estimators.md] [--small]

Accuracy by cross-validation in three parts, mean over seeds, of features of 100 units with logistic
regression, and of one model for each class; error of filled cells, of which 15 % are hidden. The
data come along with scikit-learn. "Default" is as many passes as make MIN_UPDATES updates, and at
least MIN_PASSES. `--out` replaces the block in a file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import typer
from apart import put_block, table
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pgmengine.sklearn import GenerativeClassifier, GraphicalImputer, RBMTransformer

DATA = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
PASSES = {"20 passes": 20, "50 passes": 50, "default": None}
HIDDEN_SHARE = 0.15


def features(x: np.ndarray, y: np.ndarray, passes: int | None, seed: int) -> float:
    """Return the accuracy of logistic regression on features."""
    rbm = RBMTransformer(100, n_iter=passes, random_state=seed)
    return accuracy(make_pipeline(rbm, LogisticRegression(max_iter=2000)), x, y, seed)


def models(x: np.ndarray, y: np.ndarray, passes: int | None, seed: int) -> float:
    """Return the accuracy of one model for each class."""
    return accuracy(GenerativeClassifier(n_iter=passes, random_state=seed), x, y, seed)


def accuracy(estimator: object, x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Return the mean accuracy over three parts, which are drawn by the seed."""
    parts = StratifiedKFold(3, shuffle=True, random_state=seed)
    return float(cross_val_score(estimator, x, y, cv=parts).mean())


def filled(x: np.ndarray, y: np.ndarray, passes: int | None, seed: int) -> float:
    """Return the error of cells that were hidden."""
    imputer = GraphicalImputer(n_iter=passes, random_state=seed)
    return error_of(imputer.fit_transform, x, seed)


def error_of(fill: Callable[[np.ndarray], np.ndarray], x: np.ndarray, seed: int) -> float:
    """Return the root mean square error of hidden cells."""
    hidden = np.random.default_rng(seed).random(x.shape) < HIDDEN_SHARE
    return float(np.sqrt(np.mean((fill(np.where(hidden, np.nan, x)) - x)[hidden] ** 2)))


KINDS = {"features": features, "models of classes": models, "filled cells": filled}


def main(out: Path | None = None, seeds: int = 5, small: bool = False) -> None:
    """Measure, and print the table."""
    rows, counts = [], range(1 if small else seeds)
    # Some runs end before learning has come to rest, which is the question here.
    warnings.simplefilter("ignore")
    for name, load in list(DATA.items())[: 1 if small else None]:
        x, y = load(return_X_y=True)
        x = (x > 7).astype(float) if name == "digits" else StandardScaler().fit_transform(x)
        for kind, measured in KINDS.items():
            each = [[measured(x, y, passes, seed) for seed in counts] for passes in PASSES.values()]
            knn = np.mean([error_of(KNNImputer().fit_transform, x, seed) for seed in counts])
            beside = f"{knn:.3f} (KNNImputer)" if kind == "filled cells" else ""
            rows.append([f"{name}, {kind}", *map(text_of, each), beside])
            print(*rows[-1], sep=" | ", flush=True)
    text = table(["data and estimator", *PASSES, "beside"], rows)
    if out is not None:
        put_block(out, "passes.py", text)


def text_of(values: list[float]) -> str:
    """Return a mean, and its standard error over seeds."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.3f} +- {error:.3f}"


if __name__ == "__main__":
    typer.run(main)
