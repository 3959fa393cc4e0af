"""Tables of evidence and data: what they mean, and what is refused with its place."""

import csv
import io

import numpy as np
import pytest
from damaged import answered
from loops import one_test_over
from small_networks import TEXTS
from typer.testing import CliRunner

import pgmengine as pgm
from pgmengine.apps.cli import app
from pgmengine.apps.reading.csv_tables import read_csv
from pgmengine.apps.reading.inputs import read_evidence


@pytest.fixture(scope="module")
def net():
    return pgm.read(pgm.datasets.asia())


def written(header, rows, separator=","):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


@one_test_over("seed", range(6))
def test_random_tables_are_the_evidence_that_infer_takes(net, seed, tmp_path, rtol=1e-12):
    """Columns in any order, empty cells, question marks, spaces, and any of the separators."""
    rng = np.random.default_rng(seed)
    names = [str(x) for x in rng.permutation(net.variables)[: rng.integers(1, 6)]]
    names = [x for x in names if x != "either"] or ["xray"]
    # Two columns at least, because an empty line of one column would be refused.
    names = names if len(names) > 1 else [*names, "asia" if names != ["asia"] else "tub"]
    states = rng.choice(["yes", "no", None], size=(rng.integers(1, 7), len(names)))
    blanks = [
        [("?" if rng.random() < 0.5 else "") if x is None else f" {x} " for x in row]
        for row in states
    ]
    file = tmp_path / "e.csv"
    file.write_text(written(names, blanks, ",;\t"[seed % 3]))
    given = {name: list(states[:, i]) for i, name in enumerate(names)}
    found = pgm.infer(net, read_evidence(net, [str(file)]), ("marginals", "log_prob"))
    truth = pgm.infer(net, given, ("marginals", "log_prob"))
    np.testing.assert_allclose(found.log_prob, truth.log_prob, rtol=rtol)
    for name in net.variables:
        np.testing.assert_allclose(
            found.marginal(name)["yes"], truth.marginal(name)["yes"], rtol=rtol, atol=1e-15
        )


MALFORMED = [
    ("wet;wind\nyes,some\n", "unequal length|line 2, column"),
    ("wet,wind\nyes\n", "rows of unequal length: line 2 has 1 cells, line 1 has 2"),
    ("wet,wind\nyes,some,no\n", "line 2 has 3 cells, line 1 has 2"),
    ('wet,wind\n"yes,some\nno,none\n', "the row that begins in line 2 has quotes that do not fit"),
    ('wet,wind\n"yes"x,some\n', "the row that begins in line 2 has quotes that do not fit"),
    ("wet\nyes\n\nno\n", "line 3 is empty, which may be a row or none: write [?] for a row"),
    ("wet,wind\nNA,some\n", "line 2, column 'wet': 'NA' is no state.*leave the cell empty, or"),
    ("wet,wind\nyes,null\n", "line 2, column 'wind': 'null' is no state.*leave the cell empty"),
    ("wet,wind\n1,some\n", "line 2, column 'wet': '1' is no state, expected one of 'yes', 'no'"),
    ("wet,wind\nYES,some\n", "line 2, column 'wet': 'YES' is no state"),
    ("wet,,wind\nyes,,some\n", "line 1, column 2: '' is no variable"),
    ("day,wet,who\nmon,yes,me\n", "line 1, column 1: 'day' is no variable.*'day', 'who'"),
    ("wet,wet\nyes,no\n", "line 1: variable 'wet' has two columns"),
    ("", "there are no rows, expected at least one"),
    ("wet,wind\n", "there are no rows below the names of variables"),
    ("wet|wind\nyes|some\n", "'wet|wind' is no variable"),
]


@one_test_over(("text", "match"), MALFORMED)
def test_malformed_tables_are_refused_with_their_place(text, match, tmp_path):
    (tmp_path / "m.bif").write_text(TEXTS[".bif"])
    (tmp_path / "e.csv").write_text(text)
    for words in (["infer", tmp_path / "m.bif", "--evidence"], ["learn", tmp_path / "m.bif"]):
        code, err = answered([*words, tmp_path / "e.csv"])
        assert code == 2 and err.count("\n") == 1 and "Traceback" not in err
        with pytest.raises(pgm.PgmError, match=match):
            raise pgm.PgmError(err)


def test_a_first_line_with_two_separators_is_refused():
    b = pgm.GraphBuilder()
    for name in ("a", "b;c", "a,b", "c"):
        b.variable(name, states=("no", "yes"))
        b.conditional(name, (), [0.5, 0.5])
    with pytest.raises(
        pgm.PgmError, match="separated in several ways: 2 by a comma or 2 by a semi"
    ):
        read_csv(b.build(), "a,b;c\nno,yes\n")


def test_standard_input_is_a_table_or_json(tmp_path):
    (tmp_path / "m.bif").write_text(TEXTS[".bif"])
    words = ["infer", str(tmp_path / "m.bif"), "--evidence"]
    truth = CliRunner().invoke(app, [*words, "wet=yes"]).output
    for text in ("wet\nyes\n", '{"wet": ["yes"]}', "\ufeffwet\nyes\n"):
        found = CliRunner().invoke(app, [*words, "-"], input=text)
        assert found.exit_code == 0
        assert found.output.replace("row 0, ", "").splitlines()[2:] == truth.splitlines()[2:]
    twice = CliRunner().invoke(app, [*words, "-", "--evidence", "-"], input="wet\nyes\n")
    assert "standard input can be read once only" in str(twice.exception)
    wrong = CliRunner().invoke(app, [*words, "-"], input="wet\nmaybe\n")
    assert "evidence from standard input: line 2, column 'wet': 'maybe'" in str(wrong.exception)


def test_every_row_and_variable_has_a_line(net, tmp_path):
    (tmp_path / "e.csv").write_text("xray,dysp\nyes,no\n,yes\n")
    path = str(pgm.datasets.asia())
    out = CliRunner().invoke(app, ["infer", path, "--evidence", str(tmp_path / "e.csv")]).output
    truth = pgm.infer(net, {"xray": ["yes", None], "dysp": ["no", "yes"]})
    expected = [
        f"row {row}, {name}: "
        + ", ".join(f"{state}={p[row]:.4g}" for state, p in truth.marginal(name).items())
        for row in range(2)
        for name in net.variables
    ]
    assert out.splitlines()[2:] == expected
    assert out.startswith("exact by Exact; no diagnostic found a fault\nplan: ")
