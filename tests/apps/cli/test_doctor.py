"""The examination of an installation, right and broken on purpose."""

import itertools
import json
import re
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pgmengine as pgm
from pgmengine.apps.cli import app
from pgmengine.apps.doctor import machine as facts
from pgmengine.apps.doctor import report, self_test

ROOT = Path(__file__).parents[3]


def examined(*words):
    return CliRunner().invoke(app, ["doctor", *words])


def test_an_installation_without_faults():
    found = examined()
    assert found.exit_code == 0 and "nothing is wrong" in found.stdout
    lines = found.stdout.splitlines()
    assert sum(line.startswith("  ok ") for line in lines) == len(self_test.TESTS) == 5
    config = pgm.build_config()
    assert config.used in found.stdout and "routines: " in found.stdout
    for name in ("processor: ", "threads: ", "BLAS: ", "packages: numpy ", "self-test"):
        assert name in found.stdout
    assert "pace: 1 s for a second of a plan, chosen by PGMENGINE_PACE" in found.stdout
    for extra in facts.EXTRAS:
        assert any(line.split()[:1] == [extra.name] for line in lines)


def test_json():
    found = json.loads(examined("--json").stdout, parse_constant=pytest.fail)
    assert found["well"] is True and found["routines"]["used"] == pgm.build_config().used
    assert [check["name"] for check in found["checks"]] == [*self_test.TESTS]
    assert found["versions"]["pgmengine"] == pgm.__version__


def test_the_known_number_of_the_self_test():
    """The sum over all states of asia, in fractions, from the tables of its paper."""

    def one(p, yes):
        return Fraction(p) if yes else 1 - Fraction(p)

    def joint(asia, tub, smoke, lung, bronc, xray=True, dysp=True):
        either = tub or lung
        short = {(1, 1): "0.9", (0, 1): "0.7", (1, 0): "0.8", (0, 0): "0.1"}
        return (
            one("0.01", asia)
            * one("0.05" if asia else "0.01", tub)
            * one("0.5", smoke)
            * one("0.1" if smoke else "0.01", lung)
            * one("0.6" if smoke else "0.3", bronc)
            * one("0.98" if either else "0.05", xray)
            * one(short[int(bronc), int(either)], dysp)
        )

    states = [*itertools.product((True, False), repeat=5)]
    total = sum(joint(*s) for s in states)
    assert self_test.EVIDENCE_IN_ASIA == float(total)
    assert self_test.LUNG_IN_ASIA == float(sum(joint(*s) for s in states if s[3]) / total)


def test_extras_are_the_ones_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {
        extra: {re.split(r"[>=<;\[ ]", line)[0] for line in lines if "pgmengine" not in line}
        for extra, lines in project["optional-dependencies"].items()
    }
    assert {e.name: {*e.packages} for e in facts.EXTRAS} == names
    assert {*facts.CORE} == {re.split(r"[>=<]", line)[0] for line in project["dependencies"]}


@pytest.mark.parametrize("name", ["exact answer", "learning", "files"])
def test_a_failing_test_is_told_with_its_place(name, monkeypatch):
    def wrong():
        return self_test._require(False, "3 in place of 4")

    monkeypatch.setitem(self_test.TESTS, name, wrong)
    found = examined()
    assert found.exit_code == 1 and "something is wrong: 1 tests failed" in found.stdout
    assert re.search(rf"FAILED  {name}: InternalError: 3 in place of 4.*self_test.py", found.stdout)


@pytest.mark.parametrize("off", [1e-6, -1e-6])
def test_the_exact_answer_is_compared_to_nine_digits(off, monkeypatch):
    monkeypatch.setattr(self_test, "LUNG_IN_ASIA", self_test.LUNG_IN_ASIA + off)
    with pytest.raises(RuntimeError, match="expected 0.62125"):
        self_test.exact_answer()


def test_wrong_sweeps_are_found(monkeypatch):
    """A sampler of another model is far from the exact means, in standard errors."""
    right = self_test._summed
    monkeypatch.setattr(self_test, "_summed", lambda m: (right(m)[0], right(m)[1] + 0.1))
    with pytest.raises(RuntimeError, match="standard errors"):
        self_test.compiled_and_reference()


def test_missing_packages_are_told(monkeypatch):
    real = facts.installed
    gone = {"goatd": "", "networkx": ""}
    monkeypatch.setattr(facts, "installed", lambda name: gone.get(name, real(name)))
    found = examined()
    assert found.exit_code == 1 and "PROBLEM: networkx is not installed" in found.stdout
    assert "no goatd (pip install 'pgmengine[treewidth]'); for better" in found.stdout


def test_packages_that_are_too_old_are_told(monkeypatch):
    monkeypatch.setattr(facts, "requires", lambda _: ["numpy>=999.1", 'x>=1; extra == "plots"'])
    (told,) = facts.too_old()
    assert told.startswith("numpy ") and told.endswith("is older than 999.1, which pgmengine needs")
    monkeypatch.setattr(facts, "requires", lambda _: ["numpy>=2.0"])
    assert facts.too_old() == []


def test_without_compiled_routines_it_says_so(monkeypatch):
    plain = replace(pgm.build_config(), compiled=False, compiler="", used="plain")
    monkeypatch.setattr(report, "build_config", lambda: plain)

    def refused():
        raise pgm.PgmError("no routine for this")

    monkeypatch.setitem(self_test.TESTS, "learning", refused)
    found = examined()
    assert "routines: NOT COMPILED: " in found.stdout and found.exit_code == 0
    assert "but there are no compiled routines" in found.stdout
    assert "learning: not tested: no routine for this" in found.stdout
    monkeypatch.undo()
    monkeypatch.setattr(pgm, "build_config", lambda: plain)
    with pytest.raises(pgm.PgmError, match="no compiled routines to compare"):
        self_test.compiled_and_reference()
    monkeypatch.undo()
    monkeypatch.setitem(self_test.TESTS, "learning", refused)
    assert examined().exit_code == 1
