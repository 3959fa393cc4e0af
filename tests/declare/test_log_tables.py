"""Tables that are given by their logarithms, of sizes that no entry could have."""

import itertools

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm

NAMES, K = "abcd", 3
inf = np.inf


def costs(rng, size, zeros):
    """Log potentials with near ties, so that several states have a share."""
    t = size * rng.integers(-1, 2, (K, K)) + rng.normal(size=(K, K))
    t[rng.random(t.shape) < 0.15 * zeros] = -inf
    return t


def clique(seed, size, zeros=False):
    """A model with a table for each pair of four variables, and the log weight of each state."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    for name in NAMES:
        b.variable(name, states=K)
    tables = {pair: costs(rng, size, zeros) for pair in itertools.combinations(range(4), 2)}
    for (i, j), values in tables.items():
        b.table((NAMES[i], NAMES[j]), values, log=True)
    states = np.array(list(itertools.product(range(K), repeat=4)))
    return b.build(), states, sum(t[states[:, i], states[:, j]] for (i, j), t in tables.items())


def truth(states, logs):
    """log Z, the marginals (4, K), and the most probable state."""
    w = np.exp(logs - logs.max())
    prob = [np.bincount(states[:, i], w, K) / w.sum() for i in range(4)]
    return logs.max() + np.log(w.sum()), np.array(prob), states[logs.argmax()]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("size", [1e3, 1e4, 1e6])
def test_costs_of_any_size_are_summed_without_underflow(size, zeros):
    for seed in range(3):
        model, states, logs = clique(seed, size, zeros)
        log_z, prob, mode = truth(states, logs)
        for method in (pgm.Elimination(), pgm.Auto()):
            r = pgm.infer(model, want=("marginals", "log_z", "mode"), method=method)
            assert r.log_z[0] == pytest.approx(log_z, rel=1e-12)
            found = [[r.marginal(name)[k] for k in range(K)] for name in NAMES]
            np.testing.assert_allclose(found, prob, atol=1e-6)
            assert [r.assignment()[name] for name in NAMES] == mode.tolist()
        bound = pgm.infer(model, want=("bound",), method=pgm.MeanField()).bound[0]
        assert bound <= log_z + 1e-9 * abs(log_z)


@pytest.mark.parametrize("method", [pgm.MCMC(draws=300), pgm.ParallelTempering(draws=300)])
def test_chains_are_right_or_say_that_they_are_not(method, limit=0.1):
    """The marginals of chains with a good status; terms beyond single precision are refused."""
    for seed in range(3):
        model, states, logs = clique(seed, 1e4, zeros=True)
        r = pgm.infer(model, method=method, rng=seed)
        found = [[r.marginal(name)[k] for k in range(K)] for name in NAMES]
        assert not r.status.good or np.abs(found - truth(states, logs)[1]).max() < limit
    with pytest.raises(pgm.PgmError, match="use smaller numbers"):
        pgm.infer(clique(0, 1e6)[0], method=method, rng=0)


def test_logarithms_become_the_parameter_as_they_are_and_survive_a_file(tmp_path):
    values = np.array([[-1e4, 0.1], [-inf, -1e-300]])
    b = pgm.GraphBuilder()
    b.layer("v", pgm.Binary(), 4)
    x = b.variable("x", shape=3)
    b.table((("v", 0), ("v", 1)), values, log=True)
    b.table((x[1:], x[:-1]), values, name="pair", log=True)
    b.tables(("v", "v"), [[0, 2], [1, 3]], [values, values.T], log=True)
    b.table((x[0], x[2]), lambda i, k: -1e5 if i == k else np.float64(-inf), "far", log=True)
    model = b.build()
    pgm.save(model, tmp_path / "m")
    for found in (model, pgm.load(tmp_path / "m")):
        np.testing.assert_array_equal(found.params["v[0],v[1].table"], values)
        np.testing.assert_array_equal(found.params["pair"], values)
        np.testing.assert_array_equal(found.params["v,v.table"], [values, values.T])
        # Its two results are leaves.
        np.testing.assert_array_equal(found.params["far"], [-1e5, -inf])
        (far,) = (t for t in found.structure.tables if t.key == "far")
        np.testing.assert_array_equal(found.entries_of(far), [[-1e5, -inf], [-inf, -1e5]])
    for suffix in ("uai", "bif"):
        with pytest.raises(pgm.PgmError):
            pgm.write(model, tmp_path / f"m.{suffix}")
        assert not (tmp_path / f"m.{suffix}").exists()


def test_conditionals_take_log_probabilities():
    b = pgm.GraphBuilder()
    b.variable("cause", states=("no", "yes"))
    b.variable("sign", states=("no", "yes"))
    b.conditional("cause", (), [np.log1p(-np.exp(-20.0)), -20.0], log=True)
    # A sign that has the probability e^-2000 without its cause.
    b.conditional("sign", ("cause",), [[0.0, -2000.0], [-inf, 0.0]], log=True)
    r = pgm.infer(b.build(), {"sign": "yes"}, want=("marginals", "log_prob"))
    assert r.log_prob[0] == -20.0 and r.marginal("cause")["yes"] == 1.0


def test_a_declaration_in_a_file_takes_logarithms(tmp_path):
    text = """
    [[variables]]
    name = "x"
    [[variables]]
    name = "y"
    [[conditionals]]
    child = "x"
    values = [0.0, -inf]
    log = true
    [[tables]]
    scope = ["x", "y"]
    values = [[-1e4, -10_001.0], [0, 0]]
    log = true
    """
    (tmp_path / "m.toml").write_text(text)
    model = pgm.load_declaration(tmp_path / "m.toml")
    np.testing.assert_array_equal(model.params["x,y.table"], [[-1e4, -10_001], [0, 0]])
    assert pgm.infer(model).marginal("y")[0] == pytest.approx(1 / (1 + np.exp(-1)))
    (tmp_path / "m.toml").write_text(text.replace("log = true", 'log = "yes"', 1))
    with pytest.raises(pgm.PgmError, match="log must be True or False, not 'yes'"):
        pgm.load_declaration(tmp_path / "m.toml")


BAD = {
    "inf": (("table", ("x",), [0.0, inf]), {}, r"entry \[1\] is inf, expected a finite number"),
    "nan": (("table", ("x",), [0.0, np.nan]), {}, r"entry \[1\] is nan"),
    "nothing possible": (("table", ("x",), [-inf, -inf]), {}, "all entries of table are -inf"),
    "too large": (("table", ("x",), [0.0, -1e31]), {}, r"entry \[1\] is -1e\+31"),
    "no log probabilities": (("conditional", "x", (), [0.2, 0.8]), {}, "sum to 3.4469"),
    "a row of zeros": (("conditional", "x", (), [-inf, -inf]), {}, "all entries of table are -inf"),
    "rows": (("conditional", "x", ("y",)), {"rows": {0: 1}, "otherwise": 0}, "not rows="),
    "gate": (("conditional", "x", ("y",), pgm.noisy_or([0.5])), {}, "a noisy gate has"),
    "function of rows": (("conditional", "x", ("y",), lambda y: y), {}, "takes an array of log"),
    "function": (("table", ("x",), lambda x: "a"), {}, "'a', expected a finite number, or -inf"),
    "infinite function": (("table", ("x",), lambda x: inf), {}, "inf, expected a finite number"),
}


@one_test_over("name", BAD)
def test_wrong_logarithms_are_refused(name):
    (call, *arguments), more, said = BAD[name]
    b = pgm.GraphBuilder()
    b.variable("x")
    b.variable("y")
    with pytest.raises(pgm.PgmError, match=said):
        getattr(b, call)(*arguments, log=True, **more)
        b.build()


def test_one_name_has_logarithms_or_entries():
    b = pgm.GraphBuilder()
    x = b.variable("x", shape=2)
    b.table((x[0],), [1.0, 2.0], "one")
    b.table((x[1],), [1.0, 2.0], "one", log=True)
    with pytest.raises(pgm.PgmError, match="one has log=True, and the other has not"):
        b.build()
    with pytest.raises(pgm.PgmError, match="log must be True or False, not 1"):
        b.table((x[1],), [1.0, 2.0], log=1)
