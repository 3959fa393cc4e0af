"""Beyond Yokoyama et al. (2019): types of hidden units on the same budget of parameters.

    python benchmarks/reproduce/hidden_units.py OUT [--scale full] [--workers N]

RBMs with visible spins learn few rows by CD-1 (Adam, full batch), as in both papers. Their hidden
units are of one type each:

    s = 1            spins
    s = inf          values in [-1, 1], as in the paper
    s = 2, 4, inf, matched   values multiplied by sqrt(3s / (s + 2)), so that a hidden unit without
                     input has the variance 1 of a spin, for every s
    q = 3, 4         categorical units, as in the Gaussian-multinoulli RBM (Kapasi et al. 2025)

Twelve multivalued units have 12 (d + 1) weights and biases for d visible units. A categorical unit
has q (d + 1), of which d + 1 are redundant, because the same number added to the weights of all
states changes nothing. So there are two rows for each q: "free" counts the (q - 1) (d + 1) others
and has 12 / (q - 1) units, "stored" counts all and has 12 / q units.

Data: 200 rows of a random RBM 8x4 of spins, where the divergence from it is exact, and 300 rows of
8x8 digits reduced to 4x4 binary pixels, where log Z is exact and 1,197 rows are held out. Rate and
update are chosen for each type and repeat by the likelihood of as many validation rows, and the
held-out likelihood is measured there. Differences are paired over repeats; p-values are of paired t
tests, corrected by Holm's procedure over the whole table. A further column has the last update at
the largest rate, which shows over-fitting as the figures of the paper do.

Writes hidden_units.txt and hidden_units.png into OUT, and every repeat into OUT/parts, from which
it goes on when it is run again.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer
from multivalued import STATES, log_probabilities, xavier
from scipy.stats import ttest_rel
from sweep import Sweep, sweep_on

import pgmengine as pgm
from pgmengine.base.types import Array

BUDGET = 12  # hidden units of one weight for each visible unit
TRAINING, VALIDATION, HELD_OUT = range(3)


@dataclass(frozen=True)
class Scale:
    """Sizes of one experiment."""

    repeats: int
    updates: int
    every: int  # updates between two points of a curve
    rates: tuple[float, ...]


SCALES = {
    "small": {
        "generator": Scale(2, 40, 20, (0.003, 0.01)),
        "digits": Scale(2, 40, 20, (0.01, 0.03)),
    },
    "full": {
        "generator": Scale(14, 1_500, 25, (0.001, 0.003, 0.01)),
        "digits": Scale(8, 1_500, 50, (0.003, 0.01, 0.03)),
    },
}


@dataclass(frozen=True)
class Matched(pgm.Unit):
    """Multivalued units whose values are multiplied by a factor, so that without input their
    variance is 1.

    The variance of s + 1 evenly spaced values on [-1, 1] is (s + 2) / (3 s), and 1/3 for s = inf.
    With the factor c, A(eta) = log phi_s(c eta).
    """

    s: float

    @property
    def plain(self) -> pgm.MultiValued:
        """The unit with values on [-1, 1]."""
        return pgm.MultiValued(self.s)

    @property
    def factor(self) -> float:
        """The largest value."""
        return math.sqrt(3.0) if math.isinf(self.s) else math.sqrt(3 * self.s / (self.s + 2))

    @property
    def support(self) -> Array | None:
        """The values, or None for s = inf."""
        return None if math.isinf(self.s) else self.factor * self.plain.support

    @property
    def log_base(self) -> Array | None:
        """The logarithm of 2 / (s + 1) for each value."""
        return self.plain.log_base

    def log_normalizer(self, eta: Array) -> Array:
        """Return log phi_s(c eta)."""
        return self.plain.log_normalizer(self.factor * eta)

    def mean(self, eta: Array) -> Array:
        """Return the derivative of the log normaliser."""
        return self.factor * self.plain.mean(self.factor * eta)

    def variance(self, eta: Array) -> Array:
        """Return the derivative of the mean."""
        return self.factor**2 * self.plain.variance(self.factor * eta)

    def sample(self, eta: Array, rng: np.random.Generator) -> Array:
        """Draw a value."""
        return self.factor * self.plain.sample(self.factor * eta, rng)

    def mode(self, eta: Array) -> Array:
        """Return the end on the side of eta."""
        return self.factor * self.plain.mode(eta)

    def log_h(self, x: Array) -> Array:
        """Return the logarithm of the base measure, a density for s = inf."""
        change = math.log(self.factor) if math.isinf(self.s) else 0.0
        return self.plain.log_h(x) - change

    def max_log_weight(self, eta: Array) -> Array:
        """Return the largest log weight of a value."""
        return self.factor * np.abs(eta) + self.log_h(eta)

    def contains(self, x: Array) -> Array:
        """Return whether x is a value."""
        return self.plain.contains(np.asarray(x) / self.factor)


def kinds() -> dict[str, tuple[pgm.Unit, int]]:
    """Label -> (hidden unit, number of them)."""
    found: dict[str, tuple[pgm.Unit, int]] = {
        "s = 1": (pgm.Spin(), BUDGET),
        "s = inf": (pgm.MultiValued(math.inf), BUDGET),
    }
    for s in (2, 4, math.inf):
        found[f"s = {s}, matched"] = (Matched(s), BUDGET)
    for q in (3, 4):
        found[f"q = {q}, free"] = (pgm.Categorical(q), BUDGET // (q - 1))
        found[f"q = {q}, stored"] = (pgm.Categorical(q), BUDGET // q)
    return found


def main(out: Path, scale: str = "small", workers: int = 1, scheduler: str = "") -> None:
    """Run the experiments and write the table and the figure."""
    sizes, begin, lines = SCALES[scale], time.time(), [f"# scale {scale}"]
    out.mkdir(parents=True, exist_ok=True)

    def report(line: str) -> None:
        lines.append(line)
        print(f"[{time.time() - begin:6.0f} s] {line}", file=sys.stderr, flush=True)
        (out / "hidden_units.txt").write_text("\n".join(lines) + "\n")

    found = {}
    with sweep_on(workers, scheduler, out / "parts") as sweep:
        for name, size in sizes.items():
            found[name] = curves(name, size, sweep)
    differences = table(found, sizes, report)
    figure(found, differences, sizes, out / "hidden_units.png")


def curves(name: str, size: Scale, sweep: Sweep) -> np.ndarray:
    """Log-likelihoods (repeats, kinds, rates, points, rows) of an experiment."""
    jobs = [(name, size, repeat) for repeat in range(size.repeats)]
    return sweep.results(f"{name}-{size.updates}-{size.every}", one_repeat, jobs)


def one_repeat(name: str, size: Scale, repeat: int) -> np.ndarray:
    """Curves (kinds, rates, points, rows) of all learners of one draw of the data."""
    rng = np.random.default_rng(repeat)
    rows, measure = (generator if name == "generator" else small_digits)(rng)
    return np.array(
        [
            [learned(unit, many, rows, measure, rate, size, repeat) for rate in size.rates]
            for unit, many in kinds().values()
        ]
    )


Measure = Callable[[pgm.Model], list[float]]


def generator(rng: np.random.Generator) -> tuple[np.ndarray, Measure]:
    """Rows of an RBM 8x4 of spins; the held-out measure is minus the divergence from it."""
    true = log_probabilities(xavier(8, 4, 1, rng, bias=0.1))
    drawn = rng.choice(256, size=(2, 200), p=np.exp(true) / np.exp(true).sum())

    def measure(model: pgm.Model) -> list[float]:
        own = log_probabilities(model)
        divergence = (np.exp(true) * (true - own)).sum()
        return [own[drawn[0]].mean() / 8, own[drawn[1]].mean() / 8, -divergence / 8]

    return STATES[drawn[0]], measure


def small_digits(rng: np.random.Generator) -> tuple[np.ndarray, Measure]:
    """Digits of 4x4 spins: the mean of 2x2 pixels above 5 of 16; 300 rows to learn from."""
    data = pgm.datasets.digits(threshold=None)
    grey = np.concatenate([data.x_train, data.x_test]).reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4))
    pixels = np.where(grey.reshape(-1, 16) > 5 / 16 * grey.max(), 1.0, -1.0)
    rows = pixels[rng.permutation(len(pixels))]
    parts = np.split(rows, (300, 600))

    def measure(model: pgm.Model) -> list[float]:
        found = pgm.infer(model, {"v": rows}, want=("log_prob",), method=pgm.Exact()).log_prob
        return [part.mean() / 16 for part in np.split(found, (300, 600))]

    return parts[0], measure


def learned(
    unit: pgm.Unit,
    hidden: int,
    rows: np.ndarray,
    measure: Measure,
    rate: float,
    size: Scale,
    repeat: int,
) -> list[list[float]]:
    """The measures of one learner every `every` updates."""
    rng, visible, curve = np.random.default_rng([repeat, 1]), rows.shape[1], []
    # The same bound for every kind, that of twelve units.
    top = math.sqrt(6 / (visible + BUDGET))
    model = pgm.rbm(visible, hidden, visible=pgm.Spin(), hidden=unit)
    shape = model.params["v-h.weight"].shape
    model = model.with_params({"v-h.weight": rng.uniform(-top, top, shape)})
    model = pgm.base_rate_start(model, {"v": rows})

    def note(model: pgm.Model, update: int) -> None:
        if update % size.every == 0:
            curve.append(measure(model))

    pgm.fit(
        model,
        {"v": rows},
        negative=pgm.CD(k=1),
        optimizer=pgm.Adam(rate),
        batch_size=len(rows),
        updates=size.updates,
        callbacks=[note],
        rng=repeat,
        progress=False,
    )
    return curve


def chosen(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Held-out likelihood (repeats, kinds) at the best rate and update of the validation rows, and
    the number of the rate.
    """
    repeats, many, rates, points, _ = found.shape
    flat = found.reshape(repeats, many, rates * points, 3)
    best = flat[..., VALIDATION].argmax(axis=2)
    held = np.take_along_axis(flat[..., HELD_OUT], best[..., None], axis=2)[..., 0]
    return held, best // points


def table(found: dict[str, np.ndarray], sizes: dict[str, Scale], report) -> dict[str, np.ndarray]:
    """Report all experiments; differences (repeats, kinds) from spins by experiment."""
    names, tests, gaps = list(kinds()), {}, {}
    for name, curves_ in found.items():
        held, _ = chosen(curves_)
        gaps[name] = held - held[:, :1]
        pairs = [(i, 0) for i in range(1, len(names))]
        # Does the scale of the values explain what s = inf does?
        pairs.append((names.index("s = inf, matched"), names.index("s = inf")))
        for a, b in pairs:
            tests[name, a, b] = float(ttest_rel(held[:, a], held[:, b]).pvalue)
    corrected = dict(zip(tests, holm(list(tests.values())), strict=True))
    for name, curves_ in found.items():
        held, rate = chosen(curves_)
        many, d = len(held), 8 if name == "generator" else 16
        what = "minus KL / 8" if d == 8 else "held-out log-likelihood / 16"
        report(
            f"\n## {name}, {many} repeats, {sizes[name].updates} updates at rates "
            f"{sizes[name].rates}: {what} at the choice of the validation rows"
        )
        report(
            f"{'hidden units':18s} units  numbers   held out            "
            "less spins            p, Holm's p      at the end of the largest rate, less "
            "spins   repeats by rate"
        )
        for i, (unit, units) in enumerate(kinds().values()):
            stored = units * (d + 1) * unit.width + d
            gap = held[:, i] - held[:, 0]
            # Without validation rows: the last update at the largest rate.
            last = curves_[:, i, -1, -1, HELD_OUT]
            late = last - curves_[:, 0, -1, -1, HELD_OUT]
            p = f"{tests[name, i, 0]:.2g}, {corrected[name, i, 0]:.2g}" if i else "-"
            report(
                f"{names[i]:18s} {units:5d}  {stored:7d}   {held[:, i].mean():.5f} +- "
                f"{error(held[:, i]):.5f}   {gap.mean():+.5f} +- {error(gap):.5f}   {p:14s} "
                f"{last.mean():.5f}, {late.mean():+.5f} +- {error(late):.5f}        "
                + " ".join(str(np.sum(rate[:, i] == k)) for k in range(len(sizes[name].rates)))
            )
        a, b = names.index("s = inf, matched"), names.index("s = inf")
        gap = held[:, a] - held[:, b]
        report(
            f"{names[a]} less {names[b]}: {gap.mean():+.5f} +- {error(gap):.5f}, "
            f"p {tests[name, a, b]:.2g}, by Holm {corrected[name, a, b]:.2g}"
        )
    report(f"\np-values corrected together: {len(tests)}")
    return gaps


def holm(values: list[float]) -> list[float]:
    """p-values corrected by Holm's procedure (family-wise error rate)."""
    order, out, most = np.argsort(values), [0.0] * len(values), 0.0
    for place, i in enumerate(order):
        most = max(most, min(1.0, (len(values) - place) * values[i]))
        out[i] = most
    return out


def error(x: np.ndarray) -> float:
    """The standard error of the mean."""
    return float(x.std(ddof=1) / math.sqrt(len(x)))


def figure(found, differences, sizes: dict[str, Scale], path: Path) -> None:
    """Held-out curves at the rate most often chosen, and differences from spins, if matplotlib is
    installed.
    """
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(kinds())
    whole, axes = plt.subplots(
        2, len(found), figsize=(4.2 * len(found), 7), layout="constrained", squeeze=False
    )
    for (upper, lower), (name, curves_) in zip(axes.T, found.items(), strict=True):
        size = sizes[name]
        _, rate = chosen(curves_)
        for i, label in enumerate(names):
            most = np.bincount(rate[:, i], minlength=len(size.rates)).argmax()
            mean = curves_[:, i, most, 1:, HELD_OUT].mean(axis=0)
            style = "--" if label.startswith("q") else "-"
            upper.plot(np.arange(1, len(mean) + 1) * size.every, mean, style, label=label)
        upper.set(title=name, xlabel="updates", ylabel="held out, nats a unit")
        # Over-fitting far below the best values would hide the differences at the top.
        best = curves_[..., 1:, HELD_OUT].mean(axis=0).max()
        upper.set_ylim(best - 0.03, best + 0.002)
        gap = differences[name][:, 1:]
        spread = gap.std(axis=0, ddof=1) / math.sqrt(len(gap))
        lower.errorbar(gap.mean(axis=0), range(len(names) - 1), xerr=spread, fmt="o", capsize=3)
        lower.axvline(0, color="grey", linewidth=0.8)
        lower.set_yticks(range(len(names) - 1), names[1:])
        lower.invert_yaxis()
        lower.set(xlabel="held out, less spins")
        lower.xaxis.get_major_locator().set_params(nbins=4)
    axes[0, 0].legend(fontsize=7)
    whole.savefig(path, dpi=72)


if __name__ == "__main__":
    typer.run(main)
