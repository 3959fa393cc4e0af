"""Elements of an XML text with their lines, for readers of belief networks.

A reader lists the elements that it reads. Others are skipped with their contents, so that a long
file of them takes no memory. Names of elements may be in upper or lower case. A file that declares
entities is refused, because a few entities can expand to gigabytes of text. Entities that are not
declared are refused as well.

expat is used directly because the parser of xml.etree does not tell the lines of elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from xml.parsers.expat import ExpatError, ParserCreate

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.io.file_variables import Variables
from pgmengine.io.words import as_numbers, fault

# Group 1 is an entity that XML does not define, outside comments and literal text.
UNDEFINED_ENTITY = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|(&(?!#|(?:lt|gt|amp|quot|apos);)[^;<\s]*;?)", re.DOTALL
)

# Element -> the elements that are read inside it. Other elements are skipped with their contents,
# except inside ELEMENTS_READ_WHOLE. An element that is not listed holds only text.
Children = Mapping[str, frozenset[str]]

# Elements in which nothing is skipped: the root of the file, the nodes of a network, and a
# noisyadder of GeNIe, whose function another element might change.
ELEMENTS_READ_WHOLE = ("", "nodes", "noisyadder")

# Elements that have attributes and no text.
ELEMENTS_WITHOUT_TEXT = ("state",)
ELEMENTS_THAT_MAY_BE_EMPTY = (*ELEMENTS_WITHOUT_TEXT, "parents", "property")


@dataclass(slots=True)
class Element:
    """An element of XML with its line."""

    tag: str
    line: int
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, *tags: str) -> list[Element]:
        """Return the children with one of these tags."""
        return [child for child in self.children if child.tag in tags]

    def one(self, tag: str) -> Element:
        """Return the only child with a tag."""
        found = self.all(tag)
        if len(found) != 1:
            raise self.error(f"<{self.tag}> has {len(found)} elements <{tag}>, expected 1")
        return found[0]

    def error(self, message: str, at: int | None = None) -> PgmError:
        """Return an error with the line of the element; the number of the word is ignored."""
        return PgmError(f"line {self.line}: {message}")

    def name(self, attribute: str = "") -> str:
        """Return the text or an attribute as a name."""
        name = self.attributes.get(attribute, "") if attribute else self.text
        if not name:
            raise self.error(f"<{self.tag}> has no {attribute or 'text'}, expected a name")
        return name

    def numbers(self, shape: tuple[int, ...], meaning: str = "the number of joint states") -> Array:
        """Return the numbers in the text as an array of this shape; messages name its meaning."""
        words = self.text.replace(",", " ").split()
        if len(words) != math.prod(shape):
            raise self.error(
                f"<{self.tag}> has {len(words)} numbers, expected {math.prod(shape)}, {meaning}"
            )
        values = as_numbers(words, "_" in self.text)
        if (wrong := fault(words, values)) is not None:
            k, why = wrong
            raise self.error(f"number {k + 1} of <{self.tag}> is {words[k][:40]!r}, {why}")
        return values.reshape(shape)


class Tree:
    """The elements of an XML text that are read; expat calls the methods.

    Elements that are not read are not kept. An incomplete element is refused at its end. A long
    file of empty elements therefore takes no memory.
    """

    def __init__(self, inside: Children) -> None:
        self.inside = inside
        self.top = Element("", 1, {})
        self.open = [self.top]
        # Pieces of text of the innermost element, and the depth inside a skipped element.
        self.pieces: list[str] = []
        self.skipped = 0
        self.parser = ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.piece
        self.parser.EntityDeclHandler = self.entity

    def error(self, message: str) -> PgmError:
        """Return an error with the line at which the parser is."""
        return PgmError(f"line {self.parser.CurrentLineNumber}: {message}")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Open an element."""
        tag, above = intern(tag.lower()), self.open[-1].tag
        expected = self.inside.get(above)
        if self.skipped or (expected and tag not in expected and above not in ELEMENTS_READ_WHOLE):
            self.skipped += 1
            return
        if expected is None:
            raise self.error(f"<{tag[:40]}> inside <{above}>, expected text only")
        if tag not in expected:
            what = "a node" if above else "the root element is"
            raise self.error(f"{what} <{tag[:40]}>, expected <{', '.join(sorted(expected))}>")
        self._check_no_text()
        known = {key.lower(): value for key, value in attributes.items()}
        if len(known) < len(attributes):
            raise self.error(f"<{tag}> has one attribute twice, in other cases of letters")
        element = Element(tag, self.parser.CurrentLineNumber, known)
        self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, tag: str) -> None:
        """Close an element, which must have the text or attributes that its kind needs."""
        if self.skipped:
            self.skipped -= 1
            return
        element = self.open.pop()
        if element.tag in self.inside:
            self._check_no_text()
            if not element.children:
                expected = ", ".join(sorted(self.inside[element.tag]))
                raise element.error(f"<{element.tag}> is empty, expected <{expected}>")
            return
        element.text = "".join(self.pieces).strip()
        self.pieces.clear()
        if not element.text and element.tag not in ELEMENTS_THAT_MAY_BE_EMPTY:
            raise element.error(f"<{element.tag}> has no text, expected a name or numbers")
        if element.tag in ELEMENTS_WITHOUT_TEXT and element.text:
            raise element.error(
                f"<{element.tag}> has the text {element.text[:40]!r}, expected none"
            )

    def piece(self, text: str) -> None:
        """Add a piece of text to the innermost element."""
        if not self.skipped:
            self.pieces.append(text)

    def _check_no_text(self) -> None:
        """Raise PgmError if an element that holds elements has text as well."""
        text = "".join(self.pieces).strip()
        self.pieces.clear()
        if text:
            raise self.error(
                f"the text {text[:40]!r} is beside elements, expected it inside one of them"
            )

    def entity(self, *declaration: object) -> None:
        """Refuse the declaration of an entity."""
        raise self.error("declares an entity, expected plain XML; replace the entity by its text")


def _check_entities(text: str) -> None:
    """Raise PgmError for an entity that XML does not define; expat may have dropped it.

    expat drops such entities if the document type is in another file; in attributes it does not
    even report them.
    """
    for match in UNDEFINED_ENTITY.finditer(text) if "&" in text else ():
        if match[1]:
            line = text.count("\n", 0, match.start()) + 1
            raise PgmError(
                f"line {line}: the entity {match[1][:40]} is unknown; replace it by its text"
            )


def root_of(text: str, inside: Children, tag: str) -> Element:
    """Return the only element of a tag inside the root of an XML text."""
    tree = Tree(inside)
    try:
        tree.parser.Parse(text, True)
    except (ExpatError, ValueError, LookupError) as error:
        if isinstance(error, PgmError):
            raise
        raise PgmError(f"not a readable XML file: {error}") from None
    _check_entities(text)
    return tree.top.children[0].one(tag)


def add_table(node: Element, variables: Variables, names: list[str], table: Element) -> None:
    """Add the conditional of a child and its parents, whose numbers are in an element."""
    child, parents = variables.family(node, names, 0)
    if child in variables.families:
        raise node.error(f"a second table of variable {names[0]!r}")
    values = table.numbers(variables.shape((*parents, child)))
    variables.give(table, (child, parents), values, 0)
