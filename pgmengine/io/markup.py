"""Belief networks in XML: XMLBIF (.xmlbif, .bifxml) and GeNIe (.xdsl).

    <BIF VERSION="0.3"><NETWORK>
      <VARIABLE TYPE="nature"><NAME>wet</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>
      <DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><TABLE>0.9 0.1 0.05 0.95</TABLE></DEFINITION>
    </NETWORK></BIF>

    <smile version="1.0"><nodes>
      <cpt id="wet"><state id="yes"/><state id="no"/><parents>rain</parents>
        <probabilities>0.9 0.1 0.05 0.95</probabilities></cpt>
    </nodes></smile>

In both formats the state of the first parent changes slowest, then those of the other parents in
order, and the state of the child fastest. Names of elements may be in upper or lower case. A file
that declares entities is refused, because a few entities can expand to gigabytes of text. Entities
that are not declared are refused as well.

The order of .xdsl files is that of GeNIe. aGrUM (pyAgrum) writes the first parent as the fastest
one, so that GeNIe and aGrUM read different networks from one file. Its files name it as the
application, and are refused.

expat is used directly because the parser of xml.etree does not tell the lines of elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from unicodedata import category
from xml.parsers.expat import ExpatError, ParserCreate
from xml.sax.saxutils import escape

import numpy as np

from pgmengine.base.checks import check_text
from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.declare.tabular import Network
from pgmengine.io.variables import Variables, check_directed
from pgmengine.io.words import UNDERFLOW_MESSAGE, number, underflow

# Group 1 is an entity that XML does not define, outside comments and literal text.
UNDEFINED_ENTITY = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|(&(?!#|(?:lt|gt|amp|quot|apos);)[^;<\s]*;?)", re.DOTALL
)

# The element by which a .xdsl file of aGrUM names its application.
AGRUM_APP = re.compile(r'<genie\b[^>]*\bapp="aGrUM')


# Element -> the elements that are read inside it. Other elements are skipped with their contents,
# except inside ELEMENTS_READ_WHOLE. An element that is not listed holds only text.
Children = Mapping[str, frozenset[str]]
XMLBIF_CHILDREN: Children = {
    "": frozenset({"bif"}),
    "bif": frozenset({"network"}),
    "network": frozenset({"variable", "definition", "probability"}),
    "variable": frozenset({"name", "outcome", "value"}),
    "definition": frozenset({"for", "given", "table"}),
    "probability": frozenset({"for", "given", "table"}),
}
XDSL_CHILDREN: Children = {
    "": frozenset({"smile"}),
    "smile": frozenset({"nodes"}),
    "nodes": frozenset({"cpt"}),
    "cpt": frozenset({"state", "parents", "probabilities"}),
}

# Elements in which nothing is skipped: the root of the file, and the nodes of a network.
ELEMENTS_READ_WHOLE = ("", "nodes")

# Elements that have attributes and no text.
ELEMENTS_WITHOUT_TEXT = ("state",)
ELEMENTS_THAT_MAY_BE_EMPTY = (*ELEMENTS_WITHOUT_TEXT, "parents")


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

    def numbers(self, shape: tuple[int, ...]) -> Array:
        """Return the numbers in the text as an array of this shape."""
        words = self.text.replace(",", " ").split()
        if len(words) != math.prod(shape):
            raise self.error(
                f"<{self.tag}> has {len(words)} numbers, expected {math.prod(shape)}, the number "
                "of joint states"
            )
        values = np.array([number(word) for word in words], dtype=np.float64)
        good = (values >= 0) & (values < np.inf)
        if not good.all():
            k = int(np.flatnonzero(~good)[0])
            raise self.error(
                f"number {k + 1} of <{self.tag}> is {words[k][:40]!r}, expected a finite number of "
                "at least 0"
            )
        if (lost := underflow(words, values)) is not None:
            raise self.error(
                f"number {lost + 1} of <{self.tag}> is {words[lost][:40]!r}, {UNDERFLOW_MESSAGE}"
            )
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


def parse(text: str, inside: Children) -> Element:
    """Return the root of an XML text, with the elements that are read."""
    tree = Tree(inside)
    try:
        tree.parser.Parse(text, True)
    except (ExpatError, ValueError, LookupError) as error:
        if isinstance(error, PgmError):
            raise
        raise PgmError(f"not a readable XML file: {error}") from None
    _check_entities(text)
    return tree.top.children[0]


def _root(text: str, inside: Children, tag: str) -> Element:
    """Return the only element of a tag inside the root."""
    return parse(text, inside).one(tag)


def read_xmlbif(text: str, tolerance: float = 0.0) -> Network:
    """Return the network of an XMLBIF text; `read` describes the tolerance.

    Raises
    ------
    PgmError
        For text in another format, and for variables of a type other than nature. The message
        begins with the line.

    >>> n = read_xmlbif(
    ...     "<BIF><NETWORK><VARIABLE><NAME>a</NAME><OUTCOME>u</OUTCOME><OUTCOME>v</OUTCOME>"
    ...     "</VARIABLE><DEFINITION><FOR>a</FOR><TABLE>0.25 0.75</TABLE></DEFINITION>"
    ...     "</NETWORK></BIF>"
    ... )
    >>> n.states, n.conditionals[0].values
    ((('u', 'v'),), array([0.25, 0.75]))
    """
    root = _root(text, XMLBIF_CHILDREN, "network")
    variables = Variables(tolerance)
    for node in root.all("variable"):
        kind = node.attributes.get("type", "nature")
        if kind.lower() != "nature":
            raise node.error(f"a variable of type {kind[:40]!r}, expected nature")
        states = [outcome.name() for outcome in node.all("outcome", "value")]
        variables.add(node, node.one("name").name(), states, 0)
    for node in root.all("definition", "probability"):
        names = [node.one("for").name(), *(parent.name() for parent in node.all("given"))]
        _add(node, variables, names, node.one("table"))
    return variables.network()


def _add(node: Element, variables: Variables, names: list[str], table: Element) -> None:
    """Add the conditional of a child and its parents, whose numbers are in an element."""
    child, parents = variables.family(node, names, 0)
    if child in variables.families:
        raise node.error(f"a second table of variable {names[0]!r}")
    values = table.numbers(variables.shape((*parents, child)))
    variables.give(table, (child, parents), values, 0)


def read_xdsl(text: str, tolerance: float = 0.0) -> Network:
    """Return the network of a GeNIe .xdsl text; `read` describes the tolerance.

    Raises
    ------
    PgmError
        For text in another format, and for nodes other than <cpt>. The message begins with the
        line.

    >>> n = read_xdsl(
    ...     '<smile><nodes><cpt id="a"><state id="u"/><state id="v"/>'
    ...     "<probabilities>0.25 0.75</probabilities></cpt></nodes></smile>"
    ... )
    >>> n.states, n.conditionals[0].values
    ((('u', 'v'),), array([0.25, 0.75]))
    """
    root = _root(text, XDSL_CHILDREN, "nodes")
    if AGRUM_APP.search(text):
        raise root.error(
            "written by aGrUM, whose order of probabilities is not that of GeNIe; save the network "
            "as .bifxml there"
        )
    variables = Variables(tolerance)
    for node in root.children:
        states = [state.name("id") for state in node.all("state")]
        variables.add(node, node.name("id"), states, 0)
    for node in root.children:
        parents = [name for given in node.all("parents") for name in given.text.split()]
        _add(node, variables, [node.name("id"), *parents], node.one("probabilities"))
    return variables.network()


def write_xmlbif(network: Network) -> str:
    """Return the XMLBIF text of a network in which every variable has a conditional.

    Numbers have as many digits as it takes to read the same number again.

    Raises
    ------
    PgmError
        For a network with tables or with variables without a conditional, and for names with
        control characters or with white space at an end, which the format cannot hold.

    >>> print(write_xmlbif(Network(("a",), (("<5", "5+"),), ((0, (), [0.1, 0.9]),))))
    <?xml version="1.0" encoding="UTF-8"?>
    <BIF VERSION="0.3">
    <NETWORK>
    <NAME>unnamed</NAME>
    <VARIABLE TYPE="nature">
      <NAME>a</NAME>
      <OUTCOME>&lt;5</OUTCOME>
      <OUTCOME>5+</OUTCOME>
    </VARIABLE>
    <DEFINITION>
      <FOR>a</FOR>
      <TABLE>
        0.1 0.9
      </TABLE>
    </DEFINITION>
    </NETWORK>
    </BIF>
    <BLANKLINE>
    """
    check_directed(network, ".xmlbif")
    names = [_escaped(name, "variable") for name in network.names]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<BIF VERSION="0.3">', "<NETWORK>"]
    lines += ["<NAME>unnamed</NAME>"]
    for i, name in enumerate(names):
        what = f"state of {network.names[i]!r}"
        lines += ['<VARIABLE TYPE="nature">', f"  <NAME>{name}</NAME>"]
        lines += [f"  <OUTCOME>{_escaped(x, what)}</OUTCOME>" for x in network.states[i]]
        lines += ["</VARIABLE>"]
    for c in network.conditionals:
        lines += ["<DEFINITION>", f"  <FOR>{names[c.child]}</FOR>"]
        lines += [f"  <GIVEN>{names[i]}</GIVEN>" for i in c.parents]
        values = network.table_of(c)
        rows = values.reshape(-1, values.shape[-1]).tolist()
        lines += ["  <TABLE>", *("    " + " ".join(map(repr, row)) for row in rows), "  </TABLE>"]
        lines += ["</DEFINITION>"]
    return "\n".join([*lines, "</NETWORK>", "</BIF>"]) + "\n"


def _escaped(name: str, what: str) -> str:
    """Return a name as XML text; raise PgmError for a name that XML cannot hold."""
    check_text(name, f"{what}: the name")
    if name != name.strip() or any(category(x) == "Cc" or x in "\ufffe\uffff" for x in name):
        raise PgmError(
            f"{what}: the name {name!r} cannot be written to a .xmlbif file, which allows no "
            "control characters in names, nor white space at their ends; rename it"
        )
    return escape(name)
