"""Questions on executors: the same bits as without, whatever the workers do."""

import os
import re
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from extras import extra
from limits import small_parts
from registry import ESTIMATES, FEW_DRAWS, METHODS, every

import pgmengine as pgm
from pgmengine.base.work import executors
from pgmengine.infer.diagnostics import trust
from pgmengine.infer.question import splitting
from pgmengine.infer.question.splitting import joined
from pgmengine.infer.sampling.draws import rao_blackwell

SPAWN = get_context("spawn")
RNG = np.random.default_rng(0)
RBM = pgm.rbm(8, 5, rng=0)
NET = pgm.sbn([8, 5, 3], rng=0)
ROWS = np.where(RNG.random((20, 8)) < 0.4, np.nan, RNG.integers(0, 2, (20, 8)))
MIXED = ("marginals", "pairs", "samples", "gradient")
QUESTIONS = {
    "exact": (RBM, pgm.Exact(draws=20), (*MIXED, "mode", "log_prob")),
    "MCMC": (RBM, pgm.MCMC(draws=50, warmup=20), MIXED),
    "clusters": (RBM, pgm.SwendsenWang(draws=50, warmup=20, frustrated=True), MIXED),
    "cluster ladder": (
        RBM,
        pgm.ClusterLadder(draws=50, warmup=20, frustrated=True),
        ("log_z", "log_prob"),
    ),
    "chains": (RBM, pgm.MCMC(draws=50, warmup=20), ("marginals", "samples")),
    "AIS": (RBM, pgm.AIS(chains=40, betas=50), ("log_z", "log_prob")),
    "tempering": (RBM, pgm.ParallelTempering(draws=60, warmup=20), (*MIXED, "log_z", "log_prob")),
    "levels": (
        RBM,
        pgm.SimulatedTempering(draws=200, warmup=50),
        ("marginals", "samples", "log_z"),
    ),
    "transitions": (RBM, FEW_DRAWS["TemperedTransitions"], ("marginals", "samples")),
    "flat histogram": (RBM, FEW_DRAWS["WangLandau"], ("marginals", "samples")),
    "mean field": (NET, pgm.MeanField(restarts=2), ("marginals", "pairs", "log_prob", "gradient")),
    "forward": (NET, pgm.Forward(2000), ("marginals", "samples", "log_prob")),
    "auto": (
        RBM,
        pgm.Auto(candidates=(pgm.Enumeration(max_bits=1), pgm.MCMC(draws=50), pgm.MeanField())),
        ("marginals",),
    ),
}
every([METHODS[name] for name in ESTIMATES], [method for _, method, _ in QUESTIONS.values()])


class Counting(Executor):
    """An executor that does all work in this process, twice if asked, and counts it."""

    def __init__(self):
        self.jobs, self.inner = 0, ThreadPoolExecutor(2)

    def submit(self, fn, /, *args, **kwargs):
        self.jobs += 1
        return self.inner.submit(fn, *args, **kwargs)


@pytest.fixture(params=[1.0, 5e8], ids=["small parts", "whole"])
def worth(request, monkeypatch):
    """The work of a part: with the first value, these small questions are split like large ones."""
    small_parts(monkeypatch, request.param)
    return request.param


def equal(one, two):
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[k], two[k]) for k in one)
    return np.array_equal(
        np.asarray(one), np.asarray(two), equal_nan=np.asarray(one).dtype.kind == "f"
    )


def assert_same(one, two):
    assert one.answers.keys() == two.answers.keys() and one.stats.keys() == two.stats.keys()
    differ = [name for part in ("answers", "stats") for name, value in getattr(one, part).items()
              if not equal(value, getattr(two, part)[name])]  # fmt: skip
    assert (
        not differ
        and one.kind == two.kind
        and one.warnings == two.warnings
        and one.status == two.status
    )


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("rows", [20, 1])
def test_the_same_bits_as_without(name, rows, worth):
    model, method, want = QUESTIONS[name]
    evidence, pool = {"v": ROWS[:rows]}, Counting()
    alone = pgm.infer(model, evidence, want=want, method=method, rng=5)
    shared = pgm.infer(model, evidence, want=want, method=method, rng=5, executor=pool)
    assert_same(alone, shared)
    grouped = rows == 1 and name in ("chains", "AIS", "auto")
    assert pool.jobs > 1 if worth == 1.0 and (rows > 1 or grouped) else pool.jobs >= 1


@pytest.mark.parametrize("seed", range(10))
def test_chains_of_one_row_are_the_same_bits_in_groups_of_any_size(monkeypatch, seed):
    """Energies hold a constant of the evidence, from products that round by the size of a group."""
    model, evidence = pgm.rbm(8, 5, rng=seed), {"v": ROWS[seed]}
    method = pgm.MCMC(chains=7, draws=20, warmup=5)
    alone = pgm.infer(model, evidence, method=method, rng=seed)
    for worth in (1.0, 1e3):
        small_parts(monkeypatch, worth)
        assert_same(alone, pgm.infer(model, evidence, method=method, rng=seed, executor=Counting()))


@pytest.mark.parametrize("name", ["exact", "mean field", "forward"])
def test_parts_answer_as_the_whole_does(name, monkeypatch):
    """Answers that do not depend on random numbers, or hardly, are the same with and without
    splitting.
    """
    model, method, want = QUESTIONS[name]
    whole = pgm.infer(model, {"v": ROWS}, want=want, method=method, rng=5)
    small_parts(monkeypatch)
    parted = pgm.infer(model, {"v": ROWS}, want=want, method=method, rng=5)
    margin = 0.3 if name == "forward" else 1e-5
    for layer in whole.mean:
        np.testing.assert_allclose(parted.mean[layer], whole.mean[layer], atol=margin)
    np.testing.assert_allclose(parted.log_prob, whole.log_prob, atol=margin)
    for key in whole.gradient if "gradient" in want else ():
        np.testing.assert_allclose(parted.gradient[key], whole.gradient[key], atol=20 * margin)


def test_log_z_without_evidence_is_found_once(monkeypatch):
    small_parts(monkeypatch)
    method = pgm.AIS(chains=50, betas=200)
    r = pgm.infer(RBM, {"v": ROWS}, want=("log_z", "log_prob"), method=method, rng=0)
    exact = pgm.infer(RBM, {"v": ROWS}, want=("log_prob",)).log_prob
    np.testing.assert_array_less(np.abs(r.log_prob - exact), 5 * r.stats["log_prob_error"] + 1e-9)
    offsets = np.ptp(r.log_z - r.log_prob)
    assert offsets < 1e-12


def test_states_go_on_over_parts(monkeypatch):
    small_parts(monkeypatch)
    method = pgm.MCMC(draws=20, warmup=5)
    r = pgm.infer(RBM, {"v": ROWS}, method=method, rng=0)
    assert r.state["h"].shape == (20 * 4, 5)
    alone = pgm.infer(RBM, {"v": ROWS}, method=method, rng=1, state=r.state)
    with ThreadPoolExecutor(2) as pool:
        assert_same(
            alone, pgm.infer(RBM, {"v": ROWS}, method=method, rng=1, state=r.state, executor=pool)
        )


def test_messages_name_the_row_of_the_question(monkeypatch):
    small_parts(monkeypatch)
    b = pgm.GraphBuilder()
    b.layer("h", pgm.Binary(), 1)
    b.layer("v", pgm.NoisyOr(), 2, bias=[0.0, 0.1])
    b.cause("h", "v", weight=[[0.0, 1.0]])
    rows = np.tile([0.0, 1.0], (20, 1))
    rows[13, 0] = 1.0  # without a leak or a cause
    with pytest.raises(pgm.PgmError, match="row 13"), ThreadPoolExecutor(2) as pool:
        pgm.infer(b.build(), {"v": rows}, executor=pool)


def test_processes(monkeypatch):
    small_parts(monkeypatch)
    model, method, want = QUESTIONS["MCMC"]
    with ProcessPoolExecutor(2, SPAWN) as pool:
        for rows in (20, 1):
            evidence = {"v": ROWS[:rows]}
            shared = pgm.infer(model, evidence, want=want, method=method, rng=5, executor=pool)
            assert_same(pgm.infer(model, evidence, want=want, method=method, rng=5), shared)


def test_fit_on_an_executor_and_resumed(monkeypatch, tmp_path):
    """A sampled data phase: the same bits on an executor, and from a checkpoint."""
    small_parts(monkeypatch)
    x, settings = (
        ROWS[:, :8],
        {
            "positive": pgm.MCMC(chains=2, warmup=3, draws=5),
            # The rate of the default optimizer depends on the number of updates.
            "optimizer": pgm.Adam(),
            "batch_size": 10,
            "progress": False,
        },
    )
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
                assert_same(
                    one,
                    pgm.infer(RBM, evidence, method=pgm.MCMC(draws=20), rng=shared, executor=pool),
                )


def test_what_depends_on_memory_order_does_not_depend_on_workers():
    """Evidence that is sent to a worker gets another memory layout, which must not change sums."""
    model, method = pgm.sbn([4, 3, 2], rng=1), pgm.Forward(draws=50)
    evidence, want = {"v": [1, 0, np.nan, 1]}, ("marginals", "pairs", "gradient", "log_prob")
    with ProcessPoolExecutor(1, SPAWN) as pool:
        shared = pgm.infer(model, evidence, want=want, method=method, rng=3, executor=pool)
        assert_same(pgm.infer(model, evidence, want=want, method=method, rng=3), shared)
        rng = np.random.default_rng(0)
        model = pgm.rbm(20, 10, hidden=pgm.MultiValued(3), rng=0)
        sums = pgm.MCMC(chains=30, draws=20)
        one = pgm.infer(model, want=("pairs", "gradient"), method=sums, rng=rng, executor=pool)
        assert_same(pgm.infer(model, want=("pairs", "gradient"), method=sums, rng=0), one)
        after = rng.bit_generator.state
    rng = np.random.default_rng(0)
    pgm.infer(model, want=("pairs", "gradient"), method=sums, rng=rng)
    assert rng.bit_generator.state == after


@pytest.mark.long
def test_chains_are_judged_over_all_rows(monkeypatch):
    """One in a hundred R-hats may be large by chance: of all rows, not of each part.

    The limit is set so that one in 200 is above it, whatever the draws: parts of few have more.
    """
    model = pgm.rbm(6, 5, rng=0)
    model = model.with_params({"v-h.weight": 2.2 * model.params["v-h.weight"]})
    rows = np.where(RNG.random((400, 6)) < 0.5, np.nan, RNG.integers(0, 2, (400, 6)))

    # Few draws are enough here, where the number of rows beyond the limit matters.
    monkeypatch.setattr(trust, "MIN_DRAWS_FOR_RHAT", 0)
    # So short chains have errors that are too uncertain to be compared with exact conditionals.
    monkeypatch.setattr(rao_blackwell, "MAX_CHANCE_GAP_ERRORS", np.inf)

    def judged(limit):
        method = pgm.MCMC(warmup=50, draws=80, rhat_limit=limit)
        return pgm.infer(model, {"v": rows}, method=method, rng=0)

    small_parts(monkeypatch)
    whole = pgm.explain(model, {"v": rows}, method=pgm.MCMC(warmup=50, draws=80)).chosen
    # The statistics do not depend on the limit.
    strict = judged(1.0001)
    stats = strict.stats
    found = [stats["energy_rhat"], *stats["rhat"].values(), *stats["sum_rhat"].values()]
    limit = max(np.quantile(v, 0.995) for v in found)
    parted = judged(limit)
    above = [(v > limit).mean() for v in found]
    assert 0 < max(above) < 0.01 and parted.status == pgm.Status.OK and not parted.warnings
    assert parted.plan == whole
    assert strict.status == pgm.Status.NOT_MIXED and 1 <= len(strict.warnings) <= 5


def result(kind="exact", status=pgm.Status.OK, warnings=(), **stats):
    answers = {"log_z": np.zeros(2), "log_z_error": np.full(2, 0.3)}
    return pgm.Result(
        answers, kind, pgm.Exact(), pgm.Plan("Exact", "exact"), status, (), stats, None, warnings
    )


def test_what_a_part_says_the_whole_says():
    few = pgm.Status.FEW_WEIGHTS
    parts = [
        result(ess=np.array([1.0, 2.0])),
        result("estimate", few, ("row 3 is bad",), ess=np.array([3.0, 4.0])),
    ]
    both = joined(parts, pgm.rbm(2, 1, rng=0).structure)
    assert both.kind == "estimate" and both.status == few and both.warnings == ("row 3 is bad",)
    assert both.stats["ess"].tolist() == [1.0, 2.0, 3.0, 4.0] and both.log_z.shape == (4,)
    less = result().less(result(status=few, warnings=("few",)))
    assert less.status == few and less.warnings == ("without evidence, few",)
    np.testing.assert_allclose(less.stats["log_prob_error"], 0.3 * np.sqrt(2))


FEW = [pgm.AIS(chains=40, betas=pgm.Linear(3)), pgm.ParallelTempering(rungs=2, draws=40, warmup=10)]


@pytest.mark.parametrize("method", FEW, ids=["AIS", "ParallelTempering"])
def test_samplers_name_the_row_of_the_question(method, monkeypatch):
    """Input layers give each row a model of its own, also without other evidence."""
    model = pgm.drbm(3, 6, 3, rng=0)
    model = model.with_params({k: 12 * v for k, v in model.params.items()})
    x = np.zeros((3, 3))
    x[2] = 5.0
    small_parts(monkeypatch)
    # Otherwise the last warnings are counted, and name no row.
    monkeypatch.setattr(splitting, "MAX_WARNINGS_OF_PARTS", 100)
    said = pgm.infer(
        model, {"x": x, "y": np.zeros((3, 1))}, want=("log_prob",), method=method, rng=0
    ).warnings
    named = {
        int(n)
        for line in said
        if "without evidence" in line
        for n in re.findall(r"row (\d+)", line)
    }
    assert 2 in named


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
    """After a process pool breaks, the remaining parts are done in this process."""
    small_parts(monkeypatch)
    method = Deadly(str(tmp_path / "flag"), os.getpid())
    with ProcessPoolExecutor(2, SPAWN) as pool:
        shared = pgm.infer(RBM, {"v": ROWS}, method=method, rng=5, executor=pool)
    assert (tmp_path / "flag").exists() and "lost a worker" in caplog.text
    assert_same(pgm.infer(RBM, {"v": ROWS}, method=method.inner, rng=5), shared)


def test_errors_of_workers_arrive_and_stop_the_rest(monkeypatch):
    small_parts(monkeypatch)
    with ThreadPoolExecutor(1) as pool, pytest.raises(pgm.PgmError, match="refused"):
        pgm.infer(RBM, {"v": ROWS}, method=pgm.Enumeration(max_bits=1), executor=pool)
    began, gate = [], threading.Event()

    def job(i):
        began.append(i)
        if i == 0:
            raise RuntimeError("no")
        gate.wait(10)

    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="no"):
        try:
            executors.run_jobs(pool, job, [(i,) for i in range(20)], "")
        finally:
            gate.set()
    time.sleep(0.05)
    assert len(began) < 20


def test_ladders_of_parts_are_known_row_by_row(monkeypatch):
    """Each part of the rows adapts its own; the ladder of a row goes with its weights, occupancies
    and levels.
    """
    small_parts(monkeypatch)
    strong = RBM.with_params({"v-h.weight": 4 * RBM.params["v-h.weight"]})
    evidence = {"v": [[np.nan] * 8, [1, 1, 1, 1, 0, 0, 0, np.nan]]}
    for method in (
        pgm.SimulatedTempering(betas=pgm.Adaptive(4), draws=200, warmup=50),
        pgm.ParallelTempering(rungs=4, draws=60, warmup=200),
    ):
        r = pgm.infer(strong, evidence, want=("samples",), method=method, rng=5)
        assert r.stats["betas"].shape == (2, 4) and np.all(r.stats["betas"][:, [0, -1]] == [0, 1])
        assert not np.array_equal(*r.stats["betas"])
        extra("arviz_base")
        extra("matplotlib")
        tree = r.to_arviz()
        if "levels" in r.stats:
            assert int(tree["sample_stats"]["level"].max()) == 3
            pgm.plots.levels(r, row=1)
    fixed = pgm.infer(
        strong, evidence, method=pgm.SimulatedTempering(betas=4, draws=50, warmup=50), rng=5
    )
    np.testing.assert_allclose(fixed.stats["betas"], np.linspace(0, 1, 4))


def test_many_warnings_of_parts_are_counted(monkeypatch):
    """Ladders of two rungs that travel in no row: the worst rows are named, the others counted."""
    monkeypatch.setattr(splitting, "part_count", lambda work, rows: rows)
    model = pgm.rbm(8, 8, rng=0).with_params({"v-h.weight": np.full((8, 8), 6.0)})
    method = pgm.ParallelTempering(rungs=2, draws=40, warmup=4, rhat_limit=np.inf)
    said = pgm.infer(model, {"v": np.full((12, 8), np.nan)}, method=method, rng=0).warnings
    rows = [line for line in said if "tours" in line]
    assert 0 < len(rows) < 12 and len(said) <= splitting.MAX_WARNINGS_OF_PARTS + 4
    assert said[-1].endswith("more warnings about other rows")
