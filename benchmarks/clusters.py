"""Cluster moves: do the errors hold, and how many independent draws come in a second?

    python benchmarks/clusters.py [--out benchmarks/results/clusters.md] [--seeds 100] [--small]

Square lattices of spins with free borders and without a field, above, at and below the critical
temperature (K = 0.4407). The numbers are the size of the magnetisation and the mean of s s' of the
bonds. For each seed, z = (mean - oracle) / error; the error is the one that `expectation` says
joined with that of the oracle. Where errors are right, |z| is at most 1.96 in 95 % of the seeds.
The
oracle is one long run of Swendsen and Wang, written below without the package.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import typer
from apart import put_block, table
from scipy.sparse.csgraph import connected_components

import pgmengine as pgm

CASES = [(20, 0.5), (32, 0.3), (32, 0.4407), (32, 0.6)]


def lattice(side: int, k: float) -> pgm.Model:
    """Return a lattice of spins."""
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (side, side))
    b.couple(s[1:], s[:-1], k)
    b.couple(s[:, 1:], s[:, :-1], k)
    return b.build()


def size(x: dict[str, np.ndarray]) -> np.ndarray:
    """Return the size of the magnetisation of each draw."""
    return np.abs(x["s"].mean(axis=(-1, -2)))


def bonds(x: dict[str, np.ndarray]) -> np.ndarray:
    """Return the mean of s s' over the bonds of each draw."""
    s = x["s"]
    vertical = (s[..., 1:, :] * s[..., :-1, :]).mean(axis=(-1, -2))
    return (vertical + (s[..., 1:] * s[..., :-1]).mean(axis=(-1, -2))) / 2


def oracle(side: int, k: float, moves: int, seed: int = 1) -> np.ndarray:
    """Return size and bonds after each move of a run of Swendsen and Wang, (moves, 2)."""
    rng, number = np.random.default_rng(seed), np.arange(side**2).reshape(side, side)
    a = np.concatenate([number[1:].ravel(), number[:, 1:].ravel()])
    b = np.concatenate([number[:-1].ravel(), number[:, :-1].ravel()])
    s, found = np.ones(side**2), []
    for _ in range(moves + 500):
        opened = (s[a] == s[b]) & (rng.random(len(a)) < 1 - np.exp(-2 * k))
        graph = sp.coo_array((opened[opened], (a[opened], b[opened])), shape=(side**2, side**2))
        count, cluster = connected_components(graph, directed=False)
        s = rng.choice([-1.0, 1.0], count)[cluster]
        x = {"s": s.reshape(1, side, side)}
        found.append((size(x)[0], bonds(x)[0]))
    return np.array(found[500:])


def main(out: Path | None = None, seeds: int = 100, small: bool = False) -> None:
    """Measure, and print the tables."""
    cases, moves = (CASES[:1], 2000) if small else (CASES, 20_000)
    rows, speeds = [], []
    for side, k in cases:
        begin = time.perf_counter()
        run = oracle(side, k, moves)
        seconds = time.perf_counter() - begin
        truth = run.mean(axis=0)
        blocks = run[: len(run) // 50 * 50].reshape(50, -1, 2).mean(axis=1)
        error = blocks.std(axis=0, ddof=1) / np.sqrt(50)
        rows.append(_covered(side, k, truth, error, 2 if small else seeds))
        own = run.var(axis=0)[0] / error[0] ** 2 / seconds
        speeds.append([f"{side}x{side}, K = {k:g}", *_speeds(side, k), f"{own:,.0f}"])
    heads = ["lattice", "status OK", "size, oracle", "abs(z) <= 1.96", "z: mean, sd"]
    heads += ["bonds, oracle", "abs(z) <= 1.96", "z: mean, sd"]
    text = "\n\n".join(
        [
            'Errors of the default answer (`pgm.infer(model, want=("samples",))`, each seed with '
            "chains of its own):",
            table(heads, rows),
            "Independent draws of the size of the magnetisation in a second (`expectation(...).ess`"
            " over the time of the call), one run of each; the last column is the oracle:",
            table(["lattice", "SwendsenWang", "MCMC", "numpy and scipy"], speeds),
        ]
    )
    print(text)
    if out is not None:
        put_block(out, "clusters.py", text)


def _covered(side: int, k: float, truth: np.ndarray, error: np.ndarray, seeds: int) -> list[str]:
    """Return a row about the errors of the default answer."""
    good, z = 0, np.full((seeds, 2), np.nan)
    auto = pgm.Auto(candidates=pgm.Auto().candidates[1:])
    for seed in range(seeds):
        # Exact answers, which a side of 20 still has, are left out.
        r = pgm.infer(lattice(side, k), want=("samples",), method=auto, rng=seed)
        good += r.status.good
        for i, function in enumerate((size, bonds)):
            e = r.expectation(function)
            z[seed, i] = (float(e.mean) - truth[i]) / np.hypot(float(e.error), error[i])
    row = [f"{side}x{side}, K = {k:g}", f"{good} of {seeds}"]
    for i in range(2):
        held = np.mean(np.abs(z[:, i]) <= 1.96)
        row += [f"{truth[i]:.4f} ± {error[i]:.4f}", f"{held:.0%}"]
        row += [f"{z[:, i].mean():+.2f}, {z[:, i].std():.2f}"]
    return row


def _speeds(side: int, k: float) -> list[str]:
    """Return the independent draws in a second of two methods."""
    out = []
    for method in (pgm.SwendsenWang(), pgm.MCMC()):
        begin = time.perf_counter()
        r = pgm.infer(lattice(side, k), want=("samples",), method=method, rng=0)
        found = float(r.expectation(size).ess) / (time.perf_counter() - begin)
        out.append(f"{found:,.0f}" if r.status.good else f"{found:,.0f} ({r.status.name})")
    return out


if __name__ == "__main__":
    typer.run(main)
