"""Pages for contributors: short enough to be read, and true about files, rooms and commands."""

import re
from pathlib import Path

from loops import one_test_over

ROOT = Path(__file__).parents[2]
PACKAGE, DOCS = ROOT / "pgmengine", ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
DECISIONS = sorted(p for p in (DOCS / "decisions").glob("*.md") if p.stem != "index")
CONTRIBUTORS = [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md", *DECISIONS]
MEASURED = sorted(RESULTS.glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *MEASURED]
FOLDERS = ("", "api/", "coming/", "decisions/", "guide/", "tasks/")
PAGES += sorted(page for folder in FOLDERS for page in DOCS.glob(f"{folder}*.md"))

# Folders from which a page may give the path of a file.
FROM = (ROOT, PACKAGE, ROOT / "cython_ext" / "c")
FILE = re.compile(r"[\w./-]+\.(py|h|c|md)")
FOLDER = re.compile(r"[a-z_]+(/[a-z_]+)+/?")
# The name of a file that a recipe asks for, and the folder of the built site.
ABSENT = ("NAME", "docs/_build")


def name(page):
    return str(page.relative_to(ROOT))


pages = one_test_over("page", PAGES, ids=name)
for_contributors = one_test_over("page", CONTRIBUTORS, ids=name)


def code(text):
    """Words in code spans and code blocks of a page."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return [word for part in (*blocks, *spans) for word in part.split()]


def rooms():
    """Folders of the package that hold modules."""
    folders = (f for f in PACKAGE.iterdir() if f.is_dir())
    return sorted(f.name for f in folders if any(f.rglob("*.py")))


def is_there(word):
    """Whether a path, or a name of a file without its folder, is in the repository."""
    if "/" in word:
        return any((place / word).exists() for place in FROM)
    places = (PACKAGE, ROOT / "tests", ROOT / "benchmarks", ROOT / "cython_ext")
    return (ROOT / word).exists() or any(any(place.rglob(word)) for place in places)


def sections(page):
    """The entries of a page of decisions: title -> text."""
    parts = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {title: text for title, _, text in (part.partition("\n") for part in parts)}


@for_contributors
def test_named_files_are_there(page):
    words = {w.strip("'\"(),;:") for w in code(page.read_text(encoding="utf-8"))}
    paths = {w for w in words if FILE.fullmatch(w) or FOLDER.fullmatch(w)}
    assert paths
    paths = {w for w in paths if not any(part in w for part in ABSENT)}
    assert sorted(w for w in paths if not is_there(w)) == []


def source_of(link):
    """The notebook for a link to a copy that a build makes below docs/, or to its picture."""
    picture = re.fullmatch(r"(.*)tutorials/pictures/(\w+)\.png", link)
    if picture:
        return f"{picture[1]}../tutorials/{picture[2]}.ipynb"
    return link.replace("tutorials/", "../tutorials/")


@pages
def test_links_lead_to_files(page):
    found = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    places = {link: page.parent / source_of(link) for link in found}
    assert [link for link, place in places.items() if not place.exists()] == []


def test_every_room_is_described_and_drawn():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    picture = (DOCS / "_static" / "rooms.svg").read_text(encoding="utf-8")
    described = re.findall(r"^\| `(\w+)` \| ", text.partition("## The central types")[0], re.M)
    drawn = re.findall(r'font-weight="bold" fill="#1b2733">(\w+)<', picture)
    assert sorted(described) == sorted(drawn) == rooms()
    assert len(picture) < 200_000


@one_test_over("page", DECISIONS, ids=name)
def test_every_decision_says_how_to_measure_again(page):
    assert sections(page)
    for title, text in sections(page).items():
        _, found, again = text.partition("\nMeasure again: ")
        assert found and re.search(r"`[^`]*(benchmarks/|pytest|pgm\.)", again), title


def test_pages_are_as_short_as_they_promise():
    # Four printed pages, and a page that a user reads in two minutes.
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 220
    assert len((RESULTS / "README.md").read_text(encoding="utf-8").splitlines()) <= 70
    # The page about the code, and the first file of it.
    assert (DOCS / "architecture.md").stat().st_size <= 12_000
    first = ROOT / "pgmengine" / "infer" / "answering.py"
    assert len(first.read_text(encoding="utf-8").splitlines()) <= 200


def test_the_index_of_results_names_every_page():
    linked = re.findall(r"\]\((\w+\.md)", (RESULTS / "README.md").read_text(encoding="utf-8"))
    assert {*linked, "README.md"} == {page.name for page in MEASURED}


def test_commands_find_their_blocks_in_the_pages_they_write():
    """A block that is not there would be added at the end of its page."""
    written = {
        (script.name, target)
        for script in sorted((ROOT / "benchmarks").glob("*.py"))
        for target in re.findall(r"--out (benchmarks/\S+\.md)", script.read_text(encoding="utf-8"))
    }
    assert {name for name, _ in written} >= {"exact.py", "log_z.py", "memory.py", "suite.py"}
    for script, target in written:
        text = (ROOT / target).read_text(encoding="utf-8")
        blocks = re.findall(rf"^<!-- ({script}.*?) -->$", text, flags=re.M)
        assert blocks and all(f"<!-- end of {block} -->" in text for block in blocks)
