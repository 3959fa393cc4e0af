"""How well does GraphicalImputer fill cells, and which defaults suit it?

    python benchmarks/filled_cells.py [--out benchmarks/results/estimators.md] [--grid] [--small]

Root mean square error of filled cells of standardised columns, of which 15 % are hidden; mean over
seeds with its standard error. The data come along with scikit-learn. The defaults of the noise and
of the number of hidden units were chosen with `--grid` on wine, diabetes and the grey digits; the
other data were not looked at for the choice. `--out` replaces the block in a file.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
import typer
from apart import put_block, table
from passes import error_of, text_of
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.preprocessing import StandardScaler

from pgmengine.sklearn import GraphicalImputer

CHOICE = {"wine": load_wine, "diabetes": load_diabetes, "grey digits": load_digits}
OTHERS = {"breast cancer": load_breast_cancer, "iris": load_iris, "binary digits": load_digits}
NOISE, UNITS = (1.0, 0.8, 0.6, 0.5, 0.4), (16, 32, 64, 128)


def columns(name: str) -> np.ndarray:
    """Return the rows of a data set, standardised unless they are binary."""
    x = (CHOICE | OTHERS)[name](return_X_y=True)[0]
    if name == "binary digits":
        return (x > 7).astype(float)
    return np.asarray(StandardScaler().fit_transform(x[:, x.std(axis=0) > 0]))


class Noisy(GraphicalImputer):
    """The imputer with another noise, for the choice of its default."""

    noise = 1.0


def former(seed: int) -> Noisy:
    """Return the imputer with the defaults of earlier versions."""
    return Noisy(16, random_state=seed)


IMPUTERS = {
    "GraphicalImputer": lambda seed: GraphicalImputer(random_state=seed),
    "before": former,
    "KNNImputer": lambda seed: KNNImputer(),
    "IterativeImputer": lambda seed: IterativeImputer(random_state=seed),
    "means": lambda seed: SimpleImputer(),
}


def main(out: Path | None = None, seeds: int = 5, grid: bool = False, small: bool = False) -> None:
    """Measure, and print the tables."""
    # Some runs end before learning has come to rest, which is not the question here.
    warnings.simplefilter("ignore")
    counts = range(1 if small else seeds)
    found = [_beside(counts, small)]
    if grid:
        found.append(_grid(counts, small))
    if out is not None:
        put_block(out, "filled_cells.py", "\n\n".join(found))


def _grid(counts: range, small: bool) -> str:
    """Return the errors of each noise and number of hidden units."""
    rows = []
    for name in list(CHOICE)[: 1 if small else None]:
        x = columns(name)
        for units in UNITS[: 1 if small else None]:
            each = []
            for noise in NOISE[: 1 if small else None]:
                Noisy.noise = noise
                imputers = [Noisy(units, random_state=seed) for seed in counts]
                each.append([error_of(i.fit_transform, x, s) for s, i in enumerate(imputers)])
            rows.append([f"{name}, {units} units", *map(text_of, each)])
            print(*rows[-1], sep=" | ", flush=True)
    noises = [f"noise {noise}" for noise in NOISE[: 1 if small else None]]
    return table(["data and units", *noises], rows)


def _beside(counts: range, small: bool) -> str:
    """Return the errors and seconds of the defaults, beside those of other imputers."""
    rows = []
    for name in list(CHOICE | OTHERS)[: 1 if small else None]:
        x, cells = columns(name), []
        for make in IMPUTERS.values():
            begin = time.perf_counter()
            each = [error_of(make(seed).fit_transform, x, seed) for seed in counts]
            seconds = (time.perf_counter() - begin) / len(each)
            cells.append(f"{text_of(each)}, {seconds:.1f} s")
        rows.append([name, *cells])
        print(*rows[-1], sep=" | ", flush=True)
    return table(["data", *IMPUTERS], rows)


if __name__ == "__main__":
    typer.run(main)
