"""Time of sampled answers beside the same sweeps in plain numpy, and the share that judging takes.

    python benchmarks/judging.py [--repeat 3]

Each case asks for means by Gibbs sampling, with all diagnostics of `infer`. The loop in numpy draws
the same number of sweeps of as many chains, layer by layer in blocks, and sums up the states. Both
run in one process, in turns, on as many threads as the environment allows (PGMENGINE_THREADS, and
OPENBLAS_NUM_THREADS for numpy). A first run does not count; the medians of the others are compared.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import pgmengine as pgm
from pgmengine.infer.sampling.draws.collected import Draws


@dataclass(frozen=True)
class Case:
    """A model of binary layers in a row, evidence on its first layer, and a method."""

    name: str
    model: pgm.Model
    evidence: dict[str, np.ndarray] | None
    method: pgm.MCMC


def digits(rows: int, missing: float) -> dict[str, np.ndarray]:
    """Return random images of 28x28 pixels, of which the last ones are missing."""
    x = (np.random.default_rng(0).random((rows, 784)) < 0.2).astype(float)
    x[:, round(784 * (1 - missing)) :] = np.nan
    return {"v": x}


def cases() -> list[Case]:
    """Return completions, many short chains, a deep model, and a short block of rows."""
    wide, deep = pgm.rbm(784, 100, rng=0), pgm.dbm([400, 300, 200], rng=0)
    return [
        Case("200 half images, RBM 784x100", wide, digits(200, 0.5), pgm.MCMC()),
        Case("5 half images, RBM 784x100", wide, digits(5, 0.5), pgm.MCMC()),
        Case("60 chains of 20 draws, RBM 1200x80", pgm.rbm(1200, 80, rng=0), None,
             pgm.MCMC(chains=60, draws=20)),
        Case("20 chains, DBM 400-300-200", deep, None, pgm.MCMC(chains=20)),
    ]  # fmt: skip


def numpy_loop(case: Case) -> list[np.ndarray]:
    """Draw the same sweeps in numpy: every other layer at once, given the layers in between.

    Returns the mean of the draws of each chain, for the free units of the first layer and for all
    units of the others.
    """
    method, params, names = case.method, case.model.params, list(case.model.structure.layers)
    biases = [np.asarray(params[f"{n}.bias"]) for n in names]
    weights = [
        np.asarray(params[f"{a}-{b}.weight"]) for a, b in zip(names, names[1:], strict=False)
    ]
    given = np.full((1, len(biases[0])), np.nan) if case.evidence is None else case.evidence["v"]
    given = np.repeat(given, method.chains, axis=0)
    free = np.isnan(given).any(axis=0)
    rng = np.random.default_rng(0)
    x = [(rng.random((len(given), len(b))) < 0.5).astype(float) for b in biases]
    # The observed columns of the first layer add to the input of the second one once and for all.
    known = np.where(np.isnan(given), 0.0, given)[:, ~free] @ weights[0][~free]
    x[0], biases[0], weights[0] = x[0][:, free], biases[0][free], weights[0][free]
    total = [np.zeros_like(v) for v in x]
    for sweep in range(method.warmup + method.draws * method.thin):
        for first in (1, 0):
            for i in range(first, len(x), 2):
                field = biases[i] + (known if i == 1 else 0.0)
                if i > 0:
                    field = field + x[i - 1] @ weights[i - 1]
                if i + 1 < len(x):
                    field = field + x[i + 1] @ weights[i].T
                x[i] = (rng.random(field.shape) < 1 / (1 + np.exp(-field))).astype(float)
        if sweep >= method.warmup:
            for sums, now in zip(total, x, strict=True):
                sums += now
    return [sums / method.draws for sums in total]


def measured(function: Any) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def compared(case: Case, inside: list[float]) -> tuple[float, float, float]:
    """Return the seconds of `infer` and of numpy, and the share of judging, which `inside` sums."""
    inside[0] = 0.0
    own = measured(lambda: pgm.infer(case.model, case.evidence, method=case.method, rng=0))
    return own, measured(lambda: numpy_loop(case)), inside[0] / own


def main() -> None:
    """Print the seconds of each case, of numpy, their ratio, and the share of judging."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    judged, inside = Draws.judged, [0.0]

    def timed(*args: Any) -> Any:
        begin = time.perf_counter()
        try:
            return judged(*args)
        finally:
            inside[0] += time.perf_counter() - begin

    Draws.judged = timed  # type: ignore[method-assign]
    print(f"{'case':38s} {'infer s':>8s} {'numpy s':>8s} {'ratio':>6s} {'judging':>8s}")
    for case in cases():
        runs = [compared(case, inside) for _ in range(repeat + 1)][1:]
        own, other, share = np.median(runs, axis=0)
        print(f"{case.name:38s} {own:8.2f} {other:8.2f} {own / other:6.2f} {share:8.0%}")


if __name__ == "__main__":
    main()
