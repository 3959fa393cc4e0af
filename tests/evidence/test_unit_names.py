"""Names of units without a name of their own: one rule, at every door."""

import io
import json

import numpy as np
import pytest
from extras import extra
from loops import one_test_over

import pgmengine as pgm
from pgmengine.apps.reading.inputs import read_evidence
from pgmengine.evidence.evidence import parse_evidence

pd = extra("pandas")


def model_of(labels=None, name="v"):
    """Two layers; both have the label "x" where there are labels."""
    b = pgm.GraphBuilder()
    b.layer(name, pgm.MultiValued(3), 3, labels=labels)
    b.layer("h", pgm.Binary(), 2, labels=labels and ["x", "other"])
    b.couple(name, "h", weight=np.arange(6).reshape(3, 2) / 5 - 0.4)
    return b.build()


# Labels of the units of layer v, and names of its units with their numbers, None if refused.
LABELS = {
    "none": (None, {"v[0]": 0, "v[2]": 2, "('v', 1)": 1, ("v", 1): 1, ("v", "1"): 1, "v[3]": None,
                    "v[1.0]": None, ("v", 2.0): 2, ("v", 1.5): None, ("v", "1.0"): None,
                    "('v', '2')": 2, "('v', np.int64(2))": 2, ("v", np.int64(2)): 2,
                    "v[-1]": None, "v[01]": None, "v[]": None, "('v', 3)": None, "v": None}),
    "text": (["a", "x", "0"], {"a": 0, "v[a]": 0, "v[x]": 1, "('v', 'x')": 1, ("v", "x"): 1,
                               "v[0]": 2, ("v", 0): 0, "('v', 0)": 0, "0": 2, "x": None}),
    "numbers": ([2, 0, "x"], {2: 0, "2": 0, 0: 1, "v[2]": 0, "v[0]": 1, ("v", 0): 1, ("v", 1): 1,
                              "('v', 2)": 0, "v[x]": 2, ("v", "2"): 0}),
    "alike": ([1, "1", "x"], {1: 0, "1": 1, "('v', 1)": 0, "('v', '1')": 1, ("v", 1): 0}),
    "tuples": ([("a", 0), ("v", 2), "x"], {("a", 0): 0, "('a', 0)": 0, "v[('a', 0)]": 0,
                                           ("v", 2): 1, ("v", ("a", 0)): 0, "('v', 2)": 1}),
}  # fmt: skip
every = one_test_over("kind", LABELS)


def doors(model, name, folder):
    """Targets with the last state of a unit, by every door that takes the name."""
    frame = pd.DataFrame({0: [1.0, -1.0]})
    frame.columns = pd.Index([name], dtype=object, tupleize_cols=False)
    yield lambda: model.given({name: 1.0})
    yield lambda: model.given({name: [1.0, -1.0]})
    yield lambda: model.given(frame)
    if name != "x":
        # The label of two layers is that of one in a table of one of them.
        yield lambda: model.given({"v": frame})
    if isinstance(name, str):
        frame.to_csv(folder / "x.csv", index=False)
        (folder / "x.json").write_text(json.dumps({name: 1.0}))
        np.savez(folder / "x.npz", **{name: np.array([1.0])})
        for given in (*(str(folder / f"x.{end}") for end in ("csv", "json", "npz")), f"{name}=1"):
            yield lambda given=given: model.given(read_evidence(model, [given]))


@every
def test_every_door_reads_the_name_of_a_unit_alike(kind, tmp_path):
    labels, names = LABELS[kind]
    model = model_of(labels)
    want = ("marginals", "mode", "samples")
    whole = pgm.infer(model, want=want, method=pgm.Exact(draws=4), rng=0)
    for name, unit in names.items():
        if unit is None:
            if name == "v":
                # A layer, whose values have another shape.
                continue
            known = ("marginal", "mean", "prob", "mode", "samples")
            answers = [
                (lambda n=name, a=a: whole.marginal(n) if a == "marginal" else getattr(whole, a)[n])
                for a in known
            ]
            for door in (*doors(model, name, tmp_path), *answers):
                with pytest.raises(pgm.PgmError):
                    door()
            continue
        assert model.structure.names.place(name) == ("v", unit)
        for door in doors(model, name, tmp_path):
            target = door()
            assert target.evidence.values["v"][0, unit] == 1
            np.testing.assert_array_equal(target.pattern.observed["v"][0], np.arange(3) == unit)
        truth = whole.prob["v"][unit]
        np.testing.assert_array_equal(list(whole.marginal(name).values()), truth)
        joint = pgm.infer(model, want=(pgm.Joint(name), pgm.Joint(("h", 0), name))).joint
        np.testing.assert_allclose(joint[name], truth)
        keys = model.structure.names.by_key()
        for other in (key for key, place in keys.items() if place == ("v", unit)):
            np.testing.assert_array_equal(joint[other], joint[name])
            np.testing.assert_allclose(joint[other, "h[0]"].sum(axis=1), truth)
        weights = [0.0, 1.0, 2.0, 3.0]
        soft = pgm.infer(model, soft={name: weights}).prob["v"][unit]
        np.testing.assert_allclose(soft, truth * np.exp(weights) / (truth @ np.exp(weights)))
        ask = pgm.prepare(model, observed=[name])
        assert ask({name: 1.0}).target.pattern.observed["v"][0, unit]
        for answer in ("mean", "prob", "mode", "samples"):
            values = whole.answers[answer]["v"]
            part = np.take(values, [unit], axis=values.ndim - 1 - (answer == "prob"))
            np.testing.assert_array_equal(getattr(whole, answer)[name], part)
            assert name in getattr(whole, answer)
        assert pgm.base_rates(model, {name: [1.0, 1.0]})["v"][unit] > 0
        frame = pd.DataFrame({0: [1.0, -1.0]}).set_axis(
            pd.Index([name], dtype=object, tupleize_cols=False), axis=1
        )
        for data in ({name: [1.0, -1.0]}, {"v": frame}, {"v": [[1, 1, 1], [-1, 1, 1]]}):
            if name != "x":
                both = {**data, "h": [[0, 1], [1, 0]]}
                fit = pgm.fit(model, both, given=[name], updates=1, progress=False, rng=0)
                assert fit.model.params["v.bias"][unit] == model.params["v.bias"][unit]


@every
def test_draws_come_back_from_a_table(kind, tmp_path):
    model = model_of(LABELS[kind][0])
    r = pgm.infer(model, want="samples", method=pgm.Exact(draws=20), rng=0)
    frame = r.samples_frame()
    text = frame.to_csv(index=False)
    (tmp_path / "x.csv").write_text(text)
    given = (frame, pd.read_csv(io.StringIO(text)), read_evidence(model, [str(tmp_path / "x.csv")]))
    for one in given:
        found = parse_evidence(model.structure, one)
        for name, drawn in r.samples.items():
            np.testing.assert_array_equal(found.values[name], drawn.reshape(20, -1))
            assert found.pattern.observed[name].all()


def test_columns_of_draws_are_one_level():
    """Two levels would be two lines of a file, of which the second looks like a draw."""
    b = pgm.GraphBuilder()
    for name in ("a", "b"):
        b.layer(name, pgm.Binary(), 1)
    b.couple("a", "b")
    model = b.build(rng=0)
    frame = pgm.infer(model, want="samples", method=pgm.Exact(draws=5), rng=0).samples_frame()
    assert list(frame) == [("a", 0), ("b", 0)] and frame.columns.nlevels == 1
    back = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert len(back) == 5 and pgm.infer(model, back, want="log_prob").log_prob.shape == (5,)


def test_a_variable_may_be_called_as_a_unit_is():
    b = pgm.GraphBuilder()
    b.variable("('v', 0)", states=("a", "b"))
    b.variable("v[1]", states=("a", "b"))
    b.layer("v", pgm.Binary(), 2)
    b.table(("('v', 0)", ("v", 0)), [[1.0, 2.0], [3.0, 4.0]])
    b.table(("v[1]", ("v", 1)), [[1.0, 2.0], [3.0, 4.0]])
    model = b.build()
    assert not model.given({"('v', 0)": "b"}).pattern.observed["v"].any()
    frame = pgm.infer(model, want="samples", method=pgm.Exact(draws=20), rng=0).samples_frame()
    back = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    for name, rates in pgm.base_rates(model, back).items():
        np.testing.assert_array_equal(rates, pgm.base_rates(model, frame)[name])


def test_a_name_that_may_be_units_of_two_layers_is_none():
    b = pgm.GraphBuilder()
    b.layer("a", pgm.Binary(), 2, labels=["b[0]", "c"])
    b.layer("a[b", pgm.Binary(), 2, labels=["0]", "d"])
    s = b.build().structure
    assert s.names.place("a[b[0]]") is None
    assert s.names.place("a[c]") == ("a", 1) and s.names.place("b[0]") == ("a", 0)


def test_states_of_units_without_a_name_take_log_odds_under_every_name():
    model = model_of()
    truth = pgm.infer(model, soft={("h", 1): 0.7}).prob["v"]
    for name in ("h[1]", "('h', 1)", ("h", "1")):
        np.testing.assert_array_equal(pgm.infer(model, soft={name: 0.7}).prob["v"], truth)
        chances = pgm.likelihood({name: np.exp([0.0, 0.7])})
        np.testing.assert_allclose(pgm.infer(model, soft=chances).prob["v"], truth)
    weights = [0.0, 0.1, 0.2, 0.3]
    truth = pgm.infer(model, soft={("v", 2): weights}).prob["v"]
    by_state = {"v[2]": dict(enumerate(weights))}
    np.testing.assert_array_equal(pgm.infer(model, soft=by_state).prob["v"], truth)


DIGITS = "9" * 5000


@one_test_over("inside", ["-:1", ":-", "::-", "1:-:2", DIGITS, f":{DIGITS}", f"-{DIGITS}"])
def test_a_subscript_that_is_no_number_is_no_unit(inside):
    """In a scope, in evidence, in a file, and in the columns of a table."""
    m, name = model_of(), f"v[{inside}]"
    doors = [
        lambda: pgm.infer(m, {name: 1}),
        lambda: pgm.infer(m, soft={name: 0.5}),
        lambda: pgm.infer(m, want=(pgm.Joint(name),)),
        lambda: pgm.infer(m, pd.DataFrame({name: [1]})),
        lambda: pgm.infer(m, {("v", int(DIGITS[:4000]) ** 2): 1}),
    ]
    for door in doors:
        with pytest.raises(pgm.PgmError):
            door()
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 3)
    b.table((name,), [1.0, 2.0])
    with pytest.raises(pgm.PgmError):
        b.build()


@one_test_over("size", ["-:1", DIGITS, "9" * 4000])
def test_numbers_without_end_in_a_declaration_are_refused(size, tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(f'[[layers]]\nname = "v"\nunit = "Binary"\nsize = {size}\n')
    with pytest.raises(pgm.PgmError) as found:
        pgm.load_declaration(file)
    assert "sys." not in str(found.value)
