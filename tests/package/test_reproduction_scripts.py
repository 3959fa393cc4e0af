"""Sweeps of the reproduction scripts: kept in files, from which they go on, on workers or here;
units and corrections of the comparison of hidden units.
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from loops import one_test_over

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "reproduce"))
from hidden_units import Matched, holm
from sweep import kept, sweep_on


def square(i):
    if i == 13:
        raise RuntimeError("no")
    return np.array([i, i * i])


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
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


def test_named_arrays_are_computed_once(tmp_path):
    calls = []

    def one(x):
        calls.append(x)
        return {"value": np.array(x), "twice": np.array([x, x])}

    for _ in range(2):
        found = kept(tmp_path / "parts", "one", one, 3)
        assert found["value"] == 3 and found["twice"].tolist() == [3, 3]
    assert calls == [3] and [p.name for p in (tmp_path / "parts").iterdir()] == ["one.npz"]


@one_test_over("s", [1, 2, 4, math.inf])
def test_matched_units_have_the_variance_of_a_spin(s, step=1e-4, rtol=1e-6):
    unit, eta = Matched(s), np.array([-1.3, 0.0, 0.4])
    np.testing.assert_allclose(unit.variance(np.zeros(1)), 1, rtol=rtol)
    slope = (unit.log_normalizer(eta + step) - unit.log_normalizer(eta - step)) / (2 * step)
    np.testing.assert_allclose(unit.mean(eta), slope, rtol=rtol, atol=1e-9)
    if math.isinf(s):
        x = np.linspace(-unit.factor, unit.factor, 20_001)
        whole = np.trapezoid(np.exp(eta[:, None] * x + unit.log_h(x)), x, axis=1)
        np.testing.assert_allclose(np.log(whole), unit.log_normalizer(eta), rtol=rtol)


def test_holm_corrects_in_the_order_of_the_p_values():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.5]), [0.04, 0.09, 0.09, 0.5])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
