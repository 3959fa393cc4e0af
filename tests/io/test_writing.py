"""Networks written as .net and .xmlbif files, and names that these cannot hold."""

import numpy as np
import pytest
from loops import one_test_over
from small_networks import drawn, network, same

import pgmengine as pgm
from pgmengine.base.errors import PgmError
from pgmengine.declare.networks.tabular import Network
from pgmengine.io.formats import read_network, write_network


@pytest.mark.smoke
@one_test_over("suffix", [".net", ".xmlbif", ".bifxml", ".xmlbif.gz"])
def test_networks_are_written_in_more_formats(suffix, tmp_path, seed=0):
    rng, path = np.random.default_rng(seed), tmp_path / f"m{suffix}"
    for n in [network(), *(drawn(rng) for _ in range(20))]:
        write_network(n, path)
        assert same(read_network(path), n)
    odd = (
        "x y",
        "a,b",
        "(0, 1]",
        "{",
        "a|b",
        "//a",
        "%",
        "=",
        "é",
        "<b>&amp;",
        "]]>",
        "'",
        "-1",
        "node",
    )
    states = (odd, ("no", "%yes"))
    n = Network(odd, (odd, *states[1:] * 13), tuple(roots([14] + [2] * 13)))
    write_network(n, path)
    assert same(read_network(path), n)


def roots(sizes):
    return [(i, (), np.eye(n)[0]) for i, n in enumerate(sizes)]


@pytest.mark.parametrize(
    ("suffix", "names"),
    [
        (".net", ['a"b', "a\nb", "a\rb", "a\0b", "\ud800"]),
        (".xmlbif", ["a\rb", "a\0b", "\ud800", " a", "a\t", "a\x1bb", "\uffff", "\xa0a"]),
    ],
)
def test_names_that_these_formats_cannot_hold_are_refused(suffix, names, tmp_path):
    for name in names:
        for n in (
            Network((name,), (("x",),), ((0, (), [1.0]),)),
            Network(("x",), ((name,),), ((0, (), [1.0]),)),
        ):
            with pytest.raises(PgmError, match="the name .*(cannot be written|files can hold)"):
                write_network(n, tmp_path / f"m{suffix}")
            assert not list(tmp_path.iterdir())


def test_files_of_other_functions_name_the_function(tmp_path):
    model = pgm.rbm(2, 1, rng=0)
    with pytest.raises(PgmError, match="; save writes"):
        pgm.write(model, tmp_path / "m.safetensors")
    with pytest.raises(PgmError, match="; load reads"):
        pgm.read(tmp_path / "m.safetensors")
    with pytest.raises(PgmError, match="; load_declaration reads"):
        pgm.read(tmp_path / "m.toml")
