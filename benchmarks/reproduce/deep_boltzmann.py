"""Salakhutdinov (2010), table 1 and figure 4: a deep Boltzmann machine 784-500-1000 on
MNIST.

    python benchmarks/reproduce/deep_boltzmann.py OUT DIRECTORY [--scale full] [--only NAME]
    [--updates N]
                                                  [--rate R [--rise N]]

DIRECTORY holds the MNIST files. Learned by SAP (PCD), TransSAP and CAST, and by SAP with fast
weights at the slow rate (SlowFast, which has no published value: Fast PCD has a large, fixed rate):
batches of 100, 5 mean-field updates, rate 10 / (2000 + t), from base rates and weights N(0,
0.01^2), with momentum 0.9 and centred gradients: without these two such a start is left very
slowly. With --rate the rate falls linearly from R to 0 instead, without momentum, which learns far
more; with --rise it first rises from 0 over N updates, without which many hidden units end for good
(see benchmarks/results/deep_boltzmann.md). Writes deep_boltzmann.txt and .png into OUT (with NAME
in their names if one is given), models as NAME.safetensors, and checkpoints from which it goes on
when it is run again.
`full` makes 200,000 updates of each; `small` tries the command in seconds. Training images are
binarised anew every 3,000 updates, each pixel 1 with probability equal to its grey value; test
images once.

Measured, of the last model and of the average of the parameters of about the last 5,000 updates:
the variational bound of log p of the test images, with log Z by annealed importance sampling in
both directions, as in the curves.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from safetensors import safe_open
from sweep import kept

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start
from pgmengine.infer.sampling.ladders.wandering import Levels

PUBLISHED = {"SAP": "-87.23", "SlowFast": "none", "TransSAP": "-85.41", "CAST": "-84.12"}
# the paper's rate of the slow weights
RATE = pgm.harmonic(10, 2000)
# Updates between two draws of binary images from the grey images: five passes.
FRESH = 3_000
NEAR = np.linspace(0.9, 1.0, 20).tolist()


@dataclass(frozen=True)
class Scale:
    """Sizes of the experiment at one scale."""

    sizes: tuple[int, int, int]
    updates: int
    monitor: int  # updates between two bounds
    curve: int  # temperatures of the estimates on the way
    annealing: int  # temperatures of the last estimate
    test: int  # images of the last estimate
    sweeps: int  # of the chains that are drawn


SCALES = {
    "small": Scale((784, 20, 20), 40, 20, 50, 100, 100, 24),
    "full": Scale((784, 500, 1000), 200_000, 10_000, 2_000, 10_000, 10_000, 10_000),
}


def methods():
    """Name -> negative phase."""
    return {
        "SAP": pgm.PCD(k=1, chains=100),
        "SlowFast": pgm.FastPCD(k=1, chains=100, rate=RATE, decay=0.95),
        "TransSAP": pgm.TransSAP(betas=NEAR, every=20, chains=100),
        # every second update, because a fast chain can only take part where it is at beta = 1: a
        # twentieth of the time if all levels are visited alike, as with this floor (occupancy.py)
        "CAST": pgm.CAST(chains=100, betas=NEAR, swap_every=2, gamma=pgm.OneOverT(floor=0.5)),
    }


def main(
    out: Path,
    data: Path,
    scale: str = "small",
    only: str = "",
    updates: int = 0,
    rate: float = 0.0,
    rise: int = 0,
) -> None:
    """Learn, measure, and write the table and the figure."""
    os.environ["PGMENGINE_DATA"] = str(data)
    size, test = SCALES[scale], pgm.datasets.mnist(rng=0).x_test
    grey = pgm.datasets.mnist(binary=False).x_train.astype(np.float32)
    out.mkdir(parents=True, exist_ok=True)
    updates = updates or size.updates
    steps = pgm.SGD(pgm.linear_decay(rate, updates, rise)) if rate else pgm.SGD(RATE, momentum=0.9)
    found, lines = {}, [f"# scale {scale}, {updates} updates, {steps}"]
    lines.append("method     bound (published)   log Z, forward and reverse     ms an update")
    for name, negative in methods().items():
        if only not in ("", name):
            continue
        f, cost = learned(name, negative, grey, test, size, steps, updates, out)
        for label, model in ((name, f.model), ("  average", f.averaged)):
            row = kept(
                out / "parts", f"{name}-{label.strip()}-{updates}", measured, model, test, size
            )
            lines.append(
                f"{label:10s} {row['bound']:8.2f} ({PUBLISHED[name]})  "
                f"{row['forward']:8.2f} {row['reverse']:8.2f} +- {row['error']:.2f}     "
                f"{cost:6.1f}"
            )
            (out / f"deep_boltzmann{only}.txt").write_text("\n".join(lines) + "\n")
            print(lines[-1], file=sys.stderr, flush=True)
        drawn = kept(out / "parts", f"{name}-pictures-{updates}", chain_pictures, f.model, size)
        found[name] = (f.history, (drawn["gibbs"], drawn["tempered"]))
    figure(found, out / f"deep_boltzmann{only}.png")
    print("\n".join(lines))


def binarised(grey: np.ndarray, draw: int) -> np.ndarray:
    """Each pixel 1 with probability equal to its grey value."""
    return (np.random.default_rng([0, draw]).random(grey.shape, dtype=np.float32) < grey).astype(
        np.float32
    )


def learned(
    name: str,
    negative,
    grey: np.ndarray,
    test: np.ndarray,
    size: Scale,
    steps: pgm.SGD,
    updates: int,
    out: Path,
):
    """(the fit, milliseconds an update), from the checkpoint on if there is one."""
    x = binarised(grey, 0)
    model = beginning(x, size.sizes)
    curve = Curve(
        test[:1000], x[:1000], annealing(model, x, size.curve, reverse=True), size.monitor
    )
    begin, made, path = time.time(), [], out / f"{name}.checkpoint"
    done = updates_in(path)
    optimizer = pgm.Averaged(pgm.Centered(steps), follow=1 / 5000)
    while True:
        draw = done // FRESH
        f = pgm.fit(
            model,
            {"v": binarised(grey, draw)},
            negative=negative,
            optimizer=optimizer,
            batch_size=100,
            updates=min((draw + 1) * FRESH, updates),
            rng=0,
            progress=False,
            callbacks=[curve, lambda model, update: made.append(update)],
            checkpoint=path,
        )
        done = f.state["update"]
        print(
            f"[{time.time() - begin:7.0f} s] {name} {done} "
            + ", ".join(f"{who} {f.history[who]['value'][-1]:.2f}" for who in ("bound", "train")),
            file=sys.stderr,
            flush=True,
        )
        if done >= updates:
            break
    pgm.save(f.model, out / f"{name}.safetensors")
    pgm.save(f.averaged, out / f"{name}-average.safetensors")
    return f, 1e3 * (time.time() - begin) / len(made) if made else np.nan


def beginning(x: np.ndarray, sizes: tuple[int, int, int]) -> pgm.Model:
    """The model before learning: base rates of binary images x, and weights N(0, 0.01^2)."""
    rng, model = np.random.default_rng(0), pgm.dbm(list(sizes), rng=0)
    weights = {k: v.shape for k, v in model.params.items() if k.endswith(".weight")}
    small = {k: rng.normal(0, 0.01, shape) for k, shape in weights.items()}
    return pgm.base_rate_start(model.with_params(small), {"v": x})


@dataclass(frozen=True)
class Curve:
    """A callback: bounds of test and training images, with log Z from both directions."""

    test: np.ndarray
    train: np.ndarray
    log_z: pgm.AIS
    every: int

    def __call__(self, model: pgm.Model, update: int) -> dict[str, float] | None:
        """The two bounds, log Z forward and in reverse."""
        if update % self.every:
            return None
        ends = both_directions(self.log_z, model)
        positive = pgm.MeanField(precision=np.float32, tolerance=1e-5)
        found = {"forward": ends["forward"], "reverse": ends["reverse"]}
        for name, x in (("bound", self.test), ("train", self.train)):
            rows = positive.run(model.given({"v": x}), ("log_z",)).log_z
            found[name] = float(rows.mean()) - ends["log_z"]
        return found


def both_directions(annealing: pgm.AIS, model: pgm.Model) -> dict[str, float]:
    """Log Z forward, in reverse, their mean, and its standard error."""
    whole = annealing.run(model.given(), ("log_z",), rng=0)
    forward, reverse = float(whole.log_z[0]), float(whole.stats["reverse_log_z"][0])
    error = float(np.hypot(whole.log_z_error[0], whole.stats["reverse_error"][0])) / 2
    mean = (forward + reverse) / 2
    return {"forward": forward, "reverse": reverse, "log_z": mean, "error": error}


def updates_in(checkpoint: Path) -> int:
    """Updates that a checkpoint has, 0 if there is none."""
    if not checkpoint.exists():
        return 0
    with safe_open(str(checkpoint), framework="numpy") as file:
        return int(file.get_tensor("update"))


def annealing(model: pgm.Model, images: np.ndarray, betas: int, reverse: bool = False) -> pgm.AIS:
    """Annealing that starts from the base rates of the images. From units of probability 1/2, log Z
    was up to six nats too low.
    """
    reference = pgm.base_rates(model, {"v": images}, 0.05 * len(images))
    return pgm.AIS(chains=100, betas=betas, reverse=reverse, reference=reference)


def measured(model: pgm.Model, test, size: Scale) -> dict[str, float]:
    """The last estimates, with log Z from both directions."""
    ends = both_directions(annealing(model, test, size.annealing, reverse=True), model)
    mean_field = pgm.MeanField(updates=50, precision=np.float32, tolerance=1e-4)
    parts = np.array_split(test[: size.test], max(size.test // 500, 1))
    runs = [mean_field.run(model.given({"v": part}), ("log_z",)) for part in parts]
    bounds = np.concatenate([run.log_z for run in runs])
    return ends | {"bound": bounds.mean() - ends["log_z"]}


def chain_pictures(model: pgm.Model, size: Scale) -> dict[str, np.ndarray]:
    """Means of the visible units of some chains, by both ways of sampling."""
    return {
        "gibbs": gibbs_pictures(model, size.sweeps),
        "tempered": tempered_pictures(model, size.sweeps),
    }


def gibbs_pictures(model: pgm.Model, sweeps: int, chains: int = 8, times: int = 12):
    """Means of the visible units of some chains, at times spread over the run, (chains, times,
    pixels).
    """
    rng = np.random.default_rng(0)
    target = model.given().take(np.zeros(chains, dtype=int))
    moving, shown = make_chains(target, pgm.Gibbs(), start(target, rng), rng), []
    for _ in range(times):
        moving.sweep(sweeps // times)
        shown.append(visible_means(model, moving.values()))
    return np.stack(shown, axis=1)


def tempered_pictures(model: pgm.Model, sweeps: int, chains: int = 8, times: int = 12):
    """The same with simulated tempering over 20 temperatures from 0.9 to 1; each picture is of the
    last state at 1.
    """
    rng = np.random.default_rng(0)
    levels, shown = (
        Levels(model.given(), np.array(NEAR), chains, pgm.Gibbs(), pgm.OneOverT(), rng),
        [],
    )
    last = levels.chains.values()
    for _ in range(times):
        for _ in range(sweeps // times):
            levels.step(adapt=True)
            home = np.flatnonzero(levels.at_1().ravel())
            for name, value in levels.chains.values(home).items():
                last[name][home] = value
        shown.append(visible_means(model, last))
    return np.stack(shown, axis=1)


def visible_means(model: pgm.Model, x):
    """E[v | hidden layers]."""
    target = model.given({name: value for name, value in x.items() if name != "v"})
    return pgm.MeanField().run(target).mean["v"]


def figure(found, path: Path) -> None:
    """The bound through training, and the chains' pictures, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shape = {"figsize": (8, 4 + 8 * len(found)), "layout": "constrained", "squeeze": False}
    figure_, axes = plt.subplots(1 + 2 * len(found), 1, **shape)
    for name, (history, _) in found.items():
        for who, style in (("bound", "-"), ("train", ":")):
            axes[0, 0].plot(
                history[who]["update"],
                history[who]["value"],
                style,
                marker=".",
                label=f"{name}, {who}",
            )
    axes[0, 0].set(xlabel="updates", ylabel="variational bound, 1,000 images", ylim=(-160, -80))
    axes[0, 0].legend()
    for i, (name, (_, both)) in enumerate(found.items()):
        for k, (how, pictures) in enumerate(
            zip(("Gibbs", "simulated tempering"), both, strict=True)
        ):
            rows = [np.hstack([p.reshape(28, 28) for p in chain]) for chain in pictures]
            axes[1 + 2 * i + k, 0].imshow(np.vstack(rows), cmap="gray")
            axes[1 + 2 * i + k, 0].set(
                title=f"{name}: chains (rows) in time, {how}", xticks=[], yticks=[]
            )
    figure_.savefig(path, dpi=100)


if __name__ == "__main__":
    typer.run(main)
