"""Yokoyama, Katsumata and Yasuda (2019): multivalued hidden units suppress over-fitting
(figures 2, 3, 4, 6).

    python benchmarks/reproduce/multivalued.py OUT [--data DIRECTORY] [--scale full]

Figure 4: two spins with two common hidden units. Part a is their correlation alpha_s(w). Part b is
the log-likelihood of rows of correlation 0.6, whose maximum is at the weight w* with alpha_s(w*) =
0.6. Figures 2 and 3: an RBM 8x4 of spins makes 200 rows; RBMs 8x(4+R) with s = 1, 2, 4, inf learn
them by CD-1, Adam, full batch; the Kullback-Leibler divergence from generator to learner and the
log-likelihood of the rows, both divided by 8, against updates, means over repeats. Figure 6:
discriminative RBMs 784-200-10 learn 1,000 MNIST images (batches of 100, AdaMax); their error on
these images, on test images, and on test images with Gaussian noise of standard deviation 120 of
255, clipped, while they learn and at the end. Figure 6 needs --data.

Writes multivalued.txt and the pictures figure_2_3.png, figure_4.png and figure_6.png into OUT, and
every repeat into OUT/parts, from which it goes on when it is run again. --workers N shares the
repeats out over processes, --scheduler ADDRESS over a dask cluster.
"""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
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
    classifier_every: int  # updates between two errors of a classifier


SCALES = {"small": Scale(2, 600, 100, 2, 60, 20), "full": Scale(300, 2_000, 100, 120, 1_000, 100)}
# The correlation for which the paper states weights.
CORRELATION = 0.6
SHOWN = ("training images", "test images", "test images with noise")


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
    pictures(curves, errors, size, out)


def alpha(s: float, w: float, hidden: int = 2) -> float:
    """<v1 v2> of two spins with `hidden` common units, all weights w: tanh of half the log-odds of
    being equal.
    """
    unit = pgm.MultiValued(s)
    return math.tanh(hidden * float(unit.log_normalizer(2 * w) - unit.log_normalizer(0.0)) / 2)


def best_weight(s: float) -> float:
    """The weight w* at which the correlation is 0.6."""
    return brentq(lambda w: alpha(s, w) - CORRELATION, 0.01, 5)


def two_spin_likelihood(s: float, w: float) -> float:
    """Mean log-likelihood of rows of two spins that are equal with probability (1 + 0.6) / 2."""
    equal, same = (1 + CORRELATION) / 2, (1 + alpha(s, w)) / 2
    return equal * math.log(same / 2) + (1 - equal) * math.log((1 - same) / 2)


def correlations(report) -> None:
    """w* of figure 4, and the width of the maximum there."""
    report(
        "\n## alpha_s(w*) = 0.6 with two hidden units (published 0.6585, 0.7834, 0.8941, 1.0887)"
    )
    report("  ".join(f"s = {s}: w* = {best_weight(s):.5f}" for s in LEVELS))
    widths = []
    for s in LEVELS:
        w, step = best_weight(s), 1e-3
        values = [two_spin_likelihood(s, w + d) for d in (-step, 0.0, step)]
        widths.append(-(values[0] - 2 * values[1] + values[2]) / step**2)
    report(
        "curvature of the log-likelihood at w*: "
        + "  ".join(f"s = {s}: {c:.3f}" for s, c in zip(LEVELS, widths, strict=True))
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
    """Error rates (repeats, points, 3) on the images of SHOWN, for s = 1 and inf."""
    jobs = [(size, repeat, str(data.resolve())) for repeat in range(repeats)]
    name = f"classifiers-{size.classifier_updates}-{size.classifier_every}"
    errors = sweep.results(name, two_classifiers, jobs)
    found = dict(zip((1, math.inf), errors.swapaxes(0, 1), strict=True)) if repeats else {}
    report(
        f"\n## Discriminative RBM 784-200-10, 1,000 MNIST images, {size.classifier_updates} "
        f"updates, {repeats} repeats: errors of classification (2,000 test images, noise of sd 120)"
    )
    report("update  " + "   ".join(f"s = {s}, {who}" for who in SHOWN for s in found))
    for point in range(errors.shape[2] if repeats else 0):
        report(
            f"{point * size.classifier_every:6d}  "
            + "   ".join(
                f"{e[:, point, k].mean():7.2%} +- {_error(e[:, point, k]):.2%}"
                for k in range(3)
                for e in found.values()
            )
        )
    for k, who in enumerate(SHOWN if repeats else ()):
        gap = found[math.inf][:, -1, k] - found[1][:, -1, k]
        report(f"s = inf less s = 1, {who}: {gap.mean():+.2%} +- {_error(gap):.2%}, paired")
    return found


def _error(x: np.ndarray) -> float:
    """The standard error of the mean."""
    return float(x.std(ddof=1) / math.sqrt(len(x)))


@lru_cache(maxsize=1)
def mnist(data: str) -> pgm.Dataset:
    """Grey images of the files in a directory, read once."""
    os.environ["PGMENGINE_DATA"] = data
    return pgm.datasets.mnist(binary=False)


def two_classifiers(size: Scale, repeat: int, data: str) -> np.ndarray:
    """Error rates (s, points, images of SHOWN) of one draw of training and test images."""
    digits, rng, out = mnist(data), np.random.default_rng(repeat), []
    # Stand-in data may have fewer images than MNIST.
    rows = rng.choice(len(digits.x_train), min(1000, len(digits.x_train)), replace=False)
    test = rng.choice(len(digits.x_test), min(2000, len(digits.x_test)), replace=False)
    clean, wanted = digits.x_test[test], digits.y_test[test]
    noisy = np.clip(clean + rng.normal(0, 120 / 255, clean.shape), 0, 1)
    x, y = digits.x_train[rows], digits.y_train[rows]
    for s in (1, math.inf):
        curve: list[list[float]] = []

        def measure(model: pgm.Model, update: int, curve=curve) -> None:
            if update % size.classifier_every == 0:
                pairs = ((x, y), (clean, wanted), (noisy, wanted))
                curve.append([np.mean(labels(model, shown) != right) for shown, right in pairs])

        pgm.fit(
            pgm.drbm(784, 200, 10, hidden=pgm.MultiValued(s), rng=repeat),
            {"x": x, "y": y[:, None]},
            given=("x",),
            negative=pgm.ExactGradient(),
            optimizer=pgm.AdaMax(),
            updates=size.classifier_updates,
            rng=repeat,
            callbacks=[measure],
            progress=False,
        )
        out.append(curve)
    return np.array(out)


def labels(model: pgm.Model, x: np.ndarray) -> np.ndarray:
    """The most probable label of each row."""
    return pgm.infer(model, {"x": x}, method=pgm.Exact()).prob["y"][:, 0].argmax(axis=1)


def pictures(curves, errors, size: Scale, out: Path) -> None:
    """The figures of the paper, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    whole, axes = plt.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    for i, (extra, found) in enumerate(curves.items()):
        for k, what in enumerate(("KL divergence / 8", "log-likelihood / 8")):
            for s, curve in found.items():
                # The values before learning are far off the scale of the others.
                mean = curve[:, 1:, k].mean(axis=0)
                axes[i, k].plot(np.arange(1, len(mean) + 1) * size.every, mean, label=f"s = {s}")
            title = f"figure {2 + i}: learner 8x{4 + extra} (R = {extra})"
            axes[i, k].set(title=title, xlabel="updates", ylabel=what)
        axes[i, 0].legend()
    whole.savefig(out / "figure_2_3.png", dpi=72)
    whole, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    weights = np.linspace(0, 2, 200)
    for s in LEVELS:
        left.plot(weights, [alpha(s, w) for w in weights], label=f"s = {s}")
        (line,) = right.plot(weights, [two_spin_likelihood(s, w) for w in weights])
        best = best_weight(s)
        right.plot(best, two_spin_likelihood(s, best), "o", color=line.get_color())
        right.axvline(best, color=line.get_color(), linewidth=0.6, linestyle=":")
    left.axhline(CORRELATION, color="grey", linewidth=0.8)
    left.set(title="figure 4a", xlabel="w", ylabel="correlation alpha_s(w)")
    left.legend()
    right.set(
        title="figure 4b: rows of correlation 0.6",
        xlabel="w",
        ylabel="log-likelihood of a row",
        ylim=(-1.5, -1.15),
    )
    whole.savefig(out / "figure_4.png", dpi=72)
    if not errors:
        return
    whole, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for s, error in errors.items():
        updates = np.arange(1, error.shape[1]) * size.classifier_every
        for axis, k in ((axes[0], 0), (axes[1], 2)):
            mean = 100 * error[:, 1:, k].mean(axis=0)
            spread = 100 * error[:, 1:, k].std(axis=0)
            axis.plot(updates, mean, marker=".", label=f"s = {s}")
            axis.fill_between(updates, mean - spread, mean + spread, alpha=0.2)
    axes[0].set(title="figure 6: training error", xlabel="updates", ylabel="error, %")
    axes[1].set(title="test error with noise", xlabel="updates", ylabel="error, %")
    axes[0].legend()
    axes[2].boxplot(
        [100 * e[:, -1, 2] for e in errors.values()], tick_labels=[f"s = {s}" for s in errors]
    )
    axes[2].set(title="test error with noise, at the end", ylabel="error, %")
    whole.savefig(out / "figure_6.png", dpi=72)


if __name__ == "__main__":
    typer.run(main)
