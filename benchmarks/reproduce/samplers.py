"""Salakhutdinov (2010): which model phase learns the best deep Boltzmann machine?

    python benchmarks/reproduce/samplers.py OUT DIRECTORY [--scale small|middle|full]
                                            [--only NAME,NAME] [--seeds N] [--updates N]
                                            [--schedule NAME] [--floor NUMBER] [--page PAGE]
                                            [--checks] [--longer]

DIRECTORY holds the MNIST files. `middle` compares the model phases on a machine 784-200-200 with
five seeds, `full` makes one run of each on 784-500-1000, and `small` tries the command in seconds.
Nothing is chosen by hand. The command makes these steps, and each goes on from the files in OUT:

1. The schedule of the rate. SAP with 100 chains learns with each of SCHEDULES and the seed PILOT,
   which the comparison does not use. The bound of the validation images decides. `--schedule` names
   a schedule in place of the search.
2. The floor of the log weights of CAST. CAST with 50 pairs and one set of log weights learns with
   each of FLOORS and the seed PILOT. A floor has a price, so that all kinds of CAST take the lowest
   one that keeps the ladder in use: in each entry of the last three quarters of the run, the least
   visited rung has at least a quarter of an even share. If none does, they take the highest. No
   bound is computed. `--floor` names a floor in place of the search.
3. Every phase of `phases` learns with every seed, at the schedule of step 1.
4. Tables and a figure, by samplers_report.py. With --page they replace the ones of the page. With
   --checks the models of the first seed are examined by sampler_checks.py, and with --longer
   all models are measured again with four times as many temperatures.

Fixed before any result was known: ladders from 0.9 to 1, as published. A chain that moves freely
over n rungs makes a round trip in about 2 n^2 updates, so that the 20 rungs of the paper would
leave a few of them in a run of this length. CAST therefore has 10 rungs at the scale middle. Its
pairs exchange places every 5 updates, if the fast chain is at beta = 1, a tenth of the time: once
in 50 updates, as published. TransSAP makes an excursion over the 20 rungs of the paper every 40
updates, so that it does the work of SAP with 200 chains. Fast weights decay by 0.95, as published.

The first 50,000 images of the training file are learned, the last 10,000 are for validation. Pixels
are drawn anew with probabilities equal to the grey values; validation and test images are drawn
once. Runs of one seed share the start, and in each 100 updates the same 10,000 drawn images. Their
order within these is not shared, because fit shuffles with the random numbers of its chains.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import typer
from sampler_checks import annealed_longer, checked
from sampler_runs import ENTRIES, Scale, Work, load, stem
from samplers_report import report

import pgmengine as pgm

# The seed of the searches of schedule and floor.
PILOT = 100
# First rates that fall linearly to 0 (after a rise in the first tenth), and a constant one.
SCHEDULES = ("falling 0.05", "falling 0.1", "falling 0.2", "falling 0.4", "constant 0.05")
FLOORS = (0.05, 0.2, 0.5)
FAST_RATES = (0.0003, 0.001, 0.003)
# The least share of a rung of a ladder that is in use, as a multiple of an even share.
LEAST = 0.25


SCALES = {
    "small": Scale((784, 10, 10), 100, 2, 2_000, 200, 5, (100, 10, 20), 20, 100),
    "middle": Scale((784, 200, 200), 5_000, 5, 50_000, 10_000, 10, (1_000, 50, 300), 100, 1_500),
    "full": Scale((784, 500, 1000), 10_000, 1, 50_000, 10_000, 20, (1_000, 100, 500), 100, 4_000),
}


def main(
    out: Path,
    data: Path,
    scale: str = "small",
    only: str = "",
    seeds: int = 0,
    updates: int = 0,
    schedule: str = "",
    floor: float = 0.0,
    page: Path | None = None,
    checks: bool = False,
    longer: bool = False,
) -> None:
    """Search the schedule and the floor, learn, and write tables and figure."""
    os.environ["PGMENGINE_DATA"] = str(data)
    # Each block of updates is a fit, whose findings say nothing about the whole.
    logging.getLogger("pgmengine").setLevel(logging.ERROR)
    size, out = SCALES[scale], out / scale
    out.mkdir(parents=True, exist_ok=True)
    updates, images = updates or size.updates, load(size)
    work = Work(size, images, updates, out)
    search = work
    if scale == "full":
        # The floor of the smaller machine, which is searched there if need be. A larger machine
        # needs smaller steps, so that its schedule is its own.
        smaller = SCALES["middle"]
        search = Work(smaller, images, smaller.updates, out.parent / "middle")
        search.out.mkdir(exist_ok=True)
    schedule = schedule or best_schedule(work)
    if not floor and any(name.startswith("CAST") for name in chosen(phases(size, 0.0), only)):
        floor = lowest_floor(search, best_schedule(search))
    for seed in range(seeds or size.seeds):
        for name, phase in chosen(phases(size, floor), only).items():
            work.run(f"{name}, seed {seed}", name, phase, schedule, seed)
        report(out, page)
    names = list(chosen(phases(size, floor), only))
    if checks:
        for name in names:
            checked(work, stem(f"{name}, seed 0"))
    if longer:
        for seed in range(seeds or size.seeds):
            for name in names:
                annealed_longer(work, stem(f"{name}, seed {seed}"))
    report(out, page)


def phases(size: Scale, floor: float) -> dict[str, Any]:
    """Name -> model phase. The first two are the controls."""
    near, paper = (np.linspace(0.9, 1.0, n).tolist() for n in (size.rungs, 20))
    settings = {"betas": near, "swap_every": 50 // size.rungs, "gamma": pgm.OneOverT(floor=floor)}
    found: dict[str, Any] = {f"SAP {n}": pgm.PCD(chains=n) for n in (100, 200)}
    for pairs in (50, 100):
        for own in (False, True):
            name = f"CAST {pairs}+{pairs}, {'own weights' if own else 'one set'}"
            found[name] = pgm.CAST(chains=pairs, weights_per_chain=own, **settings)
    for rate in FAST_RATES:
        found[f"Fast PCD {rate:g}"] = pgm.FastPCD(chains=100, rate=rate, decay=0.95)
    found["TransSAP"] = pgm.TransSAP(betas=paper, every=40, chains=100)
    # As many chains as CAST 50+50 has slow ones. It was added after the first results were known,
    # and is in no planned comparison.
    return found | {"SAP 50": pgm.PCD(chains=50)}


def chosen(found: dict[str, Any], only: str) -> dict[str, Any]:
    """The phases whose names contain one of the words of `only`; all without any."""
    words = [word.strip() for word in only.split(",") if word.strip()]
    return {k: v for k, v in found.items() if not words or any(word in k for word in words)}


def best_schedule(work: Work) -> str:
    """The schedule that is best for SAP with 100 chains on validation images."""
    bounds = {}
    for s in SCHEDULES:
        result = work.run(f"schedule {s}", "SAP 100", pgm.PCD(chains=100), s, PILOT)
        bounds[s] = result["final"]["validation"]
    return max(bounds, key=bounds.__getitem__)


def lowest_floor(work: Work, schedule: str) -> float:
    """The lowest floor of the log weights of CAST that keeps the ladder in use."""
    name = "CAST 50+50, one set"
    for floor in FLOORS:
        phase = phases(work.size, floor)[name]
        result = work.run(f"floor {floor:g}", name, phase, schedule, PILOT, bounds=False)
        shares = np.array(result["ladder"]["occupancy"][ENTRIES // 4 :])
        if shares.min() >= LEAST / work.size.rungs:
            break
    return floor


if __name__ == "__main__":
    typer.run(main)
