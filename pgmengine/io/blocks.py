"""Belief networks of Hugin (.net) and of early GeNIe (.dsl), which are blocks of entries.

A .net file:

    net { }
    node rain { states = ("yes" "no"); }
    node wet { states = ("yes" "no"); }
    potential ( rain ) { data = (0.2 0.8); }
    potential ( wet | rain ) { data = ((0.9 0.1) (0.05 0.95)); }

A .dsl file:

    net example {
      node wet {
        TYPE = CPT;
        HEADER = { ID = wet; NAME = "wet"; };
        PARENTS = (rain);
        DEFINITION = { NAMESTATES = (yes, no); PROBABILITIES = (0.9, 0.1, 0.05, 0.95); };
      };
    };

In both, the parents' states change in the order of the parents, the first one slowest, and the
child's state fastest. Of a .net file the inner parentheses of `data` may be left out. Other entries
(labels, positions, screen settings) are skipped. Decisions, utilities, continuous nodes and tables
that a file gives by a formula are refused.

Early GeNIe allows parents that follow their children, so all nodes are read before any table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pgmengine.base.types import Array
from pgmengine.graph.tabular import Conditional, Network
from pgmengine.io.variables import Variables
from pgmengine.io.words import Words, pattern, unquoted

# Levels of blocks within blocks.
DEPTH = 16

NET = pattern(r"%[^\n]*", "{}()=;|")
DSL = pattern(r"//[^\n]*|/\*.*?(?:\*/|\Z)", "{}()=;")


@dataclass
class Block:
    """The entries of a block: ranges of words, inner blocks, and headed blocks (.dsl nodes)."""

    at: int
    values: dict[str, tuple[int, int]] = field(default_factory=dict)
    inner: dict[str, Block] = field(default_factory=dict)
    # Pairs of a heading and its block.
    headed: list[tuple[str, Block]] = field(default_factory=list)


def _block(words: Words, depth: int = 0) -> Block:
    """Take a block: { key = value; key = { ... }; kind name { ... }; }."""
    if depth > DEPTH:
        raise words.error(f"blocks within blocks, more than {DEPTH} levels")
    words.expect("{")
    block = Block(words.i - 1)
    while words.next != "}":
        key = words.name("an entry or '}'").lower()
        if words.next != "=":
            words.name("'=' or a name")
            block.headed.append((key, _block(words, depth + 1)))
        else:
            words.take()
            if key in block.values or key in block.inner:
                raise words.error(f"a second entry {key[:40]!r} in one block")
            if words.next == "{":
                block.inner[key] = _block(words, depth + 1)
            else:
                block.values[key] = words.to(";")
                continue
        if words.next == ";":
            words.take()
    words.take()
    return block


def _listed(words: Words, block: Block, key: str, what: str) -> list[int]:
    """Return the places of the words of an entry, without parentheses, which must be in pairs."""
    if key not in block.values:
        raise words.error(f"{what} has no entry {key!r}", block.at)
    first, last = block.values[key]
    places, depth = [], 0
    for i in range(first, last):
        word = words.words[i]
        depth += (word == "(") - (word == ")")
        if word not in ("(", ")"):
            places.append(i)
        if depth < 0 or (depth == 0 and i < last - 1 and "(" in words.words[first:last]):
            raise words.error(f"{key!r} of {what} is no list in parentheses", i)
    if depth:
        raise words.error(f"{key!r} of {what} has a parenthesis without its end", first)
    return places


def _names(words: Words, places: list[int], what: str) -> list[str]:
    """Return the names at these places."""
    names = []
    for i in places:
        if (name := unquoted(words.words[i])) is None:
            raise words.error(f"{words.words[i]!r}, expected {what}", i)
        names.append(name)
    return names


def _array(
    words: Words, variables: Variables, family: tuple[int, tuple[int, ...]], places: list[int]
) -> Array:
    """Return the numbers at these places as a conditional of a child and its parents."""
    child, parents = family
    shape = variables.shape((*parents, child))
    if len(places) != math.prod(shape):
        raise words.error(
            f"{len(places)} numbers for variable {list(variables.states)[child]!r}, expected "
            f"{math.prod(shape)}",
            places[0] if places else None,
        )
    return words.numbers([words.words[i] for i in places], places).reshape(shape)


def read_net(text: str) -> Network:
    """Return the network of a Hugin .net text.

    Raises
    ------
    PgmError
        For text in another format, and for nodes without a table. The message begins with the line.

    >>> n = read_net('net {} node a { states = ("u" "v"); } potential (a) { data = (0.25 0.75); }')
    >>> n.states, n.conditionals[0].values
    ((('u', 'v'),), array([0.25, 0.75]))
    """
    words = Words(text, NET)
    variables = Variables()
    potentials: list[tuple[int, list[str], Block]] = []
    words.expect("net")
    _block(words)
    while words.next:
        kind = words.expect("node", "discrete", "potential")
        if kind == "potential":
            potentials.append(_potential(words))
        else:
            if kind == "discrete":
                words.expect("node")
            at = words.i
            name = words.name("the name of a node")
            block = _block(words)
            what = f"node {name!r}"
            places = _listed(words, block, "states", what)
            variables.add(words, name, _names(words, places, f"a state of {what}"), at)
    families: dict[int, Conditional] = {}
    for at, names, block in potentials:
        child, parents = variables.family(words, names, at)
        if child in families:
            raise words.error(f"a second potential of node {names[0]!r}", at)
        places = _listed(words, block, "data", f"the potential of node {names[0]!r}")
        values = _array(words, variables, (child, parents), places)
        families[child] = Conditional(child, parents, values)
    return variables.network(families)


def _potential(words: Words) -> tuple[int, list[str], Block]:
    """Take a potential: its place, the child and its parents, and its block."""
    words.expect("(")
    at = words.i
    names = [words.name("the name of a node")]
    if words.expect("|", ")") == "|":
        names += words.names(")", "a parent")
    return at, names, _block(words)


def read_dsl(text: str) -> Network:
    """Return the network of a .dsl text of early GeNIe.

    Raises
    ------
    PgmError
        For text in another format, and for nodes of a type other than CPT. The message begins with
        the line.

    >>> n = read_dsl(
    ...     "net n { node a { TYPE = CPT; HEADER = { ID = a; }; PARENTS = ();"
    ...     "DEFINITION = { NAMESTATES = (u, v); PROBABILITIES = (0.25, 0.75); }; }; };"
    ... )
    >>> n.states, n.conditionals[0].values
    ((('u', 'v'),), array([0.25, 0.75]))
    """
    words = Words(text, DSL)
    words.expect("net")
    if words.next != "{":
        words.name("the name of the network")
    top = _block(words)
    if words.next == ";":
        words.take()
    if words.next:
        raise words.error("expected the end of the file", words.i)
    variables = Variables()
    nodes = [_node(words, variables, block) for kind, block in top.headed if kind == "node"]
    families: dict[int, Conditional] = {}
    for name, block in nodes:
        what = f"node {name!r}"
        listed = _listed(words, block, "parents", what)
        parents = _names(words, listed, f"a parent of {what}")
        family = variables.family(words, [name, *parents], block.at)
        places = _listed(words, block.inner["definition"], "probabilities", what)
        families[family[0]] = Conditional(*family, _array(words, variables, family, places))
    return variables.network(families)


def _node(words: Words, variables: Variables, block: Block) -> tuple[str, Block]:
    """Add the variable of a node; return its name, and its block."""
    first, last = block.values.get("type", (0, 0))
    if [word.lower() for word in words.words[first:last]] != ["cpt"]:
        kind = " ".join(words.words[first:last])[:40]
        raise words.error(f"a node of type {kind!r}, expected TYPE = CPT", block.at)
    for key in ("header", "definition"):
        if key not in block.inner:
            raise words.error(f"a node has no block {key.upper()!r}", block.at)
    names = _names(words, _listed(words, block.inner["header"], "id", "a node"), "a name")
    if len(names) != 1:
        raise words.error(f"a node has {len(names)} names as its ID, expected 1", block.at)
    what = f"node {names[0]!r}"
    listed = _listed(words, block.inner["definition"], "namestates", what)
    variables.add(words, names[0], _names(words, listed, f"a state of {what}"), block.at)
    return names[0], block
