"""Sweeps of the reproduction scripts: kept in files, from which they go on, on workers or here."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "reproduce"))
from sweep import sweep_on


def square(i):
    if i == 13:
        raise RuntimeError("no")
    return np.array([i, i * i])


@pytest.mark.parametrize("workers", [1, 2])
def test_goes_on_from_what_is_there(tmp_path, workers, monkeypatch):
    monkeypatch.setenv("PGMENGINE_THREADS", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    np.save(tmp_path / "squares-1.npy", np.array([1, 100]))
    with sweep_on(workers, "", tmp_path) as sweep:
        found = sweep.results("squares", square, [(i,) for i in range(4)])
    np.testing.assert_array_equal(found[:, 1], [0, 100, 4, 9])
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"squares-{i}.npy" for i in range(4)]
    with sweep_on(workers, "", tmp_path) as sweep, pytest.raises(RuntimeError, match="no"):
        sweep.results("more", square, [(i,) for i in (12, 13)])
