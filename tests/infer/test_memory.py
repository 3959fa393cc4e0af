"""Peak memory of answers against their plans."""

import sys
import tracemalloc
from pathlib import Path

import arviz_stats.base  # noqa: F401  some answers load it, and modules are no arrays
import numpy as np
import pytest
from chains_of_units import of_variables

import pgmengine as pgm
from pgmengine.infer.diagnostics.convergence import judging_bytes, series_statistics

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from memory import CASES, in_a_process, within

MIB = 2**20


def series(rng, chains, draws, rows, width):
    """Batch means as chains collect them, with series that stand still and series that agree."""
    x = rng.normal(size=(draws, rows, chains, width))
    x = np.where(rng.random((rows, 1, width)) < 0.2, x[0], x)
    x = np.where(rng.random((rows, 1, width)) < 0.2, x[0, :, :1], x)
    return x.transpose(2, 0, 1, 3)


def peak(function):
    """Return what a function returns, and the growth of allocated memory in bytes."""
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_judging_copies_no_series(chains=20, draws=50):
    """Compiled code allocates a block of series for each thread, which tracemalloc does not see."""
    x = series(np.random.default_rng(0), chains, draws, 2, 150)
    series_statistics(x[..., :2])
    _, taken = peak(lambda: series_statistics(x))
    assert taken < x.nbytes / 10
    assert judging_bytes(300, chains, draws) >= 8 * chains * draws * 2 * 2


def pixels(rows, missing):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (rows, 200)).astype(float)
    return {"v": np.where(rng.random(x.shape) < missing, np.nan, x)}


def ones(x):
    return np.minimum(x["v"].sum(axis=1).astype(int), 5)


def lattice(size):
    """Spins with shared couplings of neighbours, no two of which are equal."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(0)
    x = b.layer("x", pgm.Spin(), (size, size))
    b.couple(x[1:], x[:-1], rng.normal(size=(size - 1, size)) * 0.3)
    b.couple(x[:, 1:], x[:, :-1], rng.normal(size=(size, size - 1)) * 0.3)
    return b.build()


def lattice_of_tables(size):
    b = pgm.GraphBuilder()
    x = b.variable("x", states=3, shape=(size, size))
    table = np.random.default_rng(0).random((3, 3)) + 0.2
    b.table((x[1:], x[:-1]), table)
    b.table((x[:, 1:], x[:, :-1]), table.T)
    return b.build()


def rbm(hidden):
    return pgm.rbm(200, hidden, rng=0)


QUESTIONS = {
    "MCMC": lambda: (
        rbm(20), None, "marginals", pgm.MCMC(chains=20, warmup=2, draws=100)),
    "MCMC, samples": lambda: (
        rbm(20), None, "samples", pgm.MCMC(chains=20, warmup=2, draws=200, rhat_limit=np.inf)),
    "MCMC, pairs": lambda: (
        rbm(100), pixels(20, 0.5), "pairs", pgm.MCMC(chains=2, warmup=2, draws=10)),
    "AIS": lambda: (
        rbm(100), None, "log_z", pgm.AIS(chains=1000, betas=np.linspace(0, 1, 5))),
    "simulated tempering": lambda: (
        rbm(50), None, "samples",
        pgm.SimulatedTempering(betas=pgm.Linear(3), chains=10, warmup=200, draws=600)),
    "parallel tempering": lambda: (
        rbm(50), None, "marginals", pgm.ParallelTempering(rungs=8, chains=40, warmup=5, draws=50)),
    "tempered transitions": lambda: (
        rbm(50), None, "samples",
        pgm.TemperedTransitions(betas=pgm.Linear(3), chains=10, warmup=2, draws=150)),
    "Wang-Landau": lambda: (
        pgm.rbm(5, 500, rng=0), None, "samples",
        pgm.WangLandau(ones, 6, layers=("v",), chains=10, warmup=5, draws=60)),
    "Forward": lambda: (
        of_variables(60, (4,), length=5), None, "marginals", pgm.Forward(draws=20_000)),
    "Forward, samples": lambda: (
        of_variables(60, (4,), length=5), None, "samples", pgm.Forward(draws=10_000)),
    "Forward, arrows": lambda: (
        pgm.sbn([200, 50], rng=0), None, "marginals", pgm.Forward(draws=5000)),
    "enumeration": lambda: (
        rbm(8), pixels(2000, 0.0), "marginals", pgm.Enumeration()),
    "enumeration, samples": lambda: (
        rbm(8), None, "samples", pgm.Enumeration(draws=10_000)),
    "mean field": lambda: (
        rbm(50), pixels(1000, 0.5), "marginals", pgm.MeanField()),
    "mean field, pairs": lambda: (
        rbm(50), pixels(100, 0.5), "pairs", pgm.MeanField()),
    "mean field, restarts": lambda: (
        rbm(50), pixels(1000, 0.5), "marginals", pgm.MeanField(restarts=4)),
    "mean field, lattice": lambda: (
        lattice(150), None, "log_z", pgm.MeanField()),
    "mean field, lattice and restarts": lambda: (
        lattice(150), None, "log_z", pgm.MeanField(restarts=4)),
    "mean field, lattice of tables and restarts": lambda: (
        lattice_of_tables(50), None, "log_z", pgm.MeanField(restarts=4)),
    "mean field, pairs of a lattice": lambda: (
        lattice(40), None, "pairs", pgm.MeanField(restarts=1)),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_plans_name_the_memory_that_arrays_take(name, above=1.3, below=3.0, base=1.5 * MIB):
    """Arrays of numpy alone, of small answers; the long test measures whole processes."""
    model, evidence, want, method = QUESTIONS[name]()
    pgm.infer(pgm.rbm(2, 1), method=pgm.MCMC(chains=2, warmup=1, draws=4))
    result, taken = peak(lambda: pgm.infer(model, evidence, (want,), method, rng=0))
    planned = result.plan.bytes
    numbers = f"planned {planned / MIB:.1f} MiB, taken {taken / MIB:.1f} MiB"
    assert taken <= above * planned + base and planned <= below * taken + base, numbers


def test_a_process_takes_the_memory_of_the_plan_of_large_tables():
    planned, taken = in_a_process("Elimination, large tables one by one", 1.0)
    assert within(planned, taken), f"planned {planned / MIB:.0f}, taken {taken / MIB:.0f}"


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    (
        *(name for name in CASES if "large table" in name),
        "MCMC, marginals of wide models",
        "MCMC, samples",
        "AIS, many chains",
        "PT, samples",
        "Forward, samples of a network",
        "Enumeration, marginals of rows",
        "Elimination, many rows",
        "Planar, log_z",
        "Planar, gradient",
        "Mean field, marginals of rows",
    ),
)
def test_processes_take_the_memory_of_the_plan(name):
    planned, taken = in_a_process(name, 1.0)
    assert within(planned, taken), f"planned {planned / MIB:.0f}, taken {taken / MIB:.0f}"
