"""Estimators for scikit-learn with their defaults, beside estimators of the same kind.

python benchmarks/estimators.py [--mnist FOLDER] [--rows 5000] [--grid]

FOLDER holds the four files of MNIST (*-ubyte.gz), whose pixels are binarised at 127. Without it the
8x8 digits of scikit-learn are taken. `--grid` compares settings of the defaults instead, on a fifth
of the training rows that is held out; the test rows are never read there.
"""

import argparse
import gzip
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import BernoulliRBM, MLPClassifier
from sklearn.pipeline import make_pipeline

import pgmengine as pgm
from pgmengine.sklearn import DRBMClassifier, GenerativeClassifier, RBMTransformer

# Images of each class from which models of classes learn, as a share of the others.
FEW = 0.4


def mnist(folder):
    """Return (training rows, labels, test rows, labels)."""
    out = []
    for part in ("train", "t10k"):
        for kind, skip in (("images-idx3", 16), ("labels-idx1", 8)):
            raw = gzip.decompress((Path(folder) / f"{part}-{kind}-ubyte.gz").read_bytes())[skip:]
            numbers = np.frombuffer(raw, np.uint8)
            out.append(
                (numbers.reshape(-1, 784) > 127) * 1.0 if skip == 16 else numbers.astype(int)
            )
    return out


def split(x, y):
    """Return (training rows, labels, held-out rows, labels)."""
    a, b, ya, yb = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
    return a, ya, b, yb


def sets(folder):
    """Return name -> (training rows, labels, test rows, labels)."""
    digits = datasets.load_digits(return_X_y=True)
    out = {
        "digits": split(*digits),
        "binary digits": split((digits[0] > 7) * 1.0, digits[1]),
        "breast cancer": split(*datasets.load_breast_cancer(return_X_y=True)),
        "wine": split(*datasets.load_wine(return_X_y=True)),
        "iris": split(*datasets.load_iris(return_X_y=True)),
    }
    return ({"MNIST": mnist(folder)} if folder else {}) | out


def features(transformer):
    """Return a transformer in front of logistic regression."""
    return make_pipeline(transformer, LogisticRegression(max_iter=300))


def estimators(binary, components):
    """Return kind -> name -> estimator with its defaults."""
    generative = {"GenerativeClassifier": GenerativeClassifier(random_state=0)}
    generative |= {"GaussianNB": GaussianNB()}
    out = {
        "labels": {
            "DRBMClassifier": DRBMClassifier(random_state=0),
            "LogisticRegression": LogisticRegression(max_iter=1000),
            "MLPClassifier": MLPClassifier(random_state=0),
        },
        "models of classes": generative,
    }
    if binary:
        generative["BernoulliNB"] = BernoulliNB()
        out["features"] = {
            "RBMTransformer": features(RBMTransformer(components, random_state=0)),
            "BernoulliRBM": features(BernoulliRBM(components, random_state=0)),
        }
    return out


def compare(folder, rows, components):
    """Print the accuracy and the seconds of every estimator on every set."""
    for name, (x, y, xt, yt) in sets(folder).items():
        binary = np.isin(x, (0, 1)).all()
        for kind, found in estimators(binary, components).items():
            some = slice(int(rows * (FEW if kind == "models of classes" else 1)))
            for title, estimator in found.items():
                start = time.perf_counter()
                estimator.fit(x[some], y[some])
                seconds = time.perf_counter() - start
                score = estimator.score(xt, yt)
                print(f"| {name} | {kind} | {title} | {score:.4f} | {seconds:.1f} s |", flush=True)


def grid(folder, rows):
    """Print the accuracy of settings on a fifth of the training rows that is held out."""
    for name, (x, y, _, _) in sets(folder).items():
        part = split(x[:rows], y[:rows])
        binary = np.isin(x, (0, 1)).all()
        size = int(np.clip(len(part[0]) // 20, 10, 100))
        updates = 20 * -(-len(part[0]) // size)
        for unit, rate, alpha in product(
            (pgm.Binary(), pgm.MultiValued(np.inf)), (0.003, 0.01, 0.03), (1e-4, 1e-3, 5e-3)
        ):
            falling = pgm.Adam(pgm.linear_decay(rate, updates), weight_decay=alpha)
            tried(name, (unit, rate, alpha), DRBMClassifier(hidden=unit, optimizer=falling), part)
        for kind, rate, (passes, size) in product(
            (pgm.SGD, pgm.Adam) if binary else (pgm.Adam,),
            (0.003, 0.01, 0.05, 0.1, 0.2, 0.4),
            ((10, 20), (20, 20), (20, 50), (50, 20)),
        ):
            updates = passes * -(-len(part[0]) // size)
            settings = {"n_iter": passes, "batch_size": size}
            setting = (kind.__name__, rate, passes, size)
            make = partial(RBMTransformer, 200, random_state=0, **settings)
            optimizer = kind(pgm.linear_decay(rate, updates))
            tried(name, setting, features(make(optimizer=optimizer)), part)


def tried(name, setting, estimator, part):
    """Print the accuracy of one setting; diverged fits are said to be so."""
    x, y, xt, yt = part
    try:
        said = f"{estimator.fit(x, y).score(xt, yt):.4f}"
    except pgm.PgmError as error:
        said = str(error)
    print(f"| {name} | {setting} | {said} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", help="the folder of MNIST")
    parser.add_argument("--rows", type=int, default=5000, help="training rows")
    parser.add_argument("--components", type=int, default=200, help="features")
    parser.add_argument("--grid", action="store_true", help="compare settings")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.grid:
        grid(given.mnist, given.rows)
    else:
        compare(given.mnist, given.rows, given.components)
