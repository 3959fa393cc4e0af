"""Every example runs: the README's blocks, in order and in one namespace, and every docstring."""

import doctest
import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest

import pgmengine

README = Path(__file__).parent.parent / "README.md"
MODULES = [m.name for m in pkgutil.walk_packages(pgmengine.__path__, "pgmengine.") if not m.name.endswith("_kernels")]


def test_readme_blocks(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert len(blocks) >= 6
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    shown = re.search(r"```text\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S).group(1)
    assert shown in printed


TUTORIALS = sorted((README.parent / "tutorials").glob("*.py"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorials_run(path, capsys):
    runpy.run_path(str(path))
    assert capsys.readouterr().out


def test_there_are_tutorials():
    assert TUTORIALS


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


@pytest.mark.parametrize("name", pgmengine.__all__)
def test_every_public_name_has_an_example_or_a_sentence(name):
    thing = getattr(pgmengine, name)
    assert thing.__doc__ and len(thing.__doc__) > 20


def test_every_public_function_and_value_class_has_a_running_example():
    without = [n for n in pgmengine.__all__ if ">>>" not in (getattr(pgmengine, n).__doc__ or "") and n not in WITHOUT]
    assert without == []


WITHOUT = {
    "diagnostics",
    "datasets",
    "Dataset",
    "NotAsked",
    "PgmError",
    "Plan",
    "Result",
    "Status",
    "Target",
    "Unit",
    "Fit",
    "Auto",
    "load",
    "load_declaration",
}  # met in the examples of the functions that return or read them
