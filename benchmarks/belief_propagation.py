"""Codes and images by belief propagation, beside twenty lines of numpy.

    python benchmarks/belief_propagation.py --out benchmarks/results/belief_propagation.md

**Codes.** Regular (3, 6) low-density parity-check codes behind a binary symmetric channel that
flips 5 % of the bits; the word of zeros was sent. The peers are twenty lines of numpy, by
hyperbolic tangents, with all messages at the same time: one for any code, with a list of edges, and
a faster one for regular codes, with an array of checks. They stop as pgmengine does (no weight of a
message changes by more than the tolerance, or after the largest number of sweeps), or, as decoders
have it, where every check holds. Times are medians over words, each the least of several calls.

**Images.** A denoised image of 100 x 100 pixels by one call of `infer` with default settings, from
the declaration to the answer; the first call in a new process also loads the package's modules.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import typer
from apart import put_block, table

import pgmengine as pgm

FLIPS, DEGREES = 0.05, (3, 6)
METHOD = pgm.BeliefPropagation()
T = TypeVar("T")
Decoded = tuple[np.ndarray, int]


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


Stop = Callable[[np.ndarray, np.ndarray], bool]


def any_code(bit: np.ndarray, check: np.ndarray, prior: np.ndarray, stop: Stop) -> Decoded:
    """Return the log odds of zeros, and the number of sweeps, from the edges of any code."""
    n, m = len(prior), check.max() + 1
    out, total = np.zeros(len(bit)), prior
    for sweep in range(1, METHOD.sweeps + 1):
        into = np.tanh((total[bit] - out) / 2)
        size, sign = np.log(np.maximum(np.abs(into), 1e-300)), into < 0
        size = np.bincount(check, size, m)[check] - size
        sign = (np.bincount(check, sign, m)[check] - sign) % 2
        out = 2 * np.arctanh(np.minimum(np.exp(size), 1 - 1e-15)) * (1 - 2 * sign)
        total = prior + np.bincount(bit, out, n)
        if stop(total, out):
            return total, sweep
    return total, METHOD.sweeps


def regular_code(checks: np.ndarray, prior: np.ndarray, stop: Stop) -> Decoded:
    """Return the same for the bits of checks of equal length; left and right leave one bit out."""
    bits, n = checks.ravel(), len(prior)
    out, total = np.zeros(checks.shape), prior
    left, right = np.ones(checks.shape), np.ones(checks.shape)
    for sweep in range(1, METHOD.sweeps + 1):
        into = np.tanh((total[checks] - out) / 2)
        left[:, 1:] = np.cumprod(into[:, :-1], axis=1)
        right[:, :-1] = np.cumprod(into[:, :0:-1], axis=1)[:, ::-1]
        out = 2 * np.arctanh(np.clip(left * right, -1 + 1e-15, 1 - 1e-15))
        total = prior + np.bincount(bits, out.ravel(), n)
        if stop(total, out):
            return total, sweep
    return total, METHOD.sweeps


class Settled:
    """Whether no weight of a message has changed by more than the tolerance."""

    def __init__(self) -> None:
        self.weight: np.ndarray | float = 0.5

    def __call__(self, total: np.ndarray, out: np.ndarray) -> bool:
        """Compare the weights with those of the sweep before."""
        before, self.weight = self.weight, 1 / (1 + np.exp(out))
        return bool(np.abs(self.weight - before).max() <= METHOD.tolerance)


def peers(checks: np.ndarray, prior: np.ndarray) -> dict[str, Callable[[], Decoded]]:
    """Return the decoders of numpy by their names."""
    bit, check = checks.ravel(), np.repeat(np.arange(len(checks)), checks.shape[1])

    def holds(total: np.ndarray, out: np.ndarray) -> bool:
        return not ((total < 0)[checks].sum(axis=1) % 2).any()

    return {
        "numpy, any code": lambda: any_code(bit, check, prior, Settled()),
        "numpy, any code, until all checks hold": lambda: any_code(bit, check, prior, holds),
        "numpy, regular codes": lambda: regular_code(checks, prior, Settled()),
        "numpy, regular codes, until all checks hold": lambda: regular_code(checks, prior, holds),
    }


def timed(call: Callable[[], T], repeats: int) -> tuple[float, T]:
    """Return the least time of several calls, and the last result."""
    times = []
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
        mine = {
            "pgmengine, prepared": question.run,
            "pgmengine, `infer`": partial(pgm.infer, model, soft=soft, method=METHOD),
        }
        for name, call in mine.items():
            took, r = timed(call, repeats)
            errors = int((r.answers["prob"]["x"].reshape(n, 2)[:, 1] > 0.5).sum())
            rows.setdefault(name, []).append((took, errors, int(r.stats["sweeps"][0])))
        for name, decoder in peers(checks, prior).items():
            took, (total, sweeps) = timed(decoder, repeats)
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
