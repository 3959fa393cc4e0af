"""The built site: links and pictures are checked; each tutorial has a picture in the gallery."""

import re
import sys
from pathlib import Path

import pytest
from loops import one_test_over

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
import check_site  # noqa: E402
import gallery  # noqa: E402

TUTORIALS = sorted(p.stem for p in (ROOT / "tutorials").glob("*.ipynb"))
SOUND = '<h1 id="a b">A</h1><a href="#a%20b">x</a><a href="b.html#c">y</a><img src="p.png" alt="P">'
OTHER = '<p id="c"><a href="a.html">z</a><a href="https://pgm.example">w</a></p>'


def site(folder, first=SOUND, second=OTHER):
    (folder / "a.html").write_text(first, encoding="utf-8")
    (folder / "b.html").write_text(second, encoding="utf-8")
    (folder / "p.png").write_bytes(b"")
    return check_site.faults(folder)


def test_a_sound_site_has_no_fault(tmp_path):
    assert site(tmp_path) == []


@one_test_over(
    "old, new, fault",
    [
        ('href="b.html#c"', 'href="c.html#c"', "a.html: c.html#c leads to no file"),
        ('href="b.html#c"', 'href="b.html#d"', "a.html: b.html#d leads to no anchor"),
        ('href="#a%20b"', 'href="#ab"', "a.html: #ab leads to no anchor"),
        ('src="p.png"', 'src="q.png"', "a.html: q.png leads to no file"),
        (' alt="P"', "", "a.html: p.png has no description (alt)"),
        ('alt="P"', 'alt="p.png"', "a.html: p.png has no description (alt)"),
        (
            "<h1",
            '<script src="https://x.example/s.js"></script><h1',
            "a.html: https://x.example/s.js would be loaded from elsewhere",
        ),
        (
            "<h1",
            '<link rel="stylesheet" href="//x.example/s.css"><h1',
            "a.html: //x.example/s.css would be loaded from elsewhere",
        ),
    ],
)
def test_each_fault_of_a_site_is_found(tmp_path, old, new, fault):
    assert old in SOUND
    assert site(tmp_path, first=SOUND.replace(old, new)) == [fault]


def test_a_folder_without_pages_is_a_fault(tmp_path):
    assert check_site.faults(tmp_path) == [f"{tmp_path.resolve()}: there are no pages"]


def test_the_gallery_has_a_picture_of_each_tutorial(tmp_path):
    assert sorted(picture.tutorial for picture in gallery.PICTURES) == TUTORIALS
    (tmp_path / "tutorials").mkdir()
    gallery.write(ROOT / "tutorials", tmp_path)
    for picture in gallery.PICTURES:
        assert (tmp_path / picture.file).read_bytes().startswith(b"\x89PNG"), picture
        assert len(picture.alt) > 20, picture


def test_a_picture_that_a_tutorial_lacks_is_named(tmp_path, monkeypatch):
    (tmp_path / "tutorials").mkdir()
    monkeypatch.setattr(gallery, "PICTURES", (gallery.Picture("04_mixing", 9, "none"),))
    with pytest.raises(ValueError, match="picture 9 of 04_mixing.ipynb, which has 2"):
        gallery.write(ROOT / "tutorials", tmp_path)


def test_entries_of_galleries_get_their_pictures():
    start, tutorials = (
        gallery.with_pictures((DOCS / f"{page}.md").read_text(encoding="utf-8"))
        for page in ("index", "tutorials")
    )
    assert {p.name[:-3] for p in (DOCS / "tasks").glob("*.md")} == set(gallery.OF_TASK)
    assert len(re.findall(r"^- \[!\[", start, flags=re.M)) == len(gallery.OF_TASK)
    assert len(re.findall(r"^- \[!\[", tutorials, flags=re.M)) == len(TUTORIALS)


def test_papers_are_named_by_author_and_year():
    """No page and no docstring calls a paper by a number."""
    places = ("docs", "pgmengine", "benchmarks", "tests")
    files = [p for place in places for p in (ROOT / place).rglob("*") if is_text(p)]
    assert len(files) > 300
    assert [p.name for p in files if re.search(r"\b[Ss]ystem [1-4]\b", read(p))] == []


def is_text(path):
    """Whether it is a page or code, and no copy that a build has made below docs/."""
    copies = (DOCS / "tutorials", DOCS / "results")
    return path.suffix in (".md", ".py") and not any(copy in path.parents for copy in copies)


def read(path):
    return path.read_text(encoding="utf-8")
