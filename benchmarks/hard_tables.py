"""Lattices that chains hardly mix on: effective draws a second of Gibbs, trees and clusters.

    python benchmarks/hard_tables.py DATA [--seconds 10] [--seeds 4] [--small]
        [--out benchmarks/results/hard_tables.md]

DATA has the folder uai2014: its Grids, which are exact, are sampled as if they were not. A lattice
of couplings +-J with weak random fields, exact as well, stands beside them. Each method gets the
same seconds of the processor, and R-hat and error bars have no say: with e_i the error of the mean
of unit i and v_i its variance, both in numbers of states, the effective draws of a unit are v_i
over the mean of e_i^2 over all seeds. The hardest unit has the fewest of them, among units with a
probable state of at most 99 %. Chains that stay in one mode have about one effective draw, however
long they are.
"""

from __future__ import annotations

import gzip
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

GRIDS = ("Grids_12", "Grids_14", "Grids_16", "Grids_18")
# A unit counts if its variance is at least that of a state of probability 99 %.
LEAST_VARIANCE = 0.01 * 0.99
# Draws of the runs that measure the time of a draw.
PILOTS = (200, 1000)


def methods(rungs: int) -> dict[str, Any]:
    """Return the methods by name; ladders have some rungs."""
    trees, clusters = pgm.TreeGibbs(), pgm.Houdayer()
    ladder = pgm.ParallelTempering(rungs=rungs)
    return {
        "MCMC, Gibbs": pgm.MCMC(),
        "MCMC, TreeGibbs": pgm.MCMC(kernel=trees),
        "tempering, 12 rungs, Gibbs": pgm.ParallelTempering(),
        "tempering, Gibbs": ladder,
        "tempering, TreeGibbs": replace(ladder, kernel=trees),
        "tempering, Gibbs, Houdayer": replace(ladder, moves=clusters),
        "tempering, TreeGibbs, Houdayer": replace(ladder, kernel=trees, moves=clusters),
    }


def grid(data: Path, name: str) -> pgm.Model:
    """Return a model of uai2014."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.uai"
        file.write_bytes(gzip.decompress((data / "uai2014" / f"{name}.uai.gz").read_bytes()))
        return pgm.read(file)


def glass(side: int, beta: float, seed: int = 0) -> pgm.Model:
    """Return a square lattice of spins with couplings +-beta and fields of a tenth of that."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(seed)
    s = b.layer("s", pgm.Spin(), (side, side), bias=0.1 * beta * rng.normal(size=(side, side)))
    for one, two in ((s[1:], s[:-1]), (s[:, 1:], s[:, :-1])):
        b.couple(one, two, beta * rng.choice([-1.0, 1.0], size=one.shape))
    return b.build()


def within(method: Any, model: pgm.Model, want: tuple[str, ...], seconds: float) -> Any:
    """Return the method with as many draws as take about some seconds, a tenth of them warm-up."""
    times = []
    for draws in (PILOTS[0], *PILOTS):
        pilot = replace(method, warmup=draws // 10, draws=draws)
        begin = time.process_time()
        pgm.infer(model, want=want, method=pilot, rng=1)
        times.append(time.process_time() - begin)
    each = max(times[2] - times[1], 1e-4) / (PILOTS[1] - PILOTS[0])
    draws = max(int((seconds - times[1]) / each), 100)
    return replace(method, warmup=draws // 10, draws=draws)


def measured(
    model: pgm.Model, exact: pgm.Result, method: Any, seconds: float, seeds: int
) -> list[str]:
    """Return the cells of a method: effective draws a second, errors, log10 Z, tours, status."""
    tempered = isinstance(method, pgm.ParallelTempering)
    want = ("marginals", "log_z") if tempered else ("marginals",)
    settled = within(method, model, want, seconds)
    truth = np.concatenate([exact.mean[n].ravel() for n in exact.mean])
    variance = np.concatenate([_variance(exact, n) for n in exact.mean])
    errors, spent, good, log_z, tours = [], 0.0, 0, [], []
    for seed in range(seeds):
        begin = time.process_time()
        r = pgm.infer(model, want=want, method=settled, rng=seed)
        spent += time.process_time() - begin
        errors.append(np.concatenate([r.mean[n].ravel() for n in r.mean]) - truth)
        good += r.status.good
        if tempered:
            log_z.append(abs(float(r.log_z[0] - exact.log_z[0])) / np.log(10))
            tours.append(float(r.stats["tours"][0]))
    square, some = np.mean(np.square(errors), axis=0), variance >= LEAST_VARIANCE
    each = spent / seeds
    hardest = (variance[some] / np.maximum(square[some], 1e-300)).min()
    every = variance[some].sum() / square[some].sum()
    return [
        f"{hardest / each:.2g}",
        f"{every / each:.2g}",
        f"{np.abs(errors).max():.3f}",
        f"{np.mean(log_z):.3f}" if tempered else "",
        f"{np.median(tours):.0f}" if tempered else "",
        f"{good} of {seeds}",
        f"{each:.1f}",
    ]


def _variance(exact: pgm.Result, name: str) -> np.ndarray:
    """Return the variance of the value of each unit of a layer with two states, (size,)."""
    support = exact.target.structure.layers[name].unit.support
    share = np.asarray(exact.prob[name]).reshape(-1, len(support))
    return (share @ support**2 - (share @ support) ** 2).ravel()


def main(
    data: Path,
    seconds: float = 10.0,
    seeds: int = 4,
    rungs: int = 40,
    small: bool = False,
    only: Annotated[str, typer.Option(help="a part of the names of models")] = "",
    out: Path | None = None,
) -> None:
    """Measure all methods on all models, and print the table of each."""
    models = {name: grid(data, name) for name in GRIDS} | {
        "glass 16x16, beta 1": glass(16, 1.0),
        "glass 16x16, beta 2": glass(16, 2.0),
    }
    heads = ["method", "effective draws a second, hardest unit", "all units"]
    heads += ["largest error of a mean", "mean error of log10 Z", "tours", "good", "seconds"]
    for name, model in models.items():
        if only not in name:
            continue
        exact = pgm.infer(model, want=("log_z", "marginals"), method=pgm.Exact())
        log_z = float(exact.log_z[0]) / np.log(10)
        title = f"{name}: {model.structure.units} units, log10 Z = {log_z:.3f}"
        rows = []
        for label, method in methods(8 if small else rungs).items():
            cells = measured(model, exact, method, seconds, seeds)
            rows.append([label, *cells])
            print(name, *rows[-1], sep=" | ", flush=True)
        text = "\n\n".join([f"{title}:", table(heads, rows)])
        print(text)
        if out is not None:
            put_block(out, f"hard_tables.py, {name}", text)


if __name__ == "__main__":
    typer.run(main)
