"""The pace of a machine: measured once, stored, and measured again where its file is damaged."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest

import pgmengine as pgm
from pgmengine.base.work import pace as paces
from pgmengine.infer.results.result import Plan


@pytest.fixture
def measuring(monkeypatch, tmp_path):
    """Measure into a cache of its own; returns the times that were measured."""
    made = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(paces.PACE_VARIABLE, raising=False)
    monkeypatch.setattr(paces, "_least", lambda loop: made.append(loop) or 2e-3)
    paces.pace.cache_clear()
    yield made
    paces.pace.cache_clear()


def test_the_pace_is_measured_once_for_all_processes(measuring):
    first = paces.pace()
    assert first == pytest.approx(2e-3 / math.sqrt(paces.NUMPY_SECONDS * paces.PYTHON_SECONDS), 0.1)
    # A new process has an empty memory, and finds the file.
    paces.pace.cache_clear()
    assert paces.pace() == first and len(measuring) == 2
    assert paces.renewed() == first and len(measuring) == 4


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"pace": "1"}', b'{"pace": 1e9}', b"\xff"])
def test_a_damaged_file_is_measured_again(measuring, damage):
    first = paces.pace()
    paces.pace_file().write_bytes(damage)
    paces.pace.cache_clear()
    assert paces.pace() == first and len(measuring) == 4
    assert json.loads(paces.pace_file().read_text()) == {"pace": first}


def test_a_cache_that_cannot_be_written_costs_a_measurement_only(measuring, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert paces.pace() > 1 and len(measuring) == 2


def test_a_user_without_a_home_costs_a_measurement_only(measuring, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(paces, "cache_folder", homeless)
    assert paces.pace() > 1 and len(measuring) == 2


def test_several_measure_at_once(measuring):
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: paces.renewed(), range(16)))
    assert len(found) == 1 and json.loads(paces.pace_file().read_text()) == {"pace": found.pop()}


@pytest.mark.parametrize("text", ["fast", "0", "nan", "inf", "1e9"])
def test_a_pace_that_is_no_number_is_refused(measuring, monkeypatch, text):
    monkeypatch.setenv(paces.PACE_VARIABLE, text)
    with pytest.raises(pgm.PgmError, match=f"PGMENGINE_PACE must be a number .* not .*{text}"):
        paces.pace()


def test_text_and_limits_of_users_have_seconds_of_this_machine(measuring, monkeypatch):
    monkeypatch.setenv(paces.PACE_VARIABLE, "4")
    assert "10 s" in str(Plan("MCMC", "estimate", "chains", 1.0, 1.0, "", 2.5, 2.5))
    model = pgm.rbm(60, 60, rng=0)
    plan = pgm.MCMC().plan(model.given(), ("marginals",))
    # The limit lies between the seconds of the prices and four times as many.
    asked = {"method": pgm.MCMC(), "seconds": 2 * plan.seconds}
    assert "refused" in str(pgm.explain(model, **asked))
    monkeypatch.setenv(paces.PACE_VARIABLE, "1")
    paces.pace.cache_clear()
    assert "refused" not in str(pgm.explain(model, **asked))
