"""System 3 (Salakhutdinov 2010): adaptive tempering crosses where Gibbs sampling does not (figures
2 and 4).

    python benchmarks/reproduce/adaptive_tempering.py OUT [--scale full]

Writes adaptive_tempering.txt and adaptive_tempering.png into OUT. Two models: two spins that prefer
to be equal (weight 5), and an RBM trained on Artificial Modes with p_mut 0.01. For each the share
of time in each mode by plain Gibbs, by fast-weight chasing (Gibbs whose weights a decaying term
pushes away from where it is, as in Fast PCD), by simulated tempering, parallel tempering and
Wang-Landau sampling, beside the exact shares; and the temperature of one chain in time.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import typer

import pgmengine as pgm
from pgmengine.engine.chains import make_chains, start


def main(out: Path, scale: str = "small") -> None:
    """Run both models and write the table and the figure."""
    out.mkdir(parents=True, exist_ok=True)
    sweeps = {"small": 20_000, "full": 200_000}[scale]
    lines = [
        f"# scale {scale}: {sweeps} sweeps of 8 chains (a quarter for parallel tempering and "
        "Wang-Landau); share of "
        "time in each mode"
    ]
    shown = {}
    for name, model, modes, layer, partition in (two_spins(), artificial_modes()):
        exact = exact_shares(model, modes, layer)
        begin = time.time()
        found = {"exact": exact, **runs(model, modes, layer, partition, sweeps)}
        lines.append(f"\n## {name} ({time.time() - begin:.0f} s)")
        for method, share in found.items():
            if method != "levels":
                worst = np.abs(share - exact).max()
                lines.append(
                    f"{method:22s} "
                    + " ".join(f"{s:6.3f}" for s in share)
                    + f"   off by at most {worst:.3f}"
                )
        lines.append(f"time per step, simulated tempering over plain sweeps: {overhead(model):.2f}")
        shown[name] = found
    lines.append(
        "\n784x500 RBM, 100 chains: simulated tempering step over a plain sweep: "
        f"{large_overhead():.2f}"
    )
    (out / "adaptive_tempering.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    figure(shown, out / "adaptive_tempering.png")


def two_spins():
    """Two spins with weight 5 and a little bias: all the probability is at (-1, -1) and (1, 1)."""
    model = pgm.boltzmann_machine(2).with_params(
        {"x-x.weight": np.array([[0.0, 5.0], [5.0, 0.0]]), "x.bias": [0.1, 0.1]}
    )
    modes = np.array([[-1.0, -1.0], [1.0, 1.0]])
    return (
        "two spins, weight 5",
        model,
        modes,
        "x",
        (lambda x: (x["x"].sum(axis=1) / 2 + 1).astype(int), 3),
    )


def artificial_modes():
    """An RBM with 16 hidden units trained on Artificial Modes by exact gradients."""
    data = pgm.datasets.artificial_modes(0.01)
    model = pgm.rbm(16, 16, rng=0)
    fitted = pgm.fit(
        model,
        {"v": data.x_train[:2000]},
        negative=pgm.ExactGradient(),
        optimizer=pgm.Adam(0.02),
        batch_size=500,
        updates=600,
        rng=0,
        progress=False,
    )
    half = np.repeat([0.0, 1.0], 8)
    modes = np.stack((np.zeros(16), np.ones(16), half, 1 - half))

    def partition(x):
        upper, lower = x["v"][:, :8].sum(axis=1).astype(int), x["v"][:, 8:].sum(axis=1).astype(int)
        return upper * 9 + lower

    return "RBM 16x16 on Artificial Modes, p_mut 0.01", fitted.model, modes, "v", (partition, 81)


def shares(states, modes):
    """Share of the states (n, d) nearest to each mode, those between modes left out."""
    label = pgm.diagnostics.nearest_modes(states, modes)
    return np.array([(label == k).sum() for k in range(len(modes))]) / max((label >= 0).sum(), 1)


def exact_shares(model, modes, layer):
    """Share of the exact draws of the model nearest to each mode."""
    draws = pgm.infer(model, want=("samples",), method=pgm.Exact(draws=400_000), rng=0).samples[
        layer
    ]
    return shares(draws.reshape(len(draws), -1), modes)


def runs(model, modes, layer, partition, sweeps):
    """Shares by method, and levels of one tempered chain."""

    def of(result):
        return shares(result.samples[layer].reshape(-1, modes.shape[1]), modes)

    want, chains = ("samples",), 8
    tempered = pgm.infer(
        model,
        want=want,
        rng=1,
        method=pgm.SimulatedTempering(
            betas=pgm.Linear(12), chains=chains, warmup=sweeps, draws=sweeps
        ),
    )
    return {
        "Gibbs, one start": shares(gibbs(model, modes, layer, sweeps), modes),
        "fast weights": shares(fast_weights(model, modes, layer, sweeps // 4), modes),
        "simulated tempering": of(tempered),
        "parallel tempering": of(
            pgm.infer(
                model,
                want=want,
                rng=1,
                method=pgm.ParallelTempering(rungs=12, chains=chains, draws=sweeps // 4),
            )
        ),
        "Wang-Landau": of(
            pgm.infer(
                model,
                want=want,
                rng=1,
                method=pgm.WangLandau(
                    *partition,
                    chains=chains,
                    warmup=sweeps // 4,
                    draws=sweeps // 4,
                    layers=(layer,),
                ),
            )
        ),
        "levels": tempered.stats["betas"][tempered.stats["levels"][:, 0, 0]],
    }


def gibbs(model, modes, layer, sweeps):
    """States of 8 plain chains that start at the first mode."""
    rng = np.random.default_rng(1)
    target = model.given().take(np.zeros(8, dtype=int))
    x = start(model.given({layer: np.repeat(modes[:1], 8, axis=0)}), rng)
    chains = make_chains(target, pgm.Gibbs(), x, rng)
    states = []
    for _ in range(sweeps):
        chains.sweep(1)
        states.append(chains.values()[layer])
    return np.concatenate(states)


def fast_weights(model, modes, layer, sweeps, rate=0.02, decay=0.95):
    """States of 8 chains with fast weights: the weights lose `rate` times the chains' own
    statistics, which decays.
    """
    rng = np.random.default_rng(1)
    x = start(model.given({layer: np.repeat(modes[:1], 8, axis=0)}), rng)
    key = next(k for k in model.params if k.endswith("weight"))
    fast, states = np.zeros_like(model.params[key]), []
    for _ in range(sweeps):
        chased = model.with_params({key: model.params[key] + fast})
        chains = make_chains(chased.given().take(np.zeros(8, dtype=int)), pgm.Gibbs(), x, rng)
        chains.sweep(1)
        x = chains.values()
        fast = decay * fast - rate * chased.gradient(x)[key] / 8
        states.append(x[layer])
    return np.concatenate(states)


def overhead(model, chains=100, steps=2000):
    """Time of an adaptive simulated-tempering step over that of a plain sweep."""
    from pgmengine.infer.sampling.ladders.wandering import FlatHistogram, Levels

    rng = np.random.default_rng(0)
    target = model.given()
    levels = Levels(target, np.linspace(0.9, 1, 20), chains, pgm.Gibbs(), FlatHistogram(), rng)
    many = target.take(np.zeros(chains, dtype=int))
    plain = make_chains(many, pgm.Gibbs(), start(many, rng), rng)
    times = {"plain": [], "tempered": []}
    for _ in range(5):
        for name, step in (
            ("plain", lambda: plain.sweep(1)),
            ("tempered", lambda: levels.step(adapt=True)),
        ):
            begin = time.perf_counter()
            for _ in range(steps // 5):
                step()
            times[name].append(time.perf_counter() - begin)
    return np.median(times["tempered"]) / np.median(times["plain"])


def large_overhead():
    """Time of an adaptive simulated-tempering step over that of a plain sweep, on a 784x500 RBM
    with weak random weights.
    """
    rng = np.random.default_rng(0)
    params = {"v-h.weight": rng.normal(size=(784, 500)) * 0.05, "v.bias": np.full(784, -2.0)}
    return overhead(pgm.rbm(784, 500).with_params(params), steps=500)


def figure(shown, path: Path) -> None:
    """Shares by method, and a temperature trajectory, for each model."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(len(shown), 2, figsize=(13, 4 * len(shown)), layout="constrained")
    for (left, right), (name, found) in zip(axes, shown.items(), strict=True):
        methods = [m for m in found if m != "levels"]
        bottom = np.zeros(len(methods))
        for mode in range(len(found["exact"])):
            height = np.array([found[m][mode] for m in methods])
            left.bar(methods, height, bottom=bottom, label=f"mode {mode + 1}")
            bottom += height
        left.set(title=name, ylabel="share of time")
        left.tick_params(axis="x", rotation=20)
        left.legend(loc="lower right")
        half = len(found["levels"]) // 2
        shown_part = slice(half, half + 2000)
        right.plot(found["levels"][shown_part], linewidth=0.8)
        right.set(
            xlabel="sweep after the adaptation",
            ylabel="inverse temperature",
            title="one tempered chain",
        )
    picture.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
