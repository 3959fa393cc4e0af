"""System 1 (Yokoyama, Katsumata and Yasuda): multivalued hidden units suppress over-fitting
(figures 2, 3, 4, 6).

    python benchmarks/reproduce/multivalued.py OUT [--data DIRECTORY] [--scale full]

Figure 4: the weight w* at which two spins with two common hidden units have correlation alpha_s(w)
= 0.6. Figures 2 and 3: an RBM 8x4 of spins makes 200 rows; RBMs 8x(4+R) with s = 1, 2, 4, inf learn
them by CD-1, Adam, full batch; the Kullback-Leibler divergence from generator to learner and the
log-likelihood of the rows, both divided by 8, against updates, means over repeats. Figure 6:
discriminative RBMs 784-200-10 learn 1,000 MNIST images (batches of 100, AdaMax), and classify test
images with Gaussian noise of standard deviation 120 of 255, clipped; needs --data.

Writes multivalued.txt and multivalued.png into OUT, and every repeat into OUT/parts, from which it
goes on when it is run again. --workers N shares the repeats out over processes, --scheduler ADDRESS
over a dask cluster.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from scipy.optimize import brentq
from sweep import Sweep, sweep_on

import pgmengine as pgm

LEVELS = (1, 2, 4, math.inf)


@dataclass(frozen=True)
class Scale:
    """Sizes of each experiment at one scale."""

    repeats: int
    updates: int
    every: int  # updates between two points of a curve
    classifiers: int
    classifier_updates: int


SCALES = {"small": Scale(12, 2_000, 100, 2, 300), "full": Scale(300, 2_000, 100, 120, 1_000)}


def main(
    out: Path,
    data: Path | None = None,
    scale: str = "small",
    repeats: int = 0,
    classifiers: int = -1,
    workers: int = 1,
    scheduler: str = "",
) -> None:
    """Run the experiments and write the tables and the figure."""
    size, begin, lines = SCALES[scale], time.time(), [f"# scale {scale}"]
    out.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        lines.append(line)
        print(f"[{time.time() - begin:6.0f} s] {line}", file=sys.stderr, flush=True)
        (out / "multivalued.txt").write_text("\n".join(lines) + "\n")

    correlations(report)
    with sweep_on(workers, scheduler, out / "parts") as sweep:
        curves = {
            extra: over_fitting(extra, size, repeats or size.repeats, report, sweep)
            for extra in (0, 5)
        }
        errors = None
        if data is not None:
            count = size.classifiers if classifiers < 0 else classifiers
            errors = noisy_digits(size, count, report, sweep, data)
    figure(curves, errors, size, out / "multivalued.png")


def alpha(s: float, w: float, hidden: int = 2) -> float:
    """<v1 v2> of two spins with `hidden` common units, all weights w: tanh of half the log-odds of
    being equal.
    """
    unit = pgm.MultiValued(s)
    return math.tanh(hidden * float(unit.log_normalizer(2 * w) - unit.log_normalizer(0.0)) / 2)


def correlations(report) -> None:
    """w* of figure 4."""
    report(
        "\n## alpha_s(w*) = 0.6 with two hidden units (published 0.6585, 0.7834, 0.8941, 1.0887)"
    )
    report(
        "  ".join(
            f"s = {s}: w* = {brentq(lambda w, s=s: alpha(s, w) - 0.6, 0.01, 5):.5f}" for s in LEVELS
        )
    )


def xavier(
    visible: int, hidden: int, s: float, rng: np.random.Generator, bias: float = 0.0
) -> pgm.Model:
    """Spins and multivalued units, weights U[-a, a] with a = sqrt(6 / (visible + hidden)), biases
    N(0, bias^2).
    """
    top = math.sqrt(6 / (visible + hidden))
    return pgm.rbm(visible, hidden, visible=pgm.Spin(), hidden=pgm.MultiValued(s)).with_params(
        {
            "v-h.weight": rng.uniform(-top, top, (visible, hidden)),
            "v.bias": rng.normal(0, bias, visible),
            "h.bias": rng.normal(0, bias, hidden),
        }
    )


STATES = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1).T


def log_probabilities(model: pgm.Model) -> np.ndarray:
    """Log p of all 256 visible states."""
    return pgm.infer(model, {"v": STATES}, want=("log_prob",), method=pgm.Exact()).log_prob


def over_fitting(
    extra: int, size: Scale, repeats: int, report, sweep: Sweep
) -> dict[float, np.ndarray]:
    """Curves (repeats, points, 2) of KL / 8 and log-likelihood / 8 for each s."""
    jobs = [(extra, size, repeat) for repeat in range(repeats)]
    curves = sweep.results(f"over-fitting-{extra}-{size.updates}", four_learners, jobs)
    found = dict(zip(LEVELS, curves.swapaxes(0, 1), strict=True))
    report(
        f"\n## Learners 8x{4 + extra}, {repeats} repeats: mean and standard error, at the best and "
        "at the last update"
    )
    report("s      KL / 8 best (at)      KL / 8 last         log-likelihood / 8 last")
    for s, curve in found.items():
        mean, error = curve.mean(axis=0), curve.std(axis=0, ddof=1) / math.sqrt(repeats)
        best = mean[:, 0].argmin()
        report(
            f"{s!s:5s} {mean[best, 0]:.4f} +- {error[best, 0]:.4f} ({best * size.every:4d})  "
            f"{mean[-1, 0]:.4f} +- "
            f"{error[-1, 0]:.4f}  {mean[-1, 1]:.4f} +- {error[-1, 1]:.4f}"
        )
    ordered(found, report)
    return found


def four_learners(extra: int, size: Scale, repeat: int) -> np.ndarray:
    """One generator and its rows, the curve of a learner for each s, (s, points, 2)."""
    rng = np.random.default_rng(repeat)
    true = log_probabilities(xavier(8, 4, 1, rng, bias=0.1))
    rows = rng.choice(256, size=200, p=np.exp(true))
    return np.array(
        [
            learned(s, 4 + extra, true, rows, size, np.random.default_rng([repeat, 1]))
            for s in LEVELS
        ]
    )


def ordered(found: dict[float, np.ndarray], report) -> None:
    """Differences between neighbouring s at the last update, paired over the repeats."""
    for a, b in zip(LEVELS, LEVELS[1:], strict=False):
        gap = found[b][:, -1] - found[a][:, -1]
        error = gap.std(axis=0, ddof=1) / math.sqrt(len(gap))
        report(
            f"s = {b} less s = {a}: KL / 8 {gap[:, 0].mean():+.5f} +- {error[0]:.5f}, "
            "log-likelihood / 8 "
            f"{gap[:, 1].mean():+.5f} +- {error[1]:.5f}"
        )


def learned(
    s: float, hidden: int, true: np.ndarray, rows: np.ndarray, size: Scale, rng: np.random.Generator
):
    """KL / 8 and log-likelihood / 8 of one learner every `every` updates."""
    curve = []

    def measure(model: pgm.Model, update: int) -> None:
        if update % size.every == 0:
            own = log_probabilities(model)
            curve.append(((np.exp(true) * (true - own)).sum() / 8, own[rows].mean() / 8))

    pgm.fit(
        xavier(8, hidden, s, rng),
        {"v": STATES[rows]},
        negative=pgm.CD(k=1),
        optimizer=pgm.Adam(0.005),
        batch_size=200,
        updates=size.updates,
        callbacks=[measure],
        rng=rng,
        progress=False,
    )
    return np.array(curve)


def noisy_digits(
    size: Scale, repeats: int, report, sweep: Sweep, data: Path
) -> dict[float, np.ndarray]:
    """Error rates (repeats, 2) on test images without and with noise, for s = 1 and inf."""
    jobs = [(size, repeat, str(data.resolve())) for repeat in range(repeats)]
    errors = sweep.results(f"classifiers-{size.classifier_updates}", two_classifiers, jobs)
    found = dict(zip((1, math.inf), errors.swapaxes(0, 1), strict=True)) if repeats else {}
    report(
        f"\n## Discriminative RBM 784-200-10, 1,000 MNIST images, {size.classifier_updates} "
        f"updates, {repeats} "
        "repeats: error on 2,000 test images"
    )
    for s, error in found.items():
        spread = error.std(axis=0, ddof=1) / math.sqrt(repeats)
        report(
            f"s = {s}: clean {error[:, 0].mean():.2%} +- {spread[0]:.2%}, noise of sd 120 "
            f"{error[:, 1].mean():.2%} +- "
            f"{spread[1]:.2%}"
        )
    return found


def two_classifiers(size: Scale, repeat: int, data: str) -> np.ndarray:
    """Error rates (s, without and with noise) of one draw of training and test images."""
    os.environ["PGMENGINE_DATA"] = data
    digits, rng, out = pgm.datasets.mnist(binary=False), np.random.default_rng(repeat), []
    rows, test = rng.choice(60_000, 1000, replace=False), rng.choice(10_000, 2000, replace=False)
    noisy = np.clip(digits.x_test[test] + rng.normal(0, 120 / 255, (2000, 784)), 0, 1)
    for s in (1, math.inf):
        model = pgm.drbm(784, 200, 10, hidden=pgm.MultiValued(s), rng=repeat)
        shown = {"x": digits.x_train[rows], "y": digits.y_train[rows][:, None]}
        f = pgm.fit(
            model,
            shown,
            given=("x",),
            negative=pgm.ExactGradient(),
            optimizer=pgm.AdaMax(),
            updates=size.classifier_updates,
            rng=repeat,
            progress=False,
        )
        out.append(
            [
                np.mean(labels(f.model, x) != digits.y_test[test])
                for x in (digits.x_test[test], noisy)
            ]
        )
    return np.array(out)


def labels(model: pgm.Model, x: np.ndarray) -> np.ndarray:
    """The most probable label of each row."""
    return pgm.infer(model, {"x": x}, method=pgm.Exact()).prob["y"][:, 0].argmax(axis=1)


def figure(curves, errors, size: Scale, path: Path) -> None:
    """Curves of both learners, the start left out, and errors of the classifiers, if matplotlib is
    installed.
    """
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure_, axes = plt.subplots(2, 3, figsize=(15, 8), layout="constrained")
    for i, (extra, found) in enumerate(curves.items()):
        for k, what in enumerate(("KL divergence / 8", "log-likelihood / 8")):
            for s, curve in found.items():
                mean = curve[:, 1:, k].mean(axis=0)
                axes[i, k].plot(np.arange(1, len(mean) + 1) * size.every, mean, label=f"s = {s}")
            axes[i, k].set(title=f"8x{4 + extra}", xlabel="updates", ylabel=what)
        axes[i, 0].legend()
    w = np.linspace(0, 1.5, 100)
    for s in LEVELS:
        axes[0, 2].plot(w, [alpha(s, x) for x in w], label=f"s = {s}")
    axes[0, 2].axhline(0.6, color="grey", linewidth=0.8)
    axes[0, 2].set(xlabel="w", ylabel="alpha_s(w)")
    axes[1, 2].set_visible(errors is not None)
    if errors is not None:
        axes[1, 2].boxplot(
            [100 * e[:, 1] for e in errors.values()], tick_labels=[f"s = {s}" for s in errors]
        )
        axes[1, 2].set(ylabel="error with noise, %")
    figure_.savefig(path, dpi=100)


if __name__ == "__main__":
    typer.run(main)
