"""Temperatures of the fast chains of CAST while a DBM learns MNIST, by the floor of the log
weights.

    python benchmarks/reproduce/occupancy.py OUT DIRECTORY [--floor 0.05] [--updates 6400]
                                             [--rate 0.06] [--rise 20000]
    python benchmarks/reproduce/occupancy.py OUT DIRECTORY --bias

DIRECTORY holds the MNIST files. The first command is the start of deep_boltzmann.py's run of CAST
(the rate would fall to 0 at update 200,000), with a monitor in place of bounds. A line for each 400
updates: levels visited, the shares of beta = 1, of 0.9 and of the least visited level, round trips
of the 100 chains, and acceptance of hops and of swaps.

The second one has no data: the mean of eight spins in two modes, which slow chains do not leave,
by coupled chains at fixed parameters, less the exact mean. Writes occupancy-FLOOR-RISE.txt, or
bias.txt, into OUT.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import typer
from deep_boltzmann import FRESH, NEAR, SCALES, beginning, binarised

import pgmengine as pgm

STEPS = 200_000
EVERY = 400


def main(
    out: Path,
    data: Path,
    floor: float = 0.05,
    updates: int = 6_400,
    rate: float = 0.06,
    rise: int = 20_000,
    bias: bool = False,
) -> None:
    """Learn, or sample at fixed parameters, and write the table."""
    out.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        print(line, file=sys.stderr, flush=True)
        (out / ("bias.txt" if bias else f"occupancy-{floor:g}-{rise}.txt")).write_text(
            "\n".join(lines) + "\n"
        )

    if bias:
        biases(report)
    else:
        learn(data, floor, updates, pgm.linear_decay(rate, STEPS, rise), report)


def learn(data: Path, floor: float, updates: int, rate: pgm.linear_decay, report) -> None:
    """Report the entries of the monitor as learning goes on."""
    os.environ["PGMENGINE_DATA"] = str(data)
    grey = pgm.datasets.mnist(binary=False).x_train.astype(np.float32)
    negative = pgm.CAST(chains=100, betas=NEAR, swap_every=2, gamma=pgm.OneOverT(floor=floor))
    report(f"# {negative}, {rate}")
    report("update  levels  beta = 1   0.9     least   round trips   hops   swaps")
    model, state, done = beginning(binarised(grey, 0), SCALES["full"].sizes), None, 0
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
            callbacks=[pgm.Occupancy(every=EVERY)],
        )
        for line in table(f.history):
            report(line)
        model, state, done = f.model, f.state, until


def table(history) -> list[str]:
    """A line for each entry."""
    if "occupancy" not in history:
        return []
    columns = (
        history[name]["value"]
        for name in ("occupancy", "round_trips", "hop_acceptance", "swap_acceptance")
    )
    return [
        f"{update:6d}  {np.count_nonzero(share):6d}  {share[0]:8.3f}  "
        f"{share[-1]:.4f}  {share.min():.4f}  "
        f"{trips:11.0f}  {hops:.3f}  {swaps:.3f}"
        for update, share, trips, hops, swaps in zip(
            history["occupancy"]["update"], *columns, strict=True
        )
    ]


def biases(report, steps: int = 3_000) -> None:
    """The mean of slow chains less the exact one, by floor and number of pairs."""
    weight = 0.432 * (np.ones((8, 8)) - np.eye(8))
    model = pgm.boltzmann_machine(8).with_params({"x-x.weight": weight, "x.bias": np.full(8, 0.12)})
    exact = float(pgm.infer(model, method=pgm.Exact()).mean["x"].mean())
    report(
        f"# exact mean {exact:.4f}; {steps} steps, the first {steps // 3} left out; "
        "8 temperatures from 0.3"
    )
    repeats = 24
    for floor, pairs in ((0.0, 100), (0.5, 100), (1.0, 100), (0.0, 20), (0.5, 20)):
        found = [slow_mean(model, floor, pairs, steps, seed) - exact for seed in range(repeats)]
        report(
            f"floor {floor:<5g} {pairs:4d} pairs: {np.mean(found):+.4f} "
            f"+- {np.std(found, ddof=1) / repeats**0.5:.4f} "
            f"({repeats} repeats)"
        )


def slow_mean(model: pgm.Model, floor: float, pairs: int, steps: int, seed: int) -> float:
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
    return float(np.mean(means))


if __name__ == "__main__":
    typer.run(main)
