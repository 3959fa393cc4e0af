"""Questions on a cluster of dask workers: processes that talk over the loopback device."""

import os

import numpy as np
import pytest
from extras import extra
from test_splitting import QUESTIONS, RBM, ROWS, Deadly, assert_same

import pgmengine as pgm
from pgmengine.base.work import executors

distributed = extra("distributed")


@pytest.fixture(scope="module")
def pool():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor(pure=False)


@pytest.mark.parametrize("rows", [20, 1])
@pytest.mark.parametrize("name", ["MCMC", "chains", "AIS", "auto"])
def test_the_same_bits_as_here(pool, name, rows, monkeypatch):
    monkeypatch.setattr(executors, "MIN_UPDATES_A_PART", 1.0)
    model, method, want = QUESTIONS[name]
    evidence = {"v": ROWS[:rows]}
    shared = pgm.infer(model, evidence, want=want, method=method, rng=5, executor=pool)
    assert_same(pgm.infer(model, evidence, want=want, method=method, rng=5), shared)


def test_a_worker_that_dies_is_replaced_and_its_work_done_again(pool, monkeypatch, tmp_path):
    monkeypatch.setattr(executors, "MIN_UPDATES_A_PART", 1.0)
    method = Deadly(str(tmp_path / "flag"), os.getpid())
    shared = pgm.infer(RBM, {"v": ROWS}, method=method, rng=5, executor=pool)
    assert (tmp_path / "flag").exists()
    assert_same(pgm.infer(RBM, {"v": ROWS}, method=method.inner, rng=5), shared)


def test_errors_of_workers_arrive(pool, monkeypatch):
    monkeypatch.setattr(executors, "MIN_UPDATES_A_PART", 1.0)
    with pytest.raises(pgm.PgmError, match="refused"):
        pgm.infer(
            RBM, {"v": np.full((20, 8), np.nan)}, method=pgm.Enumeration(max_bits=1), executor=pool
        )
