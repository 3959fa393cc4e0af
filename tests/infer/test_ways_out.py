"""Refusals and doubtful answers end with calls that answer."""

import re

import numpy as np
import pytest

import pgmengine as pgm


def wide():
    """A lattice with three states that is too wide for exact answers."""
    b = pgm.GraphBuilder()
    x = b.variable("x", states=3, shape=(40, 40))
    rng = np.random.default_rng(0)
    b.table((x[:, :-1], x[:, 1:]), rng.uniform(1, 2, (3, 3)), name="h")
    b.table((x[:-1], x[1:]), rng.uniform(1, 2, (3, 3)), name="v")
    return b.build()


def ways_of(text):
    """Return the calls in the lines of a message."""
    found = re.findall(r"^  (?:want=(\(.*?\)), )?method=pgm\.(\w+)\(\): ([a-z ]+),", text, re.M)
    return [
        (eval(want) if want else None, getattr(pgm, name)(), kind) for want, name, kind in found
    ]


REFUSED = {
    "exact": lambda: (wide(), ("log_z",), pgm.Exact()),
    "draws": lambda: (pgm.rbm(12, 40, rng=0), ("mode",), pgm.MCMC()),
    "joint": lambda: (pgm.rbm(50, 40, rng=0), (pgm.Joint(("v", 0), ("h", 0)),), None),
    "several": lambda: (pgm.rbm(50, 40, rng=0), ("marginals", "mode"), pgm.Exact()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_ends_with_calls_that_are_accepted(name):
    model, want, method = REFUSED[name]()
    with pytest.raises(pgm.PgmError) as caught:
        pgm.infer(model, want=want, method=method)
    ways = ways_of(str(caught.value))
    assert 1 <= len(ways) <= 3 and len(str(caught.value)) < 700
    for some, other, kind in ways:
        plan = other.plan(model.given(), some or want)
        assert plan.accepted and plan.guarantee == kind


def test_no_way_takes_longer_than_the_time_that_is_given():
    with pytest.raises(pgm.PgmError) as caught:
        pgm.infer(wide(), want=("log_z",), seconds=1e-6)
    assert not ways_of(str(caught.value)) and "ask with seconds=" in str(caught.value)


def test_a_doubtful_answer_names_what_may_do_better():
    rng = np.random.default_rng(0)
    weight = np.triu(3 * rng.normal(size=(30, 30)), 1)
    model = pgm.boltzmann_machine(30, rng=0).with_params(
        {"x-x.weight": weight + weight.T, "x.bias": np.zeros(30)}
    )
    r = pgm.infer(model, method=pgm.MCMC(draws=200), rng=0)
    assert not r.status.good and len(r.ways) == 2
    assert "to do better, tolerance=0.01" in str(r) and "pgm.MiniBucket(): bounds" in str(r)
    assert pgm.infer(pgm.rbm(4, 3, rng=0)).ways == ()
