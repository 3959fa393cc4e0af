"""CD against enumeration: distributions of states after k sweeps, by products of matrices written
from the definition.
"""

import itertools

import numpy as np
import pytest

import pgmengine as pgm
from pgmengine.learn.phases.batch import outward

SIZES = {"v": 3, "h": 2, "g": 1}
# numbers of no meaning for which CD differs from the likelihood by more than sampling errors
WEIGHTS = {
    "vh": np.array([[4.1, -5.1], [0.8, -1.1], [-0.9, -0.4]]),
    "hg": np.array([[-4.0], [-0.5]]),
}
BIAS = {"v": np.array([-0.4, 1.7, 0.1]), "h": np.array([-0.2, -0.1]), "g": np.array([-0.3])}
DATA = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=float)


def build(order):
    """A model of the layers in this order of declaration: v - h, or v - h - g."""
    b = pgm.GraphBuilder()
    for name in order:
        b.layer(name, pgm.Binary(), SIZES[name], bias=BIAS[name])
    b.couple("v", "h", weight=WEIGHTS["vh"])
    if "g" in order:
        b.couple("h", "g", weight=WEIGHTS["hg"])
    return b.build()


class Joint:
    """All states of v, h and g; without g its weights and its bias are 0, so that it matters
    nowhere.
    """

    def __init__(self, deep):
        states = np.array(list(itertools.product([0.0, 1.0], repeat=6)))
        self.v, self.h, self.g = states[:, :3], states[:, 3:5], states[:, 5:]
        self.columns = {"v": [0, 1, 2], "h": [3, 4], "g": [5]}
        log_p = (
            self.v @ BIAS["v"]
            + self.h @ BIAS["h"]
            + ((self.v @ WEIGHTS["vh"]) * self.h).sum(axis=1)
        )
        if deep:
            log_p = log_p + self.g @ BIAS["g"] + ((self.h @ WEIGHTS["hg"]) * self.g).sum(axis=1)
        self.states, self.p = states, np.exp(log_p)

    def redraw(self, names):
        """The matrix that draws layers anew given all others."""
        columns = [i for name in names for i in self.columns[name]]
        kept = np.delete(self.states, columns, axis=1)
        same = (kept[:, None] == kept[None]).all(axis=2)
        weight = same * self.p
        return weight / weight.sum(axis=1, keepdims=True)

    def flip(self, names):
        """The matrix that moves the units of layers by flip-the-state given all others, all at once
        (Brügge, Fischer and Igel 2013, eq. 2).
        """
        out = np.ones((len(self.p), len(self.p)))
        mine = [i for name in names for i in self.columns[name]]
        for i in mine:
            other = self.states.copy()
            other[:, i] = 1 - other[:, i]
            there = np.array([np.flatnonzero((self.states == row).all(axis=1))[0] for row in other])
            # Units of a layer do not act on each other.
            change = np.minimum(1.0, self.p[there] / self.p)
            same = self.states[:, None, i] == self.states[None, :, i]
            out *= np.where(same, 1 - change[:, None], change[:, None])
        kept = np.delete(self.states, mine, axis=1)
        return out * (kept[:, None] == kept[None]).all(axis=2)

    def at_data(self, data):
        """P(h, g | v) at the rows of data on average."""
        out = np.zeros(len(self.p))
        for row in data:
            here = (self.v == row).all(axis=1) * self.p
            out += here / here.sum() / len(data)
        return out

    def statistics(self, q):
        return {
            "v.bias": q @ self.v,
            "h.bias": q @ self.h,
            "g.bias": q @ self.g,
            "v-h.weight": (q[:, None] * self.v).T @ self.h,
            "h-g.weight": (q[:, None] * self.h).T @ self.g,
        }


def step_of(model, negative, rows):
    """The gradient of one update, as the step of plain SGD with rate 1."""
    x = np.repeat(DATA, rows, axis=0)
    f = pgm.fit(
        model,
        {"v": x},
        negative=negative,
        optimizer=pgm.SGD(1.0),
        batch_size=len(x),
        updates=1,
        rng=0,
    )
    return {name: f.model.params[name] - value for name, value in model.params.items()}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("order", ["vh", "hv", "vhg", "ghv", "hvg"])
@pytest.mark.parametrize("kernel", [pgm.Gibbs(), pgm.FlipState()], ids=repr)
def test_cd_is_the_difference_of_the_states_at_the_data_and_k_sweeps_later(
    kernel, order, k, sure=3.0, rows=5000
):
    """Hidden units are drawn from their conditionals in the last sweep, whatever the kernel.

    The data phase is exact here. The model phase is a mean over independent chains of numbers in
    [0, 1]; one of at most 14 is off by more than `sure` / sqrt(chains) with a probability below
    28 exp(-2 sure^2) = 4e-7, by Hoeffding's inequality.
    """
    deep, rows = "g" in order, rows // (10 if "g" in order else 1)
    joint = Joint(deep)
    move = joint.flip if kernel == pgm.FlipState() else joint.redraw
    q = joint.at_data(DATA)
    before = joint.statistics(q)
    for t in range(k):
        for name in ("v", "h", "g") if deep else ("v", "h"):
            q = q @ (joint.redraw if t == k - 1 and name != "v" else move)([name])
    after = joint.statistics(q)
    found = step_of(build(order), pgm.CD(k, kernel), rows)
    assert sum(np.size(value) for value in found.values()) <= 14
    for name, value in found.items():
        off = np.abs(value - (before[name] - after[name]))
        assert np.all(off < sure / np.sqrt(rows * len(DATA))), name


@pytest.mark.parametrize("kernel", [pgm.Gibbs(), pgm.FlipState()], ids=repr)
def test_cd_teaches_hidden_units(kernel, least=0.2):
    """The largest expected step is 0.29 by G and 0.38 by T, with standard errors below 0.004."""
    for order in ("vh", "hv"):
        step = step_of(build(order), pgm.CD(1, kernel), 5000)
        assert np.abs(step["h.bias"]).max() > least


def test_cd_of_a_conditional_learns_the_weights_of_what_is_given(sure=3.0, rows=20_000):
    """v given, h hidden, g learned: the gradient of v's weight is that of E[v h | v, g] less E[v
    h_1 | v, g_1].

    The limit is that of the test above, for the 22 numbers of both orders: 44 exp(-18) = 7e-7.
    """
    joint = Joint(deep=True)
    seen = np.column_stack([DATA, [0, 1, 1, 0]])
    q = np.zeros(len(joint.p))
    for row in seen:
        here = (joint.states[:, [0, 1, 2, 5]] == row).all(axis=1) * joint.p
        q += here / here.sum() / len(seen)
    before = joint.statistics(q)
    after = joint.statistics(q @ joint.redraw(["g"]) @ joint.redraw(["h"]))
    for order in ("vhg", "ghv"):
        x = np.repeat(seen, rows // 4, axis=0)
        model = build(order)
        f = pgm.fit(
            model,
            {"v": x[:, :3], "g": x[:, 3:]},
            given=("v",),
            negative=pgm.CD(1),
            optimizer=pgm.SGD(1.0),
            batch_size=rows,
            updates=1,
            rng=0,
        )
        for name in ("v-h.weight", "h-g.weight", "h.bias", "g.bias"):
            value = f.model.params[name] - model.params[name]
            off = np.abs(value - (before[name] - after[name]))
            assert np.all(off < sure / np.sqrt(rows)), name
        # what is learned there is far from nothing
        assert np.abs(before["v-h.weight"] - after["v-h.weight"]).max() > 2 * sure / np.sqrt(rows)


def test_what_is_near_the_data_moves_first():
    deep = pgm.dbm([2, 2, 2, 2], rng=0)
    data = {"v": np.zeros((1, 2))}
    assert outward(deep.given(data), {}) == (("v",), ("h1", "h2", "h3"))
    assert outward(deep.given({"h3": np.zeros((1, 2))}), {}) == (("h3",), ("h2", "h1", "v"))
    drbm = pgm.drbm(3, 2, 2, rng=0)
    x = drbm.structure.names.units(("x",), "given")
    assert outward(drbm.given({"x": np.zeros((1, 3)), "y": [1]}), x) == (("y",), ("h", "x"))
    data, rest = outward(deep.given({}), {})
    assert not data
    assert set(rest) == {"v", "h1", "h2", "h3"}
