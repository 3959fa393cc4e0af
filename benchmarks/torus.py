"""Log Z of periodic lattices by ladders of cluster moves: do the errors hold?

    python benchmarks/torus.py [--out benchmarks/results/clusters.md] [--seeds 100] [--small]

Square lattices of spins with periodic borders and without a field, above, at and below the critical
temperature (K = 0.4407), beside the exact log Z of Kaufman (1949). For each seed, z = (estimate -
exact) / error. Where errors are right, |z| is at most 1.96 in 95 % of the seeds.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

CASES = [(16, 0.3), (16, 0.4407), (16, 0.6), (32, 0.6)]


def torus(side: int, k: float) -> pgm.Model:
    """Return a lattice of spins with periodic borders."""
    b = pgm.GraphBuilder()
    s, after = b.layer("s", pgm.Spin(), (side, side)), (np.arange(side) + 1) % side
    b.couple(s, s[after], k)
    b.couple(s, s[:, after], k)
    return b.build()


def kaufman(side: int, k: float) -> float:
    """Return the exact log Z of the torus: half the sum of four products over wave numbers.

    With cosh g_q = cosh(2 K)^2 / sinh(2 K) - cos(pi q / n), and g_0 = 2 K + log tanh K, these are
    the products of 2 cosh(n g_q / 2) and of 2 sinh(n g_q / 2) over odd and over even q.
    """
    q = np.arange(2 * side)
    g = np.arccosh(np.maximum(np.cosh(2 * k) ** 2 / np.sinh(2 * k) - np.cos(np.pi * q / side), 1))
    g[0] = 2 * k + np.log(np.tanh(k))
    logs, signs = np.empty(4), np.ones(4)
    for i, some in enumerate((g[1::2], g[::2])):
        x = side * some / 2
        logs[2 * i] = np.logaddexp(x, -x).sum()
        logs[2 * i + 1] = (np.abs(x) + np.log1p(-np.exp(-2 * np.abs(x)))).sum()
        signs[2 * i + 1] = np.prod(np.sign(x))
    top = logs.max()
    total = (signs * np.exp(logs - top)).sum()
    return float(side**2 / 2 * np.log(2 * np.sinh(2 * k)) - np.log(2) + top + np.log(total))


def main(out: Path | None = None, seeds: int = 100, small: bool = False) -> None:
    """Measure, and print the table."""
    rows = []
    for side, k in CASES[:1] if small else CASES:
        model, exact, count = torus(side, k), kaufman(side, k), 2 if small else seeds
        good, held, z, errors, begin = 0, 0, [], [], time.perf_counter()
        for seed in range(count):
            r = pgm.infer(model, want=("log_z",), method=pgm.ClusterLadder(), rng=seed)
            low, high = r.log_z_interval[0]
            good, held = good + r.status.good, held + (low <= exact <= high)
            errors.append(float(r.log_z_error[0]))
            z.append((float(r.log_z[0]) - exact) / errors[-1])
        seconds = (time.perf_counter() - begin) / count
        begin = time.perf_counter()
        ais = pgm.infer(model, want=("log_z",), method=pgm.AIS(), rng=0)
        rows.append(
            [
                f"{side}x{side}, K = {k:g}",
                f"{exact:.3f}",
                f"{good} of {count}",
                f"{np.mean(errors):.3f}",
                f"{np.mean(np.abs(z) <= 1.96):.0%}",
                f"{np.mean(z):+.2f}, {np.std(z):.2f}",
                f"{held} of {count}",
                f"{seconds:.1f} s",
                f"{float(ais.log_z[0]) - exact:+.2f} ± {float(ais.log_z_error[0]):.2f}, "
                f"{ais.status.name}, {time.perf_counter() - begin:.1f} s",
            ]
        )
        print(rows[-1], flush=True)
    heads = ["torus", "exact", "status OK", "error", "abs(z) <= 1.96", "z: mean, sd"]
    heads += ["in the interval", "time", "one run of AIS: error, status, time"]
    text = "\n\n".join(
        [
            "Log Z of lattices with periodic borders by `ClusterLadder()`, each seed with chains "
            "of its own, beside the formula of Kaufman:",
            table(heads, rows),
        ]
    )
    print(text)
    if out is not None:
        put_block(out, "torus.py", text)


if __name__ == "__main__":
    typer.run(main)
