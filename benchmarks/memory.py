"""Peak memory of answers against their plans, each case in a fresh process.

    python benchmarks/memory.py [--scale small] [--only TEXT] [--out benchmarks/results/memory.md]

Prints for each case, at one size and at twice that size, the memory that the plan names, the growth
of the peak memory of the process during `infer`, and their ratio. A case whose memory is less than
30 MiB says little, because the process itself varies by about that much. It needs Linux, which can
forget the peak so far.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz_stats.base  # noqa: F401  some answers load it, and modules are no arrays
import numpy as np
import scipy.sparse as sp
from apart import put_block, table

import pgmengine as pgm

# Model, evidence, wanted quantities and method.
Question = tuple[pgm.Model, Any, tuple[str, ...], Any]

# Shares of the full sizes, by the name of --scale.
SCALES = {"full": 1.0, "small": 0.3}

# Limits of taken / planned and planned / taken, and bytes that the process itself may vary by.
ABOVE, BELOW, BASE = 1.3, 3.0, 30.0 * 2**20

COLUMNS = ["case", "planned", "taken", "ratio", "twice the size: planned", "taken", "ratio"]
TITLE = (
    "Peak memory of `infer` in MiB, each case in a fresh process: growth of the resident memory "
    "beyond the model, and the memory that the plan names. The ratio is taken / planned. Plans "
    "promise that it is at most 1.3, and at least a third, but for 30 MiB that the process itself "
    "may vary by."
)

MCMC, PT, ST = pgm.MCMC, pgm.ParallelTempering, pgm.SimulatedTempering


def rbm(visible: float, hidden: float) -> pgm.Model:
    """A restricted Boltzmann machine."""
    return pgm.rbm(int(visible), int(hidden), rng=0)


def some_pixels(rows: float, visible: int, share: float = 0.5) -> dict[str, np.ndarray]:
    """Rows of evidence, each with a pattern of its own."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (int(rows), visible)).astype(float)
    return {"v": np.where(rng.random(x.shape) < share, np.nan, x)}


def pixels(rows: float, visible: int) -> dict[str, np.ndarray]:
    """Rows of complete evidence."""
    return {"v": np.random.default_rng(0).integers(0, 2, (int(rows), visible)).astype(float)}


def lattice(side: int, length: float) -> pgm.Model:
    """Spins on a rectangle, coupled by tables."""
    length, b = int(length), pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), side * length)
    at = np.arange(side * length).reshape(length, side)
    pairs = np.concatenate(
        [
            np.stack((at[:-1].ravel(), at[1:].ravel()), axis=1),
            np.stack((at[:, :-1].ravel(), at[:, 1:].ravel()), axis=1),
        ]
    )
    b.tables(("x", "x"), pairs, [[2.0, 1.0], [1.0, 2.0]])
    return b.build()


def network(units: float, states: int = 4) -> pgm.Model:
    """A Bayesian network in which each variable has the one or two before it as parents."""
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    for i in range(int(units)):
        b.variable(f"x{i}", states)
        parents = [f"x{j}" for j in (i - 1, i - 3) if j >= 0]
        b.conditional(f"x{i}", parents, rng.dirichlet(np.ones(states), (states,) * len(parents)))
    return b.build()


def patterns(rows: float, units: int, states: int = 4) -> dict[str, np.ndarray]:
    """Rows of evidence on a network, a tenth of the variables each, chosen anew in each row."""
    rng, count = np.random.default_rng(0), int(rows)
    seen = rng.random((units, count)) < 0.1
    return {
        f"x{i}": np.where(seen[i], rng.integers(0, states, count).astype(float), np.nan)
        for i in range(units)
    }


def chain(units: int) -> pgm.Model:
    """A Boltzmann machine in which each unit is coupled with the next one."""
    return pgm.boltzmann_machine(
        units, weight=sp.csr_array(np.eye(units, k=1) + np.eye(units, k=-1))
    )


def every_third(rows: float, units: int) -> dict[str, np.ndarray]:
    """Rows of evidence on every third spin of a chain."""
    x = np.full((int(rows), units), np.nan)
    x[:, ::3] = np.random.default_rng(0).choice([-1.0, 1.0], size=x[:, ::3].shape)
    return {"x": x}


def large_tables(length: float, together: bool, zeros: bool = False) -> pgm.Model:
    """A chain of variables of 700 states, whose tables are declared together or one by one."""
    count, rng = int(length), np.random.default_rng(0)
    step = rng.random((700, 700))
    if zeros:
        step = np.where(rng.random(step.shape) < 0.3, 0.0, step)
    b, at = pgm.GraphBuilder(), np.arange(count - 1)
    b.layer("x", pgm.Categorical(700), count)
    if together:
        b.tables(("x", "x"), np.stack([at, at + 1], axis=1), step)
    else:
        for i in at.tolist():
            b.table((("x", i), ("x", i + 1)), step)
    return b.build()


def one_large_table(states: float) -> pgm.Model:
    """A child with three parents, one of which has most of the states."""
    count, rng, b = int(states), np.random.default_rng(0), pgm.GraphBuilder()
    sizes = {"a": count, "b": 3, "c": 50, "child": 60}
    for name, size in sizes.items():
        b.variable(name, size)
    for name in ("a", "b", "c"):
        b.conditional(name, (), np.full(sizes[name], 1.0 / sizes[name]))
    table = rng.random((*list(sizes.values())[:3], 60))
    b.conditional("child", ("a", "b", "c"), table / table.sum(axis=-1, keepdims=True))
    return b.build()


def first_seen(rows: int, length: float) -> dict[str, np.ndarray]:
    """Rows of evidence of a variable in the middle of a chain."""
    x = np.full((rows, int(length)), np.nan)
    x[:, int(length) // 2] = np.arange(rows)
    return {"x": x}


def count_ones(x: Any) -> np.ndarray:
    """The partition of Wang and Landau's walk: ones of the visible layer, in 20 bins."""
    return np.minimum(x["v"].sum(axis=1).astype(int) * 20 // (x["v"].shape[1] + 1), 19)


MEAN, SAMPLES, LOG_Z = ("marginals",), ("samples",), ("log_z",)

CASES: dict[str, Callable[[float], Question]] = {
    "MCMC, marginals of wide models": lambda s: (
        rbm(1500 * s, 50), None, MEAN, MCMC(chains=50, warmup=5, draws=400)),
    "MCMC, many short chains": lambda s: (
        rbm(784, 500), None, MEAN, MCMC(chains=int(1000 * s), warmup=5, draws=10)),
    "MCMC, many rows": lambda s: (
        rbm(784, 100), some_pixels(500 * s, 784), MEAN, MCMC(chains=4, warmup=5, draws=10)),
    "MCMC, samples": lambda s: (
        rbm(784, 100), None, SAMPLES, MCMC(chains=20, warmup=5, draws=int(1000 * s))),
    "MCMC, samples of one chain, not judged": lambda s: (
        rbm(784, 100), None, SAMPLES,
        MCMC(chains=1, warmup=5, draws=int(15000 * s), rhat_limit=np.inf)),
    "MCMC, samples of categorical units": lambda s: (
        pgm.rbm(200, 50, visible=pgm.Categorical(5), rng=0), None, SAMPLES,
        MCMC(chains=20, warmup=5, draws=int(600 * s))),
    "MCMC, pairs of rows": lambda s: (
        rbm(400, 100), some_pixels(200 * s, 400), ("pairs",), MCMC(chains=4, warmup=5, draws=10)),
    "MCMC, gradient": lambda s: (
        rbm(1500, 2000 * s), None, ("gradient",), MCMC(chains=4, warmup=5, draws=20)),
    "MCMC, spins with tables": lambda s: (
        lattice(30, 50 * s), None, MEAN, MCMC(chains=40, warmup=5, draws=200)),
    "MCMC, one long series of energies": lambda s: (
        rbm(10, 5), None, MEAN, MCMC(chains=50, warmup=5, draws=int(40000 * s))),
    "AIS, many chains": lambda s: (
        rbm(784, 500), None, LOG_Z, pgm.AIS(chains=int(2500 * s), betas=np.linspace(0, 1, 10))),
    "AIS, log_prob of rows": lambda s: (
        rbm(784, 100), some_pixels(100 * s, 784), ("log_prob",),
        pgm.AIS(chains=20, betas=np.linspace(0, 1, 10))),
    "ST, marginals": lambda s: (
        rbm(1500 * s, 50), None, MEAN,
        ST(betas=pgm.Linear(4), chains=30, warmup=500, draws=2000)),
    "ST, samples": lambda s: (
        rbm(784 * s, 50), None, SAMPLES,
        ST(betas=pgm.Linear(4), chains=20, warmup=500, draws=4000)),
    "PT, marginals and log_z": lambda s: (
        rbm(784 * s, 50), None, ("marginals", "log_z"),
        PT(rungs=10, chains=50, warmup=20, draws=500)),
    "PT, samples": lambda s: (
        rbm(784, 50), None, SAMPLES, PT(rungs=8, chains=10, warmup=20, draws=int(1500 * s))),
    "PT, many replicas": lambda s: (
        rbm(784, 500), None, LOG_Z, PT(rungs=20, chains=int(100 * s), warmup=20, draws=20)),
    "Tempered transitions, samples": lambda s: (
        rbm(784, 50), None, SAMPLES,
        pgm.TemperedTransitions(betas=pgm.Linear(4), chains=20, warmup=5, draws=int(600 * s))),
    "Tempered transitions, marginals": lambda s: (
        rbm(1500 * s, 50), None, MEAN,
        pgm.TemperedTransitions(betas=pgm.Linear(4), chains=50, warmup=5, draws=200)),
    "Wang-Landau, marginals": lambda s: (
        rbm(20, 1500 * s), None, MEAN,
        pgm.WangLandau(count_ones, bins=20, layers=("v",), chains=20, warmup=10, draws=300)),
    "Wang-Landau, samples": lambda s: (
        rbm(20, 1500 * s), None, SAMPLES,
        pgm.WangLandau(count_ones, bins=20, layers=("v",), chains=20, warmup=10, draws=150)),
    "Forward, marginals of a network": lambda s: (
        network(500), None, MEAN, pgm.Forward(draws=int(50_000 * s))),
    "Forward, few draws of a network": lambda s: (
        network(500), None, MEAN, pgm.Forward(draws=1000)),
    "Forward, samples of a network": lambda s: (
        network(500), None, SAMPLES, pgm.Forward(draws=int(20_000 * s))),
    "Forward, weighted draws": lambda s: (
        network(500), {"x499": 0.0, "x250": 1.0}, ("marginals", "log_z"),
        pgm.Forward(draws=int(50_000 * s))),
    "Forward, belief net": lambda s: (
        pgm.sbn([100, 500, 784], rng=0), None, MEAN, pgm.Forward(draws=int(10_000 * s))),
    "Forward, samples of a belief net": lambda s: (
        pgm.sbn([100, 500, 784], rng=0), None, SAMPLES, pgm.Forward(draws=int(5000 * s))),
    "Forward, many rows": lambda s: (
        network(100), patterns(1000 * s, 3), MEAN, pgm.Forward(draws=500, most=500)),
    "Enumeration, marginals of rows": lambda s: (
        rbm(784, 20), pixels(10_000 * s, 784), MEAN, None),
    "Enumeration, marginals of few units": lambda s: (
        rbm(16, 6), some_pixels(200_000 * s, 16, 0.2), MEAN, pgm.Enumeration()),
    "Enumeration, many patterns": lambda s: (
        rbm(784, 10), some_pixels(2000 * s, 784), MEAN, pgm.Enumeration()),
    "Enumeration, log_z of rows": lambda s: (
        rbm(784, 12), pixels(10_000 * s, 784), ("log_prob",), None),
    "Enumeration, samples": lambda s: (
        rbm(784, 10), None, SAMPLES, pgm.Enumeration(draws=int(20_000 * s))),
    "Enumeration, pairs": lambda s: (
        rbm(784, 8), pixels(1500 * s, 784), ("pairs",), pgm.Enumeration()),
    "Enumeration, mode": lambda s: (
        rbm(784, 8), pixels(10_000 * s, 784), ("mode",), pgm.Enumeration()),
    "Enumeration, gradient": lambda s: (
        rbm(784, 10), pixels(5000 * s, 784), ("gradient",), pgm.Enumeration()),
    "Elimination, log_z": lambda s: (
        lattice(20, 20 * s), None, LOG_Z, pgm.Elimination()),
    "Elimination, marginals": lambda s: (
        lattice(18, 18 * s), None, MEAN, pgm.Elimination()),
    "Elimination, mode": lambda s: (
        lattice(18, 18 * s), None, ("mode",), pgm.Elimination()),
    "Elimination, samples": lambda s: (
        lattice(4, 500), None, SAMPLES, pgm.Elimination(draws=int(5000 * s))),
    "Elimination, many rows": lambda s: (
        network(100), {"x0": np.zeros(int(5000 * s)), "x50": np.arange(int(5000 * s)) % 4.0},
        MEAN, pgm.Elimination()),
    "Elimination, many patterns": lambda s: (
        network(100), patterns(5000 * s, 100), MEAN, pgm.Elimination()),
    "Elimination, pairs of a chain": lambda s: (
        chain(300), every_third(200 * s, 300), ("pairs",), pgm.Elimination()),
    "Elimination, large tables together": lambda s: (
        large_tables(40 * s, True), first_seen(1, 40 * s), ("log_prob",), pgm.Elimination()),
    "Elimination, large tables one by one": lambda s: (
        large_tables(40 * s, False), first_seen(3, 40 * s), MEAN, pgm.Elimination()),
    "Elimination, large tables with zeros": lambda s: (
        large_tables(40 * s, False, True), first_seen(1, 40 * s), ("marginals", "log_prob"),
        pgm.Elimination()),
    "Elimination, mode of large tables": lambda s: (
        large_tables(40 * s, True), first_seen(3, 40 * s), ("mode",), pgm.Elimination()),
    "Elimination, gradient of large tables": lambda s: (
        large_tables(30 * s, False), None, ("gradient",), pgm.Elimination()),
    "Elimination, samples of large tables": lambda s: (
        large_tables(30 * s, True), first_seen(3, 30 * s), SAMPLES, pgm.Elimination(draws=500)),
    "Elimination, one large table": lambda s: (
        one_large_table(1500 * s), {"b": [1.0, 2.0]}, MEAN, pgm.Elimination()),
    "Planar, log_z": lambda s: (
        lattice(150, 150 * s), None, LOG_Z, pgm.Planar()),
    "Planar, gradient": lambda s: (
        lattice(50, 50 * s), None, ("gradient",), pgm.Planar()),
    "Mean field, marginals of rows": lambda s: (
        rbm(784, 100), some_pixels(4000 * s, 784), MEAN, pgm.MeanField()),
    "Mean field, deep model": lambda s: (
        pgm.dbm([784, 100, 100], rng=0), pixels(4000 * s, 784), MEAN, pgm.MeanField()),
    "Mean field, belief net": lambda s: (
        pgm.sbn([784, 20], rng=0), pixels(1000 * s, 784),
        ("marginals", "bound"), pgm.MeanField()),
    "Mean field, pairs": lambda s: (
        rbm(784, 100), some_pixels(100 * s, 784), ("pairs",), pgm.MeanField()),
    "Mean field, network": lambda s: (
        network(500), patterns(500 * s, 500), MEAN, pgm.MeanField()),
    "Auto, log_prob and marginals": lambda s: (
        rbm(784, 100), pixels(5000 * s, 784), ("marginals", "log_prob"), None),
    "Auto, completions": lambda s: (
        rbm(784, 100), some_pixels(100 * s, 784), MEAN, None),
}  # fmt: skip


def measured(name: str, scale: float) -> tuple[float, float]:
    """Return the planned bytes, and the growth of the peak of this process."""
    # A tiny question loads what most questions load on first use. ArviZ, which takes 100 MiB, is
    # loaded above, because only answers with a heavy tail of importance weights load it.
    pgm.infer(pgm.rbm(4, 2, rng=0), method=MCMC(chains=4, warmup=5, draws=10), rng=0)
    model, evidence, want, method = CASES[name](scale)
    # The peak so far is forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    result = pgm.infer(model, evidence, want=want, method=method, rng=0)
    return result.plan.bytes, _status("VmHWM") - before


def _status(field: str) -> float:
    """Return a number of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def in_a_process(name: str, scale: float) -> tuple[float, float]:
    """Return what `measured` returns in a fresh process."""
    command = [sys.executable, __file__, "--case", name, "--factor", str(scale)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr}")
    planned, taken = map(float, done.stdout.split()[-2:])
    return planned, taken


def within(planned: float, taken: float) -> bool:
    """Whether a plan is as close as plans promise: taken from a third to 1.3 times as planned."""
    return taken <= ABOVE * planned + BASE and planned <= BELOW * taken + BASE


def main() -> None:
    """Measure the cases, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="measure the cases whose names contain this")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--out", type=Path, help="a file whose block of this script is replaced")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--factor", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(*measured(given.case, given.factor))
        return
    lines, good = [], 0
    for name in (name for name in CASES if given.only in name):
        both = [in_a_process(name, factor * SCALES[given.scale]) for factor in (1.0, 2.0)]
        good += all(within(*pair) for pair in both)
        lines.append([name, *(f"{number / 2**20:.0f}" for pair in both for number in pair)])
        lines[-1][3:3] = [f"{both[0][1] / both[0][0]:.2f}"]
        lines[-1].append(f"{both[1][1] / both[1][0]:.2f}")
        print(" | ".join(lines[-1]), flush=True)
    text = f"{TITLE} In {good} of {len(lines)} cases the plan is within these limits at both sizes."
    text = "\n\n".join([textwrap.fill(text, 100), table(COLUMNS, lines)])
    if given.out:
        put_block(given.out, "memory.py", text)
    print(text)


if __name__ == "__main__":
    main()
