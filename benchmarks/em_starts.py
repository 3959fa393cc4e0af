"""How often does EM with random starts find the best hidden Markov model?

    python benchmarks/em_starts.py [--out benchmarks/results/learning.md] [--seeds 8] [--small]

Sequences are drawn from hidden Markov models that nearly always show their state: a state stays
with one probability, and shows its own symbol with another one. All models begin with equal
numbers everywhere. A fit misses if its objective is more than 0.05 nats a sequence below the
highest one that any fit of these sequences has reached, the one that begins at the truth included.
Our objective has the prior of one pseudocount; hmmlearn is given the same prior, and its
likelihood is compared with the highest of its own fits. `--out` replaces the block in a file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

SEQUENCES, STEPS, MISS = 60, 40, 0.05
# States, the probability of staying, and that of the own symbol.
CASES = ((3, 0.9, 0.8), (4, 0.8, 0.7), (5, 0.9, 0.8), (6, 0.9, 0.8))
Fitted = Callable[[int], float]
# Name of a fit -> (nats below the best, seconds of the processor) of each run.
Found = dict[str, list[tuple[float, float]]]


def even(size: int, own: float) -> np.ndarray:
    """Return rows with one large entry, at the number of the row, and equal others."""
    found = np.full((size, size), (1 - own) / (size - 1))
    np.fill_diagonal(found, own)
    return found


def truth(states: int, stay: float, own: float) -> tuple[np.ndarray, np.ndarray]:
    """Return transitions and emissions; there is one symbol more than states."""
    return even(states, stay), even(states + 1, own)[:states]


def drawn(moves: np.ndarray, shows: np.ndarray, seed: int) -> list[np.ndarray]:
    """Return sequences of symbols."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(SEQUENCES):
        state, row = rng.integers(len(moves)), np.zeros(STEPS, dtype=int)
        for t in range(STEPS):
            row[t] = rng.choice(shows.shape[1], p=shows[state])
            state = rng.choice(len(moves), p=moves[state])
        out.append(row)
    return out


def template(moves: np.ndarray, shows: np.ndarray) -> pgm.Template:
    """Return the template of a hidden Markov model with these tables."""
    states, symbols = shows.shape

    def hmm(steps: int) -> pgm.GraphBuilder:
        b = pgm.GraphBuilder()
        z = b.variable("z", states=states, shape=steps)
        x = b.variable("x", states=symbols, shape=steps)
        b.conditional(z[0], (), np.full(states, 1 / states), name="start")
        b.conditional(z[1:], (z[:-1],), moves, name="transition")
        b.conditional(x, (z,), shows, name="emission")
        return b

    return pgm.Template(hmm)


def ours(rows: list[np.ndarray], start: pgm.Template, optimizer: pgm.EM) -> Fitted:
    """Return a function from a seed to the objective of a fit."""
    data = [{"x": row} for row in rows]

    def fitted(seed: int) -> float:
        f = pgm.fit(start, data, optimizer=optimizer, updates=3000, rng=seed, progress=False)
        return float(f.history["objective"]["value"][-1])

    return fitted


def theirs(rows: list[np.ndarray], states: int, symbols: int, rounds: int, tol: float) -> Fitted:
    """Return a function from a seed to the likelihood of hmmlearn, nats a sequence."""
    from hmmlearn.hmm import CategoricalHMM

    x, lengths = np.concatenate(rows)[:, None], [len(row) for row in rows]

    def fitted(seed: int) -> float:
        model = CategoricalHMM(
            states,
            startprob_prior=2.0,
            transmat_prior=2.0,
            emissionprob_prior=2.0,
            n_iter=rounds,
            tol=tol,
            random_state=seed,
            n_features=symbols,
        )
        return float(model.fit(x, lengths).score(x, lengths)) / len(rows)

    return fitted


def our_fits(rows: list[np.ndarray], states: int) -> dict[str, Fitted]:
    """Return our fits by name."""
    shape = states, states + 1
    equal = template(np.full((states, states), 1 / states), np.full(shape, 1 / (states + 1)))
    optimizers = {
        "EM(), the default": pgm.EM(),
        "EM(starts=1)": pgm.EM(starts=1),
        "EM(starts=1, tolerance=1e-4)": pgm.EM(starts=1, tolerance=1e-4),
        "EM(starts=50)": pgm.EM(starts=50),
    }
    return {name: ours(rows, equal, optimizer) for name, optimizer in optimizers.items()}


def their_fits(rows: list[np.ndarray], states: int) -> dict[str, Fitted]:
    """Return fits of hmmlearn by name, if it is installed."""
    if not find_spec("hmmlearn"):
        return {}
    return {
        "hmmlearn, defaults (10 iterations)": theirs(rows, states, states + 1, 10, 1e-2),
        "hmmlearn, 3,000 iterations, tol=1e-4": theirs(rows, states, states + 1, 3000, 1e-4),
    }


def measured(fits: dict[str, Fitted], best: float, seeds: int, found: Found) -> None:
    """Add to each name (nats below the best, seconds of the processor) of every seed."""
    values: dict[str, list[tuple[float, float]]] = {}
    for name, fitted in fits.items():
        for seed in range(seeds):
            begin = time.process_time()
            value = fitted(seed)
            values.setdefault(name, []).append((value, time.process_time() - begin))
    best = max([best, *(value for runs in values.values() for value, _ in runs)])
    for name, runs in values.items():
        found.setdefault(name, []).extend((best - value, took) for value, took in runs)


def main(out: Path | None = None, seeds: int = 8, small: bool = False) -> None:
    """Fit, count the misses, and write the table."""
    for name in ("pgmengine", "hmmlearn"):
        logging.getLogger(name).setLevel(logging.ERROR)
    found: Found = {}
    for states, stay, own in CASES[:1] if small else CASES:
        moves, shows = truth(states, stay, own)
        for data_seed in range(1 if small else 3):
            rows = drawn(moves, shows, data_seed)
            best = ours(rows, template(moves, shows), pgm.EM(tolerance=1e-8))(0)
            measured(our_fits(rows, states), best, seeds, found)
            measured(their_fits(rows, states), -np.inf, seeds, found)
    lines = []
    for name, runs in found.items():
        short, took = np.array(runs).T
        misses = f"{np.count_nonzero(short > MISS)} of {len(runs)}"
        lines.append([name, misses, f"{short.mean():.3f}", f"{took.mean():.2f}"])
    text = table(["fit", "misses", "nats below the best, mean", "s of the processor"], lines)
    print(text)
    if out is not None:
        put_block(out, "em_starts.py", text)


if __name__ == "__main__":
    typer.run(main)
