"""Sampled answers: lattices, RBMs that learned images, judged chains, and kernels by themselves.

The loops in numpy draw as many sweeps of as many chains as the default answer does, layer by layer
or colour by colour, and judge nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import judging
import material
import numpy as np
from harness import Settings

import pgmengine as pgm
from calls import OURS, Answer, Array, Call, Case, Given, spent, trained

DEFAULT = pgm.MCMC()


def calls(given: Given) -> Iterator[Call]:
    """Yield the calls."""
    yield log_z_of_lattice(given)
    yield potts(given)
    yield log_p_of_rbm(given)
    yield completions(given)
    yield letters(given)
    yield from judged(given)
    yield from kernels(given)


# Lattices. Numpy visits the two colours of the chessboard in turn, all units of one at once.


def neighbours(s: Array) -> Array:
    """Return the sum of the four neighbours along the last two axes, borders free."""
    out = np.zeros_like(s)
    out[..., 1:, :] += s[..., :-1, :]
    out[..., :-1, :] += s[..., 1:, :]
    out[..., 1:] += s[..., :-1]
    out[..., :-1] += s[..., 1:]
    return out


def log_z_of_lattice(given: Given, k: float = 0.3, field: float = 0.05) -> Call:
    """Return the call for log Z of an Ising lattice with a field."""
    side = given.size(64, 8)

    def ours() -> Answer:
        b = pgm.GraphBuilder()
        s = b.variable("s", states=("down", "up"), shape=(side, side))
        bond = np.exp(k * np.array([[1, -1], [-1, 1]]))
        b.table((s[1:], s[:-1]), bond)
        b.table((s[:, 1:], s[:, :-1]), bond)
        b.table((s,), np.exp(field * np.array([-1, 1])))
        model = b.build()
        seconds, r = spent(lambda: pgm.infer(model, want=("log_z",), rng=0, progress=False))
        error = 0.0 if r.kind == "exact" else float(r.log_z_error[0])
        return Answer(seconds, float(r.log_z[0]), error, f"{r.plan.method}, {r.status.name}")

    def numpy() -> Answer:
        steps = given.size(300, 100)
        seconds, (value, error) = spent(lambda: annealed_lattice(side, k, field, steps))
        return Answer(seconds, value, error, f"annealing, 100 chains, {steps} temperatures")

    name = f"log Z of an Ising lattice 64x64, K = {k}, field {field}"
    # So few temperatures give an error that is too small.
    return Call(name, {OURS: ours, "numpy": numpy}, "log Z", 0, 2.0, limit=3.0)


def annealed_lattice(side: int, k: float, field: float, steps: int) -> tuple[float, float]:
    """Return log Z by annealed importance sampling (Neal 2001), and its error."""
    rng, chains = np.random.default_rng(0), 100
    s = rng.choice([-1.0, 1.0], (chains, side, side))
    colour, log_w = np.indices((side, side)).sum(axis=0) % 2, np.zeros(chains)
    for beta in np.linspace(0, 1, steps + 1)[1:]:
        log_w += (k * (s * neighbours(s)).sum((1, 2)) / 2 + field * s.sum((1, 2))) / steps
        for c in (0, 1):
            up = 1 / (1 + np.exp(-2 * beta * (k * neighbours(s) + field)))
            s = np.where(colour == c, np.where(rng.random(s.shape) < up, 1.0, -1.0), s)
    return side**2 * float(np.log(2)) + mean_of_logs(log_w), error_of_logs(log_w)


def mean_of_logs(log_w: Array) -> float:
    """Return the logarithm of the mean of weights."""
    return float(np.logaddexp.reduce(log_w) - np.log(len(log_w)))


def error_of_logs(log_w: Array) -> float:
    """Return the standard error of the logarithm of the mean of weights."""
    w = np.exp(log_w - log_w.max())
    return float(w.std(ddof=1) / w.mean() / np.sqrt(len(w)))


def potts(given: Given, labels: int = 4, k: float = 0.9, shown: float = 0.6) -> Call:
    """Return the call for the labels of a noisy image, a Potts lattice with soft evidence."""
    side, rng = given.size(100, 8), np.random.default_rng(0)
    coarse = rng.integers(labels, size=(-(-side // 12), -(-side // 12)))
    truth = np.kron(coarse, np.ones((12, 12), dtype=int))[:side, :side]
    seen = np.where(rng.random(truth.shape) < shown, truth, rng.integers(labels, size=truth.shape))
    likely = np.where(seen[..., None] == np.arange(labels), shown, 0.0) + (1 - shown) / labels

    def right(marginals: Array) -> float:
        return float(np.mean(marginals.argmax(axis=-1) == truth))

    def ours() -> Answer:
        b = pgm.GraphBuilder()
        s = b.variable("s", states=labels, shape=(side, side))
        bond = np.exp(k * np.eye(labels))
        b.table((s[1:], s[:-1]), bond)
        b.table((s[:, 1:], s[:, :-1]), bond)
        b.table((s,), likely)
        model = b.build()
        seconds, r = spent(lambda: pgm.infer(model, rng=0, progress=False))
        marginals = np.stack(list(r.marginal("s").values()), axis=-1)
        return Answer(seconds, right(marginals), note=f"{r.plan.method}, {r.status.name}")

    def numpy() -> Answer:
        seconds, counts = spent(lambda: potts_gibbs(np.log(likely), k, *sweeps(given)))
        return Answer(seconds, right(counts), note=f"{DEFAULT.chains} chains")

    name = f"marginals of a Potts lattice 100x100, {labels} labels"
    return Call(name, {OURS: ours, "numpy": numpy}, "accuracy", 1, 0.005, limit=5.0)


def sweeps(given: Given) -> tuple[int, int]:
    """Return the sweeps of the default chains before and while they are read."""
    return given.size(DEFAULT.warmup, 10), given.size(DEFAULT.draws, 20)


def potts_gibbs(log_likely: Array, k: float, warmup: int, draws: int) -> Array:
    """Return how often each unit has each label, (side, side, labels)."""
    side, labels = log_likely.shape[1:]
    rng = np.random.default_rng(0)
    one_hot = np.eye(labels, dtype=np.float32)
    s = rng.integers(labels, size=(DEFAULT.chains, len(log_likely), side))
    colour, counts = np.indices(s.shape[1:]).sum(axis=0) % 2, np.zeros(log_likely.shape)
    for sweep in range(warmup + draws):
        for c in (0, 1):
            near = np.moveaxis(neighbours(np.moveaxis(one_hot[s], -1, 1)), 1, -1)
            p = np.exp(k * near + log_likely).cumsum(axis=-1)
            drawn = (p < rng.random((*s.shape, 1)) * p[..., -1:]).sum(axis=-1)
            s = np.where(colour == c, drawn, s)
        if sweep >= warmup:
            counts += one_hot[s].sum(axis=0)
    return counts


# RBMs that learned images.


def images(given: Given, which: str, rows: int) -> Array:
    """Return binary images of 784 pixels: MNIST, or stand-ins."""
    if given.data is None:
        drawn = material.images(Settings(), 2 * rows)
        return drawn[:rows] if which == "train" else drawn[rows:]
    from defaults import mnist

    return np.asarray(mnist(given.data / "mnist", rows, which), dtype=float)


def learned(given: Given) -> pgm.Model:
    """Return an RBM 784x200 that learned images by the defaults."""
    rows, hidden = given.size(10_000, 100), given.size(200, 8)

    def make() -> pgm.Model:
        x = images(given, "train", rows)
        return pgm.fit(pgm.rbm(784, hidden, rng=0), {"v": x}, epochs=5, rng=0, progress=False).model

    return trained(given, "digits", make)


def log_p_of_rbm(given: Given) -> Call:
    """Return the call for log p of rows that were not learned from."""
    rows = given.size(200, 10)

    def ours() -> Answer:
        model, x = learned(given), images(given, "t10k", rows)
        want = ("log_prob",)
        seconds, r = spent(lambda: pgm.infer(model, {"v": x}, want=want, rng=0, progress=False))
        error = 0.0 if r.kind == "exact" else float(np.mean(r.log_prob_error))
        note = f"{r.plan.method}, {r.status.name}"
        return Answer(seconds, float(r.log_prob.mean()), error, note)

    def numpy() -> Answer:
        model, x = learned(given), images(given, "t10k", rows)
        params = [np.asarray(model.params[n]) for n in ("v-h.weight", "v.bias", "h.bias")]
        base = images(given, "train", given.size(10_000, 100)).mean(axis=0).clip(0.01, 0.99)
        steps = given.size(2000, 100)
        seconds, (value, error) = spent(lambda: annealed_log_p(*params, base, x, steps))
        return Answer(seconds, value, error, f"annealing, 100 chains, {steps} temperatures")

    name = "log p of 200 new rows, RBM 784x200"
    # Two estimates of log Z that miss modes differ by more than their errors.
    return Call(name, {OURS: ours, "numpy": numpy}, "log p a row", 0, 1.0, limit=8.0)


def annealed_log_p(
    w: Array, b: Array, c: Array, base: Array, x: Array, steps: int
) -> tuple[float, float]:
    """Return the mean log p of rows, log Z by annealing from the base rates, and its error."""
    rng, a, log_w = np.random.default_rng(0), np.log(base / (1 - base)), np.zeros(100)
    v = (rng.random((100, len(b))) < base).astype(float)

    def free(v: Array, beta: float) -> Array:
        return v @ ((1 - beta) * a + beta * b) + np.logaddexp(0, beta * (v @ w + c)).sum(axis=1)

    betas = np.linspace(0, 1, steps + 1)
    for old, new in zip(betas, betas[1:], strict=False):
        log_w += free(v, new) - free(v, old)
        h = rng.random((100, len(c))) < 1 / (1 + np.exp(-new * (v @ w + c)))
        input_v = (1 - new) * a + new * (h @ w.T + b)
        v = (rng.random(v.shape) < 1 / (1 + np.exp(-input_v))).astype(float)
    log_z = np.logaddexp(0, a).sum() + len(c) * np.log(2) + mean_of_logs(log_w)
    return float((free(x, 1.0) - log_z).mean()), error_of_logs(log_w)


def half_seen(x: Array) -> Array:
    """Return rows whose second half is not observed."""
    return np.where(np.arange(x.shape[1]) < x.shape[1] // 2, x, np.nan)


def completed(
    name: str, model: Any, rows: Any, over: dict[str, float], limit: float | None
) -> Call:
    """Return the call of completions, beside as many sweeps in numpy as MCMC() makes."""

    def right(mean: Array, x: Array) -> float:
        half = x.shape[1] // 2
        return float(np.mean((mean[:, half:] > 0.5) == (x[:, half:] > 0.5)))

    def ours() -> Answer:
        own, x = model(), rows()
        seconds, r = spent(lambda: pgm.infer(own, {"v": half_seen(x)}, rng=0, progress=False))
        return Answer(seconds, right(r.mean["v"], x), note=f"{r.plan.method}, {r.status.name}")

    def numpy() -> Answer:
        x = rows()
        case = judging.Case("", model(), {"v": half_seen(x)}, DEFAULT)
        seconds, means = spent(lambda: judging.numpy_loop(case))
        mean = half_seen(x)
        mean[:, x.shape[1] // 2 :] = means[0].reshape(len(x), DEFAULT.chains, -1).mean(axis=1)
        return Answer(seconds, right(mean, x), note=f"{DEFAULT.chains} chains a row")

    cases = {OURS: ours, "numpy": numpy}
    return Call(name, cases, "share of pixels", 1, 0.005, over, limit)


def completions(given: Given) -> Call:
    """Return the call of ten digits whose lower halves are hidden."""
    rows = partial(images, given, "t10k", given.size(10, 2))
    name = "ten completed halves of digits, RBM 784x200"
    return completed(name, partial(learned, given), rows, {}, 5.0)


def letters(given: Given) -> Call:
    """Return the call of a hundred half letters of 16x8 pixels."""

    def make() -> pgm.Model:
        empty = pgm.rbm(128, given.size(300, 8), rng=0)
        x = strokes(given.size(5000, 100), 0)
        return pgm.fit(empty, {"v": x}, rng=0, progress=False).model

    model = partial(trained, given, "letters", make)
    rows = partial(strokes, given.size(100, 3), 1)
    name = "a hundred completed halves of letters, RBM 128x300"
    return completed(name, model, rows, {"numpy": 1.0}, None)


def strokes(rows: int, seed: int) -> Array:
    """Return images of 16x8 pixels of 26 letters: three strokes each, whose ends shake."""
    ends = np.random.default_rng(7).uniform((1, 1), (15, 7), (26, 3, 2, 2))
    rng, pixels = np.random.default_rng(seed), np.indices((16, 8)).reshape(2, -1).T + 0.5
    shaken = ends[rng.integers(26, size=rows)] + rng.normal(0, 0.5, (rows, 3, 2, 2))
    at = np.linspace(0, 1, 12)[:, None]
    points = shaken[:, :, None, 0] * (1 - at) + shaken[:, :, None, 1] * at
    points = points.reshape(rows, -1, 1, 2)
    far = np.square(points - pixels).sum(axis=-1).min(axis=1)
    return (far < 0.8).astype(float)


def judged(given: Given) -> Iterator[Call]:
    """Yield the calls of judged draws without evidence."""
    for case, start in zip(judging.cases()[2:], ("judged draws: ",) * 2, strict=True):
        method = replace(case.method, warmup=10, draws=10) if given.small else case.method
        one = replace(case, method=method)

        def ours(one: judging.Case = one) -> Answer:
            call = partial(pgm.infer, one.model, method=one.method, rng=0, progress=False)
            seconds, r = spent(call)
            return Answer(seconds, float(r.mean["v"].mean()), 1e-3, r.status.name)

        def numpy(one: judging.Case = one) -> Answer:
            seconds, means = spent(lambda: judging.numpy_loop(one))
            return Answer(seconds, float(means[0].mean()), 1e-3)

        cases: dict[str, Case | None] = {OURS: ours, "numpy": numpy}
        yield Call(f"{start}{case.name}", cases, "mean", 0, 0.0, {"numpy": 1.0})


# Kernels by themselves, from the rooms of the suite.


def kernels(given: Given) -> Iterator[Call]:
    """Yield block Gibbs, the bound of a tiny belief net, and one row of it."""
    from rooms import beliefs, sweeps

    # Random images do for both.
    rows = [*sweeps.rows(Settings()), *beliefs.rows(Settings())]
    asked = {
        "Gibbs sweeps, early in training": (1.5, None),
        "mean-field bound, 2x4x6 belief net, one row, tolerance 1e-07, by infer": (1.0, 1e-4),
    }
    for start, (ratio, limit) in asked.items():
        row = next(row for row in rows if row.name.startswith(start))
        assert row.unit.startswith("us "), row.unit
        cases = {who: _seconds(case, 1e-6) for who, case in row.cases.items()}
        over = {who: ratio for who, case in cases.items() if case is not None and who != OURS}
        yield Call(row.name, cases, over=over, limit=limit)


def _seconds(case: Any, scale: float) -> Case | None:
    """Return a case of the suite that is warmed up before its time counts."""
    if case is None:
        return None

    def warmed() -> Answer:
        case()
        return Answer(case() * scale)

    return warmed
