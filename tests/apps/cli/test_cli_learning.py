"""The command `learn`: the model of pgm.fit, files in every format, and how far to trust it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from damaged import answered
from loops import one_test_over
from typer.testing import CliRunner

import pgmengine as pgm
from pgmengine.apps.cli import app

ASIA = str(pgm.datasets.asia())


def learn(*words, **more):
    found = CliRunner().invoke(app, ["learn", *map(str, words)], **more)
    assert found.exit_code == 0, found.exception
    return found.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows of asia, and the same rows with empty cells and without the column `either`."""
    folder = tmp_path_factory.mktemp("data")
    words = ["sample", ASIA, "--draws", "300", "--seed", "2", "--out", str(folder / "d.csv")]
    assert CliRunner().invoke(app, words).exit_code == 0
    lines = [x.split(",") for x in (folder / "d.csv").read_text().splitlines()]
    for i, line in enumerate(lines[1:]):
        line[i % 5] = ("", "?")[i % 2]
    (folder / "gaps.csv").write_text("".join(f"{','.join(x[:5] + x[6:])}\n" for x in lines))
    return folder


def rows(file):
    head, *lines = [x.split(",") for x in file.read_text().splitlines()]
    columns = zip(*lines, strict=True)
    return {n: [x if x not in ("", "?") else None for x in c] for n, c in zip(head, columns)}


def same(one, other, rtol=1e-9):
    assert all(np.allclose(one.params[n], x, rtol=rtol) for n, x in other.params.items())


@pytest.mark.parametrize("name", ["d.csv", "gaps.csv"])
def test_the_defaults_are_the_ones_of_fit(name, data, tmp_path):
    out = learn(ASIA, data / name, "--out", tmp_path / "m.safetensors")
    truth = pgm.fit(pgm.read(ASIA), rows(data / name), rng=0, progress=False)
    same(pgm.load(tmp_path / "m.safetensors"), truth.model)
    assert repr(truth).splitlines()[0] in out
    after = float(np.mean(pgm.infer(truth, rows(data / name), ("log_prob",)).log_prob))
    before = float(np.mean(pgm.infer(pgm.read(ASIA), rows(data / name), ("log_prob",)).log_prob))
    assert f"log-likelihood of these rows: {after:.6g} nats a row; {before:.6g} before" in out
    if name == "d.csv":
        assert "data: 300 rows, no empty cell\n" in out
        assert "trust: the maximum, by counting complete data" in out
    else:
        assert "data: 300 rows, 300 of 2,100 cells empty; not in the data: either\n" in out
        assert "trust: a local maximum: " in out


def test_settings_are_the_ones_of_fit(data, tmp_path):
    words = ("--optimizer", "EM(pseudocount=3)", "--out", tmp_path / "m.bif", "--json")
    found = json.loads(learn(ASIA, data / "d.csv", *words))
    truth = pgm.fit(
        pgm.read(ASIA), rows(data / "d.csv"), optimizer=pgm.EM(pseudocount=3), progress=False
    )
    same(pgm.read(tmp_path / "m.bif"), truth.model)
    assert found["rows"] == 300 and found["empty_cells"] == 0 and found["updates"] == 1
    assert found["optimizer"] == "EM" and found["file"].endswith("m.bif")
    assert found["log_likelihood"] < 0 and found["log_likelihood_before"] < 0


TABLE = "id,a;b,flag,count,size\nu,x,true,1,0.5\nv,y,False,?,1.5\nw,x,,2,2\nq, y ,TRUE,1,-1e1\n"


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_network_that_edges_declare(separator, tmp_path):
    (tmp_path / "d.csv").write_text(TABLE.replace(",", separator))
    edges, file = "flag -> count, flag -> size", tmp_path / "m.safetensors"
    out = learn("--edges", edges, tmp_path / "d.csv", "--out", file)
    columns = {
        "flag": [True, False, None, True],
        "count": [1, None, 2, 1],
        "size": [0.5, 1.5, 2.0, -10.0],
    }
    truth = pgm.fit(pgm.network(columns, edges), columns, progress=False)
    same(pgm.load(file), truth.model)
    assert "  declared from 4 rows; left out: id, a;b\n" in out
    assert "  flag: False, True; booleans, 1 of 4 cells empty\n" in out
    assert "data: 4 rows, 2 of 12 cells empty\n" in out
    found = learn("--edges", "flag", "-", "--json", "--out", tmp_path / "f.bif", input=TABLE)
    assert json.loads(found)["rows"] == 4


@one_test_over("words, text, message", [
    (["--edges", "a -> c", "d.csv"], "a,b\n1,2\n2,1\n", "'c' is no column of the data"),
    (["--edges", "a", "d.csv"], "a,b\n1,2\n2,1\nNA,3\n", "line 4, column 'a': 'NA' among numbers"),
    (["--edges", "a", "d.csv"], "a,a\n1,2\n", "'a' is the name of two columns"),
    (["--edges", "a", "d.csv"], "a,b\n", "no rows below the names of columns"),
    (["--edges", "a", "d.csv"], "a,b\n1\n", "rows of unequal length: line 2"),
    (["--edges", "a", "d.npz"], "", "expected .csv or .tsv"),
    (["--edges", "a", ASIA, "d.csv"], "a\n1\n", "leave MODEL out"),
    ([ASIA], "", "there are no data"),
])  # fmt: skip
def test_messages_about_edges(words, text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / words[-1].rpartition("/")[2]).write_text(text)
    found = CliRunner().invoke(app, ["learn", *words])
    assert isinstance(found.exception, pgm.PgmError)
    assert message in str(found.exception)


def test_a_trainer_of_an_undirected_model(tmp_path):
    pgm.save(pgm.rbm(16, 4, rng=0), tmp_path / "r.safetensors")
    x = pgm.datasets.bars_and_stripes().x_train
    np.savez(tmp_path / "d.npz", v=x)
    words = ("--negative", "CD(k=2)", "--optimizer", "SGD(0.05)", "--epochs", 4)
    words += ("--batch-size", 10, "--seed", 5)
    place = tmp_path / "out.safetensors"
    out = learn(tmp_path / "r.safetensors", tmp_path / "d.npz", *words, "--out", place)
    truth = pgm.fit(
        pgm.rbm(16, 4, rng=0),
        {"v": x},
        negative=pgm.CD(k=2),
        optimizer=pgm.SGD(0.05),
        epochs=4,
        batch_size=10,
        rng=5,
        progress=False,
    )
    same(pgm.load(place), truth.model)
    assert "not in the data: h" in out and "trust: " in out


def test_the_earlier_name(data, tmp_path):
    words = [ASIA, str(data / "d.csv"), str(tmp_path / "m.safetensors"), "--epochs", "2"]
    found = CliRunner().invoke(app, ["fit", *words, "--rate", "0.01"])
    assert found.exit_code == 0 and "steps: by Adam" in found.stdout
    # The oldest typer that is allowed lists hidden commands in plain help.
    assert [c.hidden for c in app.registered_commands if c.callback.__name__ == "fit"] == [True]


def test_data_from_standard_input(data, tmp_path):
    text = (data / "d.csv").read_text()
    learn(ASIA, "-", "--out", tmp_path / "m.safetensors", input=text.replace(",", "\t"))
    learn(ASIA, data / "d.csv", "--out", tmp_path / "n.safetensors")
    same(pgm.load(tmp_path / "m.safetensors"), pgm.load(tmp_path / "n.safetensors"))


def test_the_file_without_out_is_new(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "wrote asia.learned.safetensors" in learn(ASIA, data / "d.csv")
    before = (tmp_path / "asia.learned.safetensors").read_bytes()
    code, err = answered(["learn", ASIA, data / "d.csv"])
    assert code == 2 and "asia.learned.safetensors exists: name the file" in err
    assert (tmp_path / "asia.learned.safetensors").read_bytes() == before


@one_test_over(
    ("words", "match"),
    [
        (["--out", "m.csv"], "out must end in .safetensors, or in .uai"),
        (["--out", "none/m.bif"], "there is no folder none"),
        (["--optimizer", "EM(pseudocount=-1)"], "pseudocount"),
        (["--optimizer", "PCD"], "expected one of AdaMax, Adam"),
        (["--negative", "EM"], "expected one of AdaptiveSAP"),
        (["--given", "smok"], "smok"),
        (["--epochs", "0"], "Invalid value for '--epochs'"),
    ],
)
def test_mistakes_are_told_before_learning(words, match, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, err = answered(["learn", ASIA, data / "d.csv", *words])
    assert code == 2 and match in err and err.count("\n") == 1
    assert not [*tmp_path.iterdir()]


def test_a_model_that_a_format_cannot_hold_is_refused_before_learning(tmp_path):
    pgm.save(pgm.rbm(16, 4, rng=0), tmp_path / "r.safetensors")
    np.savez(tmp_path / "d.npz", v=np.zeros((5, 16)))
    words = [tmp_path / "r.safetensors", tmp_path / "d.npz", "--out", tmp_path / "r.bif"]
    code, err = answered(["learn", *words])
    assert code == 2 and "r.bif" in err and not (tmp_path / "r.bif").exists()


@pytest.mark.parametrize("json_", [False, True])
def test_findings_are_said_once_and_in_options(json_, caplog, tmp_path):
    """Few rows of few columns: states with names are no classes of which to take fewer."""
    (tmp_path / "few.csv").write_text("smoke,dysp\nyes,yes\nno,no\nyes,no\n")
    words = [ASIA, tmp_path / "few.csv", "--out", tmp_path / "m.bif", *["--json"] * json_]
    words += ["--optimizer", "EM(pseudocount=0)"]
    found = CliRunner().invoke(app, ["learn", *map(str, words)])
    sign = "expects less than one use of"
    assert found.stdout.count(sign) == 1 + json_ and not found.stderr and not caplog.records
    assert "by Fixed (--optimizer)" in found.stdout and "fewer states" not in found.stdout
    assert "=)" not in found.stdout


def test_findings_of_an_interrupted_fit_are_said(monkeypatch, capsys, tmp_path):
    finding = pgm.Finding(pgm.FindingKind.FELL, -1.0, 0.1)
    fitted = pgm.fit(pgm.read(ASIA), {"smoke": ["yes", "no"]}, progress=False)
    stopped = replace(fitted, interrupted=True, findings=(finding,))
    monkeypatch.setattr(pgm, "fit", lambda *_, **__: stopped)
    (tmp_path / "few.csv").write_text("smoke\nyes\nno\n")
    words = ["learn", ASIA, str(tmp_path / "few.csv"), "--out", str(tmp_path / "m.bif")]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 130 and found.stderr.count("fell by 1 nats a row") == 1
