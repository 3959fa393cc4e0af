"""Check the built pages without a network: links, anchors, pictures, and what a browser would load.

    python docs/check_site.py docs/_build/html

prints what is wrong, and exits with status 1 if anything is. Addresses of other sites are not
followed, but nothing that a page needs (scripts, styles, pictures) may be there.
"""

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

# Attributes of tags with which a browser loads something, without a click.
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
# Links of a page to itself that do not load anything: how it is related to others.
NOT_LOADED = {"canonical", "index", "search", "next", "prev", "author", "copyright"}


@dataclass
class Page(HTMLParser):
    """The links, anchors and pictures of a page."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    without_alt: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take what the tag has."""
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") not in NOT_LOADED:
            self.loaded.append(given[LOADED[tag]])
        if tag == "img" and not _described(given):
            self.without_alt.append(given.get("src", ""))


def _described(image: dict[str, str]) -> bool:
    """Whether a picture has words that are not the name of its file."""
    alt = image.get("alt", "")
    return bool(alt) and not alt.endswith((".png", ".svg", ".jpg"))


def faults(folder: Path) -> list[str]:
    """Return a sentence for each thing that is wrong in a folder of pages."""
    folder = folder.resolve()
    pages = {path: _read(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        return [f"{folder}: there are no pages"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https") or parts.netloc:
                if link in page.loaded:
                    found.append(f"{name}: {link} would be loaded from elsewhere")
            elif parts.scheme in ("", "file"):
                found += [f"{name}: {link} {what}" for what in _broken(path, parts, pages)]
        found += [f"{name}: {src} has no description (alt)" for src in page.without_alt]
    return found


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _broken(path: Path, parts: SplitResult, pages: dict[Path, Page]) -> list[str]:
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return ["leads to no file"]
    page = pages.get(target)
    anchor = unquote(parts.fragment)
    # An empty anchor is the page itself.
    if page is not None and anchor and anchor not in page.anchors:
        return ["leads to no anchor"]
    return []


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]))
    print("\n".join(wrong) or "every link leads somewhere, and every picture is described")
    sys.exit(bool(wrong))
