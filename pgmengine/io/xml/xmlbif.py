"""Belief networks in XMLBIF (.xmlbif, .bifxml).

    <BIF VERSION="0.3"><NETWORK>
      <VARIABLE TYPE="nature"><NAME>wet</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>
      <DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN><TABLE>0.9 0.1 0.05 0.95</TABLE></DEFINITION>
    </NETWORK></BIF>

The state of the first parent changes slowest, then those of the other parents in order, and the
state of the child fastest.
"""

from __future__ import annotations

from unicodedata import category

from pgmengine.base.checks import check_text
from pgmengine.base.errors import PgmError
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.file_variables import Variables, check_directed
from pgmengine.io.xml.markup import Children, add_table, root_of

XMLBIF_CHILDREN: Children = {
    "": frozenset({"bif"}),
    "bif": frozenset({"network"}),
    "network": frozenset({"variable", "definition", "probability"}),
    "variable": frozenset({"name", "outcome", "value"}),
    "definition": frozenset({"for", "given", "table"}),
    "probability": frozenset({"for", "given", "table"}),
}


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
    root = root_of(text, XMLBIF_CHILDREN, "network")
    variables = Variables(tolerance)
    for node in root.all("variable"):
        kind = node.attributes.get("type", "nature")
        if kind.lower() != "nature":
            raise node.error(f"a variable of type {kind[:40]!r}, expected nature")
        states = [outcome.name() for outcome in node.all("outcome", "value")]
        variables.add(node, node.one("name").name(), states, 0)
    for node in root.all("definition", "probability"):
        names = [node.one("for").name(), *(parent.name() for parent in node.all("given"))]
        add_table(node, variables, names, node.one("table"))
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
    # The module of XML for this imports those of the network, which takes 40 ms.
    from html import escape

    check_text(name, f"{what}: the name")
    if name != name.strip() or any(category(x) == "Cc" or x in "\ufffe\uffff" for x in name):
        raise PgmError(
            f"{what}: the name {name!r} cannot be written to a .xmlbif file, which allows no "
            "control characters in names, nor white space at their ends; rename it"
        )
    return escape(name, quote=False)
