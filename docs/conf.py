"""Sphinx configuration: `sphinx-build -W -b html docs docs/_build/html`, which needs no network."""

import ast
import inspect
import re
import shutil
import sys
import textwrap
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.ext import autosummary
from sphinx.util import logging

import pgmengine

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import gallery  # noqa: E402

RETURNED = {
    "Dataset",
    "Expectation",
    "Fit",
    "Model",
    "Plan",
    "Result",
    "Status",
    "Target",
}  # shown without arguments
# Pages whose lists have a picture for each entry.
GALLERIES = ("index", "tutorials")
# Copies of ../tutorials/*.ipynb and of ../benchmarks/results/*.md, which git ignores.
TUTORIALS, RESULTS = HERE / "tutorials", HERE / "results"

project = "pgmengine"
version = release = pgmengine.__version__
author = "the authors of pgmengine"
project_copyright = author

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode", "myst_nb"]
exclude_patterns = ["_build"]
nitpicky = True
html_theme = "furo"
html_title = "pgmengine"
html_static_path = ["_static"]
html_css_files = ["pgmengine.css"]
html_math_renderer = "mathml"
html_copy_source = False
# Summaries would be fetched, which browsers refuse for pages that are opened as files.
html_show_search_summary = False
smartquotes = False  # "v" is the name of a layer, x' a transpose
pygments_style, pygments_dark_style = "tango", "monokai"

nb_execution_mode = "off"  # notebooks are kept executed
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"
autodoc_mock_imports = ["torch"]  # large, and the pages show what pgmengine.torch says alone
autosummary_generate = False
autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.", "eqs.")  # a summary does not end there
toc_object_entries_show_parents = "hide"


def copy_tutorials(app: Sphinx) -> None:
    """Put the notebooks where Sphinx looks for pages."""
    shutil.rmtree(TUTORIALS, ignore_errors=True)
    shutil.copytree(
        HERE.parent / "tutorials",
        TUTORIALS,
        ignore=shutil.ignore_patterns("*.py", ".*", "__pycache__"),
    )
    gallery.write(HERE.parent / "tutorials", HERE)


def copy_results(app: Sphinx) -> None:
    """Put the pages of measurements where Sphinx looks for pages, with their links to docs/."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir()
    pages = HERE.parent / "benchmarks" / "results"
    # The index is read on other sites, too, and has no tree of its own.
    linked = re.findall(r"\]\((\w+)\.md", (pages / "README.md").read_text(encoding="utf-8"))
    tree = "\n".join(["", "```{toctree}", ":hidden:", "", *dict.fromkeys(linked), "```", ""])
    for page in sorted(pages.glob("*.md")):
        text = page.read_text(encoding="utf-8").replace("](../../docs/", "](../")
        text += tree * (page.stem == "README")
        (RESULTS / page.name).write_text(text, encoding="utf-8")


def make_pictures(app: Sphinx) -> None:
    """Make the pictures of `pgmengine.plots`, unless they were made before."""
    sys.path.insert(0, str(HERE))
    import pictures

    if any(not (pictures.PLOTS / f"{name}.png").exists() for name in pictures.OF_FUNCTIONS):
        pictures.plots()


def link_results(app: Sphinx, name: str, source: list[str]) -> None:
    """Let links to the pages of measurements lead to their copies."""
    source[0] = source[0].replace("../benchmarks/results/", "results/")


def add_pictures(app: Sphinx, name: str, source: list[str]) -> None:
    """Give the lists of a gallery their pictures."""
    if name in GALLERIES:
        source[0] = gallery.with_pictures(source[0])


def describe_pictures(app: Sphinx, tree: nodes.document) -> None:
    """Say in words where a picture of a notebook comes from; it has no description of its own."""
    for image in tree.findall(nodes.image):
        if not image.get("alt"):
            section = image
            while section.parent is not None and not isinstance(section, nodes.section):
                section = section.parent
            title = section.next_node(nodes.title)
            about = f" in the section {title.astext()}" if title else ""
            image["alt"] = f"Picture that the code above makes{about}"


def check_names(app: Sphinx, env: Any) -> None:
    """Every public name has an entry in api/ and a line in api.md."""
    entries = {name.removeprefix("pgmengine.") for name in env.domains.python_domain.objects}
    lines = set((HERE / "api.md").read_text(encoding="utf-8").split())
    missing = [name for name in pgmengine.__all__ if name not in entries or name not in lines]
    if missing:
        logging.getLogger(__name__).warning(
            "names without an entry in api/, or a line in api.md: %s", ", ".join(missing)
        )


def show_defaults(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str, returned: str
) -> Any:
    """Return the fields of a dataclass as written, none for types that users do not make."""
    if what == "class" and thing.__name__ in RETURNED:
        return "", None
    if what != "class" or not is_dataclass(thing) or signature == "()":
        return None
    if "__dataclass_fields__" not in vars(thing) and "__init__" in vars(thing):
        # It derives from a dataclass, and has arguments of its own.
        return None
    # A class may declare a field of its base again, with another default.
    written: dict[str, str] = {}
    for base in reversed(thing.__mro__):
        if "__dataclass_fields__" in vars(base):
            written |= _written_fields(base)
    shown: list[str] = []
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(written[parameter.name])
    return f"({', '.join(shown)})", None


def _written_fields(thing: Any) -> dict[str, str]:
    """The fields that a dataclass declares itself, as they are written."""
    source = textwrap.dedent(inspect.getsource(thing))
    body = ast.parse(source).body[0].body
    declared = [n for n in body if isinstance(n, ast.AnnAssign)]
    return {ast.unparse(n.target): _field(source, n) for n in declared}


def _field(source: str, node: ast.AnnAssign) -> str:
    name = ast.unparse(node.target)
    if node.value is None:
        return name
    # A signature is one line, also where the default is written on several.
    value = " ".join((ast.get_source_segment(source, node.value) or "").split())
    return f"{name}={value.replace('( ', '(').replace(', )', ')')}"


def as_rest(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape a docstring, which is plain text, quote indented blocks and list parameters."""
    lines[:] = "\n\n".join(map(_block, _blocks(lines))).split("\n")


def _blocks(lines: list[str]) -> list[str]:
    return re.split(r"\n\n+(?! )", "\n".join(lines).strip("\n"))  # an indented block stays whole


def _block(block: str) -> str:
    head, _, rest = block.partition("\n")
    if head.startswith(">>>"):
        return block
    if head in ("Parameters", "Attributes"):
        found = re.findall(r"^(\S.*?) : (.*(?:\n +.*)*)", rest, flags=re.M)
        entries = (
            f"    * **{_plain(names)}** – {_plain(' '.join(text.split()))}" for names, text in found
        )
        return "\n".join([f":{head}:", *entries])
    if rest.startswith("---"):
        # A rubric, since a section would be an entry in the table of contents.
        return f".. rubric:: {head}\n\n{_block(rest.partition(chr(10))[2])}"
    prose, *quoted = block.split("\n\n    ", 1)
    if not quoted:
        return _plain(prose)
    return f"{_plain(prose)}\n\n::\n\n    {quoted[0]}"


def _plain(text: str) -> str:
    parts = text.split("`")
    escaped = [re.sub(r"([\\*|]|_(?!\w))", r"\\\1", part) for part in parts]
    return "".join(f"``{parts[i]}``" if i % 2 else escaped[i] for i in range(len(parts)))


def _mathml(node: nodes.Element, **how: bool) -> str:
    """Return MathML, with a thin space between log and its argument, as TeX has it."""
    applied = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*(?:<mrow>\s*)?<mo[^>]*>[(\[])")
    return applied.sub('<mspace width="0.17em"></mspace>', tex2mathml(node.astext(), **how))


def inline_math(translator: Any, node: nodes.Element) -> None:
    """$...$."""
    translator.body.append(_mathml(node))
    raise nodes.SkipNode


def block_math(translator: Any, node: nodes.Element) -> None:
    """$$...$$."""
    translator.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect all of it."""
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("builder-inited", copy_tutorials)
    app.connect("builder-inited", copy_results)
    app.connect("builder-inited", make_pictures)
    app.connect("source-read", link_results)
    app.connect("source-read", add_pictures)
    app.connect("doctree-read", describe_pictures)
    app.connect("env-check-consistency", check_names)
    app.connect("autodoc-process-signature", show_defaults)
    app.connect("autodoc-process-docstring", as_rest)
