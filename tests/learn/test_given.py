"""Conditional learning: `given` may name layers, variables and units."""

import numpy as np
import pytest
from kept import kept
from loops import one_test_over
from scipy.sparse import csr_array

import pgmengine as pgm

STATES = ("low", "middle", "high")


def ring():
    """Return three variables of one layer and one of another, in a ring of tables."""
    rng, b = np.random.default_rng(5), pgm.GraphBuilder()
    for name in "abc":
        b.variable(name, states=STATES)
    b.variable("d", states=("no", "yes"))
    for scope, shape in ((("a", "b"), (3, 3)), (("b", "c"), (3, 3)), (("c", "d"), (3, 2))):
        b.table(scope, rng.uniform(0.5, 2.0, shape))
    b.table(("d", "a"), rng.uniform(0.5, 2.0, (2, 3)))
    return b.build()


def data(rows=7):
    rng = np.random.default_rng(2)
    states = {name: np.array(STATES)[rng.integers(0, 3, rows)] for name in "abc"}
    return states | {"d": np.array(["no", "yes"])[rng.integers(0, 2, rows)]}


def log_conditional(model, x, given):
    """Return the mean of log p(rest | given) of complete rows, by two log normalizers."""
    less = {name: x[name] for name in given}
    both, known = (pgm.infer(model, some, want=("log_z",)) for some in (x, less))
    return (both.log_z - known.log_z).mean()


@one_test_over("given", [("a",), ("a", "d"), ("b", "c")])
def test_given_variables_are_conditioned_on_alone(given):
    """One step of plain gradient ascent is the slope of log p(rest | given)."""
    model, x, rate = ring(), data(), 1e-3
    step = {"optimizer": pgm.SGD(rate), "updates": 1, "batch_size": 7, "progress": False}
    found = pgm.fit(model, x, given=given, negative=pgm.ExactGradient(), **step).model
    for name, value in model.params.items():
        slope = (found.params[name] - value) / rate
        for place in np.ndindex(value.shape):
            ends = []
            for e in (1e-5, -1e-5):
                moved = value.copy()
                moved[place] += e
                ends.append(log_conditional(model.with_params({name: moved}), x, given))
            assert slope[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6), name


def test_units_of_layers_may_be_given():
    model, x = kept(pgm.rbm(3, 2, rng=0)), np.eye(3)[[0, 1, 2, 1]]
    # The scales of the default optimizer depend on the layers to which units belong.
    step = {
        "negative": pgm.ExactGradient(),
        "optimizer": pgm.Adam(),
        "updates": 3,
        "progress": False,
    }
    each = pgm.fit(model, {"v": x}, given=[("v", 0), ("v", 1)], **step).model
    b = pgm.GraphBuilder()
    b.layer("u", pgm.Binary(), 2)
    b.layer("w", pgm.Binary(), 1)
    b.layer("h", pgm.Binary(), 2)
    b.couple("u", "h", weight=model.params["v-h.weight"][:2])
    b.couple("w", "h", weight=model.params["v-h.weight"][2:])
    apart = pgm.fit(b.build(), {"u": x[:, :2], "w": x[:, 2:]}, given=("u",), **step).model
    weights = [apart.params["u-h.weight"], apart.params["w-h.weight"]]
    np.testing.assert_allclose(each.params["v-h.weight"], np.vstack(weights), atol=1e-9)


def test_chains_start_at_the_data_and_keep_given_variables():
    """The gradient of tables of given variables alone is what the data have, less the same."""
    model, x = ring(), data()
    settings = {"optimizer": pgm.Adam(0.1), "updates": 20, "progress": False}
    found = pgm.fit(model, x, given=("a", "b"), negative=pgm.CD(20), **settings).model
    np.testing.assert_array_equal(found.params["a,b.table"], model.params["a,b.table"])
    assert np.abs(found.params["c,d.table"] - model.params["c,d.table"]).max() > 1e-3


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "optimizer", [pgm.SGD(0.1), pgm.Adam(0.1), pgm.Centered(pgm.SGD(0.1))], ids=repr
)
def test_what_acts_on_given_units_alone_stays(optimizer, sparse):
    """Adam would make whole steps of what rounding leaves of the difference of two phases."""
    rng, b = np.random.default_rng(0), pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 4)
    b.layer("k", pgm.Categorical(3), 3)
    b.layer("h", pgm.Binary(), 2)
    for one, other, shape in (("v", "k", (4, 9)), ("v", "h", (4, 2)), ("v", "v", (4, 4))):
        weight = rng.normal(size=shape)
        weight = np.triu(weight, 1) + np.triu(weight, 1).T if one == other else weight
        b.couple(one, other, weight=csr_array(weight) if sparse else weight)
    b.tables(("k", "k"), [[0, 1], [1, 2]], rng.gamma(1.0, size=(2, 3, 3)))
    model = b.build()
    x = {"v": rng.integers(0, 2, (30, 4)) * 1.0, "k": rng.integers(0, 3, (30, 3)) * 1.0}
    x["v"][3, 2] = np.nan
    given = [("v", 0), ("v", 2), ("v", 3), ("k", 0), ("k", 1)]
    settings = {"negative": pgm.CD(), "optimizer": optimizer, "progress": False}
    found = pgm.fit(model, x, given=given, updates=20, **settings).model
    change = {
        name: np.asarray(found.params[name] - value)
        if not hasattr(value, "toarray")
        else (found.params[name] - value).toarray()
        for name, value in model.params.items()
    }
    # Unit 2 of v has no value in one row, so that its parameters are learned.
    stays = {"v.bias": [0, 3], "k.bias": [0, 1], "k,k.table": [0]}
    for name, still in stays.items():
        moved = np.setdiff1d(np.arange(len(change[name])), still)
        np.testing.assert_array_equal(change[name][still], 0.0)
        assert np.abs(change[name][moved]).max(axis=tuple(range(1, change[name].ndim))).min() > 0
    np.testing.assert_array_equal(change["v-k.weight"][np.ix_([0, 3], range(6))], 0.0)
    assert np.abs(change["v-k.weight"][:, 6:]).min() > 0
    assert np.abs(change["v-k.weight"][2]).min() > 0
    assert change["v-v.weight"][0, 3] == 0.0
    assert np.abs(change["v-v.weight"][[0, 1, 1], [1, 2, 3]]).min() > 0


def test_what_cannot_be_given_is_refused():
    model, x = ring(), data()
    for given, message in (
        ("a", "sequence of layers or variables such as"),
        (("e",), "given: variable 'e'"),
        (("a", "b", "c", "d"), "nothing to learn: all layers with data are given"),
        ([("variables3", 7)], "has no unit 7"),
    ):
        with pytest.raises(pgm.PgmError, match=message):
            pgm.fit(model, x, given=given, progress=False)
    with pytest.raises(pgm.PgmError, match="given: 'b' is not in the data"):
        pgm.fit(model, {name: x[name] for name in "acd"}, given=("b",), progress=False)
    with pytest.raises(pgm.PgmError, match="given: 'd' is not in the data"):
        pgm.fit(model, {name: x[name] for name in "abc"}, given=("d",), progress=False)
    with pytest.raises(pgm.PgmError, match="variable 'a' is given, so that each row"):
        pgm.fit(model, x, given=("a",), negative=pgm.PCD(), progress=False)


def test_names_of_given_units_are_read_once_and_in_any_form(tmp_path):
    """A checkpoint knows what was given, whatever the form and order of the names."""
    model, x = ring(), data()
    settings = {"negative": pgm.ExactGradient(), "batch_size": 7, "progress": False}
    place = tmp_path / "fit"
    first = iter(["b", ("variables3", 0), "d"])
    pgm.fit(model, x, given=first, updates=1, checkpoint=place, **settings)
    for names in (np.array(["d", "a", "b"]), ["a", "b", "variables2"]):
        pgm.fit(model, x, given=names, updates=1, checkpoint=place, **settings)
    for names in ((), ("a", "b")):
        with pytest.raises(pgm.PgmError, match="given"):
            pgm.fit(model, x, given=names, updates=2, checkpoint=place, **settings)


def test_given_values_may_all_be_missing():
    """Nothing is known of a given variable then, so that the others are learned as they are."""
    model, x = ring(), data()
    step = {"optimizer": pgm.SGD(0.1), "negative": pgm.ExactGradient(), "batch_size": 7,
            "updates": 1, "progress": False}  # fmt: skip
    none = pgm.fit(model, x | {"a": [None] * 7}, given=("a",), **step).model
    free = pgm.fit(model, {name: x[name] for name in "bcd"}, **step).model
    for name, value in none.params.items():
        np.testing.assert_allclose(value, free.params[name], atol=1e-12)


@one_test_over("wrong", [5, True, len, [["a"]], [{"a": 0}], [(["a"], 0)]], ids=repr)
def test_given_must_be_names(wrong):
    with pytest.raises(pgm.PgmError, match="given"):
        pgm.fit(ring(), data(), given=wrong, progress=False)


def test_every_given_variable_has_to_be_in_the_data():
    """Also where all variables of a layer are given."""
    model, x = ring(), data()
    for names, missing in ((("a", "b", "c"), "b"), (("a", "b"), "b"), (("d", "a"), "d")):
        some = {name: x[name] for name in x if name != missing}
        with pytest.raises(pgm.PgmError, match=f"given: '{missing}' is not in the data, which has"):
            pgm.fit(model, some, given=names, progress=False)
