"""Hidden Markov models: EM beside hmmlearn, and chains of many steps beside a plain forward pass.

    python benchmarks/sequences.py [--out benchmarks/results/learning.md]

Sequences are drawn from a hidden Markov model by a fixed seed. Both libraries learn from the same
sequences, from the same start, without pseudocounts, for the same number of iterations. hmmlearn is
measured with both of its implementations: "log" is its default, and "scaling" its faster one.
Without hmmlearn there are our numbers alone. `--out` replaces the blocks of this script in a file.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

STATES, SYMBOLS = 5, 8
# Updates after which the likelihoods of both libraries are compared.
COMPARED_UPDATES = 20


def parameters(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, transitions and emissions of a hidden Markov model."""
    rng = np.random.default_rng(seed)
    start, moves = rng.dirichlet(np.ones(STATES)), rng.dirichlet(np.ones(STATES), STATES)
    return start, moves, rng.dirichlet(np.ones(SYMBOLS), STATES)


def template(seed: int) -> pgm.Template:
    """Return the template of a hidden Markov model."""
    start, moves, emissions = parameters(seed)

    def hmm(steps: int) -> pgm.GraphBuilder:
        b = pgm.GraphBuilder()
        z = b.variable("z", states=STATES, shape=steps)
        x = b.variable("x", states=SYMBOLS, shape=steps)
        b.conditional(z[0], (), start, name="start")
        b.conditional(z[1:], (z[:-1],), moves, name="transition")
        b.conditional(x, (z,), emissions, name="emission")
        return b

    return pgm.Template(hmm)


def drawn(seed: int, lengths: np.ndarray) -> list[np.ndarray]:
    """Return sequences of symbols."""
    start, moves, emissions = parameters(seed)
    rng, out = np.random.default_rng(seed), []
    for steps in lengths.tolist():
        state, row = rng.choice(STATES, p=start), np.zeros(steps, dtype=int)
        for t in range(steps):
            row[t] = rng.choice(SYMBOLS, p=emissions[state])
            state = rng.choice(STATES, p=moves[state])
        out.append(row)
    return out


def ours(rows: list[np.ndarray], updates: int) -> tuple[float, list[float]]:
    """Return the seconds of an iteration, set-up included, and the log-likelihoods."""
    em = pgm.EM(pseudocount=0.0, tolerance=0.0)
    begin = time.perf_counter()
    data = [{"x": row} for row in rows]
    found = pgm.fit(template(0), data, optimizer=em, updates=updates, progress=False)
    seconds = (time.perf_counter() - begin) / updates
    return seconds, list(np.asarray(found.history["objective"]["value"]) * len(rows))


def hmmlearn(rows: list[np.ndarray], updates: int, how: str) -> tuple[float, list[float]]:
    """Return the seconds of an iteration of hmmlearn, and the log-likelihoods after them."""
    from hmmlearn.hmm import CategoricalHMM

    start, moves, emissions = parameters(0)
    # It notes the likelihood before each iteration.
    settings: dict[str, Any] = {"n_iter": updates + 1, "tol": -np.inf, "init_params": ""}
    model = CategoricalHMM(STATES, implementation=how, n_features=SYMBOLS, **settings)
    model.startprob_, model.transmat_, model.emissionprob_ = start, moves, emissions
    whole, lengths = np.concatenate(rows)[:, None], [len(row) for row in rows]
    begin = time.perf_counter()
    model.fit(whole, lengths)
    seconds = (time.perf_counter() - begin) / (updates + 1)
    return seconds, list(model.monitor_.history)[1:]


def em(sequences: int, repeats: int) -> Iterator[list[str]]:
    """Yield the time of an iteration of EM, and the difference of the likelihoods."""
    lengths = np.random.default_rng(1).integers(50, 201, sequences)
    rows = drawn(2, lengths)
    cases = {"pgmengine": lambda: ours(rows, COMPARED_UPDATES)}
    if find_spec("hmmlearn"):
        for how in ("log", "scaling"):
            cases[f"hmmlearn, {how}"] = lambda how=how: hmmlearn(rows, COMPARED_UPDATES, how)
    times: dict[str, list[float]] = {who: [] for who in cases}
    values: dict[str, list[float]] = {}
    for _ in range(repeats):
        for who, case in cases.items():
            seconds, values[who] = case()
            times[who].append(seconds)
    base = statistics.median(times["pgmengine"])
    for who, seconds in times.items():
        middle = statistics.median(seconds)
        apart = np.abs(np.array(values[who]) / np.array(values["pgmengine"]) - 1).max()
        yield [who, f"{1e3 * middle:.4g} ms", f"{middle / base:.3g}", f"{apart:.1g}"]


def forward(row: np.ndarray) -> float:
    """Return the log-likelihood of a sequence by a plain forward pass."""
    start, moves, emissions = parameters(0)
    alpha, total = start * emissions[:, row[0]], 0.0
    for x in row[1:]:
        scale = alpha.sum()
        total += np.log(scale)
        alpha = (alpha / scale) @ moves * emissions[:, x]
    return total + float(np.log(alpha.sum()))


def long_chain(steps: int, repeats: int) -> Iterator[list[str]]:
    """Yield the times of questions about a chain of many steps, first answers."""
    row = drawn(3, np.array([steps]))[0]
    begin = time.perf_counter()
    plain = forward(row)
    numpy_seconds = time.perf_counter() - begin
    yield ["log p by a plain forward pass in numpy", f"{numpy_seconds:.3g} s", ""]
    questions = (("log p", "log_prob"), ("smoothing", "marginals"), ("most probable path", "mode"))
    for what, want in questions:
        times = []
        for _ in range(repeats):
            model = template(0)(steps)
            begin = time.perf_counter()
            r = pgm.infer(model, {"x": row}, want=(want,))
            times.append(time.perf_counter() - begin)
        apart = f"{abs(float(r.log_prob[0]) / plain - 1):.1g}" if want == "log_prob" else ""
        yield [f"{what}, first answer", f"{statistics.median(times):.3g} s", apart]


def main(
    sequences: Annotated[int, typer.Option(help="number of sequences")] = 1000,
    steps: Annotated[int, typer.Option(help="steps of the long chain")] = 100_000,
    repeats: Annotated[int, typer.Option(help="repeats of a time")] = 3,
    out: Annotated[Path | None, typer.Option(help="a file whose blocks are replaced")] = None,
) -> None:
    """Measure, print, and write a block of Markdown for each table."""
    load = os.getloadavg()[0]
    first = (
        f"## EM of a hidden Markov model\n\n{sequences:,} sequences of 50 to 200 steps, {STATES} "
        f"states, {SYMBOLS} symbols: the time of an iteration, a share of the set-up included, and "
        f"the largest relative difference of log p in {COMPARED_UPDATES} iterations. Load at the "
        f"start: {load:.1f}."
    )
    lines = list(em(sequences, repeats))
    blocks = {
        "em": f"{first}\n\n"
        + table(("library", "one iteration", "ratio", "difference of log p"), lines)
    }
    print(*map(" | ".join, lines), sep="\n", flush=True)
    lines = list(long_chain(steps, repeats))
    print(*map(" | ".join, lines), sep="\n")
    second = f"## A chain of {steps:,} steps\n\nThe same hidden Markov model, one sequence."
    blocks["chain"] = f"{second}\n\n" + table(("question", "time", "difference of log p"), lines)
    for name, text in blocks.items():
        if out is not None:
            put_block(out, f"sequences.py {name}", text + "\n")


if __name__ == "__main__":
    typer.run(main)
