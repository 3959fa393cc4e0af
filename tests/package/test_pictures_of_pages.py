"""Pictures of the documentation: one for each plot, small, and made by a command."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from extras import extra

extra("matplotlib")

from pgmengine import plots

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import gallery  # noqa: E402

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


def test_pages_of_tasks_have_the_pictures_that_the_command_makes(pictures):
    """Each is kept, small, on its page, and on the start page."""
    there = {p.stem: p for p in (DOCS / "_static" / "tasks").iterdir()}
    assert set(there) == set(pictures.OF_TASKS) == {one.task for one in gallery.DRAWN}
    for name, file in there.items():
        page = (DOCS / "tasks" / f"{name}.md").read_text(encoding="utf-8")
        assert f"](../_static/tasks/{name}.png)" in page, name
        assert file.stat().st_size < MAX_BYTES, name


@pytest.mark.long
def test_a_page_computes_what_its_picture_shows(pictures, capsys):
    names = pictures.computed_by(DOCS / "tasks" / "crowd_labels.md")
    figure = pictures.crowd_labels(names)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == list(names["habits"])


README = DOCS.parent / "README.md"


def test_readme_shows_pictures_that_are_there_and_small():
    text = README.read_text(encoding="utf-8")
    shown = re.findall(r"!\[([^]]+)\]\((\S+)\)", text)
    assert all(alt for alt, _ in shown) and len(shown) == 5
    for _, path in shown:
        assert (DOCS.parent / path).stat().st_size < MAX_BYTES, path
    there = {f"docs/_static/readme/{p.name}" for p in (DOCS / "_static" / "readme").iterdir()}
    assert {path for _, path in shown} == there
    # The first picture stands on the first screen, before the set-up.
    before = text.partition("![")[0]
    assert len(before.splitlines()) < 10 and "## Install" not in before


def test_readme_has_two_commands_to_set_up():
    found = re.search(
        r"<!-- install -->\n```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.S
    )
    assert len(found[1].splitlines()) == 2


def test_every_picture_of_a_block_has_its_name(pictures, capsys):
    """The pictures below the blocks of README are those that the command takes from the blocks."""
    names = [name for name, _ in pictures.drawn_by_readme()]
    assert names == [None, "sequence", "completions", "samples"]


def test_ratios_are_those_of_the_results(pictures):
    """Every task is in the pages of results, and slower ones are not left out."""
    found = {name: pictures.ratios(*place) for name, *place in pictures.TASKS}
    assert all(found.values()) and {n for r in found.values() for n, _ in r} == {
        *pictures.LIBRARIES
    }
    assert ("PyTorch", 2.66) in found["block Gibbs sweeps, RBM 784x500, 100 chains"]
    networks = [ratio for _, ratio in found["all marginals, 24 Bayesian networks"]]
    assert len(networks) == 47
    assert sum(ratio < 1 for each in found.values() for _, ratio in each) >= 10
