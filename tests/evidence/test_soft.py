"""Soft evidence by state: a factor of one unit, whatever the unit is and however it is written."""

import itertools

import numpy as np
import pytest
import registry
from extras import extra
from loops import one_test_over
from scipy.special import logsumexp

import pgmengine as pgm

pd = extra("pandas")
WANT = ("marginals", "log_z", "log_prob")


def declared():
    """Variables of 1 to 4 states, some coupled, beside layers with and without labels."""
    b = pgm.GraphBuilder()
    b.variable("one", states=("only",))
    b.variable("two", states=("no", "yes"))
    b.variable("bare", states=2)
    b.variable("three", states=("low", "mid", "high"))
    b.variable("four", states=4)
    b.variable("own", states=("off", "on"))
    b.layer("s", pgm.Spin(), 2, labels=("left", "right"))
    b.layer("m", pgm.MultiValued(3), 2, labels=("p", "q"))
    b.layer("v", pgm.Binary(), 2)
    b.layer("c", pgm.Categorical(3), 2)
    b.couple("own", "v", weight=[[0.7, -1.1]])
    b.couple("v", "s", weight=[[0.4, -0.3], [0.2, 0.9]])
    b.couple("v", "m", weight=[[0.5, 0.1], [-0.6, 0.3]])
    b.couple("v", "c", weight=np.linspace(-1, 1, 12).reshape(2, 6))
    b.table(("one", "two"), [[0.3, 0.7]])
    b.conditional("three", ("two",), [[0.1, 0.7, 0.2], [0.4, 0.4, 0.2]])
    b.conditional("bare", ("three",), [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
    b.conditional("four", ("bare",), [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    b.table(("two", ("v", 0)), [[1.0, 2.0], [3.0, 0.5]])
    return b


UNITS = {
    "one": 1,
    "two": 2,
    "bare": 2,
    "three": 3,
    "four": 4,
    "own": 2,
    "left": 2,
    "q": 4,
    ("c", 1): 3,
}


def place_of(name):
    return {"left": ("s", 0), "q": ("m", 1)}.get(name, name)


def truth(name, likelihood, evidence=None):
    """Marginals of all units, log Z and log p with the likelihoods as a table of the model."""
    b = declared()
    b.table((place_of(name),), likelihood)
    r = pgm.infer(b.build(), evidence, want=WANT)
    plain = pgm.infer(declared().build(), evidence, want=WANT)
    return r.prob, r.log_z, r.log_z - (plain.log_z - plain.log_prob)


def compare(found, expected, rows=None, tolerance=1e-9):
    prob, log_z, log_prob = expected
    pick = slice(None) if rows is None else rows
    for name, value in prob.items():
        np.testing.assert_allclose(found.prob[name][pick], value, atol=tolerance)
    at = slice(None) if rows is None else slice(rows, rows + 1)
    np.testing.assert_allclose(found.log_z[at], log_z, atol=tolerance)
    np.testing.assert_allclose(found.log_prob[at], log_prob, atol=tolerance)


def keys_of(name, k):
    names = {
        "one": ("only",),
        "two": ("no", "yes"),
        "three": ("low", "mid", "high"),
        "own": ("off", "on"),
    }
    return names.get(name, tuple(range(k)))


@pytest.mark.parametrize("excluded", [False, True], ids=["positive", "with zeros"])
@one_test_over("name", UNITS, ids=str)
def test_hints_are_likelihoods_of_states_in_every_form(name, excluded):
    k = UNITS[name]
    rng = np.random.default_rng(k)
    one, two = rng.gamma(1.0, size=(2, k)) * 3
    if excluded:
        if k == 1:
            return
        one[rng.integers(k)] = 0.0
    with np.errstate(divide="ignore"):
        log, logs = np.log(one), np.log(np.stack([one, two]))
    keys, model = keys_of(name, k), declared().build()
    by_name = dict(zip(keys, log, strict=True))
    forms = [
        {name: log},
        {name: log.tolist()},
        {name: by_name},
        {name: dict(reversed(by_name.items()))},
        pgm.likelihood({name: one}),
        pgm.likelihood({name: dict(zip(keys, one, strict=True))}),
    ]
    # A Series and a DataFrame have states by name, in any order.
    forms += [{name: pd.Series(log, index=keys).iloc[::-1]}, {name: pd.Series(log)}]
    for evidence in ({}, {"v": [1, np.nan]}):
        expected = truth(name, one, evidence)
        for soft in forms:
            compare(pgm.infer(model, evidence, want=WANT, soft=soft), expected)
    forms = [{name: logs}, pgm.likelihood({name: np.stack([one, two])})]
    forms += [{name: dict(zip(keys, logs.T, strict=True))}]
    forms += [{name: pd.DataFrame(logs, columns=keys).iloc[:, ::-1]}]
    for soft in forms:
        found = pgm.infer(model, want=WANT, soft=soft)
        for row, likelihood in enumerate((one, two)):
            compare(found, truth(name, likelihood), row)


def test_layers_of_variables_and_of_one_hot_units_take_weights_by_state():
    model = declared().build()
    layer = next(n for n, x in model.structure.layers.items() if "two" in (x.labels or ()))
    log = np.log([[0.2, 0.9], [0.5, 0.5]])
    size = model.structure.layers[layer].size
    wide = np.zeros((size, 2))
    wide[model.structure.layers[layer].labels.index("two")] = log[0]
    compare(pgm.infer(model, want=WANT, soft={layer: wide}), truth("two", [0.2, 0.9]))
    two = pgm.infer(model, want=WANT, soft={layer: np.stack([wide, 0 * wide])})
    compare(two, truth("two", [0.2, 0.9]), 0)
    compare(two, truth("two", [1.0, 1.0]), 1)
    likelihood = np.ones((2, 3))
    likelihood[1] = 0.0, 0.3, 0.6
    with np.errstate(divide="ignore"):
        soft = {"c": np.log(likelihood)}
    compare(pgm.infer(model, want=WANT, soft=soft), truth(("c", 1), likelihood[1]))
    found = pgm.infer(model, want=WANT, soft=pgm.likelihood({"c": likelihood}))
    compare(found, truth(("c", 1), likelihood[1]))


def test_log_odds_stay_for_two_valued_units_without_names():
    model = declared().build()
    by_state = {"v[0]": {0: 1.0, 1: 3.0}}
    whole = {"v": {0: [0.0, 1.0], 1: [2.0, 1.0]}}
    likely = pgm.likelihood({("v", 0): [1, np.exp(2)]})
    for soft in ({"v": [2.0, 0.0]}, {("v", 0): 2.0}, likely, by_state, whole):
        found = pgm.infer(model, want=("marginals",), soft=soft)
        prob = truth(("v", 0), [1.0, np.exp(2)])[0]
        np.testing.assert_allclose(found.prob["v"], prob["v"], atol=1e-9)
    units = pgm.infer(model, soft=pgm.likelihood({"v": [[1, np.exp(2)], [3, 3]]})).prob["v"]
    np.testing.assert_allclose(units, prob["v"], atol=1e-9)
    spins = pgm.infer(model, soft={"s": [1.5, 0.0]}, want=("marginals",)).prob["s"]
    np.testing.assert_allclose(spins, truth("left", [1.0, np.exp(1.5)])[0]["s"], atol=1e-9)


METHODS = {
    "exact": pgm.Exact(),
    "elimination": pgm.Elimination(),
    "mcmc": pgm.MCMC(draws=4000),
    "annealing": pgm.AIS(chains=400),
    "tempering": pgm.ParallelTempering(draws=4000),
    "forward": pgm.Forward(),
    "bound": pgm.MeanField(),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_heeds_excluded_states_and_the_common_weight(method, errors=6.0, slack=1e-6):
    """In two rows, of which one has zeros; the second state of the pair is the likely one."""
    b = pgm.GraphBuilder()
    b.variable("a", states=("x", "y", "z"))
    b.variable("b", states=("no", "yes"))
    b.conditional("a", (), [0.7, 0.2, 0.1])
    b.conditional("b", ("a",), [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])
    soft = pgm.likelihood({"a": [[0, 2.0, 4.0], [1.0, 0.5, 0.5]], "b": [[3.0, 0.2], [0.5, 1.0]]})
    exact = pgm.infer(b.build(), soft=soft, want=("marginals", "log_z", "log_prob"))
    a = np.array([0.7, 0.2, 0.1]) * [[0, 2, 4], [1, 0.5, 0.5]]
    joint = a[..., None] * [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]]
    joint = joint * np.array([[3.0, 0.2], [0.5, 1.0]])[:, None]
    z = joint.sum(axis=(1, 2))
    np.testing.assert_allclose(exact.log_z, np.log(z), atol=1e-9)
    np.testing.assert_allclose(exact.log_prob, np.log(z), atol=1e-9)
    share = joint.sum(axis=2) / z[:, None]
    chosen = METHODS[method]
    want = tuple({"marginals", "log_z", "log_prob", "bound", "samples"} & chosen.gives)
    found = pgm.infer(b.build(), soft=soft, want=want, method=chosen, rng=0)
    if "marginals" in want:
        assert found.marginal("a")["x"][0] == 0
        if method != "bound":
            got = np.stack(list(found.marginal("a").values()), axis=1)
            error = np.sqrt(0.25 / 400) if found.kind == "estimate" else slack
            np.testing.assert_allclose(got, share, atol=errors * error)
    if "log_z" in want and found.kind == "exact":
        np.testing.assert_allclose(found.log_z, np.log(z), atol=slack)
    elif "log_z" in want:
        assert (found.log_z_interval[:, 0] - 0.02 <= np.log(z)).all()
        assert (found.log_z_interval[:, 1] + 0.02 >= np.log(z)).all()
    if "bound" in want:
        assert (found.bound <= np.log(z) + slack).all()
        assert (found.bound >= np.log(z) - 1).all()
    if "samples" in want:
        assert (found.samples["a"][:, 0, 0, 0] == 0).all()


def test_findings_leave_no_trace_in_results():
    model = declared().build()
    soft = pgm.likelihood({"three": [0, 0.5, 1], "left": [0.2, 0.4]})
    want = ("marginals", "gradient", "samples", "mode", "pairs", pgm.Joint("two", "three"))
    r = pgm.infer(model, soft=soft, want=want, rng=0)
    for part in (r.mean, r.prob, r.mode, r.samples):
        assert set(part) <= set(model.structure.layers)
    assert set(r.gradient) == set(model.params)
    assert set(r.pairs) == {c.key for c in model.structure.couplings}
    assert r.target.model is model and set(r.target.free) == set(model.structure.layers)
    assert r.assignment()["three"] != "low" and "low" not in set(r.samples_frame()["three"])
    assert r.joint["two", "three"][:, 0].sum() == 0
    text = str(pgm.explain(model, soft=soft))
    assert f"0 of {sum(x.size for x in model.structure.layers.values())} units observed" in text
    assert pgm.infer(model).prob["variables3"][0, 0] > 0


def test_an_excluded_state_that_is_observed_is_impossible():
    model = declared().build()
    r = pgm.infer(
        model, {"two": ["no", "yes"]}, soft={"two": [-np.inf, 0.5]}, want=("log_z", "log_prob")
    )
    assert np.isneginf(r.log_z[0]) and np.isfinite(r.log_z[1])
    seen = pgm.infer(model, {"two": "yes"}, want=("log_z",)).log_z
    np.testing.assert_allclose(r.log_z[1], seen[0] + 0.5, atol=1e-9)


def test_large_weights_of_two_states_are_exact_or_withheld():
    model = declared().build()
    for size in (1e3, 1e6, 1e18):
        for weights in ([-size, 0.0], [0.0, -size], [size, 0.0]):
            r = pgm.infer(model, soft={"two": weights})
            best = r.marginal("two")[("no", "yes")[int(np.argmax(weights))]]
            assert best == 1
    plain = pgm.infer(model, {"two": "yes"}, want=("log_z",)).log_z
    r = pgm.infer(model, soft={"two": [-1e6, 0.0]}, want=("log_z",))
    np.testing.assert_allclose(r.log_z, plain, atol=1e-8)
    with pytest.raises(pgm.PgmError, match="soft evidence of variable 'two'"):
        pgm.infer(model, soft={"two": [-1e18, 0.0]}, want=("log_z",))


@one_test_over(
    ("soft", "message"),
    [
        ({"two": 2.0}, r"'two' has shape \(\), expected \(..., 2\), a log weight for each state"),
        ({"left": 2.0}, r"'left' has shape \(\), expected \(..., 2\)"),
        ({"own": [1.0]}, r"'own'.* has shape \(1,\), expected \(..., 2\)"),
        ({"three": [0.0, 1.0]}, r"shape \(2,\), expected \(..., 3\)"),
        ({"two": {"no": 1.0}}, "there is no number for 'yes'"),
        ({"two": {"no": 1.0, "yse": 2.0}}, "'yse' is no state.*did you mean yes"),
        ({"bare": {"0": 1.0, "7": 2.0}}, "'7' is no state, expected 0"),
        ({"two": [-np.inf, -np.inf]}, "'two': every state is excluded"),
        ({"two": [[0, 0], [-np.inf, -np.inf]]}, "'two', row 1: every state is excluded"),
        ({"two": [0, np.nan]}, "'two', state 'yes' is nan, expected .*-inf"),
        ({"two": [[0, 0], [np.inf, 0]]}, "'two', row 1, state 'no' is inf"),
        ({"four": [0, 0, 0, 1e31]}, "'four', state 3 is"),
        ({"two": {"no": [1, 2], "yes": [1, 2, 3]}}, "different shapes"),
        ({"two": [[0, 0]] * 2, "three": [[0, 0, 0]] * 3}, "'two' has 2 rows.*'three' has 3 rows"),
        ({"two": np.zeros((2, 2, 2))}, r"shape \(2, 2, 2\), expected \(2,\) or \(rows, 2\)"),
        (pgm.likelihood({"two": [-0.1, 1.1]}), "state 'no' is -0.1, expected a likelihood"),
        (pgm.likelihood({"two": [np.nan, 1.1]}), "state 'no' is nan, expected a likelihood"),
        (pgm.likelihood({"two": [0, 0]}), "every state is excluded"),
        (pgm.likelihood({"two": 0.4}), "a likelihood for each state"),
        (pgm.likelihood({"v": [0.4, 0.2]}), "a likelihood for each state|log weights of 2"),
        ({"v": [0.0, -np.inf]}, "index 1 is -inf"),
        ({("v", 1): [[0.0, 1.0]]}, "expected a log-odds"),
    ],
    ids=str,
)
def test_wrong_hints_are_refused(soft, message):
    with pytest.raises(pgm.PgmError, match=message):
        pgm.infer(declared().build(), soft=soft)


def test_likelihoods_are_given_by_name():
    with pytest.raises(pgm.PgmError, match="likelihood takes a mapping such as"):
        pgm.likelihood([0.2, 0.8])


def states_and_units():
    """A variable whose names are numbers in the other order, and a layer with names of states."""
    b = pgm.GraphBuilder()
    b.variable("y", states=("1", "0"))
    b.conditional("y", (), [0.5, 0.5])
    b.layer("L", pgm.Binary(), 2, labels=("a", "c"), states=("no", "yes"))
    return b.build()


BY_NAME = (
    {0: 0.9, 1: 0.1},
    pd.Series({"0": 0.9, "1": 0.1}),
    pd.Series([0.1, 0.9], index=[1, 0]),
    pd.DataFrame([{1: 0.1, 0: 0.9}]),
)


@one_test_over("given", BY_NAME, ids=repr)
def test_an_index_names_states_in_any_writing(given):
    r = pgm.infer(states_and_units(), soft=pgm.likelihood({"y": given}))
    assert np.ravel(r.marginal("y")["0"]) == pytest.approx(0.9)


@one_test_over(
    "given", [pd.Series([0.9, 0.1]), pd.DataFrame([[0.9, 0.1]]), pd.Series({0: 0.9, 1: 0.1})]
)
def test_an_index_that_may_be_names_or_an_order_is_refused(given):
    """pandas makes the same index where none is given, and for the keys 0 and 1."""
    with pytest.raises(pgm.PgmError, match="'y': the index .0, 1. may be names of states, or"):
        pgm.infer(states_and_units(), soft=pgm.likelihood({"y": given}))
    b = pgm.GraphBuilder()
    b.variable("y", states=("low", "high"))
    b.conditional("y", (), [0.5, 0.5])
    r = pgm.infer(b.build(), soft=pgm.likelihood({"y": given}))
    assert np.ravel(r.marginal("y")["low"]) == pytest.approx(0.9)


def test_an_index_of_other_names_is_refused():
    b = pgm.GraphBuilder()
    b.variable("w", states=("no", "yes"))
    b.conditional("w", (), [0.5, 0.5])
    for given in (pd.Series({"Yes": 0.9, "No": 0.1}), pd.DataFrame([{"Yes": 0.9, "No": 0.1}])):
        with pytest.raises(pgm.PgmError, match="'Yes' is no state"):
            pgm.infer(b.build(), soft=pgm.likelihood({"w": given}))


@pytest.mark.parametrize("key", ["a", ("L", "a"), ("L", 0)])
@pytest.mark.parametrize(
    "given", [[0.0, 2.0], pd.Series([2.0, 0.0], index=["yes", "no"])], ids=repr
)
def test_units_whose_states_have_names_take_weights_by_state(key, given):
    r = pgm.infer(states_and_units(), soft={key: given})
    assert r.prob["L"].shape == (2, 2)
    assert r.prob["L"][0, 1] == pytest.approx(1 / (1 + np.exp(-2.0)))


def test_hints_of_a_layer_by_names_of_states_are_not_taken_for_its_units():
    model = states_and_units()
    for one in ([[0.2, 0.4], [0.8, 0.6]], np.ones((2, 2))):
        r = pgm.infer(model, soft=pgm.likelihood({"L": one}))
        np.testing.assert_allclose(r.prob["L"], one / np.sum(one, axis=1, keepdims=True))
    for given in (pd.Series([0.0, 2.0], ["no", "yes"]), {"no": [0.0], "yes": [2.0]}):
        with pytest.raises(pgm.PgmError, match="soft: layer 'L' has shape"):
            pgm.infer(model, soft={"L": given})
    with pytest.raises(pgm.PgmError, match="soft: layer 'L' has shape"):
        pgm.infer(model, soft={"L": pd.DataFrame({"yes": [1.0], "no": [2.0]})})


TWO_VALUED = [
    u
    for u in registry.UNITS
    if u.width == 1 and np.size(u.support) == 2 and not isinstance(u, pgm.NoisyOr)
]


@one_test_over("unit", TWO_VALUED, ids=repr)
def test_one_number_is_the_weight_of_the_larger_value(unit):
    """Whatever the two values are: log p is the log of the sum of p(x) e^w over states x."""
    b = pgm.GraphBuilder()
    b.layer("v", unit, 3, bias=[0.3, -0.7, 0.2])
    b.layer("h", pgm.Categorical(3), 1, bias=[[0.1, 0.5, -0.2]])
    b.couple("v", "h", np.linspace(-1, 1, 9).reshape(3, 3))
    model, odds = b.build(), np.array([1.5, 0.0, -0.8])
    high = unit.support[1]
    grid = np.array(list(itertools.product(unit.support, repeat=3)))
    states = {"v": np.repeat(grid, 3, axis=0), "h": np.tile(np.eye(3)[:, None], (8, 1, 1))}
    weights = np.where(states["v"] == high, odds, 0.0).sum(axis=1)
    log_p = model.log_density(states)
    truth = logsumexp(log_p + weights) - logsumexp(log_p)
    by_state = np.stack((0 * odds, odds), axis=-1)
    forms = [
        {"v": odds},
        {"v": pd.DataFrame([odds], columns=["v[0]", "v[1]", "v[2]"])},
        {("v", 0): 1.5, ("v", 2): -0.8},
        {("v", 0): [1.5], ("v", 2): [-0.8]},
        {("v", 0): {0: 0.0, 1: 1.5}, ("v", 2): {0: 0.0, 1: -0.8}},
        pgm.likelihood({"v": np.exp(by_state)}),
    ]
    for soft in forms:
        for method in (pgm.Exact(), pgm.Enumeration(), pgm.Elimination()):
            r = pgm.infer(model, want=("log_prob", "log_z"), soft=soft, method=method)
            np.testing.assert_allclose(np.ravel(r.log_prob), truth, atol=1e-9)
            np.testing.assert_allclose(np.ravel(r.log_z), truth + logsumexp(log_p), atol=1e-9)
    r = pgm.infer(model, want="log_prob", soft={"v": odds}, method=pgm.AIS(chains=400), rng=0)
    assert abs(r.log_prob[0] - truth) <= 6.5 * r.log_prob_error[0] + 1e-4
