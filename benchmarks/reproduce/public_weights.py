"""ln Z of Salakhutdinov's CD25(500) RBM of MNIST by annealing there and back, and the test
log-likelihood.

    python benchmarks/reproduce/public_weights.py OUT mnistvh_CD25.mat DIRECTORY [--scale full]
    [--temperatures N] [--chains N]

DIRECTORY holds the MNIST files. Published: ln Z = 451.28, test images at about -86.34. The images
are binarised at random, which moves their mean by about 0.1. `full` anneals 500 chains through
20,000 temperatures, `small` tries the command in seconds.

Writes public_weights.txt and a picture of receptive fields into OUT, and the estimate into
OUT/parts, from where it is taken when the command is run again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import typer
from scipy.io import loadmat
from sweep import kept

import pgmengine as pgm

# Temperatures and chains.
SCALES = {"small": (40, 20), "full": (20_000, 500)}


def main(
    out: Path,
    weights: Path,
    data: Path,
    scale: str = "small",
    temperatures: int = 0,
    chains: int = 0,
) -> None:
    """Write the estimate, its interval, and the mean log-likelihood."""
    os.environ["PGMENGINE_DATA"] = str(data)
    out.mkdir(parents=True, exist_ok=True)
    temperatures, chains = temperatures or SCALES[scale][0], chains or SCALES[scale][1]
    raw = loadmat(weights)
    model = pgm.rbm(*raw["vishid"].shape).with_params(
        {"v.bias": raw["visbiases"][0], "h.bias": raw["hidbiases"][0], "v-h.weight": raw["vishid"]}
    )
    name = f"annealing-{temperatures}-{chains}"
    r = kept(out / "parts", name, estimates, model, temperatures, chains)
    low, high = r["interval"]
    text = (
        f"{temperatures} temperatures, {chains} chains: ln Z {r['log_z']:.3f} +- "
        f"{r['error']:.3f} up, {r['reverse']:.3f} down, interval {low:.2f} .. {high:.2f}, "
        f"effective {r['ess']:.0f}, {r['seconds']:.0f} s\n"
        f"mean log-likelihood of {r['images']} test images: {r['likelihood']:.2f}\n"
    )
    (out / "public_weights.txt").write_text(text)
    print(text, end="")
    figure(raw["vishid"], out / "public_weights.png")


def estimates(model: pgm.Model, temperatures: int, chains: int) -> dict[str, np.ndarray]:
    """The estimate of ln Z by annealing in both directions, and the mean log-likelihood."""
    mnist, begin = pgm.datasets.mnist(rng=0), time.perf_counter()
    method = pgm.AIS(
        chains=chains,
        betas=pgm.ThreePiece(temperatures),
        reference=pgm.base_rates(model, {"v": mnist.x_train}),
    )
    r = pgm.infer(model, want=("log_z",), method=method, rng=0)
    took = time.perf_counter() - begin
    parts = [
        pgm.infer(model, {"v": x}, want=("log_z",)).log_z for x in np.array_split(mnist.x_test, 20)
    ]
    return {
        "log_z": r.log_z[0],
        "error": r.log_z_error[0],
        "reverse": r.stats["reverse_log_z"][0],
        "interval": r.log_z_interval[0],
        "ess": r.stats["ess"][0],
        "seconds": np.array(took),
        "images": np.array(len(mnist.x_test)),
        "likelihood": np.concatenate(parts).mean() - r.log_z[0],
    }


def figure(weights: np.ndarray, path: Path) -> None:
    """The weights of the first hidden units as images, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    side = round(len(weights) ** 0.5)
    some = weights.T[:20].reshape(-1, side, side)
    rows = [np.hstack(some[i : i + 10]) for i in range(0, len(some) - len(some) % 10, 10)]
    whole, axis = plt.subplots(figsize=(8, 2), layout="constrained")
    axis.imshow(np.vstack(rows), cmap="gray")
    axis.set_axis_off()
    whole.savefig(path, dpi=72)


if __name__ == "__main__":
    typer.run(main)
