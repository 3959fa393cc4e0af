"""Questions on executors: the same bits as without, whatever the workers do."""

import os
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine import executors

SPAWN = get_context("spawn")
RNG = np.random.default_rng(0)
RBM = pgm.rbm(8, 5, rng=0)
NET = pgm.sbn([8, 5, 3], rng=0)
ROWS = np.where(RNG.random((20, 8)) < 0.4, np.nan, RNG.integers(0, 2, (20, 8)))
MIXED = ("marginals", "pairs", "samples", "gradient")
QUESTIONS = {
    "exact": (RBM, pgm.Exact(draws=20), (*MIXED, "mode", "log_prob")),
    "MCMC": (RBM, pgm.MCMC(draws=50, warmup=20), MIXED),
    "AIS": (RBM, pgm.AIS(chains=40, betas=50), ("log_z", "log_prob")),
    "tempering": (RBM, pgm.ParallelTempering(draws=60, warmup=20), (*MIXED, "log_z", "log_prob")),
    "levels": (RBM, pgm.SimulatedTempering(draws=200, warmup=50), ("marginals", "samples", "log_z")),
    "mean field": (NET, pgm.MeanField(restarts=2), ("marginals", "pairs", "log_prob", "gradient")),
    "forward": (NET, pgm.Forward(2000), ("marginals", "samples", "log_prob")),
    "auto": (RBM, pgm.Auto(candidates=(pgm.Exact(max_bits=1), pgm.MCMC(draws=50), pgm.MeanField())), ("marginals",)),
}


class Counting(Executor):
    """Does everything here, a second time if asked, and counts."""

    def __init__(self):
        self.jobs, self.inner = 0, ThreadPoolExecutor(2)

    def submit(self, fn, /, *args, **kwargs):
        self.jobs += 1
        return self.inner.submit(fn, *args, **kwargs)


@pytest.fixture(params=[1.0, 5e8], ids=["small parts", "whole"])
def worth(request, monkeypatch):
    """The work of a part: with the first, these small questions are parted as large ones are."""
    monkeypatch.setattr(executors, "WORTH", request.param)
    return request.param


def equal(one, two):
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[k], two[k]) for k in one)
    return np.array_equal(np.asarray(one), np.asarray(two), equal_nan=np.asarray(one).dtype.kind == "f")


def assert_same(one, two):
    assert one.answers.keys() == two.answers.keys() and one.stats.keys() == two.stats.keys()
    differ = [name for part in ("answers", "stats") for name, value in getattr(one, part).items()
              if not equal(value, getattr(two, part)[name])]  # fmt: skip
    assert not differ and one.kind == two.kind and one.warnings == two.warnings and one.status == two.status


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("rows", [20, 1])
def test_the_same_bits_as_without(name, rows, worth):
    model, method, want = QUESTIONS[name]
    evidence, pool = {"v": ROWS[:rows]}, Counting()
    alone = pgm.infer(model, evidence, want=want, method=method, rng=5)
    shared = pgm.infer(model, evidence, want=want, method=method, rng=5, executor=pool)
    assert_same(alone, shared)
    grouped = rows == 1 and name in ("MCMC", "AIS", "auto")
    assert pool.jobs > 1 if worth == 1.0 and (rows > 1 or grouped) else pool.jobs >= 1


@pytest.mark.parametrize("name", ["exact", "mean field", "forward"])
def test_parts_answer_as_the_whole_does(name, monkeypatch):
    """Parted or not, what does not depend on random numbers, or hardly, is the same."""
    model, method, want = QUESTIONS[name]
    whole = pgm.infer(model, {"v": ROWS}, want=want, method=method, rng=5)
    monkeypatch.setattr(executors, "WORTH", 1.0)
    parted = pgm.infer(model, {"v": ROWS}, want=want, method=method, rng=5)
    margin = 0.3 if name == "forward" else 1e-5
    for layer in whole.mean:
        np.testing.assert_allclose(parted.mean[layer], whole.mean[layer], atol=margin)
    np.testing.assert_allclose(parted.log_prob, whole.log_prob, atol=margin)
    for key in whole.gradient if "gradient" in want else ():
        np.testing.assert_allclose(parted.gradient[key], whole.gradient[key], atol=20 * margin)


def test_log_z_without_evidence_is_found_once(monkeypatch):
    monkeypatch.setattr(executors, "WORTH", 1.0)
    method = pgm.AIS(chains=50, betas=200)
    r = pgm.infer(RBM, {"v": ROWS}, want=("log_prob",), method=method, rng=0)
    exact = pgm.infer(RBM, {"v": ROWS}, want=("log_prob",)).log_prob
    np.testing.assert_array_less(np.abs(r.log_prob - exact), 5 * r.stats["log_prob_error"] + 1e-9)
    offsets = np.ptp(r.log_z - r.log_prob)
    assert offsets < 1e-12


def test_states_go_on_over_parts(monkeypatch):
    monkeypatch.setattr(executors, "WORTH", 1.0)
    method = pgm.MCMC(draws=20, warmup=5)
    r = pgm.infer(RBM, {"v": ROWS}, method=method, rng=0)
    assert r.state["h"].shape == (20 * 4, 5)
    alone = pgm.infer(RBM, {"v": ROWS}, method=method, rng=1, state=r.state)
    with ThreadPoolExecutor(2) as pool:
        assert_same(alone, pgm.infer(RBM, {"v": ROWS}, method=method, rng=1, state=r.state, executor=pool))


def test_messages_name_the_row_of_the_question(monkeypatch):
    monkeypatch.setattr(executors, "WORTH", 1.0)
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 2, bias=[0.0, 0.1])
    b.cause("h", "v", weight=[[0.0, 1.0]])
    rows = np.tile([0.0, 1.0], (20, 1))
    rows[13, 0] = 1.0  # without a leak or a cause
    with pytest.raises(pgm.PgmError, match="row 13"), ThreadPoolExecutor(2) as pool:
        pgm.infer(b.build(), {"v": rows}, executor=pool)


def test_processes(monkeypatch):
    monkeypatch.setattr(executors, "WORTH", 1.0)
    model, method, want = QUESTIONS["MCMC"]
    with ProcessPoolExecutor(2, SPAWN) as pool:
        for rows in (20, 1):
            evidence = {"v": ROWS[:rows]}
            shared = pgm.infer(model, evidence, want=want, method=method, rng=5, executor=pool)
            assert_same(pgm.infer(model, evidence, want=want, method=method, rng=5), shared)


def test_fit_on_an_executor_and_resumed(monkeypatch, tmp_path):
    """A sampled data phase: the same bits on an executor, and from a checkpoint."""
    monkeypatch.setattr(executors, "WORTH", 1.0)
    x, settings = ROWS[:, :8], {"positive": pgm.MCMC(chains=2, warmup=3, draws=5), "batch_size": 10, "progress": False}
    alone = pgm.fit(NET, {"v": x}, updates=6, **settings)
    with ThreadPoolExecutor(2) as pool:
        shared = pgm.fit(NET, {"v": x}, updates=6, executor=pool, **settings)
        pgm.fit(NET, {"v": x}, updates=3, executor=pool, checkpoint=tmp_path / "c", **settings)
    resumed = pgm.fit(NET, {"v": x}, updates=6, checkpoint=tmp_path / "c", **settings)
    assert equal(dict(alone.model.params), dict(shared.model.params))
    assert equal(dict(alone.model.params), dict(resumed.model.params))


def test_a_generator_moves_on_alike():
    for evidence in ({"v": ROWS}, None):
        alone, shared = np.random.default_rng(3), np.random.default_rng(3)
        with ThreadPoolExecutor(1) as pool:
            for _ in range(2):
                one = pgm.infer(RBM, evidence, method=pgm.MCMC(draws=20), rng=alone)
                assert_same(one, pgm.infer(RBM, evidence, method=pgm.MCMC(draws=20), rng=shared, executor=pool))


@dataclass(frozen=True)
class Deadly:
    """MCMC whose first run in another process than `home` kills that process."""

    file: str
    home: int
    inner: pgm.MCMC = pgm.MCMC(draws=50, warmup=20)

    def plan(self, target, want):
        return self.inner.plan(target, want)

    def run(self, target, want, rng=None, state=None):
        flag = Path(self.file)
        if os.getpid() != self.home and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.run(target, want, rng, state)


def test_a_worker_that_dies_takes_nothing_with_it(monkeypatch, tmp_path, caplog):
    """A broken process pool is of no more use: the rest is done here."""
    monkeypatch.setattr(executors, "WORTH", 1.0)
    method = Deadly(str(tmp_path / "flag"), os.getpid())
    with ProcessPoolExecutor(2, SPAWN) as pool:
        shared = pgm.infer(RBM, {"v": ROWS}, method=method, rng=5, executor=pool)
    assert (tmp_path / "flag").exists() and "lost a worker" in caplog.text
    assert_same(pgm.infer(RBM, {"v": ROWS}, method=method.inner, rng=5), shared)


def test_errors_of_workers_arrive_and_stop_the_rest(monkeypatch):
    monkeypatch.setattr(executors, "WORTH", 1.0)
    with ThreadPoolExecutor(1) as pool, pytest.raises(pgm.PgmError, match="refused"):
        pgm.infer(RBM, {"v": ROWS}, method=pgm.Exact(max_bits=1), executor=pool)
    began, gate = [], threading.Event()

    def job(i):
        began.append(i)
        if i == 0:
            raise RuntimeError("no")
        gate.wait(10)

    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="no"):
        try:
            executors.done(pool, job, [(i,) for i in range(20)], "")
        finally:
            gate.set()
    time.sleep(0.05)
    assert len(began) < 20
