"""Text of network files that a reader could lose or change in silence is refused by its line."""

import math
import re

import pytest
from loops import one_test_over
from mutations import replaced
from small_networks import BIF, DSL, NET, TEXTS, XDSL, XMLBIF, network, same

import pgmengine as pgm
from pgmengine.base.errors import PgmError
from pgmengine.io.bif import read_bif
from pgmengine.io.formats import read_network
from pgmengine.io.hugin import read_dsl, read_net
from pgmengine.io.xml.xdsl import read_xdsl
from pgmengine.io.xml.xmlbif import read_xmlbif


@one_test_over("opened", ["/*", "/*/", "/* */ /* x", "/* // * /", '/* "', "/***"])
@pytest.mark.parametrize(("read", "text"), [(read_bif, BIF), (read_dsl, DSL)])
def test_a_comment_without_an_end_swallows_nothing(read, text, opened):
    """The rows behind it would be lost: the default row would stand for them."""
    lines = re.sub(r"//.*|/\*(.|\n)*?\*/", "", text).splitlines()
    for k in range(len(lines)):
        marked = "\n".join([*lines[:k], f"{lines[k]} {opened}", *lines[k + 1 :]])
        with pytest.raises(PgmError, match=rf"^line {k + 1}: a comment begins with /\* and has no"):
            read(marked)


@pytest.mark.parametrize(("read", "text"), [(read_bif, BIF), (read_dsl, DSL)])
def test_comments_with_ends_may_stand_anywhere(read, text):
    bare = re.sub(r"//.*|/\*(.|\n)*?\*/", "", text)
    for mark in (" /**/ ", " /* a /* b */ ", " // /* c\n", " /* // */ ", " /***/ "):
        assert same(read(bare.replace(" ", mark)), read(text))
    assert read(bare.replace("yes", '"/*"')).states[0][0] == "/*"


@pytest.mark.parametrize("root", ["BIF", "smile"])
def test_entities_that_nobody_declares_are_refused(root):
    """expat drops them where the file names a document type of its own."""
    read, text = (read_xmlbif, XMLBIF) if root == "BIF" else (read_xdsl, XDSL)
    text = re.sub(r"<!DOCTYPE(.|\n)*?\]>\n", "", text)
    declared = text.replace(f"<{root} ", f'<!DOCTYPE {root} SYSTEM "x.dtd">\n<{root} ', 1)
    assert same(read(declared), network())
    for old, new in (("0.5 0.3", "0.5 &a;0.3"), ("wind", "wind&b;"), ("some", "s&eacute;me")):
        with pytest.raises(PgmError, match=r"line \d+: the entity &\w+; is unknown"):
            read(declared.replace(old, new, 1))
        with pytest.raises(PgmError, match="undefined entity: line"):
            read(text.replace(old, new, 1))
        literal = declared.replace("</", "<!-- &c; --></").replace("0.5 0.3", "<![CDATA[0.5]]> 0.3")
        assert same(read(literal), network())
    assert read(declared.replace("yes", "&lt;5&#33;")).states[0][0] == "<5!"


SHAPED = "( ((0.9 0.1) (0.8 0.2) (0.7 0.3)) ((0.05 0.95) (0.15 0.85) (0.25 0.75)) )"


@one_test_over(
    "data",
    [
        SHAPED,
        SHAPED[2:-2].join("()"),
        "(" + re.sub(r"[()]", " ", SHAPED) + ")",
        re.sub(r"[()]", " ", SHAPED),
        "((0.9 0.1)(0.8 0.2)(0.7 0.3)(0.05 0.95)(0.15 0.85)(0.25 0.75))",
        "((0.9 0.1 0.8 0.2 0.7 0.3)(0.05 0.95 0.15 0.85 0.25 0.75))",
    ],
)
def test_brackets_of_a_net_file_that_fit_the_numbers_of_states(data):
    assert same(read_net(with_data(data)), network())


def with_data(data):
    """The .net text with these data for wet, which has 2 x 3 x 2 entries."""
    changed = re.sub(r"(\| rain wind \)\s*\{\s*data = )[^;]*;", lambda m: f"{m[1]}{data};", NET)
    assert data in changed
    return changed


@one_test_over(
    "data",
    [
        f"({SHAPED})",
        "((0.9 0.1 0.8 0.2)(0.7 0.3 0.05 0.95)(0.15 0.85 0.25 0.75))",
        "((0.9 0.1 0.8)(0.2 0.7 0.3)(0.05 0.95 0.15)(0.85 0.25 0.75))",
        "((0.9 0.1) 0.8 0.2 0.7 0.3 0.05 0.95 0.15 0.85 0.25 0.75)",
        "((0.9 0.1)(0.8 0.2 0.7 0.3)(0.05 0.95 0.15 0.85 0.25 0.75))",
        "((0.9)(0.1)(0.8)(0.2)(0.7)(0.3)(0.05)(0.95)(0.15)(0.85)(0.25)(0.75))",
        "(() 0.9 0.1 0.8 0.2 0.7 0.3 0.05 0.95 0.15 0.85 0.25 0.75)",
        SHAPED.replace("(0.9 0.1) (0.8 0.2)", "(0.9 0.1 0.8 0.2)"),
        SHAPED.replace("(0.9 0.1)", "((0.9) (0.1))"),
    ],
)
def test_brackets_of_a_net_file_that_do_not_fit_are_refused(data):
    with pytest.raises(PgmError, match=r"line 1\d: a list of \d+ numbers does not fit"):
        read_net(with_data(data))


def test_lists_of_names_have_no_lists_in_them():
    for read, text, old in ((read_net, NET, '"yes"'), (read_dsl, DSL, "yes")):
        with pytest.raises(PgmError, match=r"line \d+: '\w+' of node 'rain' has a list within"):
            read(text.replace(old, f"({old})", 1))


TINY = ("1e-400", "0.1e-323", "1E-99999", "4.9e-330", "0." + "0" * 400 + "1")


@one_test_over("number", TINY)
@one_test_over("suffix", TEXTS)
def test_numbers_that_would_become_0_are_refused(suffix, number, tmp_path):
    """Their states would be impossible, though the file says that they are not."""
    path = tmp_path / f"m{suffix}"
    path.write_text(replaced(TEXTS[suffix], "0.05", number))
    with pytest.raises(PgmError, match=rf"^{path}: line \d+.*a number too small for double prec"):
        read_network(path)


@one_test_over("number", ["0", "0.0", "0e5", "0e-400", "00.000E-1", "5e-324"])
@one_test_over("suffix", TEXTS)
def test_numbers_that_are_0_or_fit_are_read(suffix, number, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.write_text(re.sub(r"0\.05([ ,]+)0\.95", rf"{number}\g<1>1", TEXTS[suffix]))
    assert read_network(path).conditionals[2].values[1, 0].tolist() == [float(number), 1.0]


@one_test_over("suffix", TEXTS)
def test_rows_that_are_rounded_further_need_a_tolerance(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    path.write_text(re.sub(r"0\.25([ ,]+)0\.75", r".333\g<1>.666", TEXTS[suffix]))
    where = rf"^{path}: line \d+.*sums? to 0.999, expected 1; give read a tolerance"
    for tolerance in (0.0, 0.0009):
        with pytest.raises(PgmError, match=where):
            pgm.read(path, tolerance)
    assert read_network(path, 0.001001).conditionals[2].values[1, 2].tolist() == [1 / 3, 2 / 3]
    assert same(read_network(path, 0.5), read_network(path, 0.01))
    for wrong in (-0.1, 1, math.nan, "0.1", True, None):
        with pytest.raises(PgmError, match=f"^{path}: tolerance must be a number from 0"):
            pgm.read(path, wrong)
