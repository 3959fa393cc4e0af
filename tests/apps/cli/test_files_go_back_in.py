"""Files that `sample` and `infer` write are read as evidence and data."""

import json

import numpy as np
import pytest
from damaged import answered
from loops import one_test_over
from test_cli_by_name import said

import pgmengine as pgm
from pgmengine.apps.reading.inputs import read_evidence
from pgmengine.evidence.evidence import parse_evidence
from pgmengine.infer.question.auto import drawing

STATES = [("lo", 0), "1", "inf", True]


def layers_of(unit, size, labels, named):
    """A layer of this type beside another one."""
    b = pgm.GraphBuilder()
    states = STATES[: len(unit.support)] if named and unit.support is not None else None
    names = {"none": None, "text": ["a", "b", "1"], "mixed": [1, "1", (0, 1)]}[labels]
    b.layer("v", unit, size, labels=names and names[:size], states=states)
    b.layer("h", pgm.Binary(), 2, labels=names and ["1", "a"])
    b.couple("v", "h")
    return b.build(rng=1)


def mixture():
    """Variables with awkward names of states, layers without names, and tables over both."""
    b = pgm.GraphBuilder()
    b.variable("x", states=("a, b", 'say "c"', "NA"))
    b.variable("y", states=("True", "False"))
    b.variable("n", states=3)
    b.variable("v[0]", states=("?", ""))
    b.variable(" z ", states=(" p", "p"))
    b.layer("v", pgm.Binary(), 2)
    b.layer("h", pgm.Categorical(3), 2)
    b.conditional("x", (), [0.2, 0.3, 0.5])
    b.conditional("y", ("x",), [[0.1, 0.9], [0.5, 0.5], [0.7, 0.3]])
    b.conditional("n", ("y",), [[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])
    b.conditional("v[0]", (), [0.5, 0.5])
    b.conditional(" z ", (), [0.4, 0.6])
    b.table(("n", ("h", 1)), np.arange(1.0, 10.0).reshape(3, 3))
    b.couple("v", "h")
    return b.build(rng=2)


UNITS = (
    pgm.Binary(),
    pgm.Spin(),
    pgm.MultiValued(3),
    pgm.MultiValued(float("inf")),
    pgm.Categorical(3),
    pgm.Gaussian(),
)
MODELS = {
    f"{unit} {size} {labels} {named}": (unit, size, labels, named)
    for unit in UNITS
    for size, labels, named in (
        (1, "none", False),
        (3, "none", False),
        (3, "none", True),
        (1, "text", False),
        (3, "mixed", True),
    )
}


def rows_of(model, samples):
    """Draws (draws, rows, ...) as rows, all draws of a row together."""
    layers = model.structure.layers
    return {n: x.swapaxes(0, 1).reshape(-1, layers[n].width) for n, x in samples.items()}


def same(model, files, truth):
    found = parse_evidence(model.structure, read_evidence(model, list(map(str, files))))
    for name, values in truth.items():
        assert found.pattern.observed[name].all(), name
        np.testing.assert_array_equal(found.values[name], values)


@pytest.mark.few(8)
@pytest.mark.parametrize("name", [*MODELS, "mixture"])
def test_draws_are_evidence_and_data(name, tmp_path, capsys):
    model = mixture() if name == "mixture" else layers_of(*MODELS[name])
    pgm.save(model, place := tmp_path / "m.safetensors")
    (tmp_path / "e.json").write_text('{"h": [[0, 1], [1, 1], [0, 0]]}')
    given = {"h": [[0, 1], [1, 1], [0, 0]]}
    for evidence, draws in ((None, 4), (given, 1), (given, 2)):
        words = ["sample", place, "--draws", draws, "--seed", 3]
        words += ["--evidence", tmp_path / "e.json"] if evidence else []
        method = drawing(draws)
        r = pgm.infer(model, evidence or {}, want=("samples",), method=method, rng=3)
        truth = rows_of(model, {n: x[:draws] for n, x in r.samples.items()})
        for suffix in ("csv", "json", "npz"):
            file = tmp_path / f"s.{suffix}"
            said([*words, "--out", file], capsys)
            same(model, [file], truth)
            if (evidence, draws) == (None, 4) and "Gaussian" not in name:
                said(["infer", place, "--evidence", file, "--want", "log_prob"], capsys)
                words_of_fit = ["fit", place, file, tmp_path / "f.safetensors", "--epochs", 1]
                said(words_of_fit, capsys)


def test_answers_of_infer_are_evidence(tmp_path, capsys):
    """Draws and modes are states of units; other answers beside them are left out."""
    model = mixture()
    pgm.save(model, place := tmp_path / "m.safetensors")
    r = pgm.infer(model, want=("mode",))
    for suffix in ("json", "npz"):
        file = tmp_path / f"a.{suffix}"
        said(["infer", place, "--want", "mode,log_z", "--out", file], capsys)
        same(model, [file], {n: x.reshape(1, -1) for n, x in r.mode.items()})
        said(["infer", place, "--want", "samples,marginals", "--out", file], capsys)
        rows = pgm.infer(model, want=("samples", "marginals"), rng=0).samples
        same(model, [file], rows_of(model, rows))
        said(["infer", place, "--want", "samples,mode", "--out", file], capsys)
        with pytest.raises(pgm.PgmError, match="both samples and mode"):
            read_evidence(model, [str(file)])


@pytest.mark.parametrize("states", [3, ("0", "1", "2")])
def test_rows_of_files_are_never_one_hot_rows(states, tmp_path):
    """The columns of a file tell that its values are rows."""
    b = pgm.GraphBuilder()
    b.variable("x", states=states)
    b.conditional("x", (), [0.2, 0.3, 0.5])
    model, row = b.build(), [0, 1, 0]
    (tmp_path / "e.csv").write_text("x\n0\n1\n0\n")
    np.savez(tmp_path / "e.npz", x=np.array(row))
    (tmp_path / "e.evid").write_text("3\n1 0 0\n1 0 1\n1 0 0\n")
    for file in ("e.csv", "e.npz", "e.evid"):
        same(model, [tmp_path / file], {"variables3": np.eye(3)[row]})
    found = pgm.infer(model, pgm.read_evidence(tmp_path / "e.evid", model)).marginal("x")
    np.testing.assert_array_equal(list(found.values()), np.eye(3)[row].T)
    (tmp_path / "e.json").write_text(json.dumps({"x": row}))
    with pytest.raises(pgm.PgmError, match="may be a one-hot row"):
        pgm.infer(model, read_evidence(model, [str(tmp_path / "e.json")]))
    (tmp_path / "e.json").write_text(json.dumps({"x": [row]}))
    with pytest.raises(pgm.PgmError, match="may be a one-hot row, or one draw in each of 3 rows"):
        read_evidence(model, [str(tmp_path / "e.json")])


@one_test_over(
    ("states", "right"),
    [
        ((1, "1"), False),
        ((True, "True"), False),
        ((("a", 1), "('a', 1)"), False),
        ((0, True), True),
    ],
)
def test_states_that_text_does_not_tell_apart_are_not_written(states, right, tmp_path):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, states=states)
    pgm.save(b.build(), place := tmp_path / "m.safetensors")
    for suffix in ("csv", "json", "npz"):
        code, err = answered(["sample", place, "--out", tmp_path / f"s.{suffix}"])
        assert code == (0 if right else 2)
        assert right or "would be the text" in err
        assert (tmp_path / f"s.{suffix}").exists() is right
    # Displays are not read again.
    for words in (["sample", place], ["infer", place, "--want", "mode"]):
        assert answered(words)[0] == 0


def test_rows_of_named_states_of_the_first_layer(tmp_path):
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 2, states=("inf", "low"))
    model = b.build()
    for text, rows in (("low,inf\ninf,inf\n", [[1, 0], [0, 0]]), ("inf,inf\n", [[0, 0]])):
        (tmp_path / "e.csv").write_text(text)
        same(model, [tmp_path / "e.csv"], {"v": rows})
    (tmp_path / "e.csv").write_text("low,\n?, inf\n")
    found = read_evidence(model, [str(tmp_path / "e.csv")])
    seen = parse_evidence(model.structure, found)
    np.testing.assert_array_equal(seen.pattern.observed["v"], [[True, False], [False, True]])
    np.testing.assert_array_equal(seen.values["v"], [[1, 0], [0, 0]])


def test_draws_on_the_terminal_have_the_names_of_states(tmp_path, capsys):
    b = pgm.GraphBuilder()
    b.layer(
        "v", pgm.Categorical(3), 2, bias=[[50.0, 0, 0], [0, 0, 50.0]], states=("a", "b", ("c", 1))
    )
    b.layer("h", pgm.Spin(), 1, bias=[50.0])
    pgm.save(b.build(), tmp_path / "m")
    assert said(["sample", tmp_path / "m", "--draws", 1], capsys) == "v=a,('c', 1)  h=1\n"
    shown = said(["infer", tmp_path / "m", "--want", "mode"], capsys)
    assert "'a' \"('c', 1)\"" in shown
