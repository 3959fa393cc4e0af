"""Text of files and of users in messages: nothing in it acts on a terminal."""

import json
import pickle

import pytest
from damaged import answered, without_sum
from loops import one_test_over
from small_networks import TEXTS

import pgmengine as pgm
from pgmengine.base.errors import NoSuchName, NotAsked, PgmError, visible
from pgmengine.io.formats import read_evidence, read_network

ODD = ["\x1b[31m", "\x07", "\b\b", "\x7f", "\x9b2J", "\u202e", "\u2028", "\ud800", "\r", "\u200b"]


def unshown(text):
    return [x for x in text if x in "".join(ODD) and not x.isascii() or x < " " or x == "\x7f"]


@one_test_over("odd", ODD, ids=ascii)
def test_every_error_of_the_package_escapes_what_is_not_shown(odd):
    for kind in (PgmError, NoSuchName, NotAsked):
        error = kind(f"variable a{odd}b is unknown")
        assert not unshown(str(error)) and ascii(odd)[1:-1] in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        str(error).encode()


def test_text_that_is_shown_stays():
    for text in ("", "plain", "é ü 漢字 ا", "two\nlines", "a\\x1b", "\xa0\u3000", "🙂"):
        assert visible(text) == text and str(PgmError(text)) == text
    assert str(PgmError()) == "" and str(PgmError(3)) == "3"


@one_test_over("odd", [x for x in ODD if x not in ("\ud800", "\r", "\u2028")], ids=ascii)
@one_test_over("suffix", [s for s in TEXTS if s != ".uai"])
def test_messages_do_not_repeat_control_characters_of_a_file(odd, suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    for old in ("wind", "rain", "0.05", "yes"):
        path.write_text(TEXTS[suffix].replace(old, f"{old}{odd}", 1), encoding="utf-8")
        try:
            read_network(path)
        except PgmError as error:
            assert not unshown(str(error)), ascii(str(error))
            _, printed = answered(["info", path])
            assert not unshown(printed.replace("\n", "")), ascii(printed)


@one_test_over("odd", ODD[:5], ids=ascii)
def test_messages_about_evidence_and_uai_files(odd, tmp_path):
    for name in ("m.uai", "m.evid"):
        (tmp_path / name).write_text(f"1 {odd} 2")
        with pytest.raises(PgmError) as found:
            (read_evidence if name == "m.evid" else read_network)(tmp_path / name)
        assert not unshown(str(found.value))


BAD = "a\ud800"


def declared(name="x", states=("u", "v"), layer="h", labels=None, of_layer=None):
    b = pgm.GraphBuilder()
    b.variable(name, states=states)
    b.conditional(name, (), [0.5, 0.5])
    b.layer(layer, pgm.Binary(), 1, labels=labels, states=of_layer)
    return b.build()


@one_test_over(
    ("named", "match"),
    [
        ({"name": BAD}, "a variable's name must be text that files can hold"),
        ({"states": (BAD, "v")}, "variable 'x': a name of a state must be text"),
        ({"layer": BAD}, "a layer's name must be text"),
        ({"labels": [BAD]}, "layer 'h': a label must be text"),
        ({"labels": [("b", BAD)]}, "layer 'h': a label must be text"),
        ({"of_layer": [BAD, "v"]}, "layer 'h': a name of a state must be text"),
    ],
)
def test_names_with_a_lone_surrogate_are_refused_where_they_are_declared(named, match, tmp_path):
    """They could be neither saved nor printed."""
    with pytest.raises(PgmError, match=f"{match}.*ud800"):
        declared(**named)


@one_test_over("key", ["name", "labels", "states"])
def test_names_with_a_lone_surrogate_in_a_saved_declaration(key, tmp_path):
    layer = {"name": "v", "unit": "Binary", "size": 2, "labels": ["p", "q"], "states": ["a", "b"]}
    layer[key] = BAD if key == "name" else [BAD, "b"]
    path = tmp_path / "m.safetensors"
    without_sum(path, {}, {"declaration": json.dumps({"layers": [layer]})})
    code, printed = answered(["info", path])
    assert code == 2 and "must be text that files can hold" in printed
    printed.encode()
