"""The comparison of samplers: its statistics, and a run that goes on from its files."""

import gzip
import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "reproduce"))
import samplers
import samplers_report
from sampler_runs import Work


def digits_like_mnist(folder, train=60, test=20):
    """Files as those of MNIST, of random images."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        images = rng.integers(256, size=(count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            data = gzip.compress(head + array.tobytes())
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(data)


@pytest.fixture
def as_before():
    """The command silences the findings of fits; the level is put back."""
    log = logging.getLogger("pgmengine")
    level = log.level
    yield
    log.setLevel(level)


@pytest.mark.long
def test_a_comparison_goes_on_from_its_files(tmp_path, monkeypatch, as_before):
    monkeypatch.setenv("PGMENGINE_DATA", "")
    digits_like_mnist(tmp_path)
    only, out = "SAP 100,CAST 50+50", tmp_path / "out"
    samplers.main(out, tmp_path, only=only, updates=20)
    found = {p.stem: json.loads(p.read_text()) for p in (out / "small").glob("*.json")}
    assert {r["name"] for r in found.values()} == {
        "SAP 100",
        "CAST 50+50, one set",
        "CAST 50+50, own weights",
    }
    run = found["CAST-50+50-own-weights-seed-1"]
    assert len(run["curve"]["bound"]) == 10 and len(run["ladder"]["occupancy"]) == 20
    assert run["best"]["test"] >= run["final"]["test"] - 100 and run["final"]["test"] < 0
    assert not list((out / "small").glob("*.checkpoint"))
    text = (out / "small" / "samplers.md").read_text()
    assert "| CAST 50+50, own weights | SAP 100 |" in text

    def refused(*_):
        raise AssertionError("a finished run is learned again")

    monkeypatch.setattr(Work, "learned", refused)
    samplers.main(out, tmp_path, only=only, updates=20)
    assert (out / "small" / "samplers.md").read_text() == text
    with pytest.raises(SystemExit, match="updates 20, this run 30"):
        samplers.main(out, tmp_path, only=only, updates=30)
    with pytest.raises(SystemExit, match="schedule .*, this run falling 0.1: name another OUT"):
        samplers.main(out, tmp_path, only=only, updates=20, schedule="falling 0.1")


def test_every_phase_has_a_control():
    found = samplers.phases(samplers.SCALES["middle"], 0.1)
    assert [*found] == ["SAP 100", *samplers_report.CONTROLS, "SAP 50"]
    assert {*samplers_report.SLOW_CHAINS.values(), *samplers_report.CONTROLS.values()} <= {*found}
    assert {c.chains for c in found.values()} == {50, 100, 200}


def test_corrected_p_values():
    """Holm (1979): the smallest is multiplied by n, and none is below a smaller one."""
    found = samplers_report.holm(np.array([0.04, 0.01, 0.03, 0.5]))
    np.testing.assert_allclose(found, [0.09, 0.04, 0.09, 0.5])


@pytest.mark.parametrize("level", [0.05, 0.05 / 9])
def test_power_of_the_smallest_difference(level, draws=20_000, limit=4.5):
    """The share of simulated tests that show it is 80 %, within `limit` standard errors."""
    shift = samplers_report.smallest(2.0, 5, level)
    d = np.random.default_rng(0).normal(shift, 2.0, (draws, 5))
    shown = float((stats.ttest_1samp(d, 0.0, axis=1).pvalue < level).mean())
    assert abs(shown - 0.8) < limit * (0.8 * 0.2 / draws) ** 0.5
