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

In both formats the state of the first parent changes slowest, then those of the other parents in
order, and the state of the child fastest. In a .net file the inner parentheses of `data` may be
left out; if present, they must fit the numbers of states. Other entries (labels, positions, screen
settings) are skipped. Decisions, utilities, continuous nodes, and tables given by a formula are
refused.

In a .dsl file a parent may follow its children, so all nodes are read before any table.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from pgmengine.base.types import Array
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.file_variables import Variables, check_directed, check_quotable
from pgmengine.io.words import PAIRED_COMMENT, Words, pattern, unquoted

# The largest number of levels of nested blocks.
MAX_BLOCK_DEPTH = 16

# Names that need no quotation marks.
UNQUOTED_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)

NET_WORD = pattern(r"%[^\n]*", "{}()=;|")
DSL_WORD = pattern(r"//[^\n]*|" + PAIRED_COMMENT, "{}()=;")


@dataclass
class Block:
    """The entries of a block: ranges of words, inner blocks, and headed blocks (.dsl nodes)."""

    at: int
    values: dict[str, tuple[int, int]] = field(default_factory=dict)
    inner: dict[str, Block] = field(default_factory=dict)
    # Pairs (heading, block).
    headed: list[tuple[str, Block]] = field(default_factory=list)


def _block(words: Words, depth: int = 0) -> Block:
    """Take a block: { key = value; key = { ... }; kind name { ... }; }."""
    if depth > MAX_BLOCK_DEPTH:
        raise words.error(f"blocks within blocks, more than {MAX_BLOCK_DEPTH} levels")
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


@dataclass(frozen=True)
class List:
    """The words of an entry without its parentheses, and the lists that these enclose."""

    # The places of the words in the text.
    places: list[int]
    # For each depth, from 0 for the outermost list: the place where each list begins, and its
    # number of words.
    levels: list[list[tuple[int, int]]]


def _list(words: Words, block: Block, key: str, what: str) -> List:
    """Return the words of an entry; its parentheses must match, with one pair around all."""
    if key not in block.values:
        raise words.error(f"{what} has no entry {key!r}", block.at)
    first, last = block.values[key]
    enclosed = "(" in words.words[first:last]
    found = List([], [])
    # For each list that is not closed yet: its place, and the number of words before it.
    open_: list[tuple[int, int]] = []
    for i in range(first, last):
        word = words.words[i]
        if word == "(":
            open_.append((i, len(found.places)))
            if len(open_) > len(found.levels):
                found.levels.append([])
        elif word == ")" and open_:
            at, before = open_.pop()
            found.levels[len(open_)].append((at, len(found.places) - before))
        else:
            found.places.append(i)
        if found.places[-1:] == [i] and word == ")" or (not open_ and enclosed and i < last - 1):
            raise words.error(f"{key!r} of {what} is no list in parentheses", i)
    if open_:
        raise words.error(f"{key!r} of {what} has a parenthesis without its end", first)
    return found


def _listed(words: Words, block: Block, key: str, what: str) -> list[int]:
    """Return the places of the words of an entry that is a list without lists inside."""
    found = _list(words, block, key, what)
    if len(found.levels) > 1:
        at, _ = found.levels[1][0]
        raise words.error(f"{key!r} of {what} has a list within the list, expected names", at)
    return found.places


def _check_levels(words: Words, levels: list[list[tuple[int, int]]], sizes: list[int]) -> None:
    """Raise PgmError unless nested lists are the first axes of an array of this shape.

    `sizes` are numbers of entries: first that of the whole array, then that of the part with one
    index fixed, then with two indices fixed, and so on. A level may be left out, but only for all
    entries.
    """
    axis = 0
    for level in levels:
        size = level[0][1]
        odd = next((one for one in level if one[1] != size or size not in sizes[axis:]), None)
        if odd or size * len(level) != sizes[0]:
            at, size = odd or level[0]
            expected = " or ".join(map(str, sizes[axis:])) or "no further list"
            raise words.error(
                f"a list of {size} numbers does not fit the numbers of states, expected lists of "
                f"{expected}, each around all entries below one state",
                at,
            )
        axis += sizes[axis:].index(size) + 1


def _names(words: Words, places: list[int], what: str) -> list[str]:
    """Return the words at these places as names."""
    names = []
    for i in places:
        if (name := unquoted(words.words[i])) is None:
            raise words.error(f"{words.words[i]!r}, expected {what}", i)
        names.append(name)
    return names


def _array(
    words: Words, variables: Variables, family: tuple[int, tuple[int, ...]], found: List
) -> Array:
    """Return the numbers of a list as a conditional of a child and its parents."""
    child, parents = family
    shape = variables.shape((*parents, child))
    places = found.places
    if len(places) != math.prod(shape):
        raise words.error(
            f"{len(places)} numbers for variable {list(variables.states)[child]!r}, expected "
            f"{math.prod(shape)}",
            places[0] if places else None,
        )
    _check_levels(words, found.levels, [math.prod(shape[k:]) for k in range(len(shape))])
    return words.numbers([words.words[i] for i in places], places).reshape(shape)


def read_net(text: str, tolerance: float = 0.0) -> Network:
    """Return the network of a Hugin .net text; `read` describes the tolerance.

    Raises
    ------
    PgmError
        For text in another format, and for nodes without a table. The message begins with the line.

    >>> n = read_net('net {} node a { states = ("u" "v"); } potential (a) { data = (0.25 0.75); }')
    >>> n.states, n.conditionals[0].values
    ((('u', 'v'),), array([0.25, 0.75]))
    """
    words = Words(text, NET_WORD)
    variables = Variables(tolerance)
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
    for at, names, block in potentials:
        family = variables.family(words, names, at)
        if family[0] in variables.families:
            raise words.error(f"a second potential of node {names[0]!r}", at)
        data = _list(words, block, "data", f"the potential of node {names[0]!r}")
        variables.give(words, family, _array(words, variables, family, data), at)
    return variables.network()


def _potential(words: Words) -> tuple[int, list[str], Block]:
    """Take a potential: its place, the child and its parents, and its block."""
    words.expect("(")
    at = words.i
    names = [words.name("the name of a node")]
    if words.expect("|", ")") == "|":
        names += words.names(")", "a parent")
    return at, names, _block(words)


def read_dsl(text: str, tolerance: float = 0.0) -> Network:
    """Return the network of a .dsl text of early GeNIe; `read` describes the tolerance.

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
    words = Words(text, DSL_WORD)
    words.expect("net")
    if words.next != "{":
        words.name("the name of the network")
    top = _block(words)
    if words.next == ";":
        words.take()
    if words.next:
        raise words.error("expected the end of the file", words.i)
    variables = Variables(tolerance)
    nodes = [_node(words, variables, block) for kind, block in top.headed if kind == "node"]
    for name, block in nodes:
        what = f"node {name!r}"
        listed = _listed(words, block, "parents", what)
        parents = _names(words, listed, f"a parent of {what}")
        family = variables.family(words, [name, *parents], block.at)
        data = _list(words, block.inner["definition"], "probabilities", what)
        variables.give(words, family, _array(words, variables, family, data), block.at)
    return variables.network()


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


def write_net(network: Network) -> str:
    """Return the Hugin .net text of a network in which every variable has a conditional.

    Numbers have as many digits as it takes to read the same number again. Names of variables that
    are more than letters, digits and _ are written in quotation marks, which not every program
    reads.

    Raises
    ------
    PgmError
        For a network with tables or with variables without a conditional, and for names with a
        quotation mark or a line break, which the format cannot hold.

    >>> print(write_net(Network(("a",), (("no", "x y"),), ((0, (), [0.1, 0.9]),))))
    net
    {
    }
    node a
    {
      states = ( "no" "x y" );
    }
    potential ( a )
    {
      data = ( 0.1 0.9 );
    }
    <BLANKLINE>
    """
    check_directed(network, ".net")
    names = []
    for name, states in zip(network.names, network.states, strict=True):
        check_quotable(name, "variable", ".net")
        for state in states:
            check_quotable(state, f"state of {name!r}", ".net")
        names.append(name if UNQUOTED_NAME.fullmatch(name) else f'"{name}"')
    lines = ["net", "{", "}"]
    for name, states in zip(names, network.states, strict=True):
        listed = " ".join(f'"{state}"' for state in states)
        lines += [f"node {name}", "{", f"  states = ( {listed} );", "}"]
    for c in network.conditionals:
        given = f" | {' '.join(names[i] for i in c.parents)}" if c.parents else ""
        lines += [
            f"potential ( {names[c.child]}{given} )",
            "{",
            f"  data = {_nested(network.table_of(c))};",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _nested(values: Array) -> str:
    """Return an array as numbers in lists within lists, a row of the child on each line."""
    if values.ndim == 1:
        return f"( {' '.join(map(repr, values.tolist()))} )"
    return "(" + "\n    ".join(_nested(part) for part in values) + ")"
