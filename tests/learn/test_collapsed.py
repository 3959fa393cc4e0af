"""Normal states that collapse onto one value: a finding says so, and params has what is used."""

import math

import numpy as np
import pytest

import pgmengine as pgm

LEAST = 0.01
LEARNERS = {
    "EM": (pgm.EM(pseudocount=0), 1000),
    "LBFGS": (pgm.LBFGS(), 1000),
    "l1": (pgm.LBFGS(l1=1e-6), 1000),
    "Adam": (pgm.Adam(0.02), 600),
    "SGD": (pgm.SGD(0.1), 3000),
    "Averaged": (pgm.Averaged(pgm.Adam(0.02)), 600),
}
NAMES = ("low", "high", "apart")
WIDE = "state apart of 'z' in 'x'"


def rows(rng, equal, length=1):
    """Numbers about -1 and 1, and equal ones at 3, (n, length)."""
    x = np.concatenate([rng.normal(-1, 0.5, 30), rng.normal(1, 0.4, 30), np.full(equal, 3.0)])
    return x[: len(x) // length * length].reshape(-1, length)


def chain(steps):
    b = pgm.GraphBuilder()
    z = b.variable("z", states=NAMES, shape=steps)
    x = b.layer("x", pgm.Normal(least_sigma=LEAST), steps)
    b.conditional(z[0], (), np.full(3, 1 / 3), name="start")
    if steps > 1:
        b.conditional(z[1:], (z[:-1],), np.full((3, 3), 1 / 3), name="moves")
    b.cause(z, x, [[-1.0, 0.0], [1.0, 0.0], [3.0, -2.0]], name="rows")
    return b


def two_parents():
    """A sum of two inputs, which is below the smallest one where both are low."""
    b = pgm.GraphBuilder()
    y, z = b.variable("y", states=2), b.variable("z", states=2)
    x = b.layer("x", pgm.Normal(least_sigma=LEAST), 1)
    b.conditional(y, (), [0.5, 0.5])
    b.conditional(z, (), [0.9, 0.1])
    b.cause(y, x, [[-1.0, 0.0], [1.0, -2.0]], name="y rows")
    b.cause(z, x, [[0.0, 0.0], [2.0, -3.0]], name="z rows")
    return b.build()


def sigmas(fitted, model):
    """The standard deviation of x in each state of z, by an answer of the model."""
    states = [{"z[0]": name} for name in NAMES]
    found = [pgm.infer(model, state).mean["x"].reshape(-1, 2)[0] for state in states]
    return np.array([math.sqrt(square - mean**2) for mean, square in found])


@pytest.mark.few(2)
@pytest.mark.parametrize("equal", (1, 4))
@pytest.mark.parametrize(
    "name", [*(n for n in LEARNERS if n != "SGD"), pytest.param("SGD", marks=pytest.mark.long)]
)
def test_a_state_of_equal_values_is_found(name, equal):
    optimizer, updates = LEARNERS[name]
    data = {"x": rows(np.random.default_rng(equal), equal)}
    model = chain(1).build()
    f = pgm.fit(model, data, optimizer=optimizer, updates=updates, progress=False)
    assert [(x.kind.name, x.states, x.sigma) for x in f.findings] == [("COLLAPSED", WIDE, LEAST)]
    assert "smallest standard deviation" in str(f.findings[0])
    np.testing.assert_allclose(np.exp(f.params["rows"][:, 1]), sigmas(f, f.model), rtol=1e-6)
    if name in ("EM", "LBFGS"):
        assert f.stopped and f.state["update"] < 300


@pytest.mark.parametrize("optimizer", (pgm.EM(pseudocount=0), pgm.LBFGS(l2=1e-6)))
def test_a_state_of_a_template_is_found(optimizer):
    rng = np.random.default_rng(0)
    data = [{"x": row} for steps in (4, 1) for row in rows(rng, 8, steps)]
    f = pgm.fit(pgm.Template(chain), data, optimizer=optimizer, progress=False)
    assert [(x.kind.name, x.states) for x in f.findings] == [("COLLAPSED", WIDE)]
    np.testing.assert_allclose(f.params["rows"][2], [3.0, math.log(LEAST)], atol=1e-6)
    assert f.stopped and f.state["update"] < 300


def test_the_prior_of_em_keeps_a_state_of_equal_values_apart_from_zero():
    """A hundredth of a row that deviates as all data do, besides four equal values."""
    x = rows(np.random.default_rng(4), 4)
    data = {"x": x, "z": np.repeat(NAMES, (30, 30, 4))[:, None]}
    f = pgm.fit(chain(1).build(), data, progress=False)
    assert not f.findings
    expected = 0.01 * np.var(x) / 4.01
    np.testing.assert_allclose(np.exp(2 * f.params["rows"][2, 1]), expected, rtol=1e-12)


@pytest.mark.parametrize("optimizer", (pgm.LBFGS(), pgm.Adam(0.02)))
def test_a_sum_of_inputs_is_found(optimizer):
    """Rows of two parents add up, so that none of them is the standard deviation in use."""
    data = {"x": rows(np.random.default_rng(0), 12)}
    f = pgm.fit(two_parents(), data, optimizer=optimizer, updates=600, progress=False)
    found = [x for x in f.findings if x.kind is pgm.FindingKind.COLLAPSED]
    assert [x.states for x in found] == ["units in 'x'"]


def test_no_state_is_found_where_all_have_a_spread():
    apart = np.linspace(2.5, 3.5, 9)[:, None]
    data = {"x": np.concatenate([rows(np.random.default_rng(0), 0), apart])}
    f = pgm.fit(chain(1).build(), data, progress=False)
    assert not f.findings
    assert (f.params["rows"][:, 1] > math.log(LEAST)).all()


def test_a_state_at_the_smallest_deviation_can_leave_it():
    """The derivative upwards counts there, so that data may widen the state again."""
    rng = np.random.default_rng(0)
    b = chain(1)
    model = b.build().with_params({"rows": [[-1.0, 0.0], [1.0, 0.0], [3.0, -100.0]]})
    data = {"z": rng.choice(NAMES, (200, 1)), "x": rng.normal(3.0, 0.3, 200)[:, None]}
    for optimizer in (pgm.LBFGS(), pgm.SGD(1e-4)):
        f = pgm.fit(model, data, optimizer=optimizer, updates=40, progress=False)
        assert f.params["rows"][2, 1] > math.log(LEAST)
