"""Updates of learning against PyTorch and scikit-learn, as ratios in one run.

    python benchmarks/learning.py DIRECTORY [--threads 2]

DIRECTORY holds the MNIST files. PCD-1 on a 784x500 RBM, batches of 100 and 100 chains, from base rates: the same
algorithm in PyTorch (addmm, sigmoid, bernoulli), and scikit-learn's BernoulliRBM, after 1,000 updates of each; CAST
against PCD with as many slow chains; SAP on a deep machine 784-500-1000 with 5 mean-field updates against PyTorch. Cases
are interleaved; medians of 7. A peer that is not installed is reported absent.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import typer

ROUNDS, UPDATES = 7, 100


def main(directory: Path, threads: int = 2) -> None:
    """Print the table."""
    for name in ("PGMENGINE_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["PGMENGINE_DATA"] = str(directory)
    import pgmengine as pgm

    x = pgm.datasets.mnist(rng=0).x_train[:20_000]
    wide = {"PCD": Ours(pgm.rbm, [784, 500], x, pgm.PCD()),
            "CAST, 100 pairs": Ours(pgm.rbm, [784, 500], x, pgm.CAST(100)),
            "PCD, PyTorch": torch_rbm(x, threads), "BernoulliRBM": scikit(x)}
    table("784x500 RBM", wide, threads)
    deep = {"SAP": Ours(lambda *s, rng: pgm.dbm(list(s), rng=rng), [784, 500, 1000], x, pgm.PCD()),
            "CAST, 100 pairs": Ours(lambda *s, rng: pgm.dbm(list(s), rng=rng), [784, 500, 1000], x, pgm.CAST(100)),
            "SAP, PyTorch": torch_dbm(x, threads)}
    table("784-500-1000 deep Boltzmann machine", deep, threads)


class Ours:
    """Updates of one fit, timed from callback to callback."""

    def __init__(self, make, sizes, x, negative) -> None:
        import pgmengine as pgm

        model = make(*sizes, rng=0)
        small = {k: 0.1 * v for k, v in model.params.items() if k.endswith(".weight")}
        self.model = pgm.base_rate_start(model.with_params(small), {"v": x})
        self.x, self.negative, self.state, self.done = x[:5000], negative, None, 0
        self(1000)

    def __call__(self, updates: int) -> float:
        """Seconds an update, the median."""
        import pgmengine as pgm

        times = []
        self.done += updates
        f = pgm.fit(self.model, {"v": self.x}, negative=self.negative, optimizer=pgm.SGD(0.02), updates=self.done,
                    callbacks=[lambda model, update: times.append(time.perf_counter())], state=self.state, progress=False)
        self.model, self.state = f.model, f.state
        return float(np.median(np.diff(times)))


def torch_rbm(x, threads: int):
    """PCD-1 in PyTorch, or None."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    rows, draw, mean = torch.tensor(x[:5000], dtype=torch.float32), torch.bernoulli, torch.sigmoid
    p = {"w": 0.01 * torch.randn(784, 500), "v": torch.zeros(784), "h": torch.zeros(500),
         "chain": draw(torch.full((100, 500), 0.3))}

    def update(i: int, rate: float = 0.02) -> None:
        v = rows[torch.arange(100 * i, 100 * i + 100) % 5000]
        up = mean(torch.addmm(p["h"], v, p["w"]))
        down = draw(mean(torch.addmm(p["v"], p["chain"], p["w"].t())))
        h = p["chain"] = draw(mean(torch.addmm(p["h"], down, p["w"])))
        p["w"] += rate / 100 * (v.t() @ up - down.t() @ h)
        p["v"] += rate / 100 * (v - down).sum(0)
        p["h"] += rate / 100 * (up - h).sum(0)

    return timed(update)


def torch_dbm(x, threads: int):
    """SAP with 5 mean-field updates in PyTorch, or None."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    rows, draw, mean = torch.tensor(x[:5000], dtype=torch.float32), torch.bernoulli, torch.sigmoid
    w1, w2 = 0.01 * torch.randn(784, 500), 0.01 * torch.randn(500, 1000)
    a, b, c = torch.zeros(784), torch.zeros(500), torch.zeros(1000)
    chain = {"h": draw(torch.full((100, 500), 0.3))}

    def update(i: int, rate: float = 0.005) -> None:
        v = rows[torch.arange(100 * i, 100 * i + 100) % 5000]
        below, top = torch.addmm(b, v, w1), torch.full((100, 1000), 0.5)
        for _ in range(5):
            middle = mean(torch.addmm(below, top, w2.t()))
            top = mean(torch.addmm(c, middle, w2))
        down = draw(mean(torch.addmm(a, chain["h"], w1.t())))
        up = draw(mean(torch.addmm(c, chain["h"], w2)))
        h = chain["h"] = draw(mean(torch.addmm(b, down, w1) + up @ w2.t()))
        for weight, data, model in ((w1, v.t() @ middle, down.t() @ h), (w2, middle.t() @ top, h.t() @ up)):
            weight.add_(data - model, alpha=rate / 100)
        for bias, data, model in ((a, v, down), (b, middle, h), (c, top, up)):
            bias.add_((data - model).sum(0), alpha=rate / 100)

    return timed(update)


def scikit(x):
    """scikit-learn's BernoulliRBM, or None."""
    try:
        from sklearn.neural_network import BernoulliRBM
    except ImportError:
        return None
    rbm = BernoulliRBM(n_components=500, learning_rate=0.02, batch_size=100, random_state=0)
    return timed(lambda i: rbm.partial_fit(x[100 * i % 5000: 100 * i % 5000 + 100]))


def timed(update):
    """A function of a number of updates, seconds an update."""
    state = {"i": 0}

    def run(updates: int) -> float:
        begin = time.perf_counter()
        for _ in range(updates):
            update(state["i"])
            state["i"] += 1
        return (time.perf_counter() - begin) / updates

    run(1000 if updates_are_short(run) else 50)
    return run


def updates_are_short(run) -> bool:
    """Whether 1,000 updates take less than ten seconds."""
    return run(10) < 0.01


def table(title: str, cases, threads: int) -> None:
    """Interleaved rounds, medians, ratios to the first case."""
    times = {name: [] for name, case in cases.items() if case is not None}
    for _ in range(ROUNDS):
        for name in times:
            time.sleep(0.5)  # the threads of BLAS and OpenMP spin for a while after their last product
            times[name].append(cases[name](UPDATES))
    first = np.median(next(iter(times.values())))
    print(f"\n{title}, {threads} threads: milliseconds an update, and over the first line")
    for name in cases:
        print(f"{name:18s} absent" if name not in times else f"{name:18s} {1e3 * np.median(times[name]):7.2f} "
              f"{np.median(times[name]) / first:6.2f}")


if __name__ == "__main__":
    typer.run(main)
