"""Codes and images by belief propagation, beside twenty lines of numpy.

    python benchmarks/belief_propagation.py --out benchmarks/results/belief_propagation.md

**Codes.** Regular (3, 6) low-density parity-check codes of several lengths behind a binary
symmetric channel that flips 5 % of the bits; the word of zeros was sent. `ldpc` is what a reader
would write in numpy: all messages at the same time, by hyperbolic tangents. It has the same rule
to stop (no weight of a message changes by more than the tolerance, or the largest number of
sweeps), and, as decoders have it, another one: every check holds. Times are the median of several
words, of a prepared question, and of `infer` with its planning.

**Images.** A denoised image of 100 x 100 pixels by one call of `infer` with default settings, from
the declaration to the answer; the first call in a new process also loads the package's modules.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

FLIPS, DEGREES = 0.05, (3, 6)
METHOD = pgm.BeliefPropagation()


def code(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the bits (n / 2, 6) of the checks of a random code without double edges."""
    bits = np.repeat(np.arange(n), DEGREES[0])
    checks = rng.permutation(bits).reshape(-1, DEGREES[1])
    while True:
        ordered = np.sort(checks, axis=1)
        bad = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if not len(bad):
            return checks
        for row in bad:
            other, i, j = rng.integers(len(checks)), *rng.integers(DEGREES[1], size=2)
            checks[row, i], checks[other, j] = checks[other, j], checks[row, i]


def ldpc(
    checks: np.ndarray, prior: np.ndarray, sweeps: int, tolerance: float, decoder: bool
) -> tuple[np.ndarray, int]:
    """Return the log odds of zeros by flooding, and the number of sweeps."""
    bits, n = checks.ravel(), len(prior)
    out, weight, total = np.zeros(checks.shape), np.full(checks.shape, 0.5), prior
    for sweep in range(1, sweeps + 1):
        into = np.tanh((total[checks] - out) / 2)
        # Products of all but one, from both ends, since a factor may be 0.
        left, right = np.ones(checks.shape), np.ones(checks.shape)
        left[:, 1:] = np.cumprod(into[:, :-1], axis=1)
        right[:, :-1] = np.cumprod(into[:, :0:-1], axis=1)[:, ::-1]
        out = 2 * np.arctanh(np.clip(left * right, -1 + 1e-15, 1 - 1e-15))
        total = prior + np.bincount(bits, out.ravel(), n)
        if decoder:
            if not ((total < 0)[checks].sum(axis=1) % 2).any():
                break
            continue
        before, weight = weight, 1 / (1 + np.exp(out))
        if np.abs(weight - before).max() <= tolerance:
            break
    return total, sweep


def timed(call: Callable[[], object], repeats: int) -> tuple[float, object]:
    """Return the least time of several calls, and the last result."""
    times, found = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - begin)
    return min(times), found


def code_lines(n: int, words: int, repeats: int) -> list[list[str]]:
    """Return the lines of a length: pgmengine, and numpy with both rules to stop."""
    rng = np.random.default_rng(n)
    checks = code(n, rng)
    b = pgm.GraphBuilder()
    x = b.variable("x", states=2, shape=(n,))
    even = np.indices((2,) * DEGREES[1]).sum(axis=0) % 2 == 0
    b.table(tuple(x[checks[:, i]] for i in range(DEGREES[1])), even.astype(float))
    model, size = b.build(), np.log((1 - FLIPS) / FLIPS)
    rows: dict[str, list[tuple[float, int, int]]] = {}
    for _ in range(words):
        prior = np.where(rng.random(n) < FLIPS, -size, size)
        soft = {"x": np.stack([prior, np.zeros(n)], axis=1)}
        question = METHOD.prepare(model.given(soft=soft), ("marginals",))
        for name, call in {
            "pgmengine, prepared": question.run,
            "pgmengine, `infer`": lambda soft=soft: pgm.infer(model, soft=soft, method=METHOD),
        }.items():
            took, r = timed(call, repeats)
            errors = int((r.answers["prob"]["x"].reshape(n, 2)[:, 1] > 0.5).sum())
            rows.setdefault(name, []).append((took, errors, int(r.stats["sweeps"][0])))
        for name, decoder in {"numpy, the same rule": False, "numpy, until all checks hold": True}.items():
            call = lambda d=decoder, p=prior: ldpc(checks, p, METHOD.sweeps, METHOD.tolerance, d)
            took, (total, sweeps) = timed(call, repeats)
            rows.setdefault(name, []).append((took, int((total < 0).sum()), sweeps))
    lines = []
    for name, found in rows.items():
        took, errors, sweeps = np.array(found).T
        told = f"{1e3 * np.median(took):.2f}", f"{int(errors.sum())}", f"{sweeps.mean():.1f}"
        lines.append([f"{n:,}", name, *told])
    return lines


def image_line(states: int, side: int, coupling: float, want: str) -> list[str]:
    """Return the line of an image: the time from the declaration to the answer, and the errors."""
    y, x = np.indices((side, side))
    disc = np.hypot(y - side / 2, x - 0.4 * side) < 0.3 * side
    clean = (disc + 2 * (abs(x - 0.7 * side) < 0.15 * side) * (y > 0.3 * side)) % states
    rng = np.random.default_rng(0)
    noise = rng.random(clean.shape) < 0.2
    noisy = np.where(noise, rng.integers(states, size=clean.shape), clean)
    begin = time.perf_counter()
    b = pgm.GraphBuilder()
    s = b.variable("s", states=states, shape=clean.shape)
    pair = np.exp(coupling * np.eye(states))
    b.table((s[1:], s[:-1]), pair)
    b.table((s[:, 1:], s[:, :-1]), pair)
    r = pgm.infer(b.build(), want=want, method=METHOD, soft={"s": 2.5 * np.eye(states)[noisy]})
    took = time.perf_counter() - begin
    if want == "mode":
        best = np.array(r.assignment()["s"])
    else:
        best = np.array([r.marginal("s")[k] for k in range(states)]).argmax(axis=0)
    wrong = [f"{np.mean(found != clean):.2%}" for found in (noisy, best)]
    return [f"{states}", want, f"{took:.3f}", *wrong, f"{r.stats['sweeps'][0]:.0f}", r.status.name]


def main(
    out: Annotated[Path | None, typer.Option(help="The page that gets the tables.")] = None,
    lengths: str = "200,1000,10000",
    words: int = 10,
    repeats: int = 3,
) -> None:
    """Measure codes and images, and write the page."""
    # The first one loads modules.
    images = [image_line(2, 100, 1.2, "marginals")]
    images += [image_line(k, 100, 1.2, w) for k in (2, 4) for w in ("marginals", "mode")]
    images[0][0] += ", first call"
    codes = [line for n in lengths.split(",") for line in code_lines(int(n), words, repeats)]
    titles = ["bits", "by", "milliseconds a word", f"wrong bits of {words} words", "sweeps"]
    text = table(titles, codes)
    more = ["states", "wanted", "seconds", "wrong before", "wrong after", "sweeps", "status"]
    text += "\n\n" + table(more, images)
    if out is None:
        print(text)
    else:
        put_block(out, "belief_propagation.py", text)


if __name__ == "__main__":
    typer.run(main)
