"""Chains of real observations: the default `fit` beside twelve fits of hmmlearn.

    python benchmarks/gaussian_chains.py [--out benchmarks/results/learning.md]

Both learn the means and standard deviations of three states, one after the other, on one thread
(set PGMENGINE_THREADS=1 and OPENBLAS_NUM_THREADS=1). `fit` begins at the best of twelve random
starts. hmmlearn is started twelve times, and the best of its log-likelihoods counts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import typer
from apart import put_block, table
from hmmlearn.hmm import GaussianHMM

import pgmengine as pgm

CASES = [(6, 60, 80), (150, 50, 199), (25, 2000, 2200)]
STARTS = 12


def normal(steps: int) -> pgm.GraphBuilder:
    """Return a chain of three states with real observations."""
    b = pgm.GraphBuilder()
    z, x = b.variable("z", states=3, shape=steps), b.layer("x", pgm.Normal(), steps)
    b.conditional(z[0], (), np.ones(3) / 3, name="start")
    b.conditional(z[1:], (z[:-1],), np.ones((3, 3)) / 3, name="transition")
    b.cause(z, x, np.zeros((3, 2)), name="emission")
    return b


def drawn(rng: np.random.Generator, count: int, least: int, most: int) -> list[np.ndarray]:
    """Return sequences of different lengths."""
    out = []
    for steps in rng.integers(least, most + 1, count):
        z = [rng.integers(3)]
        for _ in range(1, steps):
            z.append(z[-1] if rng.random() < 0.9 else rng.integers(3))
        out.append(rng.normal(np.array([-1.0, 0.0, 1.5])[z], np.array([0.2, 0.6, 0.3])[z]))
    return out


def main(out: Path | None = None) -> None:
    """Measure, and print the table."""
    rows, load = [], os.getloadavg()[0]
    for count, least, most in CASES:
        x = drawn(np.random.default_rng(0), count, least, most)
        begin = time.perf_counter()
        f = pgm.fit(pgm.Template(normal), [{"x": row} for row in x], rng=0, progress=False)
        ours = time.perf_counter() - begin
        value = float(f.history["objective"]["value"][-1]) * count
        lengths, best, begin = list(map(len, x)), -np.inf, time.perf_counter()
        for seed in range(STARTS):
            h = GaussianHMM(3, covariance_type="diag", n_iter=300, tol=1e-3, random_state=seed)
            flat = np.concatenate(x)[:, None]
            best = max(best, h.fit(flat, lengths).score(flat, lengths))
        theirs = time.perf_counter() - begin
        name = f"{count} sequences of {least} to {most} steps"
        rows.append([name, f"{ours:.1f} s", f"{theirs:.1f} s", f"{value:.3f}", f"{best:.3f}"])
        print(rows[-1], flush=True)
    text = (
        "## Chains of real observations\n\nThe default `fit`, and twelve fits of hmmlearn, of "
        f"which the best counts. Load at the start: {load:.1f}.\n\n"
    )
    heads = ["data", "pgmengine", "hmmlearn, 12 fits", "log p, pgmengine", "log p, hmmlearn"]
    text += table(heads, rows)
    if out is not None:
        put_block(out, "gaussian_chains.py", text + "\n")


if __name__ == "__main__":
    typer.run(main)
