"""Pictures of the documentation: one for each plot, small, and made by a command."""

import importlib.util
import re
from pathlib import Path

import pytest
from extras import extra

extra("matplotlib")

from pgmengine import plots

DOCS = Path(__file__).parents[2] / "docs"
FUNCTIONS = sorted(plots.__all__)

# The largest file that a page may load as a picture, in bytes.
MAX_BYTES = 200_000


@pytest.fixture(scope="module")
def pictures():
    found = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_plot_has_a_picture_on_its_page(pictures):
    page = (DOCS / "api" / "plots.md").read_text(encoding="utf-8")
    assert sorted(pictures.OF_FUNCTIONS) == FUNCTIONS
    assert sorted(re.findall(r"autofunction:: (\w+)", page)) == FUNCTIONS
    assert sorted(re.findall(r"image:: /_static/plots/(\w+)\.png", page)) == FUNCTIONS
    assert sorted(re.findall(r"plots\.(\w+)", (DOCS / "api.md").read_text())) == FUNCTIONS


@pytest.mark.parametrize("name", ["graph", "sequence", "convergence"])
def test_pictures_are_small_and_the_same_in_every_run(name, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "HERE", tmp_path / "docs")
    files = [tmp_path / f"{i}.png" for i in range(2)]
    for file in files:
        pictures.save(pictures.OF_FUNCTIONS[name]().figure, file)
    one, two = (file.read_bytes() for file in files)
    assert one == two and len(one) < MAX_BYTES
