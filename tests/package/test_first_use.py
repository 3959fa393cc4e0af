"""Public names are imported when they are first used, and errors of imports stay what they are."""

import ast
import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest
from loops import one_test_over

import pgmengine as pgm

pytestmark = pytest.mark.smoke
STUB = ast.parse(Path(pgm.__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
HOMES = {a.name: x.module for x in STUB if isinstance(x, ast.ImportFrom) for a in x.names}

# Parts of the package that a first question about a small model has no use for.
UNUSED = ("apps", "io", "learn", "plots", "sklearn", "datasets", "jax", "torch")


def run(code):
    """What a new process prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_stub_lists_every_public_name():
    extras = {"jax", "plots", "sklearn", "torch"}
    assert {*pgm.__all__} == {*HOMES} - extras and len(pgm.__all__) == len({*pgm.__all__})
    assert {*dir(pgm)} == {*HOMES, "__doc__", "__file__", "__version__"}


@one_test_over("name", pgm.__all__)
def test_a_name_is_the_one_of_its_module(name):
    home = importlib.import_module(HOMES[name])
    assert getattr(pgm, name) is getattr(home, name)


def test_importing_the_package_imports_what_is_used():
    loaded = run(
        "import sys, pgmengine as pgm; print(*sys.modules, '|'); pgm.infer(pgm.rbm(3, 2, rng=0));"
        "print(*sys.modules)"
    )
    first, asked = loaded[: loaded.index("|")], loaded[loaded.index("|") + 1 :]
    own = {name for name in first if name.startswith("pgmengine")}
    parts = ("", "._kernels", ".base", ".base.errors", ".base.routines", ".infer")
    assert own == {f"pgmengine{part}" for part in parts}
    tops = {name.partition(".")[0] for name in asked}
    assert not tops & {"networkx", "scipy", "matplotlib", "pandas", "rich", "typer", "sklearn"}
    assert not [x for x in asked if x.startswith(tuple(f"pgmengine.{part}" for part in UNUSED))]


def test_the_function_infer_stands_before_the_room_of_its_name():
    code = "import pgmengine as pgm; from pgmengine.infer.exact.exact import Exact;"
    code += "from pgmengine import infer; print(pgm.infer.__module__, infer is pgm.infer)"
    assert run(code) == ["pgmengine.infer.question.ask", "True"]


def test_all_names_are_imported_by_a_star():
    assert run("from pgmengine import *; print(Exact.__name__, infer.__name__)") == [
        "Exact",
        "infer",
    ]


def forget(monkeypatch, name):
    """As if a name had not been used."""
    monkeypatch.delitem(vars(pgm), name, raising=False)


def test_a_module_that_is_missing_is_named(monkeypatch):
    forget(monkeypatch, "Planar")
    monkeypatch.setitem(sys.modules, HOMES["Planar"], None)
    with pytest.raises(ModuleNotFoundError, match=HOMES["Planar"]):
        pgm.Planar  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=HOMES["Planar"]):
        hasattr(pgm, "Planar")


def test_an_error_of_attributes_in_a_module_does_not_pass_for_an_unknown_name(monkeypatch):
    """As if a module of ours asked numpy for a function that it no longer has."""
    forget(monkeypatch, "Planar")
    monkeypatch.setitem(sys.modules, HOMES["Planar"], types.ModuleType("broken"))
    with pytest.raises(ImportError, match="pgmengine.Planar cannot be imported: .*'broken'"):
        hasattr(pgm, "Planar")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        pgm.unknown  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'unknown'"):
        from pgmengine import unknown  # noqa: F401
