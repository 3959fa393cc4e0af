"""Input that is malformed: a PgmError that names file and place, one line of the command."""

import json
import os
import zipfile

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from damaged import TOML, answered, without_sum
from extras import extra
from limits import free_memory
from loops import one_test_over

import pgmengine as pgm
from pgmengine.apps import cli

LAYER = {"name": "v", "unit": "Binary", "size": 2}
HUGE = "1" + "0" * 400


def layers(**changed):
    return json.dumps({"layers": [{**LAYER, **changed}]}).replace('"HUGE"', HUGE)


DECLARATIONS = [
    ("[]", r"a table of layers and couplings, not list \[\]"),
    ("null", "a table of layers and couplings, not null"),
    ("3", "a table of layers and couplings, not int 3"),
    ("{", "its declaration cannot be read"),
    ("[" * 100_000 + "]" * 100_000, "lists within lists, more than 64"),
    ('{"layers": ' + "[" * 300 + "]" * 300 + "}", r"layers\[0\]\[0\].*lists within lists"),
    (layers(size=-1), "layer 'v': the size must be an integer of at least 1, not -1"),
    (layers(size=True), "layer 'v': the size must be an integer of at least 1, not True"),
    (layers(size=2**53), f"layer 'v': {2**53} units .* do not fit into memory"),
    (layers(size=2**63), r"layer 'v': the size must be an integer of at most 2\^53, not 92"),
    (layers(size=2.0), "layer 'v': the size must be an integer of at least 1, not 2.0"),
    (layers(size="HUGE"), r"layers\[0\].size: an integer beyond 1e308"),
    (layers(bias="HUGE"), r"layers\[0\].bias: an integer beyond 1e308"),
    (layers(bias=["HUGE", 0]), r"layers\[0\].bias\[0\]: an integer beyond 1e308"),
    (layers(bias=[10**300, 0]), r"layer 'v': bias\[0\] is 1e\+300"),
    (layers(size=9).replace("9", "9" * 5000), "its declaration cannot be read"),
    (layers(states=[{}, []]), "layer 'v': {} cannot be a name of a state"),
    (layers(states=3), "layer 'v': states must be a list of names, not 3"),
    (layers(states=["on"]), "layer 'v': 'on' are not 2 different names"),
    (layers(labels=[{"a": 1}, 2]), "layer 'v': {'a': 1} cannot be a label"),
    (layers(name="\ud800"), r"text that files can hold, not '\\ud800'"),
    (layers(name=["v"]), r"layers\[0\]: layer \['v'\]: every layer needs a name"),
    (layers(unit={}), r"layers\[0\]: layer 'v': every layer needs a name, a unit"),
    (layers(unit="Categorical", k=10**15), "layer 'v': the values .* do not fit into memory"),
    (layers(unit="Categorical", k=10**300), r"Categorical: k must be an integer of at most 2\^53"),
    (layers(unit="Categorical", k="3"), "layer 'v': Categorical: k must be an integer"),
    (layers(unit="Gaussian", sigma=[1]), r"layer 'v': Gaussian: sigma must be a number"),
    (json.dumps({"layers": [LAYER], "couplings": [{"couple": ["v", ["v"]]}]}), r"couplings\[0\]: "),
    (json.dumps({"layers": [LAYER], "couplings": [{"couple": ["v", "w"]}]}), "'w' is unknown"),
    (json.dumps({"layers": [LAYER], "couplings": 3}), "'couplings' must be a list of tables"),
]


@one_test_over(("text", "match"), DECLARATIONS, ids=lambda x: x[:40])
def test_a_declaration_that_is_malformed_is_refused_by_file_and_place(text, match, tmp_path):
    path = tmp_path / "m.safetensors"
    without_sum(path, {}, {"declaration": text})
    with pytest.raises(pgm.PgmError, match=f"^{path}: (.|\n)*{match}"):
        pgm.load(path)
    code, err = answered(["info", path])
    assert code == 2 and err.startswith(f"pgmengine: {path}: ") and err.count("\n") == 1


@one_test_over(
    ("old", "new", "match"),
    [
        ("size = 3", "size = 0x" + "f" * 9000, r"layers\[0\].size: an integer beyond 1e308"),
        ("size = 3", "size = 1" + "0" * 5000, "not a readable TOML file"),
        ("size = 3", "size = -1", "layer 'v': the size must be an integer"),
        ("size = 3", "size = true", "layer 'v': the size must be an integer"),
        ("size = 3", "size = 9007199254740992", "do not fit into memory"),
        ("size = 3", "size = 9223372036854775808", r"of at most 2\^53"),
        ("size = 3", "size = 1979-05-27", r"layers\[0\].size is date"),
        ("size = 3", "size = 3\nx = " + "[" * 100_000, "lists within lists, more than 64"),
        (
            "[[1, 2], [3, 4], [5, 6]]",
            "[[1, 2], [3, 4], [5, 1" + "0" * 350 + "]]",
            r"couplings\[0\].weight\[2\]\[1\]: an integer beyond 1e308",
        ),
        ('["off", "on"]', "[1, {}]", "layer 'v': {} cannot be a name of a state"),
        ("bias = 0.5", "bias = true", r"layers\[0\].bias is bool True, expected a number"),
        ("bias = 0.5", 'bias = "0.5"', r"layers\[0\].bias is str '0.5', expected a number"),
        ("bias = 0.5", "bias = [0.5, true, 1]", r"layers\[0\].bias\[1\] is bool True"),
        ("[3, 4]", '[3, "4"]', r"couplings\[0\].weight\[1\]\[1\] is str '4', expected a number"),
        ("[3, 4]", "[3, 2020-01-01]", r"couplings\[0\].weight\[1\]\[1\] is date"),
        ("bias = 0.5", "bias = 07:32:00", r"layers\[0\].bias is time"),
        ('["a", "b", "c"]', '["a", 1979-05-27, "c"]', r"layers\[0\].labels\[1\] is date"),
        ('["off", "on"]', '["off", 1979-05-27T07:32:00Z]', r"layers\[0\].states\[1\] is datetime"),
        ("bias = 0.5", "bias = 1e-400", "line 6: '1e-400' is a number that double precision"),
        ("[3, 4]", "[3, -1e400]", "line 16: '-1e400' is a number that double precision"),
        ("s = 2", "s = 1e309", "line 12: '1e309' is a number that double precision"),
        ("bias = 0.5", "bais = 0.5", "layer 'v': 'bais' is not an argument .*; did you mean bias?"),
        ("size = 3", "sise = 3", "layer 'v': every layer needs .*; did you mean size?"),
        ('"Binary"', '"Binry"', "unit 'Binry' is unknown.*; did you mean Binary?"),
        ("s = 2", "t = 2", "layer 'h': 't' is not an argument"),
        ("weight =", "wieght =", r"couplings\[0\]: a coupling is .*; did you mean weight?"),
        ("[[couplings]]", "[[coupling]]", "'coupling' belongs to no .*; did you mean couplings?"),
        ("\n[[layers]]", '\nweigths = "w"\n[[layers]]', "'weigths' .*; did you mean weights?"),
        (
            "\n[[layers]]",
            "\nweights = 3\n[[layers]]",
            "weights must be the name of a .safetensors file",
        ),
        ("\n[[layers]]", '\nweights = "a\\u0000b"\n[[layers]]', "has a zero byte"),
    ],
)
def test_toml_that_is_malformed_is_refused_by_file_and_place(old, new, match, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(TOML.replace(old, new, 1))
    with pytest.raises(pgm.PgmError, match=f"^{path}: .*{match}"):
        pgm.load_declaration(path, rng=0)
    code, err = answered(["info", path])
    assert code == 2 and err.startswith(f"pgmengine: {path}: ") and err.count("\n") == 1


WIDE = """
[[layers]]
name = "v"
unit = "Binary"
size = 100000
[[layers]]
name = "h"
unit = "Binary"
size = 100000
[[couplings]]
couple = ["v", "h"]
"""


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (TOML.replace("s = 2", "s = 1000000000"), "layer 'h': the values of MultiValued.*"),
        (
            TOML.replace('"MultiValued"\ns = 2', '"Categorical"\nk = 60000'),
            "layer 'h': the values of Cat.*",
        ),
        (TOML.replace("size = 3", "size = 1000000000"), "layer 'v': 1000000000 units of Binary.*"),
        (WIDE, "coupling 'v-h' of layers 'v' and 'h': the parameters of the model"),
    ],
)
def test_sizes_of_declarations_are_compared_with_free_memory_before_anything_is_built(
    text, match, monkeypatch, tmp_path
):
    """Free memory is a thousandth of the memory that the input would need."""
    free_memory(monkeypatch, 2.0**27)
    for name in ("arange", "eye"):
        monkeypatch.setattr(np, name, limited(getattr(np, name)))
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(
        pgm.PgmError, match=f"{match} do not fit into memory: it needs .* 0.125 GiB are free"
    ):
        pgm.load_declaration(tmp_path / "m.toml")


def limited(function):
    """The function, for small sizes only."""

    def called(size, *rest, **named):
        assert size < 2**20, "was built"
        return function(size, *rest, **named)

    return called


def test_sizes_of_other_input_are_compared_with_free_memory(monkeypatch, tmp_path):
    free_memory(monkeypatch, 2.0**27)
    graph = nx.Graph()
    graph.add_node("x", unit=pgm.Categorical(60000))
    with pytest.raises(pgm.PgmError, match="node 'x': the values of .* do not fit into memory"):
        pgm.GraphBuilder.from_networkx(graph)
    wide = sp.coo_array(([1.0], ([0], [0])), shape=(10**9, 4))
    with pytest.raises(pgm.PgmError, match="with its zeros the sparse matrix does not fit"):
        pgm.infer(pgm.rbm(4, 2, visible=pgm.Gaussian(), rng=0), {"v": wide})
    np.savez_compressed(tmp_path / "e.npz", v=np.zeros(2**25))
    pgm.save(pgm.rbm(4, 2, rng=0), tmp_path / "m.safetensors")
    code, err = answered(["infer", tmp_path / "m.safetensors", "--evidence", tmp_path / "e.npz"])
    assert code == 2 and "e.npz: its arrays do not fit into memory" in err


def bad_files(folder):
    """Evidence that cannot be read, and words that its refusal has."""
    np.savez(folder / "good.npz", v=np.zeros((50, 4)))
    whole = (folder / "good.npz").read_bytes()
    contents = {
        "short.npz": whole[:-30],
        "turned.npz": whole[:200] + bytes([whole[200] ^ 255]) + whole[201:],
        "empty.npz": b"",
        "empty.csv": b"",
        "zero.csv": b"1,0,\0,1\n",
        "long.csv": b"1" * 200_000 + b",0,1,1",
        "uneven.csv": b"1,0,1,1\n1,0\n",
        "word.csv": b"1,0,1,1\n1,no,0,0\n",
        "list.json": b"[1, 2]",
        "deep.json": b"[" * 100_000,
        "huge.json": b'{"v": [1%s, 0, 0, 0]}' % (b"0" * 400),
        "table.json": b'{"v": {"a": 1}}',
        "broken.json": b"{",
        "name.txt": b"1",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    with zipfile.ZipFile(folder / "text.npz", "w") as file:
        file.writestr("v", "no array")
    np.savez(folder / "objects.npz", v=np.array([{}], dtype=object))
    np.savez(folder / "words.npz", v=np.array(["a", "b", "c", "d"]))
    (folder / "folder.csv").mkdir()
    os.mkfifo(folder / "pipe.csv")
    return [
        *contents,
        "text.npz",
        "objects.npz",
        "words.npz",
        "folder.csv",
        "pipe.csv",
        "absent.npz",
    ]


def test_evidence_that_cannot_be_read_is_one_line(tmp_path):
    pgm.save(pgm.rbm(4, 3, rng=0), tmp_path / "m.safetensors")
    for name in bad_files(tmp_path):
        for words in (
            ["infer", tmp_path / "m.safetensors", "--evidence", tmp_path / name],
            ["fit", tmp_path / "m.safetensors", tmp_path / name, tmp_path / "out.safetensors"],
        ):
            code, err = answered(words)
            assert code == 2 and err.count("\n") == 1, (name, err)
            kind = "evidence" if words[0] == "infer" else "data"
            assert f"{kind} file {tmp_path / name}" in err, (name, err)
            assert "layer 'v', index 0: 'a'" in err or name != "words.npz", (name, err)


@one_test_over("value", ["", "abc", "-1", "1.5", "9" * 20, "5000", "\u00b2"])
def test_a_number_of_threads_that_is_none_is_refused(value, monkeypatch, tmp_path):
    from pgmengine.base.work.threads import threads

    monkeypatch.setenv("PGMENGINE_THREADS", value)
    with pytest.raises(pgm.PgmError, match="PGMENGINE_THREADS is .*, expected an integer from 1"):
        threads()
    pgm.save(pgm.rbm(2, 2, rng=0), tmp_path / "m.safetensors")
    code, err = answered(["infer", tmp_path / "m.safetensors"])
    assert code == 2 and err.startswith("pgmengine: PGMENGINE_THREADS is ") and err.count("\n") == 1


def test_paths_that_no_file_can_have(tmp_path):
    m, odd = pgm.rbm(2, 2, rng=0), str(tmp_path / "a\0b")
    x = {"v": np.eye(2)}
    for act in (
        lambda: pgm.load(odd),
        lambda: pgm.load_declaration(odd),
        lambda: pgm.save(m, odd),
        lambda: pgm.fit(m, x, updates=1, checkpoint=odd),
    ):
        with pytest.raises(pgm.PgmError, match=r"a\\x00b': has a zero byte in it"):
            act()
    for act in (lambda: pgm.load(None), lambda: pgm.save(m, 3)):
        with pytest.raises(pgm.PgmError, match="path must be a path"):
            act()
    for words in (
        ["info", odd],
        ["infer", "M", "--evidence", odd + ".csv"],
        ["infer", "M", "--out", odd + ".npz"],
        ["fit", "M", "M", odd],
    ):
        pgm.save(m, tmp_path / "m.safetensors")
        code, err = answered(
            [tmp_path / "m.safetensors" if word == "M" else word for word in words]
        )
        assert code == 2 and "a\\x00b" in err and "has a zero byte in it" in err
        assert err.count("\n") == 1


def test_long_inline_evidence_is_no_file_name(tmp_path):
    pgm.save(pgm.rbm(300, 2, rng=0), tmp_path / "m.safetensors")
    code, err = answered(
        ["infer", tmp_path / "m.safetensors", "--evidence", "v=" + ",".join("1" * 300)]
    )
    assert code == 0, err


def test_names_in_tables_are_not_read_as_styles(tmp_path, capsys):
    import sys

    b = pgm.GraphBuilder()
    b.layer("[/red]:smile:", pgm.Binary(), 2)
    pgm.save(b.build(), tmp_path / "m.safetensors")
    sys.argv = ["pgmengine", "info", str(tmp_path / "m.safetensors")]
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code and "[/red]:smile:" in capsys.readouterr().out


@one_test_over(
    ("node", "edge", "match"),
    [
        ({"baias": 1.0}, {}, "node 'a': attribute 'baias' is unknown; did you mean bias"),
        ({"Bias": 1.0}, {}, "node 'a': attribute 'Bias' is unknown; did you mean bias"),
        ({"weight": 1.0}, {}, "node 'a': attribute 'weight' has no meaning .* belongs to edges"),
        ({"scope": ["b"]}, {}, "node 'a': attribute 'scope' .* with both 'table' and 'scope'"),
        ({}, {"bias": 2.0}, "edge 'a', 'b': attribute 'bias' has no meaning here"),
        ({}, {"wieght": 2.0}, "edge 'a', 'b': attribute 'wieght' is unknown; did you mean weight"),
        ({"states": 3}, {}, "node 'a': states must be a list of names, not 3"),
        ({"states": [[], {}]}, {}, "node 'a': states must be a list of names"),
    ],
)
@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph])
def test_attributes_of_graphs_that_would_be_lost_are_refused(kind, node, edge, match):
    graph = kind()
    graph.add_node("a", **node)
    graph.add_node("b", bias=0.5, unit=pgm.Spin(), states=("down", "up"))
    graph.add_edge("a", "b", **edge)
    with pytest.raises(pgm.PgmError, match=match):
        pgm.GraphBuilder.from_networkx(graph)


def test_columns_that_are_nearly_names_are_not_taken_in_order():
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, labels=["smoke", "lung"])
    b.layer("h", pgm.Binary(), 1)
    b.couple("v", "h")
    m = b.build(rng=0)
    frame = extra("pandas").DataFrame([[1, 0]], columns=["lungs", "smokes"])
    for act in (
        lambda: pgm.infer(m, {"v": frame}),
        lambda: pgm.fit(m, {"v": frame}, updates=1),
        lambda: pgm.infer(m, soft={"v": frame}),
    ):
        with pytest.raises(
            pgm.PgmError, match="column 'lungs' is no unit's name; did you mean lung"
        ):
            act()


def test_data_without_rows_name_their_layer():
    m = pgm.rbm(2, 1, rng=0)
    empty = extra("pandas").DataFrame({("v", 0): [], ("v", 1): []})
    for data in ({"v": np.zeros((0, 2))}, empty):
        with pytest.raises(
            pgm.PgmError, match="data: layer 'v' has no rows, expected at least one"
        ):
            pgm.fit(m, data, updates=1)
        with pytest.raises(pgm.PgmError, match="evidence: layer 'v' has no rows"):
            pgm.infer(m, data)


def test_labels_and_ends_of_couplings_that_are_no_names():
    b = pgm.GraphBuilder()
    with pytest.raises(pgm.PgmError, match="layer 'v': labels must be a list of names, not 5"):
        b.layer("v", pgm.Binary(), 2, labels=5)
    b.layer("v", pgm.Binary(), 2)
    b.couple(["v"], "v")
    with pytest.raises(pgm.PgmError, match=r"a coupling joins layers by their names, not \['v'\]"):
        b.build()
