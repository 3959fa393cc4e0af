"""Every example runs: the README's blocks, in order and in one namespace, and every docstring."""

import doctest
import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest
from extras import extra
from loops import one_test_over

import pgmengine

pytestmark = [
    pytest.mark.usefixtures("seeds_as_written"),
    # Examples make few passes, and the estimators say so.
    pytest.mark.filterwarnings("ignore:.*; see findings_$"),
]
README = Path(__file__).parents[2] / "README.md"
NEEDS = {
    "pgmengine.apps.crf.estimator": "sklearn",
    "pgmengine.plots": "matplotlib",
    "pgmengine.jax": "jax",
    "pgmengine.sklearn": "sklearn",
    "pgmengine.torch": "torch",
    "pgmengine.apps.pictures.timelines": "matplotlib",
    "pgmengine.apps.pictures.traces": "matplotlib",
    "pgmengine.apps.pictures.chain_diagnostics": "matplotlib",
    "pgmengine.apps.pictures.curves": "matplotlib",
    "pgmengine.apps.pictures.images": "matplotlib",
    "pgmengine.apps.learners.estimators": "sklearn",
    "pgmengine.apps.learners.fit_warnings": "sklearn",
}
DOCS = README.parent / "docs"
# The copies that a build makes are no pages of their own.
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if page.relative_to(DOCS).parts[0] not in ("tutorials", "results", "_build")
    and "```python" in page.read_text(encoding="utf-8")
]
# The doors whose blocks need an extra, and the pages with such blocks.
OPTIONAL = {door: NEEDS[f"pgmengine.{door}"] for door in ("sklearn", "torch", "jax")}
PAGES_WITH_EXTRAS = [
    (door, page)
    for door in OPTIONAL
    for page in PAGES
    if f"pgmengine.{door}" in page.read_text(encoding="utf-8")
]
# Stands before an output with numbers of a fit.
LEARNED = "<!-- learned numbers -->\n"
MODULES = [
    m.name
    for m in pkgutil.walk_packages(pgmengine.__path__, "pgmengine.")
    if "._kernels" not in m.name
]


def is_installed(module):
    """Whether a module that examples need is there; none is needed by most."""
    return module is None or importlib.util.find_spec(module) is not None


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


def page_name(page):
    return str(page.relative_to(DOCS))


def python_blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.S)


def outputs(text):
    """The outputs that a page shows, but for learned numbers."""
    found = re.findall(r"(<!-- [a-z ]+ -->\n)?```text\n(.*?)```", text, flags=re.S)
    return [shown for comment, shown in found if comment != LEARNED]


def learned_outputs(text):
    """Outputs with numbers of a fit, which rounding makes other ones on other processors."""
    return re.findall(rf"{LEARNED}```text\n(.*?)```", text, flags=re.S)


def nearly_shown(shown, printed, tolerance=0.05):
    """Whether lines printed one after the other have these words, and nearly these numbers."""
    wanted, lines = shown.splitlines(), printed.splitlines()
    windows = (lines[i : i + len(wanted)] for i in range(len(lines) - len(wanted) + 1))
    return any(
        all(same_words(a, b, tolerance) for a, b in zip(wanted, found, strict=True))
        for found in windows
    )


def same_words(one, other, tolerance):
    """Whether two lines have the same words, and numbers with a point that nearly agree."""
    number = r"-?\d+\.\d+"
    pairs = list(zip(re.findall(number, one), re.findall(number, other), strict=False))
    near = all(abs(float(a) - float(b)) <= tolerance * abs(float(a)) for a, b in pairs)
    return near and re.sub(number, "#", one) == re.sub(number, "#", other)


@one_test_over(
    ("other", "same"),
    [("fit 1.04 of 3\n", True), ("fit 1.06 of 3\n", False), ("fit 1.04 of 4\n", False)],
)
def test_learned_numbers_are_compared(other, same):
    assert nearly_shown("fit 1.00 of 3\n", f"first\n{other}last\n") == same


def run_blocks(page, names, chosen):
    """Run the blocks of a page that are chosen, in their order and in one namespace."""
    for block in python_blocks(page.read_text(encoding="utf-8")):
        if chosen(block):
            exec(compile(block, page_name(page), "exec"), names)


# Its lattice is sampled for a quarter of a minute.
LONG_PAGES = {"tasks/lattice.md"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.long) if page_name(p) in LONG_PAGES else p for p in PAGES],
    ids=page_name,
)
def test_pages_run(page, capsys):
    """The Python blocks of a page, in order, print what is shown, in the same order.

    Blocks that need an extra, such as those about estimators, are tested by themselves.
    """
    run_blocks(page, {}, needs_no_extra)
    printed = whole = capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    for shown in outputs(without_extras(text)):
        assert shown in printed, f"{page_name(page)} shows what its code does not print:\n{shown}"
        printed = printed.partition(shown)[2]
    for shown in learned_outputs(text):
        assert nearly_shown(shown, whole), f"{page_name(page)} prints other numbers than\n{shown}"


@pytest.mark.few(2)
@pytest.mark.parametrize(("door", "page"), PAGES_WITH_EXTRAS)
def test_blocks_that_need_an_extra_run(door, page, capsys):
    """They run after the other blocks of their page, and print what is shown below them."""
    extra(OPTIONAL[door])
    names = {}
    run_blocks(page, names, needs_no_extra)
    capsys.readouterr()
    run_blocks(page, names, lambda block: f"pgmengine.{door}" in block)
    printed, text = capsys.readouterr().out, page.read_text(encoding="utf-8")
    others = outputs(without_extras(text, {door}))
    assert all(shown in printed for shown in outputs(text) if shown not in others)


def needs_no_extra(block):
    return not any(f"pgmengine.{door}" in block for door in OPTIONAL)


def without_extras(text, doors=OPTIONAL):
    """The text of a page without the blocks about these doors and the outputs below them."""
    some = "|".join(doors)
    block = rf"```python\n(?:(?!```).)*?pgmengine\.(?:{some}).*?```(?:\n\n```text\n.*?```)?"
    return re.sub(block, "", text, flags=re.S)


def test_every_page_that_has_examples_is_run():
    """The pages of tasks are there, and each of them shows what its code prints."""
    of_tasks = [page for page in PAGES if page.parent.name in ("tasks", "coming")]
    assert len(of_tasks) >= 10 and all(page in PAGES for page in (DOCS / "tasks").glob("*.md"))
    assert all(outputs(page.read_text(encoding="utf-8")) for page in of_tasks)


@one_test_over("name", [name for name in MODULES if is_installed(NEEDS.get(name))])
def test_docstring_examples(name):
    result = doctest.testmod(
        importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0


def test_every_public_name_is_on_a_page_of_the_api():
    pages = "".join(
        p.read_text(encoding="utf-8") for p in sorted((README.parent / "docs/api").glob("*.md"))
    )
    assert not [name for name in pgmengine.__all__ if not re.search(rf"\b{name}\b", pages)]


@one_test_over("name", pgmengine.__all__)
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
