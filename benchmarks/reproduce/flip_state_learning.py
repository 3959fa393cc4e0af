"""Brügge, Fischer and Igel (2013), table 1 and figure 3 (lower): does flip-the-state help
learning?

    python benchmarks/reproduce/flip_state_learning.py OUT [--scale full] [--data DIRECTORY] [--only
    NAME]

RBMs learn by CD-k, PCD-k and t-PT_k with Gibbs sampling G and with flip-the-state T; the exact
log-likelihood every 100 updates. Start, batches and chains as in the paper: N(0, 0.01^2), batches
of 100 (32 on Bars-and-Stripes), as many model samples as rows, no momentum, no decay. For every
method and rate the median over repeats of the largest log-likelihood, and the p-value of the
two-sided Wilcoxon signed-rank test over repeats with the same start.

Writes flip_state_learning.txt and flip_state_learning.png into OUT, and every run into OUT/parts,
from which it goes on when it is run again. MNIST (n = 10) is left out without --data. --workers N
shares the runs out over processes, --scheduler ADDRESS over a dask cluster. --method CD-5 and
--rate 0.1, which may be given several times, choose rows; --centred learns by the gradient of
the centred model, which the paper does not. With --after, runs with T learn the first half of
their updates with G, as the runs with G do to the bit, and go on from their chains. The last
column of the table has the p-values after Holm's correction for all tests of the table.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.stats import wilcoxon
from sweep import sweep_on

import pgmengine as pgm

BEST = -(28 / 32) * np.log(32) - (4 / 32) * np.log(
    16
)  # of Bars-and-Stripes: two of its patterns appear twice
KERNELS = {"G": pgm.Gibbs(), "T": pgm.FlipState()}


@dataclass(frozen=True)
class Scale:
    """Sizes of the experiment at one scale."""

    repeats: int
    updates: int
    rates: tuple[float, ...]
    ladders: tuple[tuple[int, int], ...]  # (t, k)


SCALES = {
    "small": Scale(2, 100, (0.05,), ((5, 1),)),
    "full": Scale(25, 20_000, (0.01, 0.05, 0.1), ((5, 1), (10, 1), (10, 5))),
}


def main(
    out: Path,
    scale: str = "small",
    data: Path | None = None,
    only: str = "",
    repeats: int = 0,
    updates: int = 0,
    workers: int = 1,
    scheduler: str = "",
    method: Annotated[list[str] | None, typer.Option()] = None,
    rate: Annotated[list[float] | None, typer.Option()] = None,
    centred: bool = False,
    after: bool = False,
) -> None:
    """Run the experiment and write the table and the figure."""
    size, begin = SCALES[scale], time.time()
    rates = tuple(rate or size.rates)
    size = Scale(repeats or size.repeats, updates or size.updates, rates, size.ladders)
    if after and size.updates % 200:
        raise typer.BadParameter("--after needs --updates that are a multiple of 200")
    out.mkdir(parents=True, exist_ok=True)
    lines = [
        f"# scale {scale}: {size.repeats} repeats of {size.updates} updates; median of the largest "
        "log-likelihood"
    ]
    lines.append(f"best possible on Bars-and-Stripes: {BEST:.3f}")
    rows: list[Row] = []

    def report(row: Row) -> None:
        rows.append(row)
        print(f"[{time.time() - begin:6.0f} s] {row}", file=sys.stderr, flush=True)
        (out / "flip_state_learning.txt").write_text("\n".join(lines + table(rows)) + "\n")

    curves, directory = {}, str(data.resolve()) if data is not None else ""
    with sweep_on(workers, scheduler, out / "parts") as sweep:
        for name, (x, _) in problems(directory).items():
            for rate_ in rates if only in name else ():
                for label, make in methods(size, len(x)).items():
                    if method and label not in method:
                        continue
                    both = {}
                    for key, kernel in KERNELS.items():
                        first = "G" if after else key
                        phases = (make(KERNELS[first]), make(kernel))
                        jobs = [
                            (name, directory, phases, rate_, size.updates, r, centred)
                            for r in range(size.repeats)
                        ]
                        part = f"{name}-{label}-{key}-{rate_}-{size.updates}"
                        part += "-after-G" * (first != key)
                        both[key] = sweep.results(part + "-centred" * centred, run, jobs)
                    title = label + " centred" * centred + " after" * after
                    curves[name, title, rate_] = both
                    top = {k: v.max(axis=1) for k, v in both.items()}
                    report(Row(name, title, rate_, top["G"], top["T"]))
    figure(curves, out / "flip_state_learning.png")
    print("\n".join(lines + table(rows)))


@dataclass(frozen=True, eq=False)
class Row:
    """The largest log-likelihood of each repeat, with G and with T."""

    data: str
    method: str
    rate: float
    gibbs: np.ndarray
    flip: np.ndarray

    @property
    def p(self) -> float:
        """The p-value of the two-sided Wilcoxon signed-rank test."""
        gain = self.flip - self.gibbs
        return float(wilcoxon(gain).pvalue) if np.any(gain) else 1.0

    def __str__(self) -> str:
        gain = self.flip - self.gibbs
        medians = f"{np.median(self.gibbs):9.3f} {np.median(self.flip):9.3f}"
        return (
            f"{self.data:22s} {self.method:17s} {self.rate:<5g} {medians}   "
            f"{np.sum(gain > 0):3d} of {len(gain):3d}   {self.p:.3g}"
        )


def table(rows: list[Row]) -> list[str]:
    """The lines of the table, with p-values after Holm's correction for all of them."""
    p = np.array([row.p for row in rows])
    order, corrected = np.argsort(p), np.empty(len(p))
    # The k-th smallest of n p-values is multiplied by n - k + 1; corrected values never fall.
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    head = (
        f"{'data':22s} {'method':17s} rate        G         T   T better in   p (Wilcoxon)   Holm"
    )
    return [head, *(f"{row}   {c:.3g}" for row, c in zip(rows, corrected, strict=True))]


@lru_cache(maxsize=1)
def problems(data: str):
    """Name -> (rows, hidden units)."""
    found = {
        "Bars-and-Stripes 4x4": (pgm.datasets.bars_and_stripes().x_train, 16),
        "Modes, p_mut 0.1": (pgm.datasets.artificial_modes(0.1).x_train, 16),
        "Modes, p_mut 0.01": (pgm.datasets.artificial_modes(0.01).x_train, 16),
    }
    if data:
        os.environ["PGMENGINE_DATA"] = data
        found["MNIST, n = 10"] = pgm.datasets.mnist().x_train, 10
    return found


def methods(size: Scale, rows: int):
    """Label -> (kernel -> negative phase)."""
    chains = min(100, rows)
    out = {f"CD-{k}": lambda kernel, k=k: pgm.CD(k=k, kernel=kernel) for k in (1, 5)}
    out |= {
        f"PCD-{k}": lambda kernel, k=k: pgm.PCD(k=k, chains=chains, kernel=kernel) for k in (1, 5)
    }
    out |= {
        f"{t}-PT_{k}": lambda kernel, t=t, k=k: pgm.PT(
            temperatures=t, k=k, chains=chains, kernel=kernel
        )
        for t, k in size.ladders
    }
    return out


def run(
    name: str, data: str, phases, rate: float, updates: int, repeat: int, centred: bool
) -> np.ndarray:
    """Exact log-likelihood (points,) every 100 updates; of 2,000 rows at most.

    The two model phases have one half of the updates each; equal ones are one fit.
    """
    (x, hidden), rng = problems(data)[name], np.random.default_rng(repeat)
    model = pgm.rbm(x.shape[1], hidden).with_params(
        {
            "v-h.weight": rng.normal(0, 0.01, (x.shape[1], hidden)),
            "v.bias": rng.normal(0, 0.01, x.shape[1]),
            "h.bias": rng.normal(0, 0.01, hidden),
        }
    )
    shown = x if len(x) <= 2000 else x[rng.choice(len(x), 2000, replace=False)]
    monitor = pgm.ExactLogLikelihood({"v": shown}, every=100)
    parts = phases[:1] if phases[0] == phases[1] else phases
    curves, state = [], None
    for number, negative in enumerate(parts):
        # A later fit goes on from the chains and the random numbers of the one before.
        f = pgm.fit(
            model,
            {"v": x},
            negative=negative,
            optimizer=pgm.Centered(pgm.SGD(rate)) if centred else pgm.SGD(rate),
            batch_size=min(100, len(x)),
            updates=updates * (number + 1) // len(parts),
            callbacks=[monitor],
            rng=repeat,
            state=state,
            progress=False,
        )
        model, state = f.model, f.state
        # The first value of a later fit is the last one of the fit before it.
        curves.append(f.history["log_likelihood"]["value"][min(number, 1) :])
    return np.concatenate(curves)


def figure(curves, path: Path) -> None:
    """Median curves of G and T for every data set, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys((name, rate) for name, _, rate in curves))
    figure_, axes = plt.subplots(
        1, len(names), figsize=(5 * len(names), 4), layout="constrained", squeeze=False
    )
    for axis, (name, rate) in zip(axes[0], names, strict=True):
        labels = [label for n, label, r in curves if (n, r) == (name, rate)]
        for i, label in enumerate(labels):
            for kernel, style in (("G", "--"), ("T", "-")):
                median = np.median(curves[name, label, rate][kernel], axis=0)
                axis.plot(
                    100 * np.arange(len(median)),
                    median,
                    style,
                    color=f"C{i}",
                    label=f"{label} {kernel}",
                )
        axis.set(title=f"{name}, rate {rate:g}", xlabel="updates", ylabel="log-likelihood")
    axes[0, -1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure_.savefig(path, dpi=100)


if __name__ == "__main__":
    typer.run(main)
