"""Temperatures of the fast chains of CAST while a DBM learns MNIST, by the floor of the log
weights.

    python benchmarks/reproduce/occupancy.py OUT DIRECTORY [--scale full] [--floor 0.05]
                                             [--updates N] [--rate 0.06] [--rise 20000]
    python benchmarks/reproduce/occupancy.py OUT DIRECTORY --bias [--scale full]

DIRECTORY holds the MNIST files. The first command is the start of deep_boltzmann.py's run of CAST
(the rate would fall to 0 at update 200,000), with a monitor in place of bounds. A line for each 400
updates: levels visited, the shares of beta = 1, of 0.9 and of the least visited level, round trips
of the 100 chains, and acceptance of hops and of swaps.

The second one has no data: the mean of eight spins in two modes, which slow chains do not leave,
by coupled chains at fixed parameters, less the exact mean.

Writes occupancy-FLOOR-RISE.txt and a picture of the shares, or bias.txt, into OUT, and each part
into OUT/parts, from which it goes on when it is run again. `full` makes 6,400 updates; `small`
tries the command in seconds.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from deep_boltzmann import FRESH, NEAR, beginning, binarised
from sweep import kept

import pgmengine as pgm

STEPS = 200_000


@dataclass(frozen=True)
class Scale:
    """Sizes at one scale."""

    sizes: tuple[int, int, int]
    updates: int
    every: int  # updates between two lines
    steps: int  # of chains at fixed parameters
    repeats: int


SCALES = {
    "small": Scale((784, 20, 20), 40, 20, 60, 2),
    "full": Scale((784, 500, 1000), 6_400, 400, 3_000, 24),
}


def main(
    out: Path,
    data: Path,
    scale: str = "small",
    floor: float = 0.05,
    updates: int = 0,
    rate: float = 0.06,
    rise: int = 20_000,
    bias: bool = False,
) -> None:
    """Learn, or sample at fixed parameters, and write the table."""
    out.mkdir(parents=True, exist_ok=True)
    size, name = SCALES[scale], "bias" if bias else f"occupancy-{floor:g}-{rise}"
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        print(line, file=sys.stderr, flush=True)
        (out / f"{name}.txt").write_text("\n".join(lines) + "\n")

    if bias:
        biases(size, report, out / "parts")
        return
    updates = updates or size.updates
    steps = pgm.linear_decay(rate, STEPS, rise)
    negative = pgm.CAST(chains=100, betas=NEAR, swap_every=2, gamma=pgm.OneOverT(floor=floor))
    report(f"# {negative}, {steps}")
    report("update  levels  beta = 1   0.9     least   round trips   hops   swaps")
    label = f"{name}-{rate:g}-{updates}-{size.sizes[1]}"
    history = kept(out / "parts", label, learn, data, size, negative, updates, steps)
    for line in table(history):
        report(line)
    figure(history, floor, out / f"{name}.png")


def learn(
    data: Path, size: Scale, negative: pgm.CAST, updates: int, rate: pgm.linear_decay
) -> dict[str, np.ndarray]:
    """The entries of the monitor while learning goes on: name -> values, and their updates."""
    os.environ["PGMENGINE_DATA"] = str(data)
    grey = pgm.datasets.mnist(binary=False).x_train.astype(np.float32)
    model, state, done = beginning(binarised(grey, 0), size.sizes), None, 0
    found: dict[str, list[np.ndarray]] = {}
    while done < updates:
        until = min((done // FRESH + 1) * FRESH, updates)
        f = pgm.fit(
            model,
            {"v": binarised(grey, done // FRESH)},
            negative=negative,
            batch_size=100,
            updates=until,
            rng=0,
            optimizer=pgm.Centered(pgm.SGD(rate)),
            state=state,
            progress=False,
            callbacks=[pgm.Occupancy(every=size.every)],
        )
        for name in MONITORED:
            if name in f.history:
                found.setdefault(name, []).append(f.history[name]["value"])
        if MONITORED[0] in f.history:
            found.setdefault("update", []).append(f.history[MONITORED[0]]["update"])
        model, state, done = f.model, f.state, until
    return {name: np.concatenate(values) for name, values in found.items()}


MONITORED = ("occupancy", "round_trips", "hop_acceptance", "swap_acceptance")


def table(history: dict[str, np.ndarray]) -> list[str]:
    """A line for each entry."""
    columns = (history[name] for name in ("update", *MONITORED))
    return [
        f"{update:6d}  {np.count_nonzero(share):6d}  {share[0]:8.3f}  "
        f"{share[-1]:.4f}  {share.min():.4f}  "
        f"{trips:11.0f}  {hops:.3f}  {swaps:.3f}"
        for update, share, trips, hops, swaps in zip(*columns, strict=True)
    ]


def figure(history: dict[str, np.ndarray], floor: float, path: Path) -> None:
    """Shares of time at the temperatures, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    whole, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    shares = history["occupancy"].T
    image = axis.imshow(shares, aspect="auto", vmin=0, interpolation="nearest")
    axis.set_xticks(range(shares.shape[1]), [str(u) for u in history["update"]], rotation=90)
    axis.set_yticks((0, len(shares) - 1), ("1", f"{NEAR[0]:g}"))
    axis.set(xlabel="update", ylabel="beta", title=f"share of time, floor {floor:g}")
    whole.colorbar(image)
    whole.savefig(path, dpi=72)


def biases(size: Scale, report, parts: Path) -> None:
    """The mean of slow chains less the exact one, by floor and number of pairs."""
    weight = 0.432 * (np.ones((8, 8)) - np.eye(8))
    model = pgm.boltzmann_machine(8).with_params({"x-x.weight": weight, "x.bias": np.full(8, 0.12)})
    exact = float(pgm.infer(model, method=pgm.Exact()).mean["x"].mean())
    steps, repeats = size.steps, size.repeats
    report(
        f"# exact mean {exact:.4f}; {steps} steps, the first {steps // 3} left out; "
        "8 temperatures from 0.3"
    )
    for floor, pairs in ((0.0, 100), (0.5, 100), (1.0, 100), (0.0, 20), (0.5, 20)):
        found = np.array(
            [
                kept(
                    parts,
                    f"bias-{floor:g}-{pairs}-{steps}-{seed}",
                    slow_mean,
                    model,
                    floor,
                    pairs,
                    steps,
                    seed,
                )["mean"]
                for seed in range(repeats)
            ]
        )
        found -= exact
        report(
            f"floor {floor:<5g} {pairs:4d} pairs: {np.mean(found):+.4f} "
            f"+- {np.std(found, ddof=1) / repeats**0.5:.4f} "
            f"({repeats} repeats)"
        )


def slow_mean(
    model: pgm.Model, floor: float, pairs: int, steps: int, seed: int
) -> dict[str, np.ndarray]:
    """The mean of all units of the slow chains, over the last two thirds of the steps."""
    target, rng = model.given().take(np.zeros(pairs, dtype=int)), np.random.default_rng(seed)
    gamma = pgm.OneOverT(floor=floor)
    coupled, means = (
        pgm.CoupledTempering(target, np.linspace(0.3, 1, 8), pgm.Gibbs(), gamma, 10, rng),
        [],
    )
    for step in range(steps):
        coupled.step()
        if step >= steps // 3 and step % 10 == 9:
            means.append(coupled.states()["x"].mean())
    return {"mean": np.mean(means)}


if __name__ == "__main__":
    typer.run(main)
