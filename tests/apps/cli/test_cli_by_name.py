"""The command line on models with named variables: files of the field, evidence by name."""

import csv
import json

import numpy as np
import pytest
from damaged import answered
from loops import one_test_over
from small_networks import TEXTS

import pgmengine as pgm
from pgmengine.apps import cli


@pytest.fixture
def bif(tmp_path):
    path = tmp_path / "m.bif"
    path.write_text(TEXTS[".bif"])
    return path


def said(words, capsys):
    """The output of a command that succeeds."""
    import sys

    before, sys.argv = sys.argv, ["pgmengine", *map(str, words)]
    try:
        cli.main()
    except SystemExit as stop:
        assert not stop.code
    finally:
        sys.argv = before
    return capsys.readouterr().out


def test_info_lists_variables_with_states_and_parents(bif, capsys):
    out = said(["info", bif], capsys)
    assert "none, some, much" in out and "rain, wind" in out
    assert "Bayesian network: 3 variables, 2 arrows, " in out


def test_marginals_and_the_mode_by_name(bif, capsys):
    out = said(["infer", bif, "--evidence", "wet=yes", "--want", "marginals,mode"], capsys)
    answer = pgm.infer(pgm.read(bif), {"wet": "yes"}, want=("marginals", "mode"))
    shares = ", ".join(f"{state}={p:.4g}" for state, p in answer.marginal("wind").items())
    assert f"wind: {shares}; mode {answer.assignment()['wind']}" in out.splitlines()


def test_evidence_by_name_goes_to_files_of_answers(bif, tmp_path, capsys):
    words = ["infer", bif, "--evidence", "wet=yes", "--want", "marginals,mode"]
    said([*words, "--out", tmp_path / "o.json"], capsys)
    found = json.loads((tmp_path / "o.json").read_text())
    truth = pgm.infer(pgm.read(bif), {"wet": "yes"}, want=("marginals", "mode"))
    for name in truth.target.model.variables:
        states = dict(zip(found[f"states.{name}"], found[f"prob.{name}"], strict=True))
        assert states == truth.marginal(name)
        assert found[f"mode.{name}"] == truth.assignment()[name]
        assert found[f"mean.{name}"] == found[f"prob.{name}"]
    assert not any("variables" in key for key in found)
    said([*words, "--out", tmp_path / "o.npz"], capsys)
    with np.load(tmp_path / "o.npz") as arrays:
        assert str(arrays["mode.wind"]) == found["mode.wind"]


def test_samples_of_variables_go_to_files_by_name(bif, tmp_path, capsys):
    words = ["--draws", 5, "--evidence", "wind=some", "--out", tmp_path / "o.json"]
    said(["sample", bif, *words], capsys)
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["wind"] == [["some"]] * 5
    assert set(found) == {"rain", "wind", "wet"} and len(found["rain"]) == 5


@one_test_over(
    ("name", "text"),
    [
        ("e.json", '{"wet": ["yes", "no", null], "wind": ["much", "some", "none"]}'),
        ("e.csv", "wet,wind\nyes,much\nno,some\n,none\n"),
        ("e.csv", " wet , wind\nyes, much\n no ,some\n?,none\n"),
        ("e.csv", "\ufeffwet,wind\nyes,much\nno,some\n,none\n"),
        ("e.json", '\ufeff{"wet": ["yes", "no", null], "wind": ["much", "some", "none"]}'),
    ],
)
def test_files_of_states_by_name(name, text, bif, tmp_path, capsys):
    (tmp_path / name).write_text(text)
    out = said(["infer", bif, "--evidence", tmp_path / name], capsys)
    given = {"wet": ["yes", "no", None], "wind": ["much", "some", "none"]}
    truth = pgm.infer(pgm.read(bif), given).marginal("rain")
    for row in range(3):
        shares = ", ".join(f"{state}={p[row]:.4g}" for state, p in truth.items())
        assert f"row {row}, rain: {shares}" in out.splitlines()


def test_files_of_answers_number_states_without_names(tmp_path, capsys):
    b = pgm.GraphBuilder()
    b.variable("x", states=3)
    b.conditional("x", (), [0.2, 0.3, 0.5])
    pgm.save(b.build(), tmp_path / "m")
    said(["infer", tmp_path / "m", "--out", tmp_path / "o.json"], capsys)
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["states.x"] == [0, 1, 2]
    assert found["prob.x"] == pytest.approx([0.2, 0.3, 0.5])


def test_states_of_a_layer_of_variables_in_a_json_file(bif, tmp_path, capsys):
    (tmp_path / "e.json").write_text('{"variables2": ["yes", null]}')
    first = pgm.read(bif).structure.layers["variables2"].labels[0]
    out = said(["infer", bif, "--evidence", tmp_path / "e.json"], capsys)
    assert out == said(["infer", bif, "--evidence", f"{first}=yes"], capsys)


def test_a_state_in_a_json_file(bif, tmp_path, capsys):
    (tmp_path / "e.json").write_text('{"wet": "yes"}')
    out = said(["infer", bif, "--evidence", tmp_path / "e.json"], capsys)
    assert out == said(["infer", bif, "--evidence", "wet=yes"], capsys)


def test_a_network_learns_from_a_table_of_names(bif, tmp_path, capsys):
    (tmp_path / "d.csv").write_text("wind,rain,wet\n" + "some,yes,\n" * 3 + "much,no,\n")
    out = tmp_path / "m.safetensors"
    said(["fit", bif, tmp_path / "d.csv", out, "--epochs", 500, "--rate", 0.05], capsys)
    assert abs(pgm.infer(pgm.load(out)).marginal("rain")["yes"] - 0.75) < 0.02


def test_names_that_are_numbers(tmp_path, capsys):
    (tmp_path / "m.uai").write_text(TEXTS[".uai"])
    (tmp_path / "e.csv").write_text("2,1\n0,2\n")
    out = said(["infer", tmp_path / "m.uai", "--evidence", tmp_path / "e.csv"], capsys)
    for state, p in (
        pgm.infer(pgm.read(tmp_path / "m.uai"), {"2": ["0"], "1": ["2"]}).marginal("0").items()
    ):
        assert f"{state}={p[0]:.4g}" in out
    # The layer of the variables with two states, "0" and "2".
    (tmp_path / "e.csv").write_text("0,1\n0,1\n")
    b = pgm.GraphBuilder()
    for name in "01":
        b.variable(name)
    pgm.save(b.build(), tmp_path / "m")
    code, err = answered(["infer", tmp_path / "m", "--evidence", tmp_path / "e.csv"])
    assert code == 2 and "line 1 may be names of variables, or values of layer" in err


@pytest.fixture
def mixed(tmp_path):
    b = pgm.GraphBuilder()
    b.variable("b=c", states=("x=1", "x=2"))
    b.layer("h", pgm.Binary(), 2)
    b.table(("b=c", ("h", 1)), [[1.0, 2.0], [3.0, 4.0]])
    pgm.save(b.build(), tmp_path / "mixed")
    return tmp_path / "mixed"


def test_answers_of_layers_are_shown_beside_variables(mixed, capsys):
    out = said(["infer", mixed], capsys)
    assert "b=c: x=1=0.3, x=2=0.7" in out and "mean.h: [0.5 0.6]" in out
    lines = said(["sample", mixed, "--draws", 3], capsys).splitlines()
    assert lines[0].split("\t") == ["b=c", "h[0]", "h[1]"] and len(lines) == 4
    assert {line.split("\t")[0] for line in lines[1:]} <= {"x=1", "x=2"}


def test_equals_signs_in_names(mixed, capsys):
    assert "b=c: x=1=0, x=2=1" in said(["infer", mixed, "--evidence", "b=c=x=2"], capsys)
    assert "1 of 3 units observed" in said(["explain", mixed, "--evidence", "b=c = x=1"], capsys)
    assert "mean.h: [1. 0.5714]" in said(
        ["infer", mixed, "--evidence", "h=1,?", "--evidence", "b=c=x=2"], capsys
    )


def test_info_of_models_with_arrows_and_layers(mixed, tmp_path, capsys):
    b = pgm.GraphBuilder()
    b.variable("rain")
    b.variable("wet")
    b.cause("rain", "wet", weight=[[2.0]])
    pgm.save(b.build(), tmp_path / "m")
    out = said(["info", tmp_path / "m"], capsys)
    assert "2 variables, 1 arrow, 3 parameters" in out and "rain->wet.weight" in out
    assert ["wet", "0,", "1", "rain"] in [line.split() for line in out.splitlines()]
    assert "unit or states" in said(["info", mixed], capsys)


def test_samples_have_a_column_for_each_variable(bif, capsys):
    out = said(["sample", bif, "--draws", 7, "--evidence", "wind=some"], capsys)
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0] == ["rain", "wind", "wet"] and len(lines) == 8
    assert {line[1] for line in lines[1:]} == {"some"}


def test_explain_counts_what_is_observed(bif, capsys):
    assert "1 of 3 units observed" in said(["explain", bif, "--evidence", "wet=no"], capsys)


def test_evidence_of_a_file(tmp_path, capsys):
    (tmp_path / "m.uai").write_text(TEXTS[".uai"])
    (tmp_path / "m.uai.evid").write_text("1 2 0\n")
    words = ["infer", tmp_path / "m.uai", "--evidence", tmp_path / "m.uai.evid"]
    assert "2: 0=1, 1=0" in said(words, capsys)


def test_variables_that_are_layers_take_names_of_states(tmp_path, capsys):
    b = pgm.GraphBuilder()
    b.variable("rain", states=("no", "yes"))
    b.variable("wind", states=("none", "some", "much"))
    b.couple("rain", "wind", weight=[[1.0, 2.0, 3.0]])
    model = b.build()
    pgm.save(model, tmp_path / "m")
    for evidence in ({"rain": "yes"}, {"wind": "much"}, {"wind": "some"}, {"rain": "?"}):
        ((name, state),) = evidence.items()
        other = "wind" if name == "rain" else "rain"
        out = said(["infer", tmp_path / "m", "--evidence", f"{name}={state}"], capsys)
        given = {} if state == "?" else {name: [state]}
        truth = np.ravel(pgm.infer(model, given).prob[other])
        assert all(f"={p:.4g}" in out for p in truth)


@one_test_over(
    ("evidence", "match"),
    [
        ("wet=yes,rain=no", "give the option --evidence once for each variable"),
        ("wet=yess", "'yess' is no state, expected one of 'yes', 'no'; did you mean yes"),
        ("wet=1", "'1' is no state, expected one of 'yes', 'no'"),
        ('{"wet": 1}', "variable 'wet': 1 is no state, .* for number 1 give 'no'"),
        ("wet\n1", "line 2, column 'wet': '1' is no state, expected one of 'yes', 'no'"),
        ("wett=yes", "'wett' is unknown.*did you mean 'wet'"),
        ('{"wet": "maybe"}', "variable 'wet': 'maybe' is no state, expected one of 'yes', 'no'"),
        ('{"wet": ["yes", 7]}', "variable 'wet', row 1: 7 is no state"),
        ('{"wett": "yes"}', "'wett' is unknown.*did you mean 'wet'"),
        ('{"wet": "yes", "wet": "no"}', "the name 'wet' occurs twice"),
        (
            '{"variables2": ["maybe", null]}',
            "variables 'rain', 'wet', index 0.*: 'maybe' is no state",
        ),
        ("wett,rain\nyes,no", "line 1, column 1: 'wett' is no variable; did you mean wet"),
        ("wet,rain\nyes,no\nno,perhaps", "line 3, column 'rain': 'perhaps' is no state"),
        ("wet,wet\nyes,no", "line 1: variable 'wet' has two columns"),
        ("wet,rain", "there are no rows below the names of variables"),
    ],
)
def test_mistakes_are_one_line(evidence, match, bif, tmp_path):
    import re

    if "=" not in evidence:
        path = tmp_path / ("e.json" if evidence[0] == "{" else "e.csv")
        path.write_text(evidence)
        evidence = path
    code, err = answered(["infer", bif, "--evidence", evidence])
    assert code == 2 and re.search(match, err) and err.count("\n") == 1


def test_names_of_states_in_an_archive(bif, tmp_path, capsys):
    np.savez(tmp_path / "e.npz", wet=np.array(["yes", "no"]))
    (tmp_path / "e.json").write_text('{"wet": ["yes", "no"]}')
    one, two = (
        said(["infer", bif, "--evidence", tmp_path / f"e.{x}"], capsys) for x in ("npz", "json")
    )
    assert one == two


def test_draws_of_variables_go_to_csv_files_that_fit_reads(bif, tmp_path, capsys):
    """The file has the lines that the terminal shows, with names of states."""
    words = ["sample", bif, "--draws", 40, "--seed", 3]
    shown = [line.split("\t") for line in said(words, capsys).splitlines()]
    assert "wrote" in said([*words, "--out", tmp_path / "d.csv"], capsys)
    with (tmp_path / "d.csv").open(newline="") as file:
        assert list(csv.reader(file)) == shown
    said(["fit", bif, tmp_path / "d.csv", tmp_path / "m.safetensors", "--epochs", 1], capsys)
    assert pgm.load(tmp_path / "m.safetensors").variables == pgm.read(bif).variables


def test_draws_of_layers_and_of_awkward_states_go_to_csv_files(mixed, tmp_path, capsys):
    said(["sample", mixed, "--draws", 6, "--out", tmp_path / "d.csv"], capsys)
    model = pgm.load(mixed)
    with (tmp_path / "d.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert len(rows) == 6 and set(model.variables) < set(head)
    others = [x for x in model.structure.layers.values() if x.name not in model.variables]
    assert {f"{x.name}[0]" for x in others if not x.holds_variables} <= set(head)
    b = pgm.GraphBuilder()
    b.variable("x", states=("a, b", 'say "c"'))
    b.conditional("x", (), [0.5, 0.5])
    pgm.save(b.build(), tmp_path / "m")
    said(["sample", tmp_path / "m", "--draws", 30, "--out", tmp_path / "d.csv"], capsys)
    with (tmp_path / "d.csv").open(newline="") as file:
        assert {row[0] for row in list(csv.reader(file))[1:]} == {"a, b", 'say "c"'}


def test_other_kinds_of_files_are_refused_before_any_work(bif, tmp_path):
    for words, kinds in (
        (["sample", bif], ".csv, .npz or .json"),
        (["infer", bif], ".npz or .json"),
    ):
        for name in ("o.txt", "o", "o.csv")[: 2 + (words[0] == "infer")]:
            code, err = answered([*words, "--out", tmp_path / name])
            assert code == 2 and f"out must end in {kinds}, not" in err


def test_info_says_what_was_declared(bif, mixed, tmp_path, capsys):
    pgm.save(pgm.rbm(3, 2, rng=0), tmp_path / "r")
    for place, model in ((bif, pgm.read(bif)), (mixed, pgm.load(mixed)), (tmp_path / "r", None)):
        head = repr(model or pgm.load(place)).split("\n")[0]
        assert head in said(["info", place], capsys)


def test_info_shows_biases_by_variable(tmp_path, capsys):
    b = pgm.GraphBuilder()
    for name in ("a", "c"):
        b.variable(name, states=("no", "yes"))
    b.table(("a", "c"), [[1.0, 2.0], [3.0, 4.0]])
    b.layer("h", pgm.Binary(), 2)
    model = b.build()
    storage = next(iter(model.structure.names.storage))
    learned = model.with_params({f"{storage}.bias": [0.25, -0.5]})
    pgm.save(learned, tmp_path / "m")
    out = said(["info", tmp_path / "m"], capsys)
    assert storage not in out and "a.bias" in out and "c.bias" in out and "-0.5" in out
