"""Files of models with tables and variables: what comes back is equal to the bit."""

import json

import numpy as np
import pytest
from comparisons import same_models
from damaged import model, parts_of, tabled
from loops import one_test_over
from safetensors.numpy import save_file
from tiny import MODELS

import pgmengine as pgm
from pgmengine.base.files import checksum

TABLED = [m for m in MODELS if m.tables]


@one_test_over("tiny", TABLED)
def test_tables_come_back_to_the_bit(tiny, tmp_path):
    made = tiny.build()
    pgm.save(made, tmp_path / "m")
    same_models(made, pgm.load(tmp_path / "m"))


def test_variables_come_back_with_their_order_and_states(tmp_path):
    made = tabled()
    pgm.save(made, tmp_path / "m")
    back = pgm.load(tmp_path / "m")
    same_models(made, back)
    assert back.variables == ["rain", "wet"]
    assert pgm.infer(back).marginal("rain") == pgm.infer(made).marginal("rain")


def test_variables_without_tables_stay_variables(tmp_path):
    b = pgm.GraphBuilder()
    for name in ("b", "a", "c"):
        b.variable(name)
    pgm.save(b.build(), tmp_path / "m")
    assert pgm.load(tmp_path / "m").variables == ["b", "a", "c"]


def test_models_without_tables_keep_their_format(tmp_path):
    pgm.save(model(), tmp_path / "m")
    pgm.save(tabled(), tmp_path / "n")
    assert parts_of(tmp_path / "m")[1]["format"] == "pgmengine-2"
    assert parts_of(tmp_path / "n")[1]["format"] == "pgmengine-5"


def test_normalised_rows_keep_their_bits(tmp_path, seed=0):
    """Saving and loading again and again, and setting the parameters, change nothing."""
    prob = np.random.default_rng(seed).dirichlet(np.ones(5), size=(40,))
    b = pgm.GraphBuilder()
    b.variable("a", states=40)
    b.variable("b", states=5)
    b.conditional("a", (), np.full(40, 1 / 40))
    b.conditional("b", ("a",), prob)
    made = b.build()
    same_models(made, made.with_params({"b|a.table": made.params["b|a.table"]}))
    off = made.with_params({"b|a.table": made.params["b|a.table"] + 0.5})
    np.testing.assert_allclose(off.params["b|a.table"], np.log(prob), atol=1e-14)


def test_many_tables_are_one_entry(tmp_path, count=50_000):
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Binary(), count + 1)
    index = np.arange(count)[:, None] + [0, 1]
    b.tables(("x", "x"), index, np.random.default_rng(0).random((count, 2, 2)))
    made = b.build()
    pgm.save(made, tmp_path / "m")
    assert len(parts_of(tmp_path / "m")[1]["declaration"]) < 1000
    same_models(made, pgm.load(tmp_path / "m"))


def forged(path, change):
    """Replace parts of a file, with a checksum that is right."""
    tensors, metadata = parts_of(path)
    declaration = json.loads(metadata["declaration"])
    change(tensors, declaration)
    metadata["declaration"] = json.dumps(declaration)
    tensors = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    metadata["sha256"] = checksum(tensors, metadata)
    save_file(tensors, str(path), metadata)


def setting(name, value):
    return lambda t, d: t.__setitem__(name, np.array(value))


def entry(**changed):
    return lambda t, d: d["tables"][3].update(changed)


UNITS = [0, 0, 0, 0, 0, 0, 1, 1, 2]


@one_test_over(
    ("change", "match"),
    [
        (lambda t, d: t.pop("variables/units"), "'variables/units' is missing"),
        (lambda t, d: t.pop("tables/units"), "'tables/units' is missing"),
        (lambda t, d: t.pop("rain,h[0].table"), "parameter 'rain,h.0..table' is missing"),
        (lambda t, d: d["tables"].pop(), "the tables have 9 axes, expected 5"),
        (lambda t, d: d.update(tables=3), "'tables' must be a list, not int"),
        (lambda t, d: d["tables"].append(3), r"tables\[4\] is damaged"),
        (entry(count=10**15), r"tables\[3\]: 1e\+15 tables of 2 axes, where 4 units are left"),
        (entry(count=2.0), r"tables\[3\] is damaged"),
        (entry(layers=["v", "w"]), r"tables\[3\]: .*layer 'w' is unknown"),
        (entry(layers=[]), r"tables\[3\]: 2 tables of 0 axes"),
        (entry(name="wet|rain"), "two tables have the same name"),
        (entry(name="z"), "'v,v.table' belongs to no table"),
        (entry(single=True), r"tables\[3\] is damaged"),
        (entry(lead=[3]), r"tables\[3\]: the places have other tables"),
        (entry(lead=[]), r"tables\[3\]: the places have other tables"),
        (entry(lead=[10**400]), r"tables\[3\]: the numbers of its variables do not fit"),
        (entry(count=10**400), r"tables\[3\]: 1e\+18 tables"),
        (entry(lead=[2.5]), r"tables\[3\]: the shape must be an integer"),
        (setting("tables/numbers", [0, 0, 0, 1, 1]), r"tables\[3\]: the places have other tables"),
        (setting("tables/numbers", [0, 0, 0, 0]), r"tables\[3\]: the places have other tables"),
        (setting("tables/numbers", [0, 0, 0, 0, 1, 0]), "the tables have"),
        (setting("tables/units", [*UNITS[:-1], 3]), r"tables\[3\]: index\[1, 1\] is 3"),
        (setting("tables/units", [*UNITS[:-1], 1]), r"occurs twice in index\[1\], \[1, 1\]"),
        (setting("tables/units", [*UNITS[:-1], np.nan]), "must be a list of integers"),
        (setting("variables/units", [5, 5]), "variables must be different units, 0..6"),
        (setting("variables/units", [5, 7]), "variables must be different units, 0..6"),
        (setting("v,v.table", np.zeros((2, 3))), r"shape \(2, 3\), expected \(2, 3, 3\)"),
        (setting("v,v.table", np.full((2, 3, 3), np.nan)), r"entry \[0, 0, 0\] is nan"),
        (setting("v,v.table", np.full((2, 3, 3), -np.inf)), "no state is possible"),
        (setting("variables2.bias", [1.0]), "'rain' has a conditional, and a bias"),
    ],
)
def test_damaged_tables_are_refused(change, match, tmp_path):
    path = tmp_path / "m"
    pgm.save(tabled(), path)
    tensors, _ = parts_of(path)
    assert tensors["tables/units"].tolist() == UNITS
    forged(path, change)
    with pytest.raises(pgm.PgmError, match=f"^{path}: (.|\n)*{match}"):
        pgm.load(path)
