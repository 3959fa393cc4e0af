"""Every example runs: the README's blocks, in order and in one namespace, and every docstring."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from extras import extra

import pgmengine

pytestmark = pytest.mark.usefixtures("seeds_as_written")
README = Path(__file__).parents[2] / "README.md"
NEEDS = {
    "pgmengine.apps.crf.estimator": "sklearn",
    "pgmengine.plots": "matplotlib",
    "pgmengine.sklearn": "sklearn",
    "pgmengine.apps.pictures.chains": "matplotlib",
    "pgmengine.apps.pictures.curves": "matplotlib",
    "pgmengine.apps.pictures.images": "matplotlib",
    "pgmengine.apps.estimators": "sklearn",
}
MODULES = [
    m.name
    for m in pkgutil.walk_packages(pgmengine.__path__, "pgmengine.")
    if "._kernels" not in m.name
]


def test_readme_blocks(capsys):
    extra("matplotlib")
    plt = importlib.import_module("matplotlib.pyplot")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
        # Every example draws its picture.
        assert plt.get_fignums()
        plt.close("all")
    printed = capsys.readouterr().out
    shown = re.findall(r"```text\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert all(text in printed for text in shown) and printed == "".join(shown)
    kinds = ("pgm.read(", "pgm.plots.sequence(", "pgm.rbm(", "pgm.plots.samples(")
    assert len(blocks) == 4 and all(map(str.__contains__, blocks, kinds))
    assert all(len(block.strip().splitlines()) <= 9 for block in blocks)


def test_pages_run(capsys):
    """The Python blocks of the documentation's pages, in order, print what is shown.

    Blocks about estimators need the extra of scikit-learn, and are tested by themselves.
    """
    pages = [
        p
        for p in sorted((README.parent / "docs").glob("*.md"))
        if "```python" in p.read_text(encoding="utf-8")
    ]
    assert pages
    for page in pages:
        text, names = page.read_text(encoding="utf-8"), {}
        for block in re.findall(r"```python\n(.*?)```", text, flags=re.S):
            if "pgmengine.sklearn" not in block:
                exec(compile(block, page.name, "exec"), names)
        printed = capsys.readouterr().out
        assert all(
            shown in printed for shown in re.findall(r"```text\n(.*?)```", text, flags=re.S)
        ), page


def test_blocks_about_estimators_run():
    extra("sklearn")
    text = (README.parent / "docs/guide.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    chosen = [block for block in blocks if "pgmengine.sklearn" in block]
    assert chosen
    for block in chosen:
        exec(compile(block, "guide.md", "exec"), {})


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    if name in NEEDS:
        extra(NEEDS[name])
    result = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0


def test_every_public_name_is_on_a_page_of_the_api():
    pages = "".join(
        p.read_text(encoding="utf-8") for p in sorted((README.parent / "docs/api").glob("*.md"))
    )
    assert not [name for name in pgmengine.__all__ if not re.search(rf"\b{name}\b", pages)]


@pytest.mark.parametrize("name", pgmengine.__all__)
def test_every_public_name_has_an_example_or_a_sentence(name):
    thing = getattr(pgmengine, name)
    assert thing.__doc__ and len(thing.__doc__) > 20


def test_every_public_function_and_value_class_has_a_running_example():
    without = [
        n
        for n in pgmengine.__all__
        if ">>>" not in (getattr(pgmengine, n).__doc__ or "") and n not in WITHOUT
    ]
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
