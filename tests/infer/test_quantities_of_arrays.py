"""Joint and Mode of arrays, slices and handles, beside sums over all states."""

import itertools
import pickle

import numpy as np
import pytest
from loops import one_test_over

import pgmengine as pgm
from pgmengine.infer import answering as asking


def grid(seed=0):
    """A 2 x 3 array of variables of two states, and an array of three of three states."""
    rng, b = np.random.default_rng(seed), pgm.GraphBuilder()
    s = b.variable("s", states=("low", "high"), shape=(2, 3))
    z = b.variable("z", states=3, shape=3)
    b.table((s[1:], s[:-1]), np.exp(rng.normal(size=(3, 2, 2)))[None])
    b.table((s[:, 1:], s[:, :-1]), np.exp(rng.normal(size=(2, 2, 2, 2))))
    b.table((s[0], z), np.exp(rng.normal(size=(3, 2, 3))))
    b.table((z[1:], z[:-1]), np.exp(rng.normal(size=(3, 3))))
    return b.build(), s, z


def table(model):
    """The probabilities of all states, (2,) * 6 + (3,) * 3."""
    states = np.array([*itertools.product(*[range(2)] * 6, *[range(3)] * 3)])
    names = np.array(["low", "high"])[states[:, :6]]
    logs = model.log_density({"s": names, "z": states[:, 6:]})
    p = np.exp(logs - logs.max())
    return (p / p.sum()).reshape((2,) * 6 + (3,) * 3)


def marginal(p, units):
    """The table of some axes, in their order."""
    rest = [i for i in range(p.ndim) if i not in units]
    summed = p.sum(axis=tuple(rest))
    return summed.transpose([sorted(units).index(i) for i in units])


# Names of units -> their axes in the table of all states, in order.
PARTS = {
    "z": [6, 7, 8],
    "z[1:]": [7, 8],
    "z[::-1]": [8, 7, 6],
    "z[-1]": [8],
    "s[0]": [0, 1, 2],
    "s[:, 1]": [1, 4],
    "s": [0, 1, 2, 3, 4, 5],
}


@one_test_over("seed", range(3))
def test_arrays_and_parts_of_them_have_the_distributions_of_their_units(seed):
    model, s, z = grid(seed)
    p = table(model)
    handles = {"z[1:]": z[1:], "s[:, 1]": s[:, 1], "z[-1]": z[-1], "s": s}
    for text, units in PARTS.items():
        for name in (text, handles.get(text, text)):
            r = pgm.infer(model, want=(pgm.Joint(name), pgm.Mode(name)))
            expected = marginal(p, units)
            np.testing.assert_allclose(r.joint[name], expected, atol=1e-12)
            np.testing.assert_allclose(r.joint[text], expected, atol=1e-12)
            best = np.unravel_index(expected.argmax(), expected.shape)
            found = r.assignment(name)[text]
            states = np.array(["low", "high"])[list(best)] if text[0] == "s" else best
            np.testing.assert_array_equal(np.ravel(found), np.ravel(states))
            shape = {"s": (2, 3), "s[:, 1]": (2,), "z[-1]": ()}.get(text, np.shape(best))
            assert np.shape(found) == shape
            assert r.assignment(text).keys() == {text}


def test_several_parts_and_rows_of_evidence():
    model, s, z = grid()
    p, want = table(model), pgm.Joint("z[1:]", s[0, 0], ("s", 4))
    seen = np.full((2, 3), np.nan)
    seen[:, 0] = [0, 2]
    r = pgm.infer(model, {"z": seen}, want=(want, pgm.Mode("s[1]", z[1:])))
    for row, state in enumerate((0, 2)):
        given = p.take(state, axis=6)
        given = given / given.sum()
        # Without the axis of z[0], those behind it move up.
        expected = marginal(given, [6, 7, 0, 4])
        np.testing.assert_allclose(r.joint["z[1:]", "s[0,0]", "s[1,1]"][row], expected, atol=1e-12)
        swapped = r.joint[s[0, 0], "z[2]", "z[1]", "s[1,1]"]
        np.testing.assert_allclose(swapped[row], expected.transpose(2, 1, 0, 3), atol=1e-12)
        both = marginal(given, [3, 4, 5, 6, 7])
        best = np.unravel_index(both.argmax(), both.shape)
        found = r.assignment("z[1:]", "s[1]")
        assert found["z[1:]"][row].tolist() == [int(k) for k in best[3:]]
        assert found["s[1]"][row].tolist() == [("low", "high")[k] for k in best[:3]]
    assert "mode of 's[1]'" in repr(r)


def test_handles_of_one_text_are_different_quantities(monkeypatch):
    """Handles by lists have the same text; a remembered plan of one must not answer the other."""
    model, s, z = grid()
    p = table(model)
    for some in ([0, 1], [1, 2], [2, 0]):
        r = pgm.infer(model, want=(pgm.Joint(z[some]),))
        units = [6 + i for i in some]
        np.testing.assert_allclose(r.joint[z[some]], marginal(p, units), atol=1e-12)
    longer = pgm.GraphBuilder().variable("z", states=3, shape=2)
    r = pgm.infer(model, want=(pgm.Joint(longer[-1]),))
    np.testing.assert_allclose(r.joint["z[1]"], marginal(p, [7]), atol=1e-12)
    assert pgm.Mode(z[1:]) == pgm.Mode(z[1:]) != pgm.Mode(longer[1:])
    assert len(asking.REMEMBERED[model]) == 4


def test_quantities_of_handles_go_to_other_processes():
    model, s, z = grid()
    want = pickle.loads(pickle.dumps(pgm.Joint(z[1:], "s[0]")))
    assert want == pgm.Joint(z[1:], "s[0]") and want.units[0].owner is None
    np.testing.assert_allclose(
        pgm.infer(model, want=(want,)).joint["z[1:]", "s[0]"],
        marginal(table(model), [7, 8, 0, 1, 2]),
        atol=1e-12,
    )


def test_templates_have_parts_of_each_length():
    def coins(steps):
        b = pgm.GraphBuilder()
        z = b.variable("z", shape=steps)
        b.conditional(z[0], (), [0.3, 0.7], name="start")
        b.conditional(z[1:], (z[:-1],), [[0.9, 0.1], [0.2, 0.8]], name="move")
        return b

    want = "marginals", pgm.Mode("z[1:]"), pgm.Joint("z[-1]")
    for steps, r in zip((3, 5), pgm.infer(pgm.Template(coins), [3, 5], want=want), strict=True):
        assert r.assignment("z[1:]")["z[1:]"].shape == (steps - 1,)
        np.testing.assert_allclose(r.joint["z[-1]"], [r.marginal("z")[k][-1] for k in (0, 1)])


def test_marginals_and_observed_units_take_parts(monkeypatch):
    model, s, z = grid()
    r = pgm.infer(model, {"z": [[0, 1, np.nan], [2, 2, np.nan]]})
    whole = r.marginal("s")["low"]
    np.testing.assert_array_equal(r.marginal(s[:, 1])["low"], whole[:, :, 1])
    np.testing.assert_array_equal(r.marginal(s[-1, -1])["low"], whole[:, -1, -1])
    np.testing.assert_array_equal(r.marginal(z[:2])[0], [[1, 0], [0, 0]])
    for observed in (("z[:2]",), (z[:2],), ("z[0]", ("z", 1)), ("z[:1]", z[1])):
        ask = pgm.prepare(model, observed=observed)
        np.testing.assert_array_equal(
            ask({"z": [[0, 1, np.nan], [2, 2, np.nan]]}).marginal("s")["low"], whole
        )
        assert "2 of 9 units observed" in pgm.explain(model, observed=observed)
    with pytest.raises(pgm.PgmError, match="z"):
        pgm.prepare(model, observed=("z[5]",))


BAD = {
    "no units": (lambda z: ("z[9:]",), "'?z\\[9:\\]'? has no units"),
    "outside": (lambda z: ("z[9]",), "z"),
    "twice": (lambda z: ("z[1:]", "z[2]"), "a unit is named twice"),
    "twice by a handle": (lambda z: ("z", z[0]), "a unit is named twice"),
    "unknown": (lambda z: ("y[1:]",), "y"),
}


@one_test_over("name", BAD)
@pytest.mark.parametrize("kind", [pgm.Joint, pgm.Mode])
def test_wrong_parts_are_refused(name, kind):
    model, _, z = grid()
    make, said = BAD[name]
    with pytest.raises(pgm.PgmError, match=said):
        pgm.infer(model, want=(kind(*make(z)),))


def test_a_joint_distribution_has_at_most_63_axes():
    b = pgm.GraphBuilder()
    z = b.variable("z", shape=70)
    b.conditional(z, (), [0.3, 0.7])
    model = b.build()
    with pytest.raises(pgm.PgmError, match="has 70 units, expected at most 63"):
        pgm.infer(model, want=(pgm.Joint("z"),))
    assert pgm.infer(model, want=(pgm.Mode("z"),)).assignment("z")["z"].all()
    with pytest.raises(pgm.PgmError):
        pgm.infer(model, want=(pgm.Joint("z[:40]"),))
