"""The facts about the project that several files repeat, and what the sdist contains."""

import datetime
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import pgmengine as pgm

pytestmark = pytest.mark.smoke
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def found(file, pattern):
    """The first match of a pattern in a file of the project."""
    match = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert match, f"{file} has no {pattern}"
    return match[1]


def test_the_version_is_in_one_place_and_its_copies_are_equal():
    assert found("CITATION.cff", r"^version: (\S+)$") == PROJECT["version"]
    assert found("recipe/recipe.yaml", r'^  version: "(\S+)"$') == PROJECT["version"]
    assert found("CHANGELOG.md", r"^## (\S+)$") == PROJECT["version"]
    modules = (path.read_text(encoding="utf-8") for path in (ROOT / "pgmengine").rglob("*.py"))
    assert not [text for text in modules if re.search(r"^__version__ *=", text, re.MULTILINE)]


def test_the_package_tells_the_version_of_its_installation():
    assert pgm.__version__ == version("pgmengine")


def test_the_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    needed = {one.replace(">=", " >=") for one in PROJECT["dependencies"]}
    python = PROJECT["requires-python"].replace(">=", "python >=")
    assert {line.strip(" -") for line in run.splitlines()} == {*needed, python}


def test_the_licence_is_said_once_in_each_form():
    assert PROJECT["license"] == found("CITATION.cff", r"^license: (\S+)$") == "MIT"
    assert not [one for one in PROJECT["classifiers"] if one.startswith("License")]


def test_keys_of_the_paper_are_in_its_bibliography():
    text = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    cited = set(re.findall(r"@(\w+)", text.partition("# Summary")[2]))
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(), re.MULTILINE)
    assert cited == set(entries)


def test_ratios_of_the_paper_are_those_of_the_results():
    """Rows of the paper's table name a question of the results, and repeat its ratio."""
    results = (ROOT / "benchmarks" / "results" / "README.md").read_text(encoding="utf-8")
    table = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8").partition("# Measured")[2]
    rows = re.findall(r"^\| ([^|]+) \| (\w+) \| ([\d.]+)[^|]*\|$", table, re.MULTILINE)
    assert len(rows) == 6
    for question, library, ratio in rows:
        start = question.partition(" (")[0]
        lines = [line for line in results.splitlines() if line.startswith(f"| {start}")]
        assert len(lines) == 1 and library in lines[0] and f" {ratio}" in lines[0], question


def test_how_the_routines_were_built():
    config = pgm.build_config()
    assert config.used in config.runs_here
    if not config.compiled:
        assert config.runs_here == ("plain",) and not config.kinds
        return
    assert set(config.runs_here) <= set(config.kinds) and config.compiler and config.cython
    assert "-ffp-contract=off" in config.flags
    assert not [flag for flag in (*config.flags, *config.added_flags) if "/" in flag]
    assert config.date is None or config.date.tzinfo is datetime.UTC
    assert "/" not in repr(config)


@pytest.mark.parametrize("time", [0, 1_700_000_000])
def test_the_sdist_has_the_sources_and_its_bytes_follow_from_them(tmp_path, time):
    code = (
        "import os, sys; sys.argv = ['setup.py', '-q', 'sdist', '-d', sys.argv[1]];"
        "exec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    )
    copy = tmp_path / "copy"
    copy.mkdir()
    files = ["setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CITATION.cff"]
    for name in files:
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for name in ("pgmengine/__init__.py", "cython_ext/kernels.pyx", "cython_ext/c/layers.c"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    made = []
    for out in ("first", "second"):
        environment = {"SOURCE_DATE_EPOCH": str(time), "PATH": "/usr/bin:/bin"}
        arguments = [sys.executable, "-c", code, str(tmp_path / out)]
        done = subprocess.run(arguments, cwd=copy, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        (archive,) = (tmp_path / out).iterdir()
        made.append(archive.read_bytes())
        (copy / "README.md").touch()
    assert made[0] == made[1]
    import tarfile

    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
        assert {entry.mtime for entry in opened} == {time}
    assert {"setup.py", "cython_ext/kernels.pyx", "cython_ext/c/layers.c", "CITATION.cff"} <= names
