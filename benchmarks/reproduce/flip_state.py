"""Brügge, Fischer and Igel (2013): does the flip-the-state operator T mix faster than
Gibbs sampling G?

    python benchmarks/reproduce/flip_state.py OUT [--scale full] [--data DIRECTORY] [--weights
    mnistvh_CD25.mat] [--only eigenvalues|"class changes"|NAME] [--models N]

Three parts: second-largest eigenvalues of exact transition matrices (figure 3, upper),
autocorrelation times of the energy on trained models (by the variance of means over chains that
start from exact draws, of models too large for these by an autoregressive fit), changes of class
(tables 3 and 4). `small` tries the command in seconds; `full` has the paper's numbers of models and
steps. MNIST is left out without --data, the public CD25(500) RBM without --weights. --only selects
a part, or the autocorrelation times of the data sets so named; --models N of them.

Writes flip_state.txt (tables) and the pictures figure_3.png (eigenvalues) and flip_state.png (the
other parts) into OUT. Each model's eigenvalues, times and changes are kept in OUT/parts, from which
it goes on when it is run again.

The models of the autocorrelation times are trained by PCD-10, or with --tempering by 20-PT_10, the
trainer of the paper: ten sweeps of chains at 20 temperatures for each update.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import typer
from sweep import kept

import pgmengine as pgm
from pgmengine import diagnostics
from pgmengine.engine.chains import make_chains, start

KERNELS = {"T": pgm.FlipState(), "G": pgm.Gibbs()}


@dataclass(frozen=True)
class Scale:
    """Sizes of each experiment at one scale."""

    slem_models: int
    models: int
    updates: int
    steps: int
    large_models: int
    large_updates: int
    first_change_starts: int
    first_change_limit: int
    exact_starts: int  # chains of the small models, and the sweeps of each
    exact_steps: int
    change_steps: int  # of the chains whose changes of class are counted


SCALES = {
    "small": Scale(4, 2, 200, 2_000, 1, 20, 20, 200, 50, 200, 200),
    "full": Scale(100, 25, 20_000, 1_000_000, 24, 2_000, 1_000, 10_000, 500, 20_000, 10_000),
}


def main(
    out: Path,
    scale: str = "small",
    data: Path | None = None,
    weights: Path | None = None,
    only: str = "",
    models: int = 0,
    tempering: bool = False,
) -> None:
    """Run the experiments and write the tables and the figure."""
    size, begin = SCALES[scale], time.time()
    size = replace(size, models=models or size.models)
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"# scale {scale}"]

    def report(line: str) -> None:
        lines.append(line)
        print(f"[{time.time() - begin:7.0f} s] {line}", file=sys.stderr, flush=True)
        (out / "flip_state.txt").write_text("\n".join(lines) + "\n")

    tau, changes = {}, {}
    if only in ("", "eigenvalues"):
        eigenvalue_figure(slem_shares(size, report, out), out / "figure_3.png")
    if only not in ("eigenvalues", "class changes"):
        tau = autocorrelation_times(size, data, weights, report, out, only, tempering)
    if only in ("", "class changes"):
        changes = class_changes(size, report, out)
    figure(tau, changes, out / "flip_state.png")


def slem_shares(size: Scale, report, out: Path) -> dict[int, list[float]]:
    """Fraction of random RBMs with a smaller SLEM under T, by side and weight range; zero
    biases.
    """
    report(
        "\n## SLEM: fraction of random n x n RBMs, weights U[-c, c], on which T is faster (paper: "
        "rises with c and n)"
    )
    report("n   " + " ".join(f"c={c:<4d}" for c in range(1, 11)))
    shares = {}
    for n in (2, 3, 4):
        name = f"eigenvalues-{n}-{size.slem_models}"
        wins = kept(out / "parts", name, slem_wins, n, size.slem_models)["wins"]
        shares[n] = list(wins.mean(axis=1))
        report(f"{n}x{n} " + " ".join(f"{s:<6.2f}" for s in shares[n]))
    return shares


def slem_wins(n: int, models: int) -> dict[str, np.ndarray]:
    """Whether T has the smaller SLEM, (weight ranges, models)."""
    rng, wins = np.random.default_rng(n), np.zeros((10, models), dtype=bool)
    for c in range(1, 11):
        for i in range(models):
            model = pgm.rbm(n, n).with_params({"v-h.weight": rng.uniform(-c, c, (n, n))})
            t, g = (
                diagnostics.slem(diagnostics.transition_matrix(model.given(), k))
                for k in KERNELS.values()
            )
            wins[c - 1, i] = t < g
    return {"wins": wins}


def trained(x, hidden, updates, seed, negative, rate=0.05):
    """An RBM trained as in the paper: N(0, 0.01^2) start, mini-batches of 100, no momentum, no
    decay.
    """
    rng = np.random.default_rng(seed)
    params = {
        "v-h.weight": rng.normal(0, 0.01, (x.shape[1], hidden)),
        "v.bias": rng.normal(0, 0.01, x.shape[1]),
        "h.bias": rng.normal(0, 0.01, hidden),
    }
    model = pgm.rbm(x.shape[1], hidden).with_params(params)
    fitted = pgm.fit(
        model,
        {"v": x},
        negative=negative,
        optimizer=pgm.SGD(rate),
        batch_size=min(100, len(x)),
        updates=updates,
        rng=seed,
        progress=False,
    )
    return fitted.model


def energies(model, kernel, steps, seed):
    """Energy of one chain after each of `steps` sweeps, a tenth as many dropped first."""
    rng = np.random.default_rng(seed)
    target = model.given()
    chains = make_chains(target, kernel, start(target, rng), rng)
    chains.sweep(steps // 10)
    return -chains.trace(steps)[:, 0]


def times_from_exact_starts(model, kernel, size: Scale, seed) -> tuple[diagnostics.Times, float]:
    """Autocorrelation times of the energy, and seconds of a chain's sweep."""
    rng, many = np.random.default_rng(seed), size.exact_starts
    drawn = pgm.Exact(draws=many).run(model.given(), ("samples",), rng=rng).samples
    start_at = {name: x.reshape(many, -1) for name, x in drawn.items()}
    chains = make_chains(model.given().take(np.zeros(many, dtype=int)), kernel, start_at, rng)
    begin = time.process_time()
    energy = -chains.trace(size.exact_steps)
    cost = (time.process_time() - begin) / energy.size
    return diagnostics.autocorrelation_times(energy.T), cost


def public(path: Path):
    """The public CD25(500) RBM of Salakhutdinov."""
    from scipy.io import loadmat

    raw = loadmat(path)
    return pgm.rbm(*raw["vishid"].shape).with_params(
        {"v.bias": raw["visbiases"][0], "h.bias": raw["hidbiases"][0], "v-h.weight": raw["vishid"]}
    )


def autocorrelation_times(
    size: Scale,
    data: Path | None,
    weights: Path | None,
    report,
    out: Path,
    only: str = "",
    tempering: bool = False,
) -> dict[str, np.ndarray]:
    """tau of the energy under T and G on trained models: (models, 2) by data set."""
    report("\n## Autocorrelation time of the energy; gain = 1 - tau_T / tau_G")
    trainer = "20-PT_10" if tempering else "PCD-10"
    report(f"Models trained by {trainer}. Published gain for MNIST, n = 500: 17.28 %.")
    report(
        f"{'data':22s} models  median tau_T, tau_G   gain: mean (se), median, quartiles   "
        "after cost   others"
    )
    found = {}
    for name, (x, hidden, models, updates) in problems(size, data, weights).items():
        if only not in name:
            continue
        rows = []
        for i in range(models):
            amount = size.exact_starts if hidden == 16 else size.steps
            kept = f"tau-{name}-{updates}-{amount}-{i}" + "-tempering" * tempering
            file = out / "parts" / f"{kept}.npy"
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                chains = 100 if x is None else min(100, len(x))
                negative = pgm.PCD(k=10, chains=chains)
                if tempering:
                    negative = pgm.PT(temperatures=20, k=10, chains=chains)
                model = trained(x, hidden, updates, i, negative) if updates else public(weights)
                both = [measured(model, kernel, size, 1000 + i) for kernel in KERNELS.values()]
                np.save(file, both)
            rows.append(np.load(file))
            print(line(name, np.stack(rows)), file=sys.stderr, flush=True)
        report(line(name, np.stack(rows)))
        found[name] = np.stack(rows)[:, :, 0]
    return found


def problems(size: Scale, data: Path | None, weights: Path | None):
    """Name -> (rows, hidden units, models, updates)."""
    out = {
        "Bars-and-Stripes 4x4": (
            pgm.datasets.bars_and_stripes().x_train,
            16,
            size.models,
            size.updates,
        ),
        "Modes, p_mut 0.1": (
            pgm.datasets.artificial_modes(0.1).x_train,
            16,
            size.models,
            size.updates,
        ),
        "Modes, p_mut 0.01": (
            pgm.datasets.artificial_modes(0.01).x_train,
            16,
            size.models,
            size.updates,
        ),
    }
    if data is not None:
        os.environ["PGMENGINE_DATA"] = str(data)
        mnist = pgm.datasets.mnist().x_train
        out["MNIST, n = 10"] = (mnist, 10, size.models, size.updates)
        out["MNIST, n = 500"] = (mnist, 500, size.large_models, size.large_updates)
    if weights is not None:
        out["MNIST, CD25(500)"] = (None, 500, size.models, 0)  # one model, as many chains
    return out


def measured(model, kernel, size: Scale, seed) -> list[float]:
    """Tau (by means of exact starts, else AR), its error, by a window, by AR, seconds a sweep."""
    if max(layer.size for layer in model.structure.layers.values()) <= 16:
        times, cost = times_from_exact_starts(model, kernel, size, seed)
        return [times.means, times.error, times.window, times.ar, cost]
    begin = time.process_time()
    energy = energies(model, kernel, size.steps, seed)
    cost = (time.process_time() - begin) / (1.1 * size.steps)
    ar = diagnostics.autocorrelation_time_ar(energy)
    return [ar, np.nan, diagnostics.autocorrelation_time(energy), ar, cost]


def line(name: str, rows: np.ndarray) -> str:
    """A row of the table, of (models, kernels, numbers)."""
    gain, cost = 1 - rows[:, 0] / rows[:, 1], np.median(rows[:, 0, 4] / rows[:, 1, 4])
    low, high = np.quantile(gain[:, 0], (0.25, 0.75))
    error, after = gain[:, 0].std() / max(len(gain) - 1, 1) ** 0.5, 1 - (1 - gain[:, 0]) * cost
    tau = np.median(rows[:, :, 0], axis=0)
    window, ar = np.median(rows[:, :, 2], axis=0), np.median(rows[:, :, 3], axis=0)
    mean, middle = gain[:, 0].mean(), np.median(gain[:, 0])
    least, left, most = np.quantile(after, (0.25, 0.5, 0.75))
    return (
        f"{name:22s} {len(rows):4d} {tau[0]:11.2f} {tau[1]:8.2f}   {mean:7.1%} ({error:.1%}) "
        f"{middle:7.1%} {low:7.1%} .. {high:.1%}   {left:7.1%} "
        f"{least:7.1%} .. {most:.1%} (x {cost:.2f})   "
        f"windowed {np.median(gain[:, 2]):.1%} (tau {window[0]:.1f}, {window[1]:.1f}), "
        f"AR {np.median(gain[:, 3]):.1%} (tau {ar[0]:.1f}, {ar[1]:.1f})"
    )


def class_changes(size: Scale, report, out: Path) -> dict[float, dict[str, np.ndarray]]:
    """Changes of the nearest mode in 10,000 steps from all-ones, and steps to the first change from
    training points.
    """
    found = {}
    limit, starts = size.first_change_limit, size.first_change_starts
    for p_mut in (0.1, 0.01):
        report(f"\n## Artificial Modes, p_mut {p_mut}: {size.models} models trained by CD-5")
        name = f"changes-{p_mut}-{size.updates}-{starts}-{limit}"
        parts = [
            kept(out / "parts", f"{name}-{i}", changes_of, p_mut, size, i)
            for i in range(size.models)
        ]
        counts = {k: np.array([part[f"count {k}"] for part in parts]) for k in KERNELS}
        for key in KERNELS:
            first = np.array([part[f"first {key}"] for part in parts])
            late = np.mean(first >= limit)
            report(
                f"{key}: class changes in {size.change_steps:,} steps: mean "
                f"{counts[key].mean():.1f}, median {np.median(counts[key]):.1f}; steps to the "
                f"first: mean {first.mean():.1f}, median {np.median(first):.1f}"
                + (f" ({late:.1%} stopped at {limit})" if late else "")
            )
        found[p_mut] = counts
    return found


def changes_of(p_mut: float, size: Scale, i: int) -> dict[str, np.ndarray]:
    """Changes of one model, and steps to the first one, by kernel."""
    data = pgm.datasets.artificial_modes(p_mut)
    modes = np.stack([np.round(data.x_train[data.y_train == k].mean(axis=0)) for k in range(4)])
    model = trained(data.x_train, 16, size.updates, i, pgm.CD(k=5))
    begin = data.x_train[
        np.random.default_rng(i).choice(len(data.x_train), size.first_change_starts)
    ]
    found = {}
    for key, kernel in KERNELS.items():
        visited = visibles(model, kernel, np.ones((1, 16)), size.change_steps, i)
        found[f"count {key}"] = np.array(diagnostics.class_changes(visited, modes))
        found[f"first {key}"] = first_change(
            model, kernel, begin, modes, size.first_change_limit, i
        )
    return found


def chains_from(model, kernel, v, seed):
    """Chains that start at visible states, hidden units drawn given them."""
    rng = np.random.default_rng(seed)
    hidden = start(model.given({"v": v}), rng)["h"]
    return make_chains(
        model.given().take(np.zeros(len(v), dtype=int)), kernel, {"v": v, "h": hidden}, rng
    )


def visibles(model, kernel, v, steps, seed):
    """Visible states (steps, d) of one chain."""
    chains = chains_from(model, kernel, v, seed)
    states = np.empty((steps, v.shape[1]))
    for t in range(steps):
        chains.sweep(1)
        states[t] = chains.values()["v"][0]
    return states


def first_change(model, kernel, v, modes, limit, seed):
    """Steps until the nearest mode is another than at the start, `limit` for chains that never
    change.
    """
    chains = chains_from(model, kernel, v, seed)
    label = diagnostics.nearest_modes(v, modes)
    steps = np.full(len(v), limit)
    for t in range(1, limit + 1):
        chains.sweep(1)
        now = diagnostics.nearest_modes(chains.values()["v"], modes)
        label = np.where(
            label < 0, now, label
        )  # a start between modes belongs to the first that it comes near
        steps[(now >= 0) & (now != label) & (steps == limit)] = t
        if (steps < limit).all():
            break
    return steps


def eigenvalue_figure(shares, path: Path) -> None:
    """Figure 3, upper, if matplotlib is installed."""
    if (plt := pyplot()) is None:
        return
    whole, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for n, share in shares.items():
        axis.plot(range(1, 11), share, marker="o", label=f"{n}x{n}")
    axis.set(
        title="figure 3, upper",
        xlabel="weights uniform in [-c, c]",
        ylabel="fraction of RBMs where T is faster",
        ylim=(0, 1.02),
    )
    axis.legend()
    whole.savefig(path, dpi=72)


def figure(tau, changes, path: Path) -> None:
    """Gains in autocorrelation time and changes of class, if there are any."""
    if (plt := pyplot()) is None or not (tau or changes):
        return
    whole, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    if tau:
        left.boxplot([100 * (1 - t[:, 0] / t[:, 1]) for t in tau.values()], tick_labels=list(tau))
    left.axhline(0, color="grey", linewidth=0.8)
    left.tick_params(axis="x", rotation=20)
    left.set(ylabel="gain 1 - tau_T / tau_G, %")
    columns = {f"{k}, p_mut {p}": c for p, counts in changes.items() for k, c in counts.items()}
    if columns:
        right.boxplot(list(columns.values()), tick_labels=list(columns))
    right.set(ylabel="class changes of a chain")
    whole.savefig(path, dpi=72)


def pyplot():
    """The plotting module without windows, or None if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


if __name__ == "__main__":
    typer.run(main)
