"""Hidden Markov models by EM beside hmmlearn, and conditional random fields beside CRFsuite.

Models of hmmlearn are learned by both of its implementations, "log" and "scaling", for as many
iterations from the same start, without priors. The fields end by the same rule (crf.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import fields as fields_of
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import crf
import numpy as np
import sequences

import pgmengine as pgm
from calls import OURS, Answer, Array, Call, Case, Given, log_p, spent

UPDATES = sequences.COMPARED_UPDATES
HMMLEARN, CRFSUITE = "hmmlearn", "CRFsuite"
# A share of log p that does not count: hmmlearn adds nothing, and rounds otherwise.
EQUAL = 1e-6
# The transitions at which learning begins.
MOVES = 0.7 * np.eye(3) + 0.1


def calls(given: Given) -> Iterator[Call]:
    """Yield the calls."""
    yield symbols(given)
    yield numbers(given, "diag")
    yield numbers(given, "full")
    yield from fields(given)


def beside_hmmlearn(name: str, ours: Case | None, theirs: Any, size: float) -> Call:
    """Return a call beside both implementations of hmmlearn."""
    cases: dict[str, Case | None] = {OURS: ours}
    for how in ("log", "scaling"):
        case = (lambda how=how: theirs(how)) if find_spec(HMMLEARN) else None
        cases[f"{HMMLEARN}, {how}"] = case
    over = {who: 1.0 for who in cases if who != OURS}
    return Call(f"{name}, {UPDATES} iterations", cases, "log p", 0, EQUAL * size, over)


def symbols(given: Given) -> Call:
    """Return the call of a hidden Markov model of symbols."""
    count = given.size(1000, 6)
    rows = sequences.drawn(2, np.random.default_rng(1).integers(50, 201, count))

    def answer(seconds: float, values: list[float]) -> Answer:
        return Answer(seconds * UPDATES, values[UPDATES - 1])

    return beside_hmmlearn(
        f"EM of a hidden Markov model, {sequences.SYMBOLS} symbols, 1,000 sequences",
        lambda: answer(*sequences.ours(rows, UPDATES)),
        lambda how: answer(*sequences.hmmlearn(rows, UPDATES, how)),
        100.0 * count,
    )


def drawn(count: int, columns: int) -> list[Array]:
    """Return sequences of numbers of three states (steps, columns)."""
    rng, out = np.random.default_rng(0), []
    centre = rng.normal(0, 1.5, (3, columns))
    mix = np.eye(columns) + 0.4 * rng.normal(size=(3, columns, columns))
    for steps in rng.integers(50, 201, count):
        moves = rng.random(steps) < 0.1
        path = np.maximum.accumulate(np.where(moves, np.arange(steps), 0))
        path = rng.integers(3, size=steps)[path]
        noise = np.einsum("tij,tj->ti", mix[path], rng.normal(size=(steps, columns)))
        out.append(centre[path] + noise)
    return out


def numbers(given: Given, kind: str) -> Call:
    """Return the call of a hidden Markov model of numbers, of one column or with covariances."""
    count, columns = given.size(200, 5), 1 if kind == "diag" else 3
    rows = drawn(count, columns)
    means = np.random.default_rng(1).normal(size=(3, columns))

    def ours() -> Answer:
        data = [{"x": row[:, 0] if kind == "diag" else row} for row in rows]
        template = normal_chain(means) if kind == "diag" else full_chain(means)
        settings = {"optimizer": pgm.EM(pseudocount=0, tolerance=0), "updates": UPDATES}
        seconds, fit = spent(lambda: pgm.fit(template, data, progress=False, **settings))
        return Answer(seconds, log_p(fit, data))

    there = kind == "diag" or "full" in {field.name for field in fields_of(pgm.Normal)}
    what = "one normal column" if kind == "diag" else "3 columns with full covariances"
    name = f"EM of a hidden Markov model, {what}, 200 sequences"
    theirs = partial(gaussian_hmm, rows, kind, means)
    return beside_hmmlearn(name, ours if there else None, theirs, 100.0 * count)


def states(b: pgm.GraphBuilder, steps: int) -> Any:
    """Return the hidden states of a chain, which is declared here."""
    z = b.variable("z", states=3, shape=steps)
    b.conditional(z[0], (), np.ones(3) / 3, name="start")
    b.conditional(z[1:], (z[:-1],), MOVES, name="transition")
    return z


def normal_chain(means: Array) -> pgm.Template:
    """Return a hidden Markov model of one column, which begins at these means."""

    def declare(steps: int) -> pgm.GraphBuilder:
        b = pgm.GraphBuilder()
        z, x = states(b, steps), b.layer("x", pgm.Normal(), steps)
        b.cause(z, x, np.concatenate([means, np.zeros((3, 1))], axis=1), name="emission")
        return b

    return pgm.Template(declare)


def full_chain(means: Array) -> pgm.Template:
    """Return a hidden Markov model of columns with covariances, which begins at these means."""

    def declare(steps: int) -> pgm.GraphBuilder:
        b = pgm.GraphBuilder()
        z = states(b, steps)
        x = b.layer("x", pgm.Normal(full=True), (steps, means.shape[1]))
        b.cause(z, x, means, name="emission")
        return b

    return pgm.Template(declare)


def gaussian_hmm(rows: list[Array], kind: str, means: Array, how: str) -> Answer:
    """Return the answer of hmmlearn from the same start."""
    from hmmlearn.hmm import GaussianHMM

    settings = {"n_iter": UPDATES, "tol": -np.inf, "init_params": "", "covars_prior": 0.0}
    model = GaussianHMM(3, kind, min_covar=0.0, implementation=how, **settings)
    model.startprob_, model.transmat_, model.means_ = np.ones(3) / 3, MOVES, means
    columns = means.shape[1]
    one = np.ones(columns) if kind == "diag" else np.eye(columns)
    model.covars_ = np.stack([one] * 3)
    x, lengths = np.concatenate(rows), [len(row) for row in rows]
    seconds, _ = spent(lambda: model.fit(x, lengths))
    return Answer(seconds, float(model.score(x, lengths)))


def fields(given: Given) -> Iterator[Call]:
    """Yield learning from dicts and from dense arrays, and labels from dicts."""
    data = crf.corpus(given.size(2000, 30), given.size(20, 4), given.size(10_000, 50))
    yield field("learning a conditional random field from dicts, 10 of 10,000 features", data, 2.4)
    dense = pixels(given.size(2000, 30), given.size(26, 4))
    arrays = "learning a conditional random field from arrays, 128 pixels of which 22% are 1"
    yield field(arrays, dense, 1.0)
    yield labels("labels by a conditional random field, from dicts", data)


def pixels(words: int, labels: int) -> crf.Sentences:
    """Return words whose letters are arrays of pixels, of which 22 % are on."""
    rng = np.random.default_rng(3)
    shapes = rng.random((labels, 128)) < 0.22
    X, y = [], []
    for steps in 1 + rng.poisson(6, words):
        path = rng.integers(labels, size=steps)
        other = rng.random((steps, 128)) < 0.75
        X.append(np.where(other, rng.random((steps, 128)) < 0.22, shapes[path]).astype(float))
        y.append([f"L{k:02}" for k in path])
    return X, y


def field(name: str, data: crf.Sentences, ratio: float) -> Call:
    """Return the call of learning with an L2 penalty."""

    def ours() -> Answer:
        from pgmengine.sklearn import ChainCRF

        model = ChainCRF(l2=1.0, tol=crf.TOLERANCE)
        seconds, _ = spent(lambda: model.fit(*data))
        return Answer(seconds, model.objective_, note=f"{model.n_iter_} iterations")

    def theirs() -> Answer:
        import pycrfsuite  # noqa: F401

        notes: dict[str, Any] = {}
        rows = [[as_dict(step) for step in x] for x in data[0]], data[1]
        path = Path(tempfile.mkdtemp()) / "model.crfsuite"
        seconds, _ = spent(lambda: crf.crfsuite(rows, 0.0, 1.0, path, notes))
        value, iterations, _ = notes[CRFSUITE]
        return Answer(seconds, value, note=f"{iterations} iterations")

    cases = {OURS: ours, CRFSUITE: theirs if find_spec("pycrfsuite") else None}
    # Both end a little above the minimum, each in its own place.
    margin = 1e-4 * 20.0 * len(data[0])
    return Call(name, cases, "objective", -1, margin, {CRFSUITE: ratio})


def as_dict(step: Any) -> dict[str, float]:
    """Return the features of a step as CRFsuite takes them."""
    if isinstance(step, dict):
        return step
    return {f"p{j}": float(step[j]) for j in np.flatnonzero(step)}


def labels(name: str, data: crf.Sentences) -> Call:
    """Return the call of the labels of all sentences, by a field of the same data."""
    few = data[0][:200], data[1][:200]

    def right(found: list[Any]) -> float:
        pairs = [
            a == b for x, y in zip(found, data[1], strict=True) for a, b in zip(x, y, strict=True)
        ]
        return float(np.mean(pairs))

    def ours() -> Answer:
        from pgmengine.sklearn import ChainCRF

        model = ChainCRF(l2=1.0).fit(*few)
        seconds, found = spent(lambda: model.predict(data[0]))
        return Answer(seconds, right(found))

    def theirs() -> Answer:
        import pycrfsuite

        path = Path(tempfile.mkdtemp()) / "model.crfsuite"
        crf.crfsuite(few, 0.0, 1.0, path, {})
        tagger = pycrfsuite.Tagger()
        tagger.open(str(path))
        seconds, found = spent(lambda: [tagger.tag(x) for x in data[0]])
        return Answer(seconds, right(found))

    cases = {OURS: ours, CRFSUITE: theirs if find_spec("pycrfsuite") else None}
    return Call(name, cases, "accuracy", 1, 0.002, {CRFSUITE: 1.0})
