"""Belief networks of GeNIe (.xdsl).

    <smile version="1.0"><nodes>
      <cpt id="wet"><state id="yes"/><state id="no"/><parents>rain</parents>
        <probabilities>0.9 0.1 0.05 0.95</probabilities></cpt>
    </nodes></smile>

There are four kinds of nodes. In all of them the state of the first parent changes slowest, then
those of the other parents in order, and the state of the child fastest.

    cpt             <probabilities>: a row of probabilities for each joint state of the parents
    deterministic   <resultingstates>: the name of the child's state for each of them
    noisymax        <parameters>: a column for each state of each parent, then the leak. The columns
                    of a parent are in the order of <strengths>, which lists its states from the
                    strongest to the one without effect (without <strengths>, in their own order).
                    The states of the child are in descending order, and the last one means that
                    there is no effect. The parameters are those of Diez, without the leak.
    noisyadder      <parameters>: the same columns, in the order of the states. The child has their
                    average, with <weights> of the parents and of the leak.

A noisymax or noisyadder is read as a gate, which is not expanded. aGrUM (pyAgrum) writes the first
parent as the fastest one, so that GeNIe and aGrUM read different networks from one file. Its files
name it as the application, and are refused.

References: Diez (1993), noisymax; Zagorecki (2010), noisyadder.
"""

from __future__ import annotations

import math
import re

import numpy as np

from pgmengine.base.errors import PgmError
from pgmengine.base.names import nearest
from pgmengine.base.types import Array
from pgmengine.declare.networks.tabular import Conditional, Network
from pgmengine.declare.values.forms import Axis, Form
from pgmengine.declare.values.noisy_forms import NoisyAverage, NoisyExtreme
from pgmengine.io.file_variables import Variables
from pgmengine.io.xml.markup import Children, Element, add_table, root_of
from pgmengine.model.tables import as_printed, wrong_row

XDSL_CHILDREN: Children = {
    "": frozenset({"smile"}),
    "smile": frozenset({"nodes"}),
    "nodes": frozenset({"cpt", "deterministic", "noisymax", "noisyadder"}),
    "cpt": frozenset({"state", "parents", "probabilities"}),
    "deterministic": frozenset({"state", "parents", "resultingstates"}),
    "noisymax": frozenset({"state", "parents", "strengths", "parameters"}),
    "noisyadder": frozenset(
        {"state", "parents", "dstates", "weights", "function", "parameters", "property"}
    ),
}

# The element by which a .xdsl file of aGrUM names its application.
AGRUM_APP = re.compile(r'<genie\b[^>]*\bapp="aGrUM')

# The texts of <function> that mean an average.
NAMES_OF_AVERAGE = ("average", "0")


def read_xdsl(text: str, tolerance: float = 0.0) -> Network:
    """Return the network of a GeNIe .xdsl text; `read` describes the tolerance.

    Raises
    ------
    PgmError
        For text in another format, and for nodes of other kinds, such as decisions and equations.
        The message begins with the line.

    >>> n = read_xdsl(
    ...     '<smile><nodes><cpt id="a"><state id="u"/><state id="v"/>'
    ...     "<probabilities>0.25 0.75</probabilities></cpt></nodes></smile>"
    ... )
    >>> n.states, n.conditionals[0].values
    ((('u', 'v'),), array([0.25, 0.75]))
    """
    root = root_of(text, XDSL_CHILDREN, "nodes")
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
        _add(node, variables, [node.name("id"), *parents])
    return variables.network()


def _add(node: Element, variables: Variables, names: list[str]) -> None:
    """Add the conditional of a node; `names` are the child and its parents."""
    if node.tag == "cpt":
        add_table(node, variables, names, node.one("probabilities"))
        return
    # A gate has no array with an axis for each parent.
    most = None if node.tag == "deterministic" else math.inf
    child, parents = variables.family(node, names, 0, most)
    if node.tag == "deterministic":
        variables.give(node, (child, parents), _deterministic(node, variables, names), 0)
        return
    form = _noisy_max if node.tag == "noisymax" else _noisy_adder
    axes = [
        Axis(name, len(variables.states[name]), tuple(variables.states[name])) for name in names
    ]
    what = f"the {node.tag} of {names[0]!r}"
    try:
        gate = form(node, axes, variables.tolerance).resolved([*axes[1:], axes[0]], True, what)
    except PgmError as error:
        raise error if str(error).startswith("line ") else node.error(str(error)) from None
    variables.families[child] = Conditional(child, parents, gate)


def _deterministic(node: Element, variables: Variables, names: list[str]) -> Array:
    """Return the conditional of a child whose state follows from those of its parents."""
    child, *parents = names
    states = {state: k for k, state in enumerate(variables.states[child])}
    results = node.one("resultingstates")
    words = results.text.split()
    shape = tuple(len(variables.states[name]) for name in parents)
    if len(words) != math.prod(shape):
        raise results.error(
            f"<resultingstates> has {len(words)} states, expected {math.prod(shape)}, the number "
            "of joint states of the parents"
        )
    if wrong := [word for word in words if word not in states]:
        raise results.error(
            f"{wrong[0][:40]!r} is no state of {child!r}{nearest(wrong[0][:40], states)}"
        )
    chosen = np.array([states[word] for word in words], dtype=np.int64)
    return np.eye(len(states))[chosen].reshape(*shape, len(states))


def _noisy_max(node: Element, axes: list[Axis], tolerance: float) -> Form:
    """Return a noisymax: the smallest state, because the strongest state is the first one."""
    tables, leak = _columns(node, axes, tolerance)
    orders = _strengths(node, axes[1:])
    placed = list[Array]()
    for table, order in zip(tables, orders, strict=True):
        # Column i belongs to state order[i].
        placed.append(table[np.argsort(order)])
    return NoisyExtreme(tuple(placed), leak, largest=False)


def _strengths(node: Element, parents: list[Axis]) -> list[list[int]]:
    """Return the states of each parent from the strongest to the one without effect."""
    counts = [parent.count for parent in parents]
    if not (given := node.all("strengths")):
        return [list(range(count)) for count in counts]
    numbers = _whole_numbers(given[0], sum(counts), "a number for each state of each parent")
    ends = np.cumsum([0, *counts]).tolist()
    orders = [numbers[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]
    for parent, order in zip(parents, orders, strict=True):
        if sorted(order) != list(range(parent.count)):
            raise given[0].error(
                f"the strengths of {parent.name!r} are {order}, expected each of 0 to "
                f"{parent.count - 1} once"
            )
    return orders


def _noisy_adder(node: Element, axes: list[Axis], tolerance: float) -> Form:
    """Return a noisyadder that is an average; other functions are refused."""
    for function in node.all("function"):
        if function.text.lower() not in NAMES_OF_AVERAGE:
            raise function.error(
                f"a noisyadder with the function {function.text[:40]!r}, expected average"
            )
    tables, leak = _columns(node, axes, tolerance)
    weights = node.one("weights").numbers((len(axes),), "for each parent, and for the leak")
    return NoisyAverage(tuple(tables), tuple(weights.tolist()), leak)


def _columns(node: Element, axes: list[Axis], tolerance: float) -> tuple[list[Array], Array]:
    """Return the distributions of the child for each state of each parent, and for the leak."""
    child, *parents = axes
    counts = [parent.count for parent in parents]
    element = node.one("parameters")
    shape = (sum(counts) + 1, child.count)
    meaning = "a column for each state of each parent, and one for the leak"
    columns = element.numbers(shape, meaning)
    if (wrong := wrong_row(columns, tolerance)) is not None:
        (column,), total = wrong
        raise element.error(
            f"column {column + 1} of <parameters> sums to {total:.9g}, expected 1; give read a "
            "tolerance if the entries are rounded to few digits"
        )
    columns = as_printed(columns, tolerance)
    tables = np.split(columns, np.cumsum(counts))
    return tables[:-1], columns[-1]


def _whole_numbers(element: Element, count: int, meaning: str) -> list[int]:
    """Return the whole numbers in the text of an element."""
    words = element.text.split()
    if len(words) != count or not all(w.isascii() and w.isdigit() for w in words):
        raise element.error(
            f"<{element.tag}> is {element.text[:40]!r}, expected {count} whole numbers, {meaning}"
        )
    return [int(word[:20]) for word in words]
