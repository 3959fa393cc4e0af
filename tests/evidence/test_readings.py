"""Every reading of one input gives the same evidence, or refuses it with the same things named.

The table has the readings (arrays, lists, frames, mappings by name, soft evidence, do, data,
prepared questions, files and the command line), the names of a unit in all spellings, and values of
every kind: text, numbers, booleans, missing ones, and types that are no states.
"""

import csv
import json
from datetime import date
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine.apps.reading.inputs import read_evidence
from pgmengine.evidence.columns import data_by_layer
from pgmengine.model.names.state_names import text_of

pd = extra("pandas")


def layers(unit, size=2, labels=None, states=None):
    """Layer v of such units beside a layer of two units."""
    b = pgm.GraphBuilder()
    b.layer("v", unit, size, labels=labels, states=states)
    b.layer("h", pgm.Binary(), 2)
    b.couple("v", "h", weight=np.arange(size * unit.width * 2).reshape(-1, 2) / 5 - 0.4)
    return b.build()


def network(states):
    """Two variables, the second a child of the first."""
    k = states if isinstance(states, int) else len(states)
    b = pgm.GraphBuilder()
    for name in ("a", "b"):
        b.variable(name, states=states)
    b.conditional("a", (), np.full(k, 1 / k))
    b.conditional("b", ("a",), np.full((k, k), 1 / k))
    return b.build()


IN_LAYER = (("v", 1), "v[1]", "('v', 1)", ("v", "1"), ("v", 1.0), ("v", np.int64(1)))

# A model, and names of the last unit of its first layer.
MODELS = {
    "binary": (layers(pgm.Binary()), IN_LAYER),
    "spin": (layers(pgm.Spin(), labels=["l", "r"]), ("r", ("v", "r"), "v[r]", "('v', 'r')")),
    "multivalued": (layers(pgm.MultiValued(3)), IN_LAYER[:2]),
    "categorical": (layers(pgm.Categorical(3)), IN_LAYER[:2]),
    "one unit": (layers(pgm.Binary(), 1), ("v", ("v", 0), "v[0]")),
    "one-hot unit": (layers(pgm.Categorical(3), 1), ("v", ("v", 0), "v[0]")),
    "numbers as labels": (layers(pgm.Binary(), labels=[5, 7]), (7, "7", 7.0, ("v", 7), "v[7]")),
    "names": (layers(pgm.Binary(), states=["no", "yes"]), IN_LAYER[:2]),
    "names of one unit": (layers(pgm.Categorical(3), 1, states=["x", "yes", "no"]), ("v", "v[0]")),
    "numbers as names": (layers(pgm.Binary(), states=[10, 20]), IN_LAYER[:2]),
    "fractions": (layers(pgm.Binary(), states=[0.5, 1.5]), IN_LAYER[:2]),
    "1 and 0": (layers(pgm.Binary(), states=[1, 0]), IN_LAYER[:2]),
    "booleans": (layers(pgm.Binary(), states=[True, False]), IN_LAYER[:2]),
    "text of numbers": (layers(pgm.Categorical(3), states=["1", "2", "3"]), IN_LAYER[:2]),
    "two states": (network(2), ("b", ("b", "b"))),
    "three states": (network(3), ("b",)),
    "variable": (network(("no", "yes")), ("b", ("b", "b"))),
    "False and True": (network(("False", "True")), ("b",)),
    "blanks": (network((" x", "?", "yes ")), ("b",)),
}  # fmt: skip

VALUES = (
    0, 1, 2, -1, 10, 0.5, 1.0, 1.5, True, False, np.bool_(True), np.float32(1.5), np.int8(1),
    20, "0", "1", "1.0", "10", "0.5", "no", "yes", "Yes", "x", " x", "yes ", "True", "false", "inf",
    "nan",
    None, float("nan"), pd.NA, pd.NaT, np.datetime64("NaT"),
    float("inf"), Decimal(1), Fraction(1, 2), np.array(1), np.array("yes"), b"yes",
    np.timedelta64(1, "D"), date(2020, 1, 1), {"yes": 1}, 10**400,
)  # fmt: skip


def objects(*shape, **given):
    """An array of objects, None where no value is given."""
    out = np.empty(shape, dtype=object)
    for place, value in given.get("values", {}).items():
        out[place] = value
    return out


def type_of(value):
    """Return the type of a column; older versions of pandas infer none for large integers."""
    return object if type(value) is int and abs(value) >= 2**63 else None


def column(name, value):
    """A frame of one column with any name."""
    values = objects(1, values={0: value})
    return pd.DataFrame({0: values}, dtype=type_of(value)).set_axis(
        pd.Index([name], dtype=object, tupleize_cols=False), axis=1
    )


def in_python(model, name, place, value):
    """Reading -> a function that returns the target."""
    layer, i = model.structure.layers[place[0]], place[1]
    row, one = [None] * layer.size, objects(1, values={0: value})
    row[i] = value
    whole = objects(1, layer.size, values={(0, i): value})
    out = {
        "value": lambda: model.given({name: value}),
        "list": lambda: model.given({name: [value]}),
        "tuple": lambda: model.given({name: (value,)}),
        "column": lambda: model.given({name: [[value]]}),
        "objects": lambda: model.given({name: one}),
        "series": lambda: model.given({name: pd.Series(one, dtype=type_of(value))}),
        "frame": lambda: model.given(column(name, value)),
        "frame of a layer": lambda: model.given({layer.name: column(name, value)}),
        "array of a layer": lambda: model.given({layer.name: whole}),
        "lists of a layer": lambda: model.given({layer.name: [row]}),
        "data": lambda: model.given(data_by_layer(model.structure, {name: [value]})),
    }
    if layer.size > 1:
        out["vector of a layer"] = lambda: model.given({layer.name: row})
    if model.structure.normalized:
        out["do"] = lambda: model.given(do={name: value})
        out["do of rows"] = lambda: model.given(do={name: [value]})
    return out


def in_files(model, name, place, value, folder):
    """Reading -> a function that returns the target, for names and values that files can hold."""
    s = model.structure
    layer, i = s.layers[place[0]], place[1]
    beside = "h[0]" if "h" in s.layers else "a"
    text = "" if value is None else text_of(value)

    def read(given):
        return model.given(read_evidence(model, [str(given)]))

    def table(lines):
        with (folder / "x.csv").open("w", newline="") as file:
            csv.writer(file).writerows(lines)
        return read(folder / "x.csv")

    def answer(values):
        (folder / "x.json").write_text(json.dumps(values))
        return read(folder / "x.json")

    def archive(**values):
        np.savez(folder / "x.npz", **values)
        return read(folder / "x.npz")

    cells, row = [""] * layer.size, [None] * layer.size
    cells[i], row[i] = text, value
    out = {
        "command line": lambda: read(f"{name}={text}"),
        "csv": lambda: table([[name, beside], [text, ""]]),
        "json": lambda: answer({name: value}),
        "json of rows": lambda: answer({name: [value]}),
        "json of a layer": lambda: answer({layer.name: [row]}),
        "npz of text": lambda: archive(**{name: np.array([text])}),
        "npz of a layer": lambda: archive(**{layer.name: np.array([cells])}),
    }
    if np.array([value]).dtype.kind != "O":
        out["npz"] = lambda: archive(**{name: np.array([value])})
    if layer.size > 1 and not layer.holds_variables:
        out["rows of a csv"] = lambda: table([cells, cells])
        out["command line of a layer"] = lambda: read(f"{layer.name}={','.join(cells)}")
    return out


def found(reading, place):
    """What a reading observes of a unit in row 0, "nothing", or the message of its refusal."""
    try:
        target = reading()
    except pgm.PgmError as error:
        return None, str(error)
    layer, i = target.structure.layers[place[0]], place[1]
    for name, seen in target.pattern.observed.items():
        expected = np.arange(seen.shape[1]) == i if name == place[0] else seen[0] & False
        assert not (seen[0] & ~expected).any(), f"{name} was not given"
    if not target.pattern.observed[place[0]][0, i]:
        return "nothing", ""
    return tuple(layer.shaped(target.evidence.values[place[0]])[0, i].ravel().tolist()), ""


def check_alike(readings, place, names, value):
    """Fail unless all readings find the same, or refuse the value of one of these names."""
    every = {reading: found(function, place) for reading, function in readings.items()}
    states = {state for state, _ in every.values()}
    assert len(states) == 1, {reading: state or why for reading, (state, why) in every.items()}
    for reading, (state, why) in every.items():
        if state is None:
            assert any(str(name) in why or repr(name) in why for name in names), (reading, why)
            plain = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
            texts = {str(value), repr(value)[:10], repr(plain)[:10], text_of(plain)}
            texts |= {text_of(float(value))} if isinstance(value, (Decimal, Fraction)) else set()
            # A boolean is the number 0 or 1.
            texts |= {"true": {"1"}, "false": {"0"}}.get(str(value).casefold(), set())
            timed = "dates or times" in why or "an array of values" in why
            assert timed or any(text in why for text in texts), (reading, why)
    return states.pop()


@one_test_over("kind", MODELS)
def test_every_reading_of_a_value_is_the_same(kind, tmp_path):
    model, names = MODELS[kind]
    place = model.structure.names.place(names[0])
    layer = model.structure.layers[place[0]]
    others = (*names, layer.title, f"index {place[1]}", layer.name)
    seen = {}
    for value in VALUES:
        text = value is None or type(value) in (int, float, bool, str)
        # Only cells of files may have blanks around them, and missing numbers have no text.
        text &= not (isinstance(value, str) and value != value.strip()) and str(value) != "nan"
        for name in names if type(value) is str else names[:2]:
            readings = in_python(model, name, place, value)
            if text and isinstance(name, str) and kind != "blanks":
                readings |= in_files(model, name, place, value, tmp_path)
            state = check_alike(readings, place, others, value)
            seen.setdefault(state, []).append(value)
    # Missing values are read as such, some values are states, and others are refused.
    assert len(seen["nothing"]) >= 5 and len(seen[None]) >= 15 and len(seen) >= 4


@one_test_over("kind", [kind for kind in MODELS if kind != "blanks"])
def test_cells_of_files_may_have_spaces_around_them_or_be_empty(kind, tmp_path):
    model, names = MODELS[kind]
    place, name = model.structure.names.place(names[0]), next(n for n in names if type(n) is str)
    layer = model.structure.layers[place[0]]
    known = layer.state_names or (layer.unit.support if layer.unit.width == 1 else (0, 1))
    cells = {cell: "nothing" for cell in ("", "?", " ? ")}
    cells |= {f" {text_of(x)} ": found(lambda x=x: model.given({name: x}), place)[0] for x in known}
    for cell, state in cells.items():
        for reading in in_files(model, name, place, cell, tmp_path).values():
            assert found(reading, place) == (state, "")


@one_test_over("kind", MODELS)
def test_soft_evidence_and_evidence_files_name_the_same_states(kind, tmp_path):
    model, names = MODELS[kind]
    s, place = model.structure, model.structure.names.place(names[0])
    layer = s.layers[place[0]]
    numbers = range(s.state_counts[place[0]])
    number = s.names.all_places().index(place)
    known = layer.state_names or numbers
    for state in numbers:
        value = layer.unit.support[state]
        (tmp_path / "x.evid").write_text(f"1 {number} {state}")
        read = [model.given(read_evidence(model, [str(tmp_path / "x.evid")]))]
        if layer.state_names or layer.unit.width > 1:
            read.append(model.given({names[0]: known[state]}))
        for target in read:
            got = layer.shaped(target.evidence.values[place[0]])[0, place[1]]
            np.testing.assert_array_equal(got, value)
        for name in names:
            for key in {known[state], text_of(known[state])}:
                rest = {k: 0.0 for i, k in enumerate(known) if i != state}
                soft = pgm.likelihood({name: {key: 1.0, **rest}})
                chances = list(pgm.infer(model, soft=soft).marginal(name).values())
                np.testing.assert_allclose(chances, np.eye(len(numbers))[state], atol=1e-12)
    for value in (v for v in VALUES if layer.state_names and isinstance(v, (str, int, float))):
        state, _ = found(lambda v=value: model.given({names[0]: v}), place)
        if state in (None, "nothing"):
            with pytest.raises(pgm.PgmError):
                model.given(soft={names[0]: {value: 1.0, **dict.fromkeys(known[1:], 0.0)}})


def test_grey_levels_of_data_are_read_alike():
    model, whole = layers(pgm.Binary()), {"v": [[np.nan, 0.25]]}
    truth = pgm.base_rates(model, whole)["v"]
    for data in (whole, {"v[1]": [0.25]}, column("v[1]", 0.25), {"v": column("v[1]", 0.25)}):
        np.testing.assert_array_equal(pgm.base_rates(model, data)["v"], truth)
        with pytest.raises(pgm.PgmError, match=r"index 1: 0\.25 is not a value of Binary"):
            pgm.fit(model, data, updates=1, progress=False)


# Containers of the states of three rows.
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "objects": lambda values: objects(3, values=dict(enumerate(values))),
    "column": lambda values: [[value] for value in values],
    "series": lambda values: pd.Series(values, dtype=object),
    "series in another order": lambda values: pd.Series(values, index=[2, 1, 0], dtype=object),
    "series of a type of its own": lambda values: pd.Series(values).convert_dtypes(),
    "categories": lambda values: pd.Series(values, dtype="category"),
    "index": lambda values: pd.Index(values, dtype=object),
    "masked": lambda values: np.ma.masked_array(
        objects(3, values={i: values[0] if x is None else x for i, x in enumerate(values)}),
        mask=[x is None for x in values],
    ),
}


@one_test_over("kind", MODELS)
def test_every_container_of_many_rows_is_read_alike(kind):
    model, names = MODELS[kind]
    place, name = model.structure.names.place(names[0]), names[0]
    layer = model.structure.layers[place[0]]
    known = layer.state_names or (
        layer.unit.support.tolist() if layer.unit.width == 1 else [0, 1, 2]
    )
    for values in ([known[-1], None, known[0]], [known[1], known[0], known[1]]):
        expected = np.array([np.nan if x is None else known.index(x) for x in values])
        for way in CONTAINERS.values():
            given = way(values)
            ways = [{name: given}, column(name, 0).iloc[:0].reindex(range(3))]
            ways[1][ways[1].columns[0]] = np.asarray(CONTAINERS["objects"](values))
            if isinstance(given, pd.Series):
                ways[1][ways[1].columns[0]] = given.array
            done = [model.given(do=one) for one in ways if model.structure.normalized]
            for target in [model.given(one) for one in ways] + done:
                values_of = layer.shaped(target.evidence.values[place[0]])[:, place[1]]
                states = layer.unit.state_of(values_of[:, None])[:, 0].astype(float)
                states[~target.pattern.observed[place[0]][:, place[1]]] = np.nan
                np.testing.assert_array_equal(states, expected)
