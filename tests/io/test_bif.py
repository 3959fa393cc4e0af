"""Files of belief networks: .bif, .xmlbif, .net, .dsl and .xdsl."""

import gzip
import re

import numpy as np
import pytest
from loops import one_test_over
from mutations import replaced
from outside import folder
from small_networks import BIF, DSL, NAMES, NET, STATES, TEXTS, drawn, network, same

from pgmengine.base.errors import PgmError
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.bif import read_bif, write_bif
from pgmengine.io.formats import read_network, write_network
from pgmengine.io.hugin import read_dsl, read_net
from pgmengine.io.xml.xdsl import read_xdsl
from pgmengine.io.xml.xmlbif import read_xmlbif

# Variables and arcs of the published networks, counted in the texts.
PUBLISHED = {
    "asia": (8, 8), "cancer": (5, 4), "earthquake": (5, 4), "sachs": (11, 17), "survey": (6, 6),
    "alarm": (37, 46), "barley": (48, 84), "child": (20, 25), "insurance": (27, 52),
    "mildew": (35, 46), "water": (32, 66), "hailfinder": (56, 66), "hepar2": (70, 123),
    "win95pts": (76, 112), "andes": (223, 338), "diabetes": (413, 602), "link": (724, 1125),
    "munin": (1041, 1397), "munin1": (186, 273), "munin2": (1003, 1244), "munin3": (1041, 1306),
    "munin4": (1038, 1388), "pathfinder": (109, 195), "pigs": (441, 592),
}  # fmt: skip
SMALL = {
    "asia",
    "cancer",
    "earthquake",
    "sachs",
    "survey",
    "alarm",
    "child",
    "insurance",
    "win95pts",
}


@pytest.mark.parametrize("suffix", [s for s in TEXTS if s != ".uai"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_every_format_has_the_same_network(suffix, packed, tmp_path):
    path = tmp_path / f"m{suffix}{packed}"
    content = TEXTS[suffix].encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    assert same(read_network(path), network())


def test_rows_in_any_order_default_rows_and_tables_of_a_bif_file():
    rows = BIF[BIF.index("  (yes, none)") :]
    again = "  (no, much) 0.25 0.75;\n  default 0.05, 0.95; (yes, some) 0.8, 0.2;\n}\n"
    values = read_bif(BIF.replace(rows, again)).conditionals[2].values
    assert values[1, 2].tolist() == [0.25, 0.75] and values[0, 1].tolist() == [0.8, 0.2]
    assert (values[..., 0] == 0.05).sum() == 4
    # In a table the child is slowest.
    table = "table 0.9 0.8 0.7 0.05 0.15 0.25 0.1 0.2 0.3 0.95 0.85 0.75; }"
    assert same(read_bif(BIF.replace(rows, table)), network())


def test_names_with_odd_characters_need_no_quotation_marks():
    states = ["<5", "5-12", "12+", ">=7.5", "Asy/Patch", "Transp.", "a:b", "50%", "x'", "ü", "-1e5"]
    text = (
        f"network n {{ }} variable a {{ type discrete [ {len(states)} ]"
        f" {{ {', '.join(states)} }}; }}"
        f"probability ( a ) {{ table {' '.join(['0.0'] * 10)} 1.0; }}"
        "variable b { type discrete [ 1 ] { only }; } probability ( b | a ) { default 1.0; }"
    )
    n = read_bif(text)
    assert n.states[0] == tuple(states) and n.conditionals[1].values.shape == (11, 1)
    assert same(read_bif(write_bif(n)), n)


def test_old_files_without_a_bar_and_with_quotation_marks():
    n = read_bif(replaced(BIF, "( wet | rain, wind )", '("wet" "rain" "wind")'))
    assert same(n, network())


@pytest.mark.parametrize("suffix", [".bif", ".bif.gz"])
def test_a_written_network_is_read_as_the_same(suffix, tmp_path, seed=0):
    rng = np.random.default_rng(seed)
    for n in [network(), *(drawn(rng) for _ in range(20))]:
        write_network(n, tmp_path / f"m{suffix}")
        assert same(read_network(tmp_path / f"m{suffix}"), n)


@one_test_over(
    "name",
    [
        "x y",
        "a,b",
        "(0, 1]",
        "{",
        "a|b",
        "//a",
        "/*",
        "table",
        "property",
        "}",
        "é",
        "=",
        "a=b",
        " ",
    ],
)
def test_names_are_written_in_quotation_marks_where_they_need_them(name):
    n = Network((name, "b"), ((name, "z"),) * 2, ((0, (), [0.1, 0.9]), (1, (0,), np.eye(2))))
    assert same(read_bif(write_bif(n)), n)


@one_test_over("name", ['a"b', "a\nb", "a\rb", "a\0b", "\ud800"])
def test_names_that_a_bif_file_cannot_hold_are_refused(name):
    for n in (
        Network((name,), (("x",),), ((0, (), [1.0]),)),
        Network(("x",), ((name,),), ((0, (), [1.0]),)),
    ):
        with pytest.raises(PgmError, match="the name .*(cannot be written|files can hold)"):
            write_bif(n)


def test_only_directed_networks_are_written_as_bif(tmp_path):
    path = tmp_path / "m.bif"
    n = Network(("a", "b"), (("x", "y"),) * 2, ((0, (), [0.5, 0.5]),), (((1, 0), np.eye(2)),))
    with pytest.raises(PgmError, match=rf"^{path}: the table of \(b, a\) is a potential.*\.uai"):
        write_network(n, path)
    n = Network(("a", "b"), (("x", "y"),) * 2, ((0, (), [0.5, 0.5]),))
    with pytest.raises(PgmError, match="variable b has no conditional"):
        write_network(n, path)
    assert not path.exists()


MALFORMED = [
    (".bif", "network weather", "net weather", r"line 2: 'net', expected 'network'"),
    (".bif", "variable wind", "variabel wind", r"line 9: 'variabel', expected 'variable' or"),
    (".bif", "variable wind", "variable rain", r"line 9: variable 'rain' is declared twice"),
    (".bif", "variable wind", 'variable "wind', r"line 9: '\"', expected the name of a variable"),
    (".bif", "discrete[3]", "continuous[3]", r"line 10: 'continuous', expected 'discrete'"),
    (
        ".bif",
        "discrete[3]",
        "discrete[4]",
        r"line 10: variable 'wind' has 4 states by its type, but",
    ),
    (".bif", "discrete[3]", "discrete[999999999999]", r"line 10: variable 'wind' has 999999999999"),
    (".bif", "none, some, much", "none, some, none", r"line 9: 'none' is a state .*'wind' twice"),
    (".bif", "table 0.2, 0.8", "table 0.2", r"line 17: 1 numbers for variable 'rain', expected 2"),
    (".bif", "table 0.2, 0.8", "table 0.2, -0.8", r"line 17: '-0.8', expected a finite number"),
    (".bif", "table 0.2, 0.8", "table nan, 0.8", r"line 17: 'nan', expected a finite number"),
    (".bif", "table 0.2, 0.8", "table 0.2, inf", r"line 17: 'inf', expected a finite number"),
    (".bif", "table 0.2, 0.8", "table 0.2, 1_0", r"line 17: '1_0', expected a finite number"),
    (".bif", "table 0.2, 0.8;", "table 0.2, 0.8;;", r"line 17: ';', expected a row"),
    (
        ".bif",
        "( wet | rain, wind )",
        "( wet | rain, wnd )",
        r"line 22: variable 'wnd' is not declared; did you mean wind",
    ),
    (".bif", "( wet | rain, wind )", "( wet | rain, wet )", r"line 22: a variable occurs twice"),
    (
        ".bif",
        "probability ( rain )",
        "probability ( wind )",
        r"line 17: 2 numbers for variable 'wind'",
    ),
    (
        ".bif",
        "(yes, none) 0.9",
        "(yes, calm) 0.9",
        r"line 23: 'calm' is not a state of 'wind', expected one of none, some",
    ),
    (
        ".bif",
        "(yes, none) 0.9",
        "(yes) 0.9",
        r"line 23: a row with 1 states of parents, expected 2",
    ),
    (
        ".bif",
        "(yes, none) 0.9",
        "(yes, some) 0.9",
        r"line 24: the row \(yes, some\) is given twice",
    ),
    (
        ".bif",
        "  (no, some) 0.15, 0.85;\n",
        "",
        r"line 22: no row for the states \(no, some\) of the",
    ),
    (".bif", "0.25, 0.75;\n}\n", "0.25, 0.75;\n", r"line 28: the file ends, expected"),
    (".bif", "/* another", "/ another", r"line 12: '/', expected 'type' or 'property' or '}'"),
    (
        ".bif",
        "probability ( wind ) {\n  table 0.5, 0.3, 0.2;\n}\n",
        "",
        "no probability of variable wind is given",
    ),
    (
        ".bif",
        "probability ( rain ) {\n  table",
        "probability ( rain | wet ) {\n  default",
        "directed cycle",
    ),
    (".net", "node wind", "decision wind", r"line 11: 'decision', expected 'node' or"),
    (
        ".net",
        '("none" "some" "much")',
        '("none" "some" "none")',
        r"line 11: 'none' is a state .* twice",
    ),
    (
        ".net",
        "( 0.2 0.8 )",
        "( 0.2 0.8 0.1 )",
        r"line 13: 3 numbers for variable 'rain', expected 2",
    ),
    (".net", "( 0.2 0.8 )", "( 0.2 -0.8 )", r"line 13: '-0.8', expected a finite number"),
    (".net", "( 0.2 0.8 )", "( 0.2 0.8 ", r"line 13: 'data' of .* parenthesis without its end"),
    (".net", "( 0.2 0.8 )", "( 0.2 ) 0.8", r"line 13: 'data' of .* is no list in parentheses"),
    (
        ".net",
        "data = ( 0.2 0.8 );",
        "",
        r"line 13: the potential of node 'rain' has no entry 'data'",
    ),
    (
        ".net",
        "( wet | rain wind )",
        "( wet rain | wind )",
        r"line 15: 'rain', expected '\|' or '\)'",
    ),
    (
        ".net",
        "( wet | rain wind )",
        "( wet | rain win )",
        r"line 15: variable 'win' is not declared",
    ),
    (
        ".net",
        "potential ( rain ) ",
        "potential ( wet ) ",
        r"line 15: a second potential of node 'wet'",
    ),
    (
        ".dsl",
        "TYPE = CPT;\n    HEADER = { ID = rain;",
        "TYPE = NOISY_MAX;\n    HEADER = { ID = rain;",
        r"line 5: a node of type 'NOISY_MAX', expected TYPE = CPT",
    ),
    (".dsl", "PARENTS = (rain, wind)", "PARENTS = (rain, win)", r"variable 'win' is not declared"),
    (
        ".dsl",
        "(none, some, much)",
        "(none, some)",
        r"line 17: 3 numbers for variable 'wind', expected 2",
    ),
    (".dsl", "(0.2, 0.8)", "(0.2, x)", r"line 10: 'x', expected a finite number"),
    (
        ".xmlbif",
        "<BIF VERSION",
        "<BAF VERSION",
        r"line 6: the root element is <baf>, expected <bif>",
    ),
    (
        ".xmlbif",
        '<VARIABLE TYPE="nature">\n  <NAME>rain',
        '<VARIABLE TYPE="utility">\n  <NAME>rain',
        r"line 9: a variable of type 'utility'",
    ),
    (".xmlbif", "<!ELEMENT BIF ( NETWORK )*>", "<!ENTITY a 'b'>", r"line 3: declares an entity"),
    (".xmlbif", "0.5 0.3 0.2", "0.5 0.3", r"line 19: <table> has 2 numbers, expected 3"),
    (".xmlbif", "0.5 0.3 0.2", "0.5 -0.3 0.2", r"line 19: number 2 of <table> is '-0.3'"),
    (".xmlbif", "<GIVEN>wind", "<GIVEN>win", r"line 20: variable 'win' is not declared"),
    (".xmlbif", "<TABLE>0.5 0.3 0.2</TABLE>", "", r"line 19: <definition> has 0 elements <table>"),
    (".xdsl", '<cpt id="rain"', '<decision id="rain"', r"line 4: a node <decision>, expected"),
    (".xdsl", "</smile>", "</smile", "not a readable XML file: unclosed token: line 19"),
    (".xdsl", "rain wind", "rain rain", r"line 12: a variable occurs twice"),
    (
        ".xmlbif",
        "<TABLE>0.5 0.3",
        "<TABLE>0.5 0.<b>3</b>",
        r"line 19: <b> inside <table>, expected",
    ),
    (".xmlbif", "<NAME>rain", "<NAME>ra<i>i</i>n", r"line 10: <i> inside <name>, expected text"),
    (".xmlbif", "<OUTCOME>some", "<OUTCOME><name>x</name>", r"line 13: <name> inside <outcome>"),
    (".xmlbif", "<FOR>wind</FOR>", "<FOR>wind</FOR> 0.5 0.5", r"line 19: the text '0.5 0.5' is"),
    (".xmlbif", "</NETWORK>", "rest</NETWORK>", r"line 27: the text 'rest' is beside elements"),
    (".xmlbif", "<NAME>rain", "<NAME>", r"line 10: <name> has no text, expected a name"),
    (".xmlbif", "<GIVEN>wind", "<GIVEN>", r"line 21: <given> has no text"),
    (
        ".xmlbif",
        'TYPE="nature">\n  <NAME>rain',
        'TYPE="nature"/><A><NAME>rain',
        r"line 9: <variable> is",
    ),
    (".xmlbif", 'TYPE="nature">\n  <NAME>wet', 'type="decision">\n  <NAME>wet', r"type 'decision'"),
    (".xmlbif", 'TYPE="nature">\n  <NAME>wet', 'Type="utility">\n  <NAME>wet', r"type 'utility'"),
    (
        ".xmlbif",
        'TYPE="nature">\n  <NAME>wet',
        'TYPE="a" type="b"><NAME>wet',
        r"one attribute twice",
    ),
    (".xdsl", "0.5 0.3 0.2", "0.5 <i>0.3</i> 0.2", r"line 10: <i> inside <probabilities>"),
    (".xdsl", '<state id="none" />', '<state id="none">x</state>', r"line 9: <state> has the text"),
    (".xdsl", "<nodes>", "<nodes>odd", r"line 4: the text 'odd' is beside elements"),
    (".xdsl", "0.2 0.8", "0.2 0.8x", r"line 6: number 2 of <probabilities> is '0.8x'"),
    (".xdsl", '<state id="none" />', "<state />", r"line 9: <state> has no id, expected a name"),
]


@one_test_over(("suffix", "old", "new", "match"), MALFORMED, ids=lambda x: x[:24])
def test_malformed_files_are_refused_by_file_and_line(suffix, old, new, match, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.write_text(replaced(TEXTS[suffix], old, new))
    with pytest.raises(PgmError, match=f"^{path}: .*{match}"):
        read_network(path)


@pytest.mark.parametrize("suffix", TEXTS)
def test_a_file_that_is_cut_short_anywhere_is_refused(suffix):
    reader = {".bif": read_bif, ".net": read_net, ".dsl": read_dsl, ".xdsl": read_xdsl}
    read = reader.get(suffix, read_xmlbif)
    text = TEXTS[suffix].rstrip()
    # A .net file has ended whenever all potentials have; a .dsl file needs no last semicolon.
    for k in range(0, len(text) - 2, 3):
        with pytest.raises(PgmError):
            read(text[:k])


def test_a_table_of_a_small_text_that_does_not_fit_into_memory():
    text = "network n { }\n"
    for i in range(20):
        text += f"variable x{i} {{ type discrete [ 9 ] {{ a b c d e f g h i }}; }}\n"
    parents = ", ".join(f"x{i}" for i in range(1, 20))
    text += f"probability ( x0 | {parents} ) {{ default {' 0.1' * 8} 0.2; }}"
    with pytest.raises(PgmError, match="line 22: the table of 'x0': it needs .* GiB"):
        read_bif(text)
    with pytest.raises(PgmError, match="line 22: no row for the states"):
        read_bif(text.replace("default", f"({', '.join('a' * 19)})"))


def test_blocks_within_blocks_are_limited():
    for read, text in ((read_net, NET), (read_dsl, DSL)):
        deep = text.replace("{", "{ a = " + "{ a = " * 5000, 1)
        with pytest.raises(PgmError, match="blocks within blocks, more than 16"):
            read(deep)


def test_many_comments_without_an_end_take_no_long_time():
    with pytest.raises(PgmError, match=r"line 1: a comment begins with /\* and has no end"):
        read_bif("network n /* " * 100_000)


def plain(text):
    """An independent reading of a published network: {variable: (states, parents, rows)}."""
    types = dict(re.findall(r"variable (\S+) \{\s*type discrete \[ \d+ \] \{ (.*?) \};", text))
    states = {name: tuple(own.split(", ")) for name, own in types.items()}
    found = {}
    for head, body in re.findall(r"probability \( (.*?) \) \{\n(.*?)\n\}", text, re.DOTALL):
        child, *parents = re.split(r" \| |, ", head)
        rows = {}
        for line in body.splitlines():
            at, numbers = re.fullmatch(r"\s*(?:table|\((.*?)\)) ([^();]*);", line).groups()
            rows[tuple(at.split(", ")) if at else ()] = [float(x) for x in numbers.split(", ")]
        found[child] = (states[child], tuple(parents), rows)
    return states, found


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in SMALL else pytest.mark.long) for n in sorted(PUBLISHED)],
)
def test_published_networks_number_by_number(name):
    path = folder("bnlearn") / f"{name}.bif.gz"
    n, (states, expected) = read_network(path), plain(gzip.decompress(path.read_bytes()).decode())
    assert dict(zip(n.names, n.states)) == states and n.names == tuple(states)
    arcs = sum(len(c.parents) for c in n.conditionals)
    assert (len(n.names), arcs) == PUBLISHED[name] and len(n.conditionals) == len(n.names)
    for c in n.conditionals:
        own, parents, rows = expected[n.names[c.child]]
        assert tuple(n.names[i] for i in c.parents) == parents
        assert c.values.size == len(rows) * len(own)
        index = [{state: k for k, state in enumerate(states[p])} for p in parents]
        for at, row in rows.items():
            place = tuple(index[k][state] for k, state in enumerate(at))
            assert c.values[place].tolist() == row
    assert same(read_bif(write_bif(n)), n)


def pyagrum():
    return pytest.importorskip("pyagrum", reason="pyagrum is not installed: pip install pyagrum")


@one_test_over("suffix", [".bif", ".bifxml", ".net", ".dsl"])
def test_files_that_pyagrum_writes(suffix, tmp_path):
    """Compared with pyAgrum's own network: it writes 6 digits to most formats."""
    gum, path = pyagrum(), str(tmp_path / f"m{suffix}")
    bn = gum.fastBN("a{p|q|r}->b{u|v}<-c{x|y|z};a->d{s|t}<-b")
    bn.generateCPTs()
    gum.saveBN(bn, path)
    n = read_network(path)
    for c in n.conditionals:
        inst, tensor = gum.Instantiation(bn.cpt(n.names[c.child])), bn.cpt(n.names[c.child])
        assert {n.names[i] for i in c.parents} == set(tensor.names[1:])
        for at, value in np.ndenumerate(c.values):
            for i, k in zip((*c.parents, c.child), at):
                inst.chgVal(n.names[i], n.states[i][k])
            assert abs(tensor.get(inst) - value) < 2e-6


def test_xdsl_files_of_agrum_are_refused_because_of_their_order(tmp_path):
    gum, path = pyagrum(), str(tmp_path / "m.xdsl")
    gum.saveBN(gum.fastBN("a[3]->b<-c"), path)
    with pytest.raises(PgmError, match="line 5: written by aGrUM, whose order .* save .*bifxml"):
        read_network(path)


def test_a_table_in_a_bif_file_has_the_order_that_pyagrum_reads(tmp_path):
    gum, path = pyagrum(), str(tmp_path / "m.bif")
    rows = BIF[BIF.index("  (yes, none)") :]
    numbers = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94]
    text = BIF.replace(rows, f"  table {' '.join(map(str, numbers))};\n}}\n")
    (tmp_path / "m.bif").write_text(text.replace("  property position = (1, 2);\n", ""))
    # The tensor belongs to the network, which has to live as long.
    bn = gum.loadBN(path)
    tensor = bn.cpt("wet")
    for at, value in np.ndenumerate(read_bif(text).conditionals[2].values):
        inst = gum.Instantiation(tensor)
        for name, own, k in zip(NAMES, STATES, at):
            inst.chgVal(name, own[k])
        assert abs(tensor.get(inst) - value) < 1e-6
