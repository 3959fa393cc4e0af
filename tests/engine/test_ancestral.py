"""Compiled draws from conditional tables against draws of one unit after the other in numpy."""

import itertools

import numpy as np
import pytest
from loops import one_test_over
from tiny import MODELS

import pgmengine as pgm
from pgmengine.engine.ancestral_draws import Conditionals
from pgmengine.model.tables import joined_states

NAN = np.nan
NETWORKS = [m for m in MODELS if m.build().structure.normalized and not m.build().structure.arrows]


class Plain:
    """The reference: states of all units, drawn by the uniforms that the routine takes."""

    def __init__(self, target, each):
        self.target, self.each = target, each
        self.states = np.repeat(joined_states(target.structure, target.evidence.values), each, 0).T

    def draw(self, chosen, rng):
        """Draw or weigh the units of a step, layer -> units; return log p (draws,)."""
        s, log_p = self.target.structure, np.zeros(self.states.shape[1])
        units = [(name, own) for name, some in chosen.items() for own in some]
        drawn = [u for u in units if self.target.free[u[0]][:, u[1]].any()]
        uniform = dict(zip(drawn, rng.random((len(drawn), len(log_p))), strict=True))
        for name, own in units:
            free = np.repeat(self.target.free[name][:, own], self.each)
            cut = np.repeat(self.target.intervened[name][:, own], self.each)
            rows, state = self.conditional(s.child_tables[name][own]), s.first_unit[name] + own
            if free.any():
                total = np.cumsum(np.exp(rows), axis=1)
                u = uniform[name, own] * total[:, -1]
                new = (u[:, None] >= total[:, :-1]).sum(axis=1)
                self.states[state] = np.where(free, new, self.states[state])
            own_term = rows[np.arange(len(rows)), self.states[state]]
            log_p += np.where(free | cut, 0.0, own_term)
        return log_p

    def conditional(self, table):
        """Return log p of each state of the child of a table, (draws, K)."""
        index = self.target.structure.table_index
        axes = range(index.start[table], index.start[table + 1])
        shape = [index.states[a] for a in axes]
        entries = self.target.model.table_entries[index.first[table] :][: index.size[table]]
        found = entries.reshape(shape)[tuple(self.states[index.unit[a]] for a in axes[:-1])]
        return np.broadcast_to(found, (self.states.shape[1], shape[-1]))


def check_same_draws(target, each, seed=0):
    """Whether both ways make the same draws and the same importance weights in all steps."""
    plain, fast = Plain(target, each), Conditionals(target, target.evidence.values, each)
    one, two = np.random.default_rng(seed), np.random.default_rng(seed)
    for step in target.structure.drawing_steps:
        expected = plain.draw(step.units, one)
        np.testing.assert_allclose(fast.draw(step.units, two), expected, rtol=1e-12)
        np.testing.assert_array_equal(fast.states, plain.states)
    return fast


def evidence(model, rows, rng):
    """Some units observed, and others clamped by do(), in patterns that differ between rows."""
    values, do = {}, {}
    for name, layer in model.structure.layers.items():
        states = rng.integers(0, len(layer.unit.support), (rows, layer.size))
        which = rng.integers(0, 4, (rows, layer.size))
        value = layer.unit.support[states]
        gone = which if layer.unit.width == 1 else which[..., None]
        values[name] = np.where(gone == 1, value, NAN)
        do[name] = np.where(gone == 2, value, NAN)
    return model.given(values, do=do)


@one_test_over("m", NETWORKS)
@pytest.mark.parametrize("each", [1, 7, 300])
def test_draws_and_weights_equal_the_reference(m, each):
    model = m.build()
    for rows in (1, 3, 40):
        check_same_draws(evidence(model, rows, np.random.default_rng(rows)), each)


def test_nothing_is_drawn_where_everything_is_observed():
    b = pgm.GraphBuilder()
    b.variable("a", 3)
    b.variable("b", 2)
    b.conditional("a", (), [0.2, 0.3, 0.5])
    b.conditional("b", ("a",), [[0.1, 0.9]] * 3)
    check_same_draws(b.build().given({"a": 2, "b": 1}), 5)


class Given:
    """A random source that hands out given uniforms."""

    def __init__(self, uniforms):
        self.uniforms = uniforms

    def random(self, shape):
        return self.uniforms.reshape(shape)


def test_uniforms_at_the_ends_reach_no_impossible_state():
    """Uniforms are in [0, 1): 0 goes to the first possible state, and the largest to the last."""
    b = pgm.GraphBuilder()
    b.variable("a", 5)
    b.conditional("a", (), [0.0, 0.0, 0.5, 0.5, 0.0])
    target = b.build().given()
    found = Conditionals(target, target.evidence.values, 4)
    (step,) = target.structure.drawing_steps
    uniforms = np.array([0.0, np.nextafter(0.5, 0.0), 0.5, np.nextafter(1.0, 0.0)])
    found.draw(step.units, Given(uniforms))
    np.testing.assert_array_equal(found.states, [[2, 2, 3, 3]])


def test_values_follow_the_states(each=50):
    """Layers in part with a conditional keep the values of their other units."""
    b = pgm.GraphBuilder()
    b.layer("x", pgm.Spin(), 3)
    b.layer("c", pgm.Categorical(3), 2)
    b.conditional(("c", 1), (), [0.2, 0.3, 0.5])
    b.conditional(("x", 0), (("c", 1),), [[0.1, 0.9], [0.5, 0.5], [0.7, 0.3]])
    model = b.build()
    target = model.given({"x": [NAN, 1, -1], "c": [2, NAN]})
    found = check_same_draws(target, each)
    x = found.refresh(model.structure.layers)
    np.testing.assert_array_equal(joined_states(model.structure, x).T, found.states)
    assert len(np.unique(x["x"][:, 0])) == 2 and (x["x"][:, 1:] == [1, -1]).all()


def test_tallies_are_sums_of_weights(each=200):
    m = next(m for m in NETWORKS if m.name == "network")
    target = evidence(m.build(), 3, np.random.default_rng(0))
    found = check_same_draws(target, each)
    p = np.random.default_rng(1).random((3, each))
    p[1] = NAN
    s = target.structure
    for name, layer in s.layers.items():
        prob, squares = found.counted(name, p)
        rows = range(3), range(layer.size), range(len(layer.unit.support))
        for r, u, k in itertools.product(*rows):
            here = found.states[s.first_unit[name] + u].reshape(3, -1)[r] == k
            expected = (p[r] * here).sum() if r != 1 else NAN
            np.testing.assert_allclose(prob[r, u, k], expected, rtol=1e-12)
            expected = (p[r] ** 2 * here).sum() if r != 1 else NAN
            np.testing.assert_allclose(squares[r, u, k], expected, rtol=1e-12)
