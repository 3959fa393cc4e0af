"""Belief networks in XML: XMLBIF (.xmlbif, .bifxml) and GeNIe (.xdsl).

    <BIF VERSION="0.3"><NETWORK>
      <VARIABLE TYPE="nature"><NAME>wet</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>
      <DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><TABLE>0.9 0.1 0.05 0.95</TABLE></DEFINITION>
    </NETWORK></BIF>

    <smile version="1.0"><nodes>
      <cpt id="wet"><state id="yes"/><state id="no"/><parents>rain</parents>
        <probabilities>0.9 0.1 0.05 0.95</probabilities></cpt>
    </nodes></smile>

In both, the parents' states change in the order of the parents, the first one slowest, and the
child's state fastest. Elements are known by their names in any case of letters. Entities that a
file declares itself are refused, because a few of them can stand for gigabytes of text.

The order of .xdsl files is that of GeNIe. aGrUM (pyAgrum) writes the first parent as the fastest
one, so that GeNIe and aGrUM read different networks from one file. Its files name it as the
application, and are refused.

expat is used directly because the parser of xml.etree does not tell the lines of elements.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from xml.parsers.expat import ExpatError, ParserCreate

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.types import Array
from pgmengine.graph.tabular import Conditional, Network
from pgmengine.io.variables import Variables
from pgmengine.io.words import number

# The mark of an application in a .xdsl file.
AGRUM = re.compile(r'<genie\b[^>]*\bapp="aGrUM')


@dataclass
class Element:
    """An element of XML with its line."""

    tag: str
    line: int
    attributes: dict[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    children: list[Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the element without that of its children."""
        return "".join(self.pieces).strip()

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
        """Return an error with the line of the element. A number of a word adds nothing to it."""
        return PgmError(f"line {self.line}: {message}")

    def name(self, attribute: str = "") -> str:
        """Return the text or an attribute as a name."""
        name = self.attributes.get(attribute, "") if attribute else self.text
        if not name:
            raise self.error(f"<{self.tag}> has no {attribute or 'text'}, expected a name")
        return name

    def numbers(self, shape: tuple[int, ...]) -> Array:
        """Return the numbers in the text, of which there must be as many as the shape has."""
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
        return values.reshape(shape)


def parse(text: str) -> Element:
    """Return the root of an XML text."""
    top = Element("", 1)
    open_: list[Element] = [top]
    parser = ParserCreate()
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag.lower(), parser.CurrentLineNumber, attributes)
        open_[-1].children.append(element)
        open_.append(element)

    def end(tag: str) -> None:
        open_.pop()

    def piece(text: str) -> None:
        open_[-1].pieces.append(text)

    def entity(*declaration: object) -> None:
        raise PgmError(
            f"line {parser.CurrentLineNumber}: declares an entity, expected plain XML; "
            "replace the entity by its text"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = piece
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text, True)
    except (ExpatError, ValueError, LookupError) as error:
        raise PgmError(f"not a readable XML file: {error}") from None
    return top.children[0]


def _root(text: str, *path: str) -> Element:
    """Return the element at a path of tags from the root."""
    root = parse(text)
    if root.tag != path[0]:
        raise root.error(f"the root element is <{root.tag[:40]}>, expected <{path[0]}>")
    for tag in path[1:]:
        root = root.one(tag)
    return root


def read_xmlbif(text: str) -> Network:
    """Return the network of an XMLBIF text.

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
    root = _root(text, "bif", "network")
    variables = Variables()
    for node in root.all("variable"):
        kind = node.attributes.get("TYPE", "nature")
        if kind.lower() != "nature":
            raise node.error(f"a variable of type {kind[:40]!r}, expected nature")
        states = [outcome.name() for outcome in node.all("outcome", "value")]
        variables.add(node, node.one("name").name(), states, 0)
    families: dict[int, Conditional] = {}
    for node in root.all("definition", "probability"):
        names = [node.one("for").name(), *(parent.name() for parent in node.all("given"))]
        _add(node, variables, families, names, node.one("table"))
    return variables.network(families)


def _add(
    node: Element,
    variables: Variables,
    families: dict[int, Conditional],
    names: list[str],
    table: Element,
) -> None:
    """Add the conditional of a child and its parents, whose numbers are in an element."""
    child, parents = variables.family(node, names, 0)
    if child in families:
        raise node.error(f"a second table of variable {names[0]!r}")
    values = table.numbers(variables.shape((*parents, child)))
    families[child] = Conditional(child, parents, values)


def read_xdsl(text: str) -> Network:
    """Return the network of a GeNIe .xdsl text.

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
    root = _root(text, "smile", "nodes")
    if AGRUM.search(text):
        raise root.error(
            "written by aGrUM, whose order of probabilities is not that of GeNIe; save the network "
            "as .bifxml there"
        )
    variables = Variables()
    for node in root.children:
        if node.tag != "cpt":
            raise node.error(f"a node <{node.tag[:40]}>, expected <cpt>")
        states = [state.name("id") for state in node.all("state")]
        variables.add(node, node.name("id"), states, 0)
    families: dict[int, Conditional] = {}
    for node in root.children:
        parents = [name for given in node.all("parents") for name in given.text.split()]
        _add(node, variables, families, [node.name("id"), *parents], node.one("probabilities"))
    return variables.network(families)
