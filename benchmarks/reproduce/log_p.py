"""Salakhutdinov (2010), section 7: the distance of the variational bound from log p.

    python benchmarks/reproduce/log_p.py OUT DIRECTORY MODEL [--scale full] [--chains N]
                                         [--temperatures N] [--images N]

DIRECTORY holds the MNIST files, and MODEL is the .safetensors file of a deep Boltzmann machine that
samplers.py has learned. For the first test images of each class, drawn once as there, log p is
log Z with the image observed less log Z with nothing observed. The first one is annealed with the
given chains for each image, up and down, over hidden units that start at the base rates of their
mean-field means. Their mean-field bound is measured beside it. In the distance of the two, log Z
with nothing observed cancels, so that it has the error of the first one alone. The table shows
this error, which is of annealing, and in a column of its own the standard error over images.

Each class is a file in OUT, from which the command goes on. It writes log_p-MODEL.md.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import typer
from deep_boltzmann import both_directions
from sampler_runs import estimator

import pgmengine as pgm

sys.path.insert(0, str(Path(__file__).parents[1]))
from apart import put_block, table

# Scale -> chains, temperatures and images of each class.
SCALES = {"small": (10, 100, 1), "full": (100, 20_000, 10)}
# Probabilities of reference units are kept away from 0 and 1 by this much.
MARGIN = 0.02
PUBLISHED = "0.48"


def main(
    out: Path,
    data: Path,
    model: Path,
    scale: str = "small",
    chains: int = 0,
    temperatures: int = 0,
    images: int = 0,
    page: Path | None = None,
) -> None:
    """Measure, and write the table."""
    os.environ["PGMENGINE_DATA"] = str(data)
    out.mkdir(parents=True, exist_ok=True)
    given = (chains, temperatures, images)
    chains, temperatures, images = (n or own for n, own in zip(given, SCALES[scale], strict=True))
    machine, test = pgm.load(model), pgm.datasets.mnist(binary=False)
    grey = test.x_test.astype(np.float32)
    drawn = (np.random.default_rng(1).random(grey.shape, dtype=np.float32) < grey).astype(
        np.float32
    )
    rows = [np.flatnonzero(test.y_test == k)[:images] for k in range(10)]
    reference = hidden_rates(machine, drawn[np.concatenate(rows)])
    method = pgm.AIS(chains, temperatures, reverse=True, reference=reference, confirm=0)
    begin, found = time.time(), []
    for digit, places in enumerate(rows):
        part = out / f"log_p-{model.stem}-{chains}-{temperatures}-{images}-{digit}.npy"
        if not part.exists():
            np.save(part, measured(machine, drawn[places], method))
            print(f"[{time.time() - begin:6.0f} s] {digit}", file=sys.stderr, flush=True)
        found.append(np.load(part))
    bound, up, down, error, back = np.concatenate(found, axis=1)
    whole = both_directions(estimator(machine, drawn, 100, max(temperatures // 4, 1_000)), machine)
    log_z, n = whole["log_z"], len(bound)

    def line(name: str, values: np.ndarray, errors: np.ndarray) -> list[str]:
        noise = float(np.hypot(np.linalg.norm(errors) / n, whole["error"]))
        distance = values - bound
        return [
            name,
            f"{values.mean() - log_z:.2f} +- {noise:.2f}",
            f"{distance.mean():.3f} +- {np.linalg.norm(errors) / n:.3f}",
            f"{distance.std(ddof=1) / np.sqrt(n):.3f}",
            f"{distance.min():.2f} to {distance.max():.2f}",
        ]

    lines = [
        ["bound", f"{bound.mean() - log_z:.2f} +- {whole['error']:.2f}", "", "", ""],
        line("log p, up", up, error),
        line("log p, down", down, back),
        ["published distance", "", PUBLISHED, "", ""],
    ]
    columns = [f"{n} images, {temperatures} temperatures", "nats an image", "above the bound"]
    text = table([*columns, "error over images", "of single images"], lines)
    for path in filter(None, (out / f"log_p-{model.stem}.md", page)):
        put_block(path, f"log_p.py {model.stem}, {temperatures} temperatures", text)
    print(text)


def hidden_rates(machine: pgm.Model, images: np.ndarray) -> dict[str, np.ndarray]:
    """The natural parameters of hidden units at their mean-field means over images."""
    found = pgm.MeanField(updates=50).run(machine.given({"v": images}), ("marginals",)).mean
    rates = {k: np.clip(v.mean(axis=0), MARGIN, 1 - MARGIN) for k, v in found.items() if k != "v"}
    return {k: np.log(p / (1 - p)) for k, p in rates.items()}


def measured(machine: pgm.Model, images: np.ndarray, method: pgm.AIS) -> np.ndarray:
    """Rows of: the bound, log Z up and down, and their standard errors, for each image."""
    target = machine.given({"v": images})
    bound = pgm.MeanField(updates=500, tolerance=1e-8).run(target, ("log_z",)).log_z
    found = method.run(target, ("log_z",), rng=0)
    down = found.stats["reverse_log_z"], found.stats["reverse_error"]
    return np.stack([bound, found.log_z, down[0], found.log_z_error, down[1]])


if __name__ == "__main__":
    typer.run(main)
