"""Salakhutdinov (2010): adaptive tempering crosses where Gibbs sampling does not (figures
2 and 4).

    python benchmarks/reproduce/adaptive_tempering.py OUT [--scale full]

Two models: two spins that prefer to be equal (weight 5), and an RBM trained on Artificial Modes
with p_mut 0.01. For each the share of time in each mode, beside the exact shares, by

    plain Gibbs sampling, from one mode
    fast weights without the data term: after each sweep theta_fast = decay theta_fast - rate s(x),
        with s the statistics of the chains, which move at theta + theta_fast
    fast weights, as in Fast PCD: theta_fast = decay theta_fast + rate (E[s] - s(x)). E[s] is the
        expectation under the model, as the data of a model that has learned them
    simulated tempering with adaptive weights, parallel tempering
    Wang-Landau sampling over a partition of the states, by importance weights: over the four
        states of two spins, and over 81 cells (the numbers of pixels in two halves) of the RBM

Fast weights belong to all parameters. One chain has a set of its own for the two spins, and eight
chains share one for the RBM. Their rate is 0.1, and 0.02 and 0.5 in further rows; decay is 0.95, as
published. A table has means and standard errors over repeats, changes of mode in 1,000 sweeps of a
chain, and what shows that a method did its work: the occupancy of cells or of temperatures. Writes
adaptive_tempering.txt, figure_2.png (two spins) and figure_4.png (the RBM) into OUT, and every run
into OUT/parts, from which it goes on when it is run again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import typer
from sweep import kept

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start
from pgmengine.infer.sampling.ladders.wandering import FlatHistogram, Levels

CHAINS = 8
RUNGS = 12
# The rate of fast weights where nothing else is said, and others.
RATE, OTHER_RATES = 0.1, (0.02, 0.5)
TERMS = "chains and data"
# Sweeps of a chain that the figures show.
SHOWN = 2_000


@dataclass(frozen=True)
class Scale:
    """Sizes of the experiment at one scale."""

    repeats: int
    sweeps: int  # of each chain; a quarter of them for parallel tempering and Wang-Landau
    updates: int  # of the RBM that learns
    steps: int  # of each timing


SCALES = {"small": Scale(2, 400, 100, 20), "full": Scale(4, 8_000, 600, 1_000)}


@dataclass(frozen=True)
class Problem:
    """A model with modes, and the partition of its states."""

    name: str
    model: pgm.Model
    modes: np.ndarray
    layer: str
    partition: Callable[[Mapping[str, np.ndarray]], np.ndarray]
    cells: int
    fast_chains: int  # chains that share a set of fast weights

    @property
    def weight(self) -> str:
        """The name of the weights."""
        return next(k for k in self.model.params if k.endswith("weight"))


def main(out: Path, scale: str = "small") -> None:
    """Run both models and write the table and the figures."""
    size, begin, lines = SCALES[scale], time.time(), [f"# scale {scale}: {SCALES[scale]}"]
    out.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        lines.append(line)
        print(f"[{time.time() - begin:6.0f} s] {line}", file=sys.stderr, flush=True)
        (out / "adaptive_tempering.txt").write_text("\n".join(lines) + "\n")

    shown = {}
    for problem in (two_spins(), artificial_modes(out / "parts", size)):
        parts = out / "parts" / f"{problem.layer}-{size.sweeps}"
        shown[problem.layer] = compared(problem, size, parts, report)
    ratios = kept(out / "parts", f"overheads-{size.steps}", overheads, size)
    report(
        "\ntime of a step of simulated tempering over that of a plain sweep, 100 chains: "
        + ", ".join(f"{name} {value:.2f}" for name, value in ratios.items())
    )
    figure(shown, out)


def two_spins() -> Problem:
    """Two spins with weight 5 and a little bias: nearly all the probability is at two states."""
    model = pgm.boltzmann_machine(2).with_params(
        {"x-x.weight": np.array([[0.0, 5.0], [5.0, 0.0]]), "x.bias": [0.1, 0.1]}
    )
    modes = np.array([[-1.0, -1.0], [1.0, 1.0]])

    def partition(x: Mapping[str, np.ndarray]) -> np.ndarray:
        return ((x["x"] + 1) @ np.array([1, 0.5])).astype(int)

    return Problem("two spins, weight 5", model, modes, "x", partition, 4, 1)


def artificial_modes(parts: Path, size: Scale) -> Problem:
    """An RBM with 16 hidden units trained on Artificial Modes by exact gradients."""

    def learned() -> dict[str, np.ndarray]:
        fitted = pgm.fit(
            pgm.rbm(16, 16, rng=0),
            {"v": pgm.datasets.artificial_modes(0.01).x_train[:2000]},
            negative=pgm.ExactGradient(),
            optimizer=pgm.Adam(0.02),
            batch_size=500,
            updates=size.updates,
            rng=0,
            progress=False,
        )
        return dict(fitted.model.params)

    model = pgm.rbm(16, 16).with_params(kept(parts, f"rbm-{size.updates}", learned))
    half = np.repeat([0.0, 1.0], 8)
    modes = np.stack((np.zeros(16), np.ones(16), half, 1 - half))

    def partition(x: Mapping[str, np.ndarray]) -> np.ndarray:
        upper, lower = (x["v"][:, part].sum(axis=1) for part in (slice(0, 8), slice(8, 16)))
        return (upper * 9 + lower).astype(int)

    name = "RBM 16x16 on Artificial Modes, p_mut 0.01"
    return Problem(name, model, modes, "v", partition, 81, CHAINS)


def compared(problem: Problem, size: Scale, parts: Path, report) -> dict[str, dict]:
    """Report the shares of all methods; named arrays by method, the exact answers first."""
    exact = kept(parts, "exact", exact_answers, problem)
    rng = np.random.default_rng(1)
    work = {
        "Gibbs, one start": partial(chased, problem, size, None),
        "fast weights, no data term": partial(chased, problem, size, "chains"),
        "fast weights": partial(chased, problem, size, TERMS),
        "simulated tempering": partial(tempered, problem, size),
        "parallel tempering": partial(parallel, problem, size),
        "Wang-Landau": partial(wang_landau, problem, size),
    }
    for rate in OTHER_RATES:
        for method, terms in (("fast weights, no data term", "chains"), ("fast weights", TERMS)):
            name = f"{method}, rate {rate:g}"
            work[name] = partial(chased, problem, size, terms, rate=rate)
    report(f"\n## {problem.name}: {size.repeats} repeats, share of time in each mode")
    report(f"{'exact':37s} " + " ".join(f"{s:13.3f}" for s in exact["shares"]))
    found: dict[str, dict] = {"exact": exact}
    for method, run in work.items():
        runs = [
            kept(parts, f"{method}-{i}", run, exact, int(seed))
            for i, seed in enumerate(rng.integers(2**31, size=size.repeats))
        ]
        shares = np.stack([one["shares"] for one in runs])
        error = np.abs(shares - exact["shares"]).max(axis=1)
        note = "; ".join(str(one["note"]) for one in runs[:1])
        report(
            f"{method:37s} "
            + " ".join(f"{s.mean():.3f} +- {spread(s):.3f}" for s in shares.T)
            + f"   largest error {error.mean():.3f} +- {spread(error):.3f}   {note}"
        )
        found[method] = runs[0] | {"all": shares}
    tempering = kept(parts, "trajectory", trajectory, problem, size)
    found["trajectory"] = tempering
    return found


def spread(x: np.ndarray) -> float:
    """The standard error of the mean."""
    return float(x.std(ddof=1) / len(x) ** 0.5)


def mode_shares(states: np.ndarray, modes: np.ndarray) -> np.ndarray:
    """Share of the states (n, d) nearest to each mode, those between modes left out."""
    label = pgm.diagnostics.nearest_modes(states, modes)
    return np.array([(label == k).sum() for k in range(len(modes))]) / max((label >= 0).sum(), 1)


def exact_answers(problem: Problem) -> dict[str, np.ndarray]:
    """Shares of the modes, probabilities of the cells, and expected statistics, by exact draws."""
    draws = pgm.Exact(draws=400_000).run(problem.model.given(), ("samples",), rng=0).samples
    x = {name: value.reshape(len(value), -1) for name, value in draws.items()}
    shares = mode_shares(x[problem.layer], problem.modes)
    cells = np.bincount(problem.partition(x), minlength=problem.cells) / len(x[problem.layer])
    gradient = problem.model.gradient(x)
    return {"shares": shares, "cells": cells} | {
        f"mean {name}": np.asarray(g) / len(x[problem.layer]) for name, g in gradient.items()
    }


def chased(
    problem: Problem,
    size: Scale,
    terms: str | None,
    exact: dict[str, np.ndarray],
    seed: int,
    rate: float = RATE,
    decay: float = 0.95,
) -> dict[str, np.ndarray]:
    """Chains from the first mode, without fast weights or with terms of them."""
    model, layer, rng = problem.model, problem.layer, np.random.default_rng(seed)
    many = CHAINS if terms is None else problem.fast_chains
    x = start(model.given({layer: np.repeat(problem.modes[:1], many, axis=0)}), rng)
    rows = np.zeros(many, dtype=int)
    chains = make_chains(model.given().take(rows), pgm.Gibbs(), x, rng)
    fast = {name: np.zeros_like(value) for name, value in model.params.items()}
    states = np.empty((size.sweeps, *x[layer].shape))
    for t in range(size.sweeps):
        if terms is not None:
            driven = model.with_params({k: v + fast[k] for k, v in model.params.items()})
            chains = make_chains(driven.given().take(rows), pgm.Gibbs(), x, rng)
        chains.sweep(1)
        x = chains.values()
        states[t] = x[layer]
        if terms is not None:
            data = 1.0 if terms == TERMS else 0.0
            for k, own in model.gradient(x).items():
                fast[k] = decay * fast[k] + rate * (
                    data * exact[f"mean {k}"] - np.asarray(own) / many
                )
    label = pgm.diagnostics.nearest_modes(states.reshape(-1, states.shape[-1]), problem.modes)
    label = label.reshape(size.sweeps, many)
    changes = sum(_changes(chain) for chain in label.T) / many / size.sweeps
    return {
        "shares": mode_shares(states.reshape(-1, states.shape[-1]), problem.modes),
        "label": label[:SHOWN, 0],
        "note": np.array(f"{1e3 * changes:.2f} changes of mode in 1,000 sweeps"),
    }


def _changes(label: np.ndarray) -> int:
    """How often a chain comes to another mode, states between modes left out."""
    at = label[label >= 0]
    return int((at[1:] != at[:-1]).sum())


def answered(problem: Problem, method, seed: int):
    """The result of a method, and shares of its draws."""
    r = pgm.infer(problem.model, want=("samples",), rng=seed, method=method)
    draws = r.samples[problem.layer]
    return r, mode_shares(draws.reshape(-1, problem.modes.shape[1]), problem.modes)


def tempered(problem: Problem, size: Scale, exact, seed: int) -> dict[str, np.ndarray]:
    """Simulated tempering; half of the sweeps adapt the weights."""
    half = size.sweeps // 2
    method = pgm.SimulatedTempering(betas=pgm.Linear(RUNGS), chains=CHAINS, warmup=half, draws=half)
    r, shares = answered(problem, method, seed)
    low, trips = r.stats["occupancy"].min(), r.stats["round_trips"][0]
    note = f"least visited of {RUNGS} temperatures {low:.1%}, {trips:.0f} round trips"
    return {"shares": shares, "note": np.array(note)}


def parallel(problem: Problem, size: Scale, exact, seed: int) -> dict[str, np.ndarray]:
    """Parallel tempering with a quarter of the sweeps."""
    method = pgm.ParallelTempering(rungs=RUNGS, chains=CHAINS, draws=size.sweeps // 4)
    r, shares = answered(problem, method, seed)
    swaps = r.stats["swap_rejection"]
    note = f"swaps rejected {swaps.min():.0%} to {swaps.max():.0%}"
    return {"shares": shares, "note": np.array(note)}


def wang_landau(problem: Problem, size: Scale, exact, seed: int) -> dict[str, np.ndarray]:
    """Wang-Landau sampling; an eighth of the sweeps adapts the weights, an eighth is used."""
    method = pgm.WangLandau(
        problem.partition,
        problem.cells,
        chains=CHAINS,
        warmup=size.sweeps // 8,
        draws=size.sweeps // 8,
        layers=(problem.layer,),
    )
    r, shares = answered(problem, method, seed)
    occupancy, found = r.stats["occupancy"][0], r.stats["bin_prob"][0]
    note = (
        f"{np.count_nonzero(occupancy)} of {problem.cells} cells, occupancy "
        f"{occupancy.min():.3f} to {occupancy.max():.3f}"
    )
    return {"shares": shares, "occupancy": occupancy, "cells": found, "note": np.array(note)}


def trajectory(problem: Problem, size: Scale) -> dict[str, np.ndarray]:
    """Mode and inverse temperature of one chain of simulated tempering after its adaptation."""
    rng, many = np.random.default_rng(0), min(size.sweeps, SHOWN)
    betas = np.linspace(0, 1, RUNGS)
    levels = Levels(problem.model.given(), betas, CHAINS, pgm.Gibbs(), FlatHistogram(), rng)
    for _ in range(size.sweeps // 2):
        levels.step(adapt=True)
    label, at = np.empty(many, dtype=int), np.empty(many)
    for t in range(many):
        levels.step(adapt=False)
        x = levels.chains.values()[problem.layer][:1]
        label[t] = pgm.diagnostics.nearest_modes(x, problem.modes)[0]
        at[t] = betas[levels.rung.ravel()[0]]
    return {"label": label, "beta": at}


def overheads(size: Scale) -> dict[str, np.ndarray]:
    """Time of an adaptive step of simulated tempering over that of a plain sweep."""
    params = {
        "v-h.weight": np.random.default_rng(0).normal(size=(784, 500)) * 0.05,
        "v.bias": np.full(784, -2.0),
    }
    return {
        "two spins": np.array(overhead(two_spins().model, size.steps)),
        "RBM 784x500": np.array(
            overhead(pgm.rbm(784, 500).with_params(params), max(size.steps // 4, 5))
        ),
    }


def overhead(model: pgm.Model, steps: int, chains: int = 100) -> float:
    """Time of an adaptive step of simulated tempering over that of a plain sweep, medians of five
    runs in turn.
    """
    rng = np.random.default_rng(0)
    target = model.given()
    levels = Levels(target, np.linspace(0.9, 1, 20), chains, pgm.Gibbs(), FlatHistogram(), rng)
    many = target.take(np.zeros(chains, dtype=int))
    plain = make_chains(many, pgm.Gibbs(), start(many, rng), rng)
    times: dict[str, list[float]] = {"plain": [], "tempered": []}
    for _ in range(5):
        for name, step in (
            ("plain", lambda: plain.sweep(1)),
            ("tempered", lambda: levels.step(adapt=True)),
        ):
            begin = time.perf_counter()
            for _ in range(steps // 5):
                step()
            times[name].append(time.perf_counter() - begin)
    return float(np.median(times["tempered"]) / np.median(times["plain"]))


def figure(shown: dict[str, dict], out: Path) -> None:
    """A chain in time by method, the shares of the modes, and the cells of the partition."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    for found, name in zip(shown.values(), ("figure_2.png", "figure_4.png"), strict=True):
        exact, tempering = found["exact"], found["trajectory"]
        methods = [m for m in found if m not in ("exact", "trajectory")]
        chains = {m: found[m]["label"] for m in methods if "label" in found[m] and "rate" not in m}
        chains["simulated tempering"] = tempering["label"]
        whole = plt.figure(figsize=(11, 6.2), layout="constrained")
        grid = whole.add_gridspec(len(chains) + 1, 2, width_ratios=(1.5, 1))
        for i, (method, label) in enumerate(chains.items()):
            axis = whole.add_subplot(grid[i, 0])
            axis.plot(np.where(label < 0, np.nan, label + 1), ".", markersize=2)
            axis.set(yticks=range(1, len(exact["shares"]) + 1), xlim=(0, len(label)), ylabel="mode")
            axis.set_ylim(0.5, len(exact["shares"]) + 0.5)
            axis.set_title(method, fontsize=9)
        axis = whole.add_subplot(grid[len(chains), 0])
        axis.plot(tempering["beta"], linewidth=0.7)
        axis.set(xlim=(0, len(tempering["beta"])), xlabel="sweep", ylabel="beta")
        axis.set_title("its inverse temperature", fontsize=9)
        half = (len(chains) + 1) // 2
        axis, bottom = whole.add_subplot(grid[:half, 1]), np.zeros(len(methods) + 1)
        for mode in range(len(exact["shares"])):
            height = [exact["shares"][mode], *(found[m]["all"][:, mode].mean() for m in methods)]
            axis.barh(["exact", *methods], height, left=bottom, label=f"mode {mode + 1}")
            bottom += height
        axis.axvline(exact["shares"][0], color="black", linewidth=0.6, linestyle=":")
        axis.invert_yaxis()
        axis.set(title="share of time", xlim=(0, 1))
        axis = whole.add_subplot(grid[half:, 1])
        cells = found["Wang-Landau"]
        cell = np.arange(len(cells["occupancy"]))
        # Sampled frequencies of cells that exact draws did not meet are left out of the plot.
        for what, style in (("exact", "k_"), ("Wang-Landau", "C1x")):
            axis.plot(cell, np.where(found[what]["cells"] > 0, found[what]["cells"], np.nan), style)
        axis.plot(cell, cells["occupancy"], "C0.")
        axis.set(yscale="log", xlabel="cell of the partition", ylabel="share")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(["exact probability", "estimate", "occupancy"], fontsize=8)
        axis.set_title("Wang-Landau sampling", fontsize=9)
        whole.savefig(out / name, dpi=72)


if __name__ == "__main__":
    typer.run(main)
