"""Declarations in TOML of variables, conditionals and tables."""

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

TOML = """
[[layers]]
name = "h"
unit = "MultiValued"
s = 2
size = 3
labels = ["x", "y", "z"]
[[variables]]
name = "rain"
states = ["no", "yes"]
[[variables]]
name = "wet"
[[conditionals]]
child = "rain"
values = [0.8, 0.2]
[[conditionals]]
child = "wet"
parents = ["rain", ["h", 0]]
values = [[[0.9, 0.1], [0.5, 0.5], [1, 0]], [[0.2, 0.8], [0.1, 0.9], [0, 1]]]
[[tables]]
scope = ["rain", ["h", "z"]]
values = [[1, 2, 0], [3, 4, 5]]
[[tables]]
scope = ["h", "h"]
index = [[0, 1], [1, 2]]
values = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
"""


def by_builder():
    b = pgm.GraphBuilder()
    b.layer("h", pgm.MultiValued(2), 3, labels=["x", "y", "z"])
    b.variable("rain", states=("no", "yes"))
    b.variable("wet")
    b.conditional("rain", (), [0.8, 0.2])
    wet = [[[0.9, 0.1], [0.5, 0.5], [1, 0]], [[0.2, 0.8], [0.1, 0.9], [0, 1]]]
    b.conditional("wet", ("rain", ("h", 0)), wet)
    b.table(("rain", ("h", "z")), [[1, 2, 0], [3, 4, 5]])
    b.tables(("h", "h"), [[0, 1], [1, 2]], np.arange(1.0, 10).reshape(3, 3))
    return b.build()


def test_a_file_declares_what_a_builder_declares(tmp_path):
    (tmp_path / "m.toml").write_text(TOML)
    found, truth = pgm.load_declaration(tmp_path / "m.toml"), by_builder()
    assert found.variables == truth.variables and list(found.params) == list(truth.params)
    for name, value in truth.params.items():
        np.testing.assert_array_equal(found.params[name], value)


def test_tables_may_come_from_the_file_of_weights(tmp_path):
    model = by_builder()
    other = model.with_params({"rain|.table": np.log([0.5, 0.5])})
    pgm.save(other, tmp_path / "w.safetensors")
    from safetensors.numpy import save_file

    save_file({"rain|.table": np.array(other.params["rain|.table"])}, tmp_path / "w.safetensors")
    (tmp_path / "m.toml").write_text('weights = "w.safetensors"\n' + TOML)
    found = pgm.load_declaration(tmp_path / "m.toml")
    assert pgm.infer(found).marginal("rain") == pgm.infer(other).marginal("rain")
    (tmp_path / "m.toml").write_text('weights = "w.safetensors"\n' + TOML.replace("rain", "snow"))
    with pytest.raises(pgm.PgmError, match=r"parameter 'rain\|.table' is unknown"):
        pgm.load_declaration(tmp_path / "m.toml")


@one_test_over(
    ("old", "new", "match"),
    [
        (
            'name = "wet"',
            'nmae = "wet"',
            r"\[1\]: .*'name' is missing and 'nmae' is unknown; did you mean name",
        ),
        ("states =", "stats =", r"variables\[0\]: .*'stats' is unknown; did you mean states"),
        ('["no", "yes"]', '["no", "no"]', "variable 'rain': states must be"),
        ('["no", "yes"]', "0", "variable 'rain': states must be 1 or more"),
        ("values = [0.8, 0.2]", "", r"conditionals\[0\]: .*'values' is missing"),
        ("[0.8, 0.2]", "[0.8, 0.3]", "conditional of 'rain'.* sum to 1.1, expected 1"),
        ("[0.8, 0.2]", "[0.8]", r"conditional of 'rain' has shape \(1,\), expected \(2,\)"),
        ("[0.8, 0.2]", '"text"', r"conditionals\[0\].values is str 'text', expected a number"),
        ("[0.8, 0.2]", '["0.8", 0.2]', r"conditionals\[0\].values\[0\] is str '0.8', expected"),
        ("[0.8, 0.2]", "[true, false]", r"conditionals\[0\].values\[0\] is bool True, expected"),
        ("[0.8, 0.2]", "[1.0, 1e-400]", "line [0-9]+: '1e-400' is a number that double"),
        ("[3, 4, 5]", "[3, true, 5]", r"tables\[0\].values\[1\]\[1\] is bool True"),
        ("index = [[0, 1]", "index = [[false, 1]", r"tables\[1\].index\[0\]\[0\] is bool False"),
        ('child = "wet"', 'child = "wett"', "'wett' is no variable; did you mean wet"),
        ('child = "wet"', "child = 3", r"conditionals\[1\]: a unit is the name of a variable"),
        ('["rain", ["h", 0]]', '"rain"', r"conditionals\[1\]: units must be a list"),
        ('["h", 0]', '["h", 7]', "layer 'h' has no unit 7"),
        ('["h", 0]', '["h", true]', r"conditionals\[1\]: a unit is .*, not \['h', True\]"),
        ('["h", 0]', '["h", [[1], {}]]', "is no variable; expected the name"),
        ("[3, 4, 5]", "[3, -4, 5]", r"entry \[1, 1\] is -4.0, expected a number >= 0"),
        ("index = [[0, 1], [1, 2]]", "index = [[0, 3]]", r"index\[0, 1\] is 3"),
        ("index = [[0, 1], [1, 2]]", "index = 3", "index has shape"),
        ('scope = ["h", "h"]', 'scope = ["h", ["h", 1]]', r"tables\[1\]: .* names of layers"),
        ("[[variables]]", "[[variable]]", "did you mean variables"),
        ("[[tables]]", "[[layers.tables]]", "layer 'h': 'tables' is not an argument"),
    ],
)
def test_mistakes_are_refused_by_file_and_place(old, new, match, tmp_path):
    path = tmp_path / "m.toml"
    assert old in TOML
    path.write_text(TOML.replace(old, new, 1))
    with pytest.raises(pgm.PgmError, match=f"^{path}: .*({match})"):
        pgm.load_declaration(path)
