"""ln Z of Salakhutdinov's CD25(500) RBM of MNIST by annealing there and back, and the test
log-likelihood.

    python benchmarks/reproduce/public_weights.py mnistvh_CD25.mat DIRECTORY [--temperatures 20000]
    [--chains 500]

DIRECTORY holds the MNIST files. Published: ln Z = 451.28, test images at about -86.34. The images
are binarised at random, which moves their mean by about 0.1.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import typer
from scipy.io import loadmat

import pgmengine as pgm


def main(weights: Path, data: Path, temperatures: int = 20_000, chains: int = 500) -> None:
    """Print the estimate, its interval, and the mean log-likelihood."""
    os.environ["PGMENGINE_DATA"] = str(data)
    raw, mnist, begin = loadmat(weights), pgm.datasets.mnist(rng=0), time.perf_counter()
    model = pgm.rbm(784, 500).with_params(
        {"v.bias": raw["visbiases"][0], "h.bias": raw["hidbiases"][0], "v-h.weight": raw["vishid"]}
    )
    method = pgm.AIS(
        chains=chains,
        betas=pgm.ThreePiece(temperatures),
        reference=pgm.base_rates(model, {"v": mnist.x_train}),
    )
    r = pgm.infer(model, want=("log_z",), method=method, rng=0)
    low, high = r.log_z_interval[0]
    print(
        f"{temperatures} temperatures, {chains} chains: ln Z {r.log_z[0]:.3f} +- "
        f"{r.log_z_error[0]:.3f} up, "
        f"{r.stats['reverse_log_z'][0]:.3f} down, interval {low:.2f} .. {high:.2f}, effective "
        f"{r.stats['ess'][0]:.0f}, "
        f"{time.perf_counter() - begin:.0f} s"
    )
    parts = [
        pgm.infer(model, {"v": x}, want=("log_z",)).log_z for x in np.array_split(mnist.x_test, 20)
    ]
    print(
        f"mean log-likelihood of {len(mnist.x_test)} test images: "
        f"{np.concatenate(parts).mean() - r.log_z[0]:.2f}"
    )


if __name__ == "__main__":
    typer.run(main)
