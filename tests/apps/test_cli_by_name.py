"""The command line on models with named variables: files of the field, evidence by name."""

import json

import numpy as np
import pytest
from damaged import answered
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
    assert "3 variables, 3 conditionals" in out


def test_marginals_and_the_mode_by_name(bif, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = said(["infer", bif, "--evidence", "wet=yes", "--want", "marginals,mode"], capsys)
    answer = pgm.infer(pgm.read(bif), {"wet": "yes"}, want=("marginals", "mode"))
    for state, prob in answer.marginal("wind").items():
        assert f"{state} {prob:.4f}" in out
    assert str(answer.assignment()["wind"]) in out


def test_evidence_by_name_goes_to_files_of_answers(bif, tmp_path, capsys):
    said(["infer", bif, "--evidence", "wet=yes", "--out", tmp_path / "o.json"], capsys)
    found = json.loads((tmp_path / "o.json").read_text())
    truth = pgm.infer(pgm.read(bif), {"wet": "yes"}).prob
    for name, value in truth.items():
        np.testing.assert_allclose(np.squeeze(found[f"prob.{name}"]), np.squeeze(value))


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
    assert "1 0.0000" in said(words, capsys)


def test_variables_that_are_layers_take_names_of_states(tmp_path, capsys):
    b = pgm.GraphBuilder()
    b.variable("rain", states=("no", "yes"))
    b.variable("wind", states=("none", "some", "much"))
    b.couple("rain", "wind", weight=[[1.0, 2.0, 3.0]])
    model = b.build()
    pgm.save(model, tmp_path / "m")
    for evidence in ({"rain": "yes"}, {"wind": "much"}, {"wind": "1"}, {"rain": "?"}):
        ((name, state),) = evidence.items()
        other = "wind" if name == "rain" else "rain"
        out = said(["infer", tmp_path / "m", "--evidence", f"{name}={state}"], capsys)
        given = {} if state == "?" else {name: np.array([{"yes": 1, "much": 2}.get(state, 1)])}
        truth = np.ravel(pgm.infer(model, given).prob[other])
        assert all(f"{p:.4f}" in out for p in truth)


@pytest.mark.parametrize(
    ("evidence", "match"),
    [
        ("wet=yess", "'yess' is no state, expected one of 'yes', 'no'; did you mean yes"),
        ("wett=yes", "'wett' is unknown.*did you mean 'wet'"),
    ],
)
def test_mistakes_are_one_line(evidence, match, bif):
    import re

    code, err = answered(["infer", bif, "--evidence", evidence])
    assert code == 2 and re.search(match, err) and err.count("\n") == 1
