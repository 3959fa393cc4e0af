"""Runs of samplers.py: a deep Boltzmann machine learned on MNIST, measured, and kept in files.

A finished run is a file NAME.json of its numbers, and the model NAME.safetensors. An unfinished one
goes on from its checkpoint. The bound is the mean-field bound of the mean log p of images, with
log Z by annealing from base rates, up and down; its mean over the two directions counts.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from deep_boltzmann import both_directions, updates_in

import pgmengine as pgm

# Updates for which images are drawn together.
BLOCK = 100
BATCH = 100
# Bounds, and entries of occupancy, in the history of a run.
POINTS, ENTRIES = 10, 20
# The standard deviation of a mean over images below which a hidden unit counts as constant.
CONSTANT = 0.01


@dataclass(frozen=True)
class Scale:
    """Sizes of the experiment at one scale."""

    sizes: tuple[int, int, int]
    updates: int
    seeds: int
    images: int  # for learning
    held: int  # images of validation, and of test
    rungs: int  # of CAST
    curve: tuple[int, int, int]  # images, chains and temperatures of the bounds on the way
    chains: int  # of the last estimate of log Z
    temperatures: int


@dataclass(frozen=True)
class Images:
    """Grey images to learn from, and binary images of validation and test."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def stem(title: str) -> str:
    """The name of the files of a run."""
    return title.replace(", ", "-").replace(" ", "-")


def load(size: Scale) -> Images:
    """The images of a scale; the last sixth of the training file is for validation."""
    grey, drawn = pgm.datasets.mnist(binary=False), np.random.default_rng(0)
    train, test = grey.x_train.astype(np.float32), grey.x_test.astype(np.float32)
    cut = len(train) * 5 // 6
    held = [
        (drawn.random(x.shape, dtype=np.float32) < x).astype(np.float32)
        for x in (train[cut:][: size.held], test[: size.held])
    ]
    return Images(train[:cut][: size.images], *held)


def block(images: Images, seed: int, number: int) -> np.ndarray:
    """Binary images of the updates from `number` BLOCK on; a seed sees all images in each pass."""
    rows = min(BLOCK * BATCH, len(images.train))
    round_, part = divmod(number, len(images.train) // rows)
    order = np.random.default_rng([seed, round_]).permutation(len(images.train))
    grey = images.train[order[part * rows : (part + 1) * rows]]
    drawn = np.random.default_rng([seed, round_, part]).random(grey.shape, dtype=np.float32)
    return (drawn < grey).astype(np.float32)


def beginning(images: Images, sizes: tuple[int, int, int], seed: int) -> pgm.Model:
    """The model before learning: base rates, and weights N(0, 0.01^2)."""
    rng, model = np.random.default_rng([seed, 1]), pgm.dbm(list(sizes), rng=seed)
    small = {
        k: rng.normal(0, 0.01, v.shape) for k, v in model.params.items() if k.endswith(".weight")
    }
    return pgm.base_rate_start(model.with_params(small), {"v": block(images, seed, 0)})


@dataclass(frozen=True)
class Work:
    """The runs of one experiment; a finished one is a file NAME.json in the folder."""

    size: Scale
    images: Images
    updates: int
    out: Path

    def run(
        self, title: str, name: str, phase: Any, schedule: str, seed: int, bounds: bool = True
    ) -> dict[str, Any]:
        """The result of a run: from its file, else by learning from its checkpoint on."""
        title = stem(title)
        path = self.out / f"{title}.json"
        if path.exists():
            result = json.loads(path.read_text())
            asked = {"settings": repr(phase), "schedule": schedule, "updates": self.updates}
            for what, mine in asked.items():
                if result[what] != mine:
                    raise SystemExit(
                        f"{path} has {what} {result[what]}, this run {mine}: name another OUT"
                    )
            return result
        f, cost = self.learned(title, phase, schedule, seed, bounds)
        result = {
            "name": name,
            "seed": seed,
            "schedule": schedule,
            "updates": self.updates,
            "settings": repr(phase),
            "ms": cost,
            "ladder": ladder(f.history),
        }
        if bounds:
            pgm.save(f.model, self.out / f"{title}.safetensors")
            result["curve"] = {
                k: f.history[k]["value"].tolist() for k in ("bound", "forward", "reverse", "error")
            } | {"update": f.history["bound"]["update"].tolist()}
            result["final"] = self.measured(f.model)
            result |= self.best(title, result)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(result))
        part.replace(path)
        (self.out / f"{title}.checkpoint").unlink(missing_ok=True)
        print(f"{time.strftime('%H:%M:%S')} {title}: {brief(result)}", file=sys.stderr, flush=True)
        return result

    def learned(
        self, title: str, phase: Any, schedule: str, seed: int, bounds: bool
    ) -> tuple[pgm.Fit, float]:
        """The fit, and milliseconds an update with its share of monitors."""
        model, kind, rate = beginning(self.images, self.size.sizes, seed), *schedule.split()
        steps: Any = float(rate)
        if kind == "falling":
            steps = pgm.linear_decay(float(rate), self.updates, self.updates // 10)
        callbacks: list[Any] = []
        if bounds:
            few, chains, temperatures = self.size.curve
            log_z = estimator(model, self.images.validation, chains, temperatures)
            every, kept = self.updates // POINTS, self.out / title
            callbacks.append(Curve(self.images.validation[:few], log_z, every, kept))
        if hasattr(phase, "betas"):
            callbacks.append(pgm.Occupancy(every=self.updates // ENTRIES))
        checkpoint = self.out / f"{title}.checkpoint"
        begin, before = time.time(), updates_in(checkpoint)
        done = before
        while True:
            # A finished fit is read from its checkpoint, which has the history.
            f = pgm.fit(
                model,
                {"v": block(self.images, seed, min(done, self.updates - 1) // BLOCK)},
                negative=phase,
                positive=pgm.MeanField(updates=5, precision=np.float32),
                optimizer=pgm.Centered(pgm.SGD(steps)),
                batch_size=BATCH,
                updates=min((done // BLOCK + 1) * BLOCK, self.updates),
                rng=seed,
                progress=False,
                callbacks=callbacks,
                checkpoint=checkpoint,
            )
            done = f.state["update"]
            if done >= self.updates:
                return f, 1e3 * (time.time() - begin) / max(done - before, 1)

    def measured(self, model: pgm.Model) -> dict[str, float]:
        """Bounds of validation and test images, with log Z from both directions.

        If the directions disagree by more than three standard errors, there are four times as many
        temperatures.
        """
        for longer in (1, 4):
            count = longer * self.size.temperatures
            log_z = estimator(model, self.images.validation, self.size.chains, count)
            ends = both_directions(log_z, model)
            if abs(ends["forward"] - ends["reverse"]) < 3 * 2 * ends["error"]:
                break
        found = ends | {"temperatures": count}
        for name in ("validation", "test"):
            found[name] = mean_bound(model, getattr(self.images, name)) - ends["log_z"]
        means = pgm.MeanField(updates=50, precision=np.float32, tolerance=1e-4)
        given = model.given({"v": self.images.test[:2_000]})
        for layer, value in means.run(given, ("marginals",)).mean.items():
            if layer != "v":
                found[f"constant {layer}"] = float((value.std(axis=0) < CONSTANT).mean())
        return found

    def best(self, title: str, result: dict[str, Any]) -> dict[str, Any]:
        """The measurement of the model with the best bound on the way; other models are removed."""
        curve = result["curve"]
        update = curve["update"][int(np.argmax(curve["bound"]))]
        files = sorted(self.out.glob(f"{title}-*.safetensors"))
        if update == self.updates:
            found = result["final"]
        else:
            found = self.measured(pgm.load(self.out / f"{title}-{update}.safetensors"))
        for file in files:
            file.unlink()
        return {"best": found | {"update": update}}


@dataclass(frozen=True)
class Curve:
    """A callback: the bound of validation images; it keeps each model that it measures."""

    images: np.ndarray
    log_z: pgm.AIS
    every: int
    kept: Path

    def __call__(self, model: pgm.Model, update: int) -> dict[str, float] | None:
        """The bound and log Z forward and in reverse; None between two values."""
        if update % self.every or not update:
            return None
        pgm.save(model, f"{self.kept}-{update}.safetensors")
        ends = both_directions(self.log_z, model)
        bound = mean_bound(model, self.images) - ends.pop("log_z")
        return {"bound": bound, **ends}


def estimator(model: pgm.Model, images: np.ndarray, chains: int, temperatures: int) -> pgm.AIS:
    """Annealing from base rates, up and down."""
    reference = pgm.base_rates(model, {"v": images}, 0.05 * len(images))
    return pgm.AIS(chains, temperatures, reverse=True, reference=reference, confirm=0)


def mean_bound(model: pgm.Model, images: np.ndarray) -> float:
    """The mean of the mean-field bound of log p + log Z."""
    positive = pgm.MeanField(updates=50, precision=np.float32, tolerance=1e-4)
    parts = np.array_split(images, max(len(images) // 500, 1))
    runs = [positive.run(model.given({"v": part}), ("log_z",)).log_z for part in parts]
    return float(np.concatenate(runs).mean())


def ladder(history: dict[str, Any]) -> dict[str, Any]:
    """The entries of Occupancy; nothing for a phase without a ladder."""
    names = ("occupancy", "round_trips", "hop_acceptance", "swap_acceptance")
    return {k: history[k]["value"].tolist() for k in names if k in history}


def brief(result: dict[str, Any]) -> str:
    """The numbers of a run in a line."""
    found = (
        {k: result["final"][k] for k in ("test", "validation", "forward", "reverse", "error")}
        if "final" in result
        else {}
    )
    if result["ladder"]:
        found["round trips"] = sum(result["ladder"]["round_trips"])
    return ", ".join(f"{k} {v:.2f}" for k, v in (found | {"ms": result["ms"]}).items())
