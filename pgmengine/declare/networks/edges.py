"""The edges of a directed network: pairs, a text such as "rain -> wet <- sprinkler", or a graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pgmengine.base.errors import PgmError, told
from pgmengine.base.names import is_sequence

# The end of a statement, and the arrows in it.
ENDS, ARROWS = re.compile(r"[,;\n]"), re.compile(r"(->|<-)")

EXPECTED = 'expected pairs such as ("rain", "wet"), or a text such as "rain -> wet <- sprinkler"'


def parents_of_edges(given: Any) -> dict[str, list[str]]:
    """Return variable -> its parents, in the order in which the edges name them.

    Parameters
    ----------
    given : a text of statements between commas, semicolons or line breaks, each a chain of names
        and arrows, or a lone name; or a list of pairs (parent, child), of lone names and of
        statements; or a directed graph of networkx.

    Raises
    ------
    PgmError for everything else, with the statement or the number of the pair.
    """
    parents: dict[str, list[str]] = {}
    for chain in _chains(given):
        for name in chain:
            parents.setdefault(name, [])
        for parent, child in zip(chain, chain[1:], strict=False):
            if parent not in parents[child]:
                parents[child].append(parent)
    if not parents:
        raise PgmError(f"there are no edges, {EXPECTED}")
    return parents


def is_edges(given: Any) -> bool:
    """Whether something is meant as edges, and not as data."""
    return isinstance(given, str) or _is_graph(given) or isinstance(given, (list, tuple, set))


def _is_graph(given: Any) -> bool:
    """Whether it is a graph of networkx."""
    return hasattr(given, "is_directed") and hasattr(given, "edges")


def _chains(given: Any) -> Iterator[tuple[str, ...]]:
    """Yield names such that each one is the parent of the next."""
    if isinstance(given, str):
        for statement in filter(str.strip, ENDS.split(given)):
            yield from _of_statement(statement.strip())
        return
    if _is_graph(given):
        if not given.is_directed():
            raise PgmError("the edges are those of an undirected graph, expected a nx.DiGraph")
        given = [*((node,) for node in given.nodes), *given.edges()]
    if not is_sequence(given) or isinstance(given, Mapping):
        raise PgmError(f"the edges are {told(given)}, {EXPECTED}")
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, str) for x in given):
        raise PgmError(
            f"edges: {told(given)} may be one edge or two variables without edges: give "
            f"[{told(given)}], or a text"
        )
    for number, one in enumerate(given):
        if isinstance(one, str):
            yield from _chains(one)
            continue
        pair = tuple(one) if is_sequence(one) else ()
        if len(pair) not in (1, 2) or not all(isinstance(x, str) and x for x in pair):
            raise PgmError(f"edge {number} is {told(one)}, {EXPECTED}")
        yield pair


def _of_statement(statement: str) -> Iterator[tuple[str, ...]]:
    """Yield the chains of a statement, which has arrows of both directions."""
    parts = [part.strip() for part in ARROWS.split(statement)]
    names = parts[::2]
    if bad := [x for x in names if not x or "--" in x or x[0] in "<>-" or x[-1] in "<>-"]:
        raise PgmError(
            f"edges: {told(statement)} has {told(bad[0])} in the place of a name, expected names "
            "between arrows -> or <-, such as rain -> wet <- sprinkler; give pairs for names with "
            "arrows or commas in them"
        )
    yield from ((name,) for name in names[:1])
    for one, arrow, other in zip(names, parts[1::2], names[1:], strict=False):
        yield (one, other) if arrow == "->" else (other, one)
