"""Messages and plans name the variables that a user declared, never the layers that hold them.

Variables with the same states share a layer, whose name no user has given.
"""

import re

import numpy as np
import pytest
from extras import extra
from loops import one_test_over
from registry import METHODS

import pgmengine as pgm

STORAGE = re.compile(r"variables\d")
VALUES = np.array([[2.0, 1.0], [0.5, 3.0]])


def directed():
    """A network whose variables are in three layers."""
    b, rng = pgm.GraphBuilder(), np.random.default_rng(0)
    for name in "abcd":
        b.variable(name, states=("no", "yes"))
    b.variable("e", states=("low", "mid", "high"))
    b.variable("f", states=3)
    b.conditional("a", (), [0.3, 0.7])
    for child, parents in (("b", "a"), ("c", "ab"), ("d", "c"), ("e", "da"), ("f", "e")):
        shape = [3 if name in "ef" else 2 for name in (*parents, child)]
        b.conditional(child, tuple(parents), rng.dirichlet(np.ones(shape[-1]), shape[:-1]))
    return b.build()


def undirected():
    """A cycle of variables, joined by potentials."""
    b = pgm.GraphBuilder()
    for name in "abcd":
        b.variable(name, states=("no", "yes"))
    b.variable("e", states=3)
    for pair in ("ab", "bc", "cd", "da"):
        b.table(tuple(pair), VALUES)
    b.table(("a", "e"), np.ones((2, 3)))
    return b.build()


MODELS = {"directed": directed, "undirected": undirected}

# Evidence, hints, interventions and data that no model can take; the last two name storage.
WRONG = (
    {"q": 1},
    {"a": "maybe"},
    {"a": 5},
    {"a": ["yes", None, "maybe"]},
    {"a": [1, 0], "b": [1]},
    {"a": [1, 0], "e": [1, 0, 2]},
    {"a": []},
    {"a": np.zeros((2, 2))},
    {"a": np.inf},
    {"e": 7},
    {("a", 1): 1},
    [0, 1],
    np.zeros((3, 4)),
    3,
    {"variables2": [5] * 4},
    {"variables2": np.zeros((2, 9))},
)


def named(wrong):
    """The names alone; of something else than a mapping, one that is unknown."""
    return tuple(wrong) if isinstance(wrong, dict) else ("q",)


DOORS = {
    "infer": lambda m, x: pgm.infer(m, x),
    "do": lambda m, x: pgm.infer(m, do=x),
    "soft": lambda m, x: pgm.infer(m, soft=x),
    "fit": lambda m, x: pgm.fit(m, x, updates=1, progress=False),
    "given": lambda m, x: pgm.fit(m, {"a": [0, 1]}, given=named(x), updates=1, progress=False),
    "log_density": lambda m, x: m.log_density(x),
    "base_rates": lambda m, x: pgm.base_rates(m, x),
    "prepare": lambda m, x: pgm.prepare(m, ("a",))(x),
    "reference": lambda m, x: pgm.infer(m, want="log_z", method=pgm.AIS(reference=x)),
    "state": lambda m, x: pgm.infer(m, method=pgm.MCMC(), state=x),
    "start": lambda m, x: pgm.infer(m, method=pgm.MeanField(), state=x),
    "parameters": lambda m, x: m.with_params(dict.fromkeys(named(x), 1.0)),
    "monitor": lambda m, x: pgm.PseudoLikelihood(x)(m, 0),
}


def refusal(ask):
    """The message of a refusal; the question may also be answered."""
    try:
        ask()
    except pgm.PgmError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", MODELS)
@one_test_over("door", DOORS)
def test_refusals_name_variables(door, kind):
    model, told = MODELS[kind](), []
    for wrong in WRONG:
        message = refusal(lambda wrong=wrong: DOORS[door](model, wrong))
        # A name that was given may be repeated.
        if "variables2" not in str(wrong):
            assert not STORAGE.search(message), f"{wrong}: {message}"
        else:
            assert not re.search(r"variables\d(_|'.*row)|variables3", message), (
                f"{wrong}: {message}"
            )
        told.append(message)
    assert sum(map(bool, told)) >= 2


@pytest.mark.parametrize("kind", MODELS)
def test_answers_of_unknown_names_list_variables(kind):
    model = MODELS[kind]()
    r = pgm.infer(model, want=("marginals", "mode", pgm.Joint("a", "b")))
    for ask in (
        lambda: r.mean["q"],
        lambda: r.prob["q"],
        lambda: r.mode["q"],
        lambda: r.marginal("q"),
        lambda: r.joint["q", "a"],
        lambda: pgm.infer(model, want=(pgm.Joint("a", "q"),)),
        lambda: pgm.prepare(model, ("q",)),
        lambda: model.with_params({"q.bias": [0.0]}),
        lambda: model.log_density({"a": 1}),
    ):
        message = refusal(ask)
        assert message and not STORAGE.search(message), message
    assert "it has a, b, c ... and" in refusal(lambda: r.mean["q"])
    assert "the variables are a, b, c ... and" in refusal(lambda: pgm.infer(model, {"q": 1}))
    extra("matplotlib")
    other = pgm.infer(pgm.rbm(3, 2, rng=0))
    message = refusal(lambda: pgm.plots.graph(model, result=other))
    assert "expected one with a, b, c ... and" in message and not STORAGE.search(message)


def test_counts_of_further_names_are_counts_of_declared_ones():
    """Six variables in three layers, and one layer of a user, are seven names."""
    b = pgm.GraphBuilder()
    for name in "abcd":
        b.variable(name, states=("no", "yes"))
    b.variable("e", states=3)
    b.variable("f", states=4)
    b.layer("h", pgm.Binary(), 2)
    message = refusal(lambda: pgm.infer(b.build(), {"q": 1}))
    assert message == (
        "evidence: variable or layer 'q' is unknown; the variables and layers are a, b, c ... and "
        "4 more"
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", MODELS)
@one_test_over("name", sorted(METHODS))
def test_plans_and_warnings_name_variables(name, kind):
    model = MODELS[kind]()
    seen = {"e": "mid" if kind == "directed" else 1}
    for want in ("marginals", "log_z", "log_prob", "mode", "pairs", "gradient", "samples", "bound"):
        plans = pgm.explain(model, seen, want=(want,), method=METHODS[name])
        assert not STORAGE.search(plans), plans
        try:
            r = pgm.infer(model, seen, want=(want,), method=METHODS[name], rng=0)
        except pgm.PgmError as error:
            assert not STORAGE.search(str(error)), error
            continue
        for text in (*r.warnings, *map(str, r.refused), str(r.plan)):
            assert not STORAGE.search(text), text


@pytest.mark.parametrize("make", [directed, undirected])
def test_models_of_files_name_variables_as_well(make, tmp_path):
    pgm.save(make(), tmp_path / "m")
    message = refusal(lambda: pgm.infer(pgm.load(tmp_path / "m"), {"variables2": [5] * 4}))
    assert "'a'" in message and ": 5" in message and not STORAGE.search(message), message
