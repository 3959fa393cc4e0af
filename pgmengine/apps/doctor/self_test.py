"""The self-test of an installation: five short calculations with known answers.

Each test returns a sentence with the numbers that it found, and raises where they are wrong.
Random numbers have a fixed seed, and limits are so wide that a right installation never fails.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pgmengine as pgm
from pgmengine.base.errors import InternalError
from pgmengine.base.types import Array

# p(lung = yes | xray = yes, dysp = yes) and p(xray = yes, dysp = yes) in the network asia, by
# summing its 256 joint states.
LUNG_IN_ASIA, EVIDENCE_IN_ASIA = 15680000 / 25239323, 176675261 / 2500000000

# Differences that rounding can make; standard errors that chance practically never exceeds.
MAX_ROUNDING, MAX_ERRORS = 1e-9, 7.0


@dataclass(frozen=True)
class Check:
    """The outcome of a test.

    Attributes
    ----------
    name : the test.
    good : whether it passed.
    text : the numbers that it found, or the error.
    seconds : its time.
    """

    name: str
    good: bool
    text: str
    seconds: float


@dataclass(frozen=True)
class _AsWritten(pgm.Gibbs):
    """Gibbs sampling as a kernel of a user, which the reference engine runs."""

    def transition(self, prob: Array, current: Array) -> Array:
        """Return the conditional probabilities."""
        return super().transition(prob, current)


def _small_rbm() -> pgm.Model:
    """Return an RBM with 2^10 joint states."""
    rng = np.random.default_rng(7)
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 6, bias=rng.normal(size=6))
    b.layer("h", pgm.Binary(), 4, bias=rng.normal(size=4))
    b.couple("v", "h", weight=rng.normal(size=(6, 4)))
    return b.build()


def _summed(model: pgm.Model) -> tuple[float, Array]:
    """Return log Z and the means of v by summing all joint states in numpy."""
    p = {name: np.asarray(value) for name, value in model.params.items()}
    v = np.array([*itertools.product((0.0, 1.0), repeat=6)])
    h = np.array([*itertools.product((0.0, 1.0), repeat=4)])
    log_weight = v @ p["v-h.weight"] @ h.T + (v @ p["v.bias"])[:, None] + h @ p["h.bias"]
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    return float(np.log(weight.sum()) + top), weight.sum(axis=1) @ v / weight.sum()


def _require(good: bool, text: str) -> str:
    """Return a sentence about numbers; raise InternalError with it if they are wrong."""
    if not good:
        raise InternalError(text)
    return text


def exact_answer() -> str:
    """Compare an exact answer about a network from a file with its known value."""
    r = pgm.infer(
        pgm.read(pgm.datasets.asia()), {"xray": "yes", "dysp": "yes"}, ("marginals", "log_prob")
    )
    lung = float(np.asarray(r.marginal("lung")["yes"]))
    off = max(abs(lung - LUNG_IN_ASIA), abs(np.exp(r.log_prob[0]) - EVIDENCE_IN_ASIA))
    return _require(
        r.kind == "exact" and off < MAX_ROUNDING,
        f"p(lung | xray, dysp) = {lung:.10f} in asia, expected {LUNG_IN_ASIA:.10f}",
    )


def compiled_and_reference() -> str:
    """Compare log Z by compiled enumeration with a sum in numpy, and sweeps with their reference.

    The sweeps of a user's kernel are run by the reference engine.
    """
    if not pgm.build_config().compiled:
        raise pgm.PgmError("there are no compiled routines to compare")
    model = _small_rbm()
    truth, means = _summed(model)
    found = float(pgm.infer(model, want=("log_z",), method=pgm.Enumeration()).log_z[0])
    _require(abs(found - truth) < MAX_ROUNDING, f"log Z = {found:.12f}, expected {truth:.12f}")
    worst = max(
        _errors_from(model, means, pgm.MCMC(draws=500, kernel=kernel))
        for kernel in (pgm.Gibbs(), _AsWritten())
    )
    return _require(
        worst < MAX_ERRORS,
        f"log Z = {found:.10f} by both; means by sweeps of both within {worst:.1f} standard errors",
    )


def _errors_from(model: pgm.Model, means: Array, method: pgm.MCMC) -> float:
    """Return the largest distance of sampled means from the exact ones, in standard errors."""
    r = pgm.infer(model, method=method, rng=3)
    # A mean over 2,000 draws has at least the error of independent draws.
    least = np.sqrt(means * (1 - means) / (method.chains * method.draws))
    error = np.maximum(np.reshape(r.stats["mcse"]["v"], -1), least)
    return float(np.max(np.abs(np.reshape(r.mean["v"], -1) - means) / error))


def sampler() -> str:
    """Compare sampled means of a lattice of spins with exact ones, in standard errors."""
    b = pgm.GraphBuilder()
    s = b.layer("s", pgm.Spin(), (6, 6))
    b.couple(s[1:], s[:-1], 0.25, name="vertical")
    b.couple(s[:, 1:], s[:, :-1], 0.25, name="horizontal")
    b.bias(s, 0.1, name="field")
    model = b.build()
    exact = pgm.infer(model, method=pgm.Exact())
    drawn = pgm.infer(model, method=pgm.MCMC(draws=1000), rng=5)
    gap = np.abs(np.reshape(drawn.mean["s"], -1) - np.reshape(exact.mean["s"], -1))
    worst = float(np.max(gap / np.reshape(drawn.stats["mcse"]["s"], -1)))
    return _require(
        worst < MAX_ERRORS and exact.kind == "exact",
        f"36 spins of a lattice within {worst:.1f} standard errors of the exact means",
    )


def learning() -> str:
    """Let a restricted Boltzmann machine learn from images, and measure it exactly."""
    data = {"v": pgm.datasets.bars_and_stripes().x_train}
    start = pgm.rbm(16, 8, rng=0)
    fitted = pgm.fit(
        start,
        data,
        negative=pgm.PCD(),
        optimizer=pgm.Adam(0.02),
        updates=200,
        rng=0,
        progress=False,
        callbacks=[pgm.ExactLogLikelihood(data, every=200)],
    )
    values = fitted.history["log_likelihood"]["value"]
    return _require(
        bool(np.isfinite(values).all() and values[-1] > values[0] + 1),
        f"log-likelihood from {values[0]:.2f} to {values[-1]:.2f} nats a row in 200 updates",
    )


def files() -> str:
    """Save a model, load it again, and compare parameters and an answer."""
    model = _small_rbm()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        pgm.save(model, path)
        again = pgm.load(path)
    same = all(np.array_equal(again.params[name], x) for name, x in model.params.items())
    want = ("log_z",)
    same = same and bool(pgm.infer(again, want=want).log_z == pgm.infer(model, want=want).log_z)
    return _require(same, "a model was saved and loaded with the same bits")


TESTS: dict[str, Callable[[], str]] = {
    "exact answer": exact_answer,
    "compiled and reference": compiled_and_reference,
    "sampler": sampler,
    "learning": learning,
    "files": files,
}


def checks(compiled: bool = True) -> list[Check]:
    """Run all tests. A test that raises has failed, whatever the error is.

    Without compiled routines a question may be refused, which is no failure.
    """
    out, log = list[Check](), logging.getLogger("pgmengine")
    level = log.level
    # The short fit warns that it could go on.
    log.setLevel(logging.ERROR)
    try:
        for name, test in TESTS.items():
            out.append(_checked(name, test, compiled))
    finally:
        log.setLevel(level)
    return out


def _checked(name: str, test: Callable[[], str], compiled: bool) -> Check:
    """Run a test."""
    begin = time.perf_counter()
    try:
        good, text = True, test()
    except pgm.PgmError as error:
        good, text = not compiled, f"{'not tested' if not compiled else 'refused'}: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        good, text = False, f"{type(error).__name__}: {error} ({place})"
    return Check(name, good, text, time.perf_counter() - begin)
