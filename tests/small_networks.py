"""Small networks with known tables, and the texts of them in every format."""

import numpy as np

from pgmengine.declare.networks.tabular import Network

# p(rain), p(wind), p(wet | rain, wind), with sizes 2, 3 and 2.
RAIN = np.array([0.2, 0.8])
WIND = np.array([0.5, 0.3, 0.2])
WET = np.array([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [[0.05, 0.95], [0.15, 0.85], [0.25, 0.75]]])
NAMES = ("rain", "wind", "wet")
STATES = (("yes", "no"), ("none", "some", "much"), ("yes", "no"))


def network():
    return Network(NAMES, STATES, ((0, (), RAIN), (1, (), WIND), (2, (0, 1), WET)))


def same(a, b, names=True):
    """Whether two networks are equal, to the bit, in the order of their tables."""
    return (
        (not names or (a.names == b.names and a.states == b.states))
        and len(a.conditionals) == len(b.conditionals)
        and len(a.tables) == len(b.tables)
        and all(
            x.child == y.child and x.parents == y.parents and np.array_equal(x.values, y.values)
            for x, y in zip(a.conditionals, b.conditionals)
        )
        and all(
            x.scope == y.scope and np.array_equal(x.values, y.values)
            for x, y in zip(a.tables, b.tables)
        )
    )


def drawn(rng, variables=6, directed=True):
    """A network with odd numbers: conditionals of random parents, or tables of random scopes."""
    names = tuple(f"x{i}" for i in range(variables))
    sizes = rng.integers(1, 4, variables)
    states = tuple(tuple(f"s{k}" for k in range(n)) for n in sizes)
    conditionals, tables = [], []
    for i in range(variables):
        parents = tuple(int(p) for p in rng.permutation(i)[: rng.integers(0, 3)])
        values = rng.random([*(sizes[p] for p in parents), sizes[i]]) ** 20 + 1e-300
        if directed:
            conditionals.append((i, parents, values / values.sum(-1, keepdims=True)))
        else:
            tables.append(((*parents, i), values))
    return Network(names, states, tuple(conditionals), tuple(tables))


UAI = """BAYES
3
2 3 2
3
1 0
1 1
3 0 1 2

2
 0.2 0.8

3
 0.5 0.3 0.2

12
 0.9 0.1
 0.8 0.2
 0.7 0.3
 0.05 0.95
 0.15 0.85
 0.25 0.75
"""

BIF = """// a comment
network weather {
  property author none;
}
variable rain {
  type discrete [ 2 ] { yes, no };
  property position = (1, 2);
}
variable wind {
  type discrete[3] {none, some, much};
}
variable wet { /* another
comment */
  type discrete [ 2 ] { yes, no };
}
probability ( rain ) {
  table 0.2, 0.8;
}
probability ( wind ) {
  table 0.5, 0.3, 0.2;
}
probability ( wet | rain, wind ) {
  (yes, none) 0.9, 0.1;
  (yes, some) 0.8, 0.2;
  (yes, much) 0.7, 0.3;
  (no, none) 0.05, 0.95;
  (no, some) 0.15, 0.85;
  (no, much) 0.25, 0.75;
}
"""

XMLBIF = """<?xml version="1.0" encoding="US-ASCII"?>
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
]>
<BIF VERSION="0.3">
<NETWORK>
<NAME>weather</NAME>
<VARIABLE TYPE="nature">
  <NAME>rain</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME>
</VARIABLE>
<VARIABLE TYPE="nature">
  <NAME>wind</NAME><OUTCOME>none</OUTCOME><OUTCOME>some</OUTCOME><OUTCOME>much</OUTCOME>
</VARIABLE>
<VARIABLE TYPE="nature">
  <NAME>wet</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME>
</VARIABLE>
<DEFINITION><FOR>rain</FOR><TABLE>0.2 <!-- yes --> 0.8</TABLE></DEFINITION>
<DEFINITION><FOR>wind</FOR><TABLE>0.5 0.3 0.2</TABLE></DEFINITION>
<DEFINITION>
  <FOR>wet</FOR><GIVEN>rain</GIVEN><GIVEN>wind</GIVEN>
  <TABLE>
    0.9 0.1 0.8 0.2 0.7 0.3
    0.05 0.95 0.15 0.85 0.25 0.75
  </TABLE>
</DEFINITION>
</NETWORK>
</BIF>
"""

NET = """net
{
  node_size = (80 40);
}
node rain
{
  label = "";
  position = (3 4);
  states = ("yes" "no");
}
node wind { states = ("none" "some" "much"); }
discrete node wet { states = ("yes" "no"); }
potential ( rain ) { data = ( 0.2 0.8 ); } % rain
potential ( wind | ) { data = ( 0.5 0.3 0.2 ); }
potential ( wet | rain wind )
{
  data = ((( 0.9 0.1 )    % yes none
    ( 0.8 0.2 ) ( 0.7 0.3 ))
   (( 0.05 0.95 ) ( 0.15 0.85 ) ( 0.25 0.75 )));
}
"""

DSL = """net weather
{
  HEADER = { ID = weather; NAME = "Weather"; };
  node rain
  {
    TYPE = CPT;
    HEADER = { ID = rain; NAME = "rain"; };
    SCREEN = { POSITION = { CENTER_X = 3; }; };
    PARENTS = ();
    DEFINITION = { NAMESTATES = (yes, no); PROBABILITIES = (0.2, 0.8); };
  };
  node wind
  {
    TYPE = CPT;
    HEADER = { ID = wind; };
    PARENTS = ();
    DEFINITION = { NAMESTATES = (none, some, much); PROBABILITIES = (0.5, 0.3, 0.2); };
  };
  node wet
  {
    TYPE = CPT;
    HEADER = { ID = wet; };
    PARENTS = (rain, wind);
    DEFINITION = {
      NAMESTATES = (yes, no);
      PROBABILITIES = (0.9, 0.1, 0.8, 0.2, 0.7, 0.3, // rain
        0.05, 0.95, 0.15, 0.85, 0.25, 0.75);
    };
  };
};
"""

XDSL = """<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="weather">
  <nodes>
    <cpt id="rain">
      <state id="yes" /><state id="no" />
      <probabilities>0.2 0.8</probabilities>
    </cpt>
    <cpt id="wind">
      <state id="none" /><state id="some" /><state id="much" />
      <probabilities>0.5 0.3 0.2</probabilities>
    </cpt>
    <cpt id="wet">
      <state id="yes" /><state id="no" />
      <parents>rain wind</parents>
      <probabilities>0.9 0.1 0.8 0.2 0.7 0.3 0.05 0.95 0.15 0.85 0.25 0.75</probabilities>
    </cpt>
  </nodes>
  <extensions><genie version="1.0" /></extensions>
</smile>
"""

TEXTS = {
    ".uai": UAI,
    ".bif": BIF,
    ".xmlbif": XMLBIF,
    ".bifxml": XMLBIF,
    ".net": NET,
    ".dsl": DSL,
    ".xdsl": XDSL,
}


def states_drawn(result, name):
    """The states of a variable in the draws of a result for one row, (draws,)."""
    drawn = result.samples[name][:, 0, 0]
    return drawn.argmax(axis=-1) if drawn.ndim > 1 else drawn
