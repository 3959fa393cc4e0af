"""The tutorials run, and their notebooks are their scripts with the outputs of a run."""

import json
import re
from pathlib import Path

import pytest
from extras import extra

TUTORIALS = sorted((Path(__file__).parents[2] / "tutorials").glob("*.py"))


# Those that take a few seconds; the others are long.
QUICK = ("01", "08")


@pytest.mark.notebook
@pytest.mark.usefixtures("seeds_as_written")
@pytest.mark.parametrize(
    "script",
    [p if p.stem.startswith(QUICK) else pytest.param(p, marks=pytest.mark.long) for p in TUTORIALS],
    ids=lambda p: p.stem,
)
def test_notebooks_run(script):
    """The cells in order, in one namespace, as a kernel runs them, warnings being errors."""
    extra("arviz_base")
    extra("matplotlib")
    from matplotlib import pyplot as plt

    names = {"__name__": "__main__"}
    for cell in json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), script.stem, "exec"), names)
    plt.close("all")


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda p: p.stem)
def test_notebooks_are_their_scripts_executed(script):
    """Each notebook is what its script says, with the outputs of a run."""
    notebook, own = (
        extra("jupytext").read(path) for path in (script.with_suffix(".ipynb"), script)
    )
    assert [(c.cell_type, c.source) for c in notebook.cells] == [
        (c.cell_type, c.source) for c in own.cells
    ]
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in cells) and sum(len(c.outputs) for c in cells) >= 2
    shown = json.dumps([c.outputs for c in cells])
    assert "image/png" in shown and 'output_type": "error' not in shown and " at 0x" not in shown


def test_tutorials_are_numbered_without_a_gap(least=13):
    assert [p.stem[:2] for p in TUTORIALS] == [f"{i:02}" for i in range(1, len(TUTORIALS) + 1)]
    assert len(TUTORIALS) >= least


def test_the_list_says_what_each_tutorial_is_for():
    """Each has its title, a link and a sentence, in the order of the pages."""
    page = (TUTORIALS[0].parents[1] / "docs" / "tutorials.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- \[(.*)\]\(tutorials/(.*)\.ipynb\): (.*(?:\n  .*)*)", page, flags=re.M)
    titles = {
        p.stem: p.read_text(encoding="utf-8").split("# # ")[1].split("\n")[0] for p in TUTORIALS
    }
    assert {stem: title for title, stem, _ in entries} == titles and len(entries) == len(titles)
    assert all(len(what) > 40 and what.endswith(".") for *_, what in entries)
    pages = re.findall(r"^tutorials/(\S+)$", page, flags=re.M)
    assert pages == [stem for _, stem, _ in entries]
    assert pages[0] == "09_bayesian_network"
