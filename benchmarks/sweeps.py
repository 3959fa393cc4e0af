"""Block sweeps against what a user would write with PyTorch or numpy: ratios of one run, interleaved.

    python benchmarks/sweeps.py mnistvh_CD25.mat DIRECTORY [--threads 1]

The file holds Salakhutdinov's CD25(500) RBM (vishid, visbiases, hidbiases), the directory the MNIST files. One number of
threads a run: thread pools are sized when they start.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import typer

REPEATS = 7


def main(weights: Path, data: Path, threads: int = 1) -> None:
    """Print the table."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PGMENGINE_THREADS"):
        os.environ[name] = str(threads)
    os.environ["PGMENGINE_DATA"] = str(data)
    import numpy as np
    from scipy.io import loadmat

    import pgmengine as pgm

    raw = loadmat(weights)
    rbm = pgm.rbm(784, 500).with_params(
        {"v.bias": raw["visbiases"][0], "h.bias": raw["hidbiases"][0], "v-h.weight": raw["vishid"]}
    )
    images = pgm.datasets.mnist(rng=0).x_test
    print(
        f"{platform.machine()}, {threads} thread(s), Python {platform.python_version()}, numpy {np.__version__}, "
        f"PyTorch {torch_version()}; medians of {REPEATS}, interleaved"
    )
    for chains, sweeps in ((100, 100), (1, 2000), (1000, 10)):
        compare(
            f"784x500, {chains} chain(s), us per chain-sweep",
            rbm_cases(rbm, images[:chains], threads),
            sweeps,
            1e6 / chains,
        )
    memory()
    big = large_rbm(4000, 0.08)
    compare(
        "4000x4000, 50 chains, 8 % flips, us per chain-sweep",
        rbm_cases(big, np.zeros((50, 4000)), threads, 40),
        4,
        1e6 / 50,
    )
    compare("512x512 Ising, beta 0.44, ns per spin update", ising_cases(512, 0.44), 20, 1e9 / 512**2)


MEMORY = """
import numpy as np
import pgmengine as pgm
from pathlib import Path
from pgmengine.kernels.chains import make_chains

def kib(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))

def run(model):
    target = model.given().take(np.zeros(100, dtype=int))
    x = {name: np.zeros((100, layer.width)) for name, layer in model.structure.layers.items()}
    make_chains(target, pgm.Gibbs(), x, np.random.default_rng(0)).sweep(100)

run(pgm.rbm(3, 2, rng=0))
before = kib("VmHWM")
model = pgm.rbm(784, 500, rng=0)
held = kib("VmRSS")
run(model)
print(before, held, kib("VmHWM"))
"""


def memory():
    """Peak memory of chains in a process of its own, over the bytes of the float64 weights."""
    import subprocess

    found = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    before, held, peak = (int(n) / 1024 for n in found.split())
    weights = 784 * 500 * 8 / 2**20
    print(f"\npeak memory, 784x500, 100 chains: {peak - held:.1f} MiB beyond the model, {(peak - held) / weights:.2f} "
          f"times its weights ({weights:.1f} MiB of float64); {(peak - before) / weights:.2f} times with the model")


def torch_version() -> str:
    """The version, or that it is absent."""
    try:
        import torch
    except ImportError:
        return "absent"
    return str(torch.__version__)


def compare(title: str, cases: dict[str, Callable[[int], None]], sweeps: int, scale: float) -> None:
    """Time all cases in turn, REPEATS times, and print medians and ratios to the first."""
    import statistics

    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(REPEATS):
        for name, case in cases.items():
            time.sleep(0.1)  # idle threads of the case before spin for a while
            start = time.perf_counter()
            case(sweeps)
            times[name].append((time.perf_counter() - start) / sweeps * scale)
    middle = {name: statistics.median(values) for name, values in times.items()}
    first = next(iter(middle.values()))
    print(f"\n{title}")
    for name, value in middle.items():
        print(f"  {name:28s} {value:10.2f}   {value / first:6.2f}x")
    sys.stdout.flush()


def rbm_cases(model, v, threads, warm=20):
    """The sweeps of one RBM: pgmengine with two kernels, PyTorch, numpy, and the two matrix products alone."""
    import numpy as np
    from scipy.special import expit

    import pgmengine as pgm
    from pgmengine.kernels.chains import make_chains, start

    rng = np.random.default_rng(0)
    target = model.given().take(np.zeros(len(v), dtype=int))
    x = start(target, rng) | {"v": v}
    out = {}
    for kernel in (pgm.Gibbs(), pgm.FlipState()):
        chains = make_chains(target, kernel, x, rng)
        chains.sweep(warm)
        out[f"pgmengine {type(kernel).__name__}"] = chains.sweep
    w, b, c = (np.asarray(model.params[k], dtype=np.float32) for k in ("v-h.weight", "v.bias", "h.bias"))
    torch_case(out, w, b, c, v, threads, warm)
    wt, state = np.ascontiguousarray(w.T), {"v": v.astype(np.float32)}

    def in_numpy(sweeps):
        for _ in range(sweeps):
            h = (rng.random((len(v), len(c)), dtype=np.float32) < expit(state["v"] @ w + c)).astype(np.float32)
            state["v"] = (rng.random((len(v), len(b)), dtype=np.float32) < expit(h @ wt + b)).astype(np.float32)

    def products(sweeps):
        h = np.zeros((len(v), len(c)), dtype=np.float32)
        for _ in range(sweeps):
            np.matmul(state["v"], w, out=h)
            np.matmul(h, wt)

    in_numpy(warm)
    return out | {"numpy": in_numpy, "two sgemm alone": products}


def torch_case(out, w, b, c, v, threads, warm):
    """Add PyTorch's sweep when it is installed."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(threads)
    wt, bt, ct = torch.from_numpy(w), torch.from_numpy(b), torch.from_numpy(c)
    back = wt.t().contiguous()
    state = {"v": torch.from_numpy(v).float()}

    @torch.no_grad()
    def in_torch(sweeps):
        for _ in range(sweeps):
            h = torch.bernoulli(torch.sigmoid_(torch.addmm(ct, state["v"], wt)))
            state["v"] = torch.bernoulli(torch.sigmoid_(torch.addmm(bt, h, back)))

    in_torch(warm)
    out["PyTorch"] = in_torch


def large_rbm(size, flips):
    """An RBM of which about this share of units changes in a sweep: strong biases, weak weights."""
    import numpy as np
    from scipy.optimize import brentq

    import pgmengine as pgm

    rng = np.random.default_rng(1)
    p = brentq(lambda p: 2 * p * (1 - p) - flips, 0, 0.5)
    bias = np.log(p / (1 - p)) + 0.3 * rng.normal(size=(2, size))
    return pgm.rbm(size, size).with_params(
        {"v.bias": bias[0], "h.bias": bias[1], "v-h.weight": rng.normal(size=(size, size)) * 0.01}
    )


def ising_cases(n, beta):
    """A periodic square lattice at coupling beta: pgmengine, and a vectorised checkerboard."""
    import networkx as nx
    import numpy as np

    import pgmengine as pgm
    from pgmengine.kernels.chains import make_chains, start

    graph = nx.grid_2d_graph(n, n, periodic=True)
    nx.set_edge_attributes(graph, beta, "weight")
    model = pgm.GraphBuilder.from_networkx(graph, unit=pgm.Spin()).build()
    rng = np.random.default_rng(0)
    chains = make_chains(model.given(), pgm.Gibbs(), start(model.given(), rng), rng)
    spin = rng.choice(np.array([-1, 1], dtype=np.float32), size=(n, n))
    odd = np.add.outer(np.arange(n), np.arange(n)) % 2 == 1
    up = (1 / (1 + np.exp(-2 * beta * np.arange(-4, 5)))).astype(np.float32)

    def checkerboard(sweeps):
        nonlocal spin
        for _ in range(sweeps):
            for color in (odd, ~odd):
                near = np.roll(spin, 1, 0) + np.roll(spin, -1, 0) + np.roll(spin, 1, 1) + np.roll(spin, -1, 1)
                new = np.where(rng.random((n, n), dtype=np.float32) < up[near.astype(np.int8) + 4], 1, -1)
                spin = np.where(color, new, spin).astype(np.float32)

    def half_boards(sweeps):  # even and odd sites in arrays of their own: half the numbers of the checkerboard
        for _ in range(sweeps):
            for own, other, shift in ((0, 1, 0), (1, 0, 1)):
                near = _half_neighbours(boards[other], shift)
                u = rng.random(boards[own].shape, dtype=np.float32)
                boards[own] = np.where(u < up[near + 4], 1, -1).astype(np.int8)

    boards = [rng.choice(np.array([-1, 1], dtype=np.int8), size=(n, n // 2)) for _ in range(2)]
    chains.sweep(50)
    half_boards(50)
    checkerboard(50)
    return {"pgmengine Gibbs": chains.sweep, "numpy half boards": half_boards, "numpy checkerboard": checkerboard}


def _half_neighbours(other, shift):
    import numpy as np

    side = np.where((np.arange(len(other)) % 2 == shift)[:, None], np.roll(other, 1, 1), np.roll(other, -1, 1))
    return np.roll(other, 1, 0) + np.roll(other, -1, 0) + other + side


if __name__ == "__main__":
    typer.run(main)
